package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/bus"
	"auspex/internal/store/audit"
	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

// told follows what is published about windows.
func (w *world) told(t *testing.T) <-chan schemas.Event {
	t.Helper()
	out := make(chan schemas.Event, 64)
	go func() {
		_ = w.bus.Subscribe(t.Context(), bus.Subscription{Topic: schemas.TopicEvents, Group: "test"}, func(_ context.Context, msgs []bus.Message) error {
			for i := range msgs {
				var b auspexv1.Batch
				if err := b.UnmarshalVT(msgs[i].Value); err != nil {
					t.Error(err)
				}
				for _, ev := range b.GetEvents() {
					out <- schemas.EventFromWire(ev)
				}
			}
			return nil
		})
	}()
	return out
}

func next(t *testing.T, events <-chan schemas.Event) schemas.Event {
	t.Helper()
	select {
	case ev := <-events:
		return ev
	case <-time.After(20 * time.Second):
		t.Fatal("nothing is published")
		return schemas.Event{}
	}
}

func TestMaintenanceIsDeclaredAndEnded(t *testing.T) {
	w := start(t, true)
	events := w.told(t)
	now := time.Now().UTC()
	at := func(d time.Duration) string { return now.Add(d).Format(time.RFC3339Nano) }
	const path = "api/v1/maintenance"
	good := fmt.Sprintf(`{"resources":["dc1-r01"],"until":%q,"reason":"new supplies"}`, at(time.Hour))
	for _, c := range []struct {
		name, role, body string
		status           int
		code             string
	}{
		{"nobody", "", good, 401, "login_needed"},
		{"a viewer", access.RoleViewer, good, 403, "no_permission"},
		{"without a reason", access.RoleOperator, strings.Replace(good, "new supplies", " ", 1), 400, "bad_maintenance"},
		{"without an end", access.RoleOperator, `{"resources":["dc1-r01"],"reason":"x"}`, 400, "bad_maintenance"},
		{"of nothing", access.RoleOperator, fmt.Sprintf(`{"until":%q,"reason":"x"}`, at(time.Hour)), 400, "bad_maintenance"},
		{"of what nobody knows", access.RoleOperator, strings.Replace(good, "dc1-r01", "dc1-r99", 1), 404, "not_found"},
		{"of a part that work is not done on", access.RoleOperator, strings.Replace(good, "dc1-r01", "gpu-r01-03/gpu2", 1), 400, "bad_maintenance"},
		{"of a kind of nobody", access.RoleOperator, strings.Replace(good, `"reason"`, `"work":"magic","reason"`, 1), 400, "bad_maintenance"},
		{"that is over", access.RoleOperator, fmt.Sprintf(`{"resources":["dc1-r01"],"from":%q,"until":%q,"reason":"x"}`, at(-2*time.Hour), at(-time.Hour)), 400, "bad_maintenance"},
		{"that ends before it begins", access.RoleOperator, fmt.Sprintf(`{"resources":["dc1-r01"],"from":%q,"until":%q,"reason":"x"}`, at(2*time.Hour), at(time.Hour)), 400, "bad_maintenance"},
		{"for ever", access.RoleOperator, fmt.Sprintf(`{"resources":["dc1-r01"],"until":%q,"reason":"x"}`, at(1000*time.Hour)), 400, "bad_maintenance"},
		{"of next year", access.RoleOperator, fmt.Sprintf(`{"resources":["dc1-r01"],"from":%q,"duration_seconds":60,"reason":"x"}`, at(9000*time.Hour)), 400, "bad_maintenance"},
		{"with two ends", access.RoleOperator, fmt.Sprintf(`{"resources":["dc1-r01"],"until":%q,"duration_seconds":60,"reason":"x"}`, at(time.Hour)), 400, "bad_maintenance"},
		{"with a grace of a week", access.RoleOperator, strings.Replace(good, `"reason"`, `"grace_seconds":604800,"reason"`, 1), 400, "bad_body"},
	} {
		a := w.send(t, http.MethodPost, path, c.role, body(c.body))
		if a.status != c.status {
			t.Errorf("%s: %d %s, want %d", c.name, a.status, a.body, c.status)
		} else if p := a.problem(t); p.Code != c.code {
			t.Errorf("%s: %+v", c.name, p)
		}
	}
	var made []schemas.Maintenance
	for range 2 { // the same key of the same caller is the same window
		a := w.send(t, http.MethodPost, path, access.RoleOperator, func(r *http.Request) {
			body(good)(r)
			r.Header.Set("Idempotency-Key", "k1")
		})
		if a.status != http.StatusCreated {
			t.Fatalf("%d %s", a.status, a.body)
		}
		made = append(made, decoded[schemas.Maintenance](t, a))
	}
	m := made[0]
	if m.ID != made[1].ID || m.State != schemas.MaintenanceOpen || m.By != "operator" || m.GraceSeconds != 600 || m.Work != schemas.WorkMaintenance {
		t.Errorf("declared twice: %+v", made)
	}
	ev := next(t, events)
	got, err := schemas.MaintenanceOf(&ev)
	if err != nil || ev.Resource != "dc1-r01" || got.ID != m.ID || !got.Until.Equal(m.Until) || got.By != "operator" {
		t.Errorf("published: %+v %v", ev, err)
	}
	// By attributes, in another zone, and as it is to come.
	from := now.Add(2 * time.Hour).In(time.FixedZone("CST", 8*3600)).Format(time.RFC3339)
	a := w.send(t, http.MethodPost, path, access.RoleAdmin, body(fmt.Sprintf(
		`{"match":{"kind":"server","within":"dc1-r01"},"from":%q,"duration_seconds":3600,"reason":"firmware","grace_seconds":0}`, from)))
	if a.status != http.StatusCreated {
		t.Fatalf("%d %s", a.status, a.body)
	}
	later := decoded[schemas.Maintenance](t, a)
	if later.State != schemas.MaintenanceToCome || len(later.Resources) != len(servers(1)) || later.GraceSeconds != 0 ||
		later.From.Sub(now).Round(time.Minute) != 2*time.Hour {
		t.Errorf("by attributes: %+v", later)
	}
	for range later.Resources {
		next(t, events)
	}
	for query, want := range map[string]int{"": 2, "?open=true": 2, "?resource=gpu-r01-03": 2, "?resource=gpu-r02-01": 0, "?open=true&resource=pdu-r01-a": 1, "?limit=1": 1} {
		if list := read[apigen.MaintenanceList](t, w, path+query); len(list.Items) != want || len(list.Works) == 0 {
			t.Errorf("%q lists %+v", query, list)
		}
	}
	if a := w.send(t, http.MethodPost, path+"/"+m.ID+"/end", access.RoleViewer, nil); a.status != http.StatusForbidden {
		t.Errorf("a viewer ends it: %d", a.status)
	}
	if a := w.send(t, http.MethodPost, path+"/mw-0/end", access.RoleOperator, nil); a.status != http.StatusNotFound {
		t.Errorf("nothing is ended: %d", a.status)
	}
	for range 2 {
		a := w.send(t, http.MethodPost, path+"/"+m.ID+"/end", access.RoleOperator, nil)
		if ended := decoded[schemas.Maintenance](t, a); a.status != http.StatusOK || ended.State != schemas.MaintenanceOver || ended.EndedBy != "operator" {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	for ev = next(t, events); ev.Type != schemas.EventMaintenanceEnded; ev = next(t, events) {
		if ev.Attr("window") != m.ID { // that it was declared is said again, and is the same event
			t.Errorf("published: %+v", ev)
		}
	}
	if one := read[schemas.Maintenance](t, w, path+"/"+m.ID); one.State != schemas.MaintenanceOver {
		t.Errorf("%+v", one)
	}
	if _, err := audit.Verify(t.Context(), w.db); err != nil {
		t.Error(err)
	}
}

// A window is changed while it is not over: whoever hears of it hears that what it was has ended, and
// what it is now, under one id in the API. A stale ETag changes nothing.
func TestMaintenanceIsChangedAndWithdrawn(t *testing.T) {
	w := start(t, true)
	events := w.told(t)
	const path = "api/v1/maintenance"
	made := w.send(t, http.MethodPost, path, access.RoleOperator, body(`{"resources":["dc1-r01"],"duration_seconds":3600,"reason":"new supplies"}`))
	m := decode[schemas.Maintenance](t, made, http.StatusCreated)
	if at := made.header.Get("Location"); !strings.HasSuffix(at, "/"+path+"/"+m.ID) || made.header.Get("ETag") == "" {
		t.Errorf("%v", made.header)
	}
	next(t, events)
	put := func(text, tag string) answer {
		return w.send(t, http.MethodPut, path+"/"+m.ID, access.RoleOperator, func(r *http.Request) {
			body(text)(r)
			r.Header.Set("If-Match", tag)
		})
	}
	for text, want := range map[string]struct {
		status int
		field  string
	}{
		`{"until":"2020-01-01T00:00:00Z"}`:                         {400, "until"},
		`{"until":"2099-01-01T00:00:00Z"}`:                         {400, "until"},
		`{"until":"2099-01-01T00:00:00Z","duration_seconds":7200}`: {400, "duration_seconds"},
		`{"reason":" "}`:            {400, "reason"},
		`{"resources":["dc1-r02"]}`: {400, "resources"},
		`{"grace_seconds":-1}`:      {400, "grace_seconds"},
		`{"duration_seconds":7200,"duration_seconds":1,"reason":"two"}`: {400, "duration_seconds"},
	} {
		if a := put(text, ""); a.status != want.status || a.problem(t).Errors[0].Field != want.field {
			t.Errorf("%s: %d %s", text, a.status, a.body)
		}
	}
	tag := made.header.Get("ETag")
	a := put(`{"duration_seconds":7200,"reason":"and new fans"}`, tag)
	got := decode[schemas.Maintenance](t, a, http.StatusOK)
	if got.ID != m.ID || !got.Until.Equal(m.From.Add(2*time.Hour)) || got.Reason != "and new fans" || got.State != schemas.MaintenanceOpen || got.ChangedBy != "operator" {
		t.Errorf("%+v", got)
	}
	if a := put(`{"reason":"lost"}`, tag); a.status != http.StatusPreconditionFailed {
		t.Errorf("of a passed revision: %d %s", a.status, a.body)
	}
	if d := w.send(t, http.MethodDelete, path+"/"+m.ID, access.RoleOperator, func(r *http.Request) { r.Header.Set("If-Match", tag) }); d.status != http.StatusPreconditionFailed {
		t.Errorf("of a passed revision: %d %s", d.status, d.body)
	}
	decode[schemas.Maintenance](t, put(`{"duration_seconds":1800}`, a.header.Get("ETag")), http.StatusOK)
	// The bus may be told of two changes at once: what it knows in the end is the same.
	until, ended := map[string]time.Time{}, map[string]bool{}
	hears := func(what string, known func() bool) {
		t.Helper()
		for !known() {
			ev := next(t, events)
			part, err := schemas.MaintenanceOf(&ev)
			if err != nil || part.Window() != m.ID {
				t.Fatalf("%s: %+v %v", what, ev, err)
			}
			if part.Ended != nil {
				ended[part.ID] = true
			} else {
				until[part.ID] = part.Until
			}
		}
	}
	last := m.ID + "~3"
	hears("changed twice", func() bool { return ended[m.ID] && ended[m.ID+"~2"] && !until[last].IsZero() })
	if !until[last].Equal(m.From.Add(30*time.Minute)) || ended[last] {
		t.Errorf("declared %v, ended %v", until, ended)
	}
	if d := w.send(t, http.MethodDelete, path+"/"+m.ID, access.RoleOperator, nil); d.status != http.StatusNoContent {
		t.Errorf("%d %s", d.status, d.body)
	}
	hears("withdrawn", func() bool { return ended[last] })
	if one := read[schemas.Maintenance](t, w, path+"/"+m.ID); one.State != schemas.MaintenanceOver || one.EndedBy != "operator" {
		t.Errorf("%+v", one)
	}
	if a := put(`{"reason":"late"}`, ""); a.status != http.StatusConflict || a.problem(t).Code != "over" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if _, err := audit.Verify(t.Context(), w.db); err != nil {
		t.Error(err)
	}
}

// What was declared while the bus was away, or by another process, is published later.
func TestMaintenanceIsPublishedOnceTheBusIsThere(t *testing.T) {
	w := start(t, true)
	up := w.down(t)
	now := time.Now().UTC()
	m := schemas.Maintenance{
		ID: "mw-1", Resources: []string{"pdu-r01-a", "gpu-r01-01"}, Work: schemas.WorkMaintenance, Reason: "x", By: "li",
		Source: schemas.SourceOperator, Declared: now, From: now, Until: now.Add(time.Hour),
	}
	if _, err := w.deps(t).Maintenance.Declare(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	up()
	events := w.told(t)
	seen := map[string]bool{}
	for len(seen) < 2 {
		ev := next(t, events)
		seen[ev.Resource] = ev.Attr("window") == "mw-1"
	}
	if !seen["pdu-r01-a"] || !seen["gpu-r01-01"] {
		t.Errorf("%v", seen)
	}
}

func decoded[T any](t *testing.T, a answer) (v T) {
	t.Helper()
	if err := json.Unmarshal(a.body, &v); err != nil {
		t.Fatalf("%s: %v", a.body, err)
	}
	return v
}

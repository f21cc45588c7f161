package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/api"
	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/bus"
	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

// heard hands out the events that are put on the bus.
func (w *world) heard(t *testing.T) <-chan schemas.Event {
	t.Helper()
	out, done := make(chan schemas.Event, 64), make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(done)
		_ = w.bus.Subscribe(ctx, bus.Subscription{Topic: schemas.TopicEvents, Group: "test"}, func(_ context.Context, msgs []bus.Message) error {
			for _, m := range msgs {
				var b auspexv1.Batch
				if err := b.UnmarshalVT(m.Value); err != nil {
					return err
				}
				for _, e := range b.GetEvents() {
					out <- schemas.EventFromWire(e)
				}
			}
			return nil
		})
	}()
	t.Cleanup(func() { cancel(); <-done })
	return out
}

// stored puts an event into the records as detection does.
func (w *world) stored(t *testing.T, ev schemas.Event) {
	t.Helper()
	server, _, _ := strings.Cut(ev.Resource, "/")
	if err := w.records.PutAlert(t.Context(), schemas.Alert{Event: ev, Server: server, Status: schemas.AlertFiring}); err != nil {
		t.Fatal(err)
	}
}

func idempotent(key, text string) func(*http.Request) {
	return func(r *http.Request) {
		body(text)(r)
		r.Header.Set("Idempotency-Key", key)
	}
}

func answered[T any](t *testing.T, a answer, status int) (v T) {
	t.Helper()
	if a.status != status {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if err := json.Unmarshal(a.body, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// What callers post goes the way of all events, says who posted it, and reads back as it was posted.
func TestWhatCallersPostIsAnEventLikeOthers(t *testing.T) {
	w := start(t, true)
	heard := w.heard(t)
	at := time.Now().Add(-time.Minute).UTC().Truncate(time.Second)
	a := w.send(t, http.MethodPost, "api/v1/events", access.RoleOperator, body(fmt.Sprintf(
		`{"source_type":"server","source_id":"S0203","event_type":"fan.failure","severity":"error","code":"7","message":"it stands","occurred_at":%q,`+
			`"data":{"part":"fan2","rpm":0,"seen":{"by":["Li","Wu"]}}}`, at.Format(time.RFC3339))))
	made := answered[apigen.Event](t, a, http.StatusCreated)
	if a.header.Get("Location") != "/api/v1/events/"+made.ID {
		t.Errorf("Location %q", a.header.Get("Location"))
	}
	ev := <-heard
	if ev.ID != made.ID || ev.Source != schemas.SourceAPI || !ev.External() || ev.Attr(schemas.AttrPostedBy) != access.RoleOperator || !ev.Time.Equal(at) ||
		ev.Resource != "gpu-r02-03" || ev.Attr("part") != "fan2" || ev.Attr("rpm") != "0" {
		t.Errorf("%+v", ev)
	}
	if a := w.send(t, http.MethodGet, "api/v1/events/"+made.ID, access.RoleViewer, nil); a.status != http.StatusNotFound {
		t.Errorf("before detection: %d %s", a.status, a.body)
	}
	w.stored(t, ev)
	got := answered[apigen.Event](t, w.send(t, http.MethodGet, "api/v1/events/"+made.ID, access.RoleViewer, nil), http.StatusOK)
	want := map[string]any{"part": "fan2", "rpm": 0.0, "seen": map[string]any{"by": []any{"Li", "Wu"}}}
	if d := cmp.Diff(want, got.Data); d != "" {
		t.Error(d)
	}
	if got.Resource != "gpu-r02-03" || got.SourceType != schemas.KindServer || got.SourceID == "" || got.EventType != "fan.failure" || got.Type != got.EventType || !got.OccurredAt.Equal(at) {
		t.Errorf("%+v", got)
	}
	alert := answered[apigen.Alert](t, w.send(t, http.MethodGet, "api/v1/alerts/"+made.ID, access.RoleViewer, nil), http.StatusOK)
	if alert.Status != "active" || alert.Priority != "high" || alert.SourceID != got.SourceID || !cmp.Equal(want, alert.Data) {
		t.Errorf("%+v", alert)
	}
	if a := w.send(t, http.MethodGet, "api/v1/events/none", access.RoleViewer, nil); a.status != http.StatusNotFound {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// An alert says that it is one whatever its severity, and whether it lasts.
func TestPostedAlerts(t *testing.T) {
	w := start(t, true)
	heard := w.heard(t)
	for _, c := range []struct {
		more, state string
		severity    schemas.Severity
	}{
		{`"priority":"low","status":"active"`, schemas.StateRaised, schemas.SeverityInfo},
		{`"severity":"info","priority":"low","status":"resolved"`, schemas.StateCleared, schemas.SeverityInfo},
		{`"priority":"medium"`, "", schemas.SeverityWarning},
		{`"priority":"high"`, "", schemas.SeverityError},
		{`"severity":"critical"`, "", schemas.SeverityCritical},
	} {
		a := w.send(t, http.MethodPost, "api/v1/alerts", access.RoleOperator, body(`{"source_id":"gpu-r02-03/gpu1","alert_type":"gpu.thermal",`+c.more+`}`))
		made := answered[apigen.Event](t, a, http.StatusCreated)
		if ev := <-heard; ev.ID != made.ID || ev.Attr(schemas.AttrAlert) == "" || ev.State != c.state || ev.Severity != c.severity || !ev.External() {
			t.Errorf("%s: %+v", c.more, ev)
		}
	}
	for _, bad := range []string{`,"severity":"info","priority":"critical"`, ``} {
		a := w.send(t, http.MethodPost, "api/v1/alerts", access.RoleOperator, body(`{"source_id":"gpu-r02-03","alert_type":"gpu.thermal"`+bad+`}`))
		if a.status != http.StatusBadRequest || len(a.problem(t).Errors) == 0 {
			t.Errorf("%s: %d %s", bad, a.status, a.body)
		}
	}
}

// The same is posted once: by its key, by its content where it says when, and never otherwise.
func TestWhatIsPostedAgainIsOneEvent(t *testing.T) {
	w := start(t, true)
	heard := w.heard(t)
	at := time.Now().Add(-time.Minute).UTC().Format(time.RFC3339Nano)
	plain := `{"source_id":"gpu-r02-03","event_type":"psu.failure","severity":"error"}`
	timed := `{"source_id":"gpu-r02-03","event_type":"psu.failure","severity":"error","occurred_at":"` + at + `"}`
	send := func(role string, f func(*http.Request)) string {
		return answered[apigen.Event](t, w.send(t, http.MethodPost, "api/v1/events", role, f), http.StatusCreated).ID
	}
	ids := map[string]int{}
	for range 3 {
		ids[send(access.RoleOperator, idempotent("k1", plain))]++
		ids[send(access.RoleOperator, body(timed))]++
		ids[send(access.RoleOperator, body(plain))]++
	}
	ids[send(access.RoleAdmin, body(timed))]++
	if counts := slices.Sorted(maps.Values(ids)); !slices.Equal(counts, []int{1, 1, 1, 1, 3, 3}) {
		t.Errorf("%v", ids)
	}
	if a := w.send(t, http.MethodPost, "api/v1/events", access.RoleOperator, idempotent("k1", timed)); a.status != http.StatusUnprocessableEntity {
		t.Errorf("%d %s", a.status, a.body)
	}
	keyed := send(access.RoleOperator, idempotent("k2", plain))
	if _, err := w.db.ExecContext(t.Context(), `DELETE FROM api_answers`); err != nil { // as if its answer had been lost
		t.Fatal(err)
	}
	if again := send(access.RoleOperator, idempotent("k2", plain)); again != keyed {
		t.Errorf("%s was made again as %s", keyed, again)
	}
	ids[keyed]++
	seen := map[string]int{} // the same may come to the bus again: detection knows it by its id
	for range 3 + 3 + 1 + 1 + 2 {
		ev := <-heard
		seen[ev.ID]++
	}
	for id := range ids {
		if seen[id] == 0 {
			t.Errorf("%s is not on the bus", id)
		}
	}
	if len(seen) != len(ids) {
		t.Errorf("%d events of %d", len(seen), len(ids))
	}
}

func TestWhatCannotBePostedNamesItsField(t *testing.T) {
	w := start(t, true)
	heard := w.heard(t)
	deep, wide := strings.Repeat(`{"a":`, 5)+"1"+strings.Repeat("}", 5), make([]string, 65)
	for k := range wide {
		wide[k] = fmt.Sprintf(`"f%d":1`, k)
	}
	for name, c := range map[string]struct{ more, field string }{
		"unknown source":       {`"source_id":"gpu-r99-01"`, "source_id"},
		"another kind":         {`"source_type":"switch"`, "source_type"},
		"no job":               {`"source_type":"workload"`, "source_id"},
		"no type":              {`"event_type":"Fan Failure"`, "event_type"},
		"a window":             {`"event_type":"maintenance.declared"`, "event_type"},
		"a job's state":        {`"event_type":"workload.state"`, "event_type"},
		"severity":             {`"severity":"bad"`, "severity"},
		"tomorrow":             {`"occurred_at":"` + time.Now().Add(time.Hour).UTC().Format(time.RFC3339) + `"`, "occurred_at"},
		"last week":            {`"occurred_at":"` + time.Now().Add(-170*time.Hour).UTC().Format(time.RFC3339) + `"`, "occurred_at"},
		"unknown field":        {`"colour":"red"`, "colour"},
		"data too deep":        {`"data":{"a":` + deep + `}`, "data.a"},
		"data too wide":        {`"data":{` + strings.Join(wide, ",") + `}`, "data"},
		"data too large":       {`"data":{"a":"` + strings.Repeat("x", 17<<10) + `"}`, "data"},
		"data claims a source": {`"data":{"collector":"dcgmexporter"}`, "data.collector"},
		"data denies":          {`"data":{"external":""}`, "data.external"},
		"data with odd name":   {`"data":{"a b":1}`, "data.a b"},
		"data beyond 2^53":     {`"data":{"a":[9007199254740994]}`, "data.a"},
	} {
		fields := map[string]json.RawMessage{"source_id": json.RawMessage(`"gpu-r02-03"`), "event_type": json.RawMessage(`"fan.failure"`), "severity": json.RawMessage(`"error"`)}
		if err := json.Unmarshal([]byte("{"+c.more+"}"), &fields); err != nil {
			t.Fatal(name, err)
		}
		text, _ := json.Marshal(fields)
		a := w.send(t, http.MethodPost, "api/v1/events", access.RoleOperator, body(string(text)))
		if a.status != http.StatusBadRequest || len(a.problem(t).Errors) == 0 || a.problem(t).Errors[0].Field != c.field {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	ok := `{"source_id":"gpu-r02-03","event_type":"fan.failure","severity":"error"}`
	for _, path := range []string{"api/v1/events", "api/v1/alerts"} {
		if a := w.send(t, http.MethodPost, path, access.RoleViewer, body(strings.Replace(ok, "event_type", map[bool]string{true: "alert_type", false: "event_type"}[strings.HasSuffix(path, "alerts")], 1))); a.status != http.StatusForbidden {
			t.Errorf("%s by a viewer: %d %s", path, a.status, a.body)
		}
	}
	// A clock that is a little ahead is taken as ours.
	ahead := time.Now().Add(20 * time.Second).UTC()
	w.send(t, http.MethodPost, "api/v1/events", access.RoleOperator, body(strings.TrimSuffix(ok, "}")+`,"occurred_at":"`+ahead.Format(time.RFC3339)+`"}`))
	if ev := <-heard; ev.Time.After(time.Now()) {
		t.Errorf("an event of the future: %s", ev.Time)
	}
}

// fullBus takes nothing while it is full.
type fullBus struct {
	bus.Publisher
	full chan struct{} // closed: it takes again
}

func (b *fullBus) Publish(ctx context.Context, msgs ...bus.Message) error {
	select {
	case <-b.full:
		return b.Publisher.Publish(ctx, msgs...)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A bus that is full is told, and the same again is taken once it is not.
func TestABusThatIsFullIsTold(t *testing.T) {
	b := &fullBus{full: make(chan struct{})}
	w := start(t, true, func(_ *api.Config, d *api.Deps) { b.Publisher, d.Publisher = d.Publisher, b })
	text := `{"source_id":"gpu-r02-03","event_type":"fan.failure","severity":"error"}`
	a := w.send(t, http.MethodPost, "api/v1/events", access.RoleOperator, idempotent("k", text))
	if a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" || a.problem(t).Code != "bus_busy" {
		t.Fatalf("%d %s %v", a.status, a.body, a.header)
	}
	close(b.full)
	heard := w.heard(t)
	made := answered[apigen.Event](t, w.send(t, http.MethodPost, "api/v1/events", access.RoleOperator, idempotent("k", text)), http.StatusCreated)
	if ev := <-heard; ev.ID != made.ID {
		t.Errorf("%s, and %s was heard", made.ID, ev.ID)
	}
}

// TestHandlingAlerts acknowledges, comments on and resolves an alert, by two people who meet.
func TestHandlingAlerts(t *testing.T) {
	w := start(t, true)
	put := func(role, text, tag string) answer {
		return w.send(t, http.MethodPut, "api/v1/alerts/e00001", role, func(r *http.Request) {
			body(text)(r)
			if tag != "" {
				r.Header.Set("If-Match", tag)
			}
		})
	}
	ids := func(status string) []string {
		var out []string
		l := answered[apigen.AlertList](t, w.send(t, http.MethodGet, "api/v1/alerts?limit=1000&status="+status, access.RoleViewer, nil), http.StatusOK)
		for _, a := range l.Items {
			out = append(out, a.ID)
		}
		return out
	}
	first := w.send(t, http.MethodGet, "api/v1/alerts/e00001", access.RoleViewer, nil)
	tag := first.header.Get("ETag")
	if a := put(access.RoleViewer, `{"status":"acknowledged"}`, ""); a.status != http.StatusForbidden {
		t.Errorf("a viewer: %d", a.status)
	}
	for _, bad := range []string{`{}`, `{"status":"active"}`, `{"comment":""}`, `{"comment":"a\u0000b"}`} {
		if a := put(access.RoleOperator, bad, ""); a.status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", bad, a.status, a.body)
		}
	}
	a := put(access.RoleOperator, `{"status":"acknowledged","comment":"I look"}`, tag)
	got := answered[apigen.Alert](t, a, http.StatusOK)
	if got.Status != "acknowledged" || got.State != "firing" || got.AcknowledgedBy != access.RoleOperator || len(got.Comments) != 1 ||
		time.Since(got.AcknowledgedAt) > time.Minute {
		t.Errorf("%+v", got)
	}
	if b := put(access.RoleAdmin, `{"status":"resolved"}`, tag); b.status != http.StatusPreconditionFailed {
		t.Errorf("of what it was: %d %s", b.status, b.body)
	}
	again := answered[apigen.Alert](t, put(access.RoleAdmin, `{"status":"acknowledged"}`, a.header.Get("ETag")), http.StatusOK)
	if again.AcknowledgedBy != access.RoleOperator {
		t.Errorf("the second took it: %+v", again)
	}
	if l := ids("acknowledged"); !slices.Equal(l, []string{"e00001"}) || slices.Contains(ids("active"), "e00001") || !slices.Contains(ids("firing"), "e00001") {
		t.Errorf("lists: %v", l)
	}
	server := answered[apigen.Server](t, w.send(t, http.MethodGet, "api/v1/servers/gpu-r01-01", access.RoleViewer, nil), http.StatusOK)
	if k := slices.IndexFunc(server.Events, func(a apigen.Alert) bool { return a.ID == "e00001" }); k < 0 || server.Events[k].Status != "acknowledged" {
		t.Errorf("the page of its server does not say so")
	}
	done := answered[apigen.Alert](t, put(access.RoleAdmin, `{"status":"resolved","comment":"replaced"}`, ""), http.StatusOK)
	if done.Status != "resolved" || done.ResolvedBy != access.RoleAdmin || done.State != "firing" || len(done.Comments) != 2 || done.ResolvedAt.IsZero() {
		t.Errorf("%+v", done)
	}
	if b := put(access.RoleOperator, `{"status":"acknowledged"}`, ""); b.status != http.StatusConflict || b.problem(t).Code != "illegal_move" {
		t.Errorf("back: %d %s", b.status, b.body)
	}
	if l := ids("resolved"); !slices.Equal(l, []string{"e00001"}) {
		t.Errorf("resolved: %v", l)
	}
	if b := w.send(t, http.MethodPut, "api/v1/alerts/none", access.RoleOperator, body(`{"status":"resolved"}`)); b.status != http.StatusNotFound {
		t.Errorf("none: %d %s", b.status, b.body)
	}
}

func TestTheIncidentOfAnAlert(t *testing.T) {
	w := start(t, true)
	of := func(id string) apigen.AlertCorrelation {
		t.Helper()
		return answered[apigen.AlertCorrelation](t, w.send(t, http.MethodGet, "api/v1/alerts/"+id+"/correlation", access.RoleViewer, nil), http.StatusOK)
	}
	i, _, err := w.records.Incident(t.Context(), "i-1043")
	if err != nil {
		t.Fatal(err)
	}
	got := of(i.Events[0])
	if got.Incident == nil || *got.Incident != "i-1043" || got.RootCause.Fault != "gpu.fallen_off_bus" || *got.Confidence != 0.94 ||
		got.Recommendation.Action != "power_cycle" || len(got.Alternatives) != 1 || got.External || got.Reason != nil {
		t.Errorf("%+v", got)
	}
	posted := schemas.Event{
		ID: "x%1", Time: time.Now(), Observed: time.Now(), Source: schemas.SourceAPI, Resource: "gpu-r04-04/gpu1", Type: "gpu.xid", Code: "79",
		Severity: schemas.SeverityCritical, Attrs: map[string]string{schemas.AttrExternal: "true"},
	}
	if err := w.records.PutAlert(t.Context(), schemas.Alert{Event: posted, Server: "gpu-r04-04", Status: schemas.AlertFiring}); err != nil {
		t.Fatal(err)
	}
	if got := of("x%251"); got.Incident != nil || got.RootCause != nil || got.Reason == nil {
		t.Errorf("%+v", got)
	}
	if err := w.putIncident(t.Context(), schemas.Incident{
		ID: "i-posted", Opened: time.Now(), Updated: time.Now(), At: time.Now(), Events: []string{"x%1"},
		RootCause: schemas.Cause{Resource: "gpu-r04-04/gpu1", Fault: "gpu.fallen_off_bus", Confidence: 0.9},
	}); err != nil {
		t.Fatal(err)
	}
	if got := of("x%251"); got.Incident == nil || *got.Incident != "i-posted" || !got.External {
		t.Errorf("%+v", got)
	}
	if i := answered[apigen.Incident](t, w.send(t, http.MethodGet, "api/v1/incidents/i-posted", access.RoleViewer, nil), http.StatusOK); !i.External {
		t.Error("the incident does not say that it was posted")
	}
	if a := w.send(t, http.MethodGet, "api/v1/alerts/none/correlation", access.RoleViewer, nil); a.status != http.StatusNotFound {
		t.Errorf("%d", a.status)
	}
}

func TestSearchFindsWhatTheCallerSees(t *testing.T) {
	w := start(t, true)
	w.send(t, http.MethodPost, "api/v1/users", access.RoleAdmin, body(`{"username":"r02fan","email":"li@example.com","role":"viewer"}`))
	find := func(role, q string) []string {
		t.Helper()
		l := answered[apigen.SearchResults](t, w.send(t, http.MethodGet, "api/v1/search?q="+url.QueryEscape(q), role, nil), http.StatusOK)
		var out []string
		for _, r := range l.Items {
			out = append(out, strings.Join([]string{r.Kind, r.Name, r.Match, r.Matched}, " "))
		}
		return out
	}
	if got := find(access.RoleViewer, "s0203"); !slices.Equal(got, []string{"server gpu-r02-03 exact serial"}) {
		t.Errorf("%q", got)
	}
	if got := find(access.RoleViewer, "gpu-r02-03"); len(got) != 20 || got[0] != "server gpu-r02-03 exact name" {
		t.Errorf("%q", got)
	}
	if got := find(access.RoleViewer, "i-1043"); !slices.Equal(got, []string{"incident gpu-r03-06/gpu4 gpu.fallen_off_bus exact id"}) {
		t.Errorf("%q", got)
	}
	if got := find(access.RoleViewer, "r03-06/gpu4"); !slices.Equal(got, []string{"gpu gpu-r03-06/gpu4 substring name", "incident gpu-r03-06/gpu4 gpu.fallen_off_bus substring resource"}) {
		t.Errorf("%q", got)
	}
	if got := find(access.RoleAdmin, "r02fan"); !slices.Equal(got, []string{"user r02fan exact name"}) {
		t.Errorf("%q", got)
	}
	if got := find(access.RoleAdmin, "li@"); !slices.Equal(got, []string{"user r02fan prefix email"}) {
		t.Errorf("%q", got)
	}
	for _, q := range []string{"r02fan", "%", "_", "nothing of the kind"} {
		if got := find(access.RoleViewer, q); len(got) != 0 {
			t.Errorf("%s: %q", q, got)
		}
	}
	for _, bad := range []string{"", "?q=", "?q=%20", "?q=a%00"} {
		if a := w.send(t, http.MethodGet, "api/v1/search"+bad, access.RoleViewer, nil); a.status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", bad, a.status, a.body)
		}
	}
	empty := start(t, false)
	if a := empty.send(t, http.MethodGet, "api/v1/search?q=x", access.RoleViewer, nil); string(a.body) != `{"items":[],"more":false}` {
		t.Errorf("%s", a.body)
	}
}

func TestListsGiveTheFieldsThatAreAskedFor(t *testing.T) {
	w := start(t, true)
	a := w.send(t, http.MethodGet, "api/v1/alerts?limit=1&fields=severity,id,%20resource,id,resolved_by", access.RoleViewer, nil)
	l := answered[struct {
		Items []json.RawMessage
		Next  string
	}](t, a, http.StatusOK)
	if len(l.Items) != 1 || l.Next == "" || !strings.HasPrefix(string(l.Items[0]), `{"severity":"`) || strings.Count(string(l.Items[0]), `":`) != 3 {
		t.Errorf("%s", a.body)
	}
	a = w.send(t, http.MethodGet, "api/v1/incidents?fields=id,severty", access.RoleViewer, nil)
	if a.status != http.StatusBadRequest || !strings.Contains(string(a.body), "there is severity") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := w.send(t, http.MethodGet, "api/v1/users?fields=id", access.RoleViewer, nil); a.status != http.StatusForbidden {
		t.Errorf("%d %s", a.status, a.body)
	}
	empty := start(t, false)
	for _, list := range []string{"alerts", "events", "incidents", "predictions", "actions", "resources", "users", "teams", "tokens", "maintenance", "agents"} {
		if a := empty.send(t, http.MethodGet, "api/v1/"+list+"?fields=id", access.RoleAdmin, nil); a.status != http.StatusOK && !strings.Contains(string(a.body), "have no field") {
			t.Errorf("%s: %d %s", list, a.status, a.body)
		}
	}
}

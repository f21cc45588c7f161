package hooks_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/internal/store/entity"
	"auspex/internal/store/hooks"
	"auspex/internal/store/sqldb"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/schemas"
)

const secret hooks.Secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func hook(name string) schemas.Webhook {
	return schemas.Webhook{Name: name, URL: "https://example.com/hook/T0P", Topics: []string{"allocation.*"}, Active: true}
}

func TestWebhooksAreKeptWithoutTheirSecrets(t *testing.T) {
	db := sqltest.Open(t)
	s := hooks.New(db)
	made, err := s.Create(t.Context(), "root", hook("Chat"), secret)
	if err != nil || made.Revision != 1 {
		t.Fatalf("%+v %v", made, err)
	}
	for _, ref := range []string{made.ID, "chat"} {
		got, err := s.Get(t.Context(), ref)
		if d := cmp.Diff(made, got); err != nil || d != "" {
			t.Errorf("%v %s", err, d)
		}
	}
	for name, tc := range map[string]struct {
		field  string
		change func(*schemas.Webhook)
		secret hooks.Secret
	}{
		"a name that is taken":       {"name", func(h *schemas.Webhook) { h.Name = "cHAT" }, secret},
		"in the clear":               {"url", func(h *schemas.Webhook) { h.URL = "http://example.com/" }, secret},
		"a password":                 {"url", func(h *schemas.Webhook) { h.URL = "https://u:T0P@example.com/" }, secret},
		"no host":                    {"url", func(h *schemas.Webhook) { h.URL = "https:///x" }, secret},
		"a name like this machine":   {"url", func(h *schemas.Webhook) { h.URL = "http://127.0.0.1.example.com/" }, secret},
		"another scheme":             {"url", func(h *schemas.Webhook) { h.URL = "file:///etc/passwd" }, secret},
		"a topic in capitals":        {"topics", func(h *schemas.Webhook) { h.Topics = []string{"Allocation"} }, secret},
		"a secret that is short":     {"secret", func(*schemas.Webhook) {}, "whsec_MfKQ9r8GKYqrTwjU"},
		"a secret of another form":   {"secret", func(*schemas.Webhook) {}, "T0P"},
		"a secret that is not there": {"secret", func(*schemas.Webhook) {}, ""},
	} {
		h := hook("other")
		tc.change(&h)
		wrong := (*entity.FieldError)(nil)
		if _, err := s.Create(t.Context(), "root", h, tc.secret); !errors.As(err, &wrong) || wrong.Field != tc.field || strings.Contains(err.Error(), "T0P") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if h := hook("local"); true {
		h.URL = "http://[::1]:9000/x"
		if _, err := s.Create(t.Context(), "root", h, secret); err != nil {
			t.Error(err)
		}
	}
	changed, err := s.Update(t.Context(), "root", "chat", 1, "", func(h *schemas.Webhook) { h.Active = false })
	if err != nil || changed.Active || changed.Revision != 2 || !changed.SecretAt.Equal(made.SecretAt) {
		t.Errorf("%+v %v", changed, err)
	}
	if _, err := s.Update(t.Context(), "root", "chat", 1, "", func(h *schemas.Webhook) { h.Name = "x" }); !errors.Is(err, entity.ErrChanged) {
		t.Error(err)
	}
	const second hooks.Secret = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAB"
	changed, err = s.Update(t.Context(), "root", "chat", 0, second, func(*schemas.Webhook) {})
	if err != nil || changed.Revision != 3 || !changed.SecretAt.After(made.SecretAt) {
		t.Errorf("%+v %v", changed, err)
	}
	if err := s.Delete(t.Context(), "root", "chat", 2); !errors.Is(err, entity.ErrChanged) {
		t.Error(err)
	}
	if err := s.Delete(t.Context(), "root", "chat", 3); err != nil {
		t.Error(err)
	}
	rows, err := sqldb.Rows(t.Context(), db, func(r *sql.Rows) (d string, err error) { return d, r.Scan(&d) }, `SELECT detail FROM control_audit`)
	all := strings.Join(rows, "\n") + fmt.Sprintf("%v %+v %#v", secret, made, secret)
	if err != nil || len(rows) != 5 || strings.Contains(all, "MfKQ9r8") || strings.Contains(all, "AAAAAAB") || strings.Contains(strings.Join(rows, ""), "T0P") {
		t.Errorf("the audit: %v %s", err, all)
	}
}

func put(t *testing.T, db *sqldb.DB, n schemas.Notice) string {
	t.Helper()
	n.Time = time.Now()
	if err := db.InTx(t.Context(), func(tx *sql.Tx) error { return hooks.Put(t.Context(), tx, time.Now(), &n) }); err != nil {
		t.Fatal(err)
	}
	return n.ID
}

func TestANoticeGoesToWhoWantsItAndOnlyIfItHappened(t *testing.T) {
	db := sqltest.Open(t)
	s := hooks.New(db)
	for name, topics := range map[string][]string{"all": nil, "below": {"allocation.*"}, "one": {"allocation.ready", "x"}, "other": {"server.*"}, "off": nil} {
		h := hook(name)
		h.Topics, h.Active = topics, name != "off"
		if _, err := s.Create(t.Context(), "root", h, secret); err != nil {
			t.Fatal(err)
		}
	}
	id := put(t, db, schemas.Notice{Type: "allocation.ready", Subject: "a1", Data: json.RawMessage(`{"a":1}`)})
	later := put(t, db, schemas.Notice{Type: "allocation.failed"})
	undone := errors.New("undone")
	if err := db.InTx(t.Context(), func(tx *sql.Tx) error {
		if err := hooks.Put(t.Context(), tx, time.Now(), &schemas.Notice{Type: "allocation.ready"}); err != nil {
			return err
		}
		return undone
	}); !errors.Is(err, undone) {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{"all": {later, id}, "below": {later, id}, "one": {id}, "other": nil, "off": nil} {
		got, next, err := s.Deliveries(t.Context(), name, "", "", "", 1)
		for next != "" && err == nil {
			var more []schemas.Delivery
			more, next, err = s.Deliveries(t.Context(), name, schemas.DeliveryPending, "", next, 1)
			got = append(got, more...)
		}
		var ids []string
		for _, d := range got {
			ids = append(ids, d.ID)
		}
		if d := cmp.Diff(want, ids); err != nil || d != "" {
			t.Errorf("%s: %v %s", name, err, d)
		}
	}
	if h, err := s.Get(t.Context(), "all"); err != nil || h.Waiting != 2 || h.Dead != 0 {
		t.Errorf("%+v %v", h, err)
	}
}

func TestADeliveryIsOneTakersUntilItsTimeIsOver(t *testing.T) {
	db := sqltest.Open(t)
	s := hooks.New(db)
	h, err := s.Create(t.Context(), "root", hook("chat"), secret)
	if err != nil {
		t.Fatal(err)
	}
	id := put(t, db, schemas.Notice{Type: "allocation.ready", Subject: "a1"})
	now := time.Now()
	claim := func(at time.Time) *hooks.Attempt {
		t.Helper()
		a, err := s.Claim(t.Context(), h.ID, at, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	got := make(chan *hooks.Attempt)
	for range 8 {
		go func() {
			a, err := s.Claim(context.WithoutCancel(t.Context()), h.ID, now, time.Minute)
			if err != nil {
				t.Error(err)
			}
			got <- a
		}()
	}
	n := 0
	for range 8 {
		if a := <-got; a != nil {
			n++
			if a.Notice.ID != id || a.Secret != secret || a.Attempts != 1 {
				t.Errorf("%+v", a)
			}
		}
	}
	if n != 1 {
		t.Errorf("%d have it at once", n)
	}
	if a := claim(now.Add(59 * time.Second)); a != nil {
		t.Errorf("another has it: %+v", a)
	}
	// Whoever had it is dead.
	a := claim(now.Add(61 * time.Second))
	if a == nil || a.Attempts != 2 {
		t.Fatalf("%+v", a)
	}
	if err := s.Done(t.Context(), a, now, hooks.Result{Status: 500, Error: "answered 500", Next: now.Add(5 * time.Minute)}); err != nil {
		t.Fatal(err)
	}
	if ids, next, err := s.Due(t.Context(), now.Add(4*time.Minute)); err != nil || len(ids) != 0 || !next.Equal(now.Add(5*time.Minute)) {
		t.Errorf("%v %v %v", ids, next, err)
	}
	if ids, _, err := s.Due(t.Context(), now.Add(5*time.Minute)); err != nil || !slices.Equal(ids, []string{h.ID}) {
		t.Errorf("%v %v", ids, err)
	}
	a = claim(now.Add(5 * time.Minute))
	if err := s.Done(t.Context(), a, now, hooks.Result{Status: 204}); err != nil {
		t.Fatal(err)
	}
	// One that is late with a failure does not undo it.
	if err := s.Done(t.Context(), a, now, hooks.Result{Error: "late", Next: now}); err != nil {
		t.Fatal(err)
	}
	d, _, err := s.Deliveries(t.Context(), "chat", "", "", "", 9)
	if err != nil || len(d) != 1 || d[0].State != schemas.DeliveryDelivered || d[0].LastCode != 204 || d[0].LastError != "" || d[0].Attempts != 3 {
		t.Errorf("%+v %v", d, err)
	}
}

func TestWhatIsTooOldIsGivenUpAndForgotten(t *testing.T) {
	db := sqltest.Open(t)
	s := hooks.New(db)
	h, err := s.Create(t.Context(), "root", hook("chat"), secret)
	if err != nil {
		t.Fatal(err)
	}
	gone, err := s.Create(t.Context(), "root", hook("gone"), secret)
	if err != nil {
		t.Fatal(err)
	}
	put(t, db, schemas.Notice{Type: "allocation.ready"})
	if err := s.Delete(t.Context(), "root", gone.ID, 0); err != nil {
		t.Fatal(err)
	}
	now := time.Now().Add(time.Second)
	if n, err := s.Sweep(t.Context(), now, now.Add(-time.Hour)); err != nil || n != 0 {
		t.Errorf("%d %v", n, err)
	}
	if n, err := s.Sweep(t.Context(), now, now); err != nil || n != 1 {
		t.Errorf("%d %v", n, err)
	}
	if h, err = s.Get(t.Context(), h.ID); err != nil || h.Dead != 1 || h.Waiting != 0 {
		t.Errorf("%+v %v", h, err)
	}
	if p, d, err := s.Counts(t.Context()); err != nil || p != 0 || d != 1 {
		t.Errorf("%d %d %v", p, d, err)
	}
	if _, err := s.Sweep(t.Context(), now.Add(hooks.Keep), now); err != nil {
		t.Error(err)
	}
	if p, d, err := s.Counts(t.Context()); err != nil || p != 0 || d != 0 {
		t.Errorf("%d %d %v", p, d, err)
	}
}

func TestTestingGoesToOneWebhook(t *testing.T) {
	db := sqltest.Open(t)
	s := hooks.New(db)
	for _, n := range []string{"chat", "other"} {
		if _, err := s.Create(t.Context(), "root", hook(n), secret); err != nil {
			t.Fatal(err)
		}
	}
	ctx := sqldb.WithRequest(t.Context(), "one")
	d, err := s.Test(ctx, "root", "chat")
	if err != nil || d.State != schemas.DeliveryPending || d.Type != hooks.TypeTest {
		t.Fatalf("%+v %v", d, err)
	}
	if again, err := s.Test(ctx, "root", "chat"); err != nil || again.ID != d.ID {
		t.Errorf("the same request again: %+v %v", again, err)
	}
	for name, want := range map[string]int{"chat": 1, "other": 0} {
		if got, _, err := s.Deliveries(t.Context(), name, "", "", "", 9); err != nil || len(got) != want {
			t.Errorf("%s: %+v %v", name, got, err)
		}
	}
	if _, err := s.Update(t.Context(), "root", "chat", 0, "", func(h *schemas.Webhook) { h.Active = false }); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Test(t.Context(), "root", "chat"); !errors.Is(err, hooks.ErrInactive) {
		t.Error(err)
	}
}

func TestTopics(t *testing.T) {
	for _, tc := range []struct {
		topics []string
		kind   string
		want   bool
	}{
		{nil, "a.b", true},
		{[]string{"a.b"}, "a.b", true},
		{[]string{"a.b"}, "a.bc", false},
		{[]string{"a.*"}, "a.b.c", true},
		{[]string{"a.*"}, "ab.c", false},
		{[]string{"x", "a.*"}, "a.b", true},
	} {
		if got := hooks.Matches(tc.topics, tc.kind); got != tc.want {
			t.Errorf("%v %s: %t", tc.topics, tc.kind, got)
		}
	}
}

// What people were told is listed to those whom it is for, by pages and in any order; what only tried a webhook is not.
func TestNoticesAreListed(t *testing.T) {
	db := sqltest.Open(t)
	s := hooks.New(db)
	at := time.Now().UTC().Truncate(time.Second)
	made, err := s.Create(t.Context(), "root", hook("chat"), secret)
	if err == nil {
		_, err = s.Test(t.Context(), "root", made.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), `INSERT INTO users (id, username, email, role, status, revision, created_ns, updated_ns) VALUES ('u1', 'li', 'li@example.com', 'viewer', 'active', 1, 1, 1)`); err != nil {
		t.Fatal(err)
	}
	for k, n := range []schemas.Notice{{Type: "allocation.active", Subject: "a1", User: "u1"}, {Type: "allocation.failed", Subject: "a2"}, {Type: "allocation.active", Subject: "a3"}} {
		n.ID, n.Time = fmt.Sprintf("n%d", k), at.Add(time.Duration(k)*time.Second)
		if err := db.InTx(t.Context(), func(tx *sql.Tx) error { return hooks.Put(t.Context(), tx, at, &n) }); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		hooks.NoticeFilter

		want []string
	}{
		{hooks.NoticeFilter{}, []string{"n2", "n1", "n0"}},
		{hooks.NoticeFilter{Sort: "-type"}, []string{"n1", "n2", "n0"}},
		{hooks.NoticeFilter{Type: "allocation.active", Sort: "time"}, []string{"n0", "n2"}},
		{hooks.NoticeFilter{Subject: "a2"}, []string{"n1"}},
		{hooks.NoticeFilter{Since: at.Add(time.Second)}, []string{"n2", "n1"}},
		{hooks.NoticeFilter{Near: "u1"}, []string{"n0"}},
		{hooks.NoticeFilter{Near: "u2"}, nil},
	} {
		var got []string
		for f := c.NoticeFilter; ; {
			f.Limit = 1
			page, next, err := s.Notices(t.Context(), f)
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range page {
				got = append(got, n.ID)
			}
			if f.After = next; next == "" {
				break
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%+v: %v, want %v", c.NoticeFilter, got, c.want)
		}
	}
	if ids, err := s.Written(t.Context(), at); err != nil || len(ids) != 4 {
		t.Errorf("%v %v", ids, err)
	}
	for user, want := range map[string]bool{"u1": true, "u2": false} {
		if ok, err := s.Hears(t.Context(), user, "n0"); err != nil || ok != want {
			t.Errorf("%s: %v %v", user, ok, err)
		}
	}
}

package wipes_test

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/internal/cmdb"
	"auspex/internal/store/entity"
	"auspex/internal/store/estate"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/internal/store/wipes"
	"auspex/schemas"
)

// site is a store with one server, and the clock that it goes by.
func site(t *testing.T) (s *wipes.Store, server string, now *time.Time) {
	t.Helper()
	db := sqltest.Open(t)
	inv, e := cmdb.New(cmdb.DefaultConfig(), db, nil, nil), estate.New(db)
	inv.Follow(e)
	if _, err := inv.Import(t.Context(), cmdb.Draft{Topology: schemas.Topology{Resources: []schemas.Resource{{ID: "s0", Kind: schemas.KindServer}}}}, cmdb.ImportOptions{}); err != nil {
		t.Fatal(err)
	}
	v, err := e.Server(t.Context(), "s0")
	if err != nil {
		t.Fatal(err)
	}
	at := time.Unix(1_700_000_000, 0)
	return wipes.New(db, func() time.Time { return at }), v.ID, &at
}

// The token of a workflow is the same one until it is closed or a day is over, and nobody else's.
func TestATokenIsOfOneWorkflow(t *testing.T) {
	s, server, now := site(t)
	open := func(action string) string {
		token, err := s.Open(t.Context(), wipes.Order{Action: action, ServerID: server, Workflow: "auspex-" + action})
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	a, b := open("a"), open("b")
	if a == b || a != open("a") || len(a) != 43 {
		t.Errorf("%q and %q", a, b)
	}
	if o, err := s.Told(t.Context(), a); err != nil || o != (wipes.Order{Action: "a", ServerID: server, Workflow: "auspex-a"}) {
		t.Errorf("%+v %v", o, err)
	}
	for _, wrong := range []string{"", a[1:], a + "x"} {
		if _, err := s.Told(t.Context(), wrong); !errors.Is(err, entity.ErrNone) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
	if err := s.Close(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Told(t.Context(), a); !errors.Is(err, entity.ErrNone) {
		t.Errorf("it is closed: %v", err)
	}
	*now = now.Add(wipes.Holds + time.Second)
	if _, err := s.Told(t.Context(), b); !errors.Is(err, entity.ErrNone) {
		t.Errorf("its day is over: %v", err)
	}
	if next := open("b"); next == b {
		t.Error("a token whose day is over is given out again")
	}
}

// What was told is kept once, and never changes; the last word of an action is the one that counts.
func TestWhatWasToldIsKept(t *testing.T) {
	s, server, now := site(t)
	put := func(action, detail string, proven bool) (schemas.Wipe, error) {
		return s.Put(t.Context(), schemas.Wipe{
			ServerID: server, Action: action, Workflow: "auspex-" + action, Proven: proven, Began: *now, Ended: *now,
			Drives: []schemas.WipeDrive{{Device: "/dev/sda", Proven: proven, Detail: detail}},
		})
	}
	if _, told, err := s.Last(t.Context(), "a"); told || err != nil {
		t.Errorf("%v %v", told, err)
	}
	first, err := put("a", "its sanitize operation failed", false)
	if err != nil || first.Number != 1 || first.ID == "" || first.Created.IsZero() {
		t.Fatalf("%+v %v", first, err)
	}
	first.Server = "s0"
	if again, err := put("a", "its sanitize operation failed", true); err != nil || again.Number != 2 || again.ID == first.ID {
		t.Errorf("%+v %v", again, err)
	}
	if again, err := put("a", "its sanitize operation failed", false); err != nil || cmp.Diff(first, again) != "" {
		t.Errorf("%s %v", cmp.Diff(first, again), err)
	}
	if last, told, err := s.Last(t.Context(), "a"); err != nil || !told || !last.Proven || last.Number != 2 {
		t.Errorf("%+v %v", last, err)
	}
	if w, err := put("b", "x", true); err != nil || w.Number != 3 {
		t.Errorf("%+v %v", w, err)
	}
	page, err := s.Of(t.Context(), server, 0, 2)
	if err != nil || len(page) != 2 || page[0].Action != "b" || page[1].Number != 2 {
		t.Errorf("%+v %v", page, err)
	}
	if page, err = s.Of(t.Context(), server, 2, 2); err != nil || len(page) != 1 || cmp.Diff(first, page[0]) != "" {
		t.Errorf("%+v %v", page, err)
	}
	for n := range wipes.Most - 2 {
		if _, err := put("a", strconv.Itoa(n), false); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := put("a", "one more", false); !errors.Is(err, wipes.ErrMany) {
		t.Errorf("one action fills the store: %v", err)
	}
}

package conflicts

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"auspex/internal/store/audit"
	"auspex/internal/store/entity"
	"auspex/internal/store/sqldb"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/schemas"
)

func about(resource, field, left, right string) schemas.Conflict {
	return schemas.Conflict{
		Kind: schemas.ConflictTwoSources, Resource: resource, Field: field,
		Left:  schemas.ConflictSide{Source: schemas.SideInventory, Value: left},
		Right: schemas.ConflictSide{Source: "redfish", Value: right, Resource: "10.0.0.1:443", Time: time.Unix(1700000000, 0).UTC()},
	}
}

func in(t *testing.T, db *sqldb.DB, do func(ctx context.Context, tx *sql.Tx) error) {
	t.Helper()
	if err := db.InTx(t.Context(), func(tx *sql.Tx) error { return do(t.Context(), tx) }); err != nil {
		t.Fatal(err)
	}
}

func seen(t *testing.T, db *sqldb.DB, at time.Time, all ...schemas.Conflict) (opened int) {
	t.Helper()
	in(t, db, func(ctx context.Context, tx *sql.Tx) (err error) {
		opened, err = Seen(ctx, tx, at, all...)
		return err
	})
	return opened
}

func list(t *testing.T, s *Store, f Filter) (out []schemas.Conflict) {
	t.Helper()
	if f.Limit == 0 {
		f.Limit = 100
	}
	out, _, err := s.List(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestTheSameAgainIsTheSameConflict(t *testing.T) {
	db := sqltest.Open(t)
	s, first := New(db), time.Unix(1700000000, 5).UTC()
	c := about("gpu-1", "serial", "A", "B")
	if n := seen(t, db, first, c, c); n != 1 {
		t.Errorf("%d are new", n)
	}
	c.Right.Time = first.Add(time.Hour)
	if n := seen(t, db, first.Add(time.Hour), c); n != 0 {
		t.Errorf("%d are new", n)
	}
	is := list(t, s, Filter{})
	if len(is) != 1 || is[0].ID != ID(&c) || is[0].Status != schemas.ConflictOpen || !is[0].FirstSeen.Equal(first) || !is[0].LastSeen.Equal(first.Add(time.Hour)) || !is[0].DecidedAt.IsZero() {
		t.Fatalf("%+v", is)
	}
	if got, err := s.Get(t.Context(), is[0].ID); err != nil || got.Left != c.Left || got.Right.Value != "B" || got.Right.Resource != "10.0.0.1:443" {
		t.Errorf("%+v: %v", got, err)
	}
	if _, err := s.Get(t.Context(), "none"); !errors.Is(err, entity.ErrNone) {
		t.Error(err)
	}
	// Another value takes the place of what is open about the same, and of nothing else.
	other := about("gpu-1", "serial", "A", "C")
	if n := seen(t, db, first, other, about("gpu-1", "uuid", "1", "2"), about("gpu-10", "serial", "A", "B")); n != 3 {
		t.Errorf("%d are new", n)
	}
	if is := list(t, s, Filter{Resource: "gpu-1"}); len(is) != 2 {
		t.Errorf("%+v", is)
	}
}

func TestASerialNumberMayBeThatOfSeveral(t *testing.T) {
	db := sqltest.Open(t)
	twice := func(with string) schemas.Conflict {
		c := about("a", "serial", "S", "S")
		c.Kind, c.Right.Resource = schemas.ConflictSerialTwice, with
		return c
	}
	if n := seen(t, db, time.Now(), twice("b"), twice("c")); n != 2 || len(list(t, New(db), Filter{Kind: schemas.ConflictSerialTwice})) != 2 {
		t.Errorf("%d are new", n)
	}
}

func TestADecisionIsKept(t *testing.T) {
	db := sqltest.Open(t)
	s := New(db)
	c := about("gpu-1", "serial", "A", "B")
	seen(t, db, time.Now(), c)
	got, err := s.Decide(t.Context(), "ana", ID(&c), schemas.DecisionLeft, "the label")
	if err != nil || got.Status != schemas.ConflictDecided || got.DecidedBy != "ana" || got.DecidedAt.IsZero() {
		t.Fatalf("%+v: %v", got, err)
	}
	if n := seen(t, db, time.Now(), c); n != 0 || len(list(t, s, Filter{Status: schemas.ConflictOpen})) > 0 {
		t.Errorf("%d are new", n)
	}
	if n := seen(t, db, time.Now(), about("gpu-1", "serial", "A", "C")); n != 1 || len(list(t, s, Filter{Status: schemas.ConflictDecided})) != 1 {
		t.Errorf("%d are new", n)
	}
	in(t, db, func(ctx context.Context, tx *sql.Tx) error { return Close(ctx, tx, time.Now(), ID(&c), WhyAgree) })
	if got, err = s.Get(t.Context(), ID(&c)); err != nil || got.Status != schemas.ConflictDecided || got.Comment != "the label" {
		t.Errorf("what was decided is %+v: %v", got, err)
	}
	if got, err = s.Decide(t.Context(), "ben", ID(&c), schemas.DecisionRight, ""); err != nil || got.Decision != schemas.DecisionRight || got.Comment != "" {
		t.Errorf("%+v: %v", got, err)
	}
	if _, err := s.Decide(t.Context(), "ben", "none", schemas.DecisionRight, ""); !errors.Is(err, entity.ErrNone) {
		t.Error(err)
	}
	if _, err := s.Decide(t.Context(), "ben", ID(&c), "perhaps", ""); err == nil {
		t.Error("a decision that is none was kept")
	}
	rows, err := audit.New(db, time.Now).List(t.Context(), 0, 10)
	if err != nil || len(rows) != 2 || rows[0].Actor != "ben" || rows[0].Kind != Kind || rows[0].Subject != ID(&c) {
		t.Errorf("the audit has %+v: %v", rows, err)
	}
}

func TestWhatIsSaidNoMoreIsSettled(t *testing.T) {
	db := sqltest.Open(t)
	s, now := New(db), time.Now().UTC()
	serial, part, like, ipmi := about("gpu_1", "serial", "A", "B"), about("gpu_1/nic0", "mac", "1", "2"), about("gpux1/nic0", "mac", "1", "2"), about("gpu_1", "uuid", "1", "2")
	ipmi.Right.Source = "ipmi"
	seen(t, db, now, serial, part, like, ipmi)
	settle := func(at time.Time, keep ...schemas.Conflict) {
		t.Helper()
		in(t, db, func(ctx context.Context, tx *sql.Tx) error { return Settle(ctx, tx, at, "gpu_1", "redfish", keep) })
	}
	settle(now, serial)
	is := list(t, s, Filter{Status: schemas.ConflictSettled})
	if len(is) != 1 || is[0].ID != ID(&part) || is[0].Comment != WhyAgree || is[0].DecidedBy != "" || !is[0].DecidedAt.Equal(now) {
		t.Fatalf("%+v", is)
	}
	if n := seen(t, db, now.Add(time.Minute), part); n != 1 {
		t.Errorf("%d are new", n)
	}
	if got, err := s.Get(t.Context(), ID(&part)); err != nil || got.Status != schemas.ConflictOpen || got.Comment != "" || !got.DecidedAt.IsZero() || !got.FirstSeen.Equal(now.Add(time.Minute)) {
		t.Errorf("what is said again is %+v: %v", got, err)
	}
	settle(now, serial)
	settle(now.Add(keepSettled + time.Hour))
	if _, err := s.Get(t.Context(), ID(&part)); !errors.Is(err, entity.ErrNone) {
		t.Errorf("what has long been settled: %v", err)
	}
	in(t, db, func(ctx context.Context, tx *sql.Tx) error {
		open, err := Open(ctx, tx, schemas.ConflictTwoSources)
		if len(open) != 2 {
			t.Errorf("%+v", open)
		}
		return err
	})
}

func TestConflictsAreListedInPages(t *testing.T) {
	db := sqltest.Open(t)
	s, now := New(db), time.Now()
	for i := range 7 {
		seen(t, db, now.Add(time.Duration(i/2)*time.Second), about(fmt.Sprintf("gpu-%d", i), "serial", "A", "B"))
	}
	got := map[string]bool{}
	last := now.Add(time.Hour)
	for after, pages := "", 0; ; pages++ {
		page, next, err := s.List(t.Context(), Filter{After: after, Limit: 3})
		if err != nil || len(page) > 3 || pages > 3 {
			t.Fatalf("%+v: %v", page, err)
		}
		for _, c := range page {
			if got[c.ID] || c.FirstSeen.After(last) {
				t.Errorf("%+v", c)
			}
			got[c.ID], last = true, c.FirstSeen
		}
		if after = next; next == "" {
			break
		}
	}
	if len(got) != 7 {
		t.Errorf("%d of 7", len(got))
	}
	if _, _, err := s.List(t.Context(), Filter{After: "no cursor", Limit: 3}); err == nil {
		t.Error("a cursor that is none was taken")
	}
}

package learned_test

import (
	"errors"
	"testing"
	"time"

	"auspex/internal/store/audit"
	"auspex/internal/store/learned"
	"auspex/internal/store/sqldb/sqltest"
)

func TestAVersionIsPutInForceAndRolledBack(t *testing.T) {
	db := sqltest.Open(t)
	s := learned.New(db)
	ctx, at := t.Context(), time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	if v, err := s.Active(ctx); err != nil || v != 0 {
		t.Fatalf("version %d is in force at first, error %v", v, err)
	}
	for want := int64(1); want <= 3; want++ {
		if got, err := s.Put(ctx, "ann", at, []byte(`{"n":1}`)); err != nil || got != want {
			t.Fatalf("version %d, want %d, error %v", got, want, err)
		}
		if v, err := s.Active(ctx); err != nil || v != 0 {
			t.Fatalf("a version is in force that nobody put there: %d, error %v", v, err)
		}
	}
	for _, v := range []int64{3, 2, 0, 3} { // forth, back, off, on
		if err := s.Activate(ctx, v, "ann", at); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Active(ctx); err != nil || got != v {
			t.Errorf("version %d is in force, want %d, error %v", got, v, err)
		}
	}
	if err := s.Activate(ctx, 9, "ann", at); !errors.Is(err, learned.ErrNoVersion) {
		t.Errorf("a version that is not there: %v", err)
	}
	if _, err := s.Get(ctx, 9); !errors.Is(err, learned.ErrNoVersion) {
		t.Errorf("a version that is not there: %v", err)
	}
	all, err := s.List(ctx)
	if err != nil || len(all) != 3 || all[0].Version != 3 || !all[0].Active || all[1].Active {
		t.Errorf("%+v, error %v", all, err)
	}
	if n, err := audit.Verify(ctx, db); err != nil || n != 4 {
		t.Errorf("%d rows in the audit, want 4, error %v", n, err)
	}
}

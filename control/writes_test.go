package control

import (
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"

	"auspex/schemas"
)

// TestWhatIsWrittenTogetherFailsApart has many write at once, of whom some fail: each of them is told, and nothing of theirs
// stays, nor is anything of the others lost.
func TestWhatIsWrittenTogetherFailsApart(t *testing.T) {
	b := newBench(t, schemas.ModeEnforce)
	c := b.controller()
	if ok, err := c.store.lead(t.Context(), true); err != nil || !ok {
		t.Fatal(ok, err)
	}
	errOdd := errors.New("odd")
	const n = 3 * sharedWrites
	errs := make([]error, n)
	var wg sync.WaitGroup
	c.store.writes.commit.Lock() // until all of them wait
	for i := range n {
		wg.Go(func() {
			errs[i] = c.store.together(t.Context(), func(tx *sql.Tx) error {
				k := &climb{ID: fmt.Sprint("case-", i), Incident: fmt.Sprint("i", i), Subject: fmt.Sprint("s", i), State: caseOpen}
				if _, err := c.store.openCase(t.Context(), tx, k); err != nil {
					return err
				}
				if i%2 == 1 {
					return errOdd
				}
				return nil
			})
		})
	}
	c.store.writes.commit.Unlock()
	wg.Wait()
	for i, err := range errs {
		if i%2 == 0 && err != nil || i%2 == 1 && !errors.Is(err, errOdd) {
			t.Errorf("write %d: %v", i, err)
		}
	}
	cases, err := c.store.cases(t.Context(), caseOpen)
	if err != nil || len(cases) != n/2 {
		t.Errorf("%d cases, not %d: %v", len(cases), n/2, err)
	}
	other := b.controller()
	other.store.holder = "another"
	if _, err := b.db.ExecContext(t.Context(), `UPDATE control_leases SET expires_ns=0`); err != nil {
		t.Fatal(err)
	}
	if ok, err := other.store.lead(t.Context(), true); err != nil || !ok {
		t.Fatal(ok, err)
	}
	if err := c.store.together(t.Context(), func(*sql.Tx) error { t.Error("it wrote"); return nil }); !errors.Is(err, errDeposed) {
		t.Errorf("who leads no more wrote: %v", err)
	}
}

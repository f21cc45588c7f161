package control

import (
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"auspex/internal/store/sqldb/sqltest"
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

// TestNothingIsWrittenOutsideOfATransactionThatTheDiskEnded: SQLite takes a transaction back by itself where a file cannot be
// written, and what is said to it afterwards is a transaction of its own.
func TestNothingIsWrittenOutsideOfATransactionThatTheDiskEnded(t *testing.T) {
	b := newBench(t, schemas.ModeEnforce)
	b.db = sqltest.OpenFile(t) // whatever the others are tested with
	c := b.controller()
	if ok, err := c.store.lead(t.Context(), true); err != nil || !ok {
		t.Fatal(ok, err)
	}
	b.allocated("gpu-r01-03")
	k := &climb{ID: "case-1", Incident: "i1", Subject: "gpu-r01-03", State: caseOpen}
	if err := c.store.fenced(t.Context(), func(tx *sql.Tx) error { _, err := c.store.openCase(t.Context(), tx, k); return err }); err != nil {
		t.Fatal(err)
	}
	if _, err := b.db.ExecContext(t.Context(), `CREATE TRIGGER disk BEFORE INSERT ON notices BEGIN SELECT RAISE(ROLLBACK, 'disk I/O error'); END`); err != nil {
		t.Fatal(err)
	}
	k.Touched = true
	a := schemas.Action{ID: "act-1", Kind: kindDrain, State: schemas.ActionRunning, Server: k.Subject}
	if err := c.store.saveAction(t.Context(), k, &a, true, time.Now(), actor, "intend"); err == nil {
		t.Error("nobody is told that it was not written")
	}
	kept, err := c.store.caseByID(t.Context(), k.ID)
	if _, found, e := c.store.action(t.Context(), k.ID, 0, 0); err != nil || e != nil || found || kept.Touched {
		t.Errorf("half of it was written: %+v %t %v %v", kept, found, err, e)
	}
}

package cursors_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/internal/store/cursors"
	"auspex/internal/store/sqldb/sqltest"
)

func TestAPositionIsThatOfItsCollectorAndDevice(t *testing.T) {
	db := sqltest.OpenFile(t)
	c := cursors.New(db)
	for _, step := range []struct{ collector, device, set string }{
		{"kmsg", "h1", "7"}, {"ipmi", "h1", "sel/3"}, {"kmsg", "h2", "1"}, {"kmsg", "h1", "8"},
	} {
		if err := c.SetCursor(t.Context(), step.collector, step.device, step.set); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []struct{ collector, device, position string }{
		{"kmsg", "h1", "8"}, {"ipmi", "h1", "sel/3"}, {"kmsg", "h2", "1"}, {"ipmi", "h2", ""},
	} {
		if got, err := c.Cursor(t.Context(), want.collector, want.device); err != nil || got != want.position {
			t.Errorf("%s on %s: %q, %v; want %q", want.collector, want.device, got, err, want.position)
		}
	}
}

// What comes while the disk is busy is written at once, and nobody waits for another's
// mistake or gives up another's position.
func TestPositionsOfManyDevicesAreWrittenTogether(t *testing.T) {
	db := sqltest.OpenFile(t)
	if _, err := db.ExecContext(t.Context(), `CREATE TRIGGER refuse BEFORE INSERT ON cursors WHEN NEW.position='bad'
BEGIN SELECT RAISE(ABORT, 'bad position'); END`); err != nil {
		t.Fatal(err)
	}
	for name, odd := range map[string]string{"all are well": "good", "one is refused": "bad"} {
		t.Run(name, func(t *testing.T) {
			c := cursors.New(db)
			busy, err := db.BeginTx(t.Context(), nil)
			if err == nil {
				_, err = busy.ExecContext(t.Context(), `DELETE FROM cursors`)
			}
			if err != nil {
				t.Fatal(err)
			}
			const n = 250
			errs := make([]error, n)
			var wg sync.WaitGroup
			leaving, leave := context.WithCancel(t.Context())
			for i := range n {
				ctx, pos := t.Context(), "good"
				switch i {
				case 7:
					ctx = leaving
				case 99:
					pos = odd
				}
				wg.Go(func() { errs[i] = c.SetCursor(ctx, "kmsg", fmt.Sprint("h", i), pos) })
				if i == 0 { // it is written alone
					for c.Waiting() != 0 || !c.Writes() {
						runtime.Gosched()
					}
				}
			}
			for c.Waiting() < n-1 {
				runtime.Gosched()
			}
			leave()
			if err := busy.Commit(); err != nil {
				t.Fatal(err)
			}
			wg.Wait()
			for i, err := range errs {
				if i == 7 && errors.Is(err, context.Canceled) || i == 99 && odd == "bad" && err != nil {
					continue
				}
				if err != nil {
					t.Errorf("h%d: %v", i, err)
				}
			}
			var kept, times int
			if err := db.QueryRowContext(t.Context(), `SELECT count(*), count(DISTINCT updated_ns) FROM cursors`).Scan(&kept, &times); err != nil {
				t.Fatal(err)
			}
			switch {
			case odd == "bad" && kept != n-1:
				t.Errorf("%d of %d are kept", kept, n-1)
			case odd == "good" && (kept != n || times > 1+(n+99)/100):
				t.Errorf("%d of %d are kept, in %d statements", kept, n, times)
			}
		})
	}
}

func TestALossIsReadAsItWasKept(t *testing.T) {
	db := sqltest.OpenFile(t)
	c := cursors.New(db)
	since := time.Date(2026, 11, 24, 22, 10, 0, 7, time.UTC)
	at := cursors.LossOf("agent.unreachable")
	for device, position := range map[string]string{
		"lost":  cursors.Loss{Since: since, Collectors: []string{"kmsg", "agent"}}.String(),
		"new":   cursors.Loss{Since: since, Collectors: []string{"agent"}, Untold: true}.String(),
		"back":  cursors.Loss{Since: since}.String(),
		"other": cursors.Loss{Since: since, Collectors: []string{"kmsg"}}.String(),
		"odd":   "yesterday agent",
	} {
		if err := c.SetCursor(t.Context(), at, device, position); err != nil {
			t.Fatal(err)
		}
	}
	got, err := c.Losses(t.Context(), "agent.unreachable", "agent")
	if d := cmp.Diff(map[string]cursors.Loss{
		"lost": {Since: since, Collectors: []string{"kmsg", "agent"}}, "new": {Since: since, Collectors: []string{"agent"}, Untold: true},
	}, got); err != nil || d != "" {
		t.Error(err, d)
	}
}

// Who reads a device no more must not move where another goes on, alone or together with others.
func TestAFencedPositionIsNotMoved(t *testing.T) {
	db := sqltest.OpenFile(t)
	if err := cursors.New(db).SetCursor(t.Context(), "kmsg", "h1", "7"); err != nil {
		t.Fatal(err)
	}
	out := errors.New("put out")
	c := cursors.Fenced(db, func(context.Context, *sql.Tx) error { return out })
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			if err := c.SetCursor(t.Context(), "kmsg", fmt.Sprint("h", i), "8"); !errors.Is(err, out) {
				t.Errorf("h%d: %v", i, err)
			}
		})
	}
	wg.Wait()
	for device, want := range map[string]string{"h1": "7", "h2": ""} {
		if got, err := c.Cursor(t.Context(), "kmsg", device); err != nil || got != want {
			t.Errorf("%s is at %q, want %q: %v", device, got, want, err)
		}
	}
}

// A position whose caller has left is written, or was refused, when the store has settled.
func TestNothingIsWrittenAfterTheStoreHasSettled(t *testing.T) {
	db := sqltest.OpenFile(t)
	begun, end := make(chan struct{}), make(chan struct{})
	c := cursors.Fenced(db, func(context.Context, *sql.Tx) error { close(begun); <-end; return nil })
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() { defer close(gone); _ = c.SetCursor(ctx, "kmsg", "h1", "8") }()
	<-begun
	leave()
	<-gone
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := c.Settle(soon); err == nil {
		t.Error("settled while it is being written")
	}
	close(end)
	if err := c.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Cursor(t.Context(), "kmsg", "h1"); err != nil || got != "8" {
		t.Errorf("%q, %v", got, err)
	}
}

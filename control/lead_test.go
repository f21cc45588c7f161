package control

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"auspex/control/policy"
	"auspex/internal/store/records"
	"auspex/internal/waittest"
	"auspex/schemas"
)

// Two processes each had a budget to themselves, and one that slept past its lease went on deciding.
func TestWhoLeadsNoMoreWritesAndSendsNothing(t *testing.T) {
	b := newBench(t, schemas.ModeEnforce)
	now := time.Now()
	first, second := b.controller(), b.controller()
	second.store.holder = "another"
	for _, c := range []*Controller{first, second} {
		c.store.now = func() time.Time { return now }
		c.d.Now = c.store.now
	}
	lead := func(c *Controller, begins, want bool) {
		t.Helper()
		if ok, err := c.store.lead(t.Context(), begins); err != nil || ok != want {
			t.Fatalf("%s leads: %v, %v", c.store.holder, ok, err)
		}
	}
	lead(first, true, true)
	lead(second, true, false)
	k := &climb{ID: "case-1", Incident: "i1", Subject: server, Target: part, State: caseOpen, Decided: now}
	if ok, err := first.store.openCase(t.Context(), first.store.db, k); err != nil || !ok {
		t.Fatal(ok, err)
	}
	if err := first.awake(t.Context(), k); err != nil {
		t.Error(err)
	}
	now = now.Add(first.cfg.CallTime + time.Second)
	if err := first.awake(t.Context(), k); !errors.Is(err, errAsleep) {
		t.Errorf("what was decided long ago would be sent: %v", err)
	}
	now = now.Add(2 * first.cfg.LeaseTTL)
	lead(second, false, true)
	k.Decided = now
	if err := first.awake(t.Context(), k); !errors.Is(err, errDeposed) {
		t.Errorf("it would send: %v", err)
	}
	r := policy.Rung{Kind: kindDrain}
	a := schemas.Action{ID: "act-1", Server: server, Kind: kindDrain, State: schemas.ActionRunning}
	if err := first.save(t.Context(), k, &a, r, now, "intend"); !errors.Is(err, errDeposed) {
		t.Errorf("it decided: %v", err)
	}
	if err := first.close(t.Context(), k, caseDone); !errors.Is(err, errDeposed) {
		t.Errorf("it closed a case: %v", err)
	}
	k.State = caseOpen
	if err := second.save(t.Context(), k, &a, r, now, "intend"); err != nil {
		t.Error(err)
	}
	if err := second.save(t.Context(), k, &a, r, now, "intend"); !errors.Is(err, errTwice) {
		t.Errorf("it was decided twice: %v", err)
	}
}

func TestWhoStandsByTakesOver(t *testing.T) {
	t.Parallel()
	b := newBench(t, schemas.ModeApprove)
	first, second := b.controller(), b.controller()
	second.store.holder = "another"
	inc := incident("i1", part, "gpu.fallen_off_bus")
	b.keep(inc)
	run := func(c *Controller) (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		done, ready := make(chan error, 1), make(chan struct{})
		go func() { done <- c.Run(ctx, func() { close(ready) }) }()
		select {
		case <-ready: // who stands by is
		case <-time.After(waittest.Patience):
			t.Fatal("not ready")
		}
		return func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	drain := func(want string) {
		t.Helper()
		waittest.Until(t, func() error {
			as, _, err := records.New(b.db).Actions(t.Context(), records.Filter{})
			if err != nil {
				t.Fatal(err)
			}
			if kind(as, kindDrain).State != want {
				return fmt.Errorf("%v", show(as))
			}
			return nil
		})
	}
	stop := run(first)
	defer run(second)()
	drain(schemas.ActionWaiting)
	stop()
	as, _, err := records.New(b.db).Actions(t.Context(), records.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	b.intend(second, verbApprove, kind(as, kindDrain))
	drain(schemas.ActionDone)
}

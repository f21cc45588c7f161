package correlator_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/correlator"
	"auspex/correlator/learn"
	"auspex/internal/store/corrections"
	"auspex/internal/store/learned"
	"auspex/schemas"
)

func TestALearnedVersionIsTakenOverAndRolledBackWithoutARestart(t *testing.T) {
	b := newBench(t)
	cfg := correlator.DefaultConfig()
	cfg.Tick = 20 * time.Millisecond
	store := learn.Stored{Store: learned.New(b.db)}
	c := correlator.New(cfg, b.inv, b.db, b.bus, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	c.SetLearned(store)
	done, ready := make(chan error, 1), make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() { done <- c.Run(ctx, func() { close(ready) }) }()
	<-ready
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	root := func(want string) {
		t.Helper()
		b.wait("the root "+want, func(all []schemas.Incident) bool {
			return len(all) > 0 && all[len(all)-1].RootCause.Resource == want
		})
	}
	b.alert("e1", "gpu-r01-01/psu0", schemas.EventPSUInputLost, "PS", schemas.SeverityError, schemas.StateRaised)
	root("pdu-r01-a")
	version, err := store.Keep(t.Context(), &learn.Parameters{Format: 1, Priors: []learn.FaultCounts{
		{Fault: "power.psu_failure", Was: 60}, {Fault: "power.feed_loss", Said: 60},
	}}, "ann", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	broken, err := store.Put(t.Context(), "ann", time.Now(), []byte(`{"format":9}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		version int64
		root    string
	}{{version, "gpu-r01-01/psu0"}, {0, "pdu-r01-a"}, {version, "gpu-r01-01/psu0"}, {broken, "pdu-r01-a"}} {
		if err := store.Activate(t.Context(), step.version, "ann", time.Now()); err != nil {
			t.Fatal(err)
		}
		root(step.root) // what cannot be read leaves the records as they are
	}
	// A reload takes it over at once.
	if err := store.Activate(t.Context(), version, "ann", time.Now()); err != nil {
		t.Fatal(err)
	}
	apply, err := c.Prepare(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	root("gpu-r01-01/psu0")
	var id string
	b.mu.Lock()
	if ids := b.seen; slices.ContainsFunc(ids, func(i schemas.Incident) bool { return i.ID != ids[0].ID }) {
		t.Error("the incident has another name")
	} else {
		id = ids[0].ID
	}
	b.mu.Unlock()
	turns, err := corrections.New(b.db).Turns(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	var named []string
	for _, turn := range turns[id] {
		named = append(named, turn.Resource)
	}
	if got := strings.Join(named, " "); !strings.HasPrefix(got, "pdu-r01-a gpu-r01-01/psu0 pdu-r01-a gpu-r01-01/psu0") {
		t.Errorf("the causes that were named: %s", got)
	}
}

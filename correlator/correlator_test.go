package correlator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/correlator"
	"auspex/internal/bus"
	"auspex/internal/bus/mem"
	"auspex/internal/cmdb"
	"auspex/internal/store/records"
	"auspex/internal/store/sqldb"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/internal/waittest"
	"auspex/schemas"
)

func rack() schemas.Topology {
	t := schemas.Topology{Version: 1, Resources: []schemas.Resource{
		{ID: "dc1", Kind: schemas.KindSite},
		{ID: "dc1-r01", Kind: schemas.KindRack, Parent: "dc1"},
		{ID: "pdu-r01-a", Kind: schemas.KindPDU, Parent: "dc1-r01", Attrs: schemas.AttrsOf(map[string]string{"feed": "A"})},
	}}
	for h := 1; h <= 8; h++ {
		host := fmt.Sprintf("gpu-r01-%02d", h)
		t.Resources = append(t.Resources, schemas.Resource{ID: host, Kind: schemas.KindServer, Parent: "dc1-r01"},
			schemas.Resource{ID: host + "/gpu0", Kind: schemas.KindGPU, Parent: host})
		for p := range 3 {
			psu := fmt.Sprintf("%s/psu%d", host, p)
			t.Resources = append(t.Resources, schemas.Resource{ID: psu, Kind: schemas.KindPSU, Parent: host})
			t.Links = append(t.Links, schemas.Link{From: "pdu-r01-a", To: psu, Kind: schemas.LinkPowers})
		}
	}
	return t
}

// bench is a correlator on a bus, with everything it publishes.
type bench struct {
	t   *testing.T
	db  *sqldb.DB
	bus *mem.Bus
	inv *cmdb.Inventory
	// outcome is told when a correlator has taken outcomes in.
	outcome chan struct{}

	mu   sync.Mutex
	seen []schemas.Incident
}

func newBench(t *testing.T) *bench {
	t.Helper()
	db := sqltest.Open(t)
	inv, problems := cmdb.FromTopology(rack())
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	b := &bench{t: t, db: db, bus: mem.New(4), inv: inv, outcome: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = b.bus.Subscribe(ctx, bus.Subscription{
			Topic: schemas.TopicIncidents, Group: "test",
		}, func(_ context.Context, msgs []bus.Message) error {
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, m := range msgs {
				var inc schemas.Incident
				if err := json.Unmarshal(m.Value, &inc); err != nil {
					return err
				}
				b.seen = append(b.seen, inc)
			}
			return nil
		})
	}()
	t.Cleanup(func() { cancel(); <-done; _ = b.bus.Close() })
	return b
}

// listened is a bus that tells when a handler has taken outcomes in.
type listened struct {
	bus.Bus
	outcome chan<- struct{}
}

func (l listened) Subscribe(ctx context.Context, sub bus.Subscription, handle bus.Handler) error {
	return l.Bus.Subscribe(ctx, sub, func(ctx context.Context, msgs []bus.Message) error {
		err := handle(ctx, msgs)
		if sub.Topic == schemas.TopicOutcomes {
			select {
			case l.outcome <- struct{}{}:
			default:
			}
		}
		return err
	})
}

// start runs a correlator until the returned function is called.
func (b *bench) start() (stop func()) {
	_, stop = b.run()
	return stop
}

func (b *bench) run() (c *correlator.Correlator, stop func()) {
	cfg := correlator.DefaultConfig()
	cfg.Tick, cfg.CloseAfter.Repaired = 20*time.Millisecond, 2*time.Second
	c = correlator.New(cfg, b.inv, b.db, listened{b.bus, b.outcome}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	ctx, cancel := context.WithCancel(context.Background())
	done, ready := make(chan error, 1), make(chan struct{})
	go func() { done <- c.Run(ctx, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-done:
		b.t.Fatal(err)
	}
	return c, func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Errorf("stopped with %v", err)
		}
	}
}

func (b *bench) alert(id, resource, typ, code string, sev schemas.Severity, state string) {
	b.t.Helper()
	now := time.Now().UTC()
	doc, err := json.Marshal(schemas.Alert{
		Event: schemas.Event{
			ID: id, Time: now, Observed: now, Source: "redfish", Resource: resource, Type: typ, Code: code, Severity: sev, State: state,
		},
		Status: schemas.AlertFiring,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	if err := b.bus.Publish(b.t.Context(), bus.Message{Topic: schemas.TopicAlerts, Key: resource, Value: doc}); err != nil {
		b.t.Fatal(err)
	}
}

// acts says what control does until somebody listens: outcomes are read from the newest on.
func (b *bench) acts(server string, doc []byte) {
	b.t.Helper()
	for {
		if err := b.bus.Publish(b.t.Context(), bus.Message{Topic: schemas.TopicOutcomes, Key: server, Value: doc}); err != nil {
			b.t.Fatal(err)
		}
		select {
		case <-b.outcome:
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (b *bench) wait(what string, ok func(all []schemas.Incident) bool) {
	b.t.Helper()
	waittest.Until(b.t, func() error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if ok(b.seen) {
			return nil
		}
		return fmt.Errorf("%s; got %d states", what, len(b.seen))
	})
}

func TestAStormBecomesOneStoredIncidentThatSurvivesARestart(t *testing.T) {
	b := newBench(t)
	stop := b.start()
	for h := 1; h <= 4; h++ {
		for p := range 3 {
			b.alert(
				fmt.Sprintf("e%d-%d", h, p), fmt.Sprintf("gpu-r01-%02d/psu%d", h, p), "psu.input_lost", "PS", schemas.SeverityError,
				schemas.StateRaised,
			)
		}
	}
	var id string
	whole := func(n int) func([]schemas.Incident) bool {
		return func(all []schemas.Incident) bool {
			for i := len(all) - 1; i >= 0; i-- {
				if inc := all[i]; inc.RootCause.Resource == "pdu-r01-a" && len(inc.Events) == n {
					id = inc.ID
					return true
				}
			}
			return false
		}
	}
	b.wait("the feed with 12 events", whole(12))
	first := id
	stop()
	stop = b.start()
	defer stop()
	for h := 5; h <= 8; h++ {
		for p := range 3 {
			b.alert(
				fmt.Sprintf("e%d-%d", h, p), fmt.Sprintf("gpu-r01-%02d/psu%d", h, p), "psu.input_lost", "PS", schemas.SeverityError,
				schemas.StateRaised,
			)
		}
	}
	b.wait("the feed with 24 events", whole(24))
	if id != first {
		t.Errorf("the incident is called %s after a restart, %s before", id, first)
	}
	got, ok, err := records.New(b.db).Incident(t.Context(), id)
	if err != nil || !ok || len(got.Events) != 24 {
		t.Errorf("stored incident: found %v, %d events, error %v", ok, len(got.Events), err)
	}
}

func TestOtherPropagationKnowledgeCountsFromNowOnAndKeepsWhatIsOpen(t *testing.T) {
	b := newBench(t)
	c, stop := b.run()
	defer stop()
	lost := func(host int) {
		for p := range 3 {
			b.alert(
				fmt.Sprintf("e%d-%d", host, p), fmt.Sprintf("gpu-r01-%02d/psu%d", host, p), "psu.input_lost", "PS", schemas.SeverityError,
				schemas.StateRaised,
			)
		}
	}
	feed := func(n int) (id string) {
		b.wait(fmt.Sprintf("the feed with %d events", n), func(all []schemas.Incident) bool {
			for _, inc := range all {
				if inc.RootCause.Resource == "pdu-r01-a" && len(inc.Events) == n {
					id = inc.ID
				}
			}
			return id != ""
		})
		return id
	}
	lost(1)
	lost(2)
	first := feed(6)
	cfg := correlator.DefaultConfig()
	cfg.Faults = []string{t.TempDir()}
	file := filepath.Join(cfg.Faults[0], "gpu.lost.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("signs: [\n")
	if _, err := c.Prepare(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), file+":") {
		t.Errorf("a bad file: %v", err)
	}
	write(`fault: gpu.lost
title: {en: GPU lost, zh: GPU 丢失}
summary: {en: "GPU {index} is lost.", zh: "GPU {index} 丢失。"}
kinds: [gpu]
prior: -1
do: {action: power_cycle, target: server}
shows: [{sign: gpu_off_bus, p: 0.99, m: 0.99, within: 10m, before: 30s}]
`)
	apply, err := c.Prepare(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	lost(3)
	if id := feed(9); id != first {
		t.Errorf("the incident is called %s now, %s before", id, first)
	}
	b.alert("x1", "gpu-r01-08/gpu0", "gpu.xid", "79", schemas.SeverityCritical, "")
	b.wait("the GPU by the new knowledge", func(all []schemas.Incident) bool {
		return slices.ContainsFunc(all, func(i schemas.Incident) bool { return i.RootCause.Fault == "gpu.lost" })
	})
}

func TestAServerThatWeRestartIsNotCrashed(t *testing.T) {
	b := newBench(t)
	defer b.start()()
	doc, err := json.Marshal(schemas.Action{
		ID: "a-1", Time: time.Now().UTC(), Server: "gpu-r01-02", Kind: "power_cycle", Mode: schemas.ModeEnforce, State: schemas.ActionRunning,
	})
	if err != nil {
		t.Fatal(err)
	}
	b.acts("gpu-r01-02", doc)
	b.alert("e1", "gpu-r01-02", "agent.unreachable", "", schemas.SeverityError, schemas.StateRaised)
	b.alert("e2", "gpu-r01-02", "host.unreachable", "", schemas.SeverityError, schemas.StateRaised)
	b.alert("e3", "gpu-r01-01/gpu0", "gpu.xid", "79", schemas.SeverityCritical, "")
	b.wait("the GPU", func(all []schemas.Incident) bool {
		return len(all) > 0 && all[len(all)-1].RootCause.Fault == "gpu.fallen_off_bus"
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, inc := range b.seen {
		if inc.RootCause.Fault == "host.crash" && inc.Closed == nil && len(inc.Events) > 1 {
			t.Errorf("incident %+v", inc.RootCause)
		}
	}
}

// A repair that is known when the process ends closes its incident after the next start, too.
func TestARepairIsRememberedOverARestart(t *testing.T) {
	b := newBench(t)
	stop := b.start()
	b.alert("lost", "gpu-r01-01/gpu0", "gpu.xid", "79", schemas.SeverityCritical, "")
	var id string
	b.wait("the incident", func(all []schemas.Incident) bool {
		if len(all) > 0 {
			id = all[len(all)-1].ID
		}
		return len(all) > 0
	})
	doc, err := json.Marshal(schemas.Action{
		ID: "a1", Time: time.Now().UTC(), Server: "gpu-r01-01", Kind: "power_cycle", Incident: id, State: schemas.ActionDone, Mode: schemas.ModeEnforce,
	})
	if err != nil {
		t.Fatal(err)
	}
	b.acts("gpu-r01-01", doc)
	stop()
	defer b.start()()
	b.wait("that it is closed", func(all []schemas.Incident) bool {
		last := all[len(all)-1]
		return last.ID == id && last.Closed != nil
	})
	var left int
	if err := b.db.QueryRowContext(t.Context(), `SELECT count(*) FROM correlator_repairs`).Scan(&left); err != nil || left != 0 {
		t.Errorf("%d repairs are remembered of what is closed: %v", left, err)
	}
}

// What an incident held that has closed is taken out of the journal with it: a process that ends at once opens nothing again.
func TestAClosedIncidentStaysClosedOverARestart(t *testing.T) {
	b := newBench(t)
	stop := b.start()
	b.alert("lost", "gpu-r01-01/gpu0", "gpu.xid", "79", schemas.SeverityCritical, "")
	var id string
	closed := func(all []schemas.Incident) bool { return len(all) > 0 && all[len(all)-1].Closed != nil }
	b.wait("the incident", func(all []schemas.Incident) bool {
		if len(all) > 0 {
			id = all[len(all)-1].ID
		}
		return len(all) > 0
	})
	doc, err := json.Marshal(schemas.Action{
		ID: "a1", Time: time.Now().UTC(), Server: "gpu-r01-01", Kind: "power_cycle", Incident: id, State: schemas.ActionDone, Mode: schemas.ModeEnforce,
	})
	if err != nil {
		t.Fatal(err)
	}
	b.acts("gpu-r01-01", doc)
	b.wait("that it is closed", closed)
	stop()
	defer b.start()()
	b.alert("other", "gpu-r01-02/gpu0", "gpu.xid", "79", schemas.SeverityCritical, "") // what was restored is told before it
	b.wait("the other incident", func(all []schemas.Incident) bool {
		return slices.ContainsFunc(all, func(i schemas.Incident) bool { return i.RootCause.Resource == "gpu-r01-02/gpu0" })
	})
	got, ok, err := records.New(b.db).Incident(t.Context(), id)
	if err != nil || !ok || got.Closed == nil {
		t.Errorf("the closed incident is %+v after a restart (%v, %v)", got, ok, err)
	}
}

func TestACommitWhoseAnswerWasLostEndsTheRunAndIsTakenUpByTheNext(t *testing.T) {
	b := newBench(t)
	const resource = "gpu-r01-01/gpu0"
	now := time.Now().UTC()
	doc, err := json.Marshal(schemas.Event{
		ID: "e1", Time: now, Observed: now, Source: "kmsg", Resource: resource, Type: "gpu.xid", Code: "79", Severity: schemas.SeverityCritical,
	})
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	ready := make(chan struct{})
	c := correlator.New(correlator.DefaultConfig(), b.inv, b.db, b.bus, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	go func() { failed <- c.Run(t.Context(), func() { close(ready) }) }()
	<-ready
	// What the correlator is about to store is there already.
	for statement, args := range map[string][]any{
		`INSERT INTO correlator_journal (seq, event, doc) VALUES ($1,$2,$3)`:  {1, "e1", string(doc)},
		`INSERT INTO correlator_positions (part, next_offset) VALUES ($1,$2)`: {bus.PartitionFor(resource, 4), 1},
	} {
		if _, err := b.db.ExecContext(t.Context(), statement, args...); err != nil {
			t.Fatal(err)
		}
	}
	b.alert("e1", resource, "gpu.xid", "79", schemas.SeverityCritical, "")
	select {
	case err := <-failed:
		if err == nil || !strings.Contains(err.Error(), "store incidents") {
			t.Fatalf("ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it tries for ever to store what is stored")
	}
	defer b.start()()
	b.wait("the GPU", func(all []schemas.Incident) bool {
		return len(all) > 0 && all[len(all)-1].RootCause.Fault == "gpu.fallen_off_bus"
	})
}

func TestAnIncidentThatIsPublishedListsASampleAndCountsAll(t *testing.T) {
	b := newBench(t)
	defer b.start()()
	const n = 600
	for i := range n {
		b.alert(fmt.Sprintf("e%d", i), "gpu-r01-01/gpu0", "gpu.xid", "79", schemas.SeverityCritical, "")
	}
	b.wait("half of the events", func(all []schemas.Incident) bool {
		return len(all) > 0 && all[len(all)-1].EventCount > n/2
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, inc := range b.seen {
		if len(inc.Events) > 256 {
			t.Errorf("%d events are listed of %d", len(inc.Events), inc.EventCount)
		}
	}
}

func TestABadAlertIsPutAsideAndStopsNothing(t *testing.T) {
	b := newBench(t)
	defer b.start()()
	if err := b.bus.Publish(t.Context(), bus.Message{Topic: schemas.TopicAlerts, Key: "x", Value: []byte(`{"id":`)}); err != nil {
		t.Fatal(err)
	}
	b.alert("e1", "gpu-r01-01/gpu0", "gpu.xid", "79", schemas.SeverityCritical, "")
	b.wait("the GPU", func(all []schemas.Incident) bool {
		return len(all) > 0 && all[len(all)-1].RootCause.Fault == "gpu.fallen_off_bus"
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	letters := make(chan schemas.DeadLetter, 1)
	_ = b.bus.Subscribe(ctx, bus.Subscription{
		Topic: schemas.TopicDeadletter, Group: "test",
	}, func(_ context.Context, msgs []bus.Message) error {
		var l schemas.DeadLetter
		if err := json.Unmarshal(msgs[0].Value, &l); err != nil {
			return err
		}
		letters <- l
		cancel()
		return nil
	})
	select {
	case l := <-letters:
		if l.Reason == "" || string(l.Record) != `{"id":` {
			t.Errorf("dead letter %+v", l)
		}
	default:
		t.Error("no dead letter")
	}
}

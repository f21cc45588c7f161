package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/api"
	"auspex/api/access"
	"auspex/collectors"
	"auspex/control"
	"auspex/control/messages"
	"auspex/correlator"
	"auspex/internal/bus"
	"auspex/internal/bus/mem"
	"auspex/internal/cmdb"
	"auspex/internal/store/allocations"
	"auspex/internal/store/answers"
	"auspex/internal/store/estate"
	"auspex/internal/store/handling"
	"auspex/internal/store/people"
	"auspex/internal/store/records"
	"auspex/internal/store/sqldb"
	"auspex/internal/store/workflows"
	"auspex/internal/waittest"
	"auspex/pipeline/detect"
	"auspex/pipeline/enrich"
	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

// hands does what control asks, and remembers it.
type hands struct {
	mu   sync.Mutex
	done []string // kind and server
}

func (h *hands) Plan(context.Context, control.Step) (schemas.Sentence, error) {
	return messages.New(messages.Decided, nil), nil
}

func (h *hands) Apply(_ context.Context, s control.Step) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.done = append(h.done, s.Kind+" "+s.Server)
	return nil
}

func (h *hands) Verify(context.Context, control.Step) (control.Verdict, schemas.Sentence, error) {
	return control.Verified, messages.New(messages.Decided, nil), nil
}

func (h *hands) all() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.done, ", ")
}

func (h *hands) did(what string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Contains(h.done, what)
}

// TestNothingIsDestroyedOnWhatIsPosted posts over HTTP that the GPUs of two servers have fallen off the bus, of which
// the kernel of one says so too, and has control in enforce act on what the correlator makes of it: that server is
// drained and cycled. Of the other, nothing is done; its incident says that all was posted, its action that a person must
// vouch for it.
func TestNothingIsDestroyedOnWhatIsPosted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	dir := t.TempDir()
	db, err := sqldb.Open(ctx, filepath.Join(dir, "auspex.db"))
	if err != nil {
		t.Fatal(err)
	}
	topology := schemas.Topology{Version: 1, Resources: []schemas.Resource{{ID: "dc", Kind: schemas.KindSite}}}
	for s := range 2 {
		rack, server := fmt.Sprint("r", s), fmt.Sprint("s", s)
		topology.Resources = append(topology.Resources, schemas.Resource{ID: rack, Kind: schemas.KindRack, Parent: "dc"},
			schemas.Resource{ID: server, Kind: schemas.KindServer, Parent: rack}, schemas.Resource{ID: server + "/gpu0", Kind: schemas.KindGPU, Parent: server})
	}
	quiet := slog.New(slog.DiscardHandler)
	inv := cmdb.New(cmdb.DefaultConfig(), db, quiet, nil)
	if err := inv.Open(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := inv.Import(ctx, cmdb.Draft{Topology: topology}, cmdb.ImportOptions{}); err != nil {
		t.Fatal(err)
	}
	b, st := mem.New(2), records.New(db)
	acfg := api.DefaultConfig()
	acfg.Listen = "127.0.0.1:0"
	srv, err := api.New(acfg, api.Deps{
		Log: quiet, Registerer: prometheus.NewRegistry(), DB: db, Records: st, People: people.New(db), Answers: answers.New(db), Inventory: inv,
		Estate: estate.New(db), Allocations: allocations.New(db), Workflows: workflows.New(db),
		Handling: handling.New(db), Publisher: b,
	})
	if err != nil {
		t.Fatal(err)
	}
	policies := filepath.Join(dir, "policies")
	if err := os.Mkdir(policies, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(policies, "policy.yaml"), []byte(`
budgets: {fleet: 10, rack: 10, per_hour: 10}
breaker: {cases: 10, window: 10m}
policies:
  - name: gpu
    faults: [gpu.fallen_off_bus]
    min_confidence: 0.1
    settle: 0s
    max_evidence_age: 1h
    ladder:
      - {kind: drain, verify: 1m}
      - {kind: power_cycle, needs: [drain], destructive: true, verify: 1m, quiet: 1s, quorum: 1}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	ours, ccfg, kcfg := &hands{}, correlator.DefaultConfig(), control.DefaultConfig()
	ccfg.Tick = 10 * time.Millisecond
	kcfg.Mode, kcfg.Policies, kcfg.Poll = schemas.ModeEnforce, filepath.Join(policies, "policy.yaml"), 10*time.Millisecond
	ctl, err := control.New(kcfg, control.Deps{
		Log: quiet, Metrics: prometheus.NewRegistry(), Now: time.Now, DB: db, Records: st, Bus: b, Inventory: place{inv}, Holder: "test", View: collectors.ViewOf,
		Remediators: map[string]control.Remediator{"drain": ours, "power_cycle": ours},
	})
	if err != nil {
		t.Fatal(err)
	}
	var stops []func()
	for _, run := range []func(context.Context, func()) error{
		srv.Run, detect.New(detect.DefaultConfig(), b, enrich.New(inv, nil), st, quiet, nil).Run,
		correlator.New(ccfg, inv, db, b, quiet, prometheus.NewRegistry()).Run, ctl.Run,
	} {
		ctx, stop := context.WithCancel(ctx)
		ready, done := make(chan struct{}), make(chan error, 1)
		go func() { done <- run(ctx, func() { close(ready) }) }()
		<-ready
		stops = append(stops, func() {
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() {
		for _, stop := range slices.Backward(stops) {
			stop()
		}
		cancel()
		_ = b.Close()
		_ = db.Close()
	})
	token, err := srv.IssueToken(ctx, "ann", access.RoleOperator)
	if err != nil {
		t.Fatal(err)
	}
	call := asker{srv.URL(), token}.caller(t)
	var posted struct{ ID string }
	for s := range 2 {
		for n := range 3 {
			call(http.MethodPost, "events", fmt.Sprintf(
				`{"source_type":"gpu","source_id":"s%d/gpu0","event_type":"gpu.xid","code":"79","severity":"critical","message":"report %d"}`, s, n), &posted)
		}
	}
	now := time.Now().UTC()
	seen := schemas.Event{
		ID: "k1", Time: now, Observed: now, Source: schemas.SourceKmsg, Resource: "s1/gpu0", Type: schemas.EventGPUXID, Code: "79", Severity: schemas.SeverityCritical,
	}
	batch := auspexv1.Batch{Device: "s1", Collector: schemas.SourceKmsg, Observed: now.UnixNano(), Events: []*auspexv1.Event{seen.Wire()}}
	value, err := batch.MarshalVT()
	if err == nil {
		err = b.Publish(ctx, bus.Message{Topic: schemas.TopicEvents, Key: "s1", Value: value})
	}
	if err != nil {
		t.Fatal(err)
	}
	var actions struct{ Items []schemas.Action }
	waittest.Until(t, func() error {
		call(http.MethodGet, "actions", "", &actions)
		for _, a := range actions.Items {
			if a.Server == "s0" && a.State == schemas.ActionWaiting && strings.Contains(a.Detail, "a person must approve") && ours.did("power_cycle s1") {
				return nil
			}
		}
		return fmt.Errorf("done: %s; actions %+v", ours.all(), actions.Items)
	})
	if ours.did("drain s0") || ours.did("power_cycle s0") {
		t.Errorf("done: %s", ours.all())
	}
	var incidents struct{ Items []struct{ ID string } }
	call(http.MethodGet, "incidents?status=open", "", &incidents)
	external := map[string]bool{}
	for _, i := range incidents.Items {
		var one struct {
			RootCause schemas.Cause `json:"root_cause"`
			External  bool
		}
		call(http.MethodGet, "incidents/"+i.ID, "", &one)
		external[one.RootCause.Resource] = one.External
	}
	if len(external) != 2 || !external["s0/gpu0"] || external["s1/gpu0"] {
		t.Errorf("posted alone: %v", external)
	}
	var of struct {
		Incident *string
		External bool
	}
	call(http.MethodGet, "events/"+posted.ID, "", &struct{}{})
	call(http.MethodGet, "alerts/"+posted.ID+"/correlation", "", &of)
	if of.Incident == nil || of.External {
		t.Errorf("%+v", of)
	}
}

package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/api"
	"auspex/api/access"
	"auspex/correlator"
	"auspex/internal/bus"
	"auspex/internal/bus/mem"
	"auspex/internal/cmdb"
	"auspex/internal/store/allocations"
	"auspex/internal/store/answers"
	"auspex/internal/store/audit"
	"auspex/internal/store/estate"
	"auspex/internal/store/maintenance"
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

// TestDeclaredMaintenanceFromTheAPIToTheIncident declares work on a rack over HTTP, cuts the
// power of two racks, has a GPU fail in the first, restarts the correlator, and ends the
// window: one rack, one GPU and then what is still out are told.
func TestDeclaredMaintenanceFromTheAPIToTheIncident(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	db, err := sqldb.Open(ctx, filepath.Join(t.TempDir(), "auspex.db"))
	if err != nil {
		t.Fatal(err)
	}
	topology := schemas.Topology{Version: 1, Resources: []schemas.Resource{{ID: "dc", Kind: schemas.KindSite}}}
	for s := range 8 {
		rack, pdu, server := fmt.Sprint("r", s/4), fmt.Sprint("pdu", s/4), fmt.Sprint("s", s)
		if s%4 == 0 {
			topology.Resources = append(topology.Resources, schemas.Resource{ID: rack, Kind: schemas.KindRack, Parent: "dc"},
				schemas.Resource{ID: pdu, Kind: schemas.KindPDU, Parent: rack})
		}
		topology.Resources = append(topology.Resources, schemas.Resource{ID: server, Kind: schemas.KindServer, Parent: rack},
			schemas.Resource{ID: server + "/psu0", Kind: schemas.KindPSU, Parent: server},
			schemas.Resource{ID: server + "/gpu0", Kind: schemas.KindGPU, Parent: server})
		topology.Links = append(topology.Links, schemas.Link{From: pdu, To: server + "/psu0", Kind: schemas.LinkPowers})
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
		Log: quiet, Registerer: prometheus.NewRegistry(), DB: db, Records: st, People: people.New(db), Answers: answers.New(db), Estate: estate.New(db), Allocations: allocations.New(db), Workflows: workflows.New(db), Inventory: inv, Maintenance: maintenance.New(db), Publisher: b,
	})
	if err != nil {
		t.Fatal(err)
	}
	run := func(run func(context.Context, func()) error) (stop func()) {
		t.Helper()
		ctx, cancel := context.WithCancel(ctx)
		ready, done := make(chan struct{}), make(chan error, 1)
		go func() { done <- run(ctx, func() { close(ready) }) }()
		<-ready
		return func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	correlate := func() (stop func()) {
		ccfg := correlator.DefaultConfig()
		ccfg.Tick = 10 * time.Millisecond
		return run(correlator.New(ccfg, inv, db, b, quiet, prometheus.NewRegistry()).Run)
	}
	stops := []func(){run(srv.Run), run(detect.New(detect.DefaultConfig(), b, enrich.New(inv, nil), st, quiet, nil).Run)}
	correlating := correlate()
	t.Cleanup(func() {
		correlating()
		for _, stop := range stops {
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
	n := 0
	report := func(source, resource, typ, code, state string) {
		t.Helper()
		n++
		now := time.Now().UTC()
		ev := schemas.Event{
			ID: fmt.Sprint("e", n), Time: now, Observed: now, Source: source, Resource: resource, Type: typ, Code: code, State: state,
			Severity: schemas.SeverityCritical,
		}
		server, _, _ := strings.Cut(resource, "/")
		batch := auspexv1.Batch{Device: server, Collector: source, Observed: now.UnixNano(), Events: []*auspexv1.Event{ev.Wire()}}
		value, err := batch.MarshalVT()
		if err == nil {
			err = b.Publish(ctx, bus.Message{Topic: schemas.TopicEvents, Key: server, Value: value})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	open := func() (causes []string, said string) {
		var words strings.Builder
		t.Helper()
		var list struct{ Items []schemas.Incident }
		call(http.MethodGet, "incidents?status=open", "", &list)
		for _, i := range list.Items {
			causes = append(causes, i.RootCause.Resource+" "+i.RootCause.Fault)
			fmt.Fprintln(&words, i.RootCause.Resource, i.Explanation)
		}
		slices.Sort(causes)
		return causes, words.String()
	}
	// What is declared and what fails come in any order: an incident is told first without the window.
	until := func(says string, want ...string) {
		t.Helper()
		waittest.Until(t, func() error {
			causes, text := open()
			if !slices.Equal(causes, want) {
				return fmt.Errorf("open are %q, want %q", causes, want)
			}
			if !strings.Contains(text, says) {
				return fmt.Errorf("told without %q: %s", says, text)
			}
			return nil
		})
	}

	var window schemas.Maintenance
	call(http.MethodPost, "maintenance", `{"resources":["r0"],"duration_seconds":3600,"grace_seconds":1,"reason":"new supplies"}`, &window)
	for s := range 8 {
		report(schemas.SourceRedfish, fmt.Sprintf("s%d/psu0", s), schemas.EventPSUInputLost, "", schemas.StateRaised)
	}
	report(schemas.SourceKmsg, "s1/gpu0", schemas.EventGPUXID, "79", "")
	want := []string{"pdu1 power.feed_loss", "s1/gpu0 gpu.fallen_off_bus"}
	until("window "+window.ID+" by ann", want...)
	correlating() // and starts again, from what it has stored
	correlating = correlate()
	report(schemas.SourceRedfish, "s3/psu0", schemas.EventPSUInputLost, "again", schemas.StateRaised)
	report(schemas.SourceKmsg, "s6/gpu0", schemas.EventGPUXID, "79", "")
	want = append(want, "s6/gpu0 gpu.fallen_off_bus")
	until("", want...)
	call(http.MethodPost, "maintenance/"+window.ID+"/end", "", &window)
	want = append([]string{"pdu0 power.feed_loss"}, want...)
	until("ended at "+window.Ended.Format("2006-01-02 15:04 UTC")+"; this goes on", want...)
	if _, err := audit.Verify(ctx, db); err != nil {
		t.Error(err)
	}
}

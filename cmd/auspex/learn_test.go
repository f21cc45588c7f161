package main

import (
	"bytes"
	"context"
	"encoding/json"
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
	"auspex/correlator/learn"
	"auspex/internal/bus"
	"auspex/internal/bus/mem"
	"auspex/internal/cmdb"
	"auspex/internal/store/allocations"
	"auspex/internal/store/answers"
	"auspex/internal/store/corrections"
	"auspex/internal/store/estate"
	"auspex/internal/store/learned"
	"auspex/internal/store/people"
	"auspex/internal/store/records"
	"auspex/internal/store/sqldb"
	"auspex/internal/store/workflows"
	"auspex/internal/waittest"
	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

// alert is what detection makes of a supply that has lost its input.
func alert(id, server string, at time.Time) schemas.Alert {
	return schemas.Alert{Event: schemas.Event{
		ID: id, Time: at, Observed: at, Source: schemas.SourceRedfish, Resource: server + "/psu0", Type: schemas.EventPSUInputLost,
		Severity: schemas.SeverityError, State: schemas.StateRaised,
	}, Status: schemas.AlertFiring, Server: server}
}

// TestACorrectionTeachesTheRunningCorrelator is the whole way round: incidents of a
// site, verdicts over the API, learning by command, and the same kind of trouble again.
func TestACorrectionTeachesTheRunningCorrelator(t *testing.T) {
	topology := schemas.Topology{Version: 1, Resources: []schemas.Resource{
		{ID: "dc", Kind: schemas.KindSite},
		{ID: "r0", Kind: schemas.KindRack, Parent: "dc"},
		{ID: "pdu-a", Kind: schemas.KindPDU, Parent: "r0"},
		{ID: "r1", Kind: schemas.KindRack, Parent: "dc"},
		{ID: "pdu-b", Kind: schemas.KindPDU, Parent: "r1"},
	}}
	for s := range 8 {
		server := fmt.Sprint("s", s)
		feed, rack := []string{"pdu-a", "pdu-b"}[s/4], fmt.Sprint("r", s/4)
		topology.Resources = append(topology.Resources, schemas.Resource{ID: server, Kind: schemas.KindServer, Parent: rack},
			schemas.Resource{ID: server + "/psu0", Kind: schemas.KindPSU, Parent: server})
		topology.Links = append(topology.Links, schemas.Link{From: feed, To: server + "/psu0", Kind: schemas.LinkPowers})
	}
	site := newLiveSite(t, topology)
	ctx, data, st, b, call, auspex := t.Context(), site.data, site.records, site.bus, site.call, site.auspex
	// One supply of four loses its input, and the running correlator decides.
	trouble := func(id, server string, at time.Time) (cause schemas.Cause) {
		t.Helper()
		a := alert(id, server, at)
		doc, err := json.Marshal(a)
		if err == nil {
			err = st.PutAlert(ctx, a)
		}
		if err == nil {
			err = b.Publish(ctx, bus.Message{Topic: schemas.TopicAlerts, Key: server, Value: doc})
		}
		if err != nil {
			t.Fatal(err)
		}
		var list struct{ Items []schemas.Incident }
		waittest.Until(t, func() error {
			list.Items = nil
			call(http.MethodGet, "incidents?since="+at.Add(-time.Minute).Format(time.RFC3339), "", &list)
			for _, i := range list.Items {
				if slices.Contains(i.Affected, server) {
					cause = i.RootCause
					return nil
				}
			}
			return fmt.Errorf("no incident of %s", server)
		})
		return cause
	}
	start := time.Now().UTC().Add(-33 * 30 * time.Hour).Truncate(time.Second)
	const times = 25
	// The weeks before, as detection and the correlator leave them in the store.
	engine := correlator.NewEngine(propagation.Default(), &topology, func(first string) string { return "i-" + first })
	for n := range times {
		a := alert(fmt.Sprint("e", n), fmt.Sprint("s", n%4), start.Add(time.Duration(n)*30*time.Hour))
		if err := st.PutAlert(ctx, a); err != nil {
			t.Fatal(err)
		}
		engine.Add(&a.Event)
		engine.Advance(a.Observed.Add(29 * time.Hour))
	}
	for _, i := range engine.Drain() {
		if i.Closed == nil {
			i.Closed = &i.Updated
		}
		if err := st.PutIncident(ctx, i); err != nil {
			t.Fatal(err)
		}
	}
	var list struct{ Items []schemas.Incident }
	call(http.MethodGet, "incidents", "", &list)
	if len(list.Items) != times {
		t.Fatalf("%d incidents", len(list.Items))
	}
	for _, i := range list.Items {
		var whole struct{ Events []string }
		call(http.MethodGet, "incidents/"+i.ID, "", &whole)
		a, _, err := st.Alert(ctx, whole.Events[0])
		if err != nil {
			t.Fatal(err)
		}
		var c schemas.Correction
		call(
			http.MethodPost, "incidents/"+i.ID+"/corrections", `{"verdict":"cause","resource":"`+a.Resource+`","fault":"power.psu_failure"}`, &c,
		)
	}
	var r learn.Report
	if err := json.Unmarshal([]byte(auspex("backtest", "incidents", "-o", "json")), &r); err != nil {
		t.Fatal(err)
	}
	if r.Judged != times || r.Records.Right != 0 || r.Learned.Right != times || !r.Learned.Enough {
		t.Errorf("backtest: %+v, learned %+v", r, r.Learned)
	}
	if out := auspex("learn", "parameters"); !strings.Contains(out, "power.psu_failure") {
		t.Errorf("learn says %s", out)
	}
	if got := trouble("before", "s1", time.Now().UTC()); got.Resource != "pdu-a" {
		t.Errorf("a version that nobody put in force is in force: %+v", got)
	}
	auspex("learn", "activate", "1")
	var record struct{ Parameters, Judged, Right int }
	if call(http.MethodGet, "incidents/record", "", &record); record.Parameters != 1 || record.Judged != times || record.Right != 0 {
		t.Errorf("the console's record: %+v", record)
	}
	waittest.Until(t, func() error { // what is open is decided anew
		call(http.MethodGet, "incidents", "", &list)
		if got := list.Items[0].RootCause; got.Resource != "s1/psu0" || got.Fault != "power.psu_failure" {
			return fmt.Errorf("the newest incident is booked to %+v", got)
		}
		return nil
	})
	if got := trouble("after", "s6", time.Now().UTC()); got.Resource != "s6/psu0" {
		t.Errorf("the same kind of trouble again is booked to %+v", got)
	}
	dir := filepath.Join(data, "cases")
	auspex("learn", "cases", "--out", dir)
	files := []string{"backtest", "incidents", "-o", "json"}
	for flag, name := range map[string]string{
		"--topology": "topology.json", "--events": "events.jsonl", "--incidents": "incidents.jsonl", "--corrections": "corrections.jsonl",
	} {
		files = append(files, flag, filepath.Join(dir, name))
	}
	var elsewhere learn.Report
	if err := json.Unmarshal([]byte(auspex(files...)), &elsewhere); err != nil {
		t.Fatal(err)
	}
	if elsewhere.Judged != times || elsewhere.Learned.Right != times {
		t.Errorf("the same from exported files: %+v, learned %+v", elsewhere, elsewhere.Learned)
	}
}

// liveSite is a correlator and an API that run over stores, with an inventory.
type liveSite struct {
	t       *testing.T
	data    string
	db      *sqldb.DB
	inv     *cmdb.Inventory
	bus     *mem.Bus
	records *records.Store
	srv     *api.Server
	call    func(method, path, body string, into any)
	stop    func() // the correlator
}

func newLiveSite(t *testing.T, topology schemas.Topology) *liveSite {
	t.Helper()
	s := &liveSite{t: t, data: t.TempDir()}
	ctx, cancel := context.WithCancel(context.Background())
	var err error
	if s.db, err = sqldb.Open(ctx, filepath.Join(s.data, "auspex.db")); err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	s.inv = cmdb.New(cmdb.DefaultConfig(), s.db, quiet, nil)
	if err := s.inv.Open(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := s.inv.Import(ctx, cmdb.Draft{Topology: topology}, cmdb.ImportOptions{}); err != nil {
		t.Fatal(err)
	}
	s.bus, s.records = mem.New(1), records.New(s.db)
	acfg := api.DefaultConfig()
	acfg.Listen = "127.0.0.1:0"
	s.srv, err = api.New(acfg, api.Deps{
		Log: quiet, Registerer: prometheus.NewRegistry(), DB: s.db, Records: s.records, People: people.New(s.db), Answers: answers.New(s.db), Estate: estate.New(s.db), Allocations: allocations.New(s.db), Workflows: workflows.New(s.db), Inventory: s.inv, Corrections: corrections.New(s.db),
		Learned: learned.New(s.db).Active, Edges: learn.Stored{Store: learned.New(s.db)},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.start()
	done, ready := make(chan error, 1), make(chan struct{})
	go func() { done <- s.srv.Run(ctx, func() { close(ready) }) }()
	<-ready
	t.Cleanup(func() {
		s.stop()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		_ = s.bus.Close()
		_ = s.db.Close()
	})
	s.call = s.as("ann", access.RoleOperator).caller(t)
	return s
}

// as returns who asks with a token of a role.
func (s *liveSite) as(name, role string) asker {
	s.t.Helper()
	token, err := s.srv.IssueToken(context.Background(), name, role)
	if err != nil {
		s.t.Fatal(err)
	}
	return asker{s.srv.URL(), token}
}

// start runs a correlator until stop is called.
func (s *liveSite) start() {
	s.t.Helper()
	cfg := correlator.DefaultConfig()
	cfg.Tick = 10 * time.Millisecond
	c := correlator.New(cfg, s.inv, s.db, s.bus, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	c.SetLearned(learn.Stored{Store: learned.New(s.db)})
	ctx, cancel := context.WithCancel(context.Background())
	done, ready := make(chan error, 1), make(chan struct{})
	go func() { done <- c.Run(ctx, func() { close(ready) }) }()
	<-ready
	s.stop = func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
	}
}

// auspex runs a command over the stores of the site.
func (s *liveSite) auspex(args ...string) string {
	s.t.Helper()
	var out, errs bytes.Buffer
	args = append(args, "--data", s.data)
	if code := command(s.t.Context(), args, IO{In: strings.NewReader(""), Out: &out, Err: &errs}); code != 0 {
		s.t.Fatalf("auspex %s: exit status %d: %s", strings.Join(args, " "), code, errs.String())
	}
	if strings.Contains(errs.String(), "could not be read") {
		s.t.Errorf("auspex %s: %s", strings.Join(args, " "), errs.String())
	}
	return out.String()
}

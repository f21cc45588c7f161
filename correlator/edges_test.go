package correlator

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"auspex/internal/racetest"
	"auspex/internal/stormgen"
	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

// saidOf is all that an engine says of a storm by a model.
func saidOf(t *testing.T, m *propagation.Model, topology *schemas.Topology, events []schemas.Event) (out []string) {
	t.Helper()
	e := NewEngine(m, topology, nil)
	take := func() {
		for _, i := range e.Drain() {
			doc, err := json.Marshal(&i)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, string(doc))
		}
	}
	for i := range events {
		e.Add(&events[i])
		take()
	}
	e.Advance(e.Now().Add(2 * time.Minute))
	e.Flush()
	take()
	return out
}

// edgesOf gives each form of each fault edges: signs that do not come, over whichever ways the
// fault has and over some of its own.
func edgesOf(m *propagation.Model, signs []string) (out []propagation.Edge) {
	for f := range m.Faults {
		fault := &m.Faults[f]
		if fault.Harmless || fault.Window != propagation.NoWindow {
			continue
		}
		ways := [][]propagation.Step{nil, {{Op: propagation.Up, Kind: schemas.KindServer}}, {{Op: propagation.Down, Kind: schemas.KindServer}}}
		for _, c := range fault.Classes[:min(2, len(fault.Classes))] {
			ways = append(ways, c.Path)
		}
		for i, w := range ways {
			e := propagation.Edge{
				Fault: fault.Name, Kinds: fault.Kinds, Type: "learned.type", Leak: 0.001, Way: w, Shows: 0.98, Share: 0.9, Soon: time.Second,
				Within: time.Minute, Before: time.Minute,
			}
			if len(signs) > 0 && i%2 == 1 {
				e.Sign, e.Type = signs[(f+i)%len(signs)], ""
			}
			out = append(out, e)
		}
		for _, s := range signs { // on the part itself, all of them
			out = append(out, propagation.Edge{
				Fault: fault.Name, Kinds: fault.Kinds, Sign: s, Shows: 0.98, Share: 0.98, Soon: time.Second, Within: time.Minute, Before: time.Minute,
			})
		}
	}
	return out
}

// sameWithEdges holds what is told of events by a model against what is told with edges of
// signs that do not come. It returns how many lines that were.
func sameWithEdges(t *testing.T, m *propagation.Model, name string, topology *schemas.Topology, events []schemas.Event) int {
	t.Helper()
	came := map[int]bool{}
	for i := range events {
		came[m.Match(events[i].Type, events[i].Code, schemas.SeverityCritical)] = true
	}
	var never []string
	for s := range m.Signs {
		bounced := slices.ContainsFunc(m.Signs, func(o propagation.Sign) bool { return o.Bounce == s })
		if !came[s] && !bounced && s != m.SignNamed(propagation.SignWork) && s != m.SignNamed(propagation.SignNotBack) {
			never = append(never, m.Signs[s].Name)
		}
	}
	taught := m.With(edgesOf(m, never))
	if len(taught.Signs) != len(m.Signs)+1 {
		t.Fatalf("%d signs", len(taught.Signs))
	}
	was, now := saidOf(t, m, topology, events), saidOf(t, taught, topology, events)
	for i := range max(len(was), len(now)) {
		if i >= len(now) || i >= len(was) || was[i] != now[i] {
			t.Errorf("%s: of %d and %d lines, line %d was\n%s\nand is\n%s", name, len(was), len(now), i, was[min(i, len(was)-1)], now[min(i, len(now)-1)])
			break
		}
	}
	return len(was)
}

// An accepted edge says nothing where its sign does not come: not one byte of what is told of
// a storm changes, whatever fault has it, on every shape, for storms of every class.
func TestAnEdgeChangesNothingWhereItsSignDoesNotCome(t *testing.T) {
	racetest.OneGoroutine(t)
	m := propagation.Default()
	weighed := 0
	for k, sh := range shapes {
		classes := stormgen.Classes()
		c := classes[k%len(classes)]
		st, _ := drawStorm(t, sh, stormgen.Options{Seed: uint64(k) + 5, Profile: c.Profile, Only: c.Of(stormgen.Tuned), Faults: 6})
		weighed += sameWithEdges(t, m, sh.Name, st.Topology, st.Events)
	}
	if weighed < 100 {
		t.Errorf("%d lines are too few to say so", weighed)
	}
}

// valves is a fault of which a site knows less than the records know of theirs: what comes
// before a server goes down is seen half of the time.
const valves = `
fault: cooling.valve
title: {en: Valve stuck, zh: 阀门卡死}
summary: {en: "{resource}", zh: "{resource}"}
kinds: [crac]
prior: -2
do: {action: ticket, target: self}
shows:
  - {sign: inlet_hot, at: "cools:server", p: 0.7, m: 0.7, soon: 10m, within: 60m, before: 2m}
effects:
  - {effect: server_down, at: "cools:server", p: 0.9, m: 0.9, delay: 120m, after: [inlet_hot]}
`

// The same where signs that do not come are asked for by name: what comes before a state that
// a fault brings about, and what would speak for another cause of the same part.
func TestAnEdgeAsksForNothingMore(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "valves.yaml"), []byte(valves), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := propagation.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, sh := range []shape{small, demo, four, unfed, hall} {
		w := sh.Build()
		for name, play := range map[string]func(s *scene){
			"servers go, and none was hot": func(s *scene) {
				for h := range 3 {
					s.dark(w, 700*float64(h), 0, h, true)
				}
			},
			"a GPU asks for a reset": func(s *scene) { s.at(0, "kmsg", w.ID("s0.1/gpu0"), "gpu.xid/154", critical) },
		} {
			s := &scene{}
			play(s)
			sameWithEdges(t, m, sh.Name+"/"+name, w.Topology, s.sorted().events)
		}
	}
}

// The sign of an accepted edge is a sign of the cause while the edge is there, and what no
// record knows without it; a sign that comes without the cause blames nobody.
func TestAnAcceptedEdgeTakesItsSign(t *testing.T) {
	topology := &schemas.Topology{Version: 1, Resources: []schemas.Resource{
		{ID: "dc", Kind: schemas.KindSite}, {ID: "r0", Kind: schemas.KindRack, Parent: "dc"}, {ID: "air", Kind: schemas.KindCRAC, Parent: "dc"},
	}, Links: []schemas.Link{{From: "air", To: "r0", Kind: schemas.LinkCools}}}
	for _, s := range []string{"s0", "s1", "s2", "s3"} {
		topology.Resources = append(topology.Resources, schemas.Resource{ID: s, Kind: schemas.KindServer, Parent: "r0"})
	}
	at := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	say := func(id, typ, on string, sec int) schemas.Event {
		when := at.Add(time.Duration(sec) * time.Second)
		return schemas.Event{
			ID: id, Type: typ, Resource: on, Severity: schemas.SeverityCritical, State: schemas.StateRaised, Time: when, Observed: when,
			Source: schemas.SourceRedfish,
		}
	}
	storm := []schemas.Event{
		say("e1", schemas.EventCRACFailure, "air", 0), say("d1", "damp.high", "s1", 200), say("d2", "damp.high", "s3", 260),
	}
	alone := []schemas.Event{say("d1", "damp.high", "s1", 200)}
	way, err := propagation.ParseWay("cools:server")
	if err != nil {
		t.Fatal(err)
	}
	m := propagation.Default()
	taught := m.With([]propagation.Edge{{
		Fault: "cooling.air_supply", Kinds: []string{schemas.KindCRAC, schemas.KindRack}, Type: "damp.high", Leak: 0.0005,
		Way: way, Shows: 0.7, Share: 0.6,
		Soon: 4 * time.Minute, Within: 20 * time.Minute, Before: time.Minute,
	}})
	last := func(m *propagation.Model, events []schemas.Event) map[string]schemas.Incident {
		e := NewEngine(m, topology, nil)
		for i := range events {
			e.Add(&events[i])
		}
		e.Advance(e.Now().Add(3 * time.Minute))
		e.Flush()
		out := map[string]schemas.Incident{}
		for _, i := range e.Drain() {
			out[i.ID] = i
		}
		for id, i := range out {
			if i.MergedInto != "" {
				delete(out, id)
			}
		}
		return out
	}
	for _, c := range []struct {
		name   string
		model  *propagation.Model
		events []schemas.Event
		want   map[string]int // events by fault
	}{
		{"by the records", m, storm, map[string]int{"cooling.air_supply": 1, schemas.FaultUnknown: 2}},
		{"as taught", taught, storm, map[string]int{"cooling.air_supply": 3}},
		{"the sign alone, by the records", m, alone, map[string]int{schemas.FaultUnknown: 1}},
		{"the sign alone, as taught", taught, alone, map[string]int{schemas.FaultUnknown: 1}},
	} {
		got := map[string]int{}
		for _, i := range last(c.model, c.events) {
			got[i.RootCause.Fault] += len(i.Events)
			if c.name == "as taught" {
				t.Log(i.Explanations["en"], i.Explanations["zh"])
			}
		}
		if len(got) != len(c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
			continue
		}
		for f, n := range c.want {
			if got[f] != n {
				t.Errorf("%s: %v, want %v", c.name, got, c.want)
			}
		}
	}
}

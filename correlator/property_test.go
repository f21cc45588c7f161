package correlator

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/schemas"
	"auspex/schemas/faults/propagation"
	"auspex/schemas/faults/sentence"
)

// mixed is a scene with several faults and noise.
func mixed() *scene {
	s := &scene{}
	feedLoss(s, 10, 1)
	s.at(12, "kmsg", "gpu-r02-04/gpu1", "gpu.xid/79", schemas.SeverityCritical)
	s.at(13, "kmsg", "gpu-r02-04/gpu1", "gpu.xid/154", schemas.SeverityError)
	for h := 1; h <= 8; h++ {
		s.at(14+float64(h)/10, "kmsg", fmt.Sprintf("gpu-r03-%02d/gpu0", h), "gpu.xid/31", schemas.SeverityWarning)
		s.at(15+float64(h)/10, "gnmi", fmt.Sprintf("gpu-r04-%02d/nic0", h), "port.down", schemas.SeverityError, schemas.StateRaised)
		s.at(15+float64(h)/10, "gnmi", fmt.Sprintf("leaf-r04/Ethernet%d", h*2-1), "port.down", schemas.SeverityError, schemas.StateRaised)
	}
	s.at(40, "collector", "leaf-r04", "switch.unreachable", schemas.SeverityCritical, schemas.StateRaised)
	s.at(60, "gnmi", "leaf-r02/Ethernet1", "port.down", schemas.SeverityError, schemas.StateRaised)
	s.at(62, "gnmi", "leaf-r02/Ethernet1", "port.down", schemas.SeverityInfo, schemas.StateCleared)
	for h := 1; h <= 8; h++ {
		for p := range 3 {
			s.at(900, "redfish", fmt.Sprintf("gpu-r01-%02d/psu%d", h, p), "psu.input_lost", schemas.SeverityInfo, schemas.StateCleared)
		}
	}
	return s
}

func withJob(t *schemas.Topology) *schemas.Topology {
	w := schemas.Workload{ID: "job-7", Start: t0.Add(-time.Hour)}
	for h := 1; h <= 8; h++ {
		w.Resources = append(w.Resources, fmt.Sprintf("gpu-r03-%02d/gpu0", h))
	}
	t.Workloads = append(t.Workloads, w)
	return t
}

func play(t *schemas.Topology, events []schemas.Event) []schemas.Incident {
	e := NewEngine(propagation.Default(), t, nil)
	for i := range events {
		e.Add(&events[i])
	}
	e.Advance(e.Now().Add(2 * time.Minute))
	e.Flush()
	return e.Drain()
}

func TestNamesAndTimesDoNotMatter(t *testing.T) {
	topology, s := withJob(fleet(4)), mixed()
	want := play(topology, s.events)
	if len(want) < 8 {
		t.Fatalf("only %d states: the scene tests nothing", len(want))
	}
	rng := rand.New(rand.NewPCG(1, 2))
	names := map[string]string{"": ""}
	rename := func(id string) string {
		if _, ok := names[id]; !ok {
			names[id] = fmt.Sprintf("x%08x", rng.Uint32())
		}
		return names[id]
	}
	const shift = 1234567*time.Second + 89*time.Millisecond
	other := &schemas.Topology{Version: 1}
	for _, r := range topology.Resources {
		r.ID, r.Parent = rename(r.ID), rename(r.Parent)
		other.Resources = append(other.Resources, r)
	}
	for _, l := range topology.Links {
		l.From, l.To = rename(l.From), rename(l.To)
		other.Links = append(other.Links, l)
	}
	for _, w := range topology.Workloads {
		w.ID, w.Start = rename(w.ID), w.Start.Add(shift)
		w.Resources = slices.Clone(w.Resources)
		for i := range w.Resources {
			w.Resources[i] = rename(w.Resources[i])
		}
		other.Workloads = append(other.Workloads, w)
	}
	events := slices.Clone(s.events)
	for i := range events {
		ev := &events[i]
		ev.ID, ev.Resource, ev.Time, ev.Observed = rename(ev.ID), rename(ev.Resource), ev.Time.Add(shift), ev.Observed.Add(shift)
	}
	got := play(other, events)
	type state struct {
		ID, Root, Fault string
		Confidence      float64
		At              time.Time
		Events          []string
	}
	plain := func(list []schemas.Incident, name func(string) string, by time.Duration) (out []state) {
		for _, inc := range list {
			st := state{inc.ID, name(inc.RootCause.Resource), inc.RootCause.Fault, inc.RootCause.Confidence, inc.At.Add(by), nil}
			for _, e := range inc.Events {
				st.Events = append(st.Events, name(e))
			}
			out = append(out, st)
		}
		return out
	}
	same := func(s string) string { return s }
	if d := cmp.Diff(plain(want, rename, shift), plain(got, same, 0)); d != "" {
		t.Error(d)
	}
}

func TestAnEventIsInOneIncidentAndSentencesAreKnown(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 7))
		s := mixed()
		for i := range s.events { // late and doubled
			if rng.IntN(5) == 0 {
				s.events = append(s.events, s.events[i])
			}
		}
		delay := make(map[string]float64, len(s.events))
		for i := range s.events {
			if rng.IntN(10) == 0 {
				delay[s.events[i].ID] = rng.Float64() * 120
			}
		}
		slices.SortStableFunc(s.events, func(a, b schemas.Event) int {
			x := a.Observed.Add(time.Duration(delay[a.ID] * float64(time.Second)))
			return x.Compare(b.Observed.Add(time.Duration(delay[b.ID] * float64(time.Second))))
		})
		all := play(withJob(fleet(4)), s.events)
		owner := map[string]string{}
		roots := map[string]bool{}
		for _, inc := range last(all) {
			roots[inc.RootCause.Resource] = true
			for _, id := range inc.Events {
				if o, ok := owner[id]; ok {
					t.Errorf("seed %d: event %s is in %s and %s", seed, id, o, inc.ID)
				}
				owner[id] = inc.ID
			}
			for _, say := range slices.Concat(inc.Sentences, inc.Against, inc.WouldChange, []schemas.Sentence{*inc.Summary, *inc.Step}) {
				for _, language := range sentence.Languages {
					if text := say.Text[language]; text == "" || strings.ContainsAny(text, "{}") {
						t.Errorf("seed %d: sentence %s with %v is %q", seed, say.ID, say.Args, text)
					}
				}
			}
		}
		for _, want := range []string{"pdu-r01-a", "gpu-r02-04/gpu1", "job-7", "leaf-r04"} {
			if !roots[want] {
				t.Errorf("seed %d: %s is not blamed; %v are", seed, want, roots)
			}
		}
	}
}

func TestRestoredEngineKeepsItsIncidentsAndSaysNothingTwice(t *testing.T) {
	s := mixed()
	cut := slices.IndexFunc(s.events, func(ev schemas.Event) bool { return ev.Type == "switch.unreachable" })
	topology := withJob(fleet(4))
	ids := func(first string) string { return "i-" + first }
	e := NewEngine(propagation.Default(), topology, ids)
	for i := range s.events[:cut] {
		e.Add(&s.events[i])
	}
	e.Flush()
	before := last(e.Drain())
	r := NewEngine(propagation.Default(), topology, ids)
	r.Restore(s.events[:cut], before)
	if again := r.Drain(); len(again) > 0 {
		t.Errorf("after a restart %d incidents are told again, first %+v", len(again), again[0].RootCause)
	}
	for i := cut; i < len(s.events); i++ {
		e.Add(&s.events[i])
		r.Add(&s.events[i])
	}
	for _, x := range []*Engine{e, r} {
		x.Advance(x.Now().Add(time.Minute))
		x.Flush()
	}
	name := func(list []schemas.Incident) (out []string) {
		for _, inc := range last(list) {
			out = append(out, inc.ID+" "+inc.RootCause.Resource+" "+strconv.Itoa(len(inc.Events)))
		}
		slices.Sort(out)
		return out
	}
	if d := cmp.Diff(name(e.Drain()), name(r.Drain())); d != "" {
		t.Errorf("with and without a restart: %s", d)
	}
}

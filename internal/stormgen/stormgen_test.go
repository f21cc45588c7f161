package stormgen

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"auspex/schemas"
)

func drawn(t *testing.T, shape string, o Options) *Storm {
	t.Helper()
	sh, ok := ShapeNamed(shape)
	if !ok {
		t.Fatalf("no shape %s", shape)
	}
	if sh.Racks*sh.Servers > 100 {
		sh = sh.Sized(64)
	}
	st, err := Draw(sh.Build().Topology, o)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func TestTheSameSeedDrawsTheSameStorm(t *testing.T) {
	for _, p := range []Profile{Easy, Overlap, Dirty, Strange} {
		o := Options{Seed: 7, Profile: p, Faults: 4}
		a, b := drawn(t, "pods", o), drawn(t, "pods", o)
		if !reflect.DeepEqual(a, b) {
			t.Errorf("%s: two draws differ", p)
		}
		o.Seed = 8
		if c := drawn(t, "pods", o); reflect.DeepEqual(a.Events, c.Events) {
			t.Errorf("%s: another seed draws the same", p)
		}
	}
}

// What a storm says must fit its inventory and its truth, whatever the site is like.
func TestAStormFitsItsInventoryAndItsTruth(t *testing.T) {
	for _, sh := range Shapes() {
		for i, p := range Profiles() {
			t.Run(sh.Name+"/"+string(p), func(t *testing.T) {
				t.Parallel()
				st := drawn(t, sh.Name, Options{Seed: uint64(i), Profile: p, Faults: 3})
				fits(t, st, p != Dirty)
			})
		}
	}
}

func fits(t *testing.T, st *Storm, whole bool) {
	t.Helper()
	known := map[string]bool{}
	for _, r := range st.Topology.Resources {
		known[r.ID] = true
	}
	for _, w := range st.Topology.Workloads {
		known[w.ID] = true
		for _, r := range w.Resources {
			if !known[r] {
				t.Fatalf("%s runs on %s, which is not there", w.ID, r)
			}
		}
		if !w.End.IsZero() && w.End.Before(w.Start) {
			t.Errorf("%s ends before it starts", w.ID)
		}
	}
	ids := map[string]bool{}
	last := time.Time{}
	for i := range st.Events {
		ev := &st.Events[i]
		if !known[ev.Resource] {
			t.Fatalf("%s of %q, which is not there", ev.Type, ev.Resource)
		}
		if !slices.Contains(schemas.EventTypes(), ev.Type) || ev.Severity.Rank() < 0 || ev.Time.IsZero() || ev.Source == "" || ev.ID == "" {
			t.Fatalf("malformed: %+v", *ev)
		}
		if ev.Observed.Before(last) {
			t.Fatalf("line %d is not in order of arrival", i)
		}
		last = ev.Observed
		if whole && ids[ev.ID] {
			t.Fatalf("%s comes twice", ev.ID)
		}
		ids[ev.ID] = true
	}
	owned := map[string]string{}
	for _, f := range st.Truth.Incidents {
		if len(f.Events) == 0 || len(f.Accept) == 0 || f.Accept[0] != (Blame{f.Resource, f.Fault}) {
			t.Errorf("%s: %d events, accepts %v", f.ID, len(f.Events), f.Accept)
		}
		for _, a := range f.Accept {
			if !known[a.Resource] {
				t.Errorf("%s accepts %q, which is not there", f.ID, a.Resource)
			}
		}
		for _, id := range f.Events {
			if !ids[id] || owned[id] != "" {
				t.Fatalf("event %s of %s: arrived %v, also of %q", id, f.ID, ids[id], owned[id])
			}
			owned[id] = f.ID
		}
		if f.SymptomArrival.Before(f.FirstArrival) || f.LastArrival.Before(f.SymptomArrival) || f.RootScored && f.Unknown {
			t.Errorf("%s: arrivals %v %v %v", f.ID, f.FirstArrival, f.SymptomArrival, f.LastArrival)
		}
	}
	tr := &st.Truth
	if tr.EventsTotal != len(ids) || tr.NoiseEvents != len(ids)-len(owned) || tr.Lines != len(st.Events) {
		t.Errorf("%d events in all, %d of noise, %d lines; counted %d, %d, %d", tr.EventsTotal, tr.NoiseEvents, tr.Lines,
			len(ids), len(ids)-len(owned), len(st.Events))
	}
	if tr.Profile == string(Quiet) && len(tr.Incidents) > 0 {
		t.Errorf("%d faults in a quiet storm", len(tr.Incidents))
	}
}

// Each half of the scenarios can be played on its half of the shapes, so that
// neither is tuned with what belongs to the other.
// Of holders with the same servers, such as a site and its only row, none is the wrong one.
func TestHoldersOfTheSameServersAreAccepted(t *testing.T) {
	for servers, want := range map[int][]string{64: {"dc", "row0"}, 256: {"dc"}} {
		sh, _ := ShapeNamed("fleet")
		st, err := Draw(sh.Sized(servers).Build().Topology, Options{Seed: 2, Only: []string{"storage is out"}, Faults: 1})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, a := range st.Truth.Incidents[0].Accept {
			got = append(got, a.Resource)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d servers: %q is accepted, want %q", servers, got, want)
		}
	}
}

func TestEachScenarioPlaysInItsHalf(t *testing.T) {
	for _, s := range Scenarios() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			told := 0
			for _, sh := range Shapes() {
				if sh.Held != s.Held {
					continue
				}
				if sh.Racks*sh.Servers > 100 {
					sh = sh.Sized(64)
				}
				st, err := Draw(sh.Build().Topology, Options{Seed: 3, Only: []string{s.Name}, Faults: 3})
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range st.Truth.Incidents {
					if f.Scenario != s.Name || f.Fault != s.Fault {
						t.Errorf("drew %s (%s)", f.Scenario, f.Fault)
					}
					told += len(f.Events)
				}
			}
			if told == 0 {
				t.Error("nothing was seen of it on any site of its half")
			}
		})
	}
	shapes, scenarios := 0, 0
	for _, sh := range Shapes() {
		if sh.Held {
			shapes++
		}
	}
	for _, s := range Scenarios() {
		if s.Held {
			scenarios++
		}
	}
	if 2*shapes < len(Shapes())-1 || 2*scenarios < len(Scenarios())-6 {
		t.Errorf("held out are %d of %d shapes and %d of %d scenarios", shapes, len(Shapes()), scenarios, len(Scenarios()))
	}
}

func TestEachClassOfMistakesHasScenariosInBothHalves(t *testing.T) {
	for _, c := range Classes() {
		for _, name := range c.only {
			if !slices.ContainsFunc(Scenarios(), func(s Scenario) bool { return s.Name == name }) {
				t.Errorf("%s: no scenario %q", c.Name, name)
			}
		}
		if c.only != nil && (len(c.Of(Tuned)) == 0 || len(c.Of(Held)) == 0) {
			t.Errorf("%s: %q tuned, %q held", c.Name, c.Of(Tuned), c.Of(Held))
		}
	}
}

// of counts the events of a type that faults made.
func of(st *Storm, typ string) (list []schemas.Event) {
	fault := map[string]bool{}
	for _, f := range st.Truth.Incidents {
		for _, id := range f.Events {
			fault[id] = true
		}
	}
	for _, ev := range st.Events {
		if ev.Type == typ && fault[ev.ID] && ev.State != schemas.StateCleared {
			list = append(list, ev)
		}
	}
	return list
}

// The consequences follow from what hangs on what, not from the fault's name.
func TestWhatFollowsFollowsFromThePlant(t *testing.T) {
	total := func(shape, scenario, typ string) (n int) {
		for seed := range uint64(6) {
			n += len(of(drawn(t, shape, Options{Seed: seed, Only: []string{scenario}, Faults: 3, Noise: 0.01}), typ))
		}
		return n
	}
	for _, c := range []struct {
		name, shape, scenario, typ string
		none                       bool
	}{
		{"one of two feeds darkens no server", "pods", "feed trips", schemas.EventHostUnreachable, true},
		{"one of two feeds is seen by the supplies on it", "pods", "feed trips", schemas.EventPSUInputLost, false},
		{"the only feed darkens the rack", "one-feed", "feed trips", schemas.EventHostUnreachable, false},
		{"nobody is left to report the only supply's input", "one-feed", "feed trips", schemas.EventPSUInputLost, true},
		{"a worn supply takes its server along", "pods", "feed trips, a worn supply follows", schemas.EventHostUnreachable, false},
		{"a management switch takes contact with the board controllers", "hall", "management switch dies", schemas.EventBMCUnreachable, false},
		{"a management switch takes no port of the fabric", "hall", "management switch dies", schemas.EventPortDown, true},
		{"a leaf takes no board controller", "hall", "leaf dies", schemas.EventBMCUnreachable, true},
		{"coolant warms no inlet", "liquid", "air unit fails", schemas.EventTempInletHigh, true},
		{"coolant lets GPUs throttle", "liquid", "air unit fails", schemas.EventGPUThermal, false},
		{"air that is gone for long shuts servers down", "pods", "air unit fails, servers shut down hot", schemas.EventHostUnreachable, false},
		{"an NVSwitch of a rack reaches GPUs of many servers", "rack-scale", "NVSwitch fails", schemas.EventGPUXID, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if n := total(c.shape, c.scenario, c.typ); (n == 0) != c.none {
				t.Errorf("%d %s", n, c.typ)
			}
		})
	}
}

// A server that is down says nothing in band until it starts.
func TestADownServerIsSilent(t *testing.T) {
	for seed := range uint64(8) {
		st := drawn(t, "pods", Options{Seed: seed, Only: []string{"server panics", "feed trips, a worn supply follows"}, Faults: 6, Noise: 0.01})
		for _, f := range st.Truth.Incidents {
			if f.Scenario != "server panics" {
				continue
			}
			boot := time.Time{}
			for _, ev := range of(st, schemas.EventHostReboot) {
				if ev.Resource == f.Resource && ev.Time.After(f.Start) && (boot.IsZero() || ev.Time.Before(boot)) {
					boot = ev.Time
				}
			}
			for _, ev := range st.Events {
				inBand := ev.Source == schemas.SourceKmsg || ev.Source == schemas.SourceDCGM || ev.Source == schemas.SourceAgent
				if inBand && strings.HasPrefix(ev.Resource+"/", f.Resource+"/") && ev.Time.After(f.Start.Add(time.Second)) && ev.Time.Before(boot) {
					t.Errorf("seed %d: %s says %s %s while it is down", seed, ev.Resource, ev.Type, ev.Code)
				}
			}
		}
	}
}

func TestPerturbations(t *testing.T) {
	base := Options{Seed: 5, Profile: Big, Faults: 8}
	clean := drawn(t, "pods", base)
	bad := func(p Perturb) *Storm {
		o := base
		o.Perturb = p
		st := drawn(t, "pods", o)
		fits(t, st, p.Twice == 0)
		return st
	}
	byID := map[string]schemas.Event{}
	for _, ev := range clean.Events {
		byID[ev.ID] = ev
	}
	n := float64(len(clean.Events))
	if got := float64(len(bad(Perturb{Lost: 0.3}).Events)) / n; math.Abs(got-0.7) > 0.05 {
		t.Errorf("%.2f of the events are left of which 30 %% are lost", got)
	}
	if st := bad(Perturb{Twice: 0.1}); float64(st.Truth.Lines)/float64(st.Truth.EventsTotal) < 1.05 {
		t.Errorf("%d lines of %d events", st.Truth.Lines, st.Truth.EventsTotal)
	}
	late := 0.0
	for _, ev := range bad(Perturb{Late: 0.2}).Events {
		d := ev.Observed.Sub(byID[ev.ID].Observed).Seconds()
		if d < 0 || d > 120.001 {
			t.Fatalf("%s is %g s late", ev.ID, d)
		}
		late = max(late, d)
	}
	if late < 60 {
		t.Errorf("the latest is %g s late", late)
	}
	off, old := 0, 0
	for seed := range uint64(4) {
		o := base
		o.Seed, o.Perturb = seed, Perturb{Clocks: 1}
		for _, ev := range drawn(t, "pods", o).Events {
			if d := ev.Observed.Sub(ev.Time); d < -time.Second || d > time.Hour {
				off++
			}
			if ev.Time.Year() == 1970 {
				old++
			}
		}
	}
	if off == 0 || old == 0 {
		t.Errorf("%d times are off, %d of them at 1970", off, old)
	}
	sources := func(st *Storm) map[string]bool {
		m := map[string]bool{}
		for _, ev := range st.Events {
			m[ev.Source] = true
		}
		return m
	}
	if len(sources(bad(Perturb{Blind: true}))) > len(sources(clean)) {
		t.Error("no source is missing")
	}
	links := float64(len(clean.Topology.Links))
	if left := float64(len(bad(Perturb{Links: 0.02}).Topology.Links)); left >= links || left < 0.97*links {
		t.Errorf("%g of %g links are left", left, links)
	}
	if len(clean.Topology.Links) != len(drawn(t, "pods", base).Topology.Links) {
		t.Error("disturbing a storm changed the inventory of another")
	}
}

func TestParsePerturb(t *testing.T) {
	if p, err := ParsePerturb("lost, late"); err != nil || p != (Perturb{Lost: 0.3, Late: 0.2}) {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := ParsePerturb("rain"); err == nil {
		t.Error("rain is a perturbation")
	}
}

// An inventory may be wrong in any way; a storm is drawn over what is left of it.
func TestInventoriesThatAreWrong(t *testing.T) {
	server := schemas.Resource{ID: "s", Kind: schemas.KindServer}
	many := &schemas.Topology{Resources: []schemas.Resource{{ID: "r", Kind: schemas.KindRack}}}
	for i := range 3000 {
		many.Resources = append(many.Resources, schemas.Resource{ID: fmt.Sprint("s", i), Kind: schemas.KindServer, Parent: "r"})
	}
	for name, top := range map[string]*schemas.Topology{
		"a lone server": {Resources: []schemas.Resource{server}},
		"circles": {
			Resources: []schemas.Resource{
				{ID: "a", Kind: schemas.KindPDU, Parent: "b"},
				{ID: "b", Kind: schemas.KindPDU, Parent: "a"},
				{ID: "s", Kind: schemas.KindServer, Parent: "a"},
				{ID: "p", Kind: schemas.KindPSU, Parent: "s"},
				{ID: "u", Kind: schemas.KindCRAC, Parent: "u"},
			},
			Links: []schemas.Link{
				{From: "a", To: "b", Kind: schemas.LinkPowers},
				{From: "b", To: "a", Kind: schemas.LinkPowers},
				{From: "a", To: "p", Kind: schemas.LinkPowers},
				{From: "p", To: "s", Kind: schemas.LinkPowers},
				{From: "s", To: "a", Kind: schemas.LinkPowers},
				{From: "u", To: "s", Kind: schemas.LinkCools},
				{From: "u", To: "u", Kind: schemas.LinkCools},
				{From: "s", To: "s", Kind: schemas.LinkNetwork},
				{From: "x", To: "y", Kind: schemas.LinkNetwork},
			},
		},
		"the same id twice":     {Resources: []schemas.Resource{server, server}},
		"a rack full of hosts":  many,
		"kinds nobody knows of": {Resources: []schemas.Resource{server, {ID: "q", Kind: "quantum", Parent: "s"}}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, p := range Profiles() {
				if _, err := Draw(top, Options{Seed: 1, Profile: p, Faults: 3}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	if _, err := Draw(&schemas.Topology{}, Options{}); err == nil {
		t.Error("a storm was drawn over nothing")
	}
}

func TestWrongOptionsAreNamed(t *testing.T) {
	top := &schemas.Topology{Resources: []schemas.Resource{{ID: "s", Kind: schemas.KindServer}}}
	for _, o := range []Options{{Profile: "loud"}, {Half: "third"}, {Only: []string{"rain"}}} {
		if _, err := Draw(top, o); err == nil {
			t.Errorf("%+v is drawn", o)
		}
	}
}

// A fault by itself has its own events and no others, in their order and doubled where they were.
func TestAFaultAloneHasItsOwnEvents(t *testing.T) {
	for _, shape := range []string{"tiny", "hall", "rails"} {
		st := drawn(t, shape, Options{Seed: 3, Profile: Dirty, Faults: 6})
		var n, twice int
		for one := range st.Alone() {
			f := &one.Truth.Incidents[0]
			if len(one.Truth.Incidents) != 1 || f.ID != st.Truth.Incidents[n].ID || f.RepeatOf != "" || one.Truth.NoiseEvents != 0 {
				t.Fatalf("%s: %+v", shape, one.Truth)
			}
			n++
			var ids []string
			for i := range one.Events {
				if !slices.Contains(ids, one.Events[i].ID) {
					ids = append(ids, one.Events[i].ID)
				} else {
					twice++
				}
				if i > 0 && one.Events[i].Observed.Before(one.Events[i-1].Observed) {
					t.Errorf("%s: %s came before what it follows", shape, one.Events[i].ID)
				}
			}
			if !slices.Equal(ids, f.Events) {
				t.Errorf("%s: %d events of %d", shape, len(ids), len(f.Events))
			}
		}
		if n != len(st.Truth.Incidents) || twice == 0 {
			t.Errorf("%s: %d faults of %d, %d events twice", shape, n, len(st.Truth.Incidents), twice)
		}
	}
}

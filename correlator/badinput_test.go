package correlator

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"auspex/internal/racetest"
	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

// replayed plays events into an engine and returns it with the last states.
func replayed(topology *schemas.Topology, events []schemas.Event) (*Engine, []schemas.Incident) {
	e := NewEngine(propagation.Default(), topology, nil)
	for i := range events {
		e.Add(&events[i])
	}
	e.Advance(e.Now().Add(2 * time.Minute))
	e.Flush()
	return e, last(e.Drain())
}

// steps is the work that an engine did, in units that no load of the machine changes.
func (e *Engine) steps() uint64 { return e.stats.Steps + e.stats.Weighed }

func TestWhatNobodyKnowsIsReportedAsUnknownWhereItIs(t *testing.T) {
	s := &scene{}
	s.at(0, "redfish", "no-such-thing", "flux.capacitor/1.21", critical, up)
	_, got := replayed(&schemas.Topology{Version: 1}, s.events)
	if len(got) != 1 || got[0].RootCause.Resource != "no-such-thing" || got[0].RootCause.Fault != "unknown" {
		t.Errorf("told %v", causes(got))
	}
}

// More kinds of resources than can be told apart are no kind that a fault has.
func TestAnInventoryOfManyKindsIsRead(t *testing.T) {
	w := small.Build()
	for i := range 600 {
		w.Topology.Resources = append(w.Topology.Resources, schemas.Resource{ID: fmt.Sprint("x", i), Kind: fmt.Sprint("kind", i), Parent: "r0"})
	}
	s := &scene{}
	s.unfeed(w, 0, 0, 0)
	_, got := replayed(w.Topology, s.sorted().events)
	if !slices.Equal(causes(got), []string{w.ID("pdu0.0") + " power.feed_loss"}) {
		t.Errorf("got\n%s", verdict(got))
	}
	e := NewEngine(propagation.Default(), w.Topology, nil)
	if n := len(e.g.kinds.name); n != otherKinds+1 {
		t.Errorf("%d kinds", n)
	}
	if n := e.g.count("kind599", e.g.ensure("x599")); n < 100 {
		t.Errorf("%d parts are of one of them", n)
	}
	if other := e.g.kinds.of("another"); e.g.kinds.name[other] != "" || e.g.kind[e.g.ensure("x599")] != other {
		t.Errorf("%q", e.g.kinds.name[other])
	}
}

func TestAnInventoryInCirclesIsRead(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, n := range []int{1, 2, 3, 70, 500} {
		w := &schemas.Topology{Version: 1}
		for i := range n { // parts of one another, and feeding one another
			w.Resources = append(w.Resources, schemas.Resource{ID: fmt.Sprint("x", i), Kind: schemas.KindPDU, Parent: fmt.Sprint("x", (i+1)%n)})
			for j := range min(n, 20) {
				w.Links = append(w.Links, schemas.Link{From: fmt.Sprint("x", i), To: fmt.Sprint("x", (i+j)%n), Kind: schemas.LinkPowers})
			}
		}
		w.Resources = append(w.Resources, schemas.Resource{ID: "host", Kind: schemas.KindServer, Parent: "x0"})
		w.Links = append(w.Links, schemas.Link{From: "x0", To: "host", Kind: schemas.LinkPowers})
		s := &scene{}
		s.at(0, "kmsg", "host", "host.panic", critical)
		s.at(20, "collector", "host", "host.unreachable", failed, up)
		s.at(21, "collector", "host", "agent.unreachable", failed, up)
		e, got := replayed(w, s.events)
		if len(got) != 1 || got[0].RootCause.Resource != "host" || got[0].RootCause.Fault != "host.crash" {
			t.Errorf("circle of %d: told %v", n, causes(got))
		}
		if e.steps() > 200_000 {
			t.Errorf("circle of %d: %d steps", n, e.steps())
		}
	}
}

func TestServersWithoutAnyLinkCrashOneByOne(t *testing.T) {
	w, s := &schemas.Topology{Version: 1}, &scene{}
	for h := range 50 {
		id := fmt.Sprint("h", h)
		w.Resources = append(w.Resources, schemas.Resource{ID: id, Kind: schemas.KindServer})
		s.at(float64(300*h), "kmsg", id, "host.panic", critical)
		s.at(float64(300*h+20), "collector", id, "host.unreachable", failed, up)
	}
	if _, got := replayed(w, s.events); len(got) != 50 {
		t.Errorf("50 servers make %d incidents", len(got))
	}
}

// One rack holds all, so that its suspects reach everything.
func TestOneRackOfTenThousandServersIsDecidedInBoundedWork(t *testing.T) {
	if testing.Short() {
		t.Skip("a large inventory")
	}
	work := func(servers int) float64 {
		sh := shape{Name: "one rack", Racks: 1, Servers: servers, Feeds: 2, PSUs: 2, GPUs: 1, NICs: 1, Leaves: 1, Row: 1}
		w := sh.Build()
		s := &scene{}
		for k := range 300 {
			h := k * 37 % servers
			switch at := float64(3 * k); k % 4 {
			case 0:
				s.at(at, "kmsg", w.ID("s0.%d/gpu0", h), "gpu.xid/79", critical)
			case 1:
				s.at(at, "ipmi", w.Host(0, h), "temp.inlet_high/Inlet Temp", warned, up)
				s.at(at+2, "ipmi", w.Host(0, h), "temp.inlet_high/Inlet Temp", schemas.SeverityInfo, down)
			default:
				s.at(at, "gnmi", w.PortOf(0, h, 0), "port.down", failed, up)
				s.at(at+2, "gnmi", w.PortOf(0, h, 0), "port.down", schemas.SeverityInfo, down)
			}
		}
		e, _ := replayed(w.Topology, s.events)
		return float64(e.steps()) / float64(len(s.events))
	}
	few, many := work(500), work(10_000)
	t.Logf("steps an event: %.0f with 500 servers, %.0f with 10,000", few, many)
	if many > 3*few+1000 {
		t.Errorf("an event costs %.0f steps with 500 servers and %.0f with 10,000", few, many)
	}
}

func TestAStreamThatRunsBackwardsEndsWithTheSameCauses(t *testing.T) {
	s := &scene{}
	gpuLost(s, 0, "gpu-r02-04/gpu1")
	feedLoss(s, 40, 1)
	_, want := replayed(fleet(4), s.events)
	back := slices.Clone(s.events)
	slices.Reverse(back)
	_, got := replayed(fleet(4), back)
	a, b := causes(want), causes(got)
	slices.Sort(a)
	slices.Sort(b)
	if !slices.Equal(a, b) {
		t.Errorf("forwards %v, backwards %v", a, b)
	}
}

func TestAMegabyteOfAttributesIsNotKept(t *testing.T) {
	s := &scene{}
	s.at(0, "kmsg", "gpu-r01-01/gpu0", "gpu.xid/79", critical)
	s.events[0].SetAttr("dump", strings.Repeat("x", 1<<20))
	_, got := replayed(fleet(1), s.events)
	if len(got) != 1 || got[0].RootCause.Resource != "gpu-r01-01/gpu0" {
		t.Fatalf("told %v", causes(got))
	}
	for _, say := range got[0].Sentences {
		for k, v := range say.Args {
			if len(fmt.Sprint(v)) > 1<<10 {
				t.Errorf("sentence %s has %d bytes of %s", say.ID, len(fmt.Sprint(v)), k)
			}
		}
	}
}

// Days of noise, with names and codes that are made up anew each time.
func TestWhatIsRememberedOfNoiseIsBounded(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	e := NewEngine(propagation.Default(), fleet(4), nil)
	const n, every = 20_000, 30 * time.Second // a week
	most, names := 0, 0
	for i := range n {
		at := t0.Add(time.Duration(i) * every)
		ev := schemas.Event{ID: fmt.Sprint("n", i), Time: at, Observed: at, Source: "collector", Severity: warned}
		switch i % 4 {
		case 0:
			ev.Resource, ev.Type, ev.Code = fmt.Sprint("pod-", i), "pod.restart", strconv.Itoa(i)
		case 1:
			ev.Resource, ev.Type = fmt.Sprintf("gpu-r%02d-%02d", 1+rng.IntN(4), 1+rng.IntN(8)), "host.oom"
		case 2:
			ev.Resource, ev.Type, ev.Code = fmt.Sprintf("leaf-r%02d/Ethernet%d", 1+rng.IntN(4), 1+rng.IntN(16)), "port.errors", "crc"
		default:
			ev.Resource, ev.Type, ev.Code = fmt.Sprint("job-", i), schemas.EventWorkloadFailed, "1"
		}
		e.Add(&ev)
		e.Drain()
		most = max(most, len(e.signs.all)+e.spots.n)
		names = max(names, len(e.g.name))
	}
	known := len(fleet(4).Resources)
	t.Logf("at most %d signs and suspects, %d names of which the inventory has %d, %d unknown kinds", most, names, known, len(e.unknown))
	if most > 6_000 || names > 3*known+4*maxUnknown || len(e.unknown) > 3*maxUnknown || len(e.lanes) > 5*maxUnknown {
		t.Errorf("at most %d signs and suspects, %d names, %d kinds, %d lanes", most, names, len(e.unknown), len(e.lanes))
	}
	// And it still knows a fault when it comes.
	s := &scene{n: n}
	s.at(n*every.Seconds()+60, "kmsg", "gpu-r01-01/gpu0", "gpu.xid/79", critical)
	e.Add(&s.events[0])
	e.Flush()
	if got := causes(e.Drain()); !slices.Contains(got, "gpu-r01-01/gpu0 gpu.fallen_off_bus") {
		t.Errorf("told %v", got)
	}
}

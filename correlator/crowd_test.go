package correlator

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

// links breaks cables of servers of other racks than the leaves that go with them.
func links(s *scene, sec, apart float64, n int) {
	for i := range n {
		at := sec + apart*float64(i)
		s.at(at, "gnmi", fmt.Sprintf("leaf-r%02d/Ethernet%d", i+1, i+1), "port.down", schemas.SeverityCritical, "raised")
		s.at(at+40, "gnmi", fmt.Sprintf("leaf-r%02d/Ethernet%d", i+1, i+1), "port.errors/crc", schemas.SeverityWarning)
	}
}

// Cables break one by one. Two at once are a pair, what takes four of four
// racks is something else; what comes hours apart is sure.
func TestACrowdOfLikeFaultsIsDoubted(t *testing.T) {
	sure := func(apart float64, n int) (least float64) {
		s := &scene{}
		links(s, 10, apart, n)
		_, got := replayed(fleet(4), s.sorted().events)
		if len(got) != n {
			t.Fatalf("%d cables: published %v", n, causes(got))
		}
		least = 1
		for i := range got {
			least = min(least, got[i].RootCause.Confidence)
		}
		return least
	}
	one := sure(0, 1)
	if one < 0.5 {
		t.Fatalf("one cable is sure by %.2f", one)
	}
	if least := sure(5, 2); least < one-0.05 {
		t.Errorf("of two at once one is sure by %.2f only, alone by %.2f", least, one)
	}
	s := &scene{}
	links(s, 10, 5, 4)
	_, got := replayed(fleet(4), s.sorted().events)
	if !slices.Equal(causes(got), []string{"dc1 unknown"}) || got[0].RootCause.Confidence < 0.9 || len(got[0].Events) != 8 {
		t.Errorf("of four at once\n%s", verdict(got))
	}
	if least := sure(1200, 4); least < one-0.05 {
		t.Errorf("of four that come apart one is sure by %.2f only, alone by %.2f", least, one)
	}
}

func TestAlikeFallsWithTheNumberAndRisesWithTheFleet(t *testing.T) {
	for _, together := range []float64{0, 0.1} {
		last := 1.0
		for m := range 12 {
			p := alike(m, 0.01, together)
			if p > last+1e-12 || p < 0 || p > 1 {
				t.Errorf("with %d others %.4f, with one less %.4f", m, p, last)
			}
			last = p
		}
	}
	small, large := alike(1, 0.001, 0), alike(1, 3, 0)
	if small > 0.2 || large < 0.95 {
		t.Errorf("one other: %.2f where it is rare, %.2f where three are expected by chance", small, large)
	}
	if alone, pair := alike(1, 0.001, 0), alike(1, 0.001, 0.1); pair < 2*alone {
		t.Errorf("%.2f, and %.2f where one failure in ten takes the equal along", alone, pair)
	}
}

// TestAPartThatFailsAgainIsNoCrowd: two GPUs fail, and one of them twice, as its repair did
// not help. Each of them is as sure as alone.
func TestAPartThatFailsAgainIsNoCrowd(t *testing.T) {
	e := NewEngine(propagation.Default(), fleet(4), nil)
	e.SetCloseAfter(CloseAfter{Cleared: 2 * time.Second, Repaired: 2 * time.Second, Silent: time.Hour})
	s := &scene{}
	for k := range 4 {
		s.at(10+60*float64(k), "kmsg", "gpu-r01-01/gpu2", "gpu.xid/79", schemas.SeverityCritical)
	}
	s.at(11, "kmsg", "gpu-r03-04/gpu2", "gpu.xid/79", schemas.SeverityCritical)
	last := map[string]schemas.Incident{}
	for _, ev := range s.sorted().events {
		e.Add(&ev)
		e.Advance(e.Now().Add(2 * time.Second))
		for _, i := range e.Drain() {
			last[i.ID] = i
			if i.RootCause.Resource == "gpu-r01-01/gpu2" && i.Closed == nil {
				e.Repaired(i.ID, e.Now())
			}
		}
		e.Advance(e.Now().Add(10 * time.Second))
	}
	for _, i := range e.Drain() {
		last[i.ID] = i
	}
	if len(last) < 4 {
		t.Fatalf("%d incidents", len(last))
	}
	for _, i := range last {
		if i.RootCause.Confidence < 0.5 {
			t.Errorf("%s %v", i.ID, i.RootCause)
		}
	}
}

package correlator

import (
	"fmt"
	"math"
	"testing"
	"time"

	"auspex/internal/racetest"
	"auspex/schemas"
)

// TestEndsThatAreLost: a lone cable that lost its link is told in any case, and less surely where raises are heard to
// be lost, since its all-clear may be: unless it is raised again, or the other end says so as well.
func TestEndsThatAreLost(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, sh := range []shape{small, demo, hall, four, lean} {
		w := sh.Build()
		told := func(lost bool, more func(s *scene)) float64 {
			s := &scene{}
			for i := range 16 { // what means nothing, and ends; of half of it only the end is heard
				at, of := 70*float64(i), w.ID("s0.%d/fan%d", i%4, i/4)
				if !lost || i%2 > 0 {
					s.at(at, "ipmi", of, "fan.slow/FAN", warned, up)
				}
				s.at(at+20, "ipmi", of, "fan.slow/FAN", schemas.SeverityInfo, down)
			}
			s.at(1500, "gnmi", w.PortOf(0, 1, 0), "port.down", failed, up)
			more(s)
			for _, inc := range final(w.Topology, s.sorted(), 10*time.Minute) {
				if inc.RootCause.Fault == "network.link_failure" {
					return inc.RootCause.Confidence
				}
			}
			return 0
		}
		nothing := func(*scene) {}
		again := func(s *scene) { s.at(1700, "gnmi", w.PortOf(0, 1, 0), "port.down", failed, up) }
		both := func(s *scene) { s.at(1501, "agent", w.ID("s0.1/nic0"), "port.down", failed, up) }
		t.Run(w.Name, func(t *testing.T) {
			sure, unsure := told(false, nothing), told(true, nothing)
			if sure < 0.4 || unsure == 0 || unsure > sure/2 {
				t.Errorf("%.2f where all ends are heard, %.2f where half are not", sure, unsure)
			}
			if x, y := told(true, again), told(false, again); math.Abs(x-y) > 0.03 { // but that silence says less
				t.Errorf("raised again: %.2f, and %.2f where all ends are heard", x, y)
			}
			if x := told(true, both); x < 2*unsure {
				t.Errorf("both ends: %.2f, one: %.2f", x, unsure)
			}
		})
	}
}

// TestEndsAreCounted: an all-clear is without what it ends where that was never heard, not where it is late, too mild
// to be a sign, or was said twice.
func TestEndsAreCounted(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	event := func(sec int, of string, state string) *schemas.Event {
		x := at.Add(time.Duration(sec) * time.Second)
		return &schemas.Event{Resource: of, Source: "gnmi", Type: "port.down", State: state, Time: x, Observed: x}
	}
	for _, c := range []struct {
		name           string
		events         []*schemas.Event
		heard, widowed int
	}{
		{"one", []*schemas.Event{event(0, "a", up), event(9, "a", down)}, 1, 0},
		{"the raise is lost", []*schemas.Event{event(9, "a", down)}, 1, 1},
		{"of another", []*schemas.Event{event(0, "b", up), event(9, "a", down)}, 1, 1},
		{"the raise is late", []*schemas.Event{event(9, "a", down), event(0, "a", up)}, 1, 0},
		{"said twice", []*schemas.Event{event(0, "a", up), event(9, "a", down), event(20, "a", down)}, 1, 0},
		{"lost, and then not", []*schemas.Event{event(9, "a", down), event(20, "a", up), event(30, "a", down)}, 2, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var n ends
			for _, ev := range c.events {
				n.note(ev, ev.Observed)
			}
			if got, want := fmt.Sprint(n.heard, n.widowed), fmt.Sprint(c.heard, c.widowed); got != want {
				t.Errorf("heard and widowed %s, want %s", got, want)
			}
		})
	}
}

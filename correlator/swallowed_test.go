package correlator

import (
	"slices"
	"strings"
	"testing"
	"time"

	"auspex/internal/racetest"
)

// A card that does not take what it receives has its switch pause. Where that switch goes beside it, the pauses are
// the card's still.
func TestPausesAreOfTheCardThatAsksForThem(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, w := range []*site{small.Build(), demo.Build(), hall.Build(), lean.Build(), oneFeed.Build()} {
		t.Run(w.Name, func(t *testing.T) {
			it := &scenery{w, &scene{}}
			for i := range 4 {
				it.at(25*float64(i), "rule", w.PortOf(0, 1, 0), "port.pfc_storm", warned, up)
			}
			it.at(18, "kmsg", w.ID("s0.1/nic0"), "nic.error/pcie-stall", failed)
			it.leafGone(28, 0)
			got := final(w.Topology, it.sorted(), 10*time.Minute)
			want := []string{w.ID("s0.1/nic0") + " network.nic_failure", w.ID("leaf0.0") + " network.switch_failure"}
			if !sameSet(causes(got), want) {
				t.Fatalf("want %q\n%s", want, verdict(got))
			}
			for _, inc := range got {
				if inc.RootCause.Resource == w.ID("s0.1/nic0") && len(inc.Events) < 5 {
					t.Errorf("the pauses went elsewhere\n%s", verdict(got))
				}
			}
		})
	}
}

// Servers that go dark take the ports with them that they hang on, in another rack too: what feeds the switches there
// is not to blame for what its own rack shows nothing of.
func TestPortsOfADarkRackAreNotOfTheRackOfTheirSwitch(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, sh := range []shape{demo, hall, lean, unfed} {
		sh.Servers, sh.Pod, sh.Feeds, sh.PSUs, sh.Leaves, sh.NICs = 8, 2, 2, 2, 4, 4
		w := sh.Build()
		t.Run(w.Name, func(t *testing.T) {
			s := &scene{}
			for h := range w.Servers {
				s.at(0.1*float64(h), "redfish", w.ID("s1.%d/psu0", h), "psu.input_lost", failed, up)
			}
			for h := range w.Servers {
				for k := range w.NICs {
					s.at(44+0.02*float64(h), "gnmi", w.PortOf(1, h, k), "port.down", failed, up)
				}
				if h%5 > 0 {
					s.at(58+0.5*float64(h*7%w.Servers), "collector", w.Host(1, h), "agent.unreachable", failed, up)
				}
				if h%3 < 2 {
					s.at(62+0.5*float64(h*5%w.Servers), "collector", w.Host(1, h), "host.unreachable", critical, up)
				}
				if h%2 == 0 {
					s.at(70+0.5*float64(h), "collector", w.ID("s1.%d/bmc", h), "bmc.unreachable", failed, up)
				}
				back := 1300 + 17*float64(h*7%w.Servers)
				for k := range w.NICs {
					s.at(back+0.1*float64(k), "gnmi", w.PortOf(1, h, k), "port.down", failed, down)
				}
				if h%3 > 0 {
					s.at(back+20, "kmsg", w.Host(1, h), "host.reboot/unclean", warned)
				}
				if h%5 > 0 {
					s.at(back+30, "collector", w.Host(1, h), "agent.unreachable", failed, down)
				}
				if h%3 < 2 {
					s.at(back+33, "collector", w.Host(1, h), "host.unreachable", critical, down)
				}
			}
			got := final(w.Topology, s.sorted(), 10*time.Minute)
			own := []string{w.ID("pdu1.0") + " power.feed_loss", w.ID("pdu1.1") + " power.feed_loss"}
			if bad := slices.ContainsFunc(causes(got), func(c string) bool { return !slices.Contains(own, c) }); bad || len(got) == 0 {
				t.Errorf("want of %s\n%s", strings.Join(own, ", "), verdict(got))
			}
		})
	}
}

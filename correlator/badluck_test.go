package correlator

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"auspex/internal/racetest"
	"auspex/schemas"
)

// part adds what play says to the scene and to the truth: these events belong
// to this cause, or to none where it is empty.
func (s *scene) part(cause string, play func(s *scene)) {
	from := len(s.events)
	play(s)
	if s.truth == nil {
		s.truth = map[string]string{}
	}
	for _, ev := range s.events[from:] {
		s.truth[ev.ID] = cause
	}
}

// arrive puts the events in the order of their observation plus a delay.
func (s *scene) arrive(delay func(ev *schemas.Event) time.Duration) {
	at := make(map[string]time.Time, len(s.events))
	for i := range s.events {
		at[s.events[i].ID] = s.events[i].Observed.Add(delay(&s.events[i]))
	}
	slices.SortStableFunc(s.events, func(a, b schemas.Event) int { return at[a.ID].Compare(at[b.ID]) })
}

func inOrder(*schemas.Event) time.Duration { return 0 }

// blackout is a feed that drops and takes servers of the rack with it.
func blackout(s *scene, sec float64, rack, servers int) {
	feedLoss(s, sec, rack)
	for h := 1; h <= servers; h++ {
		host := fmt.Sprintf("gpu-r%02d-%02d", rack, h)
		for k := range 2 {
			s.at(sec+1, "gnmi", fmt.Sprintf("leaf-r%02d/Ethernet%d", rack, (h-1)*2+1+k), "port.down", schemas.SeverityError, schemas.StateRaised)
		}
		s.at(sec+15, "collector", host, "agent.unreachable", schemas.SeverityError, schemas.StateRaised)
		s.at(sec+25, "collector", host, "host.unreachable", schemas.SeverityError, schemas.StateRaised)
	}
}

func gpuLost(s *scene, sec float64, gpu string) {
	s.at(sec, "kmsg", gpu, "gpu.xid/79", schemas.SeverityCritical)
	s.at(sec+0.2, "kmsg", gpu, "gpu.xid/154", schemas.SeverityError)
	s.at(sec+4, "dcgm", gpu, "gpu.missing/GPU_IS_LOST", schemas.SeverityCritical, schemas.StateRaised)
}

func leafDown(s *scene, sec float64, rack int) {
	for h := 1; h <= 8; h++ {
		for k := range 2 {
			s.at(
				sec+0.1*float64(h), "gnmi", fmt.Sprintf("gpu-r%02d-%02d/nic%d", rack, h, k), "port.down", schemas.SeverityError, schemas.StateRaised,
			)
		}
	}
	s.at(sec+30, "collector", fmt.Sprintf("leaf-r%02d", rack), "switch.unreachable", schemas.SeverityError, schemas.StateRaised)
}

func without(t *schemas.Topology, ids ...string) *schemas.Topology {
	t.Links = slices.DeleteFunc(t.Links, func(l schemas.Link) bool {
		return slices.Contains(ids, l.To) && l.Kind != schemas.LinkNVLink
	})
	return t
}

// What goes wrong on the way must not change what is told: each scene names the
// cause of every event.
func TestBadLuckOnTheWay(t *testing.T) {
	racetest.OneGoroutine(t)
	const feed, gpu, leaf = "pdu-r01-a power.feed_loss", "gpu-r02-04/gpu1 gpu.fallen_off_bus", "leaf-r03 network.switch_failure"
	storm := func(s *scene) {
		s.part(feed, func(s *scene) { blackout(s, 0, 1, 3) })
		s.part(gpu, func(s *scene) { gpuLost(s, 5, "gpu-r02-04/gpu1") })
		s.part(leaf, func(s *scene) { leafDown(s, 8, 3) })
	}
	cases := []struct {
		name     string
		topology *schemas.Topology
		play     func(s *scene)
	}{
		{"in order", nil, func(s *scene) { storm(s); s.arrive(inOrder) }},
		{"board controllers two minutes late", nil, func(s *scene) {
			storm(s)
			s.arrive(func(ev *schemas.Event) time.Duration {
				if ev.Source == "redfish" {
					return 2 * time.Minute
				}
				return 0
			})
		}},
		{"switches two minutes late", nil, func(s *scene) {
			storm(s)
			s.arrive(func(ev *schemas.Event) time.Duration {
				if ev.Source == "gnmi" {
					return 2 * time.Minute
				}
				return 0
			})
		}},
		{"every event late by itself", nil, func(s *scene) {
			storm(s)
			rng := rand.New(rand.NewPCG(3, 4))
			s.arrive(func(*schemas.Event) time.Duration { return time.Duration(rng.Int64N(int64(2 * time.Minute))) })
		}},
		{"delivered again, and later once more", nil, func(s *scene) {
			storm(s)
			s.arrive(inOrder)
			once := slices.Clone(s.events)
			s.events = nil
			for _, ev := range once {
				s.events = append(s.events, ev, ev)
			}
			s.events = append(s.events, once...)
		}},
		{"told by a second source", nil, func(s *scene) {
			storm(s)
			for _, ev := range slices.Clone(s.events) {
				if ev.Type == "psu.input_lost" || ev.Type == "port.down" {
					cause := s.truth[ev.ID]
					s.part(cause, func(s *scene) {
						s.at(ev.Observed.Sub(t0).Seconds()+9, "ipmi", ev.Resource, ev.Type, ev.Severity, ev.State)
					})
				}
			}
			s.arrive(inOrder)
		}},
		{"the clock of a server ahead", nil, func(s *scene) { storm(s); s.clock("gpu-r01-02", 30*time.Second); s.arrive(inOrder) }},
		{"the clock of a server behind", nil, func(s *scene) { storm(s); s.clock("gpu-r01-02", -30*time.Second); s.arrive(inOrder) }},
		{"the clock of a switch ahead", nil, func(s *scene) { storm(s); s.clock("leaf-r01", 30*time.Second); s.arrive(inOrder) }},
		{"the clock of a switch behind", nil, func(s *scene) { storm(s); s.clock("leaf-r01", -30*time.Second); s.arrive(inOrder) }},
		{
			"no time but that of a clock ahead", nil,
			func(s *scene) { storm(s); s.clock("gpu-r01-02", 30*time.Second); s.arrive(inOrder); s.blind() },
		},
		{
			"no time but that of a clock behind", nil,
			func(s *scene) { storm(s); s.clock("gpu-r01-02", -30*time.Second); s.arrive(inOrder); s.blind() },
		},
		{"two parts of one server within a minute", nil, func(s *scene) {
			s.part("gpu-r01-01/gpu3 gpu.fallen_off_bus", func(s *scene) { gpuLost(s, 0, "gpu-r01-01/gpu3") })
			s.part("gpu-r01-01/psu2 power.psu_failure", func(s *scene) {
				s.at(20, "ipmi", "gpu-r01-01/psu2", "psu.failure/PS3", schemas.SeverityError, schemas.StateRaised)
			})
			s.part("leaf-r01/Ethernet1 network.link_failure", func(s *scene) {
				s.at(40, "gnmi", "leaf-r01/Ethernet1", "port.down", schemas.SeverityError, schemas.StateRaised)
				s.at(40.2, "gnmi", "gpu-r01-01/nic0", "port.down", schemas.SeverityError, schemas.StateRaised)
			})
			s.arrive(inOrder)
		}},
		{"a feed and a server of its rack that crashes on its own a moment before", nil, func(s *scene) {
			s.part("gpu-r01-08 host.crash", func(s *scene) {
				s.at(0, "kmsg", "gpu-r01-08", "host.panic", schemas.SeverityCritical)
				s.at(12, "collector", "gpu-r01-08", "agent.unreachable", schemas.SeverityError, schemas.StateRaised)
				s.at(22, "collector", "gpu-r01-08", "host.unreachable", schemas.SeverityError, schemas.StateRaised)
			})
			s.part(feed, func(s *scene) { feedLoss(s, 45, 1) })
			s.arrive(inOrder)
		}},
		{"two GPUs of one server", nil, func(s *scene) {
			s.part("gpu-r01-01/gpu3 gpu.fallen_off_bus", func(s *scene) { gpuLost(s, 0, "gpu-r01-01/gpu3") })
			s.part("gpu-r01-01/gpu5 gpu.memory_uncorrectable", func(s *scene) {
				s.at(30, "kmsg", "gpu-r01-01/gpu5", "gpu.xid/48", schemas.SeverityCritical)
				s.at(31, "kmsg", "gpu-r01-01/gpu5", "gpu.xid/63", schemas.SeverityWarning)
			})
			s.arrive(inOrder)
		}},
		{"a GPU that goes with its server when the feed drops", nil, func(s *scene) {
			s.part(feed, func(s *scene) { blackout(s, 0, 1, 3); gpuLost(s, 0.5, "gpu-r01-02/gpu4") })
			s.arrive(inOrder)
		}},
		{"a GPU that goes with its server and is not there when the server is", nil, func(s *scene) {
			s.part(feed, func(s *scene) {
				blackout(s, 0, 1, 3)
				s.at(300, "collector", "gpu-r01-02", "host.unreachable", schemas.SeverityInfo, schemas.StateCleared)
			})
			s.part("gpu-r01-02/gpu4 gpu.fallen_off_bus", func(s *scene) {
				gpuLost(s, 0.5, "gpu-r01-02/gpu4")
				s.at(310, "kmsg", "gpu-r01-02/gpu4", "gpu.xid/79", schemas.SeverityCritical)
			})
			s.arrive(inOrder)
		}},
		{"a GPU whose server lives on the other feed", nil, func(s *scene) {
			s.part(feed, func(s *scene) { blackout(s, 0, 1, 3) })
			s.part("gpu-r01-07/gpu4 gpu.fallen_off_bus", func(s *scene) { gpuLost(s, 20, "gpu-r01-07/gpu4") })
			s.arrive(inOrder)
		}},
		{"a GPU in another rack while a feed is down", nil, func(s *scene) {
			s.part(feed, func(s *scene) { blackout(s, 0, 1, 3) })
			s.part(gpu, func(s *scene) { gpuLost(s, 0.5, "gpu-r02-04/gpu1") })
			s.arrive(inOrder)
		}},
		{"a GPU that the inventory does not know", nil, func(s *scene) {
			s.part(feed, func(s *scene) { blackout(s, 0, 1, 3) })
			s.part("new-17/gpu0 gpu.fallen_off_bus", func(s *scene) { gpuLost(s, 5, "new-17/gpu0") })
			s.arrive(inOrder)
		}},
		{"a server that the inventory does not know", nil, func(s *scene) {
			s.part("new-17 host.crash", func(s *scene) {
				s.at(0, "kmsg", "new-17", "host.panic", schemas.SeverityCritical)
				s.at(12, "collector", "new-17", "agent.unreachable", schemas.SeverityError, schemas.StateRaised)
				s.at(22, "collector", "new-17", "host.unreachable", schemas.SeverityError, schemas.StateRaised)
			})
		}},
		{"a server of which nothing is known but that two things are critical, minutes apart", nil, func(s *scene) {
			s.part("new-17 unknown", func(s *scene) {
				s.at(0, "redfish", "new-17", "bmc.event/ACME0001", schemas.SeverityCritical)
				s.at(300, "redfish", "new-17", "bmc.event/ACME0002", schemas.SeverityCritical)
			})
		}},
		{"a board controller that the inventory puts into no server", &schemas.Topology{
			Version: 1, Resources: []schemas.Resource{{ID: "bmc-17", Kind: schemas.KindBMC}},
		}, func(s *scene) {
			s.part("bmc-17 unknown", func(s *scene) {
				s.at(0, "ipmi", "bmc-17", "bmc.sel/20/01", schemas.SeverityCritical, schemas.StateRaised)
			})
		}},
		{"an inventory without the link of a power supply", without(fleet(4), "gpu-r01-05/psu1"), func(s *scene) { storm(s); s.arrive(inOrder) }},
		{"an inventory without the link of a network card", without(fleet(4), "gpu-r03-05/nic1"), func(s *scene) { storm(s); s.arrive(inOrder) }},
		{
			"an inventory without the uplinks of a switch", without(fleet(4), "spine-01/Ethernet3", "spine-02/Ethernet3"),
			func(s *scene) { storm(s); s.arrive(inOrder) },
		},
		{"a server that does not come back and nothing else", nil, func(s *scene) {
			s.part("gpu-r01-01 unknown", func(s *scene) {
				s.at(0, "collector", "gpu-r01-01", "host.unreachable", schemas.SeverityError, schemas.StateRaised)
			})
		}},
		{"a board controller that refuses our password is not broken", nil, func(s *scene) {
			s.part("gpu-r01-01 unknown", func(s *scene) {
				s.at(0, "collector", "gpu-r01-01/bmc", "access.refused/redfish", schemas.SeverityError, schemas.StateRaised)
			})
		}},
		{"a switch that refuses our password is not broken", nil, func(s *scene) {
			s.part("leaf-r01 unknown", func(s *scene) {
				s.at(0, "collector", "leaf-r01", "access.refused/gnmi", schemas.SeverityError, schemas.StateRaised)
			})
		}},
		{"a server that comes back after a minute", nil, func(s *scene) {
			s.part("", func(s *scene) {
				s.at(0, "collector", "gpu-r01-01", "host.unreachable", schemas.SeverityError, schemas.StateRaised)
				s.at(60, "collector", "gpu-r01-01", "host.unreachable", schemas.SeverityInfo, schemas.StateCleared)
			})
		}},
		{"a memory module that warned before its server went, whose own word is lost", nil, func(s *scene) {
			s.part("gpu-r01-02/dimm1 host.memory_uncorrectable", func(s *scene) {
				s.at(0, "rule", "gpu-r01-02/dimm1", "dimm.ecc_ce/DIMM_B2", schemas.SeverityWarning)
				s.at(360, "gnmi", "leaf-r01/Ethernet3", "port.down", schemas.SeverityError, schemas.StateRaised)
				s.at(360, "gnmi", "leaf-r01/Ethernet4", "port.down", schemas.SeverityError, schemas.StateRaised)
				s.at(370, "collector", "gpu-r01-02", "agent.unreachable", schemas.SeverityError, schemas.StateRaised)
				s.at(380, "collector", "gpu-r01-02", "host.unreachable", schemas.SeverityError, schemas.StateRaised)
			})
		}},
		{"a memory module that warns and nothing else", nil, func(s *scene) {
			s.part("", func(s *scene) {
				s.at(0, "rule", "gpu-r01-02/dimm1", "dimm.ecc_ce/DIMM_B2", schemas.SeverityWarning)
				s.at(600, "rule", "gpu-r01-02/dimm1", "dimm.ecc_ce/DIMM_B2", schemas.SeverityWarning)
			})
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.topology == nil {
				c.topology = fleet(4)
			}
			c.topology.Resources = append(
				c.topology.Resources, schemas.Resource{ID: "gpu-r01-02/dimm1", Kind: schemas.KindDIMM, Parent: "gpu-r01-02"},
			)
			s := &scene{}
			c.play(s)
			told := map[string]string{}
			var causes []string
			for _, inc := range final(c.topology, s, 20*time.Minute) {
				cause := inc.RootCause.Resource + " " + inc.RootCause.Fault
				causes = append(causes, cause)
				for _, id := range inc.Events {
					told[id] = cause
				}
			}
			var want, wrong []string
			for _, ev := range s.events {
				cause := s.truth[ev.ID]
				if cause != "" && !slices.Contains(want, cause) {
					want = append(want, cause)
				}
				if told[ev.ID] != cause {
					wrong = append(wrong, fmt.Sprintf("%s %s/%s of %s is in %q", ev.Resource, ev.Type, ev.Code, cause, told[ev.ID]))
				}
			}
			if !sameSet(causes, want) {
				t.Errorf("causes\n got %q\nwant %q", causes, want)
			}
			if len(wrong) > 0 {
				t.Errorf("%d of %d events are in the wrong place:\n%s", len(wrong), len(s.events), strings.Join(wrong, "\n"))
			}
		})
	}
}

// clock sets the clock of a server or switch wrong by d.
func (s *scene) clock(device string, d time.Duration) {
	for i := range s.events {
		if r := s.events[i].Resource; r == device || strings.HasPrefix(r, device+"/") {
			s.events[i].Time = s.events[i].Time.Add(d)
		}
	}
}

// blind takes away when the events were observed, but not the order.
func (s *scene) blind() {
	for i := range s.events {
		s.events[i].Observed = time.Time{}
	}
}

package correlator

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"auspex/internal/racetest"
	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

const (
	warned   = schemas.SeverityWarning
	failed   = schemas.SeverityError
	critical = schemas.SeverityCritical
	up       = schemas.StateRaised
	down     = schemas.StateCleared
)

// dark plays a server that goes out: its ports, then contact with it.
func (s *scene) dark(w *site, sec float64, r, h int, bmc bool) {
	for k := range w.NICs {
		if w.Leaves > 0 {
			s.at(sec+0.5, "gnmi", w.PortOf(r, h, k), "port.down", failed, up)
		}
	}
	s.at(sec+16, "collector", w.Host(r, h), "agent.unreachable", failed, up)
	s.at(sec+22, "collector", w.Host(r, h), "host.unreachable", failed, up)
	if bmc {
		s.at(sec+28, "collector", w.ID("s%d.%d/bmc", r, h), "bmc.unreachable", failed, up)
	}
}

// unfeed plays what the supplies of a rack say when one feed goes.
func (s *scene) unfeed(w *site, sec float64, r, feed int) {
	for h := range w.Servers {
		for k := feed; k < w.PSUs; k += w.Feeds {
			s.at(sec+0.1*float64(h), "redfish", w.ID("s%d.%d/psu%d", r, h, k), "psu.input_lost", failed, up)
		}
	}
	for l := range w.Leaves {
		s.at(sec+0.4, "gnmi", w.ID("leaf%d.%d/psu%d", r, l, feed), "switch.psu", warned, up)
	}
}

// blackrack plays a rack without any power: its servers, controllers and
// switches, and the ports of the spines that led there.
func (s *scene) blackrack(w *site, sec float64, r int) {
	for h := range w.Servers {
		s.at(sec+14+0.3*float64(h), "collector", w.Host(r, h), "agent.unreachable", failed, up)
		s.at(sec+20+0.3*float64(h), "collector", w.Host(r, h), "host.unreachable", failed, up)
		s.at(sec+24+0.5*float64(h), "collector", w.ID("s%d.%d/bmc", r, h), "bmc.unreachable", failed, up)
	}
	for l := range w.Leaves {
		for k := range w.Spines {
			s.at(sec+0.3, "gnmi", w.ID("spine%d/d%d.%d", k, r, l), "port.down", failed, up)
		}
		s.at(sec+26, "collector", w.ID("leaf%d.%d", r, l), "switch.unreachable", critical, up)
	}
	if w.Mgmt > 0 {
		s.at(sec+27, "collector", w.ID("mgmt%d", r), "switch.unreachable", critical, up)
	}
}

// sorted puts a scene in order of time.
func (s *scene) sorted() *scene {
	s.arrive(inOrder)
	return s
}

// Whichever feeds go, each is a cause once something speaks for it, and silence
// of what has no power is nothing.
func TestAllFeedsOfARack(t *testing.T) {
	for _, w := range []*site{small.Build(), demo.Build(), hall.Build(), four.Build()} {
		for _, gap := range []float64{0.5, 2, 45} {
			t.Run(fmt.Sprintf("%s/%gs apart", w.Name, gap), func(t *testing.T) {
				s := &scene{}
				var want []string
				for f := range w.Feeds {
					sec := gap * float64(f)
					want = append(want, w.ID("pdu0.%d", f)+" power.feed_loss")
					if f+1 < w.Feeds {
						s.unfeed(w, sec, 0, f)
					} else { // nobody is left to say so
						s.blackrack(w, sec, 0)
					}
				}
				got := final(w.Topology, s.sorted(), 5*time.Minute)
				if !sameSet(causes(got), want) {
					t.Errorf("got\n%swant %q", verdict(got), want)
				}
				for _, inc := range got {
					if strings.Contains(inc.Explanation, "reports a loss") {
						t.Errorf("silence of dark witnesses is told as evidence: %s", inc.Explanation)
					}
				}
			})
		}
	}
}

// What hangs on a row's panel, or on what feeds the panels, is one fault, however many
// suppliers are between; that of one rack is its own.
func TestWhatFeedsOtherSuppliers(t *testing.T) {
	for _, sh := range []shape{demo, hall, four, shapeNamed("rails")} {
		sh.Panels, sh.Pod, sh.Row = true, 1, max(2, min(sh.Row, sh.Racks/2))
		w := sh.Build()
		if sh.Racks >= 2*sh.Row { // the panels of two rows on one transformer
			w.Topology.Resources = append(w.Topology.Resources, schemas.Resource{ID: "main", Kind: schemas.KindPDU})
			for row := range 2 {
				w.Topology.Links = append(w.Topology.Links, schemas.Link{Kind: schemas.LinkPowers, From: "main", To: w.ID("panel%d.0", row)})
			}
		}
		for want, racks := range map[string]int{"pdu0.0": 1, "panel0.0": sh.Row, "main": 2 * sh.Row} {
			if racks > sh.Racks {
				continue
			}
			t.Run(w.Name+"/"+want, func(t *testing.T) {
				s := &scene{}
				for i := range racks { // controllers are asked in an order of their own
					s.unfeed(w, 0.5*float64(i), i%2*(racks/2)+i/2, 0)
				}
				if want != "main" {
					want = w.ID("%s", want)
				}
				got := final(w.Topology, s.sorted(), 5*time.Minute)
				if !slices.Equal(causes(got), []string{want + " power.feed_loss"}) {
					t.Errorf("got\n%s", verdict(got))
				}
			})
		}
	}
}

func TestOneFeedOfARack(t *testing.T) {
	for _, w := range []*site{small.Build(), demo.Build(), hall.Build(), four.Build(), oneFeed.Build()} {
		cases := map[string]func(s *scene){
			"everything else goes on": func(*scene) {},
			"one server has no other supply left": func(s *scene) {
				s.dark(w, 1, 0, 2, true)
			},
			"two servers go, hours after one lost a supply": func(s *scene) {
				s.dark(w, 1, 0, 2, false)
				s.dark(w, 1, 0, 3, false)
			},
			"a server goes five minutes later, when the other feed is full": func(s *scene) {
				s.dark(w, 300, 0, 1, false)
			},
		}
		if w.Feeds == 1 {
			cases = map[string]func(s *scene){"all servers go": func(s *scene) {
				s.events = nil
				s.blackrack(w, 0, 0)
			}}
		}
		for name, play := range cases {
			t.Run(w.Name+"/"+name, func(t *testing.T) {
				s := &scene{}
				s.unfeed(w, 0, 0, 0)
				play(s)
				got := final(w.Topology, s.sorted(), 5*time.Minute)
				if want := []string{w.ID("pdu0.0") + " power.feed_loss"}; !sameSet(causes(got), want) || len(got[0].Events) != len(s.events) {
					t.Errorf("of %d events\n%swant %q", len(s.events), verdict(got), want)
				}
			})
		}
	}
}

// A management switch that goes with its feed takes contact along, not servers:
// the other feed is alive, as the ports of the servers and the leaf show.
func TestContactThatGoesWithItsSwitchIsNoOtherFeed(t *testing.T) {
	for _, w := range []*site{hall.Build(), four.Build(), lean.Build()} {
		t.Run(w.Name, func(t *testing.T) {
			s := &scene{}
			s.at(0, "snmp", w.ID("pdu0.0"), "pdu.breaker", critical, up)
			s.at(0.5, "gnmi", w.ID("leaf0.0/psu0"), "switch.psu", warned, up)
			for h := range w.Servers {
				s.at(14+float64(h), "collector", w.Host(0, h), "agent.unreachable", failed, up)
				s.at(20+float64(h), "collector", w.Host(0, h), "host.unreachable", failed, up)
				s.at(24+float64(h), "collector", w.ID("s0.%d/bmc", h), "bmc.unreachable", failed, up)
			}
			s.at(33, "collector", w.ID("mgmt0"), "switch.unreachable", critical, up)
			got := final(w.Topology, s.sorted(), 5*time.Minute)
			if want := []string{w.ID("pdu0.0") + " power.feed_loss"}; !sameSet(causes(got), want) {
				t.Errorf("got\n%swant %q", verdict(got), want)
			}
		})
	}
}

// A switch that goes takes contact with what hangs on it along.
func TestContactThatGoesWithItsSwitch(t *testing.T) {
	for _, w := range []*site{hall.Build(), four.Build()} {
		t.Run(w.Name, func(t *testing.T) {
			s := &scene{}
			for h := range w.Servers {
				s.at(14+float64(h), "collector", w.Host(0, h), "agent.unreachable", failed, up)
				s.at(20+float64(h), "collector", w.Host(0, h), "host.unreachable", failed, up)
				s.at(24+float64(h), "collector", w.ID("s0.%d/bmc", h), "bmc.unreachable", failed, up)
			}
			s.at(33, "collector", w.ID("mgmt0"), "switch.unreachable", critical, up)
			got := final(w.Topology, s.sorted(), 5*time.Minute)
			if want := []string{w.ID("mgmt0") + " network.switch_failure"}; !sameSet(causes(got), want) {
				t.Errorf("got\n%swant %q", verdict(got), want)
			}
		})
	}
}

func (s *scene) hotAir(w *site, sec float64, unit int, alarm bool) {
	if alarm {
		s.at(sec, "snmp", w.ID("air%d", unit), "crac.failure", critical, up)
	}
	i := 0
	for r := unit * w.Row; r < min((unit+1)*w.Row, w.Racks); r++ {
		for h := range w.Servers {
			if i++; i%7 == 3 { // cold corner
				continue
			}
			at := sec + 120 + float64(i*37%600)
			s.at(at, "ipmi", w.Host(r, h), "temp.inlet_high/Inlet Temp", warned, up)
			if i%5 == 0 && w.GPUs > 0 {
				s.at(at+120, "dcgm", w.ID("s%d.%d/gpu%d", r, h, i%w.GPUs), "gpu.thermal/HW_THERMAL", warned, up)
			}
		}
	}
}

func TestServersThatGoWithTheirAir(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, w := range []*site{small.Build(), demo.Build(), hall.Build(), four.Build(), unfed.Build(), oneFeed.Build()} {
		for name, play := range map[string]func(s *scene){
			"with an alarm": func(s *scene) { s.hotAir(w, 0, 0, true) },
			"without an alarm": func(s *scene) {
				s.hotAir(w, 0, 0, false)
			},
			"one server shuts down hot": func(s *scene) {
				s.hotAir(w, 0, 0, true)
				s.dark(w, 1500, 0, 2, false)
			},
			"one server shuts down, forty minutes later and says why": func(s *scene) {
				s.hotAir(w, 0, 0, false)
				s.at(2400, "ipmi", w.ID("s0.2/cpu1"), "bmc.sel/07/01", critical, up)
				s.dark(w, 2412, 0, 2, false)
			},
			"half of its ports speak long before a server is missed": func(s *scene) {
				s.hotAir(w, 0, 0, true)
				s.dark(w, 1100, 0, 1, false)
				for k := 0; k < w.NICs && w.Leaves > 0; k += 2 {
					s.at(1500, "gnmi", w.PortOf(0, 2, k), "port.down", failed, up)
				}
				s.at(1546, "collector", w.Host(0, 2), "agent.unreachable", failed, up)
				s.at(1566, "collector", w.Host(0, 2), "host.unreachable", failed, up)
			},
			"three servers shut down, one after the other": func(s *scene) {
				s.hotAir(w, 0, 0, true)
				s.dark(w, 1100, 0, 1, false)
				s.dark(w, 1600, 0, 2, false)
				s.dark(w, 2500, 0, 4, false)
			},
		} {
			t.Run(w.Name+"/"+name, func(t *testing.T) {
				if w.Servers < 5 && strings.HasPrefix(name, "three") {
					t.Skip("too few servers")
				}
				s := &scene{}
				play(s)
				got := final(w.Topology, s.sorted(), 5*time.Minute)
				// One rack on one unit of its own: either of the two may be named.
				want := []string{w.ID("air0") + " cooling.air_supply"}
				if w.Racks == 1 && len(got) == 1 && got[0].RootCause.Resource == w.ID("r0") {
					want = []string{w.ID("r0") + " cooling.air_supply"}
				}
				if !sameSet(causes(got), want) || len(got[0].Events) != len(s.events) {
					t.Errorf("of %d events\n%swant %q", len(s.events), verdict(got), want)
				}
			})
		}
	}
}

// A crash that says itself what it is, is one of its own, also in hot air and
// beside a feed that is lost.
func TestACrashOfItsOwnBesideAnOutage(t *testing.T) {
	for _, w := range []*site{small.Build(), demo.Build(), hall.Build()} {
		for name, play := range map[string]func(s *scene){
			w.ID("air0") + " cooling.air_supply": func(s *scene) { s.hotAir(w, 0, 0, true) },
			w.ID("pdu0.0") + " power.feed_loss":  func(s *scene) { s.unfeed(w, 500, 0, 0) },
		} {
			t.Run(w.Name+"/"+name, func(t *testing.T) {
				s := &scene{}
				play(s)
				s.at(900, "kmsg", w.Host(0, 3), "host.panic", critical)
				s.dark(w, 901, 0, 3, false)
				got := final(w.Topology, s.sorted(), 5*time.Minute)
				if want := []string{name, w.Host(0, 3) + " host.crash"}; !sameSet(causes(got), want) {
					t.Errorf("got\n%swant %q", verdict(got), want)
				}
			})
		}
	}
}

// A GPU that is hot and held back for a while is an incident; once is nothing.
func TestWeakSignsThatRepeat(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, w := range []*site{small.Build(), hall.Build(), unfed.Build()} {
		gpu, fan, dimm, port := w.ID("s0.1/gpu3"), w.ID("s0.1/fan2"), w.ID("s0.1/dimm5"), w.PortOf(0, 1, 0)
		for _, c := range []struct {
			name string
			play func(s *scene)
			want []string
		}{
			{"a GPU is hot once", func(s *scene) { s.at(0, "dcgm", gpu, "gpu.thermal/HW_THERMAL", warned) }, nil},
			{"a GPU is held back for a moment", func(s *scene) {
				s.at(0, "dcgm", gpu, "gpu.clocks_throttled/HW_THERMAL_SLOWDOWN", warned, up)
				s.at(20, "dcgm", gpu, "gpu.clocks_throttled/HW_THERMAL_SLOWDOWN", schemas.SeverityInfo, down)
			}, nil},
			{"the same read twice", func(s *scene) {
				s.at(0, "dcgm", gpu, "gpu.thermal/HW_THERMAL", warned, up)
				s.at(5, "nvml", gpu, "gpu.thermal/HW_THERMAL", warned, up)
				s.at(50, "dcgm", gpu, "gpu.thermal/HW_THERMAL", schemas.SeverityInfo, down)
			}, nil},
			{"a GPU is hot and held back", func(s *scene) {
				s.at(0, "dcgm", gpu, "gpu.thermal/HW_THERMAL", warned, up)
				s.at(70, "dcgm", gpu, "gpu.clocks_throttled/HW_THERMAL_SLOWDOWN", warned)
			}, []string{gpu + " gpu.overheating"}},
			{"a GPU is hot for a quarter of an hour", func(s *scene) {
				s.at(0, "dcgm", gpu, "gpu.thermal/HW_THERMAL", warned, up)
				s.at(900, "dcgm", gpu, "gpu.thermal/HW_THERMAL", schemas.SeverityInfo, down)
			}, []string{gpu + " gpu.overheating"}},
			{"a GPU is held back again and again", func(s *scene) {
				for i := range 4 {
					s.at(200*float64(i), "dcgm", gpu, "gpu.clocks_throttled/HW_THERMAL_SLOWDOWN", warned)
				}
			}, []string{gpu + " gpu.overheating"}},
			{"a GPU is hot once a day", func(s *scene) {
				for i := range 4 {
					s.at(86400*float64(i), "dcgm", gpu, "gpu.thermal/HW_THERMAL", warned)
				}
			}, nil},
			{"a fan is slow for a moment", func(s *scene) {
				s.at(0, "ipmi", fan, "fan.slow/FAN3", warned, up)
				s.at(30, "ipmi", fan, "fan.slow/FAN3", schemas.SeverityInfo, down)
			}, nil},
			{"a fan is slow again and again", func(s *scene) {
				for i := range 6 {
					s.at(150*float64(i), "ipmi", fan, "fan.slow/FAN3", warned, up)
					s.at(150*float64(i)+60, "ipmi", fan, "fan.slow/FAN3", schemas.SeverityInfo, down)
				}
			}, []string{fan + " cooling.fan_failure"}},
			{"a fan stays slow", func(s *scene) {
				s.at(0, "ipmi", fan, "fan.slow/FAN3", warned, up)
				s.at(1200, "ipmi", fan, "fan.slow/FAN3", schemas.SeverityInfo, down)
			}, []string{fan + " cooling.fan_failure"}},
			{"a memory module corrects an error", func(s *scene) { s.at(0, "rule", dimm, "dimm.ecc_ce", warned) }, nil},
			{"a memory module corrects errors all the time", func(s *scene) {
				for i := range 8 {
					s.at(120*float64(i), "rule", dimm, "dimm.ecc_ce", warned)
				}
			}, []string{dimm + " unknown"}},
			{"a port counts errors twice", func(s *scene) {
				s.at(0, "rule", port, "port.errors", warned)
				s.at(600, "rule", port, "port.errors", warned)
			}, nil},
			{"a port counts errors all the time", func(s *scene) {
				for i := range 12 {
					s.at(100*float64(i), "rule", port, "port.errors", warned)
				}
			}, []string{port + " unknown"}},
			{"a network card is hot for half an hour", func(s *scene) {
				s.at(0, "ipmi", w.Host(0, 1), "temp.high/NIC Temp", warned, up)
				s.at(1800, "ipmi", w.Host(0, 1), "temp.high/NIC Temp", schemas.SeverityInfo, down)
			}, nil},
		} {
			t.Run(w.Name+"/"+c.name, func(t *testing.T) {
				s := &scene{}
				c.play(s)
				got := final(w.Topology, s.sorted(), 2*time.Minute)
				if !sameSet(causes(got), c.want) {
					t.Errorf("got\n%swant %q", verdict(got), c.want)
				}
			})
		}
	}
}

// What a part's silent equals are, and how many, says nothing about it.
func TestSilentSiblingsDoNotMatter(t *testing.T) {
	racetest.OneGoroutine(t)
	type played struct {
		name string
		play func(w *site, s *scene)
	}
	var all []played
	add := func(name string, play func(w *site, s *scene)) { all = append(all, played{name, play}) }
	add("a crash without a word", func(w *site, s *scene) { s.dark(w, 0, 0, 1, false) })
	add("a crash with a panic", func(w *site, s *scene) {
		s.at(0, "kmsg", w.Host(0, 1), "host.panic", critical)
		s.dark(w, 1, 0, 1, false)
	})
	add("contact lost for good", func(w *site, s *scene) {
		s.at(0, "collector", w.Host(0, 1), "host.unreachable", failed, up)
		s.at(900, "collector", w.Host(0, 2), "agent.unreachable", failed, up)
		s.at(905, "collector", w.Host(0, 2), "agent.unreachable", schemas.SeverityInfo, down)
	})
	add("a memory error that names no module", func(w *site, s *scene) {
		s.at(0, "kmsg", w.Host(0, 1), "host.mce/memory", failed)
		s.dark(w, 5, 0, 1, false)
	})
	add("a machine check that names no processor", func(w *site, s *scene) {
		s.at(0, "kmsg", w.Host(0, 1), "host.mce/cpu", failed)
		s.dark(w, 5, 0, 1, false)
	})
	add("a supply failed, which is not said", func(w *site, s *scene) {
		s.at(0, "ipmi", w.Host(0, 1), "psu.failure", failed, up)
	})
	add("a file system that fails", func(w *site, s *scene) {
		s.at(0, "kmsg", w.Host(0, 1), "host.fs_error", failed)
		s.at(60, "kmsg", w.Host(0, 1), "host.fs_error", failed)
	})
	add("a crash after a module corrected an error", func(w *site, s *scene) {
		if w.DIMMs > 0 {
			s.at(0, "rule", w.ID("s0.1/dimm0"), "dimm.ecc_ce", warned)
		}
		s.dark(w, 1500, 0, 1, false)
	})
	add("a GPU off the bus", func(w *site, s *scene) { gpuLost(s, 0, w.ID("s0.1/gpu0")) })
	add("NVLink of one GPU", func(w *site, s *scene) {
		s.at(0, "kmsg", w.ID("s0.1/gpu0"), "gpu.xid/74", critical)
	})
	add("a fan failed", func(w *site, s *scene) {
		if w.Fans > 0 {
			s.at(0, "ipmi", w.ID("s0.1/fan0"), "fan.failure", failed, up)
		}
	})
	add("fans lost redundancy and a GPU is hot", func(w *site, s *scene) {
		s.at(0, "ipmi", w.Host(0, 1), "bmc.sel/04/01", warned, up)
		s.at(60, "dcgm", w.ID("s0.1/gpu0"), "gpu.thermal", warned, up)
		s.at(160, "dcgm", w.ID("s0.1/gpu0"), "gpu.clocks_throttled/HW_THERMAL_SLOWDOWN", warned, up)
	})
	base := shape{
		Racks: 2, Servers: 4, Feeds: 2, PSUs: 4, DIMMs: 8, Disks: 2, Fans: 4, GPUs: 4, NVSwitches: 2, NICs: 2, Leaves: 1, Spines: 1, Row: 2,
	}
	grown := map[string]func(w *shape, n int){
		"DIMMs":      func(w *shape, n int) { w.DIMMs *= n },
		"disks":      func(w *shape, n int) { w.Disks *= n },
		"fans":       func(w *shape, n int) { w.Fans *= n },
		"supplies":   func(w *shape, n int) { w.PSUs *= n },
		"NVSwitches": func(w *shape, n int) { w.NVSwitches *= n },
		"GPUs":       func(w *shape, n int) { w.GPUs = max(1, w.GPUs*n) }, // one speaks
	}
	tell := func(w *site, p played) []schemas.Incident {
		s := &scene{}
		p.play(w, s)
		return final(w.Topology, s.sorted(), 15*time.Minute)
	}
	for _, p := range all {
		want := tell(base.Build(), p)
		for part, grow := range grown {
			for _, n := range []int{0, 2, 3} {
				named := func(what string) bool { return strings.Contains(p.name, what) }
				if n == 0 &&
					(part == "supplies" && named("supply") || part == "fans" && named("fan") || part == "DIMMs" && named("module") || part == "disks" && named("file") ||
						named("NVLink") && (part == "NVSwitches" || part == "GPUs")) {
					continue // it is the part that speaks
				}
				t.Run(fmt.Sprintf("%s/%d x %s", p.name, n, part), func(t *testing.T) {
					w := base
					grow(&w, n)
					got := tell(w.Build(), p)
					if !slices.Equal(causes(got), causes(want)) {
						t.Fatalf("got\n%swant\n%s", verdict(got), verdict(want))
					}
					for i := range got {
						if d := got[i].RootCause.Confidence - want[i].RootCause.Confidence; d < -0.03 || d > 0.03 {
							t.Errorf("got\n%swant\n%s", verdict(got), verdict(want))
						}
					}
				})
			}
		}
	}
}

// Nothing that has not spoken is named for sure.
func TestASilentPartIsNotBlamed(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, sh := range shapes {
		w := sh.Build()
		for name, play := range map[string]func(s *scene){
			"a crash without a word": func(s *scene) { s.dark(w, 0, 0, 1, false) },
			"a crash with a watchdog": func(s *scene) {
				s.dark(w, 0, 0, 1, false)
				s.at(40, "ipmi", w.Host(0, 1), "bmc.sel/23/01", critical)
			},
			"contact lost":                          func(s *scene) { s.at(0, "collector", w.Host(0, 1), "host.unreachable", critical, up) },
			"a supply failed, which is not said":    func(s *scene) { s.at(0, "ipmi", w.Host(0, 1), "psu.failure", failed, up) },
			"a memory error that names no module":   func(s *scene) { s.at(0, "kmsg", w.Host(0, 1), "host.mce/memory", failed) },
			"an uncorrectable one, of no module":    func(s *scene) { s.at(0, "ipmi", w.Host(0, 1), "bmc.sel/0c/01", critical) },
			"a file system that fails on some disk": func(s *scene) { s.at(0, "kmsg", w.Host(0, 1), "host.fs_error", failed) },
		} {
			t.Run(w.Name+"/"+name, func(t *testing.T) {
				s := &scene{}
				play(s)
				for _, inc := range final(w.Topology, s.sorted(), 15*time.Minute) {
					if r := inc.RootCause.Resource; r != w.Host(0, 1) && inc.RootCause.Confidence > 0.6 {
						t.Errorf("%s", verdict([]schemas.Incident{inc}))
					}
				}
			})
		}
	}
}

// TestWhatWasDecidedStays: hours later a port of a server that went down with its air
// flaps, and the end of the outage is heard of another. The parts of the incident, which
// is still open, stay with it.
func TestWhatWasDecidedStays(t *testing.T) {
	for _, w := range []*site{small.Build(), hall.Build(), four.Build(), unfed.Build()} {
		t.Run(w.Name, func(t *testing.T) {
			s := &scene{}
			s.hotAir(w, 0, 0, true)
			s.dark(w, 1100, 0, 1, false)
			s.dark(w, 1500, 0, 2, false)
			s.at(1560+6*3600, "collector", w.Host(0, 1), "agent.unreachable", failed, down)
			n := len(s.events)
			s.at(1500+6*3600, "gnmi", w.PortOf(0, 2, 0), "port.down", failed, up)
			s.at(1520+6*3600, "gnmi", w.PortOf(0, 2, 0), "port.down", failed, down)
			got := final(w.Topology, s.sorted(), 5*time.Minute)
			if !slices.ContainsFunc(got, func(i schemas.Incident) bool { return i.RootCause.Resource == w.ID("air0") && len(i.Events) == n }) {
				t.Errorf("of %d events and a port that flaps\n%s", n, verdict(got))
			}
		})
	}
}

// A server that is dark as a whole, with its controller, is one thing. A controller that died
// before is another, and so are one that goes later and those of a network of their own.
func TestAServerGoesDarkWithItsController(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, w := range []*site{small.Build(), demo.Build(), hall.Build(), four.Build(), unfed.Build(), oneFeed.Build()} {
		crash, board := w.Host(0, 1)+" host.crash", w.ID("s0.1/bmc")+" bmc.failure"
		for _, c := range []struct {
			name string
			play func(s *scene)
			want []string
		}{
			{"both at once", func(s *scene) { s.dark(w, 0, 0, 1, true) }, []string{crash}},
			{"the controller first, as the pollers come round", func(s *scene) {
				s.at(0, "collector", w.ID("s0.1/bmc"), "bmc.unreachable", failed, up)
				s.dark(w, 5, 0, 1, false)
			}, []string{crash}},
			{"the controller says so of its server", func(s *scene) {
				s.dark(w, 0, 0, 1, false)
				s.at(28, "collector", w.Host(0, 1), "bmc.unreachable", failed, up)
			}, []string{crash}},
			{"the controller, and an hour later the server", func(s *scene) {
				s.at(0, "collector", w.ID("s0.1/bmc"), "bmc.unreachable", failed, up)
				s.dark(w, 3600, 0, 1, false)
			}, []string{crash, board}},
			{"the server, and an hour later the controller", func(s *scene) {
				s.dark(w, 0, 0, 1, false)
				s.at(3600, "collector", w.ID("s0.1/bmc"), "bmc.unreachable", failed, up)
			}, []string{crash, board}},
		} {
			t.Run(w.Name+"/"+c.name, func(t *testing.T) {
				s := &scene{}
				c.play(s)
				got := final(w.Topology, s.sorted(), 15*time.Minute)
				if !sameSet(causes(got), c.want) {
					t.Fatalf("got\n%swant %q", verdict(got), c.want)
				}
				if told := strings.Contains(got[0].Explanation, "as if the server had no power"); told != (len(c.want) == 1) {
					t.Errorf("%s", got[0].Explanation)
				}
			})
		}
	}
}

// oneCard is a shape whose servers hang on the network by one card.
func oneCard(sh shape) shape {
	sh.Name, sh.NICs, sh.Leaves = sh.Name+" by one card", 1, 1
	return sh
}

// TestServersThatWereNotHotDoNotGoOfHeat: one goes dark before its rack is hot, and one that never was. What comes
// before a state is asked for.
func TestServersThatWereNotHotDoNotGoOfHeat(t *testing.T) {
	for _, sh := range []shape{small, demo, unfed, lean, oneCard(small), oneCard(demo)} {
		w := sh.Build()
		t.Run(w.Name, func(t *testing.T) {
			s := &scene{}
			s.dark(w, 22, 0, 3, false)
			for h := 0; h < w.Servers; h += 3 {
				s.at(120+30*float64(h), "ipmi", w.Host(0, h), "temp.inlet_high/Inlet Temp", warned, up)
			}
			s.dark(w, 915, 0, 2, false)
			got := final(w.Topology, s.sorted(), 5*time.Minute)
			for _, want := range []string{w.Host(0, 2) + " host.crash", w.Host(0, 3) + " host.crash"} {
				if !slices.Contains(causes(got), want) {
					t.Errorf("got\n%swant %q", verdict(got), want)
				}
			}
		})
	}
}

// TestACauseThatOthersExplainForLessGoes: of a server that goes down by a fault of a part, only its one port and its
// agent are heard. A link that fails by itself in the same moment would explain the port too, and costs more.
func TestACauseThatOthersExplainForLessGoes(t *testing.T) {
	for _, sh := range []shape{oneCard(small), oneCard(demo), oneCard(four), oneCard(unfed), oneCard(lean), oneFeed} {
		w := sh.Build()
		for want, play := range map[string]func(s *scene){
			w.ID("s0.1/dimm1") + " host.memory_uncorrectable": func(s *scene) { s.at(0, "ipmi", w.ID("s0.1/dimm1"), "dimm.ecc_ue", critical) },
			w.ID("s0.1/cpu1") + " host.cpu_failure":           func(s *scene) { s.at(0, "ipmi", w.ID("s0.1/cpu1"), "bmc.sel/07/00", critical, up) },
		} {
			t.Run(w.Name+"/"+want, func(t *testing.T) {
				s := &scene{}
				play(s)
				s.at(3, "gnmi", w.PortOf(0, 1, 0), "port.down", failed, up)
				s.at(19, "collector", w.Host(0, 1), "agent.unreachable", failed, up)
				if got := final(w.Topology, s.sorted(), 5*time.Minute); !sameSet(causes(got), []string{want}) {
					t.Errorf("got\n%swant %q", verdict(got), want)
				}
			})
		}
	}
}

// TestAServerOfWhichLittleIsHeardGoesWithItsFeed: a feed takes one server along as one sees it, and another of which
// only the agent is missed, until it boots without having been shut down. Its going down was to be expected.
func TestAServerOfWhichLittleIsHeardGoesWithItsFeed(t *testing.T) {
	bare := oneCard(small) // no parts that speak for themselves, and every rack its own air
	bare.Name, bare.Fans, bare.DIMMs, bare.Disks, bare.Row = "bare", 0, 0, 0, 1
	wide := oneCard(demo)
	wide.Name, wide.Servers, wide.Racks = "wide", 2*wide.Servers, 2
	for _, sh := range []shape{small, demo, oneFeed, oneCard(small), oneCard(demo), oneCard(four), bare, wide} {
		w := sh.Build()
		t.Run(w.Name, func(t *testing.T) {
			s := &scene{}
			s.unfeed(w, 0, 0, 0)
			s.dark(w, 23, 0, 1, false)
			s.at(23, "collector", w.Host(0, 2), "agent.unreachable", failed, up)
			s.at(1507, "kmsg", w.Host(0, 2), "host.reboot/unclean", failed)
			s.at(1517, "gnmi", w.PortOf(0, 2, 0), "port.down", failed, up)
			s.at(1533, "collector", w.Host(0, 2), "agent.unreachable", failed, up)
			got := final(w.Topology, s.sorted(), 5*time.Minute)
			if want := []string{w.ID("pdu0.0") + " power.feed_loss"}; !sameSet(causes(got), want) || len(got[0].Events) != len(s.events) {
				t.Errorf("of %d events\n%swant %q", len(s.events), verdict(got), want)
			}
		})
	}
}

// TestACrashOfSeveralIsNoSwitch: servers of one leaf go down at once, each as it is heard of, and the ports of the others stay up.
// Two are a pair; three are something that is in no record, in their rack.
func TestACrashOfSeveralIsNoSwitch(t *testing.T) {
	for _, sh := range []shape{small, demo, unfed, four, oneFeed} {
		for _, n := range []int{2, 3} {
			w := sh.Build()
			t.Run(fmt.Sprintf("%s/%d", w.Name, n), func(t *testing.T) {
				s := &scene{}
				var want []string
				for h := range n {
					s.dark(w, 2*float64(h), 0, h, false)
					want = append(want, w.Host(0, h)+" host.crash")
				}
				if n >= outbreakLeast {
					want = []string{w.ID("r0") + " unknown"}
				}
				if got := final(w.Topology, s.sorted(), 5*time.Minute); !sameSet(causes(got), want) {
					t.Errorf("got\n%swant %q", verdict(got), want)
				}
			})
		}
	}
}

// TestWhatAJobSaysAsItEndsBelongsToTheGPU: one uncorrectable error, and seconds later the channels of all other ranks are
// reset, some of them first. A program that fails by itself is the job's.
func TestWhatAJobSaysAsItEndsBelongsToTheGPU(t *testing.T) {
	for _, sh := range []shape{demo, hall, four, oneFeed} {
		w := sh.Build()
		job := schemas.Workload{ID: "job-1", Start: t0.Add(-time.Hour)}
		for h := range w.Servers {
			job.Resources = append(job.Resources, w.Host(0, h))
		}
		w.Topology.Workloads = []schemas.Workload{job}
		for name, play := range map[string]struct {
			broken bool
			want   string
		}{
			"a GPU":     {true, w.ID("s0.1/gpu1") + " gpu.memory_uncorrectable"},
			"a program": {false, "job-1 workload.error"},
		} {
			t.Run(w.Name+"/"+name, func(t *testing.T) {
				s := &scene{}
				if play.broken {
					s.at(2, "kmsg", w.ID("s0.1/gpu1"), "gpu.xid/94", failed)
				}
				for h := range w.Servers {
					for g := range w.GPUs {
						if h != 1 || g != 1 {
							s.at(1.5+float64((h*7+g*3)%11), "kmsg", w.ID("s0.%d/gpu%d", h, g), "gpu.xid/43", warned, "workload=job-1")
						}
					}
					s.at(30+float64(h), "agent", w.Host(0, h), "workload.comm_timeout", failed, "workload=job-1")
				}
				if got := final(w.Topology, s.sorted(), time.Minute); !sameSet(causes(got), []string{play.want}) || len(got[0].Events) != len(s.events) {
					t.Errorf("of %d events\n%swant %q", len(s.events), verdict(got), play.want)
				}
			})
		}
	}
}

// TestPiecesOfWhatIsKnownGoToIt: single ports of several hot servers go, of which nothing else is heard. None of them is a
// cable; since the air unit could have taken their servers, they are its. Nothing changes with a restart.
func TestPiecesOfWhatIsKnownGoToIt(t *testing.T) {
	for _, w := range []*site{demo.Build(), hall.Build(), four.Build()} {
		t.Run(w.Name, func(t *testing.T) {
			s := &scene{}
			s.hotAir(w, 0, 0, true)
			for i, at := range [][2]int{{0, 0}, {0, 1}, {0, 3}, {1, 0}} { // the third of a rack stands in the cold
				s.at(1300+20*float64(i), "gnmi", w.PortOf(at[0], at[1], 0), "port.down", failed, up)
			}
			e := NewEngine(propagation.Default(), w.Topology, nil)
			for i := range s.sorted().events {
				e.Add(&s.events[i])
			}
			e.Advance(e.Now().Add(5 * time.Minute))
			e.Flush()
			open := map[string]schemas.Incident{}
			for _, i := range e.Drain() {
				if open[i.ID] = i; i.MergedInto != "" || i.Closed != nil {
					delete(open, i.ID)
				}
			}
			got := slices.Collect(maps.Values(open))
			if want := []string{w.ID("air0") + " cooling.air_supply"}; !sameSet(causes(got), want) || len(got[0].Events) != len(s.events) {
				t.Fatalf("of %d events\n%swant %q", len(s.events), verdict(got), want)
			}
			again := NewEngine(propagation.Default(), w.Topology, nil)
			again.Restore(s.events, got)
			again.Advance(again.Now().Add(time.Minute))
			again.Flush()
			for _, i := range again.Drain() {
				if i.ID != got[0].ID || i.MergedInto != "" || len(i.Events) != len(s.events) {
					t.Errorf("after a restart %s", verdict([]schemas.Incident{i}))
				}
			}
		})
	}
}

// A server that is restarted on purpose takes its link with it each time: the far end sees it go down and up again and
// again, and calls that flapping. Of a server that was not restarted, it is.
func TestPlannedRestartsAreNoLinkThatFlaps(t *testing.T) {
	for _, w := range []*site{small.Build(), demo.Build(), hall.Build(), four.Build(), lean.Build(), unfed.Build()} {
		if w.Leaves == 0 {
			continue
		}
		for _, times := range []int{2, 3} {
			t.Run(fmt.Sprintf("%s/%d restarts", w.Name, times), func(t *testing.T) {
				s, host := &scene{}, w.Host(0, 1)
				ports := func(sec float64, what string, sev schemas.Severity, state ...string) {
					for k := range w.NICs {
						s.at(sec+0.1*float64(k), "gnmi", w.PortOf(0, 1, k), what, sev, state...)
					}
				}
				for i := range times {
					sec := 240 * float64(i)
					s.at(sec, "kmsg", host, "host.reboot/planned", schemas.SeverityInfo)
					ports(sec+3, "port.down", failed, up)
					s.at(sec+20, "collector", host, "agent.unreachable", failed, up)
					ports(sec+70, "port.down", schemas.SeverityInfo, down)
					s.at(sec+90, "collector", host, "agent.unreachable", schemas.SeverityInfo, down)
				}
				ports(240*float64(times-1)+75, "port.flap", warned)
				if got := final(w.Topology, s, 40*time.Minute); len(got) > 0 {
					t.Errorf("restarts open\n%s", verdict(got))
				}
			})
		}
		t.Run(w.Name+"/none", func(t *testing.T) {
			s, port := &scene{}, w.PortOf(0, 1, 0)
			s.at(0, "kmsg", w.Host(0, 0), "host.reboot/planned", schemas.SeverityInfo)
			for i := range 3 {
				s.at(40*float64(i), "gnmi", port, "port.down", failed, up)
				s.at(40*float64(i)+5, "gnmi", port, "port.down", schemas.SeverityInfo, down)
			}
			s.at(90, "gnmi", port, "port.flap", warned)
			got := final(w.Topology, s, 40*time.Minute)
			if len(got) != 1 || got[0].RootCause.Fault != "network.link_flap" {
				t.Errorf("got\n%s", verdict(got))
			}
		})
	}
}

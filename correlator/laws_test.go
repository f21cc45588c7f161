package correlator

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"auspex/internal/racetest"
	"auspex/internal/stormgen"
	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

func sortedCauses(topology *schemas.Topology, events []schemas.Event) []string {
	_, got := replayed(topology, events)
	out := causes(got)
	slices.Sort(out)
	return out
}

// lines are all states that an engine publishes, as they are written.
func lines(t *testing.T, topology *schemas.Topology, events []schemas.Event) (out []string) {
	t.Helper()
	e := NewEngine(propagation.Default(), topology, nil)
	for i := range events {
		e.Add(&events[i])
		for _, inc := range e.Drain() {
			doc, err := json.Marshal(&inc)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, string(doc))
		}
	}
	return out
}

func TestAReplayCutShortGivesTheSameLinesUpToTheCut(t *testing.T) {
	s := mixed()
	whole := lines(t, withJob(fleet(4)), s.events)
	for _, n := range []int{1, len(s.events) / 3, len(s.events) - 5} {
		cut := lines(t, withJob(fleet(4)), s.events[:n])
		if len(cut) > len(whole) || !slices.Equal(cut, whole[:len(cut)]) {
			t.Errorf("after %d of %d events the lines differ", n, len(s.events))
		}
	}
}

func TestTheOrderOfArrivalWithinTheBoundDoesNotChangeTheEnd(t *testing.T) {
	s := &scene{}
	feedLoss(s, 10, 1)
	gpuLost(s, 200, "gpu-r02-04/gpu1")
	leafDown(s, 600, 3)
	want := sortedCauses(fleet(4), s.events)
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 1))
		late := map[string]time.Duration{}
		for i := range s.events {
			late[s.events[i].ID] = time.Duration(rng.Float64() * 90 * float64(time.Second))
		}
		mixed := slices.Clone(s.events)
		slices.SortStableFunc(mixed, func(a, b schemas.Event) int {
			return a.Observed.Add(late[a.ID]).Compare(b.Observed.Add(late[b.ID]))
		})
		if got := sortedCauses(fleet(4), mixed); !slices.Equal(got, want) {
			t.Errorf("seed %d: %v in place of %v", seed, got, want)
		}
	}
}

func TestAnUnrelatedAlertNeverJoins(t *testing.T) {
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 2))
		s := &scene{}
		feedLoss(s, 10, 1)
		from := len(s.events)
		for k := range 5 {
			s.at(
				300*rng.Float64(), "rule", fmt.Sprintf("leaf-r%02d/Ethernet%d", 2+rng.IntN(3), 1+rng.IntN(16)), "port.errors/crc",
				schemas.SeverityWarning,
			)
			s.at(300*rng.Float64(), "dcgm", fmt.Sprintf("gpu-r%02d-%02d/gpu%d", 2+rng.IntN(3), 1+rng.IntN(8), k), "gpu.thermal", schemas.SeverityWarning)
		}
		other := map[string]bool{}
		for _, ev := range s.events[from:] {
			other[ev.ID] = true
		}
		slices.SortStableFunc(s.events, func(a, b schemas.Event) int { return a.Observed.Compare(b.Observed) })
		_, got := replayed(fleet(4), s.events)
		if len(got) != 1 {
			t.Errorf("seed %d: told %v", seed, causes(got))
		}
		for _, id := range got[0].Events {
			if other[id] {
				t.Errorf("seed %d: %s of another rack joined %s", seed, id, got[0].RootCause.Resource)
			}
		}
	}
}

func TestRemovingNoiseChangesNothing(t *testing.T) {
	for seed := range uint64(6) {
		st, _ := drawStorm(t, demo, stormgen.Options{Seed: seed, Profile: stormgen.Easy, Faults: 6, Noise: 10})
		fault := map[string]bool{}
		for _, f := range st.Truth.Incidents {
			for _, id := range f.Events {
				fault[id] = true
			}
		}
		var clean []schemas.Event
		for _, ev := range st.Events {
			if fault[ev.ID] {
				clean = append(clean, ev)
			}
		}
		with, without := sortedCauses(st.Topology, st.Events), sortedCauses(st.Topology, clean)
		if !slices.Equal(with, without) {
			t.Errorf("seed %d: with noise %v, without %v", seed, with, without)
		}
	}
}

func TestSilentSiblingsDoNotChangeTheVerdict(t *testing.T) {
	var want []string
	for _, n := range []int{1, 2, 4} {
		sh := demo
		sh.Racks, sh.DIMMs, sh.Fans, sh.Disks = 4*n, 8*n, 4*n, 2*n
		sh.Row = 2 * n
		w := sh.Build()
		s := &scene{}
		s.dark(w, 0, 0, 3, false)
		s.at(900, "kmsg", w.ID("s1.2/gpu1"), "gpu.xid/79", critical)
		s.at(1800, "ipmi", w.ID("s1.4/dimm2"), "dimm.ecc_ue", critical)
		s.unfeed(w, 2700, 2, 0)
		got := sortedCauses(w.Topology, s.events)
		if want == nil {
			want = got
		}
		if !slices.Equal(got, want) {
			t.Errorf("with %d times as many siblings %v, else %v", n, got, want)
		}
	}
}

// What speaks for a cause alone never makes it less likely: its rank among the causes that are named does not fall,
// and once it is named first, its confidence hardly does: rivals that show the same sign gain by it too.
func TestEvidenceForACauseNeverLowersItsRank(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, w := range []*site{small.Build(), demo.Build(), hall.Build(), four.Build(), unfed.Build()} {
		type sign struct{ source, resource, what, state string }
		causes := map[string][]sign{
			w.ID("s0.1/gpu1") + " gpu.fallen_off_bus": {
				{"kmsg", w.ID("s0.1/gpu1"), "gpu.xid/79", ""},
				{"kmsg", w.ID("s0.1/gpu1"), "gpu.xid/154", ""},
				{"dcgm", w.ID("s0.1/gpu1"), "gpu.missing/GPU_IS_LOST", up},
				{"rule", w.ID("s0.1/gpu1"), "gpu.stalled", up},
				{"ipmi", w.ID("s0.1/gpu1"), "bmc.sel/13/0a", ""},
			},
			w.ID("s0.1/dimm3") + " host.memory_uncorrectable": {
				{"rule", w.ID("s0.1/dimm3"), "dimm.ecc_ce", ""},
				{"ipmi", w.ID("s0.1/dimm3"), "dimm.ecc_ue", ""},
				{"kmsg", w.Host(0, 1), "host.mce/memory", ""},
				{"kmsg", w.Host(0, 1), "host.panic", ""},
				{"collector", w.Host(0, 1), "agent.unreachable", up},
				{"collector", w.Host(0, 1), "host.unreachable", up},
			},
		}
		if w.Feeds > 0 {
			var signs []sign
			for h := range w.Servers {
				signs = append(signs, sign{"redfish", w.ID("s0.%d/psu0", h), "psu.input_lost", up})
			}
			causes[w.ID("pdu0.0")+" power.feed_loss"] = append(signs, sign{"snmp", w.ID("pdu0.0"), "pdu.breaker", up})
		}
		if w.Leaves > 0 {
			signs := []sign{{"collector", w.ID("leaf0.0"), "switch.unreachable", up}}
			for h := range w.Servers {
				signs = append(signs, sign{"agent", w.ID("s0.%d/nic0", h), "port.down", up})
			}
			causes[w.ID("leaf0.0")+" network.switch_failure"] = signs
		}
		for cause, signs := range causes {
			t.Run(w.Name+"/"+cause, func(t *testing.T) {
				s := &scene{}
				rank, sure := 99, 0.0
				for i, x := range signs {
					s.at(float64(2*i), x.source, x.resource, x.what, critical, x.state)
					now, conf := rankOf(w.Topology, s.events, cause)
					if now > rank || now == 0 && rank == 0 && conf < sure-0.05 {
						t.Errorf("with %v of %s its rank goes from %d to %d, its confidence from %.3f to %.3f", x.what, x.resource, rank, now, sure, conf)
					}
					rank, sure = now, conf
				}
				if rank != 0 {
					t.Errorf("with all of its signs it is not named first")
				}
			})
		}
	}
}

// rankOf returns at which place a cause is named, from 0, and how sure it is; 99 is nowhere.
func rankOf(topology *schemas.Topology, events []schemas.Event, cause string) (rank int, confidence float64) {
	_, got := replayed(topology, events)
	rank = 99
	for i := range got {
		for k, c := range append([]schemas.Cause{got[i].RootCause}, got[i].Alternatives...) {
			if c.Resource+" "+c.Fault == cause && k < rank {
				rank, confidence = k, c.Confidence
			}
		}
	}
	return rank, confidence
}

// Names follow causes, not events: what an open incident was told to be is never handed to another.
func TestACauseIsNotHandedFromOneIncidentToAnother(t *testing.T) {
	racetest.OneGoroutine(t)
	storms := recorded(t)
	for _, sh := range []shape{demo, hall, four} {
		st, _ := drawStorm(t, sh, stormgen.Options{Seed: 5, Profile: stormgen.Overlap, Faults: 12})
		storms = append(storms, st)
	}
	causes := 0
	for i, st := range storms {
		e := NewEngine(propagation.Default(), st.Topology, nil)
		holds := map[string]string{} // incident by cause
		for k := range st.Events {
			e.Add(&st.Events[k])
			told := e.Drain()
			gone := map[string]string{}
			for _, inc := range told {
				for cause, id := range holds {
					if id == inc.ID && (inc.MergedInto != "" || cause != causeOf(&inc)) {
						gone[cause] = id
					}
				}
				if inc.Closed != nil {
					maps.DeleteFunc(holds, func(_, id string) bool { return id == inc.ID })
					maps.DeleteFunc(gone, func(_, id string) bool { return id == inc.ID })
				}
			}
			for _, inc := range told {
				cause := causeOf(&inc)
				if inc.MergedInto != "" || inc.Closed != nil {
					continue
				}
				if from := gone[cause]; from != "" && from != inc.ID {
					t.Errorf("storm %d, %s: %s goes from %s to %s", i, inc.At.Format(time.TimeOnly), cause, from, inc.ID)
				}
				holds[cause] = inc.ID
				causes++
			}
			for cause, id := range gone {
				if holds[cause] == id {
					delete(holds, cause)
				}
			}
		}
	}
	if causes < 1000 {
		t.Errorf("only %d states were told", causes)
	}
}

func causeOf(inc *schemas.Incident) string { return inc.RootCause.Fault + " " + inc.RootCause.Resource }

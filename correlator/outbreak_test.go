package correlator

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"auspex/internal/racetest"
	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

// spreads plays something that is in no record on servers of a rack.
func (s *scene) spreads(w *site, sec, apart float64, r int, servers ...int) {
	for i, h := range servers {
		s.at(sec+apart*float64(i), "agent", w.Host(r, h), "service.failed/licence-client", schemas.SeverityError, up)
	}
}

// TestWhatNoRecordFitsIsToldOnce: the same on several devices within minutes is one
// incident at the smallest resource that holds them, within the minute; on two, or hour by
// hour, it is none.
func TestWhatNoRecordFitsIsToldOnce(t *testing.T) {
	for _, w := range []*site{small.Build(), demo.Build(), hall.Build(), four.Build(), unfed.Build()} {
		for name, play := range map[string]struct {
			do   func(s *scene)
			want string
		}{
			"in a rack":    {func(s *scene) { s.spreads(w, 4000, 10, 0, 0, 1, 2, 3) }, w.ID("r0")},
			"on two":       {func(s *scene) { s.spreads(w, 4000, 10, 0, 0, 1) }, ""},
			"now and then": {func(s *scene) { s.spreads(w, 4000, 4000, 0, 0, 1, 2, 3) }, ""},
			"with more of the same servers": {func(s *scene) {
				s.spreads(w, 4000, 10, 0, 0, 1, 2, 3)
				s.at(4060, "kmsg", w.Host(0, 1), "host.fs_error/stale-handle", schemas.SeverityError)
			}, w.ID("r0")},
			"in two racks": {func(s *scene) {
				s.spreads(w, 4000, 10, 0, 0, 1)
				s.spreads(w, 4005, 10, 1, 0, 1)
			}, "*"},
		} {
			if strings.Contains(name, "two racks") && w.Racks < 2 {
				continue
			}
			t.Run(w.Name+"/"+name, func(t *testing.T) {
				s := &scene{}
				s.at(0, "agent", w.Host(0, 0), "service.failed/other", schemas.SeverityWarning) // the stream is an hour old
				play.do(s)
				got := final(w.Topology, s.sorted(), time.Minute)
				switch {
				case play.want == "":
					if len(got) > 0 {
						t.Errorf("told\n%s", verdict(got))
					}
				case len(got) != 1 || got[0].RootCause.Fault != schemas.FaultUnknown || len(got[0].Events) != len(s.events)-1:
					t.Errorf("of %d events\n%s", len(s.events)-1, verdict(got))
				case play.want != "*" && got[0].RootCause.Resource != play.want:
					t.Errorf("want %s\n%s", play.want, verdict(got))
				case got[0].RootCause.Confidence < 0.3 || w.Racks > 2 && got[0].RootCause.Resource == w.ID("r0") && got[0].RootCause.Confidence < 0.8:
					// of a site of one rack, the rack, the row and the site are as likely
					t.Errorf("sure by %.2f", got[0].RootCause.Confidence)
				}
			})
		}
	}
}

// TestACauseThatIsFoundLaterTakesItsSignsFromAnOutbreak: cables that fail together, until
// their switch is heard to be gone.
func TestACauseThatIsFoundLaterTakesItsSignsFromAnOutbreak(t *testing.T) {
	s := &scene{}
	for k := range 4 { // every other port: of four servers
		s.at(10+float64(k), "gnmi", fmt.Sprintf("leaf-r01/Ethernet%d", 1+4*k), "port.down", schemas.SeverityCritical, "raised")
	}
	s.at(80, "collector", "leaf-r01", "switch.unreachable", schemas.SeverityCritical, "raised")
	for k := range 16 {
		s.at(90+float64(k), "gnmi", fmt.Sprintf("leaf-r01/Ethernet%d", 1+k), "port.down", schemas.SeverityCritical, "raised")
	}
	_, got := replayed(fleet(4), s.sorted().events)
	if !slices.Equal(causes(got), []string{"leaf-r01 network.switch_failure"}) {
		t.Errorf("told\n%s", verdict(got))
	}
}

// TestAnOutbreakOutlivesARestart, whatever it is made of, under its name.
func TestAnOutbreakOutlivesARestart(t *testing.T) {
	w := hall.Build()
	for name, play := range map[string]func(s *scene){
		"signs":  func(s *scene) { s.spreads(w, 4000, 10, 0, 0, 1, 2, 3) },
		"pieces": func(s *scene) { links(s, 4000, 5, 4) },
	} {
		t.Run(name, func(t *testing.T) {
			topology := w.Topology
			if name == "pieces" {
				topology = fleet(4)
			}
			s := &scene{}
			s.at(0, "agent", w.Host(0, 0), "service.failed/other", schemas.SeverityWarning)
			play(s)
			s.sorted()
			e := NewEngine(propagation.Default(), topology, nil)
			for i := range s.events {
				e.Add(&s.events[i])
			}
			e.Flush()
			open := map[string]schemas.Incident{}
			for _, i := range e.Drain() {
				if open[i.ID] = i; i.MergedInto != "" || i.Closed != nil {
					delete(open, i.ID)
				}
			}
			if len(open) != 1 {
				t.Fatalf("open are %v", open)
			}
			again := NewEngine(propagation.Default(), topology, nil)
			for id, i := range open {
				again.Restore(s.events, []schemas.Incident{i})
				again.Advance(again.Now().Add(time.Minute))
				again.Flush()
				for _, o := range again.Drain() {
					if o.ID != id || o.MergedInto != "" || o.Closed != nil || o.RootCause.Fault != schemas.FaultUnknown {
						t.Errorf("published %s %v, merged into %q", o.ID, o.RootCause, o.MergedInto)
					}
				}
			}
		})
	}
}

// TestAnOutbreakBesideAFaultIsHalfAsSure: it may as well be more of that fault.
func TestAnOutbreakBesideAFaultIsHalfAsSure(t *testing.T) {
	for _, w := range []*site{demo.Build(), hall.Build(), unfed.Build()} {
		sure := func(beside bool) float64 {
			s := &scene{}
			s.at(0, "agent", w.Host(0, 0), "service.failed/other", schemas.SeverityWarning)
			s.spreads(w, 4000, 10, 0, 0, 1, 2, 3)
			if beside {
				s.at(3990, "kmsg", w.ID("s1.1/gpu1"), "gpu.xid/79", schemas.SeverityCritical)
			}
			for _, i := range final(w.Topology, s.sorted(), time.Minute) {
				if i.RootCause.Fault == schemas.FaultUnknown {
					return i.RootCause.Confidence
				}
			}
			return 0
		}
		if alone, beside := sure(false), sure(true); alone == 0 || math.Abs(beside-alone/2) > 0.02 {
			t.Errorf("%s: sure by %.2f, beside a fault by %.2f", w.Name, alone, beside)
		}
	}
}

// An outbreak is of one place and one time: what begins on another site, or later while its own signs
// only go on, is a fault of its own.
func TestAnOutbreakTakesNothingOfOtherPlacesAndTimes(t *testing.T) {
	for _, w := range []*site{demo.Build(), hall.Build(), four.Build()} {
		t.Run(w.Name, func(t *testing.T) {
			topology := *w.Topology
			topology.Resources = append(slices.Clone(topology.Resources), schemas.Resource{ID: "elsewhere", Kind: schemas.KindSite})
			far := w.ID("r%d", w.Racks-1)
			for i := range topology.Resources {
				if topology.Resources[i].ID == far {
					topology.Resources[i].Parent = "elsewhere"
				}
			}
			s := &scene{}
			s.at(0, "agent", w.Host(0, 0), "service.failed/other", warned) // the stream is hours old
			lost := func(sec float64, r, h, g int) string {
				id := w.ID("s%d.%d/gpu%d", r, h, g)
				s.at(sec, "kmsg", id, "gpu.xid/79", critical)
				s.at(sec+4, "dcgm", id, "gpu.missing/GPU_IS_LOST", critical, up)
				return id + " gpu.fallen_off_bus"
			}
			for h := range 4 { // at once
				lost(8000+20*float64(h), 0, h%w.Servers, h)
			}
			for i := range 60 { // which go on to say so
				s.at(8100+60*float64(i), "dcgm", w.ID("s0.0/gpu0"), "gpu.missing/GPU_IS_LOST", critical, up)
			}
			want := []string{
				lost(8120, w.Racks-1, 0, 1), lost(9000, w.Racks-1, 1, 1), lost(9900, w.Racks-1, 2, 1),
				lost(10_500, 1, 0, 2), lost(11_600, 1, 1, 2),
			}
			got := final(&topology, s.sorted(), time.Minute)
			for _, cause := range want {
				if !slices.Contains(causes(got), cause) {
					t.Errorf("%s is told as no fault of its own\n%s", cause, verdict(got))
				}
			}
			if n := len(causes(got)); n != len(want)+1 {
				t.Errorf("%d incidents\n%s", n, verdict(got))
			}
		})
	}
}

// TestWhatAnOutbreakBringsAboutIsToldWithIt: jobs that stop and servers that go down on the devices of one,
// also when they come late, or back an hour later. What happens beside it stays on its own.
func TestWhatAnOutbreakBringsAboutIsToldWithIt(t *testing.T) {
	for _, w := range []*site{demo.Build(), hall.Build(), four.Build(), unfed.Build(), lean.Build()} {
		job := schemas.Workload{ID: "job-1", Start: t0.Add(-time.Hour), Resources: []string{w.Host(0, 1), w.Host(1, 0)}}
		topology := *w.Topology
		topology.Workloads = []schemas.Workload{job}
		other := topology
		other.Workloads = []schemas.Workload{{ID: "job-1", Start: t0.Add(-time.Hour), Resources: []string{w.Host(1, 0), w.Host(1, 1)}}}
		for name, c := range map[string]struct {
			play     func(s *scene)
			topology *schemas.Topology
			told     int
		}{
			"a job that is heard of elsewhere first": {func(s *scene) {
				s.spreads(w, 4000, 10, 0, 0, 1, 2, 3)
				s.at(4040, "kmsg", w.ID("s1.0/gpu1"), "gpu.xid/45", warned, "workload=job-1")
				s.at(4050, "scheduler", "job-1", "workload.failed/134", failed)
			}, &topology, 1},
			"a job half an hour later": {func(s *scene) {
				s.spreads(w, 4000, 10, 0, 0, 1, 2, 3)
				s.at(5800, "scheduler", "job-1", "workload.failed/134", failed)
			}, &topology, 1},
			"a job that runs elsewhere": {func(s *scene) {
				s.spreads(w, 4000, 10, 0, 0, 1, 2, 3)
				s.at(4050, "scheduler", "job-1", "workload.failed/134", failed)
			}, &other, 2},
			"a server, which is back an hour later": {func(s *scene) {
				s.spreads(w, 4000, 10, 0, 0, 1, 2, 3)
				s.dark(w, 4100, 0, 1, false)
				s.back(w, 7700, 0, 1)
			}, w.Topology, 1},
			"a server of another rack": {func(s *scene) {
				s.spreads(w, 4000, 10, 0, 0, 1, 2, 3)
				s.dark(w, 4100, 1, 1, false)
			}, w.Topology, 2},
			"supplies of two servers": {func(s *scene) {
				for i := range 4 {
					s.at(4000+10*float64(i), "redfish", w.ID("s0.%d/psu%d", i%2, i/2), "voltage.out_of_range/12V", failed, up)
				}
			}, w.Topology, 1},
		} {
			t.Run(w.Name+"/"+name, func(t *testing.T) {
				s := &scene{}
				s.at(0, "agent", w.Host(0, 0), "service.failed/other", warned) // the stream is an hour old
				c.play(s)
				got := final(c.topology, s.sorted(), time.Minute)
				if len(got) != c.told || !slices.ContainsFunc(got, func(i schemas.Incident) bool { return i.RootCause.Fault == schemas.FaultUnknown }) {
					t.Errorf("want %d, got\n%s", c.told, verdict(got))
				} else if c.told == 1 && got[0].RootCause.Resource != w.ID("r0") {
					t.Errorf("it is at the rack, not where its jobs run, too:\n%s", verdict(got))
				}
			})
		}
	}
}

// TestWhatASiteAlwaysSaysIsNoOutbreak: a kind of event that no record has and that comes as
// often as ever, on whichever server, is what the site is like, also in the first minutes
// after a start.
func TestWhatASiteAlwaysSaysIsNoOutbreak(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, w := range []*site{hall.Sized(400).Build(), demo.Sized(1000).Build(), unfed.Sized(2000).Build()} {
		servers := w.Racks * w.Servers
		for seed := range uint64(4) {
			t.Run(fmt.Sprintf("%s/%d", w.Name, seed), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 7))
				s := &scene{}
				for sec := 0.0; sec < 24*3600; { // once in five days and server
					sec += rng.ExpFloat64() * 5 * 24 * 3600 / float64(servers)
					h := rng.IntN(servers)
					s.at(sec, "ipmi", w.Host(h/w.Servers, h%w.Servers), "bmc.sel/28/00", schemas.SeverityWarning)
				}
				if got := final(w.Topology, s.sorted(), time.Minute); len(got) > 0 {
					t.Errorf("of %d events\n%s", len(s.events), verdict(got))
				}
			})
		}
	}
}

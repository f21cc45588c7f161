package correlator

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"auspex/internal/racetest"
	"auspex/internal/stormgen"
	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

var workSites = []shape{demo, hall, four, lean, oneFeed}

// declare declares a window at a second of the scene, from one second to another.
func (s *scene) declare(id string, at, from, until float64, resources ...string) *schemas.Maintenance {
	m := &schemas.Maintenance{
		ID: id, Resources: resources, Work: schemas.WorkMaintenance, Reason: "new supplies", By: "li", Source: schemas.SourceOperator,
		Declared: t0.Add(time.Duration(at) * time.Second), From: t0.Add(time.Duration(from) * time.Second),
		Until: t0.Add(time.Duration(until) * time.Second), GraceSeconds: 600,
	}
	s.events = append(s.events, m.Events()...)
	return m
}

func (s *scene) end(m *schemas.Maintenance, at float64) {
	t := t0.Add(time.Duration(at) * time.Second)
	m.Ended, m.EndedBy = &t, "li"
	for _, ev := range m.Events() {
		if ev.Type == schemas.EventMaintenanceEnded {
			s.events = append(s.events, ev)
		}
	}
}

// change changes the end of a window at a second of the scene.
func (s *scene) change(m *schemas.Maintenance, at, until float64) {
	known := map[string]bool{}
	for _, ev := range m.Events() {
		known[ev.ID] = true
	}
	m.Changed, m.ChangedBy = append(m.Changed, t0.Add(time.Duration(at)*time.Second)), "li"
	m.Until = t0.Add(time.Duration(until) * time.Second)
	for _, ev := range m.Events() {
		if !known[ev.ID] {
			s.events = append(s.events, ev)
		}
	}
}

// back plays a server that returns from planned work.
func (s *scene) back(w *site, sec float64, r, h int) {
	for k := range w.NICs {
		if w.Leaves > 0 {
			s.at(sec, "gnmi", w.PortOf(r, h, k), "port.down", failed, down)
		}
	}
	s.at(sec+5, "collector", w.Host(r, h), "agent.unreachable", failed, down)
	s.at(sec+6, "collector", w.Host(r, h), "host.unreachable", failed, down)
	s.at(sec+7, "collector", w.ID("s%d.%d/bmc", r, h), "bmc.unreachable", failed, down)
	s.at(sec+9, "kmsg", w.Host(r, h), "host.reboot/unclean", warned)
}

// work plays planned work on the power of a rack: it goes dark, and comes back after an hour.
func (s *scene) work(w *site, sec float64, r int, but ...int) {
	s.blackrack(w, sec, r)
	for h := range w.Servers {
		if !slices.Contains(but, h) {
			s.back(w, sec+3600+10*float64(h), r, h)
		}
	}
	for l := range w.Leaves {
		for k := range w.Spines {
			s.at(sec+3500, "gnmi", w.ID("spine%d/d%d.%d", k, r, l), "port.down", failed, down)
		}
		s.at(sec+3510, "collector", w.ID("leaf%d.%d", r, l), "switch.unreachable", critical, down)
	}
	if w.Mgmt > 0 {
		s.at(sec+3500, "collector", w.ID("mgmt%d", r), "switch.unreachable", critical, down)
	}
}

// dropped plays a GPU that falls off the bus, of which nothing planned is the cause.
func (s *scene) dropped(w *site, sec float64, r, h int) string {
	s.at(sec, "kmsg", w.ID("s%d.%d/gpu1", r, h), "gpu.xid/79", critical)
	s.at(sec+4, "dcgm", w.ID("s%d.%d/gpu1", r, h), "gpu.missing/GPU_IS_LOST", critical, up)
	return w.ID("s%d.%d/gpu1", r, h) + " gpu.fallen_off_bus"
}

// leafDies plays a leaf switch of a rack that fails, as its servers and its spines see it.
func (s *scene) leafDies(w *site, sec float64, r int) string {
	leaf := w.ID("leaf%d.0", r)
	for h := range w.Servers {
		for k := 0; k < w.NICs; k += w.Leaves {
			s.at(sec+0.4, "kmsg", w.ID("s%d.%d/nic%d", r, h, k), "nic.down", failed, up)
		}
	}
	for k := range w.Spines {
		s.at(sec+0.3, "gnmi", w.ID("spine%d/d%d.0", k, r), "port.down", failed, up)
	}
	s.at(sec+21, "collector", leaf, "switch.unreachable", critical, up)
	return leaf + " network.switch_failure"
}

func (s *scene) play(w *site, wait time.Duration) []schemas.Incident {
	return final(w.Topology, s.sorted(), wait)
}

func (s *scene) ever(w *site, wait time.Duration) []schemas.Incident {
	e := NewEngine(propagation.Default(), w.Topology, nil)
	for i := range s.sorted().events {
		e.Add(&s.events[i])
	}
	e.Advance(e.Now().Add(wait))
	e.Flush()
	return e.Drain()
}

func TestPlannedWorkIsNoIncidentAndHidesNone(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, sh := range workSites {
		w := sh.Build()
		t.Run(w.Name, func(t *testing.T) {
			rack := w.ID("r%d", 0)
			t.Run("alone", func(t *testing.T) {
				s := &scene{}
				s.declare("w1", -3600, -60, 4000, rack)
				s.work(w, 0, 0)
				if got := s.ever(w, 3*time.Hour); len(got) != 0 {
					t.Errorf("planned work opens\n%s", verdict(got))
				}
			})
			t.Run("with a GPU that fails in it and a leaf next door", func(t *testing.T) {
				s := &scene{}
				s.declare("w1", -3600, -60, 4000, rack)
				s.work(w, 0, 0)
				want := []string{s.dropped(w, -20, 0, 1), s.leafDies(w, 30, 1)}
				got := s.play(w, 3*time.Hour)
				if !sameSet(causes(got), want) {
					t.Errorf("got\n%swant %q", verdict(got), want)
				}
				for _, inc := range got {
					within := strings.Contains(inc.Explanation, "w1")
					if within != (inc.RootCause.Fault == "gpu.fallen_off_bus") {
						t.Errorf("%s speaks of the window: %v: %s", inc.RootCause.Resource, within, inc.Explanation)
					}
				}
			})
			t.Run("of another rack silences nothing", func(t *testing.T) {
				s := &scene{}
				s.declare("w1", -3600, -60, 4000, w.ID("r%d", 1))
				s.work(w, 0, 0)
				without := &scene{}
				without.work(w, 0, 0)
				got, want := s.play(w, time.Minute), without.play(w, time.Minute)
				if len(want) == 0 || !sameSet(causes(got), causes(want)) {
					t.Errorf("got\n%swant\n%s", verdict(got), verdict(want))
				}
			})
			t.Run("that is declared late takes back what it explains", func(t *testing.T) {
				s := &scene{}
				s.work(w, 0, 0)
				s.declare("w1", 900, -60, 4000, rack)
				want := s.dropped(w, 120, 0, 1)
				all := s.ever(w, 3*time.Hour)
				open := slices.DeleteFunc(last(all), func(i schemas.Incident) bool { return len(i.Events) == 0 })
				if !sameSet(causes(open), []string{want}) {
					t.Errorf("got\n%swant %s", verdict(open), want)
				}
				if len(all) < 3 {
					t.Errorf("nothing was told before it was declared:\n%s", verdict(all))
				}
			})
			t.Run("with a server that does not return", func(t *testing.T) {
				s := &scene{}
				s.declare("w1", -3600, -60, 4000, rack)
				s.work(w, 0, 0, 2)
				got := s.play(w, 3*time.Hour)
				want := w.Host(0, 2) + " planned.overdue"
				if !sameSet(causes(got), []string{want}) {
					t.Fatalf("got\n%swant %s", verdict(got), want)
				}
				due := t0.Add(4600 * time.Second)
				if inc := got[0]; inc.At.Before(due) || inc.At.After(due.Add(time.Hour)) ||
					!strings.Contains(inc.Explanation, "window w1 by li ended at "+t0.Add(4000*time.Second).Format(windowTime)) {
					t.Errorf("at %s: %s", inc.At, inc.Explanation)
				}
			})
			t.Run("that takes longer, and is told so in time", func(t *testing.T) {
				s := &scene{}
				m := s.declare("mw-1", -3600, -60, 1800, rack)
				s.change(m, 900, 2400)
				s.change(m, 1200, 4000)
				s.work(w, 0, 0)
				if got := s.ever(w, 3*time.Hour); len(got) != 0 {
					t.Errorf("planned work that was given more time opens\n%s", verdict(got))
				}
			})
			t.Run("that was to take longer, with a server that does not return", func(t *testing.T) {
				s := &scene{}
				m := s.declare("mw-1", -3600, -60, 9000, rack)
				s.change(m, 900, 4000)
				s.work(w, 0, 0, 2)
				got := s.play(w, 3*time.Hour)
				want := w.Host(0, 2) + " planned.overdue"
				if !sameSet(causes(got), []string{want}) {
					t.Fatalf("got\n%swant %s", verdict(got), want)
				}
				due := t0.Add(4600 * time.Second)
				if inc := got[0]; inc.At.Before(due) || inc.At.After(due.Add(time.Hour)) ||
					!strings.Contains(inc.Explanation, "window mw-1 by li ended at "+t0.Add(4000*time.Second).Format(windowTime)) {
					t.Errorf("at %s: %s", inc.At, inc.Explanation)
				}
			})
			t.Run("with three servers that do not return", func(t *testing.T) {
				s := &scene{}
				s.declare("w1", -3600, -60, 4000, rack)
				s.work(w, 0, 0, 0, 1, 2)
				got := s.play(w, 3*time.Hour)
				if want := rack + " planned.overdue"; !sameSet(causes(got), []string{want}) {
					t.Errorf("got\n%swant %s", verdict(got), want)
				}
			})
			t.Run("of a long day, with a server that does not return", func(t *testing.T) {
				s := &scene{}
				s.declare("w1", -3600, -60, 10*3600, rack)
				s.work(w, 0, 0, 2)
				for hour := 2; hour < 10; hour++ { // elsewhere life goes on
					s.at(float64(3600*hour), "kmsg", w.Host(1, 0), "host.reboot/clean", schemas.SeverityInfo)
				}
				got := s.play(w, 3*time.Hour)
				if want := w.Host(0, 2) + " planned.overdue"; !sameSet(causes(got), []string{want}) {
					t.Errorf("got\n%swant %s", verdict(got), want)
				}
			})
			t.Run("declared twice, of which one ends early", func(t *testing.T) {
				s := &scene{}
				s.declare("w1", -3600, -60, 4000, rack)
				m := s.declare("w2", -600, -60, 9000, w.Host(0, 2))
				s.declare("w3", -600, -60, 9000, rack)
				s.work(w, 0, 0, 2)
				s.end(m, 1800)
				if got := s.ever(w, 50*time.Minute); len(got) != 0 {
					t.Errorf("planned work opens\n%s", verdict(got))
				}
				got := s.play(w, 3*time.Hour)
				if want := w.Host(0, 2) + " planned.overdue"; !sameSet(causes(got), []string{want}) {
					t.Errorf("got\n%swant %s", verdict(got), want)
				}
			})
			t.Run("that is followed by more work", func(t *testing.T) {
				s := &scene{}
				s.declare("w1", -3600, -60, 4000, rack)
				s.declare("w2", 3900, 4000, 4000+7200, w.Host(0, 2))
				s.work(w, 0, 0, 2)
				s.back(w, 9000, 0, 2)
				if got := s.ever(w, 5*time.Hour); len(got) != 0 {
					t.Errorf("planned work opens\n%s", verdict(got))
				}
			})
			t.Run("that ends early", func(t *testing.T) {
				s := &scene{}
				m := s.declare("w1", -3600, -60, 40000, w.Host(0, 2))
				s.dark(w, 0, 0, 2, false)
				s.end(m, 1800)
				got := s.play(w, 45*time.Minute)
				if want := w.Host(0, 2) + " planned.overdue"; !sameSet(causes(got), []string{want}) {
					t.Errorf("got\n%swant %s", verdict(got), want)
				}
			})
			t.Run("of which a server fails again when it is over", func(t *testing.T) {
				s := &scene{}
				s.declare("w1", -3600, -60, 1500, w.Host(0, 2))
				s.dark(w, 0, 0, 2, false)
				s.back(w, 1200, 0, 2)
				s.dark(w, 1700, 0, 2, false)
				got := s.play(w, 20*time.Minute)
				if len(got) != 1 || !strings.HasPrefix(got[0].RootCause.Resource, w.Host(0, 2)) || got[0].RootCause.Fault == "planned.overdue" {
					t.Errorf("got\n%s", verdict(got))
				}
			})
		})
	}
}

// Work on one feed explains what it does to what hangs on it, and not that a server with
// another feed goes dark.
func TestWorkOnAFeed(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, sh := range []shape{demo, hall, four, lean} {
		w := sh.Build()
		t.Run(w.Name, func(t *testing.T) {
			s := &scene{}
			s.declare("w1", -600, -60, 4000, w.ID("pdu0.0"))
			s.unfeed(w, 0, 0, 0)
			if got := s.ever(w, 10*time.Minute); len(got) != 0 {
				t.Errorf("planned work opens\n%s", verdict(got))
			}
			s.dark(w, 60, 0, 1, false)
			got := s.play(w, 10*time.Minute)
			if len(got) != 1 || !slices.Contains(got[0].Affected, w.Host(0, 1)) {
				t.Errorf("a server with another feed went dark:\n%s", verdict(got))
			}
		})
	}
	w := oneFeed.Build()
	s := &scene{}
	s.declare("w1", -600, -60, 4000, w.ID("pdu0.0"))
	s.blackrack(w, 0, 0)
	for _, inc := range s.ever(w, 10*time.Minute) {
		t.Errorf("what has no other feed may go dark: %s", verdict([]schemas.Incident{inc}))
	}
}

// Our own restart of a server is expected with what it does, and nothing else is.
func TestOurOwnRestartIsExpected(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, sh := range workSites {
		w := sh.Build()
		t.Run(w.Name, func(t *testing.T) {
			s := &scene{}
			s.at(-1, "agent", w.Host(0, 1), "host.reboot/planned", schemas.SeverityInfo)
			s.dark(w, 0, 0, 1, false)
			want := s.dropped(w, -10, 0, 1)
			if got := s.play(w, 10*time.Minute); !sameSet(causes(got), []string{want}) {
				t.Errorf("got\n%swant %s", verdict(got), want)
			}
		})
	}
}

// Whoever may post events may not silence any by them, and what makes no sense silences nothing.
func TestNobodySilencesByPostingAnEvent(t *testing.T) {
	w := demo.Build()
	for name, spoil := range map[string]func(ev *schemas.Event){
		"posted":        func(ev *schemas.Event) { ev.SetAttr(schemas.AttrExternal, "true") },
		"by a caller":   func(ev *schemas.Event) { ev.Source = schemas.SourceAPI },
		"no window":     func(ev *schemas.Event) { delete(ev.Attrs, "window") },
		"no end":        func(ev *schemas.Event) { ev.Attrs["until"] = "soon" },
		"for ever":      func(ev *schemas.Event) { ev.Attrs["until"] = "2999-01-01T00:00:00Z" },
		"unknown work":  func(ev *schemas.Event) { ev.Code = "magic" },
		"unknown place": func(ev *schemas.Event) { ev.Resource = "atlantis" },
	} {
		t.Run(name, func(t *testing.T) {
			s := &scene{}
			s.declare("w1", -600, -60, 4000, w.ID("r0"))
			spoil(&s.events[0])
			s.work(w, 0, 0)
			if got := s.play(w, time.Minute); len(got) == 0 {
				t.Error("it silences a rack")
			}
		})
	}
}

// The zone in which somebody gives the times of a window does not matter.
func TestWindowsOfOtherZones(t *testing.T) {
	w := hall.Build()
	for _, zone := range []string{"+08:00", "-07:00", "Z"} {
		s := &scene{}
		s.declare("w1", -3600, -60, 4000, w.ID("r0"))
		at, err := time.Parse(time.RFC3339, "2026-01-01T00:00:00"+zone)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"from", "until"} {
			when, err := time.Parse(time.RFC3339Nano, s.events[0].Attrs[key])
			if err != nil {
				t.Fatal(err)
			}
			s.events[0].Attrs[key] = when.In(at.Location()).Format(time.RFC3339Nano)
		}
		s.work(w, 0, 0)
		if got := s.ever(w, 3*time.Hour); len(got) != 0 {
			t.Errorf("%s: planned work opens\n%s", zone, verdict(got))
		}
	}
}

// Windows outlive a crash at any moment: what is open afterwards is what is open without it.
func TestWindowsOutliveACrash(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, sh := range []shape{demo, hall, oneFeed} {
		w := sh.Build()
		s := &scene{}
		s.declare("w1", -3600, -60, 4000, w.ID("r0"))
		s.work(w, 0, 0, 2)
		s.dropped(w, 120, 0, 1)
		s.sorted()
		want := causes(final(w.Topology, s, 3*time.Hour))
		for cut := 1; cut <= len(s.events); cut += max(1, len(s.events)/7) {
			for _, later := range []time.Duration{0, 90 * time.Minute} {
				t.Run(fmt.Sprintf("%s/%d of %d events/%s", w.Name, cut, len(s.events), later), func(t *testing.T) {
					one := NewEngine(propagation.Default(), w.Topology, nil)
					for i := range s.events[:cut] {
						one.Add(&s.events[i])
					}
					if cut == len(s.events) {
						one.Advance(one.Now().Add(later))
					}
					one.Flush()
					live := one.Live()
					var kept []schemas.Event
					for _, ev := range s.events[:cut] {
						if live[ev.ID] {
							kept = append(kept, ev)
						}
					}
					var open []schemas.Incident
					for _, inc := range last(one.Drain()) {
						if inc.Closed == nil {
							open = append(open, inc)
						}
					}
					two := NewEngine(propagation.Default(), w.Topology, nil)
					two.Restore(kept, open)
					for _, inc := range last(two.Drain()) {
						if inc.Closed != nil || inc.MergedInto != "" {
							t.Errorf("the restart closes %s", verdict([]schemas.Incident{inc}))
						}
					}
					for i := range s.events[cut:] {
						two.Add(&s.events[cut+i])
					}
					two.Advance(s.events[len(s.events)-1].Observed.Add(3 * time.Hour))
					two.Flush()
					state := map[string]schemas.Incident{}
					for _, inc := range append(open, two.Drain()...) {
						state[inc.ID] = inc
					}
					var got []schemas.Incident
					for _, inc := range state {
						if inc.MergedInto == "" && len(inc.Events) > 0 {
							got = append(got, inc)
						}
					}
					if !sameSet(causes(got), want) {
						t.Errorf("got\n%swant %q", verdict(got), want)
					}
				})
			}
		}
	}
}

// named says whether a window of the built-in record may explain an event.
func named(m *propagation.Model, ev *schemas.Event) bool {
	sign := m.Match(ev.Type, ev.Code, ev.Severity)
	for i := range m.Faults {
		f := &m.Faults[i]
		if f.Window != propagation.During {
			continue
		}
		for _, c := range f.Classes {
			if sign >= 0 && c.Sign == sign {
				return true
			}
		}
	}
	return false
}

// Whatever is drawn, and wherever and whenever work is declared: an incident whose signs no
// window explains stays, with its cause; and what resources are called does not matter.
func TestAWindowHidesNothingThatItDoesNotExplain(t *testing.T) {
	racetest.OneGoroutine(t)
	m := propagation.Default()
	kept := 0
	for i, sh := range []shape{demo, four, oneFeed} {
		for seed := range uint64(2) {
			if sh.Racks*sh.Servers > 24 {
				sh = sh.Sized(24)
			}
			w := sh.Build()
			st, err := stormgen.Draw(w.Topology, stormgen.Options{Seed: seed + 10*uint64(i), Profile: stormgen.Overlap, Half: stormgen.Tuned, Faults: 4})
			if err != nil {
				t.Fatal(err)
			}
			byID := map[string]*schemas.Event{}
			for k := range st.Events {
				byID[st.Events[k].ID] = &st.Events[k]
			}
			without := final(st.Topology, &scene{events: st.Events}, 2*time.Minute)
			rng := rand.New(rand.NewPCG(seed, 3))
			s := &scene{}
			first, last := st.Events[0].Observed, st.Events[len(st.Events)-1].Observed
			for k := range 4 {
				places := []string{w.ID("r%d", rng.IntN(w.Racks)), w.Host(rng.IntN(w.Racks), rng.IntN(w.Servers)), w.ID("dc")}
				from := first.Add(time.Duration(rng.Int64N(int64(last.Sub(first)))))
				win := schemas.Maintenance{
					ID: fmt.Sprint("w", k), Resources: []string{places[k%3]}, Work: schemas.WorkMaintenance, By: "li", Source: schemas.SourceOperator,
					Declared: first, From: from, Until: from.Add(time.Duration(1+rng.IntN(6)) * time.Hour), GraceSeconds: 600,
				}
				s.events = append(s.events, win.Events()...)
			}
			s.events = append(s.events, st.Events...)
			with := final(st.Topology, s, 2*time.Minute)
			have := causes(with)
			for _, inc := range without {
				if slices.ContainsFunc(inc.Events, func(id string) bool { return named(m, byID[id]) }) {
					continue
				}
				kept++
				if !slices.Contains(have, inc.RootCause.Resource+" "+inc.RootCause.Fault) {
					t.Errorf("%s, seed %d: windows hide %sof\n%s", sh.Name, seed, verdict([]schemas.Incident{inc}), verdict(with))
				}
			}
			call := func(id string) string { return "x-" + schemas.EventID(id, "", "") }
			topology, events := renamed(st.Topology, s.events, call)
			var want []string
			for _, inc := range with {
				want = append(want, call(inc.RootCause.Resource)+" "+inc.RootCause.Fault)
			}
			if got := causes(final(topology, &scene{events: events}, 2*time.Minute)); !sameSet(got, want) {
				t.Errorf("%s, seed %d: under other names %q, want %q", sh.Name, seed, got, want)
			}
		}
	}
	if kept < 5 {
		t.Errorf("%d incidents only have nothing that a window explains", kept)
	}
}

// renamed calls everything otherwise.
func renamed(t *schemas.Topology, events []schemas.Event, call func(string) string) (*schemas.Topology, []schemas.Event) {
	out := &schemas.Topology{Version: t.Version}
	known := map[string]bool{}
	name := func(id string) string {
		if id == "" {
			return ""
		}
		return call(id)
	}
	for _, r := range t.Resources {
		known[r.ID] = true
		r.ID, r.Parent = name(r.ID), name(r.Parent)
		out.Resources = append(out.Resources, r)
	}
	for _, l := range t.Links {
		l.From, l.To = name(l.From), name(l.To)
		out.Links = append(out.Links, l)
	}
	for _, w := range t.Workloads {
		known[w.ID] = true
		w.ID, w.Resources = name(w.ID), slices.Clone(w.Resources)
		for i := range w.Resources {
			w.Resources[i] = name(w.Resources[i])
		}
		out.Workloads = append(out.Workloads, w)
	}
	var told []schemas.Event
	for _, ev := range events {
		ev.Resource, ev.Attrs = name(ev.Resource), maps.Clone(ev.Attrs)
		for k, v := range ev.Attrs {
			if known[v] {
				ev.Attrs[k] = name(v)
			}
		}
		told = append(told, ev)
	}
	return out, told
}

// A process may hear of a window before it has read the inventory that has the resource.
func TestAWindowWaitsForTheInventory(t *testing.T) {
	w := demo.Build()
	s := &scene{}
	s.declare("w1", -3600, -60, 4000, w.ID("r0"))
	s.work(w, 0, 0)
	s.sorted()
	e := NewEngine(propagation.Default(), &schemas.Topology{Version: 1}, nil)
	e.Add(&s.events[0])
	e.SetTopology(w.Topology)
	for i := range s.events[1:] {
		e.Add(&s.events[1+i])
	}
	e.Advance(e.Now().Add(3 * time.Hour))
	e.Flush()
	if got := e.Drain(); len(got) != 0 {
		t.Errorf("planned work opens\n%s", verdict(got))
	}
}

// A record of the site makes a kind of work, which explains what it names and no more.
func TestAKindOfWorkOfTheSite(t *testing.T) {
	m, err := propagation.Parse("recabling.yaml", []byte(`fault: planned.recabling
harmless: true
window: during
kinds: [switch]
prior: -4
shows:
  - {sign: work_declared}
  - {sign: port_down, at: "down:port", within: 1m, before: 1m}
  - {sign: port_down, at: "down:port > net:port", within: 1m, before: 1m}
`))
	if err != nil {
		t.Fatal(err)
	}
	if works, kinds := m.Works(); !slices.Contains(works, "recabling") || !slices.Equal(kinds["recabling"], []string{"switch"}) {
		t.Errorf("works are %v, %v", works, kinds)
	}
	w := demo.Build()
	s := &scene{}
	s.declare("w1", -600, -60, 4000, w.ID("leaf0.0"))
	s.events[0].Code = "recabling"
	s.at(0, "gnmi", w.ID("leaf0.0/e0.1.0"), "port.down", failed, up)
	s.at(0, "gnmi", w.ID("leaf0.0/up0"), "port.down", failed, up)
	s.at(300, "collector", w.ID("leaf0.0"), "switch.unreachable", critical, up)
	s.at(420, "gnmi", w.ID("leaf0.0"), "switch.reboot", warned)
	e := NewEngine(m, w.Topology, nil)
	for i := range s.events {
		e.Add(&s.events[i])
	}
	e.Advance(e.Now().Add(5 * time.Minute))
	e.Flush()
	got := last(e.Drain())
	if want := []string{w.ID("leaf0.0") + " network.switch_failure"}; !sameSet(causes(got), want) || len(got[0].Events) != 2 {
		t.Errorf("got\n%swant %q with two events", verdict(got), want)
	}
}

// A job that stops because its server is worked on is no error of the job, also if it was
// started after the window was declared; a job next door that crashes is.
func TestJobsOfServersThatAreWorkedOn(t *testing.T) {
	for _, sh := range []shape{demo, four, oneFeed} {
		w := sh.Build()
		t.Run(w.Name, func(t *testing.T) {
			job := func(id string, r int) schemas.Workload {
				return schemas.Workload{ID: id, Resources: []string{w.Host(r, 0), w.Host(r, 1)}, Start: t0.Add(-10 * time.Minute), Attrs: map[string]string{"owner": "ada"}}
			}
			w.Topology.Workloads = []schemas.Workload{job("job-1", 0), job("job-2", 1)}
			s := &scene{}
			s.declare("w1", -3600, -60, 4000, w.ID("r0"))
			s.work(w, 0, 0)
			for k, r := range []int{0, 1} {
				id := fmt.Sprint("job-", k+1)
				s.at(40, "agent", w.Host(r, 1), "workload.comm_timeout", failed, "workload="+id)
				s.at(60, "scheduler", id, "workload.failed/1", failed)
			}
			if got := s.play(w, 2*time.Minute); !sameSet(causes(got), []string{"job-2 workload.error"}) {
				t.Errorf("got\n%swant an error of job-2", verdict(got))
			}
		})
	}
}

// A window over a whole site ties nothing together that was not: the work stays that of the
// incidents.
func TestAWindowOverASiteCostsLittle(t *testing.T) {
	w := demo.Sized(24).Build()
	st, err := stormgen.Draw(w.Topology, stormgen.Options{Seed: 1, Profile: stormgen.Big, Half: stormgen.Tuned, Faults: 6, Noise: 10})
	if err != nil {
		t.Fatal(err)
	}
	steps := func(windows ...schemas.Event) uint64 {
		e := NewEngine(propagation.Default(), st.Topology, nil)
		for _, ev := range append(windows, st.Events...) {
			e.Add(&ev)
		}
		e.Flush()
		return e.Stats().Steps
	}
	first := st.Events[0].Observed
	m := schemas.Maintenance{
		ID: "w1", Resources: []string{w.ID("dc")}, Work: schemas.WorkMaintenance, By: "li", Source: schemas.SourceOperator,
		Declared: first, From: first, Until: first.Add(300 * time.Hour),
	}
	without, with := steps(), steps(m.Events()...)
	t.Logf("%d steps, %d without the window", with, without)
	if with > 2*without {
		t.Errorf("%d steps, %d without the window", with, without)
	}
}

// TestAnIncidentSaysInWhichWindowItBeganAlsoWhereThatIsHeardLater: events and windows come
// over ways of their own.
func TestAnIncidentSaysInWhichWindowItBeganAlsoWhereThatIsHeardLater(t *testing.T) {
	for _, w := range []*site{small.Build(), hall.Build(), unfed.Build()} {
		t.Run(w.Name, func(t *testing.T) {
			s := &scene{}
			s.at(10, "kmsg", w.ID("s0.1/gpu0"), "gpu.xid/79", critical)
			s.declare("w1", 20, 0, 3600, w.ID("r0"))
			got := s.play(w, time.Minute)
			if len(got) != 1 || got[0].RootCause.Fault != "gpu.fallen_off_bus" || !strings.Contains(got[0].Explanation, "w1") {
				t.Errorf("the window is missing in\n%s", verdict(got))
			}
		})
	}
}

package correlator

import (
	"fmt"
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

// toldTwice lists causes that were told in an incident although another one of the cause had been taken back or
// merged while it was warm, and counts how often an incident that was taken back or merged went on.
func toldTwice(lines []schemas.Incident) (twice []string, reopened int) {
	over := map[string]time.Time{} // of causes: when it was taken back or merged
	cause, gone := map[string]string{}, map[string]bool{}
	for i := range lines {
		inc := &lines[i]
		if len(inc.Events) == 0 {
			over[cause[inc.ID]], gone[inc.ID] = inc.At, true
			continue
		}
		name := inc.RootCause.Resource + " " + inc.RootCause.Fault
		if gone[inc.ID] {
			reopened++
			delete(gone, inc.ID)
			delete(over, cause[inc.ID])
		}
		if at, ok := over[name]; ok && cause[inc.ID] != name && inc.RootCause.Fault != schemas.FaultUnknown && inc.At.Sub(at) <= DefaultCloseAfter().Cleared {
			twice = append(twice, inc.ID+" "+name)
		}
		cause[inc.ID] = name
	}
	return twice, reopened
}

// played returns all lines of a scene.
func played(topology *schemas.Topology, s *scene) []schemas.Incident {
	e := NewEngine(propagation.Default(), topology, nil)
	for i := range s.events {
		e.Add(&s.events[i])
	}
	e.Advance(e.Now().Add(20 * time.Minute))
	return e.Drain()
}

// history is what lines say, as a failing test prints it.
func history(lines []schemas.Incident) string {
	var b strings.Builder
	for i := range lines {
		inc := &lines[i]
		fmt.Fprintln(&b, inc.At.Format("04:05.000"), inc.ID, inc.RootCause.Resource, inc.RootCause.Fault, inc.RootCause.Confidence,
			len(inc.Events), inc.Closed != nil, inc.MergedInto)
	}
	return b.String()
}

// slowly has what a scene holds arrive late, each source of each device with a delay of its own or, with
// apart, each event.
func (s *scene) slowly(rng *rand.Rand, most float64, apart bool) {
	delay := map[string]time.Duration{}
	for i := range s.events {
		ev := &s.events[i]
		device, _, _ := strings.Cut(ev.Resource, "/")
		key := ev.Source + " " + device
		if apart {
			key = ev.ID
		}
		if _, ok := delay[key]; !ok {
			delay[key] = time.Duration(most * rng.Float64() * float64(time.Second))
		}
		ev.Observed = ev.Observed.Add(delay[key])
	}
	slices.SortStableFunc(s.events, func(a, b schemas.Event) int { return a.Observed.Compare(b.Observed) })
}

// leafFails plays a leaf that dies as agents and its neighbours tell of it, all within a moment.
func (w *scenery) leafFails() {
	for k := range w.Spines {
		port := w.ID("spine%d/d0.0", k)
		w.at(0.3, "gnmi", port, "port.down", failed, up)
		w.at(0.3, "gnmi", port, "bgp.session_down", failed, up)
	}
	for h := range w.Servers {
		for k := 0; k < w.NICs; k += w.Leaves {
			w.at(0.31, "kmsg", w.ID("s0.%d/nic%d", h, k), "nic.down", failed, up)
		}
	}
}

// twoNICs are sites whose servers hang on a leaf with two ports each.
func twoNICs() (out []*site) {
	for _, sh := range []shape{demo, hall, four, lean} {
		sh.Name, sh.Leaves, sh.Spines, sh.NICs, sh.Servers = sh.Name+" with two ports a leaf", 1, max(2, sh.Spines), 2, 8
		out = append(out, sh.Build())
	}
	return out
}

// Two of the servers below a leaf are heard of first, the others a second or two later: at first the leaf is
// as likely as not, then the silence of the others speaks against it.
func TestALeafOfWhichAgentsTellSlowlyIsToldOnce(t *testing.T) {
	for _, w := range twoNICs() {
		t.Run(w.Name, func(t *testing.T) {
			c := &scenery{w, &scene{}}
			c.leafFails()
			for i := range c.events {
				ev := &c.events[i]
				for h, late := range []float64{0.01, 0.25, 0.7, 1.9, 2.4, 2.6, 2.7, 2.8} {
					if strings.HasPrefix(ev.Resource, w.Host(0, h)+"/") {
						ev.Observed = ev.Observed.Add(time.Duration(late * float64(time.Second)))
					}
				}
				if ev.Source == "gnmi" {
					ev.Observed = ev.Observed.Add(2500 * time.Millisecond)
				}
			}
			c.arrive(inOrder)
			lines := played(w.Topology, c.scene)
			if twice, _ := toldTwice(lines); len(twice) > 0 {
				t.Errorf("told twice: %q\n%s", twice, history(lines))
			}
		})
	}
}

// However late the signs of a leaf come, and those of whatever else fails, each cause is told once.
func TestOneCauseIsToldOnceHoweverLateItsSignsCome(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, sh := range stormgen.Shapes() { // those kept out of tuning, too
		t.Run(sh.Name, func(t *testing.T) {
			t.Parallel()
			half := stormgen.Tuned
			if sh.Held {
				half = stormgen.Held
			}
			if sh.Racks*sh.Servers > 24 {
				sh = sh.Sized(24)
			}
			w := sh.Build()
			once := func(topology *schemas.Topology, s *scene) {
				if lines := played(topology, s); len(lines) > 0 {
					if twice, _ := toldTwice(lines); len(twice) > 0 {
						t.Errorf("told twice: %q", twice)
					}
				}
			}
			for seed := range uint64(6) {
				rng := rand.New(rand.NewPCG(seed, 0xa9a1))
				if w.Leaves > 0 && w.Has("leaf0.0") {
					c := &scenery{w, &scene{}}
					c.leafFails()
					c.slowly(rng, []float64{2, 4, 10}[seed%3], seed%2 == 1)
					once(w.Topology, c.scene)
				}
				p := []stormgen.Profile{stormgen.Big, stormgen.Overlap, stormgen.Chain}[seed%3]
				st, err := stormgen.Draw(w.Topology, stormgen.Options{Seed: 500 + seed, Profile: p, Faults: 4, Noise: 20, Half: half})
				if err != nil {
					t.Fatal(err)
				}
				s := &scene{events: st.Events}
				s.slowly(rng, 4, seed%2 == 1)
				once(st.Topology, s)
			}
		})
	}
}

// twoServers plays the ports of two of the servers below a leaf, and later one more port, which are lost or back.
func (w *scenery) twoServers(sec float64, sev schemas.Severity, state string) {
	for h := range 2 {
		for k := range w.NICs {
			w.at(sec+0.01+0.1*float64(h), "kmsg", w.ID("s0.%d/nic%d", h, k), "nic.down", sev, state)
		}
	}
	w.at(sec+3, "kmsg", w.ID("s0.2/nic0"), "nic.down", sev, state)
}

// doubted has an engine tell of a leaf that may as well not have failed, and doubt it. It returns
// the incident as it was last told.
func doubted(t *testing.T, w *site) (*Engine, schemas.Incident) {
	t.Helper()
	e, c := NewEngine(propagation.Default(), w.Topology, nil), &scenery{w, &scene{}}
	c.twoServers(0, failed, up)
	for i := range c.events {
		e.Add(&c.events[i])
	}
	for range 12 {
		e.Advance(e.Now().Add(time.Second))
	}
	lines := e.Drain()
	for i, inc := range lines {
		if inc.ID != lines[0].ID || inc.RootCause.Resource != w.ID("leaf0.0") || len(inc.Events) == 0 || inc.RootCause.Confidence > lines[max(0, i-1)].RootCause.Confidence {
			t.Fatalf("it does not fade:\n%s", history(lines))
		}
	}
	if len(lines) < 2 || lines[0].RootCause.Confidence < 0.4 || lines[len(lines)-1].RootCause.Confidence > 0.2 {
		t.Fatalf("it does not fade:\n%s", history(lines))
	}
	return e, lines[len(lines)-1]
}

// What was told and becomes unlikely stays as long as its signs go on and more may be under way.
func TestWhatIsInDoubtIsTakenBackInTime(t *testing.T) {
	for _, w := range twoNICs() {
		t.Run(w.Name, func(t *testing.T) {
			e, was := doubted(t, w)
			inc := e.open[0]
			inc.doubted = e.Now().Add(-lateRead)
			e.dirty = append(e.dirty, inc.signs[0])
			e.solve()
			e.emitDue(false)
			if lines := e.Drain(); len(lines) != 1 || lines[0].ID != was.ID || lines[0].Closed == nil || len(e.open) > 0 {
				t.Errorf("it is not taken back:\n%s", history(lines))
			}
		})
	}
}

// What comes of a cause soon after it was taken back is the same incident, which says so; what comes after a repair, or
// when it would have been closed, is another.
func TestWhatWasTakenBackGoesOn(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, w := range twoNICs() {
		for name, tc := range map[string]struct {
			again          time.Duration // after the first sign
			repaired, same bool
		}{
			"it comes soon":                {again: 4 * time.Minute, same: true},
			"it comes late":                {again: 25 * time.Minute},
			"it comes after it was mended": {again: 4 * time.Minute, repaired: true},
		} {
			t.Run(w.Name+"/"+name, func(t *testing.T) {
				e, was := doubted(t, w)
				if tc.repaired {
					e.Repaired(was.ID, e.Now())
				}
				c := &scenery{w, &scene{n: 1000}}
				c.twoServers(13, schemas.SeverityInfo, down)
				for i := range c.events {
					e.Add(&c.events[i])
				}
				e.Advance(e.Now().Add(time.Second))
				if lines := e.Drain(); len(lines) == 0 || lines[len(lines)-1].Closed == nil || len(e.open) > 0 {
					t.Fatalf("it is not taken back once its signs have ended:\n%s", history(lines))
				}
				c = &scenery{w, &scene{n: 2000}}
				c.leafFails()
				c.at(1, "collector", w.ID("leaf0.0"), "switch.unreachable", critical, up)
				for i := range c.events {
					ev := &c.events[i]
					ev.Time = ev.Time.Add(tc.again)
					ev.Observed = ev.Time
					e.Add(ev)
				}
				e.Advance(e.Now().Add(2 * time.Minute))
				got := last(e.Drain())
				i := slices.IndexFunc(got, func(inc schemas.Incident) bool { return inc.RootCause.Resource == w.ID("leaf0.0") && inc.Closed == nil })
				if i < 0 {
					t.Fatalf("got\n%s", verdict(got))
				}
				inc := got[i]
				if same := inc.ID == was.ID; same != tc.same || same && inc.Revision <= was.Revision {
					t.Errorf("the same incident: %v\n%s", same, history(got))
				}
				if says := strings.Contains(inc.Explanation, "It was taken back 1 time and goes on."); says != tc.same {
					t.Errorf("it says that it was taken back: %v: %s", says, inc.Explanation)
				}
			})
		}
	}
}

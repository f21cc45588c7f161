// Package stormgen draws storms of events over inventories, with what really
// happened. It runs a plant of machines (power, cooling, networks, servers, GPUs,
// jobs), breaks something, and lets the sources report what they would see of
// the consequences. It knows nothing of how the correlator reasons, so that what
// it draws can be held against it.
package stormgen

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"auspex/schemas"
)

// Profile says what a storm asks.
type Profile string

// The profiles. Chain and Unknown are those that the recorded storms do not have.
const (
	Easy    Profile = "easy"    // one fault at a time
	Big     Profile = "storm"   // faults that take many things down
	Overlap Profile = "overlap" // several at once, in one place or apart
	Dirty   Profile = "dirty"   // alerts lost, late, doubled; clocks, sources and inventory wrong
	Jobs    Profile = "job"     // what jobs say is most of it
	Chain   Profile = "chain"   // one thing leads to another
	Strange Profile = "unknown" // what the correlator has no record of
	Quiet   Profile = "quiet"   // no fault at all
)

// Profiles lists the profiles in the order of reports.
func Profiles() []Profile { return []Profile{Easy, Big, Overlap, Dirty, Jobs, Chain, Strange, Quiet} }

// Half says which scenarios may be drawn.
type Half string

// The halves: what one may tune with, and what is kept out of it.
const (
	Tuned Half = "tuned"
	Held  Half = "held"
	Both  Half = "all"
)

// takes tells whether a half has what is marked as held.
func (h Half) takes(held bool) bool { return h == Both || h == "" || held == (h == Held) }

// Options says what Draw draws.
type Options struct {
	Seed    uint64
	Profile Profile // empty is Easy
	Half    Half
	Faults  int      // episodes; 0 is 12
	Only    []string // names of scenarios; none: those of the profile
	Noise   float64  // events an hour and 64 servers; 0 draws one
	Perturb Perturb  // on top of the profile's
	Replay  bool     // keep what [Observer.Best] needs
	// Start is the time of the beginning; zero is a date in 2026.
	Start time.Time
}

// Storm is what was drawn.
type Storm struct {
	Topology *schemas.Topology
	Events   []schemas.Event // in order of arrival
	Truth    Truth

	drawn   *world  // where it is kept
	perturb Perturb // of the profile too
}

// Draw plays a storm over an inventory. The same options give the same storm.
func Draw(t *schemas.Topology, o Options) (*Storm, error) {
	if o.Profile == "" {
		o.Profile = Easy
	}
	if !slices.Contains(Profiles(), o.Profile) {
		return nil, fmt.Errorf("no profile %q; known are %v", o.Profile, Profiles())
	}
	if !slices.Contains([]Half{"", Tuned, Held, Both}, o.Half) {
		return nil, fmt.Errorf("no half %q; known are %s, %s and %s", o.Half, Tuned, Held, Both)
	}
	list, err := o.scenarios()
	if err != nil {
		return nil, err
	}
	rng := rand.New(rand.NewPCG(o.Seed, 0x5702b5))
	p := newPlant(t)
	if len(p.servers) == 0 {
		return nil, fmt.Errorf("the inventory has no server")
	}
	w := newWorld(p, rng)
	w.crowd()
	n := cmp.Or(o.Faults, 12)
	at, end := 600.0, 0.0
	for range n {
		if o.Profile != Quiet && len(list) > 0 {
			w.after(at, func() { w.episode(o.Profile, list) })
		}
		at += w.span(3000, 6600)
	}
	end = at + 3600
	w.chatter(o, end)
	w.run(end + 7200)
	return w.storm(t, o, end), nil
}

// scenarios returns what may be drawn.
func (o *Options) scenarios() (list []*Scenario, err error) {
	all := Scenarios()
	for i := range all {
		s := &all[i]
		switch {
		case len(o.Only) > 0:
			if slices.Contains(o.Only, s.Name) {
				list = append(list, s)
			}
		case !o.Half.takes(s.Held):
		case o.Profile == Overlap || o.Profile == Dirty:
			if s.Of != beyond && s.Of != chain {
				list = append(list, s)
			}
		case s.plays(string(o.Profile)):
			list = append(list, s)
		}
	}
	if len(o.Only) > 0 && len(list) == 0 {
		return nil, fmt.Errorf("no scenario %q", o.Only[0])
	}
	return list, nil
}

// plays tells whether a profile has a scenario.
func (s *Scenario) plays(profile string) bool {
	for rest := s.Of; rest != ""; {
		for _, p := range []string{bigOne, single, inJob, chain, beyond} {
			if len(rest) >= len(p) && rest[:len(p)] == p {
				if p == profile {
					return true
				}
				rest = rest[len(p):]
			}
		}
	}
	return false
}

// episode plays one fault, or several that overlap.
func (w *world) episode(profile Profile, list []*Scenario) {
	near := w.pick(w.servers)
	if profile == Jobs {
		near = w.busy(4)
	}
	if profile == Overlap && w.p(0.4) && w.pair(list) {
		return
	}
	w.somewhere(list, near)
	if profile != Overlap && (profile != Dirty || w.p(0.7)) {
		return
	}
	for range 1 + w.rng.IntN(2) {
		next := w.pick(w.servers)
		switch j := w.on[near]; {
		case w.p(0.35):
			next = near
		case w.p(0.5):
			next = w.pick(w.neighbourhood(near))
		case j != nil && len(j.servers) > 1 && w.p(0.5):
			next = w.pick(j.servers)
		}
		w.after(w.span(0, 90), func() { w.somewhere(list, next) })
	}
}

// pair plays two faults of which the larger may hide the smaller.
func (w *world) pair(list []*Scenario) bool {
	pairs := [][2]string{
		{"feed trips", "leaf dies"},
		{"air unit fails", "fan fails"},
		{"NVLink of a GPU fails", "GPU memory fails"},
		{"network card floods pauses", "leaf restarts"},
		{"row panel trips", "memory module wears out and fails"},
		{"spine dies", "GPU's cold plate is blocked"},
	}
	named := func(name string) *Scenario {
		if i := slices.IndexFunc(list, func(s *Scenario) bool { return s.Name == name }); i >= 0 {
			return list[i]
		}
		return nil
	}
	for range 10 {
		x := pairs[w.rng.IntN(len(pairs))]
		a, b, near := named(x[0]), named(x[1]), w.busy(2)
		if a == nil || b == nil || w.play(a, near, -1) == nil {
			continue
		}
		w.after(w.span(1, 60), func() {
			next := near
			if j := w.on[near]; j != nil && a.plays(inJob) {
				next = w.pick(j.servers)
			}
			for range 10 {
				if w.play(b, next, -1) != nil {
					return
				}
				next = w.pick(w.neighbourhood(near))
			}
		})
		return true
	}
	return false
}

// somewhere plays one of a list, near a server if the site allows.
func (w *world) somewhere(list []*Scenario, near int) {
	for try := range 40 {
		if w.play(list[w.rng.IntN(len(list))], near, -1) != nil {
			return
		}
		if try > 5 {
			near = w.pick(w.servers)
		}
	}
}

// play breaks what a scenario breaks. It returns nil where the site has no such thing.
func (w *world) play(s *Scenario, near, again int) *Case {
	k := &Case{Scenario: s, n: len(w.cases), root: -1, start: w.now, lasts: w.span(600, 2700), repeatOf: again}
	w.cases = append(w.cases, k)
	if k.near = near; w.again == nil {
		k.jobs = w.atWork()
	}
	if k.root = s.play(w, k, near); k.root < 0 {
		return nil
	}
	for _, o := range w.cases[:k.n] {
		if again < 0 && o.root == k.root && o.id == k.id && o.Fault == k.Fault {
			k.repeatOf = o.n
		}
	}
	return k
}

// storm dates what was said, disturbs it, and tells what it came from.
func (w *world) storm(t *schemas.Topology, o Options, end float64) *Storm {
	start := o.Start
	if start.IsZero() {
		start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(o.Seed%5000) * time.Hour)
	}
	shift := start.Sub(epoch)
	for i := range w.out {
		ev := &w.out[i]
		ev.ID = schemas.EventID(ev.Resource, strconv.FormatUint(o.Seed, 10), strconv.Itoa(i), ev.Source, ev.Type)
		ev.Time = ev.Time.Add(shift)
	}
	out := *t
	out.Workloads = w.workloads()
	for i := range out.Workloads {
		x := &out.Workloads[i]
		x.Start = x.Start.Add(shift)
		if !x.End.IsZero() {
			x.End = x.End.Add(shift)
		}
	}
	q := o.Perturb
	if o.Profile == Dirty {
		q = q.with(Everything)
	}
	lines := w.disturb(q, &out)
	slices.SortStableFunc(lines, func(a, b said) int { return cmp.Compare(a.seen, b.seen) })
	st := &Storm{Topology: &out, Events: make([]schemas.Event, len(lines))}
	if o.Replay {
		st.drawn, st.perturb = w, q
	}
	for i := range lines {
		lines[i].Observed = clockTime(lines[i].seen).Add(shift)
		st.Events[i] = lines[i].Event
	}
	st.Truth = w.truth(o, lines, start, start.Add(time.Duration(end*float64(time.Second))))
	st.Truth.Resources, st.Truth.Servers = len(w.parts), len(w.servers)
	return st
}

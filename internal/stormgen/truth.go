package stormgen

import (
	"iter"
	"slices"
	"time"

	"auspex/schemas"
)

// Truth is what really happened in a storm: never an input of the product.
type Truth struct {
	Version     int       `json:"version"`
	Profile     string    `json:"profile"`
	Start       time.Time `json:"start"`
	End         time.Time `json:"end"`
	Servers     int       `json:"servers"`
	Resources   int       `json:"resources"`
	Lines       int       `json:"lines"`
	EventsTotal int       `json:"events_total"`
	NoiseEvents int       `json:"noise_events"`
	// SharedEvents do not count: nobody can know what they are. They are of two
	// faults, or of noise that lost what showed that it was none, such as the end.
	SharedEvents []string `json:"shared_events"`
	Incidents    []Fault  `json:"incidents"`
}

// Fault is one cause with all that came of it.
type Fault struct {
	ID       string  `json:"id"`
	Fault    string  `json:"fault"`
	Resource string  `json:"resource"`
	Scenario string  `json:"scenario,omitempty"`
	Accept   []Blame `json:"accept"`
	// RootScored is false where no event that is left points at the cause, and where
	// the right answer is that nothing known fits.
	RootScored bool `json:"root_scored"`
	// Unknown says that the right answer is the fault "unknown".
	Unknown        bool      `json:"unknown,omitempty"`
	Start          time.Time `json:"start"`
	FirstArrival   time.Time `json:"first_arrival"`
	SymptomArrival time.Time `json:"symptom_arrival"` // of the first event of severity error or critical
	LastArrival    time.Time `json:"last_arrival"`
	RepeatOf       string    `json:"repeat_of,omitempty"` // merging both is neither right nor wrong
	Events         []string  `json:"events"`
	Affected       []string  `json:"affected"`
	Workloads      []string  `json:"workloads"`
}

// Alone yields each fault of a storm by itself: its own events over the same site, with neither noise nor
// another fault. What is right alone and wrong in the storm was lost to its neighbours; what is
// wrong alone cannot be told from its events, or is modelled wrongly.
func (st *Storm) Alone() iter.Seq[*Storm] {
	return func(yield func(*Storm) bool) {
		for i := range st.Truth.Incidents {
			f := st.Truth.Incidents[i]
			own := map[string]bool{}
			for _, id := range f.Events {
				own[id] = true
			}
			f.RepeatOf = "" // what it repeats is not there
			one := &Storm{Topology: st.Topology, Truth: st.Truth}
			for k := range st.Events {
				if own[st.Events[k].ID] {
					one.Events = append(one.Events, st.Events[k])
				}
			}
			one.Truth.Incidents, one.Truth.Lines, one.Truth.EventsTotal, one.Truth.NoiseEvents = []Fault{f}, len(one.Events), len(own), 0
			if !yield(one) {
				return
			}
		}
	}
}

func caseID(n int) string { return "f" + itoa(n+1) }

// truth tells what the lines that are left came from.
func (w *world) truth(o Options, lines []said, start, end time.Time) Truth {
	tr := Truth{Version: 1, Profile: string(o.Profile), Start: start, End: end, Lines: len(lines), SharedEvents: []string{}}
	torn := w.torn(lines)
	seen := map[string]bool{}
	byCase := map[int][]*said{}
	for i := range lines {
		ev := &lines[i]
		if seen[ev.ID] {
			continue
		}
		seen[ev.ID] = true
		tr.EventsTotal++
		if ev.cause < 0 {
			tr.NoiseEvents++
			if torn[ev.cause] {
				tr.SharedEvents = append(tr.SharedEvents, ev.ID)
			}
			continue
		}
		if ev.job != nil && ev.job.both {
			tr.SharedEvents = append(tr.SharedEvents, ev.ID)
		}
		byCase[ev.cause] = append(byCase[ev.cause], ev)
	}
	for _, k := range w.cases {
		if list := byCase[k.n]; len(list) > 0 && k.root >= 0 {
			f := w.fault(k, list, start)
			if _, ok := byCase[k.repeatOf]; !ok {
				f.RepeatOf = ""
			}
			tr.Incidents = append(tr.Incidents, f)
		}
	}
	if tr.Incidents == nil {
		tr.Incidents = []Fault{}
	}
	return tr
}

// torn returns the occasions of noise of which not all arrived, or not in time.
func (w *world) torn(lines []said) map[int]bool {
	left := map[int]int{}
	for i := range w.out {
		if w.out[i].cause < 0 {
			left[w.out[i].cause]++
		}
	}
	late := map[int]bool{}
	seen := map[string]bool{}
	for i := range lines {
		ev := &lines[i]
		if ev.cause < 0 && !seen[ev.ID] {
			seen[ev.ID] = true
			left[ev.cause]--
			late[ev.cause] = late[ev.cause] || ev.late
		}
	}
	for c, n := range left {
		if n > 0 {
			late[c] = true
		}
	}
	return late
}

func (w *world) fault(k *Case, list []*said, start time.Time) Fault {
	f := Fault{
		ID: caseID(k.n), Fault: k.Fault, Resource: k.id, Scenario: k.Name, Unknown: k.Fault == Unknown,
		Start: start.Add(time.Duration(k.start * float64(time.Second))), Workloads: append([]string{}, k.workloads...), Affected: []string{},
	}
	if f.Resource == "" {
		f.Resource = w.parts[k.root].id
	}
	if k.repeatOf >= 0 {
		f.RepeatOf = caseID(k.repeatOf)
	}
	f.Accept = append([]Blame{{f.Resource, f.Fault}}, k.accept...)
	if f.Unknown {
		for _, p := range w.sameAs(k.root) {
			f.Accept = append(f.Accept, Blame{w.parts[p].id, f.Fault})
		}
	}
	named := false
	points := w.pointsAt(k)
	affected := map[string]bool{}
	for i, ev := range list {
		f.Events = append(f.Events, ev.ID)
		if i == 0 {
			f.FirstArrival = ev.Observed
		}
		f.LastArrival = ev.Observed
		if ev.Severity.Rank() >= 2 && f.SymptomArrival.IsZero() {
			f.SymptomArrival = ev.Observed
		}
		if ev.Severity.Rank() >= 1 {
			named = named || ev.Resource == f.Resource
			f.RootScored = f.RootScored || points(ev)
		}
		if ev.device >= 0 && w.parts[ev.device].kind == schemas.KindServer {
			affected[w.parts[ev.device].id] = true
		}
	}
	if f.SymptomArrival.IsZero() {
		f.SymptomArrival = f.FirstArrival
	}
	for id := range affected {
		f.Affected = append(f.Affected, id)
	}
	slices.Sort(f.Affected)
	if !named {
		f.Accept = append(f.Accept, k.silent...)
	}
	f.RootScored = f.RootScored && !f.Unknown
	return f
}

// sameAs returns the parts of a holder of servers that hold all of its servers, such as the only row of
// a site: the smallest resource that holds what was hit is one of them.
func (w *world) sameAs(holder int) (out []int) {
	held := map[int]int{}
	for _, s := range w.servers {
		var path []int
		p := w.parts[s].parent
		for ; p >= 0 && p != holder; p = w.parts[p].parent {
			path = append(path, p)
		}
		if p != holder {
			continue
		}
		held[holder]++
		for _, p := range path {
			held[p]++
		}
	}
	for p, n := range held {
		if p != holder && n == held[holder] {
			out = append(out, p)
		}
	}
	slices.Sort(out)
	return out
}

// pointsAt tells of an event whether it says anything about a case's root: it
// comes from the root, what is part of it, or what hangs on it.
func (w *world) pointsAt(k *Case) func(*said) bool {
	if k.id != "" {
		return func(ev *said) bool { return true }
	}
	near := map[string]bool{}
	add := func(i int) { w.under(i, func(p int) { near[w.parts[p].id] = true }) }
	add(k.root)
	r := &w.parts[k.root]
	switch r.kind {
	case schemas.KindPDU:
		for _, s := range w.fedBy(k.root) {
			add(s)
		}
		for _, l := range r.loads {
			add(l)
		}
	case schemas.KindCRAC:
		for _, d := range w.served(k.root) {
			add(d)
		}
	case schemas.KindSwitch:
		for _, e := range w.ports(k.root) {
			for _, l := range w.parts[e].links {
				o := w.peer(l, e)
				near[w.parts[o].id] = true
				if d := w.parts[o].dev; d >= 0 {
					near[w.parts[d].id] = true
				}
			}
		}
	default:
		if r.dev >= 0 && len(k.silent)+len(k.accept) > 0 { // another answer than the part itself will do
			near[w.parts[r.dev].id] = true
		}
		for _, l := range r.links {
			near[w.parts[w.peer(l, k.root)].id] = true
		}
		if r.kind == schemas.KindNVSwitch || r.kind == schemas.KindPCIeSwitch {
			for _, o := range append(slices.Clone(r.nv), r.pcie...) {
				near[w.parts[o].id] = true
			}
		}
	}
	return func(ev *said) bool { return near[ev.Resource] }
}

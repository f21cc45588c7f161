package fleet

import (
	"strings"
	"time"

	"auspex/schemas"
)

// State of a thing on the screens; its number is the digit that the API sends.
type State uint8

// The states. When several apply, the one that [State.worse] prefers wins.
const (
	OK State = iota
	Warning
	Critical
	Affected
	Predicted
	Acting
	Out
	Unknown
)

var rank = [...]int{OK: 0, Out: 1, Predicted: 2, Acting: 3, Warning: 4, Affected: 5, Unknown: 6, Critical: 7}

func (s State) worse(o State) State {
	if rank[o] > rank[s] {
		return o
	}
	return s
}

// Facts is what is known beside the inventory.
type Facts struct {
	Incidents   []schemas.Incident   // open ones
	Predictions []schemas.Prediction // open ones
	Actions     []schemas.Action     // newest first
	Silent      map[string]string    // device → the kind of contact that is lost: host, bmc or switch
	Readings    map[string]Reading   // by server
}

// Reading is what a server measures now. Nil is not known.
type Reading struct {
	Temperature *float64 // °C, the hottest GPU
	Power       *float64 // W
	Load        *float64 // 0 to 100 %
}

// States is the state of every resource that is not healthy, and what follows
// from them.
type States struct {
	of     map[string]State
	acting map[string]bool // servers that are worked on
	out    map[string]bool // servers that were taken out
	silent map[string]bool // servers whose host does not answer
	risk   map[string]float64
	marked map[string]bool // servers of which an incident names single GPUs
}

// Live reports whether an action changes a machine now.
func Live(a schemas.Action) bool {
	if a.Mode == schemas.ModeDryRun || a.Mode == schemas.ModeObserve {
		return false
	}
	return a.State == schemas.ActionRunning || a.State == schemas.ActionVerifying
}

// Repaired returns the incidents that an action works on now.
func Repaired(actions []schemas.Action) map[string]bool {
	out := make(map[string]bool)
	for _, a := range actions {
		if Live(a) && a.Incident != "" {
			out[a.Incident] = true
		}
	}
	return out
}

// States derives the states of a moment.
func (x *Index) States(f Facts) *States {
	s := &States{
		of: make(map[string]State), acting: make(map[string]bool), out: make(map[string]bool), silent: make(map[string]bool),
		risk: make(map[string]float64), marked: make(map[string]bool),
	}
	put := func(id string, st State) {
		s.of[id] = s.of[id].worse(st)
		if r, _ := x.Resource(id); r.Kind == schemas.KindGPU {
			s.marked[x.Device(id)] = true
		}
	}
	for _, i := range f.Incidents {
		if strings.HasPrefix(i.RootCause.Fault, "workload.") {
			continue // no hardware is at fault, and none is ill
		}
		root := Critical
		if i.Severity == schemas.SeverityWarning || i.Severity == schemas.SeverityInfo {
			root = Warning
		}
		put(i.RootCause.Resource, root)
		for _, a := range i.Affected {
			if a != i.RootCause.Resource && !strings.HasPrefix(i.RootCause.Resource, a+"/") {
				put(a, Affected)
			}
		}
	}
	for _, p := range f.Predictions {
		put(p.Resource, Predicted)
		d := x.Device(p.Resource)
		s.risk[d] = max(s.risk[d], p.Probability*100)
	}
	decided := make(map[string]bool)
	for _, a := range f.Actions {
		if Live(a) {
			s.acting[a.Server] = true
		}
		if !decided[a.Server] && a.State == schemas.ActionDone && !a.Person && a.Mode != schemas.ModeDryRun && a.Mode != schemas.ModeObserve {
			decided[a.Server] = true // the newest step that was done says whether it is in or out
			s.out[a.Server] = a.Kind == "quarantine"
		}
	}
	for d, kind := range f.Silent {
		if kind == "bmc" {
			put(d, Warning)
			continue
		}
		s.silent[d] = true
	}
	return s
}

// Of returns the state of one resource by itself.
func (s *States) Of(id string) State { return s.of[id] }

// Risk returns the chance in percent that a part of a device fails within its horizon.
func (s *States) Risk(device string) float64 { return s.risk[device] }

// Server returns the state of a server and one digit a GPU.
func (s *States) Server(x *Index, srv Server) (State, string) {
	whole := OK
	switch {
	case s.acting[srv.ID]:
		whole = Acting
	case s.out[srv.ID]:
		whole = Out
	case s.silent[srv.ID]:
		whole = Unknown
	}
	own := s.of[srv.ID]
	digit := make([]byte, len(srv.GPUs))
	state := own
	for g, id := range srv.GPUs {
		st := s.of[id]
		if st == OK && !s.marked[srv.ID] && (own == Affected || own == Critical) {
			st = Affected
		}
		state = state.worse(st)
		if whole != OK {
			st = whole
		}
		digit[g] = '0' + byte(st)
	}
	state = s.worst(x, srv.ID, state)
	if whole == Acting || whole == Out { // what is done about it says more than what was wrong
		state = whole
	}
	return state.worse(whole), string(digit)
}

// worst is a state, or that of a part of a device which is worse.
func (s *States) worst(x *Index, device string, st State) State {
	if len(s.of) > 0 {
		for id := range x.Below(device) {
			st = st.worse(s.of[id])
		}
	}
	return st
}

// Device returns the state of a server or a switch.
func (s *States) Device(x *Index, id string) State {
	if at, ok := x.server[id]; ok {
		st, _ := s.Server(x, x.Servers[at])
		return st
	}
	st := s.worst(x, id, s.of[id])
	if s.silent[id] {
		st = st.worse(Unknown)
	}
	return st
}

// Servers returns the state of every server, in the order of the index.
func (s *States) Servers(x *Index) (states []State, gpus []string) {
	states, gpus = make([]State, len(x.Servers)), make([]string, len(x.Servers))
	if len(s.of) == 0 && len(s.acting) == 0 && len(s.out) == 0 && len(s.silent) == 0 {
		for i, srv := range x.Servers {
			gpus[i] = strings.Repeat("0", len(srv.GPUs))
		}
		return states, gpus
	}
	touched := make(map[string]bool, len(s.of))
	for id := range s.of {
		touched[x.Device(id)] = true
	}
	for i, srv := range x.Servers {
		if !touched[srv.ID] && !s.acting[srv.ID] && !s.out[srv.ID] && !s.silent[srv.ID] {
			gpus[i] = strings.Repeat("0", len(srv.GPUs))
			continue
		}
		states[i], gpus[i] = s.Server(x, srv)
	}
	return states, gpus
}

// Bins counts things over time in fixed steps, for the last hours.
type Bins struct {
	step  time.Duration
	count []int
	last  int64 // number of the newest bin
}

// NewBins returns bins of a step over a span.
func NewBins(step, span time.Duration) *Bins {
	return &Bins{step: step, count: make([]int, int(span/step))}
}

// Add counts one thing at a time. What is older than the span is not counted.
func (b *Bins) Add(at, now time.Time) {
	b.advance(now)
	n := at.UnixNano() / int64(b.step)
	if n > b.last-int64(len(b.count)) && n <= b.last {
		b.count[n%int64(len(b.count))]++
	}
}

func (b *Bins) advance(now time.Time) {
	n := now.UnixNano() / int64(b.step)
	for b.last < n {
		if n-b.last > int64(len(b.count)) {
			b.last = n - int64(len(b.count))
		}
		b.last++
		b.count[b.last%int64(len(b.count))] = 0
	}
}

// Counts returns the bins from the oldest to the newest, and when the oldest begins.
func (b *Bins) Counts(now time.Time) (start time.Time, counts []int) {
	b.advance(now)
	n := int64(len(b.count))
	counts = make([]int, 0, n)
	for k := b.last - n + 1; k <= b.last; k++ {
		counts = append(counts, b.count[k%n])
	}
	return time.Unix(0, (b.last-n+1)*int64(b.step)).UTC(), counts
}

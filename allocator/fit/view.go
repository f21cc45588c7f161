package fit

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"

	"auspex/schemas"
)

// maxGPUs is how many GPUs a server may have: they are the bits of a word.
const maxGPUs = 64

// Health of a server, the best first.
type Health uint8

// The healths. A wish may ask for OK or Warning; what is worse is given to nobody.
const (
	OK Health = iota
	Warning
	Critical
	Unknown // nobody reads it
)

var healths = [...]string{OK: "ok", Warning: "warning", Critical: "critical", Unknown: "unknown"}

// String is the name of a health in the API.
func (h Health) String() string { return healths[min(h, Unknown)] }

// Server is what a view is told of one server.
type Server struct {
	Name, Model, Pool string
	Status            string // of schemas.ServerLife
	Labels            map[string]string

	Site, Row, Rack string
	Feeds           []string // names of its PDUs
	Leaves          []string // leaf switches that it is cabled to; those with the same are on one rail group
	NVLink          string   // its NVLink domain, where that is more than the server itself

	Bare      bool   // it has no system
	Hold      string // why it is given to nobody; "" is no hold
	Case      string // what control has open on it; "" is nothing
	Health    Health
	HealthWhy string // id of the sentence that says why; "" where it is well

	Risks  []Risk
	Failed time.Time // when a part of it failed last; zero is never, as far as known

	GPUs     []GPU
	Bookings []Booking
}

// GPU is a GPU of a server.
type GPU struct {
	Name, Model string
	MemoryGB    float64 // 0 is not known
	Status      string  // of schemas.GPULife
}

// Booking is a time in which GPUs of a server, or the server with all of them, are somebody's.
type Booking struct {
	Whole       bool
	GPUs        []string // names; of a whole server none are needed
	From, Until time.Time
}

// Risk is a prediction of a failure: probability within (Made, Horizon], and when, if it comes.
type Risk struct {
	Part, Failure string
	Probability   float64
	Made, Horizon time.Time
	P10, P50, P90 time.Time // of the time of the failure; zero is not known
}

// View is the servers and GPUs that there are to choose from. It takes about 900 bytes a server with
// eight GPUs. Its owner guards it: a choice reads it and changes nothing.
type View struct {
	rows  []row
	order []int32 // rows by name
	at    map[string]int32
	spare []int32

	symbols []string
	ids     map[string]sym
}

// sym stands for a text of the view; 0 is the empty one.
type sym uint32

type row struct {
	name                string
	model, pool, status sym
	site, aisle, rack   sym
	rail, nvlink        sym
	power               sym // the set of its feeds
	feeds, leaves       []sym
	labels              []label

	bare            bool
	hold, open, why string
	health          Health
	failed          int64 // ns; 0 is never
	risks           []Risk

	gpus     []string
	kinds    []kind
	all      uint64 // GPUs that there are
	broken   uint64 // in error
	stuck    uint64 // not available, and no booking says until when
	bookings []booking
}

type label struct{ key, value sym }

// kind is GPUs of a server that are alike.
type kind struct {
	model, status sym
	memory        float64
	mask          uint64
}

type booking struct {
	from, until int64 // ns
	mask        uint64
	whole       bool
}

// NewView returns an empty view.
func NewView() *View {
	return &View{at: map[string]int32{}, ids: map[string]sym{"": 0}, symbols: []string{""}}
}

// Len is the number of servers.
func (v *View) Len() int { return len(v.order) }

func (v *View) id(s string) sym {
	id, ok := v.ids[s]
	if !ok {
		id = sym(len(v.symbols))
		v.symbols, v.ids[s] = append(v.symbols, s), id
	}
	return id
}

// known is the symbol of a text; one that no server has is nobody's.
func (v *View) known(s string) sym {
	if id, ok := v.ids[s]; ok {
		return id
	}
	return math.MaxUint32
}

func (v *View) syms(of []string) []sym {
	if len(of) == 0 {
		return nil
	}
	out := make([]sym, len(of))
	for i, s := range of {
		out[i] = v.id(s)
	}
	return out
}

func (v *View) texts(of []sym) []string {
	var out []string
	for _, s := range of {
		out = append(out, v.symbols[s])
	}
	return out
}

// set is the symbol of names in any order.
func (v *View) set(of []string) sym {
	of = slices.Compact(slices.Sorted(slices.Values(of)))
	return v.id(strings.Join(of, " + "))
}

// Put adds a server, or replaces the one of its name.
func (v *View) Put(s Server) error {
	if s.Name == "" || len(s.GPUs) > maxGPUs {
		return fmt.Errorf("server %q with %d GPUs: it needs a name, and has at most %d GPUs", s.Name, len(s.GPUs), maxGPUs)
	}
	r := row{
		name: s.Name, model: v.id(s.Model), pool: v.id(s.Pool), status: v.id(s.Status),
		site: v.id(s.Site), aisle: v.id(s.Row), rack: v.id(s.Rack), rail: v.set(s.Leaves), nvlink: v.id(s.NVLink),
		power: v.set(s.Feeds), feeds: v.syms(slices.Compact(slices.Sorted(slices.Values(s.Feeds)))), leaves: v.syms(s.Leaves),
		bare: s.Bare, hold: s.Hold, open: s.Case, why: s.HealthWhy, health: s.Health, risks: slices.Clone(s.Risks),
	}
	if !s.Failed.IsZero() {
		r.failed = s.Failed.UnixNano()
	}
	for k, value := range s.Labels {
		r.labels = append(r.labels, label{v.id(k), v.id(value)})
	}
	for i, g := range s.GPUs {
		bit := uint64(1) << i
		r.gpus, r.all = append(r.gpus, g.Name), r.all|bit
		k := kind{v.id(g.Model), v.id(g.Status), g.MemoryGB, bit}
		if at := slices.IndexFunc(r.kinds, func(o kind) bool { return o.model == k.model && o.status == k.status && o.memory == k.memory }); at >= 0 {
			r.kinds[at].mask |= bit
		} else {
			r.kinds = append(r.kinds, k)
		}
		switch g.Status {
		case schemas.GPUError:
			r.broken |= bit
		case schemas.GPUAllocated, schemas.GPUInUse:
			r.stuck |= bit
		}
	}
	for _, b := range s.Bookings {
		mask := r.all
		if !b.Whole {
			mask = 0
			for _, g := range b.GPUs {
				i := slices.Index(r.gpus, g)
				if i < 0 {
					return fmt.Errorf("server %s has no GPU %s, which is booked", s.Name, g)
				}
				mask |= 1 << i
			}
		}
		r.bookings = append(r.bookings, booking{nanos(b.From), ends(b.Until), mask, b.Whole})
		r.stuck &^= mask
	}
	if i, ok := v.at[s.Name]; ok {
		v.rows[i] = r
		return nil
	}
	var i int32
	if n := len(v.spare); n > 0 {
		i, v.spare = v.spare[n-1], v.spare[:n-1]
		v.rows[i] = r
	} else {
		i = int32(len(v.rows))
		v.rows = append(v.rows, r)
	}
	v.at[s.Name] = i
	v.order = slices.Insert(v.order, v.place(s.Name), i)
	return nil
}

func (v *View) place(name string) int {
	p, _ := slices.BinarySearchFunc(v.order, name, func(i int32, name string) int { return strings.Compare(v.rows[i].name, name) })
	return p
}

// Remove takes a server out, if it is there.
func (v *View) Remove(name string) {
	i, ok := v.at[name]
	if !ok {
		return
	}
	p := v.place(name)
	v.order = slices.Delete(v.order, p, p+1)
	delete(v.at, name)
	v.rows[i] = row{}
	v.spare = append(v.spare, i)
}

// Update changes a server, if it is there.
func (v *View) Update(name string, change func(*Server)) error {
	i, ok := v.at[name]
	if !ok {
		return nil
	}
	s := v.server(&v.rows[i])
	change(&s)
	if s.Name != name {
		return fmt.Errorf("server %s would become %s", name, s.Name)
	}
	return v.Put(s)
}

// server is what a row was put as.
func (v *View) server(r *row) Server {
	s := Server{
		Name: r.name, Model: v.symbols[r.model], Pool: v.symbols[r.pool], Status: v.symbols[r.status],
		Site: v.symbols[r.site], Row: v.symbols[r.aisle], Rack: v.symbols[r.rack], NVLink: v.symbols[r.nvlink],
		Feeds: v.texts(r.feeds), Leaves: v.texts(r.leaves), Labels: map[string]string{},
		Bare: r.bare, Hold: r.hold, Case: r.open, Health: r.health, HealthWhy: r.why, Risks: r.risks, GPUs: make([]GPU, len(r.gpus)),
	}
	if r.failed != 0 {
		s.Failed = time.Unix(0, r.failed).UTC()
	}
	for _, l := range r.labels {
		s.Labels[v.symbols[l.key]] = v.symbols[l.value]
	}
	for _, k := range r.kinds {
		for m := k.mask; m != 0; m &= m - 1 {
			i := bits.TrailingZeros64(m)
			s.GPUs[i] = GPU{r.gpus[i], v.symbols[k.model], k.memory, v.symbols[k.status]}
		}
	}
	for _, b := range r.bookings {
		o := Booking{Whole: b.whole, From: time.Unix(0, b.from).UTC()}
		if b.until != math.MaxInt64 {
			o.Until = time.Unix(0, b.until).UTC()
		}
		if !b.whole {
			o.GPUs = r.names(b.mask)
		}
		s.Bookings = append(s.Bookings, o)
	}
	return s
}

// names are those of GPUs, in their order.
func (r *row) names(mask uint64) []string {
	if mask == 0 {
		return nil
	}
	out := make([]string, 0, bits.OnesCount64(mask))
	for ; mask != 0; mask &= mask - 1 {
		out = append(out, r.gpus[bits.TrailingZeros64(mask)])
	}
	return out
}

// nanos is a time that has begun as nanoseconds; a zero one is as early as can be.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return math.MinInt64
	}
	return t.UnixNano()
}

// ends is the end of a time as nanoseconds; a zero one is open.
func ends(t time.Time) int64 {
	if t.IsZero() {
		return math.MaxInt64
	}
	return t.UnixNano()
}

// taken tells what of a server is somebody's in a part of a time.
func (r *row) taken(from, until int64) (mask uint64, server bool) {
	for i := range r.bookings {
		if b := &r.bookings[i]; b.from < until && from < b.until {
			mask, server = mask|b.mask, true
		}
	}
	return mask, server
}

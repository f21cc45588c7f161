package correlator

import (
	"encoding/binary"
	"math"
	"slices"
	"time"

	"auspex/correlator/solver"
	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

// node is a resource or a workload by number. Numbers are given in the order
// of first mention and stay for the life of a graph's names.
type node = int32

const none node = -1

// names gives numbers to resources, for longer than an inventory lasts, so that what
// the engine remembers outlives a change of it.
type names struct {
	number map[string]node
	name   []string
	free   []node // numbers of names that were forgotten
}

func (n *names) of(id string) node {
	if k, ok := n.number[id]; ok {
		return k
	}
	k := node(len(n.name)) //nolint:gosec // a number of nodes
	if last := len(n.free) - 1; last >= 0 {
		k, n.free = n.free[last], n.free[:last]
		n.name[k] = id
	} else {
		n.name = append(n.name, id)
	}
	n.number[id] = k
	return k
}

// kinds are small numbers, so that a filter is one comparison.
type kindTable struct {
	number map[string]uint8
	name   []string
}

// otherKinds is the number of all kinds for which there is none left; one more still is a byte.
const otherKinds = math.MaxUint8 - 1

func (k *kindTable) of(kind string) uint8 {
	if v, ok := k.number[kind]; ok {
		return v
	}
	if len(k.name) == otherKinds { // those of the records are known by now
		kind = ""
	}
	if len(k.name) > otherKinds {
		return otherKinds
	}
	v := uint8(len(k.name))
	k.number[kind] = v
	k.name = append(k.name, kind)
	return v
}

type adjacency struct{ out, in [][]node }

func (a *adjacency) grow(n int) {
	if len(a.out) < n {
		a.out = append(a.out, make([][]node, n-len(a.out))...)
		a.in = append(a.in, make([][]node, n-len(a.in))...)
	}
}

type workload struct {
	id         node
	resources  []node
	start, end time.Time
	attrs      map[string]string
}

// graph is the inventory, laid out for walking.
type graph struct {
	*names
	kinds    kindTable
	kind     []uint8
	counts   map[node][]int // of parts of a site, by kind
	counted  sums
	inside   []int32 // servers and switches, by what holds them
	holds    sums
	known    []bool // to the inventory
	parent   []node
	children [][]node
	attrs    []schemas.Attrs
	links    [5]adjacency // by linkKinds
	jobs     map[node]*workload
	jobsAt   map[node]*shifts // of a resource and of the server that holds it
	whole    map[node]*shifts // of servers that a workload names as a whole

	device  []node // the server or switch that a node is or is part of; unset: look
	tops    []node // what holds a node and stands in nothing, of the nodes of the inventory; unset: look
	ways    [][]step
	reached map[reachKey]*reached
	middle  map[string]*reached // by the rest of a way and where it sets out from
	held    int                 // nodes in reached, and in parts
	parts   map[partsKey]*parts

	supplied map[node][]node // by what is fed: its suppliers, once they were asked for
}

// partsKey names the parts that an effect of a fault of a node may bring into its state.
type partsKey struct {
	node   node
	fault  int32
	effect int
}

// parts are these parts, by node, as the solver has them.
type parts struct {
	list  []solver.Part
	told  uint64    // how often signs of the state had changed when Shows was set
	heard uint64    // what had been heard by then, as signTable.heard has it
	since time.Time // from when on what it shows counts, although it is over
	fresh bool      // Shows was set
	fed   bool      // what feeds them is noted
}

// step is a step of a way, with the number that its kind has here.
type step struct {
	op   propagation.Op
	kind uint8
	held bool // it stops only at what is part of something of kind in, or with out of nothing such
	in   uint8
	out  bool
}

// keeps says whether a step stops at a node of its kind.
func (g *graph) keeps(s step, n node) bool {
	return (!s.held || (g.up(n, s.in) != none) != s.out) && (s.op != propagation.Stub || g.stub(n))
}

// stub says whether all links of a switch to other switches lead to the same one: there is no way around that.
func (g *graph) stub(n node) bool {
	only := none
	var other func(n node) bool // that some lead to another one
	other = func(p node) bool {
		for _, l := range [2][][]node{g.links[linkNet].out, g.links[linkNet].in} {
			for _, to := range l[p] {
				sw := g.server(to)
				if sw == none || sw == n || g.kindOf(sw) != schemas.KindSwitch || sw == only {
					continue
				}
				if only != none {
					return true
				}
				only = sw
			}
		}
		return slices.ContainsFunc(g.children[p], other)
	}
	return !other(n) && only != none
}

// compile lays out a way through the inventory.
func (g *graph) compile(path []propagation.Step) []step {
	out := make([]step, len(path))
	for i, s := range path {
		out[i] = step{op: s.Op, kind: g.kinds.of(s.Kind)}
		if s.In != "" {
			out[i].held, out[i].in, out[i].out = true, g.kinds.of(s.In), s.Out
		}
	}
	return out
}

// learn compiles the ways of a model.
func (g *graph) learn(m *propagation.Model) {
	for f := range m.Faults {
		for c := range m.Faults[f].Classes {
			cl := &m.Faults[f].Classes[c]
			for len(g.ways) <= cl.Way {
				g.ways = append(g.ways, nil)
			}
			if g.ways[cl.Way] == nil {
				g.ways[cl.Way] = g.compile(cl.Path)
			}
		}
	}
}

// reachKey names the nodes that a way reaches from a node.
type reachKey struct {
	from node
	way  int32
}

// reached is what a way reaches, in the order of the walk. What else is known of
// it is laid out when it is asked for.
type reached struct {
	nodes   []node
	sorted  []node
	devices []node // that the nodes are part of, sorted; with how many are
	parts   []int32
	rooms   map[node]int32 // what holds the nodes, with how many it holds
	hold    uint8          // of which kind that is
}

// few nodes are looked through faster than sorted, and walked to again faster than
// remembered.
const few = 16

func (r *reached) has(n node) bool {
	if len(r.nodes) <= few {
		return slices.Contains(r.nodes, n)
	}
	if r.sorted == nil {
		r.sorted = slices.Sorted(slices.Values(r.nodes))
	}
	return contains(r.sorted, n)
}

// lay sorts the devices that the nodes are part of.
func (r *reached) lay(g *graph) {
	if r.devices == nil {
		all := make([]node, 0, len(r.nodes))
		for _, x := range r.nodes {
			all = append(all, g.server(x)) // none is before all devices
		}
		slices.Sort(all)
		r.devices = []node{}
		for i, d := range all {
			if i > 0 && d == all[i-1] {
				r.parts[len(r.parts)-1]++
				continue
			}
			r.devices, r.parts = append(r.devices, d), append(r.parts, 1)
		}
	}
}

// furnish counts the nodes by what of a kind holds them; what nothing holds is by itself.
func (r *reached) furnish(g *graph, kind uint8) {
	if r.rooms == nil || r.hold != kind {
		r.hold, r.rooms = kind, map[node]int32{}
		for _, x := range r.nodes {
			r.rooms[g.within(x, kind)]++
		}
	}
}

// of returns how many of the nodes are part of a device.
func (r *reached) of(g *graph, dev node) (n int) {
	if len(r.nodes) <= few {
		for _, x := range r.nodes {
			if g.server(x) == dev {
				n++
			}
		}
		return n
	}
	r.lay(g)
	if i, ok := slices.BinarySearch(r.devices, dev); ok {
		return int(r.parts[i])
	}
	return 0
}

const (
	maxReached = 1 << 23 // nodes that are remembered as reached, 32 MiB
	maxChain   = 8       // suppliers one behind the other
	unset      = none - 1
)

const (
	linkPowers = iota
	linkCools
	linkNet
	linkNVLink
	linkPCIe
)

var linkKinds = map[string]int{
	schemas.LinkPowers: linkPowers, schemas.LinkCools: linkCools, schemas.LinkNetwork: linkNet,
	schemas.LinkNVLink: linkNVLink, schemas.LinkPCIe: linkPCIe,
}

func newGraph(t *schemas.Topology, keep *names) *graph {
	if keep == nil {
		keep = &names{number: make(map[string]node, len(t.Resources))}
	}
	g := &graph{
		names: keep, counts: map[node][]int{}, jobs: map[node]*workload{}, jobsAt: map[node]*shifts{}, whole: map[node]*shifts{},
		reached: map[reachKey]*reached{}, middle: map[string]*reached{}, parts: map[partsKey]*parts{}, supplied: map[node][]node{},
	}
	g.kinds.number = map[string]uint8{}
	g.kinds.of("") // an unknown resource
	g.kinds.of(propagation.KindWorkload)
	at := make([]node, len(t.Resources))
	for i := range t.Resources {
		at[i] = g.of(t.Resources[i].ID)
	}
	g.grow()
	for i, n := range at {
		r := &t.Resources[i]
		g.kind[n], g.attrs[n], g.known[n] = g.kinds.of(r.Kind), r.Attrs, true
	}
	for i, n := range at {
		if parent := t.Resources[i].Parent; parent != "" && g.parent[n] == none {
			if p, ok := g.number[parent]; ok {
				g.parent[n] = p
			}
		}
	}
	g.cutCircles()
	placed := make([]bool, len(g.name))
	for _, n := range at {
		if p := g.parent[n]; p != none && !placed[n] {
			placed[n] = true
			g.children[p] = append(g.children[p], n)
		}
	}
	for _, l := range t.Links {
		k, ok := linkKinds[l.Kind]
		if !ok {
			continue
		}
		a, oka := g.number[l.From]
		b, okb := g.number[l.To]
		if !oka || !okb || a == b {
			continue
		}
		g.links[k].out[a] = append(g.links[k].out[a], b)
		g.links[k].in[b] = append(g.links[k].in[b], a)
	}
	g.setWorkloads(t.Workloads)
	return g
}

// grow makes room for every name that has a number.
func (g *graph) grow() {
	more := len(g.name) - len(g.kind)
	g.kind, g.known, g.parent = slices.Grow(g.kind, more), slices.Grow(g.known, more), slices.Grow(g.parent, more)
	g.children, g.attrs, g.device = slices.Grow(g.children, more), slices.Grow(g.attrs, more), slices.Grow(g.device, more)
	for len(g.kind) < len(g.name) {
		g.kind = append(g.kind, 0)
		g.known = append(g.known, false)
		g.parent = append(g.parent, none)
		g.children = append(g.children, nil)
		g.attrs = append(g.attrs, schemas.Attrs{})
		g.device = append(g.device, unset)
		g.another(node(len(g.kind) - 1)) //nolint:gosec // a number of nodes
	}
	for i := range g.links {
		g.links[i].grow(len(g.name))
	}
}

// loose says whether the inventory lacks the link that a part must have: of a
// power supply the one to its feed, of a network part the one to its peer.
func (g *graph) loose(n node) bool {
	l := &g.links[linkNet]
	if g.kindOf(n) == schemas.KindPSU {
		l = &g.links[linkPowers]
	}
	return len(l.out[n])+len(l.in[n]) == 0
}

// ensure gives a number to a resource that the inventory may not know.
func (g *graph) ensure(id string) node {
	n := g.of(id)
	g.grow()
	return n
}

// cutCircles makes trees of what is part of what: in a circle, the part that was named
// last is part of nothing.
func (g *graph) cutCircles() {
	met := make([]int32, len(g.parent)) // the walk that met a node, from 1
	for from := range g.parent {
		n, walk := node(from), int32(from+1) //nolint:gosec // numbers of nodes
		for n != none && met[n] == 0 {
			met[n] = walk
			n = g.parent[n]
		}
		if n == none || met[n] != walk {
			continue
		}
		last := n
		for m := g.parent[n]; m != n; m = g.parent[m] {
			last = max(last, m)
		}
		g.parent[last] = none
	}
}

// setWorkloads replaces the workloads. It returns what is now known to be one.
func (g *graph) setWorkloads(ws []schemas.Workload) (now []node) {
	clear(g.jobs)
	clear(g.jobsAt)
	clear(g.whole)
	for i := range ws {
		g.of(ws[i].ID)
	}
	g.grow()
	for i := range ws {
		w := &ws[i]
		j := &workload{id: g.number[w.ID], start: w.Start, end: w.End, attrs: w.Attrs}
		if k := g.kinds.of(propagation.KindWorkload); g.kind[j.id] != k {
			g.kind[j.id] = k
			g.another(j.id)
			now = append(now, j.id)
		}
		g.jobs[j.id] = j
		for _, r := range w.Resources {
			n, ok := g.number[r]
			if !ok {
				continue
			}
			j.resources = append(j.resources, n)
			if g.server(n) == n {
				shift(g.whole, n, j)
			}
			for _, at := range [2]node{n, g.server(n)} {
				if at == none {
					continue
				}
				shift(g.jobsAt, at, j)
			}
		}
	}
	for _, all := range [2]map[node]*shifts{g.jobsAt, g.whole} {
		for _, l := range all {
			l.sort()
		}
	}
	return now
}

func (g *graph) kindOf(n node) string {
	if n == none || int(n) >= len(g.kind) {
		return ""
	}
	return g.kinds.name[g.kind[n]]
}

// top returns what holds a node and stands in nothing: its site.
func (g *graph) top(n node) node {
	if n == none || g.parent[n] == none {
		return n
	}
	if len(g.tops) <= int(n) { // all that is in something is of the inventory
		g.tops = slices.Repeat([]node{unset}, len(g.parent))
	}
	if g.tops[n] == unset {
		to := n
		for i := 0; to != none && g.parent[to] != none && i < maxChain*maxChain; i++ {
			to = g.parent[to]
		}
		g.tops[n] = to
	}
	return g.tops[n]
}

// sums are kept of all nodes, and brought up to date from those alone that are new or of
// another kind.
type sums struct {
	taken bool    // of all nodes, once
	news  []node  // since then
	as    []uint8 // by node: as what it was counted, from 1; 0: it was not
}

// another notes a node that is new or of another kind.
func (g *graph) another(n node) {
	for _, s := range [2]*sums{&g.counted, &g.holds} {
		if s.taken {
			s.news = append(s.news, n)
		}
	}
}

// update hands out the nodes that are counted as something else now, 0 for nothing.
func (s *sums) update(g *graph, as func(node) uint8, move func(n node, from, to uint8)) {
	if s.taken && len(s.news) == 0 {
		return
	}
	s.as = append(s.as, make([]uint8, len(g.kind)-len(s.as))...)
	visit := func(n node) {
		if to := as(n); to != s.as[n] {
			move(n, s.as[n], to)
			s.as[n] = to
		}
	}
	if !s.taken {
		s.taken = true
		for n := range g.kind {
			visit(node(n)) //nolint:gosec // a number of nodes
		}
	}
	for _, n := range s.news {
		visit(n)
	}
	s.news = s.news[:0]
}

// devices returns how many servers and switches a node holds.
func (g *graph) devices(n node) int {
	g.holds.update(g, func(n node) uint8 {
		if g.server(n) == n {
			return 1
		}
		return 0
	}, func(n node, _, to uint8) {
		g.inside = append(g.inside, make([]int32, len(g.kind)-len(g.inside))...)
		for i := 0; n != none && i < maxChain*maxChain; n, i = g.parent[n], i+1 {
			g.inside[n] += 2*int32(to) - 1
		}
	})
	if n == none || int(n) >= len(g.inside) {
		return 0
	}
	return int(g.inside[n])
}

// count returns how many parts of a kind there are in the site of a node; workloads are in none.
func (g *graph) count(kind string, at node) int {
	jobs := g.kinds.of(propagation.KindWorkload)
	g.counted.update(g, func(n node) uint8 { return g.kind[n] + 1 }, func(n node, from, to uint8) {
		for _, by := range [2]struct {
			kind uint8
			more int
		}{{from, -1}, {to, 1}} {
			if by.kind == 0 {
				continue
			}
			k, top := by.kind-1, none
			if k != jobs {
				top = g.top(n)
			}
			of := g.counts[top]
			if more := len(g.kinds.name) - len(of); more > 0 {
				of = append(of, make([]int, more)...)
				g.counts[top] = of
			}
			of[k] += by.more
		}
	})
	if at = g.top(at); kind == propagation.KindWorkload {
		at = none
	}
	if of, k := g.counts[at], int(g.kinds.of(kind)); k < len(of) {
		return of[k]
	}
	return 0
}

func (g *graph) up(n node, kind uint8) node {
	for i := 0; n != none && i < 64; i++ {
		n = g.parent[n]
		if n != none && g.kind[n] == kind {
			return n
		}
	}
	return none
}

// server returns the server or switch that n is or is part of, or none.
func (g *graph) server(n node) node {
	if n == none {
		return none
	}
	if d := g.device[n]; d != unset {
		return d
	}
	d := none
	for p, i := n, 0; p != none && i < 64; i++ {
		if k := g.kindOf(p); k == schemas.KindServer || k == schemas.KindSwitch {
			d = p
			break
		}
		p = g.parent[p]
	}
	g.device[n] = d
	return d
}

// within returns what of a kind holds a part, or the part.
func (g *graph) within(n node, kind uint8) node {
	for p, i := n, 0; p != none && i < 64; i++ {
		if g.kind[p] == kind {
			return p
		}
		p = g.parent[p]
	}
	return n
}

// forget frees the numbers of what the inventory does not know and nobody uses.
func (g *graph) forget(used func(node) bool) {
	for id, n := range g.number {
		if g.known[n] || g.jobs[n] != nil || g.jobsAt[n] != nil || used(n) {
			continue
		}
		delete(g.number, id)
		g.name[n], g.kind[n], g.device[n] = "", 0, unset
		g.another(n)
		g.free = append(g.free, n)
	}
	slices.Sort(g.free) // not in the order of a map
}

// setKind says what a resource is that the inventory does not know.
func (g *graph) setKind(n node, kind string) {
	g.kind[n], g.device[n] = g.kinds.of(kind), unset
	g.another(n)
}

// suppliers returns what feeds a server or switch directly: itself, one of its
// power supplies, or else what it stands in. It is remembered, and not to be changed.
func (g *graph) suppliers(dev node) []node {
	out, ok := g.supplied[dev]
	if !ok {
		out = g.findSuppliers(dev)
		g.supplied[dev] = out
	}
	return out
}

func (g *graph) findSuppliers(dev node) []node {
	in := g.links[linkPowers].in
	out := slices.Clone(in[dev])
	for _, c := range g.children[dev] {
		out = append(out, in[c]...)
	}
	for p, i := g.parent[dev], 0; len(out) == 0 && p != none && i < maxChain; i++ {
		out = append(out, in[p]...)
		p = g.parent[p]
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (g *graph) ancestor(n node, kind string) node {
	if g.kindOf(n) == kind {
		return n
	}
	return g.up(n, g.kinds.of(kind))
}

const (
	jobLead  = time.Minute     // clocks and schedulers disagree
	jobTrail = 2 * time.Minute // the last words of a job come after its end
)

// runsAt says whether a workload ran at t, give or take.
func (w *workload) runsAt(t time.Time) bool {
	return !t.Before(w.start.Add(-jobLead)) && (w.end.IsZero() || !t.After(w.end.Add(jobTrail)))
}

// shifts are the workloads of a part by their start, so that of a long history only
// what may run at a time is looked at.
type shifts struct {
	all   []*workload
	from  []int64 // when one may have run, in nanoseconds
	until []int64 // until when one of those up to here may have
}

func shift(of map[node]*shifts, n node, w *workload) {
	l := of[n]
	if l == nil {
		l = &shifts{}
		of[n] = l
	}
	if len(l.all) == 0 || l.all[len(l.all)-1] != w {
		l.all = append(l.all, w)
	}
}

func (l *shifts) sort() {
	slices.SortStableFunc(l.all, func(a, b *workload) int { return a.start.Compare(b.start) })
	l.from, l.until = make([]int64, len(l.all)), make([]int64, len(l.all))
	last := int64(math.MinInt64)
	for i, w := range l.all {
		end := int64(math.MaxInt64)
		if !w.end.IsZero() {
			end = nanoseconds(w.end.Add(jobTrail))
		}
		last = max(last, end)
		l.from[i], l.until[i] = nanoseconds(w.start.Add(-jobLead)), last
	}
}

// nanoseconds is a time since 1970; what lies further off than they can tell is as far as they can.
func nanoseconds(t time.Time) int64 {
	switch {
	case t.Before(time.Unix(0, math.MinInt64)):
		return math.MinInt64
	case t.After(time.Unix(0, math.MaxInt64-1)):
		return math.MaxInt64 - 1
	}
	return t.UnixNano()
}

// about returns those that may have run at t, without those that surely did not.
func (l *shifts) about(t time.Time) []*workload {
	if l == nil {
		return nil
	}
	at := nanoseconds(t)
	to, _ := slices.BinarySearch(l.from, at+1)
	from, _ := slices.BinarySearch(l.until[:to], at)
	return l.all[from:to]
}

// jobsOf returns the workloads that may use n at t: those that name it or a part of it,
// or, where none does, those that have its server as a whole.
func (g *graph) jobsOf(n node, t time.Time) []*workload {
	if l := g.jobsAt[n]; l != nil {
		return l.about(t)
	}
	if s := g.server(n); s != none && s != n {
		return g.whole[s].about(t)
	}
	return nil
}

// jobAt returns the workload that a report of n at t speaks of: one that ran
// then, else the one that ended last, else the one about to start.
func (g *graph) jobAt(n node, t time.Time) *workload {
	var best *workload
	rank := 0
	for _, w := range g.jobsOf(n, t) {
		if !w.runsAt(t) {
			continue
		}
		r := 1
		switch {
		case !t.Before(w.start) && (w.end.IsZero() || !t.After(w.end)):
			r = 3
		case t.After(w.start):
			r = 2
		}
		if r >= rank {
			best, rank = w, r
		}
	}
	return best
}

// nodeSet counts nodes, each once. The zero value is ready.
type nodeSet struct {
	met   []uint32 // by node: the round in which it was added
	round uint32
	n     int
}

func (s *nodeSet) reset() {
	if s.n, s.round = 0, s.round+1; s.round == 0 { // after four billion
		clear(s.met)
		s.round = 1
	}
}

// add reports whether a node is new.
func (s *nodeSet) add(n node) bool {
	if more := int(n) + 1 - len(s.met); more > 0 {
		s.met = append(s.met, make([]uint32, more)...)
	}
	if s.met[n] == s.round {
		return false
	}
	s.met[n] = s.round
	s.n++
	return true
}

// walker holds the buffers of a walk.
type walker struct {
	a, b  []node
	from  []node // of a step to several kinds
	all   []node
	met   []uint32 // by node: the round in which it was last met
	round uint32
	work  int     // nodes that the last walk went over
	near  []short // the short ways that were last walked
	key   []byte  // scratch
	chain []node  // suppliers that were met
}

// forward returns the nodes that a path reaches from n at t. The result is
// valid until the next walk.
func (w *walker) forward(g *graph, n node, way []step, t time.Time) []node {
	w.a, w.work = append(w.a[:0], n), 0
	for _, s := range way {
		w.step(g, s.op, s.kind, t)
		w.keep(g, s)
		w.work += len(w.a)
	}
	return w.a
}

// reach is forward for a way that ends in no workload. What goes over many parts is
// remembered, the rest is valid until the next call: a fleet has a few large hubs,
// and millions of short ways.
func (w *walker) reach(g *graph, n node, c *propagation.Class) *reached {
	way := g.ways[c.Way]
	if w.near == nil {
		w.near = make([]short, nearBy)
	}
	k := reachKey{n, int32(c.Way)}
	near := &w.near[(uint64(n)*nearBy/8+uint64(c.Way))*0x9e3779b97f4a7c15>>(64-nearBits)] //nolint:gosec // not negative
	if near.of == g && near.key == k {
		return &near.reached
	}
	if len(way) == 0 {
		near.of, near.key, near.reached = g, k, reached{nodes: append(near.nodes[:0], n)}
		return &near.reached
	}
	if r := g.reached[k]; r != nil {
		return r
	}
	r := w.walk(g, n, way, c.Way)
	if r == nil {
		near.of, near.key, near.reached = g, k, reached{nodes: append(near.nodes[:0], w.a...)}
		return &near.reached
	}
	g.reached[k] = r
	return r
}

// short is what a short way reaches.
type short struct {
	reached
	of  *graph
	key reachKey
}

const (
	nearBits = 12
	nearBy   = 1 << nearBits // short ways that are remembered, until one takes the place of another
)

// walk is reach for what is not remembered; nil is a short way, whose end is in w.a. All leaf switches lead to the same
// spines, so where a way comes together the rest of it is walked once.
func (w *walker) walk(g *graph, n node, way []step, id int) *reached {
	w.a, w.work = append(w.a[:0], n), 0
	var keys []string
	for i, s := range way {
		w.step(g, s.op, s.kind, time.Time{})
		w.keep(g, s)
		w.work += len(w.a)
		if s.op != propagation.Up || i+1 == len(way) || i == 0 || len(w.a) > few {
			continue
		}
		w.key = binary.AppendUvarint(w.key[:0], uint64(id)) //nolint:gosec // not negative
		w.key = append(w.key, byte(i))
		for _, n := range w.a {
			w.key = binary.NativeEndian.AppendUint32(w.key, uint32(n)) //nolint:gosec // not negative
		}
		if r := g.middle[string(w.key)]; r != nil {
			return r
		}
		keys = append(keys, string(w.key))
	}
	if w.work <= 2*few {
		return nil
	}
	if g.held > maxReached {
		g.forgetReached()
	}
	r := &reached{nodes: slices.Clone(w.a)}
	g.held += 3*len(r.nodes) + 16
	for _, k := range keys {
		g.middle[k] = r
	}
	return r
}

func (g *graph) forgetReached() {
	clear(g.reached)
	clear(g.middle)
	clear(g.parts)
	g.held = 0
}

// backward returns the nodes of one of kinds from which the path reaches n.
// Paths that end in workloads cannot be walked backward.
func (w *walker) backward(g *graph, n node, path []step, kinds []uint8) []node {
	if len(path) > 0 {
		end := path[len(path)-1]
		if g.kind[n] != end.kind || end.op == propagation.Loose && !g.loose(n) || !g.keeps(end, n) {
			return nil
		}
	}
	w.a = append(w.a[:0], n)
	for i := len(path) - 1; i >= 0; i-- {
		if i > 0 {
			w.step(g, inverse[path[i].op], path[i-1].kind, time.Time{})
			w.keep(g, path[i-1])
			continue
		}
		if len(kinds) == 1 {
			w.step(g, inverse[path[0].op], kinds[0], time.Time{})
			break
		}
		w.from, w.all = append(w.from[:0], w.a...), w.all[:0]
		for _, k := range kinds {
			w.a = append(w.a[:0], w.from...)
			w.step(g, inverse[path[0].op], k, time.Time{})
			w.all = append(w.all, w.a...)
		}
		w.a = append(w.a[:0], w.all...)
	}
	if len(path) > 0 {
		return w.a
	}
	if int(n) < len(g.kind) && slices.Contains(kinds, g.kind[n]) {
		return w.a
	}
	return w.a[:0]
}

var inverse = [...]propagation.Op{
	propagation.Up: propagation.Down, propagation.Down: propagation.Up,
	propagation.Powers: propagation.Powered, propagation.Powered: propagation.Powers,
	propagation.Cools: propagation.Cooled, propagation.Cooled: propagation.Cools,
	propagation.Net: propagation.Net, propagation.NVLink: propagation.NVLink, propagation.PCIe: propagation.PCIe,
	propagation.Jobs: propagation.Jobs, propagation.Loose: propagation.Up,
	propagation.Stub: propagation.Down, propagation.Feeds: propagation.Fed, propagation.Fed: propagation.Feeds,
	propagation.Chills: propagation.Chilled, propagation.Chilled: propagation.Chills,
}

func (w *walker) step(g *graph, op propagation.Op, kind uint8, t time.Time) {
	w.b = w.b[:0]
	for _, n := range w.a {
		switch op {
		case propagation.Up, propagation.Stub:
			if p := g.up(n, kind); p != none {
				w.add(p)
			}
		case propagation.Down:
			w.below(g, n, kind)
		case propagation.Loose:
			w.below(g, n, kind)
			w.b = slices.DeleteFunc(w.b, func(n node) bool { return !g.loose(n) })
		case propagation.Powers:
			w.supplied(g, n, kind, propagation.Powers)
		case propagation.Powered:
			w.supplied(g, n, kind, propagation.Powered)
		case propagation.Cools:
			for _, t := range g.links[linkCools].out[n] {
				w.within(g, t, kind)
			}
		case propagation.Cooled:
			for p, i := n, 0; p != none && i < 64; i++ {
				w.linked(g, g.links[linkCools].in[p], kind)
				p = g.parent[p]
			}
		case propagation.Chills:
			for _, t := range g.links[linkCools].out[n] {
				if g.kindOf(g.server(t)) == schemas.KindServer {
					w.within(g, t, kind)
				}
			}
		case propagation.Chilled:
			if dev := g.server(n); g.kindOf(dev) == schemas.KindServer {
				for p := n; ; p = g.parent[p] {
					w.linked(g, g.links[linkCools].in[p], kind)
					if p == dev {
						break
					}
				}
			}
		case propagation.Feeds:
			w.chain = append(w.chain[:0], n)
			w.feeds(g, n, kind, 0)
		case propagation.Fed:
			w.fed(g, n, kind)
		case propagation.Net:
			w.linked(g, g.links[linkNet].out[n], kind)
			w.linked(g, g.links[linkNet].in[n], kind)
		case propagation.NVLink:
			w.linked(g, g.links[linkNVLink].out[n], kind)
			w.linked(g, g.links[linkNVLink].in[n], kind)
		case propagation.PCIe:
			w.linked(g, g.links[linkPCIe].out[n], kind)
			w.linked(g, g.links[linkPCIe].in[n], kind)
		case propagation.Jobs:
			for _, j := range g.jobsOf(n, t) {
				if j.runsAt(t) {
					w.add(j.id)
				}
			}
		}
	}
	w.a, w.b = w.b, w.a
	w.dedupe()
}

// keep drops where a step does not stop.
func (w *walker) keep(g *graph, s step) {
	if s.held || s.op == propagation.Stub {
		w.a = slices.DeleteFunc(w.a, func(n node) bool { return !g.keeps(s, n) })
	}
}

func (w *walker) add(n node) { w.b = append(w.b, n) }

func (w *walker) below(g *graph, n node, kind uint8) {
	for _, c := range g.children[n] {
		if g.kind[c] == kind {
			w.add(c)
		} else {
			w.below(g, c, kind)
		}
	}
}

// within adds n, or what is in it.
func (w *walker) within(g *graph, n node, kind uint8) {
	if g.kind[n] == kind {
		w.add(n)
	} else {
		w.below(g, n, kind)
	}
}

// supplied adds the nodes of a kind that a node powers, or is powered by, at once or
// through suppliers between that are no part of a server.
func (w *walker) supplied(g *graph, n node, kind uint8, op propagation.Op) {
	next := g.links[linkPowers].out
	if op == propagation.Powered {
		next = g.links[linkPowers].in
	}
	w.chain = append(w.chain[:0], n)
	for i := 0; i < len(w.chain); i++ {
		for _, t := range next[w.chain[i]] {
			if g.kind[t] == kind {
				w.add(t)
			}
			if len(next[t]) > 0 && g.server(t) == none && !slices.Contains(w.chain, t) {
				w.chain = append(w.chain, t)
			}
		}
	}
}

// feeds adds the servers or switches that a supplier powers, also through
// power supplies, through what they stand in, and through other suppliers.
func (w *walker) feeds(g *graph, n node, kind uint8, depth int) {
	for _, t := range g.links[linkPowers].out[n] {
		switch d := g.server(t); {
		case d != none && g.kind[d] == kind:
			w.add(d)
		case d == none && len(g.links[linkPowers].out[t]) > 0:
			if depth < maxChain && !slices.Contains(w.chain, t) {
				w.chain = append(w.chain, t)
				w.feeds(g, t, kind, depth+1)
			}
		case d == none:
			w.below(g, t, kind)
		}
	}
}

// fed adds the suppliers of a kind that stand behind a server or switch.
func (w *walker) fed(g *graph, n node, kind uint8) {
	from := len(w.b)
	for _, p := range g.suppliers(n) {
		w.add(p)
	}
	for i, depth := from, 0; i < len(w.b) && depth < maxChain*16; i, depth = i+1, depth+1 {
		for _, p := range g.links[linkPowers].in[w.b[i]] {
			if !slices.Contains(w.b[from:], p) {
				w.add(p)
			}
		}
	}
	behind := slices.DeleteFunc(slices.Clone(w.b[from:]), func(p node) bool { return g.kind[p] != kind })
	w.b = append(w.b[:from], behind...)
}

func (w *walker) linked(g *graph, to []node, kind uint8) {
	for _, n := range to {
		if g.kind[n] == kind {
			w.add(n)
		}
	}
}

// dedupe drops repeats, in the order of first sight.
func (w *walker) dedupe() {
	if len(w.a) < 2 {
		return
	}
	if len(w.a) <= 24 {
		out := w.a[:1]
		for _, n := range w.a[1:] {
			if !slices.Contains(out, n) {
				out = append(out, n)
			}
		}
		w.a = out
		return
	}
	if w.round++; w.round == 0 { // after four billion
		clear(w.met)
		w.round = 1
	}
	if most := int(slices.Max(w.a)); most >= len(w.met) {
		w.met = append(w.met, make([]uint32, most+1-len(w.met))...)
	}
	out := w.a[:0]
	for _, n := range w.a {
		if w.met[n] != w.round {
			w.met[n] = w.round
			out = append(out, n)
		}
	}
	w.a = out
}

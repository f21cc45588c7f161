package stormgen

import (
	"cmp"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"time"

	"auspex/schemas"
)

// Best is what an observer names who knows the generator: which scenarios there are, how often each breaks
// which part of the site, how surely and how late each source tells in this storm, where the jobs ran, and
// which events are of the fault. No correlator knows as much.
type Best struct {
	Fault string // its number in [Truth]
	// Resource is what it names in the end: the one that is most probably accepted.
	Resource string
	Right    bool
	// P is the probability that it gives to being right; the mean over many faults is how often it is.
	P float64
	// Stable is the time, in seconds from the first event of severity error or critical, from which it names what it names in the
	// end, which it does from even odds on.
	Stable float64
	// Rival is the likeliest scenario that Resource is not accepted of.
	Rival  string
	RivalP float64
}

// Observer says of the faults of storms over one site what could be known of them at best.
type Observer struct {
	samples  int
	stranger bool
	list     []Scenario
	weight   []float64
	tells    []map[tells]bool
}

// tells is something that a scenario may show, on whatever part.
type tells struct{ source, typ, code string }

// replay plays a fault again, with a root where there is a choice.
type replay struct {
	root     int
	stranger bool // whose samples have habits of their own
}

// keeps tells whether habits that are found are those of all that follows.
func (r *replay) keeps() bool { return r == nil || r.stranger }

// The figures of an estimate from samples.
const (
	pilots     = 12   // samples by which a cause is given up
	hopeless   = 12.0 // nats behind the best, after the pilots
	pseudo     = 0.3  // what counts for an outcome that no sample had
	impossible = 1e-6 // a chance that is none; there are other faults beside this one
	kin        = 10.0 // samples that the others of the same kind are worth
	crowded    = 8.0  // signs of one kind that count in full: more hang together, and their estimates err alike
	told       = 0.5  // what is less likely is named nowhere before the end
	tries      = 24   // by which it is found what breaks near a server
	nearest    = 6    // servers that are asked
	manyMoment = 24
)

// edges part the time from the first event to another, in seconds.
var edges = []float64{-100, -30, -10, -3, -1, -0.3, 0.3, 1, 3, 10, 30, 60, 100, 200, 400, 800, 1600}

// NewObserver returns an observer of the storms over one site that takes so many samples of each cause. It does not know which
// profile or half a storm was drawn of: a scenario is as likely as over all of them.
// A stranger does not know either what is peculiar to the storm: how surely and how late its sources tell, what is not watched, and
// over which network agents are reached.
func NewObserver(samples int, stranger bool) *Observer {
	o := &Observer{samples: max(samples, pilots), stranger: stranger}
	all := Scenarios()
	for i := range all {
		if all[i].Fault != Unknown {
			o.list = append(o.list, all[i])
		}
	}
	o.weight = make([]float64, len(o.list))
	for _, p := range Profiles() {
		for _, h := range []Half{Tuned, Held} {
			names, err := (&Options{Profile: p, Half: h}).scenarios()
			if err != nil || p == Quiet {
				continue
			}
			for _, s := range names {
				if k := slices.IndexFunc(o.list, func(x Scenario) bool { return x.Name == s.Name }); k >= 0 {
					o.weight[k] += 1 / float64(len(names))
				}
			}
		}
	}
	return o
}

// learn plays each scenario in worlds of its own and notes what it may tell.
func (o *Observer) learn(p *plant) {
	o.tells = make([]map[tells]bool, len(o.list))
	for k := range o.list {
		o.tells[k] = map[tells]bool{}
		for n := range 40 {
			rng := rand.New(rand.NewPCG(uint64(n), 0x0b5e)) //nolint:gosec // a drawing
			w := newWorld(p, rng)
			w.again = &replay{root: -1}
			w.crowd()
			if w.play(&o.list[k], w.busy(2), -1) == nil {
				continue
			}
			w.run(7200)
			for i := range w.out {
				o.tells[k][telling(&w.out[i].Event)] = true
			}
		}
	}
}

func telling(ev *schemas.Event) tells {
	code := ev.Code
	if ev.Type == schemas.EventWorkloadFailed { // any of a few, whatever ended it
		code = ""
	}
	return tells{ev.Source, ev.Type, code}
}

// sign is an event as the observer tells it from others: the n-th that says so of a resource.
type sign struct {
	tells

	resource string
	cleared  bool
	nth      uint8
}

// ofJob tells of what ranks say when their job ends, wherever it was hurt.
func (t tells) ofJob() bool {
	return t.typ == schemas.EventWorkloadCommTimeout || t.typ == schemas.EventGPUXID && (t.code == "45" || t.code == "43")
}

// heard is a sign with when it came: seconds from the first arrival by arrival, and by what is written in it.
type heard struct {
	sign

	arrived float64
	bin     int
	grave   bool // at least a warning
}

// history collects signs in order of arrival.
type history struct {
	list  []heard
	ended map[string]float64 // by part: when it told of a job's end
	count map[sign]uint8
	first float64
	began float64
}

func (h *history) add(ev *schemas.Event, seen, said float64) {
	if h.count == nil {
		h.count, h.ended, h.first, h.began = map[sign]uint8{}, map[string]float64{}, seen, said
	}
	s := sign{tells: telling(ev), resource: ev.Resource, cleared: ev.State == schemas.StateCleared}
	limit := uint8(4)
	if s.ofJob() {
		// Who of a job's ranks speaks is chance; that one of the server at fault does is not.
		if _, ok := h.ended[s.resource]; !ok {
			h.ended[s.resource] = seen - h.first
		}
		s.resource, limit = "", 1
	}
	n := h.count[s]
	if n >= limit {
		return
	}
	h.count[s] = n + 1
	s.nth = n
	h.list = append(h.list, heard{s, seen - h.first, sort.SearchFloat64s(edges, said-h.began), ev.Severity.Rank() >= 1})
}

// cause is a scenario at a root.
type cause struct {
	*Scenario

	near, root     int
	prior          float64
	name           string
	accept, silent []string
	views          [4]view   // by how the network is used, where that is not known; else the first
	at             []float64 // log-likelihood, by moment
}

// view is what samples of a cause told, on a site of the same kind of network.
type view struct {
	n     int
	signs map[sign]*frequency
	order []sign // as they were met
	kinds map[tells]*frequency
	own   frequency // that its own server tells of a job's end
}

// n returns how many samples there are.
func (c *cause) n() (n int) {
	for i := range c.views {
		n += c.views[i].n
	}
	return n
}

// ended tells when a part of a server first told of a job's end.
func (p *plant) ended(h *history, server int) (at float64, ok bool) {
	at = math.Inf(1)
	for id, x := range h.ended {
		if i, known := p.by[id]; known && p.parts[i].dev == server {
			at, ok = min(at, x), true
		}
	}
	return at, ok
}

// frequency is how many samples had a sign, and when.
type frequency struct {
	n, of   int
	bins    []int
	arrived []float64
}

// Best yields for each fault of a drawn storm whose answer is a known one what the observer makes of it. It says
// nothing of a storm that was drawn without Replay, or read.
//
// It weighs the causes that could show the signs: every scenario at every root near the servers of which signs came, the true one
// among them. The likelihood of what came and did not come until a moment is estimated from samples, which the generator plays
// from the state in which the jobs were when the fault began; signs are taken as independent of one another, given the cause and
// what is peculiar to the storm. One fault is taken at a time, on a site where all else is well.
func (o *Observer) Best(st *Storm) (out []Best) {
	if st.drawn == nil {
		return nil
	}
	if o.tells == nil {
		o.learn(st.drawn.plant)
	}
	at := map[string]*Case{}
	for _, k := range st.drawn.cases {
		at[caseID(k.n)] = k
	}
	for i := range st.Truth.Incidents {
		if f := &st.Truth.Incidents[i]; f.RootScored {
			out = append(out, o.best(st, f, at[f.ID]))
		}
	}
	return out
}

// trial is the weighing of one fault.
type trial struct {
	*Observer

	w       *world
	fresh   []state
	k       *Case
	perturb Perturb
	heard   history
	has     map[sign]*heard
	moments []float64
	until   float64 // seconds after the first arrival
	span    float64 // seconds that a sample is played
}

func (o *Observer) best(st *Storm, f *Fault, k *Case) Best {
	t := &trial{Observer: o, k: k, perturb: st.perturb, has: map[sign]*heard{}}
	t.listen(st, f)
	t.world(st.drawn, f)
	causes := t.causes()
	for _, c := range causes {
		t.sample(c, pilots)
		t.weigh(c)
	}
	last := len(t.moments) - 1
	top := math.Inf(-1)
	for _, c := range causes {
		top = max(top, c.prior+c.at[last])
	}
	causes = slices.DeleteFunc(causes, func(c *cause) bool { return c.n() == 0 || c.prior+c.at[last] < top-hopeless })
	if len(causes) > 1 {
		for _, c := range causes {
			t.sample(c, t.samples-c.n())
			t.weigh(c)
		}
	}
	return t.verdict(f, causes)
}

// listen notes the events of a fault.
func (t *trial) listen(st *Storm, f *Fault) {
	own := map[string]bool{}
	for _, id := range f.Events {
		own[id] = true
	}
	for _, id := range st.Truth.SharedEvents {
		delete(own, id)
	}
	for i := range st.Events {
		ev := &st.Events[i]
		if own[ev.ID] {
			delete(own, ev.ID) // what is delivered again says nothing new
			seen, said := ev.Observed.Sub(f.Start).Seconds(), ev.Time.Sub(f.Start).Seconds()
			if t.perturb.Clocks > 0 {
				said = seen
			}
			t.heard.add(ev, seen, said)
		}
	}
	for i := range t.heard.list {
		t.has[t.heard.list[i].sign] = &t.heard.list[i]
	}
	if n := len(t.heard.list); n > 0 {
		t.until = t.heard.list[n-1].arrived + 60
	}
	t.span = t.heard.first + t.until + 120
	step := 1.0
	for i := range t.heard.list {
		at := t.heard.list[i].arrived
		if i < manyMoment/2 || at > t.moments[len(t.moments)-1]*step {
			t.moments = append(t.moments, at)
			step = 1.05
		}
	}
	for _, at := range []float64{1, 3, 10, 20, 30, 45, 60, 90, 120, 180, 300, 450, 600, 900, 1500} {
		if at < t.until {
			t.moments = append(t.moments, at) // silence may tell, too
		}
	}
	t.moments = append(t.moments, t.until)
	slices.Sort(t.moments)
	t.moments = slices.Compact(t.moments)
}

// world sets up the site as it was when the fault began, with all else well.
func (t *trial) world(of *world, f *Fault) {
	w := &world{
		plant: of.plant, rng: rand.New(rand.NewPCG(uint64(f.Start.UnixNano()), uint64(t.k.n))), //nolint:gosec // a drawing
		st: make([]state, len(of.st)), port: make([]bool, len(of.links)), why: make([]int, len(of.links)), cutl: make([]int, len(of.links)),
		held: map[int][]said{}, log: map[logOf]float64{}, cond: map[condition][]raised{}, on: map[int]*job{}, below: map[int][]int{},
		hyper: of.hyper, next: of.next, mute: of.mute, again: &replay{root: -1, stranger: t.stranger},
	}
	t.fresh = make([]state, len(of.st))
	for i := range of.st {
		t.fresh[i] = state{poll: of.st[i].poll, skew: of.st[i].skew}
	}
	t.w = w
}

func (t *trial) reset() {
	w := t.w
	copy(w.st, t.fresh)
	clear(w.port)
	clear(w.why)
	clear(w.cutl)
	clear(w.held)
	clear(w.log)
	clear(w.cond)
	clear(w.on)
	if t.stranger {
		w.habits()
	}
	w.tasks, w.out, w.jobs, w.cases, w.via, w.now = w.tasks[:0], w.out[:0], w.jobs[:0], w.cases[:0], nil, t.k.start
	for i := range t.k.jobs {
		j := t.k.jobs[i]
		w.jobs = append(w.jobs, &j)
		for _, s := range j.servers {
			w.on[s] = &j
		}
	}
}

// once plays a cause; root -1 leaves it open what breaks.
func (t *trial) once(s *Scenario, near, root int) *Case {
	t.reset()
	t.w.again.root = root
	k := t.w.play(s, near, -1)
	t.w.again.root = -1
	return k
}

// causes lists what could show the signs, with the chance that it was this.
func (t *trial) causes() (out []*cause) {
	w := t.w
	total := float64(len(w.servers))
	sum := 0.0
	for _, x := range t.weight {
		sum += x
	}
	place := map[[2]int]bool{}
	found := false
	for k := range t.list {
		s := &t.list[k]
		same := s.Name == t.k.Name
		if t.weight[k] == 0 || !same && !t.could(k) {
			continue
		}
		for _, near := range t.around() {
			roots := map[int]int{}
			ids := map[int]string{}
			for range tries {
				if c := t.once(s, near, -1); c != nil {
					roots[c.root]++
					ids[c.root] = c.id
				}
			}
			if same && near == t.k.near && roots[t.k.root] == 0 {
				roots[t.k.root], ids[t.k.root] = 1, t.k.id
			}
			for _, root := range slices.Sorted(maps.Keys(roots)) {
				if place[[2]int{k, root}] {
					continue
				}
				place[[2]int{k, root}] = true
				c := &cause{Scenario: s, near: near, root: root}
				if same && root == t.k.root {
					c.Scenario, found = t.k.Scenario, true
				}
				many := len(w.serversOf(root))
				if ids[root] != "" {
					many = len(withRank(t.k.jobs, near))
				}
				c.prior = math.Log(t.weight[k] / sum * float64(roots[root]) / tries * float64(max(1, many)) / total)
				out = append(out, c)
			}
		}
	}
	if !found {
		out = append(out, &cause{
			Scenario: t.k.Scenario, near: t.k.near, root: t.k.root,
			prior: math.Log(1 / (float64(len(t.list)) * total)),
		})
	}
	return out
}

// could tells whether a scenario may show every kind of sign that came.
func (t *trial) could(k int) bool {
	for i := range t.heard.list {
		if !t.tells[k][t.heard.list[i].tells] {
			return false
		}
	}
	return true
}

// around returns the servers near which the root may be: where it was, and those of which most signs came.
func (t *trial) around() []int {
	w := t.w
	count := map[int]int{t.k.near: 1 << 30}
	for i := range t.heard.list {
		p, ok := w.by[t.heard.list[i].resource]
		if !ok {
			continue
		}
		near := w.serversOf(p)
		for _, s := range near {
			count[s] += 1 + 100/len(near)
		}
	}
	for i := range t.k.jobs { // the rank that stalls the others may say nothing
		if j := &t.k.jobs[i]; slices.Contains(j.servers, t.k.near) {
			for _, s := range j.servers {
				count[s]++
			}
		}
	}
	list := slices.Collect(maps.Keys(count))
	slices.SortFunc(list, func(a, b int) int { return cmp.Or(count[b]-count[a], a-b) })
	return list[:min(len(list), nearest)]
}

// serversOf returns the server that a part is in, or those that hang on it.
func (p *plant) serversOf(i int) (out []int) {
	d := p.parts[i].dev
	switch kind := p.parts[i].kind; {
	case d >= 0 && p.parts[d].kind == schemas.KindServer:
		return []int{d}
	case kind == schemas.KindPDU:
		for _, l := range p.parts[i].loads {
			for _, s := range p.serversOf(l) {
				if !has(out, s) {
					out = append(out, s)
				}
			}
		}
	case kind == schemas.KindCRAC:
		for _, s := range p.served(i) {
			if p.parts[s].kind == schemas.KindServer {
				out = append(out, s)
			}
		}
	case d >= 0:
		return p.hang(d, map[int]bool{})
	default:
		for _, o := range append(slices.Clone(p.parts[i].nv), p.parts[i].pcie...) {
			if s := p.parts[o].dev; s >= 0 && !has(out, s) {
				out = append(out, s)
			}
		}
	}
	return out
}

// hang returns the servers at and below a switch.
func (p *plant) hang(sw int, seen map[int]bool) (out []int) {
	seen[sw] = true
	for _, e := range p.of(sw, schemas.KindPort) {
		for _, l := range p.parts[e].links {
			o := p.parts[p.peer(l, e)].dev
			switch {
			case o < 0 || seen[o]:
			case p.parts[o].kind == schemas.KindServer:
				seen[o] = true
				out = append(out, o)
			case p.rank(o) < p.rank(sw):
				out = append(out, p.hang(o, seen)...)
			}
		}
	}
	return out
}

// withRank returns the servers of the job that runs on one.
func withRank(jobs []job, near int) []int {
	for i := range jobs {
		if slices.Contains(jobs[i].servers, near) {
			return jobs[i].servers
		}
	}
	return nil
}

// sample plays a cause so many times.
func (t *trial) sample(c *cause, n int) {
	for range n {
		k := t.once(c.Scenario, c.near, c.root)
		if k == nil || k.root != c.root {
			continue
		}
		t.w.run(t.k.start + t.span)
		h := t.overhear()
		if len(h.list) == 0 {
			continue
		}
		if c.name == "" {
			c.name = k.id
			if c.name == "" {
				c.name = t.w.parts[k.root].id
			}
			c.accept = []string{c.name}
			for _, b := range k.accept {
				c.accept = append(c.accept, b.Resource)
			}
			for _, b := range k.silent {
				c.silent = append(c.silent, b.Resource)
			}
		}
		v := &c.views[t.network()]
		if v.n++; v.signs == nil {
			v.signs = map[sign]*frequency{}
		}
		if at, ok := t.w.ended(&h, c.near); ok {
			v.own.n++
			v.own.arrived = append(v.own.arrived, at)
		}
		for i := range h.list {
			x := &h.list[i]
			f := v.signs[x.sign]
			if f == nil {
				f = &frequency{bins: make([]int, len(edges)+1)}
				v.signs[x.sign] = f
				v.order = append(v.order, x.sign)
			}
			f.n++
			f.bins[x.bin]++
			f.arrived = append(f.arrived, x.arrived)
		}
	}
}

// network is how the network of a sample is used: what hangs together in all signs.
func (t *trial) network() (k int) {
	if t.stranger && t.w.hyper.inBand {
		k |= 1
	}
	if t.stranger && t.w.hyper.nicBy == schemas.SourceKmsg {
		k |= 2
	}
	return k
}

// overhear returns what arrived of the fault in a sample.
func (t *trial) overhear() (h history) {
	w := t.w
	lines := w.out[:0]
	for i := range w.out {
		ev := &w.out[i]
		if ev.cause != 0 || ev.Source == w.mute || t.perturb.Lost > 0 && w.p(t.perturb.Lost) {
			continue
		}
		if t.perturb.Late > 0 && w.p(t.perturb.Late) {
			ev.seen += w.span(0, 120)
		}
		lines = append(lines, *ev)
	}
	slices.SortStableFunc(lines, func(a, b said) int { return cmp.Compare(a.seen, b.seen) })
	for i := range lines {
		ev := &lines[i]
		if i > 0 && ev.seen-h.first > t.until {
			break
		}
		at := ev.Time.Sub(epoch).Seconds()
		if t.perturb.Clocks > 0 {
			at = ev.seen
		}
		h.add(&ev.Event, ev.seen, at)
	}
	return h
}

// weigh estimates how likely what came and did not come is under a cause, at each moment.
func (t *trial) weigh(c *cause) {
	c.at = make([]float64, len(t.moments))
	total := float64(c.n())
	for i := range c.at {
		c.at[i] = math.Inf(-1)
	}
	for k := range c.views {
		v := &c.views[k]
		if v.n == 0 {
			continue
		}
		for i, x := range t.likelihood(c, v) {
			x += math.Log(float64(v.n) / total)
			top := max(x, c.at[i])
			c.at[i] = top + math.Log(math.Exp(x-top)+math.Exp(c.at[i]-top))
		}
	}
}

// likelihood is that of one view.
func (t *trial) likelihood(c *cause, v *view) []float64 {
	sum := make([]float64, len(t.moments))
	v.kinds = map[tells]*frequency{}
	for _, s := range v.order {
		f := v.signs[s]
		slices.Sort(f.arrived)
		k := v.kinds[s.tells]
		if k == nil {
			k = &frequency{bins: make([]int, len(edges)+1)}
			v.kinds[s.tells] = k
		}
		k.n += f.n
		k.of++
		for b, n := range f.bins {
			k.bins[b] += n
		}
	}
	m := float64(v.n)
	for _, s := range v.order {
		f := v.signs[s]
		k := v.kinds[s.tells]
		weight := min(1, crowded/float64(k.of))
		share := (float64(f.n) + kin*float64(k.n)/float64(k.of)/m + pseudo) / (m + kin + 2*pseudo)
		x := t.has[s]
		for i, at := range t.moments {
			if x != nil && x.arrived <= at {
				sum[i] += weight * (math.Log(share) + f.when(x.bin, k))
				continue
			}
			by := float64(sort.SearchFloat64s(f.arrived, at+1e-9)) / float64(f.n)
			sum[i] += weight * math.Log(1-share*by)
		}
	}
	slices.Sort(v.own.arrived)
	own, spoke := t.w.ended(&t.heard, c.near)
	for i, at := range t.moments {
		share := min(1, max(impossible, float64(v.own.n)/m))
		if spoke && own <= at {
			sum[i] += math.Log(share)
		} else {
			by := float64(sort.SearchFloat64s(v.own.arrived, at+1e-9)) / m
			sum[i] += math.Log(max((1 - by), pseudo/(m+2*pseudo)))
		}
	}
	for k := range t.heard.list {
		x := &t.heard.list[k]
		s := x.sign
		if v.signs[s] == nil {
			// No sample had it. So it is not of this cause, unless those of its kind are seldom.
			share := 0.0
			if k := v.kinds[s.tells]; k != nil {
				share = float64(k.n) / float64(k.of) / m
				share *= math.Pow(max(0, 1-share), m)
			}
			never := math.Log(max(share, impossible, math.Exp(-m)) / float64(len(edges)+1))
			for i, at := range t.moments {
				if x.arrived <= at {
					sum[i] += never
				}
			}
		}
	}
	return sum
}

// when is the log of the share of the samples with a sign that had it at such a time.
func (f *frequency) when(bin int, k *frequency) float64 {
	near := func(f *frequency) float64 {
		v := float64(f.bins[bin])
		if bin > 0 {
			v += 0.1 * float64(f.bins[bin-1])
		}
		if bin+1 < len(f.bins) {
			v += 0.1 * float64(f.bins[bin+1])
		}
		return v / 1.2
	}
	others := near(k) / float64(k.n)
	return math.Log((near(f) + kin*others + pseudo) / (float64(f.n) + kin + pseudo*float64(len(f.bins))))
}

// names returns the probability of each resource to be accepted, at a moment.
func (t *trial) names(causes []*cause, i int) (map[string]float64, []float64) {
	spoke := map[string]bool{}
	for _, x := range t.heard.list {
		if x.arrived <= t.moments[i] && x.grave {
			spoke[x.resource] = true
		}
	}
	top := math.Inf(-1)
	for _, c := range causes {
		top = max(top, c.prior+c.at[i])
	}
	p, sum := make([]float64, len(causes)), 0.0
	for k, c := range causes {
		p[k] = math.Exp(c.prior + c.at[i] - top)
		sum += p[k]
	}
	value := map[string]float64{}
	for k, c := range causes {
		p[k] /= sum
		list := slices.Clone(c.accept)
		if !spoke[c.name] {
			list = append(list, c.silent...)
		}
		slices.Sort(list)
		for _, r := range slices.Compact(list) {
			value[r] += p[k]
		}
	}
	return value, p
}

// verdict names the resource that is accepted most probably, and since when it was that.
func (t *trial) verdict(f *Fault, causes []*cause) Best {
	b := Best{Fault: f.ID}
	if len(causes) == 0 || len(t.heard.list) == 0 {
		return b
	}
	last := len(t.moments) - 1
	value, p := t.names(causes, last)
	for _, r := range slices.Sorted(maps.Keys(value)) {
		if value[r] > b.P+1e-9 {
			b.Resource, b.P = r, value[r]
		}
	}
	b.P = min(1, b.P)
	b.Right = slices.ContainsFunc(f.Accept, func(x Blame) bool { return x.Resource == b.Resource })
	for k, c := range causes {
		if p[k] > b.RivalP && !slices.Contains(c.accept, b.Resource) && !slices.Contains(c.silent, b.Resource) {
			b.Rival, b.RivalP = c.Name, p[k]
		}
	}
	since := last
	for ; since > 0; since-- {
		value, _ := t.names(causes, since-1)
		best := 0.0
		for _, v := range value {
			best = max(best, v)
		}
		if value[b.Resource] < best-1e-9 || value[b.Resource] < told {
			break
		}
	}
	at := f.Start.Add(time.Duration((t.heard.first + t.moments[since]) * float64(time.Second)))
	b.Stable = max(0, at.Sub(f.SymptomArrival).Seconds())
	return b
}

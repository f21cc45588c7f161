package correlator

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"auspex/schemas"
	"auspex/schemas/faults/propagation"
	"auspex/schemas/faults/sentence"
)

func itoa(n int) string { return strconv.Itoa(n) }

const (
	maxOffsets = 200              // of a lane; thinned evenly
	maxMembers = 64               // of a fold in the graph
	maxShort   = 2                // sentences of the explanation beside the summary
	before     = 30 * time.Second // the onset: what came earlier foretold the fault
	maxAgainst = 3                // sentences about what did not come
	maxEach    = 8                // parts that a sentence is said of, one by one
)

// describe renders the full state of an incident.
func (e *ledger) describe(inc *incident) schemas.Incident {
	out := schemas.Incident{
		ID: inc.id, Opened: inc.opened.UTC(), Updated: e.now.UTC(), At: e.now.UTC(), Revision: inc.revision, MergedInto: inc.mergedInto,
		Alternatives: []schemas.Cause{}, Events: []string{}, Affected: []string{}, Workloads: []string{},
	}
	out.RootCause.Resource, out.RootCause.Fault = e.cause(inc)
	out.RootCause.Title = e.model.Title(out.RootCause.Fault)
	out.RootCause.Confidence, out.RootCause.OneOf = round(inc.confidence), inc.oneOf
	if !inc.closed.IsZero() {
		t := inc.closed.UTC()
		out.Closed = &t
	}
	root := inc.where
	if inc.root != nil {
		root = inc.root.node
	}
	if n := e.g.ancestor(root, schemas.KindSite); n != none {
		out.Site = e.g.name[n]
	}
	out.Severity = inc.told.severity
	if inc.gone {
		if inc.mergedInto == "" { // it was nothing after all
			t := e.now.UTC()
			out.Closed = &t
		}
		return out
	}
	for _, a := range inc.alternatives {
		a.Title = e.model.Title(a.Fault)
		out.Alternatives = append(out.Alternatives, a)
	}
	v := e.view(inc, root)
	total := 0
	for _, s := range inc.signs {
		total += len(s.facts)
	}
	out.Events, out.EventCount = make([]string, 0, total), inc.facts()
	for _, s := range inc.signs {
		for i := range s.facts {
			out.Events = append(out.Events, s.facts[i].id)
		}
	}
	out.Affected, out.Workloads = append(out.Affected, v.affected...), append(out.Workloads, v.workloads...)
	if inc.root != nil {
		target := root
		if inc.root.fault.Target == "server" {
			if s := e.g.server(root); s != none {
				target = s
			}
		}
		out.Recommendation = &schemas.Recommendation{Action: inc.root.fault.Action, Target: e.g.name[target]}
	} else {
		out.Recommendation = &schemas.Recommendation{Action: "ticket", Target: e.g.name[root]}
	}
	e.composer.explain(v, &out)
	out.Lanes = e.laneView(inc, v)
	out.Graph = e.graphView(inc, v)
	return out
}

// view is all that the sentences about an incident rest on. Only [ledger.view]
// and the drawings of lanes and graph look into the engine.
type view struct {
	incident int  // its number
	node     node // of the cause
	onset    time.Time
	first    time.Time

	fault, resource, server, part, kind, rack, feed, owner string
	index                                                  any // number of the part, or its name

	affected, workloads []string
	servers             int // affected; of a workload without any, those that it ran on
	gpusHeard, ended    int

	// Of a supplier: power supplies on it and on those beside it, of them without input
	// and unable to report; how many stand beside it, the feed of the first of them,
	// whether that one alone carries the load now, and what went out with no supply left.
	supplies, suppliesMute, others, othersLost, othersMute int
	otherFeeds, leftOut                                    int
	otherFeed                                              string
	carried                                                bool

	groups []group

	silences  []silence // what did not come, the most telling first
	silence   silence   // that is spoken of
	equals    []string  // parts that nothing tells from the cause
	mute      int       // parts that could tell more and cannot report
	unread    bool      // nobody reads its server from inside
	clue      clue
	window    *window // of maintenance: it began within, or has outlasted it
	inWindow  bool
	outlasted bool
	reopened  int
	target    string // of the recommendation
}

// silence is a sign that was to be expected of the cause on parts that could tell of it.
type silence struct {
	sign       int
	due, shown int
	loss       float64 // nats that it costs the cause
}

// clue is a sign that would speak for the likeliest alternative.
type clue struct {
	sign        int // -1: there is none
	alternative string
	fault       string
}

// group is all signs of one kind.
type group struct {
	sign  int // of the model; len(model.Signs) is what the model does not know
	lanes []string

	parts, reports, gpus, hosts, speakers, most, twice int
	first, firstServer, source, otherSource            string
	firstIndex                                         any
	atCause                                            bool
	from, to                                           time.Time
	each                                               []group // one for each part, where a sentence tells of each
}

// known says whether anything of a group was reported.
func (g *group) known() bool { return g != nil && g.reports > 0 }

// view fills in what the sentences of an incident rest on. It is valid until the next call.
func (e *ledger) view(inc *incident, root node) *view {
	_, fault := e.cause(inc)
	v := &e.viewed
	*v = view{
		affected: v.affected[:0], workloads: v.workloads[:0], groups: v.groups[:0], // in the room of the last
		incident: inc.seq, reopened: inc.reopened, node: root, fault: fault, resource: e.g.name[root], part: e.leafName(root), kind: e.g.kindOf(root),
	}
	v.server, v.index = v.resource, number(v.part)
	if s := e.g.server(root); s != none {
		v.server = e.g.name[s]
	}
	if r := e.g.ancestor(root, schemas.KindRack); r != none {
		v.rack = e.g.name[r]
	}
	if j := e.g.jobs[root]; j != nil {
		v.owner = j.attrs["owner"]
	}
	jobRoot := v.kind == propagation.KindWorkload // else a job's other servers are not affected, the job is
	hosts, jobs, gpus := &e.met[0], &e.met[1], &e.met[2]
	hosts.reset()
	jobs.reset()
	gpus.reset()
	host := func(n node) {
		if s := e.g.server(n); s != none && e.g.kindOf(s) == schemas.KindServer && hosts.add(s) {
			v.affected = append(v.affected, e.g.name[s])
		}
	}
	kinds := e.byKind(inc.signs)
	gpu := e.g.kinds.of(schemas.KindGPU)
	for _, s := range inc.signs {
		if e.g.kindOf(s.node) == propagation.KindWorkload && jobs.add(s.node) {
			v.workloads = append(v.workloads, e.g.name[s.node])
		}
		if s.stateful && !s.up {
			v.ended++
		}
		last := node(none)
		for k := range s.facts {
			f := &s.facts[k]
			if e.g.kind[f.about] == gpu {
				gpus.add(f.about)
			}
			if !s.said || f.state == cleared {
				continue
			}
			if v.first.IsZero() || f.at.Before(v.first) {
				v.first = f.at
			}
			if f.about != last && (jobRoot || !e.jobSign(s)) {
				last = f.about
				host(f.about)
				e.peers(f.about, host)
			}
		}
	}
	host(root)
	v.gpusHeard, v.servers = gpus.n, len(v.affected)
	if jobRoot && v.servers == 0 { // the scheduler alone told: it ran on these
		v.servers = len(e.ranOn(root))
	}
	v.onset = v.first
	if inc.root != nil && !inc.root.onset.IsZero() {
		v.onset = inc.root.onset
	}
	for _, signs := range kinds {
		g := e.group(signs, root)
		if k := signs[0].kind; k < len(e.model.Signs) && e.model.Signs[k].Each {
			for i := range signs[:min(len(signs), maxEach)] {
				g.each = append(g.each, e.group(signs[i:i+1], root))
			}
		}
		v.groups = append(v.groups, g)
	}
	clear(e.sorting.signs) // what is forgotten is not kept alive
	if v.kind == schemas.KindPDU {
		e.viewFeed(v, inc.root)
	}
	e.viewDoubts(v, inc)
	e.viewWindow(v, inc)
	return v
}

// byKind sorts signs by their kinds, in the order in which these first come. The result is valid until the next call.
func (e *ledger) byKind(signs []*sign) [][]*sign {
	k, sizes := &e.sorting, e.sorting.sizes[:0]
	k.reset()
	for _, s := range signs {
		at, isNew := k.of(int32(s.kind)) //nolint:gosec // a number of kinds
		if isNew {
			sizes = append(sizes, 0)
		}
		sizes[at]++
	}
	k.sizes = sizes
	k.signs = slices.Grow(k.signs[:0], len(signs))[:len(signs)]
	k.lists = k.lists[:0]
	from := 0
	for _, n := range sizes {
		k.lists = append(k.lists, k.signs[from:from:from+n])
		from += n
	}
	for _, s := range signs {
		at, _ := k.of(int32(s.kind)) //nolint:gosec // a number of kinds
		k.lists[at] = append(k.lists[at], s)
	}
	return k.lists
}

// numbering counts numbers through, in the order in which they first come, and what comes of each.
type numbering struct {
	nodeSet

	at    []int32 // by number
	sizes []int   // by that in which they come
}

// of returns as the how manieth a number came, from 0, and whether it is new.
func (k *numbering) of(number int32) (at int32, isNew bool) {
	if isNew = k.add(number); isNew {
		if more := len(k.met) - len(k.at); more > 0 {
			k.at = append(k.at, make([]int32, more)...)
		}
		k.at[number] = int32(k.n - 1) //nolint:gosec // a number of numbers
	}
	return k.at[number], isNew
}

// sorting is scratch of [ledger.byKind].
type sorting struct {
	numbering

	signs []*sign
	lists [][]*sign
}

// A sign that did not come, and that likelier comes than not, is told as a contradiction
// where it costs the cause odds of two, or where half of what should show it does not.
const (
	likely      = 0.5
	tellingLoss = 0.7
)

// holds says whether an incident holds a sign, on whichever parts.
func (v *view) holds(sign int) bool {
	return slices.ContainsFunc(v.groups, func(g group) bool { return g.sign == sign && g.reports > 0 })
}

// viewDoubts fills in what was to be expected of the cause and did not come, and what
// would speak for its likeliest alternative.
func (e *ledger) viewDoubts(v *view, inc *incident) {
	v.clue.sign = -1
	h := inc.root
	if h == nil {
		return
	}
	v.unread = e.unread.is(e.g.server(h.node))
	worst := map[int]silence{}
	for c := range h.classes {
		cl, r := &h.fault.Classes[c], &h.classes[c]
		if cl.Derived || cl.Learned || r.n == 0 {
			continue
		}
		v.mute = max(v.mute, int(r.mute)-e.unreadOf(h, c))
		shown := 0
		for _, s := range r.signs {
			if s.said {
				shown++
			}
		}
		due := int(r.n - r.mute)
		if due <= shown || e.late(e.onset(h), cl.Soon) < lateSteps || cl.Shows*cl.Share < likely {
			continue
		}
		s := silence{sign: cl.Sign, due: due, shown: shown, loss: -e.fit(h, c, shown, 0)}
		// What the incident holds has come, by whichever way: classes forget what ended.
		if shown == 0 && (s.loss < tellingLoss || v.holds(cl.Sign)) || shown > 0 && 2*shown > due {
			continue
		}
		if w, met := worst[cl.Sign]; !met || s.loss > w.loss {
			worst[cl.Sign] = s
		}
	}
	for _, s := range worst {
		v.silences = append(v.silences, s)
	}
	slices.SortFunc(v.silences, func(a, b silence) int { return cmp.Or(cmp.Compare(b.loss, a.loss), a.sign-b.sign) })
	for i, o := range inc.oneOf {
		if i > 0 {
			v.equals = append(v.equals, e.leafName(e.g.ensure(o)))
		}
	}
	switch {
	case len(v.equals) > 0:
		v.clue = e.clue(h, &schemas.Cause{Resource: inc.oneOf[1], Fault: h.fault.Name})
	case len(inc.alternatives) > 0:
		v.clue = e.clue(h, &inc.alternatives[0])
	}
}

// clue returns the sign on the part itself that the alternative shows most surely, the
// cause does not show, and nobody has seen.
func (e *ledger) clue(h *suspect, a *schemas.Cause) clue {
	out, best := clue{sign: -1, alternative: a.Resource, fault: a.Fault}, 0.0
	n := e.g.ensure(a.Resource)
	explained := func(sign int) bool {
		return n == h.node && slices.ContainsFunc(h.fault.Classes, func(c propagation.Class) bool { return c.Sign == sign && !c.Learned })
	}
	for i := range e.model.Faults {
		f := &e.model.Faults[i]
		if f.Name != a.Fault || !slices.Contains(f.Kinds, e.g.kindOf(n)) {
			continue
		}
		for _, c := range f.Classes {
			if len(c.Path) > 0 || c.Later || c.Derived || explained(c.Sign) || c.Shows*c.Share <= best {
				continue
			}
			if s := e.signs.get(n, c.Sign); s == nil || !s.said {
				out.sign, best = c.Sign, c.Shows*c.Share
			}
		}
	}
	return out
}

// viewFeed fills in what hangs on a supplier, and what on those beside it.
func (e *ledger) viewFeed(v *view, h *suspect) {
	feed, others := e.feedOf(v.node)
	v.feed, v.otherFeeds = feed, len(others)
	v.supplies, _, v.suppliesMute = e.supplies([]node{v.node}, h)
	v.others, v.othersLost, v.othersMute = e.supplies(others, h)
	if len(others) > 0 {
		v.otherFeed = e.g.attrs[others[0]].Get(schemas.AttrFeed)
		v.carried = len(others) == 1 && e.unfed[others[0]] == nil
	}
	if h != nil {
		v.leftOut = e.leftWithout(h)
	}
}

// group sums up signs of one kind.
func (e *ledger) group(signs []*sign, root node) group {
	g := group{sign: signs[0].kind}
	e.hostsOf.reset()
	e.heardOf.reset()
	first, lane := signs[0], int32(-1)
	gpu := e.g.kinds.of(schemas.KindGPU)
	for _, s := range signs {
		if e.g.kind[s.node] == gpu {
			g.gpus++
		}
		ups, source := 0, ""
		twice := false
		for i := range s.facts {
			f := &s.facts[i]
			if e.heardOf.add(f.about) {
				if h := e.g.server(f.about); h != none {
					e.hostsOf.add(h)
				}
			}
			if f.state == cleared {
				continue
			}
			if f.state == raised {
				ups += int(f.n)
			}
			if from := e.sourceNamed(f.source); source == "" {
				source = from
			} else if from != source && !twice {
				twice = true
				g.source, g.otherSource = sourceName(from), sourceName(source)
			}
			if s.said {
				g.reports += int(f.n)
				if f.lane != lane {
					lane = f.lane
					if key := e.laneIDs[lane]; !slices.Contains(g.lanes, key) {
						g.lanes = append(g.lanes, key)
					}
				}
			}
		}
		if twice {
			g.twice++
		}
		g.most = max(g.most, ups)
		if !s.said {
			continue
		}
		if g.parts++; g.parts == 1 {
			first = s
		}
		if g.from.IsZero() || s.at.Before(g.from) {
			g.from = s.at
		}
		if s.at.After(g.to) {
			g.to = s.at // repeats by slower sources do not count
		}
	}
	g.hosts, g.speakers = max(e.hostsOf.n, 1), e.heardOf.n
	g.first, g.firstIndex, g.atCause = e.g.name[first.node], number(e.leafName(first.node)), first.node == root
	g.firstServer = g.first
	if s := e.g.server(first.node); s != none {
		g.firstServer = e.g.name[s]
	}
	return g
}

// fact gives a fact to conditions and sentences; g is the sign that a sentence tells of.
func (v *view) fact(m *propagation.Model, g *group, name string) any {
	if sign, fact, ok := strings.Cut(name, "."); ok {
		if g = v.group(m, sign); g == nil {
			g = &group{sign: m.SignNamed(sign)}
		}
		name = fact
	}
	switch name {
	case "fault":
		return v.fault
	case "resource":
		return v.resource
	case "server":
		return v.server
	case "part":
		return v.part
	case "index":
		return v.index
	case "kind":
		return v.kind
	case "rack":
		return v.rack
	case "feed":
		return v.feed
	case "owner":
		return v.owner
	case "servers":
		return v.servers
	case "jobs":
		return len(v.workloads)
	case "gpus_heard":
		return v.gpusHeard
	case "ended":
		return v.ended
	case "supplies":
		return v.supplies
	case "supplies_mute":
		return v.suppliesMute
	case "others":
		return v.others
	case "others_lost":
		return v.othersLost
	case "others_mute":
		return v.othersMute
	case "other_feeds":
		return v.otherFeeds
	case "other_feed":
		return v.otherFeed
	case "carried":
		return v.carried
	case "left_out":
		return v.leftOut
	case "expected":
		return m.Signs[v.silence.sign].Title
	case "due":
		return v.silence.due
	case "shown":
		return v.silence.shown
	case "mute":
		return v.mute
	case "unread":
		return v.unread
	case "target":
		return v.target
	case "clue":
		return m.Signs[max(v.clue.sign, 0)].Title
	case "has_clue":
		return v.clue.sign >= 0
	case "alternative":
		return v.clue.alternative
	case "alternative_title":
		return m.Title(v.clue.fault)
	case "heals":
		return m.Record(v.fault).Heals
	case "in_window":
		return v.inWindow
	case "outlasted":
		return v.outlasted
	case "reopened":
		return v.reopened
	case "equals":
		return len(v.equals)
	case "equal_parts":
		return strings.Join(v.equals, ", ")
	case "window", "window_by", "window_end":
		return v.window.fact(name)
	}
	if x := g.fact(m, v, name); x != nil {
		return x
	}
	return v.group(m, name) != nil // whether there is such a sign
}

func (g *group) fact(m *propagation.Model, v *view, name string) any {
	if g == nil {
		return nil
	}
	switch name {
	case "parts":
		return g.parts
	case "reports":
		return g.reports
	case "within":
		return seconds(g.to.Sub(g.from))
	case "lead":
		if g.from.IsZero() {
			return 0.0
		}
		return max(seconds(v.onset.Sub(g.from)), 0)
	case "what":
		if g.sign >= 0 && g.sign < len(m.Signs) {
			return m.Signs[g.sign].Title
		}
		return m.UnnamedSign
	case "codes":
		return strings.Join(g.lanes, ", ")
	case "first":
		return g.first
	case "first_index":
		if g.firstIndex == nil {
			return ""
		}
		return g.firstIndex
	case "first_server":
		return g.firstServer
	case "at_cause":
		return g.atCause
	case "gpus":
		return g.gpus
	case "hosts":
		return g.hosts
	case "speakers":
		return g.speakers
	case "most":
		return g.most
	case "twice":
		return g.twice
	case "source":
		return g.source
	case "other_source":
		return g.otherSource
	}
	return nil
}

// groupOf returns the signs of a kind of which something was reported, or nil.
func (v *view) groupOf(sign int) *group {
	for i := range v.groups {
		if g := &v.groups[i]; g.sign == sign && g.known() {
			return g
		}
	}
	return nil
}

// group returns the signs of a name of which something was reported, or nil.
func (v *view) group(m *propagation.Model, sign string) *group {
	for i := range v.groups {
		if g := &v.groups[i]; g.known() && g.sign < len(m.Signs) && m.Signs[g.sign].Name == sign {
			return g
		}
	}
	return nil
}

// composer chooses the sentences of an incident.
type composer struct {
	m     *propagation.Model
	v     *view
	said  wordings
	told  []int    // signs
	lanes []string // that a sentence speaks of
	out   []ranked
	rank  int
}

// explain puts an incident into sentences, each with the lanes that prove it.
func (p *composer) explain(v *view, out *schemas.Incident) {
	p.v, p.told, p.lanes, p.out, p.rank = v, p.told[:0], p.lanes[:0], p.out[:0], rankRecord
	m, rec := p.m, p.m.Record(v.fault)
	for i := range rec.Summary {
		if s := &rec.Summary[i]; p.holds(s, nil) {
			summary := p.render("sum."+v.fault, s, nil)
			out.Summary = &summary
			break
		}
	}
	for _, c := range rec.Sentences {
		p.choose(c)
	}
	p.rank = rankEffect
	for _, c := range m.Shared {
		if !slices.Contains(p.told, c[0].Of) {
			p.choose(c)
		}
	}
	for i := range v.groups {
		g := &v.groups[i]
		unknown := g.sign >= len(m.Signs)
		if !g.known() || slices.Contains(p.told, g.sign) && !unknown || !slices.ContainsFunc(g.lanes, func(l string) bool { return !slices.Contains(p.lanes, l) }) {
			continue
		}
		for _, c := range m.Rest {
			if p.restOf(c, g) {
				break
			}
		}
	}
	p.rank = rankWork
	for _, c := range m.Work {
		p.choose(c)
	}
	p.rank = rankLast
	for _, c := range m.Last {
		p.choose(c)
	}
	slices.SortStableFunc(p.out, func(a, b ranked) int { return a.rank - b.rank })
	var room [8]schemas.Sentence // most have fewer
	short := append(room[:0], *out.Summary)
	out.Sentences = make([]schemas.Sentence, 0, len(p.out))
	for i, s := range p.out {
		out.Sentences = append(out.Sentences, s.Sentence)
		if i < maxShort && s.rank < rankLast || s.rank == rankWork {
			short = append(short, s.Sentence)
		}
	}
	clear(p.out) // what is forgotten is not kept alive
	p.doubts(out)
	short = append(short, out.Against[:min(len(out.Against), 1)]...)
	out.Explanations = map[string]string{}
	words := make([]string, 0, len(room))
	for _, language := range sentence.Languages {
		words = words[:0]
		for _, s := range short {
			words = append(words, s.Text[language])
		}
		gap := " "
		if language == "zh" { // its full stop takes the room of a space
			gap = ""
		}
		out.Explanations[language] = strings.Join(words, gap)
	}
	out.Explanation = out.Explanations[sentence.Languages[0]]
}

// ranked is a sentence and how near it is to the cause.
type ranked struct {
	schemas.Sentence

	rank int
}

const (
	rankRecord = iota // the record of the fault says it
	rankCause         // of the part that is blamed
	rankEffect
	rankWork // what it has to do with declared maintenance
	rankLast
)

// doubts adds what contradicts the cause, what would speak for another one and what to do.
func (p *composer) doubts(out *schemas.Incident) {
	v := p.v
	first := func(c propagation.Choice) (schemas.Sentence, bool) {
		for i := range c {
			if p.holds(&c[i], nil) {
				return p.render("say."+c[i].ID, &c[i], nil), true
			}
		}
		return schemas.Sentence{}, false
	}
	for i := range v.silences[:min(len(v.silences), maxAgainst)] {
		v.silence = v.silences[i]
		if s, ok := first(p.m.Against); ok {
			out.Against = append(out.Against, s)
		}
	}
	for _, c := range p.m.WouldChange {
		if s, ok := first(c); ok {
			out.WouldChange = append(out.WouldChange, s)
		}
	}
	if r := out.Recommendation; r != nil {
		v.target = r.Target
		step := p.m.Steps[r.Action]
		if own := p.m.Record(v.fault).Step; len(own) > 0 {
			step = own
		}
		if s, ok := first(step); ok {
			s.ID = "do." + r.Action
			out.Step = &s
		}
	}
}

func (p *composer) holds(s *propagation.Said, g *group) bool {
	return s.When.Holds(func(name string) any { return p.v.fact(p.m, g, name) })
}

// choose adds the first sentence of a choice that holds, if one does.
func (p *composer) choose(c propagation.Choice) {
	for i := range c {
		s := &c[i]
		if s.Of < 0 {
			if p.holds(s, nil) {
				p.add(s, nil)
				return
			}
			continue
		}
		g := p.v.groupOf(s.Of)
		if g == nil || !p.holds(s, g) {
			continue
		}
		if !s.Each {
			p.add(s, g)
			return
		}
		for k := range g.each {
			p.add(s, &g.each[k])
		}
		return
	}
}

// restOf adds the first sentence of a choice that holds of a sign.
func (p *composer) restOf(c propagation.Choice, g *group) bool {
	for i := range c {
		if p.holds(&c[i], g) {
			p.add(&c[i], g)
			return true
		}
	}
	return false
}

func (p *composer) add(s *propagation.Said, g *group) {
	out := p.render("say."+s.ID, s, g)
	if g != nil {
		p.told = append(p.told, g.sign)
		out.Lanes, out.Count = g.lanes, g.reports
		p.lanes = append(p.lanes, g.lanes...)
	}
	p.told = append(p.told, s.Tells...)
	rank := p.rank
	if rank == rankEffect && g != nil && g.atCause && p.v.onset.Sub(g.from) <= before {
		rank = rankCause
	}
	p.out = append(p.out, ranked{out, rank})
}

func (p *composer) render(id string, s *propagation.Said, g *group) schemas.Sentence {
	w := p.said.of(s, p.v.incident, func(name string) any { return p.v.fact(p.m, g, name) })
	return schemas.Sentence{ID: id, Args: w.args, Text: w.text, Lanes: []string{}}
}

// wordings are what sentences of incidents said last: an incident that is published again says most
// with the same facts. A wording is a function of its template and its facts and of nothing
// else, and all its facts are compared, so none goes stale; those of states that are
// published share it, so nobody may change it.
type wordings map[wordingKey]wording

// wordingKey is a sentence of an incident, or of all where it shows no facts.
type wordingKey struct {
	said     *propagation.Said
	incident int
}

const maxWordings = 256 // those of the incidents that are told of now; then all are forgotten

type wording struct {
	facts []any // in the order of their names
	args  map[string]any
	text  sentence.Text
}

// of returns a sentence of an incident with the facts of a view.
func (ws wordings) of(s *propagation.Said, incident int, view sentence.View) wording {
	if len(s.Template.Names()) == 0 {
		incident = 0
	}
	var room [16]any // most show fewer
	facts := room[:0]
	for _, n := range s.Template.Names() {
		facts = append(facts, view(n))
	}
	k := wordingKey{s, incident}
	w, ok := ws[k]
	if ok && slices.EqualFunc(w.facts, facts, sameFact) {
		return w
	}
	if len(ws) >= maxWordings {
		clear(ws)
	}
	w = wording{slices.Clone(facts), make(map[string]any, len(facts)), s.Template.Say(facts)}
	for i, n := range s.Template.Names() {
		w.args[n] = facts[i]
	}
	ws[k] = w
	return w
}

func sameFact(a, b any) bool {
	switch a := a.(type) {
	case sentence.Text: // maps are not compared by ==
		b, ok := b.(sentence.Text)
		return ok && maps.Equal(a, b)
	case string, int, float64, bool, nil:
		return a == b
	}
	return false
}

func (e *ledger) jobSign(s *sign) bool {
	return s.kind < len(e.model.Signs) && e.model.Signs[s.kind].Job
}

// peers visits the servers at the other ends of a port's links.
func (e *ledger) peers(n node, visit func(node)) {
	if e.g.kindOf(n) != schemas.KindPort {
		return
	}
	for _, l := range [2][][]node{e.g.links[linkNet].out, e.g.links[linkNet].in} {
		for _, p := range l[n] {
			visit(p)
		}
	}
}

// id is a lane's key: types whose code says what happened keep it.
func (k laneKey) id() string {
	if k.code != "" && (k.typ == schemas.EventGPUXID || k.typ == schemas.EventNVSwitchSXid || k.typ == schemas.EventBMCSEL) {
		return k.typ + "/" + k.code
	}
	return k.typ
}

func (e *ledger) laneView(inc *incident, v *view) []schemas.Lane {
	k, sizes := &e.drawn, e.drawn.sizes[:0]
	k.reset()
	var lanes []schemas.Lane
	for _, s := range inc.signs {
		for i := range s.facts {
			f := &s.facts[i]
			if f.state == cleared {
				continue
			}
			at, isNew := k.of(e.laneAs[f.lane])
			if isNew {
				lanes, sizes = append(lanes, schemas.Lane{
					ID: e.laneIDs[f.lane], Type: e.lanes[f.lane].typ, Code: e.lanes[f.lane].code, Severity: f.sev.severity(), Role: "effect",
				}), append(sizes, 0)
			}
			l := &lanes[at]
			sizes[at]++
			l.Count += int(f.n)
			if f.sev > gravityOf(l.Severity) {
				l.Severity = f.sev.severity()
			}
			if s.node == v.node {
				l.Role = "cause"
			}
		}
	}
	k.sizes = sizes
	for i := range lanes {
		lanes[i].Offsets = make([]float64, 0, sizes[i])
	}
	for _, s := range inc.signs {
		for i := range s.facts {
			if f := &s.facts[i]; f.state != cleared {
				at, _ := k.of(e.laneAs[f.lane])
				l := &lanes[at]
				l.Offsets = append(l.Offsets, math.Round(apart(f.at, v.first).Seconds()*1000)/1000)
			}
		}
	}
	for i := range lanes {
		slices.Sort(lanes[i].Offsets)
		lanes[i].Offsets = thin(lanes[i].Offsets, maxOffsets)
	}
	slices.SortStableFunc(lanes, func(a, b schemas.Lane) int {
		if a.Role != b.Role {
			return cmp.Compare(a.Role, b.Role) // cause before effect
		}
		return cmp.Compare(a.Offsets[0], b.Offsets[0])
	})
	return lanes
}

// thin keeps n values, evenly spread, the first and the last among them.
func thin(v []float64, n int) []float64 {
	if len(v) <= n {
		return v
	}
	out := make([]float64, n)
	for i := range out {
		out[i] = v[i*(len(v)-1)/(n-1)]
	}
	return out
}

func (e *ledger) leafName(n node) string {
	name := e.g.name[n]
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		return name[i+1:]
	}
	return name
}

// number returns the index that a part's name tells, such as 3 of gpu3 or GPU_SXM_3, or else the
// name: the digits of an opaque id, of a bus address or of a port on a line card count nothing.
func number(name string) any {
	i := strings.IndexAny(name, "0123456789")
	if i > 0 && len(name)-i <= 3 {
		if n, err := strconv.Atoi(name[i:]); err == nil {
			return n
		}
	}
	return name
}

// feedOf returns the feed of a PDU, and the PDUs beside it in its rack.
func (e *ledger) feedOf(n node) (feed string, others []node) {
	feed = e.g.attrs[n].Get(schemas.AttrFeed)
	if r := e.g.ancestor(n, schemas.KindRack); r != none {
		for _, p := range e.g.children[r] {
			if p != n && e.g.kindOf(p) == schemas.KindPDU {
				others = append(others, p)
			}
		}
	}
	return feed, others
}

// supplies says how many power supplies hang on PDUs, how many of them report
// that their input is lost, and how many are silent and could not report.
func (e *ledger) supplies(of []node, root *suspect) (all, lost, mute int) {
	kind := e.inputLost
	if kind < 0 || root == nil {
		return 0, 0, 0
	}
	due := e.onset(root).Add(effectSoon)
	for _, p := range of {
		for _, psu := range e.g.links[linkPowers].out[p] {
			dev := e.g.server(psu)
			if dev == none || e.g.kindOf(psu) != schemas.KindPSU || e.g.kindOf(dev) != schemas.KindServer {
				continue
			}
			all++
			if s := e.signs.get(psu, kind); s != nil && s.said && s.up {
				lost++
			} else if e.mute(dev, e.model.Signs[kind].By, due, root) {
				mute++
			}
		}
	}
	return all, lost, mute
}

func seconds(d time.Duration) float64 {
	s := d.Seconds()
	if s >= 10 {
		return math.Round(s)
	}
	return math.Round(s*10) / 10
}

// ranOn returns the servers that a workload held.
func (e *ledger) ranOn(job node) map[node]bool {
	servers := map[node]bool{}
	if j := e.g.jobs[job]; j != nil {
		for _, r := range j.resources {
			if s := e.g.server(r); s != none {
				servers[s] = true
			}
		}
	}
	return servers
}

// leftWithout counts the servers and switches that a fault took along since
// nothing else feeds them.
func (e *ledger) leftWithout(h *suspect) int {
	seen := map[node]bool{}
	for _, f := range h.folded {
		if e.without(f.node, h) {
			seen[e.g.server(f.node)] = true
		}
	}
	return len(seen)
}

func sourceName(s string) string {
	switch s {
	case schemas.SourceRedfish:
		return "Redfish"
	case schemas.SourceIPMI, schemas.SourceSNMP, schemas.SourceDCGM, schemas.SourceNVML:
		return strings.ToUpper(s)
	}
	return s
}

// graphView draws the way from the cause to what it hit; equal parts fold.
func (e *ledger) graphView(inc *incident, v *view) *schemas.Graph {
	cause := schemas.GraphNode{ID: e.g.name[v.node], Kind: e.g.kindOf(v.node), Label: e.g.name[v.node], Role: "cause", Count: 1}
	folds := e.folds[:0]
	met, others := &e.met[0], &e.met[1] // a part is of one kind, but a switch that a job runs on stands among servers
	met.reset()
	others.reset()
	find := func(kind uint8) *fold {
		for i := range folds {
			if folds[i].number == kind {
				return &folds[i]
			}
		}
		name := e.g.kinds.name[kind]
		for i := range folds {
			if folds[i].kind == name { // kinds that have no number of their own
				return &folds[i]
			}
		}
		folds = slices.Grow(folds, 1)[:len(folds)+1]
		f := &folds[len(folds)-1]
		*f = fold{number: kind, kind: name, members: f.members[:0], lags: f.lags[:0]} // in the room of an earlier one
		return f
	}
	add := func(kind uint8, n node, lag time.Duration, via, edge string, of int) {
		f := find(kind)
		if len(f.lags) == 0 {
			f.via, f.edge = via, edge
		}
		if e.g.kind[n] == kind && met.add(n) || e.g.kind[n] != kind && others.add(n) {
			f.members = append(f.members, n)
		}
		f.of = max(f.of, of)
		f.lags = append(f.lags, lag.Seconds())
	}
	job, server, gpu := e.g.kinds.of(propagation.KindWorkload), e.g.kinds.of(schemas.KindServer), e.g.kinds.of(schemas.KindGPU)
	for _, s := range inc.signs {
		if !s.said {
			continue
		}
		if s.node == v.node {
			cause.Reporting = 1
			if e.g.kind[s.node] != job {
				continue
			}
			for i := range s.facts {
				f := &s.facts[i]
				if h := e.g.server(f.about); h != none {
					add(server, h, apart(f.at, v.onset), "", "runs", 0)
				}
				if e.g.kind[f.about] == gpu {
					add(gpu, f.about, apart(f.at, v.onset), schemas.KindServer, "contains", 0)
				}
			}
			continue
		}
		via, edge, of := "", "contains", 0
		if inc.root != nil {
			if c := classOf(s, inc.root); c >= 0 {
				path := inc.root.fault.Classes[c].Path
				of = int(inc.root.classes[c].n)
				if len(path) > 0 {
					edge = edgeOf(path[len(path)-1].Op)
				}
				if len(path) > 1 {
					via = path[len(path)-2].Kind
				}
			}
		}
		add(e.g.kind[s.node], s.node, apart(s.at, v.onset), via, edge, of)
	}
	e.folds = folds
	out := &schemas.Graph{Nodes: append(make([]schemas.GraphNode, 0, 1+len(folds)), cause), Edges: make([]schemas.GraphEdge, 0, len(folds))}
	id := func(f *fold) string {
		if len(f.members) == 1 {
			return e.g.name[f.members[0]]
		}
		return f.kind
	}
	for i := range folds {
		f := &folds[i]
		n := schemas.GraphNode{ID: id(f), Kind: f.kind, Role: "affected", Count: max(len(f.members), f.of), Reporting: len(f.members)}
		if n.Label = n.ID; len(f.members) > 1 || n.Count > 1 {
			n.Label = itoa(n.Count) + " " + f.kind
		}
		n.Members = make([]string, min(len(f.members), maxMembers))
		for k := range n.Members {
			n.Members[k] = e.g.name[f.members[k]]
		}
		out.Nodes = append(out.Nodes, n)
		from := cause.ID
		if b := slices.IndexFunc(folds, func(o fold) bool { return o.kind == f.via }); b >= 0 && b != i {
			from = id(&folds[b])
		}
		slices.Sort(f.lags)
		out.Edges = append(
			out.Edges, schemas.GraphEdge{From: from, To: n.ID, Kind: f.edge, LagSeconds: math.Round(f.lags[len(f.lags)/2]*1000) / 1000},
		)
	}
	return out
}

// fold is all parts of a kind in a drawing.
type fold struct {
	number  uint8
	kind    string
	members []node
	of      int
	lags    []float64
	via     string // kind of the fold before
	edge    string
}

func classOf(s *sign, h *suspect) int {
	for _, l := range s.links {
		if l.to == h {
			return l.class
		}
	}
	return -1
}

func edgeOf(op propagation.Op) string {
	switch op {
	case propagation.Powers, propagation.Powered:
		return schemas.LinkPowers
	case propagation.Cools, propagation.Cooled, propagation.Chills, propagation.Chilled:
		return schemas.LinkCools
	case propagation.Net:
		return schemas.LinkNetwork
	case propagation.NVLink:
		return schemas.LinkNVLink
	case propagation.PCIe:
		return schemas.LinkPCIe
	case propagation.Jobs:
		return "runs"
	}
	return "contains"
}

// Package rootcause ranks the nodes of a dependency graph by the probability that the
// trouble which one of them reports began there, from metrics alone: latency, requests
// and availability of services, or any other number that a node has.
//
// The idea is a budget. A call takes the time that its callee takes and some of its
// own; a call fails where its callee fails, or by itself. So the seconds (requests times
// latency) and the failed requests that a node has too much are made up by those that
// its callees have too much, and by its own share. Beginning at the node that was
// reported, the excess is followed down the graph: each callee takes as much of it as it
// has too much itself, as far as that is no chance, and what no callee accounts for
// stays. Where it stays, it began.
//
// What is too much is measured inside the window of the incident, the anomalous rows
// against the others, so that a site which has changed since its normal operation was
// recorded is not taken for one in trouble. How rare that is is counted in windows of
// normal operation of the same shape. Nothing is fitted to a site but these counts.
package rootcause

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Target is what was reported: a metric of a node, and when.
type Target struct {
	Node      string  `json:"node"`
	Metric    string  `json:"metric"`
	Statistic string  `json:"agg"`
	Time      float64 `json:"timestamp"` // seconds since 1970
}

// UnmarshalJSON reads a target whose timestamp is seconds since 1970 or RFC 3339.
func (t *Target) UnmarshalJSON(doc []byte) error {
	type plain Target
	in := struct {
		*plain
		Time json.RawMessage `json:"timestamp"`
	}{plain: (*plain)(t)}
	if err := json.Unmarshal(doc, &in); err != nil {
		return err
	}
	if len(in.Time) == 0 {
		return errors.New("target: no timestamp")
	}
	var err error
	if t.Time, err = parseTime(strings.Trim(string(in.Time), `"`)); err != nil {
		return fmt.Errorf("target: %w", err)
	}
	return nil
}

// Movement is a metric that moved with the target.
type Movement struct {
	Metric    string    `json:"metric"`
	Statistic string    `json:"statistic,omitempty"`
	Before    *float64  `json:"before"`         // mean of the comparison, null where nothing was read
	During    *float64  `json:"during"`         // mean of the anomalous rows, null where nothing was read
	Since     time.Time `json:"since,omitzero"` // the first row that normal operation would not show
	Chance    float64   `json:"chance"`         // that normal operation moves as much
}

// Cause is a suspect.
type Cause struct {
	Node        string  `json:"node"`
	Probability float64 `json:"probability"`
	// Share is the part of the target's excess that stays at the node, in [0,1].
	Share    float64    `json:"share"`
	Path     []string   `json:"path,omitempty"` // from the target to the node
	Evidence []Movement `json:"evidence,omitempty"`

	node int
}

// Verdict ranks the nodes of one issue.
type Verdict struct {
	From    time.Time `json:"from"` // the anomalous rows of the target
	To      time.Time `json:"to"`
	Against string    `json:"against"` // "window", or "normal" where the window has no other rows
	Chance  float64   `json:"chance"`  // that normal operation moves the target as much
	Causes  []Cause   `json:"causes"`
	// Others is the probability of all nodes that are not among the first twenty.
	Others float64 `json:"others"`
	// Unknown is the probability that none of the nodes is the cause.
	Unknown float64 `json:"unknown"`
}

// ErrTarget is a target that the graph or the metrics do not have.
var ErrTarget = errors.New("the target cannot be judged")

// issue is one window under judgement.
type issue struct {
	site    *Site
	table   *Table
	columns map[string][]Column
	target  int
	kind    kind // of the target
	shape   shape
	offsets []int // of windows of normal operation
	nodes   []node
}

// node is what a node shows in the window.
type node struct {
	now, then readings
	seen      bool // there are readings in the window
	fresh     bool // it was not called before
	excess    [2]float64
	chance    [kinds]float64
	usual     [2][]float64 // excess in windows of normal operation, by offset
	surge     float64      // probability that the rise of its requests is no chance
	added     float64      // calls a row that come in addition
	growth    float64      // requests in the anomalous rows over those before
	lost      float64      // calls a row that no longer come
	mute      bool         // it does not even report that none come
}

// Rank ranks the nodes of the site's graph for one window of readings.
func (s *Site) Rank(table *Table, t Target) (*Verdict, error) {
	is := &issue{site: s, table: table, columns: byNode(table)}
	var ok bool
	if is.target, ok = s.Graph.Index(t.Node); !ok {
		return nil, fmt.Errorf("%w: node %q is not in the graph", ErrTarget, t.Node)
	}
	chance, err := is.frame(t)
	if err != nil {
		return nil, err
	}
	is.observe()
	return is.verdict(chance), nil
}

// frame finds the anomalous rows of the target.
func (is *issue) frame(t Target) (chance float64, err error) {
	column := Column{t.Node, t.Metric, t.Statistic}
	values := is.table.Columns[column]
	if values == nil {
		return 0, fmt.Errorf("%w: %s has no column %s %s %s", ErrTarget, is.table.Path, t.Node, t.Metric, t.Statistic)
	}
	n := len(values)
	if n > len(is.site.normal.Times) {
		return 0, fmt.Errorf("%w: %s has %d rows, normal operation only %d", ErrTarget, is.table.Path, n, len(is.site.normal.Times))
	}
	times, step := is.table.Times, is.site.normal.step()
	if own := is.table.step(); own > 0 && (own > 1.5*step || step > 1.5*own) {
		return 0, fmt.Errorf("%w: rows of %s are %gs apart, those of normal operation %gs", ErrTarget, is.table.Path, own, step)
	}
	if t.Time < times[0]-2*step || t.Time > times[n-1]+2*step {
		return 0, fmt.Errorf("%w: its time %s is outside of the rows of %s", ErrTarget, clock(t.Time).Format(time.RFC3339), is.table.Path)
	}
	is.offsets = windows(is.site.normal, n, step)
	if len(is.offsets) == 0 {
		return 0, fmt.Errorf("%w: %s has no %d rows in one piece", ErrTarget, is.site.normal.Path, n)
	}
	is.kind = is.site.kindOf(t.Metric)
	signs := []float64{1, -1}
	switch {
	case named(t.Metric, is.site.Roles.Availability):
		signs = signs[1:]
	case is.kind.additive():
		signs = signs[:1]
	}
	before := is.site.normal.Columns[column]
	level := usual(before, nil)
	chance = 2
	for _, sign := range signs {
		if s, ok := cut(values, times, t.Time, step, sign); ok {
			if len(signs) > 1 && math.Abs(s.mean(values, nil, 0)-level) < math.Abs(s.level(values, nil, 0, level)-level) {
				continue // it is the other rows that are unusual
			}
			if p := is.rarity(&s, values, before, level, sign); p < chance {
				is.shape, chance = s, p
			}
		}
	}
	if chance > remarkable && !math.IsNaN(level) {
		// A window that lies wholly within the trouble has nothing to compare with.
		for _, sign := range signs {
			if sign*(mean(values)-level) > 0 {
				s := weigh(values, 0, n, level, sign)
				if p := is.rarity(&s, values, before, level, sign); p < chance {
					is.shape, chance = s, p
				}
			}
		}
	}
	if chance > 1 {
		return 0, fmt.Errorf("%w: %s %s of %s does not get worse in %s", ErrTarget, t.Statistic, t.Metric, t.Node, is.table.Path)
	}
	return chance, nil
}

func (is *issue) rarity(s *shape, values, before []float64, level, sign float64) float64 {
	if before == nil {
		return 0.5
	}
	var null []float64
	for _, off := range is.offsets {
		null = append(null, sign*s.excess(before, nil, off, level))
	}
	t := newTail(null, grain(before))
	return t.p(sign * s.excess(values, nil, 0, level))
}

// remarkable is the chance below which the rows of a window differ enough to be held
// against one another. They come first: usual levels may have changed since.
const remarkable = 0.05

// maxWindows bounds the windows of normal operation that are counted.
const maxWindows = 2000

// windows returns where windows of n rows without a gap begin.
func windows(t *Table, n int, step float64) []int {
	var out []int
	// Windows that overlap by more than seven eighths tell the same.
	stride := max(1+(len(t.Times)-n)/maxWindows, n/8)
	for off := 0; off+n <= len(t.Times); off += stride {
		if t.Times[off+n-1]-t.Times[off] < (float64(n-1)+0.5)*step {
			out = append(out, off)
		}
	}
	return out
}

// observe measures what each node shows.
func (is *issue) observe() {
	g := is.site.Graph
	is.nodes = make([]node, len(g.Nodes))
	for i, name := range g.Nodes {
		nd := &is.nodes[i]
		nd.now = is.site.read(is.table, is.columns[name])
		nd.then = is.site.read(is.site.normal, is.site.byNode[name])
		for k := range nd.chance {
			nd.chance[k] = 1
		}
		for k := range nd.excess {
			is.measure(nd, kind(k))
		}
		is.load(nd)
		is.strange(nd)
	}
}

// measure takes the excess of a node and how rare it is.
func (is *issue) measure(nd *node, k kind) {
	now, then := nd.now.values[k], nd.then.values[k]
	level := usual(then, nd.then.requests)
	e := is.shape.excess(now, nd.now.requests, 0, level)
	if now != nil && math.IsNaN(e) {
		e = 0 // nobody called
		if !math.IsNaN(is.shape.mean(now, nd.now.requests, 0)) {
			nd.fresh = true
		}
	}
	nd.seen = nd.seen || now != nil
	nd.excess[k] = e
	if math.IsNaN(e) || then == nil {
		nd.excess[k] = 0
		return
	}
	var null []float64
	for _, off := range is.offsets {
		v := is.shape.excess(then, nd.then.requests, off, level)
		if math.IsNaN(v) {
			v = 0
		}
		null = append(null, v)
	}
	nd.usual[k] = null
	unit := 0.0
	if k == failing && nd.now.requests != nil {
		unit = 1 // one failed request
	} else {
		unit = grain(then)
	}
	t := newTail(null, unit)
	nd.chance[k] = t.p(e)
}

// load measures whether more or fewer requests come, as a ratio: a quiet hour knows
// smaller differences than a busy one.
func (is *issue) load(nd *node) {
	now, then := nd.now.requests, nd.then.requests
	if now == nil || then == nil {
		return
	}
	nd.seen = true
	level := usual(then, nil)
	change := func(requests []float64, off int) (ratio, before, during float64) {
		before = is.shape.level(requests, nil, off, level)
		if during = is.shape.mean(requests, nil, off); math.IsNaN(during) {
			during = 0 // no longer reported
		}
		return math.Log((during + 0.5) / (before + 0.5)), before, during
	}
	var up, down []float64
	for _, off := range is.offsets {
		v, _, _ := change(then, off)
		up, down = append(up, v), append(down, -v)
	}
	ratio, before, during := change(now, 0)
	nd.mute = math.IsNaN(is.shape.mean(now, nil, 0))
	if during > before {
		t := newTail(up, 0)
		nd.surge = credence(t.p(ratio), 1/float64(len(is.nodes)+1))
		nd.growth, nd.added = during/max(before, 0.5), during-before
	}
	// A node that still gets half of its calls is not silent: less comes from above.
	if during < before/2 {
		t := newTail(down, 0)
		nd.chance[silent], nd.lost = t.p(-ratio), before-during
	}
}

// strange measures the metrics without a role.
func (is *issue) strange(nd *node) {
	for _, r := range nd.now.others {
		then := is.site.normal.Columns[r.column]
		if then == nil {
			continue
		}
		nd.seen = true
		level := usual(then, nil)
		e := is.shape.excess(r.values, nil, 0, level)
		var null []float64
		for _, off := range is.offsets {
			null = append(null, math.Abs(is.shape.excess(then, nil, off, level)))
		}
		t := newTail(null, grain(then))
		// The more metrics, the more move by chance.
		p := min(1, t.p(math.Abs(e))*float64(len(nd.now.others)))
		nd.chance[strange] = min(nd.chance[strange], p)
	}
}

// verdict turns what stays where into probabilities.
func (is *issue) verdict(chance float64) *Verdict {
	times := is.table.Times
	v := &Verdict{Chance: chance, Against: "window"}
	if is.shape.other == nil {
		v.Against = "normal"
	}
	for k, w := range is.shape.during {
		if w > 0 {
			if v.From.IsZero() {
				v.From = clock(times[k])
			}
			v.To = clock(times[k])
		}
	}
	stays, from := is.follow()
	// One fault: the larger share is the likelier cause, the more clearly the more it
	// is larger.
	var sum float64
	weight := make([]float64, len(stays))
	for i, m := range stays {
		weight[i] = math.Pow(m, sharpness)
		sum += weight[i]
	}
	known := max(credence(chance, 0.5), 0.5)
	v.Unknown = 1
	g := is.site.Graph
	leak := unseen / float64(len(stays))
	for i, m := range stays {
		c := Cause{Node: g.Nodes[i], Share: m, node: i}
		c.Probability = known * ((1-unseen)*weight[i]/sum + leak*is.worst(i))
		v.Unknown -= c.Probability
		v.Causes = append(v.Causes, c)
	}
	slices.SortStableFunc(v.Causes, func(a, b Cause) int { return cmp.Compare(b.Probability, a.Probability) })
	for _, c := range v.Causes[min(maxCauses, len(v.Causes)):] {
		v.Others += c.Probability
	}
	v.Causes = v.Causes[:min(maxCauses, len(v.Causes))]
	for k := range v.Causes {
		c := &v.Causes[k]
		c.Path, c.Evidence = is.path(from, c.node), is.evidence(c.node)
	}
	return v
}

const (
	// maxCauses are named one by one.
	maxCauses = 20
	// sharpness says how much likelier the larger of two shares is the only cause.
	sharpness = 2
	// unseen is the part of the probability for causes that the graph does not lead to.
	unseen = 0.05
)

// worst is the probability that anything at a node moved.
func (is *issue) worst(i int) float64 {
	p := 1.0
	for _, c := range is.nodes[i].chance {
		p = min(p, c)
	}
	return credence(min(1, p*float64(kinds)), 1/float64(len(is.nodes)))
}

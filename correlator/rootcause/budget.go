package rootcause

import (
	"math"
	"slices"
)

// place is a node and the kind of excess that is followed at it.
type place struct {
	node int
	kind kind
}

// follow lets the excess of the target run down the graph and returns how much stays at
// each node, and from which node most of what came to a node came (-1: none).
func (is *issue) follow() (stays []float64, from []int) {
	g := is.site.Graph
	stays, from = make([]float64, len(g.Nodes)), make([]int, len(g.Nodes))
	most := make([]float64, len(g.Nodes))
	for i := range from {
		from[i] = -1
	}
	flow := map[place]float64{{is.target, is.kind}: 1}
	for range len(g.Nodes) + 1 { // a circle of calls ends here
		next := map[place]float64{}
		for _, at := range ordered(flow) {
			m := flow[at]
			if m < negligible {
				stays[at.node] += m
				continue
			}
			own, down := is.divide(at)
			is.keep(stays, at.node, own*m)
			for to, part := range down {
				next[to] += part * m
				if to.node != is.target && part*m > most[to.node] {
					most[to.node], from[to.node] = part*m, at.node
				}
			}
		}
		if flow = next; len(flow) == 0 {
			return stays, from
		}
	}
	for at, m := range flow {
		stays[at.node] += m
	}
	return stays, from
}

// negligible is a share that is not followed any further.
const negligible = 1e-6

func ordered(flow map[place]float64) []place {
	out := make([]place, 0, len(flow))
	for p := range flow {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b place) int {
		if a.node != b.node {
			return a.node - b.node
		}
		return int(a.kind - b.kind)
	})
	return out
}

// divide says which part of the excess at a place is its own, and which part its
// callees account for.
func (is *issue) divide(at place) (own float64, down map[place]float64) {
	callees := is.callees(at.node)
	if len(callees) == 0 {
		return 1, nil
	}
	prior := 1 / float64(len(callees)+1)
	down = is.same(at, callees, prior)
	explained := total(down)
	if explained > 1 {
		for p := range down {
			down[p] /= explained
		}
		explained = 1
	}
	rest := 1 - explained
	if explained > 0 {
		rest *= is.own(at, callees)
	}
	cross := is.other(at, callees, prior, down)
	none := 1.0
	for _, c := range cross {
		none *= 1 - c
	}
	for p, c := range cross {
		down[p] += rest * (1 - none) * c / total(cross)
	}
	own = rest * none
	sum := own + total(down)
	if sum == 0 {
		return 1, nil
	}
	for p := range down {
		down[p] /= sum
	}
	return own / sum, down
}

// total adds up in a fixed order, so that a ranking comes out the same each time.
func total(parts map[place]float64) float64 {
	sum := 0.0
	for _, p := range ordered(parts) {
		sum += parts[p]
	}
	return sum
}

// same are the parts that callees account for with the same trouble: seconds for
// seconds, failed requests for failed requests.
func (is *issue) same(at place, callees []int, prior float64) map[place]float64 {
	down := map[place]float64{}
	if !at.kind.additive() || is.nodes[at.node].excess[at.kind] <= 0 {
		return down
	}
	for _, j := range callees {
		c := &is.nodes[j]
		switch {
		case c.fresh: // who is called for the first time did not begin it
		case c.mute: // it can no longer say how it fails
			if part := credence(c.chance[silent], prior) * is.reach(at, j, silent, callees); part > 0 {
				down[place{j, silent}] = part
			}
		default:
			if part := is.amount(at, j, prior) * is.passes(at, j); part > 0 {
				down[place{j, at.kind}] = part
			}
		}
	}
	return down
}

// amount is the part of the excess at a place that a node below has too, as far as
// that is no chance.
func (is *issue) amount(at place, j int, prior float64) float64 {
	e, c := is.nodes[at.node].excess[at.kind], &is.nodes[j]
	if e <= 0 || c.excess[at.kind] <= 0 {
		return 0
	}
	return credence(c.chance[at.kind], prior) * min(1, c.excess[at.kind]/e)
}

// other are the probabilities that trouble of another kind at a callee is behind that of
// its caller: one that times out makes its callers fail, one that fails makes them slow.
// What a calm callee calls may be behind it too: the callee may only pass it on.
func (is *issue) other(at place, callees []int, prior float64, down map[place]float64) map[place]float64 {
	out := map[place]float64{}
	seen := map[int]bool{at.node: true}
	for _, j := range callees {
		seen[j] = true
	}
	var walk func(nodes []int, prior, calm float64)
	walk = func(nodes []int, prior, calm float64) {
		for _, j := range nodes {
			c := &is.nodes[j]
			if c.fresh || down[place{j, silent}] > 0 {
				continue
			}
			known := 0.0
			if at.kind.additive() {
				known = is.amount(at, j, prior)
			}
			best, k := 0.0, slow
			for o := range kinds {
				q := 0.0
				switch {
				case o != at.kind || !o.additive():
					if q = credence(c.chance[o], prior); q > 0 && down[place{j, at.kind}] == 0 {
						q *= is.reach(at, j, o, callees)
					}
				case calm < 1:
					q = likely * is.amount(at, j, prior)
				}
				if q > best {
					best, k = q, o
				}
			}
			if best > 0 && (down[place{j, at.kind}] == 0 || calm < 1) {
				out[place{j, k}] = max(out[place{j, k}], calm*best)
			}
			// Beyond it only as far as it is calm itself.
			calmer := calm * (1 - max(known, best))
			var next []int
			for _, b := range is.callees(j) {
				if !seen[b] {
					seen[b] = true
					next = append(next, b)
				}
			}
			if calmer > negligible {
				walk(next, prior/float64(len(next)+1), min(calmer, 1-negligible))
			}
		}
	}
	walk(callees, prior, 1)
	return out
}

// passes is the part of a callee's excess that its caller can have got, as normal
// operation tells: where the callee varies and the caller does not follow, nobody
// waits for the answer. It is the upper end of the slope of the one over the other, so
// that it says nothing where the callee varies little.
func (is *issue) passes(at place, j int) float64 {
	y, x := is.nodes[at.node].usual[at.kind], is.nodes[j].usual[at.kind]
	if y == nil || x == nil {
		return 1
	}
	var mx, my, xx, xy, yy float64
	n := float64(len(x))
	for w := range x {
		mx, my = mx+x[w]/n, my+y[w]/n
	}
	for w := range x {
		dx, dy := x[w]-mx, y[w]-my
		xx, xy, yy = xx+dx*dx, xy+dx*dy, yy+dy*dy
	}
	// Windows overlap: each counts for its part of a row that no other has.
	if own := n/float64(is.shape.rows()) - 2; xx > 0 && own > 0 {
		slope := xy / xx
		spread := math.Sqrt(max(0, yy/xx-slope*slope) / own)
		return min(1, max(slope+3*spread, otherCalls))
	}
	return 1
}

// otherCalls is the probability that trouble passes where usual variation does not: it
// may be in calls of another sort, or in failures that are usually made up for.
const otherCalls = 0.5

// otherTrouble is the probability that trouble of another kind at a callee is behind
// that of its caller where it is large enough; likely is that for a callee that has
// fallen silent, where nothing is known of the caller but that a number moved, or where
// the same trouble is seen further below: it would be a coincidence.
const otherTrouble, likely = 0.5, 0.9

// reach is the probability that trouble of another kind at a callee makes what is seen
// at its caller: as far as there is enough of it.
func (is *issue) reach(at place, j int, k kind, callees []int) float64 {
	nd, c := &is.nodes[at.node], &is.nodes[j]
	calls := is.calls(nd)
	if !at.kind.additive() && k != silent {
		return likely
	}
	switch k {
	case slow:
		// Who times out has waited at least as long as it usually takes.
		if usual := is.shape.level(nd.now.values[slow], nd.now.requests, 0, usual(nd.then.values[slow], nd.then.requests)); usual > 0 {
			return otherTrouble * min(1, c.excess[slow]/(usual*calls))
		}
	case failing:
		return otherTrouble * min(1, c.excess[failing]/calls/leastShare)
	case silent:
		enough := calls
		// As many calls fail, or wait until they do, as were lost.
		if e := nd.excess[failing]; e > 0 && (at.kind == failing || nd.chance[failing] < remarkable) {
			enough = e
		}
		p := likely * min(1, c.lost/enough)
		if c.mute {
			return p
		}
		// Who fails early calls nobody any more. One silent callee among several is not that.
		others, quiet := 0, 0
		for _, o := range callees {
			if o != j && is.nodes[o].then.requests != nil {
				others++
				if is.nodes[o].lost > 0 {
					quiet++
				}
			}
		}
		if others == 0 {
			return p * otherTrouble
		}
		return p * (1 - float64(quiet)/float64(others))
	}
	return otherTrouble
}

// leastShare is the share of calls whose failure a caller's latency shows.
const leastShare = 0.01

// calls is the number of calls a row, 1 where nobody counts them.
func (is *issue) calls(nd *node) float64 {
	if nd.now.requests == nil {
		return 1
	}
	return max(1, is.shape.mean(nd.now.requests, nil, 0))
}

// own is the probability that what the callees do not account for is no chance.
func (is *issue) own(at place, callees []int) float64 {
	nd := &is.nodes[at.node]
	if nd.usual[at.kind] == nil {
		return 1
	}
	rest := slices.Clone(nd.usual[at.kind])
	now := nd.excess[at.kind]
	for _, j := range callees {
		c := &is.nodes[j]
		if c.usual[at.kind] == nil || c.fresh {
			continue
		}
		now -= max(0, c.excess[at.kind])
		for w, v := range c.usual[at.kind] {
			rest[w] -= v
		}
	}
	unit := 0.0
	if at.kind == failing {
		unit = 1
	}
	t := newTail(rest, unit)
	return credence(t.p(now), 1/float64(len(callees)+1))
}

// callees are those of a node that have readings; one without stands for its own.
func (is *issue) callees(i int) []int {
	var out []int
	seen := map[int]bool{i: true}
	var walk func(int)
	walk = func(i int) {
		for _, j := range is.site.Graph.Callees[i] {
			if seen[j] {
				continue
			}
			seen[j] = true
			if out = append(out, j); !is.nodes[j].seen {
				out = out[:len(out)-1]
				walk(j)
			}
		}
	}
	walk(i)
	return out
}

// keep leaves excess at a node. As far as the node got more calls than usual, it is
// theirs who began to call more.
func (is *issue) keep(stays []float64, i int, m float64) {
	nd := &is.nodes[i]
	share := 0.0
	if nd.growth > 1 {
		share = nd.surge * (1 - 1/nd.growth)
	}
	stays[i] += m * (1 - share)
	is.climb(stays, i, m*share, map[int]bool{})
}

// climb follows load up the graph to the nodes that nobody above calls more often.
func (is *issue) climb(stays []float64, i int, m float64, seen map[int]bool) {
	if m < negligible {
		stays[i] += m
		return
	}
	seen[i] = true
	callers := is.site.Graph.Callers[i]
	added := map[int]float64{}
	var sum float64
	for _, j := range callers {
		if c := &is.nodes[j]; !seen[j] {
			added[j] = c.surge * c.added
			sum += added[j]
		}
	}
	if sum == 0 {
		stays[i] += m
	}
	for _, j := range callers {
		switch a := added[j]; {
		case a == 0:
		case is.outside(j, i):
			stays[i] += m * a / sum
		default:
			is.climb(stays, j, m*a/sum, seen)
		}
	}
	delete(seen, i)
}

// outside reports whether a caller is only the name of those who ask from outside: it
// has no callers, calls one node, and takes less time than that, so it does not wait.
func (is *issue) outside(caller, callee int) bool {
	g := is.site.Graph
	if len(g.Callers[caller]) > 0 || len(g.Callees[caller]) > 1 {
		return false
	}
	c, d := &is.nodes[caller].then, &is.nodes[callee].then
	own, its := usual(c.values[slow], c.requests), usual(d.values[slow], d.requests)
	return !(own >= its)
}

// path leads from the target to a node, as most of the excess came.
func (is *issue) path(from []int, i int) []string {
	var out []string
	for seen := map[int]bool{}; !seen[i]; i = from[i] {
		seen[i] = true
		out = append(out, is.site.Graph.Nodes[i])
		if i == is.target {
			slices.Reverse(out)
			return out
		}
		if from[i] < 0 {
			return nil
		}
	}
	return nil
}

// evidence lists the metrics of a node that moved, the rarest first.
func (is *issue) evidence(i int) []Movement {
	var out []Movement
	for _, c := range is.columns[is.site.Graph.Nodes[i]] {
		now, then := is.table.Columns[c], is.site.normal.Columns[c]
		if then == nil {
			continue
		}
		level := usual(then, nil)
		e := is.shape.excess(now, nil, 0, level)
		sign := 1.0
		if e < 0 {
			sign = -1
		}
		var null []float64
		for _, off := range is.offsets {
			null = append(null, math.Abs(is.shape.excess(then, nil, off, level)))
		}
		t := newTail(null, grain(then))
		p := t.p(math.Abs(e))
		if math.IsNaN(e) || p > shown {
			continue
		}
		before, during := is.shape.level(now, nil, 0, level), is.shape.mean(now, nil, 0)
		m := Movement{Metric: c.Metric, Statistic: c.Statistic, Before: number(before), During: number(during), Chance: p}
		for k, w := range is.shape.during {
			if w > 0 && sign*(now[k]-before) > sign*(during-before)/2 {
				m.Since = clock(is.table.Times[k])
				break
			}
		}
		out = append(out, m)
	}
	slices.SortStableFunc(out, func(a, b Movement) int {
		switch {
		case a.Chance < b.Chance:
			return -1
		case a.Chance > b.Chance:
			return 1
		}
		return 0
	})
	return out[:min(len(out), maxEvidence)]
}

const (
	shown       = 0.02 // chance of a movement that is worth a line
	maxEvidence = 5
)

func number(v float64) *float64 {
	if math.IsNaN(v) {
		return nil
	}
	return &v
}

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
	down = map[place]float64{}
	callees := is.callees(at.node)
	if len(callees) == 0 {
		return 1, down
	}
	nd := &is.nodes[at.node]
	prior := 1 / float64(len(callees)+1)
	// The same trouble below: seconds for seconds, failed requests for failed requests.
	explained := 0.0
	if at.kind.additive() && nd.excess[at.kind] > 0 {
		e := nd.excess[at.kind]
		for _, j := range callees {
			c := &is.nodes[j]
			if c.fresh {
				continue // who is called for the first time did not begin it
			}
			if q := real(c.chance[at.kind], prior); q > 0 && c.excess[at.kind] > 0 {
				part := q * min(1, c.excess[at.kind]/e)
				down[place{j, at.kind}] = part
				explained += part
			}
		}
		if explained > 0 {
			scale := 1.0
			if explained > 1 {
				scale = 1 / explained
			}
			for p := range down {
				down[p] *= scale
			}
			explained *= scale
		}
	}
	rest := 1 - explained
	if explained > 0 {
		rest *= is.own(at, callees)
	}
	// Other trouble below: a callee that times out makes its callers fail, one that
	// fails makes them slow.
	cross := map[place]float64{}
	var none, total float64 = 1, 0
	for _, j := range callees {
		c := &is.nodes[j]
		if _, ok := down[place{j, at.kind}]; ok || c.fresh {
			continue
		}
		best, k := 0.0, slow
		for o := range kinds {
			if q := real(c.chance[o], prior); (o != at.kind || !o.additive()) && q > best {
				best, k = q, o
			}
		}
		if best *= otherTrouble; best > 0 {
			cross[place{j, k}] = best
			none *= 1 - best
			total += best
		}
	}
	for p, c := range cross {
		down[p] += rest * (1 - none) * c / total
	}
	own = rest * none
	sum := own
	for _, part := range down {
		sum += part
	}
	if sum == 0 {
		return 1, nil
	}
	for p := range down {
		down[p] /= sum
	}
	return own / sum, down
}

// otherTrouble is the probability that trouble of another kind at a callee is behind
// that of its caller.
const otherTrouble = 0.5

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
			rest[w] -= max(0, v)
		}
	}
	unit := 0.0
	if at.kind == failing {
		unit = 1
	}
	t := newTail(rest, unit)
	return real(t.p(now), 0.5)
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
// theirs who call more, up to where nobody above does: that is the load from outside,
// which stays with the first node that has work of its own.
func (is *issue) keep(stays []float64, i int, m float64) {
	nd := &is.nodes[i]
	share := 0.0
	if nd.surge > 0 && nd.growth > 1 {
		share = nd.surge * (1 - 1/nd.growth)
	}
	callers := slices.DeleteFunc(slices.Clone(is.site.Graph.Callers[i]), func(j int) bool {
		c := &is.nodes[j]
		// One that nobody calls and that calls nobody else is only the name of who asks.
		only := len(is.site.Graph.Callers[j]) == 0 && len(is.site.Graph.Callees[j]) == 1 && j != is.target
		return only || c.surge == 0 || c.growth <= 1 || stays[j] < 0
	})
	if share*m < negligible || len(callers) == 0 {
		stays[i] += m
		return
	}
	stays[i] += m * (1 - share)
	var sum float64
	w := make([]float64, len(callers))
	for k, j := range callers {
		c := &is.nodes[j]
		w[k] = c.surge * (1 - 1/c.growth)
		sum += w[k]
	}
	for k, j := range callers {
		stays[j] += m * share * w[k] / sum
	}
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

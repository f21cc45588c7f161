package learn

import (
	"cmp"
	"context"
	"math"
	"slices"
)

// Occurrence is one event: what kind, where, and when, in seconds.
type Occurrence struct {
	Kind, Place int32
	At          float64
}

// Places lists for each place and each relation the places from which trouble may
// come over that relation. The place itself is relation 0 and is not listed: the
// relation at index r of a list is number r+1.
type Places [][][]int32

// Edge says that one kind of event brings about another.
type Edge struct {
	Cause, Effect int32
	Effects       float64   // of this cause, as many as are most likely
	Share         float64   // effects of one cause, on average
	Gain          float64   // nats by which the effects are explained better than without it
	Lag           float64   // mean time from the cause to the effect, seconds
	Over          []float64 // share of the effects over each relation
	// Occasions is how often it was seen: effects that come soon after one another
	// may all be of one trouble and count once.
	Occasions int
}

// Found is what [Edges] finds.
type Found struct {
	Edges []Edge // the surest first
	// Relations is how likely each relation carries an effect, for one place that it reaches; the sum is 1.
	Relations []float64
}

// scales are the mean lags that an edge may have, in seconds: four apart, so that no
// true one is further than a factor of two from one of them, from the rounds of a
// collector to what heats up slowly.
var scales = []float64{2, 8, 32, 128, 512}

const (
	kernelSpan = 5.0  // mean lags, after which an exponential has 0.7 % left
	emRounds   = 200  // at most
	emEnough   = 1e-4 // nats of a round
	learn      = 6    // rounds in which the weights of the relations are learnt; three or four do
	enough     = 0.01 // change of a weight that is none
)

// Edges finds which of the kinds 0 to kinds-1 bring about which others. The model
// is a Hawkes process (Hawkes, Biometrika 58, 1971) over a topology (Cai et al.,
// THPs: Topological Hawkes Processes for Learning Causal Structure, 2021): events of
// kind v arrive at a place with the rate
//
//	mu(v) + sum over earlier events e of alpha(kind(e), v) w(relation) exp(-lag/m)/m
//
// where relation is how the place of e stands to this one and m is one of a few mean lags. Its likelihood falls apart
// by v and is concave in mu and alpha, so that the causes of each kind are found by
// themselves: one is added while the extended BIC (Chen and Chen, Biometrika 95, 2008:
// log(n)/2 for a parameter and the log of how many there were to choose from) gains, then each is
// taken away that is no longer worth that. The weights w are learnt from what has been
// explained. Events that come at the same instant say nothing about which was
// first. Events need not be sorted. Only the end of ctx is an error.
func Edges(ctx context.Context, events []Occurrence, kinds int, places Places) (Found, error) {
	if len(events) == 0 {
		return Found{}, nil
	}
	l := &learner{events: slices.Clone(events), kinds: kinds, places: places, relations: 1}
	slices.SortStableFunc(l.events, func(a, b Occurrence) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Place, b.Place))
	})
	l.area = (l.events[len(l.events)-1].At - l.events[0].At + 1) * float64(len(places))
	for _, p := range places {
		l.relations = max(l.relations, len(p)+1)
	}
	l.over = make([]float64, l.relations)
	for r := range l.over {
		l.over[r] = 1 / float64(l.relations)
	}
	l.of = make([][]int, kinds)
	for i, e := range l.events {
		l.of[e.Kind] = append(l.of[e.Kind], i)
	}
	l.expose()
	fits := make([]*fit, kinds)
	l.relate()
	for range learn {
		for v := range fits {
			if err := ctx.Err(); err != nil {
				return Found{}, err
			}
			fits[v] = l.grow(int32(v))
		}
		if l.weigh(fits) < enough {
			break
		}
	}
	return l.found(fits), nil
}

// past is an event that another may come from.
type past struct {
	kind, relation int32
	lag            float64
}

type learner struct {
	events    []Occurrence // in order of time
	kinds     int
	area      float64 // seconds times places
	places    Places
	relations int
	over      []float64   // w
	of        [][]int     // events of a kind
	pasts     [][]past    // by event
	reach     [][]float64 // by kind and relation: places that its events reach, in all
}

// expose adds up how many places the events of each kind reach over each relation.
func (l *learner) expose() {
	reached := make([][]float64, len(l.places)) // from a place, by relation
	for p := range reached {
		reached[p] = make([]float64, l.relations)
		reached[p][0] = 1
	}
	for _, sources := range l.places {
		for r, list := range sources {
			for _, p := range list {
				reached[p][r+1]++
			}
		}
	}
	l.reach = make([][]float64, l.kinds)
	for k := range l.reach {
		l.reach[k] = make([]float64, l.relations)
		for _, i := range l.of[k] {
			for r, n := range reached[l.events[i].Place] {
				l.reach[k][r] += n
			}
		}
	}
}

// exposure is how many effects the events of u would have at a share of 1.
func (l *learner) exposure(u int32) (sum float64) {
	for r, n := range l.reach[u] {
		sum += l.over[r] * n
	}
	return sum
}

// relate lists for each event the earlier ones that it may come from.
func (l *learner) relate() {
	before := make([][]int, len(l.places))
	l.pasts = make([][]past, len(l.events))
	for i, e := range l.events {
		visit := func(place int32, relation int) {
			for _, k := range slices.Backward(before[place]) {
				lag := e.At - l.events[k].At
				if lag > kernelSpan*scales[len(scales)-1] {
					break
				}
				if lag > 0 {
					l.pasts[i] = append(l.pasts[i], past{l.events[k].Kind, int32(relation), lag})
				}
			}
		}
		visit(e.Place, 0)
		for r, list := range l.places[e.Place] {
			for _, p := range list {
				visit(p, r+1)
			}
		}
		before[e.Place] = append(before[e.Place], i)
	}
}

func (l *learner) kernel(p past, scale int) float64 {
	if p.lag > kernelSpan*scales[scale] {
		return 0
	}
	return l.over[p.relation] / scales[scale] * math.Exp(-p.lag/scales[scale])
}

// pull is what the events of one kind, at a share of 1, would add to the rate at
// which each event of another comes; only what is not 0.
type pull struct {
	at []int32 // index of the event among those of its kind
	by []float64
}

// pulls returns the pulls of all kinds on v, by scale; a kind without is no candidate.
func (l *learner) pulls(v int32) [][]*pull {
	all := make([][]*pull, l.kinds)
	for u := range int32(l.kinds) {
		if len(l.of[u]) > 0 {
			all[u] = make([]*pull, len(scales))
			for m := range all[u] {
				all[u][m] = &pull{}
			}
		}
	}
	for j, i := range l.of[v] {
		for _, p := range l.pasts[i] {
			for m, a := range all[p.kind] {
				switch k := l.kernel(p, m); {
				case k == 0:
				case len(a.at) > 0 && a.at[len(a.at)-1] == int32(j):
					a.by[len(a.by)-1] += k
				default:
					a.at, a.by = append(a.at, int32(j)), append(a.by, k)
				}
			}
		}
	}
	return all
}

// cause is a kind that brings another about.
type cause struct {
	kind     int32
	scale    int
	alpha    float64
	exposure float64
	pull     *pull
	gain     float64
}

// fit is how one kind comes about.
type fit struct {
	n      int // events
	base   float64
	causes []cause
	like   float64 // log-likelihood
}

func (f *fit) without(i int) *fit {
	return &fit{n: f.n, base: f.base, causes: slices.Delete(slices.Clone(f.causes), i, i+1)}
}

// rates returns the rate at each event.
func (f *fit) rates() []float64 {
	rates := make([]float64, f.n)
	for j := range rates {
		rates[j] = f.base
	}
	for _, c := range f.causes {
		for k, j := range c.pull.at {
			rates[j] += c.alpha * c.pull.by[k]
		}
	}
	return rates
}

// grow finds the causes of v.
func (l *learner) grow(v int32) *fit {
	f := &fit{n: len(l.of[v])}
	if f.n == 0 {
		return f
	}
	cost := math.Log(float64(f.n))/2 + math.Log(float64(l.kinds*len(scales)))
	all := l.pulls(v)
	l.maximise(f)
	add := func() bool {
		best, gain := cause{}, cost
		rates := f.rates()
		for u, pulls := range all {
			if pulls == nil {
				continue
			}
			for m, p := range pulls {
				c := cause{kind: int32(u), scale: m, exposure: l.exposure(int32(u)), pull: p}
				if c.add(rates); c.gain > gain {
					best, gain = c, c.gain
				}
			}
		}
		if best.pull == nil {
			return false
		}
		all[best.kind] = nil
		f.causes = append(f.causes, best)
		l.maximise(f)
		return true
	}
	for add() {
	}
	for {
		worst := -1
		for i := range f.causes {
			less := f.without(i)
			l.maximise(less)
			f.causes[i].gain = f.like - less.like
			if g := f.causes[i].gain; g < cost && (worst < 0 || g < f.causes[worst].gain) {
				worst = i
			}
		}
		if worst < 0 {
			return f
		}
		f = f.without(worst)
		l.maximise(f)
	}
}

// add sets the share of a cause that joins others, and what it gains, when these stay as they are.
func (c *cause) add(rates []float64) {
	slope := func(alpha float64) float64 {
		sum := -c.exposure
		for k, j := range c.pull.at {
			sum += c.pull.by[k] / (rates[j] + alpha*c.pull.by[k])
		}
		return sum
	}
	if slope(0) <= 0 {
		return
	}
	lo, hi := 0.0, float64(len(rates))/c.exposure // more would bring about more than there is
	for range 40 {
		if c.alpha = (lo + hi) / 2; slope(c.alpha) > 0 {
			lo = c.alpha
		} else {
			hi = c.alpha
		}
	}
	c.gain = -c.alpha * c.exposure
	for k, j := range c.pull.at {
		c.gain += math.Log1p(c.alpha * c.pull.by[k] / rates[j])
	}
}

// maximise fits the base rate and the shares, by expectation and maximisation.
func (l *learner) maximise(f *fit) {
	f.like = math.Inf(-1)
	f.base = cmp.Or(f.base, float64(f.n)/l.area)
	for range emRounds {
		rates := f.rates()
		like, base := -f.base*l.area, 0.0
		for _, r := range rates {
			like += math.Log(r)
			base += f.base / r
		}
		for i := range f.causes {
			c := &f.causes[i]
			like -= c.alpha * c.exposure
			sum := 0.0
			for k, j := range c.pull.at {
				sum += c.alpha * c.pull.by[k] / rates[j]
			}
			c.alpha = sum / c.exposure
		}
		f.base = base / l.area
		if like-f.like < emEnough {
			f.like = like
			return
		}
		f.like = like
	}
}

// explained adds up what was explained, by cause: the effects over each relation,
// and the sum of their lags.
func (l *learner) explained(v int, f *fit) (effects [][]float64, lags []float64) {
	effects, lags = make([][]float64, len(f.causes)), make([]float64, len(f.causes))
	number := make([]int, l.kinds)
	for i, c := range f.causes {
		effects[i] = make([]float64, l.relations)
		number[c.kind] = i + 1
	}
	rates := f.rates()
	for j, i := range l.of[v] {
		for _, p := range l.pasts[i] {
			if k := number[p.kind] - 1; k >= 0 {
				share := f.causes[k].alpha * l.kernel(p, f.causes[k].scale) / rates[j]
				effects[k][p.relation] += share
				lags[k] += share * p.lag
			}
		}
	}
	return effects, lags
}

// weigh sets the weights of the relations to what was explained over them, and
// returns by how much one has changed at most.
func (l *learner) weigh(fits []*fit) (change float64) {
	effects, exposed := make([]float64, l.relations), make([]float64, l.relations)
	for v, f := range fits {
		each, _ := l.explained(v, f)
		for i, c := range f.causes {
			for r := range effects {
				effects[r] += each[i][r]
				exposed[r] += c.alpha * l.reach[c.kind][r]
			}
		}
	}
	over, sum := make([]float64, l.relations), 0.0
	for r := range over {
		if exposed[r] > 0 {
			over[r] = effects[r] / exposed[r]
		}
		sum += over[r]
	}
	if sum == 0 {
		return 0
	}
	for r := range over {
		over[r] /= sum
		change = max(change, math.Abs(over[r]-l.over[r]))
	}
	l.over = over
	return change
}

// occasions counts the times at which v most likely came from c.
func (l *learner) occasions(v int, f *fit, c cause) (n int) {
	rates, last := f.rates(), math.Inf(-1)
	for k, j := range c.pull.at {
		if at := l.events[l.of[v][j]].At; c.alpha*c.pull.by[k] > rates[j]/2 {
			if at-last > kernelSpan*scales[len(scales)-1] {
				n++
			}
			last = at
		}
	}
	return n
}

func (l *learner) found(fits []*fit) Found {
	found := Found{Relations: l.over}
	for v, f := range fits {
		each, lags := l.explained(v, f)
		for i, c := range f.causes {
			if c.kind == int32(v) {
				continue // comes again and again: no edge between two
			}
			e := Edge{Cause: c.kind, Effect: int32(v), Gain: c.gain, Over: each[i], Occasions: l.occasions(v, f, c)}
			for _, n := range e.Over {
				e.Effects += n
			}
			if e.Effects > 0 {
				e.Lag = lags[i] / e.Effects
				for r := range e.Over {
					e.Over[r] /= e.Effects
				}
			}
			e.Share = e.Effects / float64(len(l.of[c.kind]))
			found.Edges = append(found.Edges, e)
		}
	}
	found.Edges = l.direct(found.Edges)
	slices.SortFunc(found.Edges, func(a, b Edge) int {
		return cmp.Or(cmp.Compare(b.Gain, a.Gain), cmp.Compare(a.Cause, b.Cause), cmp.Compare(a.Effect, b.Effect))
	})
	return found
}

// missed is the largest share of a kind's events that may have been lost.
const missed = 0.5

// direct leaves out the edges that two others look like where an event was lost: that
// between the two, or their common cause. Of n such events that did bring about both,
// missed/(1-missed) times as many may not have been seen.
func (l *learner) direct(edges []Edge) []Edge {
	share := map[[2]int32]float64{}
	for _, e := range edges {
		share[[2]int32{e.Cause, e.Effect}] = e.Share
	}
	return slices.DeleteFunc(slices.Clone(edges), func(e Edge) bool {
		expected := 0.0
		for w := range int32(l.kinds) {
			expected += share[[2]int32{e.Cause, w}] * share[[2]int32{w, e.Effect}]
			expected += share[[2]int32{w, e.Cause}] * share[[2]int32{w, e.Effect}] * float64(len(l.of[w])) / float64(len(l.of[e.Cause]))
		}
		return e.Share < missed/(1-missed)*expected
	})
}

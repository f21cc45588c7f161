package correlator

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
	"time"

	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

// The model. A fault that is there shows a class of signs with probability Shows,
// and then on each of n parts with an unknown chance x, the same for all of them; a
// sign that no fault shows is there by itself with probability leak. A sign has one
// owner: of the causes of a noisy-OR (Pearl, Probabilistic Reasoning in Intelligent
// Systems, 1988, 4.3) the likeliest counts, the others not. The score of a fault is
// then the log-odds of "it is there and shows these" against "all of them came by
// themselves",
//
//	score = prior + sum over classes of [fit + sum over its signs of (weight - distance)]
//
// with fit = log P(k of n show), see [Engine.fit], weight = -log(leak), and the
// silence by itself of a part, log(1-leak), taken for 0. The set of faults is found
// greedily, best first, then improved: signs change hands, sets replace one fault,
// one fault replaces many.
//
// The priors, shares and leaks are those of propagation.yaml. The numbers below that
// name no source are not derived: they were chosen by hand, and the drawn storms of
// the tests, whose probabilities and delays vary, hold what they lead to.

// x is uncertain: it is drawn from Beta(share*c, (1-share)*c), so that k of n follow
// a beta-binomial (Skellam, 1948). The concentration c is the number of earlier parts
// that the share of the model is worth, and gives x the variance share(1-share)/(c+1).
const (
	concentration = 3.0 // the shares are orders of magnitude: from three parts on, what is seen weighs more
	// Where something else may carry the load, it does for all or for none: at c = 1
	// the density is highest at both ends, and one part that shows moves the mean of x
	// half of the way to 1.
	sharing  = 1.0
	betaEdge = 1e-3   // keeps the distribution proper at a share of 1, where a single part that is silent costs log(3000)
	tiny     = 1e-300 // keeps the logarithm of what the model calls impossible finite
	unheard  = 0.05   // chance that a sign was there and no event of it came through
)

// Log-odds of decisions, in nats: 1 is a factor of 2.7.
const (
	keepBonus = 1.0 // that a decision made earlier has before another: names do not change for less
	stealGain = 1.0 // that it must gain to take signs from a fault that explains them too
	moveGain  = 0.1 // the same for a class of signs between two faults that both stand: no going to and fro
	// A state on the way of a fault that is known, soon after it, is hardly ever one
	// of its own: servers crash about once a year, which gives ten minutes odds of
	// exp(-11). The prior has a part of that; this is a cautious part of the rest.
	coincidence = 2.0
	badFit      = -6.0 // of the shares, 1 in 400, below which several faults are tried for one
	// Reports of one fault hang together by more than the model knows (one sensor, one
	// board, one poller), so each says less than if it were alone: odds are raised to
	// 1/spread, as in a power posterior (Grünwald, The Safe Bayesian, 2012), prior and all.
	spread    = 2.0
	certainty = 0.97 // the rest is left to causes that the model does not have

	hopeless   = 40.0  // nats behind the first: its share is below 1 in 10^8, and not worth computing
	suspectMin = 0.005 // half a per cent: less is shown as none
	scoreUnits = 1e6   // of a nat: scores that differ by less, from adding up in another order, are equal
)

// A sign is hardly ever there by itself from a leak of 1 in 1000 down; the tenth
// above is for rounding.
const surelyLeak = 0.001 * 1.1

// The lag from a fault to its signs has a heavy tail, of which the model gives only the
// bounds: within them the odds of a fault fall with (1 + lag/lagScale)^-lagPower. Up to
// the scale, about the time between two polls, lags are alike; beyond it each doubling costs
// a fifth of the odds, enough to choose between equals, too little against a witness.
const (
	lagScale = 30.0 // seconds
	lagPower = 0.3
)

const (
	unknownConfidence = 0.1 // no cause is named: low, and not computed
	unknownNear       = 5 * time.Minute

	foldEarly = time.Minute     // a state is heard of at most so long before what brings it about
	foldLate  = 5 * time.Minute // and at most so long after it is due: hosts are lost after rounds without an answer

	effectSoon = time.Minute // mean delay of the signs of a state, for which the model gives none

	confidenceSteps = 50.0 // in which confidence is published

	shadow = time.Minute // a server that goes down takes along what failed so shortly before or after
)

// incident is an open incident of the engine.
type incident struct {
	id           string
	seq          int
	opened       time.Time
	heard        time.Time
	root         *suspect // nil: unknown
	where        node     // of an unknown one
	signs        []*sign
	confidence   float64
	unsure       bool // the confidence is that of an earlier state
	alternatives []schemas.Cause
	emitted      time.Time
	told         told
	revision     int
	queued       bool
	mergedInto   string
	closed       time.Time
	before       int       // events that were counted and forgotten before a restart
	judged       time.Time // when its confidence was last weighed
	repaired     time.Time // what comes later is new
	gone         bool
	claim        int // scratch
}

// told is what the last emitted state said.
type told struct {
	resource, fault string
	severity        schemas.Severity
	confidence      float64
	signs, facts    int
	mute            int // witnesses that cannot report, of whom the sentences speak
	closed, gone    bool
}

// same says whether a state is not worth publishing after another.
func (t told) same(o told) bool {
	return t.facts == o.facts && t.signs == o.signs && !t.turned(o)
}

// turned says whether more than the number of signs and events has changed.
func (t told) turned(o told) bool {
	d := math.Abs(t.confidence - o.confidence)
	t.confidence, t.signs, t.facts = o.confidence, o.signs, o.facts
	return t != o || d >= 1.5/confidenceSteps // more than one step, whatever the rounding
}

// due says whether a state is due to be published so long after another. Each
// state lists all events, so one that only grows is published in proportion to what it has
// become, once a second while it is small, and parts that join sooner than
// events more of the same. Lists that are published whenever they have grown by a
// sixteenth are 17 times the last one in all; the waits between are chosen by hand.
func (t told) due(o told, since time.Duration) bool {
	if since < emitEvery || t.turned(o) || 16*(t.facts-o.facts) >= o.facts {
		return since >= emitEvery
	}
	wait := emitEvery * time.Duration(o.facts/64+1)
	if t.signs == o.signs {
		wait *= wait / emitEvery
	}
	return since >= wait
}

// solve weighs the signs that changed, with all that hangs together with them:
// the smallest set of faults that explains what came and what did not come.
func (e *Engine) solve() {
	e.stats.Solved++
	e.epoch++
	e.lastSolve = e.now
	dirty := e.dirty
	e.dirty = nil
	for _, s := range dirty {
		for _, l := range s.links {
			l.to.weighed = time.Time{}
		}
	}
	for _, s := range dirty {
		for !s.gone && s.mark != e.epoch {
			signs, suspects := e.component(s)
			e.lastCost = len(signs) + len(suspects)/4
			if !e.weigh(signs, suspects) {
				e.epoch++ // one is blamed that was not looked at as a whole: again, with all of it
			}
		}
	}
}

// component returns what hangs together with a sign: through incidents, through
// suspects that could be blamed, and through those that could stand behind states
// that could be. A suspect of a few weak signs ties nothing together, however many
// parts hang on it.
func (e *Engine) component(from *sign) ([]*sign, []*suspect) {
	from.mark = e.epoch
	signs := []*sign{from}
	var suspects []*suspect
	add := func(s *sign) {
		if s.mark != e.epoch {
			s.mark = e.epoch
			signs = append(signs, s)
		}
	}
	meet := func(h *suspect) {
		if h.mark != e.epoch && !h.dead {
			h.mark = e.epoch
			suspects = append(suspects, h)
		}
	}
	met := 0
	for i := 0; i < len(signs); i++ {
		for _, l := range signs[i].links {
			meet(l.to)
		}
		for ; met < len(suspects); met++ {
			h := suspects[met]
			if !e.conducts(h) {
				continue
			}
			h.whole = e.epoch
			for c := range h.classes {
				for _, s := range h.classes[c].signs {
					add(s)
					if h.fault.Is == "" {
						continue
					}
					for _, l := range s.links { // who could stand behind this state ties it to others
						if g := l.to; g.tied != e.epoch && g.causes && !g.dead {
							g.tied = e.epoch
							e.states(g, add)
						}
					}
				}
			}
		}
		if inc := signs[i].inc; inc != nil {
			for _, s := range inc.signs {
				add(s)
			}
		}
	}
	slices.SortFunc(signs, func(a, b *sign) int { return a.seq - b.seq })
	slices.SortFunc(suspects, func(a, b *suspect) int { return a.seq - b.seq })
	return signs, suspects
}

// conducts says whether a suspect could be blamed, or was.
func (e *Engine) conducts(h *suspect) bool {
	if h.weighed.IsZero() || h.base > 0 && e.now.Sub(h.weighed) >= settle {
		if h.base = e.most(h, all); h.base > 0 {
			h.base = e.score(h, all)
		}
		h.weighed = e.now
	}
	return h.base > 0 || h.accepted || h.inc != nil || h.needed
}

// states visits the signs of g's effects that belong to states which could be blamed.
func (e *Engine) states(g *suspect, visit func(*sign)) {
	for c := g.fault.Own(); c < len(g.classes); c++ {
		for _, s := range g.classes[c].signs {
			for _, l := range s.links {
				if h := l.to; h.fault.Is != "" && !h.dead && e.conducts(h) {
					visit(s)
					break
				}
			}
		}
	}
}

// momentary says whether a sign has not lasted, or not yet.
func (e *Engine) momentary(s *sign) bool {
	return s.kind < len(e.model.Signs) && e.model.Signs[s.kind].Hold > 0 && e.leak(s) == e.model.Signs[s.kind].Young
}

// weight is -log of the leak, the log-likelihood ratio of a sign that a fault shows
// for sure. Reports that come again are independent but for a factor: each
// multiplies the leak by Again, down to Rare.
func (e *Engine) weight(s *sign) float64 {
	if !s.said || s.kind >= len(e.model.Signs) {
		return 0
	}
	if e.lasting(s) {
		return e.weights[s.kind][2]
	}
	m := &e.model.Signs[s.kind]
	if e.leak(s) != m.Leak {
		return e.weights[s.kind][1]
	}
	w := e.weights[s.kind][0]
	if s.often > 1 {
		w = max(w, min(w-float64(s.often-1)*math.Log(m.Again), e.weights[s.kind][2]))
	}
	return w
}

// surely says whether a sign is hardly ever there by itself.
func (e *Engine) surely(s *sign) bool {
	return s.kind >= len(e.model.Signs) || e.weight(s) >= -math.Log(surelyLeak)
}

// outcome is k of k+rest parts that show a class of signs, when late/lateSteps
// of what does not show yet is due.
type outcome struct {
	class   *propagation.Class // never nil
	k, rest int32
	late    uint8
}

// fitBits is the size of the table of fits, 2^fitBits entries of 40 bytes.
const fitBits = 12

type fitted struct {
	outcome
	value float64
}

// lateSteps is how finely lateness counts, so that few fits are computed.
const lateSteps = 16

// fit returns the log-likelihood of k signs of weight w in class c of h. With x from
// Beta(a, b), the k parts that show and the rest that are silent have probability
//
//	E[x^k (1-x)^rest] = B(k+a, rest+b) / B(a, b)
//
// (no binomial coefficient: which parts they are is given). Of the rest counts what is
// due. That nothing shows is also so with probability 1-Shows, and where nothing came
// through; unheard is added as it is, so that the sum may reach 1.05 in place of 1.
func (e *Engine) fit(h *suspect, c, k int, w float64) float64 {
	cl, r := &h.fault.Classes[c], &h.classes[c]
	o := outcome{class: cl, k: int32(k)}
	if rest := r.n - r.mute - k; rest > 0 {
		o.rest, o.late = int32(rest), e.late(e.onset(h), cl.Soon)
	}
	return e.fitOf(o) + w
}

// fitOf is fit without the weights of the signs. A few outcomes are asked for again
// and again: each has a place in a table, which it may lose to another.
func (e *Engine) fitOf(o outcome) float64 {
	h := uint64(o.class.ID)<<48 ^ uint64(o.k)<<28 ^ uint64(o.rest)<<5 ^ uint64(o.late) //nolint:gosec // counts
	p := &e.fits[h*0x9e3779b97f4a7c15>>(64-fitBits)]
	if p.outcome != o {
		p.outcome, p.value = o, o.logLikelihood()
	}
	return p.value
}

func (o outcome) logLikelihood() float64 {
	cl := o.class
	a, b := betaOf(cl.Share, concentration)
	missing := float64(o.rest) * float64(o.late) / lateSteps
	p := math.Exp(logBeta(float64(o.k)+a, missing+b) - logBeta(a, b))
	if o.k == 0 {
		return math.Log(cl.Shows*p + 1 - cl.Shows + unheard)
	}
	return math.Log(cl.Shows*p + tiny)
}

// late says how much of what has not come since onset is due, in lateSteps: the delay
// of a sign is taken for exponential with mean soon and a second of transport, and
// 1-exp(-t/mean) is what should have come. From four means on it rounds to all.
func (e *Engine) late(onset time.Time, soon time.Duration) uint8 {
	due := float64(e.now.Sub(onset)) / float64(soon+time.Second)
	if due >= dueBy[lateSteps-1] {
		return lateSteps
	}
	k, _ := slices.BinarySearch(dueBy[:], due)
	return uint8(k) //nolint:gosec // up to lateSteps
}

// dueBy is after how many means each of the lateSteps begins.
var dueBy = func() (out [lateSteps]float64) {
	for i := range out {
		out[i] = -math.Log(1 - (float64(i)+0.5)/lateSteps)
	}
	return out
}()

// betaOf returns the parameters of a beta distribution with mean share.
func betaOf(share, c float64) (a, b float64) { return share * c, (1-share)*c + betaEdge }

// logBeta returns log B(a, b).
func logBeta(a, b float64) float64 {
	x, _ := math.Lgamma(a)
	y, _ := math.Lgamma(b)
	z, _ := math.Lgamma(a + b)
	return x + y - z
}

// distance makes the nearer of two faults the likelier cause of a sign.
func distance(h *suspect, s *sign) float64 {
	if h.onset.IsZero() {
		return 0
	}
	d := s.at.Sub(h.onset)
	if d < 0 {
		d = -d
	}
	return lagPower * math.Log1p(d.Seconds()/lagScale)
}

// score weighs a suspect by the signs that pick lets through and says which of
// its classes it explains.
func (e *Engine) score(h *suspect, pick func(*sign) bool) float64 {
	e.witness(h)
	total := h.prior
	if h.inc != nil && !h.inc.gone {
		total += keepBonus
	}
	for c := range h.classes {
		r := &h.classes[c]
		r.claimed = false
		if h.fault.Classes[c].Derived || r.n == 0 && len(r.signs) == 0 {
			continue
		}
		k, w := 0, 0.0
		for _, s := range r.signs {
			if s.said && pick(s) {
				k++
				w += e.weight(s) - distance(h, s)
			}
		}
		absent := e.fit(h, c, 0, 0)
		if k > 0 {
			if present := e.fit(h, c, k, w); present > absent {
				r.claimed = true
				total += present
				continue
			}
		}
		total += absent
	}
	return total
}

// silentMost is the fit of a class that does not show where it need not.
var silentMost = math.Log(1 + unheard)

// most is what the score of a suspect over signs can be at most: where
// nothing that is silent could have spoken. It asks nothing of the parts that are
// silent, of which a suspect may have thousands.
func (e *Engine) most(h *suspect, pick func(*sign) bool) float64 {
	total := h.prior
	if h.inc != nil && !h.inc.gone {
		total += keepBonus
	}
	for c := range h.classes {
		r, cl := &h.classes[c], &h.fault.Classes[c]
		if cl.Derived || r.n == 0 && len(r.signs) == 0 {
			continue
		}
		k, w := 0, 0.0
		for _, s := range r.signs {
			if s.said && pick(s) {
				k++
				w += e.weight(s) - distance(h, s)
			}
		}
		v := silentMost
		if k > 0 {
			v = max(v, e.fitOf(outcome{class: cl, k: int32(k)})+w)
		}
		total += v
	}
	return total
}

type ranking []*suspect

func (r ranking) Len() int { return len(r) }
func (r ranking) Less(i, j int) bool {
	if r[i].score != r[j].score {
		return r[i].score > r[j].score
	}
	return r[i].seq < r[j].seq
}
func (r ranking) Swap(i, j int) { r[i], r[j] = r[j], r[i] }
func (r *ranking) Push(x any)   { *r = append(*r, x.(*suspect)) }
func (r *ranking) Pop() any {
	old := *r
	x := old[len(old)-1]
	*r = old[:len(old)-1]
	return x
}

func unowned(s *sign) bool { return s.owner == nil }

func all(*sign) bool { return true }

// weigh decides on a component. It reports whether it could: no when it would blame
// a suspect that was not taken for one, of which the component lacks signs.
func (e *Engine) weigh(signs []*sign, suspects []*suspect) bool {
	for _, s := range signs {
		s.owner = nil
	}
	var queue ranking
	for _, h := range suspects {
		h.folded, h.lift = nil, 0
		e.blame(h, false)
		if h.score = h.base; h.score > 0 {
			queue = append(queue, h)
		}
	}
	contenders := slices.Clone(queue)
	heap.Init(&queue)
	var accepted []*suspect
	for len(queue) > 0 {
		h := heap.Pop(&queue).(*suspect)
		h.score = e.score(h, unowned)
		if h.score <= 0 {
			continue
		}
		if len(queue) > 0 && queue[0].score > h.score {
			heap.Push(&queue, h)
			continue
		}
		e.blame(h, true)
		accepted = append(accepted, h)
		e.claim(h, unowned)
	}
	if len(accepted) > 0 {
		accepted = e.contest(e.split(accepted, contenders), contenders)
		accepted = e.fold(accepted)
		whole := true
		for _, h := range accepted {
			if h.whole != e.epoch {
				h.needed, whole = true, false
			}
		}
		if !whole {
			return false
		}
		e.attach(signs)
	}
	for _, h := range suspects {
		h.needed = false
	}
	e.settle(signs, accepted, suspects)
	return true
}

// claim gives h the signs of the classes that it explains.
func (e *Engine) claim(h *suspect, pick func(*sign) bool) {
	for c := range h.classes {
		r := &h.classes[c]
		r.k, r.w = 0, 0
		if !r.claimed {
			continue
		}
		for _, s := range r.signs {
			if s.said && pick(s) {
				s.owner, s.class = h, c
				r.k++
				r.w += e.weight(s) - distance(h, s)
			}
		}
	}
}

// recount brings the sums of a suspect up to date and returns its score over what it owns.
func (e *Engine) recount(h *suspect) float64 {
	total := h.prior
	if h.inc != nil && !h.inc.gone {
		total += keepBonus
	}
	for c := range h.classes {
		r := &h.classes[c]
		r.k, r.w = 0, 0
		for _, s := range r.signs {
			if s.said && s.owner == h {
				r.k++
				r.w += e.weight(s) - distance(h, s)
			}
		}
		if !h.fault.Classes[c].Derived && (r.n > 0 || r.k > 0) {
			total += e.fit(h, c, r.k, r.w)
		}
	}
	return total
}

// split replaces a fault that fits badly by several that fit better together:
// three servers that crashed are no switch of which thirteen ports are still up.
func (e *Engine) split(accepted, contenders []*suspect) []*suspect {
	// What others could make of its signs at most.
	most := map[*suspect]float64{}
	for _, o := range contenders {
		if o.accepted {
			continue
		}
		var last *suspect
		for c := range o.classes {
			for _, s := range o.classes[c].signs {
				if s.owner != nil && s.owner != last && !o.fault.Classes[c].Derived {
					last = s.owner
					most[last] += o.base
				}
			}
		}
	}
	for _, h := range slices.Clone(accepted) {
		if most[h] == 0 {
			continue
		}
		whole, bad := e.recount(h), 0.0
		if most[h] <= whole {
			continue
		}
		owned := e.owned(h)
		for c := range h.classes {
			if r := &h.classes[c]; r.k > 0 && !h.fault.Classes[c].Derived {
				bad += e.fit(h, c, r.k, 0)
			}
		}
		if bad > badFit || len(owned) < 2 {
			continue
		}
		class := make([]int, len(owned))
		seen := map[*suspect]bool{h: true}
		var others ranking
		for i, s := range owned {
			s.owner, class[i] = nil, s.class
		}
		for _, s := range owned {
			for _, l := range s.links {
				if o := l.to; !seen[o] && !o.accepted && !o.dead && o.whole == e.epoch {
					seen[o] = true
					if o.score = e.score(o, unowned); o.score > 0 {
						others = append(others, o)
					}
				}
			}
		}
		heap.Init(&others)
		sum := 0.0
		var parts []*suspect
		for len(others) > 0 {
			o := heap.Pop(&others).(*suspect)
			if o.score = e.score(o, unowned); o.score <= 0 {
				continue
			}
			if len(others) > 0 && others[0].score > o.score {
				heap.Push(&others, o)
				continue
			}
			parts = append(parts, o)
			sum += o.score
			e.claim(o, unowned)
		}
		if sum > whole {
			e.blame(h, false)
			for _, o := range parts {
				e.blame(o, true)
			}
			accepted = append(slices.DeleteFunc(accepted, func(o *suspect) bool { return o == h }), parts...)
			continue
		}
		for _, o := range parts {
			for _, s := range e.owned(o) {
				s.owner = nil
			}
		}
		for i, s := range owned {
			s.owner, s.class = h, class[i]
		}
		e.recount(h)
	}
	return accepted
}

// owned returns the signs that h explains.
func (e *Engine) owned(h *suspect) []*sign {
	var out []*sign
	for c := range h.classes {
		for _, s := range h.classes[c].signs {
			if s.owner == h {
				out = append(out, s)
			}
		}
	}
	return out
}

// contest lets faults that were not needed take over signs that they explain
// better, and moves signs between the faults that were.
func (e *Engine) contest(accepted, contenders []*suspect) []*suspect {
	for _, h := range contenders {
		if h.accepted {
			continue
		}
		full := e.score(h, all)
		if full <= stealGain {
			continue
		}
		loss, follows := e.loss(h)
		if follows {
			loss += coincidence
		}
		if full-loss <= stealGain {
			continue
		}
		e.blame(h, true)
		e.claim(h, all)
		accepted = append(accepted, h)
	}
	for _, h := range accepted {
		for c := range h.classes {
			r := &h.classes[c]
			if len(r.signs) == 0 || h.fault.Classes[c].Derived {
				continue
			}
			dk, dw := 0, 0.0
			for _, s := range r.signs {
				if s.said && s.owner != nil && s.owner != h {
					dk++
					dw += e.weight(s) - distance(h, s)
				}
			}
			if dk == 0 {
				continue
			}
			gain := e.fit(h, c, r.k+dk, r.w+dw) - e.fit(h, c, r.k, r.w)
			loss := e.classLoss(h, c)
			if gain-loss <= moveGain {
				continue
			}
			for _, s := range r.signs {
				if s.said && s.owner != nil && s.owner != h {
					o := s.owner
					s.owner, s.class = h, c
					e.recount(o)
				}
			}
			e.recount(h)
		}
	}
	// Who has lost what made it credible is not to blame after all.
	kept := accepted[:0]
	for _, h := range accepted {
		if h.score = e.recount(h); h.score > 0 {
			kept = append(kept, h)
			continue
		}
		e.blame(h, false)
		for c := range h.classes {
			for _, s := range h.classes[c].signs {
				if s.owner == h {
					s.owner = nil
				}
			}
		}
	}
	for _, h := range kept {
		// What was set free may fit another.
		for c := range h.classes {
			r := &h.classes[c]
			if r.k == 0 {
				continue
			}
			for _, s := range r.signs {
				if s.owner == nil && s.said {
					s.owner, s.class = h, c
				}
			}
		}
		h.score = e.recount(h)
	}
	slices.SortStableFunc(kept, func(a, b *suspect) int { return cmp.Compare(b.score, a.score) })
	return kept
}

// fold lets a fault that brings parts into a state take over the faults that
// are no more than this state: servers without power are not crashed servers,
// unless something says so that the state does not.
func (e *Engine) fold(accepted []*suspect) []*suspect {
	var states []*suspect
	for _, h := range accepted {
		if h.fault.Is != "" {
			states = append(states, h)
		}
	}
	if len(states) == 0 {
		return accepted
	}
	// Who could bring a state about is linked with what the state shows.
	known := map[*suspect]bool{}
	var could []*suspect
	for _, h := range states {
		for c := range h.classes {
			for _, s := range h.classes[c].signs {
				for _, l := range s.links {
					if g := l.to; !known[g] {
						known[g] = true
						other := func(f propagation.Effect) bool { return f.State != g.fault.Is }
						if !g.dead && !g.fault.Harmless && slices.ContainsFunc(g.fault.Effects, other) {
							could = append(could, g)
						}
					}
				}
			}
		}
	}
	slices.SortFunc(could, func(a, b *suspect) int { return a.seq - b.seq })
	for {
		states = slices.DeleteFunc(states, func(h *suspect) bool { return !h.accepted })
		if len(states) == 0 || len(could) == 0 {
			return slices.DeleteFunc(accepted, func(h *suspect) bool { return !h.accepted })
		}
		var best *suspect
		var parts []*suspect
		value := 0.0
		for _, g := range could {
			if folds, gain := e.foldable(g, states); gain > value {
				best, parts, value = g, folds, gain
			}
		}
		if best == nil {
			return slices.DeleteFunc(accepted, func(h *suspect) bool { return !h.accepted })
		}
		if !best.accepted {
			best.lift = value
			e.blame(best, true)
			e.score(best, unowned)
			e.claim(best, unowned)
			accepted = append(accepted, best)
		}
		parts = append(parts, e.shadowed(best, parts, accepted)...)
		for _, h := range parts {
			e.handOver(h, best)
		}
		best.folded = append(best.folded, parts...)
		best.score += value
	}
}

// foldable returns the faults that are states which g brings about, and what
// is gained when g alone is blamed.
func (e *Engine) foldable(g *suspect, states []*suspect) (folds []*suspect, gain float64) {
	var silent float64 // what it costs that g's other effects do not show
	for i := range g.fault.Effects {
		f := &g.fault.Effects[i]
		if f.State == g.fault.Is {
			continue
		}
		onset := g.onset
		var list []*suspect
		for _, h := range states {
			if h == g || !h.accepted || h.fault.Is != f.State || h.onset.IsZero() || slices.Contains(folds, h) {
				continue
			}
			if !g.onset.IsZero() {
				if d := h.onset.Sub(g.onset); d < -foldEarly || d > f.Delay+foldLate {
					continue
				}
			} else if onset.IsZero() || h.onset.Before(onset) {
				onset = h.onset
			}
			list = append(list, h)
		}
		if len(list) == 0 && (g.accepted || f.SharedShows == 0) {
			continue
		}
		in := slices.Clone(e.walk.forward(e.g, g.node, e.g.compile(f.Path), onset))
		list = slices.DeleteFunc(list, func(h *suspect) bool { return !slices.Contains(in, h.node) })
		// Parts that nothing else feeds, and those that something does.
		for _, alone := range [2]bool{true, false} {
			share, shows, c := f.Share, f.Shows, concentration
			if !alone {
				if f.SharedShows == 0 {
					break
				}
				share, shows, c = f.SharedShare, f.SharedShows, sharing
			}
			mine := func(n node) bool { return f.SharedShows == 0 || alone == e.without(n, g) }
			n, pending := 0, 0
			for _, m := range in {
				if mine(m) {
					if n++; e.shows(m, f.State) {
						pending++
					}
				}
			}
			k, sum := 0, 0.0
			from := len(folds)
			for _, h := range list {
				if !mine(h.node) {
					continue
				}
				if w := e.asEffect(h, g); w > 0 {
					sum += w
					k++
					folds = append(folds, h)
				}
			}
			if n == 0 {
				continue
			}
			rest := float64(max(0, n-max(k, pending)))
			if g.accepted { // else nothing speaks for it but what shows already
				rest *= float64(e.late(onset, effectSoon)) / lateSteps
			}
			a, b := betaOf(share, c) // as in fit; a state shows in several ways, and is taken to be missed half as often as a sign
			none := shows*math.Exp(logBeta(a, rest+float64(k)+b)-logBeta(a, b)) + 1 - shows + unheard/2
			if k == 0 {
				if !g.accepted {
					silent += math.Log(none)
				}
				continue
			}
			p := math.Exp(logBeta(float64(k)+a, rest+b) - logBeta(a, b))
			v := math.Log(shows*p+tiny) + sum
			if g.accepted {
				v -= math.Log(none)
			}
			if v > 0 {
				gain += v
			} else {
				folds = folds[:from]
			}
		}
	}
	var left []*incident // what was decided earlier has a bonus
	for _, h := range folds {
		if h.inc != nil && !h.inc.gone && h.inc != g.inc && !slices.Contains(left, h.inc) {
			left = append(left, h.inc)
			gain -= keepBonus
		}
	}
	if len(folds) > 0 && !g.accepted {
		gain += e.score(g, unowned) + silent + e.together(g)
	}
	return folds, gain
}

// asEffect is what is saved when h is no fault of its own but brought about by g.
func (e *Engine) asEffect(h, g *suspect) float64 {
	w := -h.prior
	if g.accepted || e.together(g) > 0 {
		w += coincidence
	}
	for c := range h.classes[:h.fault.Own()] { // what g does not explain
		r := &h.classes[c]
		if r.k > 0 && !slices.ContainsFunc(r.signs, func(s *sign) bool { return s.owner == h && linked(s, g) }) {
			w -= e.fit(h, c, r.k, r.w) - e.fit(h, c, 0, 0)
		}
	}
	for c := h.fault.Own(); c < len(h.classes); c++ { // what h had to explain by luck, and g explains in any case
		r := &h.classes[c]
		if r.k > 0 && len(h.fault.Classes[c].Path) > 0 && e.surelyShows(g, h.fault.Classes[c].Sign, r.signs[0].node) {
			w -= e.fit(h, c, r.k, 0)
		}
	}
	return w
}

// surelyShows says whether g takes a part into a state that shows itself by a
// sign, and nothing holds the part up.
func (e *Engine) surelyShows(g *suspect, kind int, n node) bool {
	for i := range g.fault.Effects {
		f := &g.fault.Effects[i]
		if f.State != g.fault.Is && f.SharedShows > 0 && slices.Contains(e.showing[f.State], kind) {
			return e.without(n, g)
		}
	}
	return false
}

// without says whether a part has no power once g is lost: the last of its
// suppliers takes it along.
func (e *Engine) without(n node, g *suspect) bool {
	dev := e.g.server(n)
	if dev == none || !e.powerless(dev, g.node) {
		return false
	}
	for _, p := range e.backing[dev] {
		if o := e.unfed[p]; o != nil && o != g && !g.onset.IsZero() && o.onset.After(g.onset) {
			return false
		}
	}
	return true
}

// shows says whether a part shows one of the signs of a state.
func (e *Engine) shows(n node, state string) bool {
	for _, kind := range e.showing[state] {
		if s := e.signs.get(n, kind); s != nil && s.said && s.up {
			return true
		}
	}
	return false
}

// together is how much likelier a fault is since an equal that stands in for
// it has it too: the share Together of failures takes both, so given one the
// log-odds of the other are about log(Together) in place of its prior.
func (e *Engine) together(g *suspect) float64 {
	for n, o := range e.unfed {
		if n != g.node && o.fault == g.fault && e.g.parent[n] == e.g.parent[g.node] {
			return max(0, math.Log(g.fault.Together)-g.prior)
		}
	}
	return 0
}

// shadowed returns the faults whose signs g may show too and that came as their
// server went into one of the states: power that goes takes the GPUs with it.
// One that is heard of again when its server is back is a fault of its own.
func (e *Engine) shadowed(g *suspect, states, accepted []*suspect) []*suspect {
	var out []*suspect
	for _, a := range accepted {
		if a == g || !a.accepted || !a.fault.Reset || a.onset.IsZero() {
			continue
		}
		server := e.g.server(a.node)
		i := slices.IndexFunc(states, func(h *suspect) bool { return h.node == server })
		if i < 0 || a.onset.Sub(states[i].onset).Abs() > shadow {
			continue
		}
		silent := states[i].onset.Add(2 * shadow) // what came within the shadow, and its delay, is over
		tied, again := false, false
		for c := range a.classes {
			for _, s := range a.classes[c].signs {
				if s.owner == a {
					tied = tied || linked(s, g)
					again = again || s.heard.After(silent)
				}
			}
		}
		if tied && !again {
			out = append(out, a)
		}
	}
	return out
}

func linked(s *sign, h *suspect) bool {
	return slices.ContainsFunc(s.links, func(l link) bool { return l.to == h })
}

func (e *Engine) handOver(h, to *suspect) {
	e.blame(h, false)
	for c := range h.classes {
		for _, s := range h.classes[c].signs {
			if s.owner == h {
				s.owner, s.class = to, -1
			}
		}
	}
}

type slot struct {
	h *suspect
	c int
}

// loss is what the present owners would lose to h, and whether all of it is
// what follows from them in any case.
func (e *Engine) loss(h *suspect) (loss float64, follows bool) {
	follows = true
	taken := map[slot][]*sign{}
	var order []slot
	for c := range h.classes {
		if !h.classes[c].claimed {
			continue
		}
		for _, s := range h.classes[c].signs {
			if s.said && s.owner != nil && s.owner != h {
				k := slot{s.owner, s.class}
				if taken[k] == nil {
					order = append(order, k)
				}
				taken[k] = append(taken[k], s)
				follows = follows && s.class >= 0 && s.owner.fault.Classes[s.class].Later
			}
		}
	}
	return e.lossOf(taken, order), follows && len(order) > 0
}

func (e *Engine) classLoss(h *suspect, c int) float64 {
	taken := map[slot][]*sign{}
	var order []slot
	for _, s := range h.classes[c].signs {
		if s.said && s.owner != nil && s.owner != h {
			k := slot{s.owner, s.class}
			if taken[k] == nil {
				order = append(order, k)
			}
			taken[k] = append(taken[k], s)
		}
	}
	return e.lossOf(taken, order)
}

func (e *Engine) lossOf(taken map[slot][]*sign, order []slot) float64 {
	type sum struct {
		h    *suspect
		loss float64
	}
	var sums []sum
	for _, k := range order {
		r := &k.h.classes[k.c]
		w := r.w
		for _, s := range taken[k] {
			w -= e.weight(s) - distance(k.h, s)
		}
		n := r.k - len(taken[k])
		left := e.fit(k.h, k.c, n, w)
		loss := e.fit(k.h, k.c, r.k, r.w) - left
		i := slices.IndexFunc(sums, func(s sum) bool { return s.h == k.h })
		if i < 0 {
			i = len(sums)
			sums = append(sums, sum{h: k.h})
		}
		sums[i].loss += loss
	}
	total := 0.0
	for _, s := range sums {
		total += s.loss
	}
	return total
}

// attach gives what nobody had to explain to the fault that fits best.
func (e *Engine) attach(signs []*sign) {
	for _, s := range signs {
		if s.owner != nil {
			continue
		}
		best, class, value := (*suspect)(nil), 0, 0.0
		for _, l := range s.links {
			h := l.to
			if !h.accepted {
				continue
			}
			if s.said && h.classes[l.class].k == 0 && e.momentary(s) && !e.model.Signs[s.kind].Job {
				continue // it only happens to be near
			}
			v := h.fault.Classes[l.class].Share * h.fault.Classes[l.class].Shows
			if best == nil || v > value {
				best, class, value = h, l.class, v
			}
		}
		if best != nil {
			s.owner, s.class = best, class
		}
	}
}

// settle turns what was decided into incidents: old ones keep their name
// where most of what they held stays together.
func (e *Engine) settle(signs []*sign, accepted, suspects []*suspect) {
	groups := make(map[*suspect][]*sign, len(accepted))
	var before []*incident
	for _, s := range signs {
		if s.owner != nil {
			groups[s.owner] = append(groups[s.owner], s)
		}
		if s.inc != nil && s.inc.claim != int(e.epoch) && !s.inc.gone {
			s.inc.claim = int(e.epoch)
			before = append(before, s.inc)
		}
	}
	slices.SortFunc(before, func(a, b *incident) int { return a.seq - b.seq })
	took := make(map[*incident]bool, len(before))
	type group struct {
		root  *suspect
		where node
		signs []*sign
	}
	var list []group
	var joined []*sign
	for _, h := range accepted {
		if !h.fault.Harmless && len(groups[h]) > 0 {
			list = append(list, group{h, h.node, groups[h]})
		}
	}
	// Critical signs that nothing explains are reported as unknown, and contact that does not come back.
	for _, s := range signs {
		again := s.often > 1 && e.surely(s)
		if s.owner != nil || !s.said || s.worst != schemas.SeverityCritical && !e.lasting(s) && !again || !e.surely(s) {
			continue
		}
		if e.now.Sub(s.raisedAt) < unknownHold || s.stateful && !s.up && s.brief && !again {
			continue
		}
		where := e.whole(s.node)
		// What comes with a fault of the same server most likely belongs to it.
		i := slices.IndexFunc(list, func(g group) bool { return g.root != nil && e.near(g.root, where, s) })
		if i < 0 {
			if o := slices.IndexFunc(e.open, func(o *incident) bool {
				return o.claim != int(e.epoch) && (o.root != nil && e.near(o.root, where, s) || o.root == nil && e.whole(o.where) == where)
			}); o >= 0 {
				if e.open[o].root == nil && e.open[o].where != s.node {
					e.open[o].where = where
				}
				e.open[o].signs = append(e.open[o].signs, s)
				s.inc, s.mark = e.open[o], 0
				joined = append(joined, s)
				e.change(e.open[o])
				continue
			}
			i = slices.IndexFunc(list, func(g group) bool { return g.root == nil && e.whole(g.where) == where })
		}
		if i < 0 {
			i = len(list)
			list = append(list, group{nil, s.node, nil})
		} else if list[i].root == nil && list[i].where != s.node {
			list[i].where = where
		}
		list[i].signs = append(list[i].signs, s)
	}
	names := make([]*incident, len(list))
	for i, g := range list {
		count := map[*incident]int{}
		for _, s := range g.signs {
			if s.inc != nil && !s.inc.gone {
				count[s.inc] += s.count
			}
		}
		if len(count) == 0 {
			continue
		}
		var best *incident
		for _, inc := range before {
			if count[inc] > 0 && !took[inc] && (best == nil || count[inc] > count[best]) {
				best = inc
			}
		}
		if best != nil {
			took[best] = true
			names[i] = best
		}
	}
	successor := map[*incident]*incident{}
	size := map[*incident]int{}
	for i, g := range list {
		inc := names[i]
		if inc == nil {
			inc = e.openIncident(g.signs)
			names[i] = inc
		}
		for _, s := range g.signs {
			if s.inc != nil && s.inc != inc && !took[s.inc] && len(g.signs) > size[s.inc] {
				successor[s.inc], size[s.inc] = inc, len(g.signs)
			}
		}
	}
	for _, s := range signs {
		if s.excused = nil; slices.Contains(joined, s) {
			continue
		}
		s.inc = nil
		if s.owner != nil && s.owner.fault.Harmless {
			s.excused = s.owner
		}
	}
	for _, h := range suspects {
		if h.inc != nil && h.inc.claim == int(e.epoch) {
			h.inc = nil
		}
	}
	for i, g := range list {
		inc := names[i]
		inc.root, inc.where, inc.signs = g.root, g.where, g.signs
		if g.root != nil {
			g.root.inc = inc
		}
		inc.unsure = true
		for _, s := range g.signs {
			s.inc = inc
			if s.heard.After(inc.heard) {
				inc.heard = s.heard
			}
			if s.at.Before(inc.opened) {
				inc.opened = s.at
			}
		}
		e.change(inc)
	}
	for _, inc := range before {
		if took[inc] {
			continue
		}
		inc.gone, inc.signs = true, nil
		if s := successor[inc]; s != nil {
			inc.mergedInto = s.id
		}
		e.open = slices.DeleteFunc(e.open, func(o *incident) bool { return o == inc })
		e.change(inc)
	}
}

// whole returns the server or switch of a part, or what is part of none.
func (e *Engine) whole(n node) node {
	if d := e.g.server(n); d != none {
		return d
	}
	return n
}

// near says whether a sign that nothing explains goes with a fault on the same server.
func (e *Engine) near(h *suspect, server node, s *sign) bool {
	return !h.onset.IsZero() && s.at.Sub(h.onset).Abs() <= unknownNear && e.g.server(h.node) == server
}

func (e *Engine) openIncident(signs []*sign) *incident {
	e.incSeq++
	e.stats.Opened++
	first, at := "", time.Time{}
	for _, s := range signs {
		for _, f := range s.facts {
			if at.IsZero() || f.at.Before(at) {
				first, at = f.id, f.at
			}
		}
	}
	inc := &incident{seq: e.incSeq, opened: e.now}
	if e.ids != nil {
		inc.id = e.ids(first)
	} else {
		inc.id = "i" + itoa(e.incSeq)
	}
	e.open = append(e.open, inc)
	return inc
}

func (e *Engine) close(inc *incident) {
	inc.closed = e.now
	e.change(inc)
	e.open = slices.DeleteFunc(e.open, func(o *incident) bool { return o == inc })
	for _, s := range inc.signs {
		s.inc = nil
		e.drop(s)
	}
	if inc.root != nil && !inc.root.dead {
		e.bury(inc.root)
	}
}

// confidence is the probability that the root is the right resource, and what
// else it could be, by how well each explains the same signs: scores are log-odds
// against "no fault", whose score is 0, so the probabilities of the root, its rivals
// and none are in the ratio exp(score), tempered by spread.
func (e *Engine) confidence(h *suspect, signs []*sign) (float64, []schemas.Cause) {
	mine := func(s *sign) bool { return s.owner == h }
	own := e.score(h, mine)
	type rival struct {
		h     *suspect
		score float64
	}
	var rivals []rival
	seen := map[*suspect]bool{h: true}
	for _, f := range h.folded { // what the states explain, the cause of the states explains
		seen[f] = true
		own += max(e.score(f, mine), 0)
	}
	if h.lift > 0 { // or they are faults of their own and h is none
		rivals = append(rivals, rival{h.folded[0], own - h.lift})
	}
	for _, s := range signs {
		for _, l := range s.links {
			if o := l.to; !seen[o] && !o.dead {
				if seen[o] = true; e.most(o, mine) < own-hopeless {
					continue
				}
				rivals = append(rivals, rival{o, e.score(o, mine)})
			}
		}
	}
	for c := range h.classes { // score leaves marks; put the owner's back
		h.classes[c].claimed = h.classes[c].k > 0
	}
	top := max(own, 0)
	for _, r := range rivals {
		top = max(top, r.score)
	}
	p := func(s float64) float64 { return math.Exp((s - top) / spread) }
	// Equals of which nothing is known but that there are as many share what one
	// of them would have: how many there are says nothing.
	type equal struct {
		fault  int32
		parent node
		score  int64
	}
	alike := func(r rival) equal {
		return equal{r.h.key.fault, e.g.parent[r.h.node], int64(math.Round(r.score * scoreUnits))}
	}
	equals := map[equal]int{alike(rival{h, own}): 1}
	for _, r := range rivals {
		equals[alike(r)]++
	}
	part := func(r rival) float64 { return p(r.score) / float64(equals[alike(r)]) }
	right := part(rival{h, own})
	sum := right + p(0)
	slices.SortStableFunc(rivals, func(a, b rival) int {
		if a.score != b.score {
			return cmp.Compare(b.score, a.score)
		}
		return a.h.seq - b.h.seq
	})
	var alternatives []schemas.Cause
	for _, r := range rivals {
		v := part(r)
		sum += v
		if r.h.node == h.node && !r.h.fault.Harmless || h.fault.End && e.joined(h.node, r.h.node) {
			right += v
		}
	}
	for _, r := range rivals {
		share := certainty * part(r) / sum
		if share < suspectMin || len(alternatives) == 3 {
			break
		}
		if r.h.fault.Harmless || r.h.node == h.node && r.h.fault.Name == h.fault.Name {
			continue
		}
		alternatives = append(alternatives, schemas.Cause{Resource: e.g.name[r.h.node], Fault: r.h.fault.Name, Confidence: round(share)})
	}
	return certainty * right / sum, alternatives
}

func (e *Engine) joined(a, b node) bool {
	l := &e.g.links[linkNet]
	return slices.Contains(l.out[a], b) || slices.Contains(l.in[a], b)
}

// change notes that an incident may have to be published again.
func (e *Engine) change(inc *incident) {
	if !inc.queued {
		inc.queued = true
		e.changed = append(e.changed, inc)
	}
}

// emitDue publishes the incidents that changed: at once where the cause or the
// life of the incident did, else at most once a second.
func (e *Engine) emitDue(now bool) {
	if len(e.changed) == 0 {
		return
	}
	rest := e.changed[:0]
	for _, inc := range e.changed {
		if !now && !inc.gone && inc.closed.IsZero() && min(e.now.Sub(inc.emitted), e.now.Sub(inc.judged)) < emitEvery {
			if r, f := e.cause(inc); r == inc.told.resource && f == inc.told.fault {
				rest = append(rest, inc)
				continue
			}
		}
		if inc.unsure && !inc.gone {
			inc.unsure, inc.judged = false, e.now
			if inc.confidence, inc.alternatives = unknownConfidence, nil; inc.root != nil {
				inc.confidence, inc.alternatives = e.confidence(inc.root, inc.signs)
			}
		}
		t := e.state(inc)
		switch {
		case t.same(inc.told) || inc.gone && inc.told == (told{}):
			inc.queued = false
		case now, inc.told == (told{}), inc.gone, t.closed != inc.told.closed,
			t.resource != inc.told.resource, t.fault != inc.told.fault, t.due(inc.told, e.now.Sub(inc.emitted)):
			inc.queued = false
			e.emit(inc)
		default:
			rest = append(rest, inc)
		}
	}
	clear(e.changed[len(rest):])
	e.changed = rest
}

func (e *Engine) state(inc *incident) told {
	t := told{closed: !inc.closed.IsZero(), gone: inc.gone, confidence: steps(inc.confidence)}
	t.resource, t.fault = e.cause(inc)
	t.signs, t.facts, t.severity = len(inc.signs), e.facts(inc), schemas.SeverityWarning
	if inc.gone {
		t.severity = inc.told.severity
	}
	if inc.root != nil && inc.root.fault.Together > 0 && !inc.gone {
		_, _, others := e.feedOf(inc.root.node)
		_, _, t.mute = e.supplies(others, inc.root)
	}
	for _, s := range inc.signs {
		if s.worst.Rank() > t.severity.Rank() {
			t.severity = s.worst
		}
	}
	return t
}

// facts returns how many events an incident holds.
func (e *Engine) facts(inc *incident) int {
	n := inc.before
	for _, s := range inc.signs {
		n += s.count
	}
	return n
}

func (e *Engine) cause(inc *incident) (resource, fault string) {
	if inc.root == nil {
		return e.g.name[inc.where], "unknown"
	}
	return e.g.name[inc.root.node], inc.root.fault.Name
}

func (e *Engine) emit(inc *incident) {
	inc.told = e.state(inc)
	inc.emitted = e.now
	inc.revision++
	e.out = append(e.out, e.describe(inc))
}

// steps rounds a confidence to what is worth publishing again.
func steps(p float64) float64 { return math.Round(p*confidenceSteps) / confidenceSteps }

func round(p float64) float64 { return math.Round(p*1000) / 1000 }

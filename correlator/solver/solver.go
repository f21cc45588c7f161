// Package solver finds what explains a group of signs best. It is pure: all that it
// needs is in the group, times are relative, nothing depends on names, on a clock or
// on the order of a map, and the same group gives the same explanation. Methods are
// exchanged behind one interface, and compared on the same groups.
//
// The model. A fault that is there shows a class of signs with probability Shows,
// and then on each of n parts with an unknown chance x, the same for all of them; a
// sign that no fault shows is there by itself with probability leak. A sign has one
// owner: of the causes of a noisy-OR (Pearl, Probabilistic Reasoning in Intelligent
// Systems, 1988, 4.3) the likeliest counts, the others not. The score of a fault is
// then the log-odds of "it is there and shows these" against "all of them came by
// themselves",
//
//	score = prior + sum over classes of [fit + sum over its signs of gain]
//
// with fit = log P(k of n show), see [Fit], gain = -log(leak) less what the lag costs,
// and the silence by itself of a part, log(1-leak), taken for 0.
package solver

import (
	"math"
	"time"

	"auspex/schemas/faults/propagation"
)

// None is no cause, and no device.
const None int32 = -1

// Group is what is decided together. Times are durations since some moment, the same
// for all of a group. A method reads it and changes nothing.
type Group struct {
	Now    time.Duration
	Signs  []Sign
	Causes []Cause // in the order in which they came to mind, which decides between equals
	// Supply is the power of the devices of the group; Lost are the suppliers that are
	// blamed already and are no cause of the group.
	Supply Supply
	Lost   []Supplier
}

// Sign is one sign on one part: all events that say the same.
type Sign struct {
	Node, Device int32         // the part, and the server or switch that holds it
	Heard        time.Duration // last
	Said         bool          // more than an all-clear was heard
	Own          bool          // only the system of its device could tell of it, or the far end of a link
	Runs         bool          // its device ran as it told of it
	At           time.Duration // first
	Passing      bool          // it has not lasted: it goes with a fault only where another of its class does
	Of           []Ref         // the causes that could show it
}

// Ref is a class of a cause.
type Ref struct{ Cause, Class int32 }

// Cause is a fault that a part may have.
type Cause struct {
	Fault                *propagation.Fault
	Node, Device, Parent int32
	Prior                float64       // log-odds before any sign
	Kept                 int           // the incident of which it is the root; 0: none
	Onset                time.Duration // when it began, as well as can be told
	Timed                bool          // a sign of it says when
	Latest               time.Duration // when it began at the latest: Onset is then the earliest where it is not timed
	Missed               time.Duration // how long it may have gone unnoticed before Onset
	Again                time.Duration // when a sign of its own was last raised again; 0: none was
	Back                 time.Duration // when most of what it shows had ended; 0: it is not known
	Out                  bool          // nothing that it shows has ended
	Base                 float64       // score over all its signs
	Whole                bool          // the group has all its signs
	Classes              []Class       // as those of the fault
	// Live are the classes to ask after; the others are silent, and Silent has their log-likelihood
	// by class, 0 for those that have no say. Both are nil where all classes are laid out.
	Live    []int
	Silent  []float64
	Effects [][]Part // by effect of the fault, by node; nil where it could bring none about
	// Over is when most of what comes before an effect was over, with some time after: from then
	// on it brings about no more, but where a part shows it still. 0: it is not over.
	Over []time.Duration
}

// Class is what speaks for one class of a cause's signs.
type Class struct {
	Places
	Mute     int // of the parts say nothing and could not
	Dark     []Dark
	Evidence []Evidence
}

// Places are the parts that could show a class, and what holds them where that matters: a
// room is a thing whose parts show it together or not at all.
type Places struct {
	Parts int
	Rooms int // 0: it does not matter
	Heard int // rooms in which a part was heard to show it
	There int // parts in those
}

// Evidence is a sign of a class.
type Evidence struct {
	Sign  int32 // None: it is not in the group
	Said  bool
	Taken bool    // it is not in the group, and another cause owns it
	Gain  float64 // -log of its leak, less what its lag costs
}

// Dark are parts that are mute where their device has no power.
type Dark struct {
	Device int32
	Parts  int
}

// Part is where an effect of a cause may come to be.
type Part struct {
	Node, Device int32
	Shows        bool // it shows the state now
	// Since and Until are when it showed what comes before the state, with some time
	// after; both are 0 where it did not.
	Since, Until time.Duration
}

// Supplier is a supplier of power that is blamed.
type Supplier struct {
	Node, Parent int32
	Fault        *propagation.Fault
	Onset        time.Duration
	Timed        bool
	Back         time.Duration // as of a cause
	Out          bool
}

// Supply is what feeds devices directly, and what feeds suppliers, by node. What is
// not noted is nil.
type Supply struct{ of, behind [][]int32 }

// Of returns what feeds a device directly.
func (s *Supply) Of(device int32) []int32 { return at(s.of, device) }

// Known says whether it is noted what feeds a device.
func (s *Supply) Known(device int32) bool { return at(s.of, device) != nil }

// Note notes what feeds a device.
func (s *Supply) Note(device int32, in []int32) { s.of = put(s.of, device, in) }

// Behind says whether it is noted what feeds a supplier, and what.
func (s *Supply) Behind(supplier int32) (in []int32, known bool) {
	in = at(s.behind, supplier)
	return in, in != nil
}

// NoteBehind notes what feeds a supplier.
func (s *Supply) NoteBehind(supplier int32, in []int32) { s.behind = put(s.behind, supplier, in) }

func at(list [][]int32, n int32) []int32 {
	if n < 0 || int(n) >= len(list) {
		return nil
	}
	return list[n]
}

func put(list [][]int32, n int32, in []int32) [][]int32 {
	if more := int(n) + 1 - len(list); more > 0 {
		list = append(list, make([][]int32, more)...)
	}
	if in == nil {
		in = []int32{}
	}
	list[n] = in
	return list
}

// Dead says whether a device has no power left. What the inventory puts on no supplier
// has power; a supplier is lost too when all that stand behind it are.
func (s *Supply) Dead(device int32, lost func(supplier int32) bool) bool {
	in := s.Of(device)
	for _, p := range in {
		if !s.cut(p, lost, 0) {
			return false
		}
	}
	return len(in) > 0
}

func (s *Supply) cut(p int32, lost func(supplier int32) bool, depth int) bool {
	if lost(p) {
		return true
	}
	in, _ := s.Behind(p)
	if len(in) == 0 || depth > maxChain {
		return false
	}
	for _, q := range in {
		if !s.cut(q, lost, depth+1) {
			return false
		}
	}
	return true
}

// Explanation says which causes explain a group.
type Explanation struct {
	Owner, Class []int32 // by sign; Owner None: nothing explains it. Class None: it follows from a state
	Blamed       []int32 // causes, the surest first
	States       []State // of those that are blamed, in the same order
	Partial      []int32 // blamed, though the group has not all their signs: it is to be asked again with them
	Work         int     // signs, classes and parts that were looked at
}

// State is what was decided on a cause.
type State struct {
	Score  float64
	Folded []int32 // causes that are no more than a state that this one brings about
	Lift   float64 // what speaks for it only because it explains these
}

// Method explains groups. The same group has the same answers; a method need not be
// safe for concurrent use.
type Method interface {
	// Explain says which causes explain the signs of a group.
	Explain(g *Group) Explanation
	// Posterior weighs the root of an explanation, with the owners of the signs and
	// what was decided on it, against all other causes of the group.
	Posterior(g *Group, root int32, owner []int32, of State) Posterior
}

// The numbers below that name no source are not derived: they were chosen by hand,
// and the drawn storms of the correlator's tests hold what they lead to.

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
	// KeepBonus is what a decision made earlier has before another: names do not change for less.
	KeepBonus = 1.0
	stealGain = 1.0 // that it must gain to take signs from a fault that explains them too
	moveGain  = 0.1 // the same for a class of signs between two faults that both stand: no going to and fro
	// A state on the way of a fault that is known, soon after it, is hardly ever one
	// of its own: servers crash about once a year, which gives ten minutes odds of
	// exp(-11). The prior has a part of that; this is a cautious part of the rest.
	coincidence = 2.0
	badFit      = -6.0 // of the shares, 1 in 400, below which several faults are tried for one
	// Reports of one fault hang together by more than the model knows (one sensor, one
	// board, one poller), so each says less than if it were alone: odds are raised to
	// 1/Spread, as in a power posterior (Grünwald, The Safe Bayesian, 2012), prior and all.
	Spread     = 1.7
	certainty  = 0.98 // the rest is left to causes that the model does not have
	hopeless   = 40.0 // nats behind the first: its share is below 1 in 10^8, and not worth computing
	scoreUnits = 1e6  // of a nat: scores that differ by less, from adding up in another order, are equal
)

// Expectable is the highest log-odds at which a state is expected of a blamed cause.
var Expectable = math.Log(certainty / (1 - certainty))

// The lag from a fault to its signs has a heavy tail, of which the model gives only the
// bounds: within them the odds of a fault fall with (1 + lag/lagScale)^-lagPower. Up to
// the scale, about the time between two polls, lags are alike; beyond it each doubling costs
// a fifth of the odds, enough to choose between equals, too little against a witness.
const (
	lagScale = 30.0 // seconds
	lagPower = 0.3
)

// What goes with a supplier at once is heard to go within the time that clocks and polls are
// apart, with a heavy tail of which this is the median, in seconds.
const onceScale = 10.0

// What power comes back to starts within minutes: this is the median, in seconds.
const startScale = 300.0

const (
	foldEarly  = time.Minute     // a state is heard of at most so long before what brings it about
	foldLate   = 5 * time.Minute // and at most so long after it is due: hosts are lost after rounds without an answer
	effectSoon = time.Minute     // mean delay of the signs of a state, for which the model gives none
	shadow     = time.Minute     // a server that goes down takes along what failed so shortly before or after
	gasp       = 2 * time.Second // what a device says as it goes down is said by then
	maxChain   = 8               // suppliers one behind the other
)

// Lag is what the lag of a sign from the onset of a fault costs, in nats: it makes the
// nearer of two faults the likelier cause.
func Lag(lag time.Duration) float64 { return lagPower * math.Log1p(lag.Abs().Seconds()/lagScale) }

// EndsWith is what it is worth, at least 0, that a condition which had lasted so long ended at a lag from what would
// end it: the density of the lag, which has a heavy tail, over that of an end by itself, at any scale of time alike.
func EndsWith(lag, lasted time.Duration) float64 {
	return max(0, math.Log(max(1, lasted.Seconds()/onceScale))-2*math.Log1p(lag.Abs().Seconds()/onceScale))
}

// Lead is what it costs that something was heard so long before the fault that it follows
// from: clocks and polls are apart, and a fault may be noticed after what it stopped.
func Lead(lead time.Duration) float64 { return 2 * math.Log1p(lead.Seconds()/onceScale) }

// LateSteps is how finely lateness counts, so that few fits are computed.
const LateSteps = 16

// Late says how much of what has not come is due, in LateSteps, some time after the
// onset: the delay of a sign is taken for exponential with mean soon and a second of
// transport, and 1-exp(-t/mean) is what should have come. From four means on it is all.
func Late(since, soon time.Duration) uint8 {
	due := float64(since) / float64(soon+time.Second)
	if due >= dueBy[LateSteps-1] {
		return LateSteps
	}
	k := uint8(0)
	for half := uint8(LateSteps / 2); half > 0; half /= 2 { // the first that begins no sooner
		if dueBy[k+half-1] < due {
			k += half
		}
	}
	return k
}

// LateUntil returns the time after the onset before which Late stays what it is some time
// after the onset: a microsecond too early rather than too late.
func LateUntil(since, soon time.Duration) time.Duration {
	k := Late(since, soon)
	if k >= LateSteps {
		return math.MaxInt64
	}
	return max(since, time.Duration(dueBy[k]*float64(soon+time.Second))-time.Microsecond)
}

// dueBy is after how many means each of the LateSteps begins.
var dueBy = func() (out [LateSteps]float64) {
	for i := range out {
		out[i] = -math.Log(1 - (float64(i)+0.5)/LateSteps)
	}
	return out
}()

// outcome is k of k+rest parts that show a class of signs, when late/LateSteps
// of what does not show yet is due.
type outcome struct {
	class   *propagation.Class // never nil
	k, rest int32
	late    uint8
}

// Fits remembers fits: a few outcomes are asked for again and again, and each has a
// place, which it may lose to another. The zero value is ready. It is not safe for
// concurrent use.
type Fits struct {
	lost  uint8 // of what is sent, in LostSteps
	table [1 << fitBits]struct {
		outcome
		value float64
	}
}

// LostSteps is how finely it counts how much is lost on the way.
const LostSteps = 16

// Lose says which share of what is sent does not arrive: so much less does silence say. It
// reports whether that is another one than before.
func (f *Fits) Lose(share float64) bool {
	lost := uint8(share * LostSteps) //nolint:gosec // below 1
	if lost == f.lost {
		return false
	}
	*f = Fits{lost: lost}
	return true
}

const fitBits = 12

// Fit returns the log-likelihood that k parts show a class and rest are silent, of
// which late/[LateSteps] should have spoken by now. With x from Beta(a, b), it is
//
//	E[x^k (1-x)^rest] = B(k+a, rest+b) / B(a, b)
//
// (no binomial coefficient: which parts they are is given). That nothing shows is also
// so with probability 1-Shows, and where nothing came through; unheard is added as it
// is, so that the sum may reach 1.05 in place of 1. The silence of a learned class says nothing.
func (f *Fits) Fit(cl *propagation.Class, k, rest int, late uint8) float64 {
	if k == 0 && cl.Learned {
		return 0
	}
	o := outcome{class: cl, k: int32(k)} //nolint:gosec // counts of parts
	if rest > 0 {
		o.rest, o.late = int32(rest), late //nolint:gosec // counts of parts
	}
	h := uint64(cl.ID)<<48 ^ uint64(o.k)<<28 ^ uint64(o.rest)<<5 ^ uint64(o.late) //nolint:gosec // counts
	p := &f.table[h*0x9e3779b97f4a7c15>>(64-fitBits)]
	if p.outcome != o {
		p.outcome, p.value = o, o.logLikelihood(1-float64(f.lost)/LostSteps)
	}
	return p.value
}

// FitIn is [Fits.Fit] of k parts, where others are mute. In rooms the chance is drawn twice:
// so many rooms show the class, and so many parts in those. What is mute is taken to be so
// everywhere alike.
func (f *Fits) FitIn(cl *propagation.Class, p Places, k, mute int, late uint8) float64 {
	if p.Rooms < 2 || p.Heard == 0 && k > 0 {
		return f.Fit(cl, k, p.Parts-mute-k, late)
	}
	audible := func(n int) int { return n - n*mute/p.Parts }
	if k == 0 {
		return f.Fit(cl, 0, audible(p.Rooms), late)
	}
	return f.Fit(cl, p.Heard, audible(p.Rooms-p.Heard), late) + f.Fit(cl, k, audible(p.There)-k, late) - math.Log(cl.Shows)
}

func (o outcome) logLikelihood(heard float64) float64 {
	cl := o.class
	a, b := betaOf(cl.Share, concentration)
	missing := heard * float64(o.rest) * float64(o.late) / LateSteps
	p := math.Exp(logBeta(float64(o.k)+a, missing+b) - logBeta(a, b))
	if o.k == 0 {
		return math.Log(cl.Shows*p + 1 - cl.Shows + unheard)
	}
	return math.Log(cl.Shows*p + tiny)
}

// betaOf returns the parameters of a beta distribution with mean share.
func betaOf(share, c float64) (a, b float64) { return share * c, (1-share)*c + betaEdge }

// logBeta returns log B(a, b).
func logBeta(a, b float64) float64 {
	x, _ := math.Lgamma(a)
	y, _ := math.Lgamma(b)
	z, _ := math.Lgamma(a + b)
	return x + y - z
}

// silentMost is the fit of a class that does not show where it need not.
var silentMost = math.Log(1 + unheard)

// Bound is what the score of a cause can be at most: where nothing that is silent
// could have spoken. It asks nothing of the parts that are silent, of which a cause
// may have thousands, so that neither Parts nor Mute need be counted for it.
func (f *Fits) Bound(h *Cause, pick func(*Evidence) bool) float64 {
	total, at := h.start(), 0
	silent := func(to int) {
		for ; at < to && h.Silent != nil; at++ {
			if h.Silent[at] != 0 {
				total += silentMost
			}
		}
	}
	for _, c := range h.Asked() {
		silent(c)
		at = c + 1
		cl, m := &h.Classes[c], &h.Fault.Classes[c]
		if m.Derived || cl.Parts == 0 && len(cl.Evidence) == 0 {
			continue
		}
		k, w := cl.sum(pick)
		total += f.Most(m, k, w)
	}
	silent(len(h.Classes))
	return total
}

// quiet adds to a sum what the silent classes in a range are worth, one by one: added in
// another order they would break ties.
func (h *Cause) quiet(total float64, from, to int) float64 {
	if h.Silent != nil {
		for _, v := range h.Silent[from:to] {
			total += v
		}
	}
	return total
}

// Asked returns the classes to ask after.
func (h *Cause) Asked() []int {
	if h.Live != nil {
		return h.Live
	}
	if n := len(h.Classes); n <= len(numbers) {
		return numbers[:n]
	}
	all := make([]int, len(h.Classes))
	for c := range all {
		all[c] = c
	}
	return all
}

// numbers are those of the classes of a fault.
var numbers = func() (out [256]int) {
	for c := range out {
		out[c] = c
	}
	return out
}()

// Most is what k signs of a class that are worth w can add to a score at most.
func (f *Fits) Most(m *propagation.Class, k int, w float64) float64 {
	switch {
	case k == 0 && m.Learned:
		return 0
	case k == 0:
		return silentMost
	}
	return max(silentMost, f.Fit(m, k, 0, 0)+w)
}

func (h *Cause) start() float64 { return h.Prior + h.kept() }

func (h *Cause) kept() float64 {
	if h.Kept != 0 {
		return KeepBonus
	}
	return 0
}

func (cl *Class) sum(pick func(*Evidence) bool) (k int, w float64) {
	for i := range cl.Evidence {
		if ev := &cl.Evidence[i]; ev.Said && (pick == nil || pick(ev)) {
			k++
			w += ev.Gain
		}
	}
	return k, w
}

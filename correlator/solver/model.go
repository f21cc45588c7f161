package solver

import (
	"cmp"
	"math"
	"slices"
	"time"

	"auspex/schemas/faults/propagation"
)

// powerless says whether a device has no power left once also is lost beside all
// suppliers that are blamed.
func (s *cover) powerless(device, also int32) bool {
	if len(s.lost) == 0 && also == None {
		return false
	}
	return s.Supply.Dead(device, func(p int32) bool {
		s.work++
		return p == also || s.gone(p) != nil
	})
}

// fit is the likelihood of k signs that are worth w in class c of h.
func (s *cover) fit(h int32, c, k int, w float64) float64 { return s.fitBeside(h, c, k, 0, w) }

// fitBeside is fit where so many parts more show the class, and another cause owns that:
// they are not silent.
func (s *cover) fitBeside(h int32, c, k, others int, w float64) float64 {
	x := &s.Causes[h]
	cl, m := &x.Classes[c], &x.Fault.Classes[c]
	mute := cl.Mute + others
	for _, d := range cl.Dark {
		also := None
		if x.Fault.Together > 0 {
			also = x.Node
		}
		if s.powerless(d.Device, also) && !s.lasted(d.Device, x.Onset+m.Soon, h) {
			mute += d.Parts
		}
	}
	late := uint8(0)
	if cl.Parts > mute+k {
		late = Late(s.Now-x.Onset, m.Soon)
	}
	return s.fits.FitIn(m, cl.Places, k, mute, late) + w
}

// lasted says whether a device that has no power left had some until a time: another supplier than h
// was lost later. What was due by then it could have said.
func (s *cover) lasted(device int32, until time.Duration, h int32) bool {
	return slices.ContainsFunc(s.Supply.Of(device), func(p int32) bool {
		o := s.gone(p)
		return o != nil && o.cause != h && o.Timed && o.Onset > until
	})
}

// odds is how surely an effect brings parts about which nothing is known into its state.
type odds struct{ share, shows, c float64 }

// oddsOf are those of an effect on parts that nothing else feeds, or on those that something does.
func oddsOf(f *propagation.Effect, alone bool) odds {
	if alone {
		return odds{f.Share, f.Shows, concentration}
	}
	return odds{f.SharedShare, f.SharedShows, sharing}
}

// brought is the log-likelihood that k parts came into the state and rest did not, as in Fit; a
// state shows in several ways, and is taken to be missed half as often as a sign.
func (o odds) brought(k int, rest float64) float64 {
	a, b := betaOf(o.share, o.c)
	p := math.Exp(logBeta(float64(k)+a, rest+b) - logBeta(a, b))
	if k == 0 {
		return math.Log(o.shows*p + 1 - o.shows + unheard/2)
	}
	return math.Log(o.shows*p + tiny)
}

// none is the log-likelihood that n parts did not, whatever is heard or missed.
func (o odds) none(n int) float64 {
	a, b := betaOf(o.share, o.c)
	return logBeta(a, float64(n)+b) - logBeta(a, b)
}

// likely is how probable it is that one more part comes to be in a state: the mean of
// the share, as in Fit, given which of the parts show it.
func (s *cover) likely(f *propagation.Effect, in []Part, alone bool) float64 {
	o, n, k := oddsOf(f, alone), 0.0, 0.0
	for i := range in {
		if p := &in[i]; p.ready(f, nil) {
			if n++; p.Shows {
				k++
			}
		}
	}
	s.work += len(in)
	p := o.share * o.shows
	if k > 0 {
		a, b := betaOf(o.share, o.c)
		p = (a + k) / (a + b + n)
	}
	return min(p, certainty)
}

// before says whether one of the effects of h could bring about a state when it began.
func (h *Cause) before(state *Cause, effect int) bool {
	f := &h.Fault.Effects[effect]
	if effect < len(h.Over) && h.Over[effect] != 0 && state.Onset > h.Over[effect] {
		if p := find(h.Effects[effect], state.Node); p == nil || !p.ready(f, state) {
			return false
		}
	}
	from, to := h.Onset, h.Latest
	if at := h.began(state); at != h.Onset && len(f.After) == 0 {
		from, to = at, at
	}
	return state.Onset >= from-foldEarly && state.Onset <= to+f.Delay+foldLate
}

// began is when a cause began, or began again, of the making of which a state may be.
func (h *Cause) began(state *Cause) time.Duration {
	if h.Again != 0 && state.Onset >= h.Again-foldEarly {
		return h.Again
	}
	return h.Onset
}

// find returns the part with a node, or nil.
func find(in []Part, node int32) *Part {
	if i, ok := slices.BinarySearchFunc(in, node, func(p Part, n int32) int { return cmp.Compare(p.Node, n) }); ok {
		return &in[i]
	}
	return nil
}

// ready says whether a part has shown what comes before the state: when h, which is the
// state, began, or with nil at any time.
func (p *Part) ready(f *propagation.Effect, h *Cause) bool {
	if len(f.After) == 0 || h == nil && p.Until > 0 {
		return true
	}
	return h != nil && p.Since-foldEarly <= h.Onset && h.Onset <= p.Until
}

// unready is what it costs that a part went into a state and was not heard to show what
// comes before: the chance that all of these signs were missed.
func (h *Cause) unready(f *propagation.Effect) float64 {
	missed := 1.0
	for c := range h.Fault.Classes {
		if cl := &h.Fault.Classes[c]; !cl.Derived && !cl.Learned && slices.Contains(f.After, cl.Sign) {
			missed *= 1 - cl.Shows*cl.Share
		}
	}
	return -math.Log(max(missed, unheard))
}

// hanging counts the parts that an effect of g could bring into its state. It is asked for
// again and again while it stays.
func (s *cover) hanging(g int32, effect int) *hangs {
	x := &s.Causes[g]
	if s.state[g].hangs == 0 {
		s.state[g].hangs = len(s.hangs) + 1
		for range x.Effects {
			s.hangs = append(s.hangs, hangs{})
		}
	}
	out := &s.hangs[s.state[g].hangs-1+effect]
	if out.when == s.blames+1 {
		return out
	}
	*out = hangs{when: s.blames + 1}
	f, in := &x.Fault.Effects[effect], x.Effects[effect]
	s.work += len(in)
	for i := range in {
		if p := &in[i]; p.ready(f, nil) {
			which := 0
			if f.SharedShows == 0 || s.without(p.Device, g) {
				which = 1
			}
			if out.n[which]++; p.Shows {
				out.show[which]++
			}
		}
	}
	return out
}

// surelyShows is how surely a sign shows on a device that g takes into a state which shows itself by it, and that nothing
// holds up; 0: g takes it into none.
func (s *cover) surelyShows(g int32, kind int, device int32) float64 {
	for i := range s.Causes[g].Fault.Effects {
		f := &s.Causes[g].Fault.Effects[i]
		if f.State == s.Causes[g].Fault.Is || f.SharedShows == 0 {
			continue
		}
		if k := slices.Index(s.showing[f.State], kind); k >= 0 && s.without(device, g) {
			return s.sure[f.State][k]
		}
	}
	return 0
}

// without says whether a device has no power once g is lost: the last of its suppliers
// takes it along.
func (s *cover) without(device, g int32) bool {
	x := &s.Causes[g]
	if device == None || !s.powerless(device, x.Node) {
		return false
	}
	for _, p := range s.Supply.Of(device) {
		if o := s.gone(p); o != nil && o.cause != g && x.Timed && o.Timed && o.Onset > x.Onset {
			return false
		}
	}
	return true
}

// together is how much likelier a fault is since an equal that stands in for it has it
// too: the share Together of failures takes both, so given one the log-odds of the
// other are about log(Together) in place of its prior.
func (s *cover) together(g int32) float64 {
	x := &s.Causes[g]
	for _, o := range s.lost {
		if o.Node != x.Node && o.Fault == x.Fault && o.Parent == x.Parent {
			return max(0, math.Log(x.Fault.Together)-x.Prior)
		}
	}
	return 0
}

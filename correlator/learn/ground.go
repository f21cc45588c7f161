package learn

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"math"
	"slices"
	"strings"
	"time"

	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

const (
	mostCauses   = 5  // of a proposal that are listed
	mostExamples = 10 // of a cause, and effects of an example
)

// proposalID names a pair of kinds, the same whenever it is found.
func proposalID(cause, effect string) string {
	sum := sha256.Sum256([]byte(cause + "\x00" + effect))
	return "e-" + hex.EncodeToString(sum[:4])
}

// effect is a kind of event that follows another, by the parts that showed it.
type effect struct {
	sign      int // -1: none of the model
	typ, code string
	kind      string // of the parts
	at        map[string][]float64
	id        map[string][]string
	onsets    int // what comes within the span of the edge on one part is one
}

// effectOf gathers the events of a kind: those of the sign and of the kind of part that most are.
func (s *Site) effectOf(kind int32, within float64) *effect {
	type key struct {
		sign int
		kind string
	}
	count, all := map[key]int{}, map[key][]int{}
	var best key
	for i, e := range s.events {
		if e.Kind != kind {
			continue
		}
		k := key{s.heard[i].sign, s.ways.Kind(s.heard[i].part)}
		all[k] = append(all[k], i)
		if count[k]++; count[k] > count[best] {
			best = k
		}
	}
	out := &effect{sign: best.sign, kind: best.kind, at: map[string][]float64{}, id: map[string][]string{}}
	slices.SortStableFunc(all[best], func(a, b int) int { return cmp.Compare(s.events[a].At, s.events[b].At) })
	for _, i := range all[best] {
		h := &s.heard[i]
		out.typ, out.code = h.typ, h.code
		if l := out.at[h.part]; len(l) == 0 || s.events[i].At-l[len(l)-1] > within {
			out.onsets++
		}
		out.at[h.part] = append(out.at[h.part], s.events[i].At)
		out.id[h.part] = append(out.id[h.part], h.id)
	}
	return out
}

// after returns the first event of a part after t and within a span.
func (e *effect) after(part string, t, within float64) (lag float64, id string, ok bool) {
	l := e.at[part]
	k, same := slices.BinarySearch(l, t)
	for same && k < len(l) && l[k] == t { // what comes at the same instant says nothing about which was first
		k++
	}
	if k == len(l) || l[k]-t > within {
		return 0, "", false
	}
	return l[k] - t, e.id[part][k], true
}

// occasion is a time at which a part may have had a fault.
type occasion struct {
	part, id string
	at       float64
}

// occasions are those of a fault of which events of a kind are signs.
func (s *Site) occasions(f *propagation.Fault, kind int32, within float64) (out []occasion) {
	var order []int
	for i, e := range s.events {
		if e.Kind == kind && s.heard[i].sign >= 0 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(s.events[a].At, s.events[b].At) })
	last := map[string]float64{}
	for _, i := range order {
		for c := range f.Classes {
			cl := &f.Classes[c]
			if cl.Sign != s.heard[i].sign || cl.Later || cl.Derived || cl.Jobs {
				continue
			}
			for _, part := range s.ways.Suspects(s.heard[i].part, cl.Path, f.Kinds) {
				at := s.events[i].At
				if l, ok := last[part]; !ok || at-l > within {
					last[part] = at
					out = append(out, occasion{part, s.heard[i].id, at})
				}
			}
		}
	}
	return out
}

// ground says which faults of the model the cause of an edge could be, and by which way
// through the inventory its effect comes: of all ways that records could write, the one
// that tells the parts that show the effect best from those that do not.
func (s *Site) ground(p *Proposal, e Edge) {
	p.Causes = []schemas.EdgeCause{}
	within := kernelSpan * e.Lag
	span := s.last.Sub(s.origin).Seconds()
	if within <= 0 || span <= 0 {
		return
	}
	v := s.effectOf(e.Effect, within)
	chance := 1 - math.Exp(-float64(v.onsets)*within/(span*float64(s.ways.Count(v.kind))))
	chance = max(1e-6, min(0.5, chance))
	for i := range s.model.Faults {
		f := &s.model.Faults[i]
		if f.Harmless || f.Window != propagation.NoWindow {
			continue
		}
		occasions := s.occasions(f, e.Cause, within)
		if len(occasions) < leastTimes {
			continue
		}
		var best *schemas.EdgeCause
		for _, way := range waysBetween(f.Kinds, v.kind) {
			c := s.count(f, way, v, occasions, chance, within)
			if c != nil && (best == nil || c.Gain > best.Gain*(1+1e-9)) {
				best = c
			}
		}
		if best == nil {
			continue
		}
		if p.Known == "" && s.knows(f, v, occasions, within) {
			p.Known = f.Name
		}
		p.Causes = append(p.Causes, *best)
	}
	slices.SortStableFunc(p.Causes, func(a, b schemas.EdgeCause) int { return cmp.Compare(b.Gain, a.Gain) })
	p.Causes = p.Causes[:min(len(p.Causes), mostCauses)]
}

// count counts what followed over a way; nil where that is no more than chance.
func (s *Site) count(
	f *propagation.Fault, way []propagation.Step, v *effect, occasions []occasion, chance, within float64,
) *schemas.EdgeCause {
	c := &schemas.EdgeCause{
		Fault: f.Name, Kinds: f.Kinds, Type: v.typ, Code: v.code, Way: propagation.WayString(way), Chance: chance,
		Examples: []schemas.EdgeExample{},
	}
	if v.sign >= 0 {
		c.Sign = s.model.Signs[v.sign].Name
	}
	parts, shown := 0, 0
	for _, o := range occasions {
		at := s.origin.Add(time.Duration(o.at * float64(time.Second)))
		reached := s.ways.Reach(o.part, way, at)
		if len(reached) == 0 {
			continue
		}
		x := schemas.EdgeExample{Time: at, Part: o.part, Event: o.id, Of: len(reached), Effects: []string{}}
		for _, part := range reached {
			if lag, id, ok := v.after(part, o.at, within); ok {
				x.Shown++
				x.LagS += lag
				if len(x.Effects) < mostExamples {
					x.Effects = append(x.Effects, id)
				}
			}
		}
		c.Cases++
		parts, shown = parts+x.Of, shown+x.Shown
		if x.Shown == 0 {
			continue
		}
		x.LagS /= float64(x.Shown)
		c.Shown++
		c.SharesSum += float64(x.Shown) / float64(x.Of)
		c.LagsSumS += x.LagS
		c.Examples = append(c.Examples, x)
	}
	if c.Shown < leastTimes {
		return nil
	}
	c.Examples = c.Examples[max(0, len(c.Examples)-mostExamples):]
	share := float64(shown) / float64(parts)
	c.Lift = share / chance
	c.Gain = float64(parts) * divergence(share, chance)
	if share <= chance || c.Gain < leastGain {
		return nil
	}
	edge := countsOf(c).edge()
	c.Shows, c.Share, c.LagS = edge.Shows, edge.Share, edge.Soon.Seconds()
	return c
}

// leastGain is what a way must tell the parts that show an effect from the others by, in
// nats: a factor of a thousand for the hundred or so ways that are tried.
const leastGain = 7.0

// divergence is what one observation says for p against q, in nats, if p is true
// (Kullback and Leibler, Annals of Mathematical Statistics 22, 1951).
func divergence(p, q float64) (d float64) {
	if p > 0 {
		d += p * math.Log(p/q)
	}
	if p < 1 {
		d += (1 - p) * math.Log((1-p)/(1-q))
	}
	return d
}

// knows says whether the record of a fault has most of what followed already.
func (s *Site) knows(f *propagation.Fault, v *effect, occasions []occasion, within float64) bool {
	if v.sign < 0 {
		return false
	}
	n, had := 0, 0
	for _, o := range occasions {
		at := s.origin.Add(time.Duration(o.at * float64(time.Second)))
		mine := map[string]bool{}
		for c := range f.Classes {
			if cl := &f.Classes[c]; cl.Sign == v.sign && !cl.Learned {
				for _, part := range s.ways.Reach(o.part, cl.Path, at) {
					mine[part] = true
				}
			}
		}
		for part := range mine {
			if _, _, ok := v.after(part, o.at, within); ok {
				had++
				break
			}
		}
		n++
	}
	return n > 0 && had >= leastTimes && 2*had >= n
}

// waysBetween lists the ways that lead from parts of some kinds to those of another: to
// the part itself, within its device, to what it supplies and what supplies it, over the
// network and to its jobs. The shortest come first.
func waysBetween(from []string, to string) (out [][]propagation.Step) {
	if to == "" {
		return nil
	}
	var ways []string
	if slices.Contains(from, to) {
		ways = append(ways, "")
	}
	if to == propagation.KindWorkload {
		ways = append(ways, "jobs:"+to, "up:server > jobs:"+to, "feeds:server > jobs:"+to, "down:server > jobs:"+to)
	}
	for _, op := range []string{"up", "down", "powers", "cools", "feeds", "powered", "cooled", "fed", "net", "nvlink", "pcie"} {
		ways = append(ways, op+":"+to)
	}
	for _, d := range []string{schemas.KindServer, schemas.KindSwitch} {
		for _, op := range []string{"powered", "cooled", "fed", "net", "nvlink"} {
			ways = append(ways, "up:"+d+" > "+op+":"+to)
		}
		ends := []string{""}
		if d != to {
			ends = []string{" > down:" + to}
			ways = append(ways, "up:"+d+" > down:"+to)
		}
		for _, end := range ends {
			for _, op := range []string{"powers", "cools", "feeds", "powers:psu > up", "powers:rack > down"} {
				if op != "feeds" || end != "" {
					ways = append(ways, op+":"+d+end)
				}
			}
			for _, port := range []string{schemas.KindPort, schemas.KindNIC} {
				ways = append(
					ways, "net:"+port+" > up:"+d+end, "down:port > net:"+port+" > up:"+d+end, "up:"+d+" > down:"+port+" > net:port > up:switch"+end,
				)
			}
		}
	}
	for _, w := range ways {
		steps, err := propagation.ParseWay(w)
		if err == nil && strings.Contains(w, ":") || w == "" {
			out = append(out, steps)
		}
	}
	slices.SortStableFunc(out, func(a, b []propagation.Step) int { return cmp.Compare(len(a), len(b)) })
	return out
}

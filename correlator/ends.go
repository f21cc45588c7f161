package correlator

import (
	"hash/maphash"
	"math"
	"time"

	"auspex/schemas"
)

// ends counts all-clears, and those of what was never heard to begin: where raises are lost on the way,
// as many all-clears are, and what seems to last may have ended. It counts whatever is said, also
// what speaks for nothing.
type ends struct {
	heard, widowed int
	of             map[uint64]condition // by resource, source and type
	seed           maphash.Seed
}

// condition is what was last said of one.
type condition struct {
	ended   bool
	widowed bool  // it ended, and was not heard to begin
	at      int64 // when it ended, by the clock of who said so
}

const (
	endsLeast = 20      // all-clears that are taken to have been heard with what they end, beside those that were
	endsMost  = 1 << 17 // conditions that are remembered
)

// lost is the share of what is sent that does not arrive.
func (n *ends) lost() float64 { return float64(n.widowed) / float64(n.heard+endsLeast) }

func (n *ends) note(ev *schemas.Event, obs time.Time) {
	if ev.State != schemas.StateRaised && ev.State != schemas.StateCleared {
		return
	}
	if n.of == nil {
		n.of, n.seed = map[uint64]condition{}, maphash.MakeSeed()
	}
	var h maphash.Hash
	h.SetSeed(n.seed)
	for _, part := range [3]string{ev.Resource, ev.Source, ev.Type} {
		_, _ = h.WriteString(part)
		_ = h.WriteByte(0)
	}
	k, at := h.Sum64(), nanoseconds(obs)
	if !ev.Time.IsZero() {
		at = nanoseconds(ev.Time)
	}
	c, known := n.of[k]
	if !known && len(n.of) >= endsMost && !n.forget() {
		return
	}
	switch {
	case ev.State == schemas.StateRaised && c.ended && at <= c.at: // the all-clear has overtaken it
		if c.widowed {
			n.widowed--
		}
		c.widowed = false
	case ev.State == schemas.StateRaised:
		c = condition{}
	case !c.ended: // said once more it says nothing
		n.heard++
		if !known {
			n.widowed++
		}
		c = condition{true, !known, at}
	}
	n.of[k] = c
}

// forget drops what has ended. It reports whether there is room then.
func (n *ends) forget() bool {
	for k, c := range n.of {
		if c.ended {
			delete(n.of, k)
		}
	}
	return len(n.of) < endsMost
}

// outlived is by how much less a sign is worth, since what lasts by all that was heard may have ended: its
// all-clear was lost. Each source that raised it would have told; that it was raised again as it lasted proves it.
func (e *intake) outlived(s *sign) float64 {
	lost := e.ends.lost()
	if lost == 0 || !s.up || s.kind >= len(e.model.Signs) {
		return 0
	}
	m := &e.model.Signs[s.kind]
	long, brief := m.Leak, m.Young
	if e.lasting(s) && !s.lasted {
		if long = m.Rare; m.Hold == 0 {
			brief = m.Leak
		}
	} else if m.Hold == 0 || e.leak(s) != m.Leak {
		return 0
	}
	for i := range s.facts {
		if f := &s.facts[i]; f.state == raised && f.at.Sub(s.raisedAt) >= max(m.Hold, againApart) {
			return 0
		}
	}
	first := true
	for i := range s.spells {
		if s.spells[i].open {
			if !first {
				brief *= lost
			}
			first = false
		}
	}
	return math.Log1p(lost * brief / long)
}

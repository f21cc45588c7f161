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
	begun          map[uint32]struct{} // conditions that were raised, by resource, source and type
	ended          map[uint32]end      // those that were cleared since
	seed           maphash.Seed
}

// end is when a condition ended, by the clock of who said so.
type end struct {
	at      stamp
	widowed bool // it was not heard to begin
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
	if n.begun == nil {
		n.begun, n.ended, n.seed = map[uint32]struct{}{}, map[uint32]end{}, maphash.MakeSeed()
	}
	var h maphash.Hash
	h.SetSeed(n.seed)
	for _, part := range [3]string{ev.Resource, ev.Source, ev.Type} {
		_, _ = h.WriteString(part)
		_ = h.WriteByte(0)
	}
	k, at := uint32(h.Sum64()), stampOf(obs) //nolint:gosec // a hash: of so many conditions hardly two have the same
	if !ev.Time.IsZero() {
		at = stampOf(ev.Time)
	}
	_, began := n.begun[k]
	last, ended := n.ended[k]
	if !began && !ended && len(n.begun)+len(n.ended) >= endsMost {
		clear(n.ended)
		if len(n.begun) >= endsMost {
			return
		}
	}
	switch {
	case ev.State == schemas.StateRaised && ended && at <= last.at: // the all-clear has overtaken it
		if last.widowed {
			n.widowed--
			n.ended[k] = end{at: last.at}
		}
	case ev.State == schemas.StateRaised:
		delete(n.ended, k)
		n.begun[k] = struct{}{}
	case !ended: // said once more it says nothing
		n.heard++
		if !began {
			n.widowed++
		}
		delete(n.begun, k)
		n.ended[k] = end{at, !began}
	}
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

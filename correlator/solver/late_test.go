package solver

import (
	"math/rand/v2"
	"testing"
	"time"

	"auspex/schemas/faults/propagation"
)

// What is due stays the same for as long as LateUntil says, and no longer.
func TestLatenessStaysUntilItIsSaidToChange(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1)) //nolint:gosec // no secret
	for range 100_000 {
		soon := time.Duration(rng.Int64N(int64(3 * time.Hour)))
		since := time.Duration(rng.Int64N(6*int64(soon+time.Second))) - time.Minute
		until, now := LateUntil(since, soon), Late(since, soon)
		switch {
		case until < since:
			t.Fatalf("of what is due %v after, %v later: until %v", soon, since, until)
		case now == LateSteps:
			if until != 1<<63-1 {
				t.Fatalf("all is due, and only until %v", until)
			}
		case until > since && (Late(until-1, soon) != now || Late(since+time.Duration(rng.Int64N(int64(until-since))), soon) != now):
			t.Fatalf("mean %v: %d after %v, and something else before %v", soon, now, since, until)
		case Late(until+2*time.Microsecond, soon) == now:
			t.Fatalf("mean %v: still %d after %v", soon, now, until)
		}
	}
}

// What two suppliers took down comes back with the first of them that does: that the other is still out says nothing. One
// that was lost only later did not take it.
func TestAStateEndsWithEitherOfItsSuppliers(t *testing.T) {
	const device, feedA, feedB, feedC = 1, 2, 3, 4
	feed := &propagation.Fault{Together: 0.1}
	for _, c := range []struct {
		name         string
		onset        time.Duration // of the other supplier
		back         time.Duration // of the other supplier; 0: it is still out
		likely, only bool          // likely: it agrees; only: no other supplier is blamed
	}{
		{"the other came back just before", 0, 1000 * time.Second, true, false},
		{"the other is out too", 0, 0, false, false},
		{"the other was lost after it", 1200 * time.Second, 1000 * time.Second, false, false},
		{"there is no other", 0, 0, false, true},
	} {
		g := &Group{Now: 3000 * time.Second, Causes: []Cause{
			{Fault: feed, Node: feedA, Timed: true, Onset: 40 * time.Second, Out: true},
			{Fault: &propagation.Fault{Is: "down"}, Node: device, Device: device, Timed: true, Onset: 40 * time.Second, Back: 1050 * time.Second},
		}}
		g.Supply.Note(device, []int32{feedA, feedB, feedC})
		if !c.only {
			g.Lost = []Supplier{{Node: feedB, Fault: feed, Timed: true, Onset: c.onset, Back: c.back, Out: c.back == 0}}
		}
		m := NewCover(&propagation.Model{}, &Fits{})
		s := m.run(g)
		s.blame(0, true)
		if got := s.returned(1, 0); (got > 0.5) != c.likely {
			t.Errorf("%s: %.4f", c.name, got)
		}
	}
}

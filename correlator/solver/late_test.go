package solver

import (
	"math/rand/v2"
	"testing"
	"time"
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

package collectors

import (
	"math/rand/v2"
	"time"
)

// backoff returns a random wait in [0, min(limit, base·2^attempt)]: full jitter,
// so that what failed together does not come back together.
func backoff(attempt int, base, limit time.Duration) time.Duration {
	d := limit
	if attempt < 30 {
		d = min(limit, base<<attempt)
	}
	if d <= 0 {
		return 0
	}
	return rand.N(d) + 1
}

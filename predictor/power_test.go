package predictor

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"auspex/internal/racetest"
	"auspex/schemas"
)

// A server whose power goes and comes back lets its fans run down and up again, each
// read at a moment of its own: a step to zero and back is no wear, whatever limit is
// followed, how often and how long.
func TestAPowerCycleIsNoWear(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, limit := range []limitsOf{nil, {schemas.LowerCritical: 6000}, {schemas.LowerCritical: 480}} {
		for seed := range uint64(60) {
			t.Run(fmt.Sprint(limit, seed), func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, 11))
				b := newBench(t, nil)
				every := []time.Duration{time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second}[r.IntN(5)]
				speed := 8500 + 4000*r.Float64()
				after := speed * (0.85 + 0.3*r.Float64()) // within the limit
				tau := 0.5 + 8*r.Float64()                // seconds
				off := 10*time.Minute + time.Duration(r.Int64N(int64(every)))
				on := off + time.Duration((2+60*r.Float64())*float64(time.Second))
				for at := time.Duration(0); at < 30*time.Minute; at += every {
					rpm := make([]float64, 8)
					for i := range rpm {
						s := (at + time.Duration(r.Int64N(int64(time.Second)))).Seconds()
						v := speed
						if s > off.Seconds() {
							v = speed * math.Exp(-(s-off.Seconds())/tau)
						}
						if s > on.Seconds() {
							from := speed * math.Exp(-(on-off).Seconds()/tau)
							v = after + (from-after)*math.Exp(-(s-on.Seconds())/tau)
						}
						if rpm[i] = v + 18*r.NormFloat64(); v < 50 {
							rpm[i] = 0
						}
					}
					batch := fans("s", "redfish", at, rpm...)
					if limit != nil {
						for i := range rpm {
							thresholds(batch, fmt.Sprint("fan", i+1), limit)
						}
					}
					b.e.Batch(batch)
				}
				for _, p := range b.e.changed {
					t.Errorf("every %s, off for %s: %s %s: %s", every, on-off, p.Resource, p.State, p.Explanation)
				}
			})
		}
	}
}

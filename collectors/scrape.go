package collectors

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Scrape makes a collector of a function that reads a device once. The readings
// lie on a grid whose phase is that of the device, by the hash of its id, so that a
// fleet is not polled in step, also where another process goes on; each is moved by
// up to jitter × every (0 to 1). A reading that takes longer than the interval
// swallows the ticks that it missed; they are counted. An error of read ends Run,
// so that the runner sees the miss; the next Run reads at once.
func Scrape(every time.Duration, jitter float64, read func(ctx context.Context, out Emitter) error) Collector {
	return ScrapeOnBell(every, jitter, nil, read)
}

// ringGap is the least time between two readings that a bell brings about.
const ringGap = time.Second

// ScrapeOnBell is [Scrape] of a device that rings when there is something to read: it is read then too, and not more often than once a
// second. Nobody waits who rings: bell has room for one, and more say no more.
func ScrapeOnBell(every time.Duration, jitter float64, bell <-chan struct{}, read func(ctx context.Context, out Emitter) error) Collector {
	return &scraper{every: every, jitter: jitter, bell: bell, read: read}
}

type scraper struct {
	every   time.Duration
	jitter  float64
	bell    <-chan struct{}
	read    func(ctx context.Context, out Emitter) error
	started bool
}

// Run implements [Collector].
func (s *scraper) Run(ctx context.Context, out Emitter) error {
	var wait time.Duration
	if !s.started {
		s.started = true
		if ctx.Value(atOnce{}) == nil {
			wait = due(ctx, time.Now(), max(s.every, 1))
		}
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	next := time.Now().Add(wait)
	due, last := next, time.Time{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.bell:
			timer.Reset(min(max(0, time.Until(last.Add(ringGap))), time.Until(due)))
			continue
		case <-timer.C:
		}
		last = time.Now()
		if err := s.read(ctx, out); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		Contact(out)
		if !last.Before(next) {
			next = next.Add(s.every)
			if late := time.Since(next); late > 0 {
				n := late/s.every + 1
				next = next.Add(n * s.every)
				Skipped(out, int(n))
			}
			due = next.Add(s.shift())
		}
		timer.Reset(time.Until(due))
	}
}

// phase is where in its interval a device is read, of [0, 1).
type phase struct{}

func phaseOf(collector, device string) float64 {
	return float64(xxhash.Sum64String(collector+"/"+device)>>11) / (1 << 53)
}

// due is how long it is until the grid of a device: any moment for one without a phase.
func due(ctx context.Context, now time.Time, every time.Duration) time.Duration {
	at, ok := ctx.Value(phase{}).(float64)
	if !ok {
		return rand.N(every)
	}
	since := time.Duration(now.UnixNano() % int64(every))
	return (time.Duration(at*float64(every)) - since + every) % every
}

func (s *scraper) shift() time.Duration {
	span := time.Duration(s.jitter * float64(s.every))
	if span <= 0 {
		return 0
	}
	return rand.N(span)
}

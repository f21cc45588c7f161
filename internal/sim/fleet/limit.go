package fleet

import (
	"cmp"
	"fmt"
	"time"

	"auspex/internal/sim/device"
	"auspex/internal/sim/ledger"
)

// limit is what a server may draw, as its controller was told.
type limit struct {
	watts  float64
	active bool
	none   bool // the board has no such thing
}

// leastGPUWatts is the lowest power that a board can hold a busy GPU at.
const leastGPUWatts = 100

// PowerLimit implements device.PowerLimiter.
func (b *bmc) PowerLimit() (watts float64, active, ok bool) {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	return b.s.limit.watts, b.s.limit.active, !b.s.limit.none
}

// SetPowerLimit implements device.PowerLimiter.
func (b *bmc) SetPowerLimit(watts float64, active bool, via, requestID string) error {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	switch {
	case b.s.limit.none:
		return fmt.Errorf("a power limit: %w", device.ErrUnsupported)
	case active && watts < device.LeastPowerLimit:
		return fmt.Errorf("a power limit of %g W: %w", watts, device.ErrUnsupported)
	}
	code := "none"
	if active {
		code = fmt.Sprintf("%.0f W", watts)
	}
	b.note(ledger.KindLimit, via, code, requestID)
	if !b.s.bmc.IgnoreSets {
		b.s.limit.watts, b.s.limit.active = watts, active
	}
	return nil
}

// SetLimitless makes a server whose board cannot limit what it draws.
func (f *Fleet) SetLimitless(name string, none bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.server(name)
	if err == nil {
		s.limit.none = none
	}
	return err
}

// share is what each GPU of a server may draw under the limit of the server, by what the rest of it drew a moment ago.
func (s *server) share() (watts float64, limited bool) {
	if !s.limit.active || s.limit.none {
		return 0, false
	}
	rest := s.watts * psuLoss
	for i := range s.gpus {
		rest -= s.gpus[i].watts
	}
	return max(leastGPUWatts, (s.limit.watts*psuLoss-max(0, rest))/float64(len(s.gpus))), true
}

// tripAfter is for how long a feed carries more than it is rated for before its breaker opens, where nobody says. Real ones take minutes to an hour.
const tripAfter = 30 * time.Second

// watch opens the breakers of feeds that carry more than they are rated for.
func (f *Fleet) watchFeeds(d time.Duration) {
	if f.cfg.FeedWatts <= 0 || f.settling {
		return
	}
	for _, rk := range f.racks {
		for _, p := range rk.pdus {
			if p.load() <= f.cfg.FeedWatts || !p.live {
				p.over = 0
				continue
			}
			if p.over += d; p.over >= cmp.Or(f.cfg.FeedTripAfter, tripAfter) {
				p.over = 0
				f.led.Write(ledger.Entry{
					Time: f.now, Kind: ledger.KindTrip, Device: p.name, Value: p.load(), Limit: f.cfg.FeedWatts, Message: "the breaker opened",
				})
				f.feed(p, false)
			}
		}
	}
}

// load is what the servers draw from a feed, in watts.
func (p *pdu) load() (watts float64) {
	for _, s := range p.rack.servers {
		for i := range s.psus {
			if s.feedOf(i) == p.feed {
				watts += s.psus[i].watts
			}
		}
	}
	return watts
}

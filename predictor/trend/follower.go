package trend

import "time"

// quieter is how much less noise, as a share, a series must have under the usual
// load: what drifts along with a fault explains it away and is no driver.
const quieter = 0.8

// proven is how many forecasts under the usual load it takes to trust that load
// when it says what became of a part.
const proven = 8

// Follower follows a series toward one limit, against the other metrics of its
// device, and tells what is worth telling.
type Follower struct {
	series  *Series
	drivers *Drivers
	teller  Teller
	limit   float64
	horizon time.Duration
	crossed bool
	freed   int       // forecasts of late that were those under the usual load
	since   time.Time // from when on every forecast was an alarm
}

// NewFollower returns what follows a series made with cfg toward limit, looking
// horizon ahead, beside k other metrics of its device.
func NewFollower(cfg Config, limit float64, horizon time.Duration, k int) *Follower {
	return &Follower{series: New(cfg), drivers: NewDrivers(cfg, k), limit: limit, horizon: horizon}
}

// Alarmed tells whether a crossing is expected now.
func (f *Follower) Alarmed() bool { return f.teller.Alarmed() }

// Add takes a reading and those of the other metrics at the same time, NaN where
// one is missing. It returns the forecast as it stands now, and whether that
// differs materially from what was told last.
func (f *Follower) Add(at time.Time, v float64, others []float64) (Forecast, bool) {
	f.drivers.Add(at, v, others)
	if !f.series.Add(at, v) {
		return Forecast{}, false
	}
	if f.crossed && f.exchanged() {
		// It was exchanged: what came before says nothing of what is there now.
		f.crossed, f.freed = false, 0
		f.series.Restart()
		f.drivers.Reset()
		return f.teller.Tell(Forecast{At: at.UTC(), Horizon: f.horizon})
	}
	now, ok := f.series.Forecast(f.limit, f.horizon)
	if !ok {
		return now, false
	}
	if now.Crossed {
		f.crossed = true
	} else if by, ok := f.drivers.Forecast(f.limit, f.horizon); ok {
		if by.Noise < quieter*now.Noise {
			now = by
			f.freed = min(f.freed+1, 2*proven)
		} else {
			f.freed = max(f.freed-1, 0)
		}
	}
	// What stands for less than the widest bucket may be part of a daily cycle.
	switch {
	case now.Probability < Alarm:
		f.since = time.Time{}
	case f.since.IsZero():
		f.since = at.Add(-time.Duration(f.series.width))
	}
	if !now.Crossed && !f.teller.Alarmed() && now.Probability >= Alarm && at.Sub(f.since) < time.Duration(f.series.maxWidth) {
		now.Probability = Alarm - 0.01
	}
	return f.teller.Tell(now)
}

// exchanged tells whether readings have come back from beyond the limit, and not
// for want of load alone.
func (f *Follower) exchanged() bool {
	if f.freed >= proven && f.drivers.engaged {
		return f.drivers.rest.fellBack()
	}
	return f.series.within(f.limit)
}

package trend

import (
	"math"
	"time"
)

const (
	// Means and deviations that decide: of 100 readings a mean is known to a tenth of the
	// deviation, of 20 to a quarter, which does for the larger distance to the level at rest.
	heldRows = 100 // readings under control before it is believed
	freeRows = 20  // readings without it
	// Twice lifts, steady, working or ending changes no forecast of the developer set.
	// A controller shows itself by its effect: the load lifts the series by a good part of the
	// way to the limit until the control begins, and hardly moves it from then on.
	lifts  = 0.3      // share of the way to the limit that the load makes up until the control begins
	steady = 0.1      // deviation under control, as a share of what is left to the limit: ten to the limit
	fading = 1. / 500 // weight of a reading among those before: five days at a quarter of an hour

	// Where the controller works: well above its rest, and not yet at its end, beyond which it
	// holds nothing. In between it may be either.
	working = 0.3  // from the floor to the usual
	ending  = 0.05 // from the end to the floor
	outlier = 3    // deviations by which one reading counts at most
)

// hold is what is known of whether a controller holds a series: a metric of the
// same part that answers to the load so that the series does not, as a fan's duty
// holds a temperature. While it can, nothing is seen of wear in the series; once
// it is at its end, the series runs away. So the controller's trend is followed in
// its place, to where the demand on it will be when the series is at its limit.
type hold struct {
	Free, Frees float64 // level of the series while the controller rests, and readings of it, at most as many as count
	Held, Helds float64 // the same while it works
	Dev         float64 // absolute deviation then
}

// learn takes a reading of the series beside one of its controller, both as they
// rise toward their limits; end is the controller's limit.
func (h *hold) learn(x, by, end float64, d *Drivers) {
	floor, usual := d.Low, d.Mean[d.k]
	switch {
	case d.idle(by):
		h.Frees = min(h.Frees+1, 1/fading)
		h.Free += (x - h.Free) / h.Frees
	case by > floor+working*(usual-floor) && by < end-ending*(end-floor):
		h.Helds = min(h.Helds+1, 1/fading)
		e := x - h.Held
		if h.Helds > heldRows/4 { // the control may lag behind the load for a while
			e = min(outlier*h.Dev, max(-outlier*h.Dev, e))
		}
		h.Held += e / h.Helds
		h.Dev += (math.Abs(e) - h.Dev) / h.Helds
	}
}

// holds tells whether the controller holds a series that must not rise above limit.
func (h *hold) holds(limit float64) bool {
	return h.Helds >= heldRows && h.Frees >= freeRows && limit > h.Held &&
		h.Held-h.Free > lifts*(limit-h.Free) && h.Dev < steady*(limit-h.Held)
}

// Beside tells the follower of another one of the same part, which may be its
// controller. Their readings are taken in turn.
func (f *Follower) Beside(other *Follower) {
	if other.drivers == nil {
		return
	}
	f.others = append(f.others, other)
	if len(f.holds) < len(f.others) {
		f.holds = append(f.holds, hold{})
	}
}

func (f *Follower) sign() float64 {
	if f.target.Below {
		return -1
	}
	return 1
}

// watch learns whether others hold the series.
func (f *Follower) watch(x float64) {
	for i, o := range f.others {
		if o.drivers.engaged() && !o.standing.Crossed {
			f.holds[i].learn(x*f.sign(), o.Now*o.sign(), o.bar()*o.sign(), o.drivers)
		}
	}
}

// unheld is when a series that is held comes to its limit.
func (f *Follower) unheld(limit float64, horizon time.Duration) (Forecast, bool) {
	limit *= f.sign()
	for i, o := range f.others {
		h := &f.holds[i]
		if !o.drivers.engaged() || !h.holds(limit) {
			continue
		}
		// The demand on the controller grows with how far it keeps the series down.
		floor := o.drivers.Low
		demand := floor + (o.bar()*o.sign()-floor)*(limit-h.Free)/(h.Held-h.Free)
		f.computed++
		if by, ok := o.drivers.Forecast(demand*o.sign(), horizon); ok {
			by.Level, by.Slope, by.Noise = h.Held*f.sign(), 0, h.Dev
			return by, true
		}
	}
	return Forecast{}, false
}

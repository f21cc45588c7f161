package trend

import (
	"math"
	"time"
)

const (
	// quieter is how much less noise, as a share, a series must have under the usual
	// load: what drifts along with a fault explains it away and is no driver. It is below one by
	// two errors of a deviation that is taken from a full summary, 2/sqrt(2*64) = .18.
	quieter = 0.8
	// proven is how many forecasts under the usual load it takes to trust that load
	// when it says what became of a part: two days of the slow summary.
	proven = 8

	// slowest and quickest are the widest buckets of the two summaries: sixteen days
	// of slow wear, and half an hour of what fails fast.
	slowest  = 6 * time.Hour
	quickest = 30 * time.Second

	// Readings err alone more often than in a row. What is claimed grows with what it takes back:
	// a forecast is revised with the next one, a crossing ends the life of a part, and that it is
	// another part, or was repaired, voids all that was read.
	confirm = 2  // quick forecasts in a row that make an alarm
	beyond  = 3  // readings in a row beyond the limit that are a crossing
	back    = 5  // readings in a row within the limit that make it another life
	settled = 12 // readings in a row by which a series has come back

	margin = 0.01 // how far within the limit, as a share of it: the accuracy of good sensors

	turned = 1.5  // times faster or slower than usual: more than the load does between most readings
	level  = 0.1  // share by which readings of one pace differ
	paced  = 5    // readings that make a pace the usual one
	smooth = 0.3  // weight of the newest median of the peers: a few polls even out when each fan was read
	whole  = 0.98 // share of the way to where the alarm began that counts as all of it
	much   = 0.05 // share of that way that a series must have gone back, more than noise does
)

// Target says toward which limit a series is followed.
type Target struct {
	Limit      float64
	Share      bool          // the limit is a share of what like parts read
	Below      bool          // the limit is crossed downwards
	Horizon    time.Duration // how far ahead a crossing counts
	MinHistory time.Duration // how long a series is watched before anything is said of it
	Drivers    int           // how many other metrics of its part are read with it
}

// Reading is a value of a series and what was read with it.
type Reading struct {
	At time.Time
	V  float64
	// Peers, if not 0, is what like parts read that share what drives the metric: the
	// series is followed as a share of it.
	Peers float64
	// Others are the readings of the other metrics, NaN where one is missing.
	Others []float64
}

// Change is what a reading changes of what is known of a series.
type Change int

// What a reading may change.
const (
	Same     Change = iota // nothing was computed
	Stands                 // what was told stands
	Material               // the forecast differs materially from what was told last
	CameTrue               // the limit was crossed
	Averted                // no crossing is expected any more: the series has come back
	Expired                // no crossing is expected any more
)

// Follower follows a series toward its limit, over minutes and over weeks, and
// under the usual load where other metrics of the part explain the series. Its
// memory is bounded: 2 KB, 5 KB where there are drivers. It must not be used by
// two goroutines at once.
type Follower struct {
	target      *Target
	limit       float64
	share       bool // the limit is a share of what like parts read
	slow, quick Series
	drivers     *Drivers // nil: no other metrics are read
	others      []*Follower
	holds       []hold // of each of the others
	reporter    Reporter
	long        Forecast // the newest of the slow summary
	standing
	computed int
	pace     float64 // of the peers, since it left Unit; 0 is not
	paced    uint8   // readings in a row at that pace
}

// standing is what a state holds beside the summaries.
type standing struct {
	Last        int64   // time of the newest reading, ns
	Now         float64 // that reading, as the series is followed
	Unit        float64 // what the series is followed in shares of, smoothed; 0 is 1
	Crossed     bool    // the limit was crossed, and the part not yet exchanged
	Over, Under uint8   // readings in a row beyond and within the limit
	Within      int64   // when the first of those within was read, ns
	Brief       uint8   // quick forecasts in a row since one said alarm
	Since       int64   // from when on every slow forecast was an alarm, ns
	Freed       uint8   // slow forecasts of late that were those under the usual load
	Soon        bool    // the alarm is of the quick summary
	Start, Near float64 // level when the alarm began, and the nearest to the limit since
	Back        uint8   // readings in a row that lie where it began, or further away
	Recovered   int64   // when the first of them was read, ns
}

// NewFollower returns what follows a series toward a target, which it keeps.
func NewFollower(t *Target) *Follower {
	f := &Follower{
		target: t, limit: t.Limit, share: t.Share,
		slow:  *New(Config{MaxWidth: slowest, Below: t.Below}),
		quick: *New(Config{MaxWidth: quickest, Below: t.Below}),
	}
	if t.Drivers > 0 {
		f.drivers = NewDrivers(Config{MaxWidth: slowest, Below: t.Below}, t.Drivers)
	}
	return f
}

// Limit returns the limit toward which the series is followed, in its unit.
func (f *Follower) Limit() float64 {
	if f.share {
		return f.limit * f.unit()
	}
	return f.limit
}

// bar is the limit in what the series is followed in.
func (f *Follower) bar() float64 {
	if f.share {
		return f.limit
	}
	return f.limit / f.unit()
}

// Aim sets another limit on the same side, and tells whether it is another. What was concluded
// of the one before is void; what was read stays.
func (f *Follower) Aim(limit float64, share bool) bool {
	if limit == f.limit && share == f.share {
		return false
	}
	f.limit, f.share, f.reporter, f.long = limit, share, Reporter{}, Forecast{}
	f.standing = standing{Last: f.standing.Last, Now: f.Now, Unit: f.Unit, Freed: f.Freed}
	return true
}

// Adopt sets the limit, in the unit of the series, of which a state that was decoded speaks.
func (f *Follower) Adopt(limit float64) { f.limit, f.share = limit, false }

// Alarmed tells whether a crossing is expected now, or has come.
func (f *Follower) Alarmed() bool { return f.reporter.Alarmed() }

// Crossed tells whether the limit was crossed and the part not yet exchanged.
func (f *Follower) Crossed() bool { return f.standing.Crossed }

// Last returns the time of the newest reading.
func (f *Follower) Last() time.Time { return time.Unix(0, f.standing.Last) }

// Fresh tells whether a reading of that time is news.
func (f *Follower) Fresh(at time.Time) bool {
	return f.slow.Len() == 0 || at.UnixNano() > f.standing.Last
}

// Computed returns how many forecasts were computed since the last call.
func (f *Follower) Computed() int {
	n := f.computed
	f.computed = 0
	return n
}

// unit is what the series is followed in shares of.
func (f *Follower) unit() float64 {
	if f.Unit > 0 {
		return f.Unit
	}
	return 1
}

// Add takes a reading. It returns the forecast as it stands now, in the unit of
// the metric, and what the reading has changed. Times must rise; an earlier
// reading is left out.
func (f *Follower) Add(r Reading) (Forecast, Change) {
	t := r.At.UnixNano()
	if math.IsNaN(r.V) || math.IsInf(r.V, 0) || !f.Fresh(r.At) {
		return Forecast{}, Same
	}
	f.standing.Last = t
	x := r.V
	if r.Peers > 0 && f.turns(r.Peers) {
		return Forecast{}, Same
	}
	if r.Peers > 0 {
		if f.Unit == 0 {
			f.Unit = r.Peers
		}
		f.Unit += smooth * (r.Peers - f.Unit)
		x = r.V / r.Peers
	}
	f.Now = x
	f.watch(x)
	if f.share {
		f.count(t, x)
	} else {
		f.count(t, r.V)
	}
	if f.drivers != nil {
		f.drivers.Add(r.At, x, r.Others)
	}
	slow, quick := f.slow.Add(r.At, x), f.quick.Add(r.At, x)
	none := Forecast{At: r.At.UTC(), Horizon: f.target.Horizon}
	switch {
	case f.standing.Crossed:
		if !f.exchanged(t, slow) {
			return Forecast{}, Same
		}
		// What came before says nothing of what is there now.
		f.restart()
		return f.report(none)
	case f.Over >= beyond:
		f.standing.Crossed, none.Crossed, none.Probability, none.Level = true, true, 1, r.V
		f.reporter.Report(none)
		return none, CameTrue
	case f.Soon && f.stays(t, x):
		none.Level = r.V
		f.restart()
		f.reporter.Report(none)
		return none, Averted
	case slow || quick:
		return f.forecast(slow, quick)
	}
	return Forecast{}, Same
}

// turns tells whether the peers as a whole are on the way to another pace: a server is
// switched off or starts. Then each is read at another point of the way, and no
// share says anything of one of them. A new pace is one when it is held.
func (f *Follower) turns(peers float64) bool {
	switch {
	case f.Unit == 0, peers > f.Unit/turned && peers < f.Unit*turned:
		f.pace, f.paced = 0, 0
		return false
	case f.pace > 0 && math.Abs(peers-f.pace) < level*f.pace:
		f.paced++
	default:
		f.pace, f.paced = peers, 1
	}
	if f.paced < paced {
		return true
	}
	f.Unit, f.pace, f.paced = peers, 0, 0
	return false
}

// count counts the readings in a row beyond and within the limit, in the limit's unit.
func (f *Follower) count(t int64, v float64) {
	dist := v - f.limit
	if f.target.Below {
		dist = -dist
	}
	switch {
	case dist > 0:
		f.Over, f.Under = min(f.Over+1, beyond), 0
	case dist < -margin*math.Abs(f.limit):
		if f.Over, f.Under = 0, min(f.Under+1, back); f.Under == 1 {
			f.Within = t
		}
	default:
		f.Over = 0
	}
}

// known tells whether the load has proven to say what becomes of the part.
func (f *Follower) known() bool { return f.Freed >= proven && f.drivers.engaged() }

// exchanged tells whether readings have come back from beyond the limit for as
// long as they are summarised, and not for want of load alone, or whether they
// run there no more.
func (f *Follower) exchanged(t int64, closed bool) bool {
	switch {
	case f.known():
		if closed && f.drivers.rest.fellBack() {
			return true
		}
	case f.Under >= back && t-f.Within >= int64(f.slow.Resolution()):
		return true
	}
	if !closed {
		return false
	}
	now := f.ahead(f.bar())
	return !now.At.IsZero() && now.Probability < release
}

// restart begins another life of the part.
func (f *Follower) restart() {
	f.slow.Restart()
	f.quick.Reset()
	if f.drivers != nil {
		f.drivers.Reset()
	}
	f.long = Forecast{}
	f.standing = standing{Last: f.standing.Last, Unit: f.Unit}
}

// cameBack tells whether a level is about as far from the limit as when the alarm
// began, and by much of the way.
func (f *Follower) cameBack(level float64) bool {
	limit := f.bar()
	from := func(level float64) float64 {
		if f.target.Below {
			return level - limit
		}
		return limit - level
	}
	now := from(level)
	return now > whole*from(f.Start) && now-from(f.Near) > much*now
}

// stays tells whether the series has come back for so long that it was repaired:
// long as it is summarised, since load comes and goes. What the slow summary told
// of is judged by its forecasts alone.
func (f *Follower) stays(t int64, x float64) bool {
	if !f.cameBack(x) {
		f.Back = 0
		return false
	}
	if f.Back++; f.Back == 1 {
		f.Recovered = t
	}
	f.Back = min(f.Back, settled)
	return f.Back == settled && t-f.Recovered >= 4*int64(f.slow.Resolution())
}

// forecast weighs what the summaries say that have closed a bucket. What comes
// within hours is told by the quick one, what comes later by the slow one.
func (f *Follower) forecast(slow, quick bool) (Forecast, Change) {
	if f.slow.Span() < f.target.MinHistory {
		return Forecast{}, Same
	}
	limit := f.bar()
	fine := f.quick.dense()
	if fine && f.quick.width == f.slow.width && f.quick.origin == f.slow.origin { // both hold the same
		slow, f.long = false, Forecast{}
	}
	if slow {
		f.long = f.ahead(limit)
	}
	now, soon := f.long, false
	if fine && quick {
		q, ok := Forecast{}, false
		if now.At.IsZero() || f.Alarmed() || f.quick.nears(limit) {
			f.computed++
			q, ok = f.quick.Forecast(limit, f.target.Horizon)
		}
		if ok {
			switch { // one alone is not believed
			case q.Probability < release || f.Brief == 0 && q.Probability < Alarm:
				f.Brief = 0
			case f.Alarmed():
			case f.Brief+1 < confirm:
				f.Brief, q.Probability = f.Brief+1, min(q.Probability, Alarm-0.01)
			default:
				q.Probability = max(q.Probability, Alarm)
			}
			// While it expects nothing, the slow one speaks.
			if now.At.IsZero() || q.Probability > now.Probability && (q.Probability >= Alarm || f.Alarmed()) {
				now, soon = q, true
			}
		}
	}
	if now.At.IsZero() {
		return now, Same
	}
	now, change := f.report(now)
	f.Soon = f.Alarmed() && soon
	return now, change
}

// ahead is the forecast of the slow summary, under the usual load where that is
// quieter. Its time is zero while there is too little to tell from.
func (f *Follower) ahead(limit float64) Forecast {
	f.computed++
	now, ok := f.slow.Forecast(limit, f.target.Horizon)
	if !ok {
		return Forecast{}
	}
	if f.drivers != nil && !now.Crossed {
		f.computed++
		if by, ok := f.drivers.Forecast(limit, f.target.Horizon); ok {
			if by.Noise < quieter*now.Noise {
				now = by
				f.Freed = min(f.Freed+1, 2*proven)
			} else if f.Freed > 0 {
				f.Freed--
			}
		}
	}
	if by, ok := f.unheld(limit, f.target.Horizon); ok && !now.Crossed && by.Probability > now.Probability {
		now = by
	}
	if late := time.Unix(0, f.standing.Last).Sub(now.At); late > 0 { // without load nothing is learnt
		now.At = now.At.Add(late)
		now.P10, now.P50, now.P90 = max(0, now.P10-late), max(0, now.P50-late), max(0, now.P90-late)
	}
	// What stands for less than the widest bucket may be part of a daily cycle.
	switch {
	case now.Probability < Alarm:
		f.Since = 0
	case f.Since == 0:
		f.Since = f.standing.Last - int64(f.slow.Resolution())
	}
	if !now.Crossed && !f.Alarmed() && now.Probability >= Alarm && f.standing.Last-f.Since < int64(slowest) {
		now.Probability = Alarm - 0.01
	}
	return now
}

// report resolves an alarm that has ended and returns what has changed.
func (f *Follower) report(now Forecast) (Forecast, Change) {
	was, level := f.Alarmed(), now.Level
	now, material := f.reporter.Report(now)
	now.Level *= f.unit()
	now.Slope *= f.unit()
	change := Stands
	if material {
		change = Material
	}
	switch {
	case f.Alarmed() && !was:
		f.Start, f.Near = level, level
	case f.Alarmed() && f.target.Below:
		f.Near = min(f.Near, level)
	case f.Alarmed():
		f.Near = max(f.Near, level)
	case was && f.cameBack(level):
		change = Averted
	case was:
		change = Expired
	}
	return now, change
}

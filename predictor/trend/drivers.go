package trend

import (
	"math"
	"slices"
	"time"
)

// MaxDrivers is how many other metrics a series is held against.
const MaxDrivers = 8

const (
	// In widest buckets, four a day: a level is taken out over a day, so that wear, which takes
	// longer, is not learnt as load; the relation is remembered for ten days, which holds a week
	// with its weekend, and trusted after four, of which two at least are of the same kind.
	settle   = 4.0
	remember = 40.0
	learnt   = 16.0
	// Shares of variance, squares of correlations: of .84 for drivers together, of .92 for what
	// may be the same thing twice, of .45 for causes that know of each other.
	explains = 0.7  // what drivers must explain
	kindred  = 0.85 // from which on two metrics may be one
	apart    = 0.2  // of what the series leaves open, that two of its causes tell of each other
	swings   = 10   // how often a driver has risen, and fallen, from window to window
	oneWay   = 20   // times more often one way than the other is a counter with resets
	stale    = 16   // windows for which the last reading of a driver holds, or a fourth of those for which it may stay the same

	// ridge is added to each variance (Hoerl and Kennard, Ridge Regression, Technometrics 12,
	// 1970): metrics that say the same share the effect.
	ridge = 0.003

	// The end away from the limit is the 2 % quantile of the readings, by stochastic approximation:
	// it falls by lower deviations for a reading below it and rises by raise for one above, and
	// rests where lower/raise = .98/.02.
	lower, raise = 0.049, 0.001
	// On the developer set twice oneWay or usually changes no forecast; twice resting foretells 32 of
	// 35 crossings instead of 33, at 10 false alarms per 1,000 device-weeks instead of 13.
	usually = 0.01 // weight of a reading in the mean deviation
	resting = 0.15 // share of the way from that end to the mean within which there is no load

	windowsOfBucket = 24 // how finely metrics are compared: a quarter of an hour where a bucket has six
)

// Drivers learns how a series depends on other metrics of its part, as a fan's
// duty does on the power and the air that come in, and follows what is left: the
// series as it would be under the usual load. What counts as a driver is seen
// from the readings: not a counter, and not the same thing measured elsewhere,
// whose drift is the fault itself. Readings are compared as the means of a
// window, since metrics of one part are read and answer at different times. See
// [NewDrivers].
type Drivers struct {
	cfg Config
	k   int
	relation
	rest *Series // the series under the usual load; nil until the load explains it
	load *Series // what the load adds
}

// relation is what is known of how the metrics depend on each other; the last one
// is the series.
type relation struct {
	Last      int64 // time of the newest reading, ns
	Begun     int64 // of the first one of the window
	Row       [MaxDrivers + 1]mean
	Window    int64   // when the last window closed, ns
	Weight    float64 // readings learnt from, in time, ns
	Low, Dev  float64 // the end away from the limit that few readings pass; how far readings lie from their mean
	Mean      [MaxDrivers + 1]float64
	Cov       [(MaxDrivers + 1) * (MaxDrivers + 2) / 2]float64 // of the distances from the means: the lower half, row by row
	Held      [MaxDrivers]float64
	Age, Same [MaxDrivers]uint16
	Ups, Down [MaxDrivers]uint32

	By    [MaxDrivers]bool
	Slope [MaxDrivers]float64
	Usual [MaxDrivers + 1]float64
}

// mean is of the readings of a window.
type mean struct {
	Sum float64
	N   uint32
}

func (m *mean) add(x float64) {
	if !math.IsNaN(x) && !math.IsInf(x, 0) {
		m.Sum += x
		m.N++
	}
}

// value is NaN where nothing was read.
func (m *mean) value() float64 { return m.Sum / float64(m.N) }

// NewDrivers returns what learns a series made with cfg against k other metrics,
// at most [MaxDrivers].
func NewDrivers(cfg Config, k int) *Drivers {
	d := &Drivers{cfg: cfg, k: min(k, MaxDrivers)}
	for j := range d.Held {
		d.Held[j] = math.NaN()
	}
	return d
}

// Reset forgets all readings, as after an exchange of the part.
func (d *Drivers) Reset() { *d = *NewDrivers(d.cfg, d.k) }

// engaged tells whether the load explains the series.
func (d *Drivers) engaged() bool { return d != nil && d.rest != nil }

// memory is the time scale of what is learnt, ns.
func (d *Drivers) memory() float64 { return float64(d.cfg.MaxWidth) }

// Add takes a reading of the series and those of the other metrics at the same
// time, NaN where one is missing.
func (d *Drivers) Add(at time.Time, v float64, others []float64) {
	t := at.UnixNano()
	first, step := d.Last == 0, t-d.Last
	if !first && step <= 0 {
		return
	}
	if d.Last = t; d.Begun == 0 {
		d.Begun = t
	}
	for j := range min(d.k, len(others)) {
		d.Row[j].add(others[j])
	}
	d.Row[d.k].add(v)
	// The next reading would not fall in the window any more.
	if window := int64(d.cfg.MaxWidth / windowsOfBucket); first || t-d.Begun+step >= window {
		d.close(at)
	}
}

// close takes the means of a window.
func (d *Drivers) close(at time.Time) {
	t := at.UnixNano()
	step := 0.0
	if d.Window != 0 {
		step = float64(t - d.Window)
	}
	d.Window = t
	whole := true
	for j := range d.k {
		x := d.Row[j].value()
		if math.IsNaN(x) {
			d.Age[j] = min(d.Age[j]+1, 1<<15)
			x = d.Held[j]
		} else {
			switch was := d.Held[j]; {
			case math.IsNaN(was):
			case x > was:
				d.Ups[j]++
				d.Same[j] = 0
			case x < was:
				d.Down[j]++
				d.Same[j] = 0
			default:
				d.Same[j] = min(d.Same[j]+1, 1<<15)
			}
			d.Held[j], d.Age[j] = x, 0
		}
		if d.By[j] && (math.IsNaN(x) || d.Age[j] > stale || d.Same[j] > 4*stale) {
			whole = false // it is missing, or sticks
		}
	}
	y := d.Row[d.k].value()
	d.Row, d.Begun = [MaxDrivers + 1]mean{}, 0
	if math.IsNaN(y) {
		return
	}
	if d.cfg.Below {
		y = -y
	}
	if d.Weight == 0 {
		d.Low = y
	}
	d.Dev += usually * (math.Abs(y-d.Mean[d.k]) - d.Dev)
	if y < d.Low {
		d.Low -= lower * d.Dev
	} else {
		d.Low += raise * d.Dev
	}
	if d.Weight == 0 || !d.idle(y) {
		d.learn(y, min(step, d.memory()))
	}
	if d.engaged() && whole && !d.idle(y) {
		d.follow(at, y)
	}
}

// idle tells whether the series stands at its end away from the limit, where it
// shows no load.
func (d *Drivers) idle(y float64) bool { return y < d.Low+resting*(d.Mean[d.k]-d.Low) }

func (d *Drivers) learn(y, step float64) {
	k := d.k
	var x [MaxDrivers + 1]float64
	for j := range k {
		if d.Age[j] > 0 || math.IsNaN(d.Held[j]) {
			return
		}
		x[j] = d.Held[j]
	}
	x[k] = y
	if d.Weight == 0 {
		d.Mean = x
		d.Weight = 1
		return
	}
	d.Weight += step
	a := max(-math.Expm1(-step/(remember*d.memory())), step/d.Weight)
	b := max(-math.Expm1(-step/(settle*d.memory())), step/d.Weight)
	for j := 0; j <= k; j++ {
		x[j] -= d.Mean[j]
		d.Mean[j] += b * x[j]
	}
	for i := 0; i <= k; i++ {
		row := d.Cov[i*(i+1)/2:]
		for j := 0; j <= i; j++ {
			row[j] += a * (x[i]*x[j] - row[j])
		}
	}
}

// follow takes a reading apart.
func (d *Drivers) follow(at time.Time, y float64) {
	load := 0.0
	for j := range d.k {
		if d.By[j] {
			load += d.Slope[j] * (d.Held[j] - d.Usual[j])
		}
	}
	if d.idle(d.Usual[d.k] + load) {
		return
	}
	if y -= load; d.cfg.Below {
		y, load = -y, -load
	}
	d.rest.Add(at, y)
	d.load.Add(at, load)
}

// cell is a covariance.
func (d *Drivers) cell(i, j int) float64 {
	if i < j {
		i, j = j, i
	}
	return d.Cov[i*(i+1)/2+j]
}

// alikeness is the share of the variance of one metric that another explains.
func (d *Drivers) alikeness(i, j int) float64 {
	v := d.cell(i, i) * d.cell(j, j)
	if v <= 0 {
		return 0
	}
	c := d.cell(i, j)
	return c * c / v
}

// drives tells whether metric j may explain the series. One that says nearly the
// same is a driver only if it has to do with another metric beyond what the
// series tells of both: causes of one effect do, what follows from it does not.
func (d *Drivers) drives(j int) bool {
	if !d.swings(j) {
		return false
	}
	k := d.k
	if d.alikeness(j, k) < kindred {
		return true
	}
	given := func(a, b int) float64 { return d.cell(a, b) - d.cell(a, k)*d.cell(b, k)/d.cell(k, k) }
	for i := range k {
		if i == j || !d.swings(i) {
			continue
		}
		if c := given(i, j); c*c > apart*given(i, i)*given(j, j) {
			return true
		}
	}
	return false
}

// swings tells whether metric j goes up and down: it is constant else, or a counter.
func (d *Drivers) swings(j int) bool {
	up, down := d.Ups[j], d.Down[j]
	return d.cell(j, j) > 0 && min(up, down) >= swings && max(up, down) < oneWay*min(up, down)
}

// fit finds how the series depends on its drivers, and whether that says much.
func (d *Drivers) fit() {
	if d.Weight < learnt*d.memory() {
		return
	}
	k := d.k
	var idx [MaxDrivers]int
	n := 0
	for j := range k {
		if d.engaged() && d.By[j] || !d.engaged() && d.drives(j) {
			idx[n] = j
			n++
		}
	}
	var m [MaxDrivers][MaxDrivers + 1]float64
	for a := range n {
		for b := range n {
			m[a][b] = d.cell(idx[a], idx[b])
		}
		m[a][a] *= 1 + ridge
		m[a][n] = d.cell(idx[a], k)
	}
	for a := range n { // positive definite: no exchange of rows
		for b := a + 1; b < n; b++ {
			f := m[b][a] / m[a][a]
			for c := a; c <= n; c++ {
				m[b][c] -= f * m[a][c]
			}
		}
	}
	explained := 0.0
	var slope [MaxDrivers]float64
	for a := n - 1; a >= 0; a-- {
		s := m[a][n]
		for b := a + 1; b < n; b++ {
			s -= m[a][b] * slope[idx[b]]
		}
		slope[idx[a]] = s / m[a][a]
	}
	for a := range n {
		explained += slope[idx[a]] * d.cell(idx[a], k)
	}
	share := explained / max(d.cell(k, k), 1e-300)
	if !d.engaged() {
		if n == 0 || share < explains {
			return
		}
		d.Usual = d.Mean
		d.rest, d.load = New(d.cfg), New(d.cfg)
	}
	if share < explains/2 {
		d.rest, d.load, d.By = nil, nil, [MaxDrivers]bool{}
		return
	}
	d.Slope = slope
	for a := range n {
		d.By[idx[a]] = true
	}
}

// Forecast tells when the series crosses limit, as [Series.Forecast] does. It is
// false while the load does not explain the series, or not for long enough.
func (d *Drivers) Forecast(limit float64, horizon time.Duration) (Forecast, bool) {
	d.fit()
	if !d.engaged() || d.Last-d.rest.last > 4*d.rest.width || d.rest.Span() < time.Duration(learnt/2*d.memory()) {
		return Forecast{}, false
	}
	return d.rest.forecast(limit, horizon, d.load.peaks())
}

// peaks are the highest values of a series by bucket.
type peaks struct {
	sorted [Buckets]float64
	n      int
	now    float64 // of the newest bucket
	fresh  float64 // how much of a bucket's value is new
}

func (s *Series) peaks() *peaks {
	p := &peaks{}
	prev, have := 0.0, false
	var sum, sq, cross float64
	for i := range s.n {
		b := s.at(i)
		if b.n == 0 {
			continue
		}
		v := b.value()
		if i == s.n-1 && b.n < 3 {
			break
		}
		p.sorted[p.n] = v
		p.n++
		p.now = v
		sum += v
		sq += v * v
		if have {
			cross += v * prev
		}
		prev, have = v, true
	}
	n := float64(p.n)
	slices.Sort(p.sorted[:p.n])
	p.fresh = 1
	if v := sq/n - sum/n*sum/n; p.n > 2 && v > 0 {
		c := cross/(n-1) - sum/n*sum/n
		p.fresh = min(1, max(0.05, 1-c/v))
	}
	return p
}

// above is the value that the highest of the coming t buckets stays below with
// probability u.
func (p *peaks) above(u, t float64) float64 {
	if p.n == 0 {
		return 0
	}
	q := math.Pow(u, 1/max(1e-6, t*p.fresh)) * float64(p.n-1)
	i := int(q)
	v := p.sorted[i]
	if i+1 < p.n {
		v += (q - float64(i)) * (p.sorted[i+1] - v)
	}
	return max(v, p.now)
}

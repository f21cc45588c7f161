package trend

import (
	"math"
	"slices"
	"time"
)

// MaxDrivers is how many other metrics a series is held against.
const MaxDrivers = 8

const (
	settle   = 4.0  // widest buckets over which a level is taken out before metrics are compared
	remember = 40.0 // widest buckets for which their relation is remembered
	learnt   = 16.0 // widest buckets of readings before it is trusted
	explains = 0.7  // share of the variance that drivers must explain
	kindred  = 0.85 // share of the variance from which on two metrics may be one
	apart    = 0.2  // share of what the series leaves open that two of its causes tell of each other
	swings   = 10   // how often a driver has risen, and fallen
	stale    = 16   // rows for which the last reading of a driver holds, or for which it may stay the same
)

// Drivers learns how a series depends on other metrics of its device, as a fan's
// duty does on the power and the air that come in, and follows what is left: the
// series as it would be under the usual load. What counts as a driver is seen
// from the readings: not a counter, and not the same thing measured elsewhere,
// whose drift is the fault itself. Its zero value is not ready; see [NewDrivers].
type Drivers struct {
	sign      float64
	memory    float64 // ns
	k         int
	last      int64
	weight    float64 // readings learnt from, in time, ns
	low, dev  float64 // the end away from the limit that few readings pass; how far readings lie from their mean
	mean      [MaxDrivers + 1]float64
	cov       [MaxDrivers + 1][MaxDrivers + 1]float64 // of the distances from the means; the last one is the series
	held      [MaxDrivers]float64
	age, same [MaxDrivers]int
	ups, down [MaxDrivers]int

	engaged bool
	by      [MaxDrivers]bool
	slope   [MaxDrivers]float64
	usual   [MaxDrivers + 1]float64
	rest    *Series // the series under the usual load
	load    *Series // what the load adds
}

// NewDrivers returns what learns a series made with cfg against k other metrics,
// at most [MaxDrivers].
func NewDrivers(cfg Config, k int) *Drivers {
	d := &Drivers{sign: 1, k: min(k, MaxDrivers), rest: New(cfg), load: New(cfg)}
	if cfg.Below {
		d.sign = -1
	}
	d.memory = float64(d.rest.maxWidth)
	for j := range d.held {
		d.held[j] = math.NaN()
	}
	return d
}

// Reset forgets all readings, as after an exchange of the part.
func (d *Drivers) Reset() {
	cfg := Config{MaxWidth: time.Duration(d.rest.maxWidth), Below: d.sign < 0}
	*d = *NewDrivers(cfg, d.k)
}

// Add takes a reading of the series and those of the other metrics at the same
// time, NaN where one is missing.
func (d *Drivers) Add(at time.Time, v float64, others []float64) {
	t := at.UnixNano()
	step := 0.0
	if d.last != 0 {
		step = float64(t - d.last)
	}
	if d.last != 0 && step <= 0 {
		return
	}
	d.last = t
	whole := true
	for j := range d.k {
		x := others[j]
		if math.IsNaN(x) || math.IsInf(x, 0) {
			d.age[j]++
			x = d.held[j]
		} else {
			switch was := d.held[j]; {
			case math.IsNaN(was):
			case x > was:
				d.ups[j]++
				d.same[j] = 0
			case x < was:
				d.down[j]++
				d.same[j] = 0
			default:
				d.same[j]++
			}
			d.held[j], d.age[j] = x, 0
		}
		if math.IsNaN(x) || d.age[j] > stale {
			whole = whole && !d.by[j]
		}
		if d.by[j] && d.same[j] > 4*stale {
			whole = false // it sticks
		}
	}
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return
	}
	y := v * d.sign
	if d.weight == 0 {
		d.low = y
	}
	d.dev += 0.01 * (math.Abs(y-d.mean[d.k]) - d.dev)
	if y < d.low {
		d.low -= 0.049 * d.dev
	} else {
		d.low += 0.001 * d.dev
	}
	if d.weight == 0 || !d.idle(y) {
		d.learn(y, min(step, d.memory))
	}
	if d.engaged && whole && !d.idle(y) {
		d.follow(at, y)
	}
}

// idle tells whether the series stands at its end away from the limit, where it
// shows no load.
func (d *Drivers) idle(y float64) bool { return y < d.low+0.15*(d.mean[d.k]-d.low) }

func (d *Drivers) learn(y, step float64) {
	k := d.k
	var x [MaxDrivers + 1]float64
	for j := range k {
		if d.age[j] > 0 || math.IsNaN(d.held[j]) {
			return
		}
		x[j] = d.held[j]
	}
	x[k] = y
	if d.weight == 0 {
		d.mean = x
		d.weight = 1
		return
	}
	d.weight += step
	a := max(-math.Expm1(-step/(remember*d.memory)), step/d.weight)
	b := max(-math.Expm1(-step/(settle*d.memory)), step/d.weight)
	for j := 0; j <= k; j++ {
		x[j] -= d.mean[j]
		d.mean[j] += b * x[j]
	}
	for i := 0; i <= k; i++ {
		for j := 0; j <= i; j++ {
			d.cov[i][j] += a * (x[i]*x[j] - d.cov[i][j])
		}
	}
}

// follow takes a reading apart.
func (d *Drivers) follow(at time.Time, y float64) {
	load := 0.0
	for j := range d.k {
		if d.by[j] {
			load += d.slope[j] * (d.held[j] - d.usual[j])
		}
	}
	if d.idle(d.usual[d.k] + load) {
		return
	}
	d.rest.Add(at, (y-load)*d.sign)
	d.load.Add(at, load*d.sign)
}

// cell is a covariance.
func (d *Drivers) cell(i, j int) float64 {
	if i < j {
		i, j = j, i
	}
	return d.cov[i][j]
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
	up, down := d.ups[j], d.down[j]
	return d.cell(j, j) > 0 && min(up, down) >= swings && max(up, down) < 20*min(up, down)
}

// fit finds how the series depends on its drivers, and whether that says much.
func (d *Drivers) fit() {
	if d.weight < learnt*d.memory {
		return
	}
	k := d.k
	var idx [MaxDrivers]int
	n := 0
	for j := range k {
		if d.engaged && d.by[j] || !d.engaged && d.drives(j) {
			idx[n] = j
			n++
		}
	}
	var m [MaxDrivers][MaxDrivers + 1]float64
	for a := range n {
		for b := range n {
			m[a][b] = d.cell(idx[a], idx[b])
		}
		m[a][a] *= 1.003 // metrics that say the same share the effect
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
	if !d.engaged {
		if n == 0 || share < explains {
			return
		}
		d.usual = d.mean
		d.engaged = true
	}
	if share < explains/2 {
		d.engaged = false
		d.rest.Reset()
		d.load.Reset()
		return
	}
	d.slope = slope
	for a := range n {
		d.by[idx[a]] = true
	}
}

// Forecast tells when the series crosses limit, as [Series.Forecast] does. It is
// false while the load does not explain the series, or not for long enough.
func (d *Drivers) Forecast(limit float64, horizon time.Duration) (Forecast, bool) {
	d.fit()
	if !d.engaged || d.last-d.rest.last > 4*d.rest.width || d.rest.Span() < time.Duration(learnt/2*d.memory) {
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

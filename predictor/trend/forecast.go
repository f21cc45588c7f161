package trend

import (
	"math"
	"slices"
	"time"
)

// minBuckets is how many closed buckets a forecast needs: a line has two unknowns and its noise
// one, and twice as many readings tell them apart.
const minBuckets = 6

// steps is how many points of time a crossing is looked for at; between them the distribution
// is taken as straight.
const steps = 32

// reach is how far beyond the horizon crossing times are spread, as its multiple: a crossing
// that is as likely as not within the horizon has its 90th percentile about that far out.
const reach = 3.0

// lookAhead is how far ahead readings speak, as a multiple of the time that they cover: a line
// through a minute says nothing of next week. The error of a line through n readings, carried
// n·r beyond them, is their noise times sqrt((4+12r+12r²)/n), which for a full summary comes to
// five times the noise at this r: beyond it says more of the noise than of the series.
const lookAhead = 12

// Forecast is the distribution of the time at which a series crosses its limit.
type Forecast struct {
	At          time.Time
	Crossed     bool          // the newest readings are beyond the limit
	Horizon     time.Duration // how far ahead was looked: less than asked where there is little to tell from
	Probability float64       // of a crossing within the horizon
	P10         time.Duration // from At; quantiles of the crossing time, given that it comes
	P50         time.Duration
	P90         time.Duration
	Level       float64 // robust level now, in the unit of the series
	Slope       float64 // change an hour, in the unit of the series
	Noise       float64 // scale of the residuals, in the unit of the series
	Trend       float64 // probability of a trend, as against standing still or wandering
}

// model is one explanation of the readings: a structural model (Harvey, Forecasting, Structural
// Time Series Models and the Kalman Filter, 1989, section 2.3) of a level that wanders and a
// slope that may change. Rho is the share of the variance of their differences that stays (the
// level wanders), drift the change of the slope a bucket and prior the width of the slope at the
// start, both in units of the noise; weight is how likely it is before anything was read.
type model struct {
	rho, drift, prior, weight float64
}

// models is a grid of what readings may be.
//
// Rho: a level that stands but for its noise, one half way, and a walk. The ratios of the variance
// of level and noise, 2 rho / (1 - rho), are .04, .9 and 18, a factor of some twenty apart.
//
// Drift: a slope that changes by d a bucket is known from the newest d^-1/2 buckets, which is how
// long the filter of such a model remembers (the tracking index of Kalata, IEEE Trans. AES 20,
// 1984): 18 of them, 6 and 2.5. In a walk the last cannot be told from its steps.
//
// Prior: a slope that goes on is gentle, less than the noise over several buckets, or steep,
// several times the noise in one, as wear is that matters.
//
// The weights are chosen, not derived: six in ten for no trend, on 96 nodes of recorded degradation,
// and held on 159 others. Equal ones for all trends foretell .68 of the crossings of the latter
// instead of .61, at two thirds more false alarms.
var models = []model{
	{0.02, 0, 0, 3},
	{0.30, 0, 0, 3},
	{0.90, 0, 0, 3},
	{0.02, 0.003, 0.2, 0.5},
	{0.02, 0.003, 3, 1.2},
	{0.02, 0.03, 0.5, 0.5},
	{0.02, 0.15, 0.5, 0.5},
	{0.30, 0.003, 0.2, 0.5},
	{0.30, 0.003, 3, 1.2},
	{0.30, 0.03, 0.5, 0.5},
	{0.30, 0.2, 0.5, 0.5},
	{0.90, 0.003, 0.5, 0.5},
	{0.90, 0.04, 0.5, 0.3},
}

// doubt is how much better, in nats, logarithms must foretell: e² to one, about where evidence
// stops being "not worth more than a bare mention" and begins to be positive (Kass and Raftery,
// Bayes Factors, JASA 90, 1995, with 20 to 3 as the next step).
const doubt = 2.0

// forget is the weight of the evidence that is a bucket older: what was said of a model the
// length of the summary ago counts for a good third, .985^64, so that a new regime is seen
// (forgetting factors: West and Harrison, Bayesian Forecasting, 1997, section 12.4).
const forget = 0.985

// quantal is the deviation of a reading that was rounded to steps of one, 1/sqrt(12) = .29, and a
// fifth more: neighbours are not rounded independently of each other.
const quantal = 0.35

// recent is how many of the newest buckets say alone how large the noise is by now.
const recent = 12

// filter is a Kalman filter of level and slope.
type filter struct {
	level, slope  float64
	pll, pls, pss float64
	log           float64 // log of the weight
}

// Forecast tells when the series crosses limit, looking horizon ahead from the
// last reading. It is false while there is too little to tell from.
func (s *Series) Forecast(limit float64, horizon time.Duration) (Forecast, bool) {
	return s.forecast(limit, horizon, nil)
}

// nears tells whether a line through readings, or through the newest ones, may come
// to limit as far ahead as they speak. It costs little.
func (s *Series) nears(limit float64) bool {
	closed := s.n - 1
	if closed < minBuckets {
		return false
	}
	var y [Buckets]float64
	var live [Buckets]bool
	record := math.Inf(-1)
	for i := range closed {
		b := s.at(i)
		if live[i] = b.n > 0; live[i] {
			y[i] = b.value() - limit*float64(s.sign)
			record = max(record, y[i])
		}
	}
	noise, _ := scale(y[:closed], live[:closed])
	noise = max(noise, float64(s.quantum)*quantal)
	for _, n := range windows { // with two errors of the slope, and the noise on top
		w := max(0, closed-n)
		slope, off := slopeError(y[w:closed], live[w:closed], noise)
		if record+lookAhead*float64(closed)*max(0, slope+2*off) > -outlying*noise {
			return true
		}
	}
	return false
}

// forecast is Forecast of a series to which a load is added before it is held
// against the limit.
func (s *Series) forecast(limit float64, horizon time.Duration, load *peaks) (Forecast, bool) {
	f := Forecast{At: time.Unix(0, s.last).UTC()}
	closed := s.n - 1
	if closed < minBuckets || s.width == 0 {
		return f, false
	}
	var buf [Buckets]float64
	var have [Buckets]bool
	y := buf[:closed]
	used := 0
	lim := limit * float64(s.sign)
	for i := range y {
		b := s.at(i)
		if have[i] = b.n > 0; have[i] {
			y[i] = b.value() - lim
			used++
		}
	}
	if used < minBuckets {
		return f, false
	}
	record := math.Inf(-1)
	for i := range y {
		if have[i] {
			record = max(record, y[i])
		}
	}
	whole := scaleOf(y, have[:closed])
	dropValleys(y, have[:closed], whole)
	from := lastStep(y, have[:closed])
	y, live := y[from:], have[from:closed]
	noise, n := scale(y, live)
	if n == 0 {
		return f, false
	}
	if n < minBuckets { // too little since the step: what was said before it is void
		f.Horizon = horizon
		end := len(y)
		for !live[end-1] {
			end--
		}
		last, _, _ := middle(y[:end], live, end-3)
		f.Level, f.Noise = (last+lim)*float64(s.sign), noise
		// What was read before an outage says nothing of now.
		f.Crossed = last >= 0 && load == nil && end == len(y)
		if f.Crossed {
			f.Probability = 1
		}
		return f, true
	}
	f.Horizon = min(horizon, time.Duration(lookAhead*len(y))*time.Duration(s.width))
	if from := max(0, len(y)-recent); from > 0 { // noise that grows with the level
		r, _ := scale(y[from:], live[from:])
		noise = max(noise, r)
	}
	noise = max(noise, float64(s.quantum)*quantal, 1e-6*math.Abs(lim), 1e-9) // and what 32 bits tell apart
	var views [2]view
	plain, quickening := &views[0], &views[1]
	plain.examine(y, live, noise, record)
	hours := float64(s.width) / float64(time.Hour)
	f.Level = (plain.level + lim) * float64(s.sign)
	f.Slope = plain.slope / hours * float64(s.sign)
	f.Noise, f.Trend = noise, plain.trend

	newest := y[len(y)-1]
	if load == nil && newest >= 0 && live[len(y)-1] && plain.level > -0.5*noise {
		f.Crossed, f.Probability = true, 1
		return f, true
	}
	seen := float64(s.last-s.first) / float64(s.width)
	plain.was.n, plain.weight = seen, 1
	if gain, logOf, ok := logarithms(y, live); ok {
		// What grows by a share of itself runs straight in logarithms.
		n, _ := scale(y, live)
		if from := max(0, len(y)-recent); from > 0 {
			r, _ := scale(y[from:], live[from:])
			n = max(n, r)
		}
		quickening.examine(y, live, max(n, 1e-3), logOf(record))
		quickening.was.n = seen
		quickening.scale = logOf
		if quickening.slope > 0 {
			quickening.weight = 1 / (1 + math.Exp(min(50, max(-50, plain.evidence-quickening.evidence-gain+doubt))))
			plain.weight = 1 - quickening.weight
			f.Trend = plain.weight*plain.trend + quickening.weight*quickening.trend
		}
	}
	s.crossing(&f, &views, load)
	return f, true
}

// view is what the models say of readings, in one scale.
type view struct {
	bank                [16]filter
	noise, weight       float64
	level, slope, trend float64
	evidence            float64 // log of how well the models foretold the readings
	was                 past
	scale               func(float64) float64 // from distances to the limit; nil where they are as they are
}

// examine runs the models over the readings and weighs them.
func (v *view) examine(y []float64, live []bool, noise, record float64) {
	v.noise = noise
	fs := v.bank[:len(models)]
	run(fs, y, live, noise)
	top := math.Inf(-1)
	for i := range fs {
		top = max(top, fs[i].log)
	}
	var sum float64
	for i := range fs {
		fs[i].log = math.Exp(fs[i].log - top)
		sum += fs[i].log
	}
	v.evidence = top + math.Log(sum)
	for i := range fs {
		fs[i].log /= sum
		v.level += fs[i].log * fs[i].level
		v.slope += fs[i].log * fs[i].slope
		if models[i].prior > 0 {
			v.trend += fs[i].log
		}
	}
	sure := 0.0 // how sure the best window is that there is a trend, in errors of its slope
	for _, n := range windows {
		if n > len(y) && n != windows[len(windows)-1] {
			continue
		}
		w := max(0, len(y)-n)
		if b, e := slopeError(y[w:], live[w:], noise); e > 0 {
			sure = max(sure, b/e)
		}
	}
	// A slope that is known to b of its own errors is shrunk by b²/(1+b²), the share of its square
	// that is not error (Wiener's filter; James and Stein, 1961), and has that error on top.
	for i := range fs {
		if models[i].prior > 0 {
			extra := fs[i].slope / max(sure, 0.1)
			fs[i].slope *= sure * sure / (1 + sure*sure)
			fs[i].pss += extra * extra
		}
	}
	v.was.record, v.was.center = record, center(y, live)
}

// logarithms turns distances below the limit into logarithms above the lowest
// reading, 0 at the limit. It returns the log of the density that this adds to
// the readings, weighed as the models weigh them, and whether it makes sense.
func logarithms(y []float64, live []bool) (gain float64, logOf func(float64) float64, ok bool) {
	low := math.Inf(1)
	for i := range y {
		if live[i] {
			low = min(low, y[i])
		}
	}
	if low >= 0 {
		return 0, nil, false
	}
	c := -0.1 * low // so that the lowest reading has a logarithm: the limit is at log 11
	first := true
	for i := range y {
		if !live[i] {
			continue
		}
		x := y[i] - low + c
		if !first {
			gain = forget*gain - math.Log(x)
		}
		first = false
		y[i] = math.Log(x / (c - low))
	}
	return gain, func(x float64) float64 { return math.Log(max(c, x-low+c) / (c - low)) }, true
}

// run filters the readings with every model.
func run(fs []filter, y []float64, live []bool, noise float64) {
	first := 0
	for !live[first] {
		first++
	}
	for i := range fs {
		m := models[i]
		fs[i] = filter{level: y[first], pll: 4 * noise * noise, pss: m.prior * m.prior * noise * noise, log: math.Log(m.weight)}
	}
	v := noise * noise
	for k := first + 1; k < len(y); k++ {
		for i := range fs {
			m, f := &models[i], &fs[i]
			// Predict by one bucket.
			f.level += f.slope
			f.pll += 2*f.pls + f.pss + m.rho*2*v
			f.pls += f.pss
			f.pss += m.drift * m.drift * v
			if !live[k] {
				continue
			}
			r := (1 - m.rho) * v
			sv := f.pll + r
			e := y[k] - f.level
			z := e * e / sv
			// Student's t with 4 degrees of freedom: an outlier neither decides nor drags.
			const nu = 4.0
			f.log = forget*f.log - 0.5*math.Log(sv) - 0.5*(nu+1)*math.Log1p(z/nu)
			w := (nu + 1) / (nu + z)
			sv = f.pll + r/w
			kl, ks := f.pll/sv, f.pls/sv
			f.level += kl * e
			f.slope += ks * e
			f.pss -= ks * f.pls
			f.pls -= ks * f.pll
			f.pll -= kl * f.pll
		}
	}
}

// nodes and shares cut the standard normal distribution into five strata: the share of each,
// and its mean, which is the difference of the densities at its ends over its share. The
// outermost begin at 1.372, the next at .454; their means are rounded.
var (
	nodes  = [5]float64{-1.8, -0.85, 0, 0.85, 1.8}
	shares = [5]float64{0.085, 0.24, 0.35, 0.24, 0.085}
)

// peak is how far, in units of the noise, readings of the coming buckets reach above the level:
// as far as the highest quarter of them does, about the upper quartile of the normal distribution.
const peak = 0.7

func (s *Series) crossing(f *Forecast, views *[2]view, load *peaks) {
	// Time counts in buckets from the middle of the last closed one.
	width := float64(s.width)
	now := (float64(s.last-s.origin) - (float64(s.n)-1.5)*width) / width
	end := now + float64(f.Horizon)/width
	far := now + reach*float64(f.Horizon)/width
	var grid, cdf [steps + 1]float64
	for k := range grid { // finer near now
		x := float64(k) / steps
		grid[k] = now + (far-now)*x*x
	}
	// The sum over models, slopes and loads, at one time or along the grid.
	loads := 1
	if load != nil {
		loads = len(chances)
	}
	sum := func(at func(w float64, p path)) {
		for j := range views {
			v := &views[j]
			fs, noise := v.bank[:len(models)], v.noise
			for i := range fs {
				if v.weight*fs[i].log < 1e-3 {
					continue
				}
				m := &models[i]
				n := len(nodes)
				if fs[i].pss <= 0 {
					n = 1
				}
				for q := range n {
					node, share := nodes[q], shares[q]
					if n == 1 {
						node, share = 0, 1
					}
					b := fs[i].slope + node*math.Sqrt(max(0, fs[i].pss))
					l, pl := fs[i].level, fs[i].pll
					if fs[i].pss > 0 {
						c := fs[i].pls / fs[i].pss
						l += c * (b - fs[i].slope)
						pl -= c * fs[i].pls
					}
					p := path{
						a: -l - peak*noise, b: b, p: max(0, pl), q: m.rho * 2 * noise * noise, d: m.drift * m.drift * noise * noise,
						still: m.prior == 0, was: v.was, noise: noise,
					}
					for u := range loads {
						if load != nil {
							p.load, p.chance, p.scale, p.now = load, chances[u], v.scale, now
						}
						at(v.weight*fs[i].log*share/float64(loads), p)
					}
				}
			}
		}
	}
	inside := 0.0
	sum(func(w float64, p path) { inside += w * p.passed(end) })
	f.Probability = min(1, max(0, inside))
	if f.Probability < release {
		return // no alarm, and nobody asks when
	}
	sum(func(w float64, p path) {
		for k := range grid {
			cdf[k] += w * p.passed(grid[k])
		}
	})
	for k := 1; k <= steps; k++ {
		cdf[k] = max(cdf[k], cdf[k-1])
	}
	total := cdf[steps]
	if total <= 0 {
		return
	}
	quantile := func(p float64) time.Duration {
		want := p * total
		k, _ := slices.BinarySearch(cdf[:], want)
		var t float64
		switch {
		case k == 0:
			t = grid[0]
		case k > steps:
			t = grid[steps]
		default:
			t = grid[k-1] + (grid[k]-grid[k-1])*(want-cdf[k-1])/max(1e-12, cdf[k]-cdf[k-1])
		}
		return max(0, time.Duration((t-now)*width))
	}
	f.P10, f.P50, f.P90 = quantile(0.1), quantile(0.5), quantile(0.9)
}

// past is what a series that has no trend has shown: its highest reading, its
// center and for how many buckets it was watched.
type past struct{ record, center, n float64 }

// path is a level at distance a below the limit with variance p, that rises by b
// a bucket; its own walk has variance q and that of its slope d a bucket. A path
// that stands still goes beyond what was seen as rarely as it did before.
type path struct {
	a, b, p, q, d, noise float64
	still                bool
	was                  past

	load        *peaks // nil: none is added
	chance, now float64
	scale       func(float64) float64
}

// chances are where the distribution of the highest load is looked at.
var chances = [...]float64{1. / 6, 3. / 6, 5. / 6}

// passed is the probability that the path has passed the limit within t buckets.
func (p *path) passed(t float64) float64 {
	t = max(t, 1e-6)
	if p.load != nil {
		near := -p.load.above(p.chance, max(0, t-p.now))
		if p.scale != nil {
			near = p.scale(near)
		}
		o := *p
		o.load = nil
		o.a += near
		o.was.record -= near
		o.was.center -= near
		return o.passed(t)
	}
	if p.still {
		return min(p.wandered(t), p.was.beaten(t, p.noise))
	}
	return p.wandered(t)
}

func (p *path) wandered(t float64) float64 {
	walk := p.q*t + p.d*t*t*t/3
	v := p.p + walk
	sd := math.Sqrt(v)
	if sd <= 0 {
		if p.b*t >= p.a {
			return 1
		}
		return 0
	}
	if p.a <= 0 {
		return 1
	}
	if p.b*t-p.a < -jumping*sd {
		return 0 // as most parts that are well
	}
	x := phi((p.b*t - p.a) / sd)
	if walk > 0 { // the first passage of a walk, which may have come back since (Chhikara and Folks, The Inverse Gaussian Distribution, 1989)
		if e := 2 * p.b * t * p.a / v; e < 30 {
			x += math.Exp(e) * phi((-p.b*t-p.a)/sd) * walk / v
		}
	}
	return min(1, x)
}

// beaten is the probability that t more buckets pass the limit, when n have not: one of them is
// the highest of all with probability t of n+t, whatever the distribution (Arnold, Balakrishnan
// and Nagaraja, Records, 1998, chapter 2). Beyond the old record the tail is taken as
// exponential; the highest of n then lies log n of its scales above the middle, which for the
// twenty buckets that a record should have stood is three.
func (w *past) beaten(t, noise float64) float64 {
	gap := max(0, -w.record)
	out := max(noise, (w.record-w.center)/3)
	return t / (w.n + t) * math.Exp(-gap/out)
}

func phi(x float64) float64 { return 0.5 * math.Erfc(-x/math.Sqrt2) }

// windows are the newest readings, in buckets, in which a trend is looked for: of a summary that
// is full, and as far as it doubles down from there before too few are left.
var windows = [...]int{10, 20, Buckets}

// slopeError is a slope and its error, as residuals that hang together allow it: a cycle of which
// the readings show a part looks like a trend. Readings of which each has to do with the one
// before by rho count as (1-rho)/(1+rho) of as many independent ones (Bayley and Hammersley, The
// "Effective" Number of Independent Observations, 1946).
func slopeError(y []float64, live []bool, noise float64) (slope, err float64) {
	var n, st, sy, stt, sty float64
	for i := range y {
		if live[i] {
			t := float64(i)
			n, st, sy, stt, sty = n+1, st+t, sy+y[i], stt+t*t, sty+t*y[i]
		}
	}
	det := n*stt - st*st
	if n < 5 || det <= 0 {
		return 0, 0
	}
	b := (n*sty - st*sy) / det
	a := (sy - b*st) / n
	var ss, cross, last float64
	for i := range y {
		if live[i] {
			e := y[i] - a - b*float64(i)
			ss += e * e
			cross += e * last
			last = e
		}
	}
	rho := min(0.95, max(0, cross/max(ss, 1e-300)))
	v := max(ss/(n-2), 0.5*noise*noise) // a good fit of a few is luck
	// The variance of a slope, with the number of independent readings.
	return b, math.Sqrt(v * n / det * (1 + rho) / (1 - rho))
}

// What stands out, in units of the noise. Of normal readings one in two million lies five
// deviations away; a jump is the difference of two of them, and costs what was read before it.
const (
	outlying = 5.0
	jumping  = 6.0
	leaping  = 12.0 // toward the limit, where wear that quickens looks alike
)

// valley is how many buckets aside dropValleys looks: four days of the widest ones, which hold
// a working day beside each weekend.
const valley = 16

// dropValleys leaves out readings that lie far from the limit while those before
// and after do not: the part was idle, and its trend went on.
func dropValleys(y []float64, live []bool, noise float64) {
	if noise <= 0 {
		return
	}
	// The second highest of the readings around i, toward one side.
	second := func(i, step int) float64 {
		hi, lo := math.Inf(-1), math.Inf(-1)
		for k := 1; k <= valley; k++ {
			j := i + k*step
			if j < 0 || j >= len(y) {
				break
			}
			if !live[j] {
				continue
			}
			switch {
			case y[j] > hi:
				hi, lo = y[j], hi
			case y[j] > lo:
				lo = y[j]
			}
		}
		return lo
	}
	var idle [Buckets]bool
	for i := range y {
		idle[i] = live[i] && min(second(i, -1), second(i, 1))-y[i] > outlying*noise
	}
	for i := range y {
		live[i] = live[i] && !idle[i]
	}
	// At the end it is not known yet whether they come back: wait for another.
	if end := len(y) - 1; end >= 4 && live[end] {
		if before, _, n := middle(y, live, end-4); n >= 3 && before-y[end] > jumping*noise {
			live[end] = false
		}
	}
}

// scaleOf is scale without the count.
func scaleOf(y []float64, live []bool) float64 {
	s, _ := scale(y, live)
	return s
}

// center is the median of the readings.
func center(y []float64, live []bool) float64 {
	var b [Buckets]float64
	n := 0
	for i := range y {
		if live[i] {
			b[n] = y[i]
			n++
		}
	}
	x := b[:n]
	slices.Sort(x)
	return (x[(n-1)/2] + x[n/2]) / 2
}

// scale is the robust noise of readings: from their differences, about the
// median difference, so that a trend does not count as noise.
func scale(y []float64, live []bool) (float64, int) {
	var d [Buckets]float64
	k, n, prev := 0, 0, -1
	for i := range y {
		if !live[i] {
			continue
		}
		n++
		if prev >= 0 {
			d[k] = (y[i] - y[prev]) / math.Sqrt(float64(i-prev))
			k++
		}
		prev = i
	}
	if k < 2 {
		return 0, n
	}
	x := d[:k]
	slices.Sort(x)
	mid := x[k/2]
	mean := 0.0
	for i := range x {
		x[i] = math.Abs(x[i] - mid)
		mean += x[i]
	}
	slices.Sort(x)
	mean /= float64(k)
	// The deviation of a normal distribution is 1.4826 times its median absolute deviation, and
	// sqrt(pi/2) times its mean one. Many readings of equal value have no median deviation: half of
	// what the mean says, .63, and a little less then holds.
	return max(1.4826*x[k/2], 0.6*mean) / math.Sqrt2, n
}

// middle is the median, the spread and the number of up to four readings.
func middle(y []float64, live []bool, from int) (mid, spread float64, n int) {
	var b [4]float64
	for i := max(0, from); i < len(y) && i < from+4; i++ {
		if live[i] {
			b[n] = y[i]
			n++
		}
	}
	if n == 0 {
		return 0, 0, 0
	}
	x := b[:n]
	slices.Sort(x)
	return (x[(n-1)/2] + x[n/2]) / 2, x[n-1] - x[0], n
}

// lastStep returns the index after the last jump of the level: maintenance, an
// exchange, another load. What came before it says nothing about the trend.
func lastStep(y []float64, live []bool) int {
	noise, n := scale(y, live)
	if n < 8 {
		return 0
	}
	noise = max(noise, 1e-9)
	for i := len(y) - 2; i >= 4; i-- {
		before, spread0, n0 := middle(y, live, i-4)
		after, spread1, n1 := middle(y, live, i)
		if n0 < 3 || n1 < 2 {
			continue
		}
		jump := after - before
		least := 2 * max(spread0, spread1) // or it is how they go up and down
		if jump > 0 {                      // a trend that quickens is no jump: toward the limit it must stand alone
			if n1 < 4 {
				continue
			}
			least = max(4*max(spread0, spread1), leaping*noise)
		}
		if size := math.Abs(jump); size > jumping*noise && size > least {
			return i
		}
	}
	return 0
}

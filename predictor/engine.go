package predictor

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auspex-dev/auspex/predictor/anomaly"
	"github.com/auspex-dev/auspex/predictor/messages"
	"github.com/auspex-dev/auspex/predictor/trend"
	"github.com/auspex-dev/auspex/schemas"
	"github.com/auspex-dev/auspex/schemas/auspexv1"
)

// The model that predictions name.
var model = schemas.Model{Name: "trend", Version: "1"}

const (
	// slowest and quickest are the widest buckets of a series' two summaries:
	// sixteen days of slow wear, and half an hour of what fails fast.
	slowest  = 6 * time.Hour
	quickest = 30 * time.Second

	minPeers = 3    // parts beside which a part is held against their median
	confirm  = 2    // forecasts in a row that open a prediction
	beyond   = 3    // readings in a row beyond the limit that make it come true
	settled  = 12   // readings in a row by which a series has come back
	back     = 5    // readings in a row within the limit that make it another life
	margin   = 0.01 // and by how much, as a share of the limit
	odd      = 4.0  // anomaly from which on another metric speaks for a prediction
)

type openKey struct{ resource, metric string }

// opened is an open prediction and the series that speaks for it; nil until a
// restarted process has seen the series again.
type opened struct {
	prediction schemas.Prediction
	by         *tracked
	since      time.Time // when this process took it over
}

type savedState struct {
	of    *tracked
	id    string
	state []byte
}

// tracked is a series with a limit.
type tracked struct {
	id     string
	limit  *Limit
	place  Placement
	part   string // as the device names it
	peers  bool   // values are shares of the median of its peers
	decide bool   // whether peers was decided

	slow, quick *trend.Series
	teller      trend.Teller
	median      float64 // of the peers, smoothed
	now         float64 // newest reading, in the metric's unit
	share       float64 // the same as the series is followed: with peers, a share of their median
	odd         anomaly.Series
	oddness     float64
	over, under uint8 // readings in a row beyond and within the limit
	crossed     bool
	alarms      uint8
	speaks      bool    // the open prediction is this series' own
	opened      int64   // when it was opened, ns
	start, near float64 // level when it was opened, and the nearest to the limit since, as the series is followed
	back        uint8   // readings in a row that lie where it was when it was opened, or further away
	recovered   int64   // when the first of them was read, ns
	changed     bool    // since the state was written
	last        time.Time
}

// device remembers the series of one device and collector.
type device struct {
	series map[uint64]*tracked // nil: has no limit
	gpus   map[uint32][]*tracked
	all    []*tracked
}

type deviceKey struct{ device, collector string }

// engine is the predictor without its bus and stores.
type engine struct {
	cfg    Config
	limits []Limit
	names  map[string]bool // metrics that have a limit
	gpu    []int           // indexes of schemas.GPUMetrics that have one
	placer Placer

	devices map[deviceKey]*device
	open    map[openKey]*opened
	past    map[openKey]*tracked // series that has said that it crossed
	told    map[string]time.Time // when predictions were told last, before a restart
	saved   map[string][]byte
	changed map[string]schemas.Prediction // by id, to be written
	n       int

	refs  []*tracked // of the batch at hand
	group []float64

	samples, skipped, refused, forecasts prometheus.Counter
}

func newEngine(cfg Config, limits []Limit, placer Placer) *engine {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "auspex_predictor_" + name, Help: help})
	}
	e := &engine{
		cfg: cfg, limits: limits, names: map[string]bool{}, placer: placer,
		devices: map[deviceKey]*device{}, open: map[openKey]*opened{}, past: map[openKey]*tracked{}, told: map[string]time.Time{}, changed: map[string]schemas.Prediction{},
		samples:   counter("samples_total", "Samples of series with a limit."),
		skipped:   counter("samples_skipped_total", "Samples that could not be held against their peers, or carry no number."),
		refused:   counter("series_refused_total", "Samples of series beyond max_series."),
		forecasts: counter("forecasts_total", "Forecasts that were computed."),
	}
	for i := range limits {
		e.names[limits[i].Metric] = true
	}
	for i := range schemas.GPUMetrics {
		if e.names[schemas.GPUMetrics[i].Name] {
			e.gpu = append(e.gpu, i)
		}
	}
	return e
}

// Batch takes what one collector read from one device.
func (e *engine) Batch(b *auspexv1.Batch) {
	if b.Samples == nil && b.Gpus == nil {
		return
	}
	k := deviceKey{b.Device, b.Collector}
	d := e.devices[k]
	if d == nil {
		d = &device{series: map[uint64]*tracked{}, gpus: map[uint32][]*tracked{}}
		k = deviceKey{strings.Clone(b.Device), strings.Clone(b.Collector)}
		e.devices[k] = d
	}
	if b.Samples != nil {
		e.sampleColumns(k, d, b.Samples)
	}
	if b.Gpus != nil && len(e.gpu) > 0 {
		e.gpuColumns(k, d, b.Gpus)
	}
}

func (e *engine) sampleColumns(k deviceKey, d *device, c *auspexv1.SampleColumns) {
	e.refs = e.refs[:0]
	any := false
	for _, s := range c.Series {
		t := e.seriesOf(k, d, c.Symbols, s)
		e.refs = append(e.refs, t)
		any = any || t != nil
	}
	if !any {
		return
	}
	n := min(len(c.Ref), len(c.Delta), len(c.Value))
	for i := range n {
		if int(c.Ref[i]) >= len(e.refs) {
			continue
		}
		t := e.refs[c.Ref[i]]
		if t == nil {
			continue
		}
		at, v := time.Unix(0, c.BaseTime+c.Delta[i]), c.Value[i]
		if math.IsNaN(v) || math.IsInf(v, 0) {
			e.skipped.Inc()
			continue
		}
		if t.limit.Peers && (t.peers || !t.decide) {
			median, ok := e.peers(c, n, i, t)
			if !t.decide {
				t.decide, t.peers = true, ok
			}
			if t.peers {
				if !ok || median <= 0 {
					e.skipped.Inc()
					continue
				}
				if t.median == 0 {
					t.median = median
				}
				t.median += 0.3 * (median - t.median)
				e.sample(d, t, at, v, v/median)
				continue
			}
		}
		e.sample(d, t, at, v, v)
	}
}

// peers returns the median of the other series of the same limit in a batch.
// That a part is held against others only, not itself, lets it not hide its wear.
func (e *engine) peers(c *auspexv1.SampleColumns, n, self int, t *tracked) (float64, bool) {
	e.group = e.group[:0]
	for i := range n {
		if int(c.Ref[i]) >= len(e.refs) || i == self {
			continue
		}
		if o := e.refs[c.Ref[i]]; o != nil && o != t && o.limit == t.limit && c.Value[i] > 0 {
			e.group = append(e.group, c.Value[i])
		}
	}
	if len(e.group) < minPeers {
		return 0, false
	}
	slices.Sort(e.group)
	m := len(e.group) / 2
	if len(e.group)%2 == 1 {
		return e.group[m], true
	}
	return (e.group[m-1] + e.group[m]) / 2, true
}

// seriesOf finds or makes the series; nil has no limit.
func (e *engine) seriesOf(k deviceKey, d *device, symbols []string, s *auspexv1.Series) *tracked {
	sym := func(i uint32) string {
		if int(i) >= len(symbols) {
			return ""
		}
		return symbols[i]
	}
	if s == nil || !e.names[sym(s.Metric)] {
		return nil
	}
	h := hashOf(sym(s.Metric), sym(s.PartKind), sym(s.Part))
	for _, l := range s.Labels {
		h = hashMore(h, sym(l))
	}
	t, known := d.series[h]
	if known {
		return t
	}
	metric, kind, part := sym(s.Metric), sym(s.PartKind), sym(s.Part)
	i := slices.IndexFunc(e.limits, func(l Limit) bool { return l.Metric == metric && (l.Kind == "" || l.Kind == kind) })
	if i < 0 {
		return nil
	}
	if e.n >= e.cfg.MaxSeries {
		e.refused.Inc()
		return nil
	}
	t = e.track(k, d, &e.limits[i], h, e.placer.Part(k.device, kind, part), strings.Clone(part))
	d.series[h] = t
	return t
}

func (e *engine) track(k deviceKey, d *device, l *Limit, h uint64, at Placement, part string) *tracked {
	_, below := l.value()
	t := &tracked{
		id: k.device + "/" + k.collector + "/" + strconv.FormatUint(h, 16), limit: l, place: at, part: part,
		slow: trend.New(trend.Config{MaxWidth: slowest, Below: below}), quick: trend.New(trend.Config{MaxWidth: quickest, Below: below}),
	}
	if b, ok := e.saved[t.id]; ok {
		t.restore(b)
		delete(e.saved, t.id)
	}
	key := openKey{at.Resource, l.Metric}
	if o := e.open[key]; o != nil && (o.by == nil || t.speaks && !o.by.speaks) {
		o.by = t
	}
	if t.crossed {
		e.past[key] = t
	}
	d.all = append(d.all, t)
	e.n++
	return t
}

func (e *engine) gpuColumns(k deviceKey, d *device, g *auspexv1.GpuColumns) {
	n := min(len(g.Gpu), len(g.Delta))
	for i := range n {
		ts, ok := d.gpus[g.Gpu[i]]
		if !ok {
			if e.n+len(e.gpu) > e.cfg.MaxSeries {
				e.refused.Inc()
				continue
			}
			var uuid, pci string
			if i < len(g.Uuid) {
				uuid = g.Uuid[i]
			}
			if i < len(g.Pci) {
				pci = g.Pci[i]
			}
			at := e.placer.GPU(k.device, g.Gpu[i], uuid, pci)
			for _, m := range e.gpu {
				name := schemas.GPUMetrics[m].Name
				l := slices.IndexFunc(e.limits, func(l Limit) bool { return l.Metric == name })
				part := "gpu" + strconv.FormatUint(uint64(g.Gpu[i]), 10)
				ts = append(ts, e.track(k, d, &e.limits[l], hashOf(name, "gpu", part), at, part))
			}
			d.gpus[g.Gpu[i]] = ts
		}
		for j, m := range e.gpu {
			col := *schemas.GPUMetrics[m].Get(g)
			if i >= len(col) {
				continue
			}
			if v := col[i]; !math.IsNaN(v) && !math.IsInf(v, 0) {
				e.sample(d, ts[j], time.Unix(0, g.BaseTime+g.Delta[i]), v, v)
			}
		}
	}
}

// sample takes a reading v whose series is followed as x.
func (e *engine) sample(d *device, t *tracked, at time.Time, v, x float64) {
	if !at.After(t.last) {
		return // seen before the restart
	}
	e.samples.Inc()
	t.last, t.now, t.share, t.changed = at, v, x, true
	limit, below := t.limit.value()
	dist := v - limit
	if below {
		dist = -dist
	}
	if dist > 0 {
		t.over, t.under = min(t.over+1, beyond), 0
	} else if t.over = 0; dist < -margin*math.Abs(limit) {
		t.under = min(t.under+1, back)
	}
	t.oddness += 0.3 * (t.odd.Score(at, x) - t.oddness)
	if t.crossed {
		if t.under >= back { // it was exchanged, or its load fell
			t.crossed, t.alarms = false, 0
			delete(e.past, openKey{t.place.Resource, t.limit.Metric})
			t.slow.Reset()
			t.quick.Reset()
			t.teller = trend.Teller{}
		}
		return
	}
	worth := t.slow.Add(at, x)
	worth = t.quick.Add(at, x) || worth
	if t.over >= beyond {
		t.crossed = true
		e.past[openKey{t.place.Resource, t.limit.Metric}] = t
		e.close(t, at, schemas.PredictionCameTrue)
		return
	}
	if t.speaks && e.stays(t, at) {
		e.close(t, at, schemas.PredictionAverted)
		t.slow.Reset()
		t.quick.Reset()
		t.teller, t.alarms = trend.Teller{}, 0
		return
	}
	if worth {
		e.forecast(d, t, at)
	}
}

// cameBack tells whether a level, as the series is followed, is about as far from
// the limit as when the prediction was opened, and by much of the way.
func (t *tracked) cameBack(level float64) bool {
	limit, below := t.limit.value()
	if t.peers {
		limit /= t.median
	}
	from := func(level float64) float64 {
		if below {
			return level - limit
		}
		return limit - level
	}
	now := from(level)
	return now > 0.98*from(t.start) && now-from(t.near) > 0.05*now
}

// stays tells whether the series has come back for so long that it was repaired:
// long as it is summarised, since load comes and goes.
func (e *engine) stays(t *tracked, at time.Time) bool {
	if !t.cameBack(t.share) {
		t.back = 0
		return false
	}
	if t.back++; t.back == 1 {
		t.recovered = at.UnixNano()
	}
	t.back = min(t.back, settled)
	return t.back == settled && at.UnixNano()-t.recovered >= 4*int64(t.slow.Resolution())
}

func (e *engine) forecast(d *device, t *tracked, at time.Time) {
	if t.slow.Span() < t.limit.MinHistory {
		return
	}
	limit, _ := t.limit.value()
	unit := 1.0
	if t.peers {
		unit = t.median
	}
	f, ok := t.slow.Forecast(limit/unit, t.limit.Horizon)
	e.forecasts.Inc()
	if t.quick.Span() < t.slow.Span() { // else both hold the same
		if q, qok := t.quick.Forecast(limit/unit, t.limit.Horizon); qok && (!ok || q.Probability > f.Probability) {
			f, ok = q, true
		}
		e.forecasts.Inc()
	}
	if !ok || f.Crossed { // a crossing is told by readings, not by a forecast
		return
	}
	f, material := t.teller.Tell(f)
	if !t.teller.Alarmed() {
		t.alarms = 0
		if material {
			e.release(t, f, at)
		}
		return
	}
	t.alarms = min(t.alarms+1, confirm)
	if t.alarms == confirm {
		e.tell(d, t, f, unit, material)
	}
}

// tell opens the series' prediction or brings it up to date. unit is what the
// series is followed in shares of.
func (e *engine) tell(d *device, t *tracked, f trend.Forecast, unit float64, material bool) {
	key := openKey{t.place.Resource, t.limit.Metric}
	if e.past[key] != nil {
		return // another collector has seen it cross already
	}
	o := e.open[key]
	switch {
	case o == nil:
		o = &opened{by: t}
		if !t.speaks { // else what was read before a crash is read again
			t.start, t.near, t.opened = f.Level, f.Level, f.At.UnixNano()
		}
		o.prediction = schemas.Prediction{ID: idOf(key, t.opened), State: schemas.PredictionOpen, Opened: time.Unix(0, t.opened).UTC(), Said: rounded(f.Probability)}
		e.open[key] = o
	case o.by == nil:
		o.by = t
	case o.by != t:
		return // another collector reads the same, and speaks
	}
	limit, below := t.limit.value()
	if !t.speaks {
		t.speaks = true
		if t.start == 0 && t.near == 0 { // it was opened before a restart that this series' state did not survive
			t.start, t.near = o.prediction.Value/unit, o.prediction.Value/unit
		}
	}
	if below {
		t.near = min(t.near, f.Level)
	} else {
		t.near = max(t.near, f.Level)
	}
	if !material && o.prediction.ETAP50 != nil {
		return
	}
	f.Level *= unit
	f.Slope *= unit
	p10, p50, p90 := f.At.Add(f.P10), f.At.Add(f.P50), f.At.Add(f.P90)
	p := &o.prediction
	p.Time, p.Site, p.Resource, p.Server = f.At, t.place.Site, t.place.Resource, t.place.Server
	p.Metric, p.Failure = t.limit.Metric, t.limit.Failure
	p.Probability, p.HorizonSeconds = rounded(f.Probability), math.Round(f.Horizon.Seconds())
	p.Horizon = f.Horizon.Round(time.Second).String()
	p.ETAP10, p.ETAP50, p.ETAP90 = &p10, &p50, &p90
	p.Limit, p.Below, p.Value, p.SlopePerHour = limit, below, f.Level, f.Slope
	p.Model, p.Evidence = model, evidence(d, t, f)
	id := messages.Rises
	if below {
		id = messages.Falls
	}
	e.say(p, t, id, map[string]any{"in": words(f.P50), "seconds": math.Round(f.P50.Seconds())})
}

func rounded(p float64) float64 { return math.Round(p*1000) / 1000 }

// evidence names the metric itself and others of the device that are unusual.
func evidence(d *device, t *tracked, f trend.Forecast) []schemas.Evidence {
	out := []schemas.Evidence{{Metric: t.limit.Metric, Share: max(f.Trend, 0.1) * 10}}
	for _, o := range d.all {
		if o.oddness < odd || o.limit == t.limit || o.place.Resource != t.place.Resource && o.place.Resource != t.place.Server {
			continue
		}
		out = append(out, schemas.Evidence{Metric: o.limit.Metric, Share: min(o.oddness, 10)})
		if len(out) == 5 {
			break
		}
	}
	sum := 0.0
	for _, x := range out {
		sum += x.Share
	}
	for i := range out {
		out[i].Share = math.Round(out[i].Share/sum*100) / 100
	}
	return out
}

// release ends the prediction of a series that no longer runs to its limit. It is
// averted where the series has come back.
func (e *engine) release(t *tracked, f trend.Forecast, at time.Time) {
	o := e.open[openKey{t.place.Resource, t.limit.Metric}]
	if o == nil || o.by != t {
		return
	}
	state := schemas.PredictionExpired
	if t.speaks && t.cameBack(f.Level) {
		state = schemas.PredictionAverted
	}
	e.close(t, at, state)
}

func (e *engine) close(t *tracked, at time.Time, state string) {
	key := openKey{t.place.Resource, t.limit.Metric}
	o := e.open[key]
	if o == nil || o.by != t && o.by != nil {
		return
	}
	delete(e.open, key)
	t.speaks, t.start, t.near, t.opened = false, 0, 0, 0
	t.back, t.recovered = 0, 0
	p := &o.prediction
	p.Time, p.State, p.Value = at.UTC(), state, t.now
	_, below := t.limit.value()
	id := messages.Expired
	switch {
	case state == schemas.PredictionCameTrue && below:
		id = messages.Below
	case state == schemas.PredictionCameTrue:
		id = messages.Above
	case state == schemas.PredictionAverted:
		id = messages.Averted
	}
	if state == schemas.PredictionCameTrue {
		p.Probability = 1
	}
	e.say(p, t, id, map[string]any{})
}

func (e *engine) say(p *schemas.Prediction, t *tracked, id string, args map[string]any) {
	if last, ok := e.told[p.ID]; ok {
		if !p.Time.After(last) {
			return // telemetry that is read again
		}
		delete(e.told, p.ID)
	}
	part := strings.TrimPrefix(p.Resource, p.Server+"/")
	if part == p.Resource && t.part != "" {
		part = t.part
	}
	args["part"], args["server"], args["limit"], args["unit"] = part, p.Server, p.Limit, t.limit.Unit
	p.Sentence = &schemas.Sentence{ID: id, Args: args}
	p.Explanation = messages.Text(id, args)
	e.changed[p.ID] = *p
}

// Expire ends the predictions of series that have been silent for long.
func (e *engine) Expire(now time.Time) {
	for key, o := range e.open {
		last := o.prediction.Time
		if o.by != nil && o.by.last.After(last) {
			last = o.by.last
		}
		if o.since.IsZero() {
			o.since = now
		}
		if now.Sub(last) < e.cfg.Silence || now.Sub(o.since) < e.cfg.Silence {
			continue
		}
		t := o.by
		if t == nil {
			i := slices.IndexFunc(e.limits, func(l Limit) bool { return l.Metric == key.metric })
			if i < 0 { // its limit is gone
				delete(e.open, key)
				o.prediction.Time, o.prediction.State = now.UTC(), schemas.PredictionExpired
				e.changed[o.prediction.ID] = o.prediction
				continue
			}
			t = &tracked{limit: &e.limits[i], place: Placement{Resource: key.resource, Server: o.prediction.Server}, now: o.prediction.Value}
		}
		e.close(t, now, schemas.PredictionExpired)
	}
}

// states returns the state of the series that have changed since the last call.
func (e *engine) states() []savedState {
	var out []savedState
	for _, d := range e.devices {
		for _, t := range d.all {
			if t.changed {
				t.changed = false
				out = append(out, savedState{t, t.id, t.state()})
			}
		}
	}
	return out
}

const trackedVersion = 2

// flags and numbers are what a state holds beside the summaries.
func (t *tracked) flags() []*bool { return []*bool{&t.peers, &t.decide, &t.crossed, &t.speaks} }

func (t *tracked) numbers() []*float64 {
	return []*float64{&t.median, &t.now, &t.share, &t.oddness, &t.start, &t.near}
}

func (t *tracked) times() []*int64 { return []*int64{&t.opened, &t.recovered} }

func (t *tracked) state() []byte {
	flags := byte(0)
	for i, f := range t.flags() {
		if *f {
			flags |= 1 << i
		}
	}
	b := append(make([]byte, 0, 2048), trackedVersion, flags, t.over, t.under, t.alarms, t.back)
	for _, v := range t.numbers() {
		b = appendFloat(b, *v)
	}
	for _, v := range t.times() {
		b = binary.LittleEndian.AppendUint64(b, uint64(*v))
	}
	b = t.odd.AppendBinary(b)
	b = t.teller.AppendBinary(b)
	b, _ = t.slow.AppendBinary(b) // cannot fail
	b, _ = t.quick.AppendBinary(b)
	return b
}

// restore takes a state; one that it does not know is learnt anew.
func (t *tracked) restore(b []byte) {
	const head = 6
	numbers, times := t.numbers(), t.times()
	if len(b) < head+8*(len(numbers)+len(times)) || b[0] != trackedVersion {
		return
	}
	rest := b[head:]
	words := make([]uint64, len(numbers)+len(times))
	for i := range words {
		words[i] = binary.LittleEndian.Uint64(rest[8*i:])
	}
	rest = rest[8*len(words):]
	var odd anomaly.Series
	var teller trend.Teller
	var slow, quick trend.Series
	rest, err := odd.DecodeBinary(rest)
	for _, decode := range []func([]byte) ([]byte, error){teller.DecodeBinary, slow.DecodeBinary, quick.DecodeBinary} {
		if err == nil {
			rest, err = decode(rest)
		}
	}
	if err != nil || len(rest) != 0 {
		return
	}
	for i, f := range t.flags() {
		*f = b[1]&(1<<i) != 0
	}
	t.over, t.under, t.alarms, t.back = b[2], b[3], b[4], b[5]
	for i, v := range numbers {
		*v = math.Float64frombits(words[i])
	}
	for i, v := range times {
		*v = int64(words[len(numbers)+i])
	}
	t.odd, t.teller = odd, teller
	*t.slow, *t.quick = slow, quick
	if last, _ := slow.Last(); slow.Len() > 0 {
		t.last = last
	}
}

func idOf(k openKey, at int64) string {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s\x00%s\x00%d", k.resource, k.metric, at)
	return fmt.Sprintf("prd-%012x", h.Sum64()&0xffffffffffff)
}

// words says a duration as people do.
func words(d time.Duration) string {
	switch {
	case d < 90*time.Second:
		return fmt.Sprintf("%d s", int(d.Seconds()+0.5))
	case d < 90*time.Minute:
		return fmt.Sprintf("%d min", int(d.Minutes()+0.5))
	case d < 36*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()+0.5))
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24+0.5))
}

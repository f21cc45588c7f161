package predictor

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/internal/cmdb"
	"auspex/predictor/anomaly"
	"auspex/predictor/messages"
	"auspex/predictor/trend"
	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

// The model that predictions name.
var model = schemas.Model{Name: "trend", Version: "1"}

const (
	minPeers = 3 // parts beside which a part is held against their median: one of them may be bad
	// Which other metrics are listed as evidence; neither changes whether or when something is predicted.
	odd    = 4.0 // anomaly, in deviations, from which on one is: of normal readings one in 16,000
	evened = 0.3 // weight of the newest anomaly: it takes three readings in a row, or one of 13 deviations
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
	of     *tracked
	device *device
	id     string
	state  []byte
}

// tracked is a series with a limit.
type tracked struct {
	id     string
	limit  *Limit
	place  cmdb.Placement
	part   string      // as the device names it
	beside *companions // what is read beside it; nil: nothing
	peers  bool        // values are shares of the median of its peers
	decide bool        // whether peers was decided

	own, parts *given // what the device says of this reading, and of all of its part
	source     string // of the limit
	keep       bool   // a restart has brought the device's limit, which was not read since

	follower *trend.Follower
	now      float64 // newest reading
	odd      anomaly.Series
	oddness  float64
	owns     bool  // the open prediction is this series' own
	opened   int64 // when it was opened, ns
	changed  bool  // since the state was written
}

// companions holds what metrics that explain others of the same part read in the
// newest batch that had them.
type companions struct {
	values  []float64 // by the engine's drivers
	batches []uint64
}

// entry is what a series of a batch is to the predictor: followed, read beside
// others, both or neither.
type entry struct {
	t    *tracked
	c    *companions
	slot int   // in the companions
	b    bound // of thresholds
}

// device remembers the series of one device and collector.
type device struct {
	series map[uint64]entry
	parts  map[uint64]*companions // by part
	given  map[uint64]*given      // by metric, part and labels
	gpus   map[uint32][]*tracked
	all    []*tracked
}

type deviceKey struct{ device, collector string }

// gpuLimit is a limit of a metric of GPUs.
type gpuLimit struct {
	limit   *Limit
	column  int   // of schemas.GPUMetrics
	drivers []int // of schemas.GPUMetrics
}

// engine is the predictor without its bus and stores.
type engine struct {
	cfg     Config
	limits  []Limit
	names   map[string]bool // metrics that have a limit
	drivers map[string]int  // metrics that explain others, and their place in companions
	gpu     []gpuLimit
	placer  cmdb.Placer

	devices   map[deviceKey]*device
	open      map[openKey]*opened
	past      map[openKey]*tracked // series that has said that it crossed
	given     map[openKey]*given   // what any collector reads of a part's limits
	published map[string]time.Time // when predictions were told last, before a restart
	saved     map[string][]byte
	changed   map[string]schemas.Prediction // by id, to be written
	n         int

	batches uint64
	refs    []entry // of the batch at hand
	group   []float64
	others  [trend.MaxDrivers]float64

	samples, skipped, refused, forecasts prometheus.Counter
}

func newEngine(cfg Config, limits []Limit, placer cmdb.Placer) *engine {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "auspex_predictor_" + name, Help: help})
	}
	e := &engine{
		cfg: cfg, limits: limits, names: map[string]bool{}, drivers: map[string]int{}, placer: placer,
		devices: map[deviceKey]*device{}, open: map[openKey]*opened{}, past: map[openKey]*tracked{}, given: map[openKey]*given{},
		published: map[string]time.Time{}, changed: map[string]schemas.Prediction{},
		samples:   counter("samples_total", "Samples of series with a limit."),
		skipped:   counter("samples_skipped_total", "Samples without a number, or without enough peers to compare."),
		refused:   counter("series_refused_total", "Samples of series beyond max_series."),
		forecasts: counter("forecasts_total", "Forecasts that were computed."),
	}
	for i := range limits {
		l := &limits[i]
		l.target = l.aim()
		e.names[l.Metric] = true
		for _, name := range l.Drivers {
			if _, ok := e.drivers[name]; !ok {
				e.drivers[name] = len(e.drivers)
			}
		}
	}
	column := func(name string) int {
		return slices.IndexFunc(schemas.GPUMetrics, func(m schemas.GPUMetric) bool { return m.Name == name })
	}
	for i := range schemas.GPUMetrics {
		name := schemas.GPUMetrics[i].Name
		l := slices.IndexFunc(limits, func(l Limit) bool { return l.Metric == name })
		if l < 0 {
			continue
		}
		g := gpuLimit{limit: &limits[l], column: i}
		for _, name := range g.limit.Drivers {
			g.drivers = append(g.drivers, column(name)) // -1 is read as missing
		}
		e.gpu = append(e.gpu, g)
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
		d = &device{series: map[uint64]entry{}, parts: map[uint64]*companions{}, given: map[uint64]*given{}, gpus: map[uint32][]*tracked{}}
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
	e.batches++
	followed, beside := false, false
	for _, s := range c.Series {
		x := e.seriesOf(k, d, c.Symbols, s)
		e.refs = append(e.refs, x)
		followed, beside = followed || x.t != nil, beside || x.c != nil || x.b.of != nil
	}
	if !followed && !beside {
		return
	}
	n := min(len(c.Ref), len(c.Delta), len(c.Value))
	if beside { // limits and what explains a reading come before it
		for i := range n {
			if int(c.Ref[i]) >= len(e.refs) {
				continue
			}
			switch x := e.refs[c.Ref[i]]; {
			case x.c != nil:
				x.c.values[x.slot], x.c.batches[x.slot] = c.Value[i], e.batches
			case x.b.of != nil && !math.IsNaN(c.Value[i]) && !math.IsInf(c.Value[i], 0):
				x.b.of.put(x.b.bound, c.Value[i], c.BaseTime+c.Delta[i])
			}
		}
	}
	for i := range n {
		if int(c.Ref[i]) >= len(e.refs) {
			continue
		}
		x := e.refs[c.Ref[i]]
		t := x.t
		if t == nil {
			continue
		}
		r := trend.Reading{At: time.Unix(0, c.BaseTime+c.Delta[i]), V: c.Value[i]}
		if math.IsNaN(r.V) || math.IsInf(r.V, 0) {
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
				r.Peers = median
			}
		}
		if t.beside != nil {
			r.Others = e.others[:len(t.limit.Drivers)]
			for j, name := range t.limit.Drivers {
				slot := e.drivers[name]
				if r.Others[j] = math.NaN(); t.beside.batches[slot] == e.batches {
					r.Others[j] = t.beside.values[slot]
				}
			}
		}
		e.sample(d, t, r)
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
		if o := e.refs[c.Ref[i]].t; o != nil && o != t && o.limit == t.limit && c.Value[i] > 0 {
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

// seriesOf finds or makes what a series is.
func (e *engine) seriesOf(k deviceKey, d *device, symbols []string, s *auspexv1.Series) entry {
	if s == nil {
		return entry{}
	}
	sym := func(i uint32) string { return symbol(symbols, i) }
	metric := sym(s.Metric)
	slot, explains := e.drivers[metric]
	reading, bounds := schemas.ThresholdOf(metric)
	bounds = bounds && e.names[reading]
	if !e.names[metric] && !explains && !bounds {
		return entry{}
	}
	kind, part := sym(s.PartKind), sym(s.Part)
	h := hashOf(metric, kind, part)
	for _, l := range s.Labels {
		h = hashMore(h, sym(l))
	}
	x, known := d.series[h]
	if known {
		return x
	}
	if bounds {
		if len(d.given) < e.cfg.MaxSeries {
			x.b = d.boundOf(symbols, s, reading, kind, part)
		}
		d.series[h] = x
		return x
	}
	i := slices.IndexFunc(e.limits, func(l Limit) bool { return l.Metric == metric && (l.Kind == "" || l.Kind == kind) })
	if i >= 0 && e.n >= e.cfg.MaxSeries {
		e.refused.Inc()
		i = -1
	}
	if explains {
		x.c, x.slot = e.companionsOf(d, kind, part), slot
	}
	if i >= 0 {
		l := &e.limits[i]
		x.t = e.track(k, d, l, h, e.placer.Part(k.device, kind, part), strings.Clone(part))
		x.t.own, x.t.parts = d.givenOf(h), d.givenOf(hashOf(metric, kind, part))
		if len(l.Drivers) > 0 {
			x.t.beside = e.companionsOf(d, kind, part)
		}
	}
	if i >= 0 || !e.names[metric] { // else it may be followed when another has gone
		d.series[h] = x
	}
	return x
}

// companionsOf finds or makes the companions of a part.
func (e *engine) companionsOf(d *device, kind, part string) *companions {
	h := hashOf(kind, part)
	c := d.parts[h]
	if c == nil {
		c = &companions{values: make([]float64, len(e.drivers)), batches: make([]uint64, len(e.drivers))}
		d.parts[h] = c
	}
	return c
}

func (e *engine) track(k deviceKey, d *device, l *Limit, h uint64, at cmdb.Placement, part string) *tracked {
	t := &tracked{
		id: k.device + "/" + k.collector + "/" + strconv.FormatUint(h, 16), limit: l, place: at, part: part,
		follower: trend.NewFollower(l.target),
	}
	if b, ok := e.saved[t.id]; ok {
		t.restore(b)
		delete(e.saved, t.id)
	}
	key := openKey{at.Resource, l.Metric}
	if o := e.open[key]; o != nil && (o.by == nil || t.owns && !o.by.owns) {
		o.by = t
	}
	if t.follower.Crossed() {
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
			for _, l := range e.gpu {
				part := "gpu" + strconv.FormatUint(uint64(g.Gpu[i]), 10)
				t := e.track(k, d, l.limit, hashOf(l.limit.Metric, "gpu", part), at, part)
				t.own = d.givenOf(hashOf(l.limit.Metric, schemas.KindGPU, part))
				for _, o := range ts {
					o.follower.Beside(t.follower)
					t.follower.Beside(o.follower)
				}
				ts = append(ts, t)
			}
			d.gpus[g.Gpu[i]] = ts
		}
		for j, l := range e.gpu {
			v := cell(g, l.column, i)
			if math.IsNaN(v) || math.IsInf(v, 0) {
				continue
			}
			r := trend.Reading{At: time.Unix(0, g.BaseTime+g.Delta[i]), V: v, Others: e.others[:len(l.drivers)]}
			for k, column := range l.drivers {
				r.Others[k] = cell(g, column, i)
			}
			e.sample(d, ts[j], r)
		}
	}
}

// cell is a reading of a GPU, NaN where there is none.
func cell(g *auspexv1.GpuColumns, column, row int) float64 {
	if column < 0 {
		return math.NaN()
	}
	if c := *schemas.GPUMetrics[column].Get(g); row < len(c) {
		return c[row]
	}
	return math.NaN()
}

// sample takes a reading of a series.
func (e *engine) sample(d *device, t *tracked, r trend.Reading) {
	if !t.follower.Fresh(r.At) {
		return // seen before the restart
	}
	e.samples.Inc()
	t.now, t.changed = r.V, true
	if published := t.follower.Crossed() || t.follower.Alarmed(); e.aim(t, r.At) && published { // of a limit that is none
		key := openKey{t.place.Resource, t.limit.Metric}
		if e.past[key] == t {
			delete(e.past, key)
		}
		e.close(t, r.At, schemas.PredictionExpired)
	}
	x := r.V
	if r.Peers > 0 {
		x /= r.Peers
	} else if t.limit.Share && t.source != schemas.LimitOfDevice {
		e.skipped.Inc() // there is nothing that it could be a share of
		return
	}
	t.oddness += evened * (t.odd.Score(r.At, x) - t.oddness)
	crossed := t.follower.Crossed()
	f, change := t.follower.Add(r)
	if change == trend.Same {
		return
	}
	e.forecasts.Add(float64(t.follower.Computed()))
	key := openKey{t.place.Resource, t.limit.Metric}
	if crossed && !t.follower.Crossed() && e.past[key] == t { // it was exchanged, or its load fell
		delete(e.past, key)
	}
	switch {
	case change == trend.CameTrue:
		e.past[key] = t
		e.close(t, r.At, schemas.PredictionCameTrue)
	case change == trend.Averted:
		e.close(t, r.At, schemas.PredictionAverted)
	case t.follower.Alarmed():
		e.revise(d, t, f, r.At, change == trend.Material)
	case change != trend.Stands:
		e.close(t, r.At, schemas.PredictionExpired)
	}
}

// revise opens the series' prediction or brings it up to date.
func (e *engine) revise(d *device, t *tracked, f trend.Forecast, at time.Time, material bool) {
	key := openKey{t.place.Resource, t.limit.Metric}
	if e.past[key] != nil {
		return // another collector has seen it cross already
	}
	o := e.open[key]
	switch {
	case o == nil:
		o = &opened{by: t}
		if !t.owns { // else what was read before a crash is read again
			t.opened = at.UnixNano()
		}
		o.prediction = schemas.Prediction{
			ID: idOf(key, t.opened), State: schemas.PredictionOpen, Opened: time.Unix(0, t.opened).UTC(), FirstProbability: rounded(f.Probability),
		}
		e.open[key] = o
	case o.by == nil:
		o.by = t
	case o.by != t:
		return // another collector reads the same, and speaks
	}
	t.owns = true
	if !material && o.prediction.ETAP50 != nil {
		return
	}
	_, below := t.limit.value()
	p10, p50, p90 := f.At.Add(f.P10), f.At.Add(f.P50), f.At.Add(f.P90)
	p := &o.prediction
	p.Time, p.Site, p.Resource, p.Server = at.UTC(), t.place.Site, t.place.Resource, t.place.Server
	p.Metric, p.Failure = t.limit.Metric, t.limit.Failure
	p.Probability, p.HorizonSeconds = rounded(f.Probability), math.Round(f.Horizon.Seconds())
	p.Horizon = f.Horizon.Round(time.Second).String()
	p.ETAP10, p.ETAP50, p.ETAP90 = &p10, &p50, &p90
	p.Limit, p.LimitSource, p.Below, p.Value, p.SlopePerHour = t.shownLimit(), t.source, below, f.Level, f.Slope
	p.Model, p.Evidence = model, evidence(d, t, f)
	id := messages.Rises
	if below {
		id = messages.Falls
	}
	id = messages.Of(id, t.source)
	left := max(0, p50.Sub(at))
	e.emit(p, t, id, map[string]any{"in": words(left), "seconds": math.Round(left.Seconds())})
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

// close ends the prediction for which a series speaks.
func (e *engine) close(t *tracked, at time.Time, state string) {
	key := openKey{t.place.Resource, t.limit.Metric}
	o := e.open[key]
	if o == nil || o.by != t && o.by != nil {
		return
	}
	delete(e.open, key)
	t.owns, t.opened = false, 0
	p := &o.prediction
	p.Time, p.State, p.Value = at.UTC(), state, t.now
	_, below := t.limit.value()
	id := messages.Expired
	switch {
	case state == schemas.PredictionCameTrue && below:
		id = messages.Of(messages.Below, p.LimitSource)
	case state == schemas.PredictionCameTrue:
		id = messages.Of(messages.Above, p.LimitSource)
	case state == schemas.PredictionAverted:
		id = messages.Averted
	}
	if state == schemas.PredictionCameTrue {
		p.Probability = 1
	}
	e.emit(p, t, id, map[string]any{})
}

// emit puts the prediction into words and hands it on to be published.
func (e *engine) emit(p *schemas.Prediction, t *tracked, id string, args map[string]any) {
	if last, ok := e.published[p.ID]; ok {
		if !p.Time.After(last) {
			return // telemetry that is read again
		}
		delete(e.published, p.ID)
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
		if o.by != nil && o.by.follower.Last().After(last) {
			last = o.by.follower.Last()
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
			t = &tracked{limit: &e.limits[i], place: cmdb.Placement{Resource: key.resource, Server: o.prediction.Server}, now: o.prediction.Value}
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
				out = append(out, savedState{t, d, t.id, t.state()})
			}
		}
	}
	return out
}

// Versions of the state: the older one does not say which limit was followed.
const (
	trackedVersion = 4
	trackedBefore  = 3
)

// state is all that a restarted process has to know of the series.
func (t *tracked) state() []byte {
	b := append(make([]byte, 0, 8192), trackedVersion)
	for _, f := range []bool{t.peers, t.decide, t.owns} {
		b = append(b, 0)
		if f {
			b[len(b)-1] = 1
		}
	}
	for _, v := range []uint64{
		hashOf(t.limit.Drivers...), math.Float64bits(t.now), math.Float64bits(t.oddness), uint64(t.opened), math.Float64bits(t.deviceLimit()),
	} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	b = t.follower.AppendBinary(t.odd.AppendBinary(b))
	return binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
}

// shownLimit is the limit as people are told it: one that moves with the peers to three digits.
func (t *tracked) shownLimit() float64 {
	v := t.follower.Limit()
	if t.source == schemas.LimitOfDevice || !t.limit.Share || v == 0 {
		return v
	}
	unit := math.Pow(10, math.Floor(math.Log10(math.Abs(v)))-2)
	return math.Round(v/unit) * unit
}

// deviceLimit is the limit if the device gives it, NaN if it is ours.
func (t *tracked) deviceLimit() float64 {
	if t.source == schemas.LimitOfDevice || t.keep {
		return t.follower.Limit()
	}
	return math.NaN()
}

// restore takes a state; one that it does not know, or that is not what was
// written, is learnt anew.
func (t *tracked) restore(b []byte) {
	head, sum := 4+5*8, 4
	if len(b) > 0 && b[0] == trackedBefore {
		head -= 8
	}
	if len(b) < head+sum || b[0] != trackedVersion && b[0] != trackedBefore {
		return
	}
	written := binary.LittleEndian.Uint32(b[len(b)-sum:])
	if b = b[:len(b)-sum]; crc32.ChecksumIEEE(b) != written {
		return
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(b[4+8*i:]) }
	if word(0) != hashOf(t.limit.Drivers...) {
		return
	}
	var odd anomaly.Series
	rest, err := odd.DecodeBinary(b[head:])
	if err != nil || t.follower.DecodeBinary(rest) != nil {
		return
	}
	t.odd = odd
	t.peers, t.decide, t.owns = b[1] == 1, b[2] == 1, b[3] == 1
	t.now, t.oddness, t.opened = math.Float64frombits(word(1)), math.Float64frombits(word(2)), int64(word(3))
	if limit := math.Float64frombits(word(4)); b[0] == trackedVersion && limit-limit == 0 && !t.limit.Fixed {
		t.follower.Adopt(limit)
		t.keep = true
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

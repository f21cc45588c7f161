package sink

import (
	"context"
	"encoding/json"
	"math"
	"time"

	"auspex/internal/bus"
	"auspex/internal/bus/wire"
	"auspex/internal/cmdb"
	"auspex/internal/store/clickhouse"
	"auspex/internal/store/hot"
	"auspex/pipeline/dedup"
	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

// maxAhead is how far a collector's clock may be ahead of the bus's before the
// latter is taken.
const maxAhead = time.Hour

// batchRecord is a decoded batch.
type batchRecord struct {
	*auspexv1.Batch
	at time.Time
}

func (b batchRecord) observed() time.Time { return b.at }

// batches decodes batches and drops what a producer has sent twice.
type batches struct {
	decoder *wire.Decoder
	seen    *dedup.Batches
	metrics *metrics
}

func (d *batches) decode(ctx context.Context, m bus.Message) record {
	b, ok := d.decoder.Batch(ctx, m)
	if !ok {
		return nil
	}
	if d.seen.Seen(b.GetDevice(), b.GetCollector(), b.GetEpoch(), b.GetSequence()) {
		d.metrics.skipped.WithLabelValues(m.Topic, "sent_twice").Inc()
		return nil
	}
	d.seen.Add(b.GetDevice(), b.GetCollector(), b.GetEpoch(), b.GetSequence())
	at := time.Unix(0, b.GetObserved()).UTC()
	if b.GetObserved() <= 0 || !m.Time.IsZero() && at.Sub(m.Time) > maxAhead {
		at = m.Time.UTC()
	}
	return batchRecord{b, at}
}

// telemetry writes the tables gpu and samples.
type telemetry struct {
	batches
	enrich Enricher

	generation uint64
	devices    map[deviceKey]*device
}

type deviceKey struct{ device, collector string }

// device keeps what was resolved of one device and collector.
type device struct {
	series map[uint64]*series
	gpus   map[uint32]*gpu
	batch  []*series // of the batch at hand
}

type series struct {
	cmdb.Placement
	metric, kind, part, labels string
}

type gpu struct {
	cmdb.Placement
	uuid, pci string
}

// maxRemembered bounds the series that are kept of a device.
const maxRemembered = 1 << 17

func newTelemetry(d *wire.Decoder, e Enricher, m *metrics) *telemetry {
	return &telemetry{batches: batches{d, dedup.NewBatches(), m}, enrich: e, devices: map[deviceKey]*device{}}
}

func (*telemetry) topic() string                 { return schemas.TopicTelemetry }
func (*telemetry) tables() []string              { return []string{"gpu", "samples"} }
func (*telemetry) prepare(context.Context) error { return nil }
func (t *telemetry) block() block {
	return &telemetryBlock{t: t, f64: make([][]float64, len(schemas.GPUMetrics)), f32: make([][]float32, len(schemas.GPUMetrics))}
}

func (t *telemetry) device(b *auspexv1.Batch) *device {
	if g := t.enrich.Generation(); g != t.generation {
		t.generation = g
		clear(t.devices)
	}
	key := deviceKey{b.GetDevice(), b.GetCollector()}
	d := t.devices[key]
	if d == nil || len(d.series) > maxRemembered {
		d = &device{series: map[uint64]*series{}, gpus: map[uint32]*gpu{}}
		t.devices[key] = d
	}
	return d
}

func (t *telemetry) resolve(device string, symbols []string, s *auspexv1.Series) *series {
	out := &series{metric: symbols[s.Metric], kind: symbols[s.PartKind], part: symbols[s.Part]}
	out.Placement = t.enrich.Part(device, out.kind, out.part)
	if len(s.Labels) > 0 {
		labels := make(map[string]string, len(s.Labels)/2)
		for i := 0; i+1 < len(s.Labels); i += 2 {
			labels[symbols[s.Labels[i]]] = symbols[s.Labels[i+1]]
		}
		doc, _ := json.Marshal(labels) // a map of strings has a form
		out.labels = string(doc)
	}
	return out
}

// places are the columns of a placement.
type places struct {
	resource, server, rack, site, model, collector []string
}

func (p *places) add(at *cmdb.Placement, collector string) {
	p.resource = append(p.resource, at.Resource)
	p.server = append(p.server, at.Server)
	p.rack = append(p.rack, at.Rack)
	p.site = append(p.site, at.Site)
	p.model = append(p.model, at.Model)
	p.collector = append(p.collector, collector)
}

func (p *places) columns() []clickhouse.Column {
	return []clickhouse.Column{
		{Name: "resource", Values: p.resource},
		{Name: "server", Values: p.server},
		{Name: "rack", Values: p.rack},
		{Name: "site", Values: p.site},
		{Name: "model", Values: p.model},
		{Name: "collector", Values: p.collector},
	}
}

func (p *places) reset() {
	p.resource, p.server, p.rack, p.site, p.model, p.collector = p.resource[:0], p.server[:0], p.rack[:0], p.site[:0], p.model[:0], p.collector[:0]
}

// origins are the columns that say which message a row came from.
type origins struct {
	partition []uint32
	position  []int64
}

func (o *origins) add(partition uint32, position int64) {
	o.partition = append(o.partition, partition)
	o.position = append(o.position, position)
}

func (o *origins) columns() []clickhouse.Column {
	return []clickhouse.Column{{Name: "bus_partition", Values: o.partition}, {Name: "bus_offset", Values: o.position}}
}

func (o *origins) reset() { o.partition, o.position = o.partition[:0], o.position[:0] }

// telemetryBlock gathers rows of gpu and samples. Times are Unix milliseconds.
type telemetryBlock struct {
	t *telemetry

	gTime, gObserved []int64
	gPlace           places
	gIndex           []uint32
	gUUID            []string
	f64              [][]float64 // counters, by index of schemas.GPUMetrics
	f32              [][]float32 // the others
	gOrigin          origins

	sMetric, sKind, sPart, sLabels []string
	sTime, sObserved               []int64
	sPlace                         places
	sValue                         []float64
	sOrigin                        origins
}

// wide says which metrics need all bits: counters, and the mask of reasons.
func wide(m *schemas.GPUMetric) bool { return m.Counter || m.Column == "clocks_event_reasons" }

func (b *telemetryBlock) add(r record, partition uint32, position int64, has func(string) bool) {
	rec := r.(batchRecord)
	d := b.t.device(rec.Batch)
	if len(rec.GetGpus().GetGpu()) > 0 && !has("gpu") {
		b.addGPUs(d, rec, partition, position)
	}
	if len(rec.GetSamples().GetRef()) > 0 && !has("samples") {
		b.addSamples(d, rec, partition, position)
	}
}

func (b *telemetryBlock) addGPUs(d *device, rec batchRecord, partition uint32, position int64) {
	g, observed := rec.Gpus, rec.at.UnixMilli()
	for i, index := range g.Gpu {
		uuid, pci := item(g.Uuid, i), item(g.Pci, i)
		at := d.gpus[index]
		if at == nil || at.uuid != uuid || at.pci != pci {
			at = &gpu{b.t.enrich.GPU(rec.Device, index, uuid, pci), uuid, pci}
			d.gpus[index] = at
		}
		b.gTime = append(b.gTime, (g.BaseTime+g.Delta[i])/1e6)
		b.gObserved = append(b.gObserved, observed)
		b.gPlace.add(&at.Placement, rec.Collector)
		b.gIndex = append(b.gIndex, index)
		b.gUUID = append(b.gUUID, uuid)
		b.gOrigin.add(partition, position)
	}
	n := len(g.Gpu)
	for m := range schemas.GPUMetrics {
		metric := &schemas.GPUMetrics[m]
		values := *metric.Get(g)
		if wide(metric) {
			b.f64[m] = append(b.f64[m], values...)
			for range n - len(values) {
				b.f64[m] = append(b.f64[m], math.NaN())
			}
			continue
		}
		for _, v := range values {
			b.f32[m] = append(b.f32[m], float32(v))
		}
		for range n - len(values) {
			b.f32[m] = append(b.f32[m], float32(math.NaN()))
		}
	}
}

func item(s []string, i int) string {
	if i < len(s) {
		return s[i]
	}
	return ""
}

func (b *telemetryBlock) addSamples(d *device, rec batchRecord, partition uint32, position int64) {
	c, observed := rec.Samples, rec.at.UnixMilli()
	d.batch = d.batch[:0]
	for _, s := range c.Series {
		var at *series
		if h, ok := hot.SeriesHash(c.Symbols, s); ok {
			if at = d.series[h]; at == nil {
				at = b.t.resolve(rec.Device, c.Symbols, s)
				d.series[h] = at
			}
		}
		d.batch = append(d.batch, at)
	}
	for i, ref := range c.Ref {
		at := d.batch[ref]
		if at == nil { // a series without a metric
			b.t.metrics.skipped.WithLabelValues(schemas.TopicTelemetry, "no_metric").Inc()
			continue
		}
		b.sMetric = append(b.sMetric, at.metric)
		b.sKind = append(b.sKind, at.kind)
		b.sPart = append(b.sPart, at.part)
		b.sLabels = append(b.sLabels, at.labels)
		b.sTime = append(b.sTime, (c.BaseTime+c.Delta[i])/1e6)
		b.sObserved = append(b.sObserved, observed)
		b.sPlace.add(&at.Placement, rec.Collector)
		b.sValue = append(b.sValue, c.Value[i])
		b.sOrigin.add(partition, position)
	}
}

func (b *telemetryBlock) rows() int                    { return len(b.gTime) + len(b.sTime) }
func (b *telemetryBlock) settle(context.Context) error { return nil }

func (b *telemetryBlock) columns(table string) []clickhouse.Column {
	switch {
	case table == "gpu" && len(b.gTime) > 0:
		out := []clickhouse.Column{
			{Name: "time", Values: b.gTime},
			{Name: "observed", Values: b.gObserved},
			{Name: "gpu", Values: b.gIndex},
			{Name: "uuid", Values: b.gUUID},
		}
		out = append(append(out, b.gPlace.columns()...), b.gOrigin.columns()...)
		for m := range schemas.GPUMetrics {
			metric := &schemas.GPUMetrics[m]
			if wide(metric) {
				out = append(out, clickhouse.Column{Name: metric.Column, Values: b.f64[m]})
			} else {
				out = append(out, clickhouse.Column{Name: metric.Column, Values: b.f32[m]})
			}
		}
		return out
	case table == "samples" && len(b.sTime) > 0:
		out := []clickhouse.Column{
			{Name: "metric", Values: b.sMetric},
			{Name: "part_kind", Values: b.sKind},
			{Name: "part", Values: b.sPart},
			{Name: "labels", Values: b.sLabels},
			{Name: "time", Values: b.sTime},
			{Name: "observed", Values: b.sObserved},
			{Name: "value", Values: b.sValue},
		}
		return append(append(out, b.sPlace.columns()...), b.sOrigin.columns()...)
	}
	return nil
}

func (b *telemetryBlock) reset() {
	b.gTime, b.gObserved, b.gIndex, b.gUUID = b.gTime[:0], b.gObserved[:0], b.gIndex[:0], b.gUUID[:0]
	for m := range schemas.GPUMetrics {
		b.f64[m], b.f32[m] = b.f64[m][:0], b.f32[m][:0]
	}
	b.gPlace.reset()
	b.gOrigin.reset()
	b.sMetric, b.sKind, b.sPart, b.sLabels = b.sMetric[:0], b.sKind[:0], b.sPart[:0], b.sLabels[:0]
	b.sTime, b.sObserved, b.sValue = b.sTime[:0], b.sObserved[:0], b.sValue[:0]
	b.sPlace.reset()
	b.sOrigin.reset()
}

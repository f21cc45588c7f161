package hot

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"sync"

	"github.com/cespare/xxhash/v2"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"

	"auspex/internal/cmdb"
	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

// Reasons for which samples are dropped.
const (
	dropOutOfOrder = iota
	dropTooOld
	dropDuplicate
	dropSeriesLimit
	dropFuture
	dropMalformed
	dropReasons
)

var reasons = [dropReasons]string{"out_of_order", "too_old", "duplicate", "series_limit", "future", "malformed"}

// maxRemembered bounds the series that are remembered of a device.
const maxRemembered = 1 << 17

// device remembers the series of one device and collector.
type device struct {
	name, collector string

	mu         sync.Mutex
	contact    contact
	generation uint64
	series     map[uint64]storage.SeriesRef // by the hash of their names
	gpus       map[uint32]*gpu
	hashes     []uint64 // of the batch at hand
	refs       []storage.SeriesRef
}

type gpu struct {
	uuid, pci string
	place     cmdb.Placement
	refs      []storage.SeriesRef // by index of schemas.GPUMetrics
}

func (d *device) reset(generation uint64) {
	d.generation = generation
	d.series = map[uint64]storage.SeriesRef{}
	d.gpus = map[uint32]*gpu{}
}

// transaction is one Append at work.
type transaction struct {
	w                  *Window
	app                storage.Appender
	limit              int64 // ms; what is later was not yet
	observed           int64 // ms
	newest             int64 // ms by the device's clock, of the batch's samples that are far off
	right              bool  // the batch has samples that are not: the device's clock is right
	appended, replaced int
	dropped            [dropReasons]int
	err                error
}

// far reports whether a time is too far from the collector's to be believed by itself.
func (t *transaction) far(ms int64) bool {
	skew := ms - t.observed
	return skew > t.w.cfg.MaxSkew.Milliseconds() || skew < -t.w.cfg.MaxSkew.Milliseconds()
}

// clock looks through the times of a batch.
func (t *transaction) clock(base int64, deltas []int64) {
	t.newest, t.right = math.MinInt64, false
	for _, d := range deltas {
		if ms := (base + d) / 1e6; t.far(ms) {
			t.newest = max(t.newest, ms)
		} else {
			t.right = true
		}
	}
}

// at returns the time under which a sample is stored, in milliseconds. Several values of
// one series keep their distances, so that none takes the place of another: where the
// device's clock is off, the newest of the batch was measured when it was observed; where
// it is right, what is old is old.
func (t *transaction) at(base, delta int64) int64 {
	ms := (base + delta) / 1e6
	if !t.far(ms) || t.right && ms < t.observed {
		return ms
	}
	t.replaced++
	return t.observed - (t.newest - ms)
}

// add appends a sample to the series with the given reference, or makes it. It
// returns the reference, 0 where the sample was refused.
func (t *transaction) add(ref storage.SeriesRef, at int64, v float64, name func() labels.Labels) storage.SeriesRef {
	var err error
	if ref != 0 {
		_, err = t.app.Append(ref, labels.EmptyLabels(), at, v)
		if errors.Is(err, tsdb.ErrInvalidSample) { // the series has left memory
			ref = 0
		}
	}
	if ref == 0 {
		if t.w.Series() >= t.w.cfg.MaxSeries {
			t.dropped[dropSeriesLimit]++
			return 0
		}
		ref, err = t.app.Append(0, name(), at, v)
	}
	switch {
	case err == nil:
		t.appended++
	case errors.Is(err, storage.ErrOutOfOrderSample):
		t.dropped[dropOutOfOrder]++
	case errors.Is(err, storage.ErrTooOldSample), errors.Is(err, storage.ErrOutOfBounds):
		t.dropped[dropTooOld]++
	case errors.Is(err, storage.ErrDuplicateSampleForTimestamp):
		t.dropped[dropDuplicate]++
	case errors.Is(err, tsdb.ErrInvalidSample):
		t.dropped[dropMalformed]++
	default:
		t.err = err
	}
	return ref
}

func (t *transaction) samples(d *device, b *auspexv1.Batch) {
	c := b.GetSamples()
	n := len(c.GetRef())
	if n == 0 {
		return
	}
	if t.observed = b.GetObserved() / 1e6; t.observed > t.limit {
		t.dropped[dropFuture] += n
		return
	}
	if len(c.Delta) != n || len(c.Value) != n {
		t.dropped[dropMalformed] += n
		return
	}
	t.clock(c.BaseTime, c.Delta)
	if len(d.series) > maxRemembered { // labels that change all the time
		clear(d.series)
	}
	d.hashes, d.refs = d.hashes[:0], d.refs[:0]
	for _, s := range c.Series {
		h, ok := SeriesHash(c.Symbols, s)
		if !ok {
			h = 0
		}
		d.hashes = append(d.hashes, h)
		d.refs = append(d.refs, d.series[h])
	}
	for i, r := range c.Ref {
		if int(r) >= len(d.hashes) || d.hashes[r] == 0 {
			t.dropped[dropMalformed]++
			continue
		}
		ref := t.add(d.refs[r], t.at(c.BaseTime, c.Delta[i]), c.Value[i], func() labels.Labels {
			return t.w.sampleLabels(d, c.Symbols, c.Series[r])
		})
		if ref != d.refs[r] {
			d.refs[r], d.series[d.hashes[r]] = ref, ref
		}
	}
}

// SeriesHash hashes what names a series within its device and collector, the same
// in every batch; it is never 0. False means that the series has no metric or
// refers to symbols that are not there.
func SeriesHash(symbols []string, s *auspexv1.Series) (uint64, bool) {
	var h uint64 = 14695981039346656037
	mix := func(i uint32) bool {
		if int(i) >= len(symbols) {
			return false
		}
		h = (h ^ xxhash.Sum64String(symbols[i])) * 1099511628211
		h ^= h >> 29
		return true
	}
	if len(s.Labels)%2 != 0 || !mix(s.Metric) || symbols[s.Metric] == "" || !mix(s.PartKind) || !mix(s.Part) {
		return 0, false
	}
	for _, l := range s.Labels {
		if !mix(l) {
			return 0, false
		}
	}
	return h, h != 0
}

func (w *Window) sampleLabels(d *device, symbols []string, s *auspexv1.Series) labels.Labels {
	kind, part := symbols[s.PartKind], symbols[s.Part]
	set := labels.NewBuilder(labels.EmptyLabels())
	for i := 0; i+1 < len(s.Labels); i += 2 {
		if name := symbols[s.Labels[i]]; name != "" {
			set.Set(name, symbols[s.Labels[i+1]])
		}
	}
	placed := w.placer.Part(d.name, kind, part)
	place(set, d, symbols[s.Metric], placed)
	switch {
	case part == "":
	case kind == schemas.KindGPU:
		set.Set(kind, gpuNumber(part, placed.Resource))
	case kind == schemas.KindPort:
		set.Set(kind, part)
	default:
		if set.Get("sensor") == "" { // a part may have several sensors for one metric
			set.Set("sensor", part)
		}
	}
	return set.Labels()
}

// gpuNumber is what the label gpu says: the number, as exporters write it and rows of
// GPUs do; a controller's own name of a GPU says it by its place in the inventory.
func gpuNumber(part, resource string) string {
	for _, name := range [2]string{part, resource[strings.LastIndexByte(resource, '/')+1:]} {
		if n, err := strconv.ParseUint(strings.TrimPrefix(name, schemas.KindGPU), 10, 16); err == nil {
			return strconv.FormatUint(n, 10)
		}
	}
	return part
}

func place(b *labels.Builder, d *device, metric string, p cmdb.Placement) {
	b.Set(model.MetricNameLabel, metric)
	b.Set("collector", d.collector)
	b.Set("resource", p.Resource)
	b.Set("server", p.Server)
	b.Set("rack", p.Rack)
	b.Set("site", p.Site)
	b.Set("model", p.Model)
}

func (t *transaction) gpus(d *device, b *auspexv1.Batch) {
	g := b.GetGpus()
	n := len(g.GetGpu())
	if n == 0 {
		return
	}
	if t.observed = b.GetObserved() / 1e6; t.observed > t.limit {
		t.dropped[dropFuture] += n
		return
	}
	if len(g.Delta) != n {
		t.dropped[dropMalformed] += n
		return
	}
	t.clock(g.BaseTime, g.Delta)
	for i, index := range g.Gpu {
		gpu := d.gpu(t.w.placer, index, at(g.Uuid, i), at(g.Pci, i))
		ms := t.at(g.BaseTime, g.Delta[i])
		for m := range schemas.GPUMetrics {
			metric := &schemas.GPUMetrics[m]
			col := *metric.Get(g)
			if len(col) == 0 {
				continue
			}
			if len(col) != n {
				t.dropped[dropMalformed]++
				continue
			}
			v := col[i]
			if math.IsNaN(v) {
				continue
			}
			gpu.refs[m] = t.add(gpu.refs[m], ms, v, func() labels.Labels {
				set := labels.NewBuilder(labels.EmptyLabels())
				place(set, d, metric.Name, gpu.place)
				set.Set("gpu", strconv.FormatUint(uint64(index), 10))
				return set.Labels()
			})
		}
	}
}

func at(s []string, i int) string {
	if i < len(s) {
		return s[i]
	}
	return ""
}

func (d *device) gpu(placer Placer, index uint32, uuid, pci string) *gpu {
	g := d.gpus[index]
	if g == nil || g.uuid != uuid || g.pci != pci {
		g = &gpu{uuid: uuid, pci: pci, place: placer.GPU(d.name, index, uuid, pci), refs: make([]storage.SeriesRef, len(schemas.GPUMetrics))}
		d.gpus[index] = g
	}
	return g
}

package collectors

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

// Ref names a series of one [Batch]. It stays valid until the batch is dropped.
type Ref uint32

// Batch gathers what one poll of one device says. It is made once and used
// again: symbols and series stay, samples and events go with each Emit, so that
// a poll of known series allocates nothing per sample. Names that batches have in
// common are held once in the process. It is not safe for concurrent use.
type Batch struct {
	wire    auspexv1.Batch
	samples auspexv1.SampleColumns
	names   *lexicon
	refused int
	every   map[Ref]bool // see Every
	newest  []bool       // of Coalesce, by Ref

	columns *columns  // those of samples, from the first to Emit
	given   []given   // by threshold
	waiting []ungiven // for Emit
}

// maxSeries bounds the series of a device: names that change all the time would
// otherwise grow a batch for ever. A large switch has some 20,000.
const maxSeries = 1 << 16

// Refused is the Ref of a series beyond the bound; its samples are left out.
const Refused = ^Ref(0) - 1

type seriesKey struct{ metric, kind, part, labels string }

// NewBatch makes an empty batch of a device (the server or switch that is read)
// and the registered name of the collector that reads it.
func NewBatch(device, collector string) *Batch {
	b := &Batch{names: newLexicon()}
	b.wire.Device, b.wire.Collector = device, collector
	return b
}

// Series returns the series of a metric of a part, and adds it when it is new.
// Kind and part are hints at the part ("fan", "FAN3"), both "" for the device
// itself; labels are pairs of name and value. Callers on a hot path keep the Ref.
func (b *Batch) Series(metric, kind, part string, labels ...string) Ref {
	key := seriesKey{metric: metric, kind: kind, part: part}
	if len(labels) > 0 {
		key.labels = strings.Join(labels, "\xff")
	}
	if ref, ok := b.names.series[key]; ok {
		return ref
	}
	if len(b.names.list) >= maxSeries {
		return Refused
	}
	n := b.own()
	s := &auspexv1.Series{Metric: n.symbol(metric), PartKind: n.symbol(kind), Part: n.symbol(part)}
	for _, l := range labels {
		s.Labels = append(s.Labels, n.symbol(l))
	}
	ref := Ref(len(n.list))
	n.list = append(n.list, s)
	n.series[key] = ref
	return ref
}

// Sample adds a value of a series at a time of the device's clock.
func (b *Batch) Sample(ref Ref, t time.Time, v float64) {
	if ref == Refused {
		b.refused++
		return
	}
	ns := t.UnixNano()
	if len(b.samples.Ref) == 0 {
		b.samples.BaseTime = ns
		b.borrow()
	}
	b.samples.Ref = append(b.samples.Ref, uint32(ref))
	b.samples.Delta = append(b.samples.Delta, ns-b.samples.BaseTime)
	b.samples.Value = append(b.samples.Value, v)
}

// columns are room for samples. A device that is read twice a minute needs it for some milliseconds.
type columns struct {
	ref   []uint32
	delta []int64
	value []float64
}

var columnPool = sync.Pool{New: func() any { return new(columns) }}

// borrow takes room for samples, until they are gone.
func (b *Batch) borrow() {
	if b.columns == nil {
		b.columns = columnPool.Get().(*columns)
		b.samples.Ref, b.samples.Delta, b.samples.Value = b.columns.ref[:0], b.columns.delta[:0], b.columns.value[:0]
	}
}

// Every says that each sample of a series tells a change: [Batch.Coalesce] leaves none out.
func (b *Batch) Every(ref Ref) {
	if b.every == nil {
		b.every = map[Ref]bool{}
	}
	b.every[ref] = true
}

// Coalesce leaves out the samples after which another of the same series waits, and returns how many
// those were. Events, and samples of series that are marked by [Batch.Every], all stay.
func (b *Batch) Coalesce() (left int) {
	s := &b.samples
	b.newest = slices.Grow(b.newest[:0], len(b.names.list))[:len(b.names.list)]
	clear(b.newest)
	at := len(s.Ref)
	for i := at - 1; i >= 0; i-- {
		ref := s.Ref[i]
		if b.newest[ref] && !b.every[Ref(ref)] {
			left++
			continue
		}
		b.newest[ref] = true
		at--
		s.Ref[at], s.Delta[at], s.Value[at] = ref, s.Delta[i], s.Value[i]
	}
	s.Ref, s.Delta, s.Value = slices.Delete(s.Ref, 0, at), slices.Delete(s.Delta, 0, at), slices.Delete(s.Value, 0, at)
	return left
}

// Hand moves what waits into another batch, for one who emits it while this one gathers more. To is a batch
// that was handed over before and has been emitted; nil makes one. Its series are those of this one.
// Thresholds in it count as sent: who cannot emit it starts over with a new batch.
func (b *Batch) Hand(to *Batch) *Batch {
	if to == nil {
		to = &Batch{}
		to.wire.Device, to.wire.Collector = b.wire.Device, b.wire.Collector
	}
	b.settle(true)
	if b.share(); b.names.shared {
		to.names = b.names
	} else { // series to come are behind what it sees of them
		to.names = &lexicon{symbols: slices.Clip(b.names.symbols), list: slices.Clip(b.names.list), shared: true}
	}
	s, t := &b.samples, &to.samples
	to.columns, t.Ref, t.Delta, t.Value, t.BaseTime = b.columns, s.Ref, s.Delta, s.Value, s.BaseTime
	b.columns, s.Ref, s.Delta, s.Value = nil, nil, nil, nil
	to.wire.Events, b.wire.Events = b.wire.Events, to.wire.Events[:0]
	to.wire.Gpus, b.wire.Gpus = b.wire.Gpus, nil
	to.refused, b.refused = b.refused, 0
	return to
}

// Event adds an event.
func (b *Batch) Event(ev schemas.Event) { b.wire.Events = append(b.wire.Events, ev.Wire()) }

// first puts events before those that wait.
func (b *Batch) first(evs []schemas.Event) {
	for i := range evs {
		b.wire.Events = slices.Insert(b.wire.Events, i, evs[i].Wire())
	}
}

// events are those that wait.
func (b *Batch) events() (all []schemas.Event) {
	for _, ev := range b.wire.Events {
		all = append(all, schemas.EventFromWire(ev))
	}
	return all
}

// Gpus returns the GPU columns of the next batch for the caller to fill; they
// are the caller's to truncate after Emit. Columns without a row are not sent.
func (b *Batch) Gpus() *auspexv1.GpuColumns {
	if b.wire.Gpus == nil {
		b.wire.Gpus = &auspexv1.GpuColumns{}
	}
	return b.wire.Gpus
}

// Len returns how many samples (GPU rows not counted) and events wait for Emit.
func (b *Batch) Len() (samples, events int) { return len(b.samples.Ref), len(b.wire.Events) }

// Discard forgets the samples and events that wait, such as those of a poll
// that failed half-way.
func (b *Batch) Discard() {
	if c := b.columns; c != nil {
		c.ref, c.delta, c.value = b.samples.Ref, b.samples.Delta, b.samples.Value
		columnPool.Put(c)
		b.columns, b.samples.Ref, b.samples.Delta, b.samples.Value = nil, nil, nil, nil
	}
	clear(b.wire.Events)
	b.wire.Events = b.wire.Events[:0]
	b.settle(false)
}

// Emit sends what waits and forgets it; with nothing to send it does nothing.
// Observed is the collector's clock at the poll; zero is the emitter's now. After
// an error nothing is forgotten.
func (b *Batch) Emit(ctx context.Context, out Emitter, observed time.Time) error {
	if c, ok := out.(interface{ refused(n int) }); ok && b.refused > 0 {
		c.refused(b.refused)
		b.refused = 0
	}
	b.wire.Observed, b.wire.Sequence, b.wire.Epoch = 0, 0, 0
	if !observed.IsZero() {
		b.wire.Observed = observed.UnixNano()
	}
	b.wire.Samples = nil
	if len(b.samples.Ref) > 0 {
		b.share()
		b.samples.Symbols, b.samples.Series = b.names.symbols, b.names.list
		b.wire.Samples = &b.samples
	}
	gpus := b.wire.Gpus
	if len(gpus.GetGpu()) == 0 {
		b.wire.Gpus = nil
	}
	var err error
	if b.wire.Samples != nil || b.wire.Gpus != nil || len(b.wire.Events) > 0 {
		if e, ok := out.(*emitter); ok {
			err = e.emit(ctx, &b.wire, b.names.wire)
		} else {
			err = out.Emit(ctx, &b.wire)
		}
	}
	b.wire.Gpus = gpus
	b.samples.Symbols, b.samples.Series = nil, nil
	if err != nil {
		return err
	}
	b.settle(true)
	b.Discard()
	return nil
}

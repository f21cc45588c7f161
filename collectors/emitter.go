package collectors

import (
	"context"
	"errors"
	"time"

	"auspex/internal/bus"
	"auspex/internal/bus/spool"
	"auspex/internal/run"
	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

// Publisher is what the runner needs of the bus.
type Publisher interface {
	// Publish returns when every message is durable, and blocks while the bus is full.
	Publish(ctx context.Context, msgs ...bus.Message) error
}

// maxMessage bounds a message in bytes; a batch of more is published in pieces.
const maxMessage = 512 << 10

// Contact tells the runner that the device answers, for collectors that may be
// silent for long while all is well. Emit tells the same.
func Contact(out Emitter) {
	if c, ok := out.(interface{ contact() }); ok {
		c.contact()
	}
}

// Skipped tells the runner of readings that were left out because the one before took too long.
func Skipped(out Emitter, n int) {
	if c, ok := out.(interface{ skipped(n int) }); ok {
		c.skipped(n)
	}
}

// emitter stamps, marshals and publishes the batches of one instance. The
// semaphore keeps sequence numbers and the order on the bus the same.
type emitter struct {
	r     *Runner
	inst  *instance
	epoch uint64
	seq   uint64
	sem   chan struct{}
	alive func()

	events, samples bucket
}

func newEmitter(r *Runner, inst *instance, epoch uint64) *emitter {
	return &emitter{
		r: r, inst: inst, epoch: epoch, sem: make(chan struct{}, 1),
		events: newBucket(r.cfg.EventRate), samples: newBucket(r.cfg.SampleRate),
	}
}

func (e *emitter) contact() {
	e.r.metrics.lastSuccess.WithLabelValues(e.inst.collector).Set(float64(e.r.settings.Now().UnixMilli()) / 1e3)
	e.alive()
}

func (e *emitter) skipped(n int) {
	e.r.metrics.skipped.WithLabelValues(e.inst.collector).Add(float64(n))
}

// refused counts samples whose series are beyond the bound of their batch.
func (e *emitter) refused(n int) {
	e.r.metrics.dropped.WithLabelValues(e.inst.collector).Add(float64(n))
	e.r.log.Warn(
		"device has too many series; dropping the rest", "collector", e.inst.collector, "device", e.inst.target.ID, "limit", maxSeries,
	)
}

// Emit implements [Emitter].
func (e *emitter) Emit(ctx context.Context, b *auspexv1.Batch) error { return e.emit(ctx, b, nil) }

// emit is Emit of a batch whose symbols and series are encoded already, unless that is nil.
func (e *emitter) emit(ctx context.Context, b *auspexv1.Batch, encoded []byte) error {
	if err := e.hold(ctx, b); err != nil {
		return err
	}
	if err := e.publish(ctx, b, encoded); err != nil {
		return err
	}
	e.contact()
	return nil
}

// hold makes a device that floods wait, so that it takes no more than its share of
// the bus and of all that reads it. Nothing is lost here: its collector reads on
// when the batch has gone.
func (e *emitter) hold(ctx context.Context, b *auspexv1.Batch) error {
	wait := max(e.events.take(len(b.Events)), e.samples.take(sampleCount(b)))
	if wait <= 0 {
		return nil
	}
	e.r.log.Warn("device floods; reading it more slowly", "collector", e.inst.collector, "device", e.inst.target.ID)
	e.r.metrics.held.WithLabelValues(e.inst.collector).Add(wait.Seconds())
	return run.Sleep(ctx, wait)
}

func (e *emitter) publish(ctx context.Context, b *auspexv1.Batch, encoded []byte) error {
	select {
	case e.sem <- struct{}{}:
		defer func() { <-e.sem }()
	case <-ctx.Done():
		return ctx.Err()
	}
	now := e.r.settings.Now().UnixNano()
	if b.Observed == 0 {
		b.Observed = now
	}
	for _, ev := range b.Events {
		if ev.Observed == 0 || ev.Observed == zeroTime {
			ev.Observed = b.Observed
		}
		bound(ev)
	}
	// Events first: they do not wait for samples that a bus refuses.
	if err := e.sendEvents(ctx, b, b.Events); err != nil {
		return err
	}
	if b.Samples == nil && b.Gpus == nil {
		return nil
	}
	part := auspexv1.Batch{Device: b.Device, Collector: b.Collector, Observed: b.Observed, Samples: withEncoded(b.Samples, encoded), Gpus: b.Gpus}
	if len(b.Samples.GetRef()) > 1 && part.SizeVT() > maxMessage {
		part.Samples = nil
		if b.Gpus != nil {
			if err := e.send(ctx, schemas.TopicTelemetry, &part); err != nil {
				return err
			}
		}
		return e.sendSamples(ctx, b, b.Samples)
	}
	return e.send(ctx, schemas.TopicTelemetry, &part)
}

// withEncoded returns samples with their symbols and series as they are on the wire: the same message, in another order.
func withEncoded(s *auspexv1.SampleColumns, encoded []byte) *auspexv1.SampleColumns {
	if s == nil || encoded == nil {
		return s
	}
	out := &auspexv1.SampleColumns{Ref: s.Ref, BaseTime: s.BaseTime, Delta: s.Delta, Value: s.Value}
	out.ProtoReflect().SetUnknown(encoded)
	return out
}

// zeroTime is what the zero time.Time becomes on the wire.
var zeroTime = time.Time{}.UnixNano()

func (e *emitter) sendEvents(ctx context.Context, b *auspexv1.Batch, events []*auspexv1.Event) error {
	if len(events) == 0 {
		return nil
	}
	part := auspexv1.Batch{Device: b.Device, Collector: b.Collector, Observed: b.Observed, Events: events}
	if len(events) > 1 && part.SizeVT() > maxMessage {
		half := len(events) / 2
		if err := e.sendEvents(ctx, b, events[:half]); err != nil {
			return err
		}
		return e.sendEvents(ctx, b, events[half:])
	}
	return e.send(ctx, schemas.TopicEvents, &part)
}

// sendSamples publishes samples in pieces, each with the series that it needs.
func (e *emitter) sendSamples(ctx context.Context, b *auspexv1.Batch, s *auspexv1.SampleColumns) error {
	s = compact(s)
	part := auspexv1.Batch{Device: b.Device, Collector: b.Collector, Observed: b.Observed, Samples: s}
	half := len(s.Ref) / 2
	if half == 0 || part.SizeVT() <= maxMessage {
		return e.send(ctx, schemas.TopicTelemetry, &part)
	}
	cut := func(from, to int) *auspexv1.SampleColumns {
		return &auspexv1.SampleColumns{
			Symbols: s.Symbols, Series: s.Series, BaseTime: s.BaseTime, Ref: s.Ref[from:to], Delta: s.Delta[from:to], Value: s.Value[from:to],
		}
	}
	if err := e.sendSamples(ctx, b, cut(0, half)); err != nil {
		return err
	}
	return e.sendSamples(ctx, b, cut(half, len(s.Ref)))
}

// send publishes one message and tries again while the bus refuses it: events
// until ctx is done, samples until their patience ends or the bus is known to be
// away.
func (e *emitter) send(ctx context.Context, topic string, b *auspexv1.Batch) error {
	name := e.inst.collector
	e.seq++
	b.Epoch, b.Sequence = e.epoch, e.seq
	began := time.Now()
	defer func() { e.r.metrics.busWait.WithLabelValues(name, topic).Add(time.Since(began).Seconds()) }()
	for attempt := 0; ; attempt++ {
		// The bus owns the bytes after Publish, also when it fails.
		value, err := b.MarshalVT()
		if err != nil {
			return err
		}
		err = e.r.pub.Publish(ctx, bus.Message{Topic: topic, Key: b.Device, Value: value})
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		hopeless := errors.Is(err, bus.ErrTooLarge)
		e.r.metrics.busErrors.WithLabelValues(name, topic).Inc()
		if hopeless || attempt == 0 && !errors.Is(err, spool.ErrAway) {
			e.r.log.Warn("bus rejected a batch", "collector", name, "device", b.Device, "topic", topic, "bytes", len(value), "error", err)
		}
		if hopeless || topic == schemas.TopicTelemetry && (errors.Is(err, spool.ErrAway) || time.Since(began) > e.r.cfg.TelemetryPatience) {
			e.r.metrics.dropped.WithLabelValues(name).Add(float64(sampleCount(b)))
			e.r.metrics.lostEvents.WithLabelValues(name).Add(float64(len(b.Events)))
			return nil
		}
		if err := run.Sleep(ctx, backoff(attempt, 100*time.Millisecond, 5*time.Second)); err != nil {
			return err
		}
	}
	e.r.metrics.batches.WithLabelValues(name, topic).Inc()
	e.r.metrics.samples.WithLabelValues(name).Add(float64(sampleCount(b)))
	e.r.metrics.events.WithLabelValues(name).Add(float64(len(b.Events)))
	return nil
}

// sampleCount counts values: those of generic series, and of each filled GPU column.
func sampleCount(b *auspexv1.Batch) int {
	n := len(b.GetSamples().GetValue())
	if g := b.GetGpus(); g != nil {
		rows := len(g.GetGpu())
		for i := range schemas.GPUMetrics {
			if len(*schemas.GPUMetrics[i].Get(g)) == rows {
				n += rows
			}
		}
	}
	return n
}

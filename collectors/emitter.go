package collectors

import (
	"context"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/auspex-dev/auspex/internal/bus"
	"github.com/auspex-dev/auspex/internal/run"
	"github.com/auspex-dev/auspex/schemas"
	"github.com/auspex-dev/auspex/schemas/auspexv1"
)

// Publisher is what the runner needs of the bus.
type Publisher interface {
	// Publish returns when every message is durable, and blocks while the bus is full.
	Publish(ctx context.Context, msgs ...bus.Message) error
}

// maxMessage bounds a message in bytes; a batch of more events is published in pieces.
const maxMessage = 512 << 10

// Contact tells the runner that the device answers, for collectors that may be
// silent for long while all is well. Emit tells the same.
func Contact(out Emitter) {
	if c, ok := out.(interface{ contact() }); ok {
		c.contact()
	}
}

func skipped(out Emitter, n int) {
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
}

func newEmitter(r *Runner, inst *instance, epoch uint64) *emitter {
	return &emitter{r: r, inst: inst, epoch: epoch, sem: make(chan struct{}, 1)}
}

func (e *emitter) contact() {
	e.r.metrics.lastSuccess.WithLabelValues(e.inst.collector).Set(float64(e.r.settings.Now().UnixMilli()) / 1e3)
	e.alive()
}

func (e *emitter) skipped(n int) {
	e.r.metrics.skipped.WithLabelValues(e.inst.collector).Add(float64(n))
}

// Emit implements [Emitter].
func (e *emitter) Emit(ctx context.Context, b *auspexv1.Batch) error {
	if err := e.publish(ctx, b); err != nil {
		return err
	}
	e.contact()
	return nil
}

func (e *emitter) publish(ctx context.Context, b *auspexv1.Batch) error {
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
	}
	if b.Samples != nil || b.Gpus != nil {
		part := auspexv1.Batch{Device: b.Device, Collector: b.Collector, Observed: b.Observed, Samples: b.Samples, Gpus: b.Gpus}
		if err := e.send(ctx, schemas.TopicTelemetry, &part); err != nil {
			return err
		}
	}
	return e.sendEvents(ctx, b, b.Events)
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

// send publishes one message and tries again while the bus refuses it: events
// until ctx is done, samples until their patience ends.
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
		e.r.metrics.busErrors.WithLabelValues(name, topic).Inc()
		e.r.log.Warn("bus refused a batch", "collector", name, "device", b.Device, "topic", topic, "attempt", attempt+1, "err", err)
		if topic == schemas.TopicTelemetry && time.Since(began) > e.r.cfg.TelemetryPatience {
			e.r.metrics.dropped.WithLabelValues(name).Add(float64(sampleCount(b)))
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
		g.ProtoReflect().Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			if fd.IsList() && fd.Kind() == protoreflect.DoubleKind && v.List().Len() == rows {
				n += rows
			}
			return true
		})
	}
	return n
}

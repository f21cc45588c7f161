// Package wire turns messages of the bus into batches and records, for all readers.
// What cannot be decoded, or contradicts itself, goes to the topic deadletter
// with its origin and the reason, and stops nothing else.
package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/internal/bus"
	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

// ErrMalformed is wrapped by every reason to refuse a batch.
var ErrMalformed = errors.New("malformed batch")

// maxRecord bounds the bytes of a record that a dead letter carries.
const maxRecord = 1 << 20

// Decoder decodes for one reader.
type Decoder struct {
	pub    bus.Publisher
	reader string
	log    *slog.Logger
	now    func() time.Time

	batches *prometheus.CounterVec
	dead    *prometheus.CounterVec
	lost    prometheus.Counter
}

// New returns a decoder; reader names who decodes in metrics.
func New(reader string, pub bus.Publisher, log *slog.Logger, reg prometheus.Registerer) *Decoder {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	d := &Decoder{
		pub: pub, reader: reader, log: log, now: time.Now,
		batches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "auspex_decode_batches_total", Help: "Batches decoded.", ConstLabels: prometheus.Labels{"reader": reader},
		}, []string{"topic"}),
		dead: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "auspex_decode_dead_letters_total", Help: "Messages that could not be decoded.", ConstLabels: prometheus.Labels{"reader": reader},
		}, []string{"topic"}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "auspex_decode_dead_letters_lost_total", Help: "Dead letters that could not be published.",
			ConstLabels: prometheus.Labels{"reader": reader},
		}),
	}
	if reg != nil {
		reg.MustRegister(d.batches, d.dead, d.lost)
	}
	return d
}

// Batch decodes a message of the topics telemetry and events. It returns false
// after it has sent a dead letter, or has found that it cannot.
func (d *Decoder) Batch(ctx context.Context, m bus.Message) (*auspexv1.Batch, bool) {
	b := &auspexv1.Batch{}
	return b, d.Into(ctx, m, b)
}

// Into is [Decoder.Batch] into a batch that is used again.
func (d *Decoder) Into(ctx context.Context, m bus.Message, b *auspexv1.Batch) bool {
	err := Decode(m.Value, b)
	if err == nil {
		d.batches.WithLabelValues(m.Topic).Inc()
		return true
	}
	d.Reject(ctx, m, err)
	return false
}

// Record decodes a message of the other topics, which is JSON, and checks it;
// check may be nil. It returns false after it has sent a dead letter, or has found
// that it cannot.
func Record[T any](ctx context.Context, d *Decoder, m bus.Message, check func(*T) error) (*T, bool) {
	v := new(T)
	err := json.Unmarshal(m.Value, v)
	if err == nil && check != nil {
		err = check(v)
	}
	if err != nil {
		d.Reject(ctx, m, fmt.Errorf("record of %s: %w", m.Topic, err))
		return nil, false
	}
	return v, true
}

// Letter returns the message of the topic deadletter that keeps m. Its id is that of
// m's place, so that readers of the same topic write the same letter.
func Letter(m bus.Message, reason error, now time.Time) bus.Message {
	origin := origin(m)
	record := m.Value
	if len(record) > maxRecord {
		record = record[:maxRecord]
	}
	letter, err := json.Marshal(schemas.DeadLetter{
		ID: schemas.EventID(m.Key, m.Topic, origin), Time: now.UTC(), Topic: m.Topic,
		Origin: origin + " of " + m.Key, Reason: reason.Error(), Record: record,
	})
	if err != nil { // strings, a time and bytes always encode
		panic(err)
	}
	return bus.Message{Topic: schemas.TopicDeadletter, Key: m.Key, Value: letter}
}

func origin(m bus.Message) string { return fmt.Sprintf("%s/%d/%d", m.Topic, m.Partition, m.Offset) }

// Reject sends a message to the topic deadletter.
func (d *Decoder) Reject(ctx context.Context, m bus.Message, reason error) {
	d.dead.WithLabelValues(m.Topic).Inc()
	d.log.Warn("cannot decode message", "origin", origin(m), "device", m.Key, "error", reason)
	if err := d.pub.Publish(ctx, Letter(m, reason, d.now())); err != nil {
		d.lost.Inc()
		d.log.Error("cannot publish dead letter", "origin", origin(m), "error", err)
	}
}

// Decode reads a batch into one that is used again, and checks it.
func Decode(value []byte, b *auspexv1.Batch) error {
	b.ResetVT()
	if err := b.UnmarshalVT(value); err != nil {
		return err
	}
	return Check(b)
}

// Check reports the first contradiction in a batch: columns of unequal length,
// references out of range, a device that is missing.
func Check(b *auspexv1.Batch) error {
	if b.GetDevice() == "" {
		return fmt.Errorf("%w: no device", ErrMalformed)
	}
	if err := checkSamples(b.GetSamples()); err != nil {
		return err
	}
	return checkGPUs(b.GetGpus())
}

func checkSamples(s *auspexv1.SampleColumns) error {
	if s == nil {
		return nil
	}
	n := len(s.GetRef())
	if len(s.GetDelta()) != n || len(s.GetValue()) != n {
		return fmt.Errorf("%w: %d series references, %d times, %d values", ErrMalformed, n, len(s.GetDelta()), len(s.GetValue()))
	}
	symbols := uint32(len(s.GetSymbols())) //nolint:gosec // a message is at most 64 MiB
	for i, x := range s.GetSeries() {
		bad := x.GetMetric() >= symbols || x.GetPartKind() >= symbols || x.GetPart() >= symbols || len(x.GetLabels())%2 != 0
		for _, l := range x.GetLabels() {
			bad = bad || l >= symbols
		}
		if bad {
			return fmt.Errorf("%w: series %d refers beyond %d symbols", ErrMalformed, i, symbols)
		}
	}
	series := uint32(len(s.GetSeries())) //nolint:gosec // as above
	for i, r := range s.GetRef() {
		if r >= series {
			return fmt.Errorf("%w: sample %d refers to series %d of %d", ErrMalformed, i, r, series)
		}
	}
	return nil
}

func checkGPUs(g *auspexv1.GpuColumns) error {
	if g == nil {
		return nil
	}
	n := len(g.GetGpu())
	if len(g.GetDelta()) != n {
		return fmt.Errorf("%w: %d GPU rows, %d times", ErrMalformed, n, len(g.GetDelta()))
	}
	for _, c := range [][]string{g.GetUuid(), g.GetPci()} {
		if len(c) != 0 && len(c) != n {
			return fmt.Errorf("%w: %d GPU rows, %d identities", ErrMalformed, n, len(c))
		}
	}
	for _, m := range schemas.GPUMetrics {
		if c := *m.Get(g); len(c) != 0 && len(c) != n {
			return fmt.Errorf("%w: %d GPU rows, %d values of %s", ErrMalformed, n, len(c), m.Name)
		}
	}
	return nil
}

package sink

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/internal/bus"
	"auspex/internal/bus/wire"
	"auspex/pipeline/dedup"
	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

// Window takes telemetry: *[hot.Window].
type Window interface {
	Append(ctx context.Context, batches ...*auspexv1.Batch) error
}

// Hot fills the hot window from the bus. Its position is the group "hot" of the
// bus: what was read twice after a crash has the same times and values, and the
// window keeps it once.
type Hot struct {
	bus     bus.Subscriber
	window  Window
	decoder *wire.Decoder
	seen    *dedup.Batches
	log     *slog.Logger

	failures prometheus.Counter
}

// NewHot returns the component that fills a window.
func NewHot(b bus.Bus, w Window, log *slog.Logger, reg prometheus.Registerer) (*Hot, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	h := &Hot{
		bus: b, window: w, decoder: wire.New("hot", b, log, reg), seen: dedup.NewBatches(), log: log,
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "auspex_sink_hot_failures_total",
			Help: "Failed attempts to append to the hot window or to read for it; they are repeated.",
		}),
	}
	if reg != nil {
		if err := reg.Register(h.failures); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// Name implements run.Component.
func (h *Hot) Name() string { return "hot window" }

// Run reads until ctx is done.
func (h *Hot) Run(ctx context.Context, ready func()) error {
	ready()
	sub := bus.Subscription{Topic: schemas.TopicTelemetry, Group: "hot", MaxBatch: 512}
	return bus.Follow(ctx, h.bus, sub, h.log, h.handle, func(error) { h.failures.Inc() })
}

func (h *Hot) handle(ctx context.Context, msgs []bus.Message) error {
	batches := make([]*auspexv1.Batch, 0, len(msgs))
	for _, m := range msgs {
		b, ok := h.decoder.Batch(ctx, m)
		if !ok || h.seen.Seen(b.GetDevice(), b.GetCollector(), b.GetEpoch(), b.GetSequence()) {
			continue
		}
		batches = append(batches, b)
	}
	if err := h.window.Append(ctx, batches...); err != nil {
		return err
	}
	for _, b := range batches {
		h.seen.Add(b.GetDevice(), b.GetCollector(), b.GetEpoch(), b.GetSequence())
	}
	return nil
}

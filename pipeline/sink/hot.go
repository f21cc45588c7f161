package sink

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/internal/bus"
	"auspex/internal/run"
	"auspex/internal/store/hot"
	"auspex/pipeline/decode"
	"auspex/pipeline/dedup"
	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

// Placer makes the hot window ask an enricher where parts are.
func Placer(e Enricher) hot.Placer { return placer{e} }

type placer struct{ e Enricher }

func (p placer) Part(device, kind, name string) hot.Placement {
	return hot.Placement(p.e.Part(device, kind, name))
}

func (p placer) GPU(device string, index uint32, uuid, pci string) hot.Placement {
	return hot.Placement(p.e.GPU(device, index, uuid, pci))
}

func (p placer) Generation() uint64 { return p.e.Generation() }

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
	decoder *decode.Decoder
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
		bus: b, window: w, decoder: decode.New("hot", b, log, reg), seen: dedup.NewBatches(), log: log,
		failures: prometheus.NewCounter(prometheus.CounterOpts{Name: "auspex_sink_hot_failures_total", Help: "Attempts to append to the hot window, or to read for it, that failed and are made again."}),
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
	pause := shortestPause
	for {
		began := time.Now()
		err := h.bus.Subscribe(ctx, bus.Subscription{Topic: schemas.TopicTelemetry, Group: "hot", MaxBatch: 512}, h.handle)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, bus.ErrClosed) {
			return err
		}
		h.failures.Inc()
		h.log.Warn("hot window is not filled; it is tried again", "error", err)
		if time.Since(began) > time.Minute {
			pause = shortestPause
		}
		if run.Sleep(ctx, pause) != nil {
			return nil
		}
		pause = min(2*pause, longestPause)
	}
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

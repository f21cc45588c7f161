// Package life listens on the bus to what collectors read of a server under
// repair. It needs nothing but the bus, so that control finds out the same in
// every layout of roles. Only the partitions of the server are read, and only its
// own messages are decoded.
package life

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"auspex/control"
	"auspex/internal/bus"
	"auspex/internal/bus/wire"
	"auspex/internal/cmdb"
	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

// Placer says which part of the inventory a record speaks of.
type Placer interface {
	cmdb.Placer
	// Event resolves an event from the device that it names and its hints.
	Event(ev *schemas.Event) cmdb.Placement
}

// Bus implements [control.Life] over the topics telemetry and events.
type Bus struct {
	Bus    bus.Subscriber
	Placer Placer
}

var _ control.Life = Bus{}

// Follow implements [control.Life]. It begins at the newest messages.
func (b Bus) Follow(ctx context.Context, device string, observe func(control.Observation)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	topics := []string{schemas.TopicTelemetry, schemas.TopicEvents}
	errs := make(chan error, len(topics))
	for _, topic := range topics {
		go func() { errs <- b.follow(ctx, topic, device, observe) }()
	}
	var first error
	for range topics {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
		cancel() // one without the other may miss something
	}
	return first
}

func (b Bus) follow(ctx context.Context, topic, device string, observe func(control.Observation)) error {
	n, err := b.Bus.Partitions(ctx, topic)
	if err != nil {
		return fmt.Errorf("follow %s of %s: %w", topic, device, err)
	}
	sub := bus.Subscription{Topic: topic, Partitions: []int{bus.PartitionFor(device, n)}}
	var batch auspexv1.Batch
	return b.Bus.Subscribe(ctx, sub, func(_ context.Context, msgs []bus.Message) error {
		for _, m := range msgs {
			if m.Key != device {
				continue
			}
			if wire.Decode(m.Value, &batch) != nil { // it says nothing; others report it
				continue
			}
			b.read(&batch, observe)
		}
		return nil
	})
}

// read hands over each part of a batch once, with the newest of its times, and
// each event.
func (b Bus) read(w *auspexv1.Batch, observe func(control.Observation)) {
	observed := time.Unix(0, w.GetObserved())
	parts := map[cmdb.Placement]*control.Observation{}
	hears := func(p cmdb.Placement, at int64, series string, v float64) {
		h := parts[p]
		if h == nil {
			h = &control.Observation{Resource: p.Resource, Kind: p.Kind, Collector: w.GetCollector(), Time: time.Unix(0, at), Observed: observed}
			parts[p] = h
		}
		if t := time.Unix(0, at); t.After(h.Time) {
			h.Time = t
		}
		h.Values = append(h.Values, control.Value{Series: series, Number: v})
	}
	b.samples(w, hears)
	b.gpus(w, hears)
	for _, h := range parts {
		observe(*h)
	}
	for _, e := range w.GetEvents() {
		ev := schemas.EventFromWire(e)
		if ev.Resource == "" {
			ev.Resource = w.GetDevice()
		}
		if ev.Observed.UnixNano() <= 0 {
			ev.Observed = observed
		}
		if ev.Severity.Rank() < 0 { // better heard than missed
			ev.Severity = schemas.SeverityError
		}
		p := b.Placer.Event(&ev)
		observe(control.Observation{
			Resource: p.Resource, Kind: p.Kind, Collector: w.GetCollector(), Time: ev.Time, Observed: ev.Observed, Event: &ev,
		})
	}
}

// note takes a number of a part, its time and the name of its series.
type note func(p cmdb.Placement, at int64, series string, v float64)

// samples notes the numbers of parts. A threshold is none, nor what the driver
// remembers of errors: both are told of a part that is gone.
func (b Bus) samples(w *auspexv1.Batch, note note) {
	s := w.GetSamples()
	symbol := s.GetSymbols()
	type series struct {
		cmdb.Placement
		name string
	}
	all := make([]*series, len(s.GetSeries()))
	for i, ref := range s.GetRef() {
		if math.IsNaN(s.Value[i]) {
			continue
		}
		if all[ref] == nil {
			x := s.Series[ref]
			at := &series{name: symbol[x.GetMetric()]}
			if _, bound := schemas.ThresholdOf(at.name); !bound && !strings.Contains(at.name, "_XID_") {
				at.Placement = b.Placer.Part(w.GetDevice(), symbol[x.GetPartKind()], symbol[x.GetPart()])
			}
			for _, l := range x.GetLabels() {
				at.name += control.SeriesLabels + symbol[l]
			}
			all[ref] = at
		}
		if at := all[ref]; at.Resource != "" {
			note(at.Placement, s.BaseTime+s.Delta[i], at.name, s.Value[i])
		}
	}
}

// lastXID is what the driver remembers of a GPU, and says of one that is gone.
const lastXID = "DCGM_FI_DEV_XID_ERRORS"

func (b Bus) gpus(w *auspexv1.Batch, note note) {
	g := w.GetGpus()
	at := func(all []string, i int) string {
		if i < len(all) {
			return all[i]
		}
		return ""
	}
	for i, gpu := range g.GetGpu() {
		p := b.Placer.GPU(w.GetDevice(), gpu, at(g.GetUuid(), i), at(g.GetPci(), i))
		for _, m := range schemas.GPUMetrics {
			if m.Name == lastXID {
				continue
			}
			if c := *m.Get(g); i < len(c) && !math.IsNaN(c[i]) {
				note(p, g.BaseTime+g.Delta[i], m.Name, c[i])
			}
		}
	}
}

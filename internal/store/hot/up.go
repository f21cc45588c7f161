package hot

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
)

// BeatEvery is how often [Window.Beat] is to be called.
const BeatEvery = 15 * time.Second

// How long a device may bring nothing and still be up, unless its rhythm is
// slower; and while its rhythm is not known yet.
const (
	silence = time.Minute
	unknown = 5 * time.Minute
)

// contact is when a device's samples last came, and how far apart they come.
type contact struct {
	last time.Time
	gap  time.Duration
	ref  storage.SeriesRef
}

// note notes that samples came that were observed at a time.
func (c *contact) note(observed, now time.Time, skew time.Duration) {
	if now.Sub(observed).Abs() <= skew {
		observed = now // a clock that is a little wrong is no silence
	}
	if !observed.After(c.last) {
		return
	}
	if !c.last.IsZero() {
		c.gap = max(observed.Sub(c.last), c.gap*3/4)
	}
	c.last = observed
}

func (c *contact) up(now time.Time) bool {
	patience := max(silence, 3*c.gap)
	if c.gap == 0 {
		patience = unknown
	}
	return now.Sub(c.last) <= patience
}

// Beat writes a sample of `up` for each device and collector that the inventory
// knows: 1 while samples come, 0 when they have stopped. The series has the labels
// job (the collector) and instance (the device) alone, so that nothing takes it for
// a reading of the device.
func (w *Window) Beat(ctx context.Context) error {
	now := w.now()
	w.mu.RLock()
	devices := make([]*device, 0, len(w.devices))
	for _, d := range w.devices {
		devices = append(devices, d)
	}
	w.mu.RUnlock()
	app := w.db.Appender(ctx)
	for _, d := range devices {
		d.mu.Lock()
		seen, ref := d.contact, d.contact.ref
		d.mu.Unlock()
		if seen.last.IsZero() || now.Sub(seen.last) > w.cfg.Retention || w.placer.Part(d.name, "", "").Server == "" {
			continue
		}
		value := 0.0
		if seen.up(now) {
			value = 1
		}
		ref, err := app.Append(
			ref, labels.FromStrings(model.MetricNameLabel, "up", "instance", d.name, "job", d.collector), now.UnixMilli(), value,
		)
		if err != nil {
			continue // of a clock that went back
		}
		d.mu.Lock()
		d.contact.ref = ref
		d.mu.Unlock()
	}
	if err := app.Commit(); err != nil {
		return fmt.Errorf("append up to the hot window: %w", err)
	}
	return nil
}

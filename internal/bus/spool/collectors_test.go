package spool_test

import (
	"context"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"auspex/collectors"
	"auspex/internal/bus"
	"auspex/internal/bus/spool"
	"auspex/internal/waittest"
	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

// ticker is a source that cannot be read again: it says a number at a time, and
// the one after only when the one before was taken.
type ticker struct{ n int }

func (*ticker) Targets(rs []schemas.Resource) []schemas.Resource { return rs }

func (s *ticker) New(target schemas.Resource, _ collectors.Settings) (collectors.Collector, error) {
	return collectors.Scrape(time.Millisecond, 0, func(ctx context.Context, out collectors.Emitter) error {
		b := collectors.NewBatch(target.ID, "ticker")
		b.Event(schemas.Event{ID: strconv.Itoa(s.n), Type: "port.down", Time: time.Now()})
		b.Sample(b.Series("m", "", ""), time.Now(), float64(s.n))
		if err := b.Emit(ctx, out, time.Time{}); err != nil {
			return err
		}
		s.n++
		return nil
	}), nil
}

// decoder is a bus that keeps the ids of events in the order of their arrival.
type decoder struct {
	fake
	ids []string
}

func (d *decoder) Publish(ctx context.Context, msgs ...bus.Message) error {
	if err := d.fake.Publish(ctx, msgs...); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range msgs {
		var b auspexv1.Batch
		if err := b.UnmarshalVT(m.Value); err != nil {
			return err
		}
		for _, ev := range b.GetEvents() {
			d.ids = append(d.ids, ev.GetId())
		}
	}
	return nil
}

func (d *decoder) events() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string(nil), d.ids...)
}

// What a source says while the bus is away arrives when it is back, all of it and
// in order, though the process was started again meanwhile and the source says it
// only once.
func TestCollectorsReadOnWhileTheBusIsAway(t *testing.T) {
	file := filepath.Join(t.TempDir(), "spool.db")
	pub := &decoder{}
	source := &ticker{}
	span := func(until func(waiting int) bool) {
		s, stop := start(t, file, spool.Config{Patience: time.Second, MaxBytes: 1 << 30}, pub, nil)
		cfg := collectors.DefaultRunnerConfig()
		cfg.StartSpread, cfg.EventRate, cfg.SampleRate = 0, 0, 0
		r := collectors.NewRunner(cfg, map[string]collectors.Config{"ticker": source}, s, collectors.Settings{})
		if err := r.Reconcile([]schemas.Resource{{ID: "leaf-1", Kind: schemas.KindSwitch}}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = r.Run(ctx, func() {}) })
		reached := func() bool { n, _ := s.Waiting(); return until(int(n)) }
		waittest.For(t, "so many events wait", reached)
		cancel()
		wg.Wait()
		stop()
	}
	span(func(int) bool { return len(pub.events()) > 10 })
	pub.set(true)
	span(func(waiting int) bool { return waiting > 50 })
	before := len(pub.events())
	span(func(waiting int) bool { return waiting > 100 })
	if n := len(pub.events()); n != before {
		t.Errorf("%d events arrived at a bus that is away", n-before)
	}
	pub.set(false)
	span(func(waiting int) bool { return waiting == 0 && len(pub.events()) > before+110 })
	next := 0
	for _, id := range pub.events() {
		switch id {
		case strconv.Itoa(next):
			next++
		case strconv.Itoa(next - 1): // was on its way when its collector ended, and said again
		default:
			t.Fatalf("event %s follows event %d", id, next-1)
		}
	}
	if next != source.n && next != source.n+1 { // the last one, too, may have been on its way
		t.Errorf("%d events arrived, the source has said %d", next, source.n)
	}
}

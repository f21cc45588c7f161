package gnmi

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"auspex/collectors"
	"auspex/collectors/collectortest"
	"auspex/internal/waittest"
	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

// sample is one as it came to the bus.
type sample struct {
	Metric, Part string
	At           int64
	Value        float64
}

// lock is a bus that takes nothing before it is opened, and keeps samples in the order in which they came.
type lock struct {
	*collectortest.Recorder
	entered chan struct{} // has room for one
	open    chan struct{}

	mu  sync.Mutex
	all []sample
}

func newLock() *lock {
	return &lock{Recorder: collectortest.NewRecorder(), entered: make(chan struct{}, 1), open: make(chan struct{})}
}

// Emit implements [collectors.Emitter].
func (l *lock) Emit(ctx context.Context, b *auspexv1.Batch) error {
	select {
	case l.entered <- struct{}{}:
	default:
	}
	select {
	case <-l.open:
	case <-ctx.Done():
		return ctx.Err()
	}
	l.mu.Lock()
	for i, ref := range b.GetSamples().GetRef() {
		of := b.GetSamples().GetSeries()[ref]
		l.all = append(l.all, sample{
			b.GetSamples().GetSymbols()[of.GetMetric()], b.GetSamples().GetSymbols()[of.GetPart()],
			b.GetSamples().GetBaseTime() + b.GetSamples().GetDelta()[i], b.GetSamples().GetValue()[i],
		})
	}
	l.mu.Unlock()
	return l.Recorder.Emit(ctx, b)
}

// of are the values of a metric of a part.
func (l *lock) of(metric, part string) (out []float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.all {
		if s.Metric == metric && s.Part == part {
			out = append(out, s.Value)
		}
	}
	return out
}

func octets(round, port int) *gpb.SubscribeResponse {
	return &gpb.SubscribeResponse{Response: &gpb.SubscribeResponse_Update{Update: &gpb.Notification{
		Timestamp: int64(round + 1), Update: []*gpb.Update{{
			Path: parsePath(fmt.Sprintf("interfaces/interface[name=Ethernet%d]/state/counters/in-octets", port)),
			Val:  &gpb.TypedValue{Value: &gpb.TypedValue_UintVal{UintVal: uint64(round)}},
		}},
	}}}
}

// While the bus takes nothing, the target is read on: of samples the newest of each series waits, and the others are
// counted; states, their series and their events all wait.
func TestSamplesMakeRoomForNewerOnesWhileTheBusIsSlow(t *testing.T) {
	const ports, rounds = 8, 50
	at := time.Now().UnixNano()
	s := collectortest.Settings()
	s.Metrics = prometheus.NewRegistry()
	f := &fake{responses: []*gpb.SubscribeResponse{oper("Ethernet0", "UP", at), synced()}, more: make(chan *gpb.SubscribeResponse)}
	bus := newLock()
	c, err := config().New(serve(t, f), s)
	if err != nil {
		t.Fatal(err)
	}
	sub, ok := c.(*subscriber)
	if !ok {
		t.Fatalf("%T", c)
	}
	sub.waiting, sub.slow = 4*ports, 0
	stop := again(c, bus)
	<-bus.entered
	states := []float64{1}
	for round := range rounds {
		for port := range ports {
			f.more <- octets(round, port)
		}
		f.more <- oper("Ethernet0", []string{"DOWN", "UP"}[round%2], at+int64(round+1))
		states = append(states, float64(round%2))
	}
	told := float64(1 + rounds*(ports+1))
	waittest.Until(t, func() error { // though nothing was taken
		if n := testutil.ToFloat64(sub.metrics.updates); n != told {
			return fmt.Errorf("%v of %v updates were read", n, told)
		}
		return nil
	})
	if n := len(bus.Lines()); n > 0 {
		t.Fatalf("%d lines came through", n)
	}
	close(bus.open)
	waittest.Until(t, func() error {
		if got := bus.of("auspex_port_up", "Ethernet0"); len(got) < len(states) {
			return fmt.Errorf("only %v", got)
		}
		return nil
	})
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(states, bus.of("auspex_port_up", "Ethernet0")); d != "" {
		t.Error(d)
	}
	samples := len(states)
	for port := range ports {
		got := bus.of("auspex_port_in_octets_total", fmt.Sprintf("Ethernet%d", port))
		if samples += len(got); len(got) == 0 || got[len(got)-1] != rounds-1 || len(got) == rounds {
			t.Errorf("port %d: %v", port, got)
		}
	}
	left := testutil.ToFloat64(sub.metrics.coalesced)
	if float64(samples)+left != told {
		t.Errorf("%d samples came and %v were left out, of %v", samples, left, told)
	}
	n := map[string]int{}
	for _, ev := range events(bus.Recorder) {
		n[ev]++
	}
	if n["port.down  raised Ethernet0"] != rounds/2 || n["port.down  cleared Ethernet0"] != rounds/2 || n["port.flap  raised Ethernet0"] != 1 {
		t.Errorf("events %v", n)
	}
}

// What must not be thinned holds the target up in the end, so that it needs bounded memory, and comes when the bus is back.
func TestStatesThatTheBusDoesNotTakeHoldTheTargetUp(t *testing.T) {
	st := newBare(t)
	st.s.waiting, st.s.slow, st.limit = 1, 0, 1
	bus := newLock()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := 0
	event := func() {
		n++
		ev := st.event(schemas.EventPortDown, "", schemas.SeverityInfo, time.Unix(1, 0))
		ev.ID = strconv.Itoa(n)
		st.batch.Event(ev)
	}
	event()
	if err := st.flush(ctx, bus, nil); err != nil {
		t.Fatal(err)
	}
	<-bus.entered
	for range maxEvents {
		event()
	}
	held := make(chan error, 1)
	go func() { held <- st.flush(ctx, bus, nil) }()
	select {
	case err := <-held:
		t.Fatalf("nobody waited: %v", err)
	case <-time.After(20 * time.Millisecond): // a flush that does not wait returns at once
	}
	close(bus.open)
	if err := <-held; err != nil {
		t.Fatal(err)
	}
	if err := st.settle(); err != nil {
		t.Fatal(err)
	}
	if got := len(bus.Events()); got != n {
		t.Errorf("%d events of %d", got, n)
	}
}

// A sample that may be thinned and one that may not keep their order and their times.
func TestABatchThatIsCoalescedKeepsTheNewest(t *testing.T) {
	b := collectors.NewBatch("leaf-1", Name)
	one, other, state := b.Series("a", "port", "1"), b.Series("a", "port", "2"), b.Series("s", "port", "1")
	b.Every(state)
	for i := range 4 {
		at := time.Unix(int64(10-i), 0) // a device whose clock goes back
		b.Sample(one, at, float64(i))
		b.Sample(state, at, float64(i))
		if i < 2 {
			b.Sample(other, at, float64(i))
		}
	}
	if n := b.Coalesce(); n != 4 {
		t.Errorf("%d left out", n)
	}
	first := b.Hand(nil)
	b.Sample(b.Series("new", "port", "1"), time.Unix(1, 0), 7)
	bus := newLock()
	close(bus.open)
	for _, b := range []*collectors.Batch{first, b.Hand(nil)} {
		if err := b.Emit(t.Context(), bus, time.Unix(20, 0)); err != nil {
			t.Fatal(err)
		}
	}
	const sec = int64(time.Second)
	if d := cmp.Diff([]sample{
		{"s", "1", 10 * sec, 0},
		{"s", "1", 9 * sec, 1},
		{"a", "2", 9 * sec, 1},
		{"s", "1", 8 * sec, 2},
		{"a", "1", 7 * sec, 3},
		{"s", "1", 7 * sec, 3},
		{"new", "1", sec, 7},
	}, bus.all); d != "" {
		t.Error(d)
	}
}

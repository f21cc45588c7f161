package collectors

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"auspex/internal/bus"
	"auspex/internal/racetest"
	"auspex/internal/run"
	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

type memPublisher struct {
	mu   sync.Mutex
	err  error
	full chan struct{} // when not nil, Publish blocks until it is closed
	got  []*auspexv1.Batch
	tops []string
}

func (p *memPublisher) Publish(ctx context.Context, msgs ...bus.Message) error {
	p.mu.Lock()
	full, err := p.full, p.err
	p.mu.Unlock()
	if full != nil {
		select {
		case <-full:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range msgs {
		var b auspexv1.Batch
		if err := b.UnmarshalVT(m.Value); err != nil {
			return err
		}
		if m.Key != b.Device {
			return fmt.Errorf("key %s of a batch of %s", m.Key, b.Device)
		}
		p.got, p.tops = append(p.got, &b), append(p.tops, m.Topic)
	}
	return nil
}

func (p *memPublisher) set(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

func (p *memPublisher) events() []schemas.Event {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []schemas.Event
	for _, b := range p.got {
		for _, e := range b.Events {
			out = append(out, schemas.EventFromWire(e))
		}
	}
	return out
}

func (p *memPublisher) batches() []*auspexv1.Batch {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.got)
}

// fakeConfig makes collectors of a function; it picks servers.
type fakeConfig struct {
	loss string
	run  func(ctx context.Context, target schemas.Resource, out Emitter) error
	err  map[string]error
}

func (c *fakeConfig) LossType() string { return c.loss }

func (*fakeConfig) Targets(rs []schemas.Resource) (out []schemas.Resource) {
	for _, r := range rs {
		if r.Kind == schemas.KindServer {
			out = append(out, r)
		}
	}
	return out
}

func (c *fakeConfig) New(t schemas.Resource, _ Settings) (Collector, error) {
	if err := c.err[t.ID]; err != nil {
		return nil, err
	}
	return runFunc(func(ctx context.Context, out Emitter) error { return c.run(ctx, t, out) }), nil
}

type runFunc func(ctx context.Context, out Emitter) error

func (f runFunc) Run(ctx context.Context, out Emitter) error { return f(ctx, out) }

type memCursors struct {
	mu sync.Mutex
	m  map[string]string
}

func (c *memCursors) Cursor(_ context.Context, collector, device string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.m[collector+"|"+device], nil
}

func (c *memCursors) SetCursor(_ context.Context, collector, device, position string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.m[collector+"|"+device] = position
	return nil
}

func servers(ids ...string) (out []schemas.Resource) {
	for _, id := range ids {
		out = append(
			out, schemas.Resource{ID: id, Kind: schemas.KindServer}, schemas.Resource{ID: id + "/bmc", Kind: schemas.KindBMC, Parent: id},
		)
	}
	return out
}

func oneSample(ctx context.Context, device string, out Emitter) error {
	b := NewBatch(device, "fake")
	b.Sample(b.Series("auspex_fan_speed_rpm", "fan", "fan1"), time.Now(), 9000)
	return b.Emit(ctx, out, time.Time{})
}

// begin runs a runner in the bubble until stop.
func begin(t *testing.T, r *Runner) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx, func() {}) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

func TestLossAndReturnOfContactAreToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pub, cur := &memPublisher{}, &memCursors{m: map[string]string{}}
		var down atomic.Bool
		cfg := func() *fakeConfig {
			return &fakeConfig{loss: LossBMC, run: func(ctx context.Context, target schemas.Resource, out Emitter) error {
				for {
					if down.Load() {
						return errors.New("no route")
					}
					if err := oneSample(ctx, target.ID, out); err != nil {
						return err
					}
					if run.Sleep(ctx, time.Second) != nil {
						return nil
					}
				}
			}}
		}
		newRunner := func() *Runner {
			r := NewRunner(DefaultRunnerConfig(), map[string]Config{"ipmi": cfg(), "redfish": cfg()}, pub, Settings{Cursors: cur})
			if err := r.Reconcile(servers("s1")); err != nil {
				t.Fatal(err)
			}
			return r
		}
		stop := begin(t, newRunner())
		time.Sleep(10 * time.Second)
		down.Store(true)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := len(pub.events()); n != 0 {
			t.Fatalf("a short silence gave %d events", n)
		}
		time.Sleep(5 * time.Minute)
		// The process dies while the device is lost; its successor tells the return.
		stop()
		down.Store(false)
		stop = begin(t, newRunner())
		time.Sleep(time.Minute)
		stop()
		var got []string
		for _, e := range pub.events() {
			got = append(got, e.Type+" "+e.Resource+" "+e.State)
		}
		want := []string{"bmc.unreachable s1/bmc raised", "bmc.unreachable s1/bmc cleared"}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("events (-want +got):\n%s", d)
		}
	})
}

// dying is a process that is killed at some write of a position.
type dying struct {
	*memCursors
	*memPublisher
	left atomic.Int32 // writes until then
}

func (d *dying) SetCursor(ctx context.Context, collector, device, position string) error {
	if d.left.Add(-1) < 0 {
		return errors.New("the process is dead")
	}
	return d.memCursors.SetCursor(ctx, collector, device, position)
}

func (d *dying) Publish(ctx context.Context, msgs ...bus.Message) error {
	if d.left.Load() < 0 {
		return errors.New("the process is dead")
	}
	return d.memPublisher.Publish(ctx, msgs...)
}

// A loss that was told by a process that was killed before it had kept that is over when the device answers the next.
func TestALossThatAKilledProcessToldHasAnEnd(t *testing.T) {
	for writes := range int32(4) {
		synctest.Test(t, func(t *testing.T) {
			pub, kept := &memPublisher{}, &memCursors{m: map[string]string{}}
			var down atomic.Bool
			cfg := &fakeConfig{loss: LossBMC, run: func(ctx context.Context, target schemas.Resource, out Emitter) error {
				for {
					if down.Load() {
						return errors.New("no route")
					}
					if err := oneSample(ctx, target.ID, out); err != nil {
						return err
					}
					if run.Sleep(ctx, time.Second) != nil {
						return nil
					}
				}
			}}
			live := func(pub bus.Publisher, c Cursors) (stop func()) {
				r := NewRunner(DefaultRunnerConfig(), map[string]Config{"ipmi": cfg}, pub, Settings{Cursors: c})
				if err := r.Reconcile(servers("s1")); err != nil {
					t.Fatal(err)
				}
				return begin(t, r)
			}
			killed := &dying{memCursors: kept, memPublisher: pub}
			killed.left.Store(writes)
			stop := live(killed, killed)
			time.Sleep(10 * time.Second)
			down.Store(true)
			time.Sleep(5 * time.Minute)
			stop()
			down.Store(false)
			stop = live(pub, kept)
			time.Sleep(time.Minute)
			stop()
			var got []string
			for _, e := range pub.events() {
				got = append(got, e.Type+" "+e.State)
			}
			if n := len(got); n > 0 && got[n-1] != "bmc.unreachable cleared" || n == 0 && writes > 0 {
				t.Errorf("killed at write %d: %v", writes, got)
			}
		})
	}
}

// Who refuses our password answers: that is an event of its own, and a loss that was told
// ends with it.
func TestADeviceThatRefusesUsIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pub, cur, reg := &memPublisher{}, &memCursors{m: map[string]string{}}, prometheus.NewRegistry()
		var fault atomic.Pointer[error]
		fail := func(err error) { fault.Store(&err) }
		cfg := &fakeConfig{loss: LossBMC}
		cfg.run = func(ctx context.Context, target schemas.Resource, out Emitter) error {
			return Scrape(time.Second, 0, func(ctx context.Context, out Emitter) error {
				if err := fault.Load(); err != nil && *err != nil {
					return *err
				}
				return oneSample(ctx, target.ID, out)
			}).Run(ctx, out)
		}
		newRunner := func() *Runner {
			r := NewRunner(DefaultRunnerConfig(), map[string]Config{"redfish": cfg}, pub, Settings{Cursors: cur, Metrics: reg})
			if err := r.Reconcile(servers("s1")); err != nil {
				t.Fatal(err)
			}
			return r
		}
		stop := begin(t, newRunner())
		time.Sleep(10 * time.Second)
		for _, err := range []error{
			fmt.Errorf("%w: wrong password", ErrAuth), errors.New("connection lost"), fmt.Errorf("%w: wrong password", ErrAuth),
		} {
			fail(err)
			time.Sleep(10 * time.Minute)
		}
		stop() // the process dies while the device refuses; its successor tells the end
		fail(nil)
		reg = prometheus.NewRegistry()
		stop = begin(t, newRunner())
		time.Sleep(time.Minute)
		stop()
		var got []string
		for _, e := range pub.events() {
			got = append(got, strings.Join([]string{e.Type, e.Code, e.Resource, e.State, e.Attrs["reason"]}, " "))
		}
		want := []string{
			"access.refused redfish s1/bmc raised auth", "bmc.unreachable  s1/bmc raised other", "bmc.unreachable  s1/bmc cleared ",
			"access.refused redfish s1/bmc cleared ",
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("events (-want +got):\n%s", d)
		}
	})
}

func TestAPanicOrABadTargetHarmsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pub, reg := &memPublisher{}, prometheus.NewRegistry()
		cfg := &fakeConfig{err: map[string]error{"bad": errors.New("credential missing")}}
		cfg.run = func(ctx context.Context, target schemas.Resource, out Emitter) error {
			if target.ID == "mad" {
				panic("index out of range")
			}
			return Scrape(time.Second, 0.1, func(ctx context.Context, out Emitter) error { return oneSample(ctx, target.ID, out) }).Run(ctx, out)
		}
		r := NewRunner(DefaultRunnerConfig(), map[string]Config{"fake": cfg}, pub, Settings{Metrics: reg})
		err := r.Reconcile(servers("good", "mad", "bad"))
		if err == nil || err.Error() != "collector fake of bad: credential missing" {
			t.Errorf("Reconcile: %v", err)
		}
		stop := begin(t, r)
		time.Sleep(30 * time.Second)
		stop()
		n := 0
		var last uint64
		for _, b := range pub.batches() {
			if b.Device == "good" {
				n++
				if b.Sequence != last+1 || b.Epoch == 0 || b.Observed == 0 {
					t.Fatalf("batch %d: epoch %d sequence %d after %d", n, b.Epoch, b.Sequence, last)
				}
				last = b.Sequence
			}
		}
		if n < 25 {
			t.Errorf("%d batches of the good device in 30 s, want about 29", n)
		}
		if v := testutil.ToFloat64(r.metrics.errors.WithLabelValues("fake", "panic")); v < 3 {
			t.Errorf("%v panics counted", v)
		}
	})
}

func TestEventsOutliveABusThatIsDownAndSamplesAreThinned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pub := &memPublisher{err: errors.New("bus is down")}
		cfg := &fakeConfig{}
		n := 0
		cfg.run = func(ctx context.Context, target schemas.Resource, out Emitter) error {
			return Scrape(time.Second, 0, func(ctx context.Context, out Emitter) error {
				if err := oneSample(ctx, target.ID, out); err != nil {
					return err
				}
				b := NewBatch(target.ID, "fake")
				n++
				b.Event(schemas.Event{ID: fmt.Sprint("e", n), Resource: target.ID, Type: "bmc.sel", Time: time.Now()})
				return b.Emit(ctx, out, time.Time{})
			}).Run(ctx, out)
		}
		r := NewRunner(DefaultRunnerConfig(), map[string]Config{"fake": cfg}, pub, Settings{})
		if err := r.Reconcile(servers("s1")); err != nil {
			t.Fatal(err)
		}
		stop := begin(t, r)
		time.Sleep(5 * time.Minute)
		pub.set(nil)
		time.Sleep(10 * time.Second)
		stop()
		ids := make(map[string]int)
		for _, e := range pub.events() {
			ids[e.ID]++
		}
		if ids["e1"] != 1 {
			t.Errorf("the event of the outage arrived %d times", ids["e1"])
		}
		if v := testutil.ToFloat64(r.metrics.dropped.WithLabelValues("fake")); v < 1 {
			t.Errorf("%v dropped samples counted", v)
		}
		if v := testutil.ToFloat64(r.metrics.skipped.WithLabelValues("fake")); v < 1 {
			t.Errorf("%v skipped scrapes counted", v)
		}
	})
}

func TestReconcileFollowsTheInventory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		live := make(map[string]int)
		cfg := &fakeConfig{run: func(ctx context.Context, target schemas.Resource, _ Emitter) error {
			mu.Lock()
			live[target.ID]++
			if live[target.ID] > 1 {
				t.Errorf("two instances of %s at a time", target.ID)
			}
			mu.Unlock()
			<-ctx.Done()
			mu.Lock()
			live[target.ID]--
			mu.Unlock()
			return nil
		}}
		r := NewRunner(DefaultRunnerConfig(), map[string]Config{"fake": cfg}, &memPublisher{}, Settings{})
		now := func() (out []string) {
			time.Sleep(5 * time.Second)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			for id, n := range live {
				if n > 0 {
					out = append(out, id)
				}
			}
			slices.Sort(out)
			return out
		}
		if err := r.Reconcile(servers("a", "b")); err != nil {
			t.Fatal(err)
		}
		stop := begin(t, r)
		if d := cmp.Diff([]string{"a", "b"}, now()); d != "" {
			t.Error(d)
		}
		moved := servers("b", "c")
		moved[0].Attrs = schemas.AttrsOf(map[string]string{"ipmi_ip": "10.0.0.9"})
		if err := r.Reconcile(moved); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff([]string{"b", "c"}, now()); d != "" {
			t.Error(d)
		}
		if err := r.Reconcile(nil); err != nil {
			t.Fatal(err)
		}
		if got := now(); len(got) != 0 {
			t.Errorf("still running: %v", got)
		}
		stop()
	})
}

// A device that could not be read before keeps nothing from changing.
func TestADeviceThatWasUnreadableBeforeHoldsNothingUp(t *testing.T) {
	bad := func(reason string) map[string]Config {
		return map[string]Config{"fake": &fakeConfig{err: map[string]error{"a": errors.New(reason)}}}
	}
	r := NewRunner(DefaultRunnerConfig(), bad("no address"), &memPublisher{}, Settings{})
	if _, err := r.Prepare(bad("no address"), nil, servers("a", "b")); err != nil {
		t.Error(err)
	}
	if _, err := r.Prepare(bad("no certificate"), []string{"fake"}, servers("a", "b")); err == nil {
		t.Error("a new reason was accepted")
	}
}

func TestOtherConfigurationsDisturbOnlyWhatChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		live, starts := map[string]int{}, map[string]int{}
		fake := func(name string, bad map[string]error) *fakeConfig {
			return &fakeConfig{err: bad, run: func(ctx context.Context, target schemas.Resource, _ Emitter) error {
				count := func(n int) {
					mu.Lock()
					defer mu.Unlock()
					live[name+" "+target.ID] += n
					starts[name+" "+target.ID] += max(n, 0)
				}
				count(1)
				defer count(-1)
				<-ctx.Done()
				return nil
			}}
		}
		r := NewRunner(
			DefaultRunnerConfig(), map[string]Config{"goes": fake("goes", nil), "stays": fake("stays", nil), "changes": fake("changes", nil)},
			&memPublisher{}, Settings{},
		)
		inventory := func() []schemas.Resource { return servers("a") }
		if err := r.Reconcile(inventory()); err != nil {
			t.Fatal(err)
		}
		stop := begin(t, r)
		settle := func() {
			time.Sleep(5 * time.Second)
			synctest.Wait()
		}
		settle()
		none := map[string]error{"a": errors.New("no address")}
		if _, err := r.Prepare(map[string]Config{"stays": fake("bad", none)}, []string{"stays"}, inventory()); err == nil ||
			!strings.Contains(err.Error(), "no address") {
			t.Errorf("a target that cannot be read: %v", err)
		}
		settle()
		apply, err := r.Prepare(
			map[string]Config{"comes": fake("comes", nil), "stays": fake("stays", nil), "changes": fake("changed", nil)},
			[]string{"goes", "comes", "changes"}, inventory(),
		)
		if err != nil {
			t.Fatal(err)
		}
		apply()
		if err := r.Reconcile(inventory()); err != nil {
			t.Fatal(err)
		}
		settle()
		mu.Lock()
		maps.DeleteFunc(live, func(_ string, n int) bool { return n == 0 })
		if d := cmp.Diff(map[string]int{"comes a": 1, "stays a": 1, "changed a": 1}, live); d != "" {
			t.Error(d)
		}
		if starts["stays a"] != 1 {
			t.Errorf("what stays the same was started %d times", starts["stays a"])
		}
		mu.Unlock()
		if d := cmp.Diff(map[string]int{"comes": 1, "stays": 1, "changes": 1}, r.Targets()); d != "" {
			t.Error(d)
		}
		stop()
	})
}

func TestABatchIsUsedAgainWithoutAllocation(t *testing.T) {
	racetest.Allocations(t)
	b := NewBatch("s1", "fake")
	now := time.Now()
	refs := make([]Ref, 0, 100)
	for i := range 100 {
		refs = append(refs, b.Series("auspex_fan_speed_rpm", "fan", fmt.Sprint("fan", i)))
	}
	for _, r := range refs {
		b.Sample(r, now, 1)
	}
	b.Discard()
	n := math.Inf(1)
	for range 5 { // what else runs in the process allocates too, now and then
		n = min(n, testing.AllocsPerRun(100, func() {
			for _, r := range refs {
				b.Sample(r, now, 1)
			}
			if b.Series("auspex_fan_speed_rpm", "fan", "fan7") != refs[7] {
				t.Fatal("another ref for the same series")
			}
			b.Discard()
		}))
	}
	if n != 0 {
		t.Errorf("%v allocations a poll", n)
	}
}

func TestLargeEventBatchesAreSplitInOrder(t *testing.T) {
	pub := &memPublisher{}
	r := NewRunner(DefaultRunnerConfig(), nil, pub, Settings{})
	em := newEmitter(r, &instance{collector: "fake", target: schemas.Resource{ID: "s1"}}, 1)
	em.alive = func() {}
	b := NewBatch("s1", "fake")
	for i := range 3000 {
		b.Event(schemas.Event{ID: strconv.Itoa(i), Message: string(make([]byte, 1000)), Time: time.Unix(0, 1), Observed: time.Unix(0, 1)})
	}
	if err := b.Emit(t.Context(), em, time.Time{}); err != nil {
		t.Fatal(err)
	}
	evs := pub.events()
	for i, e := range evs {
		if e.ID != strconv.Itoa(i) {
			t.Fatalf("event %d has id %s", i, e.ID)
		}
	}
	if len(evs) != 3000 || len(pub.got) < 6 {
		t.Errorf("%d events in %d messages", len(evs), len(pub.got))
	}
}

func newTestEmitter(r *Runner) *emitter {
	em := newEmitter(r, &instance{collector: "fake", target: schemas.Resource{ID: "s1"}}, 1)
	em.alive = func() {}
	return em
}

func TestADeviceThatFloodsIsReadMoreSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pub := &memPublisher{}
		cfg := DefaultRunnerConfig()
		cfg.EventRate = 10
		r := NewRunner(cfg, nil, pub, Settings{})
		em := newTestEmitter(r)
		began := time.Now()
		const events = 1000
		for i := range events {
			b := NewBatch("s1", "fake")
			b.Event(schemas.Event{ID: strconv.Itoa(i), Type: "gpu.xid", Time: time.Now()})
			if err := b.Emit(t.Context(), em, time.Time{}); err != nil {
				t.Fatal(err)
			}
		}
		// A burst of 20 s goes through at once.
		if took, want := time.Since(began), (events-10*burstSeconds)/10*time.Second; took < want-time.Second || took > want+time.Second {
			t.Errorf("%d events took %s, want %s", events, took, want)
		}
		if n := len(pub.events()); n != events {
			t.Errorf("%d events arrived, want all %d", n, events)
		}
		if v := testutil.ToFloat64(r.metrics.held.WithLabelValues("fake")); v < 70 {
			t.Errorf("%v seconds of waiting counted, want 80", v)
		}
	})
}

func TestTextsOfADeviceAreBounded(t *testing.T) {
	pub := &memPublisher{}
	em := newTestEmitter(NewRunner(DefaultRunnerConfig(), nil, pub, Settings{}))
	b := NewBatch("s1", "fake")
	attrs := map[string]string{"bad\xff": "a\x00b\xff", "nodes": strings.Repeat("gpu-r01-u01,", 1<<20), "gpus": strings.Repeat("x", 1<<20), "pods": strings.Repeat("y,", 1<<20)}
	for i := range 1000 {
		attrs["k"+strconv.Itoa(i)] = strings.Repeat("v", 1<<20)
	}
	b.Event(schemas.Event{ID: "e", Type: "bmc.event", Message: strings.Repeat("m\x00\xff", 4<<20), Attrs: attrs, Time: time.Now()})
	if err := b.Emit(t.Context(), em, time.Time{}); err != nil {
		t.Fatal(err)
	}
	if n := len(pub.got); n != 1 {
		t.Fatalf("%d messages, want 1", n)
	}
	if n := pub.got[0].SizeVT(); n > maxMessage {
		t.Errorf("the event has %d bytes on the bus", n)
	}
	ev := pub.events()[0]
	if !utf8.ValidString(ev.Message) || strings.Contains(ev.Message, "\x00") {
		t.Errorf("message is not clean text: %q", ev.Message[:20])
	}
	for k, v := range ev.Attrs {
		if !utf8.ValidString(k+v) || strings.Contains(k+v, "\x00") {
			t.Errorf("attribute %q is not clean text: %.20q", k, v)
		}
	}
}

// What a job of some thousand servers has is told; a list that is longer ends between two of its entries.
func TestTheServersOfALargeJobAreTold(t *testing.T) {
	for n, want := range map[int]int{5000: 5000, 10_000: (maxListText + 1) / len("gpu-r01-u01,")} {
		pub := &memPublisher{}
		b := NewBatch("s1", "fake")
		nodes := strings.TrimSuffix(strings.Repeat("gpu-r01-u01,", n), ",")
		b.Event(schemas.Event{ID: "e", Type: schemas.EventWorkloadState, Attrs: map[string]string{"nodes": nodes}, Time: time.Now()})
		if err := b.Emit(t.Context(), newTestEmitter(NewRunner(DefaultRunnerConfig(), nil, pub, Settings{})), time.Time{}); err != nil {
			t.Fatal(err)
		}
		got := pub.events()[0].Attrs["nodes"]
		if told := strings.Count(got, "gpu-r01-u01"); told != want || !strings.HasSuffix(got, "gpu-r01-u01") {
			t.Errorf("%d servers: %d are told, want %d; it ends with %q", n, told, want, got[max(0, len(got)-20):])
		}
	}
}

func TestManySamplesGoOutInPieces(t *testing.T) {
	pub := &memPublisher{}
	em := newTestEmitter(NewRunner(DefaultRunnerConfig(), nil, pub, Settings{}))
	b := NewBatch("s1", "fake")
	const samples = 20000
	for i := range samples {
		b.Sample(b.Series("m", "", "", "label", fmt.Sprintf("%0100d", i)), time.Unix(0, int64(i)), float64(i))
	}
	if err := b.Emit(t.Context(), em, time.Time{}); err != nil {
		t.Fatal(err)
	}
	next := 0
	for _, batch := range pub.batches() {
		if n := batch.SizeVT(); n > maxMessage {
			t.Errorf("a message of %d bytes", n)
		}
		s := batch.GetSamples()
		for i, ref := range s.GetRef() {
			label := s.GetSymbols()[s.GetSeries()[ref].GetLabels()[1]]
			if want := fmt.Sprintf("%0100d", next); label != want || s.GetValue()[i] != float64(next) ||
				s.GetBaseTime()+s.GetDelta()[i] != int64(next) {
				t.Fatalf("sample %d is %v of %q", next, s.GetValue()[i], label)
			}
			next++
		}
	}
	if next != samples {
		t.Errorf("%d samples arrived, want %d", next, samples)
	}
}

func TestSeriesWithoutEndAreLeftOutAndCounted(t *testing.T) {
	r := NewRunner(DefaultRunnerConfig(), nil, &memPublisher{}, Settings{})
	em := newTestEmitter(r)
	b := NewBatch("s1", "fake")
	for i := range maxSeries + 7 {
		b.Sample(b.Series("m", "", "", "label", strconv.Itoa(i)), time.Unix(0, 1), 1)
	}
	if n, _ := b.Len(); n != maxSeries {
		t.Errorf("%d samples wait, want %d", n, maxSeries)
	}
	if err := b.Emit(t.Context(), em, time.Time{}); err != nil {
		t.Fatal(err)
	}
	if v := testutil.ToFloat64(r.metrics.dropped.WithLabelValues("fake")); v != 7 {
		t.Errorf("%v samples counted as left out, want 7", v)
	}
}

// brokenCursors is a store of positions that does not answer.
type brokenCursors struct{}

func (brokenCursors) Cursor(context.Context, string, string) (string, error) {
	return "", errors.New("database is locked")
}

func (brokenCursors) SetCursor(context.Context, string, string, string) error {
	return errors.New("database is locked")
}

func TestOurOwnStoreThatFailsIsNoLossOfADevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pub := &memPublisher{}
		cfg := &fakeConfig{loss: LossHost}
		var cursors Cursors
		cfg.run = func(ctx context.Context, target schemas.Resource, _ Emitter) error {
			_, err := cursors.Cursor(ctx, "fake", target.ID)
			return fmt.Errorf("read cursor: %w", err)
		}
		r := NewRunner(DefaultRunnerConfig(), map[string]Config{"fake": cfg}, pub, Settings{Cursors: brokenCursors{}})
		cursors = r.settings.Cursors
		if err := r.Reconcile(servers("s1")); err != nil {
			t.Fatal(err)
		}
		stop := begin(t, r)
		time.Sleep(5 * time.Minute)
		stop()
		if evs := pub.events(); len(evs) != 0 {
			t.Errorf("events %+v, want none", evs)
		}
		if v := testutil.ToFloat64(r.metrics.errors.WithLabelValues("fake", "state")); v < 3 {
			t.Errorf("%v failures of the store counted", v)
		}
	})
}

// Ending on request is no failure, however a collector takes it; what fails by itself then is told.
func TestACollectorThatIsToldToEndHasNotFailed(t *testing.T) {
	ends := map[string]func(ctx context.Context) error{
		"nothing": func(context.Context) error { return nil },
		"context": func(ctx context.Context) error { return ctx.Err() },
		"closed":  func(context.Context) error { return fmt.Errorf("read: %w", net.ErrClosed) },
		"status": func(context.Context) error {
			return StatusError("agent", status.Error(codes.Canceled, "context canceled"))
		},
		"store":  func(ctx context.Context) error { return fmt.Errorf("%w: %w", errState, ctx.Err()) },
		"locked": func(context.Context) error { return fmt.Errorf("%w: database is locked", errState) },
		"panic":  func(context.Context) error { panic("told to end") },
	}
	synctest.Test(t, func(t *testing.T) {
		cfg := &fakeConfig{}
		cfg.run = func(ctx context.Context, target schemas.Resource, out Emitter) error {
			Contact(out)
			<-ctx.Done()
			return ends[target.ID](ctx)
		}
		var log bytes.Buffer
		r := NewRunner(DefaultRunnerConfig(), map[string]Config{"fake": cfg}, &memPublisher{}, Settings{Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err := r.Reconcile(servers(slices.Collect(maps.Keys(ends))...)); err != nil {
			t.Fatal(err)
		}
		stop := begin(t, r)
		time.Sleep(time.Minute)
		stop()
		var told []string
		for line := range strings.Lines(log.String()) {
			if _, rest, ok := strings.Cut(line, `msg="collector stopped" collector=fake device=`); ok {
				device, _, _ := strings.Cut(rest, " ")
				told = append(told, device)
			}
		}
		slices.Sort(told)
		if diff := cmp.Diff([]string{"locked", "panic"}, told); diff != "" {
			t.Errorf("%s\n%s", diff, &log)
		}
		if n := testutil.CollectAndCount(r.metrics.errors); n != 2 {
			t.Errorf("%d kinds of errors are counted, want 2", n)
		}
	})
}

func TestACollectorThatHangsHoldsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := &fakeConfig{}
		release := make(chan struct{})
		cfg.run = func(ctx context.Context, target schemas.Resource, _ Emitter) error {
			if target.ID == "s1" {
				<-release // such as a file system that does not answer
				return nil
			}
			<-ctx.Done()
			return nil
		}
		r := NewRunner(DefaultRunnerConfig(), map[string]Config{"fake": cfg}, &memPublisher{}, Settings{})
		if err := r.Reconcile(servers("s1", "s2")); err != nil {
			t.Fatal(err)
		}
		stop := begin(t, r)
		time.Sleep(time.Minute)
		began := time.Now()
		stop()
		if took := time.Since(began); took != stopGrace {
			t.Errorf("stopping took %s, want %s", took, stopGrace)
		}
		if v := testutil.ToFloat64(r.metrics.hung.WithLabelValues("fake")); v != 1 {
			t.Errorf("%v hung collectors counted, want 1", v)
		}
		close(release)
	})
}

func TestACollectorThatDoesNotSayWhoseEyesItHasIsNotRegistered(t *testing.T) {
	Register("eyes-host", Sight{View: schemas.ViewHost, Sources: []string{"eyes-source"}}, nil)
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		for _, key := range []string{"eyes-host", "eyes-source"} {
			delete(registry, key)
			delete(sights, key)
			delete(views, key)
		}
	})
	if ViewOf("eyes-host") != schemas.ViewHost || ViewOf("eyes-source") != schemas.ViewHost || ViewOf("a stranger") != schemas.ViewNone {
		t.Error(ViewOf("eyes-host"), ViewOf("eyes-source"), ViewOf("a stranger"))
	}
	for what, c := range map[string]struct {
		name  string
		sight Sight
	}{
		"nothing":                         {"eyes-1", Sight{}},
		"an unknown view":                 {"eyes-2", Sight{View: "satellite"}},
		"the source of others":            {"eyes-3", Sight{View: schemas.ViewBoard, Sources: []string{"eyes-source"}}},
		"a name that is a source already": {"eyes-source", Sight{View: schemas.ViewNone}},
	} {
		t.Run(what, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("it was taken")
				}
			}()
			Register(c.name, c.sight, nil)
		})
	}
}

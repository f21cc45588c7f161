// Package bustest is the suite that every implementation of the bus passes.
package bustest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"auspex/internal/bus"
)

// Options say what an implementation offers beside the interface.
type Options struct {
	// Open opens the bus that belongs to the test: calling it again after Close
	// finds what was stored. The bus must have at least 2 partitions a topic.
	Open func(t *testing.T) bus.Bus
	// Volatile buses forget at Close.
	Volatile bool
	// MaxMessageBytes is a size that the bus refuses when it is exceeded.
	MaxMessageBytes int
}

// patience guards against what never comes, however busy the machine is.
const patience = 2 * time.Minute

var topics atomic.Int64

// topic returns a name that no other test uses, also on a broker that stays.
func topic() string { return fmt.Sprintf("suite-%d-%d", time.Now().UnixNano(), topics.Add(1)) }

// Run runs the suite.
func Run(t *testing.T, o Options) {
	t.Helper()
	for _, c := range []struct {
		name string
		run  func(*testing.T, Options)
	}{
		{"spreads keys over partitions and keeps the order of a key", orderPerKey},
		{"replays from an offset that the reader keeps", replay},
		{"a group goes on where it stopped", groupResumes},
		{"a new group reads from the oldest or from the newest", newGroup},
		{"without a group only new messages are read", noGroup},
		{"what a handler failed on is handed out again", failedHandler},
		{"a slow handler gets one batch at a time and loses nothing", backPressure},
		{"one partition does not wait for another", independentPartitions},
		{"limits a subscription to partitions", somePartitions},
		{"gathers a batch up to its bounds", batches},
		{"ends at once when its context is done", cancellation},
		{"refuses a message that is too large and carries on", tooLarge},
		{"concurrent publishers lose nothing", concurrentPublishers},
		{"delivers within milliseconds", latency},
		{"a position beyond the end reads from the oldest", beyondEnd},
		{"fails with ErrClosed after Close", closed},
		{"finds messages and positions after it was opened again", reopened},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, o) })
	}
}

func open(t *testing.T, o Options) bus.Bus {
	t.Helper()
	b := o.Open(t)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func publish(t *testing.T, b bus.Bus, topic string, from, to int) {
	t.Helper()
	var msgs []bus.Message
	for i := from; i < to; i++ {
		msgs = append(msgs, bus.Message{Topic: topic, Key: fmt.Sprintf("key-%d", i%7), Value: fmt.Appendf(nil, "%d", i)})
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := b.Publish(ctx, msgs...); err != nil {
		t.Fatalf("publish %d to %d: %v", from, to, err)
	}
}

type seen struct {
	mu   sync.Mutex
	msgs []bus.Message
}

func (s *seen) add(msgs []bus.Message) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range msgs {
		m.Value = append([]byte(nil), m.Value...)
		s.msgs = append(s.msgs, m)
	}
	return len(s.msgs)
}

func (s *seen) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.msgs)
}

// read subscribes until want messages came, and a moment longer to catch extra ones.
func read(t *testing.T, b bus.Bus, sub bus.Subscription, want int) []bus.Message {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var s seen
	var once sync.Once
	err := b.Subscribe(ctx, sub, func(_ context.Context, msgs []bus.Message) error {
		if s.add(msgs) >= want {
			once.Do(func() { time.AfterFunc(50*time.Millisecond, cancel) })
		}
		return nil
	})
	if err != nil {
		t.Fatalf("subscribe: %v", err)
	}
	if len(s.msgs) != want {
		t.Fatalf("read %d messages, want %d", len(s.msgs), want)
	}
	return s.msgs
}

func orderPerKey(t *testing.T, o Options) {
	b, name := open(t, o), topic()
	n, err := b.Partitions(t.Context(), name)
	if err != nil || n < 2 {
		t.Fatalf("partitions: %d, %v; the suite needs 2", n, err)
	}
	for i := 0; i < 700; i += 70 {
		publish(t, b, name, i, i+70)
	}
	last, offsets, used := map[string]int{}, map[int]int64{}, map[int]bool{}
	for _, m := range read(t, b, bus.Subscription{Topic: name, Group: "g"}, 700) {
		var v int
		if _, err := fmt.Sscan(string(m.Value), &v); err != nil {
			t.Fatal(err)
		}
		if p := bus.PartitionFor(m.Key, n); m.Partition != p {
			t.Fatalf("key %s is in partition %d, want %d", m.Key, m.Partition, p)
		}
		if prev, ok := last[m.Key]; ok && v != prev+7 {
			t.Fatalf("key %s: %d after %d", m.Key, v, prev)
		}
		if prev, ok := offsets[m.Partition]; ok && m.Offset <= prev {
			t.Fatalf("partition %d: offset %d after %d", m.Partition, m.Offset, prev)
		} else if !ok && m.Offset != 0 {
			t.Fatalf("partition %d begins at %d", m.Partition, m.Offset)
		}
		if m.Topic != name || time.Since(m.Time).Abs() > time.Minute {
			t.Fatalf("message of topic %q, time %s", m.Topic, m.Time)
		}
		last[m.Key], offsets[m.Partition], used[m.Partition] = v, m.Offset, true
	}
	if len(used) < 2 {
		t.Fatalf("all keys are in one partition")
	}
}

func replay(t *testing.T, o Options) {
	b, name := open(t, o), topic()
	publish(t, b, name, 0, 100)
	all := read(t, b, bus.Subscription{Topic: name, Group: "g"}, 100)
	counts := map[int]int{}
	for _, m := range all {
		counts[m.Partition]++
	}
	want := 0
	for _, c := range counts {
		want += max(c-5, 0)
	}
	from5 := bus.Subscription{Topic: name, Group: "g", Start: func(context.Context, int) (int64, error) { return 5, nil }}
	for range 2 { // the group's position plays no part
		for _, m := range read(t, b, from5, want) {
			if m.Offset < 5 {
				t.Fatalf("offset %d is before the start", m.Offset)
			}
		}
	}
	broken := errors.New("no table")
	err := b.Subscribe(t.Context(), bus.Subscription{Topic: name, Start: func(context.Context, int) (int64, error) { return 0, broken }},
		func(context.Context, []bus.Message) error { return nil })
	if !errors.Is(err, broken) {
		t.Fatalf("error of Start is lost: %v", err)
	}
}

func groupResumes(t *testing.T, o Options) {
	b, name := open(t, o), topic()
	publish(t, b, name, 0, 50)
	read(t, b, bus.Subscription{Topic: name, Group: "a"}, 50)
	publish(t, b, name, 50, 80)
	read(t, b, bus.Subscription{Topic: name, Group: "a"}, 30)
	read(t, b, bus.Subscription{Topic: name, Group: "b"}, 80)
}

func newGroup(t *testing.T, o Options) {
	b, name := open(t, o), topic()
	publish(t, b, name, 0, 20)
	used := map[int]bool{}
	for i := range 7 {
		used[bus.PartitionFor(fmt.Sprintf("key-%d", i), must(b.Partitions(t.Context(), name)))] = true
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	late := bus.Subscription{Topic: name, Group: "late", FromNewest: true}
	var s seen
	done := make(chan error, 1)
	go func() {
		found := map[int]bool{}
		var mu sync.Mutex
		done <- b.Subscribe(ctx, late, func(_ context.Context, msgs []bus.Message) error {
			s.add(msgs)
			mu.Lock()
			defer mu.Unlock()
			if found[msgs[0].Partition] = true; len(found) == len(used) {
				cancel()
			}
			return nil
		})
	}()
	// Nothing tells when it has found its place in each partition: publish until it has.
	end := 20
	for ; ctx.Err() == nil; end += 7 {
		publish(t, b, name, end, end+7)
		time.Sleep(10 * time.Millisecond)
	}
	if err := <-done; err != nil || s.count() == 0 {
		t.Fatalf("%d messages: %v", s.count(), err)
	}
	next := map[int]int64{}
	for _, m := range s.msgs {
		if v, err := strconv.Atoi(string(m.Value)); err != nil || v < 20 {
			t.Fatalf("got %s, which is older than the group", m.Value)
		}
		next[m.Partition] = m.Offset + 1
	}
	left := 0
	for _, m := range read(t, b, bus.Subscription{Topic: name, Group: "early"}, end) {
		if m.Offset >= next[m.Partition] {
			left++
		}
	}
	publish(t, b, name, end, end+10)
	for _, m := range read(t, b, late, left+10) {
		if m.Offset < next[m.Partition] {
			t.Fatalf("partition %d: got offset %d again, or what was before the group", m.Partition, m.Offset)
		}
	}
}

func noGroup(t *testing.T, o Options) {
	b, name := open(t, o), topic()
	publish(t, b, name, 0, 20)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var s seen
	done := make(chan error, 1)
	go func() {
		done <- b.Subscribe(ctx, bus.Subscription{Topic: name}, func(_ context.Context, msgs []bus.Message) error {
			s.add(msgs)
			cancel()
			return nil
		})
	}()
	// Nothing tells when the subscription has found its place: publish until it has.
	for i := 20; ctx.Err() == nil; i++ {
		publish(t, b, name, i, i+1)
		time.Sleep(10 * time.Millisecond)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for _, m := range s.msgs {
		if len(m.Value) < 2 || string(m.Value) < "20" {
			t.Fatalf("got %s, which is older than the subscription", m.Value)
		}
	}
}

func failedHandler(t *testing.T, o Options) {
	b, name := open(t, o), topic()
	publish(t, b, name, 0, 10)
	broken := errors.New("cannot handle")
	err := b.Subscribe(t.Context(), bus.Subscription{Topic: name, Group: "g"}, func(context.Context, []bus.Message) error { return broken })
	if !errors.Is(err, broken) {
		t.Fatalf("error of the handler is lost: %v", err)
	}
	read(t, b, bus.Subscription{Topic: name, Group: "g"}, 10)
}

func backPressure(t *testing.T, o Options) {
	b, name := open(t, o), topic()
	publish(t, b, name, 0, 400)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	n, _ := b.Partitions(ctx, name)
	busy := make([]atomic.Bool, n)
	var s seen
	err := b.Subscribe(ctx, bus.Subscription{Topic: name, Group: "g", MaxBatch: 10}, func(_ context.Context, msgs []bus.Message) error {
		p := msgs[0].Partition
		if len(msgs) > 10 {
			return fmt.Errorf("batch of %d", len(msgs))
		}
		if busy[p].Swap(true) {
			return fmt.Errorf("partition %d: two batches at a time", p)
		}
		time.Sleep(time.Millisecond)
		busy[p].Store(false)
		if s.add(msgs) >= 400 {
			cancel()
		}
		return nil
	})
	if err != nil || s.count() != 400 {
		t.Fatalf("%d messages, %v", s.count(), err)
	}
}

func independentPartitions(t *testing.T, o Options) {
	b, name := open(t, o), topic()
	publish(t, b, name, 0, 70)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stuck := bus.PartitionFor("key-0", must(b.Partitions(ctx, name)))
	want := 0
	for i := range 70 {
		if bus.PartitionFor(fmt.Sprintf("key-%d", i%7), must(b.Partitions(ctx, name))) != stuck {
			want++
		}
	}
	var s seen
	err := b.Subscribe(ctx, bus.Subscription{Topic: name, Group: "g"}, func(ctx context.Context, msgs []bus.Message) error {
		if msgs[0].Partition == stuck {
			<-ctx.Done()
			return ctx.Err()
		}
		if s.add(msgs) == want {
			cancel()
		}
		return nil
	})
	if err != nil || s.count() != want {
		t.Fatalf("%d of %d, %v", s.count(), want, err)
	}
}

func must(n int, err error) int {
	if err != nil {
		panic(err)
	}
	return n
}

func somePartitions(t *testing.T, o Options) {
	b, name := open(t, o), topic()
	publish(t, b, name, 0, 70)
	want := 0
	for i := range 70 {
		if bus.PartitionFor(fmt.Sprintf("key-%d", i%7), must(b.Partitions(t.Context(), name))) == 1 {
			want++
		}
	}
	for _, m := range read(t, b, bus.Subscription{Topic: name, Group: "g", Partitions: []int{1}}, want) {
		if m.Partition != 1 {
			t.Fatalf("got a message of partition %d", m.Partition)
		}
	}
}

func batches(t *testing.T, o Options) {
	b, name := open(t, o), topic()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var s seen
	var calls int
	done := make(chan error, 1)
	go func() {
		done <- b.Subscribe(ctx, bus.Subscription{Topic: name, Group: "g", MaxBatch: 20, MaxWait: patience},
			func(_ context.Context, msgs []bus.Message) error {
				calls++
				if len(msgs) != 20 {
					return fmt.Errorf("batch of %d, want 20", len(msgs))
				}
				if s.add(msgs) == 40 {
					cancel()
				}
				return nil
			})
	}()
	for i := range 40 {
		if err := b.Publish(t.Context(), bus.Message{Topic: name, Key: "one", Value: fmt.Appendf(nil, "%d", i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-done; err != nil || calls != 2 {
		t.Fatalf("%d calls, %v", calls, err)
	}
}

func cancellation(t *testing.T, o Options) {
	b, name := open(t, o), topic()
	publish(t, b, name, 0, 1)
	// What is slow by itself is slow each time; a machine that stood still is not.
	took := endOf(t, b, name)
	for n := 1; n < 5 && took > 3*time.Second; n++ {
		took = endOf(t, b, name)
	}
	if took > 3*time.Second {
		t.Fatalf("ended after %s", took)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Publish(ctx, bus.Message{Topic: name, Key: "k", Value: []byte("x")}); err == nil {
		t.Error("published with a context that is done")
	}
}

// endOf returns how long a subscription that has read a message takes to end.
func endOf(t *testing.T, b bus.Bus, topic string) time.Duration {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got := make(chan struct{}, 1)
	done := make(chan error, 1)
	go func() {
		done <- b.Subscribe(ctx, bus.Subscription{
			Topic: topic, Start: func(context.Context, int) (int64, error) { return 0, nil },
		}, func(context.Context, []bus.Message) error {
			got <- struct{}{}
			return nil
		})
	}()
	select {
	case <-got:
	case <-time.After(patience):
		t.Fatal("nothing came")
	}
	start := time.Now()
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(patience):
		t.Fatal("did not end")
	}
	return time.Since(start)
}

func tooLarge(t *testing.T, o Options) {
	b, name := open(t, o), topic()
	big := make([]byte, o.MaxMessageBytes+1)
	err := b.Publish(t.Context(), bus.Message{Topic: name, Key: "k", Value: big})
	if !errors.Is(err, bus.ErrTooLarge) {
		t.Fatalf("got %v, want %v", err, bus.ErrTooLarge)
	}
	if err := b.Publish(t.Context(), bus.Message{Topic: name, Key: "k", Value: big[:o.MaxMessageBytes-1024]}); err != nil {
		t.Fatalf("a message below the limit: %v", err)
	}
	if m := read(t, b, bus.Subscription{Topic: name, Group: "g"}, 1); len(m[0].Value) != o.MaxMessageBytes-1024 {
		t.Fatalf("read %d bytes", len(m[0].Value))
	}
}

func concurrentPublishers(t *testing.T, o Options) {
	b, name := open(t, o), topic()
	const publishers, each = 16, 200
	var wg sync.WaitGroup
	for p := range publishers {
		wg.Go(func() {
			for i := 0; i < each; i += 100 {
				var msgs []bus.Message
				for j := range 100 {
					msgs = append(msgs, bus.Message{Topic: name, Key: fmt.Sprintf("p%d", p), Value: fmt.Appendf(nil, "%d", i+j)})
				}
				if err := b.Publish(t.Context(), msgs...); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	next := map[string]int{}
	for _, m := range read(t, b, bus.Subscription{Topic: name, Group: "g"}, publishers*each) {
		if string(m.Value) != strconv.Itoa(next[m.Key]) {
			t.Fatalf("%s: got %s, want %d", m.Key, m.Value, next[m.Key])
		}
		next[m.Key]++
	}
}

func latency(t *testing.T, o Options) {
	b, name := open(t, o), topic()
	publish(t, b, name, 0, 1)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	got := make(chan time.Time, 1)
	done := make(chan error, 1)
	go func() {
		done <- b.Subscribe(ctx, bus.Subscription{Topic: name, Group: "g"}, func(context.Context, []bus.Message) error {
			got <- time.Now()
			return nil
		})
	}()
	<-got
	const most = 100 * time.Millisecond
	best := time.Hour
	for i := 0; i < 20 || best > most && i < 200; i++ { // a busy machine has a free moment
		start := time.Now()
		publish(t, b, name, 7*i, 7*i+1)
		best = min(best, (<-got).Sub(start))
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	t.Logf("shortest publish to handler: %s", best)
	if best > most {
		t.Errorf("publish to handler took at least %s", best)
	}
}

func beyondEnd(t *testing.T, o Options) {
	b, name := open(t, o), topic()
	publish(t, b, name, 0, 10)
	read(t, b, bus.Subscription{Topic: name, Start: func(context.Context, int) (int64, error) { return 1000, nil }}, 10)
}

func closed(t *testing.T, o Options) {
	b, name := o.Open(t), topic()
	publish(t, b, name, 0, 1)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	got := make(chan struct{}, 1)
	done := make(chan error, 1)
	go func() {
		done <- b.Subscribe(ctx, bus.Subscription{Topic: name, Group: "g"}, func(context.Context, []bus.Message) error {
			got <- struct{}{}
			return nil
		})
	}()
	<-got
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, bus.ErrClosed) {
		t.Errorf("subscription ended with %v", err)
	}
	if err := b.Publish(ctx, bus.Message{Topic: name, Key: "k", Value: []byte("x")}); !errors.Is(err, bus.ErrClosed) {
		t.Errorf("publish returned %v", err)
	}
	if err := b.Subscribe(ctx, bus.Subscription{Topic: name}, nil); !errors.Is(err, bus.ErrClosed) {
		t.Errorf("subscribe returned %v", err)
	}
	if err := b.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

func reopened(t *testing.T, o Options) {
	if o.Volatile {
		return
	}
	b, name := open(t, o), topic()
	publish(t, b, name, 0, 30)
	read(t, b, bus.Subscription{Topic: name, Group: "g"}, 30)
	publish(t, b, name, 30, 40)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b = open(t, o)
	for _, m := range read(t, b, bus.Subscription{Topic: name, Group: "g"}, 10) {
		if v := string(m.Value); len(v) != 2 || v[0] != '3' {
			t.Fatalf("group got %s again", v)
		}
	}
	read(t, b, bus.Subscription{Topic: name, Group: "new"}, 40)
}

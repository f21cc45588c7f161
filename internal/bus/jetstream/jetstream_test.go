package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"auspex/internal/bus"
	"auspex/internal/bus/bustest"
	"auspex/internal/bus/jetstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func config(tb testing.TB) jetstream.Config {
	c := jetstream.DefaultConfig()
	c.Dir = tb.TempDir()
	c.Partitions, c.PublishTimeout = 3, time.Minute // a busy machine is no bus that fails
	return c
}

func open(tb testing.TB, c jetstream.Config) *jetstream.Bus {
	tb.Helper()
	b, err := jetstream.Open(context.Background(), c)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func TestConformance(t *testing.T) {
	dir := map[string]jetstream.Config{}
	bustest.Run(t, bustest.Options{
		Open: func(t *testing.T) bus.Bus {
			c, ok := dir[t.Name()]
			if !ok {
				c = config(t)
				dir[t.Name()] = c
			}
			return open(t, c)
		},
		MaxMessageBytes: config(t).MaxMessageBytes,
	})
}

func TestSyncAlwaysPublishes(t *testing.T) {
	c := config(t)
	c.SyncAlways = true
	b := open(t, c)
	defer func() { _ = b.Close() }()
	if err := b.Publish(t.Context(), bus.Message{Topic: "t", Key: "k", Value: []byte("x")}); err != nil {
		t.Fatal(err)
	}
}

func TestRetentionSkipsAndGoesOn(t *testing.T) {
	c := config(t)
	c.Partitions = 1
	c.Default = jetstream.Retention{Bytes: 1 << 20}
	b := open(t, c)
	defer func() { _ = b.Close() }()
	for i := range 40 {
		if err := b.Publish(t.Context(), bus.Message{Topic: "t", Key: "k", Value: fmt.Appendf(make([]byte, 100<<10), "%d", i)}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var first, last int64 = -1, 0
	err := b.Subscribe(ctx, bus.Subscription{
		Topic: "t", Start: func(context.Context, int) (int64, error) { return 2, nil },
	}, func(_ context.Context, msgs []bus.Message) error {
		if first < 0 {
			first = msgs[0].Offset
		}
		if last = msgs[len(msgs)-1].Offset; last == 39 {
			cancel()
		}
		return nil
	})
	if err != nil || first < 10 || last != 39 {
		t.Fatalf("read %d to %d: %v", first, last, err)
	}
}

func TestOpenRefuses(t *testing.T) {
	c := config(t)
	b := open(t, c)
	if _, err := jetstream.Open(t.Context(), c); !errors.Is(err, jetstream.ErrInUse) {
		t.Errorf("second open of a folder: %v", err)
	}
	if err := b.Publish(t.Context(), bus.Message{Topic: "bad topic", Value: nil}); err == nil {
		t.Error("accepted a topic name with a space")
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	c.Partitions = 5
	if _, err := jetstream.Open(t.Context(), c); err == nil || !strings.Contains(err.Error(), "3 partitions") {
		t.Errorf("another number of partitions: %v", err)
	}
	for _, change := range []func(*jetstream.Config){
		func(c *jetstream.Config) { c.Dir = "" },
		func(c *jetstream.Config) { c.Partitions = 0 },
		func(c *jetstream.Config) { c.SyncInterval = 0 },
		func(c *jetstream.Config) { c.MaxMessageBytes = 1 << 30 },
		func(c *jetstream.Config) { c.PublishTimeout = 0 },
	} {
		c := config(t)
		change(&c)
		if err := c.Validate(); err == nil {
			t.Errorf("accepted %+v", c)
		}
	}
}

func BenchmarkPublishConsume(b *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			s := open(b, config(b))
			defer func() { _ = s.Close() }()
			value := make([]byte, size)
			for i := range value {
				value[i] = byte(i * 31 >> 3)
			}
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			got, done := 0, make(chan error, 1)
			go func() {
				done <- s.Subscribe(ctx, bus.Subscription{
					Topic: "t", Group: "g", Partitions: []int{bus.PartitionFor("k", 3)},
				}, func(_ context.Context, msgs []bus.Message) error {
					if got += len(msgs); got >= b.N {
						cancel()
					}
					return nil
				})
			}()
			b.SetBytes(int64(size))
			msgs := make([]bus.Message, 0, 64)
			for i := 0; i < b.N; {
				msgs = msgs[:0]
				for ; i < b.N && len(msgs) < cap(msgs); i++ {
					msgs = append(msgs, bus.Message{Topic: "t", Key: "k", Value: value})
				}
				if err := s.Publish(b.Context(), msgs...); err != nil {
					b.Fatal(err)
				}
			}
			if err := <-done; err != nil {
				b.Fatal(err)
			}
		})
	}
}

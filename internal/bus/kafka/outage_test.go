package kafka_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"auspex/internal/bus"
	"auspex/internal/bus/kafka"
	"auspex/internal/waittest"
)

// dialer connects while allowed says nil.
func dialer(allowed func() error) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if err := allowed(); err != nil {
			return nil, err
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
}

// cable is the way to the brokers, and can be cut.
type cable struct {
	mu    sync.Mutex
	cut   bool
	conns []net.Conn
}

var errCut = fmt.Errorf("the cable is cut: %w", syscall.ECONNREFUSED)

func (c *cable) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := dialer(func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.cut {
			return errCut
		}
		return nil
	})(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		_ = conn.Close()
		return nil, errCut
	}
	c.conns = append(c.conns, conn)
	return conn, nil
}

func (c *cable) set(cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = cut
	if cut {
		for _, conn := range c.conns { // as if the other end had closed
			_ = conn.(*net.TCPConn).CloseRead()
			_ = conn.(*net.TCPConn).CloseWrite()
		}
		c.conns = nil
	}
}

func TestAnOutageLosesNothingAndIsTold(t *testing.T) {
	c := config(t)
	var way cable
	c.Dial = way.dial
	b, err := kafka.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	var mu sync.Mutex
	seen := map[string]int{}
	ctx, cancel := context.WithCancel(t.Context())
	read := make(chan error, 1)
	go func() {
		read <- b.Subscribe(ctx, bus.Subscription{Topic: "t", Group: "g"}, func(_ context.Context, msgs []bus.Message) error {
			mu.Lock()
			defer mu.Unlock()
			for _, m := range msgs {
				seen[string(m.Value)]++
			}
			return nil
		})
	}()
	send := func(i int) error {
		return b.Publish(t.Context(), bus.Message{Topic: "t", Key: strconv.Itoa(i % 5), Value: fmt.Appendf(nil, "%d", i)})
	}
	arrived := func(n int) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(seen) >= n
		}
	}
	for i := range 20 {
		if err := send(i); err != nil {
			t.Fatal(err)
		}
	}
	waittest.For(t, "the first messages", arrived(20))
	if err := b.Health(); err != nil {
		t.Errorf("healthy, and says %v", err)
	}

	way.set(true)
	sent := make(chan error, 20)
	for i := range 20 {
		go func() {
			err := send(20 + i)
			for end := time.Now().Add(2 * time.Minute); err != nil && time.Now().Before(end); err = send(20 + i) {
				time.Sleep(50 * time.Millisecond) // whoever publishes tries again
			}
			sent <- err
		}()
	}
	waittest.For(t, "health to tell", func() bool { return b.Health() != nil })
	logged := b.Health().Error()
	if !strings.Contains(logged, c.Brokers[0]) || !strings.Contains(logged, " since ") || strings.Contains(logged, "\n") {
		t.Errorf("health: %q", logged)
	}
	way.set(false)
	for range 20 {
		if err := <-sent; err != nil {
			t.Errorf("a message of the outage: %v", err)
		}
	}
	waittest.For(t, "the messages of the outage", arrived(40))
	waittest.For(t, "health to be well", func() bool { return b.Health() == nil })
	cancel()
	if err := <-read; err != nil {
		t.Errorf("the reader ended with %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	var missing []int
	for i := range 40 {
		if seen[strconv.Itoa(i)] == 0 {
			missing = append(missing, i)
		}
	}
	if len(missing) > 0 {
		t.Errorf("lost: %v", missing)
	}
}

func TestCloseDoesNotWaitForBrokersThatAreAway(t *testing.T) {
	c := config(t)
	var way cable
	c.Dial = way.dial
	b, err := kafka.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Publish(t.Context(), bus.Message{Topic: "t", Value: []byte("before")}); err != nil {
		t.Fatal(err)
	}
	way.set(true)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	ends := make([]error, 3)
	for i := range ends {
		wg.Go(func() { ends[i] = b.Publish(ctx, bus.Message{Topic: "t", Value: []byte("meanwhile")}) })
	}
	waittest.For(t, "the publishers to be refused", func() bool { return b.Health() != nil })
	cancel()
	wg.Wait()
	if slices.Contains(ends, nil) {
		t.Errorf("published to nobody: %v", ends)
	}
	// The writer has attempts for half a minute left; the grace of a stop is 4 s for all.
	closed := make(chan struct{})
	began := time.Now()
	go func() {
		_ = b.Close()
		close(closed)
	}()
	select {
	case <-closed:
		t.Logf("closed after %s", time.Since(began))
	case <-time.After(15 * time.Second):
		t.Error("Close waits for the brokers")
	}
}

// Many subscriptions end one after the other within the grace of a stop.
func TestASubscriptionThatEndsDoesNotWaitForBrokersThatAreAway(t *testing.T) {
	c := config(t)
	var way cable
	c.Dial = way.dial
	b, err := kafka.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	if err := b.Publish(t.Context(), bus.Message{Topic: "t", Value: []byte("before")}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	handling, handled := make(chan struct{}), make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- b.Subscribe(ctx, bus.Subscription{Topic: "t", Group: "g"}, func(context.Context, []bus.Message) error {
			close(handling)
			<-handled
			return nil
		})
	}()
	<-handling
	way.set(true)
	go func() { _ = b.Publish(ctx, bus.Message{Topic: "t", Value: []byte("meanwhile")}) }()
	waittest.For(t, "the brokers to be missed", func() bool { return b.Health() != nil })
	cancel()
	began := time.Now()
	close(handled)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > time.Second { // its position has two seconds where brokers answer
		t.Errorf("it ended after %s", took)
	}
}

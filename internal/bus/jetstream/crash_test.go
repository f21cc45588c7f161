package jetstream_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"auspex/internal/bus"
	"auspex/internal/bus/jetstream"
)

// publisher is what the child process of the test below does: it publishes
// numbers and prints each one that was acknowledged.
func publisher(dir string) {
	c := jetstream.DefaultConfig()
	c.Dir, c.Partitions = dir, 2
	b, err := jetstream.Open(context.Background(), c)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	start, _ := strconv.Atoi(os.Getenv("BUS_CRASH_FROM"))
	for i := start; ; i++ {
		if err := b.Publish(
			context.Background(), bus.Message{Topic: "t", Key: "k", Value: fmt.Appendf(make([]byte, 0, 2000), "%d %1900d", i, i)},
		); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(i)
	}
}

// What was acknowledged is there after kill -9, in order, and the bus opens
// again at once.
func TestAcknowledgedMessagesSurviveKill(t *testing.T) {
	if dir := os.Getenv("BUS_CRASH_DIR"); dir != "" {
		publisher(dir)
	}
	dir := t.TempDir()
	next := 0
	for range 4 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestAcknowledgedMessagesSurviveKill$")
		cmd.Env = append(os.Environ(), "BUS_CRASH_DIR="+dir, "BUS_CRASH_FROM="+strconv.Itoa(next))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; n < 300 && lines.Scan(); n++ {
			if next, err = strconv.Atoi(lines.Text()); err != nil {
				t.Fatalf("child said %q", lines.Text())
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() { // what was acknowledged before the signal arrived
			if n, err := strconv.Atoi(lines.Text()); err == nil {
				next = n
			}
		}
		_ = cmd.Wait()
		next++
	}
	c := jetstream.DefaultConfig()
	c.Dir, c.Partitions = dir, 2
	b := open(t, c)
	defer func() { _ = b.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	want := 0
	err := b.Subscribe(ctx, bus.Subscription{Topic: "t", Group: "g"}, func(_ context.Context, msgs []bus.Message) error {
		for _, m := range msgs {
			var n int
			if _, err := fmt.Sscan(string(m.Value), &n); err != nil {
				return err
			}
			// A message that was on its way when the process died may be there twice.
			if n != want && n != want-1 {
				return fmt.Errorf("got %d, want %d", n, want)
			}
			if want = n + 1; want >= next {
				cancel()
			}
		}
		return nil
	})
	if err != nil || want < next {
		t.Fatalf("read up to %d of %d: %v", want, next, err)
	}
}

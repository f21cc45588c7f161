package sink_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"auspex/internal/bus"
	"auspex/internal/bus/jetstream"
	"auspex/internal/store/clickhouse"
	"auspex/internal/store/embedded"
	"auspex/internal/store/embedded/embeddedtest"
	"auspex/pipeline/sink"
	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

func TestMain(m *testing.M) {
	embeddedtest.Main()
	if len(os.Args) == 4 && os.Args[1] == "victim" {
		if err := victim(os.Args[2], os.Args[3] == "last"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// victim runs the bus, the engine and the sink on dir, and a collector beside
// them, until it is killed. The collector numbers its events and notes in a file
// what the bus has acknowledged, afterwards, so that it reads some twice. The
// last one publishes nothing, waits until all is stored, and stops in order.
func victim(dir string, last bool) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	bc := jetstream.DefaultConfig()
	bc.Dir = filepath.Join(dir, "bus")
	b, err := jetstream.Open(ctx, bc)
	if err != nil {
		return err
	}
	ec := embedded.DefaultConfig()
	ec.Dir, ec.StartTimeout = filepath.Join(dir, "engine"), 2*time.Minute
	engine, err := embedded.Start(ctx, ec)
	if err != nil {
		return err
	}
	cc := clickhouse.DefaultConfig()
	cc.Dial = engine.Dial
	db, err := clickhouse.Open(ctx, cc)
	if err != nil {
		return err
	}
	cfg := sink.DefaultConfig()
	cfg.FlushInterval = 15 * time.Millisecond
	s, err := sink.New(cfg, b, db, enricher(), nil, nil)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, func() {}) }()
	fmt.Println("running")
	n := readCursor(dir)
	if !last {
		for ; ; n += 5 {
			if _, _, err := collect(ctx, b, n); err != nil {
				return err
			}
			if n%50 == 0 {
				writeCursor(dir, n)
			}
			time.Sleep(time.Millisecond) // a collector has its rhythm
		}
	}
	// What was acknowledged after the cursor is known by reading on from it.
	newest := map[string]int64{}
	for range 20 {
		key, at, err := collect(ctx, b, n)
		if err != nil {
			return err
		}
		newest[key] = at
		n += 5
	}
	published, err := published(ctx, b, newest)
	if err != nil {
		return err
	}
	var events, ids, rows, readings uint64
	deadline := time.Now().Add(2 * time.Minute)
	for ; time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) { // a condition, in a process that is no test
		if err := db.Conn().QueryRow(ctx, "SELECT count(), uniqExact(id) FROM events").Scan(&events, &ids); err != nil {
			return err
		}
		if err := db.Conn().QueryRow(ctx, "SELECT count(), uniqExact(bus_partition, bus_offset) FROM gpu").Scan(&rows, &readings); err != nil {
			return err
		}
		if ids >= uint64(n) && rows >= published {
			cancel()
			if err := <-done; err != nil {
				return err
			}
			fmt.Printf("events %d ids %d want %d rows %d readings %d want %d\n", events, ids, n, rows, readings, published)
			_ = db.Close()
			engine.Close()
			return b.Close()
		}
	}
	return fmt.Errorf("not all was stored: events %d ids %d want %d rows %d want %d", events, ids, n, rows, published)
}

// collect publishes events n to n+4 and one reading of a GPU, and returns the key
// and the time of the reading.
func collect(ctx context.Context, b bus.Publisher, n int) (key string, observed int64, err error) {
	at := time.Now().UTC()
	batch := &auspexv1.Batch{Device: "s1", Collector: "kmsg", Observed: at.UnixNano()}
	for i := range 5 {
		batch.Events = append(batch.Events, event(fmt.Sprint("e", n+i), at))
	}
	value, err := batch.MarshalVT()
	if err != nil {
		return "", 0, err
	}
	reading := &auspexv1.Batch{
		Device: "s1", Collector: "c", Observed: at.UnixNano(),
		Gpus: &auspexv1.GpuColumns{Gpu: []uint32{0}, BaseTime: at.UnixNano(), Delta: []int64{0}, XidLast: []float64{1}},
	}
	sample, err := reading.MarshalVT()
	if err != nil {
		return "", 0, err
	}
	key = "s" + strconv.Itoa(n%7)
	return key, at.UnixNano(), b.Publish(
		ctx, bus.Message{Topic: schemas.TopicEvents, Key: key, Value: value},
		bus.Message{Topic: schemas.TopicTelemetry, Key: key, Value: sample},
	)
}

// published counts the messages of the topic telemetry, up to the newest of each
// key, after which nothing comes.
func published(ctx context.Context, b bus.Bus, newest map[string]int64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	var mu sync.Mutex
	var n uint64
	err := b.Subscribe(ctx, bus.Subscription{
		Topic: schemas.TopicTelemetry, Start: func(context.Context, int) (int64, error) { return 0, nil }, MaxBatch: 4096,
	}, func(_ context.Context, msgs []bus.Message) error {
		mu.Lock()
		defer mu.Unlock()
		n += uint64(len(msgs))
		for _, m := range msgs {
			batch := &auspexv1.Batch{}
			if err := batch.UnmarshalVT(m.Value); err != nil {
				return err
			}
			if newest[m.Key] == batch.GetObserved() {
				delete(newest, m.Key)
			}
		}
		if len(newest) == 0 {
			cancel()
		}
		return nil
	})
	if err == nil && len(newest) > 0 {
		err = errors.New("the telemetry was not read to its end")
	}
	return n, err
}

func readCursor(dir string) int {
	b, err := os.ReadFile(filepath.Join(dir, "cursor"))
	if err != nil || len(b) != 8 {
		return 0
	}
	return int(binary.LittleEndian.Uint64(b))
}

func writeCursor(dir string, n int) {
	tmp := filepath.Join(dir, "cursor.tmp")
	if os.WriteFile(tmp, binary.LittleEndian.AppendUint64(nil, uint64(n)), 0o600) == nil {
		_ = os.Rename(tmp, filepath.Join(dir, "cursor"))
	}
}

// AUSPEX_KILLS sets how often the process is killed.
func TestKillingTheProcessLosesAndDoublesNothing(t *testing.T) {
	embeddedtest.Require(t)
	kills := 4
	if n, err := strconv.Atoi(os.Getenv("AUSPEX_KILLS")); err == nil {
		kills = n
	}
	dir := t.TempDir()
	run := func(mode string) (*exec.Cmd, *bufio.Scanner, *strings.Builder) {
		cmd := exec.Command(os.Args[0], "victim", dir, mode)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd, bufio.NewScanner(out), &stderr
	}
	for range kills {
		cmd, out, stderr := run("go")
		if !out.Scan() {
			t.Fatal(cmd.Wait(), stderr)
		}
		time.Sleep(time.Duration(rand.IntN(500)) * time.Millisecond) // the moment of the kill
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	cmd, out, stderr := run("last")
	var summary string
	for out.Scan() {
		summary = out.Text()
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err, stderr)
	}
	var events, ids, want, rows, readings, messages int
	if n, err := fmt.Sscanf(
		summary, "events %d ids %d want %d rows %d readings %d want %d", &events, &ids, &want, &rows, &readings, &messages,
	); n != 6 {
		t.Fatal(summary, err)
	}
	t.Log(summary)
	if events != ids || ids < want || rows != readings || rows != messages {
		t.Errorf("not exactly once: %s", summary)
	}
}

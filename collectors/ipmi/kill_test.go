package ipmi

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bougou/go-ipmi/pkg/client"
	"github.com/bougou/go-ipmi/pkg/types"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"auspex/collectors"
	"auspex/collectors/collectortest"
	"auspex/internal/bmc/ipmi/ipmitest"
	"auspex/internal/sim/device"
	simipmi "auspex/internal/sim/ipmi"
	"auspex/internal/sim/ledger"
	"auspex/internal/store/cursors"
	"auspex/internal/store/sqldb"
	"auspex/schemas/auspexv1"
)

// The environment of a process that only reads a controller, until it is killed.
const (
	envAddr = "AUSPEX_TEST_IPMI_ADDR"
	envDir  = "AUSPEX_TEST_IPMI_DIR"
)

func TestMain(m *testing.M) {
	if addr := os.Getenv(envAddr); addr != "" {
		fmt.Fprintln(os.Stderr, collect(addr, os.Getenv(envDir)))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// collect is the process: positions in a relational store, and a file for a bus.
func collect(addr, dir string) error {
	ctx := context.Background()
	db, err := sqldb.Open(ctx, filepath.Join(dir, "state.db"))
	if err != nil {
		return err
	}
	out, err := os.OpenFile(filepath.Join(dir, "events"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := out.WriteString("\n"); err != nil { // what was being written when the last one was killed ends here
		return err
	}
	cfg := DefaultConfig()
	cfg.Interval, cfg.SensorInterval, cfg.Backlog, cfg.Timeout = 50*time.Millisecond, 0, 0, 30*time.Second
	c, err := cfg.New(target(addr), collectors.Settings{
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil)), Now: time.Now, Cursors: cursors.New(db), Secrets: collectortest.Secrets{},
		Metrics: prometheus.NewRegistry(),
	})
	if err != nil {
		return err
	}
	return c.Run(ctx, file{out})
}

// file takes events as lines: id and record.
type file struct{ *os.File }

func (f file) Emit(_ context.Context, b *auspexv1.Batch) error {
	var lines bytes.Buffer
	for _, e := range b.GetEvents() {
		if raw := e.GetAttrs()["raw"]; raw != "" {
			fmt.Fprintf(&lines, "%s %s\n", e.GetId(), raw)
		}
	}
	if lines.Len() == 0 {
		return nil
	}
	_, err := f.Write(lines.Bytes())
	return err
}

// killed runs the process, kills it at each time that so many more lines are there, and returns what it told: records by
// the id of their event.
func killed(t *testing.T, addr string, records, kills int, between func(kill int)) map[string]string {
	t.Helper()
	dir := t.TempDir()
	told := func() map[string]string {
		out := map[string]string{}
		b, err := os.ReadFile(filepath.Join(dir, "events"))
		if err != nil {
			return out
		}
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); strings.HasSuffix(line, "\n") && len(f) == 2 {
				if had, ok := out[f[0]]; ok && had != f[1] {
					t.Fatalf("the event %s is of the records %s and %s", f[0], had, f[1])
				}
				out[f[0]] = f[1]
			}
		}
		return out
	}
	for kill := range kills + 1 {
		var stderr bytes.Buffer
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), envAddr+"="+addr, envDir+"="+dir)
		cmd.Stderr = &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() { defer close(done); _ = cmd.Wait() }()
		want := records * (kill + 1) / (kills + 1)
		tick := time.NewTicker(20 * time.Millisecond)
		for size(filepath.Join(dir, "events")) < int64(want*line) || kill == kills && len(told()) < records { // some are there twice
			select {
			case <-tick.C:
			case <-done:
				t.Fatalf("the process ended: %s", &stderr)
			case <-t.Context().Done():
				t.Fatal("the test ended")
			}
		}
		tick.Stop()
		_ = cmd.Process.Kill()
		<-done
		if between != nil && kill < kills {
			between(kill)
		}
	}
	return told()
}

// line is the length of a line of events.
const line = 16 + 1 + 32 + 1

func size(path string) int64 {
	i, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return i.Size()
}

// amount is how many records there are. A log may have ten times as many, which takes minutes: AUSPEX_IPMI_RECORDS=10000.
func amount() int {
	if n, err := strconv.Atoi(os.Getenv("AUSPEX_IPMI_RECORDS")); err == nil {
		return n
	}
	return 1000
}

// board is a controller of the simulator with a log and nothing else, whose ledger is the truth.
type board struct {
	device.BMC
	truth *ledger.Writer

	mu     sync.Mutex
	log    []device.LogRecord
	erased time.Time
	next   uint16
}

func (b *board) Info() device.Info { return device.Info{Name: "gpu-r01-01", Firmware: "1.2"} }
func (b *board) Password(user string) (string, bool) {
	return "secret", user == "admin"
}
func (b *board) Power() device.PowerState { return device.PowerOn }
func (b *board) Sensors() []device.Sensor { return nil }
func (b *board) Now() time.Time           { return time.Now() }
func (b *board) Fault() device.Fault      { return device.Fault{} }
func (b *board) Log() ([]device.LogRecord, time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log, b.erased
}

func (b *board) add(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for range n {
		b.next++
		now := time.Now()
		b.log = append(b.log, device.LogRecord{ID: b.next, Time: now, SensorType: 0x08, SensorNumber: 0x40, EventType: 0x6f, Data: [3]byte{3, byte(b.next), byte(b.next >> 8)}})
		b.truth.Write(ledger.Entry{Time: now, Kind: ledger.KindRecord, Device: "gpu-r01-01", Protocol: "ipmi", Record: uint64(b.next), Epoch: strconv.FormatInt(b.erased.Unix(), 10)})
	}
}

// A collector that is killed without warning, again and again, tells each record of the simulator's ledger once.
func TestAKilledProcessLosesAndDoublesNothing(t *testing.T) {
	n := amount()
	path := filepath.Join(t.TempDir(), "ledger")
	truth, err := ledger.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := &board{truth: truth, erased: time.Now().Add(-time.Hour)}
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- simipmi.NewServer(b).Serve(ctx, conn) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
		_ = conn.Close()
	})
	b.add(n * 4 / 5)
	told := killed(t, conn.LocalAddr().String(), n, 4, func(kill int) {
		if kill == 2 {
			b.add(n - n*4/5)
		}
	})
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	written := map[string]bool{}
	for s := bufio.NewScanner(f); s.Scan(); {
		var e ledger.Entry
		if err := json.Unmarshal(s.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		written[fmt.Sprintf("%04x", e.Record)] = true
	}
	compare(t, told, written, n)
}

// compare holds events against records by their ids, which are not used twice.
func compare(t *testing.T, told map[string]string, written map[string]bool, n int) {
	t.Helper()
	if len(told) != n || len(written) != n {
		t.Errorf("%d events of %d records, of %d", len(told), len(written), n)
	}
	for event, raw := range told {
		id := raw[2:4] + raw[:2]
		if !written[id] {
			t.Errorf("event %s is of record %s, which was told or is none", event, id)
		}
		delete(written, id)
	}
	if len(written) > 0 {
		t.Errorf("%d records were not told", len(written))
	}
}

// The same against OpenIPMI's simulator, which numbers and stamps the records by itself.
func TestAKilledProcessReadsARealLogOnce(t *testing.T) {
	n := amount()
	s := ipmitest.StartSim(t, ipmitest.Obedient, "sel_enable 0x20 65000 0x0a")
	host, port, _ := net.SplitHostPort(s.Addr)
	var p int
	_, _ = fmt.Sscan(port, &p)
	c, err := client.NewClient(host, p, "admin", "secret")
	if err != nil {
		t.Fatal(err)
	}
	c.WithTimeout(30 * time.Second).WithCipherSuiteID(3)
	if err := c.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.WithoutCancel(t.Context())) })
	written, numbers := map[string]bool{}, 0
	add := func(n int) {
		for range n {
			numbers++
			rec := ipmitest.Record(1, 0, 0x08, 0x40, 0x6f, 0x03, byte(numbers), byte(numbers>>8))
			sel, err := types.ParseSEL(rec)
			if err != nil {
				t.Fatal(err)
			}
			r, err := c.AddSELEntry(t.Context(), sel)
			if err != nil {
				t.Fatal(err)
			}
			written[fmt.Sprintf("%04x", r.RecordID)] = true
		}
	}
	add(n / 2)
	told := killed(t, s.Addr, n, 4, func(kill int) {
		if kill == 1 {
			add(n - n/2)
		}
	})
	compare(t, told, written, n)
}

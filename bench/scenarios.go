package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/internal/run"
	"auspex/internal/usage"
	"auspex/schemas"
)

// Options says how much to measure.
type Options struct {
	N       int     // what the scenario counts; 0 is the scenario's default
	Servers int     // of the fleet, where the scenario lets one choose; 0 is 512, of those of the API 10,000
	Build   Builder // of the product that is measured
	// Set are settings of that product, key=value: of several scenarios each is told them.
	Set []string
}

// scenario is one measurement. It checks what it measured: a result that lacks
// something is an error.
type scenario struct {
	name string
	n    int // by default
	run  func(b *bencher, ctx context.Context) (Result, error)
}

func scenarios() []scenario {
	return []scenario{
		{"gnmi-ingest", 3_000_000, (*bencher).gnmiIngest},
		{"ipmi-poll", 4000, (*bencher).ipmiPoll},
		{"ipmi-fleet", 10_000, (*bencher).ipmiFleet},
		{"ipmi-sick", 10, (*bencher).ipmiSick},
		{"bus-away", 60, (*bencher).busAway},
		{"exporter-page", 2000, (*bencher).exporterPage},
		{"redfish-poll", 200, (*bencher).redfishPoll},
		{"bus-produce", 5_000_000, (*bencher).busProduce},
		{"bus-consume", 10_000_000, (*bencher).busConsume},
		{"pipeline", 3_000_000, (*bencher).pipeline},
		{"correlate", 50_000, (*bencher).correlateStorm},
		{"predict", 2_000_000, (*bencher).predictWear},
		{"alert-latency", 200, (*bencher).alertLatency},
		{"notify-latency", 200, (*bencher).notifyLatency},
		{"burst", 64, (*bencher).burst},
		{"agent-alert-latency", 200, (*bencher).agentAlertLatency},
		{"agent", 60, (*bencher).agentCost},
		{"control", 10_000, (*bencher).controlCases},
		{"api-reads", 30_000, (*bencher).apiReads},
		{"api-allocate", 3000, (*bencher).apiAllocate},
		{"api-stream", 200, (*bencher).apiStream},
		{"api-list", 80_000, (*bencher).apiList},
		{"api-logins", 1000, (*bencher).apiLogins},
	}
}

// Scenarios lists the scenarios in the order in which they run.
func Scenarios() []string {
	var out []string
	for _, s := range scenarios() {
		out = append(out, s.name)
	}
	return out
}

// Groups lists what stands for several scenarios: api for api-reads and all others of the API.
func Groups() []string { return []string{"api"} }

// members are the scenarios that a name stands for.
func members(name string) []string {
	if !slices.Contains(Groups(), name) {
		return []string{name}
	}
	return slices.DeleteFunc(Scenarios(), func(s string) bool { return !strings.HasPrefix(s, name+"-") })
}

// Run measures scenarios, all of them where none is named, and writes one JSON
// object each to out (formats, section 7). Several scenarios run one after the
// other, each in a process of its own, so that none pays for the one before. A
// scenario that fails does not keep the others from running.
func Run(ctx context.Context, o Options, names []string, out, errw io.Writer) error {
	if o.N < 0 {
		return fmt.Errorf("%w: n is %d, and must not be negative", usage.Err, o.N)
	}
	if o.Servers < 0 {
		return fmt.Errorf("%w: %d servers are too few", usage.Err, o.Servers)
	}
	if len(names) == 0 {
		names = Scenarios()
	}
	var each []string
	for _, name := range names {
		each = append(each, members(name)...)
	}
	names = each
	for _, name := range names {
		if !slices.Contains(Scenarios(), name) {
			return fmt.Errorf("%w: unknown scenario %q; known are %s", usage.Err, name, strings.Join(Scenarios(), ", "))
		}
	}
	if len(names) == 1 {
		return benchOne(ctx, o, names[0], out, errw)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	var errs []error
	for _, name := range names {
		args := []string{"bench", name, "--n", strconv.Itoa(o.N), "--servers", strconv.Itoa(o.Servers)}
		for _, set := range o.Set {
			args = append(args, "--set", set)
		}
		cmd := exec.CommandContext(ctx, self, args...)
		cmd.Stdout, cmd.Stderr = out, errw
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
		cmd.WaitDelay = 2 * stopBound
		if err := cmd.Run(); err != nil {
			errs = append(errs, fmt.Errorf("bench %s: %w", name, err))
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return errors.Join(errs...)
}

func benchOne(ctx context.Context, o Options, name string, out, errw io.Writer) (err error) {
	i := slices.IndexFunc(scenarios(), func(s scenario) bool { return s.name == name })
	s := scenarios()[i]
	dir, err := os.MkdirTemp("", "auspex-bench-")
	if err != nil {
		return fmt.Errorf("bench %s: %w", name, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b := &bencher{name: name, build: o.Build, n: s.n, servers: cmp.Or(o.Servers, 512), asked: o.Servers, dir: dir, err: errw}
	if o.N > 0 {
		b.n = o.N
	}
	r, err := s.run(b, ctx)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("bench %s: %w", name, err)
	}
	return json.NewEncoder(out).Encode(r)
}

// stopBound is what a product may take to stop.
const stopBound = 4 * time.Second

// bencher is what a scenario works with.
type bencher struct {
	name    string
	build   Builder
	n       int
	servers int
	asked   int    // servers that were asked for, or 0
	dir     string // empty at the start, removed at the end
	err     io.Writer
}

func (b *bencher) path(name string) string { return filepath.Join(b.dir, name) }

// product returns a product with its state in the scenario's folder, without a
// history, and with the settings of a scenario.
func (b *bencher) product(set ...string) (*Product, error) {
	return b.build(append([]string{"data=" + b.path("data"), "site=" + Site, "store.clickhouse=off"}, set...), b.err)
}

// inventory writes the inventory that a stack imports.
func (b *bencher) inventory(t schemas.Topology) (file string, err error) {
	doc, err := json.Marshal(&t)
	if err != nil {
		return "", err
	}
	file = b.path("topology.json")
	return file, os.WriteFile(file, doc, 0o600)
}

// live runs components until stop is called, and returns when all are ready.
type live struct {
	cancel context.CancelFunc
	died   chan struct{}
	err    error
}

func (b *bencher) start(ctx context.Context, s *Product, comps ...run.Component) (*live, error) {
	if err := os.MkdirAll(s.Data, 0o700); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	l := &live{cancel: cancel, died: make(chan struct{})}
	ready := make(chan struct{})
	comps = append(comps, run.Func("ready", func(ctx context.Context, ok func()) error {
		close(ready)
		ok()
		<-ctx.Done()
		return nil
	}))
	go func() {
		defer close(l.died)
		l.err = run.Group(ctx, s.Log, stopBound, comps...)
	}()
	select {
	case <-ready:
		return l, nil
	case <-l.died:
		cancel()
		return nil, errors.Join(l.err, ctx.Err())
	}
}

func (l *live) stop() error {
	l.cancel()
	<-l.died
	return l.err
}

// await waits until what is asked for is there, or a part of the product dies, or
// the patience ends.
func (l *live) await(ctx context.Context, patience time.Duration, what string, there func() bool) error {
	t := time.NewTicker(5 * time.Millisecond)
	defer t.Stop()
	end := time.Now().Add(patience)
	for !there() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.died:
			return errors.Join(fmt.Errorf("waiting for %s", what), l.err)
		case <-t.C:
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s: not there after %s", what, patience)
		}
	}
	return nil
}

// total adds up the values of a counter, where a label is given those with its value.
func total(reg prometheus.Gatherer, name, label, value string) float64 {
	families, err := reg.Gather()
	if err != nil {
		return 0
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			match := label == ""
			for _, l := range m.GetLabel() {
				match = match || l.GetName() == label && l.GetValue() == value
			}
			if match {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// gauge returns the value of a gauge.
func gauge(reg prometheus.Gatherer, name string) float64 {
	families, err := reg.Gather()
	if err != nil {
		return 0
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return 0
}

// times gathers durations from several goroutines.
type times struct {
	mu sync.Mutex
	ds []time.Duration
}

func (t *times) add(d time.Duration) {
	t.mu.Lock()
	t.ds = append(t.ds, d)
	t.mu.Unlock()
}

func (t *times) all() []time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.ds)
}

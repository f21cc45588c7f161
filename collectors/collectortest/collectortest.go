// Package collectortest is the suite that every collector passes. A case is a
// folder, testdata/<case>/{config.yaml,input/…,expected.jsonl}: the collector's
// test serves the input in its own protocol, the suite runs the collector
// against it and compares what it emits. A user's bug report becomes a folder.
// Set AUSPEX_UPDATE=1 to write what was emitted as what is expected.
package collectortest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"

	"auspex/collectors"
	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

// Now is the clock of every case.
var Now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

const (
	// patience guards against what never comes: no sound collector needs it, however
	// busy the machine is.
	patience = 2 * time.Minute
	// tries is how often an end may come late. What is slow by itself is slow each
	// time; a machine that stood still is not.
	tries = 5
)

// Harness is what the suite must know of a collector.
type Harness struct {
	// Name is the registered name.
	Name string
	// Serve starts a server of a case's input folder and returns the target. It
	// ends the server with t.Cleanup.
	Serve func(t testing.TB, input string) schemas.Resource
	// Garbage starts a server that answers nonsense; nil leaves the check out.
	// The collector must fail with an error or carry on, and must not panic.
	Garbage func(t testing.TB) schemas.Resource
	// Dead is a target that nobody answers; the zero value leaves the check out.
	Dead schemas.Resource
	// At is a target at an address, host and port, where the suite lets a server
	// misbehave; nil leaves the checks out. Datagrams says that it is asked over UDP.
	At        func(addr string) schemas.Resource
	Datagrams bool
	// Reach has a target that Serve, Garbage or At has returned be reached in another way, as through
	// a tunnel, until the test ends; nil reaches it as it is. Tunnels opens connections to those that dial in.
	Reach   func(t testing.TB, target schemas.Resource) schemas.Resource
	Tunnels collectors.Tunnels
	// Prepare may change the configuration, such as paths of certificates.
	Prepare func(t testing.TB, cfg collectors.Config)
	// Ignore names goroutines of the test's own server.
	Ignore []goleak.Option
	// Settle is how long a case waits for more than was expected; 0 means 100 ms.
	Settle time.Duration
}

// Run runs every case under testdata, and the checks that hold for all collectors.
func Run(t *testing.T, h Harness) {
	t.Helper()
	cases, err := filepath.Glob("testdata/*/config.yaml")
	if err != nil || len(cases) == 0 {
		t.Fatalf("no cases under testdata: %v", err)
	}
	for _, c := range cases {
		dir := filepath.Dir(c)
		t.Run(filepath.Base(dir), func(t *testing.T) { h.testCase(t, dir) })
	}
	t.Run("it declares whose eyes it reads with", h.testSight)
	first := filepath.Dir(cases[0])
	t.Run("the constructor performs no I/O", func(t *testing.T) { h.testInert(t, first) })
	t.Run("a cancelled run returns within a second", func(t *testing.T) { h.testCancel(t, first) })
	t.Run("a second run reads no event twice", func(t *testing.T) { h.testResume(t, first) })
	if h.Garbage != nil {
		t.Run("nonsense harms nobody", func(t *testing.T) { h.testGarbage(t, first) })
	}
	if h.At != nil {
		t.Run("a hostile device harms itself alone", func(t *testing.T) { h.testHostile(t, first) })
	}
	if h.Dead.ID != "" {
		t.Run("a dead device is an error", func(t *testing.T) { h.testDead(t, first) })
	}
}

// reach makes a target one that is reached as the collector is to reach it.
func (h Harness) reach(t testing.TB, target schemas.Resource) schemas.Resource {
	if h.Reach == nil {
		return target
	}
	return h.Reach(t, target)
}

func (h Harness) settings() collectors.Settings {
	s := Settings()
	s.Tunnels = h.Tunnels
	return s
}

func (h Harness) config(t testing.TB, dir string) collectors.Config {
	t.Helper()
	cfg, err := collectors.Lookup(h.Name)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	dec.KnownFields(true)
	if err := dec.Decode(cfg); err != nil && len(bytes.TrimSpace(raw)) > 0 {
		t.Fatalf("%s/config.yaml: %v", dir, err)
	}
	if h.Prepare != nil {
		h.Prepare(t, cfg)
	}
	if v, ok := cfg.(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			t.Fatal(err)
		}
	}
	return cfg
}

func (h Harness) testCase(t *testing.T, dir string) {
	file := filepath.Join(dir, "expected.jsonl")
	update := os.Getenv("AUSPEX_UPDATE") != ""
	want := readLines(t, file, update)
	cfg := h.config(t, dir)
	target := h.reach(t, h.Serve(t, filepath.Join(dir, "input")))
	if got := cfg.Targets([]schemas.Resource{target, {ID: "elsewhere", Kind: schemas.KindRack}}); !update && len(got) != 1 {
		t.Errorf("Targets picked %d resources, want the served one", len(got))
	}
	c, err := cfg.New(target, h.settings())
	if err != nil {
		t.Fatal(err)
	}
	rec := NewRecorder()
	wait := patience
	if update {
		wait = 3 * time.Second
	}
	stop := start(t, c, rec)
	deadline := time.After(wait)
	for rec.Len() < len(want) || update {
		select {
		case <-deadline:
		case <-rec.changed:
			continue
		}
		break
	}
	settle := h.Settle
	if settle == 0 {
		settle = 100 * time.Millisecond
	}
	time.Sleep(settle)
	stop()
	h.sees(t, rec)
	got := rec.Lines()
	if update {
		if err := os.WriteFile(file, []byte(strings.Join(got, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("records of %s (-want +got):\n%s", dir, d)
	}
}

// testSight holds what a collector declared against the views that there are.
func (h Harness) testSight(t *testing.T) {
	sight := collectors.SightOf(h.Name)
	if !slices.Contains(schemas.Views(), sight.View) {
		t.Errorf("view %q, want one of %q", sight.View, schemas.Views())
	}
	for _, name := range append([]string{h.Name}, sight.Sources...) {
		if got := collectors.ViewOf(name); got != sight.View {
			t.Errorf("%s is read with the eyes of %q, want %q", name, got, sight.View)
		}
	}
}

// sees holds the events of a case against the sources that the collector declared.
func (h Harness) sees(t *testing.T, rec *Recorder) {
	t.Helper()
	declared := collectors.SightOf(h.Name).Sources
	for _, ev := range rec.Events() {
		if !slices.Contains(declared, ev.Source) {
			t.Errorf("event %s (%s) has the source %q, which the registration does not name: %q", ev.ID, ev.Type, ev.Source, declared)
		}
	}
}

func (h Harness) testInert(t *testing.T, dir string) {
	before := goleak.IgnoreCurrent()
	target := h.Dead
	if target.ID == "" {
		target = h.reach(t, h.Serve(t, filepath.Join(dir, "input")))
		before = goleak.IgnoreCurrent()
	}
	if _, err := h.config(t, dir).New(target, h.settings()); err != nil {
		t.Fatal(err)
	}
	if err := leaked(before); err != nil {
		t.Error(err)
	}
}

// leaked returns goroutines that do not end; goleak by itself waits for half a second.
func leaked(options ...goleak.Option) (err error) {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if err = goleak.Find(options...); err == nil {
			return nil
		}
	}
	return err
}

func (h Harness) testCancel(t *testing.T, dir string) {
	target := h.reach(t, h.Serve(t, filepath.Join(dir, "input")))
	before := goleak.IgnoreCurrent()
	took := h.cancelled(t, dir, target)
	for n := 1; n < tries && took > time.Second; n++ {
		took = h.cancelled(t, dir, target)
	}
	if took > time.Second {
		t.Errorf("Run returned %s after its end, want within 1 s", took)
	}
	ignore := append([]goleak.Option{
		before, goleak.IgnoreAnyFunction("net/http.(*conn).serve"), goleak.IgnoreAnyFunction("net/http.(*connReader).backgroundRead"),
	}, h.Ignore...)
	if err := leaked(ignore...); err != nil {
		t.Error(err)
	}
}

// cancelled ends a run when it has emitted, and returns how long that took.
func (h Harness) cancelled(t *testing.T, dir string, target schemas.Resource) time.Duration {
	t.Helper()
	c, err := h.config(t, dir).New(target, h.settings())
	if err != nil {
		t.Fatal(err)
	}
	rec := NewRecorder()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		err := c.Run(ctx, rec)
		for ; err != nil && ctx.Err() == nil; err = c.Run(ctx, rec) {
			t.Logf("run: %v", err)
			time.Sleep(20 * time.Millisecond)
		}
		done <- err
	}()
	select {
	case <-rec.changed:
	case err := <-done:
		t.Fatalf("Run returned before it emitted: %v", err)
	case <-time.After(patience):
		t.Fatal("nothing was emitted")
	}
	began := time.Now()
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("Run after cancel: %v, want nil", err)
		}
	case <-time.After(patience):
		t.Fatal("Run did not return after its end")
	}
	return time.Since(began)
}

func (h Harness) testResume(t *testing.T, dir string) {
	target := h.reach(t, h.Serve(t, filepath.Join(dir, "input")))
	s := h.settings()
	ids := make(map[string]int)
	for range 2 {
		c, err := h.config(t, dir).New(target, s)
		if err != nil {
			t.Fatal(err)
		}
		rec := NewRecorder()
		stop := start(t, c, rec)
		select {
		case <-rec.changed:
		case <-time.After(2 * time.Second): // the second run may have nothing to say
		}
		time.Sleep(300 * time.Millisecond)
		stop()
		for _, ev := range rec.Events() {
			ids[ev.ID]++
		}
	}
	for id, n := range ids {
		if n > 1 {
			t.Errorf("event %s was emitted %d times", id, n)
		}
	}
}

func (h Harness) testGarbage(t *testing.T, dir string) {
	target := h.reach(t, h.Garbage(t))
	c, err := h.config(t, dir).New(target, h.settings())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, NewRecorder()) }()
	select {
	case err := <-done:
		t.Logf("Run: %v", err)
	case <-time.After(patience):
		t.Error("Run did not return after its end")
	}
}

func (h Harness) testDead(t *testing.T, dir string) {
	c, err := h.config(t, dir).New(h.Dead, h.settings())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := c.Run(ctx, NewRecorder()); err == nil || ctx.Err() != nil {
		t.Errorf("Run against nobody: %v, want an error in time", err)
	}
}

// start runs a collector, again while it fails, until the returned function is called.
func start(t testing.TB, c collectors.Collector, out collectors.Emitter) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if err := c.Run(ctx, out); err != nil && ctx.Err() == nil {
				t.Logf("run: %v", err)
				select {
				case <-ctx.Done():
				case <-time.After(20 * time.Millisecond):
				}
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// Settings returns settings with cursors in memory, the clock of [Now], and a
// secret for every reference: user "admin", password "secret".
func Settings() collectors.Settings {
	return collectors.Settings{
		Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return Now }, Cursors: NewCursors(), Secrets: Secrets{},
		Metrics: prometheus.NewRegistry(),
	}
}

// Secrets answers every reference with user "admin" and password "secret".
type Secrets struct{}

// Secret implements [collectors.Secrets].
func (Secrets) Secret(context.Context, string) (user, password string, err error) {
	return "admin", "secret", nil
}

// Cursors keeps positions in memory.
type Cursors struct {
	mu sync.Mutex
	m  map[[2]string]string
}

// NewCursors makes empty cursors.
func NewCursors() *Cursors { return &Cursors{m: make(map[[2]string]string)} }

// Cursor implements [collectors.Cursors].
func (c *Cursors) Cursor(_ context.Context, collector, device string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.m[[2]string{collector, device}], nil
}

// SetCursor implements [collectors.Cursors].
func (c *Cursors) SetCursor(_ context.Context, collector, device, position string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.m[[2]string{collector, device}] = position
	return nil
}

// Mortal is a process that is killed by its first event: nothing that it does after that is told or kept.
type Mortal struct {
	collectors.Cursors
	collectors.Emitter
	Mute bool // it is killed before it has told the event, and not after

	dead atomic.Bool
}

var errDead = errors.New("the process is dead")

// SetCursor implements [collectors.Cursors].
func (m *Mortal) SetCursor(ctx context.Context, collector, device, position string) error {
	if m.dead.Load() {
		return errDead
	}
	return m.Cursors.SetCursor(ctx, collector, device, position)
}

// Emit implements [collectors.Emitter].
func (m *Mortal) Emit(ctx context.Context, b *auspexv1.Batch) error {
	if len(b.GetEvents()) > 0 && m.Mute {
		m.dead.Store(true)
	}
	if m.dead.Load() {
		return errDead
	}
	m.dead.Store(len(b.GetEvents()) > 0)
	return m.Emitter.Emit(ctx, b)
}

// Dead reports whether it was killed.
func (m *Mortal) Dead() bool { return m.dead.Load() }

// Recorder is an emitter that keeps what it was given: events by their id, and
// of each series its first sample, so that further polls change nothing.
type Recorder struct {
	mu      sync.Mutex
	lines   map[string]string // sort key to JSON
	events  []schemas.Event
	changed chan struct{}
	fail    error
}

// NewRecorder makes an empty recorder.
func NewRecorder() *Recorder {
	return &Recorder{lines: make(map[string]string), changed: make(chan struct{}, 1)}
}

// Fail makes the following Emits return err; nil ends it.
func (r *Recorder) Fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail = err
}

// Len returns how many different records there are.
func (r *Recorder) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.lines)
}

// Events returns every event as it came, repeats included.
func (r *Recorder) Events() []schemas.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// Lines returns the records as JSON, one a line, in a fixed order.
func (r *Recorder) Lines() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	keys := make([]string, 0, len(r.lines))
	for k := range r.lines {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	var out []string
	for _, k := range keys {
		out = append(out, r.lines[k])
	}
	return out
}

// Sample is a line of expected.jsonl for a sample or a value of a GPU row.
type Sample struct {
	Metric string            `json:"metric"`
	Kind   string            `json:"kind,omitempty"`
	Part   string            `json:"part,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	Time   *time.Time        `json:"time,omitempty"` // where it is not the collector's clock
	Value  any               `json:"value"`          // a number, or "NaN", "+Inf", "-Inf"
}

// Emit implements [collectors.Emitter].
func (r *Recorder) Emit(ctx context.Context, b *auspexv1.Batch) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if r.fail != nil {
		return r.fail
	}
	if b.GetDevice() == "" || b.GetCollector() == "" {
		return errors.New("batch without device or collector")
	}
	if s := b.GetSamples(); s != nil {
		if err := r.samples(s); err != nil {
			return err
		}
	}
	if g := b.GetGpus(); g != nil {
		if err := r.gpus(g); err != nil {
			return err
		}
	}
	for i, w := range b.GetEvents() {
		ev := schemas.EventFromWire(w)
		if ev.ID == "" || ev.Type == "" || ev.Resource == "" || ev.Severity.Rank() < 0 || ev.Source == "" {
			return fmt.Errorf("event %d lacks id, type, resource, severity or source: %+v", i, ev)
		}
		r.events = append(r.events, ev)
		ev.Observed = time.Time{}
		line, err := json.Marshal(struct {
			schemas.Event
			Observed *time.Time `json:"observed,omitempty"`
		}{Event: ev})
		if err != nil {
			return err
		}
		r.put(fmt.Sprintf("a\x00%s\x00%s", ev.Time.Format(time.RFC3339Nano), ev.ID), string(line))
	}
	select {
	case r.changed <- struct{}{}:
	default:
	}
	return nil
}

func (r *Recorder) put(key, line string) {
	if _, ok := r.lines[key]; !ok {
		r.lines[key] = line
	}
}

func (r *Recorder) samples(s *auspexv1.SampleColumns) error {
	if len(s.GetRef()) != len(s.GetDelta()) || len(s.GetRef()) != len(s.GetValue()) || len(s.GetSymbols()) == 0 || s.GetSymbols()[0] != "" {
		return errors.New("columns of different length, or symbol 0 is not empty")
	}
	for i, ref := range s.GetRef() {
		ser := s.GetSeries()[ref]
		sym := func(i uint32) string { return s.GetSymbols()[i] }
		out := Sample{Metric: sym(ser.GetMetric()), Kind: sym(ser.GetPartKind()), Part: sym(ser.GetPart())}
		for j := 0; j+1 < len(ser.GetLabels()); j += 2 {
			if out.Labels == nil {
				out.Labels = make(map[string]string)
			}
			out.Labels[sym(ser.GetLabels()[j])] = sym(ser.GetLabels()[j+1])
		}
		r.sample(out, s.GetBaseTime()+s.GetDelta()[i], s.GetValue()[i])
	}
	return nil
}

func (r *Recorder) gpus(g *auspexv1.GpuColumns) error {
	rows := len(g.GetGpu())
	if len(g.GetDelta()) != rows {
		return errors.New("GPU rows without times")
	}
	var err error
	g.ProtoReflect().Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if !fd.IsList() || fd.Kind() != protoreflect.DoubleKind {
			return true
		}
		if v.List().Len() != rows {
			err = fmt.Errorf("column %s has %d values for %d rows", fd.Name(), v.List().Len(), rows)
			return false
		}
		for i := range rows {
			out := Sample{Metric: string(fd.Name()), Kind: schemas.KindGPU, Part: strconv.FormatUint(uint64(g.GetGpu()[i]), 10)}
			if i < len(g.GetUuid()) && g.GetUuid()[i] != "" {
				out.Labels = map[string]string{"uuid": g.GetUuid()[i]}
			}
			r.sample(out, g.GetBaseTime()+g.GetDelta()[i], v.List().Get(i).Float())
		}
		return true
	})
	return err
}

func (r *Recorder) sample(s Sample, ns int64, v float64) {
	if t := time.Unix(0, ns).UTC(); !t.Equal(Now) {
		s.Time = &t
	}
	s.Value = v
	if v-v != 0 { // NaN and infinities have no JSON
		s.Value = strconv.FormatFloat(v, 'g', -1, 64)
	}
	line, err := json.Marshal(s)
	if err != nil {
		return
	}
	labels, _ := json.Marshal(s.Labels)
	r.put(fmt.Sprintf("b\x00%s\x00%s\x00%s\x00%s", s.Metric, s.Kind, s.Part, labels), string(line))
}

func readLines(t testing.TB, file string, missingOK bool) []string {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		if missingOK && os.IsNotExist(err) {
			return nil
		}
		t.Fatal(err)
	}
	var out []string
	for l := range strings.SplitSeq(string(raw), "\n") {
		if l = strings.TrimSpace(l); l != "" {
			out = append(out, l)
		}
	}
	return out
}

package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"auspex/collectors"
	"auspex/collectors/collectortest"
	"auspex/internal/target"
	"auspex/internal/tunnel/outbound"
	"auspex/internal/tunnel/tunneltest"
	"auspex/internal/waittest"
	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a server's agent: the target that the real one serves, on a journal in memory.
type node struct {
	tree *target.Tree

	mu      sync.Mutex
	records []target.Record
	news    chan struct{}
	acked   []uint64
}

func (n *node) Read(after uint64, most int) (out []target.Record, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range n.records {
		if r.Sequence > after && len(out) < most {
			out = append(out, r)
		}
	}
	return out, nil
}

func (n *node) Changed() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.news
}

func (n *node) Newest() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.records) == 0 {
		return 0
	}
	return n.records[len(n.records)-1].Sequence
}

func (n *node) add(r target.Record) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.records = append(n.records, r)
	close(n.news)
	n.news = make(chan struct{})
}

func (n *node) set(_ context.Context, _ target.Peer, values []target.Value) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, v := range values {
		n.acked = append(n.acked, v.Value.GetUintVal())
	}
	return nil
}

func (n *node) acknowledged() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.acked) == 0 {
		return 0
	}
	return slices.Max(n.acked)
}

func newNode(t testing.TB, leaves map[string]any) *node {
	t.Helper()
	n := &node{tree: target.NewTree(), news: make(chan struct{})}
	refs := map[string]target.Ref{}
	for path := range leaves {
		refs[path] = n.tree.Leaf(path)
	}
	w := n.tree.Write(collectortest.Now)
	defer w.Close()
	for path, v := range leaves {
		switch v := v.(type) {
		case float64:
			w.Uint(refs[path], uint64(v))
		case string:
			w.Text(refs[path], v)
		default:
			t.Fatalf("%s: %v", path, v)
		}
	}
	return n
}

func (n *node) serve(t testing.TB) schemas.Resource {
	t.Helper()
	cfg := target.DefaultConfig()
	cfg.MinSample, cfg.Log, cfg.Set = 100*time.Millisecond, n, n.set
	cfg.Access = target.Access{User: "admin", Password: "secret"}
	s, err := target.NewServer(n.tree, cfg)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	gpb.RegisterGNMIServer(srv, s)
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	t.Cleanup(func() { srv.Stop(); <-done })
	return at(l.Addr().String())
}

func at(addr string) schemas.Resource {
	return schemas.Resource{ID: "gpu-r01-01", Kind: schemas.KindServer, Attrs: schemas.AttrsOf(map[string]string{schemas.AttrAgentAddress: addr})}
}

func load(t testing.TB, dir string) *node {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "leaves.json"))
	if err != nil {
		t.Fatal(err)
	}
	var leaves map[string]any
	if err := json.Unmarshal(raw, &leaves); err != nil {
		t.Fatal(err)
	}
	n := newNode(t, leaves)
	in, err := os.Open(filepath.Join(dir, "journal.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	for sc := bufio.NewScanner(in); sc.Scan(); {
		var r target.Record
		if err := json.Unmarshal(sc.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		n.add(r)
	}
	return n
}

// The suite runs against agents that listen, and against agents that have dialled in.
func TestCollector(t *testing.T) {
	hub := newHub(t)
	for _, way := range []struct {
		name    string
		dead    schemas.Resource
		reach   func(t testing.TB, r schemas.Resource) schemas.Resource
		tunnels collectors.Tunnels
	}{
		{name: "agents listen", dead: at("127.0.0.1:1")},
		{name: "agents dial in", dead: at(schemas.AgentDialsIn), reach: hub.reach, tunnels: hub},
	} {
		t.Run(way.name, func(t *testing.T) {
			collectortest.Run(t, collectortest.Harness{
				Name:  Name,
				Serve: func(t testing.TB, input string) schemas.Resource { return load(t, input).serve(t) },
				Garbage: func(t testing.TB) schemas.Resource {
					n := newNode(t, map[string]any{"/journal/state/id": "a b", "/host/state/none": "x"})
					n.add(target.Record{Sequence: 1, Kind: "kernel", Data: "\x00\xff"})
					return n.serve(t)
				},
				Dead:    way.dead,
				At:      at,
				Reach:   way.reach,
				Tunnels: way.tunnels,
				Prepare: func(_ testing.TB, cfg collectors.Config) {
					cfg.(*Config).Timeout = time.Second
				},
			})
		})
	}
}

// hub is a server of tunnels whose machines hand on what comes to agents that listen.
type hub struct {
	*tunneltest.Server
	used int
}

// tokens is how often something may dial in.
const tokens = 100

func newHub(t *testing.T) *hub {
	t.Helper()
	servers := map[string]string{}
	for n := range tokens {
		servers[fmt.Sprintf("token-%d", n)] = at("").ID
	}
	return &hub{Server: tunneltest.Start(t, tunneltest.NewTokens(servers), slog.New(slog.DiscardHandler))}
}

// reach lets a machine dial in, and returns its target when it is there.
func (h *hub) reach(t testing.TB, r schemas.Resource) schemas.Resource {
	t.Helper()
	addr, dir := r.Attrs.Get(schemas.AttrAgentAddress), t.TempDir()
	own, err := outbound.Identity(filepath.Join(dir, "key"))
	if err != nil {
		t.Fatal(err)
	}
	cfg := outbound.Config{Address: h.Addr, CAFile: h.CA, TokenFile: filepath.Join(dir, "token"), Retry: 50 * time.Millisecond}
	if err := os.WriteFile(cfg.TokenFile, fmt.Appendf(nil, "token-%d\n", h.used), 0o600); err != nil {
		t.Fatal(err)
	}
	h.used++
	sessions := outbound.NewSessions()
	client := outbound.New(cfg, own, outbound.About{Hostname: r.ID}, sessions, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { client.Run(ctx) })
	wg.Go(func() {
		for {
			c, err := sessions.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { handOn(ctx, c, addr) })
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = sessions.Close()
		wg.Wait()
		waittest.For(t, "the machine is still there", func() bool { return len(h.Machines()) == 0 })
	})
	waittest.For(t, "the machine has not dialled in", func() bool { return len(h.Machines()) == 1 })
	return at(schemas.AgentDialsIn)
}

// handOn joins a session to an address until either ends.
func handOn(ctx context.Context, session net.Conn, addr string) {
	defer func() { _ = session.Close() }()
	agent, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		_, _ = io.Copy(agent, session)
		_ = agent.Close()
	})
	_, _ = io.Copy(session, agent)
	_ = agent.Close()
	_ = session.Close()
}

// What is durable is acknowledged, and a journal that began anew is read from its start.
func TestTheJournalIsAcknowledged(t *testing.T) {
	const line = "3,2,3500000000,-;NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
	record := func(n uint64) target.Record {
		return target.Record{Sequence: n, Kind: "kernel", Boot: "b1", BootTime: collectortest.Now.Add(-time.Hour).UnixNano(), Data: line}
	}
	cfg := Default()
	cfg.TLS.Disabled, cfg.Credential, cfg.SampleInterval = true, "agents", 100*time.Millisecond
	settings, rec := collectortest.Settings(), collectortest.NewRecorder()
	run := func(r schemas.Resource) (stop func()) {
		c, err := cfg.New(r, settings)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = c.Run(ctx, rec) }()
		return func() { cancel(); <-done }
	}
	n := newNode(t, map[string]any{"/journal/state/id": "first"})
	n.add(record(1))
	stop := run(n.serve(t))
	waittest.For(t, "not acknowledged", func() bool { return n.acknowledged() == 1 })
	stop()
	if got := len(rec.Events()); got != 1 {
		t.Fatalf("%d events", got)
	}
	anew := newNode(t, map[string]any{"/journal/state/id": "second"})
	anew.add(target.Record{
		Sequence: 1, Kind: "kernel", Boot: "b2", BootTime: collectortest.Now.Add(-time.Minute).UnixNano(), Data: "3,0,3500000,-;NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.",
	})
	stop = run(anew.serve(t))
	waittest.For(t, "not acknowledged", func() bool { return anew.acknowledged() == 1 })
	stop()
	if got := len(rec.Events()); got < 2 {
		t.Errorf("%d events: the new journal was not read", got)
	}
}

// rows are the rows of GPUs that a collector emits.
type rows struct {
	mu  sync.Mutex
	all []string
}

// Emit implements [collectors.Emitter].
func (r *rows) Emit(_ context.Context, b *auspexv1.Batch) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := b.GetGpus()
	cell := func(column []float64, row int) string {
		if len(column) == 0 || math.IsNaN(column[row]) {
			return "-"
		}
		return fmt.Sprint(column[row])
	}
	for i := range g.GetGpu() {
		r.all = append(r.all, fmt.Sprintf("%d %s %s %s", g.GetGpu()[i], g.GetUuid()[i], cell(g.GetGpuTempCelsius(), i), cell(g.GetPowerUsageWatts(), i)))
	}
	return nil
}

func (r *rows) has(row string) func() bool {
	return func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return slices.Contains(r.all, row)
	}
}

// A value that stays is not told, and yet in the row of each time; one that is gone is not.
func TestARowOfAGPUHasWhatStayed(t *testing.T) {
	n := newNode(t, map[string]any{"/journal/state/id": "j", "/journal/state/last": 0.0})
	temperature, power := n.tree.Leaf("/gpus/gpu[name=gpu2]/state/temperature"), n.tree.Leaf("/gpus/gpu[name=gpu2]/state/power")
	uuid := n.tree.Leaf("/gpus/gpu[name=gpu2]/state/uuid")
	write := func(fn func(w *target.Writer)) {
		w := n.tree.Write(time.Now())
		defer w.Close()
		fn(&w)
	}
	write(func(w *target.Writer) { w.Text(uuid, "GPU-x"); w.Uint(temperature, 40); w.Float(power, 400.5) })
	cfg := Default()
	cfg.TLS.Disabled, cfg.Credential, cfg.SampleInterval = true, "agents", 100*time.Millisecond
	c, err := cfg.New(n.serve(t), collectortest.Settings())
	if err != nil {
		t.Fatal(err)
	}
	out := &rows{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = c.Run(ctx, out) }()
	defer func() { cancel(); <-done }()
	waittest.For(t, "no first row", out.has("2 GPU-x 40 400.5"))
	write(func(w *target.Writer) { w.Uint(temperature, 41); w.Float(power, 400.5) })
	waittest.For(t, "no second row", out.has("2 GPU-x 41 400.5"))
	process := n.tree.Leaf("/gpus/gpu[name=gpu2]/process[pid=7]/state/pid")
	write(func(w *target.Writer) { w.Uint(process, 7) })
	n.tree.Drop("/gpus/gpu[name=gpu2]/process[pid=7]")
	write(func(w *target.Writer) { w.Uint(temperature, 42) })
	waittest.For(t, "a process took the row with it", out.has("2 GPU-x 42 400.5"))
	write(func(w *target.Writer) { w.Uint(temperature, 43); w.None(power) })
	waittest.For(t, "no row without power", out.has("2 GPU-x 43 -"))
	n.tree.Drop("/gpus/gpu[name=gpu2]")
	again := n.tree.Leaf("/gpus/gpu[name=gpu2]/state/power")
	write(func(w *target.Writer) { w.Float(again, 90) })
	waittest.For(t, "no row of what came back", out.has("2 GPU-x - 90"))
}

// What the pods of a server hold is told when it changes, once all of it is known.
func TestTheGPUsOfPodsAreTold(t *testing.T) {
	n := newNode(t, map[string]any{"/journal/state/id": "j", "/journal/state/last": 0.0})
	set := func(values map[string]string, drop ...string) {
		refs := map[string]target.Ref{}
		for path := range values {
			refs[path] = n.tree.Leaf(path)
		}
		for _, path := range drop {
			n.tree.Drop(path)
		}
		w := n.tree.Write(time.Now())
		defer w.Close()
		for path, v := range values {
			w.Text(refs[path], v)
		}
	}
	entry := func(pod, id string) string {
		return "/pods/device[container=c][id=" + id + "][namespace=ml][pod=" + pod + "][resource=nvidia.com/gpu]"
	}
	resource := n.serve(t)
	cfg := Default()
	cfg.TLS.Disabled, cfg.Credential, cfg.SampleInterval = true, "agent", 100*time.Millisecond
	rec := collectortest.NewRecorder()
	c, err := cfg.New(resource, collectortest.Settings())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, rec) }() // once: with a new stream all is read anew
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	last := func() (pods string, all int) {
		for _, ev := range rec.Events() {
			if ev.Type == schemas.EventWorkloadDevices {
				pods, all = ev.Attr("pods")+"|"+ev.Attr("unplaced"), all+1
			}
		}
		return pods, all
	}
	said := func(want string) {
		t.Helper()
		waittest.Until(t, func() error {
			if got, n := last(); got != want || n == 0 {
				return fmt.Errorf("%q, want %q, of %d", got, want, n)
			}
			return nil
		})
	}
	left := n.tree.Leaf("/pods/state/left-out")
	w := n.tree.Write(time.Now())
	w.Uint(left, 0)
	w.Close()
	said("|") // there is a kubelet, and no pod has a GPU
	set(map[string]string{
		entry("a", "GPU-1") + "/state/id": "GPU-1", entry("a", "GPU-1") + "/state/gpu": "gpu10", entry("a", "GPU-0") + "/state/id": "GPU-0",
		entry("a", "GPU-0") + "/state/gpu": "gpu9", entry("b", "GPU-1") + "/state/id": "GPU-1", entry("b", "GPU-1") + "/state/gpu": "gpu10",
		entry("x", "GPU-5") + "/state/id": "GPU-5",
	})
	said("ml/a=9+10,ml/b=10|1")
	set(map[string]string{entry("x", "GPU-5") + "/state/gpu": "gpu5"}, entry("a", "GPU-1"))
	said("ml/a=9,ml/b=10,ml/x=5|")
	_, before := last()
	set(nil, entry("a", "GPU-0"), entry("b", "GPU-1"), entry("x", "GPU-5"))
	said("|")
	if _, after := last(); before > 4 || after > before+3 {
		t.Errorf("told %d and %d times", before, after)
	}
}

// Half of what pods hold would be told as if the others held nothing.
func TestTheGPUsOfPodsAreNotToldByHalves(t *testing.T) {
	cfg := Default()
	cfg.TLS.Disabled = true
	made, err := cfg.New(at("127.0.0.1:1"), collectortest.Settings())
	if err != nil {
		t.Fatal(err)
	}
	rec := collectortest.NewRecorder()
	st, err := newState(t.Context(), made.(*subscriber))
	if err != nil {
		t.Fatal(err)
	}
	flushed := func(want int) {
		t.Helper()
		if err := st.flush(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
		if got := len(rec.Events()); got != want {
			t.Errorf("%d events, want %d: %+v", got, want, rec.Events())
		}
	}
	st.begin("j")
	st.pods.read = true
	st.pods.put(&leaf{what: onGPU, keys: []string{"c", "GPU-0", "ml", "a", "r"}}, "gpu0")
	flushed(0)
	st.pods.put(&leaf{what: onGPU, keys: []string{"c", "GPU-1", "ml", "b", "r"}}, "gpu1")
	st.pods.synced = true
	flushed(1)
	flushed(1)
	st.pods.at = st.pods.at.Add(-tellPodsAgain) // to whoever has lost it
	flushed(2)
	if evs := rec.Events(); evs[0].ID != evs[1].ID || evs[1].Attr("pods") != "ml/a=0,ml/b=1" {
		t.Errorf("%+v", evs)
	}
	st.begin("j")
	st.pods.synced = true
	flushed(2) // it has no kubelet
}

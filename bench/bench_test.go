package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"auspex/internal/decode/kernlog"
	"auspex/schemas"
)

func TestQuantileIsTheNearestRank(t *testing.T) {
	ms := func(ns ...int) (out []time.Duration) {
		for _, n := range ns {
			out = append(out, time.Duration(n)*time.Millisecond)
		}
		return out
	}
	for _, c := range []struct {
		name string
		in   []time.Duration
		q    float64
		want time.Duration
	}{
		{"of nothing it is zero", nil, .5, 0},
		{"of one it is the one", ms(7), .99, 7 * time.Millisecond},
		{"the median of an even number is the lower one", ms(4, 1, 3, 2), .5, 2 * time.Millisecond},
		{"p99 of few is the largest", ms(1, 9, 5), .99, 9 * time.Millisecond},
		{"q of zero is the smallest", ms(3, 1, 2), 0, time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Quantile(c.in, c.q); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestMeterCountsThisProcess(t *testing.T) {
	m := StartMeter("engine")
	deadline := time.Now().Add(30 * time.Millisecond)
	for time.Now().Before(deadline) {
		_ = strings.Repeat("x", 1000)
	}
	r := m.Stop("s", "things", 10)
	if r.Seconds < .03 || r.CPUSeconds <= 0 || r.PerSecond <= 0 || r.PerCPUSecond <= 0 || r.Go == "" || r.CPU == "" {
		t.Errorf("result lacks something: %+v", r)
	}
	if r.P50 != nil {
		t.Error("a scenario that times nothing has a percentile")
	}
	r.Latencies("a thing", []time.Duration{time.Millisecond, 3 * time.Millisecond})
	if *r.P50 != 1 || *r.P99 != 3 {
		t.Errorf("percentiles are %v and %v", *r.P50, *r.P99)
	}
}

func wire(t *testing.T, seed uint64, batches int) []byte {
	t.Helper()
	g := NewGenerator(4, seed, time.Unix(1_700_000_000, 0), 10*time.Second)
	var out []byte
	for range batches {
		b, err := g.Next().MarshalVT()
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b...)
	}
	return out
}

func TestTelemetryIsTheSameForTheSameSeed(t *testing.T) {
	if !bytes.Equal(wire(t, 1, 40), wire(t, 1, 40)) {
		t.Error("two generators of one seed differ")
	}
	if bytes.Equal(wire(t, 1, 40), wire(t, 2, 40)) {
		t.Error("two seeds give the same")
	}
}

func TestTelemetryHasEntropy(t *testing.T) {
	raw := wire(t, 1, 800)
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	packed := enc.EncodeAll(raw, nil)
	if len(packed)*8 < len(raw) {
		t.Errorf("%d bytes pack into %d: that is no real telemetry", len(raw), len(packed))
	}
}

func TestTelemetryFillsEveryColumn(t *testing.T) {
	g := NewGenerator(2, 1, time.Unix(1_700_000_000, 0), 10*time.Second)
	for i := range 8 {
		b := g.Next()
		samples, rows := SamplesOf(b)
		wantSamples, wantRows := GPUsPerServer*len(schemas.GPUMetrics), GPUsPerServer
		if i%2 == 1 {
			wantSamples, wantRows = sensorsPerServer, 0
		}
		if samples != wantSamples || rows != wantRows || b.GetDevice() != Server(i/2%2) {
			t.Errorf("batch %d of %s: %d samples, %d rows", i, b.GetDevice(), samples, rows)
		}
	}
}

func TestTopologyNamesEveryPartOnceAndLinksWhatIsThere(t *testing.T) {
	for _, top := range []schemas.Topology{Topology(20, "/logs"), Alone(Topology(20, "/logs"))} {
		named(t, &top)
	}
}

func named(t *testing.T, top *schemas.Topology) {
	t.Helper()
	known := map[string]bool{}
	for _, r := range top.Resources {
		if known[r.ID] {
			t.Errorf("%s is there twice", r.ID)
		}
		if r.Parent != "" && !known[r.Parent] {
			t.Errorf("%s is part of %s, which is not there", r.ID, r.Parent)
		}
		known[r.ID] = true
	}
	for _, l := range top.Links {
		if !known[l.From] || !known[l.To] {
			t.Errorf("link %v", l)
		}
	}
	if !known[GPU(19, 7)] || known[Server(20)] {
		t.Error("there are not 20 servers")
	}
}

func TestStormNamesACauseForEachEventOfAFault(t *testing.T) {
	s := NewStorm(StormOptions{Servers: 64, Events: 2000, Seed: 3})
	if len(s.Events) < 2000 {
		t.Fatalf("%d events", len(s.Events))
	}
	resources := map[string]bool{}
	for _, r := range s.Topology.Resources {
		resources[r.ID] = true
	}
	for _, w := range s.Topology.Workloads {
		resources[w.ID] = true
	}
	ids := map[string]bool{}
	for i, e := range s.Events {
		if ids[e.ID] || !resources[e.Resource] || i > 0 && e.Observed.Before(s.Events[i-1].Observed) {
			t.Fatalf("event %d: %+v", i, e)
		}
		ids[e.ID] = true
	}
	for _, f := range s.Faults {
		if len(f.Events) == 0 || !resources[f.Resource] {
			t.Errorf("fault %+v", f)
		}
	}
}

func TestFramesCarryWhatTheGeneratorMade(t *testing.T) {
	var out bytes.Buffer
	o := TelemetryOptions{Samples: 5000, Servers: 4, Seed: 1, Every: time.Second}
	doc, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := RunPeer(t.Context(), PeerFrames, string(doc), strings.NewReader(""), &out); err != nil {
		t.Fatal(err)
	}
	p := &Peer{raw: bufio.NewReader(&out)}
	msgs, got, err := p.Frames()
	if err != nil {
		t.Fatal(err)
	}
	if got.Batches != int64(len(msgs)) || got.Batches != 40 {
		t.Errorf("%d batches, %d messages", got.Batches, len(msgs))
	}
	for i, m := range msgs {
		if want := Server(i / 2 % 4); m.Key != want {
			t.Errorf("message %d is of %s, want %s", i, m.Key, want)
		}
	}
}

// TestKernelPeer writes a line that the decoder understands, and tells when a
// notification about its GPU was answered.
func TestKernelPeer(t *testing.T) {
	dir := t.TempDir()
	orders, in := io.Pipe()
	pipe, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- RunPeer(context.Background(), PeerKernel, `{"dir":"`+dir+`","servers":2}`, orders, out)
		_ = out.Close()
	}()
	receive := json.NewDecoder(pipe)
	var hello, written, notified KernelReport
	if err := receive.Decode(&hello); err != nil || hello.URL == "" {
		t.Fatalf("%+v, %v", hello, err)
	}
	if err := json.NewEncoder(in).Encode(KernelOrder{Server: 1, GPU: 3, XID: 79, Detail: "GPU has fallen off the bus."}); err != nil {
		t.Fatal(err)
	}
	if err := receive.Decode(&written); err != nil || written.Resource != GPU(1, 3) || written.Written == 0 {
		t.Fatalf("%+v, %v", written, err)
	}
	text, err := os.ReadFile(KernelLog(dir, 1))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	rec, err := kernlog.ParseKmsg(lines[len(lines)-1])
	if err != nil {
		t.Fatal(err)
	}
	var parser kernlog.Parser
	if ev := parser.Message(rec.Unit, rec.Text); len(ev) != 1 || ev[0].Type != "gpu.xid" || ev[0].Code != "79" {
		t.Errorf("%q is read as %+v", lines[len(lines)-1], ev)
	}
	post := func(body string) (status int, err error) {
		resp, err := http.Post(hello.URL+"/api/v2/alerts", "application/json", strings.NewReader(body)) //nolint:noctx // a test
		if err != nil {
			return 0, err
		}
		return resp.StatusCode, resp.Body.Close()
	}
	if code, err := post("no"); err != nil || code != http.StatusBadRequest {
		t.Errorf("a body that is no JSON is answered with %d, %v", code, err)
	}
	posted := make(chan error, 1)
	go func() {
		_, err := post(`[{"annotations":{"root_cause":"` + GPU(1, 3) + `","fault":"gpu.fallen_off_bus"},"endsAt":"2999-01-01T00:00:00Z"}]`)
		posted <- err
	}()
	if err := receive.Decode(&notified); err != nil {
		t.Fatal(err)
	}
	if err := <-posted; err != nil {
		t.Error(err)
	}
	want := KernelReport{Resource: GPU(1, 3), Fault: "gpu.fallen_off_bus", Notified: notified.Notified}
	if diff := cmp.Diff(want, notified); diff != "" || notified.Notified < written.Written {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	_ = in.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestUnknownPeerIsRefused(t *testing.T) {
	if err := RunPeer(t.Context(), "toaster", "{}", strings.NewReader(""), io.Discard); err == nil {
		t.Error("no error")
	}
}

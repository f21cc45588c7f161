package e2e

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"auspex/internal/sim"
	"auspex/schemas"
)

// recorder stands before an exporter: it hands on what it reads, and keeps what was said while
// a GPU was well, until it reads nothing. From then on it plays that back, again and again.
type recorder struct {
	at  string
	gpu string // as its series have it

	mu    sync.Mutex
	tape  [][]byte
	plays bool
	next  int
}

// ServeHTTP implements [http.Handler].
func (r *recorder) ServeHTTP(w http.ResponseWriter, in *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.plays {
		body, err := r.read(in.Context())
		switch {
		case err == nil:
			if len(r.tape) < 500 && strings.Contains(string(body), r.gpu) {
				r.tape = append(r.tape, body)
			}
			_, _ = w.Write(body)
			return
		case len(r.tape) == 0:
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		r.plays = true
	}
	_, _ = w.Write(r.tape[r.next%len(r.tape)])
	r.next++
}

func (r *recorder) read(ctx context.Context) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.at, nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	return io.ReadAll(io.LimitReader(res.Body, 16<<20))
}

// behind puts a recorder before the exporter of a server in a topology, for one of its GPUs.
func behind(t *testing.T, file, server, gpu string) *recorder {
	t.Helper()
	var top schemas.Topology
	b, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(b, &top)
	}
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(top.Resources, func(r schemas.Resource) bool { return r.ID == server })
	r := &recorder{at: top.Resources[i].Attrs.Get(schemas.AttrExporterURL), gpu: gpu}
	if !strings.HasSuffix(r.at, "/metrics") {
		r.at = strings.TrimSuffix(r.at, "/") + "/metrics"
	}
	srv := httptest.NewServer(r)
	t.Cleanup(srv.Close)
	top.Resources[i].Attrs = top.Resources[i].Attrs.With(schemas.AttrExporterURL, srv.URL)
	if b, err = json.Marshal(top); err == nil {
		err = os.WriteFile(file, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestARecordingVerifiesNoRepair plays back, from the moment its power goes, what the
// exporter of a server said when its GPU was well and its counters young: the server stays out of the pool, and a person
// reads why. A server beside it that is really cured returns.
func TestARecordingVerifiesNoRepair(t *testing.T) {
	beside(t)
	dir := dataDir(t)
	simulate(t, filepath.Join(dir, "sim"), "late-dead-gpu")
	tape := behind(t, filepath.Join(dir, "sim", sim.TopologyFile), dead, `gpu="2"`)
	config := fleetConfig(t, dir, "", "", "")
	b, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(b)) {
		if !strings.HasPrefix(line, "bus:") && !strings.HasPrefix(line, "store:") {
			lines = append(lines, line)
		}
	}
	config = write(t, dir, "one.yaml", strings.Join(lines, "")+"store: {clickhouse: \"off\"}\n")
	p := launch(t, filepath.Join(dir, "data"), "--config", config)
	p.ready()
	p.onlyTheCurableComesBack(dir)
	acts, err := p.actionsOn(dead)
	if err != nil {
		t.Fatal(err)
	}
	if a := acts["power_cycle"]; a.State != schemas.ActionUnknown || !strings.Contains(a.Detail, "repeats what was recorded") {
		t.Errorf("the power cycle is %s: %s", a.State, a.Detail)
	}
	tape.mu.Lock()
	if tape.next < 5 {
		t.Errorf("%d answers were played back of %d", tape.next, len(tape.tape))
	}
	tape.mu.Unlock()
	p.interrupt()
}

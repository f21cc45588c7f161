package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"auspex/collectors"
	"auspex/internal/bus"
	"auspex/internal/store/cursors"
	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

// counter is a bus that counts batches and can hold them up, so that something else has its turn.
type counter struct {
	sync.RWMutex // held for writing while no batch is taken
	mu           sync.Mutex
	batches      int
	last         []byte
	each         func() // called for each, in order
}

// Publish implements collectors.Publisher.
func (c *counter) Publish(_ context.Context, msgs ...bus.Message) error {
	c.RLock()
	defer c.RUnlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range msgs {
		if m.Topic != schemas.TopicTelemetry {
			continue
		}
		c.batches, c.last = c.batches+1, m.Value
		if c.each != nil {
			c.each()
		}
	}
	return nil
}

func (c *counter) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.batches
}

// samples counts those of the last batch.
func (c *counter) samples() (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b auspexv1.Batch
	if err := b.UnmarshalVT(c.last); err != nil {
		return 0, err
	}
	n, _ := SamplesOf(&b)
	return n, nil
}

// readPages reads devices until stop is called.
func (b *bencher) readPages(ctx context.Context, rs []schemas.Resource, out *counter, now func() time.Time, set ...string) (l *live, stop func() error, err error) {
	s, err := b.product(append(set, "collect.start_spread=0s", "collect.sample_rate=0", "collect.event_rate=0")...)
	if err != nil {
		return nil, nil, err
	}
	state, err := b.start(ctx, s, s.Components("state")...)
	if err != nil {
		return nil, nil, err
	}
	runner := collectors.NewRunner(s.Collect, s.Collectors, out, collectors.Settings{
		Log: s.Log, Now: now, Cursors: cursors.New(s.Parts().DB), Secrets: treeUser{}, Metrics: s.Metrics,
	})
	if err = runner.Reconcile(rs); err == nil {
		l, err = b.start(ctx, s, runner)
	}
	if err != nil {
		return nil, nil, errors.Join(err, state.stop())
	}
	return l, func() error { return errors.Join(l.stop(), state.stop()) }, nil
}

// treeUser is who may read recorded services.
type treeUser struct{}

// Secret implements collectors.Secrets.
func (treeUser) Secret(context.Context, string) (user, password string, err error) {
	return "admin", "secret", nil
}

const (
	pageFields = 80
	pageRounds = 4
	// pageServers are read, ten times a second each.
	pageServers = 20
)

// exporterPage reads the page of a dcgm-exporter of eight GPUs with 80 fields, and in turn has a plain
// loop fetch the same page and parse it with Prometheus' own parser.
func (b *bencher) exporterPage(ctx context.Context) (res Result, err error) {
	peer, err := StartPeer(ctx, PeerPages, PagesOptions{Fields: pageFields}, b.err)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, peer.Close()) }()
	var hello PagesReport
	if err := peer.Receive(&hello); err != nil {
		return res, err
	}
	url := hello.Address + "/metrics"
	out := &counter{}
	servers := make([]schemas.Resource, pageServers)
	for i := range servers {
		servers[i] = schemas.Resource{ID: Server(i), Kind: schemas.KindServer, Attrs: schemas.AttrsOf(map[string]string{schemas.AttrExporterURL: url})}
	}
	l, stop, err := b.readPages(ctx, servers, out, time.Now, "collectors.dcgmexporter.interval=100ms")
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	reached := func(n int) error {
		return l.await(ctx, patience, "pages", func() bool { return out.count() >= n })
	}
	if err := reached(10 * pageServers); err != nil { // the series are known
		return res, err
	}
	out.Lock()
	locked := true
	defer func() {
		if locked {
			out.Unlock()
		}
	}()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	var ours, theirs time.Duration
	var pages, size int
	meter := StartMeter()
	for range pageRounds {
		before := out.count()
		cpu := selfCPU()
		out.Unlock()
		locked = false
		if err := reached(before + b.n/pageRounds); err != nil {
			return res, err
		}
		out.Lock()
		locked = true
		after := out.count()
		ours, pages = ours+selfCPU()-cpu, pages+after-before
		cpu = selfCPU()
		for range b.n / pageRounds {
			if size, err = fetchPage(ctx, url, parser); err != nil {
				return res, err
			}
		}
		theirs += selfCPU() - cpu
	}
	res = meter.Stop(b.name, "pages", int64(pages))
	res.CPUSeconds, res.PerCPUSecond = round(ours.Seconds()), round(float64(pages)/ours.Seconds())
	each, plain := float64(ours.Microseconds())/float64(pages), float64(theirs.Microseconds())/float64(b.n/pageRounds*pageRounds)
	samples, err := out.samples()
	if err != nil {
		return res, err
	}
	res.Detail = map[string]any{
		"gpus": GPUsPerServer, "fields": pageFields, "servers": pageServers, "bytes": size, "samples": samples, "us_per_page": round(each), "plain_us_per_page": round(plain),
		"ratio": round(each / plain), "rounds": pageRounds,
	}
	if samples != GPUsPerServer*pageFields {
		return res, fmt.Errorf("a page gave %d samples, it shows %d", samples, GPUsPerServer*pageFields)
	}
	return res, nil
}

// fetchPage gets a page and parses it, and returns its size.
func fetchPage(ctx context.Context, url string, parser expfmt.TextParser) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err == nil {
		_, err = parser.TextToMetricFamilies(bytes.NewReader(body))
	}
	return len(body), err
}

// recordedTree is a recorded service that comes with the sources.
const recordedTree = "collectors/redfish/testdata/gh200/input/tree.tar.gz"

// treeRequests counts what a recorded service is asked: from the first request to the first reading, and of a steady round with
// sensors. Without the sources beside it there is nothing to count.
func (b *bencher) treeRequests(ctx context.Context, detail map[string]any) error {
	if _, err := os.Stat(recordedTree); err != nil {
		detail["gh200"] = "not counted: " + recordedTree + " is not here"
		return nil //nolint:nilerr // it is told
	}
	const known, last = 60, 20 // rounds until all was learnt, and of them those that count
	for name, set := range map[string]string{"round": "30s", "tick": "0s"} {
		peer, err := StartPeer(ctx, PeerPages, PagesOptions{Tree: recordedTree}, b.err)
		if err != nil {
			return err
		}
		var hello PagesReport
		if err := peer.Receive(&hello); err != nil {
			return errors.Join(err, peer.Close())
		}
		var counts []int64
		out := &counter{each: func() {
			if n, err := askPages(peer); err == nil {
				counts = append(counts, n)
			}
		}}
		// By the collector's clock each poll is half a minute after the one before: what it learns takes its time.
		began := time.Now()
		faster := func() time.Time { return began.Add(time.Duration(out.count()) * 30 * time.Second) }
		server := schemas.Resource{ID: Server(0), Kind: schemas.KindServer, Attrs: schemas.AttrsOf(map[string]string{
			schemas.AttrRedfishURL: hello.Address, schemas.AttrCredential: "bmc",
		})}
		l, stop, err := b.readPages(ctx, []schemas.Resource{server}, out, faster, "collectors.redfish={interval: 100ms, jitter: 0, backlog: 0s, sensor_interval: "+set+"}")
		if err == nil {
			err = errors.Join(l.await(ctx, patience, "rounds", func() bool { return out.count() >= known }), stop())
		}
		if err = errors.Join(err, peer.Close()); err != nil {
			return err
		}
		if len(counts) < known {
			return fmt.Errorf("%d of %d rounds were counted", len(counts), known)
		}
		each := make([]int64, last)
		for i := range each {
			each[i] = counts[known-last+i] - counts[known-last+i-1]
		}
		slices.Sort(each)
		detail["gh200_requests_"+name] = each[last/2] // the median: every 20th round looks for what is new, too
		if name == "round" {
			detail["gh200_requests_first"] = counts[0]
		}
	}
	return nil
}

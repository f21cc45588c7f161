package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"auspex/collectors"
	"auspex/internal/bus"
	"auspex/internal/sim"
	"auspex/internal/sim/child"
	"auspex/internal/sim/ledger"
	"auspex/internal/store/cursors"
	"auspex/schemas/auspexv1"
)

// tally is a bus for collectors that keeps what they say, and a gate that lets
// everyone through and times what they do there.
type tally struct {
	mu      sync.Mutex
	busy    map[string]time.Duration // by device: at its board controller, since the last batch
	took    []time.Duration          // one reading each
	samples map[string][]int         // by device: those of each batch of telemetry
	total   int
	polls   int
	events  map[string]bool // ids
}

// Acquire implements collectors.Gate.
func (t *tally) Acquire(_ context.Context, server string) (release func(), err error) {
	began := time.Now()
	return func() {
		t.mu.Lock()
		t.busy[server] += time.Since(began)
		t.mu.Unlock()
	}, nil
}

// Publish implements collectors.Publisher.
func (t *tally) Publish(_ context.Context, msgs ...bus.Message) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range msgs {
		var b auspexv1.Batch
		if err := b.UnmarshalVT(m.Value); err != nil {
			return err
		}
		if n := measured(b.GetSamples()); n > 0 {
			t.samples[b.GetDevice()] = append(t.samples[b.GetDevice()], n)
			t.total += n
			t.polls++
			t.took = append(t.took, t.busy[b.GetDevice()])
			delete(t.busy, b.GetDevice())
		}
		for _, e := range b.GetEvents() {
			t.events[e.GetId()] = true
		}
	}
	return nil
}

func (t *tally) readings() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.polls
}

// benchScript makes each board controller say something in its log: half of the
// power supplies of a rack lose their input and get it back.
const benchScript = `name: bench
faults:
  - {at: 3s, for: 2s, kind: feed_loss}
`

func (b *bencher) redfishPoll(ctx context.Context) (Result, error) {
	requests := map[string]any{}
	if err := b.treeRequests(ctx, requests); err != nil {
		return Result{}, err
	}
	res, err := b.poll(ctx, "redfish", "redfish", "collectors.redfish={interval: 400ms, sensor_interval: 400ms, jitter: 0}",
		"collectors.redfish.tls.ca_file="+b.path("sim/"+sim.CAFile))
	maps.Copy(res.Detail, requests)
	return res, err
}

// poll reads 16 simulated servers through one collector, more often than anybody
// should; every reading must be whole, and every record of the logs must come once.
func (b *bencher) poll(ctx context.Context, name, protocol string, set ...string) (res Result, err error) {
	fleet, err := b.simulate(ctx, 2, 8)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, fleet.Stop(5*time.Second)) }()
	s, err := b.product(
		append(set, "collect.start_spread=0s", "secrets="+fleet.Path(sim.SecretsFile), "inventory.file="+fleet.Path(sim.TopologyFile))...,
	)
	if err != nil {
		return res, err
	}
	l, err := b.start(ctx, s, s.Components("state")...)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, l.stop()) }()
	out := &tally{samples: map[string][]int{}, busy: map[string]time.Duration{}, events: map[string]bool{}}
	r := collectors.NewRunner(s.Collect, s.Collectors, out, collectors.Settings{
		Log: s.Log, Now: time.Now, Cursors: cursors.New(s.Parts().DB), Secrets: s.Parts().Secrets, Metrics: s.Metrics, Gate: out,
	})
	if err := r.Reconcile(s.Parts().Inventory.Snapshot().Resources()); err != nil {
		return res, err
	}
	devices := r.Targets()[name]
	meter := StartMeter()
	reader, err := b.start(ctx, s, r)
	if err != nil {
		return res, err
	}
	err = reader.await(ctx, patience, "readings", func() bool { return out.readings() >= b.n })
	res = meter.Stop(b.name, "polls", int64(out.readings()))
	var journal map[string]bool
	if err == nil {
		// The script has to be over: what it makes devices say is looked for.
		err = reader.await(ctx, 15*time.Second, "records of the event logs", func() bool {
			if time.Since(fleet.Started) < 6*time.Second {
				return false
			}
			var rerr error
			journal, rerr = logged(fleet.Path(sim.LedgerFile), protocol)
			return rerr == nil && out.records() >= len(journal)
		})
	}
	if err = errors.Join(err, reader.stop()); err != nil {
		return res, fmt.Errorf("%w (%d readings, %d records of %d)", err, out.readings(), out.records(), len(journal))
	}
	res.Latencies("one reading of one board controller", out.took)
	res.Detail = map[string]any{"devices": devices, "samples": out.total, "log_records": len(journal)}
	if n := total(s.Metrics, "auspex_collectors_errors_total", "", ""); n > 0 {
		return res, fmt.Errorf("%v readings failed", n)
	}
	if len(out.samples) != devices {
		return res, fmt.Errorf("%d of %d devices gave samples", len(out.samples), devices)
	}
	if got := out.records(); got != len(journal) {
		return res, fmt.Errorf("%d records were read, the devices have written %d", got, len(journal))
	}
	for device, ns := range out.samples {
		most := slices.Max(ns)
		for _, n := range ns {
			if n < most*9/10 { // some of what a board says of itself comes once a minute
				return res, fmt.Errorf("%s gave %d samples in one reading and %d in another", device, n, most)
			}
		}
	}
	return res, nil
}

// records counts the events.
func (t *tally) records() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.events)
}

// logged returns the records that a ledger says are in the event logs of one protocol.
func logged(path, protocol string) (map[string]bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	out := map[string]bool{}
	d := json.NewDecoder(bufio.NewReader(f))
	for {
		var e ledger.Entry
		if err := d.Decode(&e); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return out, nil
		} else if err != nil {
			return nil, err
		}
		if e.Kind == ledger.KindRecord && e.Protocol == protocol {
			out[fmt.Sprintf("%s/%s/%d", e.Device, e.Epoch, e.Record)] = true
		}
	}
}

// simulate starts a simulated fleet of its own, with the script of the polls.
func (b *bencher) simulate(ctx context.Context, racks, servers int) (*child.Fleet, error) {
	dir, script := b.path("sim"), b.path("script.yaml")
	if err := os.WriteFile(script, []byte(benchScript), 0o600); err != nil {
		return nil, err
	}
	return child.Start(ctx, dir, "--script", script, "--racks", strconv.Itoa(racks), "--servers", strconv.Itoa(servers))
}

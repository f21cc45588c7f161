package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"auspex/internal/bus"
	"auspex/internal/usage"
	"auspex/schemas"
)

// spacing is the time between two kernel lines where latency is measured: far
// enough apart that one does not wait for another, as in a fleet on a bad day.
const spacing = 40 * time.Millisecond

// hosts is a product that follows kernel logs, by itself or through node agents, and the
// peer that writes them.
type hosts struct {
	*live
	s       *Product
	peer    *Peer
	servers int
	agents  []*agent

	mu       sync.Mutex
	written  map[string]time.Time
	notified map[string]time.Time
	received chan struct{} // closed when the peer says no more
}

func together(t schemas.Topology) schemas.Topology { return t }

// follow starts everything from the kernel log to the Alertmanager; with throughAgents, a node
// agent a server reads its log.
func (b *bencher) follow(
	ctx context.Context, servers int, of func(schemas.Topology) schemas.Topology, throughAgents bool,
) (_ *hosts, err error) {
	h := &hosts{servers: servers, written: map[string]time.Time{}, notified: map[string]time.Time{}, received: make(chan struct{})}
	logs := b.path("kmsg")
	if h.peer, err = StartPeer(ctx, PeerKernel, KernelOptions{Dir: logs, Servers: servers}, b.err); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil && h.live == nil {
			err = errors.Join(err, h.peer.Close(), h.stopAgents())
		}
	}()
	var report KernelReport
	if err = h.peer.Receive(&report); err != nil {
		return nil, err
	}
	t, collector, settings := of(Topology(servers, logs)), "kmsg", []string{"collectors.kmsg={}"}
	if throughAgents {
		collector = "agent"
		if settings, err = h.startAgents(ctx, b, &t); err != nil {
			return nil, err
		}
	}
	file, err := b.inventory(t)
	if err != nil {
		return nil, err
	}
	if h.s, err = b.product(append(settings, "inventory.file="+file, "notify.alertmanagers=[{url: "+report.URL+"}]")...); err != nil {
		return nil, err
	}
	s := h.s
	if h.live, err = b.start(ctx, s, s.Components("state", "bus", "process", "correlate", "predict", "control", "collect")...); err != nil {
		return nil, err
	}
	go h.receive()
	err = h.await(ctx, 30*time.Second, "the first line of each kernel log", func() bool {
		return total(s.Metrics, "auspex_collectors_"+collector+"_records_total", "", "") >= float64(servers)
	})
	if err != nil {
		return nil, errors.Join(err, h.close())
	}
	return h, nil
}

// receive notes what the peer tells until it ends.
func (h *hosts) receive() {
	defer close(h.received)
	for {
		var t KernelReport
		if h.peer.Receive(&t) != nil {
			return
		}
		h.mu.Lock()
		if t.Written != 0 {
			h.written[t.Resource] = time.Unix(0, t.Written)
		}
		if _, again := h.notified[t.Resource]; t.Notified != 0 && !again {
			h.notified[t.Resource] = time.Unix(0, t.Notified)
		}
		h.mu.Unlock()
	}
}

// startAgents starts a node agent for each server that has a kernel log, and lets it read
// that in the place of whoever reads the inventory. It returns the settings of its collector.
func (h *hosts) startAgents(ctx context.Context, b *bencher, t *schemas.Topology) ([]string, error) {
	password, secrets := b.path("password"), b.path("secrets.yaml")
	if err := errors.Join(
		os.WriteFile(password, []byte("bench\n"), 0o600), os.WriteFile(secrets, []byte("agents: {user: bench, password: bench}\n"), 0o600),
	); err != nil {
		return nil, err
	}
	for _, r := range t.Resources {
		log := r.Attrs.Get(schemas.AttrKmsgPath)
		if log == "" {
			continue
		}
		a, err := b.startAgent(ctx, nil, "agent-"+r.ID, fmt.Sprintf(
			"nvml: {disabled: true}\ncredential: {user: bench, password_file: %s}\nkernel: {path: %s, boot_id_file: %s.boot_id}\n", password, log, log,
		))
		if err != nil {
			return nil, err
		}
		h.agents = append(h.agents, a)
		r.Attrs = r.Attrs.Without(schemas.AttrKmsgPath).With(schemas.AttrAgentAddress, a.addr)
	}
	return []string{"secrets=" + secrets, "collectors.agent={credential: agents, tls: {disabled: true}}"}, nil
}

func (h *hosts) stopAgents() (err error) {
	for _, a := range h.agents {
		err = errors.Join(err, a.stop())
	}
	return err
}

// agentTime is the processor time of all agents.
func (h *hosts) agentTime() (sum time.Duration) {
	for _, a := range h.agents {
		cpu, _ := threads(a.pid())
		sum += cpu
	}
	return sum
}

func (h *hosts) close() error {
	err := errors.Join(h.peer.Close(), h.stop(), h.stopAgents())
	<-h.received
	return err
}

// orders are n XIDs of GPUs, each GPU once, on the servers in turn. A double bit
// error speaks for its GPU alone, so that each is an incident: the servers share no site, or
// so many alike would be one.
func (h *hosts) orders(n int) ([]KernelOrder, error) {
	if limit := h.servers * GPUsPerServer; n > limit {
		return nil, fmt.Errorf("%w: n is %d; there are %d GPUs", usage.Err, n, limit)
	}
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // no secret
	servers := rng.Perm(h.servers)
	var out []KernelOrder
	for i := range n {
		out = append(out, KernelOrder{
			Server: servers[i%h.servers], GPU: i / h.servers, XID: 48,
			Detail: fmt.Sprintf(
				"An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at partition %d, subpartition %d.", rng.IntN(12),
				rng.IntN(2),
			),
		})
	}
	return out, nil
}

// give has the lines written, one each interval.
func (h *hosts) give(ctx context.Context, orders []KernelOrder, every time.Duration) error {
	var tick <-chan time.Time
	if every > 0 {
		t := time.NewTicker(every)
		defer t.Stop()
		tick = t.C
	}
	for _, o := range orders {
		if tick != nil {
			select {
			case <-tick:
			case <-ctx.Done():
				return ctx.Err()
			case <-h.died:
				return h.err
			}
		}
		if err := h.peer.Send(o); err != nil {
			return fmt.Errorf("write to peer: %w", err)
		}
	}
	return nil
}

// took returns how long after its line each resource was reached.
func (h *hosts) took(reached map[string]time.Time) (ds []time.Duration, missing []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for res, at := range h.written {
		if there, ok := reached[res]; ok {
			ds = append(ds, there.Sub(at))
		} else {
			missing = append(missing, res)
		}
	}
	return ds, missing
}

// arrivals notes when the first record of each resource came on a topic.
type arrivals struct {
	mu sync.Mutex
	at map[string]time.Time
}

func (a *arrivals) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.at)
}

// watch follows a topic from now on, until ctx is done; key names what a record
// speaks of, "" is nothing of interest.
func (a *arrivals) watch(ctx context.Context, q bus.Subscriber, topic string, key func(doc []byte) []string) (stopped func() error) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		done <- q.Subscribe(ctx, bus.Subscription{Topic: topic, Group: "bench"}, func(_ context.Context, msgs []bus.Message) error {
			now := time.Now()
			a.mu.Lock()
			defer a.mu.Unlock()
			for _, m := range msgs {
				for _, k := range key(m.Value) {
					if _, again := a.at[k]; !again {
						a.at[k] = now
					}
				}
			}
			return nil
		})
	}()
	return func() error { cancel(); return <-done }
}

// alertLatency: a kernel line is written; its event is on the topic alerts.
func (b *bencher) alertLatency(ctx context.Context) (Result, error) { return b.lineToAlert(ctx, false) }

// agentAlertLatency is alertLatency where node agents read the kernel logs.
func (b *bencher) agentAlertLatency(ctx context.Context) (Result, error) {
	return b.lineToAlert(ctx, true)
}

func (b *bencher) lineToAlert(ctx context.Context, throughAgents bool) (res Result, err error) {
	servers := benchServers
	if throughAgents {
		servers = agentServers
	}
	h, err := b.follow(ctx, servers, Alone, throughAgents)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	orders, err := h.orders(b.n)
	if err != nil {
		return res, err
	}
	seen := &arrivals{at: map[string]time.Time{}}
	observed := map[string]time.Time{} // by the collector; under the lock of seen
	stop := seen.watch(ctx, h.s.Parts().Bus, schemas.TopicAlerts, func(doc []byte) []string {
		var a schemas.Alert
		if json.Unmarshal(doc, &a) != nil || a.Type != schemas.EventGPUXID {
			return nil
		}
		observed[a.Resource] = a.Observed
		return []string{a.Resource}
	})
	meter, agents := StartMeter(), h.agentTime()
	if err = h.give(ctx, orders, spacing); err == nil {
		err = h.await(ctx, 30*time.Second, "alerts", func() bool { return seen.count() >= len(orders) })
	}
	res = meter.Stop(b.name, "kernel lines", int64(len(orders)))
	res.CPUSeconds = round(res.CPUSeconds + (h.agentTime() - agents).Seconds())
	res.PerCPUSecond = round(float64(len(orders)) / max(res.CPUSeconds, 1e-9))
	if err = errors.Join(err, stop()); err != nil {
		return res, err
	}
	ds, missing := h.took(seen.at)
	if len(missing) > 0 || len(ds) != len(orders) {
		return res, fmt.Errorf("%d alerts of %d lines came; missing %v", len(ds), len(orders), missing)
	}
	res.Latencies("kernel line written to alert read from the bus", ds)
	reading, _ := h.took(observed)
	res.Detail = map[string]any{
		"max_ms": millis(Quantile(ds, 1)), "line_read_p50_ms": millis(Quantile(reading, .5)), "line_read_p99_ms": millis(Quantile(reading, .99)),
	}
	return res, nil
}

// notifyLatency: a kernel line is written; Alertmanager has answered the POST.
func (b *bencher) notifyLatency(ctx context.Context) (res Result, err error) {
	h, err := b.follow(ctx, benchServers, Alone, false)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	orders, err := h.orders(b.n)
	if err != nil {
		return res, err
	}
	meter := StartMeter()
	if err = h.give(ctx, orders, spacing); err == nil {
		err = h.await(ctx, 30*time.Second, "notifications", func() bool {
			h.mu.Lock()
			defer h.mu.Unlock()
			n := 0
			for r := range h.notified {
				if _, ok := h.written[r]; ok {
					n++
				}
			}
			return n >= len(orders)
		})
	}
	res = meter.Stop(b.name, "kernel lines", int64(len(orders)))
	h.mu.Lock()
	notified := h.notified
	h.mu.Unlock()
	ds, missing := h.took(notified)
	if len(missing) > 0 {
		return res, errors.Join(err, fmt.Errorf("%d of %d lines reached Alertmanager; missing %v", len(ds), len(orders), missing))
	}
	if err != nil {
		return res, err
	}
	res.Latencies("kernel line written to POST answered", ds)
	res.Detail = map[string]any{"max_ms": millis(Quantile(ds, 1))}
	return res, nil
}

// burst: a GPU falls off the bus on each of n servers at once, in as many racks
// as that takes; each is decided, by itself or with the others.
func (b *bencher) burst(ctx context.Context) (res Result, err error) {
	h, err := b.follow(ctx, b.n, together, false)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	var orders []KernelOrder
	for i := range b.n {
		orders = append(orders, KernelOrder{Server: i, GPU: i % GPUsPerServer, XID: 79, Detail: "GPU has fallen off the bus."})
	}
	// An incident may blame something larger than the GPU; an event is decided when one holds it.
	events := &arrivals{at: map[string]time.Time{}}
	resources := sync.Map{} // of event ids
	stopAlerts := (&arrivals{at: map[string]time.Time{}}).watch(ctx, h.s.Parts().Bus, schemas.TopicAlerts, func(doc []byte) []string {
		var a schemas.Alert
		if json.Unmarshal(doc, &a) == nil && a.Type == schemas.EventGPUXID {
			resources.Store(a.ID, a.Resource)
		}
		return nil
	})
	incidents := map[string]bool{}
	stop := events.watch(ctx, h.s.Parts().Bus, schemas.TopicIncidents, func(doc []byte) []string {
		var i schemas.Incident
		if json.Unmarshal(doc, &i) != nil || i.MergedInto != "" {
			return nil
		}
		incidents[i.ID] = true // under the lock of events
		return i.Events
	})
	meter := StartMeter()
	if err = h.give(ctx, orders, 0); err == nil {
		err = h.await(ctx, time.Minute, "incidents", func() bool { return events.count() >= len(orders) })
	}
	res = meter.Stop(b.name, "servers", int64(b.n))
	if err = errors.Join(err, stop(), stopAlerts()); err != nil {
		return res, fmt.Errorf("%d of %d events are in an incident: %w", events.count(), len(orders), err)
	}
	decided := map[string]time.Time{}
	for id, at := range events.at {
		if r, ok := resources.Load(id); ok {
			decided[r.(string)] = at
		}
	}
	ds, missing := h.took(decided)
	if len(missing) > 0 {
		return res, fmt.Errorf("in no incident: %v", missing)
	}
	res.Latencies("kernel line written to incident decided", ds)
	res.Detail = map[string]any{"incidents": len(incidents), "max_ms": millis(Quantile(ds, 1))}
	return res, nil
}

// millis is a duration in milliseconds, to the microsecond.
func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }

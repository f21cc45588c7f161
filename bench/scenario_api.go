package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strconv"
	"time"

	"auspex/api/access"
	"auspex/internal/run"
	"auspex/internal/store/people"
	"auspex/schemas"
)

// apiServers is the size of the fleet behind the API.
const apiServers = 10_000

// served is a product that answers, and who asks it.
type served struct {
	*live
	b       *bencher
	s       *Product
	servers int
	peers   []*Peer
	o       AskOptions
}

// serve starts a product with a fleet, and a peer that asks it as an admin.
func (b *bencher) serve(ctx context.Context) (v *served, err error) {
	v = &served{b: b, servers: cmp.Or(b.asked, apiServers)}
	file, err := b.inventory(Topology(v.servers, ""))
	if err != nil {
		return nil, err
	}
	// A rate of its own for each scenario: the bounds for one caller are not what is measured.
	v.s, err = b.product("inventory.file="+file, "api.listen=127.0.0.1:0", "api.max_streams=1000", "api.limits.reads=0", "api.limits.writes=0")
	if err != nil {
		return nil, err
	}
	if v.live, err = b.start(ctx, v.s, v.s.Components("state", "bus", "api")...); err != nil {
		return nil, err
	}
	parts := v.s.Parts()
	v.o.URL = parts.API
	if v.o.Token, err = access.New(parts.DB, time.Hour).IssueToken(ctx, "bench", "bench", access.RoleAdmin); err == nil {
		_, err = people.New(parts.DB).CreateUser(ctx, "bench", schemas.User{
			Username: "bench", Email: "bench@example.com", Role: access.RoleEngineer, Status: "active",
		})
	}
	if err == nil {
		_, err = v.peer(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, v.stop())
	}
	return v, nil
}

func (v *served) peer(ctx context.Context) (*Peer, error) {
	p, err := StartPeer(ctx, PeerAsks, v.o, v.b.err)
	if err == nil {
		v.peers = append(v.peers, p)
	}
	return p, err
}

func (v *served) stop() error {
	var err error
	for _, p := range v.peers {
		err = errors.Join(err, p.Close())
	}
	return errors.Join(err, v.live.stop())
}

// round lets the first peer ask; an answer that was not wanted is an error.
func (v *served) round(o AskOrder) (AskReport, error) { return order(v.peers[0], o) }

func order(p *Peer, o AskOrder) (r AskReport, err error) {
	if err := p.Send(o); err != nil {
		return r, err
	}
	if err := p.Receive(&r); err != nil {
		return r, err
	}
	if len(r.Bad) > 0 {
		return r, fmt.Errorf("answers that were not wanted: %v", r.Bad)
	}
	return r, nil
}

// add adds a report to another.
func (r *AskReport) add(more AskReport) {
	if r.Latencies == nil {
		r.Latencies, r.Logins = map[string][]time.Duration{}, map[string]int{}
	}
	for class, ds := range more.Latencies {
		r.Latencies[class] = append(r.Latencies[class], ds...)
	}
	for status, n := range more.Logins {
		r.Logins[status] += n
	}
}

func (r *AskReport) all() []time.Duration {
	return slices.Concat(slices.Collect(maps.Values(r.Latencies))...)
}

// classes are the percentiles of each class of requests, in milliseconds.
func (r *AskReport) classes() map[string]any {
	out := make(map[string]any, len(r.Latencies))
	for class, ds := range r.Latencies {
		out[class] = map[string]any{"n": len(ds), "p50_ms": *ms(Quantile(ds, .5)), "p99_ms": *ms(Quantile(ds, .99))}
	}
	return out
}

// reads are what people and programs read all day, over servers all through the fleet.
func (v *served) reads() []Ask {
	var out []Ask
	for i := range 40 {
		s := Server(i * (v.servers - 1) / 39)
		read := func(class, path string) { out = append(out, Ask{Class: class, Path: "api/v1/" + path}) }
		read("server", "servers/"+s)
		read("servers", "servers?limit=50")
		read("gpus of a server", "servers/"+s+"/gpus")
		read("gpus by server", "gpus?server="+s)
		read("gpus in error", "gpus?status=error")
		read("gpu", "gpus/"+s+"%2Fgpu"+strconv.Itoa(i%GPUsPerServer))
		read("server status", "servers/"+s+"/status")
		read("allocations", "allocations?limit=50")
		read("alerts", "alerts?limit=50")
		read("alerts of a server", "alerts?limit=50&server="+s)
		read("incidents", "incidents?limit=50")
		if i%4 == 0 {
			read("search", "search?q="+s)
		}
		read("asset", "assets/"+s)
		read("me", "me")
	}
	return out
}

const (
	readRate     = 1000 // a second
	allocateRate = 100
	rounds       = 5 // of each of two things that are compared, in turn
)

func healthy() []Ask { return []Ask{{Class: "health", Path: "-/healthy"}} }

func ratio(a, b time.Duration) float64 { return math.Round(100*float64(a)/float64(max(b, 1))) / 100 }

// apiReads reads at a fixed rate, and in between as often what costs nothing.
func (b *bencher) apiReads(ctx context.Context) (res Result, err error) {
	v, err := b.serve(ctx)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, v.stop()) }()
	n := max(b.n/rounds, 1)
	if _, err := v.round(AskOrder{N: len(v.reads()), Asks: v.reads()}); err != nil { // each once, for what is made at first
		return res, err
	}
	var got, base AskReport
	for range rounds {
		r, err := v.round(AskOrder{N: n, Rate: readRate, Asks: healthy()})
		if err != nil {
			return res, err
		}
		base.add(r)
		meter := StartMeter()
		if r, err = v.round(AskOrder{N: n, Rate: readRate, Asks: v.reads()}); err != nil {
			return res, err
		}
		res = res.plus(meter.Stop(b.name, "reads", int64(n)))
		got.add(r)
	}
	res.Latencies("a read, from when it was due to its last byte", got.all())
	none := Quantile(base.all(), .99)
	res.Detail = map[string]any{
		"servers": v.servers, "gpus": v.servers * GPUsPerServer, "offered_per_second": readRate, "classes": got.classes(), "health_p99_ms": *ms(none),
		"p99_to_health": ratio(Quantile(got.all(), .99), none),
	}
	return res, ctx.Err()
}

// plus adds what the same scenario measured later.
func (r Result) plus(more Result) Result {
	more.N += r.N
	more.Seconds, more.CPUSeconds = round(more.Seconds+r.Seconds), round(more.CPUSeconds+r.CPUSeconds)
	more.PerSecond, more.PerCPUSecond = round(float64(more.N)/more.Seconds), round(float64(more.N)/max(more.CPUSeconds, 1e-9))
	more.MaxRSS = max(more.MaxRSS, r.MaxRSS)
	return more
}

// apiAllocate allocates by wish, and gives it back a second later. Nothing is cleaned: no device is
// there to be looked at, so what was given once is given to nobody else.
func (b *bencher) apiAllocate(ctx context.Context) (res Result, err error) {
	v, err := b.serve(ctx)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, v.stop()) }()
	body := func(wish string) string {
		return fmt.Sprintf(`{"user_id":"bench","end_time":%q,"wish":%s}`, time.Now().Add(24*time.Hour).Format(time.RFC3339), wish)
	}
	give := func(class, wish string) Ask {
		return Ask{Class: class, Method: http.MethodPost, Path: "api/v1/allocations", Body: body(wish), Want: http.StatusCreated, Release: true}
	}
	all := []Ask{give("a GPU", `{"gpus":1}`), give("a server", `{"servers":1}`), give("4 GPUs", `{"gpus":4}`), give("2 servers of a rack", `{"servers":2,"together":"rack"}`)}
	if _, err := v.round(AskOrder{N: len(all), Asks: []Ask{{Class: "first", Method: http.MethodPost, Path: "api/v1/allocations?dry_run=true", Body: all[0].Body}}}); err != nil {
		return res, err
	}
	// Those of the first second are not measured: connections to the store are new, and each compiles its statements.
	if _, err := v.round(AskOrder{N: allocateRate, Rate: allocateRate, Asks: all}); err != nil {
		return res, err
	}
	meter := StartMeter()
	r, err := v.round(AskOrder{N: b.n, Rate: allocateRate, Asks: all})
	if err != nil {
		return res, err
	}
	res = meter.Stop(b.name, "allocations", int64(b.n))
	released := r.Latencies["release"]
	classes := r.classes()
	delete(r.Latencies, "release")
	res.Latencies("an allocation, from when it was due to its answer", r.all())
	var twice, made int
	err = v.s.Parts().DB.QueryRowContext(ctx, `SELECT count(*) FROM allocations`).Scan(&made)
	if err == nil {
		err = v.s.Parts().DB.QueryRowContext(ctx, `SELECT count(*) FROM (SELECT gpu_id FROM allocation_claims
WHERE state IN ('booked','held') AND gpu_id IS NOT NULL GROUP BY gpu_id HAVING count(*)>1) AS twice`).Scan(&twice)
	}
	res.Detail = map[string]any{
		"servers": v.servers, "offered_per_second": allocateRate, "classes": classes, "release_p99_ms": *ms(Quantile(released, .99)), "allocations": made,
	}
	if want := b.n + allocateRate; err == nil && (twice > 0 || made != want || len(released) != b.n) {
		err = fmt.Errorf("%d GPUs have two owners; of %d allocations %d are there and %d of %d were given back", twice, want, made, len(released), b.n)
	}
	return res, err
}

// apiStream changes something a few times a second while nobody reads the stream, and while
// readers do.
func (b *bencher) apiStream(ctx context.Context) (res Result, err error) {
	v, err := b.serve(ctx)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, v.stop()) }()
	readers, err := v.peer(ctx)
	if err != nil {
		return res, err
	}
	const rate, seconds = 5, 10
	var changes []Ask
	for i := range 200 {
		changes = append(changes, Ask{
			Class: "change", Method: http.MethodPut, Path: "api/v1/servers/" + Server(i*7%v.servers), Body: fmt.Sprintf(`{"labels":{"turn":"%d"}}`, i),
		})
	}
	cpu := func(turn int) (Result, error) {
		for k := range changes { // not what it is already
			changes[k].Body = fmt.Sprintf(`{"labels":{"turn":"%d-%d"}}`, turn, k)
		}
		meter := StartMeter()
		_, err := v.round(AskOrder{N: rate * seconds, Rate: rate, Asks: changes})
		return meter.Stop(b.name, "readers", int64(b.n)), err
	}
	var alone float64
	var heard int64
	const turns = 2
	for turn := range turns {
		r, err := cpu(2 * turn)
		if err != nil {
			return res, err
		}
		alone += r.CPUSeconds / r.Seconds / turns
		open, err := order(readers, AskOrder{Stream: true, N: b.n})
		if err != nil {
			return res, err
		}
		if open.Streams != b.n {
			return res, fmt.Errorf("%d of %d readers", open.Streams, b.n)
		}
		if r, err = cpu(2*turn + 1); err != nil {
			return res, err
		}
		last := res.N
		res = res.plus(r)
		res.N -= last
		if open, err = order(readers, AskOrder{}); err != nil {
			return res, err
		}
		heard += open.Heard
	}
	with := res.CPUSeconds / res.Seconds
	res.Detail = map[string]any{
		"servers": v.servers, "changes_per_second": rate, "events": heard, "cores": round(with), "cores_without_readers": round(alone),
		"cores_of_the_readers": round(with - alone),
	}
	if heard < int64(b.n) {
		return res, fmt.Errorf("%d readers heard %d events of %d changes", b.n, heard, turns*rate*seconds)
	}
	return res, nil
}

// apiList lists all GPUs in pages, and as lines.
func (b *bencher) apiList(ctx context.Context) (res Result, err error) {
	v, err := b.serve(ctx)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, v.stop()) }()
	want := v.servers * GPUsPerServer
	detail := map[string]any{"servers": v.servers, "gpus": want}
	list := func(ask Ask) (int, error) {
		r, err := v.round(AskOrder{N: 1, Asks: []Ask{ask}})
		return int(r.Lines), err
	}
	// What the heap grows by anyway: the process looks at its fleet every few seconds.
	idle := watchHeap()
	if err := run.Sleep(ctx, 5*time.Second); err != nil {
		return res, errors.Join(err, ctx.Err())
	}
	detail["idle_heap_grown_bytes"] = idle()
	for _, way := range []Ask{
		{Class: "pages", Path: "api/v1/gpus?limit=1000", Pages: true}, {Class: "lines", Path: "api/v1/gpus", Lines: true},
	} {
		grown := watchHeap()
		meter := StartMeter()
		n, err := list(way)
		r := meter.Stop(b.name, "gpus", int64(n))
		detail[way.Class] = map[string]any{"seconds": r.Seconds, "cpu_seconds": r.CPUSeconds, "heap_grown_bytes": grown()}
		if err != nil {
			return res, err
		}
		if n != want {
			return res, fmt.Errorf("%d of %d GPUs as %s", n, want, way.Class)
		}
		res = res.plus(r)
	}
	res.Detail = detail
	return res, nil
}

// watchHeap begins to look at the heap, and returns what ends that and tells by how much it was at
// most larger than at the beginning.
func watchHeap() (grown func() int64) {
	heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	now := func() int64 { metrics.Read(heap); return int64(heap[0].Value.Uint64()) } //nolint:gosec // less than the memory
	percent := debug.SetGCPercent(5)                                                 // what is garbage does not count for long
	runtime.GC()
	first := now()
	most, end, ended := first, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		t := time.NewTicker(2 * time.Millisecond)
		defer t.Stop()
		for {
			select {
			case <-end:
				return
			case <-t.C:
				most = max(most, now())
			}
		}
	}()
	return func() int64 {
		close(end)
		<-ended
		debug.SetGCPercent(percent)
		return most - first
	}
}

// apiLogins reads while nobody, and while somebody from many addresses, tries to log in.
func (b *bencher) apiLogins(ctx context.Context) (res Result, err error) {
	v, err := b.serve(ctx)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, v.stop()) }()
	const reads = 2 * readRate
	if _, err := v.round(AskOrder{N: len(v.reads()), Asks: v.reads()}); err != nil {
		return res, err
	}
	var calm, storm AskReport
	for range rounds {
		r, err := v.round(AskOrder{N: reads, Rate: readRate, Asks: v.reads()})
		if err != nil {
			return res, err
		}
		calm.add(r)
		meter := StartMeter()
		if r, err = v.round(AskOrder{N: reads, Rate: readRate, Asks: v.reads(), Logins: b.n, Sources: 100}); err != nil {
			return res, err
		}
		res = res.plus(meter.Stop(b.name, "logins", int64(b.n)))
		storm.add(r)
	}
	res.Latencies("a read while logins fail, from when it was due to its last byte", storm.all())
	without := Quantile(calm.all(), .99)
	res.Detail = map[string]any{
		"servers": v.servers, "reads_per_second": readRate, "p99_ms_without": *ms(without), "p99_ratio": ratio(Quantile(storm.all(), .99), without),
		"logins": storm.Logins,
	}
	tried := 0
	for status, n := range storm.Logins {
		if tried += n; status != "401 Unauthorized" && status != "429 Too Many Requests" {
			return res, fmt.Errorf("failed logins were answered %v", storm.Logins)
		}
	}
	if tried != rounds*b.n {
		return res, fmt.Errorf("%d of %d logins were tried", tried, rounds*b.n)
	}
	return res, nil
}

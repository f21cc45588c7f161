package api_test

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/api"
	"auspex/api/access"
	"auspex/control/messages"
	"auspex/internal/bus"
	"auspex/internal/bus/mem"
	"auspex/internal/cmdb"
	"auspex/internal/discover"
	"auspex/internal/enrol"
	"auspex/internal/store/allocations"
	"auspex/internal/store/answers"
	"auspex/internal/store/audit"
	"auspex/internal/store/conflicts"
	"auspex/internal/store/corrections"
	"auspex/internal/store/discoveries"
	"auspex/internal/store/estate"
	"auspex/internal/store/handling"
	"auspex/internal/store/hooks"
	"auspex/internal/store/join"
	"auspex/internal/store/learned"
	"auspex/internal/store/maintenance"
	"auspex/internal/store/people"
	"auspex/internal/store/records"
	"auspex/internal/store/requests"
	"auspex/internal/store/sqldb"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/internal/store/workflows"
	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

// inventory is a fixed one; tests replace its topology and count its version up.
type inventory struct {
	t       schemas.Topology
	version atomic.Uint64

	mu   sync.Mutex
	snap *cmdb.Snapshot
}

func (i *inventory) Snapshot() *cmdb.Snapshot {
	i.mu.Lock()
	defer i.mu.Unlock()
	if v := i.version.Load(); i.snap == nil || i.snap.Version != v {
		cfg := cmdb.DefaultConfig()
		cfg.Site = "dc1"
		inv := cmdb.New(cfg, nil, nil, nil)
		if r, err := inv.Import(context.Background(), cmdb.Draft{Topology: i.t}, cmdb.ImportOptions{}); err != nil || len(r.Problems) > 0 {
			panic(fmt.Sprint(err, r.Problems))
		}
		s := *inv.Snapshot()
		s.Version, i.snap = v, &s
	}
	return i.snap
}

// topology is a fleet of racks with eight servers of eight GPUs, as FORMATS has it.
func topology(racks int, jobs ...schemas.Workload) schemas.Topology {
	t := schemas.Topology{Version: 1, Resources: []schemas.Resource{{ID: "dc1", Kind: schemas.KindSite}}, Workloads: jobs}
	add := func(id, kind, parent string, attrs map[string]string) {
		t.Resources = append(t.Resources, schemas.Resource{ID: id, Kind: kind, Parent: parent, Attrs: schemas.AttrsOf(attrs)})
	}
	for r := 1; r <= racks; r++ {
		rack, leaf := fmt.Sprintf("dc1-r%02d", r), fmt.Sprintf("leaf-r%02d", r)
		add(rack, schemas.KindRack, "dc1", nil)
		add(leaf, schemas.KindSwitch, rack, map[string]string{schemas.AttrTier: "leaf"})
		for p := 1; p <= 16; p++ {
			add(fmt.Sprintf("%s/Ethernet%d", leaf, p), schemas.KindPort, leaf, nil)
		}
		for _, feed := range []string{"a", "b"} {
			add(fmt.Sprintf("pdu-r%02d-%s", r, feed), schemas.KindPDU, rack, map[string]string{schemas.AttrFeed: strings.ToUpper(feed)})
		}
		for k := 1; k <= 8; k++ {
			s := fmt.Sprintf("gpu-r%02d-%02d", r, k)
			add(s, schemas.KindServer, rack, map[string]string{schemas.AttrModel: "HGX H100", schemas.AttrSerial: fmt.Sprintf("S%02d%02d", r, k)})
			for _, part := range []struct {
				kind, model  string
				first, count int
			}{
				{schemas.KindGPU, "H100 SXM5 80GB", 0, 8},
				{schemas.KindNVSwitch, "", 0, 4},
				{schemas.KindFan, "", 1, 8},
				{schemas.KindPSU, "3.3 kW", 0, 6},
				{schemas.KindNIC, "ConnectX-7", 0, 8},
				{schemas.KindCPU, "", 0, 2},
				{schemas.KindDIMM, "64 GB", 0, 16},
				{schemas.KindDisk, "", 0, 2},
			} {
				for n := part.first; n < part.first+part.count; n++ {
					var attrs map[string]string
					if part.model != "" {
						attrs = map[string]string{schemas.AttrModel: part.model}
					}
					add(fmt.Sprintf("%s/%s%d", s, part.kind, n), part.kind, s, attrs)
				}
			}
			add(s+"/bmc", schemas.KindBMC, s, nil)
			for p := range 6 {
				t.Links = append(t.Links, schemas.Link{
					From: fmt.Sprintf("pdu-r%02d-%s", r, string("ab"[p/3])), To: fmt.Sprintf("%s/psu%d", s, p), Kind: schemas.LinkPowers,
				})
			}
			t.Links = append(t.Links, schemas.Link{From: fmt.Sprintf("%s/Ethernet%d", leaf, 2*k-1), To: s + "/nic0", Kind: schemas.LinkNetwork})
		}
	}
	return t
}

func servers(rack int) []string {
	out := make([]string, 8)
	for k := range out {
		out[k] = fmt.Sprintf("gpu-r%02d-%02d", rack, k+1)
	}
	return out
}

// querier answers like a hot window that has seen an hour.
type querier struct{ now func() time.Time }

func (querier) Instant(_ context.Context, expr string, at time.Time) ([]api.Series, error) {
	var out []api.Series
	point := func(v float64) []api.Point { return []api.Point{{T: float64(at.UnixMilli()) / 1000, V: v}} }
	switch {
	case strings.HasPrefix(expr, "count by (__name__)"):
		names := []string{
			"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_POWER_USAGE", "auspex_fan_speed_rpm", "auspex_psu_input_power_watts",
			"auspex_server_inlet_temperature_celsius",
		}
		if strings.Contains(expr, "leaf") {
			names = []string{"auspex_port_in_octets_total", "auspex_port_rx_power_dbm"}
		}
		for _, n := range names {
			out = append(out, api.Series{Labels: map[string]string{"__name__": n}, Points: point(8)})
		}
	case strings.HasPrefix(expr, "count by (collector"):
		for _, c := range []string{"dcgmexporter", "ipmi", "kmsg", "redfish"} {
			out = append(out, api.Series{Labels: map[string]string{"collector": c, "__name__": "auspex_" + c}, Points: point(1)})
		}
	case strings.Contains(expr, "auspex_fan_speed_rpm_threshold"):
		out = append(
			out, api.Series{Labels: map[string]string{"bound": "lower_critical"}, Points: point(6000)},
			api.Series{Labels: map[string]string{"bound": "lower_caution"}, Points: point(6300)},
		)
	case strings.Contains(expr, "DCGM_FI_DEV_GPU_TEMP_threshold"):
		out = append(out, api.Series{Labels: map[string]string{"bound": "upper_critical"}, Points: point(87)})
	case strings.HasPrefix(expr, "label_replace(max by (collector) (timestamp("):
		for _, c := range regexp.MustCompile(`collector="(\w+)"`).FindAllStringSubmatch(expr, -1) {
			out = append(out, api.Series{Labels: map[string]string{"collector": c[1]}, Points: point(float64(at.UnixMilli())/1000 - float64(len(c[1])%9+1))})
		}
	case strings.Contains(expr, "by (server)"):
		for r := 1; r <= 8; r++ {
			for k, s := range servers(r) {
				busy := 1.0
				if r == 8 && k > 2 {
					busy = 0.05
				}
				v := 33 + 34*busy + float64((r*7+k*5)%9)
				if strings.Contains(expr, "power") {
					v = 1900 + 7400*busy + float64(r*k*13)
				} else if strings.Contains(expr, "UTIL") {
					v = 3 + 90*busy + float64(k%5)
				}
				out = append(out, api.Series{Labels: map[string]string{"server": s}, Points: point(v)})
			}
		}
	}
	return out, nil
}

func (q querier) Range(_ context.Context, expr string, start, end time.Time, step time.Duration) ([]api.Series, error) {
	s := api.Series{Labels: map[string]string{}}
	width := 0.0
	if strings.HasPrefix(expr, "min(") {
		width = -1
	} else if strings.HasPrefix(expr, "max(") {
		width = 1
	}
	for t := start; !t.After(end); t = t.Add(step) {
		ago := q.now().Sub(t).Minutes()
		wave := math.Sin(ago/3) + math.Sin(ago*7)/4
		v := 64 + 1.5*wave + 4*width
		switch {
		case strings.Contains(expr, "fan_speed_rpm") && strings.Contains(expr, `{resource=`):
			v = 6350 + 42*min(ago, 12) + 25*wave + 40*width
		case strings.Contains(expr, "fan_speed_rpm"):
			v = 7200 + 30*wave + 220*width
		case strings.Contains(expr, "UTIL"):
			v = 93 + 2*wave + 4*width
		case strings.Contains(expr, "power") || strings.Contains(expr, "POWER"):
			v = 655 + 8*wave + 22*width
		case strings.Contains(expr, "inlet"):
			v = 23.5 + 0.3*wave + 0.2*width
		case strings.Contains(expr, "octets"):
			v = 2.1e11 + 1e10*wave + 4e10*width
		case strings.Contains(expr, "dbm"):
			v = -2.4 + 0.1*wave + 0.4*width
		}
		s.Points = append(s.Points, api.Point{T: float64(t.UnixMilli()) / 1000, V: v})
	}
	return []api.Series{s}, nil
}

// world is a console on a real relational store, a bus in memory, and what the
// demonstration script leaves behind.
type world struct {
	*api.Server
	records *records.Store
	db      *sqldb.DB
	bus     *mem.Bus
	inv     *inventory
	reg     *prometheus.Registry
	base    string
	client  *http.Client      // nil is one without TLS
	tokens  map[string]string // by role
	up      func()            // starts a console on the same address and store
	stop    func()
	deps    func(*testing.T) api.Deps
	estate  api.Deps
}

// down stops the console; the returned function starts one again.
func (w *world) down(t *testing.T) (up func()) {
	t.Helper()
	w.stop()
	return w.up
}

type option func(*api.Config, *api.Deps)

func start(t *testing.T, seed bool, options ...option) *world {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	db := sqltest.Open(t)
	w := &world{
		records: records.New(db), db: db, bus: mem.New(4), inv: &inventory{}, reg: prometheus.NewRegistry(), tokens: make(map[string]string),
	}
	cfg := api.DefaultConfig()
	cfg.Listen, cfg.Name = "127.0.0.1:0", "demo"
	deps := api.Deps{
		Log: slog.New(slog.DiscardHandler), Registerer: w.reg, DB: db, Records: w.records, People: people.New(db), Answers: answers.New(db), Requests: requests.New(db), Estate: estate.New(db), Allocations: allocations.New(db), Workflows: workflows.New(db), Webhooks: hooks.New(db), Audit: audit.New(db, time.Now), Inventory: w.inv,
		Corrections: corrections.New(db), Maintenance: maintenance.New(db), Handling: handling.New(db), Edges: edges{learned.New(db)},
		Join: join.New(db, nil, nil), Enrol: &enrol.Desk{Store: enrol.New(db), Inventory: cmdb.New(cmdb.DefaultConfig(), db, nil, nil), Machines: join.New(db, nil, nil)},
		Discovery: &discover.Desk{Config: sweeps(), Sweeps: discoveries.New(db), Conflicts: conflicts.New(db)},
		Publisher: w.bus, Subscriber: w.bus, Mode: func() string { return schemas.ModeApprove }, Version: "test", Simulated: true,
		Open: map[string]http.Handler{
			"/-/healthy": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") }),
		},
		Viewed: map[string]http.Handler{"/prometheus/": http.HandlerFunc(prometheusStub)},
	}
	if os.Getenv("AUSPEX_TEST_LOG") != "" {
		deps.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	if seed {
		deps.Querier = querier{time.Now}
		deps.SampleRate = func() float64 { return 18_240 }
		w.seed(t)
	}
	for _, o := range options {
		o(&cfg, &deps)
	}
	w.estate = deps
	w.deps = func(*testing.T) api.Deps {
		d := deps
		d.Registerer = prometheus.NewRegistry()
		if d.Audit != nil {
			d.Audit = audit.New(db, time.Now)
		}
		return d
	}
	w.up = func() {
		t.Helper()
		d := w.deps(t)
		w.reg = d.Registerer.(*prometheus.Registry)
		s, err := api.New(cfg, d)
		if err != nil {
			t.Fatal(err)
		}
		w.Server = s
		runCtx, stop := context.WithCancel(ctx)
		ready, done := make(chan struct{}), make(chan error, 1)
		go func() { done <- s.Run(runCtx, func() { close(ready) }) }()
		select {
		case <-ready:
		case err := <-done:
			t.Fatal(err)
		}
		w.stop = sync.OnceFunc(func() {
			stop()
			if err := <-done; err != nil {
				t.Errorf("run: %v", err)
			}
		})
		cfg.Listen = s.Addr().String()
	}
	w.up()
	t.Cleanup(func() {
		w.stop()
		cancel()
		_ = w.bus.Close()
	})
	w.base = w.URL()
	for _, role := range []string{access.RoleViewer, access.RoleOperator, access.RoleAdmin} {
		var err error
		if w.tokens[role], err = w.IssueToken(ctx, role, role); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// login is the address with a new code.
func (w *world) login(t *testing.T, name, role string) string {
	t.Helper()
	address, err := w.LoginURL(t.Context(), name, role)
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// intents hands out what the console puts on the bus.
func (w *world) intents(t *testing.T) <-chan schemas.Intent {
	t.Helper()
	out := make(chan schemas.Intent, 16)
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(done)
		_ = w.bus.Subscribe(ctx, bus.Subscription{Topic: schemas.TopicIntents, Group: "test"}, func(_ context.Context, msgs []bus.Message) error {
			for _, m := range msgs {
				var i schemas.Intent
				if err := json.Unmarshal(m.Value, &i); err != nil {
					return err
				}
				out <- i
			}
			return nil
		})
	}()
	t.Cleanup(func() { cancel(); <-done })
	return out
}

// change does what control does: it puts a new state of an action and tells the bus.
func (w *world) change(t *testing.T, id, state, detail string) {
	t.Helper()
	ctx := context.Background()
	a, found, err := w.records.Action(ctx, id)
	if err != nil || !found {
		t.Fatalf("action %s: %v %v", id, found, err)
	}
	a.State, a.Detail, a.DetailSentence, a.Time = state, detail, nil, time.Now().UTC()
	if err := w.records.PutAction(ctx, a); err != nil {
		t.Fatal(err)
	}
	value, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.bus.Publish(ctx, bus.Message{Topic: schemas.TopicOutcomes, Key: a.Server, Value: value}); err != nil {
		t.Fatal(err)
	}
}

// prometheusStub answers the few questions of the page Explore.
func prometheusStub(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if strings.Contains(r.URL.Path, "/label/") {
		_, _ = io.WriteString(w, `{"status":"success","data":["DCGM_FI_DEV_GPU_TEMP","auspex_fan_speed_rpm"]}`)
		return
	}
	_ = r.ParseForm()
	if strings.Contains(r.Form.Get("query"), "!!") {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"status":"error","errorType":"bad_data","error":"1:1: parse error: unexpected character: '!'"}`)
		return
	}
	var b strings.Builder
	var from, to, step float64
	_, _ = fmt.Sscan(r.Form.Get("start"), &from)
	_, _ = fmt.Sscan(r.Form.Get("end"), &to)
	_, _ = fmt.Sscan(r.Form.Get("step"), &step)
	for rack := 1; rack <= 8; rack++ {
		if rack > 1 {
			b.WriteString(",")
		}
		fmt.Fprintf(&b, `{"metric":{"rack":"dc1-r%02d"},"values":[`, rack)
		for at, k := from, 0; at <= to && step > 0; at, k = at+step, k+1 {
			if k > 0 {
				b.WriteString(",")
			}
			fmt.Fprintf(&b, `[%g,"%.1f"]`, at, 60+float64(rack)*1.5+2*math.Sin(at/200+float64(rack)))
		}
		b.WriteString("]}")
	}
	_, _ = fmt.Fprintf(w, `{"status":"success","data":{"resultType":"matrix","result":[%s]}}`, b.String())
}

func (w *world) seed(t *testing.T) {
	t.Helper()
	ctx, now := context.Background(), time.Now().UTC()
	jobs := []struct {
		id, tenant  string
		first, last int
	}{
		{"job-118", "vision", 0, 5},
		{"job-121", "speech", 5, 8},
		{"job-125", "language", 8, 16},
		{"job-129", "physics", 16, 20},
		{"job-133", "language", 20, 24},
		{"job-136", "vision", 24, 30},
		{"job-137", "speech", 32, 36},
		{"job-138", "robotics", 36, 38},
		{"job-140", "robotics", 40, 48},
		{"job-141", "biology", 50, 54},
		{"job-142", "language", 56, 59},
	}
	var workloads []schemas.Workload
	for _, j := range jobs {
		wl := schemas.Workload{ID: j.id, Start: now.Add(-3 * time.Hour), Attrs: map[string]string{"owner": j.tenant}}
		for k := j.first; k < j.last; k++ {
			wl.Resources = append(wl.Resources, fmt.Sprintf("gpu-r%02d-%02d", k/8+1, k%8+1))
		}
		workloads = append(workloads, wl)
	}
	w.inv.t = topology(8, workloads...)
	w.inv.version.Store(1)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	alert := func(at time.Time, source, typ, code string, sev schemas.Severity, resource, message string) string {
		n++
		id := fmt.Sprintf("e%05d", n)
		server, _, _ := strings.Cut(resource, "/")
		must(w.records.PutAlert(ctx, schemas.Alert{
			Event: schemas.Event{
				ID: id, Time: at, Observed: at.Add(120 * time.Millisecond), Source: source, Resource: resource, Type: typ, Code: code, Severity: sev,
				State: schemas.StateRaised, Message: message,
			},
			Server: server, Rule: typ, Fingerprint: id, Status: schemas.AlertFiring,
		}))
		return id
	}
	lane := func(id, typ, code, role string, sev schemas.Severity, offsets ...float64) schemas.Lane {
		return schemas.Lane{ID: id, Type: typ, Code: code, Severity: sev, Role: role, Count: len(offsets), Offsets: offsets}
	}
	spread := func(n int, from, to float64) []float64 {
		out := make([]float64, n)
		for k := range out {
			out[k] = from + (to-from)*float64(k*k%n)/float64(n)
		}
		return out
	}

	// a power feed
	t0 := now.Add(-172 * time.Second)
	var events []string
	for k, s := range servers(1) {
		for p := range 3 {
			events = append(events, alert(
				t0.Add(time.Duration(k*40+p*9)*time.Millisecond), "redfish", "psu.input_lost", "PS input", schemas.SeverityError,
				fmt.Sprintf("%s/psu%d", s, p), "Power supply lost AC input",
			))
			events = append(events, alert(
				t0.Add(time.Duration(900+k*200+p*30)*time.Millisecond), "ipmi", "bmc.sel", "08h/03h", schemas.SeverityError,
				fmt.Sprintf("%s/psu%d", s, p), "Power Supply input lost (AC/DC)",
			))
		}
		for g := range 4 {
			events = append(events, alert(
				t0.Add(time.Duration(4100+k*700+g*100)*time.Millisecond), "rule", "gpu.clocks_throttled", "hw_power_brake", schemas.SeverityWarning,
				fmt.Sprintf("%s/gpu%d", s, g), "SM clock held below 1,200 MHz",
			))
		}
	}
	events = append(events, alert(
		t0.Add(1500*time.Millisecond), "redfish", "pdu.breaker", "main", schemas.SeverityCritical, "pdu-r01-a",
		"Main breaker open, all outlets at 0 A",
	))
	events = append(
		events,
		alert(t0.Add(620*time.Millisecond), "gnmi", "switch.psu", "PSU1", schemas.SeverityWarning, "leaf-r01", "Power supply 1 has no input"),
	)
	must(w.putIncident(ctx, schemas.Incident{
		ID: "i-1042", Opened: t0, Updated: now, At: now, Severity: schemas.SeverityCritical, Revision: 4,
		RootCause: schemas.Cause{Resource: "pdu-r01-a", Fault: "power.feed_loss", Confidence: 0.97},
		Alternatives: []schemas.Cause{
			{Resource: "dc1-r01", Fault: "power.feed_loss", Confidence: 0.02},
			{Resource: "gpu-r01-03/psu1", Fault: "power.psu_failure", Confidence: 0.01},
		},
		Events: events, Affected: servers(1), Workloads: []string{"job-118", "job-121"},
		Explanation:    "Feed A of rack r01 lost power; 8 servers run on the other feed. 24 power supplies on feed A of rack r01 lost input within 0.4 s. All of them hang on pdu-r01-a.",
		Recommendation: &schemas.Recommendation{Action: "inspect_feed", Target: "pdu-r01-a"},
		Summary:        &schemas.Sentence{ID: "sum.power.feed_loss", Args: map[string]any{"feed": "A", "rack": "r01", "servers": 8}},
		Sentences: []schemas.Sentence{
			{ID: "say.psus_lost", Args: map[string]any{"parts": 24, "feed": "A", "rack": "r01", "within": 0.4}, Lanes: []string{"psu.input_lost"}},
			{ID: "say.common_supplier", Args: map[string]any{"resource": "pdu-r01-a", "other_feed": "B"}},
			{ID: "say.breaker_open", Args: map[string]any{"first": "pdu-r01-a"}, Lanes: []string{"pdu.breaker"}},
			{ID: "say.repeats", Args: map[string]any{"twice": 24, "source": "IPMI", "other_source": "Redfish"}, Lanes: []string{"bmc.sel"}},
			{ID: "say.brake", Args: map[string]any{"hosts": 8, "other_feed": "B", "gpus": 32}, Lanes: []string{"gpu.clocks_throttled"}},
		},
		Lanes: []schemas.Lane{
			lane("psu.input_lost", "psu.input_lost", "PS input", "cause", schemas.SeverityError, spread(24, 0, 0.38)...),
			lane("bmc.sel", "bmc.sel", "08h/03h", "repeat", schemas.SeverityError, spread(24, 0.9, 3.4)...),
			lane("pdu.breaker", "pdu.breaker", "main", "cause", schemas.SeverityCritical, 1.5),
			lane("switch.psu", "switch.psu", "PSU1", "effect", schemas.SeverityWarning, 0.62),
			lane("gpu.clocks_throttled", "gpu.clocks_throttled", "hw_power_brake", "effect", schemas.SeverityWarning, spread(32, 4.1, 13)...),
		},
		Graph: &schemas.Graph{
			Nodes: []schemas.GraphNode{
				{ID: "pdu-r01-a", Kind: schemas.KindPDU, Label: "pdu-r01-a", Role: "cause", Reporting: 1},
				{ID: "psu-a", Kind: schemas.KindPSU, Label: "psu0-2", Role: "affected", Count: 24, Reporting: 24},
				{ID: "psu-b", Kind: schemas.KindPSU, Label: "psu3-5", Role: "silent", Count: 24},
				{ID: "leaf-r01", Kind: schemas.KindSwitch, Label: "leaf-r01", Role: "affected", Reporting: 1},
				{ID: "servers", Kind: schemas.KindServer, Label: "gpu-r01-01…08", Role: "affected", Count: 8, Reporting: 8},
				{ID: "gpus", Kind: schemas.KindGPU, Label: "GPUs of r01", Role: "affected", Count: 64, Reporting: 32},
				{ID: "job-118", Kind: "workload", Label: "job-118", Role: "context"},
			},
			Edges: []schemas.GraphEdge{
				{From: "pdu-r01-a", To: "psu-a", Kind: "powers", LagSeconds: 0.2},
				{From: "pdu-r01-a", To: "leaf-r01", Kind: "powers", LagSeconds: 0.6},
				{From: "psu-a", To: "servers", Kind: "contains", LagSeconds: 0.9},
				{From: "psu-b", To: "servers", Kind: "contains"},
				{From: "servers", To: "gpus", Kind: "contains", LagSeconds: 4.1},
				{From: "gpus", To: "job-118", Kind: "runs", LagSeconds: 12},
			},
		},
	}))

	// a GPU off the bus
	t1, host := now.Add(-134*time.Second), "gpu-r03-06"
	events = []string{
		alert(t1, "kmsg", "gpu.xid", "79", schemas.SeverityCritical, host+"/gpu4", "NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus."),
		alert(
			t1.Add(120*time.Millisecond), "kmsg", "gpu.xid", "154", schemas.SeverityCritical, host+"/gpu4",
			"NVRM: Xid (PCI:0000:9b:00): 154, GPU recovery action changed to 0x2 (Node Reboot Required)",
		),
		alert(
			t1.Add(2100*time.Millisecond), "dcgm", "gpu.missing", "7 of 8", schemas.SeverityCritical, host+"/gpu4", "The driver lists 7 of 8 GPUs",
		),
	}
	for s := range 4 {
		events = append(events, alert(
			t1.Add(time.Duration(380+s*200)*time.Millisecond), "kmsg", "nvswitch.sxid", "12028", schemas.SeverityError,
			fmt.Sprintf("%s/nvswitch%d", host, s), "Link to the lost GPU is down",
		))
	}
	must(w.putIncident(ctx, schemas.Incident{
		ID: "i-1043", Opened: t1, Updated: now, At: now, Severity: schemas.SeverityCritical,
		RootCause: schemas.Cause{Resource: host + "/gpu4", Fault: "gpu.fallen_off_bus", Confidence: 0.94}, Alternatives: []schemas.Cause{{
			Resource: host, Fault: "host.pcie_fault", Confidence: 0.05,
		}},
		Events: events, Affected: []string{host}, Workloads: []string{"job-133"},
		Explanation:    "GPU 4 of gpu-r03-06 fell off the bus. The driver itself asks for a reboot of the node (XID 154).",
		Recommendation: &schemas.Recommendation{Action: "power_cycle", Target: host},
		Summary:        &schemas.Sentence{ID: "sum.gpu.fallen_off_bus", Args: map[string]any{"index": 4, "server": host}},
		Sentences:      []schemas.Sentence{{ID: "a.fact.of.a.later.version"}, {ID: "say.recovery", Lanes: []string{"gpu.xid/154"}}},
	}))

	// a job that crashed
	t2 := now.Add(-112 * time.Second)
	events = nil
	for k, s := range servers(6) {
		for g := range 7 {
			events = append(events, alert(
				t2.Add(time.Duration(k*100+g*20)*time.Millisecond), "kmsg", "gpu.xid", "31", schemas.SeverityError, fmt.Sprintf("%s/gpu%d", s, g),
				"MMU Fault",
			))
		}
	}
	must(w.putIncident(ctx, schemas.Incident{
		ID: "i-1044", Opened: t2, Updated: now, At: now, Severity: schemas.SeverityWarning,
		RootCause: schemas.Cause{Resource: "job-140", Fault: "workload.error", Confidence: 0.91}, Events: events, Affected: servers(6),
		Workloads:      []string{"job-140"},
		Explanation:    "job-140 of robotics crashed on 8 servers; no hardware is at fault. 56 GPUs report a page fault (XID 31).",
		Recommendation: &schemas.Recommendation{Action: "notify_owner", Target: "job-140"},
		Summary:        &schemas.Sentence{ID: "sum.workload.error", Args: map[string]any{"resource": "job-140", "servers": 8}},
	}))
	closed := now.Add(-40 * time.Minute)
	must(w.putIncident(ctx, schemas.Incident{
		ID: "i-1031", Opened: now.Add(-70 * time.Minute), Updated: closed, Closed: &closed, At: closed, Severity: schemas.SeverityWarning,
		RootCause: schemas.Cause{Resource: "leaf-r05/Ethernet3", Fault: "network.link_flap", Confidence: 0.83}, Affected: []string{"gpu-r05-02"},
		Explanation: "Link leaf-r05/Ethernet3 went down and up 6 times.",
	}))
	alert(
		now.Add(-4*time.Minute), "collector", "host.unreachable", "", schemas.SeverityError, "gpu-r08-07",
		"dcgmexporter has not answered for 3 rounds",
	)

	// predictions
	eta := func(d time.Duration) *time.Time { at := now.Add(d); return &at }
	must(w.records.PutPrediction(ctx, schemas.Prediction{
		ID: "p-71", Time: now.Add(-40 * time.Second), Resource: "gpu-r05-02/fan3", Server: "gpu-r05-02", Metric: "auspex_fan_speed_rpm",
		Failure: "cooling.fan_failure", LimitSource: schemas.LimitOfDevice, Probability: 0.71, HorizonSeconds: 7 * 86400,
		ETAP10: eta(14 * time.Minute), ETAP50: eta(21 * time.Minute), ETAP90: eta(34 * time.Minute), Limit: 6000, Below: true, Value: 6350,
		SlopePerHour: -1000,
		Evidence:     []schemas.Evidence{{Metric: "auspex_fan_speed_rpm", Share: 0.72}, {Metric: "DCGM_FI_DEV_GPU_TEMP", Share: 0.19}},
		Model:        schemas.Model{Name: "trend", Version: "1"}, State: schemas.PredictionOpen,
		Explanation: "fan3 of gpu-r05-02 falls below 6,000 rpm in about 21 min.",
	}))
	must(w.records.PutPrediction(ctx, schemas.Prediction{
		ID: "p-64", Time: now.Add(-time.Minute), Resource: "leaf-r07/Ethernet5", Server: "leaf-r07", Metric: "auspex_port_rx_power_dbm",
		Failure: "network.optics_degraded", Probability: 0.46, HorizonSeconds: 7 * 86400,
		ETAP10: eta(30 * time.Hour), ETAP50: eta(70 * time.Hour), Limit: -9, Below: true, Value: -7.4,
		Model: schemas.Model{Name: "trend", Version: "1"}, State: schemas.PredictionOpen,
	}))
	must(w.records.PutPrediction(ctx, schemas.Prediction{
		ID: "p-12", Time: now.Add(-5 * time.Hour), Resource: "gpu-r02-03/gpu0", Server: "gpu-r02-03", Metric: "DCGM_FI_DEV_GPU_TEMP",
		Failure: "gpu.overheating", Probability: 0.3, HorizonSeconds: 7 * 86400, Limit: 87, Value: 80,
		Model: schemas.Model{Name: "trend", Version: "1"}, State: schemas.PredictionAverted,
	}))

	for k, past := range []struct {
		resource, failure, state string
		probability              float64
		lead                     time.Duration
	}{
		{"gpu-r02-01/fan2", "cooling.fan_failure", schemas.PredictionCameTrue, 0.74, 31 * time.Hour},
		{"gpu-r04-05/fan7", "cooling.fan_failure", schemas.PredictionCameTrue, 0.91, 52 * time.Hour},
		{"leaf-r02/Ethernet7", "network.optics_degraded", schemas.PredictionCameTrue, 0.55, 70 * time.Hour},
		{"gpu-r06-02/fan1", "cooling.fan_failure", schemas.PredictionCameTrue, 0.83, 9 * time.Hour},
		{"gpu-r01-07/gpu3", "gpu.memory_degrading", schemas.PredictionExpired, 0.31, 100 * time.Hour},
		{"leaf-r05/Ethernet9", "network.optics_degraded", schemas.PredictionExpired, 0.47, 90 * time.Hour},
		{"gpu-r07-08/fan4", "cooling.fan_failure", schemas.PredictionCameTrue, 0.62, 20 * time.Hour},
	} {
		server, _, _ := strings.Cut(past.resource, "/")
		ended := now.Add(-time.Duration(k+1) * 53 * time.Hour)
		must(w.records.PutPrediction(ctx, schemas.Prediction{
			ID: fmt.Sprintf("p-%02d", k+1), Time: ended, Opened: ended.Add(-past.lead), FirstProbability: past.probability, Resource: past.resource, Server: server,
			Metric:  "auspex_fan_speed_rpm",
			Failure: past.failure, Probability: past.probability, HorizonSeconds: 7 * 86400, Limit: 6000, Below: true,
			Model: schemas.Model{Name: "trend", Version: "1"}, State: past.state,
		}))
	}
	gone := now.Add(-300 * time.Hour)
	must(w.putIncident(ctx, schemas.Incident{ // no prediction had told of it
		ID: "i-0988", Opened: gone.Add(-time.Hour), Updated: gone, Closed: &gone, At: gone, Severity: schemas.SeverityWarning,
		RootCause: schemas.Cause{Resource: "leaf-r06/Ethernet11", Fault: "network.optics_degraded", Confidence: 0.88},
		Affected:  []string{"gpu-r06-06"}, Explanation: "The optics at leaf-r06/Ethernet11 degrade.",
	}))

	// actions, as control says them
	sentence := messages.New
	rail := func(name string, limit, value float64, ok bool, s schemas.Sentence) schemas.Rail {
		return schemas.Rail{Name: name, Limit: limit, Value: value, OK: ok, Detail: messages.Text(s), Sentence: &s}
	}
	rails := []schemas.Rail{
		rail("confidence", 0.8, 0.94, true, sentence(messages.Confidence, messages.Args{"value": 94, "limit": 80})),
		rail("evidence_age_seconds", 600, 12, true, sentence(messages.EvidenceAge, messages.Age(12*time.Second))),
		rail("rungs_before_done", 1, 1, true, sentence(messages.RungsDone, messages.Args{"done": 1, "of": 1})),
		rail("fleet_budget", 4, 3, true, sentence(messages.FleetBudget, messages.Args{"held": 3, "limit": 4})),
		rail("rack_budget", 1, 1, true, sentence(messages.RackBudget, messages.Args{"held": 1, "limit": 1, "rack": "dc1-r03"})),
		rail("destructive_per_hour", 6, 3, true, sentence(messages.HourlyRate, messages.Args{"n": 2})),
		rail("storm_breaker", 6, 2, true, sentence(messages.Breaker, messages.Args{"n": 2, "age": "10m0s", "seconds": 600})),
	}
	full := rail("rack_budget", 1, 2, false, sentence(messages.RackBudget, messages.Args{"held": 2, "limit": 1, "rack": "dc1-r02"}))
	tries := []string{"drain", "reset_gpu", "reboot", "power_cycle", "uncordon"}
	action := func(
		id, server, target, kind, incident, mode, state string, why *schemas.Sentence, detail schemas.Sentence, rung int, ago time.Duration,
		rails []schemas.Rail,
	) {
		a := schemas.Action{
			ID: id, Time: now.Add(-ago), Created: now.Add(-ago - time.Second), Server: server, Target: target, Kind: kind, Reason: incident,
			Incident: incident, Sentence: why, Mode: mode, Rung: rung, Attempt: 1, State: state, Rails: rails, Actor: "auspex",
			Ladder: tries, Person: kind == "ticket" || kind == "inspect_feed",
		}
		if why != nil {
			inWords(why)
			a.Why = why.Text["en"]
		}
		switch {
		case detail.ID == "": // a record of an earlier version has words alone
		case state == schemas.ActionDone:
			a.VerifiedBy, a.VerifiedSentence = messages.Text(detail), &detail
		default:
			a.Detail, a.DetailSentence = messages.Text(detail), &detail
		}
		must(w.records.PutAction(ctx, a))
		must(w.db.InTx(ctx, func(tx *sql.Tx) error {
			verb := map[string]string{schemas.ActionDone: "done", schemas.ActionFailed: "fail", schemas.ActionRefused: "refuse", schemas.ActionWaiting: "wait", schemas.ActionProposed: "propose", schemas.ActionRunning: "intend"}[state]
			return audit.Append(ctx, tx, audit.Row{
				Time: a.Time, Actor: a.Actor, Verb: verb, Subject: cmp.Or(server, target), Action: id, Kind: kind, State: state, Detail: a.Detail,
			})
		}))
	}
	why := &schemas.Sentence{ID: "sum.gpu.fallen_off_bus", Args: map[string]any{"index": 4, "server": host}}
	noEffect := messages.Age(5 * time.Minute)
	noEffect["saw"] = sentence(messages.Both, messages.Args{
		"first":  sentence(messages.PowerBack, nil),
		"second": sentence(messages.PartSilent, messages.Args{"part": host + "/gpu4", "server": host, "collector": "dcgmexporter"}),
	})
	action(
		"a-305", "gpu-r08-04", "", "quarantine", "i-1017", schemas.ModeEnforce, schemas.ActionDone, nil,
		sentence(messages.SchedulerHas, messages.Args{"states": "DRAIN+IDLE"}), 7, 3*time.Hour, nil,
	)
	action(
		"a-307", "gpu-r07-02", "gpu-r07-02/gpu1", "ticket", "i-1017", schemas.ModeEnforce, schemas.ActionProposed, nil,
		sentence(messages.ForPersonAfter, messages.Args{"kind": "power_cycle", "server": "gpu-r07-02"}), 5, 50*time.Minute, nil,
	)
	action(
		"a-308", "gpu-r02-05", "gpu-r02-05/gpu3", "drain", "i-1031", schemas.ModeEnforce, schemas.ActionRunning,
		&schemas.Sentence{ID: "sum.gpu.gsp_hang", Args: map[string]any{"index": 3, "server": "gpu-r02-05"}}, sentence(messages.Decided, nil), 0,
		640*time.Second, rails[:2],
	)
	action(
		"a-309", "gpu-r02-07", "gpu-r02-07/gpu0", "drain", "i-1032", schemas.ModeEnforce, schemas.ActionRefused,
		&schemas.Sentence{ID: "sum.gpu.nvlink_failure", Args: map[string]any{"index": 0, "server": "gpu-r02-07"}},
		sentence(messages.Held, messages.Args{"rail": "rack_budget", "why": *full.Sentence}), 0, 600*time.Second,
		[]schemas.Rail{rails[0], rails[1], full},
	)
	action(
		"a-313", "", "pdu-r01-a", "inspect_feed", "i-1042", schemas.ModeApprove, schemas.ActionProposed,
		&schemas.Sentence{ID: "sum.power.feed_loss", Args: map[string]any{"feed": "A", "rack": "r01", "servers": 8}},
		sentence(messages.ForPerson, nil), 0, 150*time.Second, rails[:1],
	)
	action(
		"a-310", host, host+"/gpu4", "drain", "i-1043", schemas.ModeApprove, schemas.ActionDone, why,
		sentence(messages.SchedulerHas, messages.Args{"states": "DRAIN+IDLE"}), 0, 90*time.Second, rails[:2],
	)
	action(
		"a-311", host, host+"/gpu4", "reset_gpu", "i-1043", schemas.ModeApprove, schemas.ActionRefused, why,
		sentence(messages.NoDriver, messages.Args{"kind": "reset_gpu"}), 1, 60*time.Second, rails[:3],
	)
	action(
		"a-312", host, host+"/gpu4", "reboot", "i-1043", schemas.ModeApprove, schemas.ActionFailed, why, sentence(messages.NoEffect, noEffect), 2,
		50*time.Second, rails,
	)
	action(
		"a-314", host, host+"/gpu4", "power_cycle", "i-1043", schemas.ModeApprove, schemas.ActionWaiting, why, sentence(messages.WaitsApproval, nil),
		3, 12*time.Second, rails,
	)
	must(w.records.PutAction(ctx, schemas.Action{ // as an earlier version left it
		ID: "a-301", Time: now.Add(-26 * time.Hour), Created: now.Add(-26 * time.Hour), Server: "gpu-r04-01", Kind: "drain", Reason: "i-1001",
		Incident: "i-1001", Why: "Errors came back. They come often.", Mode: schemas.ModeEnforce, Attempt: 1, State: schemas.ActionDone,
		VerifiedBy: "the scheduler reports DRAINED",
		Rails: []schemas.Rail{
			{Name: "confidence", Limit: 0.8, Value: 0.9, OK: true, Detail: "the confidence is 90 %; the policy requires 80 %"},
		},
	}))
	must(w.records.PutBudgets(ctx, schemas.Budgets{
		Time: now, RackLimit: 1,
		Levels: []schemas.Budget{
			{Scope: schemas.ScopeFleet, Limit: 4, Used: 2, Reserved: 1},
			{Scope: schemas.ScopeRack, Name: "dc1-r02", Limit: 1, Used: 1},
			{Scope: schemas.ScopeRack, Name: "dc1-r03", Limit: 1, Reserved: 1},
			{Scope: schemas.ScopeRack, Name: "dc1-r07", Limit: 1, Used: 1},
			{Scope: schemas.ScopeHour, Limit: 6, Used: 2, Reserved: 1},
		},
		Breaker: schemas.Breaker{Ladders: 2, Limit: 6, WindowSeconds: 600},
	}))
}

var _ bus.Bus = (*mem.Bus)(nil)

var faultRecords = sync.OnceValue(propagation.Default)

// inWords writes a sentence out in every language, as the correlator does.
func inWords(s *schemas.Sentence) {
	if s != nil {
		s.Text = faultRecords().Sentence(s.ID, s.Args).Text
	}
}

func (w *world) putIncident(ctx context.Context, inc schemas.Incident) error {
	inWords(inc.Summary)
	for i := range inc.Sentences {
		inWords(&inc.Sentences[i])
	}
	return w.records.PutIncident(ctx, inc)
}

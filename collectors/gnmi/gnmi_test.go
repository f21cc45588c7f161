package gnmi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"auspex/collectors"
	"auspex/collectors/collectortest"
	"auspex/collectors/gnmi/presets"
	"auspex/internal/gnmiclient"
	"auspex/internal/racetest"
	"auspex/internal/waittest"
	"auspex/schemas"
)

// The servers of openconfig log by glog, which starts a goroutine by itself, and the fake agent waits for another poll of
// a client that has gone.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(
		m, goleak.IgnoreTopFunction("github.com/golang/glog.(*fileSink).flushDaemon"),
		goleak.IgnoreTopFunction("github.com/openconfig/gnmi/testing/fake/gnmi.(*Client).processQueue"),
	)
}

// fake answers every subscription with recorded responses and then waits.
type fake struct {
	gpb.UnimplementedGNMIServer
	responses []*gpb.SubscribeResponse
	refuse    string // a path that it does not know
	more      chan *gpb.SubscribeResponse
	accepted  chan struct{} // when not nil, told of each subscription that is not refused
	models    []string
	basic     string // what it wants to be shown
	asked     atomic.Int32
	beside    map[string][]*gpb.SubscribeResponse // by the target of the prefix; nil refuses it
}

func (f *fake) Capabilities(ctx context.Context, _ *gpb.CapabilityRequest) (*gpb.CapabilityResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	f.asked.Add(1)
	if got := md.Get("authorization"); f.basic != "" && (len(got) != 1 || got[0] != f.basic) {
		return nil, status.Error(codes.Unauthenticated, "who are you")
	}
	if u := md.Get("username"); len(u) != 1 || u[0] != "admin" {
		return nil, status.Error(codes.Unauthenticated, "who are you")
	}
	res := &gpb.CapabilityResponse{SupportedEncodings: []gpb.Encoding{gpb.Encoding_JSON, gpb.Encoding_PROTO}}
	for _, m := range f.models {
		res.SupportedModels = append(res.SupportedModels, &gpb.ModelData{Name: m})
	}
	return res, nil
}

func (f *fake) Subscribe(s grpc.BidiStreamingServer[gpb.SubscribeRequest, gpb.SubscribeResponse]) error {
	req, err := s.Recv()
	if err != nil {
		return err
	}
	for _, sub := range req.GetSubscribe().GetSubscription() {
		if f.refuse != "" && strings.Contains(sub.GetPath().String(), f.refuse) {
			return status.Errorf(codes.InvalidArgument, "unknown path %v", sub.GetPath())
		}
	}
	if f.accepted != nil {
		f.accepted <- struct{}{}
	}
	responses := f.responses
	if to := req.GetSubscribe().GetPrefix().GetTarget(); to != "" {
		if responses = f.beside[to]; responses == nil {
			return status.Errorf(codes.InvalidArgument, "unknown target %s", to)
		}
	}
	for _, r := range responses {
		if err := s.Send(r); err != nil {
			return err
		}
	}
	for {
		select {
		case r := <-f.more:
			if r == nil {
				return nil
			}
			if err := s.Send(r); err != nil {
				return err
			}
		case <-s.Context().Done():
			return nil
		}
	}
}

func serve(t testing.TB, f *fake) schemas.Resource { t.Helper(); return served(t, f) }

func served(t testing.TB, f gpb.GNMIServer) schemas.Resource {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	gpb.RegisterGNMIServer(srv, f)
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	t.Cleanup(func() { srv.Stop(); <-done })
	return target(l.Addr().String())
}

func target(addr string) schemas.Resource {
	return schemas.Resource{
		ID: "leaf-1", Kind: schemas.KindSwitch, Attrs: schemas.AttrsOf(map[string]string{schemas.AttrGNMIAddress: addr, schemas.AttrCredential: "switches"}),
	}
}

func load(t testing.TB, file string) []*gpb.SubscribeResponse {
	t.Helper()
	in, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	var out []*gpb.SubscribeResponse
	for sc := bufio.NewScanner(in); sc.Scan(); {
		r := &gpb.SubscribeResponse{}
		if err := protojson.Unmarshal(sc.Bytes(), r); err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

func TestConformance(t *testing.T) {
	collectortest.Run(t, collectortest.Harness{
		Name: Name,
		Serve: func(t testing.TB, input string) schemas.Resource {
			return serve(t, &fake{responses: load(t, filepath.Join(input, "responses.jsonl"))})
		},
		Garbage: func(t testing.TB) schemas.Resource {
			return serve(t, &fake{responses: []*gpb.SubscribeResponse{
				{},
				{Response: &gpb.SubscribeResponse_Update{}},
				{Response: &gpb.SubscribeResponse_Update{
					Update: &gpb.Notification{Update: []*gpb.Update{nil, {}, {Path: parsePath("interfaces/interface/state/oper-status")}}},
				}},
			}})
		},
		Dead: target("127.0.0.1:1"), At: target,
	})
}

func config() *Config {
	c := Default()
	c.TLS.Disabled, c.SampleInterval, c.Timeout = true, 100*time.Millisecond, time.Minute
	return c
}

func oper(port, state string, at int64) *gpb.SubscribeResponse {
	return &gpb.SubscribeResponse{Response: &gpb.SubscribeResponse_Update{Update: &gpb.Notification{
		Timestamp: at, Update: []*gpb.Update{{
			Path: parsePath("interfaces/interface[name=" + port + "]/state/oper-status"),
			Val:  &gpb.TypedValue{Value: &gpb.TypedValue_StringVal{StringVal: state}},
		}},
	}}}
}

func synced() *gpb.SubscribeResponse {
	return &gpb.SubscribeResponse{Response: &gpb.SubscribeResponse_SyncResponse{SyncResponse: true}}
}

func events(rec *collectortest.Recorder) []string {
	var out []string
	for _, ev := range rec.Events() {
		out = append(out, strings.Join([]string{ev.Type, ev.Code, ev.State, ev.Attrs["part"]}, " "))
	}
	return out
}

func wait(t *testing.T, rec *collectortest.Recorder, n int) {
	t.Helper()
	waittest.Until(t, func() error {
		if len(rec.Events()) < n {
			return fmt.Errorf("only %v", events(rec))
		}
		return nil
	})
}

func run(t *testing.T, res schemas.Resource, s collectors.Settings, out collectors.Emitter) (c collectors.Collector, stop func() error) {
	t.Helper()
	c, err := config().New(res, s)
	if err != nil {
		t.Fatal(err)
	}
	return c, again(c, out)
}

func again(c collectors.Collector, out collectors.Emitter) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, out) }()
	return func() error { cancel(); return <-done }
}

func TestWhatChangedWhileNobodyLookedIsTold(t *testing.T) {
	at := time.Now().UnixNano()
	s, rec := collectortest.Settings(), collectortest.NewRecorder()
	f := &fake{responses: []*gpb.SubscribeResponse{oper("Ethernet1", "UP", at), synced()}, more: make(chan *gpb.SubscribeResponse)}
	_, stop := run(t, serve(t, f), s, rec)
	f.more <- oper("Ethernet2", "DOWN", at) // never was up
	f.more <- oper("Ethernet3", "UP", at)
	f.more <- oper("Ethernet3", "DOWN", at+1)
	wait(t, rec, 1)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	// Meanwhile Ethernet1 goes down and Ethernet3 comes back.
	f2 := &fake{responses: []*gpb.SubscribeResponse{
		oper("Ethernet1", "DOWN", at+2), oper("Ethernet2", "DOWN", at), oper("Ethernet3", "UP", at+3), synced(),
	}}
	_, stop = run(t, serve(t, f2), s, rec)
	wait(t, rec, 3)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	want := []string{"port.down  raised Ethernet3", "port.down  raised Ethernet1", "port.down  cleared Ethernet3"}
	if d := cmp.Diff(want, events(rec)); d != "" {
		t.Error(d)
	}
}

// What a killed process told has its end told by the next, though that has never seen it begin.
func TestAnEventOfAKilledProcessHasAnEnd(t *testing.T) {
	at := time.Now().UnixNano()
	for _, mute := range []bool{false, true} {
		s, rec := collectortest.Settings(), collectortest.NewRecorder()
		killed := &collectortest.Mortal{Cursors: s.Cursors, Emitter: rec, Mute: mute}
		dying := s
		dying.Cursors = killed
		f := &fake{responses: []*gpb.SubscribeResponse{oper("Ethernet1", "UP", at), synced(), oper("Ethernet1", "DOWN", at+1)}}
		_, stop := run(t, serve(t, f), dying, killed)
		waittest.For(t, "it is killed", killed.Dead)
		_ = stop()
		f = &fake{responses: []*gpb.SubscribeResponse{oper("Ethernet1", "UP", at+2), synced()}}
		_, stop = run(t, serve(t, f), s, rec)
		waittest.Until(t, func() error {
			if got := events(rec); len(got) == 0 || got[len(got)-1] != "port.down  cleared Ethernet1" {
				return fmt.Errorf("%v", got)
			}
			return nil
		})
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff([]string{"port.down  raised Ethernet1", "port.down  cleared Ethernet1"}, slices.Compact(events(rec))); d != "" {
			t.Error(mute, d)
		}
	}
}

func TestFlappingPort(t *testing.T) {
	at := time.Now().UnixNano()
	rec := collectortest.NewRecorder()
	f := &fake{responses: []*gpb.SubscribeResponse{oper("Ethernet1", "UP", at), synced()}, more: make(chan *gpb.SubscribeResponse)}
	_, stop := run(t, serve(t, f), collectortest.Settings(), rec)
	for i, st := range []string{"DOWN", "UP", "DOWN", "UP"} {
		f.more <- oper("Ethernet1", st, at+int64(i+1))
	}
	wait(t, rec, 5)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, s := range events(rec) {
		if s == "port.flap  raised Ethernet1" {
			n++
		}
	}
	if n != 1 {
		t.Errorf("told %v", events(rec))
	}
}

func TestTargetThatRefusesOptionalPathsIsAskedForLess(t *testing.T) {
	f := &fake{refuse: "boot-time", responses: []*gpb.SubscribeResponse{synced()}, accepted: make(chan struct{}, 1)}
	rec := collectortest.NewRecorder()
	c, err := config().New(serve(t, f), collectortest.Settings())
	if err != nil {
		t.Fatal(err)
	}
	stop := again(c, rec) // once: what is refused costs no connection
	select {
	case <-f.accepted:
	case <-time.After(time.Minute):
		t.Error("what is left was not asked")
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

func told(path, text string) *gpb.SubscribeResponse {
	return &gpb.SubscribeResponse{Response: &gpb.SubscribeResponse_Update{Update: &gpb.Notification{Timestamp: 1, Update: []*gpb.Update{{
		Path: parsePath(path), Val: &gpb.TypedValue{Value: &gpb.TypedValue_JsonIetfVal{JsonIetfVal: []byte(text)}},
	}}}}}
}

// samples waits until so many series were told, and returns them.
func samples(t *testing.T, rec *collectortest.Recorder, n int) (out []string) {
	t.Helper()
	waittest.Until(t, func() error {
		out = nil
		for _, line := range rec.Lines() {
			var s collectortest.Sample
			if json.Unmarshal([]byte(line), &s) == nil && s.Metric != "" {
				out = append(out, fmt.Sprintf("%s %s %v %v", s.Metric, s.Part, s.Labels, s.Value))
			}
		}
		slices.Sort(out)
		if out = slices.Compact(out); len(out) < n {
			return fmt.Errorf("only %v", out)
		}
		return nil
	})
	return out
}

// What a vendor tells beside OpenConfig's models is read from the switches that show its models, and
// where it needs a call of its own, in one.
func TestVendorsCounters(t *testing.T) {
	queues := "qos/interfaces/interface[interface-id=swp1]"
	for name, c := range map[string]struct {
		fake *fake
		want []string
	}{
		"cumulus": {&fake{models: []string{"openconfig-qos", "nvidia-if-ethernet-counters-ext"}, responses: []*gpb.SubscribeResponse{
			told(queues+"/output/queues/queue[name=3]/state/ecn-marked-pkts", "17"),
			told("qos", `{"interfaces":{"interface":[{"interface-id":"swp2","output":{"queues":{"queue":[{"name":"4","state":{"dropped-pkts":"9"}}]}}}]}}`),
			told(queues+"/state/switch-priority[priority=5]/counters/in-pause-pkts", "2"),
			told("interfaces/interface[name=swp1]/ethernet/counters/state/in-pfc3-packets", `"8"`),
			synced(),
		}}, []string{
			"auspex_port_in_pfc_frames_total swp1 map[priority:3] 8",
			"auspex_port_in_pfc_frames_total swp1 map[priority:5] 2",
			"auspex_port_queue_dropped_packets_total swp2 map[queue:4] 9",
			"auspex_port_queue_ecn_marked_packets_total swp1 map[queue:3] 17",
		}},
		"sonic": {&fake{models: []string{"sonic-db"}, responses: []*gpb.SubscribeResponse{synced()}, beside: map[string][]*gpb.SubscribeResponse{
			"COUNTERS_DB": {
				told("COUNTERS/Ethernet*", `{"Ethernet0":{"SAI_PORT_STAT_PFC_3_RX_PKTS":"17","SAI_PORT_STAT_IF_IN_ERRORS":"0"}}`),
				told("COUNTERS/Ethernet*/Queues", `{"Ethernet0:1":{"SAI_QUEUE_STAT_DROPPED_PACKETS":"4"},"Ethernet0:1:periodic":{"SAI_QUEUE_STAT_X":"4"}}`),
				synced(),
			},
		}}, []string{
			"auspex_port_in_pfc_frames_total Ethernet0 map[priority:3] 17",
			"auspex_port_queue_dropped_packets_total Ethernet0 map[queue:1] 4",
		}},
		"sonic without its database": {&fake{models: []string{"sonic-db"}, responses: []*gpb.SubscribeResponse{oper("Ethernet0", "UP", 1), synced()}}, []string{
			"auspex_port_up Ethernet0 map[] 1",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			rec := collectortest.NewRecorder()
			_, stop := run(t, serve(t, c.fake), collectortest.Settings(), rec)
			got := samples(t, rec, len(c.want))
			if err := stop(); err != nil {
				t.Error(err)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func path(s string) *elems { return &elems{b: parsePath(s).Elem} }

func TestPathsAreLocatedByPosition(t *testing.T) {
	for s, want := range map[string]place{
		"interfaces/interface[name=Ethernet1]/state/counters/in-octets":                                                                          {leaf: leafInOctets, owner: ownPort, name: "Ethernet1"},
		"components/component[name=O1]/transceiver/physical-channels/channel[index=3]/state/input-power/instant":                                 {leaf: leafRxPower, owner: ownComponent, name: "O1", lane: "3"},
		"components/component[name=O1]/transceiver/state/pre-fec-ber/instant":                                                                    {leaf: leafPreFECBER, owner: ownComponent, name: "O1"},
		"network-instances/network-instance[name=d]/protocols/protocol[name=B]/bgp/neighbors/neighbor[neighbor-address=::1]/state/session-state": {leaf: leafSessionState, owner: ownNeighbor, name: "::1"},
		"components/component[name=O1]/transceiver/thresholds/threshold[severity=CRITICAL]/state/input-power-lower":                              {leaf: leafThreshold, owner: ownComponent, name: "O1", lane: "CRITICAL", of: leafRxPower},
		"components/component[name=O1]/transceiver/thresholds/threshold[severity=oc:WARNING]/state/module-temperature-upper":                     {leaf: leafThreshold, owner: ownComponent, name: "O1", lane: "oc:WARNING", of: leafTemperature, upper: true},
		"components/component[name=O1]/transceiver/thresholds/threshold[severity=WARNING]/state/severity":                                        {owner: ownComponent, name: "O1", lane: "WARNING"},
		"interfaces/interface[name=Ethernet1]/subinterfaces/subinterface[index=0]/ipv4/addresses/address[ip=10.0.0.1]/state/prefix-length":       {leaf: leafPrefixLength, owner: ownPort, name: "Ethernet1", lane: "10.0.0.1"},
		"interfaces/interface[name=Ethernet1]/config/description":                                                                                {},
		"components": {},
	} {
		if d := cmp.Diff(want, locate(path(s)), cmp.AllowUnexported(place{})); d != "" {
			t.Errorf("%s: %s", s, d)
		}
	}
}

// A session is told at the port over which it goes, where the switch says its addresses.
func TestSessionStandsAtItsPort(t *testing.T) {
	st, err := newState(t.Context(), &subscriber{
		cfg: *config(), device: "leaf-1", settings: collectors.Settings{Now: time.Now}, metrics: newMetrics(nil),
	})
	if err != nil {
		t.Fatal(err)
	}
	st.address(place{name: "Ethernet49", lane: "10.254.0.0"}, 31)
	st.address(place{name: "Ethernet50", lane: "10.0.0.1"}, 8)
	st.address(place{name: "Ethernet51", lane: "2001:db8::1"}, 64)
	st.address(place{name: "Ethernet52", lane: "no address"}, 64)
	for neighbor, port := range map[string]string{
		"10.254.0.1": "Ethernet49", "10.254.0.2": "Ethernet50", "2001:db8::7": "Ethernet51", "192.0.2.1": "", "x": "",
	} {
		if got := st.portOf(neighbor); got != port {
			t.Errorf("%s is reached over %q, want %q", neighbor, got, port)
		}
	}
}

// The module's own alarms and warnings bound each metric once, whatever its lanes, in the
// metric's unit and under the port that the module is in.
func TestThresholdsOfAModuleBoundItsReadings(t *testing.T) {
	st, err := newState(t.Context(), &subscriber{
		cfg: *config(), device: "leaf-1", settings: collectors.Settings{Now: time.Now}, metrics: newMetrics(nil),
	})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Unix(1_700_000_000, 0)
	set := func(path string, v float64) {
		st.update(
			&elems{b: parsePath("components/component[name=O1]/" + path).Elem}, &gpb.TypedValue{Value: &gpb.TypedValue_DoubleVal{DoubleVal: v}}, at,
		)
	}
	st.update(
		path("interfaces/interface[name=Ethernet1]/state/transceiver"), &gpb.TypedValue{Value: &gpb.TypedValue_StringVal{StringVal: "O1"}}, at,
	)
	const table = "transceiver/thresholds/threshold[severity="
	st.notification(&gpb.Notification{Timestamp: at.UnixNano(), Update: []*gpb.Update{{
		Path: parsePath("components/component[name=O1]/transceiver/thresholds"),
		Val: &gpb.TypedValue{Value: &gpb.TypedValue_JsonIetfVal{JsonIetfVal: []byte(
			`{"threshold":[{"severity":"openconfig-alarm-types:CRITICAL","state":{"severity":"openconfig-alarm-types:CRITICAL","input-power-lower":"-12.5"}}]}`)}},
	}}})
	set(table+"WARNING]/state/input-power-lower", -10.5)
	set(table+"CRITICAL]/state/laser-bias-current-upper", 120)
	set(table+"WARNING]/state/module-temperature-upper", 70)
	set(table+"UNKNOWN]/state/module-temperature-upper", 1)
	for lane := range 2 {
		channel := fmt.Sprintf("transceiver/physical-channels/channel[index=%d]/state/", lane)
		set(channel+"input-power/instant", -3)
		set(channel+"laser-bias-current/instant", 60)
	}
	set("state/temperature/instant", 40)
	rec := collectortest.NewRecorder()
	if err := st.batch.Emit(t.Context(), rec, at); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, line := range rec.Lines() {
		var s collectortest.Sample
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			t.Fatal(err)
		}
		if metric, ok := schemas.ThresholdOf(s.Metric); ok {
			got = append(got, fmt.Sprintf("%s %s %s %s %v", metric, s.Kind, s.Part, s.Labels, s.Value))
		}
	}
	want := []string{
		"auspex_port_laser_bias_amperes port Ethernet1 map[bound:upper_critical] 0.12",
		"auspex_port_optics_temperature_celsius port Ethernet1 map[bound:upper_caution] 70",
		"auspex_port_rx_power_dbm port Ethernet1 map[bound:lower_caution] -10.5",
		"auspex_port_rx_power_dbm port Ethernet1 map[bound:lower_critical] -12.5",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// A target that writes numbers in its own language is named, once; what it writes is no
// reading.
func TestNumbersWithADecimalCommaAreNamedAndNotRead(t *testing.T) {
	var log strings.Builder
	st, err := newState(t.Context(), &subscriber{
		cfg: *config(), device: "leaf-1", settings: collectors.Settings{Now: time.Now}, metrics: newMetrics(prometheus.NewRegistry()),
		log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Unix(1_700_000_000, 0)
	before := testutil.ToFloat64(st.s.metrics.malformed)
	for path, v := range map[string]*gpb.TypedValue{
		"state/temperature/instant": {Value: &gpb.TypedValue_StringVal{StringVal: "40,5"}},
		"transceiver/thresholds/threshold[severity=WARNING]/state/input-power-lower":      {Value: &gpb.TypedValue_JsonIetfVal{JsonIetfVal: []byte(`"-10,5"`)}},
		"transceiver/physical-channels/channel[index=0]/state/laser-bias-current/instant": {Value: &gpb.TypedValue_JsonVal{JsonVal: []byte(`"60,1"`)}},
	} {
		st.update(&elems{b: parsePath("components/component[name=O1]/" + path).Elem}, v, at)
	}
	if n := testutil.ToFloat64(st.s.metrics.malformed) - before; n != 3 {
		t.Errorf("%v values counted, want 3", n)
	}
	if strings.Count(log.String(), "not a number") != 1 || !strings.Contains(log.String(), "path=/components/component/") {
		t.Errorf("log: %s", log.String())
	}
	rec := collectortest.NewRecorder()
	if err := st.batch.Emit(t.Context(), rec, at); err != nil {
		t.Fatal(err)
	}
	if lines := rec.Lines(); len(lines) > 0 {
		t.Errorf("read %s", lines)
	}
}

func notification() *gpb.Notification {
	n := &gpb.Notification{Timestamp: time.Now().UnixNano()}
	for i := range 128 {
		for c := range counters {
			n.Update = append(n.Update, &gpb.Update{
				Path: parsePath(fmt.Sprintf("interfaces/interface[name=Ethernet%d]/state/counters/%s", i, c)),
				Val:  &gpb.TypedValue{Value: &gpb.TypedValue_UintVal{UintVal: uint64(i) << 33}},
			})
		}
	}
	return n
}

func TestKnownSeriesAllocateNothing(t *testing.T) {
	racetest.Allocations(t)
	s := &subscriber{cfg: *config(), device: "leaf-1", settings: collectortest.Settings(), metrics: newMetrics(nil)}
	s.settings.Cursors = nil
	st, err := newState(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	n := notification()
	st.notification(n)
	st.batch.Discard()
	a := math.Inf(1)
	for range 5 { // what else runs in the process allocates too, now and then
		a = min(a, testing.AllocsPerRun(20, func() { st.notification(n); st.batch.Discard() }))
	}
	if a > 0 {
		t.Errorf("%v allocations for %d updates", a, len(n.GetUpdate()))
	}
}

// wire is a message as it comes.
func wire(t testing.TB, n *gpb.Notification) []byte {
	t.Helper()
	raw, err := proto.Marshal(&gpb.SubscribeResponse{Response: &gpb.SubscribeResponse_Update{Update: n}})
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func respond(t testing.TB, st *state, raw []byte) {
	t.Helper()
	var r gnmiclient.Response
	if err := r.Parse(raw); err != nil {
		t.Fatal(err)
	}
	if err := st.response(&r); err != nil {
		t.Fatal(err)
	}
}

// bare is a state that remembers nothing.
func newBare(t testing.TB) *state {
	t.Helper()
	all, err := presets.Load(presets.All())
	if err != nil {
		t.Fatal(err)
	}
	s := &subscriber{cfg: *config(), device: "leaf-1", settings: collectors.Settings{Now: time.Now}, metrics: newMetrics(prometheus.NewRegistry()), log: slog.New(slog.DiscardHandler)}
	for _, p := range all {
		for i := range p.Readings {
			s.readings = append(s.readings, &p.Readings[i])
		}
	}
	st, err := newState(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func TestMessagesOfKnownPathsAllocateNothing(t *testing.T) {
	racetest.Allocations(t)
	st, raw := newBare(t), wire(t, notification())
	respond(t, st, raw)
	a := math.Inf(1)
	for range 5 { // what else runs in the process allocates too, now and then
		a = min(a, testing.AllocsPerRun(20, func() { respond(t, st, raw); st.batch.Discard() }))
	}
	if a > 0 {
		t.Errorf("%v allocations", a)
	}
}

// What is looked at where it lies means what it means taken apart, in whatever order paths, prefixes,
// kinds of values and states come.
func TestKnownPathsMeanWhatTheyMeant(t *testing.T) {
	lines := func(st *state) []string {
		rec := collectortest.NewRecorder()
		if err := st.batch.Emit(t.Context(), rec, time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
		return rec.Lines()
	}
	paths := []string{
		"interfaces/interface[name=E1]/state/counters/in-octets", "interfaces/interface[name=E2]/state/counters/in-octets",
		"components/component[name=E1]/transceiver/physical-channels/channel[index=1]/state/input-power/instant",
		"components/component[name=F]/fan/state/speed", "components/component[name=F]/state/oper-status", "system/state/boot-time",
		"interfaces/interface[name=E1]/state/oper-status", "interfaces/interface[name=E1]/state/last-change",
		"qos/interfaces/interface[interface-id=E1]/output/queues/queue[name=3]/state/dropped-pkts",
		"components/component[name=E1]/transceiver/thresholds/threshold[severity=WARNING]/state/input-power-lower",
	}
	rng := rand.New(rand.NewPCG(7, 7)) //nolint:gosec // no secret
	quick, slow := newBare(t), newBare(t)
	for round := range 400 {
		n := &gpb.Notification{Timestamp: int64(round + 1), Atomic: rng.IntN(8) == 0}
		cut := rng.IntN(3)
		for range 1 + rng.IntN(4) {
			p := parsePath(paths[rng.IntN(len(paths))])
			if n.Prefix == nil {
				n.Prefix = &gpb.Path{Elem: p.Elem[:cut]}
			} else if !slices.EqualFunc(n.Prefix.Elem, p.Elem[:cut], func(a, b *gpb.PathElem) bool { return proto.Equal(a, b) }) {
				continue
			}
			v := &gpb.TypedValue{}
			switch rng.IntN(6) {
			case 0:
				v.Value = &gpb.TypedValue_IntVal{IntVal: -rng.Int64N(1 << 40)}
			case 1:
				v.Value = &gpb.TypedValue_DoubleVal{DoubleVal: rng.NormFloat64()}
			case 2:
				v.Value = &gpb.TypedValue_StringVal{StringVal: []string{"UP", "DOWN", "ACTIVE", "12.5"}[rng.IntN(4)]}
			case 3:
				v.Value = &gpb.TypedValue_JsonIetfVal{JsonIetfVal: []byte(`"17"`)}
			case 4:
				v.Value = &gpb.TypedValue_BoolVal{BoolVal: true}
			default:
				v.Value = &gpb.TypedValue_UintVal{UintVal: rng.Uint64() >> 20}
			}
			n.Update = append(n.Update, &gpb.Update{Path: &gpb.Path{Elem: p.Elem[cut:]}, Val: v})
		}
		respond(t, quick, wire(t, n))
		slow.notification(n)
		if round%16 == 15 {
			if d := cmp.Diff(lines(slow), lines(quick)); d != "" {
				t.Fatalf("round %d: %s", round, d)
			}
		}
	}
	for _, c := range []func(*metrics) prometheus.Counter{
		func(m *metrics) prometheus.Counter { return m.updates }, func(m *metrics) prometheus.Counter { return m.unmatched },
		func(m *metrics) prometheus.Counter { return m.malformed },
	} {
		if a, b := testutil.ToFloat64(c(slow.s.metrics)), testutil.ToFloat64(c(quick.s.metrics)); a != b || a == 0 {
			t.Errorf("%v and %v counted", a, b)
		}
	}
	if quick.known.n == 0 {
		t.Error("no path is known")
	}
}

// A delete is taken with the numbers of known paths that come with it.
func TestADeleteAmongKnownPaths(t *testing.T) {
	st := newBare(t)
	const neighbor = "lldp/interfaces/interface[name=E1]/neighbors/neighbor[id=1]/state"
	n := notification()
	n.Update = n.Update[:4]
	respond(t, st, wire(t, n))
	respond(t, st, wire(t, told(neighbor+"/system-name", `"gpu-1"`).GetUpdate()))
	if len(st.cabling.ports["E1"]) != 1 {
		t.Fatal("there is no neighbour")
	}
	n.Delete = []*gpb.Path{parsePath(neighbor)}
	respond(t, st, wire(t, n))
	if len(st.cabling.ports["E1"]) != 0 {
		t.Error("it is still there")
	}
}

// Cumulus Linux ignores credentials in metadata: they are shown as HTTP Basic too, once the target has
// refused them, and a target that refuses both is not asked a third time.
func TestATargetThatWantsHTTPBasic(t *testing.T) {
	for name, want := range map[string]bool{"YWRtaW46c2VjcmV0": true, "b3RoZXI6c2VjcmV0": false} {
		f := &fake{basic: "Basic " + name, responses: []*gpb.SubscribeResponse{oper("Ethernet1", "UP", 1), synced()}}
		s, rec := collectortest.Settings(), collectortest.NewRecorder()
		s.Secrets = secret{}
		c, err := config().New(serve(t, f), s)
		if err != nil {
			t.Fatal(err)
		}
		if !want {
			if err := c.Run(t.Context(), rec); !errors.Is(err, collectors.ErrAuth) || f.asked.Load() != 2 {
				t.Errorf("asked %d times: %v", f.asked.Load(), err)
			}
			continue
		}
		stop := again(c, rec)
		samples(t, rec, 1)
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
}

type secret struct{}

func (secret) Secret(context.Context, string) (user, password string, err error) {
	return "admin", "secret", nil
}

func BenchmarkNotification(b *testing.B) {
	s := &subscriber{cfg: *config(), device: "leaf-1", metrics: newMetrics(nil)}
	st, _ := newState(context.Background(), s)
	n := notification()
	b.ReportAllocs()
	for b.Loop() {
		st.notification(n)
		st.batch.Discard()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(n.GetUpdate())), "ns/update")
}

func FuzzNotification(f *testing.F) {
	f.Add("interfaces/interface[name=E]/state/oper-status", []byte(`"UP"`))
	f.Add("components", []byte(`{"component":[{"name":"P","state":{"type":"FAN"}}]}`))
	f.Fuzz(func(t *testing.T, p string, js []byte) {
		s := &subscriber{cfg: *config(), device: "leaf-1", settings: collectors.Settings{Now: time.Now}, metrics: newMetrics(nil)}
		st, _ := newState(context.Background(), s)
		for range 2 {
			st.notification(&gpb.Notification{
				Update: []*gpb.Update{{Path: parsePath(p), Val: &gpb.TypedValue{Value: &gpb.TypedValue_JsonIetfVal{JsonIetfVal: js}}}},
			})
		}
	})
}

func TestATargetThatNeverSaysThatItHasSentEverythingIsStillRemembered(t *testing.T) {
	s, rec := collectortest.Settings(), collectortest.NewRecorder()
	f := &fake{responses: []*gpb.SubscribeResponse{oper("Ethernet1", "UP", 1)}, more: make(chan *gpb.SubscribeResponse)}
	cfg := config()
	cfg.Timeout = 200 * time.Millisecond
	c, err := cfg.New(serve(t, f), s)
	if err != nil {
		t.Fatal(err)
	}
	// A busy machine may not connect in so short a time: it tries again.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		err := c.Run(ctx, rec)
		for ; err != nil && ctx.Err() == nil; err = c.Run(ctx, rec) {
			t.Logf("run: %v", err)
		}
		done <- err
	}()
	for n, deadline := int64(2), time.Now().Add(time.Minute); ; n++ {
		select {
		case f.more <- oper("Ethernet1", "UP", n):
		case <-time.After(50 * time.Millisecond):
		}
		if pos, err := s.Cursors.Cursor(t.Context(), Name, "leaf-1"); err != nil || strings.Contains(pos, "Ethernet1") {
			break
		}
		if time.Now().After(deadline) {
			t.Error("nothing is remembered after the first update")
			break
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

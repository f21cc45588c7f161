package gnmi

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"auspex/internal/sim/device"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeSwitch has two ports, an optic and a copper cable, a power supply and a fan.
type fakeSwitch struct {
	mu      sync.Mutex
	ports   []device.Port
	comps   []device.Component
	fault   device.Fault
	watches map[chan struct{}]bool
	octets  uint64
	bgp     []device.Session
}

func newFake(ports int) *fakeSwitch {
	f := &fakeSwitch{watches: map[chan struct{}]bool{}}
	for i := range ports {
		f.ports = append(f.ports, device.Port{
			Name: "Ethernet" + strconv.Itoa(i+1), Index: i + 1, AdminUp: true, OperUp: true,
			LastChange: time.Unix(1700000000, 0), SpeedBPS: 400e9, InOctets: 10, RxPowerDBm: -1.5, PreFECBER: 2e-9,
			Optic: i == 0, OpticSerial: "OPT1", Neighbor: "gpu-r01-01", NeighborChassis: "b8:3f:d2:00:00:01", NeighborPort: "nic0",
		})
	}
	f.comps = []device.Component{
		{Name: "PSU1", Type: "POWER_SUPPLY", Oper: "ACTIVE", InputVolts: 230, PowerWatts: 400},
		{Name: "FAN1", Type: "FAN", Oper: "ACTIVE", FanRPM: 9000},
	}
	for i := range min(ports, 1) {
		f.bgp = append(f.bgp, device.Session{
			Neighbor: "10.254.0.1", Description: "spine-01 Ethernet1", Local: 4200000001, Peer: 4200000000, State: "ESTABLISHED", Established: 1,
			Since: time.Unix(1700000000, 0), Port: f.ports[i].Name, Address: "10.254.0.0", PrefixBits: 31,
		})
	}
	return f
}

func (f *fakeSwitch) Sessions() []device.Session {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]device.Session(nil), f.bgp...)
}

func (f *fakeSwitch) Info() device.Info {
	return device.Info{Name: "leaf-r01", Firmware: "1.2"}
}

func (f *fakeSwitch) Password(u string) (string, bool) { return "secret", u == "admin" }
func (f *fakeSwitch) BootTime() time.Time              { return time.Unix(1690000000, 0) }
func (f *fakeSwitch) Now() time.Time                   { return time.Unix(1700000001, 5) }

func (f *fakeSwitch) Ports() []device.Port {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.octets++
	out := append([]device.Port(nil), f.ports...)
	for i := range out {
		out[i].InOctets += f.octets
	}
	return out
}

func (f *fakeSwitch) Components() []device.Component {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]device.Component(nil), f.comps...)
}

func (f *fakeSwitch) Watch() (<-chan struct{}, func()) {
	ch := make(chan struct{}, 1)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watches[ch] = true
	return ch, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.watches, ch)
	}
}

func (f *fakeSwitch) Fault() device.Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fault
}

func (f *fakeSwitch) change(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
	for ch := range f.watches {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

func dial(t testing.TB, sw device.Switch) (gpb.GNMIClient, context.Context) {
	t.Helper()
	lis := bufconn.Listen(1 << 16)
	srv := grpc.NewServer()
	gpb.RegisterGNMIServer(srv, NewServer(sw))
	done := make(chan error, 1)
	go func() { done <- srv.Serve(lis) }()
	conn, err := grpc.NewClient("passthrough:///switch", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(
		metadata.AppendToOutgoingContext(context.Background(), "username", "admin", "password", "secret"), 2*time.Minute,
	)
	t.Cleanup(func() {
		cancel()
		conn.Close()
		srv.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return gpb.NewGNMIClient(conn), ctx
}

func parse(s string) *gpb.Path {
	p := &gpb.Path{}
	for part := range strings.SplitSeq(strings.Trim(s, "/"), "/") {
		if part == "" {
			continue
		}
		name, rest, _ := strings.Cut(part, "[")
		e := &gpb.PathElem{Name: name}
		for rest != "" {
			var kv string
			kv, rest, _ = strings.Cut(rest, "]")
			rest = strings.TrimPrefix(rest, "[")
			k, v, _ := strings.Cut(kv, "=")
			if e.Key == nil {
				e.Key = map[string]string{}
			}
			e.Key[k] = v
		}
		p.Elem = append(p.Elem, e)
	}
	return p
}

func text(v *gpb.TypedValue) string {
	switch x := v.GetValue().(type) {
	case *gpb.TypedValue_UintVal:
		return strconv.FormatUint(x.UintVal, 10)
	case *gpb.TypedValue_DoubleVal:
		return strconv.FormatFloat(x.DoubleVal, 'g', -1, 64)
	case *gpb.TypedValue_StringVal:
		return x.StringVal
	case *gpb.TypedValue_BoolVal:
		return strconv.FormatBool(x.BoolVal)
	case *gpb.TypedValue_JsonIetfVal:
		return string(x.JsonIetfVal)
	case *gpb.TypedValue_JsonVal:
		return string(x.JsonVal)
	}
	return ""
}

func collect(m map[string]string, n *gpb.Notification) {
	for _, u := range n.GetUpdate() {
		full := append(append([]*gpb.PathElem(nil), n.GetPrefix().GetElem()...), u.GetPath().GetElem()...)
		m[pathString(full)] = text(u.GetVal())
	}
}

func TestGetReadsLeavesOfEachModel(t *testing.T) {
	client, ctx := dial(t, newFake(2))
	tests := []struct {
		path string
		enc  gpb.Encoding
		want map[string]string
	}{
		{"/interfaces/interface[name=*]/state/oper-status", gpb.Encoding_PROTO, map[string]string{
			"/interfaces/interface[name=Ethernet1]/state/oper-status": "UP",
			"/interfaces/interface[name=Ethernet2]/state/oper-status": "UP",
		}},
		{"/interfaces/interface/ethernet", gpb.Encoding_JSON_IETF, map[string]string{
			"/interfaces/interface[name=Ethernet1]/ethernet/state/port-speed": `"openconfig-if-ethernet:SPEED_400GB"`,
			"/interfaces/interface[name=Ethernet2]/ethernet/state/port-speed": `"openconfig-if-ethernet:SPEED_400GB"`,
		}},
		{"/components/component[name=Ethernet1]/transceiver/physical-channels/channel[index=*]/state/input-power/instant", gpb.Encoding_PROTO, map[string]string{
			"/components/component[name=Ethernet1]/transceiver/physical-channels/channel[index=0]/state/input-power/instant": "-1.5",
		}},
		{"/components/component[name=*]/transceiver/state/pre-fec-ber", gpb.Encoding_JSON_IETF, map[string]string{
			"/components/component[name=Ethernet1]/transceiver/state/pre-fec-ber/instant": `"2e-09"`,
		}},
		{"/components/component[name=PSU1]/power-supply", gpb.Encoding_PROTO, map[string]string{
			"/components/component[name=PSU1]/power-supply/state/enabled":       "true",
			"/components/component[name=PSU1]/power-supply/state/input-voltage": "230",
			"/components/component[name=PSU1]/power-supply/state/output-power":  "400",
		}},
		{"/components/component[name=*]/fan/.../speed", gpb.Encoding_JSON_IETF, map[string]string{
			"/components/component[name=FAN1]/fan/state/speed": "9000",
		}},
		{"/system/state/boot-time", gpb.Encoding_JSON, map[string]string{"/system/state/boot-time": "1690000000000000000"}},
		{"/lldp/interfaces/interface[name=Ethernet2]", gpb.Encoding_PROTO, map[string]string{
			"/lldp/interfaces/interface[name=Ethernet2]/neighbors/neighbor[id=1]/state/chassis-id":      "b8:3f:d2:00:00:01",
			"/lldp/interfaces/interface[name=Ethernet2]/neighbors/neighbor[id=1]/state/chassis-id-type": "MAC_ADDRESS",
			"/lldp/interfaces/interface[name=Ethernet2]/neighbors/neighbor[id=1]/state/port-id-type":    "INTERFACE_NAME",
			"/lldp/interfaces/interface[name=Ethernet2]/neighbors/neighbor[id=1]/state/system-name":     "gpu-r01-01",
			"/lldp/interfaces/interface[name=Ethernet2]/neighbors/neighbor[id=1]/state/port-id":         "nic0",
		}},
	}
	for _, tc := range tests {
		t.Run(tc.path, func(t *testing.T) {
			r, err := client.Get(ctx, &gpb.GetRequest{Path: []*gpb.Path{parse(tc.path)}, Encoding: tc.enc})
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for _, n := range r.GetNotification() {
				collect(got, n)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestGetJoinsPrefixAndEchoesTarget(t *testing.T) {
	client, ctx := dial(t, newFake(2))
	prefix := parse("/interfaces/interface[name=Ethernet2]")
	prefix.Target = "leaf-r01"
	prefix.Origin = "openconfig"
	r, err := client.Get(ctx, &gpb.GetRequest{Prefix: prefix, Path: []*gpb.Path{parse("state/admin-status")}, Encoding: gpb.Encoding_PROTO})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, n := range r.GetNotification() {
		collect(got, n)
		if n.GetPrefix().GetTarget() != "leaf-r01" || n.GetTimestamp() != 1700000001000000005 {
			t.Errorf("target %q at %d", n.GetPrefix().GetTarget(), n.GetTimestamp())
		}
	}
	if d := cmp.Diff(map[string]string{"/interfaces/interface[name=Ethernet2]/state/admin-status": "UP"}, got); d != "" {
		t.Error(d)
	}
}

func TestBadRequestsNameTheirPath(t *testing.T) {
	client, ctx := dial(t, newFake(1))
	origin := parse("/interfaces")
	origin.Origin = "cli"
	tests := []struct {
		name   string
		path   *gpb.Path
		enc    gpb.Encoding
		code   codes.Code
		states string
	}{
		{
			"unknown path", parse("/interfaces/interface[name=Ethernet1]/state/colour"), gpb.Encoding_PROTO, codes.InvalidArgument,
			"/interfaces/interface[name=Ethernet1]/state/colour",
		},
		{"unknown key", parse("/interfaces/interface[id=1]"), gpb.Encoding_PROTO, codes.InvalidArgument, "[id=1]"},
		{"below a leaf", parse("/system/state/boot-time/seconds"), gpb.Encoding_PROTO, codes.InvalidArgument, "/system/state/boot-time/seconds"},
		{"no such port", parse("/interfaces/interface[name=Ethernet99]"), gpb.Encoding_PROTO, codes.NotFound, "Ethernet99"},
		{
			"element without a name", &gpb.Path{Elem: []*gpb.PathElem{{Name: "interfaces"}, {}}}, gpb.Encoding_PROTO, codes.InvalidArgument,
			"without a name",
		},
		{"origin", origin, gpb.Encoding_PROTO, codes.InvalidArgument, "cli"},
		{"encoding", parse("/interfaces"), gpb.Encoding_BYTES, codes.Unimplemented, "BYTES"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			_, err := client.Get(ctx, &gpb.GetRequest{Path: []*gpb.Path{tc.path}, Encoding: tc.enc})
			if status.Code(err) != tc.code || !strings.Contains(err.Error(), tc.states) {
				t.Errorf("got %v, want %v that says %q", err, tc.code, tc.states)
			}
		})
	}
	if _, err := client.Set(ctx, &gpb.SetRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("Set: %v", err)
	}
}

func TestWrongPasswordIsUnauthenticated(t *testing.T) {
	client, _ := dial(t, newFake(1))
	for _, md := range [][]string{nil, {"username", "admin", "password", "guess"}, {"username", "nobody", "password", "secret"}} {
		ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(context.Background(), md...), 2*time.Minute)
		if _, err := client.Capabilities(ctx, &gpb.CapabilityRequest{}); status.Code(err) != codes.Unauthenticated {
			t.Errorf("%v: %v", md, err)
		}
		cancel()
	}
}

func subscribe(ctx context.Context, t *testing.T, client gpb.GNMIClient, list *gpb.SubscriptionList) gpb.GNMI_SubscribeClient {
	t.Helper()
	st, err := client.Subscribe(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Send(&gpb.SubscribeRequest{Request: &gpb.SubscribeRequest_Subscribe{Subscribe: list}}); err != nil {
		t.Fatal(err)
	}
	return st
}

// untilSync collects updates up to the mark of synchronisation.
func untilSync(t *testing.T, st gpb.GNMI_SubscribeClient) map[string]string {
	t.Helper()
	got := map[string]string{}
	for {
		r, err := st.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if r.GetSyncResponse() {
			return got
		}
		collect(got, r.GetUpdate())
	}
}

func next(t *testing.T, st gpb.GNMI_SubscribeClient) map[string]string {
	t.Helper()
	r, err := st.Recv()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	collect(got, r.GetUpdate())
	return got
}

const oper1 = "/interfaces/interface[name=Ethernet1]/state/oper-status"

func TestOnceEndsAfterSync(t *testing.T) {
	client, ctx := dial(t, newFake(2))
	st := subscribe(ctx, t, client, &gpb.SubscriptionList{
		Mode: gpb.SubscriptionList_ONCE, Encoding: gpb.Encoding_PROTO, Subscription: []*gpb.Subscription{{Path: parse("/")}},
	})
	got := untilSync(t, st)
	if got[oper1] != "UP" || len(got) < 50 {
		t.Errorf("%d leaves, %s is %q", len(got), oper1, got[oper1])
	}
	if _, err := st.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("after sync: %v", err)
	}
}

func TestPollAnswersEachPoll(t *testing.T) {
	client, ctx := dial(t, newFake(1))
	st := subscribe(ctx, t, client, &gpb.SubscriptionList{
		Mode: gpb.SubscriptionList_POLL, Encoding: gpb.Encoding_PROTO, Subscription: []*gpb.Subscription{{Path: parse(oper1)}},
	})
	for range 2 {
		if err := st.Send(&gpb.SubscribeRequest{Request: &gpb.SubscribeRequest_Poll{Poll: &gpb.Poll{}}}); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(map[string]string{oper1: "UP"}, untilSync(t, st)); d != "" {
			t.Error(d)
		}
	}
	if err := st.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("after the client's end: %v", err)
	}
}

func TestOnChangeSendsOnlyWhatChanged(t *testing.T) {
	sw := newFake(2)
	client, ctx := dial(t, sw)
	st := subscribe(ctx, t, client, &gpb.SubscriptionList{
		Mode: gpb.SubscriptionList_STREAM, Encoding: gpb.Encoding_PROTO,
		Subscription: []*gpb.Subscription{{Path: parse("/interfaces/interface[name=*]/state/oper-status"), Mode: gpb.SubscriptionMode_ON_CHANGE}},
	})
	if got := untilSync(t, st); len(got) != 2 {
		t.Errorf("before sync: %v", got)
	}
	sw.change(func() { sw.ports[0].OperUp = false })
	if d := cmp.Diff(map[string]string{oper1: "DOWN"}, next(t, st)); d != "" {
		t.Error(d)
	}
	sw.change(func() { sw.ports[0].OperUp = true })
	if d := cmp.Diff(map[string]string{oper1: "UP"}, next(t, st)); d != "" {
		t.Error(d)
	}
}

func TestUpdatesOnlySkipsTheFirstValues(t *testing.T) {
	sw := newFake(1)
	client, ctx := dial(t, sw)
	st := subscribe(ctx, t, client, &gpb.SubscriptionList{
		Mode: gpb.SubscriptionList_STREAM, UpdatesOnly: true, Encoding: gpb.Encoding_PROTO,
		Subscription: []*gpb.Subscription{{Path: parse("/interfaces/interface/state"), Mode: gpb.SubscriptionMode_TARGET_DEFINED}},
	})
	if got := untilSync(t, st); len(got) != 0 {
		t.Errorf("before sync: %v", got)
	}
	sw.change(func() { sw.ports[0].OperUp = false })
	if d := cmp.Diff(map[string]string{oper1: "DOWN"}, next(t, st)); d != "" {
		t.Error(d)
	}
}

func TestSampleRepeatsAndSuppressesRedundant(t *testing.T) {
	client, ctx := dial(t, newFake(1))
	st := subscribe(ctx, t, client, &gpb.SubscriptionList{
		Mode: gpb.SubscriptionList_STREAM, Encoding: gpb.Encoding_PROTO,
		Subscription: []*gpb.Subscription{
			{
				Path: parse("/interfaces/interface/state/counters"), Mode: gpb.SubscriptionMode_SAMPLE, SampleInterval: uint64(100 * time.Millisecond),
				SuppressRedundant: true,
			},
		},
	})
	if got := untilSync(t, st); len(got) != 10 {
		t.Errorf("before sync: %v", got)
	}
	const in = "/interfaces/interface[name=Ethernet1]/state/counters/in-octets"
	a, b := next(t, st), next(t, st)
	if len(a) != 1 || len(b) != 1 || a[in] == "" || a[in] >= b[in] {
		t.Errorf("samples %v and %v", a, b)
	}
}

func TestHeartbeatRepeatsUnchangedState(t *testing.T) {
	client, ctx := dial(t, newFake(1))
	st := subscribe(ctx, t, client, &gpb.SubscriptionList{
		Mode: gpb.SubscriptionList_STREAM, Encoding: gpb.Encoding_PROTO,
		Subscription: []*gpb.Subscription{
			{Path: parse(oper1), Mode: gpb.SubscriptionMode_ON_CHANGE, HeartbeatInterval: uint64(100 * time.Millisecond)},
		},
	})
	untilSync(t, st)
	if d := cmp.Diff(map[string]string{oper1: "UP"}, next(t, st)); d != "" {
		t.Error(d)
	}
}

func TestSlowReaderBlocksOnlyItsStream(t *testing.T) {
	client, ctx := dial(t, newFake(64))
	list := &gpb.SubscriptionList{
		Mode: gpb.SubscriptionList_STREAM, Encoding: gpb.Encoding_PROTO,
		Subscription: []*gpb.Subscription{
			{Path: parse("/interfaces/interface/state/counters"), Mode: gpb.SubscriptionMode_SAMPLE, SampleInterval: uint64(100 * time.Millisecond)},
		},
	}
	subscribe(ctx, t, client, list) // never read
	fast := subscribe(ctx, t, client, list)
	untilSync(t, fast)
	for range 64 * 3 {
		next(t, fast)
	}
}

func TestMuteSwitchAnswersNothing(t *testing.T) {
	sw := newFake(1)
	sw.fault.Mute = true
	client, ctx := dial(t, sw)
	ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	if _, err := client.Capabilities(ctx, &gpb.CapabilityRequest{}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("mute switch: %v", err)
	}
}

func TestStreamGoesOnAfterAMuteTime(t *testing.T) {
	sw := newFake(1)
	client, ctx := dial(t, sw)
	st := subscribe(ctx, t, client, &gpb.SubscriptionList{
		Mode: gpb.SubscriptionList_STREAM, Encoding: gpb.Encoding_PROTO,
		Subscription: []*gpb.Subscription{{Path: parse(oper1), Mode: gpb.SubscriptionMode_ON_CHANGE}},
	})
	untilSync(t, st)
	sw.change(func() { sw.fault.Mute, sw.ports[0].OperUp = true, false })
	got := make(chan map[string]string, 1)
	go func() {
		r, err := st.Recv()
		if err != nil {
			t.Error(err)
		}
		m := map[string]string{}
		collect(m, r.GetUpdate())
		got <- m
	}()
	select {
	case m := <-got:
		t.Errorf("a mute switch sent %v", m)
	case <-time.After(250 * time.Millisecond):
	}
	sw.change(func() { sw.fault.Mute = false })
	if d := cmp.Diff(map[string]string{oper1: "DOWN"}, <-got); d != "" {
		t.Error(d)
	}
}

func FuzzPaths(f *testing.F) {
	f.Add("/interfaces/interface[name=*]/state")
	f.Add("/components/.../instant")
	f.Add("/...")
	f.Add("/*/*[name=Ethernet1]/*")
	s := NewServer(newFake(2))
	tree := s.tree(s.snapshot())
	f.Fuzz(func(t *testing.T, path string) {
		query, err := resolve(nil, parse(path))
		if err != nil {
			return
		}
		if groups, known := tree.find(query, func(*leaf) bool { return true }); len(groups) > 0 && !known {
			t.Errorf("%s selects %d objects of an unknown path", path, len(groups))
		}
	})
}

func BenchmarkCounters(b *testing.B) {
	s := NewServer(newFake(64))
	snap := s.snapshot()
	groups, _ := s.tree(snap).find(parse("/interfaces/interface/state/counters").Elem, func(*leaf) bool { return true })
	w := writer{enc: gpb.Encoding_PROTO, prefix: &gpb.Path{Origin: "openconfig"}}
	b.ReportAllocs()
	for b.Loop() {
		for i := range groups {
			w.notification(&groups[i], snap, false)
		}
	}
}

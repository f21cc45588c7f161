package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openconfig/gnmi/cache"
	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"github.com/openconfig/gnmi/subscribe"
	fakegnmi "github.com/openconfig/gnmi/testing/fake/gnmi"
	fakepb "github.com/openconfig/gnmi/testing/fake/proto"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"auspex/collectors"
	"auspex/collectors/collectortest"
	"auspex/collectors/gnmi"
	"auspex/internal/cabling"
	"auspex/internal/cmdb"
	"auspex/internal/store/conflicts"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/internal/waittest"
	"auspex/schemas"
)

// lldp is an inventory whose switch leaf has a cable at each port Ethernet1/N to nic0 of the server gpu-N, and
// what comes of reading that switch at a gNMI server.
type lldp struct {
	t    *testing.T
	list func(status string) map[string]schemas.Conflict // by port
	got  func() map[string]float64                       // ports by verdict
}

func port(n int) string { return fmt.Sprintf("Ethernet1/%d", n) }
func mac(n int) string  { return fmt.Sprintf("0c:42:a1:00:00:%02x", n) }

func readLLDP(t *testing.T, ports int, server gpb.GNMIServer) *lldp {
	t.Helper()
	topology := schemas.Topology{Version: 1}
	add := func(id, kind, parent string, attrs ...string) {
		r := schemas.Resource{ID: id, Kind: kind, Parent: parent}
		for i := 0; i < len(attrs); i += 2 {
			r.Attrs = r.Attrs.With(attrs[i], attrs[i+1])
		}
		topology.Resources = append(topology.Resources, r)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	gpb.RegisterGNMIServer(srv, server)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	t.Cleanup(func() { srv.Stop(); <-served })
	add("leaf", schemas.KindSwitch, "", schemas.AttrGNMIAddress, l.Addr().String())
	for n := range ports {
		server := fmt.Sprintf("gpu-%d", n)
		add("leaf/"+port(n), schemas.KindPort, "leaf")
		add(server, schemas.KindServer, "")
		add(server+"/nic0", schemas.KindNIC, server, schemas.AttrMAC, mac(n), schemas.AttrAliases, "enp1s0")
		topology.Links = append(topology.Links, schemas.Link{From: "leaf/" + port(n), To: server + "/nic0", Kind: schemas.LinkNetwork})
	}
	ctx, cancel := context.WithCancel(context.Background())
	db := sqltest.Open(t)
	inv := cmdb.New(cmdb.DefaultConfig(), db, nil, nil)
	if err := inv.Open(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := inv.Import(ctx, cmdb.Draft{Topology: topology}, cmdb.ImportOptions{Bounds: cmdb.NoBounds()}); err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	cables := cabling.New(db, inv, slog.New(slog.DiscardHandler), reg)
	read := gnmi.Default()
	read.TLS.Disabled, read.Timeout = true, 30*time.Second
	targets := read.Targets(inv.Snapshot().Resources())
	c, err := read.New(targets[0], collectors.Settings{Metrics: reg, Cabling: cables})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil { // a stream at a time, as the collectors' engine does
			_ = c.Run(ctx, collectortest.NewRecorder())
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return &lldp{t: t, list: func(status string) map[string]schemas.Conflict {
		t.Helper()
		found, _, err := conflicts.New(db).List(t.Context(), conflicts.Filter{Status: status, Kind: schemas.ConflictCable, Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]schemas.Conflict{}
		for _, c := range found {
			out[strings.TrimPrefix(c.Resource, "leaf/")] = c
		}
		return out
	}, got: func() map[string]float64 {
		t.Helper()
		out := map[string]float64{}
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if v := m.GetGauge().GetValue(); f.GetName() == "auspex_cabling_ports" && v > 0 {
					out[m.GetLabel()[0].GetValue()] = v
				}
			}
		}
		return out
	}}
}

func (l *lldp) wait(agree, contradict, others int, open ...string) {
	l.t.Helper()
	waittest.Until(l.t, func() error {
		got, is := l.got(), l.list(schemas.ConflictOpen)
		rest := got["unlisted"] + got["unknown_port"] + got["unknown_neighbor"] + got["ambiguous"]
		if got["agrees"] != float64(agree) || got["contradicts"] != float64(contradict) || rest != float64(others) || len(is) != len(open) {
			return fmt.Errorf("%v with %+v", got, is)
		}
		for _, p := range open {
			if _, there := is[p]; !there {
				return fmt.Errorf("no conflict about %s: %+v", p, is)
			}
		}
		return nil
	})
}

func elem(name string, keys ...string) *gpb.PathElem {
	e := &gpb.PathElem{Name: name}
	for i := 0; i < len(keys); i += 2 {
		if e.Key == nil {
			e.Key = map[string]string{}
		}
		e.Key[keys[i]] = keys[i+1]
	}
	return e
}

func jsonValue(format string, args ...any) *gpb.TypedValue {
	return &gpb.TypedValue{Value: &gpb.TypedValue_JsonIetfVal{JsonIetfVal: fmt.Appendf(nil, format, args...)}}
}

func textValue(s string) *gpb.TypedValue {
	return &gpb.TypedValue{Value: &gpb.TypedValue_StringVal{StringVal: s}}
}

func neighborPath(port, id string, rest ...*gpb.PathElem) *gpb.Path {
	return &gpb.Path{Elem: append([]*gpb.PathElem{
		elem("lldp"), elem("interfaces"), elem("interface", "name", port), elem("neighbors"), elem("neighbor", "id", id),
	}, rest...)}
}

// leaves tells the leaves of a neighbour one by one, name and value in turn.
func leaves(port, id string, pairs ...string) (all []*gpb.Update) {
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, &gpb.Update{Path: neighborPath(port, id, elem("state"), elem(pairs[i])), Val: textValue(pairs[i+1])})
	}
	return all
}

// played is the agent of github.com/openconfig/gnmi/testing/fake: it answers each subscription with
// what it is given, and keeps the stream open.
type played struct {
	gpb.UnimplementedGNMIServer
	responses []*gpb.SubscribeResponse
}

func (p *played) Subscribe(s gpb.GNMI_SubscribeServer) error {
	c := fakegnmi.NewClient(&fakepb.Config{
		Target: "leaf", DisableEof: true, Generator: &fakepb.Config_Fixed{Fixed: &fakepb.FixedGenerator{Responses: slices.Clone(p.responses)}},
	})
	defer c.Close()
	return c.Run(s)
}

// TestNeighboursAreUnderstoodAsSwitchesTellThem plays each way of telling a neighbour that is known of
// makers' switches twice: of a server that is where the inventory has it, and of another.
func TestNeighboursAreUnderstoodAsSwitchesTellThem(t *testing.T) {
	lldpOf := func(port string, rest ...*gpb.PathElem) *gpb.Path {
		return &gpb.Path{Elem: append([]*gpb.PathElem{elem("lldp"), elem("interfaces"), elem("interface", "name", port)}, rest...)}
	}
	one := func(p *gpb.Path, v *gpb.TypedValue) *gpb.Notification {
		return &gpb.Notification{Update: []*gpb.Update{{Path: p, Val: v}}}
	}
	ways := []struct {
		name string
		tell func(port string, server int) *gpb.Notification
	}{
		{"leaf by leaf, by the MAC address of its chassis and the name of its port", func(port string, n int) *gpb.Notification {
			return &gpb.Notification{Update: leaves(port, "1", "id", "1", "chassis-id-type", "MAC_ADDRESS", "chassis-id", mac(n), "port-id-type", "INTERFACE_NAME",
				"port-id", "enp1s0", "system-description", "Linux 6.8", "age", "7", "ttl", "120")}
		}},
		{"by its name with a domain, from the origin openconfig", func(port string, n int) *gpb.Notification {
			return &gpb.Notification{
				Prefix: &gpb.Path{Origin: "openconfig", Target: "leaf", Elem: []*gpb.PathElem{elem("lldp"), elem("interfaces"), elem("interface", "name", port)}},
				Update: []*gpb.Update{{
					Path: &gpb.Path{Elem: []*gpb.PathElem{elem("neighbors"), elem("neighbor", "id", "42"), elem("state"), elem("system-name")}},
					Val:  textValue(fmt.Sprintf("GPU-%d.dc1.example.net", n)),
				}},
			}
		}},
		{"all interfaces in one document, with the module before each name and slashes escaped", func(port string, n int) *gpb.Notification {
			return one(&gpb.Path{Elem: []*gpb.PathElem{elem("lldp"), elem("interfaces")}}, jsonValue(
				`{"openconfig-lldp:interface":[{"openconfig-lldp:name":%q,"openconfig-lldp:neighbors":{"openconfig-lldp:neighbor":[{"openconfig-lldp:id":"1","openconfig-lldp:state":{
				"openconfig-lldp:id":"1","openconfig-lldp:chassis-id":%q,"openconfig-lldp:chassis-id-type":"openconfig-lldp-types:MAC_ADDRESS","openconfig-lldp:port-id":"enp1s0"}}]}}]}`,
				port, mac(n)))
		}},
		{"from the root", func(port string, n int) *gpb.Notification {
			return one(&gpb.Path{}, jsonValue(`{"openconfig-lldp:lldp":{"interfaces":{"interface":[{"name":%q,"neighbors":{"neighbor":[{"id":7,"state":{"id":7,"system-name":"gpu-%d"}}]}}]}}}`, port, n))
		}},
		{"a list of neighbours", func(port string, n int) *gpb.Notification {
			return one(lldpOf(port, elem("neighbors"), elem("neighbor")), jsonValue(`[{"id":"a/b","state":{"port-id-type":"MAC_ADDRESS","port-id":%q}}]`, strings.ToUpper(strings.ReplaceAll(mac(n), ":", "-"))))
		}},
		{"with the module in paths", func(port string, n int) *gpb.Notification {
			return one(&gpb.Path{Elem: []*gpb.PathElem{
				elem("openconfig-lldp:lldp"), elem("interfaces"), elem("interface", "name", port), elem("neighbors"), elem("neighbor", "id", "1"), elem("state"), elem("chassis-id"),
			}}, textValue("0c42.a100."+fmt.Sprintf("%04x", n)))
		}},
		{"all of one neighbour at once, by the address of its management", func(port string, n int) *gpb.Notification {
			return &gpb.Notification{
				Atomic: true, Prefix: neighborPath(port, "1"),
				Update: []*gpb.Update{
					{Path: &gpb.Path{Elem: []*gpb.PathElem{elem("state"), elem("chassis-id")}}, Val: textValue(fmt.Sprintf("10.0.0.%d", n))},
					{Path: &gpb.Path{Elem: []*gpb.PathElem{elem("state"), elem("chassis-id-type")}}, Val: textValue("NETWORK_ADDRESS")},
					{Path: &gpb.Path{Elem: []*gpb.PathElem{elem("state"), elem("system-name")}}, Val: textValue(fmt.Sprintf("gpu-%d", n))},
				},
			}
		}},
		{"by a name of its chassis and a text for its port", func(port string, n int) *gpb.Notification {
			return &gpb.Notification{Update: leaves(port, "1", "chassis-id-type", "LOCAL", "chassis-id", fmt.Sprintf("gpu-%d", n), "port-id-type", "INTERFACE_ALIAS",
				"port-id", "uplink A to leaf", "port-description", "enp1s0")}
		}},
		{"by a MAC address of twelve digits, in a state of its own", func(port string, n int) *gpb.Notification {
			return one(neighborPath(port, "1", elem("state")), jsonValue(`{"chassis-id":%q,"chassis-id-type":"MAC_ADDRESS","system-name":"","port-id":"1","custom-tlvs":[{"type":1}]}`,
				strings.ReplaceAll(mac(n), ":", "")))
		}},
	}
	p := &played{}
	var wrong []string
	for i, w := range ways {
		for n := 2 * i; n < 2*i+2; n++ {
			p.responses = append(p.responses, &gpb.SubscribeResponse{Response: &gpb.SubscribeResponse_Update{Update: w.tell(port(n), n)}})
		}
	}
	for i, w := range ways {
		at, other := 2*len(ways)+i, i // a server that stands elsewhere
		p.responses = append(p.responses, &gpb.SubscribeResponse{Response: &gpb.SubscribeResponse_Update{Update: w.tell(port(at), other)}})
		wrong = append(wrong, port(at))
	}
	for _, r := range p.responses {
		r.GetUpdate().Timestamp = time.Now().UnixNano()
	}
	l := readLLDP(t, 3*len(ways), p)
	l.wait(2*len(ways), len(ways), 0, wrong...)
	open := l.list(schemas.ConflictOpen)
	for i, w := range ways {
		at := 2*len(ways) + i
		c := open[port(at)]
		if c.Left.Value != fmt.Sprintf("gpu-%d/nic0", at) || strings.TrimSuffix(c.Right.Value, "/nic0") != fmt.Sprintf("gpu-%d", i) {
			t.Errorf("%s: %+v", w.name, c)
		}
	}
}

// cached is the collector of github.com/openconfig/gnmi, which gnmic serves with, too: it keeps what it is told of
// many targets, wants the name of one, and tells what is deleted.
type cached struct {
	*subscribe.Server
	cache *cache.Cache
	at    int64
}

func newCached(t *testing.T) *cached {
	t.Helper()
	c := &cached{cache: cache.New([]string{"spine", "leaf"}), at: time.Now().UnixNano()}
	var err error
	if c.Server, err = subscribe.NewServer(c.cache); err != nil {
		t.Fatal(err)
	}
	c.cache.SetClient(c.Update)
	return c
}

func (c *cached) tell(t *testing.T, target string, n *gpb.Notification) {
	t.Helper()
	c.at++
	n.Timestamp, n.Prefix = c.at, &gpb.Path{Target: target}
	if err := c.cache.GnmiUpdate(n); err != nil {
		t.Fatal(err)
	}
}

func TestNeighboursOfASwitchBehindAGatewayComeAndGo(t *testing.T) {
	c := newCached(t)
	right := func(n int) []*gpb.Update {
		return leaves(port(n), "1", "chassis-id", mac(n), "port-id", "enp1s0", "system-name", fmt.Sprintf("gpu-%d", n))
	}
	for n := range 4 {
		c.tell(t, "leaf", &gpb.Notification{Update: right(n)})
	}
	c.tell(t, "spine", &gpb.Notification{Update: leaves(port(0), "1", "system-name", "gpu-3")}) // of another target
	l := readLLDP(t, 4, c)
	l.wait(4, 0, 0)

	// Two servers change places: each neighbour goes, and another one comes under another number.
	for _, swap := range [][2]int{{1, 2}, {2, 1}} {
		c.tell(t, "leaf", &gpb.Notification{Delete: []*gpb.Path{neighborPath(port(swap[0]), "1")}})
		c.tell(t, "leaf", &gpb.Notification{Update: leaves(port(swap[0]), "2", "chassis-id", mac(swap[1]), "port-id", "enp1s0", "system-name", fmt.Sprintf("gpu-%d", swap[1]))})
	}
	l.wait(2, 2, 0, port(1), port(2))
	if is := l.list(schemas.ConflictOpen)[port(1)]; is.Left.Value != "gpu-1/nic0" || is.Right.Value != "gpu-2/nic0" {
		t.Errorf("%+v", is)
	}

	// One that goes, and nothing else, says nothing of a cable: not of a right one, nor of a wrong one.
	c.tell(t, "leaf", &gpb.Notification{Delete: []*gpb.Path{neighborPath(port(0), "1"), neighborPath(port(2), "2")}})
	c.tell(t, "leaf", &gpb.Notification{Delete: []*gpb.Path{neighborPath(port(1), "2")}, Update: right(1)})
	l.wait(3, 1, 0, port(2))
	if len(l.list(schemas.ConflictSettled)) != 1 {
		t.Errorf("%+v", l.list(schemas.ConflictSettled))
	}

	// All of it goes, as where a target is lost, and comes again.
	c.cache.Reset("leaf")
	for n := range 4 {
		c.tell(t, "leaf", &gpb.Notification{Update: right(n)})
	}
	l.wait(4, 0, 0)
	if is := l.list(schemas.ConflictSettled); len(is) != 2 {
		t.Errorf("%+v", is)
	}
}

package gnmi

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/openconfig/gnmi/cache"
	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"github.com/openconfig/gnmi/subscribe"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"auspex/collectors/collectortest"
	"auspex/internal/waittest"
)

const session = "network-instances/network-instance[name=default]/protocols/protocol[identifier=BGP][name=B]/bgp/neighbors/neighbor[neighbor-address=10.0.0.1]"

func text0(path, s string) *gpb.Update {
	return &gpb.Update{Path: parsePath(path), Val: &gpb.TypedValue{Value: &gpb.TypedValue_StringVal{StringVal: s}}}
}

func tree(path, js string) *gpb.Update {
	return &gpb.Update{Path: parsePath(path), Val: &gpb.TypedValue{Value: &gpb.TypedValue_JsonIetfVal{JsonIetfVal: []byte(js)}}}
}

// What a delete means to whatever a switch has told: each case says which events follow, and what is told of the same things after it.
func TestWhatADeleteMeans(t *testing.T) {
	const port, psu = "interfaces/interface[name=E1]", "components/component[name=PSU1]"
	up := []*gpb.Update{
		text0(port+"/state/oper-status", "UP"), text0("interfaces/interface[name=E2]/state/oper-status", "UP"),
		text0(psu+"/state/type", "POWER_SUPPLY"), text0(psu+"/state/oper-status", "ACTIVE"), text0(session+"/state/session-state", "ESTABLISHED"),
	}
	down := []*gpb.Update{text0(port+"/state/oper-status", "DOWN"), text0(psu+"/state/oper-status", "INACTIVE"), text0(session+"/state/session-state", "IDLE")}
	const downs = "port.down  raised E1, switch.psu PSU1 raised PSU1, bgp.session_down  raised "
	gone := func(paths ...string) *gpb.Notification {
		n := &gpb.Notification{}
		for _, p := range paths {
			n.Delete = append(n.Delete, parsePath(p))
		}
		return n
	}
	atomic := func(prefix string, updates ...*gpb.Update) *gpb.Notification {
		return &gpb.Notification{Atomic: true, Prefix: parsePath(prefix), Update: updates}
	}
	replaced := gone(port)
	replaced.Update = down[:1]
	for name, c := range map[string]struct {
		before []*gpb.Update
		n      *gpb.Notification
		want   string
		after  []*gpb.Update
		then   string
	}{
		"a port that works":                         {up, gone(port), "port.down removed  E1", down, "switch.psu PSU1 raised PSU1, bgp.session_down  raised "}, // it was never seen up again
		"a port that is down, by its state":         {append(up, down...), gone(port + "/state"), "port.down removed cleared E1", nil, ""},
		"a state of a port":                         {up, gone(port + "/state/oper-status"), "", down, downs},
		"counters of a port":                        {up, gone(port + "/state/counters"), "", down, downs},
		"all ports":                                 {up, gone("interfaces"), "", down, downs},
		"all ports, by wildcard":                    {up, gone("interfaces/interface[name=*]"), "", down, downs},
		"all that a gateway knows":                  {append(up, down...), gone("*"), "", up, "port.down  cleared E1, switch.psu PSU1 cleared PSU1, bgp.session_down  cleared "},
		"the root":                                  {up, &gpb.Notification{Delete: []*gpb.Path{{}}}, "", down, downs},
		"a supply that is pulled out, and put back": {up, gone(psu), "switch.psu PSU1 raised PSU1", up, "switch.psu PSU1 cleared PSU1"},
		"a supply that had failed":                  {append(up, down...), gone(psu), "", up, "port.down  cleared E1, switch.psu PSU1 cleared PSU1, bgp.session_down  cleared "},
		"a session that works":                      {up, gone(session), "bgp.session_down removed  ", nil, ""},
		"a session that is down":                    {append(up, down...), gone(session + "/state"), "bgp.session_down removed cleared ", nil, ""},
		"a leaf of a session":                       {up, gone(session + "/state/session-state"), "", down, downs},
		"all sessions":                              {up, gone("network-instances/network-instance[name=default]"), "", down, downs},
		"what nobody knows":                         {up, gone("interfaces/interface[name=E9]", "components/component[name=X]", "a/b/c", session[:len(session)-3]+"9]"), "", down, downs},
		"a port that is deleted and told in one":    {append(up, down...), replaced, "", up, "port.down  cleared E1, switch.psu PSU1 cleared PSU1, bgp.session_down  cleared "},
		"all ports anew, without one":               {up, atomic("interfaces", tree("interface", `[{"name":"E2","state":{"oper-status":"UP"}}]`)), "port.down removed  E1", nil, ""},
		"all of one port, without its state":        {up, atomic(port, text0("state/admin-status", "UP")), "", down, downs},
		"counters of a port anew":                   {up, atomic(port+"/state/counters", text0("in-octets", "7")), "", down, downs},
		"all components anew, without a supply":     {up, atomic("components", text0("component[name=X]/state/type", "FAN")), "switch.psu PSU1 raised PSU1", nil, ""},
		"all anew, without a session, and a port that had been down":   {append(up, down...), atomic("", up[0], up[1], text0(psu+"/state/oper-status", "INACTIVE")), "port.down  cleared E1, bgp.session_down removed cleared ", nil, ""},
		"one session anew, in the middle of a message of other things": {up, atomic(session+"/state", text0("session-state", "IDLE")), "bgp.session_down  raised ", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			st := newBare(t)
			at := time.Now()
			tell := func(n *gpb.Notification) string {
				at = at.Add(time.Hour) // no flapping
				n.Timestamp = at.UnixNano()
				rec := collectortest.NewRecorder()
				respond(t, st, wire(t, n))
				if err := st.batch.Emit(t.Context(), rec, at); err != nil {
					t.Fatal(err)
				}
				return strings.Join(events(rec), ", ")
			}
			tell(&gpb.Notification{Update: c.before})
			if d := cmp.Diff(c.want, tell(c.n)); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff(c.then, tell(&gpb.Notification{Update: c.after})); d != "" {
				t.Errorf("after it: %s", d)
			}
		})
	}
}

// An optic that is moved is read under its new port, with nothing of the old one.
func TestAnOpticThatIsMovedIsReadUnderItsNewPort(t *testing.T) {
	st := newBare(t)
	const power = "components/component[name=O1]/transceiver/physical-channels/channel[index=0]/state/input-power/instant"
	bus := newLock()
	close(bus.open)
	for i, n := range []*gpb.Notification{
		{Update: []*gpb.Update{text0("interfaces/interface[name=E1]/state/transceiver", "O1"), text0(power, "-1")}},
		{Delete: []*gpb.Path{parsePath("interfaces/interface[name=E1]/state/transceiver")}},
		{Update: []*gpb.Update{text0("interfaces/interface[name=E2]/state/transceiver", "O1"), text0(power, "-2")}},
		{Update: []*gpb.Update{{Path: parsePath(power), Val: &gpb.TypedValue{Value: &gpb.TypedValue_DoubleVal{DoubleVal: -3}}}}},
		{Update: []*gpb.Update{text0("interfaces/interface[name=E3]/state/transceiver", "O1")}},
		{Update: []*gpb.Update{{Path: parsePath(power), Val: &gpb.TypedValue{Value: &gpb.TypedValue_DoubleVal{DoubleVal: -4}}}}},
	} {
		n.Timestamp = int64(i + 1)
		respond(t, st, wire(t, n))
	}
	if err := st.batch.Emit(t.Context(), bus, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range bus.all {
		got = append(got, fmt.Sprintf("%s %s %v", s.Metric, s.Part, s.Value))
	}
	if d := cmp.Diff([]string{
		"auspex_port_rx_power_dbm E1 -1", "auspex_port_rx_power_dbm E2 -2", "auspex_port_rx_power_dbm E2 -3", "auspex_port_rx_power_dbm E3 -4",
	}, got); d != "" {
		t.Error(d)
	}
}

// gateway is the collector's server of github.com/openconfig/gnmi, behind which a switch is.
type gateway struct {
	*subscribe.Server
	cache *cache.Cache
	at    int64
}

func newGateway(t *testing.T) *gateway {
	t.Helper()
	g := &gateway{cache: cache.New([]string{"leaf-1"}), at: time.Now().UnixNano()}
	var err error
	if g.Server, err = subscribe.NewServer(g.cache); err != nil {
		t.Fatal(err)
	}
	g.cache.SetClient(g.Update)
	return g
}

func (g *gateway) tell(t *testing.T, n *gpb.Notification) {
	t.Helper()
	g.at++
	n.Timestamp, n.Prefix = g.at, &gpb.Path{Target: "leaf-1"}
	if err := g.cache.GnmiUpdate(n); err != nil {
		t.Fatal(err)
	}
}

// Its cache tells deletes leaf by leaf, of a port that is removed as of all when it starts over: neither ends what is known.
func TestWhatAGatewayLosesSightOfIsKnownOn(t *testing.T) {
	g := newGateway(t)
	state := func(n int, s string) {
		g.tell(t, &gpb.Notification{Update: []*gpb.Update{text0(fmt.Sprintf("interfaces/interface[name=E%d]/state/oper-status", n), s)}})
	}
	for n := range 3 {
		state(n, "UP")
	}
	rec, s := collectortest.NewRecorder(), collectortest.Settings()
	s.Metrics = prometheus.NewRegistry()
	c, stop := run(t, served(t, g), s, rec)
	samples(t, rec, 3)
	deletes := c.(*subscriber).metrics.deletes //nolint:forcetypeassert // it is ours
	g.tell(t, &gpb.Notification{Delete: []*gpb.Path{parsePath("interfaces/interface[name=E1]")}})
	waittest.For(t, "a delete comes", func() bool { return testutil.ToFloat64(deletes) == 1 })
	g.cache.Reset("leaf-1")
	waittest.For(t, "others come", func() bool { return testutil.ToFloat64(deletes) > 1 })
	state(1, "DOWN")
	state(2, "DOWN")
	wait(t, rec, 2)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"port.down  raised E1", "port.down  raised E2"}, events(rec)); d != "" {
		t.Error(d)
	}
}

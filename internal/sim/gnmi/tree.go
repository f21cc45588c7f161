package gnmi

import (
	"encoding/json"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"

	"auspex/internal/sim/device"
)

// The kinds of leaf values.
const (
	kindNone uint8 = iota // the leaf does not exist now
	kindUint
	kindUint32
	kindDouble
	kindBool
	kindString
	kindIdentity // s is the name, module the YANG module that defines it
)

// value is a leaf's value without allocation; it is comparable.
type value struct {
	kind   uint8
	u      uint64
	f      float64
	s      string
	module string
}

func uintv(u uint64) value   { return value{kind: kindUint, u: u} }
func uint32v(u uint64) value { return value{kind: kindUint32, u: u} }
func stringv(s string) value {
	if s == "" {
		return value{}
	}
	return value{kind: kindString, s: s}
}

func doublev(f float64) value {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return value{}
	}
	return value{kind: kindDouble, f: f}
}

func boolv(b bool) value {
	if b {
		return value{kind: kindBool, u: 1}
	}
	return value{kind: kindBool}
}

func identity(module, name string) value {
	if name == "" {
		return value{}
	}
	return value{kind: kindIdentity, s: name, module: module}
}

func updown(up bool) value {
	if up {
		return stringv("UP")
	}
	return stringv("DOWN")
}

// snapshot is the switch at one moment.
type snapshot struct {
	at    int64 // nanoseconds since the epoch, the switch's clock
	info  device.Info
	boot  time.Time
	ports []device.Port
	comps []device.Component
	bgp   []device.Session
}

func (s *Server) snapshot() *snapshot {
	return &snapshot{
		at: s.sw.Now().UnixNano(), info: s.sw.Info(), boot: s.sw.BootTime(), ports: s.sw.Ports(), comps: s.sw.Components(), bgp: s.sw.Sessions(),
	}
}

// leaf is one kind of leaf below an object.
type leaf struct {
	rel   []*gpb.PathElem
	state bool // changes seldom and is announced by Watch
	get   func(s *snapshot, i int) value
}

func elems(path string, last ...*gpb.PathElem) []*gpb.PathElem {
	var out []*gpb.PathElem
	for name := range strings.SplitSeq(path, "/") {
		out = append(out, &gpb.PathElem{Name: name})
	}
	return append(out, last...)
}

func portLeaf(path string, state bool, get func(p *device.Port) value) leaf {
	return leaf{rel: elems(path), state: state, get: func(s *snapshot, i int) value {
		if i >= len(s.ports) {
			return value{}
		}
		return get(&s.ports[i])
	}}
}

// opticLeaf is a leaf that exists where an optic is plugged in.
func opticLeaf(path string, state bool, get func(p *device.Port) value) leaf {
	return portLeaf(path, state, func(p *device.Port) value {
		if !p.Optic {
			return value{}
		}
		return get(p)
	})
}

func compLeaf(path string, state bool, get func(c *device.Component) value) leaf {
	return leaf{rel: elems(path), state: state, get: func(s *snapshot, i int) value {
		if i >= len(s.comps) {
			return value{}
		}
		return get(&s.comps[i])
	}}
}

const (
	ethernetModule = "openconfig-if-ethernet"
	platformModule = "openconfig-platform-types"
)

// portSpeed names a speed as ETHERNET_SPEED of openconfig-if-ethernet does.
func portSpeed(bps uint64) string {
	switch gb := bps / 1e9; {
	case bps == 2500e6:
		return "SPEED_2500MB"
	case gb == 0 && bps > 0:
		return "SPEED_" + strconv.FormatUint(bps/1e6, 10) + "MB"
	case gb > 0:
		return "SPEED_" + strconv.FormatUint(gb, 10) + "GB"
	}
	return "SPEED_UNKNOWN"
}

// The leaves of an interface (openconfig-interfaces, openconfig-if-ethernet).
var interfaceLeaves = []leaf{
	portLeaf("state/name", true, func(p *device.Port) value { return stringv(p.Name) }),
	portLeaf("state/ifindex", true, func(p *device.Port) value { return uint32v(uint64(p.Index)) }),
	portLeaf("state/admin-status", true, func(p *device.Port) value { return updown(p.AdminUp) }),
	portLeaf("state/oper-status", true, func(p *device.Port) value { return updown(p.OperUp) }),
	portLeaf("state/last-change", true, func(p *device.Port) value {
		if p.LastChange.IsZero() {
			return value{}
		}
		return uintv(uint64(p.LastChange.UnixNano()))
	}),
	opticLeaf("state/transceiver", true, func(p *device.Port) value { return stringv(p.Name) }),
	portLeaf("state/counters/in-octets", false, func(p *device.Port) value { return uintv(p.InOctets) }),
	portLeaf("state/counters/out-octets", false, func(p *device.Port) value { return uintv(p.OutOctets) }),
	portLeaf("state/counters/in-pkts", false, func(p *device.Port) value { return uintv(p.InPkts) }),
	portLeaf("state/counters/out-pkts", false, func(p *device.Port) value { return uintv(p.OutPkts) }),
	portLeaf("state/counters/in-errors", false, func(p *device.Port) value { return uintv(p.InErrors) }),
	portLeaf("state/counters/out-errors", false, func(p *device.Port) value { return uintv(p.OutErrors) }),
	portLeaf("state/counters/in-fcs-errors", false, func(p *device.Port) value { return uintv(p.InFCSErrors) }),
	portLeaf("state/counters/in-discards", false, func(p *device.Port) value { return uintv(p.InDiscards) }),
	portLeaf("state/counters/out-discards", false, func(p *device.Port) value { return uintv(p.OutDiscards) }),
	portLeaf("state/counters/carrier-transitions", true, func(p *device.Port) value { return uintv(p.Carrier) }),
	portLeaf("ethernet/state/port-speed", true, func(p *device.Port) value { return identity(ethernetModule, portSpeed(p.SpeedBPS)) }),
}

// The leaves of an optic (openconfig-platform-transceiver); its component has the
// name of its port.
var opticLeaves = append([]leaf{
	opticLeaf("state/name", true, func(p *device.Port) value { return stringv(p.Name) }),
	opticLeaf("state/type", true, func(*device.Port) value { return identity(platformModule, "TRANSCEIVER") }),
	opticLeaf("state/oper-status", true, func(*device.Port) value { return identity(platformModule, "ACTIVE") }),
	opticLeaf("state/serial-no", true, func(p *device.Port) value { return stringv(p.OpticSerial) }),
	opticLeaf("state/temperature/instant", false, func(p *device.Port) value { return doublev(p.ModuleTemp) }),
	opticLeaf("transceiver/state/present", true, func(*device.Port) value { return stringv("PRESENT") }),
	opticLeaf("transceiver/state/serial-no", true, func(p *device.Port) value { return stringv(p.OpticSerial) }),
	opticLeaf("transceiver/state/pre-fec-ber/instant", false, func(p *device.Port) value { return doublev(p.PreFECBER) }),
}, append(channelLeaves(), thresholdLeaves()...)...)

func channelLeaves() []leaf {
	channel := func(path string, get func(p *device.Port) value) leaf {
		l := opticLeaf(path, false, get)
		l.rel = append(
			elems("transceiver/physical-channels", &gpb.PathElem{Name: "channel", Key: map[string]string{"index": "0"}}), elems(path)...,
		)
		return l
	}
	return []leaf{
		channel("state/index", func(*device.Port) value { return uint32v(0) }),
		channel("state/input-power/instant", func(p *device.Port) value { return doublev(p.RxPowerDBm) }),
		channel("state/output-power/instant", func(p *device.Port) value { return doublev(p.TxPowerDBm) }),
		channel("state/laser-bias-current/instant", func(p *device.Port) value { return doublev(p.LaserBiasMA) }),
	}
}

// thresholdLeaves are the alarms (critical) and warnings of a module of the class 400GBASE-DR4.
func thresholdLeaves() []leaf {
	var out []leaf
	for _, t := range []struct {
		name              string
		critical, warning float64
	}{
		{"input-power-lower", -10, -9},
		{"input-power-upper", 6, 5},
		{"output-power-lower", -6, -5},
		{"output-power-upper", 6, 5},
		{"laser-bias-current-lower", 20, 30},
		{"laser-bias-current-upper", 130, 120},
		{"module-temperature-lower", -5, 0},
		{"module-temperature-upper", 80, 75},
	} {
		for severity, v := range map[string]float64{"CRITICAL": t.critical, "WARNING": t.warning} {
			l := opticLeaf("state/"+t.name, false, func(*device.Port) value { return doublev(v) })
			key := map[string]string{"severity": "openconfig-alarm-types:" + severity}
			l.rel = append(elems("transceiver/thresholds", &gpb.PathElem{Name: "threshold", Key: key}), l.rel...)
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(a, b leaf) int { return strings.Compare(pathString(a.rel), pathString(b.rel)) })
	return out
}

func nonZero(v float64) value {
	if v == 0 {
		return value{}
	}
	return doublev(v)
}

// The leaves of a platform part (openconfig-platform, -psu and -fan).
var componentLeaves = []leaf{
	compLeaf("state/name", true, func(c *device.Component) value { return stringv(c.Name) }),
	compLeaf("state/type", true, func(c *device.Component) value { return identity(platformModule, c.Type) }),
	compLeaf("state/oper-status", true, func(c *device.Component) value { return identity(platformModule, c.Oper) }),
	compLeaf("state/temperature/instant", false, func(c *device.Component) value { return nonZero(c.Temperature) }),
	compLeaf("fan/state/speed", false, func(c *device.Component) value {
		if c.Type != "FAN" {
			return value{}
		}
		return uint32v(uint64(max(0, math.Round(c.FanRPM))))
	}),
	compLeaf("power-supply/state/enabled", true, func(c *device.Component) value {
		if c.Type != "POWER_SUPPLY" {
			return value{}
		}
		return boolv(c.Oper == "ACTIVE")
	}),
	compLeaf("power-supply/state/input-voltage", false, func(c *device.Component) value {
		if c.Type != "POWER_SUPPLY" {
			return value{}
		}
		return doublev(c.InputVolts)
	}),
	compLeaf("power-supply/state/output-power", false, func(c *device.Component) value {
		if c.Type != "POWER_SUPPLY" {
			return value{}
		}
		return doublev(c.PowerWatts)
	}),
}

// The leaves of the system (openconfig-system).
var systemLeaves = []leaf{
	{rel: elems("state/hostname"), state: true, get: func(s *snapshot, _ int) value { return stringv(s.info.Name) }},
	{rel: elems("state/boot-time"), state: true, get: func(s *snapshot, _ int) value { return uintv(uint64(s.boot.UnixNano())) }},
	{rel: elems("state/software-version"), state: true, get: func(s *snapshot, _ int) value { return stringv(s.info.Firmware) }},
}

// neighborLeaf is a leaf of a neighbour; a port may have none.
func neighborLeaf(path string, get func(p *device.Port) string) leaf {
	return portLeaf(path, true, func(p *device.Port) value {
		if p.Neighbor == "" && p.NeighborChassis == "" {
			return value{}
		}
		return stringv(get(p))
	})
}

// The leaves of an LLDP neighbour (openconfig-lldp).
var neighborLeaves = []leaf{
	neighborLeaf("state/system-name", func(p *device.Port) string { return p.Neighbor }),
	neighborLeaf("state/chassis-id", func(p *device.Port) string { return p.NeighborChassis }),
	neighborLeaf("state/chassis-id-type", func(p *device.Port) string {
		if p.NeighborChassis == "" {
			return ""
		}
		return "MAC_ADDRESS"
	}),
	neighborLeaf("state/port-id", func(p *device.Port) string { return p.NeighborPort }),
	neighborLeaf("state/port-id-type", func(p *device.Port) string {
		if _, err := net.ParseMAC(p.NeighborPort); err == nil {
			return "MAC_ADDRESS"
		}
		return "INTERFACE_NAME"
	}),
}

func bgpLeaf(path string, get func(n *device.Session) value) leaf {
	return leaf{rel: elems(path), state: true, get: func(s *snapshot, i int) value {
		if i >= len(s.bgp) {
			return value{}
		}
		return get(&s.bgp[i])
	}}
}

// The leaves of a BGP neighbour (openconfig-bgp-neighbor).
var sessionLeaves = []leaf{
	bgpLeaf("state/neighbor-address", func(n *device.Session) value { return stringv(n.Neighbor) }),
	bgpLeaf("state/description", func(n *device.Session) value { return stringv(n.Description) }),
	bgpLeaf("state/enabled", func(*device.Session) value { return boolv(true) }),
	bgpLeaf("state/local-as", func(n *device.Session) value { return uint32v(uint64(n.Local)) }),
	bgpLeaf("state/peer-as", func(n *device.Session) value { return uint32v(uint64(n.Peer)) }),
	bgpLeaf("state/peer-type", func(*device.Session) value { return stringv("EXTERNAL") }),
	bgpLeaf("state/session-state", func(n *device.Session) value { return stringv(n.State) }),
	bgpLeaf("state/established-transitions", func(n *device.Session) value { return uintv(n.Established) }),
	bgpLeaf("state/last-established", func(n *device.Session) value {
		if n.State != "ESTABLISHED" || n.Since.IsZero() {
			return value{}
		}
		return uintv(uint64(n.Since.UnixNano()))
	}),
}

// The leaves of an interface's address (openconfig-if-ip).
var addressLeaves = []leaf{
	bgpLeaf("state/ip", func(n *device.Session) value { return stringv(n.Address) }),
	bgpLeaf("state/prefix-length", func(n *device.Session) value { return uint32v(uint64(n.PrefixBits)) }),
}

// object is a list entry of the tree, with its leaves.
type object struct {
	base   []*gpb.PathElem
	index  int // into the snapshot's ports or components
	leaves []leaf
}

// tree is all objects of a switch; it is immutable.
type tree struct {
	names   []string // of ports, components and sessions: what the tree was made for
	objects []object
}

func (s *Server) tree(snap *snapshot) *tree {
	fits := func(t *tree) bool {
		if t == nil || len(t.names) != len(snap.ports)+len(snap.comps)+len(snap.bgp) {
			return false
		}
		names := t.names
		for i := range snap.ports {
			if names[i] != snap.ports[i].Name {
				return false
			}
		}
		for i, names := 0, names[len(snap.ports):]; i < len(snap.comps); i++ {
			if names[i] != snap.comps[i].Name {
				return false
			}
		}
		for i, names := 0, names[len(snap.ports)+len(snap.comps):]; i < len(snap.bgp); i++ {
			if names[i] != snap.bgp[i].Neighbor {
				return false
			}
		}
		return true
	}
	if t := s.cached.Load(); fits(t) {
		return t
	}
	t := newTree(snap)
	s.cached.Store(t)
	return t
}

func newTree(snap *snapshot) *tree {
	named := func(path, list, name string) []*gpb.PathElem {
		return elems(path, &gpb.PathElem{Name: list, Key: map[string]string{"name": name}})
	}
	t := &tree{}
	t.objects = append(t.objects, object{base: elems("system"), leaves: systemLeaves})
	for i := range snap.ports {
		name := snap.ports[i].Name
		t.names = append(t.names, name)
		t.objects = append(t.objects,
			object{base: named("interfaces", "interface", name), index: i, leaves: interfaceLeaves},
			object{base: named("components", "component", name), index: i, leaves: opticLeaves},
			object{
				base: append(named("lldp/interfaces", "interface", name),
					&gpb.PathElem{Name: "neighbors"}, &gpb.PathElem{Name: "neighbor", Key: map[string]string{"id": "1"}}),
				index: i, leaves: neighborLeaves,
			})
	}
	for i := range snap.comps {
		name := snap.comps[i].Name
		t.names = append(t.names, name)
		t.objects = append(t.objects, object{base: named("components", "component", name), index: i, leaves: componentLeaves})
	}
	for i := range snap.bgp {
		n := &snap.bgp[i]
		t.names = append(t.names, n.Neighbor)
		protocol := &gpb.PathElem{Name: "protocol", Key: map[string]string{"identifier": "BGP", "name": "BGP"}}
		base := append(named("network-instances", "network-instance", "default"), &gpb.PathElem{Name: "protocols"}, protocol)
		neighbor := &gpb.PathElem{Name: "neighbor", Key: map[string]string{"neighbor-address": n.Neighbor}}
		address := append(named("interfaces", "interface", n.Port),
			&gpb.PathElem{Name: "subinterfaces"}, &gpb.PathElem{Name: "subinterface", Key: map[string]string{"index": "0"}})
		t.objects = append(t.objects,
			object{base: append(base, elems("bgp/neighbors", neighbor)...), index: i, leaves: sessionLeaves},
			object{
				base: append(address, elems("ipv4/addresses", &gpb.PathElem{Name: "address", Key: map[string]string{"ip": n.Address}})...), index: i,
				leaves: addressLeaves,
			})
	}
	return t
}

// group is what a query selects of one object.
type group struct {
	object *object
	base   *gpb.Path
	leaves []int
	rel    []*gpb.Path // relative paths, parallel to leaves
	last   []value     // last sent values, for subscriptions that compare
}

// matches reports whether a query selects a leaf, that is, whether it names the
// leaf or something above it. Without keys only names are compared, so that a
// query can be told from one that the tree could never answer.
func matches(query, base, rel []*gpb.PathElem, keys bool) bool {
	at := func(i int) *gpb.PathElem {
		if i < len(base) {
			return base[i]
		}
		return rel[i-len(base)]
	}
	n := len(base) + len(rel)
	var from func(q, i int) bool
	from = func(q, i int) bool {
		for ; q < len(query); q, i = q+1, i+1 {
			if query[q].GetName() == "..." {
				for j := i; j <= n; j++ {
					if from(q+1, j) {
						return true
					}
				}
				return false
			}
			if i >= n {
				return false
			}
			e := at(i)
			if query[q].GetName() != "*" && query[q].GetName() != e.Name {
				return false
			}
			for k, v := range query[q].GetKey() {
				have, ok := e.Key[k]
				if !ok || keys && v != "*" && v != have {
					return false
				}
			}
		}
		return true
	}
	return from(0, 0)
}

// find selects what a query names. known is false when no leaf of this model has
// such a path, whatever the names in its lists.
func (t *tree) find(query []*gpb.PathElem, want func(*leaf) bool) (groups []group, known bool) {
	for i := range t.objects {
		o := &t.objects[i]
		var g *group
		for j := range o.leaves {
			l := &o.leaves[j]
			if !known {
				known = matches(query, o.base, l.rel, false)
			}
			if !matches(query, o.base, l.rel, true) || !want(l) {
				continue
			}
			if g == nil {
				groups = append(groups, group{object: o, base: &gpb.Path{Elem: o.base}})
				g = &groups[len(groups)-1]
			}
			g.leaves = append(g.leaves, j)
			g.rel = append(g.rel, &gpb.Path{Elem: l.rel})
		}
	}
	return groups, known
}

// encode writes a value in the encoding that the client asked for. JSON_IETF
// follows RFC 7951: 64-bit integers and decimals are strings and identities carry
// their module.
func (v value) encode(enc gpb.Encoding) *gpb.TypedValue {
	switch enc {
	case gpb.Encoding_JSON_IETF:
		return &gpb.TypedValue{Value: &gpb.TypedValue_JsonIetfVal{JsonIetfVal: v.json(true)}}
	case gpb.Encoding_JSON:
		return &gpb.TypedValue{Value: &gpb.TypedValue_JsonVal{JsonVal: v.json(false)}}
	}
	switch v.kind {
	case kindUint, kindUint32:
		return &gpb.TypedValue{Value: &gpb.TypedValue_UintVal{UintVal: v.u}}
	case kindDouble:
		return &gpb.TypedValue{Value: &gpb.TypedValue_DoubleVal{DoubleVal: v.f}}
	case kindBool:
		return &gpb.TypedValue{Value: &gpb.TypedValue_BoolVal{BoolVal: v.u == 1}}
	}
	return &gpb.TypedValue{Value: &gpb.TypedValue_StringVal{StringVal: v.s}}
}

func (v value) json(ietf bool) []byte {
	quoted := func(b []byte) []byte { return append(append([]byte{'"'}, b...), '"') }
	switch v.kind {
	case kindUint32:
		return strconv.AppendUint(nil, v.u, 10)
	case kindUint:
		b := strconv.AppendUint(nil, v.u, 10)
		if ietf {
			return quoted(b)
		}
		return b
	case kindDouble:
		b := strconv.AppendFloat(nil, v.f, 'g', -1, 64)
		if ietf {
			return quoted(b)
		}
		return b
	case kindBool:
		return strconv.AppendBool(nil, v.u == 1)
	case kindIdentity:
		if ietf {
			return quoted([]byte(v.module + ":" + v.s))
		}
	}
	b, err := json.Marshal(v.s)
	if err != nil {
		return []byte(`""`)
	}
	return b
}

// pathString writes a path as people write it: /interfaces/interface[name=*]/state.
func pathString(p []*gpb.PathElem) string {
	if len(p) == 0 {
		return "/"
	}
	var b strings.Builder
	for _, e := range p {
		b.WriteByte('/')
		b.WriteString(e.GetName())
		keys := make([]string, 0, len(e.GetKey()))
		for k := range e.GetKey() {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range keys {
			b.WriteString("[" + k + "=" + e.Key[k] + "]")
		}
	}
	return b.String()
}

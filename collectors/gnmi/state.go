package gnmi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"

	"auspex/collectors"
	"auspex/schemas"
	"auspex/schemas/faults"
)

// maxThings bounds the ports and components of a target.
const maxThings = 1 << 14

// metric is the series of a leaf: its name, the kind of part, and what divides to the
// base unit.
type metric struct {
	name    string
	kind    string
	divisor float64
}

var metricsOf = [numbers]metric{
	leafInOctets:     {"auspex_port_in_octets_total", schemas.KindPort, 1},
	leafOutOctets:    {"auspex_port_out_octets_total", schemas.KindPort, 1},
	leafInPkts:       {"auspex_port_in_packets_total", schemas.KindPort, 1},
	leafOutPkts:      {"auspex_port_out_packets_total", schemas.KindPort, 1},
	leafInErrors:     {"auspex_port_in_errors_total", schemas.KindPort, 1},
	leafOutErrors:    {"auspex_port_out_errors_total", schemas.KindPort, 1},
	leafInFCSErrors:  {"auspex_port_in_fcs_errors_total", schemas.KindPort, 1},
	leafInDiscards:   {"auspex_port_in_discards_total", schemas.KindPort, 1},
	leafOutDiscards:  {"auspex_port_out_discards_total", schemas.KindPort, 1},
	leafCarrier:      {"auspex_port_carrier_transitions_total", schemas.KindPort, 1},
	leafPreFECBER:    {"auspex_port_pre_fec_ber_ratio", schemas.KindPort, 1},
	leafRxPower:      {"auspex_port_rx_power_dbm", schemas.KindPort, 1},
	leafTxPower:      {"auspex_port_tx_power_dbm", schemas.KindPort, 1},
	leafBias:         {"auspex_port_laser_bias_amperes", schemas.KindPort, 1e3},
	leafTemperature:  {"auspex_switch_temperature_celsius", "sensor", 1},
	leafFanSpeed:     {"auspex_fan_speed_rpm", schemas.KindFan, 1},
	leafInputVoltage: {"auspex_psu_input_voltage_volts", schemas.KindPSU, 1},
	leafInputCurrent: {"auspex_psu_input_current_amperes", schemas.KindPSU, 1},
	leafOutputPower:  {"auspex_psu_output_power_watts", schemas.KindPSU, 1},
}

const opticsTemperature = "auspex_port_optics_temperature_celsius"

const noRef = ^collectors.Ref(0)

// thing is a port or a component: its states and the series of its leaves.
type thing struct {
	name   string
	refs   [numbers]collectors.Ref
	lanes  map[string]*[numbers]collectors.Ref
	oper   string
	admin  string
	kind   string // of a component: POWER_SUPPLY, FAN, TRANSCEIVER
	port   string // of an optic: its port
	up     collectors.Ref
	flaps  []time.Time
	fanRPM float64
	bounds map[bound]float64 // in base units
}

// bound is a threshold that an optic gives for a metric.
type bound struct {
	of    leaf
	bound schemas.Bound
}

// severities says how grave a threshold is (openconfig-alarm-types): a module's alarm is told
// as critical or major, its warning as warning or minor. A table without both of a pair uses either.
var severities = map[string][2]schemas.Bound{
	"CRITICAL": {schemas.LowerCritical, schemas.UpperCritical}, "MAJOR": {schemas.LowerCritical, schemas.UpperCritical},
	"WARNING": {schemas.LowerCaution, schemas.UpperCaution}, "MINOR": {schemas.LowerCaution, schemas.UpperCaution},
}

func newThing(name string) *thing {
	t := &thing{name: name, up: noRef, fanRPM: -1}
	for i := range t.refs {
		t.refs[i] = noRef
	}
	return t
}

// memory outlives a restart: what was last known, so that a change in between is
// told, and what was raised, so that it is cleared.
type memory struct {
	Ports  map[string]string `json:"ports,omitempty"`  // oper-status
	Raised map[string]string `json:"raised,omitempty"` // condition → its name in event ids
	BGP    map[string]string `json:"bgp,omitempty"`
	Boot   int64             `json:"boot,omitempty"` // Unix nanoseconds
}

type state struct {
	s       *subscriber
	batch   *collectors.Batch
	ports   map[string]*thing
	parts   map[string]*thing
	last    [2]*thing // the port and the component of the update before
	mem     memory
	memory  *collectors.Memory
	changed bool
	sync    bool
	// subnets tells over which port a neighbour is reached.
	subnets map[netip.Prefix]string
	cabling cabling
	known   known
	// replacing is not nil while a notification is read that tells all of something.
	replacing *replacing
	sender
}

func newState(ctx context.Context, s *subscriber) (*state, error) {
	st := &state{
		s: s, batch: collectors.NewBatch(s.device, Name), ports: map[string]*thing{}, parts: map[string]*thing{},
		sender:  sender{limit: s.waiting, untold: true},
		memory:  collectors.NewMemory(s.settings.Cursors, Name, s.device),
		cabling: cabling{s: s, ports: map[string]map[string]*schemas.Neighbor{}, changed: map[string]time.Time{}},
	}
	st.known.begin()
	known, err := st.memory.Load(ctx)
	if err != nil {
		return nil, err
	}
	if len(known) > 0 {
		if err := json.Unmarshal(known, &st.mem); err != nil {
			s.log.Warn("malformed cursor; starting over", "error", err)
			st.mem = memory{}
		}
	}
	for _, m := range []*map[string]string{&st.mem.Ports, &st.mem.Raised, &st.mem.BGP} {
		if *m == nil {
			*m = map[string]string{}
		}
	}
	return st, nil
}

func (st *state) begin() {
	st.sync, st.replacing = false, nil // what waits is still good
	st.cabling.begin()
	st.known.begin()
}

func (st *state) synced() { st.sync, st.cabling.sync = true, true }

func (st *state) notification(n *gpb.Notification) {
	at := time.Unix(0, n.GetTimestamp())
	if n.GetTimestamp() <= 0 {
		at = st.s.settings.Now()
	}
	prefix := n.GetPrefix()
	for _, path := range n.GetDelete() {
		st.s.metrics.deletes.Inc()
		gone := pathOf(prefix, path)
		if slices.ContainsFunc(n.GetUpdate(), func(u *gpb.Update) bool {
			e := pathOf(prefix, u.GetPath())
			return related(&gone, &e)
		}) {
			defer st.replace(&gone, at, false)() // deletes come before updates (section 2.1)
			continue
		}
		st.gone(&gone, at)
	}
	if n.GetAtomic() {
		whole := pathOf(prefix, nil)
		defer st.replace(&whole, at, false)()
	}
	for _, u := range n.GetUpdate() {
		st.s.metrics.updates.Inc()
		e := pathOf(prefix, u.GetPath())
		if raw := subtree(u.GetVal()); raw != nil {
			base := append(append([]*gpb.PathElem(nil), e.a...), e.b...)
			below(base, raw, func(path []*gpb.PathElem, v *gpb.TypedValue) {
				st.update(&elems{a: path, origin: e.origin}, v, at)
			})
			continue
		}
		st.update(&e, u.GetVal(), at)
	}
}

// noNumber counts a value that is none, and names the first of a device.
func (st *state) noNumber(e *elems, v *gpb.TypedValue) {
	st.s.metrics.malformed.Inc()
	if st.s.garbled {
		return
	}
	st.s.garbled = true
	var path strings.Builder
	for i := range e.len() {
		path.WriteString("/" + e.name(i))
	}
	st.s.log.Warn("value is not a number; it is not read", "path", path.String(), "value", fmt.Sprintf("%.80s", v.String()))
}

func (st *state) update(e *elems, v *gpb.TypedValue, at time.Time) {
	p := locate(e)
	if p.leaf == leafNone {
		st.reading(e, v, at)
		return
	}
	if st.replacing != nil {
		st.replacing.saw(p)
	}
	if p.leaf < numbers {
		x, ok := number(v)
		if !ok {
			st.noNumber(e, v)
			return
		}
		if t := st.thing(p); t != nil {
			refs := t.refsOf(p.lane)
			fresh := refs != nil && refs[p.leaf] == noRef
			if st.sample(t, &p, refs, x, at); fresh && st.s.changes(e) {
				st.batch.Every(refs[p.leaf])
			}
		}
		return
	}
	if p.leaf == leafThreshold {
		x, ok := number(v)
		if !ok {
			st.noNumber(e, v)
		}
		pair, known := severities[p.lane[strings.LastIndexByte(p.lane, ':')+1:]]
		if t := st.thing(p); t != nil && ok && known {
			if t.bounds == nil {
				t.bounds = map[bound]float64{}
			}
			b := bound{p.of, pair[0]}
			if p.upper {
				b.bound = pair[1]
			}
			t.bounds[b] = x / metricsOf[p.of].divisor
		}
		return
	}
	if p.leaf == leafBootTime {
		if x, ok := number(v); ok {
			st.booted(int64(x), v.GetUintVal())
		}
		return
	}
	if p.leaf == leafPrefixLength {
		if bits, ok := number(v); ok {
			st.address(p, int(bits))
		}
		return
	}
	if p.leaf >= leafChassisID {
		s, ok := words(v)
		if !ok {
			st.s.metrics.malformed.Inc()
			return
		}
		st.cabling.update(p, s, at)
		return
	}
	s, ok := text(v)
	if !ok {
		st.s.metrics.malformed.Inc()
		return
	}
	if p.leaf == leafSessionState {
		st.session(p.name, s, at)
		return
	}
	t := st.thing(p)
	if t == nil {
		return
	}
	switch p.leaf {
	case leafOperStatus:
		st.oper(t, s, at)
	case leafAdminStatus:
		t.admin = s
	case leafTransceiver:
		if c := st.find(st.parts, s); c != nil {
			if c.kind = "TRANSCEIVER"; c.port != t.name { // it was in another, or we did not know
				c.port = t.name
				st.anew(c)
			}
		}
	case leafComponentType:
		t.kind = s
		if t.oper != "" {
			st.part(t, at)
		}
	case leafComponentOper:
		t.oper = s
		st.part(t, at)
	}
}

// reading takes a number for which a preset has a metric.
func (st *state) reading(e *elems, v *gpb.TypedValue, at time.Time) {
	ref := st.seriesOf(e)
	if ref == noRef {
		st.s.metrics.unmatched.Inc()
		return
	}
	x, ok := number(v)
	if !ok {
		st.noNumber(e, v)
		return
	}
	st.batch.Sample(ref, at, x)
}

// seriesOf is the series that a preset has for a path, or noRef.
func (st *state) seriesOf(e *elems) collectors.Ref {
	name := func(i int) (string, map[string]string) { return e.name(i), e.at(i).GetKey() }
	for _, r := range st.s.readings {
		if r.Origin != e.origin {
			continue
		}
		if port, labels, ok := r.Match(e.len(), name); ok {
			ref := st.batch.Series(r.Metric, schemas.KindPort, port, labels...)
			if st.s.changes(e) {
				st.batch.Every(ref)
			}
			return ref
		}
	}
	return noRef
}

// thing returns the port or component of a place. Updates of one come together:
// the last one is tried first.
func (st *state) thing(p place) *thing {
	i, m := 0, st.ports
	if p.owner == ownComponent {
		i, m = 1, st.parts
	}
	if t := st.last[i]; t != nil && t.name == p.name {
		return t
	}
	st.last[i] = st.find(m, p.name)
	return st.last[i]
}

func (st *state) find(m map[string]*thing, name string) *thing {
	t, ok := m[name]
	if !ok && name != "" && len(m) < maxThings {
		t = newThing(strings.Clone(name))
		m[t.name] = t
	}
	return t
}

// refsOf are the series of a thing, or of one of its lanes; nil is one lane too many.
func (t *thing) refsOf(lane string) *[numbers]collectors.Ref {
	if lane == "" {
		return &t.refs
	}
	refs := t.lanes[lane]
	if refs == nil && len(t.lanes) <= 64 {
		refs = &[numbers]collectors.Ref{}
		for i := range refs {
			refs[i] = noRef
		}
		if t.lanes == nil {
			t.lanes = map[string]*[numbers]collectors.Ref{}
		}
		t.lanes[strings.Clone(lane)] = refs
	}
	return refs
}

func (st *state) sample(t *thing, p *place, refs *[numbers]collectors.Ref, v float64, at time.Time) {
	if refs == nil {
		return
	}
	m := &metricsOf[p.leaf]
	if refs[p.leaf] == noRef {
		name, kind, part := m.name, m.kind, t.name
		if t.port != "" {
			part = t.port
		}
		var labels []string
		switch {
		case p.leaf == leafTemperature && (t.kind == "TRANSCEIVER" || t.port != "" || st.ports[t.name] != nil):
			name, kind = opticsTemperature, schemas.KindPort
		case p.leaf == leafTemperature && st.class(t) == schemas.KindPSU:
			name, kind = "auspex_psu_temperature_celsius", schemas.KindPSU
		case p.leaf == leafTemperature:
			kind, part, labels = "", "", []string{"sensor", t.name}
		}
		if p.lane != "" {
			labels = append(labels, "lane", p.lane)
		}
		refs[p.leaf] = st.batch.Series(name, kind, part, labels...)
	}
	st.batch.Sample(refs[p.leaf], at, v/m.divisor)
	if t.bounds != nil {
		st.thresholds(t, p.leaf, at)
	}
	if p.leaf == leafFanSpeed && (v == 0) != (t.fanRPM == 0) {
		t.fanRPM = v
		st.part(t, at)
	}
}

// thresholds says what an optic gives for a metric, once for all its lanes.
func (st *state) thresholds(t *thing, l leaf, at time.Time) {
	var given [4]collectors.Threshold
	n := 0
	for _, b := range [...]schemas.Bound{schemas.LowerCritical, schemas.LowerCaution, schemas.UpperCaution, schemas.UpperCritical} {
		if v, ok := t.bounds[bound{l, b}]; ok {
			given[n] = collectors.Threshold{Bound: b, Value: v}
			n++
		}
	}
	if n == 0 {
		return
	}
	name, part := metricsOf[l].name, t.name
	if l == leafTemperature {
		name = opticsTemperature
	}
	if t.port != "" {
		part = t.port
	}
	st.batch.ThresholdsOf(name, schemas.KindPort, part, at, given[:n]...)
}

// class says what a component is, by its type, else by its name.
func (st *state) class(t *thing) string {
	n := strings.ToLower(t.name)
	switch {
	case t.kind == "POWER_SUPPLY", t.kind == "" &&
		(strings.HasPrefix(n, "psu") || strings.HasPrefix(n, "powersupply") || strings.HasPrefix(n, "power supply")):
		return schemas.KindPSU
	case t.kind == "FAN", t.kind == "FAN_TRAY", t.kind == "" && strings.HasPrefix(n, "fan"):
		return schemas.KindFan
	}
	return ""
}

func (st *state) event(typ, code string, s schemas.Severity, at time.Time) schemas.Event {
	ev := schemas.Event{
		Time: at.UTC(), Observed: st.s.settings.Now().UTC(), Source: schemas.SourceGNMI, Resource: st.s.device, Type: typ, Code: code,
		Severity: s,
	}
	ev.SetAttr("action", faults.ActionContactSupport)
	if s == schemas.SeverityInfo {
		ev.SetAttr("action", faults.ActionIgnore)
	}
	return ev
}

// condition tells the edges of something that begins and ends.
func (st *state) condition(typ, name, code string, s schemas.Severity, on bool, at time.Time, message string, attrs ...string) {
	key := typ + "/" + name
	since, was := st.mem.Raised[key]
	if on == was {
		return
	}
	ev := st.event(typ, code, s, at)
	ev.State, ev.Message = schemas.StateRaised, message
	if on {
		since = strconv.FormatInt(at.UnixNano(), 10)
		st.mem.Raised[key] = since
	} else {
		delete(st.mem.Raised, key)
		ev.State, ev.Severity = schemas.StateCleared, schemas.SeverityInfo
		ev.SetAttr("action", faults.ActionIgnore)
	}
	for i := 0; i+1 < len(attrs); i += 2 {
		ev.SetAttr(attrs[i], attrs[i+1])
	}
	ev.ID = schemas.EventID(st.s.device, since, key, ev.State)
	st.batch.Event(ev)
	st.changed = true
}

// oper follows a port. A port that was never seen up is not missed: nothing may
// be plugged in.
func (st *state) oper(t *thing, s string, at time.Time) {
	was, known := st.mem.Ports[t.name]
	t.oper = s
	if t.up == noRef {
		t.up = st.batch.Series("auspex_port_up", schemas.KindPort, t.name)
		st.batch.Every(t.up)
	}
	up := 0.0
	if s == "UP" {
		up = 1
	}
	st.batch.Sample(t.up, at, up)
	if was == s {
		return
	}
	st.mem.Ports[t.name], st.changed = s, true
	if known {
		st.flapping(t, at)
	}
	attrs := []string{"port", t.name, "part", t.name}
	switch {
	case s == "UP":
		st.condition(schemas.EventPortDown, t.name, "", schemas.SeverityError, false, at, fmt.Sprintf("%s: %s to UP", t.name, was), attrs...)
	case known && was == "UP":
		severity, code := schemas.SeverityError, ""
		if t.admin == "DOWN" {
			severity, code = schemas.SeverityInfo, "admin"
		}
		st.condition(schemas.EventPortDown, t.name, code, severity, true, at, fmt.Sprintf("%s: UP to %s", t.name, s), attrs...)
	}
}

func (st *state) flapping(t *thing, at time.Time) {
	window := st.s.cfg.FlapWindow
	keep := t.flaps[:0]
	for _, x := range t.flaps {
		if at.Sub(x) < window {
			keep = append(keep, x)
		}
	}
	t.flaps = append(keep, at)
	if len(t.flaps) > 1000 {
		t.flaps = t.flaps[len(t.flaps)-1000:]
	}
	if n := len(t.flaps); n >= st.s.cfg.FlapTransitions {
		st.condition(schemas.EventPortFlap, t.name, "", schemas.SeverityWarning, true, at,
			fmt.Sprintf("%d link transitions in %s", n, window), "port", t.name, "part", t.name, "transitions", strconv.Itoa(n))
	}
}

// expire ends the flapping of ports that have been quiet for a window.
func (st *state) expire(now time.Time) {
	for key := range st.mem.Raised {
		name, ok := strings.CutPrefix(key, "port.flap/")
		if !ok {
			continue
		}
		t := st.ports[name]
		if t == nil || !st.sync {
			continue
		}
		if n := len(t.flaps); n == 0 || now.Sub(t.flaps[n-1]) > st.s.cfg.FlapWindow {
			t.flaps = nil
			st.condition(
				schemas.EventPortFlap, name, "", schemas.SeverityWarning, false, now, "no link transition in "+st.s.cfg.FlapWindow.String(), "port",
				name, "part", name,
			)
		}
	}
}

// part follows a power supply or a fan.
func (st *state) part(t *thing, at time.Time) {
	class := st.class(t)
	bad := t.oper != "" && t.oper != "ACTIVE"
	typ, word := schemas.EventSwitchPSU, "oper-status "+t.oper
	switch class {
	case schemas.KindPSU:
	case schemas.KindFan:
		typ = schemas.EventSwitchFan
		if t.fanRPM == 0 {
			bad, word = true, "stands still"
		}
	default:
		return
	}
	st.condition(typ, t.name, t.name, schemas.SeverityWarning, bad, at, t.name+": "+word, "part", t.name, "sensor", t.name)
}

// booted compares the switch's boot time with the one last known. Setting the
// clock moves it by seconds, which is no reboot.
func (st *state) booted(approx int64, exact uint64) {
	ns := approx
	if exact != 0 {
		ns = int64(exact)
	}
	if ns < 1e14 { // older models give seconds
		ns *= int64(time.Second)
	}
	was := st.mem.Boot
	if d := time.Duration(ns - was); was != 0 && d < 5*time.Second && d > -5*time.Second {
		return
	}
	st.mem.Boot, st.changed = ns, true
	if was == 0 || ns < was {
		return
	}
	ev := st.event(schemas.EventSwitchReboot, "unplanned", schemas.SeverityError, time.Unix(0, ns))
	ev.Message = "restarted at " + time.Unix(0, ns).UTC().Format(time.RFC3339)
	ev.ID = schemas.EventID(st.s.device, strconv.FormatInt(ns, 10), schemas.EventSwitchReboot)
	st.batch.Event(ev)
}

func (st *state) session(neighbor, s string, at time.Time) {
	was, known := st.mem.BGP[neighbor]
	if was == s {
		return
	}
	if len(st.mem.BGP) > maxThings {
		return
	}
	up, wasUp := s == "ESTABLISHED", was == "ESTABLISHED"
	if !up && !wasUp && known {
		return // on its way up
	}
	st.mem.BGP[strings.Clone(neighbor)], st.changed = s, true
	if up || known && wasUp {
		attrs := []string{"neighbor", neighbor}
		if port := st.portOf(neighbor); port != "" {
			attrs = append(attrs, "port", port, "part", port)
		}
		st.condition(
			schemas.EventBGPSessionDown, neighbor, "", schemas.SeverityError, !up, at, fmt.Sprintf("neighbor %s: %s to %s", neighbor, was, s),
			attrs...,
		)
	}
}

// address notes the subnet of a port.
func (st *state) address(p place, bits int) {
	addr, err := netip.ParseAddr(p.lane)
	if err != nil || bits < 1 || len(st.subnets) > maxThings {
		return
	}
	if prefix, err := addr.Prefix(bits); err == nil {
		if st.subnets == nil {
			st.subnets = map[netip.Prefix]string{}
		}
		st.subnets[prefix] = strings.Clone(p.name)
	}
}

// portOf returns the port whose subnet holds a neighbour, or "": a neighbour that is
// not next door, or a switch that does not tell its addresses.
func (st *state) portOf(neighbor string) string {
	addr, err := netip.ParseAddr(neighbor)
	if err != nil {
		return ""
	}
	for bits := addr.BitLen(); bits > 0; bits-- {
		if prefix, err := addr.Prefix(bits); err == nil && st.subnets[prefix] != "" {
			return st.subnets[prefix]
		}
	}
	return ""
}

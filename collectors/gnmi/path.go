package gnmi

import (
	"strings"

	gpb "github.com/openconfig/gnmi/proto/gnmi"

	"auspex/collectors/gnmi/presets"
)

// leaf is what a path leads to. Leaves below numbers are metrics.
type leaf uint8

const (
	leafNone leaf = iota
	// Interfaces (openconfig-interfaces).
	leafInOctets
	leafOutOctets
	leafInPkts
	leafOutPkts
	leafInErrors
	leafOutErrors
	leafInFCSErrors
	leafInDiscards
	leafOutDiscards
	leafCarrier
	// Optics (openconfig-platform-transceiver).
	leafPreFECBER
	leafRxPower
	leafTxPower
	leafBias
	// Platform (openconfig-platform, -psu, -fan).
	leafTemperature
	leafFanSpeed
	leafInputVoltage
	leafInputCurrent
	leafOutputPower
	numbers
	// States, which make events.
	leafOperStatus
	leafAdminStatus
	leafTransceiver
	leafComponentType
	leafComponentOper
	leafBootTime
	leafSessionState
	leafPrefixLength // of an interface's address, which is the lane
	leafThreshold    // of an optic: the bound of a metric
	// What a port sees at the other end of its cable (openconfig-lldp).
	leafChassisID
	leafSystemName
	leafPortID
	leafPortDescription
)

// owner says which kind of thing a name belongs to.
type owner uint8

const (
	ownNone owner = iota
	ownPort
	ownComponent
	ownSystem
	ownNeighbor
)

// place is where a path leads: a leaf of a named thing. Lane is a channel's index, for
// a threshold its severity; of is the metric that it bounds.
type place struct {
	leaf  leaf
	owner owner
	name  string
	lane  string
	of    leaf
	upper bool
}

// elems is a path in two pieces, prefix and path, read by position.
type elems struct {
	a, b   []*gpb.PathElem
	origin string // of another schema than OpenConfig's
}

// pathOf is a path below a prefix, whose target and origin are of both. An origin stands in one of them (gnmi.proto, Path), and
// none is OpenConfig's, as are those that some targets name by a module of it, or by the encoding.
func pathOf(prefix, path *gpb.Path) elems {
	origin := path.GetOrigin()
	if origin == "" {
		origin = prefix.GetOrigin()
	}
	if strings.HasPrefix(origin, presets.DefaultOrigin) || origin == "rfc7951" {
		origin = ""
	}
	return elems{a: prefix.GetElem(), b: path.GetElem(), origin: origin}
}

func (e *elems) len() int { return len(e.a) + len(e.b) }

func (e *elems) at(i int) *gpb.PathElem {
	if i < len(e.a) {
		return e.a[i]
	}
	if i -= len(e.a); i < len(e.b) {
		return e.b[i]
	}
	return nil
}

// name returns the element's name, "" past the end, without the module that some put before it.
// GetName is safe on nil.
func (e *elems) name(i int) string { return bare(e.at(i).GetName()) }

// below reports whether a path is one that a subscription names, or below it.
func (e *elems) below(p *gpb.Path) bool {
	if e.len() < len(p.GetElem()) || e.origin != p.GetOrigin() {
		return false
	}
	for i, want := range p.GetElem() {
		if want.GetName() != "*" && bare(want.GetName()) != e.name(i) {
			return false
		}
		for key, of := range want.GetKey() {
			if of != "*" && of != e.at(i).GetKey()[key] {
				return false
			}
		}
	}
	return true
}

var counters = map[string]leaf{
	"in-octets": leafInOctets, "out-octets": leafOutOctets, "in-pkts": leafInPkts, "out-pkts": leafOutPkts, "in-errors": leafInErrors,
	"out-errors": leafOutErrors, "in-fcs-errors": leafInFCSErrors, "in-discards": leafInDiscards, "out-discards": leafOutDiscards,
	"carrier-transitions": leafCarrier,
}

// locate matches a path by the position of its elements.
func locate(e *elems) place {
	if e.origin != "" {
		return place{}
	}
	switch e.name(0) {
	case "interfaces":
		if e.name(1) != "interface" {
			return place{}
		}
		p := place{owner: ownPort, name: e.at(1).GetKey()["name"]}
		if n := e.len(); n > 6 && e.name(2) == "subinterfaces" && e.name(n-1) == "prefix-length" && e.name(n-3) == "address" {
			p.leaf, p.lane = leafPrefixLength, e.at(n - 3).GetKey()["ip"]
			return p
		}
		if e.name(2) != "state" {
			return place{}
		}
		switch e.name(3) {
		case "counters":
			p.leaf = counters[e.name(4)]
		case "oper-status":
			p.leaf = leafOperStatus
		case "admin-status":
			p.leaf = leafAdminStatus
		case "transceiver":
			p.leaf = leafTransceiver
		}
		return p
	case "components":
		if e.name(1) != "component" {
			return place{}
		}
		p := place{owner: ownComponent, name: e.at(1).GetKey()["name"]}
		if p.leaf, p.lane = component(e); p.leaf == leafThreshold {
			p.of, p.upper = bounded(e.name(6))
			if p.of == leafNone {
				p.leaf = leafNone
			}
		}
		return p
	case "system":
		if e.name(1) == "state" && e.name(2) == "boot-time" {
			return place{leaf: leafBootTime, owner: ownSystem}
		}
	case "lldp":
		if port, id := seenAt(e); port != "" && id != "" && e.name(4) == "neighbor" && e.name(5) == "state" {
			return place{leaf: neighborLeaves[e.name(6)], owner: ownPort, name: port, lane: id}
		}
	case "network-instances":
		if n := e.len(); n > 3 && e.name(n-1) == "session-state" && e.name(n-3) == "neighbor" {
			return place{leaf: leafSessionState, owner: ownNeighbor, name: e.at(n - 3).GetKey()["neighbor-address"]}
		}
	}
	return place{}
}

var neighborLeaves = map[string]leaf{
	"chassis-id": leafChassisID, "system-name": leafSystemName, "port-id": leafPortID, "port-description": leafPortDescription,
}

// seenAt reads the port and the number of a neighbour of a path below /lldp; "" is all.
func seenAt(e *elems) (port, id string) {
	whole := func(s string) string {
		if s == "*" {
			return ""
		}
		return s
	}
	return whole(e.at(2).GetKey()["name"]), whole(e.at(4).GetKey()["id"])
}

// bounded reads the name of a leaf of transceiver/thresholds/threshold/state
// (openconfig-platform-transceiver): which metric it bounds, and on which side.
func bounded(name string) (of leaf, upper bool) {
	name, upper = strings.CutSuffix(name, "-upper")
	if !upper {
		var lower bool
		if name, lower = strings.CutSuffix(name, "-lower"); !lower {
			return leafNone, false
		}
	}
	switch name {
	case "input-power":
		return leafRxPower, upper
	case "output-power":
		return leafTxPower, upper
	case "laser-bias-current":
		return leafBias, upper
	case "module-temperature":
		return leafTemperature, upper
	}
	return leafNone, false
}

// component matches what follows /components/component[name=…].
func component(e *elems) (l leaf, lane string) {
	switch e.name(2) {
	case "state":
		switch e.name(3) {
		case "type":
			return leafComponentType, ""
		case "oper-status":
			return leafComponentOper, ""
		case "temperature":
			if e.name(4) == "instant" {
				return leafTemperature, ""
			}
		}
	case "fan":
		if e.name(3) == "state" && e.name(4) == "speed" {
			return leafFanSpeed, ""
		}
	case "power-supply":
		if e.name(3) != "state" {
			return leafNone, ""
		}
		switch e.name(4) {
		case "input-voltage":
			return leafInputVoltage, ""
		case "input-current":
			return leafInputCurrent, ""
		case "output-power":
			return leafOutputPower, ""
		}
	case "transceiver":
		switch e.name(3) {
		case "state":
			if e.name(4) == "pre-fec-ber" && e.name(5) == "instant" {
				return leafPreFECBER, ""
			}
		case "thresholds":
			if e.name(4) == "threshold" && e.name(5) == "state" {
				return leafThreshold, e.at(4).GetKey()["severity"]
			}
		case "physical-channels":
			if e.name(4) != "channel" || e.name(5) != "state" || e.name(7) != "instant" {
				return leafNone, ""
			}
			lane = e.at(4).GetKey()["index"]
			switch e.name(6) {
			case "input-power":
				return leafRxPower, lane
			case "output-power":
				return leafTxPower, lane
			case "laser-bias-current":
				return leafBias, lane
			}
		}
	case "optical-channel":
		if e.name(3) != "state" || e.name(5) != "instant" {
			return leafNone, ""
		}
		switch e.name(4) {
		case "input-power":
			return leafRxPower, ""
		case "output-power":
			return leafTxPower, ""
		case "laser-bias-current":
			return leafBias, ""
		case "pre-fec-ber":
			return leafPreFECBER, ""
		}
	}
	return leafNone, ""
}

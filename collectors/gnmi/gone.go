package gnmi

import (
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"auspex/schemas"
)

// gone takes note of a path that a target says is no more (gNMI, section 2.1).
//
// A port, component or session whose name it has is removed: what was raised of it ends, for nobody will tell
// the end, and one that worked is told of once, as information: somebody has taken it away. A supply or a fan that was
// pulled out is missed until it is back. A path that stands for all of a kind removes none of them:
// gateways delete so what they have lost sight of. What was last known holds until it is told again.
func (st *state) gone(e *elems, at time.Time) {
	if e.origin != "" {
		return // nothing is known of it but numbers
	}
	st.cabling.forget(e)
	all := e.len() == 0 || e.len() == 1 && e.at(0).GetName() == "*"
	name := func(i int, key string) string {
		if s := e.at(i).GetKey()[key]; s != "*" {
			return s
		}
		return ""
	}
	switch {
	case all:
		st.unseen(st.ports)
		st.unseen(st.parts)
		st.subnets = nil
	case e.name(0) == "interfaces":
		st.portGone(e, name(1, "name"), at)
	case e.name(0) == "components":
		st.partGone(e, name(1, "name"), at)
	case e.name(0) == "network-instances":
		for i := 3; i < e.len(); i++ { // the names of a session lead to one
			below := e.len() - 1 - i
			if e.name(i) == "neighbor" && (below == 0 || below == 1 && e.name(i+1) == "state") && name(i, "neighbor-address") != "" {
				st.sessionGone(name(i, "neighbor-address"), at)
			}
		}
	}
}

// unseen forgets what a target told of things, and may tell otherwise when it does again.
func (st *state) unseen(of map[string]*thing) {
	for _, t := range of {
		t.oper, t.admin, t.bounds = "", "", nil
		st.anew(t)
	}
}

// anew has the series of a thing be found out again.
func (st *state) anew(t *thing) {
	st.known.begin()
	for i := range t.refs {
		t.refs[i] = noRef
	}
	t.lanes, t.up = nil, noRef
}

// whole reports whether a path names all of a thing that stands at its second element, or all of its state.
func whole(e *elems) bool {
	return e.len() <= 2 || e.len() == 3 && (e.name(2) == "state" || e.name(2) == "*")
}

func (st *state) portGone(e *elems, name string, at time.Time) {
	switch {
	case e.name(2) == "subinterfaces":
		var ip netip.Addr
		if n := e.len(); n > 6 {
			for i := 5; i < n; i++ {
				if s := e.at(i).GetKey()["ip"]; s != "" && s != "*" {
					ip, _ = netip.ParseAddr(s)
				}
			}
		}
		for prefix, port := range st.subnets {
			if (name == "" || port == name) && (!ip.IsValid() || prefix.Contains(ip)) {
				delete(st.subnets, prefix)
			}
		}
	case whole(e) && name != "":
		st.removePort(name, at)
	case whole(e):
		st.unseen(st.ports)
		st.subnets = nil
	case e.name(2) != "state":
	default:
		for _, t := range st.ports {
			if name != "" && t.name != name {
				continue
			}
			switch e.name(3) {
			case "oper-status":
				t.oper = ""
			case "admin-status":
				t.admin = ""
			case "transceiver":
				st.unplug(t.name)
			}
		}
	}
}

// unplug notes that a port has no optic.
func (st *state) unplug(port string) {
	for _, c := range st.parts {
		if c.port == port {
			c.port, c.bounds = "", nil
			st.anew(c)
		}
	}
}

func (st *state) removePort(name string, at time.Time) {
	was, known := st.mem.Ports[name]
	if !known && st.ports[name] == nil {
		return
	}
	attrs := []string{"port", name, "part", name}
	message := name + ": the switch has it no more"
	if _, down := st.mem.Raised[schemas.EventPortDown+"/"+name]; was == "UP" && !down {
		st.removed(schemas.EventPortDown, name, at, message, attrs...)
	}
	st.condition(schemas.EventPortDown, name, "removed", schemas.SeverityInfo, false, at, message, attrs...)
	st.condition(schemas.EventPortFlap, name, "removed", schemas.SeverityInfo, false, at, message, attrs...)
	delete(st.mem.Ports, name)
	delete(st.ports, name)
	st.changed, st.last = true, [2]*thing{}
	st.known.begin()
	st.unplug(name)
	for prefix, port := range st.subnets {
		if port == name {
			delete(st.subnets, prefix)
		}
	}
	st.s.metrics.removed.Inc()
}

// removedOper is the state of a supply or a fan that was pulled out.
const removedOper = "REMOVED"

func (st *state) partGone(e *elems, name string, at time.Time) {
	for _, t := range st.parts {
		if name != "" && t.name != name {
			continue
		}
		switch {
		case whole(e) && name == "":
			st.unseen(st.parts)
			return
		case whole(e):
			st.s.metrics.removed.Inc()
			st.anew(t)
			if st.class(t) != "" && t.oper != "" {
				t.oper = removedOper
				st.part(t, at)
				return
			}
			if t.oper, t.fanRPM = "", -1; st.class(t) != "" { // nobody told whether it works
				st.part(t, at)
			}
			delete(st.parts, name)
			st.last = [2]*thing{}
			return
		case e.name(2) == "transceiver" && (e.len() == 3 || e.name(3) == "thresholds"):
			t.bounds = nil
		case e.name(2) == "state" && e.name(3) == "oper-status":
			t.oper = ""
		}
	}
}

func (st *state) sessionGone(neighbor string, at time.Time) {
	was, known := st.mem.BGP[neighbor]
	if !known {
		return
	}
	attrs := []string{"neighbor", neighbor}
	if port := st.portOf(neighbor); port != "" {
		attrs = append(attrs, "port", port, "part", port)
	}
	message := fmt.Sprintf("neighbor %s: the switch has it no more", neighbor)
	if was == "ESTABLISHED" {
		st.removed(schemas.EventBGPSessionDown, neighbor, at, message, attrs...)
	}
	st.condition(schemas.EventBGPSessionDown, neighbor, "removed", schemas.SeverityInfo, false, at, message, attrs...)
	delete(st.mem.BGP, neighbor)
	st.changed = true
	st.s.metrics.removed.Inc()
}

// removed tells once that something that worked was taken away: nobody would tell the end of a condition.
func (st *state) removed(typ, name string, at time.Time, message string, attrs ...string) {
	ev := st.event(typ, "removed", schemas.SeverityInfo, at)
	ev.Message = message
	for i := 0; i+1 < len(attrs); i += 2 {
		ev.SetAttr(attrs[i], attrs[i+1])
	}
	ev.ID = schemas.EventID(st.s.device, strconv.FormatInt(at.UnixNano(), 10), typ+"/"+name, "removed")
	st.batch.Event(ev)
}

// replacing is a notification that tells all of what is below a path (gNMI, section 2.1.1, atomic).
type replacing struct {
	ports, parts map[string]map[leaf]bool // what it told
	sessions     map[string]bool
}

func (r *replacing) saw(p place) {
	of := r.ports
	switch p.owner {
	case ownPort:
	case ownComponent:
		of = r.parts
	case ownNeighbor:
		r.sessions[p.name] = true
		return
	default:
		return
	}
	if of[p.name] == nil {
		of[p.name] = map[leaf]bool{}
	}
	of[p.name][p.leaf] = true
}

func hasState(told map[string]map[leaf]bool, l leaf) bool {
	for _, of := range told {
		if of[l] {
			return true
		}
	}
	return false
}

// related reports whether one of two paths leads to what is at or below the other.
func related(a, b *elems) bool {
	if a.origin != b.origin {
		return false
	}
	for i := range min(a.len(), b.len()) {
		if a.name(i) != b.name(i) && a.name(i) != "*" {
			return false
		}
		for key, of := range a.at(i).GetKey() {
			if is, ok := b.at(i).GetKey()[key]; ok && of != "*" && of != is {
				return false
			}
		}
	}
	return true
}

// replace begins a notification that tells all below a path, and returns what ends it: what it did not tell
// there is no more. What is polled may fail in part: an answer without any state of a kind tells nothing of it.
func (st *state) replace(e *elems, at time.Time, polled bool) (end func()) {
	if e.origin != "" {
		return func() {}
	}
	st.cabling.replace(e)
	outer := st.replacing
	if outer == nil {
		st.replacing = &replacing{map[string]map[leaf]bool{}, map[string]map[leaf]bool{}, map[string]bool{}}
	}
	told := st.replacing
	if e.name(0) == "components" && e.name(2) == "transceiver" && (e.len() == 3 || e.name(3) == "thresholds") {
		st.partGone(e, e.at(1).GetKey()["name"], at) // bounds that hold are told again
	}
	root := e.len() == 0
	return func() {
		st.cabling.replaced()
		st.replacing = outer
		if root && (!polled || hasState(told.ports, leafOperStatus)) || e.name(0) == "interfaces" && whole(e) {
			for name, t := range st.ports {
				if only := e.at(1).GetKey()["name"]; only != "" && only != "*" && only != name {
					continue
				}
				switch {
				case t.oper == "": // its numbers alone
				case told.ports[name] == nil:
					st.removePort(name, at)
				case !told.ports[name][leafOperStatus]:
					t.oper = ""
				}
			}
		}
		if root && (!polled || hasState(told.parts, leafComponentOper)) || e.name(0) == "components" && whole(e) {
			for name, t := range st.parts {
				if only := e.at(1).GetKey()["name"]; only != "" && only != "*" && only != name {
					continue
				}
				if told.parts[name] == nil && t.oper != "" && t.oper != removedOper {
					st.partGone(&elems{}, name, at)
				}
			}
		}
		if root && (!polled || len(told.sessions) > 0) || e.name(0) == "network-instances" && e.len() == 1 {
			for neighbor := range st.mem.BGP {
				if !told.sessions[neighbor] {
					st.sessionGone(neighbor, at)
				}
			}
		}
	}
}

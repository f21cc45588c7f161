package redfish

import (
	"slices"
	"strconv"
	"time"

	"auspex/internal/bmc/redfish"
	"auspex/schemas"
)

// consoles are those that a system and its managers offer, with how many sessions each takes at a time: 0 where its service is off.
type consoles map[console]float64

// console is one of them.
type console struct{ kind, protocol, port string }

// consolesEvery is how often they are told, which is more often than a reading becomes stale.
const consolesEvery = time.Minute

// add reads those of a resource: SerialConsole and GraphicalConsole of a ComputerSystem (DSP0268, HostSerialConsole and
// HostGraphicalConsole) or a Manager. What was there before stays: a system knows its own better than its manager.
func (c consoles) add(o redfish.Object) {
	known := map[string]bool{}
	for k := range c {
		known[k.kind] = true
	}
	for property, kind := range map[string]string{"SerialConsole": schemas.ConsoleSerial, "GraphicalConsole": schemas.ConsoleGraphical} {
		at := o.Object(property)
		if at == nil || known[kind] {
			continue
		}
		sessions, _ := at.Number("MaxConcurrentSessions")
		sessions = max(sessions, 1) // 0 of one that is on says nothing
		put := func(protocol string, of redfish.Object) {
			n, port := sessions, ""
			if on, told := of["ServiceEnabled"].(bool); told && !on {
				n = 0
			}
			if p, ok := of.Number("Port"); ok && p >= 1 && p <= 65535 {
				port = strconv.Itoa(int(p))
			}
			c[console{kind, protocol, port}] = n
		}
		for _, protocol := range []string{"SSH", "IPMI", "Telnet"} { // of a HostSerialConsole
			if of := at.Object(protocol); of != nil {
				put(protocol, of)
			}
		}
		for _, protocol := range []string{"SSH", "IPMI", "Telnet", "KVMIP"} {
			if slices.Contains(at.Strings("ConnectTypesSupported"), protocol) {
				put(protocol, at)
			}
		}
	}
}

// tellConsoles gives what is offered as readings.
func (r *reader) tellConsoles(now time.Time) {
	if now.Sub(r.consolesAt) < consolesEvery {
		return
	}
	r.consolesAt = now
	for c, sessions := range r.found.consoles {
		r.batch.Sample(r.batch.Series(schemas.MetricConsoles, "", "", "console", c.kind, "protocol", c.protocol, "port", c.port), now, sessions)
	}
}

// manages reports whether a manager is that of a system; one that does not say is taken for it.
func manages(manager redfish.Object, system string) bool {
	of := manager.Object("Links").Objects("ManagerForServers")
	return len(of) == 0 || system == "" || slices.ContainsFunc(of, func(s redfish.Object) bool { return s.ID() == system })
}

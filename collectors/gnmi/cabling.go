package gnmi

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"auspex/schemas"
)

const (
	// still is for how long the neighbours of a port must not change before they are told: the
	// leaves of one that takes the place of another come one by one.
	still        = time.Second
	maxNeighbors = 16  // of a port
	maxWord      = 255 // bytes of a text (IEEE 802.1AB, clause 8.4)
)

// cabling is what the ports of a switch see at the other ends of their cables.
type cabling struct {
	s       *subscriber
	ports   map[string]map[string]*schemas.Neighbor // by port and number of the neighbour
	changed map[string]time.Time                    // ports that are to be told, since when
	sync    bool
	failing bool
	// whole are the neighbours that a notification tells all of, with the leaves that it has told.
	whole map[*schemas.Neighbor]map[leaf]bool
}

// begin forgets what an earlier stream has told: what went meanwhile is not told by the next one.
func (c *cabling) begin() {
	clear(c.ports)
	clear(c.changed)
	c.sync = false
}

func (c *cabling) update(p place, text string, at time.Time) {
	text = strings.TrimSpace(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "")))
	if len(text) > maxWord {
		text = strings.ToValidUTF8(text[:maxWord], "")
	}
	seen := c.ports[p.name]
	if seen == nil {
		if len(c.ports) >= maxThings {
			return
		}
		seen = map[string]*schemas.Neighbor{}
		c.ports[strings.Clone(p.name)] = seen
	}
	n := seen[p.lane]
	if n == nil {
		if len(seen) >= maxNeighbors {
			return
		}
		n = &schemas.Neighbor{Port: strings.Clone(p.name)}
		seen[strings.Clone(p.lane)] = n
	}
	if of := c.whole[n]; of != nil {
		of[p.leaf] = true
	}
	if of := field(n, p.leaf); *of != text {
		*of, n.Seen = text, at.UTC()
		c.changed[n.Port] = time.Now()
	}
}

// replace begins a notification that tells all of what is below a path (gNMI, section 2.1.1, atomic):
// what it does not tell of the neighbours there is no more, once it is replaced.
func (c *cabling) replace(e *elems) {
	if e.name(0) != "lldp" {
		return
	}
	port, id := seenAt(e)
	c.whole = map[*schemas.Neighbor]map[leaf]bool{}
	for name, seen := range c.ports {
		for number, n := range seen {
			if (port == "" || name == port) && (id == "" || number == id) {
				c.whole[n] = map[leaf]bool{}
			}
		}
	}
}

func (c *cabling) replaced() {
	for n, told := range c.whole {
		for _, l := range neighborLeaves {
			if of := field(n, l); *of != "" && !told[l] {
				*of = ""
				c.changed[n.Port] = time.Now()
			}
		}
		if len(told) == 0 {
			maps.DeleteFunc(c.ports[n.Port], func(_ string, other *schemas.Neighbor) bool { return other == n })
		}
	}
	c.whole = nil
}

// forget drops what a target says that is no more: a neighbour, one of its leaves, or all of a port or
// of the target.
func (c *cabling) forget(e *elems) {
	if e.name(0) != "lldp" && e.name(0) != "" && e.name(0) != "*" {
		return
	}
	port, id := seenAt(e)
	gone := neighborLeaves[e.name(6)]
	if e.len() > 6 && gone == leafNone {
		return
	}
	for name, seen := range c.ports {
		if port != "" && name != port {
			continue
		}
		for number, n := range seen {
			if id != "" && number != id {
				continue
			}
			if gone != leafNone {
				*field(n, gone) = ""
			}
			if gone == leafNone || n.Chassis == "" && n.System == "" && n.PortID == "" && n.PortDescription == "" {
				delete(seen, number)
			}
			c.changed[name] = time.Now()
		}
	}
}

func field(n *schemas.Neighbor, l leaf) *string {
	switch l {
	case leafChassisID:
		return &n.Chassis
	case leafSystemName:
		return &n.System
	case leafPortID:
		return &n.PortID
	default:
		return &n.PortDescription
	}
}

// tell has the ports held against the inventory whose neighbours have changed and are still by now.
// That it cannot be done stops no telemetry.
func (c *cabling) tell(ctx context.Context, now time.Time) {
	if !c.sync || c.s.settings.Cabling == nil {
		return
	}
	var ports []string
	var all []schemas.Neighbor
	for _, port := range slices.Sorted(maps.Keys(c.changed)) {
		if now.Sub(c.changed[port]) < still {
			continue
		}
		ports = append(ports, port)
		for _, id := range slices.Sorted(maps.Keys(c.ports[port])) {
			all = append(all, *c.ports[port][id])
		}
	}
	if len(all) > 0 {
		if err := c.s.settings.Cabling.Seen(ctx, c.s.device, all); err != nil {
			if ctx.Err() == nil {
				c.s.metrics.untold.Inc()
				if !c.failing {
					c.s.log.Error("neighbours of ports wait for the inventory's store; trying again", "error", err)
				}
				c.failing = true
			}
			for _, port := range ports { // not at every turn
				c.changed[port] = now.Add(still)
			}
			return
		}
	}
	c.failing = false
	for _, port := range ports {
		delete(c.changed, port)
	}
}

package cabling

import (
	"encoding/hex"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"

	"auspex/internal/cmdb"
	"auspex/schemas"
)

// What comes of holding what a port sees against the inventory.
const (
	agrees      = "agrees"
	contradicts = "contradicts" // a conflict
	unlisted    = "unlisted"    // the inventory has no cable there
	unknownPort = "unknown_port"
	// The neighbour is none of the inventory, or what it tells fits several: it is nobody that
	// could be accused.
	unknownNeighbor = "unknown_neighbor"
	ambiguous       = "ambiguous"
)

var verdicts = []string{agrees, contradicts, unlisted, unknownPort, unknownNeighbor, ambiguous}

// end is where a neighbour is in the inventory.
type end struct {
	device string // server or switch
	part   string // of it; "" is not known
	hint   string // likewise, by a text that people write: it may confirm and never contradict
}

// judge holds what a port sees against the inventory. Where it contradicts a cable, or shows one
// between two parts of which the inventory has none, that is a conflict.
func judge(known *names, device, port string, seen []schemas.Neighbor) (verdict, local string, c *schemas.Conflict) {
	snap := known.snap
	local, ok := snap.Part(device, port)
	if !ok {
		return unknownPort, "", nil
	}
	var ends []end
	for i := range seen {
		e, verdict := find(known, &seen[i])
		switch {
		case verdict != "":
			if len(seen) > 1 {
				verdict = ambiguous // one of several, and perhaps the one at the end of the cable
			}
			ends = append(ends, end{})
			if len(seen) == 1 {
				return verdict, local, nil
			}
		case fits(snap, device, local, e):
			return agrees, local, nil // of several, the others are forwarded or will time out
		case !slices.Contains(ends, e):
			ends = append(ends, e)
		}
	}
	if len(ends) != 1 || ends[0].device == "" {
		return ambiguous, local, nil
	}
	e := ends[0]
	conflict := func(left schemas.ConflictSide) *schemas.Conflict {
		left.Source = schemas.SideInventory
		right := schemas.ConflictSide{Source: schemas.SideLLDP, Value: e.name(), Time: seen[0].Seen}
		return &schemas.Conflict{Kind: schemas.ConflictCable, Resource: local, Field: field, Left: left, Right: right}
	}
	if far := cables(snap, local); len(far) > 0 {
		if slices.ContainsFunc(far, func(id string) bool { return snap.Server(id) == "" }) {
			return unlisted, local, nil // it ends in something that speaks no LLDP, such as a patch panel
		}
		return contradicts, local, conflict(schemas.ConflictSide{Value: strings.Join(far, ", ")})
	}
	if e.part == "" || !cabled(snap, device) {
		return unlisted, local, nil
	}
	if far := cables(snap, e.part); len(far) > 0 { // the cable of the other end goes elsewhere
		return contradicts, local, conflict(schemas.ConflictSide{Value: strings.Join(far, ", "), Resource: e.part})
	}
	if r, _ := snap.Resource(e.device); r.Attrs.Get(schemas.AttrGNMIAddress) != "" && e.part < local {
		return unlisted, local, nil // the other end tells of the same cable
	}
	return contradicts, local, conflict(schemas.ConflictSide{})
}

// field is what conflicts about cables are about.
const field = "cable"

func (e end) name() string {
	if e.part != "" {
		return e.part
	}
	return e.device
}

// find is where a neighbour is in the inventory, by the addresses and the names that it tells: they
// must not speak of several devices.
func find(known *names, n *schemas.Neighbor) (e end, verdict string) {
	snap := known.snap
	add := func(id string) {
		switch at := snap.Server(id); {
		case at == "" || at == e.device:
		case e.device == "":
			e.device = at
		default:
			verdict = ambiguous
		}
	}
	part := identified(snap, n.PortID)
	if part != "" {
		add(part)
	}
	if id := identified(snap, n.Chassis); id != "" {
		add(id)
	}
	if id := known.find(n.System); id != "" {
		add(id)
	} else if id := known.find(n.Chassis); id != "" { // a chassis may be named, too
		add(id)
	}
	if verdict != "" || e.device == "" {
		if verdict == "" {
			verdict = unknownNeighbor
		}
		return end{}, verdict
	}
	if part != "" && part != e.device && only(snap, e.device, part) {
		e.part = part
	} else if id, ok := snap.Part(e.device, n.PortID); ok && cmdb.PCI(n.PortID) == "" {
		e.part = id
	}
	if id, ok := snap.Part(e.device, n.PortDescription); ok {
		e.hint = id
	}
	return e, ""
}

var digits = regexp.MustCompile(`^(0x)?[0-9a-f]{12}$`)

// mac is a MAC address in one spelling, or "": with colons, dashes or dots wherever, or bare.
func mac(text string) string {
	bare := strings.NewReplacer(":", "", "-", "", ".", "", " ", "").Replace(strings.ToLower(text))
	if !digits.MatchString(bare) {
		return ""
	}
	b, err := hex.DecodeString(strings.TrimPrefix(bare, "0x"))
	if err != nil || !cmdb.Identifies(bare) {
		return ""
	}
	return net.HardwareAddr(b).String()
}

// identified is the resource with a MAC address, or "".
func identified(snap *cmdb.Snapshot, text string) string {
	address := mac(text)
	if address == "" {
		return ""
	}
	id, ok := snap.ByIdentity("", address)
	if !ok {
		return ""
	}
	return id
}

// only reports whether a part is the only one of its device with its MAC address: bonded ones share it.
func only(snap *cmdb.Snapshot, device, part string) bool {
	r, _ := snap.Resource(part)
	n := 0
	var walk func(id string, depth int)
	walk = func(id string, depth int) {
		for _, child := range snap.Children(id) {
			other, _ := snap.Resource(child)
			a, err1 := net.ParseMAC(other.Attrs.Get(schemas.AttrMAC))
			b, err2 := net.ParseMAC(r.Attrs.Get(schemas.AttrMAC))
			if err1 == nil && err2 == nil && slices.Equal(a, b) {
				n++
			}
			if depth < 8 {
				walk(child, depth+1)
			}
		}
	}
	walk(device, 0)
	return n == 1
}

// names are the servers and switches of an inventory by their names without domain, in lower case.
// Where it has several of one, as in two domains, the id is "".
type names struct {
	once sync.Once
	snap *cmdb.Snapshot
	of   map[string]string
}

func host(name string) string {
	short, _, _ := strings.Cut(name, ".")
	return strings.ToLower(short)
}

// find is the server or switch with a name, whatever domain or case is told of it, or "". The name
// itself comes before one that has no domain, and both before one with a domain where none is told.
func (x *names) find(name string) string {
	short, domain, _ := strings.Cut(name, ".")
	for _, id := range []string{name, short, strings.ToLower(name), strings.ToLower(short)} {
		if id != "" && x.snap.Server(id) == id {
			return id
		}
	}
	x.once.Do(func() {
		x.of = map[string]string{}
		for r := range x.snap.All() {
			if r.Kind != schemas.KindServer && r.Kind != schemas.KindSwitch {
				continue
			}
			if strings.Contains(r.ID, ".") {
				x.of[strings.ToLower(r.ID)] = r.ID
			}
			h := host(r.ID)
			if _, twice := x.of[h]; twice {
				x.of[h] = ""
			} else {
				x.of[h] = r.ID
			}
		}
	})
	if id := x.of[strings.ToLower(name)]; id != "" && domain != "" {
		return id
	}
	id := x.of[host(name)]
	if _, has, both := strings.Cut(id, "."); both && domain != "" && !strings.EqualFold(has, domain) {
		return "" // of another domain
	}
	return id
}

// cables are the other ends of the network cables of a resource.
func cables(snap *cmdb.Snapshot, id string) (far []string) {
	for _, l := range snap.Links(id) {
		if l.Kind != schemas.LinkNetwork {
			continue
		}
		other := l.To
		if other == id {
			other = l.From
		}
		if !slices.Contains(far, other) {
			far = append(far, other)
		}
	}
	slices.Sort(far)
	return far
}

// cabled reports whether the inventory has any cable of a device: where it has none it does not know.
func cabled(snap *cmdb.Snapshot, device string) bool {
	return len(cables(snap, device)) > 0 || slices.ContainsFunc(snap.Children(device), func(id string) bool { return len(cables(snap, id)) > 0 })
}

// fits reports whether the inventory has the cable between a port and where its neighbour is, as
// precisely as both say it: an inventory may know the server alone, a neighbour its chassis alone.
func fits(snap *cmdb.Snapshot, device, local string, e end) bool {
	far := cables(snap, local)
	if len(far) == 0 { // it may know the switch alone
		far = cables(snap, device)
	}
	for _, id := range far {
		switch {
		case id == e.device, e.part == "" && snap.Server(id) == e.device, e.hint != "" && id == e.hint,
			e.part != "" && (within(snap, e.part, id) || within(snap, id, e.part)):
			return true
		}
	}
	return e.part != "" && slices.Contains(cables(snap, e.part), device)
}

// within reports whether a part is a resource or a part of it.
func within(snap *cmdb.Snapshot, part, whole string) bool {
	for steps := 0; part != "" && steps < 8; steps++ {
		if part == whole {
			return true
		}
		r, _ := snap.Resource(part)
		part = r.Parent
	}
	return false
}

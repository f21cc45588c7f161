package discover

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"auspex/internal/cmdb"
	"auspex/schemas"
)

// What a find was matched by.
const (
	bySerial  = "serial"
	byUUID    = "uuid"
	byAddress = "address"
	byMAC     = "mac"
)

// Protocols.
const (
	redfishProtocol = "redfish"
	ipmiProtocol    = "ipmi"
)

// Index is an inventory as finds are held against it.
type Index struct {
	snap    *cmdb.Snapshot
	servers map[string]string // by protocol and address of their controller
	hosts   []host            // of controllers with an address of IPv4, in order
	stems   map[string][]string
}

type host struct {
	at     netip.Addr
	server string
}

// NewIndex looks at all of an inventory.
func NewIndex(snap *cmdb.Snapshot) *Index {
	x := &Index{snap: snap, servers: map[string]string{}, stems: map[string][]string{}}
	for _, r := range snap.Resources() {
		if r.Kind == schemas.KindServer {
			s := stem(r.ID)
			x.stems[s] = append(x.stems[s], r.ID)
		}
		for _, p := range []string{redfishProtocol, ipmiProtocol} {
			address := x.address(&r, p)
			if address == "" {
				continue
			}
			server := cmp.Or(snap.Server(r.ID), r.ID)
			x.servers[p+" "+address] = server
			if at, err := netip.ParseAddrPort(address); err == nil && at.Addr().Is4() {
				x.hosts = append(x.hosts, host{at.Addr(), server})
			}
		}
	}
	slices.SortFunc(x.hosts, func(a, b host) int { return cmp.Or(a.at.Compare(b.at), strings.Compare(a.server, b.server)) })
	x.hosts = slices.Compact(x.hosts)
	return x
}

// address is where a resource says that its controller is, as host:port; "" where it says none.
func (x *Index) address(r *schemas.Resource, protocol string) string {
	if protocol == ipmiProtocol {
		at := r.Attrs.Get(schemas.AttrIPMIIP)
		if at == "" {
			return ""
		}
		if _, _, err := net.SplitHostPort(at); err == nil {
			return at
		}
		return net.JoinHostPort(strings.Trim(at, "[]"), strconv.Itoa(IPMIPort))
	}
	u, err := url.Parse(r.Attrs.Get(schemas.AttrRedfishURL))
	if err != nil || u.Host == "" {
		return ""
	}
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), map[string]string{"http": "80"}[u.Scheme], strconv.Itoa(RedfishPort)))
}

// At is the server of the inventory whose controller has an address, or "".
func (x *Index) At(protocol, address string) string { return x.servers[protocol+" "+address] }

var separators = strings.NewReplacer(":", "", "-", "", ".", "")

// norm is an identity as it is compared, whatever its spelling.
func norm(text string) string {
	return separators.Replace(strings.TrimPrefix(strings.ToLower(strings.TrimSpace(text)), "gpu-"))
}

func like(a, b string) bool { return norm(a) == norm(b) }

// identifies reports whether a value tells a thing from others: makers leave placeholders.
func identifies(value string) bool { return cmdb.Identifies(value) }

// having are the servers of which an attribute is a value.
func (x *Index) having(attr, value string) (out []string) {
	if !identifies(value) {
		return nil
	}
	for _, id := range x.snap.Find(value) {
		if r, ok := x.snap.Resource(id); ok && r.Kind == schemas.KindServer && like(r.Attrs.Get(attr), value) {
			out = append(out, id)
		}
	}
	return out
}

// match is the server of the inventory that a find is.
func (x *Index) match(f *schemas.Find) (server, by string) {
	for _, m := range []struct{ by, attr, value string }{{bySerial, schemas.AttrSerial, f.SerialNumber}, {byUUID, schemas.AttrUUID, f.UUID}} {
		if ids := x.having(m.attr, m.value); len(ids) == 1 {
			return ids[0], m.by
		}
	}
	if server := x.At(f.Protocol, f.Address); server != "" {
		return server, byAddress
	}
	if f.Protocol == schemas.SideTinkerbell { // which has no controller, and knows a machine by its interfaces
		for i := range f.NICs {
			if id, ok := x.snap.ByIdentity("", f.NICs[i].MAC); ok && x.snap.Server(id) != "" {
				return x.snap.Server(id), byMAC
			}
		}
	}
	return "", ""
}

// Judge says of a find whether it is a server of the inventory, or else as what it could be
// registered. The credential is that of its sweep.
func (x *Index) Judge(f *schemas.Find, credential string) {
	if f.GPUs == nil {
		f.GPUs = []schemas.FoundPart{}
	}
	if f.NICs == nil {
		f.NICs = []schemas.FoundPart{}
	}
	if f.Result != schemas.FindFound {
		return
	}
	if f.Server, f.MatchedBy = x.match(f); f.Server != "" {
		f.Status = schemas.FindKnown
		return
	}
	f.Status = schemas.ServerDiscovered
	p := &schemas.FoundProposal{Credential: credential, Places: x.places(f)}
	if name, _, _ := strings.Cut(f.Hostname, "."); nameForm.MatchString(name) && !strings.EqualFold(name, "localhost") {
		if _, taken := x.snap.Resource(name); !taken {
			p.Name = name
		}
	}
	switch f.Protocol {
	case redfishProtocol:
		p.RedfishURL = "https://" + f.Address
	case ipmiProtocol:
		p.IPMIIP = f.Address
	}
	f.Proposal = p
}

// nameForm is what a server may be called (POST /servers).
var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

var trailing = regexp.MustCompile(`[0-9]+$`)

// stem is a name without the number at its end.
func stem(name string) string { return trailing.ReplaceAllString(name, "") }

const (
	nearBits  = 28 // prefix of the addresses that count as neighbours
	maxPlaces = 3
)

// places are hints at where a machine stands: where servers stand whose controllers have addresses
// beside its own, and where those stand that are called as it is but for the number at the end. How
// sure a hint is follows from how many of them agree, by the rule of succession.
func (x *Index) places(f *schemas.Find) []schemas.FoundPlace {
	out := []schemas.FoundPlace{}
	hint := func(servers []string, reason string) {
		count := map[string]int{}
		for _, s := range servers {
			if r, ok := x.snap.Resource(s); ok && r.Parent != "" {
				count[r.Parent]++
			}
		}
		for parent, n := range count {
			out = append(out, schemas.FoundPlace{
				Parent: parent, Confidence: float64(n+1) / float64(len(servers)+2), Reason: fmt.Sprintf("%d of %d %s stand there", n, len(servers), reason),
			})
		}
	}
	if at, err := netip.ParseAddrPort(f.Address); err == nil && at.Addr().Is4() && !at.Addr().IsLoopback() {
		near := netip.PrefixFrom(at.Addr(), nearBits).Masked()
		var servers []string
		first, _ := slices.BinarySearchFunc(x.hosts, near.Addr(), func(h host, a netip.Addr) int { return h.at.Compare(a) })
		for _, h := range x.hosts[first:] {
			if !near.Contains(h.at) {
				break
			}
			if !slices.Contains(servers, h.server) {
				servers = append(servers, h.server)
			}
		}
		hint(servers, "servers whose controllers are within "+near.String())
	}
	if name, _, _ := strings.Cut(f.Hostname, "."); name != "" && stem(name) != name && stem(name) != "" {
		hint(x.stems[stem(name)], "servers that are called "+stem(name)+"…")
	}
	slices.SortFunc(out, func(a, b schemas.FoundPlace) int {
		return cmp.Or(cmp.Compare(b.Confidence, a.Confidence), strings.Compare(a.Parent, b.Parent), strings.Compare(a.Reason, b.Reason))
	})
	return out[:min(len(out), maxPlaces)]
}

// Inventory is the source of what the inventory says, whoever brought it.
const Inventory = schemas.SideInventory

// Conflicts are what a find contradicts of the server that it is.
func (x *Index) Conflicts(f *schemas.Find) (out []schemas.Conflict) {
	server, by := x.match(f)
	if f.Result != schemas.FindFound || server == "" {
		return nil
	}
	r, _ := x.snap.Resource(server)
	differ := func(resource, field, was, is string) {
		out = append(out, schemas.Conflict{
			Kind: schemas.ConflictTwoSources, Resource: resource, Field: field, Left: schemas.ConflictSide{Source: Inventory, Value: was},
			Right: schemas.ConflictSide{Source: f.Protocol, Value: is, Resource: f.Address, Time: f.SeenAt},
		})
	}
	identity := func(r *schemas.Resource, attr, is string) {
		if was := r.Attrs.Get(attr); was != "" && identifies(is) && !like(was, is) {
			differ(r.ID, attr, was, is)
		}
	}
	identity(&r, schemas.AttrSerial, f.SerialNumber)
	identity(&r, schemas.AttrUUID, f.UUID)
	if by != byAddress {
		attr := map[string]string{redfishProtocol: schemas.AttrRedfishURL, ipmiProtocol: schemas.AttrIPMIIP}[f.Protocol]
		// A name of a host may well be that of the address.
		if at, err := netip.ParseAddrPort(x.address(&r, f.Protocol)); err == nil && at.String() != f.Address {
			is := f.Address
			if f.Protocol == redfishProtocol {
				is = "https://" + f.Address
			}
			differ(server, attr, r.Attrs.Get(attr), is)
		}
	}
	// Of parts: what another server has in the inventory, or what is another one there.
	part := func(kind, attr, name, value string) {
		if !identifies(value) {
			return
		}
		if id, ok := x.snap.ByIdentity("", value); ok {
			if owner := x.snap.Server(id); owner != "" && owner != server {
				differ(id, "parent", owner, server)
			}
			return
		}
		if id, ok := x.snap.Resolve(server, kind, name); ok {
			have, _ := x.snap.Resource(id)
			identity(&have, attr, value)
		}
	}
	for _, g := range f.GPUs {
		part(schemas.KindGPU, schemas.AttrUUID, g.Name, g.UUID)
	}
	for _, n := range f.NICs {
		part(schemas.KindNIC, schemas.AttrMAC, n.Name, n.MAC)
	}
	return out
}

// Fragment is a find as resources of the inventory, as a server with its GPUs and interfaces. Parts
// are named by their kind and number, as those of other sources are.
func Fragment(f *schemas.Find, server string) []schemas.Resource {
	attrs := func(pairs ...string) map[string]string {
		out := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i+1] != "" {
				out[pairs[i]] = pairs[i+1]
			}
		}
		return out
	}
	identity := func(value string) string {
		if identifies(value) {
			return value
		}
		return ""
	}
	out := []schemas.Resource{{ID: server, Kind: schemas.KindServer, Attrs: schemas.AttrsOf(attrs(
		schemas.AttrModel, f.Model, schemas.AttrSerial, identity(f.SerialNumber), schemas.AttrUUID, identity(f.UUID),
		schemas.AttrArchitecture, f.Architecture, schemas.AttrBootMode, f.BootMode,
	))}}
	number := func(parts []schemas.FoundPart) map[int]int { // where the numbers at the ends tell all from one another
		seen := map[int]int{}
		for i := range parts {
			n, err := strconv.Atoi(trailing.FindString(parts[i].Name))
			if _, twice := seen[n]; err != nil || twice {
				return nil
			}
			seen[n] = i
		}
		at := make(map[int]int, len(seen))
		for n, i := range seen {
			at[i] = n
		}
		return at
	}
	add := func(kind string, parts []schemas.FoundPart) {
		at, count := number(parts), map[string]int{}
		for i := range parts {
			for _, v := range []string{parts[i].SerialNumber, parts[i].UUID, parts[i].MAC} {
				count[v]++
			}
		}
		own := func(value string) string { // a board may give its parts one number
			if count[value] > 1 {
				return ""
			}
			return identity(value)
		}
		for i := range parts {
			p, n := &parts[i], i
			if at != nil {
				n = at[i]
			}
			a := attrs(schemas.AttrModel, p.Model, schemas.AttrSerial, own(p.SerialNumber), schemas.AttrUUID, own(p.UUID), schemas.AttrMAC, own(p.MAC))
			if name := kind + strconv.Itoa(n); !strings.Contains(p.Name, ",") && p.Name != name {
				a[schemas.AttrAliases] = p.Name
			}
			out = append(out, schemas.Resource{ID: server + "/" + kind + strconv.Itoa(n), Kind: kind, Parent: server, Attrs: schemas.AttrsOf(a)})
		}
	}
	add(schemas.KindGPU, f.GPUs)
	add(schemas.KindNIC, f.NICs)
	return out
}

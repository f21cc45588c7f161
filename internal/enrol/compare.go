package enrol

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"auspex/internal/cmdb"
	"auspex/schemas"
)

// Who is whose description it is.
type Who struct {
	Server  string // the server that it is; "" is a machine that stands nowhere
	Machine string // key of a machine that dials in, or ""
	Token   string
	Address string
}

// separators are what spellings of addresses differ in.
var separators = strings.NewReplacer(":", "", "-", "", ".", "")

// normal is a serial number, a UUID, a MAC or a PCI address as it is compared.
func normal(text string) string {
	text = strings.TrimPrefix(strings.ToLower(strings.TrimSpace(text)), "gpu-")
	if pci := cmdb.PCI(text); pci != "" {
		return pci
	}
	return separators.Replace(text)
}

// comparison makes a proposal.
type comparison struct {
	snap *cmdb.Snapshot
	p    *Proposal
	own  []schemas.Resource // parts of the server that the inventory has
	put  map[string]*schemas.Resource
	nics map[string]string // ids by interface
	met  map[string]bool   // parts of the inventory that the agent has told of
}

// Compare makes a proposal of what an agent says; one without differences is none.
func Compare(snap *cmdb.Snapshot, who Who, d *Description) Proposal {
	p := Proposal{
		Server: who.Server, Machine: who.Machine, Token: who.Token, Address: who.Address, Hostname: d.Hostname, Digest: d.Digest, State: Open,
	}
	c := comparison{snap: snap, p: &p, put: map[string]*schemas.Resource{}, nics: map[string]string{}, met: map[string]bool{}}
	c.server(who, d)
	for _, k := range d.kinds() {
		c.parts(k.kind, k.parts)
	}
	for _, n := range d.Neighbors {
		c.cable(n)
	}
	for _, r := range c.put {
		p.Fragment.Resources = append(p.Fragment.Resources, *r)
	}
	slices.SortFunc(p.Fragment.Resources, func(a, b schemas.Resource) int { return strings.Compare(a.ID, b.ID) })
	p.Fragment.Version = 1
	p.seal()
	return p
}

func (c *comparison) differ(d Difference) { c.p.Differences = append(c.p.Differences, d) }

// server finds out which server it is, and what the inventory does not say of it.
func (c *comparison) server(who Who, d *Description) {
	p := c.p
	if p.Server == "" {
		p.Server = who.name(d)
		if r, there := c.snap.Resource(p.Server); there {
			reason, why := ReasonHostName, "Its host name alone says that it is this server; no serial number or UUID does."
			if r.Kind != schemas.KindServer {
				p.Server = p.Server + "-" + who.Machine[:min(8, len(who.Machine))]
				reason, why = ReasonKind, fmt.Sprintf("Its host name is that of a %s of the inventory.", r.Kind)
			}
			c.differ(Difference{
				Verb: Conflict, Resource: p.Server, Kind: schemas.KindServer, Inventory: r.Attrs.Get(schemas.AttrSerial), Agent: d.Serial, Why: why, Reason: reason,
			})
		}
	}
	r, known := c.snap.Resource(p.Server)
	if known && r.Kind != schemas.KindServer {
		c.differ(Difference{
			Verb: Conflict, Resource: p.Server, Kind: schemas.KindServer, Inventory: r.Kind, Agent: schemas.KindServer,
			Why: "In the inventory this is no server.", Reason: ReasonKind,
		})
		return
	}
	if p.Known = known; known {
		c.walk(p.Server, 0)
	} else {
		r = schemas.Resource{ID: p.Server, Kind: schemas.KindServer}
		c.differ(Difference{Verb: Added, Resource: r.ID, Kind: r.Kind})
		c.set(r, "", "")
	}
	c.identify(r, known, schemas.AttrSerial, d.Serial)
	c.identify(r, known, schemas.AttrUUID, d.UUID)
	c.fill(r, known, schemas.AttrModel, d.Product)
	if !known { // of those that are, it is no reason for a proposal by itself
		c.fill(r, known, schemas.AttrArchitecture, d.Architecture)
		c.fill(r, known, schemas.AttrBootMode, d.BootMode)
	}
	if who.Machine != "" {
		c.fill(r, known, schemas.AttrAgentAddress, schemas.AgentDialsIn)
	}
}

// name is what a machine is called that the inventory does not have.
func (w Who) name(d *Description) string {
	host, _, _ := strings.Cut(d.Hostname, ".")
	if nameForm.MatchString(host) && host != "localhost" {
		return host
	}
	return "machine-" + w.Machine[:min(8, len(w.Machine))]
}

func (c *comparison) walk(id string, depth int) {
	for _, child := range c.snap.Children(id) {
		r, _ := c.snap.Resource(child)
		if r.Kind != schemas.KindServer && r.Kind != schemas.KindSwitch && depth < 8 {
			c.own = append(c.own, r)
			c.walk(child, depth+1)
		}
	}
}

// set has an attribute brought by the fragment.
func (c *comparison) set(r schemas.Resource, attr, value string) {
	have := c.put[r.ID]
	if have == nil {
		have = &schemas.Resource{ID: r.ID, Kind: r.Kind, Parent: r.Parent}
		c.put[r.ID] = have
	}
	if attr != "" {
		have.Attrs = have.Attrs.With(attr, value)
	}
}

// fill brings what the inventory does not say.
func (c *comparison) fill(r schemas.Resource, known bool, attr, value string) {
	if value == "" || r.Attrs.Get(attr) != "" {
		return
	}
	if known {
		c.differ(Difference{Verb: Changed, Resource: r.ID, Kind: r.Kind, Attr: attr, Agent: value})
	}
	c.set(r, attr, value)
}

// identify brings what tells a thing from others. What the inventory says otherwise, or of
// another thing, is a conflict.
func (c *comparison) identify(r schemas.Resource, known bool, attr, value string) {
	if !cmdb.Identifies(value) {
		return
	}
	was := r.Attrs.Get(attr)
	if was != "" && normal(was) == normal(value) {
		return
	}
	d := Difference{Verb: Changed, Resource: r.ID, Kind: r.Kind, Attr: attr, Inventory: was, Agent: value}
	if was != "" {
		d.Verb, d.Reason, d.Why = Conflict, ReasonDiffers, fmt.Sprintf("The inventory has %s %s here, the agent finds %s.", attr, was, value)
	}
	// Boards carry several GPUs under one number, and an address is of its server alone.
	shared := attr == schemas.AttrPCI || r.Kind == schemas.KindGPU && attr == schemas.AttrSerial
	if !shared {
		if others := c.elsewhere(r, attr, value); len(others) > 0 {
			d.Verb, d.Reason, d.Others = Conflict, ReasonElsewhere, others[:min(3, len(others))]
			d.Why = strings.TrimSpace(d.Why + fmt.Sprintf(" In the inventory %s is that of %s.", value, strings.Join(d.Others, ", ")))
		}
	}
	if known || d.Verb == Conflict {
		c.differ(d)
	}
	c.set(r, attr, value)
}

// elsewhere returns other resources of the kind that have an identity, in the inventory.
func (c *comparison) elsewhere(r schemas.Resource, attr, value string) (out []string) {
	for _, id := range c.snap.Find(value) {
		other, _ := c.snap.Resource(id)
		if id != r.ID && other.Kind == r.Kind && normal(other.Attrs.Get(attr)) == normal(value) {
			out = append(out, id)
		}
	}
	return out
}

// parts compares the parts of a kind.
func (c *comparison) parts(kind string, all []Part) {
	macs, uuids := twice(all, func(p *Part) string { return p.MAC }), twice(all, func(p *Part) string { return p.UUID })
	for _, part := range all {
		if !cmdb.Identifies(part.Serial) {
			part.Serial = ""
		}
		if strings.Trim(normal(part.MAC), "0") == "" || macs[normal(part.MAC)] {
			part.MAC = "" // interfaces that are bonded tell that of the bond
		}
		shared := ""
		if uuids[normal(part.UUID)] {
			shared, part.UUID = part.UUID, ""
		}
		c.part(kind, &part, shared)
	}
}

// part compares a part with the one of the inventory that it is, by its address, by what
// its maker wrote into it, or by its name. shared is a UUID that the agent tells of others too.
func (c *comparison) part(kind string, part *Part, shared string) {
	if cmp.Or(part.Serial, part.UUID, part.PCI, part.MAC) == "" {
		return // nothing tells it from others
	}
	r, known := c.find(kind, part)
	if !known {
		r = schemas.Resource{ID: c.p.Server + "/" + part.Name, Kind: kind, Parent: c.p.Server}
		if taken, there := c.snap.Resource(r.ID); there {
			c.differ(Difference{
				Verb: Conflict, Resource: r.ID, Kind: kind, Inventory: taken.Kind, Agent: kind, Why: "In the inventory this is something else.",
				Reason: ReasonKind,
			})
			return
		}
		c.differ(Difference{Verb: Added, Resource: r.ID, Kind: kind, Agent: cmp.Or(part.UUID, part.Serial, part.MAC, part.PCI)})
		c.set(r, "", "")
	}
	if kind == schemas.KindNIC {
		c.nics[part.Name] = r.ID
	}
	c.met[r.ID] = true
	if shared != "" {
		c.differ(Difference{
			Verb: Conflict, Resource: r.ID, Kind: kind, Attr: schemas.AttrUUID, Inventory: r.Attrs.Get(schemas.AttrUUID), Agent: shared,
			Why: "The agent tells this UUID of more than one part.", Reason: ReasonTwice,
		})
	}
	c.identify(r, known, schemas.AttrSerial, part.Serial)
	c.identify(r, known, schemas.AttrUUID, part.UUID)
	c.identify(r, known, schemas.AttrMAC, part.MAC)
	c.identify(r, known, schemas.AttrPCI, part.PCI)
	c.fill(r, known, schemas.AttrModel, part.Model)
	if known && (kind == schemas.KindNIC || kind == schemas.KindDisk) {
		c.called(r, part.Name)
	}
}

// called brings the name of an interface or a disk that its system and the kernel's log give it,
// and by which the inventory does not find it. One that another part has is left there.
func (c *comparison) called(r schemas.Resource, name string) {
	if id, found := c.snap.Resolve(c.p.Server, r.Kind, name); found {
		other, _ := c.snap.Resource(id)
		if id == r.ID || strings.HasSuffix(id, "/"+name) || slices.Contains(strings.Split(other.Attrs.Get(schemas.AttrAliases), ","), name) {
			return
		}
	}
	had := r.Attrs.Get(schemas.AttrAliases)
	aliases := strings.TrimPrefix(had+","+name, ",")
	c.differ(Difference{Verb: Changed, Resource: r.ID, Kind: r.Kind, Attr: schemas.AttrAliases, Inventory: had, Agent: aliases})
	c.set(r, schemas.AttrAliases, aliases)
}

func (c *comparison) find(kind string, part *Part) (schemas.Resource, bool) {
	by := func(attr, value string) (schemas.Resource, bool) {
		at := slices.IndexFunc(c.own, func(r schemas.Resource) bool {
			return r.Kind == kind && value != "" && !c.met[r.ID] && normal(r.Attrs.Get(attr)) == normal(value)
		})
		if at < 0 {
			return schemas.Resource{}, false
		}
		return c.own[at], true
	}
	for _, f := range []struct{ attr, value string }{
		{schemas.AttrPCI, part.PCI}, {schemas.AttrUUID, part.UUID}, {schemas.AttrMAC, part.MAC}, {schemas.AttrSerial, part.Serial},
	} {
		if kind == schemas.KindGPU && f.attr == schemas.AttrSerial {
			continue
		}
		if r, ok := by(f.attr, f.value); ok {
			return r, true
		}
	}
	if kind == schemas.KindGPU || kind == schemas.KindNVSwitch { // the others are counted in many ways
		if id, ok := c.snap.Resolve(c.p.Server, kind, part.Name); ok && c.p.Known && !c.met[id] {
			r, _ := c.snap.Resource(id)
			return r, true
		}
	}
	r, ok := c.snap.Resource(c.p.Server + "/" + part.Name)
	return r, ok && r.Kind == kind && !c.met[r.ID]
}

// cable compares a cable that both its ends know.
func (c *comparison) cable(n Neighbor) {
	nic, port := c.nics[n.Interface], c.port(n)
	if nic == "" || port == "" {
		return
	}
	other := func(at string) (out []string, same bool) {
		for _, l := range c.snap.Links(at) {
			if l.Kind != schemas.LinkNetwork {
				continue
			}
			end := l.To
			if end == at {
				end = l.From
			}
			if pair := []string{at, end}; slices.Contains(pair, nic) && slices.Contains(pair, port) || end == c.p.Server {
				same = true
			} else {
				out = append(out, end)
			}
		}
		return out, same
	}
	fromNIC, same := other(nic)
	fromPort, also := other(port)
	if same || also {
		return
	}
	d := Difference{Verb: Added, Resource: nic, Kind: schemas.LinkNetwork, Agent: port}
	switch {
	case len(fromNIC) > 0:
		d.Verb, d.Reason, d.Inventory, d.Others = Conflict, ReasonMoved, strings.Join(fromNIC, ", "), fromNIC
		d.Why = fmt.Sprintf("The inventory has its cable in %s, LLDP says %s.", d.Inventory, port)
	case len(fromPort) > 0:
		d.Verb, d.Reason, d.Inventory, d.Others = Conflict, ReasonTaken, strings.Join(fromPort, ", "), fromPort
		d.Why = fmt.Sprintf("In the inventory the cable of %s goes to %s, LLDP says that it comes here.", port, d.Inventory)
	}
	c.differ(d)
	r, known := c.snap.Resource(nic)
	if !known {
		r = *c.put[nic]
	}
	c.set(r, "", "")
	c.p.Fragment.Links = append(c.p.Fragment.Links, schemas.Link{From: port, To: nic, Kind: schemas.LinkNetwork})
}

// port is the port of a switch of the inventory that a neighbour is, or "".
func (c *comparison) port(n Neighbor) string {
	short, _, _ := strings.Cut(n.System, ".")
	for _, name := range []string{n.System, short} {
		if name == "" {
			continue
		}
		for _, id := range c.snap.Find(name) {
			if r, _ := c.snap.Resource(id); r.Kind != schemas.KindSwitch {
				continue
			}
			for _, port := range []string{n.Port, n.PortDescription} {
				if found, ok := c.snap.Resolve(id, schemas.KindPort, port); ok {
					return found
				}
			}
		}
	}
	return ""
}

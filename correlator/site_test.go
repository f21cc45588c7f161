package correlator

import (
	"fmt"
	"strings"

	"auspex/schemas"
)

// shape is what a site is built like; a zero field is none of that part.
type shape struct {
	name    string
	opaque  bool // ids say nothing
	racks   int
	servers int // in a rack
	feeds   int // PDUs of a rack; 0: the inventory knows nothing of power
	psus    int // of a server
	dimms, disks, fans,
	gpus, nvswitches, nics int // of a server
	leaves  int  // of a rack
	spines  int  // each linked with every leaf
	mgmt    bool // a management switch for each rack, to the board controllers
	oneFeed bool // which hangs on the first feed alone
	row     int  // racks that hang on one air unit
	rowAir  bool // the air unit cools the row, and the racks are in it
}

// site is an inventory of a shape, and where its parts are.
type site struct {
	shape
	*schemas.Topology
	ids map[string]string
}

// id returns the resource's id of a readable name.
func (s *site) id(format string, args ...any) string {
	name := fmt.Sprintf(format, args...)
	id, ok := s.ids[name]
	if !ok {
		panic("no " + name)
	}
	return id
}

func (s *site) host(r, h int) string { return s.id("s%d.%d", r, h) }

// build lays out the inventory. Racks, servers and parts count from 0.
func (sh shape) build() *site {
	s := &site{shape: sh, Topology: &schemas.Topology{Version: 1}, ids: map[string]string{}}
	add := func(name, kind, parent string, attrs ...string) string {
		id := name
		if sh.opaque {
			id = fmt.Sprintf("n%05x", (len(s.ids)*40503+77)&0xfffff)
		}
		s.ids[name] = id
		r := schemas.Resource{ID: id, Kind: kind}
		if parent != "" {
			r.Parent = s.id("%s", parent)
		}
		for i := 0; i+1 < len(attrs); i += 2 {
			r.Attrs = map[string]string{attrs[i]: attrs[i+1]}
		}
		s.Resources = append(s.Resources, r)
		return name
	}
	tie := func(kind, from, to string) {
		s.Links = append(s.Links, schemas.Link{From: s.id("%s", from), To: s.id("%s", to), Kind: kind})
	}
	add("dc", schemas.KindSite, "")
	for i := range sh.spines {
		add(fmt.Sprintf("spine%d", i), schemas.KindSwitch, "dc", schemas.AttrTier, "spine")
	}
	for r := range sh.racks {
		in := "dc"
		if sh.row > 0 {
			row := fmt.Sprintf("row%d", r/sh.row)
			air := fmt.Sprintf("air%d", r/sh.row)
			if r%sh.row == 0 {
				add(row, "row", "dc")
				add(air, schemas.KindCRAC, "dc")
				if sh.rowAir {
					tie(schemas.LinkCools, air, row)
				}
			}
			in = row
		}
		rack := add(fmt.Sprintf("r%d", r), schemas.KindRack, in)
		if sh.row > 0 && !sh.rowAir {
			tie(schemas.LinkCools, fmt.Sprintf("air%d", r/sh.row), rack)
		}
		for f := range sh.feeds {
			add(fmt.Sprintf("pdu%d.%d", r, f), schemas.KindPDU, rack, schemas.AttrFeed, string(rune('A'+f)))
		}
		fed := func(dev string, n int) {
			for k := range n {
				psu := add(fmt.Sprintf("%s/psu%d", dev, k), schemas.KindPSU, dev)
				if sh.feeds > 0 {
					tie(schemas.LinkPowers, fmt.Sprintf("pdu%d.%d", r, k%sh.feeds), psu)
				}
			}
		}
		for l := range sh.leaves {
			leaf := add(fmt.Sprintf("leaf%d.%d", r, l), schemas.KindSwitch, rack, schemas.AttrTier, "leaf")
			fed(leaf, max(2, sh.feeds))
			for k := range sh.spines {
				up := add(fmt.Sprintf("%s/up%d", leaf, k), schemas.KindPort, leaf)
				tie(schemas.LinkNetwork, up, add(fmt.Sprintf("spine%d/d%d.%d", k, r, l), schemas.KindPort, fmt.Sprintf("spine%d", k)))
			}
		}
		if sh.mgmt {
			m := add(fmt.Sprintf("mgmt%d", r), schemas.KindSwitch, rack, schemas.AttrTier, "mgmt")
			for f := range sh.feeds {
				if f == 0 || !sh.oneFeed {
					tie(schemas.LinkPowers, fmt.Sprintf("pdu%d.%d", r, f), m)
				}
			}
		}
		for h := range sh.servers {
			host := add(fmt.Sprintf("s%d.%d", r, h), schemas.KindServer, rack)
			bmc := add(host+"/bmc", schemas.KindBMC, host)
			if sh.mgmt {
				tie(schemas.LinkNetwork, add(fmt.Sprintf("mgmt%d/e%d", r, h), schemas.KindPort, fmt.Sprintf("mgmt%d", r)), bmc)
			}
			fed(host, sh.psus)
			for _, p := range []struct {
				name, kind string
				n          int
			}{
				{"dimm", schemas.KindDIMM, sh.dimms},
				{"disk", schemas.KindDisk, sh.disks},
				{"fan", schemas.KindFan, sh.fans},
				{"cpu", schemas.KindCPU, 2},
				{"gpu", schemas.KindGPU, sh.gpus},
				{"nvswitch", schemas.KindNVSwitch, sh.nvswitches},
			} {
				for k := range p.n {
					add(fmt.Sprintf("%s/%s%d", host, p.name, k), p.kind, host)
				}
			}
			for n := range sh.nvswitches {
				for k := range sh.gpus {
					tie(schemas.LinkNVLink, fmt.Sprintf("%s/nvswitch%d", host, n), fmt.Sprintf("%s/gpu%d", host, k))
				}
			}
			for k := range sh.nics {
				nic := add(fmt.Sprintf("%s/nic%d", host, k), schemas.KindNIC, host)
				if sh.leaves > 0 {
					leaf := fmt.Sprintf("leaf%d.%d", r, k%sh.leaves)
					tie(schemas.LinkNetwork, add(fmt.Sprintf("%s/e%d.%d", leaf, h, k), schemas.KindPort, leaf), nic)
				}
			}
		}
	}
	return s
}

// portOf returns the switch's port that a network card hangs on.
func (s *site) portOf(r, h, nic int) string { return s.id("leaf%d.%d/e%d.%d", r, nic%s.leaves, h, nic) }

var (
	small = shape{
		name: "8 servers in one rack", racks: 1, servers: 8, feeds: 2, psus: 2,
		dimms: 8, disks: 2, fans: 4, gpus: 8, nvswitches: 4, nics: 2, leaves: 1, row: 1,
	}
	demo = shape{
		name: "64 servers", racks: 8, servers: 8, feeds: 2, psus: 6,
		dimms: 16, disks: 4, fans: 8, gpus: 8, nvswitches: 4, nics: 2, leaves: 1, spines: 2, row: 4,
	}
	hall = shape{
		name: "a hall of opaque ids", opaque: true, racks: 24, servers: 4, feeds: 2, psus: 4, dimms: 16, disks: 4, fans: 6, gpus: 8,
		nvswitches: 4,
		nics:       8, leaves: 2, spines: 4, mgmt: true, row: 8, rowAir: true,
	}
	four = shape{
		name: "four feeds", racks: 4, servers: 6, feeds: 4, psus: 4,
		dimms: 32, disks: 2, fans: 10, gpus: 4, nics: 4, leaves: 2, spines: 2, mgmt: true, row: 2,
	}
	lean = shape{
		name: "a management network on one feed", racks: 6, servers: 4, feeds: 2, psus: 2,
		dimms: 16, fans: 4, gpus: 8, nics: 4, leaves: 2, spines: 2, mgmt: true, oneFeed: true, row: 3,
	}
	unfed = shape{
		name: "no power links", racks: 4, servers: 8, psus: 2,
		dimms: 16, fans: 4, gpus: 8, nvswitches: 4, nics: 2, leaves: 1, spines: 2, row: 4,
	}
	oneFeed = shape{
		name: "one feed", racks: 3, servers: 10, feeds: 1, psus: 1,
		dimms: 12, fans: 4, gpus: 8, nics: 1, leaves: 1, spines: 1, row: 3,
	}
)

var shapes = []shape{small, demo, hall, four, lean, unfed, oneFeed}

// causes returns "resource fault" of incidents.
func causes(list []schemas.Incident) (out []string) {
	for _, inc := range list {
		out = append(out, inc.RootCause.Resource+" "+inc.RootCause.Fault)
	}
	return out
}

// verdict is the causes with their confidence, as a failing test prints it.
func verdict(list []schemas.Incident) string {
	var b strings.Builder
	for _, inc := range list {
		fmt.Fprintf(&b, "%s %s %.2f (%d events) %s %v\n", inc.RootCause.Resource, inc.RootCause.Fault, inc.RootCause.Confidence,
			len(inc.Events), inc.Explanation, inc.Alternatives)
	}
	return b.String()
}

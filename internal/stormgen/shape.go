package stormgen

import (
	"crypto/sha256"
	"fmt"

	"auspex/schemas"
)

// Shape is what a site is built like. A zero field is none of that part.
type Shape struct {
	Name string
	// Held marks a shape that is kept out of all tuning.
	Held bool
	// IDs says how resources are called: "" by what they are, "hex" and "uuid" so
	// that nothing can be read from them.
	IDs string

	Racks   int
	NoRacks bool // the inventory knows no racks: all is of the site
	Servers int  // in a rack
	Feeds   int  // PDUs of a rack; 0: the inventory knows nothing of power
	Panels  bool // one panel a feed and row, which the PDUs hang on
	PSUs    int  // of a server
	CPUs, DIMMs, Disks, Fans, GPUs, NVSwitches, NICs,
	PCIe int // of a server
	RackScale int // NVSwitches of a rack which join all its GPUs; then Servers are trays
	Leaves    int // of a pod
	Pod       int // racks that share leaves; 0 is 1
	Spines    int // each linked with every leaf
	Cores     int // each linked with every spine
	Mgmt      int // racks that share a management switch, for the board controllers; 0: none
	MgmtFeeds int // feeds of the management switch; 0 is all
	Row       int // racks in a row; 0: no rows
	Air       int // air units a row; 0 is 1
	RowAir    bool
	Liquid    bool // the units are coolant distribution units, which cool the servers themselves
}

// Site is an inventory with what its parts are called in a shape.
type Site struct {
	Shape
	Topology *schemas.Topology
	ids      map[string]string
}

// ID returns the resource's id of a readable name, such as s3.1/gpu0: rack 3,
// server 1. It panics where the shape has no such part.
func (s *Site) ID(format string, args ...any) string {
	name := fmt.Sprintf(format, args...)
	id, ok := s.ids[name]
	if !ok {
		panic("no " + name + " in " + s.Name)
	}
	return id
}

// Has tells whether the shape has a part of a readable name.
func (s *Site) Has(name string) bool { return s.ids[name] != "" }

// Host returns the id of a rack's server.
func (s *Site) Host(rack, server int) string { return s.ID("s%d.%d", rack, server) }

// PortOf returns the switch's port that a network card hangs on.
func (s *Site) PortOf(rack, server, nic int) string {
	return s.ID("leaf%d.%d/e%d.%d.%d", rack/s.Pod, nic%s.Leaves, rack%s.Pod, server, nic)
}

// Sized returns the shape with as many racks as hold a number of servers.
func (sh Shape) Sized(servers int) Shape {
	if servers > 0 {
		sh.Racks = max(1, (servers+sh.Servers-1)/sh.Servers)
	}
	return sh
}

func (sh Shape) call(name string, n int) string {
	switch sh.IDs {
	case "hex":
		return fmt.Sprintf("n%06x", (n*40503+77)&0xffffff)
	case "uuid":
		h := sha256.Sum256([]byte(sh.Name + name))
		return fmt.Sprintf("%x-%x-4%x-a%x-%x", h[:4], h[4:6], h[6:8], h[8:10], h[10:16])
	}
	return name
}

// Build lays out the inventory. Racks, servers and parts count from 0.
func (sh Shape) Build() *Site {
	sh.Pod, sh.Air = max(1, sh.Pod), max(1, sh.Air)
	s := &Site{Shape: sh, Topology: &schemas.Topology{Version: 1}, ids: map[string]string{}}
	t := s.Topology
	add := func(name, kind, parent string, attrs ...string) string {
		id := sh.call(name, len(s.ids))
		s.ids[name] = id
		r := schemas.Resource{ID: id, Kind: kind, Parent: s.ids[parent]}
		for i := 0; i+1 < len(attrs); i += 2 {
			r.Attrs = schemas.AttrsOf(map[string]string{attrs[i]: attrs[i+1]})
		}
		t.Resources = append(t.Resources, r)
		return name
	}
	tie := func(kind, from, to string) {
		t.Links = append(t.Links, schemas.Link{From: s.ID("%s", from), To: s.ID("%s", to), Kind: kind})
	}
	fed := func(dev string, rack, n int) {
		for k := range n {
			psu := add(fmt.Sprintf("%s/psu%d", dev, k), schemas.KindPSU, dev)
			if sh.Feeds > 0 {
				tie(schemas.LinkPowers, fmt.Sprintf("pdu%d.%d", rack, k%sh.Feeds), psu)
			}
		}
	}
	add("dc", schemas.KindSite, "")
	for i := range sh.Spines {
		add(fmt.Sprintf("spine%d", i), schemas.KindSwitch, "dc", schemas.AttrTier, "spine")
	}
	for i := range sh.Cores {
		core := add(fmt.Sprintf("core%d", i), schemas.KindSwitch, "dc", schemas.AttrTier, "core")
		for k := range sh.Spines {
			down := add(fmt.Sprintf("%s/d%d", core, k), schemas.KindPort, core)
			tie(schemas.LinkNetwork, down, add(fmt.Sprintf("spine%d/up%d", k, i), schemas.KindPort, fmt.Sprintf("spine%d", k)))
		}
	}
	for r := range sh.Racks {
		in := "dc"
		if sh.Row > 0 {
			in = sh.row(r, add, tie)
		}
		rack := in
		if !sh.NoRacks {
			rack = add(fmt.Sprintf("r%d", r), schemas.KindRack, in)
		}
		if sh.Row > 0 && !sh.RowAir && !sh.Liquid {
			for k := range sh.Air {
				tie(schemas.LinkCools, sh.unit(r, k), rack)
			}
		}
		for f := range sh.Feeds {
			pdu := add(fmt.Sprintf("pdu%d.%d", r, f), schemas.KindPDU, rack, schemas.AttrFeed, string(rune('A'+f)))
			if sh.Panels {
				tie(schemas.LinkPowers, fmt.Sprintf("panel%d.%d", r/sh.Row, f), pdu)
			}
		}
		if r%sh.Pod == 0 {
			for l := range sh.Leaves {
				leaf := add(fmt.Sprintf("leaf%d.%d", r/sh.Pod, l), schemas.KindSwitch, rack, schemas.AttrTier, "leaf")
				fed(leaf, r, max(2, sh.Feeds))
				for k := range sh.Spines {
					up := add(fmt.Sprintf("%s/up%d", leaf, k), schemas.KindPort, leaf)
					tie(schemas.LinkNetwork, up, add(fmt.Sprintf("spine%d/d%d.%d", k, r/sh.Pod, l), schemas.KindPort, fmt.Sprintf("spine%d", k)))
				}
			}
		}
		if sh.Mgmt > 0 && r%sh.Mgmt == 0 {
			m := add(fmt.Sprintf("mgmt%d", r/sh.Mgmt), schemas.KindSwitch, rack, schemas.AttrTier, "mgmt")
			for f := range sh.Feeds {
				if sh.MgmtFeeds == 0 || f < sh.MgmtFeeds {
					tie(schemas.LinkPowers, fmt.Sprintf("pdu%d.%d", r, f), m)
				}
			}
		}
		for n := range sh.RackScale {
			add(fmt.Sprintf("nvs%d.%d", r, n), schemas.KindNVSwitch, rack)
		}
		for h := range sh.Servers {
			host := add(fmt.Sprintf("s%d.%d", r, h), schemas.KindServer, rack)
			bmc := add(host+"/bmc", schemas.KindBMC, host)
			if sh.Mgmt > 0 {
				m := fmt.Sprintf("mgmt%d", r/sh.Mgmt)
				tie(schemas.LinkNetwork, add(fmt.Sprintf("%s/e%d.%d", m, r%sh.Mgmt, h), schemas.KindPort, m), bmc)
			}
			if sh.Liquid {
				for k := range sh.Air {
					tie(schemas.LinkCools, sh.unit(r, k), host)
				}
			}
			fed(host, r, sh.PSUs)
			sh.parts(host, add, tie)
			for n := range sh.RackScale {
				for k := range sh.GPUs {
					tie(schemas.LinkNVLink, fmt.Sprintf("nvs%d.%d", r, n), fmt.Sprintf("%s/gpu%d", host, k))
				}
			}
			for k := range sh.NICs {
				nic := add(fmt.Sprintf("%s/nic%d", host, k), schemas.KindNIC, host)
				if sh.PCIe > 0 {
					tie(schemas.LinkPCIe, fmt.Sprintf("%s/plx%d", host, k%sh.PCIe), nic)
				}
				if sh.Leaves > 0 {
					leaf := fmt.Sprintf("leaf%d.%d", r/sh.Pod, k%sh.Leaves)
					tie(schemas.LinkNetwork, add(fmt.Sprintf("%s/e%d.%d.%d", leaf, r%sh.Pod, h, k), schemas.KindPort, leaf), nic)
				}
			}
		}
	}
	return s
}

// unit names an air unit of a rack's row.
func (sh Shape) unit(rack, k int) string { return fmt.Sprintf("air%d", rack/sh.Row*sh.Air+k) }

// row returns the row of a rack, which it adds with the first of its racks.
func (sh Shape) row(r int, add func(name, kind, parent string, attrs ...string) string, tie func(kind, from, to string)) string {
	row := fmt.Sprintf("row%d", r/sh.Row)
	if r%sh.Row > 0 {
		return row
	}
	add(row, schemas.KindRow, "dc")
	for k := range sh.Air {
		air := add(sh.unit(r, k), schemas.KindCRAC, row)
		if sh.RowAir && !sh.Liquid {
			tie(schemas.LinkCools, air, row)
		}
	}
	if sh.Panels {
		for f := range sh.Feeds {
			add(fmt.Sprintf("panel%d.%d", r/sh.Row, f), schemas.KindPDU, row)
		}
	}
	return row
}

func (sh Shape) parts(host string, add func(name, kind, parent string, attrs ...string) string, tie func(kind, from, to string)) {
	for _, p := range []struct {
		name, kind string
		n          int
	}{
		{"cpu", schemas.KindCPU, max(2, sh.CPUs)},
		{"dimm", schemas.KindDIMM, sh.DIMMs},
		{"disk", schemas.KindDisk, sh.Disks},
		{"fan", schemas.KindFan, sh.Fans},
		{"plx", schemas.KindPCIeSwitch, sh.PCIe},
		{"gpu", schemas.KindGPU, sh.GPUs},
		{"nvswitch", schemas.KindNVSwitch, sh.NVSwitches},
	} {
		for k := range p.n {
			name := add(fmt.Sprintf("%s/%s%d", host, p.name, k), p.kind, host)
			if p.kind == schemas.KindGPU && sh.PCIe > 0 {
				tie(schemas.LinkPCIe, fmt.Sprintf("%s/plx%d", host, k%sh.PCIe), name)
			}
		}
	}
	for n := range sh.NVSwitches {
		for k := range sh.GPUs {
			tie(schemas.LinkNVLink, fmt.Sprintf("%s/nvswitch%d", host, n), fmt.Sprintf("%s/gpu%d", host, k))
		}
	}
}

// Shapes returns the shapes that there are, in a fixed order.
func Shapes() []Shape {
	return []Shape{
		{
			Name: "tiny", Racks: 1, Servers: 8, Feeds: 2, PSUs: 2,
			DIMMs: 8, Disks: 2, Fans: 4, GPUs: 8, NVSwitches: 4, NICs: 2, Leaves: 1, Row: 1,
		},
		{
			Name: "pods", Racks: 8, Servers: 8, Feeds: 2, PSUs: 6,
			DIMMs: 16, Disks: 4, Fans: 8, GPUs: 8, NVSwitches: 4, NICs: 2, PCIe: 4, Leaves: 1, Spines: 2, Row: 4,
		},
		{
			Name: "hall", IDs: "hex", Racks: 24, Servers: 4, Feeds: 2, PSUs: 4,
			DIMMs: 16, Disks: 4, Fans: 6, GPUs: 8, NVSwitches: 4, NICs: 8, PCIe: 4, Leaves: 2, Spines: 4, Mgmt: 1, Row: 8, RowAir: true,
		},
		{
			Name: "four-feeds", Racks: 4, Servers: 6, Feeds: 4, PSUs: 4,
			DIMMs: 32, Disks: 2, Fans: 10, GPUs: 4, NICs: 4, Leaves: 2, Spines: 2, Mgmt: 1, Row: 2,
		},
		{
			Name: "lean", Racks: 6, Servers: 4, Feeds: 2, PSUs: 2,
			DIMMs: 16, Disks: 2, Fans: 4, GPUs: 8, NVSwitches: 4, NICs: 4, Leaves: 2, Spines: 2, Mgmt: 1, MgmtFeeds: 1, Row: 3,
		},
		{
			Name: "unfed", Racks: 4, Servers: 8, PSUs: 2,
			DIMMs: 16, Disks: 2, Fans: 4, GPUs: 8, NVSwitches: 4, NICs: 2, Leaves: 1, Spines: 2, Row: 4,
		},
		{
			Name: "rails", Racks: 16, Servers: 4, Feeds: 2, PSUs: 6, Pod: 8, Panels: true, Air: 2,
			DIMMs: 16, Disks: 4, Fans: 6, GPUs: 8, NVSwitches: 4, NICs: 8, PCIe: 4, Leaves: 8, Spines: 4, Mgmt: 4, Row: 8,
		},
		{
			Name: "fleet", Racks: 250, Servers: 8, Feeds: 2, PSUs: 6, Pod: 2,
			DIMMs: 16, Disks: 2, Fans: 6, GPUs: 8, NVSwitches: 4, NICs: 4, Leaves: 4, Spines: 8, Mgmt: 2, Row: 10, Air: 2,
		},
		{
			Name: "one-feed", Held: true, Racks: 3, Servers: 10, Feeds: 1, PSUs: 1,
			DIMMs: 12, Disks: 1, Fans: 4, GPUs: 8, NICs: 1, Leaves: 1, Spines: 1, Row: 3,
		},
		{
			Name: "panels", Held: true, Racks: 12, Servers: 6, Feeds: 2, PSUs: 4, Panels: true, Air: 3, RowAir: true,
			DIMMs: 24, Disks: 4, Fans: 8, GPUs: 8, NVSwitches: 6, NICs: 4, PCIe: 2, Leaves: 2, Spines: 4, Cores: 2, Mgmt: 2, Row: 6,
		},
		{
			Name: "liquid", Held: true, IDs: "uuid", Racks: 6, Servers: 8, Feeds: 2, PSUs: 6, Liquid: true, Air: 1,
			DIMMs: 16, Disks: 4, Fans: 2, GPUs: 8, NVSwitches: 4, NICs: 8, PCIe: 4, Leaves: 4, Pod: 2, Spines: 4, Mgmt: 1, Row: 2,
		},
		{
			Name: "rack-scale", Held: true, Racks: 4, Servers: 18, Feeds: 2, PSUs: 2, RackScale: 18, Liquid: true, Air: 1,
			DIMMs: 16, Disks: 2, Fans: 2, GPUs: 4, NICs: 4, Leaves: 4, Pod: 2, Spines: 4, Mgmt: 1, Row: 1,
		},
		{
			Name: "no-racks", Held: true, IDs: "uuid", NoRacks: true, Racks: 5, Servers: 6, Feeds: 2, PSUs: 2,
			DIMMs: 16, Disks: 2, Fans: 4, GPUs: 8, NVSwitches: 4, NICs: 2, Leaves: 2, Spines: 2,
		},
		{
			Name: "three-tier", Held: true, IDs: "hex", Racks: 10, Servers: 8, Feeds: 3, PSUs: 3,
			DIMMs: 32, Disks: 8, Fans: 6, GPUs: 4, NICs: 2, PCIe: 2, Leaves: 1, Spines: 4, Cores: 2, Mgmt: 5, Row: 5, Air: 2,
		},
		{
			Name: "sparse", Held: true, Racks: 4, Servers: 8, GPUs: 8, NICs: 1, PSUs: 2, DIMMs: 16, Disks: 1, Fans: 4,
		},
		{
			Name: "mega", Held: true, IDs: "hex", Racks: 125, Servers: 16, Feeds: 2, PSUs: 4, Panels: true, Pod: 1,
			DIMMs: 24, Disks: 2, Fans: 4, GPUs: 8, NVSwitches: 4, NICs: 2, Leaves: 2, Spines: 8, Cores: 4, Mgmt: 1, Row: 25, RowAir: true, Air: 4,
		},
	}
}

// ShapeNamed returns the shape of a name.
func ShapeNamed(name string) (Shape, bool) {
	for _, sh := range Shapes() {
		if sh.Name == name {
			return sh, true
		}
	}
	return Shape{}, false
}

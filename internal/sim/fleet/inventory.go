package fleet

import (
	"fmt"
	"strconv"

	"auspex/schemas"
)

// Topology returns the inventory of the fleet: resources with their identity
// and links. The addresses of the devices are not in it; the caller adds them.
func (f *Fleet) Topology() schemas.Topology {
	t := schemas.Topology{Version: 1}
	add := func(id, kind, parent string, attrs map[string]string) {
		t.Resources = append(t.Resources, schemas.Resource{ID: id, Kind: kind, Parent: parent, Attrs: schemas.AttrsOf(attrs)})
	}
	link := func(kind, from, to string) {
		t.Links = append(t.Links, schemas.Link{From: from, To: to, Kind: kind})
	}
	feedName := [2]string{"A", "B"}
	add(f.cfg.Site, schemas.KindSite, "", nil)
	for _, c := range f.cracs {
		add(c.name, schemas.KindCRAC, f.cfg.Site, nil)
	}
	for _, rk := range f.racks {
		add(rk.name, schemas.KindRack, f.cfg.Site, nil)
		link(schemas.LinkCools, rk.crac.name, rk.name)
		for i, p := range rk.pdus {
			attrs := map[string]string{schemas.AttrFeed: feedName[i]}
			if f.cfg.FeedWatts > 0 {
				attrs[schemas.AttrRating] = strconv.FormatFloat(f.cfg.FeedWatts, 'f', -1, 64)
			}
			add(p.name, schemas.KindPDU, rk.name, attrs)
		}
		for _, s := range rk.servers {
			f.serverResources(s, add, link)
		}
	}
	for _, sw := range f.switches {
		parent := f.cfg.Site
		if sw.rack != nil {
			parent = sw.rack.name
		}
		add(sw.name, schemas.KindSwitch, parent, map[string]string{
			schemas.AttrTier: sw.tier, schemas.AttrModel: "AX-64x400", schemas.AttrSerial: "SW" + digest(f.cfg.Site, sw.name)[:10],
			schemas.AttrMAC: sw.mac(),
		})
		for i := range sw.psus {
			id := fmt.Sprintf("%s/psu%d", sw.name, i+1)
			add(id, schemas.KindPSU, sw.name, map[string]string{schemas.AttrFeed: feedName[i]})
			if sw.rack != nil {
				link(schemas.LinkPowers, sw.rack.pdus[i].name, id)
			}
		}
		for i := range sw.fans {
			add(fmt.Sprintf("%s/fan%d", sw.name, i+1), schemas.KindFan, sw.name, nil)
		}
		for _, p := range sw.ports { // those without a cable too, as the switch tells of them
			id := sw.name + "/" + p.Name
			add(id, schemas.KindPort, sw.name, nil)
			switch {
			case p.server != nil:
				link(schemas.LinkNetwork, id, fmt.Sprintf("%s/nic%d", p.server.name, p.nic))
			case sw.tier == "leaf" && p.peer != nil:
				link(schemas.LinkNetwork, id, p.peer.sw.name+"/"+p.peer.Name)
			}
		}
	}
	return t
}

func (f *Fleet) serverResources(s *server, add func(id, kind, parent string, attrs map[string]string), link func(kind, from, to string)) {
	add(s.name, schemas.KindServer, s.rack.name, map[string]string{
		schemas.AttrSerial: s.serial, schemas.AttrUUID: s.uuid, schemas.AttrModel: s.model,
		schemas.AttrArchitecture: schemas.ArchX86, schemas.AttrBootMode: schemas.BootUEFI,
	})
	part := func(kind, name string, attrs map[string]string) string {
		id := s.name + "/" + name
		add(id, kind, s.name, attrs)
		return id
	}
	part(schemas.KindBMC, "bmc", nil)
	for i := range cpuCount {
		part(schemas.KindCPU, fmt.Sprintf("cpu%d", i), nil)
	}
	for i := range dimmCount {
		part(schemas.KindDIMM, fmt.Sprintf("dimm%d", i), nil)
	}
	for i := range diskCount {
		k := &diskKinds[i]
		attrs := map[string]string{
			schemas.AttrSerial: s.disks[i].serial, schemas.AttrModel: k.model, schemas.AttrAliases: k.name, schemas.AttrDevice: "/dev/" + k.block,
		}
		if i == bootDisk {
			attrs[schemas.AttrBoot] = "true"
		}
		if k.pci != "" {
			attrs[schemas.AttrPCI] = k.pci
		}
		part(schemas.KindDisk, fmt.Sprintf("disk%d", i), attrs)
	}
	for i := range s.psus {
		feed := s.feedOf(i)
		id := part(schemas.KindPSU, fmt.Sprintf("psu%d", i), map[string]string{schemas.AttrFeed: [2]string{"A", "B"}[feed], schemas.AttrOutlet: outletOf(s, i)})
		link(schemas.LinkPowers, s.rack.pdus[feed].name, id)
	}
	for i := range s.fans {
		part(schemas.KindFan, fmt.Sprintf("fan%d", i+1), nil)
	}
	for i, n := range s.nics {
		attrs := map[string]string{schemas.AttrPCI: n.pci, schemas.AttrMAC: s.macs[i], schemas.AttrAliases: n.netif}
		if i == bootNIC {
			attrs[schemas.AttrBoot] = "true"
		}
		part(schemas.KindNIC, fmt.Sprintf("nic%d", i), attrs)
	}
	for i := range nvswitchCount {
		part(schemas.KindNVSwitch, fmt.Sprintf("nvswitch%d", i), map[string]string{schemas.AttrPCI: nvswitchPCI(i)})
	}
	for i := range s.gpus {
		g := &s.gpus[i]
		id := part(schemas.KindGPU, fmt.Sprintf("gpu%d", i), map[string]string{
			schemas.AttrPCI: g.pci, schemas.AttrUUID: g.uuid, schemas.AttrSerial: g.serial, schemas.AttrModel: gpuModel,
		})
		for n := range nvswitchCount {
			link(schemas.LinkNVLink, fmt.Sprintf("%s/nvswitch%d", s.name, n), id)
		}
	}
}

func nvswitchPCI(i int) string { return fmt.Sprintf("0000:%02x:00.0", 5+i) }

// Has tells whether the fleet has a resource of that id and kind.
func (f *Fleet) Has(id, kind string) bool {
	for _, r := range f.Topology().Resources {
		if r.ID == id {
			return r.Kind == kind
		}
	}
	return false
}

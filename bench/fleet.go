package bench

import (
	"fmt"
	"path/filepath"

	"auspex/schemas"
)

// Shape of the fleets that scenarios watch.
const (
	Site           = "dc1"
	ServersPerRack = 8
	GPUsPerServer  = 8
	fansPerServer  = 8
	psusPerServer  = 6
	nicsPerServer  = 2
)

// Server returns the name of the i-th server, from 0.
func Server(i int) string {
	return fmt.Sprintf("gpu-r%02d-%02d", i/ServersPerRack+1, i%ServersPerRack+1)
}

func rackName(i int) string { return fmt.Sprintf("%s-r%02d", Site, i+1) }

// GPU returns the name of GPU g of the i-th server.
func GPU(i, g int) string { return fmt.Sprintf("%s/gpu%d", Server(i), g) }

func gpuPCI(g int) string { return fmt.Sprintf("0000:%02x:00.0", 0x1b+g*0x10) }

func gpuUUID(i, g int) string {
	return fmt.Sprintf("GPU-%08x-%04x-4%03x-8%03x-%012x", 0x9e3779b1*uint32(i*GPUsPerServer+g+1), i, g, i, uint64(i)<<8|uint64(g)) //nolint:gosec // small numbers
}

// Topology returns a fleet of servers with their parts, racks, feeds, leaf
// switches and cables. With a folder, each server has a kernel log in it.
func Topology(servers int, kmsg string) schemas.Topology {
	t := schemas.Topology{Version: 1}
	add := func(id, kind, parent string, attrs map[string]string) {
		t.Resources = append(t.Resources, schemas.Resource{ID: id, Kind: kind, Parent: parent, Attrs: schemas.AttrsOf(attrs)})
	}
	link := func(kind, from, to string) {
		t.Links = append(t.Links, schemas.Link{From: from, To: to, Kind: kind})
	}
	add(Site, schemas.KindSite, "", nil)
	add("crac-1", schemas.KindCRAC, Site, nil)
	add("spine-01", schemas.KindSwitch, Site, map[string]string{schemas.AttrTier: "spine"})
	for r := range (servers + ServersPerRack - 1) / ServersPerRack {
		rack, leaf := rackName(r), fmt.Sprintf("leaf-r%02d", r+1)
		add(rack, schemas.KindRack, Site, nil)
		link(schemas.LinkCools, "crac-1", rack)
		for _, f := range []string{"a", "b"} {
			add(feed(r, f), schemas.KindPDU, rack, nil)
		}
		add(leaf, schemas.KindSwitch, rack, map[string]string{schemas.AttrTier: "leaf"})
		for p := range ServersPerRack * nicsPerServer {
			add(fmt.Sprintf("%s/Ethernet%d", leaf, p+1), schemas.KindPort, leaf, nil)
		}
		add(leaf+"/Ethernet49", schemas.KindPort, leaf, nil)
		add(fmt.Sprintf("spine-01/Ethernet%d", r+1), schemas.KindPort, "spine-01", nil)
		link(schemas.LinkNetwork, leaf+"/Ethernet49", fmt.Sprintf("spine-01/Ethernet%d", r+1))
		for i := r * ServersPerRack; i < min((r+1)*ServersPerRack, servers); i++ {
			s := Server(i)
			attrs := map[string]string{schemas.AttrModel: "DGX H100", schemas.AttrSerial: fmt.Sprintf("S%06d", i)}
			if kmsg != "" {
				attrs[schemas.AttrKmsgPath] = KernelLog(kmsg, i)
			}
			add(s, schemas.KindServer, rack, attrs)
			add(s+"/bmc", schemas.KindBMC, s, nil)
			for p := range psusPerServer {
				psu := fmt.Sprintf("%s/psu%d", s, p)
				add(psu, schemas.KindPSU, s, nil)
				link(schemas.LinkPowers, feed(r, string("ab"[p/(psusPerServer/2)])), psu)
			}
			for f := range fansPerServer {
				add(fmt.Sprintf("%s/fan%d", s, f+1), schemas.KindFan, s, nil)
			}
			for n := range nicsPerServer {
				nic := fmt.Sprintf("%s/nic%d", s, n)
				add(nic, schemas.KindNIC, s, nil)
				link(schemas.LinkNetwork, fmt.Sprintf("%s/Ethernet%d", leaf, i%ServersPerRack*nicsPerServer+n+1), nic)
			}
			add(s+"/nvswitch0", schemas.KindNVSwitch, s, nil)
			for g := range GPUsPerServer {
				add(GPU(i, g), schemas.KindGPU, s, map[string]string{schemas.AttrPCI: gpuPCI(g), schemas.AttrUUID: gpuUUID(i, g)})
				link(schemas.LinkNVLink, s+"/nvswitch0", GPU(i, g))
			}
		}
	}
	return t
}

// Alone puts each server of a topology into a site of its own, without feeds and cables, so
// that what happens to many of them at once has nothing in common.
func Alone(t schemas.Topology) schemas.Topology {
	out := schemas.Topology{Version: t.Version}
	for _, r := range t.Resources {
		switch r.Kind {
		case schemas.KindServer:
			r.Parent = "site-" + r.ID
			out.Resources = append(out.Resources, schemas.Resource{ID: r.Parent, Kind: schemas.KindSite}, r)
		case schemas.KindGPU, schemas.KindNVSwitch:
			out.Resources = append(out.Resources, r)
		}
	}
	for _, l := range t.Links {
		if l.Kind == schemas.LinkNVLink {
			out.Links = append(out.Links, l)
		}
	}
	return out
}

func feed(rack int, which string) string { return fmt.Sprintf("pdu-r%02d-%s", rack+1, which) }

// KernelLog returns the path of the kernel log of the i-th server in a folder.
func KernelLog(dir string, i int) string { return filepath.Join(dir, Server(i)+".kmsg") }

package correlator

import (
	"fmt"

	"auspex/schemas"
)

// fleet builds an inventory in the shape of the demo: racks of 8 servers with
// 8 GPUs, two feeds, a leaf switch each, two spines and two air handlers.
func fleet(racks int) *schemas.Topology {
	t := &schemas.Topology{Version: 1}
	add := func(id, kind, parent string, attrs ...string) string {
		r := schemas.Resource{ID: id, Kind: kind, Parent: parent}
		for i := 0; i+1 < len(attrs); i += 2 {
			r.Attrs = r.Attrs.With(attrs[i], attrs[i+1])
		}
		t.Resources = append(t.Resources, r)
		return id
	}
	tie := func(kind, from, to string) {
		t.Links = append(t.Links, schemas.Link{From: from, To: to, Kind: kind})
	}
	add("dc1", schemas.KindSite, "")
	for i := 1; i <= 2; i++ {
		add(fmt.Sprintf("crac-%d", i), schemas.KindCRAC, "dc1")
		add(fmt.Sprintf("spine-%02d", i), schemas.KindSwitch, "dc1", schemas.AttrTier, "spine")
	}
	for r := 1; r <= racks; r++ {
		rack := add(fmt.Sprintf("dc1-r%02d", r), schemas.KindRack, "dc1")
		tie(schemas.LinkCools, fmt.Sprintf("crac-%d", 1+r%2), rack)
		a := add(fmt.Sprintf("pdu-r%02d-a", r), schemas.KindPDU, rack, schemas.AttrFeed, "A")
		b := add(fmt.Sprintf("pdu-r%02d-b", r), schemas.KindPDU, rack, schemas.AttrFeed, "B")
		leaf := add(fmt.Sprintf("leaf-r%02d", r), schemas.KindSwitch, rack, schemas.AttrTier, "leaf")
		for k := 1; k <= 2; k++ {
			feed := []string{a, b}[k-1]
			tie(schemas.LinkPowers, feed, add(fmt.Sprintf("%s/psu%d", leaf, k), schemas.KindPSU, leaf))
			up := add(fmt.Sprintf("%s/Ethernet%d", leaf, 48+k), schemas.KindPort, leaf)
			tie(schemas.LinkNetwork, up, add(fmt.Sprintf("spine-%02d/Ethernet%d", k, r), schemas.KindPort, fmt.Sprintf("spine-%02d", k)))
		}
		for s := 1; s <= 8; s++ {
			host := add(fmt.Sprintf("gpu-r%02d-%02d", r, s), schemas.KindServer, rack)
			add(host+"/bmc", schemas.KindBMC, host)
			for k := range 6 {
				feed := a
				if k >= 3 {
					feed = b
				}
				tie(schemas.LinkPowers, feed, add(fmt.Sprintf("%s/psu%d", host, k), schemas.KindPSU, host))
			}
			for k := range 4 {
				add(fmt.Sprintf("%s/nvswitch%d", host, k), schemas.KindNVSwitch, host)
			}
			for k := range 8 {
				gpu := add(fmt.Sprintf("%s/gpu%d", host, k), schemas.KindGPU, host)
				for n := range 4 {
					tie(schemas.LinkNVLink, fmt.Sprintf("%s/nvswitch%d", host, n), gpu)
				}
				add(fmt.Sprintf("%s/fan%d", host, k+1), schemas.KindFan, host)
			}
			for k := range 2 {
				nic := add(fmt.Sprintf("%s/nic%d", host, k), schemas.KindNIC, host)
				tie(schemas.LinkNetwork, add(fmt.Sprintf("%s/Ethernet%d", leaf, (s-1)*2+1+k), schemas.KindPort, leaf), nic)
			}
		}
	}
	return t
}

package provision

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
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

// hardwareData is what a template sees as .Hardware: the parts of tink's templateHardwareData
// (v0.12.2, internal/deprecated/workflow, reconciler.go) that Auspex fills, by the same names.
type hardwareData struct {
	Disks      []string
	Interfaces []hardwareInterface
	UserData   string
	Metadata   hardwareMetadata
	VendorData string
}

type hardwareInterface struct {
	Netboot *hardwareNetboot
	DHCP    *hardwareDHCP
}

type hardwareNetboot struct{ AllowPXE, AllowWorkflow *bool }

type hardwareDHCP struct {
	MAC, Hostname, Arch, IfaceName string
	UEFI                           bool
}

type hardwareMetadata struct {
	Instance *hardwareInstance
	Facility *hardwareFacility
}

type hardwareInstance struct {
	ID, Hostname, Userdata string
	AllowPxe               bool
	Tags                   []string
	Storage                *hardwareStorage
}

type hardwareStorage struct{ Disks []*hardwareStorageDisk }

type hardwareStorageDisk struct{ Device string }

type hardwareFacility struct{ FacilityCode, PlanSlug string }

// boot is the address of the interface that boots.
func (h *hardwareData) boot() string {
	if len(h.Interfaces) == 0 {
		return ""
	}
	return h.Interfaces[0].DHCP.MAC
}

// hardwareOf is a record as a template sees it. Its first interface is the one that boots, its
// first disk the one that is installed on: where that is not known, there is none.
func hardwareOf(r *schemas.HardwareRecord) (h hardwareData) {
	allow := false
	for k := range r.Interfaces {
		n := &r.Interfaces[k]
		if n.Boot {
			allow = n.Netboot.AllowPXE
		} else if k == 0 {
			break
		}
		h.Interfaces = append(h.Interfaces, hardwareInterface{
			Netboot: &hardwareNetboot{&n.Netboot.AllowPXE, &n.Netboot.AllowWorkflow},
			DHCP:    &hardwareDHCP{MAC: n.DHCP.MAC, Hostname: n.DHCP.Hostname, Arch: n.DHCP.Arch, IfaceName: n.DHCP.IfaceName, UEFI: n.DHCP.UEFI},
		})
	}
	storage := &hardwareStorage{}
	for k := range r.Disks {
		d := &r.Disks[k]
		if k == 0 && !d.Boot {
			break
		}
		if d.Device != "" {
			h.Disks = append(h.Disks, d.Device)
			storage.Disks = append(storage.Disks, &hardwareStorageDisk{d.Device})
		}
	}
	h.UserData = r.Overrides.UserData
	tags := []string{}
	for _, k := range slices.Sorted(maps.Keys(r.Metadata.Labels)) {
		tags = append(tags, k+"="+r.Metadata.Labels[k])
	}
	h.Metadata = hardwareMetadata{
		Instance: &hardwareInstance{ID: r.ID, Hostname: r.Metadata.Hostname, Userdata: h.UserData, AllowPxe: allow, Tags: tags, Storage: storage},
		Facility: &hardwareFacility{FacilityCode: r.Metadata.Site, PlanSlug: r.Model},
	}
	return h
}

// sampleParts is how many interfaces and disks a template may count on when it is tried.
const sampleParts = 16

// sampleHardware is a server of which everything is known.
func sampleHardware(arch string) hardwareData {
	r := schemas.HardwareRecord{
		ID: "00000000-0000-4000-8000-000000000000", Name: "server-1", Model: "model",
		Metadata: schemas.HardwareMetadata{
			Hostname: "server-1", Site: "site", Rack: "rack", Pool: "default", Labels: map[string]string{"name": "value"},
		},
		Overrides: schemas.HardwareOverrides{UserData: "#cloud-config\n"},
	}
	for i := range sampleParts {
		r.Interfaces = append(r.Interfaces, schemas.HardwareInterface{Boot: i == 0, DHCP: schemas.HardwareDHCP{
			MAC: fmt.Sprintf("02:00:00:00:00:%02x", i), Hostname: "server-1", Arch: arch, UEFI: true, IfaceName: "eth" + strconv.Itoa(i),
		}})
		r.Disks = append(r.Disks, schemas.HardwareDisk{Device: fmt.Sprintf("/dev/nvme%dn1", i), Boot: i == 0})
	}
	return hardwareOf(&r)
}

// blockDevice is a name of a whole disk, as Linux gives it.
var blockDevice = regexp.MustCompile(`^(nvme\d+n\d+|sd[a-z]+|vd[a-z]+|xvd[a-z]+|hd[a-z]+|mmcblk\d+)$`)

// MAC is an EUI-48 address as Tinkerbell spells it; ok is false of anything else, such as the
// address of an InfiniBand port.
func MAC(text string) (mac string, ok bool) {
	hw, err := net.ParseMAC(strings.TrimSpace(text))
	if err != nil || len(hw) != 6 {
		return "", false
	}
	return hw.String(), true
}

// deviceOf is how a disk is called by its system, or "".
func deviceOf(r *schemas.Resource) string {
	if d := r.Attrs.Get(schemas.AttrDevice); d != "" {
		return d
	}
	last := r.ID[strings.LastIndexByte(r.ID, '/')+1:]
	for _, name := range append(strings.Split(r.Attrs.Get(schemas.AttrAliases), ","), last) {
		if blockDevice.MatchString(name) {
			return "/dev/" + name
		}
	}
	return ""
}

// interfaceName is how an interface is called by its system: its first alias without a blank.
func interfaceName(r *schemas.Resource) string {
	for name := range strings.SplitSeq(r.Attrs.Get(schemas.AttrAliases), ",") {
		if name != "" && !strings.ContainsAny(name, " /") {
			return name
		}
	}
	return r.ID[strings.LastIndexByte(r.ID, '/')+1:]
}

// addressesOf are the IP addresses of an interface; what is none is left out.
func addressesOf(r *schemas.Resource) (out []string) {
	for a := range Addresses(r) {
		out = append(out, a.String())
	}
	return out
}

// Addresses are the IP addresses that the inventory has of an interface, without a zone, and those
// of IPv4 as such.
func Addresses(r *schemas.Resource) iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		for text := range strings.SplitSeq(r.Attrs.Get(schemas.AttrIP), ",") {
			if a, err := netip.ParseAddr(strings.TrimSpace(text)); err == nil && !yield(a.Unmap().WithZone("")) {
				return
			}
		}
	}
}

// Site is where the inventory has something.
type Site interface {
	Resource(id string) (schemas.Resource, bool)
	Children(id string) []string
	Rack(id string) string
	Site(id string) string
}

var _ Site = (*cmdb.Snapshot)(nil)

// derivation makes a record.
type derivation struct {
	names Site
	r     *schemas.HardwareRecord
	parts []schemas.Resource
}

// Derive makes the record of a server out of what the inventory knows of it and what people say.
// An override always wins: a person has looked. Where the inventory says otherwise, or nothing that
// fits, the record says so. A fact that is not told is not guessed.
func Derive(names Site, v *schemas.Server, o *schemas.HardwareOverrides) schemas.HardwareRecord {
	r := schemas.HardwareRecord{
		ID: v.ID, Name: v.Name, Model: v.Model, Lacks: []string{}, Facts: []schemas.HardwareFact{}, Conflicts: []schemas.HardwareConflict{},
		Interfaces: []schemas.HardwareInterface{}, Disks: []schemas.HardwareDisk{}, Overrides: *o,
		Metadata: schemas.HardwareMetadata{Hostname: v.Name, Site: names.Site(v.Name), Rack: names.Rack(v.Name), Pool: v.Pool, Labels: v.Labels},
	}
	if r.Metadata.Labels == nil {
		r.Metadata.Labels = map[string]string{}
	}
	d := derivation{names: names, r: &r}
	server, _ := names.Resource(v.Name)
	d.walk(v.Name, 0)
	slices.SortStableFunc(d.parts, func(a, b schemas.Resource) int { return cmp.Or(len(a.ID)-len(b.ID), strings.Compare(a.ID, b.ID)) })
	d.word(schemas.FactArchitecture, server.Attrs.Get(schemas.AttrArchitecture), o.Architecture, schemas.ArchX86, schemas.ArchARM)
	d.word(schemas.FactBootMode, server.Attrs.Get(schemas.AttrBootMode), o.BootMode, schemas.BootUEFI, schemas.BootBIOS)
	d.interfaces(o)
	d.disks(o)
	d.bmc(&server, o.BMC)
	for _, f := range r.Facts {
		if f.Value == "" {
			r.Lacks = append(r.Lacks, f.Fact)
		}
	}
	r.Installable = len(r.Lacks) == 0
	return r
}

// walk gathers the parts of a server.
func (d *derivation) walk(id string, depth int) {
	for _, child := range d.names.Children(id) {
		r, _ := d.names.Resource(child)
		if r.Kind == schemas.KindServer || depth >= maxDepth {
			continue
		}
		if r.Kind == schemas.KindNIC || r.Kind == schemas.KindDisk {
			d.parts = append(d.parts, r)
		}
		d.walk(child, depth+1)
	}
}

func (d *derivation) fact(fact, value, from, inventory, why string) {
	d.r.Facts = append(d.r.Facts, schemas.HardwareFact{Fact: fact, Value: value, From: from, Inventory: inventory, Why: why})
}

func (d *derivation) conflict(fact, inventory, override, detail string) {
	d.r.Conflicts = append(d.r.Conflicts, schemas.HardwareConflict{Fact: fact, Inventory: inventory, Override: override, Detail: detail})
}

const (
	whyOverride  = "Somebody has said so, which outranks the inventory."
	whyInventory = "The inventory says so."
)

// word is a fact of a few words.
func (d *derivation) word(fact, is, said string, words ...string) {
	strange := ""
	if is != "" && !slices.Contains(words, is) {
		strange, is = is, ""
	}
	switch {
	case said != "":
		d.fact(fact, said, schemas.FromOverride, is, whyOverride)
		if is != "" && is != said {
			d.conflict(fact, is, said, "The inventory says "+is+".")
		}
	case is != "":
		d.fact(fact, is, schemas.FromInventory, "", whyInventory)
	case strange != "":
		d.fact(fact, "", schemas.FromNowhere, strange, fmt.Sprintf("The inventory says %q, which is none of %s.", strange, strings.Join(words, ", ")))
	default:
		d.fact(fact, "", schemas.FromNowhere, "", "The inventory does not say, and nobody has said it.")
	}
}

// one chooses what boots, of those of a kind whose address or device is known, out of all; why says
// by what, or why not.
func one(what string, marked []bool, named []int, all int) (at int, why string) {
	var those []int
	for _, i := range named {
		if marked[i] {
			those = append(those, i)
		}
	}
	switch {
	case len(those) == 1:
		return those[0], "The inventory marks it with boot=true."
	case len(those) > 1:
		return -1, fmt.Sprintf("The inventory marks %d %ss with boot=true.", len(those), what)
	case len(named) == 0:
		return -1, "The inventory knows no " + what + " by what it is called."
	case all == 1:
		return named[0], "It is the only " + what + "."
	}
	return -1, fmt.Sprintf("There are %d %ss, and nothing says which; mark one in the inventory with boot=true, or say it here.", all, what)
}

func (d *derivation) interfaces(o *schemas.HardwareOverrides) {
	r := d.r
	var marked []bool
	var named []int
	owner, all := map[string]bool{}, 0
	for i := range d.parts {
		p := &d.parts[i]
		mac, ok := MAC(p.Attrs.Get(schemas.AttrMAC))
		if p.Kind != schemas.KindNIC || owner[mac] {
			continue
		}
		if !ok {
			if p.Attrs.Get(schemas.AttrMAC) == "" {
				all++ // which may be the one
			}
			continue
		}
		all++
		owner[mac] = true
		named = append(named, len(r.Interfaces))
		marked = append(marked, p.Attrs.Get(schemas.AttrBoot) == "true")
		r.Interfaces = append(r.Interfaces, schemas.HardwareInterface{
			Resource: p.ID, Addresses: addressesOf(p), DHCP: schemas.HardwareDHCP{MAC: mac, IfaceName: interfaceName(p)},
		})
	}
	at, why := one("interface", marked, named, all)
	is := ""
	if at >= 0 {
		is = r.Interfaces[at].DHCP.MAC
	}
	if said, ok := MAC(o.BootMAC); ok {
		d.fact(schemas.FactBootMAC, said, schemas.FromOverride, is, whyOverride)
		at = slices.IndexFunc(r.Interfaces, func(n schemas.HardwareInterface) bool { return n.DHCP.MAC == said })
		switch {
		case at < 0:
			d.conflict(schemas.FactBootMAC, is, said, "No interface of this server has this address in the inventory.")
			r.Interfaces = append(r.Interfaces, schemas.HardwareInterface{DHCP: schemas.HardwareDHCP{MAC: said}})
			at = len(r.Interfaces) - 1
		case is != "" && is != said:
			d.conflict(schemas.FactBootMAC, is, said, why)
		}
	} else if at >= 0 {
		d.fact(schemas.FactBootMAC, is, schemas.FromInventory, "", why)
	} else {
		d.fact(schemas.FactBootMAC, "", schemas.FromNowhere, "", why)
	}
	pxe := d.policy(schemas.FactAllowPXE, o.AllowPXE, false, "A server starts from the network only while it is installed.")
	flows := d.policy(schemas.FactAllowWorkflow, o.AllowWorkflow, true, "Workflows may run on it.")
	for i := range r.Interfaces {
		n := &r.Interfaces[i].DHCP
		n.Hostname, n.Arch, n.UEFI = r.Metadata.Hostname, r.Fact(schemas.FactArchitecture), r.Fact(schemas.FactBootMode) == schemas.BootUEFI
	}
	if at < 0 {
		return
	}
	boots := r.Interfaces[at]
	boots.Boot, boots.Netboot = true, schemas.HardwareNetboot{AllowPXE: pxe, AllowWorkflow: flows}
	r.Interfaces = append([]schemas.HardwareInterface{boots}, slices.Delete(r.Interfaces, at, at+1)...)
}

func (d *derivation) policy(fact string, said *bool, usual bool, why string) bool {
	if said != nil {
		d.fact(fact, strconv.FormatBool(*said), schemas.FromOverride, "", whyOverride)
		return *said
	}
	d.fact(fact, strconv.FormatBool(usual), schemas.FromDefault, "", why)
	return usual
}

func (d *derivation) disks(o *schemas.HardwareOverrides) {
	r := d.r
	var marked []bool
	var named []int
	for i := range d.parts {
		p := &d.parts[i]
		if p.Kind != schemas.KindDisk {
			continue
		}
		device := deviceOf(p)
		if device != "" {
			named = append(named, len(r.Disks))
		}
		marked = append(marked, p.Attrs.Get(schemas.AttrBoot) == "true")
		r.Disks = append(r.Disks, schemas.HardwareDisk{
			Device: device, Resource: p.ID, Model: p.Attrs.Get(schemas.AttrModel), Serial: p.Attrs.Get(schemas.AttrSerial),
		})
	}
	at, why := one("disk", marked, named, len(r.Disks))
	is := ""
	if at >= 0 {
		is = r.Disks[at].Device
	}
	if said := o.BootDisk; said != "" {
		d.fact(schemas.FactBootDisk, said, schemas.FromOverride, is, whyOverride)
		at = slices.IndexFunc(r.Disks, func(k schemas.HardwareDisk) bool { return k.Device == said })
		switch {
		case at < 0:
			d.conflict(schemas.FactBootDisk, is, said, "No disk of this server is called so in the inventory.")
			r.Disks = append(r.Disks, schemas.HardwareDisk{Device: said})
			at = len(r.Disks) - 1
		case is != "" && is != said:
			d.conflict(schemas.FactBootDisk, is, said, why)
		}
	} else if at >= 0 {
		d.fact(schemas.FactBootDisk, is, schemas.FromInventory, "", why)
	} else {
		d.fact(schemas.FactBootDisk, "", schemas.FromNowhere, "", why)
	}
	if at < 0 {
		return
	}
	boots := r.Disks[at]
	boots.Boot = true
	r.Disks = append([]schemas.HardwareDisk{boots}, slices.Delete(r.Disks, at, at+1)...)
}

// Kinds of board controllers.
const (
	bmcRedfish = "redfish"
	bmcIPMI    = "ipmi"
)

// bmc is how the controller is reached: by Redfish where the inventory has both.
func (d *derivation) bmc(server *schemas.Resource, said *schemas.HardwareBMC) {
	is := schemas.HardwareBMC{Credential: server.Attrs.Get(schemas.AttrCredential)}
	if u, err := url.Parse(server.Attrs.Get(schemas.AttrRedfishURL)); err == nil && u.Host != "" {
		is.Address, is.Kind = u.Host, bmcRedfish
	} else if a := server.Attrs.Get(schemas.AttrIPMIIP); a != "" {
		is.Address, is.Kind = a, bmcIPMI
	}
	if said == nil {
		said = &schemas.HardwareBMC{}
	}
	for _, f := range []struct {
		fact, is, said string
		to             *string
	}{
		{schemas.FactBMCAddress, is.Address, said.Address, &d.r.BMC.Address},
		{schemas.FactBMCKind, is.Kind, said.Kind, &d.r.BMC.Kind},
		{schemas.FactBMCCredential, is.Credential, said.Credential, &d.r.BMC.Credential},
	} {
		switch {
		case f.said != "":
			*f.to = f.said
			d.fact(f.fact, f.said, schemas.FromOverride, f.is, whyOverride)
			if f.is != "" && f.is != f.said {
				d.conflict(f.fact, f.is, f.said, "The inventory says "+f.is+".")
			}
		case f.is != "":
			*f.to = f.is
			d.fact(f.fact, f.is, schemas.FromInventory, "", whyInventory)
		default:
			d.fact(f.fact, "", schemas.FromNowhere, "", "The inventory has no "+strings.ReplaceAll(f.fact, "bmc_", "")+" of its board controller, and nobody has said it.")
		}
	}
}

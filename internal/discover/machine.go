package discover

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"

	"auspex/internal/bmc/redfish"
	"auspex/schemas"
)

// machine reads what a Redfish service says of its computer into a find. Services differ in where
// they keep it: what is in one place is not looked for in the next.
type machine struct {
	c       *redfish.Client
	f       *schemas.Find
	chassis []string // of the computer
}

// lost says in the find what could not be read, the first of it.
func (m *machine) lost(what string, bad int, err error) {
	if err == nil && bad > 0 {
		err = fmt.Errorf("%d of them make no sense", bad)
	}
	if err != nil && m.f.Message == "" {
		m.f.Message = fmt.Sprintf("Not all of its %s could be read: %s", what, word(err.Error()))
	}
}

// members reads what a property of a resource refers to: a collection, or an array of links.
func (m *machine) members(ctx context.Context, o redfish.Object, key, what string) (out []redfish.Object) {
	if path := o.Link(key); path != "" {
		out, bad, err := m.c.Members(ctx, path)
		m.lost(what, bad, err)
		return out[:min(len(out), maxMembers)]
	}
	for _, l := range o.Objects(key) {
		if len(out) >= maxMembers || ctx.Err() != nil {
			return out
		}
		if l.IsLink() {
			var err error
			if l, err = m.c.Get(ctx, l.ID()); err != nil {
				m.lost(what, 0, err)
				continue
			}
		}
		out = append(out, l)
	}
	return out
}

// maxMembers bounds what is read of a collection or an array.
const maxMembers = 256

// read reads the computer, with its parts. An error is that nothing of it could be read.
func (m *machine) read(ctx context.Context, root redfish.Object) error {
	s, systems, err := m.c.Systems(ctx)
	if err != nil {
		return err
	}
	var boards []redfish.Object // a board of accelerators is a system of its own
	var others []string         // computers in the same chassis, of the same controller
	for _, x := range systems {
		switch {
		case x.ID() == s.ID():
		case redfish.IsBaseboard(x) || !redfish.Resets(x):
			boards = append(boards, x)
		default:
			others = append(others, word(x.String("Id")))
		}
	}
	if len(others) > 0 {
		boards = nil // whose they are nobody says
		m.f.Message = fmt.Sprintf("Its controller has %d computers. This is %s; %s cannot be told by the address, and must be registered by hand.",
			len(others)+1, word(s.String("Id")), strings.Join(others, ", "))
	}
	for _, l := range s.Object("Links").Objects("Chassis") {
		m.chassis = append(m.chassis, l.ID())
	}
	m.f.Hardware = schemas.Hardware{
		Manufacturer: cmp.Or(told(s.String("Manufacturer")), m.f.Manufacturer), Model: cmp.Or(told(s.String("Model")), m.f.Model),
		SerialNumber: m.serial(ctx, s, boards), UUID: told(s.String("UUID")), Hostname: word(s.String("HostName")),
		BootMode: bootModes[s.Object("Boot").String("BootSourceOverrideMode")],
	}
	if ownName.MatchString(m.f.Hostname) && m.f.SerialNumber != "" && strings.Contains(strings.ToLower(m.f.Hostname), strings.ToLower(m.f.SerialNumber)) {
		m.f.Hostname = "" // it is the controller's own name
	}
	for _, x := range append([]redfish.Object{s}, boards...) {
		m.processors(ctx, x)
	}
	if len(m.f.GPUs) == 0 {
		m.cards(ctx, root, s, len(others) == 0)
	}
	m.interfaces(ctx, s)
	m.adapters(ctx, root, s, len(others) == 0)
	byName := func(a, b schemas.FoundPart) int {
		return cmp.Or(cmp.Compare(len(a.Name), len(b.Name)), strings.Compare(a.Name, b.Name))
	}
	slices.SortFunc(m.f.GPUs, byName)
	slices.SortFunc(m.f.NICs, byName)
	return nil
}

// ownName is as makers call the controllers themselves, with the serial number.
var ownName = regexp.MustCompile(`(?i)^(xcc|imm|idrac|ilo|bmc|cimc)`)

// serviceTag is what Dell calls a machine by, where others have a serial number: it is on the label and in
// the firmware's tables, while SerialNumber is that of the board.
var serviceTag = regexp.MustCompile(`^[0-9A-Z]{7}$`)

// whole are the types of chassis that are a machine, not a part of one (DSP2046, Chassis).
var whole = []string{"Rack", "RackMount", "Blade", "Enclosure", "StandAlone", "Sled", "Shelf", "Drawer", "Card", "RackGroup"}

// serial is the serial number of a computer: its own, or that of its chassis or its board. SKU is a number
// of what is sold, which is one for many.
func (m *machine) serial(ctx context.Context, s redfish.Object, boards []redfish.Object) string {
	if sku := told(s.String("SKU")); serviceTag.MatchString(sku) && strings.HasPrefix(strings.ToLower(m.maker(s)), "dell") {
		return sku
	}
	if serial := told(s.String("SerialNumber")); serial != "" {
		return serial
	}
	for _, path := range m.chassis {
		if c, err := m.c.Get(ctx, path); err == nil && slices.Contains(whole, c.String("ChassisType")) {
			if serial := told(c.String("SerialNumber")); serial != "" {
				return serial
			}
		}
	}
	for _, b := range boards {
		if serial := told(b.String("SerialNumber")); serial != "" {
			return serial
		}
	}
	return ""
}

func (m *machine) maker(s redfish.Object) string {
	return cmp.Or(told(s.String("Manufacturer")), m.f.Manufacturer)
}

func absent(o redfish.Object) bool { return o.Object("Status").String("State") == "Absent" }

// What systems say that they start by, and what processors are (DSP0268, ComputerSystem and
// Processor), in the words of the inventory.
var (
	bootModes     = map[string]string{"UEFI": schemas.BootUEFI, "Legacy": schemas.BootBIOS}
	architectures = map[string]string{"x86-64": schemas.ArchX86, "ARM-A64": schemas.ArchARM, "x86": schemas.ArchX86, "ARM": schemas.ArchARM}
)

// processors adds the GPUs among the processors of a system, and tells what the first of its CPUs is.
func (m *machine) processors(ctx context.Context, s redfish.Object) {
	for _, p := range m.members(ctx, s, "Processors", "processors") {
		if p.String("ProcessorType") == "CPU" {
			m.f.Architecture = cmp.Or(m.f.Architecture, architectures[p.String("InstructionSet")], architectures[p.String("ProcessorArchitecture")])
		}
		if kind := p.String("ProcessorType"); kind != "GPU" && kind != "Accelerator" || absent(p) || len(m.f.GPUs) >= maxParts {
			continue
		}
		g := schemas.FoundPart{
			Name: word(p.String("Id")), Model: called(p), SerialNumber: told(p.String("SerialNumber")), UUID: told(p.String("UUID")),
		}
		if path := p.Object("Links").Link("PCIeDevice"); g.Model == "" && path != "" {
			if d, err := m.c.Get(ctx, path); err == nil {
				g.Model, g.SerialNumber = called(d), cmp.Or(g.SerialNumber, told(d.String("SerialNumber")))
			}
		}
		g.Model = cmp.Or(g.Model, told(p.String("Model")))
		m.f.GPUs = append(m.f.GPUs, g)
	}
}

// kindName is a name that tells the kind of a part, not what it is.
var kindName = regexp.MustCompile(`(?i)^(processor|gpu|accelerator|(pcie )?device|(network )?adapter( view)?)[ _-]*[0-9]*$`)

// called is what a part is called: its model, or its name where that is a number of a part or nothing.
func called(o redfish.Object) string {
	model, name := told(o.String("Model")), told(o.String("Name"))
	if model != "" && model != told(o.String("PartNumber")) {
		return model
	}
	if kindName.MatchString(name) || name == word(o.String("Id")) || name == word(o.String("Manufacturer")) {
		return model
	}
	return cmp.Or(name, model)
}

var (
	gpuMakers = regexp.MustCompile(`(?i)nvidia|advanced micro|\bamd\b|habana|intel`)
	gpuWords  = regexp.MustCompile(`(?i)\bgpu\b|tesla|geforce|quadro|\brtx\b|\b[abhlv][0-9]{2,3}[a-z]*\b|\bg[bh][0-9]00\b|instinct|\bmi[0-9]{2,3}[a-z]?\b|gaudi`)
)

// Of PCI: vendors that make GPUs.
var gpuVendors = map[string]string{"0x10de": "NVIDIA", "0x1002": "AMD", "0x1da3": "Habana", "0x8086": "Intel"}

// cards adds the GPUs among the PCIe devices, of the system or of chassis: all of them where there is one computer.
func (m *machine) cards(ctx context.Context, root, s redfish.Object, alone bool) {
	devices := m.members(ctx, s, "PCIeDevices", "PCIe devices")
	if len(devices) == 0 {
		for _, c := range m.around(ctx, root, alone) {
			devices = append(devices, m.members(ctx, c, "PCIeDevices", "PCIe devices")...)
		}
	}
	for _, d := range devices {
		if maker := word(d.String("Manufacturer")); absent(d) || maker != "" && !gpuMakers.MatchString(maker) || len(m.f.GPUs) >= maxParts {
			continue
		}
		links := d
		if d.Link("PCIeFunctions") == "" {
			links = d.Object("Links")
		}
		if !isGPU(d, m.members(ctx, links, "PCIeFunctions", "PCIe functions")) {
			continue
		}
		m.f.GPUs = append(m.f.GPUs, schemas.FoundPart{
			Name: word(d.String("Id")), Model: called(d), SerialNumber: told(d.String("SerialNumber")), UUID: told(d.String("UUID")),
		})
	}
}

// isGPU reports whether a PCIe device is a GPU: by the class of its functions, or by its name where it
// tells none. A controller's own display is none.
func isGPU(d redfish.Object, functions []redfish.Object) bool {
	classes := false
	for _, f := range functions {
		vendor := gpuVendors[strings.ToLower(f.String("VendorId"))]
		switch class := f.String("DeviceClass"); {
		case class == "":
			continue
		case class == "ProcessingAccelerators" && vendor != "", class == "DisplayController" && vendor != "" && vendor != "Intel":
			return true
		}
		classes = true
	}
	return !classes && gpuMakers.MatchString(d.String("Manufacturer")) && gpuWords.MatchString(d.String("Model")+" "+d.String("Name"))
}

// around are the chassis of the computer, and all of the service where it has no other computer.
func (m *machine) around(ctx context.Context, root redfish.Object, alone bool) (out []redfish.Object) {
	if alone {
		out = m.members(ctx, root, "Chassis", "chassis")
		first := func(c redfish.Object) int { // its own
			if slices.Contains(m.chassis, c.ID()) {
				return 0
			}
			return 1
		}
		slices.SortStableFunc(out, func(a, b redfish.Object) int { return first(a) - first(b) })
		return out
	}
	for _, path := range m.chassis {
		if c, err := m.c.Get(ctx, path); err == nil {
			out = append(out, c)
		}
	}
	return out
}

// nic adds an interface, or what is new of one that has its MAC address.
func (m *machine) nic(p schemas.FoundPart) {
	if hw, err := net.ParseMAC(p.MAC); err == nil && identifies(hw.String()) {
		p.MAC = hw.String()
	} else {
		p.MAC = ""
	}
	if i := slices.IndexFunc(m.f.NICs, func(n schemas.FoundPart) bool { return p.MAC != "" && n.MAC == p.MAC }); i >= 0 {
		n := &m.f.NICs[i]
		n.Model = cmp.Or(n.Model, p.Model)
		return
	}
	if len(m.f.NICs) < maxParts {
		m.f.NICs = append(m.f.NICs, p)
	}
}

// inner are interfaces between a computer and its controller, which have no cable.
var inner = regexp.MustCompile(`(?i)^(tomanager|tohost|(host)?usb[0-9]*)$`)

// interfaces adds what a system says of its interfaces.
func (m *machine) interfaces(ctx context.Context, s redfish.Object) {
	for _, n := range m.members(ctx, s, "EthernetInterfaces", "interfaces") {
		if absent(n) || inner.MatchString(n.String("Id")) || n.Object("Links").Link("HostInterface") != "" {
			continue
		}
		p := schemas.FoundPart{Name: word(n.String("Id")), Model: told(n.String("Model")), MAC: cmp.Or(told(n.String("PermanentMACAddress")), told(n.String("MACAddress")))}
		if _, err := net.ParseMAC(p.MAC); err == nil {
			m.nic(p)
		}
	}
}

// adapters adds what network adapters have, with their models: those that the system names, or those of
// its chassis.
func (m *machine) adapters(ctx context.Context, root, s redfish.Object, alone bool) {
	var all []redfish.Object
	for _, n := range m.members(ctx, s, "NetworkInterfaces", "network adapters") {
		path := n.Object("Links").Link("NetworkAdapter")
		if path == "" || slices.ContainsFunc(all, func(a redfish.Object) bool { return a.ID() == path }) {
			continue
		}
		a, err := m.c.Get(ctx, path)
		if m.lost("network adapters", 0, err); err == nil {
			all = append(all, a)
		}
	}
	if len(all) == 0 {
		for _, c := range m.around(ctx, root, alone) {
			all = append(all, m.members(ctx, c, "NetworkAdapters", "network adapters")...)
		}
	}
	for _, a := range all {
		if absent(a) {
			continue
		}
		m.adapter(ctx, a)
	}
}

// adapter adds the functions of an adapter, or its ports where it tells no address of them, or itself
// where it tells neither.
func (m *machine) adapter(ctx context.Context, a redfish.Object) {
	id, model := word(a.String("Id")), called(a)
	name := func(o redfish.Object) string {
		if n := word(o.String("Id")); strings.Contains(n, id) {
			return n
		} else {
			return id + "-" + n
		}
	}
	var parts []schemas.FoundPart
	addresses := 0
	add := func(o redfish.Object, macs ...string) {
		p := schemas.FoundPart{Name: name(o), Model: model}
		for _, mac := range macs {
			if hw, err := net.ParseMAC(word(mac)); err == nil && identifies(hw.String()) {
				p.MAC = hw.String()
				addresses++
				break
			}
		}
		parts = append(parts, p)
	}
	for _, f := range m.members(ctx, a, "NetworkDeviceFunctions", "network adapters") {
		if enabled, told := f["DeviceEnabled"].(bool); told && !enabled || absent(f) {
			continue
		}
		e := f.Object("Ethernet")
		add(f, e.String("PermanentMACAddress"), e.String("MACAddress"))
	}
	if addresses == 0 {
		functions := parts
		parts = nil
		for _, key := range []string{"Ports", "NetworkPorts"} {
			for _, p := range m.members(ctx, a, key, "network adapters") {
				add(p, append(p.Object("Ethernet").Strings("AssociatedMACAddresses"), p.Strings("AssociatedNetworkAddresses")...)...)
			}
			if len(parts) > 0 {
				break
			}
		}
		if addresses == 0 && len(functions) > 0 {
			parts = functions
		}
	}
	if len(parts) == 0 {
		parts = []schemas.FoundPart{{Name: id, Model: model}}
	}
	for _, p := range parts {
		m.nic(p)
	}
}

package cmdb

import (
	"strconv"
	"strings"

	"auspex/internal/bmc/sensor"
	"auspex/schemas"
)

// device finds the parts of a server or switch by what devices call them.
type device struct {
	pci    map[string]string         // normalised address → id
	names  map[string]string         // squeezed name or alias → id
	number map[string]map[int]string // kind → number at the end of the name → id
}

func newDevice(g *graph, n *node) *device {
	d := &device{pci: map[string]string{}, names: map[string]string{}, number: map[string]map[int]string{}}
	var walk func(id string, depth int)
	walk = func(id string, depth int) {
		for _, c := range g.nodes[id].children {
			part := g.nodes[c]
			if isDevice(part.Kind) || depth > 8 {
				continue
			}
			d.add(part.Resource)
			walk(c, depth+1)
		}
	}
	walk(n.ID, 0)
	return d
}

func (d *device) add(r *schemas.Resource) {
	if p := PCI(r.Attrs.Get(schemas.AttrPCI)); p != "" {
		d.pci[p] = r.ID
	}
	name := r.ID[strings.LastIndexByte(r.ID, '/')+1:]
	for _, alias := range append(strings.Split(r.Attrs.Get(schemas.AttrAliases), ","), name) {
		if s := squeeze(alias); s != "" {
			d.names[s] = r.ID
		}
	}
	if before, _, ok := strings.Cut(strings.ToLower(name), schemas.KindDIMM); ok && sensor.Owner(before) != "" {
		return // "proc2dimm1" is no first module of the server
	}
	if n, ok := lastNumber(name); ok {
		if d.number[r.Kind] == nil {
			d.number[r.Kind] = map[int]string{}
		}
		d.number[r.Kind][n] = r.ID
	}
}

// squeeze drops what spellings differ in: case, blanks and punctuation. The
// slash and the dot stay: they tell Ethernet1/1 from Ethernet11.
func squeeze(s string) string {
	var b strings.Builder
	for _, c := range strings.ToLower(s) {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '/' || c == '.' {
			b.WriteRune(c)
		}
	}
	return b.String()
}

func lastNumber(s string) (int, bool) {
	i := len(s)
	for i > 0 && s[i-1] >= '0' && s[i-1] <= '9' {
		i--
	}
	n, err := strconv.Atoi(s[i:])
	return n, err == nil
}

// PCI normalises an address to domain:bus:device.function in lower case with a
// domain of four digits. It knows 0000:1b:00.0, 00000000:1B:00.0, 1b:00.0,
// PCI:0000:1b:00 and "(PCI:0000:1b:00.0)"; "" is no address.
func PCI(s string) string {
	s = strings.ToLower(strings.Trim(strings.TrimSpace(s), "()"))
	s = strings.TrimPrefix(s, "pci:")
	s = strings.TrimPrefix(s, "pci ")
	if s == "" {
		return ""
	}
	fields := strings.Split(s, ":")
	var domain, bus, slot string
	switch len(fields) {
	case 2:
		domain, bus, slot = "0", fields[0], fields[1]
	case 3:
		domain, bus, slot = fields[0], fields[1], fields[2]
	default:
		return ""
	}
	slot, function, ok := strings.Cut(slot, ".")
	if !ok {
		function = "0"
	}
	var n [4]uint64
	for i, f := range []string{domain, bus, slot, function} {
		v, err := strconv.ParseUint(f, 16, 32)
		if err != nil {
			return ""
		}
		n[i] = v
	}
	if n[1] > 0xff || n[2] > 0x1f || n[3] > 7 {
		return ""
	}
	const hex = "0123456789abcdef"
	b := make([]byte, 0, 16)
	for shift := 28; shift >= 0; shift -= 4 {
		if shift < 16 || n[0]>>shift != 0 {
			b = append(b, hex[n[0]>>shift&0xf])
		}
	}
	b = append(b, ':', hex[n[1]>>4], hex[n[1]&0xf], ':', hex[n[2]>>4], hex[n[2]&0xf], '.', hex[n[3]])
	return string(b)
}

// ByIdentity finds a resource of a device by PCI address, and any resource by
// UUID, serial number or MAC address. An empty device finds no PCI address.
func (s *Snapshot) ByIdentity(deviceID, value string) (string, bool) {
	if value == "" {
		return "", false
	}
	if d := s.at(deviceID).device; d != nil {
		if p := PCI(value); p != "" {
			if id, ok := d.pci[p]; ok {
				return id, true
			}
		}
	}
	id, ok := s.identity[identity(value)]
	return id, ok
}

// word is what a kind of part is called in sensor and component names.
type word struct {
	text string
	kind string
}

// The words for parts, the longer ones first: of two that fit at the same place
// the longer one is meant.
var words = []word{
	{"powersupply", schemas.KindPSU},
	{"pcieswitch", schemas.KindPCIeSwitch},
	{"nvswitch", schemas.KindNVSwitch},
	{"ethernet", schemas.KindPort},
	{"processor", schemas.KindCPU},
	{"memory", ""}, // "GPU3 Memory Temp" is the GPU's, "Memory 3" is nobody's
	{"blower", schemas.KindFan},
	{"socket", schemas.KindCPU},
	{"drive", schemas.KindDisk},
	{"mlx5", schemas.KindNIC},
	{"nvme", schemas.KindDisk},
	{"port", schemas.KindPort},
	{"dimm", schemas.KindDIMM},
	{"disk", schemas.KindDisk},
	{"fan", schemas.KindFan},
	{"gpu", schemas.KindGPU},
	{"cpu", schemas.KindCPU},
	{"psu", schemas.KindPSU},
	{"nic", schemas.KindNIC},
	{"hca", schemas.KindNIC},
	{"hdd", schemas.KindDisk},
	{"ssd", schemas.KindDisk},
	{"ps", schemas.KindPSU},
}

// Resolve finds the part of a device that a name speaks of. The kind limits what
// it may be; "" allows all. Names are the part's own ("gpu3", "Ethernet1"), a
// bare number with a kind, or a sensor's ("PSU1 Input", "FAN_3", "GPU2 Temp").
// A number that the inventory lacks is not guessed.
func (s *Snapshot) Resolve(deviceID, kind, name string) (string, bool) {
	d := s.at(deviceID).device
	if d == nil || name == "" {
		return "", false
	}
	if id, ok := strings.CutPrefix(name, deviceID+"/"); ok {
		name = id
	}
	fits := func(id string, ok bool) (string, bool) {
		return id, ok && (kind == "" || s.at(id).Kind == kind)
	}
	if id, ok := fits(deviceID+"/"+name, s.nodes[deviceID+"/"+name] != nil); ok {
		return id, true
	}
	if id, ok := fits(d.names[squeeze(name)], d.names[squeeze(name)] != ""); ok {
		return id, true
	}
	if n, err := strconv.Atoi(strings.TrimSpace(name)); err == nil && kind != "" {
		id, ok := d.number[kind][n]
		return id, ok
	}
	return d.bySensor(kind, strings.ToLower(name))
}

// bySensor looks for a word for a kind with a number behind it. Memory modules
// come first: "CPU1 DIMM A3" is a module, though its number may be unknown.
func (d *device) bySensor(kind, name string) (string, bool) {
	if strings.Contains(name, "dimm") && (kind == "" || kind == schemas.KindDIMM) {
		at := strings.Index(name, "dimm")
		n, ok := numberAfter(name, at+len("dimm"))
		if sensor.Owner(strings.ReplaceAll(name[:at], "_", " ")) != "" && len(d.number[schemas.KindCPU]) != 1 {
			return "", false // the first module of a processor is not the first of the server
		}
		id := d.number[schemas.KindDIMM][n]
		return id, ok && id != ""
	}
	squeezed := strings.ReplaceAll(name, "power supply", "powersupply")
	squeezed = strings.ReplaceAll(squeezed, "pcie switch", "pcieswitch")
	for i := 0; i < len(squeezed); i++ {
		if !isLetter(squeezed[i]) || i > 0 && isLetter(squeezed[i-1]) {
			continue
		}
		for _, w := range words {
			if w.kind == "" || !strings.HasPrefix(squeezed[i:], w.text) || kind != "" && w.kind != kind {
				continue
			}
			end := i + len(w.text)
			if end < len(squeezed) && isLetter(squeezed[end]) {
				continue // "psychrometer" is no power supply
			}
			if n, ok := numberAfter(squeezed, end); ok {
				if id := d.number[w.kind][n]; id != "" {
					return id, true
				}
			}
			break
		}
	}
	return "", false
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' }

// numberAfter reads the number that follows at once or after blanks and
// punctuation.
func numberAfter(s string, at int) (int, bool) {
	for at < len(s) && strings.IndexByte(" _-#.:", s[at]) >= 0 {
		at++
	}
	end := at
	for end < len(s) && s[end] >= '0' && s[end] <= '9' {
		end++
	}
	n, err := strconv.Atoi(s[at:end])
	return n, err == nil
}

package cmdb

import (
	"cmp"
	"iter"
	"slices"
	"strconv"
	"strings"

	"auspex/internal/bmc/sensor"
	"auspex/schemas"
)

// device finds the parts of a server or switch by what devices call them: the last that is called so.
type device struct {
	parts  []number // as they are walked
	pci    keys     // of places in parts
	names  keys     // of squeezed names and aliases
	counts []counted
}

// counted is a part by the number at the end of its name.
type counted struct {
	kind string
	n    int
	part number
}

func (c counted) compare(d counted) int {
	return cmp.Or(strings.Compare(c.kind, d.kind), cmp.Compare(c.n, d.n))
}

func newDevice(g *graph, n number) *device {
	d := &device{}
	var walk func(n number, depth int)
	walk = func(n number, depth int) {
		for part := range g.parts(n) {
			if r := g.at(part); !isDevice(r.Kind) && depth <= 8 {
				d.add(part, r)
				walk(part, depth+1)
			}
		}
	}
	walk(n, 0)
	slices.Sort(d.pci)
	slices.Sort(d.names)
	slices.SortStableFunc(d.counts, counted.compare)
	return d
}

func (d *device) add(n number, r *schemas.Resource) {
	at := count(d.parts)
	d.parts = append(d.parts, n)
	if p := PCI(r.Attrs.Get(schemas.AttrPCI)); p != "" {
		d.pci.put(hashOf(p), at)
	}
	for name := range called(r) {
		if name != "" {
			d.names.put(hashOf(name), at)
		}
	}
	name := own(r)
	if before, _, ok := strings.Cut(strings.ToLower(name), schemas.KindDIMM); ok && sensor.Owner(before) != "" {
		return // "proc2dimm1" is no first module of the server
	}
	if i, ok := lastNumber(name); ok {
		d.counts = append(d.counts, counted{r.Kind, i, n})
	}
}

// own is the name of a part within what it is part of. It may have a slash, as ports of switches do.
func own(r *schemas.Resource) string {
	if n := len(r.Parent); n > 0 && len(r.ID) > n+1 && r.ID[n] == '/' && r.ID[:n] == r.Parent {
		return r.ID[n+1:]
	}
	return r.ID[strings.LastIndexByte(r.ID, '/')+1:]
}

// called yields what a part is called, squeezed.
func called(r *schemas.Resource) iter.Seq[string] {
	return func(yield func(string) bool) {
		for alias := range strings.SplitSeq(r.Attrs.Get(schemas.AttrAliases), ",") {
			if !yield(squeeze(alias)) {
				return
			}
		}
		yield(squeeze(own(r)))
	}
}

// last is the last part that keys have under a text, and that is what is asked for, or none.
func (d *device) last(g *graph, k keys, text string, is func(*schemas.Resource) bool) number {
	found := none
	if text == "" {
		return none
	}
	for at := range k.find(hashOf(text)) {
		if n := g.now(d.parts[at]); n != none && is(g.at(n)) {
			found = n
		}
	}
	return found
}

func (d *device) byPCI(g *graph, address string) number {
	return d.last(g, d.pci, address, func(r *schemas.Resource) bool { return PCI(r.Attrs.Get(schemas.AttrPCI)) == address })
}

func (d *device) byName(g *graph, squeezed string) number {
	return d.last(g, d.names, squeezed, func(r *schemas.Resource) bool {
		for name := range called(r) {
			if name == squeezed {
				return true
			}
		}
		return false
	})
}

// byNumber is the part of a kind with a number at the end of its name, or none.
func (d *device) byNumber(g *graph, kind string, n int) number {
	i, _ := slices.BinarySearchFunc(d.counts, counted{kind: kind, n: n + 1}, counted.compare)
	if i--; i < 0 || d.counts[i].kind != kind || d.counts[i].n != n {
		return none
	}
	return g.now(d.counts[i].part)
}

// numbered is how many parts of a kind are numbered.
func (d *device) numbered(kind string) (n int) {
	for i, c := range d.counts {
		if c.kind == kind && (i == 0 || d.counts[i-1].compare(c) != 0) {
			n++
		}
	}
	return n
}

func (d *device) all(g *graph) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, n := range d.parts {
			if n = g.now(n); n != none && !yield(g.at(n).ID) {
				return
			}
		}
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
	if d := s.device(s.find(deviceID)); d != nil {
		if n := d.byPCI(s.graph, PCI(value)); n != none {
			return s.at(n).ID, true
		}
	}
	for n := range s.identified(identity(value)) { // serial numbers repeat; the first one stays
		return s.at(n).ID, true
	}
	return "", false
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
	d := s.device(s.find(deviceID))
	if d == nil || name == "" {
		return "", false
	}
	if id, ok := strings.CutPrefix(name, deviceID+"/"); ok {
		name = id
	}
	for _, n := range []number{s.find(deviceID + "/" + name), d.byName(s.graph, squeeze(name))} {
		if n != none && (kind == "" || s.at(n).Kind == kind) {
			return s.at(n).ID, true
		}
	}
	var found number
	if n, err := strconv.Atoi(strings.TrimSpace(name)); err == nil && kind != "" {
		found = d.byNumber(s.graph, kind, n)
	} else {
		found = d.bySensor(s.graph, kind, strings.ToLower(name))
	}
	if found == none {
		return "", false
	}
	return s.at(found).ID, true
}

// bySensor looks for a word for a kind with a number behind it. Memory modules
// come first: "CPU1 DIMM A3" is a module, though its number may be unknown.
func (d *device) bySensor(g *graph, kind, name string) number {
	if strings.Contains(name, "dimm") && (kind == "" || kind == schemas.KindDIMM) {
		at := strings.Index(name, "dimm")
		n, ok := numberAfter(name, at+len("dimm"))
		if sensor.Owner(strings.ReplaceAll(name[:at], "_", " ")) != "" && d.numbered(schemas.KindCPU) != 1 {
			return none // the first module of a processor is not the first of the server
		}
		if !ok {
			return none
		}
		return d.byNumber(g, schemas.KindDIMM, n)
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
				if id := d.byNumber(g, w.kind, n); id != none {
					return id
				}
			}
			break
		}
	}
	return none
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

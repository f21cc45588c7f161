package host

import (
	"path/filepath"
	"strings"
	"time"

	"auspex/internal/target"
)

// dimmAttrs are attributes of a memory module (Linux,
// Documentation/ABI/testing/sysfs-devices-edac).
var dimmAttrs = []attr{
	{"dimm_location", "location", text},
	{"dimm_mem_type", "type", text},
	{"size", "size", mebibytes},
	{"dimm_ce_count", "corrected-errors", number},
	{"dimm_ue_count", "uncorrected-errors", number},
}

// csrowAttrs are those of a row of modules, which is all that older drivers know.
var csrowAttrs = []attr{
	{"mem_type", "type", text},
	{"size_mb", "size", mebibytes},
	{"ce_count", "corrected-errors", number},
	{"ue_count", "uncorrected-errors", number},
}

// memory reads EDAC: the errors of memory by module.
type memory struct {
	m           *machine
	modules     *list
	controllers map[string]*controller
	labels      map[string]*label // by folder
	refs        [2]target.Ref
}

// label is how the slot of a module is called: by the maker of the board, and so in the
// kernel's lines.
type label struct {
	file file
	text value
	seen bool
}

// module is one that was found.
type module struct {
	name, folder string
	attrs        []attr
	label        string
}

// controller counts errors whose module it does not know.
type controller struct {
	files [2]file
	seen  bool
}

func newMemory(m *machine) source {
	return &memory{
		m: m, modules: newList(m, "/host/dimm"), controllers: map[string]*controller{}, labels: map[string]*label{},
		refs: [2]target.Ref{m.tree.Leaf("/host/memory/state/unlocated-corrected-errors"), m.tree.Leaf("/host/memory/state/unlocated-uncorrected-errors")},
	}
}

func (d *memory) read(at time.Time) {
	root := d.m.sys("devices/system/edac/mc")
	d.modules.begin()
	for _, c := range d.controllers {
		c.seen = false
	}
	for _, l := range d.labels {
		l.seen = false
	}
	var sum [2]value
	var found []module
	for _, name := range d.m.names(root) {
		folder := filepath.Join(root, name)
		if !numbered(name, "mc") {
			continue
		}
		d.controller(name, folder, &sum)
		inside := d.m.names(folder)
		n := len(found)
		if found = d.find(found, name, folder, inside, dimmAttrs, "dimm", "rank"); len(found) == n {
			found = d.find(found, name, folder, inside, csrowAttrs, "csrow")
		}
	}
	d.tell(found)
	d.forget()
	d.modules.end()
	d.modules.write(at)
	w := d.m.tree.Write(at)
	defer w.Close()
	for i, ref := range d.refs {
		sum[i].write(&w, ref)
	}
}

// find adds the modules of a controller that are called so.
func (d *memory) find(found []module, controller, folder string, inside []string, attrs []attr, prefixes ...string) []module {
	for _, name := range inside {
		for _, prefix := range prefixes {
			if numbered(name, prefix) {
				m := module{name: controller + ":" + name, folder: filepath.Join(folder, name), attrs: attrs}
				m.label = d.label(m.folder)
				found = append(found, m)
			}
		}
	}
	return found
}

// label reads how a module's slot is called; empty is unknown.
func (d *memory) label(folder string) string {
	l := d.labels[folder]
	if l == nil {
		l = &label{file: newFile(filepath.Join(folder, "dimm_label"))}
		d.labels[folder] = l
	}
	l.seen = true
	d.m.scan(&l.file, &l.text, text)
	if l.text.kind != isText {
		return ""
	}
	return l.text.s
}

// tell reads modules under the labels of their slots, where each has one of its own.
func (d *memory) tell(found []module) {
	times := make(map[string]int, len(found))
	for _, m := range found {
		times[m.label]++
	}
	for _, m := range found {
		name := m.name
		if m.label != "" && times[m.label] == 1 {
			name = m.label
		}
		if it, _ := d.modules.entry(name, m.folder, m.folder, m.attrs); it != nil {
			d.m.read(it)
		}
	}
}

// forget closes the files of what went.
func (d *memory) forget() {
	for name, c := range d.controllers {
		if !c.seen {
			d.m.shut(&c.files[0])
			d.m.shut(&c.files[1])
			delete(d.controllers, name)
		}
	}
	for folder, l := range d.labels {
		if !l.seen {
			d.m.shut(&l.file)
			delete(d.labels, folder)
		}
	}
}

// controller adds up what one controller counts.
func (d *memory) controller(name, folder string, sum *[2]value) {
	c := d.controllers[name]
	if c == nil {
		c = &controller{files: [2]file{newFile(filepath.Join(folder, "ce_noinfo_count")), newFile(filepath.Join(folder, "ue_noinfo_count"))}}
		d.controllers[name] = c
	}
	c.seen = true
	for i := range c.files {
		var v value
		if d.m.scan(&c.files[i], &v, number); v.kind == isNumber {
			sum[i].number(sum[i].n + v.n)
		}
	}
}

// numbered reports whether a name is a prefix and digits.
func numbered(name, prefix string) bool {
	digits, ok := strings.CutPrefix(name, prefix)
	return ok && digits != "" && strings.Trim(digits, "0123456789") == ""
}

func mebibytes(v *value, b []byte) error {
	if err := number(v, b); err != nil {
		return err
	}
	v.n <<= 20
	return nil
}

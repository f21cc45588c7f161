//go:build cgo

package nvml

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"auspex/internal/target"
	"auspex/schemas/yang"
)

// place is where a GPU is told in the tree. Leaves are made with their first value: a board
// without NVLinks has none.
type place struct {
	tree    *target.Tree
	path    string
	trouble string // the failure that was logged last

	name, uuid, pci, missing, stalled, count target.Ref
	named, unset                             target.Ref
	unsetWhy                                 string
	wanted                                   map[string]target.Ref
	words, leaves                            []spot
	open                                     map[uint32]bool // processes that are told
	parts                                    map[string]bool // and instances
}

// spot is a leaf of a reading.
type spot struct {
	ref  target.Ref
	made bool
}

func newPlace(t *target.Tree, path string) *place {
	leaf := func(name string) target.Ref { return t.Leaf(path + "/state/" + name) }
	p := &place{
		tree: t, path: path, words: make([]spot, len(words)), leaves: make([]spot, len(leaves)), open: map[uint32]bool{}, parts: map[string]bool{},
		name: leaf("name"), uuid: leaf("uuid"), pci: leaf("pci"), missing: leaf("missing"), unset: leaf("unset"), named: t.Leaf(path + "/config/name"), wanted: map[string]target.Ref{}, stalled: leaf("stalled"), count: leaf("processes"),
	}
	_, key, _ := strings.Cut(strings.TrimSuffix(path, "]"), "=")
	w := t.Write(time.Now())
	w.Text(p.name, key)
	w.Text(p.named, key)
	w.Close()
	return p
}

// typ is the type of a leaf beneath a GPU.
func typ(leaf string) string {
	if list, rest, ok := strings.Cut(leaf, "["); ok {
		_, rest, _ = strings.Cut(rest, "]")
		leaf = list + rest
	}
	l, ok := yang.Leaves["/gpus/gpu/"+leaf]
	if !ok {
		panic("nvml: " + leaf + " is in no module")
	}
	return l.Type
}

// types are those of the values by slot, and sums what is the sum of which.
var types, sums = func() (types []string, sums map[int][]int) {
	for _, leaf := range leaves {
		types = append(types, typ(leaf))
	}
	sums = map[int][]int{}
	for i, r := range readings {
		if r.adds != "" {
			at := slices.Index(leaves, r.adds)
			sums[at] = append(sums[at], slots[i][0])
		}
	}
	return types, sums
}()

// value returns what was read of a leaf.
func (w *worker) value(leaf string) float64 { return w.values[slices.Index(leaves, leaf)] }

// add fills in the sums that a GPU does not tell itself.
func (w *worker) add() {
	for at, parts := range sums {
		if !math.IsNaN(w.values[at]) && !w.summed[at] {
			continue
		}
		sum, some := 0.0, false
		for _, i := range parts {
			if v := w.values[i]; !math.IsNaN(v) {
				sum, some = sum+v, true
			}
		}
		if w.summed[at] = some; some {
			w.values[at] = sum
		}
	}
}

// tell writes what a worker has read.
func (p *place) tell(at time.Time, w *worker) {
	w.add()
	p.make(w)
	p.enter(at, w.processes)
	p.split(at, w.instances, w.processes)
	t := p.tree.Write(at)
	defer t.Close()
	t.Text(p.uuid, w.uuid)
	t.Text(p.pci, w.pci)
	for i, word := range w.words {
		switch s := p.words[i]; {
		case word != "":
			t.Text(s.ref, word)
		case s.made:
			t.None(s.ref)
		}
	}
	t.Bool(p.missing, false)
	t.None(p.stalled)
	t.Uint(p.count, uint64(len(w.processes)))
	for i, v := range w.values {
		s := p.leaves[i]
		switch {
		case !s.made:
		case math.IsNaN(v) || v < 0 && types[i] == "uint64":
			t.None(s.ref)
		case types[i] == "decimal64":
			t.Float(s.ref, math.Round(v*1000)/1000)
		case types[i] == "boolean":
			t.Bool(s.ref, v != 0)
		default:
			t.Uint(s.ref, uint64(v))
		}
	}
}

// make makes the leaves of values that come for the first time, and the keys of their lists.
func (p *place) make(w *worker) {
	add := func(s *spot, leaf string) {
		*s = spot{p.tree.Leaf(p.path + "/" + leaf), true}
		p.key(leaf)
	}
	for i, leaf := range leaves {
		if !p.leaves[i].made && !math.IsNaN(w.values[i]) {
			add(&p.leaves[i], leaf)
		}
	}
	for i, word := range w.words {
		if !p.words[i].made && word != "" {
			add(&p.words[i], words[i].leaf)
		}
	}
}

// key writes the leaf of a list's key, as location of ecc[location=l2].
func (p *place) key(leaf string) {
	entry, _, ok := strings.Cut(leaf, "]")
	if !ok {
		return
	}
	list, key, _ := strings.Cut(entry, "[")
	name, v, _ := strings.Cut(key, "=")
	ref := p.tree.Leaf(p.path + "/" + entry + "]/state/" + name)
	w := p.tree.Write(time.Now())
	defer w.Close()
	if yang.Leaves["/gpus/gpu/"+list+"/state/"+name].Type == "string" {
		w.Text(ref, v)
		return
	}
	n := uint64(0)
	_, _ = fmt.Sscan(v, &n)
	w.Uint(ref, n)
}

// none takes the readings away; which board it is stays.
func (p *place) none(t *target.Writer) {
	for _, s := range p.leaves {
		if s.made {
			t.None(s.ref)
		}
	}
	t.None(p.count)
}

// miss tells that the GPU was not read.
func (p *place) miss(at time.Time) {
	p.enter(at, nil)
	p.split(at, nil, nil)
	t := p.tree.Write(at)
	defer t.Close()
	p.none(&t)
	t.None(p.stalled)
	t.Bool(p.missing, true)
}

// enter tells the processes, and drops those that have left.
func (p *place) enter(at time.Time, now []process) {
	path := func(pid uint32) string { return fmt.Sprintf("%s/process[pid=%d]", p.path, pid) }
	for pid := range p.open {
		if !slices.ContainsFunc(now, func(x process) bool { return x.pid == pid }) {
			p.tree.Drop(path(pid))
			delete(p.open, pid)
		}
	}
	for _, x := range now {
		at1 := path(x.pid) + "/state/"
		leaf := func(name string) target.Ref { return p.tree.Leaf(at1 + name) }
		pid, memory, name, user, job, pod, instance := leaf("pid"), leaf("memory"), leaf("name"), leaf("user"), leaf("job"), leaf("pod"), leaf("mig")
		p.open[x.pid] = true
		t := p.tree.Write(at)
		t.Uint(pid, uint64(x.pid))
		if x.memory != unknown {
			t.Uint(memory, x.memory)
		}
		if x.name != "" {
			t.Text(name, x.name)
			t.Uint(user, uint64(x.user))
		}
		if x.job > 0 {
			t.Uint(job, uint64(x.job))
		}
		if x.pod != "" {
			t.Text(pod, x.pod)
		}
		if x.instance >= 0 {
			t.Uint(instance, uint64(x.instance))
		}
		t.Close()
	}
}

// should tells how the GPU should be.
func (p *place) should(at time.Time, of map[string]Held) {
	for leaf := range of {
		if _, made := p.wanted[leaf]; !made {
			p.wanted[leaf] = p.tree.Leaf(p.path + "/config/" + leaf)
		}
	}
	if len(p.wanted) == 0 {
		return
	}
	t := p.tree.Write(at)
	defer t.Close()
	for leaf, ref := range p.wanted {
		h, ok := of[leaf]
		watts, err := strconv.ParseFloat(h.Value, 64)
		switch {
		case !ok:
			t.None(ref)
		case typ("config/"+leaf) == "boolean":
			t.Bool(ref, h.Value == "true")
		case typ("config/"+leaf) == "decimal64" && err == nil:
			t.Float(ref, watts)
		default:
			t.Text(ref, h.Value)
		}
	}
}

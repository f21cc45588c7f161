package target

import (
	"runtime"
	"testing"
)

// Trees of one process share where their leaves are, for as long as one of them has it.
func TestTreesShareTheirPaths(t *testing.T) {
	const one, other = "/gpus/gpu[name=shared7]/state/power", "/gpus/gpu[name=shared7]/state/temperature"
	a, b := NewTree(), NewTree()
	x, y, z := a.Leaf(one), b.Leaf(one), b.Leaf(other)
	if a.leaves[x].path != b.leaves[y].path {
		t.Error("two trees have a path twice")
	}
	if b.leaves[y].path.GetElem()[1] != b.leaves[z].path.GetElem()[1] {
		t.Error("two leaves of a GPU have it twice")
	}
	a.Drop("/gpus/gpu[name=shared7]")
	runtime.GC()
	if places.have(one) == nil {
		t.Error("what one of two trees has was forgotten")
	}
	b.Drop("/gpus/gpu[name=shared7]")
	a.gone, b.gone = nil, nil
	for i := 0; places.have(one) != nil || elements.have("gpu[name=shared7]") != nil; i++ {
		if i == 100 {
			t.Fatal("what nobody has is kept")
		}
		runtime.GC()
	}
	if c := NewTree(); c.leaves != nil || c.Leaf(one) != 0 || places.have(one) == nil {
		t.Error("it does not come again")
	}
	runtime.KeepAlive(a)
	runtime.KeepAlive(b)
}

package correlator

import (
	"fmt"
	"hash/maphash"
	"testing"

	"auspex/internal/racetest"
)

// An id is known again as long as the last million others, at least, have come since, and no other is taken for it.
func TestAnEventIsKnownAgainForAMillionOthers(t *testing.T) {
	racetest.OneGoroutine(t)
	s := seen{seed: maphash.MakeSeed()}
	id := func(i int) string { return fmt.Sprintf("e%d", i) }
	const n = 3<<20 + 1000
	for i := range n {
		if s.again(id(i)) {
			t.Fatalf("%s is known before it came", id(i))
		}
		if back := i - 1<<20; back >= 0 && i%1021 == 0 && !s.again(id(back)) {
			t.Fatalf("%s is forgotten when %s comes", id(back), id(i))
		}
	}
	if s.again(id(0)) {
		t.Error("the first of three million is still known")
	}
	if held := len(s.now.at) + len(s.before.at); held > 1<<22 {
		t.Errorf("%d places are held", held)
	}
}

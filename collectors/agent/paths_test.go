package agent

import (
	"fmt"
	"sync"
	"testing"
)

// What one agent taught is known of all, and is soon found without a lock.
func TestPathsSettle(t *testing.T) {
	p := newPaths()
	const n = 500
	key := func(i int) []byte { return fmt.Appendf(nil, "/gpus/gpu\x00gpu%d/state/power", i) }
	for i := range n {
		if p.find(key(i)) != nil {
			t.Fatalf("%s is known before anybody taught it", key(i))
		}
		p.keep(key(i), &leaf{gpu: uint32(i)})
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range n {
				if l := p.find(key(i)); l == nil || l.gpu != uint32(i) {
					t.Errorf("%s: %+v", key(i), l)
				}
			}
		})
	}
	all.Wait()
	if settled := len(*p.settled.Load()); settled != n {
		t.Errorf("%d of %d are found without a lock", settled, n)
	}
	for i := n; i < 2*maxShared; i++ {
		p.keep(key(i), &leaf{})
	}
	if len(p.all) != maxShared {
		t.Errorf("%d paths are kept, and %d may be", len(p.all), maxShared)
	}
}

func BenchmarkFindOfManyAgents(b *testing.B) {
	p := newPaths()
	var keys [][]byte
	for i := range 1800 {
		keys = append(keys, fmt.Appendf(nil, "/gpus/gpu\x00gpu%d/state/leaf%d", i%8, i))
		p.keep(keys[i], &leaf{})
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			if p.find(keys[i%len(keys)]) == nil {
				b.Fail()
			}
		}
	})
}

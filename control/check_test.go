package control

import (
	"syscall"
	"testing"
	"time"

	"auspex/schemas"
)

// BenchmarkCheck measures one evaluation of all checks of a step that waits, as those of many open cases do: of a drain,
// and of the destructive step after it.
func BenchmarkCheck(b *testing.B) {
	t := newBench(b, schemas.ModeEnforce)
	c := t.controller()
	if ok, err := c.store.lead(b.Context(), true); err != nil || !ok {
		b.Fatal(ok, err)
	}
	i := incident("i1", part, "gpu.fallen_off_bus")
	t.keep(i)
	c.consider(i)
	k, err := c.newCase(b.Context(), &candidate{inc: i})
	if err != nil {
		b.Fatal(err)
	}
	p, _ := c.policyOf(k)
	if ok, err := c.store.openCase(b.Context(), t.db, k); err != nil || !ok {
		b.Fatal(ok, err)
	}
	drained := c.newAction(k, p, 0, 1, p.Ladder[0])
	drained.State = schemas.ActionDone
	if err := c.save(b.Context(), k, &drained, p.Ladder[0], time.Now(), "done"); err != nil {
		b.Fatal(err)
	}
	for rung, r := range p.Ladder[:2] {
		b.Run(r.Kind, func(b *testing.B) {
			began := used(b)
			for b.Loop() {
				rails, err := c.check(b.Context(), k, p, rung, false)
				if goes, _ := verdict(rails); err != nil || !goes {
					b.Fatal(rails, err)
				}
			}
			b.ReportMetric(float64((used(b)-began).Nanoseconds())/float64(b.N), "cpu-ns/op") // whatever else the machine does
		})
	}
}

// used is the time of all cores that this process has taken.
func used(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

package probe_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/internal/probe"
)

func TestFailuresStandTogetherByReasonAndNotByAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var probes []probe.Probe
		add := func(group, target string, err error, own ...string) {
			probes = append(probes, probe.Probe{Group: group, Target: target, Own: own, Try: func(context.Context) error { return err }})
		}
		for i := range 5 {
			add("collector redfish", fmt.Sprintf("s%d", i), fmt.Errorf("dial tcp 10.0.0.%d:443: connect: connection refused", i))
		}
		add("collector redfish", "s7", errors.New("read https://bmc7.example/redfish: credentials\nrefused"), "https://bmc7.example")
		add("collector redfish", "s8", errors.New("read https://bmc8.example/redfish: credentials refused"), "https://bmc8.example")
		add("collector redfish", "s9", nil)
		for i := range 2 { // each from a port of its own, to an address that is masked first
			host := fmt.Sprintf("10.0.1.%d", i)
			add("collector bmc", fmt.Sprintf("b%d", i), fmt.Errorf("read udp %s:%d->%s:623: refused", host, 40000+i, host), host, host+":623")
		}
		add("bus", "kafka", errors.New("read udp 127.0.0.1:5->[::1]:6: timeout"))
		probes = append(probes, probe.Probe{Group: "collector ipmi", Target: "s1", Try: func(ctx context.Context) error {
			<-ctx.Done()
			return fmt.Errorf("ask: %w", ctx.Err())
		}})
		var last, calls int
		began := time.Now()
		var got []string
		for _, r := range probe.Run(
			t.Context(), probes, probe.Bounds{Parallel: 3, Each: 7 * time.Second}, func(done, of int) { last, calls = done*100/of, calls+1 },
		) {
			summary, failures := r.Lines()
			got = append(append(got, summary), failures...)
		}
		want := []string{
			"collector redfish: 1 of 8 answer",
			"collector redfish: 5 of 8 (s0, s1, s2 and 2 more): dial tcp …: connect: connection refused",
			"collector redfish: 2 of 8 (s7, s8): read …/redfish: credentials refused",
			"collector bmc: 0 of 2 answer",
			"collector bmc: 2 of 2 (b0, b1): read udp …: refused",
			"bus: 0 of 1 answer",
			"bus: kafka: read udp …: timeout",
			"collector ipmi: 0 of 1 answer",
			"collector ipmi: s1: no answer within 7s",
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
		if last != 100 || calls != len(probes) || time.Since(began) != 7*time.Second {
			t.Errorf("progress %d %% in %d calls, %s", last, calls, time.Since(began))
		}
	})
}

func TestTriesAreBoundedInNumberAndEndWithTheirCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int64
		var probes []probe.Probe
		for i := range 50 {
			probes = append(probes, probe.Probe{Group: "g", Target: strconv.Itoa(i), Try: func(ctx context.Context) error {
				most.Store(max(most.Load(), now.Add(1)))
				defer now.Add(-1)
				<-ctx.Done()
				return ctx.Err()
			}})
		}
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		began := time.Now()
		r := probe.Run(ctx, probes, probe.Bounds{Parallel: 4, Each: 10 * time.Second}, nil)
		if most.Load() != 4 || time.Since(began) != 15*time.Second || len(r) != 1 || r[0].Tried != 50 {
			t.Errorf("%d at a time, %s, %+v", most.Load(), time.Since(began), r)
		}
	})
}

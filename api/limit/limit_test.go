package limit_test

import (
	"fmt"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"auspex/api/limit"
)

var began = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestABucketIsEmptiedAndFills(t *testing.T) {
	l := limit.New[string](2, 3, 8)
	now := began
	for range 3 {
		if ok, _ := l.Allow("a", now); !ok {
			t.Fatal("refused within the burst")
		}
	}
	if ok, wait := l.Allow("a", now); ok || wait != 500*time.Millisecond {
		t.Errorf("%v, wait %s", ok, wait)
	}
	if ok, _ := l.Allow("b", now); !ok {
		t.Error("one caller pays for another")
	}
	if ok, _ := l.Allow("a", now.Add(499*time.Millisecond)); ok {
		t.Error("too early")
	}
	if ok, _ := l.Allow("a", now.Add(500*time.Millisecond)); !ok {
		t.Error("refused after the wait that was told")
	}
	if ok, _ := l.Allow("a", now.Add(-time.Hour)); ok {
		t.Error("a clock that runs backwards gives tokens")
	}
	for range 3 {
		if ok, _ := l.Allow("a", now.Add(time.Hour)); !ok {
			t.Error("not full after an hour")
		}
	}
	if ok, _ := l.Allow("a", now.Add(time.Hour)); ok {
		t.Error("more than the burst was saved")
	}
}

func TestMemoryIsBoundedAndThoseSeenLastStay(t *testing.T) {
	l := limit.New[string](1, 1, 4)
	for _, k := range []string{"a", "b", "c", "d"} {
		l.Allow(k, began)
	}
	l.Allow("a", began) // is seen again
	l.Allow("e", began) // takes the place of b
	for k, kept := range map[string]bool{"a": true, "c": true, "d": true, "e": true} {
		if ok, _ := l.Allow(k, began); ok == kept {
			t.Errorf("%s was forgotten: %v", k, ok)
		}
	}
	if ok, _ := l.Allow("b", began); !ok {
		t.Error("b is still there")
	}
	for i := range 10_000 {
		l.Allow(strconv.Itoa(i), began)
	}
	if n := l.Len(); n != 4 {
		t.Errorf("%d keys are kept", n)
	}
}

func TestNoRateIsNoLimit(t *testing.T) {
	l := limit.New[int](0, 1, 1)
	for range 100 {
		if ok, _ := l.Allow(1, began); !ok {
			t.Fatal("refused")
		}
	}
}

func TestManyAtOnceGetNoMoreThanThereIs(t *testing.T) {
	l := limit.New[int](1, 100, 16)
	var got atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				if ok, _ := l.Allow(7, began); ok {
					got.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if got.Load() != 100 {
		t.Error(got.Load())
	}
}

func TestASourceIsANetworkInIPv6(t *testing.T) {
	for a, want := range map[string]string{
		"192.0.2.7": "192.0.2.7/32", "::ffff:192.0.2.7": "192.0.2.7/32", "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::/64", "fe80::1%eth0": "fe80::/64",
	} {
		if got := limit.Source(netip.MustParseAddr(a)).String(); got != want {
			t.Errorf("%s: %s", a, got)
		}
	}
	if none, again := limit.Source(netip.Addr{}), limit.Source(netip.Addr{}); none != again {
		t.Error("what is no address is not one source")
	}
}

func BenchmarkAllow(b *testing.B) {
	type caller struct{ token string }
	for _, tc := range []struct {
		name string
		keys int
	}{{"known", 100}, {"evicting", 8192}} {
		b.Run(tc.name, func(b *testing.B) {
			l := limit.New[caller](1e9, 1e9, 4096)
			keys := make([]caller, tc.keys)
			for i := range keys {
				keys[i] = caller{token: fmt.Sprint("token", i)}
				l.Allow(keys[i], began)
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				l.Allow(keys[i%len(keys)], began.Add(time.Duration(i)))
				i++
			}
		})
	}
}

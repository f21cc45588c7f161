package fit

import (
	"fmt"
	"runtime"
	"testing"
	"time"
)

// site is 10,000 servers with eight GPUs in racks of eight; of two in five a part is booked, and
// for one in twenty a failure is predicted.
func site(b *testing.B) *View {
	b.Helper()
	v := NewView()
	for i := range 10_000 {
		rack := fmt.Sprintf("dc1-r%04d", i/8)
		s := server(fmt.Sprintf("gpu-%s-%d", rack, i%8), rack)
		s.NVLink = fmt.Sprintf("nv%d", i/16)
		s.Labels = map[string]string{"net": "ib"}
		if i%5 < 2 {
			free(i % 7)(&s)
		}
		if i%20 == 0 {
			fan(&s)
		}
		if i%9 == 0 {
			risks(float64(i%40) / 100)(&s)
			s.Failed = from.Add(-time.Duration(i%400) * day)
		}
		if err := v.Put(s); err != nil {
			b.Fatal(err)
		}
	}
	return v
}

func BenchmarkChoose(b *testing.B) {
	v := site(b)
	for name, w := range map[string]Wish{
		"one":     {Servers: 1},
		"gpus":    {GPUs: 2, Model: "H100*", MinMemoryGB: 80, Labels: map[string]string{"net": "ib"}, Pool: "default"},
		"gang":    {Servers: 64, Spread: []Spread{{Racks, .05}, {Feeds, .05}}},
		"rack":    {Servers: 6, Together: Rack},
		"nvlink":  {GPUs: 64, Together: NVLink},
		"nothing": {Servers: 12, Together: Rack},
	} {
		w.From, w.Until = from, after(7*day)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Choose(v, w); (err != nil) != (name == "nothing") {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkUpdate(b *testing.B) {
	v := site(b)
	b.ReportAllocs()
	for b.Loop() {
		if err := v.Update("gpu-dc1-r0700-3", func(s *Server) { s.Health = Warning }); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkViewBytes measures what a server costs.
func BenchmarkViewBytes(b *testing.B) {
	var before, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var v *View
	for b.Loop() {
		v = site(b)
	}
	runtime.GC()
	runtime.ReadMemStats(&now)
	b.ReportMetric(float64(now.HeapAlloc-before.HeapAlloc)/float64(v.Len()), "B/server")
	runtime.KeepAlive(v)
}

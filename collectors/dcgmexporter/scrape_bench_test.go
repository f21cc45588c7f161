package dcgmexporter

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"auspex/collectors"
	"auspex/collectors/collectortest"
	"auspex/schemas"
)

// largePage is that of `auspex bench exporter-page`: 8 GPUs, 80 fields.
func largePage() string {
	var b strings.Builder
	for f := range 80 {
		name := fmt.Sprintf("DCGM_FI_PROF_FIELD_%d", f)
		if f < len(schemas.GPUMetrics) {
			name = schemas.GPUMetrics[f].Name
		}
		fmt.Fprintf(&b, "# HELP %s A field.\n# TYPE %s gauge\n", name, name)
		for g := range 8 {
			fmt.Fprintf(&b, "%s{gpu=\"%d\",UUID=\"GPU-00000000-0000-0000-0000-00000000000%d\",pci_bus_id=\"00000000:%02X:00.0\",device=\"nvidia%d\",modelName=\"NVIDIA H100 80GB HBM3\",Hostname=\"gpu-1\"} %d.%03d\n", name, g, g, 16+g, g, 100*f, g)
		}
	}
	return b.String()
}

// BenchmarkScrape reads a page from a server that does nothing but write it. What cpu-us/op says is the processor time of both.
func BenchmarkParsePage(b *testing.B) {
	page, now := []byte(largePage()), time.Now()
	tab := newTable(func() *collectors.Batch { return collectors.NewBatch("h", Name) })
	began := processorTime()
	for b.Loop() {
		tab.batch.Discard()
		tab.parse(page, now)
	}
	b.ReportMetric(float64((processorTime()-began).Microseconds())/float64(b.N), "cpu-us/op")
}

func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // never fails
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkScrape(b *testing.B) {
	page := strings.ReplaceAll(largePage(), "DCGM_FI_DEV_XID_ERRORS{", "X{")
	answer := fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(page), page)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				r := bufio.NewReader(c)
				for {
					if _, err := http.ReadRequest(r); err != nil {
						return
					}
					if _, err := c.Write(answer); err != nil {
						return
					}
				}
			}()
		}
	}()
	cfg := Default()
	cfg.Timeout = time.Minute
	c, err := cfg.New(target("http://"+l.Addr().String()), collectortest.Settings())
	if err != nil {
		b.Fatal(err)
	}
	x := c.(*collector).x
	if err := x.open(); err != nil {
		b.Fatal(err)
	}
	defer x.link.close()
	out := &sheets{}
	if err := x.scrape(b.Context(), out); err != nil {
		b.Fatal(err)
	}
	began := processorTime()
	for b.Loop() {
		time.Sleep(3 * time.Millisecond) // as between two pages of a fleet: the process sleeps and is woken
		*out = (*out)[:0]
		if err := x.scrape(b.Context(), out); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64((processorTime()-began).Microseconds())/float64(b.N), "cpu-us/op")
}

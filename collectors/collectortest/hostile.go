package collectortest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"auspex/schemas"
)

// What a device may do to whoever reads it, by the name of what it does.
var (
	hostileTCP = map[string]func(net.Conn){
		"says nothing": func(c net.Conn) { await(c) },
		"hangs up":     func(net.Conn) {},
		"answers a byte at a time": func(c net.Conn) {
			_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"))
			for {
				if _, err := c.Write([]byte("{")); err != nil {
					return
				}
				time.Sleep(50 * time.Millisecond)
			}
		},
		"never stops": func(c net.Conn) {
			_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\n\r\n" + `{"Members":[{"a":[`))
			for chunk := bytes.Repeat([]byte(`[1,1,{"a":"b"}],`), 4096); ; {
				if _, err := c.Write(chunk); err != nil {
					return
				}
			}
		},
		"nests without end": func(c net.Conn) {
			_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\n\r\n"))
			_, _ = c.Write(bytes.Repeat([]byte(`{"a":`), 1<<20))
		},
		"sends us elsewhere": func(c net.Conn) {
			_, _ = c.Write([]byte("HTTP/1.1 302 Found\r\nLocation: http://192.0.2.1/elsewhere\r\nContent-Length: 0\r\n\r\n"))
		},
		"fails": func(c net.Conn) {
			_, _ = c.Write([]byte("HTTP/1.1 500 Internal Server Error\r\nContent-Length: 4\r\n\r\noops"))
		},
		"shows a page for people": func(c net.Conn) {
			_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 31\r\n\r\n<html><body>log in</body></html>"))
		},
	}
	hostileUDP = map[string]func(in []byte) [][]byte{
		"says nothing": func([]byte) [][]byte { return nil },
		"echoes":       func(in []byte) [][]byte { return [][]byte{in} },
		"sends what is too short": func(in []byte) (out [][]byte) {
			for n := range len(in) {
				out = append(out, in[:n])
			}
			return out
		},
		"floods": func(in []byte) [][]byte {
			noise := append([]byte{0x06, 0x00, 0xff, 0x07, 0x06, 0xc0}, in...)
			return [][]byte{noise, noise[:16], noise, noise[:20], noise, noise, noise, noise}
		},
	}
)

func await(c net.Conn) {
	_, _ = c.Read(make([]byte, 1<<16))
	_, _ = c.Read(make([]byte, 1)) // until the other side hangs up
}

// hostileFor is how long a device may do its worst, and mostMemory what that may
// cost.
const (
	hostileFor = 400 * time.Millisecond
	mostMemory = 512 << 20
)

// testHostile lets a collector read devices that misbehave: it ends with an error
// or goes on, returns soon when it is told to, leaves nothing behind and takes a
// bounded amount of memory.
func (h Harness) testHostile(t *testing.T, dir string) {
	run := func(name string, listen func(t testing.TB) (addr string)) {
		t.Run(name, func(t *testing.T) {
			target := h.reach(t, h.At(listen(t)))
			before := goleak.IgnoreCurrent()
			took := h.endure(t, dir, target)
			for n := 1; n < tries && took > 2*time.Second; n++ {
				took = h.endure(t, dir, target)
			}
			if took > 2*time.Second {
				t.Errorf("Run returned %s after its end", took)
			}
			if err := leaked(append([]goleak.Option{before}, h.Ignore...)...); err != nil {
				t.Error(err)
			}
		})
	}
	if h.Datagrams {
		for name, answer := range hostileUDP {
			run(name, func(t testing.TB) string { return serveUDP(t, answer) })
		}
		return
	}
	for name, behave := range hostileTCP {
		run(name, func(t testing.TB) string { return serveTCP(t, behave) })
	}
}

// endure reads a device for a while and returns how long the end took.
func (h Harness) endure(t *testing.T, dir string, target schemas.Resource) time.Duration {
	t.Helper()
	c, err := h.config(t, dir).New(target, h.settings())
	if err != nil {
		t.Fatal(err)
	}
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	held := mem.HeapAlloc
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan time.Time, 1)
	go func() {
		var last error
		for ctx.Err() == nil {
			if err := c.Run(ctx, NewRecorder()); err != nil {
				last = err
				time.Sleep(10 * time.Millisecond)
			}
		}
		t.Logf("Run: %.200v", last)
		ended <- time.Now()
	}()
	var most uint64
	for end := time.Now().Add(hostileFor); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		runtime.ReadMemStats(&mem)
		most = max(most, mem.HeapAlloc)
	}
	if most > held+mostMemory {
		t.Errorf("reading it took %d MiB", (most-held)>>20)
	}
	stopped := time.Now()
	cancel()
	select {
	case at := <-ended:
		return at.Sub(stopped)
	case <-time.After(patience):
		t.Fatal("Run did not return after its end")
		return 0
	}
}

func serveTCP(t testing.TB, behave func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[c] = true
			mu.Unlock()
			wg.Go(func() {
				behave(c)
				_ = c.(*net.TCPConn).CloseWrite()
				_ = c.SetReadDeadline(time.Now().Add(time.Second))
				await(c)
				_ = c.Close()
				mu.Lock()
				delete(open, c)
				mu.Unlock()
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return l.Addr().String()
}

func serveUDP(t testing.TB, answer func([]byte) [][]byte) string {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for buf := make([]byte, 4096); ; {
			n, from, err := conn.ReadFrom(buf)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			for _, b := range answer(bytes.Clone(buf[:n])) {
				_, _ = conn.WriteTo(b, from)
			}
		}
	})
	t.Cleanup(func() {
		_ = conn.Close()
		wg.Wait()
	})
	return fmt.Sprint(conn.LocalAddr())
}

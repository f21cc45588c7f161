package dcgmexporter

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"auspex/collectors"
)

// pages is an exporter that counts connections and requests.
type pages struct {
	*httptest.Server
	opened, asked atomic.Int64
}

func serveCounted(t *testing.T, h http.HandlerFunc) *pages {
	p := &pages{}
	p.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.asked.Add(1)
		h(w, r)
	}))
	p.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			p.opened.Add(1)
		}
	}
	p.Start()
	t.Cleanup(p.Close)
	return p
}

func fetcher(t *testing.T, url string) *scraper {
	t.Helper()
	x := &scraper{cfg: *Default(), device: "gpu-1", url: url}
	x.cfg.Timeout = time.Minute
	if err := x.open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.link.close)
	return x
}

func TestPagesComeOverOneConnection(t *testing.T) {
	long := strings.Repeat("a 1\n", 50_000)
	for name, h := range map[string]http.HandlerFunc{
		"with a length": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", strconv.Itoa(len(long)))
			_, _ = w.Write([]byte(long))
		},
		"in chunks": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(long)) },
		"after an interim answer": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			_, _ = w.Write([]byte(long))
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := serveCounted(t, h)
			x := fetcher(t, p.URL)
			for range 3 {
				if err := x.fetch(t.Context()); err != nil || x.body.String() != long {
					t.Fatalf("%d bytes, %v", x.body.Len(), err)
				}
			}
			if p.opened.Load() != 1 || p.asked.Load() != 3 {
				t.Errorf("%d connections, %d requests", p.opened.Load(), p.asked.Load())
			}
		})
	}
}

func TestAConnectionThatWasClosedIsOpenedAnew(t *testing.T) {
	p := serveCounted(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("a 1\n")) })
	x := fetcher(t, p.URL)
	for range 3 {
		if err := x.fetch(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.CloseClientConnections()
	}
	if p.opened.Load() != 3 || p.asked.Load() != 3 {
		t.Errorf("%d connections, %d requests", p.opened.Load(), p.asked.Load())
	}
}

// Whoever says more than was asked for has the rest not taken for the next answer.
func TestBytesThatNobodyAskedForAreNoAnswer(t *testing.T) {
	var n atomic.Int64
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 4096))
			_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\na %d\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\na 9\n", n.Add(1))
			defer func() { _ = c.Close() }()
		}
	}()
	x := fetcher(t, "http://"+l.Addr().String())
	for i := range 3 {
		if err := x.fetch(t.Context()); err != nil || x.body.String() != fmt.Sprintf("a %d\n", i+1) {
			t.Fatalf("%q, %v", x.body.String(), err)
		}
	}
}

func TestWhereAnExporterSendsUs(t *testing.T) {
	var p *pages
	p = serveCounted(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/metrics":
			user, password, _ := r.BasicAuth()
			_, _ = fmt.Fprintf(w, "a{b=%q} 1\n", user+password)
		case "/moved":
			http.Redirect(w, r, "/metrics", http.StatusFound)
		case "/away":
			http.Redirect(w, r, "http://192.0.2.1/metrics", http.StatusFound)
		case "/file":
			http.Redirect(w, r, "ftp://"+p.Listener.Addr().String()+"/", http.StatusFound)
		case "/denied":
			w.WriteHeader(http.StatusForbidden)
		default:
			http.Redirect(w, r, r.URL.Path+"x", http.StatusFound)
		}
	})
	for path, want := range map[string]error{
		"/metrics": nil, "/moved": nil, "/away": collectors.ErrProtocol, "/file": collectors.ErrProtocol, "/round": collectors.ErrProtocol, "/denied": collectors.ErrAuth,
	} {
		x := fetcher(t, strings.Replace(p.URL, "http://", "http://u:p@", 1)+path)
		for range 2 {
			err := x.fetch(t.Context())
			if !errors.Is(err, want) || (err == nil) != (want == nil) {
				t.Errorf("%s: %v, want %v", path, err, want)
			}
			if path == "/metrics" && x.body.String() != "a{b=\"up\"} 1\n" {
				t.Errorf("%q", x.body.String())
			}
		}
	}
}

func TestAPageThatDoesNotComeEndsWithItsContext(t *testing.T) {
	wait := make(chan struct{})
	asked := make(chan struct{}, 4)
	p := serveCounted(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("a 1\n"))
		w.(http.Flusher).Flush()
		asked <- struct{}{}
		<-wait
	})
	defer close(wait)
	x := fetcher(t, p.URL)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	if err := x.fetch(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if err := x.fetch(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
}

func TestAnAnswerIsBounded(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"page": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 5000)) },
		"head": func(w http.ResponseWriter, _ *http.Request) {
			for i := range 4 {
				w.Header().Set(fmt.Sprint("X-", i), strings.Repeat("x", maxHead/2))
			}
		},
	} {
		p := serveCounted(t, h)
		x := fetcher(t, p.URL)
		x.cfg.MaxBody = 1024
		if err := x.fetch(t.Context()); err == nil {
			t.Errorf("%s: taken", name)
		}
		if x.body.Len() > 1025 {
			t.Errorf("%s: %d bytes", name, x.body.Len())
		}
	}
}

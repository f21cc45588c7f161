package api_test

import (
	"bufio"
	"bytes"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// cable lies between a client and a console, and breaks where the test says: what the console has
// done by then is done, and its answer is lost.
type cable struct {
	*httptest.Server
	console string

	mu     sync.Mutex
	breaks map[string][]int // by method and path: after so many bytes of each answer to come; -1 is after half of it
	at     string           // a stream breaks in the middle of the first line with this
	sent   map[string]int
}

// lays a cable to the console.
func (w *world) lays(t *testing.T) *cable {
	t.Helper()
	c := &cable{console: w.base, breaks: map[string][]int{}, sent: map[string]int{}}
	c.Server = httptest.NewServer(c)
	t.Cleanup(c.Close)
	return c
}

// cuts has the next answers to requests of a path below /api/v1 break.
func (c *cable) cuts(method, path string, after ...int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.breaks[method+" /api/v1/"+path] = after
}

// count is how often such a request was sent.
func (c *cable) count(method, path string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sent[method+" /api/v1/"+path]
}

// ServeHTTP implements [http.Handler].
func (c *cable) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	req, err := http.NewRequestWithContext(r.Context(), r.Method, c.console+r.URL.RequestURI()[1:], r.Body)
	if err != nil {
		panic(err)
	}
	req.Header, req.ContentLength = r.Header, r.ContentLength
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer func() { _ = res.Body.Close() }()
	maps.Copy(w.Header(), res.Header)
	c.mu.Lock()
	key, after, cut := r.Method+" "+r.URL.Path, 0, false
	c.sent[key]++
	if left := c.breaks[key]; len(left) > 0 {
		after, cut, c.breaks[key] = left[0], true, left[1:]
	}
	c.mu.Unlock()
	if res.Header.Get("Content-Type") == "text/event-stream" {
		w.WriteHeader(res.StatusCode)
		c.streams(w, res.Body)
		return
	}
	text, err := io.ReadAll(res.Body)
	if err != nil || cut && after == 0 {
		panic(http.ErrAbortHandler)
	}
	if cut && after < 0 {
		after = len(text) / 2
	}
	if !cut || after > len(text) {
		after = len(text)
	}
	w.WriteHeader(res.StatusCode)
	_, _ = w.Write(text[:after])
	if cut {
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

// breaksAt has the next stream break in the middle of the first line with a text.
func (c *cable) breaksAt(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = text
}

func (c *cable) streams(w http.ResponseWriter, from io.Reader) {
	lines, out := bufio.NewReader(from), http.NewResponseController(w)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		c.mu.Lock()
		at := bytes.Index(line, []byte(c.at))
		cut := c.at != "" && at >= 0
		if cut {
			line, c.at = line[:at+len(c.at)/2], ""
		}
		c.mu.Unlock()
		_, _ = w.Write(line)
		_ = out.Flush()
		if cut {
			panic(http.ErrAbortHandler)
		}
	}
}

// told is an event of the stream, or that the stream broke within it.
type told struct {
	id, event, data string
	broke           bool
}

// listens reads the stream until the test ends; when it breaks, it goes on after the last event that came whole.
func (c *cable) listens(t *testing.T, token string) <-chan told {
	t.Helper()
	out, last := make(chan told), ""
	once := func() (ends told) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.URL+"/api/v1/stream", http.NoBody)
		if err != nil {
			t.Error(err)
			return told{}
		}
		req.Header.Set("Authorization", "Bearer "+token)
		if last != "" {
			req.Header.Set("Last-Event-ID", last)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return told{broke: true}
		}
		defer func() { _ = res.Body.Close() }()
		var one told
		for s := bufio.NewScanner(res.Body); s.Scan(); {
			name, text, _ := strings.Cut(s.Text(), ": ")
			switch name {
			case "id":
				one.id = text
			case "event":
				one.event = text
			case "data":
				one.data = text
			case "":
				if one.id != "" {
					last = one.id
				}
				select {
				case out <- one:
				case <-t.Context().Done():
				}
				one = told{}
			}
		}
		one.broke = true
		return one
	}
	var reads sync.WaitGroup
	reads.Go(func() {
		for t.Context().Err() == nil {
			select {
			case out <- once():
			case <-t.Context().Done():
			}
		}
	})
	t.Cleanup(reads.Wait)
	return out
}

// until is the first that is told that is so.
func until(t *testing.T, all <-chan told, what string, is func(told) bool) told {
	t.Helper()
	for late := time.After(20 * time.Second); ; {
		select {
		case one := <-all:
			if is(one) {
				return one
			}
		case <-late:
			t.Fatalf("%s was not told", what)
		}
	}
}

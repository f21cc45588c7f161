package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// PeerAsks is a peer that asks the API.
const PeerAsks = "asks"

// Ask is a request to the API.
type Ask struct {
	Class  string // under which its latencies are counted
	Method string // "" is GET
	Path   string // below the address of the API's process
	Body   string // JSON; "" is none
	Lines  bool   // a list as lines, which are counted
	Pages  bool   // a list, all pages of it, whose items are counted as lines
	Want   int    // status; 0 is 200
	// Release deletes what the request has made, a second after it was due.
	Release bool
}

// AskOrder is a round of requests to send.
type AskOrder struct {
	N       int     // requests, or readers of the stream
	Rate    float64 // a second; 0 is one after the other
	Asks    []Ask   // taken in turn
	Logins  int     // logins that fail, spread over the time of the round
	Sources int     // addresses of this machine that they come from
	Stream  bool    // read the stream until the next order, which only ends it
}

// AskReport is what came of a round. Latencies are from the time at which a request was due, so
// that one that had to wait for others counts its waiting.
type AskReport struct {
	Latencies map[string][]time.Duration
	Bad       map[string]int // answers that were not wanted, by class and what they were
	Bytes     int64
	Lines     int64
	Logins    map[string]int // of those that were to fail, by status
	Streams   int            // open
	Heard     int64          // events of the stream, by all readers
}

// AskOptions is whom to ask.
type AskOptions struct{ URL, Token string }

// maxAsking is how many requests are under way at a time; those that are due wait for one of them.
const maxAsking = 512

// maxBad is how many kinds of answers that were not wanted are told apart.
const maxBad = 4

type asker struct {
	o      AskOptions
	client *http.Client
	mu     sync.Mutex
	r      AskReport
}

func asks(ctx context.Context, options []byte, in *json.Decoder, out *sender) error {
	a := asker{client: &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: maxAsking, MaxConnsPerHost: maxAsking}}}
	if err := json.Unmarshal(options, &a.o); err != nil {
		return fmt.Errorf("options of the asking peer: %w", err)
	}
	for {
		var o AskOrder
		if in.Decode(&o) != nil {
			return nil // the end
		}
		a.r = AskReport{Latencies: map[string][]time.Duration{}, Bad: map[string]int{}, Logins: map[string]int{}}
		if o.Stream {
			if err := a.streams(ctx, o.N, in, out); err != nil {
				return err
			}
		} else {
			a.round(ctx, &o)
		}
		if err := out.send(&a.r); err != nil {
			return err
		}
	}
}

func (a *asker) round(ctx context.Context, o *AskOrder) {
	var wg sync.WaitGroup
	began := time.Now()
	if o.Logins > 0 {
		wg.Go(func() { a.storm(ctx, o, began) })
	}
	free := make(chan struct{}, maxAsking)
	for i := range o.N {
		due := time.Now()
		if o.Rate > 0 {
			due = began.Add(time.Duration(float64(i) / o.Rate * float64(time.Second)))
			time.Sleep(time.Until(due))
		}
		ask := &o.Asks[i%len(o.Asks)]
		if ask.Pages {
			a.pages(ctx, ask)
			continue
		}
		if o.Rate == 0 {
			a.ask(ctx, ask, due)
			continue
		}
		free <- struct{}{}
		wg.Go(func() {
			made := a.ask(ctx, ask, due)
			<-free
			if ask.Release && made != "" {
				due := due.Add(time.Second)
				time.Sleep(time.Until(due))
				a.ask(ctx, &Ask{Class: "release", Method: http.MethodDelete, Path: strings.TrimPrefix(made, "/"), Want: http.StatusOK}, due)
			}
		})
	}
	wg.Wait()
}

// ask sends a request, and returns where what it made is.
func (a *asker) ask(ctx context.Context, ask *Ask, due time.Time) (made string) {
	lines, size := int64(0), int64(0)
	status, why := 0, ""
	req, err := http.NewRequestWithContext(ctx, ask.Method, a.o.URL+ask.Path, strings.NewReader(ask.Body))
	if err == nil {
		req.Header.Set("Authorization", "Bearer "+a.o.Token)
		if ask.Body != "" {
			req.Header.Set("Content-Type", "application/json")
		}
		if ask.Lines {
			req.Header.Set("Accept", "application/x-ndjson")
		}
		var resp *http.Response
		if resp, err = a.client.Do(req); err == nil {
			status, made = resp.StatusCode, resp.Header.Get("Location")
			buf := make([]byte, 64<<10)
			for err == nil {
				var n int
				n, err = resp.Body.Read(buf)
				size += int64(n)
				lines += int64(bytes.Count(buf[:n], []byte("\n")))
				if status >= http.StatusBadRequest && why == "" {
					why = string(buf[:min(n, 200)])
				}
			}
			_ = resp.Body.Close()
			if errors.Is(err, io.EOF) {
				err = nil
			}
		}
	}
	took := time.Since(due)
	want := ask.Want
	if want == 0 {
		want = http.StatusOK
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.r.Latencies[ask.Class] = append(a.r.Latencies[ask.Class], took)
	a.r.Bytes += size
	if ask.Lines {
		a.r.Lines += lines
	}
	if err == nil && status == want {
		return made
	}
	bad := fmt.Sprintf("%s: %d %s", ask.Class, status, why)
	if err != nil {
		bad = ask.Class + ": " + err.Error()
	}
	if len(a.r.Bad) >= maxBad {
		bad = "others"
	}
	a.r.Bad[bad]++
	return ""
}

// pages reads a list to its end.
func (a *asker) pages(ctx context.Context, ask *Ask) {
	for after, path := "", ask.Path; ; path = ask.Path + "&after=" + url.QueryEscape(after) {
		var page struct {
			Items []json.RawMessage `json:"items"`
			Next  string            `json:"next"`
		}
		due := time.Now()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.o.URL+path, nil)
		if err == nil {
			req.Header.Set("Authorization", "Bearer "+a.o.Token)
			var resp *http.Response
			if resp, err = a.client.Do(req); err == nil {
				err = json.NewDecoder(resp.Body).Decode(&page)
				_ = resp.Body.Close()
				if err == nil && resp.StatusCode != http.StatusOK {
					err = errors.New(resp.Status)
				}
			}
		}
		if err != nil {
			a.r.Bad[ask.Class+": "+err.Error()]++
			return
		}
		a.r.Latencies[ask.Class] = append(a.r.Latencies[ask.Class], time.Since(due))
		a.r.Lines += int64(len(page.Items))
		if after = page.Next; after == "" {
			return
		}
	}
}

// storm tries to log in, with tokens that are nobody's, from several addresses.
func (a *asker) storm(ctx context.Context, o *AskOrder, began time.Time) {
	sources := make([]*http.Client, max(o.Sources, 1))
	for i := range sources {
		d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, byte(i>>8), byte(i)+1)}}
		t := &http.Transport{DialContext: d.DialContext, MaxConnsPerHost: 4}
		sources[i] = &http.Client{Transport: t, Timeout: time.Minute}
		defer t.CloseIdleConnections()
	}
	span := float64(o.N) / o.Rate * float64(time.Second)
	var wg sync.WaitGroup
	for i := range o.Logins {
		time.Sleep(time.Until(began.Add(time.Duration(float64(i) / float64(o.Logins) * span))))
		wg.Go(func() {
			result := ""
			body := fmt.Sprintf(`{"token":"nobody-%064d"}`, i)
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.o.URL+"api/v1/login", strings.NewReader(body))
			if err == nil {
				req.Header.Set("Content-Type", "application/json")
				var resp *http.Response
				if resp, err = sources[i%len(sources)].Do(req); err == nil {
					result = resp.Status
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			}
			if err != nil {
				result = err.Error()
			}
			a.mu.Lock()
			a.r.Logins[result]++
			a.mu.Unlock()
		})
	}
	wg.Wait()
}

// streams reads the stream with n readers until another order comes, and reports when all are open.
func (a *asker) streams(ctx context.Context, n int, in *json.Decoder, out *sender) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{}}
	var wg sync.WaitGroup
	var heard atomic.Int64
	for range n {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.o.URL+"api/v1/stream", nil)
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+a.o.Token)
		resp, err := client.Do(req)
		if err != nil {
			return fmt.Errorf("open a stream: %w", err)
		}
		if resp.StatusCode != http.StatusOK {
			_ = resp.Body.Close()
			return fmt.Errorf("open a stream: %s", resp.Status)
		}
		a.r.Streams++
		wg.Go(func() {
			defer func() { _ = resp.Body.Close() }()
			for lines := bufio.NewReader(resp.Body); ; {
				line, err := lines.ReadSlice('\n')
				if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
					return
				}
				if bytes.HasPrefix(line, []byte("event:")) {
					heard.Add(1)
				}
			}
		})
	}
	if err := out.send(&a.r); err != nil {
		return err
	}
	var next AskOrder
	_ = in.Decode(&next) // whatever it is, or the end of all
	cancel()
	wg.Wait()
	a.r.Heard = heard.Load()
	return nil
}

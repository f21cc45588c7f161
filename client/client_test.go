package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync/atomic"
	"testing"

	"auspex/client"
	"auspex/schemas"
)

// Two servers are allocated for a run and given back.
func Example() {
	ctx := context.Background()
	c, err := client.New(client.Config{URL: "https://auspex.example", Token: "…", CA: "/etc/auspex/ca.pem"})
	if err != nil {
		panic(err)
	}
	_, made, err := c.CreateAllocation(ctx, client.NewAllocation{
		Purpose: "fine-tuning", Wish: &schemas.Wish{Servers: 2, Together: "rack"},
	}, client.CreateAllocationParams{})
	if p := (*client.Problem)(nil); errors.As(err, &p) && p.Code == "no_fit" {
		fmt.Println("nothing fits now:", p.Detail)
		return
	} else if err != nil {
		panic(err)
	}
	if a, err := c.FollowAllocation(ctx, made.Allocation.ID); err != nil || a.Status != schemas.AllocationActive {
		panic(fmt.Sprint(a.Reason, err))
	}
	for a, err := range c.ListAllocations(ctx, client.ListAllocationsParams{Live: new(true)}) {
		if err != nil {
			panic(err)
		}
		fmt.Println(a.Status, a.Servers, a.Purpose)
	}
	if _, err := c.StopAllocation(ctx, made.Allocation.ID, nil); err != nil {
		panic(err)
	}
}

func asks(t *testing.T, h http.HandlerFunc) *client.Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	c, err := client.New(client.Config{URL: s.URL, Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAllReadsEveryPageAndStopsWhereItsReaderDoes(t *testing.T) {
	var asked atomic.Int32
	c := asks(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.URL.Query().Get("live") != "true" || r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("asked %s with %q", r.URL, r.Header.Get("Authorization"))
		}
		switch r.URL.Query().Get("after") {
		case "":
			_, _ = w.Write([]byte(`{"items":[{"id":"a"},{"id":"b"}],"next":"b"}`))
		case "b":
			_, _ = w.Write([]byte(`{"items":[{"id":"c"}],"next":"c"}`))
		default:
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`{"code":"no_permission","detail":"no"}`))
		}
	})
	query := url.Values{"live": {"true"}}
	var ids []string
	var failed error
	for a, err := range client.All[schemas.Allocation](t.Context(), c, "allocations", query) {
		if failed = err; err == nil {
			ids = append(ids, a.ID)
		}
	}
	if p := (*client.Problem)(nil); !slices.Equal(ids, []string{"a", "b", "c"}) || !errors.As(failed, &p) || p.Code != "no_permission" || p.Status != http.StatusForbidden {
		t.Errorf("%v, then %v", ids, failed)
	}
	if len(query) != 1 {
		t.Errorf("the caller's query is changed: %v", query)
	}
	asked.Store(0)
	for range client.All[schemas.Allocation](t.Context(), c, "allocations", query) {
		break
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("%d pages were read for one item", n)
	}
}

func TestWhatIsDoneOnceIsSentAgainUnderItsKey(t *testing.T) {
	var keys []string
	c := asks(t, func(w http.ResponseWriter, r *http.Request) {
		keys = append(keys, r.Header.Get("Idempotency-Key"))
		if len(keys) == 1 {
			w.WriteHeader(http.StatusBadGateway)
		}
	})
	if err := c.Do(t.Context(), client.Request{Method: http.MethodPost, Path: "teams", Once: true}, nil); err != nil {
		t.Fatal(err)
	}
	if len(keys) != 2 || keys[0] == "" || keys[0] != keys[1] {
		t.Errorf("sent with the keys %q", keys)
	}
	keys = nil
	err := c.Do(t.Context(), client.Request{Method: http.MethodPost, Path: "allocations/x/stop"}, nil)
	if p := (*client.Problem)(nil); !errors.As(err, &p) || len(keys) != 1 {
		t.Errorf("what is not known to be done once was sent %d times: %v", len(keys), err)
	}
}

func TestABusyServerIsAskedAgainWhenItSays(t *testing.T) {
	for _, tc := range []struct {
		status, asked int
		after, code   string
		once          bool
	}{
		{http.StatusTooManyRequests, 2, "0", "too_many", false}, // nothing was done, so it may be sent again
		{http.StatusServiceUnavailable, 2, "0", "busy", true},
		{http.StatusServiceUnavailable, 1, "0", "busy", false},
		{http.StatusTooManyRequests, 1, "3600", "too_many", true}, // that is for the caller to decide
		{http.StatusConflict, 1, "", "taken", true},
		{http.StatusConflict, 2, "1", "at_work", true}, // the same, which was sent before its connection broke
	} {
		n := 0
		c := asks(t, func(w http.ResponseWriter, _ *http.Request) {
			if n++; n == 1 {
				w.Header().Set("Retry-After", tc.after)
				w.WriteHeader(tc.status)
				_, _ = fmt.Fprintf(w, `{"code":%q,"legal":["ready"]}`, tc.code)
			}
		})
		err := c.Do(t.Context(), client.Request{Method: http.MethodPost, Path: "teams", Once: tc.once}, nil)
		if p := (*client.Problem)(nil); n != tc.asked || (err == nil) != (n == 2) || err != nil && (!errors.As(err, &p) || !slices.Equal(p.Legal, []string{"ready"})) {
			t.Errorf("%+v: asked %d times, then %v", tc, n, err)
		}
	}
}

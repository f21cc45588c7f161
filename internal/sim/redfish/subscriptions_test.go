package redfish

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	bmc "auspex/internal/bmc/redfish"
	"auspex/internal/sim/device"
)

// listener takes what is sent.
func listener(t *testing.T) (url string, got chan bmc.Object) {
	got = make(chan bmc.Object, 16)
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var o bmc.Object
		if json.NewDecoder(r.Body).Decode(&o) == nil {
			got <- o
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(s.Close)
	return s.URL, got
}

func next(t *testing.T, got chan bmc.Object) bmc.Object {
	t.Helper()
	select {
	case o := <-got:
		return o
	case <-time.After(30 * time.Second):
		t.Fatal("nothing is sent")
		return nil
	}
}

// Who subscribes is sent what the log gets from then on, with its context, until it unsubscribes.
func TestSubscribersAreSentWhatTheLogGets(t *testing.T) {
	b := newFake(2)
	h := NewHandler(b)
	t.Cleanup(h.Close)
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	to, got := listener(t)
	c, err := bmc.New(bmc.Options{URL: s.URL, User: "admin", Password: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	service, err := c.Get(t.Context(), root+"/EventService")
	if err != nil {
		t.Fatal(err)
	}
	path, err := c.AddSubscription(t.Context(), service, bmc.Subscription{Destination: to + "/x", Context: "mine", Format: bmc.FormatEvents})
	if err != nil || path == "" {
		t.Fatalf("%q, %v", path, err)
	}
	if err := c.TestEvent(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	if o := next(t, got); o.String("Context") != "mine" || o.Objects("Events")[0].String("Severity") != "OK" {
		t.Errorf("the test is %v", o)
	}
	b.set(func(f *fakeBMC) {
		f.log = append(f.log, device.LogRecord{ID: 3, Time: f.clock, Severity: "Critical", Part: "fan1", MessageID: "Fan.1.0.Failed", Message: "third"})
	})
	if o := next(t, got); len(o.Objects("Events")) != 1 || o.Objects("Events")[0].String("Message") != "third" {
		t.Errorf("sent %v", o)
	}
	if at, err := c.Subscribed(t.Context(), service, bmc.Subscription{Context: "mine"}); at != path || err != nil {
		t.Errorf("found at %q, %v", at, err)
	}
	for i := range MaxSubscriptions {
		_, err = c.AddSubscription(t.Context(), service, bmc.Subscription{Destination: to, Context: strconv.Itoa(i)})
	}
	if err == nil {
		t.Error("the table has no end")
	}
	if err := c.Unsubscribe(t.Context(), path, "another's"); err != nil || h.subscribed(path) == nil {
		t.Errorf("that of another is ended: %v", err)
	}
	if err := c.Unsubscribe(t.Context(), path, "mine"); err != nil || h.subscribed(path) != nil {
		t.Errorf("it is not ended: %v", err)
	}
}

// DMTF's own client subscribes, has a test sent, and unsubscribes.
func TestRedfishUtilitiesSubscribe(t *testing.T) {
	python := os.Getenv("REDFISH_UTILITIES_PYTHON")
	if python == "" {
		if os.Getenv("AUSPEX_E2E") == "1" {
			t.Fatal("REDFISH_UTILITIES_PYTHON is not set, where all peers have to be there")
		}
		t.Skip("REDFISH_UTILITIES_PYTHON is not set: set it to a Python interpreter that has the package redfish-utilities to run this test (test/peers/redfishutilities.sh)")
	}
	h := NewHandler(newFake(1))
	t.Cleanup(h.Close)
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	to, got := listener(t)
	out, err := exec.CommandContext(t.Context(), python, "testdata/drive_events.py", s.URL, "admin", "secret", to).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if o := next(t, got); o.String("Context") != "of redfish-utilities" {
		t.Errorf("sent %v", o)
	}
}

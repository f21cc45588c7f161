package redfish

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	bmc "auspex/internal/bmc/redfish"
	"auspex/internal/sim/device"
)

// What is sent says the same as the log does, and nothing that was there before.
func TestEachRecordIsSentAsItIsWritten(t *testing.T) {
	b := newFake(2)
	s := serve(t, b)
	service, err := connect(t, s, true).Service.EventService()
	if err != nil || !service.ServiceEnabled {
		t.Fatalf("%+v, %v", service, err)
	}
	c, err := bmc.New(bmc.Options{URL: s.URL, User: "admin", Password: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stream, err := c.OpenStream(ctx, service.ServerSentEventURI)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	add := func(id uint16) {
		b.set(func(f *fakeBMC) {
			f.log = append(f.log, device.LogRecord{ID: id, Time: f.clock, Severity: "Critical", Part: "fan1", MessageID: "Fan.1.0.Failed", Message: "third", Args: []string{"FAN1"}})
		})
	}
	add(3)
	for id := uint16(3); id < 5; id++ {
		o, err := stream.Next()
		if err != nil {
			t.Fatal(err)
		}
		entry, err := c.Get(t.Context(), o.Objects("Events")[0].Link("LogEntry"))
		if err != nil {
			t.Fatal(err)
		}
		sent, _ := json.Marshal(o)
		for _, p := range []string{"Message", "MessageId", "Severity"} {
			if got, want := o.Objects("Events")[0].String(p), entry.String(p); got != want || want == "" || len(o.Objects("Events")) != 1 {
				t.Errorf("%s is %q in the log; sent %s", p, want, sent)
			}
		}
		if !strings.HasPrefix(entry.ID(), selPath) {
			t.Errorf("it is written at %s", entry.ID())
		}
		if id == 3 {
			b.ClearLog() // ids begin anew
			b.set(func(f *fakeBMC) { f.clock = f.clock.Add(1e9) })
			add(1)
		}
	}
	b.set(func(f *fakeBMC) { f.fault.Away = true })
	if o, err := stream.Next(); err == nil {
		t.Errorf("a controller that is away sends %v", o)
	}
}

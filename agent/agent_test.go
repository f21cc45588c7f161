package agent

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"github.com/openconfig/gnmic/pkg/api"
	"github.com/openconfig/ygot/ygot"
	"github.com/openconfig/ygot/ytypes"
	"go.uber.org/goleak"

	"auspex/agent/journal"
	"auspex/internal/target"
	"auspex/internal/waittest"
	"auspex/schemas/yang"
	"auspex/schemas/yang/agentmodel"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/golang/glog.(*fileSink).flushDaemon"))
} // of ytypes

// held returns everything that an agent tells, and fails where the modules do not have it so.
func held(t *testing.T, a *Agent) *agentmodel.Device {
	t.Helper()
	cfg := target.DefaultConfig()
	cfg.Access.Anonymous, cfg.Log = true, a.journal
	s, err := target.NewServer(a.tree, cfg)
	if err != nil {
		t.Fatal(err)
	}
	res, err := s.Get(t.Context(), &gpb.GetRequest{Encoding: gpb.Encoding_PROTO})
	if err != nil {
		t.Fatal(err)
	}
	schema, err := agentmodel.Schema()
	if err != nil {
		t.Fatal(err)
	}
	root := schema.Root.(*agentmodel.Device)
	for _, n := range res.GetNotification() {
		for _, u := range n.GetUpdate() {
			path, err := ygot.PathToSchemaPath(u.GetPath())
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := yang.Leaves[path]; !ok {
				t.Errorf("%s is in no module", path)
				continue
			}
			if err := ytypes.SetNode(schema.RootSchema(), root, u.GetPath(), u.GetVal(), &ytypes.InitMissingElements{}); err != nil {
				t.Errorf("%s = %s: %v", path, u.GetVal(), err)
			}
		}
	}
	if err := root.ΛValidate(); err != nil {
		t.Error(err)
	}
	return root
}

func TestALedgerThatCannotBeReadStopsActsAlone(t *testing.T) {
	cfg := Default()
	cfg.Data, cfg.Listen = t.TempDir(), "127.0.0.1:0"
	if err := os.WriteFile(filepath.Join(cfg.Data, "acts.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.journal.Close() }()
	if _, acts := a.server.GetServiceInfo()["gnoi.system.System"]; acts {
		t.Error("it would do what it may have done before")
	}
	if _, tells := a.server.GetServiceInfo()["gnmi.gNMI"]; !tells {
		t.Error("it tells nothing")
	}
}

func TestWhatIsToldIsInTheModules(t *testing.T) {
	dir := t.TempDir()
	cfg := Default()
	cfg.Data, cfg.Listen = dir, "127.0.0.1:0"
	cfg.Kernel.Path, cfg.Kernel.BootIDFile = filepath.Join(dir, "none"), filepath.Join(dir, "none") // an error to tell
	a, err := New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	ready := make(chan string, 1)
	go func() { done <- a.Run(ctx, func(addr string) { ready <- addr }) }()
	<-ready
	for _, kind := range []string{journal.KindKernel, journal.KindEvent} {
		if _, err := a.journal.Append(target.Record{Time: time.Now().UnixNano(), Kind: kind, Boot: "b", BootTime: 1, Data: "x"}, "", journal.Mark{}); err != nil {
			t.Fatal(err)
		}
	}
	waittest.For(t, "the log that is not there is not told", func() bool {
		log := held(t, a).GetHost().GetKernelLog().GetState()
		return log != nil && log.Error != nil && *log.Error != ""
	})
	if n := len(held(t, a).GetJournal().Record); n != 2 {
		t.Errorf("%d records", n)
	}
	last := a.journal.Newest()
	if err := a.acknowledge([]target.Value{{Path: acknowledged, Value: &gpb.TypedValue{Value: &gpb.TypedValue_UintVal{UintVal: last}}}}); err != nil {
		t.Fatal(err)
	}
	waittest.For(t, "what was acknowledged is not told", func() bool {
		of := held(t, a).GetJournal().GetState().Acknowledged
		return of != nil && *of == last
	})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// gnmic reads an agent once, and as often as it asks.
func TestGnmicReadsOnceAndByPolls(t *testing.T) {
	cfg := Default()
	cfg.Data, cfg.Listen, cfg.Host.Disabled, cfg.NVML.Disabled, cfg.Kernel.Disabled = t.TempDir(), "127.0.0.1:0", true, true, true
	a, err := New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	ready := make(chan string, 1)
	go func() { done <- a.Run(ctx, func(addr string) { ready <- addr }) }()
	c, err := api.NewTarget(api.Name("node"), api.Address(<-ready), api.Insecure(true))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.CreateGNMIClient(t.Context()); err != nil {
		t.Fatal(err)
	}
	paths := []api.GNMIOption{api.EncodingPROTO(), api.Subscription(api.Path("/journal/state/last")), api.Subscription(api.Path("/journal/record"))}
	once, err := api.NewSubscribeRequest(append(paths, api.SubscriptionListModeONCE())...)
	if err != nil {
		t.Fatal(err)
	}
	// told is what came of an answer: the newest number, and the data of records.
	var last uint64
	var data []string
	told := func(r *gpb.SubscribeResponse) {
		for _, u := range r.GetUpdate().GetUpdate() {
			switch e := u.GetPath().GetElem(); e[len(e)-1].GetName() {
			case "last":
				last = u.GetVal().GetUintVal()
			case "data":
				data = append(data, u.GetVal().GetStringVal())
			}
		}
	}
	say := func(text string) {
		t.Helper()
		if _, err := a.journal.Append(target.Record{Time: 1, Kind: journal.KindEvent, Data: text}, "", journal.Mark{}); err != nil {
			t.Fatal(err)
		}
		a.status.tell()
	}
	say("one")
	answers, ends := c.SubscribeOnceChan(t.Context(), once)
	for ended := false; !ended; {
		select {
		case r := <-answers:
			told(r)
		case err := <-ends:
			if ended = true; !errors.Is(err, io.EOF) {
				t.Error(err)
			}
		}
	}
	if last != 1 || len(data) != 1 || data[0] != "one" {
		t.Errorf("once: %d %q", last, data)
	}

	poll, err := api.NewSubscribeRequest(append(paths, api.SubscriptionListModePOLL())...)
	if err != nil {
		t.Fatal(err)
	}
	polls, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); c.Subscribe(polls, poll, "p") }()
	responses, broken := c.ReadSubscriptions()
	waittest.Until(t, func() error { return c.SubscribePoll(t.Context(), "p") })
	for round := range 3 {
		if round > 0 {
			say("more")
			if err := c.SubscribePoll(t.Context(), "p"); err != nil {
				t.Fatal(err)
			}
		}
		last, data = 0, nil
		for synced := false; !synced; {
			select {
			case r := <-responses:
				told(r.Response)
				synced = r.Response.GetSyncResponse()
			case e := <-broken:
				t.Fatal(e.Err)
			case <-time.After(time.Minute):
				t.Fatal("a poll is not answered")
			}
		}
		if last != uint64(round)+1 || len(data) != round+1 {
			t.Errorf("poll %d: %d %q", round+1, last, data)
		}
	}
	stop()
	for over := false; !over; {
		select {
		case <-ended:
			over = true
		case <-broken: // the end, as gnmic says it
		}
	}
	_ = c.Close()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

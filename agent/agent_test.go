package agent

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
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
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

package agent_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/openconfig/gnmic/pkg/api"
	gnmic "github.com/openconfig/gnmic/pkg/api/target"
	"github.com/openconfig/gnoi/healthz"
	system "github.com/openconfig/gnoi/system"
	"github.com/openconfig/gnoi/types"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"auspex/internal/sim/agent"
	"auspex/internal/sim/fleet"
	"auspex/internal/sim/ledger"
	"auspex/internal/target"
	"auspex/internal/waittest"
	"auspex/schemas/yang"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const server = "gpu-r01-01"

// world is one rack whose first server has an agent, and a model whose time goes on.
type world struct {
	t     *testing.T
	mu    sync.Mutex
	said  []ledger.Entry
	fleet *fleet.Fleet
	addr  string
	gnmic *gnmic.Target
	gnoi  system.SystemClient
	gnoiH healthz.HealthzClient
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{t: t}
	led, err := ledger.Open(filepath.Join(dir, "ledger.jsonl"), func(e ledger.Entry) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.said = append(w.said, e)
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg := fleet.DefaultConfig()
	cfg.Racks, cfg.ServersPerRack, cfg.CRACs = 1, 2, 1
	f := fleet.New(cfg, 1, dir, led, time.Now())
	if err := f.Start(); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			<-tick.C
			if _, err := f.Step(time.Now()); err != nil {
				t.Error(err)
				return
			}
		}
	})
	all.Go(func() {
		if err := agent.Run(ctx, agent.Config{
			Fleet: f, Server: server, Dir: filepath.Join(dir, "agent"), Log: filepath.Join(dir, server+".kmsg"), Password: "secret",
			Interval: 50 * time.Millisecond, Events: slog.New(slog.DiscardHandler),
		}, l); err != nil {
			t.Error(err)
		}
	})
	w.fleet, w.addr = f, l.Addr().String()
	if w.gnmic, err = api.NewTarget(api.Name(server), api.Address(w.addr), api.Insecure(true), api.Username(fleet.User), api.Password("secret")); err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(w.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	w.gnoi, w.gnoiH = system.NewSystemClient(conn), healthz.NewHealthzClient(conn)
	t.Cleanup(func() {
		_ = w.gnmic.Close()
		_ = conn.Close()
		cancel()
		all.Wait()
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		_ = led.Close()
	})
	if err := w.gnmic.CreateGNMIClient(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w
}

// records counts what a part said of a type and code.
func (w *world) records(typ, code, part string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.said {
		if e.Kind == ledger.KindRecord && e.Type == typ && e.Code == code && e.Part == part {
			n++
		}
	}
	return n
}

// acts are those that the tools were asked for.
func (w *world) acts() (out []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.said {
		if e.Kind == ledger.KindAct {
			out = append(out, e.Code+" "+e.Type)
		}
	}
	return out
}

// get returns what a leaf says now.
func (w *world) get(path string) (string, error) {
	req, err := api.NewGetRequest(api.Path(path), api.EncodingASCII())
	if err != nil {
		return "", err
	}
	res, err := w.gnmic.Get(w.t.Context(), req)
	if status.Code(err) == codes.NotFound {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if len(res.GetNotification()) == 0 || len(res.GetNotification()[0].GetUpdate()) == 0 {
		return "", nil
	}
	return res.GetNotification()[0].GetUpdate()[0].GetVal().GetAsciiVal(), nil
}

func (w *world) shows(path, want string) {
	w.t.Helper()
	waittest.Until(w.t, func() error {
		got, err := w.get(path)
		if err == nil && got != want {
			err = fmt.Errorf("%s is %q, want %q", path, got, want)
		}
		return err
	})
}

func (w *world) set(path, value string) error {
	req, err := api.NewSetRequest(api.Update(api.Path(path), api.Value(value, "string")))
	if err != nil {
		return err
	}
	_, err = w.gnmic.Set(w.t.Context(), req)
	return err
}

func (w *world) act(id string, gpus ...int) error {
	ctx := metadata.AppendToOutgoingContext(w.t.Context(), "username", fleet.User, "password", "secret", target.MetaAction, id)
	req := &system.RebootRequest{Method: system.RebootMethod_COLD}
	for _, n := range gpus {
		req.Subcomponents = append(req.Subcomponents, &types.Path{Elem: []*types.PathElem{{Name: "gpus"}, {Name: "gpu", Key: map[string]string{"name": fmt.Sprintf("gpu%d", n)}}}})
	}
	_, err := w.gnoi.Reboot(ctx, req)
	return err
}

func (w *world) reload(id string) error {
	ctx := metadata.AppendToOutgoingContext(w.t.Context(), "username", fleet.User, "password", "secret", target.MetaAction, id)
	_, err := w.gnoi.Reboot(ctx, &system.RebootRequest{
		Method: system.RebootMethod_COLD, Subcomponents: []*types.Path{{Elem: []*types.PathElem{{Name: "gpus"}}}},
	})
	return err
}

// validate returns what a validation of a GPU found.
func (w *world) validate(id string, n int) string {
	w.t.Helper()
	ctx := metadata.AppendToOutgoingContext(w.t.Context(), "username", fleet.User, "password", "secret", target.MetaAction, id, target.MetaLevel, "2")
	got, err := w.gnoiH.Check(ctx, &healthz.CheckRequest{
		Path: &types.Path{Elem: []*types.PathElem{{Name: "gpus"}, {Name: "gpu", Key: map[string]string{"name": fmt.Sprintf("gpu%d", n)}}}},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return got.GetStatus().GetStatus().String()
}

func (w *world) refuses(err error, code codes.Code, want string) {
	w.t.Helper()
	if status.Code(err) != code || !strings.Contains(err.Error(), want) {
		w.t.Errorf("%v, want %s", err, want)
	}
}

func gpu(n int, leaf string) string { return fmt.Sprintf("/gpus/gpu[name=gpu%d]/%s", n, leaf) }

// A reset mends what resets mend, and refuses what they refuse.
func TestResetsOfTheModel(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.shows(gpu(4, "state/missing"), "false")
	if err := w.fleet.LoseMemory(server+"/gpu4", false); err != nil {
		t.Fatal(err)
	}
	w.shows(gpu(4, "state/remap-pending"), "true")
	w.fleet.SetLoad(server, []int{4}, fleet.Load{Util: .5, PID: 77, Name: "train"})
	w.shows(gpu(4, "state/processes"), "1")
	w.refuses(w.act("a", 4), codes.FailedPrecondition, "gpu4 is in use by train (81)")
	w.fleet.SetLoad(server, []int{4}, fleet.Load{})
	if err := w.fleet.SetStubborn(server+"/gpu4", true); err != nil {
		t.Fatal(err)
	}
	w.refuses(w.act("b", 4), codes.Aborted, "unable to reset")
	w.shows(gpu(4, "state/remap-pending"), "true")
	if err := w.fleet.SetStubborn(server+"/gpu4", false); err != nil {
		t.Fatal(err)
	}
	if err := w.act("c", 4); err != nil {
		t.Fatal(err)
	}
	w.shows(gpu(4, "state/remap-pending"), "false")
	w.shows(gpu(4, "state/ecc-uncorrected"), "0")
	w.shows(gpu(4, "state/ecc-uncorrected-lifetime"), "1")
}

// Loading the driver anew brings back a GPU of which it told nothing, and takes what was set in it;
// it mends no memory, and does not free a call that hangs.
func TestReloadsOfTheModel(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.shows(gpu(4, "state/missing"), "false")
	if err := w.set(gpu(1, "config/power-limit"), "400"); err != nil {
		t.Fatal(err)
	}
	if err := w.fleet.FailGPU(server+"/gpu4", false); err != nil {
		t.Fatal(err)
	}
	if err := w.fleet.LoseMemory(server+"/gpu2", false); err != nil {
		t.Fatal(err)
	}
	w.shows(gpu(4, "state/missing"), "true")
	w.shows(gpu(2, "state/remap-pending"), "true")
	if err := w.set(gpu(4, "config/power-limit"), "400"); err == nil || !strings.Contains(err.Error(), "error 999 of NVML") {
		t.Errorf("firmware that answers nothing takes a setting: %v", err)
	}
	w.fleet.SetLoad(server, []int{6}, fleet.Load{Util: .5, PID: 77, Name: "train"})
	w.shows(gpu(6, "state/processes"), "1")
	w.refuses(w.reload("a"), codes.FailedPrecondition, "gpu6 is in use by train (83)")
	w.fleet.SetLoad(server, []int{6}, fleet.Load{})
	if err := w.fleet.SetRigid(server, true); err != nil {
		t.Fatal(err)
	}
	w.refuses(w.reload("b"), codes.Aborted, "Module nvidia is in use")
	if err := w.fleet.SetRigid(server, false); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := w.reload("c"); err != nil {
			t.Fatal(err)
		}
	}
	w.shows(gpu(4, "state/missing"), "false")
	w.shows(gpu(2, "state/remap-pending"), "true")
	w.shows(gpu(1, "state/power-limit"), "400") // set again
	if err := w.fleet.FailGPU(server+"/gpu3", true); err != nil {
		t.Fatal(err)
	}
	w.shows(gpu(3, "state/missing"), "true")
	if err := w.reload("dead"); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, func() error { // the driver has waited for it
		if n := w.records("gpu.xid", "119", "gpu3"); n != 2 {
			return fmt.Errorf("%d XIDs 119 of dead firmware, want one more after the reload", n)
		}
		return nil
	})
	w.shows(gpu(3, "state/missing"), "true")
	if err := w.fleet.HangGPU(server + "/gpu5"); err != nil {
		t.Fatal(err)
	}
	w.shows(gpu(5, "state/stalled"), "nvmlDeviceGetPowerUsage")
	w.refuses(w.reload("d"), codes.Aborted, "has not returned")
	if d := cmp.Diff([]string{"reload begun", "reload failed", "reload begun", "reload done", "reload begun", "reload done"}, w.acts()); d != "" {
		t.Errorf("the tools were asked for (-want +got):\n%s", d)
	}
}

// A validation finds what no reading tells, and what readings tell.
func TestValidationsOfTheModel(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.shows(gpu(3, "state/missing"), "false")
	if got := w.validate("a", 3); got != "STATUS_HEALTHY" {
		t.Error(got)
	}
	w.shows(gpu(3, "validation/state/passed"), "true")
	w.shows(gpu(3, "validation/test[name=compute]/state/result"), "passed")
	for _, c := range []struct {
		id, test string
		breaks   func(id string, on bool) error
	}{{"b", "memory", w.fleet.SetWeak}, {"c", "compute", w.fleet.SetWrong}} {
		if err := c.breaks(server+"/gpu3", true); err != nil {
			t.Fatal(err)
		}
		if got := w.validate(c.id, 3); got != "STATUS_UNHEALTHY" {
			t.Errorf("%s: %s", c.test, got)
		}
		w.shows(gpu(3, "validation/test[name="+c.test+"]/state/result"), "failed")
		if err := c.breaks(server+"/gpu3", false); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.fleet.LoseMemory(server+"/gpu3", false); err != nil {
		t.Fatal(err)
	}
	w.shows(gpu(3, "state/remap-pending"), "true")
	if got := w.validate("d", 3); got != "STATUS_UNHEALTHY" {
		t.Error(got)
	}
	w.shows(gpu(3, "validation/test[name=remap-pending]/state/message"), "rows of memory wait for a reset to be remapped: 1")
	if err := w.fleet.FailGPU(server+"/gpu3", false); err != nil {
		t.Fatal(err)
	}
	w.shows(gpu(3, "state/missing"), "true")
	if got := w.validate("e", 3); got != "STATUS_UNHEALTHY" {
		t.Error(got)
	}
	w.shows(gpu(3, "validation/test[name=driver]/state/result"), "failed")
}

// What a peer set stands until the model does not take it; a reboot brings it back.
func TestSettingsAndARebootOfTheModel(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.shows(gpu(1, "state/power-limit"), "700")
	w.refuses(w.set(gpu(1, "config/power-limit"), "900"), codes.FailedPrecondition, "outside of 200 to 700 W")
	if err := w.set(gpu(1, "config/power-limit"), "400"); err != nil {
		t.Fatal(err)
	}
	w.fleet.SetLoad(server, []int{1}, fleet.Load{Util: 1, PID: 5, Name: "train"})
	w.shows(gpu(1, "state/power-limit"), "400")
	waittest.For(t, "its power is not held down", func() bool {
		var h fleet.Host
		w.fleet.Host(server, &h)
		return h.GPUs[1].Watts > 350 && h.GPUs[1].Watts < 420 && h.GPUs[1].Reasons&fleet.ReasonPowerCap != 0
	})
	if err := w.fleet.SetSlipping(server+"/gpu2", true); err != nil {
		t.Fatal(err)
	}
	if err := w.set(gpu(2, "config/power-limit"), "500"); err == nil || !strings.Contains(err.Error(), "does not take") {
		t.Error(err)
	}
	boot, err := w.get("/host/kernel-log/state/boot-id")
	if err != nil || boot == "" {
		t.Fatal(boot, err)
	}
	if err := w.act("reboot-1"); err != nil {
		t.Fatal(err)
	}
	waittest.For(t, "it does not start anew", func() bool {
		now, err := w.get("/host/kernel-log/state/boot-id")
		return err == nil && now != "" && now != boot
	})
	w.shows(gpu(1, "state/power-limit"), "400")
	ctx := metadata.AppendToOutgoingContext(t.Context(), "username", fleet.User, "password", "secret", target.MetaAction, "reboot-1")
	st, err := w.gnoi.RebootStatus(ctx, &system.RebootStatusRequest{})
	if err != nil || st.GetStatus().GetStatus() != system.RebootStatus_STATUS_SUCCESS {
		t.Errorf("%v %v", st, err)
	}
}

// A GPU that is lost is missing, one that hangs is stalled, and the others go on.
func TestFaultsOfTheModel(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.shows(gpu(0, "state/missing"), "false")
	if err := w.fleet.LoseGPU(server+"/gpu3", false); err != nil {
		t.Fatal(err)
	}
	if err := w.fleet.HangGPU(server + "/gpu5"); err != nil {
		t.Fatal(err)
	}
	w.shows(gpu(3, "state/missing"), "true")
	w.shows(gpu(5, "state/stalled"), "nvmlDeviceGetPowerUsage")
	w.shows(gpu(5, "state/power"), "")
	w.shows(gpu(0, "state/missing"), "false")
	req, err := api.NewGetRequest(api.Path("/"), api.EncodingPROTO())
	if err != nil {
		t.Fatal(err)
	}
	res, err := w.gnmic.Get(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range res.GetNotification() {
		for _, u := range n.GetUpdate() {
			var path strings.Builder
			for _, e := range u.GetPath().GetElem() {
				path.WriteString("/" + e.GetName())
			}
			if _, ok := yang.Leaves[path.String()]; !ok {
				t.Errorf("%s is in no module", path.String())
			}
		}
	}
	w.refuses(w.act("x", 3), codes.FailedPrecondition, "gpu3 is not there")
	w.refuses(w.act("y", 5), codes.FailedPrecondition, "has not returned")
}

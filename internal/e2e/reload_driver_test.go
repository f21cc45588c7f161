package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openconfig/gnmic/pkg/api"
	gnmic "github.com/openconfig/gnmic/pkg/api/target"
	system "github.com/openconfig/gnoi/system"
	"github.com/openconfig/gnoi/types"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"auspex/internal/sim"
	"auspex/internal/sim/fleet"
	"auspex/internal/sim/ledger"
	"auspex/internal/target"
	"auspex/schemas"
)

// Of the script lost-firmware: what a reload of the driver mends, what none does, and what is never free for one,
// for its job runs longer than any test.
const (
	mended   = "gpu-r03-04"
	unmended = "gpu-r07-05"
	occupied = "gpu-r02-05"
)

// simulated is the fleet below a folder, as others than the product reach it.
type simulated struct{ dir string }

// agent returns the address of a server's node agent.
func (f simulated) agent(server string) (string, error) {
	b, err := os.ReadFile(filepath.Join(f.dir, "sim", sim.TopologyFile))
	if err != nil {
		return "", err
	}
	var t schemas.Topology
	if err := json.Unmarshal(b, &t); err != nil {
		return "", err
	}
	for _, r := range t.Resources {
		if r.ID == server && r.Attrs.Get(schemas.AttrAgentAddress) != "" {
			return r.Attrs.Get(schemas.AttrAgentAddress), nil
		}
	}
	return "", fmt.Errorf("%s has no agent", server)
}

// set has the driver of a server limit the power of a GPU, by a client of gNMI that is not ours.
func (f simulated) set(t *testing.T, server, gpu, watts string) error {
	t.Helper()
	return f.gnmi(t, server, func(c *gnmic.Target) error {
		req, err := api.NewSetRequest(api.Update(api.Path("/gpus/gpu[name="+gpu+"]/config/power-limit"), api.Value(watts, "string")))
		if err == nil {
			_, err = c.Set(t.Context(), req)
		}
		return err
	})
}

// limit returns the limit of a GPU's power as its driver has it, and when the agent read that.
func (f simulated) limit(t *testing.T, server, gpu string) (watts string, read time.Time, err error) {
	t.Helper()
	err = f.gnmi(t, server, func(c *gnmic.Target) error {
		req, err := api.NewGetRequest(api.Path("/gpus/gpu[name="+gpu+"]/state/power-limit-set"), api.EncodingASCII())
		if err != nil {
			return err
		}
		res, err := c.Get(t.Context(), req)
		if err != nil {
			return err
		}
		for _, n := range res.GetNotification() {
			for _, u := range n.GetUpdate() {
				watts, read = u.GetVal().GetAsciiVal(), time.Unix(0, n.GetTimestamp())
			}
		}
		return nil
	})
	return watts, read, err
}

func (f simulated) gnmi(t *testing.T, server string, do func(*gnmic.Target) error) error {
	t.Helper()
	addr, err := f.agent(server)
	if err != nil {
		return err
	}
	c, err := api.NewTarget(api.Name(server), api.Address(addr), api.TLSCA(f.ca()), api.Username(fleet.User), api.Password(fleet.Password),
		api.Timeout(10*time.Second))
	if err != nil {
		return err
	}
	if err := c.CreateGNMIClient(t.Context()); err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	return do(c)
}

func (f simulated) ca() string { return filepath.Join(f.dir, "sim", sim.CAFile) }

// reload asks the agent of a server to load its driver anew.
func (f simulated) reload(t *testing.T, server, id string) error {
	t.Helper()
	addr, err := f.agent(server)
	if err != nil {
		return err
	}
	tc, err := credentials.NewClientTLSFromFile(f.ca(), "")
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(tc))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "username", fleet.User, "password", fleet.Password, target.MetaAction, id)
	_, err = system.NewSystemClient(conn).Reboot(ctx, &system.RebootRequest{
		Method: system.RebootMethod_COLD, Subcomponents: []*types.Path{{Elem: []*types.PathElem{{Name: "gpus"}}}},
	})
	return err
}

// acts returns what the tools of a server's agent were asked for, as "reload begun", with what the ledger
// has of the server before each.
func acts(entries []ledger.Entry, server string) (did []string, before [][]ledger.Entry) {
	var all []ledger.Entry
	for _, e := range entries {
		if e.Device != server && !slices.Contains(e.Targets, server) {
			continue
		}
		if e.Kind == ledger.KindAct {
			did, before = append(did, e.Code+" "+e.Type), append(before, slices.Clone(all))
		}
		all = append(all, e)
	}
	return did, before
}

// drained says whether the scheduler had a node drained, and no job on it, at the end of some entries.
func drained(entries []ledger.Entry) error {
	state, job := "", ""
	for _, e := range entries {
		switch e.Kind {
		case ledger.KindNode:
			state = e.Code
		case ledger.KindJob:
			job = e.Code
		}
	}
	if !strings.Contains(state, "DRAIN") || job == "RUNNING" {
		return fmt.Errorf("the node is %q, its last job %q", state, job)
	}
	return nil
}

// Where a policy says so, firmware that hangs is mended by a reload of the driver: once, on a drained server, with
// the settings as they were, and believed when the agent reads the GPU again. What it does not mend stays out, and a
// person is told; one that is at work is drained first, and its agent refuses until then.
func TestEnforceLoadsADriverAnewAndReturnsTheServer(t *testing.T) {
	beside(t)
	dir := dataDir(t)
	f := simulated{dir: dir}
	p := launch(t, dir, "--demo", "--agents-alone", "--mode", "enforce", "--script", "testdata/scripts/lost-firmware.yaml", "--seed", "3",
		"--set", "store.clickhouse=off", "--set", "control.policies=testdata/reload.yaml")
	p.await("a limit of power is set", func() error { return f.set(t, mended, "gpu5", "450") })
	p.ready()
	err := f.reload(t, occupied, "by-hand")
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "gpu0 is in use by ") {
		t.Errorf("a driver with processes: %v", err)
	}

	p.repaired(mended, "reload_driver")
	if s := nodeStates(t, dir, mended); slices.Contains(s, "DRAIN") || slices.Contains(s, "DOWN") {
		t.Errorf("%s is %v and not back in the pool", mended, s)
	}
	steps, err := p.actionsOn(mended)
	if err != nil {
		t.Fatal(err)
	}
	reload := steps["reload_driver"]
	if !strings.HasPrefix(reload.VerifiedBy, "agent has read "+mended+"/gpu2 for ") || !reload.EffectAt.After(reload.SentAt) {
		t.Errorf("the reload was verified by %q, effect at %s", reload.VerifiedBy, reload.EffectAt)
	}
	for kind, a := range steps {
		t.Logf("%s: %s", kind, a.VerifiedBy)
	}
	did, before := acts(output(t, dir), mended)
	if !slices.Equal(did, []string{"reload begun", "reload done"}) {
		t.Errorf("the tools of %s were asked for %q", mended, did)
	} else if err := drained(before[0]); err != nil {
		t.Errorf("before its driver was unloaded: %v", err)
	}
	watts, read, err := f.limit(t, mended, "gpu5")
	if err != nil || watts != "450" || !read.After(reload.SentAt) {
		t.Errorf("after the reload of %s the limit is %q, read at %s: %v", reload.SentAt, watts, read, err)
	}

	p.awaitFor(2*patience, "a person is told of the GPU that no reload mends", func() error {
		steps, err := p.actionsOn(unmended)
		if err != nil {
			return err
		}
		if a := steps["reload_driver"]; a.State == schemas.ActionDone {
			return settled{fmt.Errorf("dead firmware is mended: %s", a.VerifiedBy)}
		} else if a.State != schemas.ActionFailed {
			return fmt.Errorf("the reload is %q: %s", a.State, a.Detail)
		}
		if a := steps["ticket"]; a.State != schemas.ActionProposed {
			return errors.New("nobody is told of it")
		}
		return nil
	})
	if s := nodeStates(t, dir, unmended); !slices.Contains(s, "DRAIN") {
		t.Errorf("%s is %v and not held out of the pool", unmended, s)
	}
	if steps, err = p.actionsOn(unmended); err != nil {
		t.Fatal(err)
	}
	t.Logf("reload_driver: %s; ticket: %s", steps["reload_driver"].Detail, steps["ticket"].Why)
	if a, ok := steps["uncordon"]; ok {
		t.Errorf("uncordon is %s", a.State)
	}
	if did, _ := acts(output(t, dir), unmended); !slices.Equal(did, []string{"reload begun", "reload done"}) {
		t.Errorf("the tools of %s were asked for %q", unmended, did)
	}

	p.await("the drain of a server that is at work goes on", func() error {
		steps, err := p.actionsOn(occupied)
		if err != nil {
			return err
		}
		if a := steps["drain"]; a.State != schemas.ActionVerifying || len(steps) != 1 {
			return fmt.Errorf("it is %q: %s; there are %d steps", a.State, a.Detail, len(steps))
		}
		return nil
	})
	if did, _ := acts(output(t, dir), occupied); len(did) > 0 {
		t.Errorf("the tools of %s, which is at work, were asked for %q", occupied, did)
	}
	p.interrupt()
}

package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"auspex/internal/sim"
	"auspex/schemas"
)

// A server that nobody knows of is found by its board controller, over a kill of the product, registered,
// validated, and given to somebody.
func TestAServerFromItsControllerToItsFirstUser(t *testing.T) {
	beside(t)
	dir := dataDir(t)
	args := []string{"--script", "testdata/scripts/quiet.yaml", "--seed", "3", "--spare", "1", "--set", "store.clickhouse=off"}
	p := startDemo(t, dir, args...)
	made, err := command(t, "token", "create", "root", "--role", "admin", "--data", dir).Output()
	if err != nil {
		t.Fatal(err)
	}
	root := strings.TrimSpace(string(made))
	must := func(out any, args ...string) {
		t.Helper()
		if err := p.ask(t, root, out, args...); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
	}
	var spare schemas.Topology
	b, err := os.ReadFile(filepath.Join(dir, "sim", sim.SpareFile))
	if err == nil {
		err = json.Unmarshal(b, &spare)
	}
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(spare.Resources, func(r schemas.Resource) bool { return r.Kind == schemas.KindServer })
	there := spare.Resources[at]
	var ignored map[string]any
	if err := p.ask(t, root, &ignored, "servers", "get", there.ID); err == nil {
		t.Fatalf("the inventory has it already: %v", ignored)
	}
	u, err := url.Parse(there.Attrs[schemas.AttrRedfishURL])
	if err != nil {
		t.Fatal(err)
	}
	// A server that is known beside it, so that it is matched and not found anew.
	var known struct{ Items []schemas.Server }
	must(&known, "servers", "list", "--limit", "1")
	beside, err := url.Parse(known.Items[0].RedfishURL)
	if err != nil {
		t.Fatal(err)
	}
	var sweep schemas.Discovery
	must(&sweep, "discoveries", "create", "--ranges", u.Hostname(), "--redfish-ports", beside.Port()+","+u.Port(), "--credential", sim.Credential)
	p.kill()
	p = startDemo(t, dir, args...)
	var page struct {
		Discovery schemas.Discovery
		Items     []schemas.Find
	}
	p.awaitFor(2*patience, "the sweep ends", func() error {
		if err := p.ask(t, root, &page, "discoveries", "get", sweep.ID); err != nil {
			return err
		}
		if page.Discovery.Status != schemas.DiscoveryCompleted {
			return fmt.Errorf("%+v", page.Discovery)
		}
		return nil
	})
	var found schemas.Find
	for _, f := range page.Items {
		switch f.Status {
		case schemas.ServerDiscovered:
			found = f
		case schemas.FindKnown:
			if f.Server != known.Items[0].Name {
				t.Errorf("%+v", f)
			}
		}
	}
	if len(page.Items) != 2 || found.SerialNumber != there.Attrs[schemas.AttrSerial] || len(found.GPUs) != 8 || len(found.NICs) == 0 ||
		found.Address != net.JoinHostPort(u.Hostname(), u.Port()) || found.Proposal == nil || found.Proposal.Name != there.ID {
		t.Fatalf("it has found %+v", page)
	}
	if len(found.Proposal.Places) == 0 || found.Proposal.Places[0].Parent != there.Parent {
		t.Errorf("it is proposed to stand in %+v, and stands in %s", found.Proposal.Places, there.Parent)
	}
	var v schemas.Server
	must(&v, "servers", "create", "--name", found.Proposal.Name, "--parent", found.Proposal.Places[0].Parent, "--found", found.ID)
	if v.Status != schemas.ServerDiscovered || v.SerialNumber != found.SerialNumber {
		t.Errorf("%+v", v)
	}
	var w schemas.Workflow
	must(&w, "workflows", "create", "--type", schemas.WorkflowValidate, "--server-id", v.ID)
	p.awaitFor(3*patience, "it is ready", func() error {
		if err := p.ask(t, root, &w, "workflows", "get", w.ID); err != nil {
			return err
		}
		if err := p.ask(t, root, &v, "servers", "get", v.ID); err != nil {
			return err
		}
		if v.Status != schemas.ServerReady {
			return fmt.Errorf("it is %s: %+v", v.Status, w)
		}
		return nil
	})
	must(&ignored, "users", "create", "--username", "zoe", "--email", "zoe@example.com", "--role", "engineer")
	var given struct{ Allocation schemas.Allocation }
	must(&given, "allocate", v.Name, "--user", "zoe", "--for", "2h", "--purpose", "train")
	p.awaitFor(3*patience, "somebody has it", func() error {
		var s struct {
			Status    string
			Workflows []schemas.Workflow
		}
		if err := p.ask(t, root, &s, "allocations", "status", given.Allocation.ID); err != nil {
			return err
		}
		if s.Status != schemas.AllocationActive {
			return fmt.Errorf("it is %s: %+v", s.Status, s.Workflows)
		}
		return nil
	})
	p.interrupt()
}

package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"auspex/schemas"
)

// given gives a server of some racks, and waits until it is its user's. Where jobs run there another is asked for.
func (p *product) given(racks ...int) (a schemas.Allocation) {
	p.t.Helper()
	n := -1
	p.await("a server is given", func() error {
		if a.ID == "" {
			n++
			var made struct{ Allocation schemas.Allocation }
			draft := fmt.Sprintf(`{"server_id":"gpu-r%02d-%02d","user_id":"li","purpose":"train"}`, racks[n/8%len(racks)], n%8+1)
			if err := p.curl(p.token, http.MethodPost, "allocations", draft, &made); err != nil {
				return err // jobs run there
			}
			a = made.Allocation
		}
		id := a.ID
		if err := p.get("api/v1/allocations/"+id, &a); err != nil {
			return err
		}
		w, err := p.flow(id, schemas.WorkflowDeploy)
		switch {
		case a.Status == schemas.AllocationActive:
			return nil
		case a.Status == schemas.AllocationFailed:
			return settled{errors.New(a.Reason)}
		case err != nil:
			return err
		}
		if why := p.busy(&w); why != nil {
			p.t.Logf("%v: %v", a.Servers, why)
			a = schemas.Allocation{}
			return why
		}
		return fmt.Errorf("it is %s", a.Status)
	})
	return a
}

// busy ends the allocation of a workflow that has waited for jobs for ten seconds: they may run for long.
func (p *product) busy(w *schemas.Workflow) error {
	for _, name := range []string{"idle", "drain"} {
		if st := w.Step(name); st != nil && st.Status == schemas.StepRunning && time.Since(st.StartedAt) > 10*time.Second {
			return errors.Join(errors.New(st.Message), p.curl(p.token, http.MethodDelete, "allocations/"+w.AllocationID, "", &schemas.Allocation{}))
		}
	}
	return nil
}

// Servers that come back are wiped, and are given to nobody before each of their drives is proven to hold nothing. One whose
// drive says that it is erased and holds data is found out, though its workflow did all that it was to do until then.
func TestWhatComesBackIsWipedAndProven(t *testing.T) {
	beside(t)
	metadata := freeAddress(t)
	p := launch(t, dataDir(t), "--demo", "--mode", "enforce", "--script", "testdata/scripts/lying-disk.yaml", "--set", "store.clickhouse=off",
		"--set", "instance_metadata.listen="+metadata, "--set", "allocator.wipe={template: wipe, of: all, parameters: {metadata_url: 'http://"+metadata+"'}}",
		"--set", "allocator.cleanup=[health, idle, drain, wipe]", "--set", "allocator.deploy=[idle, drain]")
	p.ready()
	cleaned := func(a schemas.Allocation) (c schemas.Workflow) {
		t.Helper()
		if err := p.curl(p.token, http.MethodPost, "allocations/"+a.ID+"/stop", "{}", &schemas.Allocation{}); err != nil {
			t.Fatal(err)
		}
		p.awaitFor(2*patience, a.Servers[0]+" is cleaned", func() (err error) {
			if c, err = p.flow(a.ID, schemas.WorkflowCleanup); err == nil && c.Live() {
				err = fmt.Errorf("the cleaning is %s: %+v", c.Status, c.Steps)
			}
			return err
		})
		return c
	}
	found := func(server string) schemas.Wipe {
		t.Helper()
		var all page[schemas.Wipe]
		if err := p.get("api/v1/servers/"+server+"/wipes", &all); err != nil || len(all.Items) != 1 {
			t.Fatalf("%+v %v", all, err)
		}
		return all.Items[0]
	}

	bad, good := p.given(2, 3, 4), p.given(5, 6, 7, 8)
	if c := cleaned(good); c.Status != schemas.WorkflowCompleted {
		t.Fatalf("%s: %s", c.Status, c.Reason)
	}
	w := found(good.Servers[0])
	if !w.Proven || len(w.Drives) != 2 {
		t.Errorf("%+v", w)
	}
	var methods []string
	for _, d := range w.Drives {
		methods = append(methods, d.Method)
		if d.Resource == "" || d.Serial == "" || d.Sanitize == nil || d.Blocks == nil || len(d.Blocks.Offsets) != 1026 {
			t.Errorf("%+v", d)
		}
	}
	if slices.Sort(methods); !slices.Equal(methods, []string{schemas.WipedByATA, schemas.WipedByNVMe}) {
		t.Error(methods)
	}

	c := cleaned(bad)
	if c.Status != schemas.WorkflowFailed || !strings.Contains(c.Reason, "is not proven to hold nothing: /dev/nvme0n1 (serial ") ||
		!strings.Contains(c.Reason, "hold data, one of them at 0, though it says that its sanitize operation is done") {
		t.Errorf("%s: %s", c.Status, c.Reason)
	}
	if w := found(bad.Servers[0]); w.Proven {
		t.Errorf("%+v", w)
	}
	var is schemas.Server
	if err := p.get("api/v1/servers/"+bad.Servers[0], &is); err != nil || is.Status != schemas.ServerError {
		t.Errorf("it is %s, %v", is.Status, err)
	}
	p.interrupt()
}

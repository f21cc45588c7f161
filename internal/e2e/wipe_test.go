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

// busy ends a workflow that has waited for jobs for ten seconds, and the allocation that it is of: they may run for long.
func (p *product) busy(w *schemas.Workflow) error {
	for _, name := range []string{"idle", "drain"} {
		if st := w.Step(name); st != nil && st.Status == schemas.StepRunning && time.Since(st.StartedAt) > 10*time.Second {
			if w.AllocationID == "" {
				return errors.Join(errors.New(st.Message), p.curl(p.token, http.MethodDelete, "workflows/"+w.ID, "", &schemas.Workflow{}))
			}
			return errors.Join(errors.New(st.Message), p.curl(p.token, http.MethodDelete, "allocations/"+w.AllocationID, "", &schemas.Allocation{}))
		}
	}
	return nil
}

// Servers that come back are wiped, and are given to nobody before each of their drives is proven to hold nothing. One whose
// drive says that it is erased and holds data is found out, though its workflow did all that it was to do until then.
func TestWhatComesBackIsWipedAndProven(t *testing.T) {
	beside(t)
	for script, proven := range map[string]bool{"quiet": true, "lying-disks": false} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			metadata := freeAddress(t)
			p := launch(t, dataDir(t), "--demo", "--mode", "enforce", "--script", "testdata/scripts/"+script+".yaml", "--set", "store.clickhouse=off",
				"--set", "instance_metadata.listen="+metadata, "--set", "allocator.wipe={template: wipe, of: all, parameters: {metadata_url: 'http://"+metadata+"'}}",
				"--set", "allocator.deploy=[idle, drain]", "--set", "allocator.cleanup=[health, idle, drain, wipe]")
			p.ready()
			var a schemas.Allocation
			p.await("a server is given", func() error {
				if a.ID == "" {
					var made struct{ Allocation schemas.Allocation }
					if err := p.curl(p.token, http.MethodPost, "allocations", `{"wish":{"servers":1},"user_id":"li","purpose":"train"}`, &made); err != nil {
						return err
					}
					a = made.Allocation
				}
				if err := p.get("api/v1/allocations/"+a.ID, &a); err != nil {
					return err
				}
				w, err := p.flow(a.ID, schemas.WorkflowDeploy)
				switch {
				case a.Status == schemas.AllocationActive:
					return nil
				case a.Status == schemas.AllocationFailed:
					return settled{errors.New(a.Reason)}
				case err != nil:
					return err
				}
				if why := p.busy(&w); why != nil { // another is asked for
					a = schemas.Allocation{}
					return why
				}
				return fmt.Errorf("it is %s", a.Status)
			})
			if err := p.curl(p.token, http.MethodPost, "allocations/"+a.ID+"/stop", "{}", &schemas.Allocation{}); err != nil {
				t.Fatal(err)
			}
			var c schemas.Workflow
			p.awaitFor(2*patience, a.Servers[0]+" is cleaned", func() (err error) {
				if c, err = p.flow(a.ID, schemas.WorkflowCleanup); err == nil && c.Live() {
					err = fmt.Errorf("the cleaning is %s: %+v", c.Status, c.Steps)
				}
				return err
			})
			var all page[schemas.Wipe]
			if err := p.get("api/v1/servers/"+a.Servers[0]+"/wipes", &all); err != nil || len(all.Items) != 1 || all.Items[0].Proven != proven || len(all.Items[0].Drives) != 2 {
				t.Fatalf("%+v %v", all, err)
			}
			if !proven {
				if c.Status != schemas.WorkflowFailed || !strings.Contains(c.Reason, "is not proven to hold nothing: /dev/nvme0n1 (serial ") ||
					!strings.Contains(c.Reason, "hold data, one of them at 0, though it says that its sanitize operation is done") {
					t.Errorf("%s: %s", c.Status, c.Reason)
				}
				var is schemas.Server
				if err := p.get("api/v1/servers/"+a.Servers[0], &is); err != nil || is.Status != schemas.ServerError {
					t.Errorf("it is %s, %v", is.Status, err)
				}
				p.interrupt()
				return
			}
			if c.Status != schemas.WorkflowCompleted {
				t.Errorf("%s: %s", c.Status, c.Reason)
			}
			var methods []string
			for _, d := range all.Items[0].Drives {
				methods = append(methods, d.Method)
				if d.Resource == "" || d.Serial == "" || d.Sanitize == nil || d.Blocks == nil || len(d.Blocks.Offsets) != 1026 {
					t.Errorf("%+v", d)
				}
			}
			if slices.Sort(methods); !slices.Equal(methods, []string{schemas.WipedByATA, schemas.WipedByNVMe}) {
				t.Error(methods)
			}
			p.interrupt()
		})
	}
}

package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"auspex/schemas"
)

// lying is the server of the script lying-disk.
const lying = "gpu-r03-04"

// Servers that come back are wiped, and are given to nobody before each of their drives is proven to hold nothing. One whose
// drive says that it is erased and holds data is found out, though its workflow did all that it was to do until then.
func TestWhatComesBackIsWipedAndProven(t *testing.T) {
	beside(t)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	metadata := l.Addr().String()
	_ = l.Close()
	p := launch(t, dataDir(t), "--demo", "--mode", "enforce", "--script", "testdata/scripts/lying-disk.yaml", "--set", "store.clickhouse=off",
		"--set", "instance_metadata.listen="+metadata, "--set", "allocator.wipe={template: wipe, of: all, parameters: {metadata_url: 'http://"+metadata+"'}}",
		"--set", "allocator.cleanup=[idle, wipe]", "--set", "allocator.deploy=[idle]")
	p.ready()
	wipesOf := func(server string) (found page[schemas.Wipe], err error) {
		return found, p.get("api/v1/servers/"+server+"/wipes", &found)
	}
	give := func(server string) (a schemas.Allocation) {
		t.Helper()
		p.await(server+" is given", func() error {
			if a.ID == "" {
				var made struct{ Allocation schemas.Allocation }
				if err := p.curl(p.token, http.MethodPost, "allocations", `{"server_id":"`+server+`","user_id":"li","purpose":"train"}`, &made); err != nil {
					return err
				}
				a = made.Allocation
			}
			if err := p.get("api/v1/allocations/"+a.ID, &a); err != nil {
				return err
			}
			if a.Status == schemas.AllocationFailed {
				return settled{errors.New(a.Reason)}
			}
			if a.Status != schemas.AllocationActive {
				return fmt.Errorf("it is %s", a.Status)
			}
			return nil
		})
		var ended any
		if err := p.curl(p.token, http.MethodPost, "allocations/"+a.ID+"/stop", "{}", &ended); err != nil {
			t.Fatal(err)
		}
		return a
	}
	// The simulated scheduler may have a job begin on the server meanwhile, which is not ended: then it is tried again.
	cleaning := func(a schemas.Allocation) (c schemas.Workflow, err error) {
		var again any
		if c, err = p.flow(a.ID, schemas.WorkflowCleanup); err == nil && c.Status == schemas.WorkflowFailed && strings.Contains(c.Reason, "jobs run on") {
			err = errors.Join(errors.New(c.Reason), p.curl(p.token, http.MethodPost, "workflows/cleanup", `{"allocation_id":"`+a.ID+`","server_id":"`+a.ServerID+`"}`, &again))
		}
		return c, err
	}
	other := "gpu-r03-05"
	bad, good := give(lying), give(other)
	p.awaitFor(3*patience, other+" is wiped and free", func() error {
		c, err := cleaning(good)
		switch {
		case err != nil:
			return err
		case c.Status == schemas.WorkflowFailed:
			return settled{errors.New(c.Reason)}
		case c.Status != schemas.WorkflowCompleted:
			return fmt.Errorf("the cleaning is %s: %+v", c.Status, c.Steps)
		}
		return nil
	})
	found, err := wipesOf(other)
	if err != nil || len(found.Items) != 1 || !found.Items[0].Proven || len(found.Items[0].Drives) != 2 {
		t.Fatalf("%+v %v", found, err)
	}
	methods := []string{}
	for _, d := range found.Items[0].Drives {
		methods = append(methods, d.Method)
		if d.Resource == "" || d.Serial == "" || d.Sanitize == nil || d.Blocks == nil || len(d.Blocks.Offsets) != 1026 {
			t.Errorf("%+v", d)
		}
	}
	if slices.Sort(methods); !slices.Equal(methods, []string{schemas.WipedByATA, schemas.WipedByNVMe}) {
		t.Error(methods)
	}
	p.awaitFor(3*patience, lying+" is found out", func() error {
		c, err := cleaning(bad)
		switch {
		case err != nil:
			return err
		case c.Status == schemas.WorkflowCompleted:
			return settled{fmt.Errorf("it is given back: %+v", c.Steps)}
		case c.Status != schemas.WorkflowFailed:
			return fmt.Errorf("the cleaning is %s: %+v", c.Status, c.Steps)
		}
		if !strings.Contains(c.Reason, "is not proven to hold nothing: /dev/nvme0n1 (serial ") || !strings.Contains(c.Reason, "hold data, one of them at 0, though it says that its sanitize operation is done") {
			return settled{errors.New(c.Reason)}
		}
		t.Log(c.Reason)
		return nil
	})
	if found, err = wipesOf(lying); err != nil || len(found.Items) != 1 || found.Items[0].Proven {
		t.Errorf("%+v %v", found, err)
	}
	var is schemas.Server
	if err := p.get("api/v1/servers/"+lying, &is); err != nil || is.Status != schemas.ServerError {
		t.Errorf("it is %s, %v", is.Status, err)
	}
	p.interrupt()
}

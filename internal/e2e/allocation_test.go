package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"auspex/schemas"
)

// receiver is a program of a user that is told what happens to what they hold.
type receiver struct {
	*httptest.Server
	mu   sync.Mutex
	told map[string]string // type and subject of notices, by their id
}

func listen(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{told: map[string]string{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		b, err := io.ReadAll(req.Body)
		var n struct{ ID, Type, Subject string }
		if err == nil {
			err = json.Unmarshal(b, &n)
		}
		if err != nil || req.Header.Get("Webhook-Signature") == "" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		r.mu.Lock()
		r.told[n.ID] = n.Type + " " + n.Subject
		r.mu.Unlock()
	}))
	t.Cleanup(r.Close)
	return r
}

// hears waits for a notice.
func (p *product) hears(r *receiver, notice string) {
	p.t.Helper()
	p.awaitFor(2*patience, notice, func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, told := range r.told {
			if told == notice {
				return nil
			}
		}
		return fmt.Errorf("told so far: %v", r.told)
	})
}

// ask runs a command that asks the product, as an admin, and decodes its answer.
func (p *product) ask(t *testing.T, token string, out any, args ...string) error {
	t.Helper()
	cmd := command(t, append(args, "-o", "json", "--api", p.url)...)
	cmd.Env = append(cmd.Environ(), "AUSPEX_TOKEN="+token)
	b, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return fmt.Errorf("%w: %s", err, exit.Stderr)
	} else if err != nil {
		return err
	}
	return json.Unmarshal(b, out)
}

// Two servers are asked for, the process is killed before they are ready, a GPU of one dies, who has them is told and
// offered another, and what comes back is cleaned: the one that is well is given again, the other stays out.
func TestAllocatedServersFromAskingToReturn(t *testing.T) {
	beside(t)
	dir := dataDir(t)
	const ill, well = "gpu-r04-02", "gpu-r04-03"
	script := func(name string) []string {
		return []string{"--script", "testdata/scripts/" + name + ".yaml", "--seed", "3", "--set", "store.clickhouse=off"}
	}
	p := startDemo(t, dir, script("quiet")...)
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
	var ignored map[string]any
	hook := listen(t)
	must(&ignored, "users", "create", "--username", "zoe", "--email", "zoe@example.com", "--role", "engineer")
	must(&ignored, "webhooks", "create", "--name", "mine", "--url", hook.URL, "--topics", "allocation.*",
		"--secret", "whsec_"+strings.Repeat("QUJD", 8))
	var given struct{ Allocation schemas.Allocation }
	must(&given, "allocate", ill, well, "--user", "zoe", "--for", "2h", "--purpose", "train")
	id := given.Allocation.ID
	p.kill()
	p = startDemo(t, dir, script("quiet")...)
	status := func() (s struct {
		Status      string             `json:"status"`
		Reason      string             `json:"status_reason"`
		Workflows   []schemas.Workflow `json:"workflows"`
		Replacement []schemas.Pick     `json:"replacement"`
	}, err error,
	) {
		return s, p.ask(t, root, &s, "allocations", "status", id)
	}
	becomes := func(want string) {
		t.Helper()
		p.awaitFor(3*patience, "the allocation is "+want, func() error {
			s, err := status()
			if err == nil && s.Status != want {
				err = fmt.Errorf("it is %s (%s): %+v", s.Status, s.Reason, s.Workflows)
			}
			return err
		})
	}
	becomes(schemas.AllocationActive)
	p.hears(hook, "auspex.allocation.active "+id)
	s, err := status()
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range s.Workflows {
		var steps []string
		for _, st := range w.Steps {
			steps = append(steps, st.Name+" "+st.Status+": "+st.Message)
		}
		t.Log(w.Server, steps)
		if w.Attempt != 1 || !slices.ContainsFunc(w.Steps, func(st schemas.WorkflowStep) bool {
			return st.Name == "telemetry" && strings.HasPrefix(st.Message, "8 GPUs")
		}) {
			t.Errorf("%+v", w)
		}
	}

	p.interrupt()
	p = startDemo(t, dir, script("tenant")...)
	p.hears(hook, "auspex.allocation.degraded "+id)
	p.awaitFor(2*patience, "another is offered", func() error {
		s, err := status()
		if err == nil && (len(s.Replacement) != 1 || s.Replacement[0].Server == well) {
			err = fmt.Errorf("%+v", s.Replacement)
		}
		return err
	})
	p.awaitFor(2*patience, "an incident names the GPU, and who has it", func() error {
		var list struct{ Items []schemas.Incident }
		if err := p.get("api/v1/incidents?status=open", &list); err != nil {
			return err
		}
		for _, i := range list.Items {
			if i.RootCause.Resource != ill+"/gpu3" {
				continue
			}
			var one struct {
				Holders []struct{ Allocation, User string }
			}
			if err := p.get("api/v1/incidents/"+i.ID, &one); err != nil {
				return err
			}
			if len(one.Holders) == 1 && one.Holders[0].Allocation == id && one.Holders[0].User == "zoe" {
				return nil
			}
			return fmt.Errorf("%+v", one)
		}
		return fmt.Errorf("%+v", list.Items)
	})

	must(&ignored, "allocations", "stop", id, "--report", "gpu3 is gone")
	becomes(schemas.AllocationCompleted)
	state := func(server string) (s schemas.Server) {
		t.Helper()
		must(&s, "servers", "get", server)
		return s
	}
	p.awaitFor(3*patience, well+" is given again", func() error {
		var a struct{ Allocation schemas.Allocation }
		return p.ask(t, root, &a, "allocate", well, "--user", "zoe")
	})
	p.awaitFor(3*patience, ill+" stays out, and is listed with why", func() error {
		var c struct{ Stranded []schemas.Stranded }
		if err := p.ask(t, root, &c, "capacity", "get"); err != nil {
			return err
		}
		if !slices.ContainsFunc(c.Stranded, func(x schemas.Stranded) bool { return x.Server == ill && x.Why == schemas.StrandedCleaning }) {
			return fmt.Errorf("%+v, and %s is %s", c.Stranded, ill, state(ill).Status)
		}
		return nil
	})
	if out, err := command(t, "allocate", ill, "--user", "zoe", "--data-dir", dir).CombinedOutput(); err == nil {
		t.Errorf("it was given: %s", out)
	}
	p.interrupt()
}

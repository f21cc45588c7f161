package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"auspex/internal/sim/ledger"
	"auspex/schemas"
)

// operation is what the tests look at of what was asked for.
type operation struct {
	ID         string         `json:"id"`
	State      string         `json:"state"`
	Done       bool           `json:"done"`
	Detail     string         `json:"detail"`
	VerifiedBy string         `json:"verified_by"`
	Rails      []schemas.Rail `json:"rails"`
}

// asks wants something done to a server, as a script would; the same key is the same wish.
func (p *product) asks(token, server, key, wish string) (o operation) {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, p.url+"api/v1/servers/"+server+"/power", strings.NewReader(wish))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusAccepted || !strings.HasSuffix(resp.Header.Get("Location"), "/api/v1/operations/"+idOf(b)) {
		p.t.Fatalf("%s %v: %s, at %s", resp.Status, err, b, resp.Header.Get("Location"))
	}
	if err := json.Unmarshal(b, &o); err != nil {
		p.t.Fatal(err)
	}
	return o
}

func idOf(b []byte) string {
	var o operation
	_ = json.Unmarshal(b, &o)
	return o.ID
}

// engineer makes a token that may ask for operations.
func engineer(t *testing.T, dir string) string {
	t.Helper()
	made, err := command(t, "token", "create", "engineer", "--role", "engineer", "--data", dir).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(made))
}

// ends waits for the end of an operation.
func (p *product) ends(id, state string) (o operation) {
	p.t.Helper()
	p.awaitFor(2*patience, "operation "+id+" is "+state, func() error {
		if err := p.get("api/v1/operations/"+id, &o); err != nil {
			return err
		}
		if o.Done && o.State != state {
			return settled{fmt.Errorf("it is %s: %s", o.State, o.Detail)}
		}
		if !o.Done {
			return fmt.Errorf("it is %s: %s", o.State, o.Detail)
		}
		return nil
	})
	return o
}

// What is asked for is done once, over the protocol of the board controller, and read back from it: also where the
// process is killed as soon as it has promised to do it, and asked again.
func TestWhatIsAskedForIsDoneOnceOverAKill(t *testing.T) {
	beside(t)
	const server = "gpu-r02-01"
	for _, protocol := range []string{"redfish", "ipmi"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			dir := dataDir(t)
			args := []string{
				"--mode", "enforce", "--script", "testdata/scripts/quiet.yaml", "--seed", "3", "--set", "store.clickhouse=off",
				"--set", "control.bmc.protocol=" + protocol,
			}
			p := startDemo(t, dir, args...)
			token := engineer(t, dir)
			if o := p.ends(p.asks(token, server, "careful", `{"action":"power_cycle"}`).ID, schemas.ActionRefused); !strings.Contains(o.Detail, "run on "+server) {
				t.Errorf("while jobs run there: %s", o.Detail)
			}
			const wish = `{"action":"power_cycle","force":true}`
			first := p.asks(token, server, "cycle", wish)
			p.kill()
			p = startDemo(t, dir, args...)
			if again := p.asks(token, server, "cycle", wish); again.ID != first.ID {
				t.Errorf("the same wish is %s, was %s", again.ID, first.ID)
			}
			if o := p.ends(first.ID, schemas.ActionDone); o.VerifiedBy == "" {
				t.Errorf("%+v", o)
			} else {
				t.Log(o.VerifiedBy)
			}
			off := p.ends(p.asks(token, server, "off", `{"action":"power_off","force":true}`).ID, schemas.ActionDone)
			on := p.ends(p.asks(token, server, "on", `{"action":"power_on"}`).ID, schemas.ActionDone)
			t.Log(off.VerifiedBy, on.VerifiedBy)
			p.interrupt()
			asked := map[string]int{}
			for _, e := range output(t, dir) {
				if e.Kind == ledger.KindReset {
					asked[e.Device+" "+e.Code+" "+e.Protocol]++
				}
			}
			for _, code := range []string{"PowerCycle", "ForceOff", "On"} {
				if n := asked[server+" "+code+" "+protocol]; n != 1 {
					t.Errorf("%s was asked for %d times: %v", code, n, asked)
				}
			}
		})
	}
}

func TestControlThatObservesRefusesWhatIsAskedFor(t *testing.T) {
	beside(t)
	dir := dataDir(t)
	p := startDemo(t, dir, "--mode", "observe", "--script", "testdata/scripts/quiet.yaml", "--seed", "3", "--set", "store.clickhouse=off")
	token := engineer(t, dir)
	if o := p.ends(p.asks(token, "gpu-r02-01", "k", `{"action":"power_cycle","force":true}`).ID, schemas.ActionRefused); o.Detail != "control only observes" {
		t.Errorf("%+v", o)
	}
	p.interrupt()
	for _, e := range output(t, dir) {
		if e.Kind == ledger.KindReset {
			t.Errorf("it was done: %+v", e)
		}
	}
}

package tinkerbell

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"auspex/control"
	"auspex/control/messages"
	"auspex/internal/bmc"
	"auspex/internal/waittest"
	"auspex/schemas"
)

// machineOf gives the real Rufio the board controller of the server, with its credential in a Secret.
func (s *site) machineOf(connection map[string]any) {
	s.Helper()
	name := s.step.Server
	s.call("POST", "/api/v1/namespaces/tink/secrets", "", map[string]any{
		"metadata": map[string]any{"name": name}, "stringData": map[string]any{"username": "admin", "password": "secret"},
	})
	connection["insecureTLS"], connection["authSecretRef"] = true, map[string]any{"name": name, "namespace": "tink"}
	s.call("POST", "/apis/bmc.tinkerbell.org/v1alpha1/namespaces/tink/machines", "", map[string]any{
		"apiVersion": bmcGroup.String(), "kind": "Machine", "metadata": map[string]any{"name": name}, "spec": map[string]any{"connection": connection},
	})
}

// hands are those of Rufio as a process that starts has them, with the rights of the manifest.
func (s *site) hands() map[string]control.Remediator {
	s.Helper()
	c := defaults()
	c.Kubeconfig, c.Rufio = peer(s.T, "TINK_AUSPEX"), true
	all, err := c.Reliefs(control.Settings{Installs: s.stock, Resource: func(id string) (schemas.Resource, bool) {
		return schemas.Resource{ID: id}, id == s.step.Server
	}})
	if err != nil {
		s.Fatal(err)
	}
	return all
}

// known waits until Rufio has read the power of the server.
func (s *site) known(power string) {
	s.Helper()
	waittest.Until(s.T, func() error {
		r := s.hands()["power_on"].(turn)
		if m, err := r.find(s.Context(), s.step.Server); err != nil || m.power() != power {
			return fmt.Errorf("power is not read as %s: %w", power, err)
		}
		return nil
	})
}

// does has Rufio do a step, and looks as control does until there is a verdict: each time as a process that has just started.
func (s *site) does(kind string, with map[string]string, want control.Verdict, words string) {
	s.Helper()
	step := s.step
	step.ID, step.Kind, step.With = s.step.ID+"-"+kind, kind, with
	taken := func(err error) error { // a controller may be out of Rufio's reach for a while
		if err != nil && !errors.Is(err, control.ErrRejected) {
			s.Fatal(err)
		}
		return err
	}
	waittest.Until(s.T, func() error {
		_, err := s.hands()[kind].Plan(s.Context(), step)
		return taken(err)
	})
	for range 2 { // it is sent once
		waittest.Until(s.T, func() error { return taken(s.hands()[kind].Apply(s.Context(), step)) })
	}
	crossed := false
	waittest.Until(s.T, func() error {
		r := s.hands()[kind]
		if err := r.(control.Pursuer).Pursue(s.Context(), step); err != nil {
			s.Fatal(err)
		}
		v, said, err := r.Verify(s.Context(), step)
		switch {
		case err != nil:
			return err
		case strings.Contains(messages.Text(said), "already exists"):
			crossed = true
			return nil
		case v != want && v != control.Pending:
			s.Fatalf("%s: verdict %d: %s", kind, v, messages.Text(said))
		case v != want || !strings.Contains(messages.Text(said), words):
			return fmt.Errorf("%s: verdict %d: %s", kind, v, messages.Text(said))
		}
		s.Log(kind, messages.Text(said))
		return nil
	})
	if crossed { // Rufio made the task of a job a second time before it saw the first, and gave the job up: nobody can tell what came of it
		s.step.ID += "-again"
		s.does(kind, with, want, words)
	}
}

func TestTheRealRufioTurnsThePowerOfAController(t *testing.T) {
	t.Parallel()
	s := realSite(t)
	all := strings.Fields(peer(t, "IPMI_BMCS"))
	at := all[len(all)-1]
	host, number, err := net.SplitHostPort(at)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(number)
	if err != nil {
		t.Fatal(err)
	}
	s.machineOf(map[string]any{"host": host, "port": port, "providerOptions": map[string]any{
		"preferredOrder": []any{"ipmitool"}, "ipmitool": map[string]any{"port": port, "cipherSuite": "3"},
	}})
	reads := func(want bmc.PowerState) {
		t.Helper()
		c, err := bmc.Open(t.Context(), bmc.Target{Server: "s", IPMIAddr: at, User: "admin", Password: "secret"})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close(t.Context()) }()
		if p, err := c.Power(t.Context()); err != nil || p != want {
			t.Errorf("the controller reads %s, want %s: %v", p, want, err)
		}
	}
	s.known("on")
	s.does("power_off", map[string]string{"force": "true"}, control.Verified, "reads that power is off")
	reads(bmc.PowerOff)
	s.does("power_on", nil, control.Verified, "reads that power is on")
	reads(bmc.PowerOn)
	s.does("set_boot", map[string]string{"target": "pxe"}, control.Unseen, "does not read back")
	s.does("power_cycle", nil, control.Verified, "reads that power is on")
	reads(bmc.PowerOn)
}

// remote is a board controller as Rufio's provider rpc asks for one.
type remote struct {
	power atomic.Value
	asked atomic.Int32 // to turn the power
	obeys bool
}

// ServeHTTP implements http.Handler.
func (r *remote) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	var ask struct {
		ID     any    `json:"id"`
		Host   string `json:"host"`
		Method string `json:"method"`
		Params struct {
			State string `json:"state"`
		} `json:"params"`
	}
	_ = json.NewDecoder(q.Body).Decode(&ask)
	var result any = "ok"
	switch ask.Method {
	case "getPowerState":
		result = r.power.Load()
	case "setPowerState":
		r.asked.Add(1)
		if r.obeys {
			r.power.Store(map[bool]string{true: "on", false: "off"}[ask.Params.State == "on"])
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"id": ask.ID, "host": ask.Host, "result": result})
}

func (s *site) remote(obeys bool) *remote {
	r := &remote{obeys: obeys}
	r.power.Store("on")
	srv := httptest.NewServer(r)
	s.Cleanup(srv.Close)
	s.machineOf(map[string]any{"host": "192.0.2.1", "port": 1, "providerOptions": map[string]any{"rpc": map[string]any{"consumerURL": srv.URL}}})
	s.known("on")
	return r
}

func TestOneJobOfTheRealRufioTurnsPowerOnce(t *testing.T) {
	t.Parallel()
	s := realSite(t)
	r := s.remote(true)
	s.does("power_cycle", nil, control.Verified, "reads that power is on")
	if n := r.asked.Load(); n != 2 {
		t.Errorf("%d turns, want off and on", n)
	}
}

func TestAControllerThatSaysYesAndDoesNothingIsNotBelievedThroughTheRealRufio(t *testing.T) {
	t.Parallel()
	s := realSite(t)
	s.remote(false)
	step := s.step
	step.Kind, step.With = "power_off", map[string]string{"force": "true"} // this provider has no shutdown
	if err := s.hands()[step.Kind].Apply(t.Context(), step); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, func() error {
		j, err := s.hands()[step.Kind].(turn).job(t.Context(), step)
		if err != nil || j == nil || len(j.Status.Conditions) == 0 {
			return fmt.Errorf("Rufio has not begun: %w", err) //nolint:staticcheck // a name
		}
		return nil
	})
	if v, said, err := s.hands()[step.Kind].Verify(t.Context(), step); v != control.Pending || err != nil {
		t.Error(v, messages.Text(said), err)
	}
	// As long as it goes on, nobody else has the machine.
	another := step
	another.ID += "-b"
	if err := s.hands()[step.Kind].Apply(t.Context(), another); !errors.Is(err, control.ErrRejected) || !strings.Contains(err.Error(), "belongs to Auspex ("+step.ID+"), has not ended on machine "+s.step.Server) {
		t.Error(err)
	}
}

func TestAControllerThatTheRealRufioDoesNotReachIsNotSentToAgain(t *testing.T) {
	t.Parallel()
	s := realSite(t)
	s.machineOf(map[string]any{"host": "127.0.0.1", "port": 1, "providerOptions": map[string]any{
		"preferredOrder": []any{"ipmitool"}, "ipmitool": map[string]any{"port": 1, "cipherSuite": "3"},
	}})
	step := s.step
	step.Kind = "power_on"
	if err := s.hands()[step.Kind].Apply(t.Context(), step); err != nil { // Rufio may not have tried yet
		if !strings.Contains(err.Error(), "does not reach the board controller") {
			t.Fatal(err)
		}
		return
	}
	waittest.Until(t, func() error {
		v, said, err := s.hands()[step.Kind].Verify(t.Context(), step)
		if err != nil || v != control.Failed {
			return fmt.Errorf("verdict %d: %s: %w", v, messages.Text(said), err)
		}
		t.Log(messages.Text(said))
		return nil
	})
	waittest.Until(t, func() error {
		step.ID += "-b"
		if err := s.hands()[step.Kind].Apply(t.Context(), step); err == nil || !strings.Contains(err.Error(), "does not reach the board controller of machine tink/"+s.step.Server) {
			return fmt.Errorf("it is sent: %w", err)
		}
		return nil
	})
}

func TestARightThatLacksForRufioIsNamed(t *testing.T) {
	s := realSite(t)
	c := defaults()
	c.Kubeconfig, c.Rufio = peer(t, "TINK_STRANGER"), true
	all, err := c.Reliefs(control.Settings{Resource: func(id string) (schemas.Resource, bool) { return schemas.Resource{ID: id}, true }})
	if err != nil {
		t.Fatal(err)
	}
	if err := all["power_on"].Apply(t.Context(), s.step); !errors.Is(err, control.ErrRejected) || !strings.Contains(err.Error(), `cannot get resource "machines" in API group "bmc.tinkerbell.org"`) {
		t.Error(err)
	}
}

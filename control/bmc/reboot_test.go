package bmc

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"auspex/control"
	"auspex/control/agent"
	"auspex/control/controltest"
	"auspex/control/messages"
	"auspex/schemas"
)

func TestConformanceOfAReboot(t *testing.T) {
	controltest.Run(t, controltest.Harness{
		Kinds: []string{"reboot"}, Some: true,
		World: func(t *testing.T, m controltest.Manner) controltest.World {
			peer := board()
			srv := httptest.NewServer(controltest.Behave(m, peer, changes))
			if m == controltest.Gone {
				srv.Close()
			} else {
				t.Cleanup(srv.Close)
			}
			return controltest.World{
				Driver: relief{Default()}, Settings: at(srv.URL), Server: "s1", Asked: func() int { return len(peer.Posts()) },
				Effects: map[string][]func(){"reboot": {
					func() { peer.Set(system, systemDoc("Off", time.Now().Add(time.Second))) },
					func() { peer.Set(system, systemDoc("On", time.Now().Add(time.Second))) },
				}},
			}
		},
	})
}

// relief is what a driver does where another does not reach a server.
type relief struct{ *Config }

func (r relief) Remediators(s control.Settings) (map[string]control.Remediator, error) {
	return r.Reliefs(s)
}

// A server without a node agent restarts through its controller; one with an agent through that, also
// where it does not answer.
func TestAServerWithoutAnAgentRestartsThroughItsController(t *testing.T) {
	t.Parallel()
	for agentAddr, want := range map[string]string{"": "would have s1 restart its system through its BMC", "127.0.0.1:1": ""} {
		peer := board()
		srv := httptest.NewServer(peer)
		with := at(srv.URL)
		resource := with.Resource
		with.Resource = func(id string) (schemas.Resource, bool) {
			r, ok := resource(id)
			if agentAddr != "" {
				r.Attrs = r.Attrs.With(schemas.AttrAgentAddress, agentAddr)
			}
			return r, ok
		}
		all, err := control.Drivers{Name: Default(), agent.Name: agent.Default()}.Remediators(with)
		if err != nil {
			t.Fatal(err)
		}
		s := control.Step{ID: "a", Kind: "reboot", Server: "s1", Since: time.Now()}
		sentence, err := all["reboot"].Plan(t.Context(), s)
		if want == "" {
			if err == nil || errors.Is(err, control.ErrCannot) || peer.Requests.Load() != 0 {
				t.Errorf("with an agent: %v, %d requests to the controller", err, peer.Requests.Load())
			}
		} else if text := messages.Text(sentence); err != nil || !strings.HasPrefix(text, want) {
			t.Errorf("%s, %v", text, err)
		}
		srv.Close()
	}
}

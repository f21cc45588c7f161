package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/openconfig/gnmic/pkg/api"
	"go.yaml.in/yaml/v3"

	"auspex/internal/sim"
	"auspex/internal/sim/fleet"
	"auspex/schemas"
)

// kept is what the tests look at of a configuration.
type kept struct {
	Version int64  `json:"version"`
	State   string `json:"state"`
	Keeping *struct {
		State   string            `json:"state"`
		Detail  string            `json:"detail"`
		Version int64             `json:"version"`
		Applied int64             `json:"applied_version"`
		Found   map[string]string `json:"found"`

		Attempts int `json:"attempts"`
	} `json:"keeping"`
}

// fares waits until the latest version of a configuration is in a state.
func (p *product) fares(path, state string) (c kept) {
	p.t.Helper()
	p.awaitFor(2*patience, path+" is "+state, func() error {
		if err := p.get("api/v1/"+path, &c); err != nil {
			return err
		}
		if c.Keeping == nil || c.Keeping.Version != c.Version || c.Keeping.State != state {
			return fmt.Errorf("%+v", c.Keeping)
		}
		return nil
	})
	return c
}

// atAgent sets a setting of a GPU past Auspex, as somebody with a shell on the server does.
func (p *product) atAgent(dir, server, path, value string) {
	p.t.Helper()
	var top schemas.Topology
	var secrets map[string]struct{ User, Password string }
	b, err := os.ReadFile(filepath.Join(dir, "sim", sim.TopologyFile))
	if err == nil {
		err = json.Unmarshal(b, &top)
	}
	if err == nil {
		b, err = os.ReadFile(filepath.Join(dir, "sim", sim.SecretsFile))
	}
	if err == nil {
		err = yaml.Unmarshal(b, &secrets)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	k := slices.IndexFunc(top.Resources, func(r schemas.Resource) bool { return r.ID == server })
	peer, err := api.NewTarget(
		api.Name(server), api.Address(top.Resources[k].Attrs.Get(schemas.AttrAgentAddress)), api.SkipVerify(true),
		api.Username(secrets[sim.Credential].User), api.Password(secrets[sim.Credential].Password),
	)
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = peer.Close() }()
	req, err := api.NewSetRequest(api.Update(api.Path(path), api.Value(value, "json_ietf")))
	if err == nil {
		err = peer.CreateGNMIClient(p.t.Context())
	}
	if err == nil {
		_, err = peer.Set(p.t.Context(), req)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// A configuration is applied, set again where somebody sets it otherwise, waits for a restart where a BIOS needs one,
// and is rolled back where the BIOS does not take it; nothing is restarted by itself.
func TestConfigurationsAreKept(t *testing.T) {
	beside(t)
	const server = "gpu-r02-01"
	dir := dataDir(t)
	p := startDemo(t, dir, "--mode", "enforce", "--script", "testdata/scripts/quiet.yaml", "--seed", "3", "--set", "store.clickhouse=off",
		"--set", "control.configuration.enforce=true", "--set", "control.configuration.read=10s", "--set", "control.configuration.attempts=2",
		"--set", "control.configuration.cool_down=1s")
	token := engineer(t, dir)
	put := func(path, body string) {
		t.Helper()
		if err := p.curl(token, "PUT", path, body, &kept{}); err != nil {
			t.Fatal(err)
		}
	}
	const gpu, bios = "gpus/" + server + "%2Fgpu3/config", "servers/" + server + "/config"

	put(gpu, `{"power_limit":600,"driver_config":{"persistence":true}}`)
	if c := p.fares(gpu, schemas.ConfigInForce); c.State != "in_force" || c.Keeping.Found["power_limit"] != "600" || c.Keeping.Applied != 1 {
		t.Errorf("%+v", c)
	}
	p.atAgent(dir, server, "/gpus/gpu[name=gpu3]/config/power-limit", "450")
	drift := func(status string) func() error {
		return func() error {
			all, err := list[schemas.Alert](p, "alerts")
			if err != nil {
				return err
			}
			for i := range all {
				if a := &all[i]; a.Type == schemas.EventConfigDrift && a.Resource == server+"/gpu3" && a.Status == status && a.Attrs["found"] == "450" {
					return nil
				}
			}
			return errors.New("no such alert")
		}
	}
	p.awaitFor(2*patience, "the drift is told and mended", drift(schemas.AlertResolved))
	if c := p.fares(gpu, schemas.ConfigInForce); c.Keeping.Found["power_limit"] != "600" {
		t.Errorf("%+v", c.Keeping)
	}

	put(gpu, `{"power_limit":10}`) // less than the board takes
	if c := p.fares(gpu, schemas.ConfigRolledBack); c.Keeping.Applied != 1 || c.Keeping.Found["power_limit"] != "600" {
		t.Errorf("%+v", c.Keeping)
	}

	put(bios, `{"bios_config":{"NUMANodesPerSocket":2}}`)
	if c := p.fares(bios, schemas.ConfigAwaits); c.State != "differs" {
		t.Errorf("%+v", c)
	}
	cycle := func(key string) {
		t.Helper()
		p.ends(p.asks(token, server, key, `{"action":"power_cycle","force":true}`).ID, schemas.ActionDone)
	}
	cycle("first")
	p.fares(bios, schemas.ConfigInForce)
	put(bios, `{"bios_config":{"NUMANodesPerSocket":2,"`+fleet.LockedAttribute+`":"Disabled"}}`)
	p.fares(bios, schemas.ConfigAwaits)
	cycle("second")
	p.awaitFor(2*patience, "it is tried once more", func() error {
		if c := p.fares(bios, schemas.ConfigAwaits); c.Keeping.Attempts != 2 {
			return fmt.Errorf("%+v", c.Keeping)
		}
		return nil
	})
	cycle("third")
	if c := p.fares(bios, schemas.ConfigRolledBack); c.Keeping.Applied != 1 || !strings.Contains(c.Keeping.Detail, fleet.LockedAttribute) {
		t.Errorf("%+v", c.Keeping)
	}
	all, err := list[schemas.Action](p, "actions")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if a.Kind != "configure_gpu" && a.Kind != "set_bios" && a.Actor == "auspex" {
			t.Errorf("%s of %s was done by itself: %s", a.Kind, a.Server, a.Why)
		}
	}
	p.interrupt()
}

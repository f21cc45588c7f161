package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"auspex/api"
	"auspex/api/access"
	"auspex/control/slurm"
	"auspex/internal/config"
	"auspex/internal/sim"
	"auspex/internal/sim/child"
	"auspex/schemas"
)

// DemoConfig makes the defaults those of the demo, in a data folder ("" is
// ./.auspex): every collector, in a rhythm that a person can watch, and control
// in dry-run.
func DemoConfig(c *Config, data string) error {
	if data != "" {
		c.Data = data
	}
	dir := filepath.Join(c.Data, "sim")
	ca := filepath.Join(dir, sim.CAFile)
	return config.Load(config.Source{Set: []string{
		"site=dc1", "api.name=Demo",
		"inventory.file=" + filepath.Join(dir, sim.TopologyFile), "secrets=" + filepath.Join(dir, sim.SecretsFile),
		"discovery.ranges=[127.0.0.1]", "discovery.ports=[1024-65535]", "control.mode=" + schemas.ModeDryRun, "trust.bmc.ca_file=" + ca, "trust.switch.ca_file=" + ca, "trust.agent.ca_file=" + ca,
		"collectors.agent={sample_interval: 5s, credential: " + sim.Credential + "}", "control.agent.credential=" + sim.Credential,
		"collectors.kmsg={}", "collectors.dcgmexporter.interval=5s",
		"collectors.ipmi={interval: 5s, sensor_interval: 30s}",
		"collectors.redfish={interval: 5s, sensor_interval: 10s}",
		"collectors.gnmi.sample_interval=10s",
		"detect.rules.settle=1m",
		"correlator.close_after={cleared: 10s, repaired: 15s, silent: 90s}",
	}}, c)
}

// useFleet takes the addresses of a simulated fleet that runs.
func useFleet(f *child.Fleet, cfg *Config) error {
	var at struct {
		URL       string `json:"url"`
		TokenFile string `json:"token_file"`
	}
	b, err := os.ReadFile(f.Path(sim.SlurmFile))
	if err == nil {
		err = json.Unmarshal(b, &at)
	}
	if err != nil {
		return fmt.Errorf("read the simulator's endpoints: %w", err)
	}
	var set []string
	for _, who := range []string{"control.slurm", "collectors.slurm"} {
		set = append(set, who+".url="+at.URL, who+".token_file="+at.TokenFile)
	}
	have, err := images(f)
	if err != nil {
		return err
	}
	return config.Load(config.Source{Set: append(set, "control.bmc.images=["+have.URL+"]", "control.tinkerbell.kubeconfig="+f.Path(sim.TinkerbellFile))}, cfg)
}

// runFile is run.json: what scripts need to know of a running Auspex.
type runFile struct {
	PID       int               `json:"pid"`
	Pids      map[string]int    `json:"pids"`
	Started   time.Time         `json:"started"`
	Roles     []string          `json:"roles"`
	URL       string            `json:"url"`
	Addresses map[string]string `json:"addresses"`
	Data      string            `json:"data"`
	Mode      string            `json:"mode"`
	Token     string            `json:"token,omitempty"` // for scripts, of a process with an API: an operator, in the demo an admin
	Inventory string            `json:"inventory,omitempty"`
	Devices   map[string]any    `json:"devices,omitempty"` // endpoints by device, as the inventory has them
}

// announce prints the address with a one-time login code and writes run.json.
func (s *stack) announce(ctx context.Context, srv *api.Server, fleet *child.Fleet) {
	role := access.RoleOperator
	if fleet != nil { // whoever tries it may try all of it
		role = access.RoleAdmin
	}
	token, err := srv.IssueToken(ctx, "run.json", role)
	if err != nil {
		s.log.Error("cannot create the token for scripts", "error", err)
	}
	url := srv.URL()
	f := s.runFile(url)
	f.Token = token
	f.Addresses["api"], f.Addresses["prometheus"] = url+"api/v1", url+"prometheus"
	if fleet != nil {
		f.Pids["simulator"] = fleet.PID
		if c, ok := s.cfg.Control.Drivers[slurm.Name].(*slurm.Config); ok {
			f.Addresses["slurm"] = c.URL
		}
	}
	s.keepRunFile(f)
	login, err := srv.LoginURL(ctx, "operator", role)
	if err != nil {
		s.log.Error("login code was not made", "error", err)
		login = url
	}
	fmt.Fprintf(s.out, "ready %s\n", login)
}

// announceRoles is announce for a process without an API.
func (s *stack) announceRoles() {
	if s.own == "" {
		return
	}
	s.keepRunFile(s.runFile(s.own))
	fmt.Fprintf(s.out, "ready %s\n", s.own)
}

// runFile is what every process says of itself; url is where it serves its metrics.
func (s *stack) runFile(url string) runFile {
	f := runFile{
		PID: os.Getpid(), Pids: map[string]int{"auspex": os.Getpid()}, Started: time.Now().UTC(), Roles: s.cfg.Roles, URL: url,
		Mode:      s.cfg.Control.Mode,
		Addresses: map[string]string{"metrics": url + "metrics"}, Inventory: s.cfg.Inventory.File, Devices: map[string]any{},
	}
	var err error
	if f.Data, err = filepath.Abs(s.cfg.Data); err != nil {
		f.Data = s.cfg.Data
	}
	endpoints := []string{schemas.AttrRedfishURL, schemas.AttrIPMIIP, schemas.AttrGNMIAddress, schemas.AttrExporterURL, schemas.AttrKmsgPath, schemas.AttrSyslogFrom, schemas.AttrAgentAddress}
	for _, r := range s.inv.Snapshot().Resources() {
		at := map[string]string{}
		for _, k := range endpoints {
			if v := r.Attrs.Get(k); v != "" {
				at[k] = v
			}
		}
		if len(at) > 0 {
			f.Devices[r.ID] = at
		}
	}
	return f
}

func (s *stack) keepRunFile(f runFile) {
	if err := writeRunFile(filepath.Join(s.cfg.Data, "run.json"), f); err != nil {
		s.log.Error("cannot write run.json", "error", err)
	}
}

func writeRunFile(name string, f runFile) error {
	b, err := json.MarshalIndent(f, "", " ")
	if err != nil {
		return err
	}
	tmp := name + ".new"
	if err := os.WriteFile(tmp, append(b, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, name)
}

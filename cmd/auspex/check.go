package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"text/tabwriter"

	"go.yaml.in/yaml/v3"

	"auspex/api/prometheus"
	"auspex/collectors"
	"auspex/control"
	"auspex/internal/cmdb"
	"auspex/internal/config"
	"auspex/internal/secrets"
	"auspex/internal/store/sqldb"
	"auspex/internal/tunnel"
	"auspex/pipeline/detect"
	"auspex/schemas"
)

// StarterConfig is what `auspex config init` prints.
//
//go:embed starter.yaml
var StarterConfig []byte

// Check reads a configuration and the files that it names, builds what needs nobody, and says
// what would run and which signs of the servers nobody would see. With connect it
// also tries every peer and device once.
func Check(ctx context.Context, cfg Config, connect bool, out, errw io.Writer) error {
	var errs []error
	note := func(err error) { errs = append(errs, err) }
	s := newStack(cfg, out, io.Discard)
	credentials, err := secrets.Read(cfg.Secrets)
	note(err)
	if err == nil {
		s.secrets.Set(credentials)
	}
	rules, err := detect.CheckRules(cfg.Detect.Rules)
	note(err)
	_, err = cfg.Control.Drivers.Remediators(control.Settings{})
	note(err)
	if cfg.API.TLS.CertFile != "" {
		_, err = cfg.API.TLS.Read()
		note(err)
	}
	note(s.checkOIDC(ctx))
	if cfg.Bus.Type == "kafka" {
		note(cfg.Bus.Kafka.CheckFiles())
	}
	note(cfg.Notify.CheckFiles())
	if s.tunnelled() {
		if s.tunnel, err = tunnel.New(cfg.Tunnel, nil, s.log, nil); err != nil {
			note(fmt.Errorf("tunnel.%w", err))
		}
	}
	if _, err = cfg.InstanceMetadata.TLS.Load(); err != nil {
		note(fmt.Errorf("instance_metadata.%w", err))
	}
	for _, name := range cfg.InstanceMetadata.Secrets {
		if _, _, err := s.secrets.Secret(ctx, name); err != nil {
			note(fmt.Errorf("instance_metadata.secrets: %w", err))
		}
	}
	for name, c := range cfg.Collectors.m {
		note(checkFiles("collectors."+name, c))
	}
	for name, d := range cfg.Control.Drivers {
		note(checkFiles("control."+name, d))
	}
	_, err = control.New(cfg.Control.Config, control.Deps{Faults: s.faults.Load()})
	note(err)
	t, err := s.checkInventory(ctx, connect, note)
	targets := map[string]int{}
	if err == nil {
		r := collectors.NewRunner(cfg.Collect.RunnerConfig, cfg.Collectors.m, nil, collectors.Settings{Secrets: &s.secrets, Gate: s.gate, Tunnels: s.collecting()})
		note(r.Reconcile(t.Resources))
		targets = r.Targets()
		note(s.checkCredentials(ctx, t.Resources))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	fmt.Fprintf(
		out, "roles %v; bus %s; history %s; control %s; %d rules\n", cfg.Roles, cfg.Bus.Type, cfg.Store.ClickHouse, cfg.Control.Mode, rules,
	)
	for _, name := range cfg.Collectors.Keys() {
		fmt.Fprintf(out, "collector %s: %d targets\n", name, targets[name])
	}
	if cfg.has(RoleCollect) {
		for _, b := range collectors.BlindSpots(cfg.Collectors.m, t) {
			fmt.Fprintln(out, b)
		}
	}
	for _, w := range cfg.Trust.Differences(cfg.clients()) {
		fmt.Fprintln(out, "warning:", w)
	}
	if connect {
		return s.connect(ctx, t, out, errw)
	}
	return nil
}

// checkOIDC finds the secret and the certificates for the login service.
func (s *stack) checkOIDC(ctx context.Context) error {
	c := s.cfg.API.OIDC
	if !c.On() {
		return nil
	}
	if _, err := c.TLS.Client(); err != nil {
		return fmt.Errorf("api.oidc.tls: %w", err)
	}
	if c.ClientSecret == "" {
		return nil
	}
	if _, _, err := s.secrets.Secret(ctx, c.ClientSecret); err != nil {
		return fmt.Errorf("api.oidc.client_secret: %w", err)
	}
	return nil
}

// checkFiles reads the files that a section names besides those of its TLS.
func checkFiles(key string, section any) error {
	if c, ok := section.(interface{ CheckFiles() error }); ok {
		if err := c.CheckFiles(); err != nil {
			return fmt.Errorf("%s.%w", key, err)
		}
	}
	return nil
}

// checkInventory returns the inventory that the process would start with: that of
// the file or, without one, what the store holds, as far as that can be read.
func (s *stack) checkInventory(ctx context.Context, connect bool, note func(error)) (t schemas.Topology, err error) {
	file := s.cfg.Inventory.File
	if file == "" {
		if sqldb.IsPostgres(s.cfg.Store.SQL) && !connect {
			return t, nil // a check without --connect asks nobody
		}
		t, err = s.stored(ctx)
		if errors.Is(err, fs.ErrNotExist) || sqldb.Away(err) { // nothing was imported yet; --connect says who is away
			return t, nil
		}
		note(err)
		return t, err
	}
	t, problems, err := cmdb.ReadFile(file, os.Stdin)
	note(err)
	for _, p := range problems {
		note(errors.New(p.In(file)))
	}
	return t, err
}

// ShowConfig prints the effective configuration. Secrets are in a file of their
// own; those in an address of a database are left out.
func ShowConfig(out io.Writer, cfg Config) error {
	var text bytes.Buffer
	enc := yaml.NewEncoder(&text)
	enc.SetIndent(2)
	if err := errors.Join(enc.Encode(cfg), enc.Close()); err != nil {
		return err
	}
	_, err := io.WriteString(out, prometheus.Redact(text.String()))
	return err
}

// ShowKeys lists every key, its type and its default, with every collector.
func ShowKeys(out io.Writer) error {
	cfg := DefaultConfig()
	cfg.Complete()
	for _, name := range collectors.Names() {
		if _, err := cfg.Collectors.Section(name); err != nil {
			return err
		}
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, k := range config.Keys(&cfg) {
		fmt.Fprintf(w, "%s\t%s\t%s\n", k.Path, k.Type, oneLine(k.Default))
	}
	return w.Flush()
}

func oneLine(s string) string {
	var n yaml.Node
	if err := yaml.Unmarshal([]byte(s), &n); err != nil || len(n.Content) == 0 || n.Content[0].Kind == yaml.ScalarNode {
		return s
	}
	n.Content[0].Style = yaml.FlowStyle
	b, err := yaml.Marshal(&n)
	if err != nil {
		return s
	}
	return string(b[:len(b)-1])
}

// CheckRules checks Prometheus rule files.
func CheckRules(files []string, out io.Writer) error {
	c := detect.DefaultRulesConfig()
	c.Builtin, c.Files = false, files
	n, err := detect.CheckRules(c)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d rules in %d file(s) are valid\n", n, len(files))
	return nil
}

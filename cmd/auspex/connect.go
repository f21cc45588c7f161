package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"

	"auspex/collectors"
	"auspex/collectors/agent"
	"auspex/control"
	"auspex/internal/bus/kafka"
	"auspex/internal/probe"
	"auspex/internal/store/clickhouse"
	"auspex/internal/store/sqldb"
	"auspex/internal/textfile"
	"auspex/schemas"
)

// connect tries every peer and every target of the roles once, says for each kind
// how many answer, and returns who does not, grouped by reason. Nothing is written
// anywhere.
func (s *stack) connect(ctx context.Context, t schemas.Topology, out, errw io.Writer) error {
	probes := s.peers()
	if s.cfg.has(RoleCollect) {
		probes = append(probes, s.targets(t.Resources)...)
	}
	if s.cfg.has(RoleControl) {
		some, err := s.acting(t.Resources)
		if err != nil {
			return err
		}
		probes = append(probes, some...)
	}
	if n := dialling(t.Resources); n > 0 {
		fmt.Fprintf(out, "agents that dial in: %d servers; only the process that runs reaches them\n", n)
	}
	for _, name := range s.cfg.Collectors.Keys() {
		if c, ok := s.cfg.Collectors.m[name].(collectors.Passive); ok && s.cfg.has(RoleCollect) {
			fmt.Fprintf(out, "collector %s: %d servers send by themselves; only the process that runs hears them\n", name, len(c.Targets(t.Resources)))
		}
	}
	bar := textfile.NewProgress(errw, nil)
	results := probe.Run(ctx, probes, probe.DefaultBounds(), func(done, of int) { bar.Count("tried", done, of) })
	bar.Clear()
	var errs []error
	for _, r := range results {
		summary, failures := r.Lines()
		fmt.Fprintln(out, summary)
		for _, f := range failures {
			errs = append(errs, errors.New(f))
		}
	}
	return errors.Join(errs...)
}

// peers are the servers that the roles of this process share with others.
func (s *stack) peers() (out []probe.Probe) {
	add := func(group, target string, try func(context.Context) error) {
		out = append(out, probe.Probe{Group: group, Target: target, Try: try})
	}
	cfg := s.cfg
	if cfg.Bus.Type == "kafka" {
		add("bus", strings.Join(cfg.Bus.Kafka.Brokers, ", "), func(ctx context.Context) error {
			b, err := kafka.Open(ctx, cfg.Bus.Kafka)
			if err != nil {
				return err
			}
			return b.Close()
		})
	}
	if sqldb.IsPostgres(cfg.Store.SQL) {
		add("relational store", "PostgreSQL", func(ctx context.Context) error {
			db, err := sqldb.Connect(ctx, cfg.Store.SQL)
			if err != nil {
				return err
			}
			return db.Close()
		})
	}
	if h := cfg.Store.ClickHouse; cfg.has(RoleProcess) && h != clickHouseOff && h != clickHouseEmbedded {
		add("history", "ClickHouse", func(ctx context.Context) error {
			c := cfg.Store.History
			c.DSN = h
			return clickhouse.Try(ctx, c)
		})
	}
	if cfg.has(RoleCorrelate) {
		for _, a := range cfg.Notify.Alertmanagers {
			add("notifications", a.URL, a.Try)
		}
	}
	return out
}

// targets are the devices that the collectors read.
func (s *stack) targets(resources []schemas.Resource) (out []probe.Probe) {
	settings := collectors.Settings{Secrets: &s.secrets, Gate: s.gate}
	for _, name := range s.cfg.Collectors.Keys() {
		c := s.cfg.Collectors.m[name]
		if _, ok := c.(collectors.Passive); ok {
			continue
		}
		for _, t := range c.Targets(resources) {
			if name == agent.Name && dialsIn(t) {
				continue
			}
			out = append(out, probe.Probe{Group: "collector " + name, Target: t.ID, Own: addresses(t), Try: func(ctx context.Context) error {
				return collectors.Try(ctx, c, t, settings)
			}})
		}
	}
	return out
}

// acting are what control acts through, for each server.
func (s *stack) acting(resources []schemas.Resource) (out []probe.Probe, err error) {
	byID := make(map[string]schemas.Resource, len(resources))
	for _, r := range resources {
		byID[r.ID] = r
	}
	remediators, err := s.cfg.Control.Drivers.Remediators(control.Settings{
		Log: s.log, Resource: func(id string) (schemas.Resource, bool) { r, ok := byID[id]; return r, ok }, Secrets: &s.secrets, Gate: s.gate,
	})
	if err != nil {
		return nil, err
	}
	for _, l := range levers {
		r := remediators[l.kind]
		if r == nil || !l.always && s.cfg.Control.Mode == schemas.ModeObserve {
			continue
		}
		for _, server := range resources {
			if server.Kind != schemas.KindServer || len(l.attrs) > 0 && !slices.ContainsFunc(l.attrs, func(a string) bool { return server.Attrs.Get(a) != "" }) {
				continue
			}
			if dialsIn(server) && slices.Contains(l.attrs, schemas.AttrAgentAddress) {
				continue
			}
			step := control.Step{ID: "config-check", Kind: l.kind, Server: server.ID, Target: server.ID + l.part}
			// To plan a step is to look at what it would change.
			out = append(out, probe.Probe{Group: "control " + l.kind, Target: server.ID, Own: addresses(server), Try: func(ctx context.Context) error {
				_, err := r.Plan(ctx, step)
				return err
			}})
		}
	}
	return out, nil
}

// levers are the rungs that are tried: for servers with one of the attributes, on a part of
// them. Node agents refuse what they are not configured for, so they are asked only where
// control is to act.
var levers = []struct {
	kind   string
	attrs  []string
	part   string
	always bool
}{
	{kind: "drain", always: true},
	{kind: "power_cycle", attrs: []string{schemas.AttrRedfishURL, schemas.AttrIPMIIP, schemas.AttrRufioMachine}, always: true},
	{kind: "reset_gpu", attrs: []string{schemas.AttrAgentAddress}, part: "/gpu0"},
}

// addresses are the words that errors about a resource may hold and those about
// others do not.
func addresses(r schemas.Resource) (out []string) {
	for _, key := range []string{
		schemas.AttrRedfishURL, schemas.AttrIPMIIP, schemas.AttrManagementIP, schemas.AttrGNMIAddress, schemas.AttrExporterURL,
		schemas.AttrKmsgPath, schemas.AttrAgentAddress,
	} {
		v := r.Attrs.Get(key)
		if v == "" {
			continue
		}
		out = append(out, v)
		if u, err := url.Parse(v); err == nil && u.Host != "" {
			v = u.Host
			out = append(out, v)
		}
		if host, _, err := net.SplitHostPort(v); err == nil {
			out = append(out, host)
		}
	}
	// A word that is also one of the language says nothing of an address.
	return slices.DeleteFunc(out, func(v string) bool { return !strings.ContainsAny(v, ".:/-0123456789") })
}

// stored reads the inventory of an earlier import, where there is one.
func (s *stack) stored(ctx context.Context) (t schemas.Topology, err error) {
	db, err := sqldb.Connect(ctx, s.cfg.Store.SQL)
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	inv := newInventory(s.cfg.Inventory.Config, db, nil, nil)
	if err := inv.Open(ctx); err != nil {
		return t, err
	}
	return inv.Snapshot().Topology(), nil
}

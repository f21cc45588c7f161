package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"auspex/collectors"
	"auspex/control"
	"auspex/control/life"
	"auspex/control/policy"
	"auspex/internal/store/maintenance"
	"auspex/internal/store/records"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// withPolicies has the command that asks a running Auspex say what another policy file would do: of that, the relational
// store itself is asked, beside whoever leads there.
func withPolicies(c *cobra.Command, std IO) {
	f := &configFlags{}
	var policies, mode string
	c.Long += `

With --policies or --mode it says what would be done now about each open incident and prediction by another policy file, or in another
mode, rung by rung with all that holds it back. It reads the store of the configuration, and asks no driver and no device: whether a
scheduler or a board controller would agree, a dry run says. Each ladder that would begin counts in the budgets of those after it, and a
rung is looked at as if those before it had been done. For how long a cause has stood is counted from when its incident opened. A file with
mistakes is refused with each of them, by line.`
	c.Example += `
  auspex plan --config auspex.yaml --policies new.yaml --mode enforce`
	asks := c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if policies == "" && mode == "" {
			return asks(cmd, args)
		}
		server, _ := cmd.Flags().GetString("server")
		format, err := cmd.Flags().GetString("output")
		if err != nil || format != "table" && format != "json" {
			return usagef("--output: want table or json with --policies, got %q", format)
		}
		if d := cmd.Flags().Lookup("data-dir"); d.Changed && f.data == "" { // the folder of the one that is asked without them
			f.data = d.Value.String()
		}
		cfg, err := f.load(std)
		if err != nil {
			return usageError{err}
		}
		if policies != "" {
			cfg.Control.Policies = policies
		}
		if mode != "" {
			cfg.Control.Mode = mode
		}
		if _, err := policy.Read(cfg.Control.Policies); err != nil {
			return lintError{err}
		}
		if err := cfg.Control.Validate(); err != nil {
			return usageError{fmt.Errorf("control.%w", err)}
		}
		if _, err := os.Stat(cfg.Store.SQL); err != nil && !sqldb.IsPostgres(cfg.Store.SQL) { // it is not made
			return fmt.Errorf("no Auspex has run there: %w", err)
		}
		plan, err := whatIf(cmd.Context(), cfg)
		if err != nil {
			return err
		}
		if server != "" {
			plan = slices.DeleteFunc(plan, func(p control.Planned) bool { return p.Server != server })
		}
		return printPlan(cmd.OutOrStdout(), format, plan)
	}
	f.add(c)
	c.Flags().StringVar(&policies, "policies", "", "what another policy `file` would do now")
	c.Flags().StringVar(&mode, "mode", "", "what would be done now in another mode: observe, dry-run, approve or enforce")
}

// whatIf builds control over the store of a configuration, and never runs it.
func whatIf(ctx context.Context, cfg Config) (plan []control.Planned, err error) {
	err = onStore(ctx, cfg, func(db *sqldb.DB) error {
		s := newStack(cfg, io.Discard, io.Discard)
		s.log, s.db, s.records = slog.New(slog.DiscardHandler), db, records.New(db)
		s.inv = newInventory(cfg.Inventory.Config, db, s.log, s.reg)
		if err := s.inv.Open(ctx); err != nil {
			return err
		}
		remediators, err := s.remediators(nil)
		if err != nil {
			return err
		}
		shared := &groups{inv: s.inv, db: s.db}
		windows := windows{s.inv, maintenance.New(db), shared}
		c, err := control.New(cfg.Control.Config, control.Deps{
			Log: s.log, Now: time.Now, DB: db, Records: s.records, Inventory: place{s.inv}, Remediators: remediators, Life: life.Bus{},
			View: collectors.ViewOf, Holder: "plan", Faults: s.faults.Load(), Maintenance: windows, Groups: shared, Freezes: windows,
			Resource: func(id string) (schemas.Resource, bool) { return s.inv.Snapshot().Resource(id) },
		})
		if err != nil {
			return lintError{err}
		}
		plan, err = c.WhatIf(ctx)
		return err
	})
	return plan, err
}

func printPlan(out io.Writer, format string, plan []control.Planned) error {
	if format == "json" {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(plan)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "INCIDENT\tRESOURCE\tFAULT\tSURE\tPOLICY\tMODE\tSTEP\tSTATE\tWHY")
	for _, p := range plan {
		line := func(step, state, why string) {
			fmt.Fprintf(w, "%s\t%s\t%s\t%.0f %%\t%s\t%s\t%s\t%s\t%s\n", p.Incident, p.Resource, p.Fault, 100*p.Confidence, p.Policy, p.Mode, step, state, why)
		}
		if p.Why != "" {
			line("", "", p.Why)
		}
		for _, s := range p.Steps {
			held := 0
			for _, r := range s.Rails {
				if r.OK {
					held++
				}
			}
			why := s.Why
			if why == "" {
				why = fmt.Sprintf("%d of %d rails hold", held, len(s.Rails))
			}
			line(s.Kind, s.State, why)
		}
	}
	return w.Flush()
}

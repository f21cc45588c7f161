package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"auspex/internal/cmdb"
	"auspex/internal/store/entity"
	"auspex/internal/store/estate"
	"auspex/internal/store/maintenance"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

// maintenanceCommand works on the relational store itself: it needs no server, and a
// running one publishes within seconds what was declared.
func maintenanceCommand(std IO) *cobra.Command {
	parent := &cobra.Command{
		Use: "maintenance", Short: "Declare, list or end maintenance windows", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
		Long: `Declare, list or end maintenance windows. What declared work makes a resource and all that is below it do (lost contact, restarts,
links down, power lost) is no incident while its window is open, and control repairs nothing there. Everything else is told as ever, and
what is still out some time after the end is told too. A freeze (--work freeze) explains nothing: while it holds, control starts nothing
that ends what runs on the servers.`,
		Example: `  auspex maintenance declare dc1-r07 --for 2h --reason "new power supplies" --config auspex.yaml
  auspex maintenance declare pdu-r07-a --from 2026-03-01T22:00:00+08:00 --for 4h --reason "breaker test" --config auspex.yaml
  auspex maintenance declare --pool prod --work freeze --until 2027-01-04T08:00:00Z --reason "year-end training" --config auspex.yaml
  auspex maintenance list --open --config auspex.yaml
  auspex maintenance end mw-1f2e3d4c5b --config auspex.yaml`,
	}
	f := &configFlags{}
	on := func(cmd *cobra.Command, do func(context.Context, Config, *maintenance.Store, *sqldb.DB) error) error {
		cfg, err := f.load(std)
		if err != nil {
			return usageError{err}
		}
		return onStore(cmd.Context(), cfg, func(db *sqldb.DB) error { return do(cmd.Context(), cfg, maintenance.New(db), db) })
	}
	var format, from, until string
	var open bool
	var lasts, grace time.Duration
	var match map[string]string
	r := maintenance.Request{By: shellUser()}
	var pools []string
	declare := &cobra.Command{
		Use: "declare RESOURCE...", Short: "Declare a window and print its id", Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, at := range []struct {
				text, flag string
				to         *time.Time
			}{{from, "--from", &r.From}, {until, "--until", &r.Until}} {
				if at.text == "" {
					continue
				}
				t, err := time.Parse(time.RFC3339, at.text)
				if err != nil {
					return usagef("%s: want a time such as 2026-03-01T22:00:00+08:00, got %q", at.flag, at.text)
				}
				*at.to = t
			}
			seconds := int(grace.Seconds())
			r.Resources, r.Pools, r.Match, r.Seconds, r.Grace = args, pools, match, int64(lasts.Seconds()), &seconds
			return on(cmd, func(ctx context.Context, cfg Config, s *maintenance.Store, db *sqldb.DB) error {
				r.Pool = func(text string) (string, error) {
					p, err := estate.New(db).Pool(ctx, text)
					if errors.Is(err, entity.ErrNone) {
						return "", usagef("there is no pool %s", text)
					}
					return p.Name, err
				}
				model, err := propagation.Load(cfg.Correlator.Faults...)
				if err != nil {
					return err
				}
				var m schemas.Maintenance
				err = withInventory(ctx, cfg, func(inv *cmdb.Inventory) error {
					names := inv.Snapshot()
					find := func(text string) (string, error) {
						switch found := names.Find(text); len(found) {
						case 1:
							return found[0], nil
						case 0:
							return "", usagef("there is no resource %s; names like it: %s", text, strings.Join(names.Nearest(text, 3), ", "))
						default:
							return "", usagef("%s means %d resources: %s", text, len(found), strings.Join(found[:min(len(found), 5)], ", "))
						}
					}
					m, err = r.Window(names, find, model, time.Now().UTC())
					return err
				})
				if bad := (maintenance.BadError{}); errors.As(err, &bad) {
					return usageError{err}
				}
				if err != nil {
					return err
				}
				m.ID = schemas.OperatorWindow + schemas.EventID("maintenance", m.By, m.Declared.Format(time.RFC3339Nano))[:10]
				if m, err = s.Declare(ctx, m); err != nil {
					return err
				}
				what := fmt.Sprintf("%d resources", len(m.Resources))
				if len(m.Pools) > 0 {
					what += fmt.Sprintf(" and %d pools", len(m.Pools))
				}
				fmt.Fprintf(cmd.ErrOrStderr(), "auspex: %s, %s until %s\n", what, moment(m.From), moment(m.Until))
				_, err = fmt.Fprintln(cmd.OutOrStdout(), m.ID)
				return err
			})
		},
	}
	declare.Flags().StringVar(&from, "from", "", "begin, as RFC 3339 `time` (default: now)")
	declare.Flags().StringVar(&until, "until", "", "end, as RFC 3339 `time`")
	declare.Flags().DurationVar(&lasts, "for", 0, "duration, in place of --until")
	declare.Flags().DurationVar(&grace, "grace", schemas.DefaultGrace, "how long after the end what is still out is waited for")
	declare.Flags().StringVar(&r.Reason, "reason", "", "what is done (required)")
	declare.Flags().StringVar(&r.Work, "work", schemas.WorkMaintenance, "kind of work; in a freeze control starts nothing that ends what runs")
	declare.Flags().StringSliceVar(&pools, "pool", nil, "pools whose servers are frozen, with --work freeze")
	declare.Flags().StringToStringVar(&match, "match", nil, "all resources with these attributes, such as kind=server,within=dc1-r07,model=X")
	list := &cobra.Command{
		Use: "list", Short: "List windows, the last declared first", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if format != "table" && format != "json" {
				return usagef("--output: want table or json, got %q", format)
			}
			return on(cmd, func(ctx context.Context, _ Config, s *maintenance.Store, _ *sqldb.DB) error {
				return listMaintenance(ctx, s, open, format, cmd)
			})
		},
	}
	list.Flags().BoolVar(&open, "open", false, "only windows that are open or to come")
	list.Flags().StringVarP(&format, "output", "o", "table", "table, or json: one object a line")
	end := &cobra.Command{
		Use: "end ID", Short: "End a window now", Args: exactArgs(1, "an id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return on(cmd, func(ctx context.Context, _ Config, s *maintenance.Store, _ *sqldb.DB) error {
				_, err := s.End(ctx, args[0], shellUser(), 0, time.Now().UTC())
				return err
			})
		},
	}
	for _, c := range []*cobra.Command{declare, list, end} {
		f.add(c)
	}
	parent.AddCommand(declare, list, end)
	return parent
}

const maintenancePage = 200

func listMaintenance(ctx context.Context, s *maintenance.Store, open bool, format string, cmd *cobra.Command) error {
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	lines := json.NewEncoder(cmd.OutOrStdout())
	if format == "table" {
		fmt.Fprintln(w, "ID\tSTATE\tFROM\tEND\tBY\tRESOURCES\tREASON")
	}
	for after := ""; ; {
		now := time.Now()
		page, next, err := []schemas.Maintenance(nil), "", error(nil)
		if open {
			page, err = s.Open(ctx, now)
		} else {
			page, next, err = s.List(ctx, "", after, maintenancePage)
		}
		if err != nil {
			return err
		}
		for _, m := range page {
			m = m.At(now)
			if format == "json" {
				if err := lines.Encode(m); err != nil {
					return err
				}
				continue
			}
			places := m.Resources
			for _, pool := range m.Pools {
				places = append(places, "pool "+pool)
			}
			names := strings.Join(places[:min(len(places), 3)], ",")
			if n := len(places) - 3; n > 0 {
				names += fmt.Sprintf(" and %d more", n)
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", m.ID, m.State, moment(m.From), moment(m.End()), m.By, names, m.Reason)
		}
		if after = next; next == "" {
			return w.Flush()
		}
	}
}

package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"auspex/collectors/agent"
	"auspex/internal/enrol"
	"auspex/internal/gnmiclient"
	"auspex/internal/run"
	"auspex/internal/store/join"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// enrol reads what node agents say of their machines, as their collector reaches them.
func (s *stack) enrol() []run.Component {
	if !s.cfg.has(RoleCollect) || s.cfg.Collect.Enrol.Disabled {
		return nil
	}
	cfg, ok := s.cfg.Collectors.m[agent.Name].(*agent.Config)
	if !ok {
		return nil
	}
	return []run.Component{late("enrolment", func(context.Context) (run.Component, error) {
		r := enrol.NewRunner(s.cfg.Collect.Enrol, &agents{s: s, cfg: *cfg}, s.inv, enrol.New(s.db), s.join, s.cfg.Inventory.Bounds, s.log, s.reg)
		return run.Func("enrolment", func(ctx context.Context, ready func()) error {
			ready()
			r.Run(ctx)
			return nil
		}), nil
	})}
}

// agents are the node agents that can be reached.
type agents struct {
	s   *stack
	cfg agent.Config

	generation uint64 // of the inventory that dialled is of
	dialled    []enrol.Who
}

// Agents implements [enrol.Agents]: those that are dialled, and those that have dialled in,
// wherever they stand.
func (a *agents) Agents() []enrol.Who {
	if snap := a.s.inv.Snapshot(); snap.Generation != a.generation {
		a.generation, a.dialled = snap.Generation, nil
		for _, r := range a.cfg.Targets(snap.Resources()) {
			if !dialsIn(r) {
				a.dialled = append(a.dialled, enrol.Who{Server: r.ID, Address: r.Attrs.Get(schemas.AttrAgentAddress)})
			}
		}
	}
	out := slices.Clone(a.dialled)
	if a.s.tunnel != nil {
		for _, m := range a.s.tunnel.Machines() {
			host, _, _ := net.SplitHostPort(m.Address)
			out = append(out, enrol.Who{Server: m.Server, Machine: m.Key, Token: m.Token, Address: host})
		}
	}
	return out
}

// Dial implements [enrol.Agents].
func (a *agents) Dial(ctx context.Context, who enrol.Who) (context.Context, *grpc.ClientConn, error) {
	ctx, err := gnmiclient.As(ctx, a.cfg.Credential, &a.s.secrets)
	if err != nil {
		return ctx, nil, err
	}
	if who.Machine != "" {
		conn, err := gnmiclient.Through(func(ctx context.Context) (net.Conn, error) {
			return a.s.tunnel.DialMachine(ctx, who.Machine)
		}, a.cfg.MaxMessage, a.cfg.Timeout)
		return ctx, conn, err
	}
	var tc *tls.Config
	if !a.cfg.TLS.Disabled {
		if tc, err = a.cfg.TLS.Client(); err != nil {
			return ctx, nil, err
		}
	}
	conn, err := gnmiclient.Dial(who.Address, tc, a.cfg.MaxMessage, a.cfg.Timeout)
	return ctx, conn, err
}

// enrolCommand works on the relational store itself: it needs no server, and a running one
// collects from what was accepted within seconds.
func enrolCommand(std IO) *cobra.Command {
	parent := &cobra.Command{
		Use: "enrol", Short: "List, accept or decline what node agents propose for the inventory", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
		Long: `List, accept or decline what node agents propose for the inventory. A proposal is all in which an agent's word of its machine
differs from the inventory: what is added, what is changed, and conflicts with both sides. What is accepted is imported as source agent;
what is declined does not come back until it says something else.`,
		Example: `  auspex enrol list --config auspex.yaml
  auspex enrol show pr-1f2e3d4c5b6a --config auspex.yaml
  auspex enrol accept pr-1f2e3d4c5b6a --rack dc1-r01 --config auspex.yaml
  auspex enrol decline pr-1f2e3d4c5b6a --reason "the cable will go back" --config auspex.yaml
  auspex enrol refused --config auspex.yaml`,
	}
	f := &configFlags{}
	on := func(cmd *cobra.Command, do func(context.Context, *enrol.Desk) error) error {
		cfg, err := f.load(std)
		if err != nil {
			return usageError{err}
		}
		return onStore(cmd.Context(), cfg, func(db *sqldb.DB) error {
			inv := newInventory(cfg.Inventory.Config, db, nil, nil)
			if err := inv.Open(cmd.Context()); err != nil {
				return err
			}
			return do(cmd.Context(), &enrol.Desk{Store: enrol.New(db), Inventory: inv, Machines: join.New(db, inv, nil)})
		})
	}
	states := []string{enrol.Open, enrol.Accepted, enrol.Declined}
	var format, state, reason, rack string
	list := &cobra.Command{
		Use: "list", Short: "List proposals, the newest first", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if format != "table" && format != "json" {
				return usagef("--output: want table or json, got %q", format)
			}
			if state != "" && !slices.Contains(states, state) {
				return usagef("--state: want one of %s, got %q", strings.Join(states, ", "), state)
			}
			return on(cmd, func(ctx context.Context, d *enrol.Desk) error {
				return listProposals(ctx, d, state, format, cmd.OutOrStdout())
			})
		},
	}
	list.Flags().StringVar(&state, "state", enrol.Open, strings.Join(states, ", ")+", or empty for all")
	list.Flags().StringVarP(&format, "output", "o", "table", "table, or json: one object a line")
	_ = list.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(states, cobra.ShellCompDirectiveNoFileComp))
	show := &cobra.Command{
		Use: "show ID", Short: "Show a proposal with its differences", Args: exactArgs(1, "an id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return on(cmd, func(ctx context.Context, d *enrol.Desk) error {
				p, err := d.Get(ctx, args[0])
				if err != nil {
					return err
				}
				showProposal(&p, cmd.OutOrStdout())
				return nil
			})
		},
	}
	decide := func(verb, short string, do func(d *enrol.Desk, ctx context.Context, id string) (enrol.Proposal, error)) *cobra.Command {
		c := &cobra.Command{
			Use: verb + " ID", Short: short, Args: exactArgs(1, "an id"),
			RunE: func(cmd *cobra.Command, args []string) error {
				return on(cmd, func(ctx context.Context, d *enrol.Desk) error {
					p, err := d.Get(ctx, args[0])
					if err != nil {
						return err
					}
					if strings.TrimSpace(reason) == "" && (verb == "decline" || p.Conflicts > 0) {
						return usagef("--reason: say why; %s has %d conflicts", p.ID, p.Conflicts)
					}
					if p, err = do(d, ctx, args[0]); err == nil {
						fmt.Fprintf(cmd.ErrOrStderr(), "auspex: %s of %s is %s\n", p.ID, p.Server, p.State)
					}
					return err
				})
			},
		}
		c.Flags().StringVar(&reason, "reason", "", "why, for the audit; required to decline, and to accept a conflict")
		return c
	}
	accept := decide("accept", "Bring a proposal into the inventory", func(d *enrol.Desk, ctx context.Context, id string) (enrol.Proposal, error) {
		return d.Accept(ctx, id, rack, shellUser(), reason)
	})
	decline := decide("decline", "Keep a proposal out of the inventory", func(d *enrol.Desk, ctx context.Context, id string) (enrol.Proposal, error) {
		return d.Decline(ctx, id, shellUser(), reason)
	})
	accept.Flags().StringVar(&rack, "rack", "", "the rack of the inventory in which the server stands, for one that has none")
	refused := &cobra.Command{
		Use: "refused", Short: "List the agents whose description is not taken, and why", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if format != "table" && format != "json" {
				return usagef("--output: want table or json, got %q", format)
			}
			return on(cmd, func(ctx context.Context, d *enrol.Desk) error { return listRefused(ctx, d, format, cmd.OutOrStdout()) })
		},
	}
	refused.Flags().StringVarP(&format, "output", "o", "table", "table, or json: one object a line")
	for _, c := range []*cobra.Command{list, show, accept, decline, refused} {
		f.add(c)
	}
	parent.AddCommand(list, show, accept, decline, refused)
	return parent
}

func listProposals(ctx context.Context, d *enrol.Desk, state, format string, out io.Writer) error {
	return listing[enrol.Proposal]{
		head: []string{"ID", "STATE", "SERVER", "IN INVENTORY", "DIFFERENCES", "CONFLICTS", "TIME", "DECIDED BY"},
		page: func(after string) ([]enrol.Proposal, string, error) { return d.List(ctx, state, "", after, listPage) },
		row: func(p *enrol.Proposal) []any {
			known := "no"
			if p.Known {
				known = "yes"
			}
			return []any{p.ID, p.State, p.Server, known, len(p.Differences), p.Conflicts, moment(p.Time), p.DecidedBy}
		},
		doc: func(p *enrol.Proposal) any { return p },
	}.print(format, out)
}

func listRefused(ctx context.Context, d *enrol.Desk, format string, out io.Writer) error {
	return listing[enrol.Agent]{
		head: []string{"SERVER", "MACHINE", "TOKEN", "ADDRESS", "SINCE", "WHY"},
		page: func(after string) ([]enrol.Agent, string, error) { return d.Refused(ctx, "", after, listPage) },
		row: func(a *enrol.Agent) []any {
			return []any{a.Server, a.Machine, a.Token, a.Address, moment(a.Since), a.Refused}
		},
		doc: func(a *enrol.Agent) any { return a },
	}.print(format, out)
}

func showProposal(p *enrol.Proposal, out io.Writer) {
	fmt.Fprintf(out, "%s  %s  %s, from its agent at %s\n", p.ID, p.State, p.Server, moment(p.Time))
	if p.Machine != "" {
		fmt.Fprintf(out, "machine %s, host %s, joined with token %s\n", p.Machine, p.Hostname, p.Token)
	}
	for _, d := range p.Differences {
		what := d.Kind + " " + d.Resource
		switch {
		case d.Attr != "":
			what += ": " + d.Attr
		case d.Kind == schemas.LinkNetwork:
			what = "cable of " + d.Resource
		}
		fmt.Fprintf(out, "%-8s  %s", d.Verb, what)
		if d.Inventory != "" || d.Attr != "" {
			fmt.Fprintf(out, " %q → %q", d.Inventory, d.Agent)
		} else if d.Agent != "" && d.Verb != enrol.Added || d.Kind == schemas.LinkNetwork {
			fmt.Fprintf(out, " %s", d.Agent)
		}
		if d.Why != "" {
			fmt.Fprintf(out, "  (%s)", d.Why)
		}
		if at := slices.IndexFunc(p.Fragment.Resources, func(r schemas.Resource) bool { return r.ID == d.Resource }); at >= 0 && d.Verb == enrol.Added {
			for k, v := range p.Fragment.Resources[at].Attrs.All() {
				fmt.Fprintf(out, "  %s=%q", k, v)
			}
		}
		fmt.Fprintln(out)
	}
	if p.Rack != "" {
		fmt.Fprintf(out, "rack %s\n", p.Rack)
	}
	if p.DecidedBy != "" {
		fmt.Fprintf(out, "%s by %s at %s: %s\n", p.State, p.DecidedBy, moment(p.Decided), p.Why)
	}
}

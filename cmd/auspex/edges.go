package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"auspex/correlator/learn"
	"auspex/correlator/replay"
	"auspex/internal/cmdb"
	"auspex/internal/store/learned"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

func learnEdgesCommand(std IO) *cobra.Command {
	cfgf := &configFlags{}
	o := replay.Options{}
	keep := false
	var since time.Duration
	c := &cobra.Command{
		Use: "edges", Short: "Propose which kinds of events bring about which others", Args: noArgs,
		Long: `Propose which kinds of events bring about which others, over which relation of the inventory and after how long, and which
faults of the records could be the cause. Without files the alerts of the configuration's stores are read, and what no record has
already is stored as proposals; of files, with --keep. A proposal changes nothing until a person accepts it: in the console, or with
auspex learn accept.`,
		Example: "  auspex learn edges -c auspex.yaml\n  auspex learn edges --topology topology.json --events events.jsonl.gz",
		RunE: func(cmd *cobra.Command, _ []string) error {
			files := o.Topology != ""
			if files != (o.Events != "") {
				return usagef("--topology and --events go together; without them the stores of the configuration are read")
			}
			o.Stdin, o.Stdout, o.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
			cfg, err := cfgf.load(std)
			if err != nil {
				return usageError{err}
			}
			m, err := propagation.Load(cfg.Correlator.Faults...)
			if err != nil {
				return err
			}
			var list []learn.Proposal
			if files {
				if list, err = learn.ProposeFrom(cmd.Context(), o, m); err != nil {
					return usageOr(err)
				}
			}
			if !files || keep {
				err := onStore(cmd.Context(), cfg, func(db *sqldb.DB) error {
					if !files {
						err := withInventory(cmd.Context(), cfg, func(inv *cmdb.Inventory) (err error) {
							t := inv.Snapshot().Topology()
							list, err = learn.ProposeStored(cmd.Context(), db, &t, m, time.Now().Add(-since), 0, o.Stderr)
							return err
						})
						if err != nil {
							return err
						}
					}
					s := learn.Stored{Store: learned.New(db)}
					added, known, err := s.KeepProposals(cmd.Context(), list, time.Now().UTC().Truncate(time.Second))
					if err == nil {
						fmt.Fprintf(o.Stderr, "auspex: %d new proposals; %d are in the fault records already\n", added, known)
					}
					return err
				})
				if err != nil {
					return err
				}
			}
			if o.Out != "" {
				return learn.WriteProposals(o.Out, o.Stdout, list)
			}
			return learn.PrintProposals(o.Stdout, list)
		},
	}
	c.Flags().StringVar(&o.Topology, "topology", "", "inventory `file`")
	c.Flags().StringVar(&o.Events, "events", "", "events.jsonl `file`, - is standard input")
	c.Flags().StringVar(&o.Out, "out", "", "proposals as JSON lines (`file`), - is standard output")
	c.Flags().BoolVar(&keep, "keep", false, "store the proposals of files too")
	c.Flags().DurationVar(&since, "since", 90*24*time.Hour, "how far back the alerts of the stores are read")
	c.Flags().BoolVar(&o.Strict, "strict", false, "stop at the first bad line")
	c.Flags().Var((*sizeFlag)(&o.MaxSize), "max-size", maxSizeHelp)
	cfgf.add(c)
	return c
}

func learnProposalsCommand(std IO) *cobra.Command {
	f := &configFlags{}
	state, format := "", ""
	c := &cobra.Command{
		Use: "proposals", Short: "List the proposals that are stored, and what people decided on them", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if format != "table" && format != "json" {
				return usagef("--output: want table or json, got %q", format)
			}
			cfg, err := f.load(std)
			if err != nil {
				return usageError{err}
			}
			return onStore(cmd.Context(), cfg, func(db *sqldb.DB) error {
				list, err := learned.New(db).Proposals(cmd.Context(), state)
				if err != nil {
					return err
				}
				if format == "json" {
					return json.NewEncoder(cmd.OutOrStdout()).Encode(list)
				}
				return learn.PrintProposals(cmd.OutOrStdout(), list)
			})
		},
	}
	f.add(c)
	c.Flags().StringVar(&state, "state", "", "only those that are open, accepted, declined or withdrawn")
	c.Flags().StringVarP(&format, "output", "o", "table", "table, or json: one list")
	return c
}

// learnDecideCommands take the decisions of a person on proposals.
func learnDecideCommands(std IO) []*cobra.Command {
	decide := func(use, short, long, decision string) *cobra.Command {
		f := &configFlags{}
		d := schemas.EdgeDecision{Decision: decision}
		c := &cobra.Command{
			Use: use + " ID", Short: short, Long: long, Args: exactArgs(1, "a proposal that `auspex learn proposals` lists"),
			RunE: func(cmd *cobra.Command, args []string) error {
				if d.Reason = strings.TrimSpace(d.Reason); d.Reason == "" {
					return usagef("--reason is needed: why?")
				}
				cfg, err := f.load(std)
				if err != nil {
					return usageError{err}
				}
				return onStore(cmd.Context(), cfg, func(db *sqldb.DB) error {
					d.Author, d.Time = author(), time.Now().UTC()
					p, err := learn.Stored{Store: learned.New(db)}.Decide(cmd.Context(), args[0], d)
					if err == nil && p.Decision.Version > 0 {
						fmt.Fprintf(cmd.ErrOrStderr(), "auspex: version %d, in force\n", p.Decision.Version)
					}
					return err
				})
			},
		}
		f.add(c)
		c.Flags().StringVar(&d.Reason, "reason", "", "why, in `words`")
		if decision == schemas.EdgeAccepted {
			c.Flags().StringVar(&d.Fault, "fault", "", "which of the listed `fault`s is the cause; default: the first")
			c.Flags().StringVar(&d.Way, "way", "", "over which of the listed `way`s; default: that of the first")
		}
		return c
	}
	return []*cobra.Command{
		decide("accept", "Accept a proposal: the correlator counts the effect as a sign of the fault from now on",
			`Accept a proposal. A new version of the learned parameters is put in force, the one before with the edge in it; a correlator that
runs takes it over within seconds and decides anew what is open. It is in the audit, and can be taken back.`, schemas.EdgeAccepted),
		decide("decline", "Decline a proposal: it is habit or chance, and no knowledge", "", schemas.EdgeDeclined),
		decide("take-back", "Take back the acceptance of a proposal: all is as before", "", schemas.EdgeWithdrawn),
	}
}

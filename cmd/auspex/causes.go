package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"auspex/correlator/rootcause"
	"auspex/correlator/rootcause/servicegen"
)

func backtestCausesCommand() *cobra.Command {
	o := rootcause.Options{Roles: rootcause.DefaultRoles()}
	var format string
	c := &cobra.Command{
		Use: "causes", Args: noArgs,
		Short: "Rank the services in which recorded trouble began, by metrics and the graph of calls",
		Long: `Rank the nodes of a dependency graph (services, storage, gateways, whatever has metrics) by the probability that the trouble
which one of them reported began there. Each folder below --data with a target.json is an issue; formats, section 6, describes the files.
root_cause in target.json is read by --score alone, which prints how often it came first.`,
		Example: "  auspex backtest causes --data recorded --out causes.jsonl\n" +
			"  auspex backtest causes --data recorded --out causes.jsonl --score -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case o.Data == "" || o.Out == "":
				return usagef("--data and --out are required")
			case format != "table" && format != "json":
				return usagef("--output: want table or json, got %q", format)
			case cmd.Flags().Changed("output") && !o.Score:
				return usagef("--output is the format of --score; the ranking is always JSON lines")
			}
			o.JSON = format == "json"
			o.Stdout, o.Stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return usageOr(rootcause.Backtest(cmd.Context(), o))
		},
	}
	f := c.Flags()
	f.StringVar(&o.Data, "data", "", "`folder` with issues in it, at any depth")
	f.StringVar(&o.Graph, "graph", "", "graph `file` for all issues (default graph.csv in the nearest folder above each)")
	f.StringVar(&o.Out, "out", "", "causes.jsonl `file`; - is standard output")
	f.StringSliceVar(&o.Roles.Latency, "latency", o.Roles.Latency, "metrics that are the time of a call")
	f.StringSliceVar(&o.Roles.Requests, "requests", o.Roles.Requests, "metrics that count calls")
	f.StringSliceVar(&o.Roles.Availability, "availability", o.Roles.Availability,
		"metrics that are the share of calls which do not fail, up to 1 or 100")
	f.StringSliceVar(&o.Roles.Errors, "errors", o.Roles.Errors, "metrics that count failed calls")
	f.BoolVar(&o.Score, "score", false, "hold the ranking against root_cause of each target.json")
	f.StringVarP(&format, "output", "o", "table", "of --score: table, or json: one object")
	f.BoolVar(&o.Strict, "strict", false, "stop at the first bad line or issue")
	f.Var((*sizeFlag)(&o.MaxSize), "max-size", maxSizeHelp)
	return c
}

func generateServicesCommand() *cobra.Command {
	o := servicegen.Options{}
	var out string
	c := &cobra.Command{
		Use: "services", Args: noArgs,
		Short: "Draw services that call one another, their metrics, and what they show when one of them fails",
		Long: `Draw a site of services with a graph of calls, its metrics in normal operation, and issues with a known cause, in the files that
backtest causes reads.`,
		Example: "  auspex generate services --seed 7 --out drawn && auspex backtest causes --data drawn --out causes.jsonl --score",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if out == "" {
				return usagef("--out is required")
			}
			if o.Issues < 1 {
				return usagef("--issues: want 1 or more, got %d", o.Issues)
			}
			drawn, err := servicegen.Write(out, o)
			if err != nil {
				return usageOr(err)
			}
			for _, t := range drawn {
				fmt.Fprintf(cmd.OutOrStdout(), "%s\t%s\t%s\t%s\n", t.Folder, t.Fault, t.Node, t.Metric)
			}
			return nil
		},
	}
	c.Flags().Uint64Var(&o.Seed, "seed", 1, "what to draw")
	c.Flags().IntVar(&o.Issues, "issues", 16, "how many")
	c.Flags().StringVar(&o.Fault, "fault", "", "one kind of fault alone (default: all)")
	c.Flags().StringVar(&out, "out", "", "`folder`")
	_ = c.RegisterFlagCompletionFunc("fault", cobra.FixedCompletions(servicegen.Faults, cobra.ShellCompDirectiveNoFileComp))
	return c
}

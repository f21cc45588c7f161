package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"auspex/correlator/learn"
	"auspex/internal/cmdb"
	"auspex/internal/store/learned"
	"auspex/internal/store/sqldb"
	"auspex/internal/textfile"
	"auspex/schemas/faults/propagation"
)

// pastFlags say where the past of a site is: in files, or in the stores of a configuration.
type pastFlags struct {
	cfg   configFlags
	files learn.Files
}

func (f *pastFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.files.Topology, "topology", "", "inventory `file`")
	c.Flags().StringVar(&f.files.Events, "events", "", "events.jsonl `file`, - is standard input")
	c.Flags().StringVar(&f.files.Incidents, "incidents", "", "incidents.jsonl `file`, as replay and `learn cases` write it")
	c.Flags().StringVar(&f.files.Corrections, "corrections", "", "corrections.jsonl `file`: what people said about the causes")
	c.Flags().StringVar(&f.files.Edges, "edges", "", "edges.jsonl `file`: which edges were in force when")
	c.Flags().BoolVar(&f.files.Strict, "strict", false, "stop at the first bad line")
	c.Flags().Var((*sizeFlag)(&f.files.MaxSize), "max-size", maxSizeHelp)
	f.cfg.add(c)
}

// offline reports whether the past is in files; some but not all of them is wrong usage.
func (f *pastFlags) offline() (bool, error) {
	n := 0
	for _, path := range []string{f.files.Topology, f.files.Events, f.files.Incidents} {
		if path != "" {
			n++
		}
	}
	if n != 0 && n != 3 || n == 0 && f.files.Corrections+f.files.Edges != "" {
		return false, usagef("--topology, --events and --incidents go together; without them the stores of the configuration are read")
	}
	return n == 3, nil
}

// read returns the past and the fault records in force at the site.
func (f *pastFlags) read(cmd *cobra.Command, std IO) (past *learn.Past, m *propagation.Model, err error) {
	offline, err := f.offline()
	if err != nil {
		return nil, nil, err
	}
	cfg, err := f.cfg.load(std)
	if err != nil {
		return nil, nil, usageError{err}
	}
	if m, err = propagation.Load(cfg.Correlator.Faults...); err != nil {
		return nil, nil, err
	}
	if offline {
		f.files.Stdin, f.files.Stdout, f.files.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
		past, err = learn.ReadPast(cmd.Context(), f.files)
		return past, m, usageOr(err)
	}
	err = onStore(cmd.Context(), cfg, func(db *sqldb.DB) error {
		return withInventory(cmd.Context(), cfg, func(inv *cmdb.Inventory) error {
			t := inv.Snapshot().Topology()
			past, err = learn.StoredPast(cmd.Context(), db, &t)
			return err
		})
	})
	return past, m, err
}

// onStore works on the relational store itself: a server that runs sees what it did.
func onStore(ctx context.Context, cfg Config, do func(*sqldb.DB) error) (err error) {
	db, err := sqldb.Open(ctx, cfg.Store.SQL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return do(db)
}

func backtestIncidentsCommand(std IO) *cobra.Command {
	f := &pastFlags{}
	var format, parameters string
	c := &cobra.Command{
		Use: "incidents", Short: "Hold the correlator against the incidents whose cause people have said", Args: noArgs,
		Long: `Replay the events of each incident on which a verdict stands, by the fault records alone and with what was learned from the
site, and print how often and how soon the right cause is named and how good its confidence is. What was learned is learned for this
from the other incidents, in five parts, so that no case speaks for itself, and edges count that had been accepted before the incident
opened; --parameters takes a file or a stored version instead.
The past is read from the stores of the configuration, or from files.`,
		Example: "  auspex backtest incidents -c auspex.yaml\n" +
			"  auspex backtest incidents --topology topology.json --events events.jsonl.gz --incidents incidents.jsonl --corrections corrections.jsonl -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if format != "table" && format != "json" {
				return usagef("--output: want table or json, got %q", format)
			}
			var given *learn.Parameters
			if parameters != "" {
				var err error
				if given, err = f.parameters(cmd, std, parameters); err != nil {
					return err
				}
			}
			past, m, err := f.read(cmd, std)
			if err != nil {
				return err
			}
			r, err := past.Backtest(cmd.Context(), m, given)
			if err != nil {
				return err
			}
			if parameters != "" {
				r.Parameters = parameters
			}
			if format == "json" {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(r)
			}
			return r.Print(cmd.OutOrStdout())
		},
	}
	f.add(c)
	c.Flags().StringVar(&parameters, "parameters", "", "learned parameters: a `file`, or the number of a stored version")
	c.Flags().StringVarP(&format, "output", "o", "table", "table, or json: one object")
	return c
}

// parameters reads them from a file, or a version of the store.
func (f *pastFlags) parameters(cmd *cobra.Command, std IO, name string) (*learn.Parameters, error) {
	version, err := strconv.ParseInt(name, 10, 64)
	if err != nil {
		return readParameters(cmd, name)
	}
	cfg, err := f.cfg.load(std)
	if err != nil {
		return nil, usageError{err}
	}
	var p *learn.Parameters
	err = onStore(cmd.Context(), cfg, func(db *sqldb.DB) error {
		p, err = learn.Stored{Store: learned.New(db)}.Parameters(cmd.Context(), version)
		return err
	})
	return p, err
}

// edges returns the edges that stand: a new version has them too.
func (f *pastFlags) edges(cmd *cobra.Command, std IO) (edges []learn.EdgeCounts, err error) {
	cfg, err := f.cfg.load(std)
	if err != nil {
		return nil, usageError{err}
	}
	err = onStore(cmd.Context(), cfg, func(db *sqldb.DB) error {
		edges, err = learn.Stored{Store: learned.New(db)}.Edges(cmd.Context())
		return err
	})
	return edges, err
}

// readParameters reads them from a file.
func readParameters(cmd *cobra.Command, name string) (*learn.Parameters, error) {
	doc, err := textfile.ReadFile(name, cmd.InOrStdin())
	if err != nil {
		return nil, fmt.Errorf("read learned parameters: %w", err)
	}
	p, err := learn.Parse(doc)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", textfile.Name(name), err)
	}
	return p, nil
}

// author is who runs a command, for the audit.
func author() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return "command line"
}

func learnParametersCommand(std IO) *cobra.Command {
	f := &pastFlags{}
	var out string
	var activate bool
	c := &cobra.Command{
		Use: "parameters", Short: "Learn how often faults come and how their signs follow, from closed and judged incidents", Args: noArgs,
		Long: `Learn from the incidents that have closed and from what people said about their causes: how likely each fault is, how surely
its signs come, and how soon. What is learned is bounded, few cases move little, and what nobody has judged never makes a fault likelier.
From the stores of the configuration it is kept as a new version, which is not in force until somebody activates it; with --out it goes
to a file instead. Hold it against the past first: auspex backtest incidents.`,
		Example: "  auspex learn parameters -c auspex.yaml\n  auspex learn activate 1 -c auspex.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			offline, err := f.offline()
			if err != nil {
				return err
			}
			if offline && out == "" {
				return usagef("--out is needed where the past is in files")
			}
			if activate && out != "" {
				return usagef("--activate is of a stored version: leave --out out")
			}
			past, m, err := f.read(cmd, std)
			if err != nil {
				return err
			}
			var edges []learn.EdgeCounts
			if !offline {
				if edges, err = f.edges(cmd, std); err != nil {
					return err
				}
			}
			p, err := past.Learn(cmd.Context(), learn.WithEdges(m, edges))
			if err != nil {
				return err
			}
			p.Edges = edges
			p.Learned = time.Now().UTC().Truncate(time.Second)
			if out != "" {
				if out != textfile.Stdin {
					if err := p.Print(cmd.OutOrStdout(), m); err != nil {
						return err
					}
				}
				return writeJSON(out, cmd.OutOrStdout(), p)
			}
			if err := p.Print(cmd.OutOrStdout(), m); err != nil {
				return err
			}
			return f.cfg.keep(cmd, std, p, activate)
		},
	}
	f.add(c)
	c.Flags().StringVar(&out, "out", "", "parameters as JSON (`file`), - is standard output; default: a new version in the store")
	c.Flags().BoolVar(&activate, "activate", false, "put the new version in force at once")
	return c
}

func writeJSON(path string, stdout io.Writer, v any) error {
	out, err := textfile.Create(path, stdout)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	enc := json.NewEncoder(out)
	enc.SetIndent("", " ")
	return errors.Join(enc.Encode(v), out.Close())
}

// keep stores parameters as a new version.
func (f *configFlags) keep(cmd *cobra.Command, std IO, p *learn.Parameters, activate bool) error {
	cfg, err := f.load(std)
	if err != nil {
		return usageError{err}
	}
	return onStore(cmd.Context(), cfg, func(db *sqldb.DB) error {
		s := learn.Stored{Store: learned.New(db)}
		v, err := s.Keep(cmd.Context(), p, author(), time.Now().UTC())
		if err != nil {
			return err
		}
		if activate {
			if err := s.Activate(cmd.Context(), v, author(), time.Now().UTC()); err != nil {
				return err
			}
		}
		state := "not in force"
		if activate {
			state = "in force"
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "auspex: version %d, %s\n", v, state)
		return nil
	})
}

func learnImportCommand(std IO) *cobra.Command {
	f := &configFlags{}
	activate := false
	c := &cobra.Command{
		Use: "import FILE", Short: "Keep learned parameters of a file as a new version", Args: exactArgs(1, "a file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := readParameters(cmd, args[0])
			if err != nil {
				return err
			}
			for i := range p.Edges { // proposals of another site are nobody's here
				p.Edges[i].Proposal = ""
			}
			cfg, err := f.load(std)
			if err != nil {
				return usageError{err}
			}
			m, err := propagation.Load(cfg.Correlator.Faults...)
			if err != nil {
				return err
			}
			for _, name := range p.Unknown(m) {
				fmt.Fprintf(cmd.ErrOrStderr(), "auspex: no fault record has %s; it changes nothing\n", name)
			}
			return f.keep(cmd, std, p, activate)
		},
	}
	f.add(c)
	c.Flags().BoolVar(&activate, "activate", false, "put the new version in force at once")
	return c
}

// learnStoreCommands work on the versions that are kept.
func learnStoreCommands(std IO) []*cobra.Command {
	f := &configFlags{}
	on := func(do func(cmd *cobra.Command, s learn.Stored, args []string) error) func(*cobra.Command, []string) error {
		return func(cmd *cobra.Command, args []string) error {
			cfg, err := f.load(std)
			if err != nil {
				return usageError{err}
			}
			return onStore(cmd.Context(), cfg, func(db *sqldb.DB) error { return do(cmd, learn.Stored{Store: learned.New(db)}, args) })
		}
	}
	number := func(text string) (int64, error) {
		v, err := strconv.ParseInt(text, 10, 64)
		if err != nil || v < 0 {
			return 0, usagef("version %q is not a number that `auspex learn versions` lists", text)
		}
		return v, nil
	}
	activate := &cobra.Command{
		Use: "activate VERSION", Short: "Put a version in force, a later or an earlier one; 0 is none: the fault records as they are",
		Args: exactArgs(1, "a version"),
		Long: `Put a version of the learned parameters in force, a later or an earlier one; 0 is none: the fault records as they are.
A correlator that runs takes it over within seconds and decides anew what is open.`,
		RunE: on(func(cmd *cobra.Command, s learn.Stored, args []string) error {
			v, err := number(args[0])
			if err != nil {
				return err
			}
			if v > 0 { // what cannot be read is not put in force
				if _, err := s.Parameters(cmd.Context(), v); err != nil {
					return err
				}
			}
			return s.Activate(cmd.Context(), v, author(), time.Now().UTC())
		}),
	}
	versions := &cobra.Command{
		Use: "versions", Short: "List the versions that are kept, and which is in force", Args: noArgs,
		RunE: on(func(cmd *cobra.Command, s learn.Stored, _ []string) error {
			list, err := s.List(cmd.Context())
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "VERSION\tIN FORCE\tMADE\tBY\tINCIDENTS\tJUDGED\tEDGES")
			for _, v := range list {
				p, err := learn.Parse(v.Doc)
				if err != nil {
					return fmt.Errorf("version %d: %w", v.Version, err)
				}
				force := ""
				if v.Active {
					force = "yes"
				}
				fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%d\t%d\t%d\n", v.Version, force, moment(v.Time), v.Author, p.Cases, p.Judged, len(p.Edges))
			}
			return w.Flush()
		}),
	}
	var out string
	export := &cobra.Command{
		Use: "export VERSION", Short: "Write a version as a file, as import reads it", Args: exactArgs(1, "a version"),
		RunE: on(func(cmd *cobra.Command, s learn.Stored, args []string) error {
			v, err := number(args[0])
			if err != nil {
				return err
			}
			p, err := s.Parameters(cmd.Context(), v)
			if err != nil {
				return err
			}
			return writeJSON(out, cmd.OutOrStdout(), p)
		}),
	}
	export.Flags().StringVar(&out, "out", "-", "`file`, - is standard output")
	var dir string
	cases := &cobra.Command{
		Use: "cases", Short: "Write incidents, verdicts, their events and the inventory to a folder, for backtest and learn elsewhere", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := f.load(std)
			if err != nil {
				return usageError{err}
			}
			if dir == "" {
				return usagef("--out is needed")
			}
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
			return onStore(cmd.Context(), cfg, func(db *sqldb.DB) error {
				return withInventory(cmd.Context(), cfg, func(inv *cmdb.Inventory) error {
					t := inv.Snapshot().Topology()
					incidents, verdicts, events, err := learn.Export(cmd.Context(), db, &t, dir)
					if err == nil {
						err = writeJSON(filepath.Join(dir, "topology.json"), io.Discard, t)
					}
					if err != nil {
						return err
					}
					fmt.Fprintf(cmd.ErrOrStderr(), "auspex: %d incidents, %d verdicts, %d events\n", incidents, verdicts, events)
					return nil
				})
			})
		},
	}
	cases.Flags().StringVar(&dir, "out", "", "`folder` of topology.json, incidents.jsonl, corrections.jsonl, edges.jsonl and events.jsonl")
	all := []*cobra.Command{activate, versions, export, cases}
	for _, c := range all {
		f.add(c)
	}
	return all
}

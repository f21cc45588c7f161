package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"auspex/bench"
	"auspex/correlator/solver"
	"auspex/internal/cmdb"
	"auspex/internal/stormgen"
	"auspex/internal/textfile"
	"auspex/internal/usage"
	"auspex/schemas"
)

// GenerateOptions says what GenerateStorms draws.
type GenerateOptions struct {
	Topology string // inventory; or
	Shape    string // one of stormgen.Shapes
	Servers  int    // of a shape; 0 is its own number
	Profile  string
	Half     string
	Perturb  string
	Out      string // folder
	stormgen.Options
}

// GenerateStorms draws a storm and writes topology.json, events.jsonl and
// truth.json into a folder (formats, section 11).
func GenerateStorms(ctx context.Context, o GenerateOptions, in io.Reader, errw io.Writer) (err error) {
	var t *schemas.Topology
	switch {
	case o.Shape != "":
		sh, ok := stormgen.ShapeNamed(o.Shape)
		if !ok {
			return fmt.Errorf("%w: no shape %q; --list shows them", usage.Err, o.Shape)
		}
		t = sh.Sized(o.Servers).Build().Topology
	default:
		read, problems, err := cmdb.ReadRecords(o.Topology, in)
		if err != nil {
			return err
		}
		for _, p := range problems {
			fmt.Fprintln(errw, p.In(o.Topology))
		}
		t = &read
	}
	o.Options.Profile, o.Options.Half = stormgen.Profile(o.Profile), stormgen.Half(o.Half)
	if o.Options.Perturb, err = stormgen.ParsePerturb(o.Perturb); err != nil {
		return fmt.Errorf("%w: %w", usage.Err, err)
	}
	st, err := stormgen.Draw(t, o.Options)
	if err != nil {
		return fmt.Errorf("%w: %w", usage.Err, err)
	}
	if err := os.MkdirAll(o.Out, 0o755); err != nil {
		return err
	}
	for _, f := range []struct {
		name  string
		write func(*json.Encoder) error
	}{
		{"topology.json", func(e *json.Encoder) error { return e.Encode(st.Topology) }},
		{"truth.json", func(e *json.Encoder) error { return e.Encode(st.Truth) }},
		{"events.jsonl", func(e *json.Encoder) error {
			for i := range st.Events {
				if err := ctx.Err(); err != nil {
					return err
				}
				if err := e.Encode(&st.Events[i]); err != nil {
					return err
				}
			}
			return nil
		}},
	} {
		out, err := textfile.Create(filepath.Join(o.Out, f.name), nil)
		if err != nil {
			return err
		}
		err = f.write(json.NewEncoder(out))
		if cerr := out.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return fmt.Errorf("write %s: %w", f.name, err)
		}
	}
	return nil
}

func generateCommand() *cobra.Command {
	parent := &cobra.Command{
		Use: "generate", Short: "Draw test data", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	o := GenerateOptions{}
	list := false
	c := &cobra.Command{
		Use: "storms", Short: "Draw faults over an inventory: what would be seen of them, and what really happened", Args: noArgs,
		Example: "  auspex generate storms --topology topology.json --seed 1 --out drawn\n" +
			"  auspex replay --topology drawn/topology.json --events drawn/events.jsonl --out incidents.jsonl",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if list {
				return listStorms(cmd.OutOrStdout())
			}
			if (o.Topology == "") == (o.Shape == "") || o.Out == "" {
				return usagef("--out and one of --topology and --shape are needed")
			}
			return usageOr(GenerateStorms(cmd.Context(), o, cmd.InOrStdin(), cmd.ErrOrStderr()))
		},
	}
	c.Flags().StringVar(&o.Topology, "topology", "", "inventory `file`, - is standard input")
	c.Flags().StringVar(&o.Shape, "shape", "", "a site of our own instead, by its `name`")
	c.Flags().IntVar(&o.Servers, "servers", 0, "servers of the shape (default: its own number)")
	c.Flags().Uint64Var(&o.Seed, "seed", 1, "the same seed draws the same storm")
	c.Flags().StringVar(&o.Out, "out", "", "`folder` of topology.json, events.jsonl and truth.json")
	c.Flags().StringVar(&o.Profile, "profile", string(stormgen.Easy), "what the storm asks: "+profileNames())
	c.Flags().StringArrayVar(&o.Only, "scenario", nil, "what goes wrong, by `name` (may be given again; default: what the profile has)")
	c.Flags().StringVar(&o.Half, "half", string(stormgen.Both), "what may go wrong: tuned, held (what is kept out of tuning), all")
	c.Flags().IntVar(&o.Faults, "faults", 12, "how many times something goes wrong")
	c.Flags().Float64Var(&o.Noise, "noise", 0, "meaningless events an hour and 64 servers (default: drawn)")
	c.Flags().StringVar(&o.Perturb, "perturb", "", "what goes wrong on the way, with commas: lost, twice, late, clocks, links, blind, all")
	c.Flags().BoolVar(&list, "list", false, "print the shapes and the scenarios")
	parent.AddCommand(c, generateServicesCommand())
	return parent
}

func profileNames() string {
	var names []string
	for _, p := range stormgen.Profiles() {
		names = append(names, string(p))
	}
	return strings.Join(names, ", ")
}

func listStorms(out io.Writer) error {
	half := map[bool]stormgen.Half{false: stormgen.Tuned, true: stormgen.Held}
	for _, sh := range stormgen.Shapes() {
		if _, err := fmt.Fprintf(out, "shape\t%s\t%s\t%d servers\n", half[sh.Held], sh.Name, sh.Racks*sh.Servers); err != nil {
			return err
		}
	}
	for _, s := range stormgen.Scenarios() {
		if _, err := fmt.Fprintf(out, "scenario\t%s\t%s\t%s\n", half[s.Held], s.Name, s.Fault); err != nil {
			return err
		}
	}
	return nil
}

func benchStormsCommand() *cobra.Command {
	o := bench.StormsOptions{}
	var format, check, write string
	c := &cobra.Command{
		Use: "storms", Short: "Run the correlator over drawn storms, and print a table of how well it did", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if format != "" && format != "json" && format != "table" {
				return usagef("-o is table or json")
			}
			o.JSON = format == "json"
			if path := cmp.Or(check, write); path != "" {
				if check != "" && write != "" {
					return usagef("only one of --check and --write-bounds")
				}
				if o.Alone {
					return usagef("bounds are of whole storms: no --alone")
				}
				return usageOr(bench.BoundedStorms(cmd.Context(), path, write != "", o, cmd.OutOrStdout()))
			}
			return usageOr(bench.Storms(cmd.Context(), o, cmd.OutOrStdout()))
		},
	}
	c.Flags().StringVar(&check, "check", "", "draw what a `file` of bounds says, and fail where something is worse than it asks")
	c.Flags().StringVar(&write, "write-bounds", "", "draw what a `file` of bounds says, and write bounds a little under what is reached")
	c.Flags().StringVar(&o.Recorded, "recorded", "", "read storms from folders instead, a `pattern` such as 'storms/*'")
	c.Flags().StringVar(&o.Shapes, "shapes", string(stormgen.Both), "tuned, held (kept out of tuning), all, or names with commas")
	c.Flags().StringSliceVar(&o.Profiles, "profiles", nil, "profiles with commas (default: all): "+profileNames())
	c.Flags().StringArrayVar(&o.Only, "scenario", nil, "only what goes wrong so, by `name` (may be given again)")
	c.Flags().IntVar(&o.Seeds, "seeds", 1, "storms of each shape and profile")
	c.Flags().Uint64Var(&o.First, "seed", 1, "the first seed")
	c.Flags().IntVar(&o.Faults, "faults", 6, "how many times something goes wrong in a storm")
	c.Flags().IntVar(&o.Servers, "servers", 64, "cut larger sites down to so many servers; 0 leaves them")
	c.Flags().StringVar(&o.Perturb, "perturb", "", "what goes wrong on the way, with commas: lost, twice, late, clocks, links, blind, all")
	c.Flags().StringVar(&o.Method, "method", solver.Methods()[0], "how causes are found: "+strings.Join(solver.Methods(), ", "))
	c.Flags().BoolVar(&o.Alone, "alone", false, "play each fault by itself: what is wrong then too was not lost to noise or to another fault")
	c.Flags().IntVar(&o.Best, "best", 0, "reckon what could be known of each fault at best, from so many `samples` of each cause")
	c.Flags().IntVar(&o.Misses, "misses", 0, "list so many faults whose cause was not found")
	c.Flags().StringVarP(&format, "output", "o", "table", "table or json")
	return c
}

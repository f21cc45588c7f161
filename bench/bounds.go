package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"auspex/internal/stormgen"
	"auspex/internal/stormgen/score"
)

// ErrBounds is of a table of storms that is worse than its bounds.
var ErrBounds = errors.New("worse than the bounds")

// bounded is a file of tables: how each is drawn, and what it must reach.
type bounded struct {
	Tables []boundedTable `yaml:"tables"`
}

type boundedTable struct {
	Name string `yaml:"name"`
	// Whole says that every row and figure that is drawn must have its bound, as --write-bounds writes them.
	Whole bool `yaml:"whole,omitempty"`
	Draw  draw `yaml:"draw"`
	// Bounds of figures by "profile half". Those of higherIsBetter are what is reached
	// at least, the others at most.
	Bounds map[string]map[string]float64 `yaml:"bounds"`
}

// draw is what a file may say of [StormsOptions]. A recorded folder is looked for from the
// folder of the file.
type draw struct {
	Recorded string   `yaml:"recorded,omitempty"`
	Shapes   string   `yaml:"shapes,omitempty"`
	Profiles []string `yaml:"profiles,omitempty,flow"`
	Perturb  string   `yaml:"perturb,omitempty"`
	Servers  int      `yaml:"servers,omitempty"`
	Faults   int      `yaml:"faults,omitempty"`
	Seed     uint64   `yaml:"seed,omitempty"`
	Seeds    int      `yaml:"seeds,omitempty"`
}

const boundsHead = `# What ` + "`auspex bench storms --check`" + ` holds the correlator to: figures a little under what it reaches. The storms are
# always the same, so that a figure moves only with the correlator or the generator. ` + "`auspex bench storms --write-bounds`" + `
# measures anew and writes this file; read the difference before you commit it.
`

// figure is a number of a row that has a bound.
type figure struct {
	name     string
	of       func(f *score.Figures) float64
	slack    func(v float64, s *score.Sum) float64
	atLeast  bool
	decimals float64
	some     bool // of few it is not reckoned, so that it may come and go
}

// oneFault is what one fault more or less makes of a share, and a hundredth at least.
func oneFault(_ float64, s *score.Sum) float64 { return max(0.01, 1/float64(max(1, s.Scored))) }

func oneUnknown(_ float64, s *score.Sum) float64 { return 1 / float64(max(1, s.Unknown)) }

// oneStrange is what one incident of kind unknown more or less makes, and two hundredths at
// least; of a few of them there is no bound.
func oneStrange(_ float64, s *score.Sum) float64 {
	if s.Strange < 5 {
		return math.NaN()
	}
	return max(0.02, 1/float64(s.Strange))
}

func oneFalse(_ float64, s *score.Sum) float64 { return 1000 / float64(max(1, s.Noise)) }

func onePiece(_ float64, s *score.Sum) float64 { return max(0.02, 2/float64(max(1, s.Faults))) }

func aFifth(v float64, _ *score.Sum) float64 { return 10 + v/5 }

// falsePerK is the figure that rows without faults are about.
const falsePerK = "false_per_1000_noise"

var figures = []figure{
	{"top1", func(f *score.Figures) float64 { return f.Top1 }, oneFault, true, 1000, false},
	{"b3_f1", func(f *score.Figures) float64 { return f.B3F1 }, oneFault, true, 1000, false},
	{"unknown", func(f *score.Figures) float64 { return f.Unknown }, oneUnknown, true, 1000, false},
	{"unknown_root", func(f *score.Figures) float64 { return f.UnknownRoot }, oneUnknown, true, 1000, false},
	{"unknown_right", func(f *score.Figures) float64 { return f.StrangeRight }, oneStrange, true, 100, true},
	{"unknown_gap", func(f *score.Figures) float64 { return f.StrangeGap }, oneStrange, false, 100, true},
	{falsePerK, func(f *score.Figures) float64 { return f.FalsePerK }, oneFalse, false, 100, false},
	{"fragments", func(f *score.Figures) float64 { return f.Fragments }, onePiece, false, 100, false},
	{"root_p50_s", func(f *score.Figures) float64 { return f.RootP50 }, aFifth, false, 1, false},
	{"root_p95_s", func(f *score.Figures) float64 { return f.RootP95 }, aFifth, false, 1, false},
	{"ece", func(f *score.Figures) float64 { return f.ECE }, oneFault, false, 1000, false},
	{"brier", func(f *score.Figures) float64 { return f.Brier }, oneFault, false, 1000, false},
}

// under returns bounds a little under what was reached.
func under(s *score.Sum) map[string]float64 {
	out := map[string]float64{}
	reached := s.Figures()
	for _, f := range figures {
		v := f.of(&reached)
		slack := f.slack(v, s)
		switch {
		case math.IsNaN(v) || math.IsNaN(slack):
		case f.atLeast:
			out[f.name] = max(0, math.Floor((v-slack)*f.decimals)/f.decimals)
		default:
			out[f.name] = math.Ceil((v+slack)*f.decimals) / f.decimals
		}
	}
	return out
}

// worse returns what of a row is worse than its bounds.
func worse(row string, bounds map[string]float64, s *score.Sum) (out []string) {
	if s == nil {
		return []string{row + ": no such row was drawn"}
	}
	reached := s.Figures()
	for _, name := range slices.Sorted(maps.Keys(bounds)) {
		i := slices.IndexFunc(figures, func(f figure) bool { return f.name == name })
		if i < 0 {
			out = append(out, fmt.Sprintf("%s: no figure is called %s", row, name))
			continue
		}
		f, bound := &figures[i], bounds[name]
		switch v := f.of(&reached); {
		case math.IsNaN(v):
			out = append(out, fmt.Sprintf("%s: nothing to reckon %s from", row, name))
		case f.atLeast && v < bound:
			out = append(out, fmt.Sprintf("%s: %s is %.4g, at least %g must be", row, name, v, bound))
		case !f.atLeast && v > bound:
			out = append(out, fmt.Sprintf("%s: %s is %.4g, at most %g may be", row, name, v, bound))
		}
	}
	return out
}

// unbound returns what was drawn and has no bound.
func unbound(t *boundedTable, got map[cell]*score.Sum) (out []string) {
	for c, s := range got {
		bounds, ok := t.Bounds[c.String()]
		if !ok {
			out = append(out, c.String()+": no bounds")
			continue
		}
		for name := range under(s) {
			i := slices.IndexFunc(figures, func(f figure) bool { return f.name == name })
			// Without faults all but what noise makes hangs on whether an incident was told at all.
			if _, ok := bounds[name]; !ok && !figures[i].some && (s.Scored > 0 || name == falsePerK) {
				out = append(out, c.String()+": no bound of "+name)
			}
		}
	}
	slices.Sort(out)
	return out
}

// BoundedTables returns the names of the tables in a file of bounds.
func BoundedTables(path string) ([]string, error) {
	file, err := readBounds(path)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, t := range file.Tables {
		names = append(names, t.Name)
	}
	return names, nil
}

func readBounds(path string) (file bounded, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return file, err
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&file); err != nil {
		return file, fmt.Errorf("%s: %w", path, err)
	}
	return file, nil
}

// BoundedStorms draws the tables of a file of bounds, or only those that are named, writes them,
// and returns [ErrBounds] with what is worse than its bounds. With anew it writes the bounds into
// the file instead, a little under what was reached.
func BoundedStorms(ctx context.Context, path string, anew bool, o StormsOptions, out io.Writer, only ...string) error {
	file, err := readBounds(path)
	if err != nil {
		return err
	}
	var bad []string
	for i := range file.Tables {
		t := &file.Tables[i]
		if len(only) > 0 && !slices.Contains(only, t.Name) {
			continue
		}
		d := o
		d.Shapes, d.Profiles, d.Perturb = t.Draw.Shapes, t.Draw.Profiles, t.Draw.Perturb
		d.Servers, d.Faults, d.First, d.Seeds = t.Draw.Servers, t.Draw.Faults, t.Draw.Seed, t.Draw.Seeds
		if t.Draw.Recorded != "" {
			d.Recorded = filepath.Join(filepath.Dir(path), t.Draw.Recorded)
		}
		if _, err := fmt.Fprintf(out, "\n## %s\n\n", t.Name); err != nil {
			return err
		}
		got, err := storms(ctx, d, out)
		if err != nil {
			return fmt.Errorf("table %q: %w", t.Name, err)
		}
		if anew {
			t.Whole, t.Bounds = true, map[string]map[string]float64{}
			for c, s := range got {
				t.Bounds[c.String()] = under(s)
			}
			continue
		}
		for _, row := range slices.Sorted(maps.Keys(t.Bounds)) {
			profile, half, _ := strings.Cut(row, " ")
			for _, line := range worse(row, t.Bounds[row], got[cell{profile, stormgen.Half(half)}]) {
				bad = append(bad, t.Name+", "+line)
			}
		}
		if t.Whole {
			for _, line := range unbound(t, got) {
				bad = append(bad, t.Name+", "+line)
			}
		}
	}
	if anew {
		var text bytes.Buffer
		text.WriteString(boundsHead)
		e := yaml.NewEncoder(&text)
		e.SetIndent(2)
		if err := errors.Join(e.Encode(&file), e.Close()); err != nil {
			return err
		}
		return os.WriteFile(path, text.Bytes(), 0o644) //nolint:gosec // a file of the sources
	}
	if len(bad) > 0 {
		return fmt.Errorf("%w:\n%s", ErrBounds, strings.Join(bad, "\n"))
	}
	return nil
}

func (c cell) String() string { return c.profile + " " + string(c.half) }

package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"auspex/correlator"
	"auspex/internal/stormgen"
	"auspex/internal/stormgen/score"
	"auspex/internal/usage"
	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

// StormsOptions says which storms [Storms] draws.
type StormsOptions struct {
	Recorded string   // a pattern of folders with storms that are read instead, as stormgen.Read does
	Shapes   string   // tuned, held, all, or names of shapes with commas
	Profiles []string // none is all
	Only     []string // scenarios; none is those of the profiles
	Seeds    int      // storms of each shape and profile
	First    uint64   // the first seed
	Faults   int      // episodes a storm; 0 is six
	Servers  int      // at most so many servers a site; 0 is the shape's size
	Perturb  string   // as stormgen.ParsePerturb reads it
	Method   string   // of solver.Methods; "" is the default
	Misses   int      // how many faults that were missed to list
	Alone    bool     // each fault by itself: what grouping could reach at best
	Best     int      // samples of each cause by which it is reckoned what could be known at best; 0: it is not
	JSON     bool
}

// cell is one row of the table.
type cell struct {
	profile string
	half    stormgen.Half
}

// Storms draws storms over sites of many shapes, runs the correlator over them,
// and writes a table of what it made of them, with the halves side by side: what
// may be tuned with, and what is kept out of tuning (shapes and scenarios both).
func Storms(ctx context.Context, o StormsOptions, out io.Writer) error {
	_, err := storms(ctx, o, out)
	return err
}

func storms(ctx context.Context, o StormsOptions, out io.Writer) (map[cell]*score.Sum, error) {
	sums := map[cell]*score.Sum{}
	var rows []string
	var missed []miss
	var best []beside
	known := map[string]*observers{}
	add := func(st *stormgen.Storm, site string, seed uint64, half stormgen.Half) error {
		sum, err := o.judge(st)
		if err != nil {
			return fmt.Errorf("%w: %w", usage.Err, err)
		}
		p := st.Truth.Profile
		if !slices.Contains(rows, p) {
			rows = append(rows, p)
		}
		for _, r := range sum.Rows {
			if r.Scored && !r.Hit {
				missed = append(missed, miss{site, p, seed, half, r})
			}
		}
		if o.Best > 0 {
			if known[site] == nil {
				known[site] = newObservers(o.Best)
			}
			best = append(best, besides(st, known[site], miss{shape: site, profile: p, seed: seed, half: half}, sum.Rows)...)
		}
		for _, c := range []cell{{p, half}, {"all", half}} {
			if sums[c] == nil {
				sums[c] = &score.Sum{}
			}
			sums[c].Add(sum)
		}
		return nil
	}
	play := o.draw
	if o.Recorded != "" {
		play = o.read
	}
	if err := play(ctx, add); err != nil {
		return nil, err
	}
	rows = append(rows, "all")
	if o.JSON {
		return sums, writeJSON(out, rows, sums)
	}
	return sums, writeTable(out, rows, sums, missed, best, o)
}

// read hands out the storms of folders.
func (o *StormsOptions) read(ctx context.Context, add func(*stormgen.Storm, string, uint64, stormgen.Half) error) error {
	dirs, err := filepath.Glob(o.Recorded)
	if err != nil || len(dirs) == 0 {
		return fmt.Errorf("%w: no folder is called %s", usage.Err, o.Recorded)
	}
	for _, dir := range dirs {
		if err := ctx.Err(); err != nil {
			return err
		}
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			continue
		}
		st, err := stormgen.Read(dir)
		if err != nil {
			return err
		}
		if err := add(st, filepath.Base(dir), 0, recorded); err != nil {
			return err
		}
	}
	return nil
}

// draw hands out storms over sites of the shapes.
func (o *StormsOptions) draw(ctx context.Context, add func(*stormgen.Storm, string, uint64, stormgen.Half) error) error {
	disturb, err := stormgen.ParsePerturb(o.Perturb)
	if err != nil {
		return fmt.Errorf("%w: %w", usage.Err, err)
	}
	shapes, err := o.shapes()
	if err != nil {
		return err
	}
	profiles := stormgen.Profiles()
	if len(o.Profiles) > 0 {
		profiles = nil
		for _, p := range o.Profiles {
			if !slices.Contains(stormgen.Profiles(), stormgen.Profile(p)) {
				return fmt.Errorf("%w: no profile %q; known are %v", usage.Err, p, stormgen.Profiles())
			}
			profiles = append(profiles, stormgen.Profile(p))
		}
	}
	for _, sh := range shapes {
		half := stormgen.Tuned
		if sh.Held {
			half = stormgen.Held
		}
		if n := sh.Racks * sh.Servers; o.Servers > 0 && n > o.Servers {
			sh = sh.Sized(o.Servers)
		}
		site := sh.Build()
		for _, p := range profiles {
			for i := range max(1, o.Seeds) {
				if err := ctx.Err(); err != nil {
					return err
				}
				opts := stormgen.Options{Seed: o.First + uint64(i), Profile: p, Half: half, Faults: cmp.Or(o.Faults, 6), Only: o.Only, Perturb: disturb, Replay: o.Best > 0}
				st, err := stormgen.Draw(site.Topology, opts)
				if err != nil {
					return fmt.Errorf("%w: %w", usage.Err, err)
				}
				if err := add(st, sh.Name, opts.Seed, half); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// miss is a fault whose root was not found, and where to draw it again.
type miss struct {
	shape   string
	profile string
	seed    uint64
	half    stormgen.Half
	row     score.Row
}

func (o *StormsOptions) shapes() (list []stormgen.Shape, err error) {
	switch o.Shapes {
	case "", string(stormgen.Both):
		return stormgen.Shapes(), nil
	case string(stormgen.Tuned), string(stormgen.Held):
		for _, sh := range stormgen.Shapes() {
			if sh.Held == (o.Shapes == string(stormgen.Held)) {
				list = append(list, sh)
			}
		}
		return list, nil
	}
	for name := range strings.SplitSeq(o.Shapes, ",") {
		sh, ok := stormgen.ShapeNamed(name)
		if !ok {
			return nil, fmt.Errorf("%w: no shape %q; see auspex generate storms --list", usage.Err, name)
		}
		list = append(list, sh)
	}
	return list, nil
}

// judge scores a storm, or each of its faults by itself.
func (o *StormsOptions) judge(st *stormgen.Storm) (*score.Sum, error) {
	if !o.Alone {
		return judge(st, o.Method)
	}
	all := &score.Sum{}
	for one := range st.Alone() {
		sum, err := judge(one, o.Method)
		if err != nil {
			return nil, err
		}
		all.Add(sum)
	}
	return all, nil
}

// judge runs the correlator over a storm and scores it.
func judge(st *stormgen.Storm, method string) (*score.Sum, error) {
	sc := score.New(&st.Truth)
	var lines []schemas.Incident
	began := selfCPU()
	e := correlator.NewEngine(propagation.Default(), st.Topology, nil)
	if err := e.SetMethod(method); err != nil {
		return nil, err
	}
	for i := range st.Events {
		e.Add(&st.Events[i])
		lines = append(lines, e.Drain()...)
	}
	if e.Now().Before(st.Truth.End) { // of a fault by itself the last is said early, and some are told later
		e.Advance(st.Truth.End)
	}
	e.Advance(e.Now().Add(2 * time.Minute))
	e.Flush()
	lines = append(lines, e.Drain()...)
	cpu := selfCPU() - began
	for i := range lines {
		sc.Line(&lines[i])
	}
	sum := sc.Sum()
	sum.Lines, sum.CPU = len(st.Events), cpu
	return sum, nil
}

// recorded stands for a half where storms are read.
const recorded stormgen.Half = "recorded"

var halves = []stormgen.Half{stormgen.Tuned, stormgen.Held, recorded}

func number(v float64, digits int) string {
	if math.IsNaN(v) {
		return "-"
	}
	return fmt.Sprintf("%.*f", digits, v)
}

func writeTable(out io.Writer, rows []string, sums map[cell]*score.Sum, missed []miss, best []beside, o StormsOptions) error {
	var b strings.Builder
	b.WriteString("| profile | half | faults | top-1 | top-3 | class | B³ F1 | false | /1000 noise | fragments | merges |" +
		" detect p50 s | root p50 s | root p95 s | ECE | Brier | unknown told | of kind unknown: n | said | right | lines | CPU s/M |\n|" +
		strings.Repeat("---|", 22) + "\n")
	for _, p := range rows {
		for _, h := range halves {
			s := sums[cell{p, h}]
			if s == nil {
				continue
			}
			f := s.Figures()
			unknown := "-"
			if s.Unknown > 0 {
				unknown = fmt.Sprintf("%d/%d (root %d)", s.UnknownHit, s.Unknown, s.UnknownRoot)
			}
			line := []string{
				p, string(h), strconv.Itoa(s.Faults), number(f.Top1, 3), number(f.Top3, 3), number(f.FaultClass, 3), number(f.B3F1, 3),
				strconv.Itoa(s.False), number(f.FalsePerK, 2), number(f.Fragments, 2), strconv.Itoa(s.Merges), number(f.DetectP50, 0),
				number(f.RootP50, 0), number(f.RootP95, 0), number(f.ECE, 3), number(f.Brier, 3), unknown, strconv.Itoa(s.Strange),
				number(f.StrangeSaid, 2), number(f.StrangeRight, 2), strconv.Itoa(s.Lines), number(f.CPUPerM, 1),
			}
			b.WriteString("| " + strings.Join(line, " | ") + " |\n")
		}
	}
	b.WriteString("\n| what happened | half | n | right | pieces | what it was taken for |\n|---|---|---|---|---|---|\n")
	for _, h := range halves {
		if s := sums[cell{"all", h}]; s != nil {
			for _, c := range confusion(s) {
				fmt.Fprintf(&b, "| %s (%s) | %s | %d | %s | %.2f | %s |\n", c.Scenario, c.Fault, h, c.N, number(c.Right, 2), c.Pieces, c.named())
			}
		}
	}
	b.WriteString("\n| class of mistake | half | faults | root right | pieces | confidence when right | when wrong |\n|" +
		strings.Repeat("---|", 7) + "\n")
	for _, c := range stormgen.Classes() {
		for _, h := range halves {
			if s := sums[cell{"all", h}]; s != nil {
				writeClass(&b, &c, h, s)
			}
		}
	}
	if len(missed) > 0 && o.Misses > 0 {
		b.WriteString("\n| shape | profile | seed | start | what happened | resource | taken for | resource | confidence |\n|" +
			strings.Repeat("---|", 9) + "\n")
		for _, m := range missed[:min(len(missed), o.Misses)] {
			r := &m.row
			fmt.Fprintf(&b, "| %s | %s | %d | %s | %s | %s | %s | %s | %.2f |\n", m.shape, m.profile, m.seed, r.Start.Format("01-02T15:04:05"),
				r.Scenario, r.Resource, cmp.Or(r.Named, "nothing"), r.NamedResource, r.Confidence)
		}
	}
	if o.Best > 0 {
		writeBest(&b, best, o.Misses)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// writeClass writes what became of the faults that bring out a class of mistakes.
func writeClass(b *strings.Builder, c *stormgen.Class, h stormgen.Half, s *score.Sum) {
	var n, right, wrong, pieces, sure, unsure float64
	for _, r := range s.Rows {
		if !r.Scored || !c.Has(r.Scenario, r.Profile) {
			continue
		}
		n++
		pieces += float64(r.Pieces)
		switch {
		case r.Hit:
			right++
			sure += r.Confidence
		case r.Named != "" && r.Named != stormgen.Unknown:
			wrong++
			unsure += r.Confidence
		}
	}
	if n > 0 {
		fmt.Fprintf(b, "| %s | %s | %.0f | %.3f | %.2f | %s | %s |\n", c.Name, h, n, right/n, pieces/n,
			number(sure/right, 2), number(unsure/wrong, 2))
	}
}

// taken is what faults of one scenario were taken for.
type taken struct {
	Scenario string         `json:"scenario"`
	Fault    string         `json:"fault"`
	N        int            `json:"n"`
	Right    float64        `json:"right"` // share of those that can be known
	Pieces   float64        `json:"pieces"`
	Named    map[string]int `json:"named"` // fault named, "=" before those at the right resource
}

func (t *taken) named() string {
	var out []string
	for _, name := range slices.SortedFunc(maps.Keys(t.Named), func(a, b string) int {
		return cmp.Or(t.Named[b]-t.Named[a], strings.Compare(a, b))
	}) {
		out = append(out, fmt.Sprintf("%s %d", name, t.Named[name]))
	}
	return strings.Join(out, ", ")
}

func confusion(s *score.Sum) (out []*taken) {
	by := map[string]*taken{}
	scored := map[string]int{}
	for _, r := range s.Rows {
		t := by[r.Scenario]
		if t == nil {
			t = &taken{Scenario: r.Scenario, Fault: r.Fault, Named: map[string]int{}}
			by[r.Scenario] = t
			out = append(out, t)
		}
		t.N++
		t.Pieces += float64(r.Pieces)
		name := cmp.Or(r.Named, "nothing")
		if r.Hit {
			name = "=" + name
		}
		t.Named[name]++
		if r.Scored {
			scored[r.Scenario]++
			if r.Hit {
				t.Right++
			}
		}
	}
	for _, t := range out {
		t.Right /= float64(scored[t.Scenario])
		t.Pieces /= float64(t.N)
	}
	slices.SortFunc(out, func(a, b *taken) int { return strings.Compare(a.Scenario, b.Scenario) })
	return out
}

// writeJSON writes one object a row and half.
func writeJSON(out io.Writer, rows []string, sums map[cell]*score.Sum) error {
	enc := json.NewEncoder(out)
	for _, p := range rows {
		for _, h := range halves {
			s := sums[cell{p, h}]
			if s == nil {
				continue
			}
			f := s.Figures()
			row := map[string]any{
				"profile": p, "half": h, "faults": s.Faults, "scored": s.Scored, "noise_events": s.Noise, "false_incidents": s.False, "lines": s.Lines,
				"unknown_faults": s.Unknown, "unknown_told": s.UnknownHit, "unknown_told_at_root": s.UnknownRoot, "unknown_incidents": s.Strange,
			}
			for name, v := range map[string]float64{
				"top1": f.Top1, "top3": f.Top3, "fault_class": f.FaultClass, "b3_f1": f.B3F1, "pair_f1": f.PairF1, "false_per_1000_noise": f.FalsePerK,
				"fragments": f.Fragments, "detect_p50_s": f.DetectP50, "root_p50_s": f.RootP50, "root_p95_s": f.RootP95, "ece": f.ECE, "brier": f.Brier,
				"cpu_seconds_per_million_lines": f.CPUPerM, "unknown_confidence": f.StrangeSaid, "unknown_right": f.StrangeRight,
			} {
				if !math.IsNaN(v) {
					row[name] = v
				}
			}
			if p == "all" {
				list := confusion(s)
				for _, t := range list {
					if math.IsNaN(t.Right) {
						t.Right = 0
					}
				}
				row["scenarios"] = list
			}
			if err := enc.Encode(row); err != nil {
				return err
			}
		}
	}
	return nil
}

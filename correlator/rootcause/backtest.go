package rootcause

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"auspex/internal/textfile"
	"auspex/internal/usage"
)

// Options says what Backtest reads and writes.
type Options struct {
	Data    string // a folder with issues in it, at any depth
	Graph   string // for all issues; empty: graph.csv of the nearest folder above each
	Out     string // one JSON line an issue; "-" is standard output
	Roles   Roles
	Score   bool // hold the ranking against root_cause of each target.json
	JSON    bool // the score as one object
	Strict  bool // a bad row stops the command
	MaxSize int64

	Stdout, Stderr io.Writer
}

// line is what is written for an issue.
type line struct {
	Issue  string     `json:"issue"`
	Target lineTarget `json:"target"`
	*Verdict
}

type lineTarget struct {
	Node      string `json:"node"`
	Metric    string `json:"metric"`
	Statistic string `json:"statistic,omitempty"`
	Time      string `json:"time"`
}

// truth is what an operator found later. The ranking never sees it.
type truth struct {
	RootCause *struct {
		Node string `json:"node"`
	} `json:"root_cause"`
}

// scenario is a folder with a graph and a time of normal operation, and its issues.
type scenario struct {
	dir, graph, normal string
	issues             []string
}

// Backtest ranks the causes of each issue below a folder. An issue is a folder with
// target.json and metrics.csv; the nearest folder above it that has them gives graph.csv
// and the normal operation, noissue/metrics.csv or normal/metrics.csv.
func Backtest(ctx context.Context, o Options) error {
	all, err := scenarios(o.Data, o.Graph)
	if err != nil {
		return err
	}
	for _, s := range all {
		inputs := []string{s.graph, find(s.normal, "metrics.csv")}
		for _, dir := range s.issues {
			inputs = append(inputs, find(dir, "metrics.csv"), find(dir, "target.json"))
		}
		if err := textfile.NotAnInput(o.Out, inputs...); err != nil {
			return err
		}
	}
	b := &backtest{o: o, progress: textfile.NewProgress(o.Stderr, o.Stdout)}
	b.stderr = b.progress.Words(o.Stderr)
	out, err := textfile.Create(o.Out, o.Stdout)
	if err != nil {
		return err
	}
	for _, s := range all {
		b.of += len(s.issues)
	}
	for _, s := range all {
		if err = b.scenario(ctx, s, out); err != nil {
			break
		}
	}
	b.progress.Clear()
	if err = errors.Join(err, out.Close()); err != nil {
		return err
	}
	if b.bad > 0 {
		fmt.Fprintf(o.Stderr, "%d rows could not be read\n", b.bad)
	}
	if o.Score {
		if err := b.score.print(b.table(), o.JSON); err != nil {
			return err
		}
	}
	if len(b.failed) > 0 {
		return fmt.Errorf("%d of %d issues could not be judged: %s", len(b.failed), b.of, strings.Join(b.failed, ", "))
	}
	return nil
}

// table is where the score goes: where the ranking does not.
func (b *backtest) table() io.Writer {
	if b.o.Out == textfile.Stdin || b.o.Out == "" {
		return b.o.Stderr
	}
	return b.o.Stdout
}

type backtest struct {
	o        Options
	progress *textfile.Progress
	stderr   io.Writer
	bad      int
	done, of int
	failed   []string
	score    Score
}

func (b *backtest) reading() *Reading {
	return &Reading{MaxSize: b.o.MaxSize, Counted: b.progress.Reading, Bad: func(err error) error {
		if b.o.Strict {
			return err
		}
		b.bad++
		fmt.Fprintln(b.stderr, err)
		return nil
	}}
}

// scenarios finds the issues below a folder.
func scenarios(root, graph string) ([]*scenario, error) {
	byDir := map[string]*scenario{}
	var out []*scenario
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() || strings.TrimSuffix(strings.TrimSuffix(d.Name(), ".gz"), ".zst") != "target.json" {
			return nil
		}
		issue := filepath.Dir(path)
		site, err := above(root, issue, graph)
		if err != nil {
			return err
		}
		if s := byDir[site.dir]; s != nil {
			site = s
		} else {
			byDir[site.dir] = site
			out = append(out, site)
		}
		site.issues = append(site.issues, issue)
		return nil
	})
	if err == nil && len(out) == 0 {
		err = fmt.Errorf("%w: no target.json below %s", usage.Err, root)
	}
	return out, err
}

// above finds the graph and the normal operation of an issue.
func above(root, issue, graph string) (*scenario, error) {
	s := &scenario{graph: graph}
	for dir := issue; ; dir = filepath.Dir(dir) {
		if s.graph == "" {
			s.graph = find(dir, "graph.csv")
		}
		for _, name := range []string{"noissue", "normal"} {
			folder := filepath.Join(dir, name)
			if s.normal == "" && (find(folder, "metrics.csv") != "" || find(folder, "metrics") != "") {
				s.normal, s.dir = folder, dir
			}
		}
		if s.graph != "" && s.normal != "" {
			return s, nil
		}
		if rel, err := filepath.Rel(root, dir); err != nil || rel == "." {
			break
		}
	}
	if s.graph == "" {
		return nil, fmt.Errorf("%s: no graph.csv in any folder above it, and no --graph", issue)
	}
	return nil, fmt.Errorf("%s: no noissue/metrics.csv in any folder above it: normal operation has to be known", issue)
}

// scenario judges the issues of one site. An issue that cannot be read harms only itself.
func (b *backtest) scenario(ctx context.Context, s *scenario, out io.Writer) error {
	site, err := b.site(ctx, s)
	if err != nil {
		return err
	}
	for _, dir := range s.issues {
		if err := ctx.Err(); err != nil {
			return err
		}
		b.done++
		b.progress.Count("issues", b.done, b.of)
		name, err := filepath.Rel(b.o.Data, dir)
		if err != nil {
			name = dir
		}
		l, right, err := b.issue(ctx, site, dir)
		if err != nil {
			if b.o.Strict || ctx.Err() != nil {
				return err
			}
			fmt.Fprintln(b.stderr, err)
			b.failed = append(b.failed, name)
			continue
		}
		l.Issue = filepath.ToSlash(name)
		if err := json.NewEncoder(out).Encode(l); err != nil {
			return err
		}
		if b.o.Score && right != "" {
			scenario, err := filepath.Rel(b.o.Data, s.dir)
			if err != nil {
				scenario = s.dir
			}
			b.score.add(filepath.ToSlash(scenario), l.Target.Metric, right, l.Verdict)
		}
	}
	return nil
}

func (b *backtest) site(ctx context.Context, s *scenario) (*Site, error) {
	r := b.reading()
	g, err := r.Graph(ctx, s.graph)
	if err != nil {
		return nil, fmt.Errorf("read graph: %w", err)
	}
	normal, err := r.Table(ctx, s.normal)
	if err != nil {
		return nil, fmt.Errorf("read normal operation: %w", err)
	}
	for _, n := range normal.Nodes() {
		if _, ok := g.Index(n); !ok {
			fmt.Fprintf(b.stderr, "%s: node %q is not in %s: left out\n", normal.Path, n, s.graph)
		}
	}
	if c := g.Circle(); c != nil {
		fmt.Fprintf(b.stderr, "%s: the calls %s are a circle: trouble in it is told apart by its amount alone\n",
			s.graph, strings.Join(c, " → "))
	}
	return NewSite(g, normal, b.o.Roles)
}

func (b *backtest) issue(ctx context.Context, site *Site, dir string) (*line, string, error) {
	path := find(dir, "target.json")
	doc, err := textfile.ReadFile(path, nil)
	if err != nil {
		return nil, "", err
	}
	var in struct {
		Target *Target `json:"target"`
	}
	if err := json.Unmarshal(doc, &in); err != nil {
		line := 1
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			line += bytes.Count(doc[:min(syntax.Offset, int64(len(doc)))], []byte{'\n'})
		}
		return nil, "", fmt.Errorf("%s:%d: %s", path, line, textfile.Reason(err))
	}
	if in.Target == nil || in.Target.Node == "" || in.Target.Metric == "" {
		return nil, "", fmt.Errorf("%s: no target with node and metric", path)
	}
	table, err := b.reading().Table(ctx, dir)
	if err != nil {
		return nil, "", err
	}
	v, err := site.Rank(table, *in.Target)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", path, err)
	}
	var right string
	if b.o.Score {
		var t truth
		if err := json.Unmarshal(doc, &t); err != nil {
			return nil, "", fmt.Errorf("%s: %s", path, textfile.Reason(err))
		}
		if t.RootCause != nil {
			right = t.RootCause.Node
		}
	}
	at := clock(in.Target.Time).Format("2006-01-02T15:04:05.999Z07:00")
	return &line{Target: lineTarget{in.Target.Node, in.Target.Metric, in.Target.Statistic, at}, Verdict: v}, right, nil
}

// Score holds rankings against the causes that were found.
type Score struct {
	Groups []*Group `json:"groups"`
}

// Group is the score of the issues of one scenario and metric.
type Group struct {
	Scenario string  `json:"scenario"`
	Metric   string  `json:"metric"`
	Issues   int     `json:"issues"`
	Top1     float64 `json:"top1"`  // share with the cause in the first place
	Top3     float64 `json:"top3"`  // share with it in the first three
	Brier    float64 `json:"brier"` // mean square of the first place's probability less 1 or 0
}

func (s *Score) add(scenario, metric, right string, v *Verdict) {
	i := slices.IndexFunc(s.Groups, func(g *Group) bool { return g.Scenario == scenario && g.Metric == metric })
	if i < 0 {
		i = len(s.Groups)
		s.Groups = append(s.Groups, &Group{Scenario: scenario, Metric: metric})
	}
	g := s.Groups[i]
	n := float64(g.Issues)
	hit := func(places int) float64 {
		for _, c := range v.Causes[:min(places, len(v.Causes))] {
			if c.Node == right {
				return 1
			}
		}
		return 0
	}
	miss := v.Causes[0].Probability - hit(1)
	g.Top1 = (g.Top1*n + hit(1)) / (n + 1)
	g.Top3 = (g.Top3*n + hit(3)) / (n + 1)
	g.Brier = (g.Brier*n + miss*miss) / (n + 1)
	g.Issues++
}

func (s *Score) print(w io.Writer, asJSON bool) error {
	if asJSON {
		if s.Groups == nil {
			s.Groups = []*Group{}
		}
		return json.NewEncoder(w).Encode(s)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SCENARIO\tMETRIC\tISSUES\tTOP-1\tTOP-3\tBRIER")
	for _, g := range s.Groups {
		fmt.Fprintf(t, "%s\t%s\t%d\t%.2f\t%.2f\t%.3f\n", g.Scenario, g.Metric, g.Issues, g.Top1, g.Top3, g.Brier)
	}
	return t.Flush()
}

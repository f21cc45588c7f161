package rootcause

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// write makes files of a txtar-like map in a new folder.
func write(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestReadGraph(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"matrix":         {",a,b\na,0,1.0\nb,0,0\n", ""},
		"edges":          {"from,to\na,b\nb,c\n", ""},
		"circle":         {"from,to\na,b\nb,a\n", ""},
		"empty":          {"", "g.csv:1: no node"},
		"no names":       {"x,y\n", "g.csv:1: neither the header from,to"},
		"twice":          {",a,a\n", "g.csv:1: column 3"},
		"row twice":      {",a,b\na,0,1\na,0,1\n", `g.csv:3: node "a" has a row already, in line 2`},
		"unknown row":    {",a,b\nc,0,1\n", `g.csv:2: node "c" has no column`},
		"row missing":    {",a,b\na,0,1\n", `no row for node "b"`},
		"too short":      {",a,b\na,0\n", "g.csv:2: 1 cells after the name, not 2"},
		"no number":      {",a,b\na,0,x\n", `g.csv:2: cell 3: "x" is not a number`},
		"not a number":   {",a,b\na,0,NaN\n", "g.csv:2: cell 3"},
		"calls itself":   {",a,b\na,1,1\nb,0,0\n", `g.csv:2: "a": a node does not depend on itself`},
		"edge too short": {"from,to\na\n", "g.csv:2: want caller,callee"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := write(t, map[string]string{"g.csv": c.text})
			_, err := (&Reading{}).Graph(t.Context(), filepath.Join(dir, "g.csv"))
			if (c.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

const header = "node,a,b\nmetric,latency,requests\nstatistic,Average,Sum\ntime,,\n"

func TestReadTable(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"good":        {header + "0,1,2\n60,,NaN\n", ""},
		"dates":       {header + "2026-01-01T00:00:00Z,1,2\n", ""},
		"no time":     {"node,a\nmetric,latency\nstatistic,p50\nwhen,\n0,1\n", `metrics.csv:4: the first column is "when"`},
		"no rows":     {header, "no row that could be read"},
		"only header": {"node,a\n", "metrics.csv:1: no row that names the time column"},
		"few headers": {"node,a\ntime,\n0,1\n", "metrics.csv:2: 1 header rows before the time"},
		"uneven":      {"node,a,b\nmetric,latency\nstatistic,p50\ntime,\n0,1\n", "metrics.csv:4: header row 2 has 2 cells, the first one 3"},
		"column twice": {
			"node,a,a\nmetric,latency,latency\nstatistic,p50,p50\ntime,,\n0,1,2\n",
			"metrics.csv:1: column a latency p50 is there twice",
		},
		"text":      {header + "0,1,x\n", `metrics.csv:5: cell 3: "x" is not a number`},
		"infinite":  {header + "0,Inf,1\n", `metrics.csv:5: cell 2: "Inf" is not a number`},
		"backwards": {header + "60,1,1\n0,1,1\n", "metrics.csv:6: its time is not after"},
		"too wide":  {header + "0,1,1,1\n", "metrics.csv:5: 3 cells after the time, not 2"},
		"bad time":  {header + "soon,1,1\n", `metrics.csv:5: time "soon" is neither`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := write(t, map[string]string{"metrics.csv": c.text})
			_, err := (&Reading{}).Table(t.Context(), dir)
			if (c.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestReadOneFileANode: the wide files of the other backtests, side by side by time.
func TestReadOneFileANode(t *testing.T) {
	dir := write(t, map[string]string{
		"metrics/disk-1.csv": "time,await,latency/p99\n0,1,2\n60,3,4\n",
		"metrics/host.csv":   "time,load\n60,5\n120,6\n",
	})
	table, err := (&Reading{}).Table(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	p99, load := table.Columns[Column{"disk-1", "latency", "p99"}], table.Columns[Column{"host", "load", ""}]
	if len(table.Times) != 3 || p99[1] != 4 || p99[2] == p99[2] || load[0] == load[0] || load[2] != 6 {
		t.Errorf("%v %v %v", table.Times, p99, load)
	}
}

func TestTargetsThatCannotBeJudged(t *testing.T) {
	site := shop.site(t)
	for name, c := range map[string]struct {
		target Target
		want   string
	}{
		"not in the graph": {Target{"nobody", "latency", "Average", 300}, `node "nobody" is not in the graph`},
		"no such metric":   {Target{"front", "latency", "p12", 300}, "has no column front latency p12"},
		"another time":     {Target{"front", "latency", "Average", 1e6}, "is outside of the rows"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := site.Rank(shop.metrics(7, 10, slowDB), c.target)
			if !errors.Is(err, ErrTarget) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	long := shop.metrics(7, rows+1, slowDB)
	if _, err := site.Rank(long, Target{"front", "latency", "Average", 300}); !errors.Is(err, ErrTarget) {
		t.Errorf("a window longer than normal operation: %v", err)
	}
	for k := range long.Times {
		long.Times[k] *= 10
	}
	for c := range long.Columns {
		long.Columns[c] = long.Columns[c][:10]
	}
	long.Times = long.Times[:10]
	if _, err := site.Rank(long, Target{"front", "latency", "Average", 300}); err == nil || !strings.Contains(err.Error(), "apart") {
		t.Errorf("rows that are further apart: %v", err)
	}
}

// TestAnIssueHarmsOnlyItself: the others are still ranked, and the command fails.
func TestAnIssueHarmsOnlyItself(t *testing.T) {
	var rows strings.Builder
	for k := range 30 {
		rows.WriteString(itoa(k*60) + ",1,10\n")
	}
	normal := header + rows.String()
	issue := header + "0,1,10\n60,1,10\n120,9,10\n180,9,10\n"
	dir := write(t, map[string]string{
		"graph.csv": "from,to\na,b\n", "normal/metrics.csv": normal,
		"x/metrics.csv": issue, "x/target.json": `{"target":{"node":"a","metric":"latency","agg":"Average","timestamp":"1970-01-01T00:02:00Z"}}`,
		"y/metrics.csv": issue, "y/target.json": `{"target":{"node":"c","metric":"latency","agg":"Average","timestamp":120}}`,
		"w/metrics.csv": issue, "w/target.json": `{"target":{"node":"a","metric":"latency","agg":"Average"}}`,
		"z/metrics.csv": issue, "z/target.json": `{`,
	})
	var out, rest strings.Builder
	err := Backtest(t.Context(), Options{Data: dir, Out: "-", Roles: DefaultRoles(), Stdout: &out, Stderr: &rest})
	if err == nil || !strings.Contains(err.Error(), "3 of 4 issues could not be judged: w, y, z") {
		t.Errorf("error %v", err)
	}
	if n := strings.Count(out.String(), "\n"); n != 1 || !strings.Contains(out.String(), `"issue":"x"`) {
		t.Errorf("%d lines: %s", n, out.String())
	}
	if !strings.Contains(rest.String(), `node "c" is not in the graph`) || !strings.Contains(rest.String(), "z/target.json:1: ") ||
		!strings.Contains(rest.String(), "w/target.json:1: target: no timestamp") {
		t.Errorf("said %s", rest.String())
	}
}

func itoa(n int) string { return clock(float64(n)).Format("2006-01-02T15:04:05Z") }

func FuzzRead(f *testing.F) {
	f.Add(",a,b\na,0,1\nb,0,0\n")
	f.Add("from,to\na,b\n")
	f.Add(header + "0,1,2\n60,,NaN\n120,1e308,-1\n")
	var long strings.Builder
	long.WriteString(header)
	for k := range 30 {
		long.WriteString(itoa(k*60) + ",1e308," + strings.Repeat("1", k%7) + "\n")
	}
	f.Add(long.String())
	f.Fuzz(func(t *testing.T, text string) {
		dir := write(t, map[string]string{"metrics.csv": text})
		r := &Reading{Bad: func(error) error { return nil }}
		g, err := r.Graph(context.Background(), filepath.Join(dir, "metrics.csv"))
		if err == nil {
			g.Circle()
		}
		table, err := r.Table(context.Background(), dir)
		if err != nil {
			return
		}
		for c, values := range table.Columns {
			if len(values) != len(table.Times) {
				t.Errorf("%v: %d values, %d times", c, len(values), len(table.Times))
			}
		}
		// Whatever the numbers are, a ranking comes or an error.
		g, err = NewGraph(table.Nodes(), nil)
		if err != nil || len(table.Times) > 100 {
			return
		}
		site, err := NewSite(g, table, DefaultRoles())
		if err != nil {
			return
		}
		for c := range table.Columns {
			_, _ = site.Rank(table, Target{c.Node, c.Metric, c.Statistic, table.Times[0]})
		}
	})
}

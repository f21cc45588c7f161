package rootcause

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"auspex/internal/textfile"
)

// Column is one statistic of one metric of a node.
type Column struct {
	Node      string `json:"node"`
	Metric    string `json:"metric"`
	Statistic string `json:"statistic,omitempty"`
}

// Table holds readings: a row a time, in rising order. A cell that is missing is NaN.
type Table struct {
	Path    string
	Times   []float64 // seconds since 1970
	Columns map[Column][]float64
}

// Nodes returns the names that have columns, sorted.
func (t *Table) Nodes() []string {
	var out []string
	for c := range t.Columns {
		out = append(out, c.Node)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// step is the usual time between rows in seconds, 0 for less than two rows.
func (t *Table) step() float64 {
	var gaps []float64
	for i := 1; i < len(t.Times); i++ {
		gaps = append(gaps, t.Times[i]-t.Times[i-1])
	}
	if len(gaps) == 0 {
		return 0
	}
	slices.Sort(gaps)
	return gaps[len(gaps)/2]
}

// Reading is how files are read: rows that cannot be read are told to Bad, whose error
// ends the reading.
type Reading struct {
	Bad     func(error) error
	MaxSize int64 // bytes that a file may hold, unpacked; see [textfile.Open]
	Counted func(name string, in io.Reader) io.Reader
}

func (r *Reading) open(path string) (*textfile.Lines, io.Closer, error) {
	in, err := textfile.Open(path, nil, r.MaxSize)
	if err != nil {
		return nil, nil, err
	}
	var text io.Reader = in
	if r.Counted != nil {
		text = r.Counted(path, in)
	}
	return textfile.NewLines(text), in, nil
}

// each hands out the cells of the lines that are not blank.
func (r *Reading) each(ctx context.Context, path string, f func(n int, cells []string) error) error {
	lines, in, err := r.open(path)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	for {
		line, n, rerr := lines.Next()
		if rerr != nil && !errors.Is(rerr, io.EOF) {
			return fmt.Errorf("%s:%d: %w", path, n, rerr)
		}
		if len(line) > 0 {
			cells, err := textfile.Cells(string(line))
			if err != nil {
				return fmt.Errorf("%s:%d: %w", path, n, err)
			}
			if err := f(n, cells); err != nil {
				return err
			}
		}
		if rerr != nil {
			return nil
		}
		if n&0xff == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// find returns NAME, NAME.gz or NAME.zst of a folder; "" where there is none.
func find(dir, name string) string {
	for _, end := range []string{"", ".gz", ".zst"} {
		if _, err := os.Stat(filepath.Join(dir, name+end)); err == nil {
			return filepath.Join(dir, name+end)
		}
	}
	return ""
}

// Table reads the readings of a folder: metrics.csv with three header rows (node,
// metric, statistic) before the row that names the time, or a folder metrics with one
// wide file a node (`time,METRIC,METRIC/STATISTIC,…`).
func (r *Reading) Table(ctx context.Context, dir string) (*Table, error) {
	if path := find(dir, "metrics.csv"); path != "" {
		t := &Table{Path: path, Columns: map[Column][]float64{}}
		return t, r.file(ctx, path, "", t)
	}
	folder := filepath.Join(dir, "metrics")
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("%s: neither metrics.csv nor a folder metrics", dir)
	}
	var parts []*Table
	for _, e := range entries {
		name := strings.TrimSuffix(strings.TrimSuffix(e.Name(), ".gz"), ".zst")
		node, ok := strings.CutSuffix(name, ".csv")
		if !ok || e.IsDir() {
			continue
		}
		path := filepath.Join(folder, e.Name())
		t := &Table{Path: path, Columns: map[Column][]float64{}}
		if err := r.file(ctx, path, node, t); err != nil {
			return nil, err
		}
		parts = append(parts, t)
	}
	if len(parts) == 0 {
		return nil, fmt.Errorf("%s: no CSV file", folder)
	}
	return joined(folder, parts)
}

// joined puts files of nodes side by side, by time.
func joined(path string, parts []*Table) (*Table, error) {
	out := &Table{Path: path, Columns: map[Column][]float64{}}
	for _, p := range parts {
		out.Times = append(out.Times, p.Times...)
	}
	slices.Sort(out.Times)
	out.Times = slices.Compact(out.Times)
	for _, p := range parts {
		row := make([]int, len(p.Times))
		for i, at := range p.Times {
			row[i], _ = slices.BinarySearch(out.Times, at)
		}
		for c, values := range p.Columns {
			if _, ok := out.Columns[c]; ok {
				return nil, fmt.Errorf("%s: node %s has two files", p.Path, c.Node)
			}
			all := missing(len(out.Times))
			for i, v := range values {
				all[row[i]] = v
			}
			out.Columns[c] = all
		}
	}
	return out, nil
}

func missing(n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = math.NaN()
	}
	return out
}

// file reads one CSV file; node is "" where the header says whose a column is.
func (r *Reading) file(ctx context.Context, path, node string, t *Table) error {
	var header [][]string
	var columns []Column
	cellsOf := map[int][]float64{}
	err := r.each(ctx, path, func(n int, cells []string) error {
		if columns == nil {
			header = append(header, cells)
			var err error
			if columns, err = headed(header, node); err != nil {
				return fmt.Errorf("%s:%d: %w", path, n, err)
			}
			return nil
		}
		at, row, err := parseRow(cells, len(columns))
		if k := len(t.Times); err == nil && k > 0 && at <= t.Times[k-1] {
			err = errors.New("its time is not after that of the row before")
		}
		if err != nil {
			return r.bad(fmt.Errorf("%s:%d: %w", path, n, err))
		}
		t.Times = append(t.Times, at)
		for i, v := range row {
			cellsOf[i] = append(cellsOf[i], v)
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case columns == nil:
		return fmt.Errorf("%s:%d: no row that names the time column", path, max(1, len(header)))
	case len(t.Times) == 0:
		return fmt.Errorf("%s: no row that could be read", path)
	}
	for i, c := range columns {
		if c.Metric == "" {
			continue
		}
		if _, ok := t.Columns[c]; ok {
			return fmt.Errorf("%s:1: column %s %s %s is there twice", path, c.Node, c.Metric, c.Statistic)
		}
		t.Columns[c] = cellsOf[i]
	}
	return nil
}

func (r *Reading) bad(err error) error {
	if r.Bad == nil {
		return err
	}
	return r.Bad(err)
}

// timeNames are what a time column is called.
var timeNames = []string{"time", "timestamp", "unix_timestamp"}

// headed reads a header once its last row is there; nil means that rows are missing.
func headed(rows [][]string, node string) ([]Column, error) {
	last := rows[len(rows)-1]
	if !slices.Contains(timeNames, strings.ToLower(last[0])) {
		if node != "" || len(rows) >= 4 {
			return nil, fmt.Errorf("the first column is %q, not one of %s", last[0], strings.Join(timeNames, ", "))
		}
		return nil, nil
	}
	if node != "" {
		out := make([]Column, len(last)-1)
		for i, name := range last[1:] {
			metric, statistic, _ := strings.Cut(name, "/")
			out[i] = Column{node, metric, statistic}
		}
		return out, nil
	}
	if len(rows) < 3 {
		return nil, fmt.Errorf("%d header rows before the time, want node and metric, and best a statistic", len(rows)-1)
	}
	out := make([]Column, len(rows[0])-1)
	for k, row := range rows[:len(rows)-1] {
		if len(row) != len(rows[0]) {
			return nil, fmt.Errorf("header row %d has %d cells, the first one %d", k+1, len(row), len(rows[0]))
		}
		for i, cell := range row[1:] {
			switch k {
			case 0:
				out[i].Node = cell
			case 1:
				out[i].Metric = cell
			case 2:
				out[i].Statistic = cell
			}
		}
	}
	if len(out) == 0 {
		return nil, errors.New("no column beside the time")
	}
	return out, nil
}

func parseRow(cells []string, n int) (float64, []float64, error) {
	at, err := parseTime(cells[0])
	if err != nil {
		return 0, nil, err
	}
	if len(cells) != n+1 {
		return 0, nil, fmt.Errorf("%d cells after the time, not %d", len(cells)-1, n)
	}
	out := make([]float64, n)
	for i, cell := range cells[1:] {
		v, err := strconv.ParseFloat(cmp.Or(cell, "NaN"), 64)
		if err != nil || math.IsInf(v, 0) {
			return 0, nil, fmt.Errorf("cell %d: %q is not a number", i+2, cell)
		}
		out[i] = v
	}
	return at, out, nil
}

// parseTime reads RFC 3339, or seconds since 1970.
func parseTime(s string) (float64, error) {
	if v, err := strconv.ParseFloat(s, 64); err == nil && v >= 0 && v < maxSeconds {
		return v, nil
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return 0, fmt.Errorf("time %q is neither RFC 3339 nor seconds since 1970", s)
	}
	return float64(t.UnixNano()) / 1e9, nil
}

// maxSeconds is the end of times in 64-bit nanoseconds, in 2262.
const maxSeconds = 9_223_372_036

func clock(seconds float64) time.Time { return time.UnixMilli(int64(math.Round(seconds * 1000))).UTC() }

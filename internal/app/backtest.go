package app

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
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

	"github.com/auspex-dev/auspex/predictor/anomaly"
	"github.com/auspex-dev/auspex/predictor/trend"
)

// ForecastOptions says what BacktestForecast reads and writes.
type ForecastOptions struct {
	Data, Limits, Out string // a folder of wide CSV files; limits.json; predictions.jsonl, "-" is standard output
	Horizon           time.Duration
	Strict            bool // a bad line stops the command
}

// AnomalyOptions says what BacktestAnomaly reads and writes.
type AnomalyOptions struct {
	Data, Out string // folders
	Warmup    int    // rows learnt from and not tested; negative is 15 %, at most 750
	Strict    bool   // a bad line stops the command
}

var (
	nan     = math.NaN()
	errStop = errors.New("enough read")
)

// wideFile is a file of one device: NAME.csv or NAME.csv.gz.
type wideFile struct{ name, path string }

// wideFiles lists the files of a folder by name; train holds those learnt from.
func wideFiles(dir string) (files []wideFile, train map[string]string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("read data: %w: %w", ErrUsage, err)
	}
	train = map[string]string{}
	for _, e := range entries {
		base, _ := strings.CutSuffix(e.Name(), ".gz")
		base, ok := strings.CutSuffix(base, ".csv")
		if !ok || e.IsDir() {
			continue
		}
		path := filepath.Join(dir, e.Name())
		if name, ok := strings.CutSuffix(base, ".train"); ok {
			train[name] = path
			continue
		}
		files = append(files, wideFile{base, path})
	}
	if len(files) == 0 {
		return nil, nil, fmt.Errorf("read data: %w: no CSV file in %s", ErrUsage, dir)
	}
	slices.SortFunc(files, func(a, b wideFile) int { return cmp.Compare(a.name, b.name) })
	return files, train, nil
}

// wideRow is a row of a wide file; an empty cell is NaN. It is used again.
type wideRow struct {
	text   string // the time as it stands in the file
	at     time.Time
	values []float64
}

// readWide hands each row of a file on. A bad row is told to bad; its error ends
// the reading.
func readWide(ctx context.Context, path string, header func(metrics []string) error, bad func(error) error, row func(*wideRow) error) error {
	in, err := openInput(path, nil)
	if err != nil {
		return fmt.Errorf("read data: %w", err)
	}
	defer func() { _ = in.Close() }()
	lines := newLineReader(in)
	line, _, err := lines.next()
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s:1: %w", path, err)
	}
	names := strings.Split(strings.TrimPrefix(string(line), "\ufeff"), ",")
	if strings.TrimSpace(names[0]) != "time" {
		return fmt.Errorf("%s:1: the first column is %q, not time", path, names[0])
	}
	names = names[1:]
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
	}
	if err := header(names); err != nil {
		return err
	}
	r := wideRow{values: make([]float64, len(names))}
	for {
		line, n, rerr := lines.next()
		if rerr != nil && !errors.Is(rerr, io.EOF) && !errors.Is(rerr, errLongLine) {
			return fmt.Errorf("%s: %w", path, rerr)
		}
		if len(line) > 0 || errors.Is(rerr, errLongLine) {
			perr := rerr
			if !errors.Is(rerr, errLongLine) {
				perr = r.parse(string(line))
			}
			if perr != nil {
				if err := bad(fmt.Errorf("%s:%d: %w", path, n, perr)); err != nil {
					return err
				}
			} else if err := row(&r); err != nil {
				return err
			}
		}
		if errors.Is(rerr, io.EOF) {
			return nil
		}
		if n&0xfff == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// parse reads a line: a time and as many cells as the header names.
func (r *wideRow) parse(line string) error {
	var rest string
	var more bool
	r.text, rest, more = strings.Cut(line, ",")
	var err error
	if r.at, err = parseWideTime(r.text); err != nil {
		return err
	}
	for i := range r.values {
		if !more {
			return fmt.Errorf("%d cells after the time, not %d", i, len(r.values))
		}
		var cell string
		cell, rest, more = strings.Cut(rest, ",")
		cell = strings.TrimSpace(cell)
		if cell == "" {
			r.values[i] = nan
			continue
		}
		v, err := strconv.ParseFloat(cell, 64)
		if err != nil {
			return fmt.Errorf("cell %d: %q is not a number", i+2, cell)
		}
		r.values[i] = v
	}
	if more {
		return fmt.Errorf("more than %d cells after the time", len(r.values))
	}
	return nil
}

// parseWideTime reads a time, or an integer that counts samples: of a minute.
func parseWideTime(s string) (time.Time, error) {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return time.Unix(n*60, 0).UTC(), nil
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return t, fmt.Errorf("time %q is neither RFC 3339 nor an integer", s)
	}
	return t, nil
}

// badRows returns what to do with a bad row: with strict it ends the command,
// else it is told.
func badRows(strict bool, w io.Writer) func(error) error {
	return func(err error) error {
		if strict {
			return err
		}
		fmt.Fprintln(w, err)
		return nil
	}
}

// metricLimit is the limit of a metric in limits.json.
type metricLimit struct {
	Above *float64 `json:"above"`
	Below *float64 `json:"below"`
}

func readLimits(path string) (map[string]metricLimit, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read limits: %w: %w", ErrUsage, err)
	}
	var out map[string]metricLimit
	if err := json.Unmarshal(b, &out); err != nil {
		return nil, fmt.Errorf("read limits: %w: %s: %w", ErrUsage, path, err)
	}
	for name, l := range out {
		if (l.Above == nil) == (l.Below == nil) {
			return nil, fmt.Errorf("read limits: %w: %s: %s needs either above or below", ErrUsage, path, name)
		}
	}
	return out, nil
}

// prediction is a line of predictions.jsonl.
type prediction struct {
	File        string  `json:"file"`
	Time        string  `json:"time"`
	Metric      string  `json:"metric"`
	Limit       float64 `json:"limit"`
	P10         *string `json:"eta_p10"`
	P50         *string `json:"eta_p50"`
	P90         *string `json:"eta_p90"`
	Probability float64 `json:"probability"`
}

// forecastMetric is a metric with a limit of one file.
type forecastMetric struct {
	column   int
	name     string
	limit    float64
	follower *trend.Follower
}

// BacktestForecast reads the files of a folder row by row and writes, for each
// metric with a limit, when it is expected to cross it, whenever that changes
// materially (formats, section 6).
func BacktestForecast(ctx context.Context, o ForecastOptions, stdout, stderr io.Writer) (err error) {
	limits, err := readLimits(o.Limits)
	if err != nil {
		return err
	}
	if o.Horizon <= 0 {
		return fmt.Errorf("%w: --horizon is %s; it must be positive", ErrUsage, o.Horizon)
	}
	files, _, err := wideFiles(o.Data)
	if err != nil {
		return err
	}
	out, err := openOutput(o.Out, stdout)
	if err != nil {
		return fmt.Errorf("write predictions: %w", err)
	}
	defer func() {
		if cerr := out.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("write predictions: %w", cerr)
		}
	}()
	enc := json.NewEncoder(out)
	bad := badRows(o.Strict, stderr)
	seen := map[string]bool{}
	for _, file := range files {
		var ms []*forecastMetric
		var drivers []int // columns without a limit
		header := func(names []string) error {
			for i, name := range names {
				if _, ok := limits[name]; !ok && len(drivers) < trend.MaxDrivers {
					drivers = append(drivers, i)
				}
			}
			for i, name := range names {
				l, ok := limits[name]
				if !ok {
					continue
				}
				seen[name] = true
				m := &forecastMetric{column: i, name: name}
				if l.Above != nil {
					m.limit = *l.Above
				} else {
					m.limit = *l.Below
				}
				m.follower = trend.NewFollower(trend.Config{MaxWidth: 6 * time.Hour, Below: l.Below != nil}, m.limit, o.Horizon, len(drivers))
				ms = append(ms, m)
			}
			return nil
		}
		var others [trend.MaxDrivers]float64
		row := func(r *wideRow) error {
			for i, c := range drivers {
				others[i] = r.values[c]
			}
			for _, m := range ms {
				f, tell := m.follower.Add(r.at, r.values[m.column], others[:len(drivers)])
				if !tell {
					continue
				}
				p := prediction{File: filepath.Base(file.path), Time: r.at.Format(time.RFC3339), Metric: m.name, Limit: m.limit, Probability: round4(f.Probability)}
				if f.Crossed || m.follower.Alarmed() {
					p.P10, p.P50, p.P90 = eta(f, f.P10), eta(f, f.P50), eta(f, f.P90)
				}
				if err := enc.Encode(&p); err != nil {
					return fmt.Errorf("write predictions: %w", err)
				}
			}
			return nil
		}
		if err := readWide(ctx, file.path, header, bad, row); err != nil {
			return err
		}
	}
	for name := range limits {
		if !seen[name] {
			fmt.Fprintf(stderr, "%s: no file has the metric %q\n", o.Limits, name)
		}
	}
	return nil
}

func eta(f trend.Forecast, d time.Duration) *string {
	s := f.At.Add(d).Format(time.RFC3339)
	return &s
}

func round4(x float64) float64 { return float64(int64(x*1e4+0.5)) / 1e4 }

// BacktestAnomaly scores each row of each file of a folder from the rows up to
// it, and writes NAME.csv to the output folder (formats, section 6).
func BacktestAnomaly(ctx context.Context, o AnomalyOptions, stderr io.Writer) error {
	files, train, err := wideFiles(o.Data)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.Out, 0o750); err != nil {
		return fmt.Errorf("write scores: %w", err)
	}
	bad := badRows(o.Strict, stderr)
	for _, file := range files {
		if err := scoreFile(ctx, o, file, train[file.name], bad); err != nil {
			return err
		}
	}
	return nil
}

func scoreFile(ctx context.Context, o AnomalyOptions, file wideFile, train string, bad func(error) error) (err error) {
	warmup := o.Warmup
	var metrics []string
	header := func(names []string) error { metrics = slices.Clone(names); return nil }
	if warmup < 0 {
		rows := 0
		if err := readWide(ctx, file.path, header, func(error) error { return nil }, func(*wideRow) error { rows++; return nil }); err != nil {
			return err
		}
		warmup = min(rows*15/100, 750)
	}
	var dev *anomaly.Device
	if train != "" {
		order := map[string]int{}
		learn := func(names []string) error {
			for i, n := range names {
				order[n] = i
			}
			return nil
		}
		if err := readWide(ctx, file.path, header, func(error) error { return nil }, func(*wideRow) error { return errStop }); err != nil && !errors.Is(err, errStop) {
			return err
		}
		dev = anomaly.NewDevice(len(metrics))
		values := make([]float64, len(metrics))
		err := readWide(ctx, train, learn, bad, func(r *wideRow) error {
			for i, name := range metrics {
				values[i] = nan
				if k, ok := order[name]; ok {
					values[i] = r.values[k]
				}
			}
			dev.Learn(r.at, values)
			return nil
		})
		if err != nil {
			return err
		}
		warmup = 0
	}
	f, err := os.Create(filepath.Join(o.Out, file.name+".csv"))
	if err != nil {
		return fmt.Errorf("write scores: %w", err)
	}
	w := bufio.NewWriterSize(f, 1<<16)
	defer func() {
		if cerr := errors.Join(w.Flush(), f.Close()); err == nil && cerr != nil {
			err = fmt.Errorf("write scores: %w", cerr)
		}
	}()
	if _, err := w.WriteString("time,score,top\n"); err != nil {
		return fmt.Errorf("write scores: %w", err)
	}
	row := 0 // how many were learnt from
	begin := func(names []string) error {
		metrics = slices.Clone(names)
		if dev == nil {
			dev = anomaly.NewDevice(len(metrics))
		}
		return nil
	}
	var buf []byte
	return readWide(ctx, file.path, begin, bad, func(r *wideRow) error {
		buf = append(buf[:0], r.text...)
		buf = append(buf, ',')
		score := 0.0
		var top []int
		if row < warmup {
			dev.Learn(r.at, r.values)
			row++
		} else {
			score, top = dev.Score(r.at, r.values)
		}
		buf = strconv.AppendFloat(buf, score, 'f', 6, 64)
		buf = append(buf, ',')
		for i, k := range top {
			if i > 0 {
				buf = append(buf, ';')
			}
			buf = append(buf, metrics[k]...)
		}
		buf = append(buf, '\n')
		if _, err := w.Write(buf); err != nil {
			return fmt.Errorf("write scores: %w", err)
		}
		return nil
	})
}

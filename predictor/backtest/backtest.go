// Package backtest holds the predictor against recorded metrics: forecasts of
// crossings, how often what was forecast came, and anomaly scores.
package backtest

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
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

	"auspex/internal/textfile"
	"auspex/internal/usage"
	"auspex/predictor/anomaly"
	"auspex/predictor/trend"
)

// ForecastOptions says what Forecast reads and writes.
type ForecastOptions struct {
	Data, Limits, Out string // a folder of wide CSV files; limits.json; predictions.jsonl, "-" is standard output
	Horizon           time.Duration
	Reliability       string // a CSV file that says how often what was forecast came; empty: none
	Strict            bool   // a bad line stops the command
	MaxSize           int64  // bytes that a file may hold, unpacked; 0 is textfile.MaxUnpacked for packed ones
}

// AnomalyOptions says what Anomaly reads and writes.
type AnomalyOptions struct {
	Data, Out string // folders
	Warmup    int    // rows learnt from and not tested; negative is 15 %, at most 750
	Strict    bool   // a bad line stops the command
	MaxSize   int64  // bytes that a file may hold, unpacked; 0 is textfile.MaxUnpacked for packed ones
}

var (
	nan     = math.NaN()
	errStop = errors.New("enough read")
)

// wideFile is a file of one device: NAME.csv, NAME.csv.gz or NAME.csv.zst.
type wideFile struct{ name, path string }

// wideFiles lists the files of a folder by name; train holds those learnt from.
func wideFiles(dir string) (files []wideFile, train map[string]string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("read data: %w", err)
	}
	train = map[string]string{}
	seen := map[string]string{}
	for _, e := range entries {
		base := strings.TrimSuffix(strings.TrimSuffix(e.Name(), ".gz"), ".zst")
		base, ok := strings.CutSuffix(base, ".csv")
		if !ok || base == "" || e.IsDir() {
			continue
		}
		path := filepath.Join(dir, e.Name())
		if seen[base] != "" {
			return nil, nil, fmt.Errorf("read data: %s and %s are the same device", seen[base], path)
		}
		seen[base] = path
		if name, ok := strings.CutSuffix(base, ".train"); ok {
			train[name] = path
			continue
		}
		files = append(files, wideFile{base, path})
	}
	if len(files) == 0 {
		return nil, nil, fmt.Errorf("read data: no CSV file in %s", dir)
	}
	slices.SortFunc(files, func(a, b wideFile) int { return cmp.Compare(a.name, b.name) })
	return files, train, nil
}

// wideReader reads the files of a folder. It tells of bad rows, counts them, and
// leaves files that cannot be read behind; with strict each is the error.
type wideReader struct {
	strict    bool
	most      int64 // bytes of a file
	dated     bool  // times have to be dates
	stderr    io.Writer
	progress  *textfile.Progress
	rows, bad int
	files     int
	failed    []string
}

func newWideReader(strict bool, most int64, stderr, stdout io.Writer) *wideReader {
	p := textfile.NewProgress(stderr, stdout)
	return &wideReader{strict: strict, most: most, stderr: p.Words(stderr), progress: p}
}

// badRow tells of a row; its error ends the command.
func (w *wideReader) badRow(err error) error {
	if w.strict {
		return err
	}
	w.bad++
	fmt.Fprintln(w.stderr, err)
	return nil
}

// quiet takes no notice of a row, in a pass before the one that counts.
func (w *wideReader) quiet(error) error { return nil }

// file takes what became of a file: one that cannot be read harms only itself.
func (w *wideReader) file(path string, err error) error {
	w.files++
	var unreadable *unreadableError
	if w.strict || !errors.As(err, &unreadable) {
		return err
	}
	fmt.Fprintln(w.stderr, err)
	w.failed = append(w.failed, path)
	return nil
}

// sum ends the command: it says how many rows were skipped, and fails when a file
// could not be read.
func (w *wideReader) sum() error {
	w.progress.Clear()
	if w.bad > 0 {
		fmt.Fprintf(w.stderr, "%d of %d rows could not be read\n", w.bad, w.rows+w.bad)
	}
	if len(w.failed) > 0 {
		return fmt.Errorf("read data: %d of %d files could not be read: %s", len(w.failed), w.files, strings.Join(w.failed, ", "))
	}
	return nil
}

// unreadableError is of a file as a whole.
type unreadableError struct{ error }

// Unwrap returns the reason.
func (e *unreadableError) Unwrap() error { return e.error }

// wideRow is a row of a wide file; an empty cell is NaN. It is used again.
type wideRow struct {
	dated  bool   // the time has to be a date
	text   string // the time as it stands in the file
	at     time.Time
	values []float64
}

// read hands each row of a file on. A bad row is told to bad; its error ends the
// reading.
func (w *wideReader) read(
	ctx context.Context, path string, header func(metrics []string) error, bad func(error) error, row func(*wideRow) error,
) error {
	in, err := textfile.Open(path, nil, w.most)
	if err != nil {
		return &unreadableError{fmt.Errorf("read data: %w", err)}
	}
	defer func() { _ = in.Close() }()
	lines := textfile.NewLines(w.progress.Reading(path, in))
	line, _, err := lines.Next()
	if err != nil && !errors.Is(err, io.EOF) {
		return &unreadableError{fmt.Errorf("%s:1: %w", path, err)}
	}
	names, err := textfile.Cells(string(line))
	switch {
	case err != nil:
		return &unreadableError{fmt.Errorf("%s:1: %w", path, err)}
	case len(line) == 0:
		return &unreadableError{fmt.Errorf("%s:1: no header", path)}
	case strings.TrimSpace(names[0]) != "time":
		return &unreadableError{fmt.Errorf("%s:1: the first column is %q, not time", path, names[0])}
	}
	names = names[1:]
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
	}
	if err := header(names); err != nil {
		return err
	}
	r := wideRow{dated: w.dated, values: make([]float64, len(names))}
	for {
		line, n, rerr := lines.Next()
		if rerr != nil && !errors.Is(rerr, io.EOF) && !errors.Is(rerr, textfile.ErrLongLine) {
			return &unreadableError{fmt.Errorf("%s:%d: %w", path, n, rerr)}
		}
		if len(line) > 0 || errors.Is(rerr, textfile.ErrLongLine) {
			perr := rerr
			if !errors.Is(rerr, textfile.ErrLongLine) {
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
	if strings.Contains(line, `"`) { // no cell needs quotes; some writers give them to all
		all, err := textfile.Cells(line)
		if err != nil {
			return err
		}
		line = strings.Join(all, ",")
	}
	var rest string
	var more bool
	r.text, rest, more = strings.Cut(line, ",")
	r.text = strings.TrimSpace(r.text)
	var err error
	if r.at, err = parseWideTime(r.text); err != nil && (r.dated || !errors.Is(err, errSample)) {
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
		if n < 0 || n > maxSample {
			return time.Time{}, errSample
		}
		return time.Unix(n*60, 0).UTC(), nil
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return t, fmt.Errorf("time %q is neither RFC 3339 nor an integer", s)
	}
	return t.UTC(), nil
}

// maxSample is the last sample that has a date: a minute each, up to the year 2198.
// Forecasts count nanoseconds in 64 bits, which end in 2262.
const maxSample = 120_000_000

var errSample = fmt.Errorf("time is not between 0 and %d, the largest sample number that has a date", maxSample)

// metricLimit is the limit of a metric in limits.json.
type metricLimit struct {
	Above *float64 `json:"above"`
	Below *float64 `json:"below"`
}

func readLimits(path string, stdin io.Reader) (map[string]metricLimit, error) {
	b, err := textfile.ReadFile(path, stdin)
	if err != nil {
		return nil, fmt.Errorf("read limits: %w", err)
	}
	path = textfile.Name(path)
	var out map[string]metricLimit
	if err := json.Unmarshal(b, &out); err != nil {
		line := 1
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			line += bytes.Count(b[:min(syntax.Offset, int64(len(b)))], []byte{'\n'})
		}
		return nil, fmt.Errorf("read limits: %s:%d: %s", path, line, textfile.Reason(err))
	}
	for _, name := range slices.Sorted(maps.Keys(out)) {
		if l := out[name]; (l.Above == nil) == (l.Below == nil) {
			return nil, fmt.Errorf("read limits: %s: metric %q needs either above or below", path, name)
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
	stand    stand
	watched  watched
}

// Forecast reads the files of a folder row by row and writes, for each
// metric with a limit, when it is expected to cross it, whenever that changes
// materially (formats, section 6).
func Forecast(ctx context.Context, o ForecastOptions, stdin io.Reader, stdout, stderr io.Writer) (err error) {
	if o.Horizon <= 0 {
		return fmt.Errorf("%w: --horizon is %s; it must be positive", usage.Err, o.Horizon)
	}
	limits, err := readLimits(o.Limits, stdin)
	if err != nil {
		return err
	}
	files, _, err := wideFiles(o.Data)
	if err != nil {
		return err
	}
	inputs := []string{o.Limits}
	for _, f := range files {
		inputs = append(inputs, f.path)
	}
	if err := textfile.NotAnInput(o.Out, inputs...); err != nil {
		return err
	}
	rel := newReliability(o.Horizon)
	if o.Reliability != "" {
		if err := textfile.NotAnInput(o.Reliability, inputs...); err != nil {
			return err
		}
		if o.Reliability == o.Out {
			return fmt.Errorf("%w: --out and --reliability are both %s", usage.Err, o.Out)
		}
		table, err := textfile.Create(o.Reliability, stdout)
		if err != nil {
			return fmt.Errorf("write reliability: %w", err)
		}
		defer func() {
			if werr := errors.Join(rel.write(table), table.Close()); err == nil && werr != nil {
				err = fmt.Errorf("write reliability: %w", werr)
			}
		}()
	}
	out, err := textfile.Create(o.Out, stdout)
	if err != nil {
		return fmt.Errorf("write predictions: %w", err)
	}
	defer func() {
		if cerr := out.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("write predictions: %w", cerr)
		}
	}()
	enc := json.NewEncoder(out)
	in := newWideReader(o.Strict, o.MaxSize, stderr, stdout)
	in.dated = true
	defer in.progress.Clear()
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
				t := &trend.Target{Horizon: o.Horizon, Below: l.Below != nil, Drivers: len(drivers)}
				if t.Below {
					t.Limit = *l.Below
				} else {
					t.Limit = *l.Above
				}
				m := &forecastMetric{column: i, name: name, limit: t.Limit, follower: trend.NewFollower(t), watched: watched{metric: name}}
				for _, o := range ms {
					o.follower.Beside(m.follower)
					m.follower.Beside(o.follower)
				}
				ms = append(ms, m)
			}
			return nil
		}
		var others [trend.MaxDrivers]float64
		var last time.Time
		late := 0
		row := func(r *wideRow) error {
			in.rows++
			if !last.IsZero() && !r.at.After(last) {
				late++
				if o.Strict {
					return fmt.Errorf("%s: time %s is not after that of the row before", file.path, r.text)
				}
				return nil
			}
			last = r.at
			for i, c := range drivers {
				others[i] = r.values[c]
			}
			for _, m := range ms {
				if m.stand.at = r.at; !m.follower.Crossed() {
					rel.observe(&m.watched, m.stand)
				}
				f, change := m.follower.Add(trend.Reading{At: r.at, V: r.values[m.column], Others: others[:len(drivers)]})
				if change < trend.Material {
					continue
				}
				if change == trend.CameTrue {
					rel.crossed(&m.watched, r.at)
				}
				m.stand.predicted, m.stand.probability, m.stand.alarm = true, f.Probability, m.follower.Alarmed()
				m.stand.p10, m.stand.p90 = f.At.Add(f.P10), f.At.Add(f.P90)
				p := prediction{
					File: filepath.Base(file.path), Time: r.at.Format(time.RFC3339Nano), Metric: m.name, Limit: m.limit,
					Probability: round4(f.Probability),
				}
				if f.Crossed || m.follower.Alarmed() {
					p.P10, p.P50, p.P90 = eta(f, f.P10), eta(f, f.P50), eta(f, f.P90)
				}
				if err := enc.Encode(&p); err != nil {
					return fmt.Errorf("write predictions: %w", err)
				}
			}
			return nil
		}
		if err := in.file(file.path, in.read(ctx, file.path, header, in.badRow, row)); err != nil {
			return err
		}
		if late > 0 {
			fmt.Fprintf(in.stderr, "%s: skipped %d rows that are not later than an earlier row\n", file.path, late)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		if !seen[name] {
			fmt.Fprintf(in.stderr, "%s: no file has the metric %q\n", textfile.Name(o.Limits), name)
		}
	}
	return in.sum()
}

func eta(f trend.Forecast, d time.Duration) *string {
	s := f.At.Add(d).Format(time.RFC3339)
	return &s
}

func round4(x float64) float64 { return float64(int64(x*1e4+0.5)) / 1e4 }

// Anomaly scores each row of each file of a folder from the rows up to
// it, and writes NAME.csv to the output folder (formats, section 6).
func Anomaly(ctx context.Context, o AnomalyOptions, stdout, stderr io.Writer) error {
	files, train, err := wideFiles(o.Data)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.Out, 0o750); err != nil {
		return fmt.Errorf("write scores: %w", err)
	}
	if textfile.SameFile(o.Data, o.Out) {
		return fmt.Errorf("%w: the scores would overwrite the data in %s", usage.Err, o.Out)
	}
	in := newWideReader(o.Strict, o.MaxSize, stderr, stdout)
	defer in.progress.Clear()
	for _, file := range files {
		if err := in.file(file.path, scoreFile(ctx, o, file, train[file.name], in)); err != nil {
			return err
		}
		delete(train, file.name)
	}
	for _, name := range slices.Sorted(maps.Keys(train)) {
		fmt.Fprintf(in.stderr, "%s: no %s.csv to score\n", train[name], name)
	}
	return in.sum()
}

// scoreFile learns from the training file where there is one, then from the rows
// of the warm-up, and scores the rest.
func scoreFile(ctx context.Context, o AnomalyOptions, file wideFile, train string, in *wideReader) (err error) {
	// The first pass counts the rows and reads the header, so that nothing is
	// written for a file that has none.
	warmup, rows := o.Warmup, 0
	var metrics []string
	header := func(names []string) error { metrics = slices.Clone(names); return nil }
	err = in.read(ctx, file.path, header, in.quiet, func(*wideRow) error {
		if rows++; warmup >= 0 || train != "" {
			return errStop
		}
		return nil
	})
	if err != nil && !errors.Is(err, errStop) {
		return err
	}
	dev := anomaly.NewDevice(len(metrics))
	switch {
	case train != "":
		warmup = 0
		order := map[string]int{}
		learn := func(names []string) error {
			for i, n := range names {
				order[n] = i
			}
			return nil
		}
		values := make([]float64, len(metrics))
		err := in.read(ctx, train, learn, in.badRow, func(r *wideRow) error {
			in.rows++
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
	case warmup < 0:
		warmup = min(rows*15/100, 750)
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
	learnt := 0
	var buf []byte
	var names []string
	return in.read(ctx, file.path, header, in.badRow, func(r *wideRow) error {
		in.rows++
		buf = append(buf[:0], r.text...)
		buf = append(buf, ',')
		score := 0.0
		names = names[:0]
		if learnt < warmup {
			dev.Learn(r.at, r.values)
			learnt++
		} else {
			var top []int
			score, top = dev.Score(r.at, r.values)
			for _, k := range top {
				if !slices.Contains(names, metrics[k]) { // a column may be there twice
					names = append(names, metrics[k])
				}
			}
		}
		buf = strconv.AppendFloat(buf, score, 'f', 6, 64)
		buf = append(buf, ',')
		buf = appendCell(buf, strings.Join(names, ";"))
		buf = append(buf, '\n')
		if _, err := w.Write(buf); err != nil {
			return fmt.Errorf("write scores: %w", err)
		}
		return nil
	})
}

// appendCell quotes a cell that needs it (RFC 4180).
func appendCell(b []byte, s string) []byte {
	if !strings.ContainsAny(s, "\",\r\n") {
		return append(b, s...)
	}
	b = append(b, '"')
	b = append(b, strings.ReplaceAll(s, `"`, `""`)...)
	return append(b, '"')
}

package backtest

import (
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"auspex/internal/usage"
)

func writeFile(t *testing.T, dir, name, text string) {
	t.Helper()
	b := []byte(text)
	if strings.HasSuffix(name, ".gz") {
		var buf bytes.Buffer
		z := gzip.NewWriter(&buf)
		if _, err := z.Write(b); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		b = buf.Bytes()
	}
	if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// rising is a file whose first metric rises by one a day and whose second stays.
func rising(days int) string {
	var b strings.Builder
	b.WriteString("time,a,b\n")
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range days * 96 {
		fmt.Fprintf(&b, "%s,%.2f,%d\n", at.Add(time.Duration(i)*15*time.Minute).Format(time.RFC3339), 50+float64(i)/96+float64(i%3)/10, 5+i%2)
	}
	return b.String()
}

func TestForecastOfARisingMetric(t *testing.T) {
	data := t.TempDir()
	writeFile(t, data, "node.csv.gz", rising(10))
	limits := filepath.Join(t.TempDir(), "limits.json")
	if err := os.WriteFile(limits, []byte(`{"a":{"above":65},"b":{"below":0},"c":{"above":1}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errw bytes.Buffer
	err := Forecast(t.Context(), ForecastOptions{Data: data, Limits: limits, Out: "-", Horizon: 168 * time.Hour}, nil, &out, &errw)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(errw.String(), `no file has the metric "c"`) {
		t.Errorf("told %q", errw.String())
	}
	last := map[string]map[string]any{}
	for line := range strings.SplitSeq(strings.TrimSpace(out.String()), "\n") {
		var p map[string]any
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		for _, k := range []string{"file", "time", "metric", "limit", "eta_p10", "eta_p50", "eta_p90", "probability"} {
			if _, ok := p[k]; !ok {
				t.Fatalf("%s: no %s", line, k)
			}
		}
		last[p["metric"].(string)] = p
	}
	a := last["a"]
	if p := a["probability"].(float64); p < 0.8 {
		t.Errorf("probability of a %.2f", p)
	}
	truth := time.Date(2026, 1, 15, 20, 0, 0, 0, time.UTC)
	p10, _ := time.Parse(time.RFC3339, a["eta_p10"].(string))
	p90, _ := time.Parse(time.RFC3339, a["eta_p90"].(string))
	if p10.After(truth) || p90.Before(truth) {
		t.Errorf("a crosses %s, said %s to %s", truth, p10, p90)
	}
	if b := last["b"]; b != nil && (b["probability"].(float64) > 0.1 || b["eta_p50"] != nil) {
		t.Errorf("b: %v", b)
	}
}

func TestBadRowsAreToldAndWithStrictEndTheCommand(t *testing.T) {
	data, limits := t.TempDir(), filepath.Join(t.TempDir(), "limits.json")
	writeFile(
		t, data, "node.csv",
		"time,a\n2026-01-01T00:00:00Z,1\nyesterday,2\n2026-01-01T00:01:00Z,x\n2026-01-01T00:02:00Z,1,2\n2026-01-01T00:03:00Z,\n",
	)
	if err := os.WriteFile(limits, []byte(`{"a":{"above":65}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errw bytes.Buffer
	o := ForecastOptions{Data: data, Limits: limits, Out: "-", Horizon: time.Hour}
	if err := Forecast(t.Context(), o, nil, &out, &errw); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"node.csv:3:", "node.csv:4:", "node.csv:5:"} {
		if !strings.Contains(errw.String(), want) {
			t.Errorf("nothing was told of %s: %s", want, errw.String())
		}
	}
	o.Strict = true
	if err := Forecast(t.Context(), o, nil, &out, &errw); err == nil || !strings.Contains(err.Error(), "node.csv:3:") {
		t.Errorf("with strict: %v", err)
	}
}

func TestBacktestNamesWhatItCannotUse(t *testing.T) {
	limits := func(text string) string {
		path := filepath.Join(t.TempDir(), "limits.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	empty, good := t.TempDir(), limits(`{"a":{"above":65}}`)
	for name, tc := range map[string]struct {
		o     ForecastOptions
		want  string
		usage bool
	}{
		"no limits": {ForecastOptions{Data: empty, Limits: filepath.Join(empty, "none"), Horizon: time.Hour}, "none", false},
		"both":      {ForecastOptions{Data: empty, Limits: limits(`{"a":{"above":65,"below":1}}`), Horizon: time.Hour}, `limits.json: metric "a" needs either above or below`, false},
		"no JSON":   {ForecastOptions{Data: empty, Limits: limits("{\n\"a\" 5}"), Horizon: time.Hour}, "limits.json:2: ", false},
		"no data":   {ForecastOptions{Data: empty, Limits: good, Horizon: time.Hour}, "no CSV file", false},
		"horizon":   {ForecastOptions{Data: empty, Limits: good}, "--horizon", true},
	} {
		err := Forecast(t.Context(), tc.o, nil, io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), tc.want) || errors.Is(err, usage.Err) != tc.usage {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFileThatCannotBeReadHarmsOnlyItself(t *testing.T) {
	data, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
	writeFile(t, data, "a.csv", "")
	writeFile(t, data, "b.csv", "when,x\n1,2\n")
	writeFile(t, data, "c.csv", "time,x\n1,2\n")
	var stderr bytes.Buffer
	o := AnomalyOptions{Data: data, Out: out, Warmup: -1}
	err := Anomaly(t.Context(), o, io.Discard, &stderr)
	if err == nil || !strings.Contains(err.Error(), "2 of 3 files") || !strings.Contains(stderr.String(), "a.csv:1: no header") ||
		!strings.Contains(stderr.String(), `b.csv:1: the first column is "when"`) {
		t.Errorf("%v; told %s", err, stderr.String())
	}
	if b, err := os.ReadFile(filepath.Join(out, "c.csv")); err != nil || string(b) != "time,score,top\n1,0.000000,\n" {
		t.Errorf("the good file: %q, %v", b, err)
	}
	o.Strict = true
	if err := Anomaly(t.Context(), o, io.Discard, &stderr); err == nil || !strings.Contains(err.Error(), "a.csv:1: no header") {
		t.Errorf("with strict: %v", err)
	}
}

func TestScoresNeverOverwriteTheData(t *testing.T) {
	data := t.TempDir()
	writeFile(t, data, "a.csv", "time,x\n1,2\n")
	if err := Anomaly(t.Context(), AnomalyOptions{Data: data, Out: data + "/."}, io.Discard, io.Discard); !errors.Is(err, usage.Err) {
		t.Errorf("got %v", err)
	}
	if b, err := os.ReadFile(filepath.Join(data, "a.csv")); err != nil || string(b) != "time,x\n1,2\n" {
		t.Errorf("the data: %q, %v", b, err)
	}
	writeFile(t, data, "a.csv.gz", "time,x\n1,2\n")
	if err := Anomaly(t.Context(), AnomalyOptions{Data: data, Out: t.TempDir()}, io.Discard, io.Discard); err == nil ||
		!strings.Contains(err.Error(), "same device") {
		t.Errorf("two files of one device: %v", err)
	}
}

func TestQuotedNamesStayOneCell(t *testing.T) {
	var b strings.Builder
	b.WriteString("time,\"temp{gpu=\"\"0\"\",bus=\"\"1\"\"}\",\"y\"\n")
	for i := range 300 {
		v := i * 7919 % 13
		if i == 250 {
			v = 900
		}
		fmt.Fprintf(&b, "\"%d\",\"%d\",%d\n", i, v, i%5)
	}
	data, out := t.TempDir(), t.TempDir()
	writeFile(t, data, "a.csv", b.String())
	if err := Anomaly(t.Context(), AnomalyOptions{Data: data, Out: out, Warmup: 100}, io.Discard, io.Discard); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(filepath.Join(out, "a.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil || len(rows) != 301 || rows[251][0] != "250" || rows[251][2] != `temp{gpu="0",bus="1"}` {
		t.Fatalf("%d rows, %v; at the spike %q", len(rows), err, rows[min(251, len(rows)-1)])
	}
}

// The same rows with other ways to write the time give the same predictions.
func TestPredictionsAreInUTC(t *testing.T) {
	limits := filepath.Join(t.TempDir(), "limits.json")
	if err := os.WriteFile(limits, []byte(`{"a":{"above":65}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	predict := func(text string) string {
		data := t.TempDir()
		writeFile(t, data, "node.csv", text)
		var out bytes.Buffer
		if err := Forecast(
			t.Context(), ForecastOptions{Data: data, Limits: limits, Out: "-", Horizon: 168 * time.Hour}, nil, &out, io.Discard,
		); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	utc := rising(10)
	east := regexp.MustCompile(`(?m)^([^,]*Z),`).ReplaceAllStringFunc(utc, func(s string) string {
		at, err := time.Parse(time.RFC3339, strings.TrimSuffix(s, ","))
		if err != nil {
			t.Fatal(err)
		}
		return at.In(time.FixedZone("", 8*3600)).Format(time.RFC3339) + ","
	})
	if a, b := predict(utc), predict(east); a != b || a == "" || strings.Contains(b, "+08:00") {
		t.Errorf("in UTC\n%.300s\nelsewhere\n%.300s", a, b)
	}
}

func TestScoresAreCausalAndFindASpike(t *testing.T) {
	series := func(spike int, until int) string {
		var b strings.Builder
		b.WriteString("time,a,b\n")
		for i := range until {
			a := float64(i * 7919 % 13)
			if spike >= 0 && i >= spike && i < spike+5 {
				a += 60
			}
			fmt.Fprintf(&b, "%d,%g,%d\n", i, a, i*31%11)
		}
		return b.String()
	}
	data, dir := t.TempDir(), filepath.Join(t.TempDir(), "out")
	writeFile(t, data, "x.csv", series(800, 1000))
	writeFile(t, data, "y.csv", series(-1, 1000))
	writeFile(t, data, "z.csv", series(100, 300))
	writeFile(t, data, "z.train.csv", series(-1, 600))
	if err := Anomaly(t.Context(), AnomalyOptions{Data: data, Out: dir, Warmup: 150}, io.Discard, &bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}
	read := func(name string) []string {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(strings.TrimSpace(string(b)), "\n")
	}
	x, y, z := read("x.csv"), read("y.csv"), read("z.csv")
	if len(x) != 1001 || x[0] != "time,score,top" || len(z) != 301 {
		t.Fatalf("%d and %d lines, head %q", len(x), len(z), x[0])
	}
	for i := 1; i <= 800; i++ {
		if x[i] != y[i] {
			t.Fatalf("row %d depends on later rows: %q, %q", i, x[i], y[i])
		}
	}
	for _, line := range []string{x[802], z[102]} {
		f := strings.Split(line, ",")
		var score float64
		if _, err := fmt.Sscan(f[1], &score); err != nil || score < 0.3 || score > 1 {
			t.Errorf("at the spike: %q", line)
		}
		if !strings.HasPrefix(f[2], "a") {
			t.Errorf("at the spike %q speaks first", f[2])
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "z.train.csv")); !errors.Is(err, os.ErrNotExist) {
		t.Error("the training file was scored")
	}
}

func FuzzWideRow(f *testing.F) {
	f.Add("2026-01-01T00:00:00Z,1,,3")
	f.Add("5,1e9,nan,inf")
	f.Fuzz(func(t *testing.T, line string) {
		r := wideRow{values: make([]float64, 3)}
		if err := r.parse(line); err == nil && strings.Count(line, ",") != 3 {
			t.Errorf("%q was taken as three cells", line)
		}
	})
}

package hot_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"go.uber.org/goleak"

	"auspex/internal/cmdb"
	"auspex/internal/store/hot"
	"auspex/schemas/auspexv1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type placer struct {
	generation uint64
	rack       string
	calls      int
}

func (p *placer) Generation() uint64 { return p.generation }

func (p *placer) Part(device, _, name string) cmdb.Placement {
	p.calls++
	r := device
	if name != "" {
		r += "/" + name
	}
	return cmdb.Placement{Resource: r, Server: device, Rack: p.rack}
}

func (p *placer) GPU(device string, index uint32, _, _ string) cmdb.Placement {
	p.calls++
	return cmdb.Placement{Resource: fmt.Sprintf("%s/gpu%d", device, index), Server: device, Rack: p.rack, Model: "H100"}
}

func open(t testing.TB, dir string, cfg hot.Config, p hot.Placer, reg prometheus.Registerer) *hot.Window {
	t.Helper()
	w, err := hot.Open(dir, cfg, p, nil, reg)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func read(t testing.TB, w *hot.Window) map[string][]float64 {
	t.Helper()
	q, err := w.Querier(0, math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	got := map[string][]float64{}
	set := q.Select(context.Background(), true, nil, labels.MustNewMatcher(labels.MatchRegexp, "__name__", ".+"))
	for set.Next() {
		s := set.At()
		for it := s.Iterator(nil); it.Next() != chunkenc.ValNone; {
			ts, v := it.At()
			got[s.Labels().String()] = append(got[s.Labels().String()], float64(ts%1e6), v)
		}
	}
	if err := set.Err(); err != nil {
		t.Fatal(err)
	}
	return got
}

// fan returns a batch with one reading of one fan.
func fan(observed, at time.Time, v float64) *auspexv1.Batch {
	return &auspexv1.Batch{Device: "s1", Collector: "redfish", Observed: observed.UnixNano(), Samples: &auspexv1.SampleColumns{
		Symbols: []string{"", "auspex_fan_speed_rpm", "fan", "fan1", "zone", "front"},
		Series:  []*auspexv1.Series{{Metric: 1, PartKind: 2, Part: 3, Labels: []uint32{4, 5}}},
		Ref:     []uint32{0}, BaseTime: at.UnixNano(), Delta: []int64{0}, Value: []float64{v},
	}}
}

func gpus(observed time.Time, temp ...float64) *auspexv1.Batch {
	b := &auspexv1.Batch{
		Device: "s1", Collector: "dcgmexporter", Observed: observed.UnixNano(),
		Gpus: &auspexv1.GpuColumns{BaseTime: observed.UnixNano(), GpuTempCelsius: temp},
	}
	for i := range temp {
		b.Gpus.Gpu = append(b.Gpus.Gpu, uint32(i))
		b.Gpus.Delta = append(b.Gpus.Delta, 0)
	}
	return b
}

var t0 = time.UnixMilli(time.Now().UnixMilli() / 1e6 * 1e6).Add(-2 * time.Minute)

// Whatever a device's clock says, no value of a series takes the place of another of the
// same batch: a history that comes at once stays one.
func TestNoValueOfABatchTakesThePlaceOfAnother(t *testing.T) {
	for name, tc := range map[string]struct {
		off  time.Duration // of the device's clock
		ages []time.Duration
		want []float64 // seconds before the batch was observed, of what is stored
		old  float64   // dropped, and counted, as too old
	}{
		"a clock that is right":              {0, []time.Duration{30, 20, 10, 0}, []float64{30, 20, 10, 0}, 0},
		"a clock in 1970":                    {-50 * 365 * 24 * time.Hour, []time.Duration{30, 20, 10, 0}, []float64{30, 20, 10, 0}, 0},
		"a clock in the next hour":           {time.Hour, []time.Duration{30, 20, 10, 0}, []float64{30, 20, 10, 0}, 0},
		"a history by a clock that is right": {0, []time.Duration{400, 300, 200, 0}, []float64{400, 300, 200, 0}, 0},
		"values older than the window takes": {0, []time.Duration{4000, 300, 0}, []float64{300, 0}, 1},
		"a history alone, minutes old":       {-300 * time.Second, []time.Duration{200, 100, 0}, []float64{200, 100, 0}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			reg := prometheus.NewRegistry()
			w := open(t, t.TempDir(), hot.DefaultConfig(), &placer{rack: "r1"}, reg)
			defer w.Close()
			b := fan(t0, t0.Add(tc.off), 0)
			b.Samples.Ref, b.Samples.Delta, b.Samples.Value = nil, nil, nil
			g := gpus(t0, 0)
			g.Gpus = &auspexv1.GpuColumns{BaseTime: b.Samples.BaseTime}
			for k, age := range tc.ages {
				b.Samples.Ref = append(b.Samples.Ref, 0)
				b.Samples.Delta = append(b.Samples.Delta, -int64(age*time.Second))
				b.Samples.Value = append(b.Samples.Value, float64(k))
				g.Gpus.Gpu, g.Gpus.GpuTempCelsius = append(g.Gpus.Gpu, 0), append(g.Gpus.GpuTempCelsius, float64(k))
				g.Gpus.Delta = append(g.Gpus.Delta, -int64(age*time.Second))
			}
			if tc.old > 0 { // the head must have begun for anything to be too old
				if err := w.Append(t.Context(), fan(t0, t0, -1), gpus(t0, -1)); err != nil {
					t.Fatal(err)
				}
				b.Observed, b.Samples.BaseTime = t0.Add(time.Second).UnixNano(), t0.Add(time.Second).UnixNano()
				g.Observed, g.Gpus.BaseTime = b.Observed, b.Samples.BaseTime
			}
			if err := w.Append(t.Context(), b, g); err != nil {
				t.Fatal(err)
			}
			observed := time.Unix(0, b.Observed).UnixMilli()
			for series, got := range read(t, w) {
				var ages []float64
				for k := 0; k < len(got); k += 2 {
					if got[k+1] >= 0 { // read gives times modulo 1e6 ms
						ages = append(ages, math.Mod(float64(observed)-got[k]+1e9, 1e6)/1000)
					}
				}
				if d := cmp.Diff(tc.want, ages); d != "" {
					t.Errorf("%s (-want +got):\n%s", series, d)
				}
			}
			n, err := testutil.GatherAndCount(reg, "auspex_store_hot_samples_dropped_total")
			if err != nil || n == 0 {
				t.Fatal(n, err)
			}
			if got := dropped(t, reg, "too_old") + dropped(t, reg, "out_of_order"); got != 2*tc.old || dropped(t, reg, "duplicate") != 0 {
				t.Errorf("%v too old, %v duplicates; want %v and none", got, dropped(t, reg, "duplicate"), 2*tc.old)
			}
		})
	}
}

// dropped reads one counter.
func dropped(t *testing.T, reg *prometheus.Registry, reason string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "auspex_store_hot_samples_dropped_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetLabel()[0].GetValue() == reason {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

func TestSamplesGetTheLabelsOfTheInventory(t *testing.T) {
	p := &placer{rack: "r1"}
	w := open(t, t.TempDir(), hot.DefaultConfig(), p, nil)
	defer w.Close()
	for i := range 3 {
		at := t0.Add(time.Duration(i) * time.Second)
		if err := w.Append(t.Context(), fan(at, at, float64(i)), gpus(at, 40, math.NaN())); err != nil {
			t.Fatal(err)
		}
	}
	if p.calls > 3 {
		t.Errorf("resolved %d times for 2 series and 2 GPUs", p.calls)
	}
	p.rack, p.generation = "r2", 1
	at := t0.Add(3 * time.Second)
	if err := w.Append(t.Context(), fan(at, at, 3)); err != nil {
		t.Fatal(err)
	}
	want := map[string][]float64{
		`{__name__="auspex_fan_speed_rpm", collector="redfish", rack="r1", resource="s1/fan1", sensor="fan1", server="s1", zone="front"}`: {0, 0, 1000, 1, 2000, 2},
		`{__name__="auspex_fan_speed_rpm", collector="redfish", rack="r2", resource="s1/fan1", sensor="fan1", server="s1", zone="front"}`: {3000, 3},
		`{__name__="DCGM_FI_DEV_GPU_TEMP", collector="dcgmexporter", gpu="0", model="H100", rack="r1", resource="s1/gpu0", server="s1"}`:  {0, 40, 1000, 40, 2000, 40},
	}
	for k, v := range want {
		for i := 0; i < len(v); i += 2 {
			v[i] = math.Mod(v[i]+float64(t0.UnixMilli()%1e6), 1e6)
		}
		want[k] = v
	}
	if diff := cmp.Diff(want, read(t, w)); diff != "" {
		t.Error(diff)
	}
}

// The label gpu joins what is read of one GPU, from whom and how ever: it is the number, as
// exporters write it.
func TestOneGPUHasOneSpelling(t *testing.T) {
	for part, want := range map[string]string{"gpu3": "3", "3": "3", "gpu03": "3", "GPU_SXM_4": "GPU_SXM_4", "gpu": "gpu"} {
		w := open(t, t.TempDir(), hot.DefaultConfig(), &placer{}, nil)
		defer w.Close()
		rows := gpus(t0, 40)
		rows.Gpus.Gpu[0] = 3
		if err := w.Append(t.Context(), rows, &auspexv1.Batch{
			Device: "s1", Collector: "agent", Observed: t0.UnixNano(), Samples: &auspexv1.SampleColumns{
				Symbols: []string{"", "auspex_gpu_nvlink_up", "gpu", part, "link", "7"},
				Series:  []*auspexv1.Series{{Metric: 1, PartKind: 2, Part: 3, Labels: []uint32{4, 5}}},
				Ref:     []uint32{0}, BaseTime: t0.UnixNano(), Delta: []int64{0}, Value: []float64{1},
			},
		}); err != nil {
			t.Fatal(err)
		}
		var got []string
		for name := range read(t, w) {
			got = append(got, name)
		}
		slices.Sort(got)
		if diff := cmp.Diff([]string{
			`{__name__="DCGM_FI_DEV_GPU_TEMP", collector="dcgmexporter", gpu="3", model="H100", resource="s1/gpu3", server="s1"}`,
			`{__name__="auspex_gpu_nvlink_up", collector="agent", gpu="` + want + `", link="7", resource="s1/` + part + `", server="s1"}`,
		}, got); diff != "" {
			t.Errorf("%s: %s", part, diff)
		}
	}
	w := open(t, t.TempDir(), hot.DefaultConfig(), &resolver{}, nil) // the inventory knows which GPU a controller means
	defer w.Close()
	b := fan(t0, t0, 1)
	b.Samples.Symbols[2], b.Samples.Symbols[3] = "gpu", "GPU_SXM_4"
	if err := w.Append(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	for name := range read(t, w) {
		if !strings.Contains(name, `gpu="3"`) {
			t.Error(name)
		}
	}
}

// resolver knows one part alone.
type resolver struct{ placer }

func (*resolver) Part(device, _, _ string) cmdb.Placement {
	return cmdb.Placement{Resource: device + "/gpu3", Server: device}
}

// A part may have several sensors for one metric: the cores of a processor, the
// modules of a board that has one each. None overwrites another.
func TestSensorsOfOnePartAreSeriesOfTheirOwn(t *testing.T) {
	w := open(t, t.TempDir(), hot.DefaultConfig(), &placer{}, nil)
	defer w.Close()
	for i := range 3 {
		at := t0.Add(time.Duration(i) * time.Second)
		if err := w.Append(t.Context(), &auspexv1.Batch{
			Device: "s1", Collector: "redfish", Observed: at.UnixNano(), Samples: &auspexv1.SampleColumns{
				Symbols: []string{"", "auspex_cpu_temperature_celsius", "cpu", "cpu0", "sensor", "Module 0 CPU 0 Temp", "Module 1 CPU 0 Temp"},
				Series: []*auspexv1.Series{
					{Metric: 1, PartKind: 2, Part: 3, Labels: []uint32{4, 5}}, {Metric: 1, PartKind: 2, Part: 3, Labels: []uint32{4, 6}},
				},
				Ref: []uint32{0, 1}, BaseTime: at.UnixNano(), Delta: []int64{0, 0}, Value: []float64{40, 70},
			},
		}); err != nil {
			t.Fatal(err)
		}
	}
	got := read(t, w)
	if len(got) != 2 {
		t.Fatalf("%d series, want 2: %v", len(got), got)
	}
	for name, v := range got {
		if len(v) != 6 || v[1] != v[3] || v[3] != v[5] {
			t.Errorf("%s: %v", name, v)
		}
	}
}

func TestWhatTheWindowRefusesIsCounted(t *testing.T) {
	now := time.Now()
	broken := fan(now, now, 1)
	broken.Samples.Ref = []uint32{9}
	short := fan(now, now, 1)
	short.Samples.Value = nil
	symbol := fan(now, now, 1)
	symbol.Samples.Series[0].Part = 77
	for _, tc := range []struct {
		name    string
		batches []*auspexv1.Batch
		reason  string
		taken   float64
	}{
		{"late, within the window", []*auspexv1.Batch{fan(now, now, 1), fan(now.Add(-time.Minute), now.Add(-time.Minute), 2)}, "", 2},
		{"too late", []*auspexv1.Batch{fan(now, now, 1), fan(now.Add(-time.Hour), now.Add(-time.Hour), 2)}, "too_old", 1},
		{"two values at one time", []*auspexv1.Batch{fan(now, now, 1), fan(now, now, 2)}, "duplicate", 1},
		{"read twice", []*auspexv1.Batch{fan(now, now, 1), fan(now, now, 1)}, "", 2},
		{"a collector in the future", []*auspexv1.Batch{fan(now.Add(time.Hour), now, 1)}, "future", 0},
		{"a device in 1970", []*auspexv1.Batch{fan(now, time.Unix(60, 0), 1)}, "", 1},
		{"a series that is not there", []*auspexv1.Batch{broken}, "malformed", 0},
		{"columns of different length", []*auspexv1.Batch{short}, "malformed", 0},
		{"a symbol that is not there", []*auspexv1.Batch{symbol}, "malformed", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			reg := prometheus.NewRegistry()
			w := open(t, t.TempDir(), hot.DefaultConfig(), &placer{}, reg)
			defer w.Close()
			for _, b := range tc.batches {
				if err := w.Append(t.Context(), b); err != nil {
					t.Fatal(err)
				}
			}
			got := map[string]float64{}
			fams, _ := reg.Gather()
			for _, f := range fams {
				for _, m := range f.Metric {
					switch f.GetName() {
					case "auspex_store_hot_samples_total":
						got["taken"] = m.GetCounter().GetValue()
					case "auspex_store_hot_samples_dropped_total":
						if m.GetCounter().GetValue() > 0 {
							got[m.Label[0].GetValue()] = m.GetCounter().GetValue()
						}
					}
				}
			}
			want := map[string]float64{"taken": tc.taken}
			if tc.reason != "" {
				want[tc.reason] = 1
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTheSeriesLimitHoldsForNewSeriesOnly(t *testing.T) {
	cfg := hot.DefaultConfig()
	cfg.MaxSeries = 1
	reg := prometheus.NewRegistry()
	w := open(t, t.TempDir(), cfg, &placer{}, reg)
	defer w.Close()
	for i := range 2 {
		at := t0.Add(time.Duration(i) * time.Second)
		if err := w.Append(t.Context(), gpus(at, 40, 41)); err != nil {
			t.Fatal(err)
		}
	}
	if w.Series() != 1 {
		t.Errorf("%d series", w.Series())
	}
	if n, err := testutil.GatherAndCount(reg, "auspex_store_hot_series"); n != 1 || err != nil {
		t.Error(n, err)
	}
}

func TestTheWindowSurvivesARestart(t *testing.T) {
	dir := t.TempDir()
	reg := prometheus.NewRegistry()
	w := open(t, dir, hot.DefaultConfig(), &placer{}, reg)
	if err := w.Append(t.Context(), fan(t0, t0, 5)); err != nil {
		t.Fatal(err)
	}
	before := read(t, w)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	w = open(t, dir, hot.DefaultConfig(), &placer{}, reg)
	defer w.Close()
	if diff := cmp.Diff(before, read(t, w)); diff != "" || len(before) != 1 {
		t.Error(diff)
	}
}

func BenchmarkAppendGPUs(b *testing.B) {
	w := open(b, b.TempDir(), hot.DefaultConfig(), &placer{}, nil)
	defer w.Close()
	at := t0.Add(-time.Hour)
	b.ReportAllocs()
	for b.Loop() {
		at = at.Add(time.Millisecond)
		if err := w.Append(b.Context(), gpus(at, 40, 41, 42, 43, 44, 45, 46, 47)); err != nil {
			b.Fatal(err)
		}
	}
}

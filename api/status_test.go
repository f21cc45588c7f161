package api_test

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"

	"auspex/api"
	"auspex/api/access"
	"auspex/api/apigen"
	promapi "auspex/api/prometheus"
	"auspex/internal/store/hot"
	"auspex/schemas"
)

// measured is a hot window that a test fills.
type measured struct {
	t   *testing.T
	win *hot.Window
}

// measures gives a world a hot window of its own.
func measures(t *testing.T) (*measured, option) {
	t.Helper()
	cfg := hot.DefaultConfig()
	cfg.OutOfOrder = cfg.Retention
	win, err := hot.Open(t.TempDir(), cfg, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = win.Close() })
	h, err := promapi.New(win, promapi.DefaultConfig(), slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return &measured{t, win}, func(_ *api.Config, d *api.Deps) {
		d.Querier = api.NewQuerier(h, "/prometheus")
		d.Viewed = map[string]http.Handler{"/prometheus/": h}
	}
}

func (m *measured) add(at time.Time, metric string, v float64, pairs ...string) {
	m.t.Helper()
	app := m.win.Appender(context.Background())
	if _, err := app.Append(0, labels.FromStrings(append([]string{"__name__", metric}, pairs...)...), at.UnixMilli(), v); err != nil {
		m.t.Fatal(err)
	}
	if err := app.Commit(); err != nil {
		m.t.Fatal(err)
	}
}

func (m *measured) of(at time.Time, resource, collector, metric string, v float64) {
	m.t.Helper()
	server, _, _ := strings.Cut(resource, "/")
	m.add(at, metric, v, "resource", resource, "server", server, "collector", collector)
}

func (m *measured) up(at time.Time, server, collector string, v float64) {
	m.t.Helper()
	m.add(at, "up", v, "instance", server, "job", collector)
}

// A status says what is read now, of one collector where it can, and null where nobody does.
func TestStatusOfAGPUHonoursTheAgeOfReadings(t *testing.T) {
	m, with := measures(t)
	w := start(t, true, with)
	now := time.Now()
	const gpu = "gpu-r02-03/gpu1"
	m.of(now.Add(-20*time.Second), gpu, "agent", "DCGM_FI_DEV_GPU_TEMP", 61)
	m.of(now.Add(-30*time.Second), gpu, "dcgmexporter", "DCGM_FI_DEV_GPU_TEMP", 60)
	m.of(now.Add(-30*time.Second), gpu, "dcgmexporter", "DCGM_FI_DEV_GPU_UTIL", 97)
	m.of(now.Add(-30*time.Second), gpu, "dcgmexporter", "DCGM_FI_PROF_DRAM_ACTIVE", 0.25)
	m.of(now.Add(-30*time.Second), gpu, "dcgmexporter", "DCGM_FI_DEV_FB_USED", 1024)
	m.of(now.Add(-30*time.Second), gpu, "dcgmexporter", "DCGM_FI_DEV_FB_FREE", 3072)
	m.of(now.Add(-6*time.Minute), gpu, "dcgmexporter", "DCGM_FI_DEV_POWER_USAGE", 500) // too old
	m.of(now.Add(-20*time.Second), gpu, "agent", "auspex_gpu_processes", 2)
	m.of(now.Add(-10*time.Second), gpu, "redfish", "auspex_gpu_memory_temperature_celsius", 70) // of one that has stopped
	m.of(now.Add(-10*time.Second), "gpu-r02-03/gpu2", "dcgmexporter", "DCGM_FI_DEV_GPU_TEMP", 10)
	m.up(now.Add(-15*time.Second), "gpu-r02-03", "dcgmexporter", 1)
	m.up(now.Add(-15*time.Second), "gpu-r02-03", "redfish", 0)
	get := func() apigen.GPUStatus {
		return answered[apigen.GPUStatus](t, w.send(t, http.MethodGet, "api/v1/gpus/"+url.PathEscape(gpu)+"/status", access.RoleViewer, nil), http.StatusOK)
	}
	got := get()
	if got.Timestamp == nil || now.Sub(*got.Timestamp).Round(time.Second) != 20*time.Second {
		t.Errorf("newest %v", got.Timestamp)
	}
	f := func(v float64) *float64 { return &v }
	two, from := 2, "dcgmexporter"
	want := apigen.GPUStatus{
		ID: got.ID, Name: gpu, Server: "gpu-r02-03", State: "ok", Utilization: apigen.GPUUtilization{Gpu: f(97), MemoryBandwidth: f(25)},
		Temperature: f(60), Memory: apigen.GPUMemory{Used: f(1 << 30), Free: f(3 << 30), Total: f(4 << 30)}, Processes: &two, Collector: &from,
		Timestamp: got.Timestamp,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	// One that has stopped gives the word to the next.
	m.up(now, "gpu-r02-03", "dcgmexporter", 0)
	m.up(now, "gpu-r02-03", "agent", 1)
	if got := get(); *got.Temperature != 61 || got.Utilization.Gpu != nil || *got.Collector != "agent" {
		t.Errorf("%+v", got)
	}
	for _, path := range []string{"gpu-r02-03", "none"} {
		if a := w.send(t, http.MethodGet, "api/v1/gpus/"+path+"/status", access.RoleViewer, nil); a.status != http.StatusNotFound {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}

func TestStatusOfAServer(t *testing.T) {
	m, with := measures(t)
	w := start(t, true, with)
	now := time.Now()
	const s = "gpu-r02-03"
	m.of(now.Add(-time.Second), s, "redfish", "auspex_server_power_on", 1)
	m.of(now.Add(-time.Second), s, "ipmi", "auspex_server_power_on", 0)
	m.of(now.Add(-time.Second), s, "redfish", "auspex_server_inlet_temperature_celsius", 24)
	m.of(now.Add(-time.Second), s+"/fan1", "redfish", "auspex_fan_speed_rpm", 9000)
	m.of(now.Add(-time.Second), s+"/fan1", "redfish", "auspex_fan_healthy", 0)
	m.of(now.Add(-time.Second), s+"/psu0", "redfish", "auspex_psu_input_power_watts", 1000)
	m.of(now.Add(-time.Second), s+"/psu1", "redfish", "auspex_psu_input_power_watts", 900)
	m.of(now.Add(-time.Second), s, "agent", "auspex_server_uptime_seconds", 3600)
	m.up(now.Add(-15*time.Second), s, "redfish", 1)
	m.up(now.Add(-15*time.Second), s, "ipmi", 1)
	m.up(now.Add(-15*time.Second), s, "agent", 1)
	get := func(w *world, name string) apigen.ServerStatus {
		return answered[apigen.ServerStatus](t, w.send(t, http.MethodGet, "api/v1/servers/"+name+"/status", access.RoleViewer, nil), http.StatusOK)
	}
	got := get(w, s)
	if *got.Power != "on" || got.Health != "ok" || *got.InletTemperature != 24 || *got.PowerDraw != 1900 || !*got.BmcReachable || !*got.AgentReachable ||
		now.Sub(*got.LastBoot).Round(time.Minute) != time.Hour || len(got.Telemetry) != 3 {
		t.Errorf("%+v", got)
	}
	if fan := got.Fans[0]; len(got.Fans) != 8 || fan.Name != "fan1" || *fan.Rpm != 9000 || *fan.Healthy || fan.Duty != nil || got.Fans[1].Rpm != nil {
		t.Errorf("%+v", got.Fans)
	}
	m.up(now, s, "redfish", 0)
	m.up(now, s, "ipmi", 0)
	if got := get(w, s); got.Power != nil || *got.BmcReachable || got.PowerDraw != nil || !*got.AgentReachable {
		t.Errorf("out of contact: %+v", got)
	}
	quiet := get(w, "gpu-r02-04")
	if quiet.Power != nil || quiet.BmcReachable != nil || quiet.AgentReachable != nil || quiet.Timestamp != nil || quiet.LastBoot != nil || len(quiet.Psus) != 6 {
		t.Errorf("of what nobody reads: %+v", quiet)
	}
	if a := w.send(t, http.MethodGet, "api/v1/servers/leaf-r02/status", access.RoleViewer, nil); a.status != http.StatusNotFound {
		t.Errorf("a switch: %d %s", a.status, a.body)
	}
	blind := start(t, true, func(_ *api.Config, d *api.Deps) { d.Querier = nil })
	if got := get(blind, s); got.Power != nil || got.Health != "ok" {
		t.Errorf("without a hot window: %+v", got)
	}
}

// history has readings of a function of time, of one collector.
type history struct {
	api.History
	t         *testing.T
	collector string
	asked     int
	until     time.Time
	value     func(time.Time) float64
	every     time.Duration
	fail      error
}

func (h *history) Readings(_ context.Context, _, metric string, counter bool, start time.Time, step time.Duration, n int) (map[string][]*float64, error) {
	h.asked++
	if metric != "DCGM_FI_DEV_GPU_TEMP" || h.fail != nil {
		return map[string][]*float64{}, h.fail
	}
	out := make([]*float64, n)
	for k := range out {
		end := start.Add(time.Duration(k) * step)
		out[k] = mean(h.value, end.Add(-step), end, h.every)
	}
	h.until = start.Add(time.Duration(n-1) * step)
	return map[string][]*float64{h.collector: out}, nil
}

// mean is that of the samples in (from, to], which are taken at multiples of every.
func mean(value func(time.Time) float64, from, to time.Time, every time.Duration) *float64 {
	sum, n := 0.0, 0
	for at := from.Truncate(every).Add(every); !at.After(to); at = at.Add(every) {
		sum += value(at)
		n++
	}
	if n == 0 {
		return nil
	}
	sum /= float64(n)
	return &sum
}

// TestReadingsHaveNoSeam holds each point of a range over history and hot window against what was measured: none
// is missing, and none is of half a step.
func TestReadingsHaveNoSeam(t *testing.T) {
	m, with := measures(t)
	const gpu, every = "gpu-r02-03/gpu1", 10 * time.Second
	value := func(at time.Time) float64 { return 50 + 10*math.Sin(float64(at.Unix())/900) }
	h := &history{t: t, collector: "dcgmexporter", value: value, every: every}
	w := start(t, true, with, func(_ *api.Config, d *api.Deps) { d.History = h })
	now := time.Now().Truncate(every)
	for at := now.Add(-95*time.Minute - 20*time.Second); !at.After(now); at = at.Add(every) {
		m.of(at, gpu, "dcgmexporter", "DCGM_FI_DEV_GPU_TEMP", value(at))
	}
	get := func(query string) apigen.GPUMetricColumns {
		t.Helper()
		return answered[apigen.GPUMetricColumns](
			t, w.send(t, http.MethodGet, "api/v1/gpus/"+url.PathEscape(gpu)+"/metrics?"+query, access.RoleViewer, nil), http.StatusOK,
		)
	}
	from := now.Add(-8 * time.Hour).UTC().Format(time.RFC3339)
	for _, step := range []string{"60", "90", "420"} {
		got := get("metrics=DCGM_FI_DEV_GPU_TEMP&from=" + from + "&to=" + now.UTC().Format(time.RFC3339) + "&step=" + step)
		c := got.Metrics[0]
		if !got.History || got.Thinned || c.Collector != "dcgmexporter" || c.Counter || c.Unit != "°C" || len(c.Values) != len(got.Times) {
			t.Fatalf("step %s: %+v", step, got)
		}
		for k, v := range c.Values {
			end := time.UnixMilli(int64(got.Times[k] * 1000))
			want := mean(value, end.Add(-time.Duration(got.StepSeconds)*time.Second), end, every)
			if v == nil || math.Abs(*v-*want) > 1e-9 {
				t.Errorf("step %s: at %s (%s ago): %v, want %v", step, end, now.Sub(end), v, *want)
			}
		}
		if first := now.Add(-95 * time.Minute); h.until.Before(first.Add(-time.Minute)) || h.until.After(first.Add(8*time.Minute)) {
			t.Errorf("the history was asked until %s", h.until)
		}
	}
	h.asked = 0
	if got := get("metrics=DCGM_FI_DEV_GPU_TEMP"); got.History || h.asked != 0 || slices.Contains(got.Metrics[0].Values, nil) {
		t.Errorf("within the hot window: asked %d, %+v", h.asked, got)
	}
	if got := get(""); len(got.Metrics) != 5 || got.Metrics[1].Collector != "" {
		t.Errorf("%+v", got.Metrics)
	}
	if got := get("step=10&from=" + from); !got.Thinned || len(got.Times) > 2000 {
		t.Errorf("%d points, step %v", len(got.Times), got.StepSeconds)
	}
	h.fail = errors.New("away")
	if got := get("metrics=DCGM_FI_DEV_GPU_TEMP&from=" + from); got.History || got.Metrics[0].Values[0] != nil || got.Metrics[0].Values[len(got.Times)-1] == nil {
		t.Errorf("without the history: %v", got.History)
	}
	for query, field := range map[string]string{
		"from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z": "from", "from=2020-01-01T00:00:00Z": "from", "step=1": "step", "metrics=a,a": "metrics",
		"metrics=a{}": "metrics", "from=yesterday": "from", "metrics=" + strings.TrimSuffix(strings.Repeat("a,", 33), ","): "metrics",
	} {
		a := w.send(t, http.MethodGet, "api/v1/gpus/"+url.PathEscape(gpu)+"/metrics?"+query, access.RoleViewer, nil)
		if a.status != http.StatusBadRequest || len(a.problem(t).Errors) != 1 || a.problem(t).Errors[0].Field != field {
			t.Errorf("%s: %d %s", query, a.status, a.body)
		}
	}
}

// A counter is told as it stood at the end of each step.
func TestReadingsOfACounter(t *testing.T) {
	m, with := measures(t)
	w := start(t, true, with)
	now := time.Now()
	for k := range 60 {
		at := now.Add(-time.Duration(60-k) * time.Minute / 2)
		m.of(at, "gpu-r02-03/gpu1", "agent", schemas.GPUEnergy, float64(1000*k))
	}
	got := answered[apigen.GPUMetricColumns](t, w.send(
		t, http.MethodGet, "api/v1/gpus/"+url.PathEscape("gpu-r02-03/gpu1")+"/metrics?step=60&metrics="+schemas.GPUEnergy, access.RoleViewer, nil,
	), http.StatusOK)
	last := -1.0
	for _, v := range got.Metrics[0].Values {
		if v != nil {
			if math.Mod(*v, 1000) != 0 || *v <= last {
				t.Errorf("%v after %v", *v, last)
			}
			last = *v
		}
	}
	if !got.Metrics[0].Counter || last < 57_000 {
		t.Errorf("the last is %v", last)
	}
}

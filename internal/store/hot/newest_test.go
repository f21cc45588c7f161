package hot_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"

	"auspex/internal/store/hot"
)

func TestWhenEachPartWasReadLast(t *testing.T) {
	w := open(t, t.TempDir(), hot.DefaultConfig(), &placer{rack: "r1"}, prometheus.NewRegistry())
	defer func() { _ = w.Close() }()
	if err := w.Append(t.Context(), gpus(t0, 50, 51), fan(t0, t0, 9000), gpus(t0.Add(10*time.Second), 52)); err != nil {
		t.Fatal(err)
	}
	app := w.Appender(t.Context()) // what a rule made of it is no reading
	for _, name := range []string{"ALERTS", "gpu:temp:max"} {
		if _, err := app.Append(0, labels.FromStrings("__name__", name, "server", "s1", "resource", "s1/gpu1", "collector", "dcgmexporter"),
			t0.Add(time.Minute).UnixMilli(), 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	got, err := w.Newest(t.Context(), "s1", t0.Add(-time.Second), nil)
	if err != nil {
		t.Fatal(err)
	}
	for part, at := range map[string]time.Time{"s1/gpu0": t0.Add(10 * time.Second), "s1/gpu1": t0, "s1/fan1": t0} {
		if !got[part].Equal(at) {
			t.Errorf("%s: %s, want %s", part, got[part], at)
		}
	}
	if got, err = w.Newest(t.Context(), "s1", t0.Add(5*time.Second), nil); err != nil || !slices.Equal(slices.Collect(maps.Keys(got)), []string{"s1/gpu0"}) {
		t.Errorf("%v %v", got, err)
	}
	if got, err = w.Newest(t.Context(), "s2", t0, nil); err != nil || len(got) != 0 {
		t.Errorf("%v %v", got, err)
	}
}

func TestWhatWasReadLastOfMetrics(t *testing.T) {
	w := open(t, t.TempDir(), hot.DefaultConfig(), &placer{rack: "r1"}, prometheus.NewRegistry())
	defer func() { _ = w.Close() }()
	app := w.Appender(t.Context())
	for k, s := range []struct {
		server, resource, metric, collector string
		v                                   float64
	}{
		{"s1", "s1/nic0", "up", "agent", 1},
		{"s1", "s1/nic0", "up", "agent", 0},
		{"s1", "s1/nic0", "speed", "agent", 4e11},
		{"s1", "s1/nic0", "speed", "other", 1e11},
		{"s1", "s1/nic0", "upper", "agent", 7},
		{"s2", "s2/nic0", "up", "agent", 1},
	} {
		names := labels.FromStrings("__name__", s.metric, "server", s.server, "resource", s.resource, "collector", s.collector)
		if _, err := app.Append(0, names, t0.Add(time.Duration(k)*time.Second).UnixMilli(), s.v); err != nil {
			t.Fatal(err)
		}
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	got, err := w.Values(t.Context(), "s1", t0, "up", "speed")
	if d := cmp.Diff(map[string]map[string]float64{"s1/nic0": {"up": 0, "speed": 1e11}}, got); d != "" || err != nil {
		t.Error(d, err)
	}
	if got, err = w.Values(t.Context(), "", t0, "up"); err != nil || len(got) != 2 {
		t.Errorf("%v %v", got, err)
	}
	if got, err = w.Values(t.Context(), "s1", t0.Add(time.Minute), "up"); err != nil || len(got) != 0 {
		t.Errorf("%v %v", got, err)
	}
}

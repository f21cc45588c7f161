package clickhouse_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/internal/store/clickhouse"
	"auspex/internal/store/embedded/embeddedtest"
	"auspex/internal/store/records"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// TestReadingsAreOfTheStepThatEnds holds points at both ends of steps, of the wide table and of the other.
func TestReadingsAreOfTheStepThatEnds(t *testing.T) {
	db := open(t, embeddedtest.Start(t))
	start := time.Now().Add(-time.Hour).Truncate(time.Minute)
	ms := func(seconds ...float64) (out []int64) {
		for _, s := range seconds {
			out = append(out, start.Add(time.Duration(s*float64(time.Second))).UnixMilli())
		}
		return out
	}
	same := func(n int, s string) (out []string) {
		for range n {
			out = append(out, s)
		}
		return out
	}
	insert := func(table string, columns ...clickhouse.Column) {
		t.Helper()
		if err := db.Insert(t.Context(), table, table, columns); err != nil {
			t.Fatal(err)
		}
	}
	at := ms(-60, -59.999, 0, 0.001, 60, 60.001, 180, 180.001, 30)
	insert(
		"gpu", clickhouse.Column{Name: "time", Values: at}, clickhouse.Column{Name: "observed", Values: at},
		clickhouse.Column{Name: "resource", Values: same(9, "s/gpu0")}, clickhouse.Column{Name: "collector", Values: append(same(8, "dcgmexporter"), "agent")},
		clickhouse.Column{Name: "gpu_temp_celsius", Values: []float32{1, 10, 20, 30, 50, float32(math.NaN()), 70, 99, 5}},
		clickhouse.Column{Name: "total_energy_millijoules", Values: []float64{1, 2, 3, 4, 5, 6, 7, 8, 9}},
	)
	at = ms(0, 10, 0, 10)
	insert(
		"samples", clickhouse.Column{Name: "metric", Values: same(4, "auspex_gpu_nvlink_crc_errors_total")}, clickhouse.Column{Name: "time", Values: at},
		clickhouse.Column{Name: "observed", Values: at}, clickhouse.Column{Name: "resource", Values: same(4, "s/gpu0")},
		clickhouse.Column{Name: "collector", Values: same(4, "agent")}, clickhouse.Column{Name: "labels", Values: []string{"a", "a", "b", "b"}},
		clickhouse.Column{Name: "value", Values: []float64{1, 2, 10, 20}},
	)
	f := func(v float64) *float64 { return &v }
	for _, c := range []struct {
		resource, metric string
		counter          bool
		want             map[string][]*float64
	}{
		{"s/gpu0", "DCGM_FI_DEV_GPU_TEMP", false, map[string][]*float64{"dcgmexporter": {f(15), f(40), nil, f(70)}, "agent": {nil, f(5), nil, nil}}},
		{"s/gpu0", schemas.GPUEnergy, true, map[string][]*float64{"dcgmexporter": {f(3), f(5), f(6), f(7)}, "agent": {nil, f(9), nil, nil}}},
		{"s/gpu0", "auspex_gpu_nvlink_crc_errors_total", true, map[string][]*float64{"agent": {f(11), f(22), nil, nil}}},
		{"s/gpu1", "DCGM_FI_DEV_GPU_TEMP", false, map[string][]*float64{}},
		{"s/gpu0", "x'; DROP TABLE gpu; --", false, map[string][]*float64{}},
	} {
		got, err := db.Readings(t.Context(), c.resource, c.metric, c.counter, start, time.Minute, 4)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s of %s: -want +got\n%s", c.metric, c.resource, d)
		}
	}
}

func TestAnEventIsFoundByItsID(t *testing.T) {
	db := open(t, embeddedtest.Start(t))
	at := time.Now().UTC().Truncate(time.Second)
	if err := db.Insert(t.Context(), "events", "x", []clickhouse.Column{
		{Name: "id", Values: []string{"a", "b"}},
		{Name: "time", Values: []time.Time{at, at}},
		{Name: "observed", Values: []time.Time{at, at}},
		{Name: "type", Values: []string{"gpu.xid", "fan.failure"}},
		{Name: "attrs", Values: []map[string]string{nil, {"part": "fan1"}}},
	}); err != nil {
		t.Fatal(err)
	}
	ev, found, err := db.Event(t.Context(), "b")
	if err != nil || !found || ev.Type != "fan.failure" || ev.Attr("part") != "fan1" {
		t.Errorf("%+v %v %v", ev, found, err)
	}
	if _, found, err := db.Event(t.Context(), "c"); found || err != nil {
		t.Error(found, err)
	}
	if all, _, err := db.Events(t.Context(), records.EventFilter{Since: at.Add(-time.Minute), Limit: 10}); err != nil || len(all) != 2 {
		t.Errorf("%+v %v", all, err)
	}
}

// Pages of events hold each of them once, also where many were observed at the same moment.
func TestEventsComeInPages(t *testing.T) {
	db := open(t, embeddedtest.Start(t))
	at := time.Now().UTC().Truncate(time.Second)
	var ids, types []string
	var observed []time.Time
	for k := range 25 {
		ids, types = append(ids, fmt.Sprintf("e%02d", k)), append(types, []string{"gpu.xid", "fan.failure"}[k%2])
		observed = append(observed, at.Add(time.Duration(k/10)*time.Nanosecond)) // three moments within a second
	}
	if err := db.Insert(t.Context(), "events", "x", []clickhouse.Column{
		{Name: "id", Values: ids}, {Name: "time", Values: observed}, {Name: "observed", Values: observed}, {Name: "type", Values: types},
	}); err != nil {
		t.Fatal(err)
	}
	all := func(f records.EventFilter) (got []string, pages int) {
		t.Helper()
		for f.Limit = 4; ; pages++ {
			page, next, err := db.Events(t.Context(), f)
			if err != nil || len(page) > f.Limit {
				t.Fatalf("%d events, %v", len(page), err)
			}
			for _, e := range page {
				got = append(got, e.ID)
			}
			if f.After = next; next == "" {
				return got, pages + 1
			}
		}
	}
	want := slices.Clone(ids)
	slices.Reverse(want)
	if got, pages := all(records.EventFilter{}); !slices.Equal(got, want) || pages != 7 {
		t.Errorf("%d pages: %v", pages, got)
	}
	if got, _ := all(records.EventFilter{Type: "fan.failure"}); len(got) != 12 || got[0] != "e23" {
		t.Errorf("%v", got)
	}
	if got, _ := all(records.EventFilter{Since: at.Add(1), Until: at.Add(1)}); len(got) != 10 || got[0] != "e19" {
		t.Errorf("of one nanosecond: %v", got)
	}
	if _, _, err := db.Events(t.Context(), records.EventFilter{After: "zzz", Limit: 1}); !errors.Is(err, sqldb.ErrCursor) {
		t.Errorf("%v", err)
	}
}

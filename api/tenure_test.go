package api_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"auspex/api"
	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/store/clickhouse"
	"auspex/internal/store/embedded/embeddedtest"
)

// TestMain makes the test binary the history's engine where it was started as one.
func TestMain(m *testing.M) {
	embeddedtest.Main()
	m.Run()
}

// tenure is the server gpu-r01-01, whose only GPU of interest is read each ten seconds: a value tells whose time it
// was. Li had it twice, and jo for half a minute in between.
type tenure struct {
	w                                *world
	begin, gap, back, end, first, to time.Time
}

const (
	valueNobody = 50
	valueLi     = 7
	valueJo     = 5000
)

func (x *tenure) value(at time.Time) float64 {
	switch {
	case at.Before(x.begin) || at.After(x.end):
		return valueNobody
	case at.After(x.gap) && at.Before(x.back):
		return valueJo
	}
	return valueLi
}

func lived(t *testing.T, db *clickhouse.DB, options ...option) *tenure {
	t.Helper()
	base := time.Now().UTC().Truncate(time.Minute)
	x := &tenure{
		first: base.Add(-70 * time.Minute), begin: base.Add(-50 * time.Minute), gap: base.Add(-40*time.Minute + 5*time.Second), back: base.Add(-40*time.Minute + 35*time.Second),
		end: base.Add(-20 * time.Minute), to: base.Add(-10 * time.Minute),
	}
	w, red, blue := tenants(t, append(options, func(_ *api.Config, d *api.Deps) { d.History = db })...)
	x.w = w
	again := w.gets(t, "li", "gpu-r01-02", "red-again")
	for _, a := range []struct {
		id          string
		from, until time.Time
	}{{red.ID, x.begin, x.gap}, {blue.ID, x.gap, x.back}, {again.ID, x.back, x.end}} {
		w.had(t, a.id, a.from, a.until)
		// It is one server that they had one after the other.
		if _, err := w.db.ExecContext(t.Context(), `UPDATE allocation_claims SET state='released', server_id=(SELECT id FROM servers WHERE name='gpu-r01-01'),
unit=(SELECT id FROM servers WHERE name='gpu-r01-01') WHERE allocation_id=$1 AND gpu_id IS NULL`, a.id); err != nil {
			t.Fatal(err)
		}
	}
	var at []int64
	var resources, collectors []string
	var temps []float32
	for when := x.first; !when.After(x.to); when = when.Add(10 * time.Second) {
		at, resources, collectors = append(at, when.UnixMilli()), append(resources, "gpu-r01-01/gpu0"), append(collectors, "agent")
		temps = append(temps, float32(x.value(when)))
	}
	if err := db.Insert(t.Context(), "gpu", "readings", []clickhouse.Column{
		{Name: "time", Values: at},
		{Name: "observed", Values: at},
		{Name: "resource", Values: resources},
		{Name: "collector", Values: collectors},
		{Name: "gpu_temp_celsius", Values: temps},
	}); err != nil {
		t.Fatal(err)
	}
	var ids, types, devices, about []string
	var times []time.Time
	for id, when := range map[string]time.Time{
		"nobody-before": x.begin.Add(-time.Nanosecond), "li-first": x.begin, "li-within": x.begin.Add(time.Minute), "li-last": x.gap.Add(-time.Nanosecond),
		"jo": x.gap.Add(time.Second), "li-back": x.back.Add(time.Nanosecond), "li-end": x.end, "nobody-after": x.end.Add(time.Nanosecond), "nobody-late": x.end.Add(time.Minute),
	} {
		ids, types, devices = append(ids, id), append(types, "gpu.xid"), append(devices, "gpu-r01-01")
		about, times = append(about, "gpu-r01-01/gpu0"), append(times, when)
	}
	// One of another server of which the tenants had nothing, at a time at which they had this one.
	ids, types, devices, about, times = append(ids, "other"), append(types, "gpu.xid"), append(devices, "gpu-r02-01"), append(about, "gpu-r02-01/gpu0"), append(times, x.begin.Add(time.Minute))
	if err := db.Insert(t.Context(), "events", "events", []clickhouse.Column{
		{Name: "id", Values: ids},
		{Name: "type", Values: types},
		{Name: "device", Values: devices},
		{Name: "resource", Values: about},
		{Name: "server", Values: devices},
		{Name: "time", Values: times},
		{Name: "observed", Values: times},
	}); err != nil {
		t.Fatal(err)
	}
	return x
}

func engine(t *testing.T) *clickhouse.DB {
	t.Helper()
	cfg := clickhouse.DefaultConfig()
	cfg.Dial = embeddedtest.Start(t).Dial
	db, err := clickhouse.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func TestATenantReadsOfTheHistoryWhatIsOfTheirTime(t *testing.T) {
	x := lived(t, engine(t), func(_ *api.Config, d *api.Deps) { d.Querier = nil })
	events := func(who, query string) (ids []string) {
		t.Helper()
		after := ""
		for range 20 {
			page := decode[apigen.EventList](t, x.w.do(t, who, http.MethodGet, "events?limit=2&since="+url.QueryEscape(x.first.Format(time.RFC3339))+query+after, "", ""), http.StatusOK)
			for _, ev := range page.Items {
				if strings.HasPrefix(ev.ID, "li-") || strings.HasPrefix(ev.ID, "nobody-") || ev.ID == "jo" || ev.ID == "other" {
					ids = append(ids, ev.ID)
				}
			}
			if page.Next == "" {
				break
			}
			after = "&after=" + url.QueryEscape(page.Next)
		}
		slices.Sort(ids)
		return ids
	}
	of := []string{"li-back", "li-end", "li-first", "li-last", "li-within"}
	for who, want := range map[string][]string{
		"li": of, "jo": {"jo"},
		access.RoleAdmin: append(append([]string{"jo"}, of...), "nobody-after", "nobody-before", "nobody-late", "other"),
	} {
		if got := events(who, ""); !slices.Equal(got, want) {
			t.Errorf("%s reads %v, not %v", who, got, want)
		}
		for _, id := range append(slices.Clone(of), "jo", "nobody-before", "nobody-after", "other") {
			status := http.StatusNotFound
			if slices.Contains(want, id) {
				status = http.StatusOK
			}
			if a := x.w.do(t, who, http.MethodGet, "events/"+id, "", ""); a.status != status {
				t.Errorf("%s reads %s: %d", who, id, a.status)
			}
		}
	}
	x.readings(t, 60, 90, 300)
}

// readings holds what each reads of the GPU's metrics against whose time it was.
func (x *tenure) readings(t *testing.T, steps ...int) {
	t.Helper()
	gpu := url.PathEscape("gpu-r01-01/gpu0")
	for _, step := range steps {
		path := fmt.Sprintf("gpus/%s/metrics?metrics=DCGM_FI_DEV_GPU_TEMP&step=%d&from=%s&to=%s", gpu, step, url.QueryEscape(x.first.Format(time.RFC3339)), url.QueryEscape(x.to.Format(time.RFC3339)))
		for who, own := range map[string]float64{"li": valueLi, "jo": valueJo, access.RoleAdmin: 0} {
			got := decode[apigen.GPUMetricColumns](t, x.w.do(t, who, http.MethodGet, path, "", ""), http.StatusOK)
			had := 0
			for k, v := range got.Metrics[0].Values {
				if v == nil {
					continue
				}
				had++
				if own != 0 && *v != own {
					t.Errorf("%s reads %v at %v with a step of %d s", who, *v, time.Unix(int64(got.Times[k]), 0).UTC().Sub(x.first), step)
				}
			}
			least := map[string]int{"li": int(x.end.Sub(x.begin).Seconds())/step - 4, access.RoleAdmin: int(x.to.Sub(x.first).Seconds())/step - 1}[who]
			if had < least {
				t.Errorf("%s reads %d values with a step of %d s, of %d", who, had, step, least)
			}
		}
	}
	if a := x.w.do(t, "li", http.MethodGet, "gpus/"+url.PathEscape("gpu-r02-01/gpu0")+"/metrics", "", ""); a.status != http.StatusNotFound {
		t.Errorf("a GPU that was never theirs: %d", a.status)
	}
}

// What the hot window has and what the history has are one to a tenant, and PromQL reads no more.
func TestATenantReadsOfHistoryAndHotWindowWhatIsOfTheirTime(t *testing.T) {
	m, hot := measures(t)
	x := lived(t, engine(t), hot)
	for when := x.begin.Add(5 * time.Minute); !when.After(x.to); when = when.Add(10 * time.Second) {
		m.of(when, "gpu-r01-01/gpu0", "agent", "DCGM_FI_DEV_GPU_TEMP", x.value(when))
	}
	x.readings(t, 60, 90, 300)
	ask := func(who, expr string, at time.Time) string {
		t.Helper()
		a := x.w.send(t, http.MethodGet, "prometheus/api/v1/query?query="+url.QueryEscape(expr)+"&time="+strconv.FormatInt(at.Unix(), 10), who, nil)
		if a.status != http.StatusOK {
			t.Fatalf("%s: %d %s", expr, a.status, a.body)
		}
		return string(a.body)
	}
	temp := `DCGM_FI_DEV_GPU_TEMP{resource="gpu-r01-01/gpu0"}`
	for _, c := range []struct {
		who, expr string
		at        time.Time
		want      string
	}{
		{"li", "max_over_time(" + temp + "[2h])", x.to, `"7"`},
		{"li", "min_over_time(" + temp + "[2h])", x.to, `"7"`},
		{"jo", "min_over_time(" + temp + "[2h])", x.to, `"5000"`},
		{"jo", "count_over_time(" + temp + "[2h])", x.to, `"3"`}, // every 10 s of 30 s
		{access.RoleAdmin, "max_over_time(" + temp + "[2h])", x.to, `"5000"`},
		{"li", temp, x.end.Add(6 * time.Minute), `"result":[]`},
		{"li", "last_over_time(" + temp + "[10s])", x.end, `"7"`},
		{"li", "last_over_time(" + temp + "[9s])", x.end.Add(10 * time.Second), `"result":[]`},
		{"jo", temp, x.gap.Add(-time.Second), `"result":[]`},
	} {
		if got := ask(c.who, c.expr, c.at); !strings.Contains(got, c.want) {
			t.Errorf("%s asks %s at %v: %s", c.who, c.expr, c.at, got)
		}
	}
}

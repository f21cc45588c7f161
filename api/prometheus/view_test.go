package prometheus_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"auspex/api/prometheus"
	"auspex/internal/store/hot"
)

// view is of somebody who had s1 for some seconds of the samples, and of s2 one GPU.
type view map[string][]prometheus.Span

func (v view) Servers() []string {
	var out []string
	for name := range v {
		out = append(out, name)
	}
	return out
}

func (v view) Spans(server, resource string) []prometheus.Span {
	if server == "s2" && resource != "s2/gpu0" {
		return nil
	}
	return v[server]
}

func ms(s int) int64 { return t0.Add(time.Duration(s) * time.Second).UnixMilli() }

// Whatever an expression or a route asks for, there is nothing but the samples of a view.
func TestAQueryReadsWhatItsViewLetsThrough(t *testing.T) {
	w, err := hot.Open(t.TempDir(), hot.DefaultConfig(), nowhere{}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	app := w.Appender(context.Background())
	for i := range 60 {
		for _, s := range [][]string{
			{"server", "s1", "resource", "s1/gpu0", "job", "mine"},
			{"server", "s2", "resource", "s2/gpu0", "job", "mine"},
			{"server", "s2", "resource", "s2/gpu1", "job", "secret"},
			{"server", "s3", "resource", "s3/gpu0", "job", "secret"},
			{"job", "secret"},
		} {
			if _, err := app.Append(0, labels.FromStrings(append([]string{"__name__", "load"}, s...)...), ms(i), float64(i)); err != nil {
				t.Fatal(err)
			}
		}
		if i < 10 { // before it was theirs
			if _, err := app.Append(0, labels.FromStrings("__name__", "early_secret", "server", "s1", "resource", "s1", "job", "secret"), ms(i), 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	h, err := prometheus.New(w, prometheus.DefaultConfig(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	v := view{"s1": {{From: ms(20), Until: ms(29)}, {From: ms(40), Until: ms(44)}}, "s2": {{From: ms(0), Until: ms(59)}}}
	ask := func(v prometheus.View, path string, form url.Values) (int, string) {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, prometheus.Prefix+path+"?"+form.Encode(), http.NoBody)
		if v != nil {
			req = req.WithContext(prometheus.WithView(req.Context(), v))
		}
		res := httptest.NewRecorder()
		h.ServeHTTP(res, req)
		return res.Code, res.Body.String()
	}
	at := func(s string) url.Values { return url.Values{"query": {s}, "time": {T(59)}} }
	for query, want := range map[string]string{
		`sum(count_over_time(load{server="s1"}[1m]))`:                      `"15"`,
		`sum(count_over_time(load{server=~"s3|"}[1m]))`:                    `"result":[]`,
		`count(load{server="s2"})`:                                         `"1"`,
		`sum(count_over_time({__name__=~".+"}[2m]))`:                       `"75"`,
		`load{server="s1"} offset 30s`:                                     `"29"`,
		`load{server="s1"} @ ` + T(10):                                     `"result":[]`,
		`max_over_time(load{server="s1"}[1m:1s])`:                          `"44"`,
		`absent(load{job="secret"})`:                                       `"job":"secret"`, // which is what the query says
		`count({server!="s1",__name__=~".+"})`:                             `"1"`,
		`label_replace(load{server="s3"}, "server", "s1", "server", ".*")`: `"result":[]`,
		`sum by (job) (load)`:                                              `{"metric":{"job":"mine"}`,
		`count_over_time(early_secret[2m])`:                                `"result":[]`,
		`sum(rate(load[1m])) or vector(7)`:                                 `"result":[{"metric":{}`,
	} {
		if code, got := ask(v, "query", at(query)); code != http.StatusOK || !strings.Contains(got, want) {
			t.Errorf("%s: %d %s", query, code, got)
		}
	}
	for path, form := range map[string]url.Values{
		"label/job/values": {}, "label/server/values": {}, "label/__name__/values": {}, "labels": {}, "series": {"match[]": {`{__name__=~".+"}`}}, "metadata": {},
		"query_range": {"query": {`{job=~".+"}`}, "start": {T(0)}, "end": {T(59)}, "step": {"1"}},
	} {
		code, got := ask(v, path, form)
		if code != http.StatusOK || strings.Contains(got, "secret") || strings.Contains(got, "s3") || strings.Contains(got, "gpu1") {
			t.Errorf("%s: %d %s", path, code, got)
		}
		if _, all := ask(nil, path, form); path != "labels" && !strings.Contains(all, "secret") && !strings.Contains(all, "s3") {
			t.Errorf("%s without a view: %s", path, all)
		}
	}
	if _, got := ask(view{}, "query", at(`count({__name__=~".+"})`)); !strings.Contains(got, `"result":[]`) {
		t.Errorf("nothing is theirs: %s", got)
	}
	if _, got := ask(view{}, "series", url.Values{"match[]": {`{__name__=~".+"}`}}); !strings.Contains(got, `"data":[]`) {
		t.Errorf("nothing is theirs: %s", got)
	}
	for _, path := range []string{"rules", "alerts", "status/config", "status/flags", "status/runtimeinfo", "status/tsdb"} {
		if code, got := ask(v, path, nil); code != http.StatusForbidden {
			t.Errorf("%s: %d %s", path, code, got)
		}
	}
}

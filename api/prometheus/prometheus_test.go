package prometheus_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	promrules "github.com/prometheus/prometheus/rules"
	"go.uber.org/goleak"

	"auspex/api/prometheus"
	"auspex/internal/cmdb"
	"auspex/internal/store/hot"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type nowhere struct{}

func (nowhere) Part(string, string, string) cmdb.Placement        { return cmdb.Placement{} }
func (nowhere) GPU(string, uint32, string, string) cmdb.Placement { return cmdb.Placement{} }
func (nowhere) Generation() uint64                                { return 0 }

// t0 is the time of the samples: a whole second, some minutes ago.
var t0 = time.Now().Truncate(time.Second).Add(-5 * time.Minute)

// T is a time in seconds after t0, as text.
func T(s int64) string { return strconv.FormatInt(t0.Unix()+s, 10) }

func serve(t testing.TB, cfg prometheus.Config) http.Handler {
	t.Helper()
	w, err := hot.Open(t.TempDir(), hot.DefaultConfig(), nowhere{}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	app := w.Appender(context.Background())
	for i := range 5 {
		at := t0.Add(time.Duration(i) * time.Second).UnixMilli()
		for _, s := range []struct {
			l []string
			v float64
		}{
			{[]string{"__name__", "DCGM_FI_DEV_GPU_TEMP", "server", "s1", "gpu", "0"}, 40.5 + float64(i)},
			{[]string{"__name__", "DCGM_FI_DEV_GPU_TEMP", "server", "s1", "gpu", "1"}, 50},
			{[]string{"__name__", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "server", "s1", "gpu", "0"}, 1e21},
			{[]string{"__name__", "odd", "note", "a \"b\" \\ <é>"}, []float64{math.NaN(), math.Inf(1), math.Inf(-1), 1e-9, 0}[i]},
		} {
			if _, err := app.Append(0, labels.FromStrings(s.l...), at, s.v); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	h, err := prometheus.New(w, cfg, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestAnswersAreThoseOfPrometheus(t *testing.T) {
	h := serve(t, prometheus.DefaultConfig())
	at := func(s float64) string { return fmt.Sprintf("%.3f", float64(t0.Unix())+s) }
	for _, tc := range []struct {
		name, method, path string
		form               url.Values
		status             int
		want               string
	}{
		{
			"vector", "GET", "query",
			url.Values{"query": {`DCGM_FI_DEV_GPU_TEMP{gpu="0"}`}, "time": {at(2)}},
			200,
			`{"status":"success","data":{"resultType":"vector","result":[{"metric":{"__name__":"DCGM_FI_DEV_GPU_TEMP","gpu":"0","server":"s1"},"value":[` + T(2) + `,"42.5"]}]}}`,
		},
		{
			"by post", "POST", "query",
			url.Values{"query": {`sum(DCGM_FI_DEV_GPU_TEMP)`}, "time": {at(4.25)}},
			200,
			`{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[` + T(4) + `.250,"94.5"]}]}}`,
		},
		{
			"large", "GET", "query",
			url.Values{"query": {`DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION * 1`}, "time": {at(2)}},
			200,
			`{"status":"success","data":{"resultType":"vector","result":[{"metric":{"gpu":"0","server":"s1"},"value":[` + T(2) + `,"1e+21"]}]}}`,
		},
		{"nothing", "GET", "query", url.Values{"query": {`nope`}}, 200, `{"status":"success","data":{"resultType":"vector","result":[]}}`},
		{
			"scalar", "GET", "query",
			url.Values{"query": {`1+1`}, "time": {"12.5"}},
			200,
			`{"status":"success","data":{"resultType":"scalar","result":[12.500,"2"]}}`,
		},
		{
			"string", "GET", "query",
			url.Values{"query": {`"a"`}, "time": {"1970-01-01T00:00:01Z"}},
			200,
			`{"status":"success","data":{"resultType":"string","result":[1,"a"]}}`,
		},
		{
			"not a number", "GET", "query",
			url.Values{"query": {`0/0`}, "time": {"1"}},
			200,
			`{"status":"success","data":{"resultType":"scalar","result":[1,"NaN"]}}`,
		},
		{
			"range selector", "GET", "query",
			url.Values{"query": {`odd[3s]`}, "time": {at(2)}},
			200,
			`{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__name__":"odd","note":"a \"b\" \\ \u003cé\u003e"},"values":[[` + T(0) + `,"NaN"],[` + T(1) + `,"+Inf"],[` + T(2) + `,"-Inf"]]}]}}`,
		},
		{
			"range", "GET", "query_range",
			url.Values{"query": {`DCGM_FI_DEV_GPU_TEMP{gpu="0"}`}, "start": {at(0)}, "end": {at(1)}, "step": {"500ms"}},
			200,
			`{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__name__":"DCGM_FI_DEV_GPU_TEMP","gpu":"0","server":"s1"},"values":[[` + T(0) + `,"40.5"],[` + T(0) + `.500,"40.5"],[` + T(1) + `,"41.5"]]}]}}`,
		},
		{
			"limit", "GET", "query",
			url.Values{"query": {`DCGM_FI_DEV_GPU_TEMP * 0`}, "time": {at(2)}, "limit": {"1"}},
			200,
			`{"status":"success","data":{"resultType":"vector","result":[{"metric":{"gpu":"0","server":"s1"},"value":[` + T(2) + `,"0"]}]},"warnings":["results truncated due to limit"]}`,
		},
		{
			"series", "GET", "series",
			url.Values{"match[]": {`{gpu="1"}`, `odd`}},
			200,
			`{"status":"success","data":[{"__name__":"DCGM_FI_DEV_GPU_TEMP","gpu":"1","server":"s1"},{"__name__":"odd","note":"a \"b\" \\ \u003cé\u003e"}]}`,
		},
		{"labels", "POST", "labels", nil, 200, `{"status":"success","data":["__name__","gpu","note","server"]}`},
		{
			"labels of a match", "GET", "labels",
			url.Values{"match[]": {"odd"}, "limit": {"1"}},
			200,
			`{"status":"success","data":["__name__"],"warnings":["results truncated due to limit"]}`,
		},
		{"label values", "GET", "label/gpu/values", nil, 200, `{"status":"success","data":["0","1"]}`},
		{
			"label values of two matches", "GET", "label/__name__/values",
			url.Values{"match[]": {"odd", `{gpu="1"}`}},
			200,
			`{"status":"success","data":["DCGM_FI_DEV_GPU_TEMP","odd"]}`,
		},
		{"label values, none", "GET", "label/nope/values", nil, 200, `{"status":"success","data":[]}`},
		{
			"label values, the times that promtool sends", "GET", "label/gpu/values",
			url.Values{"start": {"-292273086-05-16T16:47:06Z"}, "end": {"292277025-08-18T07:12:54.999999999Z"}},
			200,
			`{"status":"success","data":["0","1"]}`,
		},
		{
			"metadata", "GET", "metadata",
			url.Values{"metric": {"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"}},
			200,
			`{"status":"success","data":{"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION":[{"type":"counter","help":"Energy since the driver was loaded.","unit":"millijoules"}]}}`,
		},
		{"format", "GET", "format_query", url.Values{"query": {"foo/bar"}}, 200, `{"status":"success","data":"foo / bar"}`},
		{"rules", "GET", "rules", nil, 200, `{"status":"success","data":{"groups":[]}}`},
		{"alerts", "GET", "alerts", nil, 200, `{"status":"success","data":{"alerts":[]}}`},

		{
			"syntax", "GET", "query",
			url.Values{"query": {"up{"}},
			400,
			`{"status":"error","errorType":"bad_data","error":"invalid parameter \"query\": 1:4: parse error: unexpected end of input inside braces"}`,
		},
		{
			"bad time", "GET", "query",
			url.Values{"query": {"1"}, "time": {"x"}},
			400,
			`{"status":"error","errorType":"bad_data","error":"invalid parameter \"time\": cannot parse \"x\" to a valid timestamp"}`,
		},
		{
			"no start", "GET", "query_range",
			url.Values{"query": {"1"}, "end": {"1"}, "step": {"1"}},
			400,
			`{"status":"error","errorType":"bad_data","error":"invalid parameter \"start\": cannot parse \"\" to a valid timestamp"}`,
		},
		{
			"end first", "GET", "query_range",
			url.Values{"query": {"1"}, "start": {"2"}, "end": {"1"}, "step": {"1"}},
			400,
			`{"status":"error","errorType":"bad_data","error":"invalid parameter \"end\": end timestamp must not be before start time"}`,
		},
		{
			"no step", "GET", "query_range",
			url.Values{"query": {"1"}, "start": {"1"}, "end": {"2"}, "step": {"0"}},
			400,
			`{"status":"error","errorType":"bad_data","error":"invalid parameter \"step\": zero or negative query resolution step widths are not accepted. Try a positive integer"}`,
		},
		{
			"too many points", "GET", "query_range",
			url.Values{"query": {"1"}, "start": {"1"}, "end": {"20000"}, "step": {"1"}},
			400,
			`{"status":"error","errorType":"bad_data","error":"exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution (?step=XX)"}`,
		},
		{"series of nothing", "GET", "series", nil, 400, `{"status":"error","errorType":"bad_data","error":"no match[] parameter provided"}`},
		{
			"series of everything", "GET", "series",
			url.Values{"match[]": {`{a=~".*"}`}},
			400,
			`{"status":"error","errorType":"bad_data","error":"invalid parameter \"match[]\": match[] must contain at least one non-empty matcher"}`,
		},
		{
			"bad limit", "GET", "labels",
			url.Values{"limit": {"-1"}},
			400,
			`{"status":"error","errorType":"bad_data","error":"invalid parameter \"limit\": limit must be non-negative"}`,
		},
		{
			"not one series", "GET", "query",
			url.Values{"query": {`DCGM_FI_DEV_GPU_TEMP * on(server) DCGM_FI_DEV_GPU_TEMP`}, "time": {at(2)}},
			422,
			`"errorType":"execution"`,
		},
		{"no time left", "GET", "query", url.Values{"query": {`DCGM_FI_DEV_GPU_TEMP`}, "timeout": {"0.000000001"}}, 503, `"errorType":"timeout"`},
		{"no such route", "GET", "nope", nil, 404, `{"status":"error","errorType":"not_found","error":"no such route"}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			target, body := prometheus.Prefix+tc.path+"?"+tc.form.Encode(), ""
			if tc.method == "POST" {
				target, body = prometheus.Prefix+tc.path, tc.form.Encode()
			}
			r := httptest.NewRequest(tc.method, target, strings.NewReader(body))
			if tc.method == "POST" {
				r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != tc.status || !strings.Contains(w.Body.String(), tc.want) || strings.HasPrefix(tc.want, "{") &&
				!jsonEqual(t, w.Body.String(), tc.want) {
				t.Errorf("%d\n got %s\nwant %s", w.Code, w.Body, tc.want)
			}
		})
	}
}

func jsonEqual(t *testing.T, a, b string) bool {
	t.Helper()
	var x, y any
	if err := json.Unmarshal([]byte(a), &x); err != nil {
		t.Fatal(err, a)
	}
	if err := json.Unmarshal([]byte(b), &y); err != nil {
		t.Fatal(err, b)
	}
	return cmp.Equal(x, y)
}

func TestAQueryMayNotHoldMoreSamplesThanAllowed(t *testing.T) {
	cfg := prometheus.DefaultConfig()
	cfg.MaxSamples = 3
	w := httptest.NewRecorder()
	serve(t, cfg).ServeHTTP(w, httptest.NewRequest("GET", prometheus.Prefix+"query?query=DCGM_FI_DEV_GPU_TEMP[10m]", nil))
	if w.Code != 422 || !strings.Contains(w.Body.String(), "too many samples") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// promtool is Prometheus' own client; test/peers/prometheus.sh builds it.
func TestPromtoolReadsTheAPI(t *testing.T) {
	tool, err := exec.LookPath("promtool")
	if err != nil {
		home, _ := os.UserCacheDir()
		found, _ := filepath.Glob(filepath.Join(home, "auspex-peers", "prometheus-*", "promtool"))
		if len(found) == 0 {
			t.Skip("promtool is not installed: test/peers/prometheus.sh builds it")
		}
		tool = found[0]
	}
	srv := httptest.NewServer(serve(t, prometheus.DefaultConfig()))
	defer srv.Close()
	base := srv.URL + "/prometheus"
	for _, tc := range []struct {
		args []string
		want string
	}{
		{
			[]string{"query", "instant", "--time", T(4), base, `DCGM_FI_DEV_GPU_TEMP{gpu="1"}`},
			`DCGM_FI_DEV_GPU_TEMP{gpu="1", server="s1"} => 50 @[`,
		},
		{[]string{"query", "range", "--start", T(0), "--end", T(1), "--step", "1s", base, `DCGM_FI_DEV_GPU_TEMP{gpu="0"}`}, "40.5 @["},
		{[]string{"query", "series", "--match", "odd", base}, `{__name__="odd"`},
		{[]string{"query", "labels", base, "gpu"}, "0\n1\n"},
	} {
		out, err := exec.Command(tool, tc.args...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), tc.want) {
			t.Errorf("%v: %v\n%s", tc.args, err, out)
		}
	}
}

func TestRulesAndTheirAlertsAreShown(t *testing.T) {
	w, err := hot.Open(t.TempDir(), hot.DefaultConfig(), nowhere{}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	file := filepath.Join(t.TempDir(), "rules.yml")
	if err := os.WriteFile(
		file,
		[]byte("groups: [{name: g, rules: [{alert: Always, expr: 'vector(3) > 2', labels: {severity: error}}, {record: one, expr: '1'}]}]"),
		0o600,
	); err != nil {
		t.Fatal(err)
	}
	p := parser.NewParser(parser.Options{})
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1000, Timeout: time.Minute, Parser: p})
	m := promrules.NewManager(&promrules.ManagerOptions{
		Context: t.Context(), QueryFunc: promrules.EngineQueryFunc(engine, w), Queryable: w, Appendable: w, Parser: p,
		NotifyFunc: func(context.Context, string, ...*promrules.Alert) {}, NameValidationScheme: model.UTF8Validation,
	})
	groups, errs := m.LoadGroups(time.Minute, labels.EmptyLabels(), "", nil, false, file)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	cfg := prometheus.DefaultConfig()
	for _, g := range groups {
		g.Eval(t.Context(), time.Now())
		cfg.Rules = func() []*promrules.Group { return []*promrules.Group{g} }
	}
	h, err := prometheus.New(w, cfg, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string) string {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest("GET", prometheus.Prefix+path, nil))
		return rec.Body.String()
	}
	for path, wants := range map[string][]string{
		"rules":             {`"name":"g"`, `"state":"firing","name":"Always","query":"vector(3) \u003e 2"`, `"value":"3e+00"`, `"type":"alerting"`, `"name":"one","query":"1"`, `"health":"ok"`},
		"rules?type=record": {`"type":"recording"`},
		"alerts":            {`"labels":{"alertname":"Always","severity":"error"},"annotations":{},"state":"firing","activeAt":"`},
		"rules?type=x":      {`"errorType":"bad_data"`},
	} {
		body := get(path)
		for _, want := range wants {
			if !strings.Contains(body, want) {
				t.Errorf("%s has no %s:\n%s", path, want, body)
			}
		}
	}
	if strings.Contains(get("rules?type=record"), "Always") {
		t.Error("type=record shows an alerting rule")
	}
}

func FuzzParameters(f *testing.F) {
	f.Add("query", "query=up&time=1e300&limit=1")
	f.Add("query_range", "query=up&start=-1e18&end=NaN&step=0.000000001")
	f.Add("series", "match[]={a=\"\"}&start=Inf")
	f.Add("label/x/values", "match[]=x&end=9223372036854775807")
	h := serve(f, prometheus.DefaultConfig())
	f.Fuzz(func(t *testing.T, path, query string) {
		target := &url.URL{Path: prometheus.Prefix + path, RawQuery: query}
		r := &http.Request{Method: "GET", URL: target, Body: http.NoBody, Header: http.Header{}, Host: "x"}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r.WithContext(t.Context()))
		if w.Code < 300 || w.Code >= 400 {
			if !json.Valid(w.Body.Bytes()) {
				t.Errorf("%s: %d %q", target, w.Code, w.Body)
			}
		}
	})
}

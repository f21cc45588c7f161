package prometheus_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/api/prometheus"
	"auspex/schemas"
)

func TestStatusIsWhatClientsReadOfPrometheus(t *testing.T) {
	began := time.Now().Add(-time.Hour)
	h := over(t, fleet(t, 5), func(c *prometheus.Config) {
		c.Status = prometheus.Status{
			Started: began, Retention: 6 * time.Hour,
			Config: func() (string, error) {
				return "store:\n  sql: postgres://auspex:hunter2@db/auspex?sslmode=require\n  other: host=db password=hunter2 user=x\n", nil
			},
		}
	})
	get := func(path string, into any) {
		t.Helper()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", prometheus.Prefix+path, nil))
		if w.Code != http.StatusOK {
			t.Fatalf("%s: %d %s", path, w.Code, w.Body)
		}
		if err := json.Unmarshal(w.Body.Bytes(), &struct{ Data any }{into}); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	var config map[string]string
	get("status/config", &config)
	if !strings.Contains(config["yaml"], "postgres://auspex:<secret>@db/auspex?sslmode=require") ||
		strings.Contains(config["yaml"], "hunter2") {
		t.Errorf("%q", config["yaml"])
	}
	var flags map[string]string
	get("status/flags", &flags)
	if flags["storage.tsdb.retention.time"] != "21600s" || flags["query.lookback-delta"] != "300s" {
		t.Errorf("%v", flags)
	}
	var runtime struct {
		StartTime           time.Time `json:"startTime"`
		ReloadConfigSuccess bool      `json:"reloadConfigSuccess"`
		StorageRetention    string    `json:"storageRetention"`
		GOMAXPROCS          int
	}
	get("status/runtimeinfo", &runtime)
	if !runtime.StartTime.Equal(began) || !runtime.ReloadConfigSuccess || runtime.StorageRetention != "21600s" || runtime.GOMAXPROCS < 1 {
		t.Errorf("%+v", runtime)
	}
	var tsdb struct {
		HeadStats struct{ NumSeries, NumLabelPairs int }
		Names     []struct {
			Name  string
			Value int
		} `json:"seriesCountByMetricName"`
	}
	get("status/tsdb", &tsdb)
	if tsdb.HeadStats.NumSeries != 5 || len(tsdb.Names) != 1 || tsdb.Names[0].Name != "load" || tsdb.Names[0].Value != 5 {
		t.Errorf("%+v", tsdb)
	}
}

func TestEveryMetricIsDescribed(t *testing.T) {
	for _, m := range schemas.GPUMetrics {
		if d := prometheus.Describe(m.Name); strings.Contains(d.Help, m.Name) || !strings.HasSuffix(d.Help, ".") {
			t.Errorf("%s: %+v", m.Name, d)
		}
	}
	for name, want := range map[string][3]string{
		"auspex_fan_speed_rpm":                    {"gauge", "Speed of a fan, in turns a minute.", "rpm"},
		"auspex_server_inlet_temperature_celsius": {"gauge", "Inlet temperature of a server, in °C.", "celsius"},
		"auspex_port_in_octets_total":             {"counter", "In octets of a port, counted since the device began.", ""},
		"auspex_psu_input_power_watts_threshold":  {"gauge", "Bound (label bound) that the device gives for: input power of a PSU, in watts.", "watts"},
		"auspex_gpu_pcie_nonfatal_errors_total":   {"counter", "PCIe nonfatal errors of a GPU, counted since the device began.", ""},
		"auspex_nonsense":                         {"gauge", "Reading of a nonsense.", ""},
		"DCGM_FI_DEV_SOMETHING_NEW":               {"gauge", "Field DCGM_FI_DEV_SOMETHING_NEW of DCGM (dcgm_fields.h).", ""},
		"up":                                      {"gauge", "1 while a collector (job) brings samples of a device (instance), 0 after they have stopped.", ""},
	} {
		d := prometheus.Describe(name)
		if got := [3]string{d.Type, d.Help, d.Unit}; got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestAParsedQueryIsATree(t *testing.T) {
	h := over(t, fleet(t, 1), nil)
	for query, want := range map[string]string{
		`sum by (server) (rate(load{gpu="0"}[5m] offset 1m))`: `{"type":"aggregation","op":"sum","grouping":["server"],"without":false,"param":null,"expr":
{"type":"call","func":{"name":"rate","argTypes":["matrix"],"variadic":0,"returnType":"vector"},"args":[
{"type":"matrixSelector","name":"load","range":300000,"offset":60000,"timestamp":null,"startOrEnd":null,"anchored":false,"smoothed":false,
"matchers":[{"name":"gpu","type":"=","value":"0"},{"name":"__name__","type":"=","value":"load"}]}]}}`,
		`-(1 > bool 2)`: `{"type":"unaryExpr","op":"-","expr":{"type":"parenExpr","expr":{"type":"binaryExpr","op":"\u003e","bool":true,"matching":null,
"lhs":{"type":"numberLiteral","val":"1"},"rhs":{"type":"numberLiteral","val":"2"}}}}`,
		`"text"`: `{"type":"stringLiteral","val":"text"}`,
		`max_over_time(up[1h:1m] @ end())`: `{"type":"call","func":{"name":"max_over_time","argTypes":["matrix"],"variadic":0,"returnType":"vector"},"args":[
{"type":"subquery","range":3600000,"step":60000,"offset":0,"timestamp":null,"startOrEnd":"end","expr":
{"type":"vectorSelector","name":"up","offset":0,"timestamp":null,"startOrEnd":null,"anchored":false,"smoothed":false,"matchers":[{"name":"__name__","type":"=","value":"up"}]}}]}`,
		`a * on (x) group_left (y) b`: `{"type":"binaryExpr","op":"*","bool":false,"matching":{"card":"many-to-one","labels":["x"],"on":true,"include":["y"]},
"lhs":{"type":"vectorSelector","name":"a","offset":0,"timestamp":null,"startOrEnd":null,"anchored":false,"smoothed":false,"matchers":[{"name":"__name__","type":"=","value":"a"}]},
"rhs":{"type":"vectorSelector","name":"b","offset":0,"timestamp":null,"startOrEnd":null,"anchored":false,"smoothed":false,"matchers":[{"name":"__name__","type":"=","value":"b"}]}}`,
	} {
		w := ask(h, "parse_query", url.Values{"query": {query}})
		var got struct{ Data any }
		var expected any
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatalf("%s: %s", query, w.Body)
		}
		if err := json.Unmarshal([]byte(want), &expected); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(expected, got.Data); diff != "" {
			t.Errorf("%s (-want +got):\n%s", query, diff)
		}
	}
}

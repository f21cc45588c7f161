package evidence

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	got, ok, err := Parse(`auspex_fan_speed_rpm{fan="1",resource="gpu-r01-01/fan1"} 4200.5 1767225600.25`)
	want := Sample{Metric: "auspex_fan_speed_rpm", Resource: "gpu-r01-01/fan1", Value: 4200.5, Time: time.Unix(1767225600, 250_000_000).UTC()}
	if err != nil || !ok {
		t.Fatalf("ok %v, error %v", ok, err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for _, skip := range []string{"", "# TYPE x gauge", "# EOF", "   "} {
		if _, ok, err := Parse(skip); ok || err != nil {
			t.Errorf("%q: ok %v, error %v", skip, ok, err)
		}
	}
	for _, bad := range []string{
		"x", "x 1", `x{resource="a} 1 2`, `x{resource=a} 1 2`, `x{resource="a"} one 2`, `x{resource="a"} 1 NaN`, `{resource="a"} 1 2`,
	} {
		if _, _, err := Parse(bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
	if _, _, err := Parse("x 1 2"); !errors.Is(err, ErrNoResource) {
		t.Errorf("error %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`x{resource="a\"b",y="c"} 1 2`)
	f.Add("x 1 2")
	f.Fuzz(func(t *testing.T, line string) {
		s, ok, err := Parse(line)
		if ok && (err != nil || s.Metric == "" || s.Resource == "") {
			t.Errorf("%q: %+v, error %v", line, s, err)
		}
	})
}

func TestMetricsBecomeEvents(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(1767225600+int64(s), 0).UTC() }
	cases := []struct {
		name, metric string
		values       []float64
		want         []string
	}{
		{"a supply that loses its input and gets it back", "auspex_psu_input_power_watts", []float64{400, 410, 0, 0, 390}, []string{
			"120 psu.input_lost/input raised", "240 psu.input_lost/input cleared",
		}},
		{"a supply that never had input", "auspex_psu_input_power_watts", []float64{0, 0, 0}, nil},
		{"an inlet that gets hot, with hysteresis", "auspex_server_inlet_temperature_celsius", []float64{25, 36, 34, 36, 32}, []string{
			"60 temp.inlet_high/inlet raised", "240 temp.inlet_high/inlet cleared",
		}},
		{"an XID that was there before says nothing", "DCGM_FI_DEV_XID_ERRORS", []float64{31, 31, 79}, []string{"120 gpu.xid/79 "}},
		{
			"corrected errors count only when they are many", "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
			[]float64{0, 1, 2, 30},
			[]string{"180 gpu.ecc_ce_rate/HBM "},
		},
		{"an uncorrected error counts at once", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", []float64{0, 0, 1, 1}, []string{"120 gpu.ecc_ue/DRAM "}},
		{"reasons are bits", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", []float64{1, 0x81, 1}, []string{
			"60 gpu.clocks_throttled/HW_POWER_BRAKE raised", "120 gpu.clocks_throttled/HW_POWER_BRAKE cleared",
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := NewReader()
			for i, v := range c.values {
				if err := r.Add(Sample{c.metric, "r", at(i * 60), v}); err != nil {
					t.Fatal(err)
				}
			}
			var got []string
			for _, ev := range r.Events() {
				got = append(got, ev.Time.Sub(at(0)).Truncate(time.Second).String()+" "+ev.Type+"/"+ev.Code+" "+ev.State)
			}
			var want []string
			for _, w := range c.want {
				var sec int
				n := 0
				for n < len(w) && w[n] != ' ' {
					sec = sec*10 + int(w[n]-'0')
					n++
				}
				want = append(want, (time.Duration(sec)*time.Second).String()+w[n:])
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
		})
	}
	r := NewReader()
	_ = r.Add(Sample{"DCGM_FI_DEV_GPU_TEMP", "r", at(60), 50})
	if err := r.Add(Sample{"DCGM_FI_DEV_GPU_TEMP", "r", at(0), 50}); err == nil {
		t.Error("a sample that runs backwards is taken")
	}
}

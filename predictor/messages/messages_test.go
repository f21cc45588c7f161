package messages

import "testing"

func TestTextFillsTheTemplate(t *testing.T) {
	args := map[string]any{"part": "fan3", "server": "gpu-r05-02", "limit": 6000.0, "unit": "rpm", "in": "9 min"}
	for _, tc := range []struct{ id, want string }{
		{Falls, "fan3 of gpu-r05-02 falls below 6,000 rpm in about 9 min."},
		{Below, "fan3 of gpu-r05-02 fell below 6,000 rpm."},
		{"unknown", "unknown"},
	} {
		if got := Text(tc.id, args); got != tc.want {
			t.Errorf("%s says %q, want %q", tc.id, got, tc.want)
		}
	}
	for f, want := range map[float64]string{-10: "-10", 1234567: "1,234,567", -1234.5: "-1,234.5", 0.25: "0.25", 100: "100"} {
		if got := Number(f); got != want {
			t.Errorf("%v is written %q, want %q", f, got, want)
		}
	}
}

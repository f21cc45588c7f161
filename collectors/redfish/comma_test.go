package redfish

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"auspex/collectors/collectortest"
)

// A service that writes numbers in its own language gives none that anybody can be
// sure of: they are counted and named, and are neither readings nor states.
func TestNumbersWithADecimalCommaAreNamedAndNotRead(t *testing.T) {
	for name, c := range map[string]struct {
		d   *device
		bad float64
		say string
	}{
		"sensors": {newDevice(t, sensors(
			doc{"Name": "Inlet", "Reading": "23,5", "ReadingType": "Temperature", "ReadingUnits": "Cel", "PartNumber": "12,3"},
			doc{
				"Name": "Outlet", "Reading": "35.5", "ReadingType": "Temperature", "ReadingUnits": "Cel",
				"Thresholds": doc{"UpperCritical": doc{"Reading": "70,0"}},
			},
		)), 3, "property=Reading"}, // and one that the service lacks
		"a report": {newDevice(t, reportOf([]any{
			valueAt("CPU", "/redfish/v1/Chassis/1/Sensors/A#/Reading", "35.5", collectortest.Now),
			valueAt("Inlet", "/redfish/v1/Chassis/1/Sensors/B#/Reading", "-23,5", collectortest.Now),
		})), 2, "property=Inlet"}, // likewise
	} {
		t.Run(name, func(t *testing.T) {
			var log strings.Builder
			c.d.r.s.Log = slog.New(slog.NewTextHandler(&log, nil))
			bad := testutil.ToFloat64(c.d.r.bad)
			c.d.poll()
			var values []float64
			for name, v := range c.d.got {
				if !strings.HasPrefix(name, "auspex_server_power_on") {
					values = append(values, v...)
				}
			}
			if len(values) == 0 || slices.ContainsFunc(values, func(v float64) bool { return v != 35.5 }) {
				t.Errorf("read %v", c.d.got)
			}
			if n := testutil.ToFloat64(c.d.r.bad) - bad; n != c.bad {
				t.Errorf("%v values counted, want %v", n, c.bad)
			}
			if strings.Count(log.String(), "decimal comma") != 1 || !strings.Contains(log.String(), c.say) {
				t.Errorf("log: %s", log.String())
			}
		})
	}
}

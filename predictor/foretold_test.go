package predictor

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"auspex/schemas/faults/propagation"
)

// TestRecordsOfFaultsNameTheLimitsThatForetellThem keeps the record of
// predictions honest: a limit that is added here has its misses counted there.
func TestRecordsOfFaultsNameTheLimitsThatForetellThem(t *testing.T) {
	limits, err := ReadLimits("")
	if err != nil {
		t.Fatal(err)
	}
	have, want := map[string][]string{}, map[string][]string{}
	for _, l := range limits {
		have[l.Failure] = append(have[l.Failure], l.Metric)
	}
	m := propagation.Default()
	for _, fault := range m.Foretold() {
		want[fault] = m.Records[fault].ForetoldBy
	}
	for _, metrics := range []map[string][]string{have, want} {
		for _, names := range metrics {
			slices.Sort(names)
		}
	}
	if d := cmp.Diff(want, have); d != "" {
		t.Error(d)
	}
}

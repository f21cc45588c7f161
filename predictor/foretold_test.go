package predictor

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"auspex/schemas"
)

// TestFaultsOfTheBuiltInLimitsAreThoseCountedAsMissed keeps the record of
// predictions honest: a limit that is added here has its misses counted there.
func TestFaultsOfTheBuiltInLimitsAreThoseCountedAsMissed(t *testing.T) {
	limits, err := ReadLimits("")
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, l := range limits {
		have = append(have, l.Failure)
	}
	slices.Sort(have)
	if d := cmp.Diff(slices.Sorted(slices.Values(schemas.PredictedFaults)), slices.Compact(have)); d != "" {
		t.Error(d)
	}
}

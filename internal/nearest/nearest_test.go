package nearest_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"auspex/internal/nearest"
)

func TestNearestWordsComeFirst(t *testing.T) {
	known := []string{"gpu-r01-03", "gpu-r01-02", "gpu-r11-03", "leaf-r01", "gpu-r01-02", "机柜甲", "机柜乙"}
	for _, tc := range []struct {
		word string
		n    int
		want []string
	}{
		{"gpu-r01-3", 2, []string{"gpu-r01-03", "gpu-r01-02"}},
		{"gpu-r01-03", 1, []string{"gpu-r01-03"}},
		{"gpu-r01-02", 9, []string{"gpu-r01-02", "gpu-r01-03", "gpu-r11-03"}},
		{"机柜丙", 2, []string{"机柜乙", "机柜甲"}},
		{"completely-else", 3, []string{}},
		{"", 3, []string{}},
	} {
		if d := cmp.Diff(tc.want, nearest.Words(tc.word, slices.Values(known), tc.n)); d != "" {
			t.Errorf("%q: %s", tc.word, d)
		}
	}
}

package textfile

import (
	"slices"
	"testing"
)

func TestALineIsSplitIntoCells(t *testing.T) {
	for line, want := range map[string][]string{
		"a, b ,c":     {"a", "b", "c"},
		`"a","b,c",d`: {"a", "b,c", "d"},
		`a,5"disk,`:   {"a", `5"disk`, ""},
		"":            {""},
	} {
		if got, err := Cells(line); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v", line, got, err)
		}
	}
}

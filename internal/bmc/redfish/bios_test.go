package redfish

import (
	"slices"
	"testing"
)

// Some services tell a truth as a text, in letters of their own.
func TestATruthThatIsToldAsATextIsOne(t *testing.T) {
	is := Object{"A": "True", "B": "FALSE", "C": "True", "D": true, "E": "Enabled", "F": 10.0}
	off := Differing(is, map[string]string{"A": "true", "B": "false", "C": "false", "D": "true", "E": "enabled", "F": "10"})
	if !slices.Equal(off, []string{"C", "E"}) {
		t.Error(off)
	}
}

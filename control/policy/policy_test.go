package policy

import (
	"strings"
	"testing"
)

func TestTheBuiltInPoliciesHold(t *testing.T) {
	s := Default()
	if p, ok := s.For("gpu.fallen_off_bus"); !ok || !p.Destroys() {
		t.Error("no ladder that brings a lost GPU back")
	}
	if p, ok := s.For("power.feed_loss"); !ok || p.Destroys() {
		t.Error("a feed's loss must not touch servers")
	}
}

func TestAPolicyThatCannotHoldIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"policies: [{name: a, faults: [x], ladder: [{kind: uncordon, needs: [drain]}]}]":                               "needs drain, which is not an earlier rung",
		"policies: [{name: a, faults: [x], ladder: [{kind: power_cycle, destructive: true}]}]":                         "has no verify time",
		"policies: [{name: a, faults: [x], ladder: [{kind: drain}]}, {name: b, faults: [x], ladder: [{kind: drain}]}]": "already in policy a",
		"policies: [{name: a, min_confidence: 2, faults: [x], ladder: [{kind: drain}]}]":                               "a probability is 0 to 1",
		"policies: [{name: a, faults: [x], ladder: [{kind: power-cycle, person: true}]}]":                              `unknown rung "power-cycle"; the nearest known is power_cycle`,
		"policies: [{name: a, faults: [x], ladder: [{kind: sing, person: true}]}]":                                     `unknown rung "sing"`,
		"policies: [{name: a, faults: [x], ladder: [{person: true}]}]":                                                 `unknown rung ""`,
		"polices: []": "not found",
	} {
		if _, err := parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

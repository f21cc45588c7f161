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
		"policies: [{name: a, faults: [x], ladder: [{kind: uncordon, needs: [drain]}]}]":                               "needs drain, which is not before it",
		"policies: [{name: a, faults: [x], ladder: [{kind: power_cycle, destructive: true}]}]":                         "no time to verify",
		"policies: [{name: a, faults: [x], ladder: [{kind: drain}]}, {name: b, faults: [x], ladder: [{kind: drain}]}]": "already in policy a",
		"policies: [{name: a, min_confidence: 2, faults: [x], ladder: [{kind: drain}]}]":                               "is a probability",
		"polices: []": "not found",
	} {
		if _, err := parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

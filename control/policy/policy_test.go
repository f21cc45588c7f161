package policy

import (
	"strings"
	"testing"

	"auspex/schemas/faults/propagation"
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

func TestAPolicyTakesWhatItListsElseWhatNamesIt(t *testing.T) {
	const ladder = "ladder: [{kind: ticket, person: true}]"
	s, err := parse([]byte("policies: [{name: network, " + ladder + "}, {name: cooling, faults: [gpu.gsp_hang], " + ladder + "}]"))
	if err != nil {
		t.Fatal(err)
	}
	for fault, want := range map[string]string{
		"network.link_flap": "network", "gpu.gsp_hang": "cooling", "cooling.air_supply": "", "gpu.fallen_off_bus": "", "site.leak": "",
	} {
		if p, _ := s.For(fault); p.Name != want {
			t.Errorf("%s is for %q, want %q", fault, p.Name, want)
		}
	}
	s.Follow(func(string) string { return "network" })
	if p, _ := s.For("site.leak"); p.Name != "network" {
		t.Errorf("a fault of the site is for %q", p.Name)
	}
}

func TestEveryFaultOfABuiltInRecordFindsThePolicyThatItNames(t *testing.T) {
	s, m := Default(), propagation.Default()
	for fault, r := range m.Records {
		if p, _ := s.For(fault); p.Name != r.Policy {
			t.Errorf("%s names %q and finds %q", fault, r.Policy, p.Name)
		}
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

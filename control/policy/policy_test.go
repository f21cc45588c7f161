package policy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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

func TestARungHasItsParametersAsTheyWereWritten(t *testing.T) {
	s, err := parse([]byte("policies: [{name: a, faults: [x], ladder: [{kind: configure_gpu, with: {power_limit: 500, application_clocks: '2619,1980', mig: false}}, {kind: validate}]}]"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"power_limit": "500", "application_clocks": "2619,1980", "mig": "false"}
	if got := s.Policies[0].Ladder[0].With.Values(); !cmp.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
	if got := s.Policies[0].Ladder[1].With.Values(); len(got) != 0 {
		t.Error(got)
	}
}

func TestAPolicyThatCannotHoldIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"policies: [{name: a, faults: [x], ladder: [{kind: uncordon, needs: [drain]}]}]":                               "needs drain, which is not an earlier rung",
		"policies: [{name: a, faults: [x], ladder: [{kind: power_cycle, destructive: true}]}]":                         "has no verify time",
		"policies: [{name: a, faults: [x], ladder: [{kind: drain}]}, {name: b, faults: [x], ladder: [{kind: drain}]}]": "already in policy a",
		"policies: [{name: a, foretold: {}, ladder: [{kind: drain}]}]":                                                 "foretold needs faults",
		"policies: [{name: a, faults: [x], foretold: {within: -1h}, ladder: [{kind: drain}]}]":                         "within is negative",
		"policies: [{name: a, faults: [x], ladder: [{kind: reboot, idle: true, verify: 1m}]}]":                         "idle is for what takes a server out: drain and cordon",
		"policies: [{name: a, min_confidence: 2, faults: [x], ladder: [{kind: drain}]}]":                               "a probability is 0 to 1",
		"policies: [{name: a, faults: [x], ladder: [{kind: power-cycle, person: true}]}]":                              `unknown rung "power-cycle"; the nearest known is power_cycle`,
		"policies: [{name: a, faults: [x], ladder: [{kind: sing, person: true}]}]":                                     `unknown rung "sing"`,
		"policies: [{name: a, faults: [x], ladder: [{person: true}]}]":                                                 `unknown rung ""`,
		"policies: [{name: a, faults: [x], ladder: [{kind: configure_gpu}]}]":                                          "it needs settings",
		"policies: [{name: a, faults: [x], ladder: [{kind: drain, with: {level: 2}}]}]":                                "rung drain: line 1: it takes no parameters",
		"policies:\n- name: a\n  faults: [x]\n  ladder:\n  - kind: configure_gpu\n    with:\n      power_limt: 5":      `rung configure_gpu: line 7: unknown parameter "power_limt"; the nearest known is power_limit`,
		"policies: [{name: a, faults: [x], ladder: [{kind: configure_gpu, with: {power_limit: 5kW}}]}]":                `line 1: power_limit: "5kW" is no number of watts`,
		"policies: [{name: a, faults: [x], ladder: [{kind: configure_gpu, with: {application_clocks: 1980}}]}]":        `"1980" is no pair of clocks`,
		"policies: [{name: a, faults: [x], ladder: [{kind: configure_gpu, with: {ecc: yes}}]}]":                        `"yes" is neither true nor false`,
		"policies: [{name: a, faults: [x], ladder: [{kind: validate, with: {level: 4}}]}]":                             `"4" is none of 1 to 3`,
		"policies: [{name: a, faults: [x], ladder: [{kind: validate, with: [2]}]}]":                                    "with is parameters and their values",
		"policies: [{name: a, faults: [x], ladder: [{kind: validate, with: {level: [2]}}]}]":                           "level has a value that is none",
		"policies: [{name: a, faults: [x], ladder: [{kind: validate, with: {level: 1, level: 2}}]}]":                   "level",
		"polices: []": "not found",
	} {
		if _, err := parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestAPolicyIsForWhatIsForetoldOrForWhatHasCome(t *testing.T) {
	s, err := parse([]byte("policies: [{name: a, faults: [cooling.fan_failure], foretold: {}, ladder: [{kind: drain, idle: true}]}, " +
		"{name: b, faults: [cooling.fan_failure], ladder: [{kind: drain}]}, {name: c, faults: [gpu.fallen_off_bus], foretold: {}, ladder: [{kind: drain}]}]"))
	if err != nil {
		t.Fatal(err)
	}
	before, _ := s.Before("cooling.fan_failure")
	after, _ := s.For("cooling.fan_failure")
	if before.Name != "a" || after.Name != "b" {
		t.Error(before.Name, after.Name)
	}
	if _, ok := s.For("gpu.fallen_off_bus"); ok {
		t.Error("what has come has the policy of what is foretold")
	}
	want := "policy c is for predictions of gpu.fallen_off_bus, which no metric foretells"
	if got := s.Missing(propagation.Default()); len(got) != 1 || !strings.HasPrefix(got[0], want) {
		t.Error(got)
	}
}

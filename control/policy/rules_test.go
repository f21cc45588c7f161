package policy

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"auspex/schemas"
)

// TestModesNeverLoosen draws policies and rules: what control may do is never more than its mode as a whole, the policy's,
// or that of a rule that matches, and one more rule never lets it do more.
func TestModesNeverLoosen(t *testing.T) {
	words := []string{"", "a", "b", "a*", "?"}
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 11))
		pick := func(from []string) string { return from[r.IntN(len(from))] }
		mode := func() string { return pick(append([]string{""}, modes...)) }
		var s Set
		p := Policy{Mode: mode()}
		at := Scene{Policy: pick([]string{"", "a", "b"}), Fault: pick([]string{"", "a", "ab"}), Pools: []string{pick([]string{"a", "b"})}, Rung: pick([]string{"", "a"})}
		whole := pick(modes)
		before, always, asked := s.Mode(whole, &p, at), 0, 1
		for range 1 + r.IntN(5) {
			s.Rules = append(s.Rules, Rule{Policy: pick(words), Fault: pick(words), Pool: pick(words), Rung: pick(words), Mode: mode(), Approvals: r.IntN(3)})
			now := s.Mode(whole, &p, at)
			a, n := s.Approvals(&p, &Rung{}, at)
			if Stricter(now, before) != now || a < always || n < asked || n < a {
				t.Fatalf("seed %d: %s after %s, %d and %d after %d and %d", seed, now, before, a, n, always, asked)
			}
			before, always, asked = now, a, n
		}
		bounds := []string{whole, p.Mode}
		for i := range s.Rules {
			if s.Rules[i].matches(at) {
				bounds = append(bounds, s.Rules[i].Mode)
			}
		}
		for _, bound := range bounds {
			if Stricter(before, bound) != before {
				t.Fatalf("seed %d: %s, and %s bounds it", seed, before, bound)
			}
		}
		if !slices.Contains(bounds, before) {
			t.Fatalf("seed %d: %s is nobody's mode", seed, before)
		}
	}
}

func TestRulesAreForWhatTheyName(t *testing.T) {
	s, err := parse([]byte(`
rules:
  - {policy: "gpu-*", mode: approve}
  - {fault: gpu.memory_uncorrectable, mode: dry-run}
  - {pool: "lab-?", mode: observe}
  - {rung: ac_cycle, mode: approve, approvals: 2}
  - {pool: prod, approvals: 2}
policies:
  - {name: gpu-lost, faults: [gpu.fallen_off_bus], ladder: [{kind: drain}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	p := &s.Policies[0]
	for _, c := range []struct {
		at            Scene
		mode          string
		always, asked int
	}{
		{Scene{Policy: "gpu-lost", Fault: "gpu.fallen_off_bus"}, schemas.ModeApprove, 0, 1},
		{Scene{Policy: "gpu-lost", Fault: "gpu.memory_uncorrectable"}, schemas.ModeDryRun, 0, 1},
		{Scene{Policy: "network", Fault: "x", Pools: []string{"lab-1"}}, schemas.ModeObserve, 0, 1},
		{Scene{Policy: "network", Fault: "x", Pools: []string{"lab-10", "prod"}}, schemas.ModeEnforce, 0, 2},
		{Scene{Policy: "network", Fault: "x", Rung: "ac_cycle"}, schemas.ModeApprove, 2, 2},
		{Scene{Rung: "ac_cycle", Pools: []string{"lab-1"}}, schemas.ModeObserve, 2, 2}, // what somebody asks for
		{Scene{Rung: "power_off"}, schemas.ModeEnforce, 0, 1},
	} {
		always, asked := s.Approvals(p, &Rung{Kind: c.at.Rung}, c.at)
		if got := s.Mode(schemas.ModeEnforce, p, c.at); got != c.mode || always != c.always || asked != c.asked {
			t.Errorf("%+v: %s %d %d, want %s %d %d", c.at, got, always, asked, c.mode, c.always, c.asked)
		}
	}
}

func TestWhatIsWrongIsSaidWithItsFileAndLine(t *testing.T) {
	for text, want := range map[string]string{
		"policies:\n- name: a\n  faults: [x]\n  mode: force\n  ladder: [{kind: drain}]":                                                                                   `:4: policy a: unknown mode "force"`,
		"policies:\n- name: a\n  faults: [x]\n  ladder:\n  - {kind: drain}\n  - {kind: cycle, person: true}":                                                              `:6: policy a: unknown rung "cycle"`,
		"policies:\n- name: a\n  faults: [x]\n  ladder:\n  - {kind: drain, needs: [reboot]}\n  - {kind: reboot, needs: [validate]}\n  - {kind: validate, needs: [drain]}": ":5: policy a: rung drain needs reboot, which is not an earlier rung: they need one another in a circle, drain → reboot → validate → drain",
		"policies:\n- name: a\n  faults: [x]\n  ladder:\n  - {kind: drain, needs: [drain]}":                                                                               ":5: policy a: rung drain needs itself",
		"policies:\n- name: a\n  faults: [x]\n  ladder:\n  - {kind: replace, person: true}\n  - {kind: drain, needs: [replace]}":                                          ":6: policy a: rung drain needs replace, which is for a person",
		"budgets: {fleet: 4,\n  rack: 0}\npolicies:\n- name: a\n  faults: [x]\n  ladder: [{kind: drain}]":                                                                 ":2: budgets: rack is 0",
		"budgets: {fleet: -1}": ":1: budgets: fleet is negative",
		"breaker: {cases: 0, window: 1m}\npolicies:\n- name: a\n  faults: [x]\n  ladder: [{kind: reboot, destructive: true, verify: 1m}]": ":1: breaker: cases is 0",
		"rules:\n- {mode: observe}\n- {pool: a}":                                         ":3: rule 2: one of mode and approvals is required",
		"rules:\n- {rung: drain, mode: observe}":                                         ":2: rule 1: a rung may have the mode approve",
		"rules:\n- {rung: power-cycle, approvals: 2}":                                    `:2: rule 1: unknown rung "power-cycle"; the nearest known is power_cycle`,
		"rules:\n- {pool: '[', approvals: 2}":                                            `:2: rule 1: pool "["`,
		"policies:\n- name: a\n  faults: [x]\n  approvals: 3\n  ladder: [{kind: drain}]": ":4: policy a: approvals is 3; want 1 or 2",
		"policies:\n- name: a\n  faults: [x]\n  ladder: [{kind: drain, quorum: 4}]":      ":4: policy a: rung drain: quorum is 4; want 1 to 3",
		"policies:\n- name: a\n  faults: [x]\n  ladder: [{kind: drain, attempts: -1}]":   ":4: policy a: rung drain: verify, cool_down and attempts are not negative",
	} {
		name := filepath.Join(t.TempDir(), "policy.yaml")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(name); err == nil || !strings.Contains(err.Error(), name+want) {
			t.Errorf("%s\n%v\nwant %s", text, err, want)
		}
	}
}

// TestPoliciesOfTodayLoadUnchanged reads the built-in one and those of end-to-end tests: what they do not say
// narrows nothing.
func TestPoliciesOfTodayLoadUnchanged(t *testing.T) {
	for _, name := range []string{"", "../../internal/e2e/testdata/policy.yaml", "../../internal/e2e/testdata/reload.yaml", "../../internal/e2e/testdata/validate.yaml"} {
		s, err := Read(name)
		if err != nil {
			t.Fatal(err)
		}
		for i := range s.Policies {
			p := &s.Policies[i]
			at := Scene{Policy: p.Name, Fault: "gpu.fallen_off_bus", Pools: []string{"default"}}
			if got := s.Mode(schemas.ModeEnforce, p, at); got != schemas.ModeEnforce {
				t.Errorf("%s: %s is in mode %s", name, p.Name, got)
			}
			for j := range p.Ladder {
				if always, asked := s.Approvals(p, &p.Ladder[j], at); always != 0 || asked != 1 {
					t.Errorf("%s: %s of %s asks for %d and %d", name, p.Ladder[j].Kind, p.Name, always, asked)
				}
			}
		}
	}
}

func TestWhatCutsThePowerNeedsTwoViews(t *testing.T) {
	for _, c := range []struct {
		rung    Rung
		outside bool
		want    int
	}{
		{Rung{Kind: "power_cycle"}, false, 2},
		{Rung{Kind: "ac_cycle"}, false, 2},
		{Rung{Kind: "power_off"}, false, 2},
		{Rung{Kind: "reboot"}, false, 1},
		{Rung{Kind: "reboot"}, true, 2},
		{Rung{Kind: "reset_gpu"}, false, 1},
		{Rung{Kind: "drain"}, false, 1},
		{Rung{Kind: "power_cycle", Quorum: 1}, false, 1},
		{Rung{Kind: "reset_gpu", Quorum: 2}, false, 2},
		{Rung{Kind: "power_cycle", Person: true}, true, 0},
	} {
		if got := c.rung.Signs(c.outside); got != c.want {
			t.Errorf("%+v, outside %v: %d, want %d", c.rung, c.outside, got, c.want)
		}
	}
}

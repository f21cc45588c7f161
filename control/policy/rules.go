package policy

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"auspex/internal/nearest"
	"auspex/schemas"
)

// modes are the modes of control, from the least to the most that it may do.
var modes = []string{schemas.ModeObserve, schemas.ModeDryRun, schemas.ModeApprove, schemas.ModeEnforce}

// Modes returns the modes of control, from the least to the most that it may do.
func Modes() []string { return slices.Clone(modes) }

// Stricter returns the mode that lets control do less. "" says nothing; what is no mode is the strictest.
func Stricter(a, b string) string {
	switch {
	case a == "":
		return b
	case b == "":
		return a
	case max(0, slices.Index(modes, b)) < max(0, slices.Index(modes, a)):
		return b
	}
	return a
}

// MostApprovals is how many persons a step can need at most.
const MostApprovals = 2

// Rule narrows what control may do where it matches. Of all that match the strictest counts, beside the mode of the
// policy; none allows more than the mode of control as a whole.
type Rule struct {
	// What it is for: names with * and ? as in a shell; "" is everything. A rule that names a policy or a
	// fault is not for what somebody asks for, which has neither.
	Policy string `yaml:"policy"`
	Fault  string `yaml:"fault"`
	Pool   string `yaml:"pool"`
	Rung   string `yaml:"rung"` // a kind (formats, section 5)
	// Mode is the most that may be done; of a rung, approve alone is one: the others are of a whole ladder.
	Mode string `yaml:"mode"`
	// Approvals is how many persons must approve a step that waits for a person; of a rung in every mode.
	Approvals int `yaml:"approvals"`
}

// Scene is what rules are held against.
type Scene struct {
	Policy, Fault string   // "" of what somebody asks for
	Pools         []string // of the server
	Rung          string   // "" is the ladder as a whole
}

// matches reports whether a rule is for a scene.
func (r *Rule) matches(s Scene) bool {
	return like(r.Policy, s.Policy) && like(r.Fault, s.Fault) && like(r.Rung, s.Rung) &&
		(r.Pool == "" || slices.ContainsFunc(s.Pools, func(pool string) bool { return like(r.Pool, pool) }))
}

// like reports whether a name is as a pattern says; no name is like none but the empty one.
func like(pattern, name string) bool {
	if pattern == "" || pattern == name {
		return true
	}
	ok, err := path.Match(pattern, name)
	return name != "" && err == nil && ok
}

// NamesPools reports whether any rule is for pools.
func (s *Set) NamesPools() bool {
	return slices.ContainsFunc(s.Rules, func(r Rule) bool { return r.Pool != "" })
}

// Mode is what control may do in a scene: the strictest of the mode of control as a whole, that of the
// policy, and those of the rules that match.
func (s *Set) Mode(whole string, p *Policy, at Scene) string {
	mode := Stricter(whole, p.Mode)
	for i := range s.Rules {
		if s.Rules[i].matches(at) {
			mode = Stricter(mode, s.Rules[i].Mode)
		}
	}
	return mode
}

// Approvals are how many persons must approve a rung: always, in whichever mode, and where a person must at all.
func (s *Set) Approvals(p *Policy, r *Rung, at Scene) (always, asked int) {
	always, asked = r.Approvals, p.Approvals
	for i := range s.Rules {
		rule := &s.Rules[i]
		switch {
		case !rule.matches(at):
		case rule.Rung != "":
			always = max(always, rule.Approvals)
		default:
			asked = max(asked, rule.Approvals)
		}
	}
	return always, max(1, always, asked)
}

// powers are the kinds of rungs that take the power of a server away.
var powers = []string{"power_cycle", kindACCycle, kindPowerOff}

// DefaultQuorum is the Quorum of a rung that takes the power of a server away, or restarts it from
// outside, and names none.
const DefaultQuorum = 2

// Signs is how many views must agree before the rung; outside says that it is done past the host,
// through the board controller or the mains.
func (r *Rung) Signs(outside bool) int {
	switch {
	case r.Person:
		return 0
	case r.Quorum > 0:
		return r.Quorum
	case outside && r.EndsWhatRuns() || slices.Contains(powers, r.Kind):
		return DefaultQuorum
	}
	return 1
}

func (r *Rule) check(n int) error {
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("rule %d: "+format, append([]any{n}, args...)...))
	}
	if r.Mode == "" && r.Approvals == 0 {
		wrong("one of mode and approvals is required")
	}
	if r.Mode != "" {
		if err := checkMode(r.Mode); err != nil {
			wrong("%w", err)
		}
	}
	if r.Rung != "" && r.Mode != "" && r.Mode != schemas.ModeApprove {
		wrong("a rung may have the mode approve; %s is of a ladder as a whole", r.Mode)
	}
	if err := checkApprovals(r.Approvals); err != nil {
		wrong("%w", err)
	}
	for _, of := range []struct{ key, pattern string }{{"policy", r.Policy}, {"fault", r.Fault}, {"pool", r.Pool}, {"rung", r.Rung}} {
		if _, err := path.Match(of.pattern, ""); err != nil {
			wrong("%s %q: %w", of.key, of.pattern, err)
		}
	}
	if known := schemas.ActionKinds(); r.Rung != "" && !slices.ContainsFunc(known, func(kind string) bool { return like(r.Rung, kind) }) {
		wrong("unknown rung %q%s", r.Rung, nearestOf(r.Rung, known))
	}
	return errors.Join(errs...)
}

func checkMode(mode string) error {
	if slices.Contains(modes, mode) {
		return nil
	}
	return fmt.Errorf("unknown mode %q; known are %s", mode, strings.Join(modes, ", "))
}

func checkApprovals(n int) error {
	if n < 0 || n > MostApprovals {
		return fmt.Errorf("approvals is %d; want 1 or %d", n, MostApprovals)
	}
	return nil
}

// nearestOf ends a sentence about an unknown word.
func nearestOf(word string, known []string) string {
	if near := nearest.Words(word, slices.Values(known), 1); len(near) > 0 {
		return "; the nearest known is " + near[0]
	}
	return ""
}

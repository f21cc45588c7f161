package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"auspex/schemas"
)

// lines finds where something stands in a policy file.
type lines struct{ doc *yaml.Node }

// of returns the line of what a path of keys and indexes leads to, or of the last of it that is there; 0 is unknown.
func (l lines) of(path ...any) int {
	n := l.doc
	if n.Kind == yaml.DocumentNode && len(n.Content) > 0 {
		n = n.Content[0]
	}
	for _, step := range path {
		next := child(n, step)
		if next == nil {
			break
		}
		n = next
	}
	return n.Line
}

// has reports whether a key was written.
func (l lines) has(path ...any) bool {
	n := l.doc
	if n.Kind == yaml.DocumentNode && len(n.Content) > 0 {
		n = n.Content[0]
	}
	for _, step := range path {
		if n = child(n, step); n == nil {
			return false
		}
	}
	return true
}

func child(n *yaml.Node, step any) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch step := step.(type) {
	case int:
		if n.Kind == yaml.SequenceNode && step < len(n.Content) {
			return n.Content[step]
		}
	case string:
		for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == step {
				return n.Content[i+1]
			}
		}
	}
	return nil
}

// wrong is what is wrong at a line.
type wrong struct {
	error
	line int
}

// validate says all that is wrong, and gives rungs their defaults.
func (s *Set) validate(at lines) (found []wrong) {
	add := func(line int, err error) {
		if err != nil {
			found = append(found, wrong{err, line})
		}
	}
	for i := range s.Budgets.Limits {
		add(at.of("budgets", "limits", i), s.Budgets.Limits[i].check(i+1))
	}
	for i := range s.Rules {
		add(at.of("rules", i), s.Rules[i].check(i+1))
	}
	seen := map[bool]map[string]string{false: {}, true: {}} // by whether it is foretold
	for i := range s.Policies {
		p := &s.Policies[i]
		here := at.of("policies", i)
		if p.Name == "" || len(p.Ladder) == 0 {
			add(here, fmt.Errorf("policy %d: name and ladder are required", i+1))
		}
		if p.MinConfidence < 0 || p.MinConfidence > 1 {
			add(at.of("policies", i, "min_confidence"), fmt.Errorf("policy %s: min_confidence is %g; a probability is 0 to 1", p.Name, p.MinConfidence))
		}
		if p.Mode != "" {
			if err := checkMode(p.Mode); err != nil {
				add(at.of("policies", i, "mode"), fmt.Errorf("policy %s: %w", p.Name, err))
			}
		}
		if err := checkApprovals(p.Approvals); err != nil {
			add(at.of("policies", i, "approvals"), fmt.Errorf("policy %s: %w", p.Name, err))
		}
		if p.Settle < 0 || p.MaxEvidenceAge < 0 {
			add(here, fmt.Errorf("policy %s: settle and max_evidence_age are not negative", p.Name))
		}
		if p.Foretold != nil && len(p.Faults) == 0 {
			add(at.of("policies", i, "foretold"), fmt.Errorf("policy %s: foretold needs faults: the records of faults name policies for what has come", p.Name))
		}
		if p.Foretold != nil && p.Foretold.Within < 0 {
			add(at.of("policies", i, "foretold", "within"), fmt.Errorf("policy %s: within is negative", p.Name))
		}
		for k, f := range p.Faults {
			if other, dup := seen[p.Foretold != nil][f]; dup {
				add(at.of("policies", i, "faults", k), fmt.Errorf("policy %s: fault %s is already in policy %s", p.Name, f, other))
			}
			seen[p.Foretold != nil][f] = p.Name
		}
		for j := range p.Ladder {
			for _, err := range p.checkRung(j) {
				add(at.of("policies", i, "ladder", j), fmt.Errorf("policy %s: %w", p.Name, err))
			}
		}
	}
	return append(found, s.spent(at)...)
}

// spent says which budgets that were written down let nothing through: a step would wait for them for ever.
func (s *Set) spent(at lines) (found []wrong) {
	acts, destroys := false, false
	for i := range s.Policies {
		acts = acts || slices.ContainsFunc(s.Policies[i].Ladder, func(r Rung) bool { return !r.Person })
		destroys = destroys || s.Policies[i].Destroys()
	}
	for _, b := range []struct {
		of, key string
		value   int
		matters bool
	}{
		{"budgets", "fleet", s.Budgets.Fleet, acts},
		{"budgets", "rack", s.Budgets.Rack, acts},
		{"budgets", "per_hour", s.Budgets.PerHour, destroys},
		{"breaker", "cases", s.Breaker.Cases, destroys},
		{"breaker", "window", int(s.Breaker.Window), destroys && s.Breaker.Cases > 0},
	} {
		switch line := at.of(b.of, b.key); {
		case !at.has(b.of, b.key):
		case b.value < 0:
			found = append(found, wrong{fmt.Errorf("%s: %s is negative", b.of, b.key), line})
		case b.value == 0 && b.matters:
			found = append(found, wrong{fmt.Errorf(
				"%s: %s is 0, so that the ladders of this file would wait for ever; to have nothing done, say mode: observe, or declare a freeze", b.of, b.key,
			), line})
		}
	}
	return found
}

// checkRung says what is wrong with a rung, and gives it its defaults.
func (p *Policy) checkRung(j int) (errs []error) {
	r := &p.Ladder[j]
	add := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if known := schemas.ActionKinds(); !slices.Contains(known, r.Kind) {
		add("unknown rung %q%s", r.Kind, nearestOf(r.Kind, known))
	}
	if r.Destructive && !r.Person && r.Quiet == 0 {
		r.Quiet = DefaultQuiet
	}
	if r.Quiet < 0 {
		add("quiet time of rung %s is negative", r.Kind)
	}
	if r.Verify < 0 || r.CoolDown < 0 || r.Attempts < 0 {
		add("rung %s: verify, cool_down and attempts are not negative", r.Kind)
	}
	if r.Idle && r.Kind != kindDrain && r.Kind != kindCordon {
		add("rung %s: idle is for what takes a server out: %s and %s", r.Kind, kindDrain, kindCordon)
	}
	if err := checkApprovals(r.Approvals); err != nil {
		add("rung %s: %w", r.Kind, err)
	}
	if r.Optional && r.Person {
		add("rung %s is for a person and optional: what people do is never skipped", r.Kind)
	}
	if views := len(schemas.Views()) - 1; r.Quorum < 0 || r.Quorum > views {
		add("rung %s: quorum is %d; want 1 to %d", r.Kind, r.Quorum, views)
	}
	for _, err := range r.With.check(r.Kind) {
		add("rung %s: %w", r.Kind, err)
	}
	if r.Kind == KindUncordon &&
		!slices.ContainsFunc(p.Ladder[:j], func(b Rung) bool { return b.Repairs() && slices.Contains(r.Needs, b.Kind) }) {
		errs = append(errs, errors.New("uncordon must name a repair in needs: an earlier rung with a quiet time"))
	}
	for _, n := range r.Needs {
		switch earlier := slices.IndexFunc(p.Ladder[:j], func(b Rung) bool { return b.Kind == n }); {
		case earlier >= 0 && p.Ladder[earlier].Person && !r.Person:
			add("rung %s needs %s, which is for a person: control never sees it done, so that the rung is never reached", r.Kind, n)
		case earlier >= 0:
		case n == r.Kind:
			add("rung %s needs itself", r.Kind)
		default:
			add("rung %s needs %s, which is not an earlier rung%s", r.Kind, n, p.circle(r.Kind, n))
		}
	}
	if r.Kind == KindCap && len(r.With.values) > 0 {
		add("rung %s takes no parameters in a ladder: how far each server comes down is worked out from what its feed carries", r.Kind)
	}
	if r.Kind == KindUncap && r.Quiet == 0 {
		r.Quiet = DefaultFeedQuiet
	}
	after := slices.IndexFunc(p.Ladder, func(b Rung) bool { return b.Kind == KindUncap })
	switch {
	case r.Kind == KindCap && after < j:
		add("rung %s needs an %s after it, or what it limits stays limited", r.Kind, KindUncap)
	case r.Kind == KindUncap && !slices.ContainsFunc(p.Ladder[:j], func(b Rung) bool { return b.Kind == KindCap }):
		add("rung %s is of no earlier %s", r.Kind, KindCap)
	case Limits(r.Kind) && p.Foretold != nil:
		add("rung %s is for a feed that is lost, and not for one that may be", r.Kind)
	}
	if r.Destructive && r.Verify <= 0 {
		add("rung %s is destructive and has no verify time", r.Kind)
	}
	return errs
}

// circle tells the way by which what a rung needs needs the rung itself; "" where there is none.
func (p *Policy) circle(kind, need string) string {
	var find func(at string, way []string) []string
	find = func(at string, way []string) []string {
		for i := range p.Ladder {
			if p.Ladder[i].Kind != at {
				continue
			}
			for _, n := range p.Ladder[i].Needs {
				if n == kind {
					return append(way, n)
				}
				if slices.Contains(way, n) {
					continue
				}
				if found := find(n, append(slices.Clone(way), n)); found != nil {
					return found
				}
			}
		}
		return nil
	}
	way := find(need, []string{kind, need})
	if way == nil {
		return ""
	}
	return ": they need one another in a circle, " + strings.Join(way, " → ")
}

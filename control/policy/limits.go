package policy

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"auspex/internal/nearest"
	"auspex/schemas"
)

// Limit bounds what control may take of servers that share something, beside the budgets of fleet and rack. Every limit that
// a server comes under must hold.
type Limit struct {
	Scope string `yaml:"scope"` // one of schemas.GroupScopes
	// Name is of the groups that it is for, with * and ? as in a shell; "" is each of the scope.
	Name string `yaml:"name"`
	// Held is how many servers of a group control may keep out of the pool, or a part of them in percent.
	Held Share `yaml:"held"`
	// PerHour is how many destructive steps control may take in a group in any hour; nil is no limit.
	PerHour *int `yaml:"per_hour"`
	// Keep is how many servers of a group, or which part of it, must stay in service whatever is repaired, and Free how many that
	// nobody has.
	Keep Share `yaml:"keep"`
	Free Share `yaml:"free"`
}

// Share is a number of servers, or a part of those that a group has.
type Share struct {
	N       int
	Percent bool
	Set     bool
}

// UnmarshalYAML reads "4" or "5%".
func (s *Share) UnmarshalYAML(n *yaml.Node) error {
	text, percent := strings.CutSuffix(n.Value, "%")
	v, err := strconv.Atoi(strings.TrimSpace(text))
	if n.Kind != yaml.ScalarNode || err != nil || v < 0 || percent && v > 100 {
		return fmt.Errorf("line %d: %q is no number of servers, and no part of them such as 5%%", n.Line, n.Value)
	}
	*s = Share{N: v, Percent: percent, Set: true}
	return nil
}

// MarshalYAML writes it as it is read.
func (s Share) MarshalYAML() (any, error) {
	switch {
	case !s.Set:
		return nil, nil
	case s.Percent:
		return strconv.Itoa(s.N) + "%", nil
	}
	return s.N, nil
}

// IsZero reports that nothing was set.
func (s Share) IsZero() bool { return !s.Set }

// AtMost is the number that may be taken of so many: a part is rounded down, but never to nothing unless it is nothing.
func (s Share) AtMost(of int) int {
	if !s.Percent {
		return s.N
	}
	return max(of*s.N/100, min(s.N, 1))
}

// AtLeast is the number that must stay of so many: a part is rounded up.
func (s Share) AtLeast(of int) int {
	if !s.Percent {
		return s.N
	}
	return (of*s.N + 99) / 100
}

// Covers reports whether a limit is for a group.
func (l *Limit) Covers(scope, name string) bool {
	if l.Scope != scope || name == "" {
		return false
	}
	ok, err := path.Match(l.Name, name)
	return l.Name == "" || err == nil && ok || l.Name == name
}

func (l *Limit) check(n int) error {
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("budgets: limit %d: "+format, append([]any{n}, args...)...))
	}
	if scopes := schemas.GroupScopes(); !slices.Contains(scopes, l.Scope) {
		if near := nearest.Words(l.Scope, slices.Values(scopes), 1); len(near) > 0 {
			wrong("unknown scope %q; the nearest known is %s", l.Scope, near[0])
		} else {
			wrong("unknown scope %q; known are %s", l.Scope, strings.Join(scopes, ", "))
		}
	}
	if _, err := path.Match(l.Name, ""); err != nil {
		wrong("name %q: %w", l.Name, err)
	}
	if !l.Held.Set && l.PerHour == nil && !l.Keep.Set && !l.Free.Set {
		wrong("one of held, per_hour, keep and free is required")
	}
	if l.PerHour != nil && *l.PerHour < 0 {
		wrong("per_hour is negative")
	}
	if (l.Keep.Set || l.Free.Set) && (l.Scope == schemas.ScopeJob || l.Scope == schemas.ScopeTenant) {
		wrong("keep and free are not for a %s: its servers are not interchangeable with others", l.Scope)
	}
	return errors.Join(errs...)
}

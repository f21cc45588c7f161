package policy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

func TestLimitsAreReadAndBadOnesSayWhat(t *testing.T) {
	s, err := parse([]byte(`budgets:
  fleet: 4
  limits:
    - {scope: feed, held: 2}
    - {scope: pool, name: "prod-*", held: 5%, per_hour: 0}
    - {scope: model, keep: 8, free: 10%}
`))
	if err != nil {
		t.Fatal(err)
	}
	zero := 0
	want := []Limit{
		{Scope: "feed", Held: Share{2, false, true}},
		{Scope: "pool", Name: "prod-*", Held: Share{5, true, true}, PerHour: &zero},
		{Scope: "model", Keep: Share{8, false, true}, Free: Share{10, true, true}},
	}
	if d := cmp.Diff(want, s.Budgets.Limits); d != "" {
		t.Error(d)
	}
	for limit, sentence := range map[string]string{
		"{scope: feeds, held: 2}":             `limit 1: unknown scope "feeds"; the nearest known is feed`,
		"{scope: everything, held: 2}":        `limit 1: unknown scope "everything"`,
		"{scope: feed}":                       "limit 1: one of held, per_hour, keep and free is required",
		"{scope: feed, held: -1}":             `line 1: "-1" is no number of servers`,
		"{scope: feed, held: 120%}":           `line 1: "120%" is no number of servers`,
		"{scope: feed, held: [2]}":            "is no number of servers",
		"{scope: feed, per_hour: -1}":         "limit 1: per_hour is negative",
		"{scope: job, keep: 1}":               "limit 1: keep and free are not for a job",
		"{scope: pool, name: '[', held: 1}":   `limit 1: name "["`,
		"{scope: pool, names: prod, held: 1}": "field names not found",
	} {
		if _, err := parse([]byte("budgets: {limits: [" + limit + "]}")); err == nil || !strings.Contains(err.Error(), sentence) {
			t.Errorf("%s: %v, want %q", limit, err, sentence)
		}
	}
}

func TestALimitIsForTheGroupsThatItNames(t *testing.T) {
	for _, c := range []struct {
		of          Limit
		scope, name string
		want        bool
	}{
		{Limit{Scope: "pool"}, "pool", "prod", true},
		{Limit{Scope: "pool"}, "pool", "", false},
		{Limit{Scope: "pool"}, "model", "prod", false},
		{Limit{Scope: "pool", Name: "prod-*"}, "pool", "prod-1", true},
		{Limit{Scope: "pool", Name: "prod-*"}, "pool", "test", false},
		{Limit{Scope: "feed", Name: "dc1/pdu-[a]"}, "feed", "dc1/pdu-[a]", true}, // a name that reads as a pattern is itself
	} {
		if got := c.of.Covers(c.scope, c.name); got != c.want {
			t.Errorf("%+v covers %s %s: %v", c.of, c.scope, c.name, got)
		}
	}
}

func TestAPartIsRoundedToTheSafeSide(t *testing.T) {
	for text, want := range map[string][3]int{ // of 10: at most, at least; of 3: at most
		"4": {4, 4, 4}, "0": {0, 0, 0}, "25%": {2, 3, 1}, "5%": {1, 1, 1}, "0%": {0, 0, 0}, "100%": {10, 10, 3},
	} {
		var s Share
		if err := yaml.Unmarshal([]byte(text), &s); err != nil {
			t.Fatal(err)
		}
		if got := [3]int{s.AtMost(10), s.AtLeast(10), s.AtMost(3)}; got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
		b, err := yaml.Marshal(s)
		if err != nil || strings.TrimSpace(string(b)) != text {
			t.Errorf("%s is written as %s (%v)", text, b, err)
		}
	}
}

package detect

import (
	"slices"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	promrules "github.com/prometheus/prometheus/rules"

	"auspex/schemas"
)

func TestARuleTellsWhichCountersHaveGrownWhereItSaysNothingElse(t *testing.T) {
	l := newLoader()
	for expr, want := range map[string][]string{
		`increase(a[1h]) > 0`: {"a"},
		`max by (resource) (rate(a{site="x"}[5m] offset 1m)) != 0`: {"a"},
		`sum(increase(b[1h])) + sum(increase(a[1h])) > 0`:          {"a", "b"},
		`increase(b[5m]) > 0 or increase(a[1h]) > 0`:               {"a", "b"},
		`max by (resource) (increase(a[1h]) > 0)`:                  {"a"},
		// They say more, or something else.
		`increase(a[1h])`:                             nil,
		`increase(a[1h]) > 50`:                        nil,
		`increase(a[1h]) > bool 0`:                    nil,
		`increase(a[1h]) == 0`:                        nil,
		`increase(a[1h]) > 0 or temperature > 90`:     nil,
		`increase(a[5m]) > 0 or increase(b[1h]) > 10`: nil,
		`count(increase(a[1h])) > 0`:                  nil,
		`max_over_time(a[1h]) > 0`:                    nil,
		`increase(a[1h:1m]) > 0`:                      nil,
		`increase({job="x"}[1h]) > 0`:                 nil,
		`(increase(a[1h]) and a > 5) > 0`:             nil,
		`temperature > 90 and increase(a[1h]) > 0`:    nil,
		`0 < increase(a[1h])`:                         nil,
		`a > 0`:                                       nil,
		`increase(a[1h]) - increase(b[1h]) > 0`:       nil,
	} {
		e, err := l.Parse(expr)
		if err != nil {
			t.Fatal(err)
		}
		if got := grew(e); !slices.Equal(got, want) {
			t.Errorf("%s: counters %q, want %q", expr, got, want)
		}
	}
}

func TestTheBuiltInRuleOnRemappedRowsNamesItsCounter(t *testing.T) {
	names, err := RulesConfig{Builtin: true}.identifiers()
	if err != nil {
		t.Fatal(err)
	}
	l, found := newLoader(), false
	for _, name := range names {
		groups, errs := l.Load(name, false, model.UTF8Validation)
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		for _, g := range groups.Groups {
			for _, r := range g.Rules {
				e, err := l.Parse(r.Expr)
				if err != nil {
					t.Fatal(err)
				}
				if r.Alert == "GPURowRemapped" {
					found = true
					if got := grew(e); !slices.Equal(got, []string{"DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS"}) {
						t.Errorf("it names %q", got)
					}
				}
			}
		}
	}
	if !found {
		t.Error("there is no such rule")
	}
}

func TestAnAlertNamesTheCountersOfItsRule(t *testing.T) {
	a := &promrules.Alert{Labels: labels.FromStrings("alertname", "RowRemapped", "resource", "s1/gpu0")}
	for expr, want := range map[string]string{"increase(b[1h]) + increase(a[1h]) > 0": "a b", "a > 0": "", "no expression": ""} {
		ev := event(a, 1, grewIn(expr), time.Now())
		if got, named := ev.Attrs[schemas.AttrGrew]; got != want || named != (want != "") {
			t.Errorf("%s: %q", expr, ev.Attrs)
		}
	}
}

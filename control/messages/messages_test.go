package messages

import (
	"errors"
	"testing"
	"time"

	"auspex/schemas"
)

func TestTextFillsTheTemplate(t *testing.T) {
	age := Age(90*time.Second + 3*time.Millisecond)
	age["server"] = "gpu-r01-03"
	for want, s := range map[string]schemas.Sentence{
		"":                        {},
		"step.of_a_later_version": {ID: "step.of_a_later_version"},
		"1m30s since the last step of this kind on gpu-r01-03": New(CoolDown, age),
		"Auspex holds the lease of {server}":                   New(LeaseOurs, nil),
		"held by rack_budget: Auspex would hold 2 servers of {rack} of r01 out of the pool; the limit is 1": New(Held, Args{
			"rail": "rack_budget", "why": New(RackBudget, Args{"held": 2, "limit": 1, "rack": "{rack} of r01"}),
		}),
		"no route to {server}": Error(errors.New("no route to {server}")),
	} {
		if got := Text(s); got != want {
			t.Errorf("%s says %q, want %q", s.ID, got, want)
		}
	}
}

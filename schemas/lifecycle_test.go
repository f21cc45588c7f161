package schemas_test

import (
	"errors"
	"slices"
	"testing"

	"auspex/schemas"
)

// TestEveryPairOfStates holds all pairs against the moves as they are written in the contract.
func TestEveryPairOfStates(t *testing.T) {
	for _, tc := range []struct {
		life  schemas.Lifecycle
		legal []string // from>to
	}{
		{schemas.ServerLife, []string{
			"discovered>provisioning", "provisioning>ready", "provisioning>error", "ready>provisioning", "error>provisioning", "ready>retired", "error>retired",
		}},
		{schemas.GPULife, []string{
			"available>allocated", "allocated>in_use", "in_use>available", "allocated>available", "available>error", "allocated>error", "in_use>error",
			"error>available",
		}},
		{schemas.AllocationLife, []string{"pending>active", "active>completed", "active>failed", "pending>failed", "failed>pending"}},
		{schemas.WorkflowLife, []string{"pending>running", "running>completed", "running>failed", "failed>pending", "pending>failed"}},
		{schemas.HandlingLife, []string{"active>acknowledged", "active>resolved", "acknowledged>resolved"}},
	} {
		seen := 0
		states := tc.life.States()
		for _, from := range append(states, "no such state") {
			for _, to := range append(states, "no such state") {
				err := tc.life.Move(from, to)
				if legal := slices.Contains(tc.legal, from+">"+to); legal != (err == nil) {
					t.Errorf("%s from %s to %s: %v", tc.life.Of, from, to, err)
				} else if legal {
					seen++
				}
				var refused *schemas.MoveError
				if err == nil {
					continue
				}
				if !errors.As(err, &refused) || refused.From != from || refused.To != to || !slices.Equal(refused.Legal, tc.life.Next(from)) {
					t.Errorf("%s from %s to %s: %+v", tc.life.Of, from, to, err)
				}
				for _, next := range refused.Legal {
					if tc.life.Move(from, next) != nil {
						t.Errorf("%s from %s: told that %s is legal, and it is not", tc.life.Of, from, next)
					}
				}
			}
		}
		if seen != len(tc.legal) {
			t.Errorf("%s has %d of %d moves", tc.life.Of, seen, len(tc.legal))
		}
		reached := slices.Clone(tc.life.First)
		for i := 0; i < len(reached); i++ {
			for _, next := range tc.life.Next(reached[i]) {
				if !slices.Contains(reached, next) {
					reached = append(reached, next)
				}
			}
		}
		slices.Sort(reached)
		slices.Sort(states)
		if !slices.Equal(reached, states) {
			t.Errorf("%s: reached from its beginnings are %v, of %v", tc.life.Of, reached, states)
		}
	}
}

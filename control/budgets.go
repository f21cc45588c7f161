package control

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"auspex/schemas"
)

// budgets counts what is taken now: levels by servers that we keep out of the
// pool, the rate by steps that were decided, and what waits for a person as
// reserved.
func (c *Controller) budgets(ctx context.Context) (schemas.Budgets, error) {
	now := c.d.Now()
	limits := c.policies.Budgets
	fleet := schemas.Budget{Scope: schemas.ScopeFleet, Limit: limits.Fleet}
	hour := schemas.Budget{Scope: schemas.ScopeHour, Limit: limits.PerHour}
	racks := map[string]*schemas.Budget{}
	c.mu.Lock()
	counted := map[string]bool{}
	for _, k := range c.open {
		if k.Touched && counted[k.Subject] {
			continue // a person is at a server whose ladder failed
		}
		counted[k.Subject] = counted[k.Subject] || k.Touched
		rack := racks[k.Rack]
		if rack == nil {
			rack = &schemas.Budget{Scope: schemas.ScopeRack, Name: k.Rack, Limit: limits.Rack}
		}
		switch {
		case k.Touched:
			fleet.Used++
			rack.Used++
		case k.asks:
			fleet.Reserved++
			rack.Reserved++
		default:
			rack = nil
		}
		if rack != nil && k.Rack != "" {
			racks[k.Rack] = rack
		}
		if k.asksToDestroy {
			hour.Reserved++
		}
	}
	groups := c.groupBudgets()
	c.mu.Unlock()
	var err error
	if hour.Used, _, err = c.destructive(ctx, now, ""); err != nil {
		return schemas.Budgets{}, err
	}
	levels := []schemas.Budget{fleet}
	for _, r := range racks {
		levels = append(levels, *r)
	}
	levels = append(levels, groups...)
	slices.SortFunc(levels[1:], func(a, b schemas.Budget) int {
		return cmp.Or(cmp.Compare(rankOf(a.Scope), rankOf(b.Scope)), cmp.Compare(a.Name, b.Name))
	})
	n, breaker := c.recentCases(now), c.policies.Breaker
	return schemas.Budgets{
		Time: now.UTC(), Levels: append(levels, hour), RackLimit: limits.Rack,
		Breaker: schemas.Breaker{Tripped: n > breaker.Cases, Ladders: n, Limit: breaker.Cases, WindowSeconds: breaker.Window.Seconds()},
	}, nil
}

// rankOf orders scopes: racks, which always have a budget, come first.
func rankOf(scope string) int {
	if scope == schemas.ScopeRack {
		return -1
	}
	return slices.Index(schemas.GroupScopes(), scope)
}

// report keeps the budgets where the console reads them. They are for people to
// see, so that a store that fails here stops no ladder.
func (c *Controller) report(ctx context.Context) {
	c.reporting.Lock() // an older count never replaces a newer one
	defer c.reporting.Unlock()
	b, err := c.budgets(ctx)
	if err == nil {
		err = errors.Join(c.d.Records.PutBudgets(ctx, b), c.tellNoSteps(ctx))
	}
	if err != nil && ctx.Err() == nil {
		c.d.Log.Warn("cannot write budgets", "error", err)
	}
}

// asks notes whether a case waits for a person, and for a step that destroys.
func (c *Controller) asks(k *climb, asks, destroys bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k.asks, k.asksToDestroy = asks, asks && destroys
}

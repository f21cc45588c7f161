package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"auspex/control/messages"
	"auspex/control/policy"
	"auspex/schemas"
)

// Group is what servers share: a feed, a leaf switch, a pool, a job and so on.
type Group struct {
	Scope string `json:"scope"` // one of schemas.GroupScopes
	Name  string `json:"name"`
}

// Groups tells what servers share.
type Groups interface {
	// Of returns the groups of a server now.
	Of(ctx context.Context, server string) ([]Group, error)
	// Members returns the servers of a group.
	Members(ctx context.Context, g Group) (Members, error)
}

// Members are the servers of a group.
type Members struct {
	All       []string
	InService []string // set up, and given to people where there are some who want them
	Free      []string // of these, those that nobody has
}

// Suffixes of the rails of a scope: what is held, in what hour, and what must stay.
const (
	railHeldIn = "_budget"
	railRateIn = "_per_hour"
	railKeepIn = "_in_service"
	railFreeIn = "_free"
)

// errGroups: limits of what servers share cannot be held where nothing tells what they share.
var errGroups = errors.New("nothing tells what servers share, and the policies have limits of it")

// limits checks what a server shares with others against the limits of the policies.
func (c *Controller) limits(ctx context.Context, k *climb, r policy.Rung, now time.Time) (out []schemas.Rail, err error) {
	limits := c.policies.Budgets.Limits
	if len(limits) == 0 {
		return nil, nil
	}
	if c.d.Groups == nil {
		return nil, errGroups
	}
	groups, err := c.d.Groups.Of(ctx, k.Subject)
	if err != nil {
		return nil, fmt.Errorf("read what %s shares with others: %w", k.Subject, err)
	}
	c.mu.Lock()
	for _, g := range groups {
		if !slices.Contains(k.Groups, g) {
			k.Groups = append(k.Groups, g) // what it ran when it was taken is of its groups until it is back
		}
	}
	groups = slices.Clone(k.Groups)
	c.mu.Unlock()
	var steps [][]Group
	if r.Destructive && slices.ContainsFunc(limits, func(l policy.Limit) bool { return l.PerHour != nil }) {
		if steps, err = c.store.destructiveIn(ctx, now.Add(-time.Hour)); err != nil {
			return nil, fmt.Errorf("read budgets: %w", err)
		}
	}
	for i := range limits {
		for _, g := range groups {
			if l := &limits[i]; l.Covers(g.Scope, g.Name) {
				some, err := c.limit(ctx, k, r, l, g, steps)
				if err != nil {
					return nil, err
				}
				out = append(out, some...)
			}
		}
	}
	return out, nil
}

func (c *Controller) limit(ctx context.Context, k *climb, r policy.Rung, l *policy.Limit, g Group, steps [][]Group) (out []schemas.Rail, err error) {
	add := func(name string, value, limit int, ok bool, id string, args messages.Args) {
		args["scope"], args["name"], args["limit"] = g.Scope, g.Name, limit
		sentence := messages.New(id, args)
		out = append(out, schemas.Rail{
			Name: g.Scope + name, Value: float64(value), Limit: float64(limit), OK: ok, Detail: messages.Text(sentence), Sentence: &sentence,
		})
	}
	var of Members
	if l.Held.Percent || l.Keep.Set || l.Free.Set {
		if of, err = c.d.Groups.Members(ctx, g); err != nil {
			return nil, fmt.Errorf("read the servers of %s %s: %w", g.Scope, g.Name, err)
		}
	}
	taken := c.takenIn(g, k.Subject)
	if l.Held.Set {
		held, most := len(taken)+1, l.Held.AtMost(len(of.All))
		add(railHeldIn, held, most, held <= most, messages.GroupBudget, messages.Args{"held": held})
	}
	if l.PerHour != nil && r.Destructive {
		n := 0
		for _, in := range steps {
			if slices.Contains(in, g) {
				n++
			}
		}
		add(railRateIn, n+1, *l.PerHour, n+1 <= *l.PerHour, messages.GroupRate, messages.Args{"n": n})
	}
	for _, stays := range []struct {
		least  policy.Share
		of     []string
		rail   string
		remain string
	}{{l.Keep, of.InService, railKeepIn, messages.GroupKeeps}, {l.Free, of.Free, railFreeIn, messages.GroupFree}} {
		if !stays.least.Set {
			continue
		}
		n, least := 0, stays.least.AtLeast(len(of.All))
		for _, server := range stays.of {
			if server != k.Subject && !taken[server] {
				n++
			}
		}
		// What is taken already, or is none of them, makes them no fewer.
		ok := n >= least || k.Touched || !slices.Contains(stays.of, k.Subject)
		add(stays.rail, n, least, ok, stays.remain, messages.Args{"stay": n})
	}
	return out, nil
}

// takenIn are the servers of a group that we keep out of the pool, but for one.
func (c *Controller) takenIn(g Group, but string) map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := map[string]bool{}
	for _, o := range c.out {
		if o.Subject != but && slices.Contains(o.Groups, g) {
			taken[o.Subject] = true
		}
	}
	return taken
}

// groupBudgets are the levels of the groups of which something is taken or asked for; c.mu is held. Parts of a group are told by
// the rails, which know how large it is.
func (c *Controller) groupBudgets() (levels []schemas.Budget) {
	at := map[Group]int{}
	counted := map[string]bool{}
	for _, k := range c.open {
		if !k.Touched && !k.asks || counted[k.Subject] {
			continue
		}
		counted[k.Subject] = k.Touched
		for _, g := range k.Groups {
			limit, found := c.heldLimit(g)
			if !found || g.Scope == schemas.ScopeRack { // which has a level already
				continue
			}
			i, known := at[g]
			if !known {
				i = len(levels)
				at[g], levels = i, append(levels, schemas.Budget{Scope: g.Scope, Name: g.Name, Limit: limit})
			}
			if k.Touched {
				levels[i].Used++
			} else {
				levels[i].Reserved++
			}
		}
	}
	return levels
}

// heldLimit is the least number that the limits leave of a group.
func (c *Controller) heldLimit(g Group) (limit int, found bool) {
	for i := range c.policies.Budgets.Limits {
		if l := &c.policies.Budgets.Limits[i]; l.Held.Set && !l.Held.Percent && l.Covers(g.Scope, g.Name) && (!found || l.Held.N < limit) {
			limit, found = l.Held.N, true
		}
	}
	return limit, found
}

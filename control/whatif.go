package control

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"auspex/control/messages"
	"auspex/internal/store/records"
	"auspex/schemas"
)

// Planned is what would be done now about an open incident, or about a prediction.
type Planned struct {
	Incident   string  `json:"incident"` // its id, or that of the prediction
	Foretold   bool    `json:"foretold,omitempty"`
	Server     string  `json:"server"` // or the resource where there is none
	Resource   string  `json:"resource"`
	Fault      string  `json:"fault"`
	Confidence float64 `json:"confidence"`
	// Stands is the ladder that it has: its policy, and proposed, open, done, failed or cancelled; empty is none.
	Stands string        `json:"stands,omitempty"`
	Policy string        `json:"policy,omitempty"`
	Mode   string        `json:"mode,omitempty"`
	Why    string        `json:"why,omitempty"` // why there is no step
	Steps  []PlannedStep `json:"steps,omitempty"`
}

// States of a planned step.
const (
	StepGoes    = "goes"    // all its rails hold
	StepWaits   = "waits"   // until a rail holds again
	StepRefused = "refused" // by a rail, for good
	StepPerson  = "person"  // it is a person's
	StepSkipped = "skipped" // it is optional, and cannot be done here, or what it needs cannot
	StepCannot  = "cannot"  // nobody can do it here
)

// PlannedStep is a rung of a ladder, as if those before it had been done.
type PlannedStep struct {
	Kind  string         `json:"kind"`
	State string         `json:"state"`
	Why   string         `json:"why,omitempty"` // what holds it, or why it cannot be
	Rails []schemas.Rail `json:"rails,omitempty"`
}

// WhatIf says what would be done now about all that is open, the oldest first, by the policies of this controller and what
// the store has, whoever leads there. Each ladder that would begin counts in the budgets of those after it. It changes
// nothing, and asks no driver and no device. The controller is good for nothing else.
func (c *Controller) WhatIf(ctx context.Context) ([]Planned, error) {
	now := c.d.Now()
	recent, err := c.store.opened(ctx, now.Add(-c.policies.Breaker.Window))
	if err != nil {
		return nil, err
	}
	for _, k := range recent {
		if p, ok := c.policyOf(k); ok && k.Request == nil && p.Destroys() {
			c.asked = append(c.asked, k.Opened)
		}
	}
	incidents, _, err := c.d.Records.Incidents(ctx, records.Filter{Status: records.StatusOpen, Limit: 10000})
	if err != nil {
		return nil, fmt.Errorf("read incidents: %w", err)
	}
	for _, i := range incidents {
		c.consider(i)
	}
	if err := c.recall(ctx); err != nil {
		return nil, err
	}
	var failed, open []*climb
	for state, into := range map[string]*[]*climb{caseFailed: &failed, caseOpen: &open, caseReading: &open} {
		cases, err := c.store.cases(ctx, state)
		if err != nil {
			return nil, err
		}
		*into = append(*into, cases...)
	}
	c.takeUp(failed, open)
	out := []Planned{}
	all := slices.Collect(maps.Values(c.incidents))
	slices.SortFunc(all, func(a, b *candidate) int {
		if (a.prediction == nil) != (b.prediction == nil) { // what has failed comes first
			if a.prediction == nil {
				return -1
			}
			return 1
		}
		if t := a.inc.Opened.Compare(b.inc.Opened); t != 0 {
			return t
		}
		return strings.Compare(a.inc.ID, b.inc.ID)
	})
	for _, n := range all {
		p, err := c.whatIf(ctx, n, now)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// whatIf is what would be done now about one incident, as in noStep and newCase.
func (c *Controller) whatIf(ctx context.Context, n *candidate, now time.Time) (Planned, error) {
	cause := n.inc.RootCause
	subject, rack, site, _ := c.d.Inventory.Place(cause.Resource)
	if subject == "" {
		subject = cause.Resource
	}
	out := Planned{
		Incident: n.inc.ID, Foretold: n.prediction != nil, Server: subject, Resource: cause.Resource, Fault: cause.Fault, Confidence: cause.Sure(),
	}
	state, nth, err := c.store.hasCase(ctx, n.inc.ID, cause.Resource)
	if err != nil {
		return out, err
	}
	out.Stands = state
	p, ok := c.policyFor(n)
	args := messages.Args{"policy": p.Name, "fault": cause.Fault, "server": subject}
	none := func(id string) (Planned, error) {
		out.Why = messages.Text(messages.New(id, args))
		return out, nil
	}
	k := c.open[subject]
	if k != nil && state == caseOpen && k.Incident == n.inc.ID {
		out.Stands, args["policy"] = k.Policy+" "+state, k.Policy
		if _, ok := c.policyOf(k); !ok {
			return none(messages.PlanEnds)
		}
		return none(messages.PlanGoesOn)
	}
	if !ok {
		return none(messages.NoPolicy)
	}
	out.Policy = p.Name
	stood := now.Sub(n.inc.Opened) // at most: the cause may have changed since
	switch {
	case state == caseDone || state == caseFailed || state == caseCancelled:
		args["how"] = state
		return none(messages.LadderEnded)
	case cause.Sure() < p.MinConfidence:
		args["value"], args["limit"] = math.Round(cause.Sure()*100), math.Round(p.MinConfidence*100)
		return none(messages.Unsure)
	case stood < p.Settle:
		maps.Copy(args, messages.Age(p.Settle))
		args["since"] = n.inc.Opened.UTC().Format(time.RFC3339)
		return none(messages.Settling)
	case !n.near(&p, now):
		return none(messages.PlanFar)
	case k != nil:
		args["incident"] = k.Incident
		return none(messages.OtherLadder)
	}
	if rests, err := c.rests(ctx, cause.Resource); err != nil {
		return out, err
	} else if rests {
		return none(messages.Rests)
	}
	k = &climb{
		ID: caseID(n.inc.ID, cause.Resource, nth) + "-whatif", Incident: n.inc.ID, Subject: subject, Target: cause.Resource, Fault: cause.Fault,
		Confidence: cause.Sure(), Policy: p.Name, Ladder: p.Kinds(), Rack: rack, Site: site, Evidence: n.inc.Updated, Opened: now, State: caseOpen,
		Foretold: n.prediction != nil, needs: map[string]bool{},
	}
	if k.Mode, err = c.modeFor(ctx, k, &p); err != nil {
		return out, err
	}
	out.Mode = k.Mode
	begins := false
	for i, r := range p.Ladder {
		s := PlannedStep{Kind: r.Kind}
		if s.Rails, err = c.check(ctx, k, p, i, true); err != nil {
			return out, err
		}
		switch goes, waits := verdict(s.Rails); {
		case r.Optional && !r.Person && c.d.Remediators[r.Kind] == nil:
			s.State, s.Why = StepSkipped, messages.Text(noDriver(r.Kind))
		case r.Optional && lacking(s.Rails, railNeeds):
			s.State, s.Why = StepSkipped, whatHolds(s.Rails)
		case !goes && waits:
			s.State, s.Why = StepWaits, whatHolds(s.Rails)
		case !goes:
			s.State, s.Why = StepRefused, whatHolds(s.Rails)
		case r.Person:
			s.State = StepPerson
		case c.d.Remediators[r.Kind] == nil:
			s.State, s.Why = StepCannot, messages.Text(noDriver(r.Kind))
		default:
			s.State = StepGoes
			k.needs[r.Kind] = true
			if r.Repairs() { // one that is verified stands for every other
				for _, other := range p.Ladder {
					k.needs[other.Kind] = k.needs[other.Kind] || other.Repairs()
				}
			}
		}
		begins = begins || i == 0 && s.State == StepGoes
		out.Steps = append(out.Steps, s)
	}
	if begins && (k.Mode == schemas.ModeApprove || k.Mode == schemas.ModeEnforce) {
		k.Touched = true
		c.opened(k)
		c.mu.Lock()
		c.notes(k)
		c.mu.Unlock()
	}
	return out, nil
}

// whatHolds says all that holds a step.
func whatHolds(rails []schemas.Rail) string {
	var out []string
	for _, r := range rails {
		if !r.OK {
			out = append(out, r.Name+": "+r.Detail)
		}
	}
	return strings.Join(out, "; ")
}

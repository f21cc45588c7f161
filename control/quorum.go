package control

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"auspex/control/messages"
	"auspex/control/policy"
	"auspex/schemas"
)

// Outside is a remediator that acts on a server past what runs on it, through its board controller.
type Outside interface {
	Remediator
	// Outside reports whether it does.
	Outside() bool
}

// outside reports whether a rung is done past what runs on the server of a case.
func (c *Controller) outside(k *climb, r *policy.Rung) bool {
	rem := c.d.Remediators[r.Kind]
	if one, ok := rem.(chooser); ok {
		rem = one.of(Step{Server: k.Subject})
	}
	o, ok := rem.(Outside)
	return ok && o.Outside()
}

// sign is what an alert shows of the fault of a case: whose eyes saw it, none where it shows nothing.
type sign struct {
	view   schemas.View
	source string
}

// quorum asks whether so many views have each seen for themselves that what a case treats is bad, by the alerts of its
// incident: one source that lies, or one fault of how a server is read, must not take its power away. A source that has
// fallen silent counts for its view where the incident holds that silence as a sign of the same cause. What was posted,
// and what rules make of readings of nobody in particular, counts for none.
func (c *Controller) quorum(ctx context.Context, k *climb, need int) (schemas.Rail, error) {
	c.mu.Lock()
	var events []string
	if n := c.incidentOf(k); n != nil {
		events = n.inc.Events
	}
	c.mu.Unlock()
	if k.signs == nil {
		k.signs = map[string]sign{}
	}
	by := map[schemas.View]string{}
	for _, id := range events {
		s, read := k.signs[id]
		if !read {
			a, found, err := c.d.Records.Alert(ctx, id)
			if err != nil {
				return schemas.Rail{}, err
			}
			if !found { // its record is on its way
				continue
			}
			if view := views(c.d.View).ofAlert(&a); view != schemas.ViewNone && c.testifies(k, &a) {
				s = sign{view, a.Source}
			}
			k.signs[id] = s
		}
		if s.view == "" {
			continue
		}
		if _, known := by[s.view]; !known {
			by[s.view] = fmt.Sprintf("%s (%s)", s.view, s.source)
		}
		if len(by) >= need {
			break
		}
	}
	args := messages.Args{"part": k.Target, "n": len(by), "need": need, "who": k.vouched, "sources": strings.Join(slices.Sorted(maps.Values(by)), ", ")}
	id, ok := messages.QuorumMet, len(by) >= need
	switch {
	case ok:
	case k.vouched != "":
		id, ok = messages.QuorumVouched, true
	case len(by) == 0:
		id = messages.QuorumNone
	default:
		id = messages.QuorumShort
	}
	sentence := messages.New(id, args)
	return schemas.Rail{Name: railQuorum, Value: float64(len(by)), Limit: float64(need), OK: ok, Detail: messages.Text(sentence), Sentence: &sentence}, nil
}

// frozen checks the change freezes that were declared.
func (c *Controller) frozen(ctx context.Context, k *climb, now time.Time) (schemas.Rail, error) {
	m, frozen, err := c.d.Freezes.Frozen(ctx, now, k.Subject)
	if err != nil {
		return schemas.Rail{}, fmt.Errorf("read change freezes: %w", err)
	}
	r := schemas.Rail{Name: railFreeze, OK: true}
	sentence := messages.New(messages.NoFreeze, messages.Args{"server": k.Subject})
	if frozen {
		args := messages.Args{
			"server": k.Subject, "freeze": m.ID, "by": m.By, "until": m.End().UTC().Format(time.RFC3339), "reason": m.Reason,
		}
		r.Value, r.OK, sentence = 1, false, messages.New(messages.Frozen, args)
		if k.override != nil {
			args["who"], args["why"] = k.override.By, k.override.Reason
			r.OK, sentence = true, messages.New(messages.FreezeOverridden, args)
		}
	}
	r.Detail, r.Sentence = messages.Text(sentence), &sentence
	return r, nil
}

// freshCost is how old what a step would cost may be.
const freshCost = 10 * time.Second

// ofParts are the kinds of rungs that end what runs on the part that is to blame, and nothing beside it.
var ofParts = []string{"reset_gpu"}

// cost tells what a step that ends what runs would end now. It is for people to see: what cannot be told stops nothing.
func (c *Controller) cost(ctx context.Context, k *climb, a *schemas.Action, r policy.Rung) {
	if c.d.Costs == nil || !r.EndsWhatRuns() || a.BlastRadius != nil && c.d.Now().Sub(a.BlastRadius.Time) < freshCost {
		return
	}
	target := k.Subject
	if slices.Contains(ofParts, r.Kind) && k.Target != k.Subject {
		target = k.Target
	}
	b, err := c.d.Costs.Of(ctx, k.Subject, target)
	if err != nil {
		if ctx.Err() == nil {
			c.d.Log.Warn("cannot tell what a step would cost", "action", a.ID, "server", k.Subject, "error", err)
		}
		return
	}
	a.BlastRadius = &b
}

package control

import (
	"context"
	"maps"
	"math"
	"time"

	"auspex/control/messages"
	"auspex/schemas"
)

// mostNoSteps bounds of how many incidents it is told why they have no step.
const mostNoSteps = 5000

// noSteps says of each open incident for which no step was made why that is so.
func (c *Controller) noSteps() map[string]schemas.NoStep {
	now := c.d.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]schemas.NoStep{}
	for id, n := range c.incidents {
		if len(out) == mostNoSteps {
			break
		}
		policy, sentence := c.noStep(n, now)
		if sentence.ID != "" {
			out[id] = schemas.NoStep{Policy: policy, Reason: messages.Text(sentence), Sentence: sentence}
		}
	}
	return out
}

// noStep is why an incident has no step, in no sentence where it has some or is about to; c.mu is held.
func (c *Controller) noStep(n *candidate, now time.Time) (policy string, why schemas.Sentence) {
	cause := n.inc.RootCause
	p, ok := c.policies.For(cause.Fault)
	args := messages.Args{"policy": p.Name, "fault": cause.Fault}
	subject, _, _, _ := c.d.Inventory.Place(cause.Resource)
	if subject == "" {
		subject = cause.Resource
	}
	args["server"] = subject
	switch k := c.open[subject]; {
	case n.prediction != nil: // nothing has failed yet
		return "", schemas.Sentence{}
	case !ok:
		return "", messages.New(messages.NoPolicy, args)
	case n.known && n.ended == "":
		return p.Name, schemas.Sentence{}
	case n.known:
		args["how"] = n.ended
		return p.Name, messages.New(messages.LadderEnded, args)
	case cause.Sure() < p.MinConfidence:
		args["value"], args["limit"] = math.Round(cause.Sure()*100), math.Round(p.MinConfidence*100)
		return p.Name, messages.New(messages.Unsure, args)
	case now.Sub(n.settled) < p.Settle:
		maps.Copy(args, messages.Age(p.Settle))
		args["since"] = n.settled.UTC().Format(time.RFC3339)
		return p.Name, messages.New(messages.Settling, args)
	case k != nil && k.Incident != n.inc.ID:
		args["incident"] = k.Incident
		return p.Name, messages.New(messages.OtherLadder, args)
	case n.rests:
		return p.Name, messages.New(messages.Rests, args)
	}
	return p.Name, schemas.Sentence{}
}

// tellNoSteps keeps it where the API reads it, where it is another than before.
func (c *Controller) tellNoSteps(ctx context.Context) error {
	why := c.noSteps()
	if c.told != nil && maps.EqualFunc(why, c.told, func(a, b schemas.NoStep) bool { return a.Policy == b.Policy && a.Reason == b.Reason }) {
		return nil
	}
	err := c.d.Records.PutNoSteps(ctx, c.d.Now(), why)
	if err == nil {
		c.told = why
	}
	return err
}

// endedCase notes that the case of an incident has come to its end; c.mu is held.
func (c *Controller) endedCase(incident, target, state string) {
	if n := c.incidents[incident]; n != nil && n.inc.RootCause.Resource == target && (state == caseDone || state == caseFailed || state == caseCancelled) {
		n.known, n.ended = true, state
	}
}

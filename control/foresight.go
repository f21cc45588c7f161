package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"auspex/control/messages"
	"auspex/control/policy"
	"auspex/internal/bus"
	"auspex/internal/store/records"
	"auspex/schemas"
)

// A policy may ask for a repair before the failure. A prediction then has its case as an incident would, on the rung of
// another ladder and behind the same rails; whatever has failed already goes before it.

// onPredictions takes note of what is foretold now.
func (c *Controller) onPredictions(_ context.Context, msgs []bus.Message) error {
	for _, m := range msgs {
		var p schemas.Prediction
		if err := json.Unmarshal(m.Value, &p); err != nil {
			c.ignored.WithLabelValues(schemas.TopicPredictions).Inc()
			c.d.Log.Warn("cannot read prediction", "partition", m.Partition, "offset", m.Offset, "error", err)
			continue
		}
		c.foresee(p)
	}
	c.hurry()
	return nil
}

// recall takes up the predictions that are open.
func (c *Controller) recall(ctx context.Context) error {
	open, _, err := c.d.Records.Predictions(ctx, records.Filter{Status: schemas.PredictionOpen, Limit: 10000})
	if err != nil {
		return fmt.Errorf("restore predictions: %w", err)
	}
	for _, p := range open {
		c.foresee(p)
	}
	return nil
}

// foresee notes a prediction, where a policy is for such.
func (c *Controller) foresee(p schemas.Prediction) {
	if _, ok := c.policies.Before(p.Failure); !ok {
		return
	}
	i := schemas.Incident{
		ID: p.ID, Opened: p.Opened, Updated: p.Time, At: p.Time, Site: p.Site, Explanation: p.Explanation, Summary: p.Sentence,
		RootCause: schemas.Cause{Resource: p.Resource, Fault: p.Failure, Confidence: p.Probability},
	}
	if p.State != schemas.PredictionOpen {
		i.Closed = &p.Time
	}
	c.note(candidate{inc: i, prediction: &p})
}

// policyFor is the policy of what has come, or is to come.
func (c *Controller) policyFor(n *candidate) (policy.Policy, bool) {
	if n.prediction != nil {
		return c.policies.Before(n.inc.RootCause.Fault)
	}
	return c.policies.For(n.inc.RootCause.Fault)
}

// near reports whether what is foretold is as near as a policy asks for.
func (n *candidate) near(p *policy.Policy, now time.Time) bool {
	if n.prediction == nil || p.Foretold == nil || p.Foretold.Within == 0 {
		return true
	}
	at := n.prediction.ETAP50
	return at != nil && at.Sub(now) <= p.Foretold.Within
}

// makeWay has the ladder of a prediction end where nothing was done on it yet: something on its server has failed.
func (c *Controller) makeWay(resource string) {
	subject, _, _, ok := c.d.Inventory.Place(resource)
	if !ok || subject == "" {
		subject = resource
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.open[subject]; k != nil && k.Foretold && !k.Touched {
		k.yields = true
	}
}

// outdated says why a case on which nothing was done yet has no reason any more.
func (c *Controller) outdated(k *climb) schemas.Sentence {
	if !k.Foretold {
		return messages.New(messages.CauseGone, nil)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.yields {
		return messages.New(messages.FailedBefore, messages.Args{"server": k.Subject})
	}
	return messages.New(messages.NotForetold, nil)
}

// averted asks whether what was foretold is still to come: who returned a server with it would take it out again.
func (c *Controller) averted(k *climb) schemas.Rail {
	c.mu.Lock()
	n := c.incidents[k.Incident]
	c.mu.Unlock()
	r := schemas.Rail{Name: railForetold, OK: n == nil}
	sentence := messages.New(messages.Averted, messages.Args{"part": k.Target})
	if n != nil {
		r.Value = n.inc.RootCause.Confidence
		sentence = messages.New(messages.StillForetold, messages.Args{"part": k.Target, "value": math.Round(100 * r.Value)})
	}
	r.Detail, r.Sentence = messages.Text(sentence), &sentence
	return r
}

// asksAgain is how many looks at other steps lie between two questions to a scheduler whether a server is idle: the wait
// may be of days.
const asksAgain = 15

// unused asks the scheduler whether no job runs on the server.
func (c *Controller) unused(ctx context.Context, k *climb) schemas.Rail {
	if c.d.Now().Sub(k.asked) < asksAgain*c.cfg.Poll && !k.idle.OK {
		return k.idle
	}
	r := schemas.Rail{Name: railIdle}
	var sentence schemas.Sentence
	scheduler, ok := c.d.Remediators[kindDrain].(Scheduler)
	var jobs []string
	err := fmt.Errorf("%w: no scheduler tells what runs on %s", ErrCannot, k.Subject)
	if ok {
		call, cancel := context.WithTimeout(ctx, c.cfg.CallTime)
		jobs, err = scheduler.Jobs(call, k.Subject)
		cancel()
	}
	switch {
	case ok && errors.Is(err, ErrCannot): // it runs none there
		r.OK, sentence = true, messages.Error(err)
	case err != nil:
		sentence = messages.Error(err)
	case len(jobs) > 0:
		r.Value = float64(len(jobs))
		sentence = messages.New(messages.NotIdle, messages.Args{"server": k.Subject, "n": len(jobs), "jobs": some(jobs)})
	default:
		r.OK = true
		sentence = messages.New(messages.JobsNone, messages.Args{"server": k.Subject})
	}
	r.Detail, r.Sentence = messages.Text(sentence), &sentence
	k.idle, k.asked = r, c.d.Now()
	return r
}

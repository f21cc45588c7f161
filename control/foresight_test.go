package control

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"auspex/internal/bus"
	"auspex/internal/store/records"
	"auspex/schemas"
)

// ahead repairs what is foretold of a GPU's memory once its server is idle.
const ahead = `policies:
  - name: memory-ahead
    faults: [gpu.memory_degrading]
    foretold: {within: 48h}
    min_confidence: 0.6
    ladder:
      - {kind: drain, idle: true, verify: 2s}
      - {kind: power_cycle, needs: [drain], destructive: true, quorum: 1, verify: 2s, quiet: 30ms}
      - {kind: uncordon, needs: [power_cycle], verify: 2s}
`

func prediction(id string, probability float64, in time.Duration) schemas.Prediction {
	now := time.Now().UTC()
	at := now.Add(in)
	return schemas.Prediction{
		ID: id, Time: now, Opened: now, Resource: "gpu-r01-03/gpu2", Server: "gpu-r01-03", Failure: "gpu.memory_degrading", Metric: "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
		Probability: probability, ETAP50: &at, State: schemas.PredictionOpen, Explanation: "rows",
	}
}

// foretells publishes a prediction, and stores it as the sink does.
func (b *bench) foretells(c *Controller, p schemas.Prediction) {
	b.t.Helper()
	v, err := json.Marshal(p)
	if err == nil {
		err = errors.Join(records.New(b.db).PutPrediction(b.t.Context(), p), c.onPredictions(b.t.Context(), []bus.Message{{Value: v}}))
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

func (w *world) work(server string, jobs ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.jobs == nil {
		w.jobs = map[string][]string{}
	}
	w.jobs[server] = jobs
}

// A cause that is taken back and comes again has its ladder again, in every mode; one that a person cancelled has not.
func TestACauseThatComesAgainHasItsLadderAgain(t *testing.T) {
	t.Parallel()
	low := func(i schemas.Incident) schemas.Incident {
		i.RootCause.Confidence, i.Updated = 0.3, i.Updated.Add(time.Second)
		return i
	}
	closed := func(i schemas.Incident) schemas.Incident {
		at := i.Updated.Add(time.Second)
		i.Closed = &at
		return i
	}
	for name, of := range map[string]struct {
		mode   string
		change func(schemas.Incident) schemas.Incident
		was    string // what becomes of the first step
	}{
		"taken back":           {schemas.ModeApprove, closed, schemas.ActionCancelled},
		"not sure enough":      {schemas.ModeApprove, low, schemas.ActionRefused},
		"a proposal":           {schemas.ModeDryRun, closed, schemas.ActionCancelled},
		"cancelled by someone": {schemas.ModeApprove, nil, schemas.ActionCancelled},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, of.mode)
			c := b.controller()
			i := incident("i1", part, "gpu.fallen_off_bus")
			c.consider(i)
			drains := func(as []schemas.Action, state string) (n int) {
				for _, a := range as {
					if a.Kind == kindDrain && a.State == state {
						n++
					}
				}
				return n
			}
			begun := schemas.ActionWaiting
			if of.mode == schemas.ModeDryRun {
				begun = schemas.ActionProposed
			}
			step := 0
			var again time.Time
			as := b.until(c, func(as []schemas.Action) bool {
				switch {
				case step == 0 && drains(as, begun) == 1:
					step = 1
					if of.change != nil {
						c.consider(of.change(i))
					} else {
						b.says(c, verbCancel, "ada", as[slices.IndexFunc(as, func(a schemas.Action) bool { return a.Kind == kindDrain })], "")
					}
				case step == 1 && drains(as, of.was) == 1:
					step, again = 2, time.Now()
					c.consider(i)
				case step == 2 && of.change == nil:
					return time.Since(again) > 3*time.Second // in which it would have come
				case step == 2:
					return drains(as, begun) == 1 && drains(as, of.was) == 1
				}
				return false
			}, i)
			if n := drains(as, begun); of.change == nil && n != 0 {
				t.Error(show(as))
			}
		})
	}
}

func heldBy(rail, kind string) func([]schemas.Action) bool {
	return func(as []schemas.Action) bool {
		return slices.ContainsFunc(as, func(a schemas.Action) bool {
			return a.Kind == kind && a.State == schemas.ActionWaiting && lacking(a.Rails, rail)
		})
	}
}

func TestAServerIsRepairedBeforeItsPartFails(t *testing.T) {
	b := newBench(t, schemas.ModeEnforce)
	b.policies("policies:\n", ahead)
	b.w.work("gpu-r01-03", "job-1", "job-2")
	c := b.controller()
	p := prediction("p-1", 0.8, time.Hour)
	b.foretells(c, p)
	as := b.until(c, heldBy(railIdle, kindDrain))
	if len(as) != 1 || as[0].Prediction != "p-1" || as[0].Reason != "p-1" || as[0].Incident != "" || as[0].Why != "rows" || !strings.Contains(as[0].Detail, "job-1, job-2") {
		t.Fatalf("%+v", as)
	}
	b.w.work("gpu-r01-03")
	c = b.controller() // after a restart
	as = b.until(c, heldBy(railForetold, kindUncordon))
	if got := states(as); got[kindDrain] != schemas.ActionDone || got["power_cycle"] != schemas.ActionDone {
		t.Fatal(show(as))
	}
	c = b.controller()
	p.State, p.Time = schemas.PredictionAverted, p.Time.Add(time.Minute)
	b.foretells(c, p)
	b.until(c, func(as []schemas.Action) bool { return states(as)[kindUncordon] == schemas.ActionDone })
	if len(b.w.cycles()) != 1 || b.w.drained["gpu-r01-03"] {
		t.Error("cycles", b.w.cycles(), "drained", b.w.drained)
	}
}

func TestWhatIsForetoldIsLeftAlone(t *testing.T) {
	for name, p := range map[string]schemas.Prediction{
		"improbable": prediction("p-1", 0.5, time.Hour),
		"far":        prediction("p-1", 0.9, 72*time.Hour),
		"elsewhere": func() schemas.Prediction {
			p := prediction("p-1", 0.9, time.Hour)
			p.Failure = "gpu.fallen_off_bus" // a policy is for it once it has come
			return p
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, schemas.ModeEnforce)
			b.policies("policies:\n", ahead)
			c := b.controller()
			b.foretells(c, p)
			if err := c.openDue(t.Context()); err != nil {
				t.Fatal(err)
			}
			if as, _, err := records.New(b.db).Actions(t.Context(), records.Filter{}); err != nil || len(as) > 0 || len(c.open) > 0 {
				t.Error(show(as), err)
			}
		})
	}
}

// What nobody has touched yet ends when the failure is not foretold any more, and makes way for what has failed.
func TestAPredictionEndsWithItsReason(t *testing.T) {
	for name, c := range map[string]struct {
		then func(*bench, *Controller)
		says string
	}{
		"averted": {func(b *bench, c *Controller) {
			p := prediction("p-1", 0.8, time.Hour)
			p.State = schemas.PredictionAverted
			b.foretells(c, p)
		}, "not foretold any more"},
		"another fault": {func(b *bench, c *Controller) {
			i := incident("i-1", "gpu-r01-03/gpu3", "gpu.fallen_off_bus")
			b.keep(i)
			c.consider(i)
		}, "is repaired first"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, schemas.ModeEnforce)
			b.policies("policies:\n", ahead)
			b.w.work("gpu-r01-03", "job-1")
			ctrl := b.controller()
			b.foretells(ctrl, prediction("p-1", 0.8, time.Hour))
			did := false
			as := b.until(ctrl, func(as []schemas.Action) bool {
				if !did && heldBy(railIdle, kindDrain)(as) {
					did = true
					c.then(b, ctrl)
				}
				return slices.ContainsFunc(as, func(a schemas.Action) bool {
					return a.Prediction != "" && a.State == schemas.ActionCancelled && strings.Contains(a.Detail, c.says)
				}) && (c.says != "is repaired first" || slices.ContainsFunc(as, func(a schemas.Action) bool { return a.Incident == "i-1" }))
			})
			if len(b.w.cycles()) > 0 && c.says != "is repaired first" {
				t.Error(show(as))
			}
		})
	}
}

// A probability that wavers holds a step, and does not end the ladder.
func TestAProbabilityThatWaversHoldsAStep(t *testing.T) {
	b := newBench(t, schemas.ModeApprove)
	b.policies("policies:\n", ahead)
	c := b.controller()
	b.foretells(c, prediction("p-1", 0.8, time.Hour))
	told := false
	as := b.until(c, func(as []schemas.Action) bool {
		if !told && len(as) == 1 && as[0].State == schemas.ActionWaiting {
			told = true
			b.foretells(c, prediction("p-1", 0.4, time.Hour))
		}
		return heldBy(railProbable, kindDrain)(as)
	})
	if len(as) != 1 || b.w.drained["gpu-r01-03"] {
		t.Error(show(as))
	}
}

// A scheduler that does not answer makes nothing idle, and is not asked again at once.
func TestAServerOfWhichNobodyKnowsIsNotIdle(t *testing.T) {
	b := newBench(t, schemas.ModeEnforce)
	c := b.controller()
	s := &askable{}
	c.d.Remediators[kindDrain] = s
	k := &climb{Subject: "gpu-r01-03"}
	for range 3 {
		if r := c.unused(t.Context(), k); r.OK || !strings.Contains(r.Detail, "is away") {
			t.Fatalf("%+v", r)
		}
	}
	if s.n != 1 {
		t.Errorf("asked %d times", s.n)
	}
	now := c.d.Now
	c.d.Now = func() time.Time { return now().Add(asksAgain * c.cfg.Poll) }
	s.err = ErrCannot // it runs none there
	if r := c.unused(t.Context(), k); !r.OK {
		t.Errorf("%+v", r)
	}
	delete(c.d.Remediators, kindDrain)
	if r := c.unused(t.Context(), &climb{Subject: "gpu-r01-03"}); r.OK {
		t.Errorf("%+v", r)
	}
}

type askable struct {
	worldStep
	n   int
	err error
}

func (s *askable) Jobs(context.Context, string) ([]string, error) {
	s.n++
	if s.err == nil {
		return nil, errors.New("the scheduler is away")
	}
	return nil, s.err
}

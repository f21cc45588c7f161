package correlator

import (
	"context"
	"errors"
	"time"

	"auspex/correlator/solver"
	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

// Tempering is by how much scores are divided before they become probabilities: a prior
// that is raised by it raises the log-odds of an incident by one.
const Tempering = solver.Spread

// Learned is where the parameters learned from the site come from.
type Learned interface {
	// Active returns the version in force; 0 is none.
	Active(ctx context.Context) (version int64, err error)
	// Adapt returns a copy of a model with the parameters of a version in it.
	Adapt(ctx context.Context, version int64, m *propagation.Model) (*propagation.Model, error)
}

// learnEvery is how soon a version that was put in force is taken over.
const learnEvery = 2 * time.Second

// SetLearned says where learned parameters come from; call it before Run. A version
// that is put in force later is taken over without a restart.
func (c *Correlator) SetLearned(l Learned) { c.learned = l }

// adapted returns a model as the version in force has it. One that cannot be read is
// left out: the numbers of the records stand for themselves.
func (c *Correlator) adapted(ctx context.Context, m *propagation.Model) (*propagation.Model, int64) {
	if c.learned == nil {
		return m, 0
	}
	v, err := c.learned.Active(ctx)
	if err == nil && v != 0 {
		var out *propagation.Model
		if out, err = c.learned.Adapt(ctx, v, m); err == nil {
			return out, v
		}
	}
	if err != nil {
		c.log.Error("learned parameters are not in force", "version", v, "error", err)
	}
	return m, v
}

// relearn takes over a version that was put in force since; c.mu is held.
func (c *Correlator) relearn(ctx context.Context) {
	if c.learned == nil {
		return
	}
	v, err := c.learned.Active(ctx)
	if err != nil || v == c.parameters {
		return // a store that does not answer now is asked again
	}
	model, v := c.adapted(ctx, c.records)
	if err := c.swap(ctx, model, c.cfg.CloseAfter); err != nil {
		c.log.Warn("learned parameters not taken over yet", "version", v, "error", err)
		return
	}
	c.log.Info("learned parameters taken over", "version", v)
	c.parameters = v
}

// swap decides anew by another model, from the events that the open decisions rest
// on; c.mu is held.
func (c *Correlator) swap(ctx context.Context, model *propagation.Model, wait CloseAfter) error {
	if c.engine == nil {
		return errors.New("it does not run yet")
	}
	if err := c.commit(ctx); err != nil {
		return err
	}
	before, waited := c.model, c.cfg.CloseAfter
	c.model, c.cfg.CloseAfter = model, wait
	if err := c.restore(ctx); err != nil {
		c.model, c.cfg.CloseAfter = before, waited
		return err
	}
	return nil
}

// priorOf returns the log-odds of a fault of a part before any sign is weighed: what
// the site has learned of its model, or of a whole that it is part of, where it has.
func (e *hypotheses) priorOf(f *propagation.Fault, n node) float64 {
	if len(f.ByModel) == 0 {
		return f.Prior
	}
	for ; n != none; n = e.g.parent[n] {
		if m := e.g.attrs[n].Get(schemas.AttrModel); m != "" {
			if p, ok := f.ByModel[m]; ok {
				return p
			}
			break
		}
	}
	return f.Prior
}

// Observed is how one class of a fault's signs came in one case.
type Observed struct {
	Class int // of the fault
	Could int // parts that could show the sign and were not mute
	Shown int
	// Lags are the seconds from the onset of the fault to each sign.
	Lags []float64
}

// Observed returns how the signs of a fault of a resource came, by what the engine
// knows now: one entry for each class that is weighed and that has parts to show it.
// fault is an index of the model; false where the engine holds no such suspect.
func (e *hypotheses) Observed(resource string, fault int) ([]Observed, bool) {
	n, ok := e.g.number[resource]
	if !ok {
		return nil, false
	}
	h := e.suspectOf(suspectKey{n, int32(fault)})
	if h == nil || h.dead || h.onset.IsZero() {
		return nil, false
	}
	e.hire(h)
	e.witness(h)
	var out []Observed
	for c := range h.classes {
		r := &h.classes[c]
		o := Observed{Class: c, Could: int(r.n - r.mute)}
		for _, s := range r.signs {
			if s.said {
				o.Shown++
				o.Lags = append(o.Lags, max(0, s.at.Sub(h.onset).Seconds()))
			}
		}
		o.Could = max(o.Could, o.Shown)
		if h.fault.Classes[c].Derived || o.Could == 0 {
			continue
		}
		out = append(out, o)
	}
	return out, true
}

package solver

import "fmt"

// Certainty is how sure a cause may be at most: the rest is left to causes that the model does not have.
const Certainty = certainty

// StealGain is what a cause that is not blamed must gain, in nats, to take signs from one that is.
const StealGain = stealGain

// Methods are the names of the methods, the default first.
func Methods() []string { return []string{"cover", "sampled", "walk"} }

// Named returns the method of a name over what a cover knows; "" is the default.
func Named(name string, m *Cover) (Method, error) {
	switch name {
	case "", "cover":
		return m, nil
	case "sampled":
		return NewSampled(m), nil
	case "hybrid":
		return hybrid{m, NewSampled(m)}, nil
	case "walk":
		return NewWalk(m), nil
	}
	return nil, fmt.Errorf("no method %q; known are %v", name, Methods())
}

type hybrid struct {
	*Cover
	s *Sampled
}

func (h hybrid) Posterior(g *Group, root int32, owner []int32, of State) Posterior {
	return h.s.Posterior(g, root, owner, of)
}

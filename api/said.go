package api

import "auspex/schemas"

// The texts of why something is in its state are kept in English; answers have them in pieces too.

func (s *Server) saidOf(a schemas.Allocation) schemas.Allocation {
	a.Sentence = s.deps.Said.Of(a.Reason)
	return a
}

func (s *Server) saidOfAll(all []schemas.Allocation) []schemas.Allocation {
	for i := range all {
		all[i] = s.saidOf(all[i])
	}
	return all
}

func (s *Server) saidOfFlow(w schemas.Workflow) schemas.Workflow {
	w.Sentence = s.deps.Said.Of(w.Reason)
	for i := range w.Steps {
		w.Steps[i].Sentence = s.deps.Said.Of(w.Steps[i].Message)
	}
	return w
}

func (s *Server) saidOfFlows(all []schemas.Workflow) []schemas.Workflow {
	for i := range all {
		all[i] = s.saidOfFlow(all[i])
	}
	return all
}

func (s *Server) saidOfSweep(d schemas.Discovery) schemas.Discovery {
	d.Sentence = s.deps.Said.Of(d.Reason)
	return d
}

// said is a text in pieces; the zero sentence is that there are none.
func (s *Server) said(text string) schemas.Sentence {
	if found := s.deps.Said.Of(text); found != nil {
		return *found
	}
	return schemas.Sentence{}
}

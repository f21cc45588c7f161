package solver

// Walk ranks causes by how often a random walk with restart meets them: from the signs
// to what could show them and back, as MonitorRank (Kim et al., SIGMETRICS 2013) and
// CloudRanger (Wang et al., CCGRID 2018) walk over the calls between services. It knows
// neither priors nor silence, and a state is no more than its signs. One cause after
// another takes the signs that are left; the model's score says only when to stop.
type Walk struct{ *Cover }

// NewWalk returns the method over the fits of a cover.
func NewWalk(m *Cover) *Walk { return &Walk{m} }

const (
	walkRestart = 0.15 // as PageRank has it
	walkRounds  = 20   // after these, 4 % of the mass has not been moved: no rank changes
)

// visits returns how often a walk meets each cause, from the signs that are left.
func (s *cover) visits(left func(n int32) bool) []float64 {
	type edge struct {
		sign, cause int32
		w           float64
	}
	var edges []edge
	out, in := make([]float64, len(s.Signs)), make([]float64, len(s.Causes))
	start, all := make([]float64, len(s.Signs)), 0.0
	for h := range s.Causes {
		for c := range s.Causes[h].Classes {
			m := &s.Causes[h].Fault.Classes[c]
			for _, ev := range s.Causes[h].Classes[c].Evidence {
				if s.work++; !ev.Said || ev.Sign == None || !left(ev.Sign) {
					continue
				}
				w := m.Share * m.Shows
				edges = append(edges, edge{ev.Sign, int32(h), w}) //nolint:gosec // an index
				out[ev.Sign] += w
				in[h] += w
				start[ev.Sign] = max(start[ev.Sign], ev.Gain)
			}
		}
	}
	for _, v := range start {
		all += v
	}
	causes := make([]float64, len(s.Causes))
	if all <= 0 {
		return causes
	}
	at := make([]float64, len(s.Signs))
	for n := range at {
		at[n] = start[n] / all
	}
	for range walkRounds {
		clear(causes)
		for _, e := range edges {
			causes[e.cause] += at[e.sign] * e.w / out[e.sign]
		}
		for n := range at {
			at[n] = walkRestart * start[n] / all
		}
		for _, e := range edges {
			at[e.sign] += (1 - walkRestart) * causes[e.cause] * e.w / in[e.cause]
		}
		s.work += len(edges)
	}
	return causes
}

// Explain implements [Method].
func (m *Walk) Explain(g *Group) Explanation {
	s := m.run(g)
	x := Explanation{Owner: s.owner, Class: s.class}
	able := make([]bool, len(g.Causes))
	for h := range g.Causes {
		able[h] = g.Causes[h].Whole && g.Causes[h].Base > 0
	}
	for {
		seen := s.visits(func(n int32) bool { return s.owner[n] == None })
		best, score := None, 0.0
		for h, v := range seen {
			if able[h] && (best == None || v > seen[best]) && v > 0 {
				if score = s.score(int32(h), s.unowned); score > 0 { //nolint:gosec // an index
					best = int32(h) //nolint:gosec // an index
				} else {
					able[h] = false
				}
			}
		}
		if best == None {
			break
		}
		able[best] = false
		s.state[best].Score = s.score(best, s.unowned)
		s.blame(best, true)
		for c := range g.Causes[best].Classes {
			for i := range g.Causes[best].Classes[c].Evidence {
				if ev := &g.Causes[best].Classes[c].Evidence[i]; ev.Said && ev.Sign != None && s.owner[ev.Sign] == None {
					s.own(best, c, ev)
				}
			}
		}
		x.States, x.Blamed = append(x.States, s.state[best].State), append(x.Blamed, best)
	}
	s.attach()
	x.Work = s.work
	return x
}

// Posterior implements [Method]: shares of the walk from the signs of the root.
func (m *Walk) Posterior(g *Group, root int32, owner []int32, _ State) Posterior {
	s := m.run(g)
	seen := s.visits(func(n int32) bool { return owner[n] == root })
	sum := 0.0
	for _, v := range seen {
		sum += v
	}
	if sum == 0 {
		return Posterior{Shares: []Share{{Cause: root}}, Unknown: 1}
	}
	return shared(seen, root, 0, sum)
}

var _ Method = (*Walk)(nil)

package fit

import (
	"sort"
	"strings"

	"auspex/allocator/fit/messages"
)

// constraints are what a wish may do without, each with how.
var constraints = []struct {
	field string
	asked func(*Wish) bool
	drop  func(*Wish)
}{
	{"max_risk", func(w *Wish) bool { return w.MaxRisk < 1 }, func(w *Wish) { w.MaxRisk = 1 }},
	{"min_health", func(w *Wish) bool { return w.MinHealth < Warning }, func(w *Wish) { w.MinHealth = Warning }},
	{"together", func(w *Wish) bool { return w.Together != Anywhere }, func(w *Wish) { w.Together = Anywhere }},
	{"spread", func(w *Wish) bool { return len(w.Spread) > 0 }, func(w *Wish) { w.Spread = nil }},
	{
		"gpus_per_server",
		func(w *Wish) bool { return w.GPUsPerServer > 0 && w.GPUs > 0 && len(w.Spread) == 0 },
		func(w *Wish) { w.GPUsPerServer = 0 },
	},
	{"exclusive", func(w *Wish) bool { return w.Exclusive && w.GPUs > 0 }, func(w *Wish) { w.Exclusive = false }},
	{"pool", func(w *Wish) bool { return w.Pool != "" }, func(w *Wish) { w.Pool = "" }},
	{"labels", func(w *Wish) bool { return len(w.Labels) > 0 }, func(w *Wish) { w.Labels = nil }},
	{"model", func(w *Wish) bool { return w.Model != "" }, func(w *Wish) { w.Model = "" }},
	{"server_model", func(w *Wish) bool { return w.ServerModel != "" }, func(w *Wish) { w.ServerModel = "" }},
	{"min_memory_gb", func(w *Wish) bool { return w.MinMemoryGB > 0 }, func(w *Wish) { w.MinMemoryGB = 0 }},
	{"except", func(w *Wish) bool { return len(w.Except) > 0 }, func(w *Wish) { w.Except = nil }},
	{
		"server_names",
		func(w *Wish) bool { return len(w.ServerNames) > 0 && w.Servers+w.GPUs > 0 },
		func(w *Wish) { w.ServerNames = nil },
	},
}

// noFit tells what a wish lacked.
func (c *chooser) noFit() *NoFit {
	e := &NoFit{Need: c.need, GPUs: c.mode == split, Lost: c.losses(), Domains: c.areas()}
	var most *domain
	for i := range c.domains {
		d := &c.domains[i]
		e.Free += d.free
		if most == nil || d.free > most.free {
			most = d
		}
	}
	if len(c.unknown) > 0 {
		e.Misses = append(e.Misses, Miss{Sentence: say(messages.MissUnknown, map[string]any{"names": strings.Join(c.unknown, ", ")})})
		return e
	}
	if e.Free < e.Need {
		id := messages.MissServers
		if e.GPUs {
			id = messages.MissGPUs
		}
		e.Misses = append(e.Misses, Miss{Sentence: say(id, map[string]any{"free": e.Free, "need": e.Need})})
	}
	if c.Together != Anywhere && most != nil && most.free < e.Need {
		e.Misses = append(e.Misses, Miss{Sentence: say(messages.MissIn, map[string]any{
			"over": c.over(), "name": c.v.symbols[most.id], "free": most.free, "need": e.Need,
		})})
	}
	if c.ended {
		e.Misses = append(e.Misses, Miss{Sentence: say(messages.MissEndless, nil)})
	}
	for i := range constraints {
		q := &constraints[i]
		if !q.asked(c.Wish) {
			continue
		}
		w := *c.Wish
		q.drop(&w)
		if !possible(c.v, w) {
			continue
		}
		m := Miss{Constraint: q.field, Sentence: say(messages.MissWithout, map[string]any{"constraint": q.field})}
		if q.field == "max_risk" {
			// The first whole percent that is enough.
			n := sort.Search(100, func(n int) bool {
				w.MaxRisk = max(1e-9, float64(n)/100)
				return possible(c.v, w)
			})
			m.MaxRisk = float64(n) / 100
			m.Sentence = say(messages.MissRisk, map[string]any{"max": n})
		}
		e.Misses = append(e.Misses, m)
	}
	return e
}

// possible reports whether a wish fits.
func possible(v *View, w Wish) bool {
	p, err := w.plan(v)
	if err != nil {
		return false
	}
	c := rooms.Get().(*chooser)
	defer func() {
		c.plan, c.v, c.domains = nil, nil, c.domains[:0]
		rooms.Put(c)
	}()
	c.plan, c.v = p, v
	return c.run()
}

package fit

import (
	"cmp"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"time"

	"auspex/allocator/fit/messages"
	"auspex/schemas"
)

// Choice is what a wish gets, and why.
type Choice struct {
	Servers   []Chosen // by name
	Risk      float64  // that a part of any of them fails before Until, as far as is predicted
	RunnersUp []Runner // the next best, at most three
	Domains   []Domain // where the wish was to be together: the chosen one, then others, at most ten
	Lost      []Lost   // all that were not chosen, each under one reason
}

// Chosen is a server with what is given of it.
type Chosen struct {
	Server  string
	GPUs    []string // names
	Whole   bool     // the server with all of its GPUs
	Health  Health
	Risk    float64 // that a part fails before Until
	Reasons []schemas.Sentence
}

// Runner is a server that would have been next, and what decided against it.
type Runner struct {
	Chosen

	Why schemas.Sentence
}

// Domain is servers that share what was asked, and how they fared.
type Domain struct {
	Name string
	Free int // servers, or GPUs where the wish counts these
	Why  schemas.Sentence
}

// Lost is how many servers were not chosen for one reason; its sentence speaks of the first.
type Lost struct {
	Reason   string // id of the sentence
	Count    int
	Examples []string // at most five names
	Detail   schemas.Sentence
}

// NoFit is a wish that nothing fits, and what it lacked.
type NoFit struct {
	Free, Need int // servers that fit by themselves, or GPUs where the wish counts these
	GPUs       bool
	Domains    []Domain
	Lost       []Lost
	Misses     []Miss // what would help, the nearest first
}

// Miss is one thing that stands in the way of a wish. Where it is a constraint, the wish without
// it, and with all the rest, fits.
type Miss struct {
	Constraint string // a field of the wish; "" is the number
	MaxRisk    float64
	Sentence   schemas.Sentence
}

// Error implements error.
func (e *NoFit) Error() string {
	text := make([]string, 0, len(e.Misses)+1)
	for _, m := range e.Misses {
		text = append(text, messages.Text(m.Sentence))
	}
	return ErrNoFit.Error() + ": " + strings.Join(text, "; ")
}

// Is makes it [ErrNoFit].
func (e *NoFit) Is(target error) bool { return target == ErrNoFit }

const (
	someExamples = 5
	someRunners  = 3
	someDomains  = 10
)

func say(id string, args map[string]any) schemas.Sentence {
	return schemas.Sentence{ID: id, Args: args}
}

// choice tells of what was chosen.
func (c *chooser) choice() *Choice {
	out := &Choice{Lost: c.losses(), Domains: c.areas()}
	left, none := c.need, 1.0
	for _, k := range c.best {
		s := c.give(k, left)
		left -= len(s.GPUs)
		none *= 1 - s.Risk
		out.Servers = append(out.Servers, s)
	}
	out.Risk = 1 - none
	slices.SortFunc(out.Servers, func(a, b Chosen) int { return cmp.Compare(a.Server, b.Server) })
	for _, k := range c.keys {
		at := place(k)
		if len(out.RunnersUp) == someRunners {
			break
		}
		if !c.chosen[at] {
			out.RunnersUp = append(out.RunnersUp, Runner{c.give(k, c.need), c.sentence(at)})
		}
	}
	return out
}

// give says what is given of a server, of so many GPUs that are missing yet.
func (c *chooser) give(k uint64, missing int) Chosen {
	at := place(k)
	r, free := c.row(at), c.free[at]
	n := bits.OnesCount64(free)
	give := n
	switch {
	case c.exclusive:
	case c.mode == equal:
		give = c.per
	case c.mode == split:
		give = min(n, missing)
	}
	mask := free
	for i := n; i > give; i-- {
		mask &^= 1 << (63 - bits.LeadingZeros64(mask))
	}
	s := Chosen{Server: r.name, GPUs: r.names(mask), Whole: c.exclusive, Health: r.health, Risk: c.risked[at]}
	health := say(messages.IsHealth, map[string]any{"health": r.health.String()})
	if r.why != "" {
		health.Args["why"] = schemas.Sentence{ID: r.why}
	}
	s.Reasons = append(s.Reasons, health)
	if p, worst, beyond := risk(r.risks, c.Until); worst != nil && percent(p) > 0 {
		id := messages.IsRisk
		if beyond {
			id = messages.IsRiskBeyond
		}
		s.Reasons = append(s.Reasons, say(id, map[string]any{"risk": percent(p), "part": worst.Part, "failure": worst.Failure}))
	} else {
		s.Reasons = append(s.Reasons, say(messages.IsSafe, nil))
	}
	if r.failed != 0 {
		s.Reasons = append(s.Reasons, say(messages.IsFailed, map[string]any{"date": time.Unix(0, r.failed).UTC().Format(time.DateOnly)}))
	} else {
		s.Reasons = append(s.Reasons, say(messages.IsNeverOut, nil))
	}
	if s.Whole {
		s.Reasons = append(s.Reasons, say(messages.IsWhole, nil))
	} else {
		s.Reasons = append(s.Reasons, say(messages.IsPart, map[string]any{"free": n, "given": give}))
	}
	return s
}

// losses counts what was not chosen, in the order of the filters.
func (c *chooser) losses() []Lost {
	var of [reasons]Lost
	for at, why := range c.why {
		if why == fits {
			continue
		}
		l := &of[why]
		if l.Count++; l.Count == 1 {
			l.Reason, l.Detail, l.Examples = words[why], c.sentence(int32(at)), make([]string, 0, someExamples)
		}
		if len(l.Examples) < someExamples {
			l.Examples = append(l.Examples, c.row(int32(at)).name)
		}
	}
	var out []Lost
	for i := range of {
		if of[i].Count > 0 {
			out = append(out, of[i])
		}
	}
	return out
}

// sentence is why a server was not chosen.
func (c *chooser) sentence(at int32) schemas.Sentence {
	r, why := c.row(at), c.why[at]
	args := map[string]any{"server": r.name}
	switch why {
	case otherPool:
		args["pool"] = c.Pool
	case otherLabels:
		args["labels"] = pairs(c.Labels)
	case otherServer:
		args["model"] = c.ServerModel
	case otherModel:
		args["model"] = c.Model
	case littleMemory:
		args["memory_gb"] = c.MinMemoryGB
	case fewGPUs:
		args["gpus"] = c.per
	case notReady:
		args["status"] = c.v.symbols[r.status]
	case held:
		args["hold"] = r.hold
	case repaired:
		args["case"] = r.open
	case unwell:
		args["health"], args["asked"] = r.health.String(), c.MinHealth.String()
		if r.why != "" {
			args["why"] = schemas.Sentence{ID: r.why}
		}
	case risky:
		p, worst, _ := risk(r.risks, c.Until)
		args["risk"], args["max"], args["part"], args["failure"] = percent(p), percent(c.risk), worst.Part, worst.Failure
	case domainShort:
		if args["over"] = c.over(); c.over() == "" {
			return say(messages.Few, nil)
		}
	case noPlace, lessDomain:
		args["over"] = c.over()
	}
	return say(words[why], args)
}

// over is what servers are to share or to be spread over, in a word.
func (c *chooser) over() string {
	if c.Together != Anywhere {
		return string(c.Together)
	}
	var over []string
	for _, q := range c.caps {
		over = append(over, strings.TrimSuffix(string(q.over), "s"))
	}
	return strings.Join(over, " or ")
}

func pairs(labels map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, fmt.Sprintf("%s=%s", k, labels[k]))
	}
	return strings.Join(out, ", ")
}

// areas are the domains: the chosen, then those that fit, the best first, then the others, the
// fullest first.
func (c *chooser) areas() []Domain {
	if c.Together == Anywhere {
		return nil
	}
	by := make([]*domain, len(c.domains))
	for i := range by {
		by[i] = &c.domains[i]
	}
	slices.SortStableFunc(by, func(a, b *domain) int {
		switch {
		case a.ok != b.ok && a.ok:
			return -1
		case a.ok != b.ok:
			return 1
		case a.ok:
			n, _ := a.score.compare(b.score)
			return n
		}
		return b.free - a.free
	})
	out := make([]Domain, 0, min(someDomains, len(by)))
	for _, d := range by[:cap(out)] {
		name := c.v.symbols[d.id]
		args := map[string]any{"over": c.over(), "name": name, "free": d.free, "need": c.need}
		id := messages.DomainWorse
		switch d.lost {
		case fits:
			id = messages.DomainChosen
		case domainShort:
			id = messages.DomainFew
		case tooNear:
			id = messages.DomainNear
		default:
			args["why"] = say(words[d.lost], nil)
		}
		out = append(out, Domain{name, d.free, say(id, args)})
	}
	return out
}

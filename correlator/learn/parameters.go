package learn

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"auspex/correlator"
	"auspex/internal/hindsight"
	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

// How much a site may change of what the records say (docs/adr/0010-learning.md).
const (
	// Worth is how many judged cases a number of a record is worth: with as many the site
	// and the record have an equal say, with one the record keeps ten elevenths.
	Worth = 10.0
	// MaxShift bounds by how many nats of score a prior moves: the odds of an incident
	// change by exp(MaxShift/Tempering), 20, at most.
	MaxShift = 6.0
	// Priors stay within these log-odds: one in 160,000 and even.
	minPrior, maxPrior = -12.0, 0.0
	// Seldom and Often bound learned probabilities, unless the record itself is beyond.
	Seldom = 0.02
	Often  = 0.98 // see Seldom
	// MaxLag is by which factor a mean lag may differ from the record's.
	MaxLag = 4.0
	// Unjudged is the part of a judged case that one which nobody has judged counts for,
	// beside its confidence. It is the product's own opinion: its signs are those by which
	// it was found, so that it may say how soon and how often they come and never that the
	// fault is frequent. All of them together count as Worth for a fault at most.
	Unjudged = 0.25
	// modelCases is in how many cases a fault of a model of part must have been the cause or
	// a suspect for the model to have a prior of its own.
	modelCases = 8
)

// format is the version of the document.
const format = 1

// Parameters are what a site has taught: counts, which Apply turns into numbers of a
// model. So a record that changes later still counts, and no file brings a number
// beyond the bounds.
type Parameters struct {
	Format  int            `json:"format"`
	Learned time.Time      `json:"learned,omitzero"`
	Cases   int            `json:"cases"`  // incidents that were replayed
	Judged  int            `json:"judged"` // of them, by a person
	From    time.Time      `json:"from,omitzero"`
	To      time.Time      `json:"to,omitzero"`
	Priors  []FaultCounts  `json:"priors"`
	Effects []EffectCounts `json:"effects"`
	Edges   []EdgeCounts   `json:"edges,omitempty"` // that a person accepted
}

// EdgeCounts is a sign of a fault that no record has and a person accepted, with what was
// counted of it.
type EdgeCounts struct {
	Proposal string  `json:"proposal,omitempty"` // id, where the edge comes from one
	Fault    string  `json:"fault"`
	Kinds    string  `json:"kinds"` // of resources that may have it: faults may share a name
	Sign     string  `json:"sign,omitempty"`
	Type     string  `json:"type,omitempty"` // of the events that are the sign, where no record has one
	Code     string  `json:"code,omitempty"`
	Way      string  `json:"way,omitempty"`
	Cases    float64 `json:"cases"`
	Shown    float64 `json:"shown"`
	Share    float64 `json:"share"`  // sum over the latter of the share of the parts that showed it
	LagS     float64 `json:"lag_s"`  // sum over the latter of the mean lag, seconds
	Chance   float64 `json:"chance"` // of a part to show it in as long a time by itself
}

// key names the edge.
func (c *EdgeCounts) key() [6]string {
	return [6]string{c.Fault, c.Kinds, c.Sign, c.Type, c.Code, c.Way}
}

// countsOf returns what was counted of a cause of a proposal.
func countsOf(c *schemas.EdgeCause) *EdgeCounts {
	e := &EdgeCounts{
		Fault: c.Fault, Kinds: strings.Join(c.Kinds, " "), Sign: c.Sign, Way: c.Way, Cases: c.Cases, Shown: c.Shown, Share: c.SharesSum,
		LagS: c.LagsSumS, Chance: c.Chance,
	}
	if e.Sign == "" {
		e.Type, e.Code = c.Type, c.Code
	}
	return e
}

const (
	// A record that does not have an edge says that it does not come, and is worth Worth
	// cases like any number of it.
	//
	// leastLeak and mostLeak bound how probably a learned sign is there by itself: a site
	// that has seen it a few times cannot say that it never is, and one on which it is
	// always there has nothing to learn from it.
	leastLeak, mostLeak = 1e-4, 0.2
	edgeEarly           = time.Minute // a sign is heard of at most so long before that of its cause: they may come from other pollers
	maxEdges            = 200
	maxEdgeLag          = 86400.0 // seconds
)

// edge is what the counts come to, within the bounds. The way was parsed before.
func (c *EdgeCounts) edge() propagation.Edge {
	way, _ := propagation.ParseWay(c.Way)
	soon := time.Duration(c.LagS / max(1, c.Shown) * float64(time.Second))
	return propagation.Edge{
		Fault: c.Fault, Kinds: strings.Fields(c.Kinds), Sign: c.Sign, Type: c.Type, Code: c.Code,
		Leak: max(leastLeak, min(mostLeak, c.Chance)), Way: way,
		Shows: bounded(0.5, c.Shown/(Worth+c.Cases)), Share: bounded(0.5, (0.5+c.Share)/(1+c.Shown)),
		Soon: soon, Within: kernelSpan * soon, Before: edgeEarly,
	}
}

// WithEdges returns a copy of a model that has accepted edges.
func WithEdges(m *propagation.Model, list []EdgeCounts) *propagation.Model {
	edges := make([]propagation.Edge, len(list))
	for i := range list {
		edges[i] = list[i].edge()
	}
	return m.With(edges)
}

// FaultCounts is how often a fault was the cause and how often it was said to be, in judged
// cases: of all parts, or of those of one model.
type FaultCounts struct {
	Fault string `json:"fault"`
	Model string `json:"model,omitempty"`
	// Was is the number of cases whose cause it was, Said the sum of the probabilities
	// that a replay with the signs of here gave it in all.
	Was  float64 `json:"was"`
	Said float64 `json:"said"`
}

// EffectCounts is how one class of the signs of a fault came, in weighted cases.
type EffectCounts struct {
	Fault string  `json:"fault"`
	Kinds string  `json:"kinds"`         // of resources that may have it: faults may share a name
	Sign  string  `json:"sign"`          // of the records
	Way   string  `json:"way,omitempty"` // from the cause to where the sign shows
	Cases float64 `json:"cases"`         // in which it could show
	Shown float64 `json:"shown"`         // in which it did
	Share float64 `json:"share"`         // sum over the latter of the share of the parts that showed it
	LagS  float64 `json:"lag_s"`         // sum over the latter of the mean lag, seconds
}

// learn counts what outcomes of a replay by a model say. The signs come first: priors are
// about what is said once the signs are as they are here. The order of the outcomes makes
// no difference.
func (p *Past) learn(ctx context.Context, m *propagation.Model, outs []outcome) (*Parameters, error) {
	out := signs(m, outs)
	judged := map[*Case]bool{}
	for i := range outs {
		judged[outs[i].c] = outs[i].found && outs[i].c.Judged()
	}
	again, err := p.replay(ctx, Apply(m, out), func(c *Case) bool { return judged[c] })
	if err != nil {
		return nil, err
	}
	out.Priors = p.priors(m, again)
	return out, nil
}

// signs are the parameters of signs alone.
func signs(m *propagation.Model, outs []outcome) *Parameters {
	out := &Parameters{Format: format, Effects: effects(m, outs)}
	for i := range outs {
		o := &outs[i]
		out.Cases++
		out.From, out.To = earlier(out.From, o.c.Incident.Opened), later(out.To, o.c.Incident.Opened)
		if o.c.Judged() {
			out.Judged++
		}
	}
	return out
}

// priors counts how often faults were the cause and were said to be, in judged cases.
func (p *Past) priors(m *propagation.Model, outs []outcome) (out []FaultCounts) {
	known := map[string]bool{}
	for _, f := range m.Blamable() {
		known[f.Fault] = true
	}
	type key struct{ fault, model string }
	type counts struct {
		was, said []float64
		cases     map[*Case]bool
	}
	by := map[key]*counts{}
	for i := range outs {
		o := &outs[i]
		count := func(fault, resource string, add func(*counts)) {
			models := []string{""}
			if model := p.models[resource]; model != "" {
				models = append(models, model)
			}
			for _, model := range models {
				c := by[key{fault, model}]
				if c == nil {
					c = &counts{cases: map[*Case]bool{}}
					by[key{fault, model}] = c
				}
				c.cases[o.c] = true
				add(c)
			}
		}
		if resource, fault := o.c.Truth(); known[fault] {
			count(fault, resource, func(c *counts) { c.was = append(c.was, 1) })
		}
		for _, s := range o.said {
			if known[s.Fault] {
				count(s.Fault, s.Resource, func(c *counts) { c.said = append(c.said, s.Confidence) })
			}
		}
	}
	for k, c := range by {
		if k.model == "" || len(c.cases) >= modelCases {
			out = append(out, FaultCounts{Fault: k.fault, Model: k.model, Was: hindsight.Total(c.was), Said: hindsight.Total(c.said)})
		}
	}
	slices.SortFunc(out, func(a, b FaultCounts) int {
		return cmp.Or(cmp.Compare(a.Fault, b.Fault), cmp.Compare(a.Model, b.Model))
	})
	return out
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// weights returns how much each outcome counts for the effects of its fault.
func weights(outs []outcome) []float64 {
	var bins [hindsight.Bins]struct{ n, right float64 }
	bin := func(p float64) int { return min(hindsight.Bins-1, int(p*hindsight.Bins)) }
	for i := range outs {
		if o := &outs[i]; o.c.Judged() && o.Named {
			b := &bins[bin(o.Confidence)]
			b.n++
			if o.Right {
				b.right++
			}
		}
	}
	w := make([]float64, len(outs))
	own := map[string][]float64{}
	for i := range outs {
		o := &outs[i]
		switch {
		case o.c.Judged():
			w[i] = 1
		case o.Right: // the replay agrees with what was said at the time
			b := bins[bin(o.Confidence)]
			w[i] = Unjudged * min(o.Confidence, (Worth*o.Confidence+b.right)/(Worth+b.n))
			own[o.Fault] = append(own[o.Fault], w[i])
		}
	}
	total := map[string]float64{}
	for fault, v := range own {
		total[fault] = hindsight.Total(v)
	}
	for i := range outs {
		if o := &outs[i]; !o.c.Judged() && total[o.Fault] > Worth {
			w[i] *= Worth / total[o.Fault]
		}
	}
	return w
}

func effects(m *propagation.Model, outs []outcome) []EffectCounts {
	type sums struct{ cases, shown, share, lag []float64 }
	by := map[[2]int]*sums{}
	for i, w := range weights(outs) {
		if w == 0 {
			continue
		}
		for _, s := range outs[i].seen {
			if m.Faults[s.fault].Classes[s.class].Learned { // its counts are those that a person accepted
				continue
			}
			k := [2]int{s.fault, s.class}
			if by[k] == nil {
				by[k] = &sums{}
			}
			c := by[k]
			c.cases = append(c.cases, w)
			if s.Shown > 0 {
				c.shown = append(c.shown, w)
				c.share = append(c.share, w*float64(s.Shown)/float64(s.Could))
				c.lag = append(c.lag, w*hindsight.Total(slices.Clone(s.Lags))/float64(s.Shown))
			}
		}
	}
	var out []EffectCounts
	for _, k := range slices.SortedFunc(maps.Keys(by), func(a, b [2]int) int { return slices.Compare(a[:], b[:]) }) {
		f, c := &m.Faults[k[0]], by[k]
		e := effectOf(m, f, k[1])
		e.Cases, e.Shown = hindsight.Total(c.cases), hindsight.Total(c.shown)
		e.Share, e.LagS = hindsight.Total(c.share), hindsight.Total(c.lag)
		out = append(out, e)
	}
	return out
}

// effectOf names a class of a fault.
func effectOf(m *propagation.Model, f *propagation.Fault, class int) EffectCounts {
	cl := &f.Classes[class]
	return EffectCounts{Fault: f.Name, Kinds: strings.Join(f.Kinds, " "), Sign: m.Signs[cl.Sign].Name, Way: propagation.WayString(cl.Path)}
}

// Apply returns a copy of a model with what a site has taught in it; the model stays as
// it is. A fault or sign that the model does not have is left out.
func Apply(m *propagation.Model, p *Parameters) *propagation.Model {
	out := *WithEdges(m, p.Edges)
	out.Faults = slices.Clone(out.Faults)
	whole := map[string]FaultCounts{} // of each fault, over all models of parts
	for _, q := range p.Priors {
		if q.Model == "" {
			whole[q.Fault] = q
		}
	}
	byModel := map[string]map[string]float64{}
	for _, q := range p.Priors {
		if q.Model == "" {
			continue
		}
		// What parts of other models taught is worth as much for this one as the record is
		// for the fault; its own cases count once.
		all := whole[q.Fault]
		others := (Worth + max(0, all.Was-q.Was)) / (Worth + max(0, all.Said-q.Said))
		if byModel[q.Fault] == nil {
			byModel[q.Fault] = map[string]float64{}
		}
		byModel[q.Fault][q.Model] = (Worth*others + q.Was) / (Worth + q.Said)
	}
	effects := map[EffectCounts]*EffectCounts{}
	for i := range p.Effects {
		e := p.Effects[i]
		effects[EffectCounts{Fault: e.Fault, Kinds: e.Kinds, Sign: e.Sign, Way: e.Way}] = &e
	}
	for i := range out.Faults {
		f := &out.Faults[i]
		if f.Harmless {
			continue
		}
		record := f.Prior
		if q, ok := whole[f.Name]; ok {
			f.Prior = shifted(record, (Worth+q.Was)/(Worth+q.Said))
		}
		f.ByModel = nil
		for model, r := range byModel[f.Name] {
			if f.ByModel == nil {
				f.ByModel = map[string]float64{}
			}
			f.ByModel[model] = shifted(record, r)
		}
		f.Classes = slices.Clone(f.Classes)
		for c := range f.Classes {
			if e := effects[effectOf(&out, f, c)]; e != nil && !f.Classes[c].Learned {
				e.change(&f.Classes[c])
			}
		}
	}
	return &out
}

// shifted moves the prior of a record so that the fault is said as often as it was. In a
// model whose probabilities are exp(score/Tempering) over their sum, that a fault was the
// cause was/said times as often as it was said to be asks for its scores to rise by
// Tempering ln(was/said): one step of iterative scaling (Darroch and Ratcliff, Annals of
// Mathematical Statistics 43, 1972).
func shifted(record, ratio float64) float64 {
	shift := max(-MaxShift, min(MaxShift, correlator.Tempering*math.Log(ratio)))
	return max(min(record, minPrior), min(max(record, maxPrior), record+shift))
}

// change puts the mean of the posterior in place of the record's numbers: a beta
// distribution for how often the class shows and for the share of its parts, a gamma
// distribution for the rate of its lags, each worth Worth cases before any is seen.
func (e *EffectCounts) change(c *propagation.Class) {
	c.Shows = bounded(c.Shows, (Worth*c.Shows+e.Shown)/(Worth+e.Cases))
	c.Share = bounded(c.Share, (Worth*c.Share+e.Share)/(Worth+e.Shown))
	if record := c.Soon.Seconds(); record > 0 {
		soon := (Worth*record + e.LagS) / (Worth + e.Shown)
		soon = max(record/MaxLag, min(record*MaxLag, soon, max(record, c.Within.Seconds())))
		c.Soon = time.Duration(soon * float64(time.Second))
	}
}

// bounded keeps a learned probability from being certain or impossible, and from going
// beyond a record that is.
func bounded(record, p float64) float64 {
	return max(min(record, Seldom), min(max(record, Often), p))
}

// Parse reads parameters; what cannot be true of any past is refused.
func Parse(doc []byte) (*Parameters, error) {
	var p Parameters
	d := json.NewDecoder(bytes.NewReader(doc))
	if err := d.Decode(&p); err != nil {
		return nil, fmt.Errorf("read learned parameters: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("read learned parameters: more than one document")
	}
	if p.Format != format {
		return nil, fmt.Errorf("read learned parameters: format %d; this version reads %d", p.Format, format)
	}
	const most = 1e9 // cases, and of each a day of lag
	count := func(v float64) bool { return v >= 0 && v <= most }
	seen := map[any]bool{}
	for i, q := range p.Priors {
		k := any([2]string{q.Fault, q.Model})
		if q.Fault == "" || !count(q.Was) || !count(q.Said) || seen[k] {
			return nil, fmt.Errorf("read learned parameters: priors[%d] (%s %s): not the counts of a fault, or there twice", i, q.Fault, q.Model)
		}
		seen[k] = true
	}
	const slack = 1e-6 // sums are rounded
	for i, e := range p.Effects {
		k := any([4]string{e.Fault, e.Kinds, e.Sign, e.Way})
		ok := e.Fault != "" && e.Sign != "" && count(e.Cases) && count(e.Shown) && count(e.Share) && count(e.LagS/86400)
		if !ok || e.Shown > e.Cases+slack || e.Share > e.Shown+slack || seen[k] {
			return nil, fmt.Errorf(
				"read learned parameters: effects[%d] (%s, %s): not the counts of an effect, or there twice", i, e.Fault, e.Sign,
			)
		}
		seen[k] = true
	}
	if len(p.Edges) > maxEdges {
		return nil, fmt.Errorf("read learned parameters: %d edges; at most %d are taken", len(p.Edges), maxEdges)
	}
	for i := range p.Edges {
		e := &p.Edges[i]
		k := any(e.key())
		_, err := propagation.ParseWay(e.Way)
		ok := e.Fault != "" && (e.Sign == "") == (e.Type != "") && count(e.Cases) && count(e.Shown) && count(e.Share) && e.Shown > 0 &&
			e.LagS >= 0 && e.LagS <= maxEdgeLag*e.Shown && e.Chance >= 0 && e.Chance <= 1
		if !ok || err != nil || e.Shown > e.Cases+slack || e.Share > e.Shown+slack || seen[k] {
			return nil, errors.Join(fmt.Errorf(
				"read learned parameters: edges[%d] (%s, %s%s): not the counts of an edge, or there twice", i, e.Fault, e.Sign, e.Type,
			), err)
		}
		seen[k] = true
	}
	return &p, nil
}

// Unknown names the faults and signs of parameters that a model does not have: they
// change nothing.
func (p *Parameters) Unknown(m *propagation.Model) []string {
	faults, classes := map[string]bool{}, map[EffectCounts]bool{}
	for i := range m.Faults {
		faults[m.Faults[i].Name] = true
		for c := range m.Faults[i].Classes {
			classes[effectOf(m, &m.Faults[i], c)] = true
		}
	}
	var out []string
	for _, q := range p.Priors {
		if !faults[q.Fault] {
			out = append(out, q.Fault)
		}
	}
	for _, e := range p.Effects {
		if !classes[EffectCounts{Fault: e.Fault, Kinds: e.Kinds, Sign: e.Sign, Way: e.Way}] {
			out = append(out, strings.TrimSpace(e.Fault+": "+e.Sign+" "+e.Way))
		}
	}
	for i := range p.Edges {
		if e := &p.Edges[i]; m.Index(e.Fault, strings.Fields(e.Kinds)) < 0 || e.Sign != "" && m.SignNamed(e.Sign) < 0 {
			out = append(out, strings.TrimSpace(e.Fault+": "+e.Sign+e.Type+" "+e.Way))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

package propagation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"auspex/schemas"
	"auspex/schemas/faults/sentence"
)

// Edge is a sign of a fault that the records do not have and a site has taught.
type Edge struct {
	Fault string
	Kinds []string // of the form of the fault; faults may share a name
	// Sign is the name of a sign of the records; where it is empty, Type and Code say
	// which events are the sign, and Leak how probably it is there by itself. Code ""
	// is every code.
	Sign       string
	Type, Code string
	Leak       float64
	Way        []Step
	// Shows, Share, Within, Before and Soon are as in [Class].
	Shows, Share         float64
	Within, Before, Soon time.Duration
}

// learnedSign returns the name of the sign that events of a type and code are where no
// record has one.
func learnedSign(typ, code string) string {
	return strings.NewReplacer(".", "_", " ", "_").Replace(strings.TrimSuffix("learned_"+typ+"/"+code, "/"))
}

// Index returns the number of the fault that an edge is of, or -1.
func (m *Model) Index(fault string, kinds []string) int {
	return slices.IndexFunc(m.Faults, func(f Fault) bool { return f.Name == fault && !f.Harmless && slices.Equal(f.Kinds, kinds) })
}

// With returns a copy of a model in which edges are classes of their faults; the model
// stays as it is. An edge of a fault or sign that the model does not have, and one that
// it has already, is left out.
func (m *Model) With(edges []Edge) *Model {
	if len(edges) == 0 {
		return m
	}
	out := *m
	known := m.kinds()
	out.Signs, out.Faults = slices.Clone(m.Signs), slices.Clone(m.Faults)
	out.byType = make(map[string][]pattern, len(m.byType))
	for t, ps := range m.byType {
		out.byType[t] = slices.Clone(ps)
	}
	for i := range edges {
		e := &edges[i]
		f := out.Index(e.Fault, e.Kinds)
		if f < 0 || slices.ContainsFunc(e.Way, func(s Step) bool { return !known[s.Kind] }) {
			continue
		}
		sign := out.SignNamed(e.Sign)
		if e.Sign == "" {
			sign = out.learn(e)
		}
		fault := &out.Faults[f]
		if sign < 0 || fault.Window != NoWindow || len(fault.Classes) >= maxClasses || slices.ContainsFunc(fault.Classes, func(c Class) bool {
			return c.Sign == sign && slices.Equal(c.Path, e.Way)
		}) {
			continue
		}
		fault.Classes = slices.Insert(slices.Clone(fault.Classes), fault.own, Class{
			Sign: sign, Path: e.Way, Share: e.Share, Shows: e.Shows, Within: e.Within, Before: e.Before, Soon: e.Soon, Later: true, Learned: true,
			Jobs: len(e.Way) > 0 && e.Way[len(e.Way)-1].Op == Jobs,
		})
		fault.own++
	}
	out.number()
	return &out
}

// learn returns the sign of the events of an edge, and adds it where it is new.
func (m *Model) learn(e *Edge) int {
	if s := m.Match(e.Type, e.Code, schemas.SeverityCritical); s >= 0 { // by a record of today, or an edge before this one
		return s
	}
	name := learnedSign(e.Type, e.Code)
	if m.SignNamed(name) >= 0 { // two types in other letters
		return -1
	}
	what := strings.TrimSuffix(e.Type+"/"+e.Code, "/")
	m.Signs = append(m.Signs, Sign{
		Name: name, Title: sentence.Text{"en": "reports of " + what, "zh": what + " 报告"},
		Leak: e.Leak, Young: e.Leak, Rare: e.Leak, Again: 1, Bounce: -1, Learned: true,
	})
	// The patterns of a type are in the order in which they decide: the last one asked.
	m.byType[e.Type] = append(m.byType[e.Type], pattern{e.Code, e.Code == "", false, schemas.SeverityWarning.Rank(), len(m.Signs) - 1})
	return len(m.Signs) - 1
}

// kinds are those of resources that the model or the inventory knows.
func (m *Model) kinds() map[string]bool {
	out := map[string]bool{KindWorkload: true}
	for _, k := range schemas.Kinds() {
		out[k] = true
	}
	for i := range m.Faults {
		for _, k := range m.Faults[i].Kinds {
			out[k] = true
		}
		for _, c := range m.Faults[i].Classes {
			for _, s := range c.Path {
				out[s.Kind] = true
			}
		}
	}
	return out
}

// number gives each class its number, and each way one of its own.
func (m *Model) number() {
	ways, id := map[string]int{}, 0
	for f := range m.Faults {
		m.Faults[f].Classes = slices.Clone(m.Faults[f].Classes)
		for c := range m.Faults[f].Classes {
			cl := &m.Faults[f].Classes[c]
			key := fmt.Sprint(cl.Path)
			if _, ok := ways[key]; !ok {
				ways[key] = len(ways)
			}
			cl.Way, cl.ID = ways[key], id
			id++
		}
	}
}

// ParseWay reads a way through the inventory as records write it, over whichever kinds
// of resources.
func ParseWay(s string) ([]Step, error) {
	l := loader{kinds: map[string]bool{}}
	for part := range strings.SplitSeq(s, ">") { // a site may have kinds of its own
		step, _ := readStep(part)
		l.kinds[step.Kind], l.kinds[step.In] = true, true
	}
	steps := l.path(1, "way", s)
	if err := l.err(); err != nil {
		return nil, fmt.Errorf("way %q: %w", s, err)
	}
	return steps, nil
}

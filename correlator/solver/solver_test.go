package solver

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/schemas/faults/propagation"
)

// A feed takes servers down, a server's own fault takes it down too, a part of it has a
// sign of its own.
const knowledge = `
declares: {events: [x.alarm, x.mark, x.gone]}
signs:
  x_alarm: {events: [x.alarm], leak: 0.000001, title: {en: an alarm, zh: 告警}}
  x_mark:  {events: [x.mark], leak: 0.001, title: {en: a mark, zh: 标记}}
  x_gone:  {events: [x.gone], leak: 0.01, title: {en: silence, zh: 沉默}}
states:
  down:
    - {sign: x_gone, p: 0.95, m: 0.95, within: 2m}
fault: feed
title: {en: Feed, zh: 馈电}
summary: {en: "{resource}", zh: "{resource}"}
kinds: [pdu]
prior: -5
do: {action: ticket, target: self}
shows:
  - {sign: x_alarm, p: 0.9, m: 0.4, within: 2m}
effects:
  - {effect: down, at: "powers:server", p: 0.9, m: 0.9}
---
fault: crash
title: {en: Crash, zh: 崩溃}
summary: {en: "{resource}", zh: "{resource}"}
is: down
kinds: [server]
prior: -3
do: {action: ticket, target: self}
effects:
  - {effect: down}
---
fault: part
title: {en: Part, zh: 部件}
summary: {en: "{resource}", zh: "{resource}"}
kinds: [gpu]
prior: -4
do: {action: ticket, target: self}
shows:
  - {sign: x_mark, p: 0.95, m: 0.95, within: 2m}
---
fault: shelf
title: {en: Shelf, zh: 机架}
summary: {en: "{resource}", zh: "{resource}"}
kinds: [rack]
prior: -5
do: {action: ticket, target: self}
shows:
  - {sign: x_mark, at: "down:gpu", p: 0.8, m: 0.9, within: 2m}
`

// hand is a group made by hand.
type hand struct {
	Group
	t *testing.T
	m *propagation.Model
}

func byHand(t *testing.T) *hand {
	t.Helper()
	m, err := propagation.Parse("knowledge.yaml", []byte(knowledge))
	if err != nil {
		t.Fatal(err)
	}
	return &hand{Group: Group{Now: 10 * time.Minute}, t: t, m: m}
}

func (g *hand) sign(node int32) int32 {
	g.Signs = append(g.Signs, Sign{Node: node, Device: node, Said: true})
	return int32(len(g.Signs) - 1)
}

// cause adds one that could show signs in a class, on so many parts.
func (g *hand) cause(name string, node int32, parts int, leak float64, signs ...int32) int32 {
	i := slices.IndexFunc(g.m.Faults, func(f propagation.Fault) bool { return f.Name == name })
	f := &g.m.Faults[i]
	n := int32(len(g.Causes))
	x := Cause{Fault: f, Node: node, Device: node, Parent: 99, Prior: f.Prior, Timed: true, Whole: true, Classes: make([]Class, len(f.Classes))}
	c := len(f.Classes) - 1 // the last is what it shows elsewhere
	for k := range x.Classes {
		x.Classes[k].Parts = 1
	}
	x.Classes[c].Parts = parts
	for _, s := range signs {
		x.Classes[c].Evidence = append(x.Classes[c].Evidence, Evidence{Sign: s, Said: true, Gain: -math.Log(leak)})
		g.Signs[s].Of = append(g.Signs[s].Of, Ref{n, int32(c)})
	}
	g.Causes = append(g.Causes, x)
	return n
}

func (g *hand) explain() Explanation {
	m := NewCover(g.m, &Fits{})
	for h := range g.Causes {
		g.Causes[h].Base = m.Score(&g.Group, int32(h))
	}
	return m.Explain(&g.Group)
}

func TestOneSignOfWhatHardlyComesByItselfIsBlamedOnItsPart(t *testing.T) {
	g := byHand(t)
	h := g.cause("part", 1, 1, 0.001, g.sign(1))
	if x := g.explain(); !slices.Equal(x.Blamed, []int32{h}) || x.Owner[0] != h {
		t.Errorf("blamed %v, owner %v", x.Blamed, x.Owner)
	}
}

func TestASignThatComesByItselfIsLeftToItself(t *testing.T) {
	g := byHand(t)
	g.cause("part", 1, 1, 0.3, g.sign(1))
	if x := g.explain(); len(x.Blamed) > 0 || x.Owner[0] != None {
		t.Errorf("a leak of 0.3 is blamed on %v", x.Blamed)
	}
}

func TestTwoCausesAtOnceAreBothBlamed(t *testing.T) {
	g := byHand(t)
	a, b := g.sign(1), g.sign(2)
	x, y := g.cause("part", 1, 1, 0.001, a), g.cause("part", 2, 1, 0.001, b)
	if d := cmp.Diff([]int32{x, y}, g.explain().Blamed); d != "" {
		t.Error(d)
	}
}

func TestWhatExplainsAllExplainsTheOthersAway(t *testing.T) {
	g := byHand(t)
	var all []int32
	for n := range int32(6) {
		all = append(all, g.sign(n))
	}
	shelf := g.cause("shelf", 50, 8, 0.001, all...)
	for n, s := range all {
		g.cause("part", int32(n), 1, 0.001, s)
	}
	if x := g.explain(); !slices.Equal(x.Blamed, []int32{shelf}) {
		t.Errorf("blamed %v, not the shelf alone", x.Blamed)
	}
}

func TestSilenceSpeaksAgainstACause(t *testing.T) {
	blamed := func(parts, mute int) bool {
		g := byHand(t)
		all := []int32{g.sign(0), g.sign(1)}
		shelf := g.cause("shelf", 50, parts, 0.001, all...)
		g.Causes[shelf].Classes[0].Mute = mute
		for n, s := range all {
			g.cause("part", int32(n), 1, 0.001, s)
		}
		return slices.Contains(g.explain().Blamed, shelf)
	}
	if !blamed(2, 0) {
		t.Error("two of two speak, and the shelf is not blamed")
	}
	if blamed(200, 0) {
		t.Error("198 of 200 are silent, and the shelf is blamed")
	}
	if !blamed(200, 198) {
		t.Error("198 of 200 could not speak, and the shelf is not blamed")
	}
}

func TestAStateIsFoldedIntoWhatBringsItAbout(t *testing.T) {
	g := byHand(t)
	var crashes []int32
	var parts []Part
	i := slices.IndexFunc(g.m.Faults, func(f propagation.Fault) bool { return f.Name == "feed" })
	feed := Cause{Fault: &g.m.Faults[i], Node: 50, Device: None, Parent: 98, Prior: -5, Classes: make([]Class, len(g.m.Faults[i].Classes))}
	for n := range int32(4) {
		s := g.sign(n)
		crashes = append(crashes, g.cause("crash", n, 1, 0.0001, s))
		g.Signs[s].Of = append(g.Signs[s].Of, Ref{4, 1})
		feed.Classes[1].Evidence = append(feed.Classes[1].Evidence, Evidence{Sign: s, Said: true, Gain: 9})
		parts = append(parts, Part{Node: n, Device: n, Shows: true})
	}
	feed.Classes[1].Parts, feed.Timed, feed.Whole, feed.Effects = 4, true, true, [][]Part{parts}
	g.Causes = append(g.Causes, feed)
	x := g.explain()
	if !slices.Equal(x.Blamed, []int32{4}) || len(x.States[4].Folded) != 4 || x.States[4].Lift <= 0 {
		t.Fatalf("blamed %v, folded %v", x.Blamed, x.States)
	}
	for n, o := range x.Owner {
		if o != 4 {
			t.Errorf("sign %d belongs to %d", n, o)
		}
	}
	_ = crashes
}

func TestWhatTheGroupLacksIsAskedFor(t *testing.T) {
	g := byHand(t)
	h := g.cause("part", 1, 1, 0.001, g.sign(1))
	g.Causes[h].Base = 1
	m := NewCover(g.m, &Fits{})
	g.Causes[h].Whole = false
	if x := m.Explain(&g.Group); len(x.Blamed) > 0 {
		t.Error("a cause of which signs are missing is taken up")
	}
}

func TestProbabilitiesAddUpToOne(t *testing.T) {
	for _, rivals := range []int{0, 1, 2, 16} {
		g := byHand(t)
		s := g.sign(1)
		root := g.cause("part", 1, 1, 0.001, s)
		for n := range rivals {
			g.cause("part", int32(n+2), 1, 0.001, s)
		}
		x := g.explain()
		p := NewCover(g.m, &Fits{}).Posterior(&g.Group, root, x.Owner, x.States[root])
		sum, most := p.Unknown, 0.0
		for _, h := range p.Shares {
			sum += h.P
			most = max(most, h.P)
		}
		if math.Abs(sum-1) > 1e-9 || p.Unknown < 1-certainty {
			t.Errorf("%d rivals: %v and unknown %.3f add up to %.6f", rivals, p.Shares, p.Unknown, sum)
		}
		if rivals > 0 && most > 0.5 {
			t.Errorf("of %d equals one has %.2f", rivals+1, most)
		}
	}
}

// naive is another method over the same groups: each sign goes to the likeliest cause.
type naive struct{ *Cover }

func (naive) Explain(g *Group) Explanation {
	x := Explanation{States: make([]State, len(g.Causes))}
	for _, s := range g.Signs {
		best := Ref{None, None}
		for _, l := range s.Of {
			if best.Cause == None || g.Causes[l.Cause].Base > g.Causes[best.Cause].Base {
				best = l
			}
		}
		x.Owner, x.Class = append(x.Owner, best.Cause), append(x.Class, best.Class)
		if best.Cause != None && !slices.Contains(x.Blamed, best.Cause) {
			x.Blamed = append(x.Blamed, best.Cause)
		}
	}
	return x
}

func TestMethodsAreComparedOnTheSameGroup(t *testing.T) {
	g := byHand(t)
	a, b := g.sign(1), g.sign(2)
	g.cause("part", 1, 1, 0.001, a)
	g.cause("part", 2, 1, 0.001, b)
	want := g.explain()
	cover := NewCover(g.m, &Fits{})
	for name, m := range map[string]Method{"cover": cover, "naive": naive{cover}} {
		if d := cmp.Diff(want.Owner, m.Explain(&g.Group).Owner); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

func TestTheSameGroupHasTheSameExplanationAndIsNotChanged(t *testing.T) {
	g := byHand(t)
	var all []int32
	for n := range int32(6) {
		all = append(all, g.sign(n))
	}
	g.cause("shelf", 50, 8, 0.001, all...)
	for n, s := range all {
		g.cause("part", int32(n), 1, 0.001, s)
	}
	first := g.explain()
	for range 5 {
		if d := cmp.Diff(first, g.explain()); d != "" {
			t.Fatal(d)
		}
	}
	// Later by a year: only differences of times count.
	g.Now += 365 * 24 * time.Hour
	for i := range g.Signs {
		g.Signs[i].Heard += 365 * 24 * time.Hour
	}
	for i := range g.Causes {
		g.Causes[i].Onset += 365 * 24 * time.Hour
	}
	if d := cmp.Diff(first, g.explain()); d != "" {
		t.Error(d)
	}
}

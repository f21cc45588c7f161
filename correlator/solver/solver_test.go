package solver

import (
	"math"
	"slices"
	"strings"
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
	t  *testing.T
	m  *propagation.Model
	by string
}

// every runs a law of all methods.
func every(t *testing.T, law func(t *testing.T, by string)) {
	t.Helper()
	for _, by := range Methods() {
		t.Run(by, func(t *testing.T) { law(t, by) })
	}
}

// weighing runs a law of the methods that weigh silence and know states.
func weighing(t *testing.T, law func(t *testing.T, by string)) {
	t.Helper()
	for _, by := range []string{"cover", "sampled"} {
		t.Run(by, func(t *testing.T) { law(t, by) })
	}
}

func (g *hand) method() Method {
	g.t.Helper()
	m, err := Named(g.by, NewCover(g.m, &Fits{}))
	if err != nil {
		g.t.Fatal(err)
	}
	return m
}

func byHand(t *testing.T, by string) *hand {
	t.Helper()
	m, err := propagation.Parse("knowledge.yaml", []byte(knowledge))
	if err != nil {
		t.Fatal(err)
	}
	return &hand{Group: Group{Now: 10 * time.Minute}, t: t, m: m, by: by}
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
	return g.method().Explain(&g.Group)
}

func TestOneSignOfWhatHardlyComesByItselfIsBlamedOnItsPart(t *testing.T) {
	every(t, func(t *testing.T, by string) {
		g := byHand(t, by)
		h := g.cause("part", 1, 1, 0.001, g.sign(1))
		if x := g.explain(); !slices.Equal(x.Blamed, []int32{h}) || x.Owner[0] != h {
			t.Errorf("blamed %v, owner %v", x.Blamed, x.Owner)
		}
	})
}

func TestASignThatComesByItselfIsLeftToItself(t *testing.T) {
	every(t, func(t *testing.T, by string) {
		g := byHand(t, by)
		g.cause("part", 1, 1, 0.3, g.sign(1))
		if x := g.explain(); len(x.Blamed) > 0 || x.Owner[0] != None {
			t.Errorf("a leak of 0.3 is blamed on %v", x.Blamed)
		}
	})
}

func TestTwoCausesAtOnceAreBothBlamed(t *testing.T) {
	every(t, func(t *testing.T, by string) {
		g := byHand(t, by)
		a, b := g.sign(1), g.sign(2)
		x, y := g.cause("part", 1, 1, 0.001, a), g.cause("part", 2, 1, 0.001, b)
		if d := cmp.Diff([]int32{x, y}, g.explain().Blamed); d != "" {
			t.Error(d)
		}
	})
}

func TestWhatExplainsAllExplainsTheOthersAway(t *testing.T) {
	every(t, func(t *testing.T, by string) {
		g := byHand(t, by)
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
	})
}

func TestSilenceSpeaksAgainstACause(t *testing.T) {
	weighing(t, func(t *testing.T, by string) {
		blamed := func(parts, mute int) bool {
			g := byHand(t, by)
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
	})
}

func TestSilenceSaysLessWhereMuchIsLost(t *testing.T) {
	cl := &propagation.Class{Share: 0.95, Shows: 0.95}
	var f Fits
	before := f.Fit(cl, 1, 3, LateSteps)
	if f.Lose(0.03) {
		t.Error("less than a step is a change")
	}
	if !f.Lose(0.3) || f.Lose(0.3) {
		t.Error("a third is lost, and that is no change; or it is one twice")
	}
	if half := f.Fit(cl, 1, 3, LateSteps); half < before+0.2 || half >= f.Fit(cl, 1, 0, LateSteps) {
		t.Errorf("one of four: %.2f, where a third is lost %.2f", before, half)
	}
}

// All methods begin a run alike: what is blamed elsewhere takes power from what hangs on it, and the next group
// knows nothing of it.
func TestARunKnowsWhatIsLostAndNothingOfTheRunBefore(t *testing.T) {
	m := NewCover(byHand(t, "cover").m, &Fits{})
	for _, lost := range []bool{true, false, true} {
		g := byHand(t, "cover")
		h := g.cause("feed", 60, 1, 0.001, g.sign(1))
		g.Supply.Note(7, []int32{60})
		if lost {
			g.Lost = []Supplier{{Node: 60, Fault: g.Causes[h].Fault}}
		}
		if s := m.run(&g.Group); s.powerless(7, None) != lost {
			t.Errorf("lost %v, and without power %v", lost, !lost)
		}
		if s := NewSampled(m).chain(&g.Group, None); s.powerless(7, None) != lost {
			t.Errorf("sampled: lost %v, and without power %v", lost, !lost)
		}
	}
}

func TestAStateIsFoldedIntoWhatBringsItAbout(t *testing.T) {
	weighing(t, func(t *testing.T, by string) {
		g := byHand(t, by)
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
		if !slices.Equal(x.Blamed, []int32{4}) || len(x.States[0].Folded) != 4 || x.States[0].Lift <= 0 {
			t.Fatalf("blamed %v, folded %v", x.Blamed, x.States)
		}
		for n, o := range x.Owner {
			if o != 4 {
				t.Errorf("sign %d belongs to %d", n, o)
			}
		}
		_ = crashes
	})
}

func TestWhatTheGroupLacksIsAskedFor(t *testing.T) {
	every(t, func(t *testing.T, by string) {
		g := byHand(t, by)
		h := g.cause("part", 1, 1, 0.001, g.sign(1))
		g.Causes[h].Base = 1
		m := g.method()
		g.Causes[h].Whole = false
		if x := m.Explain(&g.Group); len(x.Blamed) > 0 {
			t.Error("a cause of which signs are missing is taken up")
		}
	})
}

func TestProbabilitiesAddUpToOne(t *testing.T) {
	every(t, func(t *testing.T, by string) {
		for _, rivals := range []int{0, 1, 2, 16} {
			g := byHand(t, by)
			s := g.sign(1)
			root := g.cause("part", 1, 1, 0.001, s)
			for n := range rivals {
				g.cause("part", int32(n+2), 1, 0.001, s)
			}
			x := g.explain()
			var of State
			if i := slices.Index(x.Blamed, root); i >= 0 {
				of = x.States[i]
			}
			p := g.method().Posterior(&g.Group, root, x.Owner, of)
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
	})
}

func TestAMethodThatIsNotThereIsNamed(t *testing.T) {
	if _, err := Named("guess", nil); err == nil || !strings.Contains(err.Error(), "sampled") {
		t.Errorf("error %v does not say which there are", err)
	}
}

// A part that shows a sign which another cause owns is not silent: it does not speak
// against the cause that could have shown it too.
func TestWhatAnotherOwnsIsNoSilence(t *testing.T) {
	g := byHand(t, "sampled")
	a, b := g.sign(1), g.sign(2)
	shelf := g.cause("shelf", 50, 2, 0.001, a, b)
	s := (&Sampled{NewCover(g.m, &Fits{})}).chain(&g.Group, None)
	s.set(shelf, true)
	s.give(a, shelf)
	heard := s.settle()
	g.Causes[shelf].Classes[0].Evidence = g.Causes[shelf].Classes[0].Evidence[:1]
	s = (&Sampled{NewCover(g.m, &Fits{})}).chain(&g.Group, None)
	s.set(shelf, true)
	s.give(a, shelf)
	if silent := s.settle(); heard <= silent {
		t.Errorf("with a part that speaks %.2f, with a silent one %.2f", heard, silent)
	}
}

// What the chain keeps up to date is what comes out when all is weighed anew, and taking
// back leads to where it was.
func TestTheChainKeepsItsScore(t *testing.T) {
	g := byHand(t, "sampled")
	var all []int32
	for n := range int32(6) {
		all = append(all, g.sign(n))
	}
	g.cause("shelf", 50, 8, 0.001, all...)
	for n, s := range all {
		g.cause("part", int32(n), 1, 0.001, s)
	}
	g.explain() // gives the causes their base
	s := NewSampled(NewCover(g.m, &Fits{})).chain(&g.Group, None)
	for range 200 {
		s.step(4, all, nil)
		kept := s.settle()
		for h := range s.there {
			s.touch(int32(h))
		}
		if again := s.settle(); math.Abs(kept-again) > 1e-9 {
			t.Fatalf("kept %.6f, weighed anew %.6f", kept, again)
		}
		before := slices.Clone(s.owner)
		s.log = s.log[:0]
		s.add(int32(s.rng.IntN(len(g.Causes))))
		if s.undo(0); !slices.Equal(before, s.owner) || math.Abs(s.joint-kept) > 1e-9 {
			t.Fatalf("taken back: %v for %v, %.6f for %.6f", s.owner, before, s.joint, kept)
		}
	}
}

// A cause that is blamed elsewhere need not come to be: where it could have shown a sign
// too, a fault of its own for that sign is less sure.
func TestACauseThatIsBlamedElsewhereIsARivalWithoutAPrior(t *testing.T) {
	sure := func(kept int) float64 {
		g := byHand(t, "cover")
		sign := g.sign(1)
		root := g.cause("part", 1, 1, 0.001, sign)
		shelf := g.cause("shelf", 50, 8, 0.001, sign)
		g.Causes[shelf].Kept = kept
		for range 6 {
			g.Causes[shelf].Classes[0].Evidence = append(g.Causes[shelf].Classes[0].Evidence, Evidence{Sign: None, Said: true, Taken: true})
		}
		shares := g.method().Posterior(&g.Group, root, []int32{root}, State{}).Shares
		return shares[slices.IndexFunc(shares, func(x Share) bool { return x.Cause == root })].P
	}
	if own, beside := sure(0), sure(7); own < 0.6 || beside > 0.2 {
		t.Errorf("%.2f, and beside a shelf that is blamed %.2f", own, beside)
	}
}

// Where a cause that is blamed elsewhere could have shown all of what another owns, that one is a coincidence; where it
// could have shown a part of it, it is not.
func TestWhatAnotherCouldHaveShownAllOfIsACoincidence(t *testing.T) {
	odds := func(could int) float64 {
		g := byHand(t, "cover")
		all := []int32{g.sign(1), g.sign(2)}
		root := g.cause("shelf", 50, 2, 0.001, all...)
		other := g.cause("shelf", 51, 8, 0.001, all[:could]...)
		g.Causes[other].Kept = 7
		for range 6 {
			g.Causes[other].Classes[0].Evidence = append(g.Causes[other].Classes[0].Evidence, Evidence{Sign: None, Said: true, Taken: true})
		}
		p := g.method().Posterior(&g.Group, root, []int32{root, root}, State{})
		k := slices.IndexFunc(p.Shares, func(x Share) bool { return x.Cause == root })
		return p.Shares[k].P / (p.Unknown - (1 - certainty)) // against nothing known, which stays as likely
	}
	if part, whole := odds(1), odds(2); math.Abs(math.Log(part/whole)-coincidence/Spread) > 1e-6 {
		t.Errorf("odds of %.1f where a part could be another's, and of %.1f where all could", part, whole)
	}
}

func TestTheSameGroupHasTheSameExplanationAndIsNotChanged(t *testing.T) {
	every(t, func(t *testing.T, by string) {
		g := byHand(t, by)
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
	})
}

// What tempers odds is that reports hang together: one report does not.
func TestOneSignIsNotTempered(t *testing.T) {
	odds := func(signs int, leak float64) float64 {
		g := byHand(t, "cover")
		var all, owner []int32
		for n := range signs {
			all, owner = append(all, g.sign(int32(n))), append(owner, 0) //nolint:gosec // two
		}
		root := g.cause("shelf", 50, 2, leak, all...)
		p := g.method().Posterior(&g.Group, root, owner, State{})
		return math.Log(p.Shares[0].P / (p.Unknown - (1 - certainty)))
	}
	rarer := math.Log(0.01 / 0.001)
	if got := odds(1, 0.001) - odds(1, 0.01); math.Abs(got-rarer) > 1e-6 {
		t.Errorf("one sign that is rarer by %.2f nats makes a cause surer by %.2f", rarer, got)
	}
	if got := odds(2, 0.001) - odds(2, 0.01); math.Abs(got-2*rarer/Spread) > 1e-6 {
		t.Errorf("two signs that are rarer by %.2f nats make a cause surer by %.2f", 2*rarer, got)
	}
}

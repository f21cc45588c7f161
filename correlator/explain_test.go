package correlator

import (
	"testing"
	"time"

	"auspex/schemas/faults/propagation"
	"auspex/schemas/faults/sentence"
)

// TestEveryFactHasAValue holds the view against the facts that records may use.
func TestEveryFactHasAValue(t *testing.T) {
	m := propagation.Default()
	incident, sign := propagation.Facts()
	v := &view{index: "x"}
	check := func(g *group, name string, want sentence.Type) {
		t.Helper()
		got := sentence.Type(0)
		switch v.fact(m, g, name).(type) {
		case int, float64:
			got = sentence.Number
		case string:
			got = sentence.Words
		case bool:
			got = sentence.Truth
		case sentence.Text:
			got = sentence.Phrase
		}
		if got != want && (want != sentence.Name || got != sentence.Words && got != sentence.Number) {
			t.Errorf("%s is %T", name, v.fact(m, g, name))
		}
	}
	for name, want := range incident {
		check(nil, name, want)
	}
	for _, g := range []*group{{sign: 0}, {sign: len(m.Signs)}} {
		for name, want := range sign {
			check(g, name, want)
		}
	}
	for name, want := range sign {
		check(nil, "psu_input."+name, want)
	}
	if v.fact(m, nil, "psu_input") != false {
		t.Error("a sign that is not there is true")
	}
}

// TestEverySentenceHasWords renders every sentence of every record over an empty view.
func TestEverySentenceHasWords(t *testing.T) {
	m := propagation.Default()
	v := &view{index: 1}
	p := composer{m: m, v: v, said: wordings{}}
	for name, r := range m.Records {
		for i := range r.Summary {
			for _, language := range sentence.Languages {
				if p.render("sum."+name, &r.Summary[i], nil).Text[language] == "" {
					t.Errorf("%s is silent in %s", name, language)
				}
			}
		}
		for _, c := range r.Sentences {
			for i := range c {
				p.render("say."+c[i].ID, &c[i], &group{sign: max(c[i].Of, 0)})
			}
		}
	}
}

// TestNothingIsMissedThatCame replays storms and holds what is told as missing
// against the evidence of the same state.
func TestNothingIsMissedThatCame(t *testing.T) {
	m := propagation.Default()
	told := 0
	for _, st := range recorded(t)[:4] {
		e := NewEngine(m, st.Topology, nil)
		check := func() {
			for _, inc := range e.Drain() {
				came := map[string]bool{}
				for _, l := range inc.Lanes {
					if i := m.Match(l.Type, l.Code, l.Severity); i >= 0 {
						came[m.Signs[i].Title["en"]] = true
					}
				}
				for _, s := range inc.Against {
					told++
					if what, _ := s.Args["expected"].(sentence.Text); s.Args["shown"] == nil && came[what["en"]] {
						t.Errorf("%s: %s of %s: %s", st.Truth.Profile, inc.RootCause.Fault, inc.RootCause.Resource, s.Text["en"])
					}
				}
			}
		}
		for i := range st.Events {
			e.Add(&st.Events[i])
			check()
		}
		e.Advance(e.Now().Add(2 * time.Minute))
		e.Flush()
		check()
	}
	if told == 0 {
		t.Error("nothing ever contradicts a cause")
	}
}

func TestOnlyAnIndexIsToldAsANumber(t *testing.T) {
	for name, want := range map[string]any{
		"gpu3": 3, "GPU_SXM_7": 7, "dimm15": 15, "Ethernet0": 0, "gpu": "gpu", "": "", "a3f572498": "a3f572498", "572498": "572498", "n3dcdc9": "n3dcdc9",
		"0000:1b:00.0": "0000:1b:00.0", "et-0/0/3": "et-0/0/3", "g572498": "g572498",
	} {
		if got := number(name); got != want {
			t.Errorf("%q: %v (%T)", name, got, got)
		}
	}
}

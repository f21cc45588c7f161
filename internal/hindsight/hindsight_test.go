package hindsight_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/internal/hindsight"
	"auspex/schemas"
)

func TestFiguresAreThoseOfAHandCount(t *testing.T) {
	s := hindsight.Sum([]hindsight.Case{
		{Fault: "a", Named: true, Right: true, Confidence: 0.95, Took: 2 * time.Second},
		{Fault: "a", Named: true, Right: true, Confidence: 0.91, Took: 60 * time.Second},
		{Fault: "a", Named: true, Confidence: 0.99, Took: -1},
		{Fault: "b", Named: false, Took: -1},
		{Fault: "", Named: true, Confidence: 0.45, Took: -1}, // nothing was wrong
		{Fault: "", Right: true, Took: -1},                   // and nothing was named
	})
	if s.Judged != 6 || s.Right != 3 || s.Wrong != 3 || s.NoIncident != 2 || s.Enough || s.HitRate != 0.5 {
		t.Errorf("%+v", s)
	}
	if b := s.Bins[9]; b.N != 3 || b.Right != 2 || math.Abs(b.Confidence-0.95) > 1e-9 {
		t.Errorf("the top bin: %+v", b)
	}
	if want := (0.85 + 0.45) / 4; math.Abs(s.CalibrationError-want) > 1e-9 {
		t.Errorf("calibration error %v, want %v", s.CalibrationError, want)
	}
	if *s.SecondsP50 != 2 || *s.SecondsP95 != 60 {
		t.Errorf("median %v, p95 %v", *s.SecondsP50, *s.SecondsP95)
	}
	if len(s.Faults) != 3 || s.Faults[0].Fault != "a" || s.Faults[0].Right != 2 || s.Faults[1].Fault != "" {
		t.Errorf("%+v", s.Faults)
	}
}

func TestTheOrderOfCasesMakesNoDifference(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var cases []hindsight.Case
	for range 300 {
		cases = append(cases, hindsight.Case{
			Fault: []string{"a", "b", ""}[rng.IntN(3)], Named: rng.IntN(9) > 0, Right: rng.IntN(2) > 0, Confidence: rng.Float64(),
			Took: time.Duration(rng.IntN(1e9)),
		})
	}
	want := hindsight.Sum(cases)
	for range 20 {
		rng.Shuffle(len(cases), func(i, j int) { cases[i], cases[j] = cases[j], cases[i] })
		if d := cmp.Diff(want, hindsight.Sum(cases)); d != "" {
			t.Fatal(d)
		}
	}
	if s := hindsight.Sum(nil); s.Judged != 0 || s.SecondsP50 != nil || s.Enough {
		t.Errorf("of nothing: %+v", s)
	}
}

func TestAVerdictIsACase(t *testing.T) {
	said := schemas.Cause{Resource: "psu0", Fault: "power.psu_failure", Confidence: 0.7}
	either := said
	either.OneOf = []string{"psu0", "psu1"}
	for name, c := range map[string]struct {
		in          schemas.Correction
		named, hits bool
		fault       string
	}{
		"right":       {schemas.Correction{Verdict: schemas.VerdictRight, Resource: "psu0", Fault: said.Fault, Said: said}, true, true, said.Fault},
		"another":     {schemas.Correction{Verdict: schemas.VerdictCause, Resource: "pdu-a", Fault: "power.feed_loss", Said: said}, true, false, "power.feed_loss"},
		"same part":   {schemas.Correction{Verdict: schemas.VerdictCause, Resource: "psu0", Fault: schemas.FaultUnknown, Said: said}, true, true, schemas.FaultUnknown},
		"an equal":    {schemas.Correction{Verdict: schemas.VerdictCause, Resource: "psu1", Fault: said.Fault, Said: either}, true, true, said.Fault},
		"none":        {schemas.Correction{Verdict: schemas.VerdictNoIncident, Said: said}, true, false, ""},
		"none unsaid": {schemas.Correction{Verdict: schemas.VerdictNoIncident, Said: schemas.Cause{Resource: "x", Fault: schemas.FaultUnknown}}, false, true, ""},
		"not found": {
			schemas.Correction{Verdict: schemas.VerdictCause, Resource: "x", Fault: "f", Said: schemas.Cause{Resource: "x", Fault: schemas.FaultUnknown}},
			false, false, "f",
		},
	} {
		if got := hindsight.Of(&c.in); got.Named != c.named || got.Right != c.hits || got.Fault != c.fault {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

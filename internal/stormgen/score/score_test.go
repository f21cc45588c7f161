package score

import (
	"bytes"
	"encoding/json"
	"math"
	"path/filepath"
	"testing"

	"auspex/internal/stormgen"
	"auspex/internal/textfile"
	"auspex/schemas"
)

// The figures are those that the reference scorer, a program of its own, prints
// for the same incidents of the same recorded storms.
func TestFiguresAreThoseOfTheReference(t *testing.T) {
	for storm, want := range map[string]map[string]float64{
		"dirty-1": {
			"faults": 16, "top1": 1, "top3": 1, "class": 1, "pair_f1": 1, "b3_f1": 1, "merges": 0, "splits": 0, "fragments": 1, "incidents": 18,
			"false": 2, "false_per_1000": 4.008, "detect_p50": 0.0983, "root_p50": 0.0983, "root_p95": 159.1644, "ece": 0.0934, "brier": 0.0688,
		},
		"overlap-1": {
			"faults": 25, "top1": 0.92, "top3": 0.92, "class": 1, "pair_f1": 0.993, "b3_f1": 0.9672, "merges": 4, "splits": 5, "fragments": 0.88,
			"incidents": 22, "false": 0, "false_per_1000": 0, "detect_p50": 0, "root_p50": 0, "root_p95": 356.7204, "ece": 0.0507, "brier": 0.0063,
		},
	} {
		t.Run(storm, func(t *testing.T) {
			st, err := stormgen.Read(filepath.Join("../../../correlator/testdata/storms", storm))
			if err != nil {
				t.Fatal(err)
			}
			told, err := textfile.ReadFile(filepath.Join("testdata", storm+".jsonl.gz"), nil)
			if err != nil {
				t.Fatal(err)
			}
			sc := New(&st.Truth)
			for line := range bytes.Lines(told) {
				var inc schemas.Incident
				if err := json.Unmarshal(line, &inc); err != nil {
					t.Fatal(err)
				}
				sc.Line(&inc)
			}
			// Two sums of halves are the sum of the whole.
			sum := &Sum{}
			sum.Add(sc.Sum())
			f := sum.Figures()
			got := map[string]float64{
				"faults": float64(sum.Faults), "top1": f.Top1, "top3": f.Top3, "class": f.FaultClass, "pair_f1": f.PairF1, "b3_f1": f.B3F1,
				"merges": float64(sum.Merges), "splits": float64(sum.Splits), "fragments": f.Fragments, "incidents": float64(sum.Incidents),
				"false": float64(sum.False), "false_per_1000": f.FalsePerK, "detect_p50": f.DetectP50, "root_p50": f.RootP50, "root_p95": f.RootP95,
				"ece": f.ECE, "brier": f.Brier,
			}
			for name, v := range want {
				if math.Abs(got[name]-v) > 6e-5 {
					t.Errorf("%s is %.5f, want %.4f", name, got[name], v)
				}
			}
		})
	}
}

// Naming something known where nothing known fits is no hit, and saying that it
// is unknown is.
func TestUnknownIsAnAnswer(t *testing.T) {
	truth := &stormgen.Truth{Incidents: []stormgen.Fault{{
		ID: "f1", Fault: stormgen.Unknown, Resource: "r1", Unknown: true,
		Accept: []stormgen.Blame{{Resource: "r1", Fault: stormgen.Unknown}}, Events: []string{"a", "b"},
	}}}
	for _, c := range []struct {
		cause     schemas.Cause
		hit, root int
	}{
		{schemas.Cause{Resource: "r1", Fault: stormgen.Unknown}, 1, 1},
		{schemas.Cause{Resource: "s1", Fault: stormgen.Unknown}, 1, 0},
		{schemas.Cause{Resource: "r1", Fault: "host.crash", Confidence: 0.9}, 0, 0},
	} {
		sc := New(truth)
		sc.Line(&schemas.Incident{ID: "i1", RootCause: c.cause, Events: []string{"a", "b"}})
		if s := sc.Sum(); s.UnknownHit != c.hit || s.UnknownRoot != c.root || s.Scored != 0 || s.Unknown != 1 {
			t.Errorf("%+v: %d told, %d at the right place, %d scored", c.cause, s.UnknownHit, s.UnknownRoot, s.Scored)
		}
	}
}

// An incident of kind unknown is right where it holds a fault that no record has, at its
// resource; it has no say in the calibration of known faults.
func TestIncidentsOfKindUnknownAreCalibratedApart(t *testing.T) {
	truth := &stormgen.Truth{NoiseEvents: 2, Incidents: []stormgen.Fault{
		{
			ID: "f1", Fault: stormgen.Unknown, Resource: "r1", Unknown: true,
			Accept: []stormgen.Blame{{Resource: "r1", Fault: stormgen.Unknown}}, Events: []string{"a", "b"},
		},
		{
			ID: "f2", Fault: "host.crash", Resource: "s1", RootScored: true,
			Accept: []stormgen.Blame{{Resource: "s1", Fault: "host.crash"}}, Events: []string{"c"},
		},
	}}
	sc := New(truth)
	for id, i := range map[string]schemas.Incident{
		"right":         {RootCause: schemas.Cause{Resource: "r1", Fault: stormgen.Unknown, Confidence: 0.9}, Events: []string{"a"}},
		"elsewhere":     {RootCause: schemas.Cause{Resource: "dc", Fault: stormgen.Unknown, Confidence: 0.5}, Events: []string{"b"}},
		"known in fact": {RootCause: schemas.Cause{Resource: "s1", Fault: stormgen.Unknown, Confidence: 0.7}, Events: []string{"c"}},
		"noise":         {RootCause: schemas.Cause{Resource: "r1", Fault: stormgen.Unknown, Confidence: 0.3}, Events: []string{"n1", "n2"}},
	} {
		i.ID = id
		sc.Line(&i)
	}
	s := &Sum{}
	s.Add(sc.Sum())
	f := s.Figures()
	if s.Strange != 4 || math.Abs(f.StrangeSaid-0.6) > 1e-9 || f.StrangeRight != 0.25 || math.Abs(f.StrangeGap-0.35) > 1e-9 {
		t.Errorf("%d incidents, said %v, right %v, apart %v", s.Strange, f.StrangeSaid, f.StrangeRight, f.StrangeGap)
	}
	if !math.IsNaN(f.ECE) || s.False != 0 {
		t.Errorf("calibration error %v, %d false", f.ECE, s.False)
	}
}

package learn

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/correlator"
	"auspex/internal/hindsight"
	"auspex/internal/racetest"
	"auspex/internal/stormgen"
	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

// lived is what a site has been through, in files.
type lived struct {
	topology    schemas.Topology
	events      []schemas.Event
	incidents   []schemas.Incident
	corrections []schemas.Correction
}

func (l *lived) past() *Past {
	p := NewPast(&l.topology, l.incidents, l.corrections)
	for i := range l.events {
		p.Add(&l.events[i])
	}
	return p
}

func (l *lived) learn(t *testing.T) *Parameters {
	t.Helper()
	p, err := l.past().Learn(t.Context(), propagation.Default())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// decided replays events and returns the last state of each incident, closed.
func decided(topology *schemas.Topology, events []schemas.Event, m *propagation.Model) []schemas.Incident {
	e := correlator.NewEngine(m, topology, nil)
	last := map[string]schemas.Incident{}
	var order []string
	take := func() {
		for _, i := range e.Drain() {
			if _, ok := last[i.ID]; !ok {
				order = append(order, i.ID)
			}
			last[i.ID] = i
		}
	}
	for i := range events {
		e.Add(&events[i])
		take()
	}
	e.Advance(e.Now().Add(2 * time.Minute))
	e.Flush()
	take()
	var out []schemas.Incident
	for _, id := range order {
		i := last[id]
		if i.MergedInto != "" || len(i.Events) == 0 {
			continue
		}
		if i.Closed == nil {
			i.Closed = &i.Updated
		}
		out = append(out, i)
	}
	return out
}

// storm is a recorded draw as a site would have lived it: each incident judged by
// somebody who knows the truth.
func storm(t *testing.T, name string) *lived {
	t.Helper()
	st, err := stormgen.Read(filepath.Join("..", "testdata", "storms", name))
	if err != nil {
		t.Fatal(err)
	}
	l := &lived{topology: *st.Topology, events: st.Events}
	l.incidents = decided(&l.topology, l.events, propagation.Default())
	for _, i := range l.incidents {
		c := schemas.Correction{Incident: i.ID, Revision: 1, Author: "ann", Verdict: schemas.VerdictNoIncident, Said: i.RootCause, Time: i.Updated}
		most := 0
		for _, f := range st.Truth.Incidents {
			n := 0
			for _, id := range i.Events {
				if slices.Contains(f.Events, id) {
					n++
				}
			}
			if 2*n < len(i.Events) || n <= most || len(f.Accept) == 0 {
				continue
			}
			most = n
			c.Verdict, c.Resource, c.Fault = schemas.VerdictCause, f.Accept[0].Resource, f.Accept[0].Fault
			for _, a := range f.Accept {
				if a.Resource == i.RootCause.Resource {
					c.Verdict, c.Resource, c.Fault = schemas.VerdictRight, i.RootCause.Resource, i.RootCause.Fault
				}
			}
		}
		l.corrections = append(l.corrections, c)
	}
	return l
}

func TestThePastOfAStormIsReplayedAndJudged(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, name := range []string{"storm-1", "dirty-1", "job-2"} {
		l := storm(t, name)
		p := l.past()
		r, err := p.Backtest(t.Context(), propagation.Default(), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d cases, %d judged, records %.3f (calibration %.3f, Brier %.3f), held out %.3f (%.3f, %.3f)", name, r.Cases, r.Judged,
			r.Records.HitRate, r.Records.CalibrationError, r.Records.Brier, r.Learned.HitRate, r.Learned.CalibrationError, r.Learned.Brier)
		right := 0
		for _, c := range l.corrections {
			if c.Verdict == schemas.VerdictRight {
				right++
			}
		}
		if r.Judged != len(l.incidents) || r.NoEvents > 0 || r.Records.Judged != r.Judged {
			t.Errorf("%s: %d incidents, %d cases, %d judged, %d without events", name, len(l.incidents), r.Cases, r.Judged, r.NoEvents)
		}
		// What was decided then is decided again, but at the edges of the windows.
		if d := r.Records.Right - right; d < -2 || d > 2 {
			t.Errorf("%s: %d are right in the replay, %d were", name, r.Records.Right, right)
		}
		// What is learned elsewhere in the same past does no harm here.
		if r.Learned.Right < r.Records.Right-1 {
			t.Errorf("%s: %d right with what was learned, %d without", name, r.Learned.Right, r.Records.Right)
		}
	}
}

func TestTheOrderOfWhatIsLearnedFromMakesNoDifference(t *testing.T) {
	l := storm(t, "dirty-2")
	want := l.learn(t)
	rng := rand.New(rand.NewPCG(3, 4))
	for range 2 {
		rng.Shuffle(len(l.incidents), func(i, j int) { l.incidents[i], l.incidents[j] = l.incidents[j], l.incidents[i] })
		rng.Shuffle(len(l.corrections), func(i, j int) { l.corrections[i], l.corrections[j] = l.corrections[j], l.corrections[i] })
		if d := cmp.Diff(want, l.learn(t)); d != "" {
			t.Fatal(d)
		}
	}
}

func TestAWithdrawnVerdictLeavesNoTrace(t *testing.T) {
	racetest.OneGoroutine(t)
	l := storm(t, "storm-1")
	clean := &lived{topology: l.topology, events: l.events, incidents: l.incidents, corrections: l.corrections[1:]}
	want := clean.learn(t)
	wrong, undone := l.corrections[0], l.corrections[0]
	wrong.Revision, wrong.Verdict, wrong.Resource, wrong.Fault = 2, schemas.VerdictCause, l.topology.Resources[0].ID, "power.feed_loss"
	undone.Revision, undone.Verdict, undone.Resource, undone.Fault = 3, schemas.VerdictWithdrawn, "", ""
	l.corrections = append(l.corrections, wrong)
	if d := cmp.Diff(want, l.learn(t)); d == "" {
		t.Error("a wrong verdict changes nothing")
	}
	l.corrections = append(l.corrections, undone)
	if d := cmp.Diff(want, l.learn(t)); d != "" {
		t.Errorf("a verdict that was withdrawn left a trace:\n%s", d)
	}
}

func TestNobodysVerdictRaisesNoPrior(t *testing.T) {
	l := storm(t, "storm-1")
	l.corrections = nil
	p := l.learn(t)
	if len(p.Priors) > 0 || p.Judged != 0 || p.Cases == 0 {
		t.Errorf("%d cases of the product's own opinion moved priors: %+v", p.Cases, p.Priors)
	}
	m := propagation.Default()
	adapted := Apply(m, p)
	for i := range m.Faults {
		if adapted.Faults[i].Prior != m.Faults[i].Prior {
			t.Errorf("the prior of %s moved", m.Faults[i].Name)
		}
	}
	for _, e := range p.Effects {
		if e.Cases > Worth+1e-9 {
			t.Errorf("%s %s: unjudged cases count %.1f", e.Fault, e.Sign, e.Cases)
		}
	}
	if _, err := l.past().Backtest(t.Context(), m, nil); err == nil {
		t.Error("a backtest without a verdict says something")
	}
}

// Whatever was counted, every number stays within its bounds, the model that was given
// stays as it is, and what is one case more moves a number less than the last one did.
func TestLearnedNumbersStayWithinBounds(t *testing.T) {
	m := propagation.Default()
	before := fmt.Sprintf("%+v", m.Faults)
	rng := rand.New(rand.NewPCG(5, 6))
	for range 50 {
		p := &Parameters{Format: 1}
		scale := math.Pow(10, rng.Float64()*8)
		for i := range m.Faults {
			f := &m.Faults[i]
			if !slices.ContainsFunc(p.Priors, func(q FaultCounts) bool { return q.Fault == f.Name }) {
				for _, model := range []string{"", "H100"} {
					p.Priors = append(p.Priors, FaultCounts{Fault: f.Name, Model: model, Was: rng.Float64() * scale, Said: rng.Float64() * scale})
				}
			}
			for c := range f.Classes {
				e := effectOf(m, f, c)
				e.Cases = rng.Float64() * scale
				e.Shown = e.Cases * float64(rng.IntN(3)) / 2
				e.Share = e.Shown * float64(rng.IntN(3)) / 2
				e.LagS = e.Shown * rng.Float64() * 8e4
				if !slices.ContainsFunc(p.Effects, func(o EffectCounts) bool {
					return o.Fault == e.Fault && o.Kinds == e.Kinds && o.Sign == e.Sign && o.Way == e.Way
				}) {
					p.Effects = append(p.Effects, e)
				}
			}
		}
		doc, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if p, err = Parse(doc); err != nil {
			t.Fatal(err)
		}
		out := Apply(m, p)
		for i := range out.Faults {
			f, was := &out.Faults[i], &m.Faults[i]
			for _, prior := range append([]float64{f.Prior}, f.ByModel["H100"]) {
				if was.Harmless {
					break
				}
				if math.Abs(prior-was.Prior) > MaxShift+1e-9 || prior > maxPrior || prior < minPrior {
					t.Fatalf("%s: prior %v from %v", f.Name, prior, was.Prior)
				}
			}
			for c := range f.Classes {
				a, b := f.Classes[c], was.Classes[c]
				if a.Shows > max(Often, b.Shows) || a.Shows < min(Seldom, b.Shows) || a.Share > max(Often, b.Share) || a.Share < min(Seldom, b.Share) {
					t.Fatalf("%s: shows %v, share %v", f.Name, a.Shows, a.Share)
				}
				if b.Soon > 0 && (a.Soon > b.Soon*4+1 || a.Soon < b.Soon/4-1) {
					t.Fatalf("%s: lag %v from %v", f.Name, a.Soon, b.Soon)
				}
			}
		}
	}
	if fmt.Sprintf("%+v", m.Faults) != before {
		t.Error("the model that was given has changed")
	}
}

func TestFewCasesMoveLittle(t *testing.T) {
	m := propagation.Default()
	at := slices.IndexFunc(m.Faults, func(f propagation.Fault) bool { return f.Name == "power.feed_loss" })
	prior := func(n float64) float64 {
		return Apply(m, &Parameters{Priors: []FaultCounts{{Fault: "power.feed_loss", Was: n}}}).Faults[at].Prior - m.Faults[at].Prior
	}
	if one := prior(1); one <= 0 || one > 0.2 {
		t.Errorf("one case moves a prior by %.2f nats", one)
	}
	last := 0.0
	for n := 1.0; n < 100; n++ {
		if step := prior(n) - prior(n-1); n > 1 && step > last+1e-12 {
			t.Errorf("the case %v moves more than the one before", n)
		} else {
			last = step
		}
	}
	e := effectOf(m, &m.Faults[at], 0)
	e.Cases = 1
	record := m.Faults[at].Classes[0].Shows
	if got := Apply(m, &Parameters{Effects: []EffectCounts{e}}).Faults[at].Classes[0].Shows; got >= record || got < record*0.9 {
		t.Errorf("one case without the sign moves its probability from %.3f to %.3f", record, got)
	}
}

func TestParametersThatNoPastCanHaveAreRefused(t *testing.T) {
	for name, doc := range map[string]string{
		"no json":       `{`,
		"two documents": `{"format":1}{"format":1}`,
		"no format":     `{}`,
		"of later":      `{"format":2}`,
		"negative":      `{"format":1,"priors":[{"fault":"a","was":-1,"said":0}]}`,
		"twice":         `{"format":1,"priors":[{"fault":"a","was":1,"said":0},{"fault":"a","was":2,"said":0}]}`,
		"huge":          `{"format":1,"priors":[{"fault":"a","was":1e300,"said":0}]}`,
		"more shown":    `{"format":1,"effects":[{"fault":"a","sign":"b","cases":1,"shown":2}]}`,
		"more parts":    `{"format":1,"effects":[{"fault":"a","sign":"b","cases":2,"shown":1,"share":1.5}]}`,
	} {
		if _, err := Parse([]byte(doc)); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	p, err := Parse([]byte(`{"format":1,"later":true,"priors":[{"fault":"power.magic","was":1,"said":0}]}`))
	if err != nil {
		t.Fatal(err)
	}
	m := propagation.Default()
	if d := p.Unknown(m); len(d) != 1 || d[0] != "power.magic" {
		t.Errorf("unknown: %q", d)
	}
	if fmt.Sprintf("%+v", Apply(m, p).Faults) != fmt.Sprintf("%+v", m.Faults) {
		t.Error("a fault that no record has changes something")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"format":1,"priors":[{"fault":"power.feed_loss","was":3,"said":1.5}],"effects":[{"fault":"a","sign":"b","cases":2,"shown":1}]}`))
	m := propagation.Default()
	f.Fuzz(func(t *testing.T, doc []byte) {
		p, err := Parse(doc)
		if err != nil {
			return
		}
		for _, fault := range Apply(m, p).Faults {
			if math.IsNaN(fault.Prior) {
				t.Fatal("a prior is no number")
			}
		}
	})
}

// What one half of the recorded storms teaches does no harm in the other half, whose
// sites are others.
func TestWhatOneHalfTeachesDoesNoHarmInTheOther(t *testing.T) {
	racetest.OneGoroutine(t)
	m := propagation.Default()
	shapes := []string{"dirty", "overlap"}
	if os.Getenv("AUSPEX_ALL_STORMS") != "" { // two minutes
		shapes = append(shapes, "easy", "storm", "job", "quiet")
	}
	for _, half := range []struct{ from, to string }{{"1", "2"}, {"2", "1"}} {
		var teachers []*Past
		for _, shape := range shapes {
			teachers = append(teachers, storm(t, shape+"-"+half.from).past())
		}
		all := func(m *propagation.Model) (outs []outcome) {
			for _, p := range teachers {
				o, err := p.replay(t.Context(), m, every)
				if err != nil {
					t.Fatal(err)
				}
				outs = append(outs, o...)
			}
			return outs
		}
		taught := signs(m, all(m))
		taught.Priors = teachers[0].priors(m, all(Apply(m, taught)))
		adapted := Apply(m, taught)
		var by [2][]hindsight.Case
		for _, shape := range shapes {
			p := storm(t, shape+"-"+half.to).past()
			for k, model := range []*propagation.Model{m, adapted} {
				o, err := p.replay(t.Context(), model, every)
				if err != nil {
					t.Fatal(err)
				}
				by[k] = append(by[k], judgedOf(o)...)
			}
		}
		a, b := hindsight.Sum(by[0]), hindsight.Sum(by[1])
		t.Logf(
			"taught by %d cases of half %s; in half %s: %d of %d right, with it %d; calibration error %.3f, %.3f; Brier %.4f, %.4f; p95 %.0f s, %.0f s",
			taught.Judged, half.from, half.to, a.Right, a.Judged, b.Right, a.CalibrationError, b.CalibrationError, a.Brier, b.Brier,
			*a.SecondsP95, *b.SecondsP95,
		)
		if b.Right < a.Right-1 || b.Brier > a.Brier+0.005 {
			t.Errorf("%d right with what was taught, %d without; Brier %.4f, %.4f", b.Right, a.Right, b.Brier, a.Brier)
		}
	}
}

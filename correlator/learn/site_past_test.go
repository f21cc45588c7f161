package learn

import (
	"fmt"
	"testing"
	"time"

	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

// trouble is a site where now and then one power supply of four on a feed reports
// that its input is lost. The records hold the feed likelier; here it is the supply.
func trouble(times int, supply func(n int) string, verdict func(n int, i *schemas.Incident) (schemas.Correction, bool)) *lived {
	l := &lived{topology: schemas.Topology{Version: 1}}
	add := func(id, kind, parent, model string) {
		r := schemas.Resource{ID: id, Kind: kind, Parent: parent}
		if model != "" {
			r.Attrs = schemas.AttrsOf(map[string]string{schemas.AttrModel: model})
		}
		l.topology.Resources = append(l.topology.Resources, r)
	}
	add("dc", schemas.KindSite, "", "")
	for r := range 2 {
		rack := fmt.Sprintf("r%d", r)
		add(rack, schemas.KindRack, "dc", "")
		for _, feed := range []string{"a", "b"} {
			add(rack+"-"+feed, schemas.KindPDU, rack, "")
		}
		for s := range 4 {
			server := fmt.Sprintf("%s-s%d", rack, s)
			add(server, schemas.KindServer, rack, []string{"Alpha", "Beta"}[r])
			for k, feed := range []string{"a", "b"} {
				psu := fmt.Sprintf("%s/psu%d", server, k)
				add(psu, schemas.KindPSU, server, "")
				l.topology.Links = append(l.topology.Links, schemas.Link{From: rack + "-" + feed, To: psu, Kind: schemas.LinkPowers})
			}
		}
	}
	start := time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
	for n := range times {
		l.events = append(l.events, lost(fmt.Sprint("e", n), supply(n), start.Add(time.Duration(n)*30*time.Hour)))
	}
	l.incidents = decided(&l.topology, l.events, propagation.Default())
	for n := range l.incidents {
		if c, ok := verdict(n, &l.incidents[n]); ok {
			c.Incident, c.Revision, c.Said = l.incidents[n].ID, 1, l.incidents[n].RootCause
			l.corrections = append(l.corrections, c)
		}
	}
	return l
}

func inOneRack(n int) string   { return fmt.Sprintf("r0-s%d/psu0", n%4) }
func inBothRacks(n int) string { return fmt.Sprintf("r%d-s%d/psu0", n%2, n/2%4) }

func lost(id, psu string, at time.Time) schemas.Event {
	return schemas.Event{
		ID: id, Time: at, Observed: at, Source: schemas.SourceRedfish, Resource: psu, Type: schemas.EventPSUInputLost,
		Severity: schemas.SeverityError, State: schemas.StateRaised,
	}
}

// again replays the same kind of trouble, and trouble of the other kind: all supplies of
// a feed.
func again(l *lived, m *propagation.Model) (one, whole schemas.Cause) {
	at := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	one = decided(&l.topology, []schemas.Event{lost("x", "r0-s1/psu0", at)}, m)[0].RootCause
	var all []schemas.Event
	for s := range 4 {
		all = append(all, lost(fmt.Sprint("y", s), fmt.Sprintf("r0-s%d/psu0", s), at.Add(time.Duration(s)*time.Second)))
	}
	return one, decided(&l.topology, all, m)[0].RootCause
}

func TestWhatPeopleSaidChangesTheSameKindOfTroubleAndNoOther(t *testing.T) {
	records := propagation.Default()
	for _, c := range []struct {
		times   int
		verdict string
		root    string  // of one supply, after
		low, up float64 // its confidence; 0: what it was before
	}{
		{1, schemas.VerdictCause, "r0-a", 0.5, 0},            // a little
		{12, schemas.VerdictCause, "r0-s1/psu0", 0.4, 0.9},   // turned
		{60, schemas.VerdictCause, "r0-s1/psu0", 0.6, 0.969}, // surer, and never certain
		{12, schemas.VerdictRight, "r0-a", 0, 0.969},
		{12, "", "r0-a", 0.5, 0}, // nobody's word
	} {
		l := trouble(c.times, inOneRack, func(_ int, i *schemas.Incident) (schemas.Correction, bool) {
			out := schemas.Correction{Verdict: c.verdict, Resource: i.RootCause.Resource, Fault: i.RootCause.Fault}
			if c.verdict == schemas.VerdictCause {
				out.Resource, out.Fault = i.Alternatives[0].Resource, i.Alternatives[0].Fault
			}
			return out, c.verdict != ""
		})
		if len(l.incidents) != c.times {
			t.Fatalf("%d incidents of %d", len(l.incidents), c.times)
		}
		before, _ := again(l, records)
		one, whole := again(l, Apply(records, l.learn(t)))
		t.Logf("%d × %q: %v before, %v after; the whole feed: %v", c.times, c.verdict, before, one, whole)
		if c.low == 0 {
			c.low = before.Confidence
		}
		if c.up == 0 {
			c.up = before.Confidence
		}
		if one.Resource != c.root || one.Confidence < c.low || one.Confidence > c.up {
			t.Errorf("%d × %q: one supply: %v, want %s at %.2f to %.2f", c.times, c.verdict, one, c.root, c.low, c.up)
		}
		if whole.Resource != "r0-a" || whole.Confidence < 0.8 {
			t.Errorf("%d × %q: the whole feed: %v", c.times, c.verdict, whole)
		}
	}
}

func TestAModelOfPartHasAPriorOfItsOwnWhereItHasEnoughCases(t *testing.T) {
	at := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	one := func(l *lived, psu string, m *propagation.Model) schemas.Cause {
		return decided(&l.topology, []schemas.Event{lost("x", psu, at)}, m)[0].RootCause
	}
	for times, want := range map[int]bool{6: false, 40: true} {
		// Supplies of Alpha servers fail; for Beta servers the records are right.
		l := trouble(times, inBothRacks, func(n int, i *schemas.Incident) (schemas.Correction, bool) {
			if n%2 == 0 {
				return schemas.Correction{Verdict: schemas.VerdictCause, Resource: i.Alternatives[0].Resource, Fault: i.Alternatives[0].Fault}, true
			}
			return schemas.Correction{Verdict: schemas.VerdictRight, Resource: i.RootCause.Resource, Fault: i.RootCause.Fault}, true
		})
		m := Apply(propagation.Default(), l.learn(t))
		for i := range m.Faults {
			if f := &m.Faults[i]; f.Name == "power.psu_failure" && !f.Harmless {
				alpha, ok := f.ByModel["Alpha"]
				if ok != want || ok && alpha <= f.Prior {
					t.Errorf("%d cases: prior %.2f, of the model %v (%v)", times, f.Prior, alpha, ok)
				}
			}
		}
		alpha, beta := one(l, "r0-s1/psu0", m), one(l, "r1-s1/psu0", m)
		t.Logf("%d cases: model Alpha %v, model Beta %v", times, alpha, beta)
		if beta.Fault != "power.feed_loss" || want && alpha.Fault == beta.Fault && alpha.Confidence > beta.Confidence-0.05 {
			t.Errorf("model Alpha %v, model Beta %v", alpha, beta)
		}
	}
	// Where all cases are of one model, they count once and not twice.
	p := &Parameters{Priors: []FaultCounts{{Fault: "power.psu_failure", Was: 30, Said: 5}, {Fault: "power.psu_failure", Model: "Alpha", Was: 30, Said: 5}}}
	for _, f := range Apply(propagation.Default(), p).Faults {
		if f.Name == "power.psu_failure" && !f.Harmless && f.ByModel["Alpha"] != f.Prior {
			t.Errorf("prior %.3f, of the only model %.3f", f.Prior, f.ByModel["Alpha"])
		}
	}
}

func TestABacktestShowsWhetherLearningHelps(t *testing.T) {
	l := trouble(40, inOneRack, func(n int, i *schemas.Incident) (schemas.Correction, bool) {
		if n%8 == 7 {
			return schemas.Correction{Verdict: schemas.VerdictNoIncident}, true
		}
		return schemas.Correction{Verdict: schemas.VerdictCause, Resource: i.Alternatives[0].Resource, Fault: i.Alternatives[0].Fault}, n%8 != 6
	})
	r, err := l.past().Backtest(t.Context(), propagation.Default(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.Cases != 40 || r.Judged != 35 || r.Records.NoIncident != 5 || r.Records.Right != 0 || r.Learned.Right != 30 || r.Learned.SecondsP50 == nil {
		t.Errorf("%+v\n%+v", r, r.Learned)
	}
	if r.Learned.Brier >= r.Records.Brier {
		t.Errorf("Brier score %.3f with what was learned, %.3f without", r.Learned.Brier, r.Records.Brier)
	}
	// An event file that lacks a part of the past is no failure: what is missing is counted.
	l.events = l.events[10:]
	if r, err = l.past().Backtest(t.Context(), propagation.Default(), nil); err != nil || r.NoEvents < 8 || r.Records.Judged+r.NoEvents != r.Judged {
		t.Errorf("%+v, error %v", r, err)
	}
}

// An edge counts for the incidents that opened after somebody accepted it, and no longer than until it is taken
// back: one that is accepted while an incident is open says nothing about that one.
func TestABacktestKnowsNoEdgeBeforeItWasAccepted(t *testing.T) {
	topology, storm := damp()
	l := &lived{topology: topology}
	start := time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
	const storms = 10
	at := func(n int) time.Time { return start.Add(time.Duration(n) * 30 * time.Hour) }
	for n := range storms {
		l.events = append(l.events, storm(fmt.Sprint("e", n), n%4, at(n))...)
	}
	l.incidents = decided(&l.topology, l.events, propagation.Default())
	for _, i := range l.incidents { // each server's word is a case of its own, and all are the air unit's
		unit := int(i.Opened.Sub(start)/(30*time.Hour)) % 4
		l.corrections = append(l.corrections, schemas.Correction{
			Incident: i.ID, Revision: 1, Verdict: schemas.VerdictCause, Resource: fmt.Sprint("air", unit), Fault: "cooling.air_supply", Said: i.RootCause,
		})
	}
	const each = 4 // incidents of a storm: the unit's, and one a server
	if len(l.incidents) != storms*each {
		t.Fatalf("%d incidents", len(l.incidents))
	}
	edge := EdgeCounts{
		Fault: "cooling.air_supply", Kinds: "crac rack", Type: "damp.high", Way: "cools:server", Cases: 20, Shown: 20, Share: 15, LagS: 4800, Chance: 0.001,
	}
	for name, c := range map[string]struct {
		standing []Standing
		with     int // storms that are judged with it
	}{
		"nobody accepted it":           {nil, 0},
		"before all":                   {[]Standing{{at(0).Add(-time.Hour), []EdgeCounts{edge}}}, storms},
		"in the middle of a storm":     {[]Standing{{at(5).Add(time.Minute), []EdgeCounts{edge}}}, storms - 6},
		"after all":                    {[]Standing{{at(storms), []EdgeCounts{edge}}}, 0},
		"for a while":                  {[]Standing{{at(2).Add(time.Hour), []EdgeCounts{edge}}, {at(6).Add(time.Hour), nil}}, 4},
		"for a while, the list turned": {[]Standing{{at(6).Add(time.Hour), nil}, {at(2).Add(time.Hour), []EdgeCounts{edge}}}, 4},
	} {
		p := l.past()
		p.SetStanding(c.standing)
		r, err := p.Backtest(t.Context(), propagation.Default(), nil)
		if err != nil {
			t.Fatal(err)
		}
		want := storms + (each-1)*c.with
		// The servers of the storm in which it was accepted speak after that.
		if name == "in the middle of a storm" {
			want += each - 1
		}
		if r.Records.Right != storms || r.Learned.Right != want || r.Judged != storms*each {
			t.Errorf("%s: of %d right %d by the records, %d with what was learned, want %d", name, r.Judged, r.Records.Right, r.Learned.Right, want)
		}
	}
}

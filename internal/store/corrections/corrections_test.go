package corrections_test

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/internal/store/audit"
	"auspex/internal/store/corrections"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/schemas"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestAVerdictMayBeChangedAndWithdrawnAndNothingIsForgotten(t *testing.T) {
	db := sqltest.Open(t)
	s := corrections.New(db)
	said := schemas.Cause{Resource: "gpu-r01-03/psu0", Fault: "power.psu_failure", Confidence: 0.7}
	id := fmt.Sprintf("i-%d", time.Now().UnixNano())
	steps := []schemas.Correction{
		{Verdict: schemas.VerdictRight, Resource: said.Resource, Fault: said.Fault},
		{Verdict: schemas.VerdictCause, Resource: "pdu-r01-a", Fault: "power.feed_loss", Note: "the breaker was out"},
		{Verdict: schemas.VerdictWithdrawn},
		{Verdict: schemas.VerdictNoIncident},
	}
	for k, c := range steps {
		c.Incident, c.Author, c.Said, c.Time = id, "on-call", said, t0.Add(time.Duration(k)*time.Minute)
		for range 2 { // the same again is the same
			got, err := s.Put(t.Context(), c)
			c.Revision = k + 1
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c, got); d != "" {
				t.Errorf("step %d: -want +got:\n%s", k, d)
			}
		}
		standing, err := s.Of(t.Context(), id, "i-other")
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := standing[id]; ok != (c.Verdict != schemas.VerdictWithdrawn) || ok && got.Verdict != c.Verdict {
			t.Errorf("after %s stands %+v", c.Verdict, standing)
		}
	}
	all, err := s.History(t.Context(), id)
	if err != nil || len(all) != len(steps) || all[0].Revision != 4 {
		t.Errorf("history %+v, error %v", all, err)
	}
	rows, err := audit.New(db, time.Now).List(t.Context(), 0, 10)
	if err != nil || len(rows) < len(steps) {
		t.Fatalf("%d rows in the audit, error %v", len(rows), err)
	}
	if r := rows[2]; r.Verb != corrections.VerbCorrect || r.Actor != "on-call" || r.Action != id || r.Kind != schemas.VerdictCause ||
		r.Detail != "pdu-r01-a power.feed_loss" {
		t.Errorf("audit: %+v", r)
	}
	if _, err := audit.Verify(t.Context(), db); err != nil {
		t.Error(err)
	}
}

func TestOfTwoVerdictsAtOnceBothAreKept(t *testing.T) {
	db := sqltest.Open(t)
	s := corrections.New(db)
	id := fmt.Sprintf("i-%d", time.Now().UnixNano())
	var wg sync.WaitGroup
	for k := range 8 {
		wg.Go(func() {
			if _, err := s.Put(t.Context(), schemas.Correction{
				Incident: id, Author: fmt.Sprint("person-", k), Verdict: schemas.VerdictNoIncident, Time: t0,
			}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	all, err := s.History(t.Context(), id)
	if err != nil || len(all) != 8 {
		t.Errorf("%d of 8 verdicts are kept, error %v", len(all), err)
	}
}

func TestPagesHoldEveryVerdictThatStandsOnce(t *testing.T) {
	db := sqltest.Open(t)
	s := corrections.New(db)
	base := time.Now().UTC().Truncate(time.Millisecond).Add(time.Hour)
	want := map[string]bool{}
	for k := range 25 {
		id := fmt.Sprintf("p-%d-%02d", base.UnixNano(), k)
		want[id] = true
		for rev := range 1 + k%3 {
			if _, err := s.Put(t.Context(), schemas.Correction{
				Incident: id, Author: "a", Verdict: schemas.VerdictNoIncident, Note: strconv.Itoa(rev), Time: base.Add(time.Duration(k/5) * time.Second),
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for after, n := "", 0; ; n++ {
		page, next, err := s.List(t.Context(), base, "", after, 4)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range page {
			if !want[c.Incident] {
				t.Errorf("%s is listed twice, or is of nobody", c.Incident)
			}
			delete(want, c.Incident)
		}
		if after = next; next == "" || n > 25 {
			break
		}
	}
	if len(want) > 0 {
		t.Errorf("%d verdicts are on no page", len(want))
	}
	if _, _, err := s.List(t.Context(), base, "", "nonsense", 4); err == nil {
		t.Error("a cursor of nobody is taken")
	}
}

func TestACauseIsNotedWhenItTurns(t *testing.T) {
	db := sqltest.Open(t)
	s := corrections.New(db)
	id := fmt.Sprintf("i-%d", time.Now().UnixNano())
	for rev, cause := range []string{"a", "a", "b", "b", "a"} {
		i := schemas.Incident{ID: id, Revision: rev + 1, At: t0.Add(time.Duration(rev) * time.Second), RootCause: schemas.Cause{Resource: cause, Fault: "f"}}
		for range 2 { // a commit whose answer was lost is tried again
			if err := corrections.PutCauseIn(t.Context(), db, &i); err != nil {
				t.Fatal(err)
			}
		}
	}
	got, err := s.Turns(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	want := []corrections.Turn{{t0, "a", "f"}, {t0.Add(2 * time.Second), "b", "f"}, {t0.Add(4 * time.Second), "a", "f"}}
	if d := cmp.Diff(want, got[id]); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

package records_test

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/internal/store/records"
	"auspex/internal/store/sqldb"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/schemas"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC)

func TestIncidentKeepsItsLastStateAndMovesBetweenStatuses(t *testing.T) {
	s := records.New(sqltest.Open(t))
	ctx := t.Context()
	in := schemas.Incident{
		ID: "i1", Opened: t0, Updated: t0, At: t0, RootCause: schemas.Cause{Resource: "pdu-a", Fault: "power.feed_loss", Confidence: 0.5},
		Events: []string{"e1"},
	}
	for _, c := range []float64{0.6, 0.9} {
		in.RootCause.Confidence = c
		if err := s.PutIncident(ctx, in); err != nil {
			t.Fatal(err)
		}
	}
	got, ok, err := s.Incident(ctx, "i1")
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if d := cmp.Diff(in, got); d != "" {
		t.Fatal(d)
	}
	closed := t0.Add(time.Hour)
	in.Closed = &closed
	if err := s.PutIncident(ctx, in); err != nil {
		t.Fatal(err)
	}
	for status, want := range map[string]int{records.StatusOpen: 0, records.StatusClosed: 1, "": 1} {
		l, _, err := s.Incidents(ctx, records.Filter{Status: status})
		if err != nil || len(l) != want {
			t.Errorf("status %q: %d incidents, want %d (%v)", status, len(l), want, err)
		}
	}
}

func TestPagesCoverEveryRecordOnce(t *testing.T) {
	s := records.New(sqltest.Open(t))
	ctx := t.Context()
	for i := range 25 { // pairs share a time: the id breaks the tie
		a := schemas.Action{
			ID: "a" + strconv.Itoa(i), Created: t0.Add(time.Duration(i/2) * time.Second), Server: "s" + strconv.Itoa(i%2),
			State: schemas.ActionProposed,
		}
		if err := s.PutAction(ctx, a); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]int{}
	for after := ""; ; {
		l, next, err := s.Actions(ctx, records.Filter{Limit: 7, After: after})
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range l {
			seen[a.ID]++
		}
		if next == "" {
			break
		}
		after = next
	}
	if len(seen) != 25 {
		t.Fatalf("saw %d of 25", len(seen))
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s came %d times", id, n)
		}
	}
	l, _, err := s.Actions(ctx, records.Filter{Server: "s1"})
	if err != nil || len(l) != 12 {
		t.Fatalf("s1 has %d actions, want 12 (%v)", len(l), err)
	}
	if _, _, err := s.Actions(ctx, records.Filter{After: "nonsense"}); !errors.Is(err, sqldb.ErrCursor) {
		t.Fatalf("a foreign cursor gave %v", err)
	}
}

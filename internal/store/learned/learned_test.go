package learned_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"auspex/internal/store/audit"
	"auspex/internal/store/learned"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/schemas"
)

func TestAVersionIsPutInForceAndRolledBack(t *testing.T) {
	db := sqltest.Open(t)
	s := learned.New(db)
	ctx, at := t.Context(), time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	if v, err := s.Active(ctx); err != nil || v != 0 {
		t.Fatalf("version %d is in force at first, error %v", v, err)
	}
	for want := int64(1); want <= 3; want++ {
		if got, err := s.Put(ctx, "ann", at, []byte(`{"n":1}`)); err != nil || got != want {
			t.Fatalf("version %d, want %d, error %v", got, want, err)
		}
		if v, err := s.Active(ctx); err != nil || v != 0 {
			t.Fatalf("a version is in force that nobody put there: %d, error %v", v, err)
		}
	}
	for _, v := range []int64{3, 2, 0, 3} { // forth, back, off, on
		if err := s.Activate(ctx, v, "ann", at); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Active(ctx); err != nil || got != v {
			t.Errorf("version %d is in force, want %d, error %v", got, v, err)
		}
	}
	turns, err := s.Turns(ctx)
	var versions []int64
	for _, turn := range turns {
		versions = append(versions, turn.Version)
	}
	slices.Sort(versions) // all at one time
	if err != nil || !slices.Equal(versions, []int64{0, 2, 3, 3}) || !turns[0].Time.Equal(at) {
		t.Errorf("%+v were put in force, error %v", turns, err)
	}
	if err := s.Activate(ctx, 9, "ann", at); !errors.Is(err, learned.ErrNoVersion) {
		t.Errorf("a version that is not there: %v", err)
	}
	if _, err := s.Get(ctx, 9); !errors.Is(err, learned.ErrNoVersion) {
		t.Errorf("a version that is not there: %v", err)
	}
	all, err := s.List(ctx)
	if err != nil || len(all) != 3 || all[0].Version != 3 || !all[0].Active || all[1].Active {
		t.Errorf("%+v, error %v", all, err)
	}
	if n, err := audit.Verify(ctx, db); err != nil || n != 4 {
		t.Errorf("%d rows in the audit, want 4, error %v", n, err)
	}
}

func TestADecisionPutsAVersionInForceAndIsKept(t *testing.T) {
	db := sqltest.Open(t)
	s := learned.New(db)
	ctx, at := t.Context(), time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	list := []schemas.EdgeProposal{{ID: "e-1", Cause: "a", Effect: "b", Gain: 3}, {ID: "e-2", Cause: "a", Effect: "c", Gain: 9}}
	if n, err := s.Propose(ctx, list); err != nil || n != 2 {
		t.Fatalf("%d are new, error %v", n, err)
	}
	var given []string // what stood in the version before, and what is accepted
	next := func(doc []byte, accepted []schemas.EdgeProposal) ([]byte, error) {
		text := []string{string(doc)}
		for _, p := range accepted {
			text = append(text, p.ID+":"+p.Decision.Reason)
		}
		given = append(given, strings.Join(text, " "))
		return []byte(`{}`), nil
	}
	decide := func(id, decision string, want error) {
		t.Helper()
		p, err := s.Decide(ctx, id, schemas.EdgeDecision{Decision: decision, Reason: "r", Author: "ann", Time: at}, next)
		if !errors.Is(err, want) {
			t.Errorf("%s %s: error %v, want %v", id, decision, err, want)
		}
		if err == nil && (p.State != decision || p.Decision.Author != "ann") {
			t.Errorf("%s %s: %+v", id, decision, p)
		}
	}
	decide("e-3", schemas.EdgeAccepted, learned.ErrNoProposal)
	decide("e-1", schemas.EdgeWithdrawn, learned.ErrDecided)
	decide("e-1", schemas.EdgeAccepted, nil)
	decide("e-1", schemas.EdgeAccepted, learned.ErrDecided)
	decide("e-1", schemas.EdgeDeclined, learned.ErrDecided)
	decide("e-2", schemas.EdgeDeclined, nil)
	decide("e-2", schemas.EdgeAccepted, nil)
	decide("e-1", schemas.EdgeWithdrawn, nil)
	if want := []string{" e-1:r", "{} e-1:r e-2:r", "{} e-2:r"}; !slices.Equal(given, want) {
		t.Errorf("versions were made of %q, want %q", given, want)
	}
	if v, err := s.Active(ctx); err != nil || v != 3 {
		t.Errorf("version %d is in force, error %v", v, err)
	}
	if err := s.Activate(ctx, 1, "ann", at.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	turns, err := s.Turns(ctx)
	if want := []learned.Turn{{1, at}, {2, at}, {3, at}, {1, at.Add(time.Hour)}}; err != nil || !slices.Equal(turns, want) {
		t.Errorf("%+v were put in force, want %+v, error %v", turns, want, err)
	}
	// New counts: what is accepted stays what was accepted, the rest is as counted now.
	list[0].Gain, list[1].Gain = 50, 60
	if n, err := s.Propose(ctx, list); err != nil || n != 0 {
		t.Fatalf("%d are new, error %v", n, err)
	}
	for id, want := range map[string]float64{"e-1": 50, "e-2": 9} {
		if p, err := s.Proposal(ctx, id); err != nil || p.Gain != want {
			t.Errorf("%s: %v, want %v, error %v", id, p.Gain, want, err)
		}
	}
	// A decision that fails leaves all as it was.
	broken := errors.New("no")
	if _, err := s.Decide(ctx, "e-2", schemas.EdgeDecision{Decision: schemas.EdgeWithdrawn, Reason: "r", Author: "ann", Time: at},
		func([]byte, []schemas.EdgeProposal) ([]byte, error) { return nil, broken }); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	if got, err := s.Proposals(ctx, schemas.EdgeAccepted); err != nil || len(got) != 1 || got[0].ID != "e-2" {
		t.Errorf("accepted: %+v, error %v", got, err)
	}
	if n, err := audit.Verify(ctx, db); err != nil || n != 5 {
		t.Errorf("%d rows in the audit, want 5, error %v", n, err)
	}
}

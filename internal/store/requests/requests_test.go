package requests_test

import (
	"database/sql"
	"fmt"
	"slices"
	"testing"
	"time"

	"auspex/internal/store/audit"
	"auspex/internal/store/records"
	"auspex/internal/store/requests"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/schemas"
)

// Old requests are forgotten once they have ended; what is open stays however old, and the audit keeps all.
func TestWhatHasEndedIsForgotten(t *testing.T) {
	db := sqltest.Open(t)
	s, acts := requests.New(db), records.New(db)
	now := time.Now().UTC()
	old := now.Add(-time.Hour)
	add := func(id string, at time.Time, take bool, state string) {
		t.Helper()
		in := schemas.Intent{ID: id, Time: at, Verb: schemas.IntentRequest, Server: "s", Kind: "power_on", Actor: "li"}
		err := s.Add(t.Context(), in)
		if err == nil && take {
			err = db.InTx(t.Context(), func(tx *sql.Tx) error { return requests.Take(t.Context(), tx, in) })
		}
		if err == nil && state != "" {
			err = acts.PutAction(t.Context(), schemas.Action{ID: id, Time: at, Created: at, Server: "s", Kind: "power_on", State: state})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	add("untaken", old, false, "")
	for _, state := range []string{schemas.ActionWaiting, schemas.ActionApproved, schemas.ActionRunning} {
		add(state, old, true, state)
	}
	add("new", now, true, schemas.ActionDone)
	add("without its action", old, true, "")
	for _, state := range []string{schemas.ActionDone, schemas.ActionFailed, schemas.ActionUnknown, schemas.ActionCancelled, schemas.ActionRefused, schemas.ActionProposed} {
		add(state, old, true, state)
	}
	for i := range 1100 { // more than one statement deletes
		in := schemas.Intent{ID: fmt.Sprint("many-", i), Time: old, Server: "s"}
		if err := db.InTx(t.Context(), func(tx *sql.Tx) error { return requests.Take(t.Context(), tx, in) }); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := s.Forget(t.Context(), now.Add(-time.Minute)); err != nil || n != 1107 {
		t.Errorf("%d %v", n, err)
	}
	left, _, err := s.List(t.Context(), requests.Filter{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for i := range left {
		ids = append(ids, left[i].Intent.ID)
	}
	slices.Sort(ids)
	want := []string{"new", schemas.ActionApproved, schemas.ActionRunning, "untaken", schemas.ActionWaiting}
	slices.Sort(want)
	if !slices.Equal(ids, want) {
		t.Errorf("%v, want %v", ids, want)
	}
	if rows, err := audit.New(db, time.Now).List(t.Context(), 0, 100); err != nil || len(rows) != 12 {
		t.Errorf("%d rows of the audit %v", len(rows), err)
	}
}

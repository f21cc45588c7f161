package maintenance_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/internal/store/audit"
	"auspex/internal/store/maintenance"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/schemas"
)

func window(id string, at time.Time) schemas.Maintenance {
	return schemas.Maintenance{
		ID: id, Resources: []string{"dc1-r01"}, Work: schemas.WorkMaintenance, Reason: "new supplies", By: "li", Source: schemas.SourceOperator,
		Declared: at, From: at.Add(time.Hour), Until: at.Add(3 * time.Hour), GraceSeconds: 600,
	}
}

func TestAWindowIsDeclaredOnceAndEndedOnceAndTold(t *testing.T) {
	db := sqltest.Open(t)
	s := maintenance.New(db)
	t0 := time.Now().UTC().Truncate(time.Microsecond)
	want := window(fmt.Sprintf("mw-%d", t0.UnixNano()), t0)
	for range 2 {
		got, err := s.Declare(t.Context(), want)
		if d := cmp.Diff(want, got); err != nil || d != "" {
			t.Fatalf("%v %s", err, d)
		}
	}
	untold := func() *schemas.Maintenance {
		t.Helper()
		all, err := s.Untold(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if i := slices.IndexFunc(all, func(m schemas.Maintenance) bool { return m.ID == want.ID }); i >= 0 {
			return &all[i]
		}
		return nil
	}
	first := untold()
	if first == nil {
		t.Fatal("nobody would tell the bus of it")
	}
	end := t0.Add(2 * time.Hour)
	ended, err := s.End(t.Context(), want.ID, "ana", 0, end)
	if err != nil || !ended.End().Equal(end) || ended.EndedBy != "ana" {
		t.Fatalf("%+v %v", ended, err)
	}
	if again, err := s.End(t.Context(), want.ID, "bo", 0, end.Add(time.Minute)); err != nil || again.EndedBy != "ana" {
		t.Errorf("%+v %v", again, err)
	}
	if err := s.Told(t.Context(), first); err != nil { // of what was read before it ended
		t.Fatal(err)
	}
	second := untold()
	if second == nil {
		t.Fatal("nobody would tell the bus that it has ended")
	}
	if err := errors.Join(s.Told(t.Context(), second), s.Told(t.Context(), first)); err != nil || untold() != nil {
		t.Errorf("it is told for ever: %v", err)
	}
	for at, want := range map[time.Time]bool{t0: true, end.Add(-time.Second): true, end: false} {
		open, err := s.Open(t.Context(), at)
		if got := slices.ContainsFunc(open, func(m schemas.Maintenance) bool { return m.ID == second.ID }); err != nil || got != want {
			t.Errorf("open at %s: %v, %v", at, got, err)
		}
	}
	if _, err := s.End(t.Context(), "mw-0", "ana", 0, end); !errors.Is(err, maintenance.ErrNone) {
		t.Errorf("a window of nobody ends: %v", err)
	}
	if _, err := s.Get(t.Context(), "mw-0"); !errors.Is(err, maintenance.ErrNone) {
		t.Errorf("a window of nobody is read: %v", err)
	}
	rows, err := audit.New(db, time.Now).List(t.Context(), 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	var verbs []string
	for _, r := range rows {
		if r.Action == want.ID {
			verbs = append(verbs, r.Verb+" by "+r.Actor)
			if r.Verb == maintenance.VerbEnd && !(strings.HasPrefix(r.Detail, `{"before":{"id":"`+want.ID) && strings.Contains(r.Detail, `"ended_by":"ana"`)) {
				t.Errorf("the end is told as %s", r.Detail)
			}
		}
	}
	if d := cmp.Diff([]string{"end_maintenance by ana", "declare_maintenance by li"}, verbs); d != "" {
		t.Errorf("what changed nothing is in the audit, or what did is not:\n%s", d)
	}
	if _, err := audit.Verify(t.Context(), db); err != nil {
		t.Error(err)
	}
}

func TestTheSameWindowOfManyAtOnceIsOne(t *testing.T) {
	db := sqltest.Open(t)
	s := maintenance.New(db)
	t0 := time.Now().UTC()
	id := fmt.Sprintf("mw-%d", t0.UnixNano())
	var wg sync.WaitGroup
	for k := range 8 {
		wg.Go(func() {
			m := window(id, t0)
			m.Reason = fmt.Sprint("reason ", k)
			if _, err := s.Declare(t.Context(), m); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	seen := 0
	for after := ""; ; {
		page, next, err := s.List(t.Context(), "", after, 3)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range page {
			if m.ID == id {
				seen++
			}
		}
		if after = next; next == "" {
			break
		}
	}
	if seen != 1 {
		t.Errorf("it is listed %d times", seen)
	}
}

// What the scheduler tells of node by node, again and again and in any order, is one window.
func TestAWindowOfTheSchedulerIsTakenOver(t *testing.T) {
	db := sqltest.Open(t)
	s := maintenance.New(db)
	t0 := time.Now().UTC().Truncate(time.Microsecond)
	m := window(fmt.Sprintf("slurm-%d", t0.UnixNano()), t0)
	m.Resources, m.Source, m.By = []string{"a", "b", "c"}, schemas.SourceScheduler, "root"
	var told []schemas.Maintenance
	read := func() {
		t.Helper()
		told = nil
		for _, ev := range m.Events() {
			part, err := schemas.MaintenanceOf(&ev)
			if err != nil {
				t.Fatal(err)
			}
			told = append(told, part)
		}
	}
	take := func(parts ...schemas.Maintenance) schemas.Maintenance {
		t.Helper()
		if err := s.Import(t.Context(), parts...); err != nil {
			t.Fatal(err)
		}
		got, err := s.Get(t.Context(), m.ID)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	read()
	take(told[:2]...)
	if got := take(told...); !slices.Equal(got.Resources, m.Resources) || !got.Until.Equal(m.Until) || got.By != "root" {
		t.Errorf("%+v", got)
	}
	end := t0.Add(90 * time.Minute)
	m.Ended, m.EndedBy = &end, "Slurm"
	read()
	for range 2 {
		if got := take(told...); !got.End().Equal(end) || len(got.Resources) != 3 {
			t.Errorf("%+v", got)
		}
	}
	rows, err := audit.New(db, time.Now).List(t.Context(), 0, 100)
	if err != nil || len(rows) != 3 { // declared, a node more, ended
		t.Errorf("%d rows of the audit, %v", len(rows), err)
	}
	if all, err := s.Untold(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("what came from the bus is told to it again: %+v %v", all, err)
	}
}

// TestOldWindowsAreForgotten: only those that ended long ago and that the bus knows of.
func TestOldWindowsAreForgotten(t *testing.T) {
	s := maintenance.New(sqltest.Open(t))
	t0 := time.Now().UTC().Truncate(time.Microsecond)
	name := func(what string) string { return fmt.Sprintf("mw-%s-%d", what, t0.UnixNano()) }
	const day = 24 * time.Hour
	for what, ago := range map[string]time.Duration{"old": 500 * day, "untold": 500 * day, "of-last-week": 7 * day, "open": 0} {
		w := window(name(what), t0.Add(-ago))
		if _, err := s.Declare(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		if what == "untold" {
			continue
		}
		if err := s.Told(t.Context(), &w); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Forget(t.Context(), t0.Add(-400*day)); err != nil {
		t.Fatal(err)
	}
	for what, kept := range map[string]bool{"old": false, "untold": true, "of-last-week": true, "open": true} {
		if _, err := s.Get(t.Context(), name(what)); kept && err != nil || !kept && !errors.Is(err, maintenance.ErrNone) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

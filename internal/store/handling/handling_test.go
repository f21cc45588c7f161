package handling_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"auspex/internal/store/audit"
	"auspex/internal/store/entity"
	"auspex/internal/store/handling"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/schemas"
)

func TestAnAlertIsHandledByItsLife(t *testing.T) {
	db := sqltest.Open(t)
	s := handling.New(db)
	id := fmt.Sprintf("a-%d", time.Now().UnixNano())
	put := func(c handling.Change) (schemas.AlertHandling, error) {
		c.Alert = id
		return s.Put(t.Context(), c)
	}
	if h, err := s.Get(t.Context(), id); err != nil || h.Revision != 1 || h.Status != schemas.HandlingActive {
		t.Fatal(h, err)
	}
	if h, err := put(handling.Change{By: "li", Comment: "I look"}); err != nil || h.Revision != 2 || h.Status != schemas.HandlingActive {
		t.Fatal(h, err)
	}
	if of, err := s.Of(t.Context(), id, "other"); err != nil || len(of) != 1 {
		t.Fatal(of, err)
	}
	h, err := put(handling.Change{By: "li", Status: schemas.HandlingAcknowledged, Revision: 2})
	if err != nil || h.AcknowledgedBy != "li" || h.AcknowledgedAt.IsZero() || h.Revision != 3 {
		t.Fatal(h, err)
	}
	if _, err := put(handling.Change{By: "wu", Status: schemas.HandlingResolved, Revision: 2}); !errors.Is(err, entity.ErrChanged) {
		t.Errorf("of what it was: %v", err)
	}
	if h, err := put(handling.Change{By: "wu", Status: schemas.HandlingAcknowledged}); err != nil || h.AcknowledgedBy != "li" || h.Revision != 3 {
		t.Errorf("the same is no change: %+v %v", h, err)
	}
	if h, err := put(handling.Change{By: "wu", Status: schemas.HandlingResolved, Comment: "done"}); err != nil || h.ResolvedBy != "wu" || len(h.Comments) != 2 {
		t.Errorf("%+v %v", h, err)
	}
	var move *schemas.MoveError
	if _, err := put(handling.Change{By: "li", Status: schemas.HandlingAcknowledged}); !errors.As(err, &move) || len(move.Legal) != 0 {
		t.Errorf("back: %v", err)
	}
	rows, err := audit.New(db, time.Now).List(t.Context(), 0, 3)
	if err != nil || rows[0].Verb != handling.VerbResolve || rows[1].Verb != handling.VerbAcknowledge || rows[2].Verb != handling.VerbComment ||
		rows[0].Subject != id || rows[0].Actor != "wu" || rows[0].Detail != `{"before":{"status":"acknowledged"},"after":{"status":"resolved","comment":"done"}}` {
		t.Errorf("%+v %v", rows, err)
	}
}

// What detection has ended nobody acknowledges, though it may be commented on.
func TestWhatHasEndedIsResolved(t *testing.T) {
	s := handling.New(sqltest.Open(t))
	id := fmt.Sprintf("e-%d", time.Now().UnixNano())
	var move *schemas.MoveError
	if _, err := s.Put(t.Context(), handling.Change{Alert: id, By: "li", Status: schemas.HandlingAcknowledged, Ended: true}); !errors.As(err, &move) {
		t.Errorf("%v", err)
	}
	if h, err := s.Put(t.Context(), handling.Change{Alert: id, By: "li", Status: schemas.HandlingResolved, Comment: "seen", Ended: true}); err != nil || len(h.Comments) != 1 {
		t.Errorf("%+v %v", h, err)
	}
}

// Of many who acknowledge at once one is the first, and no comment is lost up to the bound.
func TestManyAtOnce(t *testing.T) {
	db := sqltest.Open(t)
	s := handling.New(db)
	id := fmt.Sprintf("m-%d", time.Now().UnixNano())
	var wg sync.WaitGroup
	for k := range 16 {
		wg.Go(func() {
			if _, err := s.Put(t.Context(), handling.Change{
				Alert: id, By: fmt.Sprint("p", k), Status: schemas.HandlingAcknowledged, Comment: fmt.Sprint("c", k),
			}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	h, err := s.Get(t.Context(), id)
	if err != nil || len(h.Comments) != 16 || h.Revision != 17 || h.Comments[0].Author != h.AcknowledgedBy {
		t.Errorf("%+v %v", h, err)
	}
	for len(h.Comments) < handling.MaxComments {
		if h, err = s.Put(t.Context(), handling.Change{Alert: id, By: "li", Comment: "again"}); err != nil {
			t.Fatal(err)
		}
	}
	var field *entity.FieldError
	if _, err := s.Put(t.Context(), handling.Change{Alert: id, By: "li", Comment: "one more"}); !errors.As(err, &field) || field.Field != "comment" {
		t.Errorf("%v", err)
	}
}

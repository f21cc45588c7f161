package answers

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/internal/store/sqldb/sqltest"
)

func TestARequestIsDoneOnceAndAnsweredAlike(t *testing.T) {
	s := New(sqltest.Open(t))
	now := time.Now()
	s.now = func() time.Time { return now }
	begin := func(caller, request string) (*Answer, error) { return s.Begin(t.Context(), caller, "k", request) }
	if a, err := begin("li", "one"); a != nil || err != nil {
		t.Fatal(a, err)
	}
	if _, err := begin("li", "one"); !errors.Is(err, ErrAtWork) {
		t.Error(err)
	}
	if _, err := begin("li", "two"); !errors.Is(err, ErrOther) {
		t.Error(err)
	}
	if a, err := begin("bo", "two"); a != nil || err != nil {
		t.Errorf("a key is its caller's: %v %v", a, err)
	}
	want := &Answer{Status: 201, Headers: map[string]string{"Location": "/x"}, Body: `{"a":1}`}
	if err := s.End(t.Context(), "li", "k", want); err != nil {
		t.Fatal(err)
	}
	if a, err := begin("li", "one"); err != nil || cmp.Diff(want, a) != "" {
		t.Error(a, err)
	}
	if err := s.End(t.Context(), "bo", "k", nil); err != nil {
		t.Fatal(err)
	}
	if a, err := begin("bo", "one"); a != nil || err != nil {
		t.Errorf("one that failed may be made again: %v %v", a, err)
	}
	now = now.Add(atWork + time.Second) // whoever was at it has ended
	if a, err := begin("bo", "one"); a != nil || err != nil {
		t.Error(a, err)
	}
	now = now.Add(Keep + time.Second)
	if a, err := begin("li", "two"); a != nil || err != nil {
		t.Errorf("a day later the key is free: %v %v", a, err)
	}
}

func TestOfManyAtOnceOneIsDone(t *testing.T) {
	s := New(sqltest.Open(t))
	var done atomic.Int32
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			switch a, err := s.Begin(t.Context(), "li", "k", "one"); {
			case err == nil && a == nil:
				done.Add(1)
			case !errors.Is(err, ErrAtWork):
				t.Error(a, err)
			}
		})
	}
	wg.Wait()
	if done.Load() != 1 {
		t.Errorf("%d were done", done.Load())
	}
}

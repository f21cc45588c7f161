package answers

import (
	"encoding/base64"
	"errors"
	"strings"
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
	begin := func(caller, request string) (*Answer, error) {
		return s.Begin(t.Context(), Request{Caller: caller, Key: "k", Asked: request})
	}
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
	if err := s.End(t.Context(), Request{Caller: "li", Key: "k"}, want); err != nil {
		t.Fatal(err)
	}
	if a, err := begin("li", "one"); err != nil || cmp.Diff(want, a) != "" {
		t.Error(a, err)
	}
	if err := s.End(t.Context(), Request{Caller: "bo", Key: "k"}, nil); err != nil {
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
			switch a, err := s.Begin(t.Context(), Request{Caller: "li", Key: "k", Asked: "one"}); {
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

// TestAnAnswerWithASecretIsSealed holds that a store which is read tells neither the secret nor the key,
// and that the key alone opens the answer, for its caller and for what was asked.
func TestAnAnswerWithASecretIsSealed(t *testing.T) {
	db := sqltest.Open(t)
	s := New(db)
	r := Request{Caller: "li", Key: "0b9d5c1e-5d5c-4d0e-9f0a-6d1d2f3b4a55", Asked: "one", Secret: true}
	want := &Answer{Status: 201, Headers: map[string]string{"Content-Type": "application/json"}, Body: `{"token":"aus_s3cr3t"}`}
	if a, err := s.Begin(t.Context(), r); a != nil || err != nil {
		t.Fatal(a, err)
	}
	if err := s.End(t.Context(), r, want); err != nil {
		t.Fatal(err)
	}
	if a, err := s.Begin(t.Context(), r); err != nil || cmp.Diff(want, a) != "" {
		t.Error(a, err)
	}
	other := r
	other.Asked = "two"
	if _, err := s.Begin(t.Context(), other); !errors.Is(err, ErrOther) {
		t.Error(err)
	}
	var name, asked, kept string
	if err := db.QueryRowContext(t.Context(), `SELECT request_key, request, answer FROM api_answers`).Scan(&name, &asked, &kept); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{name, asked, kept} {
		plain, _ := base64.StdEncoding.DecodeString(text)
		for _, secret := range []string{"s3cr3t", "token", r.Key[:8]} {
			if strings.Contains(text, secret) || strings.Contains(string(plain), secret) {
				t.Errorf("%q is kept in clear: %s", secret, text)
			}
		}
	}
	// Another caller's row, or another request's, does not open, and what was changed neither.
	for _, wrong := range []Request{{"bo", r.Key, r.Asked, true}, {r.Caller, r.Key, "two", true}, {r.Caller, r.Key + "0", r.Asked, true}} {
		if err := wrong.read(kept, new(Answer)); err == nil {
			t.Errorf("%+v opens it", wrong)
		}
	}
	// The same once more, when it was forgotten, is sealed otherwise.
	text, err := r.write(want)
	if err != nil || text == kept {
		t.Errorf("%s %v", text, err)
	}
}

package kafka

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestHealthTellsOfPartialOutagesToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &watch{}
		refused := errors.New("connection refused")
		expect := func(when string, want error, since time.Time) {
			t.Helper()
			if at, err := w.failing(); !errors.Is(err, want) || !at.Equal(since) {
				t.Errorf("%s: %v since %v, want %v since %v", when, err, at, want, since)
			}
		}
		expect("before anything", nil, time.Time{})
		w.note(nil)
		w.note(context.Canceled)
		expect("a reader that ended", nil, time.Time{})
		began := time.Now()
		for range 10 { // one broker of two is away
			w.note(refused)
			w.note(nil)
			time.Sleep(time.Second)
			expect("half of the requests fail", refused, began)
		}
		time.Sleep(time.Minute)
		expect("all answer", nil, time.Time{})
		began = time.Now()
		w.note(refused)
		time.Sleep(time.Minute)
		expect("nobody has answered since", refused, began)
		w.note(nil)
		expect("the first answer", nil, time.Time{})
	})
}

package run_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/internal/run"
)

type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

func (j *journal) part(name string, after time.Duration, fail error) run.Component {
	return run.Func(name, func(ctx context.Context, ready func()) error {
		j.add("start %s", name)
		ready()
		ready() // twice does no harm
		if fail != nil {
			select {
			case <-time.After(after):
				return fail
			case <-ctx.Done():
				return nil
			}
		}
		<-ctx.Done()
		time.Sleep(after) // it stops slowly; its tests are in bubbles of synctest
		j.add("stop %s", name)
		return nil
	})
}

func TestStartsInOrderAndStopsInReverse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := run.Group(
			ctx, slog.New(slog.DiscardHandler), 5*time.Second, j.part("a", time.Second, nil), j.part("b", time.Second, nil), j.part("c", 0, nil),
		); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff([]string{"start a", "start b", "start c", "stop c", "stop b", "stop a"}, j.lines); d != "" {
			t.Error(d)
		}
	})
}

func TestTheDeathOfOneStopsAllWithItsNameAndReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		err := run.Group(
			t.Context(), slog.New(slog.DiscardHandler), 5*time.Second, j.part("a", 0, nil), j.part("bus", time.Second, errors.New("disk full")),
			j.part("c", 0, nil),
		)
		if err == nil || err.Error() != "bus: disk full" {
			t.Fatal(err)
		}
		if d := cmp.Diff([]string{"start a", "start bus", "start c", "stop c", "stop a"}, j.lines); d != "" {
			t.Error(d)
		}
	})
}

func TestAComponentThatCannotStartStopsWhatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		bad := run.Func("api", func(context.Context, func()) error { return errors.New("port 8080 is in use") })
		err := run.Group(t.Context(), slog.New(slog.DiscardHandler), 5*time.Second, j.part("a", 0, nil), bad, j.part("never", 0, nil))
		if err == nil || err.Error() != "api: port 8080 is in use" {
			t.Fatal(err)
		}
		if d := cmp.Diff([]string{"start a", "stop a"}, j.lines); d != "" {
			t.Error(d)
		}
	})
}

func TestStoppingIsBoundedForAllTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		err := run.Group(ctx, slog.New(slog.DiscardHandler), 5*time.Second, j.part("a", 20*time.Second, nil), j.part("b", 20*time.Second, nil))
		if took := time.Since(began); took != 6*time.Second {
			t.Errorf("took %s", took)
		}
		for _, want := range []string{"stop b: not done within 5s", "stop a: not done within 5s"} {
			if !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("%v does not say %q", err, want)
			}
		}
		time.Sleep(time.Minute)
	})
}

func TestAPanicIsAnErrorWithTheName(t *testing.T) {
	boom := run.Func("detector", func(_ context.Context, ready func()) error { ready(); panic("boom") })
	err := run.Group(t.Context(), slog.New(slog.DiscardHandler), time.Second, boom)
	if err == nil || !strings.HasPrefix(err.Error(), "detector: panic: boom") {
		t.Fatal(err)
	}
}

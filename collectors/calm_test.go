package collectors

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"auspex/schemas"
)

// A device that has been dead for long costs little, and its return is told soon enough.
func TestADeviceThatIsAwayForLongIsAskedLessOften(t *testing.T) {
	for _, tc := range []struct {
		away, within time.Duration
		most         int
	}{
		{2 * time.Minute, 31 * time.Second, 40},
		{time.Hour, 6*time.Minute + time.Second, 130},
		{24 * time.Hour, 10*time.Minute + time.Second, 500},
	} {
		t.Run(tc.away.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked atomic.Int64
				var down atomic.Bool
				var back atomic.Int64
				cfg := &fakeConfig{loss: LossHost, run: func(ctx context.Context, target schemas.Resource, out Emitter) error {
					return Scrape(time.Second, 0, func(ctx context.Context, out Emitter) error {
						if down.Load() {
							asked.Add(1)
							return errors.New("no route")
						}
						back.CompareAndSwap(0, time.Now().UnixNano())
						return oneSample(ctx, target.ID, out)
					}).Run(ctx, out)
				}}
				r := NewRunner(DefaultRunnerConfig(), map[string]Config{"fake": cfg}, &memPublisher{}, Settings{})
				if err := r.Reconcile(servers("s1")); err != nil {
					t.Fatal(err)
				}
				stop := begin(t, r)
				defer stop()
				time.Sleep(10 * time.Second)
				down.Store(true)
				time.Sleep(tc.away)
				down.Store(false)
				back.Store(0)
				returned := time.Now()
				time.Sleep(tc.within)
				if at := back.Load(); at == 0 {
					t.Errorf("not asked within %s", tc.within)
				} else {
					t.Logf("asked %d times, back after %s", asked.Load(), time.Unix(0, at).Sub(returned))
				}
				if n := asked.Load(); n > int64(tc.most) {
					t.Errorf("asked %d times while it was away, want at most %d", n, tc.most)
				}
			})
		})
	}
}

// passwords are secrets that change.
type passwords struct{ p atomic.Value }

func (s *passwords) Secret(context.Context, string) (user, password string, err error) {
	return "admin", s.p.Load().(string), nil
}

// Who refuses us is not asked so often that an account is locked out, and at once when we have another password.
func TestWhoRefusesUsIsAskedAgainWhenThePasswordIsAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var attempts, in atomic.Int64
		secrets := &passwords{}
		secrets.p.Store("old")
		cfg := &fakeConfig{loss: LossHost, run: func(ctx context.Context, target schemas.Resource, out Emitter) error {
			attempts.Add(1)
			if _, p, _ := secrets.Secret(ctx, ""); p != "new" {
				return fmt.Errorf("%w: wrong password", ErrAuth)
			}
			in.Add(1)
			<-ctx.Done()
			return nil
		}}
		r := NewRunner(DefaultRunnerConfig(), map[string]Config{"fake": cfg}, &memPublisher{}, Settings{Secrets: secrets})
		s1 := schemas.Resource{ID: "s1", Kind: schemas.KindServer}
		s1.Attrs = s1.Attrs.With(schemas.AttrCredential, "bmc")
		if err := r.Reconcile([]schemas.Resource{s1}); err != nil {
			t.Fatal(err)
		}
		stop := begin(t, r)
		defer stop()
		time.Sleep(5 * time.Minute)
		if n := attempts.Load(); n > 4 {
			t.Errorf("%d attempts within five minutes", n)
		}
		time.Sleep(2 * time.Hour)
		if n := attempts.Load(); n > 30 {
			t.Errorf("%d attempts within two hours", n)
		}
		secrets.p.Store("new")
		time.Sleep(2 * secretsEvery)
		if in.Load() != 1 {
			t.Error("the new password is not tried")
		}
	})
}

// When a device is read does not depend on who reads it, and devices are not read in step.
func TestADeviceHasItsMomentInTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every = time.Minute
		var mu sync.Mutex
		at := map[string][]time.Duration{}
		cfg := &fakeConfig{run: func(ctx context.Context, target schemas.Resource, out Emitter) error {
			return Scrape(every, 0, func(context.Context, Emitter) error {
				mu.Lock()
				defer mu.Unlock()
				at[target.ID] = append(at[target.ID], time.Duration(time.Now().UnixNano()%int64(every)).Truncate(time.Millisecond))
				return nil
			}).Run(ctx, out)
		}}
		var ids []string
		for i := range 600 {
			ids = append(ids, fmt.Sprint("s", i))
		}
		for range 3 { // processes
			r := NewRunner(DefaultRunnerConfig(), map[string]Config{"fake": cfg}, &memPublisher{}, Settings{})
			if err := r.Reconcile(servers(ids...)); err != nil {
				t.Fatal(err)
			}
			stop := begin(t, r)
			time.Sleep(2*every + 17*time.Second)
			stop()
		}
		var seconds [60]int
		for id, moments := range at {
			if len(slices.Compact(slices.Clone(moments))) != 1 {
				t.Fatalf("%s was read at %v of the minute", id, moments)
			}
			seconds[int(moments[0].Seconds())]++
		}
		if most := slices.Max(seconds[:]); most > 30 {
			t.Errorf("%d of 600 devices are read in one second of sixty", most)
		}
	})
}

// A device that is left to another process, while it is lost, is counted there; who takes it again goes on with what was told.
func TestADeviceThatIsHandedOnTakesItsLossAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pub, cur := &memPublisher{}, &memCursors{m: map[string]string{}}
		var down atomic.Bool
		down.Store(true)
		cfg := func() *fakeConfig {
			return &fakeConfig{loss: LossHost, run: func(ctx context.Context, target schemas.Resource, out Emitter) error {
				return Scrape(time.Second, 0, func(ctx context.Context, out Emitter) error {
					if down.Load() {
						return errors.New("no route")
					}
					return oneSample(ctx, target.ID, out)
				}).Run(ctx, out)
			}}
		}
		var ofB atomic.Bool
		process := func(holds func(schemas.Resource) bool) (*Runner, *prometheus.Registry) {
			reg := prometheus.NewRegistry()
			r := NewRunner(DefaultRunnerConfig(), map[string]Config{"fake": cfg()}, pub, Settings{Cursors: cur, Metrics: reg})
			r.Share(holds)
			return r, reg
		}
		a, ofA := process(func(schemas.Resource) bool { return !ofB.Load() })
		b, _ := process(func(schemas.Resource) bool { return ofB.Load() })
		apply := func(rs ...*Runner) {
			for _, r := range rs {
				if err := r.Reconcile(servers("s1")); err != nil {
					t.Fatal(err)
				}
			}
		}
		apply(a, b)
		stopA, stopB := begin(t, a), begin(t, b)
		defer stopB()
		defer stopA()
		time.Sleep(2 * time.Minute)
		lost := func() float64 { return testutil.ToFloat64(a.metrics.lost.WithLabelValues("fake")) }
		if n := lost(); n != 1 {
			t.Fatalf("%v are lost", n)
		}
		ofB.Store(true)
		apply(a, b)
		if n, targets := lost(), a.Targets()["fake"]; n != 0 || targets != 0 {
			t.Errorf("%v of %d that it reads are lost", n, targets)
		}
		down.Store(false)
		time.Sleep(2 * time.Minute) // b tells the return
		ofB.Store(false)
		apply(b, a)
		time.Sleep(2 * time.Minute)
		down.Store(true)
		time.Sleep(2 * time.Minute)
		var got []string
		for _, e := range pub.events() {
			got = append(got, e.State)
		}
		if want := []string{schemas.StateRaised, schemas.StateCleared, schemas.StateRaised}; !slices.Equal(got, want) {
			t.Errorf("told %v, want %v", got, want)
		}
		if n, err := testutil.GatherAndCount(ofA, "auspex_collectors_targets_lost"); err != nil || n != 1 || lost() != 1 {
			t.Errorf("%v are lost: %v", lost(), err)
		}
	})
}

package collectors

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"auspex/internal/run"
	"auspex/schemas"
)

// backoff returns a random wait in [0, min(limit, base·2^attempt)]: full jitter,
// so that what failed together does not come back together.
func backoff(attempt int, base, limit time.Duration) time.Duration {
	d := limit
	if attempt < 30 {
		d = min(limit, base<<attempt)
	}
	if d <= 0 {
		return 0
	}
	return rand.N(d) + 1
}

// A device that refuses us is asked again after refusedFirst, then half as often each time: what asks it more often locks accounts out.
const (
	refusedFirst = time.Minute
	secretsEvery = 2 * time.Second // between two looks at whether its credential is another
)

// waits is how long the device of an instance is left alone after errors in a row.
type waits struct {
	errs, refusals int
}

// again forgets the errors.
func (w *waits) again() { *w = waits{} }

// after waits once more. Who has been away for long is asked less often, so that its return is told within a tenth of the time that it was
// away, and at most [RunnerConfig.BackoffLong] late. Who refuses us is asked at once when its credential is another one.
func (w *waits) after(ctx context.Context, err error, away time.Duration, c RunnerConfig, changed func() bool) error {
	w.errs++
	if !errors.Is(err, ErrAuth) {
		w.refusals = 0
		return run.Sleep(ctx, backoff(w.errs-1, c.BackoffMin, max(c.BackoffMax, min(away/10, c.BackoffLong))))
	}
	w.refusals++
	wait := min(max(refusedFirst, c.BackoffMin)<<min(w.refusals-1, 10), c.BackoffLong)
	for until := time.Now().Add(wait/2 + rand.N(wait/2+1)); ; {
		left := time.Until(until)
		if left <= 0 || changed() {
			return nil
		}
		if err := run.Sleep(ctx, min(left, secretsEvery)); err != nil {
			return err
		}
	}
}

// credentialChanged returns what reports whether the credential of a target is another one than now.
func (r *Runner) credentialChanged(ctx context.Context, t schemas.Resource) func() bool {
	ref := t.Attrs.Get(schemas.AttrCredential)
	if r.settings.Secrets == nil || ref == "" {
		return func() bool { return false }
	}
	user, password, _ := r.settings.Secrets.Secret(ctx, ref)
	return func() bool {
		u, p, err := r.settings.Secrets.Secret(ctx, ref)
		return err == nil && (u != user || p != password)
	}
}

package dcgm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	"auspex/agent/acts"
)

// stopping is how long a diagnostic that is stopped has to end.
const stopping = 30 * time.Second

// Diagnose runs DCGM's diagnostic of a level from 1, seconds of reading, to 3, a quarter of an hour under load, on GPUs. At
// ctx's end it is stopped. It refuses GPUs that a process has open, unless the configuration says otherwise, and a second
// diagnostic beside one that runs.
func (r *Reader) Diagnose(ctx context.Context, level int, numbers []uint32) (out acts.Report, err error) {
	out = acts.Report{Level: level, GPUs: numbers, Began: time.Now().UTC()}
	switch {
	case r.never() != "":
		return out, errors.New(r.never())
	case level < 1 || level > 3:
		return out, fmt.Errorf("DCGM's diagnostics have levels 1 to 3, and not %d", level)
	case len(numbers) == 0:
		return out, errors.New("no GPU is named")
	case !r.diagnosing.TryLock():
		return out, errors.New("a diagnostic of DCGM runs already")
	}
	defer r.diagnosing.Unlock()
	o := order{Level: level}
	known := r.needs.Boards()
	for _, n := range numbers {
		if known[n].UUID == "" {
			return out, fmt.Errorf("gpu%d is not there", n)
		}
		if users := r.needs.Users(n); len(users) > 0 && !r.cfg.DiagnoseInUse {
			return out, fmt.Errorf("gpu%d is in use by %s", n, strings.Join(users, ", "))
		}
		o.UUIDs = append(o.UUIDs, known[n].UUID)
	}
	p, err := r.start(o)
	if err != nil {
		return out, err
	}
	defer p.end()
	log := r.needs.Log.With("level", level, "gpus", numbers)
	begun := false
	tests, boards, err := r.diagnosed(ctx, p, func() { // a server without DCGM comes never so far
		begun = true
		log.Warn("a diagnostic of DCGM begins")
	})
	if begun {
		log.Warn("a diagnostic of DCGM has ended", "error", err)
	}
	number := map[uint]int{}
	for _, b := range boards {
		for n, k := range known {
			if k.UUID == b.UUID {
				number[b.ID] = int(n)
			}
		}
	}
	for _, t := range tests {
		out.Add(t.report(number))
	}
	out.Ended = time.Now().UTC()
	return out, err
}

// running is the call that is the diagnostic itself.
const running = "dcgmRunDiagnostic"

// diagnosed waits for what a child finds, and calls begins when it begins to look. Each of its calls has the deadline of
// any, but the diagnostic itself, which has ctx's.
func (r *Reader) diagnosed(ctx context.Context, p *process, begins func()) (tests []test, boards []board, err error) {
	call, began := "its start", time.Now()
	for {
		patience := r.cfg.Deadline
		if call == running {
			patience = time.Until(began.Add(longestDiagnostic))
		}
		w, err := p.next(ctx, patience)
		switch {
		case ctx.Err() != nil:
			return nil, nil, p.stop(context.Cause(ctx))
		case errors.Is(err, context.DeadlineExceeded):
			return nil, nil, p.stop(fmt.Errorf("%s has not returned for %s", call, patience.Round(time.Second)))
		case err != nil:
			return nil, nil, err
		}
		switch {
		case w.Call != "":
			if call = w.Call; call == running {
				begins()
			}
		case w.Boards != nil:
			boards = w.Boards
		case w.Tests != nil:
			return w.Tests, boards, nil
		}
	}
}

// longestDiagnostic bounds one whose caller sets no bound.
const longestDiagnostic = 2 * time.Hour

// stop has the hostengine stop the diagnostic, and waits for the child's end: the diagnostic would go on without it.
func (p *process) stop(why error) error {
	_, _ = io.WriteString(p.in, stop+"\n")
	ctx, done := context.WithTimeout(context.Background(), stopping)
	defer done()
	for {
		switch _, err := p.next(ctx, stopping); {
		case ctx.Err() != nil:
			return fmt.Errorf("the diagnostic was to be stopped (%w), and whether it was is not known", why)
		case err != nil:
			return fmt.Errorf("the diagnostic was stopped: %w", why)
		}
	}
}

// report makes a test of a validation. Its name is DCGM's, in small letters with dashes.
func (t *test) report(number map[uint]int) acts.Test {
	words := strings.FieldsFunc(strings.ToLower(t.Name), func(c rune) bool { return !unicode.IsLetter(c) && !unicode.IsDigit(c) })
	name := strings.Join(words, "-")
	out := acts.Test{Name: "dcgm." + name, GPU: acts.AllGPUs, Message: sentence(t.Message)}
	if n, ok := number[t.Entity]; ok && t.Group == kindGPU {
		out.GPU = n
	}
	switch t.Result {
	case testPassed:
		out.Result = acts.Passed
	case testWarned:
		out.Result = acts.Warned
	case testFailed:
		out.Result = acts.Broken
	default:
		out.Result = acts.Skipped
	}
	if out.Message == "" {
		out.Message = map[acts.Result]string{acts.Passed: "nothing was found", acts.Skipped: "it was not run"}[out.Result]
	}
	return out
}

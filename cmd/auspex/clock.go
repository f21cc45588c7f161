package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/internal/run"
)

const (
	// clockTolerance is what our clock may be moved at once before a person is
	// told: time services slew less.
	clockTolerance = 30 * time.Second
	clockInterval  = 5 * time.Second
)

// notBefore is when the first version was made: no right clock says less.
var notBefore = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// clock finds out when the clock of this machine cannot be right: it stands
// before what was stored, or jumps against the time that has passed.
type clock struct {
	wall     func() time.Time     // by the machine's clock
	mono     func() time.Duration // that has passed, whatever the clock says
	lastWall time.Time
	lastMono time.Duration
	latest   time.Time // that the clock has ever said
}

// check returns a sentence when something is new, and what is wrong now.
func (c *clock) check() (message string, wrong error) {
	now, passed := c.wall(), c.mono()
	jump := time.Duration(0)
	if !c.lastWall.IsZero() {
		jump = now.Sub(c.lastWall) - (passed - c.lastMono)
	}
	first := c.lastWall.IsZero()
	c.lastWall, c.lastMono = now, passed
	switch behind := c.latest.Sub(now); {
	case now.Before(notBefore):
		wrong = fmt.Errorf(
			"the clock of this machine shows %s, which cannot be right; set it, or run a time service", now.UTC().Format(time.DateOnly),
		)
	case behind > clockTolerance:
		wrong = fmt.Errorf(
			"the clock of this machine is %s behind what was stored before; the hot window takes no samples until it has caught up",
			behind.Round(time.Second),
		)
	}
	if now.After(c.latest) {
		c.latest = now
	}
	switch {
	case jump > clockTolerance:
		message = fmt.Sprintf("the clock of this machine jumped %s ahead", jump.Round(time.Second))
	case jump < -clockTolerance:
		message = fmt.Sprintf("the clock of this machine jumped %s back", (-jump).Round(time.Second))
		if wrong != nil {
			message = wrong.Error()
		}
	case first && wrong != nil:
		message = wrong.Error()
	}
	return message, wrong
}

// watchClock tells in one sentence when the clock is wrong. The newest time is
// kept as that of the file lock, so that the next start knows it.
func (s *stack) watchClock() run.Component {
	return run.Func("clock", func(ctx context.Context, ready func()) error {
		jumps := prometheus.NewCounter(prometheus.CounterOpts{
			Name: "auspex_clock_jumps_total", Help: "Jumps of the clock of this machine, and times that it was wrong.",
		})
		s.reg.MustRegister(jumps)
		began := time.Now()
		c := &clock{wall: func() time.Time { return time.Now().Round(0) }, mono: func() time.Duration { return time.Since(began) }}
		lock := filepath.Join(s.cfg.Data, "lock")
		if st, err := os.Stat(lock); err == nil {
			c.latest = st.ModTime()
		}
		var wrong errorBox
		s.health.Check("clock", wrong.get)
		for {
			message, err := c.check()
			wrong.set(err)
			if message != "" {
				jumps.Inc()
				fmt.Fprintf(s.err, "auspex: %s\n", message)
			}
			if err == nil {
				if err := os.Chtimes(lock, time.Time{}, c.lastWall); err != nil && !errors.Is(err, os.ErrNotExist) {
					s.log.Debug("cannot store the newest time", "error", err)
				}
			}
			ready()
			if run.Sleep(ctx, clockInterval) != nil {
				return nil
			}
		}
	})
}

package enrich

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"auspex/schemas"
)

var severities = map[string]schemas.Severity{
	"ok": schemas.SeverityInfo, "debug": schemas.SeverityInfo, "notice": schemas.SeverityInfo, "information": schemas.SeverityInfo,
	"informational": schemas.SeverityInfo, "low": schemas.SeverityInfo,
	"warn": schemas.SeverityWarning, "medium": schemas.SeverityWarning, "minor": schemas.SeverityWarning,
	"err": schemas.SeverityError, "high": schemas.SeverityError, "major": schemas.SeverityError,
	"crit": schemas.SeverityCritical, "alert": schemas.SeverityCritical, "emerg": schemas.SeverityCritical,
	"emergency": schemas.SeverityCritical, "fatal": schemas.SeverityCritical,
}

var states = map[string]string{
	"asserted": schemas.StateRaised, "firing": schemas.StateRaised, "active": schemas.StateRaised, "set": schemas.StateRaised,
	"deasserted": schemas.StateCleared, "resolved": schemas.StateCleared, "inactive": schemas.StateCleared, "clear": schemas.StateCleared,
}

// Normalize brings an event into the form of formats section 2: severity and
// state as they are named there, a type in lower case, both times set, and an id
// that is a hash of its content where the producer gave none. A severity that
// cannot be understood becomes error: better seen than hidden.
func (e *Enricher) Normalize(ev *schemas.Event, observed time.Time) {
	fix := func(field string) { e.repaired.WithLabelValues(field).Inc() }
	if ev.Severity.Rank() < 0 {
		s := strings.ToLower(strings.TrimSpace(string(ev.Severity)))
		sev, ok := severities[s]
		switch {
		case ok:
		case schemas.Severity(s).Rank() >= 0:
			sev = schemas.Severity(s)
		default:
			sev = schemas.SeverityError
		}
		ev.Severity = sev
		fix("severity")
	}
	if ev.State != "" && ev.State != schemas.StateRaised && ev.State != schemas.StateCleared {
		s := strings.ToLower(strings.TrimSpace(ev.State))
		if known, ok := states[s]; ok {
			s = known
		}
		if s != schemas.StateRaised && s != schemas.StateCleared {
			s = ""
		}
		ev.State = s
		fix("state")
	}
	if t := strings.ToLower(strings.TrimSpace(ev.Type)); t != ev.Type {
		ev.Type = t
		fix("type")
	}
	if unset(ev.Observed) {
		ev.Observed = observed
		fix("observed")
	}
	if ev.Time.IsZero() || ev.Time.UnixNano() == 0 {
		ev.Time = ev.Observed
		fix("time")
	}
	if ev.ID == "" {
		ev.ID = schemas.EventID(ev.Resource, "", ev.Time.Format(time.RFC3339Nano), ev.Source, ev.Type, ev.Code, ev.State, ev.Message)
		fix("id")
	}
}

func unset(t time.Time) bool { return t.IsZero() || t.UnixNano() == 0 }

const (
	// skewTolerance is what a clock may be off before an event says so.
	skewTolerance = 2 * time.Second
	// skewMemory bounds how long a contact with a device speaks for its clock.
	skewMemory = 15 * time.Minute
	maxClocks  = 1 << 17
)

// clocks estimates by how much the clock of each device and source is ahead.
// Reading takes time, which makes an event look old and never young: the largest
// difference of late is the best estimate, and only one that is ahead proves
// anything.
type clocks struct {
	mu      sync.Mutex
	devices map[string]*clock
}

type clock struct {
	ahead time.Duration // largest (time - observed) of this span
	prev  time.Duration // of the span before
	begun time.Time
}

// neverSet is a time before which a clock was never set: board controllers begin
// in 1970 when their battery is empty.
var neverSet = time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)

// Skew learns from an event how far its device's clock is ahead of ours, counts
// it, and notes it in the attribute clock_skew_s where it is beyond 2 s and the
// collector has not said it. A clock that is behind cannot be told from a record
// that was read late; it is noted only where the clock was never set. Times stay
// as they came.
func (e *Enricher) Skew(device string, ev *schemas.Event) time.Duration {
	d := ev.Time.Sub(ev.Observed)
	e.clocks.mu.Lock()
	key := device + "\x00" + ev.Source
	c := e.clocks.devices[key]
	if c == nil {
		if len(e.clocks.devices) >= maxClocks {
			clear(e.clocks.devices)
		}
		c = &clock{ahead: d, prev: d, begun: ev.Observed}
		e.clocks.devices[key] = c
	}
	if ev.Observed.Sub(c.begun) > skewMemory {
		c.prev, c.ahead, c.begun = c.ahead, d, ev.Observed
	}
	c.ahead = max(c.ahead, d)
	skew := max(c.ahead, c.prev)
	e.clocks.mu.Unlock()
	if ev.Time.Before(neverSet) {
		skew = d
	} else {
		skew = max(skew, 0)
	}
	e.skew.Observe(skew.Abs().Seconds())
	if skew.Abs() <= skewTolerance {
		return skew
	}
	e.skewed.WithLabelValues(ev.Source).Inc()
	if ev.Attrs[schemas.AttrClockSkew] == "" {
		ev.SetAttr(schemas.AttrClockSkew, strconv.FormatFloat(skew.Round(100*time.Millisecond).Seconds(), 'f', -1, 64))
	}
	return skew
}

package collectors

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"auspex/internal/store/cursors"
	"auspex/schemas"
)

// contactKey names a condition of a device: its loss, of one type, or that it refuses
// us. Several collectors of a device share it, so that a person is told once.
type contactKey struct{ device, typ string }

// contactState holds the collectors that have lost a device. Its position in
// the cursors outlives a crash, so that what was raised is cleared.
type contactState struct {
	mu     sync.Mutex
	loaded bool
	lost   []string
	since  time.Time // names the condition
	untold bool      // the process before may have ended before it told of it
}

func (r *Runner) contactOf(k contactKey) *contactState {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.contacts[k]
	if !ok {
		s = &contactState{}
		r.contacts[k] = s
	}
	return s
}

// forget drops what is known of the contact with devices that are read here no more: another process may go on with it, and
// who reads them again reads it anew. r.mu is held.
func (r *Runner) forget(want map[instanceKey]schemas.Resource) {
	read := make(map[string]bool, len(want))
	for k := range want {
		read[k.device] = true
	}
	for k, st := range r.contacts {
		if read[k.device] {
			continue
		}
		delete(r.contacts, k)
		for _, n := range st.lost {
			r.metrics.of(k.typ == schemas.EventAccessRefused, n).Dec()
		}
	}
}

// watch counts the misses of one instance.
type watch struct {
	ctx  context.Context // the instance's
	r    *Runner
	inst *instance
	em   *emitter
	// What may be wrong; none for a collector that tells no loss. A device that answers
	// and refuses is there: whoever took it for dead would repair what is whole.
	conditions []*condition

	mu        sync.Mutex
	contacted bool // in this run
	misses    int
	first     time.Time // of the misses
}

// condition is one of a watch.
type condition struct {
	typ     string // of its events
	refused bool   // it is that the device refuses us
	st      *contactState
	settled bool // known not to be there, nothing to report; guarded by the watch
}

func newWatch(ctx context.Context, r *Runner, inst *instance, em *emitter) *watch {
	w := &watch{ctx: ctx, r: r, inst: inst, em: em}
	if inst.loss != "" {
		for _, c := range []condition{{typ: inst.loss}, {typ: schemas.EventAccessRefused, refused: true}} {
			c.st = r.contactOf(contactKey{inst.target.ID, c.typ})
			w.conditions = append(w.conditions, &c)
		}
	}
	return w
}

func (w *watch) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.contacted = false
}

func (w *watch) seen() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.contacted
}

// away is for how long the device has not answered as it should.
func (w *watch) away() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.misses == 0 {
		return 0
	}
	return time.Since(w.first)
}

// alive notes that the device answers; the first time after a loss, or after
// the start, it reports the return of contact where a loss was reported.
func (w *watch) alive() {
	w.mu.Lock()
	w.contacted, w.misses = true, 0
	w.mu.Unlock()
	for _, c := range w.conditions {
		w.clear(c)
	}
}

// clear reports the end of a condition, where that is not known.
func (w *watch) clear(c *condition) {
	w.mu.Lock()
	due := !c.settled
	w.mu.Unlock()
	if due && w.report(c, schemas.StateCleared, nil) {
		w.mu.Lock()
		c.settled = true
		w.mu.Unlock()
	}
}

// refusals tell that a device refuses us: it has answered, and is not asked often.
const refusals = 2

// miss notes a run that ended with an error, and reports the loss when there were
// enough of them for long enough.
func (w *watch) miss(err error) {
	w.mu.Lock()
	if w.contacted {
		w.misses = 0
	}
	if w.misses == 0 {
		w.first = time.Now()
	}
	w.misses++
	refused := errors.Is(err, ErrAuth)
	least := w.r.cfg.LostMisses
	if refused {
		least = min(least, refusals)
	}
	lost := w.misses >= least && time.Since(w.first) >= w.r.cfg.LostAfter
	w.mu.Unlock()
	if !lost {
		return
	}
	for _, c := range w.conditions {
		switch {
		case c.refused == refused:
			w.mu.Lock()
			c.settled = false
			w.mu.Unlock()
			w.report(c, schemas.StateRaised, err)
		case refused:
			w.clear(c) // who refuses answers
		}
	}
}

// report moves the shared condition, publishes its edges, and reports whether the
// condition is now as reported. A begin is kept before it goes out, and its end after:
// a crash between the two reports the edge twice rather than never, and never a begin
// whose end nobody reports.
func (w *watch) report(c *condition, state string, cause error) bool {
	st := c.st
	st.mu.Lock()
	defer st.mu.Unlock()
	name := w.inst.collector
	if !st.loaded && !w.load(c) {
		return false
	}
	was := len(st.lost) > 0
	lost := slices.DeleteFunc(slices.Clone(st.lost), func(s string) bool { return s == name || w.r.configs[s] == nil })
	if state == schemas.StateRaised {
		if slices.Contains(st.lost, name) && !st.untold {
			return true
		}
		lost = append(lost, name)
	} else if len(lost) == len(st.lost) {
		return true
	}
	now := w.r.settings.Now().UTC()
	if !was {
		st.since = now
	}
	move := func(untold bool) {
		for _, n := range st.lost {
			w.r.metrics.of(c.refused, n).Dec()
		}
		for _, n := range lost {
			w.r.metrics.of(c.refused, n).Inc()
		}
		st.lost, st.untold = lost, untold
		w.keep(c, cursors.Loss{Since: st.since, Collectors: lost, Untold: untold})
	}
	tell := func() error { return w.publish(c.typ, strconv.FormatInt(st.since.UnixNano(), 10), state, now, cause) }
	switch begins := state == schemas.StateRaised && (!was || st.untold); {
	case begins:
		move(true)
		if tell() != nil {
			return false
		}
		move(false)
	case len(lost) == 0:
		if tell() != nil {
			return false
		}
		move(false)
	default:
		move(st.untold)
	}
	return true
}

func (w *watch) keep(c *condition, l cursors.Loss) {
	kept := w.r.settings.Cursors
	if kept == nil {
		return
	}
	ctx, cancel := context.WithTimeout(w.ctx, keepTime)
	defer cancel()
	if err := kept.SetCursor(ctx, cursors.LossOf(c.typ), w.inst.target.ID, l.String()); err != nil {
		w.r.log.Warn("cannot keep contact state", "collector", w.inst.collector, "device", w.inst.target.ID, "error", err)
	}
}

// load reads what the process before this one has reported; st.mu is held.
func (w *watch) load(c *condition) bool {
	st, kept := c.st, w.r.settings.Cursors
	if kept == nil {
		st.loaded = true
		return true
	}
	pos, err := kept.Cursor(w.ctx, cursors.LossOf(c.typ), w.inst.target.ID)
	if err != nil {
		if w.ctx.Err() == nil {
			w.r.log.Warn("cannot read contact state", "collector", w.inst.collector, "device", w.inst.target.ID, "error", err)
		}
		return false
	}
	if l, lost := cursors.ParseLoss(pos); lost {
		st.since, st.lost, st.untold = l.Since, l.Collectors, l.Untold
	}
	for _, n := range st.lost {
		w.r.metrics.of(c.refused, n).Inc()
	}
	st.loaded = true
	return true
}

func (w *watch) publish(typ, since, state string, now time.Time, cause error) error {
	device := w.inst.target.ID
	ev := schemas.Event{
		ID: schemas.EventID(device, since, typ, state), Time: now, Observed: now, Source: schemas.SourceCollector,
		Resource: device, Type: typ, Severity: schemas.SeverityError, State: state,
		Attrs: map[string]string{"collector": w.inst.collector},
	}
	if typ == schemas.EventAccessRefused {
		ev.Code = w.inst.collector
	}
	if w.inst.loss == LossBMC {
		w.r.mu.Lock()
		if id := device + "/bmc"; w.r.known[id] {
			ev.Resource = id
		}
		w.r.mu.Unlock()
	}
	if state == schemas.StateRaised {
		ev.Message = lossMessage(cause)
		ev.Attrs["reason"] = errorKind(cause)
	} else {
		ev.Severity, ev.Message = schemas.SeverityInfo, "answers again"
	}
	b := NewBatch(device, w.inst.collector)
	b.Event(ev)
	b.wire.Observed = now.UnixNano()
	return w.em.publish(w.ctx, &b.wire, nil)
}

// lossMessage says why there is no contact: a device may well answer.
func lossMessage(cause error) string {
	text := cause.Error()
	switch errorKind(cause) {
	case "protocol":
		return "answers, but not so that it can be understood: " + shorten(strings.TrimPrefix(text, ErrProtocol.Error()+": "))
	case "auth":
		return "refuses the credentials: " + shorten(strings.TrimPrefix(text, ErrAuth.Error()+": "))
	}
	return "no answer: " + shorten(text)
}

// maxCause bounds the error in an event's message, in bytes.
const maxCause = 240

func shorten(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	if len(s) > maxCause {
		s = strings.ToValidUTF8(s[:maxCause], "") + "…"
	}
	return s
}

package redfish

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"auspex/collectors"
	"auspex/internal/bmc/redfish"
	"auspex/internal/bmc/sensor"
	"auspex/internal/decode/redfishevent"
	"auspex/schemas"
)

// position is what is known of a log: how many entries it had, and the newest
// of them that the bus has acknowledged.
type position struct {
	Count int    `json:"count"`
	Last  string `json:"last"` // id and time: ids are used again after a clear
}

// skewTolerance is what a clock may be off before an event says so.
const skewTolerance = 2 * time.Second

// maxEntries bounds one reading of a log; the rest comes with the next. maxPages is
// for services whose next links go in circles.
const (
	maxEntries = 20000
	maxPages   = 1000
	maxText    = 4 << 10 // of a property, in bytes
)

// readLog emits the entries after the position, oldest first.
func (r *reader) readLog(ctx context.Context, out collectors.Emitter, l *logService) error {
	if err := r.loadCursors(ctx); err != nil {
		return err
	}
	pos, known := r.cursors[l.entries]
	var fresh []redfish.Object
	var next position
	var changed bool
	err := r.turn(ctx, func() (err error) {
		fresh, next, changed, err = r.newEntries(ctx, l.entries, pos, known)
		return err
	})
	var st *redfish.StatusError
	if errors.As(err, &st) && st.Status != 401 || errors.Is(err, redfish.ErrProtocol) {
		// One log that cannot be read keeps its position; the rest of the service is
		// of use without it.
		_ = r.tolerate(err)
		if !l.broken {
			r.s.Log.Warn("log cannot be read", "log", l.entries, "error", err)
		}
		l.broken = true
		return nil
	}
	if err != nil {
		return err
	}
	l.broken = false
	r.good++
	if !changed {
		return nil
	}
	for _, o := range fresh {
		if ev, ok := r.event(l, o, !known); ok && !r.sent[ev.ID] {
			r.batch.Event(ev)
			r.sent[ev.ID] = true
		}
	}
	if err := r.batch.Emit(ctx, out, r.s.Now()); err != nil {
		return err
	}
	r.cursors[l.entries] = next
	return r.keepCursors(ctx)
}

// newEntries returns the entries after a position, in the order in which they
// were made.
func (r *reader) newEntries(ctx context.Context, path string, pos position, known bool) (fresh []redfish.Object, next position, changed bool, err error) {
	root, err := r.c.Root(ctx)
	if err != nil {
		return nil, pos, false, err
	}
	if known && root.TopSkip && pos.Count > 0 {
		// The log grows at its end where the entry at the known place is the known one.
		o, changed, err := r.c.GetChanged(ctx, path+"?$skip="+strconv.Itoa(pos.Count-1))
		if err == nil && !changed {
			return nil, pos, false, nil
		}
		var list []redfish.Object
		if err == nil {
			list, err = r.rest(ctx, o)
		}
		var st *redfish.StatusError
		if err != nil && (!errors.As(err, &st) || st.Status != http.StatusBadRequest) {
			return nil, pos, false, err
		}
		if len(list) > 0 && key(list[0]) == pos.Last {
			list = list[1:]
			if len(list) == 0 {
				return nil, pos, false, nil
			}
			return list, position{Count: pos.Count + len(list), Last: key(list[len(list)-1])}, true, nil
		}
	}
	o, changed, err := r.c.GetChanged(ctx, path)
	if err != nil {
		return nil, pos, false, err
	}
	if !changed && known {
		return nil, pos, false, nil
	}
	list, err := r.rest(ctx, o)
	if err != nil {
		return nil, pos, false, err
	}
	if newestFirst(list) {
		slices.Reverse(list)
	}
	next = position{Count: len(list)}
	if len(list) > 0 {
		next.Last = key(list[len(list)-1])
	}
	if pos.Last != "" {
		i := slices.IndexFunc(list, func(o redfish.Object) bool { return key(o) == pos.Last })
		if i < 0 {
			r.rereads.Inc()
		}
		list = list[i+1:]
	}
	return list, next, next != pos || !known, nil
}

// rest reads the members of a page and of all that follow it, in full.
func (r *reader) rest(ctx context.Context, o redfish.Object) (list []redfish.Object, err error) {
	path := o.ID()
	for began, pages := r.c.Read(), 0; pages < maxPages && r.c.Read()-began <= redfish.MaxListing; pages++ {
		for _, m := range o.Objects("Members") {
			if r.c.Read()-began > redfish.MaxListing {
				break
			}
			if len(m) == 1 && m.ID() != "" {
				full, err := r.c.Get(ctx, m.ID())
				if err := r.tolerate(err); err != nil {
					return nil, err
				}
				if full == nil {
					continue
				}
				m = full
			}
			list = append(list, m)
		}
		link := o.String("Members@odata.nextLink")
		if link == "" || len(list) >= maxEntries {
			return list, nil
		}
		if o, err = r.c.Get(ctx, link); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w: log %s has more than %d pages or %d bytes", redfish.ErrProtocol, path, maxPages, redfish.MaxListing)
}

func key(o redfish.Object) string {
	id := o.String("Id")
	if id == "" {
		id = o.ID()
	}
	return id + " " + o.String("Created")
}

// newestFirst tells the order of a log by the times of its ends, and by the
// numbers of its entries where the times are equal.
func newestFirst(list []redfish.Object) bool {
	if len(list) < 2 {
		return false
	}
	a, b := list[0], list[len(list)-1]
	ta, okA := a.Time("Created")
	tb, okB := b.Time("Created")
	if okA && okB && !ta.Equal(tb) {
		return ta.After(tb)
	}
	na, okA := a.Number("Id")
	nb, okB := b.Number("Id")
	return okA && okB && na > nb
}

// event turns a log entry into an event. Of a log that was never read before,
// what is older than the backlog is left out.
func (r *reader) event(l *logService, o redfish.Object, first bool) (schemas.Event, bool) {
	now := r.s.Now()
	for k, v := range o { // an entry is some hundred bytes; matching costs with its length
		if text, ok := v.(string); ok && len(text) > maxText {
			o[k] = text[:maxText]
		}
	}
	raw, err := json.Marshal(o)
	if err != nil {
		r.bad.Inc()
		return schemas.Event{}, false
	}
	entries, err := redfishevent.Parse(raw)
	if err != nil || len(entries) != 1 {
		r.bad.Inc()
		return schemas.Event{}, false
	}
	e := &entries[0]
	ev := e.Event()
	if ev.Time.IsZero() {
		ev.Time = now
	} else if first && r.cfg.Backlog > 0 && ev.Time.Before(now.Add(r.skew-r.cfg.Backlog)) {
		r.skipped.Inc()
		return ev, false
	}
	// The log's path is not part of the id: services show one entry in two logs.
	ev.ID = schemas.EventID(r.device, e.Created, e.Key(), e.MessageID, e.Message)
	ev.Resource, ev.Observed = r.device, now
	ev.SetAttr("log", l.entries)
	if s := r.skew.Round(time.Second); s.Abs() > skewTolerance {
		ev.SetAttr("clock_skew_s", strconv.FormatInt(int64(s/time.Second), 10))
	}
	for _, hint := range []string{lastPart(ev.Attr("origin")), ev.Attr("sensor"), l.chassis, ev.Attr("args"), ev.Message} {
		if kind, part := sensor.Part(hint); part != "" {
			ev.SetAttr("part_kind", kind)
			ev.SetAttr("part", part)
			break
		}
	}
	return ev, true
}

func lastPart(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

func (r *reader) loadCursors(ctx context.Context) error {
	if r.loaded {
		return nil
	}
	r.cursors = make(map[string]position)
	if r.s.Cursors != nil {
		pos, err := r.s.Cursors.Cursor(ctx, Name, r.device)
		if err != nil {
			return fmt.Errorf("read cursor of %s: %w", r.device, err)
		}
		if pos != "" {
			if err := json.Unmarshal([]byte(pos), &r.cursors); err != nil {
				r.s.Log.Warn("cursor not understood, reading the logs from their start", "error", err)
				clear(r.cursors)
			}
		}
		r.kept = pos
	}
	r.loaded = true
	return nil
}

func (r *reader) keepCursors(ctx context.Context) error {
	if r.s.Cursors == nil {
		return nil
	}
	pos, err := json.Marshal(r.cursors)
	if err != nil {
		return err
	}
	if string(pos) == r.kept {
		return nil
	}
	if err := r.s.Cursors.SetCursor(ctx, Name, r.device, string(pos)); err != nil {
		return fmt.Errorf("keep cursor of %s: %w", r.device, err)
	}
	r.kept = string(pos)
	return nil
}

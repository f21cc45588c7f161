package redfish

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
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

// few is how many entries are asked for where new ones are looked for at an end of a log.
const few = 32

// pace is how fast what a service sends only as a whole may be read again and again, in
// bytes a second: a log of 500 KB once a minute.
const pace = 8 << 10

// paced is how long to wait after reading so many bytes.
func paced(read int64) time.Duration {
	return min(time.Duration(read/pace)*time.Second, 10*time.Minute)
}

// logService is a log, however many resources link to it.
type logService struct {
	id      string
	chassis string // id of the chassis that keeps the log, or ""
	entries string
	broken  bool // was told that it cannot be read

	newestFirst bool
	size        int       // entries of the last reading in full, 0 before one
	way         int       // index into ways: those before it did not work
	links       bool      // its members stay links, also where they are asked for in full
	due         time.Time // not before, where only the whole of it can be had
	recent      []string  // the keys of its newest entries
	twin        string    // entries of the log that says the same
}

// ways are the requests for what is new in a log, in the order in which they are tried.
// What a service says that it honours does not count, only that the answer holds the
// entry that was the newest: services are seen that promise and ignore, and others that
// honour and do not say.
var ways = []func(*logService, position) (query string, ok bool){
	func(l *logService, p position) (string, bool) { // the end of a log that grows there
		return "$skip=" + strconv.Itoa(p.Count-1), !l.newestFirst
	},
	func(l *logService, p position) (string, bool) { // the same of a full log, which drops its oldest
		return "$skip=" + strconv.Itoa(p.Count-few), !l.newestFirst && p.Count > 2*few
	},
	func(l *logService, p position) (string, bool) {
		return "$top=" + strconv.Itoa(few), l.newestFirst && p.Count > few
	},
	func(_ *logService, p position) (string, bool) {
		_, at, _ := strings.Cut(p.Last, " ")
		return "$filter=" + url.PathEscape("Created ge '"+at+"'"), at != "" && p.Count > few
	},
}

// readLog emits the entries after the position, oldest first.
func (r *reader) readLog(ctx context.Context, out collectors.Emitter, l *logService) error {
	if err := r.loadCursors(ctx); err != nil {
		return err
	}
	if now := r.s.Now(); now.Before(l.due) || r.waits(l.entries, now) {
		return nil
	}
	pos, known := r.cursors[l.entries]
	var fresh []redfish.Object
	var next position
	var changed bool
	err := r.turn(ctx, func() (err error) {
		fresh, next, changed, err = r.newEntries(ctx, l, pos, known)
		return err
	})
	if err != nil {
		r.c.Forget(l.entries)
		if err := r.tolerate(l.entries, err); err != nil {
			return err
		}
		// One log that cannot be read keeps its position; the rest of the service is
		// of use without it.
		if !l.broken {
			r.s.Log.Warn("cannot read log", "log", l.entries, "error", err)
		}
		l.broken = true
		return nil
	}
	l.broken = false
	r.good++
	r.heal(l.entries)
	if !changed {
		return nil
	}
	twin := l.twin != ""
	for _, o := range fresh {
		l.recent = append(l.recent, key(o)+" "+o.String("Message"))
		if ev, ok := r.event(l, o, !known); ok && !r.sent[ev.ID] {
			r.batch.Event(ev)
			r.sent[ev.ID] = true
			r.written(ev, twin || !known)
		}
	}
	l.recent = l.recent[max(0, len(l.recent)-few):]
	if err := r.batch.Emit(ctx, out, r.s.Now()); err != nil {
		r.c.Forget(l.entries)
		return err
	}
	r.cursors[l.entries] = next
	r.findTwin(l)
	return r.keepCursors(ctx)
}

// twinEvery is how often a log is read that says what another one says.
const twinEvery = 10 * time.Minute

// findTwin looks for the log that has the same newest entries: services show one log at
// several paths. It takes five of them, so that two young logs are not taken for one.
func (r *reader) findTwin(l *logService) {
	if l.twin != "" {
		l.twin, l.due = "", time.Time{}
	}
	for _, other := range r.found.logs {
		n := min(len(l.recent), len(other.recent))
		same := n >= 5 && slices.Equal(l.recent[len(l.recent)-n:], other.recent[len(other.recent)-n:])
		if same && other != l && other.twin == "" {
			l.twin, l.due = other.entries, r.s.Now().Add(twinEvery)
			return
		}
	}
}

// newEntries returns the entries after a position, in the order in which they
// were made.
func (r *reader) newEntries(
	ctx context.Context, l *logService, pos position, known bool,
) (fresh []redfish.Object, next position, changed bool, err error) {
	if l.twin != "" {
		l.due = r.s.Now().Add(twinEvery)
	}
	if known && pos.Last != "" && l.size > 0 {
		for ; l.way < len(ways); l.way++ {
			query, ok := ways[l.way](l, pos)
			if !ok {
				continue
			}
			list, res, err := r.ask(ctx, l, pos, query)
			if err != nil {
				return nil, pos, false, err
			}
			if res == nothingNew {
				return nil, pos, false, nil
			}
			if res != unheeded {
				return list, position{Count: pos.Count + len(list), Last: lastKey(list, pos.Last)}, len(list) > 0, nil
			}
		}
	}
	if !known {
		r.c.Forget(l.entries)
	}
	before := r.c.Read()
	o, err := r.c.GetChanged(ctx, l.entries)
	if known && l.twin == "" {
		l.due = r.s.Now().Add(paced(r.c.Read() - before))
	}
	if err != nil || o == nil {
		return nil, pos, false, err
	}
	list, found, total, err := r.whole(ctx, l, o, pos, !known)
	if err != nil {
		return nil, pos, false, err
	}
	l.size = total
	if pos.Last != "" && !found {
		r.rereads.Inc()
	}
	next = position{Count: total, Last: lastKey(list, "")}
	if found && len(list) == 0 {
		next.Last = pos.Last
	}
	return list, next, next != pos || !known, nil
}

func lastKey(list []redfish.Object, none string) string {
	if len(list) == 0 {
		return none
	}
	return key(list[len(list)-1])
}

// What an answer to one of the ways shows.
const (
	unheeded = iota // it is not what was asked for
	nothingNew
	heeded
)

// notTheQuery are refusals of anything that is asked for.
var notTheQuery = []int{http.StatusUnauthorized, http.StatusTooManyRequests, http.StatusServiceUnavailable}

// ask asks for the end of a log that holds the newest known entry, and returns what
// comes after it. An answer that holds it counts, whatever else it holds.
func (r *reader) ask(ctx context.Context, l *logService, pos position, query string) ([]redfish.Object, int, error) {
	o, err := r.c.GetChanged(ctx, l.entries+"?"+query)
	switch st := new(redfish.StatusError); {
	case errors.As(err, &st) && !slices.Contains(notTheQuery, st.Status):
		return nil, unheeded, nil
	case err != nil:
		return nil, unheeded, err
	case o == nil:
		return nil, nothingNew, nil
	}
	list, found, _, err := r.whole(ctx, l, o, pos, false)
	if err != nil || !found {
		r.c.Forget(l.entries)
		return nil, unheeded, err
	}
	if n := len(o.Objects("Members")); n >= l.size && n > few && l.size > few { // all of it came: right, but dear
		l.way++
	}
	if len(list) == 0 {
		return nil, nothingNew, nil
	}
	return list, heeded, nil
}

// whole reads a page and those behind it up to the newest known entry, and returns what
// comes after that in the order in which it was made, and how many entries there are.
// Of a log that is newest first, the pages behind it are not asked for.
func (r *reader) whole(
	ctx context.Context, l *logService, o redfish.Object, pos position, first bool,
) (fresh []redfish.Object, found bool, total int, err error) {
	path, began, seen := o.ID(), r.c.Read(), map[string]bool{}
	var list []redfish.Object
	var cutoff time.Time
	if first && r.cfg.Backlog > 0 {
		cutoff = r.s.Now().Add(r.skew - r.cfg.Backlog)
	}
	for {
		members := o.Objects("Members")
		if n := len(members); n > few && members[n-1].IsLink() && !l.links {
			// A request for all of them in place of one for each.
			x, err := r.c.Get(ctx, l.entries+"?$expand=.($levels=1)")
			if full := x.Objects("Members"); err == nil && len(full) >= n && !full[n-1].IsLink() {
				o, members = x, full
			} else {
				l.links = true
			}
		}
		if n, ok := o.Number("Members@odata.count"); ok {
			total = max(total, int(n))
		}
		list = append(list, members...)
		if len(seen) == 0 && len(list) > 1 {
			if l.newestFirst, err = r.newestFirst(ctx, list); err != nil {
				return nil, false, 0, err
			}
		}
		link := o.Next()
		if l.newestFirst {
			if i := r.index(list, pos); i >= 0 {
				found = true
				list = list[:i+1]
				break
			}
			if n := len(list); !cutoff.IsZero() && n > 0 {
				if t, ok := list[n-1].Time("Created"); ok && t.Before(cutoff) {
					break
				}
			}
		}
		if link == "" || len(list) >= maxEntries {
			break
		}
		if seen[link] || len(seen) >= maxPages || r.c.Read()-began > redfish.MaxListing {
			return nil, false, 0, fmt.Errorf("%w: log %s loops, or has more than %d pages or %d bytes",
				redfish.ErrProtocol, path, maxPages, redfish.MaxListing)
		}
		seen[link] = true
		if o, err = r.c.Get(ctx, link); err != nil {
			return nil, false, 0, err
		}
	}
	total = max(total, len(list))
	order(list, l.newestFirst)
	if i := r.index(list, pos); i >= 0 {
		if list[i].IsLink() {
			o, err := r.c.Get(ctx, list[i].ID())
			if err := r.tolerate(list[i].ID(), err); err != nil {
				return nil, false, 0, err
			}
			found = o != nil && key(o) == pos.Last
		} else {
			found = true
		}
		if found {
			list = list[i+1:]
		}
	}
	// Links are followed from the newest on, as far as they are of interest.
	for i := len(list) - 1; i >= 0; i-- {
		if r.c.Read()-began > redfish.MaxListing {
			return nil, false, 0, fmt.Errorf("%w: log %s has more than %d bytes", redfish.ErrProtocol, path, redfish.MaxListing)
		}
		if list[i].IsLink() {
			full, err := r.c.Get(ctx, list[i].ID())
			if err := r.tolerate(list[i].ID(), err); err != nil {
				return nil, false, 0, err
			}
			list[i] = full
		}
		if t, ok := list[i].Time("Created"); ok && !cutoff.IsZero() && t.Year() > 1980 && t.Before(cutoff) && l.links {
			r.skipped.Add(float64(i + 1))
			list = list[i:]
			break
		}
	}
	fresh = slices.DeleteFunc(slices.Clone(list), func(o redfish.Object) bool { return o == nil })
	return fresh, found, total, nil
}

// index finds the newest known entry; of a link only the id can be compared.
func (*reader) index(list []redfish.Object, pos position) int {
	if pos.Last == "" {
		return -1
	}
	id, _, _ := strings.Cut(pos.Last, " ")
	return slices.IndexFunc(list, func(o redfish.Object) bool {
		return key(o) == pos.Last || o.IsLink() && lastPart(o.ID()) == lastPart(id)
	})
}

func key(o redfish.Object) string {
	id := o.String("Id")
	if id == "" {
		id = o.ID()
	}
	return id + " " + o.String("Created")
}

// number is the number of an entry in its log, where it has one.
func number(o redfish.Object) (int, bool) {
	id := o.String("Id")
	if id == "" {
		id = lastPart(o.ID())
	}
	n, err := strconv.Atoi(id)
	return n, err == nil
}

// newestFirst tells whether a log shows its entries newest first, by their times, and by
// their numbers where these do not fall.
func (r *reader) newestFirst(ctx context.Context, list []redfish.Object) (bool, error) {
	if len(list) < 2 {
		return false, nil
	}
	byTime := func(a, b redfish.Object) (int, bool) {
		ta, okA := a.Time("Created")
		tb, okB := b.Time("Created")
		return ta.Compare(tb), okA && okB
	}
	byNumber := func(a, b redfish.Object) (int, bool) {
		na, okA := number(a)
		nb, okB := number(b)
		return na - nb, okA && okB
	}
	if falls(list, byTime) || falls(list, byNumber) {
		return true, nil
	}
	first, last := list[0], list[len(list)-1]
	if _, numbers := byNumber(first, last); numbers || !first.IsLink() || !last.IsLink() {
		return false, nil
	}
	var ends []redfish.Object
	for _, m := range []redfish.Object{first, last} {
		o, err := r.c.Get(ctx, m.ID())
		if err := r.tolerate(m.ID(), err); err != nil {
			return false, err
		}
		ends = append(ends, o)
	}
	return falls(ends, byTime), nil
}

// falls reports whether a list never rises, and falls somewhere.
func falls(list []redfish.Object, compare func(a, b redfish.Object) (int, bool)) bool {
	down := false
	for i := range list[1:] {
		c, ok := compare(list[i], list[i+1])
		if !ok || c < 0 {
			return false
		}
		down = down || c > 0
	}
	return down
}

// order puts entries into the order in which they were made. Where they are in no order
// at all, as services are seen that do not sort, their numbers say it.
func order(list []redfish.Object, newestFirst bool) {
	if newestFirst {
		slices.Reverse(list)
	}
	sorted, last := true, -1<<62
	for _, o := range list {
		n, ok := number(o)
		if !ok {
			return
		}
		sorted = sorted && n >= last
		last = n
	}
	rising := slices.IsSortedFunc(list, func(a, b redfish.Object) int {
		ta, okA := a.Time("Created")
		tb, okB := b.Time("Created")
		if !okA || !okB {
			return 0
		}
		return ta.Compare(tb)
	})
	if !sorted && !rising {
		slices.SortStableFunc(list, func(a, b redfish.Object) int {
			na, _ := number(a)
			nb, _ := number(b)
			return na - nb
		})
	}
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
	ev.ID = schemas.EventID(r.device, cmp.Or(e.Created, e.Timestamp), e.Key(), e.MessageID, e.Message)
	ev.Resource, ev.Observed = r.device, now
	ev.SetAttr("log", l.entries)
	if s := r.skew.Round(time.Second); s.Abs() > skewTolerance {
		ev.SetAttr(schemas.AttrClockSkew, strconv.FormatInt(int64(s/time.Second), 10))
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
				r.s.Log.Warn("malformed cursor; reading the logs from their start", "error", err)
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
		return fmt.Errorf("store cursor of %s: %w", r.device, err)
	}
	r.kept = string(pos)
	return nil
}

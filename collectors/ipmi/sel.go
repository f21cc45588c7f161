package ipmi

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"auspex/collectors"
	"auspex/internal/bmc/ipmi"
	"auspex/internal/bmc/sensor"
	"auspex/internal/decode/sel"
	"auspex/schemas"
)

// cursor is the last record that the bus has acknowledged.
type cursor struct {
	Erase  uint32 `json:"erase"`            // the erase time when the log was begun: it names the log's epoch
	Turn   int    `json:"turn,omitempty"`   // of epochs with the same erase time, from 0
	ID     uint16 `json:"id"`               // of the record; 0 when the log was empty
	Record string `json:"record,omitempty"` // its bytes, in hex: ids are used again
	Before string `json:"before,omitempty"` // the records before it, latest first, for when it is deleted by itself
	Count  int    `json:"count,omitempty"`  // how many records the log had when its end was last reached,
	Erased uint32 `json:"erased,omitempty"` // and its erase time then
	First  bool   `json:"first,omitempty"`  // the end was never reached: the backlog bounds what is told
	Full   bool   `json:"full,omitempty"`   // that the log is full was told,
	Clock  bool   `json:"clock,omitempty"`  // or that the clock is off
	Told   int    `json:"told,omitempty"`   // how often either was, for the ids of these events
}

// epoch names the log since it was last begun, in the ids of events.
func (c *cursor) epoch() string {
	s := strconv.FormatUint(uint64(c.Erase), 16)
	if c.Turn > 0 {
		s += "/" + strconv.Itoa(c.Turn)
	}
	return s
}

// erased reports whether records were, since the end of the log was last reached.
func (c *cursor) erased(info ipmi.SELInfo) bool {
	return cmp.Or(c.Erased, c.Erase) != info.EraseRaw || info.Entries < c.Count
}

// begin goes to the start of the log, which is a new epoch where something was erased: one that goes in circles may have
// lost all that was known, and its records stay what they are. The erase time alone does not name an epoch: a log may be
// erased twice in a second, and a controller may have lost the time.
func (c *cursor) begin(info ipmi.SELInfo) {
	to := cursor{Erase: c.Erase, Turn: c.Turn, Erased: info.EraseRaw, Full: c.Full, Clock: c.Clock, Told: c.Told}
	switch {
	case !c.erased(info):
	case c.Erase == info.EraseRaw:
		to.Turn++
	default:
		to.Erase, to.Turn = info.EraseRaw, 0
	}
	*c = to
}

// advance makes a record the last one.
func (c *cursor) advance(rec *ipmi.SELRecord) {
	if c.Record != "" {
		before := append([]string{c.Record}, strings.Split(c.Before, ",")...)
		c.Before = strings.TrimSuffix(strings.Join(before[:min(len(before), marks)], ","), ",")
	}
	c.ID, c.Record = rec.ID, hex.EncodeToString(rec.Raw[:])
}

const (
	// chunk is how many records are read in one turn at the controller, and go out
	// before the position is kept.
	chunk = 100
	// slack is how many records more than a log says that it has are read, for
	// controllers whose records go in circles.
	slack = 1024
	// marks is how many records before the last are remembered.
	marks = 8
	// relook is how often the end of a log is looked at that says that nothing was added: one that is full and goes in
	// circles may say the same for ever.
	relook = time.Minute
	// settle is after how long a record can no longer have the stamp of another, in whole seconds.
	settle = 2 * time.Second
)

// readSEL gathers the records after the cursor, at most a chunk of them; more
// says that there are others. A log that says that nothing was added since the
// last look costs one command.
func (r *reader) readSEL(ctx context.Context) (more bool, err error) {
	if r.cursor == nil {
		if err := r.loadCursor(ctx); err != nil {
			return false, err
		}
	}
	info, err := r.conn.SELInfo(ctx)
	if err != nil {
		return false, err
	}
	now := r.s.Now()
	r.tellClock(now)
	if r.lookedAt.IsZero() || info != r.lastInfo {
		r.lastInfo, r.infoAt, r.lookedAt = info, now, time.Time{}
	} else if r.lookedAt.Sub(r.infoAt) >= settle && now.Sub(r.lookedAt) < relook {
		return false, nil
	}
	if !r.stored && r.cursor.ID == 0 { // nothing was ever read
		r.cursor.Erase, r.cursor.Erased = info.EraseRaw, info.EraseRaw
	}
	id, anchor, err := r.start(ctx, info)
	if err != nil {
		return false, err
	}
	var got []ipmi.SELRecord
	for id != ipmi.LastRecord && !more {
		if r.records++; r.records > info.Entries+slack {
			r.badRecords.Inc()
			r.s.Log.Warn("event log loops", "entries", info.Entries)
			break
		}
		rec, err := r.conn.SELRecord(ctx, id)
		if errors.Is(err, ipmi.ErrNoRecord) {
			break // an empty log, or one that was cleared meanwhile
		}
		switch {
		case errors.Is(err, ipmi.ErrMalformed):
			r.badRecords.Inc()
			r.s.Log.Warn("skipped a record of the event log", "error", err)
			if id = rec.Next; id == ipmi.FirstRecord { // the position stays before it
				id = ipmi.LastRecord
			}
			continue
		case err != nil:
			return false, err
		}
		got = append(got, rec)
		if rec.Next == id || rec.Next == ipmi.FirstRecord {
			break // a log that goes in circles
		}
		id = rec.Next
		more = len(got) == chunk && id != ipmi.LastRecord
	}
	whole, err := r.keepOf(ctx, anchor, got)
	if err != nil {
		return false, err
	}
	if more || !whole {
		return true, nil
	}
	c := r.cursor
	c.First, c.Count, c.Erased = false, info.Entries, info.EraseRaw
	r.lookedAt = now
	r.tellFull(info, now)
	return false, nil
}

// keepOf takes the records of a walk, which went on after anchor, if there was one. Somebody may have cleared the log meanwhile, and records that came since may have
// taken the place of those that were next: whole is false then, and of the records only those are taken that are no more
// in the log; the others are read again with it.
func (r *reader) keepOf(ctx context.Context, anchor *ipmi.SELRecord, got []ipmi.SELRecord) (whole bool, err error) {
	if len(got) == 0 {
		return true, nil
	}
	if anchor == nil {
		anchor = &got[0]
	}
	whole = true
	if there, err := r.there(ctx, anchor); err != nil {
		return false, err
	} else if !there {
		// A log that goes in circles has lost its oldest records, and begins with one that was just read.
		first, err := r.conn.SELRecord(ctx, ipmi.FirstRecord)
		if err != nil && !errors.Is(err, ipmi.ErrNoRecord) && !errors.Is(err, ipmi.ErrMalformed) {
			return false, err
		}
		whole = err != nil || slices.ContainsFunc(got, func(g ipmi.SELRecord) bool { return g.Raw == first.Raw })
	}
	for i := range got {
		if !whole {
			there, err := r.there(ctx, &got[i])
			if err != nil {
				return false, err
			}
			if there {
				continue
			}
		}
		if ev, ok := r.event(got[i]); ok {
			r.batch.Event(ev)
		}
		r.cursor.advance(&got[i])
	}
	return whole, nil
}

// there reports whether the log has a record, byte for byte.
func (r *reader) there(ctx context.Context, known *ipmi.SELRecord) (bool, error) {
	rec, err := r.conn.SELRecord(ctx, known.ID)
	if errors.Is(err, ipmi.ErrNoRecord) || errors.Is(err, ipmi.ErrMalformed) {
		return false, nil
	}
	return err == nil && rec.Raw == known.Raw, err
}

// start finds the first record that was not read, and the one before it: the one after the cursor; where that record was deleted, the one after
// the latest before it that is there; and where none is, the first, of a log that was cleared. What was stamped before
// the clock was set proves nothing once the log has shrunk: the next start writes the same again.
func (r *reader) start(ctx context.Context, info ipmi.SELInfo) (id uint16, after *ipmi.SELRecord, err error) {
	c := r.cursor
	if c.ID == 0 {
		return ipmi.FirstRecord, nil, nil
	}
	if info.Entries > 0 {
		doubt := c.erased(info)
		for i, record := range append([]string{c.Record}, strings.Split(c.Before, ",")...) {
			b, err := hex.DecodeString(record)
			if err != nil || len(b) != 16 {
				continue
			}
			at := binary.LittleEndian.Uint16(b)
			if i == 0 {
				at = c.ID
			}
			rec, err := r.conn.SELRecord(ctx, at)
			switch {
			case err == nil && hex.EncodeToString(rec.Raw[:]) == record:
			case err == nil, errors.Is(err, ipmi.ErrNoRecord), errors.Is(err, ipmi.ErrMalformed):
				continue
			default:
				return 0, nil, err
			}
			if after == nil {
				after = &rec
			}
			if dec, err := sel.ParseRaw(b); !doubt || err == nil && !dec.PreInit && !dec.Time.IsZero() {
				return after.Next, after, nil
			}
		}
	}
	r.rereads.Inc()
	c.begin(info)
	return ipmi.FirstRecord, nil, nil
}

func (r *reader) loadCursor(ctx context.Context) error {
	r.cursor, r.stored = &cursor{First: true}, false
	if r.s.Cursors == nil {
		return nil
	}
	pos, err := r.s.Cursors.Cursor(ctx, Name, r.device)
	if err != nil {
		r.cursor = nil
		return fmt.Errorf("read cursor of %s: %w", r.device, err)
	}
	if pos == "" {
		return nil
	}
	*r.cursor = cursor{}
	if err := json.Unmarshal([]byte(pos), r.cursor); err != nil {
		r.s.Log.Warn("malformed cursor; reading the log from its start", "error", err)
		*r.cursor = cursor{}
	}
	r.kept, r.stored = *r.cursor, true
	return nil
}

// forget makes what was read and not sent be read again.
func (r *reader) forget() {
	r.cursor, r.lookedAt = nil, time.Time{}
	r.batch.Discard()
}

// flush emits the events and then keeps the position, which must not happen
// before the bus has them. What a new epoch is called is kept before: whoever reads its
// records again after a crash must give them the same ids.
func (r *reader) flush(ctx context.Context, out collectors.Emitter) error {
	_, events := r.batch.Len()
	if events == 0 && r.stored && r.kept == *r.cursor {
		return nil
	}
	if first := !r.stored; events > 0 && (first || r.cursor.epoch() != r.kept.epoch()) {
		ahead := cursor{Erase: r.cursor.Erase, Turn: r.cursor.Turn, Erased: r.cursor.Erase, First: first}
		if !first {
			ahead.Full, ahead.Clock, ahead.Told = r.kept.Full, r.kept.Clock, r.kept.Told
		}
		if err := r.keep(ctx, ahead); err != nil {
			return err
		}
	}
	if err := r.batch.Emit(ctx, out, r.s.Now()); err != nil {
		r.forget()
		return err
	}
	return r.keep(ctx, *r.cursor)
}

func (r *reader) keep(ctx context.Context, c cursor) error {
	if r.s.Cursors == nil {
		r.kept, r.stored = c, true
		return nil
	}
	pos, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if err := r.s.Cursors.SetCursor(ctx, Name, r.device, string(pos)); err != nil {
		r.forget()
		return fmt.Errorf("store cursor of %s: %w", r.device, err)
	}
	r.kept, r.stored = c, true
	return nil
}

// tellFull says that a controller drops what happens since its log has no room, and when it has room again.
func (r *reader) tellFull(info ipmi.SELInfo, now time.Time) {
	c := r.cursor
	if c.Full == info.Overflow {
		return
	}
	c.Full = info.Overflow
	ev := schemas.Event{Type: schemas.EventBMCSEL, Code: codeLogFull, Severity: schemas.SeverityWarning, State: schemas.StateRaised}
	ev.Message = fmt.Sprintf("The event log is full (%d records): the controller drops what happens until it is cleared.", info.Entries)
	if !c.Full {
		ev.Message = "The event log has room again."
	}
	r.tell(ev, !c.Full, now)
}

// codeLogFull is "log full" of the sensor type Event Logging Disabled (table 42-3).
const codeLogFull = "10/04"

// What a clock may be off before that is told, and when it is right again.
const (
	clockOff   = time.Minute
	clockRight = 10 * time.Second
)

// tellClock says that the clock that stamps the log is off, and when it is right again.
func (r *reader) tellClock(now time.Time) {
	c, off := r.cursor, r.skew.Abs()
	if c.Clock && off > clockRight || !c.Clock && off <= clockOff {
		return
	}
	c.Clock = !c.Clock
	ev := schemas.Event{Type: schemas.EventBMCClockSkew, Severity: schemas.SeverityWarning, State: schemas.StateRaised, Code: "ahead"}
	skew := r.skew.Round(time.Second)
	word := "ahead of"
	if skew < 0 {
		ev.Code, word = "behind", "behind"
	}
	ev.Message = fmt.Sprintf("The clock of the board controller is %s %s ours; it stamps its event log by it.", skew.Abs(), word)
	if sel.Unset(now.Add(r.skew)) {
		ev.Code, ev.Message = "unset", "The clock of the board controller was not set since it started; it stamps its event log by it."
	}
	if !c.Clock {
		ev.Code, ev.Message = "", "The clock of the board controller is right again."
	}
	ev.SetAttr(schemas.AttrClockSkew, strconv.FormatInt(int64(skew/time.Second), 10))
	r.tell(ev, !c.Clock, now)
}

// tell takes an event about the log itself into the batch. How many there were names it: one that is told again after a
// crash is the same.
func (r *reader) tell(ev schemas.Event, over bool, now time.Time) {
	if over {
		ev.Severity, ev.State = schemas.SeverityInfo, schemas.StateCleared
	}
	r.cursor.Told++
	ev.ID = schemas.EventID(r.device, Name, ev.Type, strconv.Itoa(r.cursor.Told))
	ev.Time, ev.Observed, ev.Source, ev.Resource = now, now, schemas.SourceIPMI, r.device
	r.batch.Event(ev)
}

// clearSEL clears the log where the configuration says so, it is that full, and all of it is known and on the bus.
func (r *reader) clearSEL(ctx context.Context) error {
	switch {
	case r.cfg.ClearSELAt == 0 || r.lookedAt.IsZero() || r.lastInfo.Entries == 0 || r.lastInfo.Used() < r.cfg.ClearSELAt:
		return nil
	case !r.lastInfo.Reserves:
		r.unguarded.Do(func() {
			r.s.Log.Warn("the event log is not cleared: the controller guards no clearing against records that come meanwhile")
		})
		return nil
	}
	cleared, err := r.conn.ClearSEL(ctx, func() (bool, error) {
		info, err := r.conn.SELInfo(ctx)
		if err != nil || info != r.lastInfo || r.cursor.ID == 0 {
			return false, err
		}
		last, err := r.conn.SELRecord(ctx, r.cursor.ID)
		if errors.Is(err, ipmi.ErrNoRecord) || errors.Is(err, ipmi.ErrMalformed) {
			return false, nil
		}
		return err == nil && hex.EncodeToString(last.Raw[:]) == r.cursor.Record && last.Next == ipmi.LastRecord, err
	})
	if cleared {
		r.clears.Inc()
		r.lookedAt = time.Time{}
	}
	if errors.Is(err, ipmi.ErrRefused) {
		r.s.Log.Warn("the event log was not cleared", "error", err)
		return nil
	}
	return err
}

// event turns a record into an event. Of a log that was never read before, what
// is older than the backlog is left out. A record that cannot be decoded is an
// event all the same, with its bytes.
func (r *reader) event(rec ipmi.SELRecord) (schemas.Event, bool) {
	now := r.s.Now()
	raw := hex.EncodeToString(rec.Raw[:])
	dec, err := sel.ParseRaw(rec.Raw[:])
	dec.Manufacturer = r.maker
	var ev schemas.Event
	if err != nil {
		r.badRecords.Inc()
		ev = schemas.Event{
			Time: now, Source: schemas.SourceIPMI, Type: schemas.EventBMCSEL, Severity: schemas.SeverityInfo,
			Code: fmt.Sprintf("record/%02x", rec.Raw[2]), Message: err.Error(),
		}
		ev.SetAttr("record", strconv.Itoa(int(rec.ID)))
	} else {
		s := r.sensorOf(&dec)
		name := ""
		if s != nil {
			name = s.Name
		}
		ev = dec.Event(name)
		refine(&ev, &dec, s)
	}
	switch {
	case ev.Time.IsZero(): // an OEM record without a stamp
		ev.Time = now
	case ev.Time.Unix() == math.MaxUint32: // the clock was not set (section 37.1)
		ev.Time = now
	case r.cursor.First && r.cfg.Backlog > 0 && ev.Time.Before(now.Add(r.skew-r.cfg.Backlog)):
		r.skipped.Inc()
		return ev, false
	}
	ev.ID = schemas.EventID(r.device, r.cursor.epoch(), strconv.Itoa(int(rec.ID)), raw)
	ev.Resource, ev.Observed = r.device, now
	ev.SetAttr("raw", raw)
	if s := r.skew.Round(time.Second); s.Abs() > skewTolerance {
		ev.SetAttr(schemas.AttrClockSkew, strconv.FormatInt(int64(s/time.Second), 10))
	}
	return ev, true
}

// refine adds what only a session with the controller knows: the part, and the
// readings in units (table 29-6: event data 2 is the reading, 3 the threshold).
func refine(ev *schemas.Event, rec *sel.Record, s *ipmi.Sensor) {
	if s == nil || rec.Type != recordSystem {
		return
	}
	if kind, part := sensor.Part(s.Name); part != "" {
		ev.SetAttr("part_kind", kind)
		ev.SetAttr("part", part)
	}
	if ev.Attr("raw_reading") == "" || !s.Analog {
		return
	}
	num := func(raw byte) string { return strconv.FormatFloat(s.Value(raw), 'g', 6, 64) }
	ev.SetAttr("reading", num(rec.Data[1]))
	ev.SetAttr("unit", string(s.Unit))
	ev.Message += " | reading " + num(rec.Data[1])
	if ev.Attr("raw_threshold") != "" {
		ev.SetAttr("limit", num(rec.Data[2]))
		ev.Message += " | limit " + num(rec.Data[2])
	}
}

// skewTolerance is what a clock may be off before an event says so: the stamps
// of the log have whole seconds.
const skewTolerance = 2 * time.Second

// recordSystem is the type of a system event record (section 32.1).
const recordSystem = 0x02

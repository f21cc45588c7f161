package ipmi

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"auspex/collectors"
	"auspex/internal/bmc/ipmi"
	"auspex/internal/bmc/sensor"
	"auspex/internal/decode/sel"
	"auspex/schemas"
)

// cursor is the last record that the bus has acknowledged.
type cursor struct {
	Erase  uint32 `json:"erase"`            // the log's epoch: its erase time
	ID     uint16 `json:"id"`               // of the record; 0 when the log was empty
	Record string `json:"record,omitempty"` // its bytes, in hex: ids are used again
}

const (
	// chunk is how many records are read in one turn at the controller, and go out
	// before the position is kept.
	chunk = 100
	// slack is how many records more than a log says that it has are read, for
	// controllers whose records go in circles.
	slack = 1024
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
	if r.haveInfo && info == r.lastInfo {
		return false, nil
	}
	id, err := r.start(ctx, info)
	if err != nil {
		return false, err
	}
	for n := 0; id != ipmi.LastRecord; n++ {
		if n == chunk {
			return true, nil
		}
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
			n-- // the position stays before it
			if id = rec.Next; id == ipmi.FirstRecord {
				id = ipmi.LastRecord
			}
			continue
		case err != nil:
			return false, err
		}
		if ev, ok := r.event(info.EraseRaw, rec); ok {
			r.batch.Event(ev)
		}
		*r.cursor = cursor{Erase: info.EraseRaw, ID: rec.ID, Record: hex.EncodeToString(rec.Raw[:])}
		if rec.Next == id || rec.Next == ipmi.FirstRecord {
			break // a log that goes in circles
		}
		id = rec.Next
	}
	if info.Entries == 0 && r.cursor.ID != 0 {
		*r.cursor = cursor{Erase: info.EraseRaw}
	}
	r.fresh, r.lastInfo, r.haveInfo = false, info, true
	return false, nil
}

// start finds the first record that was not read: the one after the cursor, or
// the first of the log when the cursor's record is gone.
func (r *reader) start(ctx context.Context, info ipmi.SELInfo) (id uint16, err error) {
	c := r.cursor
	if c.ID == 0 {
		return ipmi.FirstRecord, nil
	}
	if c.Erase == info.EraseRaw {
		rec, err := r.conn.SELRecord(ctx, c.ID)
		switch {
		case err == nil && rec.ID == c.ID && hex.EncodeToString(rec.Raw[:]) == c.Record:
			return rec.Next, nil
		case err != nil && !errors.Is(err, ipmi.ErrNoRecord):
			return 0, err
		}
	}
	r.rereads.Inc()
	return ipmi.FirstRecord, nil
}

func (r *reader) loadCursor(ctx context.Context) error {
	r.cursor = &cursor{}
	if r.s.Cursors == nil {
		return nil
	}
	pos, err := r.s.Cursors.Cursor(ctx, Name, r.device)
	if err != nil {
		r.cursor = nil
		return fmt.Errorf("read cursor of %s: %w", r.device, err)
	}
	if pos == "" {
		r.fresh = true
		return nil
	}
	if err := json.Unmarshal([]byte(pos), r.cursor); err != nil {
		r.s.Log.Warn("malformed cursor; reading the log from its start", "error", err)
		r.cursor = &cursor{}
	}
	return nil
}

// flush emits the events and then keeps the position, which must not happen
// before the bus has them.
func (r *reader) flush(ctx context.Context, out collectors.Emitter) error {
	if _, events := r.batch.Len(); events == 0 && r.kept == *r.cursor {
		return nil
	}
	if err := r.batch.Emit(ctx, out, r.s.Now()); err != nil {
		r.cursor, r.haveInfo = nil, false // what was not taken is read again
		r.batch.Discard()
		return err
	}
	r.kept = *r.cursor
	if r.s.Cursors == nil {
		return nil
	}
	pos, err := json.Marshal(r.cursor)
	if err != nil {
		return err
	}
	if err := r.s.Cursors.SetCursor(ctx, Name, r.device, string(pos)); err != nil {
		return fmt.Errorf("store cursor of %s: %w", r.device, err)
	}
	return nil
}

// event turns a record into an event. Of a log that was never read before, what
// is older than the backlog is left out. A record that cannot be decoded is an
// event all the same, with its bytes.
func (r *reader) event(erase uint32, rec ipmi.SELRecord) (schemas.Event, bool) {
	now := r.s.Now()
	raw := hex.EncodeToString(rec.Raw[:])
	dec, err := sel.ParseRaw(rec.Raw[:])
	var ev schemas.Event
	if err != nil {
		r.badRecords.Inc()
		ev = schemas.Event{
			Time: now, Source: schemas.SourceIPMI, Type: schemas.EventBMCSEL, Severity: schemas.SeverityInfo,
			Code: fmt.Sprintf("record/%02x", rec.Raw[2]), Message: err.Error(),
		}
		ev.SetAttr("record", strconv.Itoa(int(rec.ID)))
	} else {
		ev = dec.Event(r.names[dec.SensorNumber])
		r.refine(&ev, &dec)
	}
	switch {
	case ev.Time.IsZero(): // an OEM record without a stamp
		ev.Time = now
	case ev.Time.Unix() == math.MaxUint32: // the clock was not set (section 37.1)
		ev.Time = now
	case r.fresh && r.cfg.Backlog > 0 && ev.Time.Before(now.Add(r.skew-r.cfg.Backlog)):
		r.skipped.Inc()
		return ev, false
	}
	ev.ID = schemas.EventID(r.device, strconv.FormatUint(uint64(erase), 16), strconv.Itoa(int(rec.ID)), raw)
	ev.Resource, ev.Observed = r.device, now
	ev.SetAttr("raw", raw)
	if s := r.skew.Round(time.Second); s.Abs() > skewTolerance {
		ev.SetAttr(schemas.AttrClockSkew, strconv.FormatInt(int64(s/time.Second), 10))
	}
	return ev, true
}

// refine adds what only a session with the controller knows: the part, and the
// readings in units (table 29-6: event data 2 is the reading, 3 the threshold).
func (r *reader) refine(ev *schemas.Event, rec *sel.Record) {
	if kind, part := sensor.Part(r.names[rec.SensorNumber]); part != "" && rec.Type == recordSystem {
		ev.SetAttr("part_kind", kind)
		ev.SetAttr("part", part)
	}
	if ev.Attr("raw_reading") == "" {
		return
	}
	for i := range r.sensors {
		s := &r.sensors[i]
		if s.s.Number != rec.SensorNumber || !s.s.Analog {
			continue
		}
		num := func(raw byte) string { return strconv.FormatFloat(s.s.Value(raw), 'g', 6, 64) }
		ev.SetAttr("reading", num(rec.Data[1]))
		ev.SetAttr("unit", string(s.s.Unit))
		ev.Message += " | reading " + num(rec.Data[1])
		if ev.Attr("raw_threshold") != "" {
			ev.SetAttr("limit", num(rec.Data[2]))
			ev.Message += " | limit " + num(rec.Data[2])
		}
		return
	}
}

// skewTolerance is what a clock may be off before an event says so: the stamps
// of the log have whole seconds.
const skewTolerance = 2 * time.Second

// recordSystem is the type of a system event record (section 32.1).
const recordSystem = 0x02

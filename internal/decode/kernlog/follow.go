package kernlog

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"auspex/schemas"
)

// Position is where reading of a host's kernel log goes on: the next sequence number
// of a boot.
type Position struct {
	BootID   string
	Next     uint64
	Boot     time.Time // estimate of the boot's time
	Shutdown bool      // the host said that it goes down
	// Last is the boot clock of the newest record, and Renumbered how often the
	// numbers began anew within the boot, in a file that somebody has replaced.
	Last       time.Duration
	Renumbered int
}

// String is the position as [ParsePosition] reads it.
func (p Position) String() string {
	return fmt.Sprintf("%s %d %d %t %d %d", p.BootID, p.Next, p.Boot.UnixNano(), p.Shutdown, p.Last, p.Renumbered)
}

// epoch names what the sequence numbers count in.
func (p Position) epoch() string {
	if p.Renumbered == 0 {
		return p.BootID
	}
	return p.BootID + "#" + strconv.Itoa(p.Renumbered)
}

var noTime = time.Time{}.UnixNano()

// Booted reports whether the boot's time is known at all.
func (p Position) Booted() bool { return !p.Boot.IsZero() && p.Boot.UnixNano() != noTime }

// Tighten takes an upper bound of the boot's time.
func (p *Position) Tighten(bound time.Time) {
	if !p.Booted() || bound.Before(p.Boot) {
		p.Boot = bound
	}
}

// ParsePosition reads what [Position.String] wrote.
func ParsePosition(s string) (p Position, ok bool) {
	f := strings.Fields(s)
	if len(f) < 4 {
		return p, false
	}
	next, err := strconv.ParseUint(f[1], 10, 64)
	ns, err2 := strconv.ParseInt(f[2], 10, 64)
	p = Position{BootID: f[0], Next: next, Boot: time.Unix(0, ns), Shutdown: f[3] == "true"}
	if err = errors.Join(err, err2); err == nil && len(f) > 5 {
		var last int64
		last, err = strconv.ParseInt(f[4], 10, 64)
		p.Renumbered, err2 = strconv.Atoi(f[5])
		p.Last, err = time.Duration(last), errors.Join(err, err2)
	}
	return p, err == nil
}

// Follower turns the records of a host's log into events with ids, in whatever way they
// come: read here or by an agent there, a record is the same event. It is not safe for
// concurrent use.
type Follower struct {
	Position
	// Device is the host.
	Device string

	parser Parser
	seen   bool // a record of this reading of the log
}

// Opened says that the log is read from its start, as far as it is there, and of which
// boot it is.
func (f *Follower) Opened(bootID string) (first, rebooted bool) {
	f.seen = false
	first = f.BootID == ""
	rebooted = !first && bootID != f.BootID
	if !first && !rebooted {
		return false, false
	}
	f.Position = Position{BootID: bootID, Shutdown: rebooted && f.Shutdown}
	if rebooted {
		f.parser.Observed()
		if f.Shutdown && !f.parser.ShuttingDown() { // this process has not read it
			f.parser.Message("", "reboot: Restarting system")
		}
	}
	return first, rebooted
}

// Reading is what a record came to.
type Reading struct {
	Known      bool   // it was read before
	Lost       uint64 // records before it that nobody has read
	Renumbered bool   // the numbers of the log began anew before it
	Expected   uint64 // the number that was expected
	Events     []schemas.Event
}

// Record reads the next record. Times of events are the host's, at most now.
func (f *Follower) Record(rec Record, now time.Time) (r Reading) {
	r.Expected = f.Next
	if rec.Sequence < f.Next && f.Last > 0 && rec.SinceBoot > f.Last {
		// A record that is newer than all that was read cannot have an older number:
		// the file holds another log.
		r.Renumbered = true
		f.Next, f.seen = rec.Sequence, false
		f.Renumbered++
	}
	if rec.Sequence < f.Next {
		f.parser.Message(rec.Unit, rec.Text) // known already; the parser learns from it
		r.Known = true
		return r
	}
	if gap := rec.Sequence - f.Next; gap > 0 && (f.seen || f.Next > 0) {
		r.Lost = gap
	}
	f.seen = true
	f.Next, f.Last = rec.Sequence+1, max(f.Last, rec.SinceBoot)
	r.Events = f.parser.Message(rec.Unit, rec.Text)
	f.Shutdown = f.parser.ShuttingDown()
	seq := strconv.FormatUint(rec.Sequence, 10)
	at := f.Boot.Add(rec.SinceBoot).UTC()
	if at.After(now) {
		at = now.UTC()
	}
	for i := range r.Events {
		ev := &r.Events[i]
		ev.ID = schemas.EventID(f.Device, f.epoch(), seq, rec.Text)
		if i > 0 { // a record of several lines that mean something
			ev.ID = schemas.EventID(f.Device, f.epoch(), seq, rec.Text, strconv.Itoa(i))
		}
		ev.Time, ev.Observed, ev.Resource = at, now.UTC(), f.Device
		ev.SetAttr("boot_id", f.BootID)
		ev.SetAttr("sequence", seq)
	}
	return r
}

package target

import (
	"strconv"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
)

// Log is a list of records that is told from its oldest entry on and never changes but
// at its ends: /journal/record[sequence=N]/state. It is read as fast as it is sent, and
// is nowhere in memory. Entries that leave it, since they were acknowledged or for
// space, are not told one by one.
type Log interface {
	// Read returns up to max records with larger sequence numbers, in order.
	Read(after uint64, max int) ([]Record, error)
	// Changed returns a channel that is closed when there is a new record.
	Changed() <-chan struct{}
	// Newest returns the sequence number of the newest record; 0 is none.
	Newest() uint64
}

// Record is an entry of a [Log].
type Record struct {
	Sequence uint64 // from 1, for ever increasing
	Time     int64  // when it was written, nanoseconds since the epoch
	Kind     string // who can read Data: "kernel" or "event"
	Boot     string // id of the boot in which it was written
	BootTime int64  // when that boot began, nanoseconds since the epoch; 0 is not known
	Data     string
}

var logPath = []*gpb.PathElem{{Name: "journal"}, {Name: "record"}}

// notification tells the leaves of a record that a query names, nil where there are none.
func (r *Record) notification(query []*gpb.PathElem, prefix *gpb.Path, enc gpb.Encoding) *gpb.Notification {
	n := &gpb.Notification{Timestamp: r.Time, Prefix: prefix, Atomic: false}
	entry := &gpb.PathElem{Name: "record", Key: map[string]string{"sequence": strconv.FormatUint(r.Sequence, 10)}}
	add := func(name string, v value) {
		path := &gpb.Path{Elem: []*gpb.PathElem{logPath[0], entry, {Name: "state"}, {Name: name}}}
		if covers(query, path.Elem) {
			n.Update = append(n.Update, &gpb.Update{Path: path, Val: v.encode(enc)})
		}
	}
	add("sequence", value{kind: unsigned, bits: r.Sequence})
	add("time", value{kind: unsigned, bits: uint64(r.Time)})
	add("kind", value{kind: text, text: r.Kind})
	if r.Boot != "" {
		add("boot-id", value{kind: text, text: r.Boot})
	}
	if r.BootTime != 0 {
		add("boot-time", value{kind: unsigned, bits: uint64(r.BootTime)})
	}
	add("data", value{kind: text, text: r.Data})
	if len(n.Update) == 0 {
		return nil
	}
	return n
}

package host

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"auspex/agent/journal"
	"auspex/internal/target"
	"auspex/schemas"
)

// Journal keeps events; see [journal.Journal].
type Journal interface {
	Append(r target.Record, source string, mark journal.Mark) (uint64, error)
	Mark(source string) journal.Mark
}

// Tell lets the sources write events to a journal, of a machine that is in a boot, and keep
// in a file which disks it has. It is called before Run; without it no events are told.
func (h *Host) Tell(j Journal, boot, state string) {
	for _, r := range h.runners {
		r.machine.journal, r.machine.boot, r.machine.state = j, boot, state
	}
}

// raised is the epoch of the mark of a condition that lasts.
const raised = "raised"

// condition tells that a condition of a thing begins or ends, once over restarts too: the
// mark in the journal, which goes with the record, says how it stands.
func (m *machine) condition(at time.Time, name string, holds bool, ev schemas.Event) {
	if m.journal == nil {
		return
	}
	source := ev.Type + " " + name
	mark := m.journal.Mark(source)
	if holds == (mark.Epoch == raised) {
		return
	}
	mark.Next++
	mark.Epoch, ev.State = raised, schemas.StateRaised
	if !holds {
		mark.Epoch, ev.State, ev.Severity = "cleared", schemas.StateCleared, schemas.SeverityInfo
	}
	ev.ID = schemas.EventID(m.boot, source, strconv.FormatUint(mark.Next, 10), ev.State)
	ev.Time, ev.Source = at.UTC(), schemas.SourceAgent
	b, err := json.Marshal(ev)
	if err == nil {
		_, err = m.journal.Append(target.Record{Time: at.UnixNano(), Kind: journal.KindEvent, Boot: m.boot, Data: string(b)}, source, mark)
	}
	if err != nil { // it is tried again with the next reading
		m.fault(fmt.Errorf("%s of %s cannot be told: %w", ev.Type, name, err))
	}
}

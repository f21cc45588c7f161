package schemas

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// WorkMaintenance is the kind of work of a window that names none: the record
// planned.maintenance says what it explains.
const WorkMaintenance = "maintenance"

// WorkFreeze is the kind of a window in which nothing is worked on: control starts nothing that ends what
// runs. It explains nothing, so that the bus does not hear of it.
const WorkFreeze = "freeze"

// FreezeKinds are the kinds of resources that a freeze can be declared for, beside pools.
func FreezeKinds() []string { return []string{KindSite, KindRow, KindRack, KindServer} }

// DefaultGrace is how long after its end a window waits for what it was declared for.
const DefaultGrace = 10 * time.Minute

// Maintenance is work that somebody declared: a window of time in which some
// resources, with all that is below them, may do what such work makes them do.
type Maintenance struct {
	ID string `json:"id"`
	// Resources are what is worked on, by their names.
	Resources []string `json:"resources"`
	// Pools are those whose servers are frozen, of a freeze alone.
	Pools []string `json:"pools,omitempty"`
	// Work is the kind of work: the fault record planned.WORK says what it explains; or WorkFreeze.
	Work     string    `json:"work"`
	Reason   string    `json:"reason"`
	By       string    `json:"by"`       // who declared it
	Source   string    `json:"source"`   // SourceOperator, or SourceScheduler for a reservation
	Declared time.Time `json:"declared"` // when
	From     time.Time `json:"from"`
	Until    time.Time `json:"until"`
	// GraceSeconds is how long after the end what is still out is waited for.
	GraceSeconds int        `json:"grace_seconds"`
	Ended        *time.Time `json:"ended,omitempty"` // before Until, by somebody
	EndedBy      string     `json:"ended_by,omitempty"`
	// Changed are the times at which somebody changed it, and ChangedBy who did last.
	Changed   []time.Time `json:"changed,omitempty"`
	ChangedBy string      `json:"changed_by,omitempty"`
	// State is what the window is when it is read; it is not stored.
	State string `json:"state,omitempty"`
}

// States of a window.
const (
	MaintenanceToCome = "to_come"
	MaintenanceOpen   = "open"
	MaintenanceOver   = "over"
)

// At returns the window with its state at t.
func (m Maintenance) At(t time.Time) Maintenance {
	switch {
	case m.Covers(t):
		m.State = MaintenanceOpen
	case t.Before(m.From) && t.Before(m.End()):
		m.State = MaintenanceToCome
	default:
		m.State = MaintenanceOver
	}
	return m
}

// End is when the window ends or ended.
func (m *Maintenance) End() time.Time {
	if m.Ended != nil && m.Ended.Before(m.Until) {
		return *m.Ended
	}
	return m.Until
}

// Covers reports whether the window is open at t.
func (m *Maintenance) Covers(t time.Time) bool { return !t.Before(m.From) && t.Before(m.End()) }

// Attributes of the events of a window.
const (
	attrWindow  = "window"
	attrFrom    = "from"
	attrUntil   = "until"
	attrGrace   = "grace_seconds"
	attrBy      = "by"
	attrReason  = "reason"
	attrEnd     = "end"
	attrEndedBy = "ended_by"
)

// partMark separates the id of a window from the number of a part of it, from the second on.
const partMark = "~"

// part is what events call the window after so many changes. Each change ends what it was, and
// declares what it is from then on: readers of events know of no other way.
func (m *Maintenance) part(changes int) string {
	if changes == 0 {
		return m.ID
	}
	return m.ID + partMark + strconv.Itoa(changes+1)
}

// Window is the id of the window in the API, also of one that was read from an event.
func (m *Maintenance) Window() string {
	if !strings.HasPrefix(m.ID, OperatorWindow) { // a scheduler calls its windows as it likes
		return m.ID
	}
	id, _, _ := strings.Cut(m.ID, partMark)
	return id
}

// OperatorWindow begins the ids of windows that people declared.
const OperatorWindow = "mw-"

// Revision counts the states that the window had.
func (m *Maintenance) Revision() int64 {
	n := int64(len(m.Changed)) + 1
	if m.Ended != nil {
		n++
	}
	return n
}

// Events returns what tells of the window: for each of its resources that it was
// declared, and that it was changed or ended if it was. The same window gives the same events.
func (m *Maintenance) Events() []Event {
	if m.Work == WorkFreeze {
		return nil
	}
	out := make([]Event, 0, len(m.Resources))
	since, last := m.Declared, m.part(len(m.Changed))
	if n := len(m.Changed); n > 0 {
		since = m.Changed[n-1]
	}
	for _, r := range m.Resources {
		for k, at := range m.Changed {
			out = append(out, Event{
				ID: EventID("maintenance", m.part(k), r, EventMaintenanceEnded), Time: at, Observed: at, Source: m.Source,
				Resource: r, Type: EventMaintenanceEnded, Code: m.Work, Severity: SeverityInfo,
				Message: fmt.Sprintf("maintenance window %s changed by %s", m.ID, m.ChangedBy),
				Attrs:   map[string]string{attrWindow: m.part(k), attrEnd: at.UTC().Format(time.RFC3339Nano), attrEndedBy: m.ChangedBy},
			})
		}
		ev := Event{
			ID: EventID("maintenance", last, r, EventMaintenanceDeclared), Time: since, Observed: since, Source: m.Source,
			Resource: r, Type: EventMaintenanceDeclared, Code: m.Work, Severity: SeverityInfo,
			Message: fmt.Sprintf("maintenance window %s by %s: %s", m.ID, m.By, m.Reason),
			Attrs: map[string]string{
				attrWindow: last, attrFrom: m.From.UTC().Format(time.RFC3339Nano), attrUntil: m.Until.UTC().Format(time.RFC3339Nano),
				attrGrace: strconv.Itoa(m.GraceSeconds), attrBy: m.By, attrReason: m.Reason,
			},
		}
		out = append(out, ev)
		if m.Ended == nil {
			continue
		}
		ev.ID, ev.Type = EventID("maintenance", last, r, EventMaintenanceEnded), EventMaintenanceEnded
		ev.Time, ev.Observed = *m.Ended, *m.Ended
		ev.Message = fmt.Sprintf("maintenance window %s ended by %s", m.ID, m.EndedBy)
		ev.Attrs = map[string]string{attrWindow: last, attrEnd: m.Ended.UTC().Format(time.RFC3339Nano), attrEndedBy: m.EndedBy}
		out = append(out, ev)
	}
	return out
}

// Errors of events that speak of windows.
var (
	errPosted   = errors.New("maintenance is declared over the API, not by an event that somebody posts")
	errNoWindow = errors.New("maintenance event without a window")
)

// MaintenanceOf reads a window, of one resource, back from an event of type
// [EventMaintenanceDeclared], or its id and end from one of type [EventMaintenanceEnded].
// What a caller posted is refused: who may post events may not silence any.
func MaintenanceOf(ev *Event) (m Maintenance, err error) {
	if ev.External() {
		return m, errPosted
	}
	m = Maintenance{
		ID: ev.Attr(attrWindow), Resources: []string{ev.Resource}, Work: ev.Code, Source: ev.Source, Declared: ev.Time,
		By: ev.Attr(attrBy), Reason: ev.Attr(attrReason), EndedBy: ev.Attr(attrEndedBy),
	}
	if m.ID == "" {
		return m, errNoWindow
	}
	if m.Work == "" {
		m.Work = WorkMaintenance
	}
	if ev.Type == EventMaintenanceEnded {
		end, err := time.Parse(time.RFC3339Nano, ev.Attr(attrEnd))
		m.Ended = &end
		return m, err
	}
	if m.From, err = time.Parse(time.RFC3339Nano, ev.Attr(attrFrom)); err != nil {
		return m, fmt.Errorf("from: %w", err)
	}
	if m.Until, err = time.Parse(time.RFC3339Nano, ev.Attr(attrUntil)); err != nil {
		return m, fmt.Errorf("until: %w", err)
	}
	m.GraceSeconds = int(DefaultGrace.Seconds())
	if g := ev.Attr(attrGrace); g != "" {
		if _, err := fmt.Sscan(g, &m.GraceSeconds); err != nil || m.GraceSeconds < 0 {
			return m, fmt.Errorf("grace_seconds: no number of seconds: %q", g)
		}
	}
	return m, m.Check()
}

// Bounds of windows.
const (
	MaxMaintenance = 14 * 24 * time.Hour // how long one lasts
	MaxFreeze      = 92 * 24 * time.Hour // and a freeze
	MaxGrace       = 24 * time.Hour
)

// Check reports the first thing about the times of a window that cannot be.
func (m *Maintenance) Check() error {
	most := MaxMaintenance
	if m.Work == WorkFreeze {
		most = MaxFreeze
	}
	switch {
	case m.From.IsZero() || m.Until.IsZero():
		return errors.New("a window has a from and an until")
	case !m.Until.After(m.From):
		return fmt.Errorf("until %s is not after from %s", m.Until.UTC().Format(time.RFC3339), m.From.UTC().Format(time.RFC3339))
	case m.Until.Sub(m.From) > most:
		return fmt.Errorf("it lasts %s; a window lasts at most %s", m.Until.Sub(m.From), most)
	case m.GraceSeconds < 0 || time.Duration(m.GraceSeconds)*time.Second > MaxGrace:
		return fmt.Errorf("grace_seconds is %d; want 0 to %.0f", m.GraceSeconds, MaxGrace.Seconds())
	}
	return nil
}

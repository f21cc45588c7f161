// Package redfishevent decodes Redfish log entries and event messages (DMTF
// DSP8010: LogEntry, Event) into events.
package redfishevent

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"auspex/internal/decode/sel"
	"auspex/schemas"
	"auspex/schemas/faults"
)

// Entry is a LogEntry or a member of an Event's list; both have these properties.
type Entry struct {
	ID           string          `json:"Id"`
	EventID      string          `json:"EventId"`
	MemberID     string          `json:"MemberId"`
	Created      string          `json:"Created"`
	Timestamp    string          `json:"EventTimestamp"`
	MessageID    string          `json:"MessageId"`
	Message      string          `json:"Message"`
	Args         []any           `json:"MessageArgs"`
	Severity     string          `json:"Severity"`
	MsgSeverity  string          `json:"MessageSeverity"`
	EntryType    string          `json:"EntryType"`
	EntryCode    string          `json:"EntryCode"`
	SensorType   string          `json:"SensorType"`
	SensorNumber *int            `json:"SensorNumber"`
	ODataID      string          `json:"@odata.id"`
	Name         string          `json:"Name"`
	CPER         json.RawMessage `json:"CPER"`
	Origin       json.RawMessage `json:"OriginOfCondition"`
	Oem          struct {
		Lenovo struct {
			CommonEventID string `json:"CommonEventID"` // "FQXSPPW0008I"
		} `json:"Lenovo"`
	} `json:"Oem"`
	Links struct {
		Origin json.RawMessage `json:"OriginOfCondition"`
	} `json:"Links"`
}

// ErrNoEntry marks a body without an entry.
var ErrNoEntry = errors.New("body holds no event and no log entry")

// Parse reads a JSON body: an Event with its list, a collection of log entries, an
// array, or one entry. With an error come the entries that are good.
func Parse(body []byte) ([]Entry, error) {
	body = trimSpace(body)
	if len(body) > 0 && body[0] == '[' {
		var list []json.RawMessage
		if err := json.Unmarshal(body, &list); err != nil {
			return nil, fmt.Errorf("parse Redfish array: %w", err)
		}
		var out []Entry
		var bad error
		for i, raw := range list {
			e, err := Parse(raw)
			if err != nil && !errors.Is(err, ErrNoEntry) {
				bad = cmp.Or(bad, fmt.Errorf("element %d: %w", i, err))
			}
			out = append(out, e...)
		}
		return out, bad
	}
	var doc struct {
		Events  []json.RawMessage `json:"Events"`
		Members []json.RawMessage `json:"Members"`
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return nil, fmt.Errorf("parse Redfish body: %w", err)
	}
	list := doc.Events
	if list == nil {
		list = doc.Members
	}
	if list != nil {
		out := make([]Entry, 0, len(list))
		var bad error // the first one; the others are good or bad for themselves
		for i, raw := range list {
			e, err := one(raw)
			if err != nil {
				bad = cmp.Or(bad, fmt.Errorf("entry %d: %w", i, err))
				continue
			}
			if e.says() { // else a link to an entry
				out = append(out, e)
			}
		}
		return out, bad
	}
	e, err := one(body)
	if err != nil {
		return nil, err
	}
	if !e.says() {
		return nil, ErrNoEntry
	}
	return []Entry{e}, nil
}

// says reports whether an entry says anything. Records of faults (CPER) have neither message nor message id.
func (e *Entry) says() bool {
	return e.MessageID != "" || e.Message != "" || e.Created != "" && (len(e.CPER) > 0 || e.EntryCode != "" || e.Name != "")
}

// record is what a record of a fault says, and how bad it is (UEFI, appendix N; DSP0268, LogEntry, CPER), "" where there is
// none. Makers put what they know of it below Oem.
func (e *Entry) record() (text, severity string) {
	var cper map[string]any
	if len(e.CPER) == 0 || json.Unmarshal(e.CPER, &cper) != nil {
		return "", ""
	}
	found := make(map[string]string)
	var walk func(map[string]any)
	walk = func(m map[string]any) {
		for k, v := range m {
			switch v := v.(type) {
			case string:
				found[k] = v
			case map[string]any:
				walk(v)
			}
		}
	}
	walk(cper)
	var out []string
	for _, k := range []string{"NotificationType", "SectionType", "NvIpSignature", "Severity", "NvSeverity", "NvSocketNumber"} {
		if found[k] != "" {
			out = append(out, k+" "+found[k])
		}
	}
	return strings.TrimSuffix("CPER: "+strings.Join(out, ", "), ": "), found["Severity"]
}

func trimSpace(b []byte) []byte { return []byte(strings.TrimSpace(string(b))) }

// one reads an entry; a property of the wrong type, which firmware does send,
// loses that property only.
func one(raw json.RawMessage) (Entry, error) {
	var e Entry
	if err := json.Unmarshal(raw, &e); err == nil {
		return e, nil
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(raw, &m); err != nil {
		return e, fmt.Errorf("parse Redfish entry: %w", err)
	}
	e = Entry{}
	for k, v := range m {
		piece, err := json.Marshal(map[string]json.RawMessage{k: v})
		if err != nil {
			continue
		}
		_ = json.Unmarshal(piece, &e)
	}
	return e, nil
}

// Key names the entry within its log: its URI's last part, Id or event id.
func (e *Entry) Key() string {
	for _, s := range []string{e.ID, e.EventID, e.MemberID, e.ODataID} {
		if s != "" {
			return s
		}
	}
	return ""
}

// Time returns when the entry was made, on the BMC's clock; zero when it does not say.
func (e *Entry) Time() time.Time {
	for _, s := range []string{e.Timestamp, e.Created} {
		for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05Z0700", "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05"} {
			if t, err := time.Parse(layout, s); err == nil {
				return t.UTC()
			}
		}
	}
	return time.Time{}
}

func (e *Entry) origin() string {
	for _, raw := range []json.RawMessage{e.Origin, e.Links.Origin} {
		var link struct {
			ID string `json:"@odata.id"`
		}
		var s string
		switch {
		case len(raw) == 0:
		case json.Unmarshal(raw, &link) == nil && link.ID != "":
			return link.ID
		case json.Unmarshal(raw, &s) == nil && s != "":
			return s
		}
	}
	return ""
}

// Event says what the entry means. Resource, ID and Observed are the caller's to set.
func (e *Entry) Event() schemas.Event {
	entry := faults.RedfishMessage(e.MessageID)
	record, bad := e.record()
	ev := schemas.Event{
		Time: e.Time(), Source: schemas.SourceRedfish, Type: entry.EventType, Code: e.MessageID, Severity: entry.Severity, State: entry.State,
		Message: cmp.Or(e.Message, entry.Meaning, e.MessageID, record, e.EntryCode, e.Name),
	}
	if ev.Code == "" {
		ev.Code = cmp.Or(e.Oem.Lenovo.CommonEventID, e.EntryCode)
	}
	if !entry.Known {
		ev.Severity = severity(e.MsgSeverity, e.Severity, bad)
	}
	args := make([]string, 0, len(e.Args))
	for _, a := range e.Args {
		if a == nil {
			a = ""
		}
		args = append(args, fmt.Sprint(a))
	}
	sensor := ""
	if len(args) > 0 {
		sensor = args[0]
		ev.SetAttr("args", strings.Join(args, ";"))
	}
	if o := e.origin(); o != "" {
		ev.SetAttr("origin", o)
		if _, err := strconv.Atoi(sensor); err == nil || sensor == "" { // a bare number names no part
			sensor = cmp.Or(o[strings.LastIndexByte(o, '/')+1:], sensor)
		}
	}
	if sensor != "" {
		ev.SetAttr("sensor", sensor)
	}
	if k := e.Key(); k != "" {
		ev.SetAttr("record", k)
	}
	if e.SensorNumber != nil {
		ev.SetAttr("sensor_number", strconv.Itoa(*e.SensorNumber))
	}
	if !entry.Known {
		e.platform(&ev)
	}
	e.refine(&ev, sensor)
	if xid := xidOf(e.MessageID+" "+e.Message, args); xid >= 0 {
		x := faults.XID(xid)
		ev.Type, ev.Code, ev.Severity, ev.State = schemas.EventGPUXID, strconv.Itoa(xid), x.Severity, ""
		ev.SetAttr("message_id", e.MessageID)
		ev.SetAttr("action", x.Action)
	}
	if ev.Attr("action") == "" {
		ev.SetAttr("action", action(&ev))
	}
	return ev
}

// platform reads the id of an XClarity event, which is that of the IPMI event behind it: 80 or 81 for the direction, event type,
// offset and sensor type, each a byte, then the entity (IPMI 2.0, table 29-6 and section 42). Ids of another form say nothing.
func (e *Entry) platform(ev *schemas.Event) {
	id, ok := strings.CutPrefix(e.EventID, "0x8")
	if !ok || len(id) < 7 || id[0] != '0' && id[0] != '1' {
		return
	}
	n, err := strconv.ParseUint(id[1:7], 16, 32)
	if err != nil {
		return
	}
	x := faults.SEL(byte(n), byte(n>>16), byte(n>>8))
	if !x.Known || x.EventType == schemas.EventBMCSEL || x.EventType == "" {
		return
	}
	ev.Type, ev.Severity = x.EventType, x.Severity
	if lasting(x.EventType) {
		ev.State = schemas.StateRaised
	}
	if id[0] == '1' {
		ev.Severity = schemas.SeverityInfo
		if ev.State != "" {
			ev.State = schemas.StateCleared
		} else {
			ev.Type = schemas.EventBMCEvent // that something which has happened is no longer so is news of nothing
		}
	}
}

// lasting reports whether a type of event is a state that ends.
func lasting(typ string) bool {
	switch kind, _, _ := strings.Cut(typ, "."); kind {
	case "psu", "fan", "temp", "voltage", "disk":
		return true
	}
	return typ == schemas.EventDIMMECCUE
}

// refine narrows threshold messages, which are the same for every sensor, by
// the sensor that they name.
func (e *Entry) refine(ev *schemas.Event, sensor string) {
	if ev.Type == schemas.EventTempHigh && sel.Inlet(sensor) {
		ev.Type = schemas.EventTempInletHigh
	}
	if ev.Type != schemas.EventBMCEvent {
		return
	}
	key := strings.ToLower(e.MessageID[strings.LastIndexByte(e.MessageID, '.')+1:])
	if !strings.Contains(key, "threshold") {
		return
	}
	low := strings.Contains(key, "low")
	name := strings.ToLower(sensor + " " + e.origin())
	switch {
	case strings.Contains(name, "temp") && !low && sel.Inlet(sensor):
		ev.Type = schemas.EventTempInletHigh
	case strings.Contains(name, "temp") && !low:
		ev.Type = schemas.EventTempHigh
	case strings.Contains(name, "fan") && low && ev.Severity == schemas.SeverityWarning:
		ev.Type = schemas.EventFanSlow
	case strings.Contains(name, "fan") && low && ev.Severity.Rank() >= schemas.SeverityError.Rank():
		ev.Type = schemas.EventFanFailure
	case strings.Contains(name, "fan") && low && ev.State == schemas.StateCleared && strings.Contains(key, "critical"):
		ev.Type = schemas.EventFanFailure
	case strings.Contains(name, "fan") && low && ev.State == schemas.StateCleared:
		ev.Type = schemas.EventFanSlow
	case strings.Contains(name, "volt"):
		ev.Type = schemas.EventVoltageOutOfRange
	}
}

func severity(values ...string) schemas.Severity {
	for _, s := range values {
		switch strings.ToLower(s) {
		case "ok", "informational", "info", "corrected":
			return schemas.SeverityInfo
		case "warning", "caution":
			return schemas.SeverityWarning
		case "recoverable":
			return schemas.SeverityError
		case "critical", "fatal":
			return schemas.SeverityCritical
		}
	}
	return schemas.SeverityWarning
}

func action(ev *schemas.Event) string {
	switch {
	case ev.Severity == schemas.SeverityInfo:
		return faults.ActionIgnore
	case ev.Type == schemas.EventPSUInputLost:
		return faults.ActionCheckMechanicals
	}
	return faults.ActionContactSupport
}

// xidOf finds "XID 79" or "Xid: 79" in what a GPU's own log says, or -1.
func xidOf(text string, args []string) int {
	for _, s := range append([]string{text}, args...) {
		low := strings.ToLower(s)
		for i := strings.Index(low, "xid"); i >= 0; {
			if i > 0 && low[i-1] >= 'a' && low[i-1] <= 'z' {
				break // "sxid", "proxid"
			}
			rest := strings.TrimLeft(low[i+3:], " :=#_")
			end := 0
			for end < len(rest) && rest[end] >= '0' && rest[end] <= '9' {
				end++
			}
			if end > 0 && end <= 4 {
				n, _ := strconv.Atoi(rest[:end])
				return n
			}
			next := strings.Index(low[i+3:], "xid")
			if next < 0 {
				break
			}
			i += 3 + next
		}
	}
	return -1
}

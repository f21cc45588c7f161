package schemas

import (
	"encoding/hex"
	"hash"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Severity is how bad an event is, in four steps.
type Severity string

// The severities, from harmless to worst. A peer that wants low, medium, high
// and critical gets them in this order.
const (
	SeverityInfo     Severity = "info"
	SeverityWarning  Severity = "warning"
	SeverityError    Severity = "error"
	SeverityCritical Severity = "critical"
)

// Rank orders severities: 0 info, 1 warning, 2 error, 3 critical; -1 is unknown.
func (s Severity) Rank() int {
	switch s {
	case SeverityInfo:
		return 0
	case SeverityWarning:
		return 1
	case SeverityError:
		return 2
	case SeverityCritical:
		return 3
	}
	return -1
}

// Priority is the severity for peers that know low, medium, high and critical; an
// unknown one gives "".
func (s Severity) Priority() string {
	switch s {
	case SeverityInfo:
		return "low"
	case SeverityWarning:
		return "medium"
	case SeverityError:
		return "high"
	case SeverityCritical:
		return "critical"
	}
	return ""
}

// States of a condition that ends. An event without a state is a moment.
const (
	StateRaised  = "raised"
	StateCleared = "cleared"
)

// Sources of events: who saw it, not where it happened.
const (
	SourceKmsg      = "kmsg"
	SourceDCGM      = "dcgm"
	SourceNVML      = "nvml"
	SourceIPMI      = "ipmi"
	SourceRedfish   = "redfish"
	SourceGNMI      = "gnmi"
	SourceSNMP      = "snmp"
	SourceAgent     = "agent"
	SourceScheduler = "scheduler"
	SourceRule      = "rule"
	SourcePredict   = "predict"
	SourceControl   = "control" // what it found when it read how something is set
	SourceCollector = "collector"
	SourceOperator  = "operator" // what somebody with the right to do so declared
	SourceAPI       = "api"      // posted by a caller, who may be anybody with a token
)

// AttrExternal marks, as "true", an event or alert that a caller posted. Whatever it
// says of a part, none of our own collectors has seen it.
const AttrExternal = "external"

// Attributes of what a caller posted: who it was, all of what was posted beside the fields of an
// event (JSON), and, as "true", that an alert is wanted whatever the severity.
const (
	AttrPostedBy = "posted_by"
	AttrPosted   = "posted"
	AttrAlert    = "alert"
)

// AttrGrew names, separated by blanks, the metrics of which a rule says no more than that one
// has grown within its window: it fires until the window has passed, whatever is true by then.
const AttrGrew = "grew"

// AttrClockSkew says by how many seconds a device's clock is estimated to be ahead of ours; negative is behind.
const AttrClockSkew = "clock_skew_s"

// AttrPods names pods of Kubernetes: of a workload, those that run, by their names with commas
// between; of [EventWorkloadDevices], the pods of a server that hold GPUs, as
// namespace/name=0+1,namespace/name=3, with the numbers of the GPUs there.
const AttrPods = "pods"

// External reports whether an event was posted by a caller.
func (e *Event) External() bool { return e.Source == SourceAPI || e.Attrs[AttrExternal] != "" }

// Event says that something happened to a resource. Its JSON form is a line of
// events.jsonl (formats, section 2).
type Event struct {
	ID       string            `json:"id"`
	Time     time.Time         `json:"time"`     // the device's clock; may be wrong
	Observed time.Time         `json:"observed"` // the collector's clock
	Source   string            `json:"source"`
	Resource string            `json:"resource"` // an inventory id, a workload's id, or the device before enrichment
	Type     string            `json:"type"`
	Code     string            `json:"code,omitempty"`
	Severity Severity          `json:"severity"`
	State    string            `json:"state,omitempty"`
	Message  string            `json:"message,omitempty"`
	Attrs    map[string]string `json:"attrs,omitempty"`
}

// Attr returns the named attribute, or "".
func (e *Event) Attr(key string) string { return e.Attrs[key] }

// SetAttr sets an attribute and makes the map when there is none.
func (e *Event) SetAttr(key, value string) {
	if e.Attrs == nil {
		e.Attrs = make(map[string]string, 4)
	}
	e.Attrs[key] = value
}

// EventID hashes what makes an event itself: the device, the epoch of its log
// (boot id, SEL erase time), the record's id and its content. Reading the same
// record again, also after a crash, gives the same 16 hexadecimal digits.
func EventID(device, epoch, record string, content ...string) string {
	var h hash.Hash64 = xxhash.New()
	for _, s := range append([]string{device, epoch, record}, content...) {
		_, _ = h.Write([]byte(s))
		_, _ = h.Write([]byte{0xff})
	}
	return hex.EncodeToString(h.Sum(nil))
}

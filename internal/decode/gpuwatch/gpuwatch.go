// Package gpuwatch makes events of what differs between two readings of the GPUs of a
// server: one that is gone, clocks that hardware holds down, an uncorrectable error.
package gpuwatch

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"auspex/schemas"
	"auspex/schemas/faults"
)

// Watch compares the readings of one server's GPUs. What was raised and what the counters
// were must outlive a restart ([Watch.MarshalText]), so that it is cleared and not told anew.
// It is not safe for concurrent use.
type Watch struct {
	Device string // the server; ids of events are made with it
	Source string // of the events, as [schemas.SourceDCGM]
	After  int    // readings in a row without a GPU until it is missing
	Unread string // what is said of a GPU that is missing, with one %d for the readings
	XIDs   bool   // the gauge of the last XID makes events
	// Patience is how long a GPU may be out of its NVLink fabric; 0 is [FabricPatience].
	Patience time.Duration
	Emit     func(schemas.Event)

	gpus    map[uint32]*known
	server  known // what befell all of them
	changed bool
}

// known is what is remembered of a GPU.
type known struct {
	UUID   string            `json:"uuid,omitempty"`
	PCI    string            `json:"pci,omitempty"`
	Raised map[string]string `json:"raised,omitempty"` // condition → its name in event ids
	// DBE and XID are the last values; nil where there was none. The first is what
	// was there before anybody looked, and no event of now.
	DBE    *float64          `json:"dbe,omitempty"`
	XID    *float64          `json:"xid,omitempty"`
	XIDs   int               `json:"xids,omitempty"`   // events made, names them
	Counts map[string]uint64 `json:"counts,omitempty"` // see Counted
	Member bool              `json:"member,omitempty"` // it was in its NVLink fabric
	Apart  time.Time         `json:"apart,omitzero"`   // since when it is not; zero is that it is, or never was
	Fabric string            `json:"fabric,omitempty"` // what is told of it
	misses int
}

type memory struct {
	GPUs   map[uint32]*known `json:"gpus"`
	Server known             `json:"server,omitzero"`
}

// MarshalText writes what must outlive a restart.
func (w *Watch) MarshalText() ([]byte, error) { return json.Marshal(memory{w.gpus, w.server}) }

// UnmarshalText reads what MarshalText wrote, and forgets what was known. Nothing is a
// watch that has seen nothing; after an error it is that too.
func (w *Watch) UnmarshalText(text []byte) error {
	w.gpus, w.server, w.changed = map[uint32]*known{}, known{}, false
	if len(text) == 0 {
		return nil
	}
	var m memory
	if err := json.Unmarshal(text, &m); err != nil {
		return fmt.Errorf("read what is known of GPUs: %w", err)
	}
	w.server = m.Server
	for index, k := range m.GPUs {
		if k == nil {
			k = &known{}
		}
		w.gpus[index] = k
	}
	return nil
}

// Changed reports whether there is something to keep.
func (w *Watch) Changed() bool { return w.changed }

// Kept says that it has been kept.
func (w *Watch) Kept() { w.changed = false }

// Expect says that GPUs of the indexes below n should be there.
func (w *Watch) Expect(n int) {
	for i := range uint32(max(0, n)) {
		w.at(i)
	}
}

func (w *Watch) at(index uint32) *known {
	if w.gpus == nil {
		w.gpus = map[uint32]*known{}
	}
	k := w.gpus[index]
	if k == nil {
		k = &known{}
		w.gpus[index], w.changed = k, true
	}
	return k
}

// Board is which GPU has an index; empty is not known.
type Board struct{ UUID, PCI string }

// Boards returns the GPUs that are known or expected, by their index.
func (w *Watch) Boards() map[uint32]Board {
	out := make(map[uint32]Board, len(w.gpus))
	for i, k := range w.gpus {
		out[i] = Board{k.UUID, k.PCI}
	}
	return out
}

// PCI writes an address on the PCI bus as the kernel does: NVIDIA's has a domain of eight
// digits, and capitals.
func PCI(s string) string {
	s = strings.ToLower(s)
	if d, rest, ok := strings.Cut(s, ":"); ok && len(d) == 8 && strings.HasPrefix(d, "0000") {
		return d[4:] + ":" + rest
	}
	return s
}

// Name says which board has an index. Empty is not known, and forgets what was.
func (w *Watch) Name(index uint32, uuid, pci string) {
	k := w.at(index)
	if k.UUID == uuid && k.PCI == pci {
		return
	}
	if k.UUID != "" && uuid != "" && k.UUID != uuid { // another board is in its place
		k.DBE, k.XID, k.Counts, k.Member, k.Apart = nil, nil, nil, false, time.Time{}
	}
	k.UUID, k.PCI, w.changed = uuid, pci, true
}

// The codes of a GPU that is missing: it is silent, or its driver says that it is gone.
const (
	Stale = "STALE"
	Lost  = "GPU_IS_LOST"
)

// Answers says that a GPU was read.
func (w *Watch) Answers(now time.Time, index uint32) {
	k := w.at(index)
	k.misses = 0
	for _, code := range []string{Stale, Lost} {
		w.condition(now, index, k, schemas.EventGPUMissing, code, schemas.SeverityError, false, "GPU answers again", faults.ActionIgnore)
	}
}

// Misses says that a GPU was not read though it was asked.
func (w *Watch) Misses(now time.Time, index uint32, code string) {
	k := w.at(index)
	if k.misses++; k.misses >= w.After {
		w.condition(now, index, k, schemas.EventGPUMissing, code, schemas.SeverityError, true, fmt.Sprintf(w.Unread, k.misses), faults.ActionResetGPU)
	}
}

// Stalled says whether a call of the driver has not returned.
func (w *Watch) Stalled(now time.Time, index uint32, on bool, message string) {
	w.condition(now, index, w.at(index), schemas.EventGPUStalled, "CALL", schemas.SeverityError, on, message, faults.ActionResetGPU)
}

// Driver says whether the driver as a whole does not answer.
func (w *Watch) Driver(now time.Time, on bool, message string) {
	w.condition(now, 0, &w.server, schemas.EventServiceFailed, "nvidia-driver", schemas.SeverityError, on, message, faults.ActionRestartHost)
}

// reason is a bit of NVML's clocks event reasons (nvml.h; DCGM_FI_DEV_CLOCKS_EVENT_REASONS
// is the same) that says that hardware, not policy, holds the clocks down.
type reason struct {
	bit  uint64
	name string
}

var reasons = []reason{
	{0x40, "HW_THERMAL_SLOWDOWN"},
	{0x80, "HW_POWER_BRAKE"},
}

// Reading is what is compared of a GPU; NaN is not read.
type Reading struct {
	Reasons float64 // why its clocks are what they are, a set of bits
	Pending float64 // more than 0: row remapping waits for a reset
	DBE     float64 // uncorrected errors since the driver was loaded
	XID     float64 // the last one; 0 is none
}

// Reads compares a reading with the one before.
func (w *Watch) Reads(now time.Time, index uint32, r Reading) {
	k := w.at(index)
	if v := r.Reasons; v >= 0 && v < 1<<53 {
		for _, r := range reasons {
			w.condition(now, index, k, schemas.EventGPUClocksThrottled, r.name, schemas.SeverityWarning, uint64(v)&r.bit != 0,
				fmt.Sprintf("clocks event reasons %#016x: %s", uint64(v), r.name), faults.ActionCheckMechanicals)
		}
	}
	if !math.IsNaN(r.Pending) {
		w.condition(
			now, index, k, schemas.EventGPURowRemap, "pending", schemas.SeverityWarning, r.Pending > 0, "row remapping waits for a reset",
			faults.ActionResetGPU,
		)
	}
	if v := r.DBE; !math.IsNaN(v) && (k.DBE == nil || v != *k.DBE) {
		if k.DBE != nil && v > *k.DBE {
			ev := w.event(now, index, k, schemas.EventGPUECCUE, "DRAM", schemas.SeverityCritical, faults.ActionResetGPU)
			ev.Message = fmt.Sprintf("volatile uncorrected errors: %g to %g", *k.DBE, v)
			ev.ID = schemas.EventID(w.Device, k.UUID, "dbe", strconv.FormatFloat(v, 'g', -1, 64), now.UTC().Format("2006-01-02T15"))
			w.Emit(ev)
		}
		k.DBE, w.changed = &v, true
	}
	if v := r.XID; !math.IsNaN(v) && (k.XID == nil || v != *k.XID) {
		if code := int(v); w.XIDs && k.XID != nil && code > 0 && code < 100000 {
			w.XID(now, index, code, fmt.Sprintf("the last XID is now %d, was %g (DCGM_FI_DEV_XID_ERRORS)", code, *k.XID))
		}
		k.XID, w.changed = &v, true
	}
}

// XID tells of an XID that somebody else than the kernel's log has seen.
func (w *Watch) XID(now time.Time, index uint32, code int, message string) {
	k := w.at(index)
	k.XIDs++
	w.changed = true
	e := faults.XID(code)
	ev := w.event(now, index, k, schemas.EventGPUXID, strconv.Itoa(code), e.Severity, e.Action)
	ev.Message = message
	ev.ID = schemas.EventID(w.Device, k.UUID, "xid", strconv.Itoa(code), strconv.Itoa(k.XIDs))
	w.Emit(ev)
}

// Condition says whether something holds of a GPU that begins and ends: its begin and its end are told, of each type once at
// a time.
func (w *Watch) Condition(now time.Time, index uint32, typ, code string, s schemas.Severity, on bool, message, action string) {
	w.conditionOf(now, index, w.at(index), typ, typ, code, s, on, message, action)
}

// ServerCondition is Condition of what befalls no GPU.
func (w *Watch) ServerCondition(now time.Time, typ, code string, s schemas.Severity, on bool, message, action string) {
	w.conditionOf(now, 0, &w.server, typ, typ, code, s, on, message, action)
}

// Holds returns the types of the conditions of a GPU that [Watch.Condition] has begun.
func (w *Watch) Holds(index uint32) []string { return held(w.at(index)) }

// ServerHolds returns those of [Watch.ServerCondition].
func (w *Watch) ServerHolds() []string { return held(&w.server) }

func held(k *known) []string { return slices.Sorted(maps.Keys(k.Raised)) }

// Counted takes the value of a counter of a GPU, and says whether it has grown, and from what. The first value is what was
// there before anybody looked, unless somebody has looked for long enough to know that there was none.
func (w *Watch) Counted(index uint32, counter string, value uint64, looked bool) (from uint64, grew bool) {
	k := w.at(index)
	from, known := k.Counts[counter]
	if !known || value != from {
		if k.Counts == nil {
			k.Counts = map[string]uint64{}
		}
		k.Counts[counter], w.changed = value, true
	}
	return from, value > from && (known || looked)
}

// Moment tells what befell a GPU at a time, and is over; detail tells it from others like it.
func (w *Watch) Moment(at time.Time, index uint32, typ, code string, s schemas.Severity, message, action, detail string) {
	k := w.at(index)
	ev := w.event(at, index, k, typ, code, s, action)
	ev.Message = message
	ev.ID = schemas.EventID(w.Device, k.UUID, w.Source, typ, code, detail, strconv.FormatInt(at.UnixNano(), 10))
	w.Emit(ev)
}

func (w *Watch) event(now time.Time, index uint32, k *known, typ, code string, s schemas.Severity, action string) schemas.Event {
	ev := schemas.Event{
		Time: now.UTC(), Observed: now.UTC(), Source: w.Source, Resource: w.Device, Type: typ, Code: code, Severity: s,
	}
	if k != &w.server {
		ev.SetAttr("gpu", strconv.FormatUint(uint64(index), 10))
		ev.SetAttr("part", "gpu"+strconv.FormatUint(uint64(index), 10))
	}
	if k.UUID != "" {
		ev.SetAttr("uuid", k.UUID)
	}
	if k.PCI != "" {
		ev.SetAttr("pci", k.PCI)
	}
	ev.SetAttr("action", action)
	return ev
}

// condition tells the edges of something that begins and ends.
func (w *Watch) condition(now time.Time, index uint32, k *known, typ, code string, s schemas.Severity, on bool, message, action string) {
	w.conditionOf(now, index, k, typ+"/"+code, typ, code, s, on, message, action)
}

func (w *Watch) conditionOf(now time.Time, index uint32, k *known, key, typ, code string, s schemas.Severity, on bool, message, action string) {
	since, was := k.Raised[key]
	if on == was {
		return
	}
	ev := w.event(now, index, k, typ, code, s, action)
	ev.Message, ev.State = message, schemas.StateRaised
	if on {
		if k.Raised == nil {
			k.Raised = map[string]string{}
		}
		since = strconv.FormatInt(now.UnixNano(), 10)
		k.Raised[key] = since
	} else {
		delete(k.Raised, key)
		ev.Severity, ev.State = schemas.SeverityInfo, schemas.StateCleared
		ev.SetAttr("action", faults.ActionIgnore)
		if typ == schemas.EventGPUClocksThrottled || typ == schemas.EventGPURowRemap {
			ev.Message = strings.TrimSuffix(message, "; ended") + "; ended"
		}
	}
	name := "server"
	if k != &w.server {
		name = "gpu" + strconv.FormatUint(uint64(index), 10)
	}
	ev.ID = schemas.EventID(w.Device, since, name, key, ev.State)
	w.Emit(ev)
	w.changed = true
}

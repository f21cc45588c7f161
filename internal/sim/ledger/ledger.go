// Package ledger writes down everything that the simulated fleet did and said.
// It is the truth that tests hold against what the product stored.
package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"auspex/internal/sim/appendfile"
)

// Kinds of entries.
const (
	KindFault    = "fault"    // a fault begins or ends; Type is "begin" or "end"
	KindRecord   = "record"   // a record of an event log, as one protocol shows it
	KindReset    = "reset"    // a BMC took a request to change the power; Type is "accepted" or "ignored"
	KindUpdate   = "update"   // a BMC took an image to install; Code is part and version
	KindLimit    = "limit"    // a board controller took a power limit; Code is it, Type as of a reset
	KindTrip     = "trip"     // the breaker of a PDU opened; Value is what it carried, Limit what it is rated for, in watts
	KindOutlet   = "outlet"   // a PDU took a request to switch an outlet; Code is the state, Type as of a reset
	KindAct      = "act"      // the tools of a node agent were asked for Code, an act; Type is "begun", "done" or "failed"
	KindInstall  = "install"  // an installation, Code is its workflow; Type is "netbooted", "passed", "unbootable", "begun", "done" or "failed"
	KindPower    = "power"    // the power state changed; Code is the new state
	KindCrossing = "crossing" // a value crossed its limit; Type is "expected" or "crossed"
	KindJob      = "job"      // a job changed its state; Code is the state
	KindState    = "state"    // a port or a supply of a switch changed; Code is the state
	KindNode     = "node"     // the scheduler changed a node; Code is its state, Message the reason
)

// Entry is one line of the ledger.
type Entry struct {
	Time      time.Time  `json:"time"` // the simulator's clock, which is right
	Kind      string     `json:"kind"`
	Device    string     `json:"device,omitempty"`
	Part      string     `json:"part,omitempty"`
	Protocol  string     `json:"protocol,omitempty"` // ipmi, redfish, kmsg, slurm, gnmi
	Record    uint64     `json:"record,omitempty"`   // SEL record id or kernel sequence number
	Epoch     string     `json:"epoch,omitempty"`    // boot id, or the time at which the SEL was erased
	Type      string     `json:"type,omitempty"`
	Code      string     `json:"code,omitempty"`
	Message   string     `json:"message,omitempty"`
	RequestID string     `json:"request_id,omitempty"`
	Targets   []string   `json:"targets,omitempty"`
	At        *time.Time `json:"at,omitempty"`    // of a crossing that is expected
	Limit     float64    `json:"limit,omitempty"` // of a crossing
	Value     float64    `json:"value,omitempty"` // of a crossing
}

// Writer appends entries to a file. Its methods may be called at the same time.
type Writer struct {
	mu      sync.Mutex
	file    *appendfile.File
	err     error
	onEntry func(Entry)
}

// room is how much waits for room on a full disk: some 200,000 entries.
const room = 64 << 20

// Open opens the file for appending and makes it where there is none. Tell, if
// not nil, is called with each entry and must return soon.
func Open(path string, onEntry func(Entry)) (*Writer, error) {
	if _, err := appendfile.Mend(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("mend ledger: %w", err)
	}
	f := appendfile.New(room, func() (*os.File, error) { return os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) })
	if err := f.Open(); err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	return &Writer{file: f, onEntry: onEntry}, nil
}

// Discard returns a writer that stores nothing and only calls tell.
func Discard(onEntry func(Entry)) *Writer { return &Writer{onEntry: onEntry} }

// Write appends one entry; it is in the file when Write returns, unless the disk
// is full. The first error is kept for [Writer.Err].
func (w *Writer) Write(e Entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e.Time = e.Time.UTC()
	if w.file != nil {
		line, err := json.Marshal(e)
		if err == nil {
			_, err = w.file.Write(append(line, '\n'))
		}
		if err != nil && w.err == nil {
			w.err = fmt.Errorf("write ledger: %w", err)
		}
	}
	if w.onEntry != nil {
		w.onEntry(e)
	}
}

// Flush writes the entries that a full disk has kept out, and returns how many
// bytes of them wait on and how many entries are lost.
func (w *Writer) Flush() (waiting int, lost uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file == nil {
		return 0, 0
	}
	if err := w.file.Flush(); err != nil && w.err == nil {
		w.err = fmt.Errorf("write ledger: %w", err)
	}
	return w.file.Waiting()
}

// Err returns the first error of writing, if there was one.
func (w *Writer) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Close closes the file.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file == nil {
		return nil
	}
	f := w.file
	w.file = nil
	return f.Close()
}

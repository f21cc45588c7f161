// Package acts does what control asks of a server: resets and tests of GPUs, reloads of their
// driver, reboots. Each act has the id that who asks gives it and is done at most once, over a
// kill of the agent too: what was begun is written to the disk before it begins.
package acts

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"auspex/internal/datafile"
)

// Outcome is what became of an act.
type Outcome string

// The outcomes. Unknown is an act during which the agent ended: it may have been done.
const (
	Running Outcome = "running"
	Done    Outcome = "done"
	Failed  Outcome = "failed"
	Unknown Outcome = "unknown"
)

// Act is something that was asked.
type Act struct {
	ID      string    `json:"id"`
	Kind    string    `json:"kind"`
	GPUs    []uint32  `json:"gpus,omitempty"`
	Level   int       `json:"level,omitempty"` // of a validation
	By      string    `json:"by"`              // who asked
	Boot    string    `json:"boot"`
	Began   time.Time `json:"began"`
	Ended   time.Time `json:"ended,omitzero"`
	Outcome Outcome   `json:"outcome"`
	Message string    `json:"message,omitempty"`
	Away    *Away     `json:"away,omitempty"` // what it took away and has not brought back
}

// Away is what a reload of the driver takes away for a while, in the order in which it goes.
type Away struct {
	Units   []string `json:"units,omitempty"`
	Modules []string `json:"modules,omitempty"`
}

// same reports whether two acts ask for the same.
func (a *Act) same(b *Act) bool {
	return a.Kind == b.Kind && a.Level == b.Level && slices.Equal(a.GPUs, b.GPUs)
}

// maxActs is how many are remembered.
const maxActs = 512

// Ledger remembers acts on disk. It is for use by several goroutines.
type Ledger struct {
	path string

	mu   sync.Mutex
	acts []Act // in order of their begin
}

// OpenLedger reads a ledger, or makes it. An act that was running is unknown; a reboot is
// done if the machine's boot is another now.
func OpenLedger(path, boot string) (*Ledger, error) {
	l := &Ledger{path: path}
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return l, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &l.acts)
	}
	if err != nil {
		return nil, fmt.Errorf("what was done before cannot be read: %w", err)
	}
	changed := false
	for i := range l.acts {
		a := &l.acts[i]
		if a.Outcome != Running {
			continue
		}
		changed = true
		a.Outcome, a.Message, a.Ended = Unknown, "the agent ended while it ran", time.Now().UTC()
		if a.Kind == KindReboot && a.Boot != boot {
			a.Outcome, a.Message = Done, "the server has started anew"
		}
	}
	if changed {
		err = l.save()
	}
	return l, err
}

// save brings the ledger to the disk; the caller holds the lock.
func (l *Ledger) save() error {
	b, err := json.Marshal(l.acts)
	if err != nil {
		return err
	}
	return datafile.Replace(l.path, b)
}

var (
	errBusy  = errors.New("another act is running")
	errOther = errors.New("this id was given to something else")
)

// Begin writes an act down before it is done. An act with the same id is returned as it is,
// and is not to be done again. One runs at a time.
func (l *Ledger) Begin(a Act) (had Act, again bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.acts {
		switch b := &l.acts[i]; {
		case b.ID == a.ID && !b.same(&a):
			return *b, true, fmt.Errorf("%w: %s of %v", errOther, b.Kind, b.GPUs)
		case b.ID == a.ID:
			return *b, true, nil
		case b.Outcome == Running:
			return Act{}, false, fmt.Errorf("%w: %s %s", errBusy, b.Kind, b.ID)
		case b.Away != nil && a.Kind != KindReboot:
			return Act{}, false, fmt.Errorf("what %s %s took away is not back: %v %v", b.Kind, b.ID, b.Away.Modules, b.Away.Units)
		}
	}
	before := slices.Clone(l.acts)
	if len(l.acts) >= maxActs {
		l.acts = slices.Delete(l.acts, 0, 1)
	}
	a.Outcome, a.Began = Running, time.Now().UTC()
	l.acts = append(l.acts, a)
	if err := l.save(); err != nil {
		l.acts = before
		return Act{}, false, fmt.Errorf("it cannot be written down, and is not done: %w", err)
	}
	return a, false, nil
}

// End writes down what became of an act; away says that not all is back that it took away.
func (l *Ledger) End(id string, outcome Outcome, message string, away bool) error {
	return l.change(id, func(a *Act) {
		a.Outcome, a.Message, a.Ended = outcome, message, time.Now().UTC()
		if !away {
			a.Away = nil
		}
	})
}

// Takes writes down what an act is about to take away.
func (l *Ledger) Takes(id string, what Away) error {
	return l.change(id, func(a *Act) { a.Away = &what })
}

// Restored writes down that all is back that an act took away.
func (l *Ledger) Restored(id string) error { return l.change(id, func(a *Act) { a.Away = nil }) }

func (l *Ledger) change(id string, how func(*Act)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.acts {
		if a := &l.acts[i]; a.ID == id {
			how(a)
			return l.save()
		}
	}
	return fmt.Errorf("no act %s", id)
}

// Last returns the act that began last and for which want holds.
func (l *Ledger) Last(want func(*Act) bool) (Act, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range slices.Backward(l.acts) {
		if want(&l.acts[i]) {
			return l.acts[i], true
		}
	}
	return Act{}, false
}

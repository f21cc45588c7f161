package nvml

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"auspex/agent/journal"
	"auspex/internal/datafile"
	"auspex/internal/decode/gpuwatch"
	"auspex/internal/target"
	"auspex/schemas"
)

const (
	maxPending = 1000 // events that wait for the journal
	absentFor  = 2    // readings without a GPU until it is missing, and tries without a driver

	// source names the mark in the journal.
	source = "gpus"
)

// Memory is what a reader of GPUs knows over restarts, what it has to tell, each once, and
// how peers want the GPUs to be. It is for use by one goroutine.
type Memory struct {
	needs   Needs
	mark    string // names its mark in the journal
	watch   gpuwatch.Watch
	id      string          // in ids of events
	pending []schemas.Event // for the journal
	told    uint64          // events that it has, and the number of the first that is pending
	refused string          // why the journal took none, as it was logged last
	wanted  map[uint32]map[string]Held
	changed bool // something is to be kept
	boards  atomic.Pointer[map[uint32]gpuwatch.Board]
}

// Held is a wish that was granted: it is granted again after a reset or a restart.
type Held struct {
	Value string `json:"value"`
	By    string `json:"by"` // who asked
}

// NewMemory returns one that knows nothing before [Memory.Load].
func NewMemory(n Needs) *Memory { return NewMemoryOf(n, schemas.SourceNVML, source) }

// NewMemoryOf is NewMemory for a reader whose events have another source, and another mark in the journal.
func NewMemoryOf(n Needs, source, mark string) *Memory {
	m := &Memory{needs: n, mark: mark}
	m.watch = gpuwatch.Watch{Source: source, After: absentFor, Unread: "not read in %d tries while the driver answers", Emit: m.emit}
	return m
}

// Watch compares readings; what befalls a GPU is told by [Memory.Settled].
func (m *Memory) Watch() *gpuwatch.Watch { return &m.watch }

// kept is the state's file. What is known is kept with what is to be told of it, before that
// is told; how much of it the journal has, its mark says.
type kept struct {
	ID      string                     `json:"id"`
	GPUs    json.RawMessage            `json:"gpus"`
	Wanted  map[uint32]map[string]Held `json:"wanted,omitempty"`
	Told    uint64                     `json:"told,omitempty"`
	Pending []schemas.Event            `json:"pending,omitempty"`
}

// Load reads what an earlier run knew, and expects so many GPUs; what cannot be read is
// forgotten.
func (m *Memory) Load(gpus int) {
	b, err := os.ReadFile(m.needs.State)
	var k kept
	if err == nil {
		err = json.Unmarshal(b, &k)
	}
	if err == nil {
		err = m.watch.UnmarshalText(k.GPUs)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		m.needs.Log.Warn("what was known of GPUs is forgotten", "file", m.needs.State, "error", err)
	}
	if m.id = k.ID; m.id == "" {
		m.id = strconv.FormatUint(rand.Uint64(), 36)
	}
	m.watch.Device, m.wanted, m.told, m.pending = m.id, k.Wanted, k.Told, k.Pending
	if at := m.needs.Journal.Mark(m.mark); at.Epoch == m.id && at.Next > m.told {
		m.pending = m.pending[min(at.Next-m.told, uint64(len(m.pending))):]
		m.told = at.Next
	}
	m.watch.Expect(gpus)
	m.number()
}

// number shows others which GPU has which number.
func (m *Memory) number() {
	boards := m.watch.Boards()
	m.boards.Store(&boards)
}

// Boards returns the GPUs by their number. It is for use by any goroutine, and what it returns is not to be changed.
func (m *Memory) Boards() map[uint32]gpuwatch.Board {
	if b := m.boards.Load(); b != nil {
		return *b
	}
	return nil
}

func (m *Memory) save() error {
	if !m.watch.Changed() && !m.changed {
		return nil
	}
	m.number()
	gpus, err := m.watch.MarshalText()
	if err != nil {
		return err
	}
	b, err := json.Marshal(kept{m.id, gpus, m.wanted, m.told, m.pending})
	if err != nil {
		return err
	}
	if err := datafile.Replace(m.needs.State, b); err != nil {
		return err
	}
	m.watch.Kept()
	m.changed = false
	return nil
}

// emit takes an event. It belongs to the server, whose name the agent does not know.
func (m *Memory) emit(ev schemas.Event) {
	ev.Resource = ""
	if len(m.pending) >= maxPending {
		m.needs.Log.Error("an event of a GPU is dropped: the journal takes none", "type", ev.Type, "gpu", ev.Attr("gpu"))
		return
	}
	m.pending, m.changed = append(m.pending, ev), true
}

// Settled keeps what is known, and brings what happened to the journal: once, wherever the
// process is killed.
func (m *Memory) Settled() {
	err := m.save()
	if err == nil {
		err = m.flush()
	}
	switch {
	case err == nil:
		m.refused = ""
	case err.Error() != m.refused:
		m.refused = err.Error()
		m.needs.Log.Error("events of GPUs wait: they cannot be kept", "error", err)
	}
}

func (m *Memory) flush() error {
	for len(m.pending) > 0 {
		ev := m.pending[0]
		b, err := json.Marshal(ev)
		if err != nil {
			return err
		}
		rec := target.Record{Time: ev.Time.UnixNano(), Kind: journal.KindEvent, Boot: m.needs.Boot, Data: string(b)}
		if _, err := m.needs.Journal.Append(rec, m.mark, journal.Mark{Epoch: m.id, Next: m.told + 1}); err != nil {
			return err
		}
		m.pending, m.told = slices.Delete(m.pending, 0, 1), m.told+1
	}
	return nil
}

// Wanted returns how peers want a GPU to be, by leaf.
func (m *Memory) Wanted(gpu uint32) map[string]Held { return m.wanted[gpu] }

// Refuse says what speaks against wishes before any GPU is asked.
func (m *Memory) Refuse(wishes []Wish, by string) error {
	seen := map[Wish]bool{}
	for _, w := range wishes {
		if !slices.Contains(Settings, w.Leaf) {
			return fmt.Errorf("%s of gpu%d cannot be set: only %s can", w.Leaf, w.GPU, strings.Join(Settings, ", "))
		}
		same := Wish{GPU: w.GPU, Leaf: w.Leaf}
		if seen[same] {
			return fmt.Errorf("%s of gpu%d is set twice", w.Leaf, w.GPU)
		}
		seen[same] = true
		if had, ok := m.wanted[w.GPU][w.Leaf]; ok && had.By != by && had.Value != w.Value {
			return fmt.Errorf("%s of gpu%d was set to %s by %s, who alone may change it", w.Leaf, w.GPU, had.Value, had.By)
		}
	}
	return nil
}

// Grant keeps wishes that were granted.
func (m *Memory) Grant(wishes []Wish, by string) error {
	before := m.wanted
	m.wanted, m.changed = map[uint32]map[string]Held{}, true
	for n, of := range before {
		m.wanted[n] = maps.Clone(of)
	}
	for _, w := range wishes {
		if m.wanted[w.GPU] == nil {
			m.wanted[w.GPU] = map[string]Held{}
		}
		m.wanted[w.GPU][w.Leaf] = Held{w.Value, by}
	}
	if err := m.save(); err != nil {
		m.wanted = before
		return fmt.Errorf("it is set, and could not be kept for after a restart: %w", err)
	}
	return nil
}

// Settings are the leaves that can be set, in the order in which they are.
var Settings = []string{"persistence", "mig-enabled", "ecc-enabled", "power-limit", "application-clocks"}

package collectors

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"auspex/schemas"
)

// Memory keeps what a collector knows of a device over restarts, where events follow from what is different from it: a port
// that goes down, and comes back. Its position in [Cursors] is JSON.
//
// Such an event is kept, with what is known since, before it is told, and is forgotten when it has been. A process that is
// killed between the two would else have told a begin that no other knows of, and whose end nobody tells. What a process
// finds kept it tells first, under the same ids.
type Memory struct {
	cursors           Cursors
	collector, device string
	known             []byte // as it was kept last; nil is nothing
	untold            []schemas.Event
}

// NewMemory returns one that knows nothing before [Memory.Load]; nil cursors forget all.
func NewMemory(c Cursors, collector, device string) *Memory {
	return &Memory{cursors: c, collector: collector, device: device}
}

// unsent is how events are kept that may not have been told.
type unsent struct {
	Untold []schemas.Event `json:"untold"` // the first: a position is known by it
	Known  json.RawMessage `json:"known,omitempty"`
}

const unsentPrefix = `{"untold":`

// Load reads what is known of the device; nil is nothing.
func (m *Memory) Load(ctx context.Context) (known []byte, err error) {
	m.known, m.untold = nil, nil
	if m.cursors == nil {
		return nil, nil
	}
	text, err := m.cursors.Cursor(ctx, m.collector, m.device)
	if err != nil {
		return nil, fmt.Errorf("read cursor of %s: %w", m.device, err)
	}
	var kept unsent
	if strings.HasPrefix(text, unsentPrefix) && json.Unmarshal([]byte(text), &kept) == nil {
		m.known, m.untold = kept.Known, kept.Untold
	} else if text != "" {
		m.known = []byte(text)
	}
	return m.known, nil
}

// Tell emits what waits in a batch, and those events that may not have been told, and keeps what is known after that; nil is
// what was known before. Where it was not told, what is known is to be loaded again. A store that fails holds nothing up for
// long: what it lacks is written at the next time.
func (m *Memory) Tell(ctx context.Context, known []byte, b *Batch, out Emitter, observed time.Time) (told bool, err error) {
	b.first(m.untold)
	if known == nil {
		known = m.known
	}
	events := b.events()
	if len(events) > 0 {
		var text []byte
		if text, err = json.Marshal(unsent{events, known}); err == nil {
			err = m.keep(ctx, text)
		}
	}
	if err := b.Emit(ctx, out, observed); err != nil {
		return false, fmt.Errorf("emit what is new of %s: %w", m.device, err)
	}
	m.untold = nil
	if len(events) == 0 && bytes.Equal(known, m.known) {
		return true, nil
	}
	if e := m.keep(ctx, known); e != nil {
		return true, errors.Join(err, e)
	}
	m.known = known
	return true, nil
}

// keepTime bounds the wait for a store before something is told.
const keepTime = 5 * time.Second

func (m *Memory) keep(ctx context.Context, text []byte) error {
	if m.cursors == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, keepTime)
	defer cancel()
	if err := m.cursors.SetCursor(ctx, m.collector, m.device, string(text)); err != nil {
		return fmt.Errorf("store cursor of %s: %w", m.device, err)
	}
	return nil
}

package gnmi

import (
	"context"
	"encoding/json"
	"time"

	"auspex/collectors"
)

const (
	// enough samples are sent without waiting for a tick.
	enough = 8192
	// tooSlow is for how long something may be under way to the bus before samples that wait make room for newer ones.
	// Until then the target is slowed down, so that nothing is thinned for a disk that hesitates.
	tooSlow = time.Second
	// maxSamples and maxEvents wait at most. Beyond them the target waits, however long: what tells a change is not thinned.
	maxSamples = 1 << 17
	maxEvents  = 4096
)

// sender sends batches to the bus one after the other, while the stream is read on into the next.
type sender struct {
	spare  *collectors.Batch // handed over, and back
	under  chan sent         // what becomes of the batch that is under way; nil is none
	began  time.Time
	kept   bool // with it goes what is known
	owed   bool // something was to be sent meanwhile
	untold bool // nothing was told yet: there may be events of an earlier process
	limit  int  // samples that wait before they are sent, or thinned
}

type sent struct {
	told bool
	err  error
}

func (st *state) urgent() bool {
	samples, events := st.batch.Len()
	return events > 0 || samples >= st.limit
}

// flush sends what waits. While another batch is under way, it is sent after that, when done rings; and of samples
// that have become too many only the newest of each series then.
func (st *state) flush(ctx context.Context, out collectors.Emitter, done func()) error {
	if err := st.sent(); err != nil {
		return err
	}
	if st.under == nil {
		st.hand(ctx, out, done)
		return nil
	}
	st.owed = true
	samples, events := st.batch.Len()
	if samples < st.limit && events < maxEvents {
		return nil
	}
	if events < maxEvents {
		if patience := time.NewTimer(st.s.slow - time.Since(st.began)); !st.settles(patience.C) {
			n := st.batch.Coalesce()
			st.s.metrics.coalesced.Add(float64(n))
			if samples, _ = st.batch.Len(); samples < maxSamples {
				st.limit = min(max(st.s.waiting, 2*samples), maxSamples)
				return nil
			}
		}
	}
	if err := st.settle(); err != nil {
		return err
	}
	st.hand(ctx, out, done)
	return nil
}

// settles waits for the end of what is under way, or for something else.
func (st *state) settles(other <-chan time.Time) bool {
	select {
	case r := <-st.under:
		st.under <- r
		return true
	case <-other:
		return false
	}
}

// hand gives what waits to a goroutine that sends it and calls done, where that is not nil.
func (st *state) hand(ctx context.Context, out collectors.Emitter, done func()) {
	samples, events := st.batch.Len()
	var known []byte
	if st.changed && (st.sync || events > 0) {
		var err error
		if known, err = json.Marshal(&st.mem); err != nil { // it has nothing that JSON has not
			st.s.log.Error("what is known of a device cannot be kept", "error", err)
		}
	}
	if samples+events == 0 && known == nil && !st.untold {
		return
	}
	st.changed = st.changed && known == nil
	st.kept, st.untold, st.owed, st.limit, st.began = known != nil, false, false, st.s.waiting, time.Now()
	st.spare = st.batch.Hand(st.spare)
	under := make(chan sent, 1)
	st.under = under
	batch, memory := st.spare, st.memory
	go func() {
		told, err := memory.Tell(ctx, known, batch, out, time.Time{})
		under <- sent{told, err}
		if done != nil {
			done()
		}
	}()
}

// sent takes note of what was under way, if that has come to an end.
func (st *state) sent() error {
	if st.under == nil {
		return nil
	}
	select {
	case r := <-st.under:
		return st.note(r)
	default:
		return nil
	}
}

// settle waits for what is under way.
func (st *state) settle() error {
	if st.under == nil {
		return nil
	}
	return st.note(<-st.under)
}

func (st *state) note(r sent) error {
	st.under = nil
	if !r.told {
		st.s.state = nil // what was not taken is to be told again
	}
	st.changed = st.changed || st.kept && r.err != nil
	return r.err
}

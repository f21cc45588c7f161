package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"

	"auspex/collectors"
	"auspex/internal/decode/kernlog"
	"auspex/schemas"
	"auspex/schemas/yang"
)

// trees are the containers at the top of the modules that have readings.
func trees() (out []string) {
	for path, l := range yang.Leaves {
		top, _, _ := strings.Cut(path[1:], "/")
		if l.Metric != "" && !slices.Contains(out, top) {
			out = append(out, top)
		}
	}
	slices.Sort(out)
	return out
}

const (
	maxPaths  = 1 << 16 // of one agent; paths that change all the time end there
	maxEvents = 256     // in a batch
)

// state is what is known of one agent over its streams.
type state struct {
	s     *subscriber
	batch *collectors.Batch
	host  kernlog.Follower

	journal      string           // id
	done         uint64           // the newest record whose events are durable
	read         uint64           // the newest record
	position     kernlog.Position // of the kernel's log at done
	acknowledged uint64
	dropped      uint64
	known        bool // dropped was told in this stream
	marked       time.Time

	refs map[string]collectors.Ref // by path; noSeries is no metric
	key  []byte
}

const noSeries = collectors.Refused - 1

func newState(ctx context.Context, s *subscriber) (*state, error) {
	st := &state{
		s: s, batch: collectors.NewBatch(s.device, Name), host: kernlog.Follower{Device: s.device}, refs: map[string]collectors.Ref{},
	}
	if s.settings.Cursors == nil {
		return st, nil
	}
	pos, err := s.settings.Cursors.Cursor(ctx, Name, s.device)
	if err != nil {
		return nil, fmt.Errorf("read cursor of %s: %w", s.device, err)
	}
	// The cursor is the journal's id, the number of a record, and where reading of the
	// kernel's log goes on.
	id, rest, _ := strings.Cut(pos, " ")
	number, kernel, _ := strings.Cut(rest, " ")
	if n, err := strconv.ParseUint(number, 10, 64); err == nil {
		st.journal, st.done = id, n
		if p, ok := kernlog.ParsePosition(kernel); ok {
			st.position = p
		}
	} else if pos != "" {
		s.log.Warn("malformed cursor; reading from the start", "cursor", pos)
	}
	return st, nil
}

// begin takes note of the journal that is to be read.
func (st *state) begin(id string) {
	if id != st.journal {
		st.journal, st.done, st.acknowledged, st.dropped = id, 0, 0, 0
	}
	// What was read and not made durable is read again.
	st.read, st.known, st.host.Position = st.done, false, st.position
	st.batch.Discard()
}

func (st *state) full() bool {
	samples, events := st.batch.Len()
	return events >= maxEvents || samples >= 1<<14
}

// flush emits what waits, and then keeps the position. Without events it is kept once a
// minute: reading chatter again costs little, and gives the same ids.
func (st *state) flush(ctx context.Context, out collectors.Emitter) error {
	samples, events := st.batch.Len()
	if samples > 0 || events > 0 {
		if err := st.batch.Emit(ctx, out, st.s.settings.Now()); err != nil {
			return fmt.Errorf("emit: %w", err)
		}
	}
	if st.read == st.done {
		return nil
	}
	if events == 0 && time.Since(st.marked) < time.Minute && !st.host.Shutdown && st.read-st.done < 1000 {
		return nil
	}
	st.marked = time.Now()
	if c := st.s.settings.Cursors; c != nil {
		position := ""
		if st.host.BootID != "" {
			position = " " + st.host.Position.String()
		}
		if err := c.SetCursor(ctx, Name, st.s.device, fmt.Sprintf("%s %d%s", st.journal, st.read, position)); err != nil {
			return fmt.Errorf("store cursor of %s: %w", st.s.device, err)
		}
	}
	st.done, st.position = st.read, st.host.Position
	return nil
}

// notification reads one message: a record of the journal, or readings of one time.
func (st *state) notification(n *gpb.Notification) {
	if len(n.GetUpdate()) > 0 {
		if e := slices.Concat(n.GetPrefix().GetElem(), n.GetUpdate()[0].GetPath().GetElem()); len(e) > 1 && e[0].GetName() == "journal" && e[1].GetName() == "record" {
			st.record(n)
			return
		}
	}
	at := time.Unix(0, n.GetTimestamp())
	for _, u := range n.GetUpdate() {
		ref, ok := st.series(n.GetPrefix().GetElem(), u.GetPath().GetElem())
		if !ok {
			st.leaf(u)
			continue
		}
		if v, ok := number(u.GetVal()); ok {
			st.batch.Sample(ref, at, v)
		} else {
			st.s.metrics.malformed.Inc()
		}
	}
}

// series finds the series of a path; it allocates for a new one alone.
func (st *state) series(prefix, path []*gpb.PathElem) (collectors.Ref, bool) {
	st.key = st.key[:0]
	for _, elems := range [2][]*gpb.PathElem{prefix, path} {
		for _, e := range elems {
			st.key = append(append(st.key, '/'), e.GetName()...)
			for _, v := range e.GetKey() { // lists of ours have one key
				st.key = append(append(st.key, 0), v...)
			}
		}
	}
	ref, ok := st.refs[string(st.key)]
	if ok || len(st.refs) >= maxPaths {
		return ref, ok && ref != noSeries
	}
	var name strings.Builder
	part := ""
	for _, e := range slices.Concat(prefix, path) {
		name.WriteString("/" + e.GetName())
		for _, v := range e.GetKey() {
			part = v
		}
	}
	ref = noSeries
	leaf, known := yang.Leaves[name.String()]
	switch {
	case !known:
		st.s.metrics.unmatched.Inc()
	case leaf.Metric == "":
	case leaf.Part == "":
		ref = st.batch.Series(leaf.Metric, "", "")
	default:
		ref = st.batch.Series(leaf.Metric, leaf.Part, part)
	}
	st.refs[string(st.key)] = ref
	return ref, ref != noSeries
}

// leaf reads what is no metric and yet of use.
func (st *state) leaf(u *gpb.Update) {
	e := u.GetPath().GetElem()
	if len(e) != 3 || e[0].GetName() != "journal" || e[2].GetName() != "dropped" {
		return
	}
	n := u.GetVal().GetUintVal()
	if n > st.dropped && st.known {
		st.s.metrics.dropped.Add(float64(n - st.dropped))
		st.s.log.Warn("agent dropped records for space before they were read", "count", n-st.dropped)
	}
	st.dropped, st.known = n, true
}

func number(v *gpb.TypedValue) (float64, bool) {
	switch x := v.GetValue().(type) {
	case *gpb.TypedValue_UintVal:
		return float64(x.UintVal), true
	case *gpb.TypedValue_IntVal:
		return float64(x.IntVal), true
	case *gpb.TypedValue_DoubleVal:
		return x.DoubleVal, !math.IsNaN(x.DoubleVal) && !math.IsInf(x.DoubleVal, 0)
	case *gpb.TypedValue_BoolVal:
		if x.BoolVal {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

// record reads a record of the journal.
func (st *state) record(n *gpb.Notification) {
	var seq, boot uint64
	var kind, bootID, data string
	for _, u := range n.GetUpdate() {
		e := u.GetPath().GetElem()
		if len(e) == 0 {
			continue
		}
		v := u.GetVal()
		switch e[len(e)-1].GetName() {
		case "sequence":
			seq = v.GetUintVal()
		case "kind":
			kind = v.GetStringVal()
		case "boot-id":
			bootID = v.GetStringVal()
		case "boot-time":
			boot = v.GetUintVal()
		case "data":
			data = v.GetStringVal()
		}
	}
	if seq == 0 {
		st.s.metrics.malformed.Inc()
		return
	}
	if seq <= st.read {
		return
	}
	st.read = seq
	st.s.metrics.records.Inc()
	switch kind {
	case "kernel":
		st.line(bootID, boot, data)
	case "event":
		st.event(seq, data)
	default: // of a newer agent
		st.s.metrics.malformed.Inc()
	}
}

// line reads a line of the kernel's log.
func (st *state) line(bootID string, boot uint64, data string) {
	rec, err := kernlog.ParseKmsg(data)
	if err != nil || bootID == "" || strings.ContainsAny(bootID, " \n") {
		st.s.metrics.malformed.Inc()
		return
	}
	if bootID != st.host.BootID {
		if _, rebooted := st.host.Opened(bootID); rebooted {
			st.s.metrics.boots.Inc()
		}
	}
	now := st.s.settings.Now()
	if boot > 0 && boot <= math.MaxInt64 {
		st.host.Tighten(time.Unix(0, int64(boot)))
	}
	st.host.Tighten(now.Add(-rec.SinceBoot))
	got := st.host.Record(rec, now)
	if got.Lost > 0 {
		st.s.metrics.lost.Add(float64(got.Lost))
		st.s.log.Warn("lines of the kernel log were lost", "count", got.Lost, "next", rec.Sequence)
	}
	if !st.s.kernel {
		return
	}
	for _, ev := range got.Events {
		st.batch.Event(ev)
	}
}

// event reads what the agent itself tells. It speaks for its own server alone, and in
// its own name.
func (st *state) event(seq uint64, data string) {
	var ev schemas.Event
	if err := json.Unmarshal([]byte(data), &ev); err != nil || ev.Type == "" || ev.Severity.Rank() < 0 {
		st.s.metrics.malformed.Inc()
		return
	}
	now := st.s.settings.Now().UTC()
	if ev.ID == "" {
		ev.ID = schemas.EventID(st.s.device, st.journal, strconv.FormatUint(seq, 10), data)
	}
	ev.Resource, ev.Source, ev.Observed = st.s.device, schemas.SourceAgent, now
	if ev.Time.IsZero() || ev.Time.After(now) {
		ev.Time = now
	}
	st.batch.Event(ev)
}

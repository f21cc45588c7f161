package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
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
	maxEvents = 256     // in a batch
	maxRows   = 1 << 10 // of GPUs
)

// state is what is known of one agent over its streams.
type state struct {
	s      *subscriber
	batch  *collectors.Batch // made anew for what comes after it was sent: between, there is nothing of it
	bounds *collectors.Batch // thresholds, which know when they were sent
	host   kernlog.Follower
	// fabric reads the logs of fabric manager and of the IMEX daemon.
	fabric kernlog.Parser

	journal      string           // id
	done         uint64           // the newest record whose events are durable
	read         uint64           // the newest record
	position     kernlog.Position // of the kernel's log at done
	acknowledged uint64
	dropped      uint64
	known        bool // dropped was told in this stream
	marked       time.Time

	learnt int // paths that this agent brought
	key    []byte
	gpus   collectors.GPUs
	boards map[uint32]*board
	unread string // why there are no GPUs, as it was logged last
}

// leaf is what a path of the agent stands for.
type leaf struct {
	what   what
	column int    // of the packed columns
	gpu    uint32 // whose row or board it is
	metric string // of a series, or whose bound it is
	kind   string
	part   string
	labels []string
	bound  schemas.Bound
	shared bool // an exporter tells it as well
}

func (b *board) nothing() {
	for i := range b.last {
		b.last[i] = math.NaN()
	}
}

type what uint8

const (
	nothing   what = iota
	sample         // of a series
	packed         // in a column of the GPUs
	threshold      // of readings of the GPUs
	uuid           // of a GPU
	pci
)

// board is which GPU it is that has a number, and what it told last.
type board struct {
	uuid, pci string
	last      []float64 // by column; NaN is nothing
}

func newState(ctx context.Context, s *subscriber) (*state, error) {
	st := &state{
		s: s, batch: collectors.NewBatch(s.device, Name), bounds: collectors.NewBatch(s.device, Name),
		host: kernlog.Follower{Device: s.device}, boards: map[uint32]*board{},
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
	st.bounds.Discard()
	st.gpus.Reset()
	clear(st.boards)
}

func (st *state) full() bool {
	samples, events := st.batch.Len()
	return events >= maxEvents || samples >= 1<<14 || st.gpus.Len() >= maxRows
}

// flush emits what waits, and then keeps the position. Without events it is kept once a
// minute: reading chatter again costs little, and gives the same ids.
func (st *state) flush(ctx context.Context, out collectors.Emitter) error {
	samples, events := st.batch.Len()
	now := st.s.settings.Now()
	for i := range st.gpus.Len() {
		row := st.gpus.At(i)
		b := st.board(row.Index)
		row.UUID, row.PCI = b.uuid, b.pci
	}
	if st.gpus.Fill(st.batch, now) > 0 || samples > 0 || events > 0 {
		if err := st.batch.Emit(ctx, out, now); err != nil {
			return fmt.Errorf("emit: %w", err)
		}
		st.batch = collectors.NewBatch(st.s.device, Name)
		if st.gpus.Len() >= maxRows {
			st.gpus = collectors.GPUs{}
		}
		st.gpus.Reset()
	}
	if err := st.bounds.Emit(ctx, out, now); err != nil {
		return fmt.Errorf("emit: %w", err)
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
	for _, path := range n.GetDelete() {
		st.forget(n.GetPrefix().GetElem(), path.GetElem())
	}
	for _, u := range n.GetUpdate() {
		l := st.leafAt(n.GetPrefix().GetElem(), u.GetPath().GetElem())
		switch l.what {
		case nothing:
			st.word(u)
			continue
		case uuid:
			st.board(l.gpu).uuid = u.GetVal().GetStringVal()
			continue
		case pci:
			st.board(l.gpu).pci = u.GetVal().GetStringVal()
			continue
		}
		v, ok := number(u.GetVal())
		switch {
		case !ok:
			st.s.metrics.malformed.Inc()
		case l.shared && !st.s.gpus: // it is left to who tells it as well
		case l.what == packed:
			st.packed(l, at, v)
		case l.what == threshold:
			st.bounds.ThresholdsOf(l.metric, schemas.KindGPU, l.part, at, collectors.Threshold{Bound: l.bound, Value: v})
		default:
			st.batch.Sample(st.batch.Series(l.metric, l.kind, l.part, l.labels...), at, v)
		}
	}
}

// packed takes a value of a column. What is not told is as it was: the row of a time begins
// with the values of the time before.
func (st *state) packed(l *leaf, at time.Time, v float64) {
	b := st.board(l.gpu)
	row := st.gpus.Row(l.gpu, at)
	if st.gpus.At(row).At.IsZero() {
		for c, last := range b.last {
			if !math.IsNaN(last) {
				st.gpus.Set(row, c, at, last)
			}
		}
	}
	st.gpus.Set(row, l.column, at, v)
	b.last[l.column] = v
}

// forget takes note that a leaf or a branch has no value any more.
func (st *state) forget(prefix, path []*gpb.PathElem) {
	e := slices.Concat(prefix, path)
	if len(e) == 0 || e[0].GetName() == "gpus" && len(e) <= 2 {
		for _, b := range st.boards {
			b.nothing()
		}
		return
	}
	if l := st.leafAt(prefix, path); l.what == packed {
		st.board(l.gpu).last[l.column] = math.NaN()
	}
}

func (st *state) board(gpu uint32) *board {
	b := st.boards[gpu]
	if b == nil {
		b = &board{last: make([]float64, len(schemas.GPUMetrics))}
		b.nothing()
		st.boards[gpu] = b
	}
	return b
}

// leafAt finds what a path stands for; it allocates for a new one alone.
func (st *state) leafAt(prefix, path []*gpb.PathElem) *leaf {
	st.key = st.key[:0]
	for _, elems := range [2][]*gpb.PathElem{prefix, path} {
		for _, e := range elems {
			st.key = append(append(st.key, '/'), e.GetName()...)
			for _, k := range sorted(e.GetKey()) {
				st.key = append(append(st.key, 0), e.GetKey()[k]...)
			}
		}
	}
	if l := st.s.paths.find(st.key); l != nil {
		return l
	}
	var name strings.Builder
	var keys []string
	for _, e := range slices.Concat(prefix, path) {
		name.WriteString("/" + e.GetName())
		for _, k := range sorted(e.GetKey()) {
			keys = append(keys, e.GetKey()[k])
		}
	}
	l := st.learn(name.String(), keys)
	if (l.what != nothing || len(keys) < 2) && st.learnt < maxPaths { // a process comes and goes, and is not remembered
		st.learnt++
		st.s.paths.keep(st.key, l)
	}
	return l
}

// sorted returns the names of keys in order; most lists have one.
func sorted(keys map[string]string) []string {
	if len(keys) == 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(keys))
}

// branches are the paths above the leaves of the modules.
var branches = sync.OnceValue(func() (out []string) {
	for path := range yang.Leaves {
		for i := strings.LastIndexByte(path, '/'); i > 0; i = strings.LastIndexByte(path[:i], '/') {
			if !slices.Contains(out, path[:i]) {
				out = append(out, path[:i])
			}
		}
	}
	return out
})

// learn finds what a path of the modules stands for, with the keys of its lists.
func (st *state) learn(path string, keys []string) *leaf {
	l, known := yang.Leaves[path]
	if !known {
		if !slices.Contains(branches(), path) { // an entry of a list that is no more
			st.s.metrics.unmatched.Inc()
		}
		return &leaf{}
	}
	gpu, isGPU := gpuNumber(keys)
	switch {
	case isGPU && path == "/gpus/gpu/state/uuid":
		return &leaf{what: uuid, gpu: gpu}
	case isGPU && path == "/gpus/gpu/state/pci":
		return &leaf{what: pci, gpu: gpu}
	case l.Metric == "" || len(keys) != len(l.Keys):
		return &leaf{}
	}
	kind, part, labels := "", "", slices.Clone(l.Fixed)
	for i, k := range l.Keys {
		if k.Part != "" {
			kind, part = k.Part, keys[i]
		} else if k.Label != "" {
			labels = append(labels, k.Label, keys[i])
		}
	}
	column, has := collectors.GPUColumn(l.Metric)
	switch {
	case has && !isGPU:
		st.s.metrics.malformed.Inc()
		return &leaf{}
	case l.Bound != "":
		return &leaf{what: threshold, metric: l.Metric, part: part, bound: schemas.Bound(l.Bound), shared: has}
	case has && len(keys) == 1:
		return &leaf{what: packed, column: column, gpu: gpu, shared: true}
	}
	return &leaf{what: sample, metric: l.Metric, kind: kind, part: part, labels: labels, shared: has}
}

// gpuNumber reads the key of a GPU, as gpu3.
func gpuNumber(keys []string) (uint32, bool) {
	if len(keys) == 0 {
		return 0, false
	}
	text, ok := strings.CutPrefix(keys[0], "gpu")
	n, err := strconv.ParseUint(text, 10, 16)
	return uint32(n), ok && err == nil && n < collectors.MaxGPUs
}

// word reads what is no metric and yet of use.
func (st *state) word(u *gpb.Update) {
	e := u.GetPath().GetElem()
	if len(e) != 3 || e[1].GetName() != "state" {
		return
	}
	switch e[0].GetName() + "/" + e[2].GetName() {
	case "gpus/error":
		if text := u.GetVal().GetStringVal(); text != st.unread {
			st.unread = text
			st.s.log.Warn("agent reads no GPUs", "error", text)
		}
	case "journal/dropped":
		n := u.GetVal().GetUintVal()
		if n > st.dropped && st.known {
			st.s.metrics.dropped.Add(float64(n - st.dropped))
			st.s.log.Warn("agent dropped records for space before they were read", "count", n-st.dropped)
		}
		st.dropped, st.known = n, true
	}
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
	case "fabric-manager":
		st.serviceLine("fabricmanager", data, st.fabric.FabricManager)
	case "imex":
		st.serviceLine("imex", data, st.fabric.IMEX)
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

// serviceLine reads a line of the log of one of NVIDIA's services, behind the zone of its times. A
// line that is read twice is the same event, and so is one that was written twice in a second.
func (st *state) serviceLine(log, data string, parse func(string, *time.Location) (schemas.Event, time.Time, bool)) {
	offset, line, _ := strings.Cut(data, " ")
	zone, err := time.Parse("-0700", offset)
	if err != nil {
		st.s.metrics.malformed.Inc()
		return
	}
	ev, at, ok := parse(line, zone.Location())
	if !ok {
		return
	}
	now := st.s.settings.Now().UTC()
	if at.IsZero() || at.After(now) {
		at = now
	}
	ev.ID = schemas.EventID(st.s.device, log, line)
	ev.Resource, ev.Time, ev.Observed = st.s.device, at, now
	st.batch.Event(ev)
}

// event reads what the agent itself tells. It speaks for its own server alone, and for
// what it reads there. The kernel's word for an XID is told where there is one.
func (st *state) event(seq uint64, data string) {
	var ev schemas.Event
	if err := json.Unmarshal([]byte(data), &ev); err != nil || ev.Type == "" || ev.Severity.Rank() < 0 {
		st.s.metrics.malformed.Inc()
		return
	}
	if ev.Source != schemas.SourceNVML && ev.Source != schemas.SourceDCGM {
		ev.Source = schemas.SourceAgent
	}
	if ev.Type == schemas.EventGPUXID && !st.s.kernel {
		return
	}
	now := st.s.settings.Now().UTC()
	if ev.ID == "" {
		ev.ID = schemas.EventID(st.s.device, st.journal, strconv.FormatUint(seq, 10), data)
	}
	ev.Resource, ev.Observed = st.s.device, now
	if ev.Time.IsZero() || ev.Time.After(now) {
		ev.Time = now
	}
	st.batch.Event(ev)
}

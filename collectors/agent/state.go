package agent

import (
	"context"
	"encoding/binary"
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
	"google.golang.org/protobuf/proto"

	"auspex/collectors"
	"auspex/internal/decode/kernlog"
	"auspex/internal/gnmiclient"
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
	s     *subscriber
	batch *collectors.Batch // made anew for what comes after it was sent: between, there is nothing of it
	host  kernlog.Follower
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
	pods   pods
	gpus   *collectors.GPUs // nil where no rows wait
	boards map[uint32]*board
	unread string // why there are no GPUs, as it was logged last
}

// leaf is what a path of the agent stands for.
type leaf struct {
	what   what
	column int    // of the packed columns
	gpu    uint32 // whose row or board it is
	metric string // of a series
	kind   string
	part   string
	labels []string
	shared bool     // an exporter tells it as well
	keys   []string // of a device of a pod
	pods   bool     // with any value it says that the agent has read its kubelet
}

func (b *board) nothing() {
	for i := range b.last {
		b.last[i] = math.NaN()
	}
}

type what uint8

const (
	nothing what = iota
	sample       // of a series
	packed       // in a column of the GPUs
	uuid         // of a GPU
	pci
	noGPUs  // why there are none
	dropped // how many records
	record  // of the journal
	device  // that a pod holds
	onGPU   // which GPU that is
)

// board is which GPU it is that has a number, and what it told last.
type board struct {
	uuid, pci string
	last      []float64 // by column; NaN is nothing
}

func newState(ctx context.Context, s *subscriber) (*state, error) {
	st := &state{
		s: s, batch: collectors.NewBatch(s.device, Name), host: kernlog.Follower{Device: s.device}, boards: map[uint32]*board{},
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
	st.unused()
	clear(st.boards)
	st.pods.begin()
}

// rows writes the rows of the GPUs into the batch, and returns how many there are.
func (st *state) rows(now time.Time) int {
	if st.gpus == nil {
		return 0
	}
	for i := range st.gpus.Len() {
		if row := st.gpus.At(i); !row.At.IsZero() {
			b := st.board(row.Index)
			row.UUID, row.PCI = b.uuid, b.pci
		}
	}
	return st.gpus.Fill(st.batch, now)
}

// spare are the rows of agents that have none now.
var spare = sync.Pool{New: func() any { return new(collectors.GPUs) }}

// unused gives the rows back.
func (st *state) unused() {
	if st.gpus == nil {
		return
	}
	if st.gpus.Len() < maxRows { // what an agent made large goes
		st.gpus.Reset()
		spare.Put(st.gpus)
	}
	st.gpus = nil
}

func (st *state) full() bool {
	samples, events := st.batch.Len()
	return events >= maxEvents || samples >= 1<<14 || st.gpus != nil && st.gpus.Len() >= maxRows
}

// flush emits what waits, and then keeps the position. Without events it is kept once a
// minute: reading chatter again costs little, and gives the same ids.
func (st *state) flush(ctx context.Context, out collectors.Emitter) error {
	now := st.s.settings.Now()
	st.tellPods(now)
	samples, events := st.batch.Len()
	if st.rows(now) > 0 || samples > 0 || events > 0 {
		if err := st.batch.Emit(ctx, out, now); err != nil {
			return fmt.Errorf("emit: %w", err)
		}
		st.batch = collectors.NewBatch(st.s.device, Name)
		st.unused()
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

// response reads one message: a record of the journal, or readings of one time.
func (st *state) response(r *gnmiclient.Response) error {
	at := time.Unix(0, r.Timestamp)
	for path := range r.Deletes() {
		if err := st.forget(r.Prefix, path); err != nil {
			return err
		}
	}
	for path, v := range r.Updates() {
		l, err := st.leafAt(r.Prefix, path)
		if err != nil {
			return err
		}
		switch l.what {
		case nothing:
			continue
		case record: // of which the others are leaves as well
			return st.record(r.Raw)
		case uuid:
			st.board(l.gpu).uuid = string(v.Text())
			continue
		case pci:
			st.board(l.gpu).pci = string(v.Text())
			continue
		case noGPUs:
			if text := string(v.Text()); text != st.unread {
				st.unread = text
				st.s.log.Warn("agent reads no GPUs", "error", text)
			}
			continue
		case dropped:
			st.drops(v.Uint())
			continue
		case device, onGPU:
			st.pods.put(l, string(v.Text()))
			continue
		}
		number, ok := v.Number()
		switch {
		case !ok:
			st.s.metrics.malformed.Inc()
		case l.shared && !st.s.gpus: // it is left to who tells it as well
		case l.what == packed:
			st.packed(l, at, number)
		default:
			st.pods.read = st.pods.read || l.pods
			st.batch.Sample(st.batch.Series(l.metric, l.kind, l.part, l.labels...), at, number)
		}
	}
	return nil
}

// drops takes note of how many records the agent has dropped in all.
func (st *state) drops(n uint64) {
	if n > st.dropped && st.known {
		st.s.metrics.dropped.Add(float64(n - st.dropped))
		st.s.log.Warn("agent dropped records for space before they were read", "count", n-st.dropped)
	}
	st.dropped, st.known = n, true
}

// packed takes a value of a column. What is not told is as it was: the row of a time begins
// with the values of the time before.
func (st *state) packed(l *leaf, at time.Time, v float64) {
	if st.gpus == nil {
		st.gpus = spare.Get().(*collectors.GPUs)
	}
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
func (st *state) forget(prefix, path []byte) error {
	name, keys, err := named(prefix, path)
	if err != nil {
		return err
	}
	if name == "" || name == "/gpus" || name == "/gpus/gpu" {
		for _, b := range st.boards {
			b.nothing()
		}
	}
	if name == "" || strings.HasPrefix(name, "/pods") {
		st.pods.forget(name, keys)
	}
	if l := st.learn(name, keys); l.what == packed {
		st.board(l.gpu).last[l.column] = math.NaN()
	}
	return nil
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

// leafAt finds what a path stands for; it reads a new one alone.
func (st *state) leafAt(prefix, path []byte) (*leaf, error) {
	st.key = append(append(binary.AppendUvarint(st.key[:0], uint64(len(prefix))), prefix...), path...)
	if l := st.s.paths.find(st.key); l != nil {
		return l, nil
	}
	name, keys, err := named(prefix, path)
	if err != nil {
		return nil, err
	}
	l := st.learn(name, keys)
	if l.what != record && !strings.Contains(name, "/process/") && l.keys == nil && st.learnt < maxPaths { // a process comes and goes, and so do pods
		st.learnt++
		st.s.paths.keep(st.key, l)
	}
	return l, nil
}

// named reads a path: its name without keys, and the keys in order, those of one list by name.
func named(prefix, path []byte) (name string, keys []string, err error) {
	var b strings.Builder
	for _, raw := range [2][]byte{prefix, path} {
		p, err := gnmiclient.ParsePath(raw)
		if err != nil {
			return "", nil, fmt.Errorf("%w: path: %w", collectors.ErrProtocol, err)
		}
		for _, e := range p.GetElem() {
			b.WriteString("/" + e.GetName())
			for _, k := range slices.Sorted(maps.Keys(e.GetKey())) {
				keys = append(keys, e.GetKey()[k])
			}
		}
	}
	return b.String(), keys, nil
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
	switch {
	case strings.HasPrefix(path, "/journal/record/"):
		return &leaf{what: record}
	case path == "/journal/state/dropped":
		return &leaf{what: dropped}
	case path == "/pods/device/state/id" && len(keys) == deviceKeys:
		return &leaf{what: device, keys: keys}
	case path == "/pods/device/state/gpu" && len(keys) == deviceKeys:
		return &leaf{what: onGPU, keys: keys}
	case path == "/gpus/state/error":
		return &leaf{what: noGPUs}
	}
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
		return &leaf{
			what: sample, metric: schemas.ThresholdMetric(l.Metric), kind: kind, part: part, labels: append(labels, schemas.LabelBound, l.Bound), shared: has,
		}
	case has && len(keys) == 1:
		return &leaf{what: packed, column: column, gpu: gpu, shared: true}
	}
	return &leaf{what: sample, metric: l.Metric, kind: kind, part: part, labels: labels, shared: has, pods: path == "/pods/state/left-out"}
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

// record reads a record of the journal.
func (st *state) record(raw []byte) error {
	n := new(gpb.Notification)
	if err := proto.Unmarshal(raw, n); err != nil {
		return fmt.Errorf("%w: record: %w", collectors.ErrProtocol, err)
	}
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
	switch {
	case seq == 0:
		st.s.metrics.malformed.Inc()
		return nil
	case seq <= st.read:
		return nil
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
	return nil
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

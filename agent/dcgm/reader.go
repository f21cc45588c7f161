package dcgm

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"auspex/agent/nvml"
	"auspex/internal/decode/gpuwatch"
	"auspex/internal/run"
	"auspex/internal/target"
	"auspex/schemas"
	"auspex/schemas/faults"
	"auspex/schemas/yang"
)

const (
	hold    = time.Minute      // a condition that DCGM does not find for so long has ended: its watches look back a minute
	look    = time.Minute      // what violates a policy is told again at each reading of the hostengine
	first   = time.Second      // until the child is started anew, and then twice as long each time
	longest = time.Minute      // at most
	absent  = 15 * time.Minute // at most where the library is not there, and no less than a minute
	grace   = time.Second      // for a child to end
	maxLine = 8 << 20          // of a child: all incidents of all entities there can be
)

// Reader reads what DCGM tells. New returns one; it performs no I/O before Run.
type Reader struct {
	*nvml.Memory

	cfg   Config
	needs Needs
	args  []string // of the child, behind the agent's binary
	env   []string // of the child, beside the agent's
	hold  time.Duration
	first time.Duration        // until the child is started anew
	since time.Time            // when a child began to tell of violations
	look  time.Duration        // until what was not told has not been before
	xids  map[uint32]violation // the last of each GPU

	places     map[uint32]*place
	seen       map[uint32]map[string]sighting // by GPU and type: what was found last
	server     map[string]sighting            // of what is no GPU
	unread     string                         // why nothing is read, as it was logged last
	boards     []board
	numbers    map[uint]uint32 // by DCGM's number
	stalls     uint64
	failures   uint64
	violations uint64
	dropped    uint64 // by children that have ended
	dropping   uint64 // by the one that runs
	leaves     map[string]target.Ref
	diagnosing sync.Mutex
}

// sighting is a condition as it was found last.
type sighting struct {
	at       time.Time
	code     string
	severity schemas.Severity
	message  string
	action   string
}

// mark names the reader's mark in the journal.
const mark = "dcgm"

// New returns a reader.
func New(cfg Config, n Needs) *Reader {
	r := &Reader{
		cfg: cfg, needs: n, args: []string{Verb}, hold: hold, first: first, look: look, xids: map[uint32]violation{},
		places: map[uint32]*place{}, seen: map[uint32]map[string]sighting{},
		server: map[string]sighting{}, leaves: map[string]target.Ref{},
	}
	own := nvml.Needs{Journal: n.Journal, Tree: n.Tree, Log: n.Log, State: n.State, Boot: n.Boot}
	r.Memory = nvml.NewMemoryOf(own, schemas.SourceDCGM, mark)
	for _, name := range []string{
		"version", "error", "no-profiling", "no-health", "no-policy", "no-number", "failures", "stalls", "violations", "violations-dropped",
		"health", "incidents",
	} {
		r.leaves[name] = n.Tree.Leaf("/gpus/dcgm/state/" + name)
	}
	return r
}

// Run reads until ctx is done. What it cannot read it says once, and tries again.
func (r *Reader) Run(ctx context.Context) {
	if why := r.never(); why != "" {
		r.unreadable(errors.New(why))
		<-ctx.Done()
		return
	}
	r.Load(0)
	defer r.Settled()
	r.remember()
	var last *process
	for wait := r.first; ; wait *= 2 {
		began := time.Now()
		c, err := last, errStuck
		if c == nil || c.over() {
			c, err = r.start(order{})
		}
		if err == nil {
			err = r.session(ctx, c)
			last = c
		}
		if ctx.Err() != nil {
			return
		}
		r.failures++
		r.unreadable(err)
		if time.Since(began) > longest {
			wait = r.first
		}
		least, most := r.first, longest
		if _, ok := errors.AsType[absence](err); ok { // a process each time, to find nothing
			least, most = longest, absent
		}
		wait = min(max(wait, least), most)
		if run.Sleep(ctx, wait) != nil {
			return
		}
	}
}

// never says why nothing can be read as long as this process lives.
func (r *Reader) never() string {
	if built == "" && r.needs.Boards == nil {
		return "DCGM is not read: nvml is disabled, which numbers the GPUs"
	}
	return built
}

// remember holds what an earlier run has raised until it was looked for as long as any condition.
func (r *Reader) remember() {
	s := sighting{at: time.Now(), severity: schemas.SeverityCritical, message: "what an earlier run found"}
	for n := range r.Watch().Boards() {
		for _, typ := range r.Watch().Holds(n) {
			r.see(n, typ, s)
		}
	}
	for _, typ := range r.Watch().ServerHolds() {
		r.server[typ] = s
	}
}

func (r *Reader) see(n uint32, typ string, s sighting) {
	if r.seen[n] == nil {
		r.seen[n] = map[string]sighting{}
	}
	r.seen[n][typ] = s
}

// unreadable tells that nothing is read. What was raised stays raised: nobody knows.
func (r *Reader) unreadable(err error) {
	r.dropped += r.dropping
	r.dropping = 0
	t := r.needs.Tree.Write(time.Now())
	t.Text(r.leaves["error"], err.Error())
	t.Uint(r.leaves["failures"], r.failures)
	t.Uint(r.leaves["stalls"], r.stalls)
	for _, name := range []string{"no-profiling", "no-health", "no-policy", "no-number", "health", "incidents"} {
		t.None(r.leaves[name])
	}
	for _, p := range r.places {
		p.none(&t)
	}
	t.Close()
	if err.Error() != r.unread {
		r.unread = err.Error()
		r.needs.Log.Info("DCGM is not read", "error", err)
	}
}

// process is a child. Its words come through a channel, which is closed at its end.
type process struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	words chan word
	quit  chan struct{} // closed when nobody takes words any more
	ended chan struct{}
	tail  tail
}

// absence is why a child has no library.
type absence string

// Error implements error.
func (a absence) Error() string { return string(a) }

// start starts a child.
func (r *Reader) start(o order) (*process, error) {
	o.Library, o.Address, o.Interval, o.Deadline, o.Policy = r.cfg.Library, r.cfg.Address, r.cfg.Interval, r.cfg.Deadline, r.cfg.Policy
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start a process that calls DCGM: %w", err)
	}
	p := &process{words: make(chan word), quit: make(chan struct{}), ended: make(chan struct{})}
	p.cmd = exec.Command(self, r.args...) //nolint:gosec // ourselves
	p.cmd.Env, p.cmd.Stderr, p.cmd.WaitDelay = append(os.Environ(), r.env...), &p.tail, grace
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		p.in, err = p.cmd.StdinPipe()
	}
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start a process that calls DCGM: %w", err)
	}
	go func() {
		defer close(p.ended)
		defer close(p.words)
		p.read(out)
		_ = p.cmd.Wait()
	}()
	line, err := json.Marshal(o)
	if err == nil {
		_, err = p.in.Write(append(line, '\n'))
	}
	if err != nil {
		p.end()
		return nil, fmt.Errorf("tell the process that calls DCGM: %w", err)
	}
	return p, nil
}

// read reads what the child says. A line that is none is passed over: a library may write to standard output.
func (p *process) read(out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var w word
		if json.Unmarshal(lines.Bytes(), &w) != nil {
			continue
		}
		select {
		case p.words <- w:
		case <-p.quit:
			return
		}
	}
}

// over reports whether the child is no more.
func (p *process) over() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// errStuck is that no second child is started beside one that makes a call for ever.
var errStuck = errors.New("the process that calls DCGM cannot be ended: its call stands in the kernel")

// end ends the child. One that cannot even be killed is left.
func (p *process) end() {
	close(p.quit)
	_ = p.cmd.Process.Kill()
	_ = p.in.Close()
	select {
	case <-p.ended:
	case <-time.After(2 * grace):
	}
}

// tail keeps the last that was written: a child that dies may say why.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const maxTail = 16 << 10

// Write implements [io.Writer].
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	t.text = t.text[max(0, len(t.text)-maxTail):]
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}

// next waits for a word of a child, which has so long for it.
func (p *process) next(ctx context.Context, patience time.Duration) (w word, err error) {
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case w, ok := <-p.words:
		switch {
		case !ok:
			return w, errEnded
		case w.Absent:
			return w, absence(w.End)
		case w.End != "":
			return w, errors.New(w.End)
		}
		return w, nil
	case <-late.C:
		return w, context.DeadlineExceeded
	case <-ctx.Done():
		return w, ctx.Err()
	}
}

var errEnded = errors.New("the process that calls DCGM has died")

// session takes what a child says until it ends, or is late.
func (r *Reader) session(ctx context.Context, p *process) (err error) {
	defer func() {
		p.end()
		if text := p.tail.String(); text != "" {
			r.needs.Log.Warn("the process that calls DCGM said", "text", text)
		}
	}()
	call, patience := "its start", r.cfg.Deadline
	r.since = time.Time{}
	for {
		w, err := p.next(ctx, patience)
		switch {
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
			r.stalls++
			return fmt.Errorf("%s has not returned for %s: the process that made the call was ended", call, r.cfg.Deadline)
		case errors.Is(err, errEnded):
			return fmt.Errorf("%w in %s", err, call)
		case err != nil:
			return err
		}
		now := time.Now()
		switch {
		case w.Call != "":
			call, patience = w.Call, r.cfg.Deadline
		case w.Boards != nil:
			r.boards = w.Boards
		case w.Version != "":
			t := r.needs.Tree.Write(now)
			t.Text(r.leaves["version"], w.Version)
			t.Close()
		case w.Violation != nil:
			r.violated(w.Violation, now)
		case w.Reading != nil:
			call, patience = "reading", r.cfg.Interval+r.cfg.Deadline
			if r.since.IsZero() {
				r.since = now
			}
			r.tell(w.Reading, now)
		}
		r.Settled()
	}
}

// number finds which numbers the GPUs of DCGM have, by their boards, else by their addresses.
func (r *Reader) number() (strange []string) {
	known := r.needs.Boards()
	r.numbers = map[uint]uint32{}
	for _, b := range r.boards {
		found := false
		for _, same := range []func(gpuwatch.Board) bool{
			func(k gpuwatch.Board) bool { return k.UUID != "" && k.UUID == b.UUID },
			func(k gpuwatch.Board) bool { return k.PCI != "" && k.PCI == gpuwatch.PCI(b.PCI) },
		} {
			for n, k := range known {
				if !found && same(k) {
					r.numbers[b.ID], found = n, true
					r.Watch().Name(n, k.UUID, k.PCI)
				}
			}
		}
		if !found {
			strange = append(strange, fmt.Sprintf("GPU %d of DCGM (%s, %s) is none that NVML tells", b.ID, b.UUID, b.PCI))
		}
	}
	return strange
}

// tell publishes what was read, and what began or ended with it.
func (r *Reader) tell(read *reading, now time.Time) {
	strange := r.number()
	for _, n := range r.numbers {
		r.place(n)
	}
	r.unread, r.dropping = "", read.Dropped
	r.failures += uint64(max(0, read.Failures))
	gpus, server := map[uint32]*state{}, &state{}
	for _, n := range r.numbers {
		gpus[n] = &state{}
	}
	// The worst comes first: it is what is told of several of a type.
	slices.SortStableFunc(read.Incidents, func(a, b incident) int { return level(&b) - level(&a) })
	for _, i := range read.Incidents {
		n, isGPU, where := r.whose(&i)
		m := meaningOf(i.Code)
		text := fmt.Sprintf("%s%s (DCGM %s)", where, sentence(i.Message), m.name)
		s := sighting{now, m.name, m.severity(i.Failed), text, m.action}
		switch of := gpus[n]; {
		case isGPU && of == nil: // it has no number, which is said
		case isGPU:
			of.add(level(&i), text)
			if !m.theirs {
				r.found(n, m.typ, s)
			}
		default:
			server.add(level(&i), text)
			r.foundServer(s)
		}
	}
	if read.Checked {
		r.expire(now)
	}
	t := r.needs.Tree.Write(now)
	defer t.Close()
	for name, text := range map[string]string{
		"error": "", "no-profiling": read.NoProfiling, "no-health": read.NoHealth, "no-policy": read.NoPolicy,
		"no-number": strings.Join(strange, "; "),
	} {
		wordOrNone(&t, r.leaves[name], text)
	}
	server.tell(&t, r.leaves["health"], r.leaves["incidents"], read.Checked)
	t.Uint(r.leaves["failures"], r.failures)
	t.Uint(r.leaves["stalls"], r.stalls)
	t.Uint(r.leaves["violations"], r.violations)
	t.Uint(r.leaves["violations-dropped"], r.dropped+r.dropping)
	for n, p := range r.places {
		p.none(&t)
		if of := gpus[n]; of != nil {
			of.tell(&t, p.health, p.incidents, read.Checked)
		}
	}
	for _, v := range read.Values {
		if n, ok := r.numbers[v.GPU]; ok {
			r.places[n].tell(&t, v.Field, v.Value)
		}
	}
}

// state is what was found of a part.
type state struct {
	level int
	said  []string
}

// maxSaid bounds how many incidents of a part are told.
const maxSaid = 32

func (s *state) add(level int, text string) {
	s.level = max(s.level, level)
	if len(s.said) < maxSaid {
		s.said = append(s.said, text)
	}
}

func (s *state) tell(t *target.Writer, health, incidents target.Ref, checked bool) {
	if checked {
		t.Uint(health, uint64(s.level))
	} else {
		t.None(health)
	}
	wordOrNone(t, incidents, strings.Join(s.said, "; "))
}

func wordOrNone(t *target.Writer, ref target.Ref, text string) {
	if text == "" {
		t.None(ref)
	} else {
		t.Text(ref, text)
	}
}

// level is that of an incident: 1 is a warning, 2 a failure.
func level(i *incident) int {
	if i.Failed {
		return 2
	}
	return 1
}

// maxSentence bounds what is kept of what DCGM says, in bytes.
const maxSentence = 400

// sentence is what DCGM says in one line.
func sentence(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	return strings.ToValidUTF8(text[:min(len(text), maxSentence)], "")
}

// kinds are those of entities that are no GPU.
var kinds = map[uint]string{
	kindNone: "", 2: "virtual GPU", kindSwitch: "NVSwitch", 4: "GPU instance", 5: "compute instance", kindLink: "link",
	7: "CPU", 8: "CPU core", 9: "ConnectX",
}

// whose says which GPU an incident is of, if it is of one, and where it is otherwise.
func (r *Reader) whose(i *incident) (n uint32, isGPU bool, where string) {
	id := i.Entity
	switch {
	case i.Group == kindGPU:
		isGPU = true
	case i.Group == kindLink && id&0xff == kindGPU: // dcgm_link_t: kind of its end, number, end
		isGPU, where, id = true, fmt.Sprintf("link %d: ", id>>8&0xffff), id>>24&0xff
	}
	if isGPU {
		var ok bool
		if n, ok = r.numbers[id]; !ok {
			n = noNumber
		}
		return n, true, where
	}
	switch kind, ok := kinds[i.Group]; {
	case !ok:
		return 0, false, fmt.Sprintf("entity %d of kind %d: ", i.Entity, i.Group)
	case kind != "":
		return 0, false, fmt.Sprintf("%s %d: ", kind, i.Entity)
	}
	return 0, false, ""
}

// noNumber is that of a GPU that has none.
const noNumber = ^uint32(0)

// found takes note of a condition of a GPU. One that has become worse is told anew.
func (r *Reader) found(n uint32, typ string, s sighting) {
	r.raise(r.seen[n], typ, s, func(on bool, s sighting) {
		r.Watch().Condition(s.at, n, typ, s.code, s.severity, on, s.message, s.action)
	})
	r.see(n, typ, s)
}

// foundServer is found for what is no GPU.
func (r *Reader) foundServer(s sighting) {
	typ := schemas.EventGPUHealth
	r.raise(r.server, typ, s, func(on bool, s sighting) {
		r.Watch().ServerCondition(s.at, typ, s.code, s.severity, on, s.message, s.action)
	})
	r.server[typ] = s
}

func (r *Reader) raise(seen map[string]sighting, typ string, s sighting, tell func(on bool, s sighting)) {
	if had, ok := seen[typ]; ok && had.severity != "" {
		if s.severity.Rank() <= had.severity.Rank() {
			return
		}
		had.at = s.at
		tell(false, had)
	}
	tell(true, s)
}

// expire ends the conditions that were not found for long enough.
func (r *Reader) expire(now time.Time) {
	over := func(seen map[string]sighting, tell func(typ string, s sighting)) {
		for typ, s := range seen {
			if now.Sub(s.at) > r.hold {
				s.message = strings.TrimSpace(s.message + " is not found any more")
				tell(typ, s)
				delete(seen, typ)
			}
		}
	}
	for n, seen := range r.seen {
		over(seen, func(typ string, s sighting) {
			r.Watch().Condition(now, n, typ, s.code, s.severity, false, s.message, s.action)
		})
	}
	over(r.server, func(typ string, s sighting) {
		r.Watch().ServerCondition(now, typ, s.code, s.severity, false, s.message, s.action)
	})
}

// fieldReplays is the first of the fields of NVLinks whose errors are not corrected on the way (dcgm_fields.h,
// DCGM_FI_DEV_NVLINK_REPLAY_ERROR_L0_TOTAL); those before it count wrong checksums.
const fieldReplays = 420

// violated tells of a violation of a policy. The hostengine tells it at each reading for as long as a counter is above its
// limit, which for errors is 0: what is told here is that it has grown. Heat and power are conditions. Single errors of PCIe
// and of checksums are corrected, and told for information: how many are too many the health watches say.
func (r *Reader) violated(v *violation, now time.Time) {
	r.violations++
	defer func() {
		t := r.needs.Tree.Write(now)
		t.Uint(r.leaves["violations"], r.violations)
		t.Close()
	}()
	r.number()
	n, ok := r.numbers[v.GPU]
	if !ok {
		r.needs.Log.Warn("a violation of a GPU that has no number is not told", "dcgm_gpu", v.GPU, "condition", v.Condition, "value", v.Value)
		return
	}
	at := v.Time
	if at.IsZero() || at.After(now) {
		at = now
	}
	grew := func(counter, typ, code string, s schemas.Severity, action, what string) {
		looked := !r.since.IsZero() && now.Sub(r.since) >= r.look
		if from, grew := r.Watch().Counted(n, counter, uint64(v.Value), looked); grew {
			message := fmt.Sprintf("%s: %d to %d (a policy of DCGM)", what, from, v.Value)
			r.Watch().Moment(at, n, typ, code, s, message, action, strconv.FormatUint(uint64(v.Value), 10))
		}
	}
	beyond := func(typ, unit string) {
		message := fmt.Sprintf("%d %s violate a policy of DCGM", v.Value, unit)
		r.found(n, typ, sighting{now, "POLICY", schemas.SeverityWarning, message, faults.ActionCheckMechanicals})
	}
	switch v.Condition {
	case onDBE:
		code := strings.ToUpper(v.Location)
		if code == "DEVICE" || code == "N/A" || code == "" { // as NVML's reader calls it
			code = "DRAM"
		}
		grew(v.Condition+code, schemas.EventGPUECCUE, code, schemas.SeverityCritical, faults.ActionResetGPU, "uncorrected errors of memory")
	case onPCIe:
		grew(v.Condition, schemas.EventGPUPCIeReplay, "replay", schemas.SeverityInfo, faults.ActionIgnore, "replays on PCIe")
	case onRetired:
		what := fmt.Sprintf("retired pages of memory, %d of them for uncorrected errors", v.Other)
		grew(v.Condition, schemas.EventGPURowRemap, "RETIRED_PAGES", schemas.SeverityWarning, faults.ActionContactSupport, what)
	case onNVLink:
		severity, action := schemas.SeverityInfo, faults.ActionIgnore
		if v.Other >= fieldReplays {
			severity, action = schemas.SeverityWarning, faults.ActionResetGPU
		}
		code := fmt.Sprintf("FIELD_%d", v.Other)
		grew(v.Condition+code, schemas.EventGPUNVLinkErrors, code, severity, action, "errors of NVLinks")
	case onXID:
		if had := r.xids[n]; had.Value == v.Value && had.Time.Equal(v.Time) || r.needs.XIDs() || v.Value == 0 || v.Value > 99999 {
			return
		}
		r.xids[n] = *v
		r.Watch().XID(at, n, int(v.Value), fmt.Sprintf("XID %d (a policy of DCGM)", v.Value))
	case onThermal:
		beyond(schemas.EventGPUThermal, "°C")
	case onPower:
		beyond(schemas.EventGPUPower, "W")
	}
}

// place is where what DCGM tells of a GPU stands in the tree.
type place struct {
	health, incidents target.Ref
	fields            map[uint16]spot
}

// spot is a leaf, and whether it is a whole number.
type spot struct {
	ref   target.Ref
	whole bool
}

func (r *Reader) place(n uint32) *place {
	p := r.places[n]
	if p == nil {
		leaf := func(name string) target.Ref {
			return r.needs.Tree.Leaf(fmt.Sprintf("/gpus/gpu[name=gpu%d]/state/%s", n, name))
		}
		p = &place{health: leaf("health"), incidents: leaf("incidents"), fields: map[uint16]spot{}}
		for _, f := range fields {
			p.fields[f.id] = spot{leaf(f.leaf), yang.Leaves["/gpus/gpu/state/"+f.leaf].Type == "uint64"}
		}
		r.places[n] = p
	}
	return p
}

func (p *place) none(t *target.Writer) {
	t.None(p.health)
	t.None(p.incidents)
	for _, s := range p.fields {
		t.None(s.ref)
	}
}

func (p *place) tell(t *target.Writer, field uint16, v float64) {
	switch s, ok := p.fields[field]; {
	case !ok:
	case s.whole:
		t.Uint(s.ref, uint64(max(0, v)))
	default:
		t.Float(s.ref, math.Round(v*1e6)/1e6)
	}
}

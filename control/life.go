package control

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"auspex/control/messages"
	"auspex/control/policy"
	"auspex/internal/run"
	"auspex/internal/store/records"
	"auspex/schemas"
)

// Life says what collectors hear of a device. Whoever repairs a part believes
// nobody else.
type Life interface {
	// Follow hands over what is read of a device from now on, and the events of it,
	// in order for each collector, until ctx is done (nil) or something may have
	// been missed (an error).
	Follow(ctx context.Context, device string, observe func(Observation)) error
}

// Observation is that a part was read, or an event of it.
type Observation struct {
	Resource  string // the part, as the inventory names it
	Kind      string // of the part
	Collector string // who read it
	Time      time.Time
	Observed  time.Time      // by the collector's clock; Time is by the device's
	Event     *schemas.Event // nil for a reading
	Values    []Value        // of a reading
}

// Value is one number that a part was read with.
type Value struct {
	Series string // its metric, and what tells it from others of the part behind [SeriesLabels]
	Number float64
}

// SeriesLabels parts the name of a metric from the labels of a series.
const SeriesLabels = "\x00"

// views tells the view of a collector, or of a source of events; nil knows nobody.
type views func(name string) schemas.View

func (w views) of(name string) schemas.View {
	if w == nil {
		return schemas.ViewNone
	}
	return w(name)
}

// ofAlert is the view of who saw what an alert tells. A rule has no eyes: it
// names the collector whose readings it judged, or nobody.
func (w views) ofAlert(a *schemas.Alert) schemas.View {
	if a.Source == schemas.SourceRule || a.Source == schemas.SourceCollector {
		return w.of(a.Attrs["collector"])
	}
	return w.of(a.Source)
}

// usualView is who reads a kind of part, where the evidence does not say.
func usualView(kind string) schemas.View {
	switch kind {
	case schemas.KindPSU, schemas.KindFan, schemas.KindBMC:
		return schemas.ViewBoard
	case schemas.KindPort, schemas.KindSwitch:
		return schemas.ViewNetwork
	}
	return schemas.ViewHost
}

// vigil listens to a part while it is repaired.
type vigil struct {
	target, kind, server string
	views                views
	stop                 context.CancelFunc

	// Of the climb alone, once evidence has been read.
	from  schemas.View    // who saw the fault
	types map[string]bool // of the events that told of it
	known bool

	mu        sync.Mutex
	since     time.Time // when the effect of the repair was seen; zero before
	restarted time.Time // when the repair was sent that restarts the server, or its drivers; zero where it does not
	silences  bool      // what runs on the server falls silent with it
	heard     time.Time // the first reading of anything on the server
	quiet     time.Duration
	lags      map[string]time.Duration // by collector: how far the device's clock was behind before the repair
	pulses    map[string]*pulse        // by collector that reads through the host
	runs      map[string]*reading      // by collector
	signs     map[signKey]time.Time    // when each was observed last
}

// pulse is how often a collector reads a server. What runs on one that restarts falls
// silent; what goes on being read does not run there.
type pulse struct {
	last    time.Time
	gaps    []time.Duration // from one reading to the next, but for the silence; the newest
	silence time.Duration   // the longest that ended after the restart was sent
}

// missed is how long a silence is, in usual times between two readings, for one to have
// been missed: two, less what a busy collector is late by.
const missed = 1.8

const gapsKept = 64

// silent compares with the median: that a server hung for a while before says nothing of
// how often it is read.
func (p *pulse) silent() bool {
	if p == nil || len(p.gaps) < 2 {
		return false
	}
	sorted := slices.Sorted(slices.Values(p.gaps))
	return float64(p.silence) > missed*float64(sorted[len(sorted)/2])
}

// reading is what one collector has read since the effect. A cache in front of a
// source, or the driver's memory of a part that is gone, repeats numbers; what
// works is read with others after a while.
type reading struct {
	first, last time.Time // of the part, in a row
	measured    time.Time // the newest stamp of the part, by our clock
	moved       time.Time // the last of the part with another number than the one before
	others      time.Time // the last of any other part with one
	peers       time.Time // of them, the last of the part's kind
	overtook    int       // how often its stamps overtook our clock
	values      map[valueKey]*number
	meters      map[string]*meter // by part
}

type valueKey struct{ resource, series string }

// number is what a series was read with since the effect.
type number struct {
	value       float64
	first, last time.Time
	grown       time.Time // the last time that it was more than before
}

// moves keeps the numbers, and reports whether one differs from the one before.
func (r *reading) moves(h Observation) (moved bool) {
	for _, x := range h.Values {
		k := valueKey{h.Resource, x.Series}
		n := r.values[k]
		if n == nil {
			n = &number{value: x.Number, first: h.Observed}
			r.values[k] = n
		}
		moved = moved || n.value != x.Number
		if x.Number > n.value {
			n.grown = h.Observed
		}
		n.value, n.last = x.Number, h.Observed
	}
	return moved
}

// growth is when a metric of a part was last read with more than before, zero where it has
// not been, and for how long it has been read.
func (r *reading) growth(resource, metric string) (last time.Time, watched time.Duration) {
	for k, n := range r.values {
		if name, _, _ := strings.Cut(k.series, SeriesLabels); k.resource != resource || name != metric {
			continue
		}
		watched = max(watched, n.last.Sub(n.first))
		if n.grown.After(last) {
			last = n.grown
		}
	}
	return last, watched
}

type signKey struct {
	typ, code string
	severity  schemas.Severity
}

func newVigil(server, target, kind string, v views) *vigil {
	return &vigil{
		target: target, kind: kind, server: server, views: v, lags: map[string]time.Duration{}, pulses: map[string]*pulse{},
		runs: map[string]*reading{}, signs: map[signKey]time.Time{},
	}
}

// restarts tells that the server is restarted, or its drivers alone: a repair that does so
// was sent at the time, and no driver counts from before.
func (v *vigil) restarts(at time.Time, silences bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !at.Equal(v.restarted) {
		for _, p := range v.pulses {
			p.silence = 0
		}
	}
	v.restarted, v.silences = at, silences
}

// repaired begins the quiet time: only what is later counts.
func (v *vigil) repaired(at time.Time, quiet time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.since, v.quiet = at, quiet
	clear(v.runs)
	clear(v.signs)
}

// deaf forgets what was read, since something may have been missed.
func (v *vigil) deaf() {
	v.mu.Lock()
	defer v.mu.Unlock()
	clear(v.runs)
	clear(v.pulses)
	v.heard = time.Time{}
}

// beat notes that a collector read something of the server.
func (v *vigil) beat(h Observation) {
	if v.heard.IsZero() {
		v.heard = h.Observed
	}
	if v.views.of(h.Collector) != schemas.ViewHost {
		return
	}
	p, known := v.pulses[h.Collector]
	if !known { // silent for as long as others were read
		p = &pulse{last: v.heard}
		v.pulses[h.Collector] = p
	}
	gap := h.Observed.Sub(p.last)
	if gap <= 0 {
		return // of the same round
	}
	p.last = h.Observed
	if !v.restarted.IsZero() && h.Observed.After(v.restarted) && gap > p.silence {
		p.silence, gap = gap, p.silence
	}
	if gap > 0 && known {
		if len(p.gaps) == gapsKept {
			p.gaps = slices.Delete(p.gaps, 0, gapsKept/2)
		}
		p.gaps = append(p.gaps, gap)
	}
}

// hears reports whether anything was read of the server since somebody listens.
func (v *vigil) hears() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return !v.heard.IsZero()
}

// concerns reports whether what was heard of a resource is said of the part. A
// server speaks through all of its parts, a board controller through what it reads.
func (v *vigil) concerns(h Observation) bool {
	switch {
	case h.Resource == v.target:
		return true
	case h.Event != nil:
		return false
	case v.kind == schemas.KindBMC:
		return v.views.of(h.Collector) == schemas.ViewBoard
	}
	return v.target == v.server
}

func (v *vigil) observe(h Observation) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if h.Event == nil {
		v.beat(h)
	}
	if v.since.IsZero() || !h.Observed.After(v.since) {
		if lag, ok := v.lags[h.Collector]; h.Event == nil && (!ok || h.Observed.Sub(h.Time) < lag) {
			v.lags[h.Collector] = h.Observed.Sub(h.Time)
		}
		return
	}
	if ev := h.Event; ev != nil {
		if ev.Type == schemas.EventAccessRefused {
			return // of our password, not of the part
		}
		// An old record that is read late delays the verdict, a new one whose clock
		// is wrong must not be missed: observation alone counts.
		if v.concerns(h) && ev.State != schemas.StateCleared && ev.Severity.Rank() >= schemas.SeverityWarning.Rank() {
			v.signs[signKey{ev.Type, ev.Code, ev.Severity}] = h.Observed
		}
		return
	}
	if _, ok := v.lags[h.Collector]; !ok && h.Time.After(h.Observed) {
		v.lags[h.Collector] = h.Observed.Sub(h.Time) // a clock that is ahead, and was not heard before
	}
	measured := h.Time.Add(v.lags[h.Collector])
	if !measured.After(v.since) {
		return // it was measured before, and read or sent late
	}
	r := v.runs[h.Collector]
	if r == nil {
		r = &reading{values: map[valueKey]*number{}, meters: map[string]*meter{}}
		v.runs[h.Collector] = r
	}
	// A clock may be set once, by a restart; one that overtakes ours again is a
	// recording that runs too fast.
	if ahead := measured.Sub(h.Observed); ahead > v.quiet/2 {
		v.lags[h.Collector] -= ahead
		measured = h.Observed
		r.overtook++
	}
	moved := r.moves(h)
	switch {
	case v.concerns(h):
		if moved && h.Observed.After(r.moved) {
			r.moved = h.Observed
		}
		if measured.After(r.measured) {
			r.measured = measured
		}
		r.meter(h)
		silent := h.Observed.Sub(r.last) > v.quiet && r.peers.After(r.last)
		if r.first.IsZero() || silent {
			r.first = h.Observed
		}
		if h.Observed.After(r.last) {
			r.last = h.Observed
		}
	case moved:
		if h.Observed.After(r.others) {
			r.others = h.Observed
		}
		if h.Kind == v.kind && h.Observed.After(r.peers) {
			r.peers = h.Observed
		}
	}
}

// fresh is when a collector last showed that it reads and does not repeat. A driver
// remembers a part that is gone, so that on a host its own numbers must move. A board
// controller or a switch measures each part itself and says where it cannot (IPMI 2.0,
// section 35.14, "reading/state unavailable"): a number that stands still is one,
// while others of the same controller move.
func (v *vigil) fresh(r *reading) time.Time {
	if v.from != schemas.ViewHost && r.others.After(r.moved) {
		return r.others
	}
	return r.moved
}

// still reports that a collector's numbers do not show that it reads.
func (v *vigil) still(r *reading) bool { return r.last.Sub(v.fresh(r)) > v.quiet/2 }

// doubt is how little a collector shows of the part, beside others that read it as well: one
// that tells nothing but what never changes says less than one whose numbers move.
func (v *vigil) doubt(now time.Time, r *reading) int {
	switch {
	case now.Sub(r.last) > v.quiet:
		return 2
	case v.still(r):
		return 1
	}
	return 0
}

// recorded says why the readings of a collector cannot be of now, or are not known to be.
func (v *vigil) recorded(by string, r *reading) (id string, yes bool) {
	counted := false
	for _, m := range r.meters {
		if !v.restarted.IsZero() && m.olderThan(v.restarted) {
			return messages.NotRestarted, true
		}
		if m.races(v.quiet / 2) {
			return messages.WrongPace, true
		}
		counted = counted || m.known > 0
	}
	switch {
	case r.overtook > 1:
		return messages.WrongPace, true
	case v.restarted.IsZero() || !v.silences || v.from != schemas.ViewHost || v.pulses[by].silent():
		return "", false
	case v.heard.Before(v.restarted):
		return messages.NeverSilent, true
	}
	return messages.RestartUnheard, !counted
}

// finding is what is known of a repaired part.
type finding struct {
	cured    bool
	sick     bool // it was heard of, or its like were: silence and signs are its own
	quiet    time.Duration
	observed schemas.Sentence
}

// isSign reports whether an event of the part is a sign: of a type that spoke of the
// fault, or bad enough by itself.
func (v *vigil) isSign(typ string, s schemas.Severity) bool {
	return v.types[typ] || s.Rank() >= schemas.SeverityError.Rank()
}

// growth is when one of the counters of an alert was last seen to grow since the effect, zero
// where none was, and whether each was read for the quiet time: see [schemas.AttrGrew].
func (v *vigil) growth(a *schemas.Alert) (last time.Time, watched bool) {
	for metric := range strings.FieldsSeq(a.Attrs[schemas.AttrGrew]) {
		var longest time.Duration
		for name, r := range v.runs {
			if v.views.of(name) != v.from {
				continue
			}
			at, d := r.growth(a.Resource, metric)
			longest = max(longest, d)
			if at.After(last) {
				last = at
			}
		}
		if longest < v.quiet {
			return time.Time{}, false
		}
		watched = true
	}
	return last, watched
}

// readLate is how long after it was written a record of a board controller may be read: while Auspex or the way to it was away.
// Beyond that it is the controller's clock that is wrong.
const readLate = time.Hour

// written is when a board controller wrote what an alert tells, by its clock, which whoever read it holds against ours; when it was
// read where that says nothing.
func written(a *schemas.Alert) time.Time {
	at := a.Time
	if skew, err := strconv.ParseFloat(a.Attrs[schemas.AttrClockSkew], 64); err == nil {
		at = at.Add(-time.Duration(skew * float64(time.Second)))
	}
	if late := a.Observed.Sub(at); late < 0 || late > readLate {
		return a.Observed
	}
	return at
}

// judge weighs what was heard since the effect, beside the alerts that fire on the
// server now.
func (v *vigil) judge(now time.Time, firing []schemas.Alert, ours func(id string) bool) finding {
	v.mu.Lock()
	defer v.mu.Unlock()
	best, by := reading{}, ""
	var peers time.Time
	var peersBy string
	for name, r := range v.runs {
		if v.views.of(name) != v.from {
			continue
		}
		more := v.doubt(now, r) - v.doubt(now, &best)
		if !r.first.IsZero() && (by == "" || more < 0 || more == 0 && r.first.Before(best.first)) {
			best, by = *r, name
		}
		if r.peers.After(peers) {
			peers, peersBy = r.peers, name
		}
	}
	var sign signKey
	var signed time.Time
	note := func(k signKey, at time.Time) {
		if v.isSign(k.typ, k.severity) && at.After(v.since) && at.After(signed) {
			sign, signed = k, at
		}
	}
	for k, at := range v.signs {
		note(k, at)
	}
	var raised *schemas.Alert
	for i := range firing {
		a := &firing[i]
		if a.External() || a.Type == schemas.EventAccessRefused {
			continue // it is no sign of the part, and keeps no repair from counting
		}
		own := a.Resource == v.target && v.isSign(a.Type, a.Severity)
		observed, still := a.Observed, a.State == schemas.StateRaised
		// A rule on what grew within a window fires until that has passed, and may begin to
		// when all is well again. Who has read the counters since knows whether they grow.
		if grown, watched := v.growth(a); watched {
			observed, still = grown, still && !own && !grown.IsZero()
		}
		if own {
			note(signKey{a.Type, a.Code, a.Severity}, observed)
		}
		if !own && !ours(a.ID) {
			continue
		}
		// Many board controllers never write that a condition has ended: what one told
		// before the repair is not held against what the host reads.
		old := v.views.ofAlert(a) == schemas.ViewBoard && v.from == schemas.ViewHost && !written(a).After(v.since)
		if still && !old {
			raised = a
		}
	}
	recording, recorded := v.recorded(by, &best)
	f := finding{sick: !v.fresh(&best).IsZero() || !peers.IsZero() || !signed.IsZero()}
	began := best.first
	if signed.After(began) {
		began = signed
	}
	if !best.first.IsZero() {
		f.quiet = max(0, best.last.Sub(began))
		if measured := best.measured.Sub(began); measured < f.quiet { // heard for longer than measured
			f.quiet = max(0, measured)
		}
	}
	args := messages.Args{"part": v.target, "server": v.server, "collector": by}
	switch {
	case best.first.IsZero() && !peers.IsZero():
		args["collector"] = peersBy
		f.observed = messages.New(messages.PartSilent, args)
	case best.first.IsZero():
		f.observed = messages.New(messages.SourceSilent, args)
	case raised != nil:
		f.quiet = 0
		f.observed = messages.New(messages.StillRaised, messages.Args{"part": raised.Resource, "type": raised.Type})
	case now.Sub(best.last) > v.quiet:
		f.observed = messages.New(messages.SilentAgain, args)
	case v.still(&best):
		f.observed = messages.New(messages.StandsStill, args)
	case recorded: // it says nothing of the part, neither that it works nor that it does not
		f.quiet, f.sick = 0, !signed.IsZero()
		f.observed = messages.New(recording, args)
	case f.quiet >= v.quiet:
		f.cured = true
		f.observed = messages.New(messages.Lives, with(messages.Age(f.quiet), args))
	case !signed.IsZero() && signed.Equal(began):
		f.observed = messages.New(messages.SignSince, messages.Args{
			"part": v.target, "type": sign.typ, "code": sign.code, "time": signed.UTC().Format(time.TimeOnly),
		})
	default:
		f.observed = messages.New(messages.NotLong, with(messages.Age(f.quiet), args))
	}
	return f
}

func with(a, b messages.Args) messages.Args {
	maps.Copy(a, b)
	return a
}

// listenFor bounds the wait for a server to be heard before it is restarted.
const listenFor = 30 * time.Second

// listens reports whether a server that is to be restarted is heard, so that its
// silence will be noticed. One that says nothing for long will not.
func (c *Controller) listens(ctx context.Context, k *climb, r policy.Rung, since time.Time) bool {
	return !r.Silences() || c.d.Life == nil || c.attend(ctx, k).hears() || c.d.Now().Sub(since) > min(listenFor, r.Verify)
}

// followAgain is the wait before a device is followed again.
const followAgain = time.Second

// attend begins to listen to the part that a case treats.
func (c *Controller) attend(ctx context.Context, k *climb) *vigil {
	if k.vigil != nil {
		return k.vigil
	}
	ctx, cancel := context.WithCancel(ctx)
	v := newVigil(k.Subject, k.Target, c.d.Inventory.Kind(k.Target), c.d.View)
	v.stop = cancel
	k.vigil = v
	if c.d.Life == nil {
		return v
	}
	c.wg.Go(func() {
		for {
			err := c.d.Life.Follow(ctx, k.Subject, v.observe)
			if ctx.Err() != nil {
				return
			}
			v.deaf()
			c.d.Log.Warn("lost the readings of a server under repair; its quiet time restarts", "server", v.server, "error", err)
			if run.Sleep(ctx, followAgain) != nil {
				return
			}
		}
	})
	return v
}

// dismiss ends the vigil of a case.
func dismiss(k *climb) {
	if k.vigil != nil {
		k.vigil.stop()
		k.vigil = nil
	}
}

// examine judges the part that a case treats.
func (c *Controller) examine(ctx context.Context, k *climb) (finding, error) {
	v := k.vigil
	inc, _, err := c.d.Records.Incident(ctx, k.Incident)
	if err != nil {
		return finding{}, err
	}
	ids := map[string]bool{}
	for _, id := range inc.Events {
		ids[id] = true
	}
	if !v.known {
		if err := c.evidence(ctx, v, inc); err != nil {
			return finding{}, err
		}
	}
	firing, err := c.alerts(ctx, records.Filter{Server: k.Subject, Status: schemas.AlertFiring})
	if err != nil {
		return finding{}, err
	}
	return v.judge(c.d.Now(), firing, func(id string) bool { return ids[id] }), nil
}

// evidence finds who saw the fault of a part, and by which signs.
func (c *Controller) evidence(ctx context.Context, v *vigil, inc schemas.Incident) error {
	types, saw := map[string]bool{}, map[schemas.View]bool{}
	for _, id := range inc.Events {
		a, found, err := c.d.Records.Alert(ctx, id)
		if err != nil {
			return err
		}
		if found && a.Resource == v.target && !a.External() && a.Type != schemas.EventAccessRefused {
			types[a.Type] = true
			saw[v.views.ofAlert(&a)] = true
		}
	}
	v.from = usualView(v.kind)
	for _, closest := range []schemas.View{schemas.ViewNetwork, schemas.ViewBoard, schemas.ViewHost} {
		if saw[closest] {
			v.from = closest
		}
	}
	v.types, v.known = types, true
	return nil
}

// alerts lists all pages.
func (c *Controller) alerts(ctx context.Context, f records.Filter) (all []schemas.Alert, err error) {
	for f.Limit = 1000; ; {
		page, next, err := c.d.Records.Alerts(ctx, f)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if next == "" {
			return all, nil
		}
		f.After = next
	}
}

package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"auspex/api/stream"
	"auspex/internal/bus"
	"auspex/internal/cmdb"
	"auspex/internal/fleet"
	"auspex/internal/store/records"
	"auspex/schemas"
)

const (
	tickEvery     = 2 * time.Second
	reloadEvery   = 10 * time.Second // even when nothing was heard
	readingsEvery = 3 * time.Second
	historySpan   = 2 * time.Hour
	historyStep   = 20 * time.Second
	maxAlerts     = 5000 // read at start
	maxActions    = 500
	maxOpen       = 1000
	queryTimeout  = 5 * time.Second
)

// live keeps the current state in memory: what is open in the records, what the
// servers measure, and which devices are silent. It is refreshed when the bus
// says that something changed, and tells the stream.
type live struct {
	deps  Deps
	hub   *stream.Hub
	meter *meter

	mu       sync.RWMutex
	names    *cmdb.Snapshot // what index was made of
	index    *fleet.Index
	facts    fleet.Facts
	repaired map[string]bool
	states   []fleet.State
	gpus     []string
	derived  *fleet.States
	shown    []fleet.Reading // what the stream told last, by server
	bins     *fleet.Bins
	seen     map[string]struct{} // alerts in bins that the bus may repeat

	pending  sync.Mutex
	dirty    map[string]bool // lists of records to read again
	changed  map[string]bool // topics to tell the stream
	readAt   time.Time
	loadedAt time.Time
	sentAt   time.Time
	heard    int64               // the last row of the audit
	told     map[string]bool     // notices that the stream has had; nil before the first look
	lookedAt time.Time           // for them
	moved    map[string][]string // how far what runs is, by list
}

func newLive(deps Deps, hub *stream.Hub, m *meter) *live {
	l := &live{
		deps: deps, hub: hub, meter: m, bins: fleet.NewBins(historyStep, historySpan), seen: make(map[string]struct{}),
		dirty: make(map[string]bool), changed: make(map[string]bool), heard: -1, moved: make(map[string][]string), lookedAt: time.Now(),
	}
	l.facts.Silent = make(map[string]string)
	l.derive()
	return l
}

// load reads everything once. What is changed from here on is told: readers have what they read themselves.
func (l *live) load(ctx context.Context) error {
	if err := l.hear(ctx); err != nil {
		return err
	}
	now := time.Now()
	f := records.Filter{Since: now.Add(-historySpan), Limit: 1000}
	var recent []schemas.Alert
	for len(recent) < maxAlerts {
		page, next, err := l.deps.Records.Alerts(ctx, f)
		if err != nil {
			return err
		}
		recent = append(recent, page...)
		if f.After = next; next == "" {
			break
		}
	}
	l.mu.Lock()
	for _, a := range slices.Backward(recent) {
		l.note(a, now)
	}
	l.mu.Unlock()
	if err := l.reload(ctx, "incidents", "predictions", "actions"); err != nil {
		return err
	}
	l.set(func() { l.derive() })
	return nil
}

// note takes one alert into the bins and into what is known of contact.
func (l *live) note(a schemas.Alert, now time.Time) {
	if kind, ok := strings.CutSuffix(a.Type, ".unreachable"); ok && kind != "agent" && !a.External() { // who may post says nothing of our own contact
		device := cmp.Or(a.Server, l.index.Device(a.Resource), a.Resource)
		if a.Status == schemas.AlertResolved || a.State == schemas.StateCleared {
			delete(l.facts.Silent, device)
		} else {
			l.facts.Silent[device] = kind
		}
	}
	if a.Status == schemas.AlertResolved {
		return
	}
	if _, again := l.seen[a.ID]; again {
		return
	}
	if len(l.seen) > 4*maxAlerts {
		clear(l.seen)
	}
	l.seen[a.ID] = struct{}{}
	l.bins.Add(a.Observed, now)
}

func (l *live) reload(ctx context.Context, lists ...string) error {
	for _, list := range lists {
		switch list {
		case "incidents":
			v, _, err := l.deps.Records.Incidents(ctx, records.Filter{Status: records.StatusOpen, Limit: maxOpen})
			if err != nil {
				return err
			}
			for k := range v { // what the map needs
				v[k].Lanes, v[k].Graph, v[k].Sentences, v[k].Events = nil, nil, nil, nil
			}
			l.set(func() { l.facts.Incidents = v })
		case "predictions":
			v, _, err := l.deps.Records.Predictions(ctx, records.Filter{Status: schemas.PredictionOpen, Limit: maxOpen})
			if err != nil {
				return err
			}
			l.set(func() { l.facts.Predictions = v })
		case "actions":
			v, _, err := l.deps.Records.Actions(ctx, records.Filter{Limit: maxActions})
			if err != nil {
				return err
			}
			l.set(func() { l.facts.Actions = v; l.repaired = fleet.Repaired(v) })
		}
	}
	l.loadedAt = time.Now()
	return nil
}

func (l *live) set(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

// derive computes the states of all servers; the caller holds the lock.
func (l *live) derive() (turned []int) {
	if s := l.deps.Inventory.Snapshot(); l.names == nil || s.Version != l.names.Version {
		l.names, l.index = s, fleet.NewIndex(s)
		l.states = nil
	}
	l.derived = l.index.States(l.facts)
	states, gpus := l.derived.Servers(l.index)
	if len(l.states) == len(states) {
		for i := range states {
			if l.states[i] != states[i] || l.gpus[i] != gpus[i] {
				turned = append(turned, i)
			}
		}
	}
	l.states, l.gpus = states, gpus
	return turned
}

// renew takes up a change of the inventory at once.
func (l *live) renew() {
	l.mu.Lock()
	before := l.names
	l.derive()
	changed := l.names != before
	l.mu.Unlock()
	if changed {
		l.mark("fleet", "servers")
	}
}

// lookEvery is how soon a change of the inventory by another process is taken up; it costs most where
// many follow one another.
const lookEvery = 200 * time.Millisecond

// run keeps the state fresh until ctx is done.
func (l *live) run(ctx context.Context) {
	var wg sync.WaitGroup
	if l.deps.Subscriber != nil {
		for _, topic := range []string{schemas.TopicAlerts, schemas.TopicIncidents, schemas.TopicPredictions, schemas.TopicOutcomes} {
			wg.Go(func() { l.listen(ctx, topic) })
		}
	}
	tick, beat, look := time.NewTicker(500*time.Millisecond), time.NewTicker(tickEvery), time.NewTicker(lookEvery)
	defer tick.Stop()
	defer beat.Stop()
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			wg.Wait()
			return
		case <-beat.C:
			_ = l.hub.Send("tick", map[string]int64{"time": time.Now().UnixMilli()}, false)
		case <-look.C:
			if l.deps.Inventory.Snapshot().Version != l.directory().Version {
				l.renew()
			}
		case <-tick.C:
			if err := l.refresh(ctx); err != nil && ctx.Err() == nil {
				l.meter.refresh.Inc()
				l.deps.Log.Warn("cannot refresh the current state", "error", err)
			}
		}
	}
}

// listen marks what a topic changes. A bus that fails is tried again.
func (l *live) listen(ctx context.Context, topic string) {
	sub := bus.Subscription{Topic: topic, FromNewest: true}
	_ = bus.Follow(ctx, l.deps.Subscriber, sub, l.deps.Log, func(_ context.Context, msgs []bus.Message) error {
		l.onMessages(topic, msgs)
		return nil
	}, func(error) { l.meter.listen.Inc() }) // a bus that is closed has nothing more to say
}

// mark says that lists changed which the bus does not speak of.
func (l *live) mark(lists ...string) {
	l.pending.Lock()
	defer l.pending.Unlock()
	for _, list := range lists {
		l.changed[list] = true
	}
}

func (l *live) onMessages(topic string, msgs []bus.Message) {
	l.pending.Lock()
	defer l.pending.Unlock()
	switch topic {
	case schemas.TopicAlerts:
		now := time.Now()
		l.mu.Lock()
		for _, m := range msgs {
			var a schemas.Alert
			if json.Unmarshal(m.Value, &a) != nil {
				l.meter.malformed.Inc()
				continue
			}
			l.note(a, now)
			if len(l.changed) < 64 {
				l.changed["servers/"+cmp.Or(a.Server, a.Resource)] = true
			}
		}
		l.mu.Unlock()
		l.changed["alerts"], l.changed["fleet"] = true, true
	case schemas.TopicIncidents:
		l.dirty["incidents"], l.changed["incidents"], l.changed["fleet"] = true, true, true
	case schemas.TopicPredictions:
		l.dirty["predictions"], l.changed["predictions"], l.changed["servers"] = true, true, true
	case schemas.TopicOutcomes:
		l.dirty["actions"], l.changed["actions"], l.changed["incidents"], l.changed["audit"] = true, true, true, true
		l.changed["operations"] = true
	}
}

// refresh reads what changed, derives the states and tells the stream, at most
// once a second.
func (l *live) refresh(ctx context.Context) error {
	now := time.Now()
	if now.Sub(l.sentAt) < 900*time.Millisecond {
		return nil
	}
	l.sentAt = now
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	deaf := l.hear(ctx)
	l.pending.Lock()
	lists := slices.Collect(maps.Keys(l.dirty))
	topics := slices.Sorted(maps.Keys(l.changed))
	clear(l.dirty)
	clear(l.changed)
	l.pending.Unlock()
	if now.Sub(l.loadedAt) > reloadEvery {
		lists = []string{"incidents", "predictions", "actions"}
	}
	if err := l.reload(ctx, lists...); err != nil {
		l.pending.Lock()
		for _, list := range lists {
			l.dirty[list] = true
		}
		for _, topic := range topics {
			l.changed[topic] = true
		}
		l.pending.Unlock()
		return err
	}
	fresh, err := false, deaf
	if l.hub.Readers() > 0 && l.due(now) {
		unread := l.read(ctx)
		fresh, err = unread == nil, errors.Join(err, unread)
	}
	l.mu.Lock()
	before := l.names
	turned := l.derive()
	if l.names != before {
		topics = append(topics, "fleet", "servers")
	}
	rows := l.rows(turned, fresh)
	l.mu.Unlock()
	if len(rows) > 0 {
		_ = l.hub.Send("servers", rows, false)
	}
	if len(topics) > 0 {
		_ = l.hub.Send("changed", map[string]any{"topics": topics}, true)
	}
	return err
}

// rows are the columns of servers that changed: their state, or, where readings
// are new, what they measure by more than a reader would see.
func (l *live) rows(turned []int, fresh bool) [][]any {
	if len(l.shown) != len(l.states) {
		l.shown = make([]fleet.Reading, len(l.states))
	}
	if fresh {
		for i, s := range l.index.Servers {
			now, was := l.facts.Readings[s.ID], l.shown[i]
			if moved(was.Temperature, now.Temperature, 1) || moved(was.Power, now.Power, 100) || moved(was.Load, now.Load, 2) {
				turned = append(turned, i)
			}
		}
		slices.Sort(turned)
		turned = slices.Compact(turned)
	}
	out := make([][]any, 0, len(turned))
	for _, i := range turned {
		r := l.facts.Readings[l.index.Servers[i].ID]
		l.shown[i] = r
		out = append(out, []any{i, l.states[i], l.gpus[i], whole(r.Temperature), whole(r.Power), whole(r.Load)})
	}
	return out
}

func moved(was, now *float64, by float64) bool {
	if was == nil || now == nil {
		return was != now
	}
	return math.Abs(*was-*now) >= by
}

// readingQueries are what the map shows of a server. Where several collectors
// report a part, one of them counts.
var readingQueries = [...]string{
	`max by (server) (DCGM_FI_DEV_GPU_TEMP)`,
	`sum by (server) (max by (server, resource) (auspex_psu_input_power_watts)) or max by (server) (auspex_server_power_watts) or sum by (server) (DCGM_FI_DEV_POWER_USAGE)`,
	`avg by (server) (DCGM_FI_DEV_GPU_UTIL)`,
}

// read asks the hot window what every server measures now.
func (l *live) read(ctx context.Context) error {
	readings := make(map[string]fleet.Reading)
	for k, q := range readingQueries {
		series, err := l.deps.Querier.Instant(ctx, q, time.Now())
		if err != nil {
			return fmt.Errorf("read what servers measure: %w", err)
		}
		for _, s := range series {
			if len(s.Points) == 0 {
				continue
			}
			v, r := s.Points[len(s.Points)-1].V, readings[s.Labels["server"]]
			switch k {
			case 0:
				r.Temperature = &v
			case 1:
				r.Power = &v
			case 2:
				r.Load = &v
			}
			readings[s.Labels["server"]] = r
		}
	}
	l.set(func() { l.facts.Readings = readings })
	return nil
}

// current returns the index and the states of now. Both are immutable.
func (l *live) current() (*fleet.Index, *fleet.States, fleet.Facts) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.index, l.derived, l.facts
}

// directory returns the inventory that the index is of.
func (l *live) directory() *cmdb.Snapshot {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.names
}

// due reports whether what the servers measure should be read again, and takes
// the turn.
func (l *live) due(now time.Time) bool {
	l.pending.Lock()
	defer l.pending.Unlock()
	if l.deps.Querier == nil || now.Sub(l.readAt) < readingsEvery {
		return false
	}
	l.readAt = now
	return true
}

// freshen reads what servers measure for an answer when nobody listens to the
// stream.
func (l *live) freshen(ctx context.Context) {
	if !l.due(time.Now()) {
		return
	}
	// It is read for everybody: that this caller leaves does not end it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerWithin)
	defer cancel()
	if err := l.read(ctx); err != nil {
		l.meter.refresh.Inc()
		l.deps.Log.Warn("cannot refresh readings", "error", err)
	}
}

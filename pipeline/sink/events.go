package sink

import (
	"context"
	"time"

	"auspex/internal/bus/wire"
	"auspex/internal/store/clickhouse"
	"auspex/pipeline/dedup"
	"auspex/schemas"
)

// events writes the table events, each id once.
type events struct {
	batches
	enrich Enricher
	db     History
	limit  int

	// ids are the newest ids of the table and those on their way to it; complete
	// says that they are all.
	ids      *dedup.Window
	complete bool
}

// forEver is the age of ids: their number bounds them, not time.
const forEver = 100 * 365 * 24 * time.Hour

func newEvents(d *wire.Decoder, e Enricher, db History, limit int, m *metrics) *events {
	return &events{batches: batches{d, dedup.NewBatches(), m}, enrich: e, db: db, limit: limit}
}

func (*events) topic() string    { return schemas.TopicEvents }
func (*events) tables() []string { return []string{"events"} }
func (e *events) block() block   { return &eventBlock{e: e} }

func (e *events) prepare(ctx context.Context) error {
	ids, all, err := e.db.RecentEventIDs(ctx, e.limit)
	if err != nil {
		return err
	}
	e.ids, e.complete = dedup.New(forEver, e.limit), all
	for _, id := range ids {
		e.ids.Add(id, time.Now())
	}
	return nil
}

// eventBlock gathers rows of events.
type eventBlock struct {
	e *events

	id, source, kind, code, severity, state []string
	time, seen                              []time.Time
	place                                   places
	partKind, device, message               []string
	attrs                                   []map[string]string
	origin                                  origins
	ask                                     bool // the table may hold ids that are not remembered
}

func (b *eventBlock) add(r record, partition uint32, position int64, has func(string) bool) {
	rec := r.(batchRecord)
	if len(rec.Events) == 0 || has("events") {
		return
	}
	for _, w := range rec.Events {
		ev := schemas.EventFromWire(w)
		if ev.Resource == "" {
			ev.Resource = rec.Device
		}
		b.e.enrich.Normalize(&ev, rec.at)
		now := time.Now()
		if b.e.ids.Seen(ev.ID, now) {
			b.e.metrics.skipped.WithLabelValues(schemas.TopicEvents, "read_twice").Inc()
			continue
		}
		b.ask = b.ask || !b.e.complete
		if b.e.ids.Len() >= b.e.limit {
			b.e.complete = false
		}
		b.e.ids.Add(ev.ID, now)
		if ev.Observed.Unix()/86400 != rec.at.Unix()/86400 {
			ev.Observed = rec.at // a message lies in one partition of the table
		}
		at := b.e.enrich.Event(&ev)
		b.id = append(b.id, ev.ID)
		b.time = append(b.time, ev.Time)
		b.seen = append(b.seen, ev.Observed)
		b.source = append(b.source, ev.Source)
		b.kind = append(b.kind, ev.Type)
		b.code = append(b.code, ev.Code)
		b.severity = append(b.severity, string(ev.Severity))
		b.state = append(b.state, ev.State)
		b.place.add(&at, rec.Collector)
		b.partKind = append(b.partKind, at.Kind)
		b.device = append(b.device, rec.Device)
		b.message = append(b.message, ev.Message)
		b.attrs = append(b.attrs, ev.Attrs)
		b.origin.add(partition, position)
	}
}

func (b *eventBlock) rows() int { return len(b.id) }

// settle asks the table for ids that are older than what is remembered.
func (b *eventBlock) settle(ctx context.Context) error {
	if !b.ask {
		return nil
	}
	known, err := b.e.db.KnownEventIDs(ctx, b.id)
	if err != nil || len(known) == 0 {
		return err
	}
	keep := 0
	for i, id := range b.id {
		if known[id] {
			b.e.metrics.skipped.WithLabelValues(schemas.TopicEvents, "read_twice").Inc()
			continue
		}
		b.move(keep, i)
		keep++
	}
	b.truncate(keep)
	return nil
}

// texts returns the columns of text, so that rows can be moved and cut alike.
func (b *eventBlock) texts() []*[]string {
	return []*[]string{
		&b.id, &b.source, &b.kind, &b.code, &b.severity, &b.state, &b.partKind, &b.device, &b.message,
		&b.place.resource, &b.place.server, &b.place.rack, &b.place.site, &b.place.model, &b.place.collector,
	}
}

func (b *eventBlock) move(to, from int) {
	for _, c := range b.texts() {
		(*c)[to] = (*c)[from]
	}
	b.time[to], b.seen[to], b.attrs[to] = b.time[from], b.seen[from], b.attrs[from]
	b.origin.partition[to], b.origin.position[to] = b.origin.partition[from], b.origin.position[from]
}

func (b *eventBlock) truncate(n int) {
	for _, c := range b.texts() {
		*c = (*c)[:n]
	}
	b.time, b.seen, b.attrs = b.time[:n], b.seen[:n], b.attrs[:n]
	b.origin.partition, b.origin.position = b.origin.partition[:n], b.origin.position[:n]
}

func (b *eventBlock) columns(string) []clickhouse.Column {
	if len(b.id) == 0 {
		return nil
	}
	out := []clickhouse.Column{
		{Name: "id", Values: b.id},
		{Name: "time", Values: b.time},
		{Name: "observed", Values: b.seen},
		{Name: "source", Values: b.source},
		{Name: "type", Values: b.kind},
		{Name: "code", Values: b.code},
		{Name: "severity", Values: b.severity},
		{Name: "state", Values: b.state},
		{Name: "kind", Values: b.partKind},
		{Name: "device", Values: b.device},
		{Name: "message", Values: b.message},
		{Name: "attrs", Values: b.attrs},
	}
	return append(append(out, b.place.columns()...), b.origin.columns()...)
}

func (b *eventBlock) reset() {
	clear(b.attrs)
	b.truncate(0)
	b.ask = false
}

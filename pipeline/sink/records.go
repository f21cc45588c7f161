package sink

import (
	"context"
	"errors"
	"time"

	"auspex/internal/bus"
	"auspex/internal/bus/wire"
	"auspex/internal/store/clickhouse"
	"auspex/schemas"
)

// documents writes a topic of JSON records: a row for each state that a record
// had.
type documents[T any] struct {
	from, table string
	decoder     *wire.Decoder
	check       func(*T) error
	fill        func(rows []T, seen []time.Time) []clickhouse.Column
}

// document is one state of a record.
type document[T any] struct {
	value T
	text  string
	at    time.Time
}

func (d document[T]) observed() time.Time { return d.at }

func (d *documents[T]) topic() string               { return d.from }
func (d *documents[T]) tables() []string            { return []string{d.table} }
func (*documents[T]) prepare(context.Context) error { return nil }
func (d *documents[T]) block() block                { return &documentBlock[T]{d: d} }

func (d *documents[T]) decode(ctx context.Context, m bus.Message) record {
	v, ok := wire.Record(ctx, d.decoder, m, d.check)
	if !ok {
		return nil
	}
	return document[T]{value: *v, text: string(m.Value), at: m.Time.UTC()}
}

type documentBlock[T any] struct {
	d      *documents[T]
	values []T
	texts  []string
	seen   []time.Time
	origin origins
}

func (b *documentBlock[T]) add(r record, partition uint32, position int64, has func(string) bool) {
	if has(b.d.table) {
		return
	}
	doc := r.(document[T])
	b.values = append(b.values, doc.value)
	b.texts = append(b.texts, doc.text)
	b.seen = append(b.seen, doc.at)
	b.origin.add(partition, position)
}

func (b *documentBlock[T]) rows() int                    { return len(b.values) }
func (b *documentBlock[T]) settle(context.Context) error { return nil }

func (b *documentBlock[T]) columns(string) []clickhouse.Column {
	if len(b.values) == 0 {
		return nil
	}
	out := append(
		b.d.fill(b.values, b.seen), clickhouse.Column{Name: "observed", Values: b.seen}, clickhouse.Column{Name: "doc", Values: b.texts},
	)
	return append(out, b.origin.columns()...)
}

func (b *documentBlock[T]) reset() {
	clear(b.values)
	clear(b.texts)
	b.values, b.texts, b.seen = b.values[:0], b.texts[:0], b.seen[:0]
	b.origin.reset()
}

var errNoID = errors.New("id is missing")

func needID(id string) error {
	if id == "" {
		return errNoID
	}
	return nil
}

// column makes a column of one field of each row.
func column[T, V any](name string, rows []T, field func(*T) V) clickhouse.Column {
	values := make([]V, len(rows))
	for i := range rows {
		values[i] = field(&rows[i])
	}
	return clickhouse.Column{Name: name, Values: values}
}

// orSeen replaces a time that is not set.
func orSeen(t, seen time.Time) time.Time {
	if t.IsZero() {
		return seen
	}
	return t
}

// times makes a column of a time of each row, where it is not set of when the
// record came.
func times[T any](name string, rows []T, seen []time.Time, field func(*T) time.Time) clickhouse.Column {
	values := make([]time.Time, len(rows))
	for i := range rows {
		values[i] = orSeen(field(&rows[i]), seen[i])
	}
	return clickhouse.Column{Name: name, Values: values}
}

func newIncidents(d *wire.Decoder) writer {
	type T = schemas.Incident
	return &documents[T]{
		from: schemas.TopicIncidents, table: "incidents", decoder: d, check: func(r *T) error { return needID(r.ID) },
		fill: func(rows []T, seen []time.Time) []clickhouse.Column {
			return []clickhouse.Column{
				column("id", rows, func(r *T) string { return r.ID }),
				times("at", rows, seen, func(r *T) time.Time { return r.At }),
				times("opened", rows, seen, func(r *T) time.Time { return r.Opened }),
				times("updated", rows, seen, func(r *T) time.Time { return r.Updated }),
				column("closed", rows, func(r *T) *time.Time { return r.Closed }),
				column("site", rows, func(r *T) string { return r.Site }),
				column("severity", rows, func(r *T) string { return string(r.Severity) }),
				column("resource", rows, func(r *T) string { return r.RootCause.Resource }),
				column("fault", rows, func(r *T) string { return r.RootCause.Fault }),
				column("confidence", rows, func(r *T) float64 { return r.RootCause.Confidence }),
				column("events", rows, func(r *T) uint32 { return uint32(r.Count()) }), //nolint:gosec // a count
				column("affected", rows, func(r *T) []string { return r.Affected }),
				column("workloads", rows, func(r *T) []string { return r.Workloads }),
				column("merged_into", rows, func(r *T) string { return r.MergedInto }),
				column("revision", rows, func(r *T) uint32 { return uint32(max(r.Revision, 0)) }), //nolint:gosec // a count
				column("explanation", rows, func(r *T) string { return r.Explanation }),
			}
		},
	}
}

func newPredictions(d *wire.Decoder) writer {
	type T = schemas.Prediction
	return &documents[T]{
		from: schemas.TopicPredictions, table: "predictions", decoder: d, check: func(r *T) error { return needID(r.ID) },
		fill: func(rows []T, seen []time.Time) []clickhouse.Column {
			return []clickhouse.Column{
				column("id", rows, func(r *T) string { return r.ID }),
				times("time", rows, seen, func(r *T) time.Time { return r.Time }),
				column("site", rows, func(r *T) string { return r.Site }),
				column("resource", rows, func(r *T) string { return r.Resource }),
				column("server", rows, func(r *T) string { return r.Server }),
				column("metric", rows, func(r *T) string { return r.Metric }),
				column("failure", rows, func(r *T) string { return r.Failure }),
				column("probability", rows, func(r *T) float64 { return r.Probability }),
				column("horizon_seconds", rows, func(r *T) float64 { return r.HorizonSeconds }),
				column("eta_p10", rows, func(r *T) *time.Time { return r.ETAP10 }),
				column("eta_p50", rows, func(r *T) *time.Time { return r.ETAP50 }),
				column("eta_p90", rows, func(r *T) *time.Time { return r.ETAP90 }),
				column("limit", rows, func(r *T) float64 { return r.Limit }),
				column("value", rows, func(r *T) float64 { return r.Value }),
				column("slope_per_hour", rows, func(r *T) float64 { return r.SlopePerHour }),
				column("state", rows, func(r *T) string { return r.State }),
				column("model", rows, func(r *T) string { return r.Model.Name + "/" + r.Model.Version }),
			}
		},
	}
}

func newActions(d *wire.Decoder) writer {
	type T = schemas.Action
	return &documents[T]{
		from: schemas.TopicOutcomes, table: "actions", decoder: d, check: func(r *T) error { return needID(r.ID) },
		fill: func(rows []T, seen []time.Time) []clickhouse.Column {
			return []clickhouse.Column{
				column("id", rows, func(r *T) string { return r.ID }),
				times("time", rows, seen, func(r *T) time.Time { return r.Time }),
				column("site", rows, func(r *T) string { return r.Site }),
				column("server", rows, func(r *T) string { return r.Server }),
				column("kind", rows, func(r *T) string { return r.Kind }),
				column("reason", rows, func(r *T) string { return r.Reason }),
				column("incident", rows, func(r *T) string { return r.Incident }),
				column("mode", rows, func(r *T) string { return r.Mode }),
				column("rung", rows, func(r *T) int32 { return int32(r.Rung) }),       //nolint:gosec // a step of a ladder
				column("attempt", rows, func(r *T) int32 { return int32(r.Attempt) }), //nolint:gosec // a count
				column("state", rows, func(r *T) string { return r.State }),
				column("actor", rows, func(r *T) string { return r.Actor }),
			}
		},
	}
}

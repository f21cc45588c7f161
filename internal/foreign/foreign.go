// Package foreign keeps what another system has of machines beside the inventory. What it has
// otherwise is a conflict, which settles when both say the same again; a machine that the inventory
// does not have is found, as by a sweep. Each is told once on the bus: what was told is kept in the
// transaction that opens and settles conflicts, and so are events until they are published.
package foreign

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"auspex/internal/bus"
	"auspex/internal/cmdb"
	"auspex/internal/store/conflicts"
	"auspex/internal/store/discoveries"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

// System is the only one that is read today.
const System = schemas.SideTinkerbell

// kept is how many differences of one place are kept: more are not worked off one by one.
const kept = 1000

// Keeper keeps what is told of one system. Its methods may be called at the same time.
type Keeper struct {
	db  *sqldb.DB
	inv *cmdb.Inventory
	bus bus.Publisher
	log *slog.Logger
	now func() time.Time

	events  *prometheus.CounterVec
	found   *prometheus.GaugeVec
	left    prometheus.Gauge
	failing prometheus.Counter
}

// New returns a keeper; it performs no I/O.
func New(db *sqldb.DB, inv *cmdb.Inventory, b bus.Publisher, log *slog.Logger, reg prometheus.Registerer) *Keeper {
	k := &Keeper{
		db: db, inv: inv, bus: b, log: log, now: time.Now,
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "auspex_foreign_hardware_events_total", Help: "Events of what others have in Tinkerbell's API that were put on the bus, by type and state.",
		}, []string{"type", "state"}),
		found: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "auspex_foreign_hardware", Help: "What others have in Tinkerbell's API now: field (otherwise than the inventory), two_owners, unknown (machines that the inventory does not have).",
		}, []string{"what"}),
		left: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "auspex_foreign_hardware_left_out", Help: fmt.Sprintf("Differences that are not kept, since there are more than %d.", kept),
		}),
		failing: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "auspex_foreign_hardware_errors_total", Help: "Times that what others have in Tinkerbell's API could not be kept or told, since the store or the bus failed; it is done again.",
		}),
	}
	for _, what := range []string{codeField, codeOwners, codeUnknown} {
		k.found.WithLabelValues(what)
	}
	if reg != nil {
		reg.MustRegister(k.events, k.found, k.left, k.failing)
	}
	return k
}

// What is told, as codes of events.
const (
	codeField   = "field"
	codeOwners  = "two_owners"
	codeUnknown = "unknown"
)

func code(f *schemas.Foreign) string {
	switch {
	case f.Machine != nil:
		return codeUnknown
	case f.Field == schemas.FieldObject:
		return codeOwners
	}
	return codeField
}

// Servers are those of the inventory that some MAC addresses are of, and the one of a name.
func (k *Keeper) Servers(name string, macs ...string) (out []string) {
	snap := k.inv.Snapshot()
	add := func(id string) {
		if r, ok := snap.Resource(id); ok && r.Kind == schemas.KindServer && !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	for _, mac := range macs {
		if id, ok := snap.ByIdentity("", mac); ok {
			add(snap.Server(id))
		}
	}
	add(name)
	return out
}

// key is what something is about, whatever the values: it is told once.
func key(f *schemas.Foreign) string {
	return strings.Join([]string{f.Object, f.Server, f.Field}, "\x00")
}

// conflict is the conflict of a difference.
func conflict(f *schemas.Foreign) schemas.Conflict {
	c := schemas.Conflict{
		Kind: schemas.ConflictTwoSources, Resource: f.Server, Field: f.Field, Left: schemas.ConflictSide{Source: schemas.SideInventory, Value: f.Ours},
		Right: schemas.ConflictSide{Source: System, Value: f.Theirs, Owner: f.Owner, Resource: f.Object, Time: f.Time},
	}
	if f.Server == "" { // two of theirs for a machine that nobody here knows
		c.Resource, c.Left.Source, c.Left.Owner = f.Ours, System, f.Other
	}
	return c
}

// Said keeps all that a place of the system has otherwise than the inventory, or beside it, now. What is new or has
// other values is told, and so is the end of what is not said any more.
func (k *Keeper) Said(ctx context.Context, place string, all []schemas.Foreign) error {
	place = System + " " + place
	count, now := map[string]int{}, map[string]*schemas.Foreign{}
	for i := range all {
		count[code(&all[i])]++
		if len(now) < kept {
			now[key(&all[i])] = &all[i]
		}
	}
	err := k.db.InTx(ctx, func(tx *sql.Tx) error { return k.keep(ctx, tx, place, now) })
	if err == nil {
		err = k.publish(ctx)
	}
	if err != nil {
		k.failing.Inc()
		return fmt.Errorf("keep what %s has of machines: %w", place, err)
	}
	for _, what := range []string{codeField, codeOwners, codeUnknown} {
		k.found.WithLabelValues(what).Set(float64(count[what]))
	}
	k.left.Set(float64(len(all) - len(now)))
	return nil
}

func (k *Keeper) keep(ctx context.Context, tx *sql.Tx, place string, now map[string]*schemas.Foreign) error {
	told, err := sqldb.Rows(ctx, tx, func(rows *sql.Rows) (f schemas.Foreign, err error) {
		var doc string
		if err := rows.Scan(&doc); err != nil {
			return f, err
		}
		return f, json.Unmarshal([]byte(doc), &f)
	}, `SELECT doc FROM foreign_hardware WHERE place=$1`, place)
	if err != nil {
		return err
	}
	at, was := k.now().UTC(), map[string]*schemas.Foreign{}
	var events []schemas.Event
	for i := range told {
		f := &told[i]
		was[key(f)] = f
		if now[key(f)] != nil {
			continue
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM foreign_hardware WHERE place=$1 AND object=$2 AND server=$3 AND field=$4`, place, f.Object, f.Server, f.Field); err != nil {
			return err
		}
		if f.Machine != nil {
			continue // news has no end
		}
		c := conflict(f)
		if err := conflicts.Close(ctx, tx, at, conflicts.ID(&c), k.why(f)); err != nil {
			return err
		}
		events = append(events, k.event(place, f, schemas.StateCleared, at))
	}
	var open []schemas.Conflict
	var finds []schemas.Find
	for _, id := range slices.Sorted(maps.Keys(now)) {
		f, old := now[id], was[id]
		if f.Machine != nil {
			finds = append(finds, find(place, f, at))
		} else {
			open = append(open, conflict(f))
		}
		if doc, err := json.Marshal(f); err != nil {
			return err
		} else if _, err := tx.ExecContext(ctx, `INSERT INTO foreign_hardware (place, object, server, field, doc) VALUES ($1,$2,$3,$4,$5)
ON CONFLICT (place, object, server, field) DO UPDATE SET doc=excluded.doc`, place, f.Object, f.Server, f.Field, string(doc)); err != nil {
			return err
		}
		switch {
		case old == nil && f.Machine != nil:
			events = append(events, k.event(place, f, "", at))
		case old == nil, old.Ours != f.Ours, old.Theirs != f.Theirs:
			events = append(events, k.event(place, f, schemas.StateRaised, at))
		}
	}
	if _, err := conflicts.Seen(ctx, tx, at, open...); err != nil {
		return err
	}
	if err := discoveries.Stands(ctx, tx, at, sweep(place), System, place, finds); err != nil {
		return err
	}
	for i := range events {
		doc, err := json.Marshal(&events[i])
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO foreign_hardware_events (seq, doc) SELECT COALESCE(MAX(seq), 0)+1, $1 FROM foreign_hardware_events`, string(doc)); err != nil {
			return err
		}
	}
	return nil
}

// why a difference is one no more.
func (k *Keeper) why(f *schemas.Foreign) string {
	if _, there := k.inv.Snapshot().Resource(f.Server); !there && f.Server != "" {
		return conflicts.WhyGone
	}
	return conflicts.WhyAgree
}

// event tells of a difference or of a machine. That of one moment has one id, however often it is published.
func (k *Keeper) event(place string, f *schemas.Foreign, state string, at time.Time) schemas.Event {
	ev := schemas.Event{
		Time: at, Observed: at, Source: schemas.SourceControl, Resource: f.Server, Type: schemas.EventHardwareConflict, Code: code(f),
		Severity: schemas.SeverityWarning, State: state, Attrs: map[string]string{"object": f.Object, "owner": f.Owner},
	}
	switch _, name, _ := strings.Cut(f.Object, "/"); {
	case f.Machine != nil:
		var macs []string
		for i := range f.Machine.NICs {
			macs = append(macs, f.Machine.NICs[i].MAC)
		}
		ev.Type, ev.Code, ev.Severity, ev.Resource = schemas.EventHardwareDiscovered, "", schemas.SeverityInfo, name
		ev.Attrs["macs"] = strings.Join(macs, " ")
		ev.Message = fmt.Sprintf("Hardware %s, which belongs to %s, is of a machine that the inventory does not have", f.Object, f.Owner)
	default:
		if f.Server == "" {
			ev.Resource = name
		}
		ev.Attrs["field"], ev.Attrs["ours"], ev.Attrs["theirs"] = f.Field, f.Ours, f.Theirs
		ev.Message = sentence(f, state)
	}
	ev.ID = schemas.EventID(place, f.Object, f.Server+" "+f.Field, ev.Type, state, f.Ours, f.Theirs, at.Format(time.RFC3339Nano))
	return ev
}

func sentence(f *schemas.Foreign, state string) string {
	said := func(value string) string {
		if value == "" {
			return "nothing"
		}
		return value
	}
	switch {
	case f.Field == schemas.FieldObject && state == schemas.StateCleared:
		return fmt.Sprintf("hardware %s no longer stands beside %s", f.Object, f.Ours)
	case f.Field == schemas.FieldObject:
		return fmt.Sprintf("hardware %s, which belongs to %s, is of the same machine as %s", f.Object, f.Owner, f.Ours)
	case state == schemas.StateCleared:
		return fmt.Sprintf("%s of hardware %s is no longer otherwise than the inventory has it", f.Field, f.Object)
	}
	return fmt.Sprintf("%s of hardware %s is %s by %s, and the inventory has %s", f.Field, f.Object, said(f.Theirs), f.Owner, said(f.Ours))
}

// sweep is the id of what stands for all that a place has and the inventory does not.
func sweep(place string) string { return fixed(place) }

func fixed(parts ...string) string {
	return uuid.NewHash(sha256.New(), uuid.Nil, []byte(strings.Join(parts, "\x00")), 8).String()
}

func find(place string, f *schemas.Foreign, at time.Time) schemas.Find {
	if !f.Time.IsZero() {
		at = f.Time
	}
	return schemas.Find{ID: fixed(place, f.Object), Address: f.Object, Protocol: System, Result: schemas.FindFound, SeenAt: at, Hardware: *f.Machine}
}

// publish puts on the bus what is not there yet, in order.
func (k *Keeper) publish(ctx context.Context) error {
	type row struct {
		seq int64
		doc string
	}
	rows, err := sqldb.Rows(ctx, k.db, func(rows *sql.Rows) (r row, err error) { return r, rows.Scan(&r.seq, &r.doc) },
		`SELECT seq, doc FROM foreign_hardware_events ORDER BY seq`)
	if err != nil {
		return err
	}
	for _, r := range rows {
		var ev schemas.Event
		if err := json.Unmarshal([]byte(r.doc), &ev); err != nil {
			return err
		}
		batch := auspexv1.Batch{Device: ev.Resource, Collector: schemas.SourceControl, Observed: ev.Observed.UnixNano(), Events: []*auspexv1.Event{ev.Wire()}}
		value, err := batch.MarshalVT()
		if err != nil {
			return err
		}
		if err := k.bus.Publish(ctx, bus.Message{Topic: schemas.TopicEvents, Key: ev.Resource, Value: value}); err != nil {
			return err
		}
		if _, err := k.db.ExecContext(ctx, `DELETE FROM foreign_hardware_events WHERE seq=$1`, r.seq); err != nil {
			return err
		}
		k.events.WithLabelValues(ev.Type, ev.State).Inc()
	}
	return nil
}

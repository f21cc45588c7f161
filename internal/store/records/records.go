// Package records keeps the current state of alerts, incidents, predictions and
// actions in the relational store: a JSON document each, beside the columns that
// lists are asked by. The stage that makes a record puts it before it publishes
// it; the API only reads.
package records

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// Statuses that filters name.
const (
	StatusOpen   = "open"
	StatusClosed = "closed"
	StatusMerged = "merged"
)

// Filter picks records. The zero value picks all, newest first.
type Filter struct {
	Status   string // of the kind: an incident's open or closed, an action's state
	Resource string
	Server   string
	Servers  []string // any of them, where there are any
	Incident string
	Handled  string // of alerts: what people see, schemas.HandlingActive and so on
	Since    time.Time
	Sort     string // time, or -time, which "" is
	After    string // cursor of the page before
	Limit    int    // 0 means 200
}

// EventFilter chooses events of a history; what is empty asks nothing.
type EventFilter struct {
	Device                 string // a server or switch with its parts, or one resource
	Type, Source, Severity string
	Since, Until           time.Time // when they were observed; a zero Until is now
	Oldest                 bool      // those observed first come first, and not those observed last
	After                  string    // cursor of the page before
	Limit                  int
}

// Orders of the events of a history, as a caller names them.
const (
	EventsByObserved = "observed"
	EventsUsual      = "-observed"
)

// Behind reads the cursor of the page before, which is of the same order.
func (f *EventFilter) Behind() (c sqldb.Cursor, err error) {
	ofOldest := strings.Contains(f.After, "~")
	switch {
	case ofOldest && !f.Oldest:
		return c, &sqldb.OrderError{Of: EventsByObserved, Asked: EventsUsual}
	case ofOldest:
		at, id, err := sqldb.Behind(EventsByObserved, f.After, int64(0))
		if err != nil {
			return c, err
		}
		return sqldb.Cursor{Time: at.(int64), ID: id}, nil
	}
	if c, err = sqldb.ParseCursor(f.After); err == nil && f.Oldest {
		err = &sqldb.OrderError{Of: EventsUsual, Asked: EventsByObserved}
	}
	return c, err
}

// Ahead is the cursor of the page that follows an event.
func (f *EventFilter) Ahead(ev *schemas.Event) string {
	at := ev.Observed.UnixNano()
	if f.Oldest {
		return sqldb.Ahead(EventsByObserved, at, ev.ID)
	}
	return sqldb.Cursor{Time: at, ID: ev.ID}.String()
}

// Page cuts events that were read with one more than the limit; next is the cursor of the page that
// follows, or "" where nothing does.
func (f *EventFilter) Page(found []schemas.Event) (page []schemas.Event, next string) {
	if len(found) <= f.Limit {
		return found, ""
	}
	return found[:f.Limit], f.Ahead(&found[f.Limit-1])
}

// Compare is the order of two events in the list.
func (f *EventFilter) Compare(a, b *schemas.Event) int {
	c := cmp.Or(b.Observed.Compare(a.Observed), strings.Compare(b.ID, a.ID))
	if f.Oldest {
		return -c
	}
	return c
}

// Store reads and writes records.
type Store struct{ db *sqldb.DB }

// New returns the store of a relational database whose schema is up to date.
func New(db *sqldb.DB) *Store { return &Store{db: db} }

type row struct {
	kind, id, status, resource, server, incident string
	time                                         time.Time
	doc                                          any
}

const (
	kindAlert      = "alert"
	kindIncident   = "incident"
	kindPrediction = "prediction"
	kindAction     = "action"
	kindBudgets    = "budgets"
	kindNoSteps    = "no_steps"
)

// Execer is a database or a transaction of it.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

func put(ctx context.Context, x Execer, r row) error {
	doc, err := json.Marshal(r.doc)
	if err != nil {
		return fmt.Errorf("put %s %s: %w", r.kind, r.id, err)
	}
	_, err = x.ExecContext(ctx, `INSERT INTO records (kind, id, status, resource, server, incident, time_ns, updated_ns, doc)
VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9)
ON CONFLICT (kind, id) DO UPDATE SET status=excluded.status, resource=excluded.resource, server=excluded.server,
  incident=excluded.incident, time_ns=excluded.time_ns, updated_ns=excluded.updated_ns, doc=excluded.doc`,
		r.kind, r.id, r.status, r.resource, r.server, r.incident, r.time.UnixNano(), time.Now().UnixNano(), string(doc))
	if err != nil {
		return fmt.Errorf("put %s %s: %w", r.kind, r.id, err)
	}
	return nil
}

func get[T any](ctx context.Context, db *sqldb.DB, kind, id string) (v T, found bool, err error) {
	var doc string
	err = db.QueryRowContext(ctx, `SELECT doc FROM records WHERE kind=$1 AND id=$2`, kind, id).Scan(&doc)
	if errors.Is(err, sql.ErrNoRows) {
		return v, false, nil
	}
	if err == nil {
		err = json.Unmarshal([]byte(doc), &v)
	}
	if err != nil {
		return v, false, fmt.Errorf("get %s %s: %w", kind, id, err)
	}
	return v, true, nil
}

// listed is a row of a list.
type listed struct {
	id, doc string
	time    int64
}

var order = sqldb.Order[listed]{
	ID: sqldb.Key[listed]{SQL: "id", Of: func(r *listed) any { return r.id }}, Usual: "-time",
	By: map[string]sqldb.Key[listed]{"time": {SQL: "time_ns", Of: func(r *listed) any { return r.time }}},
}

func list[T any](ctx context.Context, db *sqldb.DB, kind string, f Filter) (out []T, next string, err error) {
	limit := f.Limit
	if limit <= 0 {
		limit = 200
	}
	q := strings.Builder{}
	q.WriteString(`SELECT id, time_ns, doc FROM records WHERE kind=$1`)
	args := []any{kind}
	where := func(cond string, arg any) {
		args = append(args, arg)
		q.WriteString(strings.ReplaceAll(cond, "?", "$"+strconv.Itoa(len(args))))
	}
	if f.Status != "" {
		where(` AND status=?`, f.Status)
	}
	switch f.Handled {
	case "":
	case schemas.HandlingResolved:
		where(` AND (status=? OR EXISTS (SELECT 1 FROM alert_handling h WHERE h.alert=records.id AND h.status='resolved'))`, schemas.AlertResolved)
	case schemas.HandlingAcknowledged:
		where(` AND status=? AND EXISTS (SELECT 1 FROM alert_handling h WHERE h.alert=records.id AND h.status='acknowledged')`, schemas.AlertFiring)
	default:
		where(` AND status=? AND NOT EXISTS (SELECT 1 FROM alert_handling h WHERE h.alert=records.id AND h.status<>'active')`, schemas.AlertFiring)
	}
	if f.Resource != "" {
		where(` AND resource=?`, f.Resource)
	}
	if f.Server != "" {
		where(` AND server=?`, f.Server)
	}
	if len(f.Servers) > 0 {
		in, some := sqldb.In(len(args)+1, f.Servers)
		args = append(args, some...)
		q.WriteString(` AND server IN (` + in + `)`)
	}
	if f.Incident != "" {
		where(` AND incident=?`, f.Incident)
	}
	if !f.Since.IsZero() {
		where(` AND time_ns>=?`, f.Since.UnixNano())
	}
	tail, args, err := order.Tail(f.Sort, f.After, limit, args...)
	if err != nil {
		return nil, "", fmt.Errorf("list %s: %w", kind, err)
	}
	found, err := sqldb.Rows(ctx, db, func(rows *sql.Rows) (r listed, err error) { return r, rows.Scan(&r.id, &r.time, &r.doc) }, q.String()+tail, args...)
	if err != nil {
		return nil, "", fmt.Errorf("list %s: %w", kind, err)
	}
	found, next = order.Page(found, f.Sort, limit)
	for _, r := range found {
		var v T
		if err := json.Unmarshal([]byte(r.doc), &v); err != nil {
			return nil, "", fmt.Errorf("list %s: %s: %w", kind, r.id, err)
		}
		out = append(out, v)
	}
	return out, next, nil
}

// PutAlert writes an alert under its event's id.
func (s *Store) PutAlert(ctx context.Context, a schemas.Alert) error {
	return put(ctx, s.db, row{kindAlert, a.ID, a.Status, a.Resource, a.Server, "", a.Observed, a})
}

// PutAlerts writes alerts in one transaction.
func (s *Store) PutAlerts(ctx context.Context, as []schemas.Alert) error {
	return s.db.InTx(ctx, func(tx *sql.Tx) error {
		for _, a := range as {
			if err := put(ctx, tx, row{kindAlert, a.ID, a.Status, a.Resource, a.Server, "", a.Observed, a}); err != nil {
				return err
			}
		}
		return nil
	})
}

// Alert returns the alert with an id, and whether there is one.
func (s *Store) Alert(ctx context.Context, id string) (schemas.Alert, bool, error) {
	return get[schemas.Alert](ctx, s.db, kindAlert, id)
}

// Alerts lists alerts by the time they were observed, newest first.
func (s *Store) Alerts(ctx context.Context, f Filter) ([]schemas.Alert, string, error) {
	return list[schemas.Alert](ctx, s.db, kindAlert, f)
}

// PutIncident writes an incident. Its status is open, closed or merged.
func (s *Store) PutIncident(ctx context.Context, i schemas.Incident) error {
	return PutIncidentIn(ctx, s.db, i)
}

// PutIncidentIn is PutIncident within a caller's transaction.
func PutIncidentIn(ctx context.Context, x Execer, i schemas.Incident) error {
	status := StatusOpen
	switch {
	case i.MergedInto != "":
		status = StatusMerged
	case i.Closed != nil:
		status = StatusClosed
	}
	return put(ctx, x, row{kindIncident, i.ID, status, i.RootCause.Resource, "", "", i.Opened, i})
}

// Incident returns the incident with an id, and whether there is one.
func (s *Store) Incident(ctx context.Context, id string) (schemas.Incident, bool, error) {
	return get[schemas.Incident](ctx, s.db, kindIncident, id)
}

// IncidentOf returns the incident, not merged into another, that lists an event, of those that opened
// within a span, and whether there is one.
func (s *Store) IncidentOf(ctx context.Context, event string, from, to time.Time) (i schemas.Incident, found bool, err error) {
	quoted, err := json.Marshal(event)
	if err != nil {
		return i, false, err
	}
	like := strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(string(quoted))
	all, err := sqldb.Docs[schemas.Incident](ctx, s.db, `SELECT doc FROM records WHERE kind=$1 AND status<>$2 AND time_ns>=$3 AND time_ns<=$4
AND doc LIKE $5 ESCAPE '\' ORDER BY time_ns DESC, id DESC LIMIT 10`, kindIncident, StatusMerged, from.UnixNano(), to.UnixNano(), "%"+like+"%")
	if err != nil {
		return i, false, fmt.Errorf("find the incident of event %s: %w", event, err)
	}
	for _, i := range all {
		if slices.Contains(i.Events, event) {
			return i, true, nil
		}
	}
	return i, false, nil
}

// Incidents lists incidents by the time they opened, newest first.
func (s *Store) Incidents(ctx context.Context, f Filter) ([]schemas.Incident, string, error) {
	return list[schemas.Incident](ctx, s.db, kindIncident, f)
}

// PutPrediction writes a prediction. Its status is its state.
func (s *Store) PutPrediction(ctx context.Context, p schemas.Prediction) error {
	return put(ctx, s.db, row{kindPrediction, p.ID, p.State, p.Resource, p.Server, "", p.Time, p})
}

// Prediction returns the prediction with an id, and whether there is one.
func (s *Store) Prediction(ctx context.Context, id string) (schemas.Prediction, bool, error) {
	return get[schemas.Prediction](ctx, s.db, kindPrediction, id)
}

// Predictions lists predictions by time, newest first.
func (s *Store) Predictions(ctx context.Context, f Filter) ([]schemas.Prediction, string, error) {
	return list[schemas.Prediction](ctx, s.db, kindPrediction, f)
}

// PutAction writes an action. Its status is its state.
func (s *Store) PutAction(ctx context.Context, a schemas.Action) error {
	return PutActionIn(ctx, s.db, a)
}

// PutActionIn is PutAction within a caller's transaction.
func PutActionIn(ctx context.Context, x Execer, a schemas.Action) error {
	resource := a.Target
	if resource == "" {
		resource = a.Server
	}
	return put(ctx, x, row{kindAction, a.ID, a.State, resource, a.Server, a.Incident, a.Created, a})
}

// Action returns the action with an id, and whether there is one.
func (s *Store) Action(ctx context.Context, id string) (schemas.Action, bool, error) {
	return get[schemas.Action](ctx, s.db, kindAction, id)
}

// Actions lists actions by the time they were made, newest first.
func (s *Store) Actions(ctx context.Context, f Filter) ([]schemas.Action, string, error) {
	return list[schemas.Action](ctx, s.db, kindAction, f)
}

// PutBudgets writes what control holds now; there is one such record.
func (s *Store) PutBudgets(ctx context.Context, b schemas.Budgets) error {
	return put(ctx, s.db, row{kind: kindBudgets, id: kindBudgets, time: b.Time, doc: b})
}

// Budgets returns what control held last, and whether it ever said so.
func (s *Store) Budgets(ctx context.Context) (schemas.Budgets, bool, error) {
	return get[schemas.Budgets](ctx, s.db, kindBudgets, kindBudgets)
}

// PutNoSteps writes why control has no step for open incidents, by their ids; there is one such record.
func (s *Store) PutNoSteps(ctx context.Context, at time.Time, why map[string]schemas.NoStep) error {
	return put(ctx, s.db, row{kind: kindNoSteps, id: kindNoSteps, time: at, doc: why})
}

// NoSteps returns why control has no step for open incidents, as it said last.
func (s *Store) NoSteps(ctx context.Context) (map[string]schemas.NoStep, error) {
	why, _, err := get[map[string]schemas.NoStep](ctx, s.db, kindNoSteps, kindNoSteps)
	return why, err
}

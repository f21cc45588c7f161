// Package maintenance keeps the maintenance windows that were declared. A window and its
// row of the audit are one transaction; what the bus has to be told of it is noted
// with it, so that a crash between the two loses nothing.
package maintenance

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"auspex/internal/store/audit"
	"auspex/internal/store/entity"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// Verbs of the audit.
const (
	VerbDeclare = "declare_maintenance"
	VerbChange  = "change_maintenance"
	VerbEnd     = "end_maintenance"
)

// Errors of windows, which are wrapped.
var (
	ErrNone      = errors.New("there is no such maintenance window")
	ErrOver      = errors.New("it is over")
	ErrScheduler = errors.New("it is a reservation of the scheduler")
)

// due counts what the bus is to be told of a window: one for each state that it had, and another for
// the end of each that was changed.
func due(m *schemas.Maintenance) int {
	n := 2*len(m.Changed) + 1
	if m.Ended != nil {
		n++
	}
	return n
}

// Store reads and writes windows, in the table of migration 0070.
type Store struct{ db *sqldb.DB }

// New returns the store of a relational database whose schema is up to date.
func New(db *sqldb.DB) *Store { return &Store{db: db} }

var errKnown = errors.New("it is declared")

// Declare adds a window. One whose id is known is returned as it stands: it was declared
// before, by a request that is made again.
func (s *Store) Declare(ctx context.Context, m schemas.Maintenance) (schemas.Maintenance, error) {
	doc, err := json.Marshal(m)
	if err != nil {
		return m, fmt.Errorf("declare maintenance: %w", err)
	}
	var known schemas.Maintenance
	err = s.db.InTx(ctx, func(tx *sql.Tx) error {
		// First, since it puts writers in a line: of two at once, one is the later.
		if err := audit.Append(ctx, tx, audit.Row{
			Time: m.Declared, Actor: m.By, Verb: VerbDeclare, Subject: subject(&m), Action: m.ID, Kind: m.Work, Detail: detail(&m),
		}); err != nil {
			return err
		}
		found, err := query(ctx, tx, `id=$1`, m.ID)
		if err != nil {
			return err
		}
		if len(found) > 0 {
			known = found[0]
			return errKnown
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO maintenance_windows (id, declared_ns, from_ns, end_ns, due, told, doc)
VALUES ($1,$2,$3,$4,1,0,$5)`,
			m.ID, m.Declared.UnixNano(), m.From.UnixNano(), m.Until.UnixNano(), string(doc))
		return err
	})
	if errors.Is(err, errKnown) {
		return known, nil
	}
	if err != nil {
		return m, fmt.Errorf("declare maintenance: %w", err)
	}
	return m, nil
}

// Import takes over windows that the scheduler told the bus of: each of one resource, and
// all with one id are one window, and those that only say that it has ended.
func (s *Store) Import(ctx context.Context, told ...schemas.Maintenance) error {
	var order []string
	byID := map[string][]schemas.Maintenance{}
	for _, m := range told {
		if byID[m.ID] == nil {
			order = append(order, m.ID)
		}
		byID[m.ID] = append(byID[m.ID], m)
	}
	for _, id := range order {
		if err := s.db.InTx(ctx, func(tx *sql.Tx) error { return merge(ctx, tx, byID[id]) }); err != nil {
			return fmt.Errorf("take over maintenance window %s: %w", id, err)
		}
	}
	return nil
}

func merge(ctx context.Context, tx *sql.Tx, parts []schemas.Maintenance) error {
	found, err := query(ctx, tx, `id=$1`, parts[0].ID)
	if err != nil {
		return err
	}
	var m schemas.Maintenance
	if len(found) > 0 {
		m = found[0]
	}
	before := m.End()
	resources := len(m.Resources)
	for _, p := range parts {
		if p.Ended != nil {
			m.Ended, m.EndedBy = p.Ended, p.EndedBy
			continue
		}
		if m.ID == "" {
			m = p
			continue
		}
		if !slices.Contains(m.Resources, p.Resources[0]) {
			m.Resources = append(m.Resources, p.Resources[0])
		}
	}
	if m.ID == "" || len(found) > 0 && len(m.Resources) == resources && m.End().Equal(before) {
		return nil // an end of what nobody knows, or what is known
	}
	doc, err := json.Marshal(m)
	if err != nil {
		return err
	}
	verb := VerbDeclare
	if len(found) > 0 && !m.End().Equal(before) {
		verb = VerbEnd
	}
	if err := audit.Append(ctx, tx, audit.Row{
		Time: m.Declared, Actor: m.By, Verb: verb, Subject: subject(&m), Action: m.ID, Kind: m.Work, Detail: detail(&m),
	}); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO maintenance_windows (id, declared_ns, from_ns, end_ns, due, told, doc) VALUES ($1,$2,$3,$4,2,2,$5)
ON CONFLICT (id) DO UPDATE SET end_ns=excluded.end_ns, doc=excluded.doc`,
		m.ID, m.Declared.UnixNano(), m.From.UnixNano(), m.End().UnixNano(), string(doc))
	return err
}

// End ends a window at a time. One that is over stays as it is. A revision that is not 0 is the one
// that is ended, else it is [entity.ErrChanged].
func (s *Store) End(ctx context.Context, id, by string, revision int64, at time.Time) (m schemas.Maintenance, err error) {
	err = s.db.InTx(ctx, func(tx *sql.Tx) error {
		if m, err = locked(ctx, tx, id); err != nil {
			return err
		}
		if err := entity.Check(revision, m.Revision()); err != nil {
			return err
		}
		if !at.Before(m.End()) {
			return errKnown
		}
		before := m
		m.Ended, m.EndedBy = &at, by
		if err := noted(ctx, tx, at, by, VerbEnd, &before, &m); err != nil {
			return err
		}
		doc, err := json.Marshal(m)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `UPDATE maintenance_windows SET end_ns=$1, due=$2, doc=$3 WHERE id=$4`, at.UnixNano(), due(&m), string(doc), id)
		return err
	})
	if err != nil && !errors.Is(err, errKnown) {
		return m, fmt.Errorf("end maintenance window %s: %w", id, err)
	}
	return m, nil
}

// Change changes a window that people declared and that is not over, at a time. A revision that is not
// 0 is the one that the change was made of, else it is [entity.ErrChanged].
func (s *Store) Change(
	ctx context.Context, id, by string, revision int64, at time.Time, change func(*schemas.Maintenance) error,
) (m schemas.Maintenance, err error) {
	err = s.db.InTx(ctx, func(tx *sql.Tx) error {
		if m, err = locked(ctx, tx, id); err != nil {
			return err
		}
		switch {
		case m.Source == schemas.SourceScheduler:
			return ErrScheduler
		case !at.Before(m.End()):
			return ErrOver
		}
		if err := entity.Check(revision, m.Revision()); err != nil {
			return err
		}
		before := m
		if err := change(&m); err != nil {
			return err
		}
		if n := len(m.Changed); n > 0 {
			at = entity.Later(at, m.Changed[n-1])
		}
		m.Changed, m.ChangedBy = append(slices.Clone(m.Changed), entity.Later(at, m.Declared)), by
		if err := noted(ctx, tx, at, by, VerbChange, &before, &m); err != nil {
			return err
		}
		doc, err := json.Marshal(m)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `UPDATE maintenance_windows SET from_ns=$1, end_ns=$2, due=$3, doc=$4 WHERE id=$5`,
			m.From.UnixNano(), m.End().UnixNano(), due(&m), string(doc), id)
		return err
	})
	if err != nil {
		return m, fmt.Errorf("change maintenance window %s: %w", id, err)
	}
	return m, nil
}

// locked reads a window, and puts those who change it in a line.
func locked(ctx context.Context, tx *sql.Tx, id string) (m schemas.Maintenance, err error) {
	if _, err := tx.ExecContext(ctx, `UPDATE maintenance_windows SET due=due WHERE id=$1`, id); err != nil {
		return m, err
	}
	found, err := query(ctx, tx, `id=$1`, id)
	if err != nil {
		return m, err
	}
	if len(found) == 0 {
		return m, ErrNone
	}
	return found[0], nil
}

// noted makes the row of the audit of a change.
func noted(ctx context.Context, tx *sql.Tx, at time.Time, by, verb string, before, after *schemas.Maintenance) error {
	detail, err := entity.Changes(before, after)
	if err != nil {
		return err
	}
	return audit.Append(ctx, tx, audit.Row{Time: at, Actor: by, Verb: verb, Subject: subject(after), Action: after.ID, Kind: after.Work, Detail: detail})
}

func subject(m *schemas.Maintenance) string {
	if len(m.Resources) == 1 {
		return m.Resources[0]
	}
	return ""
}

// auditNames is how many resources a row of the audit names.
const auditNames = 20

func detail(m *schemas.Maintenance) string {
	places := slices.Clone(m.Resources)
	for _, pool := range m.Pools {
		places = append(places, "pool "+pool)
	}
	names := strings.Join(places[:min(len(places), auditNames)], ",")
	if n := len(places) - auditNames; n > 0 {
		names += fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("%s from %s until %s: %s", names, m.From.UTC().Format(time.RFC3339), m.Until.UTC().Format(time.RFC3339), m.Reason)
}

func query(ctx context.Context, q sqldb.Queryer, where string, args ...any) ([]schemas.Maintenance, error) {
	return sqldb.Docs[schemas.Maintenance](ctx, q, `SELECT doc FROM maintenance_windows WHERE `+where, args...)
}

// Get returns a window.
func (s *Store) Get(ctx context.Context, id string) (schemas.Maintenance, error) {
	found, err := query(ctx, s.db, `id=$1`, id)
	if err == nil && len(found) == 0 {
		err = ErrNone
	}
	if err != nil {
		return schemas.Maintenance{}, fmt.Errorf("read maintenance window %s: %w", id, err)
	}
	return found[0], nil
}

// Open returns the windows that are open or to come, the first to begin first.
func (s *Store) Open(ctx context.Context, now time.Time) ([]schemas.Maintenance, error) {
	out, err := query(ctx, s.db, `end_ns>$1 ORDER BY from_ns, id`, now.UnixNano())
	if err != nil {
		return nil, fmt.Errorf("read maintenance windows: %w", err)
	}
	return out, nil
}

// List returns a page of all windows, the last declared first where no order is asked for; next is the
// cursor of the following page.
func (s *Store) List(ctx context.Context, sort, after string, limit int) (out []schemas.Maintenance, next string, err error) {
	tail, args, err := order.Tail(sort, after, limit)
	if err != nil {
		return nil, "", fmt.Errorf("list maintenance windows: %w", err)
	}
	if out, err = query(ctx, s.db, `1=1`+tail, args...); err != nil {
		return nil, "", fmt.Errorf("list maintenance windows: %w", err)
	}
	out, next = order.Page(out, sort, limit)
	return out, next, nil
}

var order = sqldb.Order[schemas.Maintenance]{
	ID: sqldb.Key[schemas.Maintenance]{SQL: "id", Of: func(m *schemas.Maintenance) any { return m.ID }}, Usual: "-declared",
	By: map[string]sqldb.Key[schemas.Maintenance]{
		"declared": {SQL: "declared_ns", Of: func(m *schemas.Maintenance) any { return m.Declared.UnixNano() }},
		"from":     {SQL: "from_ns", Of: func(m *schemas.Maintenance) any { return m.From.UnixNano() }},
	},
}

// Sorted sorts windows as a list of them is.
func Sorted(windows []schemas.Maintenance, sort string) ([]schemas.Maintenance, error) {
	out, _, err := order.Cut(windows, sort, "", 0)
	return out, err
}

// Untold returns the windows of which the bus does not know all.
func (s *Store) Untold(ctx context.Context) ([]schemas.Maintenance, error) {
	out, err := query(ctx, s.db, `told<due ORDER BY declared_ns, id`)
	if err != nil {
		return nil, fmt.Errorf("read maintenance windows: %w", err)
	}
	return out, nil
}

// Told notes that the bus has the events of a window as it was read.
func (s *Store) Told(ctx context.Context, m *schemas.Maintenance) error {
	if _, err := s.db.ExecContext(ctx, `UPDATE maintenance_windows SET told=$1 WHERE id=$2 AND told<$1`, due(m), m.ID); err != nil {
		return fmt.Errorf("note that maintenance window %s is told: %w", m.ID, err)
	}
	return nil
}

// Forget deletes the windows that ended before a time and of which the bus knows all. The
// audit and the history of events keep what was declared.
func (s *Store) Forget(ctx context.Context, before time.Time) error {
	if _, err := s.db.ExecContext(ctx, `DELETE FROM maintenance_windows WHERE end_ns<$1 AND told>=due`, before.UnixNano()); err != nil {
		return fmt.Errorf("forget maintenance windows: %w", err)
	}
	return nil
}

// Package handling keeps what people did about alerts: who acknowledged or resolved one, and
// what they said. A change and its row of the audit are one transaction.
package handling

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"auspex/internal/store/audit"
	"auspex/internal/store/entity"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// What rows of the audit say.
const (
	KindAlert       = "alert"
	VerbAcknowledge = "acknowledge"
	VerbResolve     = "resolve"
	VerbComment     = "comment"
)

// MaxComments bounds what is said of one alert.
const MaxComments = 200

// Store reads and writes, in the tables of migration 0056.
type Store struct {
	db  *sqldb.DB
	now func() time.Time
}

// New returns the store of a relational database whose schema is up to date.
func New(db *sqldb.DB) *Store { return &Store{db: db, now: time.Now} }

const columns = `alert, status, acknowledged_by, acknowledged_ns, resolved_by, resolved_ns, revision`

func scan(rows *sql.Rows) (h schemas.AlertHandling, err error) {
	var acknowledged, resolved int64
	err = rows.Scan(&h.Alert, &h.Status, &h.AcknowledgedBy, &acknowledged, &h.ResolvedBy, &resolved, &h.Revision)
	h.AcknowledgedAt, h.ResolvedAt = at(acknowledged), at(resolved)
	return h, err
}

func at(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns).UTC()
}

func ns(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// Of returns how alerts were handled, without what was said; those that nobody has handled
// are left out.
func (s *Store) Of(ctx context.Context, alerts ...string) (map[string]schemas.AlertHandling, error) {
	const chunk = 200
	out := make(map[string]schemas.AlertHandling)
	for from := 0; from < len(alerts); from += chunk {
		list, args := sqldb.In(1, alerts[from:min(from+chunk, len(alerts))])
		found, err := sqldb.Rows(ctx, s.db, scan, `SELECT `+columns+` FROM alert_handling WHERE alert IN (`+list+`)`, args...)
		if err != nil {
			return nil, fmt.Errorf("read how alerts were handled: %w", err)
		}
		for _, h := range found {
			out[h.Alert] = h
		}
	}
	return out, nil
}

// Get returns how an alert was handled, and what was said, the oldest first.
func (s *Store) Get(ctx context.Context, alert string) (schemas.AlertHandling, error) {
	h, err := get(ctx, s.db, alert)
	if err != nil {
		return h, fmt.Errorf("read how alert %s was handled: %w", alert, err)
	}
	return h, nil
}

func get(ctx context.Context, q sqldb.Queryer, alert string) (schemas.AlertHandling, error) {
	h := schemas.AlertHandling{Alert: alert, Status: schemas.HandlingActive, Revision: 1}
	found, err := sqldb.Rows(ctx, q, scan, `SELECT `+columns+` FROM alert_handling WHERE alert=$1`, alert)
	if err != nil || len(found) == 0 {
		return h, err
	}
	h = found[0]
	h.Comments, err = sqldb.Rows(ctx, q, func(rows *sql.Rows) (c schemas.AlertComment, err error) {
		var ns int64
		err = rows.Scan(&c.Author, &ns, &c.Text)
		c.Time = at(ns)
		return c, err
	}, `SELECT author, time_ns, comment FROM alert_comments WHERE alert=$1 ORDER BY number`, alert)
	return h, err
}

// Change is what somebody does about an alert.
type Change struct {
	Alert    string
	By       string
	Status   string // "" leaves it; what it is already is no change
	Comment  string // "" says nothing
	Revision int64  // that the change is made of; 0 is any
	// Ended says that detection has ended the alert: it is resolved, whoever handles it.
	Ended bool
}

// handled is what the audit says of an alert before and after a change.
type handled struct {
	Status  string `json:"status"`
	Comment string `json:"comment,omitempty"`
}

// Put makes a change. Errors are [entity.ErrChanged], a [*schemas.MoveError], or a
// [*entity.FieldError] of a comment too many.
func (s *Store) Put(ctx context.Context, c Change) (h schemas.AlertHandling, err error) {
	err = s.db.InTx(ctx, func(tx *sql.Tx) error {
		now := s.now().UTC()
		// The row is written first, so that of two at once one waits for the other.
		if _, err := tx.ExecContext(ctx, `INSERT INTO alert_handling (alert, status, revision, updated_ns) VALUES ($1,$2,1,$3)
ON CONFLICT (alert) DO UPDATE SET updated_ns=excluded.updated_ns`, c.Alert, schemas.HandlingActive, now.UnixNano()); err != nil {
			return err
		}
		if h, err = get(ctx, tx, c.Alert); err != nil {
			return err
		}
		if err := entity.Check(c.Revision, h.Revision); err != nil {
			return err
		}
		was := h.Status
		verb, err := move(&h, &c, now)
		if err != nil || verb == "" {
			return err
		}
		if c.Comment != "" {
			if len(h.Comments) >= MaxComments {
				return &entity.FieldError{Field: "comment", Value: c.Comment, Reason: fmt.Sprintf("is one more than the %d that an alert takes", MaxComments)}
			}
			if _, err := tx.ExecContext(ctx, `INSERT INTO alert_comments (alert, number, author, time_ns, comment) VALUES ($1,$2,$3,$4,$5)`,
				c.Alert, len(h.Comments)+1, c.By, now.UnixNano(), c.Comment); err != nil {
				return err
			}
			h.Comments = append(h.Comments, schemas.AlertComment{Author: c.By, Time: now, Text: c.Comment})
		}
		h.Revision++
		if _, err := tx.ExecContext(ctx, `UPDATE alert_handling SET status=$1, acknowledged_by=$2, acknowledged_ns=$3, resolved_by=$4, resolved_ns=$5,
revision=$6 WHERE alert=$7`, h.Status, h.AcknowledgedBy, ns(h.AcknowledgedAt), h.ResolvedBy, ns(h.ResolvedAt), h.Revision, c.Alert); err != nil {
			return err
		}
		detail, err := entity.Changes(handled{Status: was}, handled{h.Status, c.Comment})
		if err != nil {
			return err
		}
		return audit.Append(ctx, tx, audit.Row{Time: now, Actor: c.By, Verb: verb, Kind: KindAlert, Subject: c.Alert, State: h.Status, Detail: detail})
	})
	if err != nil {
		return h, fmt.Errorf("handle alert %s: %w", c.Alert, err)
	}
	return h, nil
}

// move notes the new status, and returns the verb of the change; "" is of none.
func move(h *schemas.AlertHandling, c *Change, now time.Time) (verb string, err error) {
	if c.Comment != "" {
		verb = VerbComment
	}
	from := h.Status
	if c.Ended {
		from = schemas.HandlingResolved
	}
	if c.Status == "" || c.Status == from {
		return verb, nil
	}
	if err := schemas.HandlingLife.Move(from, c.Status); err != nil {
		return "", err
	}
	h.Status = c.Status
	if c.Status == schemas.HandlingAcknowledged {
		h.AcknowledgedBy, h.AcknowledgedAt = c.By, now
		return VerbAcknowledge, nil
	}
	h.ResolvedBy, h.ResolvedAt = c.By, now
	return VerbResolve, nil
}

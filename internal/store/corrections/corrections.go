// Package corrections keeps what people said about the causes of incidents, and
// when each incident had turned to which cause. Nothing is overwritten: a verdict
// that is changed is another row, and each is in the audit.
package corrections

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"auspex/internal/store/audit"
	"auspex/internal/store/records"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// VerbCorrect is the verb of a correction in the audit.
const VerbCorrect = "correct"

// Store reads and writes corrections, in the tables of migration 0021.
type Store struct{ db *sqldb.DB }

// New returns the store of a relational database whose schema is up to date.
func New(db *sqldb.DB) *Store { return &Store{db: db} }

var errSame = errors.New("the same verdict stands")

// Put adds a verdict and its row of the audit in one transaction and returns it with
// its revision. The same verdict of the same person again changes nothing and returns
// the one that stands.
func (s *Store) Put(ctx context.Context, c schemas.Correction) (schemas.Correction, error) {
	said, err := json.Marshal(c.Said)
	if err != nil {
		return c, fmt.Errorf("correct incident %s: %w", c.Incident, err)
	}
	var stands schemas.Correction
	err = s.db.InTx(ctx, func(tx *sql.Tx) error {
		// First, since it puts writers in a line: of two at once, one is the later.
		detail := strings.TrimSpace(c.Resource + " " + c.Fault)
		if err := audit.Append(ctx, tx, audit.Row{
			Time: c.Time, Actor: c.Author, Verb: VerbCorrect, Action: c.Incident, Kind: c.Verdict, Detail: detail,
		}); err != nil {
			return err
		}
		found, err := query(ctx, tx, `incident=$1 ORDER BY revision DESC LIMIT 1`, c.Incident)
		if err != nil {
			return err
		}
		c.Revision = 1
		if len(found) > 0 {
			stands = found[0]
			if stands.Author == c.Author && stands.Verdict == c.Verdict && stands.Resource == c.Resource && stands.Fault == c.Fault &&
				stands.Note == c.Note {
				return errSame
			}
			c.Revision = stands.Revision + 1
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO incident_corrections (incident, revision, time_ns, author, verdict, resource, fault, note, said)
VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9)`,
			c.Incident, c.Revision, c.Time.UnixNano(), c.Author, c.Verdict, c.Resource, c.Fault, c.Note, string(said))
		return err
	})
	if errors.Is(err, errSame) {
		return stands, nil
	}
	if err != nil {
		return c, fmt.Errorf("correct incident %s: %w", c.Incident, err)
	}
	return c, nil
}

func query(ctx context.Context, q sqldb.Queryer, where string, args ...any) ([]schemas.Correction, error) {
	return sqldb.Rows(ctx, q, func(rows *sql.Rows) (c schemas.Correction, err error) {
		var ns int64
		var said string
		if err := rows.Scan(&c.Incident, &c.Revision, &ns, &c.Author, &c.Verdict, &c.Resource, &c.Fault, &c.Note, &said); err != nil {
			return c, err
		}
		c.Time = time.Unix(0, ns).UTC()
		return c, json.Unmarshal([]byte(said), &c.Said)
	}, `SELECT incident, revision, time_ns, author, verdict, resource, fault, note, said FROM incident_corrections c WHERE `+where, args...)
}

// History returns all verdicts on an incident, the newest first.
func (s *Store) History(ctx context.Context, incident string) ([]schemas.Correction, error) {
	out, err := query(ctx, s.db, `incident=$1 ORDER BY revision DESC`, incident)
	if err != nil {
		return nil, fmt.Errorf("read corrections of %s: %w", incident, err)
	}
	return out, nil
}

// standing picks the last verdict of each incident.
const standing = `revision=(SELECT MAX(revision) FROM incident_corrections l WHERE l.incident=c.incident)`

// Of returns the verdicts that stand on incidents; withdrawn ones are left out.
func (s *Store) Of(ctx context.Context, incidents ...string) (map[string]schemas.Correction, error) {
	const chunk = 200
	out := make(map[string]schemas.Correction)
	for from := 0; from < len(incidents); from += chunk {
		ids := incidents[from:min(from+chunk, len(incidents))]
		args, marks := make([]any, len(ids)), make([]string, len(ids))
		for i, id := range ids {
			args[i], marks[i] = id, "$"+strconv.Itoa(i+1)
		}
		found, err := query(ctx, s.db, standing+` AND incident IN (`+strings.Join(marks, ",")+`)`, args...)
		if err != nil {
			return nil, fmt.Errorf("read corrections: %w", err)
		}
		for _, c := range found {
			if c.Judges() {
				out[c.Incident] = c
			}
		}
	}
	return out, nil
}

var order = sqldb.Order[schemas.Correction]{
	ID: sqldb.Key[schemas.Correction]{SQL: "incident", Of: func(c *schemas.Correction) any { return c.Incident }}, Usual: "-time",
	By: map[string]sqldb.Key[schemas.Correction]{
		"time":     {SQL: "time_ns", Of: func(c *schemas.Correction) any { return c.Time.UnixNano() }},
		"incident": {SQL: "incident", Of: func(c *schemas.Correction) any { return c.Incident }, Alone: true},
	},
}

// List returns a page of the verdicts that stand, withdrawn ones among them, sorted by time or
// incident; "" is the newest first. next is the cursor of the following page.
func (s *Store) List(ctx context.Context, since time.Time, sort, after string, limit int) (out []schemas.Correction, next string, err error) {
	from := int64(0)
	if !since.IsZero() {
		from = since.UnixNano()
	}
	tail, args, err := order.Tail(sort, after, limit, from)
	if err == nil {
		out, err = query(ctx, s.db, standing+` AND time_ns>=$1`+tail, args...)
	}
	if err != nil {
		return nil, "", fmt.Errorf("list corrections: %w", err)
	}
	out, next = order.Page(out, sort, limit)
	return out, next, nil
}

// All returns every verdict that stands, as exports need it.
func (s *Store) All(ctx context.Context) ([]schemas.Correction, error) {
	out, err := query(ctx, s.db, standing+` ORDER BY time_ns, incident`)
	if err != nil {
		return nil, fmt.Errorf("read corrections: %w", err)
	}
	return out, nil
}

// PutCauseIn notes what an incident names as its root cause, within the transaction
// that stores the incident; the cause of before is not noted again.
func PutCauseIn(ctx context.Context, x records.Execer, i *schemas.Incident) error {
	if i.MergedInto != "" {
		return nil
	}
	_, err := x.ExecContext(ctx, `INSERT INTO incident_causes (incident, revision, at_ns, resource, fault)
SELECT CAST($1 AS TEXT), CAST($2 AS BIGINT), CAST($3 AS BIGINT), CAST($4 AS TEXT), CAST($5 AS TEXT) WHERE NOT EXISTS (
  SELECT 1 FROM incident_causes c WHERE c.incident=$1 AND c.resource=$4 AND c.fault=$5
  AND c.revision=(SELECT MAX(revision) FROM incident_causes l WHERE l.incident=$1))
ON CONFLICT (incident, revision) DO NOTHING`, i.ID, i.Revision, i.At.UnixNano(), i.RootCause.Resource, i.RootCause.Fault)
	if err != nil {
		return fmt.Errorf("note the cause of incident %s: %w", i.ID, err)
	}
	return nil
}

// Turn is a moment from which an incident named a cause.
type Turn struct {
	At              time.Time
	Resource, Fault string
}

// Turns returns what incidents named as their cause, and from when on, in order.
func (s *Store) Turns(ctx context.Context, incidents ...string) (map[string][]Turn, error) {
	const chunk = 200
	out := make(map[string][]Turn)
	for from := 0; from < len(incidents); from += chunk {
		ids := incidents[from:min(from+chunk, len(incidents))]
		args, marks := make([]any, len(ids)), make([]string, len(ids))
		for i, id := range ids {
			args[i], marks[i] = id, "$"+strconv.Itoa(i+1)
		}
		if err := s.turns(ctx, out, strings.Join(marks, ","), args); err != nil {
			return nil, fmt.Errorf("read causes of incidents: %w", err)
		}
	}
	return out, nil
}

func (s *Store) turns(ctx context.Context, out map[string][]Turn, marks string, args []any) error {
	rows, err := s.db.QueryContext(
		ctx, `SELECT incident, at_ns, resource, fault FROM incident_causes WHERE incident IN (`+marks+`) ORDER BY incident, revision`, args...,
	)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id string
		var ns int64
		var t Turn
		if err := rows.Scan(&id, &ns, &t.Resource, &t.Fault); err != nil {
			return err
		}
		t.At = time.Unix(0, ns).UTC()
		out[id] = append(out[id], t)
	}
	return rows.Err()
}

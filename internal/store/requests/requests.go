// Package requests keeps what people, allocations and workflows asked control for, from before
// control knows of it. Whoever asks notes it here first, and puts it on the bus until control has
// made an action of it: a crash between the two, or a bus that forgets, loses nothing, and the same
// request twice is one action.
package requests

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
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// Pending is the state of a request that control has not taken yet. All other states are those of
// its action.
const Pending = "pending"

// Store reads and writes requests, in the table of migration 0043.
type Store struct{ db *sqldb.DB }

// New returns the store of a relational database whose schema is up to date.
func New(db *sqldb.DB) *Store { return &Store{db: db} }

// Request is what was asked for, and the action that control made of it; Action is nil before.
type Request struct {
	Intent schemas.Intent
	Action *schemas.Action
}

// Add notes a request and its row of the audit, to be put on the bus. One whose id is known stays
// as it is.
func (s *Store) Add(ctx context.Context, in schemas.Intent) error {
	err := s.db.InTx(ctx, func(tx *sql.Tx) error {
		added, err := insert(ctx, tx, in, false)
		if err != nil || !added {
			return err
		}
		return audit.Append(ctx, tx, audit.Row{
			Time: in.Time, Actor: in.Actor, Verb: schemas.IntentRequest, Subject: in.Server, Action: in.ID, Kind: in.Kind, State: Pending,
			Detail: in.Reason,
		})
	})
	if err != nil {
		return fmt.Errorf("note request %s: %w", in.ID, err)
	}
	return nil
}

func insert(ctx context.Context, tx *sql.Tx, in schemas.Intent, taken bool) (added bool, err error) {
	doc, err := json.Marshal(in)
	if err != nil {
		return false, err
	}
	r, err := tx.ExecContext(ctx, `INSERT INTO requests (id, server, created_ns, told_ns, taken, doc) VALUES ($1,$2,$3,0,$4,$5) ON CONFLICT (id) DO NOTHING`,
		in.ID, in.Server, in.Time.UnixNano(), taken, string(doc))
	if err != nil {
		return false, err
	}
	n, err := r.RowsAffected()
	return n > 0, err
}

// Take notes, in the transaction that makes the action of a request, that it is there.
func Take(ctx context.Context, tx *sql.Tx, in schemas.Intent) error {
	added, err := insert(ctx, tx, in, true)
	if err == nil && !added {
		_, err = tx.ExecContext(ctx, `UPDATE requests SET taken=TRUE WHERE id=$1`, in.ID)
	}
	if err != nil {
		return fmt.Errorf("take request %s: %w", in.ID, err)
	}
	return nil
}

// Untold returns the requests that control has not taken and that were not put on the bus since a
// time, the oldest first, and Told notes that one was.
func (s *Store) Untold(ctx context.Context, since time.Time) ([]schemas.Intent, error) {
	out, err := sqldb.Docs[schemas.Intent](ctx, s.db,
		`SELECT doc FROM requests WHERE taken=FALSE AND told_ns<$1 ORDER BY created_ns, id LIMIT 1000`, since.UnixNano())
	if err != nil {
		return nil, fmt.Errorf("list untold requests: %w", err)
	}
	return out, nil
}

// Told implements what Untold says.
func (s *Store) Told(ctx context.Context, id string, at time.Time) error {
	if _, err := s.db.ExecContext(ctx, `UPDATE requests SET told_ns=$2 WHERE id=$1`, id, at.UnixNano()); err != nil {
		return fmt.Errorf("note that request %s was told: %w", id, err)
	}
	return nil
}

// forgotten is how many requests one statement deletes.
const forgotten = 1000

// Forget deletes the requests that were made before a time, which control took, and of which the
// action has ended or is not kept any more, and returns how many there were. The audit keeps them.
func (s *Store) Forget(ctx context.Context, before time.Time) (n int64, err error) {
	for {
		res, err := s.db.ExecContext(ctx, `DELETE FROM requests WHERE id IN (SELECT r.id FROM requests r LEFT JOIN records a ON a.kind='action' AND a.id=r.id
WHERE r.created_ns<$1 AND r.taken=TRUE AND COALESCE(a.status, $2) IN ($2,$3,$4,$5,$6,$7) ORDER BY r.created_ns LIMIT $8)`, before.UnixNano(),
			schemas.ActionDone, schemas.ActionFailed, schemas.ActionUnknown, schemas.ActionCancelled, schemas.ActionRefused, schemas.ActionProposed, forgotten)
		var some int64
		if err == nil {
			some, err = res.RowsAffected()
		}
		if err != nil {
			return n, fmt.Errorf("forget requests: %w", err)
		}
		if n += some; some < forgotten {
			return n, nil
		}
	}
}

const columns = `SELECT r.doc, a.doc FROM requests r LEFT JOIN records a ON a.kind='action' AND a.id=r.id`

func scan(rows *sql.Rows) (r Request, err error) {
	var in string
	var action sql.NullString
	if err := rows.Scan(&in, &action); err != nil {
		return r, err
	}
	if err := json.Unmarshal([]byte(in), &r.Intent); err != nil || !action.Valid {
		return r, err
	}
	r.Action = &schemas.Action{}
	return r, json.Unmarshal([]byte(action.String), r.Action)
}

// Get returns the request with an id, and whether there is one.
func (s *Store) Get(ctx context.Context, id string) (r Request, found bool, err error) {
	all, err := sqldb.Rows(ctx, s.db, scan, columns+` WHERE r.id=$1`, id)
	if err != nil {
		return r, false, fmt.Errorf("get request %s: %w", id, err)
	}
	if len(all) == 0 {
		return r, false, nil
	}
	return all[0], true, nil
}

// Filter narrows a list.
type Filter struct {
	Server string
	State  string // of the action, or Pending
	Sort   string // created_at, or -created_at, which "" is
	After  string // the cursor of the page before
	Limit  int
}

// List returns a page of requests by the time they were made, newest first, and the cursor of the
// next page. A cursor that is none of ours is [sqldb.ErrCursor].
func (s *Store) List(ctx context.Context, f Filter) (page []Request, next string, err error) {
	if f.Limit <= 0 {
		return nil, "", errors.New("list requests: no limit")
	}
	q := strings.Builder{}
	q.WriteString(columns + ` WHERE 1=1`)
	var args []any
	arg := func(v any) string {
		args = append(args, v)
		return "$" + strconv.Itoa(len(args))
	}
	if f.Server != "" {
		q.WriteString(` AND r.server=` + arg(f.Server))
	}
	if f.State != "" {
		q.WriteString(` AND COALESCE(a.status, '` + Pending + `')=` + arg(f.State))
	}
	tail, args, err := order.Tail(f.Sort, f.After, f.Limit, args...)
	if err != nil {
		return nil, "", fmt.Errorf("list requests: %w", err)
	}
	q.WriteString(tail)
	all, err := sqldb.Rows(ctx, s.db, scan, q.String(), args...)
	if err != nil {
		return nil, "", fmt.Errorf("list requests: %w", err)
	}
	page, next = order.Page(all, f.Sort, f.Limit)
	return page, next, nil
}

var order = sqldb.Order[Request]{
	ID: sqldb.Key[Request]{SQL: "r.id", Of: func(r *Request) any { return r.Intent.ID }}, Usual: "-created_at",
	By: map[string]sqldb.Key[Request]{"created_at": {SQL: "r.created_ns", Of: func(r *Request) any { return r.Intent.Time.UnixNano() }}},
}

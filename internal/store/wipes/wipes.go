// Package wipes keeps what was found of the drives of servers after they were to be wiped, and the tokens with which it is told.
package wipes

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"auspex/internal/store/entity"
	"auspex/internal/store/estate"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

const (
	// Holds is how long the token of a workflow is taken at most.
	Holds = 24 * time.Hour
	// Most is how many reports are kept of one action. An action of Tinkerbell may run twice, where its worker ended in it.
	Most = 16
)

// ErrMany is of an action that has told as much as is kept.
var ErrMany = errors.New("no more is kept of this action")

// Store reads and writes the tables of migration 0126.
type Store struct {
	db  *sqldb.DB
	now func() time.Time
}

// New returns the store of a relational database whose schema is up to date.
func New(db *sqldb.DB, now func() time.Time) *Store { return &Store{db: db, now: now} }

// Order is a workflow that wipes a server, while it goes on.
type Order struct{ Action, ServerID, Workflow string }

// Open returns the token with which the workflow of an action tells what it found: the same one until it is closed.
func (s *Store) Open(ctx context.Context, o Order) (token string, err error) {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	err = s.db.InTx(ctx, func(tx *sql.Tx) error {
		if _, err := estate.Lock(ctx, tx, o.ServerID); err != nil { // no two are made at a time
			return err
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM wipe_orders WHERE created_ns<$1`, s.now().Add(-Holds).UnixNano()); err != nil {
			return err
		}
		found, err := sqldb.Rows(ctx, tx, func(rows *sql.Rows) (t string, err error) { return t, rows.Scan(&t) },
			`SELECT token FROM wipe_orders WHERE action_id=$1 AND server_id=$2`, o.Action, o.ServerID)
		if err != nil || len(found) > 0 {
			if len(found) > 0 {
				token = found[0]
			}
			return err
		}
		token = base64.RawURLEncoding.EncodeToString(b[:])
		_, err = tx.ExecContext(ctx, `INSERT INTO wipe_orders (action_id, server_id, workflow, token, created_ns) VALUES ($1,$2,$3,$4,$5)`,
			o.Action, o.ServerID, o.Workflow, token, s.now().UnixNano())
		return err
	})
	if err != nil {
		return "", fmt.Errorf("open the wipe %s of server %s: %w", o.Action, o.ServerID, err)
	}
	return token, nil
}

// Close has the token of an action taken no more.
func (s *Store) Close(ctx context.Context, action string) error {
	if _, err := s.db.ExecContext(ctx, `DELETE FROM wipe_orders WHERE action_id=$1`, action); err != nil {
		return fmt.Errorf("close the wipe %s: %w", action, err)
	}
	return nil
}

// Told finds the workflow that a token is of. The error wraps [entity.ErrNone] where there is none.
func (s *Store) Told(ctx context.Context, token string) (o Order, err error) {
	found, err := sqldb.Rows(ctx, s.db, func(rows *sql.Rows) (o Order, err error) { return o, rows.Scan(&o.Action, &o.ServerID, &o.Workflow) },
		`SELECT action_id, server_id, workflow FROM wipe_orders WHERE token=$1 AND created_ns>=$2`, token, s.now().Add(-Holds).UnixNano())
	if err == nil && len(found) == 0 {
		err = entity.ErrNone
	}
	if err != nil {
		return o, fmt.Errorf("find a wipe by its token: %w", err)
	}
	return found[0], nil
}

func scan(rows *sql.Rows) (w schemas.Wipe, err error) {
	var doc []byte
	var created int64
	var name string
	var number int64
	if err := rows.Scan(&name, &number, &doc, &created); err != nil {
		return w, err
	}
	err = json.Unmarshal(doc, &w)
	w.Server, w.Number, w.Created = name, number, time.Unix(0, created).UTC() // as it is called now
	return w, err
}

func list(ctx context.Context, q sqldb.Queryer, where string, args ...any) ([]schemas.Wipe, error) {
	return sqldb.Rows(ctx, q, scan, `SELECT s.name, w.number, w.doc, w.created_ns FROM wipes w JOIN servers s ON s.id=w.server_id WHERE `+where, args...)
}

// Put keeps what the workflow of w.Action found of the server with w.ServerID, under the next number. The same report again is
// known already, and stays as it was.
func (s *Store) Put(ctx context.Context, w schemas.Wipe) (schemas.Wipe, error) {
	told, err := json.Marshal([]any{w.Action, w.Drives, w.Began, w.Ended})
	if err != nil {
		return w, err
	}
	w.ID = uuid.NewHash(sha256.New(), uuid.Nil, told, 8).String()
	err = s.db.InTx(ctx, func(tx *sql.Tx) error {
		if _, err := estate.Lock(ctx, tx, w.ServerID); err != nil { // numbers are counted by one at a time
			return err
		}
		found, err := list(ctx, tx, `w.id=$1`, w.ID)
		if err != nil {
			return err
		}
		if len(found) > 0 {
			w = found[0]
			return nil
		}
		var of int
		if err := tx.QueryRowContext(ctx, `SELECT count(*), COALESCE((SELECT MAX(number) FROM wipes WHERE server_id=$1),0)+1 FROM wipes WHERE action_id=$2`, w.ServerID, w.Action).Scan(&of, &w.Number); err != nil {
			return err
		}
		if of >= Most {
			return ErrMany
		}
		w.Created = s.now().UTC()
		doc, err := json.Marshal(w)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO wipes (id, server_id, number, action_id, proven, doc, created_ns) VALUES ($1,$2,$3,$4,$5,$6,$7)`,
			w.ID, w.ServerID, w.Number, w.Action, w.Proven, string(doc), w.Created.UnixNano())
		return entity.Explain(err, "wipes", func(string) string { return fmt.Sprintf("of %d bytes", len(doc)) })
	})
	if err != nil {
		return w, fmt.Errorf("keep what the wipe %s found of server %s: %w", w.Action, w.ServerID, err)
	}
	return w, nil
}

// Of lists those of a server, by its id, the latest first, those before a number where that is not 0.
func (s *Store) Of(ctx context.Context, server string, before int64, limit int) ([]schemas.Wipe, error) {
	found, err := list(ctx, s.db, `w.server_id=$1 AND ($2=0 OR w.number<$2) ORDER BY w.number DESC LIMIT $3`, server, before, limit)
	if err != nil {
		return nil, fmt.Errorf("list wipes of server %s: %w", server, err)
	}
	return found, nil
}

// Last is what the workflow of an action told last; false is that it has told nothing.
func (s *Store) Last(ctx context.Context, action string) (schemas.Wipe, bool, error) {
	found, err := list(ctx, s.db, `w.action_id=$1 ORDER BY w.number DESC LIMIT 1`, action)
	if err != nil {
		return schemas.Wipe{}, false, fmt.Errorf("find what the wipe %s told: %w", action, err)
	}
	if len(found) == 0 {
		return schemas.Wipe{}, false, nil
	}
	return found[0], true, nil
}

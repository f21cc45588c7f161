// Package answers keeps what requests with an Idempotency-Key were answered, so that one that
// is sent again is answered as before and not done again.
package answers

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"auspex/internal/store/sqldb"
)

const (
	// Keep is how long an answer is kept.
	Keep = 24 * time.Hour
	// atWork is how long a request without an answer is taken to be at work: the process may
	// have ended before it answered.
	atWork = 30 * time.Second
	sweep  = 100 // answers that are forgotten at a time
)

// Errors of a request that is not to be done.
var (
	ErrOther  = errors.New("the key was used for another request")
	ErrAtWork = errors.New("the same request is at work")
)

// Answer is what a request was answered.
type Answer struct {
	Status  int               `json:"-"`
	Headers map[string]string `json:"headers,omitempty"`
	Body    string            `json:"body,omitempty"`
}

// Store keeps answers in the table of migration 0053.
type Store struct {
	db  *sqldb.DB
	now func() time.Time
}

// New returns the store of a relational database whose schema is up to date.
func New(db *sqldb.DB) *Store { return &Store{db: db, now: time.Now} }

// Begin returns the answer that a caller's request was given, or nil where it is to be done;
// then it has to be ended by [Store.End].
func (s *Store) Begin(ctx context.Context, caller, key, request string) (*Answer, error) {
	now := s.now()
	var answer *Answer
	err := s.db.InTx(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `DELETE FROM api_answers WHERE (caller, request_key) IN
(SELECT caller, request_key FROM api_answers WHERE ends_ns<$1 LIMIT $2)`, now.UnixNano(), sweep); err != nil {
			return err
		}
		res, err := tx.ExecContext(ctx, `INSERT INTO api_answers (caller, request_key, request, began_ns, ends_ns, status, answer)
VALUES ($1,$2,$3,$4,$5,0,'') ON CONFLICT (caller, request_key) DO UPDATE SET began_ns=excluded.began_ns, ends_ns=excluded.ends_ns
WHERE api_answers.status=0 AND api_answers.request=excluded.request AND api_answers.began_ns<$6`,
			caller, key, request, now.UnixNano(), now.Add(Keep).UnixNano(), now.Add(-atWork).UnixNano())
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n > 0 {
			return err
		}
		var asked, text string
		var a Answer
		if err := tx.QueryRowContext(ctx, `SELECT request, status, answer FROM api_answers WHERE caller=$1 AND request_key=$2`, caller, key).
			Scan(&asked, &a.Status, &text); err != nil {
			return err
		}
		switch {
		case asked != request:
			return ErrOther
		case a.Status == 0:
			return ErrAtWork
		}
		answer = &a
		return json.Unmarshal([]byte(text), &a)
	})
	if err != nil {
		return nil, fmt.Errorf("look for the answer to request %s: %w", key, err)
	}
	return answer, nil
}

// End keeps an answer; nil forgets the request, which may then be made again.
func (s *Store) End(ctx context.Context, caller, key string, a *Answer) error {
	var err error
	if a == nil {
		_, err = s.db.ExecContext(ctx, `DELETE FROM api_answers WHERE caller=$1 AND request_key=$2 AND status=0`, caller, key)
	} else {
		text, e := json.Marshal(a)
		if e != nil {
			return e
		}
		_, err = s.db.ExecContext(ctx, `UPDATE api_answers SET status=$1, answer=$2 WHERE caller=$3 AND request_key=$4`, a.Status, string(text), caller, key)
	}
	if err != nil {
		return fmt.Errorf("keep the answer to request %s: %w", key, err)
	}
	return nil
}

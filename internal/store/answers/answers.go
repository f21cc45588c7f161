// Package answers keeps what requests with an Idempotency-Key were answered, so that one that
// is sent again is answered as before and not done again.
package answers

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"encoding/hex"
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

// Request is a request with an Idempotency-Key, of somebody.
type Request struct {
	Caller, Key string
	Asked       string // SHA-256 of what is asked for
	// Secret is that the answer holds a secret. Then neither the key nor the answer is kept in clear:
	// the row is found by a hash of the key, and the answer is sealed under the key, so that of who
	// reads the store only those who know the key learn it. The key has to be one that nobody guesses.
	Secret bool
}

// name is what the request is kept under.
func (r *Request) name() (string, error) {
	if !r.Secret {
		return r.Key, nil
	}
	h, err := r.derive("name", 32)
	return "sealed " + hex.EncodeToString(h), err
}

// derive makes a key from that of the caller (HKDF, RFC 5869), another for each use and caller.
func (r *Request) derive(use string, size int) ([]byte, error) {
	return hkdf.Key(sha256.New, []byte(r.Key), []byte(r.Caller), "auspex answer "+use, size)
}

// gcm is AES-256-GCM under the key of the caller. It makes the nonces: a key that is used again after
// its answer was forgotten seals another answer.
func (r *Request) gcm() (cipher.AEAD, error) {
	key, err := r.derive("seal", 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// write is an answer as it is kept.
func (r *Request) write(a *Answer) (string, error) {
	text, err := json.Marshal(a)
	if err != nil || !r.Secret {
		return string(text), err
	}
	gcm, err := r.gcm()
	if err != nil {
		return "", err
	}
	return base64.StdEncoding.EncodeToString(gcm.Seal(nil, nil, text, []byte(r.Asked))), nil
}

func (r *Request) read(text string, a *Answer) error {
	if !r.Secret {
		return json.Unmarshal([]byte(text), a)
	}
	sealed, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return err
	}
	gcm, err := r.gcm()
	if err != nil {
		return err
	}
	plain, err := gcm.Open(nil, nil, sealed, []byte(r.Asked))
	if err != nil {
		return err
	}
	return json.Unmarshal(plain, a)
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
func (s *Store) Begin(ctx context.Context, r Request) (*Answer, error) {
	now := s.now()
	var answer *Answer
	key, err := r.name()
	if err != nil {
		return nil, err
	}
	err = s.db.InTx(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `DELETE FROM api_answers WHERE (caller, request_key) IN
(SELECT caller, request_key FROM api_answers WHERE ends_ns<$1 LIMIT $2)`, now.UnixNano(), sweep); err != nil {
			return err
		}
		res, err := tx.ExecContext(ctx, `INSERT INTO api_answers (caller, request_key, request, began_ns, ends_ns, status, answer)
VALUES ($1,$2,$3,$4,$5,0,'') ON CONFLICT (caller, request_key) DO UPDATE SET began_ns=excluded.began_ns, ends_ns=excluded.ends_ns
WHERE api_answers.status=0 AND api_answers.request=excluded.request AND api_answers.began_ns<$6`,
			r.Caller, key, r.Asked, now.UnixNano(), now.Add(Keep).UnixNano(), now.Add(-atWork).UnixNano())
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n > 0 {
			return err
		}
		var asked, text string
		var a Answer
		if err := tx.QueryRowContext(ctx, `SELECT request, status, answer FROM api_answers WHERE caller=$1 AND request_key=$2`, r.Caller, key).
			Scan(&asked, &a.Status, &text); err != nil {
			return err
		}
		switch {
		case asked != r.Asked:
			return ErrOther
		case a.Status == 0:
			return ErrAtWork
		}
		answer = &a
		return r.read(text, &a)
	})
	if err != nil {
		return nil, fmt.Errorf("look for the answer to request %s: %w", key, err)
	}
	return answer, nil
}

// End keeps an answer; nil forgets the request, which may then be made again.
func (s *Store) End(ctx context.Context, r Request, a *Answer) error {
	key, err := r.name()
	if err != nil {
		return err
	}
	if a == nil {
		_, err = s.db.ExecContext(ctx, `DELETE FROM api_answers WHERE caller=$1 AND request_key=$2 AND status=0`, r.Caller, key)
	} else {
		text, e := r.write(a)
		if e != nil {
			return e
		}
		_, err = s.db.ExecContext(ctx, `UPDATE api_answers SET status=$1, answer=$2 WHERE caller=$3 AND request_key=$4`, a.Status, text, r.Caller, key)
	}
	if err != nil {
		return fmt.Errorf("keep the answer to request %s: %w", key, err)
	}
	return nil
}

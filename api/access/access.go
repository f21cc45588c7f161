// Package access knows who may ask the API: tokens for scripts, sessions of
// browsers, and the one-time codes that a browser exchanges for a session.
//
// A secret is 256 random bits. The store keeps its SHA-256 alone, which is
// enough for secrets that nobody chose, and no secret is ever logged.
package access

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Roles, from the least to the most.
const (
	RoleViewer   = "viewer"
	RoleOperator = "operator"
	RoleAdmin    = "admin"
)

// Permissions that roles have.
const (
	Read    = "read"
	Approve = "approve"
	Cancel  = "cancel"
	DryRun  = "dry_run"
	Audit   = "audit"  // read who did what
	Invite  = "invite" // make login codes
	Reload  = "reload" // make the process read its configuration again
)

// ErrRole is returned for a role that does not exist.
var ErrRole = errors.New("unknown role")

// Principal is who asks.
type Principal struct {
	Name string
	Role string
}

// Permissions returns what the principal may do; an unknown role may nothing.
func (p Principal) Permissions() []string {
	switch p.Role {
	case RoleViewer:
		return []string{Read}
	case RoleOperator:
		return []string{Read, Approve, Cancel, DryRun, Audit}
	case RoleAdmin:
		return []string{Read, Approve, Cancel, DryRun, Audit, Invite, Reload}
	}
	return nil
}

// May reports whether the principal has a permission.
func (p Principal) May(permission string) bool { return slices.Contains(p.Permissions(), permission) }

// DB is the relational store, with the tables of migration 0050.
type DB interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Store keeps tokens and sessions in the relational store and codes in memory.
type Store struct {
	db       DB
	lifetime time.Duration
	now      func() time.Time

	mu    sync.Mutex
	codes map[string]code // by hash
}

type code struct {
	Principal
	expires time.Time
}

const maxCodes = 1000

// New returns a store whose sessions last for lifetime.
func New(db DB, lifetime time.Duration) *Store {
	return &Store{db: db, lifetime: lifetime, now: time.Now, codes: make(map[string]code)}
}

func secret() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

func hashOf(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:])
}

// IssueToken makes a token with a role and returns it; it is not kept in the
// clear. A token of the same name stops working.
func (s *Store) IssueToken(ctx context.Context, name, role string) (string, error) {
	if (Principal{Role: role}).Permissions() == nil {
		return "", fmt.Errorf("issue token %s: role %q: %w", name, role, ErrRole)
	}
	token := secret()
	_, err := s.db.ExecContext(ctx, `INSERT INTO api_tokens (name, hash, role, created_ns) VALUES ($1,$2,$3,$4)
ON CONFLICT (name) DO UPDATE SET hash=excluded.hash, role=excluded.role, created_ns=excluded.created_ns`,
		name, hashOf(token), role, s.now().UnixNano())
	if err != nil {
		return "", fmt.Errorf("issue token %s: %w", name, err)
	}
	return token, nil
}

// Token returns whose token it is, and whether it is one.
func (s *Store) Token(ctx context.Context, token string) (p Principal, found bool, err error) {
	err = s.db.QueryRowContext(ctx, `SELECT name, role FROM api_tokens WHERE hash=$1`, hashOf(token)).Scan(&p.Name, &p.Role)
	return result(p, "look up token", err)
}

// StartSession makes a session and returns its secret and its end.
func (s *Store) StartSession(ctx context.Context, p Principal) (session string, expires time.Time, err error) {
	session, now := secret(), s.now()
	expires = now.Add(s.lifetime)
	if _, err := s.db.ExecContext(ctx, `DELETE FROM api_sessions WHERE expires_ns<$1`, now.UnixNano()); err != nil {
		return "", time.Time{}, fmt.Errorf("start session: %w", err)
	}
	_, err = s.db.ExecContext(ctx, `INSERT INTO api_sessions (hash, name, role, created_ns, expires_ns) VALUES ($1,$2,$3,$4,$5)`,
		hashOf(session), p.Name, p.Role, now.UnixNano(), expires.UnixNano())
	if err != nil {
		return "", time.Time{}, fmt.Errorf("start session: %w", err)
	}
	return session, expires, nil
}

// Session returns whose session it is, and whether it is one that still lasts.
func (s *Store) Session(ctx context.Context, session string) (p Principal, found bool, err error) {
	err = s.db.QueryRowContext(ctx, `SELECT name, role FROM api_sessions WHERE hash=$1 AND expires_ns>$2`,
		hashOf(session), s.now().UnixNano()).Scan(&p.Name, &p.Role)
	return result(p, "look up session", err)
}

// EndSession forgets a session; one that does not exist is no error.
func (s *Store) EndSession(ctx context.Context, session string) error {
	if _, err := s.db.ExecContext(ctx, `DELETE FROM api_sessions WHERE hash=$1`, hashOf(session)); err != nil {
		return fmt.Errorf("end session: %w", err)
	}
	return nil
}

func result(p Principal, what string, err error) (Principal, bool, error) {
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return Principal{}, false, nil
	case err != nil:
		return Principal{}, false, fmt.Errorf("%s: %w", what, err)
	}
	return p, true, nil
}

// NewCode makes a code that works once within its lifetime.
func (s *Store) NewCode(p Principal, lifetime time.Duration) (plain string, expires time.Time) {
	plain, now := secret(), s.now()
	expires = now.Add(lifetime)
	s.mu.Lock()
	defer s.mu.Unlock()
	for h, c := range s.codes {
		if now.After(c.expires) || len(s.codes) >= maxCodes {
			delete(s.codes, h)
		}
	}
	s.codes[hashOf(plain)] = code{p, expires}
	return plain, expires
}

// TakeCode returns who a code stands for, and forgets it.
func (s *Store) TakeCode(plain string) (Principal, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := hashOf(plain)
	c, found := s.codes[h]
	delete(s.codes, h)
	if !found || s.now().After(c.expires) {
		return Principal{}, false
	}
	return c.Principal, true
}

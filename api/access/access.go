// Package access knows who may ask the API: tokens for scripts, sessions of
// browsers, and the one-time codes that a browser exchanges for a session.
//
// A secret is 256 random bits. The store keeps its SHA-256 alone, which is
// enough for secrets that nobody chose, and no secret is ever logged.
package access

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"time"

	"auspex/internal/store/audit"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// Roles, from the least to the most.
const (
	RoleViewer   = schemas.RoleViewer
	RoleOperator = schemas.RoleOperator
	RoleEngineer = schemas.RoleEngineer
	RoleAdmin    = schemas.RoleAdmin
)

// Permissions that roles have.
const (
	Read     = "read"
	Approve  = "approve"
	Cancel   = "cancel"
	DryRun   = "dry_run"
	Correct  = "correct"     // say what the cause of an incident was
	Post     = "post"        // report events and alerts
	Handle   = "acknowledge" // acknowledge and resolve alerts, and comment on them
	Declare  = "declare"     // declare and end maintenance windows
	Enrol    = "enrol"       // make and revoke join tokens, and decide what agents bring into the inventory
	Operate  = "operate"     // have control do something to a server: power, BIOS, firmware
	Audit    = "audit"       // read who did what
	Invite   = "invite"      // make login codes
	Reload   = "reload"      // make the process read its configuration again
	Tokens   = "tokens"      // make, list and revoke tokens
	Allocate = "allocate"    // ask for servers and GPUs, end that, and run workflows
	Users    = "users"       // make and change users and teams, and list all of them
	Webhooks = "webhooks"    // make, change and list webhooks, and see what was sent to them
	// Inventory is to register and change servers, GPUs and their configurations, and Quotas to make
	// and change pools, quotas and reservations.
	Inventory = "inventory"
	Quotas    = "quotas"
	// Assign is to decide in the stead of whoever has a server: to allocate to others, to end that by
	// force, and to have things done to what others have.
	Assign = "assign"
)

// pooled are the permissions of which each is about a server, or about what is on it.
var pooled = []string{Approve, Cancel, DryRun, Declare, Allocate, Operate, Inventory, Assign}

// InPool returns what a role that was granted in a pool lets its holder do to servers of that pool.
func InPool(role string) []string {
	return slices.DeleteFunc(Principal{Role: role}.Permissions(), func(p string) bool { return !slices.Contains(pooled, p) })
}

// Errors of tokens.
var (
	ErrRole    = errors.New("unknown role")
	ErrName    = errors.New("a name has 1 to 64 letters, digits and . _ @ -")
	ErrTaken   = errors.New("a token with this name exists")
	ErrNoToken = errors.New("no such token")
	ErrStale   = errors.New("the token was changed meanwhile")
	ErrRevoked = errors.New("its token was revoked")
	ErrUser    = errors.New("no such user, or an inactive one")
)

// Principal is who asks.
type Principal struct {
	Name string // username, or the name of a token that is nobody's
	Role string // of a user's token the lesser of its own and the user's
	User string // id, or "" where it is no user
	// most is the role that the credential of a user was made with: it lets them do no more, whatever
	// role they have or are granted.
	most string
	// token is the hash of the token that a session or a code came from: it ends
	// with it. Empty hangs on none.
	token string
}

// Permissions returns what the principal may do; an unknown role may nothing.
func (p Principal) Permissions() []string {
	switch p.Role {
	case RoleViewer:
		return []string{Read}
	case RoleOperator:
		return []string{Read, Approve, Cancel, DryRun, Correct, Post, Handle, Declare, Audit}
	case RoleEngineer:
		return []string{Read, Approve, Cancel, DryRun, Correct, Post, Handle, Declare, Audit, Enrol, Allocate, Operate, Inventory}
	case RoleAdmin:
		return []string{Read, Approve, Cancel, DryRun, Correct, Post, Handle, Declare, Audit, Enrol, Allocate, Operate, Inventory, Assign, Invite, Quotas, Reload, Tokens, Users, Webhooks}
	}
	return nil
}

// Script returns the name of the token that is nobody's which the principal is, or came from.
func (p Principal) Script() string {
	if p.User != "" || p.token == "" {
		return ""
	}
	return p.Name
}

// Cap returns the lesser of a role and that which the credential of the principal was made with.
func (p Principal) Cap(role string) string {
	if p.most == "" {
		return role
	}
	return lesser(p.most, role)
}

// May reports whether the principal has a permission.
func (p Principal) May(permission string) bool { return slices.Contains(p.Permissions(), permission) }

// DB is the relational store, with the tables of migrations 0050 to 0054 and 0105, and
// those of the audit.
type DB interface {
	// InTx runs f in a transaction and commits when it returns nil.
	InTx(ctx context.Context, f func(*sql.Tx) error) error
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// querier is a store, or a transaction in it.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Store keeps tokens and sessions in the relational store and codes in memory.
type Store struct {
	db       DB
	lifetime time.Duration
	now      func() time.Time

	mu    sync.Mutex
	codes map[string]code      // by hash
	used  map[string]time.Time // when the use of a token was written, by hash
}

type code struct {
	Principal
	expires time.Time
}

const (
	maxCodes  = 1000
	maxUsed   = 4096
	usedEvery = time.Minute // the use of a token is written
)

// New returns a store whose sessions last for lifetime.
func New(db DB, lifetime time.Duration) *Store {
	return &Store{db: db, lifetime: lifetime, now: time.Now, codes: make(map[string]code), used: make(map[string]time.Time)}
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

// What a row of the audit says was changed, and how.
const (
	kindToken   = "token"
	kindCode    = "login_code"
	kindSession = "session"
	kindRoute   = "route"

	verbCreate  = "create"
	verbReplace = "replace"
	verbUpdate  = "update"
	verbRevoke  = "revoke"
	verbIssue   = "issue"
	verbStart   = "start"
	verbEnd     = "end"
	verbRequest = "request"
)

// change makes a change and its row of the audit in one transaction: neither is
// there without the other. A row has names and roles, never a secret or its hash.
func (s *Store) change(ctx context.Context, by, verb, kind, subject, detail string, f func(*sql.Tx) error) error {
	return s.db.InTx(ctx, func(tx *sql.Tx) error {
		if err := f(tx); err != nil {
			return err
		}
		return audit.Append(ctx, tx, audit.Row{Time: s.now(), Actor: by, Verb: verb, Subject: subject, Kind: kind, Detail: detail})
	})
}

// NoteRequest writes to the audit, before it is done, that by asks for a change
// that is not of this store, at a path.
func (s *Store) NoteRequest(ctx context.Context, by, path string) error {
	return s.change(ctx, by, verbRequest, kindRoute, path, "", func(*sql.Tx) error { return nil })
}

// IssueToken makes a token with a role for by, and returns it; it is not kept in
// the clear. A token of the same name stops working, and what came from it.
func (s *Store) IssueToken(ctx context.Context, by, name, role string) (string, error) {
	if !slices.Contains(schemas.Roles(), role) {
		return "", fmt.Errorf("issue token %s: role %q: %w", name, role, ErrRole)
	}
	token := secret()
	err := s.change(ctx, by, verbReplace, kindToken, name, "role "+role, func(tx *sql.Tx) error {
		if err := ungrant(ctx, tx, name); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO api_tokens (name, hash, role, created_ns) VALUES ($1,$2,$3,$4)
ON CONFLICT (name) DO UPDATE SET hash=excluded.hash, role=excluded.role, created_ns=excluded.created_ns, expires_ns=0, used_ns=0, user_id=NULL`,
			name, hashOf(token), role, s.now().UnixNano())
		return err
	})
	if err != nil {
		return "", fmt.Errorf("issue token %s: %w", name, err)
	}
	return token, nil
}

// ungrant takes back what was granted to the token that had a name before.
func ungrant(ctx context.Context, tx *sql.Tx, name string) error {
	_, err := tx.ExecContext(ctx, `DELETE FROM grants WHERE token=$1`, name)
	return err
}

// Token is what is known of a token; times that are zero are never.
type Token struct {
	Name    string
	Role    string
	User    string // username, or "" where it is nobody's
	Created time.Time
	Expires time.Time
	Used    time.Time // to the minute
}

// Tag tells the states of a token apart, whoever uses it: an entity tag (RFC 9110, section 8.8.3).
func (t *Token) Tag() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s\x00%d\x00%d", t.Name, t.Role, t.User, t.Created.UnixNano(), t.Expires.UnixNano()))
	return `"` + hex.EncodeToString(sum[:12]) + `"`
}

var tokenName = regexp.MustCompile(`^[A-Za-z0-9._@-]{1,64}$`)

// CreateToken makes a token of a new name for by, and returns its secret, which is
// shown once and not kept. It is that of a user, by id or username, or nobody's: a
// script's. A lifetime of 0 has no end.
func (s *Store) CreateToken(ctx context.Context, by, name, role, user string, lifetime time.Duration) (plain string, t Token, err error) {
	switch {
	case !tokenName.MatchString(name):
		return "", t, fmt.Errorf("token %q: %w", name, ErrName)
	case !slices.Contains(schemas.Roles(), role):
		return "", t, fmt.Errorf("token %s: role %q: %w", name, role, ErrRole)
	}
	plain, t = secret(), Token{Name: name, Role: role, Created: s.now().UTC()}
	var expires int64
	detail := "role " + role
	if lifetime > 0 {
		t.Expires = t.Created.Add(lifetime)
		expires = t.Expires.UnixNano()
		detail += ", until " + t.Expires.Format(time.RFC3339)
	}
	var id sql.NullString
	if user != "" {
		err := s.db.QueryRowContext(ctx, `SELECT id, username FROM users WHERE (id=$1 OR lower(username)=lower($1)) AND status=$2`,
			user, schemas.UserActive).Scan(&id, &t.User)
		if errors.Is(err, sql.ErrNoRows) {
			err = ErrUser
		}
		if err != nil {
			return "", t, fmt.Errorf("create token %s of user %s: %w", name, user, err)
		}
		detail += ", of user " + t.User
	}
	err = s.change(ctx, by, verbCreate, kindToken, name, detail, func(tx *sql.Tx) error {
		if err := ungrant(ctx, tx, name); err != nil { // undone where the name is taken
			return err
		}
		// One that has expired does not hold its name.
		return some(ErrTaken)(tx.ExecContext(ctx, `INSERT INTO api_tokens (name, hash, role, created_ns, expires_ns, user_id) VALUES ($1,$2,$3,$4,$5,$6)
ON CONFLICT (name) DO UPDATE SET hash=excluded.hash, role=excluded.role, created_ns=excluded.created_ns, expires_ns=excluded.expires_ns, used_ns=0,
user_id=excluded.user_id
WHERE api_tokens.expires_ns>0 AND api_tokens.expires_ns<=excluded.created_ns`, name, hashOf(plain), role, t.Created.UnixNano(), expires, id))
	})
	if err != nil {
		return "", t, fmt.Errorf("create token %s: %w", name, err)
	}
	return plain, t, nil
}

// Tokens lists at most limit tokens by name, those after a name.
func (s *Store) Tokens(ctx context.Context, sort, after string, limit int) ([]Token, string, error) {
	tail, args, err := tokenOrder.Tail(sort, after, limit)
	if err != nil {
		return nil, "", fmt.Errorf("list tokens: %w", err)
	}
	out, err := tokens(ctx, s.db, `1=1`+tail, args...)
	if err != nil {
		return nil, "", fmt.Errorf("list tokens: %w", err)
	}
	out, next := tokenOrder.Page(out, sort, limit)
	return out, next, nil
}

var tokenOrder = sqldb.Order[Token]{
	ID: sqldb.Key[Token]{SQL: "t.name", Of: func(t *Token) any { return t.Name }}, Usual: "name",
	By: map[string]sqldb.Key[Token]{
		"name":      {SQL: "t.name", Of: func(t *Token) any { return t.Name }, Alone: true},
		"created":   {SQL: "t.created_ns", Of: func(t *Token) any { return nano(t.Created) }},
		"last_used": {SQL: "t.used_ns", Of: func(t *Token) any { return nano(t.Used) }},
	},
}

// TokenOf returns the token with a name.
func (s *Store) TokenOf(ctx context.Context, name string) (Token, error) {
	found, err := tokens(ctx, s.db, `t.name=$1`, name)
	if err == nil && len(found) == 0 {
		err = ErrNoToken
	}
	if err != nil {
		return Token{}, fmt.Errorf("read token %s: %w", name, err)
	}
	return found[0], nil
}

func tokens(ctx context.Context, q querier, where string, args ...any) ([]Token, error) {
	rows, err := q.QueryContext(ctx, `SELECT t.name, t.role, COALESCE(u.username, ''), t.created_ns, t.expires_ns, t.used_ns
FROM api_tokens t LEFT JOIN users u ON u.id=t.user_id WHERE `+where, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	out := []Token{}
	for rows.Next() {
		var t Token
		var created, expires, used int64
		if err := rows.Scan(&t.Name, &t.Role, &t.User, &created, &expires, &used); err != nil {
			return nil, err
		}
		t.Created, t.Expires, t.Used = at(created), at(expires), at(used)
		out = append(out, t)
	}
	return out, rows.Err()
}

// ChangeToken gives a token another role, where that is not "", and a lifetime from now on, where that
// is not nil: 0 has no end. What comes from the token follows it, and what it no longer may ends at
// the next request. A tag is that of the state that is changed; of another one it is [ErrStale], and ""
// and * are any.
func (s *Store) ChangeToken(ctx context.Context, by, name, tag, role string, lifetime *time.Duration) (t Token, err error) {
	if role != "" && !slices.Contains(schemas.Roles(), role) {
		return t, fmt.Errorf("token %s: role %q: %w", name, role, ErrRole)
	}
	now := s.now().UTC()
	err = s.db.InTx(ctx, func(tx *sql.Tx) error {
		if err := some(ErrNoToken)(tx.ExecContext(ctx, `UPDATE api_tokens SET role=role WHERE name=$1`, name)); err != nil { // puts writers in a line
			return err
		}
		found, err := tokens(ctx, tx, `t.name=$1`, name)
		if err != nil {
			return err
		}
		t = found[0]
		if tag != "" && tag != "*" && tag != t.Tag() {
			return ErrStale
		}
		before := said(&t)
		if role != "" {
			t.Role = role
		}
		expires := int64(0)
		if lifetime != nil {
			if t.Expires = (time.Time{}); *lifetime > 0 {
				t.Expires = now.Add(*lifetime)
			}
		}
		if !t.Expires.IsZero() {
			expires = t.Expires.UnixNano()
		}
		if said(&t) == before {
			return nil
		}
		if _, err := tx.ExecContext(ctx, `UPDATE api_tokens SET role=$1, expires_ns=$2 WHERE name=$3`, t.Role, expires, name); err != nil {
			return err
		}
		return audit.Append(ctx, tx, audit.Row{Time: now, Actor: by, Verb: verbUpdate, Subject: name, Kind: kindToken, Detail: before + "; now " + said(&t)})
	})
	if err != nil {
		return t, fmt.Errorf("change token %s: %w", name, err)
	}
	return t, nil
}

// said is what the audit says of a token: never its secret.
func said(t *Token) string {
	out := "role " + t.Role
	if !t.Expires.IsZero() {
		out += ", until " + t.Expires.Format(time.RFC3339)
	}
	if t.User != "" {
		out += ", of user " + t.User
	}
	return out
}

// nano is how a time is stored; 0 is none.
func nano(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func at(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns).UTC()
}

// some returns what a statement that must change a row came to: none where it changed none.
func some(none error) func(sql.Result, error) error {
	return func(res sql.Result, err error) error {
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		if err == nil && n == 0 {
			err = none
		}
		return err
	}
}

// RevokeToken ends a token and the sessions that came from it, for by.
func (s *Store) RevokeToken(ctx context.Context, by, name string) error {
	err := s.db.InTx(ctx, func(tx *sql.Tx) error {
		if err := some(ErrNoToken)(tx.ExecContext(ctx, `UPDATE api_tokens SET role=role WHERE name=$1`, name)); err != nil { // puts writers in a line
			return err
		}
		was, err := tokens(ctx, tx, `t.name=$1`, name)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `DELETE FROM api_sessions WHERE token IN (SELECT hash FROM api_tokens WHERE name=$1)`, name)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM api_tokens WHERE name=$1`, name); err != nil {
			return err
		}
		return audit.Append(ctx, tx, audit.Row{Time: s.now(), Actor: by, Verb: verbRevoke, Subject: name, Kind: kindToken, Detail: "it had " + said(&was[0])})
	})
	if err != nil {
		return fmt.Errorf("revoke token %s: %w", name, err)
	}
	return nil
}

// Token returns whose token it is, and whether it is one that still works. Its
// use is noted.
func (s *Store) Token(ctx context.Context, token string) (p Principal, found bool, err error) {
	h, now := hashOf(token), s.now()
	p, found, err = s.principal(ctx, "look up token", `SELECT t.name, t.role, t.hash, `+ofUser+` FROM api_tokens t LEFT JOIN users u ON u.id=t.user_id
WHERE t.hash=$1 AND `+standing, h, now.UnixNano())
	if !found || !s.note(h, now) {
		return p, found, err
	}
	if _, err := s.db.ExecContext(ctx, `UPDATE api_tokens SET used_ns=$1 WHERE hash=$2 AND used_ns<$1`, now.UnixNano(), h); err != nil {
		s.forget(h) // a store that cannot be written now refuses nobody
	}
	return p, true, nil
}

// note reports whether the use of a token is due to be written.
func (s *Store) note(hash string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.used[hash]) < usedEvery {
		return false
	}
	if len(s.used) >= maxUsed {
		clear(s.used)
	}
	s.used[hash] = now
	return true
}

func (s *Store) forget(hash string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.used, hash)
}

// StartSession makes a session and returns its secret and its end. What came
// from a token ends with it.
func (s *Store) StartSession(ctx context.Context, p Principal) (session string, expires time.Time, err error) {
	return s.startSession(ctx, p, cmp.Or(p.most, p.Role), "role "+p.Role)
}

// StartUserSession makes a session of a user whom a login service knows: what it may follows
// their role.
func (s *Store) StartUserSession(ctx context.Context, u *schemas.User) (session string, expires time.Time, err error) {
	return s.startSession(ctx, Principal{Name: u.Username, User: u.ID}, RoleAdmin, "role "+u.Role+", by OIDC")
}

// User returns an active user, as who asks.
func (s *Store) User(ctx context.Context, id string) (p Principal, found bool, err error) {
	return s.principal(ctx, "look up user", `SELECT '', '`+RoleAdmin+`', '', u.id, u.username, u.role FROM users u WHERE u.id=$1 AND u.status=$2`,
		id, schemas.UserActive)
}

func (s *Store) startSession(ctx context.Context, p Principal, role, detail string) (session string, expires time.Time, err error) {
	session, now := secret(), s.now()
	expires = now.Add(s.lifetime)
	err = s.change(ctx, p.Name, verbStart, kindSession, p.Name, detail, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `DELETE FROM api_sessions WHERE expires_ns<$1`, now.UnixNano()); err != nil {
			return err
		}
		// A token that is revoked at this moment is not there: the foundation of what came from it is gone.
		return some(ErrRevoked)(tx.ExecContext(ctx, `INSERT INTO api_sessions (hash, name, role, created_ns, expires_ns, token, user_id)
SELECT CAST($1 AS TEXT), CAST($2 AS TEXT), CAST($3 AS TEXT), CAST($4 AS BIGINT), CAST($5 AS BIGINT), CAST($6 AS TEXT), NULLIF(CAST($7 AS TEXT), '')
WHERE CAST($6 AS TEXT)='' OR EXISTS (SELECT 1 FROM api_tokens t WHERE t.hash=$6 AND (t.expires_ns=0 OR t.expires_ns>$4))`,
			hashOf(session), p.Name, role, now.UnixNano(), expires.UnixNano(), p.token, p.User))
	})
	if err != nil {
		return "", time.Time{}, fmt.Errorf("start session: %w", err)
	}
	return session, expires, nil
}

// Session returns whose session it is, and whether it is one that still lasts.
func (s *Store) Session(ctx context.Context, session string) (p Principal, found bool, err error) {
	return s.principal(ctx, "look up session", `SELECT s.name, COALESCE(t.role, s.role), s.token, `+ofUser+` FROM api_sessions s
LEFT JOIN api_tokens t ON t.hash=s.token LEFT JOIN users u ON u.id=COALESCE(t.user_id, s.user_id)
WHERE s.hash=$1 AND s.expires_ns>$2 AND (s.token='' OR t.hash IS NOT NULL AND (t.expires_ns=0 OR t.expires_ns>$2)) AND (u.id IS NULL OR u.status='`+
		schemas.UserActive+`')`, hashOf(session), s.now().UnixNano())
}

// A token t of a user u, or of nobody, that still works at the time $2.
const (
	ofUser   = `COALESCE(u.id, ''), COALESCE(u.username, ''), COALESCE(u.role, '')`
	standing = `(t.expires_ns=0 OR t.expires_ns>$2) AND (t.user_id IS NULL OR u.status='` + schemas.UserActive + `')`
)

// principal is who a query finds, if anybody.
func (s *Store) principal(ctx context.Context, what, query string, args ...any) (p Principal, found bool, err error) {
	var username, role string
	err = s.db.QueryRowContext(ctx, query, args...).Scan(&p.Name, &p.Role, &p.token, &p.User, &username, &role)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return Principal{}, false, nil
	case err != nil:
		return Principal{}, false, fmt.Errorf("%s: %w", what, err)
	}
	if p.User != "" {
		p.Name, p.Role, p.most = username, lesser(p.Role, role), p.Role
	}
	return p, true, nil
}

// lesser returns the role that may less; an unknown one may nothing.
func lesser(a, b string) string {
	if slices.Index(schemas.Roles(), a) < slices.Index(schemas.Roles(), b) {
		return a
	}
	return b
}

// EndSession forgets a session; one that does not exist is no error.
func (s *Store) EndSession(ctx context.Context, session string) error {
	p, found, err := s.Session(ctx, session)
	if err == nil && found {
		err = s.change(ctx, p.Name, verbEnd, kindSession, p.Name, "", func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `DELETE FROM api_sessions WHERE hash=$1`, hashOf(session))
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("end session: %w", err)
	}
	return nil
}

// NewCode makes a code for by that works once within its lifetime, as p.
func (s *Store) NewCode(ctx context.Context, by string, p Principal, lifetime time.Duration) (plain string, expires time.Time, err error) {
	plain, now := secret(), s.now()
	expires = now.Add(lifetime)
	detail := "role " + p.Role + ", until " + expires.UTC().Format(time.RFC3339)
	err = s.change(ctx, by, verbIssue, kindCode, p.Name, detail, func(*sql.Tx) error { return nil }) // the code itself is kept in memory
	if err != nil {
		return "", time.Time{}, fmt.Errorf("issue login code: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for h, c := range s.codes {
		if now.After(c.expires) || len(s.codes) >= maxCodes {
			delete(s.codes, h)
		}
	}
	s.codes[hashOf(plain)] = code{p, expires}
	return plain, expires, nil
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

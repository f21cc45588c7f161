package join

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"time"

	"auspex/internal/store/audit"
	"auspex/internal/store/sqldb"
)

// Bounds of tokens.
const (
	DefaultExpiry = 24 * time.Hour
	MaxExpiry     = 366 * 24 * time.Hour
	MaxUses       = 100_000
	maxTokens     = 10_000
	keep          = 90 * 24 * time.Hour // a token that can no longer be used, without machines
)

// Spec is the token that somebody asks for.
type Spec struct {
	Name   string
	Server string        // "" is for anybody
	Uses   int           // machines; 0 is one
	Expiry time.Duration // 0 is [DefaultExpiry]
	Accept bool          // what its machines propose and contradicts nothing is accepted at once
}

// Token is what is known of a token; times that are zero are never.
type Token struct {
	Name        string
	Server      string
	Uses, Used  int64
	Accept      bool
	Created     time.Time
	CreatedBy   string
	Expires     time.Time
	Revoked     time.Time
	RevokedBy   string
	Refused     int64 // how often it was shown in vain
	RefusedAt   time.Time
	RefusedFrom string

	hash string
}

// State is whether a machine can still join with a token: open, used, expired or revoked.
func (t *Token) State(now time.Time) string {
	switch {
	case !t.Revoked.IsZero():
		return "revoked"
	case t.Used >= t.Uses:
		return "used"
	case !now.Before(t.Expires):
		return "expired"
	}
	return "open"
}

var nameForm = regexp.MustCompile(`^[A-Za-z0-9._@-]{1,64}$`)

// BadError says, in a sentence, what is wrong with a request, and which of its fields.
type BadError struct{ Field, Text string }

// Error implements error.
func (e BadError) Error() string { return e.Text }

func bad(field, format string, args ...any) error {
	return BadError{field, fmt.Sprintf(format, args...)}
}

// Create makes a token for by and returns its secret, which is shown once and not kept.
func (s *Store) Create(ctx context.Context, by string, spec Spec) (plain string, t Token, err error) {
	if spec.Uses == 0 {
		spec.Uses = 1
	}
	if spec.Expiry == 0 {
		spec.Expiry = DefaultExpiry
	}
	switch {
	case !nameForm.MatchString(spec.Name):
		return "", t, fmt.Errorf("join token %q: %w", spec.Name, ErrName)
	case spec.Uses < 1 || spec.Uses > MaxUses:
		return "", t, bad("uses", "uses is %d; it must be 1 to %d.", spec.Uses, MaxUses)
	case spec.Server != "" && spec.Uses > 1:
		return "", t, bad("uses", "A token for one server is for one machine, not for %d.", spec.Uses)
	case len(spec.Server) > 256:
		return "", t, bad("server", "The name of the server has more than 256 characters.")
	case spec.Expiry < 0 || spec.Expiry > MaxExpiry:
		return "", t, bad("expires_in", "The time to join is %s; it must be at most %s.", spec.Expiry, MaxExpiry)
	}
	now := s.now().UTC()
	plain = secret()
	t = Token{
		Name: spec.Name, Server: spec.Server, Uses: int64(spec.Uses), Accept: spec.Accept, Created: now, CreatedBy: by, Expires: now.Add(spec.Expiry),
		hash: hashOf(plain),
	}
	_, err = s.change(ctx, func(tx *sql.Tx) ([]audit.Row, error) {
		if _, err := tx.ExecContext(ctx, `DELETE FROM join_tokens WHERE (revoked_ns>0 AND revoked_ns<$1 OR expires_ns<$1)
AND NOT EXISTS (SELECT 1 FROM join_machines m WHERE m.token=join_tokens.name)`, now.Add(-keep).UnixNano()); err != nil {
			return nil, err
		}
		var n int
		if err := tx.QueryRowContext(ctx, `SELECT COUNT(*) FROM join_tokens`).Scan(&n); err != nil {
			return nil, err
		} else if n >= maxTokens {
			return nil, ErrMany
		}
		accept := 0
		if t.Accept {
			accept = 1
		}
		res, err := tx.ExecContext(ctx, `INSERT INTO join_tokens (name, hash, server, uses, accept, created_ns, created_by, expires_ns)
VALUES ($1,$2,$3,$4,$5,$6,$7,$8) ON CONFLICT (name) DO NOTHING`,
			t.Name, t.hash, t.Server, t.Uses, accept, t.Created.UnixNano(), by, t.Expires.UnixNano())
		if err := some(ErrTaken)(res, err); err != nil {
			return nil, err
		}
		detail := fmt.Sprintf("for %d machines, until %s", t.Uses, t.Expires.Format(time.RFC3339))
		if t.Server != "" {
			detail += ", for server " + t.Server
		}
		if t.Accept {
			detail += ", accepts what contradicts nothing"
		}
		return []audit.Row{{Actor: by, Verb: verbCreate, Subject: t.Name, Kind: kindToken, State: stateDone, Detail: detail}}, nil
	})
	if err != nil {
		return "", t, fmt.Errorf("create join token %s: %w", t.Name, err)
	}
	return plain, t, nil
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

const selectTokens = `SELECT t.name, t.hash, t.server, t.uses, t.used, t.accept,
t.created_ns, t.created_by, t.expires_ns, t.revoked_ns, t.revoked_by, t.refused, t.refused_ns, t.refused_from FROM join_tokens t`

func scanToken(rows *sql.Rows) (t Token, err error) {
	var accept, created, expires, revoked, refused int64
	err = rows.Scan(&t.Name, &t.hash, &t.Server, &t.Uses, &t.Used, &accept, &created, &t.CreatedBy, &expires, &revoked, &t.RevokedBy,
		&t.Refused, &refused, &t.RefusedFrom)
	t.Accept = accept != 0
	t.Created, t.Expires, t.Revoked, t.RefusedAt = at(created), at(expires), at(revoked), at(refused)
	return t, err
}

func at(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns).UTC()
}

func readToken(ctx context.Context, q sqldb.Queryer, name string) (Token, error) {
	found, err := sqldb.Rows(ctx, q, scanToken, selectTokens+` WHERE t.name=$1`, name)
	if err == nil && len(found) == 0 {
		err = ErrNone
	}
	if err != nil {
		return Token{}, err
	}
	return found[0], nil
}

// Tokens lists at most limit tokens by name, those after a name.
func (s *Store) Tokens(ctx context.Context, sort, after string, limit int) ([]Token, string, error) {
	if s.due() {
		_ = s.flush(ctx)
	}
	tail, args, err := tokenOrder.Tail(sort, after, limit)
	if err != nil {
		return nil, "", fmt.Errorf("list join tokens: %w", err)
	}
	out, err := sqldb.Rows(ctx, s.db, scanToken, selectTokens+` WHERE 1=1`+tail, args...)
	if err != nil {
		return nil, "", fmt.Errorf("list join tokens: %w", err)
	}
	out, next := tokenOrder.Page(out, sort, limit)
	return out, next, nil
}

var tokenOrder = sqldb.Order[Token]{
	ID: sqldb.Key[Token]{SQL: "t.name", Of: func(t *Token) any { return t.Name }}, Usual: "name",
	By: map[string]sqldb.Key[Token]{
		"name":    {SQL: "t.name", Of: func(t *Token) any { return t.Name }, Alone: true},
		"created": {SQL: "t.created_ns", Of: func(t *Token) any { return t.Created.UnixNano() }},
		"expires": {SQL: "t.expires_ns", Of: func(t *Token) any { return t.Expires.UnixNano() }},
	},
}

// Revoke ends a token, and with it the admission of all machines that joined with it.
func (s *Store) Revoke(ctx context.Context, by, name string) error {
	_, err := s.change(ctx, func(tx *sql.Tx) ([]audit.Row, error) {
		t, err := readToken(ctx, tx, name)
		if err != nil || !t.Revoked.IsZero() {
			return nil, err
		}
		_, err = tx.ExecContext(ctx, `UPDATE join_tokens SET revoked_ns=$1, revoked_by=$2 WHERE name=$3`, s.now().UnixNano(), by, name)
		return []audit.Row{{
			Actor: by, Verb: verbRevoke, Subject: name, Kind: kindToken, State: stateDone, Detail: fmt.Sprintf("%d machines had joined with it", t.Used),
		}}, err
	})
	if err != nil {
		return fmt.Errorf("revoke join token %s: %w", name, err)
	}
	return nil
}

const selectMachines = `SELECT key, token, server, serial, uuid, hostname, address, doubt, joined_ns, seen_ns, revoked_ns, revoked_by
FROM join_machines`

func scanBound(rows *sql.Rows) (b Bound, err error) {
	var joined, seen, revoked int64
	err = rows.Scan(&b.Key, &b.Token, &b.Named, &b.Serial, &b.UUID, &b.Hostname, &b.Address, &b.Doubt, &joined, &seen, &revoked, &b.RevokedBy)
	b.Joined, b.Seen, b.Revoked = at(joined), at(seen), at(revoked)
	return b, err
}

// Machines lists at most limit machines by key, those after a key, and where they stand.
func (s *Store) Machines(ctx context.Context, sort, after string, limit int) (out []Bound, next string, err error) {
	if s.due() {
		_ = s.flush(ctx)
	}
	tail, args, err := machineOrder.Tail(sort, after, limit)
	if err == nil {
		out, err = sqldb.Rows(ctx, s.db, scanBound, selectMachines+` WHERE 1=1`+tail, args...)
	}
	if err == nil {
		out, next = machineOrder.Page(out, sort, limit)
		err = s.read(ctx, func(v *view) {
			for i := range out {
				if b := v.machines[out[i].Key]; b != nil {
					out[i].Server, out[i].Doubt, out[i].Admitted = b.Server, b.Doubt, b.Admitted
				}
			}
		})
	}
	if err != nil {
		return nil, "", fmt.Errorf("list machines: %w", err)
	}
	return out, next, nil
}

var machineOrder = sqldb.Order[Bound]{
	ID: sqldb.Key[Bound]{SQL: "key", Of: func(b *Bound) any { return b.Key }}, Usual: "key",
	By: map[string]sqldb.Key[Bound]{
		"key":    {SQL: "key", Of: func(b *Bound) any { return b.Key }, Alone: true},
		"joined": {SQL: "joined_ns", Of: func(b *Bound) any { return b.Joined.UnixNano() }},
		"seen":   {SQL: "seen_ns", Of: func(b *Bound) any { return b.Seen.UnixNano() }},
	},
}

// Machine returns the machine with a key, and the token with which it joined.
func (s *Store) Machine(ctx context.Context, key string) (b Bound, t Token, err error) {
	found := false
	if err = s.read(ctx, func(v *view) {
		if is := v.machines[key]; is != nil && v.byName[is.Token] != nil {
			b, t, found = is.Bound, *v.byName[is.Token], true
		}
	}); err == nil && !found {
		err = ErrMachine
	}
	if err != nil {
		return b, t, fmt.Errorf("read machine %s: %w", key, err)
	}
	return b, t, nil
}

// RevokeMachine ends the admission of one machine. Its use of the token stays used.
func (s *Store) RevokeMachine(ctx context.Context, by, key string) error {
	_, err := s.change(ctx, func(tx *sql.Tx) ([]audit.Row, error) {
		var token string
		var revoked int64
		err := tx.QueryRowContext(ctx, `SELECT token, revoked_ns FROM join_machines WHERE key=$1`, key).Scan(&token, &revoked)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return nil, ErrMachine
		case err != nil || revoked != 0:
			return nil, err
		}
		_, err = tx.ExecContext(ctx, `UPDATE join_machines SET revoked_ns=$1, revoked_by=$2 WHERE key=$3`, s.now().UnixNano(), by, key)
		return []audit.Row{{
			Actor: by, Verb: verbRevoke, Subject: key, Kind: kindMachine, State: stateDone, Detail: "it had joined with token " + token,
		}}, err
	})
	if err != nil {
		return fmt.Errorf("revoke machine %s: %w", key, err)
	}
	return nil
}

// Package join keeps the tokens with which node agents join, and which machines have: a
// use of a token is bound to the key of the machine that showed it first. Which server of
// the inventory a machine is, a person says, or else its serial number and UUID.
package join

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"database/sql"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/internal/cmdb"
	"auspex/internal/store/audit"
	"auspex/internal/store/sqldb"
)

// Errors of tokens and machines.
var (
	// ErrRefused is wrapped, with a sentence for whoever tries, when a machine is not admitted.
	ErrRefused = errors.New("refused")
	ErrName    = errors.New("a name has 1 to 64 letters, digits and . _ @ -")
	ErrTaken   = errors.New("a join token with this name exists")
	ErrNone    = errors.New("no such join token")
	ErrMachine = errors.New("no such machine")
	ErrMany    = errors.New("there are too many join tokens: revoke some")
)

// Machine is what an agent says of its machine when it dials in. Key alone is proven.
type Machine struct {
	Key      string // hex SHA-256 of the SubjectPublicKeyInfo of its certificate
	Serial   string
	UUID     string
	Hostname string
	Address  string // where it dials from, host or host:port
}

// Admission is a machine that may be connected.
type Admission struct {
	Token  string // the name of its token
	Server string // which server it is; "" is not placed yet
}

// Inventory is where servers are looked up.
type Inventory interface{ Snapshot() *cmdb.Snapshot }

// Store reads and writes tokens and machines, in the tables of migration 0080.
type Store struct {
	db  *sqldb.DB
	inv Inventory
	now func() time.Time

	mu      sync.Mutex
	view    *view
	tries   tries
	seen    map[string]sighting // by key, not yet written
	refused map[string]refusal  // by token, likewise
	flushed time.Time

	admissions *prometheus.CounterVec
}

type sighting struct {
	at   time.Time
	from string
}

type refusal struct {
	n    int64
	at   time.Time
	from string
}

const (
	flushEvery = 10 * time.Second // what is only for people to see is written
	maxText    = 128              // characters of what a machine says
	maxSeen    = 1 << 16          // machines whose sighting waits to be written
)

// New returns the store of a relational database whose schema is up to date. Without an
// inventory only those stand somewhere of whom a person has said so.
func New(db *sqldb.DB, inv Inventory, reg prometheus.Registerer) *Store {
	s := &Store{
		db: db, inv: inv, now: time.Now, tries: tries{}, seen: map[string]sighting{}, refused: map[string]refusal{},
		admissions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "auspex_join_admissions_total", Help: "Machines that dialled in: joined, returned or refused.",
		}, []string{"result"}),
	}
	for _, r := range []string{"joined", "returned", "refused"} {
		s.admissions.WithLabelValues(r)
	}
	if reg != nil {
		reg.MustRegister(s.admissions)
	}
	return s
}

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrRefused, fmt.Sprintf(format, args...))
}

func hashOf(token string) string {
	h := sha256.Sum256([]byte(token))
	return hex.EncodeToString(h[:])
}

var keyForm = regexp.MustCompile(`^[0-9a-f]{64}$`)

// check refuses what nobody could read in a list.
func (m *Machine) check() error {
	if !keyForm.MatchString(m.Key) {
		return refuse("its key is no SHA-256 in hex")
	}
	for _, f := range []struct{ name, text string }{
		{"serial number", m.Serial}, {"UUID", m.UUID}, {"host name", m.Hostname}, {"address", m.Address},
	} {
		if len(f.text) > maxText || strings.IndexFunc(f.text, func(r rune) bool { return !unicode.IsPrint(r) }) >= 0 {
			return refuse("its %s has more than %d characters, or some that do not print", f.name, maxText)
		}
	}
	return nil
}

// source is where somebody dials from, without the port.
func source(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}

// Admit says whether a machine may be connected. Its first token binds a use to its key, at
// once for all processes; from then on its key is enough, and its token, or none, has to be
// shown. An error that wraps [ErrRefused] is a sentence for the machine, without the token.
func (s *Store) Admit(ctx context.Context, token string, m Machine) (Admission, error) {
	a, result, err := s.admit(ctx, token, m)
	if errors.Is(err, ErrRefused) {
		result = "refused"
	}
	if result != "" {
		s.admissions.WithLabelValues(result).Inc()
	}
	return a, err
}

func (s *Store) admit(ctx context.Context, token string, m Machine) (a Admission, result string, err error) {
	if err := m.check(); err != nil {
		return a, "", err
	}
	h, from := hashOf(token), source(m.Address)
	if s.tooMany(from) && !s.knows(h, m.Key) {
		return a, "", refuse("too many attempts with unknown tokens from %s; wait a minute", from)
	}
	var t Token
	var b bound
	var known, bound bool
	if err := s.read(ctx, func(v *view) {
		if known = v.tokens[h] != nil; known {
			t = *v.tokens[h]
		}
		if bound = v.machines[m.Key] != nil; bound {
			b, a = *v.machines[m.Key], v.admitted[m.Key]
			if token == "" && v.byName[b.Token] != nil {
				t = *v.byName[b.Token]
			}
		}
	}); err != nil {
		return a, "", fmt.Errorf("admit machine: %w", err)
	}
	known = known && subtle.ConstantTimeCompare([]byte(t.hash), []byte(h)) == 1
	switch {
	case bound && b.revoked:
		return a, "", s.refuse(ctx, b.Token, m, "this machine was revoked; it needs another key, and a token")
	case bound && (token == "" || known && t.Name == b.Token):
		if !t.Revoked.IsZero() {
			return a, "", s.refuse(ctx, t.Name, m, "the join token "+t.Name+", with which it joined, was revoked")
		}
		s.sight(m)
		result = "returned"
		if says := b.merged(m); says == b.says() {
			return a, result, nil
		} else if err := s.note(ctx, m.Key, says); err != nil {
			return a, "", err
		}
	case token == "":
		return a, "", s.refuse(ctx, "", m, "it shows no join token, and has not joined before")
	case !known:
		return a, "", s.refuse(ctx, "", m, "its join token is not known")
	default:
		result = "joined"
		if sentence, err := s.bind(ctx, t.Name, m); err != nil {
			return a, "", fmt.Errorf("admit machine: %w", err)
		} else if sentence != "" {
			return a, "", s.refuse(ctx, t.Name, m, sentence)
		}
	}
	stands := false
	if err := s.read(ctx, func(v *view) { a, stands = v.admitted[m.Key] }); err != nil {
		return a, "", fmt.Errorf("admit machine: %w", err)
	}
	if !stands { // since
		return a, "", refuse("this machine was revoked")
	}
	return a, result, nil
}

// change makes a change, which other processes see, in one transaction with its rows of the audit.
func (s *Store) change(ctx context.Context, f func(*sql.Tx) ([]audit.Row, error)) (version int64, err error) {
	err = s.db.InTx(ctx, func(tx *sql.Tx) error {
		var rows []audit.Row
		if version, rows, err = inTurn(ctx, tx, f); err != nil {
			return err
		}
		return s.tell(ctx, tx, rows)
	})
	return version, err
}

func (s *Store) tell(ctx context.Context, tx *sql.Tx, rows []audit.Row) error {
	for _, r := range rows {
		r.Time = s.now()
		if err := audit.Append(ctx, tx, r); err != nil {
			return err
		}
	}
	return nil
}

// inTurn counts the change, first, since it puts writers in a line: of two at once, one is the later.
func inTurn(ctx context.Context, tx *sql.Tx, f func(*sql.Tx) ([]audit.Row, error)) (version int64, rows []audit.Row, err error) {
	err = tx.QueryRowContext(ctx, `UPDATE join_version SET version=version+1 WHERE id=1 RETURNING version`).Scan(&version)
	if err == nil {
		rows, err = f(tx)
	}
	return version, rows, err
}

var errFull = errors.New("no use is left")

// bind gives a machine a use of a token, or says why not.
func (s *Store) bind(ctx context.Context, name string, m Machine) (sentence string, err error) {
	now, again := s.now(), false
	version, err := s.change(ctx, func(tx *sql.Tx) ([]audit.Row, error) {
		t, err := readToken(ctx, tx, name)
		if err != nil {
			return nil, err
		}
		var token string
		var revoked int64
		err = tx.QueryRowContext(ctx, `SELECT token, revoked_ns FROM join_machines WHERE key=$1`, m.Key).Scan(&token, &revoked)
		switch {
		case err != nil && !errors.Is(err, sql.ErrNoRows):
			return nil, err
		case err == nil:
			again = true
		}
		switch {
		case revoked != 0:
			sentence = "this machine was revoked; it needs another key, and a token"
		case !t.Revoked.IsZero():
			sentence = "the join token " + name + " was revoked"
		case again && token == name: // the same machine tries again: its first answer was lost
			return nil, nil
		case !now.Before(t.Expires):
			sentence = "the join token " + name + " expired at " + t.Expires.Format(time.RFC3339)
		case t.Used >= t.Uses:
			sentence = fmt.Sprintf("the join token %s has been used by %d machines, and is for %d", name, t.Used, t.Uses)
		}
		if sentence != "" {
			return nil, errFull
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO join_machines (key, token, server, serial, uuid, hostname, address, joined_ns, seen_ns)
VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$8) ON CONFLICT (key) DO UPDATE SET token=excluded.token, serial=excluded.serial, uuid=excluded.uuid,
hostname=excluded.hostname, address=excluded.address, joined_ns=excluded.joined_ns, seen_ns=excluded.seen_ns, doubt='',
server=CASE WHEN excluded.server='' THEN join_machines.server ELSE excluded.server END`,
			m.Key, name, t.Server, m.Serial, m.UUID, m.Hostname, m.Address, now.UnixNano()); err != nil {
			return nil, err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE join_tokens SET used=used+1 WHERE name=$1`, name); err != nil {
			return nil, err
		}
		rows := []audit.Row{{
			Actor: agent(m.Key), Verb: verbJoin, Subject: name, Kind: kindToken, State: stateDone,
			Detail: fmt.Sprintf("use %d of %d by machine %s, host %q, serial %q, from %s", t.Used+1, t.Uses, m.Key, m.Hostname, m.Serial, m.Address),
		}}
		if t.Server == "" {
			return rows, nil
		}
		again = true // what stands there may give way
		gone, err := replace(ctx, tx, t.Server, m.Key, "token "+name, now)
		return append(rows, gone...), err
	})
	switch {
	case errors.Is(err, errFull):
		err = nil
	case err == nil && !again:
		s.grow(version, Bound{Machine: m, Token: name, Joined: now.UTC(), Seen: now.UTC()})
	}
	return sentence, err
}

// replace revokes the machines that a person said to be a server before.
func replace(ctx context.Context, tx *sql.Tx, server, key, by string, now time.Time) (rows []audit.Row, err error) {
	gone, err := sqldb.Rows(ctx, tx, func(r *sql.Rows) (key string, err error) { return key, r.Scan(&key) },
		`UPDATE join_machines SET revoked_ns=$1, revoked_by=$2 WHERE server=$3 AND key<>$4 AND revoked_ns=0 RETURNING key`,
		now.UnixNano(), by, server, key)
	for _, k := range gone {
		rows = append(rows, audit.Row{
			Actor: agent(key), Verb: verbRevoke, Subject: server, Kind: kindMachine, State: stateDone, Detail: "machine " + k + " is replaced by " + key,
		})
	}
	return rows, err
}

// What a row of the audit says was changed, and how.
const (
	kindToken   = "join_token"
	kindMachine = "machine"

	verbCreate = "create"
	verbRevoke = "revoke"
	verbJoin   = "join"
	verbDeny   = "deny"
	verbPlace  = "place"

	stateDone = "done"
)

// agent names a machine as an actor.
func agent(key string) string { return "agent " + key[:16] }

func secret() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

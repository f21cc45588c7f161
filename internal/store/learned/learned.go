// Package learned keeps the versions of the parameters that were learned from a
// site, and which of them is in force. What is in a version is the correlator's.
package learned

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"auspex/internal/store/audit"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// ErrNoVersion is returned for a version that is not there.
var ErrNoVersion = errors.New("there is no such version")

// Version is one set of parameters. Version 0 is none: the numbers of the records.
type Version struct {
	Version int64
	Time    time.Time
	Author  string
	Active  bool
	Doc     []byte // JSON
}

// Store reads and writes versions, in the tables of the migrations 0021 to 0023.
type Store struct{ db *sqldb.DB }

// New returns the store of a relational database whose schema is up to date.
func New(db *sqldb.DB) *Store { return &Store{db: db} }

// Put adds a version, the next one, which is not in force.
func (s *Store) Put(ctx context.Context, author string, at time.Time, doc []byte) (version int64, err error) {
	err = s.db.InTx(ctx, func(tx *sql.Tx) error {
		// The row of the active version puts writers in a line.
		if _, err := tx.ExecContext(ctx, `UPDATE learned_active SET version=version`); err != nil {
			return err
		}
		return tx.QueryRowContext(ctx, insertVersion, at.UnixNano(), author, string(doc)).Scan(&version)
	})
	if err != nil {
		return 0, fmt.Errorf("store learned parameters: %w", err)
	}
	return version, nil
}

// Activate puts a version in force, an earlier one as well as a later; 0 is none. It
// is in the audit.
func (s *Store) Activate(ctx context.Context, version int64, author string, at time.Time) error {
	err := s.db.InTx(ctx, func(tx *sql.Tx) error {
		if version != 0 {
			var n int
			if err := tx.QueryRowContext(ctx, `SELECT COUNT(*) FROM learned_parameters WHERE version=$1`, version).Scan(&n); err != nil {
				return err
			}
			if n == 0 {
				return ErrNoVersion
			}
		}
		if _, err := tx.ExecContext(ctx, `UPDATE learned_active SET version=$1`, version); err != nil {
			return err
		}
		return audit.Append(ctx, tx, audit.Row{
			Time: at, Actor: author, Verb: VerbLearn, Action: fmt.Sprint(activated, version), Kind: activate,
		})
	})
	if err != nil {
		return fmt.Errorf("activate learned parameters %d: %w", version, err)
	}
	return nil
}

// Active returns the version in force, 0 for none.
func (s *Store) Active(ctx context.Context) (version int64, err error) {
	if err := s.db.QueryRowContext(ctx, `SELECT version FROM learned_active`).Scan(&version); err != nil {
		return 0, fmt.Errorf("read learned parameters: %w", err)
	}
	return version, nil
}

// Get returns a version with its document.
func (s *Store) Get(ctx context.Context, version int64) (Version, error) {
	v := Version{Version: version}
	var ns int64
	var doc string
	err := s.db.QueryRowContext(
		ctx, `SELECT time_ns, author, doc FROM learned_parameters WHERE version=$1`, version,
	).Scan(&ns, &v.Author, &doc)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNoVersion
	}
	if err != nil {
		return v, fmt.Errorf("read learned parameters %d: %w", version, err)
	}
	v.Time, v.Doc = time.Unix(0, ns).UTC(), []byte(doc)
	return v, nil
}

// List returns all versions, the newest first, with their documents.
func (s *Store) List(ctx context.Context) ([]Version, error) {
	active, err := s.Active(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := s.db.QueryContext(ctx, `SELECT version, time_ns, author, doc FROM learned_parameters ORDER BY version DESC`)
	if err != nil {
		return nil, fmt.Errorf("list learned parameters: %w", err)
	}
	defer func() { _ = rows.Close() }()
	var out []Version
	for rows.Next() {
		var v Version
		var ns int64
		var doc string
		if err := rows.Scan(&v.Version, &ns, &v.Author, &doc); err != nil {
			return nil, fmt.Errorf("list learned parameters: %w", err)
		}
		v.Time, v.Active, v.Doc = time.Unix(0, ns).UTC(), v.Version == active, []byte(doc)
		out = append(out, v)
	}
	return out, rows.Err()
}

// Sought returns when edges were last looked for; zero is never.
func (s *Store) Sought(ctx context.Context) (at time.Time, err error) {
	var ns int64
	if err := s.db.QueryRowContext(ctx, `SELECT sought_ns FROM learned_active`).Scan(&ns); err != nil {
		return at, fmt.Errorf("read when edges were looked for: %w", err)
	}
	if ns > 0 {
		at = time.Unix(0, ns).UTC()
	}
	return at, nil
}

// SetSought notes when edges were looked for.
func (s *Store) SetSought(ctx context.Context, at time.Time) error {
	if _, err := s.db.ExecContext(ctx, `UPDATE learned_active SET sought_ns=$1`, at.UnixNano()); err != nil {
		return fmt.Errorf("note when edges were looked for: %w", err)
	}
	return nil
}

// Turn is that a version was put in force: 0 is none.
type Turn struct {
	Version int64
	Time    time.Time
}

// Turns returns which version was put in force when, the oldest first: by hand, and by
// decisions on proposals.
func (s *Store) Turns(ctx context.Context) ([]Turn, error) {
	turns, err := sqldb.Rows(ctx, s.db, func(rows *sql.Rows) (t Turn, err error) {
		var ns int64
		var detail string
		if err := rows.Scan(&ns, &detail); err != nil {
			return t, err
		}
		t.Time = time.Unix(0, ns).UTC()
		if _, err = fmt.Sscanf(detail, activated+"%d", &t.Version); err != nil {
			err = fmt.Errorf("row %q of the audit: %w", detail, err)
		}
		return t, err
	}, `SELECT time_ns, detail FROM control_audit WHERE verb=$1 AND detail LIKE $2`, VerbLearn, activated+"% "+activate+"%")
	if err != nil {
		return nil, fmt.Errorf("list versions that were in force: %w", err)
	}
	decided, err := sqldb.Rows(ctx, s.db, func(rows *sql.Rows) (t Turn, err error) {
		var doc string
		var d schemas.EdgeDecision
		if err = rows.Scan(&doc); err == nil {
			err = json.Unmarshal([]byte(doc), &d)
		}
		return Turn{d.Version, d.Time}, err
	}, `SELECT doc FROM learned_edge_decisions`)
	if err != nil {
		return nil, fmt.Errorf("list versions that were in force: %w", err)
	}
	for _, t := range decided {
		if t.Version > 0 {
			turns = append(turns, t)
		}
	}
	slices.SortStableFunc(turns, func(a, b Turn) int { return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Version, b.Version)) })
	return turns, nil
}

// Activations in the audit: which version, and what was done.
const activated, activate = "parameters-", "activate_parameters"

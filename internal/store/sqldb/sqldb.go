// Package sqldb opens the relational store, SQLite or PostgreSQL, and brings its
// schema up to date. Stages keep their own queries; one SQL text serves both
// engines: $n placeholders, ON CONFLICT, RETURNING, times as BIGINT nanoseconds.
package sqldb

import (
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"auspex/internal/datafile"
	schemasql "auspex/schemas/sql"
)

// DB is an open relational store. SQLite's writers take turns; transactions of
// PostgreSQL may meet and then have to be tried again.
type DB struct {
	*sql.DB
	Dialect  database.Dialect
	snapshot sql.IsolationLevel
	turn     chan struct{} // of SQLite's writers in this process, which wait in line; nil on PostgreSQL
}

// IsPostgres tells a libpq DSN, as a URL or as keywords, from the path of a file.
func IsPostgres(dsn string) bool {
	return strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://") || strings.Contains(dsn, "host=")
}

// Connect opens a store that is there as it is: nothing is made and nothing is
// migrated. A SQLite file that is not there is fs.ErrNotExist.
func Connect(ctx context.Context, dsn string) (*DB, error) {
	if !IsPostgres(dsn) {
		if _, err := os.Stat(dsn); err != nil {
			return nil, fmt.Errorf("open relational store: %w", err)
		}
	}
	db, err := open(dsn)
	if err != nil {
		return nil, err
	}
	if err := db.PingContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open relational store: %w", err), db.Close())
	}
	return db, nil
}

// Open opens the store of a DSN, of PostgreSQL or the path of a SQLite file, and
// applies the migrations that it lacks; processes that start at once take turns.
func Open(ctx context.Context, dsn string) (*DB, error) {
	if !IsPostgres(dsn) {
		if err := datafile.Reserve(dsn); err != nil {
			return nil, fmt.Errorf("open relational store: %w", err)
		}
	}
	db, err := open(dsn)
	if err != nil {
		return nil, err
	}
	up := func() error { return migrate(ctx, db.DB, db.Dialect) }
	if db.Dialect == database.DialectPostgres {
		err = lockedPostgres(ctx, db.DB, up)
	} else {
		err = lockedFile(ctx, dsn, up)
	}
	if err != nil {
		_ = db.Close()
		return nil, err
	}
	return db, nil
}

// open connects nobody yet.
func open(dsn string) (*DB, error) {
	var db *sql.DB
	var err error
	dialect := database.DialectSQLite3
	if IsPostgres(dsn) {
		dialect = database.DialectPostgres
		db, err = sql.Open("pgx", dsn)
	} else {
		q := url.Values{}
		for _, p := range []string{"journal_mode(WAL)", "busy_timeout(10000)", "synchronous(FULL)", "foreign_keys(ON)"} {
			q.Add("_pragma", p)
		}
		q.Set("_txlock", "immediate")
		db, err = openSQLite("file:" + dsn + "?" + q.Encode())
	}
	if err != nil {
		return nil, fmt.Errorf("open relational store: %w", err)
	}
	const atOnce = 8
	db.SetMaxOpenConns(atOnce)
	db.SetMaxIdleConns(atOnce) // to open one reads the schema, or logs in
	d := &DB{DB: db, Dialect: dialect, snapshot: sql.LevelRepeatableRead}
	if dialect == database.DialectSQLite3 {
		d.turn, d.snapshot = make(chan struct{}, 1), sql.LevelDefault // its readers see one moment anyway
	}
	return d, nil
}

func migrate(ctx context.Context, db *sql.DB, dialect database.Dialect) error {
	dir, err := fs.Sub(schemasql.Relational, "relational")
	if err != nil {
		return err
	}
	// Each stage has its own range of numbers, so that a new one may be below the last.
	p, err := goose.NewProvider(dialect, db, dir, goose.WithAllowOutofOrder(true))
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrate relational store: %w", err)
	}
	return nil
}

// Away tells a PostgreSQL that does not answer, or not yet, from one that refuses.
func Away(err error) bool {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) { // PostgreSQL, appendix A: admin_shutdown, crash_shutdown, cannot_connect_now
		return pgErr.Code == "57P01" || pgErr.Code == "57P02" || pgErr.Code == "57P03"
	}
	return errors.As(err, new(*pgconn.ConnectError)) && !errors.As(err, new(*tls.CertificateVerificationError))
}

// Health returns why a server does not answer, or nil; a file is asked nothing.
func (db *DB) Health() error {
	if db.Dialect != database.DialectPostgres {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := db.PingContext(ctx); err != nil {
		return fmt.Errorf("PostgreSQL does not answer: %w", err) //nolint:revive,staticcheck // a name
	}
	return nil
}

// InView runs f on the store as it is at one moment. It keeps nobody from writing.
func (db *DB) InView(ctx context.Context, f func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true, Isolation: db.snapshot})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	return f(tx)
}

// InTx runs f in a transaction and commits when it returns nil. SQLite wakes whoever waits for its
// lock at random, and not those who have waited longest: in this process they take turns.
func (db *DB) InTx(ctx context.Context, f func(*sql.Tx) error) error {
	done, err := db.wait(ctx)
	if err != nil {
		return err
	}
	defer done()
	return inTx(ctx, db, f)
}

// wait waits for the turn of a writer.
func (db *DB) wait(ctx context.Context) (done func(), err error) {
	if db.turn == nil {
		return func() {}, nil
	}
	select {
	case db.turn <- struct{}{}:
		return func() { <-db.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func inTx(ctx context.Context, on interface {
	BeginTx(context.Context, *sql.TxOptions) (*sql.Tx, error)
}, f func(*sql.Tx) error,
) error {
	tx, err := on.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		_ = tx.Rollback()
		return err
	}
	return tx.Commit()
}

// largeCache is what SQLite may keep in memory of a transaction of [DB.InLargeTx], in KiB. What it has
// no room for it writes out before the end, and reads again.
const largeCache = 256 << 10

// largeWrite is how many rows of a table a transaction changes that leaves PostgreSQL with a wrong idea
// of it: without statistics it reads whole tables, until its autovacuum comes by a minute later.
const largeWrite = 1000

// analyze takes statistics of the tables of which a transaction has changed many rows.
func analyze(ctx context.Context, tx *sql.Tx) error {
	tables, err := Rows(ctx, tx, func(rows *sql.Rows) (name string, err error) { return name, rows.Scan(&name) },
		`SELECT quote_ident(schemaname) || '.' || quote_ident(relname) FROM pg_stat_xact_user_tables WHERE n_tup_ins+n_tup_upd+n_tup_del >= $1`, largeWrite)
	if err != nil || len(tables) == 0 {
		return err
	}
	_, err = tx.ExecContext(ctx, `ANALYZE `+strings.Join(tables, `, `))
	return err
}

// InLargeTx is [DB.InTx] for a transaction that writes very many rows.
func (db *DB) InLargeTx(ctx context.Context, f func(*sql.Tx) error) (err error) {
	if db.Dialect != database.DialectSQLite3 {
		return db.InTx(ctx, func(tx *sql.Tx) error {
			if err := f(tx); err != nil {
				return err
			}
			if err := analyze(ctx, tx); err != nil {
				return fmt.Errorf("take statistics: %w", err)
			}
			return nil
		})
	}
	done, err := db.wait(ctx)
	if err != nil {
		return err
	}
	defer done()
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	// What a statement would change back if it failed is kept in memory too, and not in a file.
	for pragma, large := range map[string]int{"cache_size": -largeCache, "temp_store": 2} {
		var usual int
		if err := conn.QueryRowContext(ctx, `PRAGMA `+pragma).Scan(&usual); err != nil {
			return err
		}
		set := func(ctx context.Context, n int) error {
			_, err := conn.ExecContext(ctx, fmt.Sprintf(`PRAGMA %s=%d`, pragma, n))
			return err
		}
		if err := set(ctx, large); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, set(context.WithoutCancel(ctx), usual)) }()
	}
	return inTx(ctx, conn, f)
}

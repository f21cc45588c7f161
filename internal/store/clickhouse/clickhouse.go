// Package clickhouse is the history: it opens a ClickHouse, a server or the
// embedded engine, brings its schema up to date, and appends to its tables column
// by column, each block once.
package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	driver "github.com/ClickHouse/clickhouse-go/v2"
)

// Config says where the history is and how long it is kept.
type Config struct {
	// DSN of a server: clickhouse://user:password@host:9000/database or http(s)://….
	// Empty means the embedded engine.
	DSN string `yaml:"-"`
	// Database is made when it is missing.
	Database string `yaml:"database"`
	// TelemetryDays and EventDays are how long samples and records are kept.
	TelemetryDays int `yaml:"telemetry_days"`
	EventDays     int `yaml:"event_days"`
	// Timeout bounds a statement.
	Timeout time.Duration `yaml:"timeout"`

	// Dial connects to the embedded engine when DSN is empty.
	Dial func(context.Context) (net.Conn, error) `yaml:"-"`
}

// DefaultConfig keeps telemetry for a month and records for a year.
func DefaultConfig() Config {
	return Config{Database: "auspex", TelemetryDays: 30, EventDays: 365, Timeout: 30 * time.Second}
}

// Validate checks the configuration.
func (c *Config) Validate() error {
	switch {
	case !identifier(c.Database):
		return fmt.Errorf("database: want a name of letters, digits and _, got %q", c.Database)
	case c.TelemetryDays < 1:
		return fmt.Errorf("telemetry_days: want at least 1, got %d", c.TelemetryDays)
	case c.EventDays < 1:
		return fmt.Errorf("event_days: want at least 1, got %d", c.EventDays)
	case c.Timeout < time.Second:
		return fmt.Errorf("timeout: want at least 1s, got %s", c.Timeout)
	}
	if c.DSN != "" {
		if _, err := driver.ParseDSN(c.DSN); err != nil {
			return errors.New("dsn: want clickhouse://user:password@host:9000 or http://user:password@host:8123") // the reason may hold the password
		}
	}
	return nil
}

func identifier(s string) bool {
	for i, r := range s {
		if r != '_' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return s != ""
}

// DB is an open history.
type DB struct {
	conn    driver.Conn
	timeout time.Duration
	tables  map[string][]driver.ColumnNameAndType
}

// Open connects and applies the migrations that are missing.
func Open(ctx context.Context, cfg Config) (*DB, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	opts, err := options(cfg)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	// The database may not be there yet: make it through another one.
	first := *opts
	first.Auth.Database = "default"
	if err := once(ctx, &first, "CREATE DATABASE IF NOT EXISTS "+cfg.Database); err != nil {
		return nil, fmt.Errorf("open history: %w", err)
	}
	conn, err := driver.Open(opts)
	if err != nil {
		return nil, fmt.Errorf("open history: %w", err)
	}
	db := &DB{conn: conn, timeout: cfg.Timeout, tables: map[string][]driver.ColumnNameAndType{}}
	if err := db.migrate(ctx, cfg); err != nil {
		return nil, errors.Join(fmt.Errorf("migrate history: %w", err), conn.Close())
	}
	if err := db.describe(ctx, cfg.Database); err != nil {
		return nil, errors.Join(fmt.Errorf("describe history: %w", err), conn.Close())
	}
	return db, nil
}

func options(cfg Config) (*driver.Options, error) {
	opts := &driver.Options{}
	switch {
	case cfg.DSN != "":
		var err error
		if opts, err = driver.ParseDSN(cfg.DSN); err != nil {
			return nil, errors.New("dsn is malformed")
		}
		if opts.Compression == nil {
			opts.Compression = &driver.Compression{Method: driver.CompressionLZ4}
		}
	case cfg.Dial != nil:
		opts.Protocol = driver.HTTP
		opts.Addr = []string{"engine"}
		opts.DialContext = func(ctx context.Context, _ string) (net.Conn, error) { return cfg.Dial(ctx) }
		opts.TransportFunc = func(t *http.Transport) (http.RoundTripper, error) {
			t.Proxy = nil // a proxy of the environment knows no socket
			return t, nil
		}
	default:
		return nil, errors.New("a DSN or an engine is required")
	}
	opts.Auth.Database = cfg.Database
	opts.DialTimeout = 5 * time.Second
	opts.ReadTimeout = cfg.Timeout
	opts.MaxOpenConns, opts.MaxIdleConns = 6, 6
	opts.ConnMaxLifetime = time.Hour
	if opts.Settings == nil {
		opts.Settings = driver.Settings{}
	}
	opts.Settings["async_insert"] = 0
	return opts, nil
}

// Try asks a server whether it answers, and changes nothing.
func Try(ctx context.Context, cfg Config) error {
	opts, err := options(cfg)
	if err != nil {
		return fmt.Errorf("history: %w", err)
	}
	opts.Auth.Database = "default"
	return once(ctx, opts, "SELECT 1")
}

func once(ctx context.Context, opts *driver.Options, statement string) error {
	conn, err := driver.Open(opts)
	if err != nil {
		return err
	}
	return errors.Join(conn.Exec(ctx, statement), conn.Close())
}

// Close closes the connections.
func (db *DB) Close() error { return db.conn.Close() }

// Conn returns the driver's connection, for reading.
func (db *DB) Conn() driver.Conn { return db.conn }

// Ping returns nil when the history answers.
func (db *DB) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var one uint8
	return db.conn.QueryRow(ctx, "SELECT 1").Scan(&one)
}

// describe reads the columns of all tables, so that an insert need not ask.
func (db *DB) describe(ctx context.Context, database string) error {
	rows, err := db.conn.Query(
		ctx,
		"SELECT table, name, type FROM system.columns WHERE database = ? AND default_kind NOT IN ('MATERIALIZED', 'ALIAS') ORDER BY table, position",
		database,
	)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var table, name, kind string
		if err := rows.Scan(&table, &name, &kind); err != nil {
			return err
		}
		db.tables[table] = append(db.tables[table], driver.ColumnNameAndType{Name: name, Type: kind})
	}
	return rows.Err()
}

// Column is a column of a block: its name and a slice of its values.
type Column struct {
	Name   string
	Values any
}

// Insert writes one block, all of it or nothing, where its rows belong to one
// partition of the table. A block with the same token as an earlier one is taken
// as that one, written again after an answer that was lost, and changes nothing.
func (db *DB) Insert(ctx context.Context, table, token string, columns []Column) error {
	kinds := map[string]string{}
	for _, c := range db.tables[table] {
		kinds[c.Name] = c.Type
	}
	names := make([]string, len(columns))
	typed := make([]driver.ColumnNameAndType, len(columns))
	for i, c := range columns {
		kind, ok := kinds[c.Name]
		if !ok {
			return fmt.Errorf("insert into %s: no column %s", table, c.Name)
		}
		names[i], typed[i] = `"`+c.Name+`"`, driver.ColumnNameAndType{Name: c.Name, Type: kind}
	}
	ctx, cancel := context.WithTimeout(ctx, db.timeout)
	defer cancel()
	ctx = driver.Context(ctx, driver.WithColumnNamesAndTypes(typed), driver.WithSettings(driver.Settings{
		"insert_deduplication_token": token, "insert_deduplicate": 1, "async_insert": 0,
		// One block stays one part.
		"max_insert_block_size": 4_000_000, "min_insert_block_size_rows": 4_000_000, "min_insert_block_size_bytes": 1 << 30,
	}))
	b, err := db.conn.PrepareBatch(ctx, "INSERT INTO "+table+" ("+strings.Join(names, ", ")+")")
	if err != nil {
		return fmt.Errorf("insert into %s: %w", table, err)
	}
	defer func() { _ = b.Close() }()
	for i, c := range columns {
		if err := b.Column(i).Append(c.Values); err != nil {
			return fmt.Errorf("insert into %s: column %s: %w", table, c.Name, err)
		}
	}
	if err := b.Send(); err != nil {
		return fmt.Errorf("insert into %s: %w", table, err)
	}
	return nil
}

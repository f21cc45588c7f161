package clickhouse

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"

	schemasql "auspex/schemas/sql"
)

// migration is one file of schemas/sql/clickhouse.
type migration struct {
	version    uint32
	name       string
	statements []string
}

// dialect is what the migrations' templates may say.
type dialect struct {
	Days, EventDays int
}

// OnCluster follows the name of a table that is made on every server.
func (dialect) OnCluster() string { return "" }

// MergeTree returns the engine of a table.
func (dialect) MergeTree(string) string { return "MergeTree" }

// ReplacingMergeTree returns the engine of a table that keeps the row with the
// highest version of each key.
func (dialect) ReplacingMergeTree(_, version string) string {
	return "ReplacingMergeTree(" + version + ")"
}

// Settings turns tokens of inserts into deduplication.
func (dialect) Settings() string { return "non_replicated_deduplication_window = 1000" }

var fileName = regexp.MustCompile(`^(\d{4})_(\w+)\.sql$`)

// migrations reads and renders the files in order.
func migrations(files fs.FS, d dialect) ([]migration, error) {
	paths, err := fs.Glob(files, "*.sql")
	if err != nil {
		return nil, err
	}
	slices.Sort(paths)
	var all []migration
	for _, path := range paths {
		m := fileName.FindStringSubmatch(path)
		if m == nil {
			return nil, fmt.Errorf("%s: want NNNN_name.sql", path)
		}
		version, err := strconv.ParseUint(m[1], 10, 32)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		text, err := fs.ReadFile(files, path)
		if err != nil {
			return nil, err
		}
		t, err := template.New(path).Option("missingkey=error").Parse(string(text))
		if err != nil {
			return nil, err
		}
		var out bytes.Buffer
		if err := t.Execute(&out, d); err != nil {
			return nil, err
		}
		one := migration{version: uint32(version), name: m[2]}
		for s := range strings.SplitSeq(out.String(), ";\n") {
			if s = strings.TrimSpace(s); !empty(s) {
				one.statements = append(one.statements, s)
			}
		}
		all = append(all, one)
	}
	return all, nil
}

// empty says whether a statement is nothing but comments.
func empty(s string) bool {
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "--") {
			return false
		}
	}
	return true
}

// migrate applies what is missing. ClickHouse has no transactions over several
// statements: a migration that was cut off is run again from its begin.
func (db *DB) migrate(ctx context.Context, cfg Config) error {
	files, err := fs.Sub(schemasql.ClickHouse, "clickhouse")
	if err != nil {
		return err
	}
	all, err := migrations(files, dialect{Days: cfg.TelemetryDays, EventDays: cfg.EventDays})
	if err != nil {
		return err
	}
	if err := db.conn.Exec(
		ctx,
		"CREATE TABLE IF NOT EXISTS schema_migrations (version UInt32, name String, applied DateTime64(3, 'UTC') DEFAULT now64(3)) ENGINE = MergeTree ORDER BY version",
	); err != nil {
		return err
	}
	var have []uint32
	if err := db.conn.QueryRow(ctx, "SELECT groupUniqArray(version) FROM schema_migrations").Scan(&have); err != nil {
		return err
	}
	for _, m := range all {
		if slices.Contains(have, m.version) {
			continue
		}
		for _, s := range m.statements {
			if err := db.conn.Exec(ctx, s); err != nil {
				return fmt.Errorf("%04d_%s: %w", m.version, m.name, err)
			}
		}
		if err := db.conn.Exec(ctx, "INSERT INTO schema_migrations (version, name) VALUES (?, ?)", m.version, m.name); err != nil {
			return err
		}
	}
	return nil
}

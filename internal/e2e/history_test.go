package e2e

import (
	"cmp"
	"path/filepath"
	"slices"
	"testing"

	"auspex/internal/store/clickhouse"
	"auspex/internal/store/embedded/embeddedtest"
)

// row is what is compared of an event in the history.
type row struct {
	ID, Source, Type, Code, Device, Resource, Server, Rack, Site, Message string
	Attrs                                                                 map[string]string
}

// openHistory opens the history that a stopped product has left, with clickhouse-go
// and an engine of our own.
func openHistory(t *testing.T, dir string) *clickhouse.DB {
	t.Helper()
	t.Setenv("AUSPEX_REQUIRE_ENGINE", "1")
	e := embeddedtest.StartIn(t, filepath.Join(dir, "clickhouse"))
	t.Cleanup(e.Close)
	cfg := clickhouse.DefaultConfig()
	cfg.Dial = e.Dial
	db, err := clickhouse.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// events reads rows of the events table, duplicates and all: without FINAL.
func events(t *testing.T, db *clickhouse.DB, where string) []row {
	t.Helper()
	rows, err := db.Conn().Query(t.Context(), "SELECT id, source, type, code, device, resource, server, rack, site, message, attrs FROM events WHERE "+where)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	var all []row
	for rows.Next() {
		var r row
		if err := rows.Scan(&r.ID, &r.Source, &r.Type, &r.Code, &r.Device, &r.Resource, &r.Server, &r.Rack, &r.Site, &r.Message, &r.Attrs); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func count(t *testing.T, db *clickhouse.DB, query string) uint64 {
	t.Helper()
	var n uint64
	if err := db.Conn().QueryRow(t.Context(), query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

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

// stores waits until the history of a running product holds records of its ledger.
func (p *product) stores(records map[string]int) {
	p.t.Helper()
	p.awaitFor(2*patience, "the history holds what the fleet has said", func() error {
		rows, err := p.rows("source IN ('ipmi', 'redfish', 'kmsg')")
		if err != nil {
			return err
		}
		var missing []string
		stored := rowCounts(rows)
		for key := range records {
			if stored[key] == 0 {
				missing = append(missing, key)
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("%d of %d records are missing: %.400q", len(missing), len(records), missing)
		}
		return nil
	})
}

// rows reads the events table of a running product through the engine's socket, as
// a person does.
func (p *product) rows(where string) ([]row, error) {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		sockets, err := filepath.Glob(filepath.Join(p.dir, "clickhouse", "sockets", "*"))
		if err != nil || len(sockets) == 0 {
			return nil, errors.Join(errors.New("the engine has no socket yet"), err)
		}
		return new(net.Dialer).DialContext(ctx, "unix", sockets[len(sockets)-1])
	}
	transport := &http.Transport{DialContext: dial}
	defer transport.CloseIdleConnections()
	query := "SELECT source, device, attrs FROM auspex.events WHERE " + where + " FORMAT JSONEachRow"
	resp, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Post("http://engine/", "text/plain", strings.NewReader(query)) //nolint:noctx // it has a timeout
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(resp.Body)
		return nil, fmt.Errorf("%s: %.400s", resp.Status, b)
	}
	var all []row
	for d := json.NewDecoder(resp.Body); ; {
		var r row
		if err := d.Decode(&r); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
}

// events reads rows of the events table, duplicates and all: without FINAL.
func events(t *testing.T, db *clickhouse.DB, where string) []row {
	t.Helper()
	rows, err := db.Conn().Query(
		t.Context(), "SELECT id, source, type, code, device, resource, server, rack, site, message, attrs FROM events WHERE "+where,
	)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	var all []row
	for rows.Next() {
		var r row
		if err := rows.Scan(
			&r.ID, &r.Source, &r.Type, &r.Code, &r.Device, &r.Resource, &r.Server, &r.Rack, &r.Site, &r.Message, &r.Attrs,
		); err != nil {
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

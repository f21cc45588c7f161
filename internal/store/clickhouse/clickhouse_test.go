package clickhouse_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"auspex/internal/store/clickhouse"
	"auspex/internal/store/embedded"
	"auspex/internal/store/embedded/embeddedtest"
	"auspex/schemas"
)

func TestMain(m *testing.M) {
	embeddedtest.Main()
	goleak.VerifyTestMain(m)
}

func open(t *testing.T, e *embedded.Engine) *clickhouse.DB {
	t.Helper()
	cfg := clickhouse.DefaultConfig()
	cfg.Dial = e.Dial
	db, err := clickhouse.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func TestMigrationsAreAppliedOnceAndFitTheMetrics(t *testing.T) {
	e := embeddedtest.Start(t)
	open(t, e)
	db := open(t, e)
	var n uint64
	if err := db.Conn().QueryRow(t.Context(), "SELECT count() FROM schema_migrations").Scan(&n); err != nil || n != 1 {
		t.Errorf("%d migrations applied, %v", n, err)
	}
	var columns []string
	if err := db.Conn().QueryRow(
		t.Context(), "SELECT groupArray(name) FROM system.columns WHERE database = 'auspex' AND table = 'gpu'",
	).Scan(&columns); err != nil {
		t.Fatal(err)
	}
	have := " " + strings.Join(columns, " ") + " "
	for _, m := range schemas.GPUMetrics {
		if !strings.Contains(have, " "+m.Column+" ") {
			t.Errorf("no column %s", m.Column)
		}
	}
}

func TestABlockWithAKnownTokenChangesNothing(t *testing.T) {
	db := open(t, embeddedtest.Start(t))
	at := time.Date(2026, 1, 1, 0, 0, 0, 123456789, time.UTC)
	block := []clickhouse.Column{
		{Name: "id", Values: []string{"a", "b"}},
		{Name: "time", Values: []time.Time{at, at.Add(time.Second)}},
		{Name: "observed", Values: []time.Time{at, at}},
		{Name: "type", Values: []string{"gpu.xid", "gpu.xid"}},
		{Name: "attrs", Values: []map[string]string{{"pci": "1"}, nil}},
		{Name: "bus_partition", Values: []uint32{0, 1}},
		{Name: "bus_offset", Values: []int64{5, 6}},
	}
	for range 2 {
		if err := db.Insert(t.Context(), "events", "events/0:5-5/1:6-6", block); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := db.Conn().Query(t.Context(), "SELECT id, time, type, attrs, bus_offset FROM events ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	type row struct {
		ID, Type string
		Time     time.Time
		Attrs    map[string]string
		Offset   int64
	}
	var got []row
	for rows.Next() {
		var r row
		if err := rows.Scan(&r.ID, &r.Time, &r.Type, &r.Attrs, &r.Offset); err != nil {
			t.Fatal(err)
		}
		got = append(got, r)
	}
	want := []row{{"a", "gpu.xid", at, map[string]string{"pci": "1"}, 5}, {"b", "gpu.xid", at.Add(time.Second), map[string]string{}, 6}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestABlockWithAnUnknownColumnIsRefused(t *testing.T) {
	db := open(t, embeddedtest.Start(t))
	for table, want := range map[string]string{"events": "no column nope", "nope": "no column nope"} {
		if err := db.Insert(t.Context(), table, "t", []clickhouse.Column{{Name: "nope", Values: []string{"a"}}}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", table, err)
		}
	}
}

func TestTheConfigurationIsCheckedAndShowsNoPassword(t *testing.T) {
	for _, tc := range []struct {
		change func(*clickhouse.Config)
		want   string
	}{
		{func(*clickhouse.Config) {}, ""},
		{func(c *clickhouse.Config) { c.DSN = "clickhouse://u:p@h:9000" }, ""},
		{func(c *clickhouse.Config) { c.DSN = "clickhouse://u:secret@h:x y" }, "dsn: want"},
		{func(c *clickhouse.Config) { c.Database = "a; DROP" }, "database: want"},
		{func(c *clickhouse.Config) { c.EventDays = 0 }, "event_days: want"},
		{func(c *clickhouse.Config) { c.Timeout = 0 }, "timeout: want"},
	} {
		cfg := clickhouse.DefaultConfig()
		tc.change(&cfg)
		err := cfg.Validate()
		if tc.want == "" && err != nil || tc.want != "" &&
			(err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

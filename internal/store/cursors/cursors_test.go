package cursors_test

import (
	"path/filepath"
	"testing"

	"auspex/internal/store/cursors"
	"auspex/internal/store/sqldb"
)

func TestAPositionIsThatOfItsCollectorAndDevice(t *testing.T) {
	db, err := sqldb.Open(t.Context(), filepath.Join(t.TempDir(), "x.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	c := cursors.New(db)
	for _, step := range []struct{ collector, device, set string }{
		{"kmsg", "h1", "7"}, {"ipmi", "h1", "sel/3"}, {"kmsg", "h2", "1"}, {"kmsg", "h1", "8"},
	} {
		if err := c.SetCursor(t.Context(), step.collector, step.device, step.set); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []struct{ collector, device, position string }{
		{"kmsg", "h1", "8"}, {"ipmi", "h1", "sel/3"}, {"kmsg", "h2", "1"}, {"ipmi", "h2", ""},
	} {
		if got, err := c.Cursor(t.Context(), want.collector, want.device); err != nil || got != want.position {
			t.Errorf("%s on %s: %q, %v; want %q", want.collector, want.device, got, err, want.position)
		}
	}
}

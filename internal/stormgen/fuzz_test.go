package stormgen

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A storm is read, or an error names the file that cannot be.
func FuzzRead(f *testing.F) {
	f.Add(`{"resources":[{"id":"s1","kind":"server"}]}`, `{"roots":[]}`, `{"id":"e1","time":"2026-01-01T00:00:00Z","resource":"s1","type":"gpu.xid","severity":"error"}`+"\n")
	f.Add(`{"resources":[{"id":"s1","attrs":7}]}`, `[]`, `{"time":7}`+"\n")
	f.Add(`{}`, `{}`, `{"attrs":{"a":null}}{"attrs":[]}`)
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, topology, truth, events string) {
		for name, text := range map[string]string{"topology.json": topology, "truth.json": truth, "events.jsonl": events} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		st, err := Read(dir)
		if err != nil && !strings.Contains(err.Error(), dir) {
			t.Errorf("which file is wrong is not said: %v", err)
		}
		if err == nil && st == nil {
			t.Error("no storm and no error")
		}
	})
}

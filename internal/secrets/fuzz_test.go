package secrets

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Whatever is wrong with a file of secrets, no secret is in what is said of it.
func FuzzRead(f *testing.F) {
	const secret = "Zk9hunter2Zk9"
	f.Add("bmc: {user: admin, password: ", "}\n")
	f.Add("bmc: {user: admin, passwort: ", "}\n")
	f.Add("bmc: ", "\n")
	f.Add("bmc: {user: [", "], password: x}\n")
	f.Add("&a ", ": *b\n")
	f.Add("", ": {user: a, password: b}\n")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, before, after string) {
		file := filepath.Join(dir, "secrets.yaml")
		if err := os.WriteFile(file, []byte(before+secret+after), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(file); err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("of %q: %v", before+secret+after, err)
		}
	})
}

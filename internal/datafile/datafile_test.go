package datafile_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"auspex/internal/datafile"
)

func write(t *testing.T, file string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, mode); err != nil {
		t.Fatal(err)
	}
}

func mode(t *testing.T, file string) os.FileMode {
	t.Helper()
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}

func TestWhatAnEarlierRunLeftOpenIsShut(t *testing.T) {
	for _, tc := range []struct {
		name, stranger string
		folder         os.FileMode
	}{{"a folder of ours alone", "", 0o700}, {"a folder with a stranger", "thesis.tex", 0o755}} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, "auspex.db"), 0o644)
			write(t, filepath.Join(dir, "auspex.db-wal"), 0o666)
			write(t, filepath.Join(dir, "hot", "wal", "00000"), 0o644)
			write(t, filepath.Join(dir, "hot", "run"), 0o755)
			if tc.stranger != "" {
				write(t, filepath.Join(dir, tc.stranger), 0o644)
			}
			outside := filepath.Join(t.TempDir(), "outside")
			write(t, outside, 0o644)
			if err := os.Symlink(outside, filepath.Join(dir, "hot", "link")); err != nil {
				t.Fatal(err)
			}
			if err := datafile.Narrow(dir, "auspex.db*", "hot"); err != nil {
				t.Fatal(err)
			}
			for file, want := range map[string]os.FileMode{
				"": tc.folder, "auspex.db": 0o600, "auspex.db-wal": 0o600, "hot": 0o700, "hot/wal": 0o700, "hot/wal/00000": 0o600, "hot/run": 0o700,
			} {
				if got := mode(t, filepath.Join(dir, file)); got != want {
					t.Errorf("%s: %o, want %o", file, got, want)
				}
			}
			if tc.stranger != "" && mode(t, filepath.Join(dir, tc.stranger)) != 0o644 {
				t.Error("a stranger's file was changed")
			}
			if mode(t, outside) != 0o644 {
				t.Error("a link was followed")
			}
		})
	}
}

func TestReserveMakesAndNarrows(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	file := filepath.Join(t.TempDir(), "deep", "auspex.db")
	if err := datafile.Reserve(file); err != nil {
		t.Fatal(err)
	}
	write(t, file+"-wal", 0o644)
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := datafile.Reserve(file); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]fs.FileMode{file: 0o600, file + "-wal": 0o600, filepath.Dir(file): 0o700} {
		if got := mode(t, path); got != want {
			t.Errorf("%s: %o, want %o", path, got, want)
		}
	}
}

func TestReplaceIsWholeOrNotAtAll(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state")
	for _, content := range []string{"one", "two"} {
		if err := datafile.Replace(file, []byte(content)); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(file); err != nil || string(b) != content || mode(t, file) != 0o600 {
			t.Errorf("%q %v", b, err)
		}
	}
	if err := os.Mkdir(file+".new", 0o700); err != nil { // it cannot be written
		t.Fatal(err)
	}
	if err := datafile.Replace(file, []byte("three")); err == nil {
		t.Error("no error")
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "two" {
		t.Errorf("%q %v", b, err)
	}
}

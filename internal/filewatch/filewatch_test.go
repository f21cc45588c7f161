package filewatch

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// never is longer than any test: a watch that returns was told.
const never = time.Hour

// told is a folder of a file system of which the kernel tells: containers have their own on one
// of which it does not.
func told(t *testing.T) string {
	t.Helper()
	for _, dir := range []string{t.TempDir(), "/dev/shm"} {
		dir, err := os.MkdirTemp(dir, "filewatch")
		if err != nil {
			continue
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		w := New(filepath.Join(dir, "log"), never, never)
		w.Arm()
		w.Close()
		if w.told {
			return dir
		}
	}
	t.Skip("the kernel tells neither of the folder of temporary files nor of /dev/shm")
	return ""
}

// What others do to a file ends a wait, and so does what they did between the look at it and
// the wait.
func TestWhatBecomesOfAFileIsTold(t *testing.T) {
	write := func(path, text string) error {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		_, err = f.WriteString(text)
		return err
	}
	steps := []struct {
		what string
		do   func(path string) error
	}{
		{"it comes", func(path string) error { return write(path, "") }},
		{"it grows", func(path string) error { return write(path, "one\n") }},
		{"it may be read", func(path string) error { return os.Chmod(path, 0o640) }},
		{"it is renamed", func(path string) error { return os.Rename(path, path+".1") }},
		{"another is renamed to it", func(path string) error { return os.Rename(path+".1", path) }},
		{"it grows again", func(path string) error { return write(path, "two\n") }},
		{"another replaces it", func(path string) error {
			if err := write(path+".2", "three\n"); err != nil {
				return err
			}
			return os.Rename(path+".2", path)
		}},
		{"that grows", func(path string) error { return write(path, "four\n") }},
		{"it is cut", func(path string) error { return os.Truncate(path, 0) }},
		{"it is removed", os.Remove},
	}
	path := filepath.Join(told(t), "log")
	early, late := New(path, never, never), New(path, never, never)
	defer early.Close()
	defer late.Close()
	// A file that somebody has open is removed all the same.
	var open []*os.File
	defer func() {
		for _, f := range open {
			_ = f.Close()
		}
	}()
	for _, s := range steps {
		early.Arm()
		late.Arm()
		if !early.told {
			t.Fatalf("before %s, the kernel is not asked", s.what)
		}
		if f, err := os.Open(path); err == nil {
			open = append(open, f)
		}
		woken := make(chan bool)
		go func() { woken <- early.waits(t) }()
		if err := s.do(path); err != nil {
			t.Fatal(err)
		}
		if !<-woken || !late.waits(t) {
			t.Fatalf("%s, and nobody is told", s.what)
		}
	}
}

// waits is Wait, with an end.
func (w *Watch) waits(t *testing.T) bool {
	ctx, done := context.WithTimeout(t.Context(), time.Minute)
	defer done()
	return w.Wait(ctx)
}

// Where the kernel does not tell, a file is looked at again and again.
func TestAFileOfWhichTheKernelDoesNotTellIsLookedAt(t *testing.T) {
	for _, path := range []string{"/proc/self/status", filepath.Join(t.TempDir(), "no", "folder", "log")} {
		w := New(path, time.Millisecond, never)
		if w.Arm(); w.told || !w.waits(t) {
			t.Errorf("%s is not looked at", path)
		}
		w.Close()
	}
}

func TestAWaitEndsWithItsContext(t *testing.T) {
	w := New(filepath.Join(t.TempDir(), "log"), never, never)
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	woken := make(chan bool)
	w.Arm()
	go func() { woken <- w.Wait(ctx) }()
	if cancel(); <-woken {
		t.Error("a wait whose context is done tells of a change")
	}
}

// What happens to other files of its folder wakes nobody.
func TestAFileIsToldOfItselfAlone(t *testing.T) {
	dir := told(t)
	w, other := New(filepath.Join(dir, "log"), never, never), New(filepath.Join(dir, "other"), never, never)
	defer w.Close()
	defer other.Close()
	w.Arm()
	other.Arm()
	if err := os.WriteFile(filepath.Join(dir, "other"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if !other.waits(t) || len(w.changed) > 0 {
		t.Error("it was told of another file")
	}
}

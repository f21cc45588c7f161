package appendfile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A file that is /dev/full first stands for a disk without room: opened, and refusing every byte.
func onAFullDisk(t *testing.T, most int) (f *File, path string, clear func()) {
	t.Helper()
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("this system has no /dev/full")
	}
	path, where := filepath.Join(t.TempDir(), "log"), "/dev/full"
	f = New(most, func() (*os.File, error) { return os.OpenFile(where, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) })
	return f, path, func() {
		where = path
		if err := f.shut(); err != nil {
			t.Fatal(err)
		}
	}
}

func write(t *testing.T, f *File, line string, kept bool) {
	t.Helper()
	if ok, err := f.Write([]byte(line)); ok != kept || err != nil {
		t.Fatalf("%q is kept: %t, %v", line, ok, err)
	}
}

func TestWhatFindsNoRoomFollowsInOrder(t *testing.T) {
	f, path, room := onAFullDisk(t, 30)
	for i := range 3 {
		write(t, f, fmt.Sprintf("line %d..\n", i), true)
	}
	write(t, f, "one too many\n", false)
	if n, lost := f.Waiting(); n != 27 || lost != 1 {
		t.Errorf("%d bytes wait, %d lines are lost", n, lost)
	}
	if err := f.Rest(); err != nil || f.file == nil {
		t.Errorf("it rests while lines wait: %v", err)
	}
	room()
	write(t, f, "4\n", true)
	if n, lost := f.Waiting(); n != 0 || lost != 1 {
		t.Errorf("%d bytes wait, %d lines are lost", n, lost)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if got, _ := os.ReadFile(path); string(got) != "line 0..\nline 1..\nline 2..\n4\n" {
		t.Errorf("%q", got)
	}
}

func TestAFileThatEndsOnAFullDiskSaysWhatIsMissing(t *testing.T) {
	f, _, _ := onAFullDisk(t, 30)
	write(t, f, "a line\n", true)
	if err := f.Close(); !Full(err) || !strings.Contains(err.Error(), "7 bytes found no room") {
		t.Error(err)
	}
}

func TestADirectoryWithoutRoomForAFileIsTriedAgain(t *testing.T) {
	path, refused := filepath.Join(t.TempDir(), "log"), 2
	f := New(100, func() (*os.File, error) {
		if refused--; refused >= 0 {
			return nil, fmt.Errorf("open: %w", syscall.EDQUOT)
		}
		return os.Create(path)
	})
	if err := f.Open(); err != nil {
		t.Fatal(err)
	}
	write(t, f, "a\n", true)
	write(t, f, "b\n", true)
	if got, _ := os.ReadFile(path); string(got) != "a\nb\n" {
		t.Errorf("%q", got)
	}
	if _, err := f.Write(nil); err != nil {
		t.Error(err)
	}
}

func TestOtherErrorsAreErrors(t *testing.T) {
	f := New(100, func() (*os.File, error) { return os.Open(t.TempDir()) })
	if _, err := f.Write([]byte("a\n")); err == nil || Full(err) {
		t.Error(err)
	}
}

func TestHalfALineIsCutOff(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	for _, c := range []struct{ had, want string }{{"a\nb\nhal", "a\nb\n"}, {"a\n", "a\n"}, {"hal", ""}, {"", ""}} {
		if err := os.WriteFile(path, []byte(c.had), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := Mend(path)
		left, _ := os.ReadFile(path)
		if string(got) != c.want || string(left) != c.want || err != nil {
			t.Errorf("%q: %q, in the file %q, %v", c.had, got, left, err)
		}
	}
}

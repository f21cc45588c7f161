package embedded

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"auspex/internal/waittest"
)

func archive(t *testing.T, name, content string) (path, digest string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "a.tgz")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(f)
	w := tar.NewWriter(z)
	if err := w.WriteHeader(&tar.Header{Name: name, Size: int64(len(content)), Typeflag: tar.TypeReg, Mode: 0o644}); err != nil {
		t.Fatal(err)
	}
	_, err = w.Write([]byte(content))
	if err = errors.Join(err, w.Close(), z.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha512.Sum512(b)
	return path, base64.StdEncoding.EncodeToString(sum[:])
}

func TestOnlyTheRightArchiveIsUnpacked(t *testing.T) {
	path, digest := archive(t, "package/libchdb.so", "library")
	target := filepath.Join(t.TempDir(), "lib.so")
	if err := unpack(t.Context(), path, target, npmSHA512); err == nil || !strings.Contains(err.Error(), "wrong SHA-512") {
		t.Errorf("wrong digest: %v", err)
	}
	if _, err := os.Stat(target); err == nil {
		t.Error("unpacked in spite of its digest")
	}
	if err := unpack(t.Context(), path, target, digest); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(target); err != nil || string(b) != "library" {
		t.Errorf("%q %v", b, err)
	}
	other, digest := archive(t, "package/../../evil", "x")
	if err := unpack(t.Context(), other, filepath.Join(t.TempDir(), "lib.so"), digest); err == nil ||
		!strings.Contains(err.Error(), "not in the archive") {
		t.Errorf("another file: %v", err)
	}
}

func TestWhyThereIsNoEngineIsOneSentence(t *testing.T) {
	if supported() != nil {
		t.Skip("this platform has no engine")
	}
	for _, tc := range []struct{ name, npm, want string }{
		{"no npm", "", "npm is needed once"},
		{"no network", "echo 'npm error code ENOTFOUND' >&2; exit 1", "cannot reach its registry"},
		{"disk full", "echo 'npm error code ENOSPC' >&2; exit 1", "the disk is full"},
		{"gone", "echo 'npm error code E404' >&2; exit 1", "does not have"},
		{"something else", "echo 'npm error it broke' >&2; exit 1", "npm: it broke"},
		{"no archive", "exit 0", "npm fetched no archive"},
		{"another archive", "echo x > \"$4/x.tgz\"", "wrong SHA-512"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bin := t.TempDir()
			if tc.npm != "" {
				if err := os.WriteFile(filepath.Join(bin, "npm"), []byte("#!/bin/sh\n"+tc.npm+"\n"), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("PATH", bin)
			t.Setenv("XDG_CACHE_HOME", t.TempDir())
			if err := Available(); !errors.Is(err, ErrUnavailable) {
				t.Errorf("available: %v", err)
			}
			err := Fetch(t.Context(), nil)
			if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestAFetchThatHangsEndsWithItsContext(t *testing.T) {
	if supported() != nil {
		t.Skip("this platform has no engine")
	}
	bin, cache := t.TempDir(), t.TempDir()
	pids := filepath.Join(bin, "pids")
	npm := "#!/bin/sh\nsleep 7200 &\necho $! >" + pids + ".new; mv " + pids + ".new " + pids + "\nsleep 7200\n" // its child keeps the pipe
	if err := os.WriteFile(filepath.Join(bin, "npm"), []byte(npm), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":/usr/bin:/bin")
	t.Setenv("XDG_CACHE_HOME", cache)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Fetch(ctx, nil) }()
	var pid int
	waittest.For(t, "npm starts", func() bool {
		if b, err := os.ReadFile(pids); err == nil {
			pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
		}
		return pid != 0
	})
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	cancel()
	select {
	case err := <-done:
		if !errors.Is(err, ErrUnavailable) {
			t.Errorf("Fetch: %v", err)
		}
	case <-time.After(2 * time.Minute): // npm would go on for hours
		t.Fatal("Fetch does not return")
	}
	waittest.For(t, "the process that npm had started ends", func() bool { return syscall.Kill(pid, 0) != nil || zombie(pid) })
	if left, _ := filepath.Glob(filepath.Join(cache, "auspex", "libchdb", "*", "fetch-*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// zombie tells a process that has ended and that nobody has waited for.
func zombie(pid int) bool {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return err == nil && strings.Contains(string(b), ") Z ")
}

func FuzzSettingsStayValues(f *testing.F) {
	f.Add("log_comment", `a'b\`)
	f.Add("a=1, b", "x")
	f.Fuzz(func(t *testing.T, name, value string) {
		set, _, err := settings(map[string][]string{name: {value}})
		if err != nil || set == "" {
			return
		}
		inner, begins := strings.CutPrefix(set, "SET "+name+"='")
		inner, ends := strings.CutSuffix(inner, "'")
		if !begins || !ends {
			t.Fatalf("%q", set)
		}
		for i := 0; i < len(inner); i++ {
			switch inner[i] {
			case '\\':
				i++
				if i == len(inner) {
					t.Fatalf("the closing quote is escaped: %q", set)
				}
			case '\'':
				t.Fatalf("the value ends early: %q", set)
			}
		}
	})
}

package embedded

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// The engine's package in npm's registry, and the SHA-512 of its archive as the
// registry's integrity field says it.
const (
	npmPackage = "@chdb/lib-linux-x64-gnu"
	npmVersion = "26.7.3-stable.1"
	npmSHA512  = "XP97mMqnc5tZpKQywR8N7cLTsHNiTmHr30pC5mzo3jWmukjKn2IBa60c2B/gWUNcuFjOMjWoorQICCqBVj5wpw=="
	// spaceNeeded is what the archive and the library take while both are there.
	spaceNeeded = 800 << 20
)

// loader is the dynamic linker of glibc, which the library needs.
const loader = "/lib64/ld-linux-x86-64.so.2"

// CachePath returns where Fetch puts the library: in the user's cache folder.
func CachePath() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("%w: no folder for the engine's library: %w", ErrUnavailable, err)
	}
	return filepath.Join(dir, "auspex", "libchdb", npmVersion, "libchdb.so"), nil
}

// Locate returns the path of the library: the given one, or else the cached one.
// The error wraps [ErrUnavailable] and is one sentence.
func Locate(library string) (string, error) {
	if err := supported(); err != nil {
		return "", err
	}
	cached := library == ""
	if cached {
		var err error
		if library, err = CachePath(); err != nil {
			return "", err
		}
	}
	st, err := os.Stat(library)
	switch {
	case cached && errors.Is(err, os.ErrNotExist):
		return "", fmt.Errorf("%w: the ClickHouse engine is not installed; `auspex engine fetch` downloads it once (178 MB, with npm)", ErrUnavailable)
	case err != nil:
		return "", fmt.Errorf("%w: the ClickHouse engine: %w", ErrUnavailable, err)
	case !st.Mode().IsRegular():
		return "", fmt.Errorf("%w: %s is not a file", ErrUnavailable, library)
	}
	return filepath.Abs(library)
}

// Available says in one sentence why the engine cannot run here, or returns nil.
func Available() error {
	_, err := Locate("")
	return err
}

func supported() error {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return fmt.Errorf(
			"%w: no embedded ClickHouse engine for %s/%s; configure the address of a ClickHouse server", ErrUnavailable, runtime.GOOS,
			runtime.GOARCH,
		)
	}
	if _, err := os.Stat(loader); err != nil {
		return fmt.Errorf("%w: the ClickHouse engine needs glibc, and this system has none", ErrUnavailable)
	}
	return nil
}

// Fetch gets the library with npm into the user's cache folder and checks it; it
// does nothing when the library is there. Progress, which may be nil, is told
// what happens. The error wraps [ErrUnavailable] and is one sentence.
func Fetch(ctx context.Context, progress func(string)) error {
	if progress == nil {
		progress = func(string) {}
	}
	if err := supported(); err != nil {
		return err
	}
	target, err := CachePath()
	if err != nil {
		return err
	}
	if _, err := os.Stat(target); err == nil {
		return nil
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return fmt.Errorf("%w: npm is needed once to fetch the ClickHouse engine (Debian: apt install npm)", ErrUnavailable)
	}
	dir := filepath.Dir(target)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if err := checkSpace(dir); err != nil {
		return err
	}
	removeStale(dir)
	work, err := os.MkdirTemp(dir, "fetch-")
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	defer func() { _ = os.RemoveAll(work) }()

	progress("fetching the ClickHouse engine once (178 MB) with npm")
	archive, err := pack(ctx, npm, work)
	if err != nil {
		return err
	}
	progress("unpacking the ClickHouse engine")
	tmp := filepath.Join(work, "libchdb.so")
	if err := unpack(ctx, archive, tmp, npmSHA512); err != nil {
		return err
	}
	if err := os.Rename(tmp, target); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil
}

// removeStale removes what a fetch that was killed has left.
func removeStale(dir string) {
	left, _ := filepath.Glob(filepath.Join(dir, "fetch-*"))
	for _, d := range left {
		if st, err := os.Stat(d); err == nil && time.Since(st.ModTime()) > time.Hour {
			_ = os.RemoveAll(d)
		}
	}
}

func checkSpace(dir string) error {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err == nil && st.Bavail*uint64(st.Bsize) < spaceNeeded {
		return fmt.Errorf("%w: %s has less than the %d MB that the ClickHouse engine needs", ErrUnavailable, dir, spaceNeeded>>20)
	}
	return nil
}

// pack downloads the archive and returns its path.
func pack(ctx context.Context, npm, dir string) (string, error) {
	var out, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, npm, "pack", "--silent", "--pack-destination", dir, npmPackage+"@"+npmVersion)
	cmd.Dir = dir
	cmd.Stdout, cmd.Stderr = &out, &stderr
	// npm starts programs of its own: they end with it, and a pipe that one of them
	// keeps holds nobody.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%w: fetch the ClickHouse engine: %s", ErrUnavailable, npmReason(ctx, stderr.String(), err))
	}
	found, _ := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if len(found) != 1 {
		return "", fmt.Errorf("%w: npm fetched no archive of the ClickHouse engine", ErrUnavailable)
	}
	return found[0], nil
}

// npmReason makes one sentence of what npm says.
func npmReason(ctx context.Context, stderr string, err error) string {
	switch {
	case ctx.Err() != nil:
		return ctx.Err().Error()
	case containsAny(stderr, "ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ETIMEDOUT", "ENETUNREACH", "ECONNRESET", "ERR_SOCKET_TIMEOUT"):
		return "npm cannot reach its registry; check the network or npm's proxy setting"
	case containsAny(stderr, "ENOSPC"):
		return "the disk is full"
	case containsAny(stderr, "E404"):
		return "npm's registry does not have " + npmPackage + "@" + npmVersion
	case containsAny(stderr, "EINTEGRITY"):
		return "the archive that npm got is damaged; try again"
	}
	for line := range strings.Lines(stderr) {
		if _, text, ok := strings.Cut(strings.TrimSpace(line), "npm error "); ok && text != "" {
			return "npm: " + text
		}
	}
	return "npm: " + err.Error()
}

func containsAny(s string, subs ...string) bool {
	for _, sub := range subs {
		if strings.Contains(s, sub) {
			return true
		}
	}
	return false
}

// reader ends with its context: hundreds of MB take seconds.
type reader struct {
	ctx context.Context
	r   io.Reader
}

func (r reader) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(b)
}

// unpack writes libchdb.so out of the archive to target, after the archive's
// digest has been found right.
func unpack(ctx context.Context, archive, target, digest string) error {
	damaged := func(err error) error {
		if errors.Is(err, syscall.ENOSPC) {
			return fmt.Errorf("%w: the disk is full", ErrUnavailable)
		}
		return fmt.Errorf("%w: unpack the ClickHouse engine: %w", ErrUnavailable, err)
	}
	f, err := os.Open(archive)
	if err != nil {
		return damaged(err)
	}
	defer func() { _ = f.Close() }()
	h := sha512.New()
	if _, err := io.Copy(h, reader{ctx, f}); err != nil {
		return damaged(err)
	}
	if got := base64.StdEncoding.EncodeToString(h.Sum(nil)); got != digest {
		return fmt.Errorf("%w: the archive of the ClickHouse engine has the wrong SHA-512", ErrUnavailable)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return damaged(err)
	}
	z, err := gzip.NewReader(reader{ctx, f})
	if err != nil {
		return damaged(err)
	}
	for t := tar.NewReader(z); ; {
		hdr, err := t.Next()
		if errors.Is(err, io.EOF) {
			return damaged(errors.New("libchdb.so is not in the archive"))
		}
		if err != nil {
			return damaged(err)
		}
		if hdr.Typeflag != tar.TypeReg || hdr.Name != "package/libchdb.so" {
			continue
		}
		out, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
		if err != nil {
			return damaged(err)
		}
		_, err = io.Copy(out, t)
		if err = errors.Join(err, out.Close()); err != nil {
			return damaged(err)
		}
		return nil
	}
}

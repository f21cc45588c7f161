package jobs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// maxFile bounds what is read of a file below /proc, in bytes.
const maxFile = 1 << 20

// Find returns whose a process is, read below a file system's proc ("/proc"). A process
// that has ended is nobody's; what may not be read is an error where nothing else tells.
func Find(proc string, pid int) (Owner, error) {
	dir := filepath.Join(proc, strconv.Itoa(pid))
	text, err := read(filepath.Join(dir, "cgroup"))
	if err == nil {
		if o := ParseCgroup(string(text)); o.Known() {
			return o, nil
		}
	}
	environ, err2 := read(filepath.Join(dir, "environ"))
	if err2 == nil {
		if o := ParseEnviron(environ); o.Known() {
			return o, nil
		}
	}
	if err = errors.Join(err, err2); err != nil {
		return Owner{}, fmt.Errorf("find the owner of process %d: %w", pid, err)
	}
	return Owner{}, nil
}

// read returns a file, or nothing of one that is not there.
func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxFile))
	if errors.Is(err, syscall.ESRCH) { // the process has ended meanwhile (proc(5))
		return nil, nil
	}
	return b, err
}

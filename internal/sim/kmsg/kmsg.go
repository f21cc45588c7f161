// Package kmsg writes the kernel log of a simulated host as a file in the
// format of /dev/kmsg: one record a line, "priority,sequence,microseconds,flags;text"
// (Linux, Documentation/ABI/testing/dev-kmsg). The id of the boot stands beside
// it, in a file with the suffix .boot_id. While the host is down neither file
// exists; a boot makes both anew and counts from sequence number 0.
package kmsg

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"auspex/internal/sim/appendfile"
)

// BootIDSuffix is added to the path of the log to name the file with the boot id.
const BootIDSuffix = ".boot_id"

// ring is how much of a host's log waits for room on the disk, about as much as a kernel keeps.
const ring = 256 << 10

// Daemon is the facility of what system services write to /dev/kmsg; it is added
// to a level. The kernel's own is 0.
const Daemon = 3 << 3

// Priorities of kernel messages: facility kern, level as in syslog.
const (
	Emergency = 0
	Critical  = 2
	Err       = 3
	Warning   = 4
	Notice    = 5
	Info      = 6
)

// Log is the kernel log of one host. It is not safe for use by several
// goroutines at the same time.
type Log struct {
	path   string
	file   *appendfile.File // nil while the host is down
	boot   time.Time
	bootID string
	seq    uint64
	buf    []byte
	also   func(at time.Time, priority int, text string)
}

// New returns the log of a host that is down. It performs no I/O.
func New(path string) *Log { return &Log{path: path} }

// Also has what is written while the host is up be sent to somebody else too, as a host's syslog does.
func (l *Log) Also(send func(at time.Time, priority int, text string)) { l.also = send }

// Path returns where the log is while the host is up.
func (l *Log) Path() string { return l.path }

// BootID returns the id of the present boot, or "" while the host is down.
func (l *Log) BootID() string { return l.bootID }

// Booted returns when the present boot began.
func (l *Log) Booted() time.Time { return l.boot }

// Boot starts a new log for a host that booted at the given time. A first
// sequence number above 0 stands for a ring buffer that has dropped its oldest
// records.
func (l *Log) Boot(at time.Time, first uint64) error {
	if err := l.Down(); err != nil {
		return err
	}
	id := newBootID()
	l.boot, l.bootID, l.seq = at, id, first
	l.file = appendfile.New(ring, func() (*os.File, error) {
		if err := replace(l.path+BootIDSuffix, []byte(id+"\n")); err != nil {
			return nil, fmt.Errorf("write boot id: %w", err)
		}
		f, err := os.OpenFile(l.path, os.O_CREATE|os.O_EXCL|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, fmt.Errorf("create kernel log: %w", err)
		}
		return f, nil
	})
	return l.file.Open()
}

// Resume goes on with the log of a boot that another process has written. It
// reports false when there is none. The boot began at the given time if it is
// the one with the given id; a later boot began when its id was written.
func (l *Log) Resume(id string, at time.Time) (bool, error) {
	found, err := os.ReadFile(l.path + BootIDSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read boot id: %w", err)
	}
	data, err := appendfile.Mend(l.path) // of a process that was killed
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read kernel log: %w", err)
	}
	var seq uint64
	if n := len(data); n > 0 {
		last := data[bytes.LastIndexByte(data[:n-1], '\n')+1 : n-1]
		fields := strings.SplitN(string(last), ",", 3)
		if len(fields) < 3 {
			return false, nil
		}
		if seq, err = strconv.ParseUint(fields[1], 10, 64); err != nil {
			return false, nil // not ours: the host boots anew
		}
		seq++
	}
	if now := strings.TrimSpace(string(found)); now != id {
		st, err := os.Stat(l.path + BootIDSuffix)
		if err != nil {
			return false, fmt.Errorf("read boot id: %w", err)
		}
		id, at = now, st.ModTime()
	}
	l.boot, l.bootID, l.seq = at, id, seq
	l.file = appendfile.New(ring, func() (*os.File, error) { return os.OpenFile(l.path, os.O_APPEND|os.O_WRONLY, 0o600) })
	if err := l.file.Open(); err != nil {
		return false, fmt.Errorf("open kernel log: %w", err)
	}
	return true, nil
}

// Write appends a record and returns its sequence number. Without a running
// host it does nothing and returns false; so it does, but for the number, where a
// full disk has kept out more than a ring holds.
func (l *Log) Write(at time.Time, priority int, text string) (seq uint64, ok bool, err error) {
	if l.file == nil {
		return 0, false, nil
	}
	b := l.buf[:0]
	b = strconv.AppendInt(b, int64(priority), 10)
	b = append(b, ',')
	b = strconv.AppendUint(b, l.seq, 10)
	b = append(b, ',')
	b = strconv.AppendInt(b, max(0, at.Sub(l.boot).Microseconds()), 10)
	b = append(b, ",-;"...)
	b = append(b, strings.ReplaceAll(text, "\n", `\x0a`)...)
	b = append(b, '\n')
	l.buf = b
	ok, err = l.file.Write(b)
	if err != nil {
		return 0, false, fmt.Errorf("write kernel log: %w", err)
	}
	l.seq++
	if l.also != nil {
		l.also(at, priority, text)
	}
	return l.seq - 1, ok, nil
}

// Flush writes the records that a full disk has kept out, and returns how many bytes of them wait on
// and how many records of this boot are lost.
func (l *Log) Flush() (waiting int, lost uint64, err error) {
	if l.file == nil {
		return 0, 0, nil
	}
	err = l.file.Flush()
	waiting, lost = l.file.Waiting()
	return waiting, lost, err
}

// Down ends the present boot and removes the files, as the ring buffer of a
// host is gone with its power.
func (l *Log) Down() error {
	if l.file != nil {
		l.file.Discard()
	}
	l.file, l.bootID = nil, ""
	for _, p := range []string{l.path, l.path + BootIDSuffix} {
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove kernel log: %w", err)
		}
	}
	return nil
}

// Close closes the file and leaves it where it is.
func (l *Log) Close() error {
	if l.file == nil {
		return nil
	}
	f := l.file
	l.file = nil
	return f.Close()
}

func replace(path string, data []byte) error {
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return os.Rename(tmp, path)
}

// newBootID returns a random UUID, as /proc/sys/kernel/random/boot_id holds.
func newBootID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:])
}

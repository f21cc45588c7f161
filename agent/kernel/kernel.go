// Package kernel reads the kernel's log, from /dev/kmsg or a file in its format, into
// the journal. Where it goes on after a restart stands in the journal with the lines, so
// that none comes twice, and none is missing that the kernel still has.
package kernel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"auspex/agent/journal"
	"auspex/internal/decode/kernlog"
	"auspex/internal/filewatch"
	"auspex/internal/run"
	"auspex/internal/target"
)

// Device is the kernel's own log.
const Device = "/dev/kmsg"

const (
	source    = "kernel"
	maxRecord = 64 << 10         // the kernel's own limit is 8 KiB
	patience  = 10 * time.Second // until the state is told again
	again     = 10 * time.Second // after an error
)

// Journal keeps the lines; see [journal.Journal].
type Journal interface {
	Append(r target.Record, source string, mark journal.Mark) (uint64, error)
	Mark(source string) journal.Mark
}

// Config says what is read.
type Config struct {
	Path string        // the log
	Boot string        // the file with the id of the boot
	Poll time.Duration // how often a file is looked at of which the kernel does not tell; the device tells by itself
}

// Reader follows a kernel log.
type Reader struct {
	cfg     Config
	journal Journal
	tree    *target.Tree
	log     *slog.Logger

	bootID   string
	bootTime int64
	mark     journal.Mark
	told     string // the error that was logged last
	read     uint64
	missed   uint64
	garbled  uint64

	records, lost, malformed, boot, trouble target.Ref

	now   func() time.Time
	reads atomic.Bool
	watch *filewatch.Watch
}

// ring is the device: a read returns a record.
type ring interface {
	io.Reader
	SetReadDeadline(t time.Time) error
}

// New returns a reader; it performs no I/O.
func New(cfg Config, j Journal, tree *target.Tree, log *slog.Logger) *Reader {
	return &Reader{
		cfg: cfg, journal: j, tree: tree, log: log, now: time.Now, watch: filewatch.New(cfg.Path, cfg.Poll, patience),
		records: tree.Leaf("/host/kernel-log/state/records"), lost: tree.Leaf("/host/kernel-log/state/lost"),
		malformed: tree.Leaf("/host/kernel-log/state/malformed"),
		boot:      tree.Leaf("/host/kernel-log/state/boot-id"), trouble: tree.Leaf("/host/kernel-log/state/error"),
	}
}

// Reads reports whether the log can be read.
func (r *Reader) Reads() bool { return r.reads.Load() }

// Run reads until ctx is done. What it cannot read it says once, and tries again.
func (r *Reader) Run(ctx context.Context) {
	defer r.watch.Close()
	for ctx.Err() == nil {
		if r.cfg.Path != Device {
			r.watch.Arm()
		}
		err := r.follow(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			continue
		}
		if r.tell(err); r.cfg.Path != Device {
			r.watch.Wait(ctx)
			continue
		}
		_ = run.Sleep(ctx, again)
	}
}

// tell publishes the state of reading; each error is logged once while it lasts.
func (r *Reader) tell(err error) {
	r.reads.Store(err == nil)
	w := r.tree.Write(time.Now())
	defer w.Close()
	w.Uint(r.records, r.read)
	w.Uint(r.lost, r.missed)
	w.Uint(r.malformed, r.garbled)
	if r.bootID != "" {
		w.Text(r.boot, r.bootID)
	}
	if err == nil {
		w.None(r.trouble)
		r.told = ""
		return
	}
	text := err.Error()
	if errors.Is(err, fs.ErrPermission) {
		text = fmt.Sprintf("the kernel log %s cannot be read: it needs CAP_SYSLOG, or kernel.dmesg_restrict=0", r.cfg.Path)
	}
	w.Text(r.trouble, text)
	if text != r.told {
		r.told = text
		r.log.Warn("kernel log is not read", "error", text)
	}
}

// follow reads one incarnation of the log, until it is replaced or cannot be read.
func (r *Reader) follow(ctx context.Context) error {
	// Without O_NONBLOCK a read of the device could not be interrupted.
	f, err := os.OpenFile(r.cfg.Path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("open kernel log: %w", err)
	}
	defer func() { _ = f.Close() }()
	r.begin()
	opened, err := f.Stat()
	if err != nil {
		return fmt.Errorf("stat kernel log: %w", err)
	}
	if now, err := os.Stat(r.cfg.Path); err != nil || !os.SameFile(now, opened) {
		return err // replaced meanwhile: the boot id may be the next one's
	}
	switch {
	case opened.Mode()&fs.ModeCharDevice != 0:
		r.bootTime = Booted(r.now()).UnixNano()
		r.tell(nil)
		stop := context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })
		defer stop()
		return r.device(ctx, f)
	case opened.Mode().IsRegular():
		r.tell(nil)
		return r.file(ctx, f, opened)
	}
	return fmt.Errorf("kernel log %s is neither a file nor a device", r.cfg.Path)
}

// begin finds where reading goes on: in another boot at its start.
func (r *Reader) begin() {
	r.bootID, r.bootTime = BootID(r.cfg.Boot), 0
	if r.mark = r.journal.Mark(source); r.mark.Epoch != r.bootID {
		r.mark = journal.Mark{Epoch: r.bootID}
	}
}

// BootID returns the id of the boot that a file tells, and "unknown" where it cannot be read.
func BootID(file string) string {
	b, err := os.ReadFile(file)
	if id := strings.Join(strings.Fields(string(b)), "-"); err == nil && id != "" {
		return id
	}
	return "unknown"
}

// Booted finds when this machine began to run, by its clock as it is now.
func Booted(now time.Time) time.Time {
	if b, err := os.ReadFile("/proc/uptime"); err == nil {
		first, _, _ := strings.Cut(string(b), " ")
		if up, err := strconv.ParseFloat(first, 64); err == nil {
			return now.Add(-time.Duration(up * float64(time.Second)))
		}
	}
	return now
}

// device reads /dev/kmsg (Linux, Documentation/ABI/testing/dev-kmsg): a read returns one
// record; EPIPE says that records were overwritten, EINVAL that one did not fit. Both
// show as a gap of the sequence numbers.
func (r *Reader) device(ctx context.Context, f ring) error {
	buf := make([]byte, maxRecord)
	due := time.Now().Add(patience)
	for {
		if err := f.SetReadDeadline(due); err != nil {
			return fmt.Errorf("poll kernel log: %w", err)
		}
		if ctx.Err() != nil {
			return nil
		}
		n, err := f.Read(buf)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			r.tell(nil)
			due = time.Now().Add(patience)
			continue
		case errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.EINVAL):
			continue
		case err != nil:
			return fmt.Errorf("read kernel log: %w", err)
		}
		text, _, _ := strings.Cut(string(buf[:n]), "\n") // the dictionary follows
		if !r.line(ctx, text) {
			return nil
		}
	}
}

// file reads a file that somebody else writes.
func (r *Reader) file(ctx context.Context, f *os.File, opened fs.FileInfo) error {
	var buf []byte
	var offset int64
	part := make([]byte, 32<<10)
	drain := func() (bool, error) {
		for {
			n, err := f.Read(part)
			offset += int64(n)
			buf = append(buf, part[:n]...)
			for {
				line, rest, whole := bytes.Cut(buf, []byte{'\n'})
				if !whole {
					break
				}
				if !r.line(ctx, string(line)) {
					return false, nil
				}
				buf = rest
			}
			if len(buf) > maxRecord {
				buf = nil // the rest of the line is no record either
				r.garbled++
			}
			if errors.Is(err, io.EOF) || n == 0 && err == nil {
				return true, nil
			}
			if err != nil {
				return false, fmt.Errorf("read kernel log: %w", err)
			}
		}
	}
	for {
		r.watch.Arm()
		read, garbled := r.read, r.garbled
		if ok, err := drain(); !ok {
			return err
		}
		if r.read != read || r.garbled != garbled {
			r.tell(nil)
		}
		now, err := os.Stat(r.cfg.Path)
		switch {
		case err != nil:
			return fmt.Errorf("stat kernel log: %w", err)
		case !os.SameFile(now, opened), now.Size() < offset:
			_, err := drain() // what was written before the rename
			return err
		}
		if !r.watch.Wait(ctx) {
			return nil
		}
	}
}

// line keeps a record that is new. It waits while the journal does not take it: the
// kernel has it as long as its ring is. False is the end.
func (r *Reader) line(ctx context.Context, text string) bool {
	rec, err := kernlog.ParseKmsg(text)
	if err != nil {
		r.garbled++
		return true
	}
	if rec.Sequence < r.mark.Next {
		return true
	}
	if gap := rec.Sequence - r.mark.Next; gap > 0 && r.mark.Next > 0 {
		r.missed += gap
		r.log.Warn("lines of the kernel log were overwritten before they were read", "count", gap, "next", rec.Sequence)
	}
	now := r.now()
	boot := now.Add(-rec.SinceBoot).UnixNano()
	if r.bootTime == 0 || r.cfg.Path != Device && boot < r.bootTime {
		r.bootTime = boot
	}
	entry := target.Record{Time: now.UnixNano(), Kind: journal.KindKernel, Boot: r.bootID, BootTime: r.bootTime, Data: text}
	mark := journal.Mark{Epoch: r.bootID, Next: rec.Sequence + 1}
	for {
		_, err := r.journal.Append(entry, source, mark)
		if errors.Is(err, journal.ErrTooLong) {
			r.garbled++
			return true
		}
		if err == nil {
			break
		}
		r.tell(err)
		if run.Sleep(ctx, patience) != nil {
			return false
		}
	}
	r.read++
	r.mark = mark
	return true
}

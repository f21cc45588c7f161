// Package logfile follows the log of a service into the journal. Where it goes on after a
// restart stands in the journal with the lines: as an offset in the file that begins with a
// certain line, so that a file which was renamed or cut meanwhile is found, and none of its
// lines comes twice.
package logfile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"auspex/agent/journal"
	"auspex/agent/kernel"
	"auspex/internal/filewatch"
	"auspex/internal/run"
	"auspex/internal/target"
)

const (
	maxLine  = 16 << 10
	maxHead  = 512              // of the first line, by which a file is known
	patience = 10 * time.Second // until what the journal did not take is tried again, and a silent log is looked at
	siblings = 64               // files beside a log in which its lines may be
)

// Journal keeps the lines; see [journal.Journal].
type Journal interface {
	Append(r target.Record, source string, mark journal.Mark) (uint64, error)
	Mark(source string) journal.Mark
}

// Config says what is followed.
type Config struct {
	Path string        // the log
	Poll time.Duration // how often it is looked at where the kernel does not tell of changes
	Kind string        // of the records
	Tree string        // the container of its state, as /host/fabric-manager-log
	Boot string        // the id of the boot
	// Dated returns when a line says that it was written. Of a log that was never followed
	// only what was written since the boot is told; a line without a time goes with the one before.
	Dated func(line string) (time.Time, bool)
}

// Reader follows a log.
type Reader struct {
	cfg     Config
	journal Journal
	tree    *target.Tree
	log     *slog.Logger
	boot    time.Time

	mark    journal.Mark
	old     bool // the lines are those of an earlier boot
	told    string
	read    uint64
	garbled uint64

	records, malformed, trouble target.Ref
}

// New returns a reader; it performs no I/O.
func New(cfg Config, j Journal, tree *target.Tree, log *slog.Logger) *Reader {
	leaf := func(name string) target.Ref { return tree.Leaf(cfg.Tree + "/state/" + name) }
	return &Reader{cfg: cfg, journal: j, tree: tree, log: log, records: leaf("records"), malformed: leaf("malformed"), trouble: leaf("error")}
}

// Run follows the log until ctx is done. A log that is not there is told in the state
// alone: most servers have none.
func (r *Reader) Run(ctx context.Context) {
	r.boot = kernel.Booted(time.Now())
	r.mark = r.journal.Mark(r.cfg.Kind)
	r.old = r.mark.Epoch == ""
	watch := filewatch.New(r.cfg.Path, r.cfg.Poll, patience)
	defer watch.Close()
	for ctx.Err() == nil {
		watch.Arm()
		again, err := r.follow(ctx, watch)
		if r.tell(err); !again {
			watch.Wait(ctx)
		}
	}
}

// tell publishes the state of reading; each error is logged once while it lasts.
func (r *Reader) tell(err error) {
	w := r.tree.Write(time.Now())
	defer w.Close()
	w.Uint(r.records, r.read)
	w.Uint(r.malformed, r.garbled)
	if err == nil {
		w.None(r.trouble)
		r.told = ""
		return
	}
	text := err.Error()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		w.Text(r.trouble, r.cfg.Path+" is not there")
		return
	case errors.Is(err, fs.ErrPermission):
		text = r.cfg.Path + " cannot be read: the agent's user may not"
	}
	w.Text(r.trouble, text)
	if text != r.told {
		r.told = text
		r.log.Warn("a log is not read", "error", text)
	}
}

// open opens a file, and returns the name of what it holds.
func open(path string) (f *os.File, epoch string, err error) {
	// A pipe in its place must not keep us waiting.
	if f, err = os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0); err != nil {
		return nil, "", err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no file", path)
	}
	if err == nil {
		epoch, err = name(f)
	}
	if err != nil {
		_ = f.Close()
		return nil, "", err
	}
	return f, epoch, nil
}

// name is what a file holds, after its first line; empty is none yet.
func name(f *os.File) (string, error) {
	head := make([]byte, maxHead)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	line, _, whole := bytes.Cut(head[:n], []byte{'\n'})
	if !whole && n < maxHead {
		return "", nil
	}
	h := fnv.New64a()
	_, _ = h.Write(line)
	return strconv.FormatUint(h.Sum64(), 16), nil
}

// follow reads one incarnation of the log, until it is replaced or cut, and is to be opened again.
func (r *Reader) follow(ctx context.Context, watch *filewatch.Watch) (again bool, err error) {
	f, epoch, err := open(r.cfg.Path)
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }()
	if epoch == "" {
		return false, nil // it is opened again when it holds a line
	}
	opened, err := f.Stat()
	if err != nil {
		return false, err
	}
	if r.mark.Epoch != "" && r.mark.Epoch != epoch {
		if err := r.rest(ctx); err != nil {
			return false, err
		}
	}
	if r.mark.Epoch != epoch || r.mark.Next > uint64(max(0, opened.Size())) {
		r.mark = journal.Mark{Epoch: epoch}
	}
	for {
		watch.Arm()
		read, garbled := r.read, r.garbled
		if err := r.drain(ctx, f); err != nil || ctx.Err() != nil {
			return false, err
		}
		if r.read != read || r.garbled != garbled || r.told != "" {
			r.tell(nil)
		}
		now, err := os.Stat(r.cfg.Path)
		is, _ := name(f)
		switch {
		case err == nil && !os.SameFile(now, opened), errors.Is(err, fs.ErrNotExist):
			return err == nil, errors.Join(r.drain(ctx, f), err) // what was written before it was renamed
		case err != nil:
			return false, err
		case is != epoch, uint64(max(0, now.Size())) < r.mark.Next:
			return true, nil // it was cut; its copy may hold more
		}
		if !watch.Wait(ctx) {
			return false, nil
		}
	}
}

// rest reads what was written to the log that the mark names after the mark, where that is a
// file beside it now, as logrotate leaves it.
func (r *Reader) rest(ctx context.Context) error {
	found, err := filepath.Glob(r.cfg.Path + "?*")
	if err != nil {
		return err
	}
	for _, path := range found[:min(len(found), siblings)] {
		f, epoch, err := open(path)
		if err != nil {
			continue // it may be anything
		}
		if epoch == r.mark.Epoch {
			err = r.drain(ctx, f)
		}
		_ = f.Close()
		if epoch == r.mark.Epoch {
			return err
		}
	}
	return nil
}

// drain reads the whole lines of a file that follow the mark.
func (r *Reader) drain(ctx context.Context, f *os.File) error {
	if info, err := f.Stat(); err == nil && uint64(max(0, info.Size())) <= r.mark.Next {
		return nil
	}
	buf := make([]byte, 2*maxLine)
	for ctx.Err() == nil {
		n, err := f.ReadAt(buf, int64(r.mark.Next))
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read %s: %w", r.cfg.Path, err)
		}
		if is, err := name(f); err != nil || is != r.mark.Epoch {
			return err // it was cut, and what was read may be of the next
		}
		some := false
		for rest := buf[:n]; ; {
			line, after, whole := bytes.Cut(rest, []byte{'\n'})
			if !whole {
				if len(rest) > maxLine { // a line that is none is passed over in pieces
					r.mark.Next += uint64(len(rest))
					r.garbled++
					some = true
				}
				break
			}
			some, rest = true, after
			if !r.line(ctx, bytes.Trim(line, "\r\x00"), uint64(len(line))+1) {
				return nil
			}
		}
		if !some {
			return nil
		}
	}
	return nil
}

// line keeps a line of so many bytes in the file. It waits while the journal does not take
// it: the file has it. False is the end.
func (r *Reader) line(ctx context.Context, text []byte, size uint64) bool {
	next := journal.Mark{Epoch: r.mark.Epoch, Next: r.mark.Next + size}
	if len(bytes.TrimSpace(text)) == 0 {
		r.mark = next
		return true
	}
	if len(text) > maxLine {
		r.mark = next
		r.garbled++
		return true
	}
	line := string(bytes.ToValidUTF8(text, []byte("\uFFFD")))
	if r.old {
		if at, ok := r.cfg.Dated(line); !ok || at.Before(r.boot) {
			r.mark = next
			return true
		}
		r.old = false
	}
	now := time.Now()
	entry := target.Record{
		Time: now.UnixNano(), Kind: r.cfg.Kind, Boot: r.cfg.Boot, BootTime: r.boot.UnixNano(), Data: now.Format("-0700") + " " + line,
	}
	for {
		_, err := r.journal.Append(entry, r.cfg.Kind, next)
		if errors.Is(err, journal.ErrTooLong) {
			r.garbled++
		} else if err != nil {
			r.tell(err)
			if run.Sleep(ctx, patience) != nil {
				return false
			}
			continue
		} else {
			r.read++
		}
		r.mark = next
		return true
	}
}

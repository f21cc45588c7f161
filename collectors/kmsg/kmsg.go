// Package kmsg follows a kernel log in the format of /dev/kmsg, the device
// itself or a file, and tells what its lines mean. The cursor is boot id and
// sequence number: a record that is read again after a crash is the same event.
package kmsg

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
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/collectors"
	"auspex/internal/decode/kernlog"
	"auspex/internal/filewatch"
	"auspex/schemas"
)

// Name is the collector's key in the configuration.
const Name = "kmsg"

// device is the kernel's own log; its boot id is elsewhere.
const (
	device       = "/dev/kmsg"
	deviceBootID = "/proc/sys/kernel/random/boot_id"
	bootIDSuffix = ".boot_id"
)

// maxRecord bounds a line in bytes; the kernel's own limit is 8 KiB.
const maxRecord = 64 << 10

func init() {
	collectors.Register(
		Name, collectors.Sight{View: schemas.ViewHost, Sources: []string{schemas.SourceKmsg}},
		func() collectors.Config { return Default() },
	)
}

// Config is the collector's configuration. Its targets are the servers with the
// attribute kmsg_path.
type Config struct {
	// PollInterval bounds how long a new line stays unread where the file system
	// does not tell of changes.
	PollInterval time.Duration `yaml:"poll_interval"`
	// FromEnd leaves out what the log holds when it is first seen.
	FromEnd bool `yaml:"from_end"`
}

// Default returns the defaults.
func Default() *Config { return &Config{PollInterval: 40 * time.Millisecond} }

// Validate names the first value that makes no sense.
func (c *Config) Validate() error {
	if c.PollInterval < time.Millisecond || c.PollInterval > time.Minute {
		return errors.New("poll_interval must be between 1ms and 1m")
	}
	return nil
}

// Targets implements [collectors.Config].
func (c *Config) Targets(resources []schemas.Resource) []schemas.Resource {
	return collectors.With(resources, schemas.KindServer, schemas.AttrKmsgPath)
}

// Evidence implements [collectors.Witness].
func (*Config) Evidence() collectors.Evidence {
	return collectors.Evidence{Signs: []collectors.Sign{collectors.SignXID, collectors.SignKernel}, Attr: schemas.AttrKmsgPath}
}

// New implements [collectors.Config].
func (c *Config) New(target schemas.Resource, s collectors.Settings) (collectors.Collector, error) {
	path := target.Attrs.Get(schemas.AttrKmsgPath)
	if path == "" {
		return nil, fmt.Errorf("%s has no attribute %s", target.ID, schemas.AttrKmsgPath)
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	boot := path + bootIDSuffix
	if path == device {
		boot = deviceBootID
	}
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	if s.Now == nil {
		s.Now = time.Now
	}
	return &follower{
		cfg: *c, device: target.ID, host: kernlog.Follower{Device: target.ID}, path: path, bootPath: boot, settings: s, metrics: newMetrics(s.Metrics),
		log: s.Log,
	}, nil
}

type metrics struct{ records, malformed, lost, reboots, renumbered prometheus.Counter }

func newMetrics(reg prometheus.Registerer) *metrics {
	c := func(name, help string) prometheus.Counter {
		return collectors.RegisterOrGet(reg, prometheus.NewCounter(prometheus.CounterOpts{Name: "auspex_collectors_kmsg_" + name, Help: help}))
	}
	return &metrics{
		records:    c("records_total", "Records read from kernel logs."),
		malformed:  c("malformed_total", "Lines of kernel logs that could not be parsed."),
		lost:       c("lost_total", "Records that the kernel had overwritten before they were read."),
		reboots:    c("boots_total", "Changes of the boot id."),
		renumbered: c("renumbered_total", "Kernel logs whose sequence numbers restarted within one boot."),
	}
}

type follower struct {
	cfg      Config
	device   string
	path     string
	bootPath string
	settings collectors.Settings
	metrics  *metrics
	log      *slog.Logger

	host   kernlog.Follower
	loaded bool
}

// Run implements [collectors.Collector]. A log that is not there is a host that is
// down: an error, which the runner counts as a miss.
func (f *follower) Run(ctx context.Context, out collectors.Emitter) error {
	if !f.loaded {
		if err := f.load(ctx); err != nil {
			return err
		}
	}
	for {
		again, err := f.follow(ctx, out)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if !again {
			return nil
		}
	}
}

func (f *follower) load(ctx context.Context) error {
	f.loaded = true
	if f.settings.Cursors == nil {
		return nil
	}
	s, err := f.settings.Cursors.Cursor(ctx, Name, f.device)
	if err != nil {
		f.loaded = false
		return fmt.Errorf("read cursor of %s: %w", f.device, err)
	}
	if p, ok := kernlog.ParsePosition(s); ok {
		f.host.Position = p
	} else if s != "" {
		f.log.Warn("malformed cursor; reading from the start", "cursor", s)
	}
	return nil
}

func (f *follower) save(ctx context.Context) error {
	if f.settings.Cursors == nil {
		return nil
	}
	if err := f.settings.Cursors.SetCursor(ctx, Name, f.device, f.host.Position.String()); err != nil {
		return fmt.Errorf("store cursor of %s: %w", f.device, err)
	}
	return nil
}

func (f *follower) bootID() (string, error) {
	b, err := os.ReadFile(f.bootPath)
	if errors.Is(err, fs.ErrNotExist) {
		return "unknown", nil // a plain copy of a log
	}
	if err != nil {
		return "", fmt.Errorf("read boot id: %w", err)
	}
	if id := strings.Join(strings.Fields(string(b)), "-"); id != "" {
		return id, nil
	}
	return "unknown", nil
}

// follow reads one incarnation of the log until it is replaced (again), removed
// (the error says so) or ctx is done.
func (f *follower) follow(ctx context.Context, out collectors.Emitter) (again bool, err error) {
	// Without O_NONBLOCK, opening a pipe would wait for its writer, also at the end.
	file, err := os.OpenFile(f.path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false, fmt.Errorf("open kernel log: %w", err)
	}
	defer func() { _ = file.Close() }()
	id, err := f.bootID()
	if err != nil {
		return false, err
	}
	opened, err := file.Stat()
	if err != nil {
		return false, fmt.Errorf("stat kernel log: %w", err)
	}
	if m := opened.Mode(); !m.IsRegular() && m&fs.ModeCharDevice == 0 {
		return false, fmt.Errorf("%w: kernel log %s is neither a file nor a device", collectors.ErrProtocol, f.path)
	}
	if now, err := os.Stat(f.path); err != nil {
		return false, fmt.Errorf("stat kernel log: %w", err)
	} else if !os.SameFile(now, opened) {
		return true, nil // replaced meanwhile: the boot id may be the next one's
	}
	first, rebooted := f.host.Opened(id)
	if rebooted {
		f.metrics.reboots.Inc()
	}
	f.estimateBoot(opened)
	collectors.Contact(out)

	r := &reader{f: f, file: file, first: first && f.cfg.FromEnd, isDevice: opened.Mode()&fs.ModeCharDevice != 0}
	if r.isDevice {
		stop := context.AfterFunc(ctx, func() { _ = file.SetReadDeadline(time.Unix(1, 0)) })
		defer stop()
		return false, r.device(ctx, out)
	}
	changes := filewatch.New(f.path, f.cfg.PollInterval, time.Second)
	defer changes.Close()
	lastContact := time.Now()
	for {
		changes.Arm()
		n, err := r.drain(ctx, out)
		if err != nil {
			return false, err
		}
		if n == 0 {
			now, err := os.Stat(f.path)
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return false, fmt.Errorf("kernel log is gone: %w", err)
			case err != nil:
				return false, fmt.Errorf("stat kernel log: %w", err)
			case !os.SameFile(now, opened), now.Size() < r.offset:
				// What was written before the rename is still to be read.
				if _, err := r.drain(ctx, out); err != nil {
					return false, err
				}
				return true, nil
			}
			if time.Since(lastContact) > time.Second {
				lastContact = time.Now()
				collectors.Contact(out)
			}
		}
		if !changes.Wait(ctx) {
			return false, nil
		}
	}
}

// estimateBoot finds when the boot was. For the device it follows from the
// uptime. For a file, the last write is no earlier than the last record: the
// smallest difference ever seen is kept.
func (f *follower) estimateBoot(info fs.FileInfo) {
	if f.path == device {
		if b, err := os.ReadFile("/proc/uptime"); err == nil {
			if up, err := strconv.ParseFloat(strings.Fields(string(b) + " x")[0], 64); err == nil {
				if est := f.settings.Now().Add(-time.Duration(up * float64(time.Second))); !f.host.Booted() {
					f.host.Boot = est
				}
			}
		}
		return
	}
	since, ok := lastRecord(f.path)
	if !ok {
		return
	}
	f.host.Tighten(info.ModTime().Add(-since))
}

// lastRecord returns the boot clock of the last whole record of a file.
func lastRecord(path string) (time.Duration, bool) {
	file, err := os.Open(path)
	if err != nil {
		return 0, false
	}
	defer func() { _ = file.Close() }()
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, false
	}
	from := max(0, size-maxRecord)
	buf := make([]byte, size-from)
	n, _ := file.ReadAt(buf, from)
	lines := bytes.Split(buf[:n], []byte{'\n'})
	for i := len(lines) - 2; i >= 0; i-- {
		if rec, err := kernlog.ParseKmsg(string(lines[i])); err == nil {
			return rec.SinceBoot, true
		}
	}
	return 0, false
}

// reader turns the bytes of one incarnation into events.
type reader struct {
	f        *follower
	file     *os.File
	buf      []byte
	have     int // bytes of an unfinished line
	offset   int64
	first    bool // pass over what is there
	isDevice bool
	batch    *collectors.Batch
	text     bool // a line was too long: drop the rest of it
	dirty    bool
	marked   time.Time
}

// drain reads to the present end and emits what it means. It returns the bytes read.
func (r *reader) drain(ctx context.Context, out collectors.Emitter) (int, error) {
	if r.buf == nil {
		r.buf = make([]byte, 4096)
		r.batch = collectors.NewBatch(r.f.device, Name)
	}
	total := 0
	for ctx.Err() == nil { // a writer may be faster for as long as it likes
		if r.have == len(r.buf) {
			if len(r.buf) >= maxRecord {
				r.f.metrics.malformed.Inc()
				r.have, r.text = 0, true
			} else {
				r.buf = append(r.buf, make([]byte, len(r.buf))...)
			}
		}
		n, err := r.file.Read(r.buf[r.have:])
		total += n
		r.offset += int64(n)
		r.have += n
		r.lines()
		if _, events := r.batch.Len(); events >= 256 {
			if err := r.flush(ctx, out); err != nil {
				return total, err
			}
		}
		if errors.Is(err, io.EOF) || n == 0 && err == nil {
			break
		}
		if err != nil {
			return total, fmt.Errorf("read kernel log: %w", err)
		}
	}
	r.first = false
	return total, r.flush(ctx, out)
}

// lines handles the complete lines of the buffer.
func (r *reader) lines() {
	start := 0
	for {
		i := bytes.IndexByte(r.buf[start:r.have], '\n')
		if i < 0 {
			break
		}
		if r.text {
			r.text = false
		} else {
			r.line(string(r.buf[start : start+i]))
		}
		start += i + 1
	}
	r.have = copy(r.buf, r.buf[start:r.have])
}

func (r *reader) line(s string) {
	f := r.f
	rec, err := kernlog.ParseKmsg(s)
	if err != nil {
		if !errors.Is(err, kernlog.ErrContinuation) {
			f.metrics.malformed.Inc()
		}
		return
	}
	f.metrics.records.Inc()
	now := f.settings.Now()
	if f.path != device {
		f.host.Tighten(now.Add(-rec.SinceBoot))
	}
	got := f.host.Record(rec, now)
	if got.Renumbered {
		f.metrics.renumbered.Inc()
		f.log.Warn("kernel log restarted within one boot", "file", f.path, "sequence", rec.Sequence, "expected", got.Expected)
	}
	if got.Known {
		return
	}
	if got.Lost > 0 {
		f.metrics.lost.Add(float64(got.Lost))
		f.log.Warn("kernel log records were lost", "count", got.Lost, "next", rec.Sequence)
	}
	r.dirty = true
	if r.first {
		return
	}
	for _, ev := range got.Events {
		r.batch.Event(ev)
	}
}

// flush emits the events and then keeps the position. Without events the
// position is kept once a minute: reading chatter again costs little.
func (r *reader) flush(ctx context.Context, out collectors.Emitter) error {
	_, events := r.batch.Len()
	if !r.dirty {
		return nil
	}
	if events > 0 {
		if err := r.batch.Emit(ctx, out, time.Time{}); err != nil {
			return fmt.Errorf("emit events of %s: %w", r.f.device, err)
		}
	} else if time.Since(r.marked) < time.Minute && !r.f.host.Shutdown {
		return nil
	}
	r.marked, r.dirty = time.Now(), false
	return r.f.save(ctx)
}

// device reads /dev/kmsg: a read returns one record; EPIPE says that records were
// overwritten, EINVAL that one did not fit.
func (r *reader) device(ctx context.Context, out collectors.Emitter) error {
	buf := make([]byte, maxRecord)
	r.batch = collectors.NewBatch(r.f.device, Name)
	for {
		_ = r.file.SetReadDeadline(time.Now().Add(time.Second))
		if ctx.Err() != nil {
			return nil
		}
		n, err := r.file.Read(buf)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			r.first = false
			collectors.Contact(out)
			continue
		case errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.EINVAL):
			continue // counted by the gap of the sequence numbers
		case errors.Is(err, os.ErrNoDeadline):
			return errors.New("cannot poll the kernel log")
		case err != nil:
			return fmt.Errorf("read kernel log: %w", err)
		}
		text, _, _ := strings.Cut(string(buf[:n]), "\n") // the dictionary follows
		r.line(text)
		if err := r.flush(ctx, out); err != nil {
			return err
		}
	}
}

package syslog

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"auspex/collectors"
	"auspex/internal/decode/kernlog"
	"auspex/schemas"
)

// Bounds of what waits for a server's collector.
const (
	queueLength = 256
	emitAtOnce  = 256 // events
	drainFor    = 300 * time.Millisecond
	silentEvery = time.Minute
)

// host is a server whose log is taken in: the receiver's connections put in what its lines mean,
// its collector takes that out.
type host struct {
	id    string
	queue chan item
	heard atomic.Int64  // Unix time of the last line, in seconds
	ready chan struct{} // closed when the position of the journal is known

	mu     sync.Mutex
	limit  bucket
	parser kernlog.Parser // of lines of syslog

	journal sync.Mutex // one entry at a time, in order
	entries kernlog.Parser
	at      position
}

// item is what waits: events, and where in the journal they end.
type item struct {
	events []schemas.Event
	at     *position
	done   chan<- struct{} // closed when all is durable
}

func newHost(id string) *host {
	// Syslog ends before its host does, so that a boot without a word before is none after a crash.
	return &host{id: id, queue: make(chan item, queueLength), ready: make(chan struct{}), parser: kernlog.Parser{EndsEarly: true}}
}

// position is how far a server's journal was read.
type position struct {
	source   string // whose sequence numbers they are: s= of the cursor
	sequence uint64
	boot     string
	shutdown bool // the boot's end was told
}

// String is the position as [parsePosition] reads it.
func (p position) String() string {
	return fmt.Sprintf("%s %x %s %t", p.source, p.sequence, p.boot, p.shutdown)
}

func parsePosition(s string) (p position, ok bool) {
	f := strings.Fields(s)
	if len(f) != 4 {
		return p, false
	}
	n, err := strconv.ParseUint(f[1], 16, 64)
	return position{f[0], n, f[2], f[3] == "true"}, err == nil
}

// parseCursor reads "s=…;i=…;b=…;m=…;t=…;x=…": the source and number of an entry
// (sd_journal_get_cursor(3) says that it is opaque; all releases write it so).
func parseCursor(s string) (source string, sequence uint64, ok bool) {
	for part := range strings.SplitSeq(s, ";") {
		switch k, v, _ := strings.Cut(part, "="); k {
		case "s":
			source = v
		case "i":
			n, err := strconv.ParseUint(v, 16, 64)
			sequence, ok = n, err == nil
		}
	}
	return source, sequence, ok && source != "" && len(source) <= 64 && strings.IndexFunc(source, unicode.IsSpace) < 0
}

// stamp gives the events of a record what they have in common, and an id by which it is known again.
func (h *host) stamp(evs []schemas.Event, at, now time.Time, epoch, record string, more ...string) {
	for i := range evs {
		ev := &evs[i]
		if i > 0 { // a record of several lines that mean something
			more = append(more, strconv.Itoa(i))
		}
		ev.ID = schemas.EventID(h.id, epoch, record, more...)
		ev.Time, ev.Observed, ev.Resource = at.UTC(), now.UTC(), h.id
	}
}

// bucket is a rate with a burst of burstSeconds.
type bucket struct {
	level float64
	at    time.Time
}

const burstSeconds = 20

// take notes a line, and returns how long it is too early.
func (b *bucket) take(now time.Time, rate int) time.Duration {
	b.level = max(0, b.level-now.Sub(b.at).Seconds()*float64(rate)) + 1
	b.at = now
	over := b.level - burstSeconds*float64(rate)
	if over <= 0 {
		return 0
	}
	return time.Duration(over / float64(rate) * float64(time.Second))
}

// give takes a line back that was left out.
func (b *bucket) give() { b.level-- }

// shared is the rate of a sender, however many connections it has and whatever it sends over.
type shared struct {
	mu sync.Mutex
	bucket
	users int // origins that have it; of the receiver
}

func (s *shared) take(now time.Time, rate int) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bucket.take(now, rate)
}

// full takes a line only where there is room for it.
func (s *shared) full(now time.Time, rate int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bucket.take(now, rate) <= 0 {
		return false
	}
	s.give()
	return true
}

// sender is the collector of one server.
type sender struct {
	host     *host
	r        *receiver
	settings collectors.Settings
	quiet    bool // another collector brings these signs

	loaded  bool
	batch   *collectors.Batch
	at      *position
	waiting []chan<- struct{}
	silent  bool
	since   time.Time
}

// Run implements [collectors.Collector].
func (s *sender) Run(ctx context.Context, out collectors.Emitter) error {
	if err := s.load(ctx); err != nil {
		return err
	}
	tick := time.NewTicker(silentEvery)
	defer tick.Stop()
	defer s.setSilent(false)
	s.since = s.settings.Now()
	last := s.host.heard.Load()
	for {
		if err := s.flush(ctx, out); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return s.end(ctx, out)
		case it := <-s.host.queue:
			s.take(it)
			s.more()
		case <-tick.C:
			heard := s.host.heard.Load()
			if heard != last {
				collectors.Contact(out)
			}
			last = heard
			s.setSilent(s.settings.Now().Sub(later(time.Unix(heard, 0), s.since)) > s.r.cfg.SilentAfter)
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// end passes on what was taken in before the end.
func (s *sender) end(ctx context.Context, out collectors.Emitter) error {
	s.more()
	if _, events := s.batch.Len(); events == 0 && s.at == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainFor)
	defer cancel()
	return s.flush(ctx, out)
}

func (s *sender) load(ctx context.Context) error {
	if s.loaded {
		return nil
	}
	h := s.host
	select {
	case <-h.ready: // by the collector before this one
		s.loaded = true
		return nil
	default:
	}
	if c := s.settings.Cursors; c != nil {
		text, err := c.Cursor(ctx, Name, h.id)
		if err != nil {
			return fmt.Errorf("read cursor of %s: %w", h.id, err)
		}
		if p, ok := parsePosition(text); ok {
			h.at = p
			h.entries.Observed()
			if p.shutdown {
				h.entries.Message("", "reboot: Restarting system")
			}
		} else if text != "" {
			s.settings.Log.Warn("malformed cursor; entries of the journal are told again", "cursor", text)
		}
	}
	s.loaded = true
	close(h.ready)
	return nil
}

func (s *sender) take(it item) {
	if !s.quiet {
		for _, ev := range it.events {
			s.batch.Event(ev)
		}
	}
	if it.at != nil {
		s.at = it.at
	}
	if it.done != nil {
		s.waiting = append(s.waiting, it.done)
	}
}

// more takes what else waits.
func (s *sender) more() {
	for {
		if _, events := s.batch.Len(); events >= emitAtOnce {
			return
		}
		select {
		case it := <-s.host.queue:
			s.take(it)
		default:
			return
		}
	}
}

// flush makes all durable that was taken, and says so to those who wait for it.
func (s *sender) flush(ctx context.Context, out collectors.Emitter) error {
	if err := s.batch.Emit(ctx, out, time.Time{}); err != nil {
		return fmt.Errorf("emit events of %s: %w", s.host.id, err)
	}
	if s.at != nil && s.settings.Cursors != nil {
		if err := s.settings.Cursors.SetCursor(ctx, Name, s.host.id, s.at.String()); err != nil {
			return fmt.Errorf("store cursor of %s: %w", s.host.id, err)
		}
	}
	s.at = nil
	for _, done := range s.waiting {
		close(done)
	}
	s.waiting = s.waiting[:0]
	return nil
}

func (s *sender) setSilent(silent bool) {
	switch {
	case silent && !s.silent:
		s.r.m.silent.Inc()
		s.settings.Log.Warn("server has sent no line for long", "after", s.r.cfg.SilentAfter.String())
	case !silent && s.silent:
		s.r.m.silent.Dec()
	}
	s.silent = silent
}

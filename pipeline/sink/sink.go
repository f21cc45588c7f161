// Package sink writes what flows on the bus to the history and to the hot window.
//
// The history is written exactly once: a block holds whole messages of the bus,
// goes in as one INSERT that makes one part, and carries the partition and the
// offset of each row; after a crash the reader goes on behind the highest offset
// that the table holds. A block whose answer was lost is sent again with the same
// token. While ClickHouse is down, reading pauses and the bus keeps the data.
package sink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/internal/bus"
	"auspex/internal/bus/wire"
	"auspex/internal/cmdb"
	"auspex/internal/run"
	"auspex/internal/store/clickhouse"
	"auspex/schemas"
)

// Config says when blocks are written.
type Config struct {
	// FlushInterval is how long a row waits for others at most.
	FlushInterval time.Duration `yaml:"flush_interval"`
	// MaxRows bounds a block; reading pauses while a full one waits for the
	// writing of the one before.
	MaxRows int `yaml:"max_rows"`
	// RememberIDs is how many ids of events are remembered, so that one that was
	// read twice is known without asking the table.
	RememberIDs int `yaml:"remember_ids"`
}

// DefaultConfig writes every second.
func DefaultConfig() Config {
	return Config{FlushInterval: time.Second, MaxRows: 200_000, RememberIDs: 500_000}
}

// Validate checks the configuration.
func (c *Config) Validate() error {
	switch {
	case c.FlushInterval < 10*time.Millisecond:
		return fmt.Errorf("flush_interval: want at least 10ms, got %s", c.FlushInterval)
	case c.MaxRows < 1 || c.MaxRows > 2_000_000:
		return fmt.Errorf("max_rows: want 1 to 2000000, got %d", c.MaxRows)
	case c.RememberIDs < 1:
		return fmt.Errorf("remember_ids: want at least 1, got %d", c.RememberIDs)
	}
	return nil
}

// History is where rows go: *[clickhouse.DB].
type History interface {
	Insert(ctx context.Context, table, token string, columns []clickhouse.Column) error
	Resume(ctx context.Context, reader, topic string, tables []string) (map[int]clickhouse.Resume, error)
	SavePositions(ctx context.Context, reader, topic string, next map[int]int64) error
	RecentEventIDs(ctx context.Context, limit int) (ids []string, all bool, err error)
	KnownEventIDs(ctx context.Context, ids []string) (map[string]bool, error)
}

// Enricher says where records belong: *[enrich.Enricher].
type Enricher interface {
	Part(device, kind, part string) cmdb.Placement
	GPU(device string, index uint32, uuid, pci string) cmdb.Placement
	Event(ev *schemas.Event) cmdb.Placement
	Normalize(ev *schemas.Event, observed time.Time)
	Generation() uint64
}

// Sink writes every topic that has a history.
type Sink struct {
	readers []*reader
}

// New returns a sink. Letters about what cannot be read go to b.
func New(cfg Config, b bus.Bus, db History, e Enricher, log *slog.Logger, reg prometheus.Registerer) (*Sink, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("sink: %w", err)
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	m, err := newMetrics(reg)
	if err != nil {
		return nil, fmt.Errorf("sink: %w", err)
	}
	d := wire.New("history", b, log, reg)
	s := &Sink{}
	for _, w := range []writer{
		newTelemetry(d, e, m), newEvents(d, e, db, cfg.RememberIDs, m), newIncidents(d), newPredictions(d), newActions(d),
	} {
		s.readers = append(s.readers, &reader{cfg: cfg, bus: b, db: db, w: w, log: log.With("topic", w.topic()), metrics: m, now: time.Now})
	}
	return s, nil
}

// Run reads and writes until ctx is done; what has been read by then is still
// written, within 2 seconds.
func (s *Sink) Run(ctx context.Context, ready func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(s.readers))
	var wg sync.WaitGroup
	for i, r := range s.readers {
		wg.Go(func() {
			if errs[i] = r.run(ctx); errs[i] != nil {
				cancel()
			}
		})
	}
	ready()
	wg.Wait()
	return errors.Join(errs...)
}

// Health returns why the history is not written now, or nil.
func (s *Sink) Health() error {
	var errs []error
	for _, r := range s.readers {
		r.mu.Lock()
		if err := errors.Join(r.unread, r.failing); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", r.w.topic(), err))
		}
		r.mu.Unlock()
	}
	return errors.Join(errs...)
}

type metrics struct {
	rows, blocks, failures, skipped *prometheus.CounterVec
	seconds                         *prometheus.HistogramVec
	lag                             *prometheus.GaugeVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		rows: prometheus.NewCounterVec(
			prometheus.CounterOpts{Name: "auspex_sink_rows_total", Help: "Rows written to the history."}, []string{"table"},
		),
		blocks: prometheus.NewCounterVec(
			prometheus.CounterOpts{Name: "auspex_sink_blocks_total", Help: "Blocks written to the history."}, []string{"table"},
		),
		failures: prometheus.NewCounterVec(
			prometheus.CounterOpts{
				Name: "auspex_sink_failures_total", Help: "Failed attempts to write or query the history; they are repeated.",
			},
			[]string{"topic"},
		),
		skipped: prometheus.NewCounterVec(
			prometheus.CounterOpts{
				Name: "auspex_sink_skipped_total", Help: "Records not written, by reason: the history already has them or their message.",
			},
			[]string{"topic", "reason"},
		),
		seconds: prometheus.NewHistogramVec(
			prometheus.HistogramOpts{
				Name: "auspex_sink_insert_seconds", Help: "Duration of writing one block.", Buckets: []float64{.005, .02, .1, .5, 2, 10, 30},
			},
			[]string{"table"},
		),
		lag: prometheus.NewGaugeVec(
			prometheus.GaugeOpts{Name: "auspex_sink_lag_seconds", Help: "Age on the bus of the oldest message of the last written block."},
			[]string{"topic"},
		),
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.rows, m.blocks, m.failures, m.skipped, m.seconds, m.lag} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// writer turns the messages of one topic into rows of its tables. Its methods
// are called by one goroutine at a time, but for decode.
type writer interface {
	topic() string
	tables() []string
	// prepare is called before the first message, until it returns nil.
	prepare(ctx context.Context) error
	// decode reads a message; nil means that there is nothing in it.
	decode(ctx context.Context, m bus.Message) record
	// block returns an empty block.
	block() block
}

// record is a decoded message. Its rows lie in one partition of the tables: a
// day of observed.
type record interface {
	observed() time.Time
}

// block gathers rows of all tables of a writer.
type block interface {
	// add appends the rows of a record, but not to tables for which has says that
	// they hold them.
	add(r record, partition uint32, position int64, has func(table string) bool)
	rows() int
	// settle is called once before the block is written, until it returns nil.
	settle(ctx context.Context) error
	// columns returns the rows of a table; none of them is no columns.
	columns(table string) []clickhouse.Column
	reset()
}

// reader is one topic on its way to the history.
type reader struct {
	cfg     Config
	bus     bus.Subscriber
	db      History
	w       writer
	log     *slog.Logger
	metrics *metrics
	now     func() time.Time

	mu      sync.Mutex
	resume  map[int]clickhouse.Resume
	next    map[int]int64 // position after the last message that was taken
	current *pending
	free    []*pending
	failing error         // why nothing is written
	unread  error         // why nothing is read, until a subscription begins
	saved   map[int]int64 // positions that the history knows to be written
}

// pending is a block with where it came from.
type pending struct {
	block
	day     int64 // Unix day of all rows
	began   time.Time
	oldest  time.Time           // on the bus
	ranges  map[int][2]int64    // first and last position of each partition
	next    map[int]int64       // as of reader.next when the block was cut
	settled bool                // settled
	done    map[string]struct{} // tables that are written
}

const (
	// shortestPause and longestPause are between attempts.
	shortestPause = 200 * time.Millisecond
	longestPause  = 10 * time.Second
	// saveInterval is how often positions are noted.
	saveInterval = 15 * time.Second
	// stopGrace bounds the last writing: a quarter of the grace of a stop, which others
	// need too. What is not written is read again at the next start.
	stopGrace = time.Second
)

func (r *reader) run(ctx context.Context) error {
	if !r.retry(ctx, func() error { return r.open(ctx) }) {
		return nil
	}
	flush := make(chan *pending)
	written := make(chan struct{})
	writing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	go func() {
		defer close(written)
		r.write(writing, flush)
	}()
	done := make(chan struct{})
	go func() { // cuts blocks by time
		defer close(done)
		t := time.NewTicker(max(r.cfg.FlushInterval/4, 5*time.Millisecond))
		defer t.Stop()
		for {
			select {
			case <-t.C:
				r.mu.Lock()
				if p := r.current; p.rows() > 0 && r.now().Sub(p.began) >= r.cfg.FlushInterval {
					r.offer(flush)
				}
				r.mu.Unlock()
			case <-ctx.Done():
				return
			}
		}
	}()
	sub := bus.Subscription{Topic: r.w.topic(), Start: r.start, MaxBatch: 512}
	err := r.follow(ctx, sub, func(ctx context.Context, msgs []bus.Message) error { return r.handle(ctx, msgs, flush) })
	<-done
	grace := time.AfterFunc(stopGrace, stop)
	defer grace.Stop()
	r.mu.Lock()
	last := r.current
	r.mu.Unlock()
	last.next = r.next
	flush <- last // the writer takes it, if only to throw it away
	close(flush)
	<-written
	return err
}

// follow reads the topic, and remembers why it is not read.
func (r *reader) follow(ctx context.Context, sub bus.Subscription, handle bus.Handler) error {
	return bus.Follow(ctx, r.bus, sub, r.log, handle, func(err error) {
		r.metrics.failures.WithLabelValues(r.w.topic()).Inc()
		r.mu.Lock()
		defer r.mu.Unlock()
		r.unread = err
	})
}

// retry calls f until it returns nil or ctx is done, and says which.
func (r *reader) retry(ctx context.Context, f func() error) bool {
	pause := shortestPause
	for {
		began := r.now()
		err := f()
		if ctx.Err() != nil {
			return false
		}
		r.mu.Lock()
		r.failing = err
		r.mu.Unlock()
		if err == nil {
			return true
		}
		r.metrics.failures.WithLabelValues(r.w.topic()).Inc()
		r.log.Warn("cannot write history; trying again", "error", err)
		if r.now().Sub(began) > time.Minute {
			pause = shortestPause
		}
		if run.Sleep(ctx, pause) != nil {
			return false
		}
		pause = min(2*pause, longestPause)
	}
}

func (r *reader) open(ctx context.Context) error {
	resume, err := r.db.Resume(ctx, "sink", r.w.topic(), r.w.tables())
	if err != nil {
		return err
	}
	if err := r.w.prepare(ctx); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.resume, r.next, r.saved = resume, map[int]int64{}, map[int]int64{}
	for p, at := range resume {
		r.next[p], r.saved[p] = at.Start, at.Start
	}
	r.current = r.fresh()
	return nil
}

func (r *reader) fresh() *pending {
	if n := len(r.free); n > 0 {
		p := r.free[n-1]
		r.free = r.free[:n-1]
		return p
	}
	return &pending{block: r.w.block(), ranges: map[int][2]int64{}, done: map[string]struct{}{}}
}

// start implements bus.Subscription.Start.
func (r *reader) start(_ context.Context, partition int) (int64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unread = nil
	return clickhouse.Offset(r.next[partition]), nil
}

// handle takes messages into the current block.
func (r *reader) handle(ctx context.Context, msgs []bus.Message, flush chan<- *pending) error {
	for _, m := range msgs {
		rec := r.w.decode(ctx, m)
		r.mu.Lock()
		err := r.take(ctx, m, rec, flush)
		r.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// take appends one message. The lock is held.
func (r *reader) take(ctx context.Context, m bus.Message, rec record, flush chan<- *pending) error {
	generation := clickhouse.Generation(r.next[m.Partition])
	if m.Offset < clickhouse.Offset(r.next[m.Partition]) {
		// The bus gives an offset that lies before what was asked for only where its
		// log was begun anew.
		generation++
		r.log.Warn("the log of the bus restarted; reading from its oldest message", "partition", m.Partition, "offset", m.Offset)
	}
	position := clickhouse.Position(generation, m.Offset)
	if rec != nil {
		day := rec.observed().Unix() / 86400
		for r.current.rows() >= r.cfg.MaxRows || r.current.rows() > 0 && r.current.day != day {
			if err := r.cut(ctx, flush); err != nil {
				return err
			}
		}
		p := r.current
		before := p.rows()
		resume := r.resume[m.Partition]
		p.add(rec, uint32(m.Partition), position, func(table string) bool { //nolint:gosec // partitions are few
			if position >= resume.Next[table] {
				return false
			}
			r.metrics.skipped.WithLabelValues(r.w.topic(), "message").Inc()
			return true
		})
		if p.rows() > before {
			if before == 0 {
				p.day, p.began, p.oldest = day, r.now(), m.Time
			}
			span, ok := p.ranges[m.Partition]
			if !ok {
				span[0] = position
			}
			span[1] = position
			p.ranges[m.Partition] = span
		}
	}
	r.next[m.Partition] = position + 1
	return nil
}

// cut hands the current block over and begins another. The lock is held, and let
// go of while the writer is busy: that is the back-pressure.
func (r *reader) cut(ctx context.Context, flush chan<- *pending) error {
	if r.offer(flush) {
		return nil
	}
	r.mu.Unlock()
	defer r.mu.Lock()
	return run.Sleep(ctx, 5*time.Millisecond)
}

// offer hands the current block over where the writer is idle. The lock is held.
func (r *reader) offer(flush chan<- *pending) bool {
	p := r.current
	p.next = maps.Clone(r.next)
	select {
	case flush <- p:
		r.current = r.fresh()
		return true
	default:
		return false
	}
}

// write writes blocks in the order in which they come.
func (r *reader) write(ctx context.Context, flush <-chan *pending) {
	var savedAt time.Time
	for {
		p, more := <-flush
		if !more {
			return
		}
		if !r.retry(ctx, func() error { return r.insert(ctx, p) }) {
			// Nothing may be written behind a gap. It is read again at the next start.
			for {
				if _, more := <-flush; !more {
					return
				}
			}
		}
		if p.rows() > 0 {
			r.metrics.lag.WithLabelValues(r.w.topic()).Set(max(r.now().Sub(p.oldest), 0).Seconds())
		}
		changed := map[int]int64{}
		r.mu.Lock()
		for part, n := range p.next {
			if r.saved[part] != n {
				changed[part] = n
			}
		}
		last := p == r.current
		r.mu.Unlock()
		if last || r.now().Sub(savedAt) >= saveInterval {
			savedAt = r.now()
			if err := r.db.SavePositions(ctx, "sink", r.w.topic(), changed); err != nil {
				r.log.Warn("cannot store position", "error", err)
			} else {
				r.mu.Lock()
				maps.Copy(r.saved, changed)
				r.mu.Unlock()
			}
		}
		p.reset()
		p.settled = false
		clear(p.ranges)
		clear(p.done)
		r.mu.Lock()
		if !last && len(r.free) < 2 {
			r.free = append(r.free, p)
		}
		r.mu.Unlock()
	}
}

// insert writes one block, table by table; the tables that are done stay done.
func (r *reader) insert(ctx context.Context, p *pending) error {
	if p.rows() == 0 {
		return nil
	}
	if !p.settled {
		if err := p.settle(ctx); err != nil {
			return err
		}
		p.settled = true
	}
	token := ""
	for _, table := range r.w.tables() {
		if _, ok := p.done[table]; ok {
			continue
		}
		columns := p.columns(table)
		if len(columns) == 0 {
			continue
		}
		if token == "" {
			token = p.token(r.w.topic())
		}
		began := r.now()
		if err := r.db.Insert(ctx, table, token, columns); err != nil {
			return err
		}
		p.done[table] = struct{}{}
		r.metrics.seconds.WithLabelValues(table).Observe(r.now().Sub(began).Seconds())
		r.metrics.blocks.WithLabelValues(table).Inc()
		r.metrics.rows.WithLabelValues(table).Add(float64(length(columns)))
	}
	return nil
}

// length returns the rows of columns; every table has bus_offset.
func length(columns []clickhouse.Column) int {
	for _, c := range columns {
		if v, ok := c.Values.([]int64); ok && c.Name == "bus_offset" {
			return len(v)
		}
	}
	return 0
}

// token names what a block holds: the topic, and of each partition the range of
// positions.
func (p *pending) token(topic string) string {
	parts := make([]int, 0, len(p.ranges))
	for part := range p.ranges {
		parts = append(parts, part)
	}
	slices.Sort(parts)
	var b strings.Builder
	b.WriteString(topic)
	for _, part := range parts {
		fmt.Fprintf(&b, "/%d:%d-%d", part, p.ranges[part][0], p.ranges[part][1])
	}
	return b.String()
}

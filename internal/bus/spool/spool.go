// Package spool keeps events on the local disk while the bus does not take them,
// so that collectors go on reading sources that cannot be read again: gNMI
// updates, short jobs, a kernel's ring buffer. It publishes them, in order, when
// the bus is back, also after a crash.
package spool

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	_ "modernc.org/sqlite" // driver "sqlite"

	"auspex/internal/bus"
	"auspex/internal/datafile"
	"auspex/internal/run"
)

// Config bounds the spool.
type Config struct {
	// Patience is how long an event waits for the bus before it goes to the disk.
	Patience time.Duration `yaml:"patience"`
	// MaxBytes bounds what waits on the disk; collectors wait when it is full.
	MaxBytes int64 `yaml:"max_bytes"`
}

// DefaultConfig returns 5 s and 256 MiB, some 500,000 events.
func DefaultConfig() Config { return Config{Patience: 5 * time.Second, MaxBytes: 256 << 20} }

// Validate names the first value that makes no sense.
func (c Config) Validate() error {
	if c.Patience <= 0 || c.MaxBytes < 1<<20 {
		return errors.New("patience must be positive and max_bytes at least 1 MiB")
	}
	return nil
}

// ErrAway is returned at once for what is not kept here while events wait: the
// bus is known not to take anything.
var ErrAway = errors.New("the bus is unavailable; events wait on disk")

var errFull = errors.New("the spool is full")

// stopGrace bounds what an event may still take when its caller has to end.
const stopGrace = time.Second

// Spool is a publisher in front of another one. Messages of its topic are durable,
// on the bus or here, when Publish returns; all others pass through.
type Spool struct {
	cfg   Config
	topic string
	pub   bus.Publisher
	db    *sql.DB
	log   *slog.Logger
	asks  chan *ask
	wake  chan struct{}

	mu    sync.Mutex
	rows  int64 // that wait
	bytes int64

	stored, sent, refused, dropped prometheus.Counter
	gauges                         []prometheus.Collector
}

// ask is what one Publish wants stored.
type ask struct {
	msgs []bus.Message
	done chan error
}

// Open opens the file, with what waits in it from before. A file that is damaged
// is put aside, with a name that says so.
func Open(
	ctx context.Context, file, topic string, cfg Config, pub bus.Publisher, log *slog.Logger, reg prometheus.Registerer,
) (*Spool, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "auspex_bus_spool_" + name, Help: help})
	}
	s := &Spool{
		cfg: cfg, topic: topic, pub: pub, log: log, asks: make(chan *ask), wake: make(chan struct{}, 1),
		stored:  counter("stored_messages_total", "Messages written to disk because the bus did not take them."),
		sent:    counter("sent_messages_total", "Messages on disk that the bus has taken."),
		refused: counter("refused_total", "Attempts to write to the disk that failed, or found the spool full."),
		dropped: counter("dropped_messages_total", "Messages on disk that no bus can carry."),
	}
	s.gauges = []prometheus.Collector{
		prometheus.NewGaugeFunc(
			prometheus.GaugeOpts{Name: "auspex_bus_spool_messages", Help: "Messages that wait on disk for the bus."},
			func() float64 { n, _ := s.Waiting(); return float64(n) },
		),
		prometheus.NewGaugeFunc(
			prometheus.GaugeOpts{Name: "auspex_bus_spool_bytes", Help: "Bytes that wait on disk for the bus."},
			func() float64 { _, n := s.Waiting(); return float64(n) },
		),
	}
	err := s.open(ctx, file)
	if err != nil && ctx.Err() == nil && damaged(file, err) {
		aside := file + ".damaged-" + time.Now().UTC().Format("20060102T150405")
		log.Error("the event spool is damaged and was set aside; its events are lost", "file", aside, "error", err)
		for _, part := range []string{"-wal", "-shm", ""} {
			if rerr := os.Rename(file+part, aside+part); rerr != nil && !errors.Is(rerr, os.ErrNotExist) {
				return nil, fmt.Errorf("open spool: %w", rerr)
			}
		}
		err = s.open(ctx, file)
	}
	if err != nil {
		return nil, fmt.Errorf("open spool %s: %w", file, err)
	}
	if reg != nil {
		reg.MustRegister(append([]prometheus.Collector{s.stored, s.sent, s.refused, s.dropped}, s.gauges...)...)
	}
	return s, nil
}

// damaged tells a file that is no database, or a broken one, from a disk that
// does not let it be opened.
func damaged(file string, err error) bool {
	var code interface{ Code() int }
	if !errors.As(err, &code) || code.Code()&0xff != 11 && code.Code()&0xff != 26 { // SQLITE_CORRUPT, SQLITE_NOTADB
		return false
	}
	_, serr := os.Stat(file)
	return serr == nil
}

func (s *Spool) open(ctx context.Context, file string) error {
	if err := datafile.Reserve(file); err != nil {
		return err
	}
	q := url.Values{"_txlock": {"immediate"}}
	for _, p := range []string{"journal_mode(WAL)", "synchronous(FULL)", "busy_timeout(1000)", "auto_vacuum(INCREMENTAL)"} {
		q.Add("_pragma", p)
	}
	db, err := sql.Open("sqlite", "file:"+file+"?"+q.Encode())
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(1)
	_, err = db.ExecContext(
		ctx, `CREATE TABLE IF NOT EXISTS waiting (id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL, value BLOB NOT NULL)`,
	)
	if err == nil {
		err = db.QueryRowContext(ctx, `SELECT count(*), coalesce(sum(length(value)), 0) FROM waiting`).Scan(&s.rows, &s.bytes)
	}
	if err != nil {
		return errors.Join(err, db.Close())
	}
	s.db = db
	return nil
}

// Close closes the file. No Publish may be under way.
func (s *Spool) Close() error { return s.db.Close() }

// Waiting returns how many messages wait on the disk, and their bytes.
func (s *Spool) Waiting() (messages, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rows, s.bytes
}

// Publish implements [bus.Publisher]. A caller whose messages have an order
// publishes one after the other.
func (s *Spool) Publish(ctx context.Context, msgs ...bus.Message) error {
	for i := range msgs {
		if msgs[i].Topic != s.topic {
			if n, _ := s.Waiting(); n > 0 {
				return ErrAway
			}
			return s.pub.Publish(ctx, msgs...)
		}
	}
	for {
		if n, _ := s.Waiting(); n == 0 { // else they stand behind those that wait
			err := s.direct(ctx, msgs)
			if err == nil || errors.Is(err, bus.ErrTooLarge) {
				return err
			}
			s.log.Warn("bus does not take events; spooling them to disk", "error", err)
		}
		err := s.store(msgs)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		s.refused.Inc()
		s.log.Error("cannot spool events; their collectors wait", "error", err)
		if err := run.Sleep(ctx, time.Second); err != nil {
			return err
		}
	}
}

// direct tries the bus. A caller that has to end leaves what is on its way a
// moment to arrive, rather than not knowing.
func (s *Spool) direct(ctx context.Context, msgs []bus.Message) error {
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Patience)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(stopGrace, cancel) })()
	err := s.pub.Publish(own, copies(msgs)...)
	if err != nil && own.Err() != nil {
		err = fmt.Errorf("no answer within %s: %w", s.cfg.Patience, err)
	}
	return err
}

// copies gives the bus values of its own: it owns them also when it fails.
func copies(msgs []bus.Message) []bus.Message {
	out := make([]bus.Message, len(msgs))
	for i, m := range msgs {
		m.Value = append([]byte(nil), m.Value...)
		out[i] = m
	}
	return out
}

// store returns when the messages are on the disk, also for a caller that has to end.
func (s *Spool) store(msgs []bus.Message) error {
	a := &ask{msgs: msgs, done: make(chan error, 1)}
	timer := time.NewTimer(s.cfg.Patience + stopGrace)
	defer timer.Stop()
	select {
	case s.asks <- a:
	case <-timer.C:
		return errors.New("the spool is not running")
	}
	return <-a.done
}

// Name implements run.Component.
func (*Spool) Name() string { return "spool" }

// Run stores what is asked for and publishes what waits, until ctx is done. The
// publishers must have ended by then; what waits is there at the next start.
func (s *Spool) Run(ctx context.Context, ready func()) error {
	var wg sync.WaitGroup
	wg.Go(func() { s.write(ctx) })
	wg.Go(func() { s.drain(ctx) })
	if n, _ := s.Waiting(); n > 0 {
		s.log.Warn("events of an earlier run wait on disk for the bus", "messages", n)
		s.poke()
	}
	ready()
	wg.Wait()
	return nil
}

func (s *Spool) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

const (
	// most is how many asks one transaction takes, and how many messages one
	// publication.
	most = 256
	// mostBytes is when a publication has enough.
	mostBytes = 8 << 20
)

// write commits what is asked for: all that has come since the last commit with
// one sync of the disk.
func (s *Spool) write(ctx context.Context) {
	for {
		var group []*ask
		select {
		case <-ctx.Done():
			return
		case a := <-s.asks:
			group = append(group, a)
		}
	more:
		for len(group) < most {
			select {
			case a := <-s.asks:
				group = append(group, a)
			default:
				break more
			}
		}
		rows, bytes, err := s.insert(context.WithoutCancel(ctx), group)
		if err == nil {
			s.mu.Lock()
			s.rows, s.bytes = s.rows+rows, s.bytes+bytes
			s.mu.Unlock()
			s.stored.Add(float64(rows))
			s.poke()
		}
		for _, a := range group {
			a.done <- err
		}
	}
}

func (s *Spool) insert(ctx context.Context, group []*ask) (rows, bytes int64, err error) {
	for _, a := range group {
		for i := range a.msgs {
			rows, bytes = rows+1, bytes+int64(len(a.msgs[i].Value))
		}
	}
	if _, have := s.Waiting(); have+bytes > s.cfg.MaxBytes {
		return 0, 0, fmt.Errorf("%w: %d bytes wait", errFull, have)
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = tx.Rollback() }()
	for _, a := range group {
		for i := range a.msgs {
			if _, err := tx.ExecContext(ctx, `INSERT INTO waiting (key, value) VALUES (?, ?)`, a.msgs[i].Key, a.msgs[i].Value); err != nil {
				return 0, 0, err
			}
		}
	}
	return rows, bytes, tx.Commit()
}

// drain publishes what waits, oldest first.
func (s *Spool) drain(ctx context.Context) {
	const shortest, longest = 100 * time.Millisecond, 5 * time.Second
	pause := shortest
	for {
		if n, _ := s.Waiting(); n == 0 {
			select {
			case <-ctx.Done():
				return
			case <-s.wake:
			}
			continue
		}
		err := s.pass(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			if n, _ := s.Waiting(); n == 0 {
				s.log.Warn("bus takes events again; the spool is empty")
			}
			pause = shortest
			continue
		}
		s.log.Warn("events wait on disk for the bus", "error", err)
		if run.Sleep(ctx, pause) != nil {
			return
		}
		pause = min(2*pause, longest)
	}
}

// pass publishes the oldest messages and removes them. After a crash between the
// two they are published twice; an event's id takes care of that.
func (s *Spool) pass(ctx context.Context) error {
	rows, err := s.db.QueryContext(ctx, `SELECT id, key, value FROM waiting ORDER BY id LIMIT ?`, most)
	if err != nil {
		return err
	}
	var msgs []bus.Message
	var last, bytes int64
	for bytes < mostBytes && rows.Next() {
		m := bus.Message{Topic: s.topic}
		if err := rows.Scan(&last, &m.Key, &m.Value); err != nil {
			return errors.Join(err, rows.Close())
		}
		bytes += int64(len(m.Value))
		msgs = append(msgs, m)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	if err := s.pub.Publish(ctx, copies(msgs)...); err != nil {
		if !errors.Is(err, bus.ErrTooLarge) {
			return err
		}
		if err := s.singly(ctx, msgs); err != nil {
			return err
		}
	}
	if _, err := s.db.ExecContext(context.WithoutCancel(ctx), `DELETE FROM waiting WHERE id <= ?`, last); err != nil {
		return err
	}
	s.mu.Lock()
	s.rows, s.bytes = s.rows-int64(len(msgs)), s.bytes-bytes
	s.mu.Unlock()
	s.sent.Add(float64(len(msgs)))
	_, _ = s.db.ExecContext(context.WithoutCancel(ctx), `PRAGMA incremental_vacuum`) // what is not given back is used again
	return nil
}

// singly publishes one message after the other, without those that are too large
// for a bus that is configured anew.
func (s *Spool) singly(ctx context.Context, msgs []bus.Message) error {
	for i := range msgs {
		err := s.pub.Publish(ctx, copies(msgs[i:i+1])...)
		if errors.Is(err, bus.ErrTooLarge) {
			s.dropped.Inc()
			s.log.Error("message is too large for the bus and is dropped", "device", msgs[i].Key, "bytes", len(msgs[i].Value))
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Package shards divides the devices of a site among the processes that read them. A device belongs to a shard, by the hash of its
// id; each living member holds the shards that rendezvous hashing (Thaler and Ravishankar, 1998) gives it, so that one that comes or
// goes moves no more than its own. Who holds what is in the relational store, under a lease with a fencing token: a member that is
// not heard of for the time of a lease is put out, and what it still writes is refused.
package shards

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/prometheus/client_golang/prometheus"

	"auspex/internal/run"
	"auspex/internal/store/sqldb"
)

// Count is the number of shards: the rows of collect_shards.
const Count = 512

// ErrPutOut is that other members have waited in vain for this one, and read its devices.
var ErrPutOut = errors.New("another process reads these devices now")

// errTaken: a member of this name lives.
var errTaken = errors.New("another process has this name")

// Of returns the shard of a device, by its id.
func Of(device string) int { return int(xxhash.Sum64String(device) % Count) }

// Member is one of the processes that read devices. Its methods may be called at the same time.
type Member struct {
	db   *sqldb.DB
	name string
	ttl  time.Duration
	log  *slog.Logger

	token   atomic.Int64 // of this term; 0 is none
	held    atomic.Pointer[[Count]bool]
	renewed time.Time // when the lease was last proven
	alone   bool      // nobody else lived then
	heard   map[string]heard

	members, shards prometheus.Gauge
	putOut          prometheus.Counter
}

// heard is when a member was last seen to live, by our clock.
type heard struct {
	token, beat int64
	at          time.Time
}

// New makes a member of that name, which no other may have, over leases of ttl.
func New(db *sqldb.DB, name string, ttl time.Duration, log *slog.Logger, reg prometheus.Registerer) *Member {
	m := &Member{
		db: db, name: name, ttl: ttl, log: log, heard: map[string]heard{},
		members: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "auspex_collectors_members", Help: "Processes that share the devices, as this one last saw them.",
		}),
		shards: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "auspex_collectors_shards", Help: "Shards of devices that this process reads, of 512.",
		}),
		putOut: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "auspex_collectors_put_out_total", Help: "Times that other processes took this one for dead.",
		}),
	}
	m.held.Store(new([Count]bool))
	if reg != nil {
		reg.MustRegister(m.members, m.shards, m.putOut)
	}
	return m
}

// Holds reports whether this member reads a device.
func (m *Member) Holds(device string) bool { return m.held.Load()[Of(device)] }

// Fence makes sure, in the transaction of a write, that this member has not been put out, and that nobody does so before the
// transaction ends. The error is [ErrPutOut] where it has.
func (m *Member) Fence(ctx context.Context, tx *sql.Tx) error {
	r, err := tx.ExecContext(ctx, `UPDATE collect_members SET beat=beat+1 WHERE name=$1 AND token=$2`, m.name, m.token.Load())
	if err != nil {
		return fmt.Errorf("renew the lease of %s: %w", m.name, err)
	}
	if n, err := r.RowsAffected(); err != nil || n == 1 {
		return err
	}
	return ErrPutOut
}

// leaveWithin bounds how long a process that ends waits for its store.
const leaveWithin = 2 * time.Second

// Reader reads the devices that a member holds.
type Reader interface {
	// Apply returns when nothing is read any more that [Member.Holds] denies, and what it does not deny is, or soon will be.
	Apply()
	// Settle returns when nothing is written any more of devices whose reading has ended.
	Settle(ctx context.Context) error
}

// Run takes part until ctx is done. Devices that this member no longer holds are handed on when the reader has applied that and settled.
// It is ready when it holds what it is to hold, or cannot know.
func (m *Member) Run(ctx context.Context, ready func(), reader Reader) error {
	ready = sync.OnceFunc(ready)
	step := m.ttl / 5
	defer func() {
		m.hold(nil, reader)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
		defer cancel()
		err := reader.Settle(ctx)
		if err == nil {
			err = m.leave(ctx)
		}
		if err != nil {
			m.log.Warn("cannot hand the devices on; others take them over", "after", m.ttl, "error", err)
		}
	}()
	for first := true; ; first = false {
		err := m.turn(ctx, first, reader)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrPutOut):
			m.putOut.Inc()
			m.log.Warn("other processes took this one for dead; it starts anew", "member", m.name)
			m.token.Store(0)
			m.hold(nil, reader)
			continue // without a wait: its devices are free, or read by others
		case errors.Is(err, errTaken):
			m.log.Error("another process of this name reads devices; this one waits for its end", "member", m.name)
		case err != nil:
			m.log.Warn("cannot renew the lease of the devices", "member", m.name, "error", err)
			// Before the lease can end for others, nothing is read here any more. Who was alone has no others.
			if m.token.Load() != 0 && !m.alone && time.Since(m.renewed) > m.ttl*3/5 {
				m.hold(nil, reader)
			}
		}
		ready()
		if run.Sleep(ctx, step) != nil {
			return nil
		}
	}
}

// turn renews the lease, puts out who is dead, and takes and hands on shards.
func (m *Member) turn(ctx context.Context, first bool, reader Reader) error {
	ctx, cancel := context.WithTimeout(ctx, m.ttl/2)
	defer cancel()
	if m.token.Load() == 0 {
		if err := m.join(ctx, first); err != nil {
			return err
		}
	}
	began := time.Now()
	var alive []string
	var held []int
	err := m.db.InTx(ctx, func(tx *sql.Tx) (err error) {
		if err := m.Fence(ctx, tx); err != nil {
			return err
		}
		alive, err = m.bury(ctx, tx, began)
		if err != nil {
			return err
		}
		held, err = m.take(ctx, tx, alive)
		return err
	})
	if err != nil {
		return err
	}
	m.renewed, m.alone = began, len(alive) == 1
	m.members.Set(float64(len(alive)))
	keep := new([Count]bool)
	var hand []int
	for _, s := range held {
		if keep[s] = of(s, alive) == m.name; !keep[s] {
			hand = append(hand, s)
		}
	}
	m.hold(keep, reader)
	if len(hand) == 0 {
		return nil
	}
	if err := reader.Settle(ctx); err != nil {
		return fmt.Errorf("end what is written of devices that are handed on: %w", err)
	}
	m.log.Info("devices are handed on", "member", m.name, "shards", len(hand), "members", len(alive))
	if _, err := m.db.ExecContext(ctx, `UPDATE collect_shards SET token=0 WHERE token=$1 AND shard IN (`+list(hand)+`)`, m.token.Load()); err != nil {
		return fmt.Errorf("hand shards on: %w", err)
	}
	return nil
}

// hold makes what is held known, and waits until it is so where it has changed; nil is nothing.
func (m *Member) hold(keep *[Count]bool, reader Reader) {
	if keep == nil {
		keep = new([Count]bool)
	}
	n := 0
	for _, h := range keep {
		if h {
			n++
		}
	}
	m.shards.Set(float64(n))
	if old := m.held.Swap(keep); *old != *keep {
		reader.Apply()
	}
}

// join begins a term. The first of a process ends that of the process of its name before it, which has ended or is fenced off.
func (m *Member) join(ctx context.Context, first bool) error {
	return m.db.InTx(ctx, func(tx *sql.Tx) error {
		now := time.Now()
		if err := m.watch(ctx, tx, now); err != nil {
			return err
		}
		silent := now.Sub(m.heard[m.name].at) > m.ttl // true where there is none
		var token int64
		if err := tx.QueryRowContext(ctx, `UPDATE collect_terms SET last=last+1 RETURNING last`).Scan(&token); err != nil {
			return fmt.Errorf("begin a term: %w", err)
		}
		r, err := tx.ExecContext(ctx, `INSERT INTO collect_members (name, token, beat) VALUES ($1,$2,0)
ON CONFLICT (name) DO UPDATE SET token=excluded.token, beat=0 WHERE $3=1`, m.name, token, one(first || silent))
		if err != nil {
			return fmt.Errorf("join: %w", err)
		}
		if n, err := r.RowsAffected(); err != nil {
			return err
		} else if n == 0 {
			return errTaken
		}
		m.token.Store(token)
		return nil
	})
}

// bury puts out the members that were not heard of for the time of a lease, and returns the others with this one.
func (m *Member) bury(ctx context.Context, tx *sql.Tx, now time.Time) (alive []string, err error) {
	if now.Sub(m.renewed) > m.ttl/2 {
		clear(m.heard) // it is we who were away, or the store: nobody was heard
	}
	if err := m.watch(ctx, tx, now); err != nil {
		return nil, err
	}
	for name, h := range m.heard {
		if name == m.name || now.Sub(h.at) <= m.ttl {
			alive = append(alive, name)
			continue
		}
		r, err := tx.ExecContext(ctx, `DELETE FROM collect_members WHERE name=$1 AND token=$2 AND beat=$3`, name, h.token, h.beat)
		if err != nil {
			return nil, fmt.Errorf("put %s out: %w", name, err)
		}
		if n, err := r.RowsAffected(); err != nil {
			return nil, err
		} else if n == 0 {
			alive = append(alive, name) // it was heard of just now
			continue
		}
		m.log.Warn("a process that reads devices is dead; the others read its own", "member", name, "silent", now.Sub(h.at).Round(time.Second))
	}
	slices.Sort(alive)
	return alive, nil
}

// watch notes which members have moved.
func (m *Member) watch(ctx context.Context, tx *sql.Tx, now time.Time) error {
	type row struct {
		name string
		heard
	}
	rows, err := sqldb.Rows(ctx, tx, func(r *sql.Rows) (o row, err error) { return o, r.Scan(&o.name, &o.token, &o.beat) },
		`SELECT name, token, beat FROM collect_members`)
	if err != nil {
		return fmt.Errorf("read who reads devices: %w", err)
	}
	next := make(map[string]heard, len(rows))
	for _, o := range rows {
		o.at = now
		if was, ok := m.heard[o.name]; ok && was.token == o.token && was.beat == o.beat {
			o.at = was.at
		}
		next[o.name] = o.heard
	}
	m.heard = next
	return nil
}

// take takes the shards that nobody holds and that are this member's, and returns all that it holds.
func (m *Member) take(ctx context.Context, tx *sql.Tx, alive []string) (held []int, err error) {
	type row struct {
		shard int
		token int64
		lives bool
	}
	rows, err := sqldb.Rows(ctx, tx, func(r *sql.Rows) (o row, err error) { return o, r.Scan(&o.shard, &o.token, &o.lives) },
		`SELECT s.shard, s.token, m.name IS NOT NULL FROM collect_shards s LEFT JOIN collect_members m ON m.token=s.token ORDER BY s.shard`)
	if err != nil {
		return nil, fmt.Errorf("read who holds which shards: %w", err)
	}
	var free []int
	ended := map[int64]bool{} // terms, which never come again
	for _, o := range rows {
		switch {
		case o.token == m.token.Load():
			held = append(held, o.shard)
		case !o.lives && of(o.shard, alive) == m.name:
			free, ended[o.token] = append(free, o.shard), true
		}
	}
	if len(free) == 0 {
		return held, nil
	}
	taken, err := sqldb.Rows(ctx, tx, func(r *sql.Rows) (s int, err error) { return s, r.Scan(&s) },
		`UPDATE collect_shards SET token=$1 WHERE shard IN (`+list(free)+`) AND token IN (`+list(slices.Sorted(maps.Keys(ended)))+`) RETURNING shard`,
		m.token.Load())
	if err != nil {
		return nil, fmt.Errorf("take shards: %w", err)
	}
	return append(held, taken...), nil
}

// leave ends the term, so that nobody has to wait for its end.
func (m *Member) leave(ctx context.Context) error {
	_, err := m.db.ExecContext(ctx, `DELETE FROM collect_members WHERE name=$1 AND token=$2`, m.name, m.token.Swap(0))
	return err
}

// of returns the member that a shard belongs to.
func of(shard int, members []string) (best string) {
	var most uint64
	for _, name := range members {
		if score := xxhash.Sum64String(name + "/" + strconv.Itoa(shard)); best == "" || score > most {
			best, most = name, score
		}
	}
	return best
}

func list[N int | int64](numbers []N) string {
	var b strings.Builder
	for i, n := range numbers {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatInt(int64(n), 10))
	}
	return b.String()
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Package cursors keeps how far collectors have read their devices: a SEL record,
// a kernel sequence, in words that only the collector understands.
package cursors

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"auspex/internal/store/sqldb"
)

// Store keeps the positions of collectors in the relational store. Those that come while
// others are being written are written together: each is on disk when SetCursor returns,
// and thousands of devices in a storm need few transactions.
type Store struct {
	db    *sqldb.DB
	fence func(ctx context.Context, tx *sql.Tx) error // nil: nobody else writes them

	mu      sync.Mutex
	waiting *batch // nil: none
	writes  bool   // a batch is being written, and waiting comes next
}

type batch struct {
	positions map[reader]string
	done      chan struct{}
	errs      map[reader]error // once it is done
}

type reader struct{ collector, device string }

const (
	together  = 100 // positions in a statement
	writeTime = time.Minute
)

// New returns the positions that a database keeps.
func New(db *sqldb.DB) *Store { return &Store{db: db} }

// Fenced returns positions that are written only where fence, in the same transaction, finds nothing against it: whoever
// reads no more must not move what another reads from.
func Fenced(db *sqldb.DB, fence func(ctx context.Context, tx *sql.Tx) error) *Store {
	return &Store{db: db, fence: fence}
}

// Cursor implements collectors.Cursors; "" is a position that was never kept.
func (c *Store) Cursor(ctx context.Context, collector, device string) (string, error) {
	var pos string
	err := c.db.QueryRowContext(ctx, `SELECT position FROM cursors WHERE collector=$1 AND device=$2`, collector, device).Scan(&pos)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return pos, err
}

// Loss is a condition of a device that collectors keep beside their positions, such as that
// they have lost it: since when, and which of them.
type Loss struct {
	Since      time.Time
	Collectors []string
	Untold     bool // its begin is about to be told
}

// LossOf names the position of a condition, by the type of the event that tells it.
func LossOf(event string) string { return "contact." + event }

// String is the position that keeps a loss; a loss that is over has no collectors.
func (l Loss) String() string {
	s := strconv.FormatInt(l.Since.UnixNano(), 10) + " " + strings.Join(l.Collectors, ",")
	if l.Untold {
		s += " " + untold
	}
	return s
}

const untold = "untold"

// ParseLoss reads a position; false is that nobody has lost the device.
func ParseLoss(position string) (Loss, bool) {
	since, rest, _ := strings.Cut(position, " ")
	names, told, _ := strings.Cut(rest, " ")
	ns, err := strconv.ParseInt(since, 10, 64)
	if err != nil || names == "" {
		return Loss{}, false
	}
	return Loss{Since: time.Unix(0, ns).UTC(), Collectors: strings.Split(names, ","), Untold: told == untold}, true
}

// Losses returns the devices that a collector has lost, by the type of the event that told it.
func (c *Store) Losses(ctx context.Context, event, collector string) (map[string]Loss, error) {
	type kept struct{ device, position string }
	all, err := sqldb.Rows(ctx, c.db, func(r *sql.Rows) (k kept, err error) { return k, r.Scan(&k.device, &k.position) },
		`SELECT device, position FROM cursors WHERE collector=$1`, LossOf(event))
	if err != nil {
		return nil, fmt.Errorf("read which devices are lost: %w", err)
	}
	out := map[string]Loss{}
	for _, k := range all {
		if l, lost := ParseLoss(k.position); lost && slices.Contains(l.Collectors, collector) {
			out[k.device] = l
		}
	}
	return out, nil
}

// SetCursor implements collectors.Cursors. When ctx ends first, the position may be kept or not.
func (c *Store) SetCursor(ctx context.Context, collector, device, position string) error {
	at := reader{collector, device}
	c.mu.Lock()
	if c.waiting == nil {
		c.waiting = &batch{done: make(chan struct{})}
	}
	b := c.waiting
	if b.positions == nil {
		b.positions = map[reader]string{}
	}
	b.positions[at] = position
	if !c.writes {
		c.writes = true
		go c.write(context.WithoutCancel(ctx))
	}
	c.mu.Unlock()
	select {
	case <-b.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := b.errs[at]; err != nil {
		return fmt.Errorf("store cursor of %s on %s: %w", collector, device, err)
	}
	return nil
}

// Settle returns when every position that was set before is written or was refused, also those whose callers have left.
func (c *Store) Settle(ctx context.Context) error {
	c.mu.Lock()
	if !c.writes {
		c.mu.Unlock()
		return nil
	}
	if c.waiting == nil {
		c.waiting = &batch{done: make(chan struct{})}
	}
	b := c.waiting
	c.mu.Unlock()
	select {
	case <-b.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// write writes what waits until nothing does.
func (c *Store) write(ctx context.Context) {
	for {
		c.mu.Lock()
		b := c.waiting
		c.waiting, c.writes = nil, b != nil
		c.mu.Unlock()
		if b == nil {
			return
		}
		b.errs = c.keep(ctx, b.positions)
		close(b.done)
	}
}

// keep stores positions together, or each alone where they cannot be: one that the
// database refuses is an error of its reader, and of no other.
func (c *Store) keep(ctx context.Context, positions map[reader]string) map[reader]error {
	if len(positions) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	all := slices.Collect(maps.Keys(positions))
	upsert := func(tx *sql.Tx, some []reader) error {
		var rows strings.Builder
		args := make([]any, 0, 3*len(some)+1)
		args = append(args, time.Now().UnixNano())
		for i, r := range some {
			fmt.Fprintf(&rows, ",($%d,$%d,$%d,$1)", 3*i+2, 3*i+3, 3*i+4)
			args = append(args, r.collector, r.device, positions[r])
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO cursors (collector, device, position, updated_ns) VALUES `+rows.String()[1:]+`
ON CONFLICT (collector, device) DO UPDATE SET position=excluded.position, updated_ns=excluded.updated_ns`, args...)
		return err
	}
	inTx := func(write func(tx *sql.Tx) error) error {
		return c.db.InTx(ctx, func(tx *sql.Tx) error {
			if c.fence != nil {
				if err := c.fence(ctx, tx); err != nil {
					return err
				}
			}
			return write(tx)
		})
	}
	err := inTx(func(tx *sql.Tx) error {
		for some := range slices.Chunk(all, together) {
			if err := upsert(tx, some); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		return nil
	}
	errs := map[reader]error{}
	for i, r := range all {
		if len(all) > 1 {
			err = inTx(func(tx *sql.Tx) error { return upsert(tx, all[i:i+1]) })
		}
		if err != nil {
			errs[r] = err
		}
	}
	return errs
}

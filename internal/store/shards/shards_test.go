package shards_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"auspex/internal/store/shards"
	"auspex/internal/store/sqldb"
	"auspex/internal/store/sqldb/sqltest"
)

const ttl = 15 * time.Second

// crew are the members of a store. It holds that no shard is read by two.
type crew struct {
	t   *testing.T
	dsn string
	db  *sqldb.DB

	mu    sync.Mutex
	reads map[*mate]map[string]bool // devices, as they are read now
}

// mate is a member in a process of its own.
type mate struct {
	*shards.Member
	db     *sqldb.DB
	cancel context.CancelFunc
	ended  chan struct{}
}

// devices are one of each shard, with luck.
var devices = func() (out []string) {
	for i := range 4 * shards.Count {
		out = append(out, fmt.Sprint("gpu-", i))
	}
	return out
}()

func (c *crew) join(name string, db *sqldb.DB) *mate {
	ctx, cancel := context.WithCancel(c.t.Context())
	m := &mate{Member: shards.New(db, name, ttl, slog.New(slog.DiscardHandler), nil), db: db, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(m.ended)
		if err := m.Run(ctx, func() {}, reader{c, m}); err != nil {
			c.t.Error(err)
		}
	}()
	return m
}

// reader does what a runner does: it stops what its member does not hold, then reads what it holds.
type reader struct {
	*crew
	m *mate
}

func (reader) Settle(context.Context) error { return nil }

func (r reader) Apply() {
	c, m := r.crew, r.m
	now := map[string]bool{}
	for _, d := range devices {
		if m.Holds(d) {
			now[d] = true
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for other, reads := range c.reads {
		for d := range now {
			if other != m && reads[d] {
				c.t.Errorf("%s is read by two", d)
				return
			}
		}
	}
	c.reads[m] = now
}

// pass lets the time of the bubble go by.
func pass(d time.Duration) {
	time.Sleep(d) // of the bubble's clock
}

// of are the devices that one reads: a map that nobody changes.
func (c *crew) of(m *mate) map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reads[m]
}

// shares returns how many devices each reads, and how many nobody does.
func (c *crew) shares() (out map[*mate]int, nobody int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	out, nobody = map[*mate]int{}, len(devices)
	for m, reads := range c.reads {
		out[m] = len(reads)
		nobody -= len(reads)
	}
	return out, nobody
}

// own connects a process of its own to the store.
func (c *crew) own() *sqldb.DB {
	db, err := sqldb.Connect(c.t.Context(), c.dsn)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = db.Close() })
	return db
}

// kill ends a member in no order: it reads nothing more, and nobody is told.
func (c *crew) kill(m *mate) {
	_ = m.db.Close()
	m.cancel()
	<-m.ended
}

// terms are the tokens of members.
func (c *crew) terms() map[string]int64 {
	out := map[string]int64{}
	rows, err := c.db.QueryContext(c.t.Context(), `SELECT name, token FROM collect_members`)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name string
		var token int64
		if err := rows.Scan(&name, &token); err != nil {
			c.t.Fatal(err)
		}
		out[name] = token
	}
	if err := rows.Err(); err != nil {
		c.t.Fatal(err)
	}
	return out
}

func bubble(t *testing.T, f func(t *testing.T, c *crew)) { bubbleOn(t, sqltest.Migrated, f) }

func bubbleOn(t *testing.T, store func(testing.TB) string, f func(t *testing.T, c *crew)) {
	synctest.Test(t, func(t *testing.T) {
		c := &crew{t: t, dsn: store(t), reads: map[*mate]map[string]bool{}}
		c.db = c.own()
		f(t, c)
	})
}

func TestMembersShareAllDevicesAndMoveNoMoreThanTheyMust(t *testing.T) {
	bubble(t, func(t *testing.T, c *crew) {
		a := c.join("a", c.db)
		pass(time.Second)
		if n, nobody := c.shares(); n[a] != len(devices) || nobody != 0 {
			t.Fatalf("who is alone reads %d, nobody %d", n[a], nobody)
		}
		b, d := c.join("b", c.db), c.join("d", c.db)
		pass(2 * ttl / 5)
		n, nobody := c.shares()
		if nobody != 0 {
			t.Errorf("nobody reads %d", nobody)
		}
		for _, m := range []*mate{a, b, d} {
			if n[m] < len(devices)/4 || n[m] > len(devices)*5/12 {
				t.Errorf("one of three reads %d of %d", n[m], len(devices))
			}
		}
		before := c.of(a)
		d.cancel()
		<-d.ended
		pass(ttl/5 + time.Second)
		after := c.of(a)
		for dev := range before {
			if !after[dev] {
				t.Fatalf("%s was moved, and its reader lives", dev)
			}
		}
		if n, nobody := c.shares(); nobody != 0 || n[d] != 0 {
			t.Errorf("after one has left nobody reads %d, it still %d", nobody, n[d])
		}
	})
}

// A process that dies is replaced within 30 s, by the others or by its successor of the same name, which waits for nothing.
func TestTheDevicesOfOneThatDiesAreReadByOthers(t *testing.T) {
	bubble(t, func(t *testing.T, c *crew) {
		c.join("a", c.db)
		b := c.join("b", c.own())
		pass(2 * ttl / 5)
		c.kill(b)
		if _, nobody := c.shares(); nobody == 0 {
			t.Fatal("it read nothing")
		}
		next := c.join("b", c.own())
		pass(time.Second)
		if n, nobody := c.shares(); nobody != 0 || n[next] == 0 {
			t.Errorf("its successor reads %d, nobody %d", n[next], nobody)
		}
		c.kill(next)
		pass(30 * time.Second)
		if _, nobody := c.shares(); nobody != 0 {
			t.Errorf("after 30 s nobody reads %d", nobody)
		}
	})
}

// One whose store is away has stopped before others take its devices, and is fenced off; it takes part again when the store is back.
func TestOneThatCannotProveItsLeaseReadsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, c *crew) {
		c.join("a", c.db)
		own := c.own()
		b := c.join("b", own)
		pass(2 * ttl / 5)
		if err := c.db.InTx(t.Context(), func(tx *sql.Tx) error { return b.Fence(t.Context(), tx) }); err != nil {
			t.Fatal(err)
		}
		_ = own.Close()
		pass(30 * time.Second)
		if n, nobody := c.shares(); n[b] != 0 || nobody != 0 {
			t.Errorf("it reads %d, nobody %d", n[b], nobody)
		}
		err := c.db.InTx(t.Context(), func(tx *sql.Tx) error { return b.Fence(t.Context(), tx) })
		if !errors.Is(err, shards.ErrPutOut) {
			t.Errorf("what it still writes: %v", err)
		}
	})
}

// A store that is away for all makes nobody put the others out when it is back; who is alone reads on meanwhile.
func TestAStoreThatIsAwayForAllKillsNobody(t *testing.T) {
	for _, names := range [][]string{{"a"}, {"a", "b", "d"}} {
		bubbleOn(t, sqltest.File, func(t *testing.T, c *crew) { // where writers wait in this process, and the bubble's clock goes on
			for _, name := range names {
				c.join(name, c.db)
			}
			pass(2 * ttl / 5)
			before := c.terms()
			done := make(chan error, 1)
			go func() { done <- c.db.InTx(t.Context(), func(*sql.Tx) error { pass(4 * ttl); return nil }) }()
			pass(3 * ttl)
			if _, nobody := c.shares(); (nobody == 0) != (len(names) == 1) {
				t.Errorf("of %d, while the store is away, nobody reads %d", len(names), nobody)
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			pass(ttl)
			if _, nobody := c.shares(); nobody != 0 {
				t.Errorf("nobody reads %d", nobody)
			}
			if after := c.terms(); !maps.Equal(before, after) {
				t.Errorf("terms were %v, are %v", before, after)
			}
		})
	}
}

// Of two processes with one name, the later reads, and the earlier waits for its end.
func TestANameHasOneReader(t *testing.T) {
	bubble(t, func(t *testing.T, c *crew) {
		first := c.join("a", c.db)
		pass(time.Second)
		c.mu.Lock()
		delete(c.reads, first) // until its next write it cannot know: these are refused
		c.mu.Unlock()
		second := c.join("a", c.own())
		pass(4 * ttl)
		if n, nobody := c.shares(); n[first] != 0 || nobody != 0 {
			t.Errorf("the first reads %d, nobody %d", n[first], nobody)
		}
		c.kill(second)
		pass(2 * ttl)
		if n, nobody := c.shares(); n[first] != len(devices) || nobody != 0 {
			t.Errorf("after the end of the second the first reads %d, nobody %d", n[first], nobody)
		}
	})
}

// Whatever comes, goes, dies and comes back, in any order: nothing is read by two, and 30 s later all is read.
func TestNothingIsReadByTwoWhateverHappens(t *testing.T) {
	seed := rand.Uint64()
	draw := rand.New(rand.NewPCG(seed, 1))
	bubble(t, func(t *testing.T, c *crew) {
		alive := map[string]*mate{}
		for range 60 {
			name := fmt.Sprint("m", draw.IntN(4))
			switch m := alive[name]; {
			case m == nil:
				alive[name] = c.join(name, c.own())
			case draw.IntN(2) == 0:
				m.cancel()
				<-m.ended
				delete(alive, name)
			default:
				c.kill(m)
				delete(alive, name)
			}
			pass(time.Duration(draw.IntN(20)) * time.Second)
		}
		if len(alive) == 0 {
			c.join("last", c.db)
		}
		pass(30 * time.Second)
		if _, nobody := c.shares(); nobody != 0 {
			t.Errorf("nobody reads %d", nobody)
		}
	})
	if t.Failed() {
		t.Logf("seed %d", seed)
	}
}

package kafka

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

// errCount says that a broker states more records or headers than there can be: the
// client library makes room for as many as it is told of before it reads one.
var errCount = errors.New("a broker states counts that its answer cannot hold")

const (
	maxFrame   = 512 << 20 // bytes of one answer
	leastBytes = 7         // of a record: each of its fields, empty (Kafka protocol, "Record")
	maxPacked  = 1 << 20   // records of a packed batch; ours hold a thousand
)

// dialer connects to brokers through a guard, above TLS.
func dialer(dial func(ctx context.Context, network, address string) (net.Conn, error), config *tls.Config) func(
	ctx context.Context, network, address string,
) (net.Conn, error) {
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		if config != nil {
			own := config.Clone()
			if own.ServerName == "" {
				if own.ServerName, _, err = net.SplitHostPort(address); err != nil {
					own.ServerName = address
				}
			}
			secure := tls.Client(c, own)
			if err := secure.HandshakeContext(ctx); err != nil {
				_ = c.Close()
				return nil, err
			}
			c = secure
		}
		return &guard{Conn: c, fetches: map[int32]int16{}}, nil
	}
}

// guard is a connection to a broker. It hands an answer on when it has come whole and
// its counts fit it. Answers to a fetch alone are looked into: they are what others
// have written.
type guard struct {
	net.Conn
	part []byte // that is read at a time

	mu      sync.Mutex
	fetches map[int32]int16 // version, by correlation id
	head    []byte          // of the request that is being written
	rest    int             // bytes of it that are left

	in, out bytes.Buffer // what has come, and what may be read
	raw     bool         // it is no Kafka: the library says so best
	refused error        // why nothing more is read
}

// Write implements [net.Conn].
func (g *guard) Write(p []byte) (int, error) {
	g.note(p)
	return g.Conn.Write(p)
}

// note reads the beginning of each request: its size, key, version and id.
func (g *guard) note(p []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(p) > 0 {
		if g.rest > 0 {
			n := min(g.rest, len(p))
			g.rest, p = g.rest-n, p[n:]
			continue
		}
		want := 4
		if len(g.head) >= 4 {
			want = min(12, 4+int(binary.BigEndian.Uint32(g.head)))
		}
		n := min(want-len(g.head), len(p))
		g.head, p = append(g.head, p[:n]...), p[n:]
		if len(g.head) < 4 {
			continue
		}
		size := int(binary.BigEndian.Uint32(g.head))
		if len(g.head) < min(12, 4+size) {
			continue
		}
		if len(g.head) == 12 && binary.BigEndian.Uint16(g.head[4:]) == uint16(protocol.Fetch) {
			g.fetches[int32(binary.BigEndian.Uint32(g.head[8:]))] = int16(binary.BigEndian.Uint16(g.head[6:])) //nolint:gosec // as it is on the wire
		}
		g.rest, g.head = 4+size-len(g.head), g.head[:0]
	}
}

// Read implements [net.Conn].
func (g *guard) Read(p []byte) (int, error) {
	if g.part == nil {
		g.part = make([]byte, 32<<10)
	}
	for g.out.Len() == 0 {
		if g.refused != nil {
			return 0, g.refused
		}
		n, err := g.Conn.Read(g.part)
		g.in.Write(g.part[:n])
		if g.refused = g.pass(); g.refused != nil {
			continue
		}
		if err != nil && g.out.Len() == 0 {
			if g.in.Len() > 0 && !errors.Is(err, context.DeadlineExceeded) && !isTimeout(err) { // cut short
				g.raw = true
				_ = g.pass()
				break
			}
			return 0, err
		}
	}
	return g.out.Read(p)
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

// pass hands on what has come whole.
func (g *guard) pass() error {
	for g.in.Len() >= 4 {
		size := int(int32(binary.BigEndian.Uint32(g.in.Bytes()))) //nolint:gosec // as it is on the wire
		if g.raw || bytes.HasPrefix(g.in.Bytes(), []byte{0x15, 0x03}) {
			g.raw = true
			break
		}
		if size < 4 || size > maxFrame {
			return fmt.Errorf("%w: an answer of %d bytes", errCount, size)
		}
		if g.in.Len() < 4+size {
			return nil
		}
		frame := g.in.Next(4 + size)
		id := int32(binary.BigEndian.Uint32(frame[4:])) //nolint:gosec // as it is on the wire
		g.mu.Lock()
		version, fetch := g.fetches[id]
		delete(g.fetches, id)
		g.mu.Unlock()
		if fetch && !fits(frame[8:], version) {
			return errCount
		}
		g.out.Write(frame)
	}
	if g.raw {
		_, _ = g.in.WriteTo(&g.out)
	}
	return nil
}

// cursor reads an answer; bad is set at its end.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) take(n int) []byte {
	if c.bad || n < 0 || n > len(c.b) {
		c.bad = true
		return nil
	}
	x := c.b[:n]
	c.b = c.b[n:]
	return x
}

func (c *cursor) int16() int {
	if x := c.take(2); x != nil {
		return int(int16(binary.BigEndian.Uint16(x))) //nolint:gosec // as it is on the wire
	}
	return 0
}

func (c *cursor) int32() int {
	if x := c.take(4); x != nil {
		return int(int32(binary.BigEndian.Uint32(x))) //nolint:gosec // as it is on the wire
	}
	return 0
}

func (c *cursor) varint() int {
	v, n := binary.Varint(c.b)
	if n <= 0 {
		c.bad = true
		return 0
	}
	c.b = c.b[n:]
	return int(v)
}

// count reads how many of so many bytes at least follow.
func (c *cursor) count(least int) int {
	n := c.int32()
	if n > len(c.b)/least {
		c.bad = true
		return 0
	}
	return max(0, n)
}

// fits reports whether an answer to a fetch holds as much as it states (Kafka protocol,
// "Fetch Response", versions 0 to 11).
func fits(b []byte, version int16) bool {
	c := &cursor{b: b}
	if version >= 1 {
		c.take(4)
	}
	if version >= 7 {
		c.take(2 + 4)
	}
	for range c.count(2 + 4) {
		c.take(max(0, c.int16()))
		for range c.count(4 + 2 + 8 + 4) {
			c.take(4 + 2 + 8)
			if version >= 4 {
				c.take(8)
			}
			if version >= 5 {
				c.take(8)
			}
			if version >= 4 {
				c.take(16 * c.count(16))
			}
			if version >= 11 {
				c.take(4)
			}
			if records := c.take(max(0, c.int32())); c.bad || !sound(records) {
				return false
			}
		}
	}
	return !c.bad
}

// sound reports whether the batches of a partition hold as many records, and those as
// many headers, as they state. The last one may be cut off.
func sound(b []byte) bool {
	for len(b) >= 12+49 {
		size := int(int32(binary.BigEndian.Uint32(b[8:]))) //nolint:gosec // as it is on the wire
		if size < 0 {
			return false
		}
		if size > len(b)-12 || size < 49 {
			return b[16] != 2 || !hides(b[12:])
		}
		batch := b[12 : 12+size]
		b = b[12+size:]
		if batch[4] == 2 && hides(batch) {
			return false
		}
	}
	return true
}

// hides reports whether a batch of version 2, from its leader's epoch on, states more than it holds.
func hides(batch []byte) bool {
	packed := kafkago.Compression(batch[10]&7) != 0
	n := int(int32(binary.BigEndian.Uint32(batch[45:]))) //nolint:gosec // as it is on the wire
	c := &cursor{b: batch[49:]}
	if packed {
		return n < 0 || n > maxPacked
	}
	if n < 0 || n > len(c.b)/leastBytes {
		return true
	}
	for range n {
		c.varint()
		c.take(1)
		c.varint()
		c.varint()
		c.take(max(0, c.varint()))
		c.take(max(0, c.varint()))
		headers := c.varint()
		if c.bad { // cut off: the library ends there too
			return false
		}
		if headers < 0 || headers > len(c.b)/2 {
			return true
		}
		for range headers {
			c.take(max(0, c.varint()))
			c.take(max(0, c.varint()))
		}
	}
	return false
}

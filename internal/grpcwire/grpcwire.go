// Package grpcwire is a gRPC client for those who read thousands of servers in one process: one
// connection, one goroutine that reads it, and messages that are looked at where they lie. What
// grpc-go keeps for each connection — seven goroutines with their stacks, a balancer, buffers — is
// what it does without. It speaks gRPC over HTTP/2 (grpc/grpc, doc/PROTOCOL-HTTP2.md; RFC 9113;
// RFC 7541), uncompressed, a few calls at a time.
package grpcwire

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Bounds of RFC 9113, and ours.
const (
	preface      = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	maxFrame     = 16 << 10
	firstWindow  = 64<<10 - 1
	maxWindow    = 1<<31 - 1
	maxHeaders   = 16 << 10 // of one block, encoded and decoded
	maxCalls     = 16       // at a time
	smallRead    = 4 << 10
	messageFront = 5 // PROTOCOL-HTTP2.md, Length-Prefixed-Message
)

// Types and flags of frames (RFC 9113, section 6).
const (
	frameData         = 0x0
	frameHeaders      = 0x1
	frameReset        = 0x3
	frameSettings     = 0x4
	framePush         = 0x5
	framePing         = 0x6
	frameGoAway       = 0x7
	frameWindow       = 0x8
	frameContinuation = 0x9

	flagEndStream  = 0x1
	flagAck        = 0x1
	flagEndHeaders = 0x4
	flagPadded     = 0x8
	flagPriority   = 0x20

	settingPush          = 0x2
	settingInitialWindow = 0x4
	settingHeaderList    = 0x6
)

// Chunker is a connection that hands out what it has received without copying it. What it returned
// is good until the next call.
type Chunker interface {
	Chunk() ([]byte, error)
}

// Conn is a connection. One goroutine uses it; Close alone may be called by others.
type Conn struct {
	conn    net.Conn
	chunks  Chunker
	options Options

	buffer []byte // where conn is no Chunker
	in     []byte // received and not looked at
	frame  []byte // one that lay in pieces
	out    []byte

	headers *hpack.Decoder
	block   []byte // of headers, until it is whole
	told    fields

	calls []*call
	next  uint32 // id of the next call
	more  pending
	room  int64  // what may be sent, of all calls together
	first int64  // and of a new call
	got   uint32 // what came since the server was last told that it may send more
	away  bool   // the server takes no more calls
	err   error
}

// Options say how a connection is used.
type Options struct {
	Authority  string // name of the server in each call
	TLS        bool   // the connection is encrypted
	MaxMessage int    // bytes
	// Window is how many bytes a server may send of a call, and of all, before it is told that they were
	// read. 0 is as little as HTTP/2 has; few connections that are read fast have more.
	Window uint32
	// Idle, where it is not nil, is called each time before the connection is waited for. It may
	// begin calls. Its error ends the connection.
	Idle func() error
}

// call is a call that runs.
type call struct {
	id      uint32
	room    int64 // what may be sent of it
	begun   bool  // its headers came
	message []byte
	got     uint32
}

// pending is what is left of a frame of data behind the message that was returned.
type pending struct {
	call *call
	data []byte
	end  bool
}

// Event is what Next returns: a message of a call, or the end of one.
type Event struct {
	Call    uint32
	Message []byte         // good until the next call of Next
	Done    *status.Status // not nil at the end
}

// New greets a server over a connection.
func New(conn net.Conn, o Options) (*Conn, error) {
	c := &Conn{conn: conn, options: o, next: 1, first: firstWindow, room: firstWindow}
	c.chunks, _ = conn.(Chunker)
	c.headers = hpack.NewDecoder(4096, c.field)
	c.headers.SetMaxStringLength(maxHeaders)
	settings := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(nil, settingPush), 0)
	settings = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(settings, settingHeaderList), maxHeaders)
	c.options.Window = min(max(o.Window, firstWindow), maxWindow)
	more := c.options.Window - firstWindow
	if more > 0 {
		settings = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(settings, settingInitialWindow), c.options.Window)
	}
	c.out = appendFrame(append(c.out[:0], preface...), frameSettings, 0, 0, settings)
	if more > 0 { // a setting is of calls alone (RFC 9113, section 6.9.2)
		c.out = appendFrame(c.out, frameWindow, 0, 0, binary.BigEndian.AppendUint32(nil, more))
	}
	return c, c.flush()
}

// Close ends the connection, and everything that waits for it.
func (c *Conn) Close() error { return c.conn.Close() }

// Request is a call to make.
type Request struct {
	Method   string   // "/package.Service/Method"
	Metadata []string // names and values in turn; neither side keeps a value in a table
	Timeout  time.Duration
	Message  []byte
	// Open leaves the call open to more messages ([Conn.Send]), if only because a server that reads on
	// would else end it.
	Open bool
}

// Begin makes a call, and returns its number.
func (c *Conn) Begin(r Request) (uint32, error) {
	size := int64(len(r.Message) + messageFront)
	switch {
	case c.err != nil:
		return 0, c.err
	case c.away || c.next > maxWindow:
		return 0, status.Error(codes.Unavailable, "the server takes no more calls on this connection")
	case len(c.calls) >= maxCalls:
		return 0, status.Errorf(codes.ResourceExhausted, "%d calls run", len(c.calls))
	case size > c.room || size > c.first:
		return 0, status.Errorf(codes.ResourceExhausted, "the server does not take %d bytes now", size)
	}
	k := &call{id: c.next, room: c.first - size}
	c.next += 2
	c.room -= size
	c.calls = append(c.calls, k)

	scheme := "http"
	if c.options.TLS {
		scheme = "https"
	}
	var block strings.Builder
	enc := hpack.NewEncoder(&block)
	enc.SetMaxDynamicTableSize(0)
	add := func(name, value string, sensitive bool) {
		_ = enc.WriteField(hpack.HeaderField{Name: name, Value: value, Sensitive: sensitive}) // a Builder takes all
	}
	add(":method", "POST", false)
	add(":scheme", scheme, false)
	add(":path", r.Method, false)
	add(":authority", c.options.Authority, false)
	add("content-type", "application/grpc", false)
	add("te", "trailers", false)
	add("user-agent", "auspex", false)
	if r.Timeout > 0 {
		add("grpc-timeout", fmt.Sprintf("%dm", max(1, r.Timeout.Milliseconds())), false)
	}
	for i := 0; i+1 < len(r.Metadata); i += 2 {
		name, value := strings.ToLower(r.Metadata[i]), r.Metadata[i+1]
		if strings.HasSuffix(name, "-bin") {
			value = base64.RawStdEncoding.EncodeToString([]byte(value))
		}
		add(name, value, true)
	}
	c.out = c.out[:0]
	rest, kind := block.String(), byte(frameHeaders)
	for {
		part := rest[:min(len(rest), maxFrame)]
		rest = rest[len(part):]
		flags := byte(0)
		if rest == "" {
			flags = flagEndHeaders
		}
		c.out = appendFrame(c.out, kind, flags, k.id, []byte(part))
		if kind = frameContinuation; rest == "" {
			break
		}
	}
	body := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(r.Message))), r.Message...) //nolint:gosec // it is below a window
	for {
		part := body[:min(len(body), maxFrame)]
		body = body[len(part):]
		flags := byte(0)
		if len(body) == 0 && !r.Open {
			flags = flagEndStream
		}
		c.out = appendFrame(c.out, frameData, flags, k.id, part)
		if len(body) == 0 {
			break
		}
	}
	return k.id, c.flush()
}

// Send sends another message of a call that was begun as an open one, of less than a frame. One that has ended takes none.
func (c *Conn) Send(id uint32, message []byte) error {
	k, size := c.call(id), int64(len(message)+messageFront)
	switch {
	case c.err != nil:
		return c.err
	case k == nil:
		return status.Errorf(codes.FailedPrecondition, "call %d has ended", id)
	case size > k.room || size > c.room || size > maxFrame:
		return status.Errorf(codes.ResourceExhausted, "the server does not take %d bytes now", size)
	}
	k.room -= size
	c.room -= size
	body := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...) //nolint:gosec // it is below a frame
	c.out = appendFrame(c.out[:0], frameData, 0, id, body)
	return c.flush()
}

// Next returns the next event. An error ends the connection: it is a status, of
// [codes.Unavailable] where the connection broke and [codes.Internal] or
// [codes.ResourceExhausted] where the server does not keep to the protocol.
func (c *Conn) Next() (Event, error) {
	for c.err == nil {
		if k := c.more.call; k != nil {
			ev, ok, err := c.message(k)
			if err == nil && ok {
				return ev, nil
			}
			if err != nil {
				return Event{}, c.fail(err)
			}
		}
		ev, ok, err := c.take()
		if err != nil {
			return Event{}, c.fail(err)
		}
		if ok {
			return ev, nil
		}
	}
	return Event{}, c.err
}

// fail notes the end of the connection.
func (c *Conn) fail(err error) error {
	if c.err != nil { // of Idle, or of a write
		return c.err
	}
	if _, is := status.FromError(err); !is {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		err = status.Errorf(codes.Unavailable, "read: %v", err)
	}
	c.err = err
	return err
}

func broken(format string, args ...any) error {
	return status.Errorf(codes.Internal, "malformed HTTP/2: "+format, args...)
}

// message takes the next message of what came for a call.
func (c *Conn) message(k *call) (ev Event, ok bool, err error) {
	p := &c.more
	if len(k.message) > 0 { // a part of it came before
		if n := messageFront - len(k.message); n > 0 {
			n = min(n, len(p.data))
			k.message, p.data = append(k.message, p.data[:n]...), p.data[n:]
		}
		if len(k.message) < messageFront {
			ev, ok = c.rest(k)
			return ev, ok, nil
		}
		size, err := c.size(k.message)
		if err != nil {
			return ev, false, err
		}
		n := min(size+messageFront-len(k.message), len(p.data))
		k.message, p.data = append(k.message, p.data[:n]...), p.data[n:]
		if len(k.message) < size+messageFront {
			ev, ok = c.rest(k)
			return ev, ok, nil
		}
		ev = Event{Call: k.id, Message: k.message[messageFront:]}
		k.message = nil
		return ev, true, nil
	}
	if len(p.data) >= messageFront {
		size, err := c.size(p.data)
		if err != nil {
			return ev, false, err
		}
		if whole := size + messageFront; len(p.data) >= whole {
			ev = Event{Call: k.id, Message: p.data[messageFront:whole]}
			if p.data = p.data[whole:]; len(p.data) == 0 && !p.end {
				c.more = pending{}
			}
			return ev, true, nil
		}
	}
	k.message, p.data = append(k.message, p.data...), nil
	ev, ok = c.rest(k)
	return ev, ok, nil
}

// rest ends a frame of data in which there is no other message.
func (c *Conn) rest(k *call) (ev Event, ok bool) {
	end := c.more.end
	c.more = pending{}
	if !end {
		return ev, false
	}
	// gRPC ends with trailers.
	return c.ended(k, status.New(codes.Internal, "the server ended the call without a status")), true
}

// size reads what stands before a message.
func (c *Conn) size(front []byte) (int, error) {
	n := binary.BigEndian.Uint32(front[1:])
	switch {
	case front[0] != 0:
		return 0, status.Error(codes.Internal, "a message is compressed, which was not asked for")
	case uint64(n) > uint64(c.options.MaxMessage): //nolint:gosec // a bound
		return 0, status.Errorf(codes.ResourceExhausted, "a message has %d bytes, more than the %d that are taken", n, c.options.MaxMessage)
	}
	return int(n), nil
}

// ended forgets a call.
func (c *Conn) ended(k *call, s *status.Status) Event {
	for i, other := range c.calls {
		if other == k {
			c.calls = append(c.calls[:i], c.calls[i+1:]...)
			break
		}
	}
	if c.more.call == k {
		c.more = pending{}
	}
	return Event{Call: k.id, Done: s}
}

func (c *Conn) call(id uint32) *call {
	for _, k := range c.calls {
		if k.id == id {
			return k
		}
	}
	return nil
}

func appendFrame(b []byte, kind, flags byte, id uint32, payload []byte) []byte {
	n := len(payload)
	b = append(b, byte(n>>16), byte(n>>8), byte(n), kind, flags) //nolint:gosec // its bytes
	return append(binary.BigEndian.AppendUint32(b, id), payload...)
}

func (c *Conn) flush() error {
	_, err := c.conn.Write(c.out)
	if cap(c.out) > smallRead {
		c.out = nil
	}
	if err != nil {
		err = status.Errorf(codes.Unavailable, "write: %v", err)
		c.err = err
	}
	return err
}

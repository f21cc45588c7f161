package grpcwire

import (
	"encoding/binary"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// read returns the next n bytes; they are good until the next read.
func (c *Conn) read(n int) ([]byte, error) {
	if len(c.in) >= n {
		b := c.in[:n]
		c.in = c.in[n:]
		return b, nil
	}
	c.frame = append(c.frame[:0], c.in...)
	c.in = nil
	for len(c.frame) < n {
		chunk, err := c.chunk()
		if err != nil {
			return nil, err
		}
		k := min(n-len(c.frame), len(chunk))
		c.frame = append(c.frame, chunk[:k]...)
		c.in = chunk[k:]
	}
	return c.frame, nil
}

func (c *Conn) chunk() ([]byte, error) {
	if c.options.Idle != nil {
		if c.err == nil {
			c.err = c.options.Idle()
		}
		if c.err != nil {
			return nil, c.err
		}
	}
	if c.chunks != nil {
		return c.chunks.Chunk()
	}
	if c.buffer == nil {
		c.buffer = make([]byte, smallRead)
	}
	n, err := c.conn.Read(c.buffer)
	if n > 0 {
		err = nil // it comes again
	}
	return c.buffer[:n], err
}

// take reads a frame.
func (c *Conn) take() (ev Event, ok bool, err error) {
	if len(c.in) == 0 {
		c.frame = nil // what waits holds nothing
	}
	front, err := c.read(9)
	if err != nil {
		return ev, false, err
	}
	size := int(front[0])<<16 | int(front[1])<<8 | int(front[2])
	kind, flags, id := front[3], front[4], binary.BigEndian.Uint32(front[5:])&maxWindow
	if size > maxFrame {
		return ev, false, broken("a frame of %d bytes", size)
	}
	payload, err := c.read(size)
	if err != nil {
		return ev, false, err
	}
	if c.block != nil && kind != frameContinuation {
		return ev, false, broken("frame %d within headers", kind)
	}
	switch kind {
	case frameData:
		return c.data(id, flags, payload)
	case frameHeaders:
		if payload, err = unpadded(flags, payload); err != nil {
			return ev, false, err
		}
		if flags&flagPriority != 0 {
			if len(payload) < 5 {
				return ev, false, broken("short headers")
			}
			payload = payload[5:]
		}
		c.told = fields{id: id, end: flags&flagEndStream != 0}
		return c.head(flags, payload)
	case frameContinuation:
		if c.block == nil || id != c.told.id {
			return ev, false, broken("a continuation of nothing")
		}
		return c.head(flags, payload)
	case frameReset:
		if len(payload) != 4 {
			return ev, false, broken("a reset of %d bytes", len(payload))
		}
		if k := c.call(id); k != nil {
			return c.ended(k, resetStatus(binary.BigEndian.Uint32(payload))), true, nil
		}
	case frameSettings:
		return ev, false, c.settings(flags, payload)
	case framePush:
		return ev, false, broken("a push, which was not asked for")
	case framePing:
		if len(payload) != 8 {
			return ev, false, broken("a ping of %d bytes", len(payload))
		}
		if flags&flagAck == 0 {
			c.out = appendFrame(c.out[:0], framePing, flagAck, 0, payload)
			return ev, false, c.flush()
		}
	case frameGoAway:
		return c.goAway(payload)
	case frameWindow:
		return ev, false, c.opened(id, payload)
	}
	return ev, false, nil // of a type that we need not know
}

func unpadded(flags byte, payload []byte) ([]byte, error) {
	if flags&flagPadded == 0 {
		return payload, nil
	}
	if len(payload) == 0 || int(payload[0]) >= len(payload) {
		return nil, broken("more padding than frame")
	}
	return payload[1 : len(payload)-int(payload[0])], nil
}

// data takes data of a call, and lets the server send more.
func (c *Conn) data(id uint32, flags byte, payload []byte) (ev Event, ok bool, err error) {
	size := uint32(len(payload)) //nolint:gosec // at most maxFrame
	body, err := unpadded(flags, payload)
	if err != nil || id == 0 || id >= c.next {
		return ev, false, broken("data of call %d", id)
	}
	k := c.call(id)
	c.out = c.out[:0]
	c.received(&c.got, 0, size)
	if k != nil && flags&flagEndStream == 0 {
		c.received(&k.got, id, size)
	}
	if len(c.out) > 0 {
		if err := c.flush(); err != nil {
			return ev, false, err
		}
	}
	if k == nil { // it has ended for us
		return ev, false, nil
	}
	if !k.begun {
		return ev, false, broken("data of call %d before its headers", id)
	}
	c.more = pending{call: k, data: body, end: flags&flagEndStream != 0}
	return ev, false, nil
}

// received lets the server send again as much as came, when that is half of its window.
func (c *Conn) received(got *uint32, id, size uint32) {
	if *got += size; *got >= c.options.Window/2 {
		c.out = appendFrame(c.out, frameWindow, 0, id, binary.BigEndian.AppendUint32(nil, *got))
		*got = 0
	}
}

// opened takes room at the server.
func (c *Conn) opened(id uint32, payload []byte) error {
	if len(payload) != 4 {
		return broken("a window update of %d bytes", len(payload))
	}
	if id != 0 {
		if k := c.call(id); k != nil {
			k.room = min(k.room+int64(binary.BigEndian.Uint32(payload)&maxWindow), maxWindow)
		}
		return nil
	}
	if c.room += int64(binary.BigEndian.Uint32(payload) & maxWindow); c.room > maxWindow {
		return broken("a window beyond all bounds")
	}
	return nil
}

func (c *Conn) settings(flags byte, payload []byte) error {
	if flags&flagAck != 0 {
		return nil
	}
	if len(payload)%6 != 0 {
		return broken("settings of %d bytes", len(payload))
	}
	for ; len(payload) > 0; payload = payload[6:] {
		if binary.BigEndian.Uint16(payload) != settingInitialWindow {
			continue // we use no table, send small frames and are pushed nothing
		}
		v := int64(binary.BigEndian.Uint32(payload[2:]))
		if v > maxWindow {
			return broken("a window beyond all bounds")
		}
		for _, k := range c.calls { // RFC 9113, section 6.9.2
			k.room += v - c.first
		}
		c.first = v
	}
	c.out = appendFrame(c.out[:0], frameSettings, flagAck, 0, nil)
	return c.flush()
}

// goAway notes that the server takes no more calls. Those that it has not taken end one by one; it
// will close the connection when the others have.
func (c *Conn) goAway(payload []byte) (ev Event, ok bool, err error) {
	if len(payload) < 8 {
		return ev, false, broken("a farewell of %d bytes", len(payload))
	}
	c.away = true
	last := binary.BigEndian.Uint32(payload) & maxWindow
	for _, k := range c.calls {
		if k.id > last {
			return Event{}, false, status.Errorf(codes.Unavailable, "the server goes away: %.100q", payload[8:])
		}
	}
	return ev, false, nil
}

// fields are what a block of headers says.
type fields struct {
	id      uint32
	end     bool
	size    int
	http    string
	kind    string // of content
	status  string
	message string
}

func (c *Conn) field(f hpack.HeaderField) {
	c.told.size += len(f.Name) + len(f.Value) + 32
	switch f.Name {
	case ":status":
		c.told.http = f.Value
	case "content-type":
		c.told.kind = f.Value
	case "grpc-status":
		c.told.status = f.Value
	case "grpc-message":
		c.told.message = f.Value
	}
}

// head takes a part of a block of headers.
func (c *Conn) head(flags byte, part []byte) (ev Event, ok bool, err error) {
	// A copy: the decoder keeps what it has read.
	c.block = append(append(make([]byte, 0, len(c.block)+len(part)+1), c.block...), part...)
	if len(c.block) > maxHeaders {
		return ev, false, status.Error(codes.ResourceExhausted, "the server sends too many headers")
	}
	if flags&flagEndHeaders == 0 {
		return ev, false, nil
	}
	_, err = c.headers.Write(c.block)
	c.block = nil
	if err == nil {
		err = c.headers.Close()
	}
	t := c.told
	c.told = fields{}
	switch {
	case err != nil:
		return ev, false, broken("headers: %v", err)
	case t.size > 2*maxHeaders:
		return ev, false, status.Error(codes.ResourceExhausted, "the server sends too many headers")
	case t.id == 0 || t.id >= c.next:
		return ev, false, broken("headers of call %d", t.id)
	}
	k := c.call(t.id)
	switch {
	case k == nil:
		return ev, false, nil
	case t.end:
		return c.ended(k, t.outcome(k.begun)), true, nil
	case k.begun:
		return ev, false, broken("headers of call %d come again", t.id)
	case strings.HasPrefix(t.http, "1"): // more follows (RFC 9110, section 15.2)
		return ev, false, nil
	case t.http != "200" || !strings.HasPrefix(t.kind, "application/grpc"):
		return c.ended(k, t.outcome(false)), true, nil
	}
	k.begun = true
	return ev, false, nil
}

// outcome is what the trailers say of a call; begun is that it had headers of its own.
func (t *fields) outcome(begun bool) *status.Status {
	code, err := strconv.ParseUint(t.status, 10, 32)
	if err != nil {
		if !begun && t.http != "200" {
			return status.Newf(httpCode(t.http), "the server answers with HTTP status %.10q", t.http)
		}
		if !begun && !strings.HasPrefix(t.kind, "application/grpc") {
			return status.Newf(codes.Unknown, "the server answers with %.100q, which is not gRPC", t.kind)
		}
		return status.Newf(codes.Internal, "the server ended the call with status %.10q", t.status)
	}
	message, err := url.PathUnescape(t.message)
	if err != nil {
		message = t.message
	}
	return status.New(codes.Code(code), message)
}

// httpCode is what a status of HTTP means for a call (grpc/grpc, doc/http-grpc-status-mapping.md).
func httpCode(text string) codes.Code {
	switch n, _ := strconv.Atoi(text); n {
	case http.StatusBadRequest:
		return codes.Internal
	case http.StatusUnauthorized:
		return codes.Unauthenticated
	case http.StatusForbidden:
		return codes.PermissionDenied
	case http.StatusNotFound:
		return codes.Unimplemented
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return codes.Unavailable
	}
	return codes.Unknown
}

// resetStatus is what an error code of HTTP/2 means for a call (PROTOCOL-HTTP2.md, Errors).
func resetStatus(code uint32) *status.Status {
	const refused, cancel, enhance, insecure = 0x7, 0x8, 0xb, 0xc
	c := codes.Internal
	switch code {
	case refused:
		c = codes.Unavailable
	case cancel:
		c = codes.Canceled
	case enhance:
		c = codes.ResourceExhausted
	case insecure:
		c = codes.PermissionDenied
	}
	return status.Newf(c, "the server ended the call with HTTP/2 error %d", code)
}

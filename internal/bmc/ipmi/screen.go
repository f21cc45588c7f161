package ipmi

import (
	"cmp"
	"context"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/bougou/go-ipmi/pkg/client"
	"github.com/bougou/go-ipmi/pkg/crypto"
	"github.com/bougou/go-ipmi/pkg/types"
)

// screen dials the library's connection and keeps datagrams from it that it must not
// see. The library verifies RAKP messages 2 and 4, but no packet of the session that
// they make: without the screen, what is garbled on its way, or made up by somebody
// else, is believed. It also decrypts in a goroutine of its own, where a payload that
// is too short would end the process.
type screen struct {
	c        *client.Client
	password string
	passed   *passed
	line     **screened // where what was dialled is kept
}

// Dial implements the library's proxy.
func (s screen) Dial(network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: dialTimeout}).Dial(network, addr)
	if err != nil {
		return nil, err
	}
	x := &screened{Conn: conn, screen: s}
	*s.line = x
	return x, nil
}

// dialTimeout bounds the look-up of a name.
const dialTimeout = 3 * time.Second

// Payload types (table 13-16).
const (
	payloadIPMI         = 0x00
	payloadOpenRequest  = 0x10
	payloadOpenResponse = 0x11
	payloadRAKP1        = 0x12
	payloadRAKP2        = 0x13
	payloadRAKP3        = 0x14
	payloadRAKP4        = 0x15
)

// answers is the payload type that answers another.
var answers = map[byte]byte{
	payloadIPMI: payloadIPMI, payloadOpenRequest: payloadOpenResponse, payloadRAKP1: payloadRAKP2, payloadRAKP3: payloadRAKP4,
}

// algorithms are of authentication, integrity and confidentiality (sections 13.28 to 13.28.5).
type algorithms [3]byte

// screened learns the keys of a session from the messages that make it, and passes
// over each datagram that is no answer of that session.
type screened struct {
	net.Conn
	screen

	sent   byte // payload type of the last request
	agreed algorithms
	id     uint32 // of the session, chosen by us
	random []byte // of the console, RAKP message 1
	role   byte
	user   string
	key    []byte // K1 (section 13.32); nil before RAKP message 2
	lean
}

// Write implements [net.Conn]; it reads along what the library proposes.
func (s *screened) Write(b []byte) (int, error) {
	if typ, payload, err := packet(b); err == nil {
		s.sent = typ & 0x3f
		switch {
		case s.sent == payloadOpenRequest && len(payload) >= 32: // section 13.17
			s.id, s.agreed, s.key = binary.LittleEndian.Uint32(payload[4:]), algorithms{payload[12], payload[20], payload[28]}, nil
		case s.sent == payloadRAKP1 && len(payload) >= 28: // section 13.20
			s.random, s.role, s.user = append([]byte(nil), payload[8:24]...), payload[24], string(payload[28:])
		case s.sent == payloadIPMI && typ&authenticated != 0:
			if _, err := s.Conn.Write(s.renumber(b)); err != nil {
				return 0, err
			}
			return len(b), nil
		}
	}
	return s.Conn.Write(b)
}

// Read implements [net.Conn]. It passes over what is no answer.
func (s *screened) Read(b []byte) (int, error) {
	for {
		n, err := s.Conn.Read(b)
		if err != nil {
			return n, err
		}
		if err = s.examine(b[:n]); err == nil && s.bearable(b[:n]) {
			return n, nil
		}
		s.passed.note(err)
	}
}

var (
	errNoPacket  = errors.New("it is no packet of RMCP+")
	errUnasked   = errors.New("nobody asked for it")
	errDowngrade = errors.New("it has other algorithms than were asked for")
	errIntegrity = errors.New("its integrity code is wrong")
)

// packet takes an RMCP+ packet apart: its payload type, with the bits that say
// whether it is encrypted and authenticated, and the payload (table 13-8).
func packet(b []byte) (typ byte, payload []byte, err error) {
	const version, class, format = 0x06, 0x07, 0x06
	if len(b) < header || b[0] != version || b[3] != class || b[4] != format {
		return 0, nil, errNoPacket
	}
	n := int(binary.LittleEndian.Uint16(b[14:]))
	if len(b) < header+n {
		return 0, nil, errNoPacket
	}
	return b[5], b[header : header+n], nil
}

// The headers of RMCP and of the session, and the bits of the payload type.
const (
	header        = 16
	encrypted     = 0x80
	authenticated = 0x40
)

// examine says why a datagram is no answer, or nil.
func (s *screened) examine(b []byte) error {
	typ, payload, err := packet(b)
	if err != nil {
		return err
	}
	if typ&0x3f != answers[s.sent] {
		return errUnasked
	}
	switch typ & 0x3f {
	case payloadOpenResponse:
		// What protects the session is agreed upon before anything is protected: an
		// answer that agrees to less than was asked for is none (section 13.18).
		if len(payload) >= 36 && payload[1] == 0 && (algorithms{payload[16], payload[24], payload[32]}) != s.agreed {
			return errDowngrade
		}
		if len(payload) >= 12 {
			s.remote = binary.LittleEndian.Uint32(payload[8:])
		}
	case payloadRAKP2:
		if len(payload) >= 40 && payload[1] == 0 { // section 13.21
			var k2 []byte
			_, s.key, k2, err = crypto.DeriveSessionKeys(
				types.AuthAlg(s.agreed[0]), s.random, payload[8:24], s.role, s.user, crypto.PadPassword20([]byte(s.password)),
			)
			if err == nil {
				s.prepare(s.agreed, s.key, k2)
			}
			return err
		}
	case payloadIPMI:
		return s.authentic(b, typ, len(payload))
	}
	return nil
}

// authentic verifies a packet of the session: its id, that it is protected as was
// agreed, and the code over all from the session header to the trailer's next header
// (section 13.28.4, table 13-8).
func (s *screened) authentic(b []byte, typ byte, payload int) error {
	if s.key == nil || binary.LittleEndian.Uint32(b[6:]) != s.id {
		return errUnasked
	}
	if s.agreed[2] != byte(types.CryptAlg_None) && typ&encrypted == 0 {
		return errDowngrade
	}
	alg := types.IntegrityAlg(s.agreed[1])
	if alg == types.IntegrityAlg_None {
		return nil
	}
	if typ&authenticated == 0 {
		return errDowngrade
	}
	const start, trailer, nextHeader = 4, 2, 0x07
	size := 16 // of HMAC-MD5-128, MD5-128 and HMAC-SHA256-128
	if alg == types.IntegrityAlg_HMAC_SHA1_96 {
		size = 12
	}
	end := len(b) - size
	if end < header+payload+trailer || b[end-1] != nextHeader || header+payload+int(b[end-2])+trailer != end {
		return errIntegrity
	}
	var want []byte
	if s.mac != nil {
		want = s.sum(b[start:end])
	} else {
		var err error
		if want, err = crypto.SessionIntegrityAuthCode(alg, b[start:end], s.key, s.password); err != nil {
			return err
		}
	}
	if subtle.ConstantTimeCompare(want, b[end:]) != 1 {
		return errIntegrity
	}
	return nil
}

// bearable tries the library's own parser.
func (s *screened) bearable(b []byte) (ok bool) {
	defer func() { ok = recover() == nil }()
	if b[5]&encrypted != 0 {
		_ = s.c.ParseRmcpResponse(context.Background(), b, types.Command{}, ignored{})
	}
	return true
}

// ignored is an answer that nobody reads.
type ignored struct{}

func (ignored) Unpack([]byte) error { return nil }
func (ignored) Format() string      { return "" }

// passed counts what was passed over since the last request, and says why.
type passed struct {
	mu    sync.Mutex
	n     int
	first error
}

func (p *passed) note(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n++
	p.first = cmp.Or(p.first, err, errNoPacket)
}

func (p *passed) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n, p.first = 0, nil
}

// explain adds what was passed over to the error of a request without an answer.
func (p *passed) explain(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n == 0 {
		return err
	}
	return fmt.Errorf("%w; %d datagrams were passed over, the first because %w", err, p.n, p.first)
}

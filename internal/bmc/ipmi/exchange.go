package ipmi

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha1" //nolint:gosec // what cipher suite 3 asks for (table 22-20)
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"sync"
	"time"

	"github.com/bougou/go-ipmi/pkg/client"
	"github.com/bougou/go-ipmi/pkg/types"
)

// address is whom a command is for: a slave address or software id, and a logical unit (section 5.1).
type address struct{ owner, lun byte }

var controller = address{owner: types.BMC_SA}

// context makes a command of the library go there.
func (a address) context(ctx context.Context) context.Context {
	if a == controller {
		return ctx
	}
	return client.WithCommandContext(ctx, (&client.CommandContext{}).WithResponderAddr(a.owner).WithResponderLUN(a.lun))
}

// exchange sends one command in the session that is there. Commands that are sent all the time go this way: the library
// takes a goroutine, some buffers and each key anew for a command, and its answers have to be taken apart twice
// ([screened.bearable]). What is on the wire is the same.
func (c *Conn) exchange(ctx context.Context, to address, req types.Request, res types.Response) error {
	if c.line == nil || c.line.block == nil || c.line.mac == nil { // algorithms that hardly anybody has
		return c.c.Exchange(to.context(ctx), req, res)
	}
	data, code, err := c.line.ask(ctx, c.opt, to, req.Command(), req.Pack())
	if err != nil {
		return err
	}
	if code != 0 {
		return types.NewResponseError(types.CompletionCode(code), fmt.Sprintf("completion code %#02x: %s", code, types.StrCC(req.Command(), code)))
	}
	if err := res.Unpack(data); err != nil {
		return types.NewResponseError(0, fmt.Sprintf("malformed answer: %s", err)) // it came from the session: that goes on
	}
	return nil
}

// lean keeps what a session needs to send commands without the library.
type lean struct {
	mac    hash.Hash // of the session's integrity key; nil for an algorithm that is not known here
	size   int       // of its code
	block  cipher.Block
	remote uint32 // the session's id, chosen by the controller
	seq    uint32 // of the last packet of the session that was sent
	theirs uint32 // the number that the library gave to its last packet
	rq     byte   // requester's sequence number of the last command
	room   *room  // for the command that is on its way; nil between two
	code   [sha256.Size]byte
}

// room is what a command needs while it is on its way: of ten thousand sessions, a few are asked at a time.
type room struct {
	packet []byte
	answer [maxAnswer]byte
}

var rooms = sync.Pool{New: func() any { return new(room) }}

// leave gives the room back: nothing refers to the last answer any more.
func (l *lean) leave() {
	if l.room != nil {
		rooms.Put(l.room)
		l.room = nil
	}
}

// maxAnswer is more than what a message of a LAN channel can take (section 13.6, 22.24: 255 bytes and what is around them).
const maxAnswer = 1024

// prepare makes what the algorithms of a session need, of its keys.
func (l *lean) prepare(agreed algorithms, k1, k2 []byte) {
	l.mac, l.block = nil, nil
	switch types.IntegrityAlg(agreed[1]) {
	case types.IntegrityAlg_HMAC_SHA1_96:
		l.mac, l.size = hmac.New(sha1.New, k1), 12
	case types.IntegrityAlg_HMAC_SHA256_128:
		l.mac, l.size = hmac.New(sha256.New, k1), 16
	default:
		return
	}
	if types.CryptAlg(agreed[2]) == types.CryptAlg_AES_CBC_128 && len(k2) >= aes.BlockSize {
		l.block, _ = aes.NewCipher(k2[:aes.BlockSize]) // never fails with this size
	}
}

// sum returns the integrity code of data, until the next call.
func (l *lean) sum(data []byte) []byte {
	l.mac.Reset()
	l.mac.Write(data)
	return l.mac.Sum(l.code[:0])[:l.size]
}

// renumber returns a packet of the library with the number that is the session's next: the commands that went without
// the library have taken some (section 6.12.13 has a controller pass over numbers that it has had). One that is sent
// again keeps its number.
func (s *screened) renumber(b []byte) []byte {
	theirs := binary.LittleEndian.Uint32(b[10:])
	if theirs != s.theirs {
		s.theirs = theirs
		s.seq++
	}
	if s.seq == theirs || s.mac == nil || len(b) < header+s.size {
		return b
	}
	out := append([]byte(nil), b...)
	binary.LittleEndian.PutUint32(out[10:], s.seq)
	end := len(out) - s.size
	copy(out[end:], s.sum(out[4:end]))
	return out
}

// ask sends a command and returns what answers it, until the next call or [lean.leave]: the data and the completion code.
func (s *screened) ask(ctx context.Context, opt Options, to address, cmd types.Command, data []byte) (answer []byte, code byte, err error) {
	const sequences = 63 // six bits, of which 0 is not used
	if s.room == nil {
		s.room = rooms.Get().(*room)
	}
	s.rq = s.rq%sequences + 1
	s.sent = payloadIPMI
	s.seal(to, cmd, data)
	stop := context.AfterFunc(ctx, func() { _ = s.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	for attempt := 0; ; attempt++ {
		answer, code, err = s.attempt(ctx, opt.Timeout, cmd)
		switch {
		case err == nil:
			return answer, code, nil
		case ctx.Err() != nil:
			return nil, 0, fmt.Errorf("given up: %w", ctx.Err())
		case !isTimeout(err) || attempt >= opt.Retries:
			return nil, 0, err
		}
	}
}

// attempt sends the packet once and reads until something answers it.
func (s *screened) attempt(ctx context.Context, timeout time.Duration, cmd types.Command) (answer []byte, code byte, err error) {
	if _, err := s.Conn.Write(s.room.packet); err != nil {
		return nil, 0, err
	}
	deadline := time.Now().Add(timeout)
	if end, ok := ctx.Deadline(); ok && end.Before(deadline) {
		deadline = end
	}
	if err := s.SetReadDeadline(deadline); err != nil {
		return nil, 0, err
	}
	if err := ctx.Err(); err != nil { // whose end may have been told before the deadline was set
		return nil, 0, err
	}
	for {
		n, err := s.Conn.Read(s.room.answer[:])
		if err != nil {
			return nil, 0, err
		}
		if err = s.examine(s.room.answer[:n]); err == nil {
			if answer, code, err = s.unseal(s.room.answer[:n], cmd); err == nil {
				return answer, code, nil
			}
		}
		s.passed.note(err)
	}
}

// The parts of a LAN message around its data: addresses, function, sequence number, command and two checksums, and of
// an answer the completion code (section 13.8).
const (
	requestParts = 7
	answerParts  = 8
)

// seal writes the packet of a command (tables 13-8 and 13-20).
func (s *screened) seal(to address, cmd types.Command, data []byte) {
	const integrityBoundary, padding = 4, 0xff
	plain := requestParts + len(data) + 1 // and the length of the padding
	pad := (aes.BlockSize - plain%aes.BlockSize) % aes.BlockSize
	payload := aes.BlockSize + plain + pad
	s.seq++
	b := append(s.room.packet[:0], 0x06, 0, 0xff, 0x07, 0x06, encrypted|authenticated|payloadIPMI)
	b = binary.LittleEndian.AppendUint32(b, s.remote)
	b = binary.LittleEndian.AppendUint32(b, s.seq)
	b = binary.LittleEndian.AppendUint16(b, uint16(payload)) //nolint:gosec // some dozen bytes
	iv := len(b)
	b = append(b, make([]byte, aes.BlockSize)...)
	_, _ = rand.Read(b[iv:]) // never fails
	message := len(b)
	b = append(b, to.owner, byte(cmd.NetFn)<<2|to.lun)
	b = append(b, checksum(b[message:]))
	rest := len(b)
	b = append(b, types.RemoteConsole_SWID, s.rq<<2, cmd.ID)
	b = append(b, data...)
	b = append(b, checksum(b[rest:]))
	for i := range pad {
		b = append(b, byte(i+1))
	}
	b = append(b, byte(pad))
	cipher.NewCBCEncrypter(s.block, b[iv:message]).CryptBlocks(b[message:], b[message:])
	// The code covers all from the session header on, filled up to whole words.
	fill := (integrityBoundary - (len(b)-4+2)%integrityBoundary) % integrityBoundary
	for range fill {
		b = append(b, padding)
	}
	b = append(b, byte(fill), 0x07)
	s.room.packet = append(b, s.sum(b[4:])...)
}

func checksum(b []byte) (sum byte) {
	for _, x := range b {
		sum -= x
	}
	return sum
}

var errUnreadable = errors.New("it cannot be decrypted")

// unseal takes apart, in place, an answer that has been examined.
func (s *screened) unseal(b []byte, cmd types.Command) (data []byte, code byte, err error) {
	_, payload, err := packet(b)
	if err != nil {
		return nil, 0, err
	}
	if len(payload) < 2*aes.BlockSize || len(payload)%aes.BlockSize != 0 {
		return nil, 0, errUnreadable
	}
	plain := payload[aes.BlockSize:]
	cipher.NewCBCDecrypter(s.block, payload[:aes.BlockSize]).CryptBlocks(plain, plain)
	end := len(plain) - 1 - int(plain[len(plain)-1])
	if end < answerParts {
		return nil, 0, errUnreadable
	}
	m := plain[:end]
	if m[4]>>2 != s.rq || m[5] != cmd.ID || m[1]>>2 != byte(cmd.NetFn)|1 {
		return nil, 0, errUnasked
	}
	return m[answerParts-1 : len(m)-1], m[6], nil
}

package ipmi

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"strings"
	"time"
)

// RMCP and session header values (tables 13-1 to 13-8).
const (
	rmcpVersion = 0x06
	classASF    = 0x06
	classIPMI   = 0x07
	authNone    = 0x00
	authRMCPP   = 0x06

	payloadIPMI         = 0x00
	payloadOpenRequest  = 0x10
	payloadOpenResponse = 0x11
	payloadRAKP1        = 0x12
	payloadRAKP2        = 0x13
	payloadRAKP3        = 0x14
	payloadRAKP4        = 0x15
	flagEncrypted       = 0x80
	flagAuthenticated   = 0x40

	v20Header = 16 // RMCP header and RMCP+ session header
)

// RMCP+ status codes (table 13-15).
const (
	statusOK               = 0x00
	statusNoResources      = 0x01
	statusInvalidSession   = 0x02
	statusInvalidRole      = 0x09
	statusUnauthorizedName = 0x0d
	statusBadIntegrity     = 0x0f
	statusNoSuite          = 0x11
)

// Privilege levels (table 22-18).
const (
	privilegeUser     = 2
	privilegeOperator = 3
	privilegeAdmin    = 4
)

// suite is a cipher suite (table 22-20): authentication, integrity and
// confidentiality algorithm.
type suite struct {
	id                     byte
	auth, integrity, crypt byte
	hash                   func() hash.Hash
	code                   int // length of an integrity code
}

var suites = []suite{
	{3, 1, 1, 1, sha1.New, 12},
	{17, 3, 4, 1, sha256.New, 16},
}

// session is one that opens or is open.
type session struct {
	id, remote   uint32 // ours, the client's
	suite        suite
	open         bool
	used         time.Time
	user         string
	password     []byte
	role         byte // as in RAKP 1, with the lookup bit
	remoteRandom [16]byte
	random       [16]byte
	integrity    []byte // K1
	block        cipher.Block
	privilege    byte
	seq          uint32 // of the last answer
	lastSeq      uint32 // of the last request, and its answer for a repetition
	lastAnswer   []byte
}

func (x *session) maxPrivilege() byte {
	if p := x.role & 0x0f; p != 0 {
		return p
	}
	return privilegeAdmin
}

func (x *session) hmac(key []byte, parts ...[]byte) []byte {
	m := hmac.New(x.suite.hash, key)
	for _, p := range parts {
		m.Write(p)
	}
	return m.Sum(nil)
}

func le32(v uint32) []byte { return binary.LittleEndian.AppendUint32(nil, v) }

// pong answers an ASF presence ping (section 13.2.4).
func pong(in []byte) []byte {
	if len(in) < 12 || in[8] != 0x80 {
		return nil
	}
	out := []byte{rmcpVersion, 0, 0xff, classASF, 0, 0, 0x11, 0xbe, 0x40, in[9], 0, 16}
	// IANA number of ASF, no OEM data, IPMI and ASF 1.0 supported.
	return append(out, 0, 0, 0x11, 0xbe, 0, 0, 0, 0, 0x81, 0, 0, 0, 0, 0, 0, 0)
}

// handleV15 answers the few commands that need no session in IPMI 1.5's format,
// in which clients ask what the controller can do.
func (s *Server) handleV15(in []byte, garble bool) []byte {
	if len(in) < 14 || len(in) < 14+int(in[13]) {
		return nil
	}
	msg := s.message(in[14:14+int(in[13])], nil, garble)
	if msg == nil {
		return nil
	}
	out := make([]byte, 14, 14+len(msg))
	copy(out, []byte{rmcpVersion, 0, 0xff, classIPMI, authNone})
	out[13] = byte(len(msg))
	return append(out, msg...)
}

func (s *Server) handleV20(in []byte, garble bool) []byte {
	if len(in) < v20Header {
		return nil
	}
	kind := in[5]
	id := binary.LittleEndian.Uint32(in[6:])
	n := int(binary.LittleEndian.Uint16(in[14:]))
	if len(in) < v20Header+n {
		return nil
	}
	payload := in[v20Header : v20Header+n]
	s.expire(time.Now())
	if id != 0 {
		return s.inSession(in, kind, id, payload, garble)
	}
	switch kind {
	case payloadIPMI:
		if msg := s.message(payload, nil, garble); msg != nil {
			return outside(payloadIPMI, msg)
		}
	case payloadOpenRequest:
		return s.openSession(payload)
	case payloadRAKP1:
		return s.rakp1(payload)
	case payloadRAKP3:
		return s.rakp3(payload)
	}
	return nil
}

// outside wraps a payload that belongs to no session.
func outside(kind byte, payload []byte) []byte {
	out := make([]byte, v20Header, v20Header+len(payload))
	copy(out, []byte{rmcpVersion, 0, 0xff, classIPMI, authRMCPP, kind})
	binary.LittleEndian.PutUint16(out[14:], uint16(len(payload)))
	return append(out, payload...)
}

// expire ends sessions that are silent, and those that never opened sooner.
func (s *Server) expire(now time.Time) {
	for id, x := range s.sessions {
		if idle := now.Sub(x.used); idle > SessionTimeout || !x.open && idle > SessionTimeout/6 {
			delete(s.sessions, id)
		}
	}
}

// algorithm reads one of the three proposals of an open session request: type,
// length, algorithm (table 13-9). A length of 0 leaves the choice to us.
func algorithm(p []byte, want byte) (alg byte, free, ok bool) {
	if p[0] != want {
		return 0, false, false
	}
	return p[4] & 0x3f, p[3] == 0, true
}

// openSession answers table 13-9 with table 13-10.
func (s *Server) openSession(in []byte) []byte {
	if len(in) < 32 {
		return nil
	}
	remote := binary.LittleEndian.Uint32(in[4:])
	refuse := func(status byte) []byte {
		return outside(payloadOpenResponse, append([]byte{in[0], status, 0, 0}, in[4:8]...))
	}
	a, freeA, ok1 := algorithm(in[8:], 0)
	i, freeI, ok2 := algorithm(in[16:], 1)
	c, freeC, ok3 := algorithm(in[24:], 2)
	if !ok1 || !ok2 || !ok3 {
		return refuse(statusNoSuite)
	}
	var chosen *suite
	for k := range suites {
		x := &suites[k]
		if (freeA || x.auth == a) && (freeI || x.integrity == i) && (freeC || x.crypt == c) {
			chosen = x
			break
		}
	}
	if chosen == nil {
		return refuse(statusNoSuite)
	}
	if len(s.sessions) >= MaxSessions {
		return refuse(statusNoResources)
	}
	s.lastSession++
	for s.lastSession == 0 || s.sessions[s.lastSession] != nil {
		s.lastSession++
	}
	x := &session{id: s.lastSession, remote: remote, suite: *chosen, used: time.Now()}
	s.sessions[x.id] = x
	out := []byte{in[0], statusOK, privilegeAdmin, 0}
	out = append(append(out, le32(remote)...), le32(x.id)...)
	for kind, alg := range []byte{chosen.auth, chosen.integrity, chosen.crypt} {
		out = append(out, byte(kind), 0, 0, 8, alg, 0, 0, 0)
	}
	return outside(payloadOpenResponse, out)
}

// userBytes is the role, the length and the name that RAKP codes cover.
func (x *session) userBytes() []byte {
	return append([]byte{x.role, byte(len(x.user))}, x.user...)
}

// rakp1 answers RAKP message 1 with 2 (tables 13-11 and 13-12).
func (s *Server) rakp1(in []byte) []byte {
	if len(in) < 28 || len(in) < 28+int(in[27]) || in[27] > 16 {
		return nil
	}
	x := s.sessions[binary.LittleEndian.Uint32(in[4:])]
	if x == nil || x.open {
		return outside(payloadRAKP2, []byte{in[0], statusInvalidSession, 0, 0, 0, 0, 0, 0})
	}
	refuse := func(status byte) []byte {
		delete(s.sessions, x.id)
		return outside(payloadRAKP2, append([]byte{in[0], status, 0, 0}, le32(x.remote)...))
	}
	x.used = time.Now()
	copy(x.remoteRandom[:], in[8:24])
	x.role = in[24]
	x.user = string(in[28 : 28+int(in[27])])
	if p := x.role & 0x0f; p > privilegeAdmin {
		return refuse(statusInvalidRole)
	}
	password, ok := s.b.Password(x.user)
	if !ok || len(password) > 20 {
		return refuse(statusUnauthorizedName)
	}
	// The key is the password, filled with zeros to 20 bytes.
	x.password = make([]byte, 20)
	copy(x.password, password)
	_, _ = rand.Read(x.random[:]) // never fails
	guid := s.guid()
	out := append([]byte{in[0], statusOK, 0, 0}, le32(x.remote)...)
	out = append(append(out, x.random[:]...), guid...)
	out = append(out, x.hmac(x.password, le32(x.remote), le32(x.id), x.remoteRandom[:], x.random[:], guid, x.userBytes())...)
	return outside(payloadRAKP2, out)
}

// rakp3 answers RAKP message 3 with 4 (tables 13-13 and 13-14) and opens the
// session.
func (s *Server) rakp3(in []byte) []byte {
	if len(in) < 8 {
		return nil
	}
	x := s.sessions[binary.LittleEndian.Uint32(in[4:])]
	if x == nil || x.open || x.password == nil {
		return outside(payloadRAKP4, []byte{in[0], statusInvalidSession, 0, 0, 0, 0, 0, 0})
	}
	if in[1] != statusOK {
		delete(s.sessions, x.id)
		return nil
	}
	want := x.hmac(x.password, x.random[:], le32(x.remote), x.userBytes())
	if !hmac.Equal(want, in[8:]) {
		delete(s.sessions, x.id)
		return outside(payloadRAKP4, append([]byte{in[0], statusBadIntegrity, 0, 0}, le32(x.remote)...))
	}
	sik := x.hmac(x.password, x.remoteRandom[:], x.random[:], x.userBytes())
	constant := func(v byte) []byte { return []byte(strings.Repeat(string([]byte{v}), 20)) }
	x.integrity = x.hmac(sik, constant(1))
	block, err := aes.NewCipher(x.hmac(sik, constant(2))[:16])
	if err != nil {
		delete(s.sessions, x.id)
		return nil
	}
	x.block = block
	x.open, x.used, x.privilege = true, time.Now(), privilegeUser
	out := append([]byte{in[0], statusOK, 0, 0}, le32(x.remote)...)
	out = append(out, x.hmac(sik, x.remoteRandom[:], le32(x.id), s.guid())[:x.suite.code]...)
	return outside(payloadRAKP4, out)
}

// guid is the controller's GUID in the order of IPMI: least significant byte first.
func (s *Server) guid() []byte {
	out := make([]byte, 16)
	raw, err := hex.DecodeString(strings.ReplaceAll(s.b.Info().UUID, "-", ""))
	if err != nil || len(raw) != 16 {
		return out
	}
	for i := range out {
		out[i] = raw[15-i]
	}
	return out
}

// inSession answers an encrypted and authenticated message of an open session.
func (s *Server) inSession(in []byte, kind byte, id uint32, payload []byte, garble bool) []byte {
	x := s.sessions[id]
	if x == nil || !x.open || kind != payloadIPMI|flagEncrypted|flagAuthenticated {
		return nil
	}
	// The integrity code covers all between the RMCP header and itself.
	trailer := len(in) - x.suite.code
	if trailer < v20Header+len(payload)+2 || !hmac.Equal(x.hmac(x.integrity, in[4:trailer])[:x.suite.code], in[trailer:]) {
		return nil
	}
	seq := binary.LittleEndian.Uint32(in[10:])
	switch {
	case seq == x.lastSeq && x.lastAnswer != nil:
		// A repeated request must not act twice.
		return x.lastAnswer
	case seq == 0, int32(seq-x.lastSeq) <= 0 && x.lastSeq != 0:
		return nil
	}
	msg, ok := x.decrypt(payload)
	if !ok {
		return nil
	}
	x.used, x.lastSeq, x.lastAnswer = time.Now(), seq, nil
	reply := s.message(msg, x, garble)
	if reply == nil {
		return nil
	}
	x.lastAnswer = x.seal(reply)
	return x.lastAnswer
}

// decrypt undoes AES-CBC-128 (section 13.29).
func (x *session) decrypt(p []byte) ([]byte, bool) {
	if len(p) < 2*aes.BlockSize || len(p)%aes.BlockSize != 0 {
		return nil, false
	}
	out := make([]byte, len(p)-aes.BlockSize)
	cipher.NewCBCDecrypter(x.block, p[:aes.BlockSize]).CryptBlocks(out, p[aes.BlockSize:])
	pad := int(out[len(out)-1])
	if pad >= aes.BlockSize || pad+1 > len(out) {
		return nil, false
	}
	return out[:len(out)-1-pad], true
}

// seal encrypts a message and wraps it with its integrity code.
func (x *session) seal(msg []byte) []byte {
	x.seq++
	plain := append([]byte(nil), msg...)
	pad := (aes.BlockSize - (len(plain)+1)%aes.BlockSize) % aes.BlockSize
	for i := range pad {
		plain = append(plain, byte(i+1))
	}
	plain = append(plain, byte(pad))
	n := aes.BlockSize + len(plain)
	out := make([]byte, v20Header+n, v20Header+n+6+x.suite.code)
	copy(out, []byte{rmcpVersion, 0, 0xff, classIPMI, authRMCPP, payloadIPMI | flagEncrypted | flagAuthenticated})
	binary.LittleEndian.PutUint32(out[6:], x.remote)
	binary.LittleEndian.PutUint32(out[10:], x.seq)
	binary.LittleEndian.PutUint16(out[14:], uint16(n))
	iv := out[v20Header : v20Header+aes.BlockSize]
	_, _ = rand.Read(iv) // never fails
	cipher.NewCBCEncrypter(x.block, iv).CryptBlocks(out[v20Header+aes.BlockSize:], plain)
	// The covered part is filled to a multiple of 4 (section 13.28.4).
	fill := (4 - (len(out)-4+2)%4) % 4
	for range fill {
		out = append(out, 0xff)
	}
	out = append(out, byte(fill), 0x07)
	return append(out, x.hmac(x.integrity, out[4:])[:x.suite.code]...)
}

package ipmi_test

import (
	"encoding/binary"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"auspex/internal/bmc/ipmi"
	"auspex/internal/bmc/ipmi/ipmitest"
)

// inSession reports whether a datagram is an IPMI message of a session.
func inSession(d []byte) bool {
	return len(d) > 16 && d[5]&0x3f == 0 && binary.LittleEndian.Uint32(d[6:]) != 0
}

func connect(t *testing.T, addr string, suites ...int) *ipmi.Conn {
	t.Helper()
	c, err := ipmi.New(ipmi.Options{
		Addr: addr, User: "admin", Password: "secret", Timeout: 300 * time.Millisecond, Retries: 4, CipherSuites: suites,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(t.Context()) })
	return c
}

// TestNoFlippedBitOfAnAnswerIsBelieved flips each bit of an answer in turn, sends that
// before the true one, and reads the power: of ipmi_sim, and of a controller that has
// the newer suites.
func TestNoFlippedBitOfAnAnswerIsBelieved(t *testing.T) {
	for name, start := range map[string]func(t *testing.T) (addr string, suites []int){
		"ipmi_sim": func(t *testing.T) (string, []int) { return ipmitest.StartSim(t, ipmitest.Obedient).Addr, []int{3} },
		"suites with integrity": func(t *testing.T) (string, []int) {
			return ipmitest.Start(t, ipmitest.State{Power: true}).Addr, []int{17, 3}
		},
	} {
		t.Run(name, func(t *testing.T) {
			addr, suites := start(t)
			for _, suite := range suites {
				var flip, spoilt atomic.Int64
				flip.Store(-1)
				relayed := ipmitest.Relay(t, addr, func(d []byte) [][]byte {
					at := flip.Load()
					if !inSession(d) || at < 0 || int(at) >= 8*len(d) {
						return [][]byte{d}
					}
					bad := append([]byte(nil), d...)
					bad[at/8] ^= 1 << (at % 8)
					spoilt.Add(1)
					return [][]byte{bad, d}
				})
				c := connect(t, relayed, suite)
				if err := c.Connect(t.Context()); err != nil {
					t.Fatal(err)
				}
				bits := 0
				for at := int64(0); ; at++ {
					flip.Store(at)
					before := spoilt.Load()
					on, err := c.Power(t.Context())
					if err != nil || !on {
						t.Errorf("suite %d, bit %d of byte %d: on %v, %v", suite, at%8, at/8, on, err)
					}
					if spoilt.Load() == before {
						break
					}
					bits++
				}
				if bits < 8*32 {
					t.Errorf("suite %d: %d bits were flipped", suite, bits)
				}
			}
		})
	}
}

// TestWhatIsNoAnswerOfTheSessionIsPassedOver has somebody else answer first.
func TestWhatIsNoAnswerOfTheSessionIsPassedOver(t *testing.T) {
	off := []byte{0, 0, 0, 0} // the power is off
	plain := func(d []byte, typ byte, session bool, payload []byte) []byte {
		bad := append([]byte(nil), d[:16]...)
		bad[5] = typ
		if !session {
			clear(bad[6:14])
		}
		binary.LittleEndian.PutUint16(bad[14:], uint16(len(payload)))
		return append(bad, payload...)
	}
	message := func(seq, cmd byte) []byte { // as the requester expects it, checksums and all (section 13.8)
		m := []byte{0x81, 0x01 << 2, 0, 0x20, seq << 2, cmd, 0, 0, 0, 0, 0}
		return m
	}
	for name, forge := range map[string]func(d []byte) []byte{
		"a message outside of any session": func(d []byte) []byte { return plain(d, 0x00, false, message(2, 1)) },
		"a message without its code":       func(d []byte) []byte { return plain(d, 0x00, true, message(2, 1)) },
		"a message of RAKP":                func(d []byte) []byte { return plain(d, 0x15, false, off) },
		"of IPMI 1.5": func([]byte) []byte {
			return append([]byte{6, 0, 0xff, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 11}, message(2, 1)...)
		},
		"a presence pong":                 func([]byte) []byte { return append([]byte{6, 0, 0xff, 6, 0, 0, 0x11, 0xbe, 0x40, 0, 0, 4}, off...) },
		"nothing":                         func([]byte) []byte { return nil },
		"its own code, of another packet": func(d []byte) []byte { bad := append([]byte(nil), d...); bad[10] ^= 0xff; return bad },
	} {
		t.Run(name, func(t *testing.T) {
			b := ipmitest.Start(t, ipmitest.State{Power: true})
			c := connect(t, ipmitest.Relay(t, b.Addr, func(d []byte) [][]byte {
				if !inSession(d) {
					return [][]byte{d}
				}
				return [][]byte{forge(d), d}
			}), 3)
			for range 3 {
				if on, err := c.Power(t.Context()); err != nil || !on {
					t.Errorf("on %v, %v", on, err)
				}
			}
		})
	}
}

// TestAControllerCannotAgreeToLessThanWasAskedFor answers the opening of a session
// with weaker algorithms: none protects nothing.
func TestAControllerCannotAgreeToLessThanWasAskedFor(t *testing.T) {
	for name, at := range map[string]int{"authentication": 16, "integrity": 24, "confidentiality": 32} {
		t.Run(name, func(t *testing.T) {
			b := ipmitest.Start(t, ipmitest.State{Power: true})
			c := connect(t, ipmitest.Relay(t, b.Addr, func(d []byte) [][]byte {
				if d[5]&0x3f == 0x11 {
					d[16+at] = 0
				}
				return [][]byte{d}
			}), 17)
			err := c.Connect(t.Context())
			if !errors.Is(err, ipmi.ErrNoAnswer) || !strings.Contains(err.Error(), "other algorithms") {
				t.Errorf("%v", err)
			}
		})
	}
}

// A wrong password is told as such by a controller that shares no code with us: nobody
// repairs a server for it.
func TestAWrongPasswordOfIPMISimIsARefusal(t *testing.T) {
	s := ipmitest.StartSim(t, ipmitest.Obedient)
	for user, password := range map[string]string{"admin": "wrong", "nobody": "secret"} {
		c, err := ipmi.New(ipmi.Options{
			Addr: s.Addr, User: user, Password: password, Timeout: 300 * time.Millisecond, Retries: 1, CipherSuites: []int{3},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Connect(t.Context()); !errors.Is(err, ipmi.ErrAuth) || errors.Is(err, ipmi.ErrNoAnswer) {
			t.Errorf("%s: %v", user, err)
		}
	}
}

// A controller that is asked again before it answers has other numbers for the second time: the codes do not fit, though the password does.
func TestMessagesThatCrossAreNoRefusal(t *testing.T) {
	b := ipmitest.Start(t, ipmitest.State{Power: true})
	for _, suite := range []int{3, 17} {
		c := connect(t, ipmitest.Relay(t, b.Addr, func(d []byte) [][]byte {
			if d[5]&0x3f == 0x15 { // RAKP message 4
				d[17] = 0x0f // invalid integrity check value
			}
			return [][]byte{d}
		}), suite)
		if err := c.Connect(t.Context()); err == nil || errors.Is(err, ipmi.ErrAuth) {
			t.Errorf("suite %d: %v", suite, err)
		}
	}
}

// A person must read why a controller that answers does not.
func TestAnErrorSaysWhatWasPassedOver(t *testing.T) {
	b := ipmitest.Start(t, ipmitest.State{Power: true})
	c := connect(t, ipmitest.Relay(t, b.Addr, func(d []byte) [][]byte {
		if inSession(d) {
			d[len(d)-1] ^= 1
		}
		return [][]byte{d}
	}), 3)
	if err := c.Connect(t.Context()); !errors.Is(err, ipmi.ErrNoAnswer) || !strings.Contains(err.Error(), "integrity code is wrong") {
		t.Errorf("%v", err)
	}
}

// A wrong password is no missing cipher suite: the next suite is not tried with it, since controllers lock an account after a
// few attempts. A suite that a controller does not have is passed over.
func TestAWrongPasswordIsTriedWithOneSuite(t *testing.T) {
	for name, tc := range map[string]struct {
		password string
		lacks    byte // a suite's authentication algorithm that the controller says it does not have
		opened   int64
		refused  bool
	}{
		"wrong password":                         {"wrong", 0, 1, true},
		"missing suite":                          {"secret", 3, 2, false},
		"wrong password behind a missing suite":  {"wrong", 3, 2, true},
		"right password, with the suite at once": {"secret", 0, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := ipmitest.Start(t, ipmitest.State{Power: true})
			var opened atomic.Int64
			c, err := ipmi.New(ipmi.Options{
				Addr: ipmitest.Relay(t, b.Addr, func(d []byte) [][]byte {
					if d[5]&0x3f == 0x11 { // open session response (table 13-10)
						opened.Add(1)
						if tc.lacks != 0 && d[16+16] == tc.lacks {
							d[17] = 0x11 // no cipher suite match with proposed security algorithms (table 13-15)
						}
					}
					return [][]byte{d}
				}),
				User: "admin", Password: tc.password, Timeout: 10 * time.Second,
			})
			if err != nil {
				t.Fatal(err)
			}
			err = c.Connect(t.Context())
			if errors.Is(err, ipmi.ErrAuth) != tc.refused || !tc.refused && err != nil || opened.Load() != tc.opened {
				t.Errorf("%d sessions begun, want %d: %v", opened.Load(), tc.opened, err)
			}
			if err := c.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

package ipmi_test

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"auspex/internal/bmc/ipmi"
	"auspex/internal/bmc/ipmi/ipmitest"
)

// Commands that go past the library and those that go through it share the numbers of one session, for longer than the
// numbers of requests last: no answer is missed, and no session is opened anew.
func TestCommandsOfBothWaysShareASession(t *testing.T) {
	for name, start := range map[string]func(t *testing.T) (addr string, suites []int){
		"ipmi_sim": func(t *testing.T) (string, []int) { return ipmitest.StartSim(t, ipmitest.Obedient).Addr, []int{3} },
		"suites with integrity": func(t *testing.T) (string, []int) {
			return ipmitest.Start(t, ipmitest.State{Power: true}).Addr, []int{17, 3}
		},
	} {
		t.Run(name, func(t *testing.T) {
			addr, suites := start(t)
			for _, suite := range suites {
				var opened, answered atomic.Int64
				c, err := ipmi.New(ipmi.Options{
					Addr: ipmitest.Relay(t, addr, func(d []byte) [][]byte {
						if inSession(d) {
							answered.Add(1)
						} else if d[5]&0x3f == 0x11 {
							opened.Add(1)
						}
						return [][]byte{d}
					}),
					User: "admin", Password: "secret", Timeout: 10 * time.Second, CipherSuites: []int{suite},
				})
				if err != nil {
					t.Fatal(err)
				}
				const rounds = 100
				for i := range rounds {
					if on, err := c.Power(t.Context()); err != nil || !on {
						t.Fatalf("suite %d, power %d: on %v, %v", suite, i, on, err)
					}
					for range i % 3 {
						if _, err := c.SELTime(t.Context()); err != nil {
							t.Fatalf("suite %d, time %d: %v", suite, i, err)
						}
					}
				}
				if err := c.Close(t.Context()); err != nil {
					t.Errorf("suite %d, close: %v", suite, err)
				}
				if n := answered.Load(); opened.Load() != 1 || n != 2*rounds-1+2 { // the privilege level and the end of the session, too
					t.Errorf("suite %d: %d sessions, %d answers", suite, opened.Load(), n)
				}
			}
		})
	}
}

// What is sent again since its answer was lost is the same datagram: a controller must not take it for another command.
func TestACommandWithoutAnAnswerIsSentAgainAsItWas(t *testing.T) {
	b := ipmitest.Start(t, ipmitest.State{Power: true})
	var mu sync.Mutex
	sent := map[uint32][]string{} // by their number in the session
	addr := ipmitest.RelayBoth(t, b.Addr, func(d []byte) bool {
		if !inSession(d) {
			return true
		}
		mu.Lock()
		defer mu.Unlock()
		seq := binary.LittleEndian.Uint32(d[10:])
		sent[seq] = append(sent[seq], string(d))
		return seq != 2 || len(sent[seq]) > 2 // the first is the privilege level's
	})
	c := connect(t, addr, 17)
	if on, err := c.Power(t.Context()); err != nil || !on {
		t.Fatalf("on %v, %v", on, err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(sent) != 2 || len(sent[2]) < 3 {
		t.Errorf("%x", sent)
	}
	for seq, ds := range sent {
		if len(slices.Compact(ds)) != 1 {
			t.Errorf("number %d: %x", seq, ds)
		}
	}
}

// Whose context ends need not wait for a controller that does not answer.
func TestACommandEndsWithItsContext(t *testing.T) {
	b := ipmitest.Start(t, ipmitest.State{Power: true})
	ctx, cancel := context.WithCancel(t.Context())
	var mute atomic.Bool
	c, err := ipmi.New(ipmi.Options{
		Addr: ipmitest.RelayBoth(t, b.Addr, func([]byte) bool {
			if mute.Load() {
				cancel()
			}
			return !mute.Load()
		}),
		User: "admin", Password: "secret", Timeout: 5 * time.Minute, CipherSuites: []int{3},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Power(ctx); err != nil {
		t.Fatal(err)
	}
	mute.Store(true)
	began := time.Now()
	if _, err := c.Power(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it took %s", took)
	}
}

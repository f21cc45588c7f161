package ipmi

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bougou/go-ipmi/pkg/types"
	"github.com/google/go-cmp/cmp"

	"auspex/collectors/collectortest"
	"auspex/internal/bmc/ipmi/ipmitest"
	"auspex/schemas"
)

// world is a controller whose log is written, cleared and lost, and a reader that is killed and started again.
type world struct {
	*log
	rng   *rand.Rand
	clock time.Time // the controller's
	now   time.Time // ours
	id    uint16    // of the last record
	n     uint16    // records in all: each has its number in it

	mu      sync.Mutex // between the test and whoever is at the log while it is read
	meddles bool
}

// alone ends what somebody does to the log meanwhile, whatever of their requests is still under way.
func (w *world) alone() {
	w.bmc.During(nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.meddles = false
}

func (w *world) record() {
	w.id++
	w.n++
	w.clock = w.clock.Add(time.Duration(w.rng.IntN(3)) * 300 * time.Millisecond) // several have the same stamp
	w.bmc.SetClock(w.clock)
	w.bmc.Add(ipmitest.Record(w.id, uint32(w.clock.Unix()), 0x08, 0x30, 0x6f, 0x03, byte(w.n), byte(w.n>>8)))
}

func (w *world) records(most int) {
	for range w.rng.IntN(most) {
		w.record()
	}
}

func (w *world) clear() {
	w.bmc.Clear(uint32(w.clock.Unix()))
	if w.rng.IntN(2) == 0 {
		w.id = 0 // ids begin again, or go on
	}
}

// deleteOne erases one record by itself, often the last.
func (w *world) deleteOne() {
	all := w.bmc.Log()
	if len(all) == 0 {
		return
	}
	at := len(all) - 1
	if w.rng.IntN(2) == 0 {
		at = w.rng.IntN(len(all))
	}
	w.bmc.Delete(binary.LittleEndian.Uint16(all[at]), uint32(w.clock.Unix()))
}

func (w *world) restart() {
	_ = w.r.conn.Close(w.t.Context())
	w.log.restart(w.r.cfg)
	w.r.s.Now = func() time.Time { return w.now }
}

// Whatever happens to a log and to whoever reads it, each record that was there when its end was reached is one event,
// and never two.
func TestEachRecordIsOneEvent(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			w := &world{log: newLog(t, nil), rng: rand.New(rand.NewPCG(seed, 12)), clock: collectortest.Now, now: collectortest.Now}
			circular := seed%2 != 0
			w.bmc.Bound(60+w.rng.IntN(300), circular)
			w.restart()
			told := map[string]string{} // record to the id of its event
			look := func(err error) {
				for _, ev := range w.rec.Events() {
					if ev.Attr("raw") == "" || ev.Type == schemas.EventBMCClockSkew {
						continue
					}
					if had, ok := told[ev.Attr("raw")]; ok && had != ev.ID {
						t.Fatalf("record %s is the events %s and %s", ev.Attr("raw"), had, ev.ID)
					}
					told[ev.Attr("raw")] = ev.ID
				}
				if err != nil {
					return
				}
				for _, r := range w.bmc.Log() {
					if _, ok := told[hex.EncodeToString(r)]; !ok {
						t.Fatalf("record %x was not told", r)
					}
				}
			}
			for range 25 {
				w.mu.Lock()
				switch op := w.rng.IntN(9); op {
				case 0:
					w.clear()
				case 1, 2, 4:
					// One that loses its oldest and others beside, while the reader is dead, is more than can be told apart.
					if circular {
						w.records(80)
					} else if op == 4 {
						w.bmc.SetErased(uint32(w.rng.IntN(1 << 30)))
					} else {
						w.deleteOne()
					}
				case 3:
					w.clock = w.clock.Add(time.Duration(w.rng.IntN(7200)-3600) * time.Second) // it is set
				case 5:
					w.restart()
				default:
					w.records(80)
				}
				if w.rng.IntN(3) == 0 { // somebody at the log while it is read
					in := 1 + w.rng.IntN(60)
					w.meddles = true
					w.bmc.During(func(_ *ipmitest.BMC, cmd types.Command) {
						w.mu.Lock()
						defer w.mu.Unlock()
						if cmd != types.CommandGetSELEntry || !w.meddles {
							return
						}
						if in--; in == 0 {
							switch w.rng.IntN(3) {
							case 0:
								if !circular {
									w.deleteOne()
								}
							case 1:
								w.clear()
							}
							w.records(80)
						}
					})
				}
				dies, mute := w.rng.IntN(3) == 0, w.rng.IntN(2) == 0
				w.mu.Unlock()
				if dies { // the process is killed by its first event
					m := &collectortest.Mortal{Cursors: w.s.Cursors, Emitter: w.rec, Mute: mute}
					w.r.s.Cursors = m
					err := w.r.poll(t.Context(), m)
					w.alone()
					if look(err); m.Dead() {
						w.restart()
					}
					w.r.s.Cursors = w.s.Cursors
				}
				_ = w.r.poll(t.Context(), w.rec)
				w.alone()
				w.now = w.now.Add(relook)
				err := w.r.poll(t.Context(), w.rec)
				w.now = w.now.Add(relook)
				look(err)
			}
			if len(told) < 100 {
				t.Errorf("%d records only", len(told))
			}
		})
	}
}

// A log that is full and goes in circles says the same of itself before and after a record of the same second.
func TestARecordOfTheSameSecondInAFullLogIsRead(t *testing.T) {
	l := newLog(t, nil)
	l.bmc.Bound(2, true)
	now := l.s.Now()
	l.r.s.Now = func() time.Time { return now }
	at := uint32(now.Unix())
	for id := range uint16(3) {
		l.bmc.Add(ipmitest.Record(id+1, at, 0x08, 0x30, 0x6f, 0x03))
	}
	l.poll()
	l.bmc.Add(ipmitest.Record(4, at, 0x08, 0x30, 0x6f, 0x03))
	now = now.Add(5 * time.Second)
	if d := cmp.Diff([]string{"4"}, l.poll()); d != "" {
		t.Error(d)
	}
	l.bmc.Add(ipmitest.Record(5, at, 0x08, 0x30, 0x6f, 0x03)) // its clock stands still
	now = now.Add(relook)
	if d := cmp.Diff([]string{"5"}, l.poll()); d != "" {
		t.Error(d)
	}
}

// A controller without a clock of its own that has lost its log writes the same as after its last start.
func TestALogThatWasLostBeginsWithTheSameRecord(t *testing.T) {
	l := newLog(t, nil)
	now := l.s.Now()
	l.r.s.Now = func() time.Time { return now }
	boot := func(id uint16, at uint32) { l.bmc.Add(ipmitest.Record(id, at, 0x12, 1, 0x6f, 0x01)) }
	boot(1, 12)
	boot(2, 40)
	first := l.poll()
	l.bmc.Clear(0)
	boot(1, 12)
	now = now.Add(relook)
	if d := cmp.Diff([]string{"1"}, l.poll()); d != "" || len(first) != 2 {
		t.Error(first, d)
	}
	ids := map[string]bool{}
	for _, ev := range l.rec.Events() {
		ids[ev.ID] = true
	}
	if len(ids) != len(l.rec.Events()) {
		t.Error("two records have one id")
	}
}

func TestALogIsClearedOnlyWhereThatIsWanted(t *testing.T) {
	for _, at := range []float64{0, 0.5} {
		l := newLog(t, func(c *Config) { c.ClearSELAt = at })
		now := l.s.Now()
		l.r.s.Now = func() time.Time { return now }
		l.bmc.Bound(8, false)
		for id := range uint16(8) {
			l.add(id + 1)
		}
		if n := len(l.poll()); n != 8 {
			t.Fatalf("%d records of 8", n)
		}
		if left := len(l.bmc.Log()); left != 8 && at == 0 || left != 0 && at > 0 {
			t.Errorf("clear_sel_at %v leaves %d records", at, left)
		}
		if n := l.bmc.Commands(types.CommandClearSEL); at == 0 && n > 0 {
			t.Errorf("it was cleared %d times", n)
		}
	}
}

// What comes between the last look and the clearing keeps the log as it is.
func TestARecordThatComesKeepsALogFromBeingCleared(t *testing.T) {
	l := newLog(t, func(c *Config) { c.ClearSELAt = 0.1 })
	now := l.s.Now()
	l.r.s.Now = func() time.Time { return now }
	l.bmc.Bound(10, false)
	l.add(1)
	l.add(2)
	l.bmc.During(func(b *ipmitest.BMC, cmd types.Command) {
		if cmd == types.CommandClearSEL {
			b.Add(ipmitest.Record(3, uint32(collectortest.Now.Unix())+60, 0x08, 0x30, 0x6f, 0x03))
		}
	})
	if d := cmp.Diff([]string{"1", "2"}, l.poll()); d != "" || len(l.bmc.Log()) != 3 {
		t.Fatal(d, len(l.bmc.Log()))
	}
	l.bmc.During(nil)
	now = now.Add(relook)
	if d := cmp.Diff([]string{"3"}, l.poll()); d != "" || len(l.bmc.Log()) != 0 {
		t.Error(d, len(l.bmc.Log()))
	}
}

func TestAFullLogIsToldOnce(t *testing.T) {
	l := newLog(t, nil)
	now := l.s.Now()
	l.r.s.Now = func() time.Time { return now }
	l.bmc.Bound(3, false)
	states := func() (out []string) {
		for _, ev := range l.rec.Events() {
			if ev.Code == codeLogFull {
				out = append(out, ev.State)
			}
		}
		return out
	}
	for id := range uint16(4) {
		l.add(id + 1)
	}
	for range 3 {
		l.poll()
		now = now.Add(relook)
	}
	l.restart(l.r.cfg)
	l.poll()
	if got := strings.Join(states(), " "); got != "raised" {
		t.Errorf("full: %q", got)
	}
	l.bmc.Clear(uint32(now.Unix()))
	l.restart(l.r.cfg)
	l.poll()
	if got := strings.Join(states(), " "); got != "raised cleared" {
		t.Errorf("cleared: %q", got)
	}
}

func TestAWrongClockIsAnEvent(t *testing.T) {
	l := newLog(t, nil)
	now := l.s.Now()
	l.r.s.Now = func() time.Time { return now }
	var got []string
	step := func(skew time.Duration) {
		now = now.Add(recheck)
		l.bmc.SetClock(now.Add(skew))
		before := len(l.rec.Events())
		l.poll()
		for _, ev := range l.rec.Events()[before:] {
			got = append(got, fmt.Sprintf("%s %s %s", ev.Code, ev.State, ev.Attr(schemas.AttrClockSkew)))
		}
	}
	step(time.Second)
	step(time.Hour)
	step(time.Hour)
	l.restart(l.r.cfg) // what was told is not told again
	l.r.s.Now = func() time.Time { return now }
	step(time.Hour)
	step(30 * time.Second) // neither right nor wrong
	step(-time.Second)
	step(-2 * time.Minute)
	step(0)
	step(time.Unix(500, 0).Sub(now.Add(recheck)))
	want := []string{"ahead raised 3600", " cleared -1", "behind raised -120", " cleared 0"}
	if d := cmp.Diff(want, got[:min(len(got), 4)]); d != "" || len(got) != 5 || !strings.HasPrefix(got[4], "unset raised -") {
		t.Error(d, got)
	}
	ids := map[string]bool{}
	for _, ev := range l.rec.Events() {
		ids[ev.ID] = true
	}
	if len(ids) != len(got) || slices.Contains(got, "") {
		t.Errorf("%d events have %d ids", len(got), len(ids))
	}
}

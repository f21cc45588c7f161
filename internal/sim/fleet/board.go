package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"auspex/internal/sim/device"
	"auspex/internal/sim/ledger"
)

// How long what a board controller does with its board takes.
const (
	bmcRestart  = 3 * time.Second        // until it answers again
	installStep = 500 * time.Millisecond // a tenth of an update
)

// running is for how long controllers have been running when a fleet is made.
const running = 90 * 24 * time.Hour

// LockedAttribute is the BIOS attribute that no setting changes, whatever the controller says.
const LockedAttribute = "LockedBySetup"

// board is what a controller keeps of its board.
type board struct {
	bios, pending map[string]any
	applied       time.Time
	firmware      []device.Firmware
	tasks         []device.Task
	lastTask      int
	started       time.Time // by the model's clock
	away          time.Time // until when it starts
	dark          bool      // not even standby power is left
}

func newBoard(now time.Time) board {
	b := board{bios: map[string]any{}, pending: map[string]any{}, started: now.Add(-running), firmware: []device.Firmware{
		{ID: "FW_BMC_0", Name: "BMC firmware", Version: bmcFirmware, Updateable: true},
		{ID: "FW_BIOS_0", Name: "BIOS firmware", Version: "1.6.7", Updateable: true},
		{ID: "FW_PSU_0", Name: "Power supply firmware", Version: "2.0.1"},
	}}
	for _, a := range device.Attributes {
		b.bios[a.Name] = a.Default
	}
	return b
}

// bmcFirmware is the version that a controller is delivered with.
const bmcFirmware = "1.14.2"

// started puts what is pending in force: the system starts.
func (f *Fleet) applyBIOS(s *server) {
	if len(s.board.pending) == 0 {
		return
	}
	for name, v := range s.board.pending {
		if name != LockedAttribute {
			s.board.bios[name] = v
		}
	}
	s.board.pending, s.board.applied = map[string]any{}, f.now.Add(s.skew)
}

// BIOS implements device.Board.
func (b *bmc) BIOS() (attrs, pending map[string]any, applied time.Time) {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	return maps.Clone(b.s.board.bios), maps.Clone(b.s.board.pending), b.s.board.applied
}

// SetBIOS implements device.Board.
func (b *bmc) SetBIOS(attrs map[string]any) {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	if b.s.bmc.IgnoreSets {
		return
	}
	for name, v := range attrs {
		if b.s.board.bios[name] == v {
			delete(b.s.board.pending, name)
		} else {
			b.s.board.pending[name] = v
		}
	}
}

// Firmware implements device.Board.
func (b *bmc) Firmware() []device.Firmware {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	return slices.Clone(b.s.board.firmware)
}

// Started implements device.Board.
func (b *bmc) Started() time.Time {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	return b.s.board.started.Add(b.s.skew)
}

// Tasks implements device.Board.
func (b *bmc) Tasks() []device.Task {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	return slices.Clone(b.s.board.tasks)
}

// Restart implements device.Board.
func (b *bmc) Restart(via, requestID string) {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	b.note(ledger.KindReset, via, "Manager.Reset", requestID)
	if !b.s.bmc.IgnoreSets {
		b.f.restartBMC(b.s)
	}
}

func (b *bmc) note(kind, via, code, requestID string) {
	b.f.now = b.f.clock()
	e := ledger.Entry{Time: b.f.now, Kind: kind, Device: b.s.name, Part: "bmc", Protocol: via, Type: "accepted", Code: code, RequestID: requestID}
	if b.s.bmc.IgnoreSets {
		e.Type = "ignored"
	}
	b.f.led.Write(e)
}

// restartBMC starts a controller anew: it does not answer for a while, and has forgotten its tasks.
func (f *Fleet) restartBMC(s *server) {
	s.board.away = f.now.Add(bmcRestart)
	s.board.tasks = nil
	f.after(bmcRestart, func() { s.board.started = f.now })
}

// image is a firmware image of the simulated fleet: words behind a first one.
//
//	auspex-sim-firmware FW_BIOS_0 1.7.0 [then]
//
// then is what goes wrong: fail (the task ends in an exception), lie (it completes and nothing is
// installed), restart (the controller starts anew in the middle and forgets the task, and it is
// installed), stall (it never ends).
type image struct{ id, version, then string }

const imageMagic = "auspex-sim-firmware"

// Image makes the content of a firmware image.
func Image(id, version, then string) []byte {
	return []byte(strings.TrimSpace(strings.Join([]string{imageMagic, id, version, then}, " ")) + "\n")
}

func parseImage(content []byte) (image, error) {
	words := strings.Fields(string(content[:min(len(content), 1<<10)]))
	if len(words) < 3 || len(words) > 4 || words[0] != imageMagic {
		return image{}, fmt.Errorf("the image is none for this board: %w", device.ErrUnsupported)
	}
	out := image{id: words[1], version: words[2]}
	if len(words) == 4 {
		out.then = words[3]
	}
	return out, nil
}

// Update implements device.Board.
func (b *bmc) Update(content []byte, targets []string, via, requestID string) (string, error) {
	im, err := parseImage(content)
	if err != nil {
		return "", err
	}
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	i := slices.IndexFunc(b.s.board.firmware, func(w device.Firmware) bool { return w.ID == im.id && w.Updateable })
	if i < 0 || len(targets) > 0 && !slices.ContainsFunc(targets, func(t string) bool { return strings.HasSuffix(t, "/"+im.id) }) {
		return "", fmt.Errorf("the image is for %s: %w", im.id, device.ErrUnsupported)
	}
	if slices.ContainsFunc(b.s.board.tasks, func(t device.Task) bool { return t.Ended.IsZero() }) {
		return "", fmt.Errorf("another update is under way: %w", device.ErrUnsupported)
	}
	b.note(ledger.KindUpdate, via, im.id+" "+im.version, requestID)
	b.s.board.lastTask++
	id := strconv.Itoa(b.s.board.lastTask)
	b.s.board.tasks = append(b.s.board.tasks, device.Task{ID: id, State: "Running", Began: b.f.now.Add(b.s.skew)})
	if !b.s.bmc.IgnoreSets {
		b.f.after(installStep, func() { b.f.install(b.s, id, im, i, 1) })
	}
	return id, nil
}

// install does a tenth of an update, and the next one later.
func (f *Fleet) install(s *server, id string, im image, at, step int) {
	task := slices.IndexFunc(s.board.tasks, func(t device.Task) bool { return t.ID == id })
	end := func(state, message string) {
		if task >= 0 {
			t := &s.board.tasks[task]
			t.State, t.Message, t.Ended = state, message, f.now.Add(s.skew)
		}
	}
	if task >= 0 {
		s.board.tasks[task].Percent = step * 10
	}
	switch {
	case im.then == "fail" && step == 5:
		end("Exception", "The image could not be verified.")
		return
	case im.then == "stall" && step == 5:
		return
	case im.then == "restart" && step == 5:
		f.restartBMC(s)
	case step == 10:
		if im.then != "lie" {
			s.board.firmware[at].Version = im.version
		}
		end("Completed", "The update has completed.")
		return
	}
	f.after(installStep, func() { f.install(s, id, im, at, step+1) })
}

// restore takes up what a controller kept; numbers come from JSON as floats, which is what
// attributes are compared as.
func (b *board) restore(v *ServerState) {
	maps.Copy(b.bios, v.BIOS)
	maps.Copy(b.pending, v.Pending)
	for i := range b.firmware {
		if version := v.Firmware[b.firmware[i].ID]; version != "" {
			b.firmware[i].Version = version
		}
	}
	if !v.Started.IsZero() {
		b.started = v.Started
	}
}

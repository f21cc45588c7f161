// Package ipmitest answers IPMI 2.0 on a UDP port from a recorded controller,
// for tests: power, event log, sensor records and readings.
package ipmitest

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/bougou/go-ipmi/pkg/bmc"
	"github.com/bougou/go-ipmi/pkg/clock"
	"github.com/bougou/go-ipmi/pkg/hal/mock"
	"github.com/bougou/go-ipmi/pkg/handlers"
	"github.com/bougou/go-ipmi/pkg/server"
	"github.com/bougou/go-ipmi/pkg/transport/udp"
	"github.com/bougou/go-ipmi/pkg/types"
	"go.yaml.in/yaml/v3"
)

// State is what a controller holds. Records are hexadecimal, as on the wire.
type State struct {
	Power    bool      `yaml:"power"`
	Clock    time.Time `yaml:"clock"`
	Erased   uint32    `yaml:"erased"`
	SDRs     []string  `yaml:"sdrs"`
	Readings []Reading `yaml:"readings"`
	// Thresholds are the answers to Get Sensor Thresholds by sensor: the mask and LNC, LCR, LNR,
	// UNC, UCR, UNR in hexadecimal. A sensor without one does not know the command.
	Thresholds map[uint8]string `yaml:"thresholds"`
	SEL        []string         `yaml:"sel"`
	// Manufacturer is an IANA number.
	Manufacturer uint32 `yaml:"manufacturer"`
	// Watts is what it says over DCMI that the server draws; 0 is of one that has no DCMI.
	Watts uint16 `yaml:"watts"`
}

// Reading is the answer to Get Sensor Reading; a sensor without one is absent.
type Reading struct {
	Sensor uint8  `yaml:"sensor"`
	Raw    uint8  `yaml:"raw"`
	States uint16 `yaml:"states"`
}

// BMC is a running controller: user admin, password secret.
type BMC struct {
	Addr string

	mu       sync.Mutex
	state    State
	sdrs     [][]byte
	sdrAt    uint32 // when they were last changed
	sel      [][]byte
	added    uint32
	controls []byte
	boots    [][5]byte // boot flags that were set
	boot     [5]byte   // in force
	refuses  bool
	holds    bool
	commands map[types.Command]int
	during   func(*BMC, types.Command)
	reserved uint16

	capacity int  // records; 0 is without end
	circular bool // what is full loses its oldest record, not the new one
	overflow bool
}

// Load reads a state from a YAML file.
func Load(t testing.TB, file string) State {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var s State
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	dec.KnownFields(true)
	if err := dec.Decode(&s); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return s
}

// Start runs a controller until the test ends.
func Start(t testing.TB, s State) *BMC {
	t.Helper()
	b := &BMC{state: s, commands: make(map[types.Command]int)}
	for _, h := range s.SDRs {
		b.sdrs = append(b.sdrs, unhex(t, h))
	}
	for _, h := range s.SEL {
		b.sel = append(b.sel, unhex(t, h))
	}
	dev := bmc.New(bmc.DeviceInfo{DeviceID: 32, FirmwareMajor: 1, IPMIVersion: 0x02, ManufacturerID: s.Manufacturer}, [16]byte{1}, mock.New(), bmc.WithClock(clock.Real))
	u, err := dev.Users.Add(2, "admin")
	if err != nil {
		t.Fatal(err)
	}
	u.SetPassword([]byte("secret"))
	u.Enabled = true
	u.ChannelAccess[1] = bmc.UserChannelAccess{MaxPrivilege: bmc.PrivilegeLevelAdministrator, Enabled: true}
	reg := handlers.NewRegistry()
	handlers.RegisterAllHandlers(reg)
	for cmd, f := range map[types.Command]func([]byte) ([]byte, types.CompletionCode){
		types.CommandGetSELInfo: b.selInfo, types.CommandGetSELEntry: b.selEntry, types.CommandGetSELTime: b.selTime,
		types.CommandReserveSEL: b.reserve, types.CommandClearSEL: b.clear,
		types.CommandGetSDRRepoInfo: b.sdrInfo, types.CommandGetSDR: b.getSDR, types.CommandGetSensorReading: b.reading,
		types.CommandGetSensorThresholds: b.thresholds,
		types.CommandGetDCMIPowerReading: b.watts,
		types.CommandGetChassisStatus:    b.chassis, types.CommandChassisControl: b.control,
		types.CommandSetSystemBootOptions: b.setBoot, types.CommandGetSystemBootOptions: b.getBoot,
	} {
		reg.RegisterFunc(cmd, func(_ context.Context, _ *handlers.HandlerContext, req []byte) ([]byte, types.CompletionCode, error) {
			b.mu.Lock()
			during := b.during
			b.mu.Unlock()
			if during != nil {
				during(b, cmd)
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			b.commands[cmd]++
			data, code := f(req)
			return data, code, nil
		})
	}
	conn, err := udp.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b.Addr = conn.LocalAddr().String()
	ctx, cancel := context.WithCancel(context.Background())
	srv := server.NewServer(dev, conn, server.WithHandlerRegistry(reg))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		_ = srv.Close()
		<-done
	})
	return b
}

func unhex(t testing.TB, h string) []byte {
	t.Helper()
	raw, err := hex.DecodeString(h)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// During has a function called before each command is answered, such as somebody who clears the log meanwhile.
func (b *BMC) During(f func(b *BMC, cmd types.Command)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.during = f
}

// Bound gives the log room for so many records. One that is circular loses its oldest record where it is full, another
// one the new record.
func (b *BMC) Bound(records int, circular bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.capacity, b.circular = records, circular
}

// Add appends a record to the event log, and reports whether there was room.
func (b *BMC) Add(record []byte) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reserved++
	if b.capacity > 0 && len(b.sel) >= b.capacity {
		if !b.circular {
			b.overflow = true
			return false
		}
		b.sel = append(b.sel[:0:0], b.sel[1:]...)
	}
	b.sel = append(b.sel, bytes.Clone(record))
	if b.added = uint32(b.state.Clock.Unix()); len(record) >= 7 {
		b.added = binary.LittleEndian.Uint32(record[3:])
	}
	return true
}

// Clear erases the event log at a time of the controller's clock.
func (b *BMC) Clear(at uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sel, b.state.Erased, b.overflow = nil, at, false
	b.reserved++
}

// Delete erases one record at a time of the controller's clock.
func (b *BMC) Delete(id uint16, at uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sel = slices.DeleteFunc(slices.Clone(b.sel), func(r []byte) bool { return binary.LittleEndian.Uint16(r) == id })
	b.state.Erased = at
	b.reserved++
}

// SetClock steps the controller's clock.
func (b *BMC) SetClock(t time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.state.Clock = t
}

// SetErased is a controller that says another erase time than before, though nothing was erased.
func (b *BMC) SetErased(at uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.state.Erased = at
}

// Log returns the records of the event log.
func (b *BMC) Log() [][]byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.sel)
}

// SetSDRs changes the sensor records at a time of the controller's clock.
func (b *BMC) SetSDRs(at uint32, records ...[]byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sdrs, b.sdrAt = records, at
}

// SetPower turns the server on or off, as somebody at its button would.
func (b *BMC) SetPower(on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.state.Power = on
}

// Refuse lets the controller refuse every chassis control command from now on.
func (b *BMC) Refuse() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refuses = true
}

// Hold lets the controller take commands from now on and do nothing of it: what becomes of the server is
// the test's to say.
func (b *BMC) Hold() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.holds = true
}

// Boots returns how often boot flags were set, and LetBoot has the last ones in force.
func (b *BMC) Boots() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.boots)
}

// LetBoot is what Boots says.
func (b *BMC) LetBoot() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.boot = b.boots[len(b.boots)-1]
}

// Controls returns the chassis control commands that came.
func (b *BMC) Controls() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes.Clone(b.controls)
}

// Commands returns how often a command came.
func (b *BMC) Commands(cmd types.Command) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.commands[cmd]
}

// Record makes a system event record (IPMI 2.0, section 32.1).
func Record(id uint16, at uint32, sensorType, number, eventType byte, data ...byte) []byte {
	r := make([]byte, 16)
	binary.LittleEndian.PutUint16(r, id)
	r[2] = 0x02
	binary.LittleEndian.PutUint32(r[3:], at)
	r[7], r[9], r[10], r[11], r[12] = 0x20, 0x04, sensorType, number, eventType
	copy(r[13:], []byte{0, 0xff, 0xff})
	copy(r[13:], data)
	return r
}

func (b *BMC) selInfo([]byte) ([]byte, types.CompletionCode) {
	out := make([]byte, 14)
	out[0] = 0x51
	binary.LittleEndian.PutUint16(out[1:], uint16(len(b.sel)))
	free := 0xffff
	if b.capacity > 0 {
		free = 16 * (b.capacity - len(b.sel))
	}
	binary.LittleEndian.PutUint16(out[3:], uint16(free))
	binary.LittleEndian.PutUint32(out[5:], b.added)
	binary.LittleEndian.PutUint32(out[9:], b.state.Erased)
	if out[13] = 0x02; b.overflow { // reservations
		out[13] |= 0x80
	}
	return out, types.CodeOK
}

func (b *BMC) reserve([]byte) ([]byte, types.CompletionCode) {
	b.reserved++
	return binary.LittleEndian.AppendUint16(nil, b.reserved), types.CodeOK
}

func (b *BMC) clear(req []byte) ([]byte, types.CompletionCode) {
	if len(req) != 6 || string(req[2:5]) != "CLR" {
		return nil, types.CodeRequestDataFieldInvalid
	}
	if binary.LittleEndian.Uint16(req) != b.reserved {
		return nil, 0xc5
	}
	b.sel, b.state.Erased, b.overflow = nil, uint32(b.state.Clock.Unix()), false
	b.reserved++
	return []byte{1}, types.CodeOK
}

func (b *BMC) selEntry(req []byte) ([]byte, types.CompletionCode) {
	if len(req) < 6 {
		return nil, types.CodeRequestDataLengthInvalid
	}
	id := binary.LittleEndian.Uint16(req[2:])
	for i, r := range b.sel {
		if id == 0 || id == 0xffff && i == len(b.sel)-1 || id == binary.LittleEndian.Uint16(r) {
			next := []byte{0xff, 0xff}
			if i+1 < len(b.sel) {
				copy(next, b.sel[i+1])
			}
			return append(next, r...), types.CodeOK
		}
	}
	return nil, types.CodeRequestedDataNotPresent
}

func (b *BMC) selTime([]byte) ([]byte, types.CompletionCode) {
	return binary.LittleEndian.AppendUint32(nil, uint32(b.state.Clock.Unix())), types.CodeOK
}

func (b *BMC) sdrInfo([]byte) ([]byte, types.CompletionCode) {
	out := make([]byte, 14)
	out[0] = 0x51
	binary.LittleEndian.PutUint16(out[1:], uint16(len(b.sdrs)))
	binary.LittleEndian.PutUint32(out[5:], b.sdrAt)
	return out, types.CodeOK
}

func (b *BMC) getSDR(req []byte) ([]byte, types.CompletionCode) {
	if len(req) < 6 {
		return nil, types.CodeRequestDataLengthInvalid
	}
	id := binary.LittleEndian.Uint16(req[2:])
	for i, r := range b.sdrs {
		if id == 0 || id == binary.LittleEndian.Uint16(r) {
			next := []byte{0xff, 0xff}
			if i+1 < len(b.sdrs) {
				copy(next, b.sdrs[i+1])
			}
			return append(next, r...), types.CodeOK
		}
	}
	return nil, types.CodeRequestedDataNotPresent
}

func (b *BMC) reading(req []byte) ([]byte, types.CompletionCode) {
	for _, r := range b.state.Readings {
		if len(req) > 0 && r.Sensor == req[0] {
			return []byte{r.Raw, 0xc0, byte(r.States), byte(r.States>>8) | 0x80}, types.CodeOK
		}
	}
	return nil, types.CodeRequestedDataNotPresent
}

func (b *BMC) thresholds(req []byte) ([]byte, types.CompletionCode) {
	if len(req) < 1 {
		return nil, types.CodeRequestDataLengthInvalid
	}
	out, err := hex.DecodeString(b.state.Thresholds[req[0]])
	if err != nil || len(out) == 0 {
		return nil, types.CodeIllegalCommand
	}
	return out, types.CodeOK
}

// watts is Get Power Reading (DCMI 1.5, section 6.6.1).
func (b *BMC) watts(req []byte) ([]byte, types.CompletionCode) {
	if b.state.Watts == 0 {
		return nil, types.CodeInvalidCommand
	}
	if len(req) < 1 || req[0] != 0xdc {
		return nil, types.CodeRequestDataFieldInvalid
	}
	out := []byte{0xdc}
	for range 4 {
		out = binary.LittleEndian.AppendUint16(out, b.state.Watts)
	}
	return append(append(out, make([]byte, 8)...), 0x40), types.CodeOK
}

func (b *BMC) chassis([]byte) ([]byte, types.CompletionCode) {
	out := make([]byte, 3)
	if b.state.Power {
		out[0] = 1
	}
	return out, types.CodeOK
}

func (b *BMC) control(req []byte) ([]byte, types.CompletionCode) {
	if len(req) < 1 {
		return nil, types.CodeRequestDataLengthInvalid
	}
	if b.refuses {
		return nil, types.CodeInsufficientPrivilege
	}
	b.controls = append(b.controls, req[0]&0x0f)
	if b.holds {
		return nil, types.CodeOK
	}
	switch req[0] & 0x0f {
	case 0, 5:
		b.state.Power = false
	case 1, 2, 3:
		b.state.Power = true
	}
	return nil, types.CodeOK
}

// bootFlags is the parameter of the boot flags (IPMI 2.0, table 28-14).
const bootFlags = 5

func (b *BMC) setBoot(req []byte) ([]byte, types.CompletionCode) {
	switch {
	case b.refuses:
		return nil, types.CodeInsufficientPrivilege
	case len(req) != 6 || req[0]&0x7f != bootFlags:
		return nil, 0x80 // parameter not supported
	}
	b.boots = append(b.boots, [5]byte(req[1:]))
	if !b.holds {
		b.boot = [5]byte(req[1:])
	}
	return nil, types.CodeOK
}

func (b *BMC) getBoot(req []byte) ([]byte, types.CompletionCode) {
	if len(req) != 3 || req[0]&0x7f != bootFlags {
		return nil, 0x80
	}
	return append([]byte{1, bootFlags}, b.boot[:]...), types.CodeOK
}

// Garbage answers every datagram with noise until the test ends.
func Garbage(t testing.TB) (addr string) {
	t.Helper()
	conn, err := udp.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 2048)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			noise := bytes.Repeat([]byte{0x06, 0x00, 0xff, 0x07}, 8)
			copy(noise[8:], buf[:min(n, 16)])
			if _, err := conn.WriteTo(noise, from); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = conn.Close()
		<-done
	})
	return fmt.Sprint(conn.LocalAddr())
}

package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	mrand "math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"auspex/internal/sim/device"
	"auspex/internal/sim/ipmi"
)

// PeerBoards plays board controllers with the simulator's IPMI interface, each on an address of its own.
const PeerBoards = "boards"

// BoardsOptions says how many there are.
type BoardsOptions struct {
	Boards int `json:"boards"`
}

// BoardsOrder says how they behave from now on; each order is answered with a [BoardsReport].
type BoardsOrder struct {
	Behave bool          `json:"behave,omitempty"` // else nothing changes
	Delay  time.Duration `json:"delay,omitempty"`  // before each answer
	// Mute are so many, of those after From, that do not answer, Slow so many after them whose delay is ten times that.
	From int `json:"from,omitempty"`
	Mute int `json:"mute,omitempty"`
	Slow int `json:"slow,omitempty"`
	// Records are added to each event log.
	Records int `json:"records,omitempty"`
}

// BoardsReport is what the peer tells: where it listens, how many commands it has answered in sessions, and how many
// records there are in all event logs together.
type BoardsReport struct {
	Addresses []string `json:"addresses,omitempty"`
	Commands  int64    `json:"commands"`
	Records   int64    `json:"records"`
}

// The user of all boards, and his password.
const (
	boardUser     = "bench"
	boardPassword = "bench"
)

// boardReadings is how many sensors a board has.
const boardReadings = 24

func boards(ctx context.Context, options []byte, in *json.Decoder, out *sender) error {
	var o BoardsOptions
	if err := json.Unmarshal(options, &o); err != nil {
		return err
	}
	if o.Boards < 1 {
		return fmt.Errorf("%d boards are too few", o.Boards)
	}
	ctx, cancel := context.WithCancel(ctx)
	var serving sync.WaitGroup
	defer serving.Wait()
	defer cancel()
	var report BoardsReport
	var commands atomic.Int64
	all := make([]*board, o.Boards)
	for i := range all {
		conn, err := new(net.ListenConfig).ListenPacket(ctx, "udp", "127.0.0.1:0")
		if err != nil {
			return fmt.Errorf("board %d of %d: %w", i+1, o.Boards, err)
		}
		defer func() { _ = conn.Close() }()
		report.Addresses = append(report.Addresses, conn.LocalAddr().String())
		all[i] = newBoard(i)
		serving.Go(func() { _ = ipmi.NewServer(all[i]).Serve(ctx, counted{conn, &commands}) })
	}
	if err := out.send(report); err != nil {
		return err
	}
	for {
		var order BoardsOrder
		if in.Decode(&order) != nil {
			return nil // the input has ended
		}
		report := BoardsReport{}
		for i, b := range all {
			if order.Behave {
				i -= order.From
				f := device.Fault{Delay: order.Delay, Mute: i >= 0 && i < order.Mute}
				if i >= order.Mute && i < order.Mute+order.Slow {
					f.Delay *= 10
				}
				b.fault.Store(&f)
			}
			report.Records += int64(b.add(order.Records))
		}
		report.Commands = commands.Load()
		if err := out.send(report); err != nil {
			return err
		}
	}
}

// counted counts the answers to commands of a session: packets of IPMI messages, encrypted and authenticated (IPMI 2.0, table 13-8).
type counted struct {
	net.PacketConn
	n *atomic.Int64
}

// WriteTo implements [net.PacketConn].
func (c counted) WriteTo(p []byte, to net.Addr) (int, error) {
	const message = 0xc0
	if len(p) > 5 && p[5] == message {
		c.n.Add(1)
	}
	return c.PacketConn.WriteTo(p, to)
}

// board is a controller whose readings move a little with every second.
type board struct {
	info  device.Info
	fault atomic.Pointer[device.Fault]

	mu      sync.Mutex
	rng     *mrand.Rand
	sensors []device.Sensor // replaced, never written once it was shown
	at      time.Time       // when they were
	log     []device.LogRecord
	erased  time.Time
}

func newBoard(i int) *board {
	b := &board{
		info:    device.Info{Name: Server(i), Manufacturer: "Bench", Model: "Board", Serial: fmt.Sprintf("B%06d", i), Firmware: "1.0", Users: []string{boardUser}},
		rng:     mrand.New(mrand.NewPCG(uint64(i), 11)), //nolint:gosec // no secret
		erased:  time.Now().Add(-time.Hour),
		sensors: make([]device.Sensor, 0, boardReadings),
	}
	b.fault.Store(&device.Fault{})
	add := func(name, part string, kind device.SensorKind, value, top float64) {
		nan := math.NaN()
		b.sensors = append(b.sensors, device.Sensor{
			Number: byte(len(b.sensors) + 1), Name: name, Part: part, Kind: kind, Value: value, Present: true, MaxRange: top,
			LNC: nan, LC: nan, LNR: nan, UNC: top * .9, UC: top * .95, UNR: nan,
		})
	}
	add("Inlet Temp", "", device.SensorTemperature, 24, 127)
	add("Outlet Temp", "", device.SensorTemperature, 41, 127)
	add("Total Power", "", device.SensorPower, 4200, 12750)
	add("P12V", "", device.SensorVoltage, 12.1, 15)
	for i := range 4 {
		add(fmt.Sprintf("CPU%d Temp", i), fmt.Sprintf("cpu%d", i), device.SensorTemperature, 60, 127)
	}
	for i := range psusPerServer {
		add(fmt.Sprintf("PSU%d Input", i), fmt.Sprintf("psu%d", i), device.SensorPower, 700, 3570)
	}
	for len(b.sensors) < boardReadings {
		n := len(b.sensors) - 13
		add(fmt.Sprintf("FAN%d", n), fmt.Sprintf("fan%d", n), device.SensorFan, 9000, 25500)
	}
	b.add(2)
	return b
}

// add writes records into the event log and returns how many there are.
func (b *board) add(n int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	for range n {
		supply := byte(b.rng.IntN(psusPerServer))
		b.log = append(b.log, device.LogRecord{
			ID: uint16(len(b.log) + 1), Time: time.Now(), SensorType: 0x08, SensorNumber: 9 + supply, EventType: 0x6f, Data: [3]byte{0x03, 0xff, 0xff}, //nolint:gosec // few
		})
	}
	return len(b.log)
}

// Info implements [device.BMC].
func (b *board) Info() device.Info { return b.info }

// Password implements [device.BMC].
func (*board) Password(user string) (string, bool) { return boardPassword, user == boardUser }

// Power implements [device.BMC].
func (*board) Power() device.PowerState { return device.PowerOn }

// Reset implements [device.BMC]: nobody resets a server that is not there.
func (*board) Reset(device.ResetType, string, string) error { return device.ErrUnsupported }

// LastReset implements [device.BMC].
func (b *board) LastReset() time.Time { return b.erased }

// Boot implements [device.BMC].
func (*board) Boot() device.Boot { return device.Boot{} }

// SetBoot implements [device.BMC].
func (*board) SetBoot(device.Boot) error { return device.ErrUnsupported }

// Sensors implements [device.BMC].
func (b *board) Sensors() []device.Sensor {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := time.Now(); now.Sub(b.at) >= time.Second {
		b.at, b.sensors = now, slices.Clone(b.sensors)
		for i := range b.sensors {
			s := &b.sensors[i]
			s.Value = min(max(s.Value*(1+.01*b.rng.NormFloat64()), s.MaxRange*.05), s.MaxRange*.85)
		}
	}
	return b.sensors
}

// GPUs implements [device.BMC].
func (*board) GPUs() []device.GPU { return nil }

// Log implements [device.BMC].
func (b *board) Log() (records []device.LogRecord, erased time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log[:len(b.log):len(b.log)], b.erased
}

// ClearLog implements [device.BMC].
func (b *board) ClearLog() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.log, b.erased = nil, time.Now()
}

// Now implements [device.BMC].
func (*board) Now() time.Time { return time.Now() }

// SetClock implements [device.BMC].
func (*board) SetClock(time.Time) {}

// Fault implements [device.BMC].
func (b *board) Fault() device.Fault { return *b.fault.Load() }

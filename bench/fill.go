package bench

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"auspex/internal/bus"
	"auspex/internal/bus/jetstream"
	"auspex/schemas"
)

// Names of the peers that make telemetry.
const (
	PeerFill = "fill" // fills a bus, then tells the Tally
	// PeerFrames writes batches as frames: the length (4 bytes, big-endian) of the device and the device, then the
	// same of the wire form.
	PeerFrames = "frames"
)

// TelemetryOptions says what telemetry a peer makes.
type TelemetryOptions struct {
	Dir     string        `json:"dir,omitempty"` // of the bus to fill
	Samples int64         `json:"samples"`       // at least
	Servers int           `json:"servers"`
	Seed    uint64        `json:"seed"`
	Every   time.Duration `json:"every"` // between readings of one server
	// Worn lists servers whose fan1 loses WearShare of its speed each hour.
	Worn      []int   `json:"worn,omitempty"`
	WearShare float64 `json:"wear_share,omitempty"`
}

// each hands out batches in wire form until there are enough samples. The last
// reading was just now.
func (o TelemetryOptions) each(f func(device string, wire []byte) error) (t Tally, err error) {
	if o.Servers < 1 || o.Every <= 0 {
		return t, errors.New("servers and every must be positive")
	}
	perRound := int64(o.Servers * (GPUsPerServer*len(schemas.GPUMetrics) + sensorsPerServer))
	rounds := (o.Samples + perRound - 1) / perRound
	g := NewGenerator(o.Servers, o.Seed, time.Now().Add(-time.Duration(rounds)*o.Every), o.Every)
	for _, s := range o.Worn {
		g.Wear(s, o.WearShare)
	}
	for range rounds * int64(2*o.Servers) {
		b := g.Next()
		wire, err := b.MarshalVT()
		if err != nil {
			return t, err
		}
		t.Add(wire, b)
		if err := f(b.GetDevice(), wire); err != nil {
			return t, err
		}
	}
	return t, nil
}

// fill appends telemetry to a bus on the disk that nobody else has open.
func fill(ctx context.Context, options []byte, _ *json.Decoder, out *sender) (err error) {
	var o TelemetryOptions
	if err := json.Unmarshal(options, &o); err != nil {
		return err
	}
	cfg := jetstream.DefaultConfig()
	cfg.Dir = o.Dir
	b, err := jetstream.Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	var pending []bus.Message
	send := func(device string, wire []byte) error {
		pending = append(pending, bus.Message{Topic: schemas.TopicTelemetry, Key: device, Value: wire})
		if len(pending) < 256 {
			return nil
		}
		err := b.Publish(ctx, pending...)
		pending = nil
		return err
	}
	t, err := o.each(send)
	if err == nil && len(pending) > 0 {
		err = b.Publish(ctx, pending...)
	}
	if err != nil {
		return fmt.Errorf("fill the bus: %w", err)
	}
	return out.send(t)
}

// frames writes what fill would publish.
func frames(_ context.Context, options []byte, _ *json.Decoder, out *sender) error {
	var o TelemetryOptions
	if err := json.Unmarshal(options, &o); err != nil {
		return err
	}
	w := bufio.NewWriterSize(out.w, 1<<20)
	var head [4]byte
	write := func(b []byte) error {
		binary.BigEndian.PutUint32(head[:], uint32(len(b))) //nolint:gosec // a batch is small
		if _, err := w.Write(head[:]); err != nil {
			return err
		}
		_, err := w.Write(b)
		return err
	}
	if _, err := o.each(func(device string, wire []byte) error { return errors.Join(write([]byte(device)), write(wire)) }); err != nil {
		return err
	}
	return w.Flush()
}

// Frames reads what the peer PeerFrames writes as messages of the topic telemetry.
func (p *Peer) Frames() ([]bus.Message, Tally, error) {
	var msgs []bus.Message
	var t Tally
	read := func() ([]byte, error) {
		var head [4]byte
		if _, err := io.ReadFull(p.raw, head[:]); err != nil {
			return nil, err
		}
		b := make([]byte, binary.BigEndian.Uint32(head[:]))
		_, err := io.ReadFull(p.raw, b)
		return b, err
	}
	for {
		device, err := read()
		if errors.Is(err, io.EOF) {
			return msgs, t, nil
		}
		if err != nil {
			return nil, t, fmt.Errorf("read frames: %w", err)
		}
		wire, err := read()
		if err != nil {
			return nil, t, fmt.Errorf("read frames: %w", err)
		}
		msgs = append(msgs, bus.Message{Topic: schemas.TopicTelemetry, Key: string(device), Value: wire})
		t.Add(wire, nil)
	}
}

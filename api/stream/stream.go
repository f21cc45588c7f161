// Package stream sends what changes to browsers: server-sent events (WHATWG
// HTML, section 9.2) with a short memory, so that a reader whose connection broke
// gets what it missed.
package stream

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	keep   = 256 // messages kept for readers that come back
	buffer = 64  // messages that wait for one reader
)

type message struct {
	seq  uint64
	text []byte
}

// Hub hands messages to every reader. A reader that does not keep up is ended
// and counted; it comes back and asks for what it missed.
type Hub struct {
	epoch string

	mu      sync.Mutex
	seq     uint64
	kept    []message
	readers map[*Reader]struct{}
	max     int
	closed  bool

	clients prometheus.Gauge
	dropped prometheus.Counter
	sent    prometheus.Counter
}

// NewHub returns a hub for at most maxReaders readers. The epoch tells ids of
// this hub from those of an earlier process. Metrics go to reg.
func NewHub(epoch string, maxReaders int, reg prometheus.Registerer) (*Hub, error) {
	h := &Hub{
		epoch: epoch, max: maxReaders, readers: make(map[*Reader]struct{}),
		clients: prometheus.NewGauge(prometheus.GaugeOpts{Name: "auspex_api_stream_clients", Help: "Clients of the live stream."}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "auspex_api_stream_dropped_total", Help: "Clients of the live stream that were disconnected because they did not keep up.",
		}),
		sent: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "auspex_api_stream_messages_total", Help: "Messages put on the live stream.",
		}),
	}
	for _, c := range []prometheus.Collector{h.clients, h.dropped, h.sent} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics of the stream: %w", err)
		}
	}
	return h, nil
}

// Readers returns how many readers there are.
func (h *Hub) Readers() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.readers)
}

func frame(id, event string, data []byte) []byte {
	var b bytes.Buffer
	if id != "" {
		fmt.Fprintf(&b, "id: %s\n", id)
	}
	fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", event, data)
	return b.Bytes()
}

// Send hands an event to every reader. What is kept can be asked for again;
// a tick of the clock need not be.
func (h *Hub) Send(event string, value any, kept bool) error {
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("send %s: %w", event, err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	m := message{}
	if kept {
		h.seq++
		m = message{h.seq, frame(h.epoch+"-"+strconv.FormatUint(h.seq, 10), event, data)}
		if len(h.kept) == keep {
			h.kept = append(h.kept[:0], h.kept[1:]...)
		}
		h.kept = append(h.kept, m)
	} else {
		m.text = frame("", event, data)
	}
	h.sent.Inc()
	for r := range h.readers {
		select {
		case r.in <- m.text:
		default:
			h.dropped.Inc()
			h.remove(r)
		}
	}
	return nil
}

func (h *Hub) remove(r *Reader) {
	if _, ok := h.readers[r]; ok {
		delete(h.readers, r)
		close(r.in)
		h.clients.Set(float64(len(h.readers)))
	}
}

// Open returns a reader, or false when there are too many or the hub is closed.
// The greeting comes first. A lastID of this hub is followed by what came after
// it; any other lastID by the given reset event. No id is of more than what the
// reader has by then: it may break off anywhere and come back.
// The owner is what [Hub.Prune] asks about.
func (h *Hub) Open(owner any, lastID string, greeting, reset any) (*Reader, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || len(h.readers) >= h.max {
		return nil, false
	}
	r := &Reader{hub: h, owner: owner, in: make(chan []byte, buffer)}
	hello, err := json.Marshal(greeting)
	if err != nil {
		return nil, false
	}
	all, err := json.Marshal(reset)
	if err != nil {
		return nil, false
	}
	now := h.epoch + "-" + strconv.FormatUint(h.seq, 10)
	r.rest = []byte("retry: 1000\n")
	switch missed, known := h.after(lastID); {
	case lastID == "":
		r.rest = append(r.rest, frame(now, "hello", hello)...)
	case known:
		r.rest = append(r.rest, frame("", "hello", hello)...)
		for _, m := range missed {
			r.rest = append(r.rest, m.text...)
		}
	default:
		r.rest = append(append(r.rest, frame("", "hello", hello)...), frame(now, "changed", all)...)
	}
	h.readers[r] = struct{}{}
	h.clients.Set(float64(len(h.readers)))
	return r, true
}

func (h *Hub) after(lastID string) ([]message, bool) {
	epoch, text, _ := strings.Cut(lastID, "-")
	seq, err := strconv.ParseUint(text, 10, 64)
	if err != nil || epoch != h.epoch || seq > h.seq {
		return nil, false
	}
	if seq == h.seq {
		return nil, true
	}
	if len(h.kept) == 0 || h.kept[0].seq > seq+1 {
		return nil, false
	}
	return h.kept[seq+1-h.kept[0].seq:], true
}

// Prune ends the readers whose owners are not to be kept.
func (h *Hub) Prune(keep func(owner any) bool) {
	h.mu.Lock()
	readers := slices.Collect(maps.Keys(h.readers))
	h.mu.Unlock()
	for _, r := range readers {
		if !keep(r.owner) {
			h.mu.Lock()
			h.remove(r)
			h.mu.Unlock()
		}
	}
}

// Close ends every reader; later ones are refused.
func (h *Hub) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for r := range h.readers {
		h.remove(r)
	}
}

// Reader is the stream of one browser. Read blocks for the next message and
// returns io.EOF when the hub ends it.
type Reader struct {
	hub   *Hub
	owner any
	in    chan []byte
	rest  []byte
}

// Read implements io.Reader.
func (r *Reader) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		text, ok := <-r.in
		if !ok {
			return 0, io.EOF
		}
		r.rest = text
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// Close implements io.Closer.
func (r *Reader) Close() error {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	r.hub.remove(r)
	return nil
}

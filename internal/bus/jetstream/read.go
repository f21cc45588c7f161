package jetstream

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"auspex/internal/bus"
)

// topicLog reads the partitions of a topic for one subscription. An offset is a
// stream sequence less one.
type topicLog struct {
	b    *Bus
	name string
	ps   []*partition
	conn *nats.Conn

	mu      sync.Mutex
	readers map[int]*reader
}

// reader is the inbox of one partition's direct gets. Each request has a reply
// subject of its own, so that what is left of one that was given up is told
// apart.
type reader struct {
	sub   *nats.Subscription
	inbox string
	n     uint64
}

func (l *topicLog) Partitions(context.Context) (int, error) { return len(l.ps), nil }

func (l *topicLog) part(n int) (*partition, error) {
	if n < 0 || n >= len(l.ps) {
		return nil, fmt.Errorf("topic %s has no partition %d", l.name, n)
	}
	return l.ps[n], nil
}

func (l *topicLog) Bounds(ctx context.Context, n int) (first, next int64, err error) {
	p, err := l.part(n)
	if err != nil {
		return 0, 0, err
	}
	st, err := l.b.js.Stream(ctx, p.stream) // asks for the state
	if err != nil {
		return 0, 0, l.b.closedOr(err)
	}
	s := st.CachedInfo().State
	next = int64(s.LastSeq)
	if s.Msgs == 0 {
		return next, next, nil
	}
	return int64(s.FirstSeq) - 1, next, nil
}

func (l *topicLog) position(group string, n int) string {
	return positionsSubject + "." + token(group) + "." + l.name + "." + strconv.Itoa(n)
}

func (l *topicLog) Position(ctx context.Context, group string, n int) (int64, bool, error) {
	st, err := l.b.js.Stream(ctx, positionsStream)
	if err != nil {
		return 0, false, l.b.closedOr(err)
	}
	m, err := st.GetLastMsgForSubject(ctx, l.position(group, n))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, l.b.closedOr(err)
	}
	if len(m.Data) != 8 {
		return 0, false, fmt.Errorf("position of %s in %s/%d has %d bytes, want 8", group, l.name, n, len(m.Data))
	}
	return int64(binary.BigEndian.Uint64(m.Data)), true, nil
}

func (l *topicLog) Commit(ctx context.Context, group string, n int, next int64) error {
	_, err := l.b.js.Publish(ctx, l.position(group, n), binary.BigEndian.AppendUint64(nil, uint64(next)))
	if err != nil {
		return l.b.closedOr(err)
	}
	return nil
}

func (l *topicLog) reader(n int) (*reader, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.readers[n]; r != nil {
		return r, nil
	}
	inbox := l.conn.NewInbox()
	sub, err := l.conn.SubscribeSync(inbox + ".*")
	if err != nil {
		return nil, l.b.closedOr(err)
	}
	if err := sub.SetPendingLimits(-1, -1); err != nil { // bounded by what a request asks for
		return nil, err
	}
	r := &reader{sub: sub, inbox: inbox}
	l.readers[n] = r
	return r, nil
}

func (l *topicLog) Fetch(ctx context.Context, n int, offset int64, limit int, wait time.Duration) ([]bus.Message, int64, error) {
	p, err := l.part(n)
	if err != nil {
		return nil, 0, err
	}
	r, err := l.reader(n)
	if err != nil {
		return nil, 0, err
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		grown := p.watch()
		msgs, more, err := l.get(ctx, r, p, n, offset, limit)
		if err != nil || len(msgs) > 0 {
			return msgs, more, err
		}
		select {
		case <-grown:
		case <-timer.C:
			return nil, 0, nil
		case <-l.b.done:
			return nil, 0, bus.ErrClosed
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
}

type getRequest struct {
	Seq      uint64 `json:"seq"`
	Batch    int    `json:"batch"`
	MaxBytes int    `json:"max_bytes"`
}

// get asks for what is there now.
func (l *topicLog) get(ctx context.Context, r *reader, p *partition, n int, offset int64, limit int) ([]bus.Message, int64, error) {
	req, err := json.Marshal(getRequest{Seq: uint64(offset) + 1, Batch: limit, MaxBytes: fetchBytes})
	if err != nil {
		return nil, 0, err
	}
	r.n++
	reply := r.inbox + "." + strconv.FormatUint(r.n, 10)
	if err := l.conn.PublishRequest("$JS.API.DIRECT.GET."+p.stream, reply, req); err != nil {
		return nil, 0, l.b.closedOr(err)
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var msgs []bus.Message
	for {
		m, err := r.sub.NextMsgWithContext(ctx)
		if err != nil {
			return nil, 0, l.b.closedOr(err)
		}
		if m.Subject != reply {
			continue
		}
		switch status := m.Header.Get("Status"); status {
		case "":
		case "204": // end of the batch
			more, _ := strconv.ParseInt(m.Header.Get("Nats-Num-Pending"), 10, 64)
			return msgs, more, nil
		case "404":
			return msgs, 0, nil
		default:
			return nil, 0, fmt.Errorf("the server answered %s %s", status, m.Header.Get("Description"))
		}
		seq, err := strconv.ParseInt(m.Header.Get("Nats-Sequence"), 10, 64)
		if err != nil {
			return nil, 0, fmt.Errorf("sequence of a stored message: %w", err)
		}
		at, _ := time.Parse(time.RFC3339Nano, m.Header.Get("Nats-Time-Stamp"))
		msgs = append(msgs, bus.Message{
			Topic: l.name, Key: m.Header.Get(keyHeader), Value: m.Data, Partition: n, Offset: seq - 1, Time: at,
		})
	}
}

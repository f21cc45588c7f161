package gnmi

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"auspex/collectors"
	"auspex/internal/gnmiclient"
	"auspex/internal/grpcwire"
)

// Methods of gNMI (gnmi.proto).
const (
	methodCapabilities = "/gnmi.gNMI/Capabilities"
	methodSubscribe    = "/gnmi.gNMI/Subscribe"
)

// window is how much of a stream is on the way, in bytes.
const window = 1 << 20

// pulse is a connection that is read in large pieces, by one goroutine, which does what is due meanwhile.
type pulse struct {
	net.Conn
	piece []byte
	every time.Duration
	due   time.Time
	tick  func(now time.Time) error
	rang  func() error
	armed bool // the read ends when something is due
	rung  atomic.Bool
}

// ring has rang called by the goroutine that reads. Any other may ring.
func (p *pulse) ring() {
	p.rung.Store(true)
	_ = p.SetReadDeadline(time.Unix(1, 0)) // a connection that is closed has nobody to wake
}

// Chunk implements [grpcwire.Chunker].
func (p *pulse) Chunk() ([]byte, error) {
	for {
		if p.rung.Swap(false) {
			if err := p.rang(); err != nil {
				return nil, err
			}
		}
		if now := time.Now(); !now.Before(p.due) {
			if err := p.tick(now); err != nil {
				return nil, err
			}
			p.due, p.armed = time.Now().Add(p.every), false
		}
		if !p.armed {
			if err := p.SetReadDeadline(p.due); err != nil {
				return nil, err
			}
			if p.armed = true; p.rung.Load() { // between the two, this deadline may have taken the place of the bell's
				continue
			}
		}
		n, err := p.Read(p.piece)
		if n > 0 {
			return p.piece[:n], nil // an error comes again
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) && err != nil {
			return nil, err
		}
		p.armed = false
	}
}

func (s *subscriber) dial(ctx context.Context) (net.Conn, error) {
	ctx, done := context.WithTimeout(ctx, s.cfg.Timeout)
	defer done()
	if s.cfg.TLS.Disabled {
		return new(net.Dialer).DialContext(ctx, "tcp", s.addr)
	}
	tc, err := s.cfg.TLS.Client()
	if err != nil {
		return nil, err
	}
	if s.expired = s.cfg.TLS.Expired(tc, time.Now()); s.expired != nil {
		s.log.Warn("our certificate is out of date; a target that asks for it refuses it", "error", s.expired)
	}
	tc.NextProtos = []string{"h2"} // RFC 9113, section 3.2
	return (&tls.Dialer{Config: tc}).DialContext(ctx, "tcp", s.addr)
}

// explained adds to an error before the first answer what is known to be wrong on our side.
func (s *subscriber) explained(err error) error {
	if err == nil || s.expired == nil {
		return err
	}
	return fmt.Errorf("%w; %w", err, s.expired)
}

// talk is a connection to the target.
type talk struct {
	*subscriber

	ctx     context.Context //nolint:containedctx // of the one stream that it is
	out     collectors.Emitter
	pulse   *pulse
	conn    *grpcwire.Conn
	shown   []string // the credential, as metadata
	message gnmiclient.Response
	first   uint32            // the call that subscribes
	aside   map[uint32]string // calls beside it, by number: their targets
	request *gpb.SubscribeRequest
	others  []*gpb.SubscribeRequest // asked beside it
	next    time.Time               // when it is asked again, where it is no stream
	heard   bool                    // it has answered
	ends    func()                  // of the answer that comes, where it is no stream

	fresh    bool // something came since the last tick
	ticked   time.Time
	vain     time.Duration // for how long we listened in vain: not for how long we did not run
	patience time.Duration
	begun    time.Time
	failed   error // of a tick
}

// stream reads the target until the connection breaks.
func (s *subscriber) stream(ctx context.Context, out collectors.Emitter) error {
	shown, err := gnmiclient.Shown(ctx, s.credential, s.settings.Secrets)
	if err != nil {
		return err
	}
	conn, err := s.dial(ctx) // reads the files of certificates
	if err != nil {
		return s.explained(err)
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	t := &talk{
		subscriber: s, ctx: ctx, out: out, shown: shown, aside: map[uint32]string{}, ticked: time.Now(), patience: s.cfg.Timeout,
	}
	t.pulse = &pulse{
		Conn: conn, piece: make([]byte, 32<<10), every: max(min(s.cfg.SampleInterval/4, time.Second), 25*time.Millisecond), tick: t.tick, rang: t.rang,
	}
	t.conn, err = grpcwire.New(t.pulse, grpcwire.Options{Authority: s.addr, TLS: !s.cfg.TLS.Disabled, MaxMessage: s.cfg.MaxMessage, Window: window})
	if err == nil {
		if err = t.read(); t.begun.IsZero() {
			err = s.explained(err) // TLS 1.3 refuses a certificate after the handshake
		}
	}
	st := s.state
	if st == nil { // what was sent was not taken
		return err
	}
	sent := st.settle()
	if t.failed != nil {
		return errors.Join(t.failed, sent)
	}
	if sent == nil && ctx.Err() == nil && !t.begun.IsZero() { // what came before the end is still good
		st.hand(ctx, out, nil)
		sent = st.settle()
	}
	return errors.Join(err, sent)
}

func (t *talk) read() error {
	t.basicTried = t.basic
	caps, err := t.capabilities()
	if err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	t.remembers(caps)
	if err := t.subscribe(); err != nil {
		return err
	}
	if err := t.beside(); err != nil {
		return err
	}
	for {
		ev, err := t.conn.Next()
		if err == nil {
			err = t.take(ev)
		}
		if err == nil && t.state.urgent() {
			err = t.flush()
		}
		if err != nil {
			return err
		}
	}
}

// subscribe begins the first call.
func (t *talk) subscribe() (err error) {
	if t.request, t.others = t.requests(t.caps); t.request == nil {
		return fmt.Errorf("%w: no preset of %s is for the models of this target", collectors.ErrProtocol, strings.Join(t.cfg.Presets, ", "))
	}
	t.state.begin()
	// The target has Timeout for its first message, and then three intervals between messages. One that
	// does not say when it has sent everything counts as having done so after Timeout.
	t.begun = time.Now()
	t.vain = 0
	if t.first, err = t.begin(methodSubscribe, t.request, true); err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	t.heard, t.ends = false, nil
	switch t.mode {
	case gpb.SubscriptionList_POLL: // some answer when they are asked to be polled, others wait for the first poll
		t.next = t.begun.Add(min(t.cfg.SampleInterval, t.cfg.Timeout/4))
		t.answers()
	case gpb.SubscriptionList_ONCE:
		t.next = t.begun.Add(t.cfg.SampleInterval)
		t.answers()
	default:
	}
	return nil
}

// beside begins the calls beside the first.
func (t *talk) beside() error {
	for _, other := range t.others {
		to := other.GetSubscribe().GetPrefix().GetTarget()
		if t.silenced[to] {
			continue
		}
		call, err := t.begin(methodSubscribe, other, true)
		if err != nil {
			return fmt.Errorf("subscribe: %w", err)
		}
		t.aside[call] = to
	}
	return nil
}

// answers begins an answer that tells all that there is: what it does not, is no more. A gateway may not know all yet.
func (t *talk) answers() {
	if end := t.state.replace(&elems{}, t.settings.Now(), true); !t.named {
		t.ends = end
	} else {
		t.ends = func() { t.state.replacing = nil }
	}
}

// answered ends it.
func (t *talk) answered() {
	t.state.synced()
	collectors.Contact(t.out)
	if t.ends != nil {
		t.ends()
		t.ends = nil
	}
}

// ask asks a target again that has no stream. One that still answers is left to do so.
func (t *talk) ask(now time.Time) error {
	if t.mode == gpb.SubscriptionList_STREAM || now.Before(t.next) {
		return nil
	}
	if regular := t.begun.Add(t.cfg.SampleInterval); t.heard && t.next.Before(regular) { // it needed no first poll
		t.next = regular
		return nil
	}
	if late := now.Sub(t.next) / t.cfg.SampleInterval; late > 0 {
		t.next = t.next.Add(late * t.cfg.SampleInterval)
		collectors.Skipped(t.out, int(late))
	}
	t.next = t.next.Add(t.cfg.SampleInterval)
	if t.ends != nil && (t.heard || t.mode == gpb.SubscriptionList_ONCE) {
		collectors.Skipped(t.out, 1)
		return nil
	}
	if t.ends == nil {
		t.answers()
	}
	if t.mode == gpb.SubscriptionList_POLL {
		raw, err := proto.Marshal(&gpb.SubscribeRequest{Request: &gpb.SubscribeRequest_Poll{Poll: &gpb.Poll{}}})
		if err != nil {
			return err
		}
		for call := range t.aside {
			if err := t.conn.Send(call, raw); err != nil {
				return fmt.Errorf("poll: %w", err)
			}
		}
		if err := t.conn.Send(t.first, raw); err != nil {
			return fmt.Errorf("poll: %w", err)
		}
		return nil
	}
	var err error
	if t.first, err = t.begin(methodSubscribe, t.request, true); err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	if len(t.aside) > 0 { // still answers
		return nil
	}
	return t.beside()
}

func (t *talk) begin(method string, m proto.Message, open bool) (uint32, error) {
	raw, err := proto.Marshal(m)
	if err != nil {
		return 0, err
	}
	metadata := t.shown
	if len(t.shown) == 4 && t.basic {
		metadata = append(metadata[:4:4], "authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(t.shown[1]+":"+t.shown[3])))
	}
	req := grpcwire.Request{Method: method, Metadata: metadata, Message: raw, Open: open}
	if !open {
		req.Timeout = t.cfg.Timeout
	}
	return t.conn.Begin(req)
}

// otherwise reports whether a refused credential is to be shown in the other way: some targets want it
// as HTTP's Basic (RFC 7617), which gNMI does not know of. It is tried once, lest an account be locked.
func (t *talk) otherwise(err error) bool {
	if status.Code(err) != codes.Unauthenticated || len(t.shown) != 4 {
		return false
	}
	if t.basicTried {
		t.basic, t.basicTried = false, false
		return false
	}
	t.basic, t.basicTried = true, true
	t.log.Info("target does not take the credential as gNMI shows it; showing it as HTTP Basic too")
	return true
}

// capabilities asks which models and encodings the target has; nil is a target that does not tell.
func (t *talk) capabilities() (*gpb.CapabilityResponse, error) {
	for {
		call, err := t.begin(methodCapabilities, &gpb.CapabilityRequest{}, false)
		if err != nil {
			return nil, err
		}
		var caps *gpb.CapabilityResponse
		for err == nil {
			var ev grpcwire.Event
			if ev, err = t.conn.Next(); err != nil {
				return nil, err
			}
			switch {
			case ev.Call != call:
			case ev.Done == nil:
				caps = &gpb.CapabilityResponse{}
				if proto.Unmarshal(ev.Message, caps) != nil {
					return nil, fmt.Errorf("%w: malformed message", collectors.ErrProtocol)
				}
			case ev.Done.Code() == codes.OK, ev.Done.Code() == codes.Unimplemented:
				return caps, nil
			default:
				err = ev.Done.Err()
			}
		}
		if !t.otherwise(err) {
			return nil, err
		}
	}
}

// take reads what came of a call.
func (t *talk) take(ev grpcwire.Event) error {
	target, aside := t.aside[ev.Call]
	if ev.Call != t.first && !aside {
		return nil
	}
	if ev.Done != nil {
		err := ev.Done.Err()
		switch {
		case err == nil && t.mode == gpb.SubscriptionList_ONCE:
			if !aside {
				t.answered()
			}
		case err == nil:
			return io.EOF
		case aside && t.silence(target, err):
			err = nil
		case !aside && t.otherwise(err):
			t.first, err = t.begin(methodSubscribe, t.request, true)
		case !aside && t.fallsBack(err, true):
			err = t.anew()
		case !aside && t.yields(err):
			err = t.subscribe() // what is asked beside goes on
		case !aside && t.fallsBack(err, false):
			err = t.anew()
		}
		if delete(t.aside, ev.Call); err != nil {
			return err
		}
		return nil
	}
	if err := t.message.Parse(ev.Message); err != nil {
		return fmt.Errorf("%w: %w", collectors.ErrProtocol, err)
	}
	if !aside {
		t.fresh, t.heard = true, true
		if t.message.Sync {
			t.answered()
		}
	}
	if len(t.message.Raw) == 0 {
		return nil
	}
	return t.state.response(&t.message)
}

// tick does what is due.
func (t *talk) tick(now time.Time) error {
	t.failed = t.due(now)
	return t.failed
}

// rang goes on when what was under way to the bus has come to an end.
func (t *talk) rang() error {
	if t.failed = t.state.sent(); t.failed == nil && (t.state.owed || t.state.urgent()) {
		t.failed = t.flush()
	}
	return t.failed
}

func (t *talk) due(now time.Time) error {
	t.vain += min(now.Sub(t.ticked), 2*time.Second, t.patience/4)
	t.ticked = now
	if t.fresh {
		t.fresh, t.vain, t.patience = false, 0, max(3*t.cfg.SampleInterval, t.cfg.Timeout, 3*t.quiet)
	}
	if t.vain >= t.patience {
		return fmt.Errorf("%w: no message in time", context.DeadlineExceeded)
	}
	if t.begun.IsZero() {
		return nil
	}
	if !t.state.sync && now.Sub(t.begun) >= t.cfg.Timeout {
		t.log.Warn("target sends updates but no sync_response")
		t.state.synced()
	}
	t.state.expire(t.settings.Now())
	if err := t.ask(now); err != nil {
		return err
	}
	began := time.Now()
	t.state.cabling.tell(t.ctx, began)
	if time.Since(began) > time.Second { // we did not listen meanwhile
		t.ticked = time.Now()
	}
	return t.flush()
}

// flush sends what waits. A bus that is slow slows the target down, until samples make room for newer ones.
func (t *talk) flush() error {
	began := time.Now()
	err := t.state.flush(t.ctx, t.out, t.pulse.ring)
	if time.Since(began) > time.Second { // as above
		t.ticked = time.Now()
	}
	return err
}

// anew subscribes in another mode.
func (t *talk) anew() error {
	clear(t.aside) // what comes of them is not taken any more
	if err := t.subscribe(); err != nil {
		return err
	}
	return t.beside()
}

// silence reports whether an error ends a call beside the first alone: the target knows nothing of it.
func (s *subscriber) silence(target string, err error) bool {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.NotFound, codes.Unimplemented:
		s.log.Info("target rejects the paths of a preset; skipping them", "of", target, "error", err)
		s.silenced[target] = true
		return true
	}
	return false
}

package target

import (
	"context"
	"errors"
	"io"
	"math"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// breath lies between two looks at a tree for one stream: what changes faster comes
	// together, and a stream of many subscriptions leaves the tree to its readers.
	breath = 20 * time.Millisecond
	// chunk is how many records of a log are read at once.
	chunk = 128
)

// Subscribe serves ONCE, POLL and STREAM (gNMI specification, section 3.5). Nothing
// waits in memory for a slow reader: it is told what holds when it can be told again.
func (s *Server) Subscribe(stream gpb.GNMI_SubscribeServer) error {
	who, err := s.cfg.Access.Admit(stream.Context())
	if err != nil {
		return err
	}
	leave, err := s.enter(who)
	if err != nil {
		return err
	}
	defer leave()
	asks := make(chan *gpb.SubscribeRequest)
	// The receiver ends with the stream, which ends with this call.
	ends := make(chan error, 1)
	go func() {
		for {
			req, err := stream.Recv()
			if err != nil {
				ends <- err
				return
			}
			select {
			case asks <- req:
			case <-stream.Context().Done():
				return
			}
		}
	}()
	first := time.NewTimer(s.cfg.Stall)
	defer first.Stop()
	u := &subscriber{s: s, ctx: stream.Context(), ends: ends, asks: asks}
	select {
	case err := <-ends:
		if errors.Is(err, io.EOF) {
			return status.Error(codes.InvalidArgument, "stream ended before the subscription")
		}
		return err
	case <-first.C:
		return status.Error(codes.DeadlineExceeded, "no subscription came")
	case req := <-asks:
		if u.list = req.GetSubscribe(); u.list == nil {
			return status.Error(codes.InvalidArgument, "first message of the stream must be a subscription list")
		}
	}
	if err := s.asked(u.list.GetEncoding(), u.list.GetUseModels()); err != nil {
		return err
	}
	if err := u.compile(); err != nil {
		return err
	}
	u.out, u.sent = make(chan *gpb.SubscribeResponse), make(chan error, 1)
	go func() {
		for r := range u.out {
			u.sent <- stream.Send(r)
		}
	}()
	defer close(u.out)
	switch u.list.GetMode() {
	case gpb.SubscriptionList_ONCE:
		return u.whole(u.list.GetUpdatesOnly())
	case gpb.SubscriptionList_POLL:
		return u.poll()
	case gpb.SubscriptionList_STREAM:
		return u.run()
	}
	return status.Errorf(codes.InvalidArgument, "subscription mode %d is not known", u.list.GetMode())
}

// part is one subscription, or the half of a TARGET_DEFINED one that has one mode.
type part struct {
	view      view
	onChange  bool
	interval  time.Duration
	suppress  bool
	heartbeat time.Duration
	next      time.Time
	nextBeat  time.Time
}

type subscriber struct {
	s     *Server
	ctx   context.Context
	list  *gpb.SubscriptionList
	asks  <-chan *gpb.SubscribeRequest
	ends  <-chan error
	out   chan *gpb.SubscribeResponse
	sent  chan error
	parts []part
	found []reading // of a look, used again

	logs [][]*gpb.PathElem // queries that name records of the log
	told uint64            // the newest record that was sent
}

func (u *subscriber) compile() error {
	switch n := len(u.list.GetSubscription()); {
	case n == 0:
		return status.Error(codes.InvalidArgument, "subscription list is empty")
	case n > u.s.cfg.Subscriptions:
		return status.Errorf(codes.ResourceExhausted, "%d subscriptions in one stream are more than %d", n, u.s.cfg.Subscriptions)
	}
	for _, sub := range u.list.GetSubscription() {
		query, err := resolve(u.list.GetPrefix(), sub.GetPath())
		if err != nil {
			return err
		}
		if u.s.cfg.Log != nil && below(query, logPath) {
			u.logs = append(u.logs, query)
		}
		if sub.GetSampleInterval() > math.MaxInt64 || sub.GetHeartbeatInterval() > math.MaxInt64 {
			return status.Errorf(codes.InvalidArgument, "interval of path %s is too long", pathString(query))
		}
		p := part{
			view: view{query: query}, interval: time.Duration(sub.GetSampleInterval()),
			suppress: sub.GetSuppressRedundant(), heartbeat: time.Duration(sub.GetHeartbeatInterval()),
		}
		least := u.s.cfg.MinSample
		tooShort := func(what string, d time.Duration) error {
			return status.Errorf(codes.InvalidArgument, "%s interval %s of path %s is below the least of %s", what, d, pathString(query), least)
		}
		if p.heartbeat > 0 && p.heartbeat < least {
			return tooShort("heartbeat", p.heartbeat)
		}
		if u.list.GetMode() != gpb.SubscriptionList_STREAM {
			u.parts = append(u.parts, p)
			continue
		}
		switch sub.GetMode() {
		case gpb.SubscriptionMode_SAMPLE:
			if p.interval == 0 {
				p.interval = least
			}
			if p.interval < least {
				return tooShort("sample", p.interval)
			}
			u.parts = append(u.parts, p)
		case gpb.SubscriptionMode_ON_CHANGE:
			p.onChange = true
			u.parts = append(u.parts, p)
		case gpb.SubscriptionMode_TARGET_DEFINED:
			// Numbers move all the time, the rest seldom.
			states, numbers := p, p
			states.onChange, states.view.want = true, func(v value) bool { return v.kind == text || v.kind == boolean }
			numbers.view.want = func(v value) bool { return v.kind != text && v.kind != boolean }
			if numbers.interval < least {
				numbers.interval = u.s.cfg.DefaultSample
			}
			u.parts = append(u.parts, states, numbers)
		default:
			return status.Errorf(codes.InvalidArgument, "mode %d of path %s is not known", sub.GetMode(), pathString(query))
		}
	}
	return nil
}

// send hands a message to the stream. A reader that leaves it unread for too long
// loses its stream, so that nobody holds one for nothing.
func (u *subscriber) send(r *gpb.SubscribeResponse) error {
	u.out <- r // its sender is free: the message before was sent
	select {
	case err := <-u.sent:
		return err
	default:
	}
	timer := time.NewTimer(u.s.cfg.Stall)
	defer timer.Stop()
	select {
	case err := <-u.sent:
		return err
	case <-u.ctx.Done():
		return status.FromContextError(u.ctx.Err()).Err()
	case <-timer.C:
		return status.Errorf(codes.Aborted, "a message was not read for %s", u.s.cfg.Stall)
	}
}

func (u *subscriber) update(n *gpb.Notification) error {
	return u.send(&gpb.SubscribeResponse{Response: &gpb.SubscribeResponse_Update{Update: n}})
}

// tell sends what a part names, or what of it changed; quiet only takes note of it.
func (u *subscriber) tell(p *part, changed, quiet bool) error {
	u.found = u.s.tree.look(&p.view, changed, u.found[:0])
	if quiet {
		return nil
	}
	for _, n := range notifications(prefixOf(u.list.GetPrefix()), u.list.GetEncoding(), u.found) {
		if err := u.update(n); err != nil {
			return err
		}
	}
	return nil
}

// records sends the records of the log up to the newest.
func (u *subscriber) records() error {
	if len(u.logs) == 0 {
		return nil
	}
	for {
		list, err := u.s.cfg.Log.Read(u.told, chunk)
		if err != nil {
			return status.Error(codes.Unavailable, err.Error())
		}
		if len(list) == 0 {
			return nil
		}
		for i := range list {
			for _, query := range u.logs {
				if n := list[i].notification(query, prefixOf(u.list.GetPrefix()), u.list.GetEncoding()); n != nil {
					if err := u.update(n); err != nil {
						return err
					}
				}
			}
			u.told = list[i].Sequence
		}
	}
}

// whole sends all values once and then the mark of synchronisation.
func (u *subscriber) whole(updatesOnly bool) error {
	for i := range u.parts {
		if err := u.tell(&u.parts[i], false, updatesOnly); err != nil {
			return err
		}
	}
	if len(u.logs) > 0 && updatesOnly {
		u.told = u.s.cfg.Log.Newest()
	}
	if err := u.records(); err != nil {
		return err
	}
	return u.send(&gpb.SubscribeResponse{Response: &gpb.SubscribeResponse_SyncResponse{SyncResponse: true}})
}

func (u *subscriber) poll() error {
	quiet := u.list.GetUpdatesOnly()
	for {
		select {
		case <-u.ctx.Done():
			return status.FromContextError(u.ctx.Err()).Err()
		case err := <-u.ends:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		case req := <-u.asks:
			if req.GetPoll() == nil {
				return status.Error(codes.InvalidArgument, "only poll messages may follow a POLL subscription")
			}
		}
		u.told = 0
		if err := u.whole(quiet); err != nil {
			return err
		}
		quiet = false
	}
}

func (u *subscriber) run() error {
	// Ask for the news before the first look, so that nothing falls between the two.
	news, more := u.s.tree.changed(), (<-chan struct{})(nil)
	if len(u.logs) > 0 {
		more = u.s.cfg.Log.Changed()
	}
	if err := u.whole(u.list.GetUpdatesOnly()); err != nil {
		return err
	}
	watching := false
	now := time.Now()
	for i := range u.parts {
		p := &u.parts[i]
		if p.next = now.Add(p.interval); p.heartbeat > 0 {
			p.nextBeat = now.Add(p.heartbeat)
		}
		watching = watching || p.onChange
	}
	if !watching {
		news = nil
	}
	ends, woken := u.ends, false
	looked := now
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		wake, ok := u.due()
		if next := looked.Add(breath); woken && (!ok || next.Before(wake)) {
			wake, ok = next, true
		}
		if timer.Stop(); ok {
			timer.Reset(max(0, time.Until(wake)))
		}
		select {
		case <-u.ctx.Done():
			return status.FromContextError(u.ctx.Err()).Err()
		case err := <-ends:
			if !errors.Is(err, io.EOF) {
				return err
			}
			ends = nil // who has no more to ask may go on to listen
			continue
		case <-u.asks:
			return status.Error(codes.InvalidArgument, "nothing may follow a STREAM subscription")
		case <-more:
			more = u.s.cfg.Log.Changed()
			if err := u.records(); err != nil {
				return err
			}
			continue
		case <-news:
			news = u.s.tree.changed()
			if woken = true; time.Since(looked) < breath {
				continue
			}
		case <-timer.C:
		}
		now := time.Now()
		if err := u.round(now, woken && now.Sub(looked) >= breath); err != nil {
			return err
		}
		if woken && now.Sub(looked) >= breath {
			woken, looked = false, now
		}
	}
}

// due returns when the first part is to be told by the clock.
func (u *subscriber) due() (first time.Time, ok bool) {
	earlier := func(t time.Time) {
		if !ok || t.Before(first) {
			first, ok = t, true
		}
	}
	for i := range u.parts {
		p := &u.parts[i]
		if !p.onChange {
			earlier(p.next)
		}
		if p.heartbeat > 0 {
			earlier(p.nextBeat)
		}
	}
	return first, ok
}

// round sends what is due, and with woken what changed.
func (u *subscriber) round(now time.Time, woken bool) error {
	for i := range u.parts {
		p := &u.parts[i]
		beat := p.heartbeat > 0 && !now.Before(p.nextBeat)
		due := !p.onChange && !now.Before(p.next)
		if !beat && !due && !(woken && p.onChange) {
			continue
		}
		if err := u.tell(p, !beat && (p.onChange || p.suppress), false); err != nil {
			return err
		}
		// A late round does not make up for what it missed.
		if due {
			if p.next = p.next.Add(p.interval); !now.Before(p.next) {
				p.next = now.Add(p.interval)
			}
		}
		if beat {
			p.nextBeat = now.Add(p.heartbeat)
		}
	}
	return nil
}

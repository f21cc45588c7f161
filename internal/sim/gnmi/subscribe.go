package gnmi

import (
	"errors"
	"io"
	"math"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Subscribe serves ONCE, POLL and STREAM (gNMI specification, section 3.5). It
// runs in the stream's own goroutine and sends with gRPC's flow control: a client
// that reads slowly blocks its own stream and misses samples, nobody else's.
func (s *Server) Subscribe(stream gpb.GNMI_SubscribeServer) error {
	if err := s.admit(stream.Context()); err != nil {
		return err
	}
	req, err := stream.Recv()
	if errors.Is(err, io.EOF) {
		return status.Error(codes.InvalidArgument, "stream ended before the subscription")
	}
	if err != nil {
		return err
	}
	list := req.GetSubscribe()
	if list == nil {
		return status.Error(codes.InvalidArgument, "first message of the stream must be a subscription list")
	}
	if err := checkEncoding(list.GetEncoding()); err != nil {
		return err
	}
	sub := &subscriber{
		s: s, stream: stream, list: list,
		w: writer{enc: list.GetEncoding(), prefix: &gpb.Path{Origin: "openconfig", Target: list.GetPrefix().GetTarget()}},
	}
	if err := sub.compile(); err != nil {
		return err
	}
	switch list.GetMode() {
	case gpb.SubscriptionList_ONCE:
		return sub.whole(list.GetUpdatesOnly())
	case gpb.SubscriptionList_POLL:
		return sub.poll()
	case gpb.SubscriptionList_STREAM:
		return sub.run()
	}
	return status.Errorf(codes.InvalidArgument, "subscription mode %d is not known", list.GetMode())
}

// part is one subscription, or the half of a TARGET_DEFINED one that has one mode.
type part struct {
	query     []*gpb.PathElem
	want      func(*leaf) bool
	groups    []group
	onChange  bool
	watchOnly bool          // ON_CHANGE where every leaf is announced by Watch
	interval  time.Duration // of samples, or of looks at unannounced values
	suppress  bool
	heartbeat time.Duration
	next      time.Time
	nextBeat  time.Time
}

type subscriber struct {
	s      *Server
	stream gpb.GNMI_SubscribeServer
	list   *gpb.SubscriptionList
	w      writer
	tree   *tree
	parts  []part
}

func (u *subscriber) compile() error {
	if len(u.list.GetSubscription()) == 0 {
		return status.Error(codes.InvalidArgument, "subscription list is empty")
	}
	u.tree = u.s.tree(u.s.snapshot())
	all := func(*leaf) bool { return true }
	for _, sub := range u.list.GetSubscription() {
		query, err := resolve(u.list.GetPrefix(), sub.GetPath())
		if err != nil {
			return err
		}
		if sub.GetSampleInterval() > math.MaxInt64 || sub.GetHeartbeatInterval() > math.MaxInt64 {
			return status.Errorf(codes.InvalidArgument, "interval of path %s is too long", pathString(query))
		}
		p := part{
			query: query, want: all, interval: time.Duration(sub.GetSampleInterval()),
			suppress: sub.GetSuppressRedundant(), heartbeat: time.Duration(sub.GetHeartbeatInterval()),
		}
		if p.heartbeat > 0 && p.heartbeat < minSample {
			return status.Errorf(
				codes.InvalidArgument, "heartbeat interval %s of path %s is below the least of %s", p.heartbeat, pathString(query), minSample,
			)
		}
		if u.list.GetMode() != gpb.SubscriptionList_STREAM {
			u.parts = append(u.parts, p)
			continue
		}
		switch sub.GetMode() {
		case gpb.SubscriptionMode_SAMPLE:
			if p.interval == 0 {
				p.interval = minSample
			}
			if p.interval < minSample {
				return status.Errorf(
					codes.InvalidArgument, "sample interval %s of path %s is below the least of %s", p.interval, pathString(query), minSample,
				)
			}
			u.parts = append(u.parts, p)
		case gpb.SubscriptionMode_ON_CHANGE:
			p.onChange, p.interval = true, counterCheck
			u.parts = append(u.parts, p)
		case gpb.SubscriptionMode_TARGET_DEFINED:
			states, counters := p, p
			states.want, states.onChange, states.interval = func(l *leaf) bool { return l.state }, true, counterCheck
			counters.want = func(l *leaf) bool { return !l.state }
			if counters.interval < minSample {
				counters.interval = defaultSample
			}
			u.parts = append(u.parts, states, counters)
		default:
			return status.Errorf(codes.InvalidArgument, "mode %d of path %s is not known", sub.GetMode(), pathString(query))
		}
	}
	for i := range u.parts {
		if err := u.find(&u.parts[i]); err != nil {
			return err
		}
	}
	return nil
}

func (u *subscriber) find(p *part) error {
	var known bool
	p.groups, known = u.tree.find(p.query, p.want)
	if !known {
		return status.Errorf(codes.InvalidArgument, "path %s is not in the supported models", pathString(p.query))
	}
	p.watchOnly = p.onChange
	for i := range p.groups {
		g := &p.groups[i]
		if p.onChange || p.suppress {
			g.last = make([]value, len(g.leaves))
		}
		for _, j := range g.leaves {
			p.watchOnly = p.watchOnly && g.object.leaves[j].state
		}
	}
	return nil
}

// refresh follows a change of the switch's ports or parts.
func (u *subscriber) refresh(snap *snapshot) error {
	t := u.s.tree(snap)
	if t == u.tree {
		return nil
	}
	u.tree = t
	for i := range u.parts {
		if err := u.find(&u.parts[i]); err != nil {
			return err
		}
	}
	return nil
}

// send sends the values of a part; quiet only remembers them.
func (u *subscriber) send(p *part, snap *snapshot, changed, quiet bool) error {
	u.w.garble = u.s.sw.Fault().Garble
	for i := range p.groups {
		n := u.w.notification(&p.groups[i], snap, changed)
		if n == nil || quiet {
			continue
		}
		if err := u.stream.Send(&gpb.SubscribeResponse{Response: &gpb.SubscribeResponse_Update{Update: n}}); err != nil {
			return err
		}
	}
	return nil
}

// whole sends all values once and then the mark of synchronisation.
func (u *subscriber) whole(updatesOnly bool) error {
	snap := u.s.snapshot()
	if err := u.refresh(snap); err != nil {
		return err
	}
	for i := range u.parts {
		if err := u.send(&u.parts[i], snap, false, updatesOnly); err != nil {
			return err
		}
	}
	return u.stream.Send(&gpb.SubscribeResponse{Response: &gpb.SubscribeResponse_SyncResponse{SyncResponse: true}})
}

func (u *subscriber) poll() error {
	quiet := u.list.GetUpdatesOnly()
	for {
		req, err := u.stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if req.GetPoll() == nil {
			return status.Error(codes.InvalidArgument, "only poll messages may follow a POLL subscription")
		}
		if err := u.s.stall(u.stream.Context()); err != nil {
			return err
		}
		if err := u.whole(quiet); err != nil {
			return err
		}
		quiet = false
	}
}

func (u *subscriber) run() error {
	// Watch before the first look, so that no change falls between the two.
	changed, cancel := u.s.sw.Watch()
	defer cancel()
	if err := u.whole(u.list.GetUpdatesOnly()); err != nil {
		return err
	}
	watching := false
	now := time.Now()
	for i := range u.parts {
		p := &u.parts[i]
		p.next = now.Add(p.interval)
		if p.heartbeat > 0 {
			p.nextBeat = now.Add(p.heartbeat)
		}
		watching = watching || p.onChange
	}
	if !watching {
		changed = nil
	}
	ctx := u.stream.Context()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if d, ok := u.wait(time.Now()); ok {
			timer.Reset(d)
		} else {
			timer.Stop()
		}
		woken := false
		select {
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case _, ok := <-changed:
			if !ok {
				changed = nil
			}
			woken = true
		case <-timer.C:
		}
		if err := u.s.stall(ctx); err != nil {
			return err
		}
		snap := u.s.snapshot()
		if err := u.refresh(snap); err != nil {
			return err
		}
		if err := u.round(snap, time.Now(), woken); err != nil {
			return err
		}
	}
}

// wait returns the time until the first part is due.
func (u *subscriber) wait(now time.Time) (time.Duration, bool) {
	var first time.Time
	earlier := func(t time.Time) {
		if first.IsZero() || t.Before(first) {
			first = t
		}
	}
	for i := range u.parts {
		p := &u.parts[i]
		if !p.watchOnly {
			earlier(p.next)
		}
		if p.heartbeat > 0 {
			earlier(p.nextBeat)
		}
	}
	if first.IsZero() {
		return 0, false
	}
	return max(0, first.Sub(now)), true
}

// round sends what is due.
func (u *subscriber) round(snap *snapshot, now time.Time, woken bool) error {
	for i := range u.parts {
		p := &u.parts[i]
		beat := p.heartbeat > 0 && !now.Before(p.nextBeat)
		due := !p.watchOnly && !now.Before(p.next)
		if !beat && !due && !(woken && p.onChange) {
			continue
		}
		if err := u.send(p, snap, !beat && (p.onChange || p.suppress), false); err != nil {
			return err
		}
		// A late round does not make up for what it missed.
		if due {
			p.next = p.next.Add(p.interval)
			if !now.Before(p.next) {
				p.next = now.Add(p.interval)
			}
		}
		if beat {
			p.nextBeat = now.Add(p.heartbeat)
		}
	}
	return nil
}

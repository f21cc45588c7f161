package control

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"auspex/control/messages"
	"auspex/control/policy"
	"auspex/schemas"
)

// Limiter is a driver that knows how servers are kept from drawing more than they should.
type Limiter interface {
	Capper(s Settings) (Capper, error)
}

// Capper limits what servers draw. It writes a limit as a text of its own, in which what somebody else has set can be put back.
type Capper interface {
	// Whole reports whether its limits are of servers, and not of their GPUs alone.
	Whole() bool
	// Use reads what a server draws and how it is limited, by one way, or by the best there is where that is "". An error that wraps
	// ErrCannot is of a server that cannot be asked at all.
	Use(ctx context.Context, server, way string) (Use, error)
	// To writes a limit in watts.
	To(u Use, watts float64) (string, error)
	// Set puts a limit in force, once; "" takes it away. An error that wraps ErrRejected means that nothing was done.
	Set(ctx context.Context, server, way, to, request string) error
}

// Use is what a server draws and how it is limited, in watts.
type Use struct {
	Draw     float64 // NaN where nobody measures
	Limit    float64 // 0 is none
	Min, Max float64 // of a limit; 0 where nobody says
	Way      string  // by which it can be limited; "" is none
	Is       string  // the limit as the way writes it; "" is none

	// Of a way that limits the GPUs of a server alone: how many they are, and together what they draw, may draw (0 is that none is limited)
	// and must be allowed.
	Parts                           int
	PartsDraw, PartsLimit, PartsMin float64
}

// whole makes what is said of the GPUs of a server one of all of it, which needs what the rest of it draws.
func (u *Use) whole() {
	if u.Parts == 0 || math.IsNaN(u.Draw) {
		return
	}
	rest := max(0, u.Draw-u.PartsDraw)
	u.Min = rest + u.PartsMin
	if u.PartsLimit > 0 {
		u.Limit = rest + u.PartsLimit
	}
}

// Caps keeps what limits we have set, and what was set before.
type Caps interface {
	Put(ctx context.Context, c schemas.PowerCap) error
	Of(ctx context.Context, server string) (c schemas.PowerCap, found bool, err error)
	OfFeed(ctx context.Context, feed string) ([]schemas.PowerCap, error)
}

// limiter limits what servers draw: one of them for a request, and for an incident all that hang on what is left of a feed.
type limiter struct {
	cappers []Capper // the best first
	caps    Caps
	feeds   func(pdu string) (Feed, bool)
	now     func() time.Time

	feedNotes
}

// limiters makes the remediators of the kinds that limit what servers draw.
func limiters(cappers []Capper, s Settings) map[string]Remediator {
	if len(cappers) == 0 || s.Caps == nil {
		return nil
	}
	slices.SortStableFunc(cappers, func(a, b Capper) int {
		if a.Whole() == b.Whole() {
			return 0
		} else if a.Whole() {
			return -1
		}
		return 1
	})
	l := &limiter{cappers: cappers, caps: s.Caps, feeds: s.Feeds, now: s.Now}
	if l.feeds == nil {
		l.feeds = func(string) (Feed, bool) { return Feed{}, false }
	}
	if l.now == nil {
		l.now = time.Now
	}
	return map[string]Remediator{policy.KindCap: capping{l}, policy.KindUncap: uncapping{l}}
}

// use reads a server, by the way that is asked for or the best one that it has. What it draws may be read by another than limits it.
func (l *limiter) use(ctx context.Context, server, way string) (u Use, by Capper, err error) {
	u.Draw = math.NaN()
	var errs []error
	for _, c := range l.cappers {
		if by != nil && !math.IsNaN(u.Draw) {
			break
		}
		one, err := c.Use(ctx, server, way)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		draw := u.Draw
		if math.IsNaN(draw) {
			draw = one.Draw
		}
		if by == nil && one.Way != "" {
			u, by = one, c
		}
		u.Draw = draw
	}
	if by == nil && math.IsNaN(u.Draw) && len(errs) > 0 {
		return u, nil, errors.Join(errs...)
	}
	u.whole()
	return u, by, nil
}

// watts writes a number of watts; none is said so.
func watts(w float64) string {
	if w <= 0 || math.IsNaN(w) {
		return "none"
	}
	return strconv.FormatFloat(math.Round(w), 'f', -1, 64) + " W"
}

// drawn writes what a server draws.
func drawn(w float64) string {
	if math.IsNaN(w) {
		return "what nobody reads"
	}
	return strconv.FormatFloat(math.Round(w), 'f', -1, 64) + " W"
}

// before writes what was set before.
func before(is string) string {
	if is == "" {
		return "none"
	}
	if w, err := strconv.ParseFloat(is, 64); err == nil {
		return watts(w)
	}
	return is
}

func about(server string, u Use, limit float64) messages.Args {
	return messages.Args{"server": server, "watts": math.Round(limit), "way": u.Way, "draw": drawn(u.Draw), "limit": watts(u.Limit)}
}

// cannotLimit says that there is no way to limit a server.
func cannotLimit(server string) error {
	return fmt.Errorf("%w: %s has no power limit that can be set: neither Redfish's PowerLimit nor DCMI's nor those of GPUs through an agent", ErrCannot, server)
}

// check says what speaks against a limit.
func (u *Use) check(server string, limit float64) error {
	switch {
	case u.Way == "":
		return cannotLimit(server)
	case u.Min > 0 && limit < u.Min:
		return fmt.Errorf("%w: %s takes no limit below %s", ErrCannot, server, watts(u.Min))
	case u.Max > 0 && limit > u.Max:
		return fmt.Errorf("%w: %s takes no limit above %s", ErrCannot, server, watts(u.Max))
	}
	return nil
}

// lower limits one server. What was set before is kept first, but for a limit of ours: then what was set before that.
func (l *limiter) lower(ctx context.Context, s Step, server, feed string, limit float64, u Use, by Capper) error {
	if err := u.check(server, limit); err != nil {
		return fmt.Errorf("%w: %w", ErrRejected, err)
	}
	to, err := by.To(u, limit)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRejected, err)
	}
	was, found, err := l.caps.Of(ctx, server)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRejected, err)
	}
	c := schemas.PowerCap{Server: server, Feed: feed, Action: s.ID, Way: u.Way, Watts: limit, To: to, Before: u.Is, Set: l.now().UTC()}
	if !math.IsNaN(u.Draw) {
		c.Drew = u.Draw
	}
	ours := found && was.Released.IsZero() && was.Way == u.Way && (was.To == u.Is || was.Earlier == u.Is && u.Is != "")
	switch {
	case ours:
		c.Before, c.Earlier = was.Before, u.Is
	case u.Limit > 0 && u.Limit <= limit:
		return fmt.Errorf("%s is limited to %s: %w", server, watts(u.Limit), ErrAlready)
	}
	if err := l.caps.Put(ctx, c); err != nil {
		return fmt.Errorf("%w: %w", ErrRejected, err)
	}
	err = by.Set(ctx, server, u.Way, to, s.ID)
	if errors.Is(err, ErrRejected) {
		if ours {
			c = was
		} else {
			c.Why, c.Released = err.Error(), l.now().UTC()
		}
		return errors.Join(err, l.caps.Put(ctx, c))
	}
	return err
}

// slack is by how much of a limit what is drawn may be above it: a controller regulates around it.
const slack = .02

// lowered reads back whether one server has a limit, and draws less.
func (l *limiter) lowered(ctx context.Context, server, way, to string, limit float64) (bool, schemas.Sentence, error) {
	u, by, err := l.use(ctx, server, way)
	if err != nil {
		return false, schemas.Sentence{}, err
	}
	args := about(server, u, limit)
	switch {
	case by == nil:
		return false, schemas.Sentence{}, cannotLimit(server)
	case u.Is != to && (u.Limit <= 0 || u.Limit > limit):
		return false, messages.New(messages.CapUnset, args), nil
	case u.Draw > limit*(1+slack):
		return false, messages.New(messages.CapAbove, args), nil
	}
	return true, messages.New(messages.CapIs, args), nil
}

// raise takes a limit of ours back; ErrAlready is that it is not there any more.
func (l *limiter) raise(ctx context.Context, s Step, c schemas.PowerCap) error {
	u, by, err := l.use(ctx, c.Server, c.Way)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrRejected, err)
	case by == nil:
		return fmt.Errorf("%w: %w", ErrRejected, cannotLimit(c.Server))
	case !stillOurs(c, u):
		return fmt.Errorf("the limit of %s is %s: %w", c.Server, watts(u.Limit), ErrAlready)
	}
	return by.Set(ctx, c.Server, c.Way, c.Before, s.ID)
}

// stillOurs reports whether a limit of ours is in force.
func stillOurs(c schemas.PowerCap, u Use) bool {
	return u.Is != c.Before && (u.Is == c.To || c.Earlier != "" && u.Is == c.Earlier)
}

// raised reads back whether a limit is as it was before, or somebody else's, and notes that it is ours no more.
func (l *limiter) raised(ctx context.Context, c schemas.PowerCap) (bool, schemas.Sentence, error) {
	u, by, err := l.use(ctx, c.Server, c.Way)
	if err == nil && by == nil {
		err = cannotLimit(c.Server)
	}
	if err != nil {
		return false, schemas.Sentence{}, err
	}
	args := about(c.Server, u, c.Watts)
	if stillOurs(c, u) {
		return false, messages.New(messages.CapStill, args), nil
	}
	id := messages.CapGone
	if u.Is != c.Before {
		id = messages.CapOther
	}
	if c.Released.IsZero() {
		c.Released = l.now().UTC()
		if err := l.caps.Put(ctx, c); err != nil {
			return false, schemas.Sentence{}, err
		}
	}
	return true, messages.New(id, args), nil
}

// capping is the remediator of cap_power.
type capping struct{ *limiter }

func limitOf(s Step) (float64, error) {
	w, err := strconv.ParseFloat(s.With[policy.Watts], 64)
	if err != nil || w <= 0 {
		return 0, fmt.Errorf("%w: %s is %q, no number of watts", ErrCannot, policy.Watts, s.With[policy.Watts])
	}
	return w, nil
}

// Plan implements Remediator.
func (c capping) Plan(ctx context.Context, s Step) (schemas.Sentence, error) {
	if feed, ok := c.feeds(s.Server); ok {
		return c.wouldLower(ctx, s.Server, feed)
	}
	limit, err := limitOf(s)
	if err != nil {
		return schemas.Sentence{}, err
	}
	u, _, err := c.use(ctx, s.Server, "")
	if err != nil {
		return schemas.Sentence{}, err
	}
	return messages.New(messages.WouldCap, about(s.Server, u, limit)), u.check(s.Server, limit)
}

// Apply implements Remediator.
func (c capping) Apply(ctx context.Context, s Step) error {
	if feed, ok := c.feeds(s.Server); ok {
		return c.lowerAll(ctx, s, feed)
	}
	limit, err := limitOf(s)
	if err != nil {
		return err
	}
	u, by, err := c.use(ctx, s.Server, "")
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRejected, err)
	}
	return c.lower(ctx, s, s.Server, "", limit, u, by)
}

// Verify implements Remediator.
func (c capping) Verify(ctx context.Context, s Step) (Verdict, schemas.Sentence, error) {
	if _, ok := c.feeds(s.Server); ok {
		return c.loweredAll(ctx, s)
	}
	limit, err := limitOf(s)
	if err != nil {
		return Pending, schemas.Sentence{}, err
	}
	way, to := "", ""
	if was, found, err := c.caps.Of(ctx, s.Server); err != nil {
		return Pending, schemas.Sentence{}, err
	} else if found && was.Action == s.ID {
		way, to = was.Way, was.To
	}
	ok, how, err := c.lowered(ctx, s.Server, way, to, limit)
	if ok {
		return Verified, how, err
	}
	return Pending, how, err
}

// uncapping is the remediator of uncap_power.
type uncapping struct{ *limiter }

// ours are the limits that a step takes back.
func (c uncapping) ours(ctx context.Context, s Step) (out []schemas.PowerCap, err error) {
	if _, ok := c.feeds(s.Server); ok {
		out, err = c.caps.OfFeed(ctx, s.Server)
	} else {
		one, found, e := c.caps.Of(ctx, s.Server)
		if err = e; found {
			out = []schemas.PowerCap{one}
		}
	}
	return slices.DeleteFunc(out, func(c schemas.PowerCap) bool { return !c.Released.IsZero() }), err
}

// Plan implements Remediator.
func (c uncapping) Plan(ctx context.Context, s Step) (schemas.Sentence, error) {
	all, err := c.ours(ctx, s)
	if err != nil {
		return schemas.Sentence{}, err
	}
	switch len(all) {
	case 0:
		return messages.New(messages.CapNone, messages.Args{"server": s.Server}), nil
	case 1:
		one := all[0]
		return messages.New(messages.WouldUncap, messages.Args{"server": one.Server, "watts": math.Round(one.Watts), "before": before(one.Before), "way": one.Way}), nil
	}
	var texts []string
	for _, one := range all {
		texts = append(texts, fmt.Sprintf("%s %s → %s", one.Server, watts(one.Watts), before(one.Before)))
	}
	return messages.New(messages.WouldUncapAll, messages.Args{"n": len(all), "limits": some(texts)}), nil
}

// Settled implements Settler.
func (c uncapping) Settled(ctx context.Context, s Step) (bool, schemas.Sentence, error) {
	all, err := c.ours(ctx, s)
	return len(all) == 0, messages.New(messages.CapNone, messages.Args{"server": s.Server}), err
}

// Lasts implements Lasting.
func (c uncapping) Lasts() time.Duration { return manyLast }

// Apply implements Remediator. One that cannot be reached leaves the others to go on.
func (c uncapping) Apply(ctx context.Context, s Step) error {
	all, err := c.ours(ctx, s)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRejected, err)
	}
	if len(all) == 1 {
		return c.raise(ctx, s, all[0])
	}
	return ofMany(together(all, func(one schemas.PowerCap) error { return c.raise(ctx, s, one) }))
}

// Pursue implements Pursuer: what could not be reached before is asked again.
func (c uncapping) Pursue(ctx context.Context, s Step) error {
	if _, ok := c.feeds(s.Server); !ok {
		return nil
	}
	all, err := c.ours(ctx, s)
	if err != nil {
		return err
	}
	together(all, func(one schemas.PowerCap) error { return c.raise(ctx, s, one) })
	return nil // Verify says what is left
}

// Verify implements Remediator.
func (c uncapping) Verify(ctx context.Context, s Step) (Verdict, schemas.Sentence, error) {
	all, err := c.ours(ctx, s)
	if err != nil {
		return Pending, schemas.Sentence{}, err
	}
	if len(all) == 0 {
		return Verified, messages.New(messages.CapNone, messages.Args{"server": s.Server}), nil
	}
	saw := make([]schemas.Sentence, len(all))
	gone := make([]bool, len(all))
	at := map[string]int{}
	for i, one := range all {
		at[one.Server] = i
	}
	errs := together(all, func(one schemas.PowerCap) (err error) {
		i := at[one.Server]
		gone[i], saw[i], err = c.raised(ctx, one)
		return err
	})
	if len(all) == 1 {
		if gone[0] {
			return Verified, saw[0], errs[0]
		}
		return Pending, saw[0], errs[0]
	}
	var left []string
	for i, one := range all {
		if !gone[i] {
			left = append(left, unlike(one.Server, saw[i], errs[i]))
		}
	}
	args := messages.Args{"n": len(all), "done": len(all) - len(left), "left": some(left)}
	if len(left) > 0 {
		return Pending, messages.New(messages.FeedNotFreed, args), nil
	}
	return Verified, messages.New(messages.FeedFreed, args), nil
}

// unlike says of a server why it is not as it should be.
func unlike(server string, saw schemas.Sentence, err error) string {
	if err != nil {
		return server + ": " + err.Error()
	}
	return messages.Text(saw)
}

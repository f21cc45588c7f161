package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"auspex/control/messages"
	"auspex/control/policy"
	"auspex/schemas"
)

// Feed is what is left where a power distribution unit gives no power.
type Feed struct {
	Units []Unit // those that feed servers of the lost one as well
}

// Unit is a power distribution unit with all that hangs on it.
type Unit struct {
	PDU schemas.Resource
	// Servers are those that hang on it, with the part of what they draw that comes from it while the lost one gives none: the supplies of
	// a server share what it draws.
	Servers map[string]float64
}

// Examiner is a remediator with checks of its own, for which it reads the world.
type Examiner interface {
	// Examine returns them; none for a step that needs none.
	Examine(ctx context.Context, s Step) ([]schemas.Rail, error)
}

const (
	railLoad   = "feed_load_watts"
	railRating = "feed_rating_watts"
)

const (
	// margin is the part of a rating that servers are brought down to, since they draw a little more than their limits at times.
	margin = .95
	// least is the part of what it draws below which no server is brought by a feed: what cannot be held then is told.
	least = .3
	// fresh is for how long what was read of a feed is used again while a step waits.
	fresh = 15 * time.Second
	// atOnce is how many controllers are spoken to at the same time.
	atOnce = 16
	// manyLast bounds a step on all servers of a feed.
	manyLast = 3 * time.Minute
)

// feedNotes is what was read of feeds last.
type feedNotes struct {
	mu     sync.Mutex
	read   map[string]reads // by the PDU that was lost
	stages map[string][]schemas.Stage
}

// reads are servers as they were read.
type reads struct {
	at   time.Time
	uses map[string]Use
	by   map[string]Capper
	errs map[string]error
}

// together does something for many at the same time, and returns an error for each.
func together[T any](of []T, do func(T) error) []error {
	errs := make([]error, len(of))
	var wg sync.WaitGroup
	turns := make(chan struct{}, atOnce)
	for i := range of {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			errs[i] = do(of[i])
		})
	}
	wg.Wait()
	return errs
}

// ofMany is the error of a step on many: that nothing was done, where none was asked for anything; none, where one was, since what became of
// each is read back.
func ofMany(errs []error) error {
	already := false
	for _, err := range errs {
		if err == nil || !errors.Is(err, ErrRejected) && !errors.Is(err, ErrAlready) {
			return nil
		}
		already = already || errors.Is(err, ErrAlready)
	}
	if already {
		return nil
	}
	return errors.Join(errs...)
}

// servers are all that hang on what is left.
func (f *Feed) servers() []string {
	all := map[string]bool{}
	for _, u := range f.Units {
		for s := range u.Servers {
			all[s] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// readAll reads what the servers of a feed draw, not again where that was a moment ago.
func (l *limiter) readAll(ctx context.Context, pdu string, f *Feed, again bool) reads {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r, ok := l.read[pdu]; ok && !again && l.now().Sub(r.at) < fresh {
		return r
	}
	r := reads{uses: map[string]Use{}, by: map[string]Capper{}, errs: map[string]error{}}
	servers := f.servers()
	uses, by := make([]Use, len(servers)), make([]Capper, len(servers))
	numbers := make([]int, len(servers))
	for i := range numbers {
		numbers[i] = i
	}
	errs := together(numbers, func(i int) (err error) { uses[i], by[i], err = l.use(ctx, servers[i], ""); return err })
	for i, s := range servers {
		if errs[i] != nil {
			r.errs[s] = errs[i]
		} else {
			r.uses[s], r.by[s] = uses[i], by[i]
		}
	}
	r.at = l.now()
	if l.read == nil {
		l.read = map[string]reads{}
	}
	l.read[pdu] = r
	return r
}

// share is how far the servers on what is left must come down.
type share struct {
	rails    []schemas.Rail
	limits   map[string]float64 // by server; empty where nothing need be done
	overload bool
}

func rail(name string, value, limit float64, ok bool, id string, args messages.Args) schemas.Rail {
	s := messages.New(id, args)
	return schemas.Rail{Name: name, Value: value, Limit: limit, OK: ok, Detail: messages.Text(s), Sentence: &s}
}

// divide says of each unit what it carries and whether it would trip, and then how far each server comes down: all to the same part of
// what they draw, so that the limits together are what the unit carries whatever the servers do next. Fixed ones cannot be limited.
func divide(pdu string, f *Feed, r *reads, fixed map[string]bool) (d share) {
	d.limits = map[string]float64{}
	if len(f.Units) == 0 {
		d.rails = append(d.rails, rail(railRating, 0, 0, false, messages.FeedAlone, messages.Args{"unit": pdu}))
		return d
	}
	most := 0.0
	for _, u := range r.uses {
		if u.Draw > most {
			most = u.Draw
		}
	}
	type carried struct {
		Unit
		rating, load float64
		unread       int
		part         float64
	}
	var units []carried
	for _, u := range f.Units {
		c := carried{Unit: u}
		c.rating, _ = strconv.ParseFloat(u.PDU.Attrs.Get(schemas.AttrRating), 64)
		still := 0.0 // that cannot be limited
		for server, part := range u.Servers {
			use, read := r.uses[server]
			draw := use.Draw
			if !read || math.IsNaN(draw) { // it may draw as much as any other
				draw = most
				c.unread++
			}
			c.load += part * draw
			if !read || math.IsNaN(use.Draw) || use.Way == "" || fixed[server] {
				still += part * draw
			}
		}
		if c.rating > 0 && c.unread < len(u.Servers) && c.load > c.rating {
			d.overload = true
			c.part = 1
			if c.load > still {
				c.part = max(least, (margin*c.rating-still)/(c.load-still))
			}
			for server := range u.Servers {
				use, read := r.uses[server]
				if !read || math.IsNaN(use.Draw) || use.Way == "" || fixed[server] {
					continue
				}
				limit := max(1, math.Floor(use.Draw*c.part), use.Min)
				if before, other := d.limits[server]; !other || limit < before {
					d.limits[server] = limit
				}
			}
		}
		units = append(units, c)
	}
	for i := range units {
		c := &units[i]
		args := messages.Args{
			"unit": c.PDU.ID, "load": math.Round(c.load), "rating": math.Round(c.rating), "n": len(c.Servers), "unread": c.unread, "percent": math.Floor(c.part * 100),
			"limits": d.texts(r, c.Servers), "errors": unread(r, c.Servers),
		}
		switch {
		case c.rating <= 0:
			d.rails = append(d.rails, rail(railRating, 0, 0, d.overload, messages.FeedUnrated, args))
		case c.unread == len(c.Servers):
			d.rails = append(d.rails, rail(railLoad, 0, c.rating, d.overload, messages.FeedUnread, args))
		case c.part > 0:
			d.rails = append(d.rails, rail(railLoad, math.Round(c.load), c.rating, true, messages.FeedTrips, args))
		default:
			d.rails = append(d.rails, rail(railLoad, math.Round(c.load), c.rating, d.overload, messages.FeedHolds, args))
		}
	}
	return d
}

// texts writes the limits of some servers with what they draw.
func (d *share) texts(r *reads, of map[string]float64) string {
	var out []string
	for _, s := range slices.Sorted(maps.Keys(of)) {
		if limit, ok := d.limits[s]; ok {
			out = append(out, fmt.Sprintf("%s %s → %s", s, drawn(r.uses[s].Draw), watts(limit)))
		}
	}
	return some(out)
}

func unread(r *reads, of map[string]float64) string {
	var out []string
	for _, s := range slices.Sorted(maps.Keys(of)) {
		if err := r.errs[s]; err != nil {
			out = append(out, s+": "+err.Error())
		}
	}
	return some(out)
}

// Examine implements Examiner.
func (c capping) Examine(ctx context.Context, s Step) ([]schemas.Rail, error) {
	feed, ok := c.feeds(s.Server)
	if !ok {
		return nil, nil
	}
	r := c.readAll(ctx, s.Server, &feed, false)
	d := divide(s.Server, &feed, &r, nil)
	return d.rails, nil
}

// Lasts implements Lasting.
func (c capping) Lasts() time.Duration { return manyLast }

func (c capping) wouldLower(ctx context.Context, pdu string, feed Feed) (schemas.Sentence, error) {
	r := c.readAll(ctx, pdu, &feed, false)
	d := divide(pdu, &feed, &r, nil)
	if !d.overload {
		return *d.rails[0].Sentence, nil
	}
	all := map[string]float64{}
	for _, u := range feed.Units {
		maps.Copy(all, u.Servers)
	}
	return messages.New(messages.WouldCapAll, messages.Args{"n": len(d.limits), "feed": pdu, "limits": d.texts(&r, all)}), nil
}

// lowerAll limits all servers of a feed at the same time. What one that refuses goes on drawing, the others make up for.
func (c capping) lowerAll(ctx context.Context, s Step, feed Feed) error {
	r := c.readAll(ctx, s.Server, &feed, true)
	fixed, sent := map[string]bool{}, false
	var last []error
	for range 2 {
		d := divide(s.Server, &feed, &r, fixed)
		if !d.overload && !sent {
			return fmt.Errorf("%w: %s", ErrRejected, messages.Text(*d.rails[0].Sentence))
		}
		servers := slices.Sorted(maps.Keys(d.limits))
		errs := together(servers, func(server string) error {
			u := r.uses[server]
			if sent { // what the first round set, it reads as ours
				var err error
				if u, _, err = c.use(ctx, server, u.Way); err != nil {
					return err
				}
			}
			return c.lower(ctx, s, server, s.Server, d.limits[server], u, r.by[server])
		})
		refused := false
		for i, err := range errs {
			switch {
			case err == nil || !errors.Is(err, ErrRejected) && !errors.Is(err, ErrAlready):
				sent = true
			case errors.Is(err, ErrRejected) && !fixed[servers[i]]:
				fixed[servers[i]], refused = true, true
				last = append(last, err)
			}
		}
		if !refused {
			break
		}
	}
	if !sent {
		return ofMany(last)
	}
	return nil
}

// loweredAll reads back what a step set.
func (c capping) loweredAll(ctx context.Context, s Step) (Verdict, schemas.Sentence, error) {
	all, err := c.caps.OfFeed(ctx, s.Server)
	if err != nil {
		return Pending, schemas.Sentence{}, err
	}
	all = slices.DeleteFunc(all, func(one schemas.PowerCap) bool { return one.Action != s.ID })
	if len(all) == 0 {
		return Pending, messages.New(messages.CapNone, messages.Args{"server": s.Server}), nil
	}
	saw, low := make([]schemas.Sentence, len(all)), make([]bool, len(all))
	at := map[string]int{}
	for i, one := range all {
		at[one.Server] = i
	}
	errs := together(all, func(one schemas.PowerCap) (err error) {
		if one.Why != "" {
			return errors.New(one.Why)
		}
		i := at[one.Server]
		low[i], saw[i], err = c.lowered(ctx, one.Server, one.Way, one.To, one.Watts)
		return err
	})
	var left, limits []string
	var stages []schemas.Stage
	refused := 0
	for i, one := range all {
		stage := schemas.Stage{Name: one.Server, State: "running", Began: one.Set, Message: messages.Text(saw[i])}
		switch {
		case low[i]:
			stage.State = "success"
		default:
			left = append(left, unlike(one.Server, saw[i], errs[i]))
			if one.Why != "" {
				refused++
				stage.State, stage.Message = "failed", one.Why
			}
		}
		limits = append(limits, fmt.Sprintf("%s %s", one.Server, watts(one.Watts)))
		stages = append(stages, stage)
	}
	c.mu.Lock()
	if c.stages == nil {
		c.stages = map[string][]schemas.Stage{}
	}
	c.stages[s.Server] = stages
	c.mu.Unlock()
	args := messages.Args{"n": len(all), "done": len(all) - len(left), "left": some(left), "limits": some(limits)}
	switch {
	case len(left) == 0:
		return Verified, messages.New(messages.FeedCapped, args), nil
	case len(left) == refused: // nothing more comes of it
		return Failed, messages.New(messages.FeedNotCapped, args), nil
	}
	return Pending, messages.New(messages.FeedNotCapped, args), nil
}

// Stages implements Staged: a server each.
func (c capping) Stages(_ context.Context, s Step) ([]schemas.Stage, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.stages[s.Server]), nil
}

// limits reports whether all that a case does is to limit what servers draw: it takes none out.
func (c *climb) limits() bool {
	if c.Request != nil {
		return policy.Limits(c.Request.Kind)
	}
	return slices.ContainsFunc(c.Ladder, policy.Limits) && !slices.ContainsFunc(c.Ladder, takesOut)
}

// kindsFor are the rungs of a policy that are for a resource: servers are limited where a PDU is lost, and for nothing else.
func (c *Controller) kindsFor(p *policy.Policy, resource string) []string {
	kinds := p.Kinds()
	if c.d.Inventory.Kind(resource) == schemas.KindPDU {
		return kinds
	}
	return slices.DeleteFunc(kinds, policy.Limits)
}

// examined asks the remediator of a rung for checks of its own.
func (c *Controller) examined(ctx context.Context, k *climb, r policy.Rung) []schemas.Rail {
	e, ok := c.d.Remediators[r.Kind].(Examiner)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CallTime)
	defer cancel()
	rails, err := e.Examine(ctx, Step{Kind: r.Kind, Server: k.Subject, Target: k.Target, Since: c.d.Now()})
	if err != nil {
		sentence := messages.Error(err)
		return []schemas.Rail{{Name: railLoad, Detail: messages.Text(sentence), Sentence: &sentence}}
	}
	return rails
}

// inputs counts the supplies that our own collectors see without input, by the alerts of the incidents that blame what a case treats, and
// says when the last of the others had it back.
func (c *Controller) inputs(ctx context.Context, k *climb) (lost int, source string, back time.Time, err error) {
	ids := []string{k.Incident}
	c.mu.Lock()
	if n := c.incidentOf(k); n != nil && n.inc.ID != k.Incident {
		ids = append(ids, n.inc.ID)
	}
	c.mu.Unlock()
	without := map[string]bool{}
	for _, id := range ids {
		i, found, err := c.d.Records.Incident(ctx, id)
		if err != nil {
			return 0, "", back, err
		}
		if !found {
			continue
		}
		if i.Closed != nil && i.Closed.After(back) {
			back = *i.Closed
		}
		for _, event := range i.Events {
			a, found, err := c.d.Records.Alert(ctx, event)
			if err != nil {
				return 0, "", back, err
			}
			if !found || a.Type != schemas.EventPSUInputLost || a.External() || views(c.d.View).ofAlert(&a) == schemas.ViewNone {
				continue
			}
			if a.Status == schemas.AlertResolved {
				if a.ResolvedAt.After(back) {
					back = a.ResolvedAt
				}
				continue
			}
			without[a.Resource], source = true, a.Source
		}
	}
	return len(without), source, back, nil
}

// unfed says whether our own collectors see that a PDU gives no power. Who posts an alert must not have servers slowed down.
func (c *Controller) unfed(ctx context.Context, k *climb) (schemas.Rail, error) {
	lost, source, _, err := c.inputs(ctx, k)
	switch {
	case err != nil:
		return schemas.Rail{}, err
	case lost == 0 && k.vouched != "":
		return rail(railSeen, 1, 1, true, messages.VouchedFor, messages.Args{"part": k.Target, "who": k.vouched}), nil
	case lost == 0:
		return rail(railSeen, 0, 1, false, messages.SeenByNobody, messages.Args{"part": k.Target}), nil
	}
	return rail(railSeen, float64(lost), 1, true, messages.FeedLost, messages.Args{"n": lost, "source": source}), nil
}

// fed says whether a PDU gives power again, as who saw it lost tells, and has for the quiet time.
func (c *Controller) fed(ctx context.Context, k *climb, quiet time.Duration, now time.Time) (schemas.Rail, error) {
	lost, source, back, err := c.inputs(ctx, k)
	if err != nil {
		return schemas.Rail{}, err
	}
	if lost > 0 || back.IsZero() {
		return rail(railFed, 0, quiet.Seconds(), false, messages.FeedLost, messages.Args{"n": lost, "source": source}), nil
	}
	age := now.Sub(back)
	return rail(railFed, age.Seconds(), quiet.Seconds(), age >= quiet, messages.FeedBack, messages.Age(age)), nil
}

// Holder is a remediator whose effect can be lost while it is still needed.
type Holder interface {
	// Hold reads whether what a step set is still in force, and sets again, as it was decided then, what has gone by itself. What it
	// says of that is empty where all is as it was set.
	Hold(ctx context.Context, s Step) schemas.Sentence
}

// Hold implements Holder. A board controller that began anew may have forgotten its limit. What somebody has changed stays so.
func (c capping) Hold(ctx context.Context, s Step) schemas.Sentence {
	all, err := c.caps.OfFeed(ctx, s.Server)
	if err != nil {
		return messages.Error(err)
	}
	all = slices.DeleteFunc(all, func(one schemas.PowerCap) bool { return !one.Released.IsZero() || one.Why != "" })
	at := map[string]int{}
	for i, one := range all {
		at[one.Server] = i
	}
	again, is := make([]bool, len(all)), make([]Use, len(all))
	errs := together(all, func(one schemas.PowerCap) (err error) {
		i := at[one.Server]
		u, by, err := c.use(ctx, one.Server, one.Way)
		if is[i] = u; err == nil && by == nil {
			err = cannotLimit(one.Server)
		}
		if err != nil || u.Is != one.Before || u.Is == one.To {
			return err
		}
		again[i] = true
		return by.Set(ctx, one.Server, one.Way, one.To, one.Action)
	})
	var limits, left []string
	for i, one := range all {
		switch {
		case errs[i] != nil:
			left = append(left, one.Server+": "+errs[i].Error())
		case again[i]:
			limits = append(limits, one.Server+" "+watts(one.Watts))
		case !stillOurs(one, is[i]) && is[i].Is != one.To:
			left = append(left, one.Server+" "+watts(is[i].Limit))
		}
	}
	reset, slipped := messages.New(messages.FeedReset, messages.Args{"limits": some(limits)}), messages.New(messages.FeedSlipped, messages.Args{"left": some(left)})
	switch {
	case len(limits) > 0 && len(left) > 0:
		return messages.New(messages.Both, messages.Args{"first": reset, "second": slipped})
	case len(limits) > 0:
		return reset
	case len(left) > 0:
		return slipped
	}
	return schemas.Sentence{}
}

// holdEvery is the time between two looks at whether limits are still in force.
const holdEvery = time.Minute

// hold looks after the limits of a case that waits for its feed, as long as this controller leads and may act.
func (c *Controller) hold(ctx context.Context, k *climb, a *schemas.Action) schemas.Sentence {
	h, ok := c.d.Remediators[policy.KindCap].(Holder)
	if !ok || a.Kind != policy.KindUncap || k.Request != nil || !lacking(a.Rails, railFed) || lacking(a.Rails, railMode) || c.store.leads(ctx) != nil {
		return schemas.Sentence{}
	}
	ctx, cancel := context.WithTimeout(ctx, manyLast)
	defer cancel()
	return h.Hold(ctx, Step{Kind: policy.KindCap, Server: k.Subject, Target: k.Target, Since: c.d.Now()})
}

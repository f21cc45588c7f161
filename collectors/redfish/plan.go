package redfish

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"
)

// rank is a family of sources. It decides which of them is read first when nothing is
// known of them yet, and whose reading is another's: two of one family are always two.
type rank int

const (
	rankWalk    rank = iota // leads to sources, has no readings
	rankSensors             // collections of sensors
	rankThermal             // the older resources
	rankPower
	rankExcerpts    // ThermalMetrics, EnvironmentMetrics, fans, power supplies
	rankSensor      // sensors, one request each
	rankDefinitions // what the metrics of reports are
	rankReports     // metric reports
	rankAllReports  // all of them with one request
	rankMetrics     // metrics of processors and memory
	rankAllChassis  // all that chassis have, with one request
	rankParts       // what the service is made of
)

// levels are how many levels of a collection are asked for at once: the members, their collections, and the members of these.
const levels = 3

// family is whose readings are distinct from one another.
func (k rank) family() rank {
	switch k {
	case rankSensor:
		return rankSensors
	case rankAllReports:
		return rankReports
	}
	return k
}

// source is a resource or a collection that has readings.
type source struct {
	path    string
	rank    rank
	chassis string // id of the chassis, for names
	apart   string // equipment whose parts are not those of a chassis, or ""
	read    func(*reader, context.Context, *source, time.Time) error

	every    time.Duration   // more seldom than the rounds; 0 is at each
	gives    map[*series]int // and how often in a row it had nothing new of it
	children []*source
	list     bool          // a collection, which may get new members
	again    bool          // to be read once more when the others are known
	wanted   bool          // others repeat it
	cost     float64       // of the last reading
	at       time.Time     // of the last reading
	size     int64         // of the last reading, in bytes
	sent     int64         // what of it was sent, where it was then taken apart
	pushed   time.Time     // when it came by itself
	gap      time.Duration // between the last two times
}

// byteCost is how many bytes cost as much as a request.
const byteCost = 64 << 10

// relearn is how often a source is read again that the plan does not need.
const relearn = 6 * time.Hour

// keep takes a source, and all that it led to, into a new inventory.
func (s *source) keep(inv *inventory) {
	if inv.sources[s.path] != nil {
		return
	}
	inv.sources[s.path] = s
	for _, c := range s.children {
		c.keep(inv)
	}
}

// child adds a source that another one leads to.
func (r *reader) child(from *source, path string, k rank, read func(*reader, context.Context, *source, time.Time) error) *source {
	if path == "" {
		return nil
	}
	if s := r.found.sources[path]; s != nil {
		return s
	}
	s := &source{path: path, rank: k, chassis: from.chassis, apart: from.apart, read: read, gives: make(map[*series]int)}
	r.found.sources[path] = s
	from.children = append(from.children, s)
	return s
}

// give notes that a source has a reading.
func (s *source) give(inv *inventory, x *series) {
	if _, ok := s.gives[x]; !ok {
		s.gives[x] = 0
		inv.dirty = true
	}
}

// idle notes that a report has had nothing new of its series. What others have as well is
// left to them after the second time: a report that stands still must hide no sensor.
func (s *source) idle(inv *inventory, given map[*series]bool) {
	for x := range s.gives {
		if given[x] {
			s.gives[x] = 0
			continue
		}
		if s.gives[x]++; s.gives[x] < 2 {
			continue
		}
		for _, other := range inv.sources {
			if _, ok := other.gives[x]; ok && other.rank.family() != rankReports {
				inv.leave(x)
				break
			}
		}
	}
}

// leave takes a series from all reports.
func (inv *inventory) leave(x *series) {
	for _, s := range inv.sources {
		if s.rank.family() == rankReports {
			delete(s.gives, x)
		}
	}
	inv.dirty = true
}

// plan chooses sources that together have every series, at least cost: with those that read all of a kind at once, where that is
// cheaper and can be had in each round, or without.
func (r *reader) plan(now time.Time) []*source {
	var whole []*source
	for _, s := range r.found.sources {
		if s.rank.whole() && len(s.gives) > 0 && !r.waits(s.path, now) && s.every <= r.cfg.SensorInterval {
			whole = append(whole, s)
		}
	}
	best := r.cover(now)
	for some := 1; some < 1<<len(whole); some++ { // there are two
		var first []*source
		for i, s := range whole {
			if some>>i&1 == 1 {
				first = append(first, s)
			}
		}
		if with := r.cover(now, first...); costOf(with) < costOf(best) {
			best = with
		}
	}
	return best
}

// whole reports whether a source is all of a kind.
func (k rank) whole() bool { return k == rankAllChassis || k == rankAllReports }

func costOf(list []*source) (sum float64) {
	for _, s := range list {
		if s.rank != rankMetrics { // are read more seldom
			sum += s.cost
		}
	}
	return sum
}

// cover chooses sources that together have every series, first those that are given, then again and again the one that has most of what
// is missing for a request or what costs as much.
func (r *reader) cover(now time.Time, first ...*source) []*source {
	missing := make(map[*series]bool)
	var rest, out []*source
	for _, s := range r.found.sources {
		if len(s.gives) > 0 && !r.waits(s.path, now) && (!s.rank.whole() || slices.Contains(first, s)) {
			if !s.rank.whole() {
				rest = append(rest, s)
			}
			for x := range s.gives {
				missing[x] = true
			}
		}
	}
	slices.SortFunc(rest, func(a, b *source) int {
		if before(a, b) {
			return -1
		}
		return 1
	})
	for _, s := range first {
		out = append(out, s)
		for x := range s.gives {
			delete(missing, x)
		}
	}
	for len(missing) > 0 {
		best, most := -1, 0.0
		for i, s := range rest {
			n := 0
			for x := range s.gives {
				if missing[x] {
					n++
				}
			}
			if worth := float64(n) / s.cost; worth > most*1.000001 {
				best, most = i, worth
			}
		}
		if best < 0 {
			break
		}
		out = append(out, rest[best])
		for x := range rest[best].gives {
			delete(missing, x)
		}
		rest = slices.Delete(rest, best, best+1)
	}
	return out
}

// round reads the sources of the plan, single sensors last and of them those least recently
// read first, and with the requests that are left those of which nothing is known.
func (r *reader) round(ctx context.Context, now time.Time) error {
	inv := r.found
	if inv.dirty || inv.planned == nil || inv.waiting != len(r.failing) {
		inv.planned, inv.dirty, inv.waiting = r.plan(now), false, len(r.failing)
	}
	began, most := r.c.Requests(), int64(r.cfg.MaxRequests)
	if r.unknown(now) != nil {
		most /= 2 // what is not known yet may be cheaper than what is
	}
	left := func() bool { return r.c.Requests()-began < most }
	queue := slices.Clone(inv.planned)
	slices.SortStableFunc(queue, func(a, b *source) int {
		if x, y := a.rank == rankSensor, b.rank == rankSensor; x != y {
			if y {
				return -1
			}
			return 1
		}
		return a.at.Compare(b.at)
	})
	put := 0
	for _, s := range queue {
		if now.Sub(s.at) < s.every || r.comes(s, now) {
			continue
		}
		if !left() {
			put++
			continue
		}
		if err := r.readSource(ctx, s, now); err != nil {
			return err
		}
	}
	r.deferred.Add(float64(put))
	return r.learn(ctx, now, began)
}

// comes reports whether a source need not be read because it comes by itself.
func (r *reader) comes(s *source, now time.Time) bool {
	if s.rank != rankAllReports {
		return s.told(now, r.cfg.SensorInterval)
	}
	for _, x := range r.found.sources {
		if x.rank == rankReports && !x.told(now, r.cfg.SensorInterval) {
			return false
		}
	}
	return r.found.reports()
}

// learn reads sources of which nothing is known, as long as there are requests left of
// those since began. What leads to others comes first; it may add to the list.
func (r *reader) learn(ctx context.Context, now time.Time, began int64) error {
	for r.c.Requests()-began < int64(r.cfg.MaxRequests) {
		s := r.unknown(now)
		if s == nil {
			return nil
		}
		s.again = false
		if err := r.readSource(ctx, s, now); err != nil {
			return err
		}
	}
	return nil
}

// unknown returns the next source of which nothing is known, or nothing for long.
func (r *reader) unknown(now time.Time) *source {
	var next *source
	for _, s := range r.found.sources {
		age := relearn
		if s.rank == rankWalk || s.list {
			age = r.cfg.DiscoveryInterval
		}
		if s.rank == rankParts {
			age = partsEvery
		}
		old := s.at.IsZero() || now.Sub(s.at) >= max(age, s.every) && !slices.Contains(r.found.planned, s)
		old = old || r.failing[s.path] != nil && !s.at.Equal(now)
		if (old || s.again) && !r.waits(s.path, now) && before(s, next) {
			next = s
		}
	}
	return next
}

// before orders sources by when they are first read.
func before(a, b *source) bool {
	return b == nil || cmp.Or(cmp.Compare(a.order(), b.order()), natural(a.path, b.path)) < 0
}

// order lets sensors that others point to go before the rest, and then those read again
// that waited for them.
func (s *source) order() int {
	switch {
	case s.again:
		return max(3*int(rankExcerpts)+2, 3*int(s.rank))
	case s.wanted:
		return 3*int(rankExcerpts) + 1
	}
	return 3 * int(s.rank)
}

// readSource reads one source in a turn of its own, and notes what that cost.
func (r *reader) readSource(ctx context.Context, s *source, now time.Time) error {
	s.at = now
	if r.waits(s.path, now) {
		return nil
	}
	began := r.s.Now()
	return r.turn(ctx, func() error {
		requests, bytes := r.c.Requests(), r.c.Read()
		if err := s.read(r, ctx, s, now); err != nil {
			return err
		}
		n := r.c.Read() - bytes
		if s.sent > 0 {
			n = s.sent
		}
		if n > 0 {
			s.size = n
			s.cost = max(1, float64(r.c.Requests()-requests)) + float64(n)/byteCost + r.s.Now().Sub(began).Seconds() // what keeps the controller busy is dear as well
			s.every = max(s.every, paced(n))                                                                         // what is large is read more seldom
		}
		s.cost = max(s.cost, 1)
		return nil
	})
}

// readAllChassis reads what chassis have that has readings, with one request.
func (r *reader) readAllChassis(ctx context.Context, src *source, now time.Time) error {
	read := r.c.Read()
	if err := r.c.Gather(ctx, src.path, levels); err != nil {
		return err
	}
	src.sent = r.c.Read() - read
	var list []*source
	for _, s := range r.found.sources {
		if s.rank != rankWalk && strings.HasPrefix(s.path, src.path+"/") && r.c.Gathered(s.path) {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b *source) int {
		if before(a, b) {
			return -1
		}
		return 1
	})
	given := make(map[*series]bool)
	for _, s := range list {
		s.at = now
		if err := s.read(r, ctx, s, now); err != nil {
			return err
		}
		for x := range s.gives {
			given[x] = true
			src.give(r.found, x)
		}
	}
	if len(given) == 0 { // the service cannot: its chassis are read one by one
		clear(src.gives)
		r.found.dirty = true
	}
	return nil
}

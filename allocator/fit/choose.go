package fit

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"sync"
)

// A key orders servers that fit, the best first, by two bits of health, seven of risk, three of
// the last failure, twenty of packing and 32 of the name's place. Below the quality are the last
// two.
const (
	atHealth, atRisk, atFailed, atPacked = 62, 55, 52, 32

	quality  = math.MaxUint64 &^ (1<<atFailed - 1)
	maxBlock = 1<<13 - 1
)

// place is a key's place in the order of names.
func place(key uint64) int32 { return int32(key & math.MaxUint32) }

// chooser is the room that a choice works in.
type chooser struct {
	*plan
	v *View

	why    []reason  // by place
	free   []uint64  // GPUs, by place
	risked []float64 // by place
	racks  []sym     // by place
	keys   []uint64  // of those that fit
	count  []int32   // by symbol: servers that fit in a rack, then in a domain
	start  []int32   // by symbol: where a domain's keys begin
	byPart []uint64  // keys by domain, and room to sort them in
	parts  []sym     // domains that have a server that fits
	taken  []uint64  // keys of the best of one domain
	best   []uint64
	chosen []bool // by place
	held   map[sym]int
	sums   [maxGPUs + 1]int // servers by how many GPUs they give
	most   int              // GPUs of the server that gives the most

	domains []domain
	left    int  // steps that searches may take yet
	ended   bool // one was ended before it was through
}

// domain is how well servers that share something fit.
type domain struct {
	id      sym
	free    int // servers, or GPUs of split
	servers int // that fit
	ok      bool
	score   score
	keys    []uint64 // its servers, the best first
	lost    reason   // why it was not chosen
}

// score compares choices of several servers, the smaller the better.
type score struct {
	servers int
	health  uint64
	risk    int // percent: that a part of any of them fails
	failed  uint64
	rest    int // what is left over of the domain
}

func (s score) compare(o score) (int, reason) {
	for _, c := range [...]struct {
		d   int
		why reason
	}{
		{s.servers - o.servers, lessSize},
		{cmp.Compare(s.health, o.health), lessHealth},
		{s.risk - o.risk, lessRisk},
		{cmp.Compare(s.failed, o.failed), lessFailed},
		{s.rest - o.rest, lessPacked},
	} {
		if c.d != 0 {
			return c.d, c.why
		}
	}
	return 0, lessName
}

var rooms = sync.Pool{New: func() any { return &chooser{held: map[sym]int{}} }}

// Choose returns the best servers and GPUs for a wish: all that it asks for, or an error. The
// error is a [*WishError], or a [*NoFit].
func Choose(v *View, w Wish) (*Choice, error) {
	p, err := w.plan(v)
	if err != nil {
		return nil, err
	}
	c := rooms.Get().(*chooser)
	defer func() {
		c.plan, c.v, c.domains = nil, nil, c.domains[:0]
		rooms.Put(c)
	}()
	c.plan, c.v = p, v
	if c.run() {
		return c.choice(), nil
	}
	return nil, c.noFit()
}

// run chooses; the keys of what it chose are in best.
func (c *chooser) run() bool {
	c.look()
	c.pack()
	c.divide()
	c.best, c.left, c.ended = c.best[:0], steps, false
	won := -1
	for i := range c.domains {
		d := &c.domains[i]
		if d.ok = c.pick(d); !d.ok {
			continue
		}
		d.score = c.score(d)
		if won >= 0 {
			if n, _ := d.score.compare(c.domains[won].score); n >= 0 {
				continue
			}
		}
		won = i
		c.best = append(c.best[:0], c.taken...)
	}
	c.chosen = room(c.chosen, len(c.v.order))
	for _, k := range c.best {
		c.chosen[place(k)] = true
	}
	c.settle(won)
	return won >= 0 && len(c.unknown) == 0 && c.need > 0
}

// room is a slice of n zeros.
func room[T any](s []T, n int) []T {
	s = slices.Grow(s[:0], n)[:n]
	clear(s)
	return s
}

// look asks each server whether it may be given.
func (c *chooser) look() {
	n := len(c.v.order)
	c.why, c.free, c.risked, c.racks = room(c.why, n), room(c.free, n), room(c.risked, n), room(c.racks, n)
	c.count = room(c.count, len(c.v.symbols))
	c.keys = c.keys[:0]
	for at, i := range c.v.order {
		r := &c.v.rows[i]
		why, free, risked := c.filter(c.v, r)
		c.why[at], c.free[at], c.risked[at] = why, free, risked
		if why != fits {
			continue
		}
		c.racks[at] = r.rack
		c.count[r.rack]++
		c.keys = append(c.keys, uint64(r.health)<<atHealth|uint64(percent(risked))<<atRisk|c.since(r)<<atFailed|uint64(at))
	}
}

// pack puts into each key how little a choice of that server breaks up.
func (c *chooser) pack() {
	for i, k := range c.keys {
		at := place(k)
		block := uint64(min(maxBlock, c.count[c.racks[at]]))
		free := uint64(bits.OnesCount64(c.free[at]))
		var packed uint64
		switch {
		case c.mode == split:
			packed = free<<13 | block
		case !c.exclusive && c.mode == equal:
			packed = (free-uint64(c.per))<<13 | block
		case c.racks[at] == 0:
			packed = 0
		case block >= uint64(c.need):
			packed = block - uint64(c.need)
		default: // too small to hold all: the larger, the fewer racks
			packed = 2*maxBlock - block
		}
		c.keys[i] = k | packed<<atPacked
	}
	c.sort()
}

// sort orders keys, which come in the order of their places: by what stands above these, eleven
// bits at a time.
func (c *chooser) sort() {
	const digit = 1<<11 - 1
	c.byPart = room(c.byPart, len(c.keys))
	for shift := atPacked; shift < 64; shift += 11 {
		var start [digit + 1]int32
		for _, k := range c.keys {
			start[k>>shift&digit]++
		}
		if len(c.keys) > 0 && int(start[c.keys[0]>>shift&digit]) == len(c.keys) {
			continue
		}
		sum := int32(0)
		for i, n := range start {
			start[i], sum = sum, sum+n
		}
		for _, k := range c.keys {
			d := k >> shift & digit
			c.byPart[start[d]] = k
			start[d]++
		}
		c.keys, c.byPart = c.byPart, c.keys
	}
}

// divide sorts the servers that fit into domains, which come by name.
func (c *chooser) divide() {
	c.domains = c.domains[:0]
	if c.Together == Anywhere {
		c.domains = append(c.domains, domain{keys: c.keys})
		return
	}
	clear(c.count)
	c.parts = c.parts[:0]
	for _, k := range c.keys {
		d := c.domain(c.row(place(k)))
		if c.count[d] == 0 {
			c.parts = append(c.parts, d)
		}
		c.count[d]++
	}
	slices.SortFunc(c.parts, func(a, b sym) int { return cmp.Compare(c.v.symbols[a], c.v.symbols[b]) })
	c.start, c.byPart = room(c.start, len(c.v.symbols)), room(c.byPart, len(c.keys))
	sum := int32(0)
	for _, d := range c.parts {
		c.start[d] = sum
		sum += c.count[d]
	}
	for _, k := range c.keys {
		d := c.domain(c.row(place(k)))
		c.byPart[c.start[d]] = k
		c.start[d]++
	}
	for _, d := range c.parts {
		c.domains = append(c.domains, domain{id: d, keys: c.byPart[c.start[d]-c.count[d] : c.start[d]]})
	}
}

func (c *chooser) row(at int32) *row { return &c.v.rows[c.v.order[at]] }

// pick takes the best servers of a domain, and reports whether it has enough.
func (c *chooser) pick(d *domain) bool {
	d.servers, d.free = len(d.keys), len(d.keys)
	c.taken = c.taken[:0]
	switch {
	case c.mode == split:
		return c.fewest(d)
	case len(d.keys) < c.need:
		return false
	case len(c.caps) > 0:
		return c.apart(d)
	}
	c.taken = append(c.taken, d.keys[:c.need]...)
	return true
}

// fewest takes as few servers as give the GPUs; of such sets one whose worst server is the best
// there is, and then whose first, second and so on are.
func (c *chooser) fewest(d *domain) bool {
	d.free, c.most = 0, 0
	clear(c.sums[:])
	for _, k := range d.keys {
		n := c.size(k)
		c.most = max(c.most, n)
		c.sums[n]++
		d.free += n
	}
	if d.free < c.need {
		return false
	}
	m := c.reach(c.need)
	// The first so many of the order whose best m reach.
	clear(c.sums[:])
	end := 0
	for end < len(d.keys) {
		q := d.keys[end] & quality
		for ; end < len(d.keys) && d.keys[end]&quality == q; end++ {
			c.sums[c.size(d.keys[end])]++
		}
		if end >= m && c.top(m) >= c.need {
			break
		}
	}
	left := c.need
	for _, k := range d.keys[:end] {
		n := c.size(k)
		c.sums[n]--
		if n+c.top(m-1) < left {
			continue
		}
		c.taken = append(c.taken, k)
		if m, left = m-1, left-n; m == 0 {
			break
		}
	}
	return true
}

// size is how many GPUs a server gives.
func (c *chooser) size(key uint64) int { return bits.OnesCount64(c.free[place(key)]) }

// top is how many GPUs the m largest of the sums have.
func (c *chooser) top(m int) (gpus int) {
	for n := c.most; n > 0 && m > 0; n-- {
		k := min(m, c.sums[n])
		gpus, m = gpus+k*n, m-k
	}
	return gpus
}

// reach is how few of the sums have so many GPUs.
func (c *chooser) reach(gpus int) (servers int) {
	for n := c.most; n > 0 && gpus > 0; n-- {
		k := min((gpus+n-1)/n, c.sums[n])
		gpus, servers = gpus-k*n, servers+k
	}
	return servers
}

// score is that of the servers in taken.
func (c *chooser) score(d *domain) score {
	s := score{rest: d.free - c.need}
	if c.mode == split {
		s.servers = len(c.taken)
	}
	none := 1.0
	for _, k := range c.taken {
		s.health = max(s.health, k>>atHealth)
		s.failed = max(s.failed, k>>atFailed&7)
		none *= 1 - c.risked[place(k)]
	}
	s.risk = percent(1 - none)
	return s
}

// settle says of each server that fits, and was not chosen, what decided against it.
func (c *chooser) settle(won int) {
	for i := range c.domains {
		d := &c.domains[i]
		switch {
		case i == won:
			d.lost = fits
		case !d.ok && d.free >= c.need:
			d.lost = tooNear
		case !d.ok:
			d.lost = domainShort
		case won < 0:
			d.lost = fits
		default:
			_, d.lost = d.score.compare(c.domains[won].score)
		}
		var last uint64
		if i == won {
			last = slices.Max(c.best)
		}
		for _, k := range d.keys {
			at := place(k)
			switch {
			case c.chosen[at]:
			case i != won && d.ok:
				c.why[at] = lessDomain
			case i != won:
				c.why[at] = d.lost
			default:
				c.why[at] = c.less(k, last)
			}
		}
	}
}

// less is what decided against a server, beside the last that was chosen.
func (c *chooser) less(k, last uint64) reason {
	switch differ := k ^ last; {
	case k < last && len(c.caps) > 0:
		return tooNear
	case k < last:
		return lessSize
	case c.mode == split && k&quality == last&quality:
		return lessSize
	case differ>>atHealth != 0:
		return lessHealth
	case differ>>atRisk != 0:
		return lessRisk
	case differ>>atFailed != 0:
		return lessFailed
	case differ>>atPacked != 0:
		return lessPacked
	}
	return lessName
}

// percent is a probability in whole percent.
func percent(p float64) int { return int(math.Round(100 * min(1, max(0, p)))) }

package fit

import "slices"

// steps bounds the searches of one choice for servers that are far enough apart.
const steps = 20_000

// apart takes servers, the best first, so that no feed and no rack has more than it may. Where
// racks and sets of feeds lie within one another, as they do where a rack has feeds of its own,
// the first that may be taken is the best, and the result is exact. Where feeds are shared
// crosswise that can end too early: then groups of equals are searched, within bounds.
func (c *chooser) apart(d *domain) bool {
	clear(c.held)
	for _, k := range d.keys {
		r := c.row(place(k))
		if c.room(r) == 0 {
			continue
		}
		c.hold(r, 1)
		if c.taken = append(c.taken, k); len(c.taken) == c.need {
			return true
		}
	}
	if !c.crosswise(d) {
		return false
	}
	return c.search(d)
}

// room is how many servers like this one may be taken yet.
func (c *chooser) room(r *row) int {
	n := c.need
	for _, q := range c.caps {
		if q.over == Racks {
			n = min(n, q.max-c.held[^r.rack])
			continue
		}
		for _, f := range r.feeds {
			n = min(n, q.max-c.held[f])
		}
	}
	return max(0, n)
}

// hold counts servers on their rack and feeds. A rack is counted beside feeds of its name.
func (c *chooser) hold(r *row, n int) {
	c.held[^r.rack] += n
	for _, f := range r.feeds {
		c.held[f] += n
	}
}

// group is servers that are on the same rack and feeds, the best first.
type group struct {
	row  *row
	keys []uint64
	take int
}

// crosswise reports whether a feed is of two sets of feeds, or a set of feeds that is not all of
// a rack is of two racks.
func (c *chooser) crosswise(d *domain) bool {
	power, racks := map[sym]sym{}, map[sym]sym{}
	for _, k := range d.keys {
		r := c.row(place(k))
		if p, ok := racks[r.rack]; ok && p != r.power && len(c.caps) > 1 {
			return true
		}
		racks[r.rack] = r.power
		for _, f := range r.feeds {
			if p, ok := power[f]; ok && p != r.power {
				return true
			}
			power[f] = r.power
		}
	}
	return false
}

// search looks for so many servers of each group that all of them are enough.
func (c *chooser) search(d *domain) bool {
	type alike struct{ rack, power sym }
	at, groups := map[alike]int{}, []group(nil)
	for _, k := range d.keys {
		r := c.row(place(k))
		a := alike{r.rack, r.power}
		i, ok := at[a]
		if !ok {
			i = len(groups)
			at[a] = i
			groups = append(groups, group{row: r})
		}
		groups[i].keys = append(groups[i].keys, k)
	}
	rest := make([]int, len(groups)+1)
	clear(c.held)
	for i := len(groups) - 1; i >= 0; i-- {
		rest[i] = rest[i+1] + min(len(groups[i].keys), c.room(groups[i].row))
	}
	var try func(i, need int) bool
	try = func(i, need int) bool {
		if need == 0 {
			return true
		}
		if c.left--; c.left < 0 || rest[i] < need {
			return false
		}
		g := &groups[i]
		for n := min(need, len(g.keys), c.room(g.row)); n >= 0 && c.left >= 0; n-- {
			c.hold(g.row, n)
			g.take = n
			if try(i+1, need-n) {
				return true
			}
			c.hold(g.row, -n)
		}
		g.take = 0
		return false
	}
	c.taken = c.taken[:0]
	if !try(0, c.need) {
		c.ended = c.ended || c.left < 0
		return false
	}
	for _, g := range groups {
		c.taken = append(c.taken, g.keys[:g.take]...)
	}
	slices.Sort(c.taken)
	return true
}

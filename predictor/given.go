package predictor

import (
	"time"

	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

// forgotten is how long after a bound was read last it no longer counts: it is sent every two
// minutes with the readings, so that a device that still gives it has missed several.
const forgotten = 10 * time.Minute

// graver are the bounds that may be the limit of a reading, on the upper and on the lower side,
// in the order in which they are taken: what the device itself calls critical, else what is
// beyond it, else its caution.
var graver = [2][3]schemas.Bound{
	{schemas.UpperCritical, schemas.UpperFatal, schemas.UpperCaution},
	{schemas.LowerCritical, schemas.LowerFatal, schemas.LowerCaution},
}

// given is what a device says of the bounds of one reading: values by side and gravity, and
// when each was read, 0 where it never was.
type given struct {
	value [2][3]float64
	read  [2][3]int64
}

// put takes a bound; one that is no limit, as the end of a range, is passed over.
func (g *given) put(b schemas.Bound, v float64, at int64) {
	for side := range graver {
		for i := range graver[side] {
			if graver[side][i] == b && at >= g.read[side][i] {
				g.value[side][i], g.read[side][i] = v, at
			}
		}
	}
}

// limit returns the limit on a side, as far as it is known at a time.
func (g *given) limit(below bool, at int64) (float64, bool) {
	if g == nil {
		return 0, false
	}
	s := side(below)
	for i, read := range g.read[s] {
		if read != 0 && at-read < int64(forgotten) {
			return g.value[s][i], true
		}
	}
	return 0, false
}

// side is the place of a side in graver.
func side(below bool) int {
	if below {
		return 1
	}
	return 0
}

// bound is a series of a batch that holds thresholds.
type bound struct {
	of    *given
	bound schemas.Bound
}

// boundOf finds or makes where a series of thresholds goes. Labels of the reading that it has,
// too, are those of one reading; a threshold without them is that of all readings of the part.
func (d *device) boundOf(symbols []string, s *auspexv1.Series, reading, kind, part string) bound {
	var b bound
	h := hashOf(reading, kind, part)
	for i := 0; i+1 < len(s.Labels); i += 2 {
		name, value := symbol(symbols, s.Labels[i]), symbol(symbols, s.Labels[i+1])
		if name == schemas.LabelBound {
			b.bound = schemas.Bound(value)
			continue
		}
		h = hashMore(hashMore(h, name), value)
	}
	b.of = d.givenOf(h)
	return b
}

func (d *device) givenOf(h uint64) *given {
	g := d.given[h]
	if g == nil {
		g = &given{}
		d.given[h] = g
	}
	return g
}

func symbol(symbols []string, i uint32) string {
	if int(i) >= len(symbols) {
		return ""
	}
	return symbols[i]
}

// aim brings a series' limit up to date: the device's for this reading, else for its part, else
// what another collector reads of the same part, else ours. It reports whether it has changed.
func (e *engine) aim(t *tracked, at time.Time) bool {
	limit, below := t.limit.value()
	source, share, now := schemas.LimitDefault, t.limit.Share, at.UnixNano()
	switch {
	case t.limit.Fixed:
		source = schemas.LimitOfSite
	default:
		if t.keep { // until the device says it again, or has not said it for long
			t.keep = false
			t.own.put(graver[side(below)][0], t.follower.Limit(), now)
		}
		key := openKey{t.place.Resource, t.limit.Metric}
		for i, g := range [...]*given{t.own, t.parts, e.given[key]} {
			v, ok := g.limit(below, now)
			if !ok {
				continue
			}
			if limit, share, source = v, false, schemas.LimitOfDevice; i < 2 {
				e.given[key] = g
			}
			break
		}
	}
	t.source = source
	return t.follower.Aim(limit, share)
}

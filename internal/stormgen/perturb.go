package stormgen

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"auspex/schemas"
)

func itoa(n int) string { return strconv.Itoa(n) }

// Perturb says what is wrong on the way from the devices to the correlator.
// Shares are in [0,1].
type Perturb struct {
	Lost   float64 // of the events
	Twice  float64 // of the events, delivered again with the same id
	Late   float64 // of the events, by up to 120 s
	Clocks float64 // of the devices, off by up to 30 s; some of these at 1970 or in another zone
	Links  float64 // of the inventory's links, wrong or missing
	Blind  bool    // one source says nothing at all
}

// Everything is all of it at once.
var Everything = Perturb{Lost: 0.3, Twice: 0.1, Late: 0.2, Clocks: 0.4, Links: 0.02, Blind: true}

// with returns the worse of both in each respect.
func (p Perturb) with(o Perturb) Perturb {
	return Perturb{
		Lost: max(p.Lost, o.Lost), Twice: max(p.Twice, o.Twice), Late: max(p.Late, o.Late),
		Clocks: max(p.Clocks, o.Clocks), Links: max(p.Links, o.Links), Blind: p.Blind || o.Blind,
	}
}

// ParsePerturb reads a list such as "lost,late"; "all" is [Everything].
func ParsePerturb(list string) (p Perturb, err error) {
	one := map[string]Perturb{
		"lost": {Lost: Everything.Lost}, "twice": {Twice: Everything.Twice}, "late": {Late: Everything.Late},
		"clocks": {Clocks: Everything.Clocks}, "links": {Links: Everything.Links}, "blind": {Blind: true}, "all": Everything, "none": {},
	}
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		x, ok := one[name]
		if !ok {
			return p, fmt.Errorf("no perturbation %q; known are %s", name, strings.Join(slices.Sorted(maps.Keys(one)), ", "))
		}
		p = p.with(x)
	}
	return p, nil
}

// disturb returns the lines that arrive, and makes the inventory wrong.
func (w *world) disturb(p Perturb, t *schemas.Topology) []said {
	lines := slices.Clone(w.out)
	if p.Blind {
		source := []string{
			schemas.SourceIPMI, schemas.SourceRedfish, schemas.SourceDCGM, schemas.SourceAgent, schemas.SourceSNMP,
			schemas.SourceScheduler, schemas.SourceRule, schemas.SourceGNMI, schemas.SourceCollector,
		}[w.rng.IntN(9)]
		w.mute = source
		lines = slices.DeleteFunc(lines, func(s said) bool { return s.Source == source })
	}
	if p.Lost > 0 {
		lines = slices.DeleteFunc(lines, func(said) bool { return w.p(p.Lost) })
	}
	wrong := map[int]time.Duration{}
	beginning := map[int]bool{}
	if p.Clocks > 0 {
		for _, d := range append(slices.Clone(w.servers), w.switches...) {
			if !w.p(p.Clocks) {
				continue
			}
			wrong[d] = time.Duration(w.span(-30, 30) * float64(time.Second))
			switch {
			case w.p(0.1):
				beginning[d] = true
			case w.p(0.1):
				wrong[d] += time.Duration(w.rng.IntN(24)-12) * time.Hour
			}
		}
	}
	var again []said
	for i := range lines {
		ev := &lines[i]
		if w.p(p.Late) {
			ev.seen += w.span(0, 120)
			ev.late = true
		}
		// The controllers' clocks go wrong; hosts and switches have theirs from the network.
		board := ev.Source == schemas.SourceIPMI || ev.Source == schemas.SourceRedfish
		if off, ok := wrong[ev.device]; ok && (board || w.off(ev.device)) {
			if beginning[ev.device] && board {
				ev.Time = epoch.Add(time.Duration(ev.at) * time.Second)
			} else if board || off.Abs() <= 30*time.Second {
				ev.Time = ev.Time.Add(off)
			}
		}
		if w.p(p.Twice) {
			c := *ev
			c.seen += w.span(0, 90)
			again = append(again, c)
		}
	}
	if p.Links > 0 {
		w.misname(p.Links, t)
	}
	return append(lines, again...)
}

// off tells whether a host's own clock is wrong too: every third.
func (w *world) off(device int) bool { return int(w.st[device].poll*1000)%3 == 0 }

// misname makes a share of the inventory's links wrong or takes them away.
func (w *world) misname(share float64, t *schemas.Topology) {
	links := make([]schemas.Link, 0, len(t.Links))
	for _, l := range t.Links {
		switch {
		case !w.p(share):
		case w.p(0.5):
			continue
		default:
			o := t.Links[w.rng.IntN(len(t.Links))]
			if o.Kind == l.Kind {
				l.From = o.From
			}
		}
		links = append(links, l)
	}
	t.Links = links
}

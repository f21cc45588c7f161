package fit

import (
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/schemas"
)

// draw makes a small fleet in which everything that a wish asks for differs.
func draw(r *rand.Rand, n int) []Server {
	one := func(of ...string) string { return of[r.IntN(len(of))] }
	var out []Server
	for i := range n {
		s := Server{
			Name: fmt.Sprintf("s%02d", i), Model: one("XE9680", "DL380"), Pool: one("default", "default", "big"),
			Status: one(schemas.ServerReady, schemas.ServerReady, schemas.ServerReady, schemas.ServerReady, schemas.ServerError),
			Rack:   one("r1", "r2", "r3", ""), NVLink: one("n1", "n2", ""), Leaves: []string{one("l1", "l2")}, Labels: map[string]string{"net": one("ib", "eth")},
			Health: Health(r.IntN(8) / 5),
		}
		// Feeds cross: a rack does not say which.
		for _, f := range []string{"a", "b", "c", "d"} {
			if r.IntN(2) == 0 {
				s.Feeds = append(s.Feeds, f)
			}
		}
		for g := range 1 + r.IntN(5) {
			s.GPUs = append(s.GPUs, GPU{
				fmt.Sprintf("%s/gpu%d", s.Name, g), one("H100", "H100", "A100"), float64(40 + 40*r.IntN(2)),
				one(schemas.GPUAvailable, schemas.GPUAvailable, schemas.GPUAvailable, schemas.GPUAvailable, schemas.GPUAvailable, schemas.GPUAvailable,
					schemas.GPUAvailable, schemas.GPUAvailable, schemas.GPUAvailable, schemas.GPUInUse, schemas.GPUError),
			})
		}
		if r.IntN(15) == 0 {
			s.Hold = "x"
		}
		if r.IntN(15) == 0 {
			s.Case = "x"
		}
		for range r.IntN(5) / 3 {
			b := Booking{From: after(time.Duration(r.IntN(9)-6) * day)}
			b.Until = b.From.Add(time.Duration(1+r.IntN(4)) * day)
			if b.Whole = r.IntN(4) == 0; !b.Whole {
				for _, g := range s.GPUs {
					if r.IntN(2) == 0 {
						b.GPUs = append(b.GPUs, g.Name)
					}
				}
			}
			if b.Whole || b.GPUs != nil {
				s.Bookings = append(s.Bookings, b)
			}
		}
		if r.IntN(3) == 0 {
			risks(r.Float64() * .7)(&s)
		}
		if r.IntN(3) == 0 {
			s.Failed = from.Add(-time.Duration(r.IntN(500)) * day)
		}
		out = append(out, s)
	}
	return out
}

func drawWish(r *rand.Rand) Wish {
	w := Wish{From: from, Until: after(time.Duration(1+r.IntN(5)) * day)}
	some := func(f func()) {
		if r.IntN(6) == 0 {
			f()
		}
	}
	switch r.IntN(4) {
	case 0:
		w.Servers = 1 + r.IntN(4)
	case 1:
		w.Servers, w.GPUsPerServer = 1+r.IntN(4), 1+r.IntN(3)
		some(func() { w.Exclusive = true })
	case 2:
		w.GPUs = 1 + r.IntN(8)
		some(func() { w.Exclusive = true })
	case 3:
		w.GPUsPerServer = 1 + r.IntN(2)
		w.GPUs = w.GPUsPerServer * (1 + r.IntN(3))
	}
	some(func() { w.Model = "h1*" })
	some(func() { w.ServerModel = "xe*" })
	some(func() { w.MinMemoryGB = 80 })
	some(func() { w.Pool = "default" })
	some(func() { w.Labels = map[string]string{"net": "ib"} })
	some(func() { w.Except = []string{"s03"} })
	some(func() { w.MinHealth = Warning })
	some(func() { w.MaxRisk = r.Float64() })
	w.Together = []Together{"", "", Rack, Rail, NVLink}[r.IntN(5)]
	if w.GPUs == 0 || w.GPUsPerServer > 0 {
		some(func() { w.Spread = append(w.Spread, Spread{Feeds, .3 + .7*r.Float64()}) })
		some(func() { w.Spread = append(w.Spread, Spread{Racks, .3 + .7*r.Float64()}) })
	}
	return w
}

// capacityOf says by the plainest means what a server could give for a wish: GPUs, and whether it may be
// given at all.
func capacityOf(s *Server, w *Wish) (gpus int, ok bool) {
	like := func(glob, model string) bool {
		return glob == "" || strings.HasPrefix(strings.ToLower(model), strings.TrimSuffix(glob, "*"))
	}
	whole := w.Exclusive || w.Servers > 0 && w.GPUsPerServer == 0
	share := ""
	switch w.Together {
	case Rack:
		share = s.Rack
	case NVLink:
		share = s.NVLink
	case Rail:
		share = strings.Join(s.Leaves, "")
	}
	limit := w.MaxRisk
	if limit == 0 {
		limit = DefaultMaxRisk
	}
	p, _, _ := risk(s.Risks, w.Until)
	for _, bad := range []bool{
		slices.Contains(w.Except, s.Name), w.Pool != "" && s.Pool != w.Pool, !like(w.ServerModel, s.Model), s.Status != schemas.ServerReady,
		s.Hold != "", s.Case != "", s.Health > w.MinHealth, p > limit+1e-9, w.Together != "" && share == "",
		w.Labels != nil && s.Labels["net"] != w.Labels["net"],
		slices.ContainsFunc(w.Spread, func(q Spread) bool { return q.Over == Feeds && s.Feeds == nil || q.Over == Racks && s.Rack == "" }),
	} {
		if bad {
			return 0, false
		}
	}
	free, every := 0, true
	for _, g := range s.GPUs {
		busy, booked := false, false
		for _, b := range s.Bookings {
			if b.Whole || slices.Contains(b.GPUs, g.Name) {
				booked = true
				busy = busy || b.From.Before(w.Until) && b.Until.After(w.From)
			}
		}
		good := like(w.Model, g.Model) && g.MemoryGB >= w.MinMemoryGB && g.Status != schemas.GPUError && !busy && (booked || g.Status != schemas.GPUInUse)
		if every = every && good; good {
			free++
		}
	}
	if whole {
		for _, b := range s.Bookings {
			if b.From.Before(w.Until) && b.Until.After(w.From) {
				return 0, false
			}
		}
		asked := w.Model != "" || w.MinMemoryGB > 0
		return free, every && (free > 0 || !asked) && free >= w.GPUsPerServer && (w.GPUs == 0 || free > 0)
	}
	return free, free >= max(1, w.GPUsPerServer)
}

// holds says by the plainest means whether servers together are what a wish asks for.
func holds(servers []Server, w *Wish) bool {
	gpus := 0
	domain, feeds, racks := map[string]bool{}, map[string]int{}, map[string]int{}
	for i := range servers {
		s := &servers[i]
		n, ok := capacityOf(s, w)
		if !ok {
			return false
		}
		gpus += n
		domain[map[Together]string{Anywhere: "", Rack: s.Rack, NVLink: s.NVLink, Rail: strings.Join(s.Leaves, "")}[w.Together]] = true
		for _, f := range s.Feeds {
			feeds[f]++
		}
		racks[s.Rack]++
	}
	n := w.Servers
	if w.GPUsPerServer > 0 && w.GPUs > 0 {
		n = w.GPUs / w.GPUsPerServer
	}
	if n > 0 && len(servers) != n || n == 0 && gpus < w.GPUs || len(domain) > 1 {
		return false
	}
	for _, q := range w.Spread {
		on := feeds
		if q.Over == Racks {
			on = racks
		}
		for _, m := range on {
			if m > max(1, int(q.Share*float64(n)+1e-9)) {
				return false
			}
		}
	}
	return true
}

// exists tries every set of servers.
func exists(servers []Server, w *Wish) bool {
	for set := uint(1); set < 1<<len(servers); set++ {
		some := make([]Server, 0, bits.OnesCount(set))
		for i := range servers {
			if set>>i&1 == 1 {
				some = append(some, servers[i])
			}
		}
		if holds(some, w) {
			return true
		}
	}
	return false
}

func rounds(t *testing.T, n int, f func(t *testing.T, r *rand.Rand)) {
	t.Helper()
	for seed := range uint64(n) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) { f(t, rand.New(rand.NewPCG(seed, 1))) })
		if t.Failed() {
			return
		}
	}
}

// find returns the chosen of a fleet.
func find(servers []Server, c *Choice) (out []Server) {
	for _, s := range c.Servers {
		i := slices.IndexFunc(servers, func(o Server) bool { return o.Name == s.Server })
		out = append(out, servers[i])
	}
	return out
}

// TestAChoiceIsWhatWasAskedAndIsFoundWhereThereIsOne: never less than all, never a server that
// fails a filter, and nothing missed that trying all finds.
func TestAChoiceIsWhatWasAskedAndIsFoundWhereThereIsOne(t *testing.T) {
	fit := 0
	rounds(t, 3000, func(t *testing.T, r *rand.Rand) {
		servers, w := draw(r, 3+r.IntN(6)), drawWish(r)
		v := view(t, servers...)
		c, err := Choose(v, w)
		var none *NoFit
		switch {
		case errors.As(err, &none):
			if exists(servers, &w) {
				t.Fatalf("%+v: %v; there is one", w, err)
			}
			count := 0
			for _, l := range none.Lost {
				count += l.Count
			}
			if count > len(servers) {
				t.Errorf("%d lost of %d", count, len(servers))
			}
			for _, m := range none.Misses {
				for _, q := range constraints {
					again := w
					if q.field != m.Constraint {
						continue
					}
					if q.drop(&again); m.MaxRisk > 0 {
						again.MaxRisk = m.MaxRisk
					}
					if !exists(servers, &again) {
						t.Errorf("%+v would not fit without %s", w, m.Constraint)
					}
				}
			}
			return
		case err != nil:
			t.Fatal(err)
		}
		fit++
		chosen := find(servers, c)
		if !holds(chosen, &w) {
			t.Fatalf("%+v: chosen %s, which does not hold", w, names(c))
		}
		gpus, count := 0, len(c.Servers)
		for i, s := range c.Servers {
			gpus += len(s.GPUs)
			if n, _ := capacityOf(&chosen[i], &w); len(s.GPUs) > n || w.GPUsPerServer > 0 && !s.Whole && len(s.GPUs) != w.GPUsPerServer {
				t.Errorf("%s gives %v", s.Server, s.GPUs)
			}
		}
		if w.GPUs > 0 && (gpus < w.GPUs || !w.Exclusive && gpus != w.GPUs) {
			t.Errorf("%d GPUs of %d", gpus, w.GPUs)
		}
		for _, l := range c.Lost {
			count += l.Count
		}
		if count != len(servers) {
			t.Errorf("%d chosen or lost, of %d", count, len(servers))
		}
	})
	if fit < 500 {
		t.Errorf("only %d wishes fit: the fleets are too poor to test", fit)
	}
}

// TestTheWorstOfTheChosenIsTheBestThereIs holds health and risk of a choice against all others.
func TestTheWorstOfTheChosenIsTheBestThereIs(t *testing.T) {
	worst := func(servers []Server, w *Wish) (q uint64) {
		p, _ := w.plan(NewView())
		for i := range servers {
			one, _, _ := risk(servers[i].Risks, w.Until)
			r := row{}
			if f := servers[i].Failed; !f.IsZero() {
				r.failed = f.UnixNano()
			}
			q = max(q, uint64(servers[i].Health)<<atHealth|uint64(percent(one))<<atRisk|p.since(&r)<<atFailed)
		}
		return q
	}
	rounds(t, 1000, func(t *testing.T, r *rand.Rand) {
		servers, w := draw(r, 3+r.IntN(6)), drawWish(r)
		w.Together, w.Spread = Anywhere, nil
		c, err := Choose(view(t, servers...), w)
		if err != nil {
			return
		}
		got := worst(find(servers, c), &w)
		for set := uint(1); set < 1<<len(servers); set++ {
			some := []Server(nil)
			for i := range servers {
				if set>>i&1 == 1 {
					some = append(some, servers[i])
				}
			}
			if holds(some, &w) && len(some) <= len(c.Servers) && (len(some) < len(c.Servers) || worst(some, &w) < got) {
				t.Fatalf("%+v: chosen %s; %d servers with %x are better than %x", w, names(c), len(some), worst(some, &w), got)
			}
		}
	})
}

func TestWhatDoesNotMatterChangesNothing(t *testing.T) {
	rounds(t, 1500, func(t *testing.T, r *rand.Rand) {
		servers, w := draw(r, 4+r.IntN(8)), drawWish(r)
		v := view(t, servers...)
		c, err := Choose(v, w)
		if err != nil {
			return
		}
		again := func(what string, v *View, w Wish) {
			t.Helper()
			if o, err := Choose(v, w); err != nil {
				t.Errorf("%s: %v", what, err)
			} else if d := cmp.Diff(c.Servers, o.Servers); d != "" {
				t.Errorf("%s: %s", what, d)
			}
		}
		// A server that fails a filter, and the order in which servers came.
		more := draw(r, 30)[29]
		more.Name, more.GPUs, more.Bookings, more.Hold = "s00x", nil, nil, "for the audit"
		shuffled := append(slices.Clone(servers), more)
		r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		again("with an irrelevant server", view(t, shuffled...), w)

		// One that was not chosen, where it was not for the room that it leaves.
		var gone []string
		for _, l := range c.Lost {
			if !slices.Contains([]string{words[lessPacked], words[lessName], words[lessSize], words[lessDomain]}, l.Reason) {
				gone = append(gone, l.Examples...)
			}
		}
		packed := w.Together != Anywhere || len(c.Lost) > 0 && slices.ContainsFunc(c.Lost, func(l Lost) bool { return l.Reason == words[lessPacked] })
		if len(gone) > 0 && !packed && len(w.Spread) == 0 {
			v := view(t, servers...)
			name := gone[r.IntN(len(gone))]
			i := slices.IndexFunc(servers, func(s Server) bool { return s.Name == name })
			if n, ok := capacityOf(&servers[i], &w); !ok || n == 0 {
				v.Remove(name)
				again("without "+name, v, w)
			}
		}

		// A wish that asks for less is fitted as well.
		for _, q := range constraints {
			if less := w; q.asked(&less) {
				if q.drop(&less); !possible(v, less) {
					t.Errorf("%+v fits, and not without %s", w, q.field)
				}
			}
		}
	})
}

func TestNamesDecideOnlyBetweenEquals(t *testing.T) {
	quality := func(servers []Server) (out []string) {
		for _, s := range servers {
			p, _, _ := risk(s.Risks, after(day))
			out = append(out, fmt.Sprintf("%d %03d", s.Health, percent(p)))
		}
		slices.Sort(out)
		return out
	}
	rounds(t, 500, func(t *testing.T, r *rand.Rand) {
		servers, w := draw(r, 4+r.IntN(8)), drawWish(r)
		w.Except, w.Until, w.Spread = nil, after(day), nil
		if w.GPUs > 0 && w.GPUsPerServer == 0 {
			w.GPUsPerServer, w.GPUs = 1, 2
		}
		c, err := Choose(view(t, servers...), w)
		other := make([]Server, len(servers))
		for i, s := range servers {
			old := s.Name
			s.Name = fmt.Sprintf("x%02d", len(servers)-i)
			s.GPUs, s.Bookings = slices.Clone(s.GPUs), slices.Clone(s.Bookings)
			for g := range s.GPUs {
				s.GPUs[g].Name = strings.Replace(s.GPUs[g].Name, old, s.Name, 1)
			}
			for b := range s.Bookings {
				s.Bookings[b].GPUs = slices.Clone(s.Bookings[b].GPUs)
				for g := range s.Bookings[b].GPUs {
					s.Bookings[b].GPUs[g] = strings.Replace(s.Bookings[b].GPUs[g], old, s.Name, 1)
				}
			}
			other[i] = s
		}
		o, renamed := Choose(view(t, other...), w)
		if (err == nil) != (renamed == nil) {
			t.Fatalf("%v, renamed %v", err, renamed)
		}
		if err == nil {
			if d := cmp.Diff(quality(find(servers, c)), quality(find(other, o))); d != "" {
				t.Error(d)
			}
		}
	})
}

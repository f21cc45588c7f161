package fit

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/allocator/fit/messages"
	"auspex/schemas"
)

var from = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func after(d time.Duration) time.Time { return from.Add(d) }

// server is one that is well, with eight GPUs, in a rack.
func server(name, rack string, change ...func(*Server)) Server {
	s := Server{
		Name: name, Model: "XE9680", Pool: "default", Status: schemas.ServerReady, Rack: rack, Site: "dc1", Row: "row1",
		Feeds: []string{rack + "-a", rack + "-b"}, Leaves: []string{"leaf-" + rack},
	}
	for g := range 8 {
		s.GPUs = append(s.GPUs, GPU{fmt.Sprintf("%s/gpu%d", name, g), "H100 SXM5", 80, schemas.GPUAvailable})
	}
	for _, f := range change {
		f(&s)
	}
	return s
}

// fan is a prediction that a fan fails in three days, almost surely.
func fan(s *Server) {
	s.Risks = append(s.Risks, Risk{
		Part: s.Name + "/fan1", Failure: "cooling.fan_failure", Probability: .97, Made: from, Horizon: after(7 * day),
		P10: after(2 * day), P50: after(3 * day), P90: after(4 * day),
	})
}

// free leaves a server only its first n GPUs.
func free(n int) func(*Server) {
	return func(s *Server) {
		b := Booking{From: from.Add(-day), Until: after(30 * day)}
		for _, g := range s.GPUs[n:] {
			b.GPUs = append(b.GPUs, g.Name)
		}
		s.Bookings = append(s.Bookings, b)
	}
}

func risks(p float64) func(*Server) {
	return func(s *Server) {
		s.Risks = append(s.Risks, Risk{Part: s.Name + "/psu1", Failure: "power.psu", Probability: p, Made: from, Horizon: after(day)})
	}
}

func view(t testing.TB, servers ...Server) *View {
	t.Helper()
	v := NewView()
	for _, s := range servers {
		if err := v.Put(s); err != nil {
			t.Fatal(err)
		}
	}
	return v
}

func names(c *Choice) string {
	var out []string
	for _, s := range c.Servers {
		if s.Whole {
			out = append(out, s.Server)
		} else {
			out = append(out, fmt.Sprintf("%s:%d", s.Server, len(s.GPUs)))
		}
	}
	return strings.Join(out, " ")
}

func lost(all []Lost) string {
	var out []string
	for _, l := range all {
		out = append(out, fmt.Sprintf("%d %s", l.Count, strings.TrimPrefix(l.Reason, "fit.")))
	}
	return strings.Join(out, ", ")
}

// in adds servers of a rack: r1 with 3 has r1-1, r1-2 and r1-3.
func in(rack string, n int, change ...func(*Server)) (out []Server) {
	for i := range n {
		out = append(out, server(fmt.Sprintf("%s-%d", rack, i+1), rack, change...))
	}
	return out
}

func TestChoice(t *testing.T) {
	week := Wish{Servers: 1, From: from, Until: after(7 * day)}
	with := func(w Wish, f func(*Wish)) Wish { f(&w); return w }
	for _, tc := range []struct {
		name    string
		servers []Server
		wish    Wish
		want    string // chosen
		lost    string
	}{
		{
			"a server with a fan that fails in three days is not given for a week",
			[]Server{server("a", "r1", fan), server("b", "r1")},
			week, "b", "1 risk",
		},
		{
			"it is given for a day, where there is nothing better",
			[]Server{server("a", "r1", fan)},
			with(week, func(w *Wish) { w.Until = after(day) }), "a", "",
		},
		{
			"the likelier to fail comes later",
			[]Server{server("a", "r1", risks(.2)), server("b", "r1", risks(.1))},
			week, "b", "1 less_risk",
		},
		{
			"health comes before risk",
			[]Server{server("a", "r1", func(s *Server) { s.Health = Warning }), server("b", "r1", risks(.3))},
			with(week, func(w *Wish) { w.MinHealth = Warning }), "b", "1 less_health",
		},
		{
			"a warning is not given to whom asks for none",
			[]Server{server("a", "r1", func(s *Server) { s.Health = Warning }), server("b", "r1", risks(.3))},
			week, "b", "1 health",
		},
		{
			"what failed longer ago comes first",
			[]Server{server("a", "r1", func(s *Server) { s.Failed = from.Add(-2 * day) }), server("b", "r1", func(s *Server) { s.Failed = from.Add(-40 * day) })},
			week, "b", "1 less_failed",
		},
		{
			"a whole server comes from the rack whose free block is just big enough",
			slices.Concat(in("r1", 4), in("r2", 2), in("r3", 3)),
			with(week, func(w *Wish) { w.Servers = 2 }), "r2-1 r2-2", "7 less_packed",
		},
		{
			"some GPUs come from the server that is used the most",
			[]Server{server("a", "r1"), server("b", "r1", free(4)), server("c", "r1", free(2)), server("d", "r1", free(1))},
			Wish{GPUs: 2, From: from, Until: after(day)},
			"c:2", "3 less_size",
		},
		{
			"GPUs come from the fewest servers",
			[]Server{server("a", "r1", free(4)), server("b", "r1", free(4)), server("c", "r1", free(5)), server("d", "r1")},
			Wish{GPUs: 12, From: from, Until: after(day)},
			"a:4 d:8", "2 less_size",
		},
		{
			"a server that is the best is left where it needs one that is worse than all others",
			[]Server{
				server("a", "r1", free(1)), server("b", "r1", risks(.1), free(4)), server("c", "r1", risks(.1), free(4)), server("d", "r1", risks(.2), free(7)),
			},
			Wish{GPUs: 8, From: from, Until: after(day)},
			"b:4 c:4", "1 less_size, 1 less_risk",
		},
		{
			"a rack is chosen that has enough",
			slices.Concat(in("r1", 3), in("r2", 5), in("r3", 4)),
			with(week, func(w *Wish) { w.Servers, w.Together = 4, Rack }), "r3-1 r3-2 r3-3 r3-4", "3 domain_short, 5 less_domain",
		},
		{
			"a healthier rack comes before one that is just big enough",
			slices.Concat(in("r1", 2, risks(.1)), in("r2", 5)),
			with(week, func(w *Wish) { w.Servers, w.Together = 2, Rack }), "r2-1 r2-2", "2 less_domain, 3 less_name",
		},
		{
			"no more than half on one rack",
			slices.Concat(in("r1", 4), in("r2", 2, risks(.1)), in("r3", 1, risks(.2))),
			with(week, func(w *Wish) { w.Servers, w.Spread = 4, []Spread{{Racks, .5}} }), "r1-1 r1-2 r2-1 r2-2", "2 too_near, 1 less_risk",
		},
		{
			"what is held, repaired, not ready, booked or broken is not given",
			[]Server{
				server("a", "r1", func(s *Server) { s.Hold = "for the audit" }), server("b", "r1", func(s *Server) { s.Case = "drain" }),
				server("c", "r1", func(s *Server) { s.Status = schemas.ServerDiscovered }), server("d", "r1", free(7)),
				server("e", "r1", func(s *Server) { s.GPUs[0].Status = schemas.GPUError }), server("f", "r1"),
				server("g", "r1", func(s *Server) { s.GPUs[0].Status = schemas.GPUInUse }),
			},
			week, "f", "1 status, 1 hold, 1 case, 1 gpu_error, 2 taken",
		},
		{
			"a time before and after a booking is free",
			[]Server{server("a", "r1", func(s *Server) {
				s.Bookings = []Booking{{Whole: true, From: from.Add(-day), Until: from}, {Whole: true, From: after(7 * day)}}
			})},
			week, "a", "",
		},
		{
			"model in either case, memory and labels",
			[]Server{
				server("a", "r1", func(s *Server) { s.GPUs[3].Model = "A100" }), server("b", "r1", func(s *Server) { s.GPUs[0].MemoryGB = 40 }),
				server("c", "r1"), server("d", "r1", func(s *Server) { s.Labels = map[string]string{"net": "ib"} }),
			},
			with(week, func(w *Wish) { w.Model, w.MinMemoryGB, w.Labels = "h100*", 80, map[string]string{"net": "ib"} }), "d",
			"3 labels",
		},
		{
			"GPUs of one kind of a mixed server",
			[]Server{server("a", "r1", func(s *Server) {
				for i := range 6 {
					s.GPUs[i].Model = "A100"
				}
			})},
			Wish{GPUs: 2, Model: "H100*", From: from},
			"a:2", "",
		},
		{
			"by name, GPUs as well",
			in("r1", 3),
			Wish{GPUNames: []string{"r1-1/gpu3", "r1-3/gpu0", "r1-3/gpu7"}, From: from},
			"r1-1:1 r1-3:2", "1 not_asked",
		},
		{"by name", in("r1", 3), Wish{ServerNames: []string{"r1-3", "r1-2"}, From: from}, "r1-2 r1-3", "1 not_asked"},
		{"so many GPUs of each", in("r1", 3, free(5)), Wish{GPUs: 8, GPUsPerServer: 4, From: from}, "r1-1:4 r1-2:4", "1 less_name"},
		{"without whom was tried", in("r1", 2), with(week, func(w *Wish) { w.Except = []string{"r1-1"} }), "r1-2", "1 excepted"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := Choose(view(t, tc.servers...), tc.wish)
			if err != nil {
				t.Fatal(err)
			}
			if got := names(c); got != tc.want {
				t.Errorf("chosen %s, want %s", got, tc.want)
			}
			if got := lost(c.Lost); got != tc.lost {
				t.Errorf("lost %s, want %s", got, tc.lost)
			}
		})
	}
}

func TestNothingFitsSaysWhatIsMissing(t *testing.T) {
	for _, tc := range []struct {
		name    string
		servers []Server
		wish    Wish
		want    string
	}{
		{
			"too few", in("r1", 3),
			Wish{Servers: 4, From: from},
			"nothing fits: 3 of 4 servers are free",
		},
		{
			"too few in one rack", slices.Concat(in("r1", 2), in("r2", 3)),
			Wish{Servers: 4, Together: Rack, From: from},
			"nothing fits: the most that one rack has free is 3 of 4: r2; without together it would fit",
		},
		{
			"fourteen of sixteen", slices.Concat(in("r3", 2, free(7))),
			Wish{GPUs: 16, Together: Rack, From: from},
			"nothing fits: 14 of 16 GPUs are free; the most that one rack has free is 14 of 16: r3",
		},
		{
			"at too small a risk", in("r1", 2, risks(.2)),
			Wish{Servers: 2, MaxRisk: .1, From: from},
			"nothing fits: 0 of 2 servers are free; with a risk of at most 20 % it would fit",
		},
		{
			"a pool", in("r1", 2),
			Wish{Servers: 2, Pool: "big", From: from},
			"nothing fits: 0 of 2 servers are free; without pool it would fit",
		},
		{
			"a name that there is not", in("r1", 2),
			Wish{ServerNames: []string{"r1-1", "r9"}, From: from},
			"nothing fits: there is no r9",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := Choose(view(t, tc.servers...), tc.wish)
			if !errors.Is(err, ErrNoFit) {
				t.Fatalf("%v, %v", c, err)
			}
			if d := cmp.Diff(tc.want, err.Error()); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestReasonsAreSentences(t *testing.T) {
	c, err := Choose(view(t, server("a", "r1", fan), server("b", "r1", risks(.25), func(s *Server) { s.Failed = from.Add(-9 * day) })),
		Wish{GPUs: 3, From: from, Until: after(7 * day)})
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, s := range c.Servers[0].Reasons {
		said = append(said, messages.Text(s))
	}
	said = append(said, "a "+messages.Text(c.Lost[0].Detail))
	if d := cmp.Diff([]string{
		"health is ok",
		"a part fails with 25 %, as far as is predicted, which ends before the time does; the likeliest is b/psu1",
		"a part failed last on 2026-02-20",
		"8 of its GPUs are free, and 3 of them are given",
		"a may fail within the time: a/fan1 with 97 %, and at most 50 % was asked for",
	}, said); d != "" {
		t.Error(d)
	}
	for why := notAsked; why < reasons; why++ {
		if messages.Template(words[why]) == "" {
			t.Errorf("reason %d says nothing", why)
		}
	}
}

// What has no system is for whom it is installed, and says so to others.
func TestWhatHasNoSystemIsForWhomItIsInstalled(t *testing.T) {
	v := view(t, server("a", "r1", func(s *Server) { s.Bare = true }), server("b", "r1"))
	c, err := Choose(v, Wish{Servers: 1, From: from})
	if err != nil || names(c) != "b" || lost(c.Lost) != "1 bare" {
		t.Errorf("%v %v", c, err)
	}
	if c, err = Choose(v, Wish{Servers: 2, From: from, Install: true}); err != nil || names(c) != "a b" {
		t.Errorf("%v %v", c, err)
	}
}

func TestRiskUntil(t *testing.T) {
	r := Risk{
		Part: "fan1", Probability: .8, Made: from, Horizon: after(10 * day), P10: after(2 * day), P50: after(4 * day), P90: after(8 * day),
	}
	for days, want := range map[float64]float64{0: 0, 1: .04, 2: .08, 3: .24, 4: .4, 8: .72, 9: .76, 10: .8, 20: .8} {
		p, beyond := r.by(after(time.Duration(days * float64(day))))
		if d := p - want; d > 1e-9 || d < -1e-9 || beyond != (days > 10) {
			t.Errorf("after %v days %v (beyond %t), want %v", days, p, beyond, want)
		}
	}
	twice := r
	twice.Probability = .5
	other := r
	other.Part = "psu1"
	if p, worst, _ := risk([]Risk{twice, r}, after(20*day)); p < .8-1e-9 || p > .8+1e-9 || worst.Probability != .8 {
		t.Errorf("two predictions of one part: %v", p)
	}
	if p, _, beyond := risk([]Risk{r, other, r}, time.Time{}); p < .96-1e-9 || p > .96+1e-9 || !beyond {
		t.Errorf("two parts: %v", p)
	}
}

func TestWishesThatMakeNoSense(t *testing.T) {
	v := view(t, in("r1", 2)...)
	for field, w := range map[string]Wish{
		"gpus":            {GPUs: 1, Servers: 1, From: from},
		"servers":         {Servers: -1, From: from},
		"gpus_per_server": {GPUs: 65, GPUsPerServer: 65, From: from},
		"from":            {Servers: 1},
		"until":           {Servers: 1, From: from, Until: from},
		"spread":          {GPUs: 4, Spread: []Spread{{Racks, .5}}, From: from},
		"model":           {GPUs: 4, Model: "[", From: from},
		"max_risk":        {GPUs: 4, MaxRisk: 1.5, From: from},
		"min_health":      {GPUs: 4, MinHealth: Critical, From: from},
		"together":        {GPUs: 4, Together: "moon", From: from},
		"gpu_names":       {GPUNames: []string{"x"}, Exclusive: true, From: from},
	} {
		var wrong *WishError
		if _, err := Choose(v, w); !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("%+v: %v, want one of %s", w, err, field)
		}
	}
}

func TestAViewGivesBackWhatItWasTold(t *testing.T) {
	s := server("a", "r1", fan, free(3), func(s *Server) {
		s.Labels, s.Failed, s.GPUs[2].MemoryGB = map[string]string{"a": "b"}, from, 96
		s.Bookings = append(s.Bookings, Booking{Whole: true, From: after(90 * day)})
	})
	v := view(t, s, server("b", "r1"))
	if err := v.Update("a", func(got *Server) {
		if d := cmp.Diff(s, *got); d != "" {
			t.Error(d)
		}
		got.Hold = "x"
	}); err != nil {
		t.Fatal(err)
	}
	v.Remove("b")
	v.Remove("b")
	if c, err := Choose(v, Wish{Servers: 1, From: from}); err == nil || v.Len() != 1 {
		t.Errorf("%d servers, chosen %v", v.Len(), c)
	}
}

package learn

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

// plant is a site with feeds, air units, GPUs and jobs.
func plant(racks, servers int) *schemas.Topology {
	t := fabric(racks, servers)
	for r := range racks {
		t.Resources = append(t.Resources, schemas.Resource{ID: fmt.Sprint("air", r), Kind: schemas.KindCRAC})
		for n := range servers {
			id := fmt.Sprintf("s%d.%d", r, n)
			t.Resources = append(t.Resources,
				schemas.Resource{ID: id + "/gpu0", Kind: schemas.KindGPU, Parent: id},
				schemas.Resource{ID: id + "/disk0", Kind: schemas.KindDisk, Parent: id})
			t.Links = append(t.Links, schemas.Link{Kind: schemas.LinkCools, From: fmt.Sprint("air", r), To: id})
		}
	}
	return t
}

func event(id string, typ, code, resource string, at time.Time) *schemas.Event {
	return &schemas.Event{
		ID: id, Type: typ, Code: code, Resource: resource, Severity: schemas.SeverityError, State: schemas.StateRaised, Time: at, Observed: at,
	}
}

// Which fault, over which way, how often, how soon: of what the records do not have, in
// sites with noise, and whether the effect is a sign of the records or a type of its own.
func TestAnEdgeIsGroundedInTheRecordsAndTheInventory(t *testing.T) {
	const racks, servers, times = 6, 8, 24
	for _, c := range []struct {
		name              string
		cause, causeCode  string
		at                func(r, n int) string
		effect, effCode   string
		on                func(r, n int) []string
		share, lag        float64
		fault, sign, ways string
	}{
		{
			"a GPU off the bus slows a disk", schemas.EventGPUXID, "79", func(r, n int) string { return fmt.Sprintf("s%d.%d/gpu0", r, n) },
			"disk.slow", "", func(r, n int) []string { return []string{fmt.Sprintf("s%d.%d/disk0", r, n)} }, 0.8, 20,
			"gpu.fallen_off_bus", "", "up:server > down:disk",
		},
		{
			"an air unit makes it damp", schemas.EventCRACFailure, "", func(r, _ int) string { return fmt.Sprint("air", r) },
			"humidity.high", "", everyServer(servers), 0.7, 300, "cooling.air_supply", "", "cools:server",
		},
		{
			"a switch that restarts, and wrong clocks of its servers", schemas.EventSwitchReboot, "",
			func(r, _ int) string { return fmt.Sprint("leaf", r) },
			"clock.off", "", everyServer(servers), 0.6, 40, "network.switch_failure", "", "net:nic > up:server",
		},
		{
			"a feed that is lost, and a sign of the records", schemas.EventPSUInputLost, "",
			func(r, n int) string { return fmt.Sprintf("s%d.%d/psu", r, n) },
			schemas.EventFanFailure, "",
			func(r, n int) []string { return []string{fmt.Sprintf("s%d.%d", r, n)} }, 0.7, 30,
			"power.psu_failure", "fan_failed", "up:server",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(3, 4))
			s := NewSite(plant(racks, servers), propagation.Default())
			at := origin
			id := 0
			add := func(typ, code, resource string, when time.Time) {
				id++
				s.Add(event(fmt.Sprint("e", id), typ, code, resource, when))
			}
			for range times {
				at = at.Add(time.Duration(12+rng.IntN(24)) * time.Hour)
				r, n := rng.IntN(racks), rng.IntN(servers)
				add(c.cause, c.causeCode, c.at(r, n), at)
				for _, on := range c.on(r, n) {
					if rng.Float64() < c.share {
						add(c.effect, c.effCode, on, at.Add(time.Duration(c.lag*(0.5+rng.Float64())*float64(time.Second))))
					}
				}
				for range 3 { // by itself
					r, n := rng.IntN(racks), rng.IntN(servers)
					add(c.effect, c.effCode, c.on(r, n)[0], at.Add(time.Duration(2+8*rng.Float64())*time.Hour))
				}
			}
			var p *Proposal
			for _, q := range propose(t, s) {
				if q.Effect == c.effect {
					p = &q
					break
				}
			}
			if p == nil {
				t.Fatal("nothing is proposed")
			}
			if len(p.Causes) == 0 {
				t.Fatalf("no fault could be the cause: %+v", p)
			}
			got := p.Causes[0]
			if got.Fault != c.fault || got.Sign != c.sign || got.Way != c.ways {
				t.Errorf("%s over %q by sign %q, want %s over %q", got.Fault, got.Way, got.Sign, c.fault, c.ways)
			}
			if got.Cases != times || got.Shown > got.Cases || got.Shown < 0.6*times || len(got.Examples) != mostExamples {
				t.Errorf("%v of %v times, %d examples", got.Shown, got.Cases, len(got.Examples))
			}
			if mean := got.LagsSumS / got.Shown; mean < 0.8*c.lag || mean > 1.2*c.lag {
				t.Errorf("after %v s, want %v", mean, c.lag)
			}
			if got.Lift < 10 || got.Shows <= Seldom || got.Shows >= Often || got.Share < Seldom || got.Share > Often {
				t.Errorf("%+v", got)
			}
		})
	}
}

func everyServer(servers int) func(r, n int) []string {
	return func(r, _ int) (out []string) {
		for n := range servers {
			out = append(out, fmt.Sprintf("s%d.%d", r, n))
		}
		return out
	}
}

// What a record has is named as known; of what no record knows the cause, no fault is named.
func TestWhatTheRecordsHaveNeedsNoAcceptance(t *testing.T) {
	s := NewSite(plant(6, 8), propagation.Default())
	for n := range 20 {
		at := origin.Add(time.Duration(n*n+30*n) * time.Hour)
		s.Add(event(fmt.Sprint("a", n), schemas.EventCRACFailure, "", fmt.Sprint("air", n%6), at))
		for k := range 8 {
			s.Add(event(fmt.Sprint("b", n, k), schemas.EventTempHigh, "inlet", fmt.Sprintf("s%d.%d", n%6, k),
				at.Add(time.Duration(300+10*k)*time.Second)))
		}
		s.Add(event(fmt.Sprint("c", n), "door.open", "", fmt.Sprintf("s%d.1", (n+3)%6), at.Add(7*time.Hour)))
		s.Add(event(fmt.Sprint("d", n), "dust.high", "", fmt.Sprintf("s%d.1", (n+3)%6), at.Add(7*time.Hour+time.Minute)))
	}
	seen := map[string]bool{}
	for _, p := range propose(t, s) {
		switch p.Cause + " " + p.Effect {
		case "crac.failure temp.high":
			if seen["known"] = true; p.Known != "cooling.air_supply" {
				t.Errorf("%+v", p)
			}
		case "door.open dust.high":
			if seen["none"] = true; len(p.Causes) > 0 || p.Known != "" {
				t.Errorf("%+v", p)
			}
		}
	}
	if len(seen) != 2 {
		t.Errorf("proposed: %v", seen)
	}
}

// Whatever was counted, an edge is neither certain nor impossible, its times are times, and
// what no past can have counted is refused.
func TestAnEdgeIsBounded(t *testing.T) {
	m := propagation.Default()
	rng := rand.New(rand.NewPCG(5, 6))
	for n := range 500 {
		cases := math.Pow(10, rng.Float64()*9)
		shown := max(1e-9, cases*rng.Float64()*float64(n%3))
		e := EdgeCounts{
			Fault: "host.crash", Kinds: "server", Type: "x.y", Way: "down:gpu", Cases: cases, Shown: min(cases, shown), Chance: rng.Float64(),
		}
		e.Share, e.LagS = e.Shown*rng.Float64(), e.Shown*rng.Float64()*maxEdgeLag
		doc, err := json.Marshal(&Parameters{Format: format, Edges: []EdgeCounts{e}})
		if err != nil {
			t.Fatal(err)
		}
		p, err := Parse(doc)
		if err != nil {
			t.Fatalf("%s: %v", doc, err)
		}
		taught := Apply(m, p)
		f := &taught.Faults[taught.Index("host.crash", []string{"server"})]
		i := slices.IndexFunc(f.Classes, func(c propagation.Class) bool { return c.Learned })
		if i < 0 || i >= f.Own() {
			t.Fatalf("class %d of %d", i, f.Own())
		}
		c, s := f.Classes[i], taught.Signs[len(taught.Signs)-1]
		if c.Shows < Seldom || c.Shows > Often || c.Share < Seldom || c.Share > Often || s.Leak < leastLeak || s.Leak > mostLeak ||
			c.Within < c.Soon || !c.Later || math.IsNaN(c.Shows+c.Share) {
			t.Fatalf("%s is in force as %+v", doc, c)
		}
	}
	for _, bad := range []string{
		`{"fault":"", "kinds":"server", "type":"x", "cases":1, "shown":1}`,
		`{"fault":"f", "kinds":"server", "cases":1, "shown":1}`,
		`{"fault":"f", "kinds":"server", "sign":"a", "type":"x", "cases":1, "shown":1}`,
		`{"fault":"f", "kinds":"server", "type":"x", "cases":1, "shown":2}`,
		`{"fault":"f", "kinds":"server", "type":"x", "cases":1, "shown":0}`,
		`{"fault":"f", "kinds":"server", "type":"x", "cases":1, "shown":1, "share":2}`,
		`{"fault":"f", "kinds":"server", "type":"x", "cases":1, "shown":1, "chance":2}`,
		`{"fault":"f", "kinds":"server", "type":"x", "cases":1, "shown":1, "lag_s":1e12}`,
		`{"fault":"f", "kinds":"server", "type":"x", "cases":1, "shown":1, "way":"sideways:gpu"}`,
		`{"fault":"f", "kinds":"server", "type":"x", "cases":1, "shown":1, "way":"up"}`,
	} {
		if _, err := Parse([]byte(`{"format":1,"edges":[` + bad + `]}`)); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
	// What the records do not have is named and changes nothing.
	p, err := Parse([]byte(`{"format":1,"edges":[{"fault":"f", "kinds":"server", "type":"x", "cases":1, "shown":1}]}`))
	if err != nil || len(p.Unknown(m)) != 1 || len(Apply(m, p).Signs) != len(m.Signs) {
		t.Errorf("%v, error %v", p.Unknown(m), err)
	}
}

// A printed version tells the accepted edges apart from what of the records is changed.
func TestEdgesArePrintedApart(t *testing.T) {
	m := propagation.Default()
	var with, without bytes.Buffer
	p := &Parameters{Format: format, Effects: []EffectCounts{{
		Fault: "host.crash", Kinds: "server", Sign: "host_lost", Cases: 5, Shown: 1, Share: 1,
	}}}
	if err := p.Print(&without, m); err != nil {
		t.Fatal(err)
	}
	p.Edges = []EdgeCounts{{Fault: "host.crash", Kinds: "server", Type: "x.y", Cases: 20, Shown: 20, Share: 20, LagS: 200}}
	if err := p.Print(&with, m); err != nil {
		t.Fatal(err)
	}
	rest, ok := strings.CutPrefix(with.String(), without.String())
	if !ok || !strings.Contains(rest, "host.crash") || !strings.Contains(rest, "x.y") || strings.Count(rest, "\n") != 3 {
		t.Errorf("%s\nand without\n%s", with.String(), without.String())
	}
}

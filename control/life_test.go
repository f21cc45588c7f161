package control

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"auspex/control/messages"
	"auspex/internal/store/records"
	"auspex/schemas"
)

var effect = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// at is a time in seconds after the effect of a repair.
func at(seconds float64) time.Time { return effect.Add(time.Duration(seconds * float64(time.Second))) }

const (
	server = "gpu-r01-03"
	part   = server + "/gpu2"
	quiet  = 30 * time.Second
)

// alert is an alert as detection keeps it.
func alert(id, resource, typ, source, state string, sev schemas.Severity, when time.Time) schemas.Alert {
	return schemas.Alert{
		Event:  schemas.Event{ID: id, Resource: resource, Type: typ, Source: source, State: state, Severity: sev, Observed: when, Time: when},
		Server: server, Status: schemas.AlertFiring, Fingerprint: id,
	}
}

// ward is a vigil with what it heard, second by second.
type ward struct{ *vigil }

func newWard(target, kind string, from view) ward {
	v := newVigil(server, target, kind)
	v.from, v.types, v.known = from, map[string]bool{"gpu.xid": true, "gpu.missing": true}, true
	v.repaired(effect, quiet)
	return ward{v}
}

// reads lets a collector read a resource every ten seconds.
func (w ward) reads(collector, resource, kind string, from, to float64) {
	for s := from; s <= to; s += 10 {
		w.observe(Observation{Resource: resource, Kind: kind, Collector: collector, Time: at(s), Observed: at(s), Values: power(at(s))})
	}
}

// repeats lets the exporter read a GPU every ten seconds, with a power of its own.
func (w ward) repeats(resource string, power func(s float64) float64) {
	for s := 5.0; s <= 85; s += 10 {
		w.observe(Observation{Resource: resource, Kind: schemas.KindGPU, Collector: "dcgmexporter", Time: at(s), Observed: at(s), Values: []Value{
			{Series: "temperature", Number: 40}, {Series: "power", Number: power(s)},
		}})
	}
}

func (w ward) event(resource, collector, typ string, sev schemas.Severity, state string, s float64) {
	w.observe(Observation{Resource: resource, Collector: collector, Time: at(s), Observed: at(s), Event: &schemas.Event{
		Type: typ, Severity: sev, State: state, Time: at(s), Observed: at(s),
	}})
}

func TestOnlyWhatTheRepairedPartSaysThroughWhoSawTheFaultCountsAsLife(t *testing.T) {
	gpu := func() ward { return newWard(part, schemas.KindGPU, viewHost) }
	for name, c := range map[string]struct {
		ward     ward
		feed     func(w ward)
		firing   []schemas.Alert
		now      float64
		cured    bool
		sick     bool
		observed string
	}{
		"the part is read for the quiet time": {
			gpu(),
			func(w ward) { w.reads("dcgmexporter", part, "gpu", 5, 40) },
			nil, 41, true, true, messages.Lives,
		},
		"and not yet for long enough": {
			gpu(),
			func(w ward) { w.reads("dcgmexporter", part, "gpu", 5, 25) },
			nil, 26, false, true, messages.NotLong,
		},
		"nothing is read": {gpu(), func(ward) {}, nil, 100, false, false, messages.SourceSilent},
		"siblings are read": {
			gpu(),
			func(w ward) { w.reads("dcgmexporter", server+"/gpu3", "gpu", 5, 90) },
			nil, 91, false, true, messages.PartSilent,
		},
		"the agent of the server is read": {
			gpu(),
			func(w ward) { w.reads("agent", server, "server", 5, 90) },
			nil, 91, false, false, messages.SourceSilent,
		},
		"the board controller tells of a GPU that its host has lost": {
			gpu(),
			func(w ward) { w.reads("redfish", part, "gpu", 5, 90) },
			nil, 91, false, false, messages.SourceSilent,
		},
		"a rule's series": {
			gpu(),
			func(w ward) { w.reads("rule", part, "gpu", 5, 90) },
			nil, 91, false, false, messages.SourceSilent,
		},
		"what the host cannot see of a supply": {
			newWard(server+"/psu0", schemas.KindPSU, viewBoard),
			func(w ward) { w.reads("dcgmexporter", server+"/psu0", "psu", 5, 90) },
			nil, 91, false, false, messages.SourceSilent,
		},
		"a supply that its controller reads": {
			newWard(server+"/psu0", schemas.KindPSU, viewBoard),
			func(w ward) { w.reads("ipmi", server+"/psu0", "psu", 5, 90) },
			nil, 91, true, true, messages.Lives,
		},
		"a DIMM that nobody reads": {
			newWard(server+"/dimm4", schemas.KindDIMM, viewHost),
			func(w ward) { w.reads("dcgmexporter", part, "gpu", 5, 90) },
			nil, 91, false, false, messages.SourceSilent,
		},
		"a server speaks through its parts": {
			newWard(server, schemas.KindServer, viewHost),
			func(w ward) { w.reads("dcgmexporter", part, "gpu", 5, 90) },
			nil, 91, true, true, messages.Lives,
		},
		"a controller through what it reads": {
			newWard(server+"/bmc", schemas.KindBMC, viewBoard),
			func(w ward) { w.reads("ipmi", server+"/fan1", "fan", 5, 90) },
			nil, 91, true, true, messages.Lives,
		},
		"readings of before, sent late": {gpu(), func(w ward) {
			for s := 5.0; s < 90; s += 10 {
				w.observe(Observation{Resource: part, Kind: "gpu", Collector: "dcgmexporter", Time: at(s - 100), Observed: at(s), Values: power(at(s))})
			}
		}, nil, 91, false, false, messages.SourceSilent},
		"readings of before, replayed with their observation": {
			gpu(),
			func(w ward) { w.reads("dcgmexporter", part, "gpu", -90, 0) },
			nil, 91, false, false, messages.SourceSilent,
		},
		"an XID in between begins it anew": {gpu(), func(w ward) {
			w.reads("dcgmexporter", part, "gpu", 5, 50)
			w.event(part, "kmsg", "gpu.xid", schemas.SeverityCritical, "", 35)
		}, nil, 56, false, true, messages.SignSince},
		"and is over after another quiet time": {gpu(), func(w ward) {
			w.reads("dcgmexporter", part, "gpu", 5, 75)
			w.event(part, "kmsg", "gpu.xid", schemas.SeverityCritical, "", 35)
		}, nil, 76, true, true, messages.Lives},
		"a grave event of another type is a sign": {gpu(), func(w ward) {
			w.reads("dcgmexporter", part, "gpu", 5, 50)
			w.event(part, "dcgmexporter", "gpu.ecc_ue", schemas.SeverityCritical, schemas.StateRaised, 35)
		}, nil, 56, false, true, messages.SignSince},
		"a warning of another type is none": {gpu(), func(w ward) {
			w.reads("dcgmexporter", part, "gpu", 5, 50)
			w.event(part, "dcgmexporter", "gpu.pcie_replay", schemas.SeverityWarning, "", 35)
		}, nil, 56, true, true, messages.Lives},
		"an end is no sign": {gpu(), func(w ward) {
			w.reads("dcgmexporter", part, "gpu", 5, 50)
			w.event(part, "dcgmexporter", "gpu.missing", schemas.SeverityInfo, schemas.StateCleared, 35)
		}, nil, 56, true, true, messages.Lives},
		"a sibling's XID is none": {gpu(), func(w ward) {
			w.reads("dcgmexporter", part, "gpu", 5, 50)
			w.event(server+"/gpu3", "kmsg", "gpu.xid", schemas.SeverityCritical, "", 35)
		}, nil, 56, true, true, messages.Lives},
		"a sign that only detection has told, while nobody listened": {
			gpu(), func(w ward) { w.reads("dcgmexporter", part, "gpu", 5, 50) },
			[]schemas.Alert{alert("x", part, "gpu.xid", "kmsg", "", schemas.SeverityCritical, at(35))},
			56, false, true, messages.SignSince,
		},
		"the XID of before is none": {
			gpu(), func(w ward) { w.reads("dcgmexporter", part, "gpu", 5, 50) },
			[]schemas.Alert{alert("x", part, "gpu.xid", "kmsg", "", schemas.SeverityCritical, at(-35))},
			56, true, true, messages.Lives,
		},
		"its condition still stands": {
			gpu(), func(w ward) { w.reads("dcgmexporter", part, "gpu", 5, 50) },
			[]schemas.Alert{alert("m", part, "gpu.missing", "dcgm", schemas.StateRaised, schemas.SeverityError, at(-35))},
			56, false, true, messages.StillRaised,
		},
		"a condition of the incident stands elsewhere on the server": {
			gpu(), func(w ward) { w.reads("dcgmexporter", part, "gpu", 5, 50) },
			[]schemas.Alert{alert("incident", server+"/gpu3", "gpu.nvlink_errors", "rule", schemas.StateRaised, schemas.SeverityWarning, at(-35))},
			56, false, true, messages.StillRaised,
		},
		"one that is not of the incident": {
			gpu(), func(w ward) { w.reads("dcgmexporter", part, "gpu", 5, 50) },
			[]schemas.Alert{alert("other", server+"/gpu3", "gpu.nvlink_errors", "rule", schemas.StateRaised, schemas.SeverityWarning, at(-35))},
			56, true, true, messages.Lives,
		},
		"a board controller that never writes an end": {
			gpu(), func(w ward) { w.reads("dcgmexporter", part, "gpu", 5, 50) },
			[]schemas.Alert{alert("incident", part, "bmc.event", "redfish", schemas.StateRaised, schemas.SeverityCritical, at(-35))},
			56, true, true, messages.Lives,
		},
		"is believed when it saw the fault": {
			newWard(server+"/psu0", schemas.KindPSU, viewBoard), func(w ward) { w.reads("ipmi", server+"/psu0", "psu", 5, 50) },
			[]schemas.Alert{alert("incident", server+"/psu0", "psu.failure", "ipmi", schemas.StateRaised, schemas.SeverityCritical, at(-35))},
			56, false, true, messages.StillRaised,
		},
		"it answers and falls silent": {
			gpu(),
			func(w ward) { w.reads("dcgmexporter", part, "gpu", 5, 45) },
			nil, 90, false, true, messages.SilentAgain,
		},
		"it drops out while others are read": {gpu(), func(w ward) {
			w.reads("dcgmexporter", part, "gpu", 5, 25)
			w.reads("dcgmexporter", server+"/gpu3", "gpu", 5, 95)
			w.reads("dcgmexporter", part, "gpu", 85, 95)
		}, nil, 96, false, true, messages.NotLong},
		"a cache repeats what it last read": {gpu(), func(w ward) {
			w.repeats(part, func(float64) float64 { return 300 })
			w.repeats(server+"/gpu3", func(float64) float64 { return 310 })
		}, nil, 91, false, false, messages.StandsStill},
		"the driver remembers a GPU that is gone, while the others work": {gpu(), func(w ward) {
			w.repeats(part, func(s float64) float64 { // the cache of before first, then what is static
				if s < 20 {
					return 300
				}
				return 0
			})
			w.reads("dcgmexporter", server+"/gpu3", "gpu", 5, 90)
		}, nil, 91, false, true, messages.StandsStill},
		"one of its numbers moves now and then": {gpu(), func(w ward) {
			w.repeats(part, func(s float64) float64 { return 33 + float64(int(s)/25%2) })
		}, nil, 86, true, true, messages.Lives},
		"a source that reads more rarely than the quiet time": {gpu(), func(w ward) {
			for _, s := range []float64{10, 60} {
				w.observe(Observation{Resource: part, Kind: "gpu", Collector: "dcgmexporter", Time: at(s), Observed: at(s), Values: power(at(s))})
				w.observe(Observation{Resource: server + "/gpu3", Kind: "gpu", Collector: "dcgmexporter", Time: at(s), Observed: at(s), Values: power(at(s))})
			}
		}, nil, 61, true, true, messages.Lives},
	} {
		t.Run(name, func(t *testing.T) {
			c.feed(c.ward)
			f := c.ward.judge(at(c.now), c.firing, func(id string) bool { return id == "incident" })
			if f.cured != c.cured || f.sick != c.sick || f.observed.ID != c.observed {
				t.Errorf("cured %v, sick %v: %s (%s)", f.cured, f.sick, f.observed.ID, messages.Text(f.observed))
			}
		})
	}
}

// A device's clock may be hours off: what it was off by before the repair is known
// after it. One that was not heard before is taken at its word.
func TestAClockThatIsWrongIsKnownFromBeforeTheRepair(t *testing.T) {
	for _, off := range []time.Duration{-8 * time.Hour, 0, 8 * time.Hour} {
		v := newVigil(server, part, schemas.KindGPU)
		v.from, v.known = viewHost, true
		for s := -30.0; s < 0; s += 10 {
			v.observe(Observation{Resource: server + "/gpu3", Kind: "gpu", Collector: "c", Time: at(s).Add(off), Observed: at(s), Values: power(at(s))})
		}
		v.repaired(effect, quiet)
		for s := 5.0; s <= 45; s += 10 { // what was measured before comes late
			v.observe(Observation{Resource: part, Kind: "gpu", Collector: "c", Time: at(s - 60).Add(off), Observed: at(s), Values: power(at(s))})
		}
		if f := v.judge(at(46), nil, func(string) bool { return false }); f.cured || f.sick {
			t.Errorf("%s off: old readings count: %s", off, messages.Text(f.observed))
		}
		for s := 5.0; s <= 45; s += 10 {
			v.observe(Observation{Resource: part, Kind: "gpu", Collector: "c", Time: at(s).Add(off), Observed: at(s), Values: power(at(s))})
		}
		if f := v.judge(at(46), nil, func(string) bool { return false }); !f.cured {
			t.Errorf("%s off: new readings do not count: %s", off, messages.Text(f.observed))
		}
	}
	v := newWard(part, schemas.KindGPU, viewHost)
	for s := 5.0; s <= 45; s += 10 {
		v.observe(Observation{Resource: part, Kind: "gpu", Collector: "c", Time: at(s).Add(-8 * time.Hour), Observed: at(s), Values: power(at(s))})
	}
	if f := v.judge(at(46), nil, func(string) bool { return false }); f.cured {
		t.Error("a clock of which nothing is known vouches for a repair")
	}
}

// Whatever is heard, in whatever order: without a fresh reading of the part from
// who saw the fault nothing is cured, and never before the quiet time is over.
func TestNothingIsCuredWithoutItsOwnReadings(t *testing.T) {
	collectors := []string{"dcgmexporter", "kmsg", "ipmi", "redfish", "rule", "gnmi", "agent"}
	resources := []string{part, server + "/gpu3", server, server + "/psu0"}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 7))
		w := newWard(part, schemas.KindGPU, viewHost)
		own := []time.Time{}
		now := at(0)
		for range 60 {
			h := Observation{
				Resource: resources[r.IntN(4)], Kind: "gpu", Collector: collectors[r.IntN(len(collectors))], Observed: at(-20 + 120*r.Float64()),
			}
			h.Time = h.Observed.Add(-time.Duration(r.IntN(3)) * 20 * time.Second)
			h.Values = power(h.Observed)
			if r.IntN(6) == 0 {
				h.Event = &schemas.Event{Type: "gpu.xid", Severity: schemas.SeverityCritical}
			}
			w.observe(h)
			if h.Observed.After(now) {
				now = h.Observed
			}
			if h.Event == nil && h.Resource == part && viewOf(h.Collector) == viewHost && h.Time.After(effect) {
				own = append(own, h.Observed)
			}
			f := w.judge(now, nil, func(string) bool { return false })
			if !f.cured {
				continue
			}
			first, last := own[0], own[0]
			for _, o := range own {
				if o.Before(first) {
					first = o
				}
				if o.After(last) {
					last = o
				}
			}
			if last.Sub(first) < quiet {
				t.Fatalf("seed %d: cured after %s of readings", seed, last.Sub(first))
			}
		}
	}
}

// The evidence of an incident says who saw its fault.
func TestWhoSawTheFaultIsReadFromTheEvidence(t *testing.T) {
	for name, c := range map[string]struct {
		alerts []schemas.Alert
		kind   string
		want   view
	}{
		"a kernel log": {
			[]schemas.Alert{alert("e1", part, "gpu.xid", "kmsg", "", schemas.SeverityCritical, effect)},
			schemas.KindGPU, viewHost,
		},
		"a controller": {
			[]schemas.Alert{alert("e1", part, "temp.high", "redfish", "", schemas.SeverityCritical, effect)},
			schemas.KindGPU, viewBoard,
		},
		"both: the closest": {
			[]schemas.Alert{
				alert("e1", part, "bmc.sel", "ipmi", "", schemas.SeverityCritical, effect),
				alert("e2", part, "gpu.xid", "kmsg", "", schemas.SeverityCritical, effect),
			},
			schemas.KindGPU, viewHost,
		},
		"a rule over its readings": {
			[]schemas.Alert{alert("e1", part, "gpu.stalled", "rule", schemas.StateRaised, schemas.SeverityError, effect)},
			schemas.KindGPU, viewHost,
		},
		"only of others on the server": {
			[]schemas.Alert{alert("e1", server, "host.panic", "kmsg", "", schemas.SeverityCritical, effect)},
			schemas.KindPSU, viewBoard,
		},
		"nobody": {nil, schemas.KindPort, viewNetwork},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, schemas.ModeEnforce)
			ctl := b.controller()
			inc := incident("i1", part, "gpu.fallen_off_bus")
			for _, a := range c.alerts {
				inc.Events = append(inc.Events, a.ID)
				if err := records.New(b.db).PutAlert(t.Context(), a); err != nil {
					t.Fatal(err)
				}
			}
			v := newVigil(server, part, c.kind)
			if err := ctl.evidence(t.Context(), v, inc); err != nil {
				t.Fatal(err)
			}
			if v.from != c.want {
				t.Errorf("view %d, want %d", v.from, c.want)
			}
		})
	}
}

// deafLife cannot follow anything.
type deafLife struct{}

func (deafLife) Follow(context.Context, string, func(Observation)) error { return errGone }

func TestARepairThatNobodyCanReadBackIsUnknownAndTheServerStaysOut(t *testing.T) {
	for name, life := range map[string]Life{"no life": nil, "a bus that fails": deafLife{}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, schemas.ModeEnforce)
			c := b.controller()
			c.d.Life = life
			as := b.until(c, func(as []schemas.Action) bool { return states(as)["ticket"] != "" }, incident("i1", part, "gpu.fallen_off_bus"))
			b.staysOut(as, schemas.ActionUnknown)
		})
	}
	t.Run("who saw it is silent", func(t *testing.T) {
		b := newBench(t, schemas.ModeEnforce)
		b.w.mute[server] = true
		as := b.until(
			b.controller(), func(as []schemas.Action) bool { return states(as)["ticket"] != "" }, incident("i1", part, "gpu.fallen_off_bus"),
		)
		b.staysOut(as, schemas.ActionUnknown)
	})
	t.Run("the part is dead", func(t *testing.T) {
		b := newBench(t, schemas.ModeEnforce)
		b.w.dead[server] = true
		as := b.until(
			b.controller(), func(as []schemas.Action) bool { return states(as)["ticket"] != "" }, incident("i1", part, "gpu.fallen_off_bus"),
		)
		b.staysOut(as, schemas.ActionFailed)
	})
}

func (b *bench) staysOut(as []schemas.Action, cycle string) {
	b.t.Helper()
	if s := states(as); s["power_cycle"] != cycle || s["uncordon"] != "" {
		b.t.Errorf("%s: %s", show(as), kind(as, "power_cycle").Detail)
	}
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	if !b.w.drained[server] {
		b.t.Error("the server is back in the pool")
	}
}

package control

import (
	"context"
	"math"
	"math/rand/v2"
	"strings"
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

// boardLog is the alert of a record of a board controller, by when it was written and read, and what its clock is ahead.
func boardLog(wrote, read time.Time, skew string) schemas.Alert {
	a := alert("incident", part, "bmc.sel", "ipmi", schemas.StateRaised, schemas.SeverityCritical, read)
	a.Time = wrote
	if skew != "" {
		a.Attrs = map[string]string{schemas.AttrClockSkew: skew}
	}
	return a
}

// grew is the alert of a rule on a counter that grew within an hour.
func grew(id, resource string, when time.Time) schemas.Alert {
	a := alert(id, resource, "gpu.row_remap", schemas.SourceRule, schemas.StateRaised, schemas.SeverityError, when)
	a.Attrs = map[string]string{schemas.AttrGrew: "failures rows"}
	return a
}

// ward is a vigil with what it heard, second by second.
type ward struct{ *vigil }

func newWard(target, kind string, from schemas.View) ward {
	v := newVigil(server, target, kind, eyes)
	v.from, v.types, v.known = from, map[string]bool{"gpu.xid": true, "gpu.missing": true}, true
	w := ward{v}
	w.reads("dcgmexporter", server+"/gpu7", schemas.KindGPU, -45, -25)
	w.restarts(at(-20), true)
	w.repaired(effect, quiet)
	return w
}

// reloaded is a vigil of a GPU whose driver was loaded anew.
func reloaded() ward {
	w := newWard(part, schemas.KindGPU, schemas.ViewHost)
	w.restarts(at(-20), false)
	return w
}

// late is a vigil that began to listen when the server had restarted.
func late() ward {
	w := newWard(part, schemas.KindGPU, schemas.ViewHost)
	w.deaf()
	return w
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

// counts lets the exporter read two counters of a GPU every ten seconds, beside its power.
func (w ward) counts(resource string, rows func(s float64) float64) {
	w.countsBy("dcgmexporter", resource, rows)
}

func (w ward) countsBy(collector, resource string, rows func(s float64) float64) {
	for s := 5.0; s <= 85; s += 10 {
		w.observe(Observation{
			Resource: resource, Kind: schemas.KindGPU, Collector: collector, Time: at(s), Observed: at(s),
			Values: append(power(at(s)), Value{Series: "failures"}, Value{Series: "rows" + SeriesLabels + "uncorrectable", Number: rows(s)}),
		})
	}
}

// steady lets a collector read the same of a resource every ten seconds.
func (w ward) steady(collector, resource, kind string) {
	for s := 5.0; s <= 85; s += 10 {
		w.observe(Observation{Resource: resource, Kind: kind, Collector: collector, Time: at(s), Observed: at(s), Values: []Value{{Series: "rpm", Number: 4000}}})
	}
}

// meter lets the exporter read the energy, in joules, and the power of a GPU.
func (w ward) meter(resource string, from, to float64, read func(s float64) (joules, watts float64)) {
	for s := from; s <= to; s += 10 {
		j, p := read(s)
		w.observe(Observation{Resource: resource, Kind: schemas.KindGPU, Collector: "dcgmexporter", Time: at(s), Observed: at(s), Values: []Value{
			{Series: schemas.GPUEnergy, Number: 1000 * j}, {Series: schemas.GPUPower, Number: p},
		}})
	}
}

func (w ward) event(resource, collector, typ string, sev schemas.Severity, state string, s float64) {
	w.observe(Observation{Resource: resource, Collector: collector, Time: at(s), Observed: at(s), Event: &schemas.Event{
		Type: typ, Severity: sev, State: state, Time: at(s), Observed: at(s),
	}})
}

func TestOnlyWhatTheRepairedPartSaysThroughWhoSawTheFaultCountsAsLife(t *testing.T) {
	gpu := func() ward { return newWard(part, schemas.KindGPU, schemas.ViewHost) }
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
		"one whose numbers move counts, beside one that was heard before and tells what never changes": {
			gpu(),
			func(w ward) {
				w.steady("kmsg", part, "gpu")
				w.reads("dcgmexporter", part, "gpu", 10, 80)
			},
			nil, 81, true, true, messages.Lives,
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
			newWard(server+"/psu0", schemas.KindPSU, schemas.ViewBoard),
			func(w ward) { w.reads("dcgmexporter", server+"/psu0", "psu", 5, 90) },
			nil, 91, false, false, messages.SourceSilent,
		},
		"a supply that its controller reads": {
			newWard(server+"/psu0", schemas.KindPSU, schemas.ViewBoard),
			func(w ward) { w.reads("ipmi", server+"/psu0", "psu", 5, 90) },
			nil, 91, true, true, messages.Lives,
		},
		"a DIMM that nobody reads": {
			newWard(server+"/dimm4", schemas.KindDIMM, schemas.ViewHost),
			func(w ward) { w.reads("dcgmexporter", part, "gpu", 5, 90) },
			nil, 91, false, false, messages.SourceSilent,
		},
		"a server speaks through its parts": {
			newWard(server, schemas.KindServer, schemas.ViewHost),
			func(w ward) { w.reads("dcgmexporter", part, "gpu", 5, 90) },
			nil, 91, true, true, messages.Lives,
		},
		"a controller through what it reads": {
			newWard(server+"/bmc", schemas.KindBMC, schemas.ViewBoard),
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
		"one whose log is read late": {
			gpu(), func(w ward) { w.reads("dcgmexporter", part, "gpu", 5, 50) },
			[]schemas.Alert{boardLog(at(-35), at(3), "")},
			56, true, true, messages.Lives,
		},
		"one whose clock is behind writes of a new fault": {
			gpu(), func(w ward) { w.reads("dcgmexporter", part, "gpu", 5, 50) },
			[]schemas.Alert{boardLog(at(-57), at(3), "-60")},
			56, false, true, messages.StillRaised,
		},
		"one whose clock was never set": {
			gpu(), func(w ward) { w.reads("dcgmexporter", part, "gpu", 5, 50) },
			[]schemas.Alert{boardLog(time.Unix(60, 0), at(3), "")},
			56, false, true, messages.StillRaised,
		},
		"is believed when it saw the fault": {
			newWard(server+"/psu0", schemas.KindPSU, schemas.ViewBoard), func(w ward) { w.reads("ipmi", server+"/psu0", "psu", 5, 50) },
			[]schemas.Alert{alert("incident", server+"/psu0", "psu.failure", "ipmi", schemas.StateRaised, schemas.SeverityCritical, at(-35))},
			56, false, true, messages.StillRaised,
		},
		"a rule on what grew within an hour, and grows no more": {
			gpu(), func(w ward) { w.counts(part, func(float64) float64 { return 2 }) },
			[]schemas.Alert{grew("incident", part, at(-35))},
			86, true, true, messages.Lives,
		},
		"and grew again": {
			gpu(), func(w ward) { w.counts(part, func(s float64) float64 { return 2 + math.Floor(s/65) }) },
			[]schemas.Alert{grew("incident", part, at(-35))},
			86, false, true, messages.SignSince,
		},
		"and began anew with the driver": {
			gpu(), func(w ward) { w.counts(part, func(s float64) float64 { return 2 - math.Floor(s/65) }) },
			[]schemas.Alert{grew("incident", part, at(-35))},
			86, true, true, messages.Lives,
		},
		"and is not read": {
			gpu(), func(w ward) { w.reads("dcgmexporter", part, "gpu", 5, 85) },
			[]schemas.Alert{grew("incident", part, at(-35))},
			86, false, true, messages.StillRaised,
		},
		"and is read of others alone": {
			gpu(), func(w ward) {
				w.reads("dcgmexporter", part, "gpu", 5, 85)
				w.counts(server+"/gpu3", func(float64) float64 { return 2 })
			},
			[]schemas.Alert{grew("incident", part, at(-35))},
			86, false, true, messages.StillRaised,
		},
		"and was read for less than the quiet time": {
			gpu(), func(w ward) {
				w.reads("dcgmexporter", part, "gpu", 5, 85)
				for _, s := range []float64{5, 15, 25} {
					w.observe(Observation{
						Resource: part, Kind: schemas.KindGPU, Collector: "dcgmexporter", Time: at(s), Observed: at(s),
						Values: []Value{{Series: "failures", Number: 0}, {Series: "rows", Number: 2}},
					})
				}
			},
			[]schemas.Alert{grew("incident", part, at(-35))},
			86, false, true, messages.StillRaised,
		},
		"and one of its two counters is not read": {
			gpu(), func(w ward) {
				w.counts(part, func(float64) float64 { return 2 })
				for k := range w.runs["dcgmexporter"].values {
					if k.series == "failures" {
						delete(w.runs["dcgmexporter"].values, k)
					}
				}
			},
			[]schemas.Alert{grew("incident", part, at(-35))},
			86, false, true, messages.StillRaised,
		},
		"and is read by one with other eyes alone": {
			gpu(), func(w ward) {
				w.reads("dcgmexporter", part, "gpu", 5, 85)
				w.countsBy("redfish", part, func(float64) float64 { return 2 })
			},
			[]schemas.Alert{grew("incident", part, at(-35))},
			86, false, true, messages.StillRaised,
		},
		"and is told late": {
			gpu(), func(w ward) { w.counts(part, func(float64) float64 { return 2 }) },
			[]schemas.Alert{grew("incident", part, at(70))},
			86, true, true, messages.Lives,
		},
		"and is told late, and is not read": {
			gpu(), func(w ward) { w.reads("dcgmexporter", part, "gpu", 5, 85) },
			[]schemas.Alert{grew("incident", part, at(70))},
			86, false, true, messages.StillRaised,
		},
		"and grows on a neighbour that belongs to the fault": {
			gpu(), func(w ward) {
				w.reads("dcgmexporter", part, "gpu", 5, 85)
				w.counts(server+"/gpu3", func(s float64) float64 { return math.Floor(s / 20) })
			},
			[]schemas.Alert{grew("incident", server+"/gpu3", at(-35))},
			86, false, true, messages.StillRaised,
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
		"a recording of hours, of a server that has just restarted": {gpu(), func(w ward) {
			w.meter(part, 5, 90, func(s float64) (j, p float64) { return 9e6 + 90*s, 90 + math.Sin(s) })
		}, nil, 91, false, false, messages.NotRestarted},
		"a counter that began with the driver": {gpu(), func(w ward) {
			w.meter(part, 5, 90, func(s float64) (j, p float64) { return 90 * s, 90 + math.Sin(s) })
		}, nil, 91, true, true, messages.Lives},
		"a burn-in before the first reading": {gpu(), func(w ward) {
			w.meter(part, 5, 90, func(s float64) (j, p float64) { return 700*15 + 70*s, 70 + math.Sin(s) })
		}, nil, 91, true, true, messages.Lives},
		"an exporter that reads more rarely than it is asked": {gpu(), func(w ward) {
			w.meter(part, 5, 145, func(s float64) (j, p float64) {
				s = math.Floor(s/20) * 20
				return 90 * (s + 1), 90 + math.Sin(s)
			})
		}, nil, 146, true, true, messages.Lives},
		"a recording at ten times the speed": {gpu(), func(w ward) {
			w.meter(part, 5, 90, func(s float64) (j, p float64) { return 90 * 10 * s, 90 + math.Sin(s) })
		}, nil, 91, false, false, messages.WrongPace},
		"a power that moves, and a counter that does not": {gpu(), func(w ward) {
			w.meter(part, 5, 90, func(s float64) (j, p float64) { return 900, 90 + math.Sin(s) })
		}, nil, 91, false, false, messages.WrongPace},
		"a recording, and an XID of the kernel": {gpu(), func(w ward) {
			w.meter(part, 5, 90, func(s float64) (j, p float64) { return 9e6 + 90*s, 90 + math.Sin(s) })
			w.event(part, "kmsg", "gpu.xid", schemas.SeverityCritical, "", 15)
		}, nil, 91, false, true, messages.NotRestarted},
		"it was read all the time while the server restarted": {gpu(), func(w ward) {
			w.reads("dcgmexporter", part, "gpu", -15, 50)
		}, nil, 56, false, false, messages.NeverSilent},
		"a server whose driver alone was loaded anew is read all the time": {reloaded(), func(w ward) {
			w.meter(part, -15, 90, func(s float64) (j, p float64) { return 90 * (s + 18), 90 + math.Sin(s) })
		}, nil, 91, true, true, messages.Lives},
		"but no driver counts on from before": {reloaded(), func(w ward) {
			w.meter(part, -15, 90, func(s float64) (j, p float64) { return 9e6 + 90*s, 90 + math.Sin(s) })
		}, nil, 91, false, false, messages.NotRestarted},
		"a young recording, whose counter restarted too": {gpu(), func(w ward) {
			w.meter(part, -15, 90, func(s float64) (j, p float64) { return 90 * (s + 18), 90 + math.Sin(s) })
		}, nil, 91, false, false, messages.NeverSilent},
		"and came late once": {gpu(), func(w ward) {
			w.reads("dcgmexporter", part, "gpu", -8, 60)
		}, nil, 61, false, false, messages.NeverSilent},
		"it had hung for a while before": {gpu(), func(w ward) {
			w.pulses["dcgmexporter"].gaps = append(w.pulses["dcgmexporter"].gaps, 10*time.Minute)
			w.reads("dcgmexporter", part, "gpu", 5, 40)
		}, nil, 41, true, true, messages.Lives},
		"others were read while the host was silent": {gpu(), func(w ward) {
			w.reads("redfish", server+"/psu0", "psu", -20, 80)
			w.reads("dcgmexporter", part, "gpu", 5, 40)
		}, nil, 41, true, true, messages.Lives},
		"what the board reads does not fall silent": {
			newWard(server+"/psu0", schemas.KindPSU, schemas.ViewBoard),
			func(w ward) { w.reads("ipmi", server+"/psu0", "psu", -20, 90) },
			nil, 91, true, true, messages.Lives,
		},
		"nobody listened while the server restarted": {
			late(), func(w ward) { w.reads("dcgmexporter", part, "gpu", 5, 50) },
			nil, 51, false, false, messages.RestartUnheard,
		},
		"nobody listened, and a counter began anew": {late(), func(w ward) {
			w.meter(part, 5, 90, func(s float64) (j, p float64) { return 90 * (s + 18), 90 + math.Sin(s) })
		}, nil, 91, true, true, messages.Lives},
		"nobody listened, but for the end of the silence": {late(), func(w ward) {
			w.reads("ipmi", server+"/psu0", "psu", -15, 80)
			w.reads("dcgmexporter", part, "gpu", 10, 50)
		}, nil, 51, true, true, messages.Lives},
		"stamps that run ahead of time": {gpu(), func(w ward) {
			for s := 5.0; s <= 90; s += 10 {
				w.observe(Observation{Resource: part, Kind: "gpu", Collector: "dcgmexporter", Time: at(5 * s), Observed: at(s), Values: power(at(s))})
			}
		}, nil, 91, false, false, messages.WrongPace},
		"a clock that was set once": {gpu(), func(w ward) {
			for s := 5.0; s <= 90; s += 10 {
				set := 0.0
				if s > 30 {
					set = 3e8
				}
				w.observe(Observation{Resource: part, Kind: "gpu", Collector: "dcgmexporter", Time: at(s + set), Observed: at(s), Values: power(at(s))})
			}
		}, nil, 91, true, true, messages.Lives},
		"stamps that hardly get on": {gpu(), func(w ward) {
			for s := 5.0; s <= 90; s += 10 {
				w.observe(Observation{Resource: part, Kind: "gpu", Collector: "dcgmexporter", Time: at(s / 10), Observed: at(s), Values: power(at(s))})
			}
		}, nil, 91, false, true, messages.NotLong},
		"a fan that turns evenly, of a controller whose others change": {
			newWard(server+"/fan1", schemas.KindFan, schemas.ViewBoard), func(w ward) {
				w.steady("ipmi", server+"/fan1", schemas.KindFan)
				w.reads("ipmi", server+"/psu0", schemas.KindPSU, 5, 85)
			}, nil, 86, true, true, messages.Lives,
		},
		"a fan of a controller that repeats all it says": {
			newWard(server+"/fan1", schemas.KindFan, schemas.ViewBoard), func(w ward) {
				w.steady("ipmi", server+"/fan1", schemas.KindFan)
				w.steady("ipmi", server+"/psu0", schemas.KindPSU)
				w.reads("redfish", server+"/psu0", schemas.KindPSU, 5, 85)
			}, nil, 86, false, false, messages.StandsStill,
		},
		"a port without traffic, of a switch that works": {
			newWard("leaf1/eth3", schemas.KindPort, schemas.ViewNetwork), func(w ward) {
				w.steady("gnmi", "leaf1/eth3", schemas.KindPort)
				w.reads("gnmi", "leaf1/eth4", schemas.KindPort, 5, 85)
			}, nil, 86, true, true, messages.Lives,
		},
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

// What nobody has declared the eyes of, such as a collector of another version or a
// stranger on the bus, cures nothing.
func TestACollectorWithoutDeclaredEyesVouchesForNothing(t *testing.T) {
	for _, name := range []string{"", "stranger", "slurm", "api", schemas.SourceRule} {
		w := newWard(part, schemas.KindGPU, schemas.ViewHost)
		w.reads(name, part, schemas.KindGPU, 5, 50)
		if f := w.judge(at(51), nil, func(string) bool { return false }); f.cured {
			t.Errorf("%q vouches for a repair: %s", name, messages.Text(f.observed))
		}
	}
}

// A device's clock may be hours off: what it was off by before the repair is known
// after it. One that was not heard before is taken at its word.
func TestAClockThatIsWrongIsKnownFromBeforeTheRepair(t *testing.T) {
	for _, off := range []time.Duration{-8 * time.Hour, 0, 8 * time.Hour} {
		v := newVigil(server, part, schemas.KindGPU, eyes)
		v.from, v.known = schemas.ViewHost, true
		for s := -30.0; s < 0; s += 10 {
			v.observe(Observation{Resource: server + "/gpu3", Kind: "gpu", Collector: "dcgmexporter", Time: at(s).Add(off), Observed: at(s), Values: power(at(s))})
		}
		v.repaired(effect, quiet)
		for s := 5.0; s <= 45; s += 10 { // what was measured before comes late
			v.observe(Observation{Resource: part, Kind: "gpu", Collector: "dcgmexporter", Time: at(s - 60).Add(off), Observed: at(s), Values: power(at(s))})
		}
		if f := v.judge(at(46), nil, func(string) bool { return false }); f.cured || f.sick {
			t.Errorf("%s off: old readings count: %s", off, messages.Text(f.observed))
		}
		for s := 5.0; s <= 45; s += 10 {
			v.observe(Observation{Resource: part, Kind: "gpu", Collector: "dcgmexporter", Time: at(s).Add(off), Observed: at(s), Values: power(at(s))})
		}
		if f := v.judge(at(46), nil, func(string) bool { return false }); !f.cured {
			t.Errorf("%s off: new readings do not count: %s", off, messages.Text(f.observed))
		}
	}
	v := newWard(part, schemas.KindGPU, schemas.ViewHost)
	for s := 5.0; s <= 45; s += 10 {
		v.observe(Observation{Resource: part, Kind: "gpu", Collector: "dcgmexporter", Time: at(s).Add(-8 * time.Hour), Observed: at(s), Values: power(at(s))})
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
	cured := 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 7))
		w := newWard(part, schemas.KindGPU, schemas.ViewHost)
		own := []time.Time{}
		now := at(0)
		for range 60 {
			h := Observation{
				Resource: resources[r.IntN(4)], Kind: "gpu", Collector: collectors[r.IntN(len(collectors))], Observed: at(-20 + 120*r.Float64()),
			}
			h.Time = h.Observed
			if h.Observed.After(effect) { // before it the clocks are seen to be right
				h.Time = h.Observed.Add(-time.Duration(r.IntN(3)) * 20 * time.Second)
			}
			h.Values = power(h.Observed)
			if r.IntN(6) == 0 {
				h.Event = &schemas.Event{Type: "gpu.xid", Severity: schemas.SeverityCritical}
			}
			w.observe(h)
			if h.Observed.After(now) {
				now = h.Observed
			}
			if h.Event == nil && h.Resource == part && eyes(h.Collector) == schemas.ViewHost && h.Time.After(effect) {
				own = append(own, h.Observed)
			}
			f := w.judge(now, nil, func(string) bool { return false })
			if !f.cured {
				continue
			}
			cured++
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
	if cured == 0 {
		t.Error("nothing is ever cured")
	}
}

// The evidence of an incident says who saw its fault.
func TestWhoSawTheFaultIsReadFromTheEvidence(t *testing.T) {
	for name, c := range map[string]struct {
		alerts []schemas.Alert
		kind   string
		want   schemas.View
	}{
		"a kernel log": {
			[]schemas.Alert{alert("e1", part, "gpu.xid", "kmsg", "", schemas.SeverityCritical, effect)},
			schemas.KindGPU, schemas.ViewHost,
		},
		"a controller": {
			[]schemas.Alert{alert("e1", part, "temp.high", "redfish", "", schemas.SeverityCritical, effect)},
			schemas.KindGPU, schemas.ViewBoard,
		},
		"both: the closest": {
			[]schemas.Alert{
				alert("e1", part, "bmc.sel", "ipmi", "", schemas.SeverityCritical, effect),
				alert("e2", part, "gpu.xid", "kmsg", "", schemas.SeverityCritical, effect),
			},
			schemas.KindGPU, schemas.ViewHost,
		},
		"a rule over its readings": {
			[]schemas.Alert{alert("e1", part, "gpu.stalled", "rule", schemas.StateRaised, schemas.SeverityError, effect)},
			schemas.KindGPU, schemas.ViewHost,
		},
		"only of others on the server": {
			[]schemas.Alert{alert("e1", server, "host.panic", "kmsg", "", schemas.SeverityCritical, effect)},
			schemas.KindPSU, schemas.ViewBoard,
		},
		"nobody": {nil, schemas.KindPort, schemas.ViewNetwork},
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
			v := newVigil(server, part, c.kind, eyes)
			if err := ctl.evidence(t.Context(), v, inc); err != nil {
				t.Fatal(err)
			}
			if v.from != c.want {
				t.Errorf("view %q, want %q", v.from, c.want)
			}
		})
	}
}

// deafLife cannot follow anything.
type deafLife struct{}

func (deafLife) Follow(context.Context, string, func(Observation)) error { return errGone }

func TestARepairThatNobodyCanReadBackIsUnknownAndTheServerStaysOut(t *testing.T) {
	t.Parallel()
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
		var said string // meanwhile, once
		if err := b.db.QueryRowContext(t.Context(), `SELECT detail FROM control_audit WHERE verb='observe'`).Scan(&said); err != nil ||
			!strings.Contains(said, "since then: dcgmexporter reads other parts of "+server) {
			t.Errorf("%q %v", said, err)
		}
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

package correlator

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"auspex/schemas"
)

// draw plays faults over a site, minutes to hours apart, from how machines
// fail, not from the propagation knowledge: each storm has probabilities and
// delays of its own.
type draw struct {
	scene
	w   *site
	rng *rand.Rand
	// of this storm: how surely a sign comes, how far the sources lag, how often a
	// record that names the cause is there
	sure, lag, tell float64
	truth           truth
}

func (d *draw) p(p float64) bool { return d.rng.Float64() < p }

func (d *draw) n(n int) int { return d.rng.IntN(n) }

// wait is a delay around a mean in seconds.
func (d *draw) wait(mean float64) float64 { return mean * d.lag * (0.3 + d.rng.ExpFloat64()) }

// cond is a condition that is raised and, when to is later, ends.
func (d *draw) cond(at, to float64, source, resource, what string, sev schemas.Severity) {
	if !d.p(d.sure) {
		return
	}
	d.at(at, source, resource, what, sev, up)
	if to > at {
		d.at(to+d.wait(5), source, resource, what, schemas.SeverityInfo, down)
	}
}

// note is a record without an end.
func (d *draw) note(at float64, source, resource, what string, sev schemas.Severity, opts ...string) {
	if d.p(d.sure) {
		d.at(at, source, resource, what, sev, opts...)
	}
}

// gone is a server that goes down at a time and, maybe, comes back.
func (d *draw) gone(at, back float64, r, h int, bmc bool) {
	for k := range d.w.nics {
		if d.w.leaves > 0 {
			d.cond(at+d.wait(0.5), back, "gnmi", d.w.portOf(r, h, k), "port.down", failed)
		}
	}
	d.cond(at+10+d.wait(5), back, "collector", d.w.host(r, h), "agent.unreachable", failed)
	d.cond(at+12+d.wait(8), back, "collector", d.w.host(r, h), "host.unreachable", failed)
	if bmc {
		d.cond(at+15+d.wait(10), back, "collector", d.w.id("s%d.%d/bmc", r, h), "bmc.unreachable", failed)
	}
}

type blame struct{ resource, fault string }

// fault plays one and notes its events; a fault of which nothing came is none.
func (d *draw) fault(accept []blame, play func()) {
	from := len(d.events)
	play()
	if len(d.events) == from {
		return
	}
	f := d.truth.Incidents[:len(d.truth.Incidents):len(d.truth.Incidents)]
	f = append(f, make([]struct {
		ID         string   `json:"id"`
		RepeatOf   string   `json:"repeat_of"`
		RootScored *bool    `json:"root_scored"`
		Events     []string `json:"events"`
		Accept     []struct {
			Resource string `json:"resource"`
			Fault    string `json:"fault"`
		} `json:"accept"`
	}, 1)...)
	x := &f[len(f)-1]
	x.ID = fmt.Sprint("f", len(f))
	for _, ev := range d.events[from:] {
		x.Events = append(x.Events, ev.ID)
	}
	for _, a := range accept {
		x.Accept = append(x.Accept, struct {
			Resource string `json:"resource"`
			Fault    string `json:"fault"`
		}{a.resource, a.fault})
	}
	d.truth.Incidents = f
}

func (d *draw) one(at float64) {
	w := d.w
	r, h := d.n(w.racks), d.n(w.servers)
	host := w.host(r, h)
	part := func(kind string, n int) string { return w.id("s%d.%d/%s%d", r, h, kind, d.n(n)) }
	back := at + 600 + 3000*d.rng.Float64()
	kind := d.n(20)
	switch kind {
	case 0, 1: // a feed, or all
		if w.feeds == 0 {
			return
		}
		f := d.n(w.feeds)
		lose := func(f int, at float64) {
			for h := range w.servers {
				for k := f; k < w.psus; k += w.feeds {
					d.cond(at+d.wait(2), back, "redfish", w.id("s%d.%d/psu%d", r, h, k), "psu.input_lost", failed)
				}
				if d.p(0.4) && w.gpus > 0 && w.feeds > 1 {
					for g := range w.gpus {
						if d.p(0.7) {
							d.note(at+d.wait(4), "dcgm", w.id("s%d.%d/gpu%d", r, h, g), "gpu.clocks_throttled/HW_POWER_BRAKE", warned)
						}
					}
				}
			}
			for l := range w.leaves {
				d.cond(at+d.wait(2), back, "gnmi", w.id("leaf%d.%d/psu%d", r, l, f), "switch.psu", warned)
			}
			if d.p(d.tell) {
				d.cond(at+d.wait(2), back, "snmp", w.id("pdu%d.%d", r, f), "pdu.breaker", critical)
			}
		}
		accept := []blame{{w.id("pdu%d.%d", r, f), "power.feed_loss"}}
		if w.feeds == 2 && kind == 1 && d.p(0.4) { // the other follows, and all is dark
			d.fault(accept, func() { lose(f, at) })
			d.fault([]blame{{w.id("pdu%d.%d", r, 1-f), "power.feed_loss"}}, func() { d.black(at+2+d.wait(10), back, r) })
			return
		}
		d.fault(accept, func() {
			if w.feeds == 1 {
				d.black(at, back, r)
				if d.p(d.tell) {
					d.cond(at+d.wait(2), back, "snmp", w.id("pdu%d.0", r), "pdu.breaker", critical)
				}
				return
			}
			lose(f, at)
			if d.p(0.3) {
				d.gone(at+d.wait(3), back, r, h, d.p(0.5))
			}
		})
	case 2: // air
		if w.row == 0 {
			return
		}
		unit := r / w.row
		accept := []blame{{w.id("air%d", unit), "cooling.air_supply"}}
		if w.row == 1 {
			accept = append(accept, blame{w.id("r%d", r), "cooling.air_supply"})
		}
		d.fault(accept, func() {
			back += 1800
			if d.p(d.tell) {
				d.cond(at, back, "snmp", w.id("air%d", unit), "crac.failure", critical)
			}
			hot := d.rng.Float64()*0.6 + 0.4
			for r := unit * w.row; r < min((unit+1)*w.row, w.racks); r++ {
				for h := range w.servers {
					if !d.p(hot) {
						continue
					}
					d.cond(at+d.wait(300), back, "ipmi", w.host(r, h), "temp.inlet_high/Inlet Temp", warned)
					if d.p(0.2) && w.gpus > 0 {
						d.cond(at+200+d.wait(400), back, "dcgm", w.id("s%d.%d/gpu%d", r, h, d.n(w.gpus)), "gpu.thermal/HW_THERMAL", warned)
					}
				}
			}
			for range d.n(3) {
				t, h := at+900+d.wait(600), d.n(w.servers)
				if d.p(0.5) {
					d.note(t-5, "ipmi", w.id("s%d.%d/cpu%d", r, h, d.n(2)), "bmc.sel/07/01", critical)
				}
				d.gone(t, max(back, t+600), r, h, false)
			}
		})
	case 3, 4: // a crash
		d.fault([]blame{{host, "host.crash"}}, func() {
			if d.p(d.tell) {
				d.note(at, "kmsg", host, "host.panic", critical)
			}
			d.gone(at+1, back, r, h, false)
			if d.p(0.4) {
				d.note(at+30, "ipmi", host, "bmc.sel/23/01", critical)
			}
			d.note(back, "kmsg", host, "host.reboot/unclean", failed)
		})
	case 5:
		gpu := part("gpu", w.gpus)
		d.fault([]blame{{gpu, "gpu.fallen_off_bus"}}, func() {
			d.note(at, "kmsg", gpu, "gpu.xid/79", critical)
			d.note(at+d.wait(1), "kmsg", gpu, "gpu.xid/154", failed)
			d.cond(at+d.wait(10), 0, "dcgm", gpu, "gpu.missing/GPU_IS_LOST", critical)
		})
	case 6:
		gpu := part("gpu", w.gpus)
		d.fault([]blame{{gpu, "gpu.memory_uncorrectable"}}, func() {
			d.note(at, "kmsg", gpu, "gpu.xid/48", critical)
			d.note(at+d.wait(1), "kmsg", gpu, "gpu.xid/63", warned)
			d.note(at+d.wait(5), "dcgm", gpu, "gpu.ecc_ue/DRAM", critical)
		})
	case 7:
		gpu := part("gpu", w.gpus)
		d.fault([]blame{{gpu, "gpu.overheating"}}, func() {
			for i := range 2 + d.n(7) {
				d.at(
					at+float64(i)*900/8+d.wait(20), "dcgm", gpu, []string{"gpu.thermal/HW_THERMAL", "gpu.clocks_throttled/HW_THERMAL_SLOWDOWN"}[i%2],
					warned,
				)
			}
		})
	case 8:
		if w.nvswitches == 0 {
			return
		}
		sw := part("nvswitch", w.nvswitches)
		d.fault([]blame{{sw, "nvswitch.failure"}}, func() {
			d.note(at, "kmsg", sw, "nvswitch.sxid/10003", critical)
			for g := range w.gpus {
				if d.p(0.7) {
					d.note(at+d.wait(2), "kmsg", w.id("s%d.%d/gpu%d", r, h, g), "gpu.xid/74", critical)
				}
			}
		})
	case 9:
		if w.leaves == 0 {
			return
		}
		k := d.n(w.nics)
		port, nic := w.portOf(r, h, k), w.id("s%d.%d/nic%d", r, h, k)
		d.fault([]blame{{port, "network.link_failure"}, {nic, "network.link_failure"}}, func() {
			d.cond(at, back, "gnmi", port, "port.down", failed)
			d.cond(at+d.wait(1), back, "kmsg", nic, "nic.down", failed)
		})
	case 10, 11: // a leaf
		if w.leaves == 0 || w.spines == 0 {
			return
		}
		l := d.n(w.leaves)
		d.fault([]blame{{w.id("leaf%d.%d", r, l), "network.switch_failure"}}, func() {
			for h := range w.servers {
				for k := l; k < w.nics; k += w.leaves {
					d.cond(at+d.wait(1), back, "kmsg", w.id("s%d.%d/nic%d", r, h, k), "nic.down", failed)
				}
			}
			for k := range w.spines {
				d.cond(at+d.wait(1), back, "gnmi", w.id("spine%d/d%d.%d", k, r, l), "port.down", failed)
			}
			d.cond(at+20+d.wait(5), back, "collector", w.id("leaf%d.%d", r, l), "switch.unreachable", critical)
		})
	case 12:
		if !w.mgmt {
			return
		}
		inBand := d.p(0.5)
		d.fault([]blame{{w.id("mgmt%d", r), "network.switch_failure"}}, func() {
			for h := range w.servers {
				d.cond(at+10+d.wait(15), back, "collector", w.id("s%d.%d/bmc", r, h), "bmc.unreachable", failed)
				if inBand {
					d.cond(at+8+d.wait(10), back, "collector", w.host(r, h), "agent.unreachable", failed)
					d.cond(at+10+d.wait(10), back, "collector", w.host(r, h), "host.unreachable", failed)
				}
			}
			d.cond(at+20+d.wait(10), back, "collector", w.id("mgmt%d", r), "switch.unreachable", critical)
		})
	case 13:
		psu := part("psu", w.psus)
		d.fault([]blame{{psu, "power.psu_failure"}}, func() {
			d.cond(at, back, "ipmi", psu, "psu.failure", failed)
			d.cond(at+d.wait(10), back, "redfish", psu, "psu.failure", failed)
			d.note(at+d.wait(5), "ipmi", host, "bmc.sel/09/01", warned)
		})
	case 14:
		fan := part("fan", w.fans)
		d.fault([]blame{{fan, "cooling.fan_failure"}}, func() {
			d.cond(at, back, "ipmi", fan, "fan.failure", failed)
			d.note(at+d.wait(5), "ipmi", host, "bmc.sel/04/01", warned)
		})
	case 15, 16:
		dimm := part("dimm", w.dimms)
		named := false
		accept := []blame{{dimm, "host.memory_uncorrectable"}}
		from := len(d.events)
		d.fault(accept, func() {
			if named = d.p(d.tell); named {
				d.at(at, "ipmi", dimm, "dimm.ecc_ue", critical)
			}
			d.note(at, "kmsg", host, "host.mce/memory", failed)
			d.gone(at+2, back, r, h, false)
		})
		if !named && len(d.events) > from {
			x := d.truth.Incidents[len(d.truth.Incidents)-1].Accept
			x[0].Resource, x[0].Fault = host, "host.crash"
		}
	case 17:
		d.fault([]blame{{w.id("s%d.%d/bmc", r, h), "bmc.failure"}, {host, "bmc.failure"}}, func() {
			d.cond(at, at+1200, "collector", w.id("s%d.%d/bmc", r, h), "bmc.unreachable", failed)
		})
	case 18:
		nic := part("nic", w.nics)
		d.fault([]blame{{nic, "network.nic_failure"}}, func() {
			d.note(at, "kmsg", nic, "nic.error/health", critical)
			d.cond(at+d.wait(1), back, "kmsg", nic, "nic.down", failed)
		})
	case 19:
		gpu := part("gpu", w.gpus)
		d.fault([]blame{{gpu, "gpu.gsp_hang"}}, func() {
			d.note(at, "kmsg", gpu, "gpu.xid/119", critical)
			d.note(at+d.wait(1), "kmsg", gpu, "gpu.xid/154", failed)
		})
	}
}

// black is a rack without any power.
func (d *draw) black(at, back float64, r int) {
	w := d.w
	for h := range w.servers {
		d.cond(at+10+d.wait(5), back, "collector", w.host(r, h), "agent.unreachable", failed)
		d.cond(at+12+d.wait(8), back, "collector", w.host(r, h), "host.unreachable", failed)
		d.cond(at+15+d.wait(10), back, "collector", w.id("s%d.%d/bmc", r, h), "bmc.unreachable", failed)
	}
	for l := range w.leaves {
		for k := range w.spines {
			d.cond(at+d.wait(1), back, "gnmi", w.id("spine%d/d%d.%d", k, r, l), "port.down", failed)
		}
		d.cond(at+15+d.wait(10), back, "collector", w.id("leaf%d.%d", r, l), "switch.unreachable", critical)
	}
	if w.mgmt {
		d.cond(at+15+d.wait(10), back, "collector", w.id("mgmt%d", r), "switch.unreachable", critical)
	}
}

// noise is something that means nothing.
func (d *draw) noise(at float64) {
	w := d.w
	r, h := d.n(w.racks), d.n(w.servers)
	blip := func(span float64, source, resource, what string, sev schemas.Severity) {
		d.at(at, source, resource, what, sev, up)
		d.at(at+2+span*d.rng.Float64(), source, resource, what, schemas.SeverityInfo, down)
	}
	switch d.n(11) {
	case 0, 1:
		if w.leaves > 0 {
			blip(6, "gnmi", w.portOf(r, h, d.n(w.nics)), "port.down", failed)
		}
	case 2:
		blip(30, "collector", w.host(r, h), "agent.unreachable", failed)
	case 3:
		blip(100, "collector", w.id("s%d.%d/bmc", r, h), "bmc.unreachable", failed)
	case 4, 5:
		if w.dimms > 0 {
			d.at(at, "rule", w.id("s%d.%d/dimm%d", r, h, d.n(w.dimms)), "dimm.ecc_ce/DIMM", warned)
		}
	case 6:
		blip(60, "ipmi", w.host(r, h), "temp.high/NIC Temp", warned)
	case 7:
		if w.leaves > 0 {
			d.at(at, "rule", w.portOf(r, h, d.n(w.nics)), "port.errors/symbol-errors", warned)
		}
	case 8:
		d.at(at, "dcgm", w.id("s%d.%d/gpu%d", r, h, d.n(w.gpus)), "gpu.thermal/HW_THERMAL", warned)
	case 9:
		blip(40, "ipmi", w.id("s%d.%d/fan%d", r, h, d.n(w.fans)), "fan.slow", warned)
	case 10:
		d.at(at, "kmsg", w.host(r, h), "host.oom/cgroup", warned)
	}
}

// drawn plays a storm of faults over hours, with noise between.
func drawn(sh shape, seed uint64, faults, noise int, hours float64) storm {
	d := &draw{w: sh.build(), rng: rand.New(rand.NewPCG(seed, 0xd4a3))}
	d.sure, d.lag, d.tell = 0.75+0.25*d.rng.Float64(), 0.5+1.5*d.rng.Float64(), 0.2+0.6*d.rng.Float64()
	for i := range faults { // far enough apart in time for the small sites
		d.one(hours * 3600 * (float64(i) + 0.1 + 0.3*d.rng.Float64()) / float64(faults))
	}
	from := len(d.events)
	for range noise {
		d.noise(hours * 3600 * d.rng.Float64())
	}
	d.truth.NoiseEvents = len(d.events) - from
	late := 0.1 * d.rng.Float64()
	delay := map[string]time.Duration{}
	for i := range d.events {
		if d.p(late) {
			delay[d.events[i].ID] = time.Duration(60 * d.rng.Float64() * float64(time.Second))
		}
	}
	slices.SortStableFunc(d.events, func(a, b schemas.Event) int {
		return cmp.Compare(a.Observed.Add(delay[a.ID]).UnixNano(), b.Observed.Add(delay[b.ID]).UnixNano())
	})
	return storm{name: sh.name, topology: *d.w.Topology, events: d.events, truth: d.truth}
}

// The bounds are a little under what is reached. Shapes, probabilities and
// delays are not those of the recorded storms.
func TestDrawnStorms(t *testing.T) {
	var total tally
	for _, sh := range shapes {
		var y tally
		for seed := range uint64(4) {
			st := drawn(sh, seed, 40, 150, 60)
			final := st.replay()
			y.add(&st.truth, final)
			total.add(&st.truth, final)
		}
		t.Logf("%-32s %s", sh.name, y.figures())
	}
	t.Logf("%-32s %s", "all", total.figures())
	if top1 := float64(total.hit) / float64(total.scored); top1 < 0.96 {
		t.Errorf("the root cause is right in %.3f of faults", top1)
	}
	if f1, ece := total.f1(), total.ece(); f1 < 0.97 || ece > 0.08 {
		t.Errorf("B-cubed F1 of the grouping is %.3f, the calibration error %.3f", f1, ece)
	}
}

func (y *tally) figures() string {
	return fmt.Sprintf("root %.3f of %d, B-cubed F1 %.3f, false incidents per 1000 noise events %.1f, "+
		"confidence less share right %+.3f, calibration error %.3f, Brier %.3f",
		float64(y.hit)/float64(y.scored), y.scored, y.f1(), 1000*float64(y.falses)/float64(y.noise),
		(y.confident-y.right)/y.incident, y.ece(), y.brier/y.incident)
}

func BenchmarkLargeSite(b *testing.B) {
	sh := hall
	sh.racks, sh.servers, sh.row, sh.spines, sh.dimms, sh.fans, sh.disks = 250, 8, 25, 8, 4, 2, 1
	st := drawn(sh, 1, 60, 4_000, 24)
	b.ReportAllocs()
	for b.Loop() {
		st.replay()
	}
	b.ReportMetric(float64(len(st.events)*b.N)/b.Elapsed().Seconds(), "events/s")
}

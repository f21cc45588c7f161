package stormgen

import (
	"math"
	"slices"
	"strconv"

	"auspex/schemas"
)

// Unknown is the fault of what the correlator has no record of.
const Unknown = "unknown"

// Blame is a resource with what is wrong with it.
type Blame struct {
	Resource string `json:"resource"`
	Fault    string `json:"fault"`
}

// Scenario is a way in which machines fail.
type Scenario struct {
	Name  string
	Fault string // of FORMATS section 3
	// Held marks a scenario that is kept out of all tuning.
	Held bool
	// Of are the profiles that play it.
	Of string
	// play breaks something near a server and returns it; -1 where the site has none.
	play func(w *world, k *Case, near int) int
}

const (
	bigOne = "storm" // takes many things down
	single = "easy"  // one part
	inJob  = "job"   // what a job sees is most of it
	chain  = "chain" // one thing leads to another
	beyond = "unknown"
)

// Case is a scenario that was played.
type Case struct {
	*Scenario

	n         int
	root      int
	id        string // of the root, where that is no part
	accept    []Blame
	silent    []Blame // accepted too where no event that is left names the root
	start     float64
	lasts     float64 // seconds until somebody mends it
	repeatOf  int     // a case, or -1
	workloads []string
	near      int
	jobs      []job // that ran when it began
}

func (k *Case) workload(id string) {
	if !slices.Contains(k.workloads, id) {
		k.workloads = append(k.workloads, id)
	}
}

// Scenarios returns what can go wrong, in a fixed order.
func Scenarios() []Scenario {
	return []Scenario{
		{"feed trips", "power.feed_loss", false, bigOne + single, feedTrips},
		{"feed trips, a worn supply follows", "power.feed_loss", false, bigOne + chain, feedAndWorn},
		{"feed trips, the other is overloaded", "power.feed_loss", true, bigOne + chain, feedCascade},
		{"feed trips again while it is mended", "power.feed_loss", false, bigOne, feedTwice},
		{"row panel trips", "power.feed_loss", true, bigOne, panelTrips},
		{"supply fails", "power.psu_failure", false, single, supplyFails},
		{"supply fails, server goes down", "power.psu_failure", true, single + chain, supplyKills},
		{"air unit fails", "cooling.air_supply", false, bigOne, airFails},
		{"air unit fails, servers shut down hot", "cooling.air_supply", false, bigOne + chain, airKills},
		{"air unit fails again while it is mended", "cooling.air_supply", true, bigOne, airTwice},
		{"fan fails", "cooling.fan_failure", false, single, fanFails},
		{"fan wears out", "cooling.fan_failure", true, single, fanWears},
		{"GPU runs hot", "gpu.overheating", false, single, gpuHot},
		{"GPU's cold plate is blocked", "gpu.overheating", true, single, gpuBlocked},
		{"leaf dies", "network.switch_failure", false, bigOne, leafDies},
		{"management switch dies", "network.switch_failure", false, bigOne, mgmtDies},
		{"spine dies", "network.switch_failure", true, bigOne, spineDies},
		{"leaf restarts", "network.switch_failure", true, bigOne + single, leafRestarts},
		{"cable to a server breaks", "network.link_failure", false, single, cableBreaks},
		{"cable between switches breaks", "network.link_failure", true, single, trunkBreaks},
		{"cable flaps", "network.link_flap", false, single, cableFlaps},
		{"optics fade", "network.optics_degraded", true, single, opticsFade},
		{"network card dies", "network.nic_failure", false, single + inJob, cardDies},
		{"network card floods pauses", "network.nic_failure", true, single, cardFloods},
		{"GPU falls off the bus", "gpu.fallen_off_bus", false, single + inJob, gpuFalls},
		{"GPU memory fails", "gpu.memory_uncorrectable", false, single + inJob, gpuMemory},
		{"GPU memory wears out", "gpu.memory_degrading", true, single, gpuWears},
		{"GSP hangs", "gpu.gsp_hang", false, single + inJob, gspHangs},
		{"NVLink of a GPU fails", "gpu.nvlink_failure", false, single + inJob, nvlinkFails},
		{"NVSwitch fails", "nvswitch.failure", false, bigOne + inJob, nvswitchFails},
		{"server panics", "host.crash", false, single + inJob, panics},
		{"server freezes", "host.crash", true, single + inJob, freezes},
		{"memory module fails", "host.memory_uncorrectable", false, single + chain, dimmFails},
		{"memory module wears out and fails", "host.memory_uncorrectable", true, single + chain, dimmWears},
		{"processor fails", "host.cpu_failure", true, single + chain, cpuFails},
		{"disk fails", "host.disk_failure", false, single, diskFails},
		{"PCIe switch fails", "host.pcie_fault", true, single, pcieFails},
		{"fabric manager dies", "service.fabric_manager", true, single + inJob, fabricDies},
		{"board controller dies", "bmc.failure", false, single, bmcDies},
		{"board controller restarts again and again", "bmc.failure", true, single, bmcLoops},
		{"program fails", "workload.error", false, single + inJob, programFails},
		{"program hangs", "workload.error", true, inJob, programHangs},
		{"water leaks into a rack", Unknown, false, beyond, waterLeaks},
		{"storage is out", Unknown, false, beyond, storageOut},
		{"a bad firmware is rolled out", Unknown, false, beyond, badFirmware},
		{"licence daemon is gone", Unknown, false, beyond, licenceGone},
		{"time is wrong", Unknown, true, beyond, timeWrong},
		{"names do not resolve", Unknown, true, beyond, namesFail},
		{"a script reboots servers", Unknown, true, beyond, rogueScript},
		{"subnet manager is gone", Unknown, true, beyond, subnetGone},
		{"interference in a rack", Unknown, true, beyond, interference},
	}
}

// cause is the number that events of this case carry.
func (k *Case) cause() int { return k.n }

// also accepts another answer, where nothing that can be seen tells them apart.
func (w *world) also(k *Case, part int, fault string) {
	if part >= 0 {
		k.accept = append(k.accept, Blame{w.parts[part].id, fault})
	}
}

// unnamed accepts other answers where nothing that arrived names the root.
func (k *Case) unnamed(list ...Blame) { k.silent = append(k.silent, list...) }

// mended does something when somebody has mended what broke.
func (w *world) mended(k *Case, do func()) { w.after(k.lasts, do) }

// feedNear returns the unit that feeds a server's supply, or -1.
func (w *world) feedNear(near int) int {
	var list []int
	for _, p := range append(w.of(near, schemas.KindPSU), near) {
		list = append(list, w.parts[p].feeds...)
	}
	if len(list) == 0 {
		return -1
	}
	return w.pick(list)
}

func feedTrips(w *world, k *Case, near int) int {
	pdu := w.feedNear(near)
	if pdu < 0 || !w.live(pdu) {
		return -1
	}
	w.trip(k.cause(), pdu)
	w.mended(k, func() { w.untrip(k.cause(), pdu) })
	return pdu
}

// trip opens a breaker. The GPUs behind it brake for the power that is left.
func (w *world) trip(c, pdu int) {
	w.cut(c, pdu)
	if w.sees("breaker", 0.8) {
		w.after(w.about(3), func() {
			w.raise(c, schemas.SourceSNMP, pdu, schemas.EventPDUBreaker, "", schemas.SeverityCritical)
		})
	}
	if w.hyper.kW < 0.5 {
		return
	}
	for _, s := range w.fedBy(pdu) {
		for _, g := range w.of(s, schemas.KindGPU) {
			if w.p(0.6) {
				w.after(w.about(3), func() {
					if w.running(s) && w.sees("brake", 0.8) {
						w.raise(c, schemas.SourceDCGM, g, schemas.EventGPUClocksThrottled, "HW_POWER_BRAKE", schemas.SeverityWarning)
					}
				})
			}
		}
	}
}

func (w *world) untrip(c, pdu int) {
	w.mend(c, pdu)
	w.after(w.about(5), func() { w.clear(pdu, schemas.EventPDUBreaker) })
	for _, s := range w.fedBy(pdu) {
		for _, g := range w.of(s, schemas.KindGPU) {
			w.clear(g, schemas.EventGPUClocksThrottled)
		}
	}
}

// fedBy returns the servers that a unit feeds.
func (w *world) fedBy(pdu int) (out []int) {
	for _, l := range w.parts[pdu].loads {
		d := w.parts[l].dev
		switch {
		case w.parts[l].kind == schemas.KindPDU:
			out = append(out, w.fedBy(l)...)
		case d >= 0 && w.parts[d].kind == schemas.KindServer && !has(out, d):
			out = append(out, d)
		}
	}
	return out
}

func feedAndWorn(w *world, k *Case, near int) int {
	pdu := w.feedNear(near)
	if pdu < 0 || !w.live(pdu) {
		return -1
	}
	for _, s := range w.some(w.fedBy(pdu), 0.15) {
		psus := w.of(s, schemas.KindPSU)
		for _, p := range psus {
			if len(psus) > 1 && !slices.Contains(w.parts[p].feeds, pdu) {
				w.st[p].worn = true
				break
			}
		}
	}
	return feedTrips(w, k, near)
}

func feedCascade(w *world, k *Case, near int) int {
	pdu := feedTrips(w, k, near)
	if pdu < 0 {
		return -1
	}
	var other []int
	for _, p := range w.of(near, schemas.KindPSU) {
		for _, f := range w.parts[p].feeds {
			if f != pdu && w.live(f) && !has(other, f) {
				other = append(other, f)
			}
		}
	}
	if len(other) == 0 {
		return pdu
	}
	o := w.pick(other)
	w.after(w.about(8), func() {
		if w.sees("overload", 0.9) {
			w.raise(k.cause(), schemas.SourceSNMP, o, schemas.EventPDUOverload, "", schemas.SeverityWarning)
		}
	})
	w.after(20+w.about(60), func() { // a cause of its own, or the first one's consequence: both are right
		w.play(k.Scenario.on(o, func(w *world, k *Case, o int) {
			w.trip(k.cause(), o)
			w.also(k, pdu, k.Fault)
			w.mended(k, func() {
				w.untrip(k.cause(), o)
				w.clear(o, schemas.EventPDUOverload)
			})
		}), near, k.n)
	})
	return pdu
}

// on is the same fault, of one part.
func (s *Scenario) on(part int, play func(w *world, k *Case, part int)) *Scenario {
	x := *s
	x.play = func(w *world, k *Case, _ int) int {
		play(w, k, part)
		return part
	}
	return &x
}

func feedTwice(w *world, k *Case, near int) int {
	pdu := feedTrips(w, k, near)
	if pdu >= 0 {
		w.after(k.lasts+w.span(20, 600), func() {
			w.play(k.Scenario.on(pdu, func(w *world, k *Case, pdu int) {
				w.trip(k.cause(), pdu)
				w.mended(k, func() { w.untrip(k.cause(), pdu) })
			}), near, k.n)
		})
	}
	return pdu
}

func panelTrips(w *world, k *Case, near int) int {
	pdu := w.feedNear(near)
	if pdu < 0 || len(w.parts[pdu].feeds) == 0 {
		return -1
	}
	panel := w.parts[pdu].feeds[0]
	if !w.live(panel) {
		return -1
	}
	w.trip(k.cause(), panel)
	w.mended(k, func() { w.untrip(k.cause(), panel) })
	if len(w.parts[panel].loads) == 1 {
		w.also(k, pdu, k.Fault)
	}
	return panel
}

func supplyFails(w *world, k *Case, near int) int {
	psus := w.of(near, schemas.KindPSU)
	if len(psus) < 2 || !w.running(near) {
		return -1
	}
	psu := w.pick(psus)
	w.supplyDies(k, near, psu)
	return psu
}

func (w *world) supplyDies(k *Case, server, psu int) {
	c := k.cause()
	w.cut(c, psu)
	w.after(w.about(2), func() {
		if w.sees("supply redfish", 0.85) {
			w.raise(c, schemas.SourceRedfish, psu, schemas.EventPSUFailure, "PSU0001", schemas.SeverityError)
		}
		if w.sees("supply ipmi", 0.85) {
			w.raise(c, schemas.SourceIPMI, psu, schemas.EventPSUFailure, "PS Status", schemas.SeverityError)
		}
		if w.sees("supply redundancy", 0.7) {
			w.raise(c, schemas.SourceIPMI, server, schemas.EventBMCSEL, "09/01", schemas.SeverityWarning)
		}
	})
	w.mended(k, func() {
		w.mend(c, psu)
		w.clear(psu, schemas.EventPSUFailure)
		w.clear(server, schemas.EventBMCSEL)
	})
}

func supplyKills(w *world, k *Case, near int) int {
	psus := w.of(near, schemas.KindPSU)
	if len(psus) == 0 || !w.running(near) {
		return -1
	}
	psu := w.pick(psus)
	w.supplyDies(k, near, psu)
	if len(psus) > 1 {
		w.after(w.about(0.5), func() { w.crash(k.cause(), near, k.lasts, 0) })
	}
	w.also(k, near, k.Fault)
	return psu
}

// Cooling.

func airFails(w *world, k *Case, near int) int { return w.airGoes(k, near, w.span(8, 20)) }
func airKills(w *world, k *Case, near int) int { return w.airGoes(k, near, w.span(26, 40)) }

func airTwice(w *world, k *Case, near int) int {
	unit := w.airGoes(k, near, w.span(8, 22))
	if unit < 0 {
		return -1
	}
	w.after(k.lasts+w.span(60, 900), func() {
		w.play(k.Scenario.on(unit, func(w *world, k *Case, unit int) { w.unitFails(k, unit, w.span(8, 22)) }), near, k.n)
	})
	return unit
}

func (w *world) airGoes(k *Case, near int, rise float64) int {
	var list []int
	for _, u := range w.units(near) {
		if w.st[u].cut == 0 {
			list = append(list, u)
		}
	}
	if len(list) == 0 {
		return -1
	}
	return w.unitFails(k, w.pick(list), rise)
}

// unitFails takes an air or coolant unit away: what it cools warms towards a new
// balance with a time constant (Newton), slowly in air and fast in coolant, and
// reaches its limits one after another. Where other units serve the same space
// they carry a part.
func (w *world) unitFails(k *Case, unit int, rise float64) int {
	c := k.cause()
	w.st[unit].cut++
	served := w.served(unit)
	if len(served) == 0 {
		w.st[unit].cut--
		return -1
	}
	liquid := w.parts[w.parts[unit].cools[0]].kind == schemas.KindServer
	all := w.units(served[0])
	share := 0.0
	for _, u := range all {
		if w.st[u].cut > 0 {
			share += 1 / float64(len(all))
		}
	}
	rise *= min(1, 0.35+share)
	tau := w.span(250, 600) * w.hyper.slow
	if liquid {
		tau = w.span(30, 90) * w.hyper.slow
	}
	if w.sees("unit alarm", 0.9) {
		w.after(w.about(6), func() {
			w.raise(c, schemas.SourceSNMP, unit, schemas.EventCRACFailure, "", schemas.SeverityCritical)
		})
	}
	end := k.lasts
	reach := func(limit float64, do, undo func()) {
		local := rise * w.span(0.75, 1.15)
		if local <= limit {
			return
		}
		t := -tau * math.Log(1-limit/local)
		if t > end {
			return
		}
		w.after(t, do)
		if undo != nil {
			top := local * (1 - math.Exp(-end/tau))
			w.after(end+tau*math.Log(max(1.05, top/(limit*0.9))), undo)
		}
	}
	for _, d := range served {
		if w.parts[d].kind == schemas.KindSwitch {
			if !liquid {
				reach(w.span(11, 14), func() {
					if w.sees("switch hot", 0.5) {
						w.raise(c, schemas.SourceGNMI, d, schemas.EventTempHigh, "inlet", schemas.SeverityWarning)
					}
				}, func() { w.clear(d, schemas.EventTempHigh) })
			}
			continue
		}
		if !liquid {
			reach(w.span(6.5, 9), func() {
				if w.sees("inlet ipmi", 0.85) {
					w.raise(c, schemas.SourceIPMI, d, schemas.EventTempInletHigh, "Inlet Temp", schemas.SeverityWarning)
				}
				if w.sees("inlet redfish", 0.6) {
					w.raise(c, schemas.SourceRedfish, d, schemas.EventTempInletHigh, "TMP0120", schemas.SeverityWarning)
				}
			}, func() { w.clear(d, schemas.EventTempInletHigh) })
		}
		for _, g := range w.of(d, schemas.KindGPU) {
			if !w.p(0.5) {
				continue
			}
			reach(w.span(11, 18), func() { w.hot(c, d, g) }, func() {
				w.clear(g, schemas.EventGPUThermal)
				w.clear(g, schemas.EventGPUClocksThrottled)
			})
		}
		reach(w.span(21, 27), func() {
			if !w.running(d) {
				return
			}
			if w.sees("trip", 0.6) {
				w.say(c, schemas.SourceIPMI, d, schemas.EventBMCSEL, "07/01", schemas.SeverityCritical, schemas.StateRaised)
			}
			w.stop(c, d, false)
			w.boot(d, max(end, 600)+w.span(60, 900))
		}, nil)
	}
	w.after(end, func() {
		w.st[unit].cut--
		w.after(w.about(30), func() { w.clear(unit, schemas.EventCRACFailure) })
	})
	for _, u := range w.parts[unit].cools {
		if w.parts[u].kind == schemas.KindRack && len(w.parts[unit].cools) == 1 {
			w.also(k, u, k.Fault)
		}
	}
	for _, u := range all { // units of one space: only an alarm tells which
		if u != unit && slices.Equal(w.parts[u].cools, w.parts[unit].cools) {
			k.unnamed(Blame{w.parts[u].id, k.Fault})
		}
	}
	return unit
}

// hot is a GPU at its limit.
func (w *world) hot(c, server, gpu int) {
	if !w.running(server) {
		return
	}
	if w.sees("gpu hot", 0.8) {
		w.raise(c, schemas.SourceDCGM, gpu, schemas.EventGPUThermal, "HW_THERMAL", schemas.SeverityWarning)
	}
	if w.sees("gpu throttle", 0.7) {
		w.raise(c, schemas.SourceDCGM, gpu, schemas.EventGPUClocksThrottled, "HW_THERMAL_SLOWDOWN", schemas.SeverityWarning)
	}
}

func fanFails(w *world, k *Case, near int) int {
	fans := w.of(near, schemas.KindFan)
	if len(fans) == 0 || !w.running(near) {
		return -1
	}
	fan := w.pick(fans)
	w.fanStops(k, near, fan)
	return fan
}

func (w *world) fanStops(k *Case, server, fan int) {
	c := k.cause()
	if w.sees("fan ipmi", 0.95) {
		w.raise(c, schemas.SourceIPMI, fan, schemas.EventFanFailure, "FAN", schemas.SeverityError)
	}
	if w.sees("fan redfish", 0.8) {
		w.after(w.about(2), func() {
			w.raise(c, schemas.SourceRedfish, fan, schemas.EventFanFailure, "FAN0001", schemas.SeverityError)
		})
	}
	if w.sees("fan redundancy", 0.6) {
		w.after(w.about(3), func() {
			w.raise(c, schemas.SourceIPMI, server, schemas.EventBMCSEL, "04/01", schemas.SeverityWarning)
		})
	}
	if gpus := w.of(server, schemas.KindGPU); len(gpus) > 0 && w.p(0.3) {
		w.after(120+w.about(300), func() {
			for _, g := range w.some(gpus, 0.3) {
				w.hot(c, server, g)
				w.mended(k, func() {
					w.clear(g, schemas.EventGPUThermal)
					w.clear(g, schemas.EventGPUClocksThrottled)
				})
			}
		})
	}
	w.mended(k, func() {
		w.clear(fan, schemas.EventFanFailure)
		w.clear(server, schemas.EventBMCSEL)
	})
}

func fanWears(w *world, k *Case, near int) int {
	fans := w.of(near, schemas.KindFan)
	if len(fans) == 0 || !w.running(near) {
		return -1
	}
	fan := w.pick(fans)
	for range 2 + w.rng.IntN(4) {
		w.after(w.span(0, 1500), func() {
			w.say(k.cause(), schemas.SourceIPMI, fan, schemas.EventFanSlow, "FAN", schemas.SeverityWarning, schemas.StateRaised)
		})
	}
	w.after(w.span(1200, 2000), func() { w.fanStops(k, near, fan) })
	return fan
}

func (w *world) gpuOf(server int) int {
	if g := w.of(server, schemas.KindGPU); len(g) > 0 && w.running(server) {
		return w.pick(g)
	}
	return -1
}

// gpuHot throttles now and then: weak signs alone.
func gpuHot(w *world, k *Case, near int) int {
	g := w.gpuOf(near)
	if g < 0 {
		return -1
	}
	n := 2 + w.rng.IntN(7)
	for i := range n {
		w.after(float64(i)*w.span(60, 110)+w.about(15), func() {
			if !w.running(near) {
				return
			}
			typ, code := schemas.EventGPUThermal, "HW_THERMAL"
			if i%2 == 1 {
				typ, code = schemas.EventGPUClocksThrottled, "HW_THERMAL_SLOWDOWN"
			}
			w.say(k.cause(), schemas.SourceDCGM, g, typ, code, schemas.SeverityWarning, schemas.StateRaised)
			if w.p(0.3) {
				w.after(w.span(5, 40), func() {
					w.say(k.cause(), schemas.SourceDCGM, g, typ, code, schemas.SeverityInfo, schemas.StateCleared)
				})
			}
		})
	}
	return g
}

func gpuBlocked(w *world, k *Case, near int) int {
	g := w.gpuOf(near)
	if g < 0 {
		return -1
	}
	w.hot(k.cause(), near, g)
	for range 1 + w.rng.IntN(3) {
		w.after(w.span(100, 800), func() { w.hot(k.cause(), near, g) })
	}
	w.mended(k, func() {
		w.clear(g, schemas.EventGPUThermal)
		w.clear(g, schemas.EventGPUClocksThrottled)
	})
	return g
}

// Network.

// switchNear returns a running switch that a server hangs on and that fits.
func (w *world) switchNear(near int, fits func(sw int) bool) int {
	var list []int
	ends := append(w.ports(near), w.of(near, schemas.KindBMC)...)
	for _, e := range ends {
		for _, l := range w.parts[e].links {
			if d := w.parts[w.peer(l, e)].dev; d >= 0 && w.parts[d].kind == schemas.KindSwitch && w.running(d) && fits(d) && !has(list, d) {
				list = append(list, d)
			}
		}
	}
	if len(list) == 0 {
		return -1
	}
	return w.pick(list)
}

func (w *world) inBandSwitch(sw int) bool { return !w.mgmt(sw) }

// switchGoes takes a switch down for as long as the case lasts.
func (w *world) switchGoes(k *Case, sw int) int {
	if sw < 0 {
		return -1
	}
	c := k.cause()
	w.stop(c, sw, false)
	for _, d := range w.neighbours(sw) { // jobs that ran over it
		if w.parts[d].kind == schemas.KindServer && w.inBandSwitch(sw) && w.p(0.4) {
			w.hurt(c, d, "stall")
		}
	}
	w.mended(k, func() { w.boot(sw, w.span(30, 150)) })
	return sw
}

func (w *world) neighbours(sw int) (out []int) {
	for _, e := range w.ports(sw) {
		for _, l := range w.parts[e].links {
			if d := w.parts[w.peer(l, e)].dev; d >= 0 && !has(out, d) {
				out = append(out, d)
			}
		}
	}
	return out
}

func leafDies(w *world, k *Case, near int) int {
	return w.switchGoes(k, w.switchNear(near, w.inBandSwitch))
}

func mgmtDies(w *world, k *Case, near int) int { return w.switchGoes(k, w.switchNear(near, w.mgmt)) }

func spineDies(w *world, k *Case, near int) int {
	leaf := w.switchNear(near, w.inBandSwitch)
	if leaf < 0 {
		return -1
	}
	var up []int
	for _, d := range w.neighbours(leaf) {
		if w.parts[d].kind == schemas.KindSwitch && w.rank(d) > w.rank(leaf) && w.running(d) {
			up = append(up, d)
		}
	}
	if len(up) == 0 {
		return -1
	}
	return w.switchGoes(k, w.pick(up))
}

func leafRestarts(w *world, k *Case, near int) int {
	k.lasts = w.span(40, 180)
	return leafDies(w, k, near)
}

// linkNear returns one of a server's cables, with the switch's end first.
func (w *world) linkNear(near int) (l, port, nic int) {
	var list [][3]int
	if !w.running(near) {
		return -1, -1, -1
	}
	for _, e := range w.ports(near) {
		for _, l := range w.parts[e].links {
			o := w.peer(l, e)
			if d := w.parts[o].dev; d >= 0 && w.parts[d].kind == schemas.KindSwitch && w.running(d) && !w.port[l] {
				list = append(list, [3]int{l, o, e})
			}
		}
	}
	if len(list) == 0 {
		return -1, -1, -1
	}
	x := list[w.rng.IntN(len(list))]
	if w.again != nil {
		for _, y := range list {
			if y[1] == w.again.root || y[2] == w.again.root {
				x = y
			}
		}
	}
	return x[0], x[1], x[2]
}

func (w *world) snap(c, l int) {
	w.cutl[l]++
	w.cable(c, l)
}

func (w *world) splice(c, l int) {
	w.cutl[l]--
	w.cable(c, l)
}

func cableBreaks(w *world, k *Case, near int) int {
	l, port, nic := w.linkNear(near)
	if l < 0 {
		return -1
	}
	w.snap(k.cause(), l)
	w.mended(k, func() { w.splice(k.cause(), l) })
	if w.p(0.4) {
		w.hurt(k.cause(), near, "stall")
	}
	w.also(k, nic, k.Fault)
	return port
}

// trunkNear returns a cable between a server's leaf and a switch above.
func (w *world) trunkNear(near int) (l, a, b int) {
	leaf := w.switchNear(near, w.inBandSwitch)
	if leaf < 0 {
		return -1, -1, -1
	}
	var list []int
	var ends []int
	for _, e := range w.ports(leaf) {
		for _, l := range w.parts[e].links {
			if d := w.parts[w.peer(l, e)].dev; d >= 0 && w.parts[d].kind == schemas.KindSwitch && w.running(d) && !w.port[l] {
				list, ends = append(list, l), append(ends, e)
			}
		}
	}
	if len(list) == 0 {
		return -1, -1, -1
	}
	i := w.rng.IntN(len(list))
	if w.again != nil && has(ends, w.again.root) {
		i = slices.Index(ends, w.again.root)
	}
	return list[i], ends[i], w.peer(list[i], ends[i])
}

func trunkBreaks(w *world, k *Case, near int) int {
	l, a, b := w.trunkNear(near)
	if l < 0 {
		return -1
	}
	w.snap(k.cause(), l)
	w.mended(k, func() { w.splice(k.cause(), l) })
	w.also(k, b, k.Fault)
	return a
}

func cableFlaps(w *world, k *Case, near int) int {
	l, port, nic := w.linkNear(near)
	if l < 0 || w.p(0.3) {
		if t, a, b := w.trunkNear(near); t >= 0 {
			l, port, nic = t, a, b
		}
	}
	if l < 0 {
		return -1
	}
	t := 0.0
	n := 4 + w.rng.IntN(6)
	for range n {
		w.after(t, func() { w.snap(k.cause(), l) })
		t += w.span(2, 12)
		w.after(t, func() { w.splice(k.cause(), l) })
		t += w.span(10, 90)
	}
	if w.sees("flap rule", 0.7) {
		w.after(t*0.6, func() {
			w.say(k.cause(), schemas.SourceRule, port, schemas.EventPortFlap, "", schemas.SeverityWarning, schemas.StateRaised)
		})
	}
	w.also(k, nic, k.Fault)
	return port
}

func opticsFade(w *world, k *Case, near int) int {
	l, port, nic := w.linkNear(near)
	if l < 0 {
		return -1
	}
	end := port
	if w.p(0.5) {
		end = nic
	}
	c := k.cause()
	for i := range 2 + w.rng.IntN(3) {
		w.after(float64(i)*w.span(100, 300), func() {
			if w.sees("optics", 0.95) {
				w.say(c, schemas.SourceGNMI, end, schemas.EventPortOpticsDegraded, "rx-power", schemas.SeverityWarning, schemas.StateRaised)
			}
			if w.sees("symbols", 0.7) {
				w.say(c, schemas.SourceRule, end, schemas.EventPortErrors, "symbol-errors", schemas.SeverityWarning, "")
			}
		})
	}
	t := w.span(500, 1200)
	for range w.rng.IntN(4) {
		w.after(t, func() { w.snap(c, l) })
		t += w.span(2, 6)
		w.after(t, func() { w.splice(c, l) })
		t += w.span(20, 100)
	}
	w.also(k, nic, k.Fault)
	return port
}

func cardDies(w *world, k *Case, near int) int {
	l, _, nic := w.linkNear(near)
	if l < 0 || w.parts[nic].kind != schemas.KindNIC {
		return -1
	}
	c := k.cause()
	if w.sees("nic aer", 0.7) {
		w.say(c, schemas.SourceKmsg, nic, schemas.EventHostPCIeAER, "fatal", schemas.SeverityError, "")
	}
	if w.sees("nic health", 0.8) {
		w.after(w.about(2), func() {
			w.say(c, schemas.SourceKmsg, nic, schemas.EventHostPCIeAER, "health-compromised", schemas.SeverityCritical, "")
		})
	}
	if w.sees("nic error", 0.5) {
		w.after(w.about(1), func() {
			w.say(c, schemas.SourceKmsg, nic, schemas.EventNICError, "fatal", schemas.SeverityCritical, "")
		})
	}
	w.st[nic].cut++
	w.after(w.about(1), func() { w.cables(c, near) })
	w.hurt(c, near, "stall")
	w.mended(k, func() {
		w.st[nic].cut--
		w.cables(c, near)
	})
	k.unnamed(Blame{w.parts[w.peer(l, nic)].id, "network.link_failure"}, Blame{w.parts[nic].id, "network.link_failure"})
	return nic
}

func cardFloods(w *world, k *Case, near int) int {
	l, port, nic := w.linkNear(near)
	if l < 0 || w.parts[nic].kind != schemas.KindNIC {
		return -1
	}
	c := k.cause()
	for i := range 2 + w.rng.IntN(3) {
		w.after(float64(i)*w.span(20, 60), func() {
			w.say(c, schemas.SourceRule, port, schemas.EventPortPFCStorm, "", schemas.SeverityWarning, schemas.StateRaised)
		})
	}
	w.after(w.about(20), func() {
		w.say(c, schemas.SourceKmsg, nic, schemas.EventNICError, "pcie-stall", schemas.SeverityError, "")
	})
	w.hurt(c, near, "stall")
	w.also(k, port, k.Fault)
	return nic
}

// GPUs.

func gpuFalls(w *world, k *Case, near int) int {
	g := w.gpuOf(near)
	if g < 0 {
		return -1
	}
	c := k.cause()
	if w.sees("xid 79", 0.95) {
		w.say(c, schemas.SourceKmsg, g, schemas.EventGPUXID, "79", schemas.SeverityCritical, "")
	}
	if w.sees("xid 154", 0.7) {
		w.after(w.about(1), func() { w.say(c, schemas.SourceKmsg, g, schemas.EventGPUXID, "154", schemas.SeverityError, "") })
	}
	if w.sees("gpu lost", 0.8) {
		w.after(w.about(8), func() {
			w.say(c, schemas.SourceDCGM, g, schemas.EventGPUMissing, "GPU_IS_LOST", schemas.SeverityCritical, "")
		})
	}
	if w.sees("sel pcie", 0.2) {
		w.say(c, schemas.SourceIPMI, near, schemas.EventBMCSEL, "13/08", schemas.SeverityError, schemas.StateRaised)
	}
	w.hurt(c, near, w.oneOf("abort", "stall"))
	return g
}

func (w *world) oneOf(list ...string) string { return list[w.rng.IntN(len(list))] }

func gpuMemory(w *world, k *Case, near int) int {
	g := w.gpuOf(near)
	if g < 0 {
		return -1
	}
	c := k.cause()
	xid := func(code string, p, wait float64, sev schemas.Severity) {
		if w.sees("xid "+code, p) {
			w.after(w.about(wait), func() { w.say(c, schemas.SourceKmsg, g, schemas.EventGPUXID, code, sev, "") })
		}
	}
	xid("48", 0.8, 0.1, schemas.SeverityCritical)
	xid(w.oneOf("94", "95"), 0.7, 0.2, schemas.SeverityError)
	xid("63", 0.5, 1, schemas.SeverityWarning)
	if w.sees("ecc dcgm", 0.6) {
		w.after(w.about(4), func() { w.say(c, schemas.SourceDCGM, g, schemas.EventGPUECCUE, "DRAM", schemas.SeverityCritical, "") })
	}
	if w.sees("remap", 0.4) {
		w.after(w.about(10), func() {
			w.say(c, schemas.SourceNVML, g, schemas.EventGPURowRemap, "pending", schemas.SeverityWarning, schemas.StateRaised)
		})
	}
	// The ranks that lose their peer fault in turn.
	if j := w.on[near]; j != nil && w.p(0.3) {
		for _, s := range j.servers {
			for _, o := range w.of(s, schemas.KindGPU) {
				if o != g && w.p(0.6) {
					w.after(1+w.about(3), func() { w.say(c, schemas.SourceKmsg, o, schemas.EventGPUXID, "43", schemas.SeverityWarning, "") })
				}
			}
		}
	}
	w.hurt(c, near, "abort")
	return g
}

func gpuWears(w *world, k *Case, near int) int {
	g := w.gpuOf(near)
	if g < 0 {
		return -1
	}
	for i := range 3 + w.rng.IntN(4) {
		w.after(float64(i)*w.span(200, 700), func() {
			w.say(k.cause(), schemas.SourceRule, g, schemas.EventGPUECCCERate, "HBM", schemas.SeverityWarning, "")
			if w.sees("xid 63 worn", 0.5) {
				w.say(k.cause(), schemas.SourceKmsg, g, schemas.EventGPUXID, "63", schemas.SeverityWarning, "")
			}
		})
	}
	return g
}

func gspHangs(w *world, k *Case, near int) int {
	g := w.gpuOf(near)
	if g < 0 {
		return -1
	}
	c := k.cause()
	if w.sees("xid 120", 0.4) {
		w.say(c, schemas.SourceKmsg, g, schemas.EventGPUXID, "120", schemas.SeverityCritical, "")
	}
	late := 0.0
	if w.p(0.3) { // nobody asks the driver until the job has given up
		late = w.span(60, 900)
	}
	for i := range 1 + w.rng.IntN(5) {
		w.after(late+6*float64(i), func() { w.say(c, schemas.SourceKmsg, g, schemas.EventGPUXID, "119", schemas.SeverityCritical, "") })
	}
	if w.sees("stale", 0.4) {
		w.after(w.about(15), func() {
			w.say(c, schemas.SourceDCGM, g, schemas.EventGPUMissing, "STALE", schemas.SeverityError, "")
		})
	}
	w.hurt(c, near, "stall")
	return g
}

func nvlinkFails(w *world, k *Case, near int) int {
	g := w.gpuOf(near)
	if g < 0 || len(w.parts[g].nv) == 0 {
		return -1
	}
	c := k.cause()
	lead := 0.0
	if w.sees("nvlink crc", 0.5) {
		lead = w.span(30, 600)
		w.say(c, schemas.SourceRule, g, schemas.EventGPUNVLinkErrors, "crc", schemas.SeverityWarning, "")
	}
	for range 1 + w.rng.IntN(3) {
		w.after(lead+w.about(2), func() { w.say(c, schemas.SourceKmsg, g, schemas.EventGPUXID, "74", schemas.SeverityCritical, "") })
	}
	if w.sees("nvlink sxid", 0.3) {
		sw := w.pick(w.parts[g].nv)
		w.after(lead+w.about(1), func() {
			w.say(c, schemas.SourceKmsg, sw, schemas.EventNVSwitchSXid, "22013", schemas.SeverityWarning, "")
		})
	}
	w.after(lead, func() { w.hurt(c, near, "abort") })
	return g
}

func nvswitchFails(w *world, k *Case, near int) int {
	g := w.gpuOf(near)
	if g < 0 || len(w.parts[g].nv) == 0 {
		return -1
	}
	c, sw := k.cause(), w.pick(w.parts[g].nv)
	if w.parts[sw].kind != schemas.KindNVSwitch {
		return -1
	}
	code := w.oneOf("10003", "20034", "24007")
	told := w.sees("sxid", 0.85)
	if told {
		for i := range 1 + w.rng.IntN(2) {
			w.after(0.5*float64(i), func() {
				w.say(c, schemas.SourceKmsg, sw, schemas.EventNVSwitchSXid, code, schemas.SeverityCritical, "")
			})
		}
	}
	var hosts []int
	for _, o := range w.parts[sw].nv {
		d := w.parts[o].dev
		if d < 0 || !w.running(d) {
			continue
		}
		if !has(hosts, d) {
			hosts = append(hosts, d)
		}
		if w.sees("switch 74", 0.85) {
			w.after(w.about(0.8), func() { w.say(c, schemas.SourceKmsg, o, schemas.EventGPUXID, "74", schemas.SeverityCritical, "") })
		}
	}
	for _, d := range hosts {
		if w.sees("fabric", 0.5) {
			w.after(w.about(6), func() {
				w.say(c, schemas.SourceAgent, d, schemas.EventServiceFailed, "nvidia-fabricmanager", schemas.SeverityError, "")
			})
		}
		w.hurt(c, d, "abort")
	}
	for _, o := range w.parts[g].nv { // equal ones: only their own record tells which
		if o != sw {
			k.unnamed(Blame{w.parts[o].id, k.Fault})
		}
	}
	k.unnamed(Blame{w.parts[near].id, k.Fault})
	return sw
}

// Servers.

func panics(w *world, k *Case, near int) int {
	if !w.running(near) {
		return -1
	}
	c := k.cause()
	if w.sees("panic", 0.6) {
		w.say(c, schemas.SourceKmsg, near, schemas.EventHostPanic, "panic", schemas.SeverityCritical, "")
	}
	w.crash(c, near, w.span(200, 900), w.about(60))
	if w.sees("os stop", 0.4) {
		w.after(w.about(20), func() {
			w.say(c, schemas.SourceIPMI, near, schemas.EventBMCSEL, "20/01", schemas.SeverityError, schemas.StateRaised)
		})
	}
	return near
}

func freezes(w *world, k *Case, near int) int {
	if !w.running(near) {
		return -1
	}
	c := k.cause()
	if w.sees("hung", 0.4) {
		w.say(c, schemas.SourceKmsg, near, schemas.EventHostHungTask, "122", schemas.SeverityError, "")
	}
	w.after(w.about(30), func() {
		w.crash(c, near, w.span(200, 900), w.span(60, 300))
		if w.sees("watchdog", 0.5) {
			w.after(60+w.about(30), func() {
				w.say(c, schemas.SourceIPMI, near, schemas.EventBMCSEL, "23/01", schemas.SeverityCritical, schemas.StateRaised)
			})
		}
	})
	return near
}

func dimmFails(w *world, k *Case, near int) int {
	dimms := w.of(near, schemas.KindDIMM)
	if len(dimms) == 0 || !w.running(near) {
		return -1
	}
	dimm := w.pick(dimms)
	w.memoryDies(k, near, dimm)
	return dimm
}

func (w *world) memoryDies(k *Case, server, dimm int) {
	c := k.cause()
	if w.sees("dimm ue", 0.7) {
		w.say(c, schemas.SourceIPMI, dimm, schemas.EventDIMMECCUE, "DIMM", schemas.SeverityCritical, schemas.StateRaised)
	}
	if w.sees("mce", 0.5) {
		w.say(c, schemas.SourceKmsg, server, schemas.EventHostMCE, "memory", schemas.SeverityCritical, "")
	}
	if w.p(0.85) {
		w.crash(c, server, w.span(300, 1200), w.about(20))
	}
	w.mended(k, func() { w.clear(dimm, schemas.EventDIMMECCUE) })
	k.unnamed(Blame{w.parts[server].id, "host.memory_uncorrectable"}, Blame{w.parts[server].id, "host.crash"})
}

func dimmWears(w *world, k *Case, near int) int {
	dimms := w.of(near, schemas.KindDIMM)
	if len(dimms) == 0 || !w.running(near) {
		return -1
	}
	dimm := w.pick(dimms)
	for i := range 2 + w.rng.IntN(4) {
		w.after(float64(i)*w.span(60, 400), func() {
			if w.sees("dimm ce", 0.9) {
				w.say(k.cause(), schemas.SourceRule, dimm, schemas.EventDIMMECCCE, "DIMM", schemas.SeverityWarning, "")
			}
		})
	}
	w.after(w.span(900, 1800), func() { w.memoryDies(k, near, dimm) })
	return dimm
}

func cpuFails(w *world, k *Case, near int) int {
	cpus := w.of(near, schemas.KindCPU)
	if len(cpus) == 0 || !w.running(near) {
		return -1
	}
	c, cpu := k.cause(), w.pick(cpus)
	at := near
	if w.p(0.6) {
		at = cpu
	}
	if w.sees("cpu mce", 0.6) {
		w.say(c, schemas.SourceKmsg, at, schemas.EventHostMCE, "cpu", schemas.SeverityCritical, "")
	}
	if w.sees("ierr", 0.7) {
		w.say(c, schemas.SourceIPMI, at, schemas.EventBMCSEL, "07/00", schemas.SeverityCritical, schemas.StateRaised)
	}
	w.crash(c, near, w.span(300, 1800), w.about(10))
	k.unnamed(Blame{w.parts[near].id, "host.cpu_failure"}, Blame{w.parts[near].id, "host.crash"})
	return cpu
}

func diskFails(w *world, k *Case, near int) int {
	disks := w.of(near, schemas.KindDisk)
	if len(disks) == 0 || !w.running(near) {
		return -1
	}
	c, disk := k.cause(), w.pick(disks)
	if w.sees("smart", 0.6) {
		w.say(c, schemas.SourceRule, disk, schemas.EventDiskPredictedFailure, "media_errors", schemas.SeverityWarning, schemas.StateRaised)
	}
	if w.sees("io", 0.8) {
		for range 1 + w.rng.IntN(3) {
			w.after(w.span(10, 600), func() {
				if w.running(near) {
					w.say(c, schemas.SourceKmsg, disk, schemas.EventHostFSError, "io", schemas.SeverityError, "")
				}
			})
		}
	}
	if w.sees("io hang", 0.3) {
		w.after(w.span(100, 600), func() {
			w.say(c, schemas.SourceKmsg, near, schemas.EventHostHungTask, "122", schemas.SeverityError, "")
		})
	}
	return disk
}

func pcieFails(w *world, k *Case, near int) int {
	sws := w.of(near, schemas.KindPCIeSwitch)
	if len(sws) == 0 || !w.running(near) {
		return -1
	}
	c, sw := k.cause(), w.pick(sws)
	for _, d := range w.parts[sw].pcie {
		if w.sees("aer below", 0.8) {
			w.after(w.about(1), func() {
				w.say(c, schemas.SourceKmsg, d, schemas.EventHostPCIeAER, "fatal", schemas.SeverityError, "")
			})
		}
		switch w.parts[d].kind {
		case schemas.KindGPU:
			if w.sees("fall below", 0.7) {
				w.after(w.about(2), func() { w.say(c, schemas.SourceKmsg, d, schemas.EventGPUXID, "79", schemas.SeverityCritical, "") })
			}
		case schemas.KindNIC:
			w.st[d].cut++
			w.mended(k, func() {
				w.st[d].cut--
				w.cables(c, near)
			})
		}
	}
	w.after(w.about(2), func() { w.cables(c, near) })
	if w.sees("sel bus", 0.4) {
		w.say(c, schemas.SourceIPMI, near, schemas.EventBMCSEL, "13/08", schemas.SeverityError, schemas.StateRaised)
	}
	w.hurt(c, near, "abort")
	w.also(k, near, k.Fault)
	return sw
}

func fabricDies(w *world, k *Case, near int) int {
	if g := w.gpuOf(near); g < 0 || len(w.parts[g].nv) == 0 {
		return -1
	}
	c := k.cause()
	w.raise(c, schemas.SourceAgent, near, schemas.EventServiceFailed, "nvidia-fabricmanager", schemas.SeverityError)
	if w.sees("unit log", 0.6) {
		w.after(w.about(1), func() {
			w.say(c, schemas.SourceKmsg, near, schemas.EventServiceFailed, "nvidia-fabricmanager", schemas.SeverityError, "")
		})
	}
	w.hurt(c, near, "stall")
	w.mended(k, func() { w.clear(near, schemas.EventServiceFailed) })
	return near
}

func bmcDies(w *world, k *Case, near int) int {
	b := w.bmc(near)
	if b < 0 || !w.reachBMC(near) {
		return -1
	}
	w.st[b].cut++
	w.look(k.cause(), near)
	k.lasts = max(k.lasts, 900)
	w.mended(k, func() {
		w.st[b].cut--
		w.look(k.cause(), near)
	})
	w.also(k, near, k.Fault)
	return b
}

func bmcLoops(w *world, k *Case, near int) int {
	b := w.bmc(near)
	if b < 0 || !w.reachBMC(near) {
		return -1
	}
	t := 0.0
	for range 4 + w.rng.IntN(4) {
		w.after(t, func() {
			w.st[b].cut++
			w.look(k.cause(), near)
		})
		t += w.span(120, 400)
		w.after(t, func() {
			w.st[b].cut--
			w.look(k.cause(), near)
		})
		t += w.span(60, 300)
	}
	w.also(k, near, k.Fault)
	return b
}

// Programs.

func programFails(w *world, k *Case, near int) int {
	j := w.on[near]
	if j == nil || j.end > 0 {
		return -1
	}
	c := k.cause()
	k.id = j.id
	k.workload(j.id)
	hit := []int{near}
	if w.p(0.4) {
		hit = w.some(j.servers, 0.7)
	}
	code := w.oneOf("13", "31")
	for _, s := range hit {
		if g := w.gpuOf(s); g >= 0 && w.sees("program xid", 0.9) {
			w.after(w.about(1), func() {
				w.say(c, schemas.SourceKmsg, g, schemas.EventGPUXID, code, schemas.SeverityWarning, "")
				w.say(c, schemas.SourceKmsg, g, schemas.EventGPUXID, "43", schemas.SeverityWarning, "")
			})
		}
	}
	w.after(w.about(4), func() { w.fail(c, j, -1, "program") })
	return near
}

func programHangs(w *world, k *Case, near int) int {
	j := w.on[near]
	if j == nil || j.end > 0 || len(j.servers) < 2 {
		return -1
	}
	k.id = j.id
	k.workload(j.id)
	w.after(w.about(5), func() { w.fail(k.cause(), j, -1, "hang") })
	return near
}

// What the correlator has no record of.

// neighbourhood returns the servers that stand with one, in its rack if there is one.
func (w *world) neighbourhood(near int) []int {
	if r := w.rackOf(near); r >= 0 {
		var out []int
		for _, d := range w.devices(r) {
			if w.parts[d].kind == schemas.KindServer {
				out = append(out, d)
			}
		}
		return out
	}
	i := slices.Index(w.servers, near)
	return w.servers[max(0, i-3):min(len(w.servers), i+4)]
}

func (w *world) top(near int) int {
	for w.parts[near].parent >= 0 {
		near = w.parts[near].parent
	}
	return near
}

// group accepts the smallest thing that holds what was hit.
func (w *world) group(near int) int {
	if r := w.rackOf(near); r >= 0 {
		return r
	}
	return w.top(near)
}

func waterLeaks(w *world, k *Case, near int) int {
	c := k.cause()
	for i, s := range w.some(w.neighbourhood(near), 0.5) {
		w.after(float64(i)*w.about(60), func() {
			for _, p := range w.some(w.of(s, schemas.KindPSU), 0.3) {
				w.say(c, schemas.SourceIPMI, p, schemas.EventVoltageOutOfRange, "12V", schemas.SeverityError, schemas.StateRaised)
			}
			if nics := w.of(s, schemas.KindNIC); len(nics) > 0 && w.p(0.5) {
				w.say(c, schemas.SourceKmsg, w.pick(nics), schemas.EventHostPCIeAER, "corrected", schemas.SeverityWarning, "")
			}
			if w.p(0.7) {
				w.after(w.about(60), func() {
					w.stop(c, s, false)
					w.boot(s, k.lasts+w.span(600, 3000))
				})
			}
		})
	}
	return w.group(near)
}

func storageOut(w *world, k *Case, near int) int {
	c := k.cause()
	for _, s := range w.some(w.servers, w.span(0.4, 0.9)) {
		if !w.running(s) {
			continue
		}
		w.after(w.about(40), func() {
			if w.sees("nfs", 0.7) {
				w.say(c, schemas.SourceKmsg, s, schemas.EventHostHungTask, "122", schemas.SeverityError, "")
			}
			if w.sees("nfs io", 0.5) {
				w.say(c, schemas.SourceKmsg, s, schemas.EventHostFSError, "nfs-timeout", schemas.SeverityError, "")
			}
		})
		if w.p(0.3) {
			w.hurt(c, s, "stall")
		}
	}
	return w.top(near)
}

func badFirmware(w *world, k *Case, near int) int {
	c := k.cause()
	for i, s := range w.some(w.servers, min(0.5, 12/float64(len(w.servers)))) {
		w.after(float64(i)*w.about(90), func() {
			w.say(c, schemas.SourceRedfish, w.at(w.bmc(s), s), schemas.EventBMCEvent, "SUP0516", schemas.SeverityWarning, "")
			if b := w.bmc(s); b >= 0 {
				w.st[b].cut++
				w.look(c, s)
				w.after(w.span(200, 500), func() {
					w.st[b].cut--
					w.look(c, s)
				})
			}
			w.crash(c, s, w.span(300, 900), 5)
		})
	}
	return w.top(near)
}

func (w *world) at(list ...int) int {
	for _, x := range list {
		if x >= 0 {
			return x
		}
	}
	return -1
}

func licenceGone(w *world, k *Case, near int) int {
	c := k.cause()
	for _, s := range w.some(w.servers, w.span(0.2, 0.6)) {
		w.after(w.about(120), func() {
			if w.running(s) {
				w.say(c, schemas.SourceAgent, s, schemas.EventServiceFailed, "licence-client", schemas.SeverityError, schemas.StateRaised)
				if j := w.on[s]; j != nil {
					w.cases[c].workload(j.id)
					w.fail(c, j, -1, "program")
				}
			}
		})
	}
	return w.top(near)
}

// away lets the agents of servers fall silent while the servers run.
func (w *world) away(k *Case, servers []int, spread float64) {
	for _, s := range servers {
		w.after(w.about(spread), func() {
			w.st[s].cut++
			w.look(k.cause(), s)
			w.after(k.lasts, func() {
				w.st[s].cut--
				w.look(k.cause(), s)
			})
		})
	}
}

func timeWrong(w *world, k *Case, near int) int {
	list := w.some(w.servers, w.span(0.3, 0.8))
	w.away(k, list, 60)
	for _, s := range w.some(list, 0.4) {
		w.say(k.cause(), schemas.SourceAgent, s, schemas.EventServiceFailed, "chronyd", schemas.SeverityWarning, schemas.StateRaised)
	}
	return w.top(near)
}

func namesFail(w *world, k *Case, near int) int {
	list := w.some(w.servers, w.span(0.2, 0.7))
	w.away(k, list, 30)
	for _, s := range w.some(list, 0.5) {
		w.say(k.cause(), schemas.SourceKmsg, s, schemas.EventServiceFailed, "systemd-resolved", schemas.SeverityWarning, "")
		if w.p(0.2) {
			w.hurt(k.cause(), s, "abort")
		}
	}
	return w.top(near)
}

func rogueScript(w *world, k *Case, near int) int {
	for i, s := range w.some(w.servers, min(0.6, 15/float64(len(w.servers)))) {
		w.after(float64(i)*w.about(8), func() { w.crash(k.cause(), s, w.span(150, 400), 1) })
	}
	return w.top(near)
}

func subnetGone(w *world, k *Case, near int) int {
	c := k.cause()
	for _, s := range w.servers {
		if w.on[s] != nil && w.p(0.6) {
			w.hurt(c, s, "stall")
		}
		for _, e := range w.ports(s) {
			if w.sees("no sm", 0.15) {
				w.after(w.about(30), func() {
					w.say(c, schemas.SourceRule, e, schemas.EventPortErrors, "link-init", schemas.SeverityWarning, "")
				})
			}
		}
	}
	return w.top(near)
}

func interference(w *world, k *Case, near int) int {
	c := k.cause()
	for _, s := range w.neighbourhood(near) {
		for _, g := range w.of(s, schemas.KindGPU) {
			if w.p(0.3) {
				w.say(c, schemas.SourceDCGM, g, schemas.EventGPUPCIeReplay, "replay", schemas.SeverityWarning, "")
			}
		}
		for _, e := range w.ports(s) {
			if w.p(0.3) {
				w.say(c, schemas.SourceRule, e, schemas.EventPortErrors, "symbol-errors", schemas.SeverityWarning, "")
			}
		}
		if d := w.of(s, schemas.KindDIMM); len(d) > 0 && w.p(0.4) {
			w.say(c, schemas.SourceRule, w.pick(d), schemas.EventDIMMECCCE, "DIMM "+strconv.Itoa(1), schemas.SeverityWarning, "")
		}
	}
	return w.group(near)
}

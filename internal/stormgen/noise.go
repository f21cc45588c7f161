package stormgen

import (
	"auspex/schemas"
)

// chatter plays what means nothing: planned work, single flaps, restarts of
// controllers, cancelled jobs, and lines that devices write all day.
func (w *world) chatter(o Options, end float64) {
	rate := o.Noise
	if rate == 0 {
		rate = w.span(3, 20)
		if o.Profile == Quiet {
			rate = w.span(20, 40)
		}
	}
	rate *= float64(len(w.servers)) / 64 / 3600
	for t := w.rng.ExpFloat64() / rate; t < end; t += 2 * w.rng.ExpFloat64() / rate {
		w.after(t, w.murmur)
	}
}

// blip is a condition that is over before anybody would look.
func (w *world) blip(c int, lasts float64, source string, part int, typ, code string, sev schemas.Severity) {
	if part < 0 {
		return
	}
	w.say(c, source, part, typ, code, sev, schemas.StateRaised)
	w.after(lasts, func() { w.say(c, source, part, typ, code, schemas.SeverityInfo, schemas.StateCleared) })
}

// partOf is any part of a kind of a server, or -1.
func (w *world) partOf(server int, kind string) int {
	if list := w.of(server, kind); len(list) > 0 {
		return w.pick(list)
	}
	return -1
}

func (w *world) murmur() {
	w.murmurs++
	c := noise - w.murmurs
	s := w.pick(w.servers)
	if !w.running(s) {
		return
	}
	mutter := func(source string, part int, typ, code string, sev schemas.Severity) {
		if part >= 0 {
			w.say(c, source, part, typ, code, sev, "")
		}
	}
	const info, warning = schemas.SeverityInfo, schemas.SeverityWarning
	switch w.rng.IntN(30) {
	case 0:
		w.planned(c, s)
	case 1:
		if w.p(0.2) { // a maintenance window: one after another
			for i, x := range w.some(w.neighbourhood(s), 0.6) {
				w.after(float64(i)*w.span(60, 300), func() { w.planned(c, x) })
			}
		}
	case 2, 3, 4, 5:
		if l, _, _ := w.linkNear(s); l >= 0 {
			w.snap(c, l)
			w.after(w.span(1, 8), func() { w.splice(c, l) })
		}
	case 6, 7:
		w.st[s].cut++
		w.look(c, s)
		w.after(w.span(15, 45), func() {
			w.st[s].cut--
			w.look(c, s)
		})
	case 8, 9:
		if b := w.bmc(s); b >= 0 {
			w.st[b].cut++
			w.look(c, s)
			w.after(w.span(40, 150), func() {
				w.st[b].cut--
				w.look(c, s)
			})
		}
	case 10:
		if j := w.on[s]; j != nil && j.end == 0 && w.p(0.5) {
			j.end = w.now
			for _, x := range j.servers {
				if w.on[x] == j {
					delete(w.on, x)
				}
			}
			w.tell(c, schemas.SourceScheduler, j.id, -1, schemas.EventWorkloadFailed, "143", info, "", "workload", j.id)
			w.after(w.span(60, 600), func() {
				var again []int
				for _, x := range j.servers {
					if w.on[x] == nil {
						again = append(again, x)
					}
				}
				if len(again) > 0 {
					w.launch(again)
				}
			})
		}
	case 11, 12:
		mutter(schemas.SourceRule, w.partOf(s, schemas.KindDIMM), schemas.EventDIMMECCCE, "DIMM", w.mild())
	case 13:
		mutter(schemas.SourceIPMI, w.partOf(s, schemas.KindDIMM), schemas.EventDIMMECCCE, "DIMM", w.mild())
	case 14, 15:
		if _, port, nic := w.linkNear(s); port >= 0 {
			mutter(schemas.SourceRule, w.at(port, nic), schemas.EventPortErrors, "symbol-errors", w.mild())
		}
	case 16:
		w.blip(c, w.span(10, 90), schemas.SourceIPMI, s, schemas.EventTempHigh, "NIC Temp", warning)
	case 17:
		w.blip(c, w.span(5, 60), schemas.SourceDCGM, w.partOf(s, schemas.KindGPU), schemas.EventGPUThermal, "HW_THERMAL", warning)
	case 18:
		for _, g := range w.of(s, schemas.KindGPU) { // a burn-in run
			mutter(schemas.SourceDCGM, g, schemas.EventGPUClocksThrottled, "SW_POWER_CAP", info)
		}
	case 19:
		mutter(schemas.SourceKmsg, s, schemas.EventHostOOM, "cgroup", warning)
	case 20:
		mutter(schemas.SourceKmsg, s, schemas.EventServiceFailed, w.oneOf("apt-daily", "logrotate", "fwupd-refresh"), warning)
	case 21:
		mutter(schemas.SourceDCGM, w.partOf(s, schemas.KindGPU), schemas.EventGPUPCIeReplay, "replay", info)
	case 22:
		mutter(schemas.SourceRule, w.partOf(s, schemas.KindGPU), schemas.EventGPUNVLinkErrors, "replay", info)
	case 23:
		mutter(schemas.SourceIPMI, s, schemas.EventBMCSEL, w.oneOf("04/00", "05/00", "09/00", "10/05", "12/05", "1b/00", "1f/01", "2a/00"), info)
	case 24:
		mutter(schemas.SourceIPMI, s, schemas.EventBMCSEL, "28/00", warning)
	case 25:
		mutter(schemas.SourceRedfish, w.at(w.bmc(s), s), schemas.EventBMCEvent, w.oneOf("USR0030", "RAC1195", "JCP037"), info)
	case 26:
		if _, port, _ := w.linkNear(s); port >= 0 {
			mutter(schemas.SourceRule, port, schemas.EventPortPFCStorm, "", info)
		}
	case 27:
		if sw := w.switchNear(s, w.inBandSwitch); sw >= 0 {
			w.say(c, schemas.SourceGNMI, sw, schemas.EventBGPSessionDown, "admin-reset", info, schemas.StateRaised)
			w.after(w.span(2, 20), func() {
				w.say(c, schemas.SourceGNMI, sw, schemas.EventBGPSessionDown, "admin-reset", info, schemas.StateCleared)
			})
		}
	case 28:
		w.blip(c, w.span(20, 60), schemas.SourceIPMI, w.partOf(s, schemas.KindFan), schemas.EventFanSlow, "FAN", warning)
	case 29:
		mutter(schemas.SourceKmsg, w.partOf(s, schemas.KindGPU), schemas.EventHostPCIeAER, "corrected", info)
	}
}

// mild is how seriously a site takes what corrects itself.
func (w *world) mild() schemas.Severity {
	if w.p(0.5) {
		return schemas.SeverityWarning
	}
	return schemas.SeverityInfo
}

// planned restarts a server that runs no job, as somebody asked for.
func (w *world) planned(c, s int) {
	if w.on[s] != nil || !w.running(s) {
		return
	}
	w.say(c, schemas.SourceKmsg, s, schemas.EventHostReboot, "planned", schemas.SeverityInfo, "")
	w.after(w.span(1, 5), func() {
		if w.running(s) {
			w.stop(c, s, true)
			w.boot(s, w.span(120, 420))
		}
	})
}

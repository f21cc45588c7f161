package correlator

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"auspex/internal/racetest"
	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

// job runs on all GPUs of some servers of the first rack.
func (w *scenery) job(id string, servers ...int) {
	j := schemas.Workload{ID: id, Start: t0.Add(-time.Hour)}
	for _, h := range servers {
		for g := range w.GPUs {
			j.Resources = append(j.Resources, w.ID("s0.%d/gpu%d", h, g))
		}
	}
	w.Topology.Workloads = append(w.Topology.Workloads, j)
}

// scenery is a site on which a scene is played.
type scenery struct {
	*site
	*scene
}

// leafGone plays a leaf that dies: the ports of its servers and of its spines, and contact.
func (w *scenery) leafGone(sec float64, leaf int) {
	for h := range w.Servers {
		for k := range w.NICs {
			if k%w.Leaves == leaf {
				w.at(sec+0.1*float64(h), "agent", w.ID("s0.%d/nic%d", h, k), "port.down", failed, up)
			}
		}
	}
	for k := range w.Spines {
		w.at(sec+0.3, "gnmi", w.ID("spine%d/d0.%d", k, leaf), "port.down", failed, up)
	}
	w.at(sec+25, "collector", w.ID("leaf0.%d", leaf), "switch.unreachable", critical, up)
}

// Chains, networks, what comes again, two at once, jobs, and equals: each has one right answer, whatever
// the site is built like, and every event has its place.
func TestClassesOnManySites(t *testing.T) {
	racetest.OneGoroutine(t)
	type play struct {
		name string
		fits func(w *site) bool
		play func(w *scenery)
		want func(w *site) []string
	}
	one := func(format, fault string) func(w *site) []string {
		return func(w *site) []string { return []string{w.ID("%s", format) + " " + fault} }
	}
	var plays []play
	add := func(name string, fits func(w *site) bool, p func(w *scenery), want func(w *site) []string) {
		plays = append(plays, play{name, fits, p, want})
	}
	all := func(*site) bool { return true }
	add("a memory module, a crash, its ports and its job", all, func(w *scenery) {
		w.job("job-1", 1, 2, 3)
		w.at(0, "ipmi", w.ID("s0.1/dimm3"), "dimm.ecc_ue", critical)
		w.at(0.5, "kmsg", w.Host(0, 1), "host.mce/memory", failed)
		w.at(1, "kmsg", w.Host(0, 1), "host.panic", critical)
		w.dark(w.site, 2, 0, 1, false)
		w.at(40, "agent", w.Host(0, 2), "workload.comm_timeout", failed, "workload=job-1")
		w.at(41, "agent", w.Host(0, 3), "workload.comm_timeout", failed, "workload=job-1")
		w.at(60, "scheduler", "job-1", "workload.failed/134", failed)
	}, one("s0.1/dimm3", "host.memory_uncorrectable"))
	add("a processor, a crash, its ports and its job", all, func(w *scenery) {
		w.job("job-1", 1, 2, 3)
		w.at(0, "ipmi", w.ID("s0.1/cpu1"), "bmc.sel/07/00", critical, up)
		w.dark(w.site, 2, 0, 1, false)
		w.at(40, "agent", w.Host(0, 2), "workload.comm_timeout", failed, "workload=job-1")
		w.at(60, "scheduler", "job-1", "workload.failed/134", failed)
	}, one("s0.1/cpu1", "host.cpu_failure"))
	leaves := func(w *site) bool { return w.Leaves > 0 }
	add("a leaf goes, and contact in its band", leaves, func(w *scenery) {
		w.leafGone(0, 0)
		if w.Leaves == 1 {
			for h := range w.Servers {
				w.at(15+0.3*float64(h), "collector", w.Host(0, h), "agent.unreachable", failed, up)
			}
		}
	}, one("leaf0.0", "network.switch_failure"))
	soleLeaf := func(w *site) bool { return w.Leaves == 1 && w.Mgmt == 0 }
	add("the only leaf of servers that nothing else joins to the network goes, and only contact tells of them", soleLeaf, func(w *scenery) {
		for k := range w.Spines {
			w.at(0.4, "gnmi", w.ID("spine%d/d0.0", k), "port.down", failed, up)
		}
		for h := range w.Servers {
			if h > 0 {
				w.at(14+1.6*float64(h), "collector", w.Host(0, h), "agent.unreachable", failed, up)
			}
			if h%4 < 3 {
				w.at(16+2*float64(h), "collector", w.Host(0, h), "host.unreachable", critical, up)
			}
		}
		w.at(19, "collector", w.ID("leaf0.0"), "switch.unreachable", critical, up)
	}, one("leaf0.0", "network.switch_failure"))
	add("the only spine goes, and contact with all behind its leaves", func(w *site) bool { return leaves(w) && w.Spines == 1 && w.Leaves == 1 && w.Racks > 1 }, func(w *scenery) {
		for r := range w.Racks {
			w.at(0.3+0.1*float64(r), "gnmi", w.ID("leaf%d.0/up0", r), "port.down", failed, up)
			for h := range w.Servers {
				if (r+h)%5 > 0 {
					w.at(16+1.3*float64(h)+0.3*float64(r), "collector", w.Host(r, h), "host.unreachable", critical, up)
				}
			}
		}
		w.at(20, "collector", w.ID("spine0"), "switch.unreachable", critical, up)
	}, one("spine0", "network.switch_failure"))
	mgmt := func(w *site) bool { return w.Mgmt > 0 }
	add("a management switch goes, and only the controllers with it", mgmt, func(w *scenery) {
		for h := range w.Servers {
			w.at(10+float64(h), "collector", w.ID("s0.%d/bmc", h), "bmc.unreachable", failed, up)
		}
		w.at(30, "collector", w.ID("mgmt0"), "switch.unreachable", critical, up)
	}, one("mgmt0", "network.switch_failure"))
	add("a management switch that nobody polls goes", mgmt, func(w *scenery) {
		for h := range w.Servers {
			w.at(10+float64(h), "collector", w.ID("s0.%d/bmc", h), "bmc.unreachable", failed, up)
		}
	}, one("mgmt0", "network.switch_failure"))
	add("an air unit fails again while it is mended", all, func(w *scenery) {
		w.hotAir(w.site, 0, 0, true)
		w.at(900, "snmp", w.ID("air0"), "crac.failure", schemas.SeverityInfo, down)
		w.at(1300, "snmp", w.ID("air0"), "crac.failure", critical, up)
	}, one("air0", "cooling.air_supply"))
	add("the air unit, and of one server that went down hot only its ports", leaves, func(w *scenery) {
		w.hotAir(w.site, 0, 0, true)
		for k := range w.NICs {
			w.at(1500+0.2*float64(k), "gnmi", w.PortOf(0, 1, k), "port.down", failed, up)
		}
	}, one("air0", "cooling.air_supply"))
	wired := func(w *site) bool { return leaves(w) && w.NICs > 1 }
	add("the air unit, and of one server that went down hot its agent, half of its ports and its job", wired, func(w *scenery) {
		w.job("job-1", 1, 2)
		w.hotAir(w.site, 0, 0, true)
		w.at(1300, "ipmi", w.Host(0, 1), "temp.inlet_high/Inlet Temp", warned, up)
		for k := range w.NICs / 2 {
			w.at(1500+0.1*float64(k), "gnmi", w.PortOf(0, 1, k), "port.down", failed, up)
		}
		w.at(1511, "collector", w.Host(0, 1), "agent.unreachable", failed, up)
		w.at(1540, "scheduler", "job-1", "workload.failed/134", failed)
	}, one("air0", "cooling.air_supply"))
	add("an air unit alarms, and one of its racks is hot", func(w *site) bool { return w.Row > 1 }, func(w *scenery) {
		w.at(0, "snmp", w.ID("air0"), "crac.failure", critical, up)
		for h := range w.Servers {
			w.at(200+float64(h*37%300), "ipmi", w.Host(1, h), "temp.inlet_high/Inlet Temp", warned, up)
		}
	}, one("air0", "cooling.air_supply"))
	add("half of the racks of a silent air unit are hot, one after the other", func(w *site) bool { return w.Row > 3 }, func(w *scenery) {
		for r := range w.Row / 2 {
			for h := range w.Servers {
				w.at(300*float64(r)+float64(h*37%200), "ipmi", w.Host(r, h), "temp.inlet_high/Inlet Temp", warned, up)
			}
		}
	}, one("air0", "cooling.air_supply"))
	hot := func(w *scenery) {
		w.at(0, "gnmi", w.ID("leaf0.0"), "switch.fan/FanTray2", warned, up)
		w.at(200, "gnmi", w.ID("leaf0.0"), "temp.high/asic", failed, up)
	}
	add("a switch gets hot as its fan stands still", leaves, hot, one("leaf0.0", "network.switch_failure"))
	add("a switch gets hot, and goes", leaves, func(w *scenery) {
		hot(w)
		w.leafGone(400, 0)
	}, one("leaf0.0", "network.switch_failure"))
	feeds := func(w *site) bool { return w.Feeds > 1 }
	add("a feed trips again while it is mended", feeds, func(w *scenery) {
		w.unfeed(w.site, 0, 0, 0)
		for h := range w.Servers {
			for k := 0; k < w.PSUs; k += w.Feeds {
				w.at(300+0.1*float64(h), "redfish", w.ID("s0.%d/psu%d", h, k), "psu.input_lost", schemas.SeverityInfo, down)
			}
		}
		w.unfeed(w.site, 420, 0, 0)
	}, one("pdu0.0", "power.feed_loss"))
	add("a feed trips again while it is mended, and only now takes servers along", feeds, func(w *scenery) {
		w.unfeed(w.site, 0, 0, 0)
		for h := range w.Servers {
			for k := 0; k < w.PSUs; k += w.Feeds {
				w.at(600+0.1*float64(h), "redfish", w.ID("s0.%d/psu%d", h, k), "psu.input_lost", schemas.SeverityInfo, down)
			}
		}
		w.unfeed(w.site, 1260, 0, 0)
		w.dark(w.site, 1261, 0, 2, true)
		w.dark(w.site, 1262, 0, 3, true)
	}, one("pdu0.0", "power.feed_loss"))
	switched := func(w *site) bool { return leaves(w) && feeds(w) }
	add("a feed trips again half an hour later, and now its switches say so too", switched, func(w *scenery) {
		supplies := func(sec float64, state string) {
			for h := range w.Servers {
				for k := 0; k < w.PSUs; k += w.Feeds {
					w.at(sec+0.1*float64(h), "redfish", w.ID("s0.%d/psu%d", h, k), "psu.input_lost", failed, state)
				}
			}
		}
		supplies(0, up)
		supplies(1200, down)
		supplies(1800, up)
		for l := range w.Leaves {
			w.at(1803+0.4*float64(l), "gnmi", w.ID("leaf0.%d/psu0", l), "switch.psu", warned, up)
		}
	}, one("pdu0.0", "power.feed_loss"))
	add("switches start as the feeds of their rack come back", switched, func(w *scenery) {
		for f := range w.Feeds {
			w.unfeed(w.site, 45*float64(f), 0, f)
		}
		last := 45 * float64(w.Feeds-1)
		w.blackrack(w.site, last, 0)
		for l := range w.Leaves {
			w.at(last+1100+5*float64(l), "gnmi", w.ID("leaf0.%d", l), "switch.reboot/unplanned", warned)
		}
	}, func(w *site) (out []string) {
		for f := range w.Feeds {
			out = append(out, w.ID("pdu0.%d", f)+" power.feed_loss")
		}
		return out
	})
	add("the only leaf of a rack, ten minutes after one of its feeds", func(w *site) bool { return switched(w) && w.Leaves == 1 }, func(w *scenery) {
		w.unfeed(w.site, 0, 0, 0)
		w.leafGone(600, 0)
		for h := range w.Servers {
			w.at(615+0.3*float64(h), "collector", w.Host(0, h), "agent.unreachable", failed, up)
			w.at(620+0.3*float64(h), "collector", w.Host(0, h), "host.unreachable", failed, up)
		}
	}, func(w *site) []string {
		return []string{w.ID("pdu0.0") + " power.feed_loss", w.ID("leaf0.0") + " network.switch_failure"}
	})
	feedAndLeaf := func(w *site) []string {
		return []string{w.ID("pdu0.0") + " power.feed_loss", w.ID("leaf0.0") + " network.switch_failure"}
	}
	add("a leaf that told of its lost supply dies seconds later", switched, func(w *scenery) {
		w.unfeed(w.site, 0, 0, 0)
		w.leafGone(12, 0)
	}, feedAndLeaf)
	add("a leaf that nothing was heard of dies within the minute after a feed", switched, func(w *scenery) {
		for h := range w.Servers {
			for k := 0; k < w.PSUs; k += w.Feeds {
				w.at(0.1*float64(h), "redfish", w.ID("s0.%d/psu%d", h, k), "psu.input_lost", failed, up)
			}
		}
		w.leafGone(50, 0)
	}, feedAndLeaf)
	add("a leaf that ran on one supply goes with its feed", switched, func(w *scenery) {
		for h := range w.Servers {
			for k := 0; k < w.PSUs; k += w.Feeds {
				w.at(0.1*float64(h), "redfish", w.ID("s0.%d/psu%d", h, k), "psu.input_lost", failed, up)
			}
		}
		w.leafGone(1, 0)
	}, one("pdu0.0", "power.feed_loss"))
	ports := func(w *scenery, sec float64, leaf int) { // of a leaf that is back
		for h := range w.Servers {
			for k := range w.NICs {
				if k%w.Leaves == leaf {
					w.at(sec+0.1*float64(h), "agent", w.ID("s0.%d/nic%d", h, k), "port.down", schemas.SeverityInfo, down)
				}
			}
		}
		for k := range w.Spines {
			w.at(sec+0.3, "gnmi", w.ID("spine%d/d0.%d", k, leaf), "port.down", schemas.SeverityInfo, down)
		}
		w.at(sec+5, "collector", w.ID("leaf0.%d", leaf), "switch.unreachable", schemas.SeverityInfo, down)
	}
	fed := func(w *scenery, sec float64, state string) {
		for h := range w.Servers {
			for k := 0; k < w.PSUs; k += w.Feeds {
				w.at(sec+0.1*float64(h), "redfish", w.ID("s0.%d/psu%d", h, k), "psu.input_lost", failed, state)
			}
		}
	}
	add("a leaf goes, and contact in its band, a feed half a minute later, and the leaf is back first", switched, func(w *scenery) {
		for h := range w.Servers {
			w.at(0.3+0.02*float64(h), "gnmi", w.ID("s0.%d/nic0", h), "port.down", failed, up)
			if h%3 > 0 {
				w.at(15+0.5*float64(h), "collector", w.Host(0, h), "agent.unreachable", failed, up)
			}
			w.at(18+0.5*float64(h), "collector", w.Host(0, h), "host.unreachable", failed, up)
		}
		for h := range w.Servers {
			for k := 0; k < w.PSUs; k += w.Feeds {
				w.at(37+0.2*float64(h), "redfish", w.ID("s0.%d/psu%d", h, k), "psu.input_lost", failed, up)
			}
		}
		w.at(65, "collector", w.ID("leaf0.0"), "switch.unreachable", critical, up)
		ports(w, 1100, 0)
		for h := range w.Servers {
			w.at(1105+0.5*float64(h), "collector", w.Host(0, h), "agent.unreachable", schemas.SeverityInfo, down)
			w.at(1106+0.5*float64(h), "collector", w.Host(0, h), "host.unreachable", schemas.SeverityInfo, down)
		}
		fed(w, 1500, down)
	}, feedAndLeaf)
	for _, x := range []struct {
		name       string
		gone       float64 // after the feed
		feed, leaf float64 // when each is back
		apart      bool
	}{
		{"is back long before it", 3, 2400, 900, true},
		{"is back two minutes before it", 3, 1600, 1480, true},
		{"is back long after it", 3, 700, 2300, true},
		{"was gone before, and is back before it", -20, 1500, 1100, true},
		{"starts as it is back", 3, 900, 1000, false},
		{"is the first that is heard to be back", 3, 910, 900, false},
	} {
		add("a leaf goes with a feed, and "+x.name, switched, func(w *scenery) {
			fed(w, 0, up)
			w.leafGone(x.gone, 0)
			fed(w, x.feed, down)
			ports(w, x.leaf, 0)
		}, func(w *site) []string {
			if x.apart {
				return feedAndLeaf(w)
			}
			return feedAndLeaf(w)[:1]
		})
	}
	add("a server whose other supply wears out is mended before the feed", feeds, func(w *scenery) {
		fed(w, 0, up)
		w.dark(w.site, 8, 0, 2, false)
		for _, ev := range slices.Clone(w.events[len(w.events)-2:]) {
			w.at(1600, ev.Source, ev.Resource, ev.Type, schemas.SeverityInfo, down)
		}
		fed(w, 1900, down)
	}, one("pdu0.0", "power.feed_loss"))
	add("a board controller that dies after a feed, of a server that runs on", feeds, func(w *scenery) {
		w.unfeed(w.site, 0, 0, 0)
		w.at(40, "collector", w.ID("s0.2/bmc"), "bmc.unreachable", failed, up)
	}, func(w *site) []string {
		return []string{w.ID("pdu0.0") + " power.feed_loss", w.ID("s0.2/bmc") + " bmc.failure"}
	})
	add("a server that was out of contact before a feed went", feeds, func(w *scenery) {
		w.at(0, "collector", w.Host(0, 2), "agent.unreachable", failed, up)
		w.at(2, "collector", w.Host(0, 2), "host.unreachable", failed, up)
		fed(w, 14, up)
		w.at(600, "collector", w.Host(0, 2), "agent.unreachable", schemas.SeverityInfo, down)
		w.at(602, "collector", w.Host(0, 2), "host.unreachable", schemas.SeverityInfo, down)
		fed(w, 1300, down)
	}, func(w *site) []string {
		return []string{w.ID("s0.2") + " host.crash", w.ID("pdu0.0") + " power.feed_loss"}
	})
	add("a server of one good supply goes with a feed, and its controller with it", feeds, func(w *scenery) {
		w.unfeed(w.site, 0, 0, 0)
		w.dark(w.site, 1, 0, 2, true)
	}, one("pdu0.0", "power.feed_loss"))
	add("a server whose other supply wears out under the load of a lost feed", feeds, func(w *scenery) {
		w.unfeed(w.site, 0, 0, 0)
		for g := range w.GPUs {
			w.at(4+0.1*float64(g), "dcgm", w.ID("s0.2/gpu%d", g), "gpu.clocks_throttled/HW_POWER_BRAKE", warned, up)
		}
		w.dark(w.site, 30, 0, 2, true)
	}, one("pdu0.0", "power.feed_loss"))
	add("the leaf of a rack, and then a feed", func(w *site) bool { return leaves(w) && feeds(w) }, func(w *scenery) {
		w.leafGone(0, 0)
		w.unfeed(w.site, 180, 0, 0)
	}, func(w *site) []string {
		return []string{w.ID("pdu0.0") + " power.feed_loss", w.ID("leaf0.0") + " network.switch_failure"}
	})
	add("a fan and the air unit", func(w *site) bool { return w.Fans > 0 }, func(w *scenery) {
		w.hotAir(w.site, 0, 0, true)
		w.at(200, "ipmi", w.ID("s0.1/fan1"), "fan.failure", failed, up)
	}, func(w *site) []string {
		return []string{w.ID("air0") + " cooling.air_supply", w.ID("s0.1/fan1") + " cooling.fan_failure"}
	})
	warm := func(w *scenery, sec float64, alarm bool) { // every server has GPUs that it holds back
		w.hotAir(w.site, sec, 0, alarm)
		for r := range min(w.Row, w.Racks) {
			for h := range w.Servers {
				for g := 3; g < min(6, w.GPUs); g++ {
					w.at(sec+760+9*float64(h)+31*float64(g), "dcgm", w.ID("s%d.%d/gpu%d", r, h, g), "gpu.thermal/HW_THERMAL", warned, up)
				}
			}
		}
	}
	add("a GPU runs hot before the air that its unit lets warm", all, func(w *scenery) {
		w.at(0, "snmp", w.ID("air0"), "crac.failure", critical, up)
		for i, typ := range []string{"gpu.thermal/HW_THERMAL", "gpu.clocks_throttled/HW_THERMAL_SLOWDOWN", "gpu.thermal/HW_THERMAL", "gpu.thermal/HW_THERMAL"} {
			w.at(13+70*float64(i), "dcgm", w.ID("s0.1/gpu2"), typ, warned, up)
		}
		warm(w, 400, false)
	}, func(w *site) []string {
		return []string{w.ID("air0") + " cooling.air_supply", w.ID("s0.1/gpu2") + " gpu.overheating"}
	})
	add("a GPU that runs hot once more, long after the air is cool again", all, func(w *scenery) {
		warm(w, 0, true)
		for _, ev := range slices.Clone(w.events) {
			w.at(1500, ev.Source, ev.Resource, ev.Type, schemas.SeverityInfo, down)
		}
		for i := range 4 {
			w.at(3000+70*float64(i), "dcgm", w.ID("s0.1/gpu2"), "gpu.thermal/HW_THERMAL", warned, up)
		}
		w.at(2300, "snmp", w.ID("air0"), "crac.failure", schemas.SeverityInfo, down)
	}, func(w *site) []string {
		return []string{w.ID("air0") + " cooling.air_supply", w.ID("s0.1/gpu2") + " gpu.overheating"}
	})
	add("a cable breaks, and then the air warms", leaves, func(w *scenery) {
		w.at(0, "gnmi", w.PortOf(0, 1, 0), "port.down", failed, up)
		w.hotAir(w.site, 200, 0, false)
	}, func(w *site) []string {
		return []string{w.ID("air0") + " cooling.air_supply", w.PortOf(0, 1, 0) + " network.link_failure"}
	})
	many := func(w *site) bool { return leaves(w) && w.NICs > 1 }
	for _, after := range []float64{90, 200, 600} {
		add(fmt.Sprintf("a system that hangs, of which the cards go when it is reset, %.0f s later", after), wired, func(w *scenery) {
			w.job("job-1", 1, 2)
			w.at(0, "agent", w.Host(0, 2), "workload.comm_timeout", failed, "workload=job-1")
			w.at(12, "scheduler", "job-1", "workload.failed/134", failed)
			w.at(20, "collector", w.Host(0, 1), "host.unreachable", critical, up)
			for k := range w.NICs {
				w.at(after+0.1*float64(k), "gnmi", w.PortOf(0, 1, k), "port.down", failed, up)
			}
		}, one("s0.1", "host.crash"))
	}
	for _, before := range []bool{true, false} { // only the leaf's end is heard; the server answers all the while
		add(fmt.Sprintf("a cable of a warm server breaks, as neighbours go down hot, before: %v", before), many, func(w *scenery) {
			w.hotAir(w.site, 0, 0, true)
			at := 1250.0
			if before {
				at = 1150
			}
			w.at(at, "gnmi", w.PortOf(0, 1, 0), "port.down", failed, up)
			for _, h := range []int{2, 3} {
				w.at(1199, "ipmi", w.Host(0, h), "bmc.sel/07/01", critical, up)
				w.dark(w.site, 1200, 0, h, false)
			}
		}, func(w *site) []string {
			return []string{w.ID("air0") + " cooling.air_supply", w.PortOf(0, 1, 0) + " network.link_failure"}
		})
	}
	add("memory of one GPU and NVLink of a neighbour of its job", all, func(w *scenery) {
		w.job("job-1", 1, 2, 3)
		w.at(0, "kmsg", w.ID("s0.1/gpu0"), "gpu.xid/48", critical)
		w.at(0.5, "kmsg", w.ID("s0.1/gpu0"), "gpu.xid/63", warned)
		w.at(8, "kmsg", w.ID("s0.2/gpu3"), "gpu.xid/74", critical)
		w.at(9, "rule", w.ID("s0.2/gpu3"), "gpu.nvlink_errors", failed)
		w.at(30, "scheduler", "job-1", "workload.failed/134", failed)
	}, func(w *site) []string {
		return []string{w.ID("s0.1/gpu0") + " gpu.memory_uncorrectable", w.ID("s0.2/gpu3") + " gpu.nvlink_failure"}
	})
	add("timeouts before the fault that stalled one rank is heard of", all, func(w *scenery) {
		w.job("job-1", 0, 1, 2, 3)
		for i, h := range []int{0, 2, 3} {
			w.at(float64(i), "agent", w.Host(0, h), "workload.comm_timeout", failed, "workload=job-1")
		}
		w.at(20, "scheduler", "job-1", "workload.failed/134", failed)
		w.at(25, "kmsg", w.ID("s0.1/gpu2"), "gpu.xid/79", critical)
		w.at(26, "dcgm", w.ID("s0.1/gpu2"), "gpu.missing/GPU_IS_LOST", critical, up)
	}, one("s0.1/gpu2", "gpu.fallen_off_bus"))
	for i := range 4 {
		stale, over := i%2 == 0, i/2 == 1 // over: the scheduler has noted the end of the job
		add(fmt.Sprintf("firmware that hangs, of which the driver tells when the job has long given up, stale: %v, over: %v", stale, over), all, func(w *scenery) {
			w.job("job-1", 0, 1, 2, 3)
			if over {
				w.Topology.Workloads[len(w.Topology.Workloads)-1].End = t0.Add(70 * time.Second)
			}
			if stale {
				w.at(0, "dcgm", w.ID("s0.1/gpu2"), "gpu.missing/STALE", failed)
			}
			for i, h := range []int{0, 2, 3} {
				w.at(60+float64(i), "agent", w.Host(0, h), "workload.comm_timeout", failed, "workload=job-1")
				w.at(64+0.3*float64(i), "kmsg", w.ID("s0.%d/gpu%d", h, i), "gpu.xid/45", warned)
			}
			w.at(70, "scheduler", "job-1", "workload.failed/134", failed)
			for i := range 3 {
				w.at(900+6*float64(i), "kmsg", w.ID("s0.1/gpu2"), "gpu.xid/119", critical)
			}
		}, one("s0.1/gpu2", "gpu.gsp_hang"))
	}
	add("hundreds of XIDs of a job, and the one error before them", all, func(w *scenery) {
		w.job("job-1", 0, 1, 2, 3)
		w.at(0, "kmsg", w.ID("s0.1/gpu0"), "gpu.xid/94", critical)
		n := 0
		for h := range 4 {
			for g := range w.GPUs {
				for range 14 {
					n++
					w.at(4+0.02*float64(n), "kmsg", w.ID("s0.%d/gpu%d", h, g), "gpu.xid/45", warned)
				}
			}
		}
		w.at(20, "scheduler", "job-1", "workload.failed/134", failed)
	}, one("s0.1/gpu0", "gpu.memory_uncorrectable"))
	add("a GPU that is not registered in its NVLink fabric after its reset", all, func(w *scenery) {
		w.at(0, "nvml", w.ID("s0.1/gpu2"), "gpu.fabric/NOT_REGISTERED", failed, up)
	}, one("s0.1/gpu2", "gpu.nvlink_failure"))
	add("a fabric manager that runs and registers nothing", all, func(w *scenery) {
		for g := range w.GPUs {
			w.at(0.2*float64(g), "nvml", w.ID("s0.1/gpu%d", g), "gpu.fabric/NOT_REGISTERED", failed, up)
		}
	}, one("s0.1", "service.fabric_manager"))
	add("a fabric manager that dies, and a GPU that is reset while it is dead", all, func(w *scenery) {
		w.at(0, "agent", w.Host(0, 1), "service.failed/nvidia-fabricmanager", failed, up)
		w.at(900, "nvml", w.ID("s0.1/gpu2"), "gpu.fabric/NOT_REGISTERED", failed, up)
	}, one("s0.1", "service.fabric_manager"))
	switches := func(w *site) bool { return w.NVSwitches > 1 }
	add("an NVSwitch that dies, and what the drivers say of the fabric", switches, func(w *scenery) {
		w.at(0, "kmsg", w.ID("s0.1/nvswitch1"), "nvswitch.sxid/10003", critical)
		for g := range w.GPUs {
			w.at(1+0.1*float64(g), "kmsg", w.ID("s0.1/gpu%d", g), "gpu.xid/74", critical)
			w.at(8+0.1*float64(g), "nvml", w.ID("s0.1/gpu%d", g), "gpu.fabric/DEGRADED_BANDWIDTH", warned, up)
		}
	}, one("s0.1/nvswitch1", "nvswitch.failure"))
	add("the second NVSwitch, not the first", switches, func(w *scenery) {
		w.at(0, "kmsg", w.ID("s0.1/nvswitch1"), "nvswitch.sxid/20034", critical)
		for g := range w.GPUs {
			w.at(0.5+0.1*float64(g), "kmsg", w.ID("s0.1/gpu%d", g), "gpu.xid/74", critical)
		}
	}, one("s0.1/nvswitch1", "nvswitch.failure"))
	add("one end of a cable speaks", leaves, func(w *scenery) {
		w.at(0, "gnmi", w.PortOf(0, 1, 0), "port.down", failed, up)
	}, func(w *site) []string { return []string{w.PortOf(0, 1, 0) + " network.link_failure"} })
	for _, w := range []*site{small.Build(), demo.Build(), hall.Build(), four.Build(), lean.Build(), unfed.Build(), oneFeed.Build()} {
		for _, p := range plays {
			if !p.fits(w) {
				continue
			}
			t.Run(w.Name+"/"+p.name, func(t *testing.T) {
				topology := *w.Topology
				it := &scenery{&site{}, &scene{}}
				*it.site = *w
				it.Topology = &topology
				topology.Workloads = slices.Clone(topology.Workloads)
				p.play(it)
				got := final(&topology, it.sorted(), 20*time.Minute)
				if want := p.want(w); !sameSet(causes(got), want) {
					t.Fatalf("got\n%swant %q", verdict(got), want)
				}
				held := 0
				for _, inc := range got {
					held += len(inc.Events)
				}
				if held != len(it.events) {
					t.Errorf("%d of %d events\n%s", held, len(it.events), verdict(got))
				}
			})
		}
	}
}

// TestWhatComesAfterTheSecondTimeGoesWithIt: an air unit fails and takes a server down, is mended while that is still down, and
// fails again within the two hours in which the first time could still take others. Each time holds its own.
func TestWhatComesAfterTheSecondTimeGoesWithIt(t *testing.T) {
	for _, sh := range []shape{small, demo, hall, four, unfed, oneFeed, oneCard(small), oneCard(four)} {
		w := sh.Build()
		t.Run(w.Name, func(t *testing.T) {
			s := &scene{}
			s.hotAir(w, 0, 0, true)
			hot := slices.Clone(s.events)
			s.dark(w, 800, 0, 0, false)
			for i := range hot {
				s.at(1500+0.1*float64(i), hot[i].Source, hot[i].Resource, hot[i].Type, schemas.SeverityInfo, down)
			}
			first := len(s.events)
			s.hotAir(w, 3900, 0, true)
			s.dark(w, 4600, 0, 1, false)
			got := final(w.Topology, s.sorted(), 5*time.Minute)
			root := w.ID("air0") + " cooling.air_supply"
			if !slices.Equal(causes(got), []string{root, root}) || len(got[0].Events) != first || len(got[1].Events) != len(s.events)-first {
				t.Errorf("of %d and %d events\n%s", first, len(s.events)-first, verdict(got))
			}
		})
	}
}

// An incident is where its cause is: what one cause takes from another, however much, renames
// neither.
func TestAnIncidentGoesWithItsCause(t *testing.T) {
	for _, w := range []*site{small.Build(), demo.Build(), hall.Build(), four.Build(), lean.Build()} {
		t.Run(w.Name, func(t *testing.T) {
			it := &scenery{w, &scene{}}
			it.job("job-1", 0, 1, 2)
			it.unfeed(w, 0, 0, 0)
			it.leafGone(400, 0)
			for i := range 80 {
				it.at(430+0.1*float64(i), "kmsg", w.ID("s0.%d/gpu%d", i%3, i%w.GPUs), "gpu.xid/45", warned)
			}
			it.at(440, "scheduler", "job-1", "workload.failed/134", failed)
			e := NewEngine(propagation.Default(), w.Topology, nil)
			named := map[string]string{}
			note := func() {
				for _, inc := range e.Drain() {
					if len(inc.Events) == 0 {
						continue
					}
					if was := named[inc.ID]; was != "" && was != inc.RootCause.Resource {
						t.Errorf("%s was %s and is %s", inc.ID, was, inc.RootCause.Resource)
					}
					if inc.RootCause.Confidence > 0.8 {
						named[inc.ID] = inc.RootCause.Resource
					}
				}
			}
			for i := range it.sorted().events {
				e.Add(&it.events[i])
				note()
			}
			e.Advance(e.Now().Add(10 * time.Minute))
			e.Flush()
			note()
			if len(named) != 2 {
				t.Errorf("told of %v", named)
			}
		})
	}
}

// A job stops once: with the fault that was there when it did, not with one that its server has later.
func TestAJobGoesWithTheFaultThatWasThere(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, w := range []*site{small.Build(), demo.Build(), hall.Build(), four.Build(), lean.Build(), unfed.Build()} {
		for _, second := range []float64{12, 25} {
			t.Run(fmt.Sprintf("%s/%gs later", w.Name, second), func(t *testing.T) {
				topology := *w.Topology
				it := &scenery{&site{}, &scene{}}
				*it.site = *w
				it.Topology = &topology
				topology.Workloads = nil
				it.job("job-1", 0, 1, 2, 3)
				it.at(0, "kmsg", w.ID("s0.1/gpu3"), "gpu.xid/74", critical)
				for h := range 4 {
					for g := range w.GPUs {
						it.at(8+0.1*float64(h)+0.05*float64(g), "kmsg", w.ID("s0.%d/gpu%d", h, g), "gpu.xid/45", warned)
					}
				}
				it.at(second, "kmsg", w.ID("s0.1/gpu0"), "gpu.xid/94", critical)
				it.at(second+1, "dcgm", w.ID("s0.1/gpu0"), "gpu.ecc_ue/DRAM", critical)
				got := final(&topology, it.sorted(), 20*time.Minute)
				for _, inc := range got {
					if want := map[string]int{w.ID("s0.1/gpu3"): 1 + 4*w.GPUs, w.ID("s0.1/gpu0"): 2}; len(inc.Events) != want[inc.RootCause.Resource] {
						t.Fatalf("want %v\n%s", want, verdict(got))
					}
				}
			})
		}
	}
}

// A hot server that goes down with a fault of its own goes with that fault, not with the air that has been
// hot for long.
func TestAHotServerGoesWithItsOwnFault(t *testing.T) {
	for _, w := range []*site{small.Build(), demo.Build(), hall.Build(), four.Build(), lean.Build(), unfed.Build()} {
		for name, others := range map[string]int{"alone": 0, "and others went down hot": 2} {
			t.Run(w.Name+"/"+name, func(t *testing.T) {
				it := &scenery{w, &scene{}}
				it.hotAir(w, 0, 0, true)
				it.at(1300, "ipmi", w.Host(0, 1), "temp.inlet_high/Inlet Temp", warned, up)
				for h := range others {
					it.at(1310, "ipmi", w.Host(0, 2+h), "temp.inlet_high/Inlet Temp", warned, up)
					it.dark(w, 1400+60*float64(h), 0, 2+h, false)
				}
				it.at(1800, "ipmi", w.ID("s0.1/dimm3"), "dimm.ecc_ue", critical)
				it.at(1800.5, "kmsg", w.Host(0, 1), "host.mce/memory", failed)
				it.dark(w, 1801, 0, 1, false)
				got := final(w.Topology, it.sorted(), 20*time.Minute)
				own := 4
				if w.Leaves > 0 {
					own += w.NICs
				}
				for _, inc := range got {
					if len(got) != 2 || inc.RootCause.Resource == w.ID("s0.1/dimm3") != (len(inc.Events) == own) {
						t.Fatalf("want %d events of the module\n%s", own, verdict(got))
					}
					if inc.RootCause.Confidence < 0.8 {
						t.Errorf("not sure of what only the module shows\n%s", verdict(got))
					}
				}
			})
		}
	}
}

// Supplies of switches tell of a feed as those of servers do, where the controllers that would tell of these are
// out of contact.
func TestSuppliesOfSwitchesTellOfTheirFeed(t *testing.T) {
	for _, w := range []*site{hall.Build(), four.Build(), lean.Build()} {
		t.Run(w.Name, func(t *testing.T) {
			it := &scenery{w, &scene{}}
			for l := range w.Leaves {
				it.at(0.3*float64(l), "gnmi", w.ID("leaf0.%d/psu0", l), "switch.psu", warned, up)
			}
			for h := range w.Servers {
				it.at(14+float64(h), "collector", w.ID("s0.%d/bmc", h), "bmc.unreachable", failed, up)
			}
			it.at(25, "collector", w.ID("mgmt0"), "switch.unreachable", critical, up)
			got := final(w.Topology, it.sorted(), 20*time.Minute)
			if !sameSet(causes(got), []string{w.ID("pdu0.0") + " power.feed_loss"}) {
				t.Fatal(verdict(got))
			}
		})
	}
}

// A server that crashed before one of its leaves died has crashed still: what the leaf could show too is not
// taken from it by something that nobody minds.
func TestACrashStandsAsALeafOfItDies(t *testing.T) {
	for _, w := range []*site{small.Build(), demo.Build(), hall.Build(), four.Build(), lean.Build()} {
		t.Run(w.Name, func(t *testing.T) {
			it := &scenery{w, &scene{}}
			it.job("job-1", 1, 2, 3)
			it.at(0, "collector", w.Host(0, 1), "agent.unreachable", failed, up)
			it.at(1.5, "collector", w.Host(0, 1), "host.unreachable", failed, up)
			it.at(43.5, "agent", w.Host(0, 2), "workload.comm_timeout", failed, "workload=job-1")
			for k := range w.NICs {
				it.at(55+0.1*float64(k), "gnmi", w.PortOf(0, 1, k), "port.down", failed, up)
			}
			it.at(59, "scheduler", "job-1", "workload.failed/137", failed)
			of := len(it.events)
			it.leafGone(72, 0)
			it.events = append(it.events[:of], slices.DeleteFunc(it.events[of:], func(ev schemas.Event) bool {
				return strings.HasPrefix(ev.Resource, w.Host(0, 1)+"/") // who has crashed tells of nothing
			})...)
			got := final(w.Topology, it.sorted(), 20*time.Minute)
			if !sameSet(causes(got), []string{w.ID("s0.1") + " host.crash", w.ID("leaf0.0") + " network.switch_failure"}) {
				t.Fatal(verdict(got))
			}
		})
	}
}

// A leaf that dies as a feed of its rack trips, and comes back while that is out, is told beside it, and as surely.
func TestALeafThatDiesBesideItsFeedIsSure(t *testing.T) {
	for _, w := range []*site{small.Build(), demo.Build(), hall.Build(), four.Build(), lean.Build()} {
		t.Run(w.Name, func(t *testing.T) {
			it := &scenery{w, &scene{}}
			it.unfeed(w, 0, 0, 1)
			it.events = slices.DeleteFunc(it.events, func(ev schemas.Event) bool { return ev.Source == "gnmi" })
			of := len(it.events)
			it.leafGone(2, 0)
			for i, ev := range slices.Clone(it.events[of:]) {
				it.at(300+0.1*float64(i), ev.Source, ev.Resource, ev.Type, schemas.SeverityInfo, down)
			}
			got := final(w.Topology, it.sorted(), 20*time.Minute)
			if !sameSet(causes(got), []string{w.ID("pdu0.1") + " power.feed_loss", w.ID("leaf0.0") + " network.switch_failure"}) {
				t.Fatal(verdict(got))
			}
			for _, inc := range got {
				if inc.RootCause.Confidence < 0.8 {
					t.Errorf("not sure of it\n%s", verdict(got))
				}
			}
		})
	}
}

// What a system said before it went down says nothing of it after it was started anew: a server that was hot, and
// goes once more when the air has been cool for long, has not gone down hot.
func TestAServerThatWasHotBeforeItsStartIsNot(t *testing.T) {
	for _, w := range []*site{small.Build(), demo.Build(), hall.Build(), four.Build(), lean.Build(), unfed.Build()} {
		t.Run(w.Name, func(t *testing.T) {
			it := &scenery{w, &scene{}}
			it.hotAir(w, 0, 0, true)
			hot := slices.Clone(it.events)
			it.at(500, "dcgm", w.ID("s0.1/gpu0"), "gpu.thermal/HW_THERMAL", failed, up)
			it.at(600, "ipmi", w.ID("s0.1"), "bmc.sel/07/01", critical, up)
			down1 := len(it.events)
			it.dark(w, 601, 0, 1, false)
			for _, ev := range slices.Clone(it.events[down1:]) {
				it.at(2000, ev.Source, ev.Resource, ev.Type, schemas.SeverityInfo, down)
			}
			for i := range hot {
				it.at(1500+0.1*float64(i), hot[i].Source, hot[i].Resource, hot[i].Type, schemas.SeverityInfo, down)
			}
			it.dark(w, 4500, 0, 1, false)
			got := final(w.Topology, it.sorted(), 20*time.Minute)
			if !sameSet(causes(got), []string{w.ID("air0") + " cooling.air_supply", w.ID("s0.1") + " host.crash"}) {
				t.Fatal(verdict(got))
			}
		})
	}
}

// A server that is down for the second time is so for what it has now: it had come back from what took it down first.
func TestAServerThatCameBackIsDownAnew(t *testing.T) {
	for _, w := range []*site{small.Build(), demo.Build(), hall.Build(), four.Build(), lean.Build(), unfed.Build()} {
		t.Run(w.Name, func(t *testing.T) {
			it := &scenery{w, &scene{}}
			it.hotAir(w, 0, 0, true)
			it.dark(w, 800, 0, 1, false)
			for _, ev := range slices.Clone(it.events[len(it.events)-2-min(1, w.Leaves)*w.NICs:]) {
				it.at(1500, ev.Source, ev.Resource, ev.Type, schemas.SeverityInfo, down)
			}
			first := len(it.events)
			it.at(2700, "ipmi", w.ID("s0.1/dimm3"), "dimm.ecc_ue", critical)
			it.at(2700.5, "kmsg", w.Host(0, 1), "host.mce/memory", failed)
			it.dark(w, 2701, 0, 1, false)
			for _, inc := range final(w.Topology, it.sorted(), 20*time.Minute) {
				want := map[string]int{w.ID("air0"): first, w.ID("s0.1/dimm3"): len(it.events) - first}[inc.RootCause.Resource]
				if len(inc.Events) != want || inc.RootCause.Confidence < 0.8 {
					t.Errorf("want %d events, and to be sure\n%s", want, verdict([]schemas.Incident{inc}))
				}
			}
		})
	}
}

// Where nothing tells parts of one machine apart, the set is named, with the confidence that it
// is one of them; a part is as sure as its share.
func TestOneOfEquals(t *testing.T) {
	for _, w := range []*site{small.Build(), demo.Build(), hall.Build(), lean.Build(), unfed.Build()} {
		if w.NVSwitches < 2 {
			continue
		}
		for _, named := range []bool{false, true} {
			t.Run(fmt.Sprint(w.Name, ", one named: ", named), func(t *testing.T) {
				s := &scene{}
				for g := range w.GPUs {
					s.at(0.1*float64(g), "kmsg", w.ID("s0.1/gpu%d", g), "gpu.xid/74", critical)
				}
				if named {
					s.at(0, "kmsg", w.ID("s0.1/nvswitch1"), "nvswitch.sxid/20034", critical)
				}
				got := final(w.Topology, s.sorted(), 20*time.Minute)
				if len(got) != 1 || got[0].RootCause.Fault != "nvswitch.failure" {
					t.Fatal(verdict(got))
				}
				c := got[0].RootCause
				if named {
					if c.Resource != w.ID("s0.1/nvswitch1") || len(c.OneOf) != 0 || c.Sure() < 0.8 {
						t.Errorf("%+v", c)
					}
					return
				}
				want := make([]string, w.NVSwitches)
				for i := range want {
					want[i] = w.ID("s0.1/nvswitch%d", i)
				}
				if !sameSet(c.OneOf, want) || c.OneOf[0] != c.Resource || c.Confidence < 0.9 || c.Sure() > c.Confidence/float64(w.NVSwitches)+1e-9 {
					t.Errorf("%+v, want one of %q", c, want)
				}
				if !strings.Contains(got[0].Explanation, "nothing tells them apart") {
					t.Error(got[0].Explanation)
				}
			})
		}
	}
}

// Of a crash whose contact nobody missed, only links and the start are heard. They come back as the
// system starts: no cable does that by itself.
func TestLinksThatComeBackAsTheServerStartsAreOfItsCrash(t *testing.T) {
	for _, w := range []*site{small.Build(), demo.Build(), hall.Build(), four.Build(), lean.Build(), unfed.Build()} {
		for name, ports := range map[string]int{"one link and the agent": 1, "half of the links": (w.NICs + 1) / 2} {
			t.Run(w.Name+"/"+name, func(t *testing.T) {
				it := &scenery{w, &scene{}}
				for k := range ports {
					it.at(30*float64(k), "gnmi", w.PortOf(0, 2, k), "port.down", failed, up)
					it.at(420+0.5*float64(k), "gnmi", w.PortOf(0, 2, k), "port.down", failed, down)
				}
				if strings.HasSuffix(name, "agent") {
					it.at(70, "collector", w.Host(0, 2), "agent.unreachable", failed, up)
					it.at(440, "collector", w.Host(0, 2), "agent.unreachable", failed, down)
				}
				it.at(421, "kmsg", w.Host(0, 2), "host.reboot/unclean", warned)
				got := final(w.Topology, it.sorted(), 20*time.Minute)
				if want := []string{w.Host(0, 2) + " host.crash"}; !sameSet(causes(got), want) {
					t.Errorf("got\n%swant %q", verdict(got), want)
				}
			})
		}
		t.Run(w.Name+"/a cable that is mended at another time", func(t *testing.T) {
			it := &scenery{w, &scene{}}
			it.at(0, "gnmi", w.PortOf(0, 2, 0), "port.down", failed, up)
			it.at(240, "gnmi", w.PortOf(0, 2, 0), "port.down", failed, down)
			it.at(421, "kmsg", w.Host(0, 2), "host.reboot/unclean", warned)
			if got := final(w.Topology, it.sorted(), 20*time.Minute); len(got) != 1 || got[0].RootCause.Fault != "network.link_failure" {
				t.Errorf("it is no cable\n%s", verdict(got))
			}
		})
	}
}

// A server that was heard to be cool again does not go down of the heat before.
func TestAServerThatHasCooledCrashesByItself(t *testing.T) {
	for _, w := range []*site{small.Build(), demo.Build(), hall.Build(), four.Build(), lean.Build(), unfed.Build()} {
		t.Run(w.Name, func(t *testing.T) {
			it := &scenery{w, &scene{}}
			it.hotAir(w, 0, 0, true)
			it.at(1750, "ipmi", w.Host(0, 1), "temp.inlet_high/Inlet Temp", warned, up)
			for i, ev := range slices.Clone(it.events[1:]) {
				it.at(1800+float64(i), ev.Source, ev.Resource, ev.Type+"/"+ev.Code, schemas.SeverityInfo, down)
			}
			it.at(1900, "snmp", w.ID("air0"), "crac.failure", schemas.SeverityInfo, down)
			air := len(it.events)
			it.dark(w, 2160, 0, 1, false)
			for _, inc := range final(w.Topology, it.sorted(), 20*time.Minute) {
				want := map[string]int{w.ID("air0"): air, w.ID("r0"): air, w.Host(0, 1): len(it.events) - air}[inc.RootCause.Resource]
				if len(inc.Events) != want {
					t.Errorf("want %d events\n%s", want, verdict([]schemas.Incident{inc}))
				}
			}
		})
	}
}

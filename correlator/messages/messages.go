// Package messages holds the sentences with which an incident explains itself:
// a message id and its English template. The user interface says the same ids
// in its own languages; a test there can hold its table against [All].
package messages

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// templates are English; {name} is an argument.
var templates = map[string]string{
	"sum.power.feed_loss":           "Feed {feed} of rack {rack} lost power; {servers} servers hang on it.",
	"sum.power.psu_failure":         "Power supply {part} of {server} failed.",
	"sum.cooling.air_supply":        "{resource} no longer cools enough; {servers} servers run hot.",
	"sum.cooling.fan_failure":       "Fan {part} of {server} failed.",
	"sum.network.switch_failure":    "Switch {switch} failed; {servers} servers lost links.",
	"sum.network.link_failure":      "The link at {port} is down.",
	"sum.network.link_flap":         "Link {port} went down and up {n} times.",
	"sum.network.optics_degraded":   "The optics at {port} degrade.",
	"sum.network.nic_failure":       "Network adapter {part} of {server} failed.",
	"sum.gpu.fallen_off_bus":        "GPU {gpu} of {server} fell off the bus.",
	"sum.gpu.memory_uncorrectable":  "GPU {gpu} of {server} has memory errors that it cannot correct.",
	"sum.gpu.memory_degrading":      "The memory of GPU {gpu} in {server} degrades.",
	"sum.gpu.gsp_hang":              "The firmware of GPU {gpu} in {server} stopped answering.",
	"sum.gpu.nvlink_failure":        "GPU {gpu} of {server} lost NVLink.",
	"sum.gpu.overheating":           "GPU {gpu} of {server} overheats.",
	"sum.nvswitch.failure":          "{part} of {server} failed.",
	"sum.host.memory_uncorrectable": "Memory module {part} of {server} has errors that it cannot correct.",
	"sum.host.cpu_failure":          "Processor {part} of {server} failed.",
	"sum.host.pcie_fault":           "PCIe of {server} has a fatal error at {part}.",
	"sum.host.disk_failure":         "Disk {part} of {server} fails.",
	"sum.host.crash":                "{server} crashed.",
	"sum.service.fabric_manager":    "The fabric manager of {server} failed.",
	"sum.bmc.failure":               "The board controller of {server} does not answer.",
	"sum.workload.error":            "{job} crashed on {servers} servers; no hardware is at fault.",
	"sum.unknown":                   "{resource} reports something critical that no known fault explains.",

	"say.psus_lost":       "{n} power supplies on feed {feed} of rack {rack} lost input within {within} s.",
	"say.common_supplier": "All of them hang on {resource}. No supply on feed {feed} reports a loss.",
	"say.common":          "All of them hang on {resource}.",
	"say.common_alone":    "All of them hang on {resource}. No supply on another feed reports a loss.",
	"say.common_dark":     "All of them hang on {resource}. {n} of {of} supplies on other feeds could not report; the rest report no loss.",
	"say.common_blind":    "All of them hang on {resource}. None of the {of} supplies on other feeds could report.",
	"say.feed_blind":      "{n} of {of} supplies on {resource} could not report.",
	"say.no_supply_left":  "{n} servers and switches went out that had no other supply left.",
	"say.nvswitches":      "{switches} NVSwitches report dead links to it, as they must.",
	"say.breaker_open":    "{resource} itself reports its main breaker open.",
	"say.repeats":         "{n} records from {a} repeat what {b} said. They count once.",
	"say.brake":           "{gpus} GPUs on {servers} servers lower their clocks, since feed {feed} carries them alone.",
	"say.brake_only":      "{gpus} GPUs on {servers} servers lower their clocks.",
	"say.overload":        "{resource} reports an overload.",
	"say.off_bus":         "GPU {gpu} of {server} no longer answers on PCIe.",
	"say.recovery":        "The driver itself asks for a recovery action (XID 154).",
	"say.neighbours":      "{switches} NVSwitches and {gpus} other GPUs report dead links to it, as they must.",
	"say.job_stopped":     "{job} stopped; {servers} servers report it.",
	"say.job_owner":       "{job} belongs to {owner}.",
	"say.page_fault":      "{n} GPUs report an error of the program of {job} within {within} s.",
	"say.cleanup":         "{n} further records are the clean-up after it.",
	"say.no_hardware":     "None of the {gpus} GPUs that report counts a hardware error, so that the job itself is the likeliest cause.",
	"say.no_fault_seen":   "No fault of hardware that would explain it is known, and no GPU of {job} has reported an error.",
	"say.ports_down":      "{n} ports lost their link within {within} s.",
	"say.port_bounces":    "The link of {port} went down {n} times.",
	"say.servers_silent":  "{n} servers no longer answer.",
	"say.switch_silent":   "{switch} itself no longer answers.",
	"say.hot_inlets":      "{n} devices report hot inlet air, the last {within} s after the first.",
	"say.hot_gpus":        "{n} GPUs are held back by heat.",
	"say.air_alarm":       "{resource} itself reports a failure.",
	"say.record":          "{resource} reports {what}.",
	"say.records":         "{n} reports of {what} from {parts} parts within {within} s.",
	"say.before":          "{what} was seen {s} s before.",
	"say.returned":        "{n} of the conditions have ended.",
	"say.unexplained":     "No known fault explains it together with what else was seen.",
}

// All returns the ids of all messages, sorted.
func All() []string { return slices.Sorted(maps.Keys(templates)) }

// Template returns the English template of a message, or "".
func Template(id string) string { return templates[id] }

// Text says a message in English. An unknown id gives the id itself, and an
// argument that is missing keeps its braces.
func Text(id string, args map[string]any) string {
	t, ok := templates[id]
	if !ok {
		return id
	}
	var b strings.Builder
	for {
		i := strings.IndexByte(t, '{')
		if i < 0 {
			break
		}
		j := strings.IndexByte(t[i:], '}')
		if j < 0 {
			break
		}
		b.WriteString(t[:i])
		name := t[i+1 : i+j]
		switch v := args[name].(type) {
		case nil:
			b.WriteString(t[i : i+j+1])
		case float64:
			b.WriteString(strconv.FormatFloat(v, 'f', -1, 64))
		default:
			fmt.Fprint(&b, v)
		}
		t = t[i+j+1:]
		if args[name] == 1 { // one server, not one servers
			t = singular(t)
		}
	}
	b.WriteString(t)
	return b.String()
}

// singular turns the noun right after a count of one into its singular.
func singular(rest string) string {
	for _, r := range [...][2]string{
		{" power supplies", " power supply"},
		{" servers hang", " server hangs"},
		{" servers and switches went out that had", " device went out that had"},
		{" servers run", " server runs"},
		{" servers no longer answer", " server no longer answers"},
		{" servers report", " server reports"},
		{" servers", " server"},
		{" other GPUs report", " other GPU reports"},
		{" GPUs report", " GPU reports"},
		{" GPUs are", " GPU is"},
		{" GPUs on", " GPU on"},
		{" GPUs", " GPU"},
		{" NVSwitches report", " NVSwitch reports"},
		{" NVSwitches", " NVSwitch"},
		{" ports lost their", " port lost its"},
		{" times", " time"},
		{" devices report", " device reports"},
		{" records from", " record from"},
		{" further records are", " further record is"},
		{" reports of", " report of"},
		{" parts", " part"},
		{" of the conditions have", " of the conditions has"},
	} {
		if strings.HasPrefix(rest, r[0]) {
			return r[1] + rest[len(r[0]):]
		}
	}
	return rest
}

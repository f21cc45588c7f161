package kernlog

import (
	"strconv"
	"strings"

	"auspex/schemas"
	"auspex/schemas/faults"
)

// adapter reads what drivers of network adapters print: "driver 0000:40:00.0 …".
func adapter(text string) (schemas.Event, bool) {
	name := firstWord(text)
	switch {
	case !adapterNamed(name):
		return schemas.Event{}, false
	case otherAdapters[name]:
		return otherAdapter(text)
	case name != "infiniband" || strings.Contains(text, "mlx5_"):
		return mlx5(text)
	}
	return schemas.Event{}, false
}

// adapterNamed reports whether a line's first word is a driver of adapters.
func adapterNamed(name string) bool {
	return strings.HasPrefix(name, "mlx5_") || name == "infiniband" || otherAdapters[name]
}

// health says which of the firmware's health syndromes mean what (Linux,
// drivers/net/ethernet/mellanox/mlx5/core/health.c, hsynd_str).
var health = []struct{ text, code string }{
	{"unrecoverable hardware error", "hardware_unrecoverable"},
	{"hw fatal error", "hardware_fatal"},
	{"firmware internal error", "firmware_internal"},
	{"irisc not responding", "firmware_hang"},
	{"firmware crc error", "firmware_crc"},
	{"icm fetch pci", "host_memory_fetch"},
	{"async eq buffer overrun", "event_queue"},
	{"eq error", "event_queue"},
	{"invalid eq referenced", "event_queue"},
	{"ffser error", "ffser"},
	{"trust lockdown error", "trust_lockdown"},
}

// mlx5 reads the ConnectX driver: "mlx5_core 0000:40:00.0: poll_health:790:(pid 0):
// device's health compromised", health syndromes, commands that the firmware
// refused, port module events, over-temperature and links.
func mlx5(text string) (schemas.Event, bool) {
	low := strings.ToLower(text)
	has := func(s string) bool { return strings.Contains(low, s) }
	pci, port := address(text), netName(text)
	ev := func(typ, code string, s schemas.Severity) (schemas.Event, bool) {
		return event(typ, code, s, "pci", pci, "port", port)
	}
	switch {
	case has("mlx5_cmd_out_err"), has("mlx5_cmd_check"), has("failed, status ") && has("syndrome"):
		return refused(text, pci)
	case has("health compromised"):
		return ev(schemas.EventNICError, "health_compromised", schemas.SeverityCritical)
	case has("fatal error") && has("poll_health"), has("fatal error") && has("detected"):
		return ev(schemas.EventNICError, "fatal", schemas.SeverityCritical)
	case has("high temperature"), has("over-temperature"), has("overheat"), has("temperature warning"), has("temp_warn"):
		return ev(schemas.EventNICOverheating, "temperature", schemas.SeverityWarning)
	}
	for _, h := range health {
		if has(h.text) {
			return ev(schemas.EventNICError, h.code, healthSeverity(low))
		}
	}
	switch {
	case has("cable error"), has("port module event[error]"), has("port module event") && has("error"):
		return ev(schemas.EventNICError, "module", schemas.SeverityError)
	case has("cable unplugged"):
		e, ok := ev(schemas.EventNICDown, "unplugged", schemas.SeverityWarning)
		e.State = schemas.StateRaised
		return e, ok
	case has("cable plugged"):
		e, ok := ev(schemas.EventNICDown, "unplugged", schemas.SeverityInfo)
		e.State = schemas.StateCleared
		return e, ok
	case has("link down"):
		return link(text, true)
	case has("link up"):
		return link(text, false)
	case has("insufficient power on the pcie slot"), has("detected insufficient power"):
		return ev(schemas.EventNICError, "slot_power", schemas.SeverityError)
	case has("tx timeout"):
		return ev(schemas.EventNICError, "tx_timeout", schemas.SeverityError)
	case has("cqe error"), has("error cqe"):
		return ev(schemas.EventNICError, "cqe", schemas.SeverityError)
	case has("command timeout"), has("wait_func") && has("timeout"), has("cause a leak of a command resource"):
		return ev(schemas.EventNICError, "command_timeout", schemas.SeverityError)
	case has("health recovery failed"), has("failed recovery"), has("failed to recover"), has("recovery flow aborted"),
		has("handling bad device"):
		return ev(schemas.EventNICError, "recovery", schemas.SeverityError)
	case has("synd_") || has("syndrome") && has("err"), has("leaking"), has("firmware over"), has("device's health"), has("aborting"):
		return ev(schemas.EventNICError, "driver", schemas.SeverityError)
	}
	return schemas.Event{}, false
}

// healthSeverity reads the firmware's own rating, "severity(3) ERROR", which newer
// releases print; without it a health syndrome is critical.
func healthSeverity(low string) schemas.Severity {
	n, err := strconv.Atoi(between(low, "severity(", ")"))
	switch {
	case err != nil, n <= 3:
		return schemas.SeverityCritical
	case n == 4:
		return schemas.SeverityWarning
	}
	return schemas.SeverityInfo
}

// refused reads "mlx5_cmd_out_err:838:(pid 12): ACCESS_REG(0x805) op_mod(0x1) failed,
// status bad operation(0x2), syndrome (0x305684), err(-22)". Only an internal error
// is the adapter's own; the others say that somebody asked for what it does not do,
// and reading registers does that by the hour on sound machines.
func refused(text, pci string) (schemas.Event, bool) {
	status := between(text, "failed, status ", "(")
	command := ""
	if i := strings.Index(text, "(0x"); i > 0 {
		command = text[strings.LastIndexByte(text[:i], ' ')+1 : i]
	}
	s, action := schemas.SeverityWarning, faults.ActionContactSupport
	switch {
	case strings.HasPrefix(status, "internal error"):
		s = schemas.SeverityError
	case command == "ACCESS_REG":
		s, action = schemas.SeverityInfo, faults.ActionIgnore
	}
	return event(schemas.EventNICError, "command", s, "pci", pci, "command", command, "status", status,
		"syndrome", between(text, "syndrome (", ")"), "action", action)
}

// otherAdapters are the drivers of other makers' adapters in servers.
var otherAdapters = map[string]bool{
	"bnxt_en": true, "bnxt_re": true, "ice": true, "i40e": true, "iavf": true, "irdma": true, "ixgbe": true, "igb": true, "igc": true,
	"mlx4_core": true, "mlx4_en": true, "ionic": true, "ena": true, "efa": true, "hfi1": true, "qede": true, "qed": true, "cxgb4": true,
	"enic": true, "be2net": true, "tg3": true, "bnx2x": true, "sfc": true, "liquidio": true, "hns3": true, "atlantic": true,
}

// otherAdapter knows no driver's list of messages, but the words that none uses of
// a sound device.
func otherAdapter(text string) (schemas.Event, bool) {
	low := strings.ToLower(text)
	for _, w := range []struct {
		code string
		s    schemas.Severity
		any  []string
	}{
		{"fatal", schemas.SeverityCritical, []string{
			"fatal error", "fatal event", "fatal reset", "firmware fatal", "fatal firmware", "internal error detected", "catas",
		}},
		{"hardware", schemas.SeverityCritical, []string{
			"hardware error", "ecc error", "hmc error", "parity error", "adapter removed", "device has been removed", "pcie link lost",
		}},
		{"firmware_hang", schemas.SeverityCritical, []string{
			"firmware not responding", "fw not responding", "firmware is not responding", "firmware hang", "firmware recovery mode",
			"firmware is in recovery mode", "fw heartbeat", "keep alive watchdog timeout",
		}},
		{"tx_timeout", schemas.SeverityError, []string{"tx timeout", "tx hang", "transmit timed out", "tx unit hang", "tx_timeout"}},
		{"command_timeout", schemas.SeverityError, []string{
			"error (timeout:", "command timeout", "timed out waiting for the completion", "admin queue timeout", "asq send",
		}},
		{"recovery", schemas.SeverityError, []string{"reset failed", "rebuild failed", "recovery failed", "reset abort", "unable to recover"}},
	} {
		for _, s := range w.any {
			if strings.Contains(low, s) && !strings.Contains(low, "non-fatal") {
				return event(schemas.EventNICError, w.code, w.s, "pci", address(text), "port", netName(text))
			}
		}
	}
	return schemas.Event{}, false
}

// netdev reads what the network stack says of any interface: "eth0: NIC Link is
// Down", "igb 0000:01:00.0 eth0: igb: eth0 NIC Link is Down" and "NETDEV WATCHDOG:
// eth0 (ice): transmit queue 3 timed out", whose name newer kernels put first.
func netdev(text string) (schemas.Event, bool) {
	low := strings.ToLower(text)
	if i := strings.Index(low, "netdev watchdog:"); i >= 0 && strings.Contains(low, "timed out") {
		port := firstWord(text[i+len("netdev watchdog:"):])
		if i > 0 {
			port = firstWord(text)
		}
		return event(schemas.EventNICError, "tx_timeout", schemas.SeverityError, "port", strings.Trim(port, " :"))
	}
	if strings.Contains(low, "nic link is down") {
		return link(text, true)
	}
	if strings.Contains(low, "nic link is up") {
		return link(text, false)
	}
	return bonded(text, low)
}

// bonded reads what the bonding driver says of a member: "bond0: (slave ens1f0np0): link status
// definitely down, disabling slave" and, before Linux 5.4, "bond0: link status definitely down for
// interface ens1f0np0, disabling it". Without "definitely" it waits for the link first.
func bonded(text, low string) (schemas.Event, bool) {
	down, up := strings.Contains(low, "link status definitely down"), strings.Contains(low, "link status definitely up")
	if !down && !up {
		return schemas.Event{}, false
	}
	port := between(text, "(slave ", ")")
	if port == "" {
		port = strings.TrimRight(firstWord(between(text, "for interface ", ",")), ".")
	}
	ev, ok := link(text, down)
	ev.SetAttr("port", port)
	bond, _, _ := strings.Cut(strings.TrimPrefix(text, "bonding: "), ":")
	ev.SetAttr("bond", bond)
	return ev, ok
}

func link(text string, down bool) (schemas.Event, bool) {
	s, state := schemas.SeverityInfo, schemas.StateCleared
	if down {
		s, state = schemas.SeverityError, schemas.StateRaised
	}
	ev, ok := event(schemas.EventNICDown, "link", s, "port", netName(text), "pci", address(text))
	ev.State = state
	return ev, ok
}

// netName returns the interface's name, the word before ": Link" or ": NIC".
func netName(text string) string {
	for _, end := range []string{": Link", ": link", ": NIC", ": TX", " NIC Link"} {
		if i := strings.Index(text, end); i > 0 {
			name := text[strings.LastIndexByte(text[:i], ' ')+1 : i]
			if PCI(name) == "" {
				return name
			}
		}
	}
	return ""
}

package kernlog

import (
	"strconv"
	"strings"
	"time"

	"auspex/schemas"
	"auspex/schemas/faults"
)

// fabricError reads fabric manager's report of an NVSwitch error: "detected
// NVSwitch fatal error 20034 on fid 0 on NVSwitch pci bus id 00000000:86:00.0
// physical id 3 port 33".
func fabricError(text string) (schemas.Event, bool) {
	nonFatal := strings.Contains(text, "NVSwitch non-fatal error")
	fatal := !nonFatal && strings.Contains(text, "NVSwitch fatal error")
	code, err := strconv.Atoi(digitsOf(between(text, "fatal error ", " ")))
	if err != nil {
		return schemas.Event{}, false
	}
	severity, action := faults.SXIDSeverity(code, fatal, nonFatal)
	ev, ok := event(schemas.EventNVSwitchSXid, strconv.Itoa(code), severity,
		"pci", PCI(firstWord(between(text, "pci bus id ", " "))), "nvswitch", digitsOf(between(text, "physical id ", " ")),
		"link", digitsOf(between(text, " port ", " ")), "fatal", strconv.FormatBool(fatal), "action", action)
	if e := faults.SXID(code); e.Known {
		ev.SetAttr("mnemonic", e.Mnemonic)
	}
	return ev, ok
}

// FabricManager parses a line of /var/log/fabricmanager.log, such as
// "[Jul 23 2024 07:53:55] [ERROR] [tid 841] detected NVSwitch fatal error …", whose times
// are those of the host's zone. A line without a time gives the zero time.
func (p *Parser) FabricManager(line string, zone *time.Location) (ev schemas.Event, t time.Time, ok bool) {
	level, text, t := serviceLine(line, zone)
	if ev, ok = p.match("nvidia-fabricmanager", text); !ok {
		low := strings.ToLower(text)
		switch {
		case level != "ERROR" && level != "CRITICAL" && level != "FATAL":
			return schemas.Event{}, t, false
		case strings.Contains(low, "aborting fabric manager"), strings.Contains(low, "fabric manager") &&
			(strings.Contains(low, "exit") || strings.Contains(low, "terminat")),
			strings.Contains(low, "failed to initialize"), strings.Contains(low, "failed to start"):
			ev, _ = event(schemas.EventServiceFailed, "nvidia-fabricmanager", schemas.SeverityError, "action", "RESTART_FM")
		default:
			return schemas.Event{}, t, false
		}
	}
	ev.Source, ev.Message = schemas.SourceKmsg, line
	if ev.Attr("action") == "" {
		ev.SetAttr("action", defaultAction(&ev))
	}
	return ev, t, true
}

func fabricTime(s string, zone *time.Location) (time.Time, error) {
	var err error
	for _, layout := range []string{"Jan 02 2006 15:04:05", "Jan _2 2006 15:04:05", "Jan 02 2006 15:04:05.000", time.RFC3339Nano} {
		var t time.Time
		if t, err = time.ParseInLocation(layout, s, zone); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, err
}

package sel

import (
	"fmt"
	"strings"

	"auspex/schemas/faults"
)

// Sensor types whose events say more in event data 2 and 3 (table 42-3).
const (
	typeSupply    = 0x08
	typeBoot      = 0x1d
	typeSlot      = 0x21
	typeWatchdog2 = 0x23
	typeHealth    = 0x28
	typeSession   = 0x2a
	typeVersion   = 0x2b
	typeFRU       = 0x2c
)

// How event data 2 and 3 are used (table 29-6): bits 7:6 and 5:4 of event data 1.
const (
	used2    = 0xc0
	used3    = 0x30
	special2 = 0xc0 // an extension that the sensor's type defines
	special3 = 0x30
)

// detail is what event data 2 and 3 add in words, or "" where the type defines nothing or the record has nothing.
func (r *Record) detail() string {
	if r.EventType != faults.SELSensorSpecific {
		return ""
	}
	two, three := r.Data[0]&used2 == special2, r.Data[0]&used3 == special3
	d2, d3 := int(r.Data[1]), int(r.Data[2])
	var out []string
	add := func(text string) {
		if text != "" {
			out = append(out, text)
		}
	}
	switch r.SensorType {
	case typeFirmware:
		if two && r.Offset() == 0 {
			add(at(firmwareErrors, d2))
		} else if two && r.Offset() <= 2 {
			add(at(firmwareSteps, d2))
		}
	case typeSupply:
		if three && r.Offset() == 6 {
			add(at(supplyErrors, d3&0x0f))
		}
	case typeBoot:
		if two && r.Offset() == 7 {
			add(at(restartCauses, d2&0x0f))
		}
	case typeSlot:
		if two {
			add(at(slots, d2&0x7f))
		}
		if three {
			add(fmt.Sprintf("slot %d", d3))
		}
	case typeWatchdog2:
		if two {
			add(at(timerUses, d2&0x0f))
			add(at(timerInterrupts, d2>>4))
		}
	case typeHealth:
		if two && r.Offset() == 4 {
			add(fmt.Sprintf("sensor 0x%02x", d2))
		}
	case typeSession:
		if two && d2&0x3f != 0 {
			add(fmt.Sprintf("user %d", d2&0x3f))
		}
		if three {
			add(fmt.Sprintf("channel %d", d3&0x0f))
			if r.Offset() == 1 {
				add(at(sessionEnds, d3>>4&3))
			}
		}
	case typeVersion:
		if two {
			add(at(versions, d2))
		}
	case typeFRU:
		if two {
			add(at(stateCauses, d2>>4))
		}
	}
	return strings.Join(out, ", ")
}

func at(words []string, i int) string {
	if i < len(words) {
		return words[i]
	}
	return ""
}

// The codes of table 42-3; one without a word is reserved or says nothing.
var (
	firmwareErrors = []string{
		"", "no memory is installed", "no usable memory", "hard disk failure", "system board failure", "diskette failure",
		"hard disk controller failure", "keyboard failure", "removable boot medium not found", "video controller failure",
		"no video device", "firmware ROM is corrupt", "CPU voltages do not match", "CPU speeds do not match",
	}
	firmwareSteps = []string{
		"", "memory initialization", "hard disk initialization", "initialization of further processors", "user authentication", "setup by the user",
		"USB resources", "PCI resources", "option ROM initialization", "video initialization", "cache initialization",
		"SM bus initialization", "keyboard controller initialization", "management controller initialization", "docking station attached",
		"docking station is enabled", "docking station ejected", "docking station is disabled", "wake-up of the operating system",
		"start of the operating system", "board initialization", "", "floppy initialization", "keyboard test", "pointing device test",
		"initialization of the first processor",
	}
	supplyErrors  = []string{"vendors do not match", "revisions do not match", "processor is missing", "power ratings do not match", "voltage ratings do not match"}
	restartCauses = []string{
		"cause unknown", "chassis control command", "reset button", "power button", "watchdog", "OEM cause", "power is always restored",
		"previous power state is restored", "reset by an event filter", "power cycle by an event filter", "soft reset", "wake-up by the clock",
	}
	slots = []string{
		"PCI", "drive array", "external peripheral", "docking", "other internal slot", "slot of the sensor's entity", "AdvancedTCA",
		"memory", "fan", "PCI Express", "SCSI", "SATA or SAS",
	}
	timerUses       = []string{"", "timer of FRB2", "timer of BIOS or POST", "timer of the start of the system", "timer of the running system", "timer of the OEM"}
	timerInterrupts = []string{"no interrupt", "SMI", "NMI", "messaging interrupt"}
	sessionEnds     = []string{"", "closed by command", "timed out", "configuration changed"}
	versions        = []string{
		"", "device id of the controller", "firmware revision of the controller", "device revision of the controller",
		"manufacturer id of the controller", "IPMI version of the controller", "auxiliary firmware of the controller",
		"boot block of the controller", "other firmware of the controller", "system firmware", "SMBIOS", "operating system", "loader of the operating system",
		"service partition", "management agent", "management application", "management middleware", "programmable hardware",
		"module", "component", "replaced by an equal version", "replaced by a newer version", "replaced by an older version", "hardware configuration",
	}
	stateCauses = []string{
		"", "commanded by software", "handle latch", "hot-swap button", "its own doing", "communication lost",
		"communication lost by a local failure", "taken out unexpectedly", "by an operator", "IPMB address unknown", "deactivated unexpectedly",
	}
)

// makers are manufacturers by their number (IANA Private Enterprise Numbers).
var makers = map[uint32]string{
	2: "IBM", 11: "Hewlett-Packard", 343: "Intel", 674: "Dell", 2011: "Huawei", 2623: "ASUSTeK", 5703: "NVIDIA", 7244: "Quanta",
	10368: "Fujitsu", 10876: "Supermicro", 15370: "Gigabyte", 19046: "Lenovo", 37945: "Inspur", 47196: "Hewlett Packard Enterprise", 47488: "Supermicro",
}

// Maker is the manufacturer that a vendor's record with a stamp names (table 32-2), and its name, "" where it is not
// known; ok is false for other records.
func (r *Record) Maker() (number uint32, name string, ok bool) {
	if r.Type < 0xc0 || r.Type >= 0xe0 || len(r.OEM) < 3 {
		return 0, "", false
	}
	const bits = 0xfffff // 20 of 24 are the number
	number = (uint32(r.OEM[0]) | uint32(r.OEM[1])<<8 | uint32(r.OEM[2])<<16) & bits
	return number, makers[number], true
}

package sel

import (
	"fmt"
	"strings"

	"auspex/schemas/faults"
)

// Makers whose use of event data is described in public (ipmitool 1.8.19, lib/ipmi_sel.c, which Dell and Supermicro
// have written their parts of; FreeIPMI 1.6, libfreeipmi, for Hewlett-Packard's ProLiant). Of others, such as Lenovo, and
// of what those do not say, the bytes stay as they are.
const (
	makerHP          = 11
	makerDell        = 674
	makerSupermicro  = 10876
	makerSupermicro2 = 47488

	typeInterrupt       = 0x13
	typeDellNonFatal    = 0xc2
	typeDellFatal       = 0xc3
	typeSupermicroReset = 0xd0
	typeHPLight         = 0xc0

	eventHPLocator = 0x70
	eventHPHealth  = 0x71
)

// oemCode marks event data 2 or 3 as the vendor's own (table 29-6).
const (
	oemCode2 = 0x80
	oemCode3 = 0x20
)

// vendor is what event data 2 and 3 mean to the maker of the controller, "" where nobody says.
func (r *Record) vendor() string {
	if r.Manufacturer == makerHP && r.SensorType == typeHPLight {
		switch r.EventType {
		case eventHPLocator:
			return at([]string{"the locator light is on", "the locator light is off", "the locator light blinks"}, int(r.Offset()))
		case eventHPHealth:
			return at([]string{"the health light is green", "the health light is amber", "the health light is red"}, int(r.Offset()))
		}
	}
	if r.EventType != faults.SELSensorSpecific {
		return ""
	}
	two, three := r.Data[0]&used2 == oemCode2, r.Data[0]&used3 == oemCode3
	switch r.Manufacturer {
	case makerDell:
		switch {
		case r.SensorType == typeMemory && two && three && r.Offset() <= 1:
			return dellModules(r.Data[1], r.Data[2])
		case (r.SensorType == typeInterrupt || r.SensorType == typeDellNonFatal || r.SensorType == typeDellFatal) && two && three:
			if slot := r.Data[2]; slot&0x80 != 0 {
				return fmt.Sprintf("slot %d", slot&0x7f)
			}
			return fmt.Sprintf("PCI %02x:%02x.%x", r.Data[2]&0x7f, r.Data[1]>>3, r.Data[1]&7)
		}
	case makerSupermicro, makerSupermicro2:
		if r.SensorType == typeSupermicroReset && r.Data[0] == 0x80 && r.Data[2] == 0xff {
			return at([]string{"the controller was reset unexpectedly", "cold reset of the controller", "warm reset of the controller"}, int(r.Data[1]))
		}
	}
	return ""
}

// dellModules names the modules of a mask: event data 2 has how many there are to a processor, or a card, and which
// eight the mask is of.
func dellModules(layout, mask byte) string {
	var out []string
	first := 0
	if low := int(layout & 0x0f); low != 0x0f {
		first = low * 8
	}
	high := int(layout >> 4)
	each := at8(high)
	for i := range 8 {
		if mask&(1<<i) == 0 {
			continue
		}
		n := first + i
		if each > 0 {
			out = append(out, fmt.Sprintf("DIMM %c%d", 'A'+n/each, n%each+1))
		} else {
			out = append(out, fmt.Sprintf("DIMM %d", n+1))
		}
	}
	if high < 8 && len(out) > 0 {
		return fmt.Sprintf("card %c, ", 'A'+high) + strings.Join(out, ", ")
	}
	return strings.Join(out, ", ")
}

// at8 is how many modules a processor has; 0 where they are not counted by processors.
func at8(code int) int {
	if code < 8 || code > 14 {
		return 0
	}
	return [...]int{4, 6, 8, 9, 12, 24, 3}[code-8]
}

package fleet

import (
	"fmt"

	"auspex/internal/sim/device"
	"auspex/schemas"
)

// A record is an entry of the event log and the type of event that it means.
type record struct {
	device.LogRecord
	typ string
}

// Sensor types and event types of IPMI 2.0, tables 42-1 to 42-3.
const (
	typeTemperature = 0x01
	typeFan         = 0x04
	typeProcessor   = 0x07
	typePSU         = 0x08
	typePowerUnit   = 0x09
	typeMemory      = 0x0c
	typeCritical    = 0x13
	typeOSStop      = 0x20

	readThreshold  = 0x01
	readRedundancy = 0x0b
	readSpecific   = 0x6f
	deassert       = 0x80
)

// discrete makes a record of a sensor-specific state.
func discrete(typ, number, reading, offset byte, on bool) device.LogRecord {
	r := device.LogRecord{SensorType: typ, SensorNumber: number, EventType: reading, Data: [3]byte{offset, 0xff, 0xff}}
	if !on {
		r.EventType |= deassert
	}
	return r
}

// threshold makes a record of a threshold with reading and limit in its data.
func threshold(typ, number, offset, reading, limit byte, on bool) device.LogRecord {
	r := device.LogRecord{SensorType: typ, SensorNumber: number, EventType: readThreshold, Data: [3]byte{0x50 | offset, reading, limit}}
	if !on {
		r.EventType |= deassert
	}
	return r
}

func (r record) describe(part, typ, severity, messageID, message string, args ...string) record {
	r.Part, r.typ, r.Severity, r.MessageID, r.Message, r.Args = part, typ, severity, messageID, message, args
	return r
}

func recInput(i int, lost bool) record {
	part := fmt.Sprintf("psu%d", i)
	r := record{LogRecord: discrete(typePSU, byte(numPSUState+i), readSpecific, 3, lost)}
	if lost {
		return r.describe(
			part, schemas.EventPSUInputLost, "Critical", "Power.1.0.PowerSupplyInputLost",
			fmt.Sprintf("Power supply 'PSU%d' has lost its input power.", i), fmt.Sprintf("PSU%d", i),
		)
	}
	return r.describe(
		part, schemas.EventPSUInputLost, "OK", "Power.1.0.PowerSupplyInputRestored",
		fmt.Sprintf("Input power of power supply 'PSU%d' is back.", i), fmt.Sprintf("PSU%d", i),
	)
}

func recPSUFailed(i int, failed bool) record {
	part := fmt.Sprintf("psu%d", i)
	r := record{LogRecord: discrete(typePSU, byte(numPSUState+i), readSpecific, 1, failed)}
	if failed {
		return r.describe(
			part, schemas.EventPSUFailure, "Critical", "Power.1.0.PowerSupplyFailed", fmt.Sprintf("Power supply 'PSU%d' has failed.", i),
			fmt.Sprintf("PSU%d", i),
		)
	}
	return r.describe(
		part, schemas.EventPSUFailure, "OK", "Power.1.0.PowerSupplyRestored", fmt.Sprintf("Power supply 'PSU%d' works again.", i),
		fmt.Sprintf("PSU%d", i),
	)
}

func recRedundancy(lost bool) record {
	r := record{LogRecord: discrete(typePowerUnit, numUnit, readRedundancy, 1, lost)}
	if lost {
		return r.describe(
			"", schemas.EventBMCSEL, "Warning", "Redundancy.1.0.RedundancyLost", "Redundancy of 'Power Supplies' is lost.", "Power Supplies",
		)
	}
	return r.describe(
		"", schemas.EventBMCSEL, "OK", "Redundancy.1.0.RedundancyRestored", "Redundancy of 'Power Supplies' is restored.", "Power Supplies",
	)
}

func recThrottled(on bool) record {
	r := record{LogRecord: discrete(typeProcessor, numTotal, readSpecific, 0x0a, on)}
	if on {
		return r.describe("", schemas.EventBMCSEL, "Warning", "Platform.1.0.PowerBrakeAsserted", "The power brake holds the accelerators back.")
	}
	return r.describe("", schemas.EventBMCSEL, "OK", "Platform.1.0.PowerBrakeReleased", "The power brake is released.")
}

func recFanLow(i int, rpm float64, on bool) record {
	part, name := fmt.Sprintf("fan%d", i+1), fmt.Sprintf("FAN%d", i+1)
	r := record{LogRecord: threshold(typeFan, byte(numFan+i), 2, byte(rpm/80), byte(fanLowRPM/80), on)}
	if on {
		return r.describe(part, schemas.EventFanFailure, "Critical", "Environmental.1.0.FanSpeedCritical",
			fmt.Sprintf("Speed of fan '%s' is %.0f RPM, below the lower critical threshold of %.0f RPM.", name, rpm, fanLowRPM), name, fmt.Sprintf("%.0f", rpm), fmt.Sprintf("%.0f", fanLowRPM))
	}
	return r.describe(
		part, schemas.EventFanFailure, "OK", "Environmental.1.0.FanRestored", fmt.Sprintf("Speed of fan '%s' is in its normal range.", name),
		name,
	)
}

func recInletHigh(celsius float64, on bool) record {
	r := record{LogRecord: threshold(typeTemperature, numInlet, 7, byte(celsius*2), byte(inletHighC*2), on)}
	if on {
		return r.describe("", schemas.EventTempInletHigh, "Warning", "Environmental.1.0.InletTemperatureHigh",
			fmt.Sprintf("Temperature 'Inlet Temp' is %.0f degrees Celsius, above the upper caution threshold of %.0f.", celsius, inletHighC), "Inlet Temp", fmt.Sprintf("%.0f", celsius), fmt.Sprintf("%.0f", inletHighC))
	}
	return r.describe(
		"", schemas.EventTempInletHigh, "OK", "Environmental.1.0.InletTemperatureNormal", "Temperature 'Inlet Temp' is in its normal range.",
		"Inlet Temp",
	)
}

func recPowerOff(off bool) record {
	r := record{LogRecord: discrete(typePowerUnit, numUnit, readSpecific, 0, off)}
	if off {
		return r.describe("", schemas.EventBMCSEL, "OK", "ResourceEvent.1.3.ResourcePoweredOff", "The resource 'System' is powered off.", "System")
	}
	return r.describe("", schemas.EventBMCSEL, "OK", "ResourceEvent.1.3.ResourcePoweredOn", "The resource 'System' is powered on.", "System")
}

func recOSStop() record {
	r := record{LogRecord: discrete(typeOSStop, numEventLog, readSpecific, 1, true)}
	return r.describe(
		"", schemas.EventHostPanic, "Critical", "Platform.1.0.OperatingSystemCrash", "The operating system stopped: run-time critical stop.",
	)
}

func recGPULost(i int) record {
	r := record{LogRecord: discrete(typeCritical, byte(numGPUTemp+i), readSpecific, 0x0a, true)}
	return r.describe(fmt.Sprintf("gpu%d", i), schemas.EventBMCSEL, "Critical", "Platform.1.0.PCIeFatalError",
		fmt.Sprintf("Fatal PCI Express error on accelerator 'GPU%d'.", i), fmt.Sprintf("GPU%d", i))
}

func recMemory(i int, uncorrectable bool) record {
	part := fmt.Sprintf("dimm%d", i)
	if uncorrectable {
		r := record{LogRecord: discrete(typeMemory, byte(numDIMM), readSpecific, 1, true)}
		r.module(i)
		return r.describe(
			part, schemas.EventDIMMECCUE, "Critical", "Memory.1.0.MemoryECCUncorrectableError",
			fmt.Sprintf("Uncorrectable ECC error in 'DIMM%d'.", i), fmt.Sprintf("DIMM%d", i),
		)
	}
	r := record{LogRecord: discrete(typeMemory, byte(numDIMM), readSpecific, 0, true)}
	r.module(i)
	return r.describe(
		part, schemas.EventDIMMECCCE, "Warning", "Memory.1.0.MemoryECCCorrectableError",
		fmt.Sprintf("Correctable ECC errors in 'DIMM%d' reached the limit.", i), fmt.Sprintf("DIMM%d", i),
	)
}

// module names the memory module in event data 3, and says so in event data 1
// (IPMI 2.0, tables 29-6 and 42-3, sensor type 0Ch).
func (r *record) module(i int) {
	r.Data[0] |= 0x20
	r.Data[2] = byte(i)
}

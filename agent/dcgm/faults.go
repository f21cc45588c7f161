package dcgm

import (
	"strconv"

	"auspex/schemas"
	"auspex/schemas/faults"
)

// meaning is what an error code of DCGM's health watches (dcgm_errors.h, dcgmError_t) is among the types of events.
type meaning struct {
	name   string // of the code, without DCGM_FR_
	typ    string
	action string
	// theirs says that NVML or the kernel's log has the fault, and tells it at once: it is shown, and no second event.
	theirs bool
	// benign is what a GPU under load does, and no fault by itself.
	benign bool
}

var meanings = map[uint]meaning{
	3:   {name: "PCI_REPLAY_RATE", typ: schemas.EventGPUPCIeReplay, action: faults.ActionCheckMechanicals},
	4:   {name: "VOLATILE_DBE_DETECTED", typ: schemas.EventGPUECCUE, theirs: true},
	5:   {name: "VOLATILE_SBE_DETECTED", typ: schemas.EventGPUECCCERate, action: faults.ActionIgnore},
	6:   {name: "PENDING_PAGE_RETIREMENTS", typ: schemas.EventGPURowRemap, action: faults.ActionResetGPU},
	7:   {name: "RETIRED_PAGES_LIMIT", typ: schemas.EventGPURowRemap, action: faults.ActionContactSupport},
	8:   {name: "RETIRED_PAGES_DBE_LIMIT", typ: schemas.EventGPURowRemap, action: faults.ActionContactSupport},
	9:   {name: "CORRUPT_INFOROM"},
	10:  {name: "CLOCKS_EVENT_THERMAL", typ: schemas.EventGPUThermal, action: faults.ActionCheckMechanicals},
	11:  {name: "POWER_UNREADABLE"},
	12:  {name: "CLOCKS_EVENT_POWER", typ: schemas.EventGPUPower, action: faults.ActionIgnore, benign: true},
	13:  {name: "NVLINK_ERROR_THRESHOLD", typ: schemas.EventGPUNVLinkErrors, action: faults.ActionResetGPU},
	14:  {name: "NVLINK_DOWN", typ: schemas.EventGPUNVLinkErrors, action: faults.ActionResetGPU},
	15:  {name: "NVSWITCH_FATAL_ERROR"},
	16:  {name: "NVSWITCH_NON_FATAL_ERROR"},
	40:  {name: "THERMAL_VIOLATIONS", typ: schemas.EventGPUThermal, action: faults.ActionCheckMechanicals},
	41:  {name: "THERMAL_VIOLATIONS_TS", typ: schemas.EventGPUThermal, action: faults.ActionCheckMechanicals},
	42:  {name: "TEMP_VIOLATION", typ: schemas.EventGPUThermal, action: faults.ActionCheckMechanicals},
	70:  {name: "NVLINK_CRC_ERROR_THRESHOLD", typ: schemas.EventGPUNVLinkErrors, action: faults.ActionResetGPU},
	71:  {name: "NVLINK_ERROR_CRITICAL", typ: schemas.EventGPUNVLinkErrors, action: faults.ActionResetGPU},
	80:  {name: "ROW_REMAP_FAILURE", typ: schemas.EventGPURowRemap, action: faults.ActionContactSupport},
	81:  {name: "UNCONTAINED_ERROR", typ: schemas.EventGPUECCUE, theirs: true}, // XID 95
	83:  {name: "DBE_PENDING_PAGE_RETIREMENTS", typ: schemas.EventGPURowRemap, action: faults.ActionResetGPU},
	84:  {name: "UNCORRECTABLE_ROW_REMAP", typ: schemas.EventGPURowRemap, action: faults.ActionContactSupport},
	85:  {name: "PENDING_ROW_REMAP", typ: schemas.EventGPURowRemap, theirs: true},
	88:  {name: "NVSWITCH_NVLINK_DOWN", typ: schemas.EventGPUNVLinkErrors, action: faults.ActionResetGPU},
	99:  {name: "GPU_EXPECTED_NVLINKS_UP", typ: schemas.EventGPUNVLinkErrors, action: faults.ActionResetGPU},
	101: {name: "XID_ERROR", typ: schemas.EventGPUXID, theirs: true},
	109: {name: "SXID_ERROR"},
	118: {name: "SRAM_THRESHOLD", typ: schemas.EventGPUECCUE, action: faults.ActionContactSupport},
	119: {name: "NVLINK_EFFECTIVE_BER_THRESHOLD", typ: schemas.EventGPUNVLinkErrors, action: faults.ActionResetGPU},
	120: {name: "FALLEN_OFF_BUS", typ: schemas.EventGPUMissing, theirs: true},
	121: {name: "NVLINK_SYMBOL_BER_THRESHOLD", typ: schemas.EventGPUNVLinkErrors, action: faults.ActionResetGPU},
	122: {name: "IMEX_UNHEALTHY"},
	123: {name: "FABRIC_PROBE_STATE", typ: schemas.EventGPUFabric, action: faults.ActionResetGPU},
	125: {name: "GPU_RECOVERY_RESET", action: faults.ActionResetGPU},
	126: {name: "GPU_RECOVERY_REBOOT", action: faults.ActionRestartHost},
	127: {name: "GPU_RECOVERY_DRAIN_P2P", action: faults.ActionRestartApp},
	128: {name: "GPU_RECOVERY_DRAIN_RESET", action: faults.ActionResetGPU},
	131: {name: "CONTAINED_ERROR", typ: schemas.EventGPUECCUE, theirs: true}, // XID 94
	132: {name: "UNCORRECTABLE_ROW_REMAP_LIMIT", typ: schemas.EventGPURowRemap, action: faults.ActionContactSupport},
}

// meaningOf returns what a code means; one that is none of the types in use is told as it is.
func meaningOf(code uint) meaning {
	m, ok := meanings[code]
	if !ok {
		m.name = strconv.FormatUint(uint64(code), 10)
	}
	if m.typ == "" {
		m.typ = schemas.EventGPUHealth
	}
	if m.action == "" {
		m.action = faults.ActionContactSupport
	}
	return m
}

// severity is that of an event of a type.
func (m *meaning) severity(failed bool) schemas.Severity {
	switch {
	case m.benign:
		return schemas.SeverityInfo
	case m.typ == schemas.EventGPUECCUE:
		return schemas.SeverityCritical
	case failed:
		return schemas.SeverityError
	}
	return schemas.SeverityWarning
}

// field is a profiling field of DCGM (dcgm_fields.h, DCGM_FI_PROF), and its leaf below a GPU.
type field struct {
	id   uint16
	leaf string
}

// fields are those that are read. Which metric each is, auspex-gpu.yang says.
var fields = []field{
	{1001, "graphics-active"},
	{1002, "sm-active"},
	{1003, "sm-occupancy"},
	{1004, "tensor-active"},
	{1005, "dram-active"},
	{1006, "fp64-active"},
	{1007, "fp32-active"},
	{1008, "fp16-active"},
	{1009, "pcie-sent-rate"},
	{1010, "pcie-received-rate"},
	{1011, "nvlink-sent-rate"},
	{1012, "nvlink-received-rate"},
}

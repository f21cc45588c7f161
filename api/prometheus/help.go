package prometheus

import (
	"slices"
	"strings"

	"auspex/schemas"
)

// Metadata says what one metric is, as the route metadata answers it.
type Metadata struct {
	Type string `json:"type"` // gauge or counter
	Help string `json:"help"`
	Unit string `json:"unit"` // as names end with it; may be empty
}

// described are metrics whose names do not say what they are. Those of GPUs are
// fields of DCGM (dcgm_fields.h), as dcgm-exporter names them.
var described = map[string]Metadata{
	"ALERTS":           {Help: "1 for each alert of a rule that is pending or fires (alertstate)."},
	"ALERTS_FOR_STATE": {Help: "When an alert became active.", Unit: "seconds"},
	"up":               {Help: "1 while a collector (job) brings samples of a device (instance), 0 after they have stopped."},

	"DCGM_FI_DEV_SM_CLOCK":                          {Help: "Clock of the streaming multiprocessors.", Unit: "megahertz"},
	"DCGM_FI_DEV_MEM_CLOCK":                         {Help: "Clock of the GPU's memory.", Unit: "megahertz"},
	"DCGM_FI_DEV_MEMORY_TEMP":                       {Help: "Temperature of the GPU's memory.", Unit: "celsius"},
	"DCGM_FI_DEV_GPU_TEMP":                          {Help: "Temperature of the GPU.", Unit: "celsius"},
	"DCGM_FI_DEV_POWER_USAGE":                       {Help: "Power that the GPU draws.", Unit: "watts"},
	"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION":          {Help: "Energy since the driver was loaded.", Unit: "millijoules"},
	"DCGM_FI_DEV_PCIE_REPLAY_COUNTER":               {Help: "PCIe packets that were sent again."},
	"DCGM_FI_DEV_GPU_UTIL":                          {Help: "Share of the time in which a kernel ran.", Unit: "percent"},
	"DCGM_FI_DEV_MEM_COPY_UTIL":                     {Help: "Share of the time in which memory was read or written.", Unit: "percent"},
	"DCGM_FI_DEV_ENC_UTIL":                          {Help: "Use of the video encoder.", Unit: "percent"},
	"DCGM_FI_DEV_DEC_UTIL":                          {Help: "Use of the video decoder.", Unit: "percent"},
	"DCGM_FI_DEV_XID_ERRORS":                        {Help: "Code of the last XID error; 0 is none."},
	"DCGM_FI_DEV_FB_FREE":                           {Help: "Free frame buffer.", Unit: "mebibytes"},
	"DCGM_FI_DEV_FB_USED":                           {Help: "Used frame buffer.", Unit: "mebibytes"},
	"DCGM_FI_DEV_FB_RESERVED":                       {Help: "Reserved frame buffer.", Unit: "mebibytes"},
	"DCGM_FI_DEV_ECC_SBE_VOL_TOTAL":                 {Help: "Corrected memory errors since the driver was loaded."},
	"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL":                 {Help: "Uncorrectable memory errors since the driver was loaded."},
	"DCGM_FI_DEV_ECC_SBE_AGG_TOTAL":                 {Help: "Corrected memory errors over the GPU's life."},
	"DCGM_FI_DEV_ECC_DBE_AGG_TOTAL":                 {Help: "Uncorrectable memory errors over the GPU's life."},
	"DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS":         {Help: "Memory rows that were remapped after corrected errors."},
	"DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS":       {Help: "Memory rows that were remapped after uncorrectable errors."},
	"DCGM_FI_DEV_ROW_REMAP_FAILURE":                 {Help: "1 after a row could not be remapped."},
	"DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL":            {Help: "Traffic over all NVLinks."},
	"DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": {Help: "NVLink flits whose checksum was wrong, over all lanes."},
	"DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL":   {Help: "NVLink packets that were sent again, over all lanes."},
	"DCGM_FI_DEV_CLOCKS_EVENT_REASONS":              {Help: "Why the clocks are held back, as bits."},
	"DCGM_FI_DEV_THERMAL_VIOLATION":                 {Help: "Time in which the clocks were held back by heat.", Unit: "microseconds"},
	"DCGM_FI_DEV_POWER_VIOLATION":                   {Help: "Time in which the clocks were held back by the power limit.", Unit: "microseconds"},
	"DCGM_FI_DEV_FABRIC_MANAGER_STATUS":             {Help: "Registration in the NVLink fabric: 0 not supported, 1 not begun, 2 under way, 3 registered, 4 failed."},
	"DCGM_FI_DEV_FABRIC_MANAGER_ERROR":              {Help: "Error of NVML with which the registration in the NVLink fabric ended; 0 is none."},
	"DCGM_FI_DEV_FABRIC_CLIQUE_ID":                  {Help: "Clique of the NVLink fabric that the GPU is in."},
	"DCGM_FI_DEV_FABRIC_HEALTH_SUMMARY":             {Help: "Health in the NVLink fabric: 1 is well, 2 is not, 3 is of limited capacity."},
	"DCGM_FI_DEV_FABRIC_HEALTH_MASK":                {Help: "Health in the NVLink fabric, as bits."},
	"DCGM_FI_PROF_GR_ENGINE_ACTIVE":                 {Help: "Share of the time in which the graphics or compute engine was active.", Unit: "ratio"},
	"DCGM_FI_PROF_SM_ACTIVE":                        {Help: "Share of the cycles in which a multiprocessor had a warp, over all of them.", Unit: "ratio"},
	"DCGM_FI_PROF_DRAM_ACTIVE":                      {Help: "Share of the cycles in which the memory sent or received.", Unit: "ratio"},
	"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE":               {Help: "Share of the cycles in which the tensor pipe was active.", Unit: "ratio"},
	"DCGM_FI_PROF_PCIE_TX_BYTES":                    {Help: "Bytes sent over PCIe.", Unit: "bytes"},
	"DCGM_FI_PROF_PCIE_RX_BYTES":                    {Help: "Bytes received over PCIe.", Unit: "bytes"},
}

// units are the base units of names (formats, section 8) and how a sentence says them.
var units = map[string]string{
	"celsius": "in °C", "rpm": "in turns a minute", "ratio": "from 0 to 1", "watts": "in watts", "volts": "in volts", "amperes": "in amperes",
	"dbm":    "in dBm",
	"joules": "in joules", "hertz": "in hertz", "pascals": "in pascals", "seconds": "in seconds", "bytes": "in bytes", "percent": "in percent",
}

// words are parts of names that are written otherwise in a sentence.
var words = map[string]string{
	"ecc": "ECC", "pcie": "PCIe", "bgp": "BGP", "fec": "FEC", "ber": "bit error rate", "rx": "received", "tx": "sent", "bmc": "BMC",
	"pfc": "PFC",
	"cpu": "CPU", "gpu": "GPU", "dimm": "DIMM", "psu": "PSU", "nic": "NIC", "pdu": "PDU", "crac": "CRAC", "nvlink": "NVLink",
	"nvswitch": "NVSwitch", "crc": "CRC",
}

// Describe says what a metric is. The names of our own say it: kind, quantity,
// unit (formats, section 8).
func Describe(name string) Metadata {
	m := described[name]
	m.Type = "gauge"
	if isCounter(name) {
		m.Type = "counter"
	}
	if m.Help != "" {
		return m
	}
	rest, ours := strings.CutPrefix(name, "auspex_")
	if !ours {
		if strings.HasPrefix(name, "DCGM_FI_") {
			m.Help = "Field " + name + " of DCGM (dcgm_fields.h)."
		} else {
			m.Help = "Result of a rule, or a reading that keeps the name of its source."
		}
		return m
	}
	rest, bound := strings.CutSuffix(rest, "_threshold")
	rest, counts := strings.CutSuffix(rest, "_total")
	parts := strings.Split(rest, "_")
	kind, parts := parts[0], parts[1:]
	if k := len(parts) - 1; k >= 0 && units[parts[k]] != "" {
		m.Unit, parts = parts[k], parts[:k]
	}
	for i, p := range parts {
		if w := words[p]; w != "" {
			parts[i] = w
		}
	}
	what := strings.Join(parts, " ")
	if what == "" {
		what = "reading"
	}
	of := kind
	if w := words[kind]; w != "" {
		of = w
	}
	text := strings.ToUpper(what[:1]) + what[1:] + " of a " + of
	if bound {
		text = "Bound (label bound) that the device gives for: " + what + " of a " + of
	} else if counts {
		text += ", counted since the device began"
	}
	if m.Unit != "" {
		text += ", " + units[m.Unit]
	}
	m.Help = text + "."
	return m
}

// isCounter tells counters: those of GPU scrapes by a list, others by their names.
func isCounter(name string) bool {
	if i := slices.IndexFunc(schemas.GPUMetrics, func(m schemas.GPUMetric) bool { return m.Name == name }); i >= 0 {
		return schemas.GPUMetrics[i].Counter
	}
	return strings.HasSuffix(name, "_total")
}

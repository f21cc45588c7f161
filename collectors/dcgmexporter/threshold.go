package dcgmexporter

import "auspex/schemas"

// threshold says which bound of which metric a field holds. DCGM writes what a GPU does not
// have as a number beyond any that can be (dcgm_fields.h, DCGM_INT32_BLANK and above): a value
// has to be positive and less than below.
type threshold struct {
	metric string
	bound  schemas.Bound
	below  float64
}

const (
	hottest   = 250 // °C; no silicon works there
	strongest = 1e5 // W; a GPU has some thousand
)

// thresholds are the fields of DCGM (dcgm_fields.h) that bound others. Up to the highest
// operating temperature a GPU keeps its base clock; at slowdown its hardware lowers the
// clocks, at shutdown it switches itself off (NVML, nvmlTemperatureThresholds_t).
var thresholds = map[string]threshold{
	"DCGM_FI_DEV_GPU_MAX_OP_TEMP":  {"DCGM_FI_DEV_GPU_TEMP", schemas.UpperCaution, hottest},
	"DCGM_FI_DEV_SLOWDOWN_TEMP":    {"DCGM_FI_DEV_GPU_TEMP", schemas.UpperCritical, hottest},
	"DCGM_FI_DEV_SHUTDOWN_TEMP":    {"DCGM_FI_DEV_GPU_TEMP", schemas.UpperFatal, hottest},
	"DCGM_FI_DEV_MEM_MAX_OP_TEMP":  {"DCGM_FI_DEV_MEMORY_TEMP", schemas.UpperCaution, hottest},
	"DCGM_FI_DEV_POWER_MGMT_LIMIT": {"DCGM_FI_DEV_POWER_USAGE", schemas.RangeMax, strongest},
}

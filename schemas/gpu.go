package schemas

import "auspex/schemas/auspexv1"

// GPUMetric ties a metric of a GPU scrape to its names: that of dcgm-exporter,
// which is the series' name, and that of the column in the history.
type GPUMetric struct {
	Name    string // such as "DCGM_FI_DEV_GPU_TEMP"
	Column  string // such as "gpu_temp_celsius"
	Counter bool   // it only grows, until a reset
	// Get returns the metric's column of a batch, for reading and for appending.
	Get func(*auspexv1.GpuColumns) *[]float64
}

// Metrics of a GPU that tell how fast its own time passes: the energy is the power
// summed up since the driver was loaded.
const (
	GPUPower  = "DCGM_FI_DEV_POWER_USAGE"              // watts
	GPUEnergy = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION" // millijoules
)

// GPUMetrics lists the metrics of a GPU scrape in the order of the wire format.
// Names follow dcgm-exporter and the field identifiers of DCGM (dcgm_fields.h).
var GPUMetrics = []GPUMetric{
	{"DCGM_FI_DEV_SM_CLOCK", "sm_clock_mhz", false, func(g *auspexv1.GpuColumns) *[]float64 { return &g.SmClockMhz }},
	{"DCGM_FI_DEV_MEM_CLOCK", "mem_clock_mhz", false, func(g *auspexv1.GpuColumns) *[]float64 { return &g.MemClockMhz }},
	{"DCGM_FI_DEV_MEMORY_TEMP", "memory_temp_celsius", false, func(g *auspexv1.GpuColumns) *[]float64 { return &g.MemoryTempCelsius }},
	{"DCGM_FI_DEV_GPU_TEMP", "gpu_temp_celsius", false, func(g *auspexv1.GpuColumns) *[]float64 { return &g.GpuTempCelsius }},
	{GPUPower, "power_usage_watts", false, func(g *auspexv1.GpuColumns) *[]float64 { return &g.PowerUsageWatts }},
	{
		GPUEnergy, "total_energy_millijoules", true,
		func(g *auspexv1.GpuColumns) *[]float64 { return &g.TotalEnergyMillijoules },
	},
	{"DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "pcie_replay_total", true, func(g *auspexv1.GpuColumns) *[]float64 { return &g.PcieReplayTotal }},
	{"DCGM_FI_DEV_GPU_UTIL", "gpu_util_percent", false, func(g *auspexv1.GpuColumns) *[]float64 { return &g.GpuUtilPercent }},
	{"DCGM_FI_DEV_MEM_COPY_UTIL", "mem_copy_util_percent", false, func(g *auspexv1.GpuColumns) *[]float64 { return &g.MemCopyUtilPercent }},
	{"DCGM_FI_DEV_ENC_UTIL", "enc_util_percent", false, func(g *auspexv1.GpuColumns) *[]float64 { return &g.EncUtilPercent }},
	{"DCGM_FI_DEV_DEC_UTIL", "dec_util_percent", false, func(g *auspexv1.GpuColumns) *[]float64 { return &g.DecUtilPercent }},
	{"DCGM_FI_DEV_XID_ERRORS", "xid_last", false, func(g *auspexv1.GpuColumns) *[]float64 { return &g.XidLast }},
	{"DCGM_FI_DEV_FB_FREE", "fb_free_mib", false, func(g *auspexv1.GpuColumns) *[]float64 { return &g.FbFreeMib }},
	{"DCGM_FI_DEV_FB_USED", "fb_used_mib", false, func(g *auspexv1.GpuColumns) *[]float64 { return &g.FbUsedMib }},
	{"DCGM_FI_DEV_FB_RESERVED", "fb_reserved_mib", false, func(g *auspexv1.GpuColumns) *[]float64 { return &g.FbReservedMib }},
	{
		"DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "ecc_sbe_volatile_total", true,
		func(g *auspexv1.GpuColumns) *[]float64 { return &g.EccSbeVolatileTotal },
	},
	{
		"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "ecc_dbe_volatile_total", true,
		func(g *auspexv1.GpuColumns) *[]float64 { return &g.EccDbeVolatileTotal },
	},
	{
		"DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", "ecc_sbe_aggregate_total", true,
		func(g *auspexv1.GpuColumns) *[]float64 { return &g.EccSbeAggregateTotal },
	},
	{
		"DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", "ecc_dbe_aggregate_total", true,
		func(g *auspexv1.GpuColumns) *[]float64 { return &g.EccDbeAggregateTotal },
	},
	{
		"DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "correctable_remapped_rows", true,
		func(g *auspexv1.GpuColumns) *[]float64 { return &g.CorrectableRemappedRows },
	},
	{
		"DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "uncorrectable_remapped_rows", true,
		func(g *auspexv1.GpuColumns) *[]float64 { return &g.UncorrectableRemappedRows },
	},
	{"DCGM_FI_DEV_ROW_REMAP_FAILURE", "row_remap_failure", false, func(g *auspexv1.GpuColumns) *[]float64 { return &g.RowRemapFailure }},
	{
		"DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "nvlink_bandwidth_total", true,
		func(g *auspexv1.GpuColumns) *[]float64 { return &g.NvlinkBandwidthTotal },
	},
	{
		"DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "nvlink_crc_flit_errors_total", true,
		func(g *auspexv1.GpuColumns) *[]float64 { return &g.NvlinkCrcFlitErrorsTotal },
	},
	{
		"DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", "nvlink_replay_errors_total", true,
		func(g *auspexv1.GpuColumns) *[]float64 { return &g.NvlinkReplayErrorsTotal },
	},
	{
		"DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "clocks_event_reasons", false,
		func(g *auspexv1.GpuColumns) *[]float64 { return &g.ClocksEventReasons },
	},
	{
		"DCGM_FI_DEV_THERMAL_VIOLATION", "thermal_violation_microseconds", true,
		func(g *auspexv1.GpuColumns) *[]float64 { return &g.ThermalViolationMicroseconds },
	},
	{
		"DCGM_FI_DEV_POWER_VIOLATION", "power_violation_microseconds", true,
		func(g *auspexv1.GpuColumns) *[]float64 { return &g.PowerViolationMicroseconds },
	},
	{
		"DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gr_engine_active_ratio", false,
		func(g *auspexv1.GpuColumns) *[]float64 { return &g.GrEngineActiveRatio },
	},
	{"DCGM_FI_PROF_SM_ACTIVE", "sm_active_ratio", false, func(g *auspexv1.GpuColumns) *[]float64 { return &g.SmActiveRatio }},
	{"DCGM_FI_PROF_DRAM_ACTIVE", "dram_active_ratio", false, func(g *auspexv1.GpuColumns) *[]float64 { return &g.DramActiveRatio }},
	{
		"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "pipe_tensor_active_ratio", false,
		func(g *auspexv1.GpuColumns) *[]float64 { return &g.PipeTensorActiveRatio },
	},
	{"DCGM_FI_PROF_PCIE_TX_BYTES", "pcie_tx_bytes_total", true, func(g *auspexv1.GpuColumns) *[]float64 { return &g.PcieTxBytesTotal }},
	{"DCGM_FI_PROF_PCIE_RX_BYTES", "pcie_rx_bytes_total", true, func(g *auspexv1.GpuColumns) *[]float64 { return &g.PcieRxBytesTotal }},
}

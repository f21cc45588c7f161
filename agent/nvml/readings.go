//go:build cgo

package nvml

import (
	"encoding/binary"
	"fmt"
	"math"

	lib "github.com/NVIDIA/go-nvml/pkg/nvml"

	"auspex/internal/decode/gpuwatch"
)

// pace is how often something is read.
type pace uint8

const (
	always pace = iota // at every interval
	seldom             // what moves slowly, or takes many calls: each minute
)

// reading is a call of NVML, and the leaves beneath a GPU that it gives.
type reading struct {
	symbol string // the function; where the library lacks it, it is not called: that would end the process
	unless string // the function that does it better, where the library has that
	pace   pace
	leaves []string
	// read puts a value for each leaf, in the leaf's unit; those that it leaves are not known.
	read func(d lib.Device, v []float64) lib.Return
	// adds names a leaf that is the sum of the first values of all that name it, where the
	// GPU does not tell that sum itself.
	adds string
}

// number is a type in which NVML gives numbers.
type number interface {
	~uint32 | ~uint64 | ~int | ~int32
}

// one is a reading of one number, times a factor.
func one[T number](symbol string, p pace, leaf string, factor float64, get func(lib.Device) (T, lib.Return)) reading {
	return reading{symbol: symbol, pace: p, leaves: []string{leaf}, read: func(d lib.Device, v []float64) lib.Return {
		n, ret := get(d)
		v[0] = float64(n) * factor
		return ret
	}}
}

const (
	milli   = 1e-3 // watts of milliwatts, microseconds of nanoseconds
	mebi    = 1 << 20
	kibi    = 1 << 10
	allLink = math.MaxUint32 // scope of a field: all links together
)

// readings are all that is read again and again. A new one is a line here and a leaf of
// auspex-gpu.yang. The functions are those of the NVML API reference.
var readings = func() []reading {
	out := []reading{
		one("nvmlDeviceGetTemperature", always, "state/temperature", 1, func(d lib.Device) (uint32, lib.Return) {
			return d.GetTemperature(lib.TEMPERATURE_GPU)
		}),
		fields("nvmlDeviceGetFieldValues", always, []field{
			{lib.FI_DEV_MEMORY_TEMP, 0, "state/memory-temperature", 1},
			{lib.FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL, 0, "state/nvlink-crc-flit-errors", 1},
			{lib.FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL, 0, "state/nvlink-replay-errors", 1},
			{lib.FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL, 0, "state/nvlink-recovery-errors", 1},
			{lib.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, allLink, "state/nvlink-transmitted", kibi},
			{lib.FI_DEV_NVLINK_THROUGHPUT_DATA_RX, allLink, "state/nvlink-received", kibi},
		}),
		one("nvmlDeviceGetPowerUsage", always, "state/power", milli, lib.Device.GetPowerUsage),
		one("nvmlDeviceGetTotalEnergyConsumption", always, "state/energy", 1, lib.Device.GetTotalEnergyConsumption),
		one("nvmlDeviceGetClockInfo", always, "state/sm-clock", 1, func(d lib.Device) (uint32, lib.Return) { return d.GetClockInfo(lib.CLOCK_SM) }),
		one("nvmlDeviceGetClockInfo", always, "state/memory-clock", 1, func(d lib.Device) (uint32, lib.Return) { return d.GetClockInfo(lib.CLOCK_MEM) }),
		one("nvmlDeviceGetCurrentClocksEventReasons", always, "state/clocks-event-reasons", 1, lib.Device.GetCurrentClocksEventReasons),
		one("nvmlDeviceGetPerformanceState", always, "state/performance-state", 1, lib.Device.GetPerformanceState),
		{
			symbol: "nvmlDeviceGetUtilizationRates", leaves: []string{"state/utilization", "state/memory-utilization"},
			read: func(d lib.Device, v []float64) lib.Return {
				u, ret := d.GetUtilizationRates()
				v[0], v[1] = float64(u.Gpu), float64(u.Memory)
				return ret
			},
		},
		one("nvmlDeviceGetEncoderUtilization", always, "state/encoder-utilization", 1, func(d lib.Device) (uint32, lib.Return) {
			n, _, ret := d.GetEncoderUtilization()
			return n, ret
		}),
		one("nvmlDeviceGetDecoderUtilization", always, "state/decoder-utilization", 1, func(d lib.Device) (uint32, lib.Return) {
			n, _, ret := d.GetDecoderUtilization()
			return n, ret
		}),
		{
			symbol: "nvmlDeviceGetMemoryInfo_v2", leaves: []string{"state/memory-free", "state/memory-used", "state/memory-reserved"},
			read: func(d lib.Device, v []float64) lib.Return {
				m, ret := d.GetMemoryInfo_v2()
				v[0], v[1], v[2] = float64(m.Free/mebi), float64(m.Used/mebi), float64(m.Reserved/mebi)
				return ret
			},
		},
		{
			symbol: "nvmlDeviceGetMemoryInfo", unless: "nvmlDeviceGetMemoryInfo_v2", leaves: []string{"state/memory-free", "state/memory-used"},
			read: func(d lib.Device, v []float64) lib.Return {
				m, ret := d.GetMemoryInfo()
				v[0], v[1] = float64(m.Free/mebi), float64(m.Used/mebi)
				return ret
			},
		},
		fabric("nvmlDeviceGetGpuFabricInfoV", fabricInfo),
		one("nvmlDeviceGetPcieReplayCounter", always, "state/pcie-replays", 1, lib.Device.GetPcieReplayCounter),
		{
			symbol: "nvmlDeviceGetRemappedRows",
			leaves: []string{"state/remapped-rows-corrected", "state/remapped-rows-uncorrected", "state/remap-pending", "state/remap-failed"},
			read: func(d lib.Device, v []float64) lib.Return {
				corrected, uncorrected, pending, failed, ret := d.GetRemappedRows()
				v[0], v[1], v[2], v[3] = float64(corrected), float64(uncorrected), truth(pending), truth(failed)
				return ret
			},
		},

		fields("nvmlDeviceGetFieldValues", always, []field{{lib.FI_DEV_GET_GPU_RECOVERY_ACTION, 0, "state/recovery-action", 1}}),

		threshold("state/temperature-max-operating", lib.TEMPERATURE_THRESHOLD_GPU_MAX),
		threshold("state/temperature-slowdown", lib.TEMPERATURE_THRESHOLD_SLOWDOWN),
		threshold("state/temperature-shutdown", lib.TEMPERATURE_THRESHOLD_SHUTDOWN),
		threshold("state/memory-temperature-max-operating", lib.TEMPERATURE_THRESHOLD_MEM_MAX),
		one("nvmlDeviceGetMinorNumber", seldom, "state/minor-number", 1, lib.Device.GetMinorNumber),
		one("nvmlDeviceGetEnforcedPowerLimit", seldom, "state/power-limit", milli, lib.Device.GetEnforcedPowerLimit),
		one("nvmlDeviceGetPowerManagementLimit", seldom, "state/power-limit-set", milli, lib.Device.GetPowerManagementLimit),
		one("nvmlDeviceGetPowerManagementDefaultLimit", seldom, "state/power-limit-default", milli, lib.Device.GetPowerManagementDefaultLimit),
		{
			symbol: "nvmlDeviceGetPowerManagementLimitConstraints", pace: seldom, leaves: []string{"state/power-limit-min", "state/power-limit-max"},
			read: func(d lib.Device, v []float64) lib.Return {
				least, most, ret := d.GetPowerManagementLimitConstraints()
				v[0], v[1] = float64(least)*milli, float64(most)*milli
				return ret
			},
		},
		one("nvmlDeviceGetMaxClockInfo", seldom, "state/sm-clock-max", 1, func(d lib.Device) (uint32, lib.Return) { return d.GetMaxClockInfo(lib.CLOCK_SM) }),
		one("nvmlDeviceGetApplicationsClock", seldom, "state/application-sm-clock", 1, func(d lib.Device) (uint32, lib.Return) {
			return d.GetApplicationsClock(lib.CLOCK_SM)
		}),
		one("nvmlDeviceGetApplicationsClock", seldom, "state/application-memory-clock", 1, func(d lib.Device) (uint32, lib.Return) {
			return d.GetApplicationsClock(lib.CLOCK_MEM)
		}),
		{
			symbol: "nvmlDeviceGetEccMode", pace: seldom, leaves: []string{"state/ecc-enabled", "state/ecc-pending"},
			read: func(d lib.Device, v []float64) lib.Return {
				now, next, ret := d.GetEccMode()
				v[0], v[1] = float64(now), float64(next)
				return ret
			},
		},
		retired("state/retired-pages-corrected", lib.PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS),
		retired("state/retired-pages-uncorrected", lib.PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR),
		one("nvmlDeviceGetRetiredPagesPendingStatus", seldom, "state/retired-pages-pending", 1, lib.Device.GetRetiredPagesPendingStatus),
		{
			symbol: "nvmlDeviceGetRowRemapperHistogram", pace: seldom,
			leaves: []string{"state/remap-banks-max", "state/remap-banks-high", "state/remap-banks-partial", "state/remap-banks-low", "state/remap-banks-none"},
			read: func(d lib.Device, v []float64) lib.Return {
				h, ret := d.GetRowRemapperHistogram()
				v[0], v[1], v[2], v[3], v[4] = float64(h.Max), float64(h.High), float64(h.Partial), float64(h.Low), float64(h.None)
				return ret
			},
		},
		{
			symbol: "nvmlDeviceGetSramEccErrorStatus", pace: seldom, leaves: []string{"state/sram-threshold-exceeded"},
			read: func(d lib.Device, v []float64) lib.Return {
				s, ret := d.GetSramEccErrorStatus()
				v[0] = truth(s.BThresholdExceeded != 0)
				return ret
			},
		},
		{
			symbol: "nvmlDeviceGetRepairStatus", pace: seldom, leaves: []string{"state/channel-repair-pending", "state/tpc-repair-pending"},
			read: func(d lib.Device, v []float64) lib.Return {
				s, ret := d.GetRepairStatus()
				v[0], v[1] = truth(s.BChannelRepairPending != 0), truth(s.BTpcRepairPending != 0)
				return ret
			},
		},
		one("nvmlDeviceGetCurrPcieLinkGeneration", seldom, "state/pcie-generation", 1, lib.Device.GetCurrPcieLinkGeneration),
		one("nvmlDeviceGetMaxPcieLinkGeneration", seldom, "state/pcie-generation-max", 1, lib.Device.GetMaxPcieLinkGeneration),
		one("nvmlDeviceGetCurrPcieLinkWidth", seldom, "state/pcie-width", 1, lib.Device.GetCurrPcieLinkWidth),
		one("nvmlDeviceGetMaxPcieLinkWidth", seldom, "state/pcie-width-max", 1, lib.Device.GetMaxPcieLinkWidth),
		{
			symbol: "nvmlDeviceGetMigMode", pace: seldom, leaves: []string{"state/mig-enabled", "state/mig-pending"},
			read: func(d lib.Device, v []float64) lib.Return {
				now, next, ret := d.GetMigMode()
				v[0], v[1] = float64(now), float64(next)
				return ret
			},
		},
		one("nvmlDeviceGetPersistenceMode", seldom, "state/persistence", 1, lib.Device.GetPersistenceMode),
	}
	throttle := one("nvmlDeviceGetCurrentClocksThrottleReasons", always, "state/clocks-event-reasons", 1, lib.Device.GetCurrentClocksThrottleReasons)
	throttle.unless = "nvmlDeviceGetCurrentClocksEventReasons"
	plain := fabric("nvmlDeviceGetGpuFabricInfo", plainFabricInfo)
	plain.unless = "nvmlDeviceGetGpuFabricInfoV"
	out = append(out, throttle, plain)
	for _, p := range []struct {
		leaf   string
		policy lib.PerfPolicyType
	}{{"state/thermal-violation", lib.PERF_POLICY_THERMAL}, {"state/power-violation", lib.PERF_POLICY_POWER}} {
		out = append(out, one("nvmlDeviceGetViolationStatus", always, p.leaf, milli, func(d lib.Device) (uint64, lib.Return) {
			v, ret := d.GetViolationStatus(p.policy)
			return v.ViolationTime, ret
		}))
	}
	return append(append(out, ecc()...), links()...)
}()

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func threshold(leaf string, t lib.TemperatureThresholds) reading {
	return one("nvmlDeviceGetTemperatureThreshold", seldom, leaf, 1, func(d lib.Device) (uint32, lib.Return) { return d.GetTemperatureThreshold(t) })
}

func retired(leaf string, cause lib.PageRetirementCause) reading {
	return one("nvmlDeviceGetRetiredPages", seldom, leaf, 1, func(d lib.Device) (int, lib.Return) {
		pages, ret := d.GetRetiredPages(cause)
		return len(pages), ret
	})
}

// ecc are the counters of errors, together and by the kind of memory.
func ecc() (out []reading) {
	for _, e := range []struct {
		leaf string
		typ  lib.MemoryErrorType
	}{{"corrected", lib.MEMORY_ERROR_TYPE_CORRECTED}, {"uncorrected", lib.MEMORY_ERROR_TYPE_UNCORRECTED}} {
		for _, c := range []struct {
			suffix  string
			counter lib.EccCounterType
			pace    pace
		}{{"", lib.VOLATILE_ECC, always}, {"-lifetime", lib.AGGREGATE_ECC, seldom}} {
			out = append(out, one("nvmlDeviceGetTotalEccErrors", c.pace, "state/ecc-"+e.leaf+c.suffix, 1, func(d lib.Device) (uint64, lib.Return) {
				return d.GetTotalEccErrors(e.typ, c.counter)
			}))
			for place, location := range []string{"l1", "l2", "device", "register", "texture", "shared", "cbu", "sram"} {
				leaf := fmt.Sprintf("ecc[location=%s]/state/%s%s", location, e.leaf, c.suffix)
				out = append(out, one("nvmlDeviceGetMemoryErrorCounter", seldom, leaf, 1, func(d lib.Device) (uint64, lib.Return) {
					return d.GetMemoryErrorCounter(e.typ, c.counter, lib.MemoryLocation(place))
				}))
			}
		}
	}
	return out
}

// links are the state and the errors of each NVLink.
func links() (out []reading) {
	for link := range lib.NVLINK_MAX_LINKS {
		at := func(leaf string) string { return fmt.Sprintf("nvlink[link=%d]/state/%s", link, leaf) }
		out = append(out, one("nvmlDeviceGetNvLinkState", seldom, at("active"), 1, func(d lib.Device) (lib.EnableState, lib.Return) {
			return d.GetNvLinkState(link)
		}))
		for _, e := range []struct {
			leaf, adds string
			counter    lib.NvLinkErrorCounter
		}{
			{"crc-flit-errors", "state/nvlink-crc-flit-errors", lib.NVLINK_ERROR_DL_CRC_FLIT},
			{"crc-data-errors", "", lib.NVLINK_ERROR_DL_CRC_DATA},
			{"replay-errors", "state/nvlink-replay-errors", lib.NVLINK_ERROR_DL_REPLAY},
			{"recovery-errors", "state/nvlink-recovery-errors", lib.NVLINK_ERROR_DL_RECOVERY},
		} {
			r := one("nvmlDeviceGetNvLinkErrorCounter", seldom, at(e.leaf), 1, func(d lib.Device) (uint64, lib.Return) {
				return d.GetNvLinkErrorCounter(link, e.counter)
			})
			r.adds = e.adds
			out = append(out, r)
		}
		// NVLink 5, from Blackwell on, counts otherwise.
		var of []field
		for _, f := range []struct {
			id   uint32
			leaf string
		}{
			{lib.FI_DEV_NVLINK_COUNT_RCV_ERRORS, "receive-errors"},
			{lib.FI_DEV_NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS, "integrity-errors"},
			{lib.FI_DEV_NVLINK_COUNT_XMIT_DISCARDS, "transmit-discards"},
			{lib.FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS, "recoveries"},
			{lib.FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS, "recoveries-failed"},
			{lib.FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS, "effective-errors"},
			{lib.FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS, "symbol-errors"},
		} {
			of = append(of, field{f.id, uint32(link), at(f.leaf), 1})
		}
		out = append(out, fields("nvmlDeviceGetFieldValues", seldom, of))
	}
	return out
}

// field is a value of nvmlDeviceGetFieldValues.
type field struct {
	id, scope uint32
	leaf      string
	factor    float64
}

// fields are several values of one call; it is not made again for a GPU that knows none of them.
func fields(symbol string, p pace, all []field) reading {
	out := reading{symbol: symbol, pace: p}
	for _, f := range all {
		out.leaves = append(out.leaves, f.leaf)
	}
	out.read = func(d lib.Device, v []float64) lib.Return {
		values := make([]lib.FieldValue, len(all))
		for i, f := range all {
			values[i].FieldId, values[i].ScopeId = f.id, f.scope
		}
		ret := d.GetFieldValues(values)
		known := false
		for i, f := range all {
			v[i] = math.NaN()
			own := lib.Return(values[i].NvmlReturn)
			known = known || own != lib.ERROR_NOT_SUPPORTED && own != lib.ERROR_INVALID_ARGUMENT
			if ret == lib.SUCCESS && own == lib.SUCCESS {
				v[i] = fieldValue(values[i]) * f.factor
			}
		}
		if ret == lib.SUCCESS && !known {
			return lib.ERROR_NOT_SUPPORTED
		}
		return ret
	}
	return out
}

// fieldValue reads nvmlValue_t, a union in the order of bytes of the machine.
func fieldValue(f lib.FieldValue) float64 {
	n := binary.NativeEndian.Uint64(f.Value[:])
	switch lib.ValueType(f.ValueType) {
	case lib.VALUE_TYPE_DOUBLE:
		return math.Float64frombits(n)
	case lib.VALUE_TYPE_UNSIGNED_INT:
		return float64(binary.NativeEndian.Uint32(f.Value[:]))
	case lib.VALUE_TYPE_UNSIGNED_LONG, lib.VALUE_TYPE_UNSIGNED_LONG_LONG:
		return float64(n)
	case lib.VALUE_TYPE_SIGNED_LONG_LONG:
		return float64(int64(n))
	case lib.VALUE_TYPE_SIGNED_INT:
		return float64(int32(binary.NativeEndian.Uint32(f.Value[:])))
	case lib.VALUE_TYPE_UNSIGNED_SHORT:
		return float64(binary.NativeEndian.Uint16(f.Value[:]))
	}
	return math.NaN()
}

// word is a text of a GPU, which it has for as long as it is there, or which moves: slowly.
type word struct {
	symbol, leaf string
	read         func(lib.Device) (string, lib.Return)
	moves        bool
}

var words = func() []word {
	out := []word{
		{symbol: "nvmlDeviceGetName", leaf: "state/product", read: lib.Device.GetName},
		{symbol: "nvmlDeviceGetSerial", leaf: "state/serial", read: lib.Device.GetSerial},
		{symbol: "nvmlDeviceGetVbiosVersion", leaf: "state/vbios-version", read: lib.Device.GetVbiosVersion},
		{symbol: "nvmlDeviceGetInforomImageVersion", leaf: "state/inforom-version", read: lib.Device.GetInforomImageVersion},
		{symbol: "nvmlDeviceGetGpuFabricInfoV", leaf: "state/fabric-cluster", read: cluster, moves: true},
	}
	for link := range lib.NVLINK_MAX_LINKS {
		out = append(out, word{symbol: "nvmlDeviceGetNvLinkRemotePciInfo", leaf: fmt.Sprintf("nvlink[link=%d]/state/remote", link), read: func(d lib.Device) (string, lib.Return) {
			info, ret := d.GetNvLinkRemotePciInfo(link)
			return gpuwatch.PCI(chars(info.BusId[:])), ret
		}})
	}
	return out
}()

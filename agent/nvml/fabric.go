//go:build cgo

package nvml

import (
	"fmt"
	"math"

	lib "github.com/NVIDIA/go-nvml/pkg/nvml"

	"auspex/internal/decode/gpuwatch"
)

// fabricInfo reads a GPU in its NVLink fabric. A driver that does not know the newest structure may
// know the one before, without the summary of its health.
func fabricInfo(d lib.Device) (lib.GpuFabricInfo_v3, lib.Return) {
	info, ret := d.GetGpuFabricInfoV().V3()
	if ret != lib.ERROR_ARGUMENT_VERSION_MISMATCH && ret != lib.ERROR_INVALID_ARGUMENT {
		return info, ret
	}
	old, ret := d.GetGpuFabricInfoV().V2()
	return lib.GpuFabricInfo_v3{ClusterUuid: old.ClusterUuid, Status: old.Status, CliqueId: old.CliqueId, State: old.State, HealthMask: old.HealthMask}, ret
}

// plainFabricInfo is fabricInfo of drivers that tell no health.
func plainFabricInfo(d lib.Device) (lib.GpuFabricInfo_v3, lib.Return) {
	info, ret := d.GetGpuFabricInfo()
	return lib.GpuFabricInfo_v3{ClusterUuid: info.ClusterUuid, Status: info.Status, CliqueId: info.CliqueId, State: info.State}, ret
}

// cluster reads the UUID of the fabric; one of a single server has none.
func cluster(d lib.Device) (string, lib.Return) {
	info, ret := fabricInfo(d)
	id := info.ClusterUuid
	if state(&info) != gpuwatch.FabricRegistered || id == [len(id)]uint8{} {
		return "", ret
	}
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:]), ret
}

func state(info *lib.GpuFabricInfo_v3) uint8 {
	if info.State == lib.GPU_FABRIC_STATE_COMPLETED && info.Status != uint32(lib.SUCCESS) { // which means nothing before
		return gpuwatch.FabricFailed
	}
	return info.State
}

// fabric is a GPU in its NVLink fabric. Where it is and how well is told of one that is registered.
func fabric(symbol string, get func(lib.Device) (lib.GpuFabricInfo_v3, lib.Return)) reading {
	leaves := []string{"state", "error", "clique", "health", "health-mask", "configuration-wrong"}
	troubles := []int{gpuwatch.BandwidthDegraded, gpuwatch.RouteRecovery, gpuwatch.RouteUnhealthy, gpuwatch.AccessTimeoutRecovery}
	leaves = append(leaves, "bandwidth-degraded", "route-recovery", "route-unhealthy", "access-timeout-recovery")
	for i := range leaves {
		leaves[i] = "state/fabric-" + leaves[i]
	}
	return reading{symbol: symbol, leaves: leaves, read: func(d lib.Device, v []float64) lib.Return {
		info, ret := get(d)
		for i := range v {
			v[i] = math.NaN()
		}
		at := state(&info)
		if v[0] = float64(at); at >= gpuwatch.FabricRegistered {
			v[1] = float64(info.Status)
		}
		if at != gpuwatch.FabricRegistered {
			return ret
		}
		v[2] = float64(info.CliqueId)
		if info.HealthSummary != lib.GPU_FABRIC_HEALTH_SUMMARY_NOT_SUPPORTED {
			v[3] = float64(info.HealthSummary)
		}
		f := gpuwatch.Fabric{Mask: info.HealthMask}
		if f.Mask != 0 {
			v[4] = float64(f.Mask)
		}
		if n := f.Wrong(); n > 0 {
			v[5] = truth(n > 1)
		}
		for i, field := range troubles {
			if bad, told := f.Bad(field); told {
				v[6+i] = truth(bad)
			}
		}
		return ret
	}}
}

// fabric is what was read of the GPU in its NVLink fabric; false is nothing.
func (w *worker) fabric() (f gpuwatch.Fabric, ok bool) {
	value := func(leaf string) uint32 {
		if v := w.value("state/fabric-" + leaf); v > 0 { // not NaN
			return uint32(v)
		}
		return 0
	}
	f = gpuwatch.Fabric{State: uint8(value("state")), Error: value("error"), Mask: value("health-mask"), Summary: uint8(value("health"))}
	return f, !math.IsNaN(w.value("state/fabric-state"))
}

package gpuwatch

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"auspex/schemas"
	"auspex/schemas/faults"
)

// Fabric is what the driver tells of a GPU in its NVLink fabric (nvml.h, nvmlGpuFabricInfo_v3_t).
type Fabric struct {
	State   uint8  // of its registration, as the constants have it
	Error   uint32 // of NVML, with which the registration ended
	Mask    uint32 // health: fields of two bits, and one of four that says what is wrong with the configuration
	Summary uint8  // health as a whole; 0 is not told
}

// The states of a registration, as DCGM numbers them (dcgmFabricManagerStatus_t): those of NVML
// (NVML_GPU_FABRIC_STATE_*), and one that ended with an error.
const (
	FabricNone uint8 = iota
	FabricNotStarted
	FabricInProgress
	FabricRegistered
	FabricFailed
)

// Summaries of health (nvml.h, NVML_GPU_FABRIC_HEALTH_SUMMARY_*).
const (
	fabricUnhealthy = 2
	fabricLimited   = 3
)

// The fields of two bits of the mask, by their lowest bit (nvml.h, NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_*),
// and that of four.
const (
	BandwidthDegraded     = 0
	RouteRecovery         = 2
	RouteUnhealthy        = 4
	AccessTimeoutRecovery = 6
	configuration         = 8
)

// Bad reads a field of two bits of the mask: 1 is true, 2 is false, others are not told.
func (f *Fabric) Bad(field int) (bad, told bool) {
	v := f.Mask >> field & 3
	return v == 1, v == 1 || v == 2
}

// Wrong is the number of what is wrong with the configuration: 1 is nothing, 0 is not told.
func (f *Fabric) Wrong() uint32 { return f.Mask >> configuration & 0xf }

// wrongs say what is wrong with the configuration.
var wrongs = map[uint32]string{
	2: "another system GUID", 3: "another serial number of the chassis", noPartition: "it is in no partition", 5: "too few NVLinks", 6: "firmware of the GPU that does not fit",
}

const noPartition = 4 // may be meant so

// FabricPatience is how long a GPU that was in its fabric may be out of it until that is told: a
// fabric manager that starts takes minutes.
const FabricPatience = 5 * time.Minute

// waits say how far a registration is that has not ended, by its state.
var waits = [FabricRegistered]string{"it is in none", "its registration has not begun", "its registration does not end"}

// trouble is what is worst about a GPU in its fabric, and in words all that is; no code is nothing.
func (f *Fabric) trouble() (code string, s schemas.Severity, action, message string) {
	if f.State < FabricRegistered {
		return "NOT_REGISTERED", schemas.SeverityError, faults.ActionResetGPU, waits[f.State]
	}
	if f.State == FabricFailed {
		return "REGISTRATION_FAILED", schemas.SeverityError, faults.ActionResetGPU, fmt.Sprintf("its registration ended with error %d of NVML", f.Error)
	}
	var found []string
	rank := func(c string, sev schemas.Severity, act, words string) {
		if found = append(found, words); code == "" || s != schemas.SeverityError && sev == schemas.SeverityError {
			code, s, action = c, sev, act
		}
	}
	if n := f.Wrong(); n > 1 {
		sev, words := schemas.SeverityError, wrongs[n]
		if n == noPartition {
			sev = schemas.SeverityWarning
		}
		if words == "" {
			words = fmt.Sprintf("code %d", n)
		}
		rank("INCORRECT_CONFIGURATION", sev, faults.ActionContactSupport, "incorrect configuration: "+words)
	}
	if bad, _ := f.Bad(RouteUnhealthy); bad {
		rank("ROUTE_UNHEALTHY", schemas.SeverityError, faults.ActionResetGPU, "unhealthy routes")
	}
	if f.Summary == fabricUnhealthy {
		rank("UNHEALTHY", schemas.SeverityError, faults.ActionResetGPU, "the driver calls it unhealthy")
	}
	if bad, _ := f.Bad(BandwidthDegraded); bad {
		rank("DEGRADED_BANDWIDTH", schemas.SeverityWarning, faults.ActionContactSupport, "degraded bandwidth")
	}
	if f.Summary == fabricLimited {
		rank("LIMITED_CAPACITY", schemas.SeverityWarning, faults.ActionContactSupport, "limited capacity")
	}
	return code, s, action, strings.Join(found, ", ")
}

// Fabric compares what the driver tells of a GPU in its fabric with what it told before. One that never was
// in it may be meant so: where the fabric manager makes partitions, GPUs of none wait for ever.
func (w *Watch) Fabric(now time.Time, index uint32, f *Fabric) {
	if f.State > FabricFailed { // of a newer driver
		return
	}
	k, apart := w.at(index), time.Time{}
	if f.State < FabricRegistered && k.Member {
		if apart = k.Apart; apart.IsZero() {
			apart = now
		}
	}
	if member := k.Member || f.State == FabricRegistered; member != k.Member || !apart.Equal(k.Apart) {
		k.Member, k.Apart, w.changed = member, apart, true
	}
	if f.State < FabricRegistered && (!k.Member || now.Sub(apart) < cmp.Or(w.Patience, FabricPatience)) {
		return
	}
	code, s, action, message := f.trouble()
	if code != k.Fabric {
		if code != "" {
			delete(k.Raised, schemas.EventGPUFabric) // what is worst is another thing now
		}
		k.Fabric, w.changed = code, true
	}
	w.conditionOf(now, index, k, schemas.EventGPUFabric, schemas.EventGPUFabric, cmp.Or(code, "REGISTERED"), s, code != "",
		"NVLink fabric: "+cmp.Or(message, "it is registered, and well"), action)
}

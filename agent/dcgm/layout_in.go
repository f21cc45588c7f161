//go:build ignore

// What layout.sh takes from DCGM's headers.

package dcgm

// #include "dcgm_structs.h"
import "C"

type connectParams C.dcgmConnectV2Params_v2

type diagResponse C.dcgmDiagResponse_v12

type diagTest C.dcgmDiagTestRun_v2

type diagAux C.dcgmDiagTestAuxData_v1

type diagEntity C.dcgmDiagEntity_v1

type diagError C.dcgmDiagError_v1

type diagInfo C.dcgmDiagInfo_v1

type diagResult C.dcgmDiagEntityResult_v1

type entity C.dcgmGroupEntityPair_t

const (
	connectVersion = C.dcgmConnectV2Params_version2
	diagVersion    = C.dcgmDiagResponse_version12
	groupEmpty     = C.DCGM_GROUP_EMPTY
	resultPass     = C.DCGM_DIAG_RESULT_PASS
	resultWarn     = C.DCGM_DIAG_RESULT_WARN
	resultFail     = C.DCGM_DIAG_RESULT_FAIL
	levelShort     = C.DCGM_DIAG_LVL_SHORT
	levelMedium    = C.DCGM_DIAG_LVL_MED
	levelLong      = C.DCGM_DIAG_LVL_LONG
)

package redfish

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"auspex/internal/bmc/redfish/redfishtest"
	"auspex/schemas"
)

// offered are the consoles that a machine was read to have.
func offered(t *testing.T, tree *redfishtest.Tree) map[string]float64 {
	t.Helper()
	d := newDevice(t, tree)
	d.poll()
	return d.readings(schemas.MetricConsoles)
}

func TestTheConsolesOfRecordedMachinesAreRead(t *testing.T) {
	const of = schemas.MetricConsoles + " console="
	for name, want := range map[string]map[string]float64{
		// The serial console of an iDRAC is off and has no protocols.
		"r750":   {of + "graphical protocol=KVMIP port=": 6},
		"sr670":  {of + "graphical protocol=KVMIP port=": 6, of + "serial protocol=IPMI port=": 2, of + "serial protocol=SSH port=": 2},
		"dl380a": {of + "graphical protocol=KVMIP port=": 10, of + "serial protocol=IPMI port=": 13, of + "serial protocol=SSH port=": 13},
		// The system knows the port; the controller of its accelerators is not that of the host.
		"gh200": {of + "graphical protocol=KVMIP port=": 4, of + "serial protocol=IPMI port=": 15, of + "serial protocol=SSH port=2200": 15},
	} {
		if diff := cmp.Diff(want, offered(t, openTree(t, "testdata/"+name+"/input"))); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestAConsoleOfAnotherMachineOrThatIsOffIsTold(t *testing.T) {
	const of = schemas.MetricConsoles + " console="
	system, other := "/redfish/v1/Systems/1", "/redfish/v1/Systems/2"
	manager := func(path, of string, kinds ...any) doc {
		return doc{
			"@odata.id": path, "Links": doc{"ManagerForServers": []any{doc{"@odata.id": of}}},
			"SerialConsole": doc{"ServiceEnabled": true, "MaxConcurrentSessions": 0, "ConnectTypesSupported": kinds},
		}
	}
	tree := redfishtest.New(map[string]map[string]any{
		"/redfish/v1":            {"Systems": doc{"@odata.id": "/redfish/v1/Systems"}, "Managers": doc{"@odata.id": "/redfish/v1/Managers"}},
		"/redfish/v1/Systems":    {"Members": []any{doc{"@odata.id": system}}},
		"/redfish/v1/Managers":   {"Members": []any{doc{"@odata.id": "/redfish/v1/Managers/1"}, doc{"@odata.id": "/redfish/v1/Managers/2"}}},
		"/redfish/v1/Managers/1": manager("/redfish/v1/Managers/1", other, "SSH"),
		"/redfish/v1/Managers/2": manager("/redfish/v1/Managers/2", system, "IPMI", "Oem"),
		system: {
			"@odata.id": system, "PowerState": "On",
			"GraphicalConsole": doc{"ServiceEnabled": false, "Port": 70000, "ConnectTypesSupported": []any{"KVMIP"}},
		},
	})
	want := map[string]float64{of + "serial protocol=IPMI port=": 1, of + "graphical protocol=KVMIP port=": 0}
	if diff := cmp.Diff(want, offered(t, tree)); diff != "" {
		t.Error(diff)
	}
}

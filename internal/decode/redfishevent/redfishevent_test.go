package redfishevent

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/schemas"
)

func TestBodies(t *testing.T) {
	at := time.Date(2024, 8, 21, 5, 27, 30, 0, time.UTC)
	for _, tc := range []struct {
		name, body string
		want       []schemas.Event
	}{
		{
			"log entry",
			`{"Created":"2024-08-21T05:27:30+00:00","Id":"205747","Message":"FAN_3 crossed","MessageArgs":["FAN_3","400"],"MessageId":"OpenBMC.0.1.SensorThresholdCriticalLowGoingLow","Severity":"Critical"}`,
			[]schemas.Event{{
				Time: at, Source: "redfish", Type: "fan.failure", Code: "OpenBMC.0.1.SensorThresholdCriticalLowGoingLow", Severity: "error",
				State: "raised", Message: "FAN_3 crossed",
				Attrs: map[string]string{"args": "FAN_3;400", "sensor": "FAN_3", "record": "205747", "action": "CONTACT_SUPPORT"},
			}},
		},
		{
			"event with a list",
			`{"@odata.type":"#Event.v1_4_0.Event","Events":[{"EventId":"7","EventTimestamp":"2024-08-21T05:27:30Z","MessageId":"PowerSupply.1.0.InputLost","Message":"m","OriginOfCondition":{"@odata.id":"/redfish/v1/Chassis/1/PowerSubsystem/PowerSupplies/PSU1"}}]}`,
			[]schemas.Event{{
				Time: at, Source: "redfish", Type: "psu.input_lost", Code: "PowerSupply.1.0.InputLost", Severity: "error", State: "raised",
				Message: "m",
				Attrs: map[string]string{
					"sensor": "PSU1", "origin": "/redfish/v1/Chassis/1/PowerSubsystem/PowerSupplies/PSU1", "record": "7", "action": "CHECK_MECHANICALS",
				},
			}},
		},
		{
			"XClarity events, whose ids are those of IPMI events",
			`[{"Id":"1","Created":"2024-08-21T05:27:30Z","EventId":"0x806f030813010000","Message":"m","Severity":"Critical","Oem":{"Lenovo":{"CommonEventID":"FQXSPPW0006I"}}},
			  {"Id":"2","Created":"2024-08-21T05:27:30Z","EventId":"0x816f030813010000","Message":"m","Severity":"OK"},
			  {"Id":"3","Created":"2024-08-21T05:27:30Z","EventId":"0x806f010c2001ffff","Message":"m","Severity":"Critical"},
			  {"Id":"4","Created":"2024-08-21T05:27:30Z","EventId":"0x816f00091301ffff","Message":"Host Power has been turned on.","Severity":"OK","Oem":{"Lenovo":{"CommonEventID":"FQXSPPW2008I"}}}]`,
			[]schemas.Event{
				{
					Time: at, Source: "redfish", Type: "psu.input_lost", Code: "FQXSPPW0006I", Severity: "error", State: "raised", Message: "m",
					Attrs: map[string]string{"record": "1", "action": "CHECK_MECHANICALS"},
				},
				{
					Time: at, Source: "redfish", Type: "psu.input_lost", Severity: "info", State: "cleared", Message: "m",
					Attrs: map[string]string{"record": "2", "action": "IGNORE"},
				},
				{
					Time: at, Source: "redfish", Type: "dimm.ecc_ue", Severity: "critical", State: "raised", Message: "m",
					Attrs: map[string]string{"record": "3", "action": "CONTACT_SUPPORT"},
				},
				{
					Time: at, Source: "redfish", Type: "bmc.event", Code: "FQXSPPW2008I", Severity: "info", Message: "Host Power has been turned on.",
					Attrs: map[string]string{"record": "4", "action": "IGNORE"},
				},
			},
		},
		{
			"a record of a fault, which has no message",
			`{"Id":"2","Created":"2024-08-21T05:27:30Z","Name":"FaultLog Dump Entry","CPER":{"Oem":{"Nvidia":{"NvIpSignature":"PCIe","SectionType":"NVIDIA CPER Error Section","Severity":"Recoverable"}}}}`,
			[]schemas.Event{{
				Time: at, Source: "redfish", Type: "bmc.event", Severity: "error",
				Message: "CPER: SectionType NVIDIA CPER Error Section, NvIpSignature PCIe, Severity Recoverable",
				Attrs:   map[string]string{"record": "2", "action": "CONTACT_SUPPORT"},
			}},
		},
		{
			"an XID in a GPU's log",
			`[{"Id":"9","Created":"2024-08-21T05:27:30Z","MessageId":"ResourceEvent.1.0.ResourceErrorsDetected","MessageArgs":["GPU_0 Driver Event Message","XID 79: fallen"],"Severity":"Critical","Message":"m"}]`,
			[]schemas.Event{{
				Time: at, Source: "redfish", Type: "gpu.xid", Code: "79", Severity: "critical", Message: "m",
				Attrs: map[string]string{
					"args": "GPU_0 Driver Event Message;XID 79: fallen", "sensor": "GPU_0 Driver Event Message", "record": "9",
					"message_id": "ResourceEvent.1.0.ResourceErrorsDetected", "action": "RESTART_BM",
				},
			}},
		},
		{
			"a zone without its colon, a part that is named by its origin, no text",
			`{"Events":[{"EventId":"8","EventTimestamp":"2024-08-20T23:27:30-0600","MessageId":"IDRAC.2.8.PSU0003","MessageArgs":["1",null],"OriginOfCondition":"/redfish/v1/Chassis/1/Power/PowerSupplies/PSU.Slot.1"}]}`,
			[]schemas.Event{{
				Time: at, Source: "redfish", Type: "psu.input_lost", Code: "IDRAC.2.8.PSU0003", Severity: "error", State: "raised",
				Message: "The power supply has no input",
				Attrs: map[string]string{
					"args": "1;", "sensor": "PSU.Slot.1", "origin": "/redfish/v1/Chassis/1/Power/PowerSupplies/PSU.Slot.1", "record": "8",
					"action": "CHECK_MECHANICALS",
				},
			}},
		},
		{
			"property of the wrong type", `{"Id":12,"Created":"2024-08-21T05:27:30Z","MessageId":"IDRAC.2.7.USR0030","Severity":"OK","Message":"m"}`,
			[]schemas.Event{{
				Time: at, Source: "redfish", Type: "bmc.event", Code: "IDRAC.2.7.USR0030", Severity: "info", Message: "m",
				Attrs: map[string]string{"action": "IGNORE"},
			}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			entries, err := Parse([]byte(tc.body))
			if err != nil {
				t.Fatal(err)
			}
			var got []schemas.Event
			for i := range entries {
				got = append(got, entries[i].Event())
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"Events":[{"MessageId":"a.1.0.B","MessageArgs":[1,null]}]}`))
	f.Add([]byte(`[{"Message":"XID 79"}]`))
	f.Fuzz(func(t *testing.T, body []byte) {
		entries, err := Parse(body)
		if err != nil {
			return
		}
		for i := range entries {
			if ev := entries[i].Event(); ev.Type == "" || ev.Severity.Rank() < 0 {
				t.Errorf("incomplete event %+v", ev)
			}
		}
	})
}

package redfish

import (
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"auspex/collectors/collectortest"
)

// A leak is told once, when it begins and when it ends, also where it ends while nobody reads.
func TestLeaksAreToldWhenTheyChange(t *testing.T) {
	const at = "/redfish/v1/ThermalEquipment/CDUs/1"
	detector := func(state any) doc {
		return doc{"@odata.id": at + "/LeakDetection/LeakDetectors/A", "Id": "A", "Name": "Tray A", "DetectorState": state}
	}
	tree := service(doc{}, map[string]doc{
		"/redfish/v1/ThermalEquipment":        {"CDUs": link("/redfish/v1/ThermalEquipment/CDUs")},
		"/redfish/v1/ThermalEquipment/CDUs":   {"Members": []any{link(at)}},
		at:                                    {"Id": "1", "LeakDetection": link(at + "/LeakDetection")},
		at + "/LeakDetection":                 {"LeakDetectors": link(at + "/LeakDetection/LeakDetectors")},
		at + "/LeakDetection/LeakDetectors":   {"Members": []any{link(at + "/LeakDetection/LeakDetectors/A")}},
		at + "/LeakDetection/LeakDetectors/A": detector("OK"),
	})
	tree.Doc("/redfish/v1")["ThermalEquipment"] = link("/redfish/v1/ThermalEquipment")
	memory := collectortest.NewCursors()
	begin := func() *device {
		d := newDevice(t, tree)
		d.r.s.Cursors = memory
		return d
	}
	d := begin()
	told := func(want ...string) {
		t.Helper()
		for range 3 {
			d.poll()
		}
		var got []string
		for _, ev := range d.evs {
			if ev.Attr("sensor") != "Tray A" || ev.Resource != "gpu-r01-01" {
				t.Errorf("the event is of %q, %q", ev.Resource, ev.Attr("sensor"))
			}
			got = append(got, ev.Type+" "+ev.Code+" "+string(ev.Severity)+" "+ev.State)
		}
		d.evs = nil
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	}
	path := at + "/LeakDetection/LeakDetectors/A"
	told()
	tree.Set(path, detector("Warning"))
	told("bmc.event Environmental.1.0.LeakDetectedWarning warning raised")
	if v := d.readings("auspex_server_leak_detected"); len(v) != 1 || v["auspex_server_leak_detected sensor=Tray A"] != 1 {
		t.Errorf("readings %v", v)
	}
	tree.Set(path, detector("Critical"))
	told("bmc.event Environmental.1.0.LeakDetectedCritical critical raised")
	tree.Set(path, detector([]any{"Critical"})) // says nothing
	told()
	d = begin() // as after a restart
	tree.Set(path, detector("Critical"))
	told()
	d = begin()
	tree.Set(path, detector("OK"))
	told("bmc.event Environmental.1.0.LeakDetectedNormal info cleared")
	d = begin()
	told()
}

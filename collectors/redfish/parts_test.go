package redfish

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
)

// A drive that is replaced is told within the hour, and the old one no longer; a serial number that two resources show is told
// once.
func TestPartsThatAreReplaced(t *testing.T) {
	const drive = "/redfish/v1/Systems/1/Storage/A/Drives/0"
	of := func(serial string) doc {
		return doc{"@odata.id": drive, "Id": "0", "Name": "Drive", "Model": "M", "SerialNumber": serial, "PhysicalLocation": doc{"PartLocation": doc{"LocationOrdinalValue": 3.0}}}
	}
	supply := func() doc { return doc{"MemberId": "0", "Name": "PSU 1", "SerialNumber": "P1", "FirmwareVersion": "7"} }
	tree := service(doc{"Power": link(board + "/Power"), "PowerSubsystem": link(board + "/PowerSubsystem")}, map[string]doc{
		board + "/Power":                          {"PowerSupplies": []any{supply()}},
		board + "/PowerSubsystem":                 {"PowerSupplies": link(board + "/PowerSubsystem/PowerSupplies")},
		board + "/PowerSubsystem/PowerSupplies":   {"Members": []any{link(board + "/PowerSubsystem/PowerSupplies/1")}},
		board + "/PowerSubsystem/PowerSupplies/1": supply(),
		"/redfish/v1/Systems":                     {"Members": []any{link("/redfish/v1/Systems/1")}},
		"/redfish/v1/Systems/1":                   {"Id": "1", "SerialNumber": " S1 ", "Model": "N/A", "BiosVersion": "2.1", "Storage": link("/redfish/v1/Systems/1/Storage")},
		"/redfish/v1/Systems/1/Storage":           {"Members": []any{link("/redfish/v1/Systems/1/Storage/A")}},
		"/redfish/v1/Systems/1/Storage/A":         {"Id": "A", "Drives": []any{link(drive)}},
		drive:                                     of("OLD"),
	})
	tree.Doc("/redfish/v1")["Systems"] = link("/redfish/v1/Systems")
	d := newDevice(t, tree)
	infos := func(since time.Time) (out []string) {
		for _, k := range slices.Sorted(maps.Keys(d.got)) {
			if at := d.at[k]; strings.Contains(k, "_info") && !at[len(at)-1].Before(since) {
				out = append(out, k)
			}
		}
		return out
	}
	for range 6 {
		d.poll()
	}
	want := []string{
		"auspex_disk_info disk3 name=0 model=M serial=OLD",
		"auspex_psu_info psu1 name=0 serial=P1 firmware=7",
		"auspex_server_info name=1 serial=S1 firmware=2.1",
	}
	got := infos(time.Time{})
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("at first (-want +got):\n%s", diff)
	}
	tree.Set(drive, of("NEW"))
	d.now = d.now.Add(time.Hour)
	for range 3 { // it is read when the readings have been
		d.poll()
	}
	changed := d.now
	for range 10 {
		d.poll()
	}
	if all := strings.Join(infos(changed), "\n"); !strings.Contains(all, "serial=NEW") || strings.Contains(all, "serial=OLD") {
		t.Errorf("after the drive was replaced:\n%s", all)
	}
}

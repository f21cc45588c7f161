package discover

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/internal/bmc/redfish/redfishtest"
	"auspex/schemas"
)

// asked is what a sweep finds at a service over HTTPS, with the user admin and the password secret.
func asked(t *testing.T, h http.Handler, change func(*asker)) schemas.Find {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.StartTLS()
	defer s.Close()
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	a := asker{
		timeout: 5 * time.Second, readTime: 20 * time.Second, user: "admin", password: "secret",
		tls:  &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
		turn: func(context.Context, string, string) (func(), error) { return func() {}, nil },
	}
	if change != nil {
		change(&a)
	}
	at := netip.MustParseAddrPort(s.Listener.Addr().String())
	finds, err := a.ask(t.Context(), at.Addr(), []int{int(at.Port())}, nil)
	if err != nil || len(finds) != 1 {
		t.Fatalf("%+v %v", finds, err)
	}
	f := finds[0]
	f.Address = ""
	return f
}

// What four recorded machines say of themselves, wherever they keep it (see testdata/README.md).
func TestRecordedMachinesAreRead(t *testing.T) {
	type part = schemas.FoundPart
	for name, want := range map[string]schemas.Hardware{
		"r750": { // known by its service tag; two ports are of an adapter alone
			Manufacturer: "Dell Inc.", Model: "PowerEdge R750", SerialNumber: "F54P1G3", UUID: "4c4c4544-0035-3410-8050-c6c04f314733", Architecture: "x86_64", BootMode: "uefi",
			GPUs: []part{{Name: "Video.Slot.2-1", Model: "NVIDIA H100 PCIe", SerialNumber: "1654422007043"}},
			NICs: []part{
				{Name: "NIC.Slot.5-1", Model: "BlueField-2 SmartNIC Main Card", MAC: "b8:3f:d2:90:97:c4"},
				{Name: "NIC.Embedded.1-1-1", MAC: "70:b5:e8:f0:52:dc"},
				{Name: "NIC.Embedded.2-1-1", MAC: "70:b5:e8:f0:52:dd"},
				{Name: "InfiniBand.Slot.7-1", MAC: "b8:3f:d2:a4:1b:d2"},
				{Name: "InfiniBand.Slot.7-2", MAC: "b8:3f:d2:a4:1b:d3"},
				{Name: "NIC.Integrated.1-1-1", Model: "BRCM 2P 25G SFP 57414S OCP NIC", MAC: "e4:3d:1a:13:27:f0"},
				{Name: "NIC.Integrated.1-2-1", Model: "BRCM 2P 25G SFP 57414S OCP NIC", MAC: "e4:3d:1a:13:27:f1"},
			},
		},
		"sr670": { // models of GPUs are with their PCIe devices; the one interface with an address leads to the controller
			Manufacturer: "Lenovo", Model: "ThinkSystem SR670 V2", SerialNumber: "J101RZ43", UUID: "bc20d65a-1a53-11ec-8c43-7e8ae1d5a277", Architecture: "x86_64", BootMode: "uefi",
			GPUs: []part{
				{Name: "GPU1", Model: "NVIDIA Quadro RTX A6000", SerialNumber: "1322221026831"}, {Name: "GPU2", Model: "NVIDIA Quadro RTX A6000", SerialNumber: "1322221028609"},
			},
			NICs: []part{{Name: "slot-3"}, {Name: "slot-5"}},
		},
		"dl380a": { // the model of a GPU is the number of the part, and its name the model
			Manufacturer: "HPE", Model: "ProLiant DL380a Gen11 -- SIMULATED", SerialNumber: "2M2D2J00L4", UUID: "39343550-3330-4D32-3244-324A30304C34", Hostname: "DS03-worker", Architecture: "x86_64", BootMode: "uefi",
			GPUs: []part{{Name: "3", Model: "NVIDIA H100 NVL", SerialNumber: "1790125012120"}, {Name: "4", Model: "NVIDIA H100 NVL", SerialNumber: "1790125011977"}},
			NICs: []part{
				{Name: "77", Model: "HPE InfiniBand NDR200/Ethernet 200GbE 2-port QSFP112 PCIe5 x16 MCX755106AC-HEAT Adapter", MAC: "58:a2:e1:03:96:f2"},
				{Name: "78", Model: "HPE InfiniBand NDR200/Ethernet 200GbE 2-port QSFP112 PCIe5 x16 MCX755106AC-HEAT Adapter", MAC: "58:a2:e1:03:96:f3"},
			},
		},
		"gh200": { // serial number and GPUs are those of its baseboard, a system of its own; it tells of no interfaces
			Manufacturer: "NVIDIA", Model: "P3809", SerialNumber: "1580924760074", UUID: "1e90aa6e-6d05-9589-2253-ce7672d02d26",
			GPUs: []part{
				{Name: "GPU_0", Model: "NVIDIA GH200 96GB HBM3", SerialNumber: "1640124000234", UUID: "76def188-0f6f-c471-d807-dee9ac946a39"},
				{Name: "GPU_1", Model: "NVIDIA GH200 96GB HBM3", SerialNumber: "1640124000373", UUID: "4f7febe5-c196-8dd9-9b67-39769f99c9d2"},
			},
		},
	} {
		for how, change := range map[string]func(*redfishtest.Tree){
			"expands":   func(*redfishtest.Tree) {},
			"plain":     func(tr *redfishtest.Tree) { tr.NoExpand = true },
			"ignores":   func(tr *redfishtest.Tree) { tr.Ignores = []string{"$expand"} },
			"in pages":  func(tr *redfishtest.Tree) { tr.PageSize = 1 },
			"basically": func(tr *redfishtest.Tree) { tr.NoSessions = true },
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				tree, err := redfishtest.Open("testdata/" + name + ".tar.gz")
				if err != nil {
					t.Fatal(err)
				}
				change(tree)
				f := asked(t, tree, nil)
				if diff := cmp.Diff(want, f.Hardware); diff != "" || f.Result != schemas.FindFound || f.Message != "" {
					t.Errorf("%s %q\n%s", f.Result, f.Message, diff)
				}
				if n := tree.Requests.Load(); n > 60 {
					t.Errorf("it took %d requests", n)
				}
			})
		}
	}
}

// docs are the documents of a service, whose paths are below /redfish/v1.
func docs(t *testing.T, all map[string]string) *redfishtest.Tree {
	t.Helper()
	out := map[string]map[string]any{}
	for path, text := range all {
		doc := map[string]any{}
		if err := json.Unmarshal([]byte(text), &doc); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		path = strings.TrimSuffix("/redfish/v1/"+path, "/")
		if doc["@odata.id"] = path; path == "/redfish/v1" {
			doc["RedfishVersion"], doc["SessionService"] = "1.15.0", map[string]any{"@odata.id": "/redfish/v1/SessionService"}
		}
		out[path] = doc
	}
	return redfishtest.New(out)
}

func links(below string, names ...string) string {
	var all []string
	for _, n := range names {
		all = append(all, `{"@odata.id":"/redfish/v1/`+below+"/"+n+`"}`)
	}
	return `{"Members":[` + strings.Join(all, ",") + `]}`
}

const (
	resets = `"PowerState":"On","Actions":{"#ComputerSystem.Reset":{"target":"/redfish/v1/Reset"}}`
	oneRow = `{"Systems":{"@odata.id":"/redfish/v1/Systems"},"Chassis":{"@odata.id":"/redfish/v1/Chassis"}}`
)

// fourInOne is a chassis of four computers with one controller. Each has a GPU, the last of them none.
func fourInOne(t *testing.T) *redfishtest.Tree {
	all := map[string]string{
		"": oneRow, "Systems": links("Systems", "Node1", "Node2", "Node3", "Node4"), "Chassis": links("Chassis", "Enclosure", "Sled1", "Sled2"),
		"Chassis/Enclosure": `{"ChassisType":"Enclosure","SerialNumber":"ENC77"}`,
	}
	for _, n := range []string{"1", "2", "3", "4"} {
		all["Systems/Node"+n] = `{"Id":"Node` + n + `",` + resets + `,"SystemType":"Physical","Manufacturer":"Supermicro","Model":"SYS-2","SerialNumber":"S00` + n + `","UUID":"0000000` + n + `-0000-0000-0000-ac1f6b000000",
			"Processors":{"@odata.id":"/redfish/v1/Systems/Node` + n + `/Processors"},"EthernetInterfaces":{"@odata.id":"/redfish/v1/Systems/Node` + n + `/EthernetInterfaces"},
			"Links":{"Chassis":[{"@odata.id":"/redfish/v1/Chassis/Sled` + n + `"}]}}`
		all["Systems/Node"+n+"/Processors"] = links("Systems/Node"+n+"/Processors", "GPU")
		all["Systems/Node"+n+"/Processors/GPU"] = `{"Id":"GPU","ProcessorType":"GPU","Model":"NVIDIA L40S","SerialNumber":"G` + n + `"}`
		all["Systems/Node"+n+"/EthernetInterfaces"] = links("Systems/Node"+n+"/EthernetInterfaces", "1")
		all["Systems/Node"+n+"/EthernetInterfaces/1"] = `{"Id":"1","MACAddress":"ac:1f:6b:00:00:0` + n + `"}`
		all["Chassis/Sled"+n] = `{"ChassisType":"Sled","SerialNumber":"SLED` + n + `","NetworkAdapters":{"@odata.id":"/redfish/v1/Chassis/Sled` + n + `/NetworkAdapters"}}`
		all["Chassis/Sled"+n+"/NetworkAdapters"] = links("Chassis/Sled"+n+"/NetworkAdapters", "AOC")
		all["Chassis/Sled"+n+"/NetworkAdapters/AOC"] = `{"Id":"AOC","Model":"AOC-A100G","Ports":{"@odata.id":"/redfish/v1/Chassis/Sled` + n + `/NetworkAdapters/AOC/Ports"}}`
		all["Chassis/Sled"+n+"/NetworkAdapters/AOC/Ports"] = links("Chassis/Sled"+n+"/NetworkAdapters/AOC/Ports", "1", "2")
		all["Chassis/Sled"+n+"/NetworkAdapters/AOC/Ports/1"] = `{"Id":"1","Ethernet":{"AssociatedMACAddresses":["AC-1F-6B-00-00-0` + n + `"]}}`
		all["Chassis/Sled"+n+"/NetworkAdapters/AOC/Ports/2"] = `{"Id":"2","Ethernet":{"AssociatedMACAddresses":["00:00:00:00:00:00","ac:1f:6b:00:00:1` + n + `"]}}`
	}
	return docs(t, all)
}

// cardsOnly is a white box: no serial number of its own, GPUs that are PCIe devices of chassis, and
// adapters whose addresses are with their ports.
func cardsOnly(t *testing.T) *redfishtest.Tree {
	return docs(t, map[string]string{
		"": oneRow, "Systems": links("Systems", "Self"), "Chassis": links("Chassis", "Mid", "Self", "Tray"),
		"Systems/Self": `{"Id":"Self",` + resets + `,"Manufacturer":"To be filled by O.E.M.","Model":"G493","SerialNumber":"To be filled by O.E.M.","SKU":"G493-ZB3-000",
			"UUID":"03000200-0400-0500-0006-000700080009","Processors":{"@odata.id":"/redfish/v1/Systems/Self/Processors"},"NetworkInterfaces":{"@odata.id":"/redfish/v1/Systems/Self/NetworkInterfaces"},
			"Links":{"Chassis":[{"@odata.id":"/redfish/v1/Chassis/Self"}]}}`,
		"Systems/Self/Processors":        links("Systems/Self/Processors", "CPU0"),
		"Systems/Self/Processors/CPU0":   `{"Id":"CPU0","ProcessorType":"CPU","Model":"EPYC"}`,
		"Systems/Self/NetworkInterfaces": links("Systems/Self/NetworkInterfaces"),
		"Chassis/Mid":                    `{"ChassisType":"Component","SerialNumber":"MID1"}`,
		"Chassis/Self":                   `{"ChassisType":"RackMount","SerialNumber":"GIG1N000","PCIeDevices":{"@odata.id":"/redfish/v1/Chassis/Self/PCIeDevices"},"NetworkAdapters":{"@odata.id":"/redfish/v1/Chassis/Self/NetworkAdapters"}}`,
		"Chassis/Self/PCIeDevices":       links("Chassis/Self/PCIeDevices", "vga", "gpu", "nic", "ssd", "switch"),
		"Chassis/Self/PCIeDevices/vga":   `{"Id":"vga","Manufacturer":"ASPEED","Name":"ASPEED Graphics"}`,
		"Chassis/Self/PCIeDevices/gpu": `{"Id":"gpu","Manufacturer":"NVIDIA","Model":"N/A","PartNumber":"900-2G133","Name":"NVIDIA L40S","SerialNumber":"1320",
			"PCIeFunctions":{"@odata.id":"/redfish/v1/Chassis/Self/PCIeDevices/gpu/PCIeFunctions"}}`,
		"Chassis/Self/PCIeDevices/gpu/PCIeFunctions":      links("Chassis/Self/PCIeDevices/gpu/PCIeFunctions", "0"),
		"Chassis/Self/PCIeDevices/gpu/PCIeFunctions/0":    `{"DeviceClass":"DisplayController","VendorId":"0x10DE"}`,
		"Chassis/Self/PCIeDevices/nic":                    `{"Id":"nic","Manufacturer":"NVIDIA","Name":"ConnectX-7 NDR"}`,
		"Chassis/Self/PCIeDevices/ssd":                    `{"Id":"ssd","Manufacturer":"Samsung","Name":"PM9A3"}`,
		"Chassis/Self/PCIeDevices/switch":                 `{"Id":"switch","Manufacturer":"NVIDIA","Name":"NVSwitch GA100","Links":{"PCIeFunctions":[{"@odata.id":"/redfish/v1/Chassis/Self/PCIeDevices/switch/PCIeFunctions/0"}]}}`,
		"Chassis/Self/PCIeDevices/switch/PCIeFunctions/0": `{"DeviceClass":"Bridge","VendorId":"0x10de"}`,
		"Chassis/Tray":                                     `{"ChassisType":"Module","PCIeDevices":{"@odata.id":"/redfish/v1/Chassis/Tray/PCIeDevices"}}`,
		"Chassis/Tray/PCIeDevices":                         links("Chassis/Tray/PCIeDevices", "OAM1", "OAM2"),
		"Chassis/Tray/PCIeDevices/OAM1":                    `{"Id":"OAM1","Manufacturer":"Advanced Micro Devices","Model":"AMD Instinct MI300X","SerialNumber":"N/A"}`,
		"Chassis/Tray/PCIeDevices/OAM2":                    `{"Id":"OAM2","Manufacturer":"Advanced Micro Devices","Model":"AMD Instinct MI300X","Status":{"State":"Absent"}}`,
		"Chassis/Self/NetworkAdapters":                     links("Chassis/Self/NetworkAdapters", "NIC1"),
		"Chassis/Self/NetworkAdapters/NIC1":                `{"Id":"NIC1","Model":"MCX75310","NetworkPorts":{"@odata.id":"/redfish/v1/Chassis/Self/NetworkAdapters/NIC1/NetworkPorts"}}`,
		"Chassis/Self/NetworkAdapters/NIC1/NetworkPorts":   links("Chassis/Self/NetworkAdapters/NIC1/NetworkPorts", "1"),
		"Chassis/Self/NetworkAdapters/NIC1/NetworkPorts/1": `{"Id":"1","AssociatedNetworkAddresses":["0c:42:a1:00:00:01"]}`,
	})
}

// interfacesOnly has its interfaces in EthernetInterfaces alone: of a bond, and of the controller, too.
func interfacesOnly(t *testing.T) *redfishtest.Tree {
	return docs(t, map[string]string{
		"": `{"Systems":{"@odata.id":"/redfish/v1/Systems"}}`, "Systems": links("Systems", "HGX_Baseboard_0", "System_0"),
		"Systems/HGX_Baseboard_0":                      `{"Id":"HGX_Baseboard_0",` + resets + `,"SystemType":"Physical","SerialNumber":"BOARD1","Processors":{"@odata.id":"/redfish/v1/Systems/HGX_Baseboard_0/Processors"}}`,
		"Systems/HGX_Baseboard_0/Processors":           links("Systems/HGX_Baseboard_0/Processors", "GPU_SXM_1", "GPU_SXM_2", "gone"),
		"Systems/HGX_Baseboard_0/Processors/GPU_SXM_1": `{"Id":"GPU_SXM_1","ProcessorType":"GPU","Model":"H100 80GB HBM3","UUID":"00000000-0000-0000-0000-000000000000"}`,
		"Systems/HGX_Baseboard_0/Processors/GPU_SXM_2": `{"Id":"GPU_SXM_2","ProcessorType":"GPU","Model":"H100 80GB HBM3","UUID":"1f000000-0000-0000-0000-000000000002"}`,
		"Systems/System_0": `{"Id":"System_0",` + resets + `,"SystemType":"Physical","Manufacturer":"Maker","Model":"HGX","SerialNumber":"N/A","HostName":"gpu-7.example.net",
			"EthernetInterfaces":{"@odata.id":"/redfish/v1/Systems/System_0/EthernetInterfaces"}}`,
		"Systems/System_0/EthernetInterfaces":       links("Systems/System_0/EthernetInterfaces", "eno1", "bond0", "usb0", "none"),
		"Systems/System_0/EthernetInterfaces/eno1":  `{"Id":"eno1","PermanentMACAddress":"0c:42:a1:00:00:0a","MACAddress":"0c:42:a1:00:00:ff"}`,
		"Systems/System_0/EthernetInterfaces/bond0": `{"Id":"bond0","MACAddress":"0C42.A100.000A"}`,
		"Systems/System_0/EthernetInterfaces/usb0":  `{"Id":"usb0","MACAddress":"02:00:00:00:00:01"}`,
		"Systems/System_0/EthernetInterfaces/none":  `{"Id":"none","MACAddress":null}`,
	})
}

func TestMachinesOfOtherShapesAreRead(t *testing.T) {
	type part = schemas.FoundPart
	for name, c := range map[string]struct {
		tree    func(*testing.T) *redfishtest.Tree
		want    schemas.Hardware
		message string
	}{
		"four computers in one chassis": {fourInOne, schemas.Hardware{
			Manufacturer: "Supermicro", Model: "SYS-2", SerialNumber: "S001", UUID: "00000001-0000-0000-0000-ac1f6b000000",
			GPUs: []part{{Name: "GPU", Model: "NVIDIA L40S", SerialNumber: "G1"}},
			NICs: []part{{Name: "1", Model: "AOC-A100G", MAC: "ac:1f:6b:00:00:01"}, {Name: "AOC-2", Model: "AOC-A100G", MAC: "ac:1f:6b:00:00:11"}},
		}, "has 4 computers. This is Node1; Node2, Node3, Node4 cannot"},
		"GPUs are cards of chassis": {cardsOnly, schemas.Hardware{
			Model: "G493", SerialNumber: "GIG1N000",
			GPUs: []part{{Name: "gpu", Model: "NVIDIA L40S", SerialNumber: "1320"}, {Name: "OAM1", Model: "AMD Instinct MI300X"}},
			NICs: []part{{Name: "NIC1-1", Model: "MCX75310", MAC: "0c:42:a1:00:00:01"}},
		}, ""},
		"interfaces alone, and a board that can be reset": {interfacesOnly, schemas.Hardware{
			Manufacturer: "Maker", Model: "HGX", SerialNumber: "BOARD1", Hostname: "gpu-7.example.net",
			GPUs: []part{{Name: "GPU_SXM_1", Model: "H100 80GB HBM3"}, {Name: "GPU_SXM_2", Model: "H100 80GB HBM3", UUID: "1f000000-0000-0000-0000-000000000002"}},
			NICs: []part{{Name: "eno1", MAC: "0c:42:a1:00:00:0a"}},
		}, "processors could be read"}, // one of them is gone
	} {
		t.Run(name, func(t *testing.T) {
			f := asked(t, c.tree(t), nil)
			if diff := cmp.Diff(c.want, f.Hardware); diff != "" || f.Result != schemas.FindFound {
				t.Errorf("%s %q\n%s", f.Result, f.Message, diff)
			}
			if !strings.Contains(f.Message, c.message) || c.message == "" && f.Message != "" {
				t.Errorf("it says %q", f.Message)
			}
		})
	}
}

// A service that is busy says when to come again, and one that is slow needs longer than its first
// answer may.
func TestASweepWaitsForAControllerThatIsBusyOrSlow(t *testing.T) {
	busy := func(first string, after func() string, refusals int32) (http.Handler, *atomic.Int32) {
		tree := cardsOnly(t)
		var n atomic.Int32
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, first) && n.Add(1) <= refusals {
				if s := after(); s != "" {
					w.Header().Set("Retry-After", s)
				}
				w.WriteHeader(http.StatusServiceUnavailable)
				_, _ = io.WriteString(w, `{"error":{"message":"The service is temporarily unavailable."}}`)
				return
			}
			tree.ServeHTTP(w, r)
		}), &n
	}
	in := func(s string) func() string { return func() string { return s } }
	date := func() string { return time.Now().Add(time.Second).UTC().Format(http.TimeFormat) }
	for name, c := range map[string]struct {
		path     string
		after    func() string
		refusals int32
		result   string
		serial   string
	}{
		"the root":          {"/redfish/v1", in("1"), 1, schemas.FindFound, "GIG1N000"},
		"the login":         {"/redfish/v1/SessionService", in("0"), 2, schemas.FindFound, "GIG1N000"},
		"its systems":       {"/redfish/v1/Systems/Self", date, 2, schemas.FindFound, "GIG1N000"},
		"for too long":      {"/redfish/v1/Systems", in("3600"), 1, schemas.FindUnreadable, ""},
		"without end":       {"/redfish/v1/Systems", in("0"), 1 << 20, schemas.FindUnreadable, ""},
		"never says when":   {"/redfish/v1/Systems", in(""), 1 << 20, schemas.FindUnreadable, ""},
		"and starts, still": {"/redfish/v1", in("60"), 1 << 20, schemas.FindUnreadable, ""},
	} {
		t.Run(name, func(t *testing.T) {
			h, n := busy(c.path, c.after, c.refusals)
			f := asked(t, h, func(a *asker) { a.readTime = 6 * time.Second })
			if f.Result != c.result || f.SerialNumber != c.serial || f.Result == schemas.FindUnreadable && !strings.Contains(f.Message, "unavailable") {
				t.Errorf("%s %q %+v", f.Result, f.Message, f.Hardware)
			}
			if n.Load() > c.refusals && c.result != schemas.FindFound || n.Load() > 64 {
				t.Errorf("it was asked %d times", n.Load())
			}
		})
	}
	t.Run("slow", func(t *testing.T) {
		tree := cardsOnly(t)
		f := asked(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/Processors") {
				time.Sleep(600 * time.Millisecond) // longer than the first answer may take
			}
			tree.ServeHTTP(w, r)
		}), func(a *asker) { a.timeout = 300 * time.Millisecond })
		if f.Result != schemas.FindFound || f.Message != "" || len(f.GPUs) != 2 {
			t.Errorf("%s %q %+v", f.Result, f.Message, f.Hardware)
		}
	})
	t.Run("not to its end", func(t *testing.T) {
		tree := cardsOnly(t)
		tree.Hang = func(path string) bool { return strings.Contains(path, "PCIeDevices") }
		f := asked(t, tree, func(a *asker) { a.readTime = time.Second })
		if f.Result != schemas.FindFound || f.SerialNumber != "GIG1N000" || !strings.Contains(f.Message, "within 1s") {
			t.Errorf("%s %q %+v", f.Result, f.Message, f.Hardware)
		}
	})
}

// Whoever takes no password but in a session, opened where its root says, is read to the end.
func TestASweepLogsInWhereTheServiceSays(t *testing.T) {
	tree := interfacesOnly(t)
	tree.Doc("/redfish/v1")["Links"] = map[string]any{"Sessions": map[string]any{"@odata.id": "/redfish/v1/Here/Sessions"}}
	var posts []string
	f := asked(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, _, basic := r.BasicAuth(); basic {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if r.Method == http.MethodPost {
			posts = append(posts, r.URL.Path)
		}
		tree.ServeHTTP(w, r)
	}), nil)
	if f.SerialNumber != "BOARD1" || len(posts) != 1 || posts[0] != "/redfish/v1/Here/Sessions" {
		t.Errorf("%+v %v", f, posts)
	}
}

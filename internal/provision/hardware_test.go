package provision_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"auspex/internal/provision"
	"auspex/schemas"
)

// The templates that are shipped can be used.
func TestTheShippedTemplates(t *testing.T) {
	files, err := filepath.Glob("../../deploy/templates/*.yaml")
	if err != nil || len(files) != 4 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var of struct {
			Name          string
			OSFamily      string `yaml:"os_family"`
			Architectures []string
			Parameters    map[string]any
			Text          string
			Description   string
		}
		if err := yaml.Unmarshal(text, &of); err != nil {
			t.Fatal(name, err)
		}
		var parameters map[string]any // as the API has them
		if text, err = json.Marshal(of.Parameters); err == nil {
			err = json.Unmarshal(text, &parameters)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, arch := range of.Architectures {
			b := &schemas.TemplateBody{OSFamily: of.OSFamily, Architectures: []string{arch}, Text: of.Text, Parameters: parameters}
			if err := provision.Check(t.Context(), b); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// site is an inventory as derivation asks it.
type site map[string]schemas.Resource

func (s site) Resource(id string) (schemas.Resource, bool) { r, ok := s[id]; return r, ok }
func (s site) Rack(string) string                          { return "r1" }
func (s site) Site(string) string                          { return "dc1" }
func (s site) Children(id string) (out []string) {
	for name, r := range s {
		if r.Parent == id {
			out = append(out, name)
		}
	}
	return out
}

func (s site) add(id, kind, parent string, attrs ...string) {
	m := map[string]string{}
	for i := 0; i < len(attrs); i += 2 {
		m[attrs[i]] = attrs[i+1]
	}
	s[id] = schemas.Resource{ID: id, Kind: kind, Parent: parent, Attrs: schemas.AttrsOf(m)}
}

func one() site {
	s := site{}
	s.add("a", schemas.KindServer, "", "architecture", "x86_64", "boot_mode", "uefi", "redfish_url", "https://192.0.2.7:8443", "ipmi_ip", "192.0.2.7", "credential", "bmc")
	s.add("a/nic0", schemas.KindNIC, "a", "mac", "02-00-00-00-00-0A", "aliases", "ens1f0")
	s.add("a/ib0", schemas.KindNIC, "a", "mac", "80:00:02:08:fe:80:00:00:00:00:00:00:00:02:c9:03:00:09:45:21")
	s.add("a/disk0", schemas.KindDisk, "a", "aliases", "nvme0n1", "serial", "S1")
	return s
}

func TestARecordIsDerivedFromTheInventory(t *testing.T) {
	r := provision.Derive(one(), &schemas.Server{ID: "1", Name: "a", Pool: "train"}, &schemas.HardwareOverrides{})
	if !r.Installable || len(r.Lacks) != 0 || len(r.Conflicts) != 0 {
		t.Errorf("%v %v", r.Lacks, r.Conflicts)
	}
	nic := schemas.HardwareInterface{
		Resource: "a/nic0", Boot: true, Netboot: schemas.HardwareNetboot{AllowWorkflow: true},
		DHCP: schemas.HardwareDHCP{MAC: "02:00:00:00:00:0a", Hostname: "a", Arch: "x86_64", UEFI: true, IfaceName: "ens1f0"},
	}
	if d := cmp.Diff([]schemas.HardwareInterface{nic}, r.Interfaces); d != "" { // Tinkerbell has no addresses of InfiniBand
		t.Error(d)
	}
	if d := cmp.Diff([]schemas.HardwareDisk{{Device: "/dev/nvme0n1", Resource: "a/disk0", Serial: "S1", Boot: true}}, r.Disks); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(schemas.HardwareBMC{Address: "192.0.2.7:8443", Kind: "redfish", Credential: "bmc"}, r.BMC); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(schemas.HardwareMetadata{Hostname: "a", Site: "dc1", Rack: "r1", Pool: "train", Labels: map[string]string{}}, r.Metadata); d != "" {
		t.Error(d)
	}
}

// What is not known is not guessed, and the record says what and why.
func TestWhatARecordLacks(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(site)
		over   schemas.HardwareOverrides
		lacks  []string
		why    string
	}{
		"no architecture":     {func(s site) { s["a"] = without(s["a"], "architecture") }, schemas.HardwareOverrides{}, []string{"architecture"}, "The inventory does not say"},
		"a strange one":       {func(s site) { s["a"] = with(s["a"], "architecture", "sparc") }, schemas.HardwareOverrides{}, []string{"architecture"}, `The inventory says "sparc"`},
		"a strange one, said": {func(s site) { s["a"] = with(s["a"], "architecture", "sparc") }, schemas.HardwareOverrides{Architecture: "aarch64"}, []string{}, ""},
		"two interfaces":      {func(s site) { s.add("a/nic1", schemas.KindNIC, "a", "mac", "02:00:00:00:00:0b") }, schemas.HardwareOverrides{}, []string{"boot_mac"}, "There are 2 interfaces, and nothing says which"},
		"one of two is marked": {func(s site) {
			s.add("a/nic1", schemas.KindNIC, "a", "mac", "02:00:00:00:00:0b", "boot", "true")
		}, schemas.HardwareOverrides{}, []string{}, ""},
		"both are marked": {func(s site) {
			s["a/nic0"] = with(s["a/nic0"], "boot", "true")
			s.add("a/nic1", schemas.KindNIC, "a", "mac", "02:00:00:00:00:0b", "boot", "true")
		}, schemas.HardwareOverrides{}, []string{"boot_mac"}, "marks 2 interfaces"},
		"another whose address is not known": {func(s site) { s.add("a/nic1", schemas.KindNIC, "a") }, schemas.HardwareOverrides{}, []string{"boot_mac"}, "There are 2 interfaces"},
		"no interface":                       {func(s site) { delete(s, "a/nic0") }, schemas.HardwareOverrides{}, []string{"boot_mac"}, "knows no interface"},
		"a second disk that nobody names":    {func(s site) { s.add("a/disk1", schemas.KindDisk, "a", "serial", "S2") }, schemas.HardwareOverrides{}, []string{"boot_disk"}, "There are 2 disks"},
		"the disk is said":                   {func(s site) { s.add("a/disk1", schemas.KindDisk, "a", "serial", "S2") }, schemas.HardwareOverrides{BootDisk: "/dev/nvme0n1"}, []string{}, ""},
		"no controller": {
			func(s site) { s["a"] = without(s["a"], "redfish_url", "ipmi_ip", "credential") },
			schemas.HardwareOverrides{},
			[]string{"bmc_address", "bmc_kind", "bmc_credential"},
			"The inventory has no address of its board controller",
		},
	} {
		s := one()
		tc.change(s)
		r := provision.Derive(s, &schemas.Server{ID: "1", Name: "a"}, &tc.over)
		var why strings.Builder
		for _, f := range r.Facts {
			if slices.Contains(r.Lacks, f.Fact) {
				why.WriteString(f.Why)
			}
		}
		if !slices.Equal(r.Lacks, tc.lacks) || r.Installable != (len(tc.lacks) == 0) || !strings.Contains(why.String(), tc.why) {
			t.Errorf("%s: lacks %v, want %v: %s", name, r.Lacks, tc.lacks, why.String())
		}
	}
}

func with(r schemas.Resource, key, value string) schemas.Resource {
	r.Attrs = r.Attrs.With(key, value)
	return r
}

func without(r schemas.Resource, keys ...string) schemas.Resource {
	r.Attrs = r.Attrs.Without(keys...)
	return r
}

// Over any inventory and any overrides: what a record says and nobody overrode is what the inventory
// says; what somebody did wins, and where the inventory says otherwise, the record has a conflict;
// what it lacks has no value; one interface and one disk boot at most, and they come first.
func TestARecordNeverContradictsTheInventory(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 9)) //nolint:gosec // a test
	pick := func(words ...string) string { return words[rnd.IntN(len(words))] }
	mac := func() string { return fmt.Sprintf("02:00:00:00:00:%02x", rnd.IntN(6)) }
	for n := range 3000 {
		s := site{}
		s.add("a", schemas.KindServer, "", "architecture", pick("", "x86_64", "aarch64", "sparc"), "boot_mode", pick("", "uefi", "bios"),
			"redfish_url", pick("", "https://b", "%"), "ipmi_ip", pick("", "c"), "credential", pick("", "k"))
		macs, disks := map[string]bool{}, map[string]bool{}
		for i := range rnd.IntN(4) {
			m := pick(mac(), "", "no address")
			s.add(fmt.Sprintf("a/nic%d", i), schemas.KindNIC, "a", "mac", m, "boot", pick("", "true"))
			macs[m] = true
		}
		for i := range rnd.IntN(3) {
			device := pick("", fmt.Sprintf("/dev/nvme%dn1", i))
			s.add(fmt.Sprintf("a/disk%d", i), schemas.KindDisk, "a", "device", device, "boot", pick("", "true"))
			disks[device] = true
		}
		o := schemas.HardwareOverrides{Architecture: pick("", "", "x86_64"), BootMode: pick("", "uefi"), BootMAC: pick("", mac()), BootDisk: pick("", "/dev/nvme0n1", "/dev/sdz")}
		if rnd.IntN(2) == 0 {
			o.BMC = &schemas.HardwareBMC{Address: pick("", "d"), Kind: pick("", "ipmi")}
		}
		r := provision.Derive(s, &schemas.Server{ID: "1", Name: "a"}, &o)
		told := func(problem string, args ...any) {
			t.Helper()
			t.Fatalf("%d: %s\n%+v\n%v", n, fmt.Sprintf(problem, args...), r, s)
		}
		conflicted := func(fact string) bool {
			return slices.ContainsFunc(r.Conflicts, func(c schemas.HardwareConflict) bool { return c.Fact == fact })
		}
		for _, f := range r.Facts {
			if (f.Value == "") != (f.From == schemas.FromNowhere) || (f.Value == "") != slices.Contains(r.Lacks, f.Fact) || f.Why == "" {
				told("%+v", f)
			}
			if f.From == schemas.FromOverride && f.Inventory != "" && f.Inventory != f.Value && !conflicted(f.Fact) {
				told("no conflict of %s", f.Fact)
			}
			if said := map[string]string{"architecture": o.Architecture, "boot_mode": o.BootMode, "boot_mac": o.BootMAC, "boot_disk": o.BootDisk}[f.Fact]; said != "" && (f.Value != said || f.From != schemas.FromOverride) {
				told("%s was overridden by %s", f.Fact, said)
			}
			if is := s["a"].Attrs.Get(f.Fact); f.From == schemas.FromInventory && is != "" && is != f.Value {
				told("%s is %s", f.Fact, is)
			}
		}
		seen := map[string]bool{}
		for k, i := range r.Interfaces {
			if i.Boot != (k == 0 && r.Fact(schemas.FactBootMAC) != "") || seen[i.DHCP.MAC] || i.Boot && i.DHCP.MAC != r.Fact(schemas.FactBootMAC) || !i.Boot && i.Netboot.AllowPXE {
				told("interface %d", k)
			}
			seen[i.DHCP.MAC] = true
			if i.Resource == "" && (i.DHCP.MAC != o.BootMAC || !conflicted(schemas.FactBootMAC)) || i.Resource != "" && !macs[i.DHCP.MAC] {
				told("interface %s is not of the inventory", i.DHCP.MAC)
			}
		}
		for m := range macs {
			if strings.Contains(m, ":") && !seen[m] {
				told("the interface %s is lost", m)
			}
		}
		for k, d := range r.Disks {
			if d.Boot != (k == 0 && r.Fact(schemas.FactBootDisk) != "") || d.Boot && d.Device != r.Fact(schemas.FactBootDisk) {
				told("disk %d", k)
			}
			if d.Resource == "" && (d.Device != o.BootDisk || !conflicted(schemas.FactBootDisk)) || d.Resource != "" && !disks[d.Device] {
				told("disk %s is not of the inventory", d.Device)
			}
		}
	}
}

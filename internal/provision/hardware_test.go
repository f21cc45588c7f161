package provision_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"auspex/deploy/templates"
	"auspex/internal/provision"
	"auspex/schemas"
)

// The templates that are shipped can be used.
func TestTheShippedTemplates(t *testing.T) {
	files, err := filepath.Glob("../../deploy/templates/*.yaml")
	if err != nil || len(files) != 3 {
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

// Whatever the template of Ubuntu is to set up, cloud-init takes it; and what is needed for it and not
// given is a fault, not a server that joins nothing.
func TestWhatTheTemplateOfUbuntuSetsUp(t *testing.T) {
	shipped, err := templates.All()
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(shipped, func(s templates.Shipped) bool { return s.Name == "ubuntu" })
	given := map[string]any{"image_url": "http://i/a.raw.gz", "metadata_url": "http://m", "actions": "i/a", "actions_version": "v1", "reboot_image": "i/r:1"}
	const hash = "sha256:7c2e69131a36ae2a042a339b33381c6d0d43887e2de83720eff5359e26aec866"
	r := provision.Derive(one(), &schemas.Server{ID: "1", Name: "a"}, &schemas.HardwareOverrides{})
	for name, tc := range map[string]struct {
		more map[string]any
		want map[string]any // of the cloud-config
		bad  string
	}{
		"nothing": {nil, map[string]any{}, ""},
		"a user": {map[string]any{"ssh_keys": []any{"ssh-ed25519 A a: \"b\""}}, map[string]any{"users": []any{map[string]any{
			"name": "ops", "groups": []any{"adm", "sudo"}, "shell": "/bin/bash", "lock_passwd": true, "sudo": "ALL=(ALL) NOPASSWD:ALL",
			"ssh_authorized_keys": []any{"ssh-ed25519 A a: \"b\""},
		}}}, ""},
		"a driver and what goes with it": {map[string]any{"nvidia_driver": "570.148.08", "nvidia_repositories": []any{"deb http://m/ /", "deb http://n/ /"}}, map[string]any{
			"package_update": true, "packages": []any{
				[]any{"nvidia-open-570", "570.148.08-1ubuntu1"},
				[]any{"nvidia-persistenced", "570.148.08-1ubuntu1"},
				[]any{"nvidia-fabricmanager-570", "570.148.08-1"},
				[]any{"nvidia-container-toolkit", "1.17.8-1"},
				[]any{"nvidia-container-toolkit-base", "1.17.8-1"},
				[]any{"libnvidia-container-tools", "1.17.8-1"},
				[]any{"libnvidia-container1", "1.17.8-1"},
			},
			"write_files": []any{map[string]any{"path": "/etc/apt/sources.list.d/nvidia.list", "content": "deb http://m/ /\ndeb http://n/ /"}},
			"runcmd":      []any{[]any{"systemctl", "enable", "--now", "nvidia-persistenced", "nvidia-fabricmanager"}},
		}, ""},
		"an untested driver": {map[string]any{"nvidia_driver": "1.2.3"}, nil, "parameters.nvidia_driver"},
		"k0s": {map[string]any{"join": "k0s", "join_token": "secret:t"}, map[string]any{
			"write_files": []any{map[string]any{"path": "/etc/k0s/token", "permissions": "0600", "content": "t0k: \"en\"\n"}},
			"runcmd":      []any{[]any{"k0s", "install", "worker", "--token-file", "/etc/k0s/token"}, []any{"k0s", "start"}},
		}, ""},
		"k0s without its token": {map[string]any{"join": "k0s"}, nil, "want string at write_files.0.content"},
		"kubeadm": {map[string]any{"join": "kubeadm", "join_token": "secret:t", "join_endpoint": "10.0.0.1:6443", "join_ca_hash": hash}, map[string]any{
			"write_files": []any{map[string]any{
				"path": "/etc/kubernetes/join.json", "permissions": "0600",
				"content": `{"apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "JoinConfiguration", "discovery": {"bootstrapToken": {"apiServerEndpoint": "10.0.0.1:6443", ` +
					`"token": "t0k: \"en\"\n", "caCertHashes": ["` + hash + `"]}}}`,
			}},
			"runcmd": []any{[]any{"kubeadm", "join", "--config", "/etc/kubernetes/join.json"}},
		}, ""},
		"kubeadm without a hash": {map[string]any{"join": "kubeadm", "join_token": "secret:t", "join_endpoint": "10.0.0.1:6443"}, nil, "want string at write_files.0.content"},
		"slurm": {map[string]any{"join": "slurm", "join_token": "secret:t", "join_endpoint": "ctl:6817"}, map[string]any{
			"package_update": true, "packages": []any{"munge", "slurmd"},
			"write_files": []any{
				map[string]any{"path": "/etc/munge/munge.key", "encoding": "b64", "permissions": "0400", "owner": "munge:munge", "defer": true, "content": "t0k: \"en\"\n"},
				map[string]any{"path": "/etc/default/slurmd", "content": "SLURMD_OPTIONS=--conf-server ctl:6817\n"},
			},
			"runcmd": []any{[]any{"systemctl", "restart", "munge", "slurmd"}},
		}, ""},
		"slurm without an endpoint": {map[string]any{"join": "slurm", "join_token": "secret:t"}, nil, "want string at write_files.1.content"},
		"a network":                 {map[string]any{"mtu": 9000}, map[string]any{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			all := maps.Clone(given)
			maps.Copy(all, tc.more)
			secret := func(context.Context, string) (string, error) { return "t0k: \"en\"\n", nil }
			text, _, _, err := provision.Render(t.Context(), &shipped[at].TemplateBody, all, &r, secret)
			if tc.bad != "" {
				if err == nil || !strings.Contains(err.Error(), tc.bad) {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var w struct {
				Tasks []struct {
					Actions []struct{ Environment map[string]string }
				}
			}
			if err := yaml.Unmarshal([]byte(text), &w); err != nil {
				t.Fatal(err)
			}
			files := map[string]string{}
			for _, a := range w.Tasks[0].Actions {
				files[a.Environment["DEST_PATH"]] = a.Environment["CONTENTS"]
			}
			is := map[string]any{}
			if err := yaml.Unmarshal([]byte(files["/etc/cloud/cloud.cfg.d/20_auspex.cfg"]), &is); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, is); d != "" {
				t.Error(d)
			}
			if network := files["/etc/cloud/cloud.cfg.d/15_network.cfg"]; (network != "") != (name == "a network") || network != "" && !strings.Contains(network, `{match: {macaddress: "02:00:00:00:00:0a"}, dhcp4: true, mtu: 9000}`) {
				t.Error(network)
			}
		})
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

package templates_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
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

const (
	hash = "sha256:7c2e69131a36ae2a042a339b33381c6d0d43887e2de83720eff5359e26aec866"
	id   = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
)

type values = map[string]any

// least is what each template has to be given.
var least = map[string]values{
	"ubuntu":  {"image_url": "http://i/a.raw.gz", "metadata_url": "http://m", "actions": "i/a", "actions_version": "v1", "reboot_image": "i/r:1"},
	"flatcar": {"image_url": "http://i/a.bin.gz", "actions": "i/a", "actions_version": "v1", "reboot_image": "i/r:1"},
	"talos":   {"schematic": strings.Repeat("0a", 32), "talos_version": "v1.9.1", "actions": "i/a", "actions_version": "v1", "reboot_image": "i/r:1"},
}

func with(sets ...values) values {
	out := values{}
	for _, s := range sets {
		maps.Copy(out, s)
	}
	return out
}

// render renders a shipped template; its secrets are t0k: "en" with the name that they have.
func render(t *testing.T, name string, more values) (files, commands map[string]string, err error) {
	t.Helper()
	shipped, err := templates.All()
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(shipped, func(s templates.Shipped) bool { return s.Name == name })
	r := schemas.HardwareRecord{
		ID: "1", Name: "a", Interfaces: []schemas.HardwareInterface{{Boot: true, DHCP: schemas.HardwareDHCP{MAC: "02:00:00:00:00:0a", Arch: schemas.ArchX86}}},
		Disks: []schemas.HardwareDisk{{Device: "/dev/nvme0n1", Boot: true}}, Metadata: schemas.HardwareMetadata{Hostname: "a"},
	}
	secret := func(_ context.Context, name string) (string, error) { return "t0k: \"en\"\n" + name, nil }
	text, _, _, err := provision.Render(t.Context(), &shipped[at].TemplateBody, with(least[name], more), &r, secret)
	if err != nil {
		return nil, nil, err
	}
	var w struct {
		Tasks []struct {
			Actions []struct {
				Name        string
				Environment map[string]string
				Command     []string
			}
		}
	}
	if err := yaml.Unmarshal([]byte(text), &w); err != nil {
		t.Fatal(err)
	}
	files, commands = map[string]string{}, map[string]string{}
	for _, a := range w.Tasks[0].Actions {
		if path := a.Environment["DEST_PATH"]; path != "" {
			files[a.Environment["DEST_DISK"]+path] = a.Environment["CONTENTS"]
		}
		commands[a.Name] = strings.Join(a.Command, " ")
	}
	return files, commands, nil
}

// What one system has and another has not is refused with the name of the parameter and of the system.
func TestWhatASystemHasNot(t *testing.T) {
	k8s := values{"join": "kubeadm", "join_token": "secret:t", "join_endpoint": "10.0.0.1:6443", "join_ca_hash": hash, "kubernetes_url": "http://i/kubernetes-v1.32.2-x86-64.raw"}
	talos := values{
		"join": "talos", "disk_image": "i/d:1", "join_endpoint": "10.0.0.1:6443", "join_cluster_id": id, "join_token": "secret:a", "join_ca": "secret:b",
		"join_cluster_secret": "secret:c", "join_cluster_token": "secret:d", "join_cluster_ca": "secret:e",
	}
	lacks := func(of values, name string) values {
		out := with(of)
		delete(out, name)
		return out
	}
	for _, tc := range []struct {
		of   string
		more values
		want string
	}{
		{"talos", values{"ssh_keys": []any{"k"}}, "parameters.ssh_keys: is nothing for talos: Talos has no SSH"},
		{"talos", values{"user": "ann"}, "parameters.user: is nothing for talos: Talos has no users"},
		{"talos", values{"nvidia_repositories": []any{"deb http://m/ /"}}, "parameters.nvidia_repositories: is nothing for talos: Talos installs no packages"},
		{"talos", values{"join": "slurm"}, "parameters.join: value must be 'talos' for talos: That it is a worker of a cluster of Talos"},
		{"talos", values{"image_url": "http://i"}, "parameters.image_url: is no parameter of this template, which is for talos"},
		{"talos", values{"mtu": 9000}, "parameters.join: is needed with what the machine configuration is made of"},
		{"talos", values{"sysctls": values{"a": "1"}}, "parameters.join: is needed with what"},
		{"talos", lacks(talos, "join"), "parameters.join: is needed with what"},
		{"talos", lacks(talos, "disk_image"), "parameters.disk_image: is needed with join"},
		{"talos", lacks(talos, "join_endpoint"), "parameters.join_endpoint: is needed with join"},
		{"talos", lacks(talos, "join_cluster_id"), "parameters.join_cluster_id: is needed with join"},
		{"talos", lacks(talos, "join_token"), "parameters.join_token: is needed with join"},
		{"talos", lacks(talos, "join_ca"), "parameters.join_ca: is needed with join"},
		{"talos", lacks(talos, "join_cluster_secret"), "parameters.join_cluster_secret: is needed with join"},
		{"talos", lacks(talos, "join_cluster_token"), "parameters.join_cluster_token: is needed with join"},
		{"talos", lacks(talos, "join_cluster_ca"), "parameters.join_cluster_ca: is needed with join"},
		{"talos", with(talos, values{"join_ca": "LS0tLS1CRUdJTi"}), "parameters.join_ca: is no reference to a secret"},
		{"talos", with(talos, values{"join_cluster_id": "abc"}), "parameters.join_cluster_id: 'abc' does not match pattern"},
		{"talos", with(talos, values{"kernel_modules": []any{"a b"}}), "parameters.kernel_modules.0: 'a b' does not match pattern"},
		{"talos", with(talos, values{"sysctls": values{"a": 1}}), "parameters.sysctls.a: got number, want string"},
		{"flatcar", values{"join": "slurm", "join_token": "secret:t"}, "parameters.join: value must be one of 'k0s', 'kubeadm' for flatcar: What it joins at its first start. slurmd and munge are in none of its images"},
		{"flatcar", values{"nvidia_repositories": []any{"deb http://m/ /"}}, "parameters.nvidia_repositories: is nothing for flatcar: it installs no packages"},
		{"flatcar", values{"nvidia_driver": "570.148.08"}, "parameters.nvidia_driver: value must be '570-open' for flatcar: The system extension"},
		{"flatcar", values{"nvidia_driver": "570-open"}, "parameters.nvidia_toolkit_url: is needed with nvidia_driver"},
		{"flatcar", values{"nvidia_driver": "570-open", "nvidia_toolkit_url": "http://i/nvidia-runtime-v1.16.2-x86-64.raw"}, "parameters.nvidia_toolkit_url: 'http://i/nvidia-runtime-v1.16.2-x86-64.raw' does not match"},
		{"flatcar", values{"nvidia_toolkit_url": "http://i/nvidia-runtime-v1.17.9-x86-64.raw"}, "parameters.nvidia_driver: is needed with nvidia_toolkit_url"},
		{"flatcar", values{"mtu": 100}, "parameters.mtu: minimum: got 100, want 1,280"},
		{"flatcar", values{"join_token": "secret:t"}, "parameters.join: is needed"},
		{"flatcar", lacks(k8s, "join_token"), "parameters.join_token: is needed to join by kubeadm"},
		{"flatcar", lacks(k8s, "join_endpoint"), "parameters.join_endpoint: is needed to join by kubeadm"},
		{"flatcar", lacks(k8s, "join_ca_hash"), "parameters.join_ca_hash: is needed to join by kubeadm"},
		{"flatcar", lacks(k8s, "kubernetes_url"), "parameters.kubernetes_url: is needed to join by kubeadm"},
		{"flatcar", values{"join": "k0s", "join_token": "secret:t"}, "parameters.k0s_url: is needed to join by k0s"},
		{"flatcar", values{"join": "k0s", "join_token": "secret:t", "k0s_url": "http://i/k0s"}, "parameters.k0s_profile: is needed to join by k0s"},
		{"ubuntu", values{"schematic": "a"}, "parameters.schematic: is no parameter of this template, which is for ubuntu"},
		{"ubuntu", values{"join_endpoint": "a:1"}, "parameters.join: is needed"},
	} {
		_, _, err := render(t, tc.of, tc.more)
		if err == nil || !strings.HasPrefix(err.Error(), tc.want) || strings.Contains(err.Error(), "LS0tLS1CRUdJTi") {
			t.Errorf("%s %v: %v, want %s", tc.of, tc.more, err, tc.want)
		}
	}
}

// ignition is what the template of Flatcar writes, with the files as they will be.
type ignition struct {
	Users any
	Files map[string]string
	Links map[string]string
	Units map[string]string
}

func TestWhatTheTemplateOfFlatcarSetsUp(t *testing.T) {
	masked := map[string]string{"locksmithd.service": "masked", "update-engine.service": "masked"}
	unit := func(name, text string) map[string]string {
		out := maps.Clone(masked)
		out[name] = text
		return out
	}
	host := map[string]string{"/etc/hostname 420": "a"}
	and := func(more map[string]string) map[string]string {
		out := maps.Clone(more)
		maps.Copy(out, host)
		return out
	}
	for name, tc := range map[string]struct {
		more values
		want ignition
	}{
		"nothing": {nil, ignition{Files: host, Units: masked}},
		"updates": {values{"updates": true}, ignition{Files: host, Units: map[string]string{"locksmithd.service": "", "update-engine.service": ""}}},
		"keys":    {values{"ssh_keys": []any{"ssh-ed25519 A \"b\""}}, ignition{Users: []any{values{"name": "core", "sshAuthorizedKeys": []any{"ssh-ed25519 A \"b\""}}}, Files: host, Units: masked}},
		"a user": {values{"ssh_keys": []any{"k"}, "user": "ann"}, ignition{
			Users: []any{values{"name": "ann", "groups": []any{"docker", "sudo"}, "sshAuthorizedKeys": []any{"k"}}},
			Files: and(map[string]string{"/etc/sudoers.d/auspex 288": "ann ALL=(ALL) NOPASSWD: ALL\n"}), Units: masked,
		}},
		"a network": {values{"mtu": 9000}, ignition{
			Files: and(map[string]string{"/etc/systemd/network/00-boot.network 420": "[Match]\nMACAddress=02:00:00:00:00:0a\n[Link]\nMTUBytes=9000\n[Network]\nDHCP=ipv4\n[DHCPv4]\nUseMTU=false\n"}), Units: masked,
		}},
		"k0s": {values{"join": "k0s", "join_token": "secret:t", "k0s_url": "http://i/k0s", "k0s_profile": "flatcar"}, ignition{
			Files: and(map[string]string{"/opt/bin/k0s 493": "http://i/k0s", "/etc/k0s/token 384": "t0k: \"en\"\nt"}),
			Units: unit("k0sworker.service", "ExecStart=/opt/bin/k0s worker --profile=flatcar --token-file=/etc/k0s/token"),
		}},
		"a driver, and kubeadm": {values{
			"nvidia_driver": "570-open", "nvidia_toolkit_url": "http://i/nvidia-runtime-v1.17.9-x86-64.raw",
			"join": "kubeadm", "join_token": "secret:t", "join_endpoint": "10.0.0.1:6443", "join_ca_hash": hash, "kubernetes_url": "http://i/kubernetes-v1.32.2-x86-64.raw",
		}, ignition{
			Files: and(map[string]string{
				"/etc/flatcar/enabled-sysext.conf 420": "nvidia-drivers-570-open\n", "/opt/extensions/nvidia-runtime.raw 420": "http://i/nvidia-runtime-v1.17.9-x86-64.raw",
				"/opt/extensions/kubernetes.raw 420": "http://i/kubernetes-v1.32.2-x86-64.raw",
				"/etc/kubernetes/join.json 384": `{"apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "JoinConfiguration", "discovery": {"bootstrapToken": {"apiServerEndpoint": "10.0.0.1:6443", ` +
					`"token": "t0k: \"en\"\nt", "caCertHashes": ["` + hash + `"]}}}`,
			}),
			Links: map[string]string{"/etc/extensions/nvidia-runtime.raw": "/opt/extensions/nvidia-runtime.raw", "/etc/extensions/kubernetes.raw": "/opt/extensions/kubernetes.raw"},
			Units: unit("kubeadm-join.service", "After=network-online.target containerd.service systemd-sysext.service nvidia.service"),
		}},
		"a driver alone": {values{"nvidia_driver": "570-open", "nvidia_toolkit_url": "http://i/nvidia-runtime-v1.17.9-x86-64.raw"}, ignition{
			Files: and(map[string]string{"/etc/flatcar/enabled-sysext.conf 420": "nvidia-drivers-570-open\n", "/opt/extensions/nvidia-runtime.raw 420": "http://i/nvidia-runtime-v1.17.9-x86-64.raw"}),
			Links: map[string]string{"/etc/extensions/nvidia-runtime.raw": "/opt/extensions/nvidia-runtime.raw"}, Units: masked,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			files, _, err := render(t, "flatcar", tc.more)
			if err != nil {
				t.Fatal(err)
			}
			text := files["/dev/nvme0n1p6/config.ign"]
			if err := provision.CheckUserData(text); err != nil {
				t.Error(err)
			}
			var is struct {
				Passwd  struct{ Users any }
				Storage struct {
					Files []struct {
						Path     string
						Mode     int
						Contents struct{ Source string }
					}
					Links []struct{ Path, Target string }
				}
				Systemd struct {
					Units []struct {
						Name, Contents string
						Mask, Enabled  bool
					}
				}
			}
			if err := json.Unmarshal([]byte(text), &is); err != nil {
				t.Fatal(err)
			}
			got := ignition{Users: is.Passwd.Users, Files: map[string]string{}, Units: map[string]string{}}
			for _, f := range is.Storage.Files {
				mode, _ := json.Marshal(f.Mode)
				content := strings.TrimPrefix(f.Contents.Source, "data:,")
				if b64, ok := strings.CutPrefix(content, "data:;base64,"); ok {
					plain, err := base64.StdEncoding.DecodeString(b64)
					if err != nil {
						t.Fatal(err)
					}
					content = string(plain)
				}
				got.Files[f.Path+" "+string(mode)] = content
			}
			for _, l := range is.Storage.Links {
				if got.Links == nil {
					got.Links = map[string]string{}
				}
				got.Links[l.Path] = l.Target
			}
			for _, u := range is.Systemd.Units {
				got.Units[u.Name] = u.Contents
				if u.Mask {
					got.Units[u.Name] = "masked"
				}
				for line := range strings.SplitSeq(u.Contents, "\n") {
					if line == tc.want.Units[u.Name] && line != "" && u.Enabled {
						got.Units[u.Name] = line
					}
				}
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestWhatTheTemplateOfTalosSetsUp(t *testing.T) {
	join := values{
		"join": "talos", "disk_image": "i/d:1", "join_endpoint": "10.0.0.1:6443", "join_cluster_id": id, "join_token": "secret:a", "join_ca": "secret:b",
		"join_cluster_secret": "secret:c", "join_cluster_token": "secret:d", "join_cluster_ca": "secret:e",
	}
	machine := func(more values) values {
		return values{
			"version": "v1alpha1",
			"machine": with(values{
				"type": "worker", "token": "t0k: \"en\"\na", "ca": values{"crt": "t0k: \"en\"\nb", "key": ""}, "network": values{"hostname": "a"},
				"install": values{"disk": "/dev/nvme0n1", "image": "factory.talos.dev/installer/" + strings.Repeat("0a", 32) + ":v1.9.1"},
			}, more),
			"cluster": values{
				"id": id, "secret": "t0k: \"en\"\nc", "token": "t0k: \"en\"\nd", "ca": values{"crt": "t0k: \"en\"\ne", "key": ""},
				"controlPlane": values{"endpoint": "https://10.0.0.1:6443"}, "discovery": values{"enabled": true},
			},
		}
	}
	named := func(names ...string) (out []any) {
		for _, n := range names {
			out = append(out, values{"name": n})
		}
		return out
	}
	for name, tc := range map[string]struct {
		more, want values
	}{
		"nothing":  {nil, nil},
		"a worker": {join, machine(nil)},
		"a driver": {with(join, values{"nvidia_driver": "extensions", "kernel_modules": []any{"ib_uverbs"}, "sysctls": values{"vm.nr_hugepages": "1024"}}), machine(values{
			"kernel":  values{"modules": named("nvidia", "nvidia_uvm", "nvidia_drm", "nvidia_modeset", "ib_uverbs")},
			"sysctls": values{"net.core.bpf_jit_harden": "1", "vm.nr_hugepages": "1024"},
		})},
		"sysctls": {with(join, values{"nvidia_driver": "extensions", "sysctls": values{"net.core.bpf_jit_harden": "0"}}), machine(values{
			"kernel": values{"modules": named("nvidia", "nvidia_uvm", "nvidia_drm", "nvidia_modeset")}, "sysctls": values{"net.core.bpf_jit_harden": "0"},
		})},
		"a network": {with(join, values{"mtu": 9000}), machine(values{"network": values{
			"hostname": "a", "interfaces": []any{values{"deviceSelector": values{"hardwareAddr": "02:00:00:00:00:0a"}, "dhcp": true, "mtu": 9000}},
		}})},
	} {
		t.Run(name, func(t *testing.T) {
			files, commands, err := render(t, "talos", tc.more)
			if err != nil {
				t.Fatal(err)
			}
			text, written := files["/dev/nvme0n1p16/config.yaml"]
			if err := provision.CheckUserData(text); err != nil || written != (tc.want != nil) {
				t.Fatal(written, err)
			}
			if made := commands["make a partition for the machine configuration"]; strings.Contains(made, "mkfs.vfat -n metal-iso") != written {
				t.Error(made)
			}
			var is values
			if err := yaml.Unmarshal([]byte(text), &is); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, is); d != "" {
				t.Error(d)
			}
		})
	}
}

// cloud-init itself takes what the template of Ubuntu writes.
func TestCloudInitTakesWhatTheTemplateOfUbuntuWrites(t *testing.T) {
	path := os.Getenv("CLOUDINIT_PYTHONPATH")
	if path == "" {
		if os.Getenv("AUSPEX_E2E") == "1" {
			t.Fatal("CLOUDINIT_PYTHONPATH is not set: test/e2e.sh starts the peer and sets it")
		}
		t.Skip("CLOUDINIT_PYTHONPATH is not set: run `make e2e` to test against this peer")
	}
	for name, more := range map[string]values{
		"all, kubeadm": {
			"ssh_keys": []any{"k"}, "nvidia_driver": "570.148.08", "nvidia_repositories": []any{"deb http://m/ /"},
			"join": "kubeadm", "join_token": "secret:t", "join_endpoint": "10.0.0.1:6443", "join_ca_hash": hash,
		},
		"k0s": {"join": "k0s", "join_token": "secret:t"}, "slurm": {"join": "slurm", "join_token": "secret:t", "join_endpoint": "ctl:6817"},
	} {
		files, _, err := render(t, "ubuntu", more)
		if err != nil {
			t.Fatal(err)
		}
		at := filepath.Join(t.TempDir(), "user-data")
		if err := os.WriteFile(at, []byte(files["/dev/nvme0n1p1/etc/cloud/cloud.cfg.d/20_auspex.cfg"]), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "/usr/bin/python3", "-m", "cloudinit.cmd.main", "schema", "--config-file", at)
		cmd.Env = append(os.Environ(), "PYTHONPATH="+path)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

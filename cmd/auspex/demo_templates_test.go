package main

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"auspex/deploy/templates"
	"auspex/internal/provision"
	"auspex/schemas"
)

func TestTheDemoInstallsWithNothingButAServer(t *testing.T) {
	shipped, err := templates.All()
	if err != nil || len(shipped) != 4 {
		t.Fatal(len(shipped), err)
	}
	for i := range shipped {
		s := &shipped[i]
		withDefaults(s.Parameters, "http://127.0.0.1:8000/")
		if err := provision.Check(t.Context(), &s.TemplateBody); err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
		if required, _ := s.Parameters["required"].([]any); len(required) > 0 {
			t.Errorf("%s: a caller has to give %v", s.Name, required)
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
	r := schemas.HardwareRecord{
		ID: "1", Name: "a", Interfaces: []schemas.HardwareInterface{{Boot: true, DHCP: schemas.HardwareDHCP{MAC: "02:00:00:00:00:0a", Arch: schemas.ArchX86}}},
		Disks: []schemas.HardwareDisk{{Device: "/dev/nvme0n1", Boot: true}}, Metadata: schemas.HardwareMetadata{Hostname: "a"},
	}
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
		"k0s without its token": {map[string]any{"join": "k0s"}, nil, "parameters.join_token: is needed to join by k0s"},
		"kubeadm": {map[string]any{"join": "kubeadm", "join_token": "secret:t", "join_endpoint": "10.0.0.1:6443", "join_ca_hash": hash}, map[string]any{
			"write_files": []any{map[string]any{
				"path": "/etc/kubernetes/join.json", "permissions": "0600",
				"content": `{"apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "JoinConfiguration", "discovery": {"bootstrapToken": {"apiServerEndpoint": "10.0.0.1:6443", ` +
					`"token": "t0k: \"en\"\n", "caCertHashes": ["` + hash + `"]}}}`,
			}},
			"runcmd": []any{[]any{"kubeadm", "join", "--config", "/etc/kubernetes/join.json"}},
		}, ""},
		"kubeadm without a hash": {map[string]any{"join": "kubeadm", "join_token": "secret:t", "join_endpoint": "10.0.0.1:6443"}, nil, "parameters.join_ca_hash: is needed to join by kubeadm"},
		"slurm": {map[string]any{"join": "slurm", "join_token": "secret:t", "join_endpoint": "ctl:6817"}, map[string]any{
			"package_update": true, "packages": []any{"munge", "slurmd"},
			"write_files": []any{
				map[string]any{"path": "/etc/munge/munge.key", "encoding": "b64", "permissions": "0400", "owner": "munge:munge", "defer": true, "content": "t0k: \"en\"\n"},
				map[string]any{"path": "/etc/default/slurmd", "content": "SLURMD_OPTIONS=--conf-server ctl:6817\n"},
			},
			"runcmd": []any{[]any{"systemctl", "restart", "munge", "slurmd"}},
		}, ""},
		"slurm without an endpoint": {map[string]any{"join": "slurm", "join_token": "secret:t"}, nil, "parameters.join_endpoint: is needed to join by slurm"},
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

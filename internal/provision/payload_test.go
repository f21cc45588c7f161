package provision_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"auspex/internal/provision"
	"auspex/schemas"
)

// What a system reads at its first start is held against what its makers say, and each fault has the
// line that it is in.
func TestUserDataIsHeldAgainstWhatItsMakersSay(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		want []string // line and part of the words
	}{
		"a script":           {"#!/bin/sh\necho ignition {\n", nil},
		"nothing":            {"", nil},
		"a cloud-config":     {"#cloud-config\nhostname: a\nruncmd: [[ls, -l], \"ls\"]\nusers: [default, {name: ann, ssh_authorized_keys: [k]}]\nwrite_files: [{path: /a, content: b, permissions: '0600'}]\n", nil},
		"an empty one":       {"#cloud-config\n", nil},
		"a reference":        {"#cloud-config\nwrite_files:\n- {path: /etc/join, content: \"secret:join-token\"}\n", nil},
		"dates and numbers":  {"#cloud-config\nbootcmd:\n- [date, -s, 2026-01-01]\n", nil},
		"a misspelt key":     {"#cloud-config\nhostname: a\n\nrun_cmd: [ls]\n", []string{"4 cloud-init 25.1.4 says: additional properties 'run_cmd' not allowed"}},
		"a wrong type":       {"#cloud-config\npackage_update: perhaps\n", []string{"2 cloud-init 25.1.4 says: got string, want boolean at package_update"}},
		"within a list":      {"#cloud-config\nwrite_files:\n- path: /a\n- path: /b\n  contents: c\n", []string{"5 cloud-init 25.1.4 says: additional properties 'contents' not allowed at write_files.1"}},
		"no YAML":            {"#cloud-config\nhostname: a\n  b: c\n", []string{"3 cloud-init 25.1.4 says: it is no YAML: mapping values"}},
		"a list":             {"#cloud-config\n- a\n", []string{"2 cloud-init 25.1.4 says: it is no mapping"}},
		"ignition":           {`{"ignition": {"version": "3.4.0"}, "storage": {"files": [{"path": "/a", "mode": 420, "contents": {"source": "data:,b"}}]}}`, nil},
		"a version too new":  {`{"ignition": {"version": "9.0.0"}}`, []string{"1 Ignition 2.22.0 says: unsupported config version"}},
		"a misspelt field":   {"{\"ignition\": {\"version\": \"3.4.0\"},\n \"storag\": {}}", []string{"2 Ignition 2.22.0 says: Unused key storag"}},
		"a relative path":    {"{\n  \"ignition\": {\"version\": \"3.4.0\"},\n  \"storage\": {\"files\": [\n    {\"path\": \"a\"}\n  ]}\n}", []string{"4 Ignition 2.22.0 says: path not absolute at $.storage.files.0.path"}},
		"no JSON":            {"{\"ignition\": {\"version\": \"3.4.0\"},\n}", []string{"2 Ignition 2.22.0 says: "}},
		"talos":              {"version: v1alpha1\nmachine:\n  type: worker\n  token: a.b\n  install: {disk: /dev/nvme0n1}\ncluster:\n  controlPlane: {endpoint: https://10.0.0.1:6443}\n---\napiVersion: v1alpha1\nkind: KmsgLogConfig\nname: a\nurl: tcp://10.0.0.1:1\n", nil},
		"a key of talos":     {"version: v1alpha1\nmachine:\n  type: worker\n  instal: {disk: /dev/nvme0n1}\n", []string{"4 Talos v1.9.1 says: additional properties 'instal' not allowed at machine"}},
		"a document of none": {"version: v1alpha1\n---\napiVersion: v1alpha1\nkind: Kmsg\n", []string{"3 Talos v1.9.1 says: there is no document of kind \"Kmsg\""}},
	} {
		t.Run(name, func(t *testing.T) {
			err := provision.CheckUserData(tc.text)
			var faults provision.Faults
			if err != nil && !errors.As(err, &faults) || len(faults) != len(tc.want) {
				t.Fatalf("%v", err)
			}
			for i, f := range faults {
				if got := fmt.Sprintf("%d %s", f.Line, f.Detail); !strings.HasPrefix(got, tc.want[i]) || f.Field != "user_data" {
					t.Errorf("%s: %s", f.Field, got)
				}
			}
		})
	}
}

// In a template, the fault is in the line of the template that makes it.
func TestAPayloadOfATemplateIsJudged(t *testing.T) {
	text := func(file string) string {
		return "version: \"0.1\"\nname: a\nglobal_timeout: 60\ntasks:\n- name: t\n  worker: \"{{ .device_1 }}\"\n  actions:\n  - name: write\n    image: a:1\n    timeout: 60\n    environment:\n" +
			"      DEST_PATH: /x\n      CONTENTS: |\n" + file
	}
	for name, tc := range map[string]struct {
		file string
		want string
	}{
		"good":        {"        #cloud-config\n        hostname: {{ .Hardware.Metadata.Instance.Hostname }}\n", ""},
		"a key":       {"        #cloud-config\n        {{- if true }}\n        hostname: a\n        {{- end }}\n        host_name: b\n", "text, line 18: CONTENTS of the action write: cloud-init 25.1.4 says: additional properties 'host_name' not allowed"},
		"of ignition": {"        {\"ignition\": {\"version\": \"3.4.0\"},\n        \"passwd\": {\"users\": [{\"nam\": \"core\"}]}}\n", "text, line 15: CONTENTS of the action write: Ignition 2.22.0 says: "},
	} {
		b := schemas.TemplateBody{OSFamily: "other", Architectures: []string{schemas.ArchX86}, Text: text(tc.file)}
		err := provision.Check(t.Context(), &b)
		if (err != nil) != (tc.want != "") || err != nil && !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// cloud-init itself says of these texts what we say.
func TestCloudInitAgrees(t *testing.T) {
	path := os.Getenv("CLOUDINIT_PYTHONPATH")
	if path == "" {
		if os.Getenv("AUSPEX_E2E") == "1" {
			t.Fatal("CLOUDINIT_PYTHONPATH is not set: test/e2e.sh starts the peer and sets it")
		}
		t.Skip("CLOUDINIT_PYTHONPATH is not set: run `make e2e` to test against this peer")
	}
	good := []string{
		"#cloud-config\nhostname: a\nruncmd: [[ls, -l], \"ls\"]\n", "#cloud-config\nusers: [default, {name: ann, ssh_authorized_keys: [k]}]\n",
		"#cloud-config\nwrite_files: [{path: /a, content: b, permissions: '0600'}]\n", "#cloud-config\npackages: [a, [b, '1']]\n",
	}
	bad := []string{
		"#cloud-config\npackage_update: perhaps\n", "#cloud-config\nwrite_files: [{path: /b, contents: c}]\n", "#cloud-config\nruncmd: 7\n", "#cloud-config\nusers: [{ssh_authorized_keys: [1]}]\n",
	}
	for i, text := range slices.Concat(good, bad) {
		name := filepath.Join(t.TempDir(), "user-data")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "/usr/bin/python3", "-m", "cloudinit.cmd.main", "schema", "--config-file", name)
		cmd.Env = append(os.Environ(), "PYTHONPATH="+path)
		out, err := cmd.CombinedOutput()
		ours := provision.CheckUserData(text)
		if (err == nil) != (ours == nil) || (ours == nil) != (i < len(good)) {
			t.Errorf("%q: it says %v\n%s\nwe say %v", text, err, out, ours)
		}
	}
}

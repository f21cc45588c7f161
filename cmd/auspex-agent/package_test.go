package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// said runs a program that belongs to the system, and skips the test where it does not.
func said(t *testing.T, name string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("%s is missing", name)
	}
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v: %s", name, args, err, out)
	}
	return string(out)
}

func TestThePackageHoldsWhatAServerNeeds(t *testing.T) {
	s := newServer(t)
	out := t.TempDir()
	said(t, "dpkg-deb", "--version")
	t.Setenv("DPKG_DEB_COMPRESSOR_TYPE", "none") // quick
	said(t, "../../deploy/agent/package.sh", s.binary, "1.2.3", out)
	files, err := filepath.Glob(filepath.Join(out, "auspex-agent_1.2.3_*.deb"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	root := t.TempDir()
	said(t, "dpkg-deb", "--raw-extract", files[0], root)
	control, err := os.ReadFile(filepath.Join(root, "DEBIAN/control"))
	if err != nil || !strings.Contains(string(control), "Version: 1.2.3\n") {
		t.Errorf("%s %v", control, err)
	}
	for _, script := range []string{"postinst", "prerm", "postrm"} {
		said(t, "sh", "-n", filepath.Join(root, "DEBIAN", script))
	}
	said(t, filepath.Join(root, "usr/bin/auspex-agent"), "--config", filepath.Join(root, "etc/auspex-agent/agent.yaml"), "--check")
	doc, err := os.ReadFile(filepath.Join(root, "usr/share/doc/auspex-agent/node-agent.md"))
	if err != nil || len(doc) == 0 {
		t.Error(err)
	}
}

var exposure = regexp.MustCompile(`Overall exposure level for [^:]*: ([0-9.]+)`)

// systemd itself says that the unit is sound, and how much of the system it can reach.
func TestTheUnitHasLeastRights(t *testing.T) {
	b, err := os.ReadFile("../../deploy/agent/auspex-agent.service")
	if err != nil {
		t.Fatal(err)
	}
	unit := filepath.Join(t.TempDir(), "auspex-agent.service")
	if err := os.WriteFile(unit, []byte(strings.ReplaceAll(string(b), "/usr/bin/auspex-agent", "/bin/true")), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := said(t, "systemd-analyze", "verify", unit); strings.Contains(out, unit) || strings.Contains(out, "Unknown") {
		t.Error(out)
	}
	m := exposure.FindStringSubmatch(said(t, "systemd-analyze", "security", "--offline=true", unit))
	if m == nil {
		t.Fatal("no level")
	}
	if level, err := strconv.ParseFloat(m[1], 64); err != nil || level > 2.5 {
		t.Errorf("exposure %s, want at most 2.5 of 10", m[1])
	}
}

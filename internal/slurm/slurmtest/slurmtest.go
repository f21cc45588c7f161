// Package slurmtest finds the real clusters that test/e2e.sh starts, for tests against each of them and each version of
// REST that they speak.
package slurmtest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Cluster is a controller with its nodes gpu1 to gpu4, and its slurmrestd.
type Cluster struct {
	Release string
	REST    string // the address of slurmrestd
	Token   string // of the user root
	// Versions are those of REST that it speaks, from the oldest.
	Versions []string

	conf  string
	enter []string
}

// Clusters returns those of Debian: 22.05, whose REST only reads nodes, and 24.11. It skips the test where none is
// started, and fails it where all should be.
func Clusters(t testing.TB) []Cluster {
	t.Helper()
	return clusters(t, "SLURM_", "SLURM24_")
}

// Accounted returns the same releases with accounting: slurmdbd on a MariaDB. They forget jobs soon after their end.
func Accounted(t testing.TB) []Cluster {
	t.Helper()
	return clusters(t, "SLURMDB_", "SLURMDB24_")
}

func clusters(t testing.TB, old, newer string) (out []Cluster) {
	t.Helper()
	for _, of := range []struct {
		prefix, release string
		versions        []string
	}{
		{old, "22.05", []string{"v0.0.38"}},
		{newer, "24.11", []string{"v0.0.40", "v0.0.41", "v0.0.42"}},
	} {
		c := Cluster{
			Release: of.release, REST: os.Getenv(of.prefix + "REST"), Token: os.Getenv(of.prefix + "TOKEN"), Versions: of.versions,
			conf: os.Getenv(of.prefix + "CONF"), enter: strings.Fields(os.Getenv(of.prefix + "RUN")),
		}
		switch {
		case c.conf != "":
			out = append(out, c)
		case os.Getenv("AUSPEX_WITHOUT") == strings.Replace(strings.ToLower(strings.TrimSuffix(of.prefix, "_")), "db", "", 1): // test/e2e.sh says why
		case os.Getenv("AUSPEX_E2E") == "1":
			t.Fatal(of.prefix + "CONF is not set: test/e2e.sh starts the peer and sets it")
		}
	}
	if len(out) == 0 {
		t.Skipf("neither %[1]sCONF nor %[2]sCONF is set: run `make e2e` to test against these peers", old, newer)
	}
	return out
}

// Command is how a program of Slurm is run against the cluster.
func (c Cluster) Command(program ...string) []string {
	return append(append(append([]string{}, c.enter...), "env", "SLURM_CONF="+c.conf), program...)
}

// Run runs a program of Slurm and returns what it writes.
func (c Cluster) Run(t testing.TB, program ...string) string {
	t.Helper()
	argv := c.Command(program...)
	out, err := exec.CommandContext(context.WithoutCancel(t.Context()), argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v: %s", program, err, out)
	}
	return strings.TrimSpace(string(out))
}

// TokenOf returns a file with a token of a user.
func (c Cluster) TokenOf(t testing.TB, user string) string {
	t.Helper()
	token := c.Token
	if user != "root" {
		token = strings.TrimPrefix(c.Run(t, "scontrol", "token", "username="+user, "lifespan=3600"), "SLURM_JWT=")
	}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// Restarted ends a node's slurmd and starts it as one whose host has started (slurmd(8), -b). The file of its pid is kept as test/peers/lib.sh wants it.
func (c Cluster) Restarted(t testing.TB, node string) {
	t.Helper()
	dir := filepath.Dir(c.conf)
	file := filepath.Join(dir, node+".pid")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, since, _ := strings.Cut(strings.TrimSpace(string(b)), " ")
	if n, err := strconv.Atoi(pid); err == nil && n > 1 && born(pid) == since && since != "" {
		_ = syscall.Kill(n, syscall.SIGTERM)
	}
	for deadline := time.Now().Add(time.Minute); born(pid) == since && since != ""; time.Sleep(100 * time.Millisecond) { // a process is polled for
		if time.Now().After(deadline) {
			t.Fatalf("slurmd of %s goes on", node)
		}
	}
	argv := c.Command("slurmd", "-D", "-b", "-N", node, "-f", c.conf)
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // it is the peer's, and outlives the test
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid = strconv.Itoa(cmd.Process.Pid)
	if err := os.WriteFile(file, []byte(pid+" "+born(pid)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// born is when a process was started, which tells a reused pid apart; "" is one that has ended.
func born(pid string) string {
	b, _ := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	_, fields, _ := strings.Cut(string(b), ") ")
	if f := strings.Fields(fields); len(f) > 19 && f[0] != "Z" {
		return f[19]
	}
	return ""
}

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A program in Python allocates, follows and gives back; the client and the program keep their types (mypy --strict).
func TestAProgramInPythonAllocates(t *testing.T) {
	beside(t)
	bin := filepath.Dir(peer(t, "SCHEMATHESIS"))
	p, token := still(t)
	client, err := filepath.Abs("../../client/python")
	if err != nil {
		t.Fatal(err)
	}
	run := func(program string, args ...string) string {
		t.Helper()
		cmd := exec.Command(filepath.Join(bin, program), args...)
		cmd.Env = append(os.Environ(), "PYTHONPATH="+client, "MYPYPATH="+client, "PYTHONDONTWRITEBYTECODE=1", "URL="+p.url, "TOKEN="+token)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", program, args, err, out)
		}
		return string(out)
	}
	run("mypy", "--strict", "--cache-dir", t.TempDir(), filepath.Join(client, "auspex"), "testdata/client.py")
	if out := run("python", "testdata/client.py"); !strings.HasPrefix(out, "released ") {
		t.Errorf("it said %q", out)
	}
}

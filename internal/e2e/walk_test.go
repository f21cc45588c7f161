package e2e

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// walkTime bounds the whole path in the demo, whose repair has minutes in which the part has to stay well.
const walkTime = 15 * time.Minute

// TestThePathInTheDemo runs the commands of the how-to that follows a server, as they stand there but for folders and
// ports: from its board controller to its user, through the loss of a GPU, and back.
func TestThePathInTheDemo(t *testing.T) {
	beside(t)
	doc, err := os.ReadFile("../../docs/how-to/follow-a-server.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := dataDir(t)
	t.Cleanup(func() { endSimulator(dir) })
	address := freeAddress(t)
	var text strings.Builder
	for _, block := range shell.FindAllStringSubmatch(string(doc), -1) {
		text.WriteString(block[1])
	}
	script := strings.NewReplacer(
		"make build\n", "", "/tmp/walk", dir, "at: 40s", "at: 20s",
		"bin/auspex run", binary(t)+" run --listen "+address+" --set store.clickhouse=off --set control.policies=testdata/policy.yaml", "bin/auspex healthcheck", binary(t)+" healthcheck --url http://"+address,
		"bin/auspex", binary(t),
	).Replace(text.String())
	ctx, cancel := context.WithTimeout(t.Context(), walkTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euc", "trap 'kill %1 2>/dev/null || true; wait' EXIT TERM\n"+script) //nolint:gosec // what the how-to says
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = patience
	cmd.Env = command(t).Env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("the commands ended with %v\n%s", err, tail(string(out)))
	}
	for _, want := range []string{
		"status: discovered", "gpu-r08-08", "install completed", "health completed", "active", "allocation.degraded", "gpu.fallen_off_bus", "replacement:", "completed", "status: ready",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("it does not say %q:\n%s", want, tail(string(out)))
		}
	}
}

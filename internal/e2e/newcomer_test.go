package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

var shell = regexp.MustCompile("(?s)```sh\n(.*?)```")

// TestANewcomerSeesAnXID runs the commands with which the how-to of the node agent tries it,
// as they stand there but for folders and ports: what it says one sees is seen.
func TestANewcomerSeesAnXID(t *testing.T) {
	beside(t)
	doc, err := os.ReadFile("../../docs/how-to/node-agent.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	agent := filepath.Join(dir, "auspex-agent")
	build := exec.Command("go", "build", "-o", agent, "../../cmd/auspex-agent") //nolint:gosec // a folder of the test
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	said := regexp.MustCompile("in the answer: `(.*?)`").FindSubmatch(doc)
	_, try, _ := strings.Cut(string(doc), "\n**Try** it on one machine")
	blocks := shell.FindAllStringSubmatch(try, 2)
	if said == nil || len(blocks) != 2 {
		t.Fatalf("the how-to has %d blocks of commands to try, and says %q", len(blocks), said)
	}
	console := freeAddress(t)
	text := strings.NewReplacer(
		"make build agent\n", "", "/tmp/try", filepath.Join(dir, "try"), "bin/auspex-agent", agent, "bin/auspex", binary(t),
		"127.0.0.1:9339", freeAddress(t), "127.0.0.1:8080", console, "localhost:8080", console, "healthcheck;", "healthcheck --url http://"+console+";",
	).Replace(blocks[0][1] + blocks[1][1])
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", "trap 'kill %1 %2; wait' EXIT TERM\n"+text) //nolint:gosec // what the how-to says
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = patience
	cmd.Env = command(t).Env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("the commands ended with %v", err)
	}
	if !strings.Contains(string(out), string(said[1])) || !strings.Contains(string(out), "1 of 1 answer") {
		t.Errorf("the how-to says that one sees %q; it printed\n%s", said[1], out)
	}
}

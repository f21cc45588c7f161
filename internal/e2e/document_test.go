package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"auspex/schemas"
)

// small is an inventory of two racks with two servers of two GPUs each.
func small() (out []schemas.Resource) {
	for r := 1; r <= 2; r++ {
		rack := fmt.Sprintf("dc1-r%02d", r)
		if r > 1 { // site has the first
			out = append(out, schemas.Resource{ID: rack, Kind: schemas.KindRack, Parent: "dc1"})
		}
		for n := 1; n <= 2; n++ {
			server := fmt.Sprintf("gpu-r%02d-%02d", r, n)
			out = append(out, schemas.Resource{
				ID: server, Kind: schemas.KindServer, Parent: rack, Attrs: schemas.AttrsOf(map[string]string{"serial": fmt.Sprintf("S%d%d", r, n), "model": "DGX H100"}),
			})
			for g := range 2 {
				out = append(out, schemas.Resource{ID: fmt.Sprintf("%s/gpu%d", server, g), Kind: schemas.KindGPU, Parent: server, Attrs: schemas.AttrsOf(map[string]string{
					"pci": fmt.Sprintf("0000:1%d:00.0", g), "serial": fmt.Sprintf("G%d%d%d", r, n, g), "model": "H100", "memory_gb": "80",
				})})
			}
		}
	}
	return out
}

// still starts the product on a small inventory that nothing is collected of, and returns it with the token of an admin.
func still(t *testing.T) (p *product, token string) {
	t.Helper()
	dir := dataDir(t)
	p = launch(t, dir, append(site(t, dir, small()...), "--set", "store.clickhouse=off", "--set", "api.limits.reads=0", "--set", "api.limits.writes=0")...)
	p.ready()
	var ignored map[string]any
	made, err := command(t, "token", "create", "root", "--role", "admin", "--data", dir).Output()
	if err == nil {
		err = p.ask(t, strings.TrimSpace(string(made)), &ignored, "users", "create", "--username", "ada", "--email", "ada@example.com", "--role", "admin")
	}
	if err == nil {
		made, err = command(t, "token", "create", "ada", "--role", "admin", "--user", "ada", "--data", dir).Output()
	}
	if err != nil {
		t.Fatal(err)
	}
	return p, strings.TrimSpace(string(made))
}

// Every route of the document answers as the document says, whatever it is asked: what schemathesis draws of it, right and
// wrong. AUSPEX_EXAMPLES is how many cases a route gets beside those at the bounds of its fields.
func TestTheDocumentIsHeldToItsWord(t *testing.T) {
	beside(t)
	program := peer(t, "SCHEMATHESIS")
	p, token := still(t)
	var me struct{ ID string }
	if err := p.ask(t, token, &me, "users", "get", "ada"); err != nil {
		t.Fatal(err)
	}
	there := map[string][]string{"caller": {"ada", me.ID}}
	for _, r := range small() {
		switch r.Kind {
		case schemas.KindServer:
			there["servers"] = append(there["servers"], r.ID)
		case schemas.KindGPU:
			there["gpus"] = append(there["gpus"], r.ID)
		}
	}
	there["resources"], there["assets"] = append(there["servers"], there["gpus"]...), there["servers"]
	must := func(id func(map[string]any) any, args ...string) {
		t.Helper()
		var made map[string]any
		if err := p.ask(t, token, &made, args...); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		there[args[0]] = append(there[args[0]], fmt.Sprint(id(made)))
	}
	id := func(m map[string]any) any { return m["id"] }
	for k, name := range []string{"one", "two", "three"} {
		must(id, "users", "create", "--username", name, "--email", name+"@example.com", "--role", "engineer")
		must(id, "teams", "create", "--name", name)
		must(id, "pools", "create", "--name", name)
		must(id, "webhooks", "create", "--name", name, "--url", "http://127.0.0.1:9/"+name, "--secret", "whsec_"+strings.Repeat("QUJD", 8))
		must(id, "quotas", "create", "--team", name, "--max-gpus", "4")
		must(id, "events", "create", "--source-type", "server", "--source-id", "gpu-r01-01", "--event-type", "site.note", "--severity", "info", "--message", name)
		must(id, "alerts", "create", "--source-type", "gpu", "--source-id", "gpu-r01-01/gpu0", "--alert-type", "gpu.xid", "--code", "79", "--severity", "critical", "--message", name)
		must(func(m map[string]any) any { return m["allocation"].(map[string]any)["id"] }, "allocations", "create", "--gpu-ids", there["gpus"][4+k], "--purpose", name)
	}
	names, err := json.Marshal(there)
	if err != nil {
		t.Fatal(err)
	}
	examples := "10"
	if n := os.Getenv("AUSPEX_EXAMPLES"); n != "" {
		examples = n
	}
	document, err := filepath.Abs("../../schemas/openapi/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	cmd := exec.Command(program, "--config-file", "schemathesis.toml", "run", document, "-u", p.url+"api/v1", "-H", "Authorization: Bearer "+token,
		"-n", examples, "--seed", "1", "--no-color", "--continue-on-failure")
	cmd.Dir = t.TempDir() // it keeps what it found beside its settings
	if err := os.CopyFS(cmd.Dir, os.DirFS("../../test/schemathesis")); err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), "AUSPEX_THERE="+string(names))
	out, err := cmd.CombinedOutput()
	text := strings.ReplaceAll(string(out), token, "…")
	if strings.Contains(text, "Rate limited") { // then nothing was tried
		err = errors.Join(err, errors.New("requests were answered 429"))
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	t.Logf("%s of %s\n%s", time.Since(began).Round(time.Second), program, text[strings.LastIndex(text, "Test cases:"):])
}

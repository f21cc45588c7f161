package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWithoutTheEngineOneSentenceSaysSoAndTheRestWorks(t *testing.T) {
	whole(t)
	dir := dataDir(t)
	binary(t) // built while there is a PATH
	// A PATH that has the shell's tools and no npm, and a cache with nothing in it.
	t.Setenv("PATH", t.TempDir())
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	p := startDemo(t, dir, "--script", "testdata/scripts/gpu-first.yaml")
	p.await("the sentence", func() error { return has(p.err.String(), "history is off") })
	var output []string
	for line := range strings.Lines(p.err.String()) {
		if strings.HasPrefix(line, "auspex: ") {
			output = append(output, line)
		}
	}
	if len(output) != 1 || !strings.Contains(output[0], "npm") {
		t.Errorf("want one sentence that names npm, got %q", output)
	}
	p.sees(expected(t, dir))
	stop := measureLateness(t).span()
	p.interrupt()
	stop.within(t, longestStop, "Ctrl-C")
}

type missing string

func (m missing) Error() string { return "there is no " + string(m) }

func has(text, want string) error {
	if !strings.Contains(text, want) {
		return missing(want)
	}
	return nil
}

func TestWhatCannotStartSaysWhyInASentence(t *testing.T) {
	whole(t)
	broken := filepath.Join(t.TempDir(), "topology.json")
	if err := os.WriteFile(broken, []byte(`{"version": 1, "resources": [`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, names string
		args        []string
	}{
		{"an inventory that is not JSON", broken, []string{"--set", "inventory.file=" + broken}},
		{"an inventory that is not there", "nothing-here.json", []string{"--set", "inventory.file=nothing-here.json"}},
		{"an address that is none", "256.0.0.1", []string{"--listen", "256.0.0.1:80"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			args := append([]string{"run", "--data", dataDir(t), "--listen", "127.0.0.1:0", "--set", "store.clickhouse=off"}, tc.args...)
			oneSentence(t, command(t, args...), tc.names)
		})
	}
}

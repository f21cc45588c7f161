package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The script gpu-first, whose causes are found and kept over a restart, without a history.
func TestWithoutTheEngineOneSentenceSaysSoAndTheRestWorks(t *testing.T) {
	beside(t)
	dir := dataDir(t)
	env := []string{"PATH=" + t.TempDir(), "XDG_CACHE_HOME=" + t.TempDir()} // no npm, and nothing in the cache
	p := launchIn(t, env, dir, "--demo", "--script", "testdata/scripts/gpu-first.yaml", "--seed", "7")
	p.ready()
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
	incidents := p.givesItsOwn()
	late := measureLateness(t)
	stop := late.span()
	p.interrupt()
	stop.within(t, longestStop, "Ctrl-C")

	// A second run continues, with a fleet that starts healthy and stays so: that it was switched off is nobody's fault.
	p = launchIn(t, env, dir, "--demo", "--script", "none")
	p.ready()
	all, err := list[incident](p, "incidents")
	if err != nil {
		t.Fatal(err)
	}
	for _, old := range incidents {
		if !slices.ContainsFunc(all, func(i incident) bool { return i.ID == old.ID }) {
			t.Errorf("incident %s of the first run is not there any more", old.ID)
		}
	}
	time.Sleep(40 * time.Second) // eight readings of each device, in which nothing may be found
	judged, _, err := p.judged()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range judged {
		if !slices.ContainsFunc(incidents, func(old incident) bool { return old.ID == i.ID }) {
			t.Errorf("the healthy fleet has an incident: %s %s: %s", i.RootCause.Resource, i.RootCause.Fault, i.Explanation)
		}
	}
	stop = late.span()
	p.interrupt()
	stop.within(t, longestStop, "Ctrl-C of the second run")
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
	beside(t)
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

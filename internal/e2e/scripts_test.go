package e2e

import (
	"cmp"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
)

func TestOtherScriptsAndSeedsGiveTheirOwnIncidents(t *testing.T) {
	beside(t)
	for _, tc := range []struct{ script, seed string }{
		{"memory-and-psu", "11"}, // gpu-first is played without the engine
		{"switch-and-crash", "23"},
	} {
		t.Run(tc.script, func(t *testing.T) {
			t.Parallel()
			p := startDemo(t, dataDir(t), "--script", "testdata/scripts/"+tc.script+".yaml", "--seed", tc.seed, "--set", "store.clickhouse=off")
			p.givesItsOwn()
			p.interrupt()
		})
	}
}

// Where node agents are the only ones that tell of what runs on servers, the causes are those
// that exporters and the logs of kernels tell: of the demo's own script and of the others.
func TestAgentsAloneFindTheSameCauses(t *testing.T) {
	beside(t)
	for _, tc := range []struct{ script, seed string }{
		{"", "1"},
		{"gpu-first", "7"},
		{"memory-and-psu", "11"},
		{"switch-and-crash", "23"},
		{"fabric-and-disk", "3"},
	} {
		t.Run(cmp.Or(tc.script, "the demo's"), func(t *testing.T) {
			t.Parallel()
			args := []string{"--agents-alone", "--seed", tc.seed, "--set", "store.clickhouse=off"}
			if tc.script != "" {
				args = append(args, "--script", "testdata/scripts/"+tc.script+".yaml")
			}
			p := startDemo(t, dataDir(t), args...)
			p.givesItsOwn()
			p.interrupt()
		})
	}
}

// givesItsOwn holds the incidents of a running demo against those of its script, and looks
// again when what comes late has come. What takes longer than it may on a busy machine is no mistake.
func (p *product) givesItsOwn() []incident {
	t := p.t
	t.Helper()
	want := expected(t, p.dir)
	if len(want) != 3 {
		t.Fatalf("the script promises %q, want three incidents", want)
	}
	incidents := p.sees(want)
	time.Sleep(15 * time.Second) // what comes late must not make another incident of it
	_, names, err := p.judged()
	if err != nil {
		t.Fatal(err)
	}
	if d := gocmp.Diff(want, names); d != "" {
		t.Errorf("later the incidents are others (-want +got):\n%s", d)
	}
	for line := range strings.Lines(p.err.String()) {
		if strings.Contains(line, "level=ERROR") && !strings.Contains(line, "deadline exceeded") {
			t.Errorf("an error was logged: %s", line)
		}
	}
	return incidents
}

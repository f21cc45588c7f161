package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestOtherScriptsAndSeedsGiveTheirOwnIncidents(t *testing.T) {
	whole(t)
	for _, tc := range []struct{ script, seed string }{
		{"gpu-first", "7"},
		{"memory-and-psu", "11"},
		{"switch-and-crash", "23"},
	} {
		t.Run(tc.script, func(t *testing.T) {
			t.Parallel()
			dir := dataDir(t)
			p := startDemo(t, dir, "--script", "testdata/scripts/"+tc.script+".yaml", "--seed", tc.seed, "--set", "store.clickhouse=off")
			want := expected(t, dir)
			if len(want) != 3 {
				t.Fatalf("the script promises %q, want three incidents", want)
			}
			p.sees(want)
			time.Sleep(15 * time.Second) // what comes late must not make another incident of it
			_, names, err := p.judged()
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, names); d != "" {
				t.Errorf("later the incidents are others (-want +got):\n%s", d)
			}
			if strings.Contains(p.err.String(), "level=ERROR") {
				t.Errorf("errors were logged:\n%s", tail(p.err.String()))
			}
			p.interrupt()
		})
	}
}

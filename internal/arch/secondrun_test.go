package arch

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// mostSecondRuns bounds test/second-run.txt: more than that is a habit.
const mostSecondRuns = 10

// random are the tests that look for what happens at random moments; one that fails
// once in five runs has found something.
var random = regexp.MustCompile(
	`(?i)^auspex/(control|internal/bus)(/|\s)|^auspex/internal/e2e .*(kill|once|reset|drain|enforce|lost)|^\S+ .*(kill|once|crash|reset)`,
)

// secondRuns checks the lines of test/second-run.txt.
func secondRuns(text string) error {
	n := 0
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		n++
		f := strings.Fields(line)
		if len(f) < 4 {
			return fmt.Errorf("%q: want package, test, date and reason", line)
		}
		if _, err := time.Parse(time.DateOnly, f[2]); err != nil {
			return fmt.Errorf("%q: %w", line, err)
		}
		if random.MatchString(f[0] + " " + f[1]) {
			return fmt.Errorf("%q: a test of what happens at random moments is never run twice", line)
		}
	}
	if n > mostSecondRuns {
		return fmt.Errorf("%d tests may be run a second time, at most %d may", n, mostSecondRuns)
	}
	return nil
}

func TestSecondRunsAreFewAndNeverOfRandomMoments(t *testing.T) {
	b, err := os.ReadFile("../../test/second-run.txt")
	if err != nil {
		t.Fatal(err)
	}
	if err := secondRuns(string(b)); err != nil {
		t.Error(err)
	}
	for line, ok := range map[string]bool{
		"# a remark": true,
		"auspex/api TestPages 2026-01-01 a reason":                                     true,
		"auspex/api TestPages 2026-01-01":                                              false,
		"auspex/api TestPages soon a reason":                                           false,
		"auspex/internal/bus/kafka TestX 2026-01-01 a reason":                          false,
		"auspex/control TestX 2026-01-01 a reason":                                     false,
		"auspex/internal/e2e TestAResetIsSentOnceOverKills 2026-01-01 a reason":        false,
		"auspex/pipeline/sink TestRowsAreWrittenOnce 2026-01-01 a reason":              false,
		strings.Repeat("auspex/api TestPages 2026-01-01 a reason\n", mostSecondRuns):   true,
		strings.Repeat("auspex/api TestPages 2026-01-01 a reason\n", mostSecondRuns+1): false,
	} {
		if err := secondRuns(line); (err == nil) != ok {
			t.Errorf("%q: %v", line, err)
		}
	}
}

package schemas_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"auspex/schemas"
)

// TestKindsOfActionsAreThoseOfTheFormats holds the lists against the contract.
func TestKindsOfActionsAreThoseOfTheFormats(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "docs", "reference", "formats.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(b), "`recommendation.action`:")
	if !ok {
		t.Fatal("no list of kinds in section 5")
	}
	text, _, _ = strings.Cut(text, "\n\n")
	first, rest, ok := strings.Cut(text, "Actions (section 9)")
	if !ok {
		t.Fatal("no list of requested kinds in section 5")
	}
	rest, _, _ = strings.Cut(rest, "A policy")
	kinds := func(text string) (out []string) {
		for _, m := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(text, -1) {
			out = append(out, m[1])
		}
		return out
	}
	if d := cmp.Diff(kinds(first), schemas.Recommendations()); d != "" {
		t.Errorf("recommendations (-formats +code):\n%s", d)
	}
	if d := cmp.Diff(slices.Concat(kinds(first), kinds(rest)), schemas.ActionKinds()); d != "" {
		t.Errorf("actions (-formats +code):\n%s", d)
	}
}

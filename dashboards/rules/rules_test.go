package rules_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"auspex/dashboards/rules"
)

// promtool is Prometheus' own judge of rule files and of their unit tests.
func TestPromtoolAcceptsRulesAndTheirTests(t *testing.T) {
	promtool := os.Getenv("PROMTOOL")
	if promtool == "" {
		t.Skip("PROMTOOL is not set: no promtool to judge the rules")
	}
	files, err := filepath.Glob("*.yml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	if out, err := exec.CommandContext(
		t.Context(), promtool, append([]string{"check", "rules", "--lint-fatal"}, files...)...,
	).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	tests, err := filepath.Glob("tests/*.yml")
	if err != nil || len(tests) == 0 {
		t.Fatal(tests, err)
	}
	if out, err := exec.CommandContext(t.Context(), promtool, append([]string{"test", "rules"}, tests...)...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	for _, f := range files {
		if _, err := rules.Files.Open(f); err != nil {
			t.Errorf("%s is not in the program: %v", f, err)
		}
	}
}

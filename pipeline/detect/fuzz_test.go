package detect

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"auspex/dashboards/rules"
)

// A file of rules is taken, or each error names it.
func FuzzRules(f *testing.F) {
	entries, err := rules.Files.ReadDir(".")
	if err != nil {
		f.Fatal(err)
	}
	for _, e := range entries {
		if b, err := rules.Files.ReadFile(e.Name()); err == nil && len(b) < 8<<10 {
			f.Add(string(b))
		}
	}
	f.Add("groups: [{name: a, interval: 15s, rules: [{alert: A, expr: 'up == 0', for: 1m, labels: {severity: error}, annotations: {summary: '{{ $labels.x }}'}}]}]\n")
	f.Add("groups: [{name: a, rules: [{record: 'a:b', expr: 'sum(rate(x[5m])) by (y)'}]}]\n")
	f.Add("groups: [{name: a, rules: [{alert: A, expr: '(('}]}]\n")
	file := filepath.Join(f.TempDir(), "rules.yaml")
	f.Fuzz(func(t *testing.T, text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg := DefaultRulesConfig()
		cfg.Builtin, cfg.Files = false, []string{file}
		if _, err := CheckRules(cfg); err != nil && !strings.Contains(err.Error(), file) {
			t.Errorf("which file is wrong is not said: %v", err)
		}
	})
}

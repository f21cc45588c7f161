package docs

import (
	"go/ast"
	"os"
	"regexp"
	"strings"
	"testing"

	"auspex/schemas"
	"auspex/schemas/yang"
)

var deviceMetric = regexp.MustCompile(`^auspex_(server|switch|port|fan|psu|gpu|cpu|dimm|nic|disk|nvswitch)_[a-z_]*[a-z]$`)

func TestDeviceMetricsOfTheCollectorsAreDocumented(t *testing.T) {
	b, err := os.ReadFile("../../docs/reference/device-metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	for _, m := range schemas.GPUMetrics {
		if !strings.Contains(page, "| `"+m.Name+"` | `"+m.Column+"` |") {
			t.Errorf("%s (column %s) is not in device-metrics.md", m.Name, m.Column)
		}
	}
	src, err := Parse("../..")
	if err != nil {
		t.Fatal(err)
	}
	for dir, files := range src.packages {
		if !strings.HasPrefix(dir, "collectors/") && !strings.HasPrefix(dir, "internal/bmc/") {
			continue
		}
		for _, f := range files {
			ast.Inspect(f, func(n ast.Node) bool {
				if lit, ok := n.(*ast.BasicLit); ok {
					if s, ok := text(lit, nil); ok && deviceMetric.MatchString(s) && !strings.Contains(page, "`"+s+"`") {
						t.Errorf("%s of %s is not in device-metrics.md", s, dir)
					}
				}
				return true
			})
		}
	}
}

func TestDeviceMetricsOfTheHostAreDocumented(t *testing.T) {
	b, err := os.ReadFile("../../docs/reference/device-metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for path, l := range yang.Leaves {
		if strings.HasPrefix(path, "/host/") && l.Metric != "" && !strings.Contains(string(b), "`"+l.Metric+"`") {
			t.Errorf("%s of %s is not in device-metrics.md", l.Metric, path)
		}
	}
}

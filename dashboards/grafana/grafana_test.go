package grafana

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
)

func TestEveryQueryAsksForMetricsThatAreDocumented(t *testing.T) {
	b, err := os.ReadFile("../../docs/reference/device-metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	files, err := filepath.Glob("*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no dashboards: %v", err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var d struct {
			Panels []struct {
				ID      int
				Title   string
				Targets []struct{ Expr string }
			}
		}
		if err := json.Unmarshal(b, &d); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		ids := map[int]bool{}
		for _, p := range d.Panels {
			if ids[p.ID] {
				t.Errorf("%s: two panels have the id %d", f, p.ID)
			}
			ids[p.ID] = true
			for _, q := range p.Targets {
				expr, err := parser.NewParser(parser.Options{}).ParseExpr(strings.NewReplacer("$rack", ".*", "$server", ".*").Replace(q.Expr))
				if err != nil {
					t.Errorf("%s: %s: %v", f, p.Title, err)
					continue
				}
				parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
					if s, ok := n.(*parser.VectorSelector); ok {
						for _, m := range s.LabelMatchers {
							if m.Name == model.MetricNameLabel && m.Value != "ALERTS" && !strings.Contains(page, "`"+m.Value+"`") {
								t.Errorf("%s: %s asks for %s, which no device has", f, p.Title, m.Value)
							}
						}
					}
					return nil
				})
			}
		}
	}
}

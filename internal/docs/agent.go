package docs

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"auspex/schemas"
	"auspex/schemas/yang"
)

// AgentPage is docs/reference/agent.md: the leaves of node agents, from their modules.
func AgentPage() []byte {
	var b bytes.Buffer
	b.WriteString("# What a node agent tells\n\nGenerated from the modules in schemas/yang; do not edit. Paths are those of gNMI, metrics those of the hot window and of the history; with `bound`, a leaf is a\n" +
		"bound of the metric's readings ([device-metrics.md](device-metrics.md)). Labels beside those of all device metrics are in braces.\n")
	top := ""
	for _, path := range slices.Sorted(maps.Keys(yang.Leaves)) {
		l := yang.Leaves[path]
		if t, _, _ := strings.Cut(path[1:], "/"); t != top {
			top = t
			fmt.Fprintf(&b, "\n## %s\n\n| path | type | what | metric |\n|---|---|---|---|\n", top)
		}
		typ := l.Type
		if l.Unit != "" {
			typ += ", " + l.Unit
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", path, typ, cell(l.About), metricOf(l))
	}
	return b.Bytes()
}

func metricOf(l yang.Leaf) string {
	if l.Metric == "" {
		return ""
	}
	var labels []string
	for i := 0; i+1 < len(l.Fixed); i += 2 {
		labels = append(labels, l.Fixed[i]+"="+l.Fixed[i+1])
	}
	for _, k := range l.Keys {
		if k.Label != "" {
			labels = append(labels, k.Label)
		}
	}
	name := l.Metric
	if l.Bound != "" {
		name = schemas.ThresholdMetric(name)
		labels = append(labels, "bound="+l.Bound)
	}
	if len(labels) > 0 {
		name += "{" + strings.Join(labels, ", ") + "}"
	}
	return "`" + name + "`"
}

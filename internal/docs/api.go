package docs

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

type parameter struct {
	Ref         string `yaml:"$ref"`
	Name        string `yaml:"name"`
	In          string `yaml:"in"`
	Description string `yaml:"description"`
	Schema      struct {
		Enum    []string `yaml:"enum"`
		Default any      `yaml:"default"`
	} `yaml:"schema"`
}

type operation struct {
	Summary     string      `yaml:"summary"`
	Description string      `yaml:"description"`
	Parameters  []parameter `yaml:"parameters"`
}

// APIPage is docs/reference/api.md, from the OpenAPI document.
func APIPage(spec []byte) ([]byte, error) {
	var doc struct {
		Info       struct{ Description string } `yaml:"info"`
		Paths      yaml.Node                    `yaml:"paths"`
		Components struct {
			Parameters map[string]parameter `yaml:"parameters"`
		} `yaml:"components"`
	}
	if err := yaml.Unmarshal(spec, &doc); err != nil {
		return nil, fmt.Errorf("read the OpenAPI document: %w", err)
	}
	var b bytes.Buffer
	b.WriteString("# REST API\n\nGenerated from `schemas/openapi/openapi.yaml`; do not edit. Routes are below `/api/v1`.\n\n" + doc.Info.Description + "\n\n" +
		"```sh\nTOKEN=$(sed -n 's/.*\"token\": \"\\(.*\\)\".*/\\1/p' .auspex/run.json)\n" +
		"curl -s -H \"Authorization: Bearer $TOKEN\" http://127.0.0.1:8080/api/v1/incidents\n```\n\n" +
		"The server has a page, `/docs/api`, on which the routes are read and tried, with the session of a browser that is logged in or with a token; what is tried there is done.\n" +
		"It needs no login to be read, as `/api/v1/openapi.yaml` does not, and asks no other server for anything.\n\n" +
		"Also served: `/metrics`, `/-/healthy`, `/-/ready` (no token), `POST /-/reload` ([who may](../how-to/reload.md)), `/debug/pprof/`, and the Prometheus query API below\n" +
		"`/prometheus/api/v1/` (`query`, `query_range`, `series`, `labels`, `label/<name>/values`, `metadata`, `rules`, `alerts`, `status/buildinfo`),\n" +
		"which take a bearer token, or basic authentication with the token as password.\n")
	for i := 0; i+1 < len(doc.Paths.Content); i += 2 {
		path := doc.Paths.Content[i].Value
		methods := doc.Paths.Content[i+1]
		for j := 0; j+1 < len(methods.Content); j += 2 {
			method := methods.Content[j].Value
			if !slices.Contains([]string{"get", "post", "put", "patch", "delete"}, method) {
				continue
			}
			var op operation
			if err := methods.Content[j+1].Decode(&op); err != nil {
				return nil, fmt.Errorf("read %s %s: %w", method, path, err)
			}
			fmt.Fprintf(&b, "\n## %s %s\n\n%s.\n", strings.ToUpper(method), path, op.Summary)
			if op.Description != "" {
				fmt.Fprintf(&b, "%s\n", strings.Join(strings.Fields(op.Description), " "))
			}
			if len(op.Parameters) == 0 {
				continue
			}
			b.WriteString("\n| parameter | in | what |\n|---|---|---|\n")
			for _, p := range op.Parameters {
				if _, name, ok := strings.Cut(p.Ref, "#/components/parameters/"); ok {
					p = doc.Components.Parameters[name]
				}
				what := p.Description
				if what != "" && !strings.HasSuffix(what, ".") {
					what += "."
				}
				if len(p.Schema.Enum) > 0 {
					what = strings.TrimSpace(what + " One of " + strings.Join(p.Schema.Enum, ", ") + ".")
				}
				if p.Schema.Default != nil {
					what = strings.TrimSpace(what + fmt.Sprintf(" Default %v.", p.Schema.Default))
				}
				fmt.Fprintf(&b, "| `%s` | %s | %s |\n", p.Name, p.In, cell(what))
			}
		}
	}
	return b.Bytes(), nil
}

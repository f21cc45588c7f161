// Package templates has the templates of installations that are shipped.
package templates

import (
	"embed"
	"encoding/json"
	"fmt"
	"path"

	"go.yaml.in/yaml/v3"

	"auspex/schemas"
)

//go:embed *.yaml
var files embed.FS

// Shipped is a template as its file has it.
type Shipped struct {
	Name string
	schemas.TemplateBody
}

// All returns what is shipped, in order of names.
func All() ([]Shipped, error) {
	names, err := files.ReadDir(".")
	if err != nil {
		return nil, fmt.Errorf("read the shipped templates: %w", err)
	}
	var out []Shipped
	for _, f := range names {
		text, err := files.ReadFile(f.Name())
		if err != nil {
			return nil, fmt.Errorf("read the shipped templates: %w", err)
		}
		var doc map[string]any
		var t Shipped
		if err = yaml.Unmarshal(text, &doc); err == nil {
			if text, err = json.Marshal(doc); err == nil { // as the API has them
				err = json.Unmarshal(text, &t)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("read the shipped template %s: %w", path.Base(f.Name()), err)
		}
		out = append(out, t)
	}
	return out, nil
}

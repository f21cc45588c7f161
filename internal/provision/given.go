package provision

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"auspex/schemas"
)

// maxText is how long the text of a parameter may be where it is one of a step's.
const maxText = 1024

// Given checks what a request gives to a template, and returns it as the texts that [Values] reads, with the names of those
// that are references to secrets. The error is [Faults].
func Given(b *schemas.TemplateBody, given map[string]any) (texts map[string]string, secrets []string, err error) {
	p, faults := readSchema(b)
	if len(faults) > 0 {
		return nil, nil, faults.err()
	}
	if given == nil {
		given = map[string]any{}
	}
	given, _ = plain(given).(map[string]any)
	if faults = p.check(given, false); len(faults) > 0 {
		return nil, nil, faults.err()
	}
	texts = make(map[string]string, len(given))
	for name, v := range given {
		text, is := v.(string)
		if kind, _ := p.properties[name]["type"].(string); !is || kind != "" && kind != "string" {
			made, err := json.Marshal(v)
			if err != nil {
				return nil, nil, Faults{{Field: "parameters." + name, Detail: "is no JSON"}}
			}
			text = string(made)
		}
		if texts[name] = text; len(text) > maxText {
			faults = append(faults, Fault{Field: "parameters." + name, Detail: "is longer than 1024 bytes"})
		}
		if p.secret[name] {
			secrets = append(secrets, name)
		}
	}
	slices.Sort(secrets)
	back, err := Values(b, texts)
	if err != nil {
		return nil, nil, err
	}
	back, _ = plain(back).(map[string]any)
	for name := range given {
		if !reflect.DeepEqual(given[name], back[name]) { // of no one type: a step has texts alone
			faults = append(faults, Fault{Field: "parameters." + name, Detail: "can be given as a text alone"})
		}
	}
	slices.SortFunc(faults, func(a, b Fault) int { return strings.Compare(a.Field, b.Field) })
	return texts, secrets, faults.err()
}

package provision

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	ignition "github.com/coreos/ignition/v2/config"
	"github.com/coreos/vcontext/report"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"go.yaml.in/yaml/v3"
)

// What a system reads when it first starts is held against what its makers say of it: Ignition by
// its own parser, cloud-init and Talos by the schemas that they publish (see NOTICE).
var (
	//go:embed makers/cloud-init-25.1.4.json
	cloudInitSchema []byte
	//go:embed makers/talos-1.9.1.json
	talosSchema []byte
)

const (
	cloudInitName = "cloud-init 25.1.4"
	ignitionName  = "Ignition 2.22.0"
	talosName     = "Talos v1.9.1"
)

// compile reads a schema of a maker; part is what of it a document is.
func compile(text []byte, id, part string) (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(closed{})
	if err := c.AddResource(id, doc); err != nil {
		return nil, err
	}
	return c.Compile(id + part)
}

var cloudInit = sync.OnceValues(func() (*jsonschema.Schema, error) { return compile(cloudInitSchema, "urn:cloud-init", "") })

// talosKinds are the documents of a machine configuration, by their kinds; the first one has none.
var talosKinds = sync.OnceValues(func() (map[string]*jsonschema.Schema, error) {
	var doc struct {
		ID   string `json:"$id"`
		Defs map[string]struct {
			Properties map[string]struct{ Enum []string }
		} `json:"$defs"`
	}
	if err := json.Unmarshal(talosSchema, &doc); err != nil {
		return nil, err
	}
	parts := map[string]string{"": "v1alpha1.Config"}
	for name, def := range doc.Defs {
		if kinds := def.Properties["kind"].Enum; len(kinds) == 1 && len(def.Properties["apiVersion"].Enum) > 0 {
			parts[kinds[0]] = name
		}
	}
	out := map[string]*jsonschema.Schema{}
	for kind, name := range parts {
		s, err := compile(talosSchema, doc.ID, "#/$defs/"+name)
		if err != nil {
			return nil, err
		}
		out[kind] = s
	}
	return out, nil
})

// flaw is what a maker says of a text: its line, from 1, and the words.
type flaw struct {
	line  int
	words string
}

var machineConfig = regexp.MustCompile(`(?m)^(version|apiVersion): *["']?v1alpha1["']? *(#.*)?$`)

// judge finds what a text is for, by what it says itself, and what the maker of that says against
// it; maker is "" of a text that is for none of them.
func judge(text string) (maker string, flaws []flaw) {
	start := strings.TrimSpace(text)
	switch {
	case strings.HasPrefix(start, "{") && strings.Contains(start, `"ignition"`):
		return ignitionName, ignitionFlaws(text)
	case strings.HasPrefix(text, "#cloud-config"):
		return cloudInitName, yamlFlaws(text, func(map[string]any) (*jsonschema.Schema, string, error) {
			s, err := cloudInit()
			return s, "", err
		})
	case machineConfig.MatchString(text):
		return talosName, yamlFlaws(text, func(doc map[string]any) (*jsonschema.Schema, string, error) {
			kinds, err := talosKinds()
			name, _ := doc["kind"].(string)
			if kinds[name] == nil {
				return nil, fmt.Sprintf("there is no document of kind %q", name), err
			}
			return kinds[name], "", err
		})
	}
	return "", nil
}

// ignitionFlaws are what Ignition refuses, and what it reads over: a misspelt field among it.
func ignitionFlaws(text string) (out []flaw) {
	_, r, err := ignition.Parse([]byte(text))
	for _, e := range r.Entries {
		if e.Kind == report.Info {
			continue
		}
		line := 0
		if p := e.Marker.StartP; p != nil {
			line = int(p.Line)
		}
		var syntax *json.SyntaxError
		if line < 1 && errors.As(json.Unmarshal([]byte(text), new(any)), &syntax) { // of which Ignition tells no line
			line = strings.Count(text[:max(syntax.Offset-1, 0)], "\n") + 1
		}
		line = max(line, 1)
		words := e.Message
		if at := e.Context.String(); at != "$" && at != "" {
			words += " at " + at
		}
		out = append(out, flaw{line, words})
	}
	if len(out) == 0 && err != nil {
		out = append(out, flaw{1, err.Error()})
	}
	return out
}

// yamlFlaws are what a schema says against the documents of a text; of says which schema is that of
// a document, or why there is none.
func yamlFlaws(text string, of func(doc map[string]any) (*jsonschema.Schema, string, error)) (out []flaw) {
	d := yaml.NewDecoder(strings.NewReader(text))
	for {
		var root yaml.Node
		var v any
		err := d.Decode(&root)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err == nil {
			err = root.Decode(&v)
		}
		if err != nil {
			line, words := 1, strings.TrimPrefix(err.Error(), "yaml: ")
			if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
				line, _ = strconv.Atoi(m[1])
				words = m[2]
			}
			return append(out, flaw{line, "it is no YAML: " + words})
		}
		if len(root.Content) == 0 || v == nil {
			continue
		}
		doc, ok := strict(v).(map[string]any)
		if !ok {
			out = append(out, flaw{root.Content[0].Line, "it is no mapping"})
			continue
		}
		schema, strange, err := of(doc)
		if err == nil && strange != "" {
			out = append(out, flaw{root.Content[0].Line, strange})
			continue
		}
		if err == nil {
			err = schema.Validate(doc)
		}
		var bad *jsonschema.ValidationError
		if errors.As(err, &bad) {
			for _, e := range reasons(bad) {
				out = append(out, flaw{lineAt(root.Content[0], e), worded(e)})
			}
		} else if err != nil {
			out = append(out, flaw{1, err.Error()})
		}
	}
}

// strict has values as JSON has them: keys and times are texts.
func strict(v any) any {
	switch x := v.(type) {
	case map[string]any:
		for k := range x {
			x[k] = strict(x[k])
		}
	case map[any]any:
		out := make(map[string]any, len(x))
		for k := range x {
			out[fmt.Sprint(k)] = strict(x[k])
		}
		return out
	case []any:
		for i := range x {
			x[i] = strict(x[i])
		}
	case time.Time:
		return x.Format(time.RFC3339)
	}
	return v
}

// reasons are the ends of what a schema says against a value. Of alternatives those count that came
// the furthest: they are the ones that were meant.
func reasons(e *jsonschema.ValidationError) (out []*jsonschema.ValidationError) {
	if len(e.Causes) == 0 {
		return []*jsonschema.ValidationError{e}
	}
	choice := false
	switch e.ErrorKind.(type) {
	case *kind.AnyOf, *kind.OneOf:
		choice = true
	}
	depth := 0
	for _, c := range e.Causes {
		below := reasons(c)
		d := 0
		for _, r := range below {
			d = max(d, len(r.InstanceLocation))
		}
		if choice && d > depth {
			out = nil
		}
		if !choice || d >= depth {
			out = append(out, below...)
		}
		depth = max(depth, d)
	}
	return out
}

// lineAt is where the value is that a reason is about, or the key that should not be there.
func lineAt(n *yaml.Node, e *jsonschema.ValidationError) int {
	path := e.InstanceLocation
	if more, ok := e.ErrorKind.(*kind.AdditionalProperties); ok && len(more.Properties) > 0 {
		path = append(slices.Clone(path), slices.Min(more.Properties))
	}
	line := n.Line
	for _, step := range path {
		n = at(n)
		found := (*yaml.Node)(nil)
		switch n.Kind {
		case yaml.MappingNode:
			for k := 0; k+1 < len(n.Content); k += 2 {
				if n.Content[k].Value == step {
					found, line = n.Content[k+1], n.Content[k].Line
				}
			}
		case yaml.SequenceNode:
			if k, err := strconv.Atoi(step); err == nil && k < len(n.Content) {
				found, line = n.Content[k], n.Content[k].Line
			}
		}
		if found == nil {
			return line
		}
		n = found
	}
	return line
}

func worded(e *jsonschema.ValidationError) string {
	words := e.ErrorKind.LocalizedString(printer)
	if len(e.InstanceLocation) > 0 {
		words += " at " + strings.Join(e.InstanceLocation, ".")
	}
	return words
}

// payload judges what an action is given, such as the CONTENTS of a file that it writes.
func (i *inspector) payload(what string, n *yaml.Node) {
	if n = at(n); n == nil || n.Kind != yaml.ScalarNode {
		return
	}
	maker, flaws := judge(n.Value)
	said := map[string]bool{}
	for _, f := range flaws {
		line := n.Line
		if n.Style&yaml.LiteralStyle != 0 { // the text begins in the line after
			line += f.line
		}
		words := fmt.Sprintf("%s: %s says: %s", what, maker, f.words)
		if !said[words] {
			said[words] = true
			i.say(line, "%s", words)
		}
	}
}

// CheckUserData is the error, [Faults] of the field user_data with lines of the text, of user data
// that those whom it is for would not take.
func CheckUserData(text string) error {
	var faults Faults
	maker, flaws := judge(text)
	for _, f := range flaws {
		faults = append(faults, Fault{Field: "user_data", Line: f.line, Detail: maker + " says: " + f.words})
	}
	slices.SortStableFunc(faults, func(a, b Fault) int { return a.Line - b.Line })
	return slices.Compact(faults).err()
}

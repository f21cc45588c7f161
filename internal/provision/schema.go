package provision

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"auspex/internal/nearest"
	"auspex/schemas"
)

// keywords are those of JSON Schema 2020-12 that a schema of parameters may use: what says of one
// value what it may be, and how a form shows it. There is nothing that leads elsewhere or branches.
var keywords = []string{
	"$comment", "additionalProperties", "const", "default", "deprecated", "description", "enum", "examples", "exclusiveMaximum", "exclusiveMinimum",
	"format", "items", "maxItems", "maxLength", "maxProperties", "maximum", "minItems", "minLength", "minProperties", "minimum", "multipleOf", "not", "pattern",
	"properties", "readOnly", "required", "title", "type", "uniqueItems", "writeOnly",
}

const (
	draft      = "https://json-schema.org/draft/2020-12/schema"
	maxDepth   = 8 // of a schema
	secretForm = "secret:"
	// Masked stands for a secret where people read.
	Masked = "(hidden)"
)

var (
	parameterName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)
	secretRef     = regexp.MustCompile(`^secret:[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
)

// parameters is a schema that was read.
type parameters struct {
	os         string // the family of the system that they are for
	properties map[string]map[string]any
	refused    map[string]string // why this system has nothing of the name, where others have
	required   []string
	secret     map[string]bool
	compiled   *jsonschema.Schema
}

// closed loads no schema from anywhere.
type closed struct{}

// Load implements jsonschema.URLLoader.
func (closed) Load(url string) (any, error) { return nil, fmt.Errorf("%s is elsewhere", url) }

// isSecret reports whether a parameter is a reference to a secret.
func isSecret(s map[string]any) bool {
	only, _ := s["writeOnly"].(bool)
	return only || s["format"] == "password"
}

// readSchema reads the schema of the parameters of a template; nil and an empty one have none.
func readSchema(b *schemas.TemplateBody) (p *parameters, faults Faults) {
	p = &parameters{os: b.OSFamily, properties: map[string]map[string]any{}, refused: map[string]string{}, secret: map[string]bool{}}
	schema := b.Parameters
	say := func(field, detail string, args ...any) {
		faults = append(faults, Fault{Field: strings.TrimSuffix("parameters."+field, "."), Detail: fmt.Sprintf(detail, args...)})
	}
	if len(schema) == 0 {
		schema = map[string]any{"type": "object"}
	}
	schema = plain(schema).(map[string]any)
	if v, said := schema["$schema"]; said && v != draft {
		say("$schema", "is not %s", draft)
	}
	if schema["type"] != "object" {
		say("type", "is not object: the parameters are its properties")
	}
	walkSchema("", schema, 0, say)
	if len(faults) > 0 {
		return nil, faults
	}
	properties, _ := schema["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		one, ok := properties[name].(map[string]any)
		switch {
		case !ok:
			say("properties."+name, "is no schema")
		case !parameterName.MatchString(name):
			say("properties."+name, "is no name of a parameter: letters, digits and _, no digit first, at most 64")
		case name == hardwareKey || name == deviceKey:
			say("properties."+name, "is what the hardware is called in a template; choose another name")
		case one["not"] != nil:
			if p.refused[name], _ = one["description"].(string); p.refused[name] == "" {
				say("properties."+name+".description", "is needed: it says why the parameter cannot be given")
			}
		default:
			p.properties[name] = one
			p.secret[name] = isSecret(one)
			if p.secret[name] && one["type"] != "string" {
				say("properties."+name+".type", "is not string: a secret is a reference, secret:NAME")
			}
		}
	}
	if list, ok := schema["required"].([]any); ok {
		for _, v := range list {
			name, _ := v.(string)
			if p.properties[name] == nil {
				say("required", "names %q, which is none of the properties", name)
			}
			p.required = append(p.required, name)
		}
	}
	if len(faults) > 0 {
		return nil, faults
	}
	// What a secret may be is said of the secret; here is only its reference, which is held by itself.
	shown := maps.Clone(properties)
	for name := range p.refused {
		delete(shown, name) // an unknown one, with a reason
	}
	for name := range p.properties {
		if p.secret[name] {
			shown[name] = map[string]any{"type": "string"}
		}
	}
	whole := maps.Clone(schema)
	whole["additionalProperties"] = false
	if properties != nil {
		whole["properties"] = shown
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	c.UseLoader(closed{})
	const at = "urn:parameters"
	err := c.AddResource(at, whole)
	if err == nil {
		p.compiled, err = c.Compile(at)
	}
	if err != nil {
		var bad *jsonschema.SchemaValidationError
		if errors.As(err, &bad) {
			err = bad.Err
		}
		return nil, invalid("parameters", err)
	}
	// Those that are given nothing are tried with these.
	for _, name := range slices.Sorted(maps.Keys(p.properties)) {
		one := p.properties[name]
		values := []any{}
		if v, said := one["default"]; said {
			values = append(values, v)
		}
		examples, _ := one["examples"].([]any)
		values = append(values, examples...)
		for i, v := range values {
			field := "properties." + name + ".default"
			if _, said := one["default"]; !said || i > 0 {
				field = "properties." + name + ".examples"
			}
			if p.secret[name] {
				if text, _ := v.(string); !secretRef.MatchString(text) {
					say(field, "is no reference to a secret, secret:NAME; a secret itself is never stored")
				}
				continue
			}
			for _, f := range p.check(map[string]any{name: v}, true) {
				say(field, "is not what the schema says: %s", f.Detail)
			}
		}
		if len(values) == 0 && !p.secret[name] && slices.Contains(p.required, name) {
			say("properties."+name, "has neither a default nor examples; one is needed to try the template with")
		}
	}
	if len(faults) > 0 {
		return nil, faults
	}
	return p, nil
}

// walkSchema looks for what a schema of parameters does not use.
func walkSchema(at string, s map[string]any, depth int, say func(field, detail string, args ...any)) {
	if depth > maxDepth {
		say(strings.TrimSuffix(at, "."), "is more than %d deep", maxDepth)
		return
	}
	for _, key := range slices.Sorted(maps.Keys(s)) {
		if depth == 0 && key == "$schema" {
			continue
		}
		if anything, ok := s[key].(map[string]any); key == "not" && (depth != 1 || !ok || len(anything) > 0) {
			say(at+key, "is not {}, of a parameter: it refuses one that others have and this system has not, and nothing else")
			continue
		}
		if !slices.Contains(keywords, key) {
			hint := ""
			if like := nearest.Words(key, slices.Values(keywords), 1); len(like) > 0 {
				hint = "; there is " + like[0]
			}
			say(at+key, "is no keyword that a schema of parameters may have%s", hint)
		}
	}
	below := func(field string, v any) {
		one, ok := v.(map[string]any)
		if !ok {
			return
		}
		if depth > 0 && isSecret(one) {
			say(field, "is within a parameter; only a parameter itself can be a secret")
		}
		walkSchema(field+".", one, depth+1, say)
	}
	properties, _ := s["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		below(at+"properties."+name, properties[name])
	}
	below(at+"items", s["items"])
	if more, ok := s["additionalProperties"].(map[string]any); ok {
		below(at+"additionalProperties", more)
	} else if depth == 0 && s["additionalProperties"] == true {
		say("additionalProperties", "is true: a parameter that the schema does not name is always refused")
	}
}

// plain has whole numbers as such, as they are to be printed and as functions take them.
func plain(v any) any {
	switch x := v.(type) {
	case float64:
		if x == math.Trunc(x) && math.Abs(x) < 1<<53 {
			return int(x)
		}
	case map[string]any:
		out := make(map[string]any, len(x))
		for k, v := range x {
			out[k] = plain(v)
		}
		return out
	case []any:
		out := make([]any, len(x))
		for i := range x {
			out[i] = plain(x[i])
		}
		return out
	}
	return v
}

// check holds values against the schema. Some are those of one parameter: others may lack.
func (p *parameters) check(values map[string]any, some bool) (faults Faults) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if p.secret[name] {
			if text, _ := values[name].(string); !secretRef.MatchString(text) { // which is not repeated
				faults = append(faults, Fault{Field: "parameters." + name, Detail: "is no reference to a secret, secret:NAME; give the name of one, and never the secret itself"})
			}
		}
	}
	for _, name := range p.required {
		if _, given := values[name]; !given && !some {
			faults = append(faults, Fault{Field: "parameters." + name, Detail: "is needed"})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		switch why, refused := p.refused[name]; {
		case refused:
			faults = append(faults, Fault{Field: "parameters." + name, Detail: "is nothing for " + p.os + ": " + why})
		case p.properties[name] == nil:
			hint := ""
			if like := nearest.Words(name, maps.Keys(p.properties), 1); len(like) > 0 {
				hint = "; there is " + like[0]
			}
			faults = append(faults, Fault{Field: "parameters." + name, Detail: "is no parameter of this template, which is for " + p.os + hint})
		}
	}
	if len(faults) > 0 {
		return faults
	}
	full := values
	if some {
		full = maps.Clone(values)
		for _, name := range p.required {
			if _, given := full[name]; !given {
				full[name] = p.sample(name)
			}
		}
	}
	err := p.compiled.Validate(full)
	for _, f := range invalid("parameters", err) {
		first, below, _ := strings.Cut(strings.TrimPrefix(f.Field, "parameters."), ".")
		if some && !hasKey(values, first) {
			continue
		}
		if choice, _ := p.properties[first]["enum"].([]any); below == "" && choice != nil {
			if why, _ := p.properties[first]["description"].(string); why != "" {
				f.Detail += " for " + p.os + ": " + why
			}
		}
		faults = append(faults, f)
	}
	return faults
}

func hasKey(m map[string]any, key string) bool { _, ok := m[key]; return ok }

// sample is what a parameter is tried with.
func (p *parameters) sample(name string) any {
	one := p.properties[name]
	if p.secret[name] {
		return secretForm + "example"
	}
	if v, said := one["default"]; said {
		return v
	}
	if examples, _ := one["examples"].([]any); len(examples) > 0 {
		return examples[0]
	}
	return nil
}

// fill is what a template gets of what was given: defaults stand for what was left out, and what
// has none is null, which is false where a template asks for it.
func (p *parameters) fill(given map[string]any) map[string]any {
	out := make(map[string]any, len(p.properties))
	for name, one := range p.properties {
		if v, there := given[name]; there {
			out[name] = v
		} else {
			out[name] = one["default"]
		}
	}
	return out
}

// printer writes the sentences of the validator.
var printer = message.NewPrinter(language.English)

// invalid are the faults of an error of validation, each where it is.
func invalid(field string, err error) (out Faults) {
	var bad *jsonschema.ValidationError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &bad):
		return Faults{{Field: field, Detail: "is no JSON Schema: " + err.Error()}}
	}
	var walk func(e *jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		if len(e.Causes) == 0 {
			at := strings.Join(append([]string{field}, e.InstanceLocation...), ".")
			out = append(out, Fault{Field: at, Detail: e.ErrorKind.LocalizedString(printer)})
		}
		for _, c := range e.Causes {
			walk(c)
		}
	}
	walk(bad)
	slices.SortStableFunc(out, func(a, b Fault) int { return cmp.Compare(a.Field, b.Field) })
	return out
}

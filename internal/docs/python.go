package docs

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/getkin/kin-openapi/openapi3"
)

// PythonClient is client/python/auspex/api.py: a typed dictionary for each schema of the OpenAPI
// document, and a method for each route that takes and answers JSON.
func PythonClient(spec []byte) ([]byte, error) {
	doc, err := openapi3.NewLoader().LoadFromData(spec)
	if err != nil {
		return nil, fmt.Errorf("read the OpenAPI document: %w", err)
	}
	var b bytes.Buffer
	b.WriteString(`"""Generated from schemas/openapi/openapi.yaml by go generate ./internal/docs; DO NOT EDIT."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NotRequired, TypedDict

from .transport import Transport, _part
`)
	for _, name := range slices.Sorted(maps.Keys(doc.Components.Schemas)) {
		s := doc.Components.Schemas[name].Value
		if s.Properties == nil {
			fmt.Fprintf(&b, "\n%s = %s\n", name, pythonType(&openapi3.SchemaRef{Value: s}))
			continue
		}
		fmt.Fprintf(&b, "\n%s = TypedDict(%q, {\n", name, name)
		for _, field := range slices.Sorted(maps.Keys(s.Properties)) {
			typ := pythonType(s.Properties[field])
			if !slices.Contains(s.Required, field) {
				typ = "NotRequired[" + typ + "]"
			}
			fmt.Fprintf(&b, "    %q: %s,\n", field, typ)
		}
		b.WriteString("})\n")
	}
	b.WriteString("\n\nclass Api(Transport):\n    \"\"\"Every route of the API.\"\"\"\n")
	for _, path := range slices.Sorted(maps.Keys(doc.Paths.Map())) {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete} {
			if op := doc.Paths.Value(path).GetOperation(method); op != nil {
				pythonMethod(&b, path, method, op)
			}
		}
	}
	return b.Bytes(), nil
}

func pythonMethod(b *bytes.Buffer, path, method string, op *openapi3.Operation) {
	var answers []string
	page := ""
	for _, code := range slices.Sorted(maps.Keys(op.Responses.Map())) {
		if code[0] != '2' {
			continue
		}
		res, typ := op.Responses.Value(code).Value, "None"
		if len(res.Content) > 0 {
			m := res.Content.Get("application/json")
			if m == nil {
				return
			}
			typ = pythonType(m.Schema)
			if items := m.Schema.Value.Properties["items"]; items != nil && m.Schema.Value.Properties["next"] != nil {
				page = pythonType(items.Value.Items)
			}
		}
		if !slices.Contains(answers, typ) {
			answers = append(answers, typ)
		}
	}
	if len(answers) == 0 {
		return // it sends a browser elsewhere
	}
	args, asked, more, route := []string{"self"}, []string{}, "", strconv.Quote(path)
	var named []string
	for _, p := range op.Parameters {
		name := snake(p.Value.Name)
		switch {
		case p.Value.In == openapi3.ParameterInPath:
			args = append(args, name+": str")
			route = "f" + strings.TrimPrefix(strings.Replace(route, "{"+p.Value.Name+"}", "{_part("+name+")}", 1), "f")
		case p.Value.In == openapi3.ParameterInQuery:
			asked = append(asked, fmt.Sprintf("%q: %s", p.Value.Name, name))
			named = append(named, argument(name, p.Value))
		case p.Value.Name == "If-Match":
			named = append(named, argument(name, p.Value))
			more += ", if_match=if_match"
		case p.Value.Name == "Idempotency-Key":
			more += ", once=True"
		}
	}
	if len(asked) > 0 {
		more += ", query={" + strings.Join(asked, ", ") + "}"
	}
	if op.RequestBody != nil {
		typ := pythonType(op.RequestBody.Value.Content.Get("application/json").Schema)
		if !op.RequestBody.Value.Required {
			typ += " | None = None"
		}
		args = append(args, "body: "+typ)
		more += ", body=body"
	}
	name, answer := snake(op.OperationID), strings.Join(answers, " | ")
	def := func(name string, args, named []string, answer string) {
		if len(named) > 0 {
			args = append(append(slices.Clone(args), "*"), named...)
		}
		fmt.Fprintf(b, "\n    def %s(%s) -> %s:\n        %s\n", name, strings.Join(args, ", "), answer, docstring(op.Summary))
	}
	def(name, args, named, answer)
	if answer == "None" {
		fmt.Fprintf(b, "        self._do(%q, %s%s)\n", method, route, more)
	} else {
		fmt.Fprintf(b, "        answer: %s = self._do(%q, %s%s)\n        return answer\n", answer, method, route, more)
	}
	if rest, listed := strings.CutPrefix(name, "list_"); listed && page != "" {
		named = slices.DeleteFunc(named, func(a string) bool { return strings.HasPrefix(a, "after:") })
		def("iter_"+rest, args, named, "Iterator["+page+"]")
		query := "{" + strings.Join(slices.DeleteFunc(asked, func(a string) bool { return strings.HasPrefix(a, `"after"`) }), ", ") + "}"
		fmt.Fprintf(b, "        query: dict[str, Any] = %s\n        while True:\n            page = self._do(%q, %s, query=query)\n"+
			"            yield from page[\"items\"]\n            if not page.get(\"next\"):\n                return\n            query[\"after\"] = page[\"next\"]\n", query, method, route)
	}
}

func argument(name string, p *openapi3.Parameter) string {
	typ := pythonType(p.Schema)
	if p.Required {
		return name + ": " + typ
	}
	return name + ": " + typ + " | None = None"
}

func docstring(text string) string { return `"""` + strings.ReplaceAll(text, `"`, "'") + `."""` }

// pythonType is the type of a schema; times are texts (RFC 3339).
func pythonType(r *openapi3.SchemaRef) string {
	if r == nil || r.Value == nil {
		return "Any"
	}
	s, typ := r.Value, ""
	switch {
	case r.Ref != "":
		return `"` + r.Ref[strings.LastIndexByte(r.Ref, '/')+1:] + `"`
	case len(s.AllOf) == 1:
		typ = pythonType(s.AllOf[0])
	case len(s.Enum) > 0:
		var all []string
		for _, v := range s.Enum {
			if v != nil {
				all = append(all, fmt.Sprintf("%#v", v))
			}
		}
		typ = "Literal[" + strings.Join(all, ", ") + "]"
	case s.Type.Is("string"):
		typ = "str"
	case s.Type.Is("integer"):
		typ = "int"
	case s.Type.Is("number"):
		typ = "float"
	case s.Type.Is("boolean"):
		typ = "bool"
	case s.Type.Is("array"):
		typ = "list[" + pythonType(s.Items) + "]"
	case s.AdditionalProperties.Schema != nil:
		typ = "dict[str, " + pythonType(s.AdditionalProperties.Schema) + "]"
	case s.Type.Is("object"):
		typ = "dict[str, Any]"
	default:
		return "Any"
	}
	if s.Nullable {
		// One of a name that comes later is a text, in which the alternative has to be.
		if name, quoted := strings.CutSuffix(typ, `"`); quoted && strings.HasPrefix(typ, `"`) {
			return name + ` | None"`
		}
		return typ + " | None"
	}
	return typ
}

// snake turns createJoinToken and If-Match into create_join_token and if_match; a word of Python's gets a _.
func snake(name string) string {
	var out []rune
	runes := []rune(strings.NewReplacer("-", "_", "GPUs", "Gpus").Replace(name))
	for i, r := range runes {
		if unicode.IsUpper(r) && i > 0 && runes[i-1] != '_' &&
			(unicode.IsLower(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])) {
			out = append(out, '_')
		}
		out = append(out, unicode.ToLower(r))
	}
	word := string(out)
	if slices.Contains([]string{"from", "in", "with", "is", "not", "class", "def", "return", "global", "import", "pass"}, word) {
		word += "_"
	}
	return word
}

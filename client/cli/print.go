package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/getkin/kin-openapi/openapi3"
	"go.yaml.in/yaml/v3"
)

// columns is how many fields of a record a table shows.
const columns = 8

// print writes an answer as the user asked: a list as a table, a record as its fields.
func (o *options) print(out, notes io.Writer, s *openapi3.Schema, raw json.RawMessage) error {
	switch o.output {
	case "json":
		var b bytes.Buffer
		if len(raw) == 0 {
			return nil
		}
		if err := json.Indent(&b, raw, "", "  "); err != nil {
			return err
		}
		_, err := fmt.Fprintln(out, strings.TrimSpace(b.String()))
		return err
	case "yaml":
		var v any
		if len(raw) == 0 {
			return nil
		}
		if err := json.Unmarshal(raw, &v); err != nil {
			return err
		}
		e := yaml.NewEncoder(out)
		e.SetIndent(2)
		return e.Encode(v)
	case "table":
	default:
		return fmt.Errorf("-o: want table, json or yaml, got %q", o.output)
	}
	if len(raw) == 0 || s == nil {
		return nil
	}
	var v map[string]any
	if err := json.Unmarshal(raw, &v); err != nil {
		_, err := fmt.Fprintln(out, string(raw))
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	items, listed := v["items"].([]any)
	list := property(s, "items")
	if !listed || list == nil || list.Items == nil {
		fields(w, s, v, "")
		return w.Flush()
	}
	names := shown(list.Items.Value)
	_, _ = fmt.Fprintln(w, strings.ToUpper(strings.Join(names, "\t")))
	for _, one := range items {
		record, _ := one.(map[string]any)
		row := make([]string, len(names))
		for i, name := range names {
			row[i] = text(record[name])
		}
		_, _ = fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if next, _ := v["next"].(string); next != "" {
		_, _ = fmt.Fprintf(notes, "there is more: --after %s, or --all\n", next)
	}
	return nil
}

// shown are the columns of a list: those that the document names for it, or the first of those
// that each record has and that are one value.
func shown(s *openapi3.Schema) []string {
	if all, ok := s.Extensions["x-columns"].([]any); ok {
		var out []string
		for _, v := range all {
			out = append(out, fmt.Sprint(v))
		}
		return out
	}
	var out []string
	for _, name := range s.Required {
		if p := s.Properties[name]; p != nil && !p.Value.Type.Is("object") && !p.Value.Type.Is("array") && len(out) < columns {
			out = append(out, name)
		}
	}
	return out
}

// fields writes a record a line a field, those of records in it below their name.
func fields(w io.Writer, s *openapi3.Schema, v map[string]any, under string) {
	for _, name := range order(s, v) {
		switch x := v[name].(type) {
		case map[string]any:
			inner := s
			if p := property(s, name); p != nil {
				inner = p
			}
			fields(w, inner, x, under+name+".")
		default:
			_, _ = fmt.Fprintf(w, "%s%s\t%s\n", under, name, text(x))
		}
	}
}

func property(s *openapi3.Schema, name string) *openapi3.Schema {
	if s == nil || s.Properties[name] == nil {
		return nil
	}
	return s.Properties[name].Value
}

// order is that of the required fields, then of the alphabet.
func order(s *openapi3.Schema, v map[string]any) []string {
	var out []string
	seen := make(map[string]bool)
	if s != nil {
		for _, name := range s.Required {
			if _, has := v[name]; has {
				out, seen[name] = append(out, name), true
			}
		}
	}
	for _, name := range sortedKeys(v) {
		if !seen[name] {
			out = append(out, name)
		}
	}
	return out
}

// text is a value in a cell.
func text(v any) string {
	switch x := v.(type) {
	case nil:
		return ""
	case string:
		return strings.NewReplacer("\t", " ", "\n", " ").Replace(x)
	case []any:
		parts := make([]string, len(x))
		for i, one := range x {
			parts[i] = text(one)
		}
		return strings.Join(parts, ",")
	default:
		return jsonText(x)
	}
}

func jsonText(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}

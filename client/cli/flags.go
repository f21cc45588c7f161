package cli

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// help is what a flag says of itself.
func help(s *openapi3.Schema, text string) string {
	text = first(text, s.Description)
	if len(s.Enum) > 0 {
		var all []string
		for _, v := range s.Enum {
			all = append(all, fmt.Sprint(v))
		}
		text = strings.TrimSuffix(strings.TrimPrefix(text+": "+strings.Join(all, ", "), ": "), ": ")
	}
	return strings.ReplaceAll(text, "`", "")
}

// dashed is a name as a flag has it.
func dashed(name string) string { return strings.ReplaceAll(name, "_", "-") }

// add makes a flag of a value, and says whether one can be.
func add(f *pflag.FlagSet, name string, s *openapi3.Schema, text string) bool {
	if f.Lookup(name) != nil {
		return false
	}
	switch {
	case s.Type.Is("string"):
		f.String(name, "", help(s, text))
	case s.Type.Is("integer"):
		f.Int64(name, 0, help(s, text))
	case s.Type.Is("number"):
		f.Float64(name, 0, help(s, text))
	case s.Type.Is("boolean"):
		f.Bool(name, false, help(s, text))
	case s.Type.Is("array") && s.Items != nil && s.Items.Value.Type.Is("string"):
		f.StringSlice(name, nil, help(s, text))
	case s.Type.Is("array") && s.Items != nil && s.Items.Value.Type.Is("integer"):
		f.IntSlice(name, nil, help(s, text))
	case s.Type.Is("object") && s.AdditionalProperties.Schema != nil && s.AdditionalProperties.Schema.Value.Type.Is("string"):
		f.StringToString(name, nil, help(s, text))
	default:
		return false
	}
	return true
}

// value is what a flag was set to, as JSON has it.
func value(f *pflag.FlagSet, name string, s *openapi3.Schema) any {
	switch {
	case s.Type.Is("integer"):
		v, _ := f.GetInt64(name)
		return v
	case s.Type.Is("number"):
		v, _ := f.GetFloat64(name)
		return v
	case s.Type.Is("boolean"):
		v, _ := f.GetBool(name)
		return v
	case s.Type.Is("array") && s.Items.Value.Type.Is("integer"):
		v, _ := f.GetIntSlice(name)
		return v
	case s.Type.Is("array"):
		v, _ := f.GetStringSlice(name)
		return v
	case s.Type.Is("object"):
		v, _ := f.GetStringToString(name)
		return v
	}
	v, _ := f.GetString(name)
	return v
}

// query makes flags of the query parameters; what it returns reads them.
func (r *route) query(c *cobra.Command) func(*cobra.Command) url.Values {
	params := make(map[string]*openapi3.Parameter)
	for _, ref := range r.op.Parameters {
		p := ref.Value
		if p.In != openapi3.ParameterInQuery || p.Schema == nil {
			continue
		}
		if name := dashed(p.Name); add(c.Flags(), name, p.Schema.Value, p.Description) {
			params[name] = p
			enumerate(c, name, p.Schema.Value)
		}
	}
	return func(cmd *cobra.Command) url.Values {
		out := url.Values{}
		for name, p := range params {
			if !cmd.Flags().Changed(name) {
				continue
			}
			switch v := value(cmd.Flags(), name, p.Schema.Value).(type) {
			case []string:
				out[p.Name] = v
			case float64:
				out.Set(p.Name, strconv.FormatFloat(v, 'g', -1, 64))
			default:
				out.Set(p.Name, fmt.Sprint(v))
			}
		}
		return out
	}
}

func enumerate(c *cobra.Command, name string, s *openapi3.Schema) {
	if len(s.Enum) == 0 {
		return
	}
	var all []string
	for _, v := range s.Enum {
		all = append(all, fmt.Sprint(v))
	}
	_ = c.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(all, cobra.ShellCompDirectiveNoFileComp))
}

// body makes flags of the fields of the body, those of an object in it as wish.gpus, and --body
// for all of it; what it returns makes the body, nil where the route has none.
func (r *route) body(c *cobra.Command) func(*cobra.Command) (any, error) {
	none := func(*cobra.Command) (any, error) { return nil, nil }
	if r.op.RequestBody == nil || r.op.RequestBody.Value == nil {
		return none
	}
	m := r.op.RequestBody.Value.Content.Get("application/json")
	if m == nil || m.Schema == nil {
		return none
	}
	fields := make(map[string]field)
	r.fields(c, m.Schema.Value, nil, fields)
	c.Flags().StringP("body", "f", "", "the request as JSON, or as YAML where its name ends so: a `file`, or - for standard input")
	required := r.op.RequestBody.Value.Required
	return func(cmd *cobra.Command) (any, error) {
		out, err := r.whole(cmd)
		if err != nil {
			return nil, err
		}
		set := out != nil
		if out == nil {
			out = make(map[string]any)
		}
		for name, f := range fields {
			if !cmd.Flags().Changed(name) {
				continue
			}
			set = true
			at := out
			for _, key := range f.path[:len(f.path)-1] {
				inner, ok := at[key].(map[string]any)
				if !ok {
					inner = make(map[string]any)
					at[key] = inner
				}
				at = inner
			}
			at[f.path[len(f.path)-1]] = value(cmd.Flags(), name, f.schema)
		}
		if !set && !required {
			return nil, nil
		}
		return out, nil
	}
}

type field struct {
	path   []string
	schema *openapi3.Schema
}

func (r *route) fields(c *cobra.Command, s *openapi3.Schema, path []string, into map[string]field) {
	for _, name := range sortedKeys(s.Properties) {
		at := append(slices.Clone(path), name)
		flag := dashed(strings.Join(at, "."))
		p := s.Properties[name].Value
		if add(c.Flags(), flag, p, "") {
			into[flag] = field{at, p}
			enumerate(c, flag, p)
		} else if p.Type.Is("object") && len(path) == 0 {
			r.fields(c, p, at, into)
		}
	}
}

// whole reads the body that --body names.
func (r *route) whole(cmd *cobra.Command) (map[string]any, error) {
	name, _ := cmd.Flags().GetString("body")
	if name == "" {
		return nil, nil
	}
	in := r.stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	var out map[string]any
	if ext := filepath.Ext(name); ext == ".yaml" || ext == ".yml" {
		if err := yaml.NewDecoder(in).Decode(&out); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return out, nil
	}
	d := json.NewDecoder(in)
	d.UseNumber()
	if err := d.Decode(&out); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return out, nil
}

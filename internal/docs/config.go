package docs

import (
	"bytes"
	"fmt"
	"go/ast"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"auspex/internal/config"
)

var word = regexp.MustCompile(`\b[A-Z][A-Za-z0-9]+\b`)

// structOf finds a struct type and the file that declares it.
func (s *Source) structOf(dir, name string) (*ast.StructType, *ast.File) {
	for _, f := range s.packages[dir] {
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range g.Specs {
				if t, ok := spec.(*ast.TypeSpec); ok && t.Name.Name == name {
					if st, ok := t.Type.(*ast.StructType); ok {
						return st, f
					}
				}
			}
		}
	}
	return nil, nil
}

// typeOf resolves the type of a field to the folder and name of its declaration.
func typeOf(e ast.Expr, dir string, f *ast.File) (string, string) {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeOf(e.X, dir, f)
	case *ast.Ident:
		return dir, e.Name
	case *ast.SelectorExpr:
		pkg, ok := e.X.(*ast.Ident)
		if !ok {
			return "", ""
		}
		for _, imp := range f.Imports {
			p, err := strconv.Unquote(imp.Path.Value)
			if err != nil {
				continue
			}
			name := p[strings.LastIndex(p, "/")+1:]
			if imp.Name != nil {
				name = imp.Name.Name
			}
			if name == pkg.Name && strings.HasPrefix(p, module+"/") {
				return strings.TrimPrefix(p, module+"/"), e.Sel.Name
			}
		}
	}
	return "", ""
}

func tagOf(f *ast.Field) (name string, inline bool) {
	if f.Tag == nil {
		return "", false
	}
	raw, err := strconv.Unquote(f.Tag.Value)
	if err != nil {
		return "", false
	}
	name, opts, _ := strings.Cut(reflect.StructTag(raw).Get("yaml"), ",")
	return name, strings.Contains(opts, "inline")
}

// comment returns what the sources say about the key at a path below a struct;
// names of fields become the keys that people write.
func (s *Source) comment(dir, name string, keys []string) string {
	st, file := s.structOf(dir, name)
	if st == nil || len(keys) == 0 {
		return ""
	}
	names := map[string]string{}
	for _, f := range st.Fields.List {
		if tag, _ := tagOf(f); tag != "" {
			for _, n := range f.Names {
				names[n.Name] = tag
			}
		}
	}
	for _, f := range st.Fields.List {
		tag, inline := tagOf(f)
		d, n := typeOf(f.Type, dir, file)
		switch {
		case inline:
			if c := s.comment(d, n, keys); c != "" {
				return c
			}
		case tag == keys[0] && len(keys) > 1:
			return s.comment(d, n, keys[1:])
		case tag == keys[0]:
			text := strings.TrimSpace(f.Doc.Text())
			if text == "" {
				text = strings.TrimSpace(f.Comment.Text())
			}
			text = word.ReplaceAllStringFunc(text, func(w string) string {
				if key, ok := names[w]; ok {
					return "`" + key + "`"
				}
				return w
			})
			return text
		}
	}
	return ""
}

// ConfigPage is docs/reference/config.md: every key below the struct that dir and
// name declare, with its type, default and meaning. Collectors are sections by
// name, each declared by the struct Config of its own package.
func (s *Source) ConfigPage(dir, name string, keys []config.Key) []byte {
	var b bytes.Buffer
	b.WriteString("# Configuration\n\nGenerated from the code; do not edit. `auspex config keys` prints the keys of the binary at hand.\n\n" +
		"Sources, each over the one before: defaults, `--config FILE` (may be given again), environment variables\n(`store.sql` is `AUSPEX_STORE_SQL`), `--set key=value`, and the flags of the command. " +
		"Keys are strict: an unknown key\nis an error with file, line and the nearest key. Times are written as `10s`, `5m`, `168h`.\n" +
		"A collector runs when its section is there, even if it is empty: `collectors: {kmsg: {}}`.\n")
	section := ""
	top := func(k config.Key) int { return min(1, strings.Count(k.Path, ".")) }
	keys = slices.SortedStableFunc(slices.Values(keys), func(a, b config.Key) int { return top(a) - top(b) })
	for _, k := range keys {
		parts := strings.Split(k.Path, ".")
		sec := parts[0]
		var what string
		switch {
		case parts[0] == "collectors" && len(parts) > 2:
			sec += "." + parts[1]
			what = s.comment("collectors/"+parts[1], "Config", parts[2:])
		default:
			what = s.comment(dir, name, parts)
			if what == "" && parts[0] == "control" && len(parts) > 2 { // a driver's, in a package of its own
				what = s.comment("control/"+parts[1], "Config", parts[2:])
			}
		}
		if len(parts) == 1 {
			sec = "top level"
		}
		if sec != section {
			section = sec
			fmt.Fprintf(&b, "\n## %s\n\n| key | type | default | what |\n|---|---|---|---|\n", section)
		}
		def := oneLine(k.Default)
		if def != "" {
			def = "`" + cell(def) + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", k.Path, short(k.Type), def, cell(what))
	}
	return b.Bytes()
}

// oneLine writes a default of several lines in one, and an empty one as nothing.
func oneLine(s string) string {
	var n yaml.Node
	if err := yaml.Unmarshal([]byte(s), &n); err != nil || len(n.Content) == 0 {
		return s
	}
	if n.Content[0].Kind == yaml.ScalarNode {
		return n.Content[0].Value
	}
	if len(n.Content[0].Content) == 0 {
		return ""
	}
	n.Content[0].Style = yaml.FlowStyle
	b, err := yaml.Marshal(n.Content[0])
	if err != nil {
		return s
	}
	return string(b)
}

func short(kind string) string {
	kind = strings.TrimPrefix(kind, "a ")
	kind, _, _ = strings.Cut(kind, " such as")
	return kind
}

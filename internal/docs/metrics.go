package docs

import (
	"bytes"
	"fmt"
	"go/ast"
	"maps"
	"slices"
	"strings"
)

// Metric is one of Auspex's own metrics.
type Metric struct {
	Name, Kind, Help string
	Labels           []string
}

// template is a function of the sources that makes metrics out of its parameters.
type template struct {
	params     []string
	variadic   bool
	name, help ast.Expr
	kind       string
	labels     []string // nil: the parameters that are left over
}

// Metrics finds every metric that the sources define with a name in clear text,
// also through small local functions, ordered by name.
func (s *Source) Metrics() []Metric {
	found := map[string]Metric{}
	for _, files := range s.packages {
		consts := constants(files)
		for _, f := range files {
			for _, d := range f.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok || fn.Body == nil {
					continue
				}
				for _, m := range metricsOf(fn, consts) {
					found[m.Name] = m
				}
			}
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b Metric) int { return strings.Compare(a.Name, b.Name) })
}

func constants(files []*ast.File) map[string]string {
	out := map[string]string{}
	for _, f := range files {
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range g.Specs {
				v, ok := spec.(*ast.ValueSpec)
				if !ok {
					continue
				}
				for i, n := range v.Names {
					if i < len(v.Values) {
						if s, ok := text(v.Values[i], out); ok {
							out[n.Name] = s
						}
					}
				}
			}
		}
	}
	return out
}

func metricsOf(fn *ast.FuncDecl, consts map[string]string) []Metric {
	templates := map[string]template{}
	var out []Metric
	// Local functions first: `counter := func(name, help string, labels ...string) …`.
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		a, ok := n.(*ast.AssignStmt)
		if !ok || len(a.Lhs) != 1 || len(a.Rhs) != 1 {
			return true
		}
		id, okL := a.Lhs[0].(*ast.Ident)
		lit, okR := a.Rhs[0].(*ast.FuncLit)
		if !okL || !okR {
			return true
		}
		t := template{}
		for _, p := range lit.Type.Params.List {
			_, dots := p.Type.(*ast.Ellipsis)
			for _, name := range p.Names {
				t.params = append(t.params, name.Name)
				t.variadic = dots
			}
		}
		for _, d := range definitions(lit.Body) {
			if _, ok := text(d.name, consts); !ok {
				t.name, t.help, t.kind, t.labels = d.name, d.help, d.kind, d.labels
				templates[id.Name] = t
			}
		}
		return true
	})
	for _, d := range definitions(fn.Body) {
		name, ok := text(d.name, consts)
		help, okHelp := text(d.help, consts)
		if ok && okHelp {
			out = append(out, Metric{name, d.kind, help, d.labels})
		}
	}
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		id, ok := call.Fun.(*ast.Ident)
		if !ok {
			return true
		}
		t, ok := templates[id.Name]
		if !ok {
			return true
		}
		env := maps.Clone(consts)
		var rest []string
		for i, arg := range call.Args {
			v, ok := text(arg, consts)
			if !ok {
				continue
			}
			if t.variadic && i >= len(t.params)-1 {
				rest = append(rest, v)
			} else if i < len(t.params) {
				env[t.params[i]] = v
			}
		}
		name, ok := text(t.name, env)
		help, okHelp := text(t.help, env)
		if ok && okHelp {
			labels := t.labels
			if labels == nil {
				labels = rest
			}
			out = append(out, Metric{name, t.kind, help, labels})
		}
		return true
	})
	return slices.DeleteFunc(out, func(m Metric) bool { return !strings.HasPrefix(m.Name, "auspex_") })
}

type definition struct {
	name, help ast.Expr
	kind       string
	labels     []string
}

// definitions finds the options of metrics, with the labels that stand beside them.
func definitions(body ast.Node) []definition {
	var out []definition
	seen := map[*ast.CompositeLit]bool{}
	add := func(e ast.Expr, labels []string) {
		lit, ok := e.(*ast.CompositeLit)
		if !ok || seen[lit] {
			return
		}
		sel, ok := lit.Type.(*ast.SelectorExpr)
		if !ok || !strings.HasSuffix(sel.Sel.Name, "Opts") {
			return
		}
		d := definition{kind: strings.ToLower(strings.TrimSuffix(sel.Sel.Name, "Opts")), labels: labels}
		for _, el := range lit.Elts {
			kv, ok := el.(*ast.KeyValueExpr)
			if !ok {
				continue
			}
			switch key, _ := kv.Key.(*ast.Ident); {
			case key == nil:
			case key.Name == "Name":
				d.name = kv.Value
			case key.Name == "Help":
				d.help = kv.Value
			case key.Name == "ConstLabels":
				if c, ok := kv.Value.(*ast.CompositeLit); ok {
					for _, el := range c.Elts {
						if kv, ok := el.(*ast.KeyValueExpr); ok {
							if s, ok := text(kv.Key, nil); ok {
								d.labels = append(d.labels, s)
							}
						}
					}
				}
			}
		}
		if d.name != nil && d.help != nil {
			seen[lit] = true
			out = append(out, d)
		}
	}
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			var labels []string
			if len(n.Args) > 1 {
				if l, ok := n.Args[1].(*ast.CompositeLit); ok {
					for _, el := range l.Elts {
						if s, ok := text(el, nil); ok {
							labels = append(labels, s)
						}
					}
				}
			}
			for _, a := range n.Args {
				add(a, labels)
			}
		case *ast.CompositeLit:
			add(n, nil)
		}
		return true
	})
	return out
}

// MetricsPage is docs/reference/metrics.md's part on Auspex's own metrics.
func (s *Source) MetricsPage() []byte {
	var b bytes.Buffer
	b.WriteString("# Auspex's own metrics\n\nGenerated from the code; do not edit. Served on `/metrics` (open on loopback), with those of the Go runtime and the process.\n" +
		"Names are `auspex_<stage>_<thing>_<unit>`; base units; counters end in `_total`. What devices measure is in [device-metrics.md](device-metrics.md).\n" +
		"The evaluation of rules adds Prometheus' own, `auspex_detect_prometheus_rule_*`.\n")
	stage := ""
	for _, m := range s.Metrics() {
		if st, _, _ := strings.Cut(strings.TrimPrefix(m.Name, "auspex_"), "_"); st != stage {
			stage = st
			fmt.Fprintf(&b, "\n## %s\n\n| metric | type | labels | what |\n|---|---|---|---|\n", stage)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.Name, m.Kind, strings.Join(m.Labels, ", "), cell(m.Help))
	}
	return b.Bytes()
}

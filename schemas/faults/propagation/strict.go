package propagation

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Problem is a mistake in a file of fault knowledge.
type Problem struct {
	File string
	Line int
	Key  string // the way to it, such as shows[2].sign; "" is the document
	Text string
}

// Error says file, line, key and what is wrong.
func (p Problem) Error() string {
	s := fmt.Sprintf("%s:%d: ", p.File, p.Line)
	if p.Key != "" {
		s += p.Key + ": "
	}
	return s + p.Text
}

const maxProblems = 20 // of one reading

// problems collects mistakes, so that a person sees all of them at once.
type problems struct {
	file  string         // that is read now
	lines map[string]int // of its keys
	all   []error
}

// add notes a mistake at a key, or at a line where the key is not there.
func (p *problems) add(line int, key, format string, args ...any) {
	if n, ok := p.lines[key]; ok {
		line = n
	}
	if len(p.all) < maxProblems {
		p.all = append(p.all, Problem{p.file, line, key, fmt.Sprintf(format, args...)})
	}
}

func (p *problems) err() error { return errors.Join(p.all...) }

// entry is a value of a mapping whose order counts.
type entry[T any] struct {
	name string
	line int
	v    T
}

type ordered[T any] []entry[T]

// UnmarshalYAML reads a mapping in the order in which it is written.
func (o *ordered[T]) UnmarshalYAML(n *yaml.Node) error {
	for i := 0; i+1 < len(n.Content); i += 2 {
		e := entry[T]{name: n.Content[i].Value, line: n.Content[i].Line}
		if err := n.Content[i+1].Decode(&e.v); err != nil {
			return err
		}
		*o = append(*o, e)
	}
	return nil
}

func (ordered[T]) entryType() reflect.Type { return reflect.TypeFor[T]() }

// at is a value that knows its line.
type at[T any] struct {
	line int
	v    T
}

// UnmarshalYAML reads the value and its line.
func (a *at[T]) UnmarshalYAML(n *yaml.Node) error {
	a.line = n.Line
	return n.Decode(&a.v)
}

func (at[T]) innerType() reflect.Type { return reflect.TypeFor[T]() }

// choice is a sentence, the name of a shared one, or several of which the first
// that holds is said.
type choice struct {
	line  int
	ref   string
	first []at[fileSentence]
}

// UnmarshalYAML reads one of the three forms.
func (c *choice) UnmarshalYAML(n *yaml.Node) error {
	c.line = n.Line
	if n.Kind == yaml.ScalarNode {
		c.ref = n.Value
		return nil
	}
	var f struct {
		First []at[fileSentence] `yaml:"first"`
	}
	if hasKey(n, "first") {
		err := n.Decode(&f)
		c.first = f.First
		return err
	}
	c.first = make([]at[fileSentence], 1)
	return n.Decode(&c.first[0])
}

func hasKey(n *yaml.Node, key string) bool {
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return true
		}
	}
	return false
}

const maxNesting = 16 // of a document; aliases may not go deeper either

// strict checks a node against the form of t: keys that are not known, keys that
// are there twice and values of another kind are problems.
func (p *problems) strict(n *yaml.Node, t reflect.Type, key string, depth int) {
	if depth > maxNesting {
		p.add(n.Line, key, "nested too deeply")
		return
	}
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	zero := reflect.Zero(t).Interface()
	if a, ok := zero.(interface{ innerType() reflect.Type }); ok {
		p.strict(n, a.innerType(), key, depth+1)
		return
	}
	if o, ok := zero.(interface{ entryType() reflect.Type }); ok {
		p.mapping(n, key, func(k, v *yaml.Node) { p.strict(v, o.entryType(), join(key, k.Value), depth+1) })
		return
	}
	if _, ok := zero.(choice); ok {
		switch {
		case n.Kind == yaml.ScalarNode:
		case hasKey(n, "first"):
			p.strict(n, reflect.TypeFor[struct {
				First []at[fileSentence] `yaml:"first"`
			}](), key, depth+1)
		default:
			p.strict(n, reflect.TypeFor[fileSentence](), key, depth+1)
		}
		return
	}
	switch t.Kind() {
	case reflect.Struct:
		fields := map[string]reflect.Type{}
		for _, f := range reflect.VisibleFields(t) {
			name, option, _ := strings.Cut(f.Tag.Get("yaml"), ",")
			if option != "inline" {
				fields[name] = f.Type
			}
		}
		p.mapping(n, key, func(k, v *yaml.Node) {
			ft, ok := fields[k.Value]
			if !ok {
				p.add(k.Line, join(key, k.Value), "unknown key%s", near(k.Value, keysOf(fields)))
				return
			}
			p.strict(v, ft, join(key, k.Value), depth+1)
		})
	case reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			p.add(n.Line, key, "want a list")
			return
		}
		for i, v := range n.Content {
			k := fmt.Sprintf("%s[%d]", key, i)
			p.lines[k] = v.Line
			p.strict(v, t.Elem(), k, depth+1)
		}
	case reflect.Map:
		p.mapping(n, key, func(k, v *yaml.Node) { p.strict(v, t.Elem(), join(key, k.Value), depth+1) })
	default:
		if err := n.Decode(reflect.New(t).Interface()); err != nil {
			p.add(n.Line, key, "want %s, got %q", kindName(t), n.Value)
		}
	}
}

func (p *problems) mapping(n *yaml.Node, key string, each func(k, v *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		p.add(n.Line, key, "want keys with values")
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		p.lines[join(key, k.Value)] = k.Line
		if seen[k.Value] {
			p.add(k.Line, join(key, k.Value), "is there twice")
		}
		seen[k.Value] = true
		each(k, n.Content[i+1])
	}
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func kindName(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "a duration such as 30s"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Float64:
		return "a number"
	}
	return "a text"
}

func keysOf[T any](m map[string]T) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// near names the most similar of some words, if one is similar.
func near(word string, all []string) string {
	if len(word) > 64 {
		return ""
	}
	best, distance := "", 1+len(word)/3
	for _, w := range all {
		if d := edits(word, w); d <= distance && (best == "" || d < distance) {
			best, distance = w, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", best)
}

// edits is the Levenshtein distance.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		last := row[0]
		row[0] = i + 1
		for j := range len(b) {
			d := last
			if a[i] != b[j] {
				d = 1 + min(last, row[j], row[j+1])
			}
			last, row[j+1] = row[j+1], d
		}
	}
	return row[len(b)]
}

// Package config reads configuration strictly: YAML files, then environment
// variables, then key=value settings, each over the one before. A mistake is told
// with its file, line and key, and the nearest key that exists; all mistakes of a
// file are told at once.
package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"auspex/internal/nearest"
	"auspex/internal/textfile"
)

// EnvPrefix starts the environment variables that override a key:
// bus.kafka.brokers is AUSPEX_BUS_KAFKA_BROKERS.
const EnvPrefix = "AUSPEX_"

// Others are variables with the prefix that are no keys: those of the commands that ask a running
// Auspex.
var Others = []string{"AUSPEX_URL", "AUSPEX_TOKEN", "AUSPEX_TOKEN_FILE", "AUSPEX_CA_FILE"}

// Sections is a mapping whose values have a type that depends on the key, such as
// the collectors by their names.
type Sections interface {
	// Section returns a pointer to the value of a key, holding its defaults until
	// it is decoded into, or an error that says which keys exist.
	Section(key string) (any, error)
	// Keys lists the sections that are set, in order.
	Keys() []string
}

// Validator is a part of the configuration that checks itself.
type Validator interface {
	// Validate returns an error that names the key at fault, relative to the part.
	Validate() error
}

// Completer is a configuration that derives settings from others, such as folders
// from the data folder, after all sources were read and before it is validated.
type Completer interface{ Complete() }

// Chooser is a part of which only some sections count, such as one of several
// kinds of bus; the others are decoded and not validated.
type Chooser interface{ Chosen(key string) bool }

// Source is where configuration comes from. The zero value is the defaults alone.
type Source struct {
	Files   []string // read in order; "-" is standard input
	Environ []string // as os.Environ
	Set     []string // key=value, dotted keys, YAML values
	Stdin   io.Reader
}

// Load decodes the source into a pointer to a struct that holds the defaults, and
// validates what came out.
func Load(src Source, into any) error {
	root := reflect.ValueOf(into).Elem()
	at := origins{}
	var errs []error
	for _, f := range src.Files {
		errs = append(errs, loadFile(f, src.Stdin, root, at)...)
	}
	errs = append(errs, loadEnv(src.Environ, root, at)...)
	for _, kv := range src.Set {
		key, value, ok := strings.Cut(kv, "=")
		if !ok {
			errs = append(errs, fmt.Errorf("setting %q: want key=value", kv))
			continue
		}
		errs = append(errs, setKey("setting", key, value, root, at)...)
	}
	if len(errs) == 0 {
		if c, ok := into.(Completer); ok {
			c.Complete()
		}
		errs = validate("", root, at)
	}
	return errors.Join(errs...)
}

func loadFile(name string, stdin io.Reader, root reflect.Value, at origins) []error {
	b, err := textfile.ReadFile(name, stdin)
	name = textfile.Name(name)
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return []error{fmt.Errorf("%s: %w", name, pe.Err)}
	} else if err != nil {
		return []error{err}
	}
	var doc yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(b))
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil
	} else if err != nil {
		return []error{fmt.Errorf("%s: %s", name, strings.TrimPrefix(err.Error(), "yaml: "))}
	}
	d := decoder{origin: name, at: at}
	d.node(doc.Content[0], root, "")
	return d.errs
}

func loadEnv(environ []string, root reflect.Value, at origins) []error {
	var errs []error
	var known []string
	paths := map[string]string{}
	for _, k := range Keys(root.Addr().Interface()) {
		n := EnvPrefix + strings.ToUpper(strings.ReplaceAll(k.Path, ".", "_"))
		known = append(known, n)
		paths[n] = k.Path
	}
	for _, kv := range environ {
		n, v, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(n, EnvPrefix) {
			continue
		}
		path, ok := paths[n]
		if !ok && slices.Contains(Others, n) {
			continue
		}
		if !ok {
			errs = append(errs, fmt.Errorf("environment: unknown variable %s%s", n, hint(n, known)))
			continue
		}
		errs = append(errs, setKey("environment "+n, path, v, root, at)...)
	}
	return errs
}

// setKey decodes value as the YAML of a dotted key.
func setKey(origin, key, value string, root reflect.Value, at origins) []error {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(value), &doc); err != nil || len(doc.Content) == 0 {
		doc.Content = []*yaml.Node{{Kind: yaml.ScalarNode, Tag: "!!str", Value: value}}
	}
	n := doc.Content[0]
	for _, k := range slices.Backward(strings.Split(key, ".")) {
		n = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Content: []*yaml.Node{{Kind: yaml.ScalarNode, Tag: "!!str", Value: k}, n}}
	}
	d := decoder{origin: origin, flat: true, at: at}
	d.node(n, root, "")
	return d.errs
}

// origins says where each key was set last.
type origins map[string]string

// of returns the origin of the key that a message of a part begins with, or of
// the nearest part around it that was set; "" is a default.
func (o origins) of(path, msg string) string {
	key, _, _ := strings.Cut(msg, ":")
	for p := join(path, key); p != ""; {
		if at := o[p]; at != "" {
			return at + ": "
		}
		i := strings.LastIndexByte(p, '.')
		if i < 0 {
			break
		}
		p = p[:i]
	}
	return ""
}

type decoder struct {
	origin string
	flat   bool // no lines
	at     origins
	errs   []error
}

func (d *decoder) where(n *yaml.Node) string {
	if d.flat || n.Line == 0 {
		return d.origin
	}
	return fmt.Sprintf("%s:%d", d.origin, n.Line)
}

func (d *decoder) fail(n *yaml.Node, format string, args ...any) {
	d.errs = append(d.errs, fmt.Errorf("%s: %s", d.where(n), fmt.Sprintf(format, args...)))
}

func (d *decoder) node(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return // an empty section keeps its defaults
	}
	if s, ok := sections(v); ok {
		d.mapping(n, path, func(key *yaml.Node, val *yaml.Node) {
			p, err := s.Section(key.Value)
			if err != nil {
				d.fail(key, "%s: %s", join(path, key.Value), err)
				return
			}
			d.node(val, reflect.ValueOf(p).Elem(), join(path, key.Value))
		})
		return
	}
	if v.Kind() == reflect.Pointer && v.Type().Elem().Kind() == reflect.Struct {
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		v = v.Elem()
	}
	if v.Kind() == reflect.Slice && isStruct(v.Type().Elem()) && n.Kind == yaml.SequenceNode {
		list := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
		for i, c := range n.Content {
			d.node(c, list.Index(i), fmt.Sprintf("%s[%d]", path, i))
		}
		v.Set(list)
		return
	}
	if !isStruct(v.Type()) {
		p := v.Addr().Interface()
		if err := n.Decode(p); err != nil {
			d.fail(n, "%s: want %s, got %q", path, typeName(v.Type()), short(n))
		}
		return
	}
	fields := fieldsOf(v)
	d.mapping(n, path, func(key *yaml.Node, val *yaml.Node) {
		f, ok := fields[key.Value]
		if !ok {
			var names []string
			for k := range fields {
				names = append(names, k)
			}
			d.fail(key, "unknown key %q%s", join(path, key.Value), hint(key.Value, names))
			return
		}
		d.node(val, f, join(path, key.Value))
	})
}

func (d *decoder) mapping(n *yaml.Node, path string, each func(key, val *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		if path == "" {
			path = "configuration"
		}
		d.fail(n, "%s: want a mapping, got %q", path, short(n))
		return
	}
	seen := map[string]int{}
	for i := 0; i < len(n.Content); i += 2 {
		k := n.Content[i]
		if line, dup := seen[k.Value]; dup {
			d.fail(k, "key %q is already set in line %d", join(path, k.Value), line)
			continue
		}
		seen[k.Value] = k.Line
		d.at[join(path, k.Value)] = d.where(k)
		each(k, n.Content[i+1])
	}
}

func validate(path string, v reflect.Value, at origins) []error {
	var errs []error
	if s, ok := sections(v); ok {
		for _, k := range s.Keys() {
			if p, err := s.Section(k); err == nil {
				errs = append(errs, validate(join(path, k), reflect.ValueOf(p).Elem(), at)...)
			}
		}
		return errs
	}
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return nil
		}
		v = v.Elem()
	}
	if !isStruct(v.Type()) {
		return nil
	}
	chosen := func(string) bool { return true }
	if v.CanAddr() {
		if c, ok := v.Addr().Interface().(Chooser); ok {
			chosen = c.Chosen
		}
	}
	for name, f := range fieldsOf(v) {
		if chosen(name) {
			errs = append(errs, validate(join(path, name), f, at)...)
		}
	}
	if v.CanAddr() {
		if c, ok := v.Addr().Interface().(Validator); ok {
			if err := c.Validate(); err != nil {
				origin := at.of(path, err.Error())
				if path != "" {
					origin += path + ": "
				}
				errs = append(errs, fmt.Errorf("%s%w", origin, err))
			}
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errs
}

// Key is a setting that exists: its dotted path, type and default, or what it is set to.
type Key struct {
	Path, Type, Default string
}

// Keys lists every key of a pointer to a struct that holds the defaults.
func Keys(defaults any) []Key {
	var out []Key
	walk(reflect.ValueOf(defaults).Elem(), "", &out)
	slices.SortFunc(out, func(a, b Key) int { return strings.Compare(a.Path, b.Path) })
	return out
}

// Diff lists the keys whose values differ between two pointers to the same
// struct, or that one of them alone has, in order.
func Diff(a, b any) []string {
	old := map[string]string{}
	for _, k := range Keys(a) {
		old[k.Path] = k.Default
	}
	var out []string
	for _, k := range Keys(b) {
		if was, ok := old[k.Path]; !ok || was != k.Default {
			out = append(out, k.Path)
		}
		delete(old, k.Path)
	}
	out = slices.AppendSeq(out, maps.Keys(old))
	slices.Sort(out)
	return out
}

func walk(v reflect.Value, path string, out *[]Key) {
	if s, ok := sections(v); ok {
		for _, k := range s.Keys() {
			if p, err := s.Section(k); err == nil {
				walk(reflect.ValueOf(p).Elem(), join(path, k), out)
			}
		}
		return
	}
	if v.Kind() == reflect.Pointer && v.Type().Elem().Kind() == reflect.Struct {
		if v.IsNil() {
			v = reflect.New(v.Type().Elem())
		}
		v = v.Elem()
	}
	if !isStruct(v.Type()) {
		b, _ := yaml.Marshal(v.Interface())
		*out = append(*out, Key{Path: path, Type: typeName(v.Type()), Default: strings.TrimSpace(string(b))})
		return
	}
	for name, f := range fieldsOf(v) {
		walk(f, join(path, name), out)
	}
}

func sections(v reflect.Value) (Sections, bool) {
	if v.CanAddr() {
		if s, ok := v.Addr().Interface().(Sections); ok {
			return s, true
		}
	}
	if v.Kind() != reflect.Invalid && v.CanInterface() {
		s, ok := v.Interface().(Sections)
		return s, ok
	}
	return nil, false
}

func isStruct(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || t == reflect.TypeFor[time.Time]() {
		return false
	}
	return !reflect.PointerTo(t).Implements(reflect.TypeFor[yaml.Unmarshaler]())
}

// fieldsOf maps YAML keys to the settable fields of a struct; inline structs, and
// the sections that inline ones have, are part of it.
func fieldsOf(v reflect.Value) map[string]reflect.Value {
	out := map[string]reflect.Value{}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if !f.IsExported() {
			continue
		}
		name, opts, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case name == "-":
			continue
		case strings.Contains(opts, "inline"):
			s, ok := sections(v.Field(i))
			if !ok {
				maps.Copy(out, fieldsOf(v.Field(i)))
				continue
			}
			for _, k := range s.Keys() {
				if p, err := s.Section(k); err == nil {
					out[k] = reflect.ValueOf(p).Elem()
				}
			}
			continue
		case name == "":
			name = strings.ToLower(f.Name)
		}
		out[name] = v.Field(i)
	}
	return out
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func typeName(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "a duration such as 10s"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Slice:
		return "a list"
	case t.Kind() == reflect.Map:
		return "a mapping"
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64:
		return "a whole number"
	case t.Kind() == reflect.Float64 || t.Kind() == reflect.Float32:
		return "a number"
	}
	return "text"
}

func short(n *yaml.Node) string {
	s := n.Value
	if n.Kind != yaml.ScalarNode {
		b, _ := yaml.Marshal(n)
		s = strings.TrimSpace(string(b))
	}
	if len(s) > 40 {
		s = s[:40] + "…"
	}
	return s
}

// hint names the nearest known word, when one is near enough to be meant.
func hint(word string, known []string) string {
	if best := nearest.Words(word, slices.Values(known), 1); len(best) > 0 {
		return fmt.Sprintf("; did you mean %q?", best[0])
	}
	if len(known) > 12 {
		return ""
	}
	slices.Sort(known)
	return "; known are " + strings.Join(known, ", ")
}

// Package presets says, as data, what switches are asked over gNMI and which metric a number is that
// they tell. A preset is a YAML file beside this one: those of a vendor apply to targets whose
// capabilities show that vendor's models. What makes events of states is not data: it is in
// package gnmi.
package presets

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"go.yaml.in/yaml/v3"
)

//go:embed *.yaml
var files embed.FS

// Need says what is done about a path that a target refuses.
type Need string

// Always is asked in any case. Extra goes first where a target refuses a path, then Usual.
const (
	Always Need = ""
	Usual  Need = "usual"
	Extra  Need = "extra"
)

// DefaultOrigin is the origin of OpenConfig's paths.
const DefaultOrigin = "openconfig"

// Preset is one file.
type Preset struct {
	Name  string `yaml:"-"`
	About string `yaml:"about"`
	// KnownBy are beginnings of names of models: the preset is for targets that have one of them.
	// Without any it is for all.
	KnownBy []string `yaml:"known_by"`
	// Target is the target of the prefix of a call of its own (gNMI specification, section 2.2.2.1):
	// where it is set, the paths do not go with those of other presets.
	Target string `yaml:"target"`
	// Origin is the schema of the paths and readings (gnmi.proto, Path); "" is OpenConfig's.
	Origin    string         `yaml:"origin"`
	Subscribe []Subscription `yaml:"subscribe"`
	Readings  []Reading      `yaml:"readings"`
}

// Subscription is a path that is asked for.
type Subscription struct {
	Path  string `yaml:"path"`
	Mode  string `yaml:"mode"` // sample, on_change or target_defined
	Need  Need   `yaml:"need"`
	About string `yaml:"about"`
	// Models must all be among the target's capabilities. Guess asks a target too that names no models.
	Models []string `yaml:"models"`
	Guess  bool     `yaml:"guess"`
	// Heartbeat is how often a value that stays the same is told, and SuppressRedundant leaves samples out that do
	// (section 3.5.1.5.2). Without them the configuration's hold.
	Heartbeat         time.Duration `yaml:"heartbeat"`
	SuppressRedundant bool          `yaml:"suppress_redundant"`
	// Cables asks only where somebody holds neighbours against the inventory.
	Cables bool `yaml:"cables"`
	// Schema names what describes the path, where that is not among the OpenConfig models that the
	// tests hold paths against.
	Schema string `yaml:"schema"`
}

// Reading says which metric the numbers of a path are. In the path, {port} stands for the port, and
// another name in braces for a label of the metric.
type Reading struct {
	Path   string `yaml:"path"`
	Metric string `yaml:"metric"`
	Schema string `yaml:"schema"` // as of a subscription
	Origin string `yaml:"-"`      // of the preset

	elems []elem
}

// elem is an element of the path of a reading.
type elem struct {
	name word
	key  string // the key that holds value; "" is none
	of   word
}

// word is text with at most two variables in it.
type word struct {
	parts []string // literal, variable, literal, ...
}

// All is every preset's name, in the order in which they apply.
func All() []string { return []string{"openconfig", "cumulus", "arista", "sonic"} }

// Load reads presets by their names; those that end in .yaml are files. An error names what is wrong in which.
func Load(names []string) ([]*Preset, error) {
	var out []*Preset
	for _, name := range names {
		read := func() ([]byte, error) { return files.ReadFile(name + ".yaml") }
		if strings.HasSuffix(name, ".yaml") { // of the site
			read = func() ([]byte, error) { return os.ReadFile(name) }
		}
		raw, err := read()
		if !strings.HasSuffix(name, ".yaml") && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid)) {
			return nil, fmt.Errorf("there is no preset %q; there are %s", name, strings.Join(All(), ", "))
		}
		if err != nil {
			return nil, err
		}
		p, err := Parse(name, raw)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// Parse reads the text of a preset.
func Parse(name string, raw []byte) (*Preset, error) {
	p := &Preset{Name: name}
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	dec.KnownFields(true)
	if err := dec.Decode(p); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("preset %s: %w", name, err)
	}
	if p.Origin == DefaultOrigin {
		p.Origin = ""
	}
	for _, s := range p.Subscribe {
		if _, err := s.GNMI(); err != nil {
			return nil, fmt.Errorf("preset %s: %w", name, err)
		}
		switch {
		case s.Heartbeat < 0:
			return nil, fmt.Errorf("preset %s: %s: heartbeat must not be negative", name, s.Path)
		case s.SuppressRedundant && (s.Heartbeat == 0 || !strings.EqualFold(s.Mode, "sample")):
			return nil, fmt.Errorf("preset %s: %s: suppress_redundant is of samples, and needs a heartbeat: what is silent may be dead", name, s.Path)
		}
		if !slices.Contains([]Need{Always, Usual, Extra}, s.Need) {
			return nil, fmt.Errorf("preset %s: %s: need is usual or extra, not %q", name, s.Path, s.Need)
		}
	}
	for i := range p.Readings {
		r := &p.Readings[i]
		r.Origin = p.Origin
		for _, e := range split(r.Path) {
			x, err := parseElem(e)
			if err != nil {
				return nil, fmt.Errorf("preset %s: %s: %w", name, r.Path, err)
			}
			r.elems = append(r.elems, x)
		}
		if r.Metric == "" || !strings.Contains(r.Path, "{port}") {
			return nil, fmt.Errorf("preset %s: %s: a reading needs a metric, and {port} in its path", name, r.Path)
		}
	}
	return p, nil
}

// For reports whether the preset is for a target with these models.
func (p *Preset) For(models []*gpb.ModelData) bool {
	return len(p.KnownBy) == 0 || slices.ContainsFunc(models, func(m *gpb.ModelData) bool {
		return slices.ContainsFunc(p.KnownBy, func(front string) bool { return strings.HasPrefix(m.GetName(), front) })
	})
}

// GNMI is the subscription without its interval.
func (s *Subscription) GNMI() (*gpb.Subscription, error) {
	p, err := ParsePath(s.Path)
	if err != nil {
		return nil, err
	}
	mode, ok := gpb.SubscriptionMode_value[strings.ToUpper(s.Mode)]
	if !ok {
		return nil, fmt.Errorf("%s: mode is sample, on_change or target_defined, not %q", s.Path, s.Mode)
	}
	return &gpb.Subscription{Path: p, Mode: gpb.SubscriptionMode(mode)}, nil
}

// ParsePath reads "a/b[k=v]/c".
func ParsePath(s string) (*gpb.Path, error) {
	p := &gpb.Path{}
	for _, part := range split(s) {
		name, rest, keyed := strings.Cut(part, "[")
		e := &gpb.PathElem{Name: name}
		for keyed {
			var one string
			var ok bool
			if one, rest, ok = strings.Cut(rest, "]"); !ok {
				return nil, fmt.Errorf("%s: a key has no ]", s)
			}
			k, v, ok := strings.Cut(one, "=")
			if !ok {
				return nil, fmt.Errorf("%s: %q is no key", s, one)
			}
			if e.Key == nil {
				e.Key = map[string]string{}
			}
			e.Key[k] = v
			rest, keyed = strings.CutPrefix(rest, "[")
		}
		if name == "" {
			return nil, fmt.Errorf("%q has an element without a name", s)
		}
		p.Elem = append(p.Elem, e)
	}
	return p, nil
}

// split parts a path at the slashes that are outside of keys.
func split(s string) (parts []string) {
	from, within := 0, false
	for i, c := range s {
		switch {
		case c == '[':
			within = true
		case c == ']':
			within = false
		case c == '/' && !within:
			parts = append(parts, s[from:i])
			from = i + 1
		}
	}
	return append(parts, s[from:])
}

func parseElem(s string) (e elem, err error) {
	name, rest, keyed := strings.Cut(s, "[")
	if e.name, err = parseWord(name); err != nil || !keyed {
		return e, err
	}
	k, v, ok := strings.Cut(strings.TrimSuffix(rest, "]"), "=")
	if !ok || !strings.HasSuffix(rest, "]") {
		return e, fmt.Errorf("%q is no key", rest)
	}
	e.key = k
	e.of, err = parseWord(v)
	return e, err
}

func parseWord(s string) (w word, err error) {
	for {
		lit, rest, ok := strings.Cut(s, "{")
		w.parts = append(w.parts, lit)
		if !ok {
			break
		}
		name, after, ok := strings.Cut(rest, "}")
		if !ok || name == "" {
			return w, fmt.Errorf("%q has a { without a name and a }", s)
		}
		if len(w.parts) > 1 && lit == "" {
			return w, fmt.Errorf("%q has two names with nothing between them", s)
		}
		w.parts = append(w.parts, name)
		s = after
	}
	return w, nil
}

// match takes a text apart. Variables take as little as they can, and something.
func (w *word) match(s string, vars []string) ([]string, bool) {
	s, ok := strings.CutPrefix(s, w.parts[0])
	for i := 1; ok && i+1 < len(w.parts); i += 2 {
		lit := w.parts[i+1]
		end := len(s)
		if lit != "" {
			if i+2 == len(w.parts) { // the last: it is the end
				end = len(s) - len(lit)
				if !strings.HasSuffix(s, lit) {
					return vars, false
				}
			} else if end = strings.Index(s, lit); end < 0 {
				return vars, false
			}
		}
		if end <= 0 {
			return vars, false
		}
		vars = append(vars, w.parts[i], s[:end])
		s = s[end+len(lit):]
	}
	return vars, ok && s == ""
}

// Match reports whether a path is the reading's: which port it is of, and the labels, names and
// values in turn. At returns its elements, the names without modules.
func (r *Reading) Match(n int, at func(int) (name string, keys map[string]string)) (port string, labels []string, ok bool) {
	if n != len(r.elems) {
		return "", nil, false
	}
	var vars []string
	for i := n - 1; i >= 0; i-- { // what tells them apart is at the end
		e := &r.elems[i]
		name, keys := at(i)
		if vars, ok = e.name.match(name, vars); !ok {
			return "", nil, false
		}
		if e.key != "" {
			if vars, ok = e.of.match(keys[e.key], vars); !ok {
				return "", nil, false
			}
		}
	}
	for i := 0; i < len(vars); i += 2 {
		if vars[i] == "port" {
			port = vars[i+1]
		} else {
			labels = append(labels, vars[i], vars[i+1])
		}
	}
	return port, labels, true
}

// Package propagation holds, as data, how faults show themselves: which signs
// a fault makes visible, on which parts of the inventory, how surely and how
// soon. The correlator reads causes from signs with it.
package propagation

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"auspex/schemas"
)

//go:embed propagation.yaml
var builtin []byte

// KindWorkload is the kind of a job where a way through the inventory ends in one.
const KindWorkload = "workload"

// Model is compiled propagation knowledge.
type Model struct {
	Signs  []Sign
	Faults []Fault
	byType map[string][]pattern
}

// Sign is something that can be seen, whichever source says so.
type Sign struct {
	Name string
	// On is the kind of part that shows the sign by a fault of its own; "" where
	// several kinds may.
	On string
	// Leak is the probability that the sign is there although no fault that is
	// known explains it. Young replaces it until the sign has lasted for Hold,
	// and for good when it cleared before that. Rare replaces it once the sign
	// has lasted for Long without a break; with 0 it never does. Each further
	// report within a while multiplies Leak by Again, down to Rare; 1 is no change.
	Leak, Young, Rare, Again float64
	Hold, Long               time.Duration

	By      Contact // through which a server tells of it; 0: its silence needs no way
	Contact Contact // that it says is lost; 0 is none

	Bounce int  // sign to derive when this one is raised again and again; -1 is none
	Twin   bool // both ends of a link show it and lose it together
	Job    bool // all reports of one workload are one sign
	Info   bool // speaks although its severity is info
}

// Contact is a set of ways in which a server is heard: through its own system
// or through its board controller. A switch has one way, Host.
type Contact uint8

// The ways.
const (
	Host Contact = 1 << iota
	BMC
)

var contacts = map[string]Contact{"host": Host, "bmc": BMC, "any": Host | BMC, "": 0}

// Fault is a cause that may be blamed, or a harmless explanation.
type Fault struct {
	Name  string // formats, section 3
	Kinds []string
	Prior float64 // log-odds before any sign is weighed
	// ByModel replaces Prior for parts of a model; a site learns it, records have none.
	ByModel  map[string]float64
	Is       string // the state that this fault is, such as "server_down"
	Reset    bool   // over when the server has booted again
	Harmless bool
	End      bool // either end of a link may be named
	// Together is the share of failures that take a redundant equal along: the
	// beta factor of IEC 61508-6, annex D. 0: nothing stands in for the part.
	Together float64
	Action   string
	Target   string // self or server
	Classes  []Class
	Effects  []Effect
	own      int // classes of the fault itself; those of effects follow
}

// Effect is a state, such as "server_down", that a fault brings about.
type Effect struct {
	State string
	Path  []Step // to the parts that come to be in the state; empty: the part itself
	Share float64
	Shows float64
	// SharedShare and SharedShows replace Share and Shows for parts that have
	// another supplier left; with 0 it makes no difference.
	SharedShare, SharedShows float64
	Delay                    time.Duration
}

// Own returns how many of the classes, the first ones, are the fault's own
// signs; the others follow from its effects.
func (f *Fault) Own() int { return f.own }

// Class is one sign of a fault on all parts that one way through the inventory reaches.
type Class struct {
	Sign int
	Path []Step
	// Share is the expected share of the reachable parts that show the sign
	// when it shows at all; Shows is the probability of the latter.
	Share, Shows   float64
	Within, Before time.Duration // after and before the onset of the fault
	Soon           time.Duration // after the onset its absence begins to speak
	Later          bool          // never makes the fault a suspect
	Jobs           bool          // the way ends in workloads
	Way            int           // the same number for the same Path
	// Derived classes are not weighed: they tie signs to the fault that follow
	// from a state, for which a fault of its own stands, or go down with it.
	Derived bool
}

// Step is a move through the inventory that arrives at parts of one kind.
type Step struct {
	Op   Op
	Kind string
}

// Op is how a step moves.
type Op uint8

// The moves. Up and Down follow "is part of"; Powers and Cools go from the
// supplier to the supplied, Cools also to what is in it; Feeds goes to the servers
// or switches that a supplier powers, whether the link names them, a power supply
// of theirs, what they stand in, or another supplier between; Jobs goes to the
// workloads that run there; Loose goes down to the parts whose power or network
// link the inventory lacks.
const (
	Up Op = iota
	Down
	Powers
	Powered
	Cools
	Cooled
	Net
	NVLink
	PCIe
	Jobs
	Loose
	Feeds
	Fed
)

var ops = map[string]Op{
	"up": Up, "down": Down, "powers": Powers, "powered": Powered, "cools": Cools, "cooled": Cooled,
	"net": Net, "nvlink": NVLink, "pcie": PCIe, "jobs": Jobs, "loose": Loose, "feeds": Feeds, "fed": Fed,
}

type pattern struct {
	code   string // "" matches every code
	prefix bool
	within bool // anywhere in the code
	min    int
	sign   int
}

type fileSign struct {
	Events []string      `yaml:"events"`
	Min    string        `yaml:"min"`
	Leak   float64       `yaml:"leak"`
	Young  float64       `yaml:"young"`
	Hold   time.Duration `yaml:"hold"`
	Long   time.Duration `yaml:"long"`
	Rare   float64       `yaml:"rare"`
	Again  float64       `yaml:"again"`
	By     string        `yaml:"by"`
	Lost   string        `yaml:"lost"`
	Bounce string        `yaml:"bounce"`
	Twin   bool          `yaml:"twin"`
	Job    bool          `yaml:"job"`
	Info   bool          `yaml:"info"`
}

type fileClass struct {
	Sign   string        `yaml:"sign"`
	At     string        `yaml:"at"`
	P      float64       `yaml:"p"`
	M      float64       `yaml:"m"`
	Within time.Duration `yaml:"within"`
	Soon   time.Duration `yaml:"soon"`
	Before time.Duration `yaml:"before"`
	Later  bool          `yaml:"later"`
	Tie    bool          `yaml:"tie"`
}

type fileEffect struct {
	Effect string        `yaml:"effect"`
	At     string        `yaml:"at"`
	P      float64       `yaml:"p"`
	M      float64       `yaml:"m"`
	Delay  time.Duration `yaml:"delay"`
	Later  bool          `yaml:"later"`
	Shared struct {
		P float64 `yaml:"p"`
		M float64 `yaml:"m"`
	} `yaml:"shared"`
}

type fileFault struct {
	Fault string   `yaml:"fault"`
	Is    string   `yaml:"is"`
	Kinds []string `yaml:"kinds"`
	Prior float64  `yaml:"prior"`
	End   bool     `yaml:"end"`
	Reset bool     `yaml:"reset"`

	Together float64 `yaml:"together"`

	Do struct {
		Action string `yaml:"action"`
		Target string `yaml:"target"`
	} `yaml:"do"`
	Shows   []fileClass  `yaml:"shows"`
	Effects []fileEffect `yaml:"effects"`
}

// file keeps the order of the document, which is the order of ties.
type file struct {
	Signs    ordered[fileSign]    `yaml:"signs"`
	Effects  ordered[[]fileClass] `yaml:"effects"`
	Faults   ordered[fileFault]   `yaml:"faults"`
	Harmless ordered[fileFault]   `yaml:"harmless"`
}

type entry[T any] struct {
	name string
	line int
	v    T
}

type ordered[T any] []entry[T]

// UnmarshalYAML reads a mapping in the order in which it is written.
func (o *ordered[T]) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: a mapping is needed", n.Line)
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		e := entry[T]{name: n.Content[i].Value, line: n.Content[i].Line}
		raw, err := yaml.Marshal(n.Content[i+1])
		if err != nil {
			return err
		}
		d := yaml.NewDecoder(bytes.NewReader(raw))
		d.KnownFields(true)
		if err := d.Decode(&e.v); err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("line %d: %s: %w", e.line, e.name, err)
		}
		*o = append(*o, e)
	}
	return nil
}

// Default returns the built-in knowledge.
func Default() *Model {
	m, err := Parse(builtin)
	if err != nil {
		panic("built-in propagation knowledge: " + err.Error())
	}
	return m
}

// Parse compiles a document in the form of propagation.yaml. Unknown keys,
// names that are not declared and probabilities outside of [0,1] are errors
// that name the entry and its line.
func Parse(doc []byte) (*Model, error) {
	var f file
	d := yaml.NewDecoder(bytes.NewReader(doc))
	d.KnownFields(true)
	if err := d.Decode(&f); err != nil {
		return nil, fmt.Errorf("read propagation knowledge: %w", err)
	}
	m := &Model{byType: map[string][]pattern{}}
	index := make(map[string]int, len(f.Signs))
	for i, s := range f.Signs {
		index[s.name] = i
	}
	for i, s := range f.Signs {
		if !probability(s.v.Leak) || s.v.Leak == 0 {
			return nil, fmt.Errorf("line %d: sign %s: leak %v is no probability above 0", s.line, s.name, s.v.Leak)
		}
		sign := Sign{
			Name: s.name, Leak: s.v.Leak, Young: s.v.Young, Rare: s.v.Rare, Again: s.v.Again, Hold: s.v.Hold, Long: s.v.Long,
			By: contacts[s.v.By], Contact: contacts[s.v.Lost], Job: s.v.Job, Info: s.v.Info, Twin: s.v.Twin, Bounce: -1,
		}
		for key, v := range map[string]string{"by": s.v.By, "lost": s.v.Lost} {
			if _, ok := contacts[v]; !ok {
				return nil, fmt.Errorf("line %d: sign %s: %s: no way %q", s.line, s.name, key, v)
			}
		}
		if sign.Again == 0 {
			sign.Again = 1
		}
		if sign.Young == 0 {
			sign.Young = sign.Leak
		}
		if sign.Rare == 0 {
			sign.Rare = sign.Leak
		}
		if !probability(sign.Young) || !probability(sign.Rare) || !probability(sign.Again) {
			return nil, fmt.Errorf(
				"line %d: sign %s: young %v, rare %v or again %v is no probability", s.line, s.name, sign.Young, sign.Rare, sign.Again,
			)
		}
		if s.v.Bounce != "" {
			b, ok := index[s.v.Bounce]
			if !ok {
				return nil, fmt.Errorf("line %d: sign %s: no sign %q", s.line, s.name, s.v.Bounce)
			}
			sign.Bounce = b
		}
		lowest := schemas.Severity(s.v.Min).Rank()
		if s.v.Min != "" && lowest < 0 {
			return nil, fmt.Errorf("line %d: sign %s: no severity %q", s.line, s.name, s.v.Min)
		}
		for _, e := range s.v.Events {
			typ, code, _ := strings.Cut(e, "/")
			prefix, within := strings.HasSuffix(code, "*"), strings.HasPrefix(code, "*") && code != "*"
			m.byType[typ] = append(m.byType[typ], pattern{strings.Trim(code, "*"), prefix || code == "", within, lowest, i})
		}
		m.Signs = append(m.Signs, sign)
	}
	for _, ps := range m.byType { // the most specific pattern decides
		slices.SortStableFunc(ps, func(a, b pattern) int {
			if a.prefix != b.prefix {
				if b.prefix {
					return -1
				}
				return 1
			}
			return len(b.code) - len(a.code)
		})
	}
	effects := make(map[string][]fileClass, len(f.Effects))
	for _, e := range f.Effects {
		effects[e.name] = e.v
	}
	states := map[string]bool{}
	for _, e := range f.Faults {
		states[e.v.Is] = e.v.Is != ""
	}
	add := func(list ordered[fileFault], harmless bool) error {
		for _, e := range list {
			fault, err := compile(e.name, e.v, effects, index, states)
			if err != nil {
				return fmt.Errorf("line %d: fault %s: %w", e.line, e.name, err)
			}
			if fault.Harmless = harmless; harmless { // it competes with the state itself
				for i := range fault.Classes {
					fault.Classes[i].Derived = false
				}
			}
			m.Faults = append(m.Faults, fault)
		}
		return nil
	}
	if err := add(f.Faults, false); err != nil {
		return nil, err
	}
	if err := add(f.Harmless, true); err != nil {
		return nil, err
	}
	for i := range m.Signs {
		m.Signs[i].On = m.shownBy(i)
	}
	ways := map[string]int{}
	for f := range m.Faults {
		for c := range m.Faults[f].Classes {
			cl := &m.Faults[f].Classes[c]
			key := fmt.Sprint(cl.Path)
			if _, ok := ways[key]; !ok {
				ways[key] = len(ways)
			}
			cl.Way = ways[key]
		}
	}
	return m, nil
}

// shownBy returns the only kind whose faults show a sign on the part itself.
func (m *Model) shownBy(sign int) string {
	on := ""
	for i := range m.Faults {
		f := &m.Faults[i]
		if !slices.ContainsFunc(f.Classes, func(c Class) bool { return c.Sign == sign && len(c.Path) == 0 && !c.Later }) {
			continue
		}
		if len(f.Kinds) > 1 || on != "" && on != f.Kinds[0] {
			return ""
		}
		on = f.Kinds[0]
	}
	return on
}

func probability(p float64) bool { return p >= 0 && p <= 1 && !math.IsNaN(p) }

func compile(name string, f fileFault, effects map[string][]fileClass, signs map[string]int, states map[string]bool) (Fault, error) {
	out := Fault{
		Name: name, Is: f.Is, Kinds: f.Kinds, Prior: f.Prior, End: f.End, Reset: f.Reset, Together: f.Together, Action: f.Do.Action,
		Target: f.Do.Target,
	}
	if !probability(f.Together) {
		return out, fmt.Errorf("together %v is no probability", f.Together)
	}
	if f.Fault != "" {
		out.Name = f.Fault
	}
	if len(f.Kinds) == 0 {
		return out, errors.New("no kinds")
	}
	add := func(prefix []Step, c fileClass, share, shows float64, delay time.Duration, later, derived bool) error {
		sign, ok := signs[c.Sign]
		if !ok {
			return fmt.Errorf("no sign %q", c.Sign)
		}
		path, err := parsePath(c.At)
		if err != nil {
			return err
		}
		path = append(slices.Clone(prefix), path...)
		cl := Class{
			Sign: sign, Path: path, Share: orOne(c.P) * share, Shows: orOne(c.M) * shows,
			Within: c.Within + delay, Before: c.Before, Later: c.Later || later,
			Soon:    c.Soon + delay/2,
			Derived: derived || c.Tie,
			Jobs:    len(path) > 0 && path[len(path)-1].Op == Jobs,
		}
		if c.Soon == 0 {
			cl.Soon += min(c.Within/4, 30*time.Second)
		}
		if !probability(cl.Share) || !probability(cl.Shows) {
			return fmt.Errorf("sign %s: a probability is outside of [0,1]", c.Sign)
		}
		out.Classes = append(out.Classes, cl)
		return nil
	}
	for _, c := range f.Shows {
		if err := add(nil, c, 1, 1, 0, false, false); err != nil {
			return out, err
		}
	}
	out.own = len(out.Classes)
	for _, e := range f.Effects {
		classes, ok := effects[e.Effect]
		if !ok {
			return out, fmt.Errorf("no effect %q", e.Effect)
		}
		prefix, err := parsePath(e.At)
		if err != nil {
			return out, err
		}
		if !probability(e.Shared.P) || !probability(e.Shared.M) {
			return out, fmt.Errorf("effect %s: a probability is outside of [0,1]", e.Effect)
		}
		out.Effects = append(out.Effects, Effect{e.Effect, prefix, orOne(e.P), orOne(e.M), e.Shared.P, e.Shared.M, e.Delay})
		for _, c := range classes {
			if err := add(prefix, c, orOne(e.P), orOne(e.M), e.Delay, e.Later, states[e.Effect] && f.Is != e.Effect); err != nil {
				return out, err
			}
		}
	}
	return out, nil
}

func orOne(p float64) float64 {
	if p == 0 {
		return 1
	}
	return p
}

func parsePath(s string) ([]Step, error) {
	if s == "" {
		return nil, nil
	}
	var path []Step
	for part := range strings.SplitSeq(s, ">") {
		op, kind, ok := strings.Cut(strings.TrimSpace(part), ":")
		o, known := ops[op]
		if !ok || !known || kind == "" {
			return nil, fmt.Errorf("way %q: no step %q", s, strings.TrimSpace(part))
		}
		path = append(path, Step{o, kind})
	}
	return path, nil
}

// Match returns the sign that an event of this type, code and severity is, or
// -1 when it is none. Severities below the sign's lowest do not match.
func (m *Model) Match(typ, code string, severity schemas.Severity) int {
	for _, p := range m.byType[typ] {
		if p.code == code || p.prefix && strings.HasPrefix(code, p.code) || p.within && strings.Contains(code, p.code) {
			if severity.Rank() < p.min {
				return -1
			}
			return p.sign
		}
	}
	return -1
}

// SignNamed returns the index of a sign, or -1.
func (m *Model) SignNamed(name string) int {
	return slices.IndexFunc(m.Signs, func(s Sign) bool { return s.Name == name })
}

package propagation

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"

	"auspex/schemas"
	"auspex/schemas/faults/records"
	"auspex/schemas/faults/sentence"
)

//go:embed signs.yaml
var shared []byte

// Bounds of what a site may add: far above what a person would write.
const (
	maxFiles     = 256     // in a folder
	maxFile      = 1 << 18 // bytes of a file
	maxClasses   = 200     // signs of a fault, those of its effects among them
	maxSteps     = 8       // of a way through the inventory
	maxSentences = 32      // of a record
)

type fileSign struct {
	Title    sentence.Text `yaml:"title"`
	Events   []string      `yaml:"events"`
	Min      string        `yaml:"min"`
	Leak     float64       `yaml:"leak"`
	Young    float64       `yaml:"young"`
	Hold     time.Duration `yaml:"hold"`
	Long     time.Duration `yaml:"long"`
	Rare     float64       `yaml:"rare"`
	Again    float64       `yaml:"again"`
	By       string        `yaml:"by"`
	Lost     string        `yaml:"lost"`
	Bounce   string        `yaml:"bounce"`
	Twin     bool          `yaml:"twin"`
	Job      bool          `yaml:"job"`
	Info     bool          `yaml:"info"`
	Crash    bool          `yaml:"crash"`
	Starts   bool          `yaml:"starts"`
	Boot     bool          `yaml:"boot"`
	Replaces bool          `yaml:"replaces"`
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
	Alone  bool          `yaml:"alone"`
	Each   string        `yaml:"each"`
	After  []string      `yaml:"after"`
}

type fileEffect struct {
	Effect string        `yaml:"effect"`
	At     string        `yaml:"at"`
	P      float64       `yaml:"p"`
	M      float64       `yaml:"m"`
	Delay  time.Duration `yaml:"delay"`
	Later  bool          `yaml:"later"`
	After  []string      `yaml:"after"`
	Shared struct {
		P    float64 `yaml:"p"`
		M    float64 `yaml:"m"`
		Late float64 `yaml:"late"`
		Back float64 `yaml:"back"`
		With string  `yaml:"with"`
	} `yaml:"shared"`
}

type fileSentence struct {
	ID    string   `yaml:"id"`
	Of    string   `yaml:"of"`
	When  string   `yaml:"when"`
	Each  bool     `yaml:"each"`
	Tells []string `yaml:"tells"`
	EN    string   `yaml:"en"`
	ZH    string   `yaml:"zh"`
}

// fileForm is how a fault is seen; a record may have several forms.
type fileForm struct {
	Is       string   `yaml:"is"`
	Kinds    []string `yaml:"kinds"`
	Prior    float64  `yaml:"prior"`
	End      bool     `yaml:"end"`
	Reset    bool     `yaml:"reset"`
	Together float64  `yaml:"together"`

	Do struct {
		Action string `yaml:"action"`
		Target string `yaml:"target"`
	} `yaml:"do"`
	Shows   []at[fileClass]  `yaml:"shows"`
	Effects []at[fileEffect] `yaml:"effects"`
}

// fileRecord is a document of a folder of records.
type fileRecord struct {
	Declares struct {
		Events []string `yaml:"events"`
		Kinds  []string `yaml:"kinds"`
	} `yaml:"declares"`
	Signs   ordered[fileSign]        `yaml:"signs"`
	States  ordered[[]at[fileClass]] `yaml:"states"` // as the effects of signs.yaml
	Fault   string                   `yaml:"fault"`
	Title   sentence.Text            `yaml:"title"`
	Summary *choice                  `yaml:"summary"`

	Sentences  []choice `yaml:"sentences"`
	Harmless   bool     `yaml:"harmless"`
	Window     string   `yaml:"window"`
	Heals      bool     `yaml:"heals"`
	ForetoldBy []string `yaml:"foretold_by"`
	Policy     string   `yaml:"policy"`
	Step       *choice  `yaml:"step"`
	Replaces   bool     `yaml:"replaces"`

	fileForm `yaml:",inline"`

	Forms ordered[fileForm] `yaml:"forms"`
}

// fileShared is signs.yaml.
type fileShared struct {
	Signs     ordered[fileSign]        `yaml:"signs"`
	Effects   ordered[[]at[fileClass]] `yaml:"effects"`
	Sentences struct {
		Shared []choice `yaml:"shared"`
		Rest   []choice `yaml:"rest"`
		Work   []choice `yaml:"work"`
		Last   []choice `yaml:"last"`

		Against     *choice         `yaml:"against"`
		WouldChange []choice        `yaml:"would_change"`
		Steps       ordered[choice] `yaml:"steps"`
	} `yaml:"sentences"`
	Unnamed struct {
		Sign    sentence.Text `yaml:"sign"`
		Title   sentence.Text `yaml:"title"`
		Summary *choice       `yaml:"summary"`
	} `yaml:"unnamed"`
}

// source is a file of records.
type source struct {
	name    string
	doc     []byte
	builtin bool
}

var builtin = sync.OnceValue(func() []source {
	files, err := fs.Glob(records.Files, "*.yaml")
	if err != nil {
		panic(err)
	}
	out := make([]source, len(files))
	for i, f := range files {
		doc, err := records.Files.ReadFile(f)
		if err != nil {
			panic(err)
		}
		out[i] = source{path.Join("records", f), doc, true}
	}
	return out
})

// Default returns the built-in knowledge.
func Default() *Model {
	m, err := build(shared, builtin())
	if err != nil {
		panic("built-in fault records: " + err.Error())
	}
	return m
}

// Load returns the built-in knowledge together with the records in folders: their
// files *.yaml and *.yml, by name. Every mistake names file, line and key.
func Load(folders ...string) (*Model, error) {
	all := slices.Clone(builtin())
	for _, dir := range folders {
		list, err := os.ReadDir(dir)
		if err != nil {
			return nil, fmt.Errorf("read fault records: %w", err)
		}
		list = slices.DeleteFunc(list, func(e fs.DirEntry) bool {
			ext := filepath.Ext(e.Name())
			return e.IsDir() || ext != ".yaml" && ext != ".yml"
		})
		if len(list) == 0 {
			return nil, fmt.Errorf("read fault records: %s has no file *.yaml", dir)
		}
		if len(list) > maxFiles {
			return nil, fmt.Errorf("read fault records: %s has %d files; at most %d are read", dir, len(list), maxFiles)
		}
		for _, e := range list {
			name := filepath.Join(dir, e.Name())
			doc, err := readFile(name)
			if err != nil {
				return nil, fmt.Errorf("read fault records: %w", err)
			}
			all = append(all, source{name: name, doc: doc})
		}
	}
	return build(shared, all)
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	doc, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(doc) > maxFile {
		err = fmt.Errorf("%s is larger than %d KiB", name, maxFile>>10)
	}
	return doc, err
}

// Parse compiles the built-in knowledge together with one file of records.
func Parse(name string, doc []byte) (*Model, error) {
	return build(shared, append(slices.Clone(builtin()), source{name: name, doc: doc}))
}

// loader compiles files to a model.
type loader struct {
	problems

	m       *Model
	events  map[string]bool
	kinds   map[string]bool
	effects map[string][]at[fileClass]
	states  map[string]bool
	origin  map[string]source   // of signs, effects and records
	owner   map[string]int      // sign of each pattern of events
	said    map[string][]Choice // shared choices by the ids in them
}

// located is a record with the place where it stands.
type located struct {
	fileRecord

	source source
	line   int
	lines  map[string]int
}

// read makes a record the one that mistakes are of.
func (l *loader) read(r *located) { l.file, l.lines = r.source.name, r.lines }

func build(base []byte, files []source) (*Model, error) {
	l := &loader{
		m:      &Model{byType: map[string][]pattern{}, Records: map[string]*Record{}},
		events: map[string]bool{}, kinds: map[string]bool{KindWorkload: true}, effects: map[string][]at[fileClass]{},
		states: map[string]bool{}, origin: map[string]source{}, owner: map[string]int{}, said: map[string][]Choice{},
	}
	for _, t := range schemas.EventTypes() {
		l.events[t] = true
	}
	for _, k := range schemas.Kinds() {
		l.kinds[k] = true
	}
	var common fileShared
	core := source{name: "signs.yaml", doc: base, builtin: true}
	l.decode(core, func(n *yaml.Node) error {
		l.strict(n, reflect.TypeFor[fileShared](), "", 0)
		if len(l.all) > 0 {
			return nil
		}
		return n.Decode(&common)
	})
	lines := l.lines
	var recs []located
	for _, s := range files {
		l.decode(s, func(n *yaml.Node) error {
			before := len(l.all)
			l.strict(n, reflect.TypeFor[fileRecord](), "", 0)
			if len(l.all) > before {
				return nil
			}
			r := located{source: s, line: n.Line, lines: l.lines}
			err := n.Decode(&r.fileRecord)
			recs = append(recs, r)
			return err
		})
	}
	if err := l.err(); err != nil {
		return nil, err
	}
	own := located{source: core, lines: lines}
	for i := range recs {
		l.read(&recs[i])
		l.declare(&recs[i])
	}
	signs := l.gather(&own, common.Signs, nil)
	l.share(&own, common.Effects)
	for i := range recs {
		signs = l.gather(&recs[i], recs[i].Signs, signs)
		l.share(&recs[i], recs[i].States)
	}
	l.compileSigns(signs)
	recs = l.override(recs)
	for _, r := range recs {
		l.states[r.Is] = r.Is != ""
	}
	l.read(&own)
	l.m.Shared = l.choices(common.Sentences.Shared, "sentences.shared")
	for _, c := range l.m.Shared {
		for _, s := range c {
			if !slices.ContainsFunc(l.said[s.ID], func(o Choice) bool { return &o[0] == &c[0] }) {
				l.said[s.ID] = append(l.said[s.ID], c)
			}
		}
	}
	l.m.Rest = l.choicesOf(common.Sentences.Rest, "sentences.rest", true)
	l.m.Work = l.choices(common.Sentences.Work, "sentences.work")
	l.m.Last = l.choices(common.Sentences.Last, "sentences.last")
	l.m.Against = l.summary(1, "sentences.against", common.Sentences.Against)
	l.m.WouldChange = l.choices(common.Sentences.WouldChange, "sentences.would_change")
	l.m.Steps = map[string]Choice{}
	for _, s := range common.Sentences.Steps {
		l.m.Steps[s.name] = l.summary(s.line, "sentences.steps."+s.name, &s.v)
	}
	for _, a := range schemas.Recommendations() {
		if l.m.Steps[a] == nil {
			l.add(1, "sentences.steps", "no words for %s", a)
		}
	}
	l.m.Unnamed = Record{Fault: schemas.FaultUnknown, Title: common.Unnamed.Title, Builtin: true}
	l.m.UnnamedSign = common.Unnamed.Sign
	l.m.Unnamed.Summary = l.summary(1, "unnamed.summary", common.Unnamed.Summary)
	for i := range recs {
		if recs[i].Fault != "" {
			l.record(&recs[i])
		}
	}
	if err := l.err(); err != nil {
		return nil, err
	}
	for _, quiet := range []bool{false, true} {
		for i := range recs {
			if recs[i].Fault != "" && recs[i].Harmless == quiet {
				l.faults(&recs[i])
			}
		}
	}
	if err := l.err(); err != nil {
		return nil, err
	}
	l.finish()
	return l.m, nil
}

// decode reads the documents of a file.
func (l *loader) decode(s source, each func(*yaml.Node) error) {
	l.file = s.name
	d := yaml.NewDecoder(bytes.NewReader(s.doc))
	for {
		var n yaml.Node
		err := d.Decode(&n)
		if errors.Is(err, io.EOF) {
			return
		}
		l.lines = map[string]int{}
		if err == nil && len(n.Content) == 1 {
			err = each(n.Content[0])
		}
		if err != nil {
			line, text := 1, strings.TrimPrefix(err.Error(), "yaml: ")
			if _, e := fmt.Sscanf(text, "line %d:", &line); e == nil {
				_, text, _ = strings.Cut(text, ": ")
			}
			l.add(line, "", "%s", text)
			return
		}
	}
}

// declare takes in the types of events and the kinds of resources that are a site's own.
func (l *loader) declare(r *located) {
	for _, t := range r.Declares.Events {
		if !strings.Contains(t, ".") || strings.ContainsAny(t, "/* ") {
			l.add(r.line, "declares.events", "%q is no type of event: want words and dots, such as leak.detected", t)
		}
		l.events[t] = true
	}
	for _, k := range r.Declares.Kinds {
		l.kinds[k] = true
	}
}

// mine says whether a name is free, or is to be replaced.
func (l *loader) mine(s source, line int, key, name string, replaces bool) bool {
	old, taken := l.origin[key]
	switch {
	case taken && !replaces:
		l.add(line, name, "%s is already in %s; `replaces: true` puts this one in its place", key, old.name)
		return false
	case !taken && replaces:
		l.add(line, name, "there is no %s that it could replace", key)
		return false
	}
	l.origin[key] = s
	return true
}

type signEntry struct {
	entry[fileSign]

	of *located
}

func (l *loader) gather(r *located, list ordered[fileSign], signs []signEntry) []signEntry {
	l.read(r)
	for _, e := range list {
		if !l.mine(r.source, e.line, "sign "+e.name, "signs."+e.name, e.v.Replaces) {
			continue
		}
		i := slices.IndexFunc(signs, func(o signEntry) bool { return o.name == e.name })
		if i < 0 {
			signs = append(signs, signEntry{e, r})
		} else {
			signs[i] = signEntry{e, r}
		}
	}
	return signs
}

func (l *loader) share(r *located, list ordered[[]at[fileClass]]) {
	l.read(r)
	for _, e := range list {
		if l.mine(r.source, e.line, "effect "+e.name, "states."+e.name, false) {
			l.effects[e.name] = e.v
		}
	}
}

func (l *loader) compileSigns(signs []signEntry) {
	index := make(map[string]int, len(signs))
	for i, s := range signs {
		index[s.name] = i
	}
	for i, s := range signs {
		l.read(s.of)
		key, v := "signs."+s.name, s.v
		if strings.ContainsAny(s.name, ". ") || incidentFacts[s.name] != 0 || signFacts[s.name] != 0 {
			l.add(s.line, key, "cannot be the name of a sign")
		}
		if !probability(v.Leak) || v.Leak == 0 {
			l.add(s.line, key+".leak", "%v is no probability above 0", v.Leak)
		}
		sign := Sign{
			Name: s.name, Title: v.Title, Leak: v.Leak, Young: v.Young, Rare: v.Rare, Again: v.Again, Hold: v.Hold, Long: v.Long,
			By: contacts[v.By], Contact: contacts[v.Lost], Job: v.Job, Info: v.Info, Twin: v.Twin, Crash: v.Crash,
			Starts: v.Starts || contacts[v.By] == Host, Boot: v.Boot, Bounce: -1,
		}
		l.words(s.line, key+".title", v.Title)
		for name, way := range map[string]string{"by": v.By, "lost": v.Lost} {
			if _, ok := contacts[way]; !ok {
				l.add(s.line, key+"."+name, "no way %q: want host, bmc or any", way)
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
			l.add(s.line, key, "young %v, rare %v or again %v is no probability", sign.Young, sign.Rare, sign.Again)
		}
		if v.Bounce != "" {
			b, ok := index[v.Bounce]
			if !ok {
				l.add(s.line, key+".bounce", "no sign %q%s", v.Bounce, near(v.Bounce, keysOf(index)))
			}
			sign.Bounce = b
		}
		lowest := schemas.Severity(v.Min).Rank()
		if v.Min != "" && lowest < 0 {
			l.add(s.line, key+".min", "no severity %q", v.Min)
		}
		for _, e := range v.Events {
			typ, code, _ := strings.Cut(e, "/")
			if !l.events[typ] {
				l.add(s.line, key+".events", "no type of event %q%s", typ, near(typ, keysOf(l.events)))
			}
			if o, taken := l.owner[e]; taken {
				l.add(s.line, key+".events", "%s is the sign %s already", e, signs[o].name)
			}
			l.owner[e] = i
			prefix, within := strings.HasSuffix(code, "*"), strings.HasPrefix(code, "*") && code != "*"
			l.m.byType[typ] = append(l.m.byType[typ], pattern{strings.Trim(code, "*"), prefix || code == "", within, lowest, i})
		}
		l.m.Signs = append(l.m.Signs, sign)
	}
}

// override puts records that replace others in their places.
func (l *loader) override(recs []located) []located {
	var out []located
	for _, r := range recs {
		l.read(&r)
		switch {
		case r.Fault == "" && (len(r.Kinds) > 0 || len(r.Shows) > 0 || len(r.Title) > 0):
			l.add(r.line, "fault", "the record has no name")
		case r.Fault == "":
		case r.Fault == schemas.FaultUnknown || strings.ContainsAny(r.Fault, "@ "):
			l.add(r.line, "fault", "%q cannot be the name of a fault", r.Fault)
		case l.mine(r.source, r.line, "fault "+r.Fault, "fault", r.Replaces):
			if i := slices.IndexFunc(out, func(o located) bool { return o.Fault == r.Fault }); i >= 0 {
				out[i] = r
				continue
			}
			out = append(out, r)
		}
	}
	return out
}

func (l *loader) words(line int, key string, t sentence.Text) bool {
	for _, language := range sentence.Languages {
		if t[language] == "" {
			l.add(line, key, "no words for %q", language)
			return false
		}
	}
	for language := range t {
		if !slices.Contains(sentence.Languages[:], language) {
			l.add(line, key, "no language %q: want %s", language, strings.Join(sentence.Languages[:], " and "))
			return false
		}
	}
	return true
}

func (l *loader) template(line int, key string, t sentence.Text, of bool) *sentence.Template {
	if !l.words(line, key, t) {
		return nil
	}
	out, err := sentence.Compile(t, l.m.scope(of))
	if err != nil {
		l.add(line, key, "%v", err)
	}
	return out
}

func (l *loader) choices(list []choice, key string) []Choice { return l.choicesOf(list, key, false) }

// choicesOf compiles sentences; of says that each tells of a sign that it does not name.
func (l *loader) choicesOf(list []choice, key string, of bool) []Choice {
	if len(list) > maxSentences {
		l.add(list[0].line, key, "%d sentences; at most %d are said", len(list), maxSentences)
		return nil
	}
	var out []Choice
	for i, c := range list {
		key := fmt.Sprintf("%s[%d]", key, i)
		if c.ref != "" {
			shared, ok := l.said[c.ref]
			if !ok {
				l.add(c.line, key, "no shared sentence %q%s", c.ref, near(c.ref, keysOf(l.said)))
			}
			out = append(out, shared...)
			continue
		}
		var ch Choice
		for _, f := range c.first {
			ch = append(ch, l.sentence(f, key, of))
		}
		if len(ch) == 0 {
			l.add(c.line, key, "no sentence")
			continue
		}
		out = append(out, ch)
	}
	return out
}

func (l *loader) sentence(f at[fileSentence], key string, of bool) Said {
	s := Said{ID: f.v.ID, Of: -1, Each: f.v.Each}
	if s.ID == "" {
		l.add(f.line, key+".id", "the sentence has no name")
	}
	sign := func(name, key string) int {
		i := l.m.SignNamed(name)
		if i < 0 {
			l.noSign(f.line, key, name)
		}
		return i
	}
	if f.v.Of != "" {
		s.Of = sign(f.v.Of, key+".of")
	} else if f.v.Each {
		l.add(f.line, key+".each", "of what? `of` names no sign")
	}
	for _, t := range f.v.Tells {
		s.Tells = append(s.Tells, sign(t, key+".tells"))
	}
	var err error
	if s.When, err = sentence.ParseCondition(f.v.When, l.m.scope(of || f.v.Of != "")); err != nil {
		l.add(f.line, key+".when", "%v", err)
	}
	s.Template = l.template(f.line, key, sentence.Text{"en": f.v.EN, "zh": f.v.ZH}, of || f.v.Of != "")
	return s
}

func (l *loader) noSign(line int, key, name string) {
	var all []string
	for i := range l.m.Signs {
		all = append(all, l.m.Signs[i].Name)
	}
	l.add(line, key, "no sign %q%s", name, near(name, all))
}

// summary compiles the sentence that says what happened, or several of which the
// first that holds is said; the last must always hold.
func (l *loader) summary(line int, key string, c *choice) Choice {
	if c == nil || c.ref != "" || len(c.first) == 0 {
		l.add(line, key, "no sentence that says what happened")
		return nil
	}
	var out Choice
	for _, f := range c.first {
		f.v.ID = "summary"
		out = append(out, l.sentence(f, key, false))
	}
	if last := c.first[len(c.first)-1].v; last.When != "" || last.Of != "" {
		l.add(line, key, "the last sentence must always hold")
	}
	return out
}

// record compiles the words about a fault.
func (l *loader) record(r *located) {
	l.read(r)
	rec := &Record{
		Fault: r.Fault, Title: r.Title, Heals: r.Heals, ForetoldBy: r.ForetoldBy, Policy: r.Policy, Builtin: r.source.builtin,
	}
	if r.Harmless {
		return
	}
	l.words(r.line, "title", r.Title)
	rec.Summary = l.summary(r.line, "summary", r.Summary)
	if r.Step != nil {
		rec.Step = l.summary(r.line, "step", r.Step)
	}
	rec.Sentences = l.choices(r.Sentences, "sentences")
	l.m.Records[r.Fault] = rec
}

// faults compiles the forms of a record.
func (l *loader) faults(r *located) {
	l.read(r)
	if fault, ok := l.compile(r, r.line, "", &r.fileForm); ok {
		l.m.Faults = append(l.m.Faults, fault)
	}
	for _, f := range r.Forms {
		if fault, ok := l.compile(r, f.line, "forms."+f.name, &f.v); ok {
			l.m.Faults = append(l.m.Faults, fault)
		}
	}
}

func probability(p float64) bool { return p >= 0 && p <= 1 && !math.IsNaN(p) }

func (l *loader) compile(r *located, line int, key string, f *fileForm) (Fault, bool) {
	problems := len(l.all)
	out := Fault{
		Name: r.Fault, Is: f.Is, Kinds: f.Kinds, Prior: f.Prior, End: f.End, Reset: f.Reset, Together: f.Together, Action: f.Do.Action,
		Target: f.Do.Target, Harmless: r.Harmless, Window: windows[r.Window],
	}
	if _, ok := windows[r.Window]; !ok {
		l.add(r.line, "window", "want during or overdue, got %q", r.Window)
	}
	if !probability(f.Together) {
		l.add(line, join(key, "together"), "%v is no probability", f.Together)
	}
	if math.IsNaN(f.Prior) || math.Abs(f.Prior) > 30 {
		l.add(line, join(key, "prior"), "%v is no log-odds between -30 and 30", f.Prior)
	}
	if len(f.Kinds) == 0 {
		l.add(line, join(key, "kinds"), "which kinds of resources can have the fault?")
	}
	for _, k := range f.Kinds {
		l.kind(line, join(key, "kinds"), k)
	}
	if !r.Harmless {
		if !slices.Contains(schemas.Recommendations(), f.Do.Action) {
			l.add(line, join(key, "do.action"), "no action %q%s", f.Do.Action, near(f.Do.Action, schemas.Recommendations()))
		}
		if f.Do.Target != "self" && f.Do.Target != "server" {
			l.add(line, join(key, "do.target"), "want self or server, got %q", f.Do.Target)
		}
	}
	for i, c := range f.Shows {
		key := join(key, fmt.Sprintf("shows[%d]", i))
		l.class(&out, nil, c, key, 1, 1, 0, l.after(c.line, key, c.v.After), false, false)
	}
	out.own = len(out.Classes)
	for i, e := range f.Effects {
		key, v := join(key, fmt.Sprintf("effects[%d]", i)), e.v
		classes, ok := l.effects[v.Effect]
		if !ok {
			l.add(e.line, key+".effect", "no effect %q%s", v.Effect, near(v.Effect, keysOf(l.effects)))
			continue
		}
		prefix := l.path(e.line, key+".at", v.At)
		if !probability(v.P) || !probability(v.M) || !probability(v.Shared.P) || !probability(v.Shared.M) || !probability(v.Shared.Late) || !probability(v.Shared.Back) {
			l.add(e.line, key, "a probability is outside of [0,1]")
		}
		after := l.after(e.line, key, v.After)
		if _, ok := l.effects[v.Shared.With]; !ok && v.Shared.With != "" {
			l.add(e.line, key+".shared.with", "no effect %q%s", v.Shared.With, near(v.Shared.With, keysOf(l.effects)))
		}
		out.Effects = append(out.Effects, Effect{
			State: v.Effect, Path: prefix, Share: orOne(v.P), Shows: orOne(v.M), SharedShare: v.Shared.P, SharedShows: v.Shared.M,
			SharedLate: v.Shared.Late, SharedBack: orOne(v.Shared.Back), SharedWith: v.Shared.With, Delay: v.Delay, After: after,
		})
		derived := l.states[v.Effect] && f.Is != v.Effect && !r.Harmless // what is harmless competes with the state itself
		for _, c := range classes {
			l.class(&out, prefix, c, key, orOne(v.P), orOne(v.M), v.Delay, after, v.Later, derived)
		}
	}
	if len(out.Classes) > maxClasses {
		l.add(line, key, "%d signs; at most %d are weighed", len(out.Classes), maxClasses)
	}
	if !slices.ContainsFunc(out.Classes, func(c Class) bool { return !c.Later }) {
		l.add(line, join(key, "shows"), "nothing points to the fault: it has no sign, or all are `later`")
	}
	return out, len(l.all) == problems
}

// after returns the signs that come first.
func (l *loader) after(line int, key string, names []string) (out []int) {
	for _, name := range names {
		if n := l.m.SignNamed(name); n >= 0 {
			out = append(out, n)
		} else {
			l.noSign(line, key+".after", name)
		}
	}
	return out
}

func (l *loader) class(
	out *Fault, prefix []Step, c at[fileClass], key string, share, shows float64, delay time.Duration, after []int, later, derived bool,
) {
	v := c.v
	sign := l.m.SignNamed(v.Sign)
	if sign < 0 {
		l.noSign(c.line, key+".sign", v.Sign)
		return
	}
	path := append(slices.Clone(prefix), l.path(c.line, key+".at", v.At)...)
	cl := Class{
		Sign: sign, Path: path, Share: orOne(v.P) * share, Shows: orOne(v.M) * shows,
		Within: v.Within + delay, Before: v.Before, Alone: v.Alone, Each: v.Each, After: after,
		Later:   v.Later || later || out.Window == During && v.Sign != SignWork || out.Window == Overdue && v.Sign != SignNotBack,
		Soon:    v.Soon + delay/2,
		Derived: derived || v.Tie && !out.Harmless,
		Jobs:    len(path) > 0 && path[len(path)-1].Op == Jobs,
	}
	if v.Soon == 0 {
		cl.Soon += min(v.Within/4, 30*time.Second)
	}
	if !probability(v.P) || !probability(v.M) || !probability(cl.Share) || !probability(cl.Shows) {
		l.add(c.line, key, "a probability is outside of [0,1]")
	}
	if v.Each != "" {
		l.kind(c.line, key+".each", v.Each)
	}
	if v.Within < 0 || v.Before < 0 || v.Soon < 0 {
		l.add(c.line, key, "a time is negative")
	}
	out.Classes = append(out.Classes, cl)
}

func (l *loader) kind(line int, key, kind string) {
	if !l.kinds[kind] {
		l.add(line, key, "no kind of resource %q%s", kind, near(kind, keysOf(l.kinds)))
	}
}

func (l *loader) path(line int, key, s string) []Step {
	if s == "" {
		return nil
	}
	var out []Step
	for part := range strings.SplitSeq(s, ">") {
		s, ok := readStep(part)
		if !ok {
			l.add(line, key, "no step %q", strings.TrimSpace(part))
			return nil
		}
		l.kind(line, key, s.Kind)
		if s.In != "" {
			l.kind(line, key, s.In)
		}
		out = append(out, s)
	}
	if len(out) > maxSteps {
		l.add(line, key, "%d steps; at most %d are gone", len(out), maxSteps)
	}
	return out
}

// readStep reads a step as records write it: "powers:psu", "powers:psu in server", "powers:psu not in switch".
func readStep(text string) (s Step, ok bool) {
	move, in, held := strings.Cut(strings.TrimSpace(text), " in ")
	move, out := strings.CutSuffix(move, " not")
	op, kind, ok := strings.Cut(move, ":")
	o, known := ops[op]
	return Step{o, kind, in, out}, ok && known && kind != "" && held == (in != "") && (held || !out)
}

// finish derives what depends on the whole.
func (l *loader) finish() {
	m := l.m
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
	for i := range m.Signs {
		m.Signs[i].On = m.shownBy(i)
	}
	for _, s := range m.sentences() {
		if s.Each {
			m.Signs[s.Of].Each = true
		}
	}
	m.number()
}

package propagation

import (
	"maps"
	"slices"
	"strings"

	"auspex/schemas"
	"auspex/schemas/faults/sentence"
)

// Record is what is known about a fault however it is seen.
type Record struct {
	Fault     string
	Title     sentence.Text
	Summary   Choice // the last one always holds
	Step      Choice // what to do, in words; empty is what [Model.Steps] says of the action
	Sentences []Choice
	// Heals says that the fault may end without anybody doing anything.
	Heals bool
	// ForetoldBy names the metrics whose limits foretell the fault.
	ForetoldBy []string
	// Policy names the policy of control that takes it, unless a policy lists the fault itself.
	Policy string
	// Builtin says that it comes with the product.
	Builtin bool
}

// Choice is a list of sentences of which the first that holds is said.
type Choice []Said

// Said is a sentence and when it is said.
type Said struct {
	ID       string
	Of       int // the sign that it tells of and that must be there; -1 is none
	Tells    []int
	Each     bool // for each part that shows the sign, as if it were alone
	When     *sentence.Condition
	Template *sentence.Template
}

// Facts of an incident that sentences may use, with their types. README.md of
// the records says what each is.
var incidentFacts = map[string]sentence.Type{
	"fault": sentence.Words, "resource": sentence.Words, "server": sentence.Words, "part": sentence.Words, "index": sentence.Name,
	"kind": sentence.Words, "rack": sentence.Words, "feed": sentence.Words, "owner": sentence.Words, "servers": sentence.Number,
	"jobs": sentence.Number, "gpus_heard": sentence.Number, "ended": sentence.Number, "supplies": sentence.Number,
	"supplies_mute": sentence.Number, "others": sentence.Number, "others_lost": sentence.Number, "others_mute": sentence.Number,
	"expected": sentence.Phrase, "due": sentence.Number, "shown": sentence.Number, "mute": sentence.Number, "unread": sentence.Truth, "target": sentence.Words,
	"clue": sentence.Phrase, "has_clue": sentence.Truth, "alternative": sentence.Words, "alternative_title": sentence.Phrase,
	"heals": sentence.Truth, "other_feeds": sentence.Number, "other_feed": sentence.Words, "carried": sentence.Truth, "left_out": sentence.Number,
	"window": sentence.Words, "window_by": sentence.Words, "window_end": sentence.Words, "in_window": sentence.Truth, "outlasted": sentence.Truth,
	"equals": sentence.Number, "equal_parts": sentence.Words, "reopened": sentence.Number,
}

// Facts of a sign in an incident: as {name} in a sentence of it, as {sign.name} elsewhere.
var signFacts = map[string]sentence.Type{
	"parts": sentence.Number, "reports": sentence.Number, "within": sentence.Number, "lead": sentence.Number, "what": sentence.Phrase,
	"first": sentence.Words, "first_index": sentence.Name, "first_server": sentence.Words, "at_cause": sentence.Truth,
	"gpus": sentence.Number, "hosts": sentence.Number, "speakers": sentence.Number, "most": sentence.Number, "twice": sentence.Number,
	"source": sentence.Words, "codes": sentence.Words, "other_source": sentence.Words,
}

// Facts returns the types of all facts, of an incident and of a sign.
func Facts() (incident, sign map[string]sentence.Type) {
	return maps.Clone(incidentFacts), maps.Clone(signFacts)
}

// scope is what a sentence may speak of; of says that it tells of a sign.
func (m *Model) scope(of bool) sentence.Scope {
	return func(name string) (sentence.Type, bool) {
		if sign, fact, ok := strings.Cut(name, "."); ok {
			t, known := signFacts[fact]
			return t, known && m.SignNamed(sign) >= 0
		}
		if t, ok := incidentFacts[name]; ok {
			return t, true
		}
		if t, ok := signFacts[name]; ok && of {
			return t, true
		}
		if m.SignNamed(name) >= 0 {
			return sentence.Truth, true
		}
		return 0, false
	}
}

// Record returns what is known about a fault, or [Model.Unnamed].
func (m *Model) Record(fault string) *Record {
	if r := m.Records[fault]; r != nil {
		return r
	}
	return &m.Unnamed
}

// Title names a fault in every language.
func (m *Model) Title(fault string) sentence.Text {
	if m.Records[fault] == nil && fault != schemas.FaultUnknown { // of a later version, or of a folder that is gone
		words := strings.ReplaceAll(fault, "_", " ")
		return sentence.Text{"en": words, "zh": words}
	}
	return m.Record(fault).Title
}

// Foretold returns the faults that metrics foretell. One of them that comes without
// a prediction was missed.
func (m *Model) Foretold() []string {
	var out []string
	for name, r := range m.Records {
		if len(r.ForetoldBy) > 0 {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// Sentence puts a sentence of the built-in or added records into words by its id:
// "sum." and a fault, or "say." and the id of a sentence. Args are its facts.
func (m *Model) Sentence(id string, args map[string]any) schemas.Sentence {
	out := schemas.Sentence{ID: id, Args: args}
	if t := m.template(id); t != nil {
		out.Text = t.Text(args)
	}
	return out
}

func (m *Model) template(id string) *sentence.Template {
	if fault, ok := strings.CutPrefix(id, "sum."); ok {
		c := m.Record(fault).Summary
		return c[len(c)-1].Template
	}
	for _, s := range m.sentences() {
		if "say."+s.ID == id {
			return s.Template
		}
	}
	return nil
}

// sentences returns all sentences but the summaries.
func (m *Model) sentences() []Said {
	lists := [][]Choice{m.Shared, m.Rest, m.Work, m.Last}
	for _, name := range keysOf(m.Records) {
		lists = append(lists, m.Records[name].Sentences)
	}
	return slices.Concat(slices.Concat(lists...)...)
}

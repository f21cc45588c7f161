// Package reasons holds the sentences of why an allocation, a workflow, a step of it, a server or
// a GPU is in its state: a message id and its English template. What is kept and told is the
// English text; the sentence is read back from it, so that each says what the other does, also of
// what an earlier version wrote.
package reasons

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"auspex/schemas"
)

// Args are the arguments of a sentence.
type Args = map[string]any

// All returns the ids of all messages, sorted.
func All() []string { return slices.Sorted(maps.Keys(templates)) }

// Template returns the English template of a message, or "".
func Template(id string) string { return templates[id] }

// Text renders a message in English.
func Text(id string, args Args) string { return render(templates[id], args) }

func render(template string, args Args) string {
	pairs := make([]string, 0, 2*len(args))
	for name, v := range args {
		pairs = append(pairs, "{"+name+"}", fmt.Sprint(v))
	}
	return strings.NewReplacer(pairs...).Replace(template)
}

// Error is an error in the words of a message whose argument error it is.
func Error(id string, args Args, err error) error {
	all := maps.Clone(args)
	all["error"] = err
	return &wrapped{Text(id, all), err}
}

type wrapped struct {
	text string
	err  error
}

func (w *wrapped) Error() string { return w.text }
func (w *wrapped) Unwrap() error { return w.err }

// Some names a few of many.
func Some(names []string) string {
	const few = 4
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return Text(And, Args{"names": strings.Join(names[:few], ", "), "n": len(names) - few})
}

// Arguments that may have spaces, and of them those that may be sentences themselves.
var (
	texts = []string{
		"error", "legal", "reason", "words", "findings", "changes", "settings", "held", "gpus", "states", "jobs", "who", "now", "time", "by", "until",
	}
	inner = []string{"why", "names", "saw", "what", "first", "second"}
)

// closed are the arguments that have few values, which tell templates of one shape apart.
var closed = map[string][]string{
	"status": schemas.ServerLife.States(),
	"state": {
		schemas.ActionProposed, schemas.ActionWaiting, schemas.ActionApproved, schemas.ActionRunning, schemas.ActionVerifying, schemas.ActionDone,
		schemas.ActionFailed, schemas.ActionUnknown, schemas.ActionCancelled, schemas.ActionRefused,
	},
}

// numbers are the arguments that are counted.
var numbers = []string{"n", "others"}

// pattern finds a template in a text.
type pattern struct {
	id, template string
	re           *regexp.Regexp
	names        []string // of its arguments, in their order
	letters      int      // of it that are no arguments
	closed       bool     // one of its arguments has few values
	frame        bool     // it is before another sentence, and nothing in it could hold more
}

// Reader reads sentences from texts.
type Reader struct{ patterns []pattern }

var argument = regexp.MustCompile(`\{(\w+)\}`)

// NewReader returns a reader of the templates of this package and of others, by id. Steps are the
// names of the steps that workflows have.
func NewReader(steps []string, others map[string]string) *Reader {
	few := maps.Clone(closed)
	few["step"] = steps
	r := &Reader{}
	for _, table := range []map[string]string{templates, others} {
		for id, template := range table {
			p := pattern{id: id, template: template}
			var re strings.Builder
			end, wide := 0, false
			p.frame = strings.HasSuffix(template, "{why}")
			for _, at := range argument.FindAllStringSubmatchIndex(template, -1) {
				literal, name := template[end:at[0]], template[at[2]:at[3]]
				re.WriteString(regexp.QuoteMeta(literal))
				switch values := few[name]; {
				case slices.Contains(numbers, name):
					re.WriteString(`(\d+)`)
				case len(values) > 0:
					re.WriteString("(" + strings.Join(values, "|") + ")")
					p.closed = true
				case slices.Contains(texts, name) || slices.Contains(inner, name):
					re.WriteString("(.+?)")
					p.frame = p.frame && !wide
					wide = true
				default:
					re.WriteString(`(\S+?)`)
				}
				p.letters += letters(literal)
				p.names = append(p.names, name)
				end = at[1]
			}
			re.WriteString(regexp.QuoteMeta(template[end:]))
			p.letters += letters(template[end:])
			if p.letters == 0 && len(p.names) < 2 && !p.closed { // it would be found in every text
				continue
			}
			p.re = regexp.MustCompile(`(?s)^(?:` + re.String() + `)$`)
			r.patterns = append(r.patterns, p)
		}
	}
	// What is before another sentence comes first, and then the one that says most.
	slices.SortFunc(r.patterns, func(a, b pattern) int {
		return cmp.Or(last(!a.frame, !b.frame), cmp.Compare(b.letters, a.letters), last(!a.closed, !b.closed), cmp.Compare(len(a.names), len(b.names)),
			cmp.Compare(a.id, b.id))
	})
	return r
}

func last(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

func letters(s string) (n int) {
	for _, c := range s {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' {
			n++
		}
	}
	return n
}

// depth is how many sentences may be in one another.
const depth = 8

// Of returns the sentence that a text says; nil where it is in no words of ours, such as what a
// peer or a person wrote.
func (r *Reader) Of(text string) *schemas.Sentence {
	if r == nil {
		return nil
	}
	return r.of(text, depth)
}

func (r *Reader) of(text string, left int) *schemas.Sentence {
	if text == "" || left == 0 {
		return nil
	}
	for i := range r.patterns {
		p := &r.patterns[i]
		found := p.re.FindStringSubmatch(text)
		if found == nil || left < depth && (p.id == Status || p.id == StatusSo) { // a state of a server is told of first
			continue
		}
		s, strange := &schemas.Sentence{ID: p.id}, false
		if len(p.names) > 0 {
			s.Args = make(Args, len(p.names))
		}
		for k, name := range p.names {
			value := found[k+1]
			s.Args[name] = value
			if n, err := strconv.Atoi(value); err == nil && slices.Contains(numbers, name) && strconv.Itoa(n) == value {
				s.Args[name] = n
			} else if d, err := time.ParseDuration(value); err == nil && name == "age" {
				s.Args["seconds"] = d.Seconds()
			} else if slices.Contains(inner, name) {
				if said := r.of(value, left-1); said != nil {
					s.Args[name] = *said
				} else {
					strange = true
				}
			}
		}
		if p.letters == 0 && !p.closed && strange { // a colon alone makes no sentence of two texts
			continue
		}
		return s
	}
	return nil
}

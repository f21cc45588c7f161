// Package sentence is the language in which fault records speak: templates in
// several languages, and conditions over the facts of an incident. Both are checked
// against the names and types of those facts when a record is read, so that
// neither can fail afterwards.
package sentence

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Languages are those that every text must have; the first stands in for others.
var Languages = [...]string{"en", "zh"}

// Text is a phrase by language. Texts do not change once they were read.
type Text map[string]string

// In returns the text in a language, or in the first of [Languages].
func (t Text) In(language string) string {
	if s, ok := t[language]; ok {
		return s
	}
	return t[Languages[0]]
}

// Type is what a fact is.
type Type uint8

// The types. A Name is a part's number where it has one, else its name: it can
// be shown and not be compared.
const (
	Number Type = iota + 1
	Words
	Truth
	Name
	Phrase // a Text
)

// Scope gives the type of a fact, or false where there is none of that name.
type Scope func(name string) (Type, bool)

// View gives the value of a fact: float64, string, bool or Text by its type, and
// either of the first two for a Name. It knows every name of its scope.
type View func(name string) any

const (
	maxTemplate = 500 // characters of a template in one language
	maxPieces   = 32  // placeholders in it
)

// Template is a sentence with places for facts, in every language:
// {name}, or {name:one|many} for a count with the words that follow it.
type Template struct {
	pieces [len(Languages)][]piece // by language
	names  []string
}

type piece struct {
	text      string // literal, where name is ""
	name      string
	at        int // of the name among those of the template
	one, many string
}

// Compile reads a template in each of [Languages].
func Compile(t Text, scope Scope) (*Template, error) {
	out := &Template{}
	for k, language := range Languages {
		s := t[language]
		if s == "" {
			return nil, fmt.Errorf("%s: no words", language)
		}
		ps, err := split(s)
		for i := range ps {
			p := &ps[i]
			if p.name == "" || err != nil {
				continue
			}
			switch typ, ok := scope(p.name); {
			case !ok:
				err = fmt.Errorf("no fact {%s} here", p.name)
			case typ == Truth:
				err = fmt.Errorf("{%s} is true or false; it has no words", p.name)
			case p.many != "" && typ != Number:
				err = fmt.Errorf("{%s} is no number that words could follow", p.name)
			}
			if p.at = slices.Index(out.names, p.name); p.at < 0 {
				p.at = len(out.names)
				out.names = append(out.names, p.name)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", language, err)
		}
		out.pieces[k] = ps
	}
	return out, nil
}

func split(s string) ([]piece, error) {
	if len(s) > maxTemplate {
		return nil, fmt.Errorf("longer than %d bytes", maxTemplate)
	}
	var out []piece
	for s != "" {
		open := strings.IndexAny(s, "{}")
		if open < 0 {
			return append(out, piece{text: s}), nil
		}
		end := strings.IndexByte(s[open:], '}')
		if s[open] == '}' || end < 0 {
			return nil, errors.New("braces do not match")
		}
		if open > 0 {
			out = append(out, piece{text: s[:open]})
		}
		name, forms, plural := strings.Cut(s[open+1:open+end], ":")
		p := piece{name: name}
		if plural {
			var ok bool
			if p.one, p.many, ok = strings.Cut(forms, "|"); !ok || p.one == "" || p.many == "" {
				return nil, fmt.Errorf("{%s}: want {name:one|many}", s[open+1:open+end])
			}
		}
		if out = append(out, p); len(out) > 2*maxPieces {
			return nil, fmt.Errorf("more than %d facts", maxPieces)
		}
		s = s[open+end+1:]
	}
	return out, nil
}

// Names returns the facts that a template shows.
func (t *Template) Names() []string { return t.names }

// Text returns the sentence in every language. A fact that is missing leaves its
// place empty.
func (t *Template) Text(args map[string]any) Text {
	facts := make([]any, len(t.names))
	for i, n := range t.names {
		facts[i] = args[n]
	}
	return t.Say(facts)
}

// Say returns the sentence in every language from the facts that it shows, in the order of their names.
func (t *Template) Say(facts []any) Text {
	out := make(Text, len(Languages))
	var room [512]byte // most sentences are shorter
	for k, language := range Languages {
		ps, b := t.pieces[k], room[:0]
		for i := range ps {
			p := &ps[i]
			if p.name == "" {
				b = append(b, p.text...)
				continue
			}
			v := facts[p.at]
			b = show(b, v, language)
			if n, ok := number(v); p.many != "" && ok {
				b = append(b, ' ')
				if n == 1 {
					b = append(b, p.one...)
				} else {
					b = append(b, p.many...)
				}
			}
		}
		out[language] = string(b)
	}
	return out
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case float64:
		return v, true
	case int:
		return float64(v), true
	}
	return 0, false
}

// show appends a fact in words.
func show(b []byte, v any, language string) []byte {
	switch v := v.(type) {
	case string:
		return append(b, v...)
	case Text:
		return append(b, v.In(language)...)
	}
	n, ok := number(v)
	if !ok {
		return b
	}
	from := len(b)
	b = strconv.AppendFloat(b, n, 'f', -1, 64)
	end := len(b)
	if i := bytes.IndexByte(b[from:], '.'); i >= 0 {
		end = from + i
	}
	for i := end - 3; i > from && b[i-1] != '-'; i -= 3 {
		b = slices.Insert(b, i, ',')
	}
	return b
}

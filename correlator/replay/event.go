package replay

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"unicode/utf8"

	"auspex/schemas"
)

// decoder reads events. Lines in the plain form that programs write are read in one pass;
// whatever else JSON allows is left to encoding/json, which also names what is wrong.
type decoder struct {
	known  map[string]string       // words that come again and again
	recent [1 << recentBits]string // some of them, each at a place that it may lose to another
}

const (
	maxKnown   = 1 << 17 // words
	recentBits = 12
)

func (d *decoder) event(line []byte, ev *schemas.Event) error {
	if d.plain(line, ev) {
		return nil
	}
	*ev = schemas.Event{}
	return json.Unmarshal(line, ev)
}

// word returns a text, the same string each time.
func (d *decoder) word(text []byte) string {
	at := &d.recent[place(text)]
	if *at != string(text) {
		*at = d.learn(text)
	}
	return *at
}

// place spreads words by their length and their ends.
func place(text []byte) uint64 {
	h := uint64(len(text))
	if n := len(text); n >= 8 {
		h ^= binary.LittleEndian.Uint64(text)*0xff51afd7ed558ccd ^ binary.LittleEndian.Uint64(text[n-8:])
	} else {
		for _, c := range text {
			h = h<<8 | uint64(c)
		}
	}
	h *= 0x9e3779b97f4a7c15
	return (h ^ h>>29) * 0xbf58476d1ce4e5b9 >> (64 - recentBits)
}

func (d *decoder) learn(text []byte) string {
	if s, ok := d.known[string(text)]; ok {
		return s
	}
	s := string(text)
	if d.known == nil {
		d.known = map[string]string{}
	}
	if len(d.known) < maxKnown {
		d.known[s] = s
	}
	return s
}

// plain reads an object of texts without escapes, each key once. It reports whether the
// line is one; of another it may have read a part.
func (d *decoder) plain(line []byte, ev *schemas.Event) bool {
	rest := bytes.TrimSpace(line)
	met := 0
	rest, ok := members(rest, func(key, rest []byte) ([]byte, bool) {
		field := 0
		if string(key) == "attrs" {
			attrs := map[string]string{}
			rest, ok := members(rest, func(key, rest []byte) ([]byte, bool) {
				text, rest, ok := quoted(rest)
				attrs[d.word(key)] = d.word(text)
				return rest, ok
			})
			if field = 1 << 10; met&field != 0 {
				return nil, false
			}
			met, ev.Attrs = met|field, attrs
			return rest, ok
		}
		text, rest, ok := quoted(rest)
		if !ok {
			return nil, false
		}
		switch string(key) {
		case "id":
			field, ev.ID = 1, string(text)
		case "time":
			field, ok = 2, ev.Time.UnmarshalText(text) == nil
		case "observed":
			field, ok = 4, ev.Observed.UnmarshalText(text) == nil
		case "source":
			field, ev.Source = 8, d.word(text)
		case "resource":
			field, ev.Resource = 16, d.word(text)
		case "type":
			field, ev.Type = 32, d.word(text)
		case "code":
			field, ev.Code = 64, d.word(text)
		case "severity":
			field, ev.Severity = 128, schemas.Severity(d.word(text))
		case "state":
			field, ev.State = 256, d.word(text)
		case "message":
			field, ev.Message = 512, string(text)
		}
		ok = ok && field != 0 && met&field == 0
		met |= field
		return rest, ok
	})
	return ok && len(rest) == 0
}

// members visits the members of an object; visit reads a value and returns what follows.
func members(in []byte, visit func(key, rest []byte) ([]byte, bool)) (rest []byte, ok bool) {
	if len(in) == 0 || in[0] != '{' {
		return nil, false
	}
	for in = space(in[1:]); ; in = space(in[1:]) {
		key, rest, ok := quoted(in)
		if rest = space(rest); !ok || len(rest) == 0 || rest[0] != ':' {
			return nil, false
		}
		if in, ok = visit(key, space(rest[1:])); !ok {
			return nil, false
		}
		if in = space(in); len(in) == 0 {
			return nil, false
		}
		switch in[0] {
		case '}':
			return in[1:], true
		case ',':
		default:
			return nil, false
		}
	}
}

// quoted reads a text without escapes.
func quoted(in []byte) (text, rest []byte, ok bool) {
	if len(in) == 0 || in[0] != '"' {
		return nil, nil, false
	}
	ascii := true
	for i, c := range in[1:] {
		switch {
		case c == '"':
			text = in[1 : 1+i]
			return text, in[i+2:], ascii || utf8.Valid(text)
		case c == '\\' || c < ' ':
			return nil, nil, false
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	return nil, nil, false
}

func space(in []byte) []byte {
	for len(in) > 0 && (in[0] == ' ' || in[0] == '\t' || in[0] == '\n' || in[0] == '\r') {
		in = in[1:]
	}
	return in
}

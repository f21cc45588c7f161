package schemas

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Attrs are the attributes of a resource: texts by key. They do not change, and two that hold the
// same are equal by ==. They are one text, since an inventory has millions of them and a map of two
// takes 336 bytes: pairs in the order of their keys, each text behind its length.
type Attrs struct{ packed string }

// AttrsOf packs a map.
func AttrsOf(m map[string]string) Attrs {
	if len(m) == 0 {
		return Attrs{}
	}
	var few [16]string
	keys := few[:0]
	size := 0
	for k, v := range m {
		keys = append(keys, k)
		size += len(k) + len(v) + 2 + len(k)>>7 + len(v)>>7
	}
	slices.Sort(keys)
	var b strings.Builder
	b.Grow(size)
	for _, k := range keys {
		put(&b, k)
		put(&b, m[k])
	}
	return Attrs{b.String()}
}

func put(b *strings.Builder, text string) {
	n := uint64(len(text))
	for ; n >= 0x80; n >>= 7 {
		b.WriteByte(byte(n) | 0x80)
	}
	b.WriteByte(byte(n))
	b.WriteString(text)
}

// take returns the first text of packed ones, and the others.
func take(packed string) (text, rest string) {
	n, at := uint64(packed[0]), 1
	if n >= 0x80 {
		var head [binary.MaxVarintLen64]byte
		n, at = binary.Uvarint(head[:copy(head[:], packed)])
	}
	end := at + int(n)
	return packed[at:end], packed[end:]
}

// Lookup returns the value of a key, and whether there is one.
func (a Attrs) Lookup(key string) (value string, ok bool) {
	for rest := a.packed; rest != ""; {
		var k string
		k, rest = take(rest)
		value, rest = take(rest)
		if k == key {
			return value, true
		}
	}
	return "", false
}

// Get returns the value of a key, or "".
func (a Attrs) Get(key string) string {
	value, _ := a.Lookup(key)
	return value
}

// All yields keys and values in the order of the keys.
func (a Attrs) All() iter.Seq2[string, string] {
	return func(yield func(k, v string) bool) {
		for rest := a.packed; rest != ""; {
			var k, v string
			k, rest = take(rest)
			v, rest = take(rest)
			if !yield(k, v) {
				return
			}
		}
	}
}

// Len is how many there are.
func (a Attrs) Len() int {
	n := 0
	for range a.All() {
		n++
	}
	return n
}

// IsZero reports whether there are none.
func (a Attrs) IsZero() bool { return a.packed == "" }

// Equal is ==, for those who compare by method.
func (a Attrs) Equal(other Attrs) bool { return a == other }

// String writes them as a map is written.
func (a Attrs) String() string { return fmt.Sprint(a.Map()) }

// Map returns them as a map of the caller's; it is never nil.
func (a Attrs) Map() map[string]string { return maps.Collect(a.All()) }

// With returns them with another value of one key.
func (a Attrs) With(key, value string) Attrs {
	m := a.Map()
	m[key] = value
	return AttrsOf(m)
}

// Without returns them without some keys.
func (a Attrs) Without(keys ...string) Attrs {
	m := a.Map()
	for _, k := range keys {
		delete(m, k)
	}
	return AttrsOf(m)
}

// Join returns them with those of others, which win where both have a key.
func (a Attrs) Join(others Attrs) Attrs {
	if others.IsZero() || a == others {
		return a
	}
	if a.IsZero() {
		return others
	}
	m := a.Map()
	maps.Insert(m, others.All())
	return AttrsOf(m)
}

// Common returns what two hold alike.
func (a Attrs) Common(other Attrs) Attrs {
	if a == other {
		return a
	}
	m := a.Map()
	maps.DeleteFunc(m, func(k, v string) bool {
		w, there := other.Lookup(k)
		return !there || v != w
	})
	return AttrsOf(m)
}

// MarshalJSON writes an object.
func (a Attrs) MarshalJSON() ([]byte, error) {
	b := make([]byte, 1, len(a.packed)*3/2+16)
	b[0] = '{'
	for k, v := range a.All() {
		for i, text := range []string{k, v} {
			if escaped(text) {
				return json.Marshal(a.Map())
			}
			b = append(append(append(b, '"'), text...), '"', ":,"[i])
		}
	}
	if len(b) > 1 {
		b = b[:len(b)-1]
	}
	return append(b, '}'), nil
}

// escaped reports whether a text is written otherwise in JSON.
func escaped(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return true
		}
	}
	return false
}

// UnmarshalJSON reads an object whose values are texts, or null.
func (a *Attrs) UnmarshalJSON(text []byte) error {
	if packed, ok := plain(text); ok {
		a.packed = packed
		return nil
	}
	var m map[string]string
	if err := json.Unmarshal(text, &m); err != nil {
		return err
	}
	*a = AttrsOf(m)
	return nil
}

// plain packs an object as MarshalJSON writes most: sorted keys, nothing escaped, no blanks. It knows
// no other.
func plain(text []byte) (packed string, ok bool) {
	if len(text) < 2 || text[0] != '{' || text[len(text)-1] != '}' || bytes.IndexByte(text, '\\') >= 0 {
		return "", false
	}
	var b strings.Builder
	b.Grow(len(text))
	last := []byte(nil)
	for at := 1; text[at] != '}'; at++ {
		for _, end := range []byte{':', 0} {
			if text[at] != '"' {
				return "", false
			}
			n := bytes.IndexByte(text[at+1:], '"')
			if n < 0 {
				return "", false
			}
			word := text[at+1 : at+1+n]
			if !utf8.Valid(word) || bytes.ContainsFunc(word, unicode.IsControl) {
				return "", false
			}
			if end == ':' {
				if bytes.Compare(word, last) <= 0 && last != nil {
					return "", false
				}
				last = word
			}
			put(&b, string(word))
			if at += n + 2; end != 0 && text[at] != end {
				return "", false
			} else if end != 0 {
				at++
			}
		}
		switch text[at] {
		case '}':
			at--
		case ',':
			if text[at+1] == '}' {
				return "", false
			}
		default:
			return "", false
		}
	}
	return strings.Clone(b.String()), true
}

package redfish

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// Object is a JSON object whose properties are read with forgiveness: a value of
// another type than expected is as if it were absent.
type Object map[string]any

// ID returns @odata.id, the path of the resource.
func (o Object) ID() string { return o.String("@odata.id") }

// IsLink reports whether the object only refers to a resource: it has a path and nothing
// else but annotations.
func (o Object) IsLink() bool {
	for k := range o {
		if !strings.HasPrefix(k, "@") {
			return false
		}
	}
	return o.ID() != ""
}

// Next returns the path of the page behind a page of a collection, or "".
func (o Object) Next() string {
	if s := o.String("Members@odata.nextLink"); s != "" {
		return s
	}
	return o.String("@odata.nextLink")
}

// Object returns the named object, or an empty one.
func (o Object) Object(key string) Object {
	if m, ok := o[key].(map[string]any); ok {
		return m
	}
	return nil
}

// Objects returns the objects of the named array.
func (o Object) Objects(key string) []Object {
	list, _ := o[key].([]any)
	out := make([]Object, 0, len(list))
	for _, v := range list {
		if m, ok := v.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

// Strings returns the strings of the named array.
func (o Object) Strings(key string) []string {
	list, _ := o[key].([]any)
	var out []string
	for _, v := range list {
		switch v := v.(type) {
		case string:
			out = append(out, v)
		case float64:
			out = append(out, strconv.FormatFloat(v, 'g', -1, 64))
		}
	}
	return out
}

// String returns the named string; a number is given as text.
func (o Object) String(key string) string {
	switch v := o[key].(type) {
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return ""
}

// Link returns the path that the named property refers to, or "".
func (o Object) Link(key string) string { return o.Object(key).ID() }

// Number returns the named number; text that is a number counts.
func (o Object) Number(key string) (float64, bool) { return number(o[key]) }

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case float64:
		return v, true
	case string:
		f, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
		return f, err == nil && !math.IsNaN(f) && !math.IsInf(f, 0)
	}
	return 0, false
}

// Text returns the named text or number as text, or "".
func (o Object) Text(key string) string {
	if n, ok := o[key].(float64); ok {
		return strconv.FormatFloat(n, 'g', -1, 64)
	}
	return o.String(key)
}

// Bool returns the named boolean, or false.
func (o Object) Bool(key string) bool {
	b, _ := o[key].(bool)
	return b
}

// Time returns the named time of RFC 3339, with or without a zone.
func (o Object) Time(key string) (time.Time, bool) {
	s := o.String(key)
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999Z0700", "2006-01-02T15:04:05.999999999"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t.UTC(), true
		}
	}
	return time.Time{}, false
}

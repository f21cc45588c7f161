package gnmi

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"strconv"
	"strings"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
)

// number reads a value as a number, whatever encoding the target has chosen.
func number(v *gpb.TypedValue) (float64, bool) {
	switch x := v.GetValue().(type) {
	case *gpb.TypedValue_UintVal:
		return float64(x.UintVal), true
	case *gpb.TypedValue_IntVal:
		return float64(x.IntVal), true
	case *gpb.TypedValue_DoubleVal:
		return x.DoubleVal, true
	case *gpb.TypedValue_FloatVal: //nolint:staticcheck // older targets still send it
		return float64(x.FloatVal), true //nolint:staticcheck // as above
	case *gpb.TypedValue_DecimalVal: //nolint:staticcheck // older targets still send it
		d := x.DecimalVal //nolint:staticcheck // as above
		return float64(d.GetDigits()) / math.Pow10(int(min(d.GetPrecision(), 18))), true
	case *gpb.TypedValue_BytesVal: // ieeefloat32 of older OpenConfig models
		if len(x.BytesVal) == 4 {
			return float64(math.Float32frombits(binary.BigEndian.Uint32(x.BytesVal))), true
		}
	case *gpb.TypedValue_StringVal:
		f, err := strconv.ParseFloat(x.StringVal, 64)
		return f, err == nil
	case *gpb.TypedValue_JsonIetfVal:
		return jsonNumber(x.JsonIetfVal)
	case *gpb.TypedValue_JsonVal:
		return jsonNumber(x.JsonVal)
	}
	return 0, false
}

// jsonNumber reads a number, or a string with one: RFC 7951 writes 64-bit
// integers and decimals so.
func jsonNumber(b []byte) (float64, bool) {
	f, err := strconv.ParseFloat(strings.Trim(string(b), "\" \n"), 64)
	return f, err == nil
}

// text reads a value as a name; the module of an identity is cut off.
func text(v *gpb.TypedValue) (string, bool) {
	s, ok := words(v)
	return s[strings.LastIndexByte(s, ':')+1:], ok
}

// words reads a value as text.
func words(v *gpb.TypedValue) (s string, ok bool) {
	switch x := v.GetValue().(type) {
	case *gpb.TypedValue_StringVal:
		s = x.StringVal
	case *gpb.TypedValue_AsciiVal:
		s = x.AsciiVal
	case *gpb.TypedValue_JsonIetfVal:
		if json.Unmarshal(x.JsonIetfVal, &s) != nil {
			return "", false
		}
	case *gpb.TypedValue_JsonVal:
		if json.Unmarshal(x.JsonVal, &s) != nil {
			return "", false
		}
	default:
		return "", false
	}
	return s, true
}

// subtree returns the JSON object of a value that holds more than a leaf.
func subtree(v *gpb.TypedValue) []byte {
	var b []byte
	switch x := v.GetValue().(type) {
	case *gpb.TypedValue_JsonIetfVal:
		b = x.JsonIetfVal
	case *gpb.TypedValue_JsonVal:
		b = x.JsonVal
	}
	for _, c := range b {
		switch c {
		case ' ', '\t', '\n', '\r':
			continue
		case '{', '[':
			return b
		}
		break
	}
	return nil
}

// listKeys are the keys of the lists that the paths of this package and of presets pass. Lists of one
// name have different keys in different models.
var listKeys = map[string][]string{
	"interface": {"name", "interface-id"}, "component": {"name"}, "channel": {"index"}, "threshold": {"severity"},
	"neighbor": {"neighbor-address", "id"}, "network-instance": {"name"}, "protocol": {"name"}, "queue": {"name"},
	"switch-priority": {"priority"}, "subinterface": {"index"}, "address": {"ip"},
}

// bare is a name without the module that it stands with (RFC 7951, section 4). What stands behind a
// module begins with a letter or _ (RFC 7950, section 6.2): Ethernet68:1 is a name whole.
func bare(name string) string {
	i := strings.LastIndexByte(name, ':') + 1
	if i == 0 || i == len(name) || name[i] != '_' && (name[i]|0x20 < 'a' || name[i]|0x20 > 'z') {
		return name
	}
	return name[i:]
}

// below calls leaf for each leaf below a value that was told at a path. A list is told by its name
// alone.
func below(at []*gpb.PathElem, raw json.RawMessage, leaf func([]*gpb.PathElem, *gpb.TypedValue)) {
	if n := len(at); n > 0 && raw[0] == '[' && len(at[n-1].GetKey()) == 0 {
		entries(at[:n-1], bare(at[n-1].GetName()), raw, 0, leaf)
		return
	}
	walk(at, raw, 0, leaf)
}

// walk calls leaf for each leaf below a JSON value.
func walk(at []*gpb.PathElem, raw json.RawMessage, depth int, leaf func([]*gpb.PathElem, *gpb.TypedValue)) {
	if depth > 16 {
		return
	}
	var obj map[string]json.RawMessage
	if json.Unmarshal(raw, &obj) == nil && obj != nil {
		for k, v := range obj {
			k = bare(k)
			if !entries(at, k, v, depth, leaf) {
				walk(append(at[:len(at):len(at)], &gpb.PathElem{Name: k}), v, depth+1, leaf)
			}
		}
		return
	}
	if len(raw) > 0 && raw[0] != '[' && raw[0] != '{' {
		leaf(at, &gpb.TypedValue{Value: &gpb.TypedValue_JsonIetfVal{JsonIetfVal: raw}})
	}
}

// entries walks the entries of a list, and reports whether that is one.
func entries(at []*gpb.PathElem, name string, raw json.RawMessage, depth int, leaf func([]*gpb.PathElem, *gpb.TypedValue)) bool {
	known, isList := listKeys[name]
	var list []map[string]json.RawMessage
	if !isList || json.Unmarshal(raw, &list) != nil {
		return false
	}
	for _, item := range list {
		entry, keys := map[string]json.RawMessage{}, map[string]string{}
		for field, v := range item {
			entry[bare(field)] = v
		}
		for _, key := range known {
			v := entry[key]
			if v == nil {
				continue
			}
			var text string
			if json.Unmarshal(v, &text) != nil { // a number
				text = strings.Trim(string(v), `"`)
			}
			keys[key] = text
			break
		}
		e := &gpb.PathElem{Name: name, Key: keys}
		for field, v := range entry {
			walk(append(at[:len(at):len(at)], e, &gpb.PathElem{Name: field}), v, depth+1, leaf)
		}
	}
	return true
}

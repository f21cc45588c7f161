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

// listKeys are the keys of the lists that the paths of this package pass.
var listKeys = map[string]string{
	"interface": "name", "component": "name", "channel": "index", "threshold": "severity", "neighbor": "neighbor-address",
	"network-instance": "name", "protocol": "name",
}

// walk calls leaf for each leaf below a JSON value.
func walk(at []*gpb.PathElem, raw json.RawMessage, depth int, leaf func([]*gpb.PathElem, *gpb.TypedValue)) {
	if depth > 16 {
		return
	}
	var obj map[string]json.RawMessage
	if json.Unmarshal(raw, &obj) == nil && obj != nil {
		for k, v := range obj {
			k = k[strings.LastIndexByte(k, ':')+1:]
			var list []map[string]json.RawMessage
			key, isList := listKeys[k]
			if !isList || json.Unmarshal(v, &list) != nil {
				walk(append(at[:len(at):len(at)], &gpb.PathElem{Name: k}), v, depth+1, leaf)
				continue
			}
			for _, item := range list {
				key := key
				if k == "neighbor" && item[key] == nil {
					key = "id" // of LLDP
				}
				name := strings.Trim(string(item[key]), `"`)
				e := &gpb.PathElem{Name: k, Key: map[string]string{key: name}}
				for field, sub := range item {
					field = field[strings.LastIndexByte(field, ':')+1:]
					walk(append(at[:len(at):len(at)], e, &gpb.PathElem{Name: field}), sub, depth+1, leaf)
				}
			}
		}
		return
	}
	if len(raw) > 0 && raw[0] != '[' && raw[0] != '{' {
		leaf(at, &gpb.TypedValue{Value: &gpb.TypedValue_JsonIetfVal{JsonIetfVal: raw}})
	}
}

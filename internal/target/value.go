package target

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
)

// encodings are those in which values are told.
var encodings = []gpb.Encoding{gpb.Encoding_PROTO, gpb.Encoding_JSON_IETF, gpb.Encoding_JSON, gpb.Encoding_ASCII}

// encode makes the value of a leaf for the wire. Integers of our modules have 64 bits
// and decimals are decimal64: JSON_IETF writes both as strings (RFC 7951, section 6.1).
func (v value) encode(e gpb.Encoding) *gpb.TypedValue {
	switch e {
	case gpb.Encoding_JSON:
		return &gpb.TypedValue{Value: &gpb.TypedValue_JsonVal{JsonVal: v.json(false)}}
	case gpb.Encoding_JSON_IETF:
		return &gpb.TypedValue{Value: &gpb.TypedValue_JsonIetfVal{JsonIetfVal: v.json(true)}}
	case gpb.Encoding_ASCII:
		return &gpb.TypedValue{Value: &gpb.TypedValue_AsciiVal{AsciiVal: strings.ToValidUTF8(v.String(), "\uFFFD")}}
	}
	switch v.kind {
	case unsigned:
		return &gpb.TypedValue{Value: &gpb.TypedValue_UintVal{UintVal: v.bits}}
	case signed:
		return &gpb.TypedValue{Value: &gpb.TypedValue_IntVal{IntVal: int64(v.bits)}}
	case double:
		return &gpb.TypedValue{Value: &gpb.TypedValue_DoubleVal{DoubleVal: math.Float64frombits(v.bits)}}
	case boolean:
		return &gpb.TypedValue{Value: &gpb.TypedValue_BoolVal{BoolVal: v.bits != 0}}
	}
	// A string of the wire is UTF-8; what a machine says may be anything.
	return &gpb.TypedValue{Value: &gpb.TypedValue_StringVal{StringVal: strings.ToValidUTF8(v.text, "\uFFFD")}}
}

func (v value) json(ietf bool) []byte {
	s := v.String()
	if v.kind == text || ietf && v.kind != boolean {
		b, err := json.Marshal(s)
		if err != nil { // no string has one
			return []byte(`""`)
		}
		return b
	}
	return []byte(s)
}

// String is the value as YANG writes it (RFC 7950, section 9).
func (v value) String() string {
	switch v.kind {
	case unsigned:
		return strconv.FormatUint(v.bits, 10)
	case signed:
		return strconv.FormatInt(int64(v.bits), 10)
	case double:
		return strconv.FormatFloat(math.Float64frombits(v.bits), 'f', -1, 64)
	case boolean:
		return strconv.FormatBool(v.bits != 0)
	}
	return v.text
}

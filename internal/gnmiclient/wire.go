package gnmiclient

import (
	"errors"
	"iter"
	"math"
	"unicode/utf8"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Numbers of fields (gnmi.proto).
const (
	responseUpdate = 1
	responseSync   = 3
	responseError  = 4

	notificationTimestamp = 1
	notificationPrefix    = 2
	notificationUpdate    = 4
	notificationDelete    = 5
	notificationAtomic    = 6

	updatePath  = 1
	updateValue = 3

	valueString = 1
	valueInt    = 2
	valueUint   = 3
	valueBool   = 4
	valueBytes  = 5 // and the following, but for valueFloat
	valueFloat  = 6
	valueASCII  = 12
	valueProto  = 13
	valueDouble = 14
)

// Response is a SubscribeResponse that is looked at where it lies: nothing of it is copied. Paths
// are what is told again and again; they are for looking up, and [ParsePath] reads one.
type Response struct {
	Sync      bool
	Timestamp int64  // nanoseconds since the epoch
	Prefix    []byte // a Path
	Raw       []byte // the Notification; empty is none
	// Replaces says that the notification tells what is no more: by a delete, or as one that is atomic.
	Replaces bool

	updates int
}

// Value is a TypedValue. Kind is what it is.
type Value struct {
	Kind  Kind
	bits  uint64
	bytes []byte
}

// Kind is a kind of value.
type Kind uint8

// Kinds of values. Others are those that [Response] does not read.
const (
	None Kind = iota
	Uint
	Int
	Bool
	Double
	Text
	Others
)

// Uint is an unsigned number.
func (v Value) Uint() uint64 { return v.bits }

// Text is a text, good as long as the message is; other values have none.
func (v Value) Text() []byte { return v.bytes }

// Number is a value as a number; false is one that is none, or infinite.
func (v Value) Number() (float64, bool) {
	switch v.Kind {
	case Uint, Bool:
		return float64(v.bits), true
	case Int:
		return float64(int64(v.bits)), true //nolint:gosec // of 64 bits
	case Double:
		f := math.Float64frombits(v.bits)
		return f, !math.IsNaN(f) && !math.IsInf(f, 0)
	}
	return 0, false
}

var errWire = errors.New("malformed message")

// errTwice says that a part came twice where there is one, which protobuf would merge.
var errTwice = errors.New("a part comes twice")

// Parse reads a message into r. What it accepts, the walks below read to its end.
func (r *Response) Parse(message []byte) error {
	err := r.parse(message)
	if errors.Is(err, errTwice) { // rare: as the library has it, written anew
		var m gpb.SubscribeResponse
		if proto.Unmarshal(message, &m) != nil {
			return errWire
		}
		if message, err = proto.Marshal(&m); err == nil {
			err = r.parse(message)
		}
	}
	return err
}

func (r *Response) parse(message []byte) error {
	*r = Response{}
	told := false // of a choice, the last holds
	err := fields(message, func(n protowire.Number, t protowire.Type, v field) error {
		isUpdate, isSync := n == responseUpdate && t == protowire.BytesType, n == responseSync && t == protowire.VarintType
		if !isUpdate && !isSync && (n != responseError || t != protowire.BytesType) {
			return nil
		}
		if told {
			return errTwice
		}
		told = true
		if r.Sync = isSync; isUpdate {
			r.Raw = v.bytes
		}
		return nil
	})
	if err != nil {
		return err
	}
	prefixed := false
	return fields(r.Raw, func(n protowire.Number, t protowire.Type, v field) error {
		switch {
		case n == notificationTimestamp && t == protowire.VarintType:
			r.Timestamp = int64(v.bits) //nolint:gosec // of 64 bits
		case n == notificationPrefix && t == protowire.BytesType:
			if prefixed {
				return errTwice
			}
			r.Prefix, prefixed = v.bytes, true
		case n == notificationUpdate && t == protowire.BytesType:
			r.updates++
			_, _, err := update(v.bytes)
			return err
		case n == notificationDelete && t == protowire.BytesType, n == notificationAtomic && t == protowire.VarintType && v.bits != 0:
			r.Replaces = true
		}
		return nil
	})
}

// Updates walks through the updates: the path of each, without the prefix, and its value.
func (r *Response) Updates() iter.Seq2[[]byte, Value] {
	return func(yield func([]byte, Value) bool) {
		if r.updates == 0 {
			return
		}
		for b := r.Raw; len(b) > 0; {
			n, t, v, size := next(b)
			b = b[size:]
			if n == notificationUpdate && t == protowire.BytesType {
				if path, value, _ := update(v.bytes); !yield(path, value) {
					return
				}
			}
		}
	}
}

// Deletes walks through the paths that are no more, without the prefix. They are told before the
// updates (gNMI specification, section 2.1).
func (r *Response) Deletes() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for b := r.Raw; len(b) > 0; {
			n, t, v, size := next(b)
			b = b[size:]
			if n == notificationDelete && t == protowire.BytesType && !yield(v.bytes) {
				return
			}
		}
	}
}

// ParsePath reads a path.
func ParsePath(raw []byte) (*gpb.Path, error) {
	p := new(gpb.Path)
	if err := proto.Unmarshal(raw, p); err != nil {
		return nil, errWire
	}
	return p, nil
}

func update(raw []byte) (path []byte, v Value, err error) {
	var pathed, valued bool
	err = fields(raw, func(n protowire.Number, t protowire.Type, f field) error {
		if t != protowire.BytesType {
			return nil
		}
		switch n {
		case updatePath:
			if pathed {
				return errTwice
			}
			path, pathed = f.bytes, true
		case updateValue:
			if valued {
				return errTwice
			}
			valued = true
			v, err = value(f.bytes)
			return err
		}
		return nil
	})
	return path, v, err
}

// value reads a TypedValue; of several, the last is it.
func value(raw []byte) (v Value, err error) {
	err = fields(raw, func(n protowire.Number, t protowire.Type, f field) error {
		switch {
		case n == valueUint && t == protowire.VarintType:
			v = Value{Kind: Uint, bits: f.bits}
		case n == valueInt && t == protowire.VarintType:
			v = Value{Kind: Int, bits: f.bits}
		case n == valueBool && t == protowire.VarintType:
			v = Value{Kind: Bool}
			if f.bits != 0 {
				v.bits = 1
			}
		case n == valueFloat && t == protowire.Fixed32Type:
			v = Value{Kind: Double, bits: math.Float64bits(float64(math.Float32frombits(uint32(f.bits))))} //nolint:gosec // of 32 bits
		case n == valueDouble && t == protowire.Fixed64Type:
			v = Value{Kind: Double, bits: f.bits}
		case n == valueString && t == protowire.BytesType:
			if !utf8.Valid(f.bytes) {
				return errWire
			}
			v = Value{Kind: Text, bytes: f.bytes}
		case n >= valueBytes && n <= valueProto && t == protowire.BytesType:
			if n == valueASCII && !utf8.Valid(f.bytes) {
				return errWire
			}
			v = Value{Kind: Others}
		}
		return nil
	})
	return v, err
}

// field is the content of a field: of a number, or of bytes.
type field struct {
	bits  uint64
	bytes []byte
}

// fields walks through a message.
func fields(b []byte, visit func(protowire.Number, protowire.Type, field) error) error {
	for len(b) > 0 {
		n, t, v, size := next(b)
		if size < 0 {
			return errWire
		}
		if err := visit(n, t, v); err != nil {
			return err
		}
		b = b[size:]
	}
	return nil
}

// next reads a field; size is below 0 where there is none.
func next(b []byte) (n protowire.Number, t protowire.Type, v field, size int) {
	n, t, size = protowire.ConsumeTag(b)
	if size < 0 {
		return n, t, v, size
	}
	k := 0
	switch b = b[size:]; t {
	case protowire.VarintType:
		v.bits, k = protowire.ConsumeVarint(b)
	case protowire.Fixed32Type:
		var bits uint32
		bits, k = protowire.ConsumeFixed32(b)
		v.bits = uint64(bits)
	case protowire.Fixed64Type:
		v.bits, k = protowire.ConsumeFixed64(b)
	case protowire.BytesType:
		v.bytes, k = protowire.ConsumeBytes(b)
	default:
		k = protowire.ConsumeFieldValue(n, t, b)
	}
	if k < 0 {
		return n, t, v, k
	}
	return n, t, v, size + k
}

package gnmiclient

import (
	"math"
	"slices"
	"testing"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

func path(names ...string) *gpb.Path {
	p := &gpb.Path{}
	for _, n := range names {
		p.Elem = append(p.Elem, &gpb.PathElem{Name: n, Key: map[string]string{"name": "gpu0"}})
	}
	return p
}

func update1(v *gpb.TypedValue, names ...string) *gpb.Update {
	return &gpb.Update{Path: path(names...), Val: v}
}

// same compares what was read here with what the library reads.
func same(t *testing.T, r *Response, want *gpb.SubscribeResponse) {
	t.Helper()
	n := want.GetUpdate()
	_, sync := want.GetResponse().(*gpb.SubscribeResponse_SyncResponse)
	if r.Sync != sync || r.Timestamp != n.GetTimestamp() {
		t.Fatalf("sync %v at %d, want %v at %d", r.Sync, r.Timestamp, sync, n.GetTimestamp())
	}
	equal := func(raw []byte, want *gpb.Path) {
		t.Helper()
		got, err := ParsePath(raw)
		if want == nil {
			want = &gpb.Path{}
		}
		if err != nil || !proto.Equal(got, want) {
			t.Fatalf("%v %v, want %v", got, err, want)
		}
	}
	equal(r.Prefix, n.GetPrefix())
	i := 0
	for raw := range r.Deletes() {
		equal(raw, n.GetDelete()[i])
		i++
	}
	if i != len(n.GetDelete()) {
		t.Fatalf("%d deletes, want %d", i, len(n.GetDelete()))
	}
	i = 0
	for raw, v := range r.Updates() {
		u := n.GetUpdate()[i]
		equal(raw, u.GetPath())
		kind, number, isNumber := None, 0.0, true
		switch x := u.GetVal().GetValue().(type) {
		case nil:
			isNumber = false
		case *gpb.TypedValue_UintVal:
			kind, number = Uint, float64(x.UintVal)
			if v.Uint() != x.UintVal {
				t.Fatalf("%d, want %d", v.Uint(), x.UintVal)
			}
		case *gpb.TypedValue_IntVal:
			kind, number = Int, float64(x.IntVal)
		case *gpb.TypedValue_BoolVal:
			if kind = Bool; x.BoolVal {
				number = 1
			}
		case *gpb.TypedValue_DoubleVal:
			kind, number = Double, x.DoubleVal
		case *gpb.TypedValue_FloatVal: //nolint:staticcheck // older targets have it
			kind, number = Double, float64(x.FloatVal) //nolint:staticcheck // the same
		case *gpb.TypedValue_StringVal:
			if kind, isNumber = Text, false; string(v.Text()) != x.StringVal {
				t.Fatalf("%q, want %q", v.Text(), x.StringVal)
			}
		default:
			kind, isNumber = Others, false
		}
		isNumber = isNumber && !math.IsNaN(number) && !math.IsInf(number, 0)
		if got, ok := v.Number(); v.Kind != kind || ok != isNumber || ok && got != number {
			t.Fatalf("%d %v %v, want %d %v %v", v.Kind, got, ok, kind, number, isNumber)
		}
		i++
	}
	if i != len(n.GetUpdate()) {
		t.Fatalf("%d updates, want %d", i, len(n.GetUpdate()))
	}
}

func examples() (out [][]byte) {
	values := []*gpb.TypedValue{
		nil,
		{},
		{Value: &gpb.TypedValue_UintVal{UintVal: math.MaxUint64}},
		{Value: &gpb.TypedValue_UintVal{}},
		{Value: &gpb.TypedValue_IntVal{IntVal: -5}},
		{Value: &gpb.TypedValue_BoolVal{BoolVal: true}},
		{Value: &gpb.TypedValue_BoolVal{}},
		{Value: &gpb.TypedValue_DoubleVal{DoubleVal: math.Inf(1)}},
		{Value: &gpb.TypedValue_DoubleVal{DoubleVal: 1.5}},
		{Value: &gpb.TypedValue_FloatVal{FloatVal: 2.5}}, //nolint:staticcheck // older targets have it
		{Value: &gpb.TypedValue_StringVal{StringVal: "H100 – 80 GB"}},
		{Value: &gpb.TypedValue_BytesVal{BytesVal: []byte{0xff}}},
		{Value: &gpb.TypedValue_JsonIetfVal{JsonIetfVal: []byte(`{"a":1}`)}},
		{Value: &gpb.TypedValue_LeaflistVal{LeaflistVal: &gpb.ScalarArray{Element: []*gpb.TypedValue{{}}}}},
	}
	n := &gpb.Notification{Timestamp: -7, Prefix: path("gpus"), Delete: []*gpb.Path{path("a"), {}}, Atomic: true}
	for _, v := range values {
		n.Update = append(n.Update, update1(v, "gpu", "state"))
	}
	for _, m := range []*gpb.SubscribeResponse{
		{},
		{Response: &gpb.SubscribeResponse_Update{}},
		{Response: &gpb.SubscribeResponse_Update{Update: n}},
		{Response: &gpb.SubscribeResponse_SyncResponse{SyncResponse: true}},
	} {
		raw, err := proto.Marshal(m)
		if err != nil {
			panic(err)
		}
		out = append(out, raw)
	}
	// What is told twice is merged, and the last of a choice holds.
	twice := slices.Concat(out[2], out[2])
	return append(out, twice, slices.Concat(out[2], out[3]), slices.Concat(out[3], out[2]),
		protowire.AppendBytes(protowire.AppendTag(slices.Clone(out[2]), responseError, protowire.BytesType), nil),
		protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1),
		protowire.AppendVarint(protowire.AppendTag(nil, responseUpdate, protowire.VarintType), 1))
}

// Whatever the library reads is read here, and is the same.
func FuzzResponse(f *testing.F) {
	for _, raw := range examples() {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var want gpb.SubscribeResponse
		wanted := proto.Unmarshal(raw, &want)
		var r Response
		err := r.Parse(raw)
		if wanted != nil {
			if err == nil { // it does not look into all: what it hands out is still to be walked through
				n := 0
				for range r.Updates() {
					n++
				}
				for range r.Deletes() {
					n++
				}
				if n > len(raw) {
					t.Fatalf("%d parts in %d bytes", n, len(raw))
				}
			}
			return
		}
		if err != nil {
			t.Fatalf("%v", err)
		}
		same(t, &r, &want)
	})
}

func BenchmarkResponse(b *testing.B) {
	n := &gpb.Notification{Timestamp: 1}
	for range 100 {
		n.Update = append(n.Update, update1(&gpb.TypedValue{Value: &gpb.TypedValue_UintVal{UintVal: 1 << 40}}, "gpus", "gpu", "state", "energy"))
	}
	raw, err := proto.Marshal(&gpb.SubscribeResponse{Response: &gpb.SubscribeResponse_Update{Update: n}})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("here", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var r Response
			if r.Parse(raw) != nil {
				b.Fatal("refused")
			}
			for _, v := range r.Updates() {
				if _, ok := v.Number(); !ok {
					b.Fatal("no number")
				}
			}
		}
	})
	b.Run("library", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var m gpb.SubscribeResponse
			if err := proto.Unmarshal(raw, &m); err != nil {
				b.Fatal(err)
			}
		}
	})
}

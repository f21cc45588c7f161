package redfish

import (
	"encoding/json"
	"math"
	"testing"
)

// Whatever a controller answers, what is read of it is a value or none.
func FuzzObject(f *testing.F) {
	for _, s := range []string{
		`{"@odata.id":"/redfish/v1/Chassis/1","Reading":"21,5","Status":{"Health":"OK"},"Members":[{"@odata.id":"/x"},7,null],"DateTime":"2026-01-01T00:00:00+01:00"}`,
		`{"@odata.id":7,"Reading":1e999,"Status":[],"Members":{"a":[]},"DateTime":"0000-00-00"}`, `{"Members@odata.nextLink":"/x?$skip=1","Reading":"NaN"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var o Object
		if json.Unmarshal(b, &o) != nil {
			return
		}
		_, _, _, _ = o.ID(), o.IsLink(), o.Next(), whole(o)
		if n := sizeOf(map[string]any(o)); n < 0 {
			t.Errorf("its size is %d", n)
		}
		for key := range o {
			_, _, _, _, _ = o.Object(key), o.Objects(key), o.Strings(key), o.Link(key), o.Text(key)
			_, _ = o.Bool(key), o.String(key)
			if n, ok := o.Number(key); ok && (math.IsNaN(n) || math.IsInf(n, 0)) {
				t.Errorf("%q is the number %v", o[key], n)
			}
			if at, ok := o.Time(key); ok && at.IsZero() {
				t.Errorf("%q is the zero time", o[key])
			}
		}
	})
}

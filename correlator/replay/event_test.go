package replay

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"auspex/schemas"
)

var lines = []string{
	`{"id":"a","time":"2026-01-01T01:00:23.421349Z","observed":"2026-01-01T01:00:23.5+08:00","source":"rule","resource":"s1/gpu4",` +
		`"type":"gpu.xid","code":"79","severity":"critical","state":"raised","message":"温度 high","attrs":{"workload":"j1","x":""}}`,
	` { "id" : "a" , "type" : "b" } `,
	`{"id":"a\nb"}`, `{"ID":"a"}`, `{"id":"a","id":"b"}`, `{"attrs":{"a":"1"},"attrs":{"b":"2"}}`, `{"attrs":{"a":"1","a":"2"}}`,
	`{"attrs":{}}`, `{"attrs":null}`, `{}`, `{"id":null}`, `{"id":1}`, `{"more":"x"}`, `{"more":[1,{"a":2}]}`, `{"id":"a"}x`, `{"id":"a",}`,
	`{"time":"yesterday"}`, `{"time":""}`, "{\"id\":\"\xff\"}", `[]`, `"a"`, ``, `{"id":"a"`, `{"severity":"dire"}`, "{\"id\":\"a\tb\"}",
}

// The short way reads what encoding/json reads.
func FuzzEventsAreReadAsJSON(f *testing.F) {
	for _, l := range lines {
		f.Add([]byte(l))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var got, want schemas.Event
		var d decoder
		gerr, werr := d.event(line, &got), json.Unmarshal(line, &want)
		if (gerr == nil) != (werr == nil) || gerr != nil && gerr.Error() != werr.Error() {
			t.Fatalf("%q: %v, want %v", line, gerr, werr)
		}
		if diff := cmp.Diff(want, got); werr == nil && diff != "" {
			t.Errorf("%q: %s", line, diff)
		}
	})
}

// What programs write takes the short way.
func TestPlainEventsAreReadInOnePass(t *testing.T) {
	var d decoder
	for _, l := range lines[:2] {
		var ev schemas.Event
		if !d.plain([]byte(l), &ev) {
			t.Errorf("%s is left to encoding/json", l)
		}
	}
}

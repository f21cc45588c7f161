package provision_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"auspex/internal/provision"
)

// Whatever user data is, it is judged, and each fault has a sentence and a line that there is.
func FuzzCheckUserData(f *testing.F) {
	f.Add("#cloud-config\nusers: [default]\n")
	f.Add("#cloud-config\na: &a [*a]\n? {b: c}\n: 1\n")
	f.Add(`{"ignition": {"version": "3.4.0"}, "storage": 1}`)
	f.Add("version: v1alpha1\nmachine: {type: 1}\n---\napiVersion: v1alpha1\nkind: KmsgLogConfig\n")
	f.Fuzz(func(t *testing.T, text string) {
		err := provision.CheckUserData(text)
		var faults provision.Faults
		if err != nil && !errors.As(err, &faults) {
			t.Fatal(err)
		}
		for _, fault := range faults {
			if fault.Field != "user_data" || fault.Detail == "" || fault.Line < 1 || fault.Line > strings.Count(text, "\n")+1 {
				t.Errorf("%+v", fault)
			}
		}
	})
}

// Whatever a template and its schema are, they are judged soon, and each fault has a sentence and a
// line that there is.
func FuzzCheck(f *testing.F) {
	schema, err := json.Marshal(parameters())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good, string(schema))
	f.Add("{{ range 9999999999 }}{{ end }}", `{"type":"object","properties":{"a":{"type":"string","writeOnly":true}}}`)
	f.Add("{{ define \"x\" }}{{ template \"x\" . }}{{ end }}{{ template \"x\" . }}", `{"$ref":"#"}`)
	f.Add("a: &a [*a]\ntasks: [*a]\n", `{"type":"object","properties":{"a":{"items":{"type":"object"}}}}`)
	f.Fuzz(func(t *testing.T, text, schema string) {
		b := body(text)
		if json.Unmarshal([]byte(schema), &b.Parameters) != nil {
			return
		}
		began := time.Now()
		err := provision.Check(t.Context(), b)
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("%s", took)
		}
		var faults provision.Faults
		if err == nil {
			_, _, _, err = provision.Render(t.Context(), b, nil, record(), nil)
		}
		if err == nil {
			return
		}
		if !errors.As(err, &faults) {
			t.Fatal(err)
		}
		for _, fault := range faults {
			if fault.Field == "" || fault.Detail == "" || fault.Line < 0 || fault.Line > strings.Count(text, "\n")+1 || fault.Field != "text" && fault.Line != 0 {
				t.Errorf("%+v", fault)
			}
		}
	})
}

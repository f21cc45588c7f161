package openapi

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// The document is one of OpenAPI, and keeps what clients and readers of it count on.
func TestTheDocumentKeepsItsRules(t *testing.T) {
	doc, err := openapi3.NewLoader().LoadFromData(Document)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Fatalf("is no document of OpenAPI 3.0: %v", err)
	}
	tags := make(map[string]bool)
	for _, tag := range doc.Tags {
		if tag.Description == "" {
			t.Errorf("tag %s says nothing of itself", tag.Name)
		}
		tags[tag.Name] = false
	}
	ids := make(map[string]string)
	for path, item := range doc.Paths.Map() {
		if strings.HasSuffix(path, "/") || strings.ToLower(path) != path {
			t.Errorf("%s: a path has small letters and no slash at its end", path)
		}
		for method, op := range item.Operations() {
			at := method + " " + path
			for _, wrong := range operation(method, op) {
				t.Errorf("%s: %s", at, wrong)
			}
			if other := ids[op.OperationID]; other != "" {
				t.Errorf("%s and %s have one operationId", at, other)
			}
			ids[op.OperationID] = at
			for _, tag := range op.Tags {
				if _, known := tags[tag]; !known {
					t.Errorf("%s: the tag %s is not among those of the document", at, tag)
				}
				tags[tag] = true
			}
		}
	}
	for tag, used := range tags {
		if !used {
			t.Errorf("nothing has the tag %s", tag)
		}
	}
	for name := range unused(doc) {
		t.Errorf("nothing refers to the schema %s", name)
	}
}

// withoutKey are the POSTs that take no Idempotency-Key, and why: clients do not send them again by themselves.
var withoutKey = map[string]string{
	"login": "nobody is a caller before it", "logout": "nobody is one behind it", "renderTemplate": "it stores nothing, nor its answer",
}

// operation is what is wrong with an operation.
func operation(method string, op *openapi3.Operation) (wrong []string) {
	say := func(text string) { wrong = append(wrong, text) }
	if op.OperationID == "" {
		say("has no operationId")
	}
	_, unkept := withoutKey[op.OperationID]
	if key := op.Parameters.GetByInAndName(openapi3.ParameterInHeader, "Idempotency-Key"); method == http.MethodPost && (key == nil) != unkept {
		say("is a POST, which takes an Idempotency-Key unless withoutKey says why not")
	}
	if op.Summary == "" || strings.HasSuffix(op.Summary, ".") {
		say("wants a summary that does not end with a full stop")
	}
	if len(op.Tags) != 1 {
		say("wants one tag")
	}
	problem := op.Responses.Default()
	if problem == nil || problem.Value.Content.Get("application/problem+json") == nil {
		say("wants a problem document as its default answer")
	}
	success := false
	for code := range op.Responses.Map() {
		success = success || code[0] == '2' || code[0] == '3'
	}
	if !success {
		say("has no answer of success")
	}
	for _, p := range op.Parameters {
		wrong = append(wrong, bounds(p.Value.Name, p.Value.Schema.Value, nil)...)
		if p.Value.In == openapi3.ParameterInQuery && p.Value.Name == "after" && op.Parameters.GetByInAndName(openapi3.ParameterInQuery, "limit") == nil {
			say("has pages, and no limit of them")
		}
	}
	if op.RequestBody == nil {
		return wrong
	}
	if method == http.MethodGet || method == http.MethodDelete {
		say("has a body")
	}
	body := op.RequestBody.Value.Content.Get("application/json")
	if body == nil {
		return append(wrong, "takes no JSON")
	}
	return append(wrong, bounds("", body.Schema.Value, nil)...)
}

// bounds is what is without a bound in what a caller sends.
func bounds(at string, s *openapi3.Schema, within []*openapi3.Schema) (wrong []string) {
	if slices.Contains(within, s) {
		return nil
	}
	within = append(within, s)
	say := func(text string) { wrong = append(wrong, strings.TrimPrefix(at, ".")+" "+text) }
	switch {
	case len(s.Enum) > 0:
	case s.Type.Is("string"):
		if s.MaxLength == nil && s.Format != "date-time" && s.Format != "uuid" {
			say("wants a maxLength")
		}
	case s.Type.Is("integer"):
		if s.Min == nil || s.Max == nil {
			say("wants a minimum and a maximum")
		}
	case s.Type.Is("array"):
		if s.MaxItems == nil {
			say("wants maxItems")
		}
		wrong = append(wrong, bounds(at+"[]", s.Items.Value, within)...)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		wrong = append(wrong, bounds(at+"."+name, s.Properties[name].Value, within)...)
	}
	if more := s.AdditionalProperties.Schema; more != nil {
		if s.MaxProps == nil {
			say("wants maxProperties")
		}
		wrong = append(wrong, bounds(at+".*", more.Value, within)...)
	}
	return wrong
}

// unused are the schemas that nothing refers to.
func unused(doc *openapi3.T) map[string]bool {
	out := make(map[string]bool)
	for name := range doc.Components.Schemas {
		if !strings.Contains(string(Document), "#/components/schemas/"+name+`"`) && !strings.Contains(string(Document), `x-go-type: "*`+name+`"`) {
			out[name] = true
		}
	}
	return out
}

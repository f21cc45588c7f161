package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/gofiber/fiber/v2"

	"auspex/api/apigen"
	"auspex/schemas/openapi"
)

// maxDepth is how deep the values of a body may lie in one another.
const maxDepth = 32

// asked is what the document says that an operation may be asked.
type asked struct {
	path      []string                    // its parts; "" takes any
	params    map[int]*openapi3.Parameter // that those are, by their place
	query     map[string]*openapi3.Schema
	needed    []string // of those
	headers   []*openapi3.Parameter
	body      *openapi3.Schema
	required  bool     // the body
	once      bool     // an Idempotency-Key counts
	secret    bool     // and the answer holds a secret
	items     []string // the fields of what it lists, where the caller may choose of them
	operation string
	lines     bool // what it lists can be had a record a line
	others    bool // parameters that are not named may come, from whom nobody here tells what to send
}

// checker holds requests against the OpenAPI document, before a handler sees them: the document
// is the one place that says what a field may be.
type checker map[string][]asked // by method

func newChecker() (checker, error) {
	doc, err := openapi3.NewLoader().LoadFromData(openapi.Document)
	if err != nil {
		return nil, fmt.Errorf("read the OpenAPI document: %w", err)
	}
	c := make(checker)
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			a := asked{path: strings.Split(strings.TrimPrefix(path, "/"), "/"), params: make(map[int]*openapi3.Parameter), query: make(map[string]*openapi3.Schema)}
			a.others, a.operation = op.Extensions["x-other-parameters"] == true, op.OperationID
			a.secret = op.Extensions["x-secret-answer"] == true
			for i, part := range a.path {
				if name, ok := strings.CutPrefix(part, "{"); ok {
					a.path[i], a.params[i] = "", op.Parameters.GetByInAndName(openapi3.ParameterInPath, strings.TrimSuffix(name, "}"))
				}
			}
			for _, p := range op.Parameters {
				switch p.Value.In {
				case openapi3.ParameterInQuery:
					a.query[p.Value.Name] = p.Value.Schema.Value
					if p.Value.Required {
						a.needed = append(a.needed, p.Value.Name)
					}
				case openapi3.ParameterInHeader:
					a.headers = append(a.headers, p.Value)
				}
				a.once = a.once || p.Value.Name == "Idempotency-Key"
			}
			if a.query["fields"] != nil {
				a.items = itemsOf(op)
			}
			if ok := op.Responses.Status(http.StatusOK); ok != nil {
				a.lines = ok.Value.Content[ndjson] != nil
			}
			if op.RequestBody != nil {
				a.body, a.required = op.RequestBody.Value.Content.Get("application/json").Schema.Value, op.RequestBody.Value.Required
				closed(a.body)
			}
			c[method] = append(c[method], a)
		}
	}
	return c, nil
}

// closed has the objects of a schema take no fields but those that it names.
func closed(s *openapi3.Schema) {
	if s.Properties != nil && s.AdditionalProperties.Schema == nil && s.AdditionalProperties.Has == nil {
		s.AdditionalProperties.Has = new(bool)
		for _, p := range s.Properties {
			closed(p.Value)
		}
	}
	if s.Items != nil {
		closed(s.Items.Value)
	}
}

// find returns what may be asked at a path below /api/v1, and how many of its parts are words. Words come before
// parameters, and HEAD is asked as GET is.
func (c checker) find(method, path string) (*asked, int) {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	parts := strings.Split(strings.Trim(path, "/"), "/")
	var found *asked
	words := -1
	for i := range c[method] {
		a := &c[method][i]
		if len(a.path) != len(parts) {
			continue
		}
		n := 0
		for k, want := range a.path {
			if want == parts[k] {
				n++
			} else if want != "" {
				n = -1
				break
			}
		}
		if n > words {
			found, words = a, n
		}
	}
	return found, words
}

// wrong is what is wrong with a request, by field.
func wrong(in string, errs ...apigen.FieldProblem) error {
	code := map[string]string{"body": "bad_body"}[in]
	if code == "" {
		code = "bad_parameter"
	}
	words := make([]string, len(errs))
	for i := range errs {
		errs[i].In = in
		words[i] = strings.TrimPrefix(errs[i].Field+": ", ": ") + errs[i].Detail
	}
	return fielded{problem{http.StatusBadRequest, code, strings.Join(words, "; ") + ".", "The OpenAPI document says what a request may hold."}, errs}
}

// faulty is a bad request by one field, which the sentence is about.
func faulty(in, field, code, sentence, hint string) error {
	return fielded{problem{http.StatusBadRequest, code, sentence, hint}, []apigen.FieldProblem{{In: in, Field: field, Detail: sentence}}}
}

// fielded is a problem that names fields.
type fielded struct {
	problem
	errs []apigen.FieldProblem
}

// elsewhere refuses a method that a route does not have, and names those that it has (RFC 9110,
// section 15.5.6); what is no route goes on.
func (c checker) elsewhere(ctx *fiber.Ctx, path string) error {
	var allowed []string
	closest := 0
	for method := range c {
		switch found, words := c.find(method, path); {
		case found == nil || words < closest:
		case words > closest:
			allowed, closest = []string{method}, words
		default:
			allowed = append(allowed, method)
		}
	}
	if allowed == nil {
		return ctx.Next()
	}
	if slices.Contains(allowed, http.MethodGet) {
		allowed = append(allowed, http.MethodHead)
	}
	slices.Sort(allowed)
	ctx.Set("Allow", strings.Join(allowed, ", "))
	return problem{http.StatusMethodNotAllowed, "no_route", ctx.Method() + " is not allowed here.", "GET /api/v1/openapi.yaml lists the routes and their methods."}
}

// check refuses a request that the document does not describe.
func (s *Server) check(c *fiber.Ctx) error {
	path := strings.TrimPrefix(c.Path(), s.cfg.BasePath+"/api/v1")
	a, _ := s.checks.find(c.Method(), path)
	if a == nil {
		return s.checks.elsewhere(c, path)
	}
	if err := a.checkPath(path); err != nil {
		return err
	}
	if err := s.tenant(c.UserContext(), a, path); err != nil {
		return err
	}
	for _, p := range a.headers {
		if text := c.Get(p.Name); text != "" {
			if detail := of(p.Schema.Value, text); detail != "" {
				return wrong("header", apigen.FieldProblem{Field: p.Name, Detail: detail})
			}
		}
	}
	if err := a.checkQuery(c); err != nil {
		return err
	}
	if a.body != nil {
		if err := a.checkBody(c); err != nil {
			return err
		}
	}
	if a.once {
		return s.once(c, a)
	}
	var wanted []string
	if text := c.Query("fields"); a.items != nil && text != "" {
		var err error
		if wanted, err = a.sparse(text); err != nil {
			return err
		}
		c.Locals(fieldsKey{}, wanted)
	}
	if a.lines && wantsLines(c) {
		return s.asLines(c, wanted)
	}
	if err := c.Next(); err != nil || len(wanted) == 0 {
		return err
	}
	return project(c, wanted)
}

// subject is what the first parameter of a path says.
func (a *asked) subject(path string) string {
	for i, part := range strings.Split(strings.Trim(path, "/"), "/") {
		if a.params[i] != nil {
			text, _ := url.PathUnescape(part) // which was checked
			return text
		}
	}
	return ""
}

func (a *asked) checkPath(path string) error {
	for i, part := range strings.Split(strings.Trim(path, "/"), "/") {
		p := a.params[i]
		if p == nil {
			continue
		}
		text, err := url.PathUnescape(part)
		detail := "it is not percent-encoded"
		if err == nil {
			detail = of(p.Schema.Value, text)
		}
		if detail != "" {
			return wrong("path", apigen.FieldProblem{Field: p.Name, Detail: detail})
		}
	}
	return nil
}

func (a *asked) checkQuery(c *fiber.Ctx) error {
	var errs []apigen.FieldProblem
	seen := make(map[string]bool)
	c.Context().QueryArgs().VisitAll(func(key, value []byte) {
		name := string(key)
		schema, known := a.query[name]
		detail := ""
		switch {
		case !known && a.others:
			return
		case !known:
			detail = "there is no such parameter here"
		case seen[name]:
			detail = "it is given twice"
		default:
			detail = of(schema, string(value))
		}
		if seen[name] = true; detail != "" {
			errs = append(errs, apigen.FieldProblem{Field: name, Detail: detail})
		}
	})
	for _, name := range a.needed {
		if !seen[name] {
			errs = append(errs, apigen.FieldProblem{Field: name, Detail: "it is missing"})
		}
	}
	if len(errs) > 0 {
		return wrong("query", errs...)
	}
	return nil
}

// unkept is of a text that PostgreSQL does not take.
const unkept = "it has a character that cannot be kept"

// of says what is wrong with the text of a parameter, or "".
func of(schema *openapi3.Schema, text string) string {
	if !utf8.ValidString(text) || strings.Contains(text, "\x00") {
		return unkept
	}
	return faults(schema, typed(schema, text))
}

// typed is a parameter as the type that its schema asks, or as the text that it is.
func typed(schema *openapi3.Schema, text string) any {
	switch {
	case schema.Type.Is("integer"), schema.Type.Is("number"):
		if v, err := strconv.ParseFloat(text, 64); err == nil {
			return v
		}
	case schema.Type.Is("boolean"):
		if v, err := strconv.ParseBool(text); err == nil {
			return v
		}
	}
	return text
}

// faults says what is wrong with a value that is no object, or "".
func faults(schema *openapi3.Schema, value any) string {
	for _, p := range problems(schema, value) {
		return p.Detail
	}
	return ""
}

// Times are kept as nanoseconds since 1970 in 64 bits, which are wrong without a word beyond these years.
const firstYear, lastYear = 1700, 2261

// moment takes the times that can be kept.
var moment = openapi3.NewCallbackValidator(func(text string) error {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err == nil && (t.UTC().Year() < firstYear || t.UTC().Year() > lastYear) {
		err = errors.New("it cannot be kept")
	}
	return err
})

func problems(schema *openapi3.Schema, value any) []apigen.FieldProblem {
	err := schema.VisitJSON(value, openapi3.MultiErrors(), openapi3.EnableFormatValidation(), openapi3.WithStringFormatValidator("date-time", moment))
	var out []apigen.FieldProblem
	var walk func(error)
	walk = func(err error) {
		var many openapi3.MultiError
		var one *openapi3.SchemaError
		switch {
		case errors.As(err, &many):
			for _, e := range many {
				walk(e)
			}
		case errors.As(err, &one):
			path, detail := one.JSONPointer(), one.Reason
			if one.SchemaField == "format" {
				detail = "it is no " + one.Schema.Format // the reason is the format's expression
				if one.Schema.Format == "date-time" {
					detail += fmt.Sprintf(" of the years %d to %d", firstYear, lastYear)
				}
			} else if name, ok := strings.CutSuffix(detail, `" is unsupported`); ok {
				path, detail = append(path, strings.TrimPrefix(name, `property "`)), "there is no such field"
			} else if strings.HasSuffix(detail, `" is missing`) {
				detail = "it is missing"
			}
			out = append(out, apigen.FieldProblem{Field: pointed(path), Detail: detail})
		case err != nil:
			out = append(out, apigen.FieldProblem{Detail: err.Error()})
		}
	}
	walk(err)
	slices.SortFunc(out, func(a, b apigen.FieldProblem) int { return strings.Compare(a.Field+a.Detail, b.Field+b.Detail) })
	// One that is wrong in two ways, such as below a minimum that it must not reach either, is told once.
	return slices.CompactFunc(out, func(a, b apigen.FieldProblem) bool { return a.Field == b.Field && a.Field != "" })
}

// pointed writes a path as people do: members[2].name.
func pointed(path []string) string {
	var b strings.Builder
	for _, p := range path {
		if _, err := strconv.Atoi(p); err == nil {
			b.WriteString("[" + p + "]")
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(p)
	}
	return b.String()
}

func (a *asked) checkBody(c *fiber.Ctx) error {
	body := c.Body()
	if len(bytes.TrimSpace(body)) == 0 {
		if a.required {
			return wrong("body", apigen.FieldProblem{Detail: "the request needs a body"})
		}
		c.Request().SetBodyString("{}") // nothing is left to read for the handler otherwise, which would refuse it
		c.Request().Header.SetContentType(fiber.MIMEApplicationJSON)
		return nil
	}
	if kind, _, err := mime.ParseMediaType(c.Get("Content-Type")); err != nil || kind != "application/json" {
		return problem{http.StatusUnsupportedMediaType, "not_json", "The body is not application/json.", "Set Content-Type: application/json."}
	}
	if !utf8.Valid(body) { // which a decoder would quietly make another text of
		return wrong("body", apigen.FieldProblem{Detail: "it is no UTF-8"})
	}
	value, plain, err := decode(body)
	if err != nil {
		return wrong("body", *err)
	}
	if errs := problems(a.body, value); len(errs) > 0 {
		return wrong("body", errs...)
	}
	if !plain {
		text, err := json.Marshal(value)
		if err != nil {
			return err
		}
		c.Request().SetBody(text)
	}
	return nil
}

// decode reads one JSON value in which no name comes twice (RFC 8259, section 4, leaves open
// which would count). It is plain unless a whole number is written as others are, such as 1e3, which
// handlers would not read as one.
func decode(body []byte) (v any, plain bool, bad *apigen.FieldProblem) {
	d := reader{Decoder: json.NewDecoder(bytes.NewReader(body))}
	d.UseNumber()
	if v, bad = d.value(nil); bad != nil {
		return nil, false, bad
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, false, &apigen.FieldProblem{Detail: fmt.Sprintf("there is more behind the JSON value, at byte %d", d.InputOffset())}
	}
	return v, !d.odd, nil
}

type reader struct {
	*json.Decoder
	odd bool // a whole number was written as others are
}

func (d *reader) value(path []string) (any, *apigen.FieldProblem) {
	said := func(detail string) *apigen.FieldProblem {
		return &apigen.FieldProblem{Field: pointed(path), Detail: detail}
	}
	broken := func() *apigen.FieldProblem {
		return said(fmt.Sprintf("the JSON ends or is broken at byte %d", d.InputOffset()))
	}
	if len(path) > maxDepth {
		return nil, &apigen.FieldProblem{Detail: fmt.Sprintf("values lie more than %d deep in one another", maxDepth)}
	}
	token, err := d.Token()
	if err != nil {
		return nil, broken()
	}
	switch token := token.(type) {
	case json.Number:
		f, err := token.Float64()
		if err != nil {
			return nil, said("it is a number that cannot be kept")
		}
		d.odd = d.odd || f == math.Trunc(f) && strings.ContainsAny(token.String(), ".eE")
		return f, nil
	case string:
		if strings.Contains(token, "\x00") {
			return nil, said(unkept)
		}
		return token, nil
	case json.Delim:
		if token == '[' {
			return d.list(path, broken)
		}
		return d.object(path, broken)
	}
	return token, nil
}

func (d *reader) list(path []string, broken func() *apigen.FieldProblem) (any, *apigen.FieldProblem) {
	list := []any{}
	for d.More() {
		v, bad := d.value(append(path, strconv.Itoa(len(list))))
		if bad != nil {
			return nil, bad
		}
		list = append(list, v)
	}
	if _, err := d.Token(); err != nil {
		return nil, broken()
	}
	return list, nil
}

func (d *reader) object(path []string, broken func() *apigen.FieldProblem) (any, *apigen.FieldProblem) {
	object := make(map[string]any)
	for d.More() {
		name, err := d.Token()
		key, ok := name.(string)
		if err != nil || !ok {
			return nil, broken()
		}
		if strings.Contains(key, "\x00") {
			return nil, &apigen.FieldProblem{Field: pointed(path), Detail: "a name in it has a character that cannot be kept"}
		}
		path := append(path, key)
		if _, twice := object[key]; twice {
			return nil, &apigen.FieldProblem{Field: pointed(path), Detail: "it is given twice"}
		}
		v, bad := d.value(path)
		if bad != nil {
			return nil, bad
		}
		object[key] = v
	}
	if _, err := d.Token(); err != nil {
		return nil, broken()
	}
	return object, nil
}

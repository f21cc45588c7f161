package docs

import (
	"bytes"
	"fmt"
	"go/format"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/getkin/kin-openapi/openapi3"
)

// goClient writes package client: what it has written of the document's schemas, and what is still to be written.
type goClient struct {
	doc  *openapi3.T
	done map[string]bool
	todo []string
}

// GoClient is client/api.gen.go: a method for each route of the OpenAPI document that takes and
// answers JSON, and a type for each schema of theirs that package schemas does not have. A field
// that may be left out is a pointer where the document says so (x-go-type-skip-optional-pointer).
func GoClient(spec []byte) ([]byte, error) {
	doc, err := openapi3.NewLoader().LoadFromData(spec)
	if err != nil {
		return nil, fmt.Errorf("read the OpenAPI document: %w", err)
	}
	g := &goClient{doc: doc, done: map[string]bool{"Problem": true}, todo: []string{"Problem"}}
	var methods, types bytes.Buffer
	for _, path := range slices.Sorted(maps.Keys(doc.Paths.Map())) {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete} {
			if op := doc.Paths.Value(path).GetOperation(method); op != nil {
				g.method(&methods, path, method, op)
			}
		}
	}
	for len(g.todo) > 0 {
		name := g.todo[0]
		g.todo = g.todo[1:]
		s := doc.Components.Schemas[name].Value
		comment(&types, name, s.Description)
		fmt.Fprintf(&types, "type %s %s\n\n", name, g.shape(s))
	}
	out, err := format.Source([]byte("// Code generated from schemas/openapi/openapi.yaml by go generate ./internal/docs; DO NOT EDIT.\n\n" +
		"package client\n\nimport (\n\"context\"\n\"iter\"\n\"net/http\"\n\"net/url\"\n\"time\"\n\n\"auspex/schemas\"\n)\n\n" +
		methods.String() + types.String()))
	if err != nil {
		return nil, fmt.Errorf("write the Go client: %w", err)
	}
	return out, nil
}

// comment is a doc comment: a name, and what the document says of it.
func comment(b *bytes.Buffer, name string, said ...string) {
	text := strings.Join(strings.Fields(strings.Join(said, " ")), " ")
	if text == "" {
		text = "as the document has it"
	}
	line := "//"
	for word := range strings.FieldsSeq(name + ": " + strings.TrimSuffix(text, ".") + ".") {
		if len(line)+len(word) > 118 {
			b.WriteString(line + "\n")
			line = "//"
		}
		line += " " + word
	}
	b.WriteString(line + "\n")
}

// answer is a type of a success, with the statuses that it comes with.
type answer struct {
	typ, status string
	schema      *openapi3.Schema
}

func (g *goClient) method(b *bytes.Buffer, path, method string, op *openapi3.Operation) {
	var answers []answer
	succeeds := false
	for _, code := range slices.Sorted(maps.Keys(op.Responses.Map())) {
		if code[0] != '2' {
			continue
		}
		succeeds = true
		if content := op.Responses.Value(code).Value.Content; len(content) > 0 {
			m := content.Get("application/json")
			if m == nil {
				return // a stream
			}
			if !slices.ContainsFunc(answers, func(a answer) bool { return a.schema == m.Schema.Value }) {
				answers = append(answers, answer{schema: m.Schema.Value, status: code})
				if m.Schema.Value.Properties["next"] == nil || len(m.Schema.Value.Properties) > 2 {
					answers[len(answers)-1].typ = strings.TrimPrefix(g.typ(m.Schema), "*")
				}
			}
		}
	}
	if !succeeds {
		return // it sends a browser elsewhere
	}
	name := goName(op.OperationID)
	args, request := []string{"ctx context.Context"}, fmt.Sprintf("Method: http.Method%s", method[:1]+strings.ToLower(method[1:]))
	route := strconv.Quote(strings.TrimPrefix(path, "/"))
	var query []*openapi3.Parameter
	for _, p := range op.Parameters {
		switch {
		case p.Value.In == openapi3.ParameterInPath:
			args = append(args, p.Value.Name+" string")
			route = strings.Replace(route, "{"+p.Value.Name+"}", `"+url.PathEscape(`+p.Value.Name+`)+"`, 1)
		case p.Value.In == openapi3.ParameterInQuery:
			query = append(query, p.Value)
		case p.Value.Name == "Idempotency-Key":
			request += ", Once: true"
		}
	}
	request += ", Path: " + strings.TrimSuffix(route, `+""`)
	if op.RequestBody != nil {
		typ := g.typ(op.RequestBody.Value.Content.Get("application/json").Schema)
		if !op.RequestBody.Value.Required {
			typ = "*" + typ
			request += ", Body: given(body)"
		} else {
			request += ", Body: body"
		}
		args = append(args, "body "+typ)
	}
	if len(query) > 0 {
		params := name + "Params"
		fmt.Fprintf(b, "// %s are the parameters of [Client.%s]; what is zero is not sent.\ntype %s struct {\n", params, name, params)
		var set bytes.Buffer
		for _, p := range query {
			field := goName(p.Name)
			typ := g.typ(p.Schema)
			if p.Schema.Value.Type.Is("boolean") {
				typ = "*bool"
			}
			said := p.Description
			if len(p.Schema.Value.Enum) > 0 {
				said = strings.TrimPrefix(said+"; one of "+enum(p.Schema.Value), "; ")
			}
			if said != "" {
				said = " // " + strings.Join(strings.Fields(said), " ")
			}
			fmt.Fprintf(b, "%s %s%s\n", field, typ, said)
			fmt.Fprintf(&set, "ask(q, %q, p.%s)\n", p.Name, field)
		}
		fmt.Fprintf(b, "}\n\nfunc (p *%s) query() url.Values {\nq := url.Values{}\n%sreturn q\n}\n\n", params, set.String())
		args = append(args, "params "+params)
		request += ", Query: params.query()"
	}
	args = append(args, "opts ...Option")
	head := func(name, results string) {
		comment(b, name, op.Summary+".", op.Description)
		fmt.Fprintf(b, "func (c *Client) %s(%s) %s {\n", name, strings.Join(args, ", "), results)
	}
	page := ""
	if len(answers) == 1 && answers[0].schema.Properties["next"] != nil {
		page = g.typ(answers[0].schema.Properties["items"].Value.Items)
	}
	if page != "" {
		head(name, "iter.Seq2["+page+", error]")
		fmt.Fprintf(b, "return all[%s](ctx, c, Request{%s}, opts)\n}\n\n", page, request)
		if answers[0].typ == "" {
			return
		}
		name += "Page" // that has more than its items
	}
	switch len(answers) {
	case 0:
		head(name, "error")
		fmt.Fprintf(b, "return c.Do(ctx, Request{%s}.with(opts), nil)\n}\n\n", request)
	case 1:
		head(name, "("+answers[0].typ+", error)")
		fmt.Fprintf(b, "return one[%s](ctx, c, Request{%s}, opts)\n}\n\n", answers[0].typ, request)
	default: // one of two, by the status
		head(name, fmt.Sprintf("(*%s, *%s, error)", answers[0].typ, answers[1].typ))
		fmt.Fprintf(b, "return either[%s, %s](ctx, c, Request{%s}, opts, %s)\n}\n\n", answers[0].typ, answers[1].typ, request, answers[0].status)
	}
}

func enum(s *openapi3.Schema) string {
	var all []string
	for _, v := range s.Enum {
		if v != nil {
			all = append(all, fmt.Sprint(v))
		}
	}
	return strings.Join(all, ", ")
}

// shape is a schema written out.
func (g *goClient) shape(s *openapi3.Schema) string {
	var b strings.Builder
	b.WriteString("struct {\n")
	for _, field := range slices.Sorted(maps.Keys(s.Properties)) {
		r := s.Properties[field]
		name, typ, tag := goName(field), g.typ(r), field
		if given, ok := r.Extensions["x-go-name"].(string); ok {
			name = given
		} else if given, ok := r.Value.Extensions["x-go-name"].(string); ok && r.Ref == "" {
			name = given
		}
		may := !slices.Contains(s.Required, field)
		skip, said := r.Value.Extensions["x-go-type-skip-optional-pointer"].(bool)
		composed := strings.HasPrefix(typ, "[]") || strings.HasPrefix(typ, "map[") || strings.HasPrefix(typ, "*")
		if !composed && (r.Value.Nullable || may && (said && !skip || r.Ref != "")) {
			typ = "*" + typ
		}
		if may {
			tag += ",omitzero"
		}
		what := r.Value.Description
		if r.Ref != "" {
			what = ""
		}
		if len(r.Value.Enum) > 0 {
			what = strings.TrimPrefix(what+"; one of "+enum(r.Value), "; ")
		}
		if what != "" {
			what = " // " + strings.Join(strings.Fields(what), " ")
		}
		fmt.Fprintf(&b, "%s %s `json:%q`%s\n", name, typ, tag, what)
	}
	b.WriteString("}")
	return b.String()
}

// typ is the type of a schema.
func (g *goClient) typ(r *openapi3.SchemaRef) string {
	if r == nil || r.Value == nil {
		return "any"
	}
	s := r.Value
	given, _ := s.Extensions["x-go-type"].(string)
	switch {
	case strings.HasPrefix(given, "*"):
		if name := given[1:]; !strings.Contains(name, ".") {
			g.want(name)
		}
		return given
	case given != "" && !strings.HasPrefix(given, "enrol."): // which is internal
		return given
	case r.Ref != "":
		name := r.Ref[strings.LastIndexByte(r.Ref, '/')+1:]
		g.want(name)
		return name
	case len(s.AllOf) == 1:
		return g.typ(s.AllOf[0])
	case s.Type.Is("string") && s.Format == "date-time":
		return "time.Time"
	case s.Type.Is("string"):
		return "string"
	case s.Type.Is("integer") && s.Format == "int64":
		return "int64"
	case s.Type.Is("integer"):
		return "int"
	case s.Type.Is("number"):
		return "float64"
	case s.Type.Is("boolean"):
		return "bool"
	case s.Type.Is("array"):
		return "[]" + g.typ(s.Items)
	case s.AdditionalProperties.Schema != nil:
		return "map[string]" + g.typ(s.AdditionalProperties.Schema)
	case s.Properties != nil:
		return g.shape(s)
	case s.Type.Is("object"):
		return "map[string]any"
	}
	return "any"
}

func (g *goClient) want(name string) {
	if !g.done[name] {
		g.done[name] = true
		g.todo = append(g.todo, name)
	}
}

// initialisms are words that Go writes in one case.
var initialisms = map[string]string{
	"id": "ID", "ids": "IDs", "gpu": "GPU", "gpus": "GPUs", "ip": "IP", "ipmi": "IPMI", "url": "URL", "uuid": "UUID", "pci": "PCI", "bios": "BIOS", "raid": "RAID",
	"cuda": "CUDA", "mac": "MAC", "gb": "GB", "kw": "KW", "bmc": "BMC", "eta": "ETA", "rpm": "RPM", "psus": "PSUs", "psu": "PSU", "oidc": "OIDC", "tls": "TLS",
}

// goName turns server_id and createJoinToken into ServerID and CreateJoinToken.
func goName(name string) string {
	var b strings.Builder
	for _, word := range strings.FieldsFunc(snake(name), func(r rune) bool { return r == '_' || r == '-' || r == '.' }) {
		if known, ok := initialisms[word]; ok {
			b.WriteString(known)
			continue
		}
		runes := []rune(word)
		runes[0] = unicode.ToUpper(runes[0])
		b.WriteString(string(runes))
	}
	return b.String()
}

package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/gofiber/fiber/v2"

	"auspex/api/apigen"
	"auspex/internal/nearest"
)

// itemsOf are the names of the fields of the items that an operation lists, as the document has
// them; none where it lists nothing.
func itemsOf(op *openapi3.Operation) []string {
	ok := op.Responses.Status(http.StatusOK)
	if ok == nil || ok.Value.Content.Get("application/json") == nil {
		return nil
	}
	items := ok.Value.Content.Get("application/json").Schema.Value.Properties["items"]
	if items == nil || items.Value.Items == nil {
		return nil
	}
	var names []string
	for name := range items.Value.Items.Value.Properties {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// sparse reads which fields of items a caller wants, and names those that there are not.
func (a *asked) sparse(text string) ([]string, error) {
	var errs []apigen.FieldProblem
	wanted := strings.Split(text, ",")
	for i, name := range wanted {
		name = strings.TrimSpace(name)
		wanted[i] = name
		if slices.Contains(a.items, name) {
			continue
		}
		detail := fmt.Sprintf("items have no field %q", name)
		if like := nearest.Words(name, slices.Values(a.items), 1); len(like) > 0 {
			detail += "; there is " + like[0]
		}
		errs = append(errs, apigen.FieldProblem{Field: "fields", Detail: detail})
	}
	if len(errs) > 0 {
		return nil, wrong("query", errs...)
	}
	return wanted, nil
}

// fieldsKey is where a request keeps which fields of items its caller wants, for a list that is
// sent as lines.
type fieldsKey struct{}

// project leaves of the items of an answer the fields that are wanted. A list of lines has done
// that itself: it must not be read as a whole.
func project(c *fiber.Ctx, wanted []string) error {
	res := c.Response()
	if res.StatusCode() != http.StatusOK || res.IsBodyStream() || len(res.Body()) == 0 {
		return nil
	}
	var list map[string]json.RawMessage
	var items []json.RawMessage
	if err := json.Unmarshal(res.Body(), &list); err != nil {
		return fmt.Errorf("read a list for its fields: %w", err)
	}
	if err := json.Unmarshal(list["items"], &items); err != nil {
		return fmt.Errorf("read the items of a list for their fields: %w", err)
	}
	var b bytes.Buffer
	b.WriteByte('[')
	for i, item := range items {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := projectItem(&b, item, wanted); err != nil {
			return err
		}
	}
	b.WriteByte(']')
	list["items"] = b.Bytes()
	return c.JSON(list)
}

// projectItem writes those fields of an item that are wanted, each once.
func projectItem(b *bytes.Buffer, item []byte, wanted []string) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(item, &fields); err != nil {
		return fmt.Errorf("read an item for its fields: %w", err)
	}
	b.WriteByte('{')
	some := false
	for k, name := range wanted {
		v, there := fields[name]
		if !there || slices.Contains(wanted[:k], name) {
			continue
		}
		if some {
			b.WriteByte(',')
		}
		some = true
		b.WriteByte('"')
		b.WriteString(name)
		b.WriteString(`":`)
		b.Write(v)
	}
	b.WriteByte('}')
	return nil
}

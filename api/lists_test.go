package api_test

import (
	"cmp"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"auspex/api/access"
	"auspex/internal/store/conflicts"
	"auspex/schemas"
	"auspex/schemas/openapi"
)

// Each list comes in pages, of which a caller may choose the fields; where it can be sorted, each order
// holds over its pages, both ways, and loses and repeats nothing.
func TestListsAreSortedOverTheirPages(t *testing.T) {
	w, _, _ := tenants(t)
	for _, server := range []string{"gpu-r01-05", "gpu-r01-06"} {
		w.validates(t, server)
		w.send(t, http.MethodPost, "api/v1/servers/"+server+"/power", access.RoleAdmin, body(`{"action":"nmi"}`))
	}
	for k, name := range []string{"Beta", "alpha"} { // small and large letters are sorted alike
		w.send(t, http.MethodPost, "api/v1/pools", access.RoleAdmin, body(`{"name":"`+name+`"}`))
		w.send(t, http.MethodPost, "api/v1/webhooks", access.RoleAdmin, body(strings.Replace(newHook, "chat", name, 1)))
		w.send(t, http.MethodPost, "api/v1/quotas", access.RoleAdmin, body(`{"pool":"`+name+`","max_gpus":9}`))
		w.send(t, http.MethodPost, "api/v1/reservations", access.RoleAdmin, body(fmt.Sprintf(`{"name":%q,"team":"red","pool":"default","gpus":1,"end_time":"209%d-01-01T00:00:00Z"}`, name, k)))
	}
	for _, name := range []string{"beta", "alpha"} {
		w.send(t, http.MethodPost, "api/v1/templates", access.RoleAdmin, body(strings.Replace(newTemplate, "plain", name, 1)))
	}
	w.proposesEdges(t)
	w.twoOfEach(t)
	judge(t, w, 7)
	doc, err := openapi3.NewLoader().LoadFromData(openapi.Document)
	if err != nil {
		t.Fatal(err)
	}
	// Lists of few, which come as a whole or by numbers of their own.
	whole := []string{"getDiscovery", "listServerConfigs", "listServerValidations", "listServerWipes", "listGPUConfigs", "search", "listServerGPUs", "listUserAllocations"}
	sorted := 0
	for path, item := range doc.Paths.Map() {
		op := item.Get
		if op == nil || strings.Contains(path, "{") || slices.Contains(whole, op.OperationID) {
			continue
		}
		ok := op.Responses.Value("200")
		if ok == nil || ok.Value.Content["application/json"] == nil || ok.Value.Content["application/json"].Schema.Value.Properties["next"] == nil {
			continue
		}
		for _, name := range []string{"after", "limit"} {
			if op.Parameters.GetByInAndName("query", name) == nil {
				t.Errorf("%s has no %s", op.OperationID, name)
			}
		}
		if op.Parameters.GetByInAndName("query", "fields") == nil && op.OperationID != "listAudit" {
			t.Errorf("%s has no fields", op.OperationID)
		}
		by := op.Parameters.GetByInAndName("query", "sort")
		if by == nil {
			t.Errorf("%s cannot be sorted", op.OperationID)
			continue
		}
		for _, order := range by.Schema.Value.Enum {
			sorted++
			w.holds(t, op.OperationID, path, order.(string))
		}
		a := w.send(t, http.MethodGet, "api/v1"+path+"?limit=1&sort="+url.QueryEscape(by.Schema.Value.Enum[0].(string)), access.RoleAdmin, nil)
		var page struct{ Next string }
		if err := json.Unmarshal(a.body, &page); err != nil {
			t.Fatal(err)
		}
		if page.Next == "" {
			t.Errorf("%s has no second page", op.OperationID)
			continue
		}
		other := by.Schema.Value.Enum[1].(string)
		if a := w.send(t, http.MethodGet, "api/v1"+path+"?sort="+url.QueryEscape(other)+"&after="+url.QueryEscape(page.Next), access.RoleAdmin, nil); a.status != http.StatusBadRequest ||
			a.problem(t).Code != "bad_cursor" || !strings.Contains(a.problem(t).Detail, "sorted by") {
			t.Errorf("%s with a cursor of another order: %d %s", op.OperationID, a.status, a.body)
		}
	}
	if sorted < 112 {
		t.Errorf("%d orders only", sorted)
	}
}

// twoOfEach makes two of what lists are of that a fleet does not have by itself.
func (w *world) twoOfEach(t *testing.T) {
	t.Helper()
	for k, name := range []string{"gpu-r01-05", "gpu-r01-06"} {
		for path, text := range map[string]string{
			"grants":      fmt.Sprintf(`{"user":"li","pool":%q,"role":"operator"}`, []string{"alpha", "Beta"}[k]),
			"join-tokens": fmt.Sprintf(`{"name":%q}`, name),
			"maintenance": fmt.Sprintf(`{"resources":[%q],"duration_seconds":%d,"reason":"x"}`, name, 3600-k),
			"discoveries": fmt.Sprintf(`{"ranges":["10.0.0.%d/32"]}`, k+1),
		} {
			if a := w.send(t, http.MethodPost, "api/v1/"+path, access.RoleAdmin, body(text)); a.status/100 != 2 {
				t.Fatalf("%s: %d %s", path, a.status, a.body)
			}
		}
		_, err := w.db.ExecContext(t.Context(), `INSERT INTO join_machines (key, token, server, serial, uuid, hostname, address, joined_ns, seen_ns) VALUES ($1, $2, '', '', '', '', '', $3, $4)`, name, name, 5-k, k+1)
		if err == nil {
			_, err = w.db.ExecContext(t.Context(), `INSERT INTO enrol_proposals (id, subject, machine, state, first_ns, doc) VALUES ($1, $1, '', 'open', $2, $3)`,
				name, 5-k, fmt.Sprintf(`{"id":%q,"server":%q}`, name, name))
		}
		if err == nil {
			_, err = w.db.ExecContext(t.Context(), `INSERT INTO enrol_agents (subject, server, machine, token, address, version, refused, refused_ns, read_ns) VALUES ($1, '', $1, '', '', '', 'no serial number', $2, $3)`,
				name, 5-k, k+1)
		}
		if err == nil {
			err = w.db.InTx(t.Context(), func(tx *sql.Tx) error {
				_, err := conflicts.Seen(t.Context(), tx, time.Unix(int64(5-k), 0), schemas.Conflict{
					Kind: schemas.ConflictTwoSources, Resource: name, Field: "serial", Left: schemas.ConflictSide{Source: "a", Value: "1"}, Right: schemas.ConflictSide{Source: "b", Value: "2"},
				})
				return err
			})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// holds reads a list in an order, in pages of three and as a whole.
func (w *world) holds(t *testing.T, id, path, order string) {
	t.Helper()
	type row map[string]any
	list := func(limit int) (all []row) {
		after := ""
		for range 2000 {
			a := w.send(t, http.MethodGet, fmt.Sprintf("api/v1%s?limit=%d&sort=%s&after=%s", path, limit, url.QueryEscape(order), url.QueryEscape(after)), access.RoleAdmin, nil)
			var page struct {
				Items []row
				Next  string
			}
			if a.status != http.StatusOK {
				t.Fatalf("%s by %s: %d %s", id, order, a.status, a.body)
			}
			if err := json.Unmarshal(a.body, &page); err != nil {
				t.Fatal(err)
			}
			all = append(all, page.Items...)
			if after = page.Next; after == "" {
				return all
			}
		}
		t.Fatalf("%s by %s has no end", id, order)
		return nil
	}
	rows := list(1000)
	for page := 3; page < len(rows) && len(rows) < 200; page += len(rows) {
		if parts := list(page); fmt.Sprint(names(parts)) != fmt.Sprint(names(rows)) {
			t.Errorf("%s by %s: %v in pages, %v as a whole", id, order, names(parts), names(rows))
		}
	}
	if len(rows) < 2 || names(rows)[0] == nil {
		t.Errorf("%s by %s has %d rows: %v", id, order, len(rows), names(rows))
	}
	field, down := strings.CutPrefix(order, "-")
	for k := 1; k < len(rows); k++ {
		c := compare(rows[k-1][field], rows[k][field])
		if down {
			c = -c
		}
		if c > 0 {
			t.Errorf("%s by %s: %v before %v", id, order, rows[k-1][field], rows[k][field])
		}
	}
}

func names[R ~map[string]any](rows []R) (out []any) {
	for _, r := range rows {
		out = append(out, cmp.Or(r["id"], r["name"], r["incident"], r["fault"], r["key"], r["seq"], r["server"], r["machine"]))
	}
	return out
}

// compare is the order of two values of a field; times are texts of one form.
func compare(a, b any) int {
	switch x := a.(type) {
	case float64:
		y, _ := b.(float64)
		return cmp.Compare(x, y)
	case string:
		y, _ := b.(string)
		return strings.Compare(strings.ToLower(x), strings.ToLower(y))
	}
	return 0
}

package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"

	"auspex/api"
	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/store/records"
	"auspex/schemas"
	"auspex/schemas/openapi"
)

func asLines(r *http.Request) { r.Header.Set("Accept", "application/x-ndjson") }

// Each list that comes in pages can be had as lines: the same records, and all of them. No record has
// the field that tells of an error.
func TestEveryListCanBeHadAsLines(t *testing.T) {
	w, ids := rightsWorld(t)
	doc, err := openapi3.NewLoader().LoadFromData(openapi.Document)
	if err != nil {
		t.Fatal(err)
	}
	fill := strings.NewReplacer("/webhooks/{id}", "/webhooks/chat", "/templates/{id}", "/templates/plain", "/users/{id}", "/users/li", "/incidents/{id}", "/incidents/i-1042", "/gpus/{id}", "/gpus/"+ids["gpu"][0], "{id}", ids["server"][0])
	lists := 0
	for path, item := range doc.Paths.Map() {
		op := item.Get
		if op == nil || op.Responses.Status(http.StatusOK) == nil || !strings.HasPrefix(op.OperationID, "list") {
			continue
		}
		content := op.Responses.Status(http.StatusOK).Value.Content
		if content["application/x-ndjson"] == nil {
			t.Errorf("%s has no lines", op.OperationID)
			continue
		}
		lists++
		if content["application/json"].Schema.Value.Properties["items"].Value.Items.Value.Properties["problem"] != nil {
			t.Errorf("records of %s have a field problem", op.OperationID)
		}
		path = "api/v1" + fill.Replace(path)
		var want, got []any
		for after := ""; ; {
			a := w.send(t, http.MethodGet, path+"?limit=1000&after="+after, access.RoleAdmin, nil)
			var page struct {
				Items []any
				Next  any
			}
			if err := json.Unmarshal(a.body, &page); err != nil || a.status != http.StatusOK {
				t.Fatalf("%s: %d %s", path, a.status, a.body)
			}
			want = append(want, page.Items...)
			if next, ok := page.Next.(string); !ok || next == "" {
				break
			} else {
				after = next
			}
		}
		a := w.send(t, http.MethodGet, path+"?limit=3", access.RoleAdmin, asLines)
		for line := range bytes.Lines(a.body) {
			var v any
			if err := json.Unmarshal(line, &v); err != nil {
				t.Fatalf("%s: %s: %v", path, line, err)
			}
			got = append(got, v)
		}
		if a.status != http.StatusOK || a.header.Get("Content-Type") != "application/x-ndjson" || len(got) != len(want) {
			t.Errorf("%s: %d %s, %d lines of %d records, the last %v", path, a.status, a.header.Get("Content-Type"), len(got), len(want), got[max(0, len(got)-1):])
		} else if op.OperationID != "listTokens" && op.OperationID != "listServers" { // of which the last use, and the age of a state, go on
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s: %.500s", path, d)
			}
		}
	}
	if lists < 30 {
		t.Errorf("%d lists", lists)
	}
	a := w.send(t, http.MethodGet, "api/v1/alerts?fields=id,status&server=gpu-r01-01", access.RoleAdmin, asLines)
	for line := range bytes.Lines(a.body) {
		var v map[string]any
		if err := json.Unmarshal(line, &v); err != nil || len(v) != 2 || v["id"] == nil {
			t.Fatalf("%s %v", line, err)
		}
	}
	refusal(t, "who may not", w.send(t, http.MethodGet, "api/v1/tokens", access.RoleViewer, asLines), http.StatusForbidden, "no_permission", "")
	refusal(t, "a cursor that is none", w.send(t, http.MethodGet, "api/v1/alerts?after=x", access.RoleViewer, asLines), http.StatusBadRequest, "bad_cursor", "after")
}

// worn is records of which a second page cannot be read.
type worn struct{ api.Records }

func (w worn) Alerts(ctx context.Context, f records.Filter) ([]schemas.Alert, string, error) {
	if f.After != "" {
		return nil, "", errors.New("the disk is gone")
	}
	f.Limit = 3
	return w.Records.Alerts(ctx, f)
}

// An error in the middle of a list of lines is its last line, which no record looks like.
func TestAnErrorIsTheLastLine(t *testing.T) {
	w := start(t, true, func(_ *api.Config, d *api.Deps) { d.Records = worn{d.Records} })
	for _, query := range []string{"", "?fields=id"} {
		a := w.send(t, http.MethodGet, "api/v1/alerts"+query, access.RoleViewer, asLines)
		lines := slices.Collect(bytes.Lines(a.body))
		if a.status != http.StatusOK || len(lines) != 4 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		var last struct{ Problem *apigen.Problem }
		if err := json.Unmarshal(lines[3], &last); err != nil || last.Problem == nil || last.Problem.Status != http.StatusInternalServerError || last.Problem.Code != "internal" {
			t.Errorf("%s %v", lines[3], err)
		}
		if bytes.Contains(a.body, []byte("disk")) {
			t.Errorf("the reason is told: %s", a.body)
		}
	}
	if n := metric(t, w, "auspex_api_lines_broken_total", "", ""); n != 2 {
		t.Errorf("counted %g", n)
	}
}

package api_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/schemas"
)

const newHook = `{"name":"chat","url":"https://example.com/hook","secret":"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}`

func TestWebhooksAreMadeChangedAndTriedAndNeverShowTheirSecret(t *testing.T) {
	w := start(t, false)
	secret := func(a answer) {
		t.Helper()
		if strings.Contains(string(a.body), "MfKQ9r8") {
			t.Errorf("the secret is shown: %s", a.body)
		}
	}
	for _, role := range []string{access.RoleViewer, access.RoleOperator} {
		for _, path := range []string{"webhooks", "webhooks/chat", "webhooks/chat/deliveries"} {
			if a := w.send(t, http.MethodGet, "api/v1/"+path, role, nil); a.status != http.StatusForbidden {
				t.Errorf("%s GET %s: %d", role, path, a.status)
			}
		}
	}
	a := w.send(t, http.MethodPost, "api/v1/webhooks", access.RoleAdmin, body(newHook))
	if secret(a); a.status != http.StatusCreated || a.header.Get("ETag") != `"1"` {
		t.Fatalf("%d %s", a.status, a.body)
	}
	var made schemas.Webhook
	if err := json.Unmarshal(a.body, &made); err != nil || !made.Active || !strings.HasSuffix(a.header.Get("Location"), "/webhooks/"+made.ID) {
		t.Errorf("%+v %v %s", made, err, a.header.Get("Location"))
	}
	for _, tc := range []struct {
		name, method, path, text string
		status                   int
		code, field              string
	}{
		{"in the clear", http.MethodPost, "webhooks", strings.Replace(newHook, "https", "http", 1), 400, "bad_body", "url"},
		{"a password", http.MethodPost, "webhooks", strings.Replace(newHook, "https://", "https://u:MfKQ9r8@", 1), 400, "bad_body", "url"},
		{"a secret that is none", http.MethodPost, "webhooks", strings.Replace(newHook, "whsec_", "", 1), 400, "bad_body", "secret"},
		{"no secret", http.MethodPost, "webhooks", `{"name":"x","url":"https://example.com"}`, 400, "bad_body", "secret"},
		{"a topic of nobody", http.MethodPut, "webhooks/chat", `{"topics":["ALL"]}`, 400, "bad_body", "topics"},
		{"a name twice", http.MethodPost, "webhooks", strings.Replace(newHook, "chat", "CHAT", 1), 409, "name_taken", "name"},
		{"nobody", http.MethodPost, "webhooks/nobody/test", ``, 404, "not_found", ""},
	} {
		a := w.send(t, tc.method, "api/v1/"+tc.path, access.RoleAdmin, body(tc.text))
		secret(a)
		var p apigen.Problem
		if err := json.Unmarshal(a.body, &p); err != nil || a.status != tc.status || p.Code != tc.code ||
			tc.field != "" && (len(p.Errors) != 1 || p.Errors[0].Field != tc.field) {
			t.Errorf("%s: %d %s", tc.name, a.status, a.body)
		}
	}
	a = w.send(t, http.MethodPost, "api/v1/webhooks/chat/test", access.RoleAdmin, nil)
	var d schemas.Delivery
	if err := json.Unmarshal(a.body, &d); err != nil || a.status != http.StatusAccepted || d.State != schemas.DeliveryPending {
		t.Errorf("%d %s", a.status, a.body)
	}
	a = w.send(t, http.MethodGet, "api/v1/webhooks/chat/deliveries?state=pending", access.RoleAdmin, nil)
	var sent apigen.DeliveryList
	if err := json.Unmarshal(a.body, &sent); err != nil || len(sent.Items) != 1 || sent.Items[0].ID != d.ID {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := w.send(t, http.MethodGet, "api/v1/webhooks/chat/deliveries?after=x", access.RoleAdmin, nil); a.status != http.StatusBadRequest {
		t.Errorf("%d %s", a.status, a.body)
	}
	a = w.send(t, http.MethodPut, "api/v1/webhooks/chat", access.RoleAdmin, func(r *http.Request) {
		body(`{"active":false,"secret":"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSx"}`)(r)
		r.Header.Set("If-Match", `"1"`)
	})
	if secret(a); a.status != http.StatusOK || a.header.Get("ETag") != `"2"` {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := w.send(t, http.MethodPost, "api/v1/webhooks/chat/test", access.RoleAdmin, nil); a.status != http.StatusConflict {
		t.Errorf("a test of one that is not active: %d %s", a.status, a.body)
	}
	for _, path := range []string{"webhooks", "webhooks/" + made.ID, "audit"} {
		a := w.send(t, http.MethodGet, "api/v1/"+path, access.RoleAdmin, nil)
		if secret(a); a.status != http.StatusOK {
			t.Errorf("%s: %d", path, a.status)
		}
	}
	if a := w.send(t, http.MethodDelete, "api/v1/webhooks/chat", access.RoleAdmin, nil); a.status != http.StatusNoContent {
		t.Errorf("%d %s", a.status, a.body)
	}
}

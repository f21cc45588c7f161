package main

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

// asker asks the API of a product that runs, with a token.
type asker struct{ url, token string }

// caller returns what sends a request to a path below api/v1 and reads the answer into out.
func (c asker) caller(t *testing.T) func(method, path, body string, out any) {
	return func(method, path, body string, out any) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, c.url+"api/v1/"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+c.token)
		req.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		if res.StatusCode >= 300 {
			t.Fatalf("%s %s: %d %s", method, path, res.StatusCode, text)
		}
		if err := json.Unmarshal(text, out); err != nil {
			t.Fatal(err)
		}
	}
}

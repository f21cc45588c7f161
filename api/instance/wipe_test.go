package instance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"auspex/internal/wipe"
	"auspex/schemas"
)

// A workflow that wipes is known by its token alone, and hears what its report comes to. Nobody else is told that there is
// such a thing.
func TestAWorkflowTellsWhatItFoundOfDrives(t *testing.T) {
	f := newFleet()
	s := f.server(t, nil)
	post := func(from, token, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodPost, wipe.Path, strings.NewReader(body))
		r.RemoteAddr = from + ":40000"
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w
	}
	const good = `{"drives": [{"device": "/dev/sda", "size_bytes": 8192}]}`
	if w := post("127.0.0.1", "w1pe", good); w.Code != http.StatusUnauthorized {
		t.Errorf("nobody takes reports: %d", w.Code)
	}
	var kept []wipe.Report
	var away error
	s.deps.Wiping = func(_ context.Context, token string) (func(context.Context, *wipe.Report) (schemas.Wipe, error), error) {
		if token != "w1pe" {
			return nil, fmt.Errorf("a token: %w", ErrUnknown)
		}
		return func(_ context.Context, r *wipe.Report) (w schemas.Wipe, err error) {
			if away != nil {
				return w, away
			}
			kept, w.ID = append(kept, *r), "a"
			w.Drives, w.Proven, err = wipe.Judge(r, nil)
			return w, err
		}, nil
	}
	w := post("203.0.113.9", "w1pe", good) // wherever its address is
	var a wipe.Answer
	if err := json.Unmarshal(w.Body.Bytes(), &a); w.Code != http.StatusOK || err != nil || a.ID != "a" || a.Proven || len(a.Drives) != 1 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	// The address of a server, and its own token, do not say that its drives are wiped.
	for _, tc := range []struct {
		from, token, body string
		code              int
		said              string
	}{
		{"127.0.0.1", "", good, http.StatusMethodNotAllowed, ""},
		{"203.0.113.9", "", good, http.StatusNotFound, ""},
		{"127.0.0.1", "t0k3n", good, http.StatusUnauthorized, ""},
		{"203.0.113.9", "other", "{", http.StatusUnauthorized, ""},
		{"203.0.113.9", "w1pe", "{", http.StatusBadRequest, "no report of drives: unexpected EOF"},
		{"203.0.113.9", "w1pe", `{"proven": true}`, http.StatusBadRequest, `unknown field "proven"`},
		{"203.0.113.9", "w1pe", `{"drives": [{"device": "/dev/sda", "ata": "AQ=="}]}`, http.StatusBadRequest, "/dev/sda: no report of drives: 01 is no ATA Status Return"},
		{"203.0.113.9", "w1pe", `{"drives": [{"device": "` + strings.Repeat("x", wipe.MaxReport) + `"}]}`, http.StatusBadRequest, "too large"},
	} {
		if w := post(tc.from, tc.token, tc.body); w.Code != tc.code || !strings.Contains(w.Body.String(), tc.said) {
			t.Errorf("%s %q %.40s: %d %s", tc.from, tc.token, tc.body, w.Code, w.Body)
		}
	}
	if len(kept) != 2 { // the good one, and one that was judged
		t.Errorf("kept: %+v", kept)
	}
	away = errors.New("the store is away")
	if w := post("203.0.113.9", "w1pe", good); w.Code != http.StatusServiceUnavailable || strings.Contains(w.Body.String(), "store") || strings.Contains(f.log.String(), "w1pe") {
		t.Errorf("%d %s %s", w.Code, w.Body, f.log.String())
	}
}

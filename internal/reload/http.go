package reload

import (
	"encoding/json"
	"errors"
	"net/http"
)

// ServeHTTP reloads and says what came of it; a failure is a problem document
// (RFC 9457). Who may ask is for the server to say that mounts it.
func (m *Manager[C]) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	report, err := m.Reload(r.Context())
	if err == nil {
		answer(w, http.StatusOK, "application/json", report)
		return
	}
	p := problem{
		Type: "about:blank", Status: http.StatusUnprocessableEntity, Detail: err.Error(), Code: "bad_configuration",
		Hint: "The previous configuration stays in force. `auspex config check` reads the same files.",
	}
	switch {
	case errors.Is(err, ErrStarting):
		p.Status, p.Code, p.Hint = http.StatusServiceUnavailable, "starting", "GET /-/ready says when."
	case len(report.Read) > 0:
		p.Status, p.Code, p.Hint = http.StatusInternalServerError, "partly_reloaded", "Reload again, or restart."
	}
	p.Title = http.StatusText(p.Status)
	answer(w, p.Status, "application/problem+json", p)
}

type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Code   string `json:"code"`
	Hint   string `json:"hint"`
}

func answer(w http.ResponseWriter, status int, kind string, v any) {
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

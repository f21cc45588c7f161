package instance

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"auspex/api/limit"
	"auspex/internal/wipe"
	"auspex/schemas"
)

// wipe takes what a workflow found of the drives of its server, and reports whether the request is of one. It is known by the
// token of the workflow alone: by its address, or its own token, a server that is to be wiped could say that it was.
func (s *Server) wipe(w http.ResponseWriter, r *http.Request) bool {
	token, given := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if r.Method != http.MethodPost || r.URL.Path != wipe.Path || !given || s.deps.Wiping == nil {
		return false
	}
	from, plain := s.source(r)
	if ok, _ := s.rate.Allow(limit.Source(from), s.deps.Now()); !ok {
		s.refuse(w, pathUnknown, resultFlood)
		return true
	}
	if !plain {
		s.refuse(w, pathUnknown, resultForwarded)
		return true
	}
	keep, err := s.deps.Wiping(r.Context(), token)
	if errors.Is(err, ErrUnknown) {
		s.refuse(w, pathUnknown, resultToken)
		return true
	}
	var kept schemas.Wipe
	if err == nil {
		var report wipe.Report
		d := json.NewDecoder(http.MaxBytesReader(w, r.Body, wipe.MaxReport))
		d.DisallowUnknownFields()
		if err = d.Decode(&report); err != nil {
			err = fmt.Errorf("%w: %w", wipe.ErrReport, err)
		} else {
			kept, err = keep(r.Context(), &report)
		}
	}
	switch {
	case errors.Is(err, wipe.ErrReport):
		s.count(pathWipe, resultRefused)
		http.Error(w, err.Error(), http.StatusBadRequest)
	case err != nil:
		s.deps.Log.Warn("what was found of the drives of a server is not kept", "error", err)
		s.refuse(w, pathWipe, resultFailed)
	default:
		text, _ := json.Marshal(wipe.Answer{ID: kept.ID, Proven: kept.Proven, Drives: kept.Drives}) // of texts and numbers alone
		s.say(w, pathWipe, "application/json", string(text))
	}
	return true
}

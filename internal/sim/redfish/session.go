package redfish

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	sessionsPath = "/redfish/v1/SessionService/Sessions"
	// SessionTimeout is how long a session lives without a request.
	SessionTimeout = 30 * time.Minute
	// MaxSessions is the number of sessions at a time, as small on real controllers.
	MaxSessions = 64
)

type session struct {
	id      string
	user    string
	token   string
	created time.Time
	used    time.Time
}

type sessions struct {
	mu      sync.Mutex
	started time.Time // of the controller
	last    int
	byToken map[string]*session
}

// expire drops what has not been used for long; the caller holds the lock.
func (s *sessions) expire(now time.Time) {
	for token, x := range s.byToken {
		if now.Sub(x.used) > SessionTimeout {
			delete(s.byToken, token)
		}
	}
}

func (s *sessions) add(user string) (session, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.expire(now)
	if len(s.byToken) >= MaxSessions {
		return session{}, false
	}
	s.last++
	x := &session{id: strconv.Itoa(s.last), user: user, token: rand.Text(), created: now, used: now}
	s.byToken[x.token] = x
	return *x, true
}

// since drops all where the controller has started anew.
func (s *sessions) since(started time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started.Equal(started) {
		clear(s.byToken)
	}
	s.started = started
}

// use finds a session by its token and prolongs it.
func (s *sessions) use(token string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.expire(now)
	x, ok := s.byToken[token]
	if ok {
		x.used = now
	}
	return ok
}

func (s *sessions) list() []session {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(time.Now())
	out := make([]session, 0, len(s.byToken))
	for _, x := range s.byToken {
		out = append(out, *x)
	}
	slices.SortFunc(out, func(a, b session) int { return a.created.Compare(b.created) })
	return out
}

func (s *sessions) remove(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for token, x := range s.byToken {
		if x.id == id {
			delete(s.byToken, token)
			return true
		}
	}
	return false
}

// authenticated checks the session token or HTTP basic authentication.
func (h *handler) authenticated(r *http.Request) bool {
	if token := r.Header.Get("X-Auth-Token"); token != "" {
		return h.sessions.use(token)
	}
	user, password, ok := r.BasicAuth()
	return ok && h.checkPassword(user, password)
}

func (h *handler) checkPassword(user, password string) bool {
	want, ok := h.b.Password(user)
	return ok && subtle.ConstantTimeCompare([]byte(want), []byte(password)) == 1
}

func (h *handler) login(w http.ResponseWriter, body []byte) {
	doc, p := decodeObject(body)
	if p != nil {
		h.fail(w, p)
		return
	}
	for _, name := range []string{"UserName", "Password"} {
		if _, ok := doc[name].(string); !ok {
			h.fail(w, &problem{
				status: http.StatusBadRequest, id: "PropertyMissing",
				text: "The property " + name + " is a required property and must be included in the request.",
				args: []string{name}, property: name,
			})
			return
		}
	}
	user, password := doc["UserName"].(string), doc["Password"].(string)
	if !h.checkPassword(user, password) {
		h.fail(w, &problem{
			status: http.StatusUnauthorized, id: "ResourceAtUriUnauthorized",
			text: "While accessing the resource at " + sessionsPath + ", the service received an authorization error.", args: []string{sessionsPath},
		})
		return
	}
	x, ok := h.sessions.add(user)
	if !ok {
		h.fail(w, &problem{
			status: http.StatusServiceUnavailable, id: "SessionLimitExceeded",
			text: "The session establishment failed due to the number of simultaneous sessions exceeding the limit of the implementation.",
		})
		return
	}
	out, err := json.Marshal(sessionDoc(x))
	if err != nil {
		h.fail(w, &problem{status: http.StatusInternalServerError, id: "InternalError", text: "The session cannot be encoded."})
		return
	}
	w.Header().Set("X-Auth-Token", x.token)
	w.Header().Set("Location", sessionsPath+"/"+x.id)
	h.write(w, http.StatusCreated, out)
}

func (h *handler) remove(w http.ResponseWriter, path string) {
	id, ok := strings.CutPrefix(path, sessionsPath+"/")
	if !ok && h.unsubscribe(path) {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	if !ok {
		h.notAllowed(w, path)
		return
	}
	if !h.sessions.remove(id) {
		h.missing(w, path)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func sessionDoc(x session) object {
	return object{
		"@odata.id": sessionsPath + "/" + x.id, "@odata.type": "#Session.v1_7_0.Session",
		"Id": x.id, "Name": "User Session", "UserName": x.user, "SessionType": "Redfish", "CreatedTime": stamp(x.created),
	}
}

package api_test

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"auspex/api"
	"auspex/api/access"
)

// A caller who asks too often waits, and nobody else does.
func TestACallerAsksNoMoreOftenThanItMay(t *testing.T) {
	w := start(t, false, func(c *api.Config, _ *api.Deps) {
		c.Limits = api.LimitsConfig{Reads: 0.1, Writes: 0.05, Burst: 100 * time.Second} // 10 and 5 at once
	})
	ask := func(method, path, role, text string) answer { return w.send(t, method, path, role, body(text)) }
	for n := range 10 {
		if a := ask(http.MethodGet, "api/v1/me", access.RoleViewer, ""); a.status != http.StatusOK {
			t.Fatalf("read %d: %d %s", n, a.status, a.body)
		}
	}
	a := ask(http.MethodGet, "prometheus/api/v1/labels", access.RoleViewer, "")
	if wait, err := strconv.Atoi(a.header.Get("Retry-After")); a.status != http.StatusTooManyRequests || a.problem(t).Code != "too_many_requests" || err != nil ||
		wait < 1 || wait > 10 {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
	if a := ask(http.MethodPost, "prometheus/api/v1/query", access.RoleViewer, ""); a.status != http.StatusTooManyRequests {
		t.Errorf("a query in a body is no read: %d", a.status)
	}
	if a := ask(http.MethodPost, "api/v1/logout", access.RoleViewer, ""); a.status != http.StatusNoContent {
		t.Errorf("a write pays for reads: %d %s", a.status, a.body)
	}
	if a := ask(http.MethodGet, "api/v1/me", access.RoleOperator, ""); a.status != http.StatusOK {
		t.Errorf("one caller pays for another: %d %s", a.status, a.body)
	}
	for range 5 {
		ask(http.MethodPost, "api/v1/logout", access.RoleAdmin, "")
	}
	if a := ask(http.MethodPost, "api/v1/logout", access.RoleAdmin, ""); a.status != http.StatusTooManyRequests {
		t.Errorf("a sixth write: %d", a.status)
	}
	for what, want := range map[string]float64{"read": 2, "write": 1} {
		if got := metric(t, w, "auspex_api_limited_total", "what", what); got != want {
			t.Errorf("%s: %g are counted, want %g", what, got, want)
		}
	}
}

// All tokens and sessions of a user take from one share.
func TestATokenMoreIsNoShareMore(t *testing.T) {
	w := start(t, false, func(c *api.Config, _ *api.Deps) {
		c.Limits = api.LimitsConfig{Reads: 0.1, Writes: 100, Burst: 30 * time.Second}
	})
	if a := w.send(t, http.MethodPost, "api/v1/users", access.RoleAdmin, body(`{"username":"li","email":"li@example.com","role":"viewer"}`)); a.status != http.StatusCreated {
		t.Fatalf("%d %s", a.status, a.body)
	}
	for _, name := range []string{"one", "two"} {
		plain, _, err := access.New(w.db, time.Hour).CreateToken(t.Context(), "test", name, access.RoleViewer, "li", 0)
		if err != nil {
			t.Fatal(err)
		}
		w.tokens[name] = plain
	}
	limited := 0
	for n := range 6 {
		if a := w.send(t, http.MethodGet, "api/v1/me", []string{"one", "two"}[n%2], nil); a.status == http.StatusTooManyRequests {
			limited++
		}
	}
	if limited != 3 {
		t.Errorf("%d of 6 were held back", limited)
	}
}

// Tokens that are guessed slow their source, whoever is known comes through.
func TestGuessedTokensAreSlowAndHoldNobodyElseBack(t *testing.T) {
	w := start(t, false)
	limited := 0
	for n := range 100 {
		a := w.send(t, http.MethodGet, "api/v1/me", "", func(r *http.Request) { r.Header.Set("Authorization", "Bearer guess"+strconv.Itoa(n)) })
		if a.status != http.StatusTooManyRequests {
			continue
		}
		if limited++; a.header.Get("Retry-After") == "" || a.problem(t).Code != "too_many_failures" || n < 60 {
			t.Errorf("try %d: %v %s", n, a.header, a.body)
		}
	}
	if limited < 20 {
		t.Errorf("%d of 100 guesses were held back", limited)
	}
	if a := w.send(t, http.MethodGet, "api/v1/me", access.RoleViewer, nil); a.status != http.StatusOK {
		t.Errorf("a good token behind a guesser: %d %s", a.status, a.body)
	}
	if a := w.send(t, http.MethodGet, "api/v1/me", "", nil); a.status != http.StatusUnauthorized {
		t.Errorf("who has no credential guesses none: %d", a.status)
	}
	if got := metric(t, w, "auspex_api_limited_total", "what", "credential"); got != float64(limited) {
		t.Errorf("%g of %d are counted", got, limited)
	}
}

func TestLimitsAreChecked(t *testing.T) {
	for want, change := range map[string]func(*api.LimitsConfig){
		"reads: ":  func(c *api.LimitsConfig) { c.Reads = -1 },
		"writes: ": func(c *api.LimitsConfig) { c.Writes = -1 },
		"burst: ":  func(c *api.LimitsConfig) { c.Burst = 0 },
	} {
		c := api.DefaultConfig().Limits
		change(&c)
		if err := c.Validate(); err == nil || err.Error()[:len(want)] != want {
			t.Errorf("%s%v", want, err)
		}
	}
	if err := api.DefaultConfig().Limits.Validate(); err != nil {
		t.Error(err)
	}
}

// metric is a counter or gauge of a console, of the series with a label; "" is the only one.
func metric(t *testing.T, w *world, name, label, value string) float64 {
	t.Helper()
	families, err := w.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if label == "" || len(m.GetLabel()) == 1 && m.GetLabel()[0].GetName() == label && m.GetLabel()[0].GetValue() == value {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return 0
}

package notify

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"auspex/internal/bus"
	"auspex/internal/bus/mem"
	"auspex/internal/certtest"
	"auspex/internal/store/records"
	"auspex/internal/trust"
	"auspex/internal/waittest"
	"auspex/schemas"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// manager records what is posted to it.
type manager struct {
	*httptest.Server
	mu     sync.Mutex
	posts  [][]Alert
	auth   []string
	answer []int // status codes to come; then 200
	away   bool  // connections break
}

func (m *manager) setAway(away bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.away = away
}

func newManager(t *testing.T, answer ...int) *manager {
	t.Helper()
	m := &manager{answer: answer}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.away {
			panic(http.ErrAbortHandler)
		}
		if r.Method != http.MethodPost || r.URL.Path != "/api/v2/alerts" {
			t.Errorf("request %s %s", r.Method, r.URL)
		}
		m.auth = append(m.auth, r.Header.Get("Authorization"))
		if len(m.answer) > 0 {
			code := m.answer[0]
			m.answer = m.answer[1:]
			if code != http.StatusOK {
				w.WriteHeader(code)
				return
			}
		}
		var alerts []Alert
		if err := json.NewDecoder(r.Body).Decode(&alerts); err != nil {
			t.Errorf("body: %v", err)
		}
		m.posts = append(m.posts, alerts)
	}))
	t.Cleanup(m.Close)
	return m
}

func (m *manager) all() []Alert {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Alert
	for _, p := range m.posts {
		out = append(out, p...)
	}
	return out
}

type openList []schemas.Incident

func (o openList) Incidents(context.Context, records.Filter) ([]schemas.Incident, string, error) {
	return o, "", nil
}

func start(t *testing.T, cfg Config, open openList) *mem.Bus {
	t.Helper()
	b := mem.New(1)
	n := New(cfg, open, b, slog.New(slog.DiscardHandler), nil)
	ctx, cancel := context.WithCancel(context.Background())
	done, ready := make(chan error, 1), make(chan struct{})
	go func() { done <- n.Run(ctx, func() { close(ready) }) }()
	<-ready
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("stopped with %v", err)
		}
		_ = b.Close()
	})
	return b
}

func publish(t *testing.T, b *mem.Bus, inc schemas.Incident) {
	t.Helper()
	doc, err := json.Marshal(inc)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Publish(t.Context(), bus.Message{Topic: schemas.TopicIncidents, Key: inc.ID, Value: doc}); err != nil {
		t.Fatal(err)
	}
}

func incident(revision int, sev schemas.Severity) schemas.Incident {
	return schemas.Incident{
		ID: "i-1", Opened: time.Now().UTC(), Site: "dc1", Severity: sev, Revision: revision, Events: []string{"e1"},
		RootCause: schemas.Cause{Resource: "pdu-r01-a", Fault: "power.feed_loss", Confidence: 0.93}, Explanation: "Feed A lost power.",
	}
}

func config(m *manager) Config {
	c := DefaultConfig()
	c.Alertmanagers = []Target{DefaultTarget(m.URL)}
	c.ExternalURL = "http://ui.example/auspex/"
	return c
}

func TestARevisionUpdatesTheSameAlert(t *testing.T) {
	m := newManager(t)
	b := start(t, config(m), nil)
	publish(t, b, incident(1, schemas.SeverityError))
	waittest.For(t, "the first alert", func() bool { return len(m.all()) == 1 })
	second := incident(2, schemas.SeverityError)
	second.RootCause.Confidence = 0.97
	publish(t, b, second)
	waittest.For(t, "the second alert", func() bool { return len(m.all()) == 2 })
	a := m.all()
	for k, v := range a[0].Labels {
		if a[1].Labels[k] != v {
			t.Errorf("label %s changed from %q to %q: that is another alert", k, v, a[1].Labels[k])
		}
	}
	if a[0].Labels["alertname"] != "AuspexIncident" || a[0].Labels["site"] != "dc1" || len(a[0].Labels) != 4 {
		t.Errorf("labels %v", a[0].Labels)
	}
	if a[1].Annotations["confidence"] != "0.97" || a[1].Annotations["root_cause"] != "pdu-r01-a" || a[1].Annotations["description"] == "" {
		t.Errorf("annotations %v", a[1].Annotations)
	}
	if a[0].GeneratorURL != "http://ui.example/auspex/incidents/i-1" {
		t.Errorf("generator %q", a[0].GeneratorURL)
	}
	if d := time.Until(a[1].EndsAt); d < time.Minute {
		t.Errorf("an open incident ends in %s", d)
	}
}

func TestAnAlertSpeaksEveryLanguageOfTheIncident(t *testing.T) {
	m := newManager(t)
	b := start(t, config(m), nil)
	inc := incident(1, schemas.SeverityError)
	inc.Explanations = map[string]string{"en": inc.Explanation, "zh": "A 路供电中断。"}
	inc.RootCause.Title = map[string]string{"en": "Feed lost", "zh": "供电中断"}
	inc.Against = []schemas.Sentence{{Text: map[string]string{"en": "One."}}, {Text: map[string]string{"en": "Two."}}}
	inc.Step = &schemas.Sentence{Text: map[string]string{"en": "Inspect it.", "zh": "检查。"}}
	publish(t, b, inc)
	waittest.For(t, "the alert", func() bool { return len(m.all()) == 1 })
	got := m.all()[0].Annotations
	for key, want := range map[string]string{
		"description": "Feed A lost power.", "description_zh": "A 路供电中断。", "fault_title": "Feed lost", "fault_title_zh": "供电中断",
		"contradicts": "One. Two.", "would_change": "", "next_step": "Inspect it.", "next_step_zh": "检查。",
	} {
		if got[key] != want {
			t.Errorf("%s is %q, want %q", key, got[key], want)
		}
	}
}

func TestARiseOfSeverityResolvesTheOldAlertInTheSamePost(t *testing.T) {
	m := newManager(t)
	b := start(t, config(m), nil)
	publish(t, b, incident(1, schemas.SeverityWarning))
	waittest.For(t, "the first alert", func() bool { return len(m.all()) == 1 })
	publish(t, b, incident(2, schemas.SeverityCritical))
	waittest.For(t, "the rise", func() bool { return len(m.all()) >= 3 })
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.posts[len(m.posts)-1]
	if len(p) != 2 || p[0].Labels["severity"] != "warning" || p[0].EndsAt.After(time.Now()) || p[1].Labels["severity"] != "critical" ||
		p[1].EndsAt.Before(time.Now()) {
		t.Errorf("post %+v", p)
	}
}

func TestAClosedOrAbsorbedIncidentIsResolved(t *testing.T) {
	for _, name := range []string{"closed", "absorbed"} {
		t.Run(name, func(t *testing.T) {
			m := newManager(t)
			b := start(t, config(m), nil)
			publish(t, b, incident(1, schemas.SeverityError))
			waittest.For(t, "the alert", func() bool { return len(m.all()) == 1 })
			last := incident(2, schemas.SeverityError)
			if now := time.Now().UTC(); name == "closed" {
				last.Closed = &now
			} else {
				last.MergedInto, last.Events, last.Explanation = "i-2", nil, ""
			}
			publish(t, b, last)
			waittest.For(t, "the end", func() bool { return len(m.all()) == 2 })
			a := m.all()[1]
			if a.EndsAt.After(time.Now()) || a.Labels["severity"] != "error" || a.Annotations["description"] != "Feed A lost power." {
				t.Errorf("alert %+v", a)
			}
		})
	}
}

func TestFailuresAreRetriedAndRefusalsAreNot(t *testing.T) {
	m := newManager(t, http.StatusInternalServerError, http.StatusServiceUnavailable)
	b := start(t, config(m), nil)
	publish(t, b, incident(1, schemas.SeverityError))
	waittest.For(t, "the alert after two failures", func() bool { return len(m.all()) == 1 })
	m.mu.Lock()
	m.answer = []int{http.StatusBadRequest}
	requests := len(m.auth)
	m.mu.Unlock()
	publish(t, b, incident(2, schemas.SeverityError))
	waittest.For(t, "the refusal", func() bool { m.mu.Lock(); defer m.mu.Unlock(); return len(m.auth) == requests+1 })
	publish(t, b, incident(3, schemas.SeverityError))
	waittest.For(t, "the next revision", func() bool { return len(m.all()) == 2 })
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.auth) != requests+2 {
		t.Errorf("%d requests, want %d: a refused body was sent again", len(m.auth), requests+2)
	}
}

func TestAnAlertmanagerThatWasAwayGetsWhatIsSoNow(t *testing.T) {
	m := newManager(t)
	m.setAway(true)
	b := mem.New(1)
	t.Cleanup(func() { _ = b.Close() })
	n := New(config(m), openList(nil), b, slog.New(slog.DiscardHandler), nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx, func() {}) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	publish(t, b, incident(1, schemas.SeverityError))
	waittest.For(t, "health to tell", func() bool { return n.Health() != nil })
	if said := n.Health().Error(); !strings.Contains(said, m.URL) || !strings.Contains(said, "1 incidents wait") {
		t.Errorf("health: %s", said)
	}
	other := incident(1, schemas.SeverityWarning)
	other.ID = "i-2"
	publish(t, b, other)
	gone := incident(2, schemas.SeverityError)
	now := time.Now().UTC()
	gone.Closed = &now
	publish(t, b, gone)
	m.setAway(false)
	state := map[string]string{}
	waittest.For(t, "both incidents", func() bool {
		for _, a := range m.all() {
			state[a.Labels["incident"]] = "firing"
			if !a.EndsAt.After(time.Now()) {
				state[a.Labels["incident"]] = "resolved"
			}
		}
		return len(state) == 2
	})
	waittest.For(t, "what closed meanwhile to be resolved", func() bool {
		for _, a := range m.all() {
			if a.Labels["incident"] == "i-1" && !a.EndsAt.After(time.Now()) {
				return true
			}
		}
		return false
	})
	if state["i-2"] != "firing" {
		t.Errorf("told: %v", state)
	}
	waittest.For(t, "health to be well", func() bool { return n.Health() == nil })
}

func TestWhichAlertmanagerIsTrusted(t *testing.T) {
	certtest.Handshakes(t, func(t *testing.T, h certtest.Handshake) error {
		m := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		m.TLS, m.Config.ErrorLog = h.Server, slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
		m.StartTLS()
		defer m.Close()
		x := DefaultTarget(m.URL)
		x.TLS = h.TLS
		n := New(Config{Resend: time.Minute, Alertmanagers: []Target{x}}, nil, nil, slog.New(slog.DiscardHandler), nil)
		var err error
		if n.targets[0].http, err = x.client(); err != nil {
			return err
		}
		defer n.targets[0].http.CloseIdleConnections()
		_, err = n.targets[0].post(t.Context(), []Alert{{}})
		return err
	})
}

func TestOpenIncidentsAreSentAfterARestartAndAgain(t *testing.T) {
	m := newManager(t)
	c := config(m)
	c.Resend = time.Second
	start(t, c, openList{incident(7, schemas.SeverityError)})
	waittest.For(t, "two sendings", func() bool { return len(m.all()) >= 2 })
}

func TestCredentialsComeFromFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	m := newManager(t)
	c := config(m)
	c.Alertmanagers[0].BearerTokenFile = file
	b := start(t, c, nil)
	publish(t, b, incident(1, schemas.SeverityError))
	waittest.For(t, "the alert", func() bool { return len(m.all()) == 1 })
	if m.auth[0] != "Bearer s3cret" {
		t.Errorf("authorization %q", m.auth[0])
	}
}

func TestValidateNamesTheKey(t *testing.T) {
	for want, c := range map[string]Config{
		"resend":                     {},
		"external_url":               {Resend: time.Minute, ExternalURL: "here"},
		"alertmanagers[0]: url":      {Resend: time.Minute, Alertmanagers: []Target{{URL: "ftp://x"}}},
		"username and password_file": {Resend: time.Minute, Alertmanagers: []Target{{URL: "http://x", Username: "u"}}},
		"bearer_token_file": {Resend: time.Minute, Alertmanagers: []Target{{
			URL: "http://x", Username: "u", PasswordFile: "p", BearerTokenFile: "b",
		}}},
		"tls: set both cert_file and key_file": {Resend: time.Minute, Alertmanagers: []Target{{URL: "http://x", TLS: trust.TLS{CertFile: "c"}}}},
		"credentials belong in username":       {Resend: time.Minute, Alertmanagers: []Target{{URL: "http://u:p@x"}}},
	} {
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not name %q", err, want)
		}
	}
	if err := DefaultConfig().Validate(); err != nil {
		t.Errorf("the default configuration: %v", err)
	}
}

func TestASeverityThatRisesDuringAPostResolvesTheOldAlert(t *testing.T) {
	n := &Notifier{cfg: DefaultConfig(), pending: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "pending"}, []string{"target"})}
	x := &target{n: n, known: map[string]*entry{}, wake: make(chan struct{}, 1)}
	n.targets = []*target{x}
	n.take(incident(1, schemas.SeverityWarning))
	_, sent := x.collect()
	n.take(incident(2, schemas.SeverityCritical)) // the answer to the first post is still to come
	x.done(sent)
	var got []string
	alerts, _ := x.collect()
	for _, a := range alerts {
		got = append(got, a.Labels["severity"])
	}
	if d := cmp.Diff([]string{"warning", "critical"}, got); d != "" {
		t.Errorf("second post (-want +got):\n%s", d)
	}
}

package notices_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/prometheus/client_golang/prometheus"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"auspex/internal/notices"
	"auspex/internal/store/hooks"
	"auspex/internal/store/sqldb"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/internal/waittest"
	"auspex/schemas"
)

const secret hooks.Secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// receiver answers what it is told to, and keeps what it was sent.
type receiver struct {
	*httptest.Server

	mu     sync.Mutex
	answer func(n int, w http.ResponseWriter) // nil is 204
	ids    []string
	events []event.Event
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	wh, bad := standardwebhooks.NewWebhook(string(secret))
	var e event.Event
	for _, err := range []error{err, bad, wh.Verify(body, req.Header), json.Unmarshal(body, &e), e.Validate()} {
		if err != nil {
			http.Error(w, err.Error(), http.StatusTeapot)
			return
		}
	}
	r.mu.Lock()
	r.ids, r.events = append(r.ids, req.Header.Get("webhook-id")), append(r.events, e)
	n, answer := len(r.ids), r.answer
	r.mu.Unlock()
	if answer != nil {
		answer(n, w)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (r *receiver) seen() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.ids)
}

func listen(t *testing.T, answer func(n int, w http.ResponseWriter)) *receiver {
	t.Helper()
	r := &receiver{answer: answer}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

type world struct {
	db    *sqldb.DB
	store *hooks.Store
}

func (w *world) hook(t *testing.T, name, url string, topics ...string) {
	t.Helper()
	if _, err := w.store.Create(t.Context(), "root", schemas.Webhook{Name: name, URL: url, Topics: topics, Active: true}, secret); err != nil {
		t.Fatal(err)
	}
}

func (w *world) put(t *testing.T, kind string) {
	t.Helper()
	if err := w.db.InTx(t.Context(), func(tx *sql.Tx) error {
		return notices.Put(t.Context(), tx, notices.Notice{Type: kind, Subject: "a1", Time: time.Now(), Data: map[string]any{"servers": []string{"s1"}}})
	}); err != nil {
		t.Fatal(err)
	}
}

func (w *world) deliveries(t *testing.T, name string) []schemas.Delivery {
	t.Helper()
	d, _, err := w.store.Deliveries(t.Context(), name, "", "", "", 100)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// until waits for a delivery of a webhook to be in a state.
func (w *world) until(t *testing.T, name, state string, n int) {
	t.Helper()
	waittest.Until(t, func() error {
		got, all := 0, w.deliveries(t, name)
		for _, d := range all {
			if d.State == state {
				got++
			}
		}
		if got != n {
			return fmt.Errorf("%d of %d are %s: %+v", got, n, state, all)
		}
		return nil
	})
}

func quick() notices.Config {
	c := notices.DefaultConfig()
	c.First, c.Longest, c.Poll = 10*time.Millisecond, 40*time.Millisecond, 10*time.Millisecond
	return c
}

// once gives up what fails once: the wait would be longer than it may be.
func once() notices.Config {
	c := quick()
	c.First, c.Longest, c.GiveUp = time.Hour, time.Hour, 10*time.Second
	return c
}

// run sends until stop is called.
func (w *world) run(t *testing.T, cfg notices.Config) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	s := notices.NewSender(cfg, w.store, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	go func() { done <- s.Run(ctx, func() {}) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func begin(t *testing.T) *world {
	t.Helper()
	db := sqltest.Open(t)
	return &world{db, hooks.New(db)}
}

func TestANoticeArrivesAsASignedCloudEvent(t *testing.T) {
	w, r := begin(t), listen(t, nil)
	w.hook(t, "chat", r.URL, "allocation.*")
	w.run(t, quick())
	w.put(t, "server.degraded")
	w.put(t, "allocation.ready")
	w.until(t, "chat", schemas.DeliveryDelivered, 1)
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.events[0]
	if len(r.events) != 1 || e.Type() != "auspex.allocation.ready" || e.Subject() != "a1" || e.Source() != "/auspex" || e.SpecVersion() != "1.0" ||
		string(e.Data()) != `{"servers":["s1"]}` || e.ID() != r.ids[0] || e.DataContentType() != "application/json" || time.Since(e.Time()) > time.Minute {
		t.Errorf("%v", e)
	}
	h, err := w.store.Get(t.Context(), "chat")
	if err != nil || h.LastCode != 204 || h.LastError != "" || h.LastAt.IsZero() {
		t.Errorf("%+v %v", h, err)
	}
}

func TestWhatFailsIsTriedAgainUnderTheSameID(t *testing.T) {
	w := begin(t)
	r := listen(t, func(n int, w http.ResponseWriter) {
		if n < 4 {
			w.WriteHeader([]int{500, 429, 302}[n-1])
		}
	})
	w.hook(t, "chat", r.URL)
	w.run(t, quick())
	w.put(t, "allocation.ready")
	w.until(t, "chat", schemas.DeliveryDelivered, 1)
	if ids := slices.Compact(r.seen()); len(ids) != 1 || len(r.seen()) != 4 {
		t.Errorf("ids %v", r.seen())
	}
	if d := w.deliveries(t, "chat")[0]; d.Attempts != 4 || d.LastError != "" {
		t.Errorf("%+v", d)
	}
}

func TestARedirectIsNotFollowed(t *testing.T) {
	w, other := begin(t), listen(t, nil)
	r := listen(t, func(_ int, w http.ResponseWriter) {
		w.Header().Set("Location", other.URL)
		w.WriteHeader(http.StatusTemporaryRedirect)
	})
	w.hook(t, "chat", r.URL)
	cfg := once()
	w.run(t, cfg)
	w.put(t, "allocation.ready")
	w.until(t, "chat", schemas.DeliveryDead, 1)
	if d := w.deliveries(t, "chat")[0]; len(other.seen()) != 0 || d.LastError != "answered 307: redirects are not followed" || d.LastCode != 307 {
		t.Errorf("%v %+v", other.seen(), d)
	}
	if h, err := w.store.Get(t.Context(), "chat"); err != nil || h.Dead != 1 || h.LastError == "" {
		t.Errorf("%+v %v", h, err)
	}
}

func TestASlowReceiverDelaysOnlyItself(t *testing.T) {
	w, free := begin(t), make(chan struct{})
	slow := listen(t, func(_ int, w http.ResponseWriter) { <-free })
	fast := listen(t, nil)
	w.hook(t, "slow", slow.URL)
	w.hook(t, "fast", fast.URL)
	w.run(t, quick())
	for range 20 {
		w.put(t, "allocation.ready")
	}
	w.until(t, "fast", schemas.DeliveryDelivered, 20)
	if n := len(slow.seen()); n > 1 {
		t.Errorf("%d at once to one receiver", n)
	}
	w.until(t, "slow", schemas.DeliveryDelivered, 0)
	close(free)
	w.until(t, "slow", schemas.DeliveryDelivered, 20)
}

func TestASenderThatEndsLeavesWhatItHadToTheNext(t *testing.T) {
	w := begin(t)
	arrived := make(chan struct{}, 99)
	free := make(chan struct{})
	r := listen(t, func(n int, _ http.ResponseWriter) {
		arrived <- struct{}{}
		if n == 1 {
			<-free
		}
	})
	w.hook(t, "chat", r.URL)
	stop := w.run(t, quick())
	w.put(t, "allocation.ready")
	<-arrived
	stop()
	close(free)
	if d := w.deliveries(t, "chat")[0]; d.State != schemas.DeliveryPending {
		t.Fatalf("%+v", d)
	}
	// What it had is its own for longer than an attempt may take: the wait is taken away.
	if _, err := w.db.ExecContext(t.Context(), `UPDATE deliveries SET next_ns=0`); err != nil {
		t.Fatal(err)
	}
	w.run(t, quick())
	w.until(t, "chat", schemas.DeliveryDelivered, 1)
	if ids := r.seen(); len(ids) != 2 || ids[0] != ids[1] {
		t.Errorf("ids %v", ids)
	}
}

func TestWhoDoesNotAnswerIsToldWithoutTheAddress(t *testing.T) {
	w := begin(t)
	r := listen(t, nil)
	w.hook(t, "gone", r.URL+"/T0P")
	w.hook(t, "cloud", "https://169.254.169.254/T0P")
	w.hook(t, "self", "https://"+strings.TrimPrefix(r.URL, "http://")+"/T0P")
	r.Close()
	cfg := once()
	w.run(t, cfg)
	w.put(t, "allocation.ready")
	for name, want := range map[string]string{"gone": "connection refused", "cloud": "nothing is sent to 169.254.169.254", "self": "connection refused"} {
		w.until(t, name, schemas.DeliveryDead, 1)
		d := w.deliveries(t, name)[0]
		if !strings.Contains(d.LastError, want) || strings.Contains(d.LastError, "T0P") || d.LastCode != 0 {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

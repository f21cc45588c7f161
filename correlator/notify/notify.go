// Package notify tells Alertmanagers about incidents, by their API v2 (formats,
// section 9): one alert an incident, sent again while it is open, updated in
// place when it is revised, and resolved when it closes or is absorbed.
package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/internal/bus"
	"auspex/internal/run"
	"auspex/internal/store/records"
	"auspex/schemas"
)

// Store knows the incidents that are open.
type Store interface {
	Incidents(ctx context.Context, f records.Filter) ([]schemas.Incident, string, error)
}

const (
	perPost      = 200              // alerts in one request
	keepResolved = 15 * time.Minute // how long a resolved alert is sent again
	backoffFirst = 200 * time.Millisecond
	backoffLast  = 30 * time.Second
)

// Alert is an alert in the form of Alertmanager's API v2, postableAlert.
type Alert struct {
	Labels       map[string]string `json:"labels"`
	Annotations  map[string]string `json:"annotations"`
	StartsAt     time.Time         `json:"startsAt"`
	EndsAt       time.Time         `json:"endsAt"`
	GeneratorURL string            `json:"generatorURL,omitempty"`
}

// Notifier follows the topic incidents and tells every target.
type Notifier struct {
	cfg   Config
	store Store
	bus   bus.Subscriber
	log   *slog.Logger

	targets []*target
	posts   *prometheus.CounterVec
	alerts  *prometheus.CounterVec
	latency *prometheus.HistogramVec
	bad     prometheus.Counter
	pending *prometheus.GaugeVec
}

// New returns a notifier; it does nothing before Run.
func New(cfg Config, st Store, b bus.Subscriber, log *slog.Logger, reg prometheus.Registerer) *Notifier {
	n := &Notifier{
		cfg: cfg, store: st, bus: b, log: log,
		posts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "auspex_notify_posts_total", Help: "Requests to Alertmanagers, by result: ok, refused (not tried again) or failed (tried again).",
		}, []string{"target", "result"}),
		alerts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "auspex_notify_alerts_total", Help: "Alerts that Alertmanagers took.",
		}, []string{"target"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "auspex_notify_post_seconds", Help: "Time of requests to Alertmanagers.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
		}, []string{"target"}),
		bad: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "auspex_notify_bad_incidents_total", Help: "Records of the topic incidents that could not be read.",
		}),
		pending: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "auspex_notify_pending_incidents", Help: "Incidents whose last change a target does not know yet.",
		}, []string{"target"}),
	}
	if reg != nil {
		reg.MustRegister(n.posts, n.alerts, n.latency, n.bad, n.pending)
	}
	for _, t := range cfg.Alertmanagers {
		n.targets = append(n.targets, &target{n: n, cfg: t, known: map[string]*entry{}, wake: make(chan struct{}, 1)})
	}
	return n
}

// Name names the component.
func (n *Notifier) Name() string { return "notify" }

// Run sends what is open, then follows the topic incidents until ctx is done.
func (n *Notifier) Run(ctx context.Context, ready func()) error {
	for _, t := range n.targets {
		c, err := t.cfg.client()
		if err != nil {
			return err
		}
		t.http = c
	}
	if len(n.targets) > 0 {
		if err := n.restore(ctx); err != nil {
			return err
		}
	}
	ready()
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, t := range n.targets {
		wg.Go(func() {
			defer t.http.CloseIdleConnections()
			t.run(ctx)
		})
	}
	incidents := bus.Subscription{Topic: schemas.TopicIncidents, Group: "notify"}
	return bus.Follow(ctx, n.bus, incidents, n.log, func(_ context.Context, msgs []bus.Message) error {
		for i := range msgs {
			var inc schemas.Incident
			if err := json.Unmarshal(msgs[i].Value, &inc); err != nil || inc.ID == "" {
				n.bad.Inc()
				n.log.Warn("incident record not readable", "partition", msgs[i].Partition, "offset", msgs[i].Offset, "error", err)
				continue
			}
			n.take(inc)
		}
		return nil
	})
}

func (n *Notifier) restore(ctx context.Context) error {
	for f := (records.Filter{Status: records.StatusOpen, Limit: 500}); ; {
		page, next, err := n.store.Incidents(ctx, f)
		if err != nil {
			return fmt.Errorf("restore notifications: %w", err)
		}
		for _, inc := range page {
			n.take(inc)
		}
		if f.After = next; next == "" {
			return nil
		}
	}
}

func (n *Notifier) take(inc schemas.Incident) {
	if n.cfg.KnownOnly && inc.RootCause.Fault == "unknown" && inc.Closed == nil && inc.MergedInto == "" {
		// It may have been told under a fault that did not hold.
		now := time.Now().UTC()
		inc.Closed = &now
	}
	for _, t := range n.targets {
		t.take(inc)
	}
}

// entry is an incident as a target knows it.
type entry struct {
	inc      schemas.Incident
	severity schemas.Severity // the worst so far: the label
	stale    []schemas.Severity
	over     time.Time // when it was resolved
	dirty    bool
	sent     bool // it was told, or may have been
}

// target is one Alertmanager with what it was told.
type target struct {
	n    *Notifier
	cfg  Target
	http *http.Client
	wake chan struct{}

	mu      sync.Mutex
	known   map[string]*entry
	order   []string
	failing error // why the last attempt failed
	since   time.Time
	waiting int // incidents that it was to tell
}

// Health returns which Alertmanager is not reached, since when and why, or nil.
func (n *Notifier) Health() error {
	var errs []error
	for _, t := range n.targets {
		t.mu.Lock()
		if t.failing != nil {
			errs = append(
				errs,
				fmt.Errorf("%s is not reached since %s, %d incidents wait: %w", t.cfg.URL, t.since.UTC().Format(time.TimeOnly), t.waiting, t.failing),
			)
		}
		t.mu.Unlock()
	}
	return errors.Join(errs...)
}

// tried notes the outcome of an attempt.
func (t *target) tried(err error, incidents int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil && t.failing == nil {
		t.since = time.Now()
	}
	t.failing, t.waiting = err, incidents
}

func over(inc *schemas.Incident) bool {
	return inc.Closed != nil || inc.MergedInto != "" || len(inc.Events) == 0
}

func (t *target) take(inc schemas.Incident) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.known[inc.ID]
	if e == nil {
		e = &entry{severity: inc.Severity}
		if over(&inc) {
			// An earlier process may have told of it, with any severity.
			e.stale = []schemas.Severity{schemas.SeverityWarning, schemas.SeverityError, schemas.SeverityCritical}
			e.stale = slices.DeleteFunc(e.stale, func(s schemas.Severity) bool { return s == inc.Severity })
		}
		t.known[inc.ID] = e
		t.order = append(t.order, inc.ID)
	} else if inc.Revision < e.inc.Revision {
		return // read again
	}
	if inc.Severity.Rank() > e.severity.Rank() {
		if e.sent {
			e.stale = append(e.stale, e.severity)
		}
		e.severity = inc.Severity
	}
	if over(&inc) && inc.Explanation == "" {
		inc.Explanation, inc.Explanations, inc.Summary = e.inc.Explanation, e.inc.Explanations, e.inc.Summary // the last word stays readable
		inc.Affected, inc.Workloads = e.inc.Affected, e.inc.Workloads
	}
	e.inc, e.dirty = inc, true
	if over(&inc) {
		if e.over.IsZero() {
			e.over = time.Now()
		}
	} else {
		e.over = time.Time{}
	}
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

func (t *target) run(ctx context.Context) {
	resend := time.NewTicker(t.n.cfg.Resend)
	defer resend.Stop()
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-resend.C:
			t.mark()
		case <-t.wake:
		}
		for ctx.Err() == nil {
			alerts, sent := t.collect()
			if len(alerts) == 0 {
				break
			}
			again, err := t.post(ctx, alerts)
			if err == nil || !again {
				failures = 0
				t.tried(nil, 0)
				t.done(sent)
				if err != nil {
					t.n.log.Error("alertmanager refused alerts", "target", t.cfg.URL, "alerts", len(alerts), "error", err)
				}
				continue
			}
			if ctx.Err() != nil {
				return
			}
			t.tried(err, len(sent))
			if failures == 0 || failures&(failures-1) == 0 { // 1, 2, 4, 8 …
				t.n.log.Warn("alertmanager not reached", "target", t.cfg.URL, "attempt", failures+1, "error", err)
			}
			wait := min(backoffFirst<<min(failures, 16), backoffLast)
			failures++
			if run.Sleep(ctx, wait) != nil {
				return
			}
		}
	}
}

// mark has everything sent again and forgets what has been resolved for long.
func (t *target) mark() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.order = slices.DeleteFunc(t.order, func(id string) bool {
		e := t.known[id]
		if !e.dirty && !e.over.IsZero() && time.Since(e.over) > keepResolved {
			delete(t.known, id)
			return true
		}
		e.dirty = true
		return false
	})
}

type state struct {
	id       string
	revision int
	stale    int
}

// collect returns the alerts that have to be sent, at most one request's worth.
func (t *target) collect() ([]Alert, []state) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now().UTC()
	var alerts []Alert
	var sent []state
	pending := 0
	for _, id := range t.order {
		e := t.known[id]
		if !e.dirty {
			continue
		}
		pending++
		if len(alerts) >= perPost {
			continue
		}
		e.sent = true // from here on: a severity may rise while the request is on its way
		for _, s := range e.stale {
			a := t.n.alert(&e.inc, s, now)
			a.EndsAt = now
			alerts = append(alerts, a)
		}
		a := t.n.alert(&e.inc, e.severity, now)
		if over(&e.inc) {
			a.EndsAt = e.over.UTC()
		}
		alerts = append(alerts, a)
		sent = append(sent, state{id, e.inc.Revision, len(e.stale)})
	}
	t.n.pending.WithLabelValues(t.cfg.URL).Set(float64(pending))
	return alerts, sent
}

func (t *target) done(sent []state) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range sent {
		e := t.known[s.id]
		if e == nil {
			continue
		}
		e.stale = e.stale[min(s.stale, len(e.stale)):]
		if e.inc.Revision == s.revision {
			e.dirty = len(e.stale) > 0
		}
	}
}

// alert renders an incident. What may change while it is open is in the
// annotations, so that a revision updates the alert.
func (n *Notifier) alert(inc *schemas.Incident, severity schemas.Severity, now time.Time) Alert {
	a := Alert{
		Labels: map[string]string{"alertname": "AuspexIncident", "incident": inc.ID, "severity": string(severity)},
		Annotations: map[string]string{
			"root_cause": inc.RootCause.Resource, "fault": inc.RootCause.Fault,
			"confidence": strconv.FormatFloat(inc.RootCause.Confidence, 'f', 2, 64),
			"events":     strconv.Itoa(inc.Count()),
			"summary":    inc.RootCause.Fault + " at " + inc.RootCause.Resource,
		},
		StartsAt: inc.Opened.UTC(), EndsAt: now.Add(4 * n.cfg.Resend),
	}
	set := func(m map[string]string, key, value string) {
		if value != "" {
			m[key] = value
		}
	}
	set(a.Labels, "site", inc.Site)
	set(a.Annotations, "description", inc.Explanation)
	every := func(key string, text map[string]string) { // English has the key itself
		for language, words := range text {
			if language == "en" {
				set(a.Annotations, key, words)
			} else {
				set(a.Annotations, key+"_"+language, words)
			}
		}
	}
	every("description", inc.Explanations)
	every("fault_title", inc.RootCause.Title)
	set(a.Annotations, "contradicts", english(inc.Against))
	set(a.Annotations, "would_change", english(inc.WouldChange))
	if inc.Step != nil {
		every("next_step", inc.Step.Text)
	}
	set(a.Annotations, "affected", join(inc.Affected))
	set(a.Annotations, "workloads", join(inc.Workloads))
	set(a.Annotations, "merged_into", inc.MergedInto)
	if r := inc.Recommendation; r != nil {
		set(a.Annotations, "recommendation", r.Action+" "+r.Target)
	}
	if n.cfg.ExternalURL != "" {
		a.GeneratorURL = strings.TrimSuffix(n.cfg.ExternalURL, "/") + "/incidents/" + url.PathEscape(inc.ID)
	}
	return a
}

// english joins sentences.
func english(all []schemas.Sentence) string {
	words := make([]string, len(all))
	for i, s := range all {
		words[i] = s.Text["en"]
	}
	return strings.Join(words, " ")
}

// join lists the first names, and how many more there are.
func join(names []string) string {
	const most = 16
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:most], ", ") + " and " + strconv.Itoa(len(names)-most) + " more"
}

// post sends alerts; again says whether another attempt may help.
func (t *target) post(ctx context.Context, alerts []Alert) (again bool, err error) {
	result := "failed"
	began := time.Now()
	defer func() {
		t.n.posts.WithLabelValues(t.cfg.URL, result).Inc()
		t.n.latency.WithLabelValues(t.cfg.URL).Observe(time.Since(began).Seconds())
	}()
	doc, err := json.Marshal(alerts)
	if err != nil {
		return false, err
	}
	timeout := t.cfg.Timeout
	if timeout == 0 {
		timeout = defaultTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(t.cfg.URL, "/")+"/api/v2/alerts", bytes.NewReader(doc))
	if err != nil {
		return false, err
	}
	req.Header.Set("Content-Type", "application/json")
	if err := t.cfg.authorize(req); err != nil {
		return true, err
	}
	resp, err := t.http.Do(req)
	if err != nil {
		return true, err
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	_ = resp.Body.Close()
	switch {
	case resp.StatusCode/100 == 2:
		result = "ok"
		t.n.alerts.WithLabelValues(t.cfg.URL).Add(float64(len(alerts)))
		return false, nil
	case resp.StatusCode == http.StatusBadRequest || resp.StatusCode == http.StatusRequestEntityTooLarge ||
		resp.StatusCode == http.StatusUnprocessableEntity:
		result = "refused"
		return false, fmt.Errorf("status %s: %s", resp.Status, strings.TrimSpace(string(body)))
	}
	return true, fmt.Errorf("status %s: %s", resp.Status, strings.TrimSpace(string(body)))
}

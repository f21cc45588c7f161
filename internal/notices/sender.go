package notices

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/internal/store/hooks"
)

// Config is how notices are sent.
type Config struct {
	Source  string        // CloudEvents source: who sends
	Timeout time.Duration // of one attempt
	First   time.Duration // wait after the first attempt that failed; each is twice the one before
	Longest time.Duration // wait
	GiveUp  time.Duration // after this time since the notice
	Poll    time.Duration // between two looks for what other processes wrote
	TLS     *tls.Config   // of receivers; nil trusts what the system does
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{
		Source: "/auspex", Timeout: 10 * time.Second, First: 5 * time.Second, Longest: time.Hour, GiveUp: 24 * time.Hour, Poll: time.Second,
	}
}

// margin is how much longer than an attempt may take its delivery is nobody else's.
const margin = 20 * time.Second

// sweepEvery is between two looks for what is too old.
const sweepEvery = time.Minute

// Sender sends what is due: to each webhook one at a time, so that a slow one delays only what is
// its own. Several processes may do so at once.
type Sender struct {
	cfg   Config
	store *hooks.Store
	log   *slog.Logger
	now   func() time.Time
	wake  chan struct{}

	plain, secure *http.Client

	attempts      *prometheus.CounterVec
	waiting, dead prometheus.Gauge

	mu   sync.Mutex
	busy map[string]bool // by webhook
	all  sync.WaitGroup
}

// NewSender returns a sender that does nothing yet.
func NewSender(cfg Config, store *hooks.Store, log *slog.Logger, reg prometheus.Registerer) *Sender {
	s := &Sender{
		cfg: cfg, store: store, log: log, now: time.Now, wake: make(chan struct{}, 1), busy: map[string]bool{},
		plain: client(cfg, true), secure: client(cfg, false),
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "auspex_notices_attempts_total", Help: "Attempts to send a notice to a webhook: delivered, to be tried again (retry), or given up (dead).",
		}, []string{"result"}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "auspex_notices_waiting_deliveries", Help: "Deliveries of notices that are to be tried yet.",
		}),
		dead: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "auspex_notices_dead_deliveries", Help: "Deliveries of notices that were given up, of the last 30 days.",
		}),
	}
	for _, result := range []string{delivered, retry, given} {
		s.attempts.WithLabelValues(result)
	}
	reg.MustRegister(s.attempts, s.waiting, s.dead)
	return s
}

// Results of attempts.
const (
	delivered = "delivered"
	retry     = "retry"
	given     = "dead"
)

// Name implements the component of a process.
func (s *Sender) Name() string { return "notices" }

// Wake has it look at once.
func (s *Sender) Wake() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Run sends until ctx ends, and returns once no attempt is under way.
func (s *Sender) Run(ctx context.Context, ready func()) error {
	defer s.plain.CloseIdleConnections()
	defer s.secure.CloseIdleConnections()
	defer s.all.Wait()
	ready()
	var swept time.Time
	for failed := false; ; {
		now := s.now()
		next, err := s.round(ctx, now, now.Sub(swept) >= sweepEvery)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !failed:
			s.log.Warn("notices wait: the store does not answer", "error", err)
		case err == nil && now.Sub(swept) >= sweepEvery:
			swept = now
		}
		failed = err != nil
		wait := s.cfg.Poll
		if until := next.Sub(now); !next.IsZero() && until < wait {
			wait = max(until, time.Millisecond)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-time.After(wait):
		}
	}
}

// round starts a worker for each webhook that has something due and none yet. It returns when the
// next is due.
func (s *Sender) round(ctx context.Context, now time.Time, sweep bool) (next time.Time, err error) {
	if sweep {
		n, err := s.store.Sweep(ctx, now, now.Add(-s.cfg.GiveUp))
		if err != nil {
			return next, err
		}
		if n > 0 {
			s.attempts.WithLabelValues(given).Add(float64(n))
			s.log.Warn("notices were given up: they were not delivered in time", "deliveries", n)
		}
		if err := s.count(ctx); err != nil {
			return next, err
		}
	}
	ids, next, err := s.store.Due(ctx, now)
	if err != nil {
		return next, err
	}
	for _, id := range ids {
		s.mu.Lock()
		free := !s.busy[id]
		s.busy[id] = true
		s.mu.Unlock()
		if free {
			s.all.Go(func() { s.work(ctx, id) })
		}
	}
	return next, nil
}

func (s *Sender) count(ctx context.Context) error {
	waiting, dead, err := s.store.Counts(ctx)
	if err == nil {
		s.waiting.Set(float64(waiting))
		s.dead.Set(float64(dead))
	}
	return err
}

// work sends to one webhook what is due.
func (s *Sender) work(ctx context.Context, id string) {
	defer func() {
		s.mu.Lock()
		delete(s.busy, id)
		s.mu.Unlock()
		s.Wake() // what fell due meanwhile
	}()
	any := false
	for ctx.Err() == nil {
		a, err := s.store.Claim(ctx, id, s.now(), s.cfg.Timeout+margin)
		if err != nil {
			if ctx.Err() == nil {
				s.log.Warn("a notice waits: the store does not answer", "webhook", id, "error", err)
			}
			return
		}
		if a == nil {
			break
		}
		any = true
		r := s.try(ctx, a)
		if ctx.Err() != nil && r.Error != "" {
			return // it was cut off by the end of this process, and is tried again when its claim has ended
		}
		s.tell(a, r)
		// What was sent is written down even where the process ends now.
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		err = s.store.Done(end, a, s.now(), r)
		cancel()
		if err != nil {
			s.log.Warn("a notice was sent, and that is not written down: it is sent again", "webhook", id, "notice", a.Notice.ID, "error", err)
			return
		}
	}
	if any && ctx.Err() == nil {
		_ = s.count(ctx) // the next round counts again
	}
}

func (s *Sender) tell(a *hooks.Attempt, r hooks.Result) {
	switch {
	case r.Error == "":
		s.attempts.WithLabelValues(delivered).Inc()
	case r.Dead:
		s.attempts.WithLabelValues(given).Inc()
		s.log.Warn("a notice was given up", "webhook", a.Webhook, "notice", a.Notice.ID, "type", a.Notice.Type, "attempts", a.Attempts, "error", r.Error)
	default:
		s.attempts.WithLabelValues(retry).Inc()
	}
}

// try makes one attempt.
func (s *Sender) try(ctx context.Context, a *hooks.Attempt) hooks.Result {
	r, after := hooks.Result{}, time.Duration(0)
	req, err := request(ctx, s.cfg.Source, a, s.now())
	if err == nil {
		var res *http.Response
		c := s.secure
		if req.URL.Scheme != "https" {
			c = s.plain
		}
		if res, err = c.Do(req); err == nil {
			_, _ = io.CopyN(io.Discard, res.Body, 64<<10) // so that the connection can be used again
			_ = res.Body.Close()
			r.Status = res.StatusCode
			after = wait(res)
		}
	}
	switch {
	case err != nil:
		r.Error = strings.ToValidUTF8(why(err), "?")
	case r.Status >= 300 && r.Status < 400:
		r.Error = fmt.Sprintf("answered %d: redirects are not followed", r.Status)
	case r.Status < 200 || r.Status > 299:
		r.Error = fmt.Sprintf("answered %d", r.Status)
	default:
		return r
	}
	now := s.now()
	r.Next = now.Add(max(s.pause(a.Attempts), min(after, s.cfg.Longest)))
	r.Dead = r.Next.After(a.Created.Add(s.cfg.GiveUp))
	return r
}

// pause is how long to wait after so many attempts: twice as long each time, and between half and all
// of that, so that what failed at once does not come again at once.
func (s *Sender) pause(attempts int) time.Duration {
	d := s.cfg.Longest
	if n := attempts - 1; n < 30 {
		d = min(d, s.cfg.First<<n)
	}
	return d/2 + rand.N(d/2+1)
}

// wait is what a receiver that is too busy asks for, in seconds (RFC 9110, section 10.2.3).
func wait(res *http.Response) time.Duration {
	n, err := strconv.Atoi(res.Header.Get("Retry-After"))
	if err != nil || n < 0 || n > 1<<30 {
		return 0
	}
	return time.Duration(n) * time.Second
}

package api

import (
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"auspex/api/access"
	"auspex/api/limit"
)

// LimitsConfig is how often one caller, a user or a token, may ask. 0 is no limit.
type LimitsConfig struct {
	Reads  float64       `yaml:"reads"`  // a second
	Writes float64       `yaml:"writes"` // a second
	Burst  time.Duration `yaml:"burst"`  // the share of this long may come at once
}

// Validate names the key at fault.
func (c LimitsConfig) Validate() error {
	for key, v := range map[string]float64{"reads": c.Reads, "writes": c.Writes} {
		if v < 0 || math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("%s: want 0 for no limit, or requests a second, got %g", key, v)
		}
	}
	if c.Burst <= 0 || c.Burst > time.Hour {
		return fmt.Errorf("burst: want more than 0s and at most 1h, got %s", c.Burst)
	}
	return nil
}

// caller is whose share a request takes from: a user with all of their tokens and sessions, or a
// token that is nobody's.
type caller struct{ user, token string }

type limits struct {
	reads, writes   *limit.Limiter[caller]
	guesses, logins *limit.Limiter[netip.Prefix] // that failed
}

const (
	maxCallers = 16 << 10
	maxSources = 16 << 10
)

func newLimits(c LimitsConfig) limits {
	burst := c.Burst.Seconds()
	return limits{
		reads: limit.New[caller](c.Reads, c.Reads*burst, maxCallers), writes: limit.New[caller](c.Writes, c.Writes*burst, maxCallers),
		guesses: limit.New[netip.Prefix](1, 60, maxSources), logins: limit.New[netip.Prefix](1./6, 10, maxSources),
	}
}

// pace answers a caller who asks too often. What is put into a body for a query is a read.
func (s *Server) pace(c *fiber.Ctx, p access.Principal) error {
	of := caller{user: p.User}
	if p.User == "" {
		of.token = p.Name
	}
	l, what := s.writes, "write"
	if m := c.Method(); m == http.MethodGet || m == http.MethodHead || !strings.HasPrefix(c.Path()[len(s.cfg.BasePath):], "/api/v1/") {
		l, what = s.reads, "read"
	}
	ok, wait := l.Allow(of, time.Now())
	if ok {
		return nil
	}
	s.meter.limited.WithLabelValues(what).Inc()
	retry(c, wait)
	return problem{
		http.StatusTooManyRequests, "too_many_requests", "This caller asks more often than it may.", "Wait as long as Retry-After says; api.limits has the bounds.",
	}
}

// slow answers a source whose tries fail too often.
func (s *Server) slow(c *fiber.Ctx, l *limit.Limiter[netip.Prefix], what string) error {
	addr, _ := netip.AddrFromSlice(c.Context().RemoteIP())
	ok, wait := l.Allow(limit.Source(addr), time.Now())
	if ok {
		return nil
	}
	s.meter.limited.WithLabelValues(what).Inc()
	retry(c, wait)
	if what == "login" {
		return problem{http.StatusTooManyRequests, "too_many_logins", "Too many login attempts.", "Wait a moment and try again."}
	}
	return problem{http.StatusTooManyRequests, "too_many_failures", "Too many requests with a session or token that is not valid.", "Wait a moment, and use a valid one."}
}

// retry says when to come again, in seconds (RFC 9110, section 10.2.3).
func retry(c *fiber.Ctx, wait time.Duration) {
	c.Set("Retry-After", strconv.Itoa(max(1, int(math.Ceil(wait.Seconds())))))
}

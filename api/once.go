package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"time"

	"github.com/gofiber/fiber/v2"

	"auspex/api/access"
	"auspex/internal/store/answers"
	"auspex/internal/store/sqldb"
)

// accountOf names a caller as no other is named: a token may be called as a user is.
func accountOf(p access.Principal) string {
	if p.User != "" {
		return "user " + p.User
	}
	return "token " + p.Name
}

// once does a request with an Idempotency-Key once and answers it alike for a day. What it makes
// has an id that follows from the key, so that it is found again where the answer was lost.
func (s *Server) once(c *fiber.Ctx, a *asked) error {
	key, store := c.Get("Idempotency-Key"), s.deps.Answers
	if key == "" {
		return c.Next()
	}
	ctx := c.UserContext()
	account := accountOf(Caller(ctx))
	h := sha256.New()
	for _, part := range []string{c.Method(), c.OriginalURL(), string(c.Body())} {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	r := answers.Request{Caller: account, Key: key, Asked: hex.EncodeToString(h.Sum(nil)), Secret: a.secret}
	known, err := store.Begin(ctx, r)
	switch {
	case errors.Is(err, answers.ErrOther):
		return problem{http.StatusUnprocessableEntity, "key_used", "The Idempotency-Key was used for another request.", "Use a key for one request."}
	case errors.Is(err, answers.ErrAtWork):
		c.Set("Retry-After", "1")
		return problem{http.StatusConflict, "at_work", "The same request is at work.", "Send it again in a moment."}
	case err != nil:
		return err
	case known != nil:
		for name, v := range known.Headers {
			c.Set(name, v)
		}
		c.Set("Idempotency-Replayed", "true")
		return c.Status(known.Status).SendString(known.Body)
	}
	c.SetUserContext(sqldb.WithRequest(ctx, account+"\x00"+key))
	if err := c.Next(); err != nil {
		if e := s.fail(c, err); e != nil {
			return e
		}
	}
	is := &answers.Answer{Status: c.Response().StatusCode(), Headers: make(map[string]string), Body: string(c.Response().Body())}
	for _, name := range []string{"Content-Type", "Location", "ETag"} {
		if v := c.GetRespHeader(name); v != "" {
			is.Headers[name] = v
		}
	}
	if is.Status >= http.StatusInternalServerError || is.Status == http.StatusTooManyRequests || is.Status == http.StatusForbidden {
		is = nil // nothing was done, or not all, and it may go better
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second) // whoever has left may come back for it
	defer cancel()
	if err := store.End(ctx, r, is); err != nil {
		s.log.Warn("the answer to a request is not kept; the same again is answered when it has been half a minute", "error", err)
	}
	return nil
}

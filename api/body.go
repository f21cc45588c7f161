package api

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/adaptor"
	"github.com/gofiber/fiber/v2/middleware/compress"
	"github.com/valyala/fasthttp"
)

// What a request may hold. Before somebody is known, nothing is unpacked and
// little is read.
const (
	maxBody        = 1 << 20 // bytes after unpacking
	maxUnknown     = 4 << 10 // bytes of a caller that is not known
	maxRatio       = 200     // bytes out of one byte; JSON packs 5 to 50 times
	leastUnpacked  = 64 << 10
	maxConnections = 8192
	knownWithin    = 5 * time.Second
)

var errCoding = problem{
	http.StatusUnsupportedMediaType, "unknown_coding", "The Content-Encoding of the body is not supported.",
	"Send it uncompressed or, with a token, compressed once with gzip.",
}

func tooLarge(limit int) problem {
	return problem{
		http.StatusRequestEntityTooLarge, "too_large", "The body is too large.",
		fmt.Sprintf("The limit is %d bytes, uncompressed; before login %d.", limit, maxUnknown),
	}
}

// noBody is the length that fasthttp gives a request whose header announces no body: it reads none.
const noBody = -2

// admit says how much of a body is read, from its header: of a caller that is
// not known only as much as a login needs.
func (s *Server) admit(h *fasthttp.RequestHeader) fasthttp.RequestConfig {
	c := fasthttp.RequestConfig{MaxRequestBodySize: maxUnknown}
	if !framed(h.RawHeaders()) {
		unframed(h)
		return c
	}
	if n := h.ContentLength(); n == 0 || n == noBody || bytes.HasSuffix(h.RequestURI(), []byte("/api/v1/login")) {
		return c
	}
	ctx, cancel := context.WithTimeout(context.Background(), knownWithin)
	defer cancel()
	// An error comes again, with an answer, when the handlers ask.
	if id, err := s.identify(ctx, string(h.Peek("Authorization")), string(h.Cookie(sessionCookie))); err == nil && id != nil {
		c.MaxRequestBodySize = maxBody
	}
	return c
}

// coded refuses bodies that are packed otherwise than once with gzip
// (RFC 9110 section 8.4).
func (s *Server) coded(c *fiber.Ctx) error {
	codings := c.Request().Header.PeekAll("Content-Encoding")
	if len(codings) == 0 {
		return c.Next()
	}
	one := strings.ToLower(strings.TrimSpace(string(codings[0])))
	if len(codings) > 1 || one != "gzip" && one != "x-gzip" && one != "identity" {
		c.Set("Accept-Encoding", "gzip")
		return errCoding
	}
	if one == "identity" {
		c.Request().Header.Del("Content-Encoding")
	}
	return c.Next()
}

// unpack puts the text of a packed body in its place, within bounds that are
// held while it is unpacked.
func unpack(c *fiber.Ctx) error {
	if c.Get("Content-Encoding") == "" {
		return nil
	}
	raw := c.Request().Body()
	limit := min(maxBody, max(leastUnpacked, maxRatio*len(raw)))
	z, err := gzip.NewReader(bytes.NewReader(raw))
	var text []byte
	if err == nil {
		text, err = io.ReadAll(io.LimitReader(z, int64(limit)+1))
	}
	switch {
	case len(text) > limit:
		return tooLarge(maxBody)
	case err != nil:
		return problem{http.StatusBadRequest, "bad_coding", "Content-Encoding is gzip, but the body is not.", "Send it uncompressed."}
	}
	c.Request().SetBodyRaw(text)
	c.Request().Header.Del("Content-Encoding")
	return nil
}

// packed packs answers for those who take it so.
var packed = compress.New(compress.Config{
	Level: compress.LevelBestSpeed,
	Next: func(c *fiber.Ctx) bool {
		return strings.HasSuffix(c.Path(), "/stream") || strings.Contains(c.Path(), "/debug/pprof/")
	},
})

// mount serves a handler of net/http. Its requests have the context of ours,
// which ends when the caller leaves.
func mount(h http.Handler) fiber.Handler {
	return func(c *fiber.Ctx) error {
		r, err := adaptor.ConvertRequest(c, true)
		if err != nil {
			return problem{http.StatusBadRequest, "bad_request", "The address of the request cannot be read.", ""}
		}
		w := &writer{c: c}
		h.ServeHTTP(w, r.WithContext(c.UserContext()))
		w.WriteHeader(http.StatusOK)
		return nil
	}
}

// writer is the http.ResponseWriter of a mounted handler.
type writer struct {
	c      *fiber.Ctx
	header http.Header
	sent   bool
}

// Header implements http.ResponseWriter.
func (w *writer) Header() http.Header {
	if w.header == nil {
		w.header = make(http.Header)
	}
	return w.header
}

// Write implements io.Writer.
func (w *writer) Write(p []byte) (int, error) {
	if !w.sent && w.Header().Get("Content-Type") == "" {
		w.header.Set("Content-Type", http.DetectContentType(p))
	}
	w.WriteHeader(http.StatusOK)
	return w.c.Response().BodyWriter().Write(p)
}

// WriteHeader implements http.ResponseWriter.
func (w *writer) WriteHeader(status int) {
	if w.sent {
		return
	}
	w.sent = true
	w.c.Status(status)
	for name, values := range w.header {
		w.c.Response().Header.Del(name)
		for _, v := range values {
			w.c.Response().Header.Add(name, v)
		}
	}
}

// attend ends a request whose caller has left, or whose server stops.
func (s *Server) attend(c *fiber.Ctx) error {
	if strings.HasSuffix(c.Path(), "/api/v1/stream") { // ends when it cannot be written
		return c.Next()
	}
	ctx, cancel := context.WithCancel(c.UserContext())
	defer cancel()
	defer context.AfterFunc(s.stopping, cancel)()
	c.SetUserContext(ctx)
	defer watch(c.Context().Conn(), cancel)()
	err := c.Next()
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return problem{http.StatusServiceUnavailable, "stopping", "The server is stopping, or the caller has left.", ""}
	}
	return err
}

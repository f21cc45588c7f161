package api

import (
	"bytes"
	"net/http"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"
)

// framed reports whether a header says in one way only where its request ends and
// whom it is for. Where it says two things, we and a proxy before us may believe
// different ones, and a part of the body becomes a request (RFC 9112, sections 3.2,
// 5.1, 5.2 and 6.3). The library takes the last of several and drops what it does not know.
func framed(raw []byte) bool {
	var length []byte
	var codings, hosts int
	for line := range bytes.Lines(raw) {
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		name, value, ok := bytes.Cut(line, []byte(":"))
		if !ok || len(name) == 0 || bytes.ContainsAny(name, " \t") { // folded, or a name that others read otherwise
			return false
		}
		value = bytes.Trim(value, " \t")
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			if length != nil && !bytes.Equal(length, value) || len(value) == 0 {
				return false
			}
			length = value
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			if codings++; !bytes.EqualFold(value, []byte("chunked")) {
				return false
			}
		case bytes.EqualFold(name, []byte("Host")):
			hosts++
		}
	}
	return hosts <= 1 && codings <= 1 && (codings == 0 || length == nil)
}

// unframed keeps a body from being read of which nobody knows where it ends.
func unframed(h *fasthttp.RequestHeader) {
	h.SetContentLength(0)
	h.Del(fiber.HeaderExpect)
}

// frame refuses what is not framed, and ends its connection.
func (s *Server) frame(c *fiber.Ctx) error {
	if framed(c.Request().Header.RawHeaders()) {
		return c.Next()
	}
	c.Context().SetConnectionClose()
	linger(c.Context().Conn())
	return problem{
		http.StatusBadRequest, "bad_framing", "The header of the request says in two ways where the request ends or whom it is for.",
		"Send one Host, and either one Content-Length or Transfer-Encoding: chunked.",
	}
}

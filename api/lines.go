package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"auspex/api/apigen"
)

// A list whose caller accepts application/x-ndjson is answered as all of it, a record a line, page by
// page as the caller reads. Servers and GPUs, which are many, write their records themselves
// (estate.go); of all others the pages are those that a caller would ask for one after the other.
const ndjson = "application/x-ndjson"

func wantsLines(c *fiber.Ctx) bool { return strings.Contains(c.Get("Accept"), ndjson) }

// broken is the last line of a list that could not be read to its end. No record has this field.
type broken struct {
	Problem apigen.Problem `json:"problem"`
}

// breakOff is that line, for an error, which the log has as well.
func (s *Server) breakOff(err error) []byte {
	var p problem
	if !errors.As(err, &p) {
		p = problem{http.StatusInternalServerError, "internal", "The list could not be read to its end.", "See the log of the server, and ask again."}
	}
	return s.brokenBy(p.body(), err)
}

func (s *Server) brokenBy(p apigen.Problem, err error) []byte {
	s.log.Warn("a list of lines was broken off", "code", p.Code, "error", err)
	s.meter.broken.Inc()
	line, _ := json.Marshal(broken{p}) // of texts and numbers: it cannot fail
	return append(line, '\n')
}

// asLines answers the list that is asked for as lines.
func (s *Server) asLines(c *fiber.Ctx, fields []string) error {
	query := c.Request().URI().QueryArgs()
	query.SetUint("limit", linePage)
	c.Request().URI().SetQueryStringBytes(query.QueryString())
	if err := c.Next(); err != nil {
		return err
	}
	res := c.Response()
	if res.StatusCode() != http.StatusOK || res.IsBodyStream() {
		return nil
	}
	p := &lineReader{s: s, fields: fields, addr: c.Context().RemoteAddr()}
	c.Request().CopyTo(&p.ask)
	p.ask.Header.Set("Accept", "application/json")
	p.ask.Header.Del("Accept-Encoding") // the lines are packed as a whole
	if err := p.take(res.Body()); err != nil {
		return err
	}
	res.ResetBody()
	c.Set("Content-Type", ndjson)
	c.Context().SetBodyStream(p, -1)
	return nil
}

// lineReader is the lines of a list. Each page is asked for as its caller would: with their credential,
// which may have ended, and within their rates.
type lineReader struct {
	s      *Server
	fields []string // of each record; none is all
	addr   net.Addr // of who asks
	ask    fasthttp.Request
	more   bool // the request is for another page
	buf    bytes.Buffer
}

// take makes lines of a page, and the request for the next.
func (p *lineReader) take(page []byte) error {
	var list struct {
		Items []json.RawMessage
		Next  json.RawMessage // a text, or the number of a row of the audit
	}
	if err := json.Unmarshal(page, &list); err != nil {
		return fmt.Errorf("read a page for its lines: %w", err)
	}
	for _, item := range list.Items {
		if len(p.fields) == 0 {
			p.buf.Write(item)
		} else if err := projectItem(&p.buf, item, p.fields); err != nil {
			return err
		}
		p.buf.WriteByte('\n')
	}
	next := string(list.Next)
	if text, err := strconv.Unquote(next); err == nil {
		next = text
	}
	if p.more = next != "" && next != "0" && next != "null"; p.more {
		query := p.ask.URI().QueryArgs()
		query.Set("after", next)
		query.Del("fields") // which are chosen here
		p.ask.URI().SetQueryStringBytes(query.QueryString())
	}
	return nil
}

// Read implements [io.Reader].
func (p *lineReader) Read(b []byte) (int, error) {
	for p.buf.Len() == 0 {
		if !p.more {
			return 0, io.EOF
		}
		if p.s.stopping.Err() != nil {
			p.more = false
			p.buf.Write(p.s.breakOff(errStopping))
			continue
		}
		var c fasthttp.RequestCtx
		c.Init(&p.ask, p.addr, nil)
		p.s.app.Handler()(&c)
		var err error
		switch status := c.Response.StatusCode(); status {
		case http.StatusOK:
			if err = p.take(c.Response.Body()); err != nil {
				p.buf.Write(p.s.breakOff(err))
			}
		default:
			var why apigen.Problem
			if err = json.Unmarshal(c.Response.Body(), &why); err != nil {
				why = apigen.Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Code: "internal"}
			}
			p.buf.Write(p.s.brokenBy(why, err))
			p.more = false
		}
		if err != nil {
			p.more = false
		}
	}
	return p.buf.Read(b)
}

var errStopping = problem{http.StatusServiceUnavailable, "stopping", "The server stops.", "Ask again in a moment."}

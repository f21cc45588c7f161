package redfish

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// maxMessage bounds a message of a stream, in bytes.
const maxMessage = 1 << 20

// Stream is what a service sends by itself, as server-sent events (DSP0266, section 13.5; the HTML standard, section 9.2). It has
// a connection of its own beside the client's, and may be read while that is used.
type Stream struct {
	body   io.ReadCloser
	lines  *bufio.Scanner
	cancel context.CancelFunc
	close  func()
}

// OpenStream opens the stream at a path, in the session of the client. It lives until ctx is done or [Stream.Close].
func (c *Client) OpenStream(ctx context.Context, path string) (*Stream, error) {
	if err := c.login(ctx); err != nil {
		return nil, err
	}
	tr := c.tr.Clone() // a service that begins to answer with its first event is as one without a stream: who opens it waits
	ctx, cancel := context.WithCancel(ctx)
	s := &Stream{cancel: cancel, close: tr.CloseIdleConnections}
	resp, err := c.request(ctx, &http.Client{Transport: tr, CheckRedirect: c.http.CheckRedirect}, http.MethodGet, path, nil, http.Header{"Accept": {"text/event-stream"}})
	if err != nil {
		s.Close()
		return nil, err
	}
	s.body = resp.Body
	switch kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";"); {
	case resp.StatusCode != http.StatusOK:
		err = &StatusError{Method: http.MethodGet, Path: path, Status: resp.StatusCode}
	case strings.TrimSpace(kind) != "text/event-stream":
		err = fmt.Errorf("%w: %s is %.40q and no stream of events", ErrProtocol, path, kind)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	s.lines = bufio.NewScanner(s.body)
	s.lines.Buffer(make([]byte, 0, 4<<10), maxMessage)
	return s, nil
}

// Close ends the stream, also for who waits in [Stream.Next].
func (s *Stream) Close() {
	s.cancel()
	if s.body != nil {
		_ = s.body.Close()
	}
	s.close()
}

// Next waits for a message and returns it. A message that is no JSON object is nil; an error is the end of the stream.
func (s *Stream) Next() (Object, error) {
	var data bytes.Buffer
	for s.lines.Scan() {
		line := bytes.TrimSuffix(s.lines.Bytes(), []byte("\r"))
		switch text, ok := bytes.CutPrefix(line, []byte("data:")); {
		case ok:
			if data.Len()+len(text) > maxMessage {
				return nil, fmt.Errorf("%w: a message of the stream is larger than %d bytes", ErrProtocol, maxMessage)
			}
			data.Write(bytes.TrimPrefix(text, []byte(" ")))
			data.WriteByte('\n')
		case len(line) == 0 && data.Len() > 0:
			var o Object
			if json.Unmarshal(data.Bytes(), &o) != nil {
				return nil, nil
			}
			return o, nil
		}
	}
	switch err := s.lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return nil, fmt.Errorf("%w: a line of the stream is larger than %d bytes", ErrProtocol, maxMessage)
	case err != nil:
		return nil, err
	}
	return nil, io.EOF
}

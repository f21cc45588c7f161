package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"auspex/collectors"
	"auspex/internal/kube"
	"auspex/internal/run"
)

const (
	page     = 500      // objects of a list that are asked for at a time
	maxFrame = 16 << 20 // bytes of one message of a watch; etcd keeps objects of 1.5 MiB
)

// refused reports whether an API server knows us not, or gives us not the right.
func refused(err error) bool { return apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) }

// gone reports whether the API server cannot go on from a version: it has forgotten it, or does not know it yet
// because it was set back.
func gone(err error) bool {
	return apierrors.IsGone(err) || apierrors.IsResourceExpired(err) || apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// op is what a change is.
type op uint8

const (
	begin   op = iota // of a full list
	put               // an object that is there
	del               // an object that was deleted
	end               // of a full list: what was not put since begin is not there
	nothing           // a new version alone
)

// change is one step of what a resource looks like. Once it was applied, a watch goes on after its version.
type change struct {
	op      op
	version string // "" is none
	pod     *pod
	node    *node
}

// source is a resource that is followed: a list, and a watch from there on.
type source struct {
	resource string
	fields   string // selector
	kind     string // of its list
	decode   func(json.RawMessage) (change, error)

	cfg     *Config
	api     *kube.Client
	log     *slog.Logger
	metrics *metrics

	// version is where a watch goes on: that of the last change that was applied; "" is a list.
	version string
	heard   atomic.Int64 // when the API server last said something, in ns
}

// follow hands out changes until ctx is done or something fails.
func (s *source) follow(ctx context.Context, out chan<- change) error {
	at, reason := s.version, "start"
	for {
		if at == "" {
			s.metrics.lists.WithLabelValues(s.resource, reason).Inc()
			var err error
			if at, err = s.list(ctx, out); err != nil {
				return failed("list "+s.resource, err)
			}
		}
		began := time.Now()
		next, why, err := s.watch(ctx, at, out)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case gone(err):
			s.log.Info("the API server cannot go on from where it was; listing anew", "resource", s.resource)
			at, why, reason = "", "gone", "gone"
		case err != nil:
			return failed("watch "+s.resource, err)
		default:
			at = next
		}
		s.metrics.watches.WithLabelValues(s.resource, why).Inc()
		// A server or a proxy that ends each watch at once is not asked in a loop.
		if wait := time.Second - time.Since(began); wait > 0 {
			if err := run.Sleep(ctx, wait); err != nil {
				return err
			}
		}
	}
}

// list reads all objects, page by page, as they are at one version.
func (s *source) list(ctx context.Context, out chan<- change) (version string, err error) {
	if err := send(ctx, out, change{op: begin}); err != nil {
		return "", err
	}
	for from := ""; ; {
		body, err := s.page(ctx, from)
		if err != nil {
			return "", err
		}
		var l struct {
			Kind string `json:"kind"`
			Meta struct {
				Version  string `json:"resourceVersion"`
				Continue string `json:"continue"`
			} `json:"metadata"`
			Items []json.RawMessage `json:"items"`
		}
		if err := json.Unmarshal(body, &l); err != nil {
			return "", fmt.Errorf("%w: %w", collectors.ErrProtocol, err)
		}
		if l.Kind != s.kind || l.Meta.Version == "" {
			return "", fmt.Errorf("%w: want a %s with a version, got %.40q", collectors.ErrProtocol, s.kind, l.Kind)
		}
		s.heard.Store(time.Now().UnixNano())
		for _, raw := range l.Items {
			c, ok := s.read(put, raw)
			if !ok || c.op == nothing {
				continue
			}
			c.version = ""
			if err := send(ctx, out, c); err != nil {
				return "", err
			}
		}
		if from = l.Meta.Continue; from == "" {
			return l.Meta.Version, send(ctx, out, change{op: end, version: l.Meta.Version})
		}
	}
}

func (s *source) page(ctx context.Context, from string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	return s.api.Raw(ctx, s.cfg.rest, func(c *rest.RESTClient) *rest.Request {
		r := c.Get().Resource(s.resource).Param("limit", strconv.Itoa(page))
		if s.fields != "" {
			r.Param("fieldSelector", s.fields)
		}
		if from != "" {
			r.Param("continue", from)
		}
		return r
	})
}

// read decodes an object; one that is malformed is counted, and harms itself alone.
func (s *source) read(o op, raw json.RawMessage) (change, bool) {
	c, err := s.decode(raw)
	if err != nil {
		s.metrics.malformed.WithLabelValues(s.resource).Inc()
		return change{op: nothing}, false
	}
	if c.op != nothing {
		c.op = o
	}
	return c, true
}

// watch hands out what changes after a version, until the server ends it. It returns the last version.
func (s *source) watch(ctx context.Context, version string, out chan<- change) (last, why string, err error) {
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	var stalled atomic.Bool
	timer := time.AfterFunc(s.cfg.Stall, func() { stalled.Store(true); cancel() })
	defer timer.Stop()
	seconds := 300 + rand.N(300) // spread, so that an API server that comes back is not asked by all at once
	stream, err := s.api.Stream(within, s.cfg.rest, func(c *rest.RESTClient) *rest.Request {
		r := c.Get().Resource(s.resource).Param("watch", "true").Param("allowWatchBookmarks", "true").Param("resourceVersion", version).
			Param("timeoutSeconds", strconv.Itoa(seconds))
		if s.fields != "" {
			r.Param("fieldSelector", s.fields)
		}
		return r
	})
	if err != nil {
		if stalled.Load() {
			err = fmt.Errorf("no answer within %s: %w", s.cfg.Stall, context.DeadlineExceeded)
		}
		return version, "", err
	}
	defer func() { _ = stream.Close() }()
	s.heard.Store(time.Now().UnixNano())
	bounded := &frames{from: stream}
	dec := json.NewDecoder(bounded)
	for {
		bounded.left = maxFrame
		var f struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if err := dec.Decode(&f); err != nil {
			var syntax *json.SyntaxError
			var typ *json.UnmarshalTypeError
			switch {
			case stalled.Load():
				s.log.Warn("a watch says nothing; beginning it anew", "resource", s.resource, "within", s.cfg.Stall)
				return version, "stalled", nil
			case errors.Is(err, errFrame), errors.As(err, &syntax), errors.As(err, &typ):
				return version, "", fmt.Errorf("%w: %w", collectors.ErrProtocol, err)
			case errors.Is(err, io.EOF):
				return version, "ended", nil
			}
			return version, "cut", nil // the next one says why, if it lasts
		}
		timer.Reset(s.cfg.Stall)
		s.heard.Store(time.Now().UnixNano())
		c := change{op: nothing}
		switch f.Type {
		case "ADDED", "MODIFIED":
			c, _ = s.read(put, f.Object)
		case "DELETED":
			c, _ = s.read(del, f.Object)
		case "BOOKMARK":
		case "ERROR":
			status := metav1.Status{}
			if err := json.Unmarshal(f.Object, &status); err != nil {
				return version, "", fmt.Errorf("%w: %w", collectors.ErrProtocol, err)
			}
			if status.Code == 0 {
				status.Code = http.StatusInternalServerError
			}
			return version, "", kube.Worded(&apierrors.StatusError{ErrStatus: status})
		default:
			s.metrics.malformed.WithLabelValues(s.resource).Inc()
			continue
		}
		var of struct {
			Meta struct {
				Version string `json:"resourceVersion"`
			} `json:"metadata"`
		}
		if c.version == "" {
			if json.Unmarshal(f.Object, &of) == nil {
				c.version = of.Meta.Version
			}
		}
		if c.version == "" {
			continue
		}
		version = c.version
		if err := send(ctx, out, c); err != nil {
			return version, "", err
		}
	}
}

func send(ctx context.Context, out chan<- change, c change) error {
	select {
	case out <- c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

var errFrame = errors.New("a message of a watch is too large")

// frames bounds what is read for one message.
type frames struct {
	from io.Reader
	left int
}

// Read implements [io.Reader].
func (f *frames) Read(b []byte) (int, error) {
	if f.left <= 0 {
		return 0, errFrame
	}
	n, err := f.from.Read(b[:min(len(b), f.left)])
	f.left -= n
	return n, err
}

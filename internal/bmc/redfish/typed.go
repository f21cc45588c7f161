package redfish

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/stmcginnis/gofish"
	"github.com/stmcginnis/gofish/schemas"
)

// carrier carries the requests of gofish over the session of a client: one connection and
// one login, whoever speaks. What changes something is sent at most once.
type carrier struct {
	c         *Client
	requestID string
	refused   *StatusError // the last answer that said no
	location  string       // of the last answer to a change: gofish reads it of HTTP 202 alone
	changed   bool         // something was sent that changes something
}

// errTwice ends a call that would change something again.
var errTwice = errors.New("redfish: a change is sent once")

// RoundTrip implements [http.RoundTripper].
func (t *carrier) RoundTrip(r *http.Request) (*http.Response, error) {
	var body *payload
	if r.Body != nil {
		defer func() { _ = r.Body.Close() }()
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		body = &payload{bytes.NewReader(raw), r.Header.Get("Content-Type"), int64(len(raw))}
	}
	if err := t.c.login(r.Context()); err != nil {
		return nil, err
	}
	if changes := r.Method != http.MethodGet && r.Method != http.MethodHead; changes && t.changed && !t.outdated() {
		return nil, errTwice
	} else if changes {
		t.changed = true
	}
	header := http.Header{}
	if tag := r.Header.Get("If-Match"); tag != "" {
		header.Set("If-Match", tag)
	}
	if r.Method != http.MethodGet && t.requestID != "" {
		header.Set("X-Request-Id", t.requestID)
	}
	raw, resp, err := t.c.send(r.Context(), t.c.http, r.Method, r.URL.RequestURI(), body, header)
	if st := (*StatusError)(nil); errors.As(err, &st) {
		t.refused, err = st, nil
	}
	if err != nil {
		return nil, err
	}
	if r.Method != http.MethodGet {
		t.location = resp.Header.Get("Location")
	}
	resp.Body, resp.Request = io.NopCloser(bytes.NewReader(raw)), r
	return resp, nil
}

// outdated reports whether what was sent was refused for its tag alone: gofish then sends it
// again without one.
func (t *carrier) outdated() bool {
	return t.refused != nil && t.refused.Status == http.StatusPreconditionFailed
}

// refusal makes an error of gofish one of this package: the words of a refusal without the
// document around them.
func (t *carrier) refusal(err error) error {
	if err != nil && t.refused != nil {
		return t.refused
	}
	return err
}

// typed lets gofish speak over the session, as long as ctx holds. The request id goes into the
// header X-Request-Id of what changes something.
func (c *Client) typed(ctx context.Context, requestID string) (*gofish.APIClient, *carrier, error) {
	t := &carrier{c: c, requestID: requestID}
	api, err := gofish.ConnectContext(ctx, gofish.ClientConfig{
		Endpoint: c.base.String(), HTTPClient: &http.Client{Transport: t}, ReuseConnections: true, NoModifyTransport: true,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read service root of %s: %w", c.base.Host, t.refusal(err))
	}
	return api, t, nil
}

// Manager finds the manager of the system that [Client.System] finds, or the first that can be reset.
func (c *Client) Manager(ctx context.Context) (Object, error) {
	if s, err := c.System(ctx); err == nil {
		if of := s.Object("Links").Objects("ManagedBy"); len(of) > 0 {
			return c.Get(ctx, of[0].ID())
		}
	} else if !errors.Is(err, ErrNotFound) {
		return nil, err
	}
	root, err := c.Root(ctx)
	if err != nil {
		return nil, err
	}
	managers, _, err := c.Members(ctx, orDefault(root.Link("Managers"), "/redfish/v1/Managers"))
	if err != nil {
		return nil, fmt.Errorf("list managers of %s: %w", c.base.Host, err)
	}
	for _, m := range managers {
		if m.Object("Actions").Object("#Manager.Reset").String("target") != "" {
			return m, nil
		}
	}
	if len(managers) == 0 {
		return nil, fmt.Errorf("%w: %s has no manager", ErrNotFound, c.base.Host)
	}
	return managers[0], nil
}

// ResetManager restarts the controller itself, once: GracefulRestart where it knows that and force is
// false, else ForceRestart. The system that it manages goes on.
func (c *Client) ResetManager(ctx context.Context, force bool, requestID string) error {
	m, err := c.Manager(ctx)
	if err != nil {
		return before(err)
	}
	if m.Object("Actions").Object("#Manager.Reset").String("target") == "" {
		return fmt.Errorf("%w: %s has no reset action", ErrNotFound, m.ID())
	}
	api, t, err := c.typed(ctx, requestID)
	if err != nil {
		return before(err)
	}
	manager, err := schemas.GetManager(api, m.ID())
	if err != nil {
		return before(fmt.Errorf("read %s: %w", m.ID(), t.refusal(err)))
	}
	allowed, err := manager.GetSupportedResetTypes()
	if err != nil {
		return before(fmt.Errorf("read what %s takes: %w", m.ID(), t.refusal(err)))
	}
	kind := schemas.ForceRestartResetType
	switch graceful, forced := has(allowed, schemas.GracefulRestartResetType), has(allowed, kind); {
	case graceful && (!force || !forced):
		kind = schemas.GracefulRestartResetType
	case !forced:
		return fmt.Errorf("%w: %s can only be reset by %v", ErrNotFound, m.ID(), allowed)
	}
	t.refused = nil
	_, err = manager.Reset(kind)
	return t.refusal(err)
}

// has reports whether a list that names what is allowed allows it; an empty one allows all.
func has[T comparable](allowed []T, want T) bool {
	return len(allowed) == 0 || slices.Contains(allowed, want)
}

// ErrBefore marks an error that came before anything was sent that changes something.
var ErrBefore = errors.New("nothing was sent")

func before(err error) error { return fmt.Errorf("%w: %w", ErrBefore, err) }

// Package kube reaches an API server of Kubernetes, for all who do: where it is and who we are, requests whose answers
// are bounded, what its refusals say, and which server of the inventory a node is.
package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

const (
	timeout = 15 * time.Second // of one request
	maxBody = 64 << 20         // of one answer, unpacked
)

// Client speaks to one API server, for all who do in one part of a process. The zero value is ready.
type Client struct {
	mu   sync.Mutex
	core *rest.RESTClient
}

// REST reads the settings with the first request, and anew after one that nobody was let in with.
func (k *Client) REST(settings func() (*rest.Config, error)) (*rest.RESTClient, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.core != nil {
		return k.core, nil
	}
	cfg, err := settings()
	if err != nil {
		return nil, err
	}
	cfg.QPS, cfg.Burst = 50, 200
	cfg.UserAgent = "auspex"
	cfg.WarningHandler = rest.NoWarnings{}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return bounded{next} })
	web, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	// The token is added to each request, and would follow a redirect anywhere.
	web.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if k.core, err = rest.RESTClientForConfigAndClient(cfg, web); err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return k.core, nil
}

// bounded gives up an answer that is larger than any may be; a watch has no end.
type bounded struct{ next http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := b.next.RoundTrip(r)
	if err == nil && res.Body != nil && !r.URL.Query().Has("watch") {
		res.Body = http.MaxBytesReader(nil, res.Body, maxBody)
	}
	return res, err
}

// WrappedRoundTripper says what is inside, for who closes its connections.
func (b bounded) WrappedRoundTripper() http.RoundTripper { return b.next }

// Strange drops a client that was not let in: its token may have been renewed.
func (k *Client) Strange(c *rest.RESTClient, err error) bool {
	if !apierrors.IsUnauthorized(err) {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.core == c {
		k.core = nil
	}
	return true
}

// Do sends one request, once: who repeats it looks at the world before. Only where nobody was let in,
// and so nothing was done, it is sent again with what the settings say by now.
func (k *Client) Do(ctx context.Context, settings func() (*rest.Config, error), ask func(*rest.RESTClient) *rest.Request, into runtime.Object) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return k.twice(settings, func(c *rest.RESTClient) error {
		res := ask(c).MaxRetries(0).Do(ctx)
		if into == nil {
			return res.Error()
		}
		return res.Into(into)
	})
}

// Raw sends one request as [Client.Do] does, and returns the answer as it came; ctx bounds its time.
func (k *Client) Raw(ctx context.Context, settings func() (*rest.Config, error), ask func(*rest.RESTClient) *rest.Request) (body []byte, err error) {
	err = k.twice(settings, func(c *rest.RESTClient) error {
		res := ask(c).MaxRetries(0).Do(ctx)
		if err := res.Error(); err != nil { // which, unlike that of Raw, is what the server says
			return err
		}
		body, err = res.Raw()
		return err
	})
	return body, err
}

// Stream begins a watch. The caller closes it; it ends with ctx.
func (k *Client) Stream(ctx context.Context, settings func() (*rest.Config, error), ask func(*rest.RESTClient) *rest.Request) (stream io.ReadCloser, err error) {
	err = k.twice(settings, func(c *rest.RESTClient) (err error) {
		stream, err = ask(c).MaxRetries(0).Stream(ctx)
		return err
	})
	return stream, err
}

// Close ends idle connections.
func (k *Client) Close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.core != nil && k.core.Client != nil {
		utilnet.CloseIdleConnectionsFor(k.core.Client.Transport)
	}
}

func (k *Client) twice(settings func() (*rest.Config, error), send func(*rest.RESTClient) error) (err error) {
	for range 2 {
		var c *rest.RESTClient
		if c, err = k.REST(settings); err != nil {
			return err
		}
		if err = send(c); !k.Strange(c, err) {
			break
		}
	}
	return Worded(err)
}

// Worded says more plainly what an API server answered.
func Worded(err error) error {
	switch {
	case apierrors.IsForbidden(err): // which names the verb and the resource
		return fmt.Errorf("the role lacks a right: %w", err)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return fmt.Errorf("the answer was lost: %w", err)
	}
	return err
}

// Refused reports whether an error is an answer that says that nothing was done. An API server that
// could not finish in time may have done it all the same.
func Refused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500 && code != http.StatusRequestTimeout
}

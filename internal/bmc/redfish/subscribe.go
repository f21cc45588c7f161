package redfish

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
)

// Subscription is where a service sends events to (DSP0268, EventDestination). Context is ours, and comes with each message.
type Subscription struct {
	Destination, Context string
	Format               string // Event or MetricReport
}

// AddSubscription makes a subscription below an event service, and returns its path. It is sent once, and once more in the words of older
// services where the first ones are refused.
func (c *Client) AddSubscription(ctx context.Context, service Object, s Subscription) (path string, err error) {
	at := service.Link("Subscriptions")
	if at == "" {
		return "", ErrNotFound
	}
	body := map[string]any{"Destination": s.Destination, "Context": s.Context, "Protocol": "Redfish"}
	if slices.Contains(service.Strings("EventFormatTypes"), s.Format) {
		body["EventFormatType"] = s.Format
	}
	path, err = c.create(ctx, at, body)
	if st := new(StatusError); errors.As(err, &st) && st.Status == http.StatusBadRequest {
		body["SubscriptionType"], body["EventTypes"] = "RedfishEvent", []string{"Alert"}
		if s.Format == FormatReports {
			body["EventTypes"] = []string{"MetricReport"}
		}
		path, err = c.create(ctx, at, body)
	}
	if err == nil && path == "" { // DSP0266, section 7.9: the answer names it; some do not
		path, err = c.Subscribed(ctx, service, s)
	}
	return path, err
}

// What a subscription asks for (DSP0268, EventFormatType).
const (
	FormatEvents  = "Event"
	FormatReports = "MetricReport"
)

// create posts a new member of a collection and returns its path, "" where the answer does not say it.
func (c *Client) create(ctx context.Context, path string, body any) (string, error) {
	raw, resp, err := c.do(ctx, http.MethodPost, path, body, nil)
	if err != nil {
		return "", err
	}
	if at, err := url.Parse(resp.Header.Get("Location")); err == nil && at.Path != "" && (at.Host == "" || at.Host == c.base.Host) {
		return c.Canonical(at.Path), nil
	}
	if o, err := c.parse(path, raw); err == nil {
		return o.ID(), nil
	}
	return "", nil
}

// Subscribed finds a subscription among those of a service by its context, "" where it has none.
func (c *Client) Subscribed(ctx context.Context, service Object, s Subscription) (path string, err error) {
	all, _, err := c.Members(ctx, service.Link("Subscriptions"))
	for _, o := range all {
		if o.String("Context") == s.Context && (s.Format == "" || o.String("EventFormatType") == s.Format || o.String("EventFormatType") == "") {
			return o.ID(), nil
		}
	}
	return "", err
}

// Unsubscribe ends a subscription if it is still the one with this context.
func (c *Client) Unsubscribe(ctx context.Context, path, own string) error {
	o, err := c.Get(ctx, path)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil
	case err != nil:
		return err
	case o.String("Context") != own:
		return nil // its number was given to another one
	}
	_, _, err = c.do(ctx, http.MethodDelete, path, nil, nil)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// TestEvent has a service send an event to who has subscribed, where it can; it may reach others too, who are told that it is a test.
func (c *Client) TestEvent(ctx context.Context, service Object) error {
	target := service.Object("Actions").Object("#EventService.SubmitTestEvent").String("target")
	if target == "" {
		return nil
	}
	body := map[string]any{"MessageId": "ResourceEvent.1.3.TestMessage", "Severity": "OK", "Message": "A test of whether events arrive"}
	if kinds := service.Object("Actions").Object("#EventService.SubmitTestEvent").Strings("EventType@Redfish.AllowableValues"); len(kinds) > 0 {
		body["EventType"] = kinds[0]
	}
	_, _, err := c.do(ctx, http.MethodPost, target, body, nil)
	return err
}

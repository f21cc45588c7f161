package redfish

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"

	"auspex/internal/bmc/redfish"
)

// subscription is what a service was asked to send to us, where it has no stream of events.
type subscription struct {
	door    *door
	paths   []string  // at the service
	checked time.Time // that they are there
	again   time.Time // not asked for before
	former  bool      // what another process may have left was looked for
	told    bool      // that there is none, and why
}

// left is what a process keeps of its subscriptions, so that the next one ends them and nobody else's. It is written before the
// first of them is made.
type left struct {
	Context string   `json:"context"`
	Paths   []string `json:"paths,omitempty"`
}

const (
	subscriptionCursor = Name + ".subscription"
	endWithin          = 2 * time.Second // to end subscriptions when a device is read no more
)

// subscribe has a service send its events to us, and looks every [Config.Reconcile] whether it still does.
func (r *reader) subscribe(ctx context.Context, now time.Time) error {
	s := &r.sub
	if r.hook == nil || now.Before(s.again) || r.found.serves.Link("Subscriptions") == "" {
		return nil
	}
	if len(s.paths) > 0 {
		if now.Sub(s.checked) < r.cfg.Reconcile {
			return nil
		}
		s.checked = now
		if there, err := r.subscribed(ctx); there || err != nil {
			return err
		}
		r.hook.lost.Inc() // the service has started anew, or somebody has removed it
		s.former = false
	}
	if err := r.endFormer(ctx); err != nil {
		return err
	}
	s.door, s.paths = r.hook.open(r.target.ID, r.ear), nil
	if err := r.keepSubscription(ctx); err != nil {
		return err
	}
	s.former = false // until all is known to be there, or not to be
	formats := []string{redfish.FormatEvents}
	if slices.Contains(r.found.serves.Strings("EventFormatTypes"), redfish.FormatReports) && r.found.reports() {
		formats = append(formats, redfish.FormatReports)
	}
	for _, format := range formats {
		path, err := r.c.AddSubscription(ctx, r.found.serves, redfish.Subscription{Destination: r.hook.destination(s.door), Context: s.door.context, Format: format})
		switch st := new(redfish.StatusError); {
		case errors.As(err, &st) && st.Status != http.StatusUnauthorized, errors.Is(err, redfish.ErrProtocol), err == nil && path == "":
			if format == redfish.FormatEvents {
				return r.unheard(ctx, now, err)
			}
			continue // reports are polled
		case err != nil:
			return err
		}
		s.paths = append(s.paths, path)
	}
	if err := r.keepSubscription(ctx); err != nil {
		return err
	}
	there, err := r.subscribed(ctx)
	if err != nil {
		return err
	}
	if !there { // it does not say whose a subscription is: ours could not be told from another's
		return r.unheard(ctx, now, errors.New("the service does not show the context of a subscription"))
	}
	s.former, s.checked, s.told = true, now, false
	if err := r.c.TestEvent(ctx, r.found.serves); err != nil {
		r.s.Log.Debug("the service sends no test event", "error", err) // its logs are polled until it sends something
	}
	return nil
}

// subscribed reports whether the subscriptions are there, and ours.
func (r *reader) subscribed(ctx context.Context) (bool, error) {
	for _, path := range r.sub.paths {
		o, err := r.c.Get(ctx, path)
		switch {
		case errors.Is(err, redfish.ErrNotFound), err == nil && o.String("Context") != r.sub.door.context:
			return false, nil
		case err != nil:
			return true, r.tolerate(path, err)
		}
	}
	return true, nil
}

// unheard gives up for now: the logs are polled.
func (r *reader) unheard(ctx context.Context, now time.Time, why error) error {
	s := &r.sub
	r.hook.refused.Inc()
	s.again = now.Add(r.cfg.DiscoveryInterval)
	if !s.told {
		s.told = true
		n := "unknown"
		if o, err := r.c.Get(ctx, r.found.serves.Link("Subscriptions")); err == nil {
			n = o.Text("Members@odata.count")
		}
		r.s.Log.Warn("the service takes no subscription to its events, its table may be full; the logs are polled", "subscriptions", n, "error", why)
	}
	err := r.endFormer(ctx)
	r.hook.shut(s.door)
	s.door, s.paths = nil, nil
	return err
}

// endFormer ends the subscriptions that are noted as ours.
func (r *reader) endFormer(ctx context.Context) error {
	s := &r.sub
	if s.former || r.s.Cursors == nil {
		s.former = true
		return nil
	}
	text, err := r.s.Cursors.Cursor(ctx, subscriptionCursor, r.target.ID)
	if err != nil {
		return err
	}
	var was left
	if json.Unmarshal([]byte(text), &was) == nil && was.Context != "" {
		if len(was.Paths) == 0 { // it ended between asking and hearing
			for range 2 {
				path, err := r.c.Subscribed(ctx, r.found.serves, redfish.Subscription{Context: was.Context})
				if err != nil || path == "" || r.c.Unsubscribe(ctx, path, was.Context) != nil {
					break
				}
			}
		}
		for _, path := range was.Paths {
			err := r.c.Unsubscribe(ctx, path, was.Context)
			if st := new(redfish.StatusError); errors.As(err, &st) && st.Status != http.StatusUnauthorized {
				r.s.Log.Warn("cannot end a subscription of ours", "subscription", path, "error", err)
			} else if err != nil {
				return err
			}
		}
		if err := r.s.Cursors.SetCursor(ctx, subscriptionCursor, r.target.ID, ""); err != nil {
			return err
		}
	}
	s.former = true
	return nil
}

func (r *reader) keepSubscription(ctx context.Context) error {
	if r.s.Cursors == nil {
		return nil
	}
	text, err := json.Marshal(left{r.sub.door.context, r.sub.paths})
	if err != nil {
		return err
	}
	return r.s.Cursors.SetCursor(ctx, subscriptionCursor, r.target.ID, string(text))
}

// unsubscribe ends what was subscribed to, where the service can be reached; what is left is noted, and ended by who reads it next.
func (r *reader) unsubscribe(ctx context.Context) {
	if r.sub.door == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
	defer cancel()
	r.sub.former = false
	if err := r.endFormer(ctx); err != nil {
		r.s.Log.Debug("cannot end the subscription", "error", err)
	}
	r.hook.shut(r.sub.door)
	r.sub = subscription{}
	r.ear.deaf()
}

package redfish

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"
)

const (
	subscriptionsPath = root + "/EventService/Subscriptions"
	testEventTarget   = root + "/EventService/Actions/EventService.SubmitTestEvent"
	// MaxSubscriptions is the number of subscriptions at a time, as small on real controllers.
	MaxSubscriptions = 10
	// deliveries is how often a message is sent that is not taken.
	deliveries = 3
)

// subscription is one to whom events are sent (DSP0268, EventDestination).
type subscription struct {
	id                   int
	destination, context string
	test                 chan object
	stop                 context.CancelFunc
}

// subscriptions are those of a controller; they outlast its restarts.
type subscriptions struct {
	mu     sync.Mutex
	last   int
	all    []*subscription
	closed bool
	wg     sync.WaitGroup
}

// Close ends what is sent to who has subscribed.
func (h *handler) Close() {
	s := &h.subscriptions
	s.mu.Lock()
	s.closed = true
	for _, x := range s.all {
		x.stop()
	}
	s.all = nil
	s.mu.Unlock()
	s.wg.Wait()
}

func (h *handler) subscribe(w http.ResponseWriter, body []byte) {
	doc, p := decodeObject(body)
	if p != nil {
		h.fail(w, p)
		return
	}
	missing := func(name string) {
		h.fail(w, &problem{
			status: http.StatusBadRequest, id: "PropertyMissing",
			text: "The property " + name + " is a required property and must be included in the request.",
			args: []string{name}, property: name,
		})
	}
	destination, _ := doc["Destination"].(string)
	if u, err := url.Parse(destination); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		missing("Destination")
		return
	}
	if protocol, _ := doc["Protocol"].(string); protocol != "Redfish" {
		missing("Protocol")
		return
	}
	x := &subscription{destination: destination, test: make(chan object, 1)}
	x.context, _ = doc["Context"].(string)
	ctx, cancel := context.WithCancel(context.Background())
	x.stop = cancel
	s := &h.subscriptions
	s.mu.Lock()
	full := len(s.all) >= MaxSubscriptions || s.closed
	if !full {
		s.last++
		x.id = s.last
		s.all = append(s.all, x)
		news := h.news()
		s.wg.Go(func() { h.deliver(ctx, x, news) })
	}
	s.mu.Unlock()
	if full {
		cancel()
		h.fail(w, &problem{
			status: http.StatusServiceUnavailable, id: "EventSubscriptionLimitExceeded",
			text: "The event subscription failed due to the number of simultaneous subscriptions exceeding the limit of the implementation.",
		})
		return
	}
	out, err := json.Marshal(x.doc())
	if err != nil {
		h.fail(w, &problem{status: http.StatusInternalServerError, id: "InternalError", text: "The subscription cannot be encoded."})
		return
	}
	w.Header().Set("Location", x.path())
	h.write(w, http.StatusCreated, out)
}

func (x *subscription) path() string { return subscriptionsPath + "/" + strconv.Itoa(x.id) }

func (x *subscription) doc() object {
	return object{
		"@odata.id": x.path(), "@odata.type": "#EventDestination.v1_14_0.EventDestination", "Id": strconv.Itoa(x.id), "Name": "Event Subscription",
		"Destination": x.destination, "Context": x.context, "Protocol": "Redfish", "SubscriptionType": "RedfishEvent", "EventFormatType": "Event",
		"Status": enabled("OK"), "HttpHeaders": []object{},
	}
}

// subscribed is the collection, or one of it; nil where there is no such.
func (h *handler) subscribed(path string) object {
	s := &h.subscriptions
	s.mu.Lock()
	defer s.mu.Unlock()
	members := make([]object, 0, len(s.all))
	for _, x := range s.all {
		if x.path() == path {
			return x.doc()
		}
		members = append(members, link(x.path()))
	}
	if path != subscriptionsPath {
		return nil
	}
	return object{
		"@odata.id": subscriptionsPath, "@odata.type": "#EventDestinationCollection.EventDestinationCollection", "Name": "Event Subscriptions",
		"Members": members, "Members@odata.count": len(members),
	}
}

// unsubscribe ends a subscription, and reports whether there was one.
func (h *handler) unsubscribe(path string) bool {
	s := &h.subscriptions
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.all, func(x *subscription) bool { return x.path() == path })
	if i < 0 {
		return false
	}
	s.all[i].stop()
	s.all = slices.Delete(s.all, i, i+1)
	return true
}

// testEvent sends an event to all who have subscribed.
func (h *handler) testEvent(w http.ResponseWriter, body []byte) {
	doc, p := decodeObject(body)
	if p != nil {
		h.fail(w, p)
		return
	}
	ev := object{"EventId": "test", "MemberId": "0", "EventType": "Alert", "EventTimestamp": stamp(h.b.Now())}
	for _, k := range []string{"MessageId", "Message", "Severity", "MessageArgs"} {
		if v, ok := doc[k]; ok {
			ev[k] = v
		}
	}
	s := &h.subscriptions
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.all {
		select {
		case x.test <- ev:
		default:
		}
	}
	w.WriteHeader(http.StatusNoContent)
}

// deliver sends each new record to a subscriber. What is not taken is sent again a few times, and then left out.
func (h *handler) deliver(ctx context.Context, x *subscription, news func() []object) {
	client := &http.Client{
		Timeout: 5 * time.Second,
		// Controllers check certificates where they were told to (DSP0268, VerifyCertificate).
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}, //nolint:gosec // as above
	}
	tick := time.NewTicker(streamEvery)
	defer tick.Stop()
	var waiting []object
	for id, failed := 1, 0; ; {
		select {
		case <-ctx.Done():
			return
		case ev := <-x.test:
			waiting = append(waiting, ev)
		case <-tick.C:
		}
		if f := h.b.Fault(); f.Away || f.Mute || f.Delay > 0 {
			continue
		}
		if waiting = append(waiting, news()...); len(waiting) == 0 {
			continue
		}
		m := message(id, waiting)
		m["Context"] = x.context
		if failed++; post(ctx, client, x.destination, m) || failed >= deliveries {
			waiting, failed = nil, 0
			id++
		}
	}
}

// post reports whether a message was taken.
func post(ctx context.Context, client *http.Client, destination string, m object) bool {
	body, err := json.Marshal(m)
	if err != nil {
		return true
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, destination, bytes.NewReader(body))
	if err != nil {
		return false
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode/100 == 2
}

package redfish

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"auspex/internal/sim/device"
)

const streamPath = root + "/EventService/SSE"

// streamEvery is how often a stream looks at the log.
const streamEvery = 500 * time.Millisecond

func eventService() object {
	return object{
		"@odata.id": root + "/EventService", "@odata.type": "#EventService.v1_10_0.EventService", "Id": "EventService", "Name": "Event Service",
		"ServiceEnabled": true, "Status": enabled("OK"), "ServerSentEventUri": streamPath, "EventFormatTypes": []string{"Event"},
		"DeliveryRetryAttempts": deliveries, "DeliveryRetryIntervalSeconds": 1, "Subscriptions": link(subscriptionsPath),
		"Actions": object{"#EventService.SubmitTestEvent": object{"target": testEventTarget}},
	}
}

// stream sends each new record of the event log as an event, until the client goes, or the controller does.
func (h *handler) stream(w http.ResponseWriter, r *http.Request) {
	started := func() (t time.Time) {
		if h.board != nil {
			t = h.board.Started()
		}
		return t
	}
	began, news := started(), h.news() // what is written once the client has heard is sent
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	if out.Flush() != nil {
		return
	}
	tick := time.NewTicker(streamEvery)
	defer tick.Stop()
	for id := 1; ; {
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
		}
		f := h.b.Fault()
		if f.Away || !started().Equal(began) {
			panic(http.ErrAbortHandler)
		}
		if f.Mute || f.Delay > 0 {
			continue
		}
		fresh := news()
		if len(fresh) == 0 {
			continue
		}
		body, err := json.Marshal(message(id, fresh))
		if err != nil {
			return
		}
		if _, err := fmt.Fprintf(w, "id: %d\ndata: %s\n\n", id, body); err != nil || out.Flush() != nil {
			return
		}
		id++
	}
}

// news returns what tells the records that were written since it was last called.
func (h *handler) news() func() []object {
	records, erased := h.b.Log()
	last := lastID(records)
	return func() (fresh []object) {
		records, at := h.b.Log()
		if !at.Equal(erased) {
			erased, last = at, 0
		}
		for i := range records {
			if records[i].ID > last {
				fresh = append(fresh, h.pushed(&records[i]))
			}
		}
		last = lastID(records)
		return fresh
	}
}

func message(id int, events []object) object {
	return object{"@odata.type": "#Event.v1_7_0.Event", "Id": strconv.Itoa(id), "Name": "Event Array", "Events": events}
}

// pushed is a record as an event, which its log has as an entry.
func (h *handler) pushed(r *device.LogRecord) object {
	e := h.view().entry(r)
	return object{
		"EventId": e["Id"], "MemberId": e["Id"], "EventTimestamp": e["Created"], "EventType": "Alert", "Severity": e["Severity"], "MessageSeverity": e["Severity"],
		"Message": e["Message"], "MessageId": e["MessageId"], "MessageArgs": e["MessageArgs"], "LogEntry": link(e["@odata.id"].(string)),
	}
}

func lastID(records []device.LogRecord) (last uint16) {
	for i := range records {
		last = max(last, records[i].ID)
	}
	return last
}

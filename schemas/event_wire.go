package schemas

import (
	"time"

	"auspex/schemas/auspexv1"
)

// Wire returns the event in the wire format; the attributes are shared.
func (e *Event) Wire() *auspexv1.Event {
	return &auspexv1.Event{
		Id: e.ID, Time: e.Time.UnixNano(), Observed: e.Observed.UnixNano(), Source: e.Source, Resource: e.Resource,
		Type: e.Type, Code: e.Code, Severity: string(e.Severity), State: e.State, Message: e.Message, Attrs: e.Attrs,
	}
}

// EventFromWire is the inverse of [Event.Wire]; the attributes are shared.
func EventFromWire(w *auspexv1.Event) Event {
	return Event{
		ID: w.GetId(), Time: time.Unix(0, w.GetTime()).UTC(), Observed: time.Unix(0, w.GetObserved()).UTC(), Source: w.GetSource(),
		Resource: w.GetResource(), Type: w.GetType(), Code: w.GetCode(), Severity: Severity(w.GetSeverity()),
		State: w.GetState(), Message: w.GetMessage(), Attrs: w.GetAttrs(),
	}
}

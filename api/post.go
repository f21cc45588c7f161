package api

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/bus"
	"auspex/internal/cmdb"
	"auspex/internal/store/audit"
	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

// Bounds of what callers post.
const (
	maxFields    = 64       // of data, at its top
	maxDataDepth = 4        // of data
	maxDataBytes = 16 << 10 // of data as JSON
	maxAttrBytes = 256      // of a field that stands beside those of an event
	maxAhead     = 30 * time.Second
	maxBehind    = 24 * time.Hour // for which detection knows what it has seen
	publishTime  = 3 * time.Second
	busyAfter    = 5 * time.Second
)

// kindWorkload is the source_type of a job.
const kindWorkload = cmdb.KindWorkload

var (
	dataName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,63}$`)
	// ownTypes are types of events by which Auspex itself learns what is declared, runs where, and lets it in.
	ownTypes = []string{
		schemas.EventMaintenanceDeclared, schemas.EventMaintenanceEnded, schemas.EventWorkloadState, schemas.EventNodeState, schemas.EventWorkloadDevices, schemas.EventAccessRefused,
	}
	// reserved are attributes that say who saw something and when.
	reserved = []string{
		schemas.AttrExternal, schemas.AttrPostedBy, schemas.AttrPosted, schemas.AttrAlert, schemas.AttrGrew, "rule", "collector", "device", "clock",
		schemas.AttrClockSkew, "action",
	}
)

// report is what a caller posts, as an event or as an alert.
type report struct {
	what                                     string // event or alert
	kind, id, typ, code, state, message, key string
	severity                                 schemas.Severity
	at                                       time.Time
	data                                     map[string]any
	fieldType, fieldTime                     string // what the caller calls them
}

// PostEvent implements the operation postEvent.
func (s *Server) PostEvent(ctx context.Context, r apigen.PostEventRequestObject) (apigen.PostEventResponseObject, error) {
	b := r.Body
	ev, err := s.post(ctx, &report{
		what: "event", kind: b.SourceType, id: b.SourceID, typ: b.EventType, code: b.Code, state: b.State, message: b.Message,
		severity: schemas.Severity(b.Severity), at: b.OccurredAt, data: b.Data, key: r.Params.IdempotencyKey,
		fieldType: "event_type", fieldTime: "occurred_at",
	})
	if err != nil {
		return nil, err
	}
	return apigen.PostEvent201JSONResponse{Body: eventOf(ev, s.live.directory()), Headers: apigen.PostEvent201ResponseHeaders{
		Location: s.cfg.BasePath + "/api/v1/events/" + url.PathEscape(ev.ID),
	}}, nil
}

// PostAlert implements the operation postAlert.
func (s *Server) PostAlert(ctx context.Context, r apigen.PostAlertRequestObject) (apigen.PostAlertResponseObject, error) {
	b := r.Body
	severity := schemas.Severity(b.Severity)
	for _, of := range []schemas.Severity{schemas.SeverityInfo, schemas.SeverityWarning, schemas.SeverityError, schemas.SeverityCritical} {
		if b.Priority != of.Priority() {
			continue
		}
		if severity != "" && severity != of {
			return nil, wrong("body", apigen.FieldProblem{Field: "priority", Detail: b.Priority + " is severity " + string(of) + ", and severity is " + b.Severity})
		}
		severity = of
	}
	if severity == "" {
		return nil, wrong("body", apigen.FieldProblem{Field: "severity", Detail: "it is missing, and so is priority"})
	}
	ev, err := s.post(ctx, &report{
		what: "alert", kind: b.SourceType, id: b.SourceID, typ: b.AlertType, code: b.Code, message: b.Message, severity: severity,
		state: map[string]string{alertActive: schemas.StateRaised, schemas.AlertResolved: schemas.StateCleared}[b.Status],
		at:    b.TriggeredAt, data: b.Data, key: r.Params.IdempotencyKey, fieldType: "alert_type", fieldTime: "triggered_at",
	})
	if err != nil {
		return nil, err
	}
	return apigen.PostAlert201JSONResponse{Body: eventOf(ev, s.live.directory()), Headers: apigen.PostAlert201ResponseHeaders{
		Location: s.cfg.BasePath + "/api/v1/alerts/" + url.PathEscape(ev.ID),
	}}, nil
}

// post puts what a caller reports on the bus. When it returns, it is durable there.
func (s *Server) post(ctx context.Context, r *report) (schemas.Event, error) {
	if err := may(ctx, access.Post); err != nil {
		return schemas.Event{}, err
	}
	if s.deps.Publisher == nil {
		return schemas.Event{}, problem{http.StatusServiceUnavailable, "read_only", "This console cannot publish events.", "Run a role that has the bus."}
	}
	now, names := time.Now().UTC(), s.live.directory()
	ev, device, err := r.event(ctx, names, now)
	if err != nil {
		return ev, err
	}
	if !seen(ctx).has(ev.Resource) {
		return ev, problem{http.StatusForbidden, "not_yours", "You do not have " + ev.Resource + " now.", "Whoever is in a team reports of what their team has."}
	}
	batch := auspexv1.Batch{Device: device, Collector: schemas.SourceAPI, Observed: now.UnixNano(), Events: []*auspexv1.Event{ev.Wire()}}
	value, err := batch.MarshalVT()
	if err != nil {
		return ev, fmt.Errorf("encode event %s: %w", ev.ID, err)
	}
	// Who asks is written before it is done: what is on the bus has its row.
	row := audit.Row{Time: now, Actor: Caller(ctx).Name, Verb: "post", Kind: r.what, Subject: ev.Resource, Action: ev.ID, Detail: ev.Type + " " + string(ev.Severity)}
	if err := s.deps.DB.InTx(ctx, func(tx *sql.Tx) error { return audit.Append(ctx, tx, row) }); err != nil {
		return ev, err
	}
	pctx, cancel := context.WithTimeout(ctx, publishTime)
	defer cancel()
	if err := s.deps.Publisher.Publish(pctx, bus.Message{Topic: schemas.TopicEvents, Key: device, Value: value}); err != nil {
		s.meter.posted.WithLabelValues(r.what, "refused").Inc()
		if ctx.Err() != nil {
			return ev, ctx.Err()
		}
		if errors.Is(err, bus.ErrTooLarge) {
			return ev, tooLarge(maxDataBytes)
		}
		s.log.Warn("the bus does not take what a caller posts", "event", ev.ID, "error", err)
		return ev, busy{problem{
			http.StatusServiceUnavailable, "bus_busy", "The bus does not take the " + r.what + " now.",
			"Send it again with the same Idempotency-Key: it is counted once.",
		}, busyAfter}
	}
	s.meter.posted.WithLabelValues(r.what, "taken").Inc()
	return ev, nil
}

// event makes the event of what is reported, and tells the device that it is of.
func (r *report) event(ctx context.Context, names *cmdb.Snapshot, now time.Time) (ev schemas.Event, device string, err error) {
	bad := func(field, format string, args ...any) error {
		return wrong("body", apigen.FieldProblem{Field: field, Detail: fmt.Sprintf(format, args...)})
	}
	if slices.Contains(ownTypes, r.typ) {
		return ev, "", bad(r.fieldType, "%s is told by Auspex alone", r.typ)
	}
	resource, err := r.resource(names)
	if err != nil {
		return ev, "", err
	}
	at := r.at.UTC()
	switch {
	case r.at.IsZero():
		at = now
	case at.Sub(now) > maxAhead:
		return ev, "", bad(r.fieldTime, "it is more than %s ahead of our clock, which is at %s", maxAhead, now.Format(time.RFC3339))
	case now.Sub(at) > maxBehind:
		return ev, "", bad(r.fieldTime, "it is more than %s ago", maxBehind)
	}
	attrs, posted, err := attrsOf(r.data)
	if err != nil {
		return ev, "", err
	}
	who := Caller(ctx)
	attrs[schemas.AttrExternal], attrs[schemas.AttrPostedBy] = "true", who.Name
	if posted != "" {
		attrs[schemas.AttrPosted] = posted
	}
	if r.what == "alert" {
		attrs[schemas.AttrAlert] = "true"
	}
	said := ""
	if !r.at.IsZero() {
		said = at.Format(time.RFC3339Nano)
	}
	id := []string{r.what, accountOf(who), resource, r.typ, string(r.severity), r.code, r.state, r.message, posted, said}
	switch {
	case r.key != "":
		id = append(id, "key", r.key)
	case said == "":
		id = append(id, now.Format(time.RFC3339Nano)) // nothing says that two are one
	}
	h := sha256.New()
	for _, part := range id {
		_, _ = fmt.Fprintf(h, "%d %s", len(part), part)
	}
	if at.After(now) {
		at = now // a clock that is a little ahead: nothing happened yet that has not happened
	}
	ev = schemas.Event{
		ID: "x" + hex.EncodeToString(h.Sum(nil)[:16]), Time: at, Observed: now, Source: schemas.SourceAPI, Resource: resource, Type: r.typ, Code: r.code,
		Severity: r.severity, State: r.state, Message: r.message, Attrs: attrs,
	}
	return ev, cmp.Or(names.Server(resource), resource), nil
}

// resource finds what the report is of: a resource of the inventory by any of its names, or a job.
func (r *report) resource(names *cmdb.Snapshot) (string, error) {
	if r.kind == kindWorkload {
		if _, ok := names.Workload(r.id); ok {
			return r.id, nil
		}
		return "", wrong("body", apigen.FieldProblem{Field: "source_id", Detail: "there is no job " + r.id})
	}
	found := names.Find(r.id)
	if len(found) == 0 {
		detail := "there is no resource " + r.id
		if like := names.Nearest(r.id, 3); len(like) > 0 {
			detail += "; names like it: " + strings.Join(like, ", ")
		}
		return "", wrong("body", apigen.FieldProblem{Field: "source_id", Detail: detail})
	}
	if of := slices.DeleteFunc(slices.Clone(found), func(name string) bool { k, _ := names.Resource(name); return k.Kind != r.kind }); r.kind != "" && len(of) > 0 {
		found = of
	}
	name, err := one(names, r.id, "resource", found)
	if err != nil {
		return "", err
	}
	if k, _ := names.Resource(name); r.kind != "" && k.Kind != r.kind {
		return "", wrong("body", apigen.FieldProblem{Field: "source_type", Detail: fmt.Sprintf("%s is a %s", name, k.Kind)})
	}
	return name, nil
}

// attrsOf makes attributes of the plain fields of data, at which enrichment looks for the part, and returns data as JSON.
func attrsOf(data map[string]any) (attrs map[string]string, posted string, err error) {
	attrs = make(map[string]string, len(data)+4)
	bad := func(field, format string, args ...any) error {
		return wrong("body", apigen.FieldProblem{Field: strings.TrimSuffix("data."+field, "."), Detail: fmt.Sprintf(format, args...)})
	}
	if len(data) == 0 {
		return attrs, "", nil
	}
	if len(data) > maxFields {
		return nil, "", bad("", "it has %d fields; at most %d are taken", len(data), maxFields)
	}
	doc, err := json.Marshal(data) // sorted by name
	if err != nil {
		return nil, "", err
	}
	if len(doc) > maxDataBytes {
		return nil, "", bad("", "it has %d bytes as JSON; at most %d are taken", len(doc), maxDataBytes)
	}
	for _, name := range slices.Sorted(maps.Keys(data)) {
		switch {
		case slices.Contains(reserved, name):
			return nil, "", bad(name, "this name is for what Auspex itself says")
		case !dataName.MatchString(name):
			return nil, "", bad(name, "a name begins with a letter and has at most 64 letters, digits and . _ -")
		}
		if detail := deep(data[name], 1); detail != "" {
			return nil, "", bad(name, "%s", detail)
		}
		text := ""
		switch v := data[name].(type) {
		case string:
			text = v
		case bool:
			text = strconv.FormatBool(v)
		case float64:
			text = strconv.FormatFloat(v, 'f', -1, 64)
		}
		if text != "" && len(text) <= maxAttrBytes {
			attrs[name] = text
		}
	}
	return attrs, string(doc), nil
}

// deep says what of a value cannot be kept, or "".
func deep(v any, depth int) string {
	if depth > maxDataDepth {
		return fmt.Sprintf("values lie more than %d deep in one another", maxDataDepth)
	}
	switch v := v.(type) {
	case map[string]any:
		for _, of := range v {
			if detail := deep(of, depth+1); detail != "" {
				return detail
			}
		}
	case []any:
		for _, of := range v {
			if detail := deep(of, depth+1); detail != "" {
				return detail
			}
		}
	case float64:
		if math.Abs(v) > 1<<53 && v == math.Trunc(v) {
			return "a whole number beyond 2^53 is not kept exactly; write it as text"
		}
	}
	return ""
}

// posted is what a caller posted beside the fields of an event; of all other events it is their attributes.
// shown are the attributes without that copy.
func posted(e *schemas.Event) (data map[string]any, shown map[string]string) {
	doc := e.Attrs[schemas.AttrPosted]
	if !e.External() || doc == "" || json.Unmarshal([]byte(doc), &data) != nil {
		data = make(map[string]any, len(e.Attrs))
		if !e.External() {
			for k, v := range e.Attrs {
				data[k] = v
			}
		}
	}
	if doc == "" {
		return data, e.Attrs
	}
	shown = maps.Clone(e.Attrs)
	delete(shown, schemas.AttrPosted)
	return data, shown
}

// source is what an event is of, by kind and id: a resource of the inventory, or a job.
func source(names *cmdb.Snapshot, name string) (kind, id string) {
	if r := refer(names, name); r.ID != "" {
		return r.Kind, r.ID
	}
	if _, ok := names.Workload(name); ok {
		return kindWorkload, name
	}
	return "", ""
}

// eventOf is an event as the API has it.
func eventOf(e schemas.Event, names *cmdb.Snapshot) apigen.Event {
	out := apigen.Event{
		ID: e.ID, Time: e.Time, Observed: e.Observed, OccurredAt: e.Time, Source: e.Source, Resource: e.Resource, Type: e.Type, EventType: e.Type,
		Code: e.Code, Severity: e.Severity, State: e.State, Message: e.Message,
	}
	out.SourceType, out.SourceID = source(names, e.Resource)
	out.Data, out.Attrs = posted(&e)
	return out
}

func eventsOf(all []schemas.Event, names *cmdb.Snapshot) []apigen.Event {
	out := make([]apigen.Event, len(all))
	for k, e := range all {
		out[k] = eventOf(e, names)
	}
	return out
}

// GetEvent implements the operation getEvent.
func (s *Server) GetEvent(ctx context.Context, r apigen.GetEventRequestObject) (apigen.GetEventResponseObject, error) {
	a, found, err := s.deps.Records.Alert(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	ev := a.Event
	if !found && s.deps.History != nil {
		if ev, found, err = s.deps.History.Event(ctx, r.ID); err != nil {
			s.log.Warn("cannot read history", "error", err)
			return nil, problem{http.StatusServiceUnavailable, "no_history", "The history did not answer.", "Try again; see the log of the server."}
		}
	}
	if !found {
		return nil, missing("event", r.ID)
	}
	return apigen.GetEvent200JSONResponse(eventOf(ev, s.live.directory())), nil
}

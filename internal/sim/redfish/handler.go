// Package redfish is the Redfish service of a simulated board controller (DMTF
// DSP0266 and the schemas of DSP0268), laid out as the controllers of NVIDIA's
// HGX machines lay theirs out, and answered from the fleet's physical model.
package redfish

import (
	"bytes"
	"encoding/json"
	"errors"
	"hash/fnv"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"auspex/internal/sim/device"
)

const (
	maxBody = 1 << 20
	// PageSize is the number of log entries in an answer; more follow behind
	// Members@odata.nextLink.
	PageSize = 50
	// MaxExpand is the deepest $levels that $expand takes.
	MaxExpand = 6
)

// object is a JSON object.
type object = map[string]any

// problem is an answer that is not a success: an entry of the Base registry
// (DSP0268) with its arguments.
type problem struct {
	status   int
	id       string // of the message in the Base registry
	text     string
	args     []string
	property string
}

// Handler is the service of one controller.
type Handler = handler

type handler struct {
	b        device.BMC
	board    device.Board // nil where the controller does nothing with its board
	limiter  device.PowerLimiter
	sessions sessions

	subscriptions subscriptions
}

// NewHandler returns the Redfish service of a controller. All but the service root
// and the login need HTTP basic authentication or a session's X-Auth-Token. A mute
// controller holds a request until the client goes away, so end its server with
// Close, not with Shutdown. [Handler.Close] ends what is sent to who has subscribed to events.
func NewHandler(b device.BMC) *Handler {
	h := &handler{b: b, sessions: sessions{byToken: map[string]*session{}}}
	h.board, _ = b.(device.Board)
	h.limiter, _ = b.(device.PowerLimiter)
	return h
}

// ServeHTTP implements [http.Handler].
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// The body is read first: only then does the server notice a client that goes.
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		h.fail(w, &problem{status: http.StatusRequestEntityTooLarge, id: "GeneralError", text: "The request body cannot be read."})
		return
	}
	f := h.b.Fault()
	if f.Away {
		panic(http.ErrAbortHandler)
	}
	if h.board != nil {
		h.sessions.since(h.board.Started())
	}
	if f.Mute {
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	}
	if f.Delay > 0 {
		t := time.NewTimer(f.Delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
	}
	if f.Status != 0 {
		h.fail(w, &problem{
			status: f.Status, id: "InternalError", text: "The request failed due to an internal service error. The service is still operational.",
		})
		return
	}
	w.Header().Set("OData-Version", "4.0")
	w.Header().Set("Cache-Control", "no-cache")
	path := cleanPath(r.URL.Path)
	if !h.open(path, r.Method) && !h.authenticated(r) {
		w.Header().Set("WWW-Authenticate", `Basic realm="BMC"`)
		h.fail(w, &problem{
			status: http.StatusUnauthorized, id: "NoValidSession", text: "There is no valid session established with the implementation.",
		})
		return
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		h.get(w, r, path)
	case http.MethodPost:
		h.post(w, r, path, body)
	case http.MethodPatch:
		h.patch(w, r, path, body)
	case http.MethodDelete:
		h.remove(w, path)
	default:
		h.notAllowed(w, path)
	}
}

// cleanPath drops a trailing slash.
func cleanPath(p string) string {
	if p = strings.TrimRight(p, "/"); p == "" {
		return "/"
	}
	return p
}

// open tells what needs no authentication (DSP0266, section 13.3).
func (h *handler) open(path, method string) bool {
	switch path {
	case "/redfish", "/redfish/v1", "/redfish/v1/odata", "/redfish/v1/$metadata":
		return method == http.MethodGet || method == http.MethodHead
	case sessionsPath:
		return method == http.MethodPost
	}
	return false
}

// write sends a JSON body, cut in half where the controller garbles.
func (h *handler) write(w http.ResponseWriter, status int, body []byte) {
	if h.b.Fault().Garble {
		body = body[:len(body)/2]
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may be gone
}

func (h *handler) fail(w http.ResponseWriter, p *problem) {
	info := object{
		"@odata.type":     "#Message.v1_1_2.Message",
		"MessageId":       "Base.1.18." + p.id,
		"Message":         p.text,
		"MessageArgs":     append([]string{}, p.args...),
		"MessageSeverity": "Critical",
		"Severity":        "Critical",
		"Resolution":      "See the message and correct the request.",
	}
	if p.property != "" {
		info["RelatedProperties"] = []string{"#/" + p.property}
	}
	body, err := json.Marshal(object{"error": object{
		"code": "Base.1.18." + p.id, "message": p.text, "@Message.ExtendedInfo": []object{info},
	}})
	if err != nil {
		body = []byte("{}")
	}
	h.write(w, p.status, body)
}

func (h *handler) missing(w http.ResponseWriter, path string) {
	h.fail(w, &problem{
		status: http.StatusNotFound, id: "ResourceMissingAtURI", text: "The resource at the URI " + path + " was not found.",
		args: []string{path},
	})
}

func (h *handler) notAllowed(w http.ResponseWriter, path string) {
	w.Header().Set("Allow", h.allowed(path))
	h.fail(w, &problem{
		status: http.StatusMethodNotAllowed, id: "OperationNotAllowed", text: "The HTTP method is not allowed on this resource.",
	})
}

// writable tells what a PATCH may go to.
func (h *handler) writable(path string) bool {
	return path == systemPath || path == managerPath || path == biosNextPath && h.board != nil || path == powerPath && h.limiter != nil
}

func (h *handler) allowed(path string) string {
	switch {
	case path == sessionsPath, path == subscriptionsPath:
		return "GET, HEAD, POST"
	case h.writable(path):
		return "GET, HEAD, PATCH"
	case strings.HasPrefix(path, sessionsPath+"/"), strings.HasPrefix(path, subscriptionsPath+"/"):
		return "GET, HEAD, DELETE"
	case strings.Contains(path, "/Actions/"):
		return "POST"
	}
	return "GET, HEAD"
}

// etag is a weak one: a hash of the document and one of what can be written in it.
// A GET compares both, a PATCH the second alone: a sensor that moves between a
// client's GET and its PATCH is no conflict.
func etag(doc object) (string, error) {
	hash := func(v any) (string, error) {
		body, err := json.Marshal(v)
		if err != nil {
			return "", err
		}
		x := fnv.New64a()
		_, _ = x.Write(body)
		return strconv.FormatUint(x.Sum64(), 16), nil
	}
	whole, err := hash(doc)
	if err != nil {
		return "", err
	}
	writable, err := hash([]any{doc["Boot"], doc["Attributes"], limitOf(doc)})
	return `W/"` + whole + "-" + writable + `"`, err
}

// writableTag cuts the first hash off each tag of a header.
func writableTag(header string) string {
	var out []string
	for part := range strings.SplitSeq(header, ",") {
		part = strings.TrimPrefix(strings.TrimSpace(part), "W/")
		if _, rest, ok := strings.Cut(part, "-"); ok {
			part = `"` + rest
		}
		out = append(out, part)
	}
	return strings.Join(out, ",")
}

func (h *handler) get(w http.ResponseWriter, r *http.Request, path string) {
	if path == "/redfish/v1/$metadata" {
		w.Header().Set("Content-Type", "application/xml")
		_, _ = io.WriteString(w, metadata)
		return
	}
	if path == streamPath && r.Method == http.MethodGet {
		h.stream(w, r)
		return
	}
	q, err := parseQuery(r.URL.RawQuery)
	if err != nil {
		h.fail(w, err)
		return
	}
	v := h.view()
	doc := v.resource(path, q)
	if doc == nil {
		if strings.Contains(path, "/Actions/") {
			h.notAllowed(w, path)
			return
		}
		h.missing(w, path)
		return
	}
	if err := q.page(doc); err != nil {
		h.fail(w, err)
		return
	}
	if q.levels > 0 {
		v.expand(doc, path, q, q.levels, true)
	}
	tag, terr := etag(doc)
	body, jerr := json.Marshal(doc)
	if jerr != nil || terr != nil {
		h.fail(w, &problem{status: http.StatusInternalServerError, id: "InternalError", text: "The resource cannot be encoded."})
		return
	}
	w.Header().Set("ETag", tag)
	if matchTag(r.Header.Get("If-None-Match"), tag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.write(w, http.StatusOK, body)
}

// matchTag compares entity tags weakly.
func matchTag(header, tag string) bool {
	for part := range strings.SplitSeq(header, ",") {
		part = strings.TrimPrefix(strings.TrimSpace(part), "W/")
		if part != "" && (part == "*" || part == strings.TrimPrefix(tag, "W/")) {
			return true
		}
	}
	return false
}

// expand puts the resources that a document links to in the place of the links.
func (v *view) expand(doc object, path string, q query, levels int, top bool) {
	for key, val := range doc {
		if key == "Links" && !q.links || key != "Links" && !q.subordinate || key == "RelatedItem" {
			continue
		}
		doc[key] = v.expandValue(val, path, q, levels, top && key == "Members")
	}
}

func (v *view) expandValue(val any, path string, q query, levels int, member bool) any {
	switch x := val.(type) {
	case object:
		id, ok := x["@odata.id"].(string)
		if ok && len(x) == 1 {
			// A document must not hold itself.
			if strings.HasPrefix(path, id) {
				return x
			}
			doc := v.resource(id, query{top: -1})
			if doc == nil {
				return x
			}
			if levels > 1 {
				v.expand(doc, id, q, levels-1, false)
			}
			return doc
		}
		if !member && !ok {
			v.expand(x, path, q, levels, false)
		}
		return x
	case []object:
		for i := range x {
			if o, ok := v.expandValue(x[i], path, q, levels, member).(object); ok {
				x[i] = o
			}
		}
	}
	return val
}

func (h *handler) post(w http.ResponseWriter, r *http.Request, path string, body []byte) {
	switch path {
	case sessionsPath:
		h.login(w, body)
	case subscriptionsPath:
		h.subscribe(w, body)
	case testEventTarget:
		h.testEvent(w, body)
	case resetTarget:
		h.reset(w, r, body)
	case clearTarget:
		h.b.ClearLog()
		w.WriteHeader(http.StatusNoContent)
	default:
		if do := map[string]func(http.ResponseWriter, *http.Request, []byte){
			managerTarget: h.restart, simpleTarget: h.simpleUpdate, pushPath: h.push,
		}[path]; do != nil && h.board != nil {
			do(w, r, body)
			return
		}
		if h.view().resource(path, query{top: -1}) == nil {
			h.missing(w, path)
			return
		}
		h.notAllowed(w, path)
	}
}

// decodeObject reads a JSON object.
func decodeObject(body []byte) (object, *problem) {
	var doc object
	if err := json.NewDecoder(bytes.NewReader(body)).Decode(&doc); err != nil || doc == nil {
		return nil, &problem{
			status: http.StatusBadRequest, id: "MalformedJSON",
			text: "The request body submitted was malformed JSON and could not be parsed by the receiving service.",
		}
	}
	return doc, nil
}

func (h *handler) reset(w http.ResponseWriter, r *http.Request, body []byte) {
	doc, p := decodeObject(body)
	if p != nil {
		h.fail(w, p)
		return
	}
	kind, ok := doc["ResetType"].(string)
	if !ok {
		h.fail(w, &problem{
			status: http.StatusBadRequest, id: "ActionParameterMissing",
			text: "The action ComputerSystem.Reset requires the parameter ResetType to be present in the request body.",
			args: []string{"ComputerSystem.Reset", "ResetType"}, property: "ResetType",
		})
		return
	}
	refused := &problem{
		status: http.StatusBadRequest, id: "ActionParameterValueNotInList",
		text: "The value " + kind + " for the parameter ResetType in the action ComputerSystem.Reset is not in the list of acceptable values.",
		args: []string{kind, "ResetType", "ComputerSystem.Reset"}, property: "ResetType",
	}
	if !slices.Contains(resetTypes, kind) {
		h.fail(w, refused)
		return
	}
	switch err := h.b.Reset(device.ResetType(kind), "redfish", r.Header.Get("X-Request-Id")); {
	case errors.Is(err, device.ErrUnsupported):
		h.fail(w, refused)
	case err != nil:
		h.fail(w, &problem{status: http.StatusInternalServerError, id: "InternalError", text: "The reset failed: " + err.Error() + "."})
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

func (h *handler) patch(w http.ResponseWriter, r *http.Request, path string, body []byte) {
	if !h.writable(path) {
		if h.view().resource(path, query{top: -1}) == nil {
			h.missing(w, path)
			return
		}
		h.notAllowed(w, path)
		return
	}
	doc, p := decodeObject(body)
	if p != nil {
		h.fail(w, p)
		return
	}
	if want := r.Header.Get("If-Match"); want != "" {
		now, err := etag(h.view().resource(path, query{top: -1}))
		if err == nil && !matchTag(writableTag(want), writableTag(now)) {
			h.fail(w, &problem{
				status: http.StatusPreconditionFailed, id: "PreconditionFailed",
				text: "The ETag supplied did not match the current ETag of the resource.",
			})
			return
		}
	}
	switch path {
	case systemPath:
		p = h.patchSystem(doc)
	case biosNextPath:
		p = h.patchBIOS(doc)
	case powerPath:
		p = h.patchPower(doc, r.Header.Get("X-Request-Id"))
	default:
		p = h.patchManager(doc)
	}
	if p != nil {
		h.fail(w, p)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func unknownProperty(name string) *problem {
	return &problem{
		status: http.StatusBadRequest, id: "PropertyNotWritable",
		text: "The property " + name + " is a read-only property and cannot be assigned a value.",
		args: []string{name}, property: name,
	}
}

func (h *handler) patchSystem(doc object) *problem {
	b := h.b.Boot()
	changed := false
	for name, val := range doc {
		if strings.HasPrefix(name, "@") {
			continue
		}
		boot, ok := val.(object)
		if name != "Boot" || !ok {
			return unknownProperty(name)
		}
		for key, val := range boot {
			s, _ := val.(string)
			var allowed []string
			var field *string
			switch key {
			case "BootSourceOverrideEnabled":
				allowed, field = bootEnabled, &b.Enabled
			case "BootSourceOverrideTarget":
				allowed, field = bootTargets, &b.Target
			case "BootSourceOverrideMode":
				allowed, field = bootModes, &b.Mode
			default:
				return unknownProperty("Boot/" + key)
			}
			if !slices.Contains(allowed, s) {
				return &problem{
					status: http.StatusBadRequest, id: "PropertyValueNotInList",
					text: "The value " + s + " for the property " + key + " is not in the list of acceptable values.",
					args: []string{s, key}, property: "Boot/" + key,
				}
			}
			*field, changed = s, true
		}
	}
	if !changed {
		return nil
	}
	return bootProblem(h.b.SetBoot(b))
}

func bootProblem(err error) *problem {
	switch {
	case errors.Is(err, device.ErrUnsupported):
		return &problem{status: http.StatusBadRequest, id: "PropertyValueConflict", text: "The boot override is not supported by this system."}
	case err != nil:
		return &problem{status: http.StatusInternalServerError, id: "InternalError", text: "The boot override failed: " + err.Error() + "."}
	}
	return nil
}

func (h *handler) patchManager(doc object) *problem {
	for name, val := range doc {
		if strings.HasPrefix(name, "@") {
			continue
		}
		s, _ := val.(string)
		if name != "DateTime" {
			return unknownProperty(name)
		}
		t, err := time.Parse(time.RFC3339, s)
		if err != nil {
			return &problem{
				status: http.StatusBadRequest, id: "PropertyValueFormatError",
				text: "The value " + s + " for the property DateTime is not of a format that is accepted.",
				args: []string{s, name}, property: name,
			}
		}
		h.b.SetClock(t)
	}
	return nil
}

package redfish

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"github.com/stmcginnis/gofish/schemas"
)

// ErrComponent says that a component is not there, or that a name is of several.
var ErrComponent = errors.New("redfish: firmware component")

// Component is something with firmware.
type Component struct {
	Name, Version string
	Target        string // what an update is told to install to
	Fixed         bool   // the service says that it cannot be updated
}

// Component finds what has firmware by its id or name in the firmware inventory, or by a part of them. A service
// without an inventory has the BIOS of its system and the firmware of its manager.
func (c *Client) Component(ctx context.Context, name string) (Component, error) {
	root, err := c.Root(ctx)
	if err != nil {
		return Component{}, err
	}
	var all []Object
	if service := root.Link("UpdateService"); service != "" {
		o, err := c.Get(ctx, service)
		if err == nil && o.Link("FirmwareInventory") != "" {
			all, _, err = c.Members(ctx, o.Link("FirmwareInventory"))
		}
		if err != nil && !errors.Is(err, ErrNotFound) {
			return Component{}, fmt.Errorf("read the firmware inventory of %s: %w", c.base.Host, err)
		}
	}
	called := func(o Object) []string { return []string{o.String("Id"), o.String("Name")} }
	for _, fits := range []func(string) bool{
		func(s string) bool { return strings.EqualFold(s, name) },
		func(s string) bool { return strings.Contains(strings.ToLower(s), strings.ToLower(name)) },
	} {
		var found []Object
		for _, o := range all {
			if slices.ContainsFunc(called(o), fits) {
				found = append(found, o)
			}
		}
		switch {
		case len(found) == 1:
			o := found[0]
			updateable, told := o["Updateable"].(bool)
			return Component{Name: orDefault(o.String("Id"), name), Version: o.String("Version"), Target: o.ID(), Fixed: told && !updateable}, nil
		case len(found) > 1:
			return Component{}, fmt.Errorf("%w: %q is one of %s", ErrComponent, name, names(found))
		}
	}
	if len(all) == 0 {
		switch strings.ToLower(name) {
		case "bios":
			s, err := c.System(ctx)
			if err != nil {
				return Component{}, err
			}
			if v := s.String("BiosVersion"); v != "" {
				return Component{Name: "bios", Version: v, Target: s.ID()}, nil
			}
		case "bmc":
			m, err := c.Manager(ctx)
			if err != nil {
				return Component{}, err
			}
			if v := m.String("FirmwareVersion"); v != "" {
				return Component{Name: "bmc", Version: v, Target: m.ID()}, nil
			}
		}
	}
	return Component{}, fmt.Errorf("%w: there is no %q; there are %s", ErrComponent, name, orDefault(names(all), "none"))
}

func names(all []Object) string {
	var out []string
	for _, o := range all {
		out = append(out, o.String("Id"))
	}
	return strings.Join(out, ", ")
}

// Ways says how a service takes images: SimpleUpdate, with which it fetches them, and multipart HTTP push.
type Ways struct {
	Simple, Push string // where; "" is not at all
	service      string
	protocols    []string
}

// Ways reads them.
func (c *Client) Ways(ctx context.Context) (w Ways, err error) {
	root, err := c.Root(ctx)
	if err != nil {
		return w, err
	}
	if w.service = root.Link("UpdateService"); w.service == "" {
		return w, fmt.Errorf("%w: %s has no update service", ErrNotFound, c.base.Host)
	}
	o, err := c.Get(ctx, w.service)
	if err != nil {
		return w, fmt.Errorf("read the update service of %s: %w", c.base.Host, err)
	}
	action := o.Object("Actions").Object("#UpdateService.SimpleUpdate")
	w.Simple, w.protocols = action.String("target"), action.Strings("TransferProtocol@Redfish.AllowableValues")
	if push := o.String("MultipartHttpPushUri"); push != "" {
		w.Push = c.Canonical(push)
	}
	return w, nil
}

// Fetches reports whether SimpleUpdate fetches over a scheme such as https.
func (w *Ways) Fetches(scheme string) bool {
	return w.Simple != "" && has(w.protocols, strings.ToUpper(scheme))
}

// SimpleUpdate has the service fetch an image and install it, once. It returns the path of a task,
// or "" where the service names none.
func (c *Client) SimpleUpdate(ctx context.Context, w *Ways, image, target, requestID string) (task string, err error) {
	api, t, err := c.typed(ctx, requestID)
	if err != nil {
		return "", before(err)
	}
	service, err := schemas.GetUpdateService(api, w.service)
	if err != nil {
		return "", before(fmt.Errorf("read %s: %w", w.service, t.refusal(err)))
	}
	scheme, _, _ := strings.Cut(image, "://")
	t.refused = nil
	info, err := service.SimpleUpdate(&schemas.UpdateServiceSimpleUpdateParameters{
		ImageURI: image, Targets: []string{target}, TransferProtocol: schemas.TransferProtocolType(strings.ToUpper(scheme)),
	})
	if err != nil {
		return "", t.refusal(err)
	}
	return c.taskOf(info, t.location), nil
}

// taskOf is the path of a task: that of the resource where the service shows it, else of its monitor.
func (c *Client) taskOf(info *schemas.TaskMonitorInfo, location string) string {
	if info != nil && info.Task != nil && info.Task.ODataID != "" {
		return c.Canonical(info.Task.ODataID)
	}
	if info != nil && info.TaskMonitor != "" {
		location = info.TaskMonitor
	}
	if location == "" {
		return ""
	}
	return c.Canonical(location)
}

// Push sends an image and has the service install it, once (DSP0266, section "Multipart HTTP push
// updates"). The image is read as it is sent: gofish would hold all of it in memory, and leave the order of
// the parts to chance. The context bounds it, and not the timeout of one request.
func (c *Client) Push(ctx context.Context, w *Ways, image io.Reader, size int64, name, target, requestID string) (task string, err error) {
	if err := c.login(ctx); err != nil {
		return "", before(err)
	}
	var head bytes.Buffer
	form := multipart.NewWriter(&head)
	part, err := form.CreatePart(textproto.MIMEHeader{"Content-Disposition": {`form-data; name="UpdateParameters"`}, "Content-Type": {"application/json"}})
	if err == nil {
		err = json.NewEncoder(part).Encode(map[string]any{"Targets": []string{target}})
	}
	if err == nil {
		_, err = form.CreateFormFile("UpdateFile", name)
	}
	if err != nil {
		return "", before(err)
	}
	tail := "\r\n--" + form.Boundary() + "--\r\n"
	body := &payload{
		io.MultiReader(bytes.NewReader(head.Bytes()), io.LimitReader(image, size), strings.NewReader(tail)), form.FormDataContentType(),
		int64(head.Len()) + size + int64(len(tail)),
	}
	header := http.Header{}
	if requestID != "" {
		header.Set("X-Request-Id", requestID)
	}
	over := *c.http
	over.Timeout = 0
	raw, resp, err := c.send(ctx, &over, http.MethodPost, w.Push, body, header)
	if err != nil {
		return "", err
	}
	var o Object
	if json.Unmarshal(raw, &o) == nil && strings.Contains(o.String("@odata.type"), "#Task.") && o.ID() != "" {
		return c.Canonical(o.ID()), nil
	}
	return c.taskOf(nil, resp.Header.Get("Location")), nil
}

// Task is how far something is.
type Task struct {
	ID, Name string
	State    string // as Redfish names it (DSP2046, Task.TaskState)
	Percent  int    // -1 where it does not say
	Messages []string
}

// ended are the states in which a task changes no more.
var ended = []string{"Completed", "Killed", "Exception", "Cancelled", "Interrupted"}

// Ended reports whether a task changes no more.
func (t *Task) Ended() bool { return slices.Contains(ended, t.State) }

// Task reads a task, or its monitor, which answers without a task once that has ended.
func (c *Client) Task(ctx context.Context, path string) (Task, error) {
	raw, resp, err := c.do(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return Task{}, err
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		if resp.StatusCode == http.StatusAccepted {
			return Task{ID: path, State: "Running", Percent: -1}, nil
		}
		return Task{ID: path, State: "Completed", Percent: -1}, nil
	}
	o, err := c.parse(path, raw)
	if err != nil {
		return Task{}, err
	}
	t := task(o)
	switch {
	case t.State != "":
	case resp.StatusCode == http.StatusAccepted:
		t.State = "Running"
	default: // what the monitored request has made
		t.State = "Completed"
	}
	return t, nil
}

func task(o Object) Task {
	t := Task{ID: o.ID(), Name: o.String("Name"), State: o.String("TaskState"), Percent: -1}
	if p, ok := o.Number("PercentComplete"); ok {
		t.Percent = int(p)
	}
	for _, m := range o.Objects("Messages") {
		if text := m.String("Message"); text != "" {
			t.Messages = append(t.Messages, text)
		}
	}
	return t
}

// Updating finds an update that is under way, whoever began it; ok is false where there is none, or
// the service shows no tasks.
func (c *Client) Updating(ctx context.Context) (t Task, ok bool, err error) {
	root, err := c.Root(ctx)
	if err != nil {
		return t, false, err
	}
	link := root.Link("TaskService")
	if link == "" {
		link = root.Link("Tasks")
	}
	if link == "" {
		return t, false, nil
	}
	service, err := c.Get(ctx, link)
	if errors.Is(err, ErrNotFound) || err == nil && service.Link("Tasks") == "" {
		return t, false, nil
	} else if err != nil {
		return t, false, fmt.Errorf("read the tasks of %s: %w", c.base.Host, err)
	}
	all, _, err := c.Members(ctx, service.Link("Tasks"))
	if errors.Is(err, ErrNotFound) {
		return t, false, nil
	} else if err != nil {
		return t, false, fmt.Errorf("read the tasks of %s: %w", c.base.Host, err)
	}
	for _, o := range all {
		about := strings.ToLower(o.String("Name") + " " + o.Object("Payload").String("TargetUri"))
		if t := task(o); t.State != "" && !t.Ended() && (strings.Contains(about, "update") || strings.Contains(about, "firmware")) {
			return t, true, nil
		}
	}
	return t, false, nil
}

package tinkerbell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"auspex/control"
	"auspex/schemas"
)

// api is the part of the Kubernetes API that the driver speaks, on objects as they are sent.
type api struct {
	*testing.T
	url string

	mu      sync.Mutex
	version int
	objects map[string]map[string]any // by resource/name
	changed chan struct{}             // closed with each change
	log     []event
	asked   int // workflows and jobs that were to be made
	expired bool
	machine func(w http.ResponseWriter, name string) // answers for board controllers
	forbid  func(*http.Request) bool
	seen    func(kind, resource string, o map[string]any) // is told of each change, under the lock
	// hook is asked before a change: it may cut the connection, before or after the change.
	hook func(r *http.Request) (before, after bool)
}

type event struct {
	resource, kind string
	version        int
	object         map[string]any
}

func newAPI(t *testing.T) *api {
	t.Helper()
	a := &api{T: t, objects: map[string]map[string]any{}, changed: make(chan struct{}), version: 100}
	srv := httptest.NewServer(a)
	a.url = srv.URL
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	return a
}

func kubeconfigFor(t *testing.T, url string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: k, cluster: {server: "` + url + `"}}],
users: [{name: u, user: {token: t}}], contexts: [{name: c, context: {cluster: k, user: u}}]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func deep(m map[string]any) map[string]any {
	b, _ := json.Marshal(m)
	var out map[string]any
	_ = json.Unmarshal(b, &out)
	return out
}

// merge is RFC 7396.
func merge(into, patch map[string]any) {
	for k, v := range patch {
		switch v := v.(type) {
		case nil:
			delete(into, k)
		case map[string]any:
			old, _ := into[k].(map[string]any)
			if old == nil {
				old = map[string]any{}
			}
			merge(old, v)
			into[k] = old
		default:
			into[k] = v
		}
	}
}

func status(w http.ResponseWriter, code int, reason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": message, "code": code})
}

var kinds = map[string]string{workflows: "Workflow", hardware: "Hardware", templates: "Template", jobs: "Job", tasks: "Task", units: "Machine"}

func versionOf(resource string) string {
	switch resource {
	case jobs, tasks, units:
		return bmcGroup.String()
	}
	return group.String()
}

// put writes an object; the caller holds the lock.
func (a *api) put(kind, resource string, o map[string]any) {
	a.version++
	meta := o["metadata"].(map[string]any)
	meta["resourceVersion"] = strconv.Itoa(a.version)
	o["kind"], o["apiVersion"] = kinds[resource], versionOf(resource)
	key := resource + "/" + meta["name"].(string)
	if kind == "DELETED" {
		delete(a.objects, key)
	} else {
		a.objects[key] = o
	}
	a.log = append(a.log, event{resource, kind, a.version, deep(o)})
	if a.seen != nil {
		a.seen(kind, resource, o)
	}
	close(a.changed)
	a.changed = make(chan struct{})
}

func cut() { panic(http.ErrAbortHandler) }

// ServeHTTP implements http.Handler.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/apis/tinkerbell.org/v1alpha1/namespaces/tink/")
	parts := strings.Split(strings.TrimPrefix(path, "/apis/bmc.tinkerbell.org/v1alpha1/namespaces/tink/"), "/")
	resource, name := parts[0], ""
	if len(parts) > 1 {
		name = parts[1]
	}
	if name, ok := strings.CutPrefix(r.URL.Path, "/apis/bmc.tinkerbell.org/v1alpha1/namespaces/tink/machines/"); ok && a.machine != nil {
		w.Header().Set("Content-Type", "application/json")
		a.machine(w, name)
		return
	}
	if kinds[resource] == "" {
		http.NotFound(w, r)
		return
	}
	if r.URL.Query().Get("watch") == "true" || r.URL.Query().Get("watch") == "1" {
		a.watch(w, r, resource)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.forbid != nil && a.forbid(r) {
		status(w, http.StatusForbidden, "Forbidden", fmt.Sprintf(`%s.tinkerbell.org is forbidden: User "auspex" cannot create resource %q`, resource, resource))
		return
	}
	var before, after bool
	if a.hook != nil && r.Method != http.MethodGet {
		before, after = a.hook(r)
	}
	if before {
		cut()
	}
	var body map[string]any
	if b, _ := io.ReadAll(r.Body); len(b) > 0 && json.Unmarshal(b, &body) != nil {
		a.Errorf("%s %s: %s", r.Method, r.URL, b)
	}
	a.answer(w, r, resource, name, body, after)
}

func (a *api) answer(w http.ResponseWriter, r *http.Request, resource, name string, body map[string]any, lose bool) {
	say := func(code int, o map[string]any) {
		if lose {
			cut()
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(o)
	}
	o := a.objects[resource+"/"+name]
	if name != "" && o == nil {
		status(w, http.StatusNotFound, "NotFound", resource+" "+name+" not found")
		return
	}
	switch r.Method {
	case http.MethodPost:
		if resource == workflows || resource == jobs {
			a.asked++
		}
		name, _ := body["metadata"].(map[string]any)["name"].(string)
		if a.objects[resource+"/"+name] != nil {
			status(w, http.StatusConflict, "AlreadyExists", name+" already exists")
			return
		}
		meta := body["metadata"].(map[string]any)
		meta["uid"], meta["creationTimestamp"] = "uid-"+strconv.Itoa(a.version), time.Now().UTC().Format(time.RFC3339)
		a.put("ADDED", resource, body)
		say(http.StatusCreated, body)
	case http.MethodPatch:
		meta, _ := body["metadata"].(map[string]any)
		if v, said := meta["resourceVersion"]; said && v != o["metadata"].(map[string]any)["resourceVersion"] {
			status(w, http.StatusConflict, "Conflict", "the object has been modified")
			return
		}
		next := deep(o)
		merge(next, body)
		a.put("MODIFIED", resource, next)
		say(http.StatusOK, next)
	case http.MethodDelete:
		if want, _ := body["preconditions"].(map[string]any)["uid"].(string); want != "" && want != o["metadata"].(map[string]any)["uid"] {
			status(w, http.StatusConflict, "Conflict", "another uid")
			return
		}
		a.put("DELETED", resource, deep(o))
		say(http.StatusOK, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Success"})
	default:
		if name != "" {
			say(http.StatusOK, o)
			return
		}
		items := []any{}
		for _, key := range slices.Sorted(maps.Keys(a.objects)) {
			if strings.HasPrefix(key, resource+"/") {
				items = append(items, a.objects[key])
			}
		}
		say(http.StatusOK, map[string]any{
			"kind": kinds[resource] + "List", "apiVersion": versionOf(resource), "items": items, "metadata": map[string]any{"resourceVersion": strconv.Itoa(a.version)},
		})
	}
}

// watch streams what follows a version; one that is too old is told so.
func (a *api) watch(w http.ResponseWriter, r *http.Request, resource string) {
	if r.URL.Query().Get("sendInitialEvents") != "" {
		status(w, http.StatusUnprocessableEntity, "Invalid", "sendInitialEvents is forbidden")
		return
	}
	from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	w.Header().Set("Content-Type", "application/json")
	send := func(v any) { _ = json.NewEncoder(w).Encode(v); w.(http.Flusher).Flush() }
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	for {
		a.mu.Lock()
		expired, changed := a.expired, a.changed
		a.expired = false
		var out []event
		for _, e := range a.log {
			if e.version > from && e.resource == resource {
				out, from = append(out, e), e.version
			}
		}
		a.mu.Unlock()
		if expired {
			send(map[string]any{"type": "ERROR", "object": map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410, "message": "too old resource version"}})
			return
		}
		for _, e := range out {
			send(map[string]any{"type": e.kind, "object": e.object})
		}
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		}
	}
}

func (a *api) of(resource, name string) map[string]any {
	a.mu.Lock()
	defer a.mu.Unlock()
	if o := a.objects[resource+"/"+name]; o != nil {
		return deep(o)
	}
	return nil
}

func (a *api) count(resource string) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for key := range a.objects {
		if strings.HasPrefix(key, resource+"/") {
			n++
		}
	}
	return n
}

// say has an object changed as a controller or a person would.
func (a *api) say(resource, name string, patch map[string]any) {
	a.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	o := a.objects[resource+"/"+name]
	if o == nil {
		a.Fatalf("there is no %s %s", resource, name)
	}
	next := deep(o)
	merge(next, patch)
	a.put("MODIFIED", resource, next)
}

func (a *api) add(resource string, o map[string]any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.put("ADDED", resource, o)
}

func (a *api) drop(resource, name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.put("DELETED", resource, deep(a.objects[resource+"/"+name]))
}

// allowed reports whether any hardware may start from the network.
func (a *api) allowed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, o := range a.objects {
		if strings.HasPrefix(key, hardware+"/") {
			b, _ := json.Marshal(o)
			if strings.Contains(string(b), `"allowPXE":true`) {
				return true
			}
		}
	}
	return false
}

const (
	mac    = "02:00:00:00:00:01"
	secret = "correct horse battery"
)

// stock is what servers are installed with in tests.
type stock struct {
	record   schemas.HardwareRecord
	template schemas.Template

	mu     sync.Mutex
	opened []string
	closed []string
	found  map[string]schemas.Wipe // by action
}

// token is what a workflow tells what it found with.
const token = "t0k3n of one workflow"

// Open implements control.Wipes.
func (s *stock) Open(_ context.Context, action, server, workflow string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened = append(s.opened, action+" "+server+" "+workflow)
	return token, nil
}

// Close implements control.Wipes.
func (s *stock) Close(_ context.Context, action string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = append(s.closed, action)
	return nil
}

// Found implements control.Wipes.
func (s *stock) Found(_ context.Context, action string) (schemas.Wipe, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, ok := s.found[action]
	return w, ok, nil
}

// tells has the workflow of an action tell of one drive.
func (s *stock) tells(action string, proven bool, detail string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.found == nil {
		s.found = map[string]schemas.Wipe{}
	}
	s.found[action] = schemas.Wipe{Action: action, Proven: proven, Drives: []schemas.WipeDrive{{Device: "/dev/nvme0n1", Serial: "N0", Proven: proven, Detail: detail}}}
}

const text = `version: "0.1"
name: install
global_timeout: 600
tasks:
  - name: os
    worker: "{{.device_1}}"
    actions:
      - {name: write, image: "example.com/image2disk:v1", timeout: 90, environment: {DEST_DISK: "{{ index .Hardware.Disks 0 }}", PASSWORD: "{{.password}}", N: "{{.n}}", TOKEN: "{{ default "" .wipe_token }}"}}
      - {name: boot, image: "example.com/kexec:v1", timeout: 90}
`

func newStock(server, mac string) *stock {
	r := schemas.HardwareRecord{
		ID: "11111111-2222-4333-8444-" + provisionID(server), Name: server, Model: "m", Lacks: []string{"bmc_credential"}, Installable: false,
		Interfaces: []schemas.HardwareInterface{{Boot: true, DHCP: schemas.HardwareDHCP{MAC: mac, Hostname: server, Arch: schemas.ArchX86, UEFI: true}}},
		Disks:      []schemas.HardwareDisk{{Device: "/dev/nvme0n1", Boot: true}},
		Metadata:   schemas.HardwareMetadata{Hostname: server, Site: "dc1"},
		Facts:      []schemas.HardwareFact{{Fact: schemas.FactArchitecture, Value: schemas.ArchX86}},
		Overrides:  schemas.HardwareOverrides{Template: "linux", TemplateVersion: 2},
	}
	t := schemas.Template{Name: "linux", Status: schemas.TemplateActive}
	t.Version, t.Text, t.Architectures = 2, text, []string{schemas.ArchX86}
	t.Parameters = map[string]any{"type": "object", "properties": map[string]any{
		"password": map[string]any{"type": "string", "writeOnly": true, "default": "secret:root"},
		"n":        map[string]any{"type": "integer", "default": 1},

		"wipe_token": map[string]any{"type": "string", "writeOnly": true},
	}}
	return &stock{record: r, template: t}
}

func provisionID(server string) string { return digest(server)[:12] }

// says has the record say something else.
func (s *stock) says(change func(r *schemas.HardwareRecord)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.record)
}

// Hardware implements control.Installs.
func (s *stock) Hardware(_ context.Context, server string) (schemas.HardwareRecord, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if server != s.record.Name {
		return schemas.HardwareRecord{}, fmt.Errorf("%w: there is no server %s", control.ErrCannot, server)
	}
	return s.record, nil
}

// Template implements control.Installs.
func (s *stock) Template(_ context.Context, name string, version int64) (schemas.Template, error) {
	if name != s.template.Name || version > s.template.Version {
		return schemas.Template{}, fmt.Errorf("%w: there is no template %s", control.ErrCannot, name)
	}
	return s.template, nil
}

// Secret implements control.Secrets.
func (s *stock) Secret(_ context.Context, ref string) (user, password string, err error) {
	if ref != "root" {
		return "", "", errors.New("no such secret")
	}
	return "", secret, nil
}

// lever is the driver of a board controller.
type lever struct {
	mu    sync.Mutex
	asked []string
	set   bool
	err   error
}

// Plan implements control.Remediator.
func (l *lever) Plan(context.Context, control.Step) (schemas.Sentence, error) {
	return schemas.Sentence{}, nil
}

// Apply implements control.Remediator.
func (l *lever) Apply(_ context.Context, s control.Step) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked, l.set = append(l.asked, s.ID), true
	return l.err
}

// Verify implements control.Remediator.
func (l *lever) Verify(context.Context, control.Step) (control.Verdict, schemas.Sentence, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.set {
		return control.Verified, schemas.Sentence{}, nil
	}
	return control.Pending, schemas.Sentence{}, nil
}

func (l *lever) times() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.asked)
}

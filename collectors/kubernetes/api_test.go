package kubernetes

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"auspex/collectors"
	"auspex/collectors/collectortest"
	"auspex/schemas"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = "the-secret-token"

// kubeconfig writes one of a user with a token, which goes over TLS alone; at is a server or an address.
func kubeconfig(t testing.TB, file string, at any) {
	t.Helper()
	url, ca := "", ""
	switch at := at.(type) {
	case string:
		url = "http://" + at
	case *httptest.Server:
		url, ca = at.URL, base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: at.Certificate().Raw}))
	}
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],
clusters: [{name: a, cluster: {server: %q, certificate-authority-data: %q}}], users: [{name: a, user: {token: %s}}]}`, url, ca, secret)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// object is one as an API server has it.
type object = map[string]any

func metadataOf(o object) object { return o["metadata"].(object) }

// fake is an API server of pods, nodes and their owners: lists in pages, watches that go on from a version.
type fake struct {
	*httptest.Server
	mu      sync.Mutex
	changed *sync.Cond
	version int
	oldest  int // versions before it are forgotten
	objects map[string]map[string]object
	log     []logged
	owners  map[string]object // by path
	asked   map[string]int    // "list pods", "watch pods", "get", …
	refuse  func(r *http.Request) (code int, reason string)
	mute    bool // watches say nothing
	cut     int  // grows when all watches are ended
	page    int
}

type logged struct {
	version  int
	resource string
	typ      string
	object   object
}

func newFake(t testing.TB) *fake {
	f := &fake{objects: map[string]map[string]object{"pods": {}, "nodes": {}}, owners: map[string]object{}, asked: map[string]int{}, version: 100, page: 3}
	f.changed = sync.NewCond(&f.mu)
	f.Server = httptest.NewTLSServer(f)
	t.Cleanup(func() {
		f.end()
		f.CloseClientConnections()
		f.Close()
	})
	return f
}

func (f *fake) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cut++
	f.changed.Broadcast()
}

func (f *fake) count(what string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked[what]
}

func (f *fake) do(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	f.changed.Broadcast()
}

// set puts an object, or deletes it where quiet says so, without that a watch is told of it.
func (f *fake) set(resource, typ string, o object) {
	f.do(func() {
		f.version++
		m := metadataOf(o)
		m["resourceVersion"] = strconv.Itoa(f.version)
		key := fmt.Sprint(m["namespace"], "/", m["name"])
		if typ == "DELETED" {
			delete(f.objects[resource], key)
		} else {
			f.objects[resource][key] = o
		}
		b, _ := json.Marshal(o)
		var kept object
		_ = json.Unmarshal(b, &kept)
		f.log = append(f.log, logged{f.version, resource, typ, kept})
	})
}

func (f *fake) forget() {
	f.do(func() { f.oldest, f.log = f.version+1, nil; f.version += 10 })
}

func status(w http.ResponseWriter, code int, reason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code, "message": message})
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	refuse := f.refuse
	f.mu.Unlock()
	if refuse != nil {
		if code, reason := refuse(r); code != 0 {
			status(w, code, reason, fmt.Sprintf("%s is %s: User \"auspex\" cannot read it", r.URL.Path, strings.ToLower(reason)))
			return
		}
	}
	resource := strings.TrimPrefix(r.URL.Path, "/api/v1/")
	if f.objects[resource] == nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.asked["get"]++
		o, ok := f.owners[r.URL.Path]
		if !ok {
			status(w, http.StatusNotFound, "NotFound", "not found")
			return
		}
		_ = json.NewEncoder(w).Encode(o)
		return
	}
	q := r.URL.Query()
	if q.Get("watch") == "" {
		f.list(w, resource, q.Get("continue"))
		return
	}
	from, _ := strconv.Atoi(q.Get("resourceVersion"))
	f.watch(w, r, resource, from)
}

func (f *fake) list(w http.ResponseWriter, resource, from string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if from == "" {
		f.asked["list "+resource]++
	}
	var keys []string
	for k := range f.objects[resource] {
		if k > from {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	next := ""
	if len(keys) > f.page {
		keys = keys[:f.page]
		next = keys[f.page-1]
	}
	items := []object{}
	for _, k := range keys {
		items = append(items, f.objects[resource][k])
	}
	kind := map[string]string{"pods": "PodList", "nodes": "NodeList"}[resource]
	_ = json.NewEncoder(w).Encode(object{
		"kind": kind, "apiVersion": "v1", "metadata": object{"resourceVersion": strconv.Itoa(f.version), "continue": next}, "items": items,
	})
}

func (f *fake) watch(w http.ResponseWriter, r *http.Request, resource string, from int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked["watch "+resource]++
	f.changed.Broadcast()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-r.Context().Done():
			f.do(func() {})
		case <-stop:
		}
	}()
	w.WriteHeader(http.StatusOK)
	say := func(typ string, o any) {
		_ = json.NewEncoder(w).Encode(object{"type": typ, "object": o})
		w.(http.Flusher).Flush()
	}
	w.(http.Flusher).Flush()
	if from < f.oldest {
		say("ERROR", object{"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old resource version"})
		return
	}
	for cut := f.cut; r.Context().Err() == nil && cut == f.cut; f.changed.Wait() {
		for _, l := range f.log {
			if l.resource == resource && l.version > from && !f.mute {
				say(l.typ, l.object)
				from = l.version
			}
		}
	}
}

func TestConformance(t *testing.T) {
	site := schemas.Resource{ID: "dc1", Kind: schemas.KindSite}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	serve := func(t testing.TB, h http.Handler) schemas.Resource {
		srv := httptest.NewTLSServer(h)
		t.Cleanup(func() {
			srv.CloseClientConnections()
			srv.Close()
		})
		kubeconfig(t, file, srv)
		return site
	}
	collectortest.Run(t, collectortest.Harness{
		Name: Name,
		Serve: func(t testing.TB, input string) schemas.Resource {
			var owners map[string]json.RawMessage
			b, err := os.ReadFile(filepath.Join(input, "owners.json"))
			if err == nil {
				err = json.Unmarshal(b, &owners)
			}
			if err != nil {
				t.Fatal(err)
			}
			// Nothing changes before what is listed is about to be told: what is told would else depend on who is faster.
			var mu sync.Mutex
			asked, told := map[string]bool{}, make(chan struct{})
			return serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") != "Bearer "+secret {
					status(w, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
					return
				}
				path := strings.TrimPrefix(r.URL.Path, "/")
				name, found := strings.CutPrefix(path, "api/v1/")
				switch {
				case !found && owners[path] != nil:
					mu.Lock()
					if asked[path] = true; len(asked) == len(owners) {
						select {
						case <-told:
						default:
							close(told)
						}
					}
					mu.Unlock()
					_, _ = w.Write(owners[path])
				case found && r.URL.Query().Get("watch") != "":
					b, _ := os.ReadFile(filepath.Join(input, name+".watch.jsonl"))
					w.WriteHeader(http.StatusOK)
					w.(http.Flusher).Flush()
					select {
					case <-told:
					case <-r.Context().Done():
					}
					if r.URL.Query().Get("resourceVersion") == "10" {
						_, _ = w.Write(b)
					}
					w.(http.Flusher).Flush()
					<-r.Context().Done()
				case found && r.Header.Get("Accept") != "":
					b, _ := os.ReadFile(filepath.Join(input, name+".json"))
					_, _ = w.Write(b)
				default:
					status(w, http.StatusNotFound, "NotFound", "not found")
				}
			}))
		},
		Garbage: func(t testing.TB) schemas.Resource {
			return serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.URL.Query().Get("watch") != "":
					fmt.Fprint(w, `{"type":"MODIFIED","object":{"metadata":7}}{"type":[]}`)
				case strings.HasSuffix(r.URL.Path, "pods"):
					fmt.Fprint(w, `{"kind":"PodList","metadata":{"resourceVersion":"1"},"items":[1,{"metadata":{"uid":"x","name":"a","namespace":"b","ownerReferences":[{}]},"spec":{"nodeName":"n","containers":[{"resources":{"limits":{"nvidia.com/gpu":"-3k"}}}]},"status":{"phase":"Failed","startTime":"yesterday"}}]}`)
				default:
					fmt.Fprint(w, `{"kind":"NodeList","metadata":{"resourceVersion":"1"},"items":[[],{"metadata":{"name":"n","managedFields":[{"fieldsV1":3}]}}]}`)
				}
			}))
		},
		Prepare: func(_ testing.TB, cfg collectors.Config) { cfg.(*Config).Kubeconfig = file },
		At: func(addr string) schemas.Resource {
			kubeconfig(t, file, addr)
			return site
		},
	})
}

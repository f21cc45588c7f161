// Package redfishtest serves Redfish trees of real machines from files, for
// tests: a folder or a .tar.gz archive with one index.json a resource.
package redfishtest

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// Tree holds the documents of a service by path, "/redfish/v1/Systems".
type Tree struct {
	mu   sync.Mutex
	docs map[string]map[string]any
	// Requests counts what was asked for.
	Requests atomic.Int64
	// NoSessions answers 405 to a login, as some services do.
	NoSessions bool
	// NoExpand leaves $expand out of what the service says that it can do.
	NoExpand bool
	// Bytes counts what was sent.
	Bytes atomic.Int64
	// Ignores names the query options that are left unheeded, whatever the service says:
	// "$expand", "$skip", "$top", "$filter".
	Ignores []string
	// PageSize is how many members a page of a collection has; 0 is all.
	PageSize int
	// Rewrite changes each answer before it goes out; it owns the document.
	Rewrite func(path string, doc map[string]any)
	// Hang says which paths are never answered, until the caller leaves.
	Hang func(path string) bool
	// Posted holds the bodies of POST and PATCH by path, with the X-Request-Id.
	posted []Post
}

// Post is a request that would change something.
type Post struct {
	Method, Path, RequestID, Body string
}

// New makes a tree of documents by their path.
func New(docs map[string]map[string]any) *Tree { return &Tree{docs: docs} }

// Open reads a folder or an archive.
func Open(file string) (*Tree, error) {
	t := &Tree{docs: make(map[string]map[string]any)}
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return t, fs.WalkDir(os.DirFS(file), ".", func(p string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || path.Base(p) != "index.json" {
				return err
			}
			raw, err := os.ReadFile(filepath.Join(file, filepath.FromSlash(p)))
			if err != nil {
				return err
			}
			return t.add(p, raw)
		})
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return t, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if path.Base(h.Name) != "index.json" {
			continue
		}
		raw, err := io.ReadAll(r)
		if err != nil {
			return nil, err
		}
		if err := t.add(h.Name, raw); err != nil {
			return nil, err
		}
	}
}

func (t *Tree) add(name string, raw []byte) error {
	var doc map[string]any
	if err := json.Unmarshal(raw, &doc); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	t.docs[strings.TrimSuffix("/"+path.Dir(path.Clean(name)), "/")] = doc
	return nil
}

// Set replaces a document; nil removes it.
func (t *Tree) Set(p string, doc map[string]any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if doc == nil {
		delete(t.docs, p)
		return
	}
	t.docs[p] = doc
}

// Doc returns a document for reading.
func (t *Tree) Doc(p string) map[string]any {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.docs[p]
}

// Paths returns the paths of all documents, sorted.
func (t *Tree) Paths() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Sorted(maps.Keys(t.docs))
}

// Posts returns what was posted or patched.
func (t *Tree) Posts() []Post {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]Post(nil), t.posted...)
}

// ServeHTTP implements [http.Handler]: user admin, password secret.
func (t *Tree) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t.Requests.Add(1)
	p := strings.TrimSuffix(r.URL.Path, "/")
	if t.Hang != nil && t.Hang(p) {
		<-r.Context().Done()
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	user, password, basic := r.BasicAuth()
	authorised := basic && user == "admin" && password == "secret" || r.Header.Get("X-Auth-Token") == "token"
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return
	}
	switch {
	case r.Method == http.MethodPost && strings.HasSuffix(p, "/Sessions"):
		t.login(w, body)
	case p != "/redfish/v1" && !authorised:
		http.Error(w, "{}", http.StatusUnauthorized)
	case r.Method == http.MethodGet:
		t.get(w, r, p)
	case r.Method == http.MethodDelete:
		w.WriteHeader(http.StatusNoContent)
	default:
		t.posted = append(t.posted, Post{r.Method, p, r.Header.Get("X-Request-Id"), string(body)})
		w.WriteHeader(http.StatusNoContent)
	}
}

func (t *Tree) login(w http.ResponseWriter, body []byte) {
	var c struct{ UserName, Password string }
	switch {
	case t.NoSessions:
		http.Error(w, "{}", http.StatusMethodNotAllowed)
	case json.Unmarshal(body, &c) != nil || c.UserName != "admin" || c.Password != "secret":
		http.Error(w, "{}", http.StatusUnauthorized)
	default:
		w.Header().Set("X-Auth-Token", "token")
		w.Header().Set("Location", "/redfish/v1/SessionService/Sessions/1")
		w.WriteHeader(http.StatusCreated)
	}
}

func (t *Tree) get(w http.ResponseWriter, r *http.Request, p string) {
	doc, ok := t.docs[p]
	if !ok {
		http.Error(w, `{"error":{"message":"no such resource"}}`, http.StatusNotFound)
		return
	}
	out := make(map[string]any, len(doc))
	maps.Copy(out, doc)
	if p == "/redfish/v1" && t.NoExpand {
		delete(out, "ProtocolFeaturesSupported")
	}
	q := r.URL.Query()
	for _, k := range t.Ignores {
		q.Del(k)
	}
	if members, ok := out["Members"].([]any); ok {
		list := t.filter(members, q.Get("$filter"))
		from, err := strconv.Atoi(q.Get("$skip"))
		if err != nil || from < 0 {
			from = 0
		}
		to := len(list)
		if n, err := strconv.Atoi(q.Get("$top")); err == nil {
			to = min(to, from+n)
		} else if t.PageSize > 0 && to > from+t.PageSize {
			to = from + t.PageSize
			next := url.Values{"$skip": {strconv.Itoa(to)}}
			if q.Has("$expand") {
				next.Set("$expand", q.Get("$expand"))
			}
			out["Members@odata.nextLink"] = r.URL.Path + "?" + next.Encode()
		}
		list = append([]any(nil), list[min(from, len(list)):max(to, min(from, len(list)))]...)
		if n := 1; q.Has("$expand") && !t.NoExpand {
			_, _ = fmt.Sscanf(q.Get("$expand"), ".($levels=%d)", &n)
			for i, m := range list {
				if o, ok := m.(map[string]any); ok {
					if id, ok := o["@odata.id"].(string); ok && t.docs[id] != nil {
						list[i] = t.below(t.docs[id], id, n-1)
					}
				}
			}
		}
		out["Members"] = list
	}
	if t.Rewrite != nil {
		raw, err := json.Marshal(out)
		if err != nil || json.Unmarshal(raw, &out) != nil {
			http.Error(w, "{}", http.StatusInternalServerError)
			return
		}
		t.Rewrite(p, out)
	}
	raw, err := json.Marshal(out)
	if err != nil {
		http.Error(w, "{}", http.StatusInternalServerError)
		return
	}
	sum := fnv.New64a()
	_, _ = sum.Write(raw)
	tag := `"` + strconv.FormatUint(sum.Sum64(), 16) + `"`
	w.Header().Set("ETag", tag)
	if r.Header.Get("If-None-Match") == tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	n, _ := w.Write(raw)
	t.Bytes.Add(int64(n))
}

// below puts what a document links to in the place of the links, so many levels deep (DSP0266, section 7.3).
func (t *Tree) below(v any, path string, levels int) any {
	if levels < 1 {
		return v
	}
	switch v := v.(type) {
	case map[string]any:
		id, _ := v["@odata.id"].(string)
		if doc := t.docs[id]; doc != nil && len(v) == 1 && !strings.HasPrefix(path, id) {
			return t.below(doc, id, levels-1)
		}
		out := make(map[string]any, len(v))
		for k, x := range v {
			if out[k] = x; k != "Links" && k != "RelatedItem" {
				out[k] = t.below(x, path, levels)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = t.below(x, path, levels)
		}
		return out
	}
	return v
}

// filter understands what log entries are asked for: Created ge 'TIME'.
func (*Tree) filter(members []any, expr string) []any {
	at, ok := strings.CutPrefix(expr, "Created ge '")
	if !ok {
		return members
	}
	var out []any
	for _, m := range members {
		o, _ := m.(map[string]any)
		if s, _ := o["Created"].(string); s >= strings.TrimSuffix(at, "'") {
			out = append(out, m)
		}
	}
	return out
}

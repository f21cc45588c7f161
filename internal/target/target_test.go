package target

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"github.com/openconfig/gnmic/pkg/api"
	gnmic "github.com/openconfig/gnmic/pkg/api/target"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// records is a log in memory.
type records struct {
	mu   sync.Mutex
	list []Record
	news chan struct{}
}

func (l *records) Read(after uint64, most int) (out []Record, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.list {
		if r.Sequence > after && len(out) < most {
			out = append(out, r)
		}
	}
	return out, nil
}

func (l *records) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.news
}

func (l *records) Newest() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return uint64(len(l.list))
}

func (l *records) add(data string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, Record{Sequence: uint64(len(l.list) + 1), Time: 1, Kind: "event", Data: data})
	close(l.news)
	l.news = make(chan struct{})
}

const (
	load = "/gpus/gpu[index=0]/state/load"
	name = "/gpus/gpu[index=0]/state/name"
	heat = "/gpus/gpu[index=1]/state/temperature"
	want = "/gpus/gpu[index=0]/config/power"
)

type machine struct {
	tree *Tree
	log  *records
	addr string

	mu  sync.Mutex
	set []Value
}

func (m *machine) write(at int64, do func(w *Writer)) {
	w := m.tree.Write(time.Unix(at, 0))
	defer w.Close()
	do(&w)
}

func start(t *testing.T, change func(*Config)) *machine {
	t.Helper()
	m := &machine{tree: NewTree(), log: &records{news: make(chan struct{})}}
	refs := []Ref{m.tree.Leaf(load), m.tree.Leaf(name), m.tree.Leaf(heat), m.tree.Leaf(want)}
	m.write(1, func(w *Writer) {
		w.Float(refs[0], 0.5)
		w.Text(refs[1], "H100")
		w.Int(refs[2], -3)
		w.Uint(refs[3], 700)
	})
	cfg := DefaultConfig()
	cfg.MinSample, cfg.DefaultSample = 20*time.Millisecond, 40*time.Millisecond
	cfg.Models = []*gpb.ModelData{{Name: "auspex-gpu", Organization: "Auspex", Version: "2026-11-01"}}
	cfg.Access = Access{User: "admin", Password: "secret"}
	cfg.Log = m.log
	cfg.Set = func(_ context.Context, who Peer, values []Value) error {
		if !who.Known {
			return errors.New("who is it?")
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		m.set = append(m.set, values...)
		return nil
	}
	if change != nil {
		change(&cfg)
	}
	s, err := NewServer(m.tree, cfg)
	if err != nil {
		t.Fatal(err)
	}
	https := httptest.NewTLSServer(nil) // for its certificate
	defer https.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&https.TLS.Certificates[0])))
	gpb.RegisterGNMIServer(srv, s)
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	t.Cleanup(func() {
		srv.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	m.addr = l.Addr().String()
	return m
}

// client is gnmic's, over TLS. It writes a variable of crypto/tls: one is to be connected before the next is made.
func (m *machine) client(t *testing.T, password string) *gnmic.Target {
	t.Helper()
	c, err := api.NewTarget(api.Name("node"), api.Address(m.addr), api.Username("admin"), api.Password(password), api.SkipVerify(true))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.CreateGNMIClient(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func texts(n *gpb.Notification, out map[string]string) {
	for _, u := range n.GetUpdate() {
		var v string
		switch x := u.GetVal().GetValue().(type) {
		case *gpb.TypedValue_JsonVal:
			v = string(x.JsonVal)
		case *gpb.TypedValue_JsonIetfVal:
			v = string(x.JsonIetfVal)
		case *gpb.TypedValue_AsciiVal:
			v = x.AsciiVal
		case *gpb.TypedValue_StringVal:
			v = x.StringVal
		case *gpb.TypedValue_UintVal:
			v = strconv.FormatUint(x.UintVal, 10)
		case *gpb.TypedValue_IntVal:
			v = strconv.FormatInt(x.IntVal, 10)
		case *gpb.TypedValue_DoubleVal:
			v = fmt.Sprint(x.DoubleVal)
		}
		out[pathString(u.GetPath().GetElem())] = v
	}
	for _, d := range n.GetDelete() {
		out[pathString(d.GetElem())] = "deleted"
	}
}

func TestGnmicReadsTheTree(t *testing.T) {
	m := start(t, nil)
	m.log.add("one")
	c := m.client(t, "secret")
	caps, err := c.Capabilities(t.Context())
	if err != nil || caps.GetGNMIVersion() != Version || len(caps.GetSupportedModels()) != 1 || len(caps.GetSupportedEncodings()) != 4 {
		t.Errorf("capabilities %v, error %v", caps, err)
	}
	all := map[string]string{load: "0.5", name: "H100", heat: "-3", want: "700"}
	for what, c2 := range map[string]struct {
		opts []api.GNMIOption
		want map[string]string
	}{
		"a list entry":       {[]api.GNMIOption{api.Path("/gpus/gpu[index=1]"), api.EncodingPROTO()}, map[string]string{heat: "-3"}},
		"a wildcard key":     {[]api.GNMIOption{api.Path("/gpus/gpu[index=*]/state"), api.EncodingPROTO()}, map[string]string{load: "0.5", name: "H100", heat: "-3"}},
		"below a prefix":     {[]api.GNMIOption{api.Prefix("/gpus"), api.Path("gpu[index=0]/state/name"), api.EncodingASCII()}, map[string]string{name: "H100"}},
		"settings alone":     {[]api.GNMIOption{api.Path("/gpus"), api.DataTypeCONFIG(), api.EncodingJSON()}, map[string]string{want: "700"}},
		"as RFC 7951 has it": {[]api.GNMIOption{api.Path("/gpus"), api.EncodingJSON_IETF()}, map[string]string{load: `"0.5"`, name: `"H100"`, heat: `"-3"`, want: `"700"`}},
		"everything, and the log": {[]api.GNMIOption{api.Path("/"), api.EncodingPROTO()}, map[string]string{
			"/journal/record[sequence=1]/state/sequence": "1", "/journal/record[sequence=1]/state/time": "1",
			"/journal/record[sequence=1]/state/kind": "event", "/journal/record[sequence=1]/state/data": "one",
		}},
	} {
		req, err := api.NewGetRequest(c2.opts...)
		if err != nil {
			t.Fatal(err)
		}
		res, err := c.Get(t.Context(), req)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if strings.HasPrefix(what, "everything") {
			maps.Copy(c2.want, all)
		}
		got := map[string]string{}
		for _, n := range res.GetNotification() {
			texts(n, got)
		}
		if diff := cmp.Diff(c2.want, got); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
	for path, code := range map[string]codes.Code{"/gpus/gpu[index=7]": codes.NotFound, "/nothing": codes.NotFound} {
		req, err := api.NewGetRequest(api.Path(path), api.EncodingPROTO())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Get(t.Context(), req); status.Code(errors.Unwrap(err)) != code && status.Code(err) != code {
			t.Errorf("get %s: %v, want %s", path, err, code)
		}
	}
	if _, err := m.client(t, "wrong").Capabilities(t.Context()); err == nil || !strings.Contains(err.Error(), "Unauthenticated") {
		t.Errorf("a wrong password: %v", err)
	}
}

// follow returns what a stream tells, the sync as "sync".
func follow(t *testing.T, c *gnmic.Target, opts ...api.GNMIOption) (next func() map[string]string) {
	t.Helper()
	req, err := api.NewSubscribeRequest(append([]api.GNMIOption{api.SubscriptionListModeSTREAM(), api.EncodingPROTO()}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	updates, errs := c.SubscribeStreamChan(ctx, req, "s")
	t.Cleanup(func() {
		cancel()
		for {
			select {
			case <-updates:
			case <-errs:
				return
			}
		}
	})
	return func() map[string]string {
		t.Helper()
		select {
		case r := <-updates:
			got := map[string]string{}
			if r.GetSyncResponse() {
				got["sync"] = ""
			}
			texts(r.GetUpdate(), got)
			return got
		case err := <-errs:
			t.Fatal(err)
		case <-time.After(time.Minute):
			t.Fatal("nothing was told")
		}
		return nil
	}
}

func TestAChangeIsTold(t *testing.T) {
	m := start(t, nil)
	next := follow(t, m.client(t, "secret"), api.Subscription(api.Path("/gpus/gpu[index=*]/state"), api.SubscriptionModeON_CHANGE()))
	got := map[string]string{}
	for {
		n := next()
		if _, ok := n["sync"]; ok {
			break
		}
		maps.Copy(got, n)
	}
	if diff := cmp.Diff(map[string]string{load: "0.5", name: "H100", heat: "-3"}, got); diff != "" {
		t.Error(diff)
	}
	ref := m.tree.Leaf(heat)
	same := m.tree.Leaf(name)
	m.write(2, func(w *Writer) {
		w.Int(ref, 41)
		w.Text(same, "H100") // which is no change
	})
	if diff := cmp.Diff(map[string]string{heat: "41"}, next()); diff != "" {
		t.Error(diff)
	}
	m.write(3, func(w *Writer) { w.None(ref) })
	if diff := cmp.Diff(map[string]string{heat: "deleted"}, next()); diff != "" {
		t.Error(diff)
	}
	m.tree.Drop("/gpus/gpu[index=0]")
	if got := next(); !slices.Contains(slices.Collect(maps.Values(got)), "deleted") {
		t.Errorf("after a drop: %v", got)
	}
}

func TestSamplesAndTheLogComeInOneStream(t *testing.T) {
	m := start(t, nil)
	m.log.add("one")
	next := follow(t, m.client(t, "secret"),
		api.Subscription(api.Path(load), api.SubscriptionModeSAMPLE(), api.SampleInterval(20*time.Millisecond)),
		api.Subscription(api.Path("/journal/record"), api.SubscriptionModeON_CHANGE()))
	samples, seen := 0, []string{}
	for samples < 4 || len(seen) < 2 {
		got := next()
		if _, ok := got["sync"]; ok {
			m.log.add("two")
		}
		if got[load] == "0.5" {
			samples++
		}
		for path, v := range got {
			if strings.HasSuffix(path, "/data") {
				seen = append(seen, v)
			}
		}
	}
	if diff := cmp.Diff([]string{"one", "two"}, seen); diff != "" {
		t.Error(diff)
	}
}

func TestASetIsForWhoHasShownWhoTheyAre(t *testing.T) {
	m := start(t, func(c *Config) { c.Access.Anonymous = true })
	req, err := api.NewSetRequest(api.Update(api.Path(want), api.Value(600, "json")))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.client(t, "secret").Set(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	if len(m.set) != 1 || m.set[0].Path != want || m.set[0].Value.GetIntVal() != 600 {
		t.Errorf("set %v", m.set)
	}
	c, err := api.NewTarget(api.Name("node"), api.Address(m.addr), api.SkipVerify(true))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.CreateGNMIClient(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := c.Set(t.Context(), req); err == nil || !strings.Contains(err.Error(), "PermissionDenied") {
		t.Errorf("a stranger's set: %v", err)
	}
	if _, err := c.Capabilities(t.Context()); err != nil { // who may read
		t.Error(err)
	}
	gone, err := api.NewSetRequest(api.Delete(want))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.client(t, "secret").Set(t.Context(), gone); err == nil || !strings.Contains(err.Error(), "InvalidArgument") {
		t.Errorf("a delete: %v", err)
	}
}

// Who floods a target with subscriptions harms itself alone.
func TestSubscriptionsAreBounded(t *testing.T) {
	m := start(t, func(c *Config) { c.Subscribers, c.Subscriptions = 8, 3 })
	var c *gnmic.Target
	for range 2 {
		c = m.client(t, "secret") // with a stream each: of two of one client it tells one
		next := follow(t, c, api.Subscription(api.Path("/gpus"), api.SubscriptionModeON_CHANGE()))
		for synced := false; !synced; {
			_, synced = next()["sync"]
		}
	}
	conn, err := grpc.NewClient(m.addr, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "username", "admin", "password", "secret"), time.Minute)
	defer cancel()
	stream, err := gpb.NewGNMIClient(conn).Subscribe(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "all that one peer may have") {
		t.Errorf("a third subscription of one peer: %v", err)
	}
	if caps, err := c.Capabilities(t.Context()); err != nil || caps.GetGNMIVersion() != Version { // the others are served
		t.Error(err)
	}
}

func FuzzParsePath(f *testing.F) {
	for _, s := range []string{load, "/a[b=c\\]d]/e", "/", "a", "/a[", "/a[b]", "/a[b=c]d", "//"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParsePath(s)
		if err != nil {
			return
		}
		again, err := ParsePath(pathString(p.GetElem()))
		if err != nil || pathString(again.GetElem()) != pathString(p.GetElem()) {
			t.Errorf("%q became %q: %v", s, pathString(p.GetElem()), err)
		}
	})
}

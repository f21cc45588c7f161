package gnmi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"auspex/collectors"
	"auspex/collectors/collectortest"
	"auspex/internal/bus"
	"auspex/internal/certtest"
	"auspex/internal/waittest"
	"auspex/schemas"
)

// watched is a switch that notes who subscribes, and who goes.
type watched struct {
	gpb.UnimplementedGNMIServer

	mu   sync.Mutex
	came []string // the user, or the serial number of the certificate
	left int
}

func (w *watched) Subscribe(s gpb.GNMI_SubscribeServer) error {
	if _, err := s.Recv(); err != nil {
		return err
	}
	who := "?"
	if md, ok := metadata.FromIncomingContext(s.Context()); ok && len(md.Get("username")) > 0 {
		who = md.Get("username")[0] + ":" + md.Get("password")[0]
	}
	if p, ok := peer.FromContext(s.Context()); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(info.State.PeerCertificates) > 0 {
			who = info.State.PeerCertificates[0].SerialNumber.String()
		}
	}
	w.mu.Lock()
	w.came = append(w.came, who)
	w.mu.Unlock()
	if err := s.Send(synced()); err != nil {
		return err
	}
	<-s.Context().Done()
	w.mu.Lock()
	w.left++
	w.mu.Unlock()
	return nil
}

func (w *watched) is(t *testing.T, left int, came ...string) {
	t.Helper()
	waittest.Until(t, func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !slices.Equal(w.came, came) || w.left != left {
			return fmt.Errorf("%v came and %d left, want %v and %d", w.came, w.left, came, left)
		}
		return nil
	})
}

// keys are credentials that may change.
type keys struct {
	mu sync.Mutex
	of map[string]string
}

func (k *keys) Secret(_ context.Context, ref string) (user, password string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	p, ok := k.of[ref]
	if !ok {
		return "", "", errors.New("unknown")
	}
	return ref, p, nil
}

type nowhere struct{}

func (nowhere) Publish(context.Context, ...bus.Message) error { return nil }

// Switches come, go, move and are shown another credential as the inventory has it, while the streams of the others go on.
func TestTheInventoryMovesStreamsAndLeavesTheOthersAlone(t *testing.T) {
	var all [4]*watched
	var at [4]schemas.Resource
	for i := range all {
		all[i] = &watched{}
		at[i] = served(t, all[i])
	}
	leaf := func(id string, n int, credential string) schemas.Resource {
		return schemas.Resource{ID: id, Kind: schemas.KindSwitch, Attrs: at[n].Attrs.With(schemas.AttrCredential, credential)}
	}
	secrets := &keys{of: map[string]string{"a": "1", "b": "2"}}
	s := collectortest.Settings()
	s.Secrets = secrets
	bounds := collectors.DefaultRunnerConfig()
	bounds.StartSpread, bounds.BackoffMin = 0, time.Millisecond
	r := collectors.NewRunner(bounds, map[string]collectors.Config{Name: config()}, nowhere{}, s)
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- r.Run(ctx, func() { close(ready) }) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	<-ready
	have := func(resources ...schemas.Resource) {
		t.Helper()
		if err := r.Reconcile(resources); err != nil {
			t.Fatal(err)
		}
	}
	have(leaf("one", 0, "a"), leaf("two", 1, "a"))
	all[0].is(t, 0, "a:1")
	all[1].is(t, 0, "a:1")
	have(leaf("one", 0, "a"), leaf("three", 2, "a")) // one goes, one comes
	all[1].is(t, 1, "a:1")
	all[2].is(t, 0, "a:1")
	have(leaf("one", 0, "a"), leaf("three", 3, "a")) // it has another address
	all[2].is(t, 1, "a:1")
	all[3].is(t, 0, "a:1")
	have(leaf("one", 0, "a"), leaf("three", 3, "b")) // and another credential
	all[3].is(t, 1, "a:1", "b:2")
	all[0].is(t, 0, "a:1")
}

// A certificate that is renewed in its file is shown at the next connection; one that has run out is named.
func TestACertificateIsReadAnewForEachConnection(t *testing.T) {
	ca := certtest.New(t)
	server := ca.Issue(t, time.Now().Add(time.Hour), "127.0.0.1")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &watched{}
	srv := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{server.Certificate}, ClientCAs: ca.Pool, ClientAuth: tls.RequireAndVerifyClientCert,
	})))
	gpb.RegisterGNMIServer(srv, w)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	defer func() { srv.Stop(); <-served }()

	first, second, old := ca.Issue(t, time.Now().Add(time.Hour)), ca.Issue(t, time.Now().Add(2*time.Hour)), ca.Issue(t, time.Now().Add(-time.Hour))
	cfg := Default()
	cfg.Timeout = time.Minute
	cfg.TLS.CAFile, cfg.TLS.CertFile, cfg.TLS.KeyFile = ca.File, first.CertFile, first.KeyFile
	show := func(leaf certtest.Leaf) {
		t.Helper()
		for from, to := range map[string]string{leaf.CertFile: cfg.TLS.CertFile, leaf.KeyFile: cfg.TLS.KeyFile} {
			pem, err := os.ReadFile(from)
			if err == nil {
				err = os.WriteFile(to, pem, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	serial := func(leaf certtest.Leaf) string { return leaf.Leaf.SerialNumber.String() }
	c, err := cfg.New(target(l.Addr().String()), collectortest.Settings())
	if err != nil {
		t.Fatal(err)
	}
	rec := collectortest.NewRecorder()
	stop := again(c, rec)
	w.is(t, 0, serial(first))
	show(second)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	stop = again(c, rec)
	w.is(t, 1, serial(first), serial(second))
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	show(old)
	want := "cert_file " + cfg.TLS.CertFile + " expired on " + old.Leaf.NotAfter.UTC().Format(time.RFC3339)
	if err := c.Run(t.Context(), rec); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	if d := cmp.Diff([]string{serial(first), serial(second)}, w.came); d != "" {
		t.Error(d)
	}
}

package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/openconfig/gnmic/pkg/api"
	system "github.com/openconfig/gnoi/system"
	tpb "github.com/openconfig/grpctunnel/proto/tunnel"
	"github.com/openconfig/grpctunnel/tunnel"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"auspex/collectors/collectortest"
	"auspex/internal/tunnel/tunneltest"
	"auspex/internal/waittest"
	"auspex/schemas"
)

// dials lets the agent listen nowhere and dial a server, with a token.
func (s *server) dials(to *tunneltest.Server, token string) {
	s.t.Helper()
	s.write("token", token+"\n")
	s.write("agent.yaml", fmt.Sprintf(`
data: %[1]s/data
listen: ""
%[2]skernel: {path: %[1]s/kmsg, boot_id_file: %[1]s/boot, poll_interval: 5ms}
target: {min_sample: 100ms}
`, s.dir, s.dialSection(to)))
	s.addr = schemas.AgentDialsIn
}

// dialSection is the section dial of the configuration.
func (s *server) dialSection(to *tunneltest.Server) string {
	return fmt.Sprintf("dial: [{address: %q, ca_file: %s, server_name: collector.example, token_file: %s/token, retry: 100ms}]\n", to.Addr, to.CA, s.dir)
}

func TestEveryLineComesOnceThroughATunnel(t *testing.T) {
	const lines = 1000
	s := newServer(t)
	hub := tunneltest.Start(t, tunneltest.NewTokens(map[string]string{"secret-1": "gpu-r01-01"}), slog.New(slog.DiscardHandler))
	s.dials(hub, "secret-1")
	s.start()
	rec, settings := collectortest.NewRecorder(), collectortest.Settings()
	settings.Now, settings.Tunnels = time.Now, hub
	stop := s.collect(settings, rec)
	defer stop()
	for s.seq < lines {
		s.log(10)
		if s.seq == 300 || s.seq == 700 {
			s.kill()
			s.log(50)
			s.start()
		}
	}
	waittest.Until(t, func() error {
		if n := len(numbers(rec)); n < lines {
			return fmt.Errorf("%d of %d lines", n, lines)
		}
		return nil
	})
	stop()
	seen := map[string]bool{}
	for key, n := range numbers(rec) {
		number, _, _ := strings.Cut(key, " ")
		if n != 1 || seen[number] {
			t.Errorf("line %s came more than once", number)
		}
		seen[number] = true
	}
	if len(seen) != lines {
		t.Errorf("%d lines, want %d", len(seen), lines)
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "RssAnon:")
	var kib int
	if _, err := fmt.Sscan(rest, &kib); err != nil || kib > 25<<10 {
		t.Errorf("it takes %d KiB of memory (RssAnon): %v", kib, err)
	}
	t.Logf("RssAnon %d KiB", kib)
}

// Another implementation is at the other end: openconfig's server of tunnels, and gnmic's client.
func TestOpenconfigsTunnelServerReachesTheAgent(t *testing.T) {
	s := newServer(t)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	there := make(chan tunnel.Target, 16)
	foreign, err := tunnel.NewServer(tunnel.ServerConfig{AddTargetHandler: func(t tunnel.Target) error {
		there <- t
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&s.cert.Certificate)))
	tpb.RegisterTunnelServer(g, foreign)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	t.Cleanup(func() {
		g.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	s.dials(&tunneltest.Server{Addr: l.Addr().String(), CA: s.auth.File}, "token")
	s.configure("allow: {settings: [dialled 127.0.0.1]}\n")
	b, err := os.ReadFile(s.dir + "/agent.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s.write("agent.yaml", strings.ReplaceAll(string(b), "server_name: collector.example, ", ""))
	s.start()
	var at tunnel.Target
	select {
	case at = <-there:
	case <-time.After(waittest.Patience):
		t.Fatal("the agent has not registered")
	}
	if want := (tunnel.Target{ID: host, Type: "GNMI_GNOI"}); at != want {
		t.Errorf("it is %v, want %v", at, want)
	}
	through := grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return tunnel.ServerConn(ctx, foreign, &at) })

	c, err := api.NewTarget(api.Name(host), api.Address("passthrough:///tunnel"), api.Insecure(true))
	if err != nil {
		t.Fatal(err)
	}
	c.Config.TunnelTargetType = at.Type
	if err := c.CreateGNMIClient(t.Context(), through); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	s.log(1)
	get, err := api.NewGetRequest(api.Path("/journal/record/state/data"), api.EncodingASCII())
	if err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, func() error {
		res, err := c.Get(t.Context(), get)
		if err == nil && !strings.Contains(res.String(), "fallen off the bus") {
			err = fmt.Errorf("it tells %s", res)
		}
		return err
	})
	set := func(path string, value any) error {
		t.Helper()
		req, err := api.NewSetRequest(api.Update(api.Path(path), api.Value(value, "json_ietf")))
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Set(t.Context(), req)
		return err
	}
	if err := set("/journal/config/acknowledged", 1); err != nil { // it was verified when it was dialled
		t.Error(err)
	}
	if err := set("/gpus/gpu[name=gpu0]/config/persistence", true); err == nil || status.Code(err) == codes.PermissionDenied {
		t.Errorf("who is named may not change settings: %v", err)
	}

	conn, err := grpc.NewClient("passthrough:///tunnel", grpc.WithTransportCredentials(insecure.NewCredentials()), through)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, err = system.NewSystemClient(conn).Reboot(t.Context(), &system.RebootRequest{Method: system.RebootMethod_COLD, Message: "try"})
	if status.Code(err) != codes.PermissionDenied || !strings.HasPrefix(status.Convert(err).Message(), "dialled 127.0.0.1 may not do that") {
		t.Errorf("a reboot: %v", err)
	}
}

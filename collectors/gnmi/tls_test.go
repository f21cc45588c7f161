package gnmi

import (
	"net"
	"testing"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"auspex/collectors/collectortest"
	"auspex/internal/certtest"
)

func TestWhichSwitchIsTrusted(t *testing.T) {
	certtest.Handshakes(t, func(t *testing.T, h certtest.Handshake) error {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		srv := grpc.NewServer(grpc.Creds(credentials.NewTLS(h.Server)))
		gpb.RegisterGNMIServer(srv, &gpb.UnimplementedGNMIServer{})
		done := make(chan error, 1)
		go func() { done <- srv.Serve(l) }()
		defer func() {
			srv.Stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}()
		cfg := Default()
		cfg.TLS.TLS, cfg.Timeout = h.TLS, time.Minute
		c, err := cfg.New(target(l.Addr().String()), collectortest.Settings())
		if err != nil {
			return err
		}
		err = c.Run(t.Context(), collectortest.NewRecorder())
		if status.Code(err) == codes.Unimplemented { // it was asked
			return nil
		}
		return err
	})
}

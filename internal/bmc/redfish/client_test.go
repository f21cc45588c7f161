package redfish_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"auspex/internal/bmc/redfish"
	"auspex/internal/certtest"
)

func TestWhichControllerIsTrusted(t *testing.T) {
	certtest.Handshakes(t, func(t *testing.T, h certtest.Handshake) error {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"RedfishVersion": "1.17.0"}`)
		}))
		s.TLS, s.Config.ErrorLog = h.Server, slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
		s.StartTLS()
		defer s.Close()
		trusted, err := h.TLS.Client()
		if err != nil {
			return err
		}
		c, err := redfish.New(redfish.Options{URL: s.URL, TLS: trusted, Timeout: time.Minute})
		if err != nil {
			return err
		}
		defer c.Close(t.Context())
		_, err = c.Root(t.Context())
		return err
	})
}

package dcgmexporter

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"auspex/internal/certtest"
)

func TestWhichExporterIsTrusted(t *testing.T) {
	certtest.Handshakes(t, func(t *testing.T, h certtest.Handshake) error {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		s.TLS, s.Config.ErrorLog = h.Server, slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
		s.StartTLS()
		defer s.Close()
		x := &scraper{cfg: *Default(), device: "gpu-r01-01", url: s.URL}
		x.cfg.TLS, x.cfg.Timeout = h.TLS, time.Minute
		if err := x.open(); err != nil {
			return err
		}
		defer x.link.close()
		return x.fetch(t.Context())
	})
}

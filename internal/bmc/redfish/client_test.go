package redfish_test

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
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

// An answer that unpacks to a gigabyte is given up once it is larger than any
// answer may be.
func TestAPackedAnswerIsBoundedUnpacked(t *testing.T) {
	bomb := certtest.Bomb(t, 1<<30)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(bomb)
	}))
	defer s.Close()
	c, err := redfish.New(redfish.Options{URL: s.URL, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = c.Root(t.Context())
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, redfish.ErrProtocol) || used > 256<<20 {
		t.Errorf("%v, %d MiB", err, used>>20)
	}
}

package redfish_test

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
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

func TestLinksOfAServiceAreBroughtToOneSpelling(t *testing.T) {
	var url string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/redfish/v1/", "/redfish/v1":
			_, _ = io.WriteString(w, `{"Systems": {"@odata.id": "`+url+`/redfish/v1/Systems/"}}`)
		case "/redfish/v1/Systems":
			_, _ = io.WriteString(
				w,
				`{"Members": [{"@odata.id": "Systems/1"}, {"@odata.id": "`+url+`/redfish/v1/Systems/1"}, {"@odata.id": "/redfish/v1//Systems/2/"}, {"@odata.id": "http://192.0.2.1/x"}]}`,
			)
		}
	}))
	defer s.Close()
	url = s.URL
	c, err := redfish.New(redfish.Options{URL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	root, err := c.Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	list, err := c.List(t.Context(), root.Link("Systems"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range list {
		got = append(got, m.ID())
	}
	want := []string{"/redfish/v1/Systems/1", "/redfish/v1//Systems/2", "http://192.0.2.1/x"}
	if !slices.Equal(got, want) {
		t.Errorf("links %q, want %q", got, want)
	}
	if _, err := c.Get(t.Context(), list[2].ID()); !errors.Is(err, redfish.ErrProtocol) {
		t.Errorf("a link to another host: %v, want it refused", err)
	}
}

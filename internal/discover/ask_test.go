package discover

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"auspex/schemas"
)

// TestAServiceWithoutSessionsIsReadWithBasicAuthentication answers the session login as services do
// that know none or have none left; 401 is the only answer that says that the credential is wrong.
func TestAServiceWithoutSessionsIsReadWithBasicAuthentication(t *testing.T) {
	for _, c := range []struct {
		login, read int // of a service that names sessions, or 0: the answers to the session login, and to the user and password
		result      string
		basic       int32 // requests that had the password in their header, one resource each
		message     string
	}{
		{http.StatusNotFound, http.StatusOK, schemas.FindFound, 2, ""},
		{http.StatusMethodNotAllowed, http.StatusOK, schemas.FindFound, 2, ""},
		{http.StatusNotImplemented, http.StatusOK, schemas.FindFound, 2, ""},
		{http.StatusServiceUnavailable, http.StatusOK, schemas.FindFound, 2, ""},
		{http.StatusServiceUnavailable, http.StatusUnauthorized, schemas.FindRefused, 1, "refuses the credential"},
		{http.StatusNotFound, http.StatusServiceUnavailable, schemas.FindUnreadable, 1, "503"},
		{http.StatusUnauthorized, http.StatusOK, schemas.FindRefused, 0, "refuses the credential"},
		{0, http.StatusOK, schemas.FindFound, 2, ""},
		{0, http.StatusUnauthorized, schemas.FindRefused, 1, "refuses the credential"},
	} {
		var basic, logins atomic.Int32
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			user, password, has := r.BasicAuth()
			switch path := strings.TrimSuffix(r.URL.Path, "/"); {
			case r.Method == http.MethodPost:
				logins.Add(1)
				w.WriteHeader(c.login)
			case path == "/redfish/v1":
				sessions := `"SessionService":{"@odata.id":"/redfish/v1/SessionService"},`
				if c.login == 0 {
					sessions = ""
				}
				_, _ = io.WriteString(w, `{"@odata.id":"/redfish/v1","RedfishVersion":"1.20.0",`+sessions+`"Systems":{"@odata.id":"/redfish/v1/Systems"}}`)
			case !has || user != "admin" || password != "secret":
				w.WriteHeader(http.StatusUnauthorized)
			case path == "/redfish/v1/Systems":
				if basic.Add(1); c.read != http.StatusOK {
					w.WriteHeader(c.read)
					return
				}
				_, _ = io.WriteString(w, `{"@odata.id":"/redfish/v1/Systems","Members":[{"@odata.id":"/redfish/v1/Systems/1"}]}`)
			default:
				basic.Add(1)
				_, _ = io.WriteString(w, `{"@odata.id":"/redfish/v1/Systems/1","Id":"1","SerialNumber":"SN1"}`)
			}
		}))
		s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
		s.StartTLS()
		pool := x509.NewCertPool()
		pool.AddCert(s.Certificate())
		a := asker{
			timeout: 5 * time.Second, readTime: 10 * time.Second, user: "admin", password: "secret",
			tls:  &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
			turn: func(context.Context, string, string) (func(), error) { return func() {}, nil },
		}
		at := netip.MustParseAddrPort(s.Listener.Addr().String())
		finds, err := a.ask(t.Context(), at.Addr(), []int{int(at.Port())}, nil)
		s.Close()
		if err != nil || len(finds) != 1 {
			t.Fatalf("%+v: %+v %v", c, finds, err)
		}
		f := finds[0]
		if f.Result != c.result || !strings.Contains(f.Message, c.message) || c.message == "" && f.SerialNumber != "SN1" || logins.Load() != min(int32(c.login), 1) ||
			basic.Load() < c.basic || c.result != schemas.FindFound && basic.Load() != c.basic {
			t.Errorf("%+v: %+v after %d requests with the password and %d logins", c, f, basic.Load(), logins.Load())
		}
		if strings.Contains(f.Message, "secret") {
			t.Errorf("the message has the password: %s", f.Message)
		}
	}
}

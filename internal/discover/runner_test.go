package discover_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"auspex/internal/bmc"
	"auspex/internal/certtest"
	"auspex/internal/cmdb"
	"auspex/internal/discover"
	"auspex/internal/secrets"
	"auspex/internal/sim/fleet"
	"auspex/internal/sim/ipmi"
	"auspex/internal/sim/ledger"
	"auspex/internal/sim/redfish"
	"auspex/internal/store/conflicts"
	"auspex/internal/store/discoveries"
	"auspex/internal/store/sqldb"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/internal/trust"
	"auspex/internal/waittest"
	"auspex/schemas"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hall is a row of board controllers on addresses of loopback, 127.0.9.0/28:
//
//	.2  a server that the inventory has, over Redfish
//	.3  a server that it does not have, over Redfish
//	.4  one that has no Redfish
//	.5  one that refuses the credential
//	.6  one whose certificate nobody trusts
//	.7  a web server that is no controller
type hall struct {
	fleet         *fleet.Fleet
	redfish, ipmi int // ports
	trust         *tls.Config

	mu     sync.Mutex
	bodies map[string][]string // of POST, by address
	hits   map[string]int
	hold   chan struct{} // where not nil, requests wait for it
}

func (h *hall) posted(at string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.bodies[at]
}

func newHall(t *testing.T) *hall {
	t.Helper()
	h := &hall{bodies: map[string][]string{}, hits: map[string]int{}}
	h.fleet = fleet.New(fleet.Config{Site: "dc1", Racks: 1, ServersPerRack: 5, GPUs: 8, CRACs: 1}, 1, t.TempDir(), ledger.Discard(nil), time.Now())
	if err := h.fleet.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.fleet.Close() })
	auth := certtest.New(t)
	c, err := trusting(auth.File)
	if err != nil {
		t.Fatal(err)
	}
	h.trust = c
	good, bad := auth.Issue(t, time.Now().Add(time.Hour), "127.0.9.2", "127.0.9.3", "127.0.9.5", "127.0.9.7"), certtest.New(t).Issue(t, time.Now().Add(time.Hour), "127.0.9.6")
	serve := func(at string, cert tls.Certificate, handler http.Handler) {
		t.Helper()
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", at+":"+strconv.Itoa(h.redfish))
		if err != nil {
			t.Fatal(err)
		}
		h.redfish = l.Addr().(*net.TCPAddr).Port
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(b))
			h.mu.Lock()
			h.hits[at]++
			hold := h.hold
			if r.Method == http.MethodPost || r.Header.Get("Authorization") != "" {
				h.bodies[at] = append(h.bodies[at], string(b)+r.Header.Get("Authorization"))
			}
			h.mu.Unlock()
			if hold != nil {
				select {
				case <-hold:
				case <-r.Context().Done():
				}
			}
			handler.ServeHTTP(w, r)
		}))
		s.Listener = l
		s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
		s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
		s.StartTLS()
		t.Cleanup(s.Close)
	}
	serve("127.0.9.2", good.Certificate, redfish.NewHandler(h.fleet.BMC("gpu-r01-01")))
	serve("127.0.9.3", good.Certificate, redfish.NewHandler(h.fleet.BMC("gpu-r01-02")))
	serve("127.0.9.5", good.Certificate, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.TrimSuffix(r.URL.Path, "/") == "/redfish/v1" {
			_, _ = io.WriteString(w, `{"@odata.id":"/redfish/v1","RedfishVersion":"1.20.0","Systems":{"@odata.id":"/redfish/v1/Systems"}}`)
			return
		}
		w.WriteHeader(http.StatusUnauthorized)
	}))
	serve("127.0.9.6", bad.Certificate, redfish.NewHandler(h.fleet.BMC("gpu-r01-04")))
	serve("127.0.9.7", good.Certificate, http.NotFoundHandler())
	pc, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", "127.0.9.4:0")
	if err != nil {
		t.Fatal(err)
	}
	h.ipmi = pc.LocalAddr().(*net.UDPAddr).Port
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- ipmi.NewServer(h.fleet.BMC("gpu-r01-03")).Serve(ctx, pc) }()
	t.Cleanup(func() { cancel(); <-done; _ = pc.Close() })
	return h
}

func (h *hall) config() discover.Config {
	c := discover.DefaultConfig()
	c.Ranges, c.Ports = []string{"127.0.9.0/24"}, []string{"1024-65535"}
	c.Rate, c.Timeout = 1000, 400*time.Millisecond
	return c
}

// inventory is that of the hall but for what nobody knows of.
func (h *hall) inventory(t *testing.T, db *sqldb.DB, change func(*schemas.Resource)) *cmdb.Inventory {
	t.Helper()
	cfg := cmdb.DefaultConfig()
	cfg.Site = "dc1"
	inv := cmdb.New(cfg, db, nil, nil)
	topology := schemas.Topology{Version: 1}
	gone := func(id string) bool {
		for _, s := range []string{"gpu-r01-02", "gpu-r01-03"} {
			if id == s || strings.HasPrefix(id, s+"/") {
				return true
			}
		}
		return false
	}
	full := h.fleet.Topology()
	for _, r := range full.Resources {
		if gone(r.ID) {
			continue
		}
		if r.ID == "gpu-r01-01" {
			r.Attrs = r.Attrs.With(schemas.AttrRedfishURL, fmt.Sprintf("https://127.0.9.2:%d", h.redfish))
		}
		change(&r)
		topology.Resources = append(topology.Resources, r)
	}
	for _, l := range full.Links {
		if !gone(l.From) && !gone(l.To) {
			topology.Links = append(topology.Links, l)
		}
	}
	if err := inv.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := inv.Import(t.Context(), cmdb.Draft{Topology: topology}, cmdb.ImportOptions{}); err != nil {
		t.Fatal(err)
	}
	return inv
}

// sweeping is a process that sweeps.
func (h *hall) sweeping(t *testing.T, db *sqldb.DB, inv *cmdb.Inventory, holder string, log io.Writer) (stop func()) {
	t.Helper()
	secret := func(_ context.Context, ref string) (user, password string, err error) {
		if ref != "bmc" {
			return "", "", secrets.ErrUnknown
		}
		return fleet.User, h.fleet.Password(), nil
	}
	r := discover.NewRunner(h.config(), discover.Deps{
		Sweeps: discoveries.New(db), Inventory: inv, Secret: secret, TLS: func() (*tls.Config, error) { return h.trust, nil }, Gate: bmc.NewGate(),
		Holder: holder, Log: slog.New(slog.NewTextHandler(log, nil)),
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	return sync.OnceFunc(func() { cancel(); <-done })
}

func (h *hall) start(t *testing.T, db *sqldb.DB, d schemas.Discovery) schemas.Discovery {
	t.Helper()
	d.RedfishPorts, d.IPMIPorts = []int{h.redfish}, []int{h.ipmi}
	if d.Ranges == nil {
		d.Ranges = []string{"127.0.9.0/28"}
	}
	d.Addresses = 14
	d, err := discoveries.New(db).Start(t.Context(), "ana", d)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func ended(t *testing.T, db *sqldb.DB, id string) (d schemas.Discovery) {
	t.Helper()
	waittest.Until(t, func() (err error) {
		if d, err = discoveries.New(db).Get(t.Context(), id); err == nil && d.CompletedAt.IsZero() {
			err = fmt.Errorf("it is %s, %d of %d", d.Status, d.Asked, d.Addresses)
		}
		return err
	})
	return d
}

func TestASweepFindsWhatAnswers(t *testing.T) {
	h := newHall(t)
	db := sqltest.Open(t)
	// In the inventory another serial number, and a GPU of the server that nobody knows of.
	stranger := h.fleet.BMC("gpu-r01-02").GPUs()[3].UUID
	inv := h.inventory(t, db, func(r *schemas.Resource) {
		switch r.ID {
		case "gpu-r01-01":
			r.Attrs = r.Attrs.Without(schemas.AttrUUID).With(schemas.AttrSerial, "OTHER1")
		case "gpu-r01-01/gpu2":
			r.Attrs = r.Attrs.With(schemas.AttrUUID, "GPU-"+strings.Repeat("1", 32))
		}
	})
	var log bytes.Buffer
	stop := h.sweeping(t, db, inv, "one", &log)
	defer stop()
	d := ended(t, db, h.start(t, db, schemas.Discovery{Credential: "bmc"}).ID)
	if d.Status != schemas.DiscoveryCompleted || d.Asked != 14 || d.Found != 3 || d.Refused != 1 || d.Unreadable != 1 || d.Silent != 9 {
		t.Errorf("%+v", d)
	}
	finds, _, err := discoveries.New(db).Finds(t.Context(), d.ID, "", "", 100)
	if err != nil {
		t.Fatal(err)
	}
	x := discover.NewIndex(inv.Snapshot())
	at := map[string]schemas.Find{}
	for _, f := range finds {
		x.Judge(&f, d.Credential)
		host, _, _ := net.SplitHostPort(f.Address)
		at[host] = f
	}
	if f := at["127.0.9.2"]; f.Status != schemas.FindKnown || f.Server != "gpu-r01-01" || f.MatchedBy != "address" {
		t.Errorf("a server of the inventory is %+v", f)
	}
	info := h.fleet.BMC("gpu-r01-02").Info()
	f := at["127.0.9.3"]
	if f.Status != schemas.ServerDiscovered || f.SerialNumber != info.Serial || f.UUID != info.UUID || f.Model != info.Model || len(f.GPUs) != 8 || f.GPUs[3].Name != "GPU_3" ||
		"GPU-"+f.GPUs[3].UUID != stranger || len(f.NICs) != len(info.MACs) || f.NICs[0].MAC != info.MACs[0] ||
		f.Architecture != schemas.ArchX86 || f.BootMode != schemas.BootUEFI {
		t.Errorf("a new server is %+v", f)
	}
	if p := f.Proposal; p == nil || p.Name != "gpu-r01-02" || len(p.Places) != 1 || p.Places[0].Parent != "dc1-r01" || p.Places[0].Confidence != .8 {
		t.Errorf("it is proposed as %+v", p)
	}
	if f := at["127.0.9.4"]; f.Protocol != "ipmi" || f.SerialNumber != h.fleet.BMC("gpu-r01-03").Info().Serial || f.Proposal == nil || f.Proposal.Name != "" || f.Proposal.IPMIIP != f.Address {
		t.Errorf("one without Redfish is %+v %+v", f, f.Proposal)
	}
	if f := at["127.0.9.5"]; f.Result != schemas.FindRefused || f.Status != "" {
		t.Errorf("one that refuses is %+v", f)
	}
	if f := at["127.0.9.6"]; f.Result != schemas.FindUnreadable || !strings.Contains(f.Message, "trust.bmc") {
		t.Errorf("one without a certificate is %+v", f)
	}
	if n := len(h.posted("127.0.9.5")); n != 1 {
		t.Errorf("the credential was tried %d times where it is refused", n)
	}
	for _, host := range []string{"127.0.9.6", "127.0.9.7"} {
		if got := h.posted(host); len(got) > 0 {
			t.Errorf("%s was told %q", host, got)
		}
	}
	open, _, err := conflicts.New(db).List(t.Context(), conflicts.Filter{Status: schemas.ConflictOpen, Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	about := map[string]schemas.Conflict{}
	for _, c := range open {
		about[c.Resource+" "+c.Field] = c
	}
	if c := about["gpu-r01-01 serial"]; len(about) != 2 || c.Left.Value != "OTHER1" || c.Left.Source != discover.Inventory || c.Left.Time.IsZero() ||
		c.Right.Value != h.fleet.BMC("gpu-r01-01").Info().Serial || c.Right.Source != "redfish" || about["gpu-r01-01/gpu2 uuid"].ID == "" {
		t.Errorf("%+v", open)
	}
	stop() // it writes no more
	if strings.Contains(log.String(), h.fleet.Password()) {
		t.Error("the log has the password")
	}
}

func TestASweepGoesOnAfterAKill(t *testing.T) {
	h := newHall(t)
	db := sqltest.Open(t)
	inv := h.inventory(t, db, func(*schemas.Resource) {})
	d := h.start(t, db, schemas.Discovery{Credential: "bmc"})
	store := discoveries.New(db)
	stop := h.sweeping(t, db, inv, "one", io.Discard)
	waittest.Until(t, func() error {
		if s, err := store.Get(t.Context(), d.ID); err != nil || s.Refused == 0 {
			return fmt.Errorf("%+v: %w", s, err)
		}
		return nil
	})
	stop()
	// Whoever held it is gone: its lease ends.
	if _, err := db.ExecContext(t.Context(), `UPDATE discoveries SET lease_ns=0`); err != nil {
		t.Fatal(err)
	}
	defer h.sweeping(t, db, inv, "two", io.Discard)()
	if d = ended(t, db, d.ID); d.Status != schemas.DiscoveryCompleted || d.Found != 3 || d.Refused != 1 || d.Asked != 14 {
		t.Errorf("%+v", d)
	}
	if n := len(h.posted("127.0.9.5")); n != 1 {
		t.Errorf("the credential was tried %d times where it is refused", n)
	}
	if err := store.Note(t.Context(), d.ID, "one", time.Second, 3, nil, nil); !errors.Is(err, discoveries.ErrLost) {
		t.Errorf("who has lost it notes: %v", err)
	}
}

func TestASweepThatIsCancelledAsksNoMore(t *testing.T) {
	h := newHall(t)
	h.hold = make(chan struct{})
	db := sqltest.Open(t)
	inv := h.inventory(t, db, func(*schemas.Resource) {})
	d := h.start(t, db, schemas.Discovery{Credential: "bmc", Ranges: []string{"127.0.9.2", "127.0.9.3"}})
	defer h.sweeping(t, db, inv, "one", io.Discard)()
	waittest.For(t, "it asks", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.hits["127.0.9.2"] > 0
	})
	if _, err := discoveries.New(db).Cancel(t.Context(), "ana", d.ID); err != nil {
		t.Fatal(err)
	}
	other := h.start(t, db, schemas.Discovery{Ranges: []string{"127.0.9.4"}})
	ended(t, db, other.ID) // whoever does it is free again
	close(h.hold)
	if d = ended(t, db, d.ID); d.Status != schemas.DiscoveryCancelled || d.Found != 0 {
		t.Errorf("%+v", d)
	}
}

func TestASweepFailsWithASentence(t *testing.T) {
	h := newHall(t)
	db := sqltest.Open(t)
	inv := h.inventory(t, db, func(*schemas.Resource) {})
	defer h.sweeping(t, db, inv, "one", io.Discard)()
	for word, d := range map[string]schemas.Discovery{
		"discovery.ranges": {Ranges: []string{"127.0.8.1"}}, "no credential other": {Credential: "other"},
	} {
		if d = ended(t, db, h.start(t, db, d).ID); d.Status != schemas.DiscoveryFailed || !strings.Contains(d.Reason, word) {
			t.Errorf("%+v", d)
		}
	}
	if d := ended(t, db, h.start(t, db, schemas.Discovery{}).ID); d.Found != 3 { // those that say who they are to everybody
		t.Errorf("without a credential: %+v", d)
	}
}

func trusting(file string) (*tls.Config, error) { return trust.TLS{CAFile: file}.Client() }

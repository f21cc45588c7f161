package discover_test

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"testing"

	"auspex/internal/bmc"
	"auspex/internal/cmdb"
	"auspex/internal/discover"
	"auspex/internal/store/conflicts"
	"auspex/internal/store/discoveries"
	"auspex/internal/store/sqldb"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/schemas"
)

// peer is a variable of a program that we did not write; test/e2e.sh sets them.
func peer(t *testing.T, name string) string {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		if os.Getenv("AUSPEX_E2E") != "" {
			t.Fatalf("%s is not set", name)
		}
		t.Skipf("%s is not set: it is by make e2e", name)
	}
	return v
}

// sweeper sweeps loopback, and keeps an inventory of its own.
type sweeper struct {
	t   *testing.T
	db  *sqldb.DB
	inv *cmdb.Inventory
}

func sweepsWith(t *testing.T, trusted func() (*tls.Config, error)) *sweeper {
	t.Helper()
	s := &sweeper{t: t, db: sqltest.Open(t)}
	s.inv = cmdb.New(cmdb.DefaultConfig(), s.db, nil, nil)
	if err := s.inv.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.put()
	c := discover.DefaultConfig()
	c.Ranges, c.Ports = []string{"127.0.0.0/8"}, []string{"1024-65535"}
	r := discover.NewRunner(c, discover.Deps{
		Sweeps: discoveries.New(s.db), Inventory: s.inv, TLS: trusted, Gate: bmc.NewGate(), Holder: "one", Log: slog.New(slog.DiscardHandler),
		Secret: func(context.Context, string) (user, password string, err error) { return "admin", "secret", nil },
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return s
}

// put makes the inventory a rack with some resources.
func (s *sweeper) put(all ...schemas.Resource) {
	s.t.Helper()
	topology := schemas.Topology{Version: 1, Resources: append([]schemas.Resource{{ID: "r1", Kind: schemas.KindRack}}, all...)}
	if _, err := s.inv.Import(s.t.Context(), cmdb.Draft{Topology: topology}, cmdb.ImportOptions{Bounds: cmdb.NoBounds()}); err != nil {
		s.t.Fatal(err)
	}
}

// finds sweeps 127.0.0.1 at a port of each protocol, where it is not 0.
func (s *sweeper) find(redfish, ipmi int) schemas.Find {
	s.t.Helper()
	d := schemas.Discovery{Ranges: []string{"127.0.0.1"}, Addresses: 1, Credential: "bmc", RedfishPorts: []int{}, IPMIPorts: []int{}}
	if redfish != 0 {
		d.RedfishPorts = []int{redfish}
	}
	if ipmi != 0 {
		d.IPMIPorts = []int{ipmi}
	}
	d, err := discoveries.New(s.db).Start(s.t.Context(), "ana", d)
	if err != nil {
		s.t.Fatal(err)
	}
	d = ended(s.t, s.db, d.ID)
	finds, _, err := discoveries.New(s.db).Finds(s.t.Context(), d.ID, "", "", 10)
	if err != nil || len(finds) != 1 || d.Status != schemas.DiscoveryCompleted {
		s.t.Fatalf("%+v %+v %v", d, finds, err)
	}
	discover.NewIndex(s.inv.Snapshot()).Judge(&finds[0], d.Credential)
	return finds[0]
}

// registered registers a find as a server, and expects of a second sweep that it finds nothing new.
func (s *sweeper) registered(f schemas.Find, name string, redfish, ipmi int) {
	s.t.Helper()
	all := discover.Fragment(&f, name)
	all[0].Parent = "r1"
	if f.Proposal.RedfishURL != "" {
		all[0].Attrs = all[0].Attrs.With(schemas.AttrRedfishURL, f.Proposal.RedfishURL)
	}
	if f.Proposal.IPMIIP != "" {
		all[0].Attrs = all[0].Attrs.With(schemas.AttrIPMIIP, f.Proposal.IPMIIP)
	}
	s.put(all...)
	if again := s.find(redfish, ipmi); again.Status != schemas.FindKnown || again.Server != name || again.Proposal != nil {
		s.t.Errorf("found again it is %+v", again)
	}
	if open, _, err := conflicts.New(s.db).List(s.t.Context(), conflicts.Filter{Limit: 10}); err != nil || len(open) > 0 {
		s.t.Errorf("what it said of itself contradicts it: %+v %v", open, err)
	}
}

// TestASweepFindsAMachineOfSushyTools needs the emulator of OpenStack (test/peers/sushytools.sh). It has no sessions, no
// serial number and no processors.
func TestASweepFindsAMachineOfSushyTools(t *testing.T) {
	at, err := url.Parse(peer(t, "SUSHY_TOOLS_URL"))
	if err != nil {
		t.Fatal(err)
	}
	address := netip.MustParseAddrPort(at.Host)
	s := sweepsWith(t, func() (*tls.Config, error) { return trusting(peer(t, "SUSHY_TOOLS_CA")) })
	f := s.find(int(address.Port()), 0)
	if f.Result != schemas.FindFound || f.Status != schemas.ServerDiscovered || f.Manufacturer != "Sushy Emulator" || !strings.EqualFold(f.UUID, peer(t, "SUSHY_TOOLS_SYSTEM")) ||
		len(f.NICs) != 2 || f.NICs[0].MAC != "52:54:00:00:00:01" || f.NICs[1].MAC != "52:54:00:00:00:02" || f.Proposal.RedfishURL != at.String() {
		t.Fatalf("%+v %+v", f, f.Proposal)
	}
	s.registered(f, "emu-1", int(address.Port()), 0)
}

// TestASweepReadsTheFRUOfIPMISim needs ipmi_sim of OpenIPMI (test/peers/ipmi.sh).
func TestASweepReadsTheFRUOfIPMISim(t *testing.T) {
	address := netip.MustParseAddrPort(strings.Fields(peer(t, "IPMI_BMCS"))[0])
	s := sweepsWith(t, func() (*tls.Config, error) { return &tls.Config{MinVersion: tls.VersionTLS12}, nil })
	f := s.find(0, int(address.Port()))
	if f.Protocol != "ipmi" || f.Result != schemas.FindFound || f.Manufacturer != "Example Corp" || f.Model != "GX-8 Node" || !strings.HasPrefix(f.SerialNumber, "GX8-") ||
		f.Status != schemas.ServerDiscovered || f.Proposal.IPMIIP != address.String() {
		t.Fatalf("%+v %+v", f, f.Proposal)
	}
	s.registered(f, "gx-1", 0, int(address.Port()))
}

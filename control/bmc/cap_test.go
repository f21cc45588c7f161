package bmc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"auspex/control"
	"auspex/control/messages"
	"auspex/control/policy"
	"auspex/internal/bmc/ipmi/ipmitest"
	"auspex/internal/sim/device"
	"auspex/internal/sim/fleet"
	simipmi "auspex/internal/sim/ipmi"
	"auspex/internal/sim/ledger"
	simredfish "auspex/internal/sim/redfish"
	"auspex/internal/store/caps"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/schemas"
)

// hall is a simulated rack on a clock of the test, whose servers are reached over Redfish, or over IPMI where they are named so.
type hall struct {
	*fleet.Fleet
	t     *testing.T
	at    time.Time
	attrs map[string]map[string]string
	caps  *caps.Store

	mu      sync.Mutex
	tripped []string
}

func newHall(t *testing.T, feedWatts float64, overIPMI ...string) *hall {
	t.Helper()
	return newHallOf(t, fleet.Config{Site: "dc1", Racks: 1, ServersPerRack: 4, GPUs: 8, Spines: 2, CRACs: 1, FeedWatts: feedWatts}, overIPMI...)
}

func newHallOf(t *testing.T, cfg fleet.Config, overIPMI ...string) *hall {
	t.Helper()
	h := &hall{t: t, at: time.Now(), attrs: map[string]map[string]string{}, caps: caps.New(sqltest.Open(t))}
	h.Fleet = fleet.New(cfg, 1, t.TempDir(), ledger.Discard(func(e ledger.Entry) {
		if e.Kind == ledger.KindTrip {
			h.mu.Lock()
			h.tripped = append(h.tripped, e.Device)
			h.mu.Unlock()
		}
	}), h.at)
	if err := h.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	for _, r := range h.Topology().Resources {
		if r.Kind != schemas.KindServer {
			continue
		}
		h.SetLoad(r.ID, []int{0, 1, 2, 3, 4, 5, 6, 7}, fleet.Load{Util: .95, Memory: .8, PID: 4000, Name: "python3"})
		srv := httptest.NewServer(simredfish.NewHandler(h.BMC(r.ID)))
		t.Cleanup(srv.Close)
		h.attrs[r.ID] = map[string]string{schemas.AttrRedfishURL: srv.URL, schemas.AttrCredential: "sim"}
	}
	for _, s := range overIPMI {
		conn, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = simipmi.NewServer(h.BMC(s)).Serve(ctx, conn) }()
		t.Cleanup(func() { cancel(); _ = conn.Close(); <-done })
		h.attrs[s] = map[string]string{schemas.AttrIPMIIP: conn.LocalAddr().String(), schemas.AttrCredential: "sim"}
	}
	h.pass(time.Minute)
	return h
}

func (h *hall) pass(d time.Duration) {
	h.t.Helper()
	for range int(d / time.Second) {
		h.at = h.at.Add(time.Second)
		if _, err := h.Step(h.at); err != nil {
			h.t.Fatal(err)
		}
	}
}

func (h *hall) remediators() map[string]control.Remediator {
	h.t.Helper()
	all, err := control.Drivers{Name: Default()}.Remediators(control.Settings{
		Secrets: fleetSecret{}, Caps: h.caps, Now: time.Now, Resource: func(id string) (schemas.Resource, bool) {
			return schemas.Resource{ID: id, Kind: schemas.KindServer, Attrs: schemas.AttrsOf(h.attrs[id])}, h.attrs[id] != nil
		}, Feeds: func(pdu string) (control.Feed, bool) {
			if !strings.HasPrefix(pdu, "pdu-") {
				return control.Feed{}, false
			}
			for _, r := range h.Topology().Resources {
				if r.Kind == schemas.KindPDU && r.ID != pdu {
					u := control.Unit{PDU: r, Servers: map[string]float64{}}
					for s := range h.attrs {
						u.Servers[s] = 1
					}
					return control.Feed{Units: []control.Unit{u}}, true
				}
			}
			return control.Feed{}, true
		},
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return all
}

func (h *hall) verdict(r control.Remediator, s control.Step) (control.Verdict, string) {
	h.t.Helper()
	v, how, err := r.Verify(h.t.Context(), s)
	if err != nil {
		return v, err.Error()
	}
	return v, messages.Text(how)
}

func TestAServerDrawsLessOverRedfishAndOverDCMI(t *testing.T) {
	h := newHall(t, 0, "gpu-r01-02")
	all := h.remediators()
	for server, way := range map[string]string{"gpu-r01-01": wayRedfish, "gpu-r01-02": wayDCMI} {
		t.Run(way, func(t *testing.T) {
			limiter := h.BMC(server).(device.PowerLimiter)
			if err := limiter.SetPowerLimit(8000, true, "test", ""); err != nil { // by somebody else
				t.Fatal(err)
			}
			s := control.Step{ID: "a1-" + server, Kind: policy.KindCap, Server: server, With: params("watts", "4200")}
			would, err := all[s.Kind].Plan(t.Context(), s)
			if text := messages.Text(would); err != nil || !strings.Contains(text, "to 4200 W through "+way) || !strings.Contains(text, "its limit is 8000 W") {
				t.Errorf("%q %v", text, err)
			}
			if err := all[s.Kind].Apply(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			if v, how := h.verdict(all[s.Kind], s); v != control.Pending || !strings.Contains(how, "and still draws") {
				t.Errorf("%d %s", v, how)
			}
			h.pass(20 * time.Second)
			if v, how := h.verdict(all[s.Kind], s); v != control.Verified {
				t.Errorf("%d %s", v, how)
			}
			s.ID, s.Kind, s.With = "a2-"+server, policy.KindUncap, nil
			if err := all[s.Kind].Apply(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			if v, how := h.verdict(all[s.Kind], s); v != control.Verified || !strings.Contains(how, "is 8000 W again") {
				t.Errorf("%d %s", v, how)
			}
			if watts, active, _ := limiter.PowerLimit(); watts != 8000 || !active {
				t.Errorf("the limit is %g W, in force %t", watts, active)
			}
			s.ID, s.Kind, s.With = "a3-"+server, policy.KindCap, params("watts", "200")
			if err := all[s.Kind].Apply(t.Context(), s); !errors.Is(err, control.ErrRejected) {
				t.Errorf("a limit of 200 W: %v", err)
			}
			if err := h.SetLimitless(server, true); err != nil {
				t.Fatal(err)
			}
			if _, err := all[s.Kind].Plan(t.Context(), s); !errors.Is(err, control.ErrCannot) {
				t.Errorf("a board without limits: %v", err)
			}
			_ = h.SetLimitless(server, false)
			if err := h.SetBMCFault(server, device.Fault{IgnoreSets: true}); err != nil {
				t.Fatal(err)
			}
			s.ID, s.With = "a4-"+server, params("watts", "4000")
			if err := all[s.Kind].Apply(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			h.pass(20 * time.Second)
			if v, how := h.verdict(all[s.Kind], s); v != control.Pending || !strings.Contains(how, "is 8000 W, not 4000 W") {
				t.Errorf("it said yes and did nothing: %d %s", v, how)
			}
		})
	}
}

// A feed is lost: without limits the other trips half a minute later, and everything is dark; with them it does not.
func TestTheSurvivingFeedTripsWithoutLimitsAlone(t *testing.T) {
	for _, limited := range []bool{false, true} {
		t.Run(strconv.FormatBool(limited), func(t *testing.T) {
			h := newHall(t, 17000, "gpu-r01-03")
			if err := h.SetFeed("pdu-r01-a", false); err != nil {
				t.Fatal(err)
			}
			h.pass(5 * time.Second)
			all := h.remediators()
			s := control.Step{ID: "a1", Kind: policy.KindCap, Server: "pdu-r01-a", Target: "pdu-r01-a"}
			rails, err := all[s.Kind].(control.Examiner).Examine(t.Context(), s)
			if err != nil || len(rails) != 1 || !rails[0].OK || rails[0].Value <= 17000 || rails[0].Limit != 17000 {
				t.Errorf("%v %v", rails, err)
			}
			if limited {
				if err := all[s.Kind].Apply(t.Context(), s); err != nil {
					t.Fatal(err)
				}
				h.pass(15 * time.Second)
				if v, how := h.verdict(h.remediators()[s.Kind], s); v != control.Verified { // of a process that has just started
					t.Errorf("%d %s", v, how)
				}
			}
			h.pass(2 * time.Minute)
			if got := len(h.tripped) > 0; got == limited || (h.BMC("gpu-r01-01").Power() == device.PowerOn) != limited {
				t.Errorf("tripped: %v; power is %s", h.tripped, h.BMC("gpu-r01-01").Power())
			}
			if !limited {
				return
			}
			if err := h.SetFeed("pdu-r01-a", true); err != nil {
				t.Fatal(err)
			}
			h.pass(5 * time.Second)
			s.ID, s.Kind = "a2", policy.KindUncap
			if err := all[s.Kind].Apply(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			if v, how := h.verdict(all[s.Kind], s); v != control.Verified {
				t.Errorf("%d %s", v, how)
			}
			if _, active, _ := h.BMC("gpu-r01-03").(device.PowerLimiter).PowerLimit(); active {
				t.Error("a limit is left")
			}
		})
	}
}

// A rack of the demo whose servers are all at work loses a feed: how far each comes down is planned in watts. One that is half idle holds.
func TestTheDemoPlansLimitsWhereAFeedIsLost(t *testing.T) {
	cfg := fleet.DefaultConfig()
	cfg.Racks = 1
	for busy, want := range map[int]string{8: "would limit 8 servers while pdu-r01-a gives no power: gpu-r01-01 ", 3: "is rated for 28800 W; it holds without limits"} {
		t.Run(strconv.Itoa(busy), func(t *testing.T) {
			h := newHallOf(t, cfg)
			for i := busy; i < cfg.ServersPerRack; i++ {
				h.SetLoad(fmt.Sprintf("gpu-r01-%02d", i+1), []int{0, 1, 2, 3, 4, 5, 6, 7}, fleet.Load{})
			}
			h.pass(time.Minute)
			if err := h.SetFeed("pdu-r01-a", false); err != nil {
				t.Fatal(err)
			}
			h.pass(2 * time.Minute) // a breaker of the demo bears it for longer
			r := h.remediators()[policy.KindCap]
			s := control.Step{ID: "a1", Kind: policy.KindCap, Server: "pdu-r01-a", Target: "pdu-r01-a"}
			would, err := r.Plan(t.Context(), s)
			if text := messages.Text(would); err != nil || !strings.Contains(text, want) {
				t.Errorf("%q %v", text, err)
			}
			rails, err := r.(control.Examiner).Examine(t.Context(), s)
			if err != nil || len(rails) != 1 || rails[0].Limit != cfg.FeedWatts || rails[0].OK != (busy == 8) || (rails[0].Value > 35_000 && rails[0].Value < 42_000) != (busy == 8) {
				t.Errorf("%+v %v", rails, err)
			}
			if len(h.tripped) > 0 {
				t.Errorf("%v tripped", h.tripped)
			}
		})
	}
}

// ipmi_sim has no DCMI: a clear cannot, and nothing of the session is lost.
func TestAControllerWithoutDCMICannot(t *testing.T) {
	sim := ipmitest.StartSim(t, ipmitest.Obedient)
	c := Default()
	all, err := control.Drivers{Name: c}.Remediators(control.Settings{
		Secrets: simSecret{}, Caps: caps.New(sqltest.Open(t)), Resource: func(id string) (schemas.Resource, bool) {
			return schemas.Resource{ID: id, Attrs: schemas.AttrsOf(map[string]string{schemas.AttrIPMIIP: sim.Addr, schemas.AttrCredential: "sim"})}, true
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = all[policy.KindCap].Plan(t.Context(), control.Step{ID: "a1", Kind: policy.KindCap, Server: "gpu-r01-01", With: params("watts", "4200")})
	if !errors.Is(err, control.ErrCannot) || !strings.Contains(err.Error(), "neither Redfish's PowerLimit nor DCMI's") {
		t.Error(err)
	}
}

type simSecret struct{}

func (simSecret) Secret(context.Context, string) (user, password string, err error) {
	return "admin", "secret", nil
}

package bmc

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"auspex/control"
	"auspex/control/controltest"
	"auspex/internal/bmc"
	"auspex/internal/bmc/ipmi/ipmitest"
	"auspex/internal/bmc/redfish/redfishtest"
	"auspex/schemas"
)

type secret struct{}

func (secret) Secret(context.Context, string) (user, password string, err error) {
	return "admin", "secret", nil
}

// where knows one server with the given addresses.
func where(redfishURL, ipmiAddr string) control.Settings {
	return control.Settings{
		Secrets: secret{}, Gate: bmc.NewGate(),
		Resource: func(id string) (schemas.Resource, bool) {
			return schemas.Resource{ID: "s1", Kind: schemas.KindServer, Attrs: schemas.AttrsOf(map[string]string{
				schemas.AttrRedfishURL: redfishURL, schemas.AttrIPMIIP: ipmiAddr, schemas.AttrCredential: "bmc",
			})}, id == "s1"
		},
	}
}

func link(p string) map[string]any { return map[string]any{"@odata.id": p} }

const system = "/redfish/v1/Systems/1"

func systemDoc(power string, reset time.Time) map[string]any {
	return map[string]any{
		"@odata.id": system, "PowerState": power, "LastResetTime": reset.UTC().Format(time.RFC3339),
		"Links": map[string]any{"ManagedBy": []any{link("/redfish/v1/Managers/1")}},
		"Actions": map[string]any{"#ComputerSystem.Reset": map[string]any{
			"target": system + "/Actions/ComputerSystem.Reset", "ResetType@Redfish.AllowableValues": []any{"On", "ForceOff", "GracefulShutdown", "Nmi", "PowerCycle"},
		}},
		"Boot": overrides("Disabled", "None"),
	}
}

func overrides(enabled, target string) map[string]any {
	return map[string]any{
		"BootSourceOverrideEnabled": enabled, "BootSourceOverrideTarget": target,
		"BootSourceOverrideTarget@Redfish.AllowableValues": []any{"None", "Pxe", "Hdd", "BiosSetup"},
	}
}

// with are the parameters of the steps that need some.
var with = map[string]map[string]string{"set_boot": {"target": "pxe"}}

// tree is a service whose clock is off.
func tree(off time.Duration) *redfishtest.Tree {
	t := redfishtest.New(map[string]map[string]any{
		"/redfish/v1":            {"Systems": link("/redfish/v1/Systems"), "Managers": link("/redfish/v1/Managers")},
		"/redfish/v1/Systems":    {"Members": []any{link(system)}},
		"/redfish/v1/Managers":   {"Members": []any{link("/redfish/v1/Managers/1")}},
		"/redfish/v1/Managers/1": {"@odata.id": "/redfish/v1/Managers/1", "DateTime": time.Now().Add(off).UTC().Format(time.RFC3339)},
	})
	t.Set(system, systemDoc("On", time.Now().Add(off-48*time.Hour)))
	return t
}

func changes(r *http.Request) bool {
	return r.Method != http.MethodGet && r.Method != http.MethodDelete && !strings.HasSuffix(r.URL.Path, "/Sessions")
}

func TestConformanceOverRedfish(t *testing.T) {
	for name, off := range map[string]time.Duration{"clock is right": 0, "clock in another zone": -8 * time.Hour} {
		for how, effects := range map[string]func(s *redfishtest.Tree) []func(){
			"power is seen off": func(s *redfishtest.Tree) []func() {
				old := time.Now().Add(off - 48*time.Hour)
				return []func(){func() { s.Set(system, systemDoc("Off", old)) }, func() { s.Set(system, systemDoc("On", old)) }}
			},
			"a reset time is seen": func(s *redfishtest.Tree) []func() {
				return []func(){func() { s.Set(system, systemDoc("On", time.Now().Add(off+time.Second))) }}
			},
		} {
			cycle := effects
			for first, kinds := range map[string][]string{"On": {"power_cycle", "power_off", "set_boot"}, "Off": {"power_on"}, "on": {"nmi"}} {
				t.Run(name+", "+how+", "+first, func(t *testing.T) {
					controltest.Run(t, controltest.Harness{
						Kinds: kinds, Some: true,
						World: func(t *testing.T, m controltest.Manner) controltest.World {
							peer := tree(off)
							old := time.Now().Add(off - 48*time.Hour)
							state := strings.ToUpper(first[:1]) + first[1:]
							peer.Set(system, systemDoc(state, old))
							srv := httptest.NewServer(controltest.Behave(m, peer, changes))
							if m == controltest.Gone {
								srv.Close()
							} else {
								t.Cleanup(srv.Close)
							}
							power := func(states ...string) (out []func()) {
								for _, s := range states {
									out = append(out, func() { peer.Set(system, systemDoc(s, old)) })
								}
								return out
							}
							return controltest.World{
								Driver: Default(), Settings: where(srv.URL, ""), Server: "s1", With: with,
								Asked: func() int { return len(peer.Posts()) },
								Effects: map[string][]func(){
									"power_cycle": cycle(peer), "power_off": power("PoweringOff", "Off"), "power_on": power("PoweringOn", "On"),
									"nmi": {func() { peer.Set(system, systemDoc("On", time.Now().Add(off+time.Second))) }},
									"set_boot": {func() {
										doc := systemDoc("Off", old)
										doc["Boot"] = overrides("Once", "Pxe")
										peer.Set(system, doc)
									}},
								},
							}
						},
					})
				})
			}
		}
	}
}

// chassis is a controller that speaks IPMI.
type chassis struct {
	addr     string
	asked    func() int
	setPower func(on bool)
	letBoot  func() // nil where the boot flags that it reports are never valid
}

// TestConformanceOverIPMI runs the suite with ipmi_sim, and with the controller that
// every machine can run.
func TestConformanceOverIPMI(t *testing.T) {
	for name, start := range map[string]func(t *testing.T, refuses bool) chassis{
		"ipmi_sim": func(t *testing.T, refuses bool) chassis {
			board := ipmitest.Obedient
			if refuses {
				board = ipmitest.NoChassis
			}
			s := ipmitest.StartSim(t, board)
			return chassis{s.Addr, s.Asked, s.SetPower, nil}
		},
		"recorded": func(t *testing.T, refuses bool) chassis {
			b := ipmitest.Start(t, ipmitest.State{Power: true})
			if refuses {
				b.Refuse()
			}
			b.Hold()
			return chassis{b.Addr, func() int { return len(b.Controls()) + b.Boots() }, b.SetPower, b.LetBoot}
		},
	} {
		t.Run(name, func(t *testing.T) {
			for on, kinds := range map[bool][]string{true: {"power_cycle", "power_off", "set_boot"}, false: {"power_on"}} {
				if name == "ipmi_sim" { // it marks no boot flags as valid, and a board that refuses all has no power
					kinds = slices.DeleteFunc(kinds, func(k string) bool { return k == "set_boot" || k == "power_off" })
				}
				controltest.Run(t, controltest.Harness{
					Kinds: kinds, Some: true, Apart: true,
					World: func(t *testing.T, m controltest.Manner) controltest.World { return overIPMI(t, m, start, on) },
				})
			}
		})
	}
}

func overIPMI(t *testing.T, m controltest.Manner, start func(t *testing.T, refuses bool) chassis, on bool) controltest.World {
	t.Helper()
	w := controltest.World{Driver: Default(), Server: "s1", With: with, Asked: func() int { return 0 }}
	if m == controltest.Mute || m == controltest.Gone {
		conn, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if m == controltest.Gone {
			_ = conn.Close()
		} else {
			t.Cleanup(func() { _ = conn.Close() })
		}
		w.Settings = where("", conn.LocalAddr().String())
		return w
	}
	c := start(t, m == controltest.Refusing)
	w.Asked = c.asked
	c.setPower(on)
	turn := func(on bool) func() { return func() { c.setPower(on) } }
	w.Effects = map[string][]func(){
		"power_cycle": {turn(false), turn(true)}, "power_off": {turn(false)}, "power_on": {turn(true)}, "set_boot": {c.letBoot},
	}
	if m == controltest.Lossy { // the answers are encrypted: those after a change are garbled, then lost
		lost := 0
		c.addr = ipmitest.Relay(t, c.addr, func(d []byte) [][]byte {
			if c.asked() == 0 {
				return [][]byte{d}
			}
			if lost++; lost > 1 {
				return nil
			}
			d[len(d)/2] ^= 0x10
			return [][]byte{d}
		})
	}
	w.Settings = where("", c.addr)
	return w
}

func TestAResetThatTheControllerDoesNotHaveIsARefusal(t *testing.T) {
	t.Parallel()
	peer := tree(0)
	doc := systemDoc("On", time.Now())
	doc["Actions"] = map[string]any{"#ComputerSystem.Reset": map[string]any{
		"target": system + "/Actions/ComputerSystem.Reset", "ResetType@Redfish.AllowableValues": []any{"On", "ForceOff", "ForceRestart"},
	}}
	peer.Set(system, doc)
	srv := httptest.NewServer(peer)
	t.Cleanup(srv.Close)
	all, err := Default().Remediators(where(srv.URL, ""))
	if err != nil {
		t.Fatal(err)
	}
	if err := all["power_cycle"].Apply(t.Context(), control.Step{ID: "a", Server: "s1"}); !errors.Is(err, control.ErrRejected) ||
		len(peer.Posts()) != 0 {
		t.Errorf("%v, asked %v", err, peer.Posts())
	}
}

func TestAProtocolWithoutAnAddressCannot(t *testing.T) {
	t.Parallel()
	for protocol, want := range map[string]bool{"redfish": true, "ipmi": false, "auto": true} {
		c := Default()
		c.Protocol = protocol
		_, err := c.target(t.Context(), where("http://127.0.0.1:1", ""), "s1")
		if (err == nil) != want {
			t.Errorf("%s: %v", protocol, err)
		}
	}
}

// What the controller shows of an interrupt is a reset that follows. Where it has no time of one, what
// came of it is not known, and is not said to be.
func TestAnInterruptThatLeavesNoTraceIsNeitherVerifiedNorFailed(t *testing.T) {
	t.Parallel()
	b := ipmitest.Start(t, ipmitest.State{Power: true})
	all, err := Default().Remediators(where("", b.Addr))
	if err != nil {
		t.Fatal(err)
	}
	s := control.Step{ID: "a", Kind: "nmi", Server: "s1", Since: time.Now()}
	if err := all["nmi"].Apply(t.Context(), s); err != nil || !slices.Equal(b.Controls(), []byte{4}) {
		t.Fatal(err, b.Controls())
	}
	if v, observed, err := all["nmi"].Verify(t.Context(), s); v != control.Unseen || err != nil {
		t.Error(v, observed, err)
	}
	sim := ipmitest.StartSim(t, ipmitest.Obedient) // it knows no diagnostic interrupt
	if all, err = Default().Remediators(where("", sim.Addr)); err != nil {
		t.Fatal(err)
	}
	if err := all["nmi"].Apply(t.Context(), s); !errors.Is(err, control.ErrRejected) {
		t.Error(err)
	}
}

// ipmi_sim takes the boot device and reports boot flags that are not valid: nothing is believed of them.
func TestBootFlagsThatAreNotValidVerifyNothing(t *testing.T) {
	t.Parallel()
	sim := ipmitest.StartSim(t, ipmitest.Obedient)
	all, err := Default().Remediators(where("", sim.Addr))
	if err != nil {
		t.Fatal(err)
	}
	s := control.Step{ID: "a", Server: "s1", With: map[string]string{"target": "pxe"}}
	if err := all["set_boot"].Apply(t.Context(), s); err != nil || sim.Asked() != 1 {
		t.Fatal(err, sim.Asked())
	}
	if err := all["power_off"].Apply(t.Context(), control.Step{ID: "b", Server: "s1"}); err != nil || sim.Asked() != 2 {
		t.Fatal(err, sim.Asked())
	}
	sim.SetBoot("pxe")
	if v, observed, err := all["set_boot"].Verify(t.Context(), s); v != control.Pending || err != nil {
		t.Error(v, observed, err)
	}
}

// The power is taken from a server at once only where somebody says so, and not at all where a
// controller has no other way.
func TestAServerIsShutDownByItsSystemUnlessForceIsSaid(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ force, allowed, want string }{
		{"", "GracefulShutdown", "GracefulShutdown"},
		{"false", "GracefulShutdown", "GracefulShutdown"},
		{"true", "GracefulShutdown", "ForceOff"},
		{"", "Nmi", ""},
	} {
		peer := tree(0)
		doc := systemDoc("On", time.Now())
		doc["Actions"] = map[string]any{"#ComputerSystem.Reset": map[string]any{
			"target": system + "/Actions/ComputerSystem.Reset", "ResetType@Redfish.AllowableValues": []any{"On", "ForceOff", tc.allowed},
		}}
		peer.Set(system, doc)
		srv := httptest.NewServer(peer)
		all, err := Default().Remediators(where(srv.URL, ""))
		if err != nil {
			t.Fatal(err)
		}
		err = all["power_off"].Apply(t.Context(), control.Step{ID: "a", Server: "s1", With: map[string]string{"force": tc.force}})
		srv.Close()
		if tc.want == "" {
			if !errors.Is(err, control.ErrRejected) || len(peer.Posts()) != 0 {
				t.Errorf("%+v: %v, %v", tc, err, peer.Posts())
			}
		} else if posts := peer.Posts(); err != nil || len(posts) != 1 || !strings.Contains(posts[0].Body, tc.want) {
			t.Errorf("%+v: %v, %v", tc, err, posts)
		}
	}
}

package bmc_test

import (
	"context"
	"errors"
	"net"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"auspex/internal/bmc"
	"auspex/internal/bmc/ipmi"
	"auspex/internal/bmc/ipmi/ipmitest"
	"auspex/internal/bmc/redfish"
	"auspex/internal/bmc/redfish/redfishtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func service(t *testing.T) (*redfishtest.Tree, string) {
	t.Helper()
	tree := redfishtest.New(map[string]map[string]any{
		"/redfish/v1": {"Systems": link("/redfish/v1/Systems"), "Managers": link("/redfish/v1/Managers")},
		"/redfish/v1/Systems": {"Members": []any{
			link("/redfish/v1/Systems/HGX_Baseboard_0"), link("/redfish/v1/Systems/System_0"),
		}},
		"/redfish/v1/Systems/HGX_Baseboard_0": {"@odata.id": "/redfish/v1/Systems/HGX_Baseboard_0", "PowerState": "On"},
		"/redfish/v1/Systems/System_0": {
			"@odata.id": "/redfish/v1/Systems/System_0", "PowerState": "On",
			"Actions": map[string]any{"#ComputerSystem.Reset": map[string]any{
				"target":                            "/redfish/v1/Systems/System_0/Actions/ComputerSystem.Reset",
				"ResetType@Redfish.AllowableValues": []any{"On", "PowerCycle"},
			}},
		},
	})
	s := httptest.NewServer(tree)
	t.Cleanup(s.Close)
	return tree, s.URL
}

func link(p string) map[string]any { return map[string]any{"@odata.id": p} }

func TestRedfishResetsTheSystemThatHasAReset(t *testing.T) {
	tree, url := service(t)
	for _, tree.NoSessions = range []bool{false, true} {
		c, err := bmc.Open(t.Context(), bmc.Target{Server: "s1", RedfishURL: url, User: "admin", Password: "secret", Gate: bmc.NewGate()})
		if err != nil {
			t.Fatal(err)
		}
		if s, err := c.Power(t.Context()); s != bmc.PowerOn || err != nil {
			t.Errorf("power: %s, %v", s, err)
		}
		if err := c.Reset(t.Context(), bmc.ResetPowerCycle, "a1"); err != nil {
			t.Error(err)
		}
		if err := c.Reset(t.Context(), bmc.ResetForceOff, "a2"); err == nil {
			t.Error("a reset that the system does not allow was sent")
		}
		if err := c.SetBoot(t.Context(), bmc.Boot{Enabled: "Once", Target: "Pxe"}, "a3"); err != nil {
			t.Error(err)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	one := []redfishtest.Post{
		{Method: "POST", Path: "/redfish/v1/Systems/System_0/Actions/ComputerSystem.Reset", RequestID: "a1", Body: `{"ResetType":"PowerCycle"}`},
		{
			Method: "PATCH", Path: "/redfish/v1/Systems/System_0", RequestID: "a3",
			Body: `{"Boot":{"BootSourceOverrideEnabled":"Once","BootSourceOverrideTarget":"Pxe"}}`,
		},
	}
	if d := cmp.Diff(append(one, one...), tree.Posts()); d != "" {
		t.Errorf("requests (-want +got):\n%s", d)
	}
}

func TestWrongPasswordsAreToldAsSuch(t *testing.T) {
	_, url := service(t)
	if _, err := bmc.Open(t.Context(), bmc.Target{
		Server: "s1", RedfishURL: url, User: "admin", Password: "wrong",
	}); !errors.Is(err, redfish.ErrAuth) {
		t.Errorf("redfish: %v", err)
	}
	b := ipmitest.Start(t, ipmitest.State{})
	if _, err := bmc.Open(t.Context(), bmc.Target{
		Server: "s1", IPMIAddr: b.Addr, User: "admin", Password: "wrong",
	}); !errors.Is(err, ipmi.ErrAuth) {
		t.Errorf("ipmi: %v", err)
	}
	if _, err := bmc.Open(t.Context(), bmc.Target{Server: "s1"}); !errors.Is(err, bmc.ErrNoAddress) {
		t.Errorf("no address: %v", err)
	}
}

func TestIPMIControlsTheChassisOnce(t *testing.T) {
	b := ipmitest.Start(t, ipmitest.State{Power: true})
	gate := bmc.NewGate()
	c, err := bmc.Open(t.Context(), bmc.Target{Server: "s1", IPMIAddr: b.Addr, User: "admin", Password: "secret", Gate: gate})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := bmc.Open(ctx, bmc.Target{Server: "s1", IPMIAddr: b.Addr, Gate: gate}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second session beside the first: %v", err)
	}
	for _, r := range []bmc.ResetType{bmc.ResetForceOff, bmc.ResetOn, bmc.ResetPowerCycle} {
		if err := c.Reset(t.Context(), r, "a1"); err != nil {
			t.Fatal(err)
		}
		want := bmc.PowerOn
		if r == bmc.ResetForceOff {
			want = bmc.PowerOff
		}
		if s, err := c.Power(t.Context()); err != nil || s != want {
			t.Errorf("after %s: %s, %v", r, s, err)
		}
	}
	if err := c.Reset(t.Context(), bmc.ResetGracefulRestart, "a1"); !errors.Is(err, bmc.ErrUnsupported) {
		t.Errorf("graceful restart over IPMI: %v", err)
	}
	if err := c.SetBoot(t.Context(), bmc.Boot{Enabled: "Once", Target: "Pxe", Mode: "UEFI"}, "a1"); err != nil {
		t.Errorf("set boot: %v", err)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if d := cmp.Diff([]byte{0, 1, 2}, b.Controls()); d != "" {
		t.Errorf("chassis controls (-want +got):\n%s", d)
	}
}

func TestTheGateLetsOneThroughAtATime(t *testing.T) {
	g := bmc.NewGate()
	var inside, most atomic.Int32
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			release, err := g.Acquire(t.Context(), "s1")
			if err != nil {
				t.Error(err)
				return
			}
			most.Store(max(most.Load(), inside.Add(1)))
			inside.Add(-1)
			release()
			release() // a second release does nothing
		})
	}
	wg.Wait()
	if most.Load() != 1 {
		t.Errorf("%d at a time", most.Load())
	}
}

// relay stands between a client and a controller, and puts what spoil makes of an
// answer before it.
func relay(t *testing.T, to string, spoil func(answer []byte) []byte) (addr string) {
	t.Helper()
	front, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	back, err := net.Dial("udp", to)
	if err != nil {
		t.Fatal(err)
	}
	var client atomic.Pointer[net.Addr]
	var wg sync.WaitGroup
	wg.Go(func() {
		buf := make([]byte, 4096)
		for {
			n, from, err := front.ReadFrom(buf)
			if err != nil {
				return
			}
			client.Store(&from)
			_, _ = back.Write(buf[:n])
		}
	})
	wg.Go(func() {
		buf := make([]byte, 4096)
		for {
			n, err := back.Read(buf)
			if err != nil {
				return
			}
			if bad := spoil(buf[:n]); bad != nil {
				_, _ = front.WriteTo(bad, *client.Load())
			}
			_, _ = front.WriteTo(buf[:n], *client.Load())
		}
	})
	t.Cleanup(func() {
		_, _ = front.Close(), back.Close()
		wg.Wait()
	})
	return front.LocalAddr().String()
}

// The library decrypts in a goroutine of its own, where a panic would end the
// process.
func TestAnEncryptedPacketThatIsTooShortIsPassedOver(t *testing.T) {
	b := ipmitest.Start(t, ipmitest.State{Power: true})
	var spoilt atomic.Int64
	addr := relay(t, b.Addr, func(answer []byte) []byte {
		if len(answer) < 16 || answer[5] != 0xc0 { // encrypted, authenticated, an IPMI message
			return nil
		}
		spoilt.Add(1)
		short := append([]byte(nil), answer[:14]...)
		return append(short, 4, 0, 1, 2, 3, 4)
	})
	c, err := bmc.Open(t.Context(), bmc.Target{Server: "s1", IPMIAddr: addr, User: "admin", Password: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	if s, err := c.Power(t.Context()); err != nil || s != bmc.PowerOn {
		t.Errorf("power: %s, %v", s, err)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if spoilt.Load() == 0 {
		t.Error("no answer was encrypted")
	}
}

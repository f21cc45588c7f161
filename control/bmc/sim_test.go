package bmc

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"auspex/control"
	"auspex/control/messages"
	"auspex/internal/sim/device"
	"auspex/internal/sim/fleet"
	"auspex/internal/sim/ledger"
	simredfish "auspex/internal/sim/redfish"
	"auspex/schemas"
)

// yard is a simulated fleet on the machine's clock, with a place that firmware comes from.
type yard struct {
	*fleet.Fleet
	store string // URL
	mu    sync.Mutex
	files map[string]string // of it
	urls  map[string]string // of controllers
}

func newYard(t *testing.T) *yard {
	t.Helper()
	y := &yard{files: map[string]string{}, urls: map[string]string{}}
	cfg := fleet.Config{Site: "dc1", Racks: 1, ServersPerRack: 8, GPUs: 1, Spines: 2, CRACs: 1}
	y.Fleet = fleet.New(cfg, 1, t.TempDir(), ledger.Discard(func(ledger.Entry) {}), time.Now())
	if err := y.Start(); err != nil {
		t.Fatal(err)
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for tick := time.NewTicker(50 * time.Millisecond); ; {
			select {
			case <-done:
				tick.Stop()
				return
			case now := <-tick.C:
				if _, err := y.Step(now); err != nil {
					t.Error(err)
				}
			}
		}
	}()
	t.Cleanup(func() { close(done); <-ended; _ = y.Close() })
	for _, r := range y.Topology().Resources {
		if r.Kind == schemas.KindServer {
			srv := httptest.NewServer(simredfish.NewHandler(y.BMC(r.ID)))
			t.Cleanup(srv.Close)
			y.urls[r.ID] = srv.URL
		}
	}
	store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		y.mu.Lock()
		content, ok := y.files[strings.TrimPrefix(r.URL.Path, "/fw/")]
		y.mu.Unlock()
		if ok {
			_, _ = w.Write([]byte(content))
			return
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(store.Close)
	y.store = store.URL + "/fw/"
	return y
}

// image keeps an image in the store and returns its parameters.
func (y *yard) image(component, id, version, then string) map[string]string {
	content := fleet.Image(id, version, then)
	name := id + "-" + version + "-" + then
	y.mu.Lock()
	y.files[name] = string(content)
	y.mu.Unlock()
	sum := sha256.Sum256(content)
	return params("component", component, "version", version, "image", y.store+name, "sha256", hex.EncodeToString(sum[:]))
}

type fleetSecret struct{}

func (fleetSecret) Secret(context.Context, string) (user, password string, err error) {
	return fleet.User, fleet.Password, nil
}

// remediators are those of a process of control that has just started.
func (y *yard) remediators(t *testing.T) map[string]control.Remediator {
	t.Helper()
	c := Default()
	c.Images = []string{y.store}
	all, err := c.Remediators(control.Settings{Secrets: fleetSecret{}, Resource: func(id string) (schemas.Resource, bool) {
		return schemas.Resource{ID: id, Kind: schemas.KindServer, Attrs: schemas.AttrsOf(map[string]string{
			schemas.AttrRedfishURL: y.urls[id], schemas.AttrCredential: "sim",
		})}, y.urls[id] != ""
	}})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// ends verifies a step until it is over.
func ends(t *testing.T, r control.Remediator, s control.Step, within time.Duration) (control.Verdict, string) {
	t.Helper()
	last := ""
	for deadline := time.Now().Add(within); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) { // between two looks at a model that runs on the clock
		v, how, err := r.Verify(t.Context(), s)
		if err != nil {
			last = err.Error()
			continue
		}
		if last = messages.Text(how); v != control.Pending {
			return v, last
		}
	}
	return control.Pending, last
}

// What the drivers do to a simulated board is what its world shows, also where the controller lies, fails, or starts
// anew in the middle.
func TestFirmwareIsInstalledByTheSimulatedControllers(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	const server = "gpu-r01-0"
	for i, tc := range []struct {
		name, then string
		restart    bool // of control, right after the step was sent
		verdict    control.Verdict
		says       string
	}{
		{"installed", "", false, control.Verified, "FW_BIOS_0 of gpu-r01-01 has version 2.0.0"},
		{"control starts anew", "", true, control.Verified, "has version 2.0.0"},
		{"the image is refused", "fail", false, control.Failed, "ended as Exception, and its version is 1.6.7: The image could not be verified."},
		{"the controller starts anew and forgets", "restart", false, control.Verified, "has version 2.0.0"},
		{"it lies", "lie", false, control.Pending, "is completed, and its version is 1.6.7"},
		{"it stalls", "stall", false, control.Pending, "is at 50 %"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			name := server + string(rune('1'+i))
			all := y.remediators(t)
			s := control.Step{ID: "act-" + name, Kind: "update_firmware", Server: name, Since: time.Now(), With: y.image("bios", "FW_BIOS_0", "2.0.0", tc.then)}
			if sentence, err := all["update_firmware"].Plan(t.Context(), s); err != nil {
				t.Fatal(messages.Text(sentence), err)
			}
			if err := all["update_firmware"].Apply(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			if what, err := all["update_firmware"].(control.Updater).Updating(t.Context(), name); err != nil || what == "" {
				t.Errorf("%q is under way, %v", what, err)
			}
			if err := all["update_firmware"].Apply(t.Context(), s); !errors.Is(err, control.ErrRejected) || !strings.Contains(err.Error(), "another update is under way") {
				t.Errorf("a second one: %v", err)
			}
			if tc.restart {
				all = y.remediators(t)
			}
			patience := 20 * time.Second
			if tc.verdict == control.Pending {
				patience = 7 * time.Second
			}
			if v, how := ends(t, all["update_firmware"], s, patience); v != tc.verdict || !strings.Contains(how, tc.says) {
				t.Errorf("%d: %s", v, how)
			}
		})
	}
	t.Run("BIOS and BMC", func(t *testing.T) {
		t.Parallel()
		all := y.remediators(t)
		const name = server + "7"
		s := control.Step{ID: "b", Kind: "set_bios", Server: name, Since: time.Now(), With: params("BootMode", "Legacy", "NUMANodesPerSocket", "2", "SMT", "false")}
		if err := all["set_bios"].Apply(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if v, how := ends(t, all["set_bios"], s, 5*time.Second); v != control.Verified || !strings.Contains(how, "pending until its next reset") {
			t.Errorf("%d: %s", v, how)
		}
		s = control.Step{ID: "r", Kind: "reset_bmc", Server: name, Since: time.Now()}
		if err := all["reset_bmc"].Apply(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if v, how := ends(t, all["reset_bmc"], s, 20*time.Second); v != control.Verified || !strings.Contains(how, "reports a start at") {
			t.Errorf("%d: %s", v, how)
		}
		s = control.Step{ID: "c", Kind: "set_bios", Server: name, Since: time.Now(), With: params("BootMode", "Legacy", "SMT", "false", "reset", "true")}
		if err := all["set_bios"].Apply(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if v, how := ends(t, all["set_bios"], s, 30*time.Second); v != control.Verified || !strings.Contains(how, "has BootMode=Legacy, SMT=false") {
			t.Errorf("%d: %s", v, how)
		}
		s = control.Step{ID: "e", Kind: "set_bios", Server: name, Since: time.Now(), With: params("defaults", "true", "SMT", "false", "reset", "true")}
		if so, how, err := all["set_bios"].(control.Settler).Settled(t.Context(), s); err != nil || so {
			t.Errorf("it has its defaults: %+v %v", how, err)
		}
		if err := all["set_bios"].Apply(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if v, how := ends(t, all["set_bios"], s, 30*time.Second); v != control.Verified || !strings.Contains(how, " defaults, SMT=false") {
			t.Errorf("%d %s", v, how)
		}
		for _, a := range device.Attributes {
			want := a.Default
			if a.Name == "SMT" {
				want = false
			}
			if is, _, _ := y.BMC(name).(device.Board).BIOS(); is[a.Name] != want {
				t.Errorf("%s is %v, not %v", a.Name, is[a.Name], want)
			}
		}
		s = control.Step{ID: "d", Kind: "set_bios", Server: name, Since: time.Now(), With: params(fleet.LockedAttribute, "Disabled", "reset", "true")}
		if err := all["set_bios"].Apply(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if v, how := ends(t, all["set_bios"], s, 30*time.Second); v != control.Failed || !strings.Contains(how, `LockedBySetup is "Enabled", not "Disabled"`) {
			t.Errorf("%d: %s", v, how)
		}
	})
	t.Run("yes, and nothing", func(t *testing.T) {
		t.Parallel()
		all := y.remediators(t)
		const name = server + "8"
		if err := y.SetBMCFault(name, device.Fault{IgnoreSets: true}); err != nil {
			t.Fatal(err)
		}
		for kind, with := range map[string]map[string]string{
			"set_bios": params("BootMode", "Legacy", "reset", "true"), "reset_bmc": nil, "update_firmware": y.image("bmc", "FW_BMC_0", "9.9", ""),
		} {
			s := control.Step{ID: "i" + kind, Kind: kind, Server: name, Since: time.Now(), With: with}
			if err := all[kind].Apply(t.Context(), s); err != nil {
				t.Errorf("%s: %v", kind, err)
			}
			if v, how := ends(t, all[kind], s, time.Second); v != control.Pending {
				t.Errorf("%s: %d, %s", kind, v, how)
			}
		}
	})
}

// Nothing is sent for an image whose digest is another, that comes from elsewhere, or of what is not there.
func TestAnImageIsCheckedBeforeItIsSent(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	all := y.remediators(t)
	good := y.image("bios", "FW_BIOS_0", "2.0.0", "")
	with := func(k, v string) map[string]string {
		out := params("component", good["component"], "version", good["version"], "image", good["image"], "sha256", good["sha256"])
		out[k] = v
		return out
	}
	for want, with := range map[string]map[string]string{
		"the image has the SHA-256 digest":              with("sha256", strings.Repeat("0", 64)),
		"none of the places that control.bmc.images":    with("image", "http://192.0.2.1/fw/x"),
		"at none of the places":                         with("image", strings.Replace(good["image"], "/fw/", "/fw/../", 1)),
		"HTTP status 404":                               with("image", y.store+"nothing"),
		"without a user":                                with("image", strings.Replace(good["image"], "//", "//u:p@", 1)),
		`"firmware" is one of FW_BMC_0, FW_BIOS_0`:      with("component", "firmware"),
		`there is no "cpld"; there are FW_BMC_0`:        with("component", "cpld"),
		"says that FW_PSU_0 cannot be updated":          with("component", "fw_psu_0"),
		"already in the wanted state, but not set by A": with("version", "1.6.7"),
	} {
		err := all["update_firmware"].Apply(t.Context(), control.Step{ID: "a", Kind: "update_firmware", Server: "gpu-r01-01", With: with})
		if err == nil || !errors.Is(err, control.ErrRejected) && !errors.Is(err, control.ErrAlready) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if tasks := y.BMC("gpu-r01-01").(device.Board).Tasks(); len(tasks) != 0 {
		t.Errorf("%+v", tasks)
	}
}

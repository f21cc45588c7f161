package bmc

import (
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/control"
	"auspex/control/controltest"
	"auspex/control/messages"
	"auspex/internal/bmc/redfish/redfishtest"
)

const (
	manager  = "/redfish/v1/Managers/1"
	bios     = system + "/Bios"
	biosNext = bios + "/Settings"
)

func managerDoc(started time.Time) map[string]any {
	return map[string]any{
		"@odata.id": manager, "Id": "1", "DateTime": time.Now().UTC().Format(time.RFC3339), "LastResetTime": started.UTC().Format(time.RFC3339),
		"Actions": map[string]any{"#Manager.Reset": map[string]any{
			"target": manager + "/Actions/Manager.Reset", "ResetType@Redfish.AllowableValues": []any{"GracefulRestart", "ForceRestart"},
		}},
	}
}

func biosDoc(attrs map[string]any, applied time.Time) map[string]any {
	set := map[string]any{"SettingsObject": link(biosNext), "SupportedApplyTimes": []any{"OnReset"}}
	if !applied.IsZero() {
		set["Time"] = applied.UTC().Format(time.RFC3339)
		set["Messages"] = []any{map[string]any{"Message": "BootMode is fixed on this board."}}
	}
	return map[string]any{"@odata.id": bios, "Id": "Bios", "AttributeRegistry": "R1", "Attributes": attrs, "@Redfish.Settings": set}
}

func nextDoc(attrs map[string]any) map[string]any {
	return map[string]any{"@odata.id": biosNext, "Id": "Settings", "Attributes": attrs}
}

var legacy = map[string]any{"BootMode": "Legacy", "Cores": 64.0, "SMT": true, "Serial": "S1", "Label": "x"}

// board is a controller with a BIOS and a reset of itself.
func board() *redfishtest.Tree {
	t := tree(0)
	doc := systemDoc("On", time.Now().Add(-48*time.Hour))
	doc["Bios"] = link(bios)
	doc["Actions"].(map[string]any)["#ComputerSystem.Reset"].(map[string]any)["ResetType@Redfish.AllowableValues"] = []any{"GracefulRestart", "PowerCycle"}
	t.Set(system, doc)
	t.Set(manager, managerDoc(time.Now().Add(-48*time.Hour)))
	t.Set(bios, biosDoc(legacy, time.Time{}))
	t.Set(biosNext, nextDoc(map[string]any{}))
	root := maps.Clone(t.Doc("/redfish/v1"))
	root["Registries"] = link("/redfish/v1/Registries")
	t.Set("/redfish/v1", root)
	t.Set("/redfish/v1/Registries", map[string]any{"Members": []any{link("/redfish/v1/Registries/R1")}})
	t.Set("/redfish/v1/Registries/R1", map[string]any{
		"@odata.id": "/redfish/v1/Registries/R1", "Id": "R1", "Location": []any{map[string]any{"Language": "en", "Uri": "/r1.json"}},
	})
	t.Set("/r1.json", map[string]any{"Id": "R1", "RegistryEntries": map[string]any{"Attributes": []any{
		map[string]any{"AttributeName": "BootMode", "Type": "Enumeration", "Value": []any{map[string]any{"ValueName": "Legacy"}, map[string]any{"ValueName": "Uefi"}}},
		map[string]any{"AttributeName": "Cores", "Type": "Integer", "LowerBound": 8, "UpperBound": 64, "ScalarIncrement": 8},
		map[string]any{"AttributeName": "SMT", "Type": "Boolean"},
		map[string]any{"AttributeName": "Serial", "Type": "String", "ReadOnly": true},
		map[string]any{"AttributeName": "Label", "Type": "String", "MaxLength": 4},
		map[string]any{"AttributeName": "Admin", "Type": "Password"},
	}}})
	return t
}

// served serves a tree and returns the remediator of a kind.
func served(t *testing.T, h http.Handler, kind string) control.Remediator {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	all, err := Default().Remediators(at(srv.URL))
	if err != nil {
		t.Fatal(err)
	}
	return all[kind]
}

func at(url string) control.Settings { return where(url, "") }

func params(kv ...string) map[string]string {
	out := map[string]string{}
	for i := 0; i+1 < len(kv); i += 2 {
		out[kv[i]] = kv[i+1]
	}
	return out
}

func TestConformanceOfBIOSAndOwnReset(t *testing.T) {
	for _, kind := range []string{"set_bios", "reset_bmc"} {
		controltest.Run(t, controltest.Harness{
			Kinds: []string{kind}, Some: true,
			World: func(t *testing.T, m controltest.Manner) controltest.World {
				peer := board()
				srv := httptest.NewServer(controltest.Behave(m, peer, changes))
				if m == controltest.Gone {
					srv.Close()
				} else {
					t.Cleanup(srv.Close)
				}
				return controltest.World{
					Driver: Default(), Settings: at(srv.URL), Server: "s1", With: map[string]map[string]string{"set_bios": params("BootMode", "Uefi", "Cores", "32")},
					Asked: func() int { return len(peer.Posts()) },
					Effects: map[string][]func(){
						"set_bios": {
							func() { peer.Set(biosNext, nextDoc(map[string]any{"BootMode": "Uefi"})) },
							func() { peer.Set(biosNext, nextDoc(map[string]any{"BootMode": "Uefi", "Cores": 32.0})) },
						},
						"reset_bmc": {func() { peer.Set(manager, managerDoc(time.Now().Add(time.Second))) }},
					},
				}
			},
		})
	}
}

// What the registry speaks against is refused in words that name the attribute, before anything is sent.
func TestAttributesAreCheckedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	for want, with := range map[string]map[string]string{
		`attribute BootMode: "Fast" is none of Legacy, Uefi`:       params("BootMode", "Fast"),
		`attribute Cores: "72" is above the greatest value, 64`:    params("Cores", "72"),
		`attribute Cores: "4" is below the least value, 8`:         params("Cores", "4"),
		`attribute Cores: "12" is no step of 8 from 8`:             params("Cores", "12"),
		`attribute Cores: "many" is no whole number`:               params("Cores", "many"),
		`attribute SMT: "perhaps" is neither true nor false`:       params("SMT", "perhaps"),
		"attribute Serial: it can only be read":                    params("Serial", "S2"),
		`attribute Label: "longer" is above the greatest length`:   params("Label", "longer"),
		"attribute Admin: it is a password":                        params("Admin", "x"),
		"attribute Turbo: the controller's registry does not know": params("Turbo", "on", "BootMode", "Uefi"),
	} {
		peer := board()
		r := served(t, peer, "set_bios")
		s := control.Step{ID: "a", Kind: "set_bios", Server: "s1", With: with}
		err := r.Apply(t.Context(), s)
		if !errors.Is(err, control.ErrRejected) || !strings.Contains(err.Error(), want) || len(peer.Posts()) != 0 {
			t.Errorf("%v: %v, %v", with, err, peer.Posts())
		}
		if _, err := r.Plan(t.Context(), s); !errors.Is(err, control.ErrCannot) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: plan: %v", with, err)
		}
	}
	// Without a registry the type that the attribute has decides.
	peer := board()
	peer.Set("/redfish/v1/Registries", nil)
	r := served(t, peer, "set_bios")
	if err := r.Apply(t.Context(), control.Step{ID: "a", Kind: "set_bios", Server: "s1", With: params("SMT", "off")}); !errors.Is(err, control.ErrRejected) {
		t.Error(err)
	}
	if err := r.Apply(t.Context(), control.Step{ID: "a", Kind: "set_bios", Server: "s1", With: params("SMT", "false", "Cores", "32")}); err != nil {
		t.Error(err)
	}
	posts := peer.Posts()
	if len(posts) != 1 || posts[0].Method != http.MethodPatch || posts[0].Path != biosNext || posts[0].RequestID != "a" ||
		!strings.Contains(posts[0].Body, `"SMT":false`) || !strings.Contains(posts[0].Body, `"Cores":32`) || !strings.Contains(posts[0].Body, `"ApplyTime":"OnReset"`) {
		t.Errorf("%+v", posts)
	}
}

// A step that resets does so only for what the controller shows as pending, and only what reads as
// asked after the reset is done.
func TestBIOSIsResetForWhatIsPendingAndReadAfterwards(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		takes   bool           // the controller has the settings pending
		after   map[string]any // in force after the reset
		told    bool           // it says that it put settings in force
		verdict control.Verdict
		says    string
	}{
		"applied":               {true, map[string]any{"BootMode": "Uefi", "Cores": 32.0}, true, control.Verified, "BootMode=Uefi"},
		"one of two, told":      {true, map[string]any{"BootMode": "Legacy", "Cores": 32.0}, true, control.Failed, `BootMode is "Legacy", not "Uefi"; it says: BootMode is fixed`},
		"one of two, not told":  {true, map[string]any{"BootMode": "Legacy", "Cores": 32.0}, false, control.Pending, `BootMode is "Legacy", not "Uefi"`},
		"says yes, has nothing": {false, legacy, false, control.Pending, `BootMode is "Legacy", not "Uefi"`},
	} {
		t.Run(name, func(t *testing.T) {
			peer := board()
			var etags []string
			r := served(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				peer.ServeHTTP(w, q)
				if q.Method == http.MethodPatch {
					etags = append(etags, q.Header.Get("If-Match"))
					if tc.takes {
						peer.Set(biosNext, nextDoc(map[string]any{"BootMode": "Uefi", "Cores": 32.0}))
					}
				}
			}), "set_bios")
			s := control.Step{ID: "a", Kind: "set_bios", Server: "s1", Since: time.Now(), With: params("BootMode", "Uefi", "Cores", "32", "reset", "true")}
			if err := r.Apply(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			var asked []string
			for _, p := range peer.Posts() {
				asked = append(asked, p.Method+" "+p.Path)
			}
			want := []string{"PATCH " + biosNext}
			if tc.takes {
				want = append(want, "POST "+system+"/Actions/ComputerSystem.Reset")
			}
			if !slices.Equal(asked, want) || len(etags) != 1 || etags[0] == "" {
				t.Errorf("asked %v, tags %v", asked, etags)
			}
			if v, _, err := r.Verify(t.Context(), s); v != control.Pending || err != nil {
				t.Errorf("before the reset: %v, %v", v, err)
			}
			doc := maps.Clone(peer.Doc(system))
			doc["LastResetTime"] = time.Now().UTC().Format(time.RFC3339)
			peer.Set(system, doc)
			peer.Set(biosNext, nextDoc(map[string]any{}))
			applied := time.Time{}
			if tc.told {
				applied = time.Now()
			}
			peer.Set(bios, biosDoc(tc.after, applied))
			v, how, err := r.Verify(t.Context(), s)
			if v != tc.verdict || err != nil || !strings.Contains(messages.Text(how), tc.says) {
				t.Errorf("%v, %v: %s", v, err, messages.Text(how))
			}
		})
	}
}

// A controller that says no and has it pending all the same has done it.
func TestANoThatIsDoneAllTheSameIsJudgedByTheWorld(t *testing.T) {
	t.Parallel()
	peer := board()
	r := served(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Method == http.MethodPatch {
			peer.Set(biosNext, nextDoc(map[string]any{"BootMode": "Uefi"}))
			http.Error(w, "{}", http.StatusBadRequest)
			return
		}
		peer.ServeHTTP(w, q)
	}), "set_bios")
	s := control.Step{ID: "a", Kind: "set_bios", Server: "s1", Since: time.Now(), With: params("BootMode", "Uefi")}
	if err := r.Apply(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if v, how, err := r.Verify(t.Context(), s); v != control.Verified || err != nil || !strings.Contains(messages.Text(how), "pending until its next reset: BootMode=Uefi") {
		t.Errorf("%v %v %v", v, how, err)
	}
}

// Somebody else's change between reading and writing is a conflict, and theirs stands.
func TestSettingsThatSomebodyElseChangesMeanwhileStand(t *testing.T) {
	t.Parallel()
	peer := board()
	r := served(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Method == http.MethodPatch {
			http.Error(w, `{"error":{"message":"The ETag did not match."}}`, http.StatusPreconditionFailed)
			return
		}
		peer.ServeHTTP(w, q)
	}), "set_bios")
	err := r.Apply(t.Context(), control.Step{ID: "a", Kind: "set_bios", Server: "s1", With: params("BootMode", "Uefi")})
	if !errors.Is(err, control.ErrRejected) || !strings.Contains(err.Error(), "somebody else changed") {
		t.Error(err)
	}
}

// A controller shows in one of several ways that it has started; the host must have gone on.
func TestAControllerThatStartsAnewMustLeaveItsHostAlone(t *testing.T) {
	t.Parallel()
	forgets := func(peer *redfishtest.Tree) {
		doc := managerDoc(time.Time{})
		delete(doc, "LastResetTime")
		peer.Set(manager, doc)
	}
	for name, tc := range map[string]struct {
		before  func(*redfishtest.Tree)
		after   func(*redfishtest.Tree)
		lost    bool // it has forgotten its sessions
		verdict control.Verdict
		says    string
	}{
		"a later start":             {nil, func(p *redfishtest.Tree) { p.Set(manager, managerDoc(time.Now().Add(time.Second))) }, false, control.Verified, "a start at"},
		"says yes and does nothing": {nil, func(*redfishtest.Tree) {}, false, control.Pending, "has not started anew"},
		"sessions are lost":         {forgets, func(*redfishtest.Tree) {}, true, control.Verified, "forgotten its sessions"},
		"sessions stay":             {forgets, func(*redfishtest.Tree) {}, false, control.Pending, "has not started anew"},
		"a host that was reset with it": {nil, func(p *redfishtest.Tree) {
			p.Set(manager, managerDoc(time.Now().Add(time.Second)))
			p.Set(system, systemDoc("On", time.Now().Add(time.Second)))
		}, false, control.Failed, "went down with its BMC"},
		"a host whose power is away now": {nil, func(p *redfishtest.Tree) {
			p.Set(manager, managerDoc(time.Now().Add(time.Second)))
			p.Set(system, systemDoc("Off", time.Now().Add(-48*time.Hour)))
		}, false, control.Pending, "power is Off"},
	} {
		t.Run(name, func(t *testing.T) {
			peer := board()
			if tc.before != nil {
				tc.before(peer)
			}
			asked, lost := 0, false
			r := served(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				if lost && asked > 0 && strings.Contains(q.URL.Path, "/Sessions/") {
					http.Error(w, "{}", http.StatusNotFound)
					return
				}
				if strings.Contains(q.URL.Path, "/Sessions/") {
					w.WriteHeader(http.StatusOK)
					return
				}
				if q.Method == http.MethodPost && strings.HasSuffix(q.URL.Path, "Manager.Reset") {
					asked++
				}
				peer.ServeHTTP(w, q)
			}), "reset_bmc")
			s := control.Step{ID: "a", Kind: "reset_bmc", Server: "s1", Since: time.Now()}
			if err := r.Apply(t.Context(), s); err != nil || asked != 1 {
				t.Fatal(err, asked)
			}
			lost = tc.lost
			tc.after(peer)
			v, how, err := r.Verify(t.Context(), s)
			if v != tc.verdict || err != nil || !strings.Contains(messages.Text(how), tc.says) {
				t.Errorf("%v, %v: %s", v, err, messages.Text(how))
			}
		})
	}
}

// A no, after which the controller is away, is none.
func TestANoAfterWhichTheControllerIsAwayIsNoRefusal(t *testing.T) {
	t.Parallel()
	for _, gone := range []bool{false, true} {
		peer, away := board(), false
		r := served(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if q.Method == http.MethodPost && strings.HasSuffix(q.URL.Path, "Manager.Reset") {
				away = gone
				http.Error(w, "{}", http.StatusBadRequest)
				return
			}
			if away {
				panic(http.ErrAbortHandler)
			}
			peer.ServeHTTP(w, q)
		}), "reset_bmc")
		err := r.Apply(t.Context(), control.Step{ID: "a", Kind: "reset_bmc", Server: "s1", Since: time.Now()})
		if err == nil || errors.Is(err, control.ErrRejected) == gone {
			t.Errorf("away %v: %v", gone, err)
		}
	}
}

func TestTheDefaultsAreValid(t *testing.T) {
	t.Parallel()
	if err := Default().Validate(); err != nil {
		t.Error(err)
	}
	c := Default()
	c.Images = []string{"https://firmware.example/x", "ftp://firmware.example/"}
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "images[1]") {
		t.Error(err)
	}
}

// How a BIOS is set is read with what is to come, and nothing is sent for it.
func TestHowABIOSIsSetIsRead(t *testing.T) {
	t.Parallel()
	peer := board()
	r, ok := served(t, peer, "set_bios").(control.Reader)
	if !ok {
		t.Fatal("what sets a BIOS cannot tell how it is set")
	}
	peer.Set(biosNext, nextDoc(map[string]any{"BootMode": "Uefi"}))
	got, err := r.Read(t.Context(), control.Step{Kind: "set_bios", Server: "s1", Target: "s1", With: params("BootMode", "", "Cores", "", "SMT", "", "Turbo", "")})
	want := map[string]control.Reading{"s1": {Has: params("BootMode", "Legacy", "Cores", "64", "SMT", "true"), Coming: params("BootMode", "Uefi", "Cores", "64", "SMT", "true")}}
	if d := cmp.Diff(want, got); err != nil || d != "" || len(peer.Posts()) != 0 {
		t.Error(err, d, peer.Posts())
	}
	bare := tree(0)
	if r, ok = served(t, bare, "set_bios").(control.Reader); !ok {
		t.Fatal("no reader")
	}
	if _, err := r.Read(t.Context(), control.Step{Kind: "set_bios", Server: "s1", With: params("BootMode", "")}); !errors.Is(err, control.ErrCannot) {
		t.Errorf("a server without a BIOS: %v", err)
	}
}

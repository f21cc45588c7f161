package bmc

import (
	"bytes"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"auspex/control"
	"auspex/control/controltest"
	"auspex/internal/bmc/redfish/redfishtest"
	simredfish "auspex/internal/sim/redfish"
	"auspex/schemas"
)

// feeds serves the PDUs of a yard, and returns what the inventory would say of a server's outlets.
func (y *yard) feeds(t *testing.T, through func(http.Handler) http.Handler) func(server string) []control.Outlet {
	t.Helper()
	top := y.Topology()
	resources := map[string]schemas.Resource{}
	for _, r := range top.Resources {
		if r.Kind == schemas.KindPDU {
			srv := httptest.NewServer(through(simredfish.NewPDUHandler(y.PDU(r.ID))))
			t.Cleanup(srv.Close)
			r.Attrs = r.Attrs.With(schemas.AttrOutletURL, srv.URL).With(schemas.AttrCredential, "sim")
		}
		resources[r.ID] = r
	}
	return func(server string) (out []control.Outlet) {
		for _, l := range top.Links {
			if l.Kind == schemas.LinkPowers && strings.HasPrefix(l.To, server+"/") {
				out = append(out, control.Outlet{Supply: l.To, PDU: resources[l.From], ID: resources[l.To].Attrs.Get(schemas.AttrOutlet)})
			}
		}
		return out
	}
}

func (y *yard) acCycle(t *testing.T, outlets func(string) []control.Outlet) control.Remediator {
	t.Helper()
	c := Default()
	c.OutletOff = 2 * time.Second
	all, err := c.Remediators(control.Settings{Secrets: fleetSecret{}, Outlets: outlets, Resource: func(id string) (schemas.Resource, bool) {
		return schemas.Resource{ID: id, Kind: schemas.KindServer, Attrs: schemas.AttrsOf(map[string]string{
			schemas.AttrRedfishURL: y.urls[id], schemas.AttrCredential: "sim",
		})}, y.urls[id] != ""
	}})
	if err != nil {
		t.Fatal(err)
	}
	return all["ac_cycle"]
}

func plain(h http.Handler) http.Handler { return h }

// byHand serves units that do not cycle outlets by themselves.
func byHand(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		body := bytes.ReplaceAll(rec.Body.Bytes(), []byte(`"On","Off","PowerCycle"`), []byte(`"On","Off"`))
		maps.Copy(w.Header(), rec.Header())
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(rec.Code)
		_, _ = w.Write(body)
	})
}

// The mains of both feeds is away at the same time, or the controller does not start anew and nothing is done.
func TestTheMainsOfAServerIsAwayOnBothFeeds(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		through func(http.Handler) http.Handler
		stuck   string // a unit that says yes and does nothing
		restart bool   // of control
		verdict control.Verdict
		says    string
	}{
		"units cycle by themselves":    {plain, "", false, control.Verified, "was away and is back at outlet 1 of pdu-r01-a"},
		"control starts anew":          {plain, "", true, control.Verified, "its BMC has started anew and its power is On"},
		"off, and on again":            {byHand, "", false, control.Verified, "was away and is back"},
		"one unit says yes, and stays": {plain, "pdu-r01-b", false, control.Pending, "nothing shows that it was away"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			if tc.stuck != "" {
				if err := y.SetPDUStuck(tc.stuck, true); err != nil {
					t.Fatal(err)
				}
			}
			outlets := y.feeds(t, tc.through)
			r := y.acCycle(t, outlets)
			s := control.Step{ID: "a", Kind: "ac_cycle", Server: "gpu-r01-01", Since: time.Now()}
			if _, err := r.Plan(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			if v, how := ends(t, r, s, 100*time.Millisecond); v != control.Pending {
				t.Errorf("before: %d, %s", v, how)
			}
			if err := r.Apply(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			if tc.restart {
				r = y.acCycle(t, outlets)
			}
			patience := 30 * time.Second
			if tc.verdict == control.Pending {
				patience = 8 * time.Second
			}
			if v, how := ends(t, r, s, patience); v != tc.verdict || !strings.Contains(how, tc.says) {
				t.Errorf("%d: %s", v, how)
			}
		})
	}
}

// Units of which one stays on leave the server as it was: what was switched off is on again.
func TestOutletsAreOnAgainWhereNotAllWentOff(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	if err := y.SetPDUStuck("pdu-r01-b", true); err != nil {
		t.Fatal(err)
	}
	err := y.acCycle(t, y.feeds(t, byHand)).Apply(t.Context(), control.Step{ID: "a", Kind: "ac_cycle", Server: "gpu-r01-01", Since: time.Now()})
	if err == nil || errors.Is(err, control.ErrRejected) || !strings.Contains(err.Error(), "not all outlets of gpu-r01-01 are off") {
		t.Error(err)
	}
	for _, o := range y.PDU("pdu-r01-a").Outlets() {
		if !o.On {
			t.Errorf("%s stays off", o.ID)
		}
	}
}

func TestWhatTheInventoryDoesNotSayOfTheMainsCannot(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	all := y.feeds(t, plain)("gpu-r01-01")
	for want, spoil := range map[string]func(o *control.Outlet){
		"does not say which PDU powers gpu-r01-01/psu0":             func(o *control.Outlet) { o.PDU = schemas.Resource{} },
		"does not say on which outlet of pdu-r01-a gpu-r01-01/psu0": func(o *control.Outlet) { o.ID = "" },
		"has no outlet_url of pdu-r01-a":                            func(o *control.Outlet) { o.PDU.Attrs = schemas.Attrs{} },
		`0 outlets "99"`:                                            func(o *control.Outlet) { o.ID = "99" },
		"no chassis of":                                             nil,
	} {
		mine := append([]control.Outlet(nil), all...)
		if spoil != nil {
			spoil(&mine[0])
		} else {
			mine = nil
		}
		r := y.acCycle(t, func(string) []control.Outlet { return append([]control.Outlet(nil), mine...) })
		s := control.Step{ID: "a", Kind: "ac_cycle", Server: "gpu-r01-01", Since: time.Now()}
		if _, err := r.Plan(t.Context(), s); !errors.Is(err, control.ErrCannot) || !strings.Contains(err.Error(), want) {
			t.Errorf("plan: %v, want %s", err, want)
		}
		if err := r.Apply(t.Context(), s); !errors.Is(err, control.ErrRejected) {
			t.Errorf("apply: %v", err)
		}
	}
}

// withMains is a board whose server hangs on one outlet.
func withMains() *redfishtest.Tree {
	t := board()
	root := map[string]any{"PowerEquipment": link("/redfish/v1/PowerEquipment")}
	maps.Copy(root, t.Doc("/redfish/v1"))
	t.Set("/redfish/v1", root)
	t.Set("/redfish/v1/PowerEquipment", map[string]any{"RackPDUs": link("/redfish/v1/PowerEquipment/RackPDUs")})
	t.Set("/redfish/v1/PowerEquipment/RackPDUs", map[string]any{"Members": []any{link("/redfish/v1/PowerEquipment/RackPDUs/1")}})
	t.Set("/redfish/v1/PowerEquipment/RackPDUs/1", map[string]any{
		"@odata.id": "/redfish/v1/PowerEquipment/RackPDUs/1", "Outlets": link("/redfish/v1/PowerEquipment/RackPDUs/1/Outlets"),
	})
	t.Set("/redfish/v1/PowerEquipment/RackPDUs/1/Outlets", map[string]any{"Members": []any{link(outletA)}})
	t.Set(outletA, outletState("On"))
	return t
}

const outletA = "/redfish/v1/PowerEquipment/RackPDUs/1/Outlets/A1"

func outletState(state string) map[string]any {
	return map[string]any{
		"@odata.id": outletA, "Id": "A1", "PowerState": state, "PowerCycleDelaySeconds": 10.0,
		"Actions": map[string]any{"#Outlet.PowerControl": map[string]any{
			"target": outletA + "/Actions/Outlet.PowerControl", "PowerState@Redfish.AllowableValues": []any{"On", "Off", "PowerCycle"},
		}},
	}
}

func TestConformanceOfTheMains(t *testing.T) {
	controltest.Run(t, controltest.Harness{
		Kinds: []string{"ac_cycle"}, Some: true,
		World: func(t *testing.T, m controltest.Manner) controltest.World {
			peer := withMains()
			srv := httptest.NewServer(controltest.Behave(m, peer, changes))
			if m == controltest.Gone {
				srv.Close()
			} else {
				t.Cleanup(srv.Close)
			}
			with := at(srv.URL)
			with.Outlets = func(server string) []control.Outlet {
				if server != "s1" {
					return nil
				}
				return []control.Outlet{{Supply: "s1/psu0", ID: "A1", PDU: schemas.Resource{ID: "pdu", Kind: schemas.KindPDU, Attrs: schemas.AttrsOf(map[string]string{
					schemas.AttrOutletURL: srv.URL, schemas.AttrCredential: "pdu",
				})}}}
			}
			return controltest.World{
				Driver: Default(), Settings: with, Server: "s1", Asked: func() int { return len(peer.Posts()) },
				Effects: map[string][]func(){"ac_cycle": {
					func() { peer.Set(outletA, outletState("Off")) },
					func() { peer.Set(outletA, outletState("On")) },
					func() { peer.Set(manager, managerDoc(time.Now().Add(time.Second))) },
				}},
			}
		},
	})
}

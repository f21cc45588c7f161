package api_test

import (
	"context"
	"database/sql"
	"net/http"
	"strings"
	"testing"
	"time"

	"auspex/api"
	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/discover"
	"auspex/internal/reasons"
	"auspex/internal/store/conflicts"
	"auspex/internal/store/discoveries"
	"auspex/schemas"
)

// sweeps is where consoles of tests may ask.
func sweeps() discover.Config {
	c := discover.DefaultConfig()
	c.Ranges, c.Ports = []string{"10.0.0.0/24"}, []string{"8000-8100"}
	return c
}

// asks starts a sweep.
func (w *world) asks(t *testing.T) schemas.Discovery {
	t.Helper()
	a := w.do(t, access.RoleEngineer, http.MethodPost, "discoveries", "", `{"ranges":["10.0.0.0/28"],"credential":"bmc"}`)
	d := got[schemas.Discovery](t, a, http.StatusAccepted)
	if at := a.header.Get("Location"); !strings.HasSuffix(at, "/api/v1/discoveries/"+d.ID) {
		t.Errorf("it is followed at %q", at)
	}
	return d
}

// finds has whoever does the sweep find something.
func (w *world) finds(t *testing.T, id string, asked int, finds ...schemas.Find) {
	t.Helper()
	s := discoveries.New(w.db)
	if _, ok, err := s.Take(t.Context(), "test", time.Minute); err != nil || !ok {
		t.Fatal(ok, err)
	}
	if err := s.Note(t.Context(), id, "test", time.Minute, asked, finds, nil); err != nil {
		t.Fatal(err)
	}
}

// contradicts notes a conflict and returns it.
func (w *world) contradicts(t *testing.T, value string) schemas.Conflict {
	t.Helper()
	c := schemas.Conflict{
		Kind: schemas.ConflictTwoSources, Resource: "gpu-r01-01", Field: "serial",
		Left: schemas.ConflictSide{Source: discover.Inventory, Value: "S1"}, Right: schemas.ConflictSide{Source: "redfish", Value: value, Resource: "10.0.0.2:443"},
	}
	if err := w.db.InTx(t.Context(), func(tx *sql.Tx) error {
		_, err := conflicts.Seen(context.WithoutCancel(t.Context()), tx, time.Now(), c)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	c.ID = conflicts.ID(&c)
	return c
}

// settled notes a conflict that is none any more.
func (w *world) settled(t *testing.T) {
	t.Helper()
	c := schemas.Conflict{
		Kind: schemas.ConflictTwoSources, Resource: "gpu-r01-02", Field: "serial",
		Left: schemas.ConflictSide{Source: discover.Inventory, Value: "S8"}, Right: schemas.ConflictSide{Source: "redfish", Value: "S9", Resource: "10.0.0.3:443"},
	}
	if err := w.db.InTx(t.Context(), func(tx *sql.Tx) error {
		if _, err := conflicts.Seen(t.Context(), tx, time.Now(), c); err != nil {
			return err
		}
		return conflicts.Close(t.Context(), tx, time.Now(), conflicts.ID(&c), conflicts.WhyAgree)
	}); err != nil {
		t.Fatal(err)
	}
}

func TestASweepIsAskedForAndWhatItFindsIsRegistered(t *testing.T) {
	w := start(t, false, withEstate(t, 1))
	w.engineer(t)
	d := w.asks(t)
	if d.Status != schemas.DiscoveryWaiting || d.Addresses != 14 || len(d.RedfishPorts) != 1 || d.IPMIPorts[0] != 623 {
		t.Errorf("%+v", d)
	}
	hardware := schemas.Hardware{
		Model: "DGX H100", SerialNumber: "NEW1", UUID: "6f2b8a54-0001-4000-8000-000000000001", Hostname: "gpu-r01-99", Architecture: schemas.ArchX86, BootMode: schemas.BootUEFI,
		GPUs: []schemas.FoundPart{{Name: "GPU_0", Model: "H100", SerialNumber: "G0"}, {Name: "GPU_1", Model: "H100", SerialNumber: "G1"}},
		NICs: []schemas.FoundPart{{Name: "NIC_0", MAC: "02:00:00:00:99:00"}},
	}
	id := "0f2b8a54-0001-4000-8000-00000000000a"
	w.finds(t, d.ID, 6, schemas.Find{ID: id, Number: 2, Address: "10.0.0.3:443", Protocol: "redfish", Result: schemas.FindFound, SeenAt: time.Now(), Hardware: hardware},
		schemas.Find{ID: "b", Number: 4, Address: "10.0.0.5:443", Protocol: "redfish", Result: schemas.FindRefused, Message: "no", SeenAt: time.Now()})
	page := func(query string) apigen.DiscoveryPage {
		t.Helper()
		return got[apigen.DiscoveryPage](t, w.do(t, access.RoleViewer, http.MethodGet, "discoveries/"+d.ID+query, "", ""), http.StatusOK)
	}
	all := page("")
	if s := all.Discovery; s.Status != schemas.DiscoveryRunning || s.Asked != 6 || s.Found != 1 || s.Refused != 1 || s.Silent != 4 || len(all.Items) != 2 {
		t.Fatalf("%+v", all)
	}
	f := all.Items[0]
	if f.Status != schemas.ServerDiscovered || f.Proposal == nil || f.Proposal.Name != "gpu-r01-99" || f.Proposal.RedfishURL != "https://10.0.0.3:443" ||
		f.Proposal.Credential != "bmc" || len(f.Proposal.Places) != 1 || f.Proposal.Places[0].Parent != "dc1-r01" {
		t.Errorf("%+v %+v", f, f.Proposal)
	}
	one := page("?limit=1")
	if len(one.Items) != 1 || one.Next == "" {
		t.Fatalf("%+v", one)
	}
	if two := page("?limit=1&after=" + one.Next); len(two.Items) != 1 || two.Items[0].Result != schemas.FindRefused || two.Next != "" || two.Items[0].Status != "" {
		t.Errorf("%+v", two)
	}
	if few := page("?result=refused"); len(few.Items) != 1 {
		t.Errorf("%+v", few)
	}
	made := got[apigen.ServerRecord](t, w.do(t, access.RoleEngineer, http.MethodPost, "servers", "", `{"name":"gpu-r01-99","parent":"dc1-r01","found":"`+id+`"}`), http.StatusCreated)
	// What it is installed by is not lost.
	h := got[schemas.HardwareRecord](t, w.do(t, access.RoleEngineer, http.MethodGet, "hardware/"+made.ID, "", ""), http.StatusOK)
	if h.Fact(schemas.FactArchitecture) != schemas.ArchX86 || h.Fact(schemas.FactBootMode) != schemas.BootUEFI || h.Fact(schemas.FactBootMAC) != "02:00:00:00:99:00" || h.BMC.Address != "10.0.0.3:443" {
		t.Errorf("%+v", h)
	}
	if made.SerialNumber != "NEW1" || made.RedfishURL != "https://10.0.0.3:443" || made.Status != schemas.ServerDiscovered {
		t.Errorf("%+v", made)
	}
	for name, want := range map[string]map[string]string{
		"gpu-r01-99": {"uuid": hardware.UUID, "credential": "bmc"}, "gpu-r01-99/gpu1": {"serial": "G1"}, "gpu-r01-99/nic0": {"mac": "02:00:00:00:99:00", "aliases": "NIC_0"},
	} {
		r, _ := w.estate.Registry.Snapshot().Resource(name)
		for k, v := range want {
			if r.Attrs.Get(k) != v {
				t.Errorf("%s: %s is %q, want %q", name, k, r.Attrs.Get(k), v)
			}
		}
	}
	if f := page("").Items[0]; f.Status != schemas.FindKnown || f.Server != "gpu-r01-99" || f.MatchedBy != "serial" || f.Proposal != nil {
		t.Errorf("%+v", f)
	}
	for _, bad := range []struct{ text, field string }{
		{`{"name":"other","found":"` + id + `"}`, "found"},
		{`{"name":"other","found":"b"}`, "found"},
		{`{"name":"other","found":"nothing"}`, "found"},
	} {
		if p := w.do(t, access.RoleEngineer, http.MethodPost, "servers", "", bad.text); p.status != http.StatusBadRequest || !strings.Contains(string(p.body), `"field":"`+bad.field+`"`) {
			t.Errorf("%s: %d %s", bad.text, p.status, p.body)
		}
	}
	w.do(t, access.RoleEngineer, http.MethodDelete, "discoveries/"+d.ID, "", "")
	if again := w.do(t, access.RoleEngineer, http.MethodDelete, "discoveries/"+d.ID, "", ""); again.status != http.StatusConflict {
		t.Errorf("cancelled twice: %d", again.status)
	}
	list := got[apigen.DiscoveryList](t, w.do(t, access.RoleViewer, http.MethodGet, "discoveries?status=cancelled", "", ""), http.StatusOK)
	if len(list.Items) != 1 || list.Items[0].Reason == "" || list.Items[0].CompletedAt.IsZero() {
		t.Errorf("%+v", list)
	}
}

func TestASweepGoesNowhereElse(t *testing.T) {
	w := start(t, false)
	w.engineer(t)
	for _, bad := range []struct {
		text, code, word string
		status           int
	}{
		{`{"ranges":["10.0.1.0/28"]}`, "not_allowed", "10.0.1.0/28", 409},
		{`{"ranges":["10.0.0.0/16"]}`, "not_allowed", "all of it", 409},
		{`{"ranges":["10.0.0.1"],"redfish_ports":[22]}`, "not_allowed", "Port 22", 409},
		{`{"ranges":["10.0.0.300"]}`, "bad_body", "ranges[0]", 400},
		{`{"ranges":["0.0.0.0"]}`, "bad_body", "ranges[0]", 400},
		{`{"ranges":["10.0.0.1"],"redfish_ports":[],"ipmi_ports":[]}`, "bad_body", "redfish_ports", 400},
		{`{"ranges":[]}`, "bad_body", "ranges", 400},
		{`{"ranges":["10.0.0.1"],"password":"x"}`, "bad_body", "password", 400},
	} {
		a := w.do(t, access.RoleEngineer, http.MethodPost, "discoveries", "", bad.text)
		if p := a.problem(t); a.status != bad.status || p.Code != bad.code || !strings.Contains(string(a.body), bad.word) {
			t.Errorf("%s: %d %s", bad.text, a.status, a.body)
		}
	}
	if a := w.do(t, access.RoleOperator, http.MethodPost, "discoveries", "", `{"ranges":["10.0.0.1"]}`); a.status != http.StatusForbidden {
		t.Errorf("an operator: %d", a.status)
	}
	none := start(t, false, func(_ *api.Config, d *api.Deps) { d.Discovery.Config = discover.DefaultConfig() })
	if a := none.do(t, access.RoleAdmin, http.MethodPost, "discoveries", "", `{"ranges":["10.0.0.1"]}`); a.status != http.StatusConflict || !strings.Contains(string(a.body), "discovery.ranges") {
		t.Errorf("without a range: %d %s", a.status, a.body)
	}
	for range 16 {
		w.asks(t)
	}
	if a := w.do(t, access.RoleEngineer, http.MethodPost, "discoveries", "", `{"ranges":["10.0.0.1"]}`); a.status != http.StatusConflict || a.problem(t).Code != "too_many" {
		t.Errorf("a seventeenth: %d %s", a.status, a.body)
	}
}

func TestADecisionAboutAConflictIsKept(t *testing.T) {
	w := start(t, false)
	w.engineer(t)
	c := w.contradicts(t, "S2")
	list := func(query string) []schemas.Conflict {
		t.Helper()
		return got[apigen.ConflictList](t, w.do(t, access.RoleViewer, http.MethodGet, "conflicts"+query, "", ""), http.StatusOK).Items
	}
	if all := list("?status=open&kind=two_sources&resource=gpu-r01-01"); len(all) != 1 || all[0].ID != c.ID || all[0].Right.Value != "S2" {
		t.Fatalf("%+v", all)
	}
	for text, status := range map[string]int{`{"decision":"both"}`: 400, `{}`: 400, `{"decision":"left","why":"x"}`: 400} {
		if a := w.do(t, access.RoleEngineer, http.MethodPost, "conflicts/"+c.ID, "", text); a.status != status {
			t.Errorf("%s: %d %s", text, a.status, a.body)
		}
	}
	if a := w.do(t, access.RoleOperator, http.MethodPost, "conflicts/"+c.ID, "", `{"decision":"left"}`); a.status != http.StatusForbidden {
		t.Errorf("an operator: %d", a.status)
	}
	if a := w.do(t, access.RoleEngineer, http.MethodPost, "conflicts/nothing", "", `{"decision":"left"}`); a.status != http.StatusNotFound {
		t.Errorf("of nothing: %d", a.status)
	}
	decided := got[schemas.Conflict](t, w.do(t, access.RoleEngineer, http.MethodPost, "conflicts/"+c.ID, "", `{"decision":"right","comment":"a new board"}`), http.StatusOK)
	if decided.Status != schemas.ConflictDecided || decided.DecidedBy != access.RoleEngineer || decided.DecidedAt.IsZero() {
		t.Errorf("%+v", decided)
	}
	w.contradicts(t, "S2")
	if open := list("?status=open"); len(open) != 0 {
		t.Errorf("the same opens it anew: %+v", open)
	}
	w.contradicts(t, "S3")
	w.contradicts(t, "S4")
	if open := list("?status=open"); len(open) != 1 || open[0].Right.Value != "S4" {
		t.Errorf("other values: %+v", open)
	}
	one := got[schemas.Conflict](t, w.do(t, access.RoleViewer, http.MethodGet, "conflicts/"+c.ID, "", ""), http.StatusOK)
	if one.Decision != "right" || one.Comment != "a new board" {
		t.Errorf("%+v", one)
	}
}

// Why a sweep has ended is told in pieces too, for readers of another language.
func TestWhyASweepHasEndedIsToldInPieces(t *testing.T) {
	w := start(t, false, func(_ *api.Config, d *api.Deps) { d.Said = reasons.NewReader(nil, nil) })
	w.engineer(t)
	d := w.asks(t)
	if a := w.do(t, access.RoleEngineer, http.MethodDelete, "discoveries/"+d.ID, "", ""); a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	for _, path := range []string{"discoveries/" + d.ID, "discoveries"} {
		if a := w.do(t, access.RoleViewer, http.MethodGet, path, "", ""); !strings.Contains(string(a.body), `"status_sentence":{"id":"why.cancelled_by","args":{"who":"engineer"}}`) {
			t.Errorf("%s: %s", path, a.body)
		}
	}
}

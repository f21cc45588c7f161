package api_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/enrol"
	"auspex/internal/store/join"
	"auspex/schemas"
)

func machineKey(host string) string {
	h := sha256.Sum256([]byte(host))
	return hex.EncodeToString(h[:])
}

// joins has a machine join with a new token, and returns its key.
func (w *world) joins(t *testing.T, token, host string) string {
	t.Helper()
	store := w.deps(t).Join
	plain, _, err := store.Create(t.Context(), "ana", join.Spec{Name: token})
	if err == nil {
		_, err = store.Admit(t.Context(), plain, join.Machine{Key: machineKey(host), Hostname: host, Serial: "SN-" + host, Address: "10.0.0.9:4711"})
	}
	if err != nil {
		t.Fatal(err)
	}
	return machineKey(host)
}

// proposes offers what an agent says of a server that nobody knows, and returns its id.
func (w *world) proposes(t *testing.T, host string) string {
	t.Helper()
	p := enrol.Compare(w.deps(t).Enrol.Inventory.Snapshot(), enrol.Who{Server: host, Address: host + ":9339"}, &enrol.Description{
		Digest: "d", Serial: "SN-" + host, Product: "DGXH100", GPUs: []enrol.Part{{Name: "gpu0", PCI: "0000:1b:00.0", UUID: "GPU-1"}},
	})
	if _, err := w.deps(t).Enrol.Offer(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	return p.ID
}

// engineer lets an engineer in.
func (w *world) engineer(t *testing.T) {
	t.Helper()
	var err error
	if w.tokens[access.RoleEngineer], err = w.IssueToken(t.Context(), access.RoleEngineer, access.RoleEngineer); err != nil {
		t.Fatal(err)
	}
}

func TestEngineersBringMachinesIntoTheInventory(t *testing.T) {
	w := start(t, false)
	w.engineer(t)
	send := func(method, path, role, text string) answer {
		t.Helper()
		return w.send(t, method, path, role, body(text))
	}
	a := send(http.MethodPost, "api/v1/join-tokens", access.RoleEngineer, `{"name":"image","uses":2,"accept":true}`)
	var made apigen.JoinToken
	if err := json.Unmarshal(a.body, &made); err != nil || a.status != http.StatusCreated || made.Token == "" || made.State != "open" {
		t.Fatalf("%d %s %v", a.status, a.body, err)
	}
	if list := w.send(t, http.MethodGet, "api/v1/join-tokens", access.RoleViewer, nil); !strings.Contains(string(list.body), `"image"`) ||
		strings.Contains(string(list.body), made.Token) {
		t.Errorf("in the list of a viewer: %s", list.body)
	}
	for _, bad := range []struct {
		role, text string
		status     int
	}{
		{access.RoleOperator, `{"name":"a"}`, 403},
		{access.RoleViewer, `{"name":"a"}`, 403},
		{access.RoleEngineer, `{"name":"image"}`, 409},
		{access.RoleEngineer, `{"name":"a/b"}`, 400},
		{access.RoleEngineer, `{"name":"a","server":"b","uses":2}`, 400},
		{access.RoleEngineer, `{"name":"a","expires_in":99999999999}`, 400},
	} {
		if a := send(http.MethodPost, "api/v1/join-tokens", bad.role, bad.text); a.status != bad.status {
			t.Errorf("%s %s: %d %s", bad.role, bad.text, a.status, a.body)
		}
	}
	key := w.joins(t, "one", "gpu-9")
	if m := read[apigen.MachineList](t, w, "api/v1/machines").Items; len(m) != 1 || m[0].Key != key || !m[0].Admitted || m[0].Server != "" {
		t.Errorf("machines: %+v", m)
	}
	id := w.proposes(t, "gpu-8")
	path := "api/v1/proposals/" + id
	for _, bad := range []struct {
		role, text string
		status     int
	}{
		{access.RoleOperator, `{"decision":"accepted"}`, 403},
		{access.RoleEngineer, `{"decision":"declined"}`, 400},
		{access.RoleEngineer, `{"decision":"perhaps"}`, 400},
	} {
		if a := send(http.MethodPost, path+"/decisions", bad.role, bad.text); a.status != bad.status {
			t.Errorf("%s %s: %d %s", bad.role, bad.text, a.status, a.body)
		}
	}
	if a := send(http.MethodPost, path+"/decisions", access.RoleEngineer, `{"decision":"accepted"}`); a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if a := send(http.MethodPost, path+"/decisions", access.RoleEngineer, `{"decision":"declined","reason":"x"}`); a.status != http.StatusConflict {
		t.Errorf("what was accepted is declined: %d %s", a.status, a.body)
	}
	if a := send(http.MethodPost, "api/v1/proposals/pr-0/decisions", access.RoleEngineer, `{"decision":"accepted"}`); a.status != http.StatusNotFound {
		t.Errorf("what nobody proposes is accepted: %d %s", a.status, a.body)
	}
	inv := w.deps(t).Enrol.Inventory.Snapshot()
	if !slices.ContainsFunc(inv.Resources(), func(r schemas.Resource) bool { return r.ID == "gpu-8/gpu0" && r.Attrs.Get("uuid") == "GPU-1" }) {
		t.Errorf("the inventory has %+v", inv.Resources())
	}
	got := read[enrol.Proposal](t, w, path)
	if got.State != enrol.Accepted || got.DecidedBy != access.RoleEngineer || len(got.Differences) == 0 {
		t.Errorf("%+v", got)
	}
	if list := read[apigen.ProposalList](t, w, "api/v1/proposals?state=open"); len(list.Items) != 0 {
		t.Errorf("open: %+v", list.Items)
	}
	for _, page := range []string{"api/v1/proposals?after=x", "api/v1/proposals?state=perhaps", "api/v1/machines?limit=-1"} {
		if a := w.send(t, http.MethodGet, page, access.RoleViewer, nil); a.status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", page, a.status, a.body)
		}
	}
}

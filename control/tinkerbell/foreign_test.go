package tinkerbell

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"auspex/control"
	"auspex/internal/waittest"
	"auspex/schemas"
)

// book keeps what is told of others.
type book struct {
	mu    sync.Mutex
	of    map[string]string // servers, by address
	all   []schemas.Foreign
	times int
	err   error
}

// Servers implements control.Foreign.
func (b *book) Servers(name string, macs ...string) (out []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range macs {
		if s := b.of[m]; s != "" && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	if slices.Contains(slices.Collect(maps.Values(b.of)), name) && !slices.Contains(out, name) {
		out = append(out, name)
	}
	return out
}

// Said implements control.Foreign.
func (b *book) Said(_ context.Context, place string, all []schemas.Foreign) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return b.err
	}
	if place != "tink" {
		return errors.New("another place")
	}
	b.all, b.times = all, b.times+1
	return nil
}

func (b *book) lines() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := []string{}
	for _, f := range b.all {
		line := fmt.Sprintf("%s %s %s: %s, not %s (%s)", f.Object, f.Server, f.Field, f.Theirs, f.Ours, f.Owner)
		if f.Machine != nil {
			line = fmt.Sprintf("%s is new: %s %s (%s)", f.Object, f.Machine.Hostname, f.Machine.NICs[0].MAC, f.Owner)
		}
		out = append(out, line)
	}
	return out
}

func (b *book) wants(t *testing.T, want ...string) {
	t.Helper()
	waittest.Until(t, func() error {
		if got := b.lines(); !slices.Equal(got, want) {
			return fmt.Errorf("told is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		return nil
	})
}

// by is metadata as an API server has it where somebody has written fields.
func by(who string, fields map[string]any) map[string]any {
	return map[string]any{"managedFields": []any{map[string]any{
		"manager": who, "operation": "Update", "apiVersion": group.String(), "time": "2026-03-01T12:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": map[string]any{"f:spec": fields},
	}}}
}

func iface(mac string, more map[string]any) map[string]any {
	dhcp := map[string]any{"mac": mac}
	maps.Copy(dhcp, more)
	return map[string]any{"dhcp": dhcp}
}

// watched is a driver that follows an API and tells what others have there.
func (a *api) watched(s *stock, b *book) *installer {
	i := a.driver(s)
	i.foreign, i.rereads = b, 0
	follow(a.T, i)
	return i
}

func (a *api) theirs(name, who string, ifaces ...any) {
	meta := by(who, map[string]any{"f:interfaces": map[string]any{}})
	meta["name"], meta["namespace"], meta["uid"], meta["creationTimestamp"] = name, "tink", "uid-"+name, "2026-03-01T12:00:00Z"
	a.add(hardware, map[string]any{"metadata": meta, "spec": map[string]any{"interfaces": ifaces}})
}

func TestWhatOthersHaveInTheAPIIsTold(t *testing.T) {
	a, s, b := newAPI(t), newStock(server, mac), &book{of: map[string]string{mac: server}}
	a.theirs("rack1", "kubectl-create", iface(mac, map[string]any{"arch": "aarch64"}), iface("02:00:00:00:00:09", nil))
	a.theirs("gpu-9", "kubectl-create", iface("02:00:00:00:00:99", map[string]any{"hostname": "gpu-9.site", "arch": "x86_64", "uefi": true}))
	a.theirs("gpu-9b", "argocd", iface("02:00:00:00:00:99", nil))
	i := a.watched(s, b)
	b.wants(t,
		"tink/gpu-9 is new: gpu-9.site 02:00:00:00:00:99 (kubectl-create)",
		"tink/gpu-9b  hardware: tink/gpu-9b, not tink/gpu-9 (argocd)",
		"tink/rack1 gpu-1 hardware: tink/rack1, not tink/gpu-1 (kubectl-create)",
		"tink/rack1 gpu-1 spec.interfaces[02:00:00:00:00:01].dhcp.arch: aarch64, not x86_64 (kubectl-create)",
		"tink/rack1 gpu-1 spec.interfaces[02:00:00:00:00:01].dhcp.uefi: false, not true (kubectl-create)",
		"tink/rack1 gpu-1 spec.interfaces[02:00:00:00:00:01].netboot.allowWorkflow: false, not true (kubectl-create)",
		"tink/rack1 gpu-1 spec.interfaces[02:00:00:00:00:09]: 02:00:00:00:00:09, not  (kubectl-create)",
	)
	if err := i.Apply(t.Context(), reinstall("act-1")); !errors.Is(err, control.ErrRejected) || !strings.Contains(err.Error(), "hardware tink/rack1, which belongs to kubectl-create, has the address") {
		t.Error(err)
	}
	// A watch that is too old is begun anew, and nothing changed meanwhile is missed or told again.
	before := b.times
	a.mu.Lock()
	a.expired = true
	close(a.changed)
	a.changed = make(chan struct{})
	a.mu.Unlock()
	a.drop(hardware, "rack1")
	a.drop(hardware, "gpu-9b")
	b.wants(t, "tink/gpu-9 is new: gpu-9.site 02:00:00:00:00:99 (kubectl-create)")
	b.mu.Lock()
	if b.times-before > 2 {
		t.Errorf("told %d times", b.times-before)
	}
	b.of["02:00:00:00:00:99"] = "gpu-2" // it was registered, and nothing is known of its record here
	b.mu.Unlock()
	a.say(hardware, "gpu-9", map[string]any{"spec": map[string]any{"vendorData": "x"}})
	b.wants(t)
}

func TestWhatOthersHaveIsToldAgainWhereItCouldNotBe(t *testing.T) {
	a, b := newAPI(t), &book{err: errors.New("the store is away")}
	a.theirs("gpu-9", "kubectl-create", iface("02:00:00:00:00:99", nil))
	i := a.driver(newStock(server, mac))
	i.foreign = b
	h := &HardwareList{}
	if err := i.list(t.Context(), hardware, metav1.ListOptions{}, h); err != nil {
		t.Fatal(err)
	}
	_ = i.machines.Replace([]any{&h.Items[0]}, "1")
	if err := i.compare(t.Context()); err == nil {
		t.Error("nothing was said of the store")
	}
	b.err = nil
	for range 2 {
		if err := i.compare(t.Context()); err != nil || b.times != 1 {
			t.Error(b.times, err)
		}
	}
}

// What others have set in hardware of ours stays, also beside what is written for an installation.
func TestAFieldThatSomeoneElseHasIsLeft(t *testing.T) {
	a, s, b := newAPI(t), newStock(server, mac), &book{of: map[string]string{mac: server}}
	i := a.watched(s, b)
	if err := i.Apply(t.Context(), reinstall("act-1")); err != nil {
		t.Fatal(err)
	}
	a.runs("auspex-act-1", "STATE_SUCCESS", "SUCCESS", "SUCCESS")
	a.comes(i, reinstall("act-1"), control.Verified)
	b.wants(t)
	ifaces := a.of(hardware, server)["spec"].(map[string]any)["interfaces"].([]any)
	ifaces[0].(map[string]any)["dhcp"].(map[string]any)["hostname"] = "theirs"
	ifaces[0].(map[string]any)["netboot"].(map[string]any)["allowPXE"] = true
	meta := by("kubectl-edit", map[string]any{"f:interfaces": map[string]any{}, "f:metadata": map[string]any{"f:facility": map[string]any{"f:facility_code": map[string]any{}}}})
	a.say(hardware, server, map[string]any{"metadata": meta, "spec": map[string]any{
		"interfaces": append(ifaces, iface("02:00:00:00:00:77", nil)), "metadata": map[string]any{"facility": map[string]any{"facility_code": "onprem"}},
	}})
	const hostname, facility = "tink/gpu-1 gpu-1 spec.interfaces[02:00:00:00:00:01].dhcp.hostname: theirs, not gpu-1 (kubectl-edit)",
		"tink/gpu-1 gpu-1 spec.metadata.facility.facility_code: onprem, not dc1 (kubectl-edit)"
	const more = "tink/gpu-1 gpu-1 spec.interfaces[02:00:00:00:00:77]: 02:00:00:00:00:77, not  (kubectl-edit)"
	const ajar = "tink/gpu-1 gpu-1 spec.interfaces[02:00:00:00:00:01].netboot.allowPXE: true, not false (kubectl-edit)"
	b.wants(t, hostname, facility, more, ajar)
	// The record says something else since, of what is theirs and of what is not.
	s.says(func(r *schemas.HardwareRecord) { r.Model, r.Metadata.Hostname = "m2", "gpu-1b" })
	if err := i.Apply(t.Context(), reinstall("act-2")); err != nil {
		t.Fatal(err)
	}
	a.say(hardware, server, map[string]any{"metadata": map[string]any{"managedFields": by("kubectl-edit", map[string]any{
		"f:metadata": map[string]any{"f:facility": map[string]any{"f:facility_code": map[string]any{}}},
	})["managedFields"]}}) // as an API server has it: the list was written by us last
	a.runs("auspex-act-2", "STATE_SUCCESS", "SUCCESS", "SUCCESS")
	a.comes(i, reinstall("act-2"), control.Verified)
	spec := a.of(hardware, server)["spec"].(map[string]any)
	dhcp := spec["interfaces"].([]any)[0].(map[string]any)["dhcp"].(map[string]any)
	of := spec["metadata"].(map[string]any)
	if dhcp["hostname"] != "theirs" || len(spec["interfaces"].([]any)) != 2 || of["facility"].(map[string]any)["facility_code"] != "onprem" ||
		of["facility"].(map[string]any)["plan_slug"] != "m2" || of["instance"].(map[string]any)["hostname"] != "gpu-1b" {
		t.Error(spec)
	}
	b.wants(t, hostname, facility, more, ajar)
	// They say it as the record does, and are left alone; what they gave up is ours again.
	dhcp["hostname"] = "gpu-1"
	spec["interfaces"].([]any)[0].(map[string]any)["netboot"].(map[string]any)["allowPXE"] = false
	a.say(hardware, server, map[string]any{"spec": map[string]any{"interfaces": spec["interfaces"].([]any)[:1], "metadata": map[string]any{"facility": map[string]any{"facility_code": "dc1"}}}})
	b.wants(t)
}

func TestWhatAnInstallationGoesByIsNotLeftToOthers(t *testing.T) {
	for want, change := range map[string]func(iface map[string]any){
		".dhcp.arch is aarch64, and the record says x86_64":            func(v map[string]any) { sub(v, "dhcp")["arch"] = "aarch64" },
		".dhcp.uefi is false, and the record says true":                func(v map[string]any) { sub(v, "dhcp")["uefi"] = false },
		".netboot.allowWorkflow is false, and the record says true":    func(v map[string]any) { sub(v, "netboot")["allowWorkflow"] = false },
		"[02:00:00:00:00:01] is gone, and the record says 02:00:00:00": func(v map[string]any) { sub(v, "dhcp")["mac"] = "02:00:00:00:00:55" },
	} {
		a, s := newAPI(t), newStock(server, mac)
		i := a.driver(s)
		if err := i.Apply(t.Context(), reinstall("act-1")); err != nil {
			t.Fatal(err)
		}
		a.runs("auspex-act-1", "STATE_SUCCESS", "SUCCESS", "SUCCESS")
		a.comes(i, reinstall("act-1"), control.Verified)
		ifaces := a.of(hardware, server)["spec"].(map[string]any)["interfaces"].([]any)
		change(ifaces[0].(map[string]any))
		a.say(hardware, server, map[string]any{"metadata": by("kubectl-edit", map[string]any{"f:interfaces": map[string]any{}}), "spec": map[string]any{"interfaces": ifaces}})
		err := i.Apply(t.Context(), reinstall("act-2"))
		if !errors.Is(err, control.ErrRejected) || !strings.Contains(err.Error(), "kubectl-edit has changed hardware tink/gpu-1: spec.interfaces[02:00:00:00:00:01]") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestUserDataOfOthersIsNotRepeated(t *testing.T) {
	a, s, b := newAPI(t), newStock(server, mac), &book{of: map[string]string{mac: server}}
	s.says(func(r *schemas.HardwareRecord) { r.Overrides.UserData = "#cloud-config\n" })
	i := a.watched(s, b)
	if err := i.Apply(t.Context(), reinstall("act-1")); err != nil {
		t.Fatal(err)
	}
	a.say(hardware, server, map[string]any{"metadata": by("kubectl-edit", map[string]any{"f:userData": map[string]any{}}), "spec": map[string]any{"userData": secret}})
	b.wants(t, "tink/gpu-1 gpu-1 spec.userData: 21 bytes, SHA-256 "+digest(secret)[:12]+"…, not 14 bytes, SHA-256 "+digest("#cloud-config\n")[:12]+"… (kubectl-edit)")
	if text := fmt.Sprint(a.of(hardware, server)["metadata"]); strings.Contains(text, secret) || strings.Contains(text, "cloud-config") {
		t.Error(text)
	}
}

func TestTheBoardControllerThatHardwareRefersTo(t *testing.T) {
	a, s, b := newAPI(t), newStock(server, mac), &book{of: map[string]string{mac: server}}
	s.says(func(r *schemas.HardwareRecord) { r.BMC.Address = "https://10.0.0.1" })
	meta := by("rufio-ops", map[string]any{"f:interfaces": map[string]any{}, "f:bmcRef": map[string]any{}})
	meta["name"], meta["namespace"], meta["uid"] = "gpu-1", "tink", "u"
	a.add(hardware, map[string]any{"metadata": meta, "spec": map[string]any{
		"interfaces": []any{map[string]any{"dhcp": map[string]any{"mac": mac, "arch": "x86_64", "uefi": true}, "netboot": map[string]any{"allowWorkflow": true}}},
		"bmcRef":     map[string]any{"apiGroup": "bmc.tinkerbell.org", "kind": "Machine", "name": "bmc-1"},
	}})
	a.machine = func(w http.ResponseWriter, name string) {
		fmt.Fprintf(w, `{"apiVersion":"bmc.tinkerbell.org/v1alpha1","kind":"Machine","metadata":{"name":%q},"spec":{"connection":{"host":"10.0.0.2"}}}`, name)
	}
	a.watched(s, b)
	b.wants(t, "tink/gpu-1 gpu-1 hardware: tink/gpu-1, not tink/gpu-1 (rufio-ops)", "tink/gpu-1 gpu-1 spec.bmcRef: 10.0.0.2 (Machine bmc-1), not 10.0.0.1 (rufio-ops)")
	for text, want := range map[string]string{"https://10.0.0.1:8443/x": "10.0.0.1", "10.0.0.1:623": "10.0.0.1", "[fe80::1]": "fe80::1", "bmc": "bmc", "": ""} {
		if got := hostOf(text); got != want {
			t.Errorf("%s: %s", text, got)
		}
	}
}

func TestAWholeCrowdIsComparedAtOnce(t *testing.T) {
	b := &book{of: map[string]string{}}
	a := newAPI(t)
	i := a.driver(newStock(server, mac))
	i.foreign = b
	var all []any
	for n := range 1000 {
		all = append(all, &Hardware{Spec: HardwareSpec{Interfaces: []map[string]any{iface(fmt.Sprintf("02:00:00:00:%02x:%02x", n/256, n%256), nil)}}})
		all[n].(*Hardware).Name = fmt.Sprint("h", n)
	}
	_ = i.machines.Replace(all, "1")
	began := time.Now()
	if err := i.compare(t.Context()); err != nil || len(b.all) != 1000 {
		t.Fatal(len(b.all), err)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("it takes %s", took)
	}
}

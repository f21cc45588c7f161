package tinkerbell

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"auspex/control"
	"auspex/schemas"
)

// label makes a name of Kubernetes of another; what has to be changed for it gets a digest, so that
// two do not become one.
func label(name string) string {
	const most = 50 // of 63, with room for what stands before or after
	out := strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, name), "-")
	if out == name && len(out) <= most && len(validation.IsDNS1123Label(out)) == 0 {
		return out
	}
	return strings.Trim(out[:min(len(out), most-13)]+"-"+digest(name)[:12], "-")
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// macs are the addresses of a server.
func macs(r *schemas.HardwareRecord) []string {
	out := make([]string, len(r.Interfaces))
	for i := range r.Interfaces {
		out[i] = strings.ToLower(r.Interfaces[i].DHCP.MAC)
	}
	return out
}

// bootMAC is the address that a server starts from the network by.
func bootMAC(r *schemas.HardwareRecord) string {
	if len(r.Interfaces) == 0 || !r.Interfaces[0].Boot {
		return ""
	}
	return strings.ToLower(r.Interfaces[0].DHCP.MAC)
}

func sub(of map[string]any, name string) map[string]any {
	m, _ := of[name].(map[string]any)
	return m
}

// into is a part of an object that may be written, made where there is none.
func into(of map[string]any, name string) map[string]any {
	m := maps.Clone(sub(of, name))
	if m == nil {
		m = map[string]any{}
	}
	of[name] = m
	return m
}

func macOf(iface map[string]any) string {
	mac, _ := sub(iface, "dhcp")["mac"].(string)
	return strings.ToLower(mac)
}

// specOf is hardware as a record has it, over what others say in what there is; what is left to them
// stays as it is, also where the record says otherwise. Whether it may start from the network is not of
// the record: that is opened for a workflow, and closed.
func specOf(r *schemas.HardwareRecord, was *HardwareSpec, left func(field string) bool) HardwareSpec {
	spec := HardwareSpec{Metadata: maps.Clone(was.Metadata), UserData: was.UserData, VendorData: was.VendorData, BMC: was.BMC}
	set := func(of map[string]any, field, key string, value any) {
		if !left(field + "." + key) {
			of[key] = value
		}
	}
	ours := macs(r)
	for i := range r.Interfaces {
		n := &r.Interfaces[i]
		mac := ours[i]
		field, iface := interfaceField(mac), map[string]any{}
		if k := slices.IndexFunc(was.Interfaces, func(v map[string]any) bool { return macOf(v) == mac }); k >= 0 {
			iface = maps.Clone(was.Interfaces[k])
		}
		dhcp := into(iface, "dhcp")
		dhcp["mac"] = mac
		set(dhcp, field+".dhcp", "uefi", n.DHCP.UEFI)
		for key, value := range map[string]string{"hostname": n.DHCP.Hostname, "arch": n.DHCP.Arch, "iface_name": n.DHCP.IfaceName} {
			if value != "" {
				set(dhcp, field+".dhcp", key, value)
			}
		}
		netboot := into(iface, "netboot")
		if _, said := netboot["allowPXE"]; !said {
			netboot["allowPXE"] = false
		}
		set(netboot, field+".netboot", "allowWorkflow", n.Boot)
		spec.Interfaces = append(spec.Interfaces, iface)
	}
	for _, v := range was.Interfaces {
		if mac := macOf(v); mac == "" || !slices.Contains(ours, mac) && left(interfaceField(mac)) {
			spec.Interfaces = append(spec.Interfaces, v)
		}
	}
	for i := range r.Disks {
		if d := r.Disks[i].Device; d != "" {
			spec.Disks = append(spec.Disks, Disk{d})
		}
	}
	if left(fieldDisks) {
		spec.Disks = was.Disks
	}
	if spec.Metadata == nil {
		spec.Metadata = map[string]any{}
	}
	instance := into(spec.Metadata, "instance")
	set(instance, fieldInstance, "id", r.ID)
	set(instance, fieldInstance, "hostname", r.Metadata.Hostname)
	facility := into(spec.Metadata, "facility")
	for key, value := range map[string]string{"facility_code": r.Metadata.Site, "plan_slug": r.Model} {
		if value != "" {
			set(facility, fieldFacility, key, value)
		}
	}
	if text := r.Overrides.UserData; text != "" && !left(fieldUserData) {
		spec.UserData = &text
	}
	return spec
}

// derived is hardware as a record has it, where there is none yet.
func derived(r *schemas.HardwareRecord) HardwareSpec {
	return specOf(r, &HardwareSpec{}, func(string) bool { return false })
}

// stale are the fields that we wrote, that nobody has changed, and of which the record says nothing any more, in order.
func (h *Hardware) stale(r *schemas.HardwareRecord) (out []string) {
	spec := derived(r)
	says, is := spec.says(), h.Spec.says()
	for field, was := range h.wrote() {
		head, _, part := strings.Cut(field, "].")
		if says[field] == "" && was != "" && is[field] == was && !strings.HasSuffix(field, "]") && (!part || says[head+"]"] != "") {
			out = append(out, field)
		}
	}
	slices.Sort(out)
	return out
}

// drop takes a field out of a spec that is to be written, and out of what is sent of it.
func (s *HardwareSpec) drop(field string, sent map[string]any) {
	if head, key, ok := strings.Cut(field, "].dhcp."); ok {
		for _, v := range s.Interfaces {
			if interfaceField(macOf(v)) == head+"]" {
				delete(sub(v, "dhcp"), key)
			}
		}
		sent["interfaces"] = s.Interfaces
		return
	}
	path := pathOf(field)[1:]
	for _, name := range path[:len(path)-1] {
		sent = into(sent, name)
	}
	sent[path[len(path)-1]] = nil
}

// mineOf reports whether hardware is ours, for a server.
func (h *Hardware) mineOf(r *schemas.HardwareRecord) bool {
	return h.Labels[managedBy] == manager && h.Labels[serverID] == r.ID
}

// ofServer finds our hardware of a server, and what speaks against having it: an object of its name
// that is not ours, one of somebody else with its addresses, or one of ours in which somebody changed
// what an installation goes by.
func (k *cluster) ofServer(ctx context.Context, r *schemas.HardwareRecord) (h *Hardware, err error) {
	all, err := k.allHardware(ctx)
	if err != nil {
		return nil, err
	}
	for i := range all {
		one := &all[i]
		if one.mineOf(r) {
			h = one
		} else if says := k.claims(one, r); says != "" {
			return nil, fmt.Errorf("%w: %s", control.ErrCannot, says)
		}
	}
	if h == nil {
		return nil, nil
	}
	if changed := h.amiss(r); len(changed) > 0 {
		return nil, fmt.Errorf("%w: %s has changed hardware %s/%s: %s; put it back, or take its annotation %s away to have it written anew",
			control.ErrCannot, changed[0].Owner, k.cfg.Namespace, h.Name, worded(changed), recordOf)
	}
	return h, nil
}

// claims is what hardware that is not ours for a server has of it; "" is nothing.
func (k *cluster) claims(one *Hardware, r *schemas.HardwareRecord) string {
	where, addresses := "hardware "+k.cfg.Namespace+"/"+one.Name, macs(r)
	if one.Labels[managedBy] == manager {
		where += ", which is ours for server " + one.Annotations[forServer] + ","
	} else {
		where += ", which belongs to " + owner(&one.ObjectMeta) + ","
	}
	for _, iface := range one.Spec.Interfaces {
		if mac := macOf(iface); slices.Contains(addresses, mac) {
			return fmt.Sprintf("%s has the address %s of %s", where, mac, r.Name)
		}
	}
	if one.Name == label(r.Name) {
		return fmt.Sprintf("%s has the name that %s would get", where, r.Name)
	}
	return ""
}

// same compares values as JSON has them.
func same(a, b any) bool {
	x, errA := json.Marshal(a)
	y, errB := json.Marshal(b)
	return errA == nil && errB == nil && string(x) == string(y)
}

// putHardware writes our hardware of a server where it is not as the record has it, and returns its
// name. It opens nothing.
func (k *cluster) putHardware(ctx context.Context, r *schemas.HardwareRecord, h *Hardware) (name string, err error) {
	if h != nil {
		return h.Name, k.bring(ctx, r, h, false)
	}
	spec := derived(r)
	name = label(r.Name)
	wrote, err := json.Marshal(spec.says())
	if err != nil {
		return name, err
	}
	made, err := k.create(ctx, hardware, name, &Hardware{
		TypeMeta: metav1.TypeMeta{APIVersion: group.String(), Kind: "Hardware"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: k.cfg.Namespace, Labels: map[string]string{managedBy: manager, serverID: r.ID},
			Annotations: map[string]string{forServer: r.Name, recordOf: string(wrote)},
		},
		Spec: spec,
	})
	if err == nil && !made {
		err = fmt.Errorf("%w: hardware %s/%s was made by someone else just now", control.ErrRejected, k.cfg.Namespace, name)
	}
	return name, err
}

// bring writes hardware of ours where it is not as the record has it, but for what others have; closing, it is open to no start
// from the network after it.
func (k *cluster) bring(ctx context.Context, r *schemas.HardwareRecord, h *Hardware, closing bool) error {
	spec := derived(r)
	says, theirs, before := spec.says(), map[string]bool{}, h.wrote()
	for _, d := range h.theirs(says) {
		theirs[d.Field] = true
		if was, ok := before[d.Field]; ok {
			says[d.Field] = was // what they have stays told from what we wrote
		}
	}
	want, gone := specOf(r, &h.Spec, func(field string) bool { return theirs[field] }), h.stale(r)
	if closing {
		for n, v := range want.Interfaces {
			want.Interfaces[n] = maps.Clone(v)
			into(want.Interfaces[n], "netboot")["allowPXE"] = false
		}
	}
	wrote, err := json.Marshal(says)
	if err != nil {
		return err
	}
	if len(gone) == 0 && same(want, h.Spec) && h.Annotations[recordOf] == string(wrote) && (!closing || h.Annotations[netbootFor] == "") {
		return nil
	}
	mark := map[string]any{recordOf: string(wrote), forServer: r.Name, listBy: h.listOwner()}
	if closing {
		mark[netbootFor] = nil
	}
	changes, sent := annotations(mark), object(want)
	for _, field := range gone {
		want.drop(field, sent)
	}
	changes["spec"] = sent
	return k.patch(ctx, hardware, &h.ObjectMeta, changes)
}

// allow sets whether hardware may start from the network, for a workflow of ours: an open one says
// for which, and a closed one for none.
func (k *cluster) allow(ctx context.Context, h *Hardware, workflow string) error {
	ifaces := make([]map[string]any, len(h.Spec.Interfaces))
	for i, was := range h.Spec.Interfaces {
		ifaces[i] = maps.Clone(was)
		netboot := into(ifaces[i], "netboot")
		boots, _ := netboot["allowWorkflow"].(bool)
		netboot["allowPXE"] = workflow != "" && boots
	}
	mark := map[string]any{netbootFor: nil, listBy: h.listOwner()}
	if workflow != "" {
		mark[netbootFor] = workflow
	}
	changes := annotations(mark)
	changes["spec"] = map[string]any{"interfaces": ifaces}
	return k.patch(ctx, hardware, &h.ObjectMeta, changes)
}

// open reports whether hardware may start from the network.
func (h *Hardware) open() bool {
	return slices.ContainsFunc(h.Spec.Interfaces, func(v map[string]any) bool {
		allowed, _ := sub(v, "netboot")["allowPXE"].(bool)
		return allowed
	})
}

// shut closes what was opened for a workflow of ours, and reads back that it is closed. Hardware that
// is open for another workflow, or gone, is left alone.
func (k *cluster) shut(ctx context.Context, name, workflow string) error {
	for range 4 { // beside what others change
		h := &Hardware{}
		found, err := k.get(ctx, hardware, name, h)
		if err != nil || !found || h.Labels[managedBy] != manager || h.Annotations[netbootFor] != workflow {
			return err
		}
		if err := k.allow(ctx, h, ""); err != nil && !conflicts(err) {
			return err
		}
	}
	return fmt.Errorf("hardware %s/%s is changed by others all the time", k.cfg.Namespace, name)
}

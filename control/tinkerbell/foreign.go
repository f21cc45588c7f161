package tinkerbell

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"auspex/control"
	"auspex/internal/kube"
	"auspex/schemas"
)

// Fields of hardware that are derived here. Those of an interface begin with [interfaceField].
const (
	fieldDisks    = "spec.disks"
	fieldInstance = "spec.metadata.instance"
	fieldFacility = "spec.metadata.facility"
	fieldUserData = "spec.userData"
	fieldBMC      = "spec.bmcRef"
	interfaces    = "spec.interfaces["
)

func interfaceField(mac string) string { return interfaces + mac + "]" }

// says is what a spec has of what is derived here, by field. User data may hold secrets, and is its digest.
func (s *HardwareSpec) says() map[string]string {
	out := map[string]string{}
	text := func(field string, v any) {
		if v != nil && v != "" {
			out[field] = fmt.Sprint(v)
		}
	}
	for _, v := range s.Interfaces {
		mac := macOf(v)
		if mac == "" {
			continue
		}
		field, dhcp := interfaceField(mac), sub(v, "dhcp")
		out[field] = mac
		for _, key := range []string{"hostname", "arch", "iface_name"} {
			text(field+".dhcp."+key, dhcp[key])
		}
		out[field+".dhcp.uefi"] = strconv.FormatBool(dhcp["uefi"] == true)
		out[field+".netboot.allowWorkflow"] = strconv.FormatBool(sub(v, "netboot")["allowWorkflow"] == true)
	}
	disks := make([]string, len(s.Disks))
	for i, d := range s.Disks {
		disks[i] = d.Device
	}
	text(fieldDisks, strings.Join(disks, ", "))
	instance, facility := sub(s.Metadata, "instance"), sub(s.Metadata, "facility")
	text(fieldInstance+".id", instance["id"])
	text(fieldInstance+".hostname", instance["hostname"])
	text(fieldFacility+".facility_code", facility["facility_code"])
	text(fieldFacility+".plan_slug", facility["plan_slug"])
	if s.UserData != nil && *s.UserData != "" {
		out[fieldUserData] = fmt.Sprintf("%d bytes, SHA-256 %s…", len(*s.UserData), digest(*s.UserData)[:12])
	}
	return out
}

// wrote is what we wrote of hardware last, by field; nil is not known.
func (h *Hardware) wrote() (out map[string]string) {
	if json.Unmarshal([]byte(h.Annotations[recordOf]), &out) != nil {
		return nil
	}
	return out
}

// holder is who else than us has a field of an object, as its managed fields say, the last of them; "" is nobody. A
// list has one owner as a whole.
func holder(m *metav1.ObjectMeta, path ...string) (by string, at time.Time) {
	for i := range m.ManagedFields {
		f := &m.ManagedFields[i]
		if f.Manager == manager || f.Subresource != "" || f.FieldsV1 == nil {
			continue
		}
		raw, has := json.RawMessage(f.FieldsV1.GetRawBytes()), true
		for _, name := range path {
			var node map[string]json.RawMessage
			if json.Unmarshal(raw, &node) != nil {
				has = false
			}
			next, ok := node["f:"+name]
			if !ok {
				has = has && len(node) == 0 // what is above it is one
				break
			}
			raw = next
		}
		if !has {
			continue
		}
		var t time.Time
		if f.Time != nil {
			t = f.Time.Time
		}
		if by == "" || t.After(at) {
			by, at = f.Manager, t
		}
	}
	return by, at
}

func pathOf(field string) []string {
	if strings.HasPrefix(field, interfaces) {
		return []string{"spec", "interfaces"}
	}
	return strings.Split(field, ".")
}

// listOwner is who is written down as having written the list of interfaces beside us; nil is nobody.
func (h *Hardware) listOwner() any {
	if by, _ := holder(&h.ObjectMeta, "spec", "interfaces"); by != "" {
		return by
	}
	if by := h.Annotations[listBy]; by != "" {
		return by
	}
	return nil
}

// fieldOwner is who has a field otherwise than we wrote it.
func (h *Hardware) fieldOwner(field string) (by string, at time.Time) {
	if by, at = holder(&h.ObjectMeta, pathOf(field)...); by != "" {
		return by, at
	}
	if strings.HasPrefix(field, interfaces) && h.Annotations[listBy] != "" {
		return h.Annotations[listBy], time.Time{}
	}
	return owner(&h.ObjectMeta), time.Time{}
}

// differs are the fields that are not as a record has them, in order. Of an interface that one side lacks that is all.
func (s *HardwareSpec) differs(want map[string]string) (out []schemas.Foreign) {
	is := s.says()
	for _, field := range slices.Sorted(maps.Keys(want)) {
		if is[field] == want[field] {
			continue
		}
		if head, _, sub := strings.Cut(field, "]."); sub && is[head+"]"] == "" {
			continue
		}
		out = append(out, schemas.Foreign{Field: field, Ours: want[field], Theirs: is[field]})
	}
	for _, field := range slices.Sorted(maps.Keys(is)) {
		if strings.HasPrefix(field, interfaces) && strings.HasSuffix(field, "]") && want[field] == "" {
			out = append(out, schemas.Foreign{Field: field, Theirs: is[field]})
		}
	}
	return out
}

// theirs are the fields of hardware of ours that somebody else has otherwise than a record. What we wrote
// ourselves and what the record has come to say otherwise since is none. One that does not say what we wrote
// is to be written anew as a whole.
func (h *Hardware) theirs(want map[string]string) (out []schemas.Foreign) {
	if h.Annotations[recordOf] == "" {
		return nil
	}
	is, wrote := h.Spec.says(), h.wrote()
	for _, d := range h.Spec.differs(want) {
		by, _ := holder(&h.ObjectMeta, pathOf(d.Field)...)
		whole := strings.HasPrefix(d.Field, interfaces) || d.Field == fieldDisks
		if wrote != nil && is[d.Field] == wrote[d.Field] && (whole || by == "") || wrote == nil && by == "" {
			continue
		}
		d.Owner, d.Time = h.fieldOwner(d.Field)
		out = append(out, d)
	}
	return out
}

// amiss are those of them that an installation goes by, so that it cannot be left to them.
func (h *Hardware) amiss(r *schemas.HardwareRecord) (out []schemas.Foreign) {
	spec := derived(r)
	for _, d := range h.theirs(spec.says()) {
		switch {
		case d.Field == fieldDisks, strings.HasSuffix(d.Field, ".dhcp.arch"), strings.HasSuffix(d.Field, ".dhcp.uefi"),
			d.Field == interfaceField(bootMAC(r))+".netboot.allowWorkflow", strings.HasSuffix(d.Field, "]") && d.Theirs == "":
			out = append(out, d)
		}
	}
	return out
}

func worded(all []schemas.Foreign) string {
	out := make([]string, len(all))
	for i, d := range all {
		out[i] = fmt.Sprintf("%s is %s, and the record says %s", d.Field, cmp.Or(d.Theirs, "gone"), d.Ours)
	}
	return strings.Join(out, "; ")
}

// rereads is how long what was found of an object that does not change stands: records change too.
const rereads = time.Minute

// held is what was found of an object.
type held struct {
	version string
	servers []string
	at      time.Time
	all     []schemas.Foreign
}

// compare tells what others have in the API otherwise than the inventory, or beside it, when that has changed.
func (i *installer) compare(ctx context.Context) error {
	if i.foreign == nil || i.installs == nil {
		return nil
	}
	now, next := i.now(), map[string]held{}
	objects := make([]*Hardware, 0, len(i.held))
	for _, o := range i.machines.List() {
		if h, ok := o.(*Hardware); ok {
			objects = append(objects, h)
		}
	}
	slices.SortFunc(objects, func(a, b *Hardware) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	all, strangers := []schemas.Foreign{}, map[string]*Hardware{}
	for _, h := range objects {
		servers := i.serversOf(h)
		one, ok := i.held[h.Name]
		if !ok || one.version != h.ResourceVersion || now.Sub(one.at) >= i.rereads || !slices.Equal(one.servers, servers) {
			found, err := i.found(ctx, h, servers)
			if err != nil {
				return err
			}
			one = held{h.ResourceVersion, servers, now, found}
		}
		next[h.Name] = one
		all = append(all, one.all...)
		if len(servers) == 0 && h.Labels[managedBy] != manager {
			all = append(all, i.stranger(h, strangers)...)
		}
	}
	i.held = next
	if i.said != nil && reflect.DeepEqual(i.said, all) {
		return nil
	}
	if err := i.foreign.Said(ctx, i.cfg.Namespace, all); err != nil {
		return err
	}
	i.said = all
	return nil
}

func (h *Hardware) macs() (out []string) {
	for _, v := range h.Spec.Interfaces {
		if mac := macOf(v); mac != "" && !slices.Contains(out, mac) {
			out = append(out, mac)
		}
	}
	return out
}

// serversOf are the servers of the inventory that hardware is of, by its addresses, and by its name where it has
// that of one of them; ours says which.
func (i *installer) serversOf(h *Hardware) []string {
	name := h.Name
	if h.Labels[managedBy] == manager {
		name = h.Annotations[forServer]
	}
	out := i.foreign.Servers(name, h.macs()...)
	slices.Sort(out)
	return out
}

// found is what hardware has otherwise than the records of its servers.
func (i *installer) found(ctx context.Context, h *Hardware, servers []string) (out []schemas.Foreign, err error) {
	object := i.cfg.Namespace + "/" + h.Name
	for _, server := range servers {
		r, err := i.installs.Hardware(ctx, server)
		if errors.Is(err, control.ErrCannot) {
			continue // it has left the inventory
		} else if err != nil {
			return nil, err
		}
		spec := derived(&r)
		var all []schemas.Foreign
		if h.mineOf(&r) {
			all = h.theirs(spec.says())
			if h.Annotations[netbootFor] == "" {
				all = append(all, h.ajar(&r)...)
			}
		} else {
			ours := i.cfg.Namespace + "/" + i.nameOf(&r)
			all = append(all, schemas.Foreign{Field: schemas.FieldObject, Ours: ours, Theirs: object, Owner: owner(&h.ObjectMeta), Time: h.CreationTimestamp.UTC()})
			for _, d := range h.Spec.differs(spec.says()) {
				whole := strings.HasPrefix(d.Field, interfaces) && strings.HasSuffix(d.Field, "]")
				if d.Field == fieldInstance+".id" || d.Theirs == "" && !whole {
					continue // it is theirs to say
				}
				d.Owner, d.Time = h.fieldOwner(d.Field)
				all = append(all, d)
			}
		}
		if d, ok := i.otherBMC(ctx, h, &r); ok {
			all = append(all, d)
		}
		for k := range all {
			d := &all[k]
			d.Object, d.Server, d.Time = object, r.Name, d.Time.UTC()
			if d.Ours == "" && d.Field != fieldBMC { // an interface that the inventory may have elsewhere
				if others := i.foreign.Servers("", d.Theirs); len(others) > 0 && others[0] != r.Name {
					d.Ours = "of " + others[0]
				}
			}
		}
		out = append(out, all...)
	}
	return out, nil
}

// nameOf is how our hardware of a server is called, or would be.
func (i *installer) nameOf(r *schemas.HardwareRecord) string {
	for _, o := range i.machines.List() {
		if h, ok := o.(*Hardware); ok && h.mineOf(r) {
			return h.Name
		}
	}
	return label(r.Name)
}

// ajar are the interfaces that others let start from the network while no workflow of ours asks for it.
func (h *Hardware) ajar(r *schemas.HardwareRecord) (out []schemas.Foreign) {
	for _, v := range h.Spec.Interfaces {
		asked := slices.ContainsFunc(r.Interfaces, func(n schemas.HardwareInterface) bool {
			return strings.EqualFold(n.DHCP.MAC, macOf(v)) && n.Netboot.AllowPXE
		})
		if sub(v, "netboot")["allowPXE"] == true && macOf(v) != "" && !asked {
			d := schemas.Foreign{Field: interfaceField(macOf(v)) + ".netboot.allowPXE", Ours: "false", Theirs: "true"}
			d.Owner, d.Time = h.fieldOwner(d.Field)
			out = append(out, d)
		}
	}
	return out
}

// stranger is hardware of a machine that the inventory does not have. The first of an address is the machine, and
// another one of it a conflict.
func (i *installer) stranger(h *Hardware, first map[string]*Hardware) (out []schemas.Foreign) {
	object := i.cfg.Namespace + "/" + h.Name
	for _, mac := range h.macs() {
		if was := first[mac]; was == nil {
			first[mac] = h
		} else if was != h && len(out) == 0 {
			out = append(out, schemas.Foreign{
				Object: object, Field: schemas.FieldObject, Ours: i.cfg.Namespace + "/" + was.Name, Other: owner(&was.ObjectMeta),
				Theirs: object, Owner: owner(&h.ObjectMeta), Time: h.CreationTimestamp.UTC(),
			})
		}
	}
	if len(out) > 0 {
		return out
	}
	m := &schemas.Hardware{GPUs: []schemas.FoundPart{}, NICs: []schemas.FoundPart{}}
	m.Hostname, _ = sub(h.Spec.Metadata, "instance")["hostname"].(string)
	for k, v := range h.Spec.Interfaces {
		dhcp := sub(v, "dhcp")
		name, _ := dhcp["iface_name"].(string)
		if mac := macOf(v); mac != "" {
			m.NICs = append(m.NICs, schemas.FoundPart{Name: cmp.Or(name, fmt.Sprint("nic", k)), MAC: mac})
		}
		if arch, _ := dhcp["arch"].(string); m.Architecture == "" && (arch == schemas.ArchX86 || arch == schemas.ArchARM) {
			m.Architecture = arch
		}
		if host, _ := dhcp["hostname"].(string); m.Hostname == "" {
			m.Hostname = host
		}
		if m.BootMode == "" && dhcp["uefi"] == true {
			m.BootMode = schemas.BootUEFI
		}
	}
	m.Hostname = cmp.Or(m.Hostname, h.Name)
	return []schemas.Foreign{{Object: object, Owner: owner(&h.ObjectMeta), Time: h.CreationTimestamp.UTC(), Machine: m}}
}

// host is where the board controller of a Machine is, as Rufio has it.
type host struct {
	address string // "" is not known
	at      time.Time
}

// hostsFor is for how long one is not read again.
const hostsFor = 10 * time.Minute

// otherBMC is the difference between the board controller that hardware refers to and that of a record. Names of
// hosts are not held against addresses: one may well be that of the other.
func (i *installer) otherBMC(ctx context.Context, h *Hardware, r *schemas.HardwareRecord) (d schemas.Foreign, ok bool) {
	ref := h.Spec.BMC
	ours, err := netip.ParseAddr(hostOf(r.BMC.Address))
	if ref == nil || ref.Kind != "Machine" || err != nil {
		return d, false
	}
	known := i.hosts[ref.Name]
	if known.at.IsZero() || i.now().Sub(known.at) > hostsFor {
		m := &Machine{}
		err := i.do(ctx, "get", "machines", func(c *rest.RESTClient) *rest.Request {
			return c.Get().AbsPath("/apis/bmc.tinkerbell.org/v1alpha1/namespaces", i.cfg.Namespace, "machines", ref.Name)
		}, m)
		known = host{m.Spec.Connection.Host, i.now()}
		if err != nil && !absent(err) && !i.deaf { // once: the others lack the same right
			i.deaf = true
			i.log.Warn("the board controller that hardware refers to cannot be read", "hardware", h.Name, "machine", ref.Name, "error", kube.Worded(err))
		}
		i.hosts[ref.Name] = known
	}
	theirs, err := netip.ParseAddr(known.address)
	if err != nil || theirs.Unmap() == ours.Unmap() {
		return d, false
	}
	d = schemas.Foreign{Field: fieldBMC, Ours: ours.String(), Theirs: theirs.String() + " (Machine " + ref.Name + ")"}
	d.Owner, d.Time = h.fieldOwner(d.Field)
	return d, true
}

// hostOf is the host of an address, which may be a URL and have a port.
func hostOf(address string) string {
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		return u.Hostname()
	}
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return strings.Trim(address, "[]")
}

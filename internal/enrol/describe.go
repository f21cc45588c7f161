package enrol

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	gpb "github.com/openconfig/gnmi/proto/gnmi"

	"auspex/internal/gnmiclient"
	"auspex/internal/target"
)

const (
	maxText  = 256
	maxParts = 512 // of each kind
	maxGPUs  = 64
)

// described are the lists of an agent's tree that tell parts, and what each leaf is.
var described = []struct {
	list   string
	most   int
	leaves []string
}{
	{"/gpus/gpu", maxGPUs, []string{"name", "uuid", "serial", "pci", "product"}},
	{"/identity/nvswitch", maxGPUs, []string{"name", "pci-address"}},
	{"/identity/dimm", maxParts, []string{"name", "serial", "part-number"}},
	{"/host/nic", maxParts, []string{"name", "mac-address", "pci-address"}},
	{"/host/disk", maxParts, []string{"name", "model", "serial-number"}},
	{"/host/lldp-neighbor", maxParts, []string{"name", "system-name", "port-id", "port-description"}},
}

var scalars = []string{
	"/identity/state/digest", "/identity/state/product", "/identity/state/serial", "/identity/state/uuid", "/identity/state/hostname", "/identity/state/architecture", "/identity/state/boot-mode",
	"/identity/state/agent-version", "/host/state/boot-id",
}

// maxUpdates bounds what an agent may say before it has said all.
const maxUpdates = 20_000

// get asks for leaves once, and calls each for every text; what an agent does not have it
// does not tell.
func get(ctx context.Context, client gpb.GNMIClient, paths []string, each func(elem []*gpb.PathElem, text string) error) error {
	list := &gpb.SubscriptionList{Mode: gpb.SubscriptionList_ONCE, Encoding: gpb.Encoding_PROTO}
	for _, path := range paths {
		p, err := target.ParsePath(path)
		if err != nil {
			return err
		}
		list.Subscription = append(list.Subscription, &gpb.Subscription{Path: p})
	}
	req := &gpb.SubscribeRequest{Request: &gpb.SubscribeRequest_Subscribe{Subscribe: list}}
	messages, end, err := gnmiclient.Stream(ctx, client, req, 1)
	if err != nil {
		return err
	}
	defer end()
	for n := 0; ; {
		var m gnmiclient.Message
		select {
		case m = <-messages:
		case <-ctx.Done():
			return ctx.Err()
		}
		if m.Err != nil {
			return fmt.Errorf("subscribe: %w", m.Err)
		}
		if m.GetSyncResponse() {
			return nil
		}
		for _, u := range m.GetUpdate().GetUpdate() {
			if n++; n > maxUpdates {
				return refused("it says more than %d things", maxUpdates)
			}
			v, ok := u.GetVal().GetValue().(*gpb.TypedValue_StringVal)
			elem := slices.Concat(m.GetUpdate().GetPrefix().GetElem(), u.GetPath().GetElem())
			if !ok || len(elem) == 0 {
				continue
			}
			if err := each(elem, v.StringVal); err != nil {
				return err
			}
		}
	}
}

// Digest asks an agent for the digest of its description, and its boot. An agent of an
// earlier version has none.
func Digest(ctx context.Context, client gpb.GNMIClient) (digest, boot string, err error) {
	err = get(ctx, client, []string{"/identity/state/digest", "/host/state/boot-id"}, func(elem []*gpb.PathElem, text string) error {
		if len(text) > maxText {
			return refused("its digest has %d characters", len(text))
		}
		if elem[0].GetName() == "identity" {
			digest = text
		} else {
			boot = text
		}
		return nil
	})
	return digest, boot, err
}

func refused(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDescription, fmt.Sprintf(format, args...))
}

// nameForm is a name that may be a part of an id.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9._:@+-]{1,64}$`)

// quoted is the begin of what somebody wrote.
func quoted(text string) string { return fmt.Sprintf("%.40q", text) }

// Describe asks an agent for its description. One that nobody could keep or read is
// refused as a whole.
func Describe(ctx context.Context, client gpb.GNMIClient) (*Description, error) {
	paths := slices.Clone(scalars)
	for _, d := range described {
		for _, leaf := range d.leaves {
			paths = append(paths, d.list+"/state/"+leaf)
		}
	}
	top := map[string]string{}
	lists := map[string]map[string]map[string]string{} // list, name, leaf
	err := get(ctx, client, paths, func(elem []*gpb.PathElem, text string) error {
		var names strings.Builder
		key := ""
		for _, e := range elem {
			names.WriteString("/" + e.GetName())
			for _, v := range e.GetKey() {
				key = v
			}
		}
		path := names.String()
		if text = strings.TrimSpace(text); len(text) > maxText || strings.IndexFunc(text, func(r rune) bool { return r > '~' || !unicode.IsPrint(r) }) >= 0 {
			return refused("%.80s of %s has more than %d characters, or some that are not of ASCII or do not print", path, quoted(key), maxText)
		}
		if key == "" {
			top[path] = text
			return nil
		}
		list, leaf, _ := strings.Cut(path, "/state/")
		entries := lists[list]
		if entries == nil {
			entries = map[string]map[string]string{}
			lists[list] = entries
		}
		if entries[key] == nil {
			for _, d := range described {
				if d.list == list && len(entries) >= d.most {
					return refused("more than %d of %s", d.most, list)
				}
			}
			if !nameForm.MatchString(strings.ReplaceAll(key, " ", "-")) {
				return refused("%s of %s is no name", quoted(key), list)
			}
			entries[key] = map[string]string{}
		}
		entries[key][leaf] = text
		return nil
	})
	if err != nil {
		return nil, err
	}
	parts := func(list string, fill func(p *Part, v map[string]string)) (out []Part) {
		for name, v := range lists[list] {
			p := Part{Name: strings.ReplaceAll(name, " ", "-")}
			fill(&p, v)
			out = append(out, p)
		}
		slices.SortFunc(out, func(a, b Part) int { return strings.Compare(a.Name, b.Name) })
		return out
	}
	d := &Description{
		Digest: top["/identity/state/digest"], Boot: top["/host/state/boot-id"], Product: top["/identity/state/product"],
		Version: top["/identity/state/agent-version"],
		Serial:  top["/identity/state/serial"], UUID: top["/identity/state/uuid"], Hostname: top["/identity/state/hostname"],
		Architecture: top["/identity/state/architecture"], BootMode: top["/identity/state/boot-mode"],
		GPUs: parts("/gpus/gpu", func(p *Part, v map[string]string) {
			p.UUID, p.Serial, p.PCI, p.Model = v["uuid"], v["serial"], v["pci"], v["product"]
		}),
		NVSwitches: parts("/identity/nvswitch", func(p *Part, v map[string]string) { p.PCI = v["pci-address"] }),
		DIMMs:      parts("/identity/dimm", func(p *Part, v map[string]string) { p.Serial, p.Model = v["serial"], v["part-number"] }),
		NICs:       parts("/host/nic", func(p *Part, v map[string]string) { p.MAC, p.PCI = v["mac-address"], v["pci-address"] }),
		Disks:      parts("/host/disk", func(p *Part, v map[string]string) { p.Serial, p.Model = v["serial-number"], v["model"] }),
	}
	for name, v := range lists["/host/lldp-neighbor"] {
		d.Neighbors = append(d.Neighbors, Neighbor{
			Interface: strings.ReplaceAll(name, " ", "-"), System: v["system-name"], Port: v["port-id"], PortDescription: v["port-description"],
		})
	}
	slices.SortFunc(d.Neighbors, func(a, b Neighbor) int { return strings.Compare(a.Interface, b.Interface) })
	return d, nil
}

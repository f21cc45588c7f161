package collectors

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"auspex/schemas"
)

// Sign is a kind of evidence about a server that judgement rests on.
type Sign string

// Signs, in the order in which people are told of them.
const (
	SignXID     Sign = "XID"          // the GPU driver's own errors
	SignKernel  Sign = "kernel log"   // what else the kernel says: memory, PCIe, file systems, a crash
	SignGPU     Sign = "GPU readings" // readings of GPUs
	SignSEL     Sign = "SEL"          // the event log of the board controller
	SignSensors Sign = "sensors"      // temperatures, fans, power
	SignJobs    Sign = "jobs"         // which job ran where, and how it ended
	SignNetwork Sign = "network"      // the switch ports that the server hangs on
)

var signs = []Sign{SignXID, SignKernel, SignGPU, SignSEL, SignSensors, SignJobs, SignNetwork}

// Evidence says which signs a collector brings and what a device needs for it.
type Evidence struct {
	Signs []Sign
	// Attr is the attribute that makes a resource a target; empty where the
	// collector speaks for all servers.
	Attr string
	// Yields are signs that it leaves to another collector that brings them of the
	// same device, since that says the same with more words.
	Yields []Sign
	// To are the only collectors that it yields to; empty is whoever brings the sign. Those named
	// do not yield to it.
	To []string
	// Partly says what the yielded signs lack when this collector alone brings them.
	Partly string
}

// Witness is implemented by configurations whose collectors bring signs.
type Witness interface{ Evidence() Evidence }

func evidence(c Config) Evidence {
	if w, ok := c.(Witness); ok {
		return w.Evidence()
	}
	return Evidence{}
}

// brought says which collectors bring a sign of a device without yielding it.
type brought map[string]map[Sign][]string

func bringing(configs map[string]Config, resources []schemas.Resource) brought {
	out := brought{}
	for name, c := range configs {
		e := evidence(c)
		for _, t := range c.Targets(resources) {
			device := DeviceOf(t)
			if e.Attr == "" {
				device = ""
			}
			if out[device] == nil {
				out[device] = map[Sign][]string{}
			}
			for _, s := range e.Signs {
				out[device][s] = append(out[device][s], name)
			}
		}
	}
	return out
}

// taken are the signs that a collector yields and others bring of a device.
func (b brought) taken(configs map[string]Config, collector, device string) []Sign {
	var out []Sign
	e := evidence(configs[collector])
	for _, s := range e.Yields {
		if slices.ContainsFunc(slices.Concat(b[device][s], b[""][s]), func(by string) bool {
			if len(e.To) > 0 {
				return slices.Contains(e.To, by)
			}
			other := evidence(configs[by])
			return by != collector && !(slices.Contains(other.Yields, s) && slices.Contains(other.To, collector))
		}) {
			out = append(out, s)
		}
	}
	return out
}

// BlindSpot is a sign that servers give nobody, or only in part.
type BlindSpot struct {
	Sign    Sign
	Servers []string // in order
	Partly  bool
	Why     string
}

// String is one line for people.
func (b BlindSpot) String() string {
	who := fmt.Sprintf("%d servers", len(b.Servers))
	if len(b.Servers) == 1 {
		who = "1 server"
	}
	names := strings.Join(b.Servers[:min(3, len(b.Servers))], ", ")
	if more := len(b.Servers) - 3; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	verb := "blind to " + string(b.Sign)
	if b.Partly {
		verb = "half blind to " + string(b.Sign)
	}
	return fmt.Sprintf("%s (%s): %s: %s", who, names, verb, b.Why)
}

// BlindSpots says of each server of an inventory which signs configured collectors
// do not bring, and why; servers with the same sign and reason stand together.
func BlindSpots(configs map[string]Config, t schemas.Topology) []BlindSpot {
	have := bringing(configs, t.Resources)
	attached := switches(t)
	type group struct {
		sign   Sign
		partly bool
		why    string
	}
	spots := map[group][]string{}
	for _, r := range t.Resources {
		if r.Kind != schemas.KindServer {
			continue
		}
		for _, s := range signs {
			devices := []string{r.ID, ""}
			if s == SignNetwork {
				devices = attached[r.ID]
			}
			var by []string
			for _, d := range devices {
				by = append(by, have[d][s]...)
			}
			switch {
			case len(by) == 0:
				g := group{s, false, whyBlind(configs, s)}
				if s == SignNetwork && len(devices) == 0 {
					g.why = "no network link of the inventory joins it to a switch"
				}
				spots[g] = append(spots[g], r.ID)
			default:
				partly := ""
				for _, name := range by {
					e := evidence(configs[name])
					if !slices.Contains(e.Yields, s) || e.Partly == "" {
						partly = ""
						break
					}
					partly = e.Partly
				}
				if partly != "" {
					g := group{s, true, partly}
					spots[g] = append(spots[g], r.ID)
				}
			}
		}
	}
	var out []BlindSpot
	for g, servers := range spots {
		slices.Sort(servers)
		out = append(out, BlindSpot{g.sign, servers, g.partly, g.why})
	}
	slices.SortFunc(out, func(a, b BlindSpot) int {
		return cmp.Or(
			cmp.Compare(slices.Index(signs, a.Sign), slices.Index(signs, b.Sign)), cmp.Compare(rank(a), rank(b)),
			cmp.Compare(len(b.Servers), len(a.Servers)), cmp.Compare(a.Why, b.Why),
		)
	})
	return out
}

// inside are the signs that a server's own system tells.
var inside = []Sign{SignXID, SignKernel, SignGPU}

// Unread returns the servers of an inventory, in order, that no configured collector reads from inside: they give nobody
// XIDs, the kernel log or readings of GPUs.
func Unread(configs map[string]Config, t schemas.Topology) (servers []string) {
	blind := map[string]int{}
	for _, b := range BlindSpots(configs, t) {
		if b.Partly || !slices.Contains(inside, b.Sign) {
			continue
		}
		for _, s := range b.Servers {
			if blind[s]++; blind[s] == len(inside) {
				servers = append(servers, s)
			}
		}
	}
	slices.Sort(servers)
	return servers
}

// rank puts the wholly blind before the half blind.
func rank(b BlindSpot) int {
	if b.Partly {
		return 1
	}
	return 0
}

// whyBlind names what each collector that could bring a sign lacks.
func whyBlind(configs map[string]Config, s Sign) string {
	var why []string
	for _, name := range Names() {
		c, configured := configs[name]
		if !configured {
			c, _ = Lookup(name)
		}
		e := evidence(c)
		switch able := slices.Contains(e.Signs, s); {
		case !configured && able:
			why = append(why, fmt.Sprintf("collectors.%s is not configured", name))
		case able && e.Attr == "":
			why = append(why, fmt.Sprintf("collectors.%s has nothing to read", name))
		case able && s == SignNetwork:
			why = append(why, fmt.Sprintf("its switches have no attribute %s for collectors.%s", e.Attr, name))
		case able:
			why = append(why, fmt.Sprintf("no attribute %s for collectors.%s", e.Attr, name))
		case configured:
			if d, err := Lookup(name); err == nil && slices.Contains(evidence(d).Signs, s) {
				why = append(why, fmt.Sprintf("collectors.%s is set not to", name))
			}
		}
	}
	return strings.Join(why, "; ")
}

// switches maps each server to the switches that it or its parts are linked to.
func switches(t schemas.Topology) map[string][]string {
	byID := make(map[string]schemas.Resource, len(t.Resources))
	for _, r := range t.Resources {
		byID[r.ID] = r
	}
	device := func(id string) (string, string) {
		for range 16 { // parents deeper than that are no parts of a device
			r, ok := byID[id]
			if !ok || r.Kind == schemas.KindServer || r.Kind == schemas.KindSwitch {
				return r.ID, r.Kind
			}
			id = r.Parent
		}
		return "", ""
	}
	out := map[string][]string{}
	for _, l := range t.Links {
		if l.Kind != schemas.LinkNetwork {
			continue
		}
		a, aKind := device(l.From)
		b, bKind := device(l.To)
		if aKind == schemas.KindSwitch {
			a, aKind, b, bKind = b, bKind, a, aKind
		}
		if aKind == schemas.KindServer && bKind == schemas.KindSwitch && !slices.Contains(out[a], b) {
			out[a] = append(out[a], b)
		}
	}
	return out
}

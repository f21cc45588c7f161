// Package enrol makes of what node agents say of their machines proposals for the
// inventory: each difference between the two is an addition, a change or a conflict, and
// a person, or the word of one that came before, accepts or declines all of them.
package enrol

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"auspex/internal/cmdb"
	"auspex/schemas"
)

// Source is as whom accepted proposals are imported.
const Source = cmdb.SourceAgent

// Verbs of differences.
const (
	Added    = "added"    // the inventory does not have it
	Changed  = "changed"  // it does not say that of it
	Conflict = "conflict" // it says otherwise
)

// States of proposals.
const (
	Open     = "open"
	Accepted = "accepted"
	Declined = "declined"
)

// Errors of proposals.
var (
	// ErrDescription is wrapped, with a sentence, by a description that is not taken.
	ErrDescription = errors.New("its description is refused")
	ErrNone        = errors.New("there is no such proposal")
	ErrDecided     = errors.New("the proposal was decided, or replaced by a newer one")
)

// Difference is one thing in which an agent and the inventory differ.
type Difference struct {
	Verb      string `json:"verb"`
	Resource  string `json:"resource"`
	Kind      string `json:"kind"`
	Attr      string `json:"attr,omitempty"`      // "" is the resource itself
	Inventory string `json:"inventory,omitempty"` // what the inventory says
	Agent     string `json:"agent,omitempty"`     // what the agent says
	Why       string `json:"why,omitempty"`       // of a conflict, a sentence
	Reason    string `json:"reason,omitempty"`    // and its id, for other languages
	// Others are the resources of the inventory that the conflict is with.
	Others []string `json:"others,omitempty"`
}

// Reasons of conflicts.
const (
	ReasonHostName  = "host_name"  // nothing but its host name says which server it is
	ReasonKind      = "kind"       // the inventory has something else under that name
	ReasonDiffers   = "differs"    // another identity
	ReasonElsewhere = "elsewhere"  // the identity is that of Others
	ReasonTwice     = "told_twice" // the agent tells it of several
	ReasonMoved     = "cable"      // the cable is elsewhere
	ReasonTaken     = "port_taken" // the port has the cable of Others
)

// Proposal is what an agent would change of the inventory.
type Proposal struct {
	ID          string       `json:"id"`
	Server      string       `json:"server"`
	Known       bool         `json:"known"`             // the inventory has the server
	Machine     string       `json:"machine,omitempty"` // key of a machine that dials in
	Token       string       `json:"token,omitempty"`   // with which it joined
	Hostname    string       `json:"hostname,omitempty"`
	Address     string       `json:"address,omitempty"` // where it was read
	Rack        string       `json:"rack,omitempty"`    // where a person put the server
	Digest      string       `json:"digest"`
	Conflicts   int          `json:"conflicts"`
	Differences []Difference `json:"differences"`
	// Fragment is what accepting it adds to what the agents have brought.
	Fragment schemas.Topology `json:"fragment"`

	State     string    `json:"state"`
	Time      time.Time `json:"time"`
	Decided   time.Time `json:"decided,omitzero"`
	DecidedBy string    `json:"decided_by,omitempty"`
	Why       string    `json:"why,omitempty"`
}

// subject is whom it is about: there is one open proposal of each.
func (p *Proposal) subject() string {
	if !p.Known && p.Machine != "" {
		return p.Machine
	}
	return p.Server
}

// seal gives a proposal its id, which follows from what it says.
func (p *Proposal) seal() {
	p.Conflicts = 0
	for _, d := range p.Differences {
		if d.Verb == Conflict {
			p.Conflicts++
		}
	}
	said, _ := json.Marshal([]any{p.Server, p.Machine, p.Differences, p.Fragment}) // strings alone: it cannot fail
	p.ID = "pr-" + schemas.EventID("enrol", "", string(said))[:12]
}

// Neighbor is what an interface hears of the other end of its cable.
type Neighbor struct{ Interface, System, Port, PortDescription string }

// Part is a part of a machine as its agent tells of it; what it does not tell is empty.
type Part struct{ Name, Serial, UUID, PCI, MAC, Model string }

// Description is what an agent says of its machine.
type Description struct {
	Digest, Boot, Version                string
	Product, Serial, UUID, Hostname      string
	Architecture, BootMode               string // x86_64 or aarch64; uefi or bios
	GPUs, NVSwitches, NICs, Disks, DIMMs []Part
	Neighbors                            []Neighbor
}

// kinds lists the parts of a description by their kind in the inventory.
func (d *Description) kinds() []struct {
	kind  string
	parts []Part
} {
	return []struct {
		kind  string
		parts []Part
	}{
		{schemas.KindGPU, d.GPUs},
		{schemas.KindNVSwitch, d.NVSwitches},
		{schemas.KindNIC, d.NICs},
		{schemas.KindDisk, d.Disks},
		{schemas.KindDIMM, d.DIMMs},
	}
}

// RackError is a rack in which a server cannot be put, a sentence.
type RackError string

// Error implements error.
func (e RackError) Error() string { return string(e) }

// put puts the server of a proposal into a rack of the inventory.
func (p *Proposal) put(snap *cmdb.Snapshot, rack string) error {
	r, there := snap.Resource(rack)
	if !there {
		near := ""
		if names := snap.Nearest(rack, 1); len(names) > 0 {
			near = fmt.Sprintf("; did you mean %s?", names[0])
		}
		return RackError(fmt.Sprintf("the inventory has no rack %.80q%s", rack, near))
	}
	if r.Kind != schemas.KindRack {
		return RackError(fmt.Sprintf("%s of the inventory is no rack, it is a %s", rack, r.Kind))
	}
	if s, known := snap.Resource(p.Server); known && s.Parent != "" && s.Parent != rack {
		return RackError(fmt.Sprintf("%s stands in %s already; the file that says so can move it", p.Server, s.Parent))
	}
	at := slices.IndexFunc(p.Fragment.Resources, func(r schemas.Resource) bool { return r.ID == p.Server })
	if at < 0 {
		at = len(p.Fragment.Resources)
		p.Fragment.Resources = append(p.Fragment.Resources, schemas.Resource{ID: p.Server, Kind: schemas.KindServer})
	}
	p.Fragment.Resources[at].Parent, p.Rack = rack, rack
	return nil
}

// twice returns the values that more than one part has.
func twice(parts []Part, of func(*Part) string) map[string]bool {
	seen, out := map[string]bool{}, map[string]bool{}
	for i := range parts {
		if v := normal(of(&parts[i])); v != "" {
			out[v] = seen[v]
			seen[v] = true
		}
	}
	return out
}

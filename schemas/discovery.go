package schemas

import "time"

// States of a sweep.
const (
	DiscoveryWaiting   = "waiting" // for a role collect that may reach its addresses
	DiscoveryRunning   = "running"
	DiscoveryCompleted = "completed"
	DiscoveryFailed    = "failed"
	DiscoveryCancelled = "cancelled"
)

// Discovery is a sweep of addresses for board controllers, and how far it is.
type Discovery struct {
	ID           string   `json:"id"`            // UUID
	Ranges       []string `json:"ranges"`        // addresses, or prefixes such as 10.0.0.0/28
	RedfishPorts []int    `json:"redfish_ports"` // tried in order on each address
	IPMIPorts    []int    `json:"ipmi_ports"`    // where nothing speaks Redfish
	Credential   string   `json:"credential"`    // the name of a secret; "" asks for nothing that needs one
	Status       string   `json:"status"`        // one of the states
	Reason       string   `json:"status_reason,omitempty"`
	// Sentence is the reason in pieces, where it is in words of ours; of answers alone.
	Sentence   *Sentence `json:"status_sentence,omitempty"`
	Addresses  int       `json:"addresses"`  // that it has
	Asked      int       `json:"asked"`      // of them, all up to the first that is not
	Found      int       `json:"found"`      // controllers that were read
	Refused    int       `json:"refused"`    // controllers that refused the credential
	Unreadable int       `json:"unreadable"` // that answer, and of which nothing could be read
	Silent     int       `json:"silent"`     // addresses at which no controller answers
	CreatedBy  string    `json:"created_by"`

	CreatedAt   time.Time `json:"created_at"`
	StartedAt   time.Time `json:"started_at,omitzero"`
	CompletedAt time.Time `json:"completed_at,omitzero"`
}

// Results of asking a controller.
const (
	FindFound      = "found"
	FindRefused    = "refused"
	FindUnreadable = "unreadable"
)

// FindKnown is of a find that is a server of the inventory; one that is not is
// [ServerDiscovered].
const FindKnown = "known"

// Find is a board controller that has answered, and the server behind it.
type Find struct {
	ID          string    `json:"id"` // UUID
	DiscoveryID string    `json:"discovery_id"`
	Number      int       `json:"-"`        // of its address in the sweep, from 0
	Address     string    `json:"address"`  // host:port, or the object
	Protocol    string    `json:"protocol"` // redfish or ipmi; tinkerbell of an object in its API
	Result      string    `json:"result"`
	Message     string    `json:"message,omitempty"` // why it could not be read, a sentence
	SeenAt      time.Time `json:"seen_at"`
	Hardware

	// What follows is as the inventory is now.

	Status    string         `json:"status,omitempty"` // discovered or known; "" is not read
	Server    string         `json:"server,omitempty"` // of the inventory, that it is
	MatchedBy string         `json:"matched_by,omitempty"`
	Proposal  *FoundProposal `json:"proposal,omitempty"` // of what is not known
}

// Hardware is what a controller says of its machine; what it does not say is empty.
type Hardware struct {
	Manufacturer string      `json:"manufacturer,omitempty"`
	Model        string      `json:"model,omitempty"`
	SerialNumber string      `json:"serial_number,omitempty"`
	UUID         string      `json:"uuid,omitempty"`
	Hostname     string      `json:"hostname,omitempty"`
	Architecture string      `json:"architecture,omitempty"` // x86_64 or aarch64
	BootMode     string      `json:"boot_mode,omitempty"`    // uefi or bios
	GPUs         []FoundPart `json:"gpus"`
	NICs         []FoundPart `json:"nics"`
}

// FoundPart is a GPU or an interface as a controller tells of it.
type FoundPart struct {
	Name         string `json:"name"` // as the controller calls it
	Model        string `json:"model,omitempty"`
	SerialNumber string `json:"serial_number,omitempty"`
	UUID         string `json:"uuid,omitempty"`
	MAC          string `json:"mac,omitempty"`
}

// FoundProposal is as what a machine could be registered. Nothing of it is invented: a name is the
// one that the machine tells, and a place is that of servers like it.
type FoundProposal struct {
	Name       string       `json:"name,omitempty"` // "" where it tells none that is free
	RedfishURL string       `json:"redfish_url,omitempty"`
	IPMIIP     string       `json:"ipmi_ip,omitempty"`
	Credential string       `json:"credential,omitempty"`
	Places     []FoundPlace `json:"places"` // the likeliest first
}

// FoundPlace is a hint at where a machine stands.
type FoundPlace struct {
	Parent     string  `json:"parent"`     // a resource of the inventory
	Confidence float64 `json:"confidence"` // from 0 to 1
	Reason     string  `json:"reason"`
}

// Kinds of conflicts.
const (
	ConflictTwoSources  = "two_sources"  // two sources say different things of one resource
	ConflictCable       = "cable"        // LLDP sees another cable than the inventory
	ConflictSerialTwice = "serial_twice" // one serial number of two things
)

// States of a conflict, and decisions.
const (
	ConflictOpen      = "open"
	ConflictDecided   = "decided"
	ConflictSettled   = "settled" // both sides say the same again, or it is gone; nobody has decided
	DecisionLeft      = "left"
	DecisionRight     = "right"
	DecisionDismissed = "dismissed"
)

// Conflict is two things said of one resource that cannot both be so.
type Conflict struct {
	ID        string       `json:"id"` // UUID, which follows from what it says
	Kind      string       `json:"kind"`
	Resource  string       `json:"resource"` // its name in the inventory; of what is not there, the address of its controller
	Field     string       `json:"field"`    // an attribute, or kind or parent
	Left      ConflictSide `json:"left"`     // what was said first
	Right     ConflictSide `json:"right"`
	Status    string       `json:"status"`
	Decision  string       `json:"decision,omitempty"`
	Comment   string       `json:"comment,omitempty"`
	DecidedBy string       `json:"decided_by,omitempty"`
	DecidedAt time.Time    `json:"decided_at,omitzero"` // or settled
	FirstSeen time.Time    `json:"first_seen"`
	LastSeen  time.Time    `json:"last_seen"`
}

// ConflictSide is one of the two.
type ConflictSide struct {
	Source   string    `json:"source"` // of the inventory, or redfish, ipmi, lldp or tinkerbell
	Value    string    `json:"value"`
	Owner    string    `json:"owner,omitempty"`    // who has said so there, such as a field manager of Kubernetes
	Resource string    `json:"resource,omitempty"` // of which it says so, where that is another; or where it was read
	Time     time.Time `json:"time,omitzero"`      // when it was said; absent is not known
}

// Sources of sides of conflicts that are no source of the inventory.
const (
	SideInventory = "inventory" // what the inventory says, whoever brought it
	SideLLDP      = "lldp"
	// SideTinkerbell is what others have in the API of Tinkerbell; its resource is the object there.
	SideTinkerbell = "tinkerbell"
)

// Neighbor is what a port sees at the other end of its cable (LLDP, IEEE 802.1AB, clause 8.5); what
// it is not told is empty. A port may have several.
type Neighbor struct {
	Port            string    `json:"port"` // as its device calls it
	Chassis         string    `json:"chassis,omitempty"`
	System          string    `json:"system,omitempty"`
	PortID          string    `json:"port_id,omitempty"`
	PortDescription string    `json:"port_description,omitempty"`
	Seen            time.Time `json:"seen"`
}

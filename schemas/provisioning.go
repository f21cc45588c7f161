package schemas

import "time"

// States of a template. A retired one is kept for what refers to it, and takes no further version.
const (
	TemplateActive  = "active"
	TemplateRetired = "retired"
)

// Architectures as Tinkerbell spells them.
const (
	ArchX86 = "x86_64"
	ArchARM = "aarch64"
)

// Ways in which firmware starts a system.
const (
	BootUEFI = "uefi"
	BootBIOS = "bios"
)

// Template is how a system is installed, as its latest version has it.
type Template struct {
	ID        string    `json:"id"`   // UUID
	Name      string    `json:"name"` // unique
	Status    string    `json:"status"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
	TemplateVersion

	Revision int64 `json:"-"`
}

// TemplateVersion is one version of a template, which never changes.
type TemplateVersion struct {
	Version int64 `json:"version"` // from 1, by one with each change
	TemplateBody
	VersionBy string    `json:"version_by"`
	VersionAt time.Time `json:"version_at"`
}

// TemplateBody is what a version holds.
type TemplateBody struct {
	Description   string   `json:"description"`
	OSFamily      string   `json:"os_family"`     // talos, flatcar, ubuntu or other
	Architectures []string `json:"architectures"` // x86_64, aarch64
	// Text is the template of a workflow of Tinkerbell: YAML with placeholders of text/template
	// (tink v0.12.2, api/v1alpha1, Template.spec.data).
	Text string `json:"text,omitempty"`
	// Parameters is a JSON Schema (2020-12) of an object: what a caller gives.
	Parameters map[string]any `json:"parameters,omitempty"`
}

// Facts of hardware that an installation goes by.
const (
	FactArchitecture  = "architecture"
	FactBootMode      = "boot_mode"
	FactBootMAC       = "boot_mac"
	FactBootDisk      = "boot_disk"
	FactAllowPXE      = "allow_pxe"
	FactAllowWorkflow = "allow_workflow"
	FactBMCAddress    = "bmc_address"
	FactBMCKind       = "bmc_kind"
	FactBMCCredential = "bmc_credential"
)

// Where a fact comes from.
const (
	FromInventory = "inventory"
	FromOverride  = "override"
	FromDefault   = "default"
	FromNowhere   = "nowhere"
)

// HardwareRecord is a server as an installer sees it: what the inventory knows, and what people say
// otherwise. Its parts are named after those of Tinkerbell's Hardware (v1alpha1).
type HardwareRecord struct {
	ID          string              `json:"id"`   // of the server
	Name        string              `json:"name"` // of the server
	Model       string              `json:"model"`
	Installable bool                `json:"installable"` // nothing lacks
	Lacks       []string            `json:"lacks"`       // facts
	Facts       []HardwareFact      `json:"facts"`
	Conflicts   []HardwareConflict  `json:"conflicts"`
	Interfaces  []HardwareInterface `json:"interfaces"` // the one that boots first
	Disks       []HardwareDisk      `json:"disks"`      // the one that is installed on first
	Metadata    HardwareMetadata    `json:"metadata"`
	BMC         HardwareBMC         `json:"bmc_ref"`
	Overrides   HardwareOverrides   `json:"overrides"`
	Version     int64               `json:"version"` // of the overrides; 0 is none yet
	ChangedBy   string              `json:"changed_by,omitempty"`
	ChangedAt   time.Time           `json:"changed_at,omitzero"`
}

// HardwareFact is one fact, with the side that wins and why.
type HardwareFact struct {
	Fact      string `json:"fact"`
	Value     string `json:"value"`
	From      string `json:"from"`
	Inventory string `json:"inventory,omitempty"` // what it says, where an override wins
	Why       string `json:"why"`
}

// HardwareConflict is an override that the inventory contradicts.
type HardwareConflict struct {
	Fact      string `json:"fact"`
	Inventory string `json:"inventory"` // "" says nothing of it
	Override  string `json:"override"`
	Detail    string `json:"detail"`
}

// HardwareInterface is a network interface with an EUI-48 address.
type HardwareInterface struct {
	Resource string `json:"resource,omitempty"` // of the inventory; "" is of an override alone
	Boot     bool   `json:"boot"`
	// Addresses are the IP addresses that its system has there, as the inventory says.
	Addresses []string        `json:"addresses,omitempty"`
	DHCP      HardwareDHCP    `json:"dhcp"`
	Netboot   HardwareNetboot `json:"netboot"`
}

// HardwareDHCP is what an interface is known by, and told, when it asks for an address.
type HardwareDHCP struct {
	MAC       string `json:"mac"`
	Hostname  string `json:"hostname"`
	Arch      string `json:"arch,omitempty"`
	UEFI      bool   `json:"uefi"`
	IfaceName string `json:"iface_name,omitempty"` // as its system calls it
}

// HardwareNetboot is what an interface may be started for.
type HardwareNetboot struct {
	AllowPXE      bool `json:"allow_pxe"`
	AllowWorkflow bool `json:"allow_workflow"`
}

// HardwareDisk is a disk.
type HardwareDisk struct {
	Device   string `json:"device"`             // as /dev/nvme0n1; "" is not known
	Resource string `json:"resource,omitempty"` // of the inventory; "" is of an override alone
	Model    string `json:"model,omitempty"`
	Serial   string `json:"serial,omitempty"`
	Boot     bool   `json:"boot"`
}

// HardwareMetadata is what a server is told of itself.
type HardwareMetadata struct {
	Hostname string            `json:"hostname"`
	Site     string            `json:"site"`
	Rack     string            `json:"rack"`
	Pool     string            `json:"pool"`
	Labels   map[string]string `json:"labels"`
}

// HardwareBMC is how a board controller is reached.
type HardwareBMC struct {
	Address    string `json:"address,omitempty"`
	Kind       string `json:"kind,omitempty"`       // redfish or ipmi
	Credential string `json:"credential,omitempty"` // the name of a secret, never the secret
}

// HardwareOverrides are what people say of a server; what is empty is left to the inventory.
type HardwareOverrides struct {
	Architecture    string       `json:"architecture,omitempty"`
	BootMode        string       `json:"boot_mode,omitempty"`
	BootMAC         string       `json:"boot_mac,omitempty"`
	BootDisk        string       `json:"boot_disk,omitempty"` // a device
	AllowPXE        *bool        `json:"allow_pxe,omitempty"`
	AllowWorkflow   *bool        `json:"allow_workflow,omitempty"`
	UserData        string       `json:"user_data,omitempty"`
	BMC             *HardwareBMC `json:"bmc_ref,omitempty"`
	Template        string       `json:"template,omitempty"`         // what it is installed with, by name
	TemplateVersion int64        `json:"template_version,omitempty"` // 0 is the latest
}

// RenderedTemplate is a template with everything filled in, as people may see it.
type RenderedTemplate struct {
	TemplateID string         `json:"template_id"`
	Template   string         `json:"template"`
	Version    int64          `json:"version"`
	ServerID   string         `json:"server_id"`
	Server     string         `json:"server"`
	Text       string         `json:"text"`
	Steps      []TemplateStep `json:"steps"`
	Secrets    []string       `json:"secrets"` // parameters that are masked
}

// TemplateStep is an action of a rendered template.
type TemplateStep struct {
	Task    string `json:"task"`
	Name    string `json:"name"`
	Image   string `json:"image"`
	Timeout int64  `json:"timeout_seconds"`
}

// Fact is the value of a fact; "" is not known.
func (r *HardwareRecord) Fact(name string) string {
	for i := range r.Facts {
		if r.Facts[i].Fact == name {
			return r.Facts[i].Value
		}
	}
	return ""
}

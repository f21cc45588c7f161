package schemas

import "time"

// Kinds of resources (formats, section 1).
const (
	KindSite       = "site"
	KindRow        = "row"
	KindRack       = "rack"
	KindPDU        = "pdu"
	KindCRAC       = "crac"
	KindSwitch     = "switch"
	KindPort       = "port"
	KindServer     = "server"
	KindBMC        = "bmc"
	KindCPU        = "cpu"
	KindDIMM       = "dimm"
	KindDisk       = "disk"
	KindPSU        = "psu"
	KindFan        = "fan"
	KindNIC        = "nic"
	KindNVSwitch   = "nvswitch"
	KindGPU        = "gpu"
	KindPCIeSwitch = "pcie_switch"
)

// Kinds returns the kinds of resources that the contract names.
func Kinds() []string {
	return []string{
		KindSite, KindRow, KindRack, KindPDU, KindCRAC, KindSwitch, KindPort, KindServer, KindBMC, KindCPU, KindDIMM, KindDisk, KindPSU,
		KindFan, KindNIC, KindNVSwitch, KindGPU, KindPCIeSwitch,
	}
}

// Kinds of links. Powers and cools point from the supplier to the supplied;
// the others have no direction.
const (
	LinkPowers  = "powers"
	LinkCools   = "cools"
	LinkNetwork = "network"
	LinkNVLink  = "nvlink"
	LinkPCIe    = "pcie"
)

// Keys of Resource.Attrs that collectors use as targets, and that identify a part.
const (
	AttrRedfishURL   = "redfish_url"
	AttrIPMIIP       = "ipmi_ip" // host or host:port
	AttrManagementIP = "management_ip"
	AttrGNMIAddress  = "gnmi_address"
	AttrExporterURL  = "exporter_url"
	AttrKmsgPath     = "kmsg_path"
	AttrAgentAddress = "agent_address" // host:port of the node agent, or AgentDialsIn
	AttrSyslogFrom   = "syslog_from"   // of a server that sends its kernel log: the addresses and names that it sends as, beside those of the inventory, separated by commas
	AttrCredential   = "credential"    // the name of a secret, never the secret
	AttrRufioMachine = "rufio_machine" // of a server whose board controller is reached through Rufio alone: its Machine
	AttrSerial       = "serial"
	AttrUUID         = "uuid"
	AttrPCI          = "pci"
	AttrMAC          = "mac"
	AttrModel        = "model"
	// AttrAliases are further names of a part on its device, separated by commas, such as a
	// board controller's `GPU_SXM_1` or the system's `ens1f0np0`.
	AttrAliases = "aliases"
	AttrFeed    = "feed"
	// AttrOutlet is the outlet that a power supply hangs on, by its id or its path in Redfish at the
	// PDU that powers it.
	AttrOutlet = "outlet"
	// AttrRating is what a PDU carries for as long as one likes, in watts; a cap_power is worked out from it.
	AttrRating = "rating_watts"
	// AttrOutletURL is the Redfish address of a PDU whose outlets control may switch; collectors of board
	// controllers leave it alone.
	AttrOutletURL = "outlet_url"
	AttrRail      = "rail"
	AttrTier      = "tier"
	// What a server is installed by (internal/provision).
	AttrArchitecture = "architecture" // of a server: x86_64 or aarch64
	AttrBootMode     = "boot_mode"    // of a server: uefi or bios
	AttrBoot         = "boot"         // "true" of the interface that it boots by, and of the disk that its system is on
	AttrIP           = "ip"           // of a network interface: the addresses that its system has there, separated by commas
	AttrDevice       = "device"       // of a disk, as its system calls it: /dev/nvme0n1
	// What a server or GPU is given to people by (internal/store/estate).
	AttrStatus        = "status" // of a new server: a state that its life may begin in
	AttrPool          = "pool"   // of a new server
	AttrMemoryGB      = "memory_gb"
	AttrDriverVersion = "driver_version"
	AttrCUDAVersion   = "cuda_version"
)

// AgentDialsIn is the AttrAgentAddress of a server whose node agent is not reached, but dials in.
const AgentDialsIn = "tunnel"

// Topology is the inventory as a file: what `auspex cmdb export` writes and
// `auspex cmdb import` reads.
type Topology struct {
	Version   int        `json:"version"`
	Resources []Resource `json:"resources"`
	Links     []Link     `json:"links"`
	Workloads []Workload `json:"workloads,omitempty"`
}

// Resource is a thing that can fail: a rack, a switch, a server, a part.
type Resource struct {
	ID     string `json:"id"`
	Kind   string `json:"kind"`
	Parent string `json:"parent,omitempty"` // "is part of"
	Attrs  Attrs  `json:"attrs,omitzero"`
}

// Link joins two resources by power, cooling or data.
type Link struct {
	From string `json:"from"`
	To   string `json:"to"`
	Kind string `json:"kind"`
}

// Workload is a job, a pod or an allocation, where it ran and since when. A
// zero End means that it still runs.
type Workload struct {
	ID        string            `json:"id"`
	Resources []string          `json:"resources"`
	Start     time.Time         `json:"start,omitzero"`
	End       time.Time         `json:"end,omitzero"`
	Attrs     map[string]string `json:"attrs,omitempty"` // owner, name, partition, account
}

// Package device is the seam of the simulated fleet: what the protocol servers
// (redfish, ipmi, gnmi) ask of the physical model. The model answers from one
// state, so that the numbers of all protocols agree.
package device

import (
	"errors"
	"time"
)

// ErrUnsupported is returned for a request that the device does not know.
var ErrUnsupported = errors.New("not supported by this device")

// PowerState of a server, as Redfish names it (DSP2046, Resource.PowerState).
type PowerState string

// The power states.
const (
	PowerOn          PowerState = "On"
	PowerOff         PowerState = "Off"
	PowerPoweringOn  PowerState = "PoweringOn"
	PowerPoweringOff PowerState = "PoweringOff"
)

// ResetType as Redfish names it (DSP2046, Resource.ResetType); IPMI chassis
// control maps to the same.
type ResetType string

// The resets a BMC knows.
const (
	ResetOn               ResetType = "On"
	ResetForceOff         ResetType = "ForceOff"
	ResetGracefulShutdown ResetType = "GracefulShutdown"
	ResetGracefulRestart  ResetType = "GracefulRestart"
	ResetForceRestart     ResetType = "ForceRestart"
	ResetPowerCycle       ResetType = "PowerCycle"
	ResetNmi              ResetType = "Nmi"
)

// Boot is the boot source override (DSP2046, ComputerSystem.Boot).
type Boot struct {
	Enabled string // Disabled, Once or Continuous
	Target  string // None, Pxe, Hdd, BiosSetup, ...
	Mode    string // UEFI or Legacy
}

// Info identifies a device.
type Info struct {
	Name         string // the inventory's id
	Manufacturer string
	Model        string
	Serial       string
	UUID         string
	Firmware     string
	MACs         []string
	Users        []string // who may log in
}

// SensorKind says what a sensor measures.
type SensorKind string

// The kinds of sensors and their units.
const (
	SensorTemperature SensorKind = "temperature" // degrees Celsius
	SensorFan         SensorKind = "fan"         // revolutions per minute
	SensorPower       SensorKind = "power"       // watts
	SensorVoltage     SensorKind = "voltage"     // volts
	SensorCurrent     SensorKind = "current"     // amperes
	SensorDuty        SensorKind = "duty"        // percent
	SensorPSU         SensorKind = "psu"         // discrete, IPMI type 08h; Value holds the event bits
)

// Sensor is one reading of a board controller.
type Sensor struct {
	Number   byte   // IPMI sensor number
	Name     string // such as "FAN3" or "PSU0 Input"
	Part     string // the part on the device, such as "fan3", "psu0", "gpu2"; "" is the server
	Kind     SensorKind
	Value    float64
	Present  bool // false: not readable now
	MinRange float64
	MaxRange float64
	// Thresholds; NaN means none. Lower and upper, non-critical, critical and
	// non-recoverable.
	LNC, LC, LNR, UNC, UC, UNR float64
}

// LogRecord is an entry of the BMC's event log, as both protocols show it.
type LogRecord struct {
	ID   uint16 // SEL record id; first is 1
	Time time.Time
	// IPMI 2.0 table 32-1: sensor type, number, event type with direction in bit 7
	// (1 is deassertion), and the three data bytes.
	SensorType   byte
	SensorNumber byte
	EventType    byte
	Data         [3]byte
	// Redfish LogEntry.
	MessageID string // such as "PowerSupply.1.0.InputLost"
	Message   string
	Args      []string
	Severity  string // OK, Warning, Critical
	Part      string // as in Sensor
}

// GPU is what a BMC knows of an accelerator out of band.
type GPU struct {
	Index       int
	Name        string // such as "gpu3"
	Model       string
	Serial      string
	UUID        string
	PCI         string
	Present     bool // false: fallen off the bus or without power
	Temperature float64
	MemoryTemp  float64
	PowerWatts  float64
	ClockMHz    float64
}

// Fault says how a device's own answers go wrong.
type Fault struct {
	Mute       bool          // never answers
	Away       bool          // nobody listens: it starts anew
	Delay      time.Duration // before each answer
	Garble     bool          // broken JSON, wrong checksums
	IgnoreSets bool          // accepts a reset or a boot override (204) and does nothing
	Status     int           // when not 0, every HTTP answer has this status
}

// BMC is a server's board controller. Methods may be called at the same time.
type BMC interface {
	Info() Info
	// Password returns a user's password; IPMI's RAKP needs it in the clear.
	Password(user string) (string, bool)
	Power() PowerState
	// Reset accepts a reset; it takes effect after the model's delay and is noted
	// in the ledger with the id of the request, if the caller gave one, and the
	// protocol: "redfish" or "ipmi".
	Reset(t ResetType, via, requestID string) error
	// LastReset is when the host last got power or was reset, by the BMC's clock.
	LastReset() time.Time
	Boot() Boot
	SetBoot(Boot) error
	Sensors() []Sensor
	GPUs() []GPU
	// Log returns the records in order, and when the log was last erased.
	Log() (records []LogRecord, erased time.Time)
	ClearLog()
	// Now is the BMC's clock, which may be wrong.
	Now() time.Time
	SetClock(time.Time)
	Fault() Fault
}

// Port is an interface of a switch, in the terms of openconfig-interfaces and
// openconfig-platform-transceiver.
type Port struct {
	Name        string // such as "Ethernet1"
	Index       int
	AdminUp     bool
	OperUp      bool
	LastChange  time.Time
	SpeedBPS    uint64
	InOctets    uint64
	OutOctets   uint64
	InPkts      uint64
	OutPkts     uint64
	InErrors    uint64
	OutErrors   uint64
	InFCSErrors uint64
	InDiscards  uint64
	OutDiscards uint64
	Carrier     uint64 // carrier transitions
	RxPowerDBm  float64
	TxPowerDBm  float64
	LaserBiasMA float64
	ModuleTemp  float64
	PreFECBER   float64
	Optic       bool // false: a copper cable, no transceiver values
	OpticSerial string
	// The far end, as LLDP has it from there (IEEE 802.1AB, clause 8.5): the name of its system, a MAC
	// address of its chassis and its port, by name or MAC address. "" is not told.
	Neighbor, NeighborChassis, NeighborPort string
}

// Component is a part of a switch's platform (openconfig-platform).
type Component struct {
	Name        string // such as "PSU1", "FAN2", "CPU"
	Type        string // openconfig identity: POWER_SUPPLY, FAN, SENSOR, CPU
	Oper        string // ACTIVE, INACTIVE, DISABLED
	Temperature float64
	FanRPM      float64
	PowerWatts  float64
	InputVolts  float64
}

// Session is a BGP session of a switch (openconfig-bgp, neighbor state).
type Session struct {
	Neighbor    string // address
	Description string // who it is
	Local, Peer uint32 // AS numbers
	State       string // IDLE, ACTIVE or ESTABLISHED
	Since       time.Time
	Established uint64 // transitions
	Port        string // over which it goes
	Address     string // of that port
	PrefixBits  int
}

// Switch is a network switch. Methods may be called at the same time.
type Switch interface {
	Info() Info
	Password(user string) (string, bool)
	BootTime() time.Time
	Ports() []Port
	Components() []Component
	Sessions() []Session
	// Watch signals that a state, not a counter, has changed, until cancel.
	Watch() (changed <-chan struct{}, cancel func())
	Now() time.Time
	Fault() Fault
}

// Board is what a controller does beside power, sensors and logs: the BIOS of its system, firmware,
// and its own restart. Methods may be called at the same time.
type Board interface {
	// BIOS returns the attributes in force, and those that the next start of the system puts in
	// force; applied is when one last did.
	BIOS() (attrs, pending map[string]any, applied time.Time)
	// SetBIOS has attributes put in force at the next start.
	SetBIOS(attrs map[string]any)
	Firmware() []Firmware
	// Update begins to install an image; the id is that of a task.
	Update(image []byte, targets []string, via, requestID string) (task string, err error)
	// Tasks are those that the controller has not forgotten.
	Tasks() []Task
	// Restart starts the controller anew, and leaves the system alone.
	Restart(via, requestID string)
	// Started is when the controller started, by its clock.
	Started() time.Time
}

// PowerLimiter is what a controller does that can limit what its server draws. Methods may be called at the same time.
type PowerLimiter interface {
	// PowerLimit returns the limit in watts that is set, and whether it is in force; ok is false for a board without.
	PowerLimit() (watts float64, active, ok bool)
	// SetPowerLimit sets it, from [LeastPowerLimit] on.
	SetPowerLimit(watts float64, active bool, via, requestID string) error
}

// LeastPowerLimit is the lowest limit that a board takes, in watts.
const LeastPowerLimit = 1500

// Firmware is a part that has some.
type Firmware struct {
	ID, Name, Version string
	Updateable        bool
}

// Task is an update under way, or one that has ended.
type Task struct {
	ID, State, Message string // State as Redfish names it: Running, Completed, Exception
	Percent            int
	Began, Ended       time.Time
}

// The attributes of a simulated BIOS (DSP0270, AttributeRegistry).

// Attribute describes one.
type Attribute struct {
	Name     string
	Kind     string // Enumeration, Integer, Boolean or String
	Values   []string
	Low, Top int
	ReadOnly bool
	Default  any
}

// Attributes are those of every simulated server.
var Attributes = []Attribute{
	{Name: "BootMode", Kind: "Enumeration", Values: []string{"Uefi", "Legacy"}, Default: "Uefi"},
	{Name: "PowerProfile", Kind: "Enumeration", Values: []string{"Performance", "Balanced", "Efficiency"}, Default: "Balanced"},
	{Name: "SMT", Kind: "Boolean", Default: true},
	{Name: "NUMANodesPerSocket", Kind: "Integer", Low: 1, Top: 4, Default: 1.0},
	{Name: "AssetTag", Kind: "String", Top: 32, Default: ""},
	{Name: "SystemBIOSDate", Kind: "String", Top: 32, ReadOnly: true, Default: "02/21/2026"},
	// A part that ignores what it is told, as some boards have.
	{Name: "LockedBySetup", Kind: "Enumeration", Values: []string{"Enabled", "Disabled"}, Default: "Enabled"},
}

// Outlet is one of a PDU.
type Outlet struct {
	ID, Feeds string // what hangs on it
	On        bool
}

// PDU is a power distribution unit with outlets that can be switched. Methods may be called at the same time.
type PDU interface {
	Info() Info
	Password(user string) (string, bool)
	Outlets() []Outlet
	// Switch turns an outlet on or off, or off and on again after [CycleDelay]: On, Off or PowerCycle.
	Switch(id, state, requestID string) error
	Fault() Fault
}

// CycleDelay is how long an outlet that is cycled is without power.
const CycleDelay = 5 * time.Second

// Package dcgm reads what NVIDIA's Data Center GPU Manager (DCGM) knows of the GPUs of a server beyond NVML: health
// watches, violations of policies, profiling fields, and diagnostics on request. It speaks to the hostengine that the server
// runs, through NVIDIA/go-dcgm, which needs cgo and the build tag dcgm; without them the package says so and reads nothing.
//
// The library is called in a process of its own, a child of the agent that is the same binary with [Verb] as its argument:
// go-dcgm has one connection and one dispatcher of callbacks a process, which cannot be made anew safely after the
// hostengine has gone, and a call of the library that does not return, or a fault in it, would stay with the agent for ever.
// The child is ended and started anew; it says before each call which one it makes.
package dcgm

//go:generate ./layout.sh

import (
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"time"

	"auspex/agent/journal"
	"auspex/internal/decode/gpuwatch"
	"auspex/internal/target"
)

// Config says what is read, and how patiently.
type Config struct {
	Disabled bool   `yaml:"disabled"`
	Library  string `yaml:"library"` // file name or path
	// Address is that of the hostengine: host:port, or the path of its Unix socket. An engine within the agent is not
	// started: it would take the profiling counters from the one that the server runs, and want root.
	Address  string        `yaml:"address"`
	Interval time.Duration `yaml:"interval"`
	Deadline time.Duration `yaml:"deadline"` // of each call
	Policy   Policy        `yaml:"policy"`
	// DiagnoseInUse has diagnostics run on GPUs that a process has open.
	DiagnoseInUse bool `yaml:"diagnose_in_use"`
}

// Policy says what violates a policy of DCGM beside errors, which always do. Who has set a limit in the hostengine before keeps it.
type Policy struct {
	Disabled     bool   `yaml:"disabled"`
	RetiredPages uint32 `yaml:"retired_pages"` // more retired pages of memory than that; 0 is none
	Temperature  uint32 `yaml:"temperature"`   // °C; 0 is none
	Power        uint32 `yaml:"power"`         // watts; 0 is none: boards differ
}

// Default returns the defaults. The address is that of the hostengine's own unit.
func Default() Config {
	return Config{
		Library: "libdcgm.so.4", Address: "localhost:5555", Interval: 10 * time.Second, Deadline: 10 * time.Second,
		Policy: Policy{RetiredPages: 10, Temperature: 100},
	}
}

// Validate names the first value that makes no sense.
func (c *Config) Validate() error {
	if c.Disabled {
		return nil
	}
	_, _, err := net.SplitHostPort(c.Address)
	switch {
	case c.Library == "":
		return errors.New("library must be set")
	case err != nil && !filepath.IsAbs(socket(c.Address)):
		return errors.New("address: want host:port, or the path of a Unix socket")
	case c.Interval < 10*time.Millisecond:
		return errors.New("interval must be at least 10ms")
	case c.Deadline < 10*time.Millisecond:
		return errors.New("deadline must be at least 10ms")
	}
	return nil
}

// socket is an address without the scheme of a Unix socket.
func socket(address string) string { return strings.TrimPrefix(address, "unix://") }

// Journal keeps events; see [journal.Journal].
type Journal interface {
	Append(r target.Record, source string, mark journal.Mark) (uint64, error)
	Mark(source string) journal.Mark
}

// Needs are what a reader works with.
type Needs struct {
	Journal Journal
	Tree    *target.Tree
	Log     *slog.Logger
	State   string // the file that keeps what must outlive a restart
	Boot    string // id of the machine's boot
	// Boards are the GPUs by the number that the agent gives them, which is not DCGM's.
	Boards func() map[uint32]gpuwatch.Board
	// XIDs says whether somebody else tells XIDs: the kernel's log has them with their text.
	XIDs func() bool
	// Users returns who has a GPU open.
	Users func(gpu uint32) []string
}

// Verb is the first argument with which the agent's binary is the process that calls the library; see [Main].
const Verb = "dcgm"

// order is what the child is told: a line of JSON on its standard input. The end of its input ends it.
type order struct {
	Library  string        `json:"library"`
	Address  string        `json:"address"`
	Interval time.Duration `json:"interval"`
	Deadline time.Duration `json:"deadline"`
	Policy   Policy        `json:"policy"`
	Level    int           `json:"level,omitempty"` // of a diagnostic; 0 reads
	UUIDs    []string      `json:"uuids,omitempty"` // of the GPUs that are diagnosed
}

// word is what the child says: a line of JSON on its standard output. One of its fields is set.
type word struct {
	Call      string     `json:"call,omitempty"` // is made now
	End       string     `json:"end,omitempty"`  // why the child ends
	Absent    bool       `json:"absent,omitempty"`
	Boards    []board    `json:"boards,omitempty"`
	Version   string     `json:"version,omitempty"`
	Reading   *reading   `json:"reading,omitempty"`
	Violation *violation `json:"violation,omitempty"`
	Tests     []test     `json:"tests,omitempty"`
}

// board is a GPU that DCGM knows.
type board struct {
	ID   uint   `json:"id"` // DCGM's number
	UUID string `json:"uuid"`
	PCI  string `json:"pci"`
}

// reading is what was read at one time. What a GPU does not tell has no value.
type reading struct {
	Values    []value    `json:"values,omitempty"`
	Incidents []incident `json:"incidents,omitempty"`
	Checked   bool       `json:"checked,omitempty"`  // health was asked, and told
	Failures  int        `json:"failures,omitempty"` // calls that failed
	Dropped   uint64     `json:"dropped,omitempty"`  // violations that came faster than they were taken, so far
	// What cannot be read, and why.
	NoProfiling string `json:"no_profiling,omitempty"`
	NoHealth    string `json:"no_health,omitempty"`
	NoPolicy    string `json:"no_policy,omitempty"`
}

type value struct {
	GPU   uint    `json:"gpu"`
	Field uint16  `json:"field"`
	Value float64 `json:"value"`
}

// incident is one of DCGM's health watches.
type incident struct {
	Group   uint   `json:"group"` // kind of the entity
	Entity  uint   `json:"entity"`
	System  uint   `json:"system"`
	Failed  bool   `json:"failed,omitempty"` // otherwise it is a warning
	Code    uint   `json:"code"`
	Message string `json:"message"`
}

// violation is one of a policy.
type violation struct {
	GPU       uint      `json:"gpu"`
	Condition string    `json:"condition"`
	Time      time.Time `json:"time"`
	Location  string    `json:"location,omitempty"` // of memory
	Value     uint      `json:"value"`
	Other     uint      `json:"other,omitempty"` // pages retired for uncorrected errors; the field of an NVLink's counter
}

// test is what a test of a diagnostic found on an entity.
type test struct {
	Name    string `json:"name"`
	Group   uint   `json:"group"`
	Entity  uint   `json:"entity"`
	Result  string `json:"result"`
	Message string `json:"message,omitempty"`
}

// What the results of tests are between the processes.
const (
	testPassed  = "passed"
	testWarned  = "warned"
	testFailed  = "failed"
	testSkipped = "skipped"
)

// Kinds of entities (dcgm_fields.h, dcgm_field_entity_group_t).
const (
	kindNone   = 0
	kindGPU    = 1
	kindSwitch = 3
	kindLink   = 6
)

// stop is the line that has a diagnostic stopped.
const stop = "stop"

// Conditions of policies, as they are between the processes.
const (
	onDBE     = "dbe"
	onPCIe    = "pcie"
	onRetired = "retired"
	onThermal = "thermal"
	onPower   = "power"
	onNVLink  = "nvlink"
	onXID     = "xid"
)

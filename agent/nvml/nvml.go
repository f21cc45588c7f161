// Package nvml reads the GPUs of a server through NVIDIA's management library (NVML),
// which is loaded at run time: a worker for each GPU reads it, so that one whose driver
// does not answer holds up no other. Readings go to the tree, what befell a GPU to the
// journal. The library needs cgo; without it the package says so and reads nothing.
package nvml

import (
	"errors"
	"log/slog"
	"time"

	"auspex/agent/journal"
	"auspex/internal/target"
)

// Config says what is read, and how patiently.
type Config struct {
	Disabled bool          `yaml:"disabled"`
	Library  string        `yaml:"library"` // file name or path
	Interval time.Duration `yaml:"interval"`
	Deadline time.Duration `yaml:"deadline"` // of each call; one that takes longer is an event
	GPUs     int           `yaml:"gpus"`     // that there should be; 0 is those that were ever seen
	// XIDEvents says whether the library's XID events are told: auto, where the kernel's log
	// is not read, which has them with their text; on; off.
	XIDEvents string `yaml:"xid_events"`
	Sys       string `yaml:"sys"`  // where the kernel shows the PCI bus
	Proc      string `yaml:"proc"` // and its processes
}

// What xid_events may be.
const (
	xidAuto = "auto"
	xidOn   = "on"
	XIDOff  = "off" // also for others, who ask whether XIDs are told
)

// Default returns the defaults.
func Default() Config {
	return Config{
		Library: "libnvidia-ml.so.1", Interval: 10 * time.Second, Deadline: 5 * time.Second, XIDEvents: xidAuto, Sys: "/sys", Proc: "/proc",
	}
}

// Validate names the first value that makes no sense.
func (c *Config) Validate() error {
	switch {
	case c.Disabled:
		return nil
	case c.Library == "":
		return errors.New("library must be set")
	case c.Interval < 10*time.Millisecond:
		return errors.New("interval must be at least 10ms")
	case c.Deadline < 10*time.Millisecond:
		return errors.New("deadline must be at least 10ms")
	case c.GPUs < 0 || c.GPUs > 256:
		return errors.New("gpus must be 0 to 256")
	case c.XIDEvents != xidAuto && c.XIDEvents != xidOn && c.XIDEvents != XIDOff:
		return errors.New("xid_events: want auto, on or off")
	}
	return nil
}

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
	State   string                   // the file that keeps what must outlive a restart
	Boot    string                   // id of the machine's boot
	Kernel  func() bool              // whether the kernel's log is read
	Pod     func(uuid string) string // the pod, as namespace/name, that alone has a GPU or a MIG device; nil is not known
	// Renew is called when another driver was loaded than the one whose library this process
	// has bound: it reads no GPU any more.
	Renew func()
}

// Wish is how a GPU should be.
type Wish struct {
	GPU   uint32
	Leaf  string // of auspex-gpu's config, such as power-limit
	Value string // as YANG writes it
}

package schemas

import "time"

// ServerConfig is what a server is to be configured as: one version of it.
type ServerConfig struct {
	ID        string         `json:"id"`        // UUID
	ServerID  string         `json:"server_id"` // UUID
	Server    string         `json:"server"`    // its name
	Version   int64          `json:"version"`   // from 1, by one with each change
	BIOS      map[string]any `json:"bios_config"`
	RAID      map[string]any `json:"raid_config"`
	Network   map[string]any `json:"network_config"`
	CreatedBy string         `json:"created_by"`
	CreatedAt time.Time      `json:"created_at"`
}

// GPUConfig is what a GPU is to be configured as: one version of it.
type GPUConfig struct {
	ID          string         `json:"id"`     // UUID
	GPUID       string         `json:"gpu_id"` // UUID
	GPU         string         `json:"gpu"`    // its name
	Version     int64          `json:"version"`
	PowerLimit  *float64       `json:"power_limit"`  // watts; nil leaves it as it is
	MemoryClock *int64         `json:"memory_clock"` // MHz; nil leaves it as it is
	Driver      map[string]any `json:"driver_config"`
	CreatedBy   string         `json:"created_by"`
	CreatedAt   time.Time      `json:"created_at"`
}

// Kinds of what has a configuration.
const (
	ConfigOfServer = "server"
	ConfigOfGPU    = "gpu"
)

// How the latest version of a configuration fares.
const (
	ConfigPending    = "pending"     // it has not been applied yet
	ConfigApplying   = "applying"    // control is at it
	ConfigAwaits     = "awaits"      // it is set, and in force once the server has started anew
	ConfigInForce    = "in_force"    // the world was read as it says
	ConfigDrifted    = "drifted"     // it was in force, and the world has changed since
	ConfigRolledBack = "rolled_back" // it was not taken, and what was in force before is so again
	ConfigHeld       = "held"        // a person has to look: nothing is tried any more
	ConfigCannot     = "cannot"      // nothing here sets it
)

// ConfigState is what has become of the configuration of a server or a GPU in the world: kept by control,
// which reads how its settings are, and has them set.
type ConfigState struct {
	Subject  string   `json:"subject"` // UUID of the server or GPU
	Kind     string   `json:"kind"`    // ConfigOfServer or ConfigOfGPU
	Name     string   `json:"name"`    // of the server or GPU
	Server   string   `json:"server"`  // its name
	Version  int64    `json:"version"` // the latest one, which State is of
	State    string   `json:"state"`
	Reason   string   `json:"reason"`   // why
	Sentence Sentence `json:"sentence"` // the same in pieces

	Applied   int64             `json:"applied"` // the last version that was read to be in force; 0 is none
	AppliedAt time.Time         `json:"applied_at"`
	Kept      map[string]string `json:"kept,omitempty"`   // settings of Applied, or what a version that was not taken left to be restored
	Before    map[string]string `json:"before,omitempty"` // of a version that is being applied: how its settings were

	Found  map[string]string `json:"found,omitempty"`  // settings as they were read last; what nobody tells is missing
	Coming map[string]string `json:"coming,omitempty"` // what the next start of the server puts in force
	ReadAt time.Time         `json:"read_at"`          // of Found, to within an hour where it has not changed since
	Unread string            `json:"unread,omitempty"` // why it could not be read since

	Drifts []ConfigDrift `json:"drifts,omitempty"`

	Operation string      `json:"operation,omitempty"` // that is under way
	Request   *Intent     `json:"request,omitempty"`   // it, as it was asked for
	Of        int64       `json:"of,omitempty"`        // its version
	Undoes    bool        `json:"undoes,omitempty"`    // it restores Kept
	AskedAt   time.Time   `json:"asked_at"`
	Tries     []time.Time `json:"tries,omitempty"`    // when it was tried within the last day
	Refusals  int         `json:"refusals,omitempty"` // in a row
	Refusal   string      `json:"refusal,omitempty"`  // the last of them
	Next      time.Time   `json:"next"`               // nothing is tried before

	Failure string `json:"failure,omitempty"` // ConfigRolledBack or ConfigHeld, of which the event config.failed stands
	Rolled  bool   `json:"rolled,omitempty"`  // Kept is what is to be in force, in place of Version
	Undone  bool   `json:"undone,omitempty"`  // and was read to be
	Why     string `json:"why,omitempty"`     // what became of the last try that failed

	Suspect string             `json:"suspect,omitempty"` // settings that one reading alone has shown to differ
	Raises  map[string][]int64 `json:"raises,omitempty"`  // by setting: when drifts were told within the last day, Unix seconds
	Untold  []Event            `json:"untold,omitempty"`  // not on the bus yet
}

// ConfigDrift is a setting that was in force and is not any more.
type ConfigDrift struct {
	Setting string    `json:"setting"`
	Desired string    `json:"desired"`
	Found   string    `json:"found"`
	Since   time.Time `json:"since"`
	Gone    time.Time `json:"gone"` // since when it has been as desired again, before that is told; zero while it is not
}

package schemas

import (
	"errors"
	"fmt"
	"time"
)

// Wish is what is asked for without naming it: servers as a whole, or GPUs. What is empty asks
// nothing.
type Wish struct {
	Servers       int               `json:"servers,omitempty"`         // whole ones
	GPUs          int               `json:"gpus,omitempty"`            // in all, where no whole servers are asked for
	GPUsPerServer int               `json:"gpus_per_server,omitempty"` // exactly so many of each
	Model         string            `json:"model,omitempty"`           // of the GPUs; * stands for anything
	ServerModel   string            `json:"server_model,omitempty"`
	MinMemoryGB   float64           `json:"min_memory_gb,omitempty"` // of each GPU
	Pool          string            `json:"pool,omitempty"`
	Labels        map[string]string `json:"labels,omitempty"`
	Together      string            `json:"together,omitempty"`   // in one rack, rail or nvlink domain
	Spread        string            `json:"spread,omitempty"`     // over feeds or racks
	MinHealth     string            `json:"min_health,omitempty"` // ok or warning
	MaxRisk       *float64          `json:"max_risk,omitempty"`   // probability, 0 to 1, that a part of a server fails in the time asked for
}

// AllocationRequest is a wish, or servers or GPUs that are named, of somebody for some time.
type AllocationRequest struct {
	User, Team, Group, Purpose string // ids
	Start, End                 time.Time
	Wish                       *Wish
	ServerIDs, GPUIDs          []string
	Install                    Install // Template is its name, which is known to exist in that version
}

// ErrNoInstall is of a template that is asked for where nothing is installed.
var ErrNoInstall = errors.New("nothing is installed for allocations here")

// Choice is what was chosen for a wish, and why.
type Choice struct {
	Servers   []Pick      `json:"servers"`
	RunnersUp []Pick      `json:"runners_up"`
	Lost      []NotChosen `json:"lost"`              // why all others were not chosen
	Nearest   []Sentence  `json:"nearest,omitempty"` // where nothing fits: what would
	Detail    string      `json:"detail,omitempty"`  // Nearest in words
}

// Pick is a server that was chosen, or nearly.
type Pick struct {
	Server   string     `json:"server"`
	ServerID string     `json:"server_id"`
	GPUs     []string   `json:"gpus"` // names
	GPUIDs   []string   `json:"gpu_ids"`
	Reasons  []Sentence `json:"reasons"`
	Detail   string     `json:"detail,omitempty"` // Reasons in words
}

// NotChosen is servers that were not chosen for one reason.
type NotChosen struct {
	Reason   Sentence `json:"reason"`
	Detail   string   `json:"detail,omitempty"` // Reason in words
	Count    int      `json:"count"`
	Examples []string `json:"examples"` // names
}

// NoFitError is a wish that nothing fits, with why.
type NoFitError struct{ Choice Choice }

// Error implements error.
func (e *NoFitError) Error() string {
	n := 0
	for _, l := range e.Choice.Lost {
		n += l.Count
	}
	return fmt.Sprintf("nothing fits: %d servers were looked at", n)
}

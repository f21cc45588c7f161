package schemas

import "time"

// Allocation is servers or GPUs that somebody has, has been promised, or had.
type Allocation struct {
	ID        string    `json:"id"`                 // UUID
	GroupID   string    `json:"group_id,omitempty"` // those that were asked for together
	UserID    string    `json:"user_id"`
	User      string    `json:"user"`           // username
	Team      string    `json:"team,omitempty"` // name; "" is the user's own
	ServerID  string    `json:"server_id"`      // the first of ServerIDs
	ServerIDs []string  `json:"server_ids"`     // by name
	Servers   []string  `json:"servers"`        // their names
	GPUIDs    []string  `json:"gpu_ids"`
	Exclusive bool      `json:"exclusive"` // whole servers
	Status    string    `json:"status"`    // of [AllocationLife]
	Reason    string    `json:"status_reason,omitempty"`
	Sentence  *Sentence `json:"status_sentence,omitempty"` // Reason in pieces, where it is in words of ours; of answers alone
	Purpose   string    `json:"purpose"`
	Install
	StartTime time.Time `json:"start_time"`
	EndTime   time.Time `json:"end_time,omitzero"` // absent is open
	// ActiveAt is when it became active, and EndedAt when it was completed or failed.
	ActiveAt  time.Time `json:"active_at,omitzero"`
	EndedAt   time.Time `json:"ended_at,omitzero"`
	Booked    bool      `json:"booked"`           // a part of its hardware is promised, and not yet its
	Returned  bool      `json:"returned"`         // all of its hardware is free again
	Report    string    `json:"report,omitempty"` // what its user said of the hardware at its end
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
	Revision  int64     `json:"-"`
	Noticed   time.Time `json:"-"` // the end that its user was told of
}

// Install is what servers are installed with.
type Install struct {
	Template        string         `json:"template,omitempty"` // name; "" is what is pinned to each server, where there is something
	TemplateVersion int64          `json:"template_version,omitempty"`
	Parameters      map[string]any `json:"parameters,omitempty"` // of the template; secrets are references
}

// Live reports whether it holds hardware for its user, or will.
func (a *Allocation) Live() bool {
	return a.Status == AllocationPending || a.Status == AllocationActive
}

// ServerAllocation is what a server tells of the allocation that has it.
type ServerAllocation struct {
	ID      string    `json:"id"`
	Status  string    `json:"status"`
	User    string    `json:"user"` // username
	UserID  string    `json:"user_id"`
	EndTime time.Time `json:"end_time,omitzero"` // absent is open
}

// Types of notices about an allocation.
const (
	NoticeActive    = "allocation.active"    // it is ready, and its user's
	NoticeFailed    = "allocation.failed"    // with why
	NoticeCompleted = "allocation.completed" // it has ended
	NoticeEnding    = "allocation.ending"    // it ends soon
	NoticeDegraded  = "allocation.degraded"  // a GPU of it is in error
	NoticeRepair    = "allocation.repair"    // control works on a server of it
)

// States of a claim, on a GPU or on a server as a whole.
const (
	ClaimBooked   = "booked"   // for later
	ClaimHeld     = "held"     // its user's
	ClaimCleaning = "cleaning" // nobody's yet: it is cleaned and validated
	ClaimReleased = "released"
)

// Quota bounds what a team has at a time.
type Quota struct {
	ID          string    `json:"id"`
	Team        string    `json:"team,omitempty"`        // "" is each team without a quota of its own, and each user without a team
	Pool        string    `json:"pool,omitempty"`        // "" is all pools together
	MaxGPUs     *int64    `json:"max_gpus"`              // nil is no limit
	MaxServers  *int64    `json:"max_servers"`           // whole ones
	MaxDuration int64     `json:"max_seconds,omitempty"` // of one allocation; 0 is no limit
	CreatedAt   time.Time `json:"created_at"`
	UpdatedAt   time.Time `json:"updated_at"`
	Revision    int64     `json:"-"`
}

// Reservation keeps a part of a pool for a team, for some time.
type Reservation struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"` // unique in either case
	Team      string    `json:"team"`
	Pool      string    `json:"pool"`
	GPUs      int64     `json:"gpus"`
	Servers   int64     `json:"servers"` // whole ones
	StartTime time.Time `json:"start_time"`
	EndTime   time.Time `json:"end_time"`
	CreatedBy string    `json:"created_by"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
	Revision  int64     `json:"-"`
}

// PoolCapacity is how much there is of a pool.
type PoolCapacity struct {
	Pool     string `json:"pool"`
	Servers  int    `json:"servers"`
	GPUs     int    `json:"gpus"`
	Given    int    `json:"given_gpus"`
	Cleaning int    `json:"cleaning_gpus"`
	Free     int    `json:"free_gpus"`
	Stranded int    `json:"stranded_gpus"`
	Reserved int    `json:"reserved_gpus"`
}

// Whys of what is stranded.
const (
	StrandedHold     = "hold"
	StrandedStatus   = "status"          // its life: neither ready nor on its way
	StrandedRepair   = "repair"          // a case of control is open
	StrandedGPU      = "gpu_error"       // a GPU of it is in error
	StrandedCleaning = "cleaning_failed" // what it was used for before could not be cleaned
)

// Stranded is a server, or GPUs of it, that nobody has and that nobody can be given.
type Stranded struct {
	Server   string    `json:"server"`
	ServerID string    `json:"server_id"`
	Pool     string    `json:"pool"`
	GPUs     int       `json:"gpus"` // of it that are stranded
	Why      string    `json:"why"`
	Detail   string    `json:"detail,omitempty"`
	Sentence *Sentence `json:"detail_sentence,omitempty"` // Detail in pieces; of answers alone
	Since    time.Time `json:"since"`
}

package schemas

import "time"

// Ways in which a drive shows that it holds nothing of its last user.
const (
	WipedByNVMe   = "nvme_sanitize" // its own sanitize status
	WipedByATA    = "ata_sanitize"  // its own sanitize status, and blocks that were read back
	WipedByBlocks = "blocks"        // blocks that were read back, alone: it tells of no sanitize operation
)

// States of the last sanitize operation of a drive.
const (
	SanitizeNone    = "none" // it tells of none that completed
	SanitizeRunning = "running"
	SanitizeDone    = "done"
	SanitizeFailed  = "failed"
)

// Wipe is what was found of the drives of a server after they were to be wiped. It never changes.
type Wipe struct {
	ID       string      `json:"id"` // UUID
	ServerID string      `json:"server_id"`
	Server   string      `json:"server"`    // its name
	Number   int64       `json:"number"`    // of the server, from 1
	Action   string      `json:"action_id"` // the action of control that wiped
	Workflow string      `json:"workflow"`  // the Workflow of Tinkerbell whose action told it
	Proven   bool        `json:"proven"`    // all drives are
	Drives   []WipeDrive `json:"drives"`
	Began    time.Time   `json:"began_at"` // when the drives were looked at, by the clock of the server
	Ended    time.Time   `json:"ended_at"`
	Created  time.Time   `json:"created_at"`
}

// WipeDrive is what was found of a drive.
type WipeDrive struct {
	Resource string          `json:"resource,omitempty"` // in the inventory; absent is a drive that it does not have
	Device   string          `json:"device,omitempty"`   // as /dev/nvme0n1; absent was not there
	Serial   string          `json:"serial,omitempty"`
	Model    string          `json:"model,omitempty"`
	Size     int64           `json:"size_bytes,omitempty"`
	Proven   bool            `json:"proven"`
	Method   string          `json:"method,omitempty"` // what proves it; absent where nothing does
	Detail   string          `json:"detail"`           // why it is proven, or is not
	Sanitize *SanitizeStatus `json:"sanitize,omitempty"`
	Blocks   *WipeBlocks     `json:"blocks,omitempty"`
}

// SanitizeStatus is what a drive says of its last sanitize operation.
type SanitizeStatus struct {
	// Raw is in hex: the first 32 bytes of the log page Sanitize Status (NVM Express Base Specification 2.0, section
	// 5.16.1.25), or the ATA Status Return descriptor of SANITIZE STATUS EXT (ACS-4, section 7.36; SAT-3, section 12.2.2.6).
	Raw      string  `json:"raw"`
	State    string  `json:"state"`
	Progress float64 `json:"progress,omitempty"` // share, while it runs
	// Erased says that nothing was written since the operation: Global Data Erased of NVMe. ATA does not tell.
	Erased bool `json:"erased,omitempty"`
}

// WipeBlocks are blocks that were read back.
type WipeBlocks struct {
	Size    int64   `json:"block_bytes"`
	Offsets []int64 `json:"offsets"`           // bytes from the start of the drive, of all that were to be read
	Blank   int     `json:"blank"`             // how many are all zeros, or all ones
	Data    []int64 `json:"data,omitempty"`    // offsets of those that hold something else
	Unread  []int64 `json:"unread,omitempty"`  // offsets of those that could not be read
	Message string  `json:"message,omitempty"` // why
}

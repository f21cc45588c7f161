package schemas

import "time"

// Verdicts of a check, from the best to the worst, and of a validation as a whole.
const (
	CheckPassed  = "passed"
	CheckNotSeen = "not_seen" // nobody could tell: it is never passed
	CheckWarned  = "warned"   // worth a look, and keeps nobody out
	CheckFailed  = "failed"
)

// Sources of what was seen.
const (
	SeenByAgent     = "agent"     // the node agent, by tests of its own
	SeenByTelemetry = "telemetry" // what collectors have read
	SeenByInventory = "inventory"
)

// Validation is what was found of a server when it was looked at. It never changes.
type Validation struct {
	ID       string            `json:"id"` // of the action that looked
	ServerID string            `json:"server_id"`
	Server   string            `json:"server"`         // its name
	Part     string            `json:"part,omitempty"` // the GPU that was to be tested; absent is all of the server
	Number   int64             `json:"number"`         // of the server, from 1
	Level    int               `json:"level"`          // 1 reads, 2 and 3 have the GPUs work
	Verdict  string            `json:"verdict"`
	Checks   []ValidationCheck `json:"checks"`
	Began    time.Time         `json:"began_at"`
	Ended    time.Time         `json:"ended_at"`
	Created  time.Time         `json:"created_at"`
}

// ValidationCheck is one thing that was looked at.
type ValidationCheck struct {
	Name     string `json:"name"`           // as the agent calls its tests, or of this list: gpu_count, memory, driver_version, telemetry, link, link_speed
	Part     string `json:"part,omitempty"` // name in the inventory; absent is the server
	Expected string `json:"expected,omitempty"`
	Seen     string `json:"seen,omitempty"` // absent where nobody could tell
	Verdict  string `json:"verdict"`
	Source   string `json:"source"`
	Fleet    bool   `json:"fleet,omitempty"` // Expected is what most of the same model have
	Detail   string `json:"detail,omitempty"`
}

// Worst is the verdict of checks together: what fails or warns counts before what nobody saw, and of nothing but that nothing is known.
func Worst(checks []ValidationCheck) string {
	n := map[string]int{}
	for i := range checks {
		n[checks[i].Verdict]++
	}
	switch {
	case n[CheckFailed] > 0:
		return CheckFailed
	case n[CheckPassed] == 0:
		return CheckNotSeen
	case n[CheckWarned] > 0:
		return CheckWarned
	}
	return CheckPassed
}

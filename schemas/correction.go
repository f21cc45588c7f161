package schemas

import "time"

// Verdicts of a person on an incident.
const (
	VerdictRight      = "right"       // the root cause that it named is the cause
	VerdictCause      = "cause"       // the cause was another, which the correction names
	VerdictNoIncident = "no_incident" // nothing was wrong, or nothing that belongs together
	VerdictWithdrawn  = "withdrawn"   // the verdict before no longer stands; there is none
)

// Verdicts lists them.
func Verdicts() []string {
	return []string{VerdictRight, VerdictCause, VerdictNoIncident, VerdictWithdrawn}
}

// Correction is what a person says about the cause of an incident. The one with the
// highest revision stands; those before it are kept.
type Correction struct {
	Incident string    `json:"incident"`
	Revision int       `json:"revision"` // counts the verdicts on this incident from 1 on
	Time     time.Time `json:"time"`
	Author   string    `json:"author"`
	Verdict  string    `json:"verdict"`
	// Resource and Fault are the true cause: of VerdictCause what the person says, of
	// VerdictRight what the incident named; empty otherwise. Fault may be "unknown".
	Resource string `json:"resource,omitempty"`
	Fault    string `json:"fault,omitempty"`
	Note     string `json:"note,omitempty"`
	// Said is the root cause that the incident named when it was judged.
	Said Cause `json:"said"`
}

// Judges reports whether the correction says what the cause was, or that there was none.
func (c *Correction) Judges() bool { return c.Verdict != "" && c.Verdict != VerdictWithdrawn }

// FaultUnknown is the fault of an incident that no record explains, and of a cause
// that a person names and no record has.
const FaultUnknown = "unknown"

// FaultKinds is a fault that can be blamed, and the kinds of resources that may have it.
type FaultKinds struct {
	Fault string            `json:"fault"`           // formats, section 3
	Title map[string]string `json:"title,omitempty"` // by language
	Kinds []string          `json:"kinds"`           // "workload" is a job
}

package schemas

import "time"

// What people see of an alert. What detection has ended is resolved for everybody.
const (
	HandlingActive       = "active"
	HandlingAcknowledged = "acknowledged" // somebody looks after it
	HandlingResolved     = "resolved"
)

// HandlingLife is how people handle an alert.
var HandlingLife = Lifecycle{"alert", []string{HandlingActive}, []move{
	{HandlingActive, []string{HandlingAcknowledged, HandlingResolved}},
	{HandlingAcknowledged, []string{HandlingResolved}},
	{HandlingResolved, nil},
}}

// AlertHandling is what people did about an alert.
type AlertHandling struct {
	Alert          string
	Status         string
	AcknowledgedBy string
	AcknowledgedAt time.Time
	ResolvedBy     string
	ResolvedAt     time.Time
	Revision       int64 // 1 is of an alert that nobody has handled
	Comments       []AlertComment
}

// AlertComment is what somebody said of an alert.
type AlertComment struct {
	Author string    `json:"author"`
	Time   time.Time `json:"time"`
	Text   string    `json:"text"`
}

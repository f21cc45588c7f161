package schemas

import (
	"encoding/json"
	"slices"
	"time"
)

// Topics of the bus. The key of a message is the server or switch it speaks of.
const (
	TopicTelemetry   = "telemetry"   // auspexv1.Batch with samples or GPU columns
	TopicEvents      = "events"      // auspexv1.Batch with events
	TopicAlerts      = "alerts"      // Alert, JSON
	TopicIncidents   = "incidents"   // Incident, JSON
	TopicPredictions = "predictions" // Prediction, JSON
	TopicIntents     = "intents"     // Intent, JSON
	TopicOutcomes    = "outcomes"    // Action, JSON
	TopicDeadletter  = "deadletter"  // DeadLetter, JSON
)

// States of an alert.
const (
	AlertFiring   = "firing"
	AlertResolved = "resolved"
)

// Alert is an event that detection admitted (formats, section 9).
type Alert struct {
	Event
	Site        string            `json:"site,omitempty"`
	Server      string            `json:"server,omitempty"` // the server or switch that holds the resource
	Rack        string            `json:"rack,omitempty"`
	Rule        string            `json:"rule"`
	Fingerprint string            `json:"fingerprint"`
	Status      string            `json:"status"` // AlertFiring or AlertResolved; `state` in JSON says the same
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	ResolvedAt  time.Time         `json:"resolved_at,omitzero"` // when it ended
}

// alertJSON is an alert on the wire: `state` is the alert's, and the event's own
// is `condition` (formats, section 9).
type alertJSON struct {
	plainAlert
	State     string `json:"state"`
	Condition string `json:"condition,omitempty"`
}

type plainAlert Alert

// MarshalJSON writes the alert as formats, section 9, has it.
func (a Alert) MarshalJSON() ([]byte, error) {
	return json.Marshal(alertJSON{plainAlert(a), a.Status, a.Event.State})
}

// UnmarshalJSON is the inverse of MarshalJSON.
func (a *Alert) UnmarshalJSON(b []byte) error {
	var w alertJSON
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	*a = Alert(w.plainAlert)
	a.Status, a.Event.State = w.State, w.Condition
	return nil
}

// Incident is one cause and all that it explains (formats, section 5).
type Incident struct {
	ID             string          `json:"id"`
	Opened         time.Time       `json:"opened"`
	Updated        time.Time       `json:"updated"`
	Closed         *time.Time      `json:"closed,omitempty"`
	At             time.Time       `json:"at"` // event time at which this state was decided
	Site           string          `json:"site,omitempty"`
	Severity       Severity        `json:"severity,omitempty"`
	RootCause      Cause           `json:"root_cause"`
	Alternatives   []Cause         `json:"alternatives"`
	Events         []string        `json:"events"`                // of a long one in a running system: a sample with the first and the last
	EventCount     int             `json:"event_count,omitempty"` // of all events, those outside of the sample too
	MergedInto     string          `json:"merged_into,omitempty"`
	Affected       []string        `json:"affected"`
	Workloads      []string        `json:"workloads"`
	Explanation    string          `json:"explanation"`
	Recommendation *Recommendation `json:"recommendation,omitempty"`

	// Explanations are the explanation by language; that in "en" is Explanation.
	Explanations map[string]string `json:"explanations,omitempty"`
	// Against is what was to be expected of the cause and did not come; WouldChange is what
	// would speak for another cause; Step says what is recommended, in words.
	Against     []Sentence `json:"against,omitempty"`
	WouldChange []Sentence `json:"would_change,omitempty"`
	Step        *Sentence  `json:"step,omitempty"`

	// What the screens need beside the sentence: the same facts, in pieces.
	Summary   *Sentence  `json:"summary,omitempty"`
	Sentences []Sentence `json:"sentences,omitempty"`
	Lanes     []Lane     `json:"lanes,omitempty"`
	Graph     *Graph     `json:"graph,omitempty"`
	Revision  int        `json:"revision,omitempty"` // counts the changes of this incident
}

// Count returns how many events the incident holds. Incidents of an older
// version do not say so; they list all.
func (i *Incident) Count() int { return max(i.EventCount, len(i.Events)) }

// Cause is a resource that may be to blame, and how likely it is.
type Cause struct {
	Resource   string            `json:"resource"`
	ResourceID string            `json:"resource_id,omitempty"` // a UUID; the API fills it in
	Fault      string            `json:"fault"`                 // formats, section 3, or of a record that the site added
	Title      map[string]string `json:"title,omitempty"`       // of the fault, by language ("en", "zh")
	Confidence float64           `json:"confidence"`            // a probability
	// OneOf is set where nothing that was seen tells parts of one machine apart: all of them, Resource
	// first. The confidence is that it is one of them.
	OneOf []string `json:"one_of,omitempty"`
}

// Sure is the probability that it is Resource itself, which one of equals is as likely as another.
func (c *Cause) Sure() float64 { return c.Confidence / float64(max(1, len(c.OneOf))) }

// Recommendation is what the correlator would do.
type Recommendation struct {
	Action string `json:"action"` // formats, section 5
	Target string `json:"target"`
}

// Sentence is a fact that every language can say: the id of a message and its
// arguments. Lanes names the evidence lanes that prove it.
type Sentence struct {
	ID    string            `json:"id"`
	Args  map[string]any    `json:"args,omitempty"`
	Text  map[string]string `json:"text,omitempty"` // in words, by language; absent where the reader has the words
	Lanes []string          `json:"lanes,omitempty"`
	Count int               `json:"count,omitempty"` // events behind the sentence
}

// Lane is the evidence of one type and code, on one line of the time axis.
type Lane struct {
	ID       string    `json:"id"`
	Type     string    `json:"type"`
	Code     string    `json:"code,omitempty"`
	Severity Severity  `json:"severity"`
	Role     string    `json:"role"` // cause, effect or repeat
	Count    int       `json:"count"`
	Offsets  []float64 `json:"offsets"` // seconds since the first event; thinned to 200
}

// Graph is the way from the cause to what it hit, equal parts folded.
type Graph struct {
	Nodes []GraphNode `json:"nodes"`
	Edges []GraphEdge `json:"edges"`
}

// GraphNode is a resource or a fold of equal ones.
type GraphNode struct {
	ID        string   `json:"id"`
	Kind      string   `json:"kind"`
	Label     string   `json:"label"`
	Role      string   `json:"role"`            // cause, affected, silent or context
	Count     int      `json:"count,omitempty"` // resources in the fold
	Reporting int      `json:"reporting"`       // of them, those that said something
	Members   []string `json:"members,omitempty"`
}

// GraphEdge is a way that trouble took; LagSeconds is the median delay.
type GraphEdge struct {
	From       string  `json:"from"`
	To         string  `json:"to"`
	Kind       string  `json:"kind"`
	LagSeconds float64 `json:"lag_seconds,omitempty"`
}

// States of a prediction.
const (
	PredictionOpen     = "open"
	PredictionCameTrue = "came_true"
	PredictionAverted  = "averted"
	PredictionExpired  = "expired"
)

// Prediction says what fails next and when (formats, section 9).
type Prediction struct {
	ID               string     `json:"id"`
	Time             time.Time  `json:"time"`
	Site             string     `json:"site,omitempty"`
	Resource         string     `json:"resource"`
	Server           string     `json:"server,omitempty"`
	Metric           string     `json:"metric,omitempty"`
	Failure          string     `json:"failure,omitempty"`
	Probability      float64    `json:"probability"` // within Horizon
	Horizon          string     `json:"horizon"`     // as a duration, such as 168h0m0s
	HorizonSeconds   float64    `json:"horizon_seconds"`
	ETAP10           *time.Time `json:"eta_p10"`
	ETAP50           *time.Time `json:"eta_p50"`
	ETAP90           *time.Time `json:"eta_p90"`
	Limit            float64    `json:"limit"`
	LimitSource      string     `json:"limit_source,omitempty"` // who says so: LimitOf…
	Below            bool       `json:"below,omitempty"`        // the limit is crossed downwards
	Value            float64    `json:"value"`                  // robust level now
	SlopePerHour     float64    `json:"slope_per_hour"`
	Evidence         []Evidence `json:"evidence,omitempty"`
	Model            Model      `json:"model"`
	State            string     `json:"state"`
	Sentence         *Sentence  `json:"sentence,omitempty"`
	Explanation      string     `json:"explanation,omitempty"`
	Opened           time.Time  `json:"opened,omitzero"` // when it was first published
	FirstProbability float64    `json:"said,omitempty"`  // the first published one
}

// Where the limit of a prediction comes from.
const (
	LimitOfDevice = "device"  // the device gives it
	LimitDefault  = "default" // ours: the device gives none
	LimitOfSite   = "site"    // the site's file of limits fixes it
)

// Evidence is a metric and its share in a verdict, in [0,1].
type Evidence struct {
	Metric string  `json:"metric"`
	Share  float64 `json:"share"`
}

// Model names what predicted.
type Model struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// Modes of control. Observe is the default.
const (
	ModeObserve = "observe"
	ModeDryRun  = "dry-run"
	ModeApprove = "approve"
	ModeEnforce = "enforce"
)

// States of an action.
const (
	ActionProposed  = "proposed"
	ActionWaiting   = "waiting"
	ActionApproved  = "approved"
	ActionRunning   = "running"
	ActionVerifying = "verifying"
	ActionDone      = "done"
	ActionFailed    = "failed"
	ActionUnknown   = "unknown"
	ActionCancelled = "cancelled"
	ActionRefused   = "refused"
)

// Intent asks control for something (topic intents). With the verb IntentRequest it asks for an
// action, which then has the id of the intent: the same intent twice is one action. Control refuses
// what it will not do, in the action's detail; every request that it can read becomes an action.
type Intent struct {
	ID     string    `json:"id"`
	Time   time.Time `json:"time"` // of a request: when it was asked for; an old one is refused
	Site   string    `json:"site,omitempty"`
	Verb   string    `json:"verb"`             // request, approve, override, cancel, dry-run, resolve
	Action string    `json:"action,omitempty"` // of a decision: what it is about
	Server string    `json:"server,omitempty"` // name in the inventory
	Target string    `json:"target,omitempty"` // of a request: the part of the server to act on, where it is one
	Kind   string    `json:"kind,omitempty"`   // one of ActionKinds
	Reason string    `json:"reason,omitempty"` // of a request: "request", "allocation ID" or "workflow ID"; of an override: why
	Actor  string    `json:"actor"`            // who asks
	User   string    `json:"user,omitempty"`   // id of the person who asks; empty where it is none
	Note   string    `json:"note,omitempty"`   // of a resolution: what was done, or where that is written

	// With are the parameters of what is asked for, as {target: disk}. With force=true what ends
	// the work on a server is done while jobs run there, and power_off takes the power at once.
	With map[string]string `json:"with,omitempty"`
}

// Verbs of intents: IntentRequest asks for an action, whose id is that of the intent, and IntentCancel ends one.
const (
	IntentRequest = "request"
	IntentCancel  = "cancel"
)

// Action is a step that control proposes, takes or took (formats, section 9).
type Action struct {
	ID       string    `json:"id"`
	Time     time.Time `json:"time"` // of the last change
	Created  time.Time `json:"created"`
	Site     string    `json:"site,omitempty"`
	Server   string    `json:"server"`
	ServerID string    `json:"server_id,omitempty"` // a UUID; the API fills it in
	Target   string    `json:"target,omitempty"`    // the part, where it is not the server
	Kind     string    `json:"kind"`
	Reason   string    `json:"reason"`             // id of the incident or prediction, or the reason of the request
	Why      string    `json:"why"`                // in a sentence
	Incident string    `json:"incident,omitempty"` // id
	// Prediction is the id of what foretold the fault, of a repair before it.
	Prediction string   `json:"prediction,omitempty"`
	Mode       string   `json:"mode"`
	Rung       int      `json:"rung"`
	Ladder     []string `json:"ladder,omitempty"` // kinds of all rungs, this one among them

	// With are the parameters that the policy, or who asked, gives the step, as {power_limit: 500}.
	With map[string]string `json:"with,omitempty"`
	// Person says that only a person can do it: it is a ticket, which is open while it is proposed.
	Person bool `json:"person,omitempty"`

	Attempt    int    `json:"attempt"`
	State      string `json:"state"`
	Rails      []Rail `json:"rails"`
	VerifiedBy string `json:"verified_by,omitempty"`
	Detail     string `json:"detail,omitempty"` // the error, or what was seen
	Actor      string `json:"actor,omitempty"`  // who asked for it, or decided last

	// Stages are what a step that goes on for long does one after the other, where its peer tells.
	Stages []Stage `json:"stages,omitempty"`

	// SentAt is when the request had gone out for certain, by our clock; absent while
	// the step is merely decided. EffectAt is when its effect was first read back.
	SentAt   time.Time `json:"sent_at,omitzero"`
	EffectAt time.Time `json:"effect_at,omitzero"`

	// ApprovalsNeeded is how many persons must approve it, where any must; Approvals are those who did.
	ApprovalsNeeded int        `json:"approvals_needed,omitempty"`
	Approvals       []Approval `json:"approvals,omitempty"`
	// Override is who let it through a change freeze, and why.
	Override *Approval `json:"override,omitempty"`
	// Requester is the id of the person who asked for it: they approve nothing of it.
	Requester string `json:"requester,omitempty"`
	// BlastRadius is what it would cost, of a step that ends what runs.
	BlastRadius *BlastRadius `json:"blast_radius,omitempty"`

	// The same in pieces, for the screens: of Why, Detail and VerifiedBy.
	Sentence         *Sentence `json:"sentence,omitempty"`
	DetailSentence   *Sentence `json:"detail_sentence,omitempty"`
	VerifiedSentence *Sentence `json:"verified_sentence,omitempty"`
}

// Stage is a part of a step, in the words of the peer that does it.
type Stage struct {
	Name    string    `json:"name"`
	State   string    `json:"state"` // pending, running, success, failed or timeout
	Began   time.Time `json:"started_at,omitzero"`
	Message string    `json:"message,omitempty"`
}

// Ended reports whether nothing more comes of it by itself.
func (a *Action) Ended() bool {
	switch a.State {
	case ActionDone, ActionFailed, ActionUnknown, ActionCancelled, ActionRefused:
		return true
	}
	return a.State == ActionProposed && a.Mode == ModeDryRun
}

// Endable reports whether it goes on in the world and can be ended there.
func (a *Action) Endable() bool {
	return (a.State == ActionRunning || a.State == ActionVerifying) && a.EffectAt.IsZero() && slices.Contains(endable, a.Kind)
}

// endable are the kinds of steps that go on for long, each by a driver that can end them.
var endable = []string{"install", "reinstall"}

// Approval is what a person said for an action.
type Approval struct {
	By     string    `json:"by"`
	User   string    `json:"user,omitempty"` // id of the person; empty is a token that is nobody's
	Time   time.Time `json:"time"`
	Reason string    `json:"reason,omitempty"`
}

// BlastRadius is what a step would end: what runs where it acts, and what that loses.
type BlastRadius struct {
	Time    time.Time   `json:"time"` // of which it tells
	Servers []string    `json:"servers"`
	GPUs    int         `json:"gpus"` // that are away for a while
	Jobs    []JobAtRisk `json:"jobs"`
	Owners  []string    `json:"owners"` // of the jobs, and who has the servers
	// GPUHours is what the jobs have computed since they began, on all of their GPUs; a checkpoint makes
	// the loss less. Unknown counts the jobs of which nobody tells when they began, or on which GPUs.
	GPUHours float64 `json:"gpu_hours"`
	Unknown  int     `json:"unknown,omitempty"`
}

// JobAtRisk is a job that a step would end.
type JobAtRisk struct {
	ID       string    `json:"id"`
	Name     string    `json:"name,omitempty"`
	Owner    string    `json:"owner,omitempty"`
	Since    time.Time `json:"since,omitzero"`
	GPUs     int       `json:"gpus"` // of the whole job, wherever it runs
	GPUHours float64   `json:"gpu_hours"`
}

// Rail is a check before an action: its limit, its number, and whether it holds.
type Rail struct {
	Name     string    `json:"name"`
	Limit    float64   `json:"limit"`
	Value    float64   `json:"value"`
	OK       bool      `json:"ok"`
	Detail   string    `json:"detail,omitempty"`
	Sentence *Sentence `json:"sentence,omitempty"` // Detail in pieces
}

// Scopes of a budget.
const (
	ScopeFleet  = "fleet" // servers out of the pool by us
	ScopeSite   = "site"  // of them, in one site, and so on
	ScopeRow    = "row"
	ScopeRack   = "rack"
	ScopeFeed   = "feed"   // powered by one PDU, or what else powers it
	ScopeLeaf   = "leaf"   // cabled to one switch
	ScopeNVLink = "nvlink" // of one NVLink domain
	ScopePool   = "pool"
	ScopeModel  = "model"
	ScopeJob    = "job"    // that ran one job when they were taken
	ScopeTenant = "tenant" // that one team, or one user, had then
	ScopeHour   = "hour"   // destructive steps in the last hour
)

// GroupScopes returns the scopes of servers that share something.
func GroupScopes() []string {
	return []string{ScopeSite, ScopeRow, ScopeRack, ScopeFeed, ScopeLeaf, ScopeNVLink, ScopePool, ScopeModel, ScopeJob, ScopeTenant}
}

// Budget is how much of something control may take, and how much it has.
type Budget struct {
	Scope    string `json:"scope"`
	Name     string `json:"name,omitempty"` // of the rack, the feed and so on
	Limit    int    `json:"limit"`
	Used     int    `json:"used"`
	Reserved int    `json:"reserved"` // asked for by steps that wait for a person
}

// Breaker is the storm breaker: above its limit it stops every action.
type Breaker struct {
	Tripped       bool    `json:"tripped"`
	Ladders       int     `json:"ladders"` // with destructive steps, begun within the window
	Limit         int     `json:"limit"`
	WindowSeconds float64 `json:"window_seconds"`
}

// Budgets is what control had taken at a time. Racks of which it holds nothing
// are left out; each has the limit RackLimit.
type Budgets struct {
	Time      time.Time `json:"time"`
	Levels    []Budget  `json:"levels"`
	RackLimit int       `json:"rack_limit"`
	Breaker   Breaker   `json:"breaker"`
}

// NoStep is why control has no step for an open incident.
type NoStep struct {
	Policy   string   `json:"policy,omitempty"` // that is for its fault; empty is none
	Reason   string   `json:"reason"`           // in English
	Sentence Sentence `json:"sentence"`         // the same in pieces
}

// DeadLetter is a record that could not be used, as it came.
type DeadLetter struct {
	ID     string    `json:"id"`
	Time   time.Time `json:"time"`
	Site   string    `json:"site,omitempty"`
	Topic  string    `json:"topic"`
	Origin string    `json:"origin"` // partition and offset, or device and collector
	Reason string    `json:"reason"`
	Record []byte    `json:"record"`
}

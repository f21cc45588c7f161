package schemas

import "time"

// States of a proposal, and what a person may decide on it.
const (
	EdgeOpen      = "open"
	EdgeAccepted  = "accepted"
	EdgeDeclined  = "declined"
	EdgeWithdrawn = "withdrawn" // was accepted, and taken back
)

// EdgeDecisions lists what a person may decide on a proposal.
func EdgeDecisions() []string { return []string{EdgeAccepted, EdgeDeclined, EdgeWithdrawn} }

// EdgeProposal says that one kind of event brings about another, as counted from lags on
// a site: for a person to accept or to decline.
type EdgeProposal struct {
	ID      string      `json:"id"`
	Cause   string      `json:"cause"` // type of event, with the code where that says what happened
	Effect  string      `json:"effect"`
	Over    []EdgeShare `json:"over"`    // relations from the cause's place to the effect's, the likeliest first
	LagS    float64     `json:"lag_s"`   // mean, seconds
	Share   float64     `json:"share"`   // effects of one cause, on average
	Effects float64     `json:"effects"` // that were most likely brought about by the cause
	Times   int         `json:"times"`   // at which that was seen; effects that come soon after one another are one
	Gain    float64     `json:"gain"`    // nats; the surer, the more
	Events  int         `json:"events"`  // of the site that were read
	From    time.Time   `json:"from,omitzero"`
	To      time.Time   `json:"to,omitzero"`
	Found   time.Time   `json:"found,omitzero"` // when it was proposed last
	// Known names the fault whose record has the edge already, and where; empty: none has.
	Known string `json:"known,omitempty"`
	// Causes are the faults that could have it, the one that explains most first; with
	// none, no record knows what the cause is, and nothing can be accepted.
	Causes   []EdgeCause   `json:"causes"`
	State    string        `json:"state"`
	Decision *EdgeDecision `json:"decision,omitempty"` // the one that stands
}

// EdgeShare is how much of an edge runs over a relation.
type EdgeShare struct {
	Relation string  `json:"relation"`
	Share    float64 `json:"share"`
}

// EdgeCause is a fault that could show the effect of a proposal, with what was counted.
type EdgeCause struct {
	Fault string   `json:"fault"`
	Kinds []string `json:"kinds"`          // of parts that have it
	Sign  string   `json:"sign,omitempty"` // of the records; empty: Type and Code are a sign of their own
	Type  string   `json:"type"`
	Code  string   `json:"code,omitempty"`
	Way   string   `json:"way,omitempty"` // from the part to where the effect shows; empty: the part itself
	Cases float64  `json:"cases"`         // times at which the part may have had the fault
	Shown float64  `json:"shown"`         // at which the effect followed
	// SharesSum and LagsSumS are sums over the latter: of the share of the parts that showed
	// it, and of the mean lag in seconds.
	SharesSum float64 `json:"shares_sum"`
	LagsSumS  float64 `json:"lags_sum_s"`
	Chance    float64 `json:"chance"` // of a part to show it in as long a time by itself
	Lift      float64 `json:"lift"`   // how many times as often a part shows it after the cause
	Gain      float64 `json:"gain"`   // nats over chance
	// Shows, Share and LagS are what an acceptance would put in force: bounded.
	Shows    float64       `json:"shows"`
	Share    float64       `json:"share"`
	LagS     float64       `json:"lag_s"`
	Examples []EdgeExample `json:"examples"` // the last ones
}

// EdgeExample is one time at which an effect followed.
type EdgeExample struct {
	Time    time.Time `json:"time"`
	Part    string    `json:"part"`    // that may have had the fault
	Event   string    `json:"event"`   // id of what was heard of it
	Effects []string  `json:"effects"` // ids of the events that followed, some
	Shown   int       `json:"shown"`   // parts that showed the effect
	Of      int       `json:"of"`      // parts that could
	LagS    float64   `json:"lag_s"`   // mean, seconds
}

// EdgeDecision is what a person decided on a proposal.
type EdgeDecision struct {
	Decision string    `json:"decision"`
	Reason   string    `json:"reason"`
	Author   string    `json:"author"`
	Time     time.Time `json:"time"`
	// Fault, Kinds and Way say which of the causes was accepted.
	Fault string   `json:"fault,omitempty"`
	Kinds []string `json:"kinds,omitempty"`
	Way   string   `json:"way,omitempty"`
	// Version is the version of the learned parameters that the decision put in force; 0: none.
	Version int64 `json:"version,omitempty"`
}

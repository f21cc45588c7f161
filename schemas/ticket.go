package schemas

import "time"

// Types of notices about tickets.
const (
	NoticeTicketOpened = "ticket.opened" // a person is needed
	NoticeTicketClosed = "ticket.closed" // a person has done it or cancelled it, or its cause has gone
)

// Ticket is an action that only a person can do, with all that is known of why. It is the data of the notices
// of its opening and its closing.
type Ticket struct {
	ID     string    `json:"id"`    // of the action; `POST actions/{id}/resolve` closes it
	State  string    `json:"state"` // of the action: proposed while it is open, then done or cancelled
	Kind   string    `json:"kind"`  // one of ActionKinds
	Opened time.Time `json:"opened"`
	Time   time.Time `json:"time"`         // of this state
	By     string    `json:"by,omitempty"` // who closed it
	What   string    `json:"what"`         // what is needed, or how it was closed, in a sentence

	Site string `json:"site,omitempty"`
	Rack string `json:"rack,omitempty"`
	// Held says that Auspex keeps the server out of its scheduler and from allocations until somebody gives it back.
	Held bool `json:"held"`
	// Parts are the server and the part, by what they are found and exchanged by.
	Parts []TicketPart `json:"parts"`

	// Incident is what it is about: cause, confidence, alternatives, and the explanation by language.
	Incident *Incident `json:"incident,omitempty"`
	// Tried are the earlier steps of the same ladder, the first one first: each with its checks, when it was sent,
	// and what was read back.
	Tried []Action `json:"tried"`
	// Links are addresses for people, by what is there: action, incident, server.
	Links map[string]string `json:"links,omitempty"`
}

// TicketPart is a machine or a part of one as whoever walks there knows it.
type TicketPart struct {
	ID     string `json:"id"`
	Kind   string `json:"kind,omitempty"`
	Model  string `json:"model,omitempty"`
	Serial string `json:"serial,omitempty"`
	UUID   string `json:"uuid,omitempty"`
	PCI    string `json:"pci,omitempty"`
	MAC    string `json:"mac,omitempty"`
}

package schemas

import (
	"encoding/json"
	"time"
)

// Webhook is where notices are sent to. Its secret is in none of its forms.
type Webhook struct {
	ID        string    `json:"id"`   // UUID
	Name      string    `json:"name"` // unique in either case
	URL       string    `json:"url"`
	Topics    []string  `json:"topics"` // types of notices; one that ends with .* is all below; none is all
	Active    bool      `json:"active"` // notices of the time when it is not are not kept for it
	SecretAt  time.Time `json:"secret_set_at"`
	Waiting   int64     `json:"waiting"` // deliveries that are to be tried yet
	Dead      int64     `json:"dead"`    // deliveries that were given up, of the last 30 days
	LastAt    time.Time `json:"last_attempt_at,omitzero"`
	LastCode  int       `json:"last_status,omitempty"` // HTTP; absent where nobody answered
	LastError string    `json:"last_error,omitempty"`  // absent: it was taken
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
	Revision  int64     `json:"-"`
}

// States of a delivery.
const (
	DeliveryPending   = "pending"
	DeliveryDelivered = "delivered"
	DeliveryDead      = "dead" // given up
)

// Delivery is a notice on its way to a webhook.
type Delivery struct {
	ID        string    `json:"id"` // of the notice: the CloudEvents id, and the header webhook-id, of each attempt
	WebhookID string    `json:"webhook_id"`
	Type      string    `json:"type"`
	Subject   string    `json:"subject"`
	State     string    `json:"state"` // Delivery…
	Attempts  int       `json:"attempts"`
	NextAt    time.Time `json:"next_attempt_at,omitzero"`
	LastCode  int       `json:"last_status,omitempty"`
	LastError string    `json:"last_error,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	DoneAt    time.Time `json:"done_at,omitzero"` // delivered or given up
}

// Notice is something that people and their programs are told.
type Notice struct {
	ID      string          `json:"id"`   // UUID
	Type    string          `json:"type"` // such as allocation.ready
	Subject string          `json:"subject"`
	Time    time.Time       `json:"time"`
	Data    json.RawMessage `json:"data"`
	// Sentence is what `detail` of the data says, in pieces; nil where it is in no words of ours.
	Sentence *Sentence `json:"sentence,omitempty"`
	User     string    `json:"user_id,omitempty"` // whom it is for
	Team     string    `json:"team_id,omitempty"`
}

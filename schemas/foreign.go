package schemas

import "time"

// FieldObject is the field of a [Foreign] that is about the object itself: the machine has another one already.
const FieldObject = "hardware"

// Foreign is what another system has of a machine otherwise than the inventory, or where the inventory has none.
type Foreign struct {
	Object string `json:"object"`           // there, as namespace/name
	Server string `json:"server,omitempty"` // of the inventory, by name; "" is none
	// Field is a path of the object, with the MAC address of an interface in brackets, or [FieldObject].
	Field  string    `json:"field,omitempty"`
	Ours   string    `json:"ours,omitempty"`
	Theirs string    `json:"theirs,omitempty"`
	Owner  string    `json:"owner"`           // who has the field there, such as a field manager of Kubernetes
	Time   time.Time `json:"time,omitzero"`   // when they wrote it; absent is not known
	Other  string    `json:"other,omitempty"` // who has the object in Ours, where the inventory has no such server
	// Machine is what is known of one that the inventory does not have; it has no field.
	Machine *Hardware `json:"machine,omitempty"`
}

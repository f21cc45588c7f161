package schemas

import "time"

// PowerCap is a limit that control has set on what a server draws, in watts.
type PowerCap struct {
	Server  string    `json:"server"`
	Feed    string    `json:"feed,omitempty"` // the PDU that was lost; empty where somebody asked for it
	Action  string    `json:"action"`         // that set it
	Way     string    `json:"way"`            // by which it was set, and is taken back
	Drew    float64   `json:"drew,omitempty"` // before; 0 where nobody read it
	Watts   float64   `json:"watts"`
	To      string    `json:"to"`                // the limit as its way writes it
	Before  string    `json:"before"`            // what was set, written so; empty is no limit
	Earlier string    `json:"earlier,omitempty"` // a limit of ours that this one takes the place of
	Set     time.Time `json:"set"`
	Why     string    `json:"why,omitempty"` // why it was not set
	// Released is when it was taken back, or found to be another's; zero while it is ours.
	Released time.Time `json:"released,omitzero"`
}

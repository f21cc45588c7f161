package schemas

import "time"

// DefaultPool is the pool of what is in no other.
const DefaultPool = "default"

// Server is a server of the inventory, or one that was, as something that is given to people.
// Its health and readings are telemetry, and not here.
type Server struct {
	ID           string            `json:"id"`   // UUID
	Name         string            `json:"name"` // as in the inventory
	Model        string            `json:"model"`
	Status       string            `json:"status"` // of [ServerLife]
	Reason       string            `json:"status_reason,omitempty"`
	Since        time.Time         `json:"status_since"`
	IPMIIP       string            `json:"ipmi_ip"`
	RedfishURL   string            `json:"redfish_url"`
	ManagementIP string            `json:"management_ip"`
	SerialNumber string            `json:"serial_number"`
	Pool         string            `json:"pool"` // its name
	Labels       map[string]string `json:"labels"`
	Hold         string            `json:"hold"` // why nobody is given it; "" is no hold
	HoldBy       string            `json:"hold_by,omitempty"`
	Present      bool              `json:"in_inventory"`
	CreatedAt    time.Time         `json:"created_at"`
	UpdatedAt    time.Time         `json:"updated_at"`
	Revision     int64             `json:"-"` // 1 when it is made, one more with each change
}

// GPU is a GPU of the inventory, or one that was, as something that is given to people.
type GPU struct {
	ID            string    `json:"id"`        // UUID
	Name          string    `json:"name"`      // as in the inventory
	ServerID      string    `json:"server_id"` // UUID
	Server        string    `json:"server"`    // its name
	Model         string    `json:"model"`
	Status        string    `json:"status"` // of [GPULife]
	Reason        string    `json:"status_reason,omitempty"`
	Since         time.Time `json:"status_since"`
	MemoryGB      *float64  `json:"memory_gb"` // nil is not known
	SerialNumber  string    `json:"serial_number"`
	DriverVersion string    `json:"driver_version"`
	CUDAVersion   string    `json:"cuda_version"`
	Present       bool      `json:"in_inventory"`
	CreatedAt     time.Time `json:"created_at"`
	UpdatedAt     time.Time `json:"updated_at"`
	Revision      int64     `json:"-"`
}

// Pool is servers that are given from one stock.
type Pool struct {
	ID          string    `json:"id"`   // UUID
	Name        string    `json:"name"` // unique in either case
	Description string    `json:"description"`
	Servers     int       `json:"servers"` // in it
	CreatedAt   time.Time `json:"created_at"`
	UpdatedAt   time.Time `json:"updated_at"`
	Revision    int64     `json:"-"`
}

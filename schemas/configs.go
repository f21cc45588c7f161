package schemas

import "time"

// ServerConfig is what a server is to be configured as: one version of it.
type ServerConfig struct {
	ID        string         `json:"id"`        // UUID
	ServerID  string         `json:"server_id"` // UUID
	Server    string         `json:"server"`    // its name
	Version   int64          `json:"version"`   // from 1, by one with each change
	BIOS      map[string]any `json:"bios_config"`
	RAID      map[string]any `json:"raid_config"`
	Network   map[string]any `json:"network_config"`
	CreatedBy string         `json:"created_by"`
	CreatedAt time.Time      `json:"created_at"`
}

// GPUConfig is what a GPU is to be configured as: one version of it.
type GPUConfig struct {
	ID          string         `json:"id"`     // UUID
	GPUID       string         `json:"gpu_id"` // UUID
	GPU         string         `json:"gpu"`    // its name
	Version     int64          `json:"version"`
	PowerLimit  *float64       `json:"power_limit"`  // watts; nil leaves it as it is
	MemoryClock *int64         `json:"memory_clock"` // MHz; nil leaves it as it is
	Driver      map[string]any `json:"driver_config"`
	CreatedBy   string         `json:"created_by"`
	CreatedAt   time.Time      `json:"created_at"`
}

package discover

import (
	"auspex/internal/store/conflicts"
	"auspex/internal/store/discoveries"
)

// Desk is where people ask for sweeps, and decide on what they come to.
type Desk struct {
	Config    Config
	Sweeps    *discoveries.Store
	Conflicts *conflicts.Store
}

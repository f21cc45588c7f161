package correlator

import (
	"auspex/schemas/faults/propagation"
)

// LoadModel reads the fault records that a configuration names.
func LoadModel(cfg Config) (*propagation.Model, error) { return loadModel(cfg.Propagation) }

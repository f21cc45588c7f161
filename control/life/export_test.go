package life

import (
	"auspex/control"
	"auspex/schemas/auspexv1"
)

// Read reads a batch as Follow does.
func Read(b Bus, w *auspexv1.Batch) { b.read(w, func(control.Observation) {}) }

// ReadTo reads a batch as Follow does, and hands over what was observed.
func ReadTo(b Bus, w *auspexv1.Batch, observe func(control.Observation)) { b.read(w, observe) }

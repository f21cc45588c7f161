package life

import (
	"auspex/control"
	"auspex/schemas/auspexv1"
)

// Read reads a batch as Follow does.
func Read(b Bus, w *auspexv1.Batch) { b.read(w, func(control.Heard) {}) }

// ReadTo reads a batch as Follow does, and hands over what was heard.
func ReadTo(b Bus, w *auspexv1.Batch, hear func(control.Heard)) { b.read(w, hear) }

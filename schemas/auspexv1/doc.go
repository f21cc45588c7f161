// Package auspexv1 is the wire format of the bus: columnar sample batches and
// events, generated from auspex.proto. A batch from the pool must not be kept
// after ReturnToVTPool.
package auspexv1

// Package schemas holds the records that flow through Auspex and the facts that
// describe them: events, alerts, incidents, predictions, actions and the
// inventory (docs/reference/formats.md), and in sub-packages the wire format,
// the SQL of the stores, the OpenAPI document and the fault catalogues.
//
// It is the leaf of the import graph: it imports nothing else of this module.
package schemas

//go:generate go run ./gen

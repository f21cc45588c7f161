// Package records holds what is known about each fault, one file a fault:
// what it makes visible and where, how surely and how soon, its words in every
// language, whether it ends by itself, what foretells it and what one does about
// it. README.md describes the form.
package records

import "embed"

// Files are the built-in records.
//
//go:embed *.yaml
var Files embed.FS

// Package app wires the stages into one process: a file a role, and the only
// place where stages meet in code. Everything else meets on the bus and in the
// stores.
package app

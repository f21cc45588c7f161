// Package all makes every collector known: importing it registers them. The
// list of imports is generated from the folders that register a collector.
package all

//go:generate go run ../../internal/imports collectors

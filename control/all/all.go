// Package all makes every driver of control known: importing it registers them.
// The list of imports is generated from the folders that register a driver.
package all

//go:generate go run ../../internal/imports control

//go:build tools

// Package tools keeps the programs of Tinkerbell that the peer is made of in go.mod.
package tools

import (
	_ "github.com/tinkerbell/rufio"
	_ "github.com/tinkerbell/tink/cmd/tink-controller"
	_ "github.com/tinkerbell/tink/cmd/tink-server"
	_ "github.com/tinkerbell/tink/cmd/virtual-worker"
)

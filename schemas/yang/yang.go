// Package yang is what the YANG modules of node agents say, for programs: which leaves
// there are, and under which metric each reading is published. The structs of the
// modules are in agentmodel. Both are generated from the modules beside this file.
package yang

//go:generate go -C ../../tools/yang run . ../../schemas/yang

// Leaf is a leaf of the modules.
type Leaf struct {
	Type   string // uint64, int64, decimal64, boolean, string or enumeration
	Metric string // under which it is published; empty is not
	Part   string // kind of the part whose it is; empty is the server
}

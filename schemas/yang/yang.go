// Package yang is what the YANG modules of node agents say, for programs: which leaves
// there are, and under which metric each reading is published. The structs of the
// modules are in agentmodel. Both are generated from the modules beside this file.
package yang

//go:generate go -C ../../tools/yang run . ../../schemas/yang

// Leaf is a leaf of the modules.
type Leaf struct {
	Type   string   // uint64, int64, decimal64, boolean, string or enumeration
	Metric string   // under which it is published; empty is not
	Fixed  []string // labels that it has always, names and values by turns
	Bound  string   // of the metric's readings, which the leaf is instead of a reading
	Keys   []Key    // what the keys of the lists above it are, from the top
	Unit   string   // as the module says it
	About  string   // a sentence
}

// Key says what the key of a list stands for.
type Key struct {
	Part  string // a part of this kind, which it names
	Label string // a label of this name; one of the two is empty
}

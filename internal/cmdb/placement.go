package cmdb

// Placement is a part and where it is. A field is empty where the inventory does
// not say; Resource never is.
type Placement struct {
	Resource string // the part, or the device where the part is not known
	Kind     string // of the resource, as formats section 1 names it; [KindWorkload] for a workload
	Server   string // the server or switch that holds it
	Rack     string
	Site     string
	Model    string // of the part, else of its server
}

// KindWorkload is the kind of a placement that is a workload, not a resource.
const KindWorkload = "workload"

// Placer resolves the raw hints of a series against the inventory. Its methods may
// be called at the same time.
type Placer interface {
	// Part resolves a part that a collector named; kind and name are empty for
	// the device itself.
	Part(device, kind, name string) Placement
	// GPU resolves a GPU by identity, or by its index where that is not known.
	GPU(device string, index uint32, uuid, pci string) Placement
}

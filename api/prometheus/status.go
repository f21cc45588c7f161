package prometheus

// Status is what a process says of itself below status/.
type Status struct{}

package control

import "context"

// Reading is how a server, or a part of it, is set: by parameter of the step that sets it. What is not
// told is missing.
type Reading struct {
	Has    map[string]string
	Coming map[string]string // what the next start of the server puts in force, where that is told apart
}

// Reader is a remediator of settings that can tell how they are. It changes nothing, in any mode.
type Reader interface {
	// Read returns the settings that are named in a step's With, by id of the server or part. A part that
	// cannot be read now is missing. An error that wraps ErrCannot is of a server where nobody can tell.
	Read(ctx context.Context, s Step) (map[string]Reading, error)
}

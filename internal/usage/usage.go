// Package usage marks the errors of a command line that cannot be run as it
// stands: the command ends with the exit status of wrong usage and a hint, where
// other errors end it with that of a failure.
package usage

import "errors"

// Err is wrapped by errors of a command line that cannot be run as it stands.
var Err = errors.New("wrong usage")

package bmc

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"

	"auspex/internal/bmc/ipmi"
	"auspex/internal/bmc/redfish"
)

// Kind says what an error of a controller means for whoever goes on: collectors and
// control judge by the same.
type Kind int

// The kinds.
const (
	Unreachable Kind = iota // no connection, no answer in time, or an end of ours
	Refused                 // user or password
	Missing                 // it has no such resource or operation, or not for us: asking again soon is in vain
	Garbled                 // what it says of one thing makes no sense; of other things it may
)

// KindOf tells the kind of an error of this package and of those below it.
func KindOf(err error) Kind {
	var st *redfish.StatusError
	switch {
	case errors.As(err, &st):
		switch st.Status {
		case http.StatusUnauthorized:
			return Refused
		case http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusGone, http.StatusNotImplemented:
			return Missing
		}
		return Garbled
	case errors.Is(err, ipmi.ErrAuth):
		return Refused
	case errors.Is(err, ErrUnsupported), errors.Is(err, ipmi.ErrRefused):
		return Missing
	case errors.Is(err, redfish.ErrProtocol):
		return Garbled
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, ipmi.ErrNoAnswer),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, new(net.Error)):
		return Unreachable
	}
	return Garbled
}

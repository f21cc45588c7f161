package collectors

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
)

// Errors that tell the runner what kind of failure to count. A collector wraps
// them; network failures are told apart without them.
var (
	// ErrAuth says that the device refused the credentials.
	ErrAuth = errors.New("credentials refused")
	// ErrProtocol says that the device's answer could not be understood.
	ErrProtocol = errors.New("answer not understood")

	errPanic = errors.New("panic")
)

// errorKind names an error in a metric label, out of a small closed set.
func errorKind(err error) string {
	var dns *net.DNSError
	var ne net.Error
	switch {
	case errors.Is(err, errPanic):
		return "panic"
	case errors.Is(err, ErrAuth):
		return "auth"
	case errors.Is(err, ErrProtocol):
		return "protocol"
	case errors.As(err, &dns):
		return "name"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &ne) && ne.Timeout():
		return "timeout"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &ne):
		return "network"
	case errors.Is(err, os.ErrNotExist), errors.Is(err, os.ErrPermission):
		return "file"
	}
	return "other"
}

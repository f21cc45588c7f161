package collectors

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Errors that tell the runner what kind of failure to count. A collector wraps
// them; network failures are told apart without them.
var (
	// ErrAuth says that the device refused the credentials.
	ErrAuth = errors.New("credentials refused")
	// ErrProtocol says that the device's answer could not be understood.
	ErrProtocol = errors.New("malformed answer")

	errPanic = errors.New("panic")
	// errState says that our own store of positions failed, which is no fault of a
	// device and no loss of contact with it.
	errState = errors.New("cannot read or store positions")
)

// StatusError tells what a gRPC call or stream came to as the runner tells failures apart;
// what names the service and its device.
func StatusError(what string, err error) error {
	if errors.Is(err, io.EOF) || status.Code(err) == codes.Canceled { // it ends, as a rule
		return fmt.Errorf("%s: target ended the stream: %w", what, io.ErrUnexpectedEOF)
	}
	switch status.Code(err) {
	case codes.Unauthenticated, codes.PermissionDenied:
		return fmt.Errorf("%w: %s: %w", ErrAuth, what, err)
	case codes.DeadlineExceeded:
		return fmt.Errorf("%s: %w: %w", what, context.DeadlineExceeded, err)
	case codes.Internal, codes.ResourceExhausted, codes.DataLoss:
		return fmt.Errorf("%w: %s: %w", ErrProtocol, what, err)
	case codes.Unavailable:
		return fmt.Errorf("%s: %w: %w", what, syscall.ECONNRESET, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// errorKind names an error in a metric label, out of a small closed set.
func errorKind(err error) string {
	var dns *net.DNSError
	var ne net.Error
	var path *os.PathError
	switch {
	case errors.Is(err, errPanic):
		return "panic"
	case errors.Is(err, errState):
		return "state"
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
	case errors.As(err, &path), errors.Is(err, os.ErrNotExist), errors.Is(err, os.ErrPermission):
		return "file" // before the network: a system call's error looks like both
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &ne):
		return "network"
	}
	return "other"
}

// guardedCursors marks the errors of cursors.
type guardedCursors struct{ Cursors }

// Cursor implements [Cursors].
func (g guardedCursors) Cursor(ctx context.Context, collector, device string) (string, error) {
	pos, err := g.Cursors.Cursor(ctx, collector, device)
	if err != nil {
		err = fmt.Errorf("%w: %w", errState, err)
	}
	return pos, err
}

// SetCursor implements [Cursors].
func (g guardedCursors) SetCursor(ctx context.Context, collector, device, position string) error {
	if err := g.Cursors.SetCursor(ctx, collector, device, position); err != nil {
		return fmt.Errorf("%w: %w", errState, err)
	}
	return nil
}

package sqldb

import (
	"context"
	"crypto/sha256"

	"github.com/google/uuid"
)

type requestKey struct{}

// WithRequest returns a context in which [NewID] gives the same id each time that a request
// with this name is made: what was stored before an answer was lost is found again.
func WithRequest(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, requestKey{}, uuid.NewHash(sha256.New(), uuid.Nil, []byte(name), 8))
}

// RequestID is the id that [NewID] gives of the request that a context has, "" where it has none.
func RequestID(ctx context.Context) string {
	if id, ok := ctx.Value(requestKey{}).(uuid.UUID); ok {
		return id.String()
	}
	return ""
}

// NewID returns the UUID of a record to be made: of the request (version 8) where the context
// has one, else of the time (version 7; RFC 9562).
func NewID(ctx context.Context) string {
	if id := RequestID(ctx); id != "" {
		return id
	}
	return uuid.Must(uuid.NewV7()).String()
}

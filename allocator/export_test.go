package allocator

import (
	"context"
	"time"

	"auspex/internal/store/allocations"
	"auspex/schemas"
)

// Give is what Allocate does, with the taking in the hands of the test.
func (s *Service) Give(ctx context.Context, r schemas.AllocationRequest, take func(parts []allocations.Part, exclusive bool) error) (schemas.Choice, error) {
	return s.give(ctx, &r, true, take)
}

// ReadAhead reads what was changed, as is done in the background, and returns what puts that into
// the view.
func (s *Service) ReadAhead(ctx context.Context) (put func() error) {
	s.turn <- struct{}{}
	s.reading, s.unread = make(chan struct{}), nil
	since, old := s.read, s.seen
	s.pass()
	c, err := s.changes(ctx, since, old)
	return func() error {
		s.turn <- struct{}{}
		defer s.pass()
		s.accept(c, err)
		return s.unread
	}
}

// SetClock has a service that is not at work go by another clock.
func (s *Service) SetClock(now func() time.Time) { s.now = now }

// Taken is how many promises are remembered that were kept, of a service that is not at work.
func (s *Service) Taken() int { return len(s.taken) }

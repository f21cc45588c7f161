package join

import "time"

// SetClock has the store go by another clock.
func (s *Store) SetClock(now func() time.Time) { s.now = now }

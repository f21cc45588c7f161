package access

import "time"

// MaxCodes is how many codes wait at a time.
const MaxCodes = maxCodes

// SetClock replaces the clock.
func (s *Store) SetClock(now func() time.Time) { s.now = now }

// Codes counts those that wait.
func (s *Store) Codes() int { return len(s.codes) }

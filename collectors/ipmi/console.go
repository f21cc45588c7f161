package ipmi

import (
	"context"
	"errors"
	"time"

	"auspex/internal/bmc/ipmi"
	"auspex/schemas"
)

const (
	consoleReads = time.Hour   // how often it is asked whether there is serial over LAN
	consoleTells = time.Minute // how often that is told, before a reading becomes stale
)

// solState is what is known of serial over LAN.
type solState struct {
	has, on        bool
	readAt, toldAt time.Time
}

// readConsole tells whether the controller takes serial over LAN: one session at a time, 0 where it is off. One that refuses to say
// has none.
func (r *reader) readConsole(ctx context.Context, now time.Time) error {
	s := &r.sol
	if s.readAt.IsZero() || now.Sub(s.readAt) >= consoleReads {
		on, err := r.conn.SOL(ctx)
		if err != nil && !errors.Is(err, ipmi.ErrRefused) {
			return err
		}
		*s = solState{has: err == nil, on: on, readAt: now}
	}
	if !s.has || now.Sub(s.toldAt) < consoleTells {
		return nil
	}
	s.toldAt = now
	v := 0.0
	if s.on {
		v = 1
	}
	r.batch.Sample(r.batch.Series(schemas.MetricConsoles, "", "", "console", schemas.ConsoleSerial, "protocol", "IPMI", "port", ""), now, v)
	return nil
}

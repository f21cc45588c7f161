package fleet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// sendLogs has every server send its kernel's lines over UDP, as its syslog daemon would (RFC 5424,
// RFC 5426). Who hears them or not changes nothing here.
func (f *Fleet) sendLogs() error {
	if f.cfg.Syslog == "" {
		return nil
	}
	conn, err := (&net.Dialer{}).DialContext(context.Background(), "udp", f.cfg.Syslog)
	if err != nil {
		return fmt.Errorf("syslog: %w", err)
	}
	f.syslog = conn
	for _, s := range f.servers {
		s.klog.Also(func(at time.Time, priority int, text string) {
			program := "kernel"
			if priority > 7 { // a daemon's
				program = "-"
			}
			_, err := fmt.Fprintf(conn, "<%d>1 %s %s %s - - - [%12.6f] %s", priority, at.UTC().Format("2006-01-02T15:04:05.000000Z"), s.name,
				program, at.Sub(s.klog.Booted()).Seconds(), text)
			if errors.Is(err, net.ErrClosed) {
				f.fail(err)
			}
		})
	}
	return nil
}

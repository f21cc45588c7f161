package bmc_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"testing"

	"auspex/internal/bmc"
	"auspex/internal/bmc/ipmi"
	"auspex/internal/bmc/redfish"
)

func TestWhatAnErrorOfAControllerMeans(t *testing.T) {
	status := func(n int) error { return fmt.Errorf("read sensors: %w", &redfish.StatusError{Status: n}) }
	for name, c := range map[string]struct {
		err  error
		want bmc.Kind
	}{
		"wrong password":            {status(401), bmc.Refused},
		"wrong password over IPMI":  {fmt.Errorf("open: %w", ipmi.ErrAuth), bmc.Refused},
		"not for this user":         {status(403), bmc.Missing},
		"not there":                 {status(404), bmc.Missing},
		"no such operation":         {fmt.Errorf("reset: %w", bmc.ErrUnsupported), bmc.Missing},
		"its own trouble":           {status(500), bmc.Garbled},
		"too busy":                  {status(503), bmc.Garbled},
		"no JSON":                   {fmt.Errorf("%w: x", redfish.ErrProtocol), bmc.Garbled},
		"no answer over IPMI":       {ipmi.ErrNoAnswer, bmc.Unreachable},
		"connection refused":        {&url.Error{Err: &net.OpError{Op: "dial", Err: io.EOF}}, bmc.Unreachable},
		"an answer that breaks off": {io.ErrUnexpectedEOF, bmc.Unreachable},
		"time is up":                {context.DeadlineExceeded, bmc.Unreachable},
	} {
		if got := bmc.KindOf(c.err); got != c.want {
			t.Errorf("%s: kind %d, want %d", name, got, c.want)
		}
	}
}

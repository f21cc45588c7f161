package ipmi

import (
	"context"

	"github.com/bougou/go-ipmi/pkg/client"
	"github.com/bougou/go-ipmi/pkg/types"
)

// thisChannel is the one that a request comes by (IPMI 2.0, section 6.3).
const thisChannel = 0x0e

// SOL reports whether the controller takes serial over LAN (section 26.3). An error that wraps [ErrRefused] is of one that has none.
func (c *Conn) SOL(ctx context.Context) (on bool, err error) {
	err = c.do(ctx, "read serial over LAN", func(cl *client.Client) error {
		var p types.SOLConfigParam_SOLEnable
		err := cl.GetSOLConfigParamFor(ctx, thisChannel, &p)
		on = p.EnableSOLPayload
		return err
	})
	return on, err
}

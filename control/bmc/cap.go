package bmc

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"auspex/control"
	"auspex/internal/bmc"
)

// The ways of limiting a server, as they are told and kept.
const (
	wayRedfish = "Redfish PowerLimit"
	wayDCMI    = "DCMI"
)

// capper limits servers through their controllers: over Redfish, else over DCMI where the controller has an address for it.
type capper struct {
	open func(ctx context.Context, server, way string) (bmc.Client, error)
	ways []string
}

// Capper implements [control.Limiter].
func (c *Config) Capper(s control.Settings) (control.Capper, error) {
	trusted, err := c.Client()
	if err != nil {
		return nil, err
	}
	return capper{ways: []string{wayRedfish, wayDCMI}, open: func(ctx context.Context, server, way string) (bmc.Client, error) {
		t, err := c.target(ctx, s, server)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", control.ErrCannot, err)
		}
		if way == wayDCMI {
			t.RedfishURL = ""
		} else {
			t.IPMIAddr = ""
		}
		if t.RedfishURL == "" && t.IPMIAddr == "" {
			return nil, errNoWay
		}
		t.TLS = trusted
		return bmc.Open(ctx, t)
	}}, nil
}

// errNoWay is of a controller that has no address for a protocol.
var errNoWay = fmt.Errorf("%w: no address for the protocol", control.ErrCannot)

// Whole implements control.Capper.
func (capper) Whole() bool { return true }

// Use implements control.Capper.
func (c capper) Use(ctx context.Context, server, way string) (control.Use, error) {
	out := control.Use{Draw: math.NaN()}
	read, others := false, way != "" && !slices.Contains(c.ways, way) // another limits it: what it draws alone is asked for
	var errs []error
	for _, w := range c.ways {
		if way != "" && way != w && !others {
			continue
		}
		one, err := c.use(ctx, server, w)
		if errors.Is(err, errNoWay) {
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		read = true
		draw := out.Draw
		if math.IsNaN(draw) {
			draw = one.Draw
		}
		if one.Settable && !others {
			out = control.Use{Limit: one.Limit, Min: one.Min, Max: one.Max, Way: w, Is: text(one.Limit)}
		}
		if out.Draw = draw; one.Settable && !others || others && !math.IsNaN(draw) {
			break
		}
	}
	if !read && len(errs) > 0 {
		return out, errors.Join(errs...)
	}
	return out, nil
}

func (c capper) use(ctx context.Context, server, way string) (bmc.PowerUse, error) {
	api, err := c.open(ctx, server, way)
	if err != nil {
		return bmc.PowerUse{}, err
	}
	defer func() { _ = api.Close(ctx) }()
	return api.PowerUse(ctx)
}

// text writes a limit; "" is none.
func text(watts float64) string {
	if watts <= 0 {
		return ""
	}
	return strconv.FormatFloat(watts, 'f', -1, 64)
}

// To implements control.Capper.
func (capper) To(_ control.Use, watts float64) (string, error) { return text(math.Round(watts)), nil }

// Set implements control.Capper.
func (c capper) Set(ctx context.Context, server, way, to, request string) error {
	watts := 0.0
	if to != "" {
		var err error
		if watts, err = strconv.ParseFloat(to, 64); err != nil {
			return fmt.Errorf("%w: the limit %q of %s: %w", control.ErrRejected, to, server, err)
		}
	}
	api, err := c.open(ctx, server, way)
	if err != nil {
		return fmt.Errorf("%w: %w", control.ErrRejected, err)
	}
	defer func() { _ = api.Close(ctx) }()
	return refusal(api.LimitPower(ctx, watts, request))
}

package main

import (
	"context"
	"fmt"
	"time"

	"auspex/control"
	"auspex/control/power"
	"auspex/internal/bmc"
	"auspex/schemas"
)

// openBMC opens the board controller of a server for control.
func (s *stack) openBMC(ctx context.Context, server string) (power.BMC, error) {
	r, ok := s.inv.Snapshot().Resource(server)
	if !ok {
		return nil, fmt.Errorf("%w: %s is not in the inventory", control.ErrCannot, server)
	}
	c := s.cfg.Control.BMC
	t := bmc.Target{Server: server, RedfishURL: r.Attrs[schemas.AttrRedfishURL], IPMIAddr: r.Attrs[schemas.AttrIPMIIP], Timeout: c.Timeout, Gate: s.gate}
	switch c.Protocol {
	case "redfish":
		t.IPMIAddr = ""
	case "ipmi":
		t.RedfishURL = ""
	}
	if t.RedfishURL == "" && t.IPMIAddr == "" {
		return nil, fmt.Errorf("%w: %s has no redfish_url and no ipmi_ip in the inventory", control.ErrCannot, server)
	}
	var err error
	if ref := r.Attrs[schemas.AttrCredential]; ref != "" {
		if t.User, t.Password, err = s.secrets.Secret(ctx, ref); err != nil {
			return nil, fmt.Errorf("%w: %w", control.ErrCannot, err)
		}
	}
	if t.TLS, err = c.Client(); err != nil {
		return nil, fmt.Errorf("%w: %w", control.ErrCannot, err)
	}
	client, err := bmc.Open(ctx, t)
	if err != nil {
		return nil, err
	}
	return powerBMC{client}, nil
}

// powerBMC is a board controller as a power cycle wants it.
type powerBMC struct{ c bmc.Client }

// PowerOn implements power.BMC.
func (b powerBMC) PowerOn(ctx context.Context) (bool, error) {
	p, err := b.c.Power(ctx)
	return p == bmc.PowerOn, err
}

// PowerCycle implements power.BMC.
func (b powerBMC) PowerCycle(ctx context.Context, request string) error {
	err := b.c.Reset(ctx, bmc.ResetPowerCycle, request)
	if bmc.Rejected(err) {
		return fmt.Errorf("%w: %w", control.ErrRejected, err)
	}
	return err
}

// LastReset implements power.BMC.
func (b powerBMC) LastReset(ctx context.Context) (t time.Time, skew time.Duration, ok bool, err error) {
	r, has := b.c.(interface {
		LastReset(context.Context) (t, now time.Time, ok bool, err error)
	})
	if !has {
		return t, 0, false, nil
	}
	began := time.Now()
	t, now, ok, err := r.LastReset(ctx)
	if !now.IsZero() {
		skew = now.Sub(began)
	}
	return t, skew, ok, err
}

// Close implements power.BMC.
func (b powerBMC) Close(ctx context.Context) error { return b.c.Close(ctx) }

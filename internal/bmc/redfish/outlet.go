package redfish

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Outlet is one of a power distribution unit (DSP2046, Outlet).
type Outlet struct {
	Path  string
	State string        // On, Off, PoweringOn or PoweringOff
	Delay time.Duration // of a cycle: how long it is off; 0 where the unit does not say

	target  string
	allowed []string
}

// Takes reports whether an outlet can be told a state: On, Off or PowerCycle.
func (o *Outlet) Takes(state string) bool { return o.target != "" && has(o.allowed, state) }

// Outlet finds an outlet of a unit by its path, or by its id among those of all units that the
// service has.
func (c *Client) Outlet(ctx context.Context, id string) (Outlet, error) {
	if strings.HasPrefix(id, "/") {
		o, err := c.Get(ctx, id)
		return outlet(o), err
	}
	root, err := c.Root(ctx)
	if err != nil {
		return Outlet{}, err
	}
	equipment, err := c.Get(ctx, orDefault(root.Link("PowerEquipment"), "/redfish/v1/PowerEquipment"))
	if err != nil {
		return Outlet{}, fmt.Errorf("read the power equipment of %s: %w", c.base.Host, err)
	}
	units, _, err := c.Members(ctx, orDefault(equipment.Link("RackPDUs"), "/redfish/v1/PowerEquipment/RackPDUs"))
	if err != nil {
		return Outlet{}, fmt.Errorf("list the units of %s: %w", c.base.Host, err)
	}
	var found []Object
	for _, u := range units {
		if u.Link("Outlets") == "" {
			continue
		}
		all, err := c.List(ctx, u.Link("Outlets"))
		if err != nil && !errors.Is(err, ErrNotFound) {
			return Outlet{}, fmt.Errorf("list the outlets of %s: %w", u.ID(), err)
		}
		for _, o := range all {
			if path := o.ID(); o.String("Id") == id || path[strings.LastIndex(path, "/")+1:] == id {
				found = append(found, o)
			}
		}
	}
	if len(found) != 1 {
		return Outlet{}, fmt.Errorf("%w: %d outlets %q at %s", ErrNotFound, len(found), id, c.base.Host)
	}
	if found[0].IsLink() {
		if found[0], err = c.Get(ctx, found[0].ID()); err != nil {
			return Outlet{}, err
		}
	}
	return outlet(found[0]), nil
}

func outlet(o Object) Outlet {
	action := o.Object("Actions").Object("#Outlet.PowerControl")
	delay, _ := o.Number("PowerCycleDelaySeconds")
	return Outlet{
		Path: o.ID(), State: o.String("PowerState"), Delay: time.Duration(delay * float64(time.Second)), target: action.String("target"),
		allowed: action.Strings("PowerState@Redfish.AllowableValues"),
	}
}

// SwitchOutlet posts Outlet.PowerControl, once: On, Off or PowerCycle. gofish v0.23.0 names the parameter
// OutletPowerState, which is none of the schema's.
func (c *Client) SwitchOutlet(ctx context.Context, o *Outlet, state, requestID string) error {
	if !o.Takes(state) {
		return fmt.Errorf("%w: %s takes no %s", ErrNotFound, o.Path, state)
	}
	return c.post(ctx, o.target, map[string]string{"PowerState": state}, requestID)
}

// CycleChassis posts Chassis.Reset with PowerCycle, once, to the chassis of the system. Where none
// offers it, the error is ErrNotFound.
func (c *Client) CycleChassis(ctx context.Context, dry bool, requestID string) error {
	s, err := c.System(ctx)
	if err != nil {
		return before(err)
	}
	for _, l := range s.Object("Links").Objects("Chassis") {
		o, err := c.Get(ctx, l.ID())
		if err != nil {
			return before(err)
		}
		action := o.Object("Actions").Object("#Chassis.Reset")
		if target := action.String("target"); target != "" && slices.Contains(action.Strings("ResetType@Redfish.AllowableValues"), "PowerCycle") {
			if dry {
				return nil
			}
			return c.post(ctx, target, map[string]string{"ResetType": "PowerCycle"}, requestID)
		}
	}
	return fmt.Errorf("%w: no chassis of %s can be power-cycled", ErrNotFound, s.ID())
}

package bmc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"auspex/control"
	"auspex/control/messages"
	"auspex/internal/bmc"
	"auspex/internal/bmc/redfish"
	"auspex/schemas"
)

// mains is the remediator of ac_cycle: a server is without its mains for a while, its board
// controller too. All its outlets are off at the same time, or the other feed would carry it through.
type mains struct {
	hand
	outlets func(server string) []control.Outlet
	unit    func(ctx context.Context, pdu schemas.Resource) (bmc.Client, error)
	off     time.Duration

	seen notes[dark]
}

// dark is what is known of a step.
type dark struct {
	off  bool // all its outlets were read off at the same time
	away bool // nobody listened at the address of its controller
}

// overlap is the least time for which an outlet that cycles by itself is off, so that those of the
// other feeds are switched meanwhile.
const overlap = 4 * time.Second

// point is an outlet that was found at its unit.
type point struct {
	name string // "outlet 4 of pdu-r01-a"
	api  *redfish.Client
	is   redfish.Outlet
}

// reach opens the units of a server and finds its outlets. No outlets without an error means that the
// inventory has none.
func (m *mains) reach(ctx context.Context, server string) (points []point, end func(), err error) {
	end = func() {}
	if m.outlets == nil {
		return nil, end, nil
	}
	all := m.outlets(server)
	if !slices.ContainsFunc(all, func(o control.Outlet) bool { return o.ID != "" }) {
		return nil, end, nil
	}
	for _, o := range all {
		switch {
		case o.PDU.ID == "":
			return nil, end, fmt.Errorf("%w: the inventory does not say which PDU powers %s", control.ErrCannot, o.Supply)
		case o.ID == "":
			return nil, end, fmt.Errorf("%w: the inventory does not say on which outlet of %s %s hangs: set outlet", control.ErrCannot, o.PDU.ID, o.Supply)
		case address(o.PDU) == "":
			return nil, end, fmt.Errorf("%w: the inventory has no outlet_url of %s", control.ErrCannot, o.PDU.ID)
		}
	}
	// In one order for everybody, so that nobody waits for who waits for them.
	slices.SortFunc(all, func(a, b control.Outlet) int {
		return cmp.Or(strings.Compare(a.PDU.ID, b.PDU.ID), strings.Compare(a.ID, b.ID))
	})
	units := map[string]bmc.Client{}
	end = func() {
		for _, c := range units {
			_ = c.Close(ctx)
		}
	}
	for _, o := range slices.CompactFunc(all, func(a, b control.Outlet) bool { return a.PDU.ID == b.PDU.ID && a.ID == b.ID }) {
		c := units[o.PDU.ID]
		if c == nil {
			if c, err = m.unit(ctx, o.PDU); err != nil {
				end()
				return nil, func() {}, err
			}
			units[o.PDU.ID] = c
		}
		api, _ := bmc.Redfish(c)
		is, err := api.Outlet(ctx, o.ID)
		if err != nil {
			end()
			return nil, func() {}, cannot(err)
		}
		points = append(points, point{"outlet " + o.ID + " of " + o.PDU.ID, api, is})
	}
	return points, end, nil
}

// address is where the outlets of a unit are switched.
func address(pdu schemas.Resource) string {
	return cmp.Or(pdu.Attrs.Get(schemas.AttrOutletURL), pdu.Attrs.Get(schemas.AttrRedfishURL))
}

func named(points []point) string {
	var out []string
	for _, p := range points {
		out = append(out, p.name)
	}
	return strings.Join(out, ", ")
}

// Plan implements control.Remediator.
func (m *mains) Plan(ctx context.Context, s control.Step) (schemas.Sentence, error) {
	points, end, err := m.reach(ctx, s.Server)
	if err != nil {
		return schemas.Sentence{}, err
	}
	defer end()
	where := named(points)
	if len(points) == 0 {
		where = "its chassis"
		err = m.read(ctx, s.Server, func(c controller) error {
			api, err := c.redfish(s)
			if err != nil {
				return err
			}
			return cannot(api.CycleChassis(ctx, true, s.ID))
		})
	}
	for _, p := range points {
		if !p.is.Takes("Off") && !p.is.Takes("PowerCycle") {
			err = fmt.Errorf("%w: %s cannot be switched", control.ErrCannot, p.name)
		}
	}
	return messages.New(messages.WouldACCycle, messages.Args{"server": s.Server, "outlets": where}), err
}

// Lasts implements control.Lasting.
func (m *mains) Lasts() time.Duration { return 2*m.off + time.Minute }

// Apply implements control.Remediator. Where the units cycle outlets by themselves they do, so that the mains comes
// back whatever becomes of us.
func (m *mains) Apply(ctx context.Context, s control.Step) error {
	points, end, err := m.reach(ctx, s.Server)
	if err != nil {
		return fmt.Errorf("%w: %w", control.ErrRejected, err)
	}
	defer end()
	if len(points) == 0 {
		return m.do(ctx, s.Server, func(c controller) error {
			api, err := c.redfish(s)
			if err != nil {
				return err
			}
			return refusal(api.CycleChassis(ctx, false, s.ID))
		})
	}
	for _, p := range points {
		if p.is.State != "On" {
			return fmt.Errorf("%w: %s is %s: the mains of %s is not as it should be", control.ErrRejected, p.name, p.is.State, s.Server)
		}
	}
	if !slices.ContainsFunc(points, func(p point) bool { return !p.is.Takes("PowerCycle") || p.is.Delay < overlap }) {
		return m.each(ctx, s, points, "PowerCycle")
	}
	for _, p := range points {
		if !p.is.Takes("Off") || !p.is.Takes("On") {
			return fmt.Errorf("%w: %s cannot be switched off and on", control.ErrRejected, p.name)
		}
	}
	if err := m.each(ctx, s, points, "Off"); errors.Is(err, control.ErrRejected) {
		return err
	} else if err == nil {
		err = m.wait(ctx, s, points)
		return errors.Join(err, m.back(ctx, s, points))
	} else {
		return errors.Join(err, m.back(ctx, s, points))
	}
}

// each switches outlets, one after the other. Only where the first is refused was nothing done.
func (*mains) each(ctx context.Context, s control.Step, points []point, state string) error {
	for i, p := range points {
		if err := p.api.SwitchOutlet(ctx, &p.is, state, s.ID); err != nil {
			if i == 0 {
				return refusal(err)
			}
			return fmt.Errorf("switch %s %s, after %d others: %w", p.name, state, i, err)
		}
	}
	return nil
}

// wait waits until all outlets are off, and then for the time in which what is left in the supplies is used up.
func (m *mains) wait(ctx context.Context, s control.Step, points []point) error {
	for deadline := time.Now().Add(m.off); ; {
		states, off, _, err := read(ctx, points)
		if err == nil && off {
			m.seen.about(s.ID).off = true
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not all outlets of %s are off: %s", s.Server, states)
		}
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
	}
	return pause(ctx, m.off)
}

// back gives the mains back, also where the step was given up in between.
func (m *mains) back(ctx context.Context, s control.Step, points []point) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	var errs []error
	for _, p := range points {
		if err := p.api.SwitchOutlet(ctx, &p.is, "On", s.ID); err != nil {
			errs = append(errs, fmt.Errorf("switch %s on again: %w", p.name, errors.New(err.Error())))
		}
	}
	return errors.Join(errs...)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// read reads the states of outlets.
func read(ctx context.Context, points []point) (states string, off, on bool, err error) {
	off, on = true, true
	var out []string
	for _, p := range points {
		is, err := p.api.Outlet(ctx, p.is.Path)
		if err != nil {
			return "", false, false, err
		}
		off, on = off && is.State == "Off", on && is.State == "On"
		out = append(out, p.name+" "+is.State)
	}
	return strings.Join(out, ", "), off, on, nil
}

// Verify implements control.Remediator. That the outlets did what they were told is not enough: the
// controller, which lives on standby power, must have started anew.
func (m *mains) Verify(ctx context.Context, s control.Step) (v control.Verdict, observed schemas.Sentence, err error) {
	points, end, err := m.reach(ctx, s.Server)
	if err != nil {
		return control.Pending, observed, err
	}
	states, off, on, err := read(ctx, points)
	end()
	if err != nil {
		return control.Pending, observed, err
	}
	of := m.seen.about(s.ID)
	of.off = of.off || off && len(points) > 0
	where := named(points)
	if len(points) == 0 {
		where = "its chassis"
	}
	args := messages.Args{"server": s.Server, "outlets": where, "states": states}
	if !on {
		return control.Pending, messages.New(messages.ACAway, args), nil
	}
	err = m.hand.read(ctx, s.Server, func(c controller) error {
		started, err := m.started(ctx, c, s, of)
		if err != nil {
			return err
		}
		power, err := c.c.Power(ctx)
		if err != nil {
			return err
		}
		args["power"] = string(power)
		switch {
		case started && power == bmc.PowerOn:
			v, observed = control.Verified, messages.New(messages.ACBack, args)
			m.seen.forget(s.ID)
		case started:
			observed = messages.New(messages.PowerIs, args)
		default:
			observed = messages.New(messages.ACUnseen, args)
		}
		return nil
	})
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" && ctx.Err() == nil {
		of.away = true
	}
	return v, observed, err
}

// started looks for proof that the controller was without power since the step: by its own start where it
// tells, by having been away where it speaks another protocol or does not tell.
func (*mains) started(ctx context.Context, c controller, s control.Step, of *dark) (bool, error) {
	api, ok := bmc.Redfish(c.c)
	if !ok {
		return of.away, nil
	}
	began := time.Now()
	man, err := api.Manager(ctx)
	if err != nil {
		return false, err
	}
	reset, told := man.Time("LastResetTime")
	now, clock := man.Time("DateTime")
	if !told || !clock {
		return of.away, nil
	}
	skew := now.Sub(began)
	return !reset.Add(-skew).Before(s.Since.Add(-2 * time.Second)), nil
}

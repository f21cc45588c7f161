package fleet

import (
	"fmt"
	"slices"
	"strconv"

	"auspex/internal/sim/device"
	"auspex/internal/sim/ledger"
)

// outletOf is the outlet of a power supply, at the PDU of its feed.
func outletOf(s *server, supply int) string {
	return strconv.Itoa(s.index*psuCount/2 + supply%(psuCount/2) + 1)
}

// PDU returns a power distribution unit, or nil for a name that is not one.
func (f *Fleet) PDU(name string) device.PDU {
	p, ok := f.pdus[name]
	if !ok {
		return nil
	}
	return &pduView{f, p}
}

type pduView struct {
	f *Fleet
	p *pdu
}

// Info implements device.PDU.
func (v *pduView) Info() device.Info {
	return device.Info{Name: v.p.name, Manufacturer: "Auspex Simulations", Model: "AX-PDU 48", Serial: "PD" + digest(v.f.cfg.Site, v.p.name)[:10], Firmware: "3.1.0", Users: []string{User}}
}

// Password implements device.PDU.
func (v *pduView) Password(user string) (string, bool) { return v.f.Password(), user == User }

// Fault implements device.PDU: without its feed nothing answers.
func (v *pduView) Fault() device.Fault {
	v.f.mu.Lock()
	defer v.f.mu.Unlock()
	return device.Fault{Away: !v.p.live, IgnoreSets: v.p.stuck}
}

// Outlets implements device.PDU.
func (v *pduView) Outlets() (out []device.Outlet) {
	v.f.mu.Lock()
	defer v.f.mu.Unlock()
	for _, s := range v.p.rack.servers {
		for i := range s.psus {
			if s.feedOf(i) == v.p.feed {
				out = append(out, device.Outlet{ID: outletOf(s, i), Feeds: fmt.Sprintf("%s/psu%d", s.name, i), On: !s.psus[i].off})
			}
		}
	}
	return out
}

// Switch implements device.PDU.
func (v *pduView) Switch(id, state, requestID string) error {
	v.f.mu.Lock()
	defer v.f.mu.Unlock()
	if !slices.Contains([]string{"On", "Off", "PowerCycle"}, state) {
		return fmt.Errorf("outlet state %q: %w", state, device.ErrUnsupported)
	}
	for _, s := range v.p.rack.servers {
		for i := range s.psus {
			if s.feedOf(i) != v.p.feed || outletOf(s, i) != id {
				continue
			}
			v.f.now = v.f.clock()
			e := ledger.Entry{Time: v.f.now, Kind: ledger.KindOutlet, Device: v.p.name, Part: id, Protocol: "redfish", Type: "accepted", Code: state, RequestID: requestID}
			if v.p.stuck {
				e.Type = "ignored"
			}
			v.f.led.Write(e)
			if v.p.stuck {
				return nil
			}
			turn := func(off bool) {
				s.psus[i].off = off
				v.f.setInput(s, i, v.p.live && !off)
			}
			turn(state != "On")
			if state == "PowerCycle" {
				v.f.after(device.CycleDelay, func() { turn(false) })
			}
			return nil
		}
	}
	return fmt.Errorf("outlet %s of %s: %w", id, v.p.name, ErrUnknown)
}

// SetPDUStuck has the outlets of a PDU say yes to everything and stay as they are.
func (f *Fleet) SetPDUStuck(name string, stuck bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, ok := f.pdus[name]
	if !ok {
		return fmt.Errorf("pdu %q: %w", name, ErrUnknown)
	}
	p.stuck = stuck
	return nil
}

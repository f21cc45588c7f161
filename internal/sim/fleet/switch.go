package fleet

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"

	"auspex/internal/sim/device"
	"auspex/internal/sim/kmsg"
	"auspex/internal/sim/ledger"
	"auspex/schemas"
)

const (
	firstUplink  = 49
	portBPS      = 400_000_000_000
	switchFans   = 4
	fanSwitchRPM = 9000.0
)

type netSwitch struct {
	name    string
	tier    string
	rack    *rack // nil for a spine
	ports   []*port
	psus    [2]psu
	fans    [switchFans]float64
	temp    float64
	booted  time.Time
	down    bool
	fault   device.Fault
	watches map[chan struct{}]struct{}
}

type port struct {
	device.Port
	sw       *netSwitch
	peer     *port
	server   *server
	nic      int
	broken   bool    // this end or its cable is dead
	degraded float64 // dB per minute that the receiver loses
	loss     float64
	in, out  float64 // octets, with fractions
	rate     float64 // share of the line rate
	bad      float64

	// Of a BGP session over the port, which goes when the link goes and comes back
	// a while after it.
	bgp         bool
	bgpSince    time.Time
	established uint64
	address     netip.Addr
}

// bgpDelay is how long a session takes to be established over a link that is up.
const bgpDelay = 3 * time.Second

// firstAS is the number of the spines; each leaf has one of its own (RFC 7938,
// section 5.2.1).
const firstAS = 4200000000

func (f *Fleet) newSwitches() {
	add := func(name, tier string, rk *rack, n int) *netSwitch {
		sw := &netSwitch{
			name: name, tier: tier, rack: rk, temp: 38, watches: map[chan struct{}]struct{}{},
			booted: f.now.Add(-time.Duration(20+f.rng.IntN(200)) * 24 * time.Hour).Truncate(time.Second),
		}
		for i := range sw.psus {
			sw.psus[i] = psu{input: true, volts: 230, watts: 280}
		}
		for i := range sw.fans {
			sw.fans[i] = fanSwitchRPM
		}
		for i := range n {
			p := &port{sw: sw}
			p.Name, p.Index = fmt.Sprintf("Ethernet%d", i+1), i+1
			p.AdminUp, p.SpeedBPS = true, portBPS
			p.LastChange = sw.booted.Add(time.Minute)
			sw.ports = append(sw.ports, p)
		}
		f.switches = append(f.switches, sw)
		f.swByName[name] = sw
		return sw
	}
	optic := func(p *port) {
		p.Optic = true
		p.OpticSerial = "OP" + digest(p.sw.name, p.Name)[:10]
		p.in, p.out = float64(f.rng.Int64N(9e14)), float64(f.rng.Int64N(9e14))
	}
	for _, rk := range f.racks {
		rk.leaf = add(fmt.Sprintf("leaf-r%02d", rk.index+1), "leaf", rk, firstUplink-1+f.cfg.Spines)
		for i, s := range rk.servers {
			for n := range cabledNICs {
				p := rk.leaf.ports[i*cabledNICs+n]
				p.server, p.nic = s, n
				p.sees(s.name, s.macs[0], fmt.Sprintf("nic%d", n), s.macs[n])
				p.OperUp = true
				optic(p)
			}
		}
	}
	for i := range f.cfg.Spines {
		spine := add(fmt.Sprintf("spine-%02d", i+1), "spine", nil, len(f.racks))
		for r, rk := range f.racks {
			a, b := rk.leaf.ports[firstUplink-1+i], spine.ports[r]
			a.peer, b.peer = b, a
			a.OperUp, b.OperUp = true, true
			a.bgp, b.bgp, a.established, b.established = true, true, 1, 1
			n := uint16(r*f.cfg.Spines + i)
			a.address = netip.AddrFrom4([4]byte{10, 254, byte(n >> 7), byte(n << 1)}) // a /31 each (RFC 3021)
			b.address = a.address.Next()
			a.bgpSince, b.bgpSince = a.LastChange.Add(bgpDelay), b.LastChange.Add(bgpDelay)
			a.sees(spine.name, spine.mac(), b.Name, "")
			b.sees(rk.leaf.name, rk.leaf.mac(), a.Name, "")
			optic(a)
			optic(b)
		}
	}
}

// mac is a switch's own address.
func (sw *netSwitch) mac() string {
	d := digest("switch", sw.name)
	return fmt.Sprintf("28:99:3a:%s:%s:%s", d[:2], d[2:4], d[4:6])
}

// sees makes a port see a neighbour, as its LLDP agent tells it; agents differ: one tells no address of
// its chassis, one calls its port by the address, and one has no name.
func (p *port) sees(system, chassis, name, address string) {
	p.Neighbor, p.NeighborChassis, p.NeighborPort = system, chassis, name
	switch p.Index % 4 {
	case 0:
		p.NeighborChassis = ""
	case 1:
		p.NeighborPort = cmp.Or(address, name)
	case 2:
		p.Neighbor, p.NeighborPort = "", cmp.Or(address, name)
	}
}

func (f *Fleet) stepSwitch(sw *netSwitch, dt float64) {
	live := 0
	for i := range sw.psus {
		if sw.psus[i].input && !sw.psus[i].failed {
			live++
		}
	}
	for i := range sw.psus {
		p := &sw.psus[i]
		p.watts, p.volts = 0, 0
		if p.input {
			p.volts = 230 + f.noise(0.4)
			if !p.failed && live > 0 {
				p.watts = 560/float64(live) + f.noise(3)
			}
		}
	}
	inlet := supplyCelsius + 2
	if sw.rack != nil {
		inlet = sw.rack.inlet
	}
	sw.temp = toward(sw.temp, inlet+17, dt, 30)
	for i := range sw.fans {
		sw.fans[i] = fanSwitchRPM + 60*(inlet-22) + f.noise(15)
	}
	if sw.down {
		return
	}
	for _, p := range sw.ports {
		if p.peer != nil && p.OperUp && !p.bgp && f.now.Sub(p.LastChange) >= bgpDelay {
			f.session(p, true)
		}
		if !p.OperUp {
			p.RxPowerDBm = -40
			if p.peerLaser() {
				p.RxPowerDBm = 1.1 - p.loss
			}
			continue
		}
		p.rate = 0.02
		switch {
		case p.server != nil:
			p.rate += 0.4 * p.server.busy()
		case p.peer != nil:
			p.rate += 0.3 * f.busy(p)
		}
		if f.settling {
			dt = 0
		}
		octets := p.rate * portBPS / 8 * dt
		p.in += octets * (1 + f.noise(0.02))
		p.out += octets * (1 + f.noise(0.02))
		p.loss += p.degraded * dt / 60
		if !p.Optic {
			continue
		}
		p.RxPowerDBm = 1.1 - p.loss + f.noise(0.03)
		p.TxPowerDBm = 1.6 + f.noise(0.02)
		p.LaserBiasMA = 62 + f.noise(0.2)
		p.ModuleTemp = sw.temp + 6 + f.noise(0.1)
		// Below about -6 dBm the forward error correction has more and more to do.
		exponent := -9.0 + 0.95*max(0, p.loss-1.5) + f.noise(0.05)
		p.PreFECBER = math.Pow(10, min(-1.5, exponent))
		if p.PreFECBER > 2.4e-4 { // beyond what RS(544,514) corrects
			n := f.poisson(min(500, (p.PreFECBER/2.4e-4)*3) * dt)
			p.bad += n
		}
		if p.loss > 11 && !p.broken {
			p.broken = true
			f.links(sw)
		}
	}
}

func (p *port) peerLaser() bool {
	switch {
	case p.broken:
		return false
	case p.peer != nil:
		return !p.peer.sw.down
	case p.server != nil:
		return p.server.power == device.PowerOn
	}
	return false
}

func (s *server) busy() float64 {
	var u float64
	for i := range s.gpus {
		u += s.gpus[i].util
	}
	return u / float64(len(s.gpus))
}

// busy is the mean load of the rack behind an uplink.
func (f *Fleet) busy(p *port) float64 {
	rk := p.sw.rack
	if rk == nil {
		rk = p.peer.sw.rack
	}
	var u float64
	for _, s := range rk.servers {
		u += s.busy()
	}
	return u / float64(len(rk.servers))
}

// links computes which ports of a switch, and of its peers, are up, and tells
// the hosts that lose or regain a link.
func (f *Fleet) links(sw *netSwitch) {
	for _, p := range sw.ports {
		f.link(p)
		if p.peer != nil {
			f.link(p.peer)
		}
	}
}

func (f *Fleet) link(p *port) {
	up := p.AdminUp && !p.broken && !p.sw.down
	switch {
	case p.peer != nil:
		up = up && !p.peer.broken && !p.peer.sw.down && p.peer.AdminUp
	case p.server != nil:
		up = up && p.server.power == device.PowerOn && !p.server.nics[p.nic].down
	default:
		up = false
	}
	if up != p.OperUp {
		p.OperUp = up
		p.LastChange = f.now
		p.Carrier++
		f.state(p.sw, p.Name, schemas.EventPortDown, map[bool]string{true: "UP", false: "DOWN"}[up])
		if s := p.server; s != nil {
			n := &s.nics[p.nic]
			if up {
				f.event(s, kmsg.Info, schemas.EventNICDown, "up", fmt.Sprintf("nic%d", p.nic), fmt.Sprintf("mlx5_core %s %s: Link up", n.pci, n.netif))
			} else {
				f.event(s, kmsg.Info, schemas.EventNICDown, "", fmt.Sprintf("nic%d", p.nic), fmt.Sprintf("mlx5_core %s %s: Link down", n.pci, n.netif))
				if p.sw.down {
					f.change(Change{Kind: NICDown, Server: s.name})
				}
			}
		}
		if p.peer != nil && !up && p.bgp {
			f.session(p, false)
		}
		p.sw.notify()
	}
}

// session changes the BGP session over a port.
func (f *Fleet) session(p *port, up bool) {
	p.bgp, p.bgpSince = up, f.now
	if up {
		p.established++
	}
	f.state(p.sw, p.Name, schemas.EventBGPSessionDown, p.sessionState())
	p.sw.notify()
}

func (p *port) sessionState() string {
	switch {
	case p.bgp:
		return "ESTABLISHED"
	case p.OperUp:
		return "ACTIVE"
	}
	return "IDLE"
}

// as is the switch's AS number.
func (sw *netSwitch) as() uint32 {
	if sw.rack == nil {
		return firstAS
	}
	return firstAS + 1 + uint32(sw.rack.index)
}

// nicLinks follows a change of a server's power on the switch's side.
func (f *Fleet) nicLinks(s *server) {
	if s.rack.leaf == nil {
		return
	}
	for n := range cabledNICs {
		f.link(s.rack.leaf.ports[s.index*cabledNICs+n])
	}
}

func (sw *netSwitch) notify() {
	for ch := range sw.watches {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// state notes what a subscriber to the switch is told.
func (f *Fleet) state(sw *netSwitch, part, typ, code string) {
	if sw.down {
		return
	}
	f.led.Write(ledger.Entry{Time: f.now, Kind: ledger.KindState, Device: sw.name, Part: part, Protocol: "gnmi", Type: typ, Code: code})
}

// setSwitchPSU gives a supply of a switch its input, or breaks it.
func (f *Fleet) setSwitchPSU(sw *netSwitch, i int, change func(p *psu)) {
	p := &sw.psus[i]
	before := p.input && !p.failed
	change(p)
	after := p.input && !p.failed
	f.switchPower(sw)
	if before != after {
		f.state(sw, fmt.Sprintf("psu%d", i+1), schemas.EventSwitchPSU, map[bool]string{true: "ACTIVE", false: "INACTIVE"}[after])
	}
}

// switchPower re-computes whether a switch has power at all.
func (f *Fleet) switchPower(sw *netSwitch) {
	live := false
	for _, p := range sw.psus {
		live = live || p.input && !p.failed
	}
	f.setSwitchDown(sw, !live)
	sw.notify()
}

func (f *Fleet) setSwitchDown(sw *netSwitch, down bool) {
	if sw.down == down {
		return
	}
	sw.down = down
	if !down {
		sw.booted = f.now.Truncate(time.Second)
	}
	f.links(sw)
}

// Switch returns a switch, or nil for a name that is not one.
func (f *Fleet) Switch(name string) device.Switch {
	sw, ok := f.swByName[name]
	if !ok {
		return nil
	}
	return &swView{f, sw}
}

type swView struct {
	f  *Fleet
	sw *netSwitch
}

func (v *swView) Info() device.Info {
	return device.Info{
		Name: v.sw.name, Manufacturer: "Auspex Simulations", Model: "AX-64x400", Serial: "SW" + digest(v.f.cfg.Site, v.sw.name)[:10],
		UUID: uuidOf(v.f.cfg.Site, v.sw.name), Firmware: "4.12.1",
	}
}

func (v *swView) Password(user string) (string, bool) {
	if user != User {
		return "", false
	}
	return v.f.Password(), true
}

func (v *swView) BootTime() time.Time {
	v.f.mu.Lock()
	defer v.f.mu.Unlock()
	return v.sw.booted
}

func (v *swView) Ports() []device.Port {
	v.f.mu.Lock()
	defer v.f.mu.Unlock()
	out := make([]device.Port, 0, len(v.sw.ports))
	for _, p := range v.sw.ports {
		x := p.Port
		x.InOctets, x.OutOctets = uint64(p.in), uint64(p.out)
		x.InPkts, x.OutPkts = uint64(p.in/3800), uint64(p.out/3800)
		x.InFCSErrors = uint64(p.bad)
		x.InErrors = uint64(p.bad)
		out = append(out, x)
	}
	return out
}

func (v *swView) Components() []device.Component {
	v.f.mu.Lock()
	defer v.f.mu.Unlock()
	sw := v.sw
	var out []device.Component
	for i, p := range sw.psus {
		c := device.Component{
			Name: fmt.Sprintf("PSU%d", i+1), Type: "POWER_SUPPLY", Oper: "ACTIVE", PowerWatts: tenth(p.watts), InputVolts: tenth(p.volts),
			Temperature: tenth(sw.temp - 3),
		}
		if !p.input || p.failed {
			c.Oper = "INACTIVE"
		}
		out = append(out, c)
	}
	for i, rpm := range sw.fans {
		out = append(out, device.Component{Name: fmt.Sprintf("FAN%d", i+1), Type: "FAN", Oper: "ACTIVE", FanRPM: math.Round(rpm)})
	}
	return append(
		out,
		device.Component{Name: "CPU0", Type: "CPU", Oper: "ACTIVE", Temperature: tenth(sw.temp + 12)},
		device.Component{Name: "Ambient", Type: "SENSOR", Oper: "ACTIVE", Temperature: tenth(sw.temp - 12)},
	)
}

func (v *swView) Sessions() []device.Session {
	v.f.mu.Lock()
	defer v.f.mu.Unlock()
	var out []device.Session
	for _, p := range v.sw.ports {
		if p.peer == nil {
			continue
		}
		out = append(out, device.Session{
			Neighbor: p.peer.address.String(), Description: p.peer.sw.name + " " + p.peer.Name, Local: v.sw.as(), Peer: p.peer.sw.as(),
			State: p.sessionState(), Since: p.bgpSince, Established: p.established, Port: p.Name, Address: p.address.String(), PrefixBits: 31,
		})
	}
	return out
}

func (v *swView) Watch() (<-chan struct{}, func()) {
	ch := make(chan struct{}, 1)
	v.f.mu.Lock()
	defer v.f.mu.Unlock()
	v.sw.watches[ch] = struct{}{}
	return ch, func() {
		v.f.mu.Lock()
		defer v.f.mu.Unlock()
		delete(v.sw.watches, ch)
	}
}

func (v *swView) Now() time.Time {
	v.f.mu.Lock()
	defer v.f.mu.Unlock()
	return v.f.clock()
}

func (v *swView) Fault() device.Fault {
	v.f.mu.Lock()
	defer v.f.mu.Unlock()
	x := v.sw.fault
	x.Mute = x.Mute || v.sw.down
	return x
}

// PortsOf returns the names of the ports of a switch that have a cable, in order.
func (f *Fleet) PortsOf(name string) []string {
	sw, ok := f.swByName[name]
	if !ok {
		return nil
	}
	var out []string
	for _, p := range sw.ports {
		if p.server != nil || p.peer != nil {
			out = append(out, sw.name+"/"+p.Name)
		}
	}
	return slices.Clip(out)
}

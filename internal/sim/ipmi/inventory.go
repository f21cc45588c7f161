package ipmi

import (
	"encoding/binary"
	"math"
	"net"
	"strings"
	"time"

	"auspex/internal/sim/device"
)

// fruData is the inventory of the machine (IPMI Platform Management FRU Information
// Storage Definition, v1.0 rev. 1.3): chassis, board and product.
func fruData(i *device.Info) []byte {
	chassis := fruArea([]byte{0x17}, i.Model, i.Serial) // 17h: rack mount chassis
	board := fruArea([]byte{0, 0, 0, 0}, i.Manufacturer, i.Model+" baseboard", i.Serial, i.Model, "")
	product := fruArea([]byte{0}, i.Manufacturer, i.Model, i.Model, i.Firmware, i.Serial, i.Name, "")
	head := []byte{1, 0, 1, byte(1 + len(chassis)/8), byte(1 + (len(chassis)+len(board))/8), 0, 0}
	out := append(head, checksum(head))
	return append(append(append(out, chassis...), board...), product...)
}

// fruArea is one area: its own head, fields of a type and a length, the end's mark,
// padding to eight bytes and a checksum (section 8).
func fruArea(head []byte, fields ...string) []byte {
	out := append([]byte{1, 0}, head...)
	for _, f := range fields {
		f = f[:min(len(f), 0x3f)]
		if len(f) == 1 {
			f += " " // C1h would be the end
		}
		out = append(append(out, 0xc0|byte(len(f))), f...)
	}
	out = append(out, 0xc1)
	for len(out)%8 != 7 {
		out = append(out, 0)
	}
	out[1] = byte((len(out) + 1) / 8)
	return append(out, checksum(out))
}

// fruInfo is Get FRU Inventory Area Info (section 34.1); the machine is device 0.
func (s *Server) fruInfo(r request) ([]byte, byte) {
	if r.data[0] != 0 {
		return nil, ccNotPresent
	}
	info := s.b.Info()
	return append(binary.LittleEndian.AppendUint16(nil, uint16(len(fruData(&info)))), 0), ccOK
}

// fruRead is Read FRU Data (section 34.2).
func (s *Server) fruRead(r request) ([]byte, byte) {
	if r.data[0] != 0 {
		return nil, ccNotPresent
	}
	info := s.b.Info()
	part, cc := slice(fruData(&info), int(binary.LittleEndian.Uint16(r.data[1:])), int(r.data[3]))
	return append([]byte{byte(len(part))}, part...), cc
}

const maxUsers = 10

// users are the names by user id; 1 is the anonymous user, which is disabled.
func (s *Server) user(id byte) string {
	if names := s.b.Info().Users; id >= 2 && int(id-2) < len(names) {
		return names[id-2]
	}
	return ""
}

// userAccess is Get User Access (section 22.27).
func (s *Server) userAccess(r request) ([]byte, byte) {
	id := r.data[1] & 0x3f
	if id == 0 || id > maxUsers {
		return nil, ccRange
	}
	access := byte(0x0f) // no access
	if s.user(id) != "" {
		access = 0x30 | privilegeAdmin // messages and link authentication
	}
	return []byte{maxUsers, byte(len(s.b.Info().Users)), 1, access}, ccOK
}

// userName is Get User Name (section 22.29).
func (s *Server) userName(r request) ([]byte, byte) {
	id := r.data[0] & 0x3f
	if id == 0 || id > maxUsers {
		return nil, ccRange
	}
	out := make([]byte, 16)
	copy(out, s.user(id))
	return out, ccOK
}

// lanParameter is Get LAN Configuration Parameters (section 23.2, table 23-4). The
// address is the one that the controller answers on.
func (s *Server) lanParameter(r request) ([]byte, byte) {
	if ch := r.data[0] & 0x0f; ch != 1 && ch != 0x0e {
		return nil, ccField
	}
	ip := make([]byte, 4)
	if v4 := s.local.To4(); v4 != nil {
		ip = v4
	}
	var data []byte
	switch r.data[1] {
	case 0, 1, 10, 11, 21: // set in progress, authentication of IPMI 1.5, ARP, VLAN priority
		data = []byte{0}
	case 2:
		data = make([]byte, 5)
	case 3:
		data = ip
	case 4:
		data = []byte{1} // static
	case 5:
		mac := make(net.HardwareAddr, 6)
		if macs := s.b.Info().MACs; len(macs) > 0 {
			if m, err := net.ParseMAC(macs[0]); err == nil && len(m) == 6 {
				mac = m
			}
		}
		data = mac
	case 6:
		data = net.CIDRMask(24, 32)
		if s.local.IsLoopback() {
			data = net.CIDRMask(8, 32)
		}
	case 7:
		data = []byte{0x40, 0x40, 0x10}
	case 12, 14:
		data = make([]byte, 4)
	case 13, 15:
		data = make([]byte, 6)
	case 16:
		data = append([]byte("public"), make([]byte, 12)...)
	case 20:
		data = make([]byte, 2)
	case 22:
		data = []byte{byte(len(suites))}
	case 23:
		data = []byte{0}
		for _, x := range suites {
			data = append(data, x.id)
		}
	case 24:
		data = make([]byte, 9)
		for i := range suites { // a nibble each
			data[1+i/2] |= privilegeAdmin << (4 * (i % 2))
		}
	case 26:
		data = make([]byte, 6)
	default:
		return nil, 0x80 // parameter is not supported
	}
	return append([]byte{0x11}, data...), ccOK
}

const groupDCMI = 0xdc

// draw is what the controller remembers of the power: over the readings that were
// asked for.
type draw struct {
	since    time.Time
	n        int
	sum      float64
	min, max float64
}

// dcmiCapabilities is Get DCMI Capability Info (DCMI 1.5, section 6.1.1): power
// management, over LAN.
func (s *Server) dcmiCapabilities(r request) ([]byte, byte) {
	if r.data[0] != groupDCMI {
		return nil, ccField
	}
	head := []byte{groupDCMI, 1, 5, 2}
	switch r.data[1] {
	case 1:
		return append(head, 0, 1, 0x07), ccOK
	case 2:
		return append(head, 0, 0, 0, 0, 0), ccOK
	case 3:
		return append(head, 0x20, 0), ccOK
	case 4:
		return append(head, 1, 0xff, 0xff), ccOK
	}
	return nil, ccField
}

// dcmiPower is Get Power Reading (DCMI 1.5, section 6.6.1): what the supplies take
// in, in watts.
func (s *Server) dcmiPower(r request) ([]byte, byte) {
	if r.data[0] != groupDCMI || r.data[1] != 1 {
		return nil, ccField
	}
	watts := 0.0
	for _, x := range s.b.Sensors() {
		if x.Kind == device.SensorPower && strings.HasPrefix(x.Part, "psu") && x.Present && !math.IsNaN(x.Value) {
			watts += x.Value
		}
	}
	now, d := s.b.Now(), &s.power
	if d.n == 0 {
		*d = draw{since: now, min: watts, max: watts}
	}
	d.n++
	d.sum += watts
	d.min, d.max = min(d.min, watts), max(d.max, watts)
	out := []byte{groupDCMI}
	for _, w := range []float64{watts, d.min, d.max, d.sum / float64(d.n)} {
		out = binary.LittleEndian.AppendUint16(out, uint16(min(math.Round(w), math.MaxUint16)))
	}
	out = binary.LittleEndian.AppendUint32(out, unixTime(now))
	out = binary.LittleEndian.AppendUint32(out, uint32(min(max(now.Sub(d.since).Milliseconds(), 1000), math.MaxUint32)))
	return append(out, 0x40), ccOK // measurement is active
}

// solParameter is Get SOL Configuration Parameters (section 26.3): it is on. That a session of it can be had is not played.
func (s *Server) solParameter(r request) ([]byte, byte) {
	if ch := r.data[0] & 0x0f; ch != 1 && ch != 0x0e {
		return nil, ccField
	}
	const revision = 0x11
	switch r.data[1] {
	case 0: // set in progress
		return []byte{revision, 0}, ccOK
	case 1: // enable
		return []byte{revision, 1}, ccOK
	}
	return nil, ccBootParameter // parameter not supported
}

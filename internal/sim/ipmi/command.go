package ipmi

import (
	"encoding/binary"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"auspex/internal/sim/device"
)

// Completion codes (table 5-2).
const (
	ccOK            = 0x00
	ccInvalid       = 0xc1 // command not known
	ccReservation   = 0xc5
	ccLength        = 0xc7
	ccRange         = 0xc9
	ccNotPresent    = 0xcb
	ccField         = 0xcc
	ccPrivilege     = 0xd4
	ccState         = 0xd5
	ccUnspecified   = 0xff
	ccBootParameter = 0x80
)

// Network functions of requests (table 5-1).
const (
	netChassis = 0x00
	netSensor  = 0x04
	netApp     = 0x06
	netStorage = 0x0a
	netLAN     = 0x0c
	netGroup   = 0x2c // its first byte names the group
)

// request is a command with its session, which is nil outside of one.
type request struct {
	data    []byte
	session *session
}

// command is an entry of the table of commands.
type command struct {
	least     int  // bytes of data
	privilege byte // 0 needs no session
	run       func(s *Server, r request) (data []byte, cc byte)
}

// commands by network function and command number (appendix G).
var commands = map[[2]byte]command{
	{netApp, 0x01}: {0, privilegeUser, (*Server).deviceID},
	{netApp, 0x04}: {0, privilegeUser, func(*Server, request) ([]byte, byte) { return []byte{0x55, 0x00}, ccOK }}, // self test passed
	{netApp, 0x08}: {0, privilegeUser, (*Server).systemGUID},
	{netApp, 0x37}: {0, 0, (*Server).systemGUID},
	{netApp, 0x38}: {2, 0, (*Server).authCapabilities},
	{netApp, 0x3b}: {1, privilegeUser, (*Server).setPrivilege},
	{netApp, 0x3c}: {4, privilegeUser, (*Server).closeSession},
	{netApp, 0x42}: {1, privilegeUser, (*Server).channelInfo},
	{netApp, 0x54}: {3, 0, (*Server).cipherSuites},

	{netApp, 0x44}: {2, privilegeOperator, (*Server).userAccess},
	{netApp, 0x46}: {1, privilegeOperator, (*Server).userName},

	{netLAN, 0x02}:   {4, privilegeOperator, (*Server).lanParameter},
	{netLAN, 0x22}:   {4, privilegeUser, (*Server).solParameter},
	{netGroup, 0x01}: {2, privilegeUser, (*Server).dcmiCapabilities},
	{netGroup, 0x02}: {4, privilegeUser, (*Server).dcmiPower},
	{netGroup, 0x03}: {3, privilegeUser, (*Server).dcmiLimit},
	{netGroup, 0x04}: {15, privilegeOperator, (*Server).dcmiSetLimit},
	{netGroup, 0x05}: {4, privilegeOperator, (*Server).dcmiActivate},

	{netChassis, 0x00}: {0, privilegeUser, func(*Server, request) ([]byte, byte) { return []byte{0, 0x20, 0x20, 0x20, 0x20}, ccOK }},
	{netChassis, 0x01}: {0, privilegeUser, (*Server).chassisStatus},
	{netChassis, 0x02}: {1, privilegeOperator, (*Server).chassisControl},
	{netChassis, 0x08}: {1, privilegeOperator, (*Server).setBoot},
	{netChassis, 0x09}: {3, privilegeOperator, (*Server).getBoot},

	{netSensor, 0x25}: {1, privilegeUser, (*Server).sensorHysteresis},
	{netSensor, 0x27}: {1, privilegeUser, (*Server).sensorThresholds},
	{netSensor, 0x2d}: {1, privilegeUser, (*Server).sensorReading},
	{netSensor, 0x2f}: {1, privilegeUser, (*Server).sensorType},

	{netStorage, 0x10}: {1, privilegeUser, (*Server).fruInfo},
	{netStorage, 0x11}: {4, privilegeUser, (*Server).fruRead},
	{netStorage, 0x20}: {0, privilegeUser, (*Server).sdrInfo},
	{netStorage, 0x22}: {0, privilegeUser, (*Server).sdrReserve},
	{netStorage, 0x23}: {6, privilegeUser, (*Server).sdrGet},
	{netStorage, 0x40}: {0, privilegeUser, (*Server).selInfo},
	{netStorage, 0x42}: {0, privilegeUser, (*Server).selReserve},
	{netStorage, 0x43}: {6, privilegeUser, (*Server).selGet},
	{netStorage, 0x47}: {6, privilegeOperator, (*Server).selClear},
	{netStorage, 0x48}: {0, privilegeUser, (*Server).selTime},
	{netStorage, 0x49}: {4, privilegeOperator, (*Server).selSetTime},
	{netStorage, 0x5c}: {0, privilegeUser, func(*Server, request) ([]byte, byte) { return []byte{0, 0}, ccOK }}, // offset from UTC
}

func checksum(p []byte) byte {
	var sum byte
	for _, b := range p {
		sum -= b
	}
	return sum
}

// message answers an IPMI LAN message (section 13.8); it returns nil for one that
// is broken.
func (s *Server) message(in []byte, x *session, garble bool) []byte {
	if len(in) < 7 || checksum(in[:2]) != in[2] || checksum(in[3:len(in)-1]) != in[len(in)-1] {
		return nil
	}
	fn := in[1] >> 2
	if fn&1 != 0 {
		return nil // a response
	}
	data, cc := s.run(fn, in[5], request{data: in[6 : len(in)-1], session: x})
	out := make([]byte, 0, 8+len(data))
	out = append(out, in[3], (fn|1)<<2|in[4]&3)
	out = append(out, checksum(out))
	out = append(out, in[0], in[4]&^3|in[1]&3, in[5], cc)
	if garble { // cut in half, as its Redfish service does
		data = data[:len(data)/2]
	}
	out = append(out, data...)
	sum := checksum(out[3:])
	if garble {
		sum ^= 0x5a
	}
	return append(out, sum)
}

func (s *Server) run(fn, cmd byte, r request) ([]byte, byte) {
	c, ok := commands[[2]byte{fn, cmd}]
	switch {
	case r.session == nil && (!ok || c.privilege > 0):
		return nil, ccPrivilege
	case !ok:
		return nil, ccInvalid
	case r.session != nil && r.session.privilege < c.privilege:
		return nil, ccPrivilege
	case len(r.data) < c.least:
		return nil, ccLength
	}
	data, cc := c.run(s, r)
	if cc != ccOK && cc != ccNoLimit {
		return nil, cc
	}
	return data, cc
}

// deviceID is Get Device ID (section 20.1).
func (s *Server) deviceID(request) ([]byte, byte) {
	major, minor, _ := strings.Cut(s.b.Info().Firmware, ".")
	minor, _, _ = strings.Cut(minor, ".")
	hi, err1 := strconv.Atoi(major)
	lo, err2 := strconv.Atoi(minor)
	if err1 != nil || err2 != nil {
		hi, lo = 1, 0
	}
	lo %= 100
	return []byte{
		0x20, 0x81, // device, revision 1 with sensor data records
		byte(hi & 0x7f), byte(lo/10<<4 | lo%10), 0x02, // firmware, IPMI 2.0
		0x8f,             // chassis, inventory, event log, record repository, sensors
		0xb3, 0x0f, 0x00, // manufacturer: a private number
		0x01, 0x00, // product
		0, 0, 0, 0,
	}, ccOK
}

func (s *Server) systemGUID(request) ([]byte, byte) { return s.guid(), ccOK }

// authCapabilities is Get Channel Authentication Capabilities (section 22.13).
func (s *Server) authCapabilities(r request) ([]byte, byte) {
	if ch := r.data[0] & 0x0f; ch != 0x0e && ch != 1 {
		return nil, ccField
	}
	support, ext := byte(0), byte(0)
	if r.data[0]&0x80 != 0 {
		support, ext = 0x80, 0x02 // IPMI 2.0 alone
	}
	return []byte{1, support, 0x04, ext, 0, 0, 0, 0}, ccOK
}

// cipherSuites is Get Channel Cipher Suites (section 22.15).
func (s *Server) cipherSuites(r request) ([]byte, byte) {
	var all []byte
	for _, x := range suites {
		all = append(all, 0xc0, x.id, x.auth, 0x40|x.integrity, 0x80|x.crypt)
	}
	from := min(int(r.data[2]&0x3f)*16, len(all))
	return append([]byte{1}, all[from:min(from+16, len(all))]...), ccOK
}

// channelInfo is Get Channel Info (section 22.24): a LAN channel with sessions.
func (s *Server) channelInfo(request) ([]byte, byte) {
	return []byte{1, 4, 1, 0x80 | byte(min(len(s.sessions), 0x3f)), 0xf2, 0x1b, 0, 0, 0}, ccOK
}

// setPrivilege is Set Session Privilege Level (section 22.18).
func (s *Server) setPrivilege(r request) ([]byte, byte) {
	switch want := r.data[0] & 0x0f; {
	case want == 0:
	case want < privilegeUser || want > privilegeAdmin:
		return nil, ccField
	case want > r.session.maxPrivilege():
		return nil, 0x81 // above the limit of the session
	default:
		r.session.privilege = want
	}
	return []byte{r.session.privilege}, ccOK
}

// closeSession is Close Session (section 22.19).
func (s *Server) closeSession(r request) ([]byte, byte) {
	id := binary.LittleEndian.Uint32(r.data)
	if s.sessions[id] == nil {
		return nil, 0x87
	}
	if id != r.session.id && r.session.privilege < privilegeAdmin {
		return nil, ccPrivilege
	}
	delete(s.sessions, id)
	return nil, ccOK
}

// chassisStatus is Get Chassis Status (section 28.2).
func (s *Server) chassisStatus(request) ([]byte, byte) {
	power := byte(2 << 5) // restore policy: always on
	if p := s.b.Power(); p == device.PowerOn || p == device.PowerPoweringOff {
		power |= 1
	}
	return []byte{power, 0, 0}, ccOK
}

// chassisControl is Chassis Control (section 28.3).
func (s *Server) chassisControl(r request) ([]byte, byte) {
	kinds := []device.ResetType{
		device.ResetForceOff, device.ResetOn, device.ResetPowerCycle, device.ResetForceRestart, device.ResetNmi, device.ResetGracefulShutdown,
	}
	i := int(r.data[0] & 0x0f)
	if i >= len(kinds) {
		return nil, ccField
	}
	switch err := s.b.Reset(kinds[i], "ipmi", ""); {
	case errors.Is(err, device.ErrUnsupported):
		return nil, ccField
	case err != nil:
		return nil, ccState
	}
	return nil, ccOK
}

// Boot devices of boot option parameter 5 (table 28-14).
var bootDevices = map[byte]string{0: "None", 1: "Pxe", 2: "Hdd", 4: "Diags", 5: "Cd", 6: "BiosSetup", 15: "Usb"}

const bootFlags = 5

// setBoot is Set System Boot Options (section 28.12). The boot flags go to the
// system, the other parameters are stored.
func (s *Server) setBoot(r request) ([]byte, byte) {
	param, data := r.data[0]&0x7f, r.data[1:]
	if param > 7 {
		return nil, ccBootParameter
	}
	if param != bootFlags {
		if len(data) > 0 {
			s.bootParams[param] = slices.Clone(data)
		}
		return nil, ccOK
	}
	if len(data) < 5 {
		return nil, ccLength
	}
	target, ok := bootDevices[data[1]>>2&0x0f]
	if !ok {
		return nil, ccField
	}
	b := device.Boot{Enabled: "Disabled", Target: target, Mode: "Legacy"}
	if data[0]&0x20 != 0 {
		b.Mode = "UEFI"
	}
	switch {
	case data[0]&0x80 == 0 || target == "None":
		b.Target = "None"
	case data[0]&0x40 != 0:
		b.Enabled = "Continuous"
	default:
		b.Enabled = "Once"
	}
	switch err := s.b.SetBoot(b); {
	case errors.Is(err, device.ErrUnsupported):
		return nil, ccField
	case err != nil:
		return nil, ccUnspecified
	}
	return nil, ccOK
}

// getBoot is Get System Boot Options (section 28.13).
func (s *Server) getBoot(r request) ([]byte, byte) {
	param := r.data[0] & 0x7f
	if param > 7 {
		return nil, ccBootParameter
	}
	if param != bootFlags {
		sizes := [8]int{1, 1, 1, 1, 2, 0, 9, 4}
		data := make([]byte, sizes[param])
		copy(data, s.bootParams[param])
		return append([]byte{1, param}, data...), ccOK
	}
	b := s.b.Boot()
	flags := make([]byte, 5)
	if b.Enabled == "Once" || b.Enabled == "Continuous" {
		flags[0] = 0x80
	}
	if b.Enabled == "Continuous" {
		flags[0] |= 0x40
	}
	if b.Mode == "UEFI" {
		flags[0] |= 0x20
	}
	for code, name := range bootDevices {
		if name == b.Target || b.Target == "UefiHttp" && name == "Pxe" {
			flags[1] = code << 2
		}
	}
	return append([]byte{1, param}, flags...), ccOK
}

func unixTime(t time.Time) uint32 {
	if t.IsZero() || t.Unix() < 0 {
		return 0
	}
	return uint32(t.Unix())
}

// selInfo is Get SEL Info (section 31.2).
func (s *Server) selInfo(request) ([]byte, byte) {
	records, erased := s.b.Log()
	var last uint32
	if n := len(records); n > 0 {
		last = unixTime(records[n-1].Time)
	}
	out := []byte{0x51}
	out = binary.LittleEndian.AppendUint16(out, uint16(min(len(records), 0xffff)))
	out = binary.LittleEndian.AppendUint16(out, 0xffff) // free: 65,535 bytes or more
	out = binary.LittleEndian.AppendUint32(out, last)
	out = binary.LittleEndian.AppendUint32(out, unixTime(erased))
	return append(out, 0x02), ccOK // Reserve SEL is supported
}

func (s *Server) selReserve(request) ([]byte, byte) {
	if s.selReservation++; s.selReservation == 0 {
		s.selReservation = 1
	}
	return binary.LittleEndian.AppendUint16(nil, s.selReservation), ccOK
}

// selRecord writes a system event record (section 32.1).
func selRecord(r *device.LogRecord) []byte {
	out := binary.LittleEndian.AppendUint16(nil, r.ID)
	out = append(out, 0x02)
	out = binary.LittleEndian.AppendUint32(out, unixTime(r.Time))
	return append(out, 0x20, 0x00, 0x04, r.SensorType, r.SensorNumber, r.EventType, r.Data[0], r.Data[1], r.Data[2])
}

// selGet is Get SEL Entry (section 31.5).
func (s *Server) selGet(r request) ([]byte, byte) {
	records, _ := s.b.Log()
	id := binary.LittleEndian.Uint16(r.data[2:])
	offset, count := int(r.data[4]), int(r.data[5])
	if offset > 0 && binary.LittleEndian.Uint16(r.data) != s.selReservation {
		return nil, ccReservation
	}
	if len(records) == 0 {
		return nil, ccNotPresent
	}
	i := 0
	switch id {
	case 0x0000:
	case 0xffff:
		i = len(records) - 1
	default:
		if i = slices.IndexFunc(records, func(x device.LogRecord) bool { return x.ID == id }); i < 0 {
			return nil, ccNotPresent
		}
	}
	next := uint16(0xffff)
	if i+1 < len(records) {
		next = records[i+1].ID
	}
	part, cc := slice(selRecord(&records[i]), offset, count)
	return append(binary.LittleEndian.AppendUint16(nil, next), part...), cc
}

// slice cuts the part of a record that was asked for; a count of FFh is the rest.
func slice(record []byte, offset, count int) ([]byte, byte) {
	switch {
	case offset > len(record):
		return nil, ccRange
	case count == 0xff || offset+count > len(record):
		return record[offset:], ccOK
	}
	return record[offset : offset+count], ccOK
}

// selClear is Clear SEL (section 31.9); erasure is done at once.
func (s *Server) selClear(r request) ([]byte, byte) {
	if id := binary.LittleEndian.Uint16(r.data); id != s.selReservation || id == 0 {
		return nil, ccReservation
	}
	if string(r.data[2:5]) != "CLR" {
		return nil, ccField
	}
	switch r.data[5] {
	case 0xaa:
		s.b.ClearLog()
		s.selReservation++
	case 0x00:
	default:
		return nil, ccField
	}
	return []byte{0x01}, ccOK
}

func (s *Server) selTime(request) ([]byte, byte) { return le32(unixTime(s.b.Now())), ccOK }

func (s *Server) selSetTime(r request) ([]byte, byte) {
	s.b.SetClock(time.Unix(int64(binary.LittleEndian.Uint32(r.data)), 0).UTC())
	return nil, ccOK
}

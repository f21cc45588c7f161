package ipmi

import (
	"encoding/binary"
	"math"

	"auspex/internal/sim/device"
)

// ccNoLimit says that no limit is in force, with what is set.
const ccNoLimit = 0x80

// limit is what the controller keeps of a power limit beside its watts.
type limit struct {
	exception  byte // what is done where it is passed
	correction uint32
	sampling   uint16
}

func (s *Server) limiter(r request) (l device.PowerLimiter, watts float64, active bool, cc byte) {
	l, ok := s.b.(device.PowerLimiter)
	if ok {
		watts, active, ok = l.PowerLimit()
	}
	switch {
	case !ok:
		return nil, 0, false, ccInvalid
	case r.data[0] != groupDCMI:
		return nil, 0, false, ccField
	}
	return l, watts, active, ccOK
}

// dcmiLimit is Get Power Limit (DCMI 1.5, section 6.6.2). It is told also where it is not in force.
func (s *Server) dcmiLimit(r request) ([]byte, byte) {
	_, watts, active, cc := s.limiter(r)
	if cc != ccOK {
		return nil, cc
	}
	out := []byte{groupDCMI, 0, 0, s.limit.exception}
	out = binary.LittleEndian.AppendUint16(out, uint16(math.Round(watts)))
	out = binary.LittleEndian.AppendUint32(out, s.limit.correction)
	if !active {
		cc = ccNoLimit
	}
	return binary.LittleEndian.AppendUint16(append(out, 0, 0), s.limit.sampling), cc
}

// dcmiSetLimit is Set Power Limit (section 6.6.3): it is in force once it is activated.
func (s *Server) dcmiSetLimit(r request) ([]byte, byte) {
	l, _, active, cc := s.limiter(r)
	if cc != ccOK {
		return nil, cc
	}
	watts := float64(binary.LittleEndian.Uint16(r.data[5:]))
	if watts < device.LeastPowerLimit {
		return nil, 0x84
	}
	if err := l.SetPowerLimit(watts, active, "ipmi", ""); err != nil {
		return nil, 0x84
	}
	s.limit = limit{r.data[4], binary.LittleEndian.Uint32(r.data[7:]), binary.LittleEndian.Uint16(r.data[13:])}
	return []byte{groupDCMI}, ccOK
}

// dcmiActivate is Activate/Deactivate Power Limit (section 6.6.4).
func (s *Server) dcmiActivate(r request) ([]byte, byte) {
	l, watts, _, cc := s.limiter(r)
	if cc != ccOK {
		return nil, cc
	}
	if err := l.SetPowerLimit(watts, r.data[1] == 1, "ipmi", ""); err != nil {
		return nil, ccState
	}
	return []byte{groupDCMI}, ccOK
}

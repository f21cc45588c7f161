package control

import (
	"time"

	"auspex/schemas"
)

// meter is the energy counter of a GPU beside its power: the one clock of its own
// that an exporter's text carries. It begins with the driver (NVML,
// nvmlDeviceGetTotalEnergyConsumption: "since the driver was last reloaded") and
// grows as fast as the power says. A recording has neither right.
type meter struct {
	begun, seen  time.Time
	joules       float64 // that the counter shows
	used         float64 // by the power, since begun
	first, last  meterAt // the first and the last growth
	watts, known float64 // the power read last; the time in which it was known, in seconds
}

type meterAt struct {
	at           time.Time
	joules, used float64
}

const (
	// A GPU that runs a burn-in when it starts, and idles then, uses ten times as much
	// at first as later (700 W against 70).
	olderBy = 10
	// The power is a sample, the counter an integral: apart by the changes of load
	// between two readings, and by what vendors count as the module.
	racesBy = 5
)

// meter reads the counter of the part that an observation is of, where it has one.
func (r *reading) meter(h Observation) {
	var joules, watts float64
	for _, x := range h.Values {
		switch x.Series {
		case schemas.GPUEnergy:
			joules = x.Number / 1000
		case schemas.GPUPower:
			watts = x.Number
		}
	}
	if joules <= 0 {
		return
	}
	m := r.meters[h.Resource]
	if m == nil || joules < m.joules { // a driver was loaded
		r.meters[h.Resource] = &meter{begun: h.Observed, seen: h.Observed, joules: joules, watts: watts}
		return
	}
	if s := h.Observed.Sub(m.seen).Seconds(); s > 0 && watts > 0 {
		m.used += s * (watts + m.watts) / 2
		m.known += s
	}
	if joules > m.joules {
		m.last = meterAt{h.Observed, joules, m.used}
		if m.first.at.IsZero() {
			m.first = m.last
		}
	}
	m.seen, m.joules, m.watts = h.Observed, joules, watts
}

// olderThan reports whether the counter shows more than can have been used since.
func (m *meter) olderThan(since time.Time) bool {
	watts := 0.0
	switch took := m.last.at.Sub(m.first.at).Seconds(); {
	case m.known > 0:
		watts = m.used / m.known
	case took > 0:
		watts = (m.last.joules - m.first.joules) / took
	}
	return watts > 0 && m.joules > olderBy*watts*m.seen.Sub(since).Seconds()
}

// races reports whether the counter, seen for long enough, grows at another pace
// than the power, or not at all.
func (m *meter) races(enough time.Duration) bool {
	grew := m.last.at
	if grew.IsZero() {
		grew = m.begun
	}
	switch {
	case m.known == 0:
		return false
	case m.seen.Sub(grew) > enough:
		return true
	case m.last.at.Sub(m.first.at) < enough:
		return false
	}
	counted, used := m.last.joules-m.first.joules, m.last.used-m.first.used
	return counted > racesBy*used || used > racesBy*counted
}
